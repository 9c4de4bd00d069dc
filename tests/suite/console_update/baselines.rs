//! Baselines screen: the list, versions and comparisons.

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::visible_text::is_side_by_side;
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baselines::state::{
    BaselinesPage, ComparedVersion, ComparisonRequest,
};
use memory_shepherd::engine::{BaselineState, State};

use crate::console_fixture::{TestConsole, fleet_of, fleet_of_four};
use crate::engine_samples::{
    baseline_list, baseline_summary, baseline_texts, baseline_versions, observation_of,
};

/// The baselines of the fleet of four; that of charlie differs from its seal.
fn console_with_baselines() -> TestConsole {
    let mut console = fleet_of_four();
    console.open_baselines(list_of_four());
    console
}

fn list_of_four() -> memory_shepherd::engine::BaselineList {
    let of = |(agent, state)| baseline_summary(agent, state);
    let all = [
        ("charlie", BaselineState::Changed),
        ("alpha", BaselineState::Ok),
        ("bravo", BaselineState::Ok),
        ("delta", BaselineState::Ok),
    ];
    baseline_list(all.into_iter().map(of).collect())
}

fn compare(agent: &str, sides: [ComparedVersion; 2]) -> Effect {
    Effect::CompareBaseline(ComparisonRequest {
        name: format!("{agent}-MEMORY.md"),
        sides,
        fallback: None,
    })
}

fn load_changed(console: &mut TestConsole) {
    let [sealed, current] = baseline_texts(BaselineState::Changed);
    console.load_comparison(&sealed, &current);
}

#[test]
fn cursor_begins_on_baseline_of_current_agent() {
    let mut console = fleet_of_four();
    console.press("j");
    let agent = console.model.fleet.cursor_agent.clone().unwrap();
    console.open_baselines(list_of_four());
    assert_eq!(
        console.model.baselines.subject(),
        Some(format!("{agent}-MEMORY.md").as_str())
    );
    // A list that is loaded again keeps the cursor on its baseline.
    let mut list = list_of_four();
    list.baselines.reverse();
    console.load_baselines(list);
    assert_eq!(
        console.model.baselines.subject(),
        Some(format!("{agent}-MEMORY.md").as_str())
    );
}

#[test]
fn changed_baseline_opens_against_its_sealed_version() {
    let mut console = console_with_baselines();
    let effects = console.press("gg Enter");
    let expected = compare("charlie", [ComparedVersion::Sealed, ComparedVersion::Disk]);
    assert_eq!(effects[0], expected);
    load_changed(&mut console);
    let text = console.screen_text();
    assert!(text.contains("when in a hurry"), "{text}");
    assert!(text.contains("resets BLOCKED: charlie"), "{text}");
    assert!(
        text.contains("owner uid 1004, gid 1004, mode 0664"),
        "{text}"
    );
    console.press("q");
    assert_eq!(console.model.baselines.page, BaselinesPage::List);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn own_save_is_no_alarm() {
    let mut console = fleet_of_four();
    let saved = baseline_summary("alpha", BaselineState::Saved);
    console.open_baselines(baseline_list(vec![saved]));
    let screen = console.screen_text();
    assert!(screen.contains("saved, not sealed"), "{screen}");
    assert!(
        screen.contains("resets refuse it until it is sealed: S seals it"),
        "{screen}"
    );
}

#[test]
fn tampered_agent_opens_its_evidence_from_fleet() {
    for keys in ["Enter", "l"] {
        let mut console = fleet_of_four();
        console.observe(vec![observation_of("alpha", State::Tampered)]);
        let effects = console.press(&format!("gg {keys}"));
        assert_eq!(
            effects,
            [
                compare("alpha", [ComparedVersion::Sealed, ComparedVersion::Disk]),
                Effect::LoadBaselines
            ]
        );
        console.press("q");
        assert_eq!(console.model.screen, Screen::Fleet, "{keys}");
    }
}

#[test]
fn baseline_tab_of_an_agent_opens_its_evidence() {
    let mut console = fleet_of_four();
    console.observe(vec![observation_of("alpha", State::Tampered)]);
    console.press("gg 2");
    let effects = console.press("Enter");
    let expected = compare("alpha", [ComparedVersion::Sealed, ComparedVersion::Disk]);
    assert_eq!(effects[0], expected);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Agent);
}

#[test]
fn tab_goes_through_versions_and_skips_the_other_side() {
    let mut console = console_with_baselines();
    console.press("gg Enter");
    let mut seen = Vec::new();
    for _ in 0..4 {
        match console.press("Tab").as_slice() {
            [Effect::CompareBaseline(request)] => seen.push(request.sides[0].clone()),
            effects => panic!("{effects:?}"),
        }
    }
    assert_eq!(
        seen,
        [
            ComparedVersion::Pushed,
            ComparedVersion::Previous,
            ComparedVersion::Template,
            ComparedVersion::Sealed,
        ]
    );
    let effects = console.press("S-Tab");
    let template = compare(
        "charlie",
        [ComparedVersion::Template, ComparedVersion::Disk],
    );
    assert_eq!(effects, [template]);
}

#[test]
fn first_comparison_falls_back_to_the_pushed_version() {
    let mut console = fleet_of_four();
    let mut alpha = baseline_summary("alpha", BaselineState::Ok);
    alpha.sealed = None;
    let pushed = alpha.last_push.as_mut().unwrap();
    pushed.sha256 = alpha.sha256.unwrap();
    console.open_baselines(baseline_list(vec![alpha]));
    let effects = console.press("Enter");
    let Some(Effect::CompareBaseline(request)) = effects.first() else {
        panic!("{effects:?}");
    };
    assert_eq!(request.sides[0], ComparedVersion::Previous);
    assert_eq!(request.fallback, Some(ComparedVersion::Pushed));
    // A key that chooses a version gets that one or none.
    for _ in 0..5 {
        let effects = console.press("Tab");
        let [Effect::CompareBaseline(request)] = effects.as_slice() else {
            panic!("{effects:?}");
        };
        assert_eq!(request.fallback, None);
    }
}

#[test]
fn palette_chooses_another_baseline_for_a_side() {
    let mut console = console_with_baselines();
    console.press("gg Enter");
    load_changed(&mut console);
    let effects = console.press(">");
    let name = "charlie-MEMORY.md".to_string();
    assert_eq!(effects, [Effect::LoadBaselineVersions(name.clone())]);
    let records = baseline_versions("charlie");
    console.send(Msg::BaselineVersionsLoaded(name, Ok(records)));
    console.type_line("bravo");
    let effects = console.press("Enter");
    let other = ComparedVersion::Other("bravo-MEMORY.md".to_string());
    assert_eq!(
        effects,
        [compare("charlie", [ComparedVersion::Sealed, other])]
    );
    // Texts of the previous sides are late.
    let [sealed, current] = baseline_texts(BaselineState::Changed);
    console.load_comparison(&sealed, &current);
    console.press("<");
    let id = baseline_versions("charlie")[0].sha256.unwrap();
    console.type_line(&id.short_hex(8));
    let effects = console.press("Enter");
    assert!(
        matches!(&effects[..], [Effect::CompareBaseline(request)]
            if request.sides[0] == ComparedVersion::Stored(id)),
        "{effects:?}"
    );
}

#[test]
fn late_comparison_is_ignored() {
    let mut console = console_with_baselines();
    console.press("gg Enter");
    let old_request = console.model.baselines.comparison.request.clone();
    console.press("Tab");
    console.send(Msg::BaselineCompared(old_request, Err("late".to_string())));
    assert!(!console.model.baselines.comparison.shown.is_loaded);
}

#[test]
fn version_opens_against_the_file() {
    let mut console = console_with_baselines();
    let effects = console.press("gg v");
    let name = "charlie-MEMORY.md".to_string();
    assert_eq!(effects, [Effect::LoadBaselineVersions(name.clone())]);
    let records = baseline_versions("charlie");
    console.send(Msg::BaselineVersionsLoaded(name, Ok(records.clone())));
    let effects = console.press("j Enter");
    let version = ComparedVersion::Stored(records[1].sha256.unwrap());
    assert_eq!(
        effects[0],
        compare("charlie", [version, ComparedVersion::Disk])
    );
    console.press("q");
    assert_eq!(console.model.baselines.page, BaselinesPage::Versions);
    assert_eq!(console.model.baselines.versions.list.cursor, 1);
}

#[test]
fn marks_follow_names_and_drop_removed_baselines() {
    let mut console = console_with_baselines();
    console.press("gg Space Space");
    assert_eq!(
        console.model.baselines.targets(),
        ["charlie-MEMORY.md", "alpha-MEMORY.md"]
    );
    let mut list = list_of_four();
    list.baselines.remove(0);
    console.load_baselines(list);
    assert_eq!(console.model.baselines.targets(), ["alpha-MEMORY.md"]);
    console.press("A a");
    assert_eq!(console.model.baselines.targets().len(), 3);
}

#[test]
fn push_is_planned_from_a_comparison() {
    let mut console = console_with_baselines();
    console.press("gg Enter");
    load_changed(&mut console);
    assert_eq!(console.model.baselines.page, BaselinesPage::Comparison);
    console.press("P");
    assert_eq!(
        console.model.screen,
        Screen::Reset,
        "{}",
        console.message_text()
    );
}

#[test]
fn comparison_is_searched_and_scrolled_like_a_diff() {
    let mut console = console_with_baselines();
    console.press("gg Enter");
    load_changed(&mut console);
    console.press("/");
    console.type_line("hurry");
    console.press("Enter");
    assert_eq!(console.message_text(), "1 hit");
    console.press("Esc");
    assert_eq!(console.model.baselines.comparison.shown.pane.query, "");
    assert_eq!(console.model.baselines.page, BaselinesPage::Comparison);
    let is_wide = is_side_by_side(&console.model);
    console.press("t");
    assert_ne!(is_side_by_side(&console.model), is_wide);
}

#[test]
fn changed_agents_reload_the_screen() {
    let mut console = console_with_baselines();
    let effects = console.observe(vec![observation_of("alpha", State::Tampered)]);
    assert_eq!(effects, [Effect::LoadBaselines]);
    console.press("gg Enter");
    load_changed(&mut console);
    let effects = console.observe(vec![observation_of("alpha", State::Clean)]);
    assert!(
        matches!(effects[1], Effect::CompareBaseline(_)),
        "{effects:?}"
    );
}

#[test]
fn cursor_stays_on_its_baseline_and_version() {
    let list = |agents: &[&str]| {
        let of = |agent: &&str| baseline_summary(agent, BaselineState::Ok);
        baseline_list(agents.iter().map(of).collect())
    };
    let mut console = fleet_of_four();
    console.model.fleet.cursor_agent = None;
    console.open_baselines(list(&["bravo", "charlie"]));
    // A key is about the baseline that it was pressed at, also before one has moved the cursor.
    console.press("Space k");
    console.load_baselines(list(&["alpha", "bravo", "charlie"]));
    assert_eq!(console.model.baselines.subject(), Some("bravo-MEMORY.md"));
    let mut untouched = fleet_of_four();
    untouched.model.fleet.cursor_agent = None;
    untouched.open_baselines(list(&["bravo", "charlie"]));
    untouched.press("v");
    untouched.press("q");
    untouched.load_baselines(list(&["alpha", "bravo", "charlie"]));
    assert_eq!(untouched.model.baselines.subject(), Some("bravo-MEMORY.md"));
    // A removed baseline hands the cursor to its neighbour and says so.
    console.press("G");
    console.load_baselines(list(&["alpha", "bravo"]));
    assert_eq!(console.model.baselines.subject(), Some("bravo-MEMORY.md"));
    assert!(
        console
            .message_text()
            .contains("charlie-MEMORY.md is no longer listed"),
        "{}",
        console.message_text()
    );
    // A new record is put above the version under the cursor.
    let name = "bravo-MEMORY.md".to_string();
    console.press("v");
    let records = baseline_versions("bravo");
    console.send(Msg::BaselineVersionsLoaded(
        name.clone(),
        Ok(records.clone()),
    ));
    console.press("j");
    let mut newer = records.clone();
    newer.insert(
        0,
        memory_shepherd::engine::BaselineVersion {
            run: "newer".to_string(),
            ..records[0].clone()
        },
    );
    console.send(Msg::BaselineVersionsLoaded(name, Ok(newer)));
    assert_eq!(console.model.baselines.current_version(), Some(&records[1]));
}

#[test]
fn list_is_loaded_again_on_return() {
    let mut console = console_with_baselines();
    console.press("1");
    assert_eq!(console.press("-"), [Effect::LoadBaselines]);
    // From a comparison, the versions and the agent screen.
    console.press("gg Enter");
    load_changed(&mut console);
    assert_eq!(console.press("q"), [Effect::LoadBaselines]);
    console.press("v Enter");
    let name = "charlie-MEMORY.md".to_string();
    let versions = baseline_versions("charlie");
    console.send(Msg::BaselineVersionsLoaded(name.clone(), Ok(versions)));
    console.press("Enter");
    assert!(
        console
            .press("q")
            .contains(&Effect::LoadBaselineVersions(name))
    );
    assert_eq!(console.press("q"), [Effect::LoadBaselines]);
    // To a comparison and a verification.
    console.press("Enter 1");
    let effects = console.press("-");
    assert!(
        matches!(
            effects[..],
            [Effect::LoadBaselines, Effect::CompareBaseline(_)]
        ),
        "{effects:?}"
    );
    console.press("6 1");
    assert_eq!(console.press("-"), [Effect::LoadBaselines]);
    // An abandoned plan.
    console.press("3 X");
    assert_eq!(console.press("Esc"), [Effect::LoadBaselines]);
}

#[test]
fn narrow_screen_shows_keys_of_the_evidence() {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 24));
    let mut changed = baseline_summary("alpha", BaselineState::Changed);
    changed.agents = [
        "a-long-agent-name",
        "another-long-agent-name",
        "third-agent",
    ]
    .map(str::to_string)
    .to_vec();
    changed.findings = Some(memory_shepherd::engine::FindingCounts {
        errors: 2,
        warnings: 0,
    });
    console.open_baselines(baseline_list(vec![changed]));
    let text = console.screen_text();
    for part in [
        "X restores it, S seals this one",
        "resets BLOCKED",
        "2 errors",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn read_only_start_refuses_changes_at_once() {
    let mut console = console_with_baselines();
    console.model.read_only.is_forced = true;
    console.press("gg");
    let screen = console.screen_text();
    assert!(screen.contains("resets BLOCKED: charlie"), "{screen}");
    assert!(!screen.contains("restores it"), "{screen}");
    for key in ["X", "S", "s", "N", "z"] {
        assert_eq!(console.press(key), [], "{key}");
        assert_eq!(console.model.input_line, None, "{key}");
        assert_eq!(console.message_text(), "started with --read-only", "{key}");
    }
    assert_eq!(console.model.screen, Screen::Baselines);
}

#[test]
fn runs_and_pushes_are_unknown_without_a_ledger() {
    let row_shows_unknown = |console: &TestConsole| {
        let cells: Vec<char> = console.screen_text().chars().collect();
        let mut lines = cells.chunks(120).map(String::from_iter);
        let row = lines.find(|line| line.contains(" alpha"));
        row.unwrap().contains(" ? ")
    };
    let mut console = fleet_of(&[("alpha", State::Clean)]);
    let mut seen = observation_of("alpha", State::Clean);
    seen.last_run = None;
    console.observe(vec![seen.clone()]);
    assert!(!row_shows_unknown(&console));
    seen.ledger_error = Some("no archive is there".to_string());
    console.observe(vec![seen]);
    assert!(row_shows_unknown(&console), "{}", console.screen_text());
    let mut alpha = baseline_summary("alpha", BaselineState::Ok);
    alpha.last_push = None;
    let mut list = baseline_list(vec![alpha]);
    console.open_baselines(list.clone());
    assert!(!row_shows_unknown(&console));
    list.ledger_error = Some(Error::new(ErrorKind::Host, "no archive is there"));
    console.load_baselines(list);
    assert!(row_shows_unknown(&console), "{}", console.screen_text());
}

#[test]
fn unsealed_baseline_says_that_resets_are_refused() {
    let mut console = fleet_of_four();
    let of = |(agent, state)| baseline_summary(agent, state);
    let all = [
        ("alpha", BaselineState::Unsealed),
        ("bravo", BaselineState::Ok),
    ];
    console.open_baselines(baseline_list(all.into_iter().map(of).collect()));
    console.press("gg");
    let text = "not in the seal: resets are refused until it is sealed: S seals it";
    let screen = console.screen_text();
    assert!(screen.contains(text), "{screen}");
    // Without any seal nothing is checked.
    console.load_baselines(baseline_list(vec![of(("alpha", BaselineState::Unsealed))]));
    let screen = console.screen_text();
    assert!(screen.contains("its integrity is not checked"), "{screen}");
    // Signers alone make no reset refuse it.
    let mut list = baseline_list(vec![of(("alpha", BaselineState::Unsealed))]);
    list.signature = Some(Err(Error::new(ErrorKind::Integrity, "the seal is missing")));
    console.load_baselines(list.clone());
    let screen = console.screen_text();
    assert!(screen.contains("its integrity is not checked"), "{screen}");
    list.is_unsealed_refused = true;
    console.load_baselines(list);
    let screen = console.screen_text();
    assert!(
        screen.contains("resets refuse it: the seal is missing"),
        "{screen}"
    );
}

#[test]
fn findings_and_limit_are_shown_at_80_columns() {
    let mut console = fleet_of_four();
    let mut summary = baseline_summary("alpha", BaselineState::Ok);
    summary.over_limit = true;
    console.open_baselines(baseline_list(vec![summary]));
    let screen = console.screen_text();
    assert!(screen.contains("good, over limit"), "{screen}");
    console.send(Msg::Resized(80, 24));
    let screen = console.screen_text();
    assert!(screen.contains("FINDINGS"), "{screen}");
    assert!(!screen.contains("PUSHED"), "{screen}");
    assert!(screen.contains("OVER the limit 16.0K"), "{screen}");
}

#[test]
fn filter_shows_matching_baselines_while_typing() {
    let mut console = console_with_baselines();
    console.press("gg /");
    console.type_line("SXd");
    let screen = console.screen_text();
    assert!(
        screen.contains("0 of 4 match"),
        "letters run no keys: {screen}"
    );
    assert_eq!(console.model.screen, Screen::Baselines);
    console.press("^u");
    console.type_line("delta");
    let screen = console.screen_text();
    assert!(screen.contains("filter: delta  1 of 4 matches"), "{screen}");
    assert!(!screen.contains("bravo-MEMORY.md"), "{screen}");
    console.press("Enter");
    assert_eq!(console.model.baselines.subject(), Some("delta-MEMORY.md"));
    console.press("Esc");
    assert!(console.screen_text().contains("bravo-MEMORY.md"));
    // Esc in the line brings the filter from before back.
    console.press("/");
    console.type_line("is:ok");
    assert!(console.screen_text().contains("3 of 4 match"));
    console.press("Enter / x Esc");
    assert_eq!(console.model.baselines.filter, "is:ok");
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn marks_that_the_filter_hides_are_not_acted_on() {
    let mut console = console_with_baselines();
    console.press("gg a /");
    console.type_line("bravo");
    console.press("Enter");
    let screen = console.screen_text();
    assert!(screen.contains("marked 4 (3 hidden by filter)"), "{screen}");
    assert_eq!(console.model.baselines.targets(), ["bravo-MEMORY.md"]);
}
