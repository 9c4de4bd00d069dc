//! Plans and runs: resets, pushes and undos, recovery of interrupted ones, and retention.

pub(super) mod content;
pub(super) mod edit;
pub(super) mod plan;
pub(super) mod planner;
pub(super) mod preconditions;
pub(super) mod reset;
pub(super) mod retention;
pub(super) mod run_report;
pub(super) mod undo;

use std::sync::Arc;

use crate::engine::baselines::{BaselineEdits, BaselineServices, Baselines, Lint};
use crate::engine::context::Context;
use crate::engine::shared_memories::SharedMemories;
use crate::engine::watch::{Hosts, MemoryChecks, Observer, Scanner, Watch};

/// Deletes expired entries and versions from the archive.
pub struct Retention {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    edits: Arc<BaselineEdits>,
}

/// Makes plans.
pub struct Planner {
    context: Arc<Context>,
    lint: Arc<Lint>,
    hosts: Arc<Hosts>,
    shared_memories: Arc<SharedMemories>,
    baselines: Arc<Baselines>,
    scanner: Arc<Scanner>,
    observer: Arc<Observer>,
    retention: Arc<Retention>,
}

/// Applies plans, and recovers interrupted runs.
pub struct Runs {
    context: Arc<Context>,
    shared_memories: Arc<SharedMemories>,
    baselines: Arc<Baselines>,
    hosts: Arc<Hosts>,
    scanner: Arc<Scanner>,
    checks: Arc<MemoryChecks>,
    retention: Arc<Retention>,
    planner: Arc<Planner>,
}

/// The services of plans and runs.
pub struct RunServices {
    pub(super) retention: Arc<Retention>,
    pub(super) planner: Arc<Planner>,
    pub(super) runs: Arc<Runs>,
}

impl RunServices {
    /// Creates the services. They read and write nothing yet.
    pub(super) fn new(
        context: &Arc<Context>,
        shared_memories: &Arc<SharedMemories>,
        baselines: &BaselineServices,
        watch: &Watch,
    ) -> RunServices {
        let retention = Arc::new(Retention {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines.baselines),
            edits: Arc::clone(&baselines.edits),
        });
        let planner = Arc::new(Planner {
            context: Arc::clone(context),
            lint: Arc::clone(&baselines.lint),
            hosts: Arc::clone(&watch.hosts),
            shared_memories: Arc::clone(shared_memories),
            baselines: Arc::clone(&baselines.baselines),
            scanner: Arc::clone(&watch.scanner),
            observer: Arc::clone(&watch.observer),
            retention: Arc::clone(&retention),
        });
        let runs = Arc::new(Runs {
            context: Arc::clone(context),
            shared_memories: Arc::clone(shared_memories),
            baselines: Arc::clone(&baselines.baselines),
            hosts: Arc::clone(&watch.hosts),
            scanner: Arc::clone(&watch.scanner),
            checks: Arc::clone(&watch.checks),
            retention: Arc::clone(&retention),
            planner: Arc::clone(&planner),
        });
        RunServices {
            retention,
            planner,
            runs,
        }
    }
}
