//! An entry while it is written: it gets a free name once its content is on the disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::entry::{EntryKind, WrittenEntry, format_stamp, format_stamped_name};
use crate::base::digest::Hasher;
use crate::base::durable::{NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};

/// Maximum number of times that another run may take a free name before this one fails.
const MAX_NAME_ATTEMPTS: usize = 64;

/// An entry during its write. Dropped before [`EntryDraft::finish`], it leaves no file behind.
pub struct EntryDraft {
    subdir: PathBuf,
    file: NewFile,
    hasher: Hasher,
    size: u64,
}

impl EntryDraft {
    pub(super) fn new(subdir: &Path, file: NewFile) -> EntryDraft {
        EntryDraft {
            subdir: subdir.to_path_buf(),
            file,
            hasher: Hasher::default(),
            size: 0,
        }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The system's error, for example a full disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write(bytes)
    }

    /// Starts to write the content so far to the disk, without waiting.
    pub fn start_writeback(&self) {
        self.file.start_writeback();
    }

    /// Size so far, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The content, to be synced before the entry gets its name.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        self.file.unsynced_content()
    }

    /// The directory, to be synced after the entry got its name.
    pub fn unsynced_directory(&self) -> UnsyncedObject {
        self.file.unsynced_directory()
    }

    /// Gives the entry a free name of this minute, behind those that are taken.
    ///
    /// # Errors
    /// The system's error; there is then no entry.
    pub fn assign_name(
        &mut self,
        kind: EntryKind,
        at: DateTime<FixedOffset>,
    ) -> Result<WrittenEntry> {
        self.assign_stamped_name(kind, &format_stamp(at.naive_local()))
    }

    /// Assigns a name that begins with `stamp`.
    fn assign_stamped_name(&mut self, kind: EntryKind, stamp: &str) -> Result<WrittenEntry> {
        let mut number = 0;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let name = format_stamped_name(stamp, kind, number);
            if self.file.link_as(OsStr::new(&name))? {
                return Ok(WrittenEntry {
                    path: self.subdir.join(name),
                    kind,
                    digest: std::mem::take(&mut self.hasher).finish(),
                    size: self.size,
                    base: None,
                    findings: None,
                });
            }
            let next = next_free_number(number, |number| {
                self.name_exists(&format_stamped_name(stamp, kind, number))
            })?;
            let Some(next) = next else { break };
            number = next;
        }
        let directory = self.file.directory_path().display();
        let message = format!("no free entry name for this minute in {directory}");
        Err(Error::new(ErrorKind::Host, message).with_hint("retry in a minute"))
    }

    fn name_exists(&self, name: &str) -> Result<bool> {
        let path = self.file.directory_path();
        match fs::statat(self.file.directory_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).with_path("stat", &path.join(name)),
        }
    }

    /// Syncs this entry to the disk, with its name.
    ///
    /// # Errors
    /// The system's error; there is then no entry.
    pub fn finish(self, kind: EntryKind, at: DateTime<FixedOffset>) -> Result<WrittenEntry> {
        self.finish_stamped(kind, &format_stamp(at.naive_local()))
    }

    /// Syncs the entry and gives it such a name.
    pub(super) fn finish_stamped(mut self, kind: EntryKind, stamp: &str) -> Result<WrittenEntry> {
        self.unsynced_content().sync()?;
        let written = self.assign_stamped_name(kind, stamp)?;
        self.unsynced_directory().sync()?;
        Ok(written)
    }
}

/// Returns a free number behind `last_taken`. Numbers of a minute are consecutive, so few lookups
/// are needed, however many there are.
pub(super) fn next_free_number(
    mut last_taken: u32,
    is_taken: impl Fn(u32) -> Result<bool>,
) -> Result<Option<u32>> {
    let mut step = 1;
    let mut free = loop {
        let Some(next) = last_taken.checked_add(step) else {
            return Ok(None);
        };
        if !is_taken(next)? {
            break next;
        }
        (last_taken, step) = (next, step.saturating_mul(2));
    };
    while free - last_taken > 1 {
        let middle = last_taken + (free - last_taken) / 2;
        if is_taken(middle)? {
            last_taken = middle;
        } else {
            free = middle;
        }
    }
    Ok(Some(free))
}
