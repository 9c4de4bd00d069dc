//! Schedules as the console reads them, for tests of updates and views.

use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use memory_shepherd::unattended::schedule::{
    GroupSchedule, InstalledTimer, ManagerSchedule, ScheduleOverview, SchedulePause, ScheduleSkip,
    TimerSchedule, TimerStatus, UnitScope,
};

use crate::engine_samples::{minutes_before, test_time};

/// A time after the one at which the console is.
pub fn minutes_after(minutes: i64) -> DateTime<FixedOffset> {
    test_time() + chrono::Duration::minutes(minutes)
}

/// The group of an agent, or of the agents without an interval of their own, due every hour.
pub fn group(agent: Option<&str>, agents: &[&str], next_in: Option<i64>) -> GroupSchedule {
    GroupSchedule {
        agent: agent.map(str::to_string),
        agents: agents.iter().map(|it| it.to_string()).collect(),
        held_agents: Vec::new(),
        next: next_in.map(minutes_after),
        after_next: next_in.map(|minutes| minutes_after(minutes + 60)),
        pause: None,
        skip: None,
        resumed: None,
    }
}

pub fn pause() -> SchedulePause {
    SchedulePause {
        since: minutes_before(600),
        by: "ops".to_string(),
    }
}

/// The skip of the next run of a group.
pub fn skip_of(group: &GroupSchedule) -> ScheduleSkip {
    let due = group.next.unwrap();
    ScheduleSkip {
        due,
        begins: due,
        ends: group.after_next.unwrap(),
        since: minutes_before(5),
        by: "ops".to_string(),
    }
}

/// An active timer whose last run succeeded 40 minutes ago.
pub fn timer(name: &str, group: GroupSchedule) -> TimerSchedule {
    TimerSchedule {
        installed: InstalledTimer {
            name: name.to_string(),
            calendar: "*-*-* *:00:00".to_string(),
            enabled_by_install: true,
            edited: false,
        },
        status: Some(TimerStatus {
            active: true,
            enabled: "enabled".to_string(),
            next: group.next,
            last: Some(minutes_before(40)),
            result: Some("success".to_string()),
            exit_code: Some(0),
            running: false,
            missed: false,
        }),
        group: Some(group),
    }
}

pub fn manager(scope: UnitScope, timers: Vec<TimerSchedule>) -> ManagerSchedule {
    ManagerSchedule {
        scope,
        is_running: true,
        directory: PathBuf::from("/etc/systemd/system"),
        unknown_because: None,
        timers,
    }
}

pub fn overview(managers: Vec<ManagerSchedule>) -> ScheduleOverview {
    ScheduleOverview {
        managers,
        groups: vec![group(
            None,
            &["alpha", "bravo", "charlie", "delta"],
            Some(50),
        )],
        is_scheduler_running: false,
        crontab: vec![
            "0 0-23/3 * * * /usr/bin/memory-shepherd reset --scheduled --wait 120 --quiet \
             --config /etc/memory-shepherd/memory-shepherd.conf"
                .to_string(),
        ],
        controls_path: PathBuf::from("/srv/archives/.shepherd/schedule.json"),
        controls_error: None,
    }
}

/// A schedule of the system with a timer for the fleet, one that failed, one that never ran, and one
/// that is disabled; no service manager of the user runs.
pub fn common_schedule() -> ScheduleOverview {
    let fleet = group(None, &["alpha", "bravo", "charlie"], Some(50));
    let delta = group(Some("delta"), &["delta"], Some(170));
    let mut failed = timer("memory-shepherd-delta.timer", delta);
    if let Some(status) = &mut failed.status {
        status.result = Some("exit-code".to_string());
        status.exit_code = Some(3);
        status.last = Some(minutes_before(10));
    }
    let scout = group(Some("scout"), &["scout"], Some(1_500));
    let mut fresh = timer("memory-shepherd-scout.timer", scout);
    if let Some(status) = &mut fresh.status {
        status.last = None;
        status.result = None;
        status.exit_code = None;
    }
    let mut disabled = timer(
        "memory-shepherd-alpha.timer",
        group(Some("alpha"), &["alpha"], None),
    );
    disabled.installed.enabled_by_install = false;
    if let Some(status) = &mut disabled.status {
        status.active = false;
        status.enabled = "disabled".to_string();
    }
    let timers = vec![
        timer("memory-shepherd.timer", fleet),
        failed,
        fresh,
        disabled,
    ];
    let mut user = manager(UnitScope::User, Vec::new());
    user.is_running = false;
    user.unknown_because = Some("no service manager is running".to_string());
    overview(vec![manager(UnitScope::System, timers), user])
}

/// Neither service manager runs, as in a container.
pub fn schedule_without_managers() -> ScheduleOverview {
    let absent = |scope| ManagerSchedule {
        is_running: false,
        ..manager(scope, Vec::new())
    };
    overview(vec![absent(UnitScope::System), absent(UnitScope::User)])
}
