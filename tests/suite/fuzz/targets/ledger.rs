//! The ledger.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::fake_transport::FakeTransport;
use memory_shepherd::archive;
use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{Engine, Finding, FindingSubject, LedgerRecord};

use super::{directory, engine_with_config, time_of_minute};

/// Fuzzes the ledger. The first byte decides: after `!` the rest is the file, after `#` the segment
/// with its first records; otherwise each four bytes are an edit of a valid ledger.
pub fn ledger(bytes: &[u8]) {
    if let [b'#', segment @ ..] = bytes {
        return ledger_segment(segment);
    }
    let whole = valid_ledger();
    let file = match bytes {
        [b'!', file @ ..] => file.to_vec(),
        edits => edits
            .chunks_exact(4)
            .take(8)
            .fold(whole.clone(), edit_ledger),
    };
    let site = directory();
    let own = site.path().join(archive::PROGRAM_DIRECTORY_NAME);
    fs::create_dir(&own).unwrap();
    let path = own.join("ledger.jsonl");
    fs::write(&path, &file).unwrap();
    let lines = complete_lines(&file);
    let read = read_records(&archive_engine(site.path()));
    // A verification continues where a run stops, and reaches the same result.
    let verified = archive_engine(site.path())
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    let broken = |finding: &Finding| finding.subject == FindingSubject::Ledger;
    assert_eq!(
        verified.findings.iter().any(broken),
        read.is_err(),
        "{verified:?}"
    );
    match &read {
        Ok(records) => {
            // A leftover of a crash begins with a line that is not a record.
            let (whole, torn) = lines.split_at(records.len());
            let next = torn.first().map(|it| LedgerRecord::parse(it));
            assert!(!matches!(next, Some(Ok(_))), "{next:?}");
            assert_eq!(verified.counts.lines, whole.len() as u64);
            assert_chained(records, whole);
        }
        // Where the whole lines are valid, a torn line is not a fault.
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Integrity, "{error}");
            assert!(lines != complete_lines(&whole)[..lines.len().min(RECORD_COUNT)]);
        }
    }
    // Read while it grows, the ledger is the same.
    let cut = usize::from(bytes.last().copied().unwrap_or_default()) * file.len() / 255;
    fs::write(&path, &file[..cut]).unwrap();
    let engine = archive_engine(site.path());
    let begun = read_records(&engine).map(|records| records.len());
    let mut appending = fs::File::options().append(true).open(&path).unwrap();
    appending.write_all(&file[cut..]).unwrap();
    let grown = read_records(&engine);
    if begun.is_ok() {
        assert_eq!(grown.is_ok(), read.is_ok());
    }
    if let (Ok(grown), Ok(read)) = (grown, read) {
        assert_eq!(grown, *read);
    }
}

/// Fuzzes a segment before a valid active file.
fn ledger_segment(segment: &[u8]) {
    let site = directory();
    let own = site.path().join(archive::PROGRAM_DIRECTORY_NAME);
    fs::create_dir(&own).unwrap();
    let (first, rest) = split_ledger();
    fs::write(own.join("ledger.jsonl"), &rest).unwrap();
    fs::write(own.join(SEGMENT_NAME), segment).unwrap();
    let engine = archive_engine(site.path());
    let verified = engine
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    let broken = |finding: &Finding| finding.subject == FindingSubject::Ledger;
    let is_broken = verified.findings.iter().any(broken);
    match read_records(&engine) {
        Ok(records) => {
            assert!(!is_broken, "{verified:?}");
            // Digests cannot be guessed.
            assert_chained(&records, &complete_lines(&[first, rest].concat()));
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Integrity, "{error}");
            assert!(is_broken, "{verified:?}");
        }
    }
    // The records behind it are read in any case.
    assert_eq!(engine.ledger().head().unwrap().0, RECORD_COUNT as u64);
    let last = engine
        .ledger()
        .records(None, Some(RECORD_COUNT - SEGMENT_RECORDS))
        .unwrap();
    last.for_each(&mut |_| Ok(())).unwrap();
}

/// The number of records in the segment, and its name.
const SEGMENT_RECORDS: usize = 3;
const SEGMENT_NAME: &str = "ledger-000000000001-000000000003.jsonl.gz";

/// Returns the lines of the segment, and those of the active file.
fn split_ledger() -> (Vec<u8>, Vec<u8>) {
    let whole = valid_ledger();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let (first, rest) = lines.split_at(SEGMENT_RECORDS);
    (first.concat(), rest.concat())
}

/// Returns an input with a valid segment.
pub fn valid_segment() -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![b'#'], Compression::best());
    encoder.write_all(&split_ledger().0).unwrap();
    encoder.finish().unwrap()
}

fn read_records(engine: &Engine) -> Result<Vec<LedgerRecord>, Error> {
    let mut records = Vec::new();
    engine
        .ledger()
        .records(None, None)?
        .for_each(&mut |record| {
            records.push(record.clone());
            Ok(())
        })?;
    Ok(records)
}

fn archive_engine(archive: &Path) -> Engine {
    let text = format!("[general]\narchive_dir={}\n", archive.display());
    engine_with_config(&text, FakeTransport::new(Arc::new(SystemClock)))
}

fn complete_lines(file: &[u8]) -> Vec<&[u8]> {
    let lines = file.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_suffix(b"\n")).collect()
}

/// Asserts that no line was changed without a change of the line after it.
fn assert_chained(records: &[LedgerRecord], lines: &[&[u8]]) {
    let mut head = Digest::ZERO;
    for (number, (record, line)) in records.iter().zip(lines).enumerate() {
        assert_eq!(
            (record.seq, record.previous_digest),
            (number as u64 + 1, head)
        );
        head = Digest::of(line);
    }
    // Digests cannot be guessed: a record with a valid successor is the program's own,
    // so only the last line may differ.
    let valid = valid_ledger();
    let valid = complete_lines(&valid);
    if let Some((_, chained)) = lines.split_last() {
        assert_eq!(Some(chained), valid.get(..chained.len()));
    }
}

const RECORD_COUNT: usize = 6;

/// A ledger of [`LINES`] records.
pub fn valid_ledger() -> Vec<u8> {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let (mut text, mut head) = (Vec::new(), Digest::ZERO);
        for seq in 1..=RECORD_COUNT {
            let record = serde_json::json!({
                "seq": seq, "prev": head, "time": time_of_minute(29_000_000 + seq as u32),
                "run": format!("20260314T0900{seq:02}"), "act": "reset", "trigger": "cli",
                "user": "operator", "agent": "scout", "host": "local", "outcome": "ok",
                "baseline": Digest::of(b"baseline"), "duration_ms": seq,
                "before": {"file": {"sha256": Digest::of(&[seq as u8]), "size": 1, "lines": 0}},
                "after": {"file": {"sha256": Digest::of(b"baseline"), "size": 8, "lines": 0}},
            });
            let record = LedgerRecord::parse(record.to_string().as_bytes()).unwrap();
            let line = serde_json::to_vec(&record).unwrap();
            head = Digest::of(&line);
            text.extend([&line[..], b"\n"].concat());
        }
        text
    };
    TEXT.get_or_init(make).clone()
}

fn edit_ledger(mut text: Vec<u8>, edit: &[u8]) -> Vec<u8> {
    let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (text.len() + 1);
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let line = at % lines.len().max(1);
    match edit[0] % 8 {
        0 | 1 if at < text.len() => text[at] = edit[3],
        2 => text.insert(at, edit[3]),
        3 if at < text.len() => {
            text.remove(at);
        }
        4 => text.truncate(at),
        5 if line < lines.len() => {
            lines.insert(usize::from(edit[3]) % lines.len(), lines[line]);
            text = lines.concat();
        }
        6 if line < lines.len() => {
            lines.swap(line, 0);
            text = lines.concat();
        }
        7 if line < lines.len() => {
            lines.remove(line);
            text = lines.concat();
        }
        _ => {}
    }
    text
}
