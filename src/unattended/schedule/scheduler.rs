//! The built-in scheduler, for machines without a service manager: resets are due at the same times
//! as those of the timers that `schedule install` writes.
//!
//! It works with the local time of the machine. A time that passed while the machine was suspended,
//! or while another run was at work, is made up for once, however many such times there were; one
//! that passed before the scheduler was started, too, if the agents have been reset before.

#[cfg(test)]
mod tests;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, TimeZone};

use super::units::{agent_schedule, jitter_seconds, shared_agents};
use crate::base::digest::Digest;
use crate::base::reset_interval::ResetInterval;
use crate::config::{Agent, Config};

/// Maximum time between two looks at the clock, which may be set, or jump over a suspension.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Agents that are reset together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledGroup {
    /// The agent with an interval of its own; none for all agents that have none.
    pub agent: Option<String>,
    /// How often they are reset.
    pub interval: ResetInterval,
    /// Seconds by which their times are later than those of the interval.
    pub offset: u32,
}

impl ScheduledGroup {
    /// Returns the groups of a config: that of the agents without an interval of their own, with a
    /// jitter that is always the same for a config at a path, then the others, evenly apart.
    pub fn of_config(config: &Config) -> Vec<ScheduledGroup> {
        let agents = config.agents.iter().enumerate();
        let own = agents.filter(|(_, agent)| agent.own_interval().is_some());
        let own = own.map(|(index, _)| ScheduledGroup::of_agent(config, index));
        let fleet = ScheduledGroup::of_fleet(config);
        fleet.into_iter().chain(own.flatten()).collect()
    }

    /// Returns the group that a timer resets: that of an agent with an interval of its own; that of
    /// the others for any other agent, and without a name. None if no timer resets it.
    pub fn of_timer(config: &Config, agent: Option<&str>) -> Option<ScheduledGroup> {
        let index = agent.and_then(|name| config.agent_index(name));
        if index.is_some_and(|index| config.agents[index].reset.is_none()) {
            return None;
        }
        match index.filter(|index| config.agents[*index].own_interval().is_some()) {
            Some(index) => ScheduledGroup::of_agent(config, index),
            None => ScheduledGroup::of_fleet(config),
        }
    }

    /// Returns the group of an agent with an interval of its own.
    fn of_agent(config: &Config, index: usize) -> Option<ScheduledGroup> {
        let (interval, offset) = agent_schedule(config, index);
        Some(ScheduledGroup {
            agent: Some(config.agents.get(index)?.name.clone()),
            interval,
            offset,
        })
    }

    /// Returns the group of the agents without an interval of their own, if there are any.
    fn of_fleet(config: &Config) -> Option<ScheduledGroup> {
        let interval = config.general.every;
        shared_agents(config).next().map(|_| ScheduledGroup {
            agent: None,
            interval,
            offset: fixed_jitter(&config.path, interval),
        })
    }

    /// Returns the agents of the group.
    pub fn agents<'a>(&self, config: &'a Config) -> Vec<&'a Agent> {
        match &self.agent {
            Some(name) => config.agent(name).into_iter().collect(),
            None => shared_agents(config).collect(),
        }
    }

    /// Returns when the group is due next after a time, if this program schedules it.
    pub fn next_after<Tz: TimeZone>(&self, after: &DateTime<Tz>) -> DateTime<Tz> {
        self.interval.next_after(self.offset, after)
    }

    /// Returns the first moment of the runs that belong to a due time, and the first moment of those
    /// that belong to the next one. Whatever runs the schedule, with jitter or to the minute as cron
    /// does, a run belongs to the last calendar time before it.
    pub fn span_of<Tz: TimeZone>(&self, due: &DateTime<Tz>) -> (DateTime<Tz>, DateTime<Tz>) {
        let offset = match self.agent {
            Some(_) => self.offset / 60 * 60,
            // The offset of the fleet is its jitter.
            None => 0,
        };
        let interval = chrono::Duration::seconds(i64::from(self.interval.seconds()));
        // Enough for a change of the clock between the two.
        let before = due.clone() - interval * 2 - chrono::Duration::hours(2);
        let mut begins = self.interval.next_after(offset, &before);
        loop {
            let ends = self.interval.next_after(offset, &begins);
            if ends > *due {
                return (begins, ends);
            }
            begins = ends;
        }
    }

    /// Returns the due time after a due time.
    pub fn due_after<Tz: TimeZone>(&self, due: &DateTime<Tz>) -> DateTime<Tz> {
        let (begins, ends) = self.span_of(due);
        ends + (due.clone() - begins)
    }

    /// Returns the name of the agent, or a description of the others.
    pub fn describe(&self) -> &str {
        timer_subject(self.agent.as_deref())
    }
}

/// Returns what a timer resets, in words: an agent, or the others.
pub fn timer_subject(agent: Option<&str>) -> &str {
    agent.unwrap_or("all agents without an interval of their own")
}

/// Returns a jitter that differs between machines and configs, in seconds.
fn fixed_jitter(config: &Path, interval: ResetInterval) -> u32 {
    let host = rustix::system::uname();
    let name = [host.nodename().to_bytes(), config.as_os_str().as_bytes()].join(&0);
    let number = u32::from_str_radix(&Digest::of(&name).short_hex(8), 16);
    number.unwrap_or_default() % jitter_seconds(interval)
}

/// A group, and when it is due.
#[derive(Clone, Debug)]
struct Entry<Tz: TimeZone> {
    group: ScheduledGroup,
    /// The last time at which it was due or, before that, the start of the schedule.
    since: DateTime<Tz>,
    next: DateTime<Tz>,
}

/// How far a clock is set back before times that have passed are due again: less is a correction.
const MIN_SET_BACK: chrono::TimeDelta = chrono::TimeDelta::minutes(1);

/// When each group is due.
#[derive(Clone, Debug)]
pub struct Scheduler<Tz: TimeZone> {
    groups: Vec<Entry<Tz>>,
    /// When the clock was looked at last.
    last_look: DateTime<Tz>,
}

impl<Tz: TimeZone> Entry<Tz> {
    fn new(group: ScheduledGroup, since: DateTime<Tz>) -> Entry<Tz> {
        let next = group.interval.next_after(group.offset, &since);
        Entry { group, since, next }
    }
}

impl<Tz: TimeZone> Scheduler<Tz> {
    /// Starts a schedule. A group whose last run, if it ever had one, was before the time that passed
    /// last is due at once.
    pub fn new(
        groups: Vec<ScheduledGroup>,
        now: &DateTime<Tz>,
        last_run: impl Fn(&ScheduledGroup) -> Option<DateTime<Tz>>,
    ) -> Scheduler<Tz> {
        let groups = groups.into_iter().map(|group| {
            let last = last_run(&group).filter(|last| last < now);
            let since = last.unwrap_or_else(|| now.clone());
            Entry::new(group, since)
        });
        Scheduler {
            groups: groups.collect(),
            last_look: now.clone(),
        }
    }

    /// Takes over the groups of a changed config. A time that passed since a group was due last is
    /// made up for, also if the change moves it: one of a shorter interval is due at once, as with the
    /// timers of systemd. Returns the groups that the change makes due.
    pub fn replace_groups(
        &mut self,
        groups: Vec<ScheduledGroup>,
        now: &DateTime<Tz>,
    ) -> Vec<ScheduledGroup> {
        let before = std::mem::take(&mut self.groups);
        let mut made_due = Vec::new();
        let entries = groups.into_iter().map(|group| {
            let known = before.iter().find(|it| it.group.agent == group.agent);
            match known {
                Some(known) if known.group == group => known.clone(),
                Some(known) => {
                    let entry = Entry::new(group, known.since.clone());
                    if entry.next <= *now && known.next > *now {
                        made_due.push(entry.group.clone());
                    }
                    entry
                }
                None => Entry::new(group, now.clone()),
            }
        });
        self.groups = entries.collect();
        made_due
    }

    /// Returns the groups that are due, and sets their next times. A clock that was set back brings
    /// the next times forward again.
    pub fn take_due(&mut self, now: &DateTime<Tz>) -> Vec<ScheduledGroup> {
        let is_set_back = now.clone() + MIN_SET_BACK < self.last_look;
        if is_set_back || *now > self.last_look {
            self.last_look = now.clone();
        }
        let mut due = Vec::new();
        for entry in &mut self.groups {
            let is_due = entry.next <= *now;
            if is_due {
                due.push(entry.group.clone());
            }
            if is_due || is_set_back {
                *entry = Entry::new(entry.group.clone(), now.clone());
            }
        }
        due
    }

    /// Returns when a group is due next; none without agents.
    fn next_due(&self) -> Option<&DateTime<Tz>> {
        self.groups.iter().map(|entry| &entry.next).min()
    }

    /// Returns how long to wait before the next check of the clock.
    pub fn wait_time(&self, now: &DateTime<Tz>) -> Duration {
        self.next_due().map_or(MAX_WAIT, |next| {
            // One that is due already is not waited for.
            let until_next = next.clone() - now.clone();
            until_next.to_std().unwrap_or_default().min(MAX_WAIT)
        })
    }
}

impl<Tz: TimeZone> Scheduler<Tz>
where
    Tz::Offset: std::fmt::Display,
{
    /// Says what is due next, such as "next reset: 2026-03-14 03:02:41, scout and 2 more", and whether
    /// all of that is paused.
    pub fn describe_next(&self, is_paused: impl Fn(Option<&str>) -> bool) -> String {
        let Some(next) = self.next_due() else {
            return "no agents to reset".to_string();
        };
        let due = self.groups.iter().filter(|entry| entry.next == *next);
        let due: Vec<&ScheduledGroup> = due.map(|entry| &entry.group).collect();
        let next = next.format("%Y-%m-%d %H:%M:%S");
        format!("next reset: {next}, {}", describe_groups(&due, is_paused))
    }
}

/// Says which groups a change of the config has made due, such as "the changed config makes a reset due
/// now: scout"; none if it made none due.
pub fn describe_made_due(
    groups: &[ScheduledGroup],
    is_paused: impl Fn(Option<&str>) -> bool,
) -> Option<String> {
    let groups: Vec<&ScheduledGroup> = groups.iter().collect();
    (!groups.is_empty()).then(|| {
        let described = describe_groups(&groups, is_paused);
        format!("the changed config makes a reset due now: {described}")
    })
}

/// Names groups, of which there is one at least, and says whether all of them are paused.
fn describe_groups(groups: &[&ScheduledGroup], is_paused: impl Fn(Option<&str>) -> bool) -> String {
    let first = groups.first().map_or("", |group| group.describe());
    let more = match groups.len() {
        ..=1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let are_paused = groups.iter().all(|group| is_paused(group.agent.as_deref()));
    let paused = if are_paused { " (paused)" } else { "" };
    format!("{first}{more}{paused}")
}
