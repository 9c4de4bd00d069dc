//! The lines of the active file, one after the other, as compaction moves them and compares segments
//! with them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::files::{ReadAt, broken_chain_error};
use super::segment::{Segment, SegmentLines};
use crate::base::digest::Digest;
use crate::base::error::{PathContext, Result};
use crate::store::record_line::{MAX_RECORD_BYTES, parse_record_header};

/// The first difference between the active file and a segment.
pub(super) enum ActiveDifference {
    /// The active file ends before this record.
    Missing(u64),
    /// The active file has another record with this number.
    Other(u64),
}

/// The lines of the active file, which are checked to be a chain as they are read.
pub(super) struct ActiveLines<'p> {
    reader: BufReader<ReadAt>,
    path: &'p Path,
    /// The bytes before the next line.
    offset: u64,
    /// The number of the next record, and of the first one.
    next_seq: u64,
    first_seq: u64,
    /// Digest of the line before; none at the beginning.
    previous_digest: Option<Digest>,
    /// The next line with its line feed, once it was read.
    line: Vec<u8>,
}

impl<'p> ActiveLines<'p> {
    /// Begins at the first line of the file, which has the record `first`.
    pub fn new(file: &Arc<File>, path: &'p Path, first: u64) -> ActiveLines<'p> {
        ActiveLines {
            reader: BufReader::with_capacity(128 * 1024, ReadAt::new(file, 0)),
            path,
            offset: 0,
            next_seq: first,
            first_seq: first,
            previous_digest: None,
            line: Vec::new(),
        }
    }

    /// The number of the next record.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The number of the next line in the file.
    pub fn line_number(&self) -> u64 {
        self.next_seq - self.first_seq + 1
    }

    /// The bytes before the next line.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next line with its line feed; none at the end and before an unfinished line.
    ///
    /// # Errors
    /// The system's error.
    pub fn peek_line(&mut self) -> Result<Option<&[u8]>> {
        if self.line.is_empty() {
            let mut piece = (&mut self.reader).take(MAX_RECORD_BYTES);
            let read = piece.read_until(b'\n', &mut self.line);
            read.with_path("read", self.path)?;
        }
        Ok(self.line.ends_with(b"\n").then_some(&self.line))
    }

    /// Takes the next line with its line feed.
    ///
    /// # Errors
    /// [`crate::base::error::ErrorKind::Integrity`] if it does not continue the one before.
    pub fn take_line(&mut self) -> Result<Vec<u8>> {
        let number = self.line_number();
        let broken = |why: &str| Err(broken_chain_error(self.path, number, why));
        if self.peek_line()?.is_none() {
            return broken("it is not a complete record");
        }
        let text = &self.line[..self.line.len() - 1];
        let Ok(header) = parse_record_header(text) else {
            return broken("it is not a record");
        };
        let previous = self.previous_digest.unwrap_or(header.previous_digest);
        if header.seq != self.next_seq || header.previous_digest != previous {
            return broken("it does not continue the line before");
        }
        self.previous_digest = Some(Digest::of(text));
        self.offset += self.line.len() as u64;
        self.next_seq += 1;
        Ok(std::mem::take(&mut self.line))
    }

    /// Takes the lines up to this record; false if the file ends before it.
    ///
    /// # Errors
    /// A broken chain.
    pub fn skip_to(&mut self, last: u64) -> Result<bool> {
        while self.next_seq <= last {
            if self.peek_line()?.is_none() {
                return Ok(false);
            }
            self.take_line()?;
        }
        Ok(true)
    }

    /// Takes the lines up to the last record of a segment. Returns the first difference from it, if
    /// there is one.
    ///
    /// # Errors
    /// A segment that cannot be read; a broken chain.
    pub fn find_difference(&mut self, segment: &Segment) -> Result<Option<ActiveDifference>> {
        let mut copy = SegmentLines::open(segment)?;
        let mut line = Vec::new();
        while self.next_seq < segment.first {
            if self.peek_line()?.is_none() {
                return Ok(Some(ActiveDifference::Missing(self.next_seq)));
            }
            self.take_line()?;
        }
        while copy.read_line(&mut line) {
            line.push(b'\n');
            match self.peek_line()? {
                None => return Ok(Some(ActiveDifference::Missing(self.next_seq))),
                Some(own) if own != line => {
                    return Ok(Some(ActiveDifference::Other(self.next_seq)));
                }
                Some(_) => self.take_line()?,
            };
        }
        Ok(None)
    }
}
