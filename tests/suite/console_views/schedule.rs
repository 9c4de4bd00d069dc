//! Views of the schedule in the log, of the dialog about a timer, and of the headers.

use memory_shepherd::console::message::Msg;
use memory_shepherd::engine::Outcome;
use memory_shepherd::unattended::schedule::{HeldAgent, ScheduleHold, ScheduleOverview, UnitScope};

use super::assert_view_from;
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::run_summary;
use crate::report_samples::fleet_report;
use crate::schedule_samples::*;

/// A console on the log, with runs, the report and a schedule.
fn log_with_schedule(console: &mut TestConsole, overview: ScheduleOverview) {
    let failed = [("alpha", Outcome::Ok), ("bravo", Outcome::Unchanged)];
    console.send(Msg::LogLoaded(Ok(vec![
        run_summary("5a10c3d2", 40, &failed),
        run_summary("1f00d5ee", 100, &[("delta", Outcome::Ok)]),
    ])));
    let number = console.model.log.schedule.requests.begin();
    console.send(Msg::ScheduleLoaded(number, Ok(Box::new(overview))));
    console.press("7");
    console.list_jobs(&["ledger"]);
    console.send(Msg::ReportLoaded(Ok(
        (&fleet_report("alpha", "a reason")).into()
    )));
}

/// Takes snapshots of the log with a schedule, after these keys.
fn assert_schedule_view(name: &str, keys: &str, overview: impl Fn() -> ScheduleOverview) {
    assert_view_from(name, fleet_of_four, |console| {
        log_with_schedule(console, overview());
        if !keys.is_empty() {
            console.press(keys);
        }
    });
}

#[test]
fn schedule_snapshots_match() {
    assert_schedule_view("schedule", "", common_schedule);
    assert_schedule_view("schedule_focused", "Tab j", common_schedule);
    assert_schedule_view(
        "schedule_without_managers",
        "Tab",
        schedule_without_managers,
    );
    assert_view_from("schedule_advice", fleet_of_four, |console| {
        console.send(Msg::LogLoaded(Ok(Vec::new())));
        let schedule = schedule_without_managers();
        let number = console.model.log.schedule.requests.begin();
        console.send(Msg::ScheduleLoaded(number, Ok(Box::new(schedule))));
        console.press("7");
        console.list_jobs(&["ledger"]);
        console.press("Tab");
    });
    assert_schedule_view("schedule_dialog", "Tab G T", common_schedule);
    assert_schedule_view("schedule_skip", "Tab G T s", common_schedule);
    assert_schedule_view("schedule_pause", "Tab G T p", common_schedule);
    assert_schedule_view("schedule_header", "1", common_schedule);
}

#[test]
fn schedule_of_both_managers_snapshots_match() {
    assert_schedule_view("schedule_both_managers", "Tab", || {
        let mut fleet = group(None, &["alpha", "bravo", "charlie"], Some(50));
        fleet.pause = Some(pause());
        fleet.held_agents = vec![HeldAgent {
            agent: "bravo".to_string(),
            hold: ScheduleHold::Paused(pause()),
        }];
        let mut delta = group(Some("delta"), &["delta"], Some(20));
        delta.skip = Some(skip_of(&delta));
        let mut late = timer(
            "memory-shepherd-a-name-that-is-very-long-indeed.timer",
            group(Some("alpha"), &["alpha"], Some(-5)),
        );
        if let Some(status) = &mut late.status {
            status.missed = true;
        }
        let system = vec![timer("memory-shepherd.timer", fleet), late];
        let user = vec![timer("memory-shepherd-delta.timer", delta)];
        overview(vec![
            manager(UnitScope::System, system),
            manager(UnitScope::User, user),
        ])
    });
}

#[test]
fn schedule_of_a_hanging_manager_snapshots_match() {
    assert_schedule_view("schedule_hanging", "Tab", || {
        let mut fleet = timer(
            "memory-shepherd.timer",
            group(None, &["alpha", "bravo"], None),
        );
        fleet.status = None;
        let mut system = manager(UnitScope::System, vec![fleet]);
        let why = "`systemctl show …` failed: it has not ended within 5 s";
        system.unknown_because = Some(why.to_string());
        overview(vec![system])
    });
}
