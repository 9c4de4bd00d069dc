//! The address of a memory as the ledger records it, and whether an agent's memory is still there.
//! Agents of several configurations may share a name and an archive.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::RunEvent;
use crate::base::file_systems::resolve_parent_components;
use crate::config::{Agent, SshHost};

/// Address of a memory when a record was written; records about no memory leave parts of it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAddress {
    /// `local`, or the host.
    pub host: String,
    /// The host with user and port; none for this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The path on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
}

impl RecordedAddress {
    /// The address that the config gives an agent's memory.
    pub fn from_agent(agent: &Agent) -> RecordedAddress {
        RecordedAddress {
            host: host_name(agent),
            login: agent.host().map(SshHost::authority),
            memory: Some(agent.observed_path().to_path_buf()),
        }
    }

    /// The address of a record's memory.
    pub fn from_event(event: &RunEvent) -> RecordedAddress {
        RecordedAddress {
            host: event.host.clone(),
            login: event.login.clone(),
            memory: event.memory.clone(),
        }
    }

    /// Returns whether the agent's memory may be at this address: no part of the record contradicts
    /// it.
    pub fn is_compatible_with(&self, agent: &Agent) -> bool {
        let now = RecordedAddress::from_agent(agent);
        self.host == now.host
            && (self.login.is_none() || self.login == now.login)
            && self
                .memory
                .as_ref()
                .is_none_or(|memory| is_memory_of(agent, memory))
    }
}

impl fmt::Display for RecordedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.login.as_ref().unwrap_or(&self.host);
        match &self.memory {
            Some(memory) => write!(f, "{host}:{}", memory.display()),
            None => f.write_str(host),
        }
    }
}

/// Host of an agent, or `local`.
pub(crate) fn host_name(agent: &Agent) -> String {
    let host = agent.host();
    host.map_or("local".to_string(), |host| host.name.clone())
}

/// Host with user and port, as the ledger records it: another user has another home, and another
/// port may belong to another host.
pub(crate) fn connection_target(agent: &Agent) -> Option<String> {
    let host = agent.host()?;
    let user = host.user.iter().map(|user| format!("{user}@"));
    let port = host.port.iter().map(|port| format!(" port {port}"));
    Some(user.chain([host.name.clone()]).chain(port).collect())
}

/// Location of a memory, as far as it identifies the memory: observations of another location say
/// nothing about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAddress {
    /// The host with user and port, as the config names them; none for this machine.
    pub login: Option<String>,
    /// The path on that host.
    pub memory: String,
}

impl MemoryAddress {
    /// The address that the config gives an agent's memory.
    pub fn of_agent(agent: &Agent) -> MemoryAddress {
        MemoryAddress {
            login: agent.host().map(SshHost::authority),
            memory: agent.observed_path().to_string_lossy().into_owned(),
        }
    }
}

/// Returns whether a path leads to an agent's memory. Memories are never reached through symlinks,
/// so the text of a path decides what `..` stands for.
fn is_memory_of(agent: &Agent, path: &Path) -> bool {
    let memory = agent.observed_path();
    resolve_parent_components(path) == resolve_parent_components(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, ConfigEnvironment};

    fn agent_with_lines(lines: &str) -> Agent {
        let env = ConfigEnvironment {
            uid: 1000,
            ..ConfigEnvironment::bare("/")
        };
        let text = format!("[scout]\nbaseline = scout.md\n{lines}\n");
        let config = config::parse(text.as_bytes(), Path::new("/a.conf"), &env).unwrap();
        config.agents[0].clone()
    }

    #[test]
    fn recorded_address_fits_unless_a_part_differs() {
        let here = agent_with_lines("memory_file = /a/MEMORY.md");
        let far =
            agent_with_lines("remote_host = box\nremote_user = ops\nremote_memory = ~/MEMORY.md");
        let address = RecordedAddress::from_agent;
        assert!(address(&here).is_compatible_with(&here) && address(&far).is_compatible_with(&far));
        assert!(
            !address(&here).is_compatible_with(&far) && !address(&far).is_compatible_with(&here)
        );
        for other in [
            "remote_host = box\nremote_user = ops\nremote_memory = ~/OTHER.md",
            "remote_host = crate\nremote_user = ops\nremote_memory = ~/MEMORY.md",
            "remote_host = box\nremote_user = dev\nremote_memory = ~/MEMORY.md",
            "remote_host = box\nremote_user = ops\nremote_port = 23\nremote_memory = ~/MEMORY.md",
        ] {
            assert!(
                !address(&agent_with_lines(other)).is_compatible_with(&far),
                "{other}"
            );
        }
    }

    #[test]
    fn missing_address_parts_do_not_contradict() {
        let far =
            agent_with_lines("remote_host = box\nremote_user = ops\nremote_memory = ~/MEMORY.md");
        let old = |login: Option<&str>, memory: Option<&str>| RecordedAddress {
            host: "box".to_string(),
            login: login.map(str::to_string),
            memory: memory.map(PathBuf::from),
        };
        assert!(old(None, None).is_compatible_with(&far));
        assert!(old(None, Some("~/MEMORY.md")).is_compatible_with(&far));
        assert!(!old(None, Some("~/OTHER.md")).is_compatible_with(&far));
        assert!(!old(Some("dev@box"), None).is_compatible_with(&far));
    }

    #[test]
    fn local_address_fits_in_any_spelling() {
        let at = |path: &str| agent_with_lines(&format!("memory_file = /srv/{path}"));
        let address = RecordedAddress::from_agent(&at("a/MEMORY.md"));
        assert!(address.is_compatible_with(&at("b/../a/MEMORY.md")));
        assert!(address.is_compatible_with(&at("../srv/b/c/../../a/./MEMORY.md")));
        assert!(!address.is_compatible_with(&at("b/MEMORY.md")));
        assert!(!address.is_compatible_with(&at("a/OTHER.md")));
    }
}
