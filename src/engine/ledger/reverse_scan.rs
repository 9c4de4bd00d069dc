//! Reads a ledger from its last record backwards, in chunks, and checks that each line is the one
//! that the following line continues.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::scan::{MAX_RECORD_BYTES, broken_chain_error, describe_fault, parse_record};
use crate::digest::Digest;
use crate::engine::record::{LedgerPosition, LedgerRecord};
use crate::error::{PathContext, Result};

/// How many bytes are read at a time.
const READ_CHUNK_BYTES: u64 = 256 * 1024;

/// The fields that are parsed of every record, wanted or not.
#[derive(Deserialize)]
pub struct RecordSummary<'l> {
    /// Its number.
    pub seq: u64,
    #[serde(rename = "prev")]
    previous_digest: Digest,
    /// Its run.
    #[serde(borrow)]
    pub run: Cow<'l, str>,
    /// Its agent.
    #[serde(borrow)]
    pub agent: Cow<'l, str>,
}

/// A backward scan of a ledger.
pub struct ReverseScan {
    /// None if there is no ledger.
    file: Option<File>,
    path: PathBuf,
    /// The end of the next line; its beginning is found by reading.
    end: LedgerPosition,
    /// The scan stops after the record that follows this number.
    after_seq: u64,
    /// The bytes before `end` that were read and not parsed yet.
    buffer: Vec<u8>,
}

impl ReverseScan {
    /// Starts a scan backwards from a position up to which the ledger was read before.
    pub fn new(file: Option<File>, path: &Path, end: LedgerPosition) -> ReverseScan {
        ReverseScan {
            file,
            path: path.to_path_buf(),
            end,
            after_seq: 0,
            buffer: Vec::new(),
        }
    }

    /// Limits the scan to the records after the one with this number.
    pub fn stopping_after(self, seq: u64) -> ReverseScan {
        ReverseScan {
            after_seq: seq,
            ..self
        }
    }

    /// Returns the next wanted record, with its position; None at the beginning of the ledger.
    ///
    /// # Errors
    /// A line that is not the one that the following record continues.
    pub fn next_matching(
        &mut self,
        mut is_wanted: impl FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>> {
        while self.end.seq > self.after_seq
            && let Some(line_start) = self.find_line_start()?
        {
            let start = self.end.offset - self.buffer.len() as u64;
            let line = &self.buffer[(line_start - start) as usize..self.buffer.len() - 1];
            let chain_error = |why: &str| broken_chain_error(&self.path, self.end.seq, why);
            if Digest::of(line) != self.end.line_digest {
                return Err(chain_error("the following line continues another one"));
            }
            let no_record = |error: serde_json::Error| {
                chain_error(&format!("it is not a record: {}", describe_fault(&error)))
            };
            let summary: RecordSummary<'_> = serde_json::from_slice(line).map_err(no_record)?;
            let is_first = summary.seq == 1;
            if summary.seq != self.end.seq
                || is_first != (line_start == 0)
                || is_first && summary.previous_digest != Digest::ZERO
            {
                return Err(chain_error("it has the wrong number"));
            }
            let record = if is_wanted(&summary) {
                Some(parse_record(line).map_err(no_record)?)
            } else {
                None
            };
            let position = LedgerPosition {
                line_start,
                ..self.end
            };
            self.end = LedgerPosition {
                seq: summary.seq - 1,
                offset: line_start,
                line_start: 0,
                line_digest: summary.previous_digest,
            };
            self.buffer.truncate((line_start - start) as usize);
            if let Some(record) = record {
                return Ok(Some((position, record)));
            }
        }
        Ok(None)
    }

    /// Returns the offset of the line that ends at `end`, and reads all of it into `buffer`; None
    /// at the beginning of the ledger.
    fn find_line_start(&mut self) -> Result<Option<u64>> {
        let Some(file) = self.file.as_ref().filter(|_| self.end.offset > 0) else {
            return Ok(None);
        };
        loop {
            let start = self.end.offset - self.buffer.len() as u64;
            let before = self.buffer.len().saturating_sub(1);
            let line_feed = self.buffer[..before].iter().rposition(|it| *it == b'\n');
            if let Some(at) = line_feed {
                return Ok(Some(start + at as u64 + 1));
            }
            if start == 0 {
                return Ok(Some(0));
            }
            if self.buffer.len() as u64 > MAX_RECORD_BYTES {
                let why = "it is too long for a record";
                return Err(broken_chain_error(&self.path, self.end.seq, why));
            }
            let length = READ_CHUNK_BYTES.max(self.buffer.len() as u64).min(start);
            let mut chunk = vec![0; length as usize];
            file.read_exact_at(&mut chunk, start - length)
                .with_path("read", &self.path)?;
            chunk.append(&mut self.buffer);
            self.buffer = chunk;
        }
    }
}
