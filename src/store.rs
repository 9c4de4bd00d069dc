//! What the controller keeps, and who may change it: traits, of which `file` is the implementation in
//! files below `archive_dir`.

pub(crate) mod address;
pub(crate) mod agent_history;
pub(crate) mod controller;
pub(crate) mod entries;
pub(crate) mod file;
pub(crate) mod holds;
pub(crate) mod journal;
pub(crate) mod known_health;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod observation;
pub(crate) mod observations;
pub(crate) mod record;
pub(crate) mod record_line;
pub(crate) mod record_range;
pub(crate) mod run_log;
pub(crate) mod scan_basis;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod trigger;
pub(crate) mod unchanged_agents;
pub(crate) mod unchanged_record;
pub(crate) mod versions;

use std::sync::Arc;

use crate::archive::{Archive, ExpectedArchive};
use crate::config::Config;
use controller::Controller;
use entries::Entries;
use file::Locks;
use file::entries::FileEntries;
use file::holds::FileHolds;
use file::journals::FileJournals;
use file::ledger::{FileLedger, read_archive_id};
use file::lock::FileLeases;
use file::observations::FileObservations;
use file::versions::FileVersions;
use holds::Holds;
use journal::Journals;
use lease::Leases;
use ledger::Ledger;
use observations::Observations;
use versions::Versions;

/// The services of what the controller keeps.
pub struct Store {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) entries: Arc<dyn Entries>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) observations: Arc<dyn Observations>,
    pub(crate) holds: Arc<dyn Holds>,
    pub(crate) versions: Arc<dyn Versions>,
}

impl Store {
    /// Creates the services, in files. They read and write nothing yet.
    pub(crate) fn new(controller: &Arc<Controller>) -> Store {
        let ledger: Arc<dyn Ledger> = Arc::new(FileLedger::new(controller));
        let leases: Arc<dyn Leases> = Arc::new(FileLeases::new(controller, &ledger));
        let locks = Arc::new(Locks::new(controller, &leases));
        let versions = FileVersions::new(controller.archive(), controller.clock_handle());
        Store {
            entries: Arc::new(FileEntries::new(controller, &ledger)),
            journals: Arc::new(FileJournals::new(controller)),
            observations: Arc::new(FileObservations::new(controller)),
            holds: Arc::new(FileHolds::new(controller, &locks)),
            versions: Arc::new(versions),
            ledger,
            leases,
            locks,
        }
    }
}

/// Returns the archive of a config; members of the group, if there is one, can read it. Reads and
/// writes nothing.
pub(crate) fn locate_archive(config: &Config, group: Option<u32>) -> Archive {
    let general = &config.general;
    let archive = Archive::new(&general.archive_dir, general.archive_mode, group);
    let expected = |id| ExpectedArchive::new(id, read_archive_id, &config.path);
    archive.with_expected(general.archive_id.map(expected))
}
