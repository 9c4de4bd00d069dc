//! The hosts of the fleet, as far as the console knows.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use chrono::{DateTime, FixedOffset};

use super::age;
use crate::config::Host;
use crate::console::command::Command;
use crate::console::keymap::Keymap;
use crate::engine::{Contact, HostStatus, Reach, Setting};

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
    pub settings: HashMap<Host, Result<Vec<Setting>, String>>,
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
fn rank(status: &HostStatus) -> (Reach, bool, bool) {
    let contact = &status.contact;
    let (asks, trying) = (contact.asks.is_some(), contact.trying);
    match contact.reach {
        Reach::HostKey if !asks => (Reach::HostKey, false, false),
        _ if asks => (Reach::HostKey, true, false),
        Reach::Unknown => (Reach::Unknown, false, !trying),
        reach => (reach, false, false),
    }
}

/// The word for how a host stands.
pub fn word(status: &HostStatus) -> &'static str {
    if status.contact.asks.is_some() {
        return "ASKS";
    }
    match (status.contact.reach, status.contact.trying) {
        (Reach::HostKey, _) => "HOSTKEY",
        (Reach::Refused, _) => "REFUSED",
        (Reach::Away, _) => "AWAY",
        (Reach::Unknown, true) => "CONNECTING",
        (Reach::Unknown, false) => "UNKNOWN",
        (Reach::Up, _) => "UP",
    }
}

/// Why nobody on a host can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The reason; it may be in the host's words.
    pub reason: String,
    /// When it is tried again, if that is known.
    pub next: Option<Next>,
}

/// When a host is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is being tried.
    Now,
    /// After about so long.
    After(String),
    /// Once its question is answered, by this key.
    Answered(String),
    /// When the operator wants it, by this key.
    Wanted(String),
}

impl Next {
    /// In a column.
    pub fn short(&self) -> String {
        match self {
            Next::Now => "trying".to_string(),
            Next::After(time) => format!("next {time}"),
            Next::Answered(_) | Next::Wanted(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Now => f.write_str("trying now"),
            Next::After(time) => write!(f, "next try {time}"),
            Next::Answered(key) => write!(f, "{key} answers"),
            Next::Wanted(key) => write!(f, "{key} tries again"),
        }
    }
}

impl fmt::Display for Trouble {
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
) -> Option<Trouble> {
    let contact = &status.contact;
    if !contact.reach.is_trouble() && contact.asks.is_none() {
        return None;
    }
    Some(Trouble {
        reason: contact.reason().unwrap_or_else(|| "no answer".to_string()),
        next: Some(next(contact, now, keymap).unwrap_or(Next::Now)),
    })
}

/// When a host is tried next, if it is.
fn next(contact: &Contact, now: DateTime<FixedOffset>, keymap: &Keymap) -> Option<Next> {
    if contact.asks.is_some() {
        return Some(Next::Answered(keymap.key(Command::Answer)));
    }
    match (contact.barred, contact.trying, contact.next) {
        (true, ..) => Some(Next::Wanted(keymap.key(Command::TryNow))),
        (_, true, _) => Some(Next::Now),
        (.., Some(next)) => Some(Next::After(until(now, next))),
        _ => None,
    }
}

/// The same for a narrow column.
pub fn next_try(status: &HostStatus, now: DateTime<FixedOffset>, keymap: &Keymap) -> String {
    match next(&status.contact, now, keymap) {
        Some(Next::Now) => "now".to_string(),
        Some(Next::After(time)) => time,
        Some(Next::Answered(key) | Next::Wanted(key)) => key,
        None => "-".to_string(),
    }
}

/// How long until then, in the same coarse steps as an age.
pub fn until(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    age(then, now)
}
