//! The units that a package of a distribution installs, for any config: pure.
//!
//! They have the names of those that `schedule install` writes to another directory, which systemd
//! prefers: a machine never has two timers for all agents. Without a config they can know neither
//! the agents' directories nor `every`.

use std::path::Path;

use super::calendar::calendar_expression;
use super::escape::{quote, unit_path};
use super::sandbox::{ServicePurpose, packaged_sandbox_lines};
use super::time_limit::reset_arguments;
use super::units::{GUARD_UNIT, UNIT_PREFIX, Unit, jitter_seconds};
use crate::base::error::Result;
use crate::base::reset_interval::ResetInterval;
use crate::config::SYSTEM_CONFIG_PATH;

/// Says where the units come from, and what replaces them.
const HEADER: &str = "\
# Part of a package, for any config, every three hours. `memory-shepherd schedule install` writes
# units of these names to /etc/systemd/system, which replace these: they follow the intervals of
# the config, and can write only to the directories of its agents.
";

/// Directory of the config, which may also hold baselines and archive.
const CONFIG_DIRECTORY: &str = "/etc/memory-shepherd";

/// Renders the service and the timer for all agents, and the guard, for a package that installs the
/// program at `program`. None is enabled.
///
/// # Errors
/// A path that a unit cannot name.
pub fn render_packaged_units(program: &Path) -> Result<Vec<Unit>> {
    let program = quote(unit_path(program)?);
    let interval = ResetInterval::default();
    let arguments = reset_arguments().join(" ");
    let reset = format!(
        "{}Wants=network-online.target\nAfter=network-online.target\n\n[Service]\nType=oneshot\n\
         ExecStart={program} {arguments} --config {SYSTEM_CONFIG_PATH}\nTimeoutStartSec={}\n{}",
        unit_section("Reset of all agents to their baselines"),
        interval.seconds(),
        packaged_sandbox_lines(ServicePurpose::Reset, CONFIG_DIRECTORY),
    );
    let timer = format!(
        "{}\n[Timer]\nOnCalendar={}\nAccuracySec=1s\nRandomizedDelaySec={}\n\
         FixedRandomDelay=yes\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n",
        unit_section("Schedule for the reset of all agents"),
        calendar_expression(interval, 0),
        jitter_seconds(interval),
    );
    let guard = format!(
        "{}\n[Service]\nExecStart={program} guard --config {SYSTEM_CONFIG_PATH}\n\
         Restart=on-failure\nRestartSec=30\n{}\n[Install]\nWantedBy=multi-user.target\n",
        unit_section("Guard of the baselines of memory-shepherd"),
        packaged_sandbox_lines(ServicePurpose::Guard, CONFIG_DIRECTORY),
    );
    let unit = |name: String, text: String| Unit {
        name,
        text,
        is_enabled: false,
    };
    Ok(vec![
        unit(format!("{UNIT_PREFIX}.service"), reset),
        unit(format!("{UNIT_PREFIX}.timer"), timer),
        unit(GUARD_UNIT.to_string(), guard),
    ])
}

fn unit_section(description: &str) -> String {
    format!(
        "{HEADER}[Unit]\nDescription={description}\nDocumentation=man:memory-shepherd(1)\n\
         ConditionPathExists={SYSTEM_CONFIG_PATH}\n"
    )
}
