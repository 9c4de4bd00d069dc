//! What the controller itself keeps below `archive_dir`: the ledger, journals, locks, the log of
//! states, and the directories of entries.

pub(super) mod address;
pub(super) mod archive_identity;
pub(super) mod entry_directories;
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
