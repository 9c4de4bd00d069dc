//! Hosts screen: the hosts of the fleet and the status of their connections.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use chrono::{DateTime, FixedOffset};

use crate::config::SshHost;
use crate::console::age::format_age;
use crate::console::command::Command;
use crate::console::keys::keymap::Keymap;
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{ConnectionSetting, ConnectionStatus, HostStatus, Reachability};

/// Reason why the hosts screen is empty.
pub const NO_HOSTS_REASON: &str = "no agent of this fleet is on another host";

/// Hosts screen.
#[derive(Clone, Debug, Default)]
pub struct HostsScreen {
    statuses: Vec<HostStatus>,
    /// Hosts that were connected in this session.
    once_connected: HashSet<SshHost>,
    /// Index of each agent's host in the list.
    index_by_agent: HashMap<String, usize>,
    /// Number of hosts of each name.
    counts_by_name: HashMap<String, usize>,
    /// Position in the hosts. The cursor is on the worst until a key moves it.
    pub list: ListPane<SshHost>,
    /// Logins of hosts whose question is answered, until they connect or fail.
    pub answered_logins: BTreeSet<String>,
    /// The host of the answer that was the last thing the operator did.
    pub just_answered: Option<String>,
    /// Logins of hosts whose answer came too late; they ask again.
    pub late_logins: BTreeSet<String>,
    /// Effective ssh settings of each host, or why they are unknown.
    pub settings: HashMap<SshHost, Result<Vec<ConnectionSetting>, String>>,
}

impl KeyedRow<SshHost> for HostStatus {
    fn key(&self) -> SshHost {
        self.host.clone()
    }
}

impl HostsScreen {
    /// Returns all hosts, worst first.
    pub fn sorted_statuses(&self) -> Vec<&HostStatus> {
        let mut order: Vec<&HostStatus> = self.statuses.iter().collect();
        order.sort_by_key(|status| severity_rank(status));
        order
    }

    /// Returns all hosts, in the order in which they became known.
    pub fn statuses(&self) -> impl Iterator<Item = &HostStatus> {
        self.statuses.iter()
    }

    /// Returns the host of an agent; `None` for an agent on this machine.
    pub fn status_of_agent(&self, agent: &str) -> Option<&HostStatus> {
        self.index_by_agent
            .get(agent)
            .and_then(|place| self.statuses.get(*place))
    }

    /// Returns the host under the cursor.
    pub fn current_status(&self) -> Option<&HostStatus> {
        let all = self.sorted_statuses();
        all.get(self.list.cursor_in(&all[..])).copied()
    }

    /// Whether another host has the same name.
    pub fn has_namesake(&self, host: &SshHost) -> bool {
        let same = self.counts_by_name.get(&host.name).copied();
        same.unwrap_or_default() > 1
    }

    /// Whether the name of another host begins with that of a host, or is the same.
    pub fn begins_other_name(&self, host: &SshHost) -> bool {
        let own = host.name.to_lowercase();
        let mut names = self.counts_by_name.keys();
        self.has_namesake(host)
            || names.any(|name| *name != host.name && name.to_lowercase().starts_with(&own))
    }

    /// Returns the display name of a host, with user and port if another has the same name.
    pub fn label(&self, host: &SshHost) -> String {
        if self.has_namesake(host) {
            host.authority()
        } else {
            host.name.clone()
        }
    }

    /// Removes the pending question of a host.
    pub fn forget_answered(&mut self, login: &str) {
        let is_host = |it: &&mut HostStatus| it.host.authority() == login;
        for status in self.statuses.iter_mut().filter(is_host) {
            status.connection.pending_prompt = None;
        }
    }

    /// Whether a login is connected now.
    pub fn is_connected(&self, login: &str) -> bool {
        let mut statuses = self.statuses.iter();
        statuses.any(|it| {
            it.host.authority() == login && it.connection.reachability == Reachability::Connected
        })
    }

    /// Whether a host was connected in this session.
    pub fn was_connected(&self, host: &SshHost) -> bool {
        self.once_connected.contains(host)
    }

    /// Replaces the status of a host. Returns the previous one.
    pub fn apply_status(&mut self, status: HostStatus) -> Option<HostStatus> {
        if status.connection.reachability == Reachability::Connected {
            self.once_connected.insert(status.host.clone());
        }
        let known = self.statuses.iter().position(|it| it.host == status.host);
        let place = known.unwrap_or(self.statuses.len());
        for agent in &status.agents {
            self.index_by_agent.insert(agent.clone(), place);
        }
        match self.statuses.get_mut(place) {
            Some(old) => Some(std::mem::replace(old, status)),
            None => {
                let name = status.host.name.clone();
                *self.counts_by_name.entry(name).or_default() += 1;
                self.statuses.push(status);
                None
            }
        }
    }
}

/// Returns how urgently a host needs the operator; hosts with the same label rank equally.
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

/// Returns the label of a host's status.
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

/// Why a host is unreachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProblem {
    /// The reason; it may contain untrusted text of the host.
    pub reason: String,
    /// When the next attempt follows, if that is known.
    pub next_attempt: Option<NextAttempt>,
}

/// When the next attempt to reach a host follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// An attempt is in progress.
    Now,
    /// After about this time.
    After(String),
    /// Once the operator answers its question, with this key.
    OnAnswer(String),
    /// When the operator requests it, with this key.
    OnRequest(String),
}

impl NextAttempt {
    /// Returns a short form for a column.
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

/// Returns why a host is unreachable; `None` if no problem is known.
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

/// Returns when the next attempt follows, if one does.
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

/// Returns when the next attempt follows, for a narrow column.
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

/// Formats the time until an event, in the same coarse steps as an age.
pub fn format_time_until(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    format_age(then, now)
}
