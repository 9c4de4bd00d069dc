//! The identity of the archive: the digest of its ledger's first record. `archive_id` of the config
//! names it, so that an empty mount point is not taken for the archive.

use super::ledger::read_archive_id;
use super::run_log;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::file::Ledger;
use crate::store::record::{Operation, RunEvent, new_run_id};

impl Ledger {
    /// Returns the id of the archive; none before its first record.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn archive_id(&self) -> Result<Option<Digest>> {
        read_archive_id(self.controller.archive().root())
    }

    /// Begins the archive with a first record, unless it has one. Returns its id.
    ///
    /// # Errors
    /// The archive cannot be read or written.
    pub fn begin_archive(&self) -> Result<Digest> {
        if let Some(id) = self.archive_id()? {
            return Ok(id);
        }
        let (trigger, user) = (self.controller.trigger(), self.controller.user());
        let run = new_run_id();
        self.append(vec![RunEvent::for_archive(
            &run,
            Operation::Begin,
            trigger,
            user,
        )])?;
        let head = self.recorded_head();
        self.log_text(&run_log::format_run_end(&run, "began the archive", head))?;
        self.archive_id()?.ok_or_else(|| {
            let message = "the first record of the archive cannot be read back";
            Error::new(ErrorKind::Integrity, message)
        })
    }

    /// Returns the line that sets `archive_id` to an id, for `[general]`.
    pub fn archive_id_line(id: Digest) -> String {
        format!("archive_id={id}")
    }

    /// Returns whether the next record begins an archive, and no `archive_id` says which one has to be
    /// there.
    pub(crate) fn is_before_new_archive(&self) -> bool {
        self.controller.config().general.archive_id.is_none()
            && self.head().is_ok_and(|(seq, _)| seq == 0)
    }

    /// Returns what a run says that has begun an archive; none if it has recorded nothing.
    pub(crate) fn new_archive_note(&self) -> Option<String> {
        let id = self.archive_id().ok().flatten()?;
        Some(format!(
            "began a new archive in {}; if there should have been one, its disk is not mounted, else \
             add to [general]: {}",
            self.controller.archive().root().display(),
            Ledger::archive_id_line(id)
        ))
    }
}
