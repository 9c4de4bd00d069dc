//! Scheduled resets: timers of systemd, or lines of a crontab.
//!
//! [`render_units`] computes the units from a config, without looking at the machine;
//! [`InstallPlan`] compares them with the files that are there, and touches only files that this
//! program wrote for the same config; a [`ServiceManager`] enables them. Config, baselines and
//! archive stay as they are.
//!
//! [`ScheduleControls`] are pauses and skips, which every scheduled reset reads, and
//! [`read_overview`] says when each timer is due, how its last run ended and what holds it back.

mod calendar;
mod controls;
mod crontab;
mod escape;
mod install;
mod installed_unit;
mod missed;
mod original;
mod overview;
mod ownership;
mod packaged;
mod result;
mod sandbox;
mod scheduler;
mod search_path;
mod service_manager;
mod start_queue;
mod status;
mod time_limit;
mod unit_files;
mod units;

pub use controls::{
    ScheduleAction, ScheduleChange, ScheduleControls, ScheduleHold, SchedulePause, ScheduleSkip,
    change_schedule,
};
pub use crontab::crontab_lines;
pub use install::{
    Consent, FileAction, InstallPlan, PlanCommands, PlannedFile, plan_install, plan_uninstall,
};
pub use installed_unit::find_unit_program;
pub use missed::{MissedReset, find_missed_resets, has_recent_timed_run};
pub use original::{OriginalUnit, ScriptService, find_script_services};
pub use overview::{
    GroupSchedule, HeldAgent, ManagerAccess, ManagerSchedule, ScheduleOverview, TimerSchedule,
    read_manager, read_overview,
};
pub use packaged::render_packaged_units;
pub use result::{RunOutcomes, TimerResult};
pub use sandbox::{
    ServicePurpose, UserSandbox, find_kernel_obstacle, find_sandbox_obstacle, has_remote_agent,
    writable_directories,
};
pub use scheduler::{ScheduledGroup, Scheduler, describe_made_due, timer_subject};
pub use search_path::{DecidingFiles, UnitSearchPath};
pub use service_manager::{ServiceManager, Systemctl};
pub use start_queue::StartQueue;
pub use status::{InstalledTimer, TimerStatus, find_installed_timers, read_timer_statuses};
pub use time_limit::{agent_arguments, reset_arguments};
pub use units::{Unit, UnitSetup, find_timer_agent, render_units, timer_argument};

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::base::error::{Error, ErrorKind, Result};
use crate::config::ConfigEnvironment;

/// Whose service manager runs the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitScope {
    /// The system's, as root.
    System,
    /// The user's own.
    User,
}

/// Directory of the system's units.
const SYSTEM_UNIT_DIRECTORY: &str = "/etc/systemd/system";

impl UnitScope {
    /// Returns the directory in which the service manager looks for units of the operator.
    ///
    /// # Errors
    /// The user's directory is unknown.
    pub fn unit_directory(self, env: &ConfigEnvironment) -> Result<PathBuf> {
        let user_directory = || {
            let from_variable = env.xdg_config_home.clone().filter(|it| it.is_absolute());
            let base = from_variable.or_else(|| Some(env.home.as_ref()?.join(".config")))?;
            Some(base.join("systemd/user"))
        };
        match self {
            UnitScope::System => Ok(Path::new(SYSTEM_UNIT_DIRECTORY).to_path_buf()),
            UnitScope::User => user_directory().ok_or_else(|| {
                let message = "cannot find the directory of user units: no home is known";
                Error::new(ErrorKind::User, message).with_hint("set HOME, or pass --prefix DIR")
            }),
        }
    }

    /// Returns the words that call `systemctl` for this scope.
    pub fn systemctl(self) -> &'static str {
        match self {
            UnitScope::System => "systemctl",
            UnitScope::User => "systemctl --user",
        }
    }
}
