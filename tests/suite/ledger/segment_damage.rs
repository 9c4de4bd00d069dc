//! Damaged segments of the ledger: what `verify` finds, and what goes on without them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use memory_shepherd::engine::{GuardAction, SealMatch, SealScope, UndoMode, UndoTarget};

use super::super::world::{BASELINE, sorted_names};
use super::retention::{DAY, confirm_date, set_entry_age};
use super::segments::*;
use super::*;

/// Damages the segments, and returns words of the findings that `verify` has to have.
type SegmentDamage = (&'static str, fn(&[PathBuf]), &'static str);

fn compress(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn decompress(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    text
}

fn change_last_record(segment: &Path) {
    let text = decompress(segment);
    let at = text.rfind("timer").unwrap();
    let text = format!("{}TIMER{}", &text[..at], &text[at + 5..]);
    fs::write(segment, compress(text.as_bytes())).unwrap();
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
        |all| change_last_record(&all[1]),
        "ends with another record ",
    ),
    (
        "last record before ledger.jsonl changed",
        |all| change_last_record(&all[2]),
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
            let plan = world
                .engine()
                .planner()
                .plan_undo(&target, UndoMode::Refuse, false);
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
        let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
        engine.seals().apply_seal(&plan, None).unwrap()
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
    let opened = world
        .engine()
        .baseline_edits()
        .open_baseline("scout.md")
        .unwrap();
    assert!(
        matches!(opened.seal, SealMatch::Mismatch(_)),
        "{:?}",
        opened.seal
    );
    let pass = world.engine().guard().guard_baselines().unwrap();
    let actions: Vec<_> = pass.events.iter().map(|it| it.action).collect();
    assert_eq!(actions, [GuardAction::Restored]);
    let name = format!("baselines/{}.md", Digest::of(changed.as_bytes()));
    assert!(program_directory(&world).join(name).exists());
    // A version in a record behind the damage is restored and sealed.
    let engine = world.engine();
    let page = engine
        .baseline_catalog()
        .baseline_history("scout.md", 99)
        .unwrap();
    assert!(!page.versions.is_empty());
    let words = segment.file_name().unwrap().to_str().unwrap();
    assert!(page.unread.unwrap().message().contains(words));
    let pushed = engine
        .baseline_catalog()
        .find_baseline_version("scout.md", "pushed")
        .unwrap();
    assert_eq!(*pushed.1, BASELINE.as_bytes());
    let error = engine
        .baseline_catalog()
        .find_baseline_version("scout.md", "0123456789")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let list = engine.baseline_catalog().list_baselines();
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
        let range = engine.ledger().records(None, None).unwrap();
        let error = range.for_each(&mut |_| Ok(())).unwrap_err();
        assert!(is_restore_hint(error.hints(), segment), "{error:?}");
        let unread = engine.ledger().for_each_record_backwards(|_| true).unwrap();
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
    let range = engine.ledger().records(None, None).unwrap();
    let error = range.for_each(&mut |_| Ok(())).unwrap_err();
    assert!(is_restore_hint(error.hints(), segment), "{error:?}");
    let unread = engine.ledger().for_each_record_backwards(|_| true).unwrap();
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
    let newest = engine.ledger().records(Some("scout"), Some(1)).unwrap();
    let mut last = PathBuf::new();
    newest
        .for_each(&mut |record| {
            last = record.event.change.entry.as_ref().unwrap().path.clone();
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
        .planner()
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let name = paths[1].file_name().unwrap().to_str().unwrap();
    assert!(error.message().contains(name), "{error}");
    assert!(error.message().starts_with("cannot find run "), "{error}");
    // A later run says that it may have changed more.
    let target = UndoTarget::Run(sited.runs[3].clone());
    let plan = engine
        .planner()
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
        .planner()
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
    let page = world
        .engine()
        .history()
        .agent_history("scout", 1000)
        .unwrap();
    assert_eq!(page.entries.len(), 4);
    assert!(page.unread.unwrap().message().contains(name));
    let engine = world.engine();
    assert_eq!(
        engine
            .ledger()
            .records(Some("scout"), Some(4))
            .unwrap()
            .head()
            .0,
        3 * MANY + 10
    );
    assert_eq!(
        engine
            .ledger()
            .records(Some("scout"), Some(5))
            .err()
            .map(|error| error.kind()),
        Some(ErrorKind::Integrity)
    );
}
