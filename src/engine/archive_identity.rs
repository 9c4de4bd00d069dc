//! The identity of the archive: the digest of its ledger's first record. `archive_id` of the config
//! names it, so that an empty mount point is not taken for the archive.

use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::context::Context;
use crate::store::record::{Operation, RunEvent, new_run_id};
use crate::store::run_log;

/// Returns the line that sets `archive_id` to an id, for `[general]`.
pub fn archive_id_line(id: Digest) -> String {
    format!("archive_id={id}")
}

impl Context {
    /// Begins the archive with a first record, unless it has one. Returns its id.
    ///
    /// # Errors
    /// The archive cannot be read or written.
    pub fn begin_archive(&self) -> Result<Digest> {
        if let Some(id) = self.ledger().archive_id()? {
            return Ok(id);
        }
        let (trigger, user) = (self.trigger(), self.user());
        let run = new_run_id();
        self.ledger().append(vec![RunEvent::for_archive(
            &run,
            Operation::Begin,
            trigger,
            user,
        )])?;
        let head = self.ledger().durable_head();
        self.log_text(&run_log::format_run_end(&run, "began the archive", head))?;
        self.ledger().archive_id()?.ok_or_else(|| {
            let message = "the first record of the archive cannot be read back";
            Error::new(ErrorKind::Integrity, message)
        })
    }

    /// Returns whether the next record begins an archive, and no `archive_id` says which one has to be
    /// there.
    pub(super) fn is_before_new_archive(&self) -> bool {
        self.config().general.archive_id.is_none()
            && self.ledger().head().is_ok_and(|(seq, _)| seq == 0)
    }

    /// Returns what a run says that has begun an archive; none if it has recorded nothing.
    pub(super) fn new_archive_note(&self) -> Option<String> {
        let id = self.ledger().archive_id().ok().flatten()?;
        Some(format!(
            "began a new archive in {}; if there should have been one, its disk is not mounted, else \
             add to [general]: {}",
            self.archive().root().display(),
            archive_id_line(id)
        ))
    }
}
