//! The fleet: its states, orders, filters and columns, and what is said around it.

use std::path::Path;

use memory_shepherd::console::model::{SortOrder, ViewState};
use memory_shepherd::console::preferences;
use memory_shepherd::console::update::Msg;
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{FileState, Observation, Operation, Outcome, State};

use super::{drawn, herd, picture, picture_of, prefer};
use crate::console_fleet::{address, run, seen, unread, wrong};

#[test]
fn fleet_in_every_state() {
    picture("fleet", |_| {});
}

#[test]
fn fleet_with_marks_some_of_them_hidden() {
    picture("fleet_marks", |console| {
        console.press("j Space j Space / ! c o d e Enter");
    });
}

#[test]
fn fleet_while_a_filter_is_typed() {
    picture("fleet_filtering", |console| {
        console.press("/ i s : s c");
    });
}

#[test]
fn fleet_whose_filter_hides_all() {
    picture("fleet_nothing", |console| {
        console.press("/ f o o Enter");
    });
}

#[test]
fn states_are_all_named_where_a_filter_names_none() {
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    console.press("/");
    console.type_line("is:bogus");
    console.press("Enter");
    let shown = drawn(&console, "terminal");
    assert!(shown.contains("marked"), "{shown}");
}

#[test]
fn undo_that_was_taken_back_is_redone() {
    let mut console = herd();
    let mut redone = seen("docs-writer", State::Clean);
    if let Some(last) = &mut redone.last_run {
        (last.run, last.operation) = ("0a0961c0".to_string(), Operation::Undo);
    }
    console.observe(vec![redone]);
    let mut redo = run("0a0961c0", 190, &[("docs-writer", Outcome::Ok)]);
    redo.events[0].operation = Operation::Undo;
    for (is_redo, word) in [(false, " undone"), (true, " redone")] {
        redo.is_redo = is_redo;
        console.send(Msg::LogLoaded(Ok(vec![redo.clone()])));
        let shown = drawn(&console, "terminal");
        let row = shown.lines().find(|row| row.contains("docs-writer"));
        assert!(row.is_some_and(|row| row.contains(word)), "{shown}");
    }
}

#[test]
fn fleet_in_another_order() {
    picture("fleet_sorted", |console| {
        console.press("s n a m e Enter S");
    });
}

#[test]
fn fleet_without_agents() {
    picture_of("fleet_empty", || unread(&[], (120, 36)), |_| {});
}

#[test]
fn fleet_that_is_remembered() {
    let names = ["billing-bot", "code-reviewer", "docs-writer", "new-one"];
    picture_of(
        "fleet_loading",
        || unread(&names, (120, 36)),
        |console| {
            let old = [State::Tampered, State::Drifted, State::Scratch];
            let old = names.iter().zip(old).map(|(name, state)| Observation {
                address: Some(address(name)),
                ..seen(name, state)
            });
            console.send(Msg::SavedObservationsLoaded(old.collect()));
            console.observe(vec![seen("docs-writer", State::Clean)]);
        },
    );
}

#[test]
fn fleet_that_was_never_seen() {
    picture_of(
        "fleet_unread",
        || unread(&["alpha", "bravo"], (120, 36)),
        |_| {},
    );
}

#[test]
fn fleet_with_a_wrong_config_and_a_broken_ledger() {
    picture("fleet_errors", |console| {
        console.send(Msg::ConfigInvalid(vec![wrong(
            "[triage] no_such_key: unknown",
        )]));
        console.send(Msg::LogLoaded(Err(
            "the ledger's chain is broken at record 7".to_string(),
        )));
    });
}

#[test]
fn fleet_that_is_read_only() {
    picture("fleet_read_only", |console| {
        console.model.read_only.is_on = true;
        console.press("E");
    });
}

#[test]
fn fleet_that_is_unlocked() {
    picture("fleet_unlocked", |console| {
        console.model.read_only.is_on = true;
        console.press("! y");
    });
}

#[test]
fn fleet_with_a_filter_of_the_last_time() {
    picture("fleet_kept", |console| {
        console.model.restore_view_state(ViewState {
            sort_order: SortOrder::Size,
            is_reversed: true,
            filter: "!code".to_string(),
        });
    });
}

#[test]
fn fleet_with_other_columns_and_keys() {
    picture("fleet_preferred", |console| {
        let mut runs = Vec::new();
        for (number, size) in [9_000, 500, 16_000, 24_000, 12_000].into_iter().enumerate() {
            let id = format!("0000000{number}");
            let mut run = run(&id, number as i64, &[("monitor-bot", Outcome::Ok)]);
            run.events[0].before = Some(FileState::File {
                sha256: Digest::of(b""),
                size,
                lines: 7,
            });
            runs.push(run);
        }
        console.send(Msg::LogLoaded(Ok(runs)));
        prefer(
            console,
            "columns = [\"agent\", \"state\", \"trend\", \"size\", \"last-run\", \"why\"]\n\
             [keys]\nreset = \"Space r\"\nmark = \"m\"\nhelp = \"F1\"\nlog = []\n",
        );
    });
}

#[test]
fn fleet_with_wrong_preferences() {
    picture("fleet_wrong_preferences", |console| {
        let path = Path::new("/home/op/.config/memory-shepherd/console.toml");
        let (_, found) = preferences::parse("[keys]\nrset = \"F5\"\nsort = \"d\"\n", path);
        console.model.report_preference_problems(&found);
        console.press("j k");
    });
}

#[test]
fn what_was_undone_is_called_so() {
    let mut console = herd();
    let mut undone = seen("docs-writer", State::Scratch);
    undone.last_run.as_mut().unwrap().operation = Operation::Undo;
    console.observe(vec![undone]);
    assert!(drawn(&console, "terminal").contains("06:00 undone"));
}
