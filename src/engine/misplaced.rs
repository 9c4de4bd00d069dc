//! A directory in place of a memory: the agent's doing where a file stood there before,
//! else a mistake in the configuration.

use super::{Engine, History, hosts};
use crate::config::{Agent, Place};
use crate::error::{Error, Kind};
use crate::transport::{Object, Odd};

impl Engine {
    /// Agents of this machine whose memory is a directory and, as far as the ledger says,
    /// never was a file, each with the reason why it is not reset.
    pub fn misplaced_memories(&self) -> Vec<(&Agent, Error)> {
        let agents = self.config().agents.iter();
        let local: Vec<&Agent> = agents
            .filter(|agent| agent.place.host().is_none())
            .collect();
        let is_directory = |agent: &Agent| {
            let found = self.object(&agent.place);
            matches!(found, Ok(Object::Odd(Odd::Directory)))
        };
        // File systems that hang are waited for at the same time.
        let none = |agents: &[&Agent]| vec![false; agents.len()];
        let found = hosts::for_each(self, &local, is_directory, none);
        let directories = local.into_iter().zip(found).filter(|(_, found)| *found);
        directories
            .filter_map(|(agent, _)| {
                let history = self.history(&agent.name).unwrap_or_default();
                Some((agent, self.directory_refusal(agent, &history)?))
            })
            .collect()
    }

    /// Why a directory in place of a memory is not displaced: no earlier run found or
    /// left a file there.
    pub(super) fn directory_refusal(&self, agent: &Agent, history: &History) -> Option<Error> {
        if history.file.as_ref().is_some_and(|file| file.fits(agent)) {
            return None;
        }
        let memory = agent.place.memory().display();
        let message =
            format!("{memory} is a directory, and no record says that a file ever stood there");
        let key = match &agent.place {
            Place::Local { .. } => "memory_file",
            Place::Remote { .. } => "remote_memory",
        };
        let hint = format!(
            "add the name of the file to {key}; if the path is right, move the directory away"
        );
        Some(Error::new(Kind::Conflict, message).hint(hint))
    }
}
