//! The copy of a baseline that an external editor works on: written, read when the editor ended, and
//! kept where a file beside it or the copy itself has a text that is nowhere else.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::baseline::MAX_BASELINE_BYTES;
use crate::durable;
use crate::engine::OpenedBaseline;
use crate::error::{PathContext, Result};

/// A shorter edit that changes nothing may not have ended: the program only passed the file on to a
/// window, which saves it later.
const MIN_EDIT_DURATION: Duration = Duration::from_secs(1);

/// The copy of a baseline that an external editor works on, in a directory that only the operator
/// can read. Other programs' changes of the file are not part of the operator's edit.
///
/// The directory is removed only where its files have no other text than the one that was opened and
/// those that are known to be elsewhere. An editor that is killed leaves what was typed in a file
/// beside the copy (`.swp`, `.save`, `#NAME#`).
pub struct ExternalCopy {
    directory: TempDir,
    path: PathBuf,
    opened: Vec<u8>,
    written_at: Instant,
    is_kept: bool,
}

/// A directory of a copy that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCopy {
    /// The directory.
    pub directory: PathBuf,
    /// Whether the editor may still write to it.
    pub may_be_open: bool,
}

impl fmt::Display for KeptCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.display();
        if self.may_be_open {
            write!(
                f,
                "the editor returned at once; what it saves later is kept in {directory}, and not \
                 taken over: an editor with a window of its own needs its option to wait, as in \
                 `code --wait`"
            )
        } else {
            write!(f, "what the editor wrote is kept in {directory}")
        }
    }
}

impl ExternalCopy {
    /// Writes a copy in a new directory in `directory`, at the time `now`.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(directory: &Path, opened: &OpenedBaseline, now: Instant) -> Result<ExternalCopy> {
        let mut own = tempfile::Builder::new()
            .prefix("memory-shepherd-edit-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(directory)
            .with_path("create a directory for the editor in", directory)?;
        // Editors choose colours by the name.
        let name = opened.path.file_name().unwrap_or(OsStr::new("baseline.md"));
        let path = own.path().join(name);
        durable::write_private_file(&path, &opened.bytes).with_path("write", &path)?;
        // From now on its removal depends on what it has.
        own.disable_cleanup(true);
        Ok(ExternalCopy {
            directory: own,
            path,
            opened: opened.bytes.clone(),
            written_at: now,
            is_kept: false,
        })
    }

    /// Returns the path of the copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the copy.
    ///
    /// # Errors
    /// The system's error, also for a text that is too large for a baseline.
    pub fn read_text(&self) -> Result<Vec<u8>> {
        durable::read_regular_file(&self.path, MAX_BASELINE_BYTES).with_path("read", &self.path)
    }

    /// Ends the edit, whose editor ended well at `ended_at`, or failed. Returns the directory if it is
    /// kept: a file in it has a text other than the one that was opened and `stored`, which is
    /// elsewhere, or the editor may still be open.
    pub fn finish(mut self, stored: Option<&[u8]>, ended_at: Option<Instant>) -> Option<KeptCopy> {
        let took = ended_at.map(|end| end.saturating_duration_since(self.written_at));
        let may_be_open = took.is_some_and(|took| took < MIN_EDIT_DURATION)
            && stored == Some(self.opened.as_slice());
        let is_kept = may_be_open || self.has_other_text(stored).unwrap_or(true);
        if !is_kept {
            self.remove();
            return None;
        }
        let directory = self.directory.path().to_path_buf();
        self.is_kept = true;
        Some(KeptCopy {
            directory,
            may_be_open,
        })
    }

    /// Whether a file in the directory has another text than these.
    fn has_other_text(&self, stored: Option<&[u8]>) -> io::Result<bool> {
        for file in fs::read_dir(self.directory.path())? {
            let file = file?;
            let metadata = file.metadata()?;
            // The lock of an editor is a symlink that leads nowhere.
            if metadata.is_symlink() && file.path() != self.path {
                continue;
            }
            let mut known = [Some(self.opened.as_slice()), stored].into_iter().flatten();
            let is_known = metadata.is_file()
                && known.any(|text| {
                    let has_size = metadata.len() == text.len() as u64;
                    has_size && fs::read(file.path()).is_ok_and(|bytes| bytes == text)
                });
            if !is_known {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn remove(&self) {
        // What cannot be removed is in a directory of temporary files.
        let _ = fs::remove_dir_all(self.directory.path());
    }
}

/// Removes a copy that no editor has changed.
impl Drop for ExternalCopy {
    fn drop(&mut self) {
        if !self.is_kept && matches!(self.has_other_text(None), Ok(false)) {
            self.remove();
        }
    }
}
