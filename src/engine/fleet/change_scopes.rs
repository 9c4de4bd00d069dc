//! What changes in the watched directories affect.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::baseline::seal;
use crate::config::MemoryLocation;
use crate::engine::{Engine, lock};

pub(super) struct ChangeScope {
    /// The name in the directory; none stands for any name.
    pub(super) file_name: Option<OsString>,
    pub(super) target: ChangeTarget,
}

#[derive(Clone)]
pub(super) enum ChangeTarget {
    Agent(String),
    AllAgents,
    Ledger,
    Config,
    Pauses,
    StateLog,
}

/// Maps each directory to what a change in it affects.
pub(super) fn change_scopes(engine: &Engine) -> HashMap<PathBuf, Vec<ChangeScope>> {
    let config = engine.config();
    let mut meanings: HashMap<PathBuf, Vec<ChangeScope>> = HashMap::new();
    let mut add = |path: &Path, what: ChangeTarget| {
        if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
            meanings
                .entry(directory.to_path_buf())
                .or_default()
                .push(ChangeScope {
                    file_name: Some(name.to_os_string()),
                    target: what,
                });
        }
    };
    for agent in &config.agents {
        if let MemoryLocation::Local { memory, .. } = &agent.location {
            add(memory, ChangeTarget::Agent(agent.name.clone()));
        }
        let baseline = config.baseline_path(agent);
        add(&baseline, ChangeTarget::Agent(agent.name.clone()));
        let lock = lock::holder_path(engine.archive(), &agent.name);
        add(&lock, ChangeTarget::Agent(agent.name.clone()));
    }
    for name in [
        seal::SEAL_FILE_NAME,
        seal::META_FILE_NAME,
        seal::SIGNATURE_FILE_NAME,
    ] {
        let path = config.general.baseline_dir.join(name);
        add(&path, ChangeTarget::AllAgents);
    }
    add(&engine.ledger_path(), ChangeTarget::Ledger);
    add(&engine.schedule_path(), ChangeTarget::Pauses);
    add(&engine.state_log_path(), ChangeTarget::StateLog);
    add(&config.path, ChangeTarget::Config);
    meanings
}
