//! The store in files below `archive_dir`.

pub(crate) mod archive_identity;
pub(crate) mod entry_directories;
pub(crate) mod entry_export;
pub(crate) mod entry_pins;
pub(crate) mod entry_records;
pub(crate) mod full_archive;
pub(crate) mod journal;
pub(crate) mod ledger;
pub(crate) mod lock;
pub(crate) mod run_log;
pub(crate) mod semaphore;
pub(crate) mod state_log;
