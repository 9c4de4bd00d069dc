//! Checks of the alerts: a command that cannot be run, or that root does not run, and a process that
//! holds them for long.

use super::{DoctorReport, FleetSubject};
use crate::unattended::alerts::{AlertChannel, HeldAlerts, UntrustedCommand, find_command_problem};

/// Reports what keeps alerts from being sent.
pub(super) fn check_alerts(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let settings = engine.config().alerts.as_ref();
    let Some(settings) = settings.filter(|it| !AlertChannel::of_settings(it).is_empty()) else {
        return report.add_ok("the config names no channel for alerts");
    };
    if let Some(untrusted) = UntrustedCommand::find(settings, &fleet.environment.alerts) {
        report.add_warning(untrusted.message(), &untrusted.hint());
    }
    if let Some(problem) = find_command_problem(settings, &fleet.environment.alerts) {
        let test = engine.command_line("alerts test");
        let hint = format!("install it, or make it executable; `{test}` tries it");
        report.add_failure(problem, &hint);
    }
    let held = [
        HeldAlerts::find_change(engine),
        HeldAlerts::find_delivery(engine),
    ];
    for held in held.into_iter().flatten().filter(|held| held.is_stuck) {
        report.add_warning(held.message, "");
    }
    report.add_ok_if_silent("no process holds the alerts for long");
}
