//! The hosts of the fleet, as far as the console knows.

use std::collections::HashMap;

use chrono::{DateTime, FixedOffset};

use super::age;
use crate::config::Host;
use crate::engine::{HostStatus, Reach, Setting};

/// The hosts.
#[derive(Clone, Debug, Default)]
pub struct HostsScreen {
    list: Vec<HostStatus>,
    /// Where the host of an agent is in the list.
    of: HashMap<String, usize>,
    /// The host under the cursor, once it was moved.
    pub cursor: Option<Host>,
    /// What ssh makes of its configuration for a host, or why that is not known.
    pub settings: HashMap<Host, Result<Vec<Setting>, String>>,
}

impl HostsScreen {
    /// All hosts, the worst first.
    pub fn order(&self) -> Vec<&HostStatus> {
        let mut order: Vec<&HostStatus> = self.list.iter().collect();
        order.sort_by_key(|status| status.contact.reach);
        order
    }

    /// The host of an agent; none for one of this machine.
    pub fn of(&self, agent: &str) -> Option<&HostStatus> {
        self.of.get(agent).and_then(|place| self.list.get(*place))
    }

    /// The host under the cursor; the worst until it was moved.
    pub fn current(&self) -> Option<&HostStatus> {
        let chosen = self
            .list
            .iter()
            .find(|it| Some(&it.host) == self.cursor.as_ref());
        chosen.or_else(|| self.order().first().copied())
    }

    /// The place of the cursor in the order.
    pub fn cursor_index(&self) -> usize {
        let here = self.current().map(|status| &status.host);
        let mut order = self.order().into_iter();
        order.position(|it| Some(&it.host) == here).unwrap_or(0)
    }

    /// A host stands like this now; how it stood before.
    pub fn take(&mut self, status: HostStatus) -> Option<HostStatus> {
        let known = self.list.iter().position(|it| it.host == status.host);
        let place = known.unwrap_or(self.list.len());
        for agent in &status.agents {
            self.of.insert(agent.clone(), place);
        }
        match self.list.get_mut(place) {
            Some(old) => Some(std::mem::replace(old, status)),
            None => {
                self.list.push(status);
                None
            }
        }
    }
}

/// The word for how a host stands.
pub fn word(status: &HostStatus) -> &'static str {
    match (status.contact.reach, status.contact.trying) {
        (Reach::HostKey, _) => "HOSTKEY",
        (Reach::Refused, _) => "REFUSED",
        (Reach::Away, _) => "AWAY",
        (Reach::Unknown, true) => "CONNECTING",
        (Reach::Unknown, false) => "UNKNOWN",
        (Reach::Up, _) => "UP",
    }
}

/// Why nobody on a host can be reached, and when that is tried again; none where
/// there is nothing wrong. It may have the host's words.
pub fn trouble(status: &HostStatus, now: DateTime<FixedOffset>) -> Option<String> {
    let contact = &status.contact;
    if !contact.reach.is_trouble() {
        return None;
    }
    let reason = contact.reason().unwrap_or_else(|| "no answer".to_string());
    Some(match (contact.trying, contact.next) {
        (false, Some(next)) => format!("{reason}; next try {}", until(now, next)),
        _ => format!("{reason}; trying now"),
    })
}

/// How long until then, in the same coarse steps as an age.
pub fn until(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    age(then, now)
}
