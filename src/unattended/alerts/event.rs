//! Events: what an alert says, as the JSON that commands and addresses get.
//!
//! An event has names from the config, states and times, and reasons of the engine. It never has text
//! of a memory. Reasons may quote a host or a path that an agent chose, so each passes
//! [`untrusted`] and is cut.

use std::collections::BTreeSet;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::untrusted;
use crate::config::{AlertKind, Config};
use crate::engine::State;

/// Schema name in the JSON of every event.
const SCHEMA: &str = "memory-shepherd/1";

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// Maximum number of agents that an event names.
const MAX_NAMED_AGENTS: usize = 50;

/// What an event is about: events of one kind and subject are one alert.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An agent.
    Agent(String),
    /// A baseline file, which several agents may use.
    Baseline(String),
    /// A host, with user and port where the config names them.
    Host(String),
    /// The archive's file system.
    Archive,
    /// The fleet as a whole.
    Fleet,
}

impl Subject {
    /// Returns the key of an event of a kind about this subject.
    pub(super) fn key(&self, kind: AlertKind) -> String {
        let kind = kind.as_str();
        match self {
            Subject::Agent(name) => format!("{kind} agent {name}"),
            Subject::Baseline(name) => format!("{kind} baseline {name}"),
            Subject::Host(name) => format!("{kind} host {name}"),
            Subject::Archive => format!("{kind} archive"),
            Subject::Fleet => format!("{kind} fleet"),
        }
    }
}

/// How urgent an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something is not protected, or not done.
    Critical,
    /// Something needs an operator.
    Warning,
}

impl Severity {
    /// Returns the severity of a kind of event.
    pub fn of(kind: AlertKind) -> Severity {
        match kind {
            AlertKind::Tampered | AlertKind::Hostkey | AlertKind::FailedReset | AlertKind::Disk => {
                Severity::Critical
            }
            AlertKind::MissedSchedule
            | AlertKind::Unreachable
            | AlertKind::Drifted
            | AlertKind::Oversize
            | AlertKind::HealthWorse => Severity::Warning,
        }
    }

    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        }
    }
}

/// An event, as it is stored until it is delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertEvent {
    /// The same for all deliveries of this event, and of no other one.
    pub id: String,
    /// Its kind.
    #[serde(rename = "event")]
    pub kind: AlertKind,
    /// How urgent it is.
    pub severity: Severity,
    /// Whether it is a test.
    #[serde(default, rename = "test")]
    pub is_test: bool,
    /// Name of the fleet.
    pub fleet: String,
    /// Tag of the fleet.
    #[serde(default)]
    pub tag: Option<String>,
    /// Path of the config.
    pub config: String,
    /// The agent, if it is about a single one.
    pub agent: Option<String>,
    /// All agents that it concerns, up to a limit.
    pub agents: Vec<String>,
    /// The host that it is about, or that of its agent.
    pub host: Option<String>,
    /// The state of the agents, if it is about one.
    pub state: Option<State>,
    /// When it was first seen.
    pub since: DateTime<FixedOffset>,
    /// When it was raised.
    pub time: DateTime<FixedOffset>,
    /// How often it began before it was sent.
    pub times: usize,
    /// Whether it was alerted before, and still holds.
    #[serde(rename = "repeated")]
    pub is_repeated: bool,
    /// Whether it had ended before it was sent.
    #[serde(default, rename = "over")]
    pub is_over: bool,
    /// The run that it is about.
    pub run: Option<String>,
    /// The event in one sentence.
    pub message: String,
}

/// The JSON of an event.
#[derive(Serialize)]
struct EventDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    event: &'a AlertEvent,
    /// Number of further events that wait.
    waiting: usize,
}

/// What is true of an agent, a host or the fleet, and may be an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The kind of the event.
    pub kind: AlertKind,
    /// What it is about.
    pub subject: Subject,
    /// The agent that it was seen at, if any.
    pub agent: Option<String>,
    /// The state of that agent.
    pub state: Option<State>,
    /// When it was first seen.
    pub since: DateTime<FixedOffset>,
    /// The run that it is about.
    pub run: Option<String>,
    /// The event in one sentence, not made visible yet.
    pub message: String,
}

impl AlertEvent {
    /// Creates the event of a condition that the agents `agents` have.
    pub(super) fn new(
        condition: &Condition,
        agents: &BTreeSet<String>,
        config: &Config,
        now: DateTime<FixedOffset>,
    ) -> AlertEvent {
        let single = condition.agent.as_ref().filter(|_| agents.len() <= 1);
        let host = match &condition.subject {
            Subject::Host(host) => Some(host.clone()),
            _ => single.and_then(|name| config.agent(name)).map(|agent| {
                let host = agent.host();
                host.map_or_else(|| "local".to_string(), |host| host.name.clone())
            }),
        };
        let key = condition.subject.key(condition.kind);
        let identity = format!(
            "{}\n{key}\n{}\n{now}",
            config.path.display(),
            condition.since
        );
        AlertEvent {
            id: Digest::of(identity.as_bytes()).short_hex(16),
            kind: condition.kind,
            severity: Severity::of(condition.kind),
            is_test: false,
            fleet: visible(&config.general.fleet_name),
            tag: config.general.fleet_tag.as_deref().map(visible),
            config: visible(&config.path.display().to_string()),
            agent: single.cloned(),
            agents: agents.iter().take(MAX_NAMED_AGENTS).cloned().collect(),
            host: host.as_deref().map(visible),
            state: condition.state,
            since: condition.since,
            time: now,
            times: 1,
            is_repeated: false,
            is_over: false,
            run: condition.run.clone(),
            message: visible(&condition.message),
        }
    }

    /// Names the agents that it concerns, if they have become more.
    pub(super) fn name_agents(&mut self, agents: &BTreeSet<String>) {
        self.agents = agents.iter().take(MAX_NAMED_AGENTS).cloned().collect();
        if agents.len() > 1 {
            self.agent = None;
        }
    }

    /// Creates a test event of a kind about the first agent of a config.
    pub fn for_test(kind: AlertKind, config: &Config, now: DateTime<FixedOffset>) -> AlertEvent {
        let agent = config.agents.first().map(|agent| agent.name.clone());
        let condition = Condition {
            kind,
            subject: Subject::Fleet,
            agent: agent.clone(),
            state: State::ALL
                .into_iter()
                .find(|it| kind_of_state(*it) == Some(kind)),
            since: now,
            run: None,
            message: format!("test of the alert {}: nothing has happened", kind.as_str()),
        };
        let agents = agent.into_iter().collect();
        AlertEvent {
            is_test: true,
            ..AlertEvent::new(&condition, &agents, config, now)
        }
    }

    /// Returns the JSON of the event; `waiting` further ones wait.
    pub fn to_json(&self, waiting: usize) -> String {
        let document = EventDocument {
            schema: SCHEMA,
            event: self,
            waiting,
        };
        // Plain data with text keys can be serialized.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

/// Makes text visible as one line, and cuts it.
pub(super) fn visible(text: &str) -> String {
    let line = untrusted::visible_line(text);
    let mut cut: String = line.chars().take(MAX_MESSAGE_CHARS).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

/// Returns the first line of an answer that is not empty, to follow what failed; empty without one.
pub(super) fn quote_first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or(String::new(), |line| format!(": {}", visible(line)))
}

/// Returns the kind of event that a state is, if it is one: some of them only after a time.
pub(super) fn kind_of_state(state: State) -> Option<AlertKind> {
    match state {
        State::Tampered => Some(AlertKind::Tampered),
        State::HostKey => Some(AlertKind::Hostkey),
        State::Unreach => Some(AlertKind::Unreachable),
        State::Drifted | State::NoSep => Some(AlertKind::Drifted),
        State::Ill => Some(AlertKind::HealthWorse),
        State::Oversize => Some(AlertKind::Oversize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_message_is_visible_and_cut() {
        let text = format!("a\x1b[31m\n\u{202e}{}", "x".repeat(1000));
        let shown = visible(&text);
        assert!(!shown.contains(['\x1b', '\n', '\u{202e}']), "{shown}");
        assert_eq!(shown.chars().count(), MAX_MESSAGE_CHARS + 1);
    }

    #[test]
    fn keys_of_subjects_differ() {
        let subjects = [
            Subject::Agent("fleet".to_string()),
            Subject::Host("fleet".to_string()),
            Subject::Baseline("fleet".to_string()),
            Subject::Archive,
            Subject::Fleet,
        ];
        let keys: BTreeSet<String> = subjects
            .iter()
            .map(|subject| subject.key(AlertKind::Disk))
            .collect();
        assert_eq!(keys.len(), subjects.len());
    }
}
