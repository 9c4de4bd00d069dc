//! Plans of resets and of undos.

use std::time::Duration;

use memory_shepherd::console::model::KEY_GUARD_TIME;
use memory_shepherd::console::update::Msg;
use memory_shepherd::engine::{Plan, READ_ONLY_REASON, State, UndoMode};

use super::{Console, SIZES, drawn, herd, picture};
use crate::console_fleet::{plan, seen, skipped, undo};

/// Asks for a plan and shows it until keys are heard.
pub fn planned(console: &mut Console, keys: &str, plan: Plan) {
    console.plan(keys, plan);
    console.pass(Duration::from_secs(2));
}

#[test]
fn plan_of_one() {
    picture("plan_key", |console| {
        planned(console, "X", plan(&[("docs-writer", State::Scratch)]));
    });
}

#[test]
fn plan_to_be_typed() {
    picture("plan_typed", |console| {
        let agents = [
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("log-digger", State::NoSep),
            ("test-runner", State::Missing),
            ("researcher", State::Oversize),
        ];
        let mut made = plan(&agents);
        made.skipped = vec![
            skipped(
                "billing-bot",
                State::Tampered,
                "the baseline does not match the seal",
            ),
            skipped(
                "release-captain",
                State::Busy,
                "locked by run 5a10c3d2 of timer",
            ),
        ];
        planned(console, "a X", made);
        console.type_line("reset");
    });
}

#[test]
fn plan_of_the_whole_fleet() {
    picture("plan_fleet", |console| {
        let mut made = plan(&[
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        made.is_whole_fleet = true;
        planned(console, "a X", made);
    });
}

/// What three hosts lack, in all.
const WEAKER: [&str; 4] = [
    "on other hosts a memory is absent for a moment, loses extended attributes and access lists, and two looks take the place of a lease on open files",
    "box lacks posix-rename@openssh.com: what an agent puts in the memory's place in that very instant may be lost",
    "box lacks hardlink@openssh.com: a memory that an agent makes anew in that very instant may be written over",
    "box lacks fsync@openssh.com: a power cut there may leave the new memory empty or half written",
];

#[test]
fn plan_for_hosts_that_lack_something() {
    let make = |console: &mut Console| {
        let mut made = plan(&[
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        for step in &mut made.steps[1..] {
            step.host = "box".to_string();
            step.degradations = WEAKER.map(str::to_string).to_vec();
        }
        planned(console, "X", made);
    };
    picture("plan_weaker", make);
    for (columns, rows) in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(columns, rows));
        make(&mut console);
        let shown = drawn(&console, "terminal");
        let shown: Vec<&str> = shown.split_whitespace().collect();
        for text in WEAKER {
            assert!(shown.join(" ").contains(text), "{text}\n{shown:?}");
        }
    }
    // Where there is no room for all of it, that is said.
    let mut console = herd();
    console.send(Msg::Resized(60, 15));
    let mut made = plan(&[("docs-writer", State::Scratch)]);
    made.steps[0].degradations = WEAKER.map(str::to_string).to_vec();
    planned(&mut console, "X", made);
    let shown = drawn(&console, "terminal");
    assert!(shown.contains("lines more of what is weaker"), "{shown}");
    assert!(shown.contains("docs-writer"), "{shown}");
}

#[test]
fn plan_with_nothing_to_run() {
    picture("plan_nothing", |console| {
        let mut made = plan(&[]);
        made.skipped = vec![skipped(
            "billing-bot",
            State::Tampered,
            "the baseline billing-bot-MEMORY.md does not match the seal; resets are blocked",
        )];
        planned(console, "X", made);
    });
}

#[test]
fn plan_on_its_way_and_no_plan() {
    picture("plan_waiting", |console| {
        console.press("X");
    });
    picture("plan_none", |console| {
        console.press("X");
        console.model.reset.stage = Default::default();
    });
}

#[test]
fn plan_that_ignores_what_was_typed_too_early() {
    picture("plan_ignoring", |console| {
        console.press("X");
        console.answer(plan(&[("code-reviewer", State::Drifted)]));
        console.type_line("reset 1");
    });
}

#[test]
fn plan_of_a_read_only_fleet() {
    let drifted = || plan(&[("code-reviewer", State::Drifted)]);
    picture("plan_read_only", |console| {
        console.model.read_only.is_on = true;
        planned(console, "X", drifted());
        console.type_line("reset");
    });
    picture("plan_read_only_forced", |console| {
        console.model.read_only.is_forced = true;
        let mut made = drifted();
        made.skipped = vec![skipped("docs-writer", State::Scratch, READ_ONLY_REASON)];
        planned(console, "X", made);
    });
    picture("plan_protected", |console| {
        let mut made = plan(&[]);
        made.skipped = vec![skipped("docs-writer", State::Scratch, READ_ONLY_REASON)];
        planned(console, "X", made);
    });
}

#[test]
fn plan_of_a_redo_and_of_a_run_that_is_undone() {
    picture("redo_key", |console| {
        planned(
            console,
            "Z",
            undo(&["docs-writer"], false, UndoMode::Refuse),
        );
    });
    picture("undo_last_run", |console| {
        let mut test_runner = seen("test-runner", State::Missing);
        test_runner.last_run = None;
        console.observe(vec![test_runner]);
        console.press("j j j j Space");
        planned(
            console,
            "z",
            undo(&["code-reviewer"], false, UndoMode::Refuse),
        );
    });
}

#[test]
fn plan_with_hidden_marks() {
    picture("plan_hidden", |console| {
        console.press("a / ! d o c s Enter");
        let agents = [
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ];
        planned(console, "X", plan(&agents));
    });
}

#[test]
fn plan_of_an_undo() {
    picture("undo_key", |console| {
        planned(
            console,
            "z",
            undo(&["docs-writer"], false, UndoMode::Refuse),
        );
    });
    picture("undo_choice", |console| {
        planned(console, "z", undo(&["docs-writer"], true, UndoMode::Refuse));
    });
    picture("undo_overwrite", |console| {
        planned(console, "z", undo(&["docs-writer"], true, UndoMode::Refuse));
        console.press("o");
        console.answer(undo(&["docs-writer"], true, UndoMode::Overwrite));
        console.pass(KEY_GUARD_TIME);
    });
}

#[test]
fn read_only_undo_plan_says_so_and_fits() {
    for (columns, written_since) in [(60, false), (80, false), (80, true), (120, true)] {
        let mut console = herd();
        console.send(Msg::Resized(columns, 24));
        console.press("!");
        planned(
            &mut console,
            "z",
            undo(&["docs-writer"], written_since, UndoMode::Refuse),
        );
        let shown = drawn(&console, "terminal");
        let line = shown
            .lines()
            .find(|line| line.contains("Read-only: ! unlocks."));
        let line = line.unwrap_or_else(|| panic!("{shown}"));
        let end = match (written_since, columns) {
            (false, _) => "Press y to undo, Esc to leave.",
            (true, 80) => "Written to since:  a appends,  o overwrites",
            (true, _) => "o archives them, overwrites",
        };
        assert!(line.trim_end().ends_with(end), "{line}");
    }
}

#[test]
fn title_of_an_unlocked_plan_is_not_cut_at_80() {
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    console.press("! ! y");
    planned(&mut console, "X", plan(&[("docs-writer", State::Scratch)]));
    let shown = drawn(&console, "terminal");
    let title = shown.lines().next().unwrap();
    assert!(
        title.contains("RW unlocked  1 agent ") && !title.contains('…'),
        "{title}"
    );
}
