//! The hosts of a fleet: how they stand, and what is done about that.

use super::{Engine, parallel};
use crate::config::{Agent, SshHost};
use crate::error::Result;
use crate::transport::{ConnectionSetting, ConnectionStatus};

/// A host of the fleet, with what is known of the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostStatus {
    /// How it is reached, by the config.
    pub host: SshHost,
    /// The agents on it, in the order of the config.
    pub agents: Vec<String>,
    /// How it stands.
    pub connection: ConnectionStatus,
}

impl HostStatus {
    /// Whether somebody who has seen `other` need not be told: all the same but
    /// for a reply that took a little longer or shorter.
    pub(super) fn is_similar_to(&self, other: &HostStatus) -> bool {
        let known = other.connection.latency;
        let close = match (self.connection.latency, known) {
            (Some(new), Some(old)) => new < old * 2 && old < new * 2,
            (new, old) => new == old,
        };
        let mut same = self.clone();
        same.connection.latency = known;
        close && same == *other
    }
}

impl Engine {
    /// All hosts, in the order in which the config names them. Nobody is asked.
    pub fn host_statuses(&self) -> Vec<HostStatus> {
        let mut found: Vec<HostStatus> = Vec::new();
        for agent in &self.config().agents {
            let Some(host) = agent.location.host() else {
                continue;
            };
            match found.iter_mut().find(|status| status.host == *host) {
                Some(status) => status.agents.push(agent.name.clone()),
                None => found.push(HostStatus {
                    host: host.clone(),
                    agents: vec![agent.name.clone()],
                    connection: self.connection_status(host),
                }),
            }
        }
        found
    }

    /// How a host stands, as far as that is known.
    pub fn connection_status(&self, host: &SshHost) -> ConnectionStatus {
        let contact = self
            .setup
            .transports
            .transport_for(Some(host))
            .connection_status();
        contact.unwrap_or_default()
    }

    /// What the setup of the way to a host comes to.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn connection_settings(&self, host: &SshHost) -> Result<Vec<ConnectionSetting>> {
        Ok(self
            .setup
            .transports
            .transport_for(Some(host))
            .connection_settings()?)
    }

    /// Connects to all hosts at the same time, and says how they stand then.
    pub fn connect_all_hosts(&self) -> Vec<HostStatus> {
        let known = self.host_statuses().into_iter().map(|status| status.host);
        let greet = |host: &SshHost| {
            // What comes of it is told as the host's contact.
            drop(
                self.setup
                    .transports
                    .transport_for(Some(host))
                    .ensure_connected(),
            );
        };
        parallel::run_local_and_remote(|| (), known.collect(), greet, |_| ());
        self.host_statuses()
    }

    /// Connects to a host, if there is no connection yet. What comes of it is told
    /// to whoever asks for something next.
    pub(super) fn connect_host(&self, host: &SshHost) {
        drop(self.setup.transports.transport_for(Some(host)).probe(&[]));
    }

    /// Ends the connections to hosts that the config does not name, where another
    /// engine had them before.
    pub fn close_other_hosts(&self) {
        let agents = self.config().agents.iter();
        let kept: Vec<&SshHost> = agents.filter_map(|agent| agent.location.host()).collect();
        self.setup.transports.close_others(&kept);
    }

    /// Ends all connections to hosts. They are not made again.
    pub fn close_all_hosts(&self) {
        self.setup.transports.close_all();
    }

    /// The agents of these names that are on a host.
    pub(super) fn agents_named<'a>(&'a self, names: &'a [String]) -> Vec<&'a Agent> {
        let config = self.config();
        names.iter().filter_map(|name| config.agent(name)).collect()
    }
}
