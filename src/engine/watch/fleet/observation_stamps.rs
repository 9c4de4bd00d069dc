//! The stamps that observations depend on. An agent whose stamps are as they were before its last
//! observation is not observed again, so that an idle fleet of thousands costs next to nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, FixedOffset};

use crate::base::error::ErrorKind;
use crate::baseline;
use crate::baseline::seal::{self, SealMeta};
use crate::config::Agent;
use crate::engine::Observation;
use crate::engine::watch::Watch;
use crate::engine::watch::content_cache::RECENT_CHANGE;
use crate::store::lease::LeaseSurvey;
use crate::store::observation::Blocker;
use crate::transport::{FileMetadata, MemoryObject, Stamp, TransportError};

/// The known stamps of agents, and of the config.
pub(super) struct ObservationStamps {
    pub(super) watch: Arc<Watch>,
    /// The stamps of each agent before its last observation. An agent without known stamps has to be
    /// observed.
    known: Mutex<HashMap<String, AgentStamps>>,
    pub(super) config_stamp: Mutex<Option<Stamp>>,
}

/// The stamps that an observation of an agent depends on.
#[derive(PartialEq, Eq)]
pub(super) struct AgentStamps {
    pub(super) memory: MemoryStamps,
    pub(super) other: OtherStamps,
}

/// The stamps that an observation depends on besides those of the memory.
#[derive(PartialEq, Eq)]
pub(super) struct OtherStamps {
    baseline: Option<Stamp>,
    lock: Option<Stamp>,
    has_journal: bool,
    shared: Arc<SharedStamps>,
}

/// What is known of a memory without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemoryStamps {
    /// On the file system of this machine.
    Local {
        memory: Option<Stamp>,
        /// A symlink that replaces the directory has another stamp.
        directory: Option<Stamp>,
    },
    /// On a host; none if the memory is absent.
    Remote(Option<Box<FileMetadata>>),
}

/// What the observations of all agents depend on, besides the ledger.
#[derive(PartialEq, Eq)]
struct SharedStamps {
    /// The files of the seal, and its signers.
    files: [Option<Stamp>; 4],
    /// The passing of time changes no file.
    is_seal_expired: bool,
}

/// Reads the stamps on this machine, those that agents share once.
pub(super) struct StampReader<'a> {
    watch: &'a Watch,
    shared: Arc<SharedStamps>,
    /// The agents with journals.
    journaled: HashSet<String>,
    leases: Box<dyn LeaseSurvey>,
}

impl MemoryStamps {
    /// Returns the stamps of a probed memory of a host; none if it has to be observed.
    pub(super) fn of_probed(object: &Result<MemoryObject, TransportError>) -> Option<MemoryStamps> {
        match object {
            Ok(MemoryObject::File(file)) => {
                Some(MemoryStamps::Remote(Some(Box::new(file.clone()))))
            }
            Ok(MemoryObject::Absent) => Some(MemoryStamps::Remote(None)),
            Ok(MemoryObject::Special(_)) | Err(_) => None,
        }
    }
}

impl ObservationStamps {
    /// Creates the collection without known stamps of agents.
    pub(super) fn new(watch: &Arc<Watch>) -> ObservationStamps {
        ObservationStamps {
            watch: Arc::clone(watch),
            known: Mutex::default(),
            // The config may be a symlink.
            config_stamp: Mutex::new(target_stamp_of(&watch.context.config().path)),
        }
    }

    /// Starts to read the stamps on this machine as they are now.
    pub(super) fn read(&self) -> StampReader<'_> {
        StampReader {
            watch: &self.watch,
            shared: Arc::new(self.shared_stamps()),
            journaled: self.watch.context.journals().agents(),
            leases: self.watch.context.leases().survey(),
        }
    }

    /// Records the stamps of an agent from before an observation, which were read from a time on. The
    /// outcome then has to be recorded.
    pub(super) fn record(&self, agent: &str, stamps: AgentStamps, time: DateTime<FixedOffset>) {
        let mut known = self.known();
        // An object that changed so recently may change again without a new stamp.
        if stamps.is_racy(time) {
            known.remove(agent);
        } else {
            known.insert(agent.to_string(), stamps);
        }
    }

    /// Records the outcome of an observation. One that failed, for example for lack of file
    /// descriptors, is repeated, because the cause changes no stamp; so is that of a locked agent,
    /// because the holder of the lock may be killed.
    pub(super) fn record_outcome(&self, agent: &str, seen: Option<&Observation>) {
        let is_complete = seen.is_some_and(|seen| {
            let hindered = |block: &Blocker| block.kind != ErrorKind::Integrity;
            seen.is_content_known()
                && seen.ledger_error.is_none()
                && seen.lock_holder.is_none()
                && !seen.blocker.as_ref().is_some_and(hindered)
        });
        if !is_complete {
            self.forget(agent);
        }
    }

    /// Makes sure that an agent is observed.
    pub(super) fn forget(&self, agent: &str) {
        self.known().remove(agent);
    }

    /// Makes sure that the agents are observed that records are about which were added to the ledger
    /// since the last call. Returns them; all, if that is not known.
    pub(super) fn forget_recorded(&self) -> Vec<String> {
        // Of a ledger that cannot be read, the observations of all agents say why.
        let recorded = self
            .watch
            .context
            .ledger()
            .take_recorded_agents()
            .ok()
            .flatten();
        let mut known = self.known();
        let Some(names) = recorded else {
            known.clear();
            let agents = self.watch.context.config().agents.iter();
            return agents.map(|agent| agent.name.clone()).collect();
        };
        for name in &names {
            known.remove(name);
        }
        names.into_iter().collect()
    }

    /// Returns whether an agent's stamps are those from before its last observation.
    pub(super) fn are_known(&self, agent: &str, stamps: &AgentStamps) -> bool {
        self.known().get(agent) == Some(stamps)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, AgentStamps>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared_stamps(&self) -> SharedStamps {
        let general = &self.watch.context.config().general;
        let meta_path = general.baseline_dir.join(seal::META_FILE_NAME);
        let meta = stamp_of(&meta_path);
        let signers = general.seal_signers.as_deref();
        SharedStamps {
            files: [
                stamp_of(&general.baseline_dir.join(seal::SEAL_FILE_NAME)),
                stamp_of(&general.baseline_dir.join(seal::SIGNATURE_FILE_NAME)),
                meta,
                // It may be a symlink.
                signers.and_then(target_stamp_of),
            ],
            is_seal_expired: meta.is_some() && self.is_seal_expired(&meta_path),
        }
    }

    /// Returns whether the seal has expired, by the file at this path. A faulty one is reported when an
    /// agent is observed.
    fn is_seal_expired(&self, path: &Path) -> bool {
        let bytes = baseline::read_file(path).ok();
        let meta = bytes.and_then(|bytes| SealMeta::parse(&bytes).ok());
        meta.is_some_and(|meta| meta.is_expired(self.watch.context.clock().now()))
    }
}

impl StampReader<'_> {
    /// Returns the stamps of an agent besides those of its memory.
    pub(super) fn other_stamps(&self, agent: &Agent) -> OtherStamps {
        let baseline = self.watch.context.config().baseline_path(agent);
        OtherStamps {
            baseline: baseline.and_then(|path| stamp_of(&path)),
            lock: self.leases.stamp(&agent.name),
            has_journal: self.journaled.contains(&agent.name),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl AgentStamps {
    /// Returns the inode number of the directory of a local memory; none if it does not exist.
    pub(super) fn directory_inode(&self) -> Option<u64> {
        match &self.memory {
            MemoryStamps::Local { directory, .. } => directory.map(|stamp| stamp.inode),
            MemoryStamps::Remote(_) => None,
        }
    }

    /// Whether any of the objects on this machine changed so shortly before a time that it may change
    /// again without a new stamp.
    fn is_racy(&self, time: DateTime<FixedOffset>) -> bool {
        let (memory, directory) = match &self.memory {
            MemoryStamps::Local { memory, directory } => (*memory, *directory),
            MemoryStamps::Remote(_) => (None, None),
        };
        let other = &self.other;
        let all = [memory, directory, other.baseline, other.lock];
        let stamps = all.iter().chain(&other.shared.files).flatten();
        let newest = stamps.map(|stamp| stamp.changed.max(stamp.modified)).max();
        let time = time.timestamp_nanos_opt().unwrap_or(i64::MAX);
        newest.is_some_and(|newest| time.saturating_sub(newest) < RECENT_CHANGE.as_nanos() as i64)
    }
}

/// Returns the stamp of the object at a path; None if it cannot be read.
fn stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::lstat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}

/// Returns the stamp of the object at a path with symlinks followed.
pub(super) fn target_stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::stat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}
