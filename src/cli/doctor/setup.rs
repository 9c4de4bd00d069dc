//! Checks of the program, of the user's preferences and of the config itself.

use std::path::Path;

use clap::CommandFactory;

use super::{DoctorReport, DoctorSubject, FleetSubject};
use crate::base::error::{Error, ErrorKind};
use crate::cli::arguments::Cli;
use crate::cli::output::format_count;
use crate::config::{self, ConfigErrors, Diagnostic};
use crate::console::command::COMMAND_TABLE;
use crate::console::preferences;

pub(super) fn report_program(report: &mut DoctorReport, subject: &DoctorSubject<'_>) {
    let kernel = rustix::system::uname();
    let environment = subject.environment;
    report.add_ok(format!(
        "memory-shepherd {} on {} {} {}, as {} (uid {})",
        env!("MEMORY_SHEPHERD_VERSION"),
        kernel.sysname().to_string_lossy(),
        kernel.release().to_string_lossy(),
        kernel.machine().to_string_lossy(),
        environment.user,
        environment.env.uid
    ));
}

/// Checks the user's own keys, columns and filters.
pub(super) fn check_preferences(report: &mut DoctorReport, subject: &DoctorSubject<'_>) {
    let Some(path) = preferences::default_path(&subject.environment.env) else {
        return report.add_ok("no preferences: no home is known");
    };
    let (preferences, problems) = preferences::load(&path);
    for problem in &problems {
        report.add_diagnostic(preferences::PREFERENCES_FILE_NAME, problem);
    }
    if !problems.is_empty() {
        return;
    }
    let path_shown = path.display();
    if !path.exists() {
        return report.add_ok(format!("no preferences: {path_shown} does not exist"));
    }
    let keymap = &preferences.keymap;
    let changed = COMMAND_TABLE
        .iter()
        .filter(|spec| keymap.is_overridden(spec.command));
    let changed = format_count(changed.count(), "command");
    report.add_ok(format!(
        "preferences {path_shown}, {changed} with changed keys"
    ));
}

/// Reports the mistakes of the config, and its warnings.
pub(super) fn check_config(report: &mut DoctorReport, subject: &DoctorSubject<'_>) {
    match (&subject.fleet, &subject.config_failure) {
        (Some(fleet), _) => {
            let config = fleet.engine.config();
            let agents = format_count(config.agents.len(), "agent");
            report.add_ok(format!("config {}, {agents}", config.path.display()));
            report_config_warnings(report, fleet);
        }
        (None, Some(failure)) => {
            report.add_error(&failure.error);
            for diagnostic in &failure.diagnostics {
                report.add_diagnostic("config", diagnostic);
            }
        }
        (None, None) => {}
    }
}

/// Reports the warnings about a config, except for those that have checks of their own.
fn report_config_warnings(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let config = fleet.engine.config();
    let has_own_check = |warning: &&Diagnostic| {
        let is_of_memory = fleet.sharing_groups.iter().any(|names| {
            let mut others = names.iter().skip(1);
            others.any(|name| warning.message == config::same_memory_message(names[0], name))
        });
        let is_of_directory = config::shared_entry_directories(&config.agents)
            .iter()
            .any(|shared| warning.message == shared.to_string());
        is_of_memory || is_of_directory
    };
    for warning in config.warnings.iter().filter(|it| !has_own_check(it)) {
        report.add_diagnostic("config", warning);
    }
}

/// Reports agents whose names are commands.
pub(super) fn check_agent_names(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let config = fleet.engine.config();
    let cli = Cli::command();
    let verbs: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let is_reserved = |name: &str| verbs.contains(&name) || name == "all" || name == "help";
    let names = config.agents.iter().map(|agent| agent.name.as_str());
    for name in names.filter(|name| is_reserved(name)) {
        let reset = config.invocation.command_line(&format!("reset {name}"));
        report.add_warning(
            format!(
                "agent {name} has the name of a command: `memory-shepherd {name}` runs the command"
            ),
            &format!("use `{reset}` to reset the agent"),
        );
    }
    report.add_ok_if_silent("no agent has the name of a command");
}

/// Reports an `archive_group` that this machine does not have: nothing about the archive is checked
/// then.
pub(super) fn check_group_exists(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let general = &fleet.engine.config().general;
    match (&fleet.missing_group, &general.archive_group) {
        (Some(ConfigErrors(missing)), _) => {
            for diagnostic in missing {
                report.add_diagnostic("config", diagnostic);
            }
        }
        (None, Some(name)) => report.add_ok(format!("group {name} exists")),
        (None, None) => report.add_ok("archive_group is not set"),
    }
}

/// Returns the failure of a config with mistakes.
pub(super) fn config_error(path: &Path) -> Error {
    let message = format!(
        "config {} has errors; nothing else is checked",
        path.display()
    );
    Error::new(ErrorKind::Config, message)
}
