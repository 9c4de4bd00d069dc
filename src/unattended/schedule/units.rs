//! The units of a config, as text: pure.

use std::path::Path;

use super::UnitScope;
use super::calendar::calendar_expression;
use super::escape::{quote, quote_argument, unit_path};
use super::ownership::{ownership_lines, sign_unit};
use super::sandbox::{
    RESTRICT_WRITES_OPTION, SandboxSetup, ServicePurpose, UserSandbox, has_remote_agent,
};
use super::time_limit::{agent_arguments, reset_arguments, start_limit_seconds};
use crate::base::error::Result;
use crate::base::reset_interval::ResetInterval;
use crate::config::{Agent, Config};

/// What the units are rendered from.
#[derive(Clone, Copy, Debug)]
pub struct UnitSetup<'a> {
    /// The config.
    pub config: &'a Config,
    /// Path of this program.
    pub program: &'a Path,
    /// Whose service manager runs the units.
    pub scope: UnitScope,
    /// How units of a user are confined.
    pub user_sandbox: &'a UserSandbox,
}

/// A unit file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Name of the file.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether it is enabled when it is installed.
    pub is_enabled: bool,
}

/// Beginning of the name of every unit.
pub(super) const UNIT_PREFIX: &str = "memory-shepherd";

/// Name of the guard's unit.
pub(super) const GUARD_UNIT: &str = "memory-shepherd-guard.service";

/// Maximum jitter of the timer for all agents, in seconds.
const MAX_JITTER_SECONDS: u32 = 300;

/// Returns the jitter of the timer for all agents, in seconds: less than the interval.
pub(super) fn jitter_seconds(interval: ResetInterval) -> u32 {
    MAX_JITTER_SECONDS.min(interval.seconds() / 5)
}

/// Returns the name of an agent's units, without suffix. A dot is in no name of an agent, so no two
/// units have one name.
fn agent_unit_stem(agent: &str) -> String {
    match agent {
        "guard" => format!("{UNIT_PREFIX}.guard"),
        agent => format!("{UNIT_PREFIX}-{agent}"),
    }
}

/// Returns whose timer a unit is, with or without `.timer`: that of an agent, or of all agents
/// without an interval of their own. None for a unit that is not a timer of the config.
pub fn find_timer_agent<'a>(config: &'a Config, unit: &str) -> Option<Option<&'a str>> {
    let stem = unit.strip_suffix(".timer").unwrap_or(unit);
    if stem == UNIT_PREFIX {
        return Some(None);
    }
    let name = match stem.strip_prefix(UNIT_PREFIX)? {
        ".guard" => "guard",
        rest => rest.strip_prefix('-').filter(|name| *name != "guard")?,
    };
    config.agent(name).map(|agent| Some(agent.name.as_str()))
}

/// Returns the name of a timer for operators, which [`find_timer_agent`] finds again: the agent that it
/// resets, or the unit for all agents without an interval of their own.
pub fn timer_argument(agent: Option<&str>) -> &str {
    agent.unwrap_or("memory-shepherd.timer")
}

/// Returns the agents that the timer for all agents resets.
pub(super) fn shared_agents(config: &Config) -> impl Iterator<Item = &Agent> {
    let agents = config.reset_agents();
    agents.filter(|agent| agent.own_interval().is_none())
}

/// Returns the interval of an agent's timer, and the offset of its resets in seconds.
pub(super) fn agent_schedule(config: &Config, index: usize) -> (ResetInterval, u32) {
    let agent = config.agents.get(index);
    let own = agent.and_then(|agent| agent.own_interval());
    let interval = own.unwrap_or(config.general.every);
    let offset = interval.staggered_offset(index, config.agents.len());
    (interval, offset)
}

/// Renders all units of a config: the pair for all agents, one pair for each agent, the guard.
///
/// # Errors
/// A path that a unit cannot name.
pub fn render_units(setup: UnitSetup<'_>) -> Result<Vec<Unit>> {
    let renderer = Renderer::new(setup)?;
    let config = setup.config;
    let every = config.general.every;
    let jitter = jitter_seconds(every);
    let mut units = vec![
        renderer.reset_service(&ServiceText {
            stem: UNIT_PREFIX,
            description: "Reset of all agents to their baselines",
            argument: None,
            agents: &shared_agents(config).collect::<Vec<_>>(),
            interval: every,
        })?,
        renderer.timer(&TimerText {
            stem: UNIT_PREFIX,
            description: "Schedule for the reset of all agents",
            calendar: calendar_expression(every, 0),
            jitter: Some(jitter),
            is_enabled: shared_agents(config).next().is_some(),
        }),
    ];
    let agents = config.agents.iter().enumerate();
    for (index, agent) in agents.filter(|(_, agent)| agent.reset.is_some()) {
        let (interval, offset) = agent_schedule(config, index);
        let stem = agent_unit_stem(&agent.name);
        units.push(renderer.reset_service(&ServiceText {
            stem: &stem,
            description: &format!("Reset of the agent {} to its baseline", agent.name),
            argument: Some(&agent.name),
            agents: &[agent],
            interval,
        })?);
        units.push(renderer.timer(&TimerText {
            stem: &stem,
            description: &format!("Schedule for the reset of the agent {}", agent.name),
            calendar: calendar_expression(interval, offset),
            jitter: None,
            is_enabled: agent.own_interval().is_some(),
        }));
    }
    units.push(renderer.guard_service()?);
    Ok(units)
}

/// What differs between services that reset agents.
struct ServiceText<'a> {
    stem: &'a str,
    description: &'a str,
    /// The agent that the command line names.
    argument: Option<&'a str>,
    /// The agents that it resets.
    agents: &'a [&'a Agent],
    interval: ResetInterval,
}

/// What differs between timers.
struct TimerText<'a> {
    stem: &'a str,
    description: &'a str,
    calendar: String,
    /// Seconds; none for staggered timers.
    jitter: Option<u32>,
    is_enabled: bool,
}

/// Renders units of one config.
struct Renderer<'a> {
    setup: UnitSetup<'a>,
    program: &'a str,
    config_path: &'a str,
}

impl<'a> Renderer<'a> {
    fn new(setup: UnitSetup<'a>) -> Result<Renderer<'a>> {
        Ok(Renderer {
            setup,
            program: unit_path(setup.program)?,
            config_path: unit_path(&setup.config.path)?,
        })
    }

    /// Returns the command line of a verb, whose words need no quotes, in this sandbox.
    fn command_line(
        &self,
        verb: &str,
        (sandbox, purpose): (&SandboxSetup<'_>, ServicePurpose),
    ) -> String {
        let config = quote_argument(self.config_path);
        let mut line = format!("{} {verb} --config {config}", quote(self.program));
        if !sandbox.has_namespaces(purpose) {
            line.push_str(&format!(" {RESTRICT_WRITES_OPTION}"));
        }
        line
    }

    fn sandbox_setup<'s>(&'s self, agents: &'s [&'s Agent]) -> SandboxSetup<'s> {
        SandboxSetup {
            config: self.setup.config,
            agents,
            scope: self.setup.scope,
            user_sandbox: self.setup.user_sandbox,
            program: self.setup.program,
        }
    }

    fn unit_section(&self, description: &str, is_enabled: bool) -> String {
        let owned = ownership_lines(self.config_path, is_enabled);
        format!("[Unit]\nDescription={description}\n{owned}")
    }

    fn reset_service(&self, service: &ServiceText<'_>) -> Result<Unit> {
        let mut text = self.unit_section(service.description, false);
        let is_remote = has_remote_agent(service.agents.iter().copied());
        // A user's service manager knows no targets of the system.
        if is_remote && self.setup.scope == UnitScope::System {
            text.push_str("Wants=network-online.target\nAfter=network-online.target\n");
        }
        let sandbox = self.sandbox_setup(service.agents);
        let purpose = ServicePurpose::Reset;
        let command = self.command_line(&reset_arguments().join(" "), (&sandbox, purpose));
        let command: Vec<&str> = std::iter::once(command.as_str())
            .chain(agent_arguments(service.argument))
            .collect();
        let agents = service.agents.iter().copied();
        let limit = start_limit_seconds(self.setup.config, agents, service.interval);
        text.push_str(&format!(
            "\n[Service]\nType=oneshot\nExecStart={}\nTimeoutStartSec={limit}\n",
            command.join(" ")
        ));
        text.push_str(&sandbox.lines(purpose)?);
        Ok(Unit {
            name: format!("{}.service", service.stem),
            text: sign_unit(&text),
            is_enabled: false,
        })
    }

    fn timer(&self, timer: &TimerText<'_>) -> Unit {
        let mut text = self.unit_section(timer.description, timer.is_enabled);
        text.push_str(&format!(
            "\n[Timer]\nOnCalendar={}\nAccuracySec=1s\n",
            timer.calendar
        ));
        if let Some(jitter) = timer.jitter {
            text.push_str(&format!(
                "RandomizedDelaySec={jitter}\nFixedRandomDelay=yes\n"
            ));
        }
        text.push_str("Persistent=true\n\n[Install]\nWantedBy=timers.target\n");
        Unit {
            name: format!("{}.timer", timer.stem),
            text: sign_unit(&text),
            is_enabled: timer.is_enabled,
        }
    }

    fn guard_service(&self) -> Result<Unit> {
        let target = match self.setup.scope {
            UnitScope::System => "multi-user.target",
            UnitScope::User => "default.target",
        };
        let sandbox = self.sandbox_setup(&[]);
        let purpose = ServicePurpose::Guard;
        let text = format!(
            "{}\n[Service]\nExecStart={}\nRestart=on-failure\nRestartSec=30\n{}\n[Install]\n\
             WantedBy={target}\n",
            self.unit_section("Guard of the baselines of memory-shepherd", false),
            self.command_line("guard", (&sandbox, purpose)),
            sandbox.lines(purpose)?
        );
        Ok(Unit {
            name: GUARD_UNIT.to_string(),
            text: sign_unit(&text),
            is_enabled: false,
        })
    }
}
