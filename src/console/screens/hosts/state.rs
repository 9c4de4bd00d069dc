//! The hosts of the fleet, as far as the console knows.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use chrono::{DateTime, FixedOffset};

use crate::config::SshHost;
use crate::console::age::format_age;
use crate::console::command::Command;
use crate::console::keymap::Keymap;
use crate::engine::{ConnectionSetting, ConnectionStatus, HostStatus, Reachability};

/// Reason why the hosts screen is empty.
pub const NO_HOSTS_REASON: &str = "no agent of this fleet is on another host";

/// The hosts.
#[derive(Clone, Debug, Default)]
pub struct HostsScreen {
    statuses: Vec<HostStatus>,
    /// Where the host of an agent is in the list.
    index_by_agent: HashMap<String, usize>,
    /// The host under the cursor, once it was moved.
    pub cursor_host: Option<SshHost>,
    /// The logins of hosts that were answered; it is not known yet what came of it.
    pub answered_logins: BTreeSet<String>,
    /// The logins of hosts whose answer came too late; they are going to ask anew.
    pub late_logins: BTreeSet<String>,
    /// What ssh makes of its configuration for a host, or why that is not known.
    pub settings: HashMap<SshHost, Result<Vec<ConnectionSetting>, String>>,
}

impl HostsScreen {
    /// All hosts, the worst first.
    pub fn sorted_statuses(&self) -> Vec<&HostStatus> {
        let mut order: Vec<&HostStatus> = self.statuses.iter().collect();
        order.sort_by_key(|status| severity_rank(status));
        order
    }

    /// The host of an agent; none for one of this machine.
    pub fn status_of_agent(&self, agent: &str) -> Option<&HostStatus> {
        self.index_by_agent
            .get(agent)
            .and_then(|place| self.statuses.get(*place))
    }

    /// The host under the cursor; the worst until it was moved.
    pub fn current_status(&self) -> Option<&HostStatus> {
        let chosen = self
            .statuses
            .iter()
            .find(|it| Some(&it.host) == self.cursor_host.as_ref());
        chosen.or_else(|| self.sorted_statuses().first().copied())
    }

    /// The place of the cursor in the order.
    pub fn cursor_index(&self) -> usize {
        let here = self.current_status().map(|status| &status.host);
        let mut order = self.sorted_statuses().into_iter();
        order.position(|it| Some(&it.host) == here).unwrap_or(0)
    }

    /// Whether another host has the same name.
    pub fn has_namesake(&self, host: &SshHost) -> bool {
        let mut others = self.statuses.iter().filter(|it| it.host != *host);
        others.any(|it| it.host.name == host.name)
    }

    /// What a host is called: its name, where that says which one it is.
    pub fn label(&self, host: &SshHost) -> String {
        match self.has_namesake(host) {
            true => host.authority(),
            false => host.name.clone(),
        }
    }

    /// The question of a host is answered or gone.
    pub fn forget_answered(&mut self, login: &str) {
        let is_host = |it: &&mut HostStatus| it.host.authority() == login;
        for status in self.statuses.iter_mut().filter(is_host) {
            status.connection.pending_prompt = None;
        }
    }

    /// A host stands like this now; how it stood before.
    pub fn apply_status(&mut self, status: HostStatus) -> Option<HostStatus> {
        let known = self.statuses.iter().position(|it| it.host == status.host);
        let place = known.unwrap_or(self.statuses.len());
        for agent in &status.agents {
            self.index_by_agent.insert(agent.clone(), place);
        }
        match self.statuses.get_mut(place) {
            Some(old) => Some(std::mem::replace(old, status)),
            None => {
                self.statuses.push(status);
                None
            }
        }
    }
}

/// How much a host needs the operator; those with the same word have the same.
fn severity_rank(status: &HostStatus) -> (Reachability, bool, bool) {
    let contact = &status.connection;
    let (asks, trying) = (contact.pending_prompt.is_some(), contact.is_connecting);
    match contact.reachability {
        Reachability::HostKeyMismatch if !asks => (Reachability::HostKeyMismatch, false, false),
        _ if asks => (Reachability::HostKeyMismatch, true, false),
        Reachability::Unknown => (Reachability::Unknown, false, !trying),
        reach => (reach, false, false),
    }
}

/// The word for how a host stands.
pub fn status_label(status: &HostStatus) -> &'static str {
    if status.connection.pending_prompt.is_some() {
        return "ASKS";
    }
    match (
        status.connection.reachability,
        status.connection.is_connecting,
    ) {
        (Reachability::HostKeyMismatch, _) => "HOSTKEY",
        (Reachability::Refused, _) => "REFUSED",
        (Reachability::Unreachable, _) => "AWAY",
        (Reachability::Unknown, true) => "CONNECTING",
        (Reachability::Unknown, false) => "UNKNOWN",
        (Reachability::Connected, _) => "UP",
    }
}

/// Why nobody on a host can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProblem {
    /// The reason; it may be in the host's words.
    pub reason: String,
    /// When it is tried again, if that is known.
    pub next_attempt: Option<NextAttempt>,
}

/// When a host is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// It is being tried.
    Now,
    /// After about so long.
    After(String),
    /// Once its question is answered, by this key.
    OnAnswer(String),
    /// When the operator wants it, by this key.
    OnRequest(String),
}

impl NextAttempt {
    /// In a column.
    pub fn short_text(&self) -> String {
        match self {
            NextAttempt::Now => "trying".to_string(),
            NextAttempt::After(time) => format!("next {time}"),
            NextAttempt::OnAnswer(_) | NextAttempt::OnRequest(_) => self.to_string(),
        }
    }
}

impl fmt::Display for NextAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextAttempt::Now => f.write_str("trying now"),
            NextAttempt::After(time) => write!(f, "next try {time}"),
            NextAttempt::OnAnswer(key) => write!(f, "{key} answers"),
            NextAttempt::OnRequest(key) => write!(f, "{key} tries again"),
        }
    }
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.next_attempt
            .iter()
            .try_for_each(|next| write!(f, "; {next}"))
    }
}

/// Why nobody on a host can be reached; none where there is nothing wrong.
pub fn problem_of(
    status: &HostStatus,
    now: DateTime<FixedOffset>,
    keymap: &Keymap,
) -> Option<HostProblem> {
    let contact = &status.connection;
    if !contact.reachability.is_failure() && contact.pending_prompt.is_none() {
        return None;
    }
    Some(HostProblem {
        reason: contact
            .short_reason()
            .unwrap_or_else(|| "no answer".to_string()),
        next_attempt: Some(next_attempt(contact, now, keymap).unwrap_or(NextAttempt::Now)),
    })
}

/// When a host is tried next, if it is.
fn next_attempt(
    contact: &ConnectionStatus,
    now: DateTime<FixedOffset>,
    keymap: &Keymap,
) -> Option<NextAttempt> {
    if contact.pending_prompt.is_some() {
        return Some(NextAttempt::OnAnswer(
            keymap.key_hint(Command::AnswerQuestion),
        ));
    }
    match (
        contact.is_blocked,
        contact.is_connecting,
        contact.next_attempt,
    ) {
        (true, ..) => Some(NextAttempt::OnRequest(keymap.key_hint(Command::RetryHost))),
        (_, true, _) => Some(NextAttempt::Now),
        (.., Some(next)) => Some(NextAttempt::After(format_time_until(now, next))),
        _ => None,
    }
}

/// The same for a narrow column.
pub fn next_attempt_text(
    status: &HostStatus,
    now: DateTime<FixedOffset>,
    keymap: &Keymap,
) -> String {
    match next_attempt(&status.connection, now, keymap) {
        Some(NextAttempt::Now) => "now".to_string(),
        Some(NextAttempt::After(time)) => time,
        Some(NextAttempt::OnAnswer(key) | NextAttempt::OnRequest(key)) => key,
        None => "-".to_string(),
    }
}

/// How long until then, in the same coarse steps as an age.
pub fn format_time_until(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    format_age(then, now)
}
