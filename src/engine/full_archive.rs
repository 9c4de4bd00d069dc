//! A full disk of the archive: what an operator can do about it.

use crate::base::error::Error;
use crate::engine::context::Context;

impl Context {
    /// Returns the hint for such an error.
    pub(super) fn full_archive_hint(&self) -> String {
        let root = self.archive().root().display();
        let prune = self.command_line("archive prune");
        format!(
            "the disk of {root}, or a quota there, is full: each run deletes what has expired, as \
             `{prune}` does; `{prune} --dry-run` says what a shorter archive_retention_days would free"
        )
    }

    /// Adds to the error of a deletion that could not be recorded what frees a full disk.
    pub(super) fn explain_unrecorded_deletion(&self, error: Error) -> Error {
        if error.full_disk().is_none() {
            return error;
        }
        let root = self.archive().root().display();
        error.with_hint(format!(
            "a deletion is recorded before it is done: free 64 KiB on the disk of {root} by other \
             means, then `{}` frees the rest",
            self.command_line("archive prune")
        ))
    }
}
