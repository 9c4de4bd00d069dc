//! The hosts of a fleet: how they stand, and what is done about that.

use super::{Engine, hosts};
use crate::config::{Agent, Host};
use crate::error::Result;
use crate::transport::{ConnectionSetting, ConnectionStatus};

/// A host of the fleet, with what is known of the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostStatus {
    /// How it is reached, by the config.
    pub host: Host,
    /// The agents on it, in the order of the config.
    pub agents: Vec<String>,
    /// How it stands.
    pub contact: ConnectionStatus,
}

impl HostStatus {
    /// Whether somebody who has seen `other` need not be told: all the same but
    /// for a reply that took a little longer or shorter.
    pub(super) fn is_told_by(&self, other: &HostStatus) -> bool {
        let known = other.contact.latency;
        let close = match (self.contact.latency, known) {
            (Some(new), Some(old)) => new < old * 2 && old < new * 2,
            (new, old) => new == old,
        };
        let mut same = self.clone();
        same.contact.latency = known;
        close && same == *other
    }
}

impl Engine {
    /// All hosts, in the order in which the config names them. Nobody is asked.
    pub fn hosts(&self) -> Vec<HostStatus> {
        let mut found: Vec<HostStatus> = Vec::new();
        for agent in &self.config().agents {
            let Some(host) = agent.place.host() else {
                continue;
            };
            match found.iter_mut().find(|status| status.host == *host) {
                Some(status) => status.agents.push(agent.name.clone()),
                None => found.push(HostStatus {
                    host: host.clone(),
                    agents: vec![agent.name.clone()],
                    contact: self.contact(host),
                }),
            }
        }
        found
    }

    /// How a host stands, as far as that is known.
    pub fn contact(&self, host: &Host) -> ConnectionStatus {
        let contact = self.setup.transports.to(Some(host)).contact();
        contact.unwrap_or_default()
    }

    /// What the setup of the way to a host comes to.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn settings(&self, host: &Host) -> Result<Vec<ConnectionSetting>> {
        Ok(self.setup.transports.to(Some(host)).settings()?)
    }

    /// Connects to all hosts at the same time, and says how they stand then.
    pub fn greet(&self) -> Vec<HostStatus> {
        let known = self.hosts().into_iter().map(|status| status.host);
        let greet = |host: &Host| {
            // What comes of it is told as the host's contact.
            drop(self.setup.transports.to(Some(host)).ensure_connected());
        };
        hosts::run_local_and_remote(|| (), known.collect(), greet, |_| ());
        self.hosts()
    }

    /// Connects to a host, if there is no connection yet. What comes of it is told
    /// to whoever asks for something next.
    pub(super) fn connect(&self, host: &Host) {
        drop(self.setup.transports.to(Some(host)).probe(&[]));
    }

    /// Ends the connections to hosts that the config does not name, where another
    /// engine had them before.
    pub fn leave_others(&self) {
        let agents = self.config().agents.iter();
        let kept: Vec<&Host> = agents.filter_map(|agent| agent.place.host()).collect();
        self.setup.transports.leave_others(&kept);
    }

    /// Ends all connections to hosts. They are not made again.
    pub fn leave(&self) {
        self.setup.transports.leave();
    }

    /// The agents of these names that are on a host.
    pub(super) fn agents_of<'a>(&'a self, names: &'a [String]) -> Vec<&'a Agent> {
        let config = self.config();
        names.iter().filter_map(|name| config.agent(name)).collect()
    }
}
