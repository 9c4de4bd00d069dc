//! Reads a ledger from its last record backwards, and checks that each line is the one that the
//! following line continues. It reads the active file in chunks, then one segment after the other,
//! each as a whole.

use std::os::unix::fs::FileExt;

use super::files::{LedgerFiles, RecordPlace};
use super::segment::Segment;
use crate::base::digest::Digest;
use crate::base::error::{Error, PathContext, Result};
use crate::base::moment::Zone;
use crate::store::ledger::ReverseScan;
use crate::store::record::{LedgerPosition, LedgerRecord};
use crate::store::record_line::{MAX_RECORD_BYTES, RecordSummary, describe_fault};

/// How many bytes are read at a time.
const READ_CHUNK_BYTES: u64 = 256 * 1024;

/// A backward scan of a ledger in files.
pub(super) struct FileReverseScan {
    files: LedgerFiles,
    /// The zone of the records' times.
    zone: Zone,
    /// The segment that is read now; none for the active file.
    segment: Option<Segment>,
    /// The position that it began at.
    end: LedgerPosition,
    /// The end of the next line; its beginning is found by reading. In a segment the offset is that
    /// of the decompressed lines.
    line_end: LedgerPosition,
    /// The scan stops after the record that follows this number.
    after_seq: u64,
    /// The bytes before `line_end` that were read and not parsed yet; all of them in a segment.
    buffer: Vec<u8>,
    /// The error that has ended the scan in a segment.
    unread: Option<Error>,
}

impl FileReverseScan {
    /// Starts a scan backwards from a position up to which the ledger was read before, to the record
    /// that follows `after_seq`.
    pub fn new(
        files: LedgerFiles,
        end: LedgerPosition,
        after_seq: u64,
        zone: Zone,
    ) -> FileReverseScan {
        FileReverseScan {
            files,
            zone,
            segment: None,
            end,
            line_end: end,
            after_seq,
            buffer: Vec::new(),
            unread: None,
        }
    }

    /// Returns whether the scan has left the active file: an error then is about older records only.
    fn is_in_segment(&self) -> bool {
        self.segment.is_some() || self.line_end.offset == 0
    }

    fn find_wanted(
        &mut self,
        is_wanted: &mut dyn FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>> {
        while self.line_end.seq > self.after_seq {
            if self.line_end.offset == 0 {
                self.open_segment()?;
            }
            let line_start = self.find_line_start()?;
            let start = self.line_end.offset - self.buffer.len() as u64;
            let line = &self.buffer[(line_start - start) as usize..self.buffer.len() - 1];
            if Digest::of(line) != self.line_end.line_digest {
                return Err(self.chain_error("the following line continues another one"));
            }
            let no_record = |error: serde_json::Error| {
                self.chain_error(&format!("it is not a record: {}", describe_fault(&error)))
            };
            let summary: RecordSummary<'_> = serde_json::from_slice(line).map_err(no_record)?;
            let is_first = summary.seq == 1;
            let is_at_begin = line_start == 0;
            if summary.seq != self.line_end.seq
                || is_first && (!is_at_begin || summary.previous_digest != Digest::ZERO)
                || is_at_begin
                    && self
                        .segment
                        .as_ref()
                        .is_some_and(|it| it.first != summary.seq)
            {
                return Err(self.chain_error("it has the wrong number"));
            }
            let record = if is_wanted(&summary) {
                let mut record = LedgerRecord::parse(line).map_err(no_record)?;
                record.time = self.zone.at(record.time);
                Some(record)
            } else {
                None
            };
            let position = match &self.segment {
                None => LedgerPosition {
                    line_start,
                    ..self.line_end
                },
                // A record in a segment is found by its number.
                Some(_) => LedgerPosition {
                    line_start: 0,
                    offset: 0,
                    ..self.line_end
                },
            };
            self.line_end = LedgerPosition {
                seq: summary.seq - 1,
                offset: line_start,
                line_start,
                line_digest: summary.previous_digest,
            };
            self.buffer.truncate((line_start - start) as usize);
            if let Some(record) = record {
                return Ok(Some((position, record)));
            }
        }
        Ok(None)
    }

    /// Reads the segment that ends with the next record.
    fn open_segment(&mut self) -> Result<()> {
        let seq = self.line_end.seq;
        let segment = match self.files.find_record(seq)? {
            RecordPlace::Segment(segment) => segment,
            RecordPlace::Missing(last) => return Err(self.files.missing_error(seq, last)),
            RecordPlace::Active => return Err(self.chain_error("it has the wrong number")),
        };
        if segment.last != seq {
            let why = "has records that follow others, too";
            return Err(segment.damage_error(why));
        }
        self.buffer = segment.read_whole()?;
        self.line_end.offset = self.buffer.len() as u64;
        self.segment = Some(segment);
        Ok(())
    }

    fn chain_error(&self, why: &str) -> Error {
        let seq = self.line_end.seq;
        match &self.segment {
            Some(segment) => {
                let line = seq.saturating_add(1).saturating_sub(segment.first);
                segment.damage_error(&format!("is broken at line {line}: {why}"))
            }
            None => self.files.broken_error(seq, why),
        }
    }

    /// Returns the offset of the line that ends at `end`, and reads all of it into `buffer`.
    fn find_line_start(&mut self) -> Result<u64> {
        loop {
            let start = self.line_end.offset - self.buffer.len() as u64;
            let before = self.buffer.len().saturating_sub(1);
            let line_feed = self.buffer[..before].iter().rposition(|it| *it == b'\n');
            if let Some(at) = line_feed {
                return Ok(start + at as u64 + 1);
            }
            if start == 0 {
                return Ok(0);
            }
            let Some(file) = self.files.active() else {
                return Err(self.chain_error("its file is missing"));
            };
            if self.buffer.len() as u64 > MAX_RECORD_BYTES {
                return Err(self.chain_error("it is too long for a record"));
            }
            let length = READ_CHUNK_BYTES.max(self.buffer.len() as u64).min(start);
            let mut chunk = vec![0; length as usize];
            file.read_exact_at(&mut chunk, start - length)
                .with_path("read", self.files.path())?;
            chunk.append(&mut self.buffer);
            self.buffer = chunk;
        }
    }
}

impl ReverseScan for FileReverseScan {
    fn end(&self) -> LedgerPosition {
        self.end
    }

    fn next_readable(
        &mut self,
        is_wanted: &mut dyn FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>> {
        match self.find_wanted(is_wanted) {
            Err(error) if self.is_in_segment() => {
                self.unread = Some(error);
                Ok(None)
            }
            next => next,
        }
    }

    fn take_unread(&mut self) -> Option<Error> {
        self.unread.take()
    }
}
