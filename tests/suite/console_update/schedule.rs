//! The schedule in the log: when it is read, what its rows say, and what the dialog about a timer
//! changes.

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::overlay::Overlay;
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::log::state::schedule::TimerRow;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::engine::{FleetEvent, Outcome, Trigger};
use memory_shepherd::unattended::schedule::{
    GroupSchedule, HeldAgent, ScheduleAction, ScheduleHold, ScheduleOverview, UnitScope,
};

use super::{MINUTE, SECOND, console_with_run, makes_dirty};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{configured_agents, run_summary};
use crate::schedule_samples::*;

/// Delivers the schedule that was asked for last, also where the console did not ask yet.
fn load(console: &mut TestConsole, overview: ScheduleOverview) {
    let requests = &mut console.model.log.schedule.requests;
    requests.is_pending = true;
    let number = requests.last_id;
    console.send(Msg::ScheduleLoaded(number, Ok(Box::new(overview))));
}

/// A console that has read a schedule, on the log.
fn console_with_schedule(overview: ScheduleOverview) -> TestConsole {
    let mut console = fleet_of_four();
    console.press("7");
    load(&mut console, overview);
    console.effects.clear();
    console
}

fn row_names(console: &TestConsole) -> Vec<&str> {
    let rows = console.model.log.schedule.rows.iter();
    rows.map(|row| row.name.as_str()).collect()
}

fn find_row<'a>(console: &'a TestConsole, name: &str) -> &'a TimerRow {
    let mut rows = console.model.log.schedule.rows.iter();
    rows.find(|row| row.name == name).unwrap()
}

fn has_dialog(console: &TestConsole) -> bool {
    matches!(console.model.overlay, Some(Overlay::Timer(_)))
}

/// Returns the changes that were requested.
fn requested_actions(console: &TestConsole) -> Vec<(Option<String>, ScheduleAction)> {
    let effects = console.effects.iter().filter_map(|effect| match effect {
        Effect::ChangeSchedule(change) => Some((change.agent.clone(), change.action.clone())),
        _ => None,
    });
    effects.collect()
}

#[test]
fn schedule_is_read_again_every_minute() {
    let mut console = fleet_of_four();
    assert_eq!(console.advance(5 * MINUTE), [], "before it was read once");
    load(&mut console, common_schedule());
    assert_eq!(console.advance(MINUTE - SECOND), []);
    assert_eq!(console.advance(SECOND), [Effect::LoadSchedule(1)]);
    // No second question while one is unanswered, as when a service manager hangs.
    assert_eq!(console.advance(10 * MINUTE), []);
    assert_eq!(console.press("7"), [Effect::LoadLog]);
    load(&mut console, common_schedule());
    assert_eq!(console.advance(MINUTE), [Effect::LoadSchedule(2)]);
}

#[test]
fn unchanged_schedule_redraws_nothing() {
    let mut console = console_with_schedule(common_schedule());
    assert!(!makes_dirty(&mut console, |console| load(
        console,
        common_schedule()
    )));
    assert!(makes_dirty(&mut console, |console| load(
        console,
        schedule_without_managers()
    )));
}

#[test]
fn late_answer_about_the_schedule_is_ignored() {
    let mut console = console_with_schedule(common_schedule());
    console.advance(MINUTE);
    console.send(Msg::ScheduleLoaded(
        0,
        Ok(Box::new(schedule_without_managers())),
    ));
    assert_eq!(row_names(&console).len(), 3);
}

#[test]
fn timed_run_in_the_ledger_reads_the_schedule() {
    let mut console = console_with_schedule(common_schedule());
    let runs = vec![run_summary("aaaa", 1, &[("alpha", Outcome::Ok)])];
    let effects = console.send(Msg::LogLoaded(Ok(runs.clone())));
    assert!(effects.contains(&Effect::LoadSchedule(1)));
    load(&mut console, common_schedule());
    let effects = console.send(Msg::LogLoaded(Ok(runs)));
    assert!(!effects.contains(&Effect::LoadSchedule(2)));
}

#[test]
fn rows_that_need_attention_come_first() {
    let console = console_with_schedule(common_schedule());
    assert_eq!(
        row_names(&console),
        [
            "memory-shepherd-delta.timer",
            "memory-shepherd-scout.timer",
            "memory-shepherd.timer"
        ]
    );
    assert!(find_row(&console, "memory-shepherd-delta.timer").has_failed());
    assert!(find_row(&console, "memory-shepherd-scout.timer").has_never_run);
}

#[test]
fn header_names_next_run_and_failure() {
    let mut console = console_with_schedule(common_schedule());
    for key in ["1", "2", "3", "4", "7", "8"] {
        console.press(key);
        let screen = console.screen_text();
        assert!(screen.contains("run FAILED"), "{key}");
        assert!(screen.contains("next run 10:00 (45m)"), "{key}");
    }
    console.press("1");
    load(&mut console, schedule_without_managers());
    assert!(!console.screen_text().contains("next run"));
}

#[test]
fn times_are_shown_in_their_own_offset() {
    let summer = chrono::FixedOffset::east_opt(7200).unwrap();
    let mut fleet = group(None, &["alpha"], Some(50));
    fleet.next = fleet.next.map(|next| next.with_timezone(&summer));
    let next = fleet.next.unwrap();
    assert_ne!(next.offset(), crate::engine_samples::test_time().offset());
    let timers = vec![timer("memory-shepherd.timer", fleet)];
    let mut console = console_with_schedule(overview(vec![manager(UnitScope::System, timers)]));
    let shown = format!("{} (45m)", next.format("%H:%M"));
    assert!(console.screen_text().contains(&format!("next run {shown}")));
    assert!(console.screen_text().contains(&format!("  {shown}  ")));
    console.press("T");
    let skip = format!("skip the run due {};", next.format("%H:%M"));
    assert!(console.screen_text().contains(&skip));
}

#[test]
fn agents_that_are_held_back_are_named() {
    let mut fleet = group(None, &["alpha", "bravo", "charlie"], Some(50));
    let held = |agent: &str, hold| HeldAgent {
        agent: agent.to_string(),
        hold,
    };
    let skip = skip_of(&fleet);
    fleet.held_agents = vec![held("bravo", ScheduleHold::Skipped(skip.clone()))];
    let show = |fleet: &GroupSchedule| {
        let timers = vec![timer("memory-shepherd.timer", fleet.clone())];
        let mut console = console_with_schedule(overview(vec![manager(UnitScope::System, timers)]));
        console.press("Tab");
        console.screen_text()
    };
    assert!(show(&fleet).contains("3 agents, 1 skipped"));
    assert!(show(&fleet).contains(&format!("bravo: {}", skip.describe())));
    fleet.held_agents = vec![held("alpha", ScheduleHold::Paused(pause()))];
    assert!(show(&fleet).contains("3 agents, 1 paused"));
    assert!(show(&fleet).contains(&format!("alpha: {}", pause().describe())));
    fleet
        .held_agents
        .push(held("bravo", ScheduleHold::Skipped(skip)));
    assert!(show(&fleet).contains("3 agents, 2 held back"));
}

#[test]
fn fleet_says_what_holds_back_the_current_agent() {
    let mut fleet = group(None, &["alpha", "bravo"], Some(50));
    let shown = |fleet: &GroupSchedule| {
        let timers = vec![timer("memory-shepherd.timer", fleet.clone())];
        let mut schedule = overview(vec![manager(UnitScope::System, timers)]);
        schedule.groups = vec![fleet.clone()];
        let mut console = console_with_schedule(schedule);
        console.press("1 gg");
        let agent = crate::console_update::cursor_agent(&console).to_string();
        (agent, console.screen_text())
    };
    let (agent, text) = shown(&fleet);
    assert!(!text.contains("scheduled resets"), "{text}");
    fleet.held_agents = vec![HeldAgent {
        agent: agent.clone(),
        hold: ScheduleHold::Paused(pause()),
    }];
    fleet.agents = vec![agent];
    assert!(shown(&fleet).1.contains("scheduled resets: paused since"));
    fleet.held_agents.clear();
    fleet.skip = Some(skip_of(&fleet));
    assert!(shown(&fleet).1.contains("scheduled resets: the run due"));
}

#[test]
fn paused_and_skipped_timers_are_not_due() {
    let mut paused = group(None, &["alpha"], Some(50));
    paused.pause = Some(pause());
    let mut skipped = group(Some("delta"), &["delta"], Some(20));
    skipped.skip = Some(skip_of(&skipped));
    let timers = vec![
        timer("memory-shepherd.timer", paused.clone()),
        timer("memory-shepherd-delta.timer", skipped),
    ];
    let mut console = console_with_schedule(overview(vec![manager(UnitScope::System, timers)]));
    assert!(console.screen_text().contains("next run 10:30"));
    let timers = vec![timer("memory-shepherd.timer", paused)];
    load(
        &mut console,
        overview(vec![manager(UnitScope::System, timers)]),
    );
    assert!(console.screen_text().contains("schedule PAUSED"));
}

#[test]
fn run_without_manager_counts_as_schedule() {
    let mut console = console_with_schedule(schedule_without_managers());
    assert_eq!(row_names(&console), Vec::<&str>::new());
    let run = |minutes| {
        let failed = [("alpha", Outcome::Ok), ("bravo", Outcome::Failed)];
        Msg::LogLoaded(Ok(vec![run_summary("aaaa", minutes, &failed)]))
    };
    console.send(run(30));
    let row = &console.model.log.schedule.rows[0];
    assert!(row.has_failed() && !row.is_missed);
    console.send(run(90));
    assert!(console.model.log.schedule.rows[0].is_missed);
    // A fleet that was scheduled long ago is not any more.
    console.send(run(60 * 24 * 40));
    assert_eq!(row_names(&console), Vec::<&str>::new());
}

/// An agent that was reset with the others may have left the config, or have a timer of its own now.
#[test]
fn run_counts_though_one_of_its_agents_left() {
    let mut console = console_with_schedule(schedule_without_managers());
    let resets = [("alpha", Outcome::Ok), ("elsewhere", Outcome::Ok)];
    console.send(Msg::LogLoaded(Ok(vec![run_summary("aaaa", 30, &resets)])));
    assert!(!console.model.log.schedule.rows[0].is_missed);
    let of_others = [("elsewhere", Outcome::Ok)];
    console.send(Msg::LogLoaded(Ok(vec![
        run_summary("bbbb", 10, &of_others),
        run_summary("aaaa", 90, &resets),
    ])));
    assert!(console.model.log.schedule.rows[0].is_missed);
}

#[test]
fn running_scheduler_is_shown_before_its_first_run() {
    let mut schedule = schedule_without_managers();
    schedule.is_scheduler_running = true;
    let console = console_with_schedule(schedule);
    assert_eq!(row_names(&console), ["memory-shepherd.timer"]);
    assert!(console.screen_text().contains("schedule run: 1 group"));
    assert!(console.screen_text().contains("next run 10:00"));
}

#[test]
fn resumed_schedule_is_not_missed_at_once() {
    let mut schedule = schedule_without_managers();
    schedule.groups[0].resumed = Some(minutes_after(-5));
    let mut console = console_with_schedule(schedule);
    console.send(Msg::LogLoaded(Ok(vec![run_summary(
        "aaaa",
        90,
        &[("alpha", Outcome::Ok)],
    )])));
    assert!(!console.model.log.schedule.rows[0].is_missed);
}

#[test]
fn timer_files_without_manager_hide_no_schedule() {
    let mut schedule = schedule_without_managers();
    let fleet = group(None, &["alpha"], None);
    schedule.managers[0].timers = vec![timer("memory-shepherd.timer", fleet)];
    let mut console = console_with_schedule(schedule);
    assert_eq!(row_names(&console), ["memory-shepherd.timer"]);
    let runs = vec![run_summary("aaaa", 30, &[("alpha", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(runs)));
    assert_eq!(row_names(&console), ["memory-shepherd.timer"]);
    assert!(console.screen_text().contains("next run"));
}

#[test]
fn failure_ends_when_its_agents_are_reset() {
    let mut console = console_with_schedule(schedule_without_managers());
    let failed = run_summary("aaaa", 30, &[("bravo", Outcome::Refused)]);
    let by_hand = |agent, outcome| {
        let mut run = run_summary("bbbb", 10, &[(agent, outcome)]);
        run.events[0].trigger = Trigger::Cli;
        run
    };
    for (later, has_failed) in [
        (by_hand("bravo", Outcome::Failed), true),
        (by_hand("alpha", Outcome::Ok), true),
        (by_hand("bravo", Outcome::Ok), false),
    ] {
        console.send(Msg::LogLoaded(Ok(vec![later, failed.clone()])));
        let rows = &console.model.log.schedule.rows;
        assert_eq!(rows[0].has_failed(), has_failed);
        let is_shown = console.screen_text().contains("run FAILED");
        assert_eq!(is_shown, has_failed);
    }
}

#[test]
fn focus_moves_between_timers_and_log() {
    let mut console = console_with_schedule(common_schedule());
    console.press("Tab j j j");
    assert_eq!(console.model.log.schedule.list.cursor, 2);
    assert_eq!(console.model.log.list.cursor, 0);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Log);
    assert!(!console.model.log.schedule.is_focused);
    console.press("Tab S-Tab");
    assert!(!console.model.log.schedule.is_focused);
}

#[test]
fn run_of_a_timer_is_a_plan_of_its_agents() {
    let mut console = console_with_schedule(common_schedule());
    console.press("Tab G T");
    let effects = console.press("r");
    let agents = ["alpha", "bravo", "charlie"].map(str::to_string).to_vec();
    assert!(
        matches!(&effects[..], [Effect::MakePlan(_, PlanRequest::Reset(names), false)]
            if *names == agents),
        "{effects:?}"
    );
    assert_eq!(console.model.screen, Screen::Reset);
    assert!(!has_dialog(&console));
}

#[test]
fn skip_and_pause_wait_for_confirmation() {
    for (keys, action) in [
        ("T s", ScheduleAction::Skip(minutes_after(170))),
        ("T p", ScheduleAction::Pause),
    ] {
        let mut console = console_with_schedule(common_schedule());
        console.press(keys);
        console.advance(KEY_GUARD_TIME);
        console.press("Enter Space");
        assert_eq!(requested_actions(&console), []);
        console.advance(KEY_GUARD_TIME);
        console.press("y");
        let delta = Some("delta".to_string());
        assert_eq!(requested_actions(&console), [(delta, action)]);
        assert!(!has_dialog(&console));
    }
}

#[test]
fn keys_before_the_plan_can_be_read_confirm_nothing() {
    let mut console = console_with_schedule(common_schedule());
    console.press("T p");
    let y = memory_shepherd::console::keys::key::Key::from_code(
        memory_shepherd::console::keys::key::KeyCode::Char('y'),
    );
    for _ in 0..5 {
        console.advance(SECOND / 10);
        console.send(Msg::KeysPressed(vec![y]));
    }
    assert_eq!(requested_actions(&console), []);
    assert!(has_dialog(&console));
    console.press("Esc");
    assert!(!has_dialog(&console));
}

#[test]
fn old_plan_of_a_timer_is_void() {
    let mut console = console_with_schedule(common_schedule());
    console.press("T p");
    console.advance(MINUTE);
    console.press("y");
    assert_eq!(requested_actions(&console), []);
    assert!(!has_dialog(&console));
}

#[test]
fn held_timer_is_resumed() {
    let mut held = group(None, &["alpha"], Some(50));
    held.skip = Some(skip_of(&held));
    let timers = vec![timer("memory-shepherd.timer", held)];
    let mut console = console_with_schedule(overview(vec![manager(UnitScope::System, timers)]));
    console.press("T s");
    assert!(console.message_text().contains("skipped already"));
    console.press("p");
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(
        requested_actions(&console),
        [(None, ScheduleAction::Resume)]
    );
}

#[test]
fn changed_schedule_is_read_again() {
    let mut console = console_with_schedule(common_schedule());
    console.press("T p");
    console.advance(KEY_GUARD_TIME);
    let change = console.press("y");
    let Some(Effect::ChangeSchedule(change)) = change.last().cloned() else {
        panic!("{change:?}");
    };
    console.press("T");
    assert!(console.message_text().contains("being changed"));
    let effects = console.send(Msg::ScheduleChanged(change.clone(), Ok(())));
    assert_eq!(effects, [Effect::LoadSchedule(1)]);
    let error = Error::new(ErrorKind::Conflict, "that time has passed");
    console.send(Msg::ScheduleChanged(change, Err(error)));
    assert!(console.message_text().contains("has passed"));
}

#[test]
fn skip_where_nothing_runs_names_no_next_run() {
    let mut schedule = overview(Vec::new());
    schedule.groups[0].skip = Some(skip_of(&schedule.groups[0]));
    let mut console = console_with_schedule(schedule.clone());
    assert_eq!(row_names(&console), ["memory-shepherd.timer"]);
    assert!(!console.screen_text().contains("next run"));
    // It can be ended all the same.
    console.press("T p");
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(
        requested_actions(&console),
        [(None, ScheduleAction::Resume)]
    );
    schedule.is_scheduler_running = true;
    let console = console_with_schedule(schedule);
    assert!(console.screen_text().contains("next run"));
}

#[test]
fn paused_timer_cannot_be_skipped() {
    let mut paused = group(None, &["alpha"], Some(50));
    paused.pause = Some(pause());
    let timers = vec![timer("memory-shepherd.timer", paused)];
    let mut console = console_with_schedule(overview(vec![manager(UnitScope::System, timers)]));
    console.press("T s");
    assert!(console.message_text().contains("it is paused"));
    assert_eq!(requested_actions(&console), []);
}

#[test]
fn each_change_of_pauses_reads_the_schedule() {
    let mut console = console_with_schedule(common_schedule());
    for number in [1, 2] {
        let effects = console.send(Msg::Fleet(FleetEvent::PausesChanged));
        assert_eq!(effects, [Effect::LoadSchedule(number)]);
    }
}

#[test]
fn pause_by_another_process_reads_the_schedule() {
    let mut console = console_with_schedule(common_schedule());
    assert_eq!(
        console.send(Msg::Fleet(FleetEvent::PausesChanged)),
        [Effect::LoadSchedule(1)]
    );
    // Nothing is read for a console that has not shown it yet.
    let mut console = fleet_of_four();
    assert_eq!(console.send(Msg::Fleet(FleetEvent::PausesChanged)), []);
}

#[test]
fn read_only_console_changes_no_timer() {
    let mut console = console_with_schedule(common_schedule());
    console.model.read_only.is_forced = true;
    for keys in ["T", "Tab Enter"] {
        console.press(keys);
        assert!(!has_dialog(&console), "{keys}");
        assert!(console.message_text().contains("--read-only"), "{keys}");
    }
}

#[test]
fn read_only_while_a_plan_is_open_confirms_nothing() {
    let mut console = console_with_schedule(common_schedule());
    console.press("T p");
    console.advance(KEY_GUARD_TIME);
    console.model.read_only.is_on = true;
    console.press("y");
    assert_eq!(requested_actions(&console), []);
}

#[test]
fn timer_does_not_run_during_a_run() {
    let mut console = console_with_run();
    console.press("7");
    load(&mut console, common_schedule());
    console.press("T r");
    assert!(has_dialog(&console));
    assert!(console.message_text().contains("a run is in progress"));
}

#[test]
fn advice_without_schedule_can_be_copied() {
    let mut console = console_with_schedule(schedule_without_managers());
    let effects = console.press("Tab y");
    let [Effect::CopyToClipboard(copied)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(
        copied.text.starts_with("0 0-23/3 * * * "),
        "{}",
        copied.text
    );
    load(&mut console, common_schedule());
    let effects = console.press("y");
    let [Effect::CopyToClipboard(copied)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(copied.text, "journalctl -u memory-shepherd-delta.service");
}

#[test]
fn changed_config_forgets_the_schedule() {
    let mut console = console_with_schedule(common_schedule());
    console.press("T");
    let fleet = console.model.config.clone();
    let agents = configured_agents(&["alpha"]);
    let effects = console.send(Msg::ConfigAdopted(fleet, agents, false));
    assert!(effects.contains(&Effect::LoadSchedule(1)), "{effects:?}");
    assert!(!has_dialog(&console));
    assert_eq!(row_names(&console), Vec::<&str>::new());
    // The answer to a question about the config before.
    console.send(Msg::ScheduleLoaded(0, Ok(Box::new(common_schedule()))));
    assert_eq!(row_names(&console), Vec::<&str>::new());
}
