//! `doctor`: checks one by one what resets rely on. Prints good results too, for bug reports.
//!
//! [`CHECK_TABLE`] declares the checks: their order, what each examines, and how to put right what it
//! finds. Changes nothing: a check tries operations on unnamed files, or in a directory of its own
//! inside the archive that it removes at once.

mod alerts;
mod baselines;
mod directories;
mod disk_space;
mod hosts;
mod kernel_probe;
mod layouts;
mod ledger;
mod report;
mod runs;
mod schedule;
mod search_index;
mod setup;
mod table;
mod units;
mod write_access;

use super::doctor::units::find_unit_subject;
use super::output::CommandError;
use super::{CommandContext, CommandResult, Environment};
use crate::base::error::{Error, Result};
use crate::config::{self, Agent, Config, ConfigErrors};
use crate::engine::Engine;
use report::DoctorReport;
pub use table::{CHECK_TABLE, CheckRow};
use units::{OriginalSearch, UnitSubject};

/// What the checks examine.
struct DoctorSubject<'a> {
    environment: &'a Environment,
    /// Why there is no fleet, if there is none.
    config_failure: Option<CommandError>,
    fleet: Option<FleetSubject<'a>>,
}

/// The fleet of the config.
struct FleetSubject<'a> {
    environment: &'a Environment,
    engine: &'a Engine,
    /// The agents without those on silent file systems, which only one check touches.
    answering_agents: Vec<&'a Agent>,
    silent_file_systems: Vec<(Error, Vec<&'a str>)>,
    /// The agents that have one memory, by that memory.
    sharing_groups: Vec<Vec<&'a str>>,
    /// Why the group of the archive is not known, if it is not: the archive is not checked then.
    missing_group: Option<ConfigErrors>,
    /// The installed units.
    units: Result<UnitSubject>,
    /// The services of the original tool.
    original_units: OriginalSearch,
}

impl FleetSubject<'_> {
    /// Whether an agent is reset to a baseline.
    fn has_baselines(&self) -> bool {
        let mut agents = self.engine.config().agents.iter();
        agents.any(|agent| agent.reset.is_some())
    }
}

pub(super) fn run(context: &mut CommandContext<'_>) -> CommandResult {
    let (config, config_failure) = match load_examined_config(context) {
        Ok(config) => (Some(config), None),
        Err(failure) => (None, Some(failure)),
    };
    let group = config
        .as_ref()
        .map(|config| super::resolve_archive_group(config, context.environment.find_group));
    let (group, missing_group) = match group {
        Some(Err(errors)) => (None, Some(errors)),
        Some(Ok(group)) => (group, None),
        None => (None, None),
    };
    let engine = config.map(|config| context.new_cli_engine(config, group));
    let subject = DoctorSubject {
        environment: context.environment,
        config_failure,
        fleet: engine
            .as_ref()
            .map(|engine| examine_fleet(context, engine, missing_group)),
    };
    let mut report = DoctorReport::default();
    for row in CHECK_TABLE {
        report.run_check(row, &subject);
    }
    drop(subject);
    context.print_document(&report)?;
    Ok(report.error_kind())
}

/// Finds and loads the config.
fn load_examined_config(context: &CommandContext<'_>) -> Result<Config, CommandError> {
    let env = &context.environment.env;
    let located = config::locate(context.config_flag.as_deref(), env)?;
    located
        .load(env)
        .map_err(|ConfigErrors(diagnostics)| CommandError {
            error: setup::config_error(&located.path),
            diagnostics,
        })
}

fn examine_fleet<'e>(
    context: &'e CommandContext<'_>,
    engine: &'e Engine,
    missing_group: Option<ConfigErrors>,
) -> FleetSubject<'e> {
    let sharing_groups = engine.shared_memories().agents_sharing_memories();
    let silent_file_systems = engine.context().silent_file_systems();
    let is_silent = |name: &str| {
        let mut systems = silent_file_systems.iter();
        systems.any(|(_, agents)| agents.contains(&name))
    };
    let agents = engine.config().agents.iter();
    let (units, original_units) = find_unit_subject(context, engine);
    FleetSubject {
        environment: context.environment,
        engine,
        answering_agents: agents.filter(|agent| !is_silent(&agent.name)).collect(),
        silent_file_systems,
        sharing_groups,
        missing_group,
        units,
        original_units,
    }
}
