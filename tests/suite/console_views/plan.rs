//! Views of reset and undo plans.

use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::reset::state::PlanDetailsRequest;
use memory_shepherd::console::text;
use memory_shepherd::engine::{
    Plan, READ_ONLY_REASON, ScratchSelection, State, StepAction, UndoMode,
};

use super::agent::{BASELINE, NOTES, memory_from_baseline, open_agent, with_edited_rules};
use super::{TERMINAL_SIZES, TestConsole, assert_view, fleet_of_every_state, rendered_text};
use crate::engine_samples::{observation_of, plan, push_plan, skipped_agent, undo_plan};

/// Requests a plan and waits until the key guard accepts keys.
pub fn show_plan(console: &mut TestConsole, keys: &str, plan: Plan) {
    console.press_and_plan(keys, plan);
    console.advance(Duration::from_secs(2));
}

#[test]
fn one_key_plan_matches_snapshot() {
    assert_view("plan_key", |console| {
        show_plan(console, "X", plan(&[("docs-writer", State::Scratch)]));
    });
}

#[test]
fn push_plans_match_snapshots() {
    assert_view("plan_push_all", |console| {
        let agents = [
            ("docs-writer", State::Behind),
            ("code-reviewer", State::Drifted),
        ];
        let plan = push_plan(&agents, &ScratchSelection::All, 58);
        show_plan(console, "Space Space P", plan);
    });
    assert_view("plan_push_lines", |console| {
        let text = memory_from_baseline(with_edited_rules, NOTES);
        open_agent(console, "code-reviewer", &text, Some(BASELINE));
        console.press("Tab Space j Space");
        let selection: ScratchSelection = "164,166".parse().unwrap();
        let plan = push_plan(&[("code-reviewer", State::Drifted)], &selection, 2);
        show_plan(console, "P", plan);
    });
}

#[test]
fn plan_of_agent_behind_matches_snapshot() {
    assert_view("plan_behind", |console| {
        let agents = [("docs-writer", State::Behind)];
        let mut plan = push_plan(&agents, &ScratchSelection::All, 58);
        plan.steps[0].behind_version = Some(Digest::of(b"old"));
        let change = "baseline changed: +3 -3 lines since it was pushed last";
        plan.steps[0].notes = vec![change.to_string()];
        show_plan(console, "P", plan);
        let Some(PlanDetailsRequest::Rules(request)) = console.model.reset.details.request.clone()
        else {
            panic!("no change of rules")
        };
        let mut new = BASELINE.to_vec();
        new.splice(..0, *b"# Rules of the documentation\n");
        let text = text::prepare_comparison([BASELINE, &new], None);
        console.send(Msg::NewRulesCompared(request, text));
    });
}

#[test]
fn typed_plan_matches_snapshot() {
    assert_view("plan_typed", |console| {
        let agents = [
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("log-digger", State::NoSep),
            ("test-runner", State::Missing),
            ("researcher", State::Oversize),
        ];
        let mut made = plan(&agents);
        made.skipped = vec![
            skipped_agent(
                "billing-bot",
                State::Tampered,
                "the baseline does not match the seal",
            ),
            skipped_agent(
                "release-captain",
                State::Busy,
                "locked by run 5a10c3d2 of timer",
            ),
        ];
        show_plan(console, "a X", made);
        console.type_line("reset");
    });
}

#[test]
fn whole_fleet_plan_matches_snapshot() {
    assert_view("plan_fleet", |console| {
        let mut made = plan(&[
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        made.is_whole_fleet = true;
        show_plan(console, "a X", made);
    });
}

/// Everything that three hosts lack.
const DEGRADATIONS: [&str; 4] = [
    "on other hosts a memory is absent for a moment, loses extended attributes and access lists, and late writers are detected by reading twice, not by a lease",
    "box lacks posix-rename@openssh.com: a file that an agent puts in place of the memory at that moment may be lost",
    "box lacks hardlink@openssh.com: a memory that an agent recreates at that moment may be overwritten",
    "box lacks fsync@openssh.com: a power cut there may leave the new memory empty or half written",
];

#[test]
fn degraded_plan_matches_snapshot() {
    let make = |console: &mut TestConsole| {
        let mut made = plan(&[
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        for step in &mut made.steps[1..] {
            step.host = "box".to_string();
            step.degradations = DEGRADATIONS.map(str::to_string).to_vec();
        }
        show_plan(console, "X", made);
    };
    assert_view("plan_degraded", make);
    for (columns, rows) in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, rows));
        make(&mut console);
        let shown = rendered_text(&console, "terminal");
        let shown: Vec<&str> = shown.split_whitespace().collect();
        for text in DEGRADATIONS {
            assert!(shown.join(" ").contains(text), "{text}\n{shown:?}");
        }
    }
    // Omitted lines are counted.
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(60, 15));
    let mut made = plan(&[("docs-writer", State::Scratch)]);
    made.steps[0].degradations = DEGRADATIONS.map(str::to_string).to_vec();
    show_plan(&mut console, "X", made);
    let shown = rendered_text(&console, "terminal");
    assert!(
        shown.contains("more: --dry-run prints all degradations"),
        "{shown}"
    );
    assert!(shown.contains("docs-writer"), "{shown}");
}

#[test]
fn plan_without_steps_matches_snapshot() {
    assert_view("plan_nothing", |console| {
        let mut made = plan(&[]);
        made.skipped = vec![skipped_agent(
            "billing-bot",
            State::Tampered,
            "the baseline billing-bot-MEMORY.md does not match the seal; resets are blocked",
        )];
        show_plan(console, "X", made);
    });
}

#[test]
fn pending_and_absent_plan_match_snapshot() {
    assert_view("plan_waiting", |console| {
        console.press("X");
    });
    assert_view("plan_none", |console| {
        console.press("X");
        console.model.reset.plan.end();
    });
}

#[test]
fn plan_ignoring_early_keys_matches_snapshot() {
    assert_view("plan_ignoring", |console| {
        console.press("X");
        console.answer_plan(plan(&[("code-reviewer", State::Drifted)]));
        console.type_line("reset 1");
    });
}

#[test]
fn read_only_plan_matches_snapshot() {
    let drifted = || plan(&[("code-reviewer", State::Drifted)]);
    assert_view("plan_read_only", |console| {
        console.model.read_only.is_on = true;
        show_plan(console, "X", drifted());
        console.type_line("reset");
    });
    assert_view("plan_read_only_forced", |console| {
        console.model.read_only.is_forced = true;
        let mut made = drifted();
        made.skipped = vec![skipped_agent(
            "docs-writer",
            State::Scratch,
            READ_ONLY_REASON,
        )];
        show_plan(console, "X", made);
    });
    assert_view("plan_protected", |console| {
        let mut made = plan(&[]);
        made.skipped = vec![skipped_agent(
            "docs-writer",
            State::Scratch,
            READ_ONLY_REASON,
        )];
        show_plan(console, "X", made);
    });
}

#[test]
fn redo_and_run_undo_plans_match_snapshot() {
    assert_view("redo_key", |console| {
        show_plan(
            console,
            "Z",
            undo_plan(&["docs-writer"], false, UndoMode::Refuse),
        );
    });
    assert_view("undo_last_run", |console| {
        let mut test_runner = observation_of("test-runner", State::Missing);
        test_runner.last_run = None;
        console.observe(vec![test_runner]);
        console.press("j j j j Space");
        let mut made = undo_plan(&[], false, UndoMode::Refuse);
        made.skipped = vec![skipped_agent(
            "test-runner",
            State::Missing,
            "nothing to undo in the ledger",
        )];
        show_plan(console, "z", made);
    });
}

#[test]
fn undo_plan_names_the_runs_it_undoes() {
    assert_view("undo_creation", |console| {
        let mut made = undo_plan(&["docs-writer"], false, UndoMode::Refuse);
        made.steps[0].action = StepAction::Remove;
        show_plan(console, "z", made);
    });
    assert_view("undo_of_two_runs", |console| {
        let agents = ["docs-writer", "monitor-bot", "code-reviewer"];
        let mut made = undo_plan(&agents, false, UndoMode::Refuse);
        made.steps[0].action = StepAction::Remove;
        made.steps[1].undone_run.as_mut().unwrap().run = "77aa0c12".to_string();
        made.steps[2].action = StepAction::PutBack;
        show_plan(console, "a z", made);
    });
}

#[test]
fn plan_counts_whole_files_apart_from_lines() {
    assert_view("plan_whole_files", |console| {
        let mut made = plan(&[
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Drifted),
        ]);
        for step in &mut made.steps {
            if step.state == State::Drifted {
                step.entry_kind = Some(EntryKind::FullBackup);
                step.archive_bytes = 12_288;
            }
        }
        let changed = "baseline changed: +2 -140 lines since it was pushed last";
        made.steps[1].notes.insert(0, changed.to_string());
        show_plan(console, "a X", made);
        console.press("j");
    });
}

#[test]
fn plan_with_hidden_marks_matches_snapshot() {
    assert_view("plan_hidden", |console| {
        console.press("a / ! d o c s Enter");
        let agents = [
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ];
        show_plan(console, "X", plan(&agents));
    });
}

#[test]
fn undo_plan_matches_snapshot() {
    assert_view("undo_key", |console| {
        show_plan(
            console,
            "z",
            undo_plan(&["docs-writer"], false, UndoMode::Refuse),
        );
    });
    assert_view("undo_choice", |console| {
        show_plan(
            console,
            "z",
            undo_plan(&["docs-writer"], true, UndoMode::Refuse),
        );
    });
    assert_view("undo_overwrite", |console| {
        show_plan(
            console,
            "z",
            undo_plan(&["docs-writer"], true, UndoMode::Refuse),
        );
        console.press("o");
        console.answer_plan(undo_plan(&["docs-writer"], true, UndoMode::Overwrite));
        console.advance(KEY_GUARD_TIME);
    });
}

#[test]
fn read_only_undo_plan_says_so_and_fits() {
    for (columns, written_since) in [(60, false), (80, false), (80, true), (120, true)] {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, 24));
        console.press("!");
        show_plan(
            &mut console,
            "z",
            undo_plan(&["docs-writer"], written_since, UndoMode::Refuse),
        );
        let shown = rendered_text(&console, "terminal");
        let line = shown
            .lines()
            .find(|line| line.contains("Read-only: ! unlocks."));
        let line = line.unwrap_or_else(|| panic!("{shown}"));
        let end = match (written_since, columns) {
            (false, _) => "Press y to undo, Esc to cancel.",
            (true, 80) => "New notes since:  a append,  o overwrite",
            (true, _) => "o archive them, overwrite",
        };
        assert!(line.trim_end().ends_with(end), "{line}");
    }
}

#[test]
fn unlocked_plan_title_fits_80_columns() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    console.press("! ! y");
    show_plan(&mut console, "X", plan(&[("docs-writer", State::Scratch)]));
    let shown = rendered_text(&console, "terminal");
    let title = shown.lines().next().unwrap();
    assert!(
        title.contains("RW unlocked  1 agent ") && !title.contains('…'),
        "{title}"
    );
}

const LONG_FLEET_NAME: &str = "production-of-the-whole-of-europe-west";

const LONG_NAME: &str = "an-agent-with-a-name-that-is-very-long-indeed";

/// Plans of agents, on a console whose fleet has a long name, unlocked for a while.
fn long_named_plans(columns: u16, is_unlocked: bool) -> Vec<TestConsole> {
    let fresh = || {
        let mut console = fleet_of_every_state();
        console.model.config.name = LONG_FLEET_NAME.to_string();
        console.send(Msg::Resized(columns, 24));
        if is_unlocked {
            console.press("! ! y");
        }
        console.press("/ v e r y Enter");
        console
    };
    let mut reset = fresh();
    show_plan(&mut reset, "X", plan(&[(LONG_NAME, State::Scratch)]));
    let mut undo = fresh();
    show_plan(
        &mut undo,
        "z",
        undo_plan(&[LONG_NAME], false, UndoMode::Refuse),
    );
    vec![reset, undo]
}

#[test]
fn long_names_leave_count_and_status_in_plan_titles() {
    for (columns, is_unlocked) in [(60, false), (80, false), (80, true), (120, true)] {
        for console in long_named_plans(columns, is_unlocked) {
            let shown = rendered_text(&console, "terminal");
            let title = shown.lines().next().unwrap();
            assert!(title.ends_with("nothing changed yet"), "{title}");
            assert!(title.contains(" 1 agent"), "{title}");
            assert!(title.contains(" PLAN"), "{title}");
            assert!(title.contains("[PROD] RW"), "{title}");
        }
    }
}

#[test]
fn confirmations_keep_their_keys_on_narrow_screens() {
    for (columns, is_read_only) in [(60, false), (60, true), (80, false), (80, true)] {
        let planned = |keys: &str, made: Plan| {
            let mut console = fleet_of_every_state();
            console.model.config.name = LONG_FLEET_NAME.to_string();
            console.send(Msg::Resized(columns, 24));
            console.model.read_only.is_on = is_read_only;
            show_plan(&mut console, keys, made);
            console
        };
        let one = planned("X", plan(&[("docs-writer", State::Scratch)]));
        let text = rendered_text(&one, "terminal");
        assert!(text.contains("y to reset, Esc "), "{text}");
        assert_eq!(text.contains("! unlocks."), is_read_only, "{text}");
        // The whole fleet: its name is to be typed.
        let mut made = plan(&[("docs-writer", State::Scratch)]);
        made.is_whole_fleet = true;
        let mut all = planned("a X", made);
        all.type_line("production-of-the-whole-of-eur");
        let text = rendered_text(&all, "terminal");
        let line = text.lines().find(|line| line.contains("Type  "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("Enter to run, Esc "), "{line}");
        assert_eq!(line.contains("! unlocks."), is_read_only, "{line}");
        if !is_read_only {
            assert!(line.trim_end().ends_with("of-eur_"), "{line}");
        }
    }
}

#[test]
fn hidden_marks_of_many_agents_keep_their_keys() {
    let names: Vec<String> = (0..60)
        .map(|number| format!("customer-support-agent-{number:02}"))
        .collect();
    let agents: Vec<(&str, State)> = names
        .iter()
        .map(|name| (name.as_str(), State::Scratch))
        .collect();
    let mut console = crate::console_fixture::fleet_of(&agents);
    console.send(Msg::Resized(80, 24));
    console.press("a / - 0 0 Enter");
    show_plan(&mut console, "X", plan(&agents));
    let text = rendered_text(&console, "terminal");
    assert!(text.contains("h keeps them in the plan, v drops"), "{text}");
}

#[test]
fn rows_of_a_plan_out_of_sight_are_counted() {
    let names: Vec<String> = (0..60).map(|number| format!("agent-{number:02}")).collect();
    let agents: Vec<(&str, State)> = names
        .iter()
        .map(|name| (name.as_str(), State::Scratch))
        .collect();
    for (count, columns, rows, is_counted) in
        [(60, 80, 24, true), (60, 120, 36, true), (4, 80, 24, false)]
    {
        let mut console = crate::console_fixture::fleet_of(&agents);
        console.send(Msg::Resized(columns, rows));
        let mut plan = plan(&agents[1..count]);
        plan.skipped.push(skipped_agent(
            "agent-00",
            State::Unreach,
            "the host does not answer",
        ));
        console.press("a");
        show_plan(&mut console, "X", plan);
        let text = rendered_text(&console, "terminal");
        let headings = text.lines().nth(2).unwrap();
        let forms = [" of 60 rows, 1 skipped", "/60, 1 skipped"];
        let is_said = forms.iter().any(|it| headings.trim_end().ends_with(it));
        assert_eq!(is_said, is_counted, "{text}");
        let is_whole = format!("{headings} ").contains(" RESTORE ");
        assert!(is_whole, "{text}");
    }
}

#[test]
fn input_line_keeps_its_keys_beside_long_texts() {
    for columns in [60, 80, 120] {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, 24));
        console.press("/");
        console.type_line(&"a-long-filter ".repeat(12));
        let text = rendered_text(&console, "terminal");
        let line = text.lines().last().unwrap();
        assert!(line.contains("filter _ "), "{line}");
        assert!(line.ends_with("Enter apply, Esc cancel"), "{line}");
    }
}
