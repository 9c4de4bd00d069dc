//! What changes in the watched directories affect.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::baseline::seal;
use crate::engine::context::Context;
use crate::store::holds::Hold;

#[derive(Clone)]
pub(super) enum ChangeTarget {
    Agent(String),
    AllAgents,
    Ledger,
    Config,
    /// The decisions about findings.
    LintFiles,
    Pauses,
    StateLog,
}

impl ChangeTarget {
    /// Whether a change is only reported, and no agent is read for it.
    pub(super) fn is_report(&self) -> bool {
        matches!(
            self,
            ChangeTarget::Ledger
                | ChangeTarget::Config
                | ChangeTarget::Pauses
                | ChangeTarget::StateLog
        )
    }
}

/// What changes of the names in a directory affect.
pub(super) type ChangeScopes = HashMap<PathBuf, HashMap<OsString, Vec<ChangeTarget>>>;

/// Returns what changes in each directory affect.
pub(super) fn change_scopes(context: &Context) -> ChangeScopes {
    let config = context.config();
    let mut scopes = ChangeScopes::new();
    let mut add = |path: &Path, target: ChangeTarget| {
        if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
            // Agents share the directories of baselines and locks.
            let names = match scopes.get_mut(directory) {
                Some(names) => names,
                None => scopes.entry(directory.to_path_buf()).or_default(),
            };
            names.entry(name.to_os_string()).or_default().push(target);
        }
    };
    for agent in &config.agents {
        if agent.remote.is_none() {
            add(
                agent.observed_path(),
                ChangeTarget::Agent(agent.name.clone()),
            );
        }
        if let Some(baseline) = config.baseline_path(agent) {
            add(&baseline, ChangeTarget::Agent(agent.name.clone()));
        }
        let lock = context.leases().watched_path(&agent.name);
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
    let lint = &config.lint;
    for path in [&lint.allow_file, &lint.accepted_file]
        .into_iter()
        .flatten()
    {
        add(path, ChangeTarget::LintFiles);
    }
    add(&context.ledger().location(), ChangeTarget::Ledger);
    let schedule = context.holds().location(Hold::Schedule);
    add(&schedule, ChangeTarget::Pauses);
    let state_log = context.observations().watched_path();
    add(&state_log, ChangeTarget::StateLog);
    add(&config.path, ChangeTarget::Config);
    scopes
}
