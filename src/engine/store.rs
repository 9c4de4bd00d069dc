//! The files that the controller keeps below `archive_dir`: the ledger, journals, locks, the log of
//! states, and the directories of entries.

pub(super) mod address;
pub(super) mod archive_identity;
pub(super) mod entry_directories;
pub(super) mod entry_export;
pub(super) mod entry_pins;
pub(super) mod entry_records;
pub(super) mod full_archive;
pub(super) mod journal;
pub(super) mod ledger;
pub(super) mod lock;
pub(super) mod observation;
pub(super) mod record;
pub(super) mod run_log;
pub(super) mod scan_basis;
pub(super) mod semaphore;
pub(super) mod state;
pub(super) mod state_log;
pub(super) mod unchanged_agents;
pub(super) mod unchanged_record;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::archive::{Archive, ExpectedArchive};
use crate::engine::context::{Context, EngineSetup};
use ledger::ArchiveLedger;

/// The ledger, for all services of this process: one lock, one clock.
pub struct Ledger {
    context: Arc<Context>,
    ledger: Mutex<ArchiveLedger>,
    known_entries: Mutex<entry_records::KnownEntries>,
}

/// The directories of entries, and the entries in them.
pub struct Entries {
    context: Arc<Context>,
    ledger: Arc<Ledger>,
}

/// The locks of agents and of the schedule.
pub struct Locks {
    context: Arc<Context>,
    /// End of the wait for agents' locks; none if runs do not wait.
    deadline: OnceLock<Instant>,
}

/// The journals of runs that are in progress or were interrupted.
pub struct Journals {
    context: Arc<Context>,
}

/// The last known states of agents, and the log of their changes.
pub struct StateLog {
    context: Arc<Context>,
    state_cache: state_log::StateCache,
}

/// The services of the files that the controller keeps.
pub struct Store {
    pub(super) ledger: Arc<Ledger>,
    pub(super) entries: Arc<Entries>,
    pub(super) locks: Arc<Locks>,
    pub(super) journals: Arc<Journals>,
    pub(super) state_log: Arc<StateLog>,
}

impl Store {
    /// Creates the services. They read and write nothing yet.
    pub(super) fn new(context: &Arc<Context>) -> Store {
        let ledger = Arc::new(Ledger {
            context: Arc::clone(context),
            ledger: Mutex::new(
                ArchiveLedger::new(context.archive()).with_zone(context.clock().zone()),
            ),
            known_entries: Mutex::default(),
        });
        let entries = Arc::new(Entries {
            context: Arc::clone(context),
            ledger: Arc::clone(&ledger),
        });
        let locks = Arc::new(Locks {
            context: Arc::clone(context),
            deadline: OnceLock::new(),
        });
        let journals = Arc::new(Journals {
            context: Arc::clone(context),
        });
        let state_log = Arc::new(StateLog {
            context: Arc::clone(context),
            state_cache: state_log::StateCache::default(),
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

/// Returns the archive of a config. Reads and writes nothing.
pub(super) fn locate_archive(setup: &EngineSetup) -> Archive {
    let general = &setup.config.general;
    let archive = Archive::new(
        &general.archive_dir,
        general.archive_mode,
        setup.archive_group,
    );
    let expected = |id| ExpectedArchive::new(id, ledger::read_archive_id, &setup.config.path);
    archive.with_expected(general.archive_id.map(expected))
}
