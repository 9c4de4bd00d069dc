//! Reads a ledger from its last record back, holding a piece of it at a time, and
//! checks that each line is the one that the line behind it continues.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::scan::{MAX_RECORD_BYTES, broken, parse};
use super::{LedgerPosition, Record};
use crate::digest::Digest;
use crate::error::{PathContext, Result};

/// How many bytes are read at once.
const READ_CHUNK_BYTES: u64 = 256 * 1024;

/// What is read of every record, wanted or not.
#[derive(Deserialize)]
pub struct RecordSummary<'l> {
    /// Its number.
    pub seq: u64,
    prev: Digest,
    /// Its run.
    #[serde(borrow)]
    pub run: Cow<'l, str>,
    /// Its agent.
    #[serde(borrow)]
    pub agent: Cow<'l, str>,
}

/// A ledger that is being read back.
pub struct ReverseScan {
    /// None where there is no ledger.
    file: Option<File>,
    path: PathBuf,
    /// Where the next line ends; where it begins is found by reading.
    end: LedgerPosition,
    /// No record up to this number is read.
    until: u64,
    /// What was read and not used yet: the bytes before `end`.
    piece: Vec<u8>,
}

impl ReverseScan {
    /// Reads back from a place up to which the ledger was read before.
    pub fn new(file: Option<File>, path: &Path, end: LedgerPosition) -> ReverseScan {
        ReverseScan {
            file,
            path: path.to_path_buf(),
            end,
            until: 0,
            piece: Vec::new(),
        }
    }

    /// The same, no further than to the record behind this one.
    pub fn until(self, seq: u64) -> ReverseScan {
        ReverseScan { until: seq, ..self }
    }

    /// The next record that is wanted, with its place; none at the beginning.
    ///
    /// # Errors
    /// A line that is not the one that the record behind it continues.
    pub fn next(
        &mut self,
        mut is_wanted: impl FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, Record)>> {
        while self.end.seq > self.until
            && let Some(from) = self.find_line()?
        {
            let start = self.end.offset - self.piece.len() as u64;
            let line = &self.piece[(from - start) as usize..self.piece.len() - 1];
            let is = |why: &str| broken(&self.path, self.end.seq, why);
            if Digest::of(line) != self.end.head {
                return Err(is("the line behind it continues another one"));
            }
            let no_record = |error| is(&format!("it is no record: {error}"));
            let glance: RecordSummary<'_> = serde_json::from_slice(line).map_err(no_record)?;
            let is_first = glance.seq == 1;
            if glance.seq != self.end.seq
                || is_first != (from == 0)
                || is_first && glance.prev != Digest::ZERO
            {
                return Err(is("its number is another one"));
            }
            let record = match is_wanted(&glance) {
                true => Some(parse(line).map_err(no_record)?),
                false => None,
            };
            let place = LedgerPosition { from, ..self.end };
            self.end = LedgerPosition {
                seq: glance.seq - 1,
                offset: from,
                from: 0,
                head: glance.prev,
            };
            self.piece.truncate((from - start) as usize);
            if let Some(record) = record {
                return Ok(Some((place, record)));
            }
        }
        Ok(None)
    }

    /// Where the line begins that ends at `end`, all of which is in `piece` then; none
    /// where there is none.
    fn find_line(&mut self) -> Result<Option<u64>> {
        let Some(file) = self.file.as_ref().filter(|_| self.end.offset > 0) else {
            return Ok(None);
        };
        loop {
            let start = self.end.offset - self.piece.len() as u64;
            let before = self.piece.len().saturating_sub(1);
            let line_feed = self.piece[..before].iter().rposition(|it| *it == b'\n');
            if let Some(at) = line_feed {
                return Ok(Some(start + at as u64 + 1));
            }
            if start == 0 {
                return Ok(Some(0));
            }
            if self.piece.len() as u64 > MAX_RECORD_BYTES {
                let why = "it is too long for a record";
                return Err(broken(&self.path, self.end.seq, why));
            }
            let length = READ_CHUNK_BYTES.max(self.piece.len() as u64).min(start);
            let mut piece = vec![0; length as usize];
            file.read_exact_at(&mut piece, start - length)
                .path("read", &self.path)?;
            piece.append(&mut self.piece);
            self.piece = piece;
        }
    }
}
