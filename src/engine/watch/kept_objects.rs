//! Objects that runs displaced and kept beside a memory, because no entry holds them.

use std::path::{Path, PathBuf};

use crate::config::Agent;
use crate::engine::watch::MemoryChecks;
use crate::store::agent_history::AgentHistory;
use crate::transport::MemoryObject;

impl MemoryChecks {
    /// Returns the kept objects that still exist beside an agent's memory and what to do about
    /// them, as one sentence.
    pub(in crate::engine) fn kept_objects_note(
        &self,
        agent: &Agent,
        history: &AgentHistory,
    ) -> Option<String> {
        if history.kept_names.is_empty() {
            return None;
        }
        let memory = agent.observed_path();
        let names = history.kept_names.iter();
        let paths: Vec<PathBuf> = names.map(|name| memory.with_file_name(name)).collect();
        let probed: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let found = self.context.transport_for(agent).probe(&probed);
        let stands = |object| matches!(object, Ok(object) if object != MemoryObject::Absent);
        let names = history.kept_names.iter().zip(found);
        let (own, others): (Vec<&String>, Vec<&String>) = names
            .filter(|(_, found)| stands(found.clone()))
            .map(|(name, _)| name)
            .partition(|name| self.is_kept_object(agent, name, history));
        let listed = |names: Vec<&String>| {
            let paths = names.iter().map(|name| memory.with_file_name(name));
            let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
            paths.join(", ")
        };
        let mut notes = Vec::new();
        if !own.is_empty() {
            // An undo cannot put them back on a host.
            let undo = match agent.host() {
                None => "undo puts it back, or ",
                Some(_) => "",
            };
            notes.push(format!(
                "kept beside the memory, not in the archive: {}; {undo}copy what you need and remove it",
                listed(own)
            ));
        }
        if !others.is_empty() {
            notes.push(format!("replaced since a run kept it: {}", listed(others)));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns whether the object at a name is the one that was kept there; true where its identity
    /// is unknown.
    fn is_kept_object(&self, agent: &Agent, name: &str, history: &AgentHistory) -> bool {
        let Some(id) = history.kept_ids.get(name) else {
            return true;
        };
        let found = self
            .context
            .open_directory(agent)
            .and_then(|directory| directory.object_id(name));
        !matches!(found, Ok(Some(found)) if found != *id)
    }
}
