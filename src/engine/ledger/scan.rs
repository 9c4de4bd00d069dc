//! Reads a ledger line by line, holding one line at a time, and checks that each
//! continues the one before.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::{LedgerRecord, RunEvent};
use crate::digest::Digest;
use crate::durable;
use crate::engine::run_log;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// No record comes near this; a longer line is none.
pub(super) const MAX_RECORD_BYTES: u64 = 16 << 20;

/// A place between two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// Number of the record that ends here; 0 at the beginning.
    pub seq: u64,
    /// Bytes before this place.
    pub offset: u64,
    /// Bytes before the line that ends here.
    #[serde(rename = "from")]
    pub line_start: u64,
    /// Digest of that line.
    #[serde(rename = "head")]
    pub line_digest: Digest,
}

impl LedgerPosition {
    /// The place before the line that ends here, which continues one with this digest.
    pub fn before_last_line(self, prev: Digest) -> LedgerPosition {
        LedgerPosition {
            seq: self.seq - 1,
            offset: self.line_start,
            line_start: 0,
            line_digest: prev,
        }
    }
}

/// No record is shorter than this.
const MIN_RECORD_BYTES: u64 = 200;

/// A ledger that is being read.
pub struct LedgerScan {
    file: BufReader<File>,
    path: PathBuf,
    position: LedgerPosition,
    /// Lines before this place.
    line_number: u64,
    line_bytes: Vec<u8>,
    /// Nothing can be said about what the next line continues: the one before
    /// could not be read.
    is_previous_unknown: bool,
    /// What follows is no record: a crash left it.
    is_finished: bool,
}

/// A line as it was found.
pub struct ScannedLine {
    /// Its number, from 1.
    pub number: u64,
    /// The record in it, if there is one.
    pub record: Option<LedgerRecord>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl LedgerScan {
    /// Reads on from a place that was reached before.
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

    /// Reads the ledger at `path` from its beginning; none where there is none.
    pub fn open(path: &Path) -> Result<Option<LedgerScan>> {
        LedgerScan::open_at(path, LedgerPosition::default())
    }

    /// The same from a place on that was reached before.
    pub fn open_at(path: &Path, at: LedgerPosition) -> Result<Option<LedgerScan>> {
        match durable::open_own_file(path, OpenOptions::new().read(true)) {
            Ok(file) => LedgerScan::new(file, path, at).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from_io("read the ledger", path, &error)),
        }
    }

    /// The place behind the last line that was read.
    pub fn position(&self) -> LedgerPosition {
        self.position
    }

    /// How many bytes follow. At the end of the scan they are of a record that is being
    /// written, or what a crash left of some.
    pub fn trailing_bytes(&self) -> Result<u64> {
        let meta = self
            .file
            .get_ref()
            .metadata()
            .with_path("look at", &self.path)?;
        Ok(meta.len().saturating_sub(self.position.offset))
    }

    /// The next record; none at the end, before a line that is still being written,
    /// and before what a crash left.
    ///
    /// # Errors
    /// A line that is no record or does not continue the one before: the scan
    /// is over then.
    pub fn next_record(&mut self) -> Result<Option<LedgerRecord>> {
        let at = self.position;
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        match (line.record, line.problem) {
            (Some(record), None) => Ok(Some(record)),
            (_, wrong) => {
                self.position = at;
                let why = wrong.unwrap_or_default();
                Err(broken_chain_error(&self.path, line.number, &why))
            }
        }
    }

    /// The next line, whatever is wrong with it; what follows is measured
    /// against it.
    pub fn next_line(&mut self) -> Result<Option<ScannedLine>> {
        if self.is_finished {
            return Ok(None);
        }
        let number = self.line_number + 1;
        let mut count = self.read_line()?;
        if count == 0 && self.was_logged_whole(self.trailing_bytes()?) {
            // It may have been whole already when its run told of it.
            let offset = SeekFrom::Start(self.position.offset);
            self.file.seek(offset).with_path("read", &self.path)?;
            count = self.read_line()?;
            if count == 0 {
                self.is_finished = true;
                let wrong = Some("it was written whole, and is cut off".to_string());
                let record = None;
                return Ok(Some(ScannedLine {
                    number,
                    record,
                    problem: wrong,
                }));
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let parsed = parse_record(&self.line_bytes);
        if parsed.is_err() && !self.is_previous_unknown && self.is_torn_append()? {
            self.is_finished = true;
            return Ok(None);
        }
        let digest = Digest::of(&self.line_bytes);
        let (record, wrong) = match parsed {
            Err(error) => (None, Some(format!("it is no record: {error}"))),
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
            problem: wrong,
        }))
    }

    /// Reads the next line without its line feed, and returns how many bytes it has with
    /// it; none at the end, and of a line that is not finished.
    fn read_line(&mut self) -> Result<u64> {
        self.line_bytes.clear();
        let mut piece = (&mut self.file).take(MAX_RECORD_BYTES);
        let count = piece.read_until(b'\n', &mut self.line_bytes);
        let count = count.with_path("read", &self.path)? as u64;
        if self.line_bytes.pop_if(|byte| *byte == b'\n').is_some() {
            return Ok(count);
        }
        match count < MAX_RECORD_BYTES {
            true => Ok(0),
            false => Err(broken_chain_error(
                &self.path,
                self.line_number + 1,
                "it is too long for a record",
            )),
        }
    }

    /// Whether what follows is what a crash left of one append: its first line is no
    /// record, and none behind it is of another run.
    fn is_torn_append(&self) -> Result<bool> {
        let length = self.trailing_bytes()?;
        if length > MAX_RECORD_BYTES || self.was_logged_whole(length) {
            return Ok(false);
        }
        let mut tail = vec![0; length as usize];
        let file = self.file.get_ref();
        if file.read_exact_at(&mut tail, self.position.offset).is_err() {
            // Somebody cuts it off.
            return Ok(true);
        }
        let records = tail.split(|byte| *byte == b'\n').map(parse_record);
        let mut runs = records.flatten().map(|record| record.event.run);
        let first = runs.next();
        Ok(runs.all(|run| Some(run) == first))
    }

    /// Whether so many bytes behind the last record were a whole record once: a run tells
    /// of the ledger's head only when that is on the disk. What `reset.log` tells of
    /// another ledger, which stood here before, does not fit into these bytes.
    fn was_logged_whole(&self, length: u64) -> bool {
        if length == 0 {
            return false;
        }
        let archive = self.path.parent().and_then(Path::parent);
        let head = archive.and_then(|archive| run_log::read_logged_heads(archive).pop());
        let more = head.map_or(0, |(seq, _)| seq.saturating_sub(self.position.seq));
        more > 0 && more.saturating_mul(MIN_RECORD_BYTES) <= length
    }
}

/// The record that ends at a place of a ledger, which must be the one that was read
/// there before.
///
/// # Errors
/// What the system answered, or another line in its place.
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
        _ => Err(broken_chain_error(path, position.seq, "it was changed")),
    }
}

/// What every record begins with.
#[derive(Deserialize)]
struct RecordHeader {
    seq: u64,
    #[serde(rename = "prev")]
    previous_digest: Digest,
    time: DateTime<FixedOffset>,
}

/// Both halves of a record are read from the whole line, which is much quicker
/// than to collect what the first one leaves.
pub(super) fn parse_record(line: &[u8]) -> serde_json::Result<LedgerRecord> {
    let RecordHeader {
        seq,
        previous_digest: prev,
        time,
    } = serde_json::from_slice(line)?;
    let what: RunEvent = serde_json::from_slice(line)?;
    Ok(LedgerRecord {
        seq,
        previous_digest: prev,
        time,
        event: what,
    })
}

/// A ledger whose chain is broken.
pub fn broken_chain_error(path: &Path, line: u64, why: &str) -> Error {
    Error::new(
        ErrorKind::Integrity,
        format!("the ledger {} is broken at line {line}: {why}", path.display()),
    )
    .with_hint("the command `verify` shows all of it; keep the file as evidence and move it away with reset.log and reset.log.old, then a new ledger begins")
}
