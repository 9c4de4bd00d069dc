//! What was alerted, and what waits to be: decides which conditions become events. Pure data.
//!
//! A condition is alerted when it begins, and again when it has ended and come back, or still holds
//! after `repeat_after`. What cannot be delivered waits, within bounds of number, attempts and age.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use super::conditions::{
    CHANGE_OVERLAP, EarlierChecks, Findings, RunEnd, failure_keys, immediate_kind, rules_out,
    state_condition, state_kinds, subject_of,
};
use super::event::{AlertEvent, Condition, Severity, Subject, kind_of_state};
use crate::base::clock::MAX_CLOCK_LEAD;
use crate::base::digest::Digest;
use crate::config::{AlertKind, AlertSettings, Config, JournalTarget};
use crate::engine::{StateChange, StateObserver};

/// Maximum number of events that wait.
const MAX_PENDING_EVENTS: usize = 500;

/// Age after which an event that could not be delivered is dropped.
const MAX_PENDING_AGE: Duration = Duration::days(7);

/// Number of failed attempts after which an event is dropped.
const MAX_ATTEMPTS: u32 = 12;

/// Pause after the first failed attempt, which doubles with each, and the longest pause.
const FIRST_RETRY_PAUSE: Duration = Duration::minutes(5);
const LONGEST_RETRY_PAUSE: Duration = Duration::hours(6);

/// Minimum time between two alerts of one subject, however often its condition comes and goes.
const MIN_ALERT_INTERVAL: Duration = Duration::minutes(10);

/// The same for the disk, whose free space may waver around its limit.
const MIN_DISK_INTERVAL: Duration = Duration::hours(6);

/// How long a condition that has ended is remembered.
const ENDED_MEMORY: Duration = Duration::days(2);

/// The time that `max_per_hour` counts.
const RATE_WINDOW: Duration = Duration::hours(1);

/// A channel on which events go out; the variants are in the order in which they are tried, the one that
/// may take longest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertChannel {
    /// The journal or syslog.
    Journal,
    /// The address of `url`.
    Url,
    /// The program of `command`.
    Command,
}

impl AlertChannel {
    /// Returns the name, which is that of its key in the config.
    pub fn as_str(self) -> &'static str {
        match self {
            AlertChannel::Command => "command",
            AlertChannel::Url => "url",
            AlertChannel::Journal => "journal",
        }
    }

    /// Returns the channels that the settings name.
    pub fn of_settings(settings: &AlertSettings) -> BTreeSet<AlertChannel> {
        let channels = [
            (AlertChannel::Command, settings.command.is_some()),
            (AlertChannel::Url, settings.url.is_some()),
            (
                AlertChannel::Journal,
                settings.journal != JournalTarget::None,
            ),
        ];
        let named = channels.into_iter().filter(|(_, is_named)| *is_named);
        named.map(|(channel, _)| channel).collect()
    }
}

/// A condition that was alerted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AlertedCondition {
    /// When it was first seen, the last time that it began.
    since: DateTime<FixedOffset>,
    /// The last state change that was taken into account.
    changed: DateTime<FixedOffset>,
    /// When its last event was raised.
    alerted: DateTime<FixedOffset>,
    /// Whether it held at the last check.
    #[serde(rename = "open")]
    is_open: bool,
    /// The agents that have it.
    agents: BTreeSet<String>,
}

/// An event that waits for its delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingEvent {
    /// The event.
    pub event: AlertEvent,
    /// Its kind and subject.
    key: String,
    /// The channels on which it has yet to go.
    pub channels: BTreeSet<AlertChannel>,
    /// Whether it was sent before on some channel, or tried to be.
    #[serde(rename = "tried")]
    is_tried: bool,
    /// Number of attempts in which a channel failed.
    attempts: u32,
    /// The earliest time of the next attempt.
    not_before: DateTime<FixedOffset>,
}

/// The alerts of one config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outbox {
    /// When conditions were last looked for.
    pub checked: Option<DateTime<FixedOffset>>,
    /// When each agent was first looked at.
    pub agents: BTreeMap<String, DateTime<FixedOffset>>,
    /// Number of checks so far: a process that finds another one here than before has old facts.
    pub checks: u64,
    /// Number of the last record of the ledger at the last check.
    last_record: Option<u64>,
    /// The last state change of the log at the last check.
    last_change: Option<Digest>,
    /// What was alerted, by kind and subject.
    conditions: BTreeMap<String, AlertedCondition>,
    /// What waits.
    pub pending: Vec<PendingEvent>,
    /// When events were sent within the last hour.
    sent: Vec<DateTime<FixedOffset>>,
    /// Number of events that were dropped since the last report of it.
    pub dropped: usize,
}

/// An event that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingAlert {
    /// Its kind.
    #[serde(rename = "event")]
    pub kind: AlertKind,
    /// The event in one sentence.
    pub message: String,
    /// The earliest time of its next attempt.
    pub until: DateTime<FixedOffset>,
}

/// Follows the message of an event that had ended before it was sent.
const OVER_NOTE: &str = " (over by now)";

/// Returns what is sent of an event.
fn message_of(event: &AlertEvent) -> String {
    let note = if event.is_over { OVER_NOTE } else { "" };
    format!("{}{note}", event.message)
}

/// Returns how many events of a severity may be sent within an hour.
fn hourly_limit(settings: &AlertSettings, severity: Severity) -> usize {
    match severity {
        Severity::Critical => settings.max_per_hour,
        Severity::Warning => settings.max_per_hour - settings.max_per_hour / 4,
    }
}

/// What a check works with.
pub(super) struct CheckContext<'a> {
    pub config: &'a Config,
    pub settings: &'a AlertSettings,
    pub now: DateTime<FixedOffset>,
}

impl CheckContext<'_> {
    fn is_repeat_due(&self, alerted: DateTime<FixedOffset>) -> bool {
        let passed = (self.now - alerted).to_std().unwrap_or_default();
        self.settings.repeat_after.is_some_and(|it| passed >= it)
    }
}

impl Outbox {
    /// Returns what a check needs to know of earlier ones.
    pub fn earlier_checks(&self) -> EarlierChecks<'_> {
        EarlierChecks {
            last: self.checked,
            first_seen: &self.agents,
            last_record: self.last_record,
            last_change: self.last_change,
        }
    }

    /// Makes events of what a check found.
    pub fn add_findings(&mut self, found: &Findings, context: &CheckContext<'_>) {
        self.forget_future(context.now);
        let is_configured = |name: &String| context.config.agent(name).is_some();
        self.agents.retain(|name, _| is_configured(name));
        for agent in &context.config.agents {
            self.agents.entry(agent.name.clone()).or_insert(context.now);
        }
        for change in &found.changes {
            self.apply_change(change, context);
        }
        for end in &found.run_ends {
            self.apply_run_end(end, context);
        }
        let mut holding: BTreeMap<String, Vec<&Condition>> = BTreeMap::new();
        for condition in &found.holding {
            let key = condition.subject.key(condition.kind);
            holding.entry(key).or_default().push(condition);
        }
        for (key, alerted) in &mut self.conditions {
            if !holding.contains_key(key) {
                alerted.retain_unknown(found.unknown.get(key));
            }
        }
        for (key, conditions) in &holding {
            self.apply_holding(key, conditions, found.unknown.get(key), context);
        }
        self.conditions
            .retain(|_, it| it.is_open || context.now - it.alerted.max(it.changed) < ENDED_MEMORY);
        for pending in &mut self.pending {
            let alerted = self.conditions.get(&pending.key);
            pending.event.is_over = alerted.is_none_or(|it| !it.is_open);
        }
        self.checked = Some(context.now);
        self.checks = self.checks.wrapping_add(1);
        self.last_record = found.last_record.or(self.last_record);
        self.last_change = found.last_change.or(self.last_change);
        self.drop_excess(context.now);
    }

    /// Forgets times of a clock that was ahead: nothing would happen until then.
    fn forget_future(&mut self, now: DateTime<FixedOffset>) {
        let limit = now + MAX_CLOCK_LEAD;
        self.sent.retain(|time| *time <= limit);
        for pending in &mut self.pending {
            if pending.event.time > limit {
                pending.event.time = now;
                pending.not_before = now;
            }
        }
        for (key, alerted) in &mut self.conditions {
            let kind = key.split(' ').next().and_then(AlertKind::parse);
            // What a missed schedule is counted from tells it from another one.
            if kind != Some(AlertKind::MissedSchedule) {
                alerted.since = alerted.since.min(now);
            }
            if alerted.changed > limit {
                // Changes that this check finds are news.
                alerted.changed = now - CHANGE_OVERLAP;
            }
            // An event that waits is alerted later than now.
            let interval = kind.map_or(MIN_ALERT_INTERVAL, min_interval);
            if alerted.alerted > limit + interval {
                alerted.alerted = now - interval;
            }
        }
        for time in self.agents.values_mut() {
            *time = (*time).min(now);
        }
    }

    /// Takes a state change into account: it ends a condition, begins one, or both.
    fn apply_change(&mut self, change: &StateChange, context: &CheckContext<'_>) {
        let config = context.config;
        let key_of = |kind| subject_of(config, kind, &change.agent).key(kind);
        let began = immediate_kind(change.to);
        // The line says that the agent was in another state before: a run ended this one. What the
        // guard sees, it ends.
        let was_over = |kind| {
            let is_by_guard = change.observer == StateObserver::Guard;
            is_by_guard || change.from.is_none_or(|from| rules_out(from, kind))
        };
        let is_over = |kind: &AlertKind| {
            let is_new = kind_of_state(change.to) == Some(*kind) && was_over(*kind);
            rules_out(change.to, *kind) || is_new && Some(*kind) != began
        };
        for kind in state_kinds().filter(is_over) {
            if let Some(alerted) = self.conditions.get_mut(&key_of(kind))
                && alerted.changed < change.time
            {
                alerted.changed = change.time;
                alerted.remove_agent(&change.agent);
            }
        }
        let Some(kind) = began.filter(|kind| context.settings.kinds.contains(kind)) else {
            return;
        };
        let key = key_of(kind);
        if let Some(alerted) = self.conditions.get_mut(&key) {
            if change.time <= alerted.changed {
                return;
            }
            alerted.changed = change.time;
            if alerted.is_open && was_over(kind) {
                alerted.remove_agent(&change.agent);
            }
            if alerted.is_open {
                alerted.agents.insert(change.agent.clone());
                return;
            }
        }
        let condition = state_condition(config, kind, change);
        let agents = BTreeSet::from([change.agent.clone()]);
        self.raise(&key, &condition, agents, false, context);
    }

    /// Takes the end of a run into account. A success ends the failure of its agent, and shows that
    /// its host is back; so does a failure of the agent alone.
    fn apply_run_end(&mut self, end: &RunEnd, context: &CheckContext<'_>) {
        let (agent, failure) = match end {
            RunEnd::Succeeded(agent) => (Some(agent), None),
            RunEnd::Failed(condition) => (condition.agent.as_ref(), Some(condition)),
        };
        let failed_key = failure.map(|it| it.subject.key(it.kind));
        let is_lost = failure.is_some_and(|it| matches!(it.subject, Subject::Host(_)));
        if let Some(agent) = agent.filter(|_| !is_lost) {
            for key in failure_keys(context.config, agent) {
                let alerted = self.conditions.get_mut(&key);
                if let Some(alerted) = alerted.filter(|_| Some(&key) != failed_key.as_ref()) {
                    alerted.remove_agent(agent);
                }
            }
        }
        let (Some(failure), Some(key)) = (failure, failed_key) else {
            return;
        };
        if let Some(alerted) = self.conditions.get_mut(&key).filter(|it| it.is_open) {
            alerted.agents.extend(agent.cloned());
            let mut untried = self.pending.iter_mut().filter(|it| !it.is_tried);
            if let Some(waiting) = untried.find(|it| it.key == key) {
                waiting.event.name_agents(&alerted.agents);
            }
            return;
        }
        let agents = agent.cloned().into_iter().collect();
        self.raise(&key, failure, agents, false, context);
    }

    /// Takes a condition that holds into account, which several agents may have, and which `unknown`
    /// further ones may still have.
    fn apply_holding(
        &mut self,
        key: &str,
        conditions: &[&Condition],
        unknown: Option<&BTreeSet<String>>,
        context: &CheckContext<'_>,
    ) {
        let first = conditions.iter().min_by_key(|it| it.since);
        let Some(first) = first else { return };
        let mut agents: BTreeSet<String> = conditions
            .iter()
            .filter_map(|it| it.agent.clone())
            .collect();
        let latest = conditions.iter().map(|it| it.since).max();
        let mut is_repeated = false;
        if let Some(alerted) = self.conditions.get_mut(key) {
            alerted.changed = alerted.changed.max(latest.unwrap_or(first.since));
            // A clock that was set back ended it, and no reset.
            alerted.is_open |=
                first.kind == AlertKind::MissedSchedule && alerted.since == first.since;
            if alerted.is_open {
                let before = alerted.agents.iter();
                let hidden = before.filter(|it| unknown.is_some_and(|names| names.contains(*it)));
                agents.extend(hidden.cloned());
                alerted.agents.clone_from(&agents);
                if !context.is_repeat_due(alerted.alerted) {
                    return;
                }
                is_repeated = true;
            }
        }
        self.raise(key, first, agents, is_repeated, context);
    }

    /// Makes an event of a condition, and remembers it.
    fn raise(
        &mut self,
        key: &str,
        condition: &Condition,
        agents: BTreeSet<String>,
        is_repeated: bool,
        context: &CheckContext<'_>,
    ) {
        let now = context.now;
        let before = self.conditions.get(key);
        let since = match before {
            Some(before) if is_repeated => before.since,
            _ => condition.since,
        };
        let interval = min_interval(condition.kind);
        let not_before = before.map_or(now, |before| now.max(before.alerted + interval));
        let event = AlertEvent {
            since,
            is_repeated,
            ..AlertEvent::new(condition, &agents, context.config, now)
        };
        let changed = before.map_or(since, |before| before.changed.max(condition.since));
        self.conditions.insert(
            key.to_string(),
            AlertedCondition {
                since,
                changed,
                alerted: not_before,
                is_open: true,
                agents,
            },
        );
        let mut untried = self.pending.iter_mut().filter(|it| !it.is_tried);
        if let Some(same) = untried.find(|it| it.key == key) {
            same.event = AlertEvent {
                id: same.event.id.clone(),
                since: same.event.since,
                time: same.event.time,
                times: same.event.times + 1,
                ..event
            };
            return;
        }
        self.pending.push(PendingEvent {
            event,
            key: key.to_string(),
            channels: AlertChannel::of_settings(context.settings),
            is_tried: false,
            attempts: 0,
            not_before,
        });
    }

    /// Drops events that are too old or too many, the least urgent and oldest first.
    fn drop_excess(&mut self, now: DateTime<FixedOffset>) {
        let before = self.pending.len();
        self.pending
            .retain(|it| now - it.event.time < MAX_PENDING_AGE && it.attempts < MAX_ATTEMPTS);
        if self.pending.len() > MAX_PENDING_EVENTS {
            let rank = |it: &PendingEvent| (it.event.kind, std::cmp::Reverse(it.event.time));
            self.pending.sort_by_key(rank);
            self.pending.truncate(MAX_PENDING_EVENTS);
        }
        self.dropped += before - self.pending.len();
    }

    /// Returns the most urgent event that may go out now on one of the channels. Its first attempt counts
    /// against the limit of an hour, so that a channel which is broken does not keep the others from new
    /// events. A part of the limit is kept for critical events: an agent that drifts time and again
    /// cannot hide a tampered baseline.
    pub fn take_due(
        &mut self,
        channels: &BTreeSet<AlertChannel>,
        settings: &AlertSettings,
        now: DateTime<FixedOffset>,
    ) -> Option<PendingEvent> {
        self.sent.retain(|time| now - *time < RATE_WINDOW);
        let is_due = |it: &&PendingEvent| {
            it.not_before <= now
                && !it.channels.is_disjoint(channels)
                && (it.is_tried || self.sent.len() < hourly_limit(settings, it.event.severity))
        };
        let due = self.pending.iter_mut().filter(|it| is_due(&&**it));
        let due = due.min_by_key(|it| (it.event.kind, it.event.time))?;
        if !due.is_tried {
            due.is_tried = true;
            self.sent.push(now);
            // The pause before the next event of the subject begins now.
            if let Some(alerted) = self.conditions.get_mut(&due.key) {
                alerted.alerted = now;
            }
        }
        let mut due = due.clone();
        due.event.message = message_of(&due.event);
        Some(due)
    }

    /// Returns the most urgent event that waits, and until when at least.
    pub fn next_waiting(
        &self,
        settings: &AlertSettings,
        now: DateTime<FixedOffset>,
    ) -> Option<WaitingAlert> {
        let next = self.pending.iter();
        let next = next.min_by_key(|it| (it.not_before, it.event.kind, it.event.time))?;
        let sent = self.sent.iter().filter(|time| now - **time < RATE_WINDOW);
        let mut sent: Vec<_> = sent.copied().collect();
        sent.sort();
        // The oldest of those that count leaves room for one.
        let limit = hourly_limit(settings, next.event.severity);
        let is_limited = !next.is_tried && sent.len() >= limit;
        let room = sent.get(sent.len().saturating_sub(limit));
        let room = room.filter(|_| is_limited).map(|time| *time + RATE_WINDOW);
        Some(WaitingAlert {
            kind: next.event.kind,
            message: message_of(&next.event),
            until: room.map_or(next.not_before, |room| room.max(next.not_before)),
        })
    }

    /// Notes on which channels an event went out, and on which it did not.
    pub fn note_delivery(
        &mut self,
        id: &str,
        delivered: &BTreeSet<AlertChannel>,
        has_failed: bool,
        now: DateTime<FixedOffset>,
    ) {
        let mut waiting = self.pending.iter_mut();
        let Some(pending) = waiting.find(|it| it.event.id == id) else {
            return;
        };
        pending
            .channels
            .retain(|channel| !delivered.contains(channel));
        if has_failed {
            let pause = FIRST_RETRY_PAUSE * 2_i32.saturating_pow(pending.attempts.min(10));
            pending.attempts += 1;
            pending.not_before = now + pause.min(LONGEST_RETRY_PAUSE);
        }
        self.pending.retain(|it| !it.channels.is_empty());
        self.drop_excess(now);
    }

    /// Forgets channels that the config does not name any more.
    pub fn retain_channels(&mut self, channels: &BTreeSet<AlertChannel>) {
        for pending in &mut self.pending {
            pending
                .channels
                .retain(|channel| channels.contains(channel));
        }
        self.pending.retain(|it| !it.channels.is_empty());
    }
}

/// Returns the minimum time between two alerts of one subject.
fn min_interval(kind: AlertKind) -> Duration {
    match kind {
        AlertKind::Disk => MIN_DISK_INTERVAL,
        _ => MIN_ALERT_INTERVAL,
    }
}

impl AlertedCondition {
    /// Ends the condition, but for agents of which it is not known whether they have it; one about no
    /// agent ends unless it is unknown as a whole.
    fn retain_unknown(&mut self, unknown: Option<&BTreeSet<String>>) {
        let is_about_agents = !self.agents.is_empty();
        self.agents
            .retain(|agent| unknown.is_some_and(|names| names.contains(agent)));
        let is_kept = if is_about_agents {
            !self.agents.is_empty()
        } else {
            unknown.is_some()
        };
        self.is_open &= is_kept;
    }

    fn remove_agent(&mut self, agent: &str) {
        self.agents.remove(agent);
        self.is_open &= !self.agents.is_empty();
    }
}
