//! Compaction: moves older records from the active file of a ledger to segments, so that the file
//! stays short and the records take a fifth of their space.
//!
//! Under the lock of the ledger, and crash safe at each step:
//!
//! 1. write the segments, sync each, and give each its name;
//! 2. sync the directory;
//! 3. compare the segments with the lines that they are to replace;
//! 4. write the id of the archive, if the first record of all is among them;
//! 5. write the rest of the active file to a new file, sync it, rename it to the active file, and
//!    sync the directory.
//!
//! A crash before the rename leaves records in both. Readers then disregard the segments, and the
//! next compaction continues behind them. It does so also for a ledger that grew while it could not be
//! moved: each run writes a limited number of segments, and the last of these runs replaces the file.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Gid, IFlags, Uid};

use super::active_lines::ActiveLines;
use super::archive_id::ARCHIVE_ID_FILE_NAME;
use super::files::{LedgerFiles, broken_chain_error};
use super::locked::{LEDGER_FILE_NAME, LockedLedger};
use super::segment::{MAX_SEGMENT_BYTES, Segment, compress};
use super::segment_check::check_repeated_segments;
use crate::archive::Archive;
use crate::base::digest::Digest;
use crate::base::durable::{self, NewFile};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::invocation::quote_operand;
use crate::base::quantity::format_count;

/// Sizes that decide when and what compaction moves.
pub(super) struct CompactionLimits {
    /// Size of the active file above which it is compacted.
    pub max_active_bytes: u64,
    /// About how many bytes stay: the last runs are read without decompressing anything.
    pub kept_bytes: u64,
    /// Maximum size of a segment's lines. A longer record is a segment by itself.
    pub segment_bytes: u64,
    /// Maximum number of segments that one run writes.
    pub max_segments: usize,
}

impl CompactionLimits {
    /// The limits of every run. A run that moves records compresses less than 1 MiB, which takes
    /// some 30 ms; with 31 changed agents a run, every 24th does. Smaller segments would compress
    /// worse, larger ones take longer to read when an undo needs one.
    pub const DEFAULT: CompactionLimits = CompactionLimits {
        max_active_bytes: 1 << 20,
        kept_bytes: 256 << 10,
        segment_bytes: MAX_SEGMENT_BYTES,
        max_segments: 16,
    };

    /// The smallest size of a segment that is worth a file.
    fn min_segment_bytes(&self) -> u64 {
        (self.max_active_bytes - self.kept_bytes) / 2
    }
}

/// Records that are in segments now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedRecords {
    /// Number of the first one.
    pub first: u64,
    /// Number of the last one.
    pub last: u64,
    /// Number of segments.
    pub segments: usize,
}

impl fmt::Display for MovedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MovedRecords {
            first,
            last,
            segments,
        } = self;
        let segments = format_count(*segments as u64, "segment");
        write!(f, "Moved ledger records {first} to {last} to {segments}")
    }
}

/// Returns whether the active file of a ledger is long enough for compaction.
pub fn is_compaction_due(archive: &Archive) -> bool {
    let meta = std::fs::symlink_metadata(archive.program_path(LEDGER_FILE_NAME));
    meta.is_ok_and(|meta| meta.len() > CompactionLimits::DEFAULT.max_active_bytes)
}

/// Moves older records of a locked ledger to segments. Returns them once they have left the active
/// file.
///
/// # Errors
/// The system's error, a broken chain, or segments that do not fit. No record is lost.
pub fn move_old_records(archive: &Archive, locked: &LockedLedger) -> Result<Option<MovedRecords>> {
    move_records(archive, locked, &CompactionLimits::DEFAULT)
}

/// Moves older records within `limits`.
pub(super) fn move_records(
    archive: &Archive,
    locked: &LockedLedger,
    limits: &CompactionLimits,
) -> Result<Option<MovedRecords>> {
    let path = archive.program_path(LEDGER_FILE_NAME);
    let files = LedgerFiles::with_active(&path, Some(Arc::clone(locked.file())));
    let length = locked.file().metadata().with_path("stat", &path)?.len();
    let Some(first) = files
        .first_seq()?
        .filter(|_| length > limits.max_active_bytes)
    else {
        return Ok(None);
    };
    check_replaceable(locked.file(), &path)?;
    let writer = SegmentWriter {
        archive,
        locked,
        path: &path,
    };
    // What an interrupted compaction has written.
    let mut leftovers = VecDeque::from(files.list_segments()?.segments);
    leftovers.retain(|segment| segment.first >= first);
    if !leftovers.is_empty() {
        // Before anything is written behind them.
        check_repeated_segments(&files)?;
    }
    let mut lines = ActiveLines::new(locked.file(), &path, first);
    let mut segments = Vec::new();
    let mut written = 0;
    loop {
        let next = lines.next_seq();
        if let Some(segment) = leftovers.front().filter(|it| it.first <= next) {
            while segment.first == next && lines.next_seq() <= segment.last {
                if lines.peek_line()?.is_none() {
                    break;
                }
                lines.take_line()?;
            }
            if lines.next_seq().checked_sub(1) != Some(segment.last) {
                return Err(contradiction_error(&files, segment));
            }
            segments.extend(leftovers.pop_front());
            continue;
        }
        let movable = length.saturating_sub(lines.offset() + limits.kept_bytes);
        // A power cut may have left out a name before others.
        let end = leftovers.front().map(|segment| segment.first);
        if written == limits.max_segments || end.is_none() && movable < limits.min_segment_bytes() {
            break;
        }
        let max_bytes = match end {
            Some(_) => limits.segment_bytes,
            None => movable.min(limits.segment_bytes),
        };
        segments.push(writer.write_segment(&mut lines, max_bytes, end)?);
        written += 1;
    }
    if segments.is_empty() {
        return Ok(None);
    }
    // Also the names that a killed run gave.
    rustix::fs::fsync(&**locked.directory()).with_path("sync the directory of", &path)?;
    if !leftovers.is_empty() || length - lines.offset() > limits.max_active_bytes {
        return Ok(None);
    }
    compare_segments(&segments, &files, first)?;
    if first == 1 {
        writer.write_archive_id(&files)?;
    }
    writer.replace_active(lines.offset(), length)?;
    Ok(Some(MovedRecords {
        first,
        last: lines.next_seq() - 1,
        segments: segments.len(),
    }))
}

/// Refuses a file that the system does not let a rename replace, before any segment is written.
fn check_replaceable(file: &File, path: &Path) -> Result<()> {
    // Not every file system has such flags.
    let flags = rustix::fs::ioctl_getflags(file).unwrap_or(IFlags::empty());
    let (word, letter) = if flags.contains(IFlags::APPEND) {
        ("append-only", 'a')
    } else if flags.contains(IFlags::IMMUTABLE) {
        ("immutable", 'i')
    } else {
        return Ok(());
    };
    let message = format!("cannot replace {}: it is {word}", path.display());
    let path = quote_operand(path);
    Err(Error::new(ErrorKind::Host, message).with_hint(format!(
        "as root, `chattr -{letter} {path}`: the next run moves its older records; until then it \
         grows"
    )))
}

/// Compares segments with the lines of the active file that they are to replace.
fn compare_segments(segments: &[Segment], files: &LedgerFiles, first: u64) -> Result<()> {
    let Some(active) = files.active() else {
        return Ok(());
    };
    let mut lines = ActiveLines::new(active, files.path(), first);
    for segment in segments {
        if lines.find_difference(segment)?.is_some() {
            return Err(contradiction_error(files, segment));
        }
    }
    Ok(())
}

/// Returns the error for a segment that the active file contradicts: it is damaged, or the active
/// file is older.
fn contradiction_error(files: &LedgerFiles, segment: &Segment) -> Error {
    let unknown = || segment.damage_error("does not fit the records of ledger.jsonl");
    check_repeated_segments(files).err().unwrap_or_else(unknown)
}

/// Writes the files of a compaction, with owner, group and mode of the active file.
struct SegmentWriter<'a> {
    archive: &'a Archive,
    locked: &'a LockedLedger,
    /// The path of the active file.
    path: &'a Path,
}

impl SegmentWriter<'_> {
    /// Writes the next lines, up to `max_bytes` bytes and before the record `end`, to a segment that
    /// is on the disk but for its name.
    fn write_segment(
        &self,
        lines: &mut ActiveLines<'_>,
        max_bytes: u64,
        end: Option<u64>,
    ) -> Result<Segment> {
        let first = lines.next_seq();
        let mut text: Vec<u8> = Vec::new();
        while end != Some(lines.next_seq())
            && let Some(line) = lines.peek_line()?
            && (text.is_empty() || (text.len() + line.len()) as u64 <= max_bytes)
        {
            text.extend(lines.take_line()?);
        }
        if text.is_empty() {
            let number = lines.line_number();
            return Err(broken_chain_error(
                self.path,
                number,
                "it is not a complete record",
            ));
        }
        let segment = Segment::new(&self.directory(), first, lines.next_seq() - 1);
        let bytes = compress(&text).with_path("compress", &segment.path)?;
        let mode = self.archive.permissions().file_mode();
        let mut file = NewFile::create(self.locked.directory(), &self.directory(), mode)?;
        self.copy_attributes(file.file(), &segment.path)?;
        file.write(&bytes)?;
        file.unsynced_content().sync()?;
        if !file.link_as(segment.file_name().as_ref())? {
            return Err(segment.damage_error("exists already"));
        }
        Ok(segment)
    }

    fn directory(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("/")).to_path_buf()
    }

    /// Writes the id of the archive: the digest of the first line of the active file.
    fn write_archive_id(&self, files: &LedgerFiles) -> Result<()> {
        let Some(first) = files.read_line_at(0)? else {
            return Ok(());
        };
        let path = self.directory().join(ARCHIVE_ID_FILE_NAME);
        let text = format!("{}\n", Digest::of(&first));
        let mode = self.archive.permissions().file_mode();
        let prepare = |file: &File| self.copy_attributes(file, &path);
        durable::replace_prepared_file(&path, text.as_bytes(), mode, prepare).map(drop)
    }

    /// Replaces the active file by its bytes from `begin` to `end`.
    fn replace_active(&self, begin: u64, end: u64) -> Result<()> {
        let mut rest = vec![0; (end - begin) as usize];
        let old = self.locked.file();
        old.read_exact_at(&mut rest, begin)
            .with_path("read", self.path)?;
        let mode = self.archive.permissions().file_mode();
        let prepare = |file: &File| self.copy_attributes(file, self.path);
        durable::replace_prepared_file(self.path, &rest, mode, prepare).map(drop)
    }

    /// Gives a new file owner, group and mode of the active file: root's runs must not shut out those
    /// of the ledger's owner.
    fn copy_attributes(&self, file: &File, path: &Path) -> Result<()> {
        let wanted = rustix::fs::fstat(&**self.locked.file()).with_path("stat", self.path)?;
        let stat = rustix::fs::fstat(file).with_path("stat", path)?;
        if stat.st_gid != wanted.st_gid {
            // Not every owner may give a file to that group. With `archive_group` it must have it.
            let _ = rustix::fs::fchown(file, None, Some(Gid::from_raw(wanted.st_gid)));
        }
        if stat.st_uid != wanted.st_uid {
            let owner = Some(Uid::from_raw(wanted.st_uid));
            rustix::fs::fchown(file, owner, None).with_path("set the owner of", path)?;
        }
        // The umask may have cleared bits.
        self.archive.permissions().repair_own_file(file, path)
    }
}
