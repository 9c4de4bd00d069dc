//! Compaction of a small ledger, and readers of its segments.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, TimeDelta};
use tempfile::TempDir;

use super::compaction::{CompactionLimits, is_compaction_due, move_records};
use super::files::LedgerFiles;
use super::locked::LEDGER_FILE_NAME;
use super::scan::read_record_at;
use super::segment::Segment;
use super::segment_check::{check_repeated_segments, check_segments};
use super::tests::{open_ledger, read_history};
use super::*;
use crate::base::clock::{Clock, SystemClock};
use crate::base::sys;
use crate::store::ledger::ReverseScan;

/// Limits at which a dozen records make a segment.
const SMALL: CompactionLimits = CompactionLimits {
    max_active_bytes: 8 << 10,
    kept_bytes: 2 << 10,
    segment_bytes: 4 << 10,
    max_segments: 2,
};

/// A clock that advances by a second at each look.
struct TickingClock(Mutex<DateTime<FixedOffset>>);

impl Clock for TickingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let mut now = self.0.lock().unwrap();
        *now += TimeDelta::seconds(1);
        *now
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration);
    }
}

/// An archive with a ledger.
struct LedgerSite {
    archive: Archive,
    clock: TickingClock,
    _directory: TempDir,
}

impl LedgerSite {
    fn new() -> LedgerSite {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let begin = DateTime::parse_from_rfc3339("2026-03-14T09:00:00+01:00").unwrap();
        LedgerSite {
            archive: Archive::new(&root, 0o600, None),
            clock: TickingClock(Mutex::new(begin)),
            _directory: directory,
        }
    }

    /// Returns a ledger with this number of records, and no segment.
    fn with_records(count: usize) -> LedgerSite {
        let site = LedgerSite::new();
        site.append(count);
        site
    }

    fn path(&self) -> PathBuf {
        self.archive.program_path(LEDGER_FILE_NAME)
    }

    /// Appends records of three agents in turn.
    fn append(&self, count: usize) {
        for _ in 0..count {
            let locked = LockedLedger::lock(&self.archive, &SystemClock).unwrap();
            let mut ledger = open_ledger(&self.archive);
            let seq = ledger.head().unwrap().0 + 1;
            let agent = ["ada", "ben", "cyd"][seq as usize % 3];
            let run = format!("{seq:08x}");
            let event = RunEvent {
                note: Some(format!("record {seq} {}", "x".repeat(150))),
                ..RunEvent::new(&run, Operation::Reset, Trigger::Cli, "ops", agent)
            };
            ledger.append(locked, vec![event], &self.clock).unwrap();
        }
    }

    fn compact(&self) -> Result<Option<MovedRecords>> {
        let locked = LockedLedger::lock(&self.archive, &SystemClock)?;
        move_records(&self.archive, &locked, &SMALL)
    }

    /// Compacts until nothing is left to move, and adopts the result as a run does.
    fn compact_all(&self) -> MovedRecords {
        for _ in 0..20 {
            let locked = LockedLedger::lock(&self.archive, &SystemClock).unwrap();
            if let Some(moved) = move_records(&self.archive, &locked, &SMALL).unwrap() {
                open_ledger(&self.archive).adopt_replaced(moved.last + 1);
                return moved;
            }
        }
        panic!("the active file was not replaced");
    }

    fn segments(&self) -> Vec<Segment> {
        let files = LedgerFiles::open(&self.path()).unwrap();
        files.list_segments().unwrap().segments
    }

    /// The bytes of the whole ledger, as `zcat ledger-*.jsonl.gz; cat ledger.jsonl` prints them.
    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for segment in self.segments() {
            text.extend(segment.read_whole().unwrap());
        }
        text.extend(fs::read(self.path()).unwrap());
        text
    }

    fn index_path(&self) -> PathBuf {
        self.archive.program_path("ledger.index")
    }

    /// Asserts that every way to read the ledger finds `count` records.
    #[track_caller]
    fn assert_readable(&self, count: u64) {
        for has_index in [true, false] {
            if !has_index {
                let _ = fs::remove_file(self.index_path());
            }
            let mut ledger = open_ledger(&self.archive);
            assert_eq!(ledger.head().unwrap().0, count);
            let mut scan = FileLedgerScan::open_at(&self.path(), LedgerPosition::default())
                .unwrap()
                .unwrap();
            let mut seqs = Vec::new();
            while let Some(record) = scan.next_record().unwrap() {
                seqs.push(record.seq);
            }
            assert!(seqs.into_iter().eq(1..=count));
            let mut back = ledger.scan_back_to(0).unwrap();
            let mut next = count;
            while let Some((position, record)) = back.next_matching(&mut |_| true).unwrap() {
                assert_eq!((record.seq, position.seq), (next, next));
                let again = read_record_at(&self.path(), position).unwrap();
                assert_eq!(again, record);
                next -= 1;
            }
            assert_eq!(next, 0);
            for (at, agent) in [(1, "ben"), (2, "cyd"), (3, "ada")] {
                let last = (1..=count).rev().find(|seq| seq % 3 == at % 3).unwrap();
                let run = read_history(&mut ledger, agent).last_run.unwrap().run;
                assert_eq!(run, format!("{last:08x}"), "{agent}");
            }
        }
        let report = check_segments(&LedgerFiles::open(&self.path()).unwrap()).unwrap();
        assert_eq!(report.all_errors().next(), None);
    }
}

#[test]
fn compacted_ledger_is_the_same_ledger() {
    let plain = LedgerSite::with_records(90);
    let site = LedgerSite::with_records(30);
    for count in [30, 30] {
        let moved = site.compact_all();
        assert_eq!(site.segments().last().unwrap().last, moved.last);
        site.append(count);
    }
    site.compact_all();
    assert!(site.segments().len() >= 3, "{:?}", site.segments());
    assert!(fs::metadata(site.path()).unwrap().len() <= SMALL.max_active_bytes);
    assert!(site.text() == fs::read(plain.path()).unwrap());
    site.assert_readable(90);
}

#[test]
fn short_ledger_is_not_compacted() {
    let site = LedgerSite::with_records(10);
    assert_eq!(site.compact().unwrap(), None);
    assert_eq!(site.segments(), []);
    let empty = LedgerSite::new();
    assert_eq!(empty.compact().unwrap(), None);
    assert!(!is_compaction_due(&empty.archive));
}

#[test]
fn long_ledger_is_compacted_in_several_runs() {
    let plain = LedgerSite::with_records(150);
    let site = LedgerSite::with_records(150);
    let begin = fs::read(site.path()).unwrap();
    let mut runs = 1;
    while site.compact().unwrap().is_none() {
        // Until the last run, the active file has everything.
        assert!(begin == fs::read(site.path()).unwrap());
        assert_eq!(site.segments().len(), runs * SMALL.max_segments);
        site.assert_readable(150);
        runs += 1;
    }
    assert!(runs > 3, "{runs}");
    assert!(site.text() == fs::read(plain.path()).unwrap());
    site.assert_readable(150);
}

/// The states that a crash leaves, and the state without one.
fn crash_states() -> Vec<(&'static str, LedgerSite)> {
    let before_rename = LedgerSite::with_records(40);
    let old = fs::read(before_rename.path()).unwrap();
    before_rename.compact_all();
    fs::write(before_rename.path(), &old).unwrap();
    fs::remove_file(before_rename.index_path()).unwrap();
    let one_of_two = LedgerSite::with_records(40);
    one_of_two.compact_all();
    fs::write(one_of_two.path(), &old).unwrap();
    fs::remove_file(one_of_two.index_path()).unwrap();
    fs::remove_file(&one_of_two.segments()[1].path).unwrap();
    let before_index = LedgerSite::with_records(40);
    // The index of the file that was replaced.
    let mut ledger = open_ledger(&before_index.archive);
    ledger.head().unwrap();
    ledger.index.write_now(&before_index.archive);
    while before_index.compact().unwrap().is_none() {}
    let complete = LedgerSite::with_records(40);
    complete.compact_all();
    vec![
        ("no segment", LedgerSite::with_records(40)),
        ("segments, the file not replaced", before_rename),
        ("a segment of two, the file not replaced", one_of_two),
        ("the file replaced, the old index", before_index),
        ("complete", complete),
    ]
}

#[test]
fn next_run_completes_interrupted_compaction() {
    for (state, site) in crash_states() {
        println!("{state}");
        site.assert_readable(40);
        site.append(3);
        site.assert_readable(43);
        site.append(30);
        site.compact_all();
        site.assert_readable(73);
        let plain = LedgerSite::with_records(73);
        assert!(site.text() == fs::read(plain.path()).unwrap(), "{state}");
    }
}

#[test]
fn differing_leftover_segment_is_never_trusted() {
    let (_, site) = crash_states().swap_remove(1);
    let other = LedgerSite::new();
    other.clock.now();
    other.append(40);
    other.compact_all();
    let old = fs::read(site.path()).unwrap();
    fs::copy(&other.segments()[0].path, &site.segments()[0].path).unwrap();
    let error = site.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert!(
        error.message().contains("first record, 1, is another one"),
        "{error}"
    );
    assert!(old == fs::read(site.path()).unwrap());
    let files = LedgerFiles::open(&site.path()).unwrap();
    assert_eq!(check_segments(&files).unwrap().rollback_error, Some(error));
    // The ledger goes on without it.
    site.append(1);
    assert_eq!(open_ledger(&site.archive).head().unwrap().0, 41);
}

#[test]
fn active_file_older_than_segments_is_named() {
    let site = LedgerSite::with_records(30);
    site.compact_all();
    let old = fs::read(site.path()).unwrap();
    site.append(30);
    let moved = site.compact_all();
    fs::write(site.path(), &old).unwrap();
    let check = |words: &str| {
        let files = LedgerFiles::open(&site.path()).unwrap();
        let report = check_segments(&files).unwrap();
        assert_eq!(report.errors, []);
        let error = report.rollback_error.unwrap();
        assert!(error.message().contains(words), "{error}");
        assert!(error.hints()[0].contains("restore the newest ledger.jsonl"));
        assert_eq!(check_repeated_segments(&files), Err(error.clone()));
        error.clone()
    };
    check("is older than its segments: it ends before record 31, ");
    // Runs go on with it, until its records are due to be moved.
    site.append(3);
    check("has another record 31 ");
    site.append(40);
    let error = check("has another record 31 ");
    assert_eq!(site.compact(), Err(error));
    assert_eq!(open_ledger(&site.archive).head().unwrap().0, 73);
    // What the hint says.
    fs::remove_file(site.path()).unwrap();
    site.append(1);
    site.assert_readable(moved.last + 1);
}

#[test]
fn broken_chain_is_not_moved() {
    let site = LedgerSite::with_records(40);
    let text = fs::read_to_string(site.path()).unwrap();
    let changed = text.replacen("record 5 ", "record X ", 1);
    fs::write(site.path(), &changed).unwrap();
    let error = site.compact().unwrap_err();
    assert!(error.message().contains("is broken at line 6"), "{error}");
    assert_eq!(fs::read_to_string(site.path()).unwrap(), changed);
    assert_eq!(site.segments(), []);
}

#[test]
fn broken_line_is_reported_once_for_all_leftovers() {
    let site = LedgerSite::with_records(80);
    let text = fs::read_to_string(site.path()).unwrap();
    site.compact_all();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // A line before all leftovers but the first one.
    fs::write(
        site.path(),
        [lines[0], "{}\n", &lines[2..].concat()].concat(),
    )
    .unwrap();
    fs::remove_file(&site.segments()[0].path).unwrap();
    assert!(site.segments().len() > 1);
    let files = LedgerFiles::open(&site.path()).unwrap();
    let report = check_segments(&files).unwrap();
    assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
}

#[test]
fn line_number_in_error_is_that_of_the_file() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    let files = LedgerFiles::open(&site.path()).unwrap();
    let first = files.first_seq().unwrap().unwrap();
    assert!(first > 1);
    let foreign = LedgerPosition {
        seq: 60,
        line_digest: Digest::of(b"other"),
        ..LedgerPosition::default()
    };
    let error = read_record_at(&site.path(), foreign).unwrap_err();
    let words = format!("is broken at line {}: ", 61 - first);
    assert!(error.message().contains(&words), "{error}");
}

#[test]
fn record_with_the_largest_number_is_no_record() {
    let site = LedgerSite::with_records(1);
    let text = fs::read_to_string(site.path()).unwrap();
    for seq in ["18446744073709551615", "9007199254740993", "0"] {
        let line = text.replacen("\"seq\":1", &format!("\"seq\":{seq}"), 1);
        assert_ne!(line, text);
        for before in ["", text.as_str()] {
            fs::write(site.path(), [before, &line, &line].concat()).unwrap();
            let mut scan = FileLedgerScan::open_at(&site.path(), LedgerPosition::default())
                .unwrap()
                .unwrap();
            while let Some(line) = scan.next_line().unwrap() {
                assert!(line.number == 1 && !before.is_empty() || line.problem.is_some());
            }
            let files = LedgerFiles::open(&site.path()).unwrap();
            let expected = (!before.is_empty()).then_some(1);
            assert_eq!(files.first_seq().unwrap(), expected);
            let _ = open_ledger(&site.archive).scan_back_to(0);
        }
    }
}

#[test]
fn index_with_a_passing_gap_is_not_written() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    fs::remove_file(site.index_path()).unwrap();
    let mut ledger = open_ledger(&site.archive);
    ledger.head().unwrap();
    ledger.index.is_incomplete = true;
    ledger.index.write_now(&site.archive);
    assert!(!site.index_path().exists());
    site.assert_readable(60);
}

#[test]
fn readers_of_replaced_file_finish_their_scan() {
    let site = LedgerSite::with_records(60);
    let mut ledger = open_ledger(&site.archive);
    let mut back = ledger.scan_back_to(0).unwrap();
    let end = back.end();
    let mut scan = FileLedgerScan::open_at(&site.path(), LedgerPosition::default())
        .unwrap()
        .unwrap();
    let mut first = scan.next_record().unwrap().unwrap();
    let at = scan.position();
    back.next_matching(&mut |_| true).unwrap().unwrap();
    site.compact_all();
    site.append(40);
    site.compact_all();
    // Both read the file that they have opened.
    let mut count = 1;
    while let Some(record) = scan.next_record().unwrap() {
        assert_eq!(record.seq, first.seq + 1);
        first = record;
        count += 1;
    }
    assert_eq!(count, 60);
    let mut count = 1;
    while back.next_matching(&mut |_| true).unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 60);
    // A position from before finds its record, and all that follow.
    let mut scan = FileLedgerScan::open_at(&site.path(), at).unwrap().unwrap();
    assert_eq!(scan.next_record().unwrap().unwrap().seq, 2);
    let mut scan = FileLedgerScan::open_at(&site.path(), end).unwrap().unwrap();
    assert_eq!(scan.next_record().unwrap().unwrap().seq, 61);
    // So does the ledger of a process that goes on, and the runs that it has indexed.
    assert_eq!(ledger.head().unwrap().0, 100);
    assert_eq!(ledger.index.header.position.seq, 100);
}

#[test]
fn foreign_position_is_an_error_in_every_file() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    let end = open_ledger(&site.archive).scan_back_to(0).unwrap().end();
    for seq in 1..=60 {
        let foreign = LedgerPosition {
            seq,
            line_digest: Digest::of(b"other"),
            ..end
        };
        let mut scan = FileLedgerScan::open_at(&site.path(), foreign)
            .unwrap()
            .unwrap();
        let error = scan.next_record().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Integrity, "{seq}");
        assert!(!scan.skip_unreadable(), "{seq}");
        assert!(read_record_at(&site.path(), foreign).is_err(), "{seq}");
    }
}

#[test]
fn cold_run_reads_no_segment() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    for segment in site.segments() {
        fs::write(&segment.path, "not gzip").unwrap();
    }
    let mut ledger = open_ledger(&site.archive);
    let run = read_history(&mut ledger, "ada").last_run.unwrap().run;
    assert_eq!(run, format!("{:08x}", 60));
    site.append(1);
    assert_eq!(open_ledger(&site.archive).head().unwrap().0, 61);
    // The last records are in the active file.
    let mut back = ledger.scan_back_to(0).unwrap();
    assert!(
        back.next_matching(&mut |it| it.agent == "ben")
            .unwrap()
            .is_some()
    );
    let error = back.next_matching(&mut |_| false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
}

#[test]
fn lost_index_is_rebuilt_around_damaged_segment() {
    let site = LedgerSite::with_records(12);
    let whole = LedgerSite::with_records(60);
    site.append(48);
    site.compact_all();
    let damaged = site.segments().swap_remove(1);
    let bytes = fs::read(&damaged.path).unwrap();
    for damage in [Some(&b"x"[..]), Some(&bytes[..bytes.len() / 2]), None] {
        match damage {
            Some(bytes) => fs::write(&damaged.path, bytes).unwrap(),
            None => fs::remove_file(&damaged.path).unwrap(),
        }
        let _ = fs::remove_file(site.index_path());
        let mut ledger = open_ledger(&site.archive);
        assert_eq!(ledger.head().unwrap().0, 60);
        assert!(read_history(&mut ledger, "ada").last_run.is_some());
        ledger.index.write_now(&site.archive);
        // The index is used as long as the segments are the same.
        let files = LedgerFiles::open(&site.path()).unwrap();
        assert!(LedgerIndex::read(&site.archive, &files).is_some());
    }
    fs::write(&damaged.path, bytes).unwrap();
    let files = LedgerFiles::open(&site.path()).unwrap();
    assert!(LedgerIndex::read(&site.archive, &files).is_none());
    site.assert_readable(60);
    assert!(site.text() == fs::read(whole.path()).unwrap());
}

#[test]
fn foreign_index_is_not_merged_with_segments() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    let other = LedgerSite::new();
    other.clock.now();
    other.append(20);
    let mut ledger = open_ledger(&other.archive);
    ledger.head().unwrap();
    ledger.index.write_now(&other.archive);
    fs::copy(other.index_path(), site.index_path()).unwrap();
    site.assert_readable(60);
    // Also where its last record is the last one of a segment.
    let segment = site.segments()[0].clone();
    let other = LedgerSite::new();
    other.clock.now();
    other.append(segment.last as usize);
    let mut ledger = open_ledger(&other.archive);
    ledger.head().unwrap();
    ledger.index.write_now(&other.archive);
    fs::copy(other.index_path(), site.index_path()).unwrap();
    site.assert_readable(60);
}

#[test]
fn file_replaced_before_the_lock_is_opened_again() {
    let site = LedgerSite::with_records(40);
    let old = fs::metadata(site.path()).unwrap().ino();
    let locked = LockedLedger::lock(&site.archive, &SystemClock).unwrap();
    assert_eq!(locked.file().metadata().unwrap().ino(), old);
    // No other process gets the lock, nor waits for it.
    assert!(
        LockedLedger::try_lock(&site.archive, &SystemClock)
            .unwrap()
            .is_none()
    );
    move_records(&site.archive, &locked, &SMALL).unwrap();
    drop(locked);
    site.compact_all();
    let locked = LockedLedger::lock(&site.archive, &SystemClock).unwrap();
    let now = fs::metadata(site.path()).unwrap().ino();
    assert_eq!(locked.file().metadata().unwrap().ino(), now);
    assert_ne!(now, old);
}

/// A clock that runs an action at each sleep.
struct ActingClock(Box<dyn Fn() + Send + Sync>);

impl Clock for ActingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        SystemClock.now()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn sleep(&self, _: Duration) {
        (self.0)();
    }
}

#[test]
fn record_is_never_appended_to_a_replaced_file() {
    let site = LedgerSite::with_records(10);
    // A process that locks the file only, and replaces it before it unlocks it.
    let holder = File::options().read(true).write(true).open(site.path());
    let holder = Mutex::new(Some(holder.unwrap()));
    assert!(sys::try_lock(holder.lock().unwrap().as_ref().unwrap().as_fd()).unwrap());
    let path = site.path();
    let replace = move || {
        if let Some(holder) = holder.lock().unwrap().take() {
            fs::copy(&path, path.with_extension("new")).unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
            sys::unlock(holder.as_fd());
        }
    };
    let locked = LockedLedger::lock(&site.archive, &ActingClock(Box::new(replace))).unwrap();
    let now = fs::metadata(site.path()).unwrap().ino();
    assert_eq!(locked.file().metadata().unwrap().ino(), now);
}

#[test]
fn segment_beside_others_disturbs_no_reader() {
    let site = LedgerSite::with_records(60);
    site.compact_all();
    let [first, second, ..] = &site.segments()[..] else {
        panic!("{:?}", site.segments())
    };
    let directory = first.path.parent().unwrap();
    let nested = Segment::new(directory, first.first + 2, first.last - 2);
    fs::copy(&second.path, &nested.path).unwrap();
    let shorter = Segment::new(directory, first.first, first.last - 1);
    fs::copy(&second.path, &shorter.path).unwrap();
    // It would hide all others.
    let reaching = Segment::new(directory, first.first, 999);
    fs::copy(&second.path, &reaching.path).unwrap();
    let files = LedgerFiles::open(&site.path()).unwrap();
    assert_eq!(check_segments(&files).unwrap().errors.len(), 3);
    let mut scan = FileLedgerScan::open_at(&site.path(), LedgerPosition::default())
        .unwrap()
        .unwrap();
    let mut position = scan.position();
    for seq in 1..=60 {
        let mut next = FileLedgerScan::open_at(&site.path(), position)
            .unwrap()
            .unwrap();
        assert_eq!(next.next_record().unwrap().unwrap().seq, seq);
        assert_eq!(scan.next_record().unwrap().unwrap().seq, seq);
        position = scan.position();
    }
}

#[test]
fn torn_tail_stays_in_active_file() {
    let site = LedgerSite::with_records(40);
    let mut text = fs::read(site.path()).unwrap();
    text.extend_from_slice(b"{\"seq\":41,\"pre");
    fs::write(site.path(), &text).unwrap();
    site.compact_all();
    assert!(
        fs::read(site.path())
            .unwrap()
            .ends_with(b"{\"seq\":41,\"pre")
    );
    site.assert_readable(40);
    site.append(1);
    let mut ledger = open_ledger(&site.archive);
    let mut back = ledger.scan_back_to(0).unwrap();
    let repair = back
        .next_matching(&mut |it| it.seq == 41)
        .unwrap()
        .unwrap()
        .1;
    assert_eq!(repair.event.operation, Operation::Repair);
    assert_eq!(ledger.head().unwrap().0, 42);
}

#[test]
fn missing_active_file_is_continued_behind_segments() {
    let site = LedgerSite::with_records(40);
    let moved = site.compact_all();
    fs::remove_file(site.path()).unwrap();
    let mut ledger = open_ledger(&site.archive);
    assert_eq!(ledger.head().unwrap().0, moved.last);
    site.append(1);
    site.assert_readable(moved.last + 1);
}
