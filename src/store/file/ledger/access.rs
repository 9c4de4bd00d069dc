//! Access to the ledger for all services of this process: one lock, one clock.

use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use super::{
    AgentHistory, ArchiveLedger, LedgerFiles, LockedLedger, MovedRecords, ReverseScan,
    SegmentReport, check_repeated_segments, check_segments, is_compaction_due, move_old_records,
    read_record_at,
};
use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::store::file::Ledger;
use crate::store::record::{LedgerPosition, LedgerRecord, RunEvent};
use crate::transport::Attributes;

impl Ledger {
    /// Returns the records of the ledger, last one first, and the ledger's end. What the index
    /// covers is checked only as far as it is read.
    pub(crate) fn scan_backwards(&self) -> Result<(ReverseScan, LedgerPosition)> {
        self.state().scan_backwards()
    }

    /// Reads the record that ends at a position of the ledger.
    pub(crate) fn read_record_at(&self, position: LedgerPosition) -> Result<LedgerRecord> {
        let mut record = read_record_at(&self.path(), position)?;
        record.time = self.controller.clock().zone().at(record.time);
        Ok(record)
    }

    /// Returns the attributes in an event, or in the record that the event names instead.
    pub(crate) fn event_attributes(&self, event: &RunEvent) -> Result<Option<Attributes>> {
        match (&event.change.attributes, event.change.attributes_position) {
            (None, Some(place)) => Ok(self.read_record_at(place)?.event.change.attributes),
            (attributes, _) => Ok(attributes.clone()),
        }
    }

    /// Appends to the ledger: either all of the events are on the disk when this returns, or none
    /// is recorded. Readers never wait for the lock, which another process may hold for long.
    pub(crate) fn append(&self, events: Vec<RunEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let locked = LockedLedger::lock(self.controller.archive(), self.controller.clock())?;
        self.state().append(locked, events, self.controller.clock())
    }

    /// Returns number and digest of the ledger's last record that is on the disk; none where there is
    /// no record, or another directory is at `archive_dir` by now.
    pub(crate) fn recorded_head(&self) -> Option<(u64, Digest)> {
        self.controller.archive().check_root().ok()?;
        let head = self.state().durable_head().ok()?;
        (head.0 > 0).then_some(head)
    }

    /// Moves older records of a ledger that has grown to segments, at the end of a run. Does nothing
    /// while another process appends to the ledger; the next run does it. Readers do not wait for
    /// it.
    ///
    /// # Errors
    /// The system's error, or files of the ledger that contradict each other. No record is lost.
    pub(crate) fn compact(&self) -> Result<Option<MovedRecords>> {
        if !is_compaction_due(self.controller.archive()) {
            // Only an older ledger.jsonl can be short and have records of segments.
            let files = LedgerFiles::open(&self.path())?;
            return check_repeated_segments(&files).map(|()| None);
        }
        let Some(locked) =
            LockedLedger::try_lock(self.controller.archive(), self.controller.clock())?
        else {
            return Ok(None);
        };
        let moved = move_old_records(self.controller.archive(), &locked)?;
        if let Some(MovedRecords { last, .. }) = moved {
            self.state().adopt_replaced(last + 1);
        }
        Ok(moved)
    }

    /// Returns number and digest of the ledger's last record.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn head(&self) -> Result<(u64, Digest)> {
        self.state().head()
    }

    /// Checks the files of the ledger for what a scan of its records does not show.
    ///
    /// # Errors
    /// The system's error.
    pub fn check_files(&self) -> Result<SegmentReport> {
        let files = LedgerFiles::open(&self.path())?;
        check_segments(&files)
    }

    /// Path of the ledger.
    pub fn path(&self) -> PathBuf {
        self.state().path().to_path_buf()
    }

    /// Locks what this process knows of the ledger.
    pub(crate) fn state(&self) -> MutexGuard<'_, ArchiveLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns number and digest of the last record that this process knows of.
    pub(crate) fn known_head(&self) -> (u64, Digest) {
        self.state().known_head()
    }

    /// Returns what the records say of an agent that this process knows of: complete if
    /// [`Ledger::head`] was called while the agent was locked.
    pub(crate) fn known_history(&self, agent: &str) -> Result<AgentHistory> {
        self.state().indexed_history(agent)
    }

    /// Returns what the records say of an agent.
    pub(crate) fn history(&self, agent: &str) -> Result<AgentHistory> {
        self.state().history(agent)
    }
}
