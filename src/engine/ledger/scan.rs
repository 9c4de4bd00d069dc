//! Reads a ledger line by line, holds one line at a time, and checks that each line continues the
//! one before it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use serde::Deserialize;

use crate::digest::Digest;
use crate::durable;
use crate::engine::record::{LedgerPosition, LedgerRecord, RunEvent};
use crate::engine::run_log;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// The largest size of a record; real ones are far smaller, and a longer line is not a record.
pub(super) const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The smallest size of a record.
const MIN_RECORD_BYTES: u64 = 200;

/// A forward scan of a ledger.
pub struct LedgerScan {
    file: BufReader<File>,
    path: PathBuf,
    position: LedgerPosition,
    /// The number of lines before the position.
    line_number: u64,
    line_bytes: Vec<u8>,
    /// Whether the line before could not be parsed, so that the chain of the next one cannot be
    /// checked.
    is_previous_unknown: bool,
    /// Whether the scan has ended before bytes that a crash left.
    is_finished: bool,
}

/// A line of a ledger.
pub struct ScannedLine {
    /// Its number, from 1.
    pub number: u64,
    /// The record in it, if there is one.
    pub record: Option<LedgerRecord>,
    /// The problem with the line, if there is one.
    pub problem: Option<String>,
}

impl LedgerScan {
    /// Starts a scan at a position that an earlier scan reached.
    pub fn new(file: File, path: &Path, at: LedgerPosition) -> Result<LedgerScan> {
        let mut file = BufReader::with_capacity(128 * 1024, file);
        file.seek(SeekFrom::Start(at.offset))
            .with_path("read", path)?;
        Ok(LedgerScan {
            file,
            path: path.to_path_buf(),
            line_number: at.seq,
            position: at,
            line_bytes: Vec::new(),
            is_previous_unknown: false,
            is_finished: false,
        })
    }

    /// Starts a scan at the beginning of the ledger at `path`; None if there is no ledger.
    pub fn open(path: &Path) -> Result<Option<LedgerScan>> {
        LedgerScan::open_at(path, LedgerPosition::default())
    }

    /// Starts a scan of the ledger at `path` at a position that an earlier scan reached; None if
    /// there is no ledger.
    pub fn open_at(path: &Path, at: LedgerPosition) -> Result<Option<LedgerScan>> {
        match durable::open_own_file(path, OpenOptions::new().read(true)) {
            Ok(file) => LedgerScan::new(file, path, at).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from_io("read the ledger", path, &error)),
        }
    }

    /// Returns the position after the last line that was read.
    pub fn position(&self) -> LedgerPosition {
        self.position
    }

    /// Returns how many bytes follow the position. At the end of the scan they belong to a record
    /// that is being written, or were left by a crash.
    pub fn trailing_bytes(&self) -> Result<u64> {
        let meta = self
            .file
            .get_ref()
            .metadata()
            .with_path("stat", &self.path)?;
        Ok(meta.len().saturating_sub(self.position.offset))
    }

    /// Returns the next record; None at the end, before a line that is still being written, and
    /// before bytes that a crash left.
    ///
    /// # Errors
    /// A line that is not a record or does not continue the one before it; the scan then does not
    /// advance.
    pub fn next_record(&mut self) -> Result<Option<LedgerRecord>> {
        let at = self.position;
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        match (line.record, line.problem) {
            (Some(record), None) => Ok(Some(record)),
            (_, problem) => {
                self.position = at;
                let why = problem.unwrap_or_default();
                Err(broken_chain_error(&self.path, line.number, &why))
            }
        }
    }

    /// Returns the next line with its problem, if any; the line after it is checked against this
    /// one.
    pub fn next_line(&mut self) -> Result<Option<ScannedLine>> {
        if self.is_finished {
            return Ok(None);
        }
        let number = self.line_number + 1;
        let mut count = self.read_line()?;
        if count == 0 && self.was_logged_whole(self.trailing_bytes()?) {
            // The line may have been completed between the two reads.
            let offset = SeekFrom::Start(self.position.offset);
            self.file.seek(offset).with_path("read", &self.path)?;
            count = self.read_line()?;
            if count == 0 {
                self.is_finished = true;
                let problem = Some("it was complete, and has been truncated".to_string());
                let record = None;
                return Ok(Some(ScannedLine {
                    number,
                    record,
                    problem,
                }));
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let parsed = parse_record(&self.line_bytes);
        let is_whole = parsed.is_ok() || self.line_continues_chain();
        if !is_whole && !self.is_previous_unknown && self.is_torn_append()? {
            self.is_finished = true;
            return Ok(None);
        }
        let digest = Digest::of(&self.line_bytes);
        let (record, problem) = match parsed {
            Err(error) if is_whole => {
                let problem = format!("this version cannot read it: {}", describe_fault(&error));
                (None, Some(problem))
            }
            Err(error) => {
                let problem = format!("it is not a record: {}", describe_fault(&error));
                (None, Some(problem))
            }
            Ok(record) if self.is_previous_unknown => (Some(record), None),
            Ok(record)
                if record.previous_digest != self.position.line_digest
                    || record.seq.checked_sub(1) != Some(self.position.seq) =>
            {
                (
                    Some(record),
                    Some("it does not continue the line before".to_string()),
                )
            }
            Ok(record) => (Some(record), None),
        };
        self.is_previous_unknown = record.is_none();
        self.line_number = number;
        self.position = LedgerPosition {
            seq: record
                .as_ref()
                .map_or(self.position.seq.saturating_add(1), |record| record.seq),
            line_start: self.position.offset,
            offset: self.position.offset + count,
            line_digest: digest,
        };
        Ok(Some(ScannedLine {
            number,
            record,
            problem,
        }))
    }

    /// Reads the next line without its line feed, and returns its length in bytes with the line
    /// feed; 0 at the end, and for an unfinished line.
    fn read_line(&mut self) -> Result<u64> {
        self.line_bytes.clear();
        let mut piece = (&mut self.file).take(MAX_RECORD_BYTES);
        let count = piece
            .read_until(b'\n', &mut self.line_bytes)
            .with_path("read", &self.path)? as u64;
        if self.line_bytes.pop_if(|byte| *byte == b'\n').is_some() {
            return Ok(count);
        }
        if count >= MAX_RECORD_BYTES {
            let why = "it is too long for a record";
            return Err(broken_chain_error(&self.path, self.line_number + 1, why));
        }
        Ok(0)
    }

    /// Whether the line that was read is complete and continues the chain, although its event may have
    /// words that this version does not know.
    fn line_continues_chain(&self) -> bool {
        serde_json::from_slice::<RecordHeader>(&self.line_bytes).is_ok_and(|header| {
            header.previous_digest == self.position.line_digest
                && header.seq.checked_sub(1) == Some(self.position.seq)
        })
    }

    /// Whether the bytes that follow are those of one append that a crash interrupted: their first
    /// line is not a record, and all records after it are of one run.
    fn is_torn_append(&self) -> Result<bool> {
        let length = self.trailing_bytes()?;
        if length > MAX_RECORD_BYTES || self.was_logged_whole(length) {
            return Ok(false);
        }
        let mut tail = vec![0; length as usize];
        let file = self.file.get_ref();
        if file.read_exact_at(&mut tail, self.position.offset).is_err() {
            // Another process is truncating the ledger.
            return Ok(true);
        }
        let records = tail.split(|byte| *byte == b'\n').map(parse_record);
        let mut runs = records.flatten().map(|record| record.event.run);
        let first = runs.next();
        Ok(runs.all(|run| Some(run) == first))
    }

    /// Whether the `length` bytes after the last record were complete records once: a run logs the
    /// ledger's head only when it is on the disk. Heads in `reset.log` of an earlier ledger do not
    /// fit into these bytes.
    fn was_logged_whole(&self, length: u64) -> bool {
        if length == 0 {
            return false;
        }
        let archive = self.path.parent().and_then(Path::parent);
        let head = archive.and_then(|archive| run_log::read_logged_heads(archive).ok()?.pop());
        let more = head.map_or(0, |(seq, _)| seq.saturating_sub(self.position.seq));
        more > 0 && more.saturating_mul(MIN_RECORD_BYTES) <= length
    }
}

/// Reads the record that ends at a position, which must be the one that was read there before.
///
/// # Errors
/// Another line is at that position.
pub fn read_record_at(path: &Path, position: LedgerPosition) -> Result<LedgerRecord> {
    let file = durable::open_own_file(path, OpenOptions::new().read(true))
        .with_path("read the ledger", path)?;
    let length = position
        .offset
        .saturating_sub(position.line_start)
        .saturating_sub(1);
    let mut line = vec![0; length.min(MAX_RECORD_BYTES) as usize];
    file.read_exact_at(&mut line, position.line_start)
        .with_path("read", path)?;
    match parse_record(&line) {
        Ok(record) if Digest::of(&line) == position.line_digest => Ok(record),
        _ => Err(broken_chain_error(
            path,
            position.seq,
            "it has been changed",
        )),
    }
}

/// Describes why a line is not a record, without the parser's words.
pub(super) fn describe_fault(error: &serde_json::Error) -> String {
    let column = error.column();
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a value is missing or unknown before column {column}")
        }
        serde_json::error::Category::Syntax => format!("column {column} is not valid JSON"),
        serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            "its end is missing".to_string()
        }
    }
}

/// The fields that every record begins with.
#[derive(Deserialize)]
struct RecordHeader {
    seq: u64,
    #[serde(rename = "prev")]
    previous_digest: Digest,
    time: DateTime<FixedOffset>,
}

/// Parses a record. Both of its parts are parsed from the whole line, which is much faster than
/// collecting the fields that the first part leaves.
pub(super) fn parse_record(line: &[u8]) -> serde_json::Result<LedgerRecord> {
    let RecordHeader {
        seq,
        previous_digest,
        time,
    } = serde_json::from_slice(line)?;
    let event: RunEvent = serde_json::from_slice(line)?;
    Ok(LedgerRecord {
        seq,
        previous_digest,
        time,
        event,
    })
}

/// Returns the error for a ledger whose chain is broken.
pub fn broken_chain_error(path: &Path, line: u64, why: &str) -> Error {
    Error::new(
        ErrorKind::Integrity,
        format!(
            "the ledger {} is broken at line {line}: {why}",
            path.display()
        ),
    )
    .with_hint(
        "`verify` lists every broken line; keep the file as evidence, and move it away together \
         with reset.log and reset.log.old: the next run begins a new ledger",
    )
}
