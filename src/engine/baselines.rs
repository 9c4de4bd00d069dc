//! Baselines as their operator works with them: known versions, edits, saves, the seal, the guard and
//! the lint.

pub(super) mod accepted_seal;
pub(super) mod catalog;
pub(super) mod change;
pub(super) mod drafts;
pub(super) mod file;
pub(super) mod guard;
pub(super) mod lint;
pub(super) mod opening;
pub(super) mod plan;
pub(super) mod replacement;
pub(super) mod rule_change;
pub(super) mod save;
pub(super) mod saved_versions;
pub(super) mod seal;
pub(super) mod seal_plan;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use saved_versions::SavedVersions;

use crate::base::digest::Digest;
use crate::baseline::signatures::SealVerifier;
use crate::engine::context::Context;
use crate::engine::shared_memories::SharedMemories;

/// The accepted seal of the baselines, and their saved and pushed versions.
pub struct Baselines {
    context: Arc<Context>,
    seal_verifier: SealVerifier,
    /// The known versions up to a record of the ledger, by its number and digest.
    latest_known: Mutex<Option<((u64, Digest), SavedVersions)>>,
}

/// Replaces baseline files: saves, and recovers interrupted ones.
pub struct BaselineFiles {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
}

/// Runs the lint on baselines, with the facts that its rules need from outside the text.
pub struct Lint {
    context: Arc<Context>,
    shared_memories: Arc<SharedMemories>,
    baselines: Arc<Baselines>,
    files: Arc<BaselineFiles>,
    finding_counts: lint::FindingCountCache,
}

/// Lists baselines and their versions.
pub struct BaselineCatalog {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    files: Arc<BaselineFiles>,
    lint: Arc<Lint>,
}

/// Edits of baselines: opens, drafts, restores and new files.
pub struct BaselineEdits {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    files: Arc<BaselineFiles>,
    catalog: Arc<BaselineCatalog>,
    seals: Arc<Seals>,
}

/// Plans and writes seals.
pub struct Seals {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    files: Arc<BaselineFiles>,
    lint: Arc<Lint>,
}

/// The watchdog that restores tampered baselines.
pub struct Guard {
    context: Arc<Context>,
    baselines: Arc<Baselines>,
    files: Arc<BaselineFiles>,
    edits: Arc<BaselineEdits>,
    seals: Arc<Seals>,
    /// When the guard found a seal that cannot be used, and did not put it back yet.
    seal_broken_since: Mutex<Option<Instant>>,
    /// The file at which the last pass of the guard had no more time.
    guard_position: Mutex<Option<String>>,
    guard_pauses: guard::GuardPauses,
}

/// The services of baselines.
pub struct BaselineServices {
    pub(super) baselines: Arc<Baselines>,
    pub(super) files: Arc<BaselineFiles>,
    pub(super) lint: Arc<Lint>,
    pub(super) catalog: Arc<BaselineCatalog>,
    pub(super) edits: Arc<BaselineEdits>,
    pub(super) seals: Arc<Seals>,
    pub(super) guard: Arc<Guard>,
}

impl BaselineServices {
    /// Creates the services. They read and write nothing yet.
    pub(super) fn new(
        context: &Arc<Context>,
        shared_memories: &Arc<SharedMemories>,
    ) -> BaselineServices {
        let baselines = Arc::new(Baselines {
            context: Arc::clone(context),
            seal_verifier: SealVerifier::new(context.controller(), context.holds()),
            latest_known: Mutex::default(),
        });
        let files = Arc::new(BaselineFiles {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines),
        });
        let lint = Arc::new(Lint {
            context: Arc::clone(context),
            shared_memories: Arc::clone(shared_memories),
            baselines: Arc::clone(&baselines),
            files: Arc::clone(&files),
            finding_counts: lint::FindingCountCache::default(),
        });
        let catalog = Arc::new(BaselineCatalog {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines),
            files: Arc::clone(&files),
            lint: Arc::clone(&lint),
        });
        let seals = Arc::new(Seals {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines),
            files: Arc::clone(&files),
            lint: Arc::clone(&lint),
        });
        let edits = Arc::new(BaselineEdits {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines),
            files: Arc::clone(&files),
            catalog: Arc::clone(&catalog),
            seals: Arc::clone(&seals),
        });
        let guard = Arc::new(Guard {
            context: Arc::clone(context),
            baselines: Arc::clone(&baselines),
            files: Arc::clone(&files),
            edits: Arc::clone(&edits),
            seals: Arc::clone(&seals),
            seal_broken_since: Mutex::default(),
            guard_position: Mutex::default(),
            guard_pauses: guard::GuardPauses::default(),
        });
        BaselineServices {
            baselines,
            files,
            lint,
            catalog,
            edits,
            seals,
            guard,
        }
    }
}
