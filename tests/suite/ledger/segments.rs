//! Compressed segments of the ledger: runs that move older records, and readers that go back to
//! them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use super::super::world::{
    BASELINE, RunOutput, apply_plan, permission_bits, records, sorted_names,
};
use super::long_ledger::append_records_with_note;
use super::segment_damage::decompress;
use super::*;
use crate::skip::{skip_missing_tool, skip_unsupported};
use memory_shepherd::engine::{RunDiffSide, UndoMode, UndoTarget};

/// So many long records are longer than the size at which a run compacts the ledger.
pub(super) const MANY: u64 = 520;

/// Appends [`MANY`] long records of another agent, as its runs would.
pub(super) fn append_many(world: &World) {
    append_records_with_note(world, MANY, Some("long ".repeat(400)));
}

pub(super) fn program_directory(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd")
}

pub(super) fn segment_paths(world: &World) -> Vec<PathBuf> {
    let directory = program_directory(world);
    let names = sorted_names(&directory).into_iter();
    let segments = names.filter(|name| name.ends_with(".jsonl.gz"));
    segments.map(|name| directory.join(name)).collect()
}

/// Resets both agents with this note; the run archives an entry of each.
pub(super) fn reset_with_note(world: &World, note: &str) -> RunOutput {
    for agent in ["ranger", "scout"] {
        world.write_scratch(agent, note);
        world.clock.advance(std::time::Duration::from_secs(60));
    }
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
    ran
}

/// A world whose ledger has three segments, with a run of two agents in each of the first two and in
/// the active file.
pub(super) struct SegmentedWorld {
    pub(super) world: World,
    pub(super) runs: Vec<String>,
}

impl SegmentedWorld {
    pub(super) fn new() -> SegmentedWorld {
        let world = World::new(&["ranger", "scout"]);
        let mut runs = Vec::new();
        for note in ["- one\n", "- two\n", "- three\n"] {
            runs.push(reset_with_note(&world, note).report.run);
            append_many(&world);
        }
        runs.push(reset_with_note(&world, "- four\n").report.run);
        assert_eq!(segment_paths(&world).len(), 3);
        SegmentedWorld { world, runs }
    }

    /// Plans and applies the undo of a whole run.
    pub(super) fn undo_run(&self, number: usize) -> RunOutput {
        let target = UndoTarget::Run(self.runs[number].clone());
        self.world.undo_target(&target, UndoMode::Overwrite)
    }
}

#[test]
fn long_ledger_is_compacted_by_the_next_run() {
    let world = World::new(&["ranger", "scout"]);
    reset_with_note(&world, "- one\n");
    append_many(&world);
    let before = fs::read(ledger_path(&world)).unwrap();
    let ran = reset_with_note(&world, "- two\n");
    let moved = ran.lines.last().unwrap();
    assert!(moved.contains("Moved ledger records 1 to "), "{moved}");
    assert_eq!(ran.report.notes, Vec::<String>::new());
    let [segment] = segment_paths(&world).try_into().unwrap();
    assert_eq!(permission_bits(&segment), 0o600);
    assert_eq!(permission_bits(&ledger_path(&world)), 0o600);
    assert!(fs::metadata(ledger_path(&world)).unwrap().len() < 300 << 10);
    assert!(fs::metadata(&segment).unwrap().len() < before.len() as u64 / 4);
    // The next run has nothing to move.
    let again = reset_with_note(&world, "- three\n");
    assert!(!again.lines.iter().any(|line| line.contains("Moved")));
    let found = verify(&world.engine(), None);
    assert_eq!(found.findings, []);
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!((found.ledger.segments, found.counts.lines), (1, MANY + 6));
    assert_eq!(world.read_records().len() as u64, MANY + 6);
}

#[test]
fn zcat_prints_the_ledger_as_without_segments() {
    let has_zcat = Command::new("zcat").arg("--version").output();
    if !has_zcat.is_ok_and(|output| output.status.success()) {
        return skip_missing_tool("zcat");
    }
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let output = Command::new("sh")
        .args(["-c", "zcat ledger-*.jsonl.gz; cat ledger.jsonl"])
        .current_dir(program_directory(&world))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    // Without its segments and its index it is a ledger that no run has compacted.
    for segment in segment_paths(&world) {
        fs::remove_file(segment).unwrap();
    }
    fs::remove_file(program_directory(&world).join("ledger.index")).unwrap();
    fs::write(ledger_path(&world), &output.stdout).unwrap();
    let found = verify(&world.engine(), None);
    assert_eq!(found.findings, []);
    assert_eq!(
        (found.ledger.segments, found.counts.lines),
        (0, 3 * MANY + 8)
    );
}

#[test]
fn run_in_segment_is_undone_and_redone() {
    let sited = SegmentedWorld::new();
    let world = &sited.world;
    let restored = |note: &str| {
        for agent in ["ranger", "scout"] {
            let memory = world.read_memory(agent);
            assert_eq!(
                String::from_utf8_lossy(&memory),
                format!("{BASELINE}{note}")
            );
        }
    };
    for (number, note) in [(1, "- two\n"), (0, "- one\n"), (3, "- four\n")] {
        let ran = sited.undo_run(number);
        assert_eq!(ran.report.count(Outcome::Ok), 2, "{:?}", ran.lines);
        restored(note);
    }
    // Undos of an agent go back run by run.
    let sited = SegmentedWorld::new();
    let world = &sited.world;
    for note in ["- four\n", "- three\n", "- two\n", "- one\n"] {
        world.undo("scout", UndoMode::Overwrite).assert_ok();
        let memory = String::from_utf8(world.read_memory("scout")).unwrap();
        assert_eq!(memory, format!("{BASELINE}{note}"));
    }
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(ran.report.results[0].outcome, Outcome::Refused);
    world.redo("scout").assert_ok();
    assert_eq!(findings(world), []);
}

#[test]
fn log_and_history_page_back_through_segments() {
    let SegmentedWorld { world, runs } = SegmentedWorld::new();
    let engine = world.engine();
    let runs_of = |last: Option<usize>| {
        let mut found = Vec::new();
        let range = engine.ledger().records(Some("scout"), last).unwrap();
        range
            .for_each(&mut |record| {
                found.push(record.event.run.clone());
                Ok(())
            })
            .unwrap();
        found
    };
    assert_eq!(runs_of(None), runs);
    assert_eq!(runs_of(Some(3)), runs[1..]);
    let all = world.read_records();
    assert_eq!(all.len() as u64, 3 * MANY + 8);
    for last in [1, 100, 600, 1_400] {
        let mut seqs = Vec::new();
        let range = engine.ledger().records(None, Some(last)).unwrap();
        range
            .for_each(&mut |record| {
                seqs.push(record.seq);
                Ok(())
            })
            .unwrap();
        let first = all.len() as u64 - last as u64 + 1;
        assert!(seqs.into_iter().eq(first..=all.len() as u64), "{last}");
    }
    let page = engine.history().agent_history("scout", 1000).unwrap();
    assert!(page.unread.is_none());
    let past: Vec<_> = page
        .entries
        .iter()
        .map(|it| it.record.event.run.clone())
        .collect();
    assert!(past.iter().rev().eq(&runs));
    let first = page.entries.last().unwrap().record.seq;
    let diff = engine
        .history()
        .run_diff(engine.agent("scout").unwrap(), first)
        .unwrap();
    let before = RunDiffSide::Text(format!("{BASELINE}- one\n").into_bytes(), 0);
    assert_eq!(diff.before, before);
}

#[test]
fn anchor_is_found_in_a_segment() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let text = decompress(&segment_paths(&world)[1]);
    let line = text.lines().nth(50).unwrap();
    let seq: serde_json::Value = serde_json::from_str(line).unwrap();
    let anchor = (seq["seq"].as_u64().unwrap(), Digest::of(line.as_bytes()));
    let found = verify(&world.engine(), Some(anchor));
    assert_eq!(
        (found.is_anchor_valid, found.worst_kind()),
        (Some(true), None)
    );
    let found = verify(&world.engine(), Some((anchor.0 + 1, anchor.1)));
    assert_eq!(found.is_anchor_valid, Some(false));
}

#[test]
fn engine_goes_on_after_another_process_compacts() {
    let world = World::new(&["ranger", "scout"]);
    reset_with_note(&world, "- one\n");
    let engine = world.engine();
    let seen = |name: &str| engine.observer().observe(engine.agent(name).unwrap());
    append_many(&world);
    assert_eq!(seen("scout").ledger_error, None);
    let ran = reset_with_note(&world, "- two\n");
    assert_eq!(segment_paths(&world).len(), 1);
    let seen = seen("scout");
    assert_eq!(seen.ledger_error, None);
    assert_eq!(seen.last_run.unwrap().run, ran.report.run);
    world.write_scratch("scout", "- three\n");
    world.reset_with_engine(&engine).assert_ok();
    assert_eq!(records(&engine).unwrap().len() as u64, MANY + 6);
    assert_eq!(findings(&world), []);
}

#[test]
fn failed_compaction_is_one_note_of_a_good_run() {
    let world = World::new(&["ranger", "scout"]);
    reset_with_note(&world, "- one\n");
    append_many(&world);
    // Where a segment would be.
    let name = "ledger-000000000001-000000000002.jsonl.gz";
    fs::write(program_directory(&world).join(name), "foreign").unwrap();
    for note in ["- two\n", "- three\n"] {
        let ran = reset_with_note(&world, note);
        let [note] = ran.report.notes.as_slice() else {
            panic!("{:?}", ran.report.notes)
        };
        assert!(note.starts_with("the ledger is not compacted: "), "{note}");
        assert!(note.contains(name), "{note}");
        assert!(
            note.contains("; move it away: ledger.jsonl has its records"),
            "{note}"
        );
        assert!(!note.contains("backup"), "{note}");
        let told = ran
            .lines
            .iter()
            .filter(|line| line.contains("not compacted"));
        assert_eq!(told.count(), 1, "{:?}", ran.lines);
    }
    fs::remove_file(program_directory(&world).join(name)).unwrap();
    for path in segment_paths(&world) {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(
        reset_with_note(&world, "- four\n").report.notes,
        Vec::<String>::new()
    );
    assert_eq!(segment_paths(&world).len(), 1);
    assert_eq!(findings(&world), []);
}

#[test]
fn older_ledger_is_named_and_stops_no_reset() {
    let world = World::new(&["ranger", "scout"]);
    let mut old = Vec::new();
    for note in ["- one\n", "- two\n", "- three\n"] {
        reset_with_note(&world, note);
        if note == "- two\n" {
            old = fs::read(ledger_path(&world)).unwrap();
        }
        append_many(&world);
    }
    fs::write(ledger_path(&world), old).unwrap();
    for note in ["- four\n", "- five\n"] {
        let ran = reset_with_note(&world, note);
        let [note] = ran.report.notes.as_slice() else {
            panic!("{:?}", ran.report.notes)
        };
        assert!(
            note.contains("most likely ledger.jsonl was replaced by an older one"),
            "{note}"
        );
    }
    let found = verify(&world.engine(), None);
    let [finding] = found.findings.as_slice() else {
        panic!("{:?}", found.findings)
    };
    assert!(finding.hints[0].contains("restore the newest ledger.jsonl"));
    let report = world.engine().ledger().check().unwrap();
    assert_eq!(report.rollback_error.unwrap().message(), finding.message);
    assert_eq!(report.errors, []);
}

/// Sets or clears a flag of a file; false where that is not possible.
fn change_flag(flag: &str, path: &Path) -> bool {
    let output = Command::new("chattr").arg(flag).arg(path).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn append_only_ledger_is_not_compacted() {
    let world = World::new(&["ranger", "scout"]);
    reset_with_note(&world, "- one\n");
    append_many(&world);
    if !change_flag("+a", &ledger_path(&world)) {
        return skip_unsupported("cannot make a file append-only");
    }
    let ran = reset_with_note(&world, "- two\n");
    assert!(change_flag("-a", &ledger_path(&world)));
    let [note] = ran.report.notes.as_slice() else {
        panic!("{:?}", ran.report.notes)
    };
    assert!(
        note.contains("it is append-only") && note.contains("chattr -a"),
        "{note}"
    );
    assert_eq!(segment_paths(&world), Vec::<PathBuf>::new());
    assert_eq!(
        reset_with_note(&world, "- three\n").report.notes,
        Vec::<String>::new()
    );
    assert_eq!(segment_paths(&world).len(), 1);
}

#[test]
fn segments_have_owner_group_and_mode_of_the_ledger() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip_unsupported("needs root");
    }
    let world = World::new(&["ranger", "scout"]);
    reset_with_note(&world, "- one\n");
    append_many(&world);
    let path = ledger_path(&world);
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    world.write_scratch("scout", "- two\n");
    let engine = world.engine_with_archive_group(2);
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
    let [segment] = segment_paths(&world).try_into().unwrap();
    for path in [segment, path] {
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o7777),
            (1, 2, 0o640),
            "{path:?}"
        );
    }
}

#[test]
fn other_version_that_starts_anew_is_told_apart() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    // As the hint of a version that knows no segments says.
    fs::remove_file(ledger_path(&world)).unwrap();
    fs::remove_file(world.archive_directory().join("reset.log")).unwrap();
    let other = world_with_three_runs();
    fs::copy(ledger_path(&other), ledger_path(&world)).unwrap();
    let found = findings(&world);
    let about = found.iter().filter(|it| it.0 == FindingSubject::Ledger);
    assert_eq!(about.count(), 1, "{found:?}");
    assert!(
        found[0].2.contains("is not the one of its segments"),
        "{found:?}"
    );
    assert_eq!(world.read_records().len(), 6);
}
