//! Reads a ledger line by line, through its segments and its active file, holds one line at a time,
//! and checks that each line continues the one before it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;

use super::files::{LedgerFiles, ReadAt, RecordPlace};
use super::record_line::{
    MAX_RECORD_BYTES, broken_chain_error, describe_fault, parse_record_header,
};
use super::segment::{Segment, SegmentLines};
use crate::base::digest::Digest;
use crate::base::error::{Error, PathContext, Result};
use crate::store::file::run_log;
use crate::store::record::{LedgerPosition, LedgerRecord};

/// Size of the reads from the active file.
const READ_BUFFER_BYTES: usize = 128 * 1024;

/// The smallest size of a record.
const MIN_RECORD_BYTES: u64 = 200;

/// A forward scan of a ledger, through its segments and its active file.
pub struct LedgerScan {
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

/// A line of a ledger.
pub struct ScannedLine {
    /// Its number in the whole ledger, from 1.
    pub number: u64,
    /// The file that it is in, if the ledger has several, and its number there; only of a line with a
    /// problem.
    pub place: Option<(String, u64)>,
    /// The record in it, if there is one.
    pub record: Option<LedgerRecord>,
    /// The problem with the line, if there is one.
    pub problem: Option<String>,
    /// What to do about a problem, if the line is in a segment.
    pub restore_hint: Option<String>,
}

impl ScannedLine {
    /// Returns, for example, "line 12" or "line 12 of ledger.jsonl".
    pub fn label(&self) -> String {
        match &self.place {
            Some((file, line)) => format!("line {line} of {file}"),
            None => format!("line {}", self.number),
        }
    }
}

impl LedgerScan {
    /// Starts a scan at a position that an earlier scan reached.
    pub fn new(files: LedgerFiles, at: LedgerPosition) -> LedgerScan {
        LedgerScan {
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

    /// Starts a scan at the beginning of the ledger at `path`; None if there is no ledger.
    pub fn open(path: &Path) -> Result<Option<LedgerScan>> {
        LedgerScan::open_at(path, LedgerPosition::default())
    }

    /// Starts a scan of the ledger at `path` at a position that an earlier scan reached; None if
    /// there is no ledger.
    pub fn open_at(path: &Path, at: LedgerPosition) -> Result<Option<LedgerScan>> {
        let files = LedgerFiles::open(path)?;
        Ok(files.has_records()?.then(|| LedgerScan::new(files, at)))
    }

    /// Returns the position after the last line that was read.
    pub fn position(&self) -> LedgerPosition {
        self.position
    }

    /// Returns the files that are read.
    pub fn files(&self) -> &LedgerFiles {
        &self.files
    }

    /// Returns how many bytes follow the position in the active file. At the end of the scan they
    /// belong to a record that is being written, or were left by a crash.
    pub fn trailing_bytes(&self) -> Result<u64> {
        let LineSource::Active(reader) = &self.source else {
            return Ok(0);
        };
        let meta = reader.get_ref().file().metadata();
        let length = meta.with_path("stat", self.files.path())?.len();
        Ok(length.saturating_sub(self.position.offset))
    }

    /// Returns the next record; None at the end, before a line that is still being written, and
    /// before bytes that a crash left.
    ///
    /// # Errors
    /// A line that is not a record or does not continue the one before it, and a segment that cannot
    /// be read; the scan then does not advance.
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
                if let LineSource::Segment(lines) = &self.source {
                    let why = format!("is broken at line {}: {why}", lines.line_number());
                    return Err(lines.segment().damage_error(&why));
                }
                let number = line.place.map_or(line.number, |(_, number)| number);
                Err(broken_chain_error(self.files.path(), number, &why))
            }
        }
    }

    /// Skips the segment or the gap at which the last call failed; false if it failed elsewhere, or
    /// if the scan did not begin at a position of this ledger.
    pub fn skip_segment(&mut self) -> bool {
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

    /// Returns the next line with its problem, if any; the line after it is checked against this
    /// one.
    ///
    /// # Errors
    /// A segment that cannot be read or is missing, which [`LedgerScan::skip_segment`] skips; a line
    /// that is too long.
    pub fn next_line(&mut self) -> Result<Option<ScannedLine>> {
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
                        let mut line = self.take_line(0, parsed, is_whole);
                        if let (Some(_), LineSource::Segment(lines)) = (&line.problem, &self.source)
                        {
                            let segment = lines.segment();
                            line.place = Some((segment.file_name(), lines.line_number()));
                            line.restore_hint = Some(segment.restore_hint());
                        }
                        return Ok(Some(line));
                    }
                    self.has_read_position = true;
                    self.source = LineSource::Unopened;
                }
            }
        }
        Ok(None)
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

    fn next_active_line(&mut self) -> Result<Option<ScannedLine>> {
        let mut count = self.read_line()?;
        if count == 0 && self.was_logged_whole(self.trailing_bytes()?) {
            // The line may have been completed between the two reads.
            self.source = LineSource::Unopened;
            self.open_active()?;
            count = self.read_line()?;
            if count == 0 {
                self.is_finished = true;
                let problem = Some("it was complete, and has been truncated".to_string());
                return Ok(Some(ScannedLine {
                    number: self.line_number + 1,
                    place: self.place_in_active(self.line_number + 1)?,
                    record: None,
                    problem,
                    restore_hint: None,
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
        let mut line = self.take_line(count, parsed, is_whole);
        if line.problem.is_some() {
            line.place = self.place_in_active(line.number)?;
        }
        Ok(Some(line))
    }

    /// Checks the last line of the segment that this scan has read: the line that was read now is the
    /// first one of the next file, and `next` follows it. Where `next` continues that line and that
    /// line does not continue the segment, it is the segment that was changed.
    ///
    /// # Errors
    /// A changed segment, which [`LedgerScan::skip_segment`] skips.
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

    /// Returns the name of the active file and the number in it of a line of the whole ledger, if there
    /// are segments before it.
    fn place_in_active(&self, number: u64) -> Result<Option<(String, u64)>> {
        let earlier = self
            .files
            .first_seq()?
            .map_or(0, |first| first.saturating_sub(1));
        if earlier == 0 {
            return Ok(None);
        }
        let name = self.files.path().file_name().unwrap_or_default();
        let line = number.saturating_sub(earlier);
        Ok(Some((name.to_string_lossy().into_owned(), line)))
    }

    /// Moves the position behind the line that was read, which has this length in the active file.
    fn take_line(
        &mut self,
        length: u64,
        parsed: serde_json::Result<LedgerRecord>,
        is_whole: bool,
    ) -> ScannedLine {
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
        self.has_read_position = true;
        self.is_start_confirmed |= problem.is_none();
        self.line_number += 1;
        self.position = LedgerPosition {
            seq: record
                .as_ref()
                .map_or(self.position.seq.saturating_add(1), |record| record.seq),
            line_start: self.position.offset,
            offset: self.position.offset + length,
            line_digest: Digest::of(&self.line_bytes),
        };
        ScannedLine {
            number: self.line_number,
            place: None,
            record,
            problem,
            restore_hint: None,
        }
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
    let Some(mut scan) = LedgerScan::open_at(path, at)? else {
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
