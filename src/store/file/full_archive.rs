//! A full disk of the archive: what an operator can do about it, and the space that is kept for the
//! records of deletions.

use super::ledger::{self, LockedLedger};
use crate::base::error::Error;
use crate::store::file::Ledger;

impl Ledger {
    /// Returns the hint for such an error.
    pub(crate) fn full_archive_hint(&self) -> String {
        let root = self.controller.archive().root().display();
        let prune = self.controller.command_line("archive prune");
        format!(
            "the disk of {root}, or a quota there, is full: each run deletes what has expired, as \
             `{prune}` does; `{prune} --dry-run` says what a shorter archive_retention_days would free"
        )
    }

    /// Adds to the error of a deletion that could not be recorded what frees a full disk.
    pub(crate) fn explain_unrecorded_deletion(&self, error: Error) -> Error {
        if error.full_disk().is_none() {
            return error;
        }
        let root = self.controller.archive().root().display();
        error.with_hint(format!(
            "a deletion is recorded before it is done: free 64 KiB on the disk of {root} by other \
             means, then `{}` frees the rest",
            self.controller.command_line("archive prune")
        ))
    }

    /// Writes the reserve of the ledger again after a deletion on a full disk has used it. Does nothing
    /// while another process appends to the ledger, and on a disk that is still full; the next run
    /// does it.
    pub(crate) fn renew_ledger_reserve(&self) {
        if !ledger::is_reserve_due(self.controller.archive()) {
            return;
        }
        if let Ok(Some(locked)) =
            LockedLedger::try_lock(self.controller.archive(), self.controller.clock())
        {
            // Without the reserve, nothing is worse than before.
            let _ = ledger::write_reserve(self.controller.archive(), &locked);
        }
    }
}
