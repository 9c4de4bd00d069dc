//! Pauses and skips of scheduled resets, in `<archive_dir>/.shepherd/schedule.json`.
//!
//! `reset --scheduled` reads the file, so they hold for timers of systemd, for `schedule run` and for
//! cron alike, and outlive a restart of the machine. A pause holds until it is ended. A skip names one
//! due time: it holds for the runs that belong to that time, and for no other, so it needs no second
//! write and ends by itself. A file that cannot be trusted or read holds nothing back.
//!
//! What is held back is an agent. The controls of the fleet's timer hold for all agents without an
//! interval of their own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use chrono::{DateTime, Datelike, FixedOffset, TimeZone};
use serde::{Deserialize, Serialize};

use super::scheduler::{ScheduledGroup, timer_subject};
use super::units::shared_agents;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::{Agent, Config, config_identity};
use crate::engine::{Engine, Hold};

/// Years of times that can be calculated with.
const YEARS: RangeInclusive<i32> = 1970..=9999;

/// How long what has ended is remembered: longer than any interval, for alerts.
const ENDED_MEMORY: chrono::Duration = chrono::Duration::days(30);

/// A pause of scheduled resets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// When it began.
    pub since: DateTime<FixedOffset>,
    /// The operator who began it.
    pub by: String,
}

/// A skip of one scheduled reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSkip {
    /// The due time that is skipped.
    pub due: DateTime<FixedOffset>,
    /// The first moment of the runs that belong to it.
    pub begins: DateTime<FixedOffset>,
    /// The first moment of the runs that belong to the next due time.
    pub ends: DateTime<FixedOffset>,
    /// When it was asked for.
    pub since: DateTime<FixedOffset>,
    /// The operator who asked for it.
    pub by: String,
}

/// What an operator decided about the scheduled resets of an agent, or of the fleet's timer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TimerControl {
    /// The agent; none for all agents without an interval of their own.
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<SchedulePause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skip: Option<ScheduleSkip>,
    /// When the last pause ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resumed: Option<DateTime<FixedOffset>>,
}

/// The pauses and skips of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleControls {
    timers: Vec<TimerControl>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ControlsFile {
    /// By the path of the config.
    configs: BTreeMap<String, ScheduleControls>,
}

/// Why a scheduled reset of an agent does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleHold {
    /// The schedule is paused.
    Paused(SchedulePause),
    /// This run is skipped.
    Skipped(ScheduleSkip),
}

/// What an operator changes about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleAction {
    /// No resets until they are resumed.
    Pause,
    /// Resets again: ends a pause and a skip.
    Resume,
    /// No reset at this due time, which is the next one.
    Skip(DateTime<FixedOffset>),
}

/// A change of the pauses and skips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleChange {
    /// The agent; none for all agents without an interval of their own.
    pub agent: Option<String>,
    /// What is changed.
    pub action: ScheduleAction,
}

/// Time to the second, for sentences.
const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S";

impl SchedulePause {
    /// Returns, for example, "paused since 2026-03-14 01:00:06 by ops".
    pub fn describe(&self) -> String {
        format!(
            "paused since {} by {}",
            self.since.format(TIME_FORMAT),
            self.by
        )
    }
}

impl ScheduleSkip {
    /// Returns, for example, "the run due 2026-03-14 04:00:00 is skipped, by ops".
    pub fn describe(&self) -> String {
        let due = self.due.format(TIME_FORMAT);
        format!("the run due {due} is skipped, by {}", self.by)
    }
}

impl ScheduleHold {
    /// Describes it, to be read after the name of an agent.
    pub fn describe(&self) -> String {
        match self {
            ScheduleHold::Paused(pause) => pause.describe(),
            ScheduleHold::Skipped(skip) => skip.describe(),
        }
    }
}

impl ScheduleChange {
    /// Returns the name of what it is about.
    pub fn subject(&self) -> &str {
        timer_subject(self.agent.as_deref())
    }

    /// Describes the change: "scout: no scheduled resets until `schedule resume`".
    pub fn describe(&self) -> String {
        let subject = self.subject();
        match &self.action {
            ScheduleAction::Pause => {
                format!("pause {subject}: no scheduled reset until it is resumed")
            }
            ScheduleAction::Resume => format!("resume {subject}: scheduled resets run again"),
            ScheduleAction::Skip(due) => format!(
                "skip {subject}: no reset at {}; the one after it runs",
                due.format(TIME_FORMAT)
            ),
        }
    }
}

impl TimerControl {
    /// Returns all times in it.
    fn times_mut(&mut self) -> impl Iterator<Item = &mut DateTime<FixedOffset>> {
        let pause = self.pause.as_mut().map(|it| &mut it.since);
        let skip = self.skip.as_mut();
        let skip = skip.map(|it| [&mut it.due, &mut it.begins, &mut it.ends, &mut it.since]);
        let times = pause.into_iter().chain(skip.into_iter().flatten());
        times.chain(self.resumed.as_mut())
    }
}

impl ScheduleControls {
    /// Reads the pauses and skips of an engine's config, with their times in the operator's zone.
    ///
    /// # Errors
    /// The file cannot be read or trusted. Resets then run as scheduled.
    pub fn read(engine: &Engine) -> Result<ScheduleControls> {
        let mut file = read_file(engine)?;
        let key = config_key(engine.config());
        let mut controls = file.configs.remove(&key).unwrap_or_default();
        // Another process may have written them in another time zone.
        let times = controls.timers.iter_mut().flat_map(TimerControl::times_mut);
        let zone = engine.clock().zone();
        times.for_each(|time| *time = zone.at(*time));
        Ok(controls)
    }

    fn control(&self, agent: Option<&str>) -> Option<&TimerControl> {
        let mut timers = self.timers.iter();
        timers.find(|it| it.agent.as_deref() == agent)
    }

    /// Returns the pause of an agent, or of the fleet's timer.
    pub fn pause_of(&self, agent: Option<&str>) -> Option<&SchedulePause> {
        self.control(agent)?.pause.as_ref()
    }

    /// Returns the skip of an agent, or of the fleet's timer, unless its time has passed. However late
    /// the file says that it ends, it holds for one due time of the config.
    pub fn skip_of<Tz: TimeZone>(
        &self,
        config: &Config,
        agent: Option<&str>,
        now: &DateTime<Tz>,
    ) -> Option<&ScheduleSkip> {
        let skip = self.control(agent)?.skip.as_ref()?;
        let group = ScheduledGroup::of_timer(config, agent)?;
        let (_, last) = group.span_of(&skip.begins.with_timezone(&now.timezone()));
        (*now < skip.ends && *now < last).then_some(skip)
    }

    /// Returns what is paused, and what is skipped and has not passed: the agent, none for the
    /// fleet's timer, and why.
    pub fn holds<Tz: TimeZone>(
        &self,
        config: &Config,
        now: &DateTime<Tz>,
    ) -> Vec<(Option<&str>, ScheduleHold)> {
        let has_shared = shared_agents(config).next().is_some();
        let timers = self.timers.iter();
        let timers = timers.filter(|it| it.agent.is_some() || has_shared);
        let holds = timers.filter_map(|timer| {
            let agent = timer.agent.as_deref();
            let pause = timer.pause.clone().map(ScheduleHold::Paused);
            let skip = || self.skip_of(config, agent, now).cloned();
            Some((agent, pause.or_else(|| skip().map(ScheduleHold::Skipped))?))
        });
        holds.collect()
    }

    /// Returns why a scheduled reset of an agent that begins now does not run, if it does not.
    pub fn hold_of<Tz: TimeZone>(
        &self,
        config: &Config,
        agent: &Agent,
        now: &DateTime<Tz>,
    ) -> Option<ScheduleHold> {
        controlling_timers(agent).find_map(|timer| {
            let control = self.control(timer)?;
            if let Some(pause) = &control.pause {
                return Some(ScheduleHold::Paused(pause.clone()));
            }
            let skip = self.skip_of(config, timer, now)?;
            (*now >= skip.begins).then(|| ScheduleHold::Skipped(skip.clone()))
        })
    }

    /// Returns the pause that holds for an agent.
    pub fn pause_of_agent(&self, agent: &Agent) -> Option<&SchedulePause> {
        controlling_timers(agent).find_map(|timer| self.pause_of(timer))
    }

    /// Returns the last time at which resets of an agent were held back by a decision that is over:
    /// the end of a pause, or the due time of a skip.
    pub fn last_release(
        &self,
        agent: &Agent,
        now: DateTime<FixedOffset>,
    ) -> Option<DateTime<FixedOffset>> {
        let times = controlling_timers(agent).filter_map(|timer| self.release_of(timer, now));
        times.max()
    }

    /// Returns that time for an agent by itself, or for the fleet's timer.
    pub fn release_of(
        &self,
        agent: Option<&str>,
        now: DateTime<FixedOffset>,
    ) -> Option<DateTime<FixedOffset>> {
        let control = self.control(agent)?;
        let skipped = control.skip.as_ref().map(|skip| skip.due);
        let times = [control.resumed, skipped].into_iter().flatten();
        times.filter(|time| *time <= now).max()
    }

    fn change(
        &mut self,
        change: &ScheduleChange,
        by: &str,
        now: DateTime<FixedOffset>,
        skip_span: Option<(DateTime<FixedOffset>, DateTime<FixedOffset>)>,
    ) {
        let mut timers = self.timers.iter();
        let index = match timers.position(|it| it.agent == change.agent) {
            Some(index) => index,
            None => {
                self.timers.push(TimerControl {
                    agent: change.agent.clone(),
                    ..TimerControl::default()
                });
                self.timers.len() - 1
            }
        };
        let control = &mut self.timers[index];
        match (&change.action, skip_span) {
            (ScheduleAction::Pause, _) => {
                // An earlier one goes on.
                control.pause.get_or_insert_with(|| SchedulePause {
                    since: now,
                    by: by.to_string(),
                });
            }
            (ScheduleAction::Resume, _) => {
                if control.pause.take().is_some() {
                    control.resumed = Some(now);
                }
                control.skip.take_if(|skip| now < skip.ends);
            }
            (ScheduleAction::Skip(due), Some((begins, ends))) => {
                control.skip = Some(ScheduleSkip {
                    due: *due,
                    begins,
                    ends,
                    since: now,
                    by: by.to_string(),
                });
            }
            (ScheduleAction::Skip(_), None) => {}
        }
    }

    /// Forgets what ended long ago.
    fn forget_ended(&mut self, now: DateTime<FixedOffset>) {
        let limit = now - ENDED_MEMORY;
        for timer in &mut self.timers {
            timer.skip.take_if(|skip| skip.ends < limit);
            timer.resumed.take_if(|resumed| *resumed < limit);
        }
        self.timers
            .retain(|it| it.pause.is_some() || it.skip.is_some() || it.resumed.is_some());
    }
}

/// Returns the timers whose controls hold for an agent: its own, and the fleet's if it has no
/// interval of its own.
fn controlling_timers(agent: &Agent) -> impl Iterator<Item = Option<&str>> {
    let fleet = agent.own_interval().is_none().then_some(None);
    std::iter::once(Some(agent.name.as_str())).chain(fleet)
}

/// Applies changes of pauses and skips, and logs them in `reset.log`.
///
/// # Errors
/// A change is about an agent that the config does not have, a skip is about one that is paused or
/// about a due time that has passed, or the archive cannot be written. Nothing was changed then,
/// unless the change alone cannot be logged.
pub fn change_schedule<Tz: TimeZone>(
    engine: &Engine,
    changes: &[ScheduleChange],
    now: &DateTime<Tz>,
) -> Result<()> {
    let config = engine.config();
    let fixed = |time: &DateTime<Tz>| time.fixed_offset();
    let mut spans = Vec::new();
    for change in changes {
        // What holds back an agent that left the config can be ended.
        if let Some(name) = &change.agent
            && change.action != ScheduleAction::Resume
        {
            engine.agent(name)?.required_reset()?;
        }
        spans.push(match &change.action {
            ScheduleAction::Skip(due) => {
                let group = ScheduledGroup::of_timer(config, change.agent.as_deref());
                let group = group.ok_or_else(|| no_timer_error(change.subject()))?;
                if *due <= fixed(now) {
                    return Err(passed_error(change.subject(), due));
                }
                let (begins, ends) = group.span_of(&due.with_timezone(&now.timezone()));
                Some((fixed(&begins), fixed(&ends)))
            }
            ScheduleAction::Pause | ScheduleAction::Resume => None,
        });
    }
    let mut lock = engine.holds().lock(Hold::Schedule)?;
    // A file that cannot be read is replaced: what it said held nothing back.
    let mut file = read_file(engine).unwrap_or_default();
    let controls = file.configs.entry(config_key(config)).or_default();
    for change in changes {
        let is_skip = matches!(change.action, ScheduleAction::Skip(_));
        if let Some(pause) = controls
            .pause_of(change.agent.as_deref())
            .filter(|_| is_skip)
        {
            return Err(paused_error(change.subject(), pause));
        }
    }
    for (change, span) in changes.iter().zip(spans) {
        controls.change(change, engine.context().user(), fixed(now), span);
    }
    controls.forget_ended(fixed(now));
    let text = serde_json::to_vec_pretty(&file).map_err(|error| {
        let message = format!("cannot serialize the schedule's pauses: {error}");
        Error::new(ErrorKind::Internal, message)
    })?;
    lock.replace(Some(&text))?;
    for change in changes {
        engine.context().log_text(&format!(
            "{}; by {}",
            change.describe(),
            engine.context().user()
        ))?;
    }
    Ok(())
}

fn no_timer_error(subject: &str) -> Error {
    let message = format!("cannot skip a reset of {subject}: no timer resets them");
    Error::new(ErrorKind::Conflict, message)
}

fn passed_error(subject: &str, due: &DateTime<FixedOffset>) -> Error {
    let due = due.format(TIME_FORMAT);
    let message = format!("cannot skip the reset of {subject} due {due}: that time has passed");
    Error::new(ErrorKind::Conflict, message)
        .with_hint("nothing was changed; skip the next one instead")
}

fn paused_error(subject: &str, pause: &SchedulePause) -> Error {
    let message = format!(
        "cannot skip a reset of {subject}: it is {}",
        pause.describe()
    );
    Error::new(ErrorKind::Conflict, message)
        .with_hint("nothing was changed; `schedule resume` ends the pause")
}

fn config_key(config: &Config) -> String {
    config_identity(&config.path).display().to_string()
}

/// Reads the document; an absent one is empty.
fn read_file(engine: &Engine) -> Result<ControlsFile> {
    let hint = "resets run as scheduled; `schedule pause` and `skip` write it again";
    let text = engine.holds().read(Hold::Schedule);
    let text = text.map_err(|error| match error.kind() {
        ErrorKind::Conflict => error.with_hint(hint),
        _ => error,
    })?;
    let Some(text) = text else {
        return Ok(ControlsFile::default());
    };
    let damaged = |why: &str| {
        let path = engine.holds().location(Hold::Schedule);
        let message = format!("{} is ignored: it is damaged: {why}", path.display());
        Error::new(ErrorKind::Conflict, message).with_hint(hint)
    };
    let parsed = serde_json::from_slice::<ControlsFile>(&text);
    let mut parsed = parsed.map_err(|error| damaged(&error.to_string()))?;
    let controls = parsed.configs.values_mut().flat_map(|it| &mut it.timers);
    if controls
        .flat_map(TimerControl::times_mut)
        .any(|it| !YEARS.contains(&it.year()))
    {
        return Err(damaged("a time is out of range"));
    }
    Ok(parsed)
}
