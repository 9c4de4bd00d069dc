//! Answers from what runs recorded and archived: histories, reports, verification, timelines, search.

pub(super) mod archive_growth;
pub(super) mod last_success;
pub(super) mod report;
pub(super) mod run_history;
pub(super) mod search;
pub(super) mod three_way;
pub(super) mod timeline;
pub(super) mod verify;

use std::sync::{Arc, Mutex};

use crate::engine::baselines::{BaselineCatalog, BaselineServices, Baselines};
use crate::engine::context::Context;
use crate::engine::watch::{Observer, Scanner, Watch};

/// The history of runs, by agent.
pub struct RunHistory {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    scanner: Arc<Scanner>,
    observer: Arc<Observer>,
}

/// Searches entries and memories.
pub struct ArchiveSearch {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    observer: Arc<Observer>,
    index_state: Mutex<search::IndexState>,
    known_entries: Mutex<search::KnownEntries>,
}

/// The timelines of agents and of entries.
pub struct Timelines {
    context: Arc<Context>,
    search: Arc<ArchiveSearch>,
}

/// Verifies archive, ledger and baselines.
pub struct Verifier {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    catalog: Arc<BaselineCatalog>,
}

/// Reports on a fleet and a period.
pub struct Reports {
    context: Arc<Context>,
}

/// The services that answer from records and the archive.
pub struct RecordServices {
    pub(super) history: Arc<RunHistory>,
    pub(super) search: Arc<ArchiveSearch>,
    pub(super) timelines: Arc<Timelines>,
    pub(super) verifier: Arc<Verifier>,
    pub(super) reports: Arc<Reports>,
}

impl RecordServices {
    /// Creates the services. They read and write nothing yet.
    pub(super) fn new(
        context: &Arc<Context>,
        baselines: &BaselineServices,
        watch: &Watch,
    ) -> RecordServices {
        let history = Arc::new(RunHistory {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines.baselines),
            scanner: Arc::clone(&watch.scanner),
            observer: Arc::clone(&watch.observer),
        });
        let search = Arc::new(ArchiveSearch {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines.baselines),
            observer: Arc::clone(&watch.observer),
            index_state: Mutex::default(),
            known_entries: Mutex::default(),
        });
        let timelines = Arc::new(Timelines {
            context: Arc::clone(context),
            search: Arc::clone(&search),
        });
        let verifier = Arc::new(Verifier {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines.baselines),
            catalog: Arc::clone(&baselines.catalog),
        });
        let reports = Arc::new(Reports {
            context: Arc::clone(context),
        });
        RecordServices {
            history,
            search,
            timelines,
            verifier,
            reports,
        }
    }
}
