//! The schedule as a whole: the timers of a config in the service managers of the system and the
//! user, what this program would schedule without one, and the pauses and skips. The console and
//! `schedule status` show it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, TimeZone};

use super::UnitScope;
use super::controls::{ScheduleControls, ScheduleHold, SchedulePause, ScheduleSkip};
use super::crontab::crontab_lines;
use super::scheduler::ScheduledGroup;
use super::service_manager::{ServiceManager, Systemctl};
use super::status::{InstalledTimer, TimerStatus, find_installed_timers, read_timer_statuses};
use super::units::find_timer_agent;
use crate::base::clock::Clock;
use crate::base::error::Result;
use crate::config::{Agent, Config, ConfigEnvironment};
use crate::engine::{Engine, Hold, HolderLockKind};

/// Time limit of a command that only asks, so that its answer is worth waiting for.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How the service managers of this machine are reached.
#[derive(Clone, Debug)]
pub struct ManagerAccess {
    /// Directories of the units, for the scopes that have one.
    unit_directories: Vec<(UnitScope, PathBuf)>,
    /// `$XDG_RUNTIME_DIR`.
    runtime_directory: Option<PathBuf>,
    /// Another `systemctl`, and the path that exists while its service manager runs.
    program: Option<(PathBuf, PathBuf)>,
    timeout: Duration,
}

/// The schedule of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleOverview {
    /// The service managers, that of the system first.
    pub managers: Vec<ManagerSchedule>,
    /// What `schedule run` resets, and when.
    pub groups: Vec<GroupSchedule>,
    /// Whether a `schedule run` of the config is running.
    pub is_scheduler_running: bool,
    /// Lines for a crontab, for machines without a service manager.
    pub crontab: Vec<String>,
    /// File of the pauses and skips.
    pub controls_path: PathBuf,
    /// Why the pauses and skips are not known, if they are not.
    pub controls_error: Option<String>,
}

/// The timers of a config in one service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSchedule {
    /// Whose service manager it is.
    pub scope: UnitScope,
    /// Whether it runs.
    pub is_running: bool,
    /// Directory of its units.
    pub directory: PathBuf,
    /// Why the states of the timers are not known, if they are not.
    pub unknown_because: Option<String>,
    /// The timers, by name.
    pub timers: Vec<TimerSchedule>,
}

/// A timer, its state, and what holds it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerSchedule {
    /// The installed unit.
    pub installed: InstalledTimer,
    /// Its state; none if the service manager did not say.
    pub status: Option<TimerStatus>,
    /// What it resets, and what holds that back; none for a unit of an agent that left the config.
    pub group: Option<GroupSchedule>,
}

/// Agents that are reset together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSchedule {
    /// The agent; none for all agents without an interval of their own.
    pub agent: Option<String>,
    /// The agents that are reset.
    pub agents: Vec<String>,
    /// Those of them that are paused or skipped by themselves.
    pub held_agents: Vec<HeldAgent>,
    /// When they are due next: by the service manager, or by this program.
    pub next: Option<DateTime<FixedOffset>>,
    /// When they are due after that.
    pub after_next: Option<DateTime<FixedOffset>>,
    /// Their pause.
    pub pause: Option<SchedulePause>,
    /// Their skip that has not passed.
    pub skip: Option<ScheduleSkip>,
    /// When a pause or a skip of theirs was over last.
    pub resumed: Option<DateTime<FixedOffset>>,
}

/// An agent that is held back by itself, not with its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAgent {
    /// The agent.
    pub agent: String,
    /// What holds it back.
    pub hold: ScheduleHold,
}

impl ManagerAccess {
    /// Creates the access to the service managers of the system and the user; `runtime_directory`
    /// is `$XDG_RUNTIME_DIR`.
    pub fn new(env: &ConfigEnvironment, runtime_directory: Option<PathBuf>) -> ManagerAccess {
        let scopes = [UnitScope::System, UnitScope::User].into_iter();
        // A user without a home has no units.
        let directories = scopes.filter_map(|it| Some((it, it.unit_directory(env).ok()?)));
        ManagerAccess {
            unit_directories: directories.collect(),
            runtime_directory,
            program: None,
            timeout: QUERY_TIMEOUT,
        }
    }

    /// Uses these directories of units, and this program instead of `systemctl`, whose service
    /// manager runs while `runtime_path` exists.
    #[must_use]
    pub fn with_program(
        self,
        unit_directories: Vec<(UnitScope, PathBuf)>,
        program: &Path,
        runtime_path: &Path,
    ) -> ManagerAccess {
        ManagerAccess {
            unit_directories,
            program: Some((program.to_path_buf(), runtime_path.to_path_buf())),
            ..self
        }
    }

    /// Sets the time limit of each question.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> ManagerAccess {
        ManagerAccess { timeout, ..self }
    }

    /// Returns the service manager of a scope.
    pub fn manager<'a>(&self, scope: UnitScope, clock: &'a dyn Clock) -> Systemctl<'a> {
        let manager = Systemctl::new(scope, self.runtime_directory.as_deref(), clock);
        let manager = manager.with_timeout(self.timeout);
        match &self.program {
            Some((program, runtime_path)) => manager.with_program(program, runtime_path),
            None => manager,
        }
    }
}

/// What timers are looked up in.
struct ControlledConfig<'a, Tz: TimeZone> {
    config: &'a Config,
    controls: &'a ScheduleControls,
    now: &'a DateTime<Tz>,
}

impl<Tz: TimeZone> ControlledConfig<'_, Tz> {
    /// Returns what a timer resets, and what holds that back. `next` is when it is due.
    fn group(
        &self,
        agent: Option<&str>,
        agents: &[&Agent],
        next: Option<DateTime<Tz>>,
    ) -> GroupSchedule {
        let group = ScheduledGroup::of_timer(self.config, agent);
        let after_next = next
            .as_ref()
            .and_then(|next| Some(group.as_ref()?.due_after(next).fixed_offset()));
        let names: Vec<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        let holds = self.controls.holds(self.config, self.now).into_iter();
        let held = holds.filter_map(|(held, hold)| {
            let held = held.filter(|name| agent.is_none() && names.iter().any(|it| it == name))?;
            Some(HeldAgent {
                agent: held.to_string(),
                hold,
            })
        });
        GroupSchedule {
            agent: agent.map(str::to_string),
            held_agents: held.collect(),
            agents: names,
            next: next.map(|next| next.fixed_offset()),
            after_next,
            pause: self.controls.pause_of(agent).cloned(),
            skip: self.controls.skip_of(self.config, agent, self.now).cloned(),
            resumed: self.controls.release_of(agent, self.now.fixed_offset()),
        }
    }
}

/// Reads the schedule of an engine's config. `program` is the path of this program.
pub fn read_overview<Tz: TimeZone>(
    engine: &Engine,
    access: &ManagerAccess,
    program: &Path,
    now: &DateTime<Tz>,
) -> ScheduleOverview {
    let config = engine.config();
    let (controls, controls_error) = match ScheduleControls::read(engine) {
        Ok(controls) => (controls, None),
        Err(error) => (
            ScheduleControls::default(),
            Some(error.message().to_string()),
        ),
    };
    let managers = access.unit_directories.iter().map(|(scope, directory)| {
        let manager = access.manager(*scope, engine.clock());
        let place = (*scope, directory.as_path());
        let read = read_timers(place, &config.path, Some(&manager), now);
        let mut schedule = read.unwrap_or_else(|error| ManagerSchedule {
            scope: *scope,
            is_running: manager.is_running(),
            directory: directory.clone(),
            unknown_because: Some(error.message().to_string()),
            timers: Vec::new(),
        });
        add_groups(&mut schedule, config, &controls, now);
        schedule
    });
    let controlled = ControlledConfig {
        config,
        controls: &controls,
        now,
    };
    let groups = ScheduledGroup::of_config(config).into_iter().map(|group| {
        let next = group.next_after(now);
        controlled.group(group.agent.as_deref(), &group.agents(config), Some(next))
    });
    ScheduleOverview {
        managers: managers.collect(),
        groups: groups.collect(),
        is_scheduler_running: engine
            .locks()
            .find_lock_holder_of(HolderLockKind::Scheduler)
            .is_some(),
        crontab: crontab_lines(config, program).unwrap_or_default(),
        controls_path: engine.holds().location(Hold::Schedule),
        controls_error,
    }
}

/// Reads the timers of a config in a directory, and asks a service manager for their states; without
/// one, the directory is none that a service manager reads. With an engine, adds what each timer
/// resets and what holds that back.
///
/// # Errors
/// The directory cannot be read.
pub fn read_manager<Tz: TimeZone>(
    place: (UnitScope, &Path),
    config: &Path,
    manager: Option<&dyn ServiceManager>,
    engine: Option<&Engine>,
    now: &DateTime<Tz>,
) -> Result<ManagerSchedule> {
    let mut schedule = read_timers(place, config, manager, now)?;
    if let Some(engine) = engine {
        let controls = ScheduleControls::read(engine).unwrap_or_default();
        add_groups(&mut schedule, engine.config(), &controls, now);
    }
    Ok(schedule)
}

fn read_timers<Tz: TimeZone>(
    (scope, directory): (UnitScope, &Path),
    config: &Path,
    manager: Option<&dyn ServiceManager>,
    now: &DateTime<Tz>,
) -> Result<ManagerSchedule> {
    let installed = find_installed_timers(directory, config)?;
    let is_running = manager.is_some_and(|manager| manager.is_running());
    let mut statuses = Vec::new();
    let unknown_because = match manager {
        None => Some("--prefix: no service manager was asked".to_string()),
        Some(_) if !is_running => {
            let text = "no service manager is running; the timers are installed files";
            Some(text.to_string())
        }
        Some(_) if installed.is_empty() => None,
        Some(manager) => match read_timer_statuses(&installed, manager, now) {
            Ok(read) => {
                statuses = read;
                None
            }
            Err(error) => Some(error.message().to_string()),
        },
    };
    let mut statuses = statuses.into_iter();
    let timers = installed.into_iter().map(|installed| TimerSchedule {
        installed,
        status: statuses.next(),
        group: None,
    });
    Ok(ManagerSchedule {
        scope,
        is_running,
        directory: directory.to_path_buf(),
        unknown_because,
        timers: timers.collect(),
    })
}

fn add_groups<Tz: TimeZone>(
    schedule: &mut ManagerSchedule,
    config: &Config,
    controls: &ScheduleControls,
    now: &DateTime<Tz>,
) {
    let controlled = ControlledConfig {
        config,
        controls,
        now,
    };
    for timer in &mut schedule.timers {
        let Some(agent) = find_timer_agent(config, &timer.installed.name) else {
            continue;
        };
        let agents: Vec<&Agent> = match agent {
            Some(name) => config.agent(name).into_iter().collect(),
            None => super::units::shared_agents(config).collect(),
        };
        let next = timer.status.as_ref().and_then(|status| status.next);
        let next = next.map(|next| next.with_timezone(&now.timezone()));
        timer.group = Some(controlled.group(agent, &agents, next));
    }
}

impl TimerSchedule {
    /// Returns whether the timer is meant to run, or runs.
    pub fn is_in_use(&self) -> bool {
        let status = self.status.as_ref();
        self.installed.enabled_by_install
            || status.is_some_and(|it| it.active || it.running || it.enabled == "enabled")
    }
}

impl ScheduleOverview {
    /// Returns whether a service manager runs that may have timers.
    pub fn has_manager(&self) -> bool {
        self.managers.iter().any(|manager| manager.is_running)
    }

    /// Returns whether something is known that starts resets: a timer, or `schedule run`.
    pub fn is_in_use(&self) -> bool {
        let mut timers = self.managers.iter().flat_map(|manager| &manager.timers);
        self.is_scheduler_running || timers.any(TimerSchedule::is_in_use)
    }

    /// Returns when an agent is reset next, or all agents without an interval of their own: by the
    /// earliest timer of a service manager, else by `schedule run`.
    pub fn next_due(&self, agent: Option<&str>) -> Option<DateTime<FixedOffset>> {
        let timers = self.managers.iter().flat_map(|manager| &manager.timers);
        let groups = timers.filter_map(|timer| timer.group.as_ref());
        let resets = |group: &&GroupSchedule| match agent {
            Some(name) => group.agents.iter().any(|it| it == name),
            None => group.agent.is_none(),
        };
        let by_timer = groups.filter(resets).filter_map(|group| group.next).min();
        by_timer.or_else(|| self.groups.iter().find(resets)?.next)
    }
}
