//! Connection status of the fleet's hosts; opens and closes their connections.

use std::collections::HashMap;
use std::sync::Arc;

use super::parallel;
use crate::base::error::Result;
use crate::config::{Agent, SshHost};
use crate::engine::watch::Hosts;
use crate::transport::{Connection, ConnectionSetting, ConnectionStatus, OnConnected, Transport};

/// A host of the fleet and the status of its connection.
#[derive(Clone, Debug, PartialEq)]
pub struct HostStatus {
    /// Its address and login, from the config.
    pub host: SshHost,
    /// The agents on it, in the order of the config.
    pub agents: Vec<String>,
    /// Its connection.
    pub connection: ConnectionStatus,
}

impl HostStatus {
    /// Returns whether another status of the connection needs no report: it is equal, except that the
    /// latency may differ by less than a factor of two.
    pub(in crate::engine) fn is_similar_to(&self, connection: &ConnectionStatus) -> bool {
        let known = self.connection.latency;
        let close = match (connection.latency, known) {
            (Some(new), Some(old)) => new < old * 2 && old < new * 2,
            (new, old) => new == old,
        };
        let same = || ConnectionStatus {
            latency: known,
            ..connection.clone()
        };
        close && same() == self.connection
    }
}

impl Hosts {
    /// All hosts, in the order of the config. Contacts no host.
    pub fn host_statuses(&self) -> Vec<HostStatus> {
        let mut found: Vec<HostStatus> = Vec::new();
        let mut places: HashMap<&SshHost, usize> = HashMap::new();
        for agent in &self.context.config().agents {
            let Some(host) = agent.host() else {
                continue;
            };
            let place = *places.entry(host).or_insert_with(|| {
                found.push(HostStatus {
                    host: host.clone(),
                    agents: Vec::new(),
                    connection: self.connection_status(host),
                });
                found.len() - 1
            });
            found[place].agents.push(agent.name.clone());
        }
        found
    }

    /// The last known connection status of a host. Contacts no host.
    pub fn connection_status(&self, host: &SshHost) -> ConnectionStatus {
        let transport = self.host_transport(host);
        transport
            .connection()
            .map(Connection::status)
            .unwrap_or_default()
    }

    /// The effective settings of the connection to a host, after `ssh_config`.
    ///
    /// # Errors
    /// They cannot be determined.
    pub fn connection_settings(&self, host: &SshHost) -> Result<Vec<ConnectionSetting>> {
        match self.host_transport(host).connection() {
            Some(connection) => Ok(connection.settings()?),
            None => Ok(Vec::new()),
        }
    }

    /// Connects to all hosts at the same time and returns their status afterwards.
    pub fn connect_all_hosts(&self) -> Vec<HostStatus> {
        let known = self.host_statuses().into_iter().map(|status| status.host);
        // The host's connection status holds the outcome.
        let connect = |host: &SshHost, when_done| self.start_connecting(host, when_done);
        parallel::run_local_and_remote(|| (), known.collect(), 0, connect, |_, _| ());
        self.host_statuses()
    }

    /// Starts to connect to a host that is not connected, and calls `when_done` with the result known.
    /// The next request reports a failure.
    pub(in crate::engine) fn start_connecting(&self, host: &SshHost, when_done: OnConnected) {
        match self.host_transport(host).connection() {
            Some(connection) => connection.start_connecting(when_done),
            None => when_done(),
        }
    }

    fn host_transport(&self, host: &SshHost) -> Arc<dyn Transport> {
        self.context.transports().transport_for(Some(host))
    }

    /// Closes connections of an earlier engine to hosts that the config does not name.
    pub fn close_other_hosts(&self) {
        let agents = self.context.config().agents.iter();
        let kept: Vec<&SshHost> = agents.filter_map(|agent| agent.host()).collect();
        self.context.transports().close_others(&kept);
    }

    /// Closes all connections to hosts; later requests do not open them again.
    pub fn close_all_hosts(&self) {
        self.context.transports().close_all();
    }

    /// Returns the agents of these names, without those that the config does not have.
    pub(in crate::engine) fn agents_named<'a>(&'a self, names: &[String]) -> Vec<&'a Agent> {
        let config = self.context.config();
        names.iter().filter_map(|name| config.agent(name)).collect()
    }
}
