//! Pauses and skips of scheduled resets: which runs they hold back, and which they cannot.

use std::fs;
use std::os::unix::fs::chown;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{Engine, Hold};
use memory_shepherd::unattended::schedule::{
    ScheduleAction, ScheduleChange, ScheduleControls, ScheduleHold, ScheduledGroup, change_schedule,
};

use crate::skip::skip_unsupported;
use crate::world::World;

const HOUR: Duration = Duration::from_secs(3600);

/// A fleet whose agent `scout` is reset every hour, and `ranger` with the fleet, every three hours.
fn scheduled_world() -> World {
    let mut world = World::new(&["ranger", "scout"]);
    world.add_agent("scout", "every = 1h");
    world
}

fn change(agent: Option<&str>, action: ScheduleAction) -> ScheduleChange {
    ScheduleChange {
        agent: agent.map(str::to_string),
        action,
    }
}

fn apply(engine: &Engine, agent: Option<&str>, action: ScheduleAction) {
    change_schedule(engine, &[change(agent, action)], &engine.clock().now()).unwrap();
}

/// Returns why a scheduled reset of an agent would not run at a time.
fn hold_at(engine: &Engine, agent: &str, now: DateTime<FixedOffset>) -> Option<ScheduleHold> {
    let controls = read_controls(engine).unwrap();
    controls.hold_of(engine.config(), engine.agent(agent).unwrap(), &now)
}

fn read_controls(engine: &Engine) -> Result<ScheduleControls, Error> {
    ScheduleControls::read(engine)
}

fn is_held_now(engine: &Engine, agent: &str) -> bool {
    hold_at(engine, agent, engine.clock().now()).is_some()
}

/// Returns when the group of an agent is due next.
fn next_due(engine: &Engine, agent: Option<&str>) -> DateTime<FixedOffset> {
    let group = ScheduledGroup::of_timer(engine.config(), agent).unwrap();
    group.next_after(&engine.clock().now())
}

#[test]
fn paused_timer_cannot_be_skipped() {
    let world = scheduled_world();
    let engine = world.engine();
    apply(&engine, Some("scout"), ScheduleAction::Pause);
    let skip = ScheduleAction::Skip(next_due(&engine, Some("scout")));
    let changes = [change(Some("scout"), skip)];
    let error = change_schedule(&engine, &changes, &engine.clock().now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn skip_holds_for_one_due_time_only() {
    let world = scheduled_world();
    let engine = world.engine();
    let due = next_due(&engine, Some("scout"));
    apply(&engine, Some("scout"), ScheduleAction::Skip(due));
    let minutes = |count| chrono::Duration::minutes(count);
    for (time, is_held) in [
        (engine.clock().now(), false),
        (due - minutes(1), false),
        (due, true),
        // A timer that was late, or made up for when the machine was started.
        (due + minutes(58), true),
        (due + minutes(60), false),
        (due + minutes(60 * 24), false),
    ] {
        let hold = hold_at(&engine, "scout", time);
        assert_eq!(hold.is_some(), is_held, "{time} {hold:?}");
    }
    assert!(hold_at(&engine, "ranger", due).is_none());
    let log = fs::read_to_string(world.archive_directory().join("reset.log")).unwrap();
    assert!(log.contains("skip scout: no reset at "), "{log}");
}

#[test]
fn passed_due_time_cannot_be_skipped() {
    let world = scheduled_world();
    let engine = world.engine();
    let due = next_due(&engine, None);
    world.clock.advance(4 * HOUR);
    let skip = change(None, ScheduleAction::Skip(due));
    let error = change_schedule(&engine, &[skip], &engine.clock().now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(!engine.holds().location(Hold::Schedule).exists());
}

#[test]
fn pause_of_the_fleet_spares_own_intervals() {
    let world = scheduled_world();
    let engine = world.engine();
    apply(&engine, None, ScheduleAction::Pause);
    assert!(is_held_now(&engine, "ranger"));
    assert!(!is_held_now(&engine, "scout"));
    world.clock.advance(1000 * HOUR);
    let Some(ScheduleHold::Paused(pause)) = hold_at(&engine, "ranger", engine.clock().now()) else {
        panic!("the pause ended by itself");
    };
    assert!(pause.since < engine.clock().now() - chrono::Duration::hours(999));
    // A second pause does not change since when.
    apply(&engine, None, ScheduleAction::Pause);
    let again = read_controls(&engine).unwrap();
    assert_eq!(again.pause_of(None), Some(&pause));
    apply(&engine, None, ScheduleAction::Resume);
    assert!(!is_held_now(&engine, "ranger"));
}

#[test]
fn resume_ends_a_pending_skip() {
    let world = scheduled_world();
    let engine = world.engine();
    let due = next_due(&engine, Some("scout"));
    apply(&engine, Some("scout"), ScheduleAction::Skip(due));
    apply(&engine, Some("scout"), ScheduleAction::Resume);
    assert!(hold_at(&engine, "scout", due).is_none());
}

#[test]
fn forged_skip_cannot_outlive_its_due_time() {
    let world = scheduled_world();
    let engine = world.engine();
    let due = next_due(&engine, Some("scout"));
    apply(&engine, Some("scout"), ScheduleAction::Skip(due));
    let path = engine.holds().location(Hold::Schedule);
    let text = fs::read_to_string(&path).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let configs = file["configs"].as_object_mut().unwrap();
    let controls = configs.values_mut().next().unwrap();
    controls["timers"][0]["skip"]["ends"] = "2999-01-01T00:00:00+00:00".into();
    fs::write(&path, file.to_string()).unwrap();
    assert!(hold_at(&engine, "scout", due).is_some());
    let next = due + chrono::Duration::hours(1);
    assert!(hold_at(&engine, "scout", next).is_none());
}

#[test]
fn damaged_or_linked_file_holds_nothing_back() {
    let world = scheduled_world();
    let engine = world.engine();
    apply(&engine, None, ScheduleAction::Pause);
    let path = engine.holds().location(Hold::Schedule);
    let text = fs::read(&path).unwrap();
    fs::write(&path, "{").unwrap();
    assert!(read_controls(&engine).is_err());
    fs::remove_file(&path).unwrap();
    let elsewhere = world.root.join("elsewhere");
    fs::write(&elsewhere, &text).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(read_controls(&engine).is_err());
}

#[test]
fn file_of_another_user_holds_nothing_back() {
    let world = scheduled_world();
    let engine = world.engine();
    apply(&engine, None, ScheduleAction::Pause);
    if chown(engine.holds().location(Hold::Schedule), Some(12_345), None).is_err() {
        skip_unsupported("only root gives files away");
        return;
    }
    let error = read_controls(&engine).unwrap_err();
    assert!(error.message().contains("belongs to user 12345"), "{error}");
    // The owner of the archive is another matter.
    chown(engine.archive().root(), Some(12_345), None).unwrap();
    let controls = read_controls(&engine).unwrap();
    assert!(controls.pause_of(None).is_some());
}

#[test]
fn times_are_shown_in_the_zone_of_the_reader() {
    let world = scheduled_world();
    apply(&world.engine(), None, ScheduleAction::Pause);
    let since = || {
        let controls = read_controls(&world.engine()).unwrap();
        controls.pause_of(None).unwrap().since
    };
    let before = since();
    world.clock.shift_offset(-6 * 3600);
    assert_eq!(since(), before);
    let difference = before.offset().local_minus_utc() - since().offset().local_minus_utc();
    assert_eq!(difference, 6 * 3600);
}

#[test]
fn configs_of_one_archive_pause_apart() {
    let world = scheduled_world();
    let engine = world.engine();
    apply(&engine, None, ScheduleAction::Pause);
    let text = fs::read_to_string(engine.holds().location(Hold::Schedule)).unwrap();
    let other = text.replace(&engine.config().path.display().to_string(), "/other.conf");
    fs::write(engine.holds().location(Hold::Schedule), other).unwrap();
    assert!(!is_held_now(&engine, "ranger"));
    apply(&engine, Some("scout"), ScheduleAction::Pause);
    assert!(is_held_now(&engine, "scout"));
    let text = fs::read_to_string(engine.holds().location(Hold::Schedule)).unwrap();
    assert!(text.contains("/other.conf"), "{text}");
}
