//! The files of a ledger: the active one, to which records are appended, and the segments, to which
//! compaction has moved older records.
//!
//! The active file counts: a segment whose first record is still in it repeats its records, because
//! compaction was interrupted or is at work, and readers disregard it. The active file is opened
//! before the segments are listed. So a reader that still has a file that was replaced since finds
//! every segment that precedes it.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{Segment, SegmentLines};
use crate::base::digest::{Digest, Hasher};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::record::LedgerPosition;
use crate::store::record_line::{MAX_RECORD_BYTES, parse_record_header};

/// Size of the first read for a line.
const LINE_CHUNK_BYTES: usize = 4096;

/// Exposes changes of a file: device, inode, size, and change time in seconds and nanoseconds; all
/// zeros where there is no file.
pub(super) type FileStamp = (u64, u64, u64, i64, i64);

/// The files of a ledger as a reader found them.
#[derive(Clone)]
pub struct LedgerFiles {
    /// The path of the active file.
    path: PathBuf,
    /// The active file; none where it does not exist.
    active: Option<Arc<File>>,
    /// Number of the first record in the active file, once it was read; none where the file has no
    /// complete first record.
    first_seq: OnceCell<Option<u64>>,
    /// Segments before the active file, once they were listed.
    segments: OnceCell<Vec<Segment>>,
}

/// Where the record with a number is.
pub(super) enum RecordPlace {
    /// In this segment.
    Segment(Segment),
    /// In no file; nor are those up to this number.
    Missing(u64),
    /// In the active file, or nowhere yet.
    Active,
}

/// The segments in a directory.
#[derive(Default)]
pub(super) struct ListedSegments {
    /// All segments, in the order of their records.
    pub segments: Vec<Segment>,
    /// Names that `ledger-*.jsonl.gz` matches and no segment has.
    pub foreign_names: Vec<String>,
}

impl LedgerFiles {
    /// Opens the active file at `path`, if there is one.
    ///
    /// # Errors
    /// The system's error, or something other than a regular file.
    pub fn open(path: &Path) -> Result<LedgerFiles> {
        let active = match durable::open_own_file(path, OpenOptions::new().read(true)) {
            Ok(file) => Some(Arc::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::from_io("read the ledger", path, &error)),
        };
        Ok(LedgerFiles::with_active(path, active))
    }

    /// Takes the active file that was opened at `path`.
    pub fn with_active(path: &Path, active: Option<Arc<File>>) -> LedgerFiles {
        LedgerFiles {
            path: path.to_path_buf(),
            active,
            first_seq: OnceCell::new(),
            segments: OnceCell::new(),
        }
    }

    /// The path of the active file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The active file, if there is one.
    pub fn active(&self) -> Option<&Arc<File>> {
        self.active.as_ref()
    }

    /// Returns whether there is a ledger: an active file, or a segment.
    ///
    /// # Errors
    /// The system's error.
    pub fn has_records(&self) -> Result<bool> {
        Ok(self.active.is_some() || !self.segments()?.is_empty())
    }

    /// Returns the stamp of the active file.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn stamp(&self) -> Result<FileStamp> {
        let Some(active) = &self.active else {
            return Ok(FileStamp::default());
        };
        let meta = active.metadata().with_path("stat", &self.path)?;
        let (seconds, nanoseconds) = (meta.ctime(), meta.ctime_nsec());
        Ok((meta.dev(), meta.ino(), meta.len(), seconds, nanoseconds))
    }

    /// Returns the number of the first record in the active file; none where the file is missing or
    /// has no complete first record.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn first_seq(&self) -> Result<Option<u64>> {
        if let Some(known) = self.first_seq.get() {
            return Ok(*known);
        }
        let line = self.read_line_at(0)?;
        let header = line.and_then(|line| parse_record_header(&line).ok());
        let first = header.map(|header| header.seq);
        Ok(*self.first_seq.get_or_init(|| first))
    }

    /// Lists the segments in the directory of the ledger, whether they count or not.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn list_segments(&self) -> Result<ListedSegments> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let items = match std::fs::read_dir(directory) {
            Err(error) if durable::is_absent(&error) => return Ok(ListedSegments::default()),
            items => items.with_path("list", directory)?,
        };
        let mut listed = ListedSegments::default();
        for item in items {
            let name = item.with_path("list", directory)?.file_name();
            let name = name.to_string_lossy();
            match Segment::parse(directory, &name) {
                Some(segment) => listed.segments.push(segment),
                None if Segment::matches_glob(&name) => {
                    listed.foreign_names.push(name.into_owned())
                }
                None => {}
            }
        }
        listed.segments.sort();
        listed.foreign_names.sort();
        Ok(listed)
    }

    /// Returns the segments before the active file, in the order of their records. This program
    /// writes none that reaches into the active file, and none that overlap: the former do not
    /// count, and of the latter the first and longest one does.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn segments(&self) -> Result<&[Segment]> {
        if let Some(known) = self.segments.get() {
            return Ok(known);
        }
        // The active file is open already.
        let first = self.first_seq()?;
        let mut listed = self.list_segments()?.segments;
        listed.retain(|segment| first.is_none_or(|first| segment.last < first));
        listed.sort_by_key(|segment| (segment.first, Reverse(segment.last)));
        let mut segments: Vec<Segment> = Vec::new();
        for segment in listed {
            if segments
                .last()
                .is_none_or(|before| segment.first > before.last)
            {
                segments.push(segment);
            }
        }
        Ok(self.segments.get_or_init(|| segments))
    }

    /// Returns where the record with this number is, by the names of the files.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn find_record(&self, seq: u64) -> Result<RecordPlace> {
        let first = self.first_seq()?;
        if first.is_some_and(|first| seq >= first) {
            return Ok(RecordPlace::Active);
        }
        let segments = self.segments()?;
        if let Some(segment) = segments.iter().find(|it| it.has_record(seq)) {
            return Ok(RecordPlace::Segment(segment.clone()));
        }
        let next = segments.iter().map(|it| it.first).find(|it| *it > seq);
        Ok(match next.or(first) {
            Some(next) => RecordPlace::Missing(next - 1),
            None => RecordPlace::Active,
        })
    }

    /// Reads the line that begins at an offset of the active file, without its line feed; none for an
    /// unfinished one.
    pub(super) fn read_line_at(&self, offset: u64) -> Result<Option<Vec<u8>>> {
        let Some(active) = &self.active else {
            return Ok(None);
        };
        let mut line = Vec::new();
        let mut reader = BufReader::with_capacity(LINE_CHUNK_BYTES, ReadAt::new(active, offset));
        let mut piece = (&mut reader).take(MAX_RECORD_BYTES);
        let read = piece.read_until(b'\n', &mut line);
        read.with_path("read", &self.path)?;
        Ok(line.pop_if(|byte| *byte == b'\n').map(|_| line))
    }

    /// Returns the position in the active file that a number and a digest belong to. The offsets are
    /// tried first: compaction may have moved the record since.
    ///
    /// # Errors
    /// [`ErrorKind::Integrity`] if the file has another record with this number, or none.
    pub(super) fn locate(&self, at: LedgerPosition) -> Result<LedgerPosition> {
        if self.has_line_at(at)? || self.is_continued_at(at)? {
            return Ok(at);
        }
        let other = || self.broken_error(at.seq, "it is another record now");
        let first = self.first_seq()?.ok_or_else(other)?;
        let Some(active) = &self.active else {
            return Err(other());
        };
        let mut found = LedgerPosition {
            line_start: 0,
            offset: 0,
            ..at
        };
        if at.seq + 1 == first {
            return Ok(found);
        }
        let mut reader = BufReader::with_capacity(128 * 1024, ReadAt::new(active, 0));
        let mut line = Vec::new();
        for _ in first..=at.seq {
            line.clear();
            let mut piece = (&mut reader).take(MAX_RECORD_BYTES);
            let count = piece.read_until(b'\n', &mut line);
            let count = count.with_path("read", &self.path)?;
            if line.pop() != Some(b'\n') {
                return Err(other());
            }
            found.line_start = found.offset;
            found.offset += count as u64;
        }
        if Digest::of(&line) != at.line_digest {
            return Err(other());
        }
        Ok(found)
    }

    /// Returns whether the line between the offsets of a position has its digest.
    pub(super) fn has_line_at(&self, at: LedgerPosition) -> Result<bool> {
        Ok(self.line_at(at)?.is_some())
    }

    /// Returns the line between the offsets of a position, without its line feed; none if it does not
    /// have the digest.
    fn line_at(&self, at: LedgerPosition) -> Result<Option<Vec<u8>>> {
        let Some(active) = self.active.as_ref().filter(|_| at.line_start < at.offset) else {
            return Ok(None);
        };
        let length = at.offset - at.line_start;
        let meta = active.metadata().with_path("stat", &self.path)?;
        if meta.len() < at.offset || length > MAX_RECORD_BYTES {
            return Ok(None);
        }
        let mut line = vec![0; length as usize];
        let read = active.read_exact_at(&mut line, at.line_start).is_ok();
        let is_same = read && line.pop() == Some(b'\n') && Digest::of(&line) == at.line_digest;
        Ok(is_same.then_some(line))
    }

    /// Whether the line at the offset of a position continues it.
    fn is_continued_at(&self, at: LedgerPosition) -> Result<bool> {
        if at.offset == 0 {
            return Ok(false);
        }
        let line = self.read_line_at(at.offset)?;
        let header = line.and_then(|line| parse_record_header(&line).ok());
        Ok(header.is_some_and(|next| {
            next.seq.checked_sub(1) == Some(at.seq) && next.previous_digest == at.line_digest
        }))
    }

    /// Reads the line of the record that ends at a position, in whichever file it is now.
    ///
    /// # Errors
    /// Another line has its number, or none.
    pub(super) fn read_line(&self, at: LedgerPosition) -> Result<Vec<u8>> {
        if let Some(line) = self.line_at(at)? {
            return Ok(line);
        }
        let changed = || self.broken_error(at.seq, "it has been changed");
        let line = match self.find_record(at.seq)? {
            RecordPlace::Missing(last) => return Err(self.missing_error(at.seq, last)),
            RecordPlace::Active => {
                let start = self.locate(at)?.line_start;
                self.read_line_at(start)?.ok_or_else(changed)?
            }
            RecordPlace::Segment(segment) => {
                let mut lines = SegmentLines::open(&segment)?;
                let mut line = Vec::new();
                while segment.first + lines.line_number() <= at.seq {
                    lines.read_line(&mut line);
                }
                if Digest::of(&line) != at.line_digest {
                    return Err(segment.damage_error(&format!("has another record {}", at.seq)));
                }
                line
            }
        };
        if Digest::of(&line) != at.line_digest {
            return Err(changed());
        }
        Ok(line)
    }

    /// Returns the error for a line of the active file that breaks the chain, by the number that its
    /// record should have.
    pub(super) fn broken_error(&self, seq: u64, why: &str) -> Error {
        let first = self.first_seq().ok().flatten().unwrap_or(1);
        let line = seq.saturating_add(1).saturating_sub(first);
        broken_chain_error(&self.path, line, why)
    }

    /// Returns the error for records that no file has.
    pub(super) fn missing_error(&self, first: u64, last: u64) -> Error {
        let (records, object) = match first {
            first if first == last => (format!("record {first} is missing"), "it"),
            first => (format!("the records {first} to {last} are missing"), "them"),
        };
        let path = self.path.display();
        let message = format!("{records}: no segment of the ledger {path} has {object}");
        Error::new(ErrorKind::Integrity, message).with_hint(format!(
            "restore the segments (ledger-*.jsonl.gz) from a backup; records behind {last} are not \
             affected"
        ))
    }

    /// Returns a digest of the names, sizes and times of the segments that begin up to a record.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn digest_of_segments(&self, last: u64) -> Result<Digest> {
        let mut hasher = Hasher::default();
        for segment in self.segments()?.iter().filter(|it| it.first <= last) {
            let meta = std::fs::symlink_metadata(&segment.path).ok();
            let meta = meta.map(|it| (it.ino(), it.len(), it.mtime(), it.mtime_nsec(), it.mode()));
            hasher.update(format!("{} {meta:?}\n", segment.file_name()).as_bytes());
        }
        Ok(hasher.finish())
    }
}

/// Reads a file from an offset on, and leaves the offset of the open file alone: several readers
/// may share it.
pub(super) struct ReadAt {
    file: Arc<File>,
    offset: u64,
}

impl ReadAt {
    /// Begins at an offset.
    pub fn new(file: &Arc<File>, offset: u64) -> ReadAt {
        ReadAt {
            file: Arc::clone(file),
            offset,
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Returns the error for a ledger whose chain is broken.
pub(super) fn broken_chain_error(path: &Path, line: u64, why: &str) -> Error {
    Error::new(
        ErrorKind::Integrity,
        format!(
            "the ledger {} is broken at line {line}: {why}",
            path.display()
        ),
    )
    .with_hint(
        "`verify` lists every broken line; keep the file as evidence, and move it away together \
         with its segments (ledger-*.jsonl.gz), reset.log and reset.log.old: the next run begins a \
         new ledger",
    )
}
