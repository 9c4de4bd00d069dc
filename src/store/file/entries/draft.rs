//! An entry while it is written: it gets a free name once its content is on the disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::NaiveDateTime;

use super::names;
use crate::archive::{EntryKind, WrittenEntry, format_entry_name};
use crate::base::digest::Hasher;
use crate::base::durable::{NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::entries::EntryDraft;

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
        let directory = Arc::clone(self.file.directory());
        let path = self.file.directory_path().to_path_buf();
        let name = names::take_free_name(
            |number| format_entry_name(local, kind, number),
            |name| self.file.link_as(OsStr::new(name)),
            |name| Ok(names::file_id_at(&directory, &path, name)?.is_some()),
        )?;
        let Some(name) = name else {
            let directory = path.display();
            let message = format!("no free entry name for this minute in {directory}");
            return Err(Error::new(ErrorKind::Host, message).with_hint("retry in a minute"));
        };
        let written = WrittenEntry {
            path: self.subdir.join(name),
            kind,
            digest: self.hasher.finish(),
            size: self.size,
            base: None,
            findings: None,
        };
        Ok((written, Some(self.file.unsynced_directory())))
    }
}
