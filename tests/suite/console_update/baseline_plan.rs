//! Plans over baselines: requested, confirmed, applied, and what voids them.

use std::time::Duration;

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselineChangePlan, BaselinePlanRequest,
};
use memory_shepherd::console::screens::baselines::state::BaselinesPage;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{
    BaselineState, Observation, Protection, ScratchSelection, State, TextReplacement,
};

use super::{MINUTE, SECOND};
use crate::console_fixture::{TestConsole, fleet_of_four, keys_message};
use crate::engine_samples::{
    baseline_list, baseline_plan, baseline_summary, baseline_texts, configured_agents,
    observation_of, push_plan,
};

/// The baselines of the fleet of four; that of alpha differs from its seal.
fn console_with_baselines() -> TestConsole {
    let mut console = fleet_of_four();
    let of = |(agent, state)| baseline_summary(agent, state);
    let all = [
        ("alpha", BaselineState::Changed),
        ("bravo", BaselineState::Ok),
        ("charlie", BaselineState::Ok),
        ("delta", BaselineState::Ok),
    ];
    console.open_baselines(baseline_list(all.into_iter().map(of).collect()));
    console.press("gg");
    console.effects.clear();
    console
}

/// Returns the request of the last plan.
fn requested(effects: &[Effect]) -> &BaselinePlanRequest {
    match effects.last() {
        Some(Effect::MakeBaselinePlan(_, request)) => request,
        effect => panic!("no plan requested: {effect:?}"),
    }
}

fn is_applied(console: &TestConsole) -> bool {
    let mut effects = console.effects.iter();
    effects.any(|effect| matches!(effect, Effect::ApplyBaselinePlan(_)))
}

fn confirmation(console: &TestConsole) -> &Confirmation {
    let view = console.model.baseline_plan.view();
    &view.expect("no plan on the screen").prompt.confirmation
}

fn restore_of(agent: &str, version: &str) -> BaselinePlanRequest {
    BaselinePlanRequest::Restore {
        names: vec![format!("{agent}-MEMORY.md")],
        version: version.to_string(),
    }
}

#[test]
fn tampered_baseline_is_restored_in_three_keys() {
    let mut console = fleet_of_four();
    console.observe(vec![observation_of("alpha", State::Tampered)]);
    console.press("gg");
    console.press("Enter");
    let list = vec![baseline_summary("alpha", BaselineState::Changed)];
    console.load_baselines(baseline_list(list));
    let [sealed, current] = baseline_texts(BaselineState::Changed);
    console.load_comparison(&sealed, &current);
    let text = console.screen_text();
    assert!(text.contains("X restores it, S seals this one"), "{text}");
    let effects = console.press("X");
    assert_eq!(requested(&effects), &restore_of("alpha", "sealed"));
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    let effects = console.press("y");
    assert!(
        matches!(effects[..], [Effect::ApplyBaselinePlan(_)]),
        "{effects:?}"
    );
    let effects = console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan {
        summary: "restored alpha-MEMORY.md (run 7f3c)".to_string(),
        agents: vec!["alpha".to_string()],
        ..AppliedBaselinePlan::default()
    })));
    assert!(effects.contains(&Effect::ReadAgents(vec!["alpha".to_string()])));
    assert!(effects.contains(&Effect::LoadLog));
    assert_eq!(
        console.message_text(),
        "restored alpha-MEMORY.md (run 7f3c)"
    );
    assert_eq!(console.model.screen, Screen::Baselines);
    assert_eq!(console.model.baselines.page, BaselinesPage::Comparison);
}

#[test]
fn enter_and_space_never_confirm() {
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("Enter Space Enter");
    assert!(!is_applied(&console));
    console.press("y");
    assert!(is_applied(&console));
}

#[test]
fn foreign_change_is_sealed_only_by_typed_words() {
    let mut console = console_with_baselines();
    let effects = console.press("S");
    let expected = BaselinePlanRequest::Seal {
        names: vec!["alpha-MEMORY.md".to_string()],
        is_all: false,
        key: None,
    };
    assert_eq!(requested(&effects), &expected);
    console.answer_baseline_plan(baseline_plan(&["alpha"], true));
    console.press("y");
    assert!(!is_applied(&console), "{}", console.message_text());
    console.type_line("seal 2");
    console.press("Enter");
    assert!(!is_applied(&console));
    console.press("^u");
    console.type_line("seal 1");
    console.press("Enter");
    assert!(is_applied(&console));
}

#[test]
fn lint_errors_are_accepted_only_by_typed_words() {
    let mut console = console_with_baselines();
    console.press("S");
    let mut plan = baseline_plan(&["alpha"], false);
    plan.rows[0].lint_errors = vec!["MS305 placeholder: 9 placeholders wait".to_string()];
    console.answer_baseline_plan(plan);
    let typed = Confirmation::TypedText("seal 1".to_string());
    assert_eq!(confirmation(&console), &typed);
    let text = console.screen_text();
    assert!(text.contains("lint error: MS305 placeholder"), "{text}");
    assert!(text.contains("seal --force alpha-MEMORY.md"), "{text}");
}

#[test]
fn problem_of_the_seal_is_shown_beside_each_file() {
    let mut console = console_with_baselines();
    console.press("S");
    let mut plan = baseline_plan(&["alpha", "beta"], true);
    plan.problem = Some("the signature is not good; nothing is taken as sealed".to_string());
    console.answer_baseline_plan(plan);
    for _ in 0..2 {
        let text = console.screen_text();
        for part in [
            "the signature is not good; nothing is taken as sealed",
            "not all saved by this program",
            "Type  seal 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        console.press("j");
    }
}

#[test]
fn own_change_is_sealed_by_one_key() {
    let mut console = console_with_baselines();
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    assert_eq!(confirmation(&console), &Confirmation::SingleKey);
}

#[test]
fn all_marked_baselines_are_sealed_as_a_whole() {
    let mut console = console_with_baselines();
    let effects = console.press("a S");
    assert!(
        matches!(requested(&effects), BaselinePlanRequest::Seal { is_all: true, names, .. }
            if names.len() == 4)
    );
}

#[test]
fn one_rule_is_changed_in_three_baselines() {
    let mut console = console_with_baselines();
    // Beside the typed text: three marks, the key, Enter three times.
    console.press("Space Space Space s");
    console.type_line("Never merge");
    console.press("Enter");
    console.type_line("Merge");
    let effects = console.press("Enter");
    let names = ["alpha", "bravo", "charlie"].map(|agent| format!("{agent}-MEMORY.md"));
    let expected = BaselinePlanRequest::Replace {
        names: names.to_vec(),
        replacement: TextReplacement {
            pattern: "Never merge".to_string(),
            replacement: "Merge".to_string(),
            is_regex: false,
        },
    };
    assert_eq!(requested(&effects), &expected);
    console.answer_baseline_plan(baseline_plan(&["alpha", "bravo", "charlie"], false));
    let typed = Confirmation::TypedText("replace 3".to_string());
    assert_eq!(confirmation(&console), &typed);
    // Each file has its own difference.
    console.press("j j");
    let row = console.model.baseline_plan.current_row().unwrap();
    assert_eq!(row.name, "charlie-MEMORY.md");
    console.type_line("replace 3");
    console.press("Enter");
    assert!(is_applied(&console));
    // They are sealed together next.
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan::default())));
    let effects = console.press("S");
    assert!(
        matches!(requested(&effects), BaselinePlanRequest::Seal { names: marked, .. }
            if *marked == names)
    );
    console.answer_baseline_plan(baseline_plan(&["alpha", "bravo", "charlie"], false));
    console.type_line("seal 3");
    console.press("Enter");
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan::default())));
    // And pushed together last; the marks have done their work then.
    let effects = console.press("P");
    let agents = ["alpha", "bravo", "charlie"].map(str::to_string).to_vec();
    let push = PlanRequest::Push(agents, ScratchSelection::All.into());
    assert!(
        matches!(&effects[..], [Effect::MakePlan(_, request, _)] if *request == push),
        "{effects:?}"
    );
    let behind = ["alpha", "bravo", "charlie"].map(|agent| (agent, State::Behind));
    console.answer_plan(push_plan(&behind, &ScratchSelection::All, 3));
    console.advance(KEY_GUARD_TIME);
    console.type_line("push 3");
    console.press("Enter");
    assert!(console.model.baselines.marks.is_empty());
}

#[test]
fn push_of_an_unused_baseline_is_refused() {
    let mut console = console_with_baselines();
    let mut unused = baseline_summary("spare", BaselineState::Ok);
    unused.agents.clear();
    console.load_baselines(baseline_list(vec![unused]));
    assert_eq!(console.press("P"), []);
    let hint = console.model.last_message.as_ref().unwrap();
    assert!(
        hint.text.contains("no agent uses this baseline"),
        "{hint:?}"
    );
}

#[test]
fn prompts_have_two_forms_and_take_pasted_text() {
    let mut console = console_with_baselines();
    console.press("s Tab");
    console.send(Msg::TextPasted("mer+ge\nsecond line".to_string()));
    console.press("Enter");
    let effects = console.press("x Enter");
    assert!(
        matches!(requested(&effects), BaselinePlanRequest::Replace { replacement, .. }
            if replacement.is_regex && replacement.pattern == "mer+ge"),
        "{effects:?}"
    );
    let mut console = console_with_baselines();
    console.press("N");
    console.type_line("scout-MEMORY.md");
    let create = |source: &str| BaselinePlanRequest::Create {
        name: "scout-MEMORY.md".to_string(),
        source: source.to_string(),
    };
    let effects = console.press("Enter");
    assert_eq!(requested(&effects), &create("template"));
    console.press("Esc N");
    console.type_line("scout-MEMORY.md");
    let effects = console.press("Tab Enter");
    assert_eq!(requested(&effects), &create("alpha-MEMORY.md"));
    // Esc leaves the line; an empty name is refused.
    console.press("Esc N q Esc");
    assert_eq!(console.model.input_line, None);
    assert_eq!(console.press("N Enter"), []);
}

#[test]
fn missing_baseline_offers_its_name_to_the_new_key() {
    let mut console = fleet_of_four();
    let mut unread = observation_of("alpha", State::Error);
    unread.reason =
        "the baseline is missing: /etc/memory-shepherd/baselines/alpha-MEMORY.md".into();
    console.observe(vec![unread]);
    console.press("gg j");
    for size in [(120, 36), (80, 24)] {
        console.send(Msg::Resized(size.0, size.1));
        let text = console.screen_text();
        assert!(text.contains("3 opens it: N creates it"), "{text}");
    }
    let missing = baseline_summary("alpha", BaselineState::Missing);
    console.open_baselines(baseline_list(vec![missing]));
    let text = console.screen_text();
    assert!(
        text.contains("N creates it, v lists its versions"),
        "{text}"
    );
    let effects = console.press("N Enter");
    let create = BaselinePlanRequest::Create {
        name: "alpha-MEMORY.md".to_string(),
        source: "template".to_string(),
    };
    assert_eq!(requested(&effects), &create);
}

#[test]
fn undo_key_plans_the_previous_version() {
    let mut console = console_with_baselines();
    let effects = console.press("z");
    assert_eq!(requested(&effects), &restore_of("alpha", "previous"));
}

#[test]
fn expired_unlock_voids_an_open_baseline_plan() {
    let mut console = console_with_baselines();
    let mut alpha = observation_of("alpha", State::Clean);
    alpha.protection = Protection::ReadOnly;
    console.observe(vec![alpha]);
    console.press("! ! y");
    console.advance(30 * MINUTE - Duration::from_secs(20));
    console.press("z");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    let effects = console.advance(Duration::from_secs(20));
    assert_eq!(requested(&effects), &restore_of("alpha", "previous"));
    console.press("y");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y");
    assert!(!is_applied(&console));
    let said = console.message_text();
    assert!(said.contains("protected as read-only"), "{said}");
}

#[test]
fn restore_over_foreign_lines_needs_typed_words() {
    let typed = |replaces_foreign: bool| {
        let mut console = console_with_baselines();
        console.press("z");
        let mut plan = baseline_plan(&["alpha"], false);
        plan.rows[0].replaces_foreign = replaces_foreign;
        console.answer_baseline_plan(plan);
        console.screen_text().contains("Type  restore 1")
    };
    assert!(typed(true));
    assert!(!typed(false));
}

#[test]
fn command_line_of_a_sealed_restore_seals_its_files_only() {
    let mut console = console_with_baselines();
    console.send(Msg::Resized(250, 36));
    console.press("z");
    let mut plan = baseline_plan(&["alpha"], false);
    let files = std::sync::Arc::make_mut(&mut plan.change);
    let BaselineChangePlan::Files { is_resealed, .. } = files else {
        panic!("{files:?}");
    };
    *is_resealed = true;
    console.answer_baseline_plan(plan);
    let text = console.screen_text();
    assert!(text.contains("seal alpha-MEMORY.md"), "{text}");
}

#[test]
fn named_key_is_part_of_the_next_seal_plan() {
    let mut console = console_with_baselines();
    console.press("S");
    let mut plan = baseline_plan(&["alpha"], false);
    plan.refusal = Some("require_seal=signed".to_string());
    console.answer_baseline_plan(plan);
    console.press("y");
    assert!(!is_applied(&console));
    console.press("K");
    console.type_line("~/.ssh/id.pub");
    let effects = console.press("Enter");
    let key = "~/.ssh/id.pub".to_string();
    assert_eq!(effects, [Effect::CheckSigningKey(key.clone())]);
    let effects = console.send(Msg::SigningKeyChecked(key, Ok(())));
    assert!(
        matches!(requested(&effects), BaselinePlanRequest::Seal { key: Some(key), .. }
            if key == "~/.ssh/id.pub")
    );
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y");
    assert!(is_applied(&console));
    // The next seal offers the same key.
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan::default())));
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("K");
    let screen = console.screen_text();
    assert!(
        screen.contains("sign with key file (typing replaces it): ~/.ssh/id.pub"),
        "{screen}"
    );
    console.type_line("/k");
    assert!(console.screen_text().contains("sign with key file: /k_"));
    console.press("Esc K Backspace");
    assert!(
        console
            .screen_text()
            .contains("sign with key file: ~/.ssh/id.pu_")
    );
    console.press("Esc K");
    console.send(Msg::TextPasted("/other".to_string()));
    assert!(
        console
            .screen_text()
            .contains("sign with key file: /other_")
    );
}

#[test]
fn key_that_cannot_be_read_keeps_line_open() {
    let mut console = console_with_baselines();
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("K");
    console.type_line("~/nokey");
    console.press("Enter");
    let checked = |key: &str, ok: bool| {
        let error = Error::new(
            ErrorKind::Conflict,
            "cannot read /home/op/nokey: no such file",
        );
        Msg::SigningKeyChecked(key.to_string(), if ok { Ok(()) } else { Err(error) })
    };
    assert_eq!(console.send(checked("~/nokey", false)), []);
    assert!(
        console
            .message_text()
            .starts_with("cannot read /home/op/nokey")
    );
    assert!(
        console
            .screen_text()
            .contains("sign with key file: ~/nokey_")
    );
    console.press("Backspace Enter");
    // The reply about the line as it was is late.
    assert_eq!(console.send(checked("~/nokey", true)), []);
    assert_eq!(console.send(checked("~/noke", true)).len(), 1);
    assert_eq!(console.model.input_line, None);
}

#[test]
fn refused_name_stays_in_the_line() {
    let mut console = console_with_baselines();
    console.press("N");
    console.type_line("a/b");
    console.press("Tab Enter");
    let id = console.model.baseline_plan.plan.requests.last_id;
    let error = Error::new(ErrorKind::Conflict, "a/b cannot be the name of a baseline");
    console.send(Msg::BaselinePlanMade(id, Err(error)));
    assert_eq!(console.model.screen, Screen::Baselines);
    assert!(console.message_text().starts_with("a/b cannot be"));
    let screen = console.screen_text();
    assert!(screen.contains("text of alpha-MEMORY.md: a/b_"), "{screen}");
    assert!(screen.contains("a/b cannot be the name"), "{screen}");
    // Further typing goes on in the line.
    let effects = console.press("Backspace Backspace Tab Enter");
    let create = BaselinePlanRequest::Create {
        name: "a".to_string(),
        source: "template".to_string(),
    };
    assert_eq!(requested(&effects), &create);
}

#[test]
fn plan_is_made_again_after_a_minute() {
    let mut console = console_with_baselines();
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], true));
    console.type_line("seal");
    let effects = console.advance(MINUTE + SECOND);
    assert!(
        matches!(effects[..], [Effect::MakeBaselinePlan(..)]),
        "{effects:?}"
    );
    // An equal plan does not bring back what was typed a minute ago.
    console.answer_baseline_plan(baseline_plan(&["alpha"], true));
    console.press("Space");
    console.type_line("1");
    console.press("Enter");
    assert!(!is_applied(&console));
}

#[test]
fn changed_files_void_the_typed_words() {
    let mut console = console_with_baselines();
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], true));
    console.advance(MINUTE - SECOND);
    console.type_line("seal 1");
    console.advance(2 * SECOND);
    console.answer_baseline_plan(baseline_plan(&["alpha", "bravo"], true));
    let view = console.model.baseline_plan.view().unwrap();
    assert_eq!(view.prompt.typed_text, "");
    assert!(console.message_text().contains("files have changed"));
}

#[test]
fn late_plan_is_ignored() {
    let mut console = console_with_baselines();
    console.press("X Esc X");
    let plan = baseline_plan(&["alpha"], false);
    console.send(Msg::BaselinePlanMade(1, Ok(Box::new(plan))));
    assert!(console.model.baseline_plan.view().is_none());
    console.press("Esc");
    let plan = baseline_plan(&["alpha"], false);
    console.send(Msg::BaselinePlanMade(2, Ok(Box::new(plan))));
    assert_eq!(console.model.screen, Screen::Baselines);
    assert!(console.model.baseline_plan.view().is_none());
    assert!(!console.model.baseline_plan.plan.is_open());
}

#[test]
fn keys_typed_ahead_do_not_confirm() {
    let mut console = console_with_baselines();
    console.press("X");
    let request = console.model.baseline_plan.plan.requests.last_id;
    let plan = baseline_plan(&["alpha"], false);
    console.send(Msg::BaselinePlanMade(request, Ok(Box::new(plan))));
    for _ in 0..5 {
        console.send(keys_message("y"));
        console.advance(Duration::from_millis(300));
    }
    assert!(!is_applied(&console));
    assert!(console.screen_text().contains("Typed-ahead keys ignored"));
    console.advance(SECOND);
    console.press("y");
    assert!(is_applied(&console));
}

#[test]
fn read_only_console_writes_nothing() {
    let mut console = console_with_baselines();
    console.model.read_only.is_forced = true;
    assert_eq!(console.press("X"), []);
    assert_eq!(console.message_text(), "started with --read-only");
    // Where it can be switched off, the same plan runs afterwards.
    let mut console = console_with_baselines();
    console.press("!");
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y");
    assert!(!is_applied(&console));
    let effects = console.press("! y");
    assert_eq!(requested(&effects), &restore_of("alpha", "sealed"));
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.advance(SECOND);
    console.press("y");
    assert!(is_applied(&console));
}

#[test]
fn protected_agents_need_more_than_a_key() {
    let protected = |protection| {
        let mut console = console_with_baselines();
        console.observe(vec![Observation {
            protection,
            ..observation_of("alpha", State::Clean)
        }]);
        console.press("X");
        console.answer_baseline_plan(baseline_plan(&["alpha"], false));
        console
    };
    let typed = protected(Protection::Typed);
    let words = Confirmation::TypedText("restore 1".to_string());
    assert_eq!(confirmation(&typed), &words);
    let mut locked = protected(Protection::ReadOnly);
    locked.press("y");
    assert!(!is_applied(&locked));
    let text = locked.screen_text();
    assert!(text.contains("protected as read-only"), "{text}");
}

#[test]
fn failures_of_a_plan_are_reported() {
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y");
    // Leaving is not possible while files are written.
    console.press("q");
    assert_eq!(console.model.screen, Screen::BaselinePlan);
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan {
        summary: "no baseline restored".to_string(),
        failures: vec!["alpha-MEMORY.md: it has changed".to_string()],
        ..AppliedBaselinePlan::default()
    })));
    assert!(
        console
            .message_text()
            .contains("not written: alpha-MEMORY.md")
    );
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y");
    let error = Error::new(ErrorKind::Conflict, "it has changed").with_hint("look again");
    console.send(Msg::BaselinePlanApplied(Err(error)));
    // The plan stays, with the reason, until it is left or made again.
    assert_eq!(console.message_text(), "it has changed; look again");
    assert_eq!(console.model.screen, Screen::BaselinePlan);
    let screen = console.screen_text();
    assert!(
        screen.contains("Not possible: it has changed; look again"),
        "{screen}"
    );
    assert_eq!(console.press("y"), []);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Baselines);
}

#[test]
fn refused_request_returns_to_the_baselines() {
    let mut console = console_with_baselines();
    console.press("X");
    let request = console.model.baseline_plan.plan.requests.last_id;
    let error = Error::new(
        ErrorKind::User,
        "alpha-MEMORY.md has no known version sealed",
    );
    console.send(Msg::BaselinePlanMade(request, Err(error)));
    assert_eq!(console.model.screen, Screen::Baselines);
    assert!(console.message_text().contains("no known version"));
}

#[test]
fn all_lint_errors_and_the_owner_are_in_the_text() {
    let mut console = console_with_baselines();
    console.send(Msg::Resized(80, 24));
    console.press("S");
    let mut plan = baseline_plan(&["alpha", "bravo"], true);
    plan.rows[0].lint_errors = ["one", "two", "three"]
        .map(|word| format!("MS705 authority-spoof: {word}\u{1b}[31m"))
        .to_vec();
    plan.notes = vec!["2 other changed files stay unsealed".to_string()];
    console.answer_baseline_plan(plan);
    let text = console.screen_text();
    for part in [
        "not all saved by this program",
        "owner uid",
        "authority-spoof: one",
        "authority-spoof: two",
        "authority-spoof: three",
        "3 lint errors",
        "2 other changed files stay unsealed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'));
    // The other file has its own facts, and the total stays.
    console.press("j");
    let text = console.screen_text();
    assert!(!text.contains("authority-spoof"), "{text}");
    assert!(
        text.contains("owner uid") && text.contains("3 lint errors"),
        "{text}"
    );
}

#[test]
fn changed_config_closes_a_plan_out_of_sight() {
    let adopt_config = |console: &mut TestConsole| {
        let (info, names) = (
            console.model.config.clone(),
            ["alpha", "bravo", "charlie", "delta"],
        );
        console.send(Msg::ConfigAdopted(info, configured_agents(&names), false))
    };
    // On the screen, off it, and while it is being made.
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    let effects = adopt_config(&mut console);
    assert!(
        console.message_text().contains("it closed the plan"),
        "{}",
        console.message_text()
    );
    assert!(effects.contains(&Effect::LoadBaselines), "{effects:?}");
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("1");
    adopt_config(&mut console);
    assert!(
        console.message_text().contains("it closed the plan"),
        "{}",
        console.message_text()
    );
    console.press("- y");
    assert!(!is_applied(&console));
    let mut console = console_with_baselines();
    console.press("X 1");
    adopt_config(&mut console);
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("- y");
    assert!(!is_applied(&console));
}

#[test]
fn keys_typed_for_another_program_do_not_confirm() {
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.advance(SECOND);
    // The shell had the terminal; its last keys arrive with the resize.
    console.send(Msg::Resized(120, 36));
    console.send(keys_message("y"));
    assert!(!is_applied(&console));
    console.advance(SECOND);
    console.press("y");
    assert!(is_applied(&console));
}

#[test]
fn replacement_is_for_the_baselines_of_its_prompt() {
    let mut console = console_with_baselines();
    console.press("Space Space s");
    console.type_line("old");
    let of = |agent: &str| baseline_summary(agent, BaselineState::Ok);
    console.load_baselines(baseline_list(["bravo", "charlie"].map(of).into()));
    console.press("Enter");
    console.type_line("new");
    let effects = console.press("Enter");
    assert!(
        matches!(requested(&effects), BaselinePlanRequest::Replace { names, .. }
            if names == &["alpha-MEMORY.md", "bravo-MEMORY.md"]),
        "{effects:?}"
    );
}

#[test]
fn refreshed_plan_keeps_the_row_under_the_cursor() {
    let mut console = console_with_baselines();
    console.press("a S");
    console.answer_baseline_plan(baseline_plan(&["bravo", "charlie"], false));
    console.press("j");
    console.advance(MINUTE + SECOND);
    console.answer_baseline_plan(baseline_plan(&["alpha", "bravo", "charlie"], false));
    let row = console.model.baseline_plan.current_row().unwrap();
    assert_eq!(row.name, "charlie-MEMORY.md");
}

#[test]
fn quitting_while_files_are_written_asks_twice() {
    let applying = || {
        let mut console = console_with_baselines();
        console.press("X");
        console.answer_baseline_plan(baseline_plan(&["alpha"], false));
        console.press("y");
        console.effects.clear();
        console
    };
    let quits = |console: &TestConsole| console.effects.contains(&Effect::Quit);
    for keys in ["^c", "1 q"] {
        let mut console = applying();
        console.press(keys);
        assert!(!quits(&console), "{keys}");
        assert!(
            console.message_text().contains("being written"),
            "{keys}: {}",
            console.message_text()
        );
        console.press(keys.rsplit(' ').next().unwrap());
        assert!(quits(&console), "{keys}");
    }
    // After the end of one plan the next asks again.
    let mut console = applying();
    console.press("^c");
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan::default())));
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y ^c");
    assert!(!quits(&console));
}

#[test]
fn plan_being_made_is_abandoned_before_quitting() {
    let mut console = console_with_baselines();
    console.press("X ^c");
    assert!(!console.effects.contains(&Effect::Quit));
    assert_eq!(console.model.screen, Screen::Baselines);
    console.press("^c");
    assert!(console.effects.contains(&Effect::Quit));
}

#[test]
fn no_plan_is_requested_while_one_is_applied() {
    let mut console = console_with_baselines();
    console.press("X");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("y 3");
    for keys in ["S", "X", "z", "s", "N"] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert!(
            console.message_text().contains("being written"),
            "{keys}: {}",
            console.message_text()
        );
        assert_eq!(console.model.input_line, None, "{keys}");
    }
    console.press("6");
    console.press("G S");
    assert!(
        console.message_text().contains("being written"),
        "{}",
        console.message_text()
    );
    assert!(console.model.baseline_plan.plan.applying().is_some());
}

#[test]
fn narrow_plan_shows_labels_and_further_rows() {
    let mut console = console_with_baselines();
    console.send(Msg::Resized(80, 24));
    console.press("a S");
    let names = ["alpha", "bravo", "charlie", "delta", "echo"];
    let mut plan = baseline_plan(&names, false);
    plan.rows[0].label = "changed, 12 errors".to_string();
    console.answer_baseline_plan(plan);
    let text = console.screen_text();
    assert!(text.contains("changed, 12 errors +1 -1"), "{text}");
    assert!(text.contains("rows 1-3 of 5"), "{text}");
    console.press("j j j j");
    let text = console.screen_text();
    assert!(text.contains("rows 3-5 of 5"), "{text}");
}

#[test]
fn long_input_shows_the_end_being_typed() {
    let mut console = console_with_baselines();
    console.send(Msg::Resized(80, 24));
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&["alpha"], false));
    console.press("K");
    console.type_line(&format!(
        "/home/operator/{}/id_ed25519.pub",
        "long/".repeat(20)
    ));
    let text = console.screen_text();
    assert!(text.contains("id_ed25519.pub_"), "{text}");
    assert!(text.contains("sign with key file: …"), "{text}");
}

#[test]
fn seal_without_changes_is_only_signed() {
    let mut console = console_with_baselines();
    console.press("S");
    console.answer_baseline_plan(baseline_plan(&[], false));
    assert_eq!(confirmation(&console), &Confirmation::NothingToRun);
    let screen = console.screen_text();
    assert!(
        screen.contains("Nothing to write. Esc to go back."),
        "{screen}"
    );
    console.press("K");
    console.type_line("/k");
    console.press("Enter");
    console.send(Msg::SigningKeyChecked("/k".to_string(), Ok(())));
    console.answer_baseline_plan(baseline_plan(&[], false));
    let screen = console.screen_text();
    assert!(
        screen.contains("Press y to sign, Esc to cancel."),
        "{screen}"
    );
}
