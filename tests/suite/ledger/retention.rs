//! Retention: the entries that it deletes and keeps, and the record that it writes
//! first.

use super::super::moved_archives::{ClockReading, HookedClock};
use super::super::world::{InterposingTransport, RunOutput, TransportCall};
use super::retention_overview::{create_old_entry, prune};
use super::*;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::error::Error;
use memory_shepherd::engine::{Operation, Outcome, PruneReport, RunProgress, UndoMode, UndoTarget};
use memory_shepherd::transport::{FailureCause, TransportError};
use rustix::io::Errno;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Ages an entry, its inode included, and returns its new path.
pub(super) fn set_entry_age(world: &World, entry: &Path, days: u32) -> PathBuf {
    let path = world.archive_directory().join(entry);
    let now: std::time::SystemTime = world.clock.now().into();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(now - DAY * days).unwrap();
    path
}

/// A world whose first entry is old enough for the next run to delete.
pub(super) fn world_with_expired_entry() -> (World, PathBuf, String) {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let ran = world.reset();
    let entry = ran.assert_ok().entries[0].path.clone();
    let run = ran.report.run.clone();
    world.clock.advance(DAY * 40);
    set_entry_age(&world, &entry, 40);
    confirm_date(&world);
    world.write_scratch("scout", "- new\n");
    (world, entry, run)
}

/// Runs without effect and advances the clock by a day: the next run may rely on the
/// date.
pub(super) fn confirm_date(world: &World) {
    world.reset();
    world.clock.advance(DAY);
}

#[test]
fn deleted_entries_are_recorded_and_verify() {
    let (world, entry, run) = world_with_expired_entry();
    let ran = world.reset();
    assert_eq!(ran.report.retired_entries, std::slice::from_ref(&entry));
    let records = world.read_records();
    let last = &records[records.len() - 1];
    assert_eq!(last.event.operation, Operation::Retire);
    assert_eq!(last.event.retired_entries, std::slice::from_ref(&entry));
    assert_eq!(last.event.run, ran.report.run);
    assert_eq!(ran.report.ledger_head.unwrap().0, last.seq);
    let found = verify(&world.engine(), None);
    assert_eq!(
        (found.worst_kind(), found.counts.retired_entries),
        (None, 1)
    );
    // It does not count as a run of the agent.
    assert_eq!(
        world.observe("scout").last_run.unwrap().operation,
        Operation::Reset
    );
    // The same deletion by hand is a loss.
    let path = world
        .archive_directory()
        .join("scout")
        .join(world.entry_names("scout").pop().unwrap());
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_single_finding(&world, FindingSubject::Entry, "is missing");
    fs::write(&path, bytes).unwrap();
    // The old run cannot be undone, and the message says why.
    let plan =
        world
            .engine()
            .planner()
            .plan_undo(&UndoTarget::Run(run.clone()), UndoMode::Refuse, false);
    let skipped = &plan.unwrap().skipped[0];
    assert_eq!(skipped.kind, Some(ErrorKind::Conflict));
    assert_eq!(
        skipped.reason,
        format!(
            "run {run} cannot be undone: its entry {} was deleted by retention on 2026-04-24 \
             (run {})",
            entry.display(),
            ran.report.run
        )
    );
    // The later one can.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"- new\n"));
}

#[test]
fn unconfirmed_date_note_says_what_is_recorded() {
    let world = World::new(&["scout"]);
    let directory = world.archive_directory().join("scout");
    fs::create_dir_all(&directory).unwrap();
    for name in ["2020-01-01_2300.md", "2020-01-02_2300.md"] {
        fs::write(directory.join(name), "of the original").unwrap();
        set_entry_age(&world, &Path::new("scout").join(name), 400);
    }
    world.clock.advance(DAY * 400);
    let note = || {
        let plan = world
            .engine()
            .planner()
            .plan_reset(&["scout".to_string()], false);
        plan.unwrap().retention.unwrap().notes.join("; ")
    };
    assert_eq!(
        note(),
        "retention keeps 1 entry older than 30 days for now: no earlier run is known, so only a \
         run a day from now confirms the date"
    );
    world.reset();
    assert_eq!(
        note(),
        "retention keeps 1 entry older than 30 days for now: all recorded runs are less than a day \
         old; a run a day after the first confirms the date"
    );
}

#[test]
fn recorded_deletion_left_undone_verifies() {
    let (world, entry, run) = world_with_expired_entry();
    let path = world.archive_directory().join(&entry);
    let bytes = fs::read(&path).unwrap();
    world.reset().assert_ok();
    // The state after a kill before the deletion.
    fs::write(&path, &bytes).unwrap();
    set_entry_age(&world, &entry, 40);
    let found = verify(&world.engine(), None);
    assert_eq!(
        (found.worst_kind(), found.counts.unrecorded_entries),
        (None, 0)
    );
    let target = UndoTarget::Run(run);
    let plan = world
        .engine()
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert_eq!(
        plan.skipped,
        [],
        "the undo of an existing entry was refused"
    );
    // The next run deletes it, and records that again.
    world.write_scratch("scout", "- newer\n");
    assert_eq!(world.reset().report.retired_entries, [entry]);
    let found = verify(&world.engine(), None);
    assert_eq!(
        (found.worst_kind(), found.counts.retired_entries),
        (None, 1)
    );
}

#[test]
fn unrecordable_deletion_is_not_made() {
    let (world, entry, _) = world_with_expired_entry();
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert_eq!(
        plan.retention.as_ref().unwrap().entries,
        std::slice::from_ref(&entry)
    );
    let file = ledger_path(&world);
    let mut lines = Vec::new();
    let report = engine
        .runs()
        .apply_plan(&plan, true, &AtomicBool::new(false), &mut |progress| {
            match progress {
                // Its reset is recorded; from here on the ledger is readable, and the
                // program writes nothing to the object at that path.
                RunProgress::AgentDone(_) => {
                    let away = file.with_extension("away");
                    fs::rename(&file, &away).unwrap();
                    std::os::unix::fs::symlink(&away, &file).unwrap();
                }
                RunProgress::LogLine(line) => lines.push(line),
                RunProgress::Stage(..) => {}
            }
        });
    assert_eq!(report.retired_entries, Vec::<PathBuf>::new());
    assert_eq!(report.worst_kind(), Some(ErrorKind::Host), "{lines:?}");
    assert!(world.archive_directory().join(entry).exists());
}

#[test]
fn retention_deletes_only_planned_entries() {
    let (world, entry, _) = world_with_expired_entry();
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    // Two more entries have appeared since: an old one, and one at the other's name.
    let later = Path::new("scout/2026-01-01_0900.md");
    fs::write(world.archive_directory().join(later), "x").unwrap();
    set_entry_age(&world, later, 60);
    let again = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert_ne!(again.hash, plan.hash, "same hash for another deletion");
    let ran = super::super::world::apply_plan(&engine, &plan);
    assert_eq!(ran.report.retired_entries, [entry]);
    assert!(world.archive_directory().join(later).exists());
    // The next plan lists it, and the run deletes it although no agent was reset.
    assert_eq!(world.reset().assert_outcome(Outcome::Unchanged).kind, None);
    assert!(!world.archive_directory().join(later).exists());
}

#[test]
fn plan_shows_entries_that_expire_with_its_reset() {
    let (world, entry, _) = world_with_expired_entry();
    // Still the newest, so it is kept.
    assert_eq!(world.engine().retention().expired_entries().unwrap(), []);
    let engine = world.engine();
    let shown = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        engine
            .planner()
            .plan_reset(&names, false)
            .unwrap()
            .retention
    };
    assert_eq!(shown(&["scout"]).unwrap().entries, [entry]);
    world.write_scratch("scout", "");
    assert_eq!(shown(&["scout"]).unwrap().entries, Vec::<PathBuf>::new());
}

#[test]
fn newest_entry_per_agent_in_shared_directory_stays() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "archive_subdir = scout");
    world.set_baseline("ranger", super::super::world::BASELINE);
    world.write_scratch("ranger", "- old\n");
    let ran = world.reset();
    let of_ranger = ran.result_of("ranger").entries[0].path.clone();
    world.clock.advance(DAY * 40);
    set_entry_age(&world, &of_ranger, 40);
    confirm_date(&world);
    world.write_scratch("scout", "- new\n");
    assert_eq!(world.reset().report.retired_entries, Vec::<PathBuf>::new());
    assert!(world.archive_directory().join(of_ranger).exists());
}

#[test]
fn unreadable_pins_stop_retention() {
    let (world, entry, _) = world_with_expired_entry();
    fs::create_dir(world.archive_directory().join(".shepherd/pins")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host));
    assert!(world.archive_directory().join(entry).exists());
    let [trouble] = ran.report.errors.as_slice() else {
        panic!("{:?}", ran.report.errors)
    };
    assert!(
        trouble.message().contains("cannot read the pins"),
        "{trouble}"
    );
}

/// Entries of some agents that have expired, beside newer ones.
fn expired_entries(world: &World, agents: &[&str]) -> Vec<PathBuf> {
    for agent in agents {
        world.write_scratch(agent, "- old\n");
    }
    let ran = world.reset();
    let old: Vec<PathBuf> = agents
        .iter()
        .map(|agent| ran.result_of(agent).entries[0].path.clone())
        .collect();
    world.clock.advance(DAY * 40);
    for entry in &old {
        set_entry_age(world, entry, 40);
    }
    for agent in agents {
        world.write_scratch(agent, "- new\n");
    }
    confirm_date(world);
    old
}

#[test]
fn failed_agent_keeps_its_entries_and_no_others() {
    for is_tampered in [false, true] {
        let world = World::new(&["ranger", "scout"]);
        let old = expired_entries(&world, &["ranger", "scout"]);
        if is_tampered {
            world.write_seal();
            world.set_baseline("scout", "# Other rules\n\n---\n");
        } else {
            fs::remove_file(world.baseline_path("scout")).unwrap();
        }
        let ran = world.reset();
        assert!(ran.result_of("scout").outcome.is_failure());
        assert_eq!(ran.report.retired_entries, old[..1]);
        let note = "retention keeps 1 entry older than 30 days of scout, whose run failed";
        assert_eq!(ran.report.notes, [note]);
        assert!(ran.lines.iter().any(|line| line.ends_with(note)));
        assert!(world.archive_directory().join(&old[1]).exists());
    }
}

/// Resets an agent with expired entries, where its new memory cannot be written to a path. Returns
/// the run, and whether the entries have stayed, also for `archive prune`.
fn reset_without_space(errno: Errno, path: &Path) -> (RunOutput, bool) {
    let world = World::new(&["scout"]);
    let old = expired_entries(&world, &["scout"]);
    world.write_scratch("scout", "- newest\n");
    let path = world.memory_path("scout").join(path);
    let transport = InterposingTransport::new(world.disk(), move |moment| match moment {
        TransportCall::Before("stage") => {
            let error = Error::from_io("write", &path, &errno.into());
            Err(TransportError::new(FailureCause::Refused, error))
        }
        _ => Ok(()),
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    ran.assert_outcome(Outcome::Failed);
    assert!(world.read_memory("scout").ends_with(b"- newest\n"));
    let last = world.observe("scout").last_run.unwrap();
    let has_stayed = world.archive_directory().join(&old[0]).exists();
    assert_eq!(last.is_archive_full, !has_stayed);
    let older = create_old_entry(&world, "scout", 60);
    prune(&world);
    assert_eq!(world.archive_directory().join(older).exists(), has_stayed);
    (ran, has_stayed)
}

#[test]
fn full_archive_disk_keeps_no_expired_entries() {
    let (ran, has_stayed) = reset_without_space(Errno::NOSPC, Path::new(""));
    assert!(!has_stayed);
    assert_eq!(ran.report.retired_entries.len(), 1);
    assert_eq!(ran.report.notes, Vec::<String>::new());
    let hints = &ran.result_of("scout").hints;
    assert!(
        hints.iter().any(|it| it.contains("archive prune")),
        "{hints:?}"
    );
}

#[test]
fn full_disk_beside_archive_keeps_expired_entries() {
    // A quota of the agent's user, the disk of something else, and another error.
    for (errno, path) in [
        (Errno::DQUOT, ""),
        (Errno::NOSPC, "/proc/self/stat"),
        (Errno::IO, ""),
    ] {
        let (_, has_stayed) = reset_without_space(errno, Path::new(path));
        assert!(has_stayed, "{errno} for {path:?}");
    }
}

#[test]
fn unreadable_directory_stops_retention_there_only() {
    let world = World::new(&["ranger", "scout"]);
    let old = expired_entries(&world, &["ranger"]);
    let directory = world.archive_directory().join("scout");
    fs::write(&directory, "in the way").unwrap();
    let ran = world.reset();
    assert_eq!(ran.report.retired_entries, old);
    let kept = |note: &String| note.contains("an unreadable directory");
    assert!(ran.report.notes.iter().any(kept), "{:?}", ran.report.notes);
}

#[test]
fn run_of_one_agent_deletes_its_own_entries() {
    let world = World::new(&["ranger", "scout"]);
    let old = expired_entries(&world, &["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert_eq!(plan.retention.as_ref().unwrap().entries, old[1..]);
    let ran = super::super::world::apply_plan(&engine, &plan);
    assert_eq!(ran.report.retired_entries, old[1..]);
    // An undo is a run, too.
    let names = vec!["ranger".to_string()];
    let target = UndoTarget::Agents(names);
    let ran = world.undo_target(&target, UndoMode::Overwrite);
    assert_eq!(ran.report.retired_entries, old[..1]);
    assert_eq!(verify(&world.engine(), None).worst_kind(), None);
}

#[test]
fn entries_of_removed_agent_expire() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "archive_subdir = team/ranger");
    world.set_baseline("ranger", super::super::world::BASELINE);
    let old = expired_entries(&world, &["ranger", "scout"]);
    let directory = world.archive_directory().join("team/ranger");
    // A user's own copy, without a record.
    let copy = Path::new("team/ranger/2026-01-01_0900.md");
    let kept = Path::new("kept/2026-01-01_0900.md");
    fs::create_dir(world.archive_directory().join("kept")).unwrap();
    for path in [copy, kept] {
        fs::write(world.archive_directory().join(path), "x").unwrap();
        set_entry_age(&world, path, 70);
    }
    let world = world.without_agent("ranger");
    // It may belong to another config with this archive and a longer retention time.
    assert_eq!(world.reset().report.retired_entries, old[1..]);
    world.clock.advance(DAY * 31);
    confirm_date(&world);
    assert_eq!(world.reset().report.retired_entries, old[..1]);
    let left = super::super::world::sorted_names(&directory);
    assert_eq!(left.len(), 2, "the newest, and the copy: {left:?}");
    assert!(
        world.archive_directory().join(copy).exists()
            && world.archive_directory().join(kept).exists()
    );
}

/// A separate clock for one run, with this offset from the start of the world's clock.
fn clock_at(days: u32, hours: u32) -> std::sync::Arc<super::super::world::TestClock> {
    let clock = super::super::world::TestClock::new();
    clock.advance(DAY * days + Duration::from_secs(3600) * hours);
    clock
}

#[test]
fn clock_far_ahead_deletes_nothing() {
    let world = World::new(&["scout"]);
    let run_in = |world: &World, days, hours, note: &str| {
        let clock = clock_at(days, hours);
        world.write_scratch("scout", note);
        let ran = world
            .reset_with_engine(&world.engine_with_clock(clock.clone(), world.local_transport()));
        assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
        for entry in &ran.result_of("scout").entries {
            let path = world.archive_directory().join(&entry.path);
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(clock.now().into()).unwrap();
        }
        ran.report
    };
    let run = |days, hours, note: &str| run_in(&world, days, hours, note);
    let mut entries = Vec::new();
    for day in 0..4 {
        let report = run(day, 0, &format!("- day {day}\n"));
        entries.push(report.results[0].entries[0].path.clone());
    }
    let ahead = run(44, 0, "- ahead\n");
    assert_eq!(ahead.retired_entries, Vec::<PathBuf>::new());
    assert!(
        ahead.notes[0].contains("only a run a day from now confirms"),
        "{:?}",
        ahead.notes
    );
    // A wrong clock that continues never confirms a date that the right clock
    // contradicts.
    let other = World::new(&["scout"]);
    for (day, note) in [
        (0, "- a\n"),
        (1, "- b\n"),
        (44, "- c\n"),
        (2, "- d\n"),
        (46, "- e\n"),
    ] {
        let retired = run_in(&other, day, 0, note).retired_entries;
        assert_eq!(retired, Vec::<PathBuf>::new(), "{note}");
    }
    // The clock is right again: the record of the future is reported, and blocks
    // nothing.
    let later = run(4, 3, "- day 4\n");
    assert_eq!(later.retired_entries, Vec::<PathBuf>::new());
    assert!(
        later.notes[0].contains("which has not come yet"),
        "{:?}",
        later.notes
    );
    let (seq, _) = world
        .engine_with_clock(clock_at(4, 4), world.local_transport())
        .retention()
        .future_record()
        .unwrap()
        .unwrap();
    assert_eq!(seq, 5);
    for entry in &entries {
        assert!(world.archive_directory().join(entry).exists());
    }
    // They expire at their time.
    let mut gone = Vec::new();
    for day in 5..40 {
        gone.extend(run(day, 0, "").retired_entries);
    }
    assert_eq!(gone, entries);
}

#[test]
fn alternating_clocks_delete_expired_entries() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().assert_ok().entries[0].path.clone();
    world.write_scratch("scout", "- newer\n");
    world.reset().assert_ok();
    set_entry_age(&world, &old, 60);
    let mut gone = Vec::new();
    // Every second run comes from a machine whose clock is ahead.
    for quarter in 0..200 {
        let clock = clock_at(60, 2 * (quarter % 2));
        clock.advance(Duration::from_secs(900 * u64::from(quarter)));
        let ran = world.reset_with_engine(&world.engine_with_clock(clock, world.local_transport()));
        gone.extend(ran.report.retired_entries);
    }
    assert_eq!(gone, [old]);
}

#[test]
fn long_pause_delays_retention_by_a_day() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().assert_ok().entries[0].path.clone();
    world.write_scratch("scout", "- newer\n");
    world.reset().assert_ok();
    world.clock.advance(DAY * 60);
    set_entry_age(&world, &old, 60);
    let first = world.reset().report;
    assert_eq!((first.retired_entries, first.notes.len()), (vec![], 1));
    world.clock.advance(Duration::from_secs(3 * 3600));
    assert_eq!(world.reset().report.retired_entries, Vec::<PathBuf>::new());
    world.clock.advance(Duration::from_secs(22 * 3600));
    let last = world.reset().report;
    assert_eq!((last.retired_entries, last.notes), (vec![old], vec![]));
}

#[test]
fn entry_of_run_with_slow_clock_stays() {
    let world = World::new(&["scout"]);
    world.clock.advance(DAY * 400);
    world.write_scratch("scout", "- first\n");
    world.reset().assert_ok();
    world.clock.advance(DAY);
    // Named and dated 400 days ago.
    let behind = clock_at(0, 0);
    world.write_scratch("scout", "- behind\n");
    let ran =
        world.reset_with_engine(&world.engine_with_clock(behind.clone(), world.local_transport()));
    let entry = world
        .archive_directory()
        .join(&ran.assert_ok().entries[0].path);
    let file = fs::File::options().write(true).open(&entry).unwrap();
    file.set_modified(behind.now().into()).unwrap();
    let mut days = 0;
    while entry.exists() {
        assert!(days < 40, "the entry never expires");
        world.clock.advance(DAY);
        days += 1;
        world.write_scratch("scout", format!("- {days}\n"));
        world.reset().assert_ok();
    }
    assert!(days > 29, "the entry expired after {days} days");
}

/// Prunes an archive with two expired entries. Before the clock is read for this record, counted from
/// 1, a copy takes the place of the archive. Returns the number of readings as well.
fn prune_with_copy(copied_at: usize) -> (World, Vec<PathBuf>, PruneReport, usize) {
    let world = World::new(&["scout"]);
    let entries = [100, 90, 80].map(|days| create_old_entry(&world, "scout", days));
    confirm_date(&world);
    let archive = world.archive_directory();
    let moved = archive.with_file_name("moved");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let hook = move |reading| {
        let is_due = reading == ClockReading::BootTime
            && counted.fetch_add(1, Ordering::Relaxed) + 1 == copied_at;
        if is_due {
            fs::rename(&archive, &moved).unwrap();
            let paths = [&moved, &archive];
            let copied = Command::new("cp").arg("-a").args(paths).status();
            assert!(copied.unwrap().success());
        }
    };
    let clock = HookedClock {
        clock: Arc::clone(&world.clock),
        hook: Box::new(hook),
    };
    let engine = world.engine_with_clock(Arc::new(clock), world.local_transport());
    let report = engine.retention().prune_archive(&[]).unwrap();
    let count = count.load(Ordering::Relaxed);
    (world, entries.into(), report, count)
}

#[test]
fn retention_deletes_nothing_in_a_copied_archive() {
    let (_world, _, undisturbed, count) = prune_with_copy(usize::MAX);
    assert_eq!(undisturbed.deleted_entries.len(), 2);
    // The last reading is for the record that precedes the deletion.
    let (world, entries, report, _) = prune_with_copy(count);
    assert_eq!(report.deleted_entries, Vec::<PathBuf>::new());
    let [error] = report.errors.as_slice() else {
        panic!("{:?}", report.errors)
    };
    assert_eq!(error.kind(), ErrorKind::Host);
    assert_eq!(report.ledger_head, None);
    let archive = world.archive_directory();
    for directory in [&archive, &archive.with_file_name("moved")] {
        assert!(entries.iter().all(|entry| directory.join(entry).exists()));
    }
}
