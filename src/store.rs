//! The files that the controller keeps below `archive_dir`: the ledger, journals, locks, the log of
//! states, and the directories of entries.

pub(crate) mod address;
pub(crate) mod controller;
pub(crate) mod file;
pub(crate) mod kept_scratch;
pub(crate) mod observation;
pub(crate) mod record;
pub(crate) mod scan_basis;
pub(crate) mod state;
pub(crate) mod trigger;
pub(crate) mod unchanged_agents;
pub(crate) mod unchanged_record;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use controller::Controller;
use file::entry_records::KnownEntries;
use file::ledger::ArchiveLedger;
use file::state_log::StateCache;

/// The ledger, for all services of this process: one lock, one clock.
pub struct Ledger {
    controller: Arc<Controller>,
    ledger: Mutex<ArchiveLedger>,
    known_entries: Mutex<KnownEntries>,
}

/// The directories of entries, and the entries in them.
pub struct Entries {
    controller: Arc<Controller>,
    ledger: Arc<Ledger>,
}

/// The locks of agents and of the schedule.
pub struct Locks {
    controller: Arc<Controller>,
    /// End of the wait for agents' locks; none if runs do not wait.
    deadline: OnceLock<Instant>,
}

/// The journals of runs that are in progress or were interrupted.
pub struct Journals {
    controller: Arc<Controller>,
}

/// The last known states of agents, and the log of their changes.
pub struct StateLog {
    controller: Arc<Controller>,
    state_cache: StateCache,
}

/// The services of the files that the controller keeps.
pub struct Store {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) entries: Arc<Entries>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) journals: Arc<Journals>,
    pub(crate) state_log: Arc<StateLog>,
}

impl Store {
    /// Creates the services. They read and write nothing yet.
    pub(crate) fn new(controller: &Arc<Controller>) -> Store {
        let ledger = Arc::new(Ledger {
            controller: Arc::clone(controller),
            ledger: Mutex::new(
                ArchiveLedger::new(controller.archive()).with_zone(controller.clock().zone()),
            ),
            known_entries: Mutex::default(),
        });
        let entries = Arc::new(Entries {
            controller: Arc::clone(controller),
            ledger: Arc::clone(&ledger),
        });
        let locks = Arc::new(Locks {
            controller: Arc::clone(controller),
            deadline: OnceLock::new(),
        });
        let journals = Arc::new(Journals {
            controller: Arc::clone(controller),
        });
        let state_log = Arc::new(StateLog {
            controller: Arc::clone(controller),
            state_cache: StateCache::default(),
        });
        Store {
            ledger,
            entries,
            locks,
            journals,
            state_log,
        }
    }
}
