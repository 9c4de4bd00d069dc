//! Jobs of the schedule: asks the service managers, and writes pauses and skips. A service manager
//! that does not answer keeps nothing else waiting.

use std::path::PathBuf;

use chrono::Local;

use super::EffectRunner;
use super::job_queue::{JobClass, Request};
use crate::console::message::Msg;
use crate::unattended::schedule::{self, ManagerAccess, ScheduleChange, read_overview};

/// What the jobs need to know of the machine.
#[derive(Clone, Debug)]
pub struct ScheduleAccess {
    /// The service managers.
    pub managers: ManagerAccess,
    /// Path of this program.
    pub program: PathBuf,
}

pub(super) fn load_schedule(runner: &EffectRunner, number: u64) {
    let access = runner.schedule_access.clone();
    let request =
        Request::latest(JobClass::Schedule, "timers").listed_as("timers of the service managers");
    runner.submit(request, move |engine| {
        let overview = engine.map(|engine| {
            let now = engine.clock().now().with_timezone(&Local);
            Box::new(read_overview(
                engine,
                &access.managers,
                &access.program,
                &now,
            ))
        });
        Msg::ScheduleLoaded(number, overview.map_err(|error| error.to_string()))
    });
}

pub(super) fn change_schedule(runner: &EffectRunner, change: ScheduleChange) {
    let label = format!("schedule of {}", change.subject());
    let request = Request::listed(JobClass::ScheduleChanges, label);
    runner.submit(request, move |engine| {
        let outcome = engine.and_then(|engine| {
            let now = engine.clock().now().with_timezone(&Local);
            schedule::change_schedule(engine, std::slice::from_ref(&change), &now)
        });
        Msg::ScheduleChanged(change, outcome)
    });
}
