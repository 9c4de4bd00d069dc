//! Looks at memories: one agent, the fleet, hosts; classifies and scans what it reads.

pub(super) mod agent_detail;
pub(super) mod classified_content;
pub(super) mod content_cache;
pub(super) mod degraded;
pub(super) mod fleet;
pub(super) mod host_status;
pub(super) mod irreplaceable;
pub(super) mod kept_objects;
pub(super) mod known_fleet;
pub(super) mod memory_health;
pub(super) mod memory_lint;
pub(super) mod observe;
pub(super) mod observe_fleet;
pub(super) mod parallel;
pub(super) mod remote_texts;
pub(super) mod saved_observations;
pub(super) mod scan;
pub(super) mod similar_names;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::engine::baselines::{BaselineServices, Baselines, Lint};
use crate::engine::context::Context;
use crate::engine::shared_memories::SharedMemories;
use content_cache::ContentCache;
use memory_health::MemoryHealth;

/// The connections to hosts.
pub struct Hosts {
    context: Arc<Context>,
}

/// Scans what agents wrote for secrets and injections.
pub struct Scanner {
    context: Arc<Context>,
    lint: Arc<Lint>,
    scan_decisions: scan::DecisionCache,
}

/// Checks of what is at and beside the path of a memory.
pub struct MemoryChecks {
    context: Arc<Context>,
    hosts: Arc<Hosts>,
    scanner: Arc<Scanner>,
}

/// Observes agents.
pub struct Observer {
    context: Arc<Context>,
    hosts: Arc<Hosts>,
    shared_memories: Arc<SharedMemories>,
    baselines: Arc<Baselines>,
    lint: Arc<Lint>,
    scanner: Arc<Scanner>,
    checks: Arc<MemoryChecks>,
    health: Arc<MemoryHealth>,
    content_cache: ContentCache,
    remote_texts: remote_texts::RemoteTexts,
    last_generation: AtomicU64,
}

/// The services that look at memories, and the others that a [`fleet::FleetWatcher`] uses.
pub struct Watch {
    context: Arc<Context>,
    shared_memories: Arc<SharedMemories>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) scanner: Arc<Scanner>,
    pub(super) checks: Arc<MemoryChecks>,
    pub(super) health: Arc<MemoryHealth>,
    pub(super) observer: Arc<Observer>,
}

impl Watch {
    /// Creates the services. They read and write nothing yet.
    pub(super) fn new(
        context: &Arc<Context>,
        shared_memories: &Arc<SharedMemories>,
        baselines: &BaselineServices,
    ) -> Watch {
        let hosts = Arc::new(Hosts {
            context: Arc::clone(context),
        });
        let scanner = Arc::new(Scanner {
            context: Arc::clone(context),
            lint: Arc::clone(&baselines.lint),
            scan_decisions: scan::DecisionCache::default(),
        });
        let checks = Arc::new(MemoryChecks {
            context: Arc::clone(context),
            hosts: Arc::clone(&hosts),
            scanner: Arc::clone(&scanner),
        });
        let health = Arc::new(MemoryHealth::new(context, &hosts));
        let observer = Arc::new(Observer {
            context: Arc::clone(context),
            hosts: Arc::clone(&hosts),
            shared_memories: Arc::clone(shared_memories),
            baselines: Arc::clone(&baselines.baselines),
            lint: Arc::clone(&baselines.lint),
            scanner: Arc::clone(&scanner),
            checks: Arc::clone(&checks),
            health: Arc::clone(&health),
            content_cache: ContentCache::default(),
            remote_texts: remote_texts::RemoteTexts::default(),
            last_generation: AtomicU64::new(1),
        });
        Watch {
            context: Arc::clone(context),
            shared_memories: Arc::clone(shared_memories),
            hosts,
            scanner,
            checks,
            health,
            observer,
        }
    }
}
