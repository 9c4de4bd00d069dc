//! Reads a ledger line by line, through its segments and its active file, holds one line at a time,
//! and checks that each line continues the one before it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;

use super::files::{LedgerFiles, ReadAt, RecordPlace, broken_chain_error};
use super::segment::{Segment, SegmentLines};
use crate::base::digest::Digest;
use crate::base::error::{Error, PathContext, Result};
use crate::store::ledger::{LedgerLine, LedgerScan, LineProblem};
use crate::store::record::{LedgerPosition, LedgerRecord};
use crate::store::record_line::{MAX_RECORD_BYTES, describe_fault, parse_record_header};
use crate::store::run_log;

/// Size of the reads from the active file.
const READ_BUFFER_BYTES: usize = 128 * 1024;

/// The smallest size of a record.
const MIN_RECORD_BYTES: u64 = 200;

/// A forward scan of a ledger, through its segments and its active file.
pub(super) struct FileLedgerScan {
    files: LedgerFiles,
    source: LineSource,
    position: LedgerPosition,
    /// The number of lines before the position, in all files.
    line_number: u64,
    line_bytes: Vec<u8>,
    /// Whether this scan has read the line before the position.
    has_read_position: bool,
    /// Whether the position that the scan began at is one of this ledger.
    is_start_confirmed: bool,
    /// Whether the line before could not be parsed or read, so that the chain of the next one cannot
    /// be checked.
    is_previous_unknown: bool,
    /// Whether the scan has ended before bytes that a crash left.
    is_finished: bool,
}

/// Where a scan reads its lines.
enum LineSource {
    /// The file with the next record is not open yet.
    Unopened,
    Segment(Box<SegmentLines>),
    /// A segment that cannot be read, or several that are missing: up to this record, and why.
    Unreadable {
        last: u64,
        error: Error,
    },
    Active(BufReader<ReadAt>),
    /// There is no active file.
    NoActive,
}

impl FileLedgerScan {
    /// Starts a scan at a position that an earlier scan reached.
    pub fn new(files: LedgerFiles, at: LedgerPosition) -> FileLedgerScan {
        FileLedgerScan {
            files,
            source: LineSource::Unopened,
            line_number: at.seq,
            position: at,
            line_bytes: Vec::new(),
            has_read_position: false,
            is_start_confirmed: at.seq == 0,
            is_previous_unknown: false,
            is_finished: false,
        }
    }

    /// Starts a scan of the ledger at `path` at a position that an earlier scan reached; None if
    /// there is no ledger.
    pub fn open_at(path: &Path, at: LedgerPosition) -> Result<Option<FileLedgerScan>> {
        let files = LedgerFiles::open(path)?;
        Ok(files.has_records()?.then(|| FileLedgerScan::new(files, at)))
    }

    /// Opens the file with the record behind the position.
    fn open_source(&mut self) -> Result<()> {
        let at = self.position;
        if at.offset > 0 && self.open_active().is_ok() {
            return Ok(());
        }
        self.source = match self.files.find_record(at.seq.saturating_add(1))? {
            RecordPlace::Active => return self.open_active(),
            RecordPlace::Missing(last) => {
                let error = self.files.missing_error(at.seq + 1, last);
                LineSource::Unreadable { last, error }
            }
            RecordPlace::Segment(segment) => match self.open_segment(&segment) {
                Ok(lines) => LineSource::Segment(Box::new(lines)),
                Err(error) => LineSource::Unreadable {
                    last: segment.last,
                    error,
                },
            },
        };
        Ok(())
    }

    fn open_active(&mut self) -> Result<()> {
        let at = self.position;
        let has_chain = at.seq > 0 && !self.is_previous_unknown;
        // The first line of the file need not be read where the hint is right.
        if !has_chain || !self.files.has_line_at(at)? {
            let is_at_begin = match self.files.first_seq()? {
                _ if !has_chain => true,
                // An empty file, or one with a torn first record, is behind the last segment.
                None => self.has_read_position,
                Some(first) => first == at.seq.saturating_add(1),
            };
            if is_at_begin {
                (self.position.offset, self.position.line_start) = (0, 0);
            } else {
                self.position = self.files.locate(at)?;
            }
        }
        let Some(active) = self.files.active() else {
            self.source = LineSource::NoActive;
            return Ok(());
        };
        let reader = ReadAt::new(active, self.position.offset);
        self.source = LineSource::Active(BufReader::with_capacity(READ_BUFFER_BYTES, reader));
        Ok(())
    }

    /// Opens a segment behind the records up to the position.
    fn open_segment(&mut self, segment: &Segment) -> Result<SegmentLines> {
        let mut lines = SegmentLines::open(segment)?;
        let at = self.position;
        if at.seq < segment.first {
            return Ok(lines);
        }
        while segment.first + lines.line_number() <= at.seq {
            lines.read_line(&mut self.line_bytes);
        }
        if !self.is_previous_unknown && Digest::of(&self.line_bytes) != at.line_digest {
            return Err(segment.damage_error(&format!("has another record {}", at.seq)));
        }
        self.is_start_confirmed = true;
        Ok(lines)
    }

    fn next_active_line(&mut self) -> Result<Option<LedgerLine>> {
        let mut count = self.read_line()?;
        if count == 0 && self.was_logged_whole(self.trailing_bytes()?) {
            // The line may have been completed between the two reads.
            self.source = LineSource::Unopened;
            self.open_active()?;
            count = self.read_line()?;
            if count == 0 {
                self.is_finished = true;
                let number = self.line_number + 1;
                let why = "it was complete, and has been truncated";
                return Ok(Some(LedgerLine {
                    number,
                    record: None,
                    problem: Some(self.describe_problem(number, why)?),
                }));
            }
        }
        if count == 0 {
            return Ok(None);
        }
        if self.position.offset == 0 {
            let next = self.files.read_line_at(count)?;
            self.check_segment_end(next.as_deref())?;
        }
        let parsed = LedgerRecord::parse(&self.line_bytes);
        let is_whole = parsed.is_ok() || self.line_continues_chain();
        if !is_whole && !self.is_previous_unknown && self.is_torn_append()? {
            self.is_finished = true;
            return Ok(None);
        }
        self.take_line(count, parsed, is_whole).map(Some)
    }

    /// Checks the last line of the segment that this scan has read: the line that was read now is the
    /// first one of the next file, and `next` follows it. Where `next` continues that line and that
    /// line does not continue the segment, it is the segment that was changed.
    ///
    /// # Errors
    /// A changed segment, which [`LedgerScan::skip_unreadable`] skips.
    fn check_segment_end(&mut self, next: Option<&[u8]>) -> Result<()> {
        let at = self.position;
        if at.seq == 0 || self.is_previous_unknown || !self.has_read_position {
            return Ok(());
        }
        let (Ok(first), Some(Ok(next))) = (
            parse_record_header(&self.line_bytes),
            next.map(parse_record_header),
        ) else {
            return Ok(());
        };
        if first.seq.checked_sub(1) != Some(at.seq)
            || first.previous_digest == at.line_digest
            || next.seq.checked_sub(1) != Some(first.seq)
            || next.previous_digest != Digest::of(&self.line_bytes)
        {
            return Ok(());
        }
        let RecordPlace::Segment(segment) = self.files.find_record(at.seq)? else {
            return Ok(());
        };
        let why = format!("ends with another record {} than was written", at.seq);
        let error = segment.damage_error(&why);
        self.source = LineSource::Unreadable {
            last: at.seq,
            error: error.clone(),
        };
        Err(error)
    }

    /// Describes what is wrong with the line of this number, in the file that is read.
    fn describe_problem(&self, number: u64, why: &str) -> Result<LineProblem> {
        if let LineSource::Segment(lines) = &self.source {
            let (segment, line) = (lines.segment(), lines.line_number());
            return Ok(LineProblem {
                description: format!("line {line} of {}: {why}", segment.file_name()),
                restore_hint: Some(segment.restore_hint()),
                error: segment.damage_error(&format!("is broken at line {line}: {why}")),
            });
        }
        let first = self.files.first_seq()?;
        let earlier = first.map_or(0, |first| first.saturating_sub(1));
        let line = number.saturating_sub(earlier);
        let name = self.files.path().file_name().unwrap_or_default();
        let place = match earlier {
            0 => String::new(),
            _ => format!(" of {}", name.to_string_lossy()),
        };
        Ok(LineProblem {
            description: format!("line {line}{place}: {why}"),
            restore_hint: None,
            error: broken_chain_error(self.files.path(), line, why),
        })
    }

    /// Moves the position behind the line that was read, which has this length in the active file.
    fn take_line(
        &mut self,
        length: u64,
        parsed: serde_json::Result<LedgerRecord>,
        is_whole: bool,
    ) -> Result<LedgerLine> {
        let (record, why) = match parsed {
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
        self.has_read_position = true;
        self.is_start_confirmed |= why.is_none();
        self.line_number += 1;
        self.position = LedgerPosition {
            seq: record
                .as_ref()
                .map_or(self.position.seq.saturating_add(1), |record| record.seq),
            line_start: self.position.offset,
            offset: self.position.offset + length,
            line_digest: Digest::of(&self.line_bytes),
        };
        let why = why.map(|why| self.describe_problem(self.line_number, &why));
        Ok(LedgerLine {
            number: self.line_number,
            record,
            problem: why.transpose()?,
        })
    }

    /// Reads the next line of the active file without its line feed, and returns its length in bytes
    /// with the line feed; 0 at the end, and for an unfinished line.
    fn read_line(&mut self) -> Result<u64> {
        self.line_bytes.clear();
        let LineSource::Active(reader) = &mut self.source else {
            return Ok(0);
        };
        let mut piece = reader.take(MAX_RECORD_BYTES);
        let count = piece
            .read_until(b'\n', &mut self.line_bytes)
            .with_path("read", self.files.path())? as u64;
        if self.line_bytes.pop_if(|byte| *byte == b'\n').is_some() {
            return Ok(count);
        }
        if count >= MAX_RECORD_BYTES {
            let why = "it is too long for a record";
            return Err(self.files.broken_error(self.line_number + 1, why));
        }
        Ok(0)
    }

    /// Skips the next line without parsing it; returns whether there was one, complete or not.
    fn skip_line(&mut self) -> Result<bool> {
        loop {
            match &mut self.source {
                LineSource::Unopened => self.open_source()?,
                LineSource::Unreadable { error, .. } => return Err(error.clone()),
                LineSource::NoActive => return Ok(false),
                LineSource::Active(_) => {
                    self.read_line()?;
                    return Ok(!self.line_bytes.is_empty());
                }
                LineSource::Segment(lines) => {
                    if lines.read_line(&mut self.line_bytes) {
                        self.position.seq = lines.segment().first + lines.line_number() - 1;
                        self.position.line_digest = Digest::of(&self.line_bytes);
                        return Ok(true);
                    }
                    self.has_read_position = true;
                    self.source = LineSource::Unopened;
                }
            }
        }
    }

    /// Whether the line that was read is complete and continues the chain, although its event may have
    /// words that this version does not know.
    fn line_continues_chain(&self) -> bool {
        parse_record_header(&self.line_bytes).is_ok_and(|header| {
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
        let read = self
            .files
            .active()
            .map(|file| file.read_exact_at(&mut tail, self.position.offset));
        if !matches!(read, Some(Ok(()))) {
            // Another process is truncating the ledger.
            return Ok(true);
        }
        let records = tail.split(|byte| *byte == b'\n').map(LedgerRecord::parse);
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
        let archive = self.files.path().parent().and_then(Path::parent);
        let head = archive.and_then(|archive| run_log::read_logged_heads(archive).ok()?.pop());
        let more = head.map_or(0, |(seq, _)| seq.saturating_sub(self.position.seq));
        more > 0 && more.saturating_mul(MIN_RECORD_BYTES) <= length
    }
}

impl LedgerScan for FileLedgerScan {
    fn position(&self) -> LedgerPosition {
        self.position
    }

    /// As the trait says. A segment that cannot be read or is missing can be skipped, a line that is too
    /// long cannot.
    fn next_line(&mut self) -> Result<Option<LedgerLine>> {
        while !self.is_finished {
            match &mut self.source {
                LineSource::Unopened => self.open_source()?,
                LineSource::Unreadable { error, .. } => return Err(error.clone()),
                LineSource::Active(_) => return self.next_active_line(),
                LineSource::NoActive => return Ok(None),
                LineSource::Segment(lines) => {
                    if lines.read_line(&mut self.line_bytes) {
                        let is_first = lines.line_number() == 1;
                        let next = lines.peek_line().filter(|_| is_first).map(<[u8]>::to_vec);
                        self.check_segment_end(next.as_deref())?;
                        let parsed = LedgerRecord::parse(&self.line_bytes);
                        let is_whole = parsed.is_ok() || self.line_continues_chain();
                        return self.take_line(0, parsed, is_whole).map(Some);
                    }
                    self.has_read_position = true;
                    self.source = LineSource::Unopened;
                }
            }
        }
        Ok(None)
    }

    /// Skips the segment or the gap at which the last call failed; false if it failed elsewhere, or
    /// if the scan did not begin at a position of this ledger.
    fn skip_unreadable(&mut self) -> bool {
        let last = match &self.source {
            LineSource::Segment(lines) => lines.segment().last,
            LineSource::Unreadable { last, .. } => *last,
            _ => return false,
        };
        if !self.is_start_confirmed {
            return false;
        }
        self.source = LineSource::Unopened;
        self.position = LedgerPosition {
            seq: last,
            ..LedgerPosition::default()
        };
        self.line_number = last;
        self.is_previous_unknown = true;
        true
    }

    fn trailing_bytes(&self) -> Result<u64> {
        let LineSource::Active(reader) = &self.source else {
            return Ok(0);
        };
        let meta = reader.get_ref().file().metadata();
        let length = meta.with_path("stat", self.files.path())?.len();
        Ok(length.saturating_sub(self.position.offset))
    }
}

/// Returns the runs that records behind a position undid. It checks no chain: a scan does.
///
/// # Errors
/// The ledger cannot be read.
pub fn read_undone_runs(path: &Path, at: LedgerPosition) -> Result<HashSet<String>> {
    const FIELD: &str = "\"undoes\":";
    #[derive(Deserialize)]
    struct UndoneRun {
        undoes: String,
    }
    let mut runs = HashSet::new();
    let Some(mut scan) = FileLedgerScan::open_at(path, at)? else {
        return Ok(runs);
    };
    while scan.skip_line()? {
        let line = &scan.line_bytes;
        let has_field = str::from_utf8(line).is_ok_and(|text| text.contains(FIELD));
        if has_field && let Ok(undone) = serde_json::from_slice::<UndoneRun>(line) {
            runs.insert(undone.undoes);
        }
    }
    Ok(runs)
}

/// Reads the record that ends at a position, which must be the one that was read there before.
///
/// # Errors
/// Another line is at that position.
pub fn read_record_at(path: &Path, position: LedgerPosition) -> Result<LedgerRecord> {
    let files = LedgerFiles::open(path)?;
    let line = files.read_line(position)?;
    LedgerRecord::parse(&line).map_err(|_| files.broken_error(position.seq, "it has been changed"))
}
