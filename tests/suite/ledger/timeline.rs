//! The timeline of an agent: its runs and entries, newest first.

use std::cell::Cell;

use super::retention::{DAY, confirm_date, world_with_expired_entry};
use super::retention_overview::create_old_entry;
use super::*;
use memory_shepherd::engine::{
    AgentTimeline, EntryPresence, TimelineRow, TimelineSubject, UndoMode,
};

fn of_agent(name: &str) -> TimelineSubject {
    TimelineSubject::Agent(name.to_string())
}

fn timeline(world: &World, subject: &TimelineSubject, max_rows: usize) -> AgentTimeline {
    let engine = world.engine();
    engine
        .timelines()
        .agent_timeline(subject, max_rows, &|| true)
        .unwrap()
}

/// Returns each row in words.
fn rows(timeline: &AgentTimeline) -> Vec<String> {
    let rows = timeline.rows.iter().map(|row| match row {
        TimelineRow::Run(past) => {
            let event = &past.record.event;
            let undone = past.undone_by.as_ref().map_or("", |_| ", undone");
            let redo = if past.is_redo { "redo " } else { "" };
            let (act, outcome) = (event.operation.as_str(), event.outcome.as_str());
            format!("{redo}{act} {outcome}{undone}")
        }
        TimelineRow::Unchanged(runs) => format!("{} unchanged", runs.count),
        TimelineRow::Entry(entry) => {
            let recorded = if entry.run.is_some() {
                "entry"
            } else {
                "unrecorded entry"
            };
            let presence = match entry.presence {
                EntryPresence::Present => "",
                EntryPresence::Retired(_) => ", retired",
                EntryPresence::Missing => ", missing",
                EntryPresence::Unknown => ", unknown",
            };
            let pinned = if entry.is_pinned { ", pinned" } else { "" };
            format!("{recorded}{presence}{pinned}")
        }
    });
    rows.collect()
}

#[test]
fn timeline_has_runs_with_entries_newest_first() {
    let world = World::new(&["ranger", "scout"]);
    world.write_scratch("ranger", "");
    world.write_scratch("scout", "- one\n");
    world.reset();
    world.clock.advance(DAY);
    for _ in 0..3 {
        world.reset();
        world.clock.advance(DAY);
    }
    world.write_scratch("scout", "- two\n");
    let second = world.reset();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let entry = second.result_of("scout").entries[0].path.clone();
    world
        .engine()
        .entries()
        .set_pinned(std::slice::from_ref(&entry), true)
        .unwrap();
    let found = timeline(&world, &TimelineSubject::Entry(entry), 1000);
    assert_eq!((found.agent.as_str(), found.has_left), ("scout", false));
    assert!(!found.has_more && found.notes.is_empty(), "{found:?}");
    assert_eq!(
        rows(&found),
        [
            "undo ok",
            "reset ok, undone",
            "entry, pinned",
            "3 unchanged",
            "reset ok",
            "entry",
        ]
    );
    let TimelineRow::Unchanged(runs) = &found.rows[3] else {
        panic!("{found:?}")
    };
    assert_eq!(runs.last - runs.first, chrono::Duration::days(2));
    assert_eq!(found.entry_of_row(1), found.entry_of_row(2));
    assert_eq!(found.entry_of_row(0), None);
    // The other agent has its own.
    assert_eq!(
        rows(&timeline(&world, &of_agent("ranger"), 9)),
        ["5 unchanged"]
    );
}

#[test]
fn failed_run_is_listed_with_its_reason() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.set_baseline("scout", "tiny");
    world.reset();
    let found = timeline(&world, &of_agent("scout"), 1000);
    let [TimelineRow::Run(past)] = found.rows.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(past.record.event.outcome, Outcome::Refused);
    let note = past.record.event.note.as_deref().unwrap();
    assert!(note.contains("min_baseline_size"), "{note}");
}

#[test]
fn unrecorded_entries_are_at_their_place_in_time() {
    let world = World::new(&["scout"]);
    let old = create_old_entry(&world, "scout", 3);
    world.reset();
    world.clock.advance(DAY * 2);
    // Between two runs, so that the unchanged ones before and after are not one row.
    let new = create_old_entry(&world, "scout", 1);
    world.reset();
    let found = timeline(&world, &TimelineSubject::Entry(new), 1000);
    assert_eq!(
        rows(&found),
        [
            "1 unchanged",
            "unrecorded entry",
            "reset ok",
            "unrecorded entry"
        ]
    );
    assert_eq!(found.entry_of_row(3).unwrap().path, old);
}

#[test]
fn deleted_entries_are_told_from_missing_ones() {
    let (world, _, _) = world_with_expired_entry();
    create_old_entry(&world, "scout", 90);
    world.reset();
    let last = world.entry_names("scout").pop().unwrap();
    fs::remove_file(world.archive_directory().join("scout").join(last)).unwrap();
    let found = timeline(&world, &of_agent("scout"), 1000);
    assert_eq!(
        rows(&found),
        [
            "reset ok",
            "entry, missing",
            "1 unchanged",
            "reset ok",
            "entry, retired",
            "unrecorded entry, retired",
        ]
    );
}

#[test]
fn left_agent_has_timeline_under_recorded_name() {
    let mut world = World::new(&["ranger"]);
    world.add_agent("scout", "archive_subdir = team/one\n");
    world.set_baseline("scout", super::super::world::BASELINE);
    world.write_scratch("scout", "- one\n");
    let entry = world.reset().result_of("scout").entries[0].path.clone();
    let world = world.without_agent("scout");
    let expected = ["reset ok", "entry"];
    for subject in [
        TimelineSubject::Entry(entry.clone()),
        of_agent("scout"),
        of_agent("team/one"),
    ] {
        let found = timeline(&world, &subject, 1000);
        assert_eq!((found.agent.as_str(), found.has_left), ("scout", true));
        assert_eq!(rows(&found), expected);
    }
    let engine = world.engine();
    let unknown = engine
        .timelines()
        .agent_timeline(&of_agent("nobody"), 9, &|| true);
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::User);
}

#[test]
fn shared_directory_is_divided_by_records_and_headers() {
    let mut world = World::new(&[]);
    for agent in ["ranger", "scout"] {
        world.add_agent(agent, "archive_subdir = both\n");
        world.set_baseline(agent, super::super::world::BASELINE);
        world.write_scratch(agent, format!("- of {agent}\n"));
    }
    world.reset();
    let write = |name: &str, text: &str| {
        let path = world.archive_directory().join("both").join(name);
        fs::write(path, text).unwrap();
    };
    write(
        "2025-01-01_0900.md",
        "# ranger scratch notes \u{2014} archived x\n\n- a\n",
    );
    write(
        "2025-01-02_0900.md",
        "# scout scratch notes \u{2014} archived x\n\n- b\n",
    );
    let subject = TimelineSubject::Entry("both/2025-01-02_0900.md".into());
    let found = timeline(&world, &subject, 1000);
    assert_eq!(found.agent, "scout");
    assert_eq!(rows(&found), ["reset ok", "entry", "unrecorded entry"]);
    assert!(
        found
            .entry_of_row(2)
            .unwrap()
            .path
            .ends_with("2025-01-02_0900.md")
    );
    assert_eq!(found.notes, Vec::<String>::new());
    // What says nothing of its agent may be of either.
    write("2025-01-03_0900-full-backup.md", "notes\n");
    let found = timeline(&world, &subject, 1000);
    assert_eq!(
        found.notes,
        ["entries without a record in both may be of ranger"]
    );
}

#[test]
fn long_timeline_is_bounded_and_says_so() {
    let world = World::new(&["scout"]);
    for number in 0..6 {
        world.write_scratch("scout", format!("- {number}\n"));
        confirm_date(&world);
    }
    create_old_entry(&world, "scout", 300);
    let whole = timeline(&world, &of_agent("scout"), 1000);
    assert_eq!((whole.rows.len(), whole.has_more), (13, false));
    for max in [1, 2, 5, 12] {
        let found = timeline(&world, &of_agent("scout"), max);
        assert_eq!((found.rows.len(), found.has_more), (max, true));
        assert_eq!(found.rows, whole.rows[..max]);
    }
    let found = timeline(&world, &of_agent("scout"), 13);
    assert_eq!((found.rows.len(), found.has_more), (13, false));
}

#[test]
fn cancelled_timeline_reads_no_further_record() {
    let world = world_with_three_runs();
    let engine = world.engine();
    let asked = Cell::new(0);
    let goes_on = || {
        asked.set(asked.get() + 1);
        asked.get() <= 2
    };
    let found = engine
        .timelines()
        .agent_timeline(&of_agent("scout"), 1000, &goes_on)
        .unwrap();
    assert!(found.has_more && found.rows.len() <= 4, "{found:?}");
    assert_eq!(asked.get(), 3);
}
