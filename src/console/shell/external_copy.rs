//! The copy of a baseline that an external editor works on: written, read when the editor ended, and
//! kept where a file beside it or the copy itself has a text that is nowhere else.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::base::temporary::{PrivateDirectory, TemporaryRoot};
use crate::baseline::MAX_BASELINE_BYTES;
use crate::engine::OpenedBaseline;

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
    directory: PrivateDirectory,
    name: OsString,
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
    /// Writes a copy in a new directory in `root`, at the time `now`.
    ///
    /// # Errors
    /// As [`TemporaryRoot::create_directory`].
    pub fn write(
        root: &TemporaryRoot,
        opened: &OpenedBaseline,
        now: Instant,
    ) -> Result<ExternalCopy> {
        let mut directory = root.create_directory("memory-shepherd-edit-")?;
        // Editors choose colours by the name.
        let name = opened.path.file_name().unwrap_or(OsStr::new("baseline.md"));
        let path = directory.create_file(name, &opened.bytes)?;
        // From now on its removal depends on what it has.
        directory.keep();
        Ok(ExternalCopy {
            directory,
            name: name.to_os_string(),
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
    /// The system's error, also for a text that is too large for a baseline; a symlink, or a file of
    /// another user.
    pub fn read_text(&self) -> Result<Vec<u8>> {
        self.directory.read_file(&self.name, MAX_BASELINE_BYTES)
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
            self.directory.remove();
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
    fn has_other_text(&self, stored: Option<&[u8]>) -> Result<bool> {
        let known = [Some(self.opened.as_slice()), stored];
        let names = self.directory.names()?;
        Ok(names.iter().any(|name| {
            // The lock of an editor is a symlink that leads nowhere.
            if *name != self.name && self.directory.is_symlink(name) {
                return false;
            }
            let text = self.directory.read_file(name, MAX_BASELINE_BYTES);
            !text.is_ok_and(|text| known.contains(&Some(text.as_slice())))
        }))
    }
}

/// Removes a copy that no editor has changed.
impl Drop for ExternalCopy {
    fn drop(&mut self) {
        if !self.is_kept && matches!(self.has_other_text(None), Ok(false)) {
            self.directory.remove();
        }
    }
}
