//! Access to the ledger for all services of this process: one lock, one clock.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::archive_id::read_archive_id;
use super::compaction::{is_compaction_due, move_old_records};
use super::files::LedgerFiles;
use super::locked::{LEDGER_FILE_NAME, LockedLedger, open_for_append};
use super::reserve::{is_reserve_due, write_reserve};
use super::scan::{FileLedgerScan, read_record_at, read_undone_runs};
use super::segment_check::{check_repeated_segments, check_segments};
use super::{ArchiveLedger, MovedRecords};
use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::store::agent_history::AgentHistory;
use crate::store::controller::Controller;
use crate::store::file::lock::ArchiveLock;
use crate::store::ledger::{Ledger, LedgerCheck, LedgerScan, RecordTimes, ReverseScan};
use crate::store::record::{LedgerPosition, LedgerRecord, RunEvent};

/// The ledger in files, for all services of this process.
pub(in crate::store) struct FileLedger {
    controller: Arc<Controller>,
    ledger: Mutex<ArchiveLedger>,
}

impl FileLedger {
    /// Creates the ledger; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>) -> FileLedger {
        let ledger = ArchiveLedger::new(controller.archive(), controller.clock().zone());
        FileLedger {
            controller: Arc::clone(controller),
            ledger: Mutex::new(ledger),
        }
    }

    /// Locks what this process knows of the ledger.
    fn state(&self) -> MutexGuard<'_, ArchiveLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the ledger; none while another process appends to it.
    fn try_lock(&self) -> Result<Option<LockedLedger>> {
        LockedLedger::try_lock(self.controller.archive(), self.controller.clock())
    }
}

impl Ledger for FileLedger {
    fn append(&self, events: Vec<RunEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let locked = LockedLedger::lock(self.controller.archive(), self.controller.clock())?;
        self.state().append(locked, events, self.controller.clock())
    }

    fn check_writable(&self) -> Result<()> {
        open_for_append(self.controller.archive())?;
        ArchiveLock::Ledger.check(self.controller.archive())
    }

    fn head(&self) -> Result<(u64, Digest)> {
        self.state().head()
    }

    fn known_head(&self) -> (u64, Digest) {
        self.state().known_head()
    }

    fn durable_head(&self) -> Option<(u64, Digest)> {
        self.controller.archive().check_root().ok()?;
        let mut state = self.state();
        let head = state.head().ok()?;
        Some(state.last_appended.unwrap_or(head)).filter(|head| head.0 > 0)
    }

    fn known_history(&self, agent: &str) -> Result<AgentHistory> {
        self.state().known_history(agent)
    }

    fn take_recorded_agents(&self) -> Result<Option<HashSet<String>>> {
        let mut state = self.state();
        state.catch_up()?;
        Ok(state.index.take_recorded_agents())
    }

    fn record_times(&self) -> Result<RecordTimes> {
        let mut state = self.state();
        state.catch_up()?;
        Ok(state.index.record_times(state.zone))
    }

    fn scan(&self, from: LedgerPosition) -> Result<Option<Box<dyn LedgerScan>>> {
        let scan = FileLedgerScan::open_at(&self.location(), from)?;
        Ok(scan.map(|scan| Box::new(scan) as Box<dyn LedgerScan>))
    }

    fn scan_back_to(&self, seq: u64) -> Result<Box<dyn ReverseScan>> {
        Ok(Box::new(self.state().scan_back_to(seq)?))
    }

    fn read_record(&self, position: LedgerPosition) -> Result<LedgerRecord> {
        let mut record = read_record_at(&self.location(), position)?;
        record.time = self.controller.clock().zone().at(record.time);
        Ok(record)
    }

    fn undone_runs(&self, from: LedgerPosition) -> Result<HashSet<String>> {
        read_undone_runs(&self.location(), from)
    }

    fn check(&self) -> Result<LedgerCheck> {
        check_segments(&LedgerFiles::open(&self.location())?)
    }

    fn archive_id(&self) -> Result<Option<Digest>> {
        read_archive_id(self.controller.archive().root())
    }

    /// Moves older records of a ledger that has grown to segments. Readers do not wait for it.
    fn compact(&self) -> Result<Option<String>> {
        if !is_compaction_due(self.controller.archive()) {
            // Only an older ledger.jsonl can be short and have records of segments.
            let files = LedgerFiles::open(&self.location())?;
            return check_repeated_segments(&files).map(|()| None);
        }
        let Some(locked) = self.try_lock()? else {
            return Ok(None);
        };
        let moved = move_old_records(self.controller.archive(), &locked)?;
        if let Some(MovedRecords { last, .. }) = moved {
            self.state().adopt_replaced(last + 1);
        }
        Ok(moved.map(|moved| moved.to_string()))
    }

    fn renew_reserve(&self) {
        if is_reserve_due(self.controller.archive())
            && let Ok(Some(locked)) = self.try_lock()
        {
            // Without the reserve, nothing is worse than before.
            let _ = write_reserve(self.controller.archive(), &locked);
        }
    }

    fn location(&self) -> PathBuf {
        self.controller.archive().program_path(LEDGER_FILE_NAME)
    }
}
