//! Compressed segments of the ledger: runs that move older records, and readers that go back to
//! them.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::world::{
    BASELINE, RunOutput, apply_plan, permission_bits, records, sorted_names,
};
use super::long_ledger::append_records_with_note;
use super::retention::{DAY, confirm_date, set_entry_age};
use super::*;
use crate::skip::{skip_missing_tool, skip_unsupported};
use memory_shepherd::engine::{
    GuardAction, RunDiffSide, SealMatch, SealScope, UndoMode, UndoTarget,
};

/// So many long records are longer than the size at which a run compacts the ledger.
const MANY: u64 = 520;

/// Appends [`MANY`] long records of another agent, as its runs would.
fn append_many(world: &World) {
    append_records_with_note(world, MANY, Some("long ".repeat(400)));
}

fn program_directory(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd")
}

fn segment_paths(world: &World) -> Vec<PathBuf> {
    let directory = program_directory(world);
    let names = sorted_names(&directory).into_iter();
    let segments = names.filter(|name| name.ends_with(".jsonl.gz"));
    segments.map(|name| directory.join(name)).collect()
}

/// Resets both agents with this note; the run archives an entry of each.
fn reset_with_note(world: &World, note: &str) -> RunOutput {
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
struct SegmentedWorld {
    world: World,
    runs: Vec<String>,
}

impl SegmentedWorld {
    fn new() -> SegmentedWorld {
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
    fn undo_run(&self, number: usize) -> RunOutput {
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
        let range = engine.records(Some("scout"), last).unwrap();
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
        let range = engine.records(None, Some(last)).unwrap();
        range
            .for_each(&mut |record| {
                seqs.push(record.seq);
                Ok(())
            })
            .unwrap();
        let first = all.len() as u64 - last as u64 + 1;
        assert!(seqs.into_iter().eq(first..=all.len() as u64), "{last}");
    }
    let page = engine.agent_history("scout", 1000).unwrap();
    assert!(page.unread.is_none());
    let past: Vec<_> = page
        .entries
        .iter()
        .map(|it| it.record.event.run.clone())
        .collect();
    assert!(past.iter().rev().eq(&runs));
    let first = page.entries.last().unwrap().record.seq;
    let diff = engine
        .run_diff(engine.agent("scout").unwrap(), first)
        .unwrap();
    let before = RunDiffSide::Text(format!("{BASELINE}- one\n").into_bytes(), 0);
    assert_eq!(diff.before, before);
}

/// Damages the segments, and returns words of the findings that `verify` has to have.
type SegmentDamage = (&'static str, fn(&[PathBuf]), &'static str);

fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn decompress(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    text
}

const DAMAGES: &[SegmentDamage] = &[
    (
        "missing",
        |all| fs::remove_file(&all[1]).unwrap(),
        "are missing: no segment",
    ),
    (
        "first missing",
        |all| fs::remove_file(&all[0]).unwrap(),
        "the records 1 to ",
    ),
    (
        "changed",
        |all| {
            let text = decompress(&all[1]).replacen("\"user\":\"timer\"", "\"user\":\"hacker\"", 1);
            fs::write(&all[1], compress(text.as_bytes())).unwrap();
        },
        "it does not continue the line before",
    ),
    (
        "last record changed",
        |all| {
            let text = decompress(&all[1]);
            let at = text.rfind("timer").unwrap();
            let text = format!("{}TIMER{}", &text[..at], &text[at + 5..]);
            fs::write(&all[1], compress(text.as_bytes())).unwrap();
        },
        "ends with another record ",
    ),
    (
        "last record before ledger.jsonl changed",
        |all| {
            let text = decompress(&all[2]);
            let at = text.rfind("timer").unwrap();
            let text = format!("{}TIMER{}", &text[..at], &text[at + 5..]);
            fs::write(&all[2], compress(text.as_bytes())).unwrap();
        },
        "ends with another record ",
    ),
    (
        "truncated",
        |all| {
            let bytes = fs::read(&all[1]).unwrap();
            fs::write(&all[1], &bytes[..bytes.len() - 100]).unwrap();
        },
        "is truncated",
    ),
    (
        "without its last records",
        |all| {
            let text = decompress(&all[1]);
            let end = text.len() / 2 + text[text.len() / 2..].find('\n').unwrap() + 1;
            fs::write(&all[1], compress(&text.as_bytes()[..end])).unwrap();
        },
        "ends behind record ",
    ),
    (
        "swapped",
        |all| {
            let spare = all[0].with_extension("spare");
            fs::rename(&all[0], &spare).unwrap();
            fs::rename(&all[1], &all[0]).unwrap();
            fs::rename(&spare, &all[1]).unwrap();
        },
        "begins with record ",
    ),
    (
        "duplicated",
        |all| {
            let copy = all[0].with_file_name("ledger-000000000001-000000000009.jsonl.gz");
            fs::copy(&all[0], copy).unwrap();
        },
        "other files of the ledger have",
    ),
    (
        "duplicated behind the ledger",
        |all| {
            let copy = all[0].with_file_name("ledger-000000999001-000001999009.jsonl.gz");
            fs::copy(&all[0], copy).unwrap();
        },
        "begins with record 1",
    ),
    (
        "duplicated up to ledger.jsonl",
        |all| {
            let copy = all[0].with_file_name("ledger-000000000001-000000999999.jsonl.gz");
            fs::copy(&all[0], copy).unwrap();
        },
        "other files of the ledger have",
    ),
    (
        "foreign name",
        |all| {
            let copy = all[0].with_file_name("ledger-1-2.jsonl.gz");
            fs::copy(&all[0], copy).unwrap();
        },
        "is not a segment of the ledger",
    ),
    (
        "bytes behind the stream",
        |all| {
            let more = compress(b"{}\n");
            let mut file = fs::File::options().append(true).open(&all[1]).unwrap();
            file.write_all(&more).unwrap();
        },
        "other bytes behind its gzip stream",
    ),
    (
        "more records",
        |all| {
            let text = decompress(&all[1]) + "{}\n";
            fs::write(&all[1], compress(text.as_bytes())).unwrap();
        },
        "more records than its name says",
    ),
    (
        "a decompression bomb",
        |all| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            for _ in 0..64 {
                encoder.write_all(&[0; 1 << 20]).unwrap();
            }
            fs::write(&all[1], encoder.finish().unwrap()).unwrap();
        },
        "is too long",
    ),
    (
        "a gzip stream of empty blocks",
        |all| {
            let mut bytes = compress(b"");
            bytes.splice(10..10, [0, 0, 0, 0xff, 0xff].repeat(1 << 20));
            fs::write(&all[1], bytes).unwrap();
        },
        "is too long",
    ),
    (
        "no gzip",
        |all| fs::write(&all[1], "{}\n".repeat(99)).unwrap(),
        "cannot be decompressed",
    ),
];

#[test]
fn damaged_segment_is_found_and_stops_no_reset() {
    let sited = SegmentedWorld::new();
    let world = &sited.world;
    let paths = segment_paths(world);
    let whole: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    let text = decompress(&paths[2]);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(first["seq"].as_u64().unwrap() > MANY);
    for (what, damage, words) in DAMAGES {
        damage(&paths);
        let found = findings(world);
        assert!(
            found.iter().any(|it| it.0 == FindingSubject::Ledger
                && it.1 == ErrorKind::Integrity
                && it.2.contains(words)),
            "{what}: {found:?}"
        );
        // A reset, and an undo of a later run, need none of the records.
        for has_index in [true, false] {
            if !has_index {
                fs::remove_file(program_directory(world).join("ledger.index")).unwrap();
            }
            let note = format!("- {what} {has_index}\n");
            let ran = reset_with_note(world, &note);
            world.undo("scout", UndoMode::Refuse).assert_ok();
            let memory = String::from_utf8(world.read_memory("scout")).unwrap();
            assert_eq!(memory, format!("{BASELINE}{note}"), "{what}");
            let target = UndoTarget::Run(ran.report.run.clone());
            let plan = world.engine().plan_undo(&target, UndoMode::Refuse, false);
            assert!(plan.is_ok(), "{what}");
        }
        for name in sorted_names(&program_directory(world)) {
            if name.ends_with(".gz") {
                fs::remove_file(program_directory(world).join(name)).unwrap();
            }
        }
        for (path, bytes) in paths.iter().zip(&whole) {
            fs::write(path, bytes).unwrap();
        }
        assert_eq!(findings(world), [], "{what}");
    }
}

/// Returns the hint to restore a segment, which is the only one that its damage may have.
fn is_restore_hint(hints: &[String], segment: &Path) -> bool {
    let name = segment.file_name().unwrap().to_str().unwrap();
    matches!(hints, [hint] if hint.starts_with(&format!("restore {name} from a backup")))
}

#[test]
fn damaged_segment_stops_no_guard_and_no_seal() {
    let world = World::new(&["ranger", "scout"]);
    let seal_all = || {
        let engine = world.engine();
        let plan = engine.plan_seal(&SealScope::All, false).unwrap();
        engine.apply_seal(&plan, None).unwrap()
    };
    seal_all();
    reset_with_note(&world, "- one\n");
    append_many(&world);
    reset_with_note(&world, "- two\n");
    let [segment] = segment_paths(&world).try_into().unwrap();
    fs::write(&segment, "no gzip").unwrap();
    // The guard knows of no save, restores, and keeps the bytes that it replaces.
    let changed = format!("{BASELINE}more\n");
    world.set_baseline("scout", &changed);
    let opened = world.engine().open_baseline("scout.md").unwrap();
    assert!(
        matches!(opened.seal, SealMatch::Mismatch(_)),
        "{:?}",
        opened.seal
    );
    let pass = world.engine().guard_baselines().unwrap();
    let actions: Vec<_> = pass.events.iter().map(|it| it.action).collect();
    assert_eq!(actions, [GuardAction::Restored]);
    let name = format!("baselines/{}.md", Digest::of(changed.as_bytes()));
    assert!(program_directory(&world).join(name).exists());
    // A version in a record behind the damage is restored and sealed.
    let engine = world.engine();
    let page = engine.baseline_history_page("scout.md", 99).unwrap();
    assert!(!page.versions.is_empty());
    let words = segment.file_name().unwrap().to_str().unwrap();
    assert!(page.unread.unwrap().message().contains(words));
    let pushed = engine.find_baseline_version("scout.md", "pushed").unwrap();
    assert_eq!(*pushed.1, BASELINE.as_bytes());
    let error = engine
        .find_baseline_version("scout.md", "0123456789")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let list = engine.list_baselines();
    assert!(list.baselines.iter().all(|it| it.last_push.is_some()));
    world.set_baseline("ranger", &changed);
    assert_eq!(seal_all().sealed, ["ranger.md"]);
}

#[test]
fn damaged_segment_deletes_no_entry() {
    let world = World::new(&["ranger", "scout"]);
    let ran = reset_with_note(&world, "- old\n");
    let entry = ran.result_of("scout").entries[0].path.clone();
    append_many(&world);
    reset_with_note(&world, "- two\n");
    let [segment] = segment_paths(&world).try_into().unwrap();
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, "no gzip").unwrap();
    world.clock.advance(DAY * 40);
    let path = set_entry_age(&world, &entry, 40);
    confirm_date(&world);
    world.write_scratch("scout", "- three\n");
    let ran = world.reset();
    assert_eq!(ran.result_of("scout").outcome, Outcome::Ok);
    assert!(path.exists());
    assert_eq!(ran.report.retired_entries, Vec::<PathBuf>::new());
    let [error] = ran.report.errors.as_slice() else {
        panic!("{:?} {:?}", ran.report.errors, ran.report.notes)
    };
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Integrity));
    fs::write(&segment, bytes).unwrap();
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), None);
    assert!(ran.report.retired_entries.contains(&entry));
}

#[test]
fn foreign_segment_name_hides_no_truncation() {
    let world = world_with_three_runs();
    let name = "ledger-1-2.jsonl.gz";
    fs::write(program_directory(&world).join(name), "foreign").unwrap();
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(ledger_path(&world), lines[..4].concat()).unwrap();
    let found = findings(&world);
    let subjects: Vec<_> = found.iter().map(|it| it.0).collect();
    assert!(subjects.contains(&FindingSubject::Ledger), "{found:?}");
    assert!(subjects.contains(&FindingSubject::Log), "{found:?}");
}

#[test]
fn flipped_byte_of_segment_accuses_nothing_else() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let segment = &segment_paths(&world)[1];
    let whole = fs::read(segment).unwrap();
    // In the compressed lines, and in the checksum and the length behind them.
    let step = whole.len() / 8;
    let offsets = (1..8).map(|it| it * step);
    for offset in offsets.chain([whole.len() - 8, whole.len() - 4]) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        fs::write(segment, bytes).unwrap();
        let found = verify(&world.engine(), None);
        let [finding] = found.findings.as_slice() else {
            panic!("{offset}: {:?}", found.findings)
        };
        assert_eq!(finding.subject, FindingSubject::Ledger);
        assert!(is_restore_hint(&finding.hints, segment), "{finding:?}");
        // Readers of the whole ledger, as `doctor` is one.
        let engine = world.engine();
        let range = engine.records(None, None).unwrap();
        let error = range.for_each(&mut |_| Ok(())).unwrap_err();
        assert!(is_restore_hint(error.hints(), segment), "{error:?}");
        let unread = engine.for_each_record_backwards(|_| true).unwrap();
        assert!(is_restore_hint(unread.unwrap().hints(), segment));
    }
}

#[test]
fn changed_line_of_segment_is_to_be_restored() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let segment = &segment_paths(&world)[1];
    let text = decompress(segment).replacen("\"user\":\"timer\"", "\"user\":\"hacker\"", 1);
    fs::write(segment, compress(text.as_bytes())).unwrap();
    let found = verify(&world.engine(), None);
    let [finding] = found.findings.as_slice() else {
        panic!("{:?}", found.findings)
    };
    assert!(is_restore_hint(&finding.hints[1..], segment), "{finding:?}");
    let engine = world.engine();
    let range = engine.records(None, None).unwrap();
    let error = range.for_each(&mut |_| Ok(())).unwrap_err();
    assert!(is_restore_hint(error.hints(), segment), "{error:?}");
    let unread = engine.for_each_record_backwards(|_| true).unwrap();
    assert!(is_restore_hint(unread.unwrap().hints(), segment));
}

#[test]
fn missing_entry_may_be_retired_by_unread_record() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let segment = &segment_paths(&world)[1];
    let text = decompress(segment);
    let line = text.lines().nth(50).unwrap();
    let seq: serde_json::Value = serde_json::from_str(line).unwrap();
    let anchor = (seq["seq"].as_u64().unwrap(), Digest::of(line.as_bytes()));
    fs::write(segment, "no gzip").unwrap();
    let engine = world.engine();
    let newest = engine.records(Some("scout"), Some(1)).unwrap();
    let mut last = PathBuf::new();
    newest
        .for_each(&mut |record| {
            last = record.event.entry.as_ref().unwrap().path.clone();
            Ok(())
        })
        .unwrap();
    for name in sorted_names(&world.archive_directory().join("scout")) {
        fs::remove_file(world.archive_directory().join("scout").join(name)).unwrap();
    }
    let found = verify(&world.engine(), Some(anchor));
    let entries = found.findings.iter();
    let entries: Vec<_> = entries
        .filter(|it| it.subject == FindingSubject::Entry)
        .map(|it| it.message.as_str())
        .collect();
    // The records of these two are behind the damaged segment.
    assert_eq!(entries.len(), 2, "{entries:?}");
    let last = last.to_str().unwrap();
    assert!(entries.iter().any(|it| it.contains(last)), "{entries:?}");
    let notes = found.notes.join("; ");
    assert!(
        notes.contains("1 entry that the ledger names is missing"),
        "{notes}"
    );
    assert!(notes.contains("not in the records that can be read"));
    assert_eq!(found.is_anchor_valid, Some(false));
    let anchor = found.findings.iter();
    let anchor: Vec<_> = anchor
        .filter(|it| it.subject == FindingSubject::Anchor)
        .collect();
    assert!(anchor[0].message.contains("cannot be read"), "{anchor:?}");
}

#[test]
fn undo_that_needs_a_damaged_segment_says_so() {
    let sited = SegmentedWorld::new();
    let world = &sited.world;
    let paths = segment_paths(world);
    fs::write(&paths[1], "no gzip").unwrap();
    let engine = world.engine();
    // The run in the damaged segment.
    let target = UndoTarget::Run(sited.runs[1].clone());
    let error = engine
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let name = paths[1].file_name().unwrap().to_str().unwrap();
    assert!(error.message().contains(name), "{error}");
    assert!(error.message().starts_with("cannot find run "), "{error}");
    // A later run says that it may have changed more.
    let target = UndoTarget::Run(sited.runs[3].clone());
    let plan = engine
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap();
    assert_eq!(plan.steps.len(), 2);
    let notes = plan.steps[0].notes.join("; ");
    assert!(
        notes.contains("may have changed more agents") && notes.contains(name),
        "{notes}"
    );
    // An agent whose runs are all in older segments is refused, and no other one.
    for _ in 0..2 {
        world.undo("scout", UndoMode::Overwrite).assert_ok();
    }
    let both = UndoTarget::Agents(vec!["ranger".to_string(), "scout".to_string()]);
    let plan = world
        .engine()
        .plan_undo(&both, UndoMode::Overwrite, false)
        .unwrap();
    assert_eq!(plan.steps.len(), 1);
    let [skipped] = plan.skipped.as_slice() else {
        panic!("{:?}", plan.skipped)
    };
    assert_eq!(skipped.kind, Some(ErrorKind::Integrity));
    assert!(
        skipped.reason.starts_with("cannot find a run to undo: "),
        "{}",
        skipped.reason
    );
    // The history and the log show what is behind it, and no more.
    let page = world.engine().agent_history("scout", 1000).unwrap();
    assert_eq!(page.entries.len(), 4);
    assert!(page.unread.unwrap().message().contains(name));
    let engine = world.engine();
    assert_eq!(
        engine.records(Some("scout"), Some(4)).unwrap().head().0,
        3 * MANY + 10
    );
    assert_eq!(
        engine
            .records(Some("scout"), Some(5))
            .err()
            .map(|error| error.kind()),
        Some(ErrorKind::Integrity)
    );
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
    let seen = |name: &str| engine.observe(engine.agent(name).unwrap());
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
    let report = world.engine().check_ledger_files().unwrap();
    assert_eq!(report.active_error.unwrap().message(), finding.message);
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
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
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
