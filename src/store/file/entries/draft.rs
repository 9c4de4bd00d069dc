//! An entry while it is written: it gets a free name once its content is on the disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use chrono::NaiveDateTime;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use crate::archive::{EntryKind, WrittenEntry, format_entry_name};
use crate::base::digest::Hasher;
use crate::base::durable::{NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::entries::EntryDraft;

/// Maximum number of times that another run may take a free name before this one fails.
const MAX_NAME_ATTEMPTS: usize = 64;

/// An entry during its write.
pub(super) struct FileDraft {
    subdir: PathBuf,
    file: NewFile,
    hasher: Hasher,
    size: u64,
}

impl FileDraft {
    /// Starts an entry in the directory `subdir` with a new file there.
    pub(super) fn new(subdir: &Path, file: NewFile) -> FileDraft {
        FileDraft {
            subdir: subdir.to_path_buf(),
            file,
            hasher: Hasher::default(),
            size: 0,
        }
    }

    fn name_exists(&self, name: &str) -> Result<bool> {
        let path = self.file.directory_path();
        match fs::statat(self.file.directory_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).with_path("stat", &path.join(name)),
        }
    }
}

impl EntryDraft for FileDraft {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write(bytes)
    }

    fn start_writeback(&self) {
        self.file.start_writeback();
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn unsynced_content(&self) -> Option<UnsyncedObject> {
        Some(self.file.unsynced_content())
    }

    fn assign_name(
        mut self: Box<Self>,
        kind: EntryKind,
        local: NaiveDateTime,
    ) -> Result<(WrittenEntry, Option<UnsyncedObject>)> {
        let mut number = 0;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let name = format_entry_name(local, kind, number);
            if self.file.link_as(OsStr::new(&name))? {
                let written = WrittenEntry {
                    path: self.subdir.join(name),
                    kind,
                    digest: self.hasher.finish(),
                    size: self.size,
                    base: None,
                    findings: None,
                };
                return Ok((written, Some(self.file.unsynced_directory())));
            }
            let next = next_free_number(number, |number| {
                self.name_exists(&format_entry_name(local, kind, number))
            })?;
            let Some(next) = next else { break };
            number = next;
        }
        let directory = self.file.directory_path().display();
        let message = format!("no free entry name for this minute in {directory}");
        Err(Error::new(ErrorKind::Host, message).with_hint("retry in a minute"))
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
