//! The hosts of the fleet, as far as the console knows.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use chrono::{DateTime, FixedOffset};

use super::age;
use crate::config::Host;
use crate::console::command::Command;
use crate::console::keymap::Keymap;
use crate::engine::{ConnectionSetting, ConnectionStatus, HostStatus, Reachability};

/// The hosts.
#[derive(Clone, Debug, Default)]
pub struct HostsScreen {
    list: Vec<HostStatus>,
    /// Where the host of an agent is in the list.
    of: HashMap<String, usize>,
    /// The host under the cursor, once it was moved.
    pub cursor: Option<Host>,
    /// The logins of hosts that were answered; it is not known yet what came of it.
    pub answered: BTreeSet<String>,
    /// The logins of hosts whose answer came too late; they are going to ask anew.
    pub late: BTreeSet<String>,
    /// What ssh makes of its configuration for a host, or why that is not known.
    pub settings: HashMap<Host, Result<Vec<ConnectionSetting>, String>>,
}

impl HostsScreen {
    /// All hosts, the worst first.
    pub fn order(&self) -> Vec<&HostStatus> {
        let mut order: Vec<&HostStatus> = self.list.iter().collect();
        order.sort_by_key(|status| rank(status));
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

    /// Whether another host has the same name.
    pub fn is_namesake(&self, host: &Host) -> bool {
        let mut others = self.list.iter().filter(|it| it.host != *host);
        others.any(|it| it.host.name == host.name)
    }

    /// What a host is called: its name, where that says which one it is.
    pub fn label(&self, host: &Host) -> String {
        match self.is_namesake(host) {
            true => host.login(),
            false => host.name.clone(),
        }
    }

    /// The question of a host is answered or gone.
    pub fn hush(&mut self, login: &str) {
        let there = |it: &&mut HostStatus| it.host.login() == login;
        for status in self.list.iter_mut().filter(there) {
            status.contact.asks = None;
        }
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

/// How much a host needs the operator; those with the same word have the same.
fn rank(status: &HostStatus) -> (Reachability, bool, bool) {
    let contact = &status.contact;
    let (asks, trying) = (contact.asks.is_some(), contact.trying);
    match contact.reach {
        Reachability::HostKey if !asks => (Reachability::HostKey, false, false),
        _ if asks => (Reachability::HostKey, true, false),
        Reachability::Unknown => (Reachability::Unknown, false, !trying),
        reach => (reach, false, false),
    }
}

/// The word for how a host stands.
pub fn word(status: &HostStatus) -> &'static str {
    if status.contact.asks.is_some() {
        return "ASKS";
    }
    match (status.contact.reach, status.contact.trying) {
        (Reachability::HostKey, _) => "HOSTKEY",
        (Reachability::Refused, _) => "REFUSED",
        (Reachability::Away, _) => "AWAY",
        (Reachability::Unknown, true) => "CONNECTING",
        (Reachability::Unknown, false) => "UNKNOWN",
        (Reachability::Up, _) => "UP",
    }
}

/// Why nobody on a host can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProblem {
    /// The reason; it may be in the host's words.
    pub reason: String,
    /// When it is tried again, if that is known.
    pub next: Option<NextAttempt>,
}

/// When a host is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// It is being tried.
    Now,
    /// After about so long.
    After(String),
    /// Once its question is answered, by this key.
    Answered(String),
    /// When the operator wants it, by this key.
    Wanted(String),
}

impl NextAttempt {
    /// In a column.
    pub fn short(&self) -> String {
        match self {
            NextAttempt::Now => "trying".to_string(),
            NextAttempt::After(time) => format!("next {time}"),
            NextAttempt::Answered(_) | NextAttempt::Wanted(_) => self.to_string(),
        }
    }
}

impl fmt::Display for NextAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextAttempt::Now => f.write_str("trying now"),
            NextAttempt::After(time) => write!(f, "next try {time}"),
            NextAttempt::Answered(key) => write!(f, "{key} answers"),
            NextAttempt::Wanted(key) => write!(f, "{key} tries again"),
        }
    }
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.next.iter().try_for_each(|next| write!(f, "; {next}"))
    }
}

/// Why nobody on a host can be reached; none where there is nothing wrong.
pub fn trouble(
    status: &HostStatus,
    now: DateTime<FixedOffset>,
    keymap: &Keymap,
) -> Option<HostProblem> {
    let contact = &status.contact;
    if !contact.reach.is_trouble() && contact.asks.is_none() {
        return None;
    }
    Some(HostProblem {
        reason: contact.reason().unwrap_or_else(|| "no answer".to_string()),
        next: Some(next(contact, now, keymap).unwrap_or(NextAttempt::Now)),
    })
}

/// When a host is tried next, if it is.
fn next(
    contact: &ConnectionStatus,
    now: DateTime<FixedOffset>,
    keymap: &Keymap,
) -> Option<NextAttempt> {
    if contact.asks.is_some() {
        return Some(NextAttempt::Answered(keymap.key(Command::Answer)));
    }
    match (contact.barred, contact.trying, contact.next) {
        (true, ..) => Some(NextAttempt::Wanted(keymap.key(Command::TryNow))),
        (_, true, _) => Some(NextAttempt::Now),
        (.., Some(next)) => Some(NextAttempt::After(until(now, next))),
        _ => None,
    }
}

/// The same for a narrow column.
pub fn next_try(status: &HostStatus, now: DateTime<FixedOffset>, keymap: &Keymap) -> String {
    match next(&status.contact, now, keymap) {
        Some(NextAttempt::Now) => "now".to_string(),
        Some(NextAttempt::After(time)) => time,
        Some(NextAttempt::Answered(key) | NextAttempt::Wanted(key)) => key,
        None => "-".to_string(),
    }
}

/// How long until then, in the same coarse steps as an age.
pub fn until(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    age(then, now)
}
