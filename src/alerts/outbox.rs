//! What was alerted, and what waits to be: decides which conditions become events. Pure data.
//!
//! A condition is alerted when it begins, and again when it has ended and come back, or still holds
//! after `repeat_after`. What cannot be delivered waits, within bounds of number, attempts and age.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use super::conditions::{EarlierChecks, Findings, immediate_kind, state_condition, subject_of};
use super::event::{AlertEvent, Condition, Severity, Subject};
use crate::clock::MAX_CLOCK_LEAD;
use crate::config::{AlertKind, AlertSettings, Config, JournalTarget};
use crate::engine::StateChange;

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
    /// Runs that were refused because another one was at work, by agent.
    busy_runs: BTreeMap<String, String>,
    /// What was alerted, by kind and subject.
    conditions: BTreeMap<String, AlertedCondition>,
    /// What waits.
    pub pending: Vec<PendingEvent>,
    /// When events were sent within the last hour.
    sent: Vec<DateTime<FixedOffset>>,
    /// Number of events that were dropped since the last report of it.
    pub dropped: usize,
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
            busy_runs: &self.busy_runs,
        }
    }

    /// Makes events of what a check found.
    pub fn add_findings(&mut self, found: &Findings, context: &CheckContext<'_>) {
        self.forget_future(context.now);
        self.busy_runs.extend(found.busy_runs.clone());
        let is_configured = |name: &String| context.config.agent(name).is_some();
        self.busy_runs.retain(|name, _| is_configured(name));
        self.agents.retain(|name, _| is_configured(name));
        for agent in &context.config.agents {
            self.agents.entry(agent.name.clone()).or_insert(context.now);
        }
        for change in &found.changes {
            self.apply_change(change, context);
        }
        let mut holding: BTreeMap<String, Vec<&Condition>> = BTreeMap::new();
        for condition in &found.holding {
            let key = condition.subject.key(condition.kind);
            holding.entry(key).or_default().push(condition);
        }
        for (key, conditions) in &holding {
            self.apply_holding(key, conditions, context);
        }
        let fleet_key = Subject::Fleet.key(AlertKind::FailedReset);
        for (key, alerted) in &mut self.conditions {
            // Only a run knows whether runs still fail as a whole.
            let is_known = *key != fleet_key || found.is_run_known;
            if is_known && !holding.contains_key(key) {
                alerted.is_open = false;
                alerted.agents.clear();
            }
        }
        self.conditions
            .retain(|_, it| it.is_open || context.now - it.alerted.max(it.changed) < ENDED_MEMORY);
        self.checked = Some(context.now);
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
        for alerted in self.conditions.values_mut() {
            alerted.since = alerted.since.min(now);
            alerted.changed = alerted.changed.min(now);
            // An event that waits is alerted later than now.
            if alerted.alerted > limit + MIN_DISK_INTERVAL {
                alerted.alerted = now;
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
        let mut ended: Vec<AlertKind> = AlertKind::ALL.to_vec();
        ended.retain(|kind| {
            let is_state = !matches!(
                kind,
                AlertKind::FailedReset | AlertKind::Disk | AlertKind::MissedSchedule
            );
            is_state && Some(*kind) != began
        });
        for kind in ended {
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
            let is_same_kind = change.from.and_then(immediate_kind) == began;
            if alerted.is_open && !is_same_kind {
                // The line says that the agent was in another state before: a run ended this one.
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

    /// Takes a condition that holds into account, which several agents may have.
    fn apply_holding(&mut self, key: &str, conditions: &[&Condition], context: &CheckContext<'_>) {
        let first = conditions.iter().min_by_key(|it| it.since);
        let Some(first) = first else { return };
        let agents: BTreeSet<String> = conditions
            .iter()
            .filter_map(|it| it.agent.clone())
            .collect();
        let latest = conditions.iter().map(|it| it.since).max();
        let mut is_repeated = false;
        if let Some(alerted) = self.conditions.get_mut(key) {
            alerted.changed = alerted.changed.max(latest.unwrap_or(first.since));
            if alerted.is_open {
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
        let interval = match condition.kind {
            AlertKind::Disk => MIN_DISK_INTERVAL,
            _ => MIN_ALERT_INTERVAL,
        };
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
        self.pending
            .sort_by_key(|it| (it.event.kind, std::cmp::Reverse(it.event.time)));
        self.pending.truncate(MAX_PENDING_EVENTS);
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
        let limit_of = |severity| match severity {
            Severity::Critical => settings.max_per_hour,
            Severity::Warning => settings.max_per_hour - settings.max_per_hour / 4,
        };
        let is_due = |it: &&PendingEvent| {
            it.not_before <= now
                && !it.channels.is_disjoint(channels)
                && (it.is_tried || self.sent.len() < limit_of(it.event.severity))
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
        Some(due.clone())
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

impl AlertedCondition {
    fn remove_agent(&mut self, agent: &str) {
        self.agents.remove(agent);
        self.is_open &= !self.agents.is_empty();
    }
}
