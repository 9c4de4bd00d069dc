//! The store in files below `archive_dir`: locks, and implementations of the traits of a store.

pub(crate) mod entries;
pub(crate) mod holds;
pub(crate) mod journals;
pub(in crate::store) mod ledger;
pub(crate) mod lock;
pub(crate) mod observations;
pub(crate) mod semaphore;
pub(crate) mod stale_files;
pub(crate) mod versions;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::store::controller::Controller;
use crate::store::lease::Leases;

/// The locks that name their holder, and the wait for those of agents.
pub struct Locks {
    controller: Arc<Controller>,
    leases: Arc<dyn Leases>,
    /// End of the wait for agents' locks; none if runs do not wait.
    deadline: OnceLock<Instant>,
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
