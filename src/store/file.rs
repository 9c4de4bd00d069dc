//! The store in files below `archive_dir`: the ledger and locks, and implementations of the
//! traits of a store.

pub(crate) mod archive_identity;
pub(crate) mod entries;
pub(crate) mod entry_pins;
pub(crate) mod entry_records;
pub(crate) mod full_archive;
pub(crate) mod holds;
pub(crate) mod journals;
pub(crate) mod ledger;
pub(crate) mod lock;
pub(crate) mod observations;
pub(crate) mod run_log;
pub(crate) mod semaphore;
pub(crate) mod stale_files;
pub(crate) mod versions;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::store::controller::Controller;
use crate::store::lease::Leases;
use entry_records::KnownEntries;
use ledger::ArchiveLedger;

/// The ledger, for all services of this process: one lock, one clock.
pub struct Ledger {
    controller: Arc<Controller>,
    ledger: Mutex<ArchiveLedger>,
    known_entries: Mutex<KnownEntries>,
}

/// The locks that name their holder, and the wait for those of agents.
pub struct Locks {
    controller: Arc<Controller>,
    leases: Arc<dyn Leases>,
    /// End of the wait for agents' locks; none if runs do not wait.
    deadline: OnceLock<Instant>,
}

impl Ledger {
    /// Creates the ledger; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>) -> Ledger {
        let ledger = ArchiveLedger::new(controller.archive());
        Ledger {
            controller: Arc::clone(controller),
            ledger: Mutex::new(ledger.with_zone(controller.clock().zone())),
            known_entries: Mutex::default(),
        }
    }
}

impl Locks {
    /// Creates the locks; takes none yet.
    pub fn new(controller: &Arc<Controller>, leases: &Arc<dyn Leases>) -> Locks {
        Locks {
            controller: Arc::clone(controller),
            leases: Arc::clone(leases),
            deadline: OnceLock::new(),
        }
    }
}
