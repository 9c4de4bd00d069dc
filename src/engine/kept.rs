//! Objects that runs displaced and kept beside a memory, because no entry holds them.

use std::path::{Path, PathBuf};

use super::{Engine, History};
use crate::config::Agent;
use crate::transport::Object;

impl Engine {
    /// Returns the kept objects that still stand beside an agent's memory, and what to do
    /// about them, as one sentence.
    pub(super) fn kept_beside(&self, agent: &Agent, history: &History) -> Option<String> {
        if history.kept.is_empty() {
            return None;
        }
        let memory = agent.place.memory();
        let names = history.kept.iter();
        let paths: Vec<PathBuf> = names.map(|name| memory.with_file_name(name)).collect();
        let probed: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let found = self.transport(&agent.place).probe(&probed);
        let stands = |object| matches!(object, Ok(object) if object != Object::Absent);
        let stands = paths
            .iter()
            .zip(found)
            .filter(|(_, found)| stands(found.clone()));
        let stands: Vec<String> = stands.map(|(path, _)| path.display().to_string()).collect();
        (!stands.is_empty()).then(|| {
            format!(
                "kept beside the memory, in no entry: {}; undo puts it back, or copy what you need \
                 and remove it",
                stands.join(", ")
            )
        })
    }
}
