//! The texts of an agent's screen.

use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::screen::Screen;

use memory_shepherd::base::diff::drift;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::visible_text::{is_side_by_side, text_height};
use memory_shepherd::console::screens::agent::state::AgentTab;
use memory_shepherd::console::screens::page_rows;
use memory_shepherd::console::text::{self, PreparedText};
use memory_shepherd::engine::{Observation, Outcome, RuleComparison, RunDiff, RunDiffSide, State};

use super::{BASELINE, MEMORY, console_with_texts};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{
    history_record, observation_of, plan, run_report, run_summary, sample_history,
};

#[test]
fn texts_are_reloaded_when_open_agent_changes() {
    let mut console = fleet_of_four();
    console.press("d");
    assert_eq!(
        console.observe(vec![observation_of("alpha", State::Drifted)]),
        []
    );
    let mut other = observation_of("charlie", State::Drifted);
    other.reason = "rules edited: L7".to_string();
    assert_eq!(
        console.observe(vec![other]),
        [Effect::PrepareTexts("charlie".to_string())]
    );
}

#[test]
fn n_goes_to_hunks_until_a_search() {
    let mut console = console_with_texts();
    assert_eq!(
        console.model.agent.diff.hunks.len(),
        2,
        "{:?}",
        console.model.agent.diff
    );
    let hunk = |console: &TestConsole| {
        let pane = console.model.agent.current_pane();
        pane.current_hunk(text_height(&console.model))
    };
    console.press("gg");
    assert_eq!(hunk(&console), Some(0), "it is in sight");
    for (key, expected) in [
        ("}", Some(1)),
        ("{", Some(0)),
        ("n", Some(1)),
        ("n", Some(1)),
        ("N", Some(0)),
    ] {
        console.press(key);
        assert_eq!(hunk(&console), expected, "{key}");
    }
    console.press("/");
    console.type_line("NE");
    console.press("Enter");
    let hits = console.model.agent.current_pane().hits.len();
    assert!(
        hits >= 3 && console.message_text().contains(&format!("{hits} hits")),
        "{}",
        console.message_text()
    );
    let at = |console: &TestConsole| console.model.agent.current_pane().current_hit;
    let before = at(&console);
    console.press("n");
    assert_eq!(at(&console), (before + 1) % hits);
    console.press("N");
    assert_eq!(at(&console), before);
    console.press("Esc n");
    assert_eq!(console.model.agent.current_pane().query, "", "hunks again");
}

#[test]
fn tabs_wrap_and_reveal_toggle() {
    let mut console = console_with_texts();
    for tab in [
        AgentTab::Scratch,
        AgentTab::Facts,
        AgentTab::Baseline,
        AgentTab::Rules,
        AgentTab::History,
        AgentTab::Diff,
        AgentTab::Scratch,
    ] {
        console.press("Tab");
        assert_eq!(console.model.agent.tab, tab);
    }
    assert_eq!(console.press("}"), []);
    assert_eq!(console.message_text(), "hunks are on the Diff tab");
    assert!(!console.screen_text().contains("} { hunk"));
    console.press("n");
    assert_eq!(console.message_text(), "hunks are on the Diff tab");
    console.press("S-Tab w .");
    assert!(console.screen_text().contains("} { hunk"));
    let (agent, options) = (&console.model.agent, console.model.text_options);
    assert_eq!(
        (agent.tab, options.is_wrapping, options.is_whitespace_marked),
        (AgentTab::Diff, false, true)
    );
}

#[test]
fn d_always_opens_the_diff() {
    // From every tab of an agent, and from the fleet after any tab.
    for tabs in ["", "Tab", "Tab Tab", "S-Tab"] {
        for from in ["", "q"] {
            let mut console = console_with_texts();
            console.press(tabs);
            console.press(from);
            console.press("d");
            let agent = &console.model.agent;
            assert_eq!(console.model.screen, Screen::Agent, "{tabs} {from}");
            assert_eq!(
                (agent.agent.as_str(), agent.tab),
                ("charlie", AgentTab::Diff),
                "{tabs} {from}"
            );
        }
    }
    // From plan, run, result and a row of the log, the screen is of the agent there, and goes back
    // there.
    let run = || run_report(&[("bravo", Outcome::Ok, None)]);
    type ConsolePlace<'p> = (&'p str, Screen, &'p dyn Fn(&mut TestConsole));
    let places: [ConsolePlace<'_>; 4] = [
        ("plan", Screen::Reset, &|_| {}),
        ("run", Screen::Reset, &|console| drop(console.press("y"))),
        ("result", Screen::Reset, &|console| {
            console.press("y");
            console.send(Msg::RunEnded(Box::new(run())));
        }),
        ("log", Screen::Log, &|console| {
            let bravo = [("bravo", Outcome::Ok)];
            console.send(Msg::LogLoaded(Ok(vec![
                crate::engine_samples::run_summary("aaaa", 10, &bravo),
            ])));
            console.press("7");
        }),
    ];
    for (what, screen, go) in places {
        let mut console = fleet_of_four();
        console.press("Enter Tab Tab q");
        console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
        go(&mut console);
        assert_eq!(console.model.screen, screen, "{what}");
        console.press("d");
        let agent = &console.model.agent;
        assert_eq!(
            (agent.agent.as_str(), agent.tab),
            ("bravo", AgentTab::Diff),
            "{what}"
        );
        console.press("q");
        assert_eq!(console.model.screen, screen, "{what}");
    }
    // A run of several agents is opened first.
    let mut console = fleet_of_four();
    let both = [("bravo", Outcome::Ok), ("delta", Outcome::Ok)];
    console.send(Msg::LogLoaded(Ok(vec![
        crate::engine_samples::run_summary("aaaa", 10, &both),
    ])));
    console.press("7 d");
    assert_eq!(console.model.screen, Screen::Log);
    assert!(
        console.message_text().contains("several agents; Enter"),
        "{}",
        console.message_text()
    );
}

#[test]
fn tampered_agent_screen_opens_on_baseline_tab() {
    let fleet = || {
        let mut console = fleet_of_four();
        console.observe(vec![observation_of("alpha", State::Tampered)]);
        console.press("gg");
        console
    };
    let shows =
        |console: &TestConsole| (console.model.agent.agent.clone(), console.model.agent.tab);
    let alpha = |tab| ("alpha".to_string(), tab);
    for keys in ["2", ": a g e n t Space a l p h a Enter"] {
        let mut console = fleet();
        console.press(keys);
        assert_eq!(shows(&console), alpha(AgentTab::Baseline), "{keys}");
    }
    // After any tab; and the tab does not carry over to other agents.
    let mut console = fleet();
    console.press("j Enter Tab Tab q gg 2");
    assert_eq!(shows(&console), alpha(AgentTab::Baseline));
    console.press("d");
    assert_eq!(shows(&console), alpha(AgentTab::Diff));
    console.press("q 2 q j Enter");
    assert_eq!(shows(&console), ("charlie".to_string(), AgentTab::Diff));
    // The same in the result of a run.
    let mut console = fleet();
    console.press_and_plan("j X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    console.press("Enter");
    let refused = run_report(&[("alpha", Outcome::Refused, Some("TAMPERED"))]);
    console.send(Msg::RunEnded(Box::new(refused)));
    console.press("2");
    assert_eq!(shows(&console), alpha(AgentTab::Baseline));
}

#[test]
fn stale_or_foreign_texts_are_ignored() {
    let mut console = console_with_texts();
    let lines = console.model.agent.diff.lines.clone();
    console.load_prepared("alpha", PreparedText::default(), PreparedText::default());
    assert_eq!(console.model.agent.diff.lines, lines);
    console.model.agent.generation += 100;
    console.load_prepared("charlie", PreparedText::default(), PreparedText::default());
    assert_eq!(console.model.agent.diff.lines, lines);
}

#[test]
fn side_by_side_needs_width_and_a_diff() {
    let mut console = console_with_texts();
    console.press("t");
    assert_eq!(
        console.message_text(),
        "side by side needs 110 columns; the terminal has 80"
    );
    assert!(!is_side_by_side(&console.model));
    console.send(Msg::Resized(110, 36));
    assert!(is_side_by_side(&console.model), "they come with the room");
    console.press("t");
    assert!(!is_side_by_side(&console.model));
    console.press("t f");
    assert!(
        !is_side_by_side(&console.model),
        "in full there is one text"
    );
    console.press("t");
    assert!(
        console.message_text().contains("f leaves it"),
        "{}",
        console.message_text()
    );
    console.press("q Tab t");
    assert!(
        console.message_text().contains("no diff on this tab"),
        "{}",
        console.message_text()
    );
    // An equal text is shown once.
    console.load_texts("charlie", BASELINE, Some(BASELINE));
    console.press("S-Tab");
    assert!(!is_side_by_side(&console.model));
}

#[test]
fn context_changes_within_bounds() {
    let mut console = console_with_texts();
    let shown = |console: &TestConsole| console.model.agent.diff.items.len();
    let first = shown(&console);
    console.press("_");
    assert!(shown(&console) < first);
    console.press("_");
    assert!(
        console.message_text().contains("already"),
        "{}",
        console.message_text()
    );
    for _ in 0..4 {
        console.press("=");
        assert_eq!(console.message_text(), "");
    }
    assert_eq!(console.model.text_options.context_lines, None);
    assert!(shown(&console) > first);
    console.press("=");
    assert!(
        console.message_text().contains("already"),
        "{}",
        console.message_text()
    );
    // The next agent keeps the display options.
    console.press("]");
    assert_eq!(console.model.text_options.context_lines, None);
}

#[test]
fn blank_only_differences_can_be_ignored() {
    let mut console = console_with_texts();
    let changed = |console: &TestConsole| {
        let lines = console.model.agent.diff.lines.iter();
        lines.filter(|line| line.kind.is_changed()).count()
    };
    let memory = String::from_utf8(MEMORY.to_vec()).unwrap();
    let memory = memory.replace("five", "  five ");
    console.load_texts("charlie", memory.as_bytes(), Some(BASELINE));
    assert_eq!(changed(&console), 6);
    console.press("i");
    assert_eq!(changed(&console), 4);
    // So is a text that arrives later, and one without such lines.
    let more = format!("{memory}note three\n");
    console.load_texts("charlie", more.as_bytes(), Some(BASELINE));
    assert_eq!(changed(&console), 4);
    console.press("i");
    assert_eq!(changed(&console), 6);
    console.load_texts("charlie", MEMORY, Some(BASELINE));
    console.press("i i");
    assert_eq!(changed(&console), 4);
}

#[test]
fn back_from_full_text_returns_to_agent() {
    for key in ["q", "Esc", "h", "f"] {
        let mut console = console_with_texts();
        console.press("f");
        let height = text_height(&console.model);
        assert_eq!(height, 14, "all rows but one");
        console.press(key);
        assert_eq!(console.model.screen, Screen::Agent, "{key}");
        assert!(!console.model.agent.is_full_screen, "{key}");
    }
    let mut console = console_with_texts();
    console.press("f /");
    console.type_line("ne");
    console.press("Enter Esc");
    assert!(console.model.agent.is_full_screen, "the search ends first");
}

fn console_with_history() -> TestConsole {
    let mut console = console_with_texts();
    assert_eq!(
        console.press("S-Tab"),
        [Effect::LoadHistory("charlie".to_string())]
    );
    console.send(Msg::HistoryLoaded(
        "charlie".to_string(),
        Ok(sample_history()),
    ));
    console
}

fn current_record(console: &TestConsole) -> u64 {
    console
        .model
        .agent
        .history
        .current_record()
        .unwrap()
        .record
        .seq
}

#[test]
fn history_row_opens_run_diff_and_returns() {
    let mut console = console_with_history();
    assert_eq!(current_record(&console), 9);
    for back in ["q", "Esc", "h"] {
        console.press("gg j j");
        assert_eq!(
            console.press("Enter"),
            [Effect::PrepareRunDiff("charlie".to_string(), 7)]
        );
        let text = text::prepare_run_diff(
            &RunDiff {
                before: RunDiffSide::Text(MEMORY.to_vec(), 0),
                after: RunDiffSide::Text(BASELINE.to_vec(), 0),
            },
            None,
        );
        // The reply to an earlier request arrives too late.
        console.send(Msg::RunDiffPrepared(
            "charlie".to_string(),
            9,
            Ok(text.clone()),
        ));
        assert!(console.model.agent.current_pane().lines.is_empty());
        console.send(Msg::RunDiffPrepared("charlie".to_string(), 7, Ok(text)));
        assert_eq!(console.model.agent.current_pane().hunks.len(), 2);
        console.press("} _ w");
        console.press(back);
        assert!(console.model.agent.is_list(), "{back}");
        assert_eq!(current_record(&console), 7, "{back}");
    }
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn history_keeps_its_row_when_records_are_added() {
    let mut console = console_with_history();
    console.press("j");
    assert_eq!(current_record(&console), 8);
    let mut more = sample_history();
    more.insert(0, history_record(12, 1, |_| {}));
    console.send(Msg::HistoryLoaded("charlie".to_string(), Ok(more.clone())));
    assert_eq!(current_record(&console), 8);
    console.press("gg");
    assert_eq!(current_record(&console), 12);
    console.press("G");
    assert_eq!(current_record(&console), 2);
    // The reply for another agent is ignored.
    console.send(Msg::HistoryLoaded("alpha".to_string(), Ok(Vec::new())));
    assert_eq!(current_record(&console), 2);
    // An open history is updated after a run.
    let mut ran = observation_of("charlie", State::Scratch);
    ran.last_run.as_mut().unwrap().run = "another".to_string();
    let wanted = console.observe(vec![ran]);
    assert!(wanted.contains(&Effect::LoadLog), "{wanted:?}");
    let wanted = console.send(Msg::LogLoaded(Ok(Vec::new())));
    assert_eq!(wanted, [Effect::LoadHistory("charlie".to_string())]);
    // Without a record there is nothing to open.
    console.send(Msg::HistoryLoaded("charlie".to_string(), Ok(Vec::new())));
    assert_eq!(console.press("Enter"), []);
    assert!(
        console.message_text().contains("no record yet"),
        "{}",
        console.message_text()
    );
    console.press("/");
    assert!(
        console.message_text().contains("list"),
        "{}",
        console.message_text()
    );
}

/// A new observation of the agent after a run that another program made.
fn observation_after_run(agent: &str) -> Observation {
    let mut seen = observation_of(agent, State::Clean);
    seen.last_run.as_mut().unwrap().run = "another".to_string();
    seen
}

#[test]
fn agent_screen_is_read_again_after_its_run() {
    let texts = || Effect::PrepareTexts("charlie".to_string());
    let mut console = console_with_history();
    console.press_and_plan("X", plan(&[("charlie", State::Scratch)]));
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    let report = run_report(&[("charlie", Outcome::Ok, None)]);
    console.send(Msg::RunEnded(Box::new(report)));
    let effects = console.observe(vec![observation_after_run("charlie")]);
    assert!(!effects.contains(&texts()), "another screen is shown");
    let effects = console.press("Esc");
    assert_eq!(console.model.screen, Screen::Agent);
    let history = Effect::LoadHistory("charlie".to_string());
    assert_eq!(effects, [texts(), history]);
    assert_eq!(console.press("j"), [], "once");
}

#[test]
fn facts_follow_the_records_of_their_agent() {
    let mut console = fleet_of_four();
    console.open_agent("charlie", b"", None);
    let mut load = |agents: &[(&str, Outcome)]| {
        let runs = vec![run_summary("aaaa", 10, agents)];
        console.send(Msg::LogLoaded(Ok(runs)))
    };
    assert_eq!(load(&[("alpha", Outcome::Ok)]), []);
    let texts = [Effect::PrepareTexts("charlie".to_string())];
    let both = [("alpha", Outcome::Ok), ("charlie", Outcome::Ok)];
    assert_eq!(load(&both), texts);
    assert_eq!(load(&both), [], "once");
}

#[test]
fn history_scrolls_with_cursor() {
    let mut console = console_with_history();
    let many = (0..50).map(|at| history_record(50 - at, 10, |_| {}));
    console.send(Msg::HistoryLoaded(
        "charlie".to_string(),
        Ok(many.collect()),
    ));
    console.press("G");
    let height = page_rows(&console.model);
    assert_eq!(console.model.agent.history.list.top, 50 - height);
    console.send(Msg::Resized(120, 36));
    assert_eq!(
        console.model.agent.history.list.top,
        50 - page_rows(&console.model)
    );
    console.press("gg");
    assert_eq!(console.model.agent.history.list.top, 0);
}

/// The rules of `charlie`: the operator added one, the agent weakened another.
fn compared_rules() -> RuleComparison {
    let pushed = b"# Rules\n- Never merge alone.\n- Be brief.\n";
    let baseline = b"# Rules\n- Never merge alone.\n- Be brief.\n- Be kind.\n";
    let memory = b"# Rules\n- Be brief.\n- Merge when in a hurry.\n";
    RuleComparison {
        pushed: Some(Digest::of(pushed)),
        baseline: Digest::of(baseline),
        has_boundary: true,
        rules: drift::compare_three_ways(pushed, baseline, memory, None),
    }
}

#[test]
fn rules_tab_compares_three_versions() {
    let mut console = console_with_texts();
    console.send(Msg::Resized(80, 24));
    let compare = Effect::CompareRules("charlie".to_string());
    assert_eq!(console.press("S-Tab S-Tab").last(), Some(&compare));
    assert!(console.screen_text().contains("reading …"));
    let rules = text::prepare_rules(&compared_rules());
    console.send(Msg::RulesCompared("charlie".to_string(), rules));
    let screen = console.screen_text();
    for expected in [
        "baseline +1   memory +1 -1",
        "The agent removed or reworded 1 rule with never, must or do not.",
        "changed in the baseline: +1",
        "+          4  - Be kind.",
        "changed by the agent: +1 -1",
        "-    2        - Never merge alone.",
    ] {
        assert!(screen.contains(expected), "{expected}: {screen}");
    }
    assert_eq!(console.press("t"), []);
    assert_eq!(
        console.message_text(),
        "no diff on this tab; Tab switches tabs"
    );
    assert_eq!(console.model.agent.rules.hunks.len(), 1);
    let mut other = observation_of("charlie", State::Drifted);
    other.reason = "rules edited: L7".to_string();
    assert!(console.observe(vec![other]).contains(&compare));
    console.press("q");
    assert!(!console.press("d").contains(&compare), "the diff is shown");
}

#[test]
fn each_changed_section_of_rules_is_a_hunk() {
    let mut console = console_with_texts();
    console.press("S-Tab S-Tab");
    let pushed = b"# Rules\n- Be brief.\n\n# Style\n- Be kind.\n";
    let memory = b"# Rules\n- Be long.\n\n# Style\n- Be rude.\n";
    let rules = text::prepare_rules(&RuleComparison {
        rules: drift::compare_three_ways(pushed, pushed, memory, None),
        ..compared_rules()
    });
    console.send(Msg::RulesCompared("charlie".to_string(), rules));
    assert_eq!(console.model.agent.rules.hunks.len(), 2);
}
