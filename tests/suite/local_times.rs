//! Times of the past in a zone with summer time: each has the offset of its own day.

use std::process::Command;
use std::time::Duration;

use chrono::DateTime;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::engine::{AgentTimeline, TimelineRow, TimelineSubject, Trigger};

use super::world::World;

const DAY: Duration = Duration::from_secs(86_400);

/// The zone of [`World::set_summer_time`], as the variable TZ has it.
const SUMMER_TIME_ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// A fleet that was reset at 09:00 on a winter day and at 10:00 on a summer day.
fn world_with_both_offsets() -> World {
    let world = World::new(&["scout"]);
    world.clock.set_summer_time();
    for days in [0, 120] {
        world.clock.advance(days * DAY);
        world.write_scratch("scout", "- a note\n");
        world.reset().assert_ok();
    }
    world
}

/// Runs the program in the zone, whatever the season is now.
fn run_program(world: &World, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memory-shepherd"));
    command
        .current_dir(&world.root)
        .env_clear()
        .env("HOME", &world.root)
        .env("TZ", SUMMER_TIME_ZONE)
        .args(arguments)
        .args(["--config", "memory-shepherd.conf"]);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn log_shows_each_run_at_the_offset_of_its_day() {
    let world = world_with_both_offsets();
    world.config();
    let log = run_program(&world, &["log"]);
    for time in ["2026-03-14 09:00:", "2026-07-12 10:00:"] {
        assert!(log.contains(time), "{time}: {log}");
    }
    // Records are read as they were written.
    let json = run_program(&world, &["log", "--json"]);
    for time in ["2026-03-14T09:00:", "2026-07-12T10:00:"] {
        assert!(json.contains(time), "{time}: {json}");
    }
}

/// A fleet that was reset twice in the hour that occurs twice: at 02:45 in summer time, and half an hour
/// later at 02:15.
fn world_with_repeated_hour() -> World {
    let world = World::new(&["scout"]);
    world.clock.set_summer_time();
    let first = DateTime::parse_from_rfc3339("2026-10-25T00:45:00Z").unwrap();
    let wait = (first - world.clock.now()).to_std().unwrap();
    for wait in [wait, Duration::from_secs(30 * 60)] {
        world.clock.advance(wait);
        world.write_scratch("scout", "- a note\n");
        world.reset().assert_ok();
    }
    world.config();
    world
}

/// Asserts that the lines below the headings begin with the times of both runs.
#[track_caller]
fn assert_repeated_hour(text: &str) {
    let times = [
        ("2026-10-25 02:45:", " +02:00 "),
        ("2026-10-25 02:15:", " +01:00 "),
    ];
    for (line, (time, offset)) in text.lines().skip(1).zip(times) {
        assert!(line.starts_with(time) && line.contains(offset), "{text}");
    }
}

#[test]
fn repeated_hour_is_logged_with_its_offset() {
    let world = world_with_repeated_hour();
    let log = run_program(&world, &["log"]);
    assert_repeated_hour(&log);
    assert_eq!(log.lines().count(), 3, "{log}");
}

#[test]
fn archive_list_is_in_the_order_of_instants() {
    let world = world_with_repeated_hour();
    // By the names, the first entry would be the last one.
    let directory = world.archive_directory().join("scout");
    let [first, second] = ["2026-10-25_0245.md", "2026-10-25_0215.md"];
    assert!(directory.join(first).exists() && directory.join(second).exists());
    let list = run_program(&world, &["archive", "list"]);
    assert_repeated_hour(&list);
}

#[test]
fn archive_list_has_the_offset_of_each_file() {
    let world = world_with_both_offsets();
    world.config();
    let archive = world.archive_directory().join("scout");
    for (name, seconds) in [
        ("2026-03-14_0900.md", 1_773_475_200),
        ("2026-07-12_1000.md", 1_783_843_200),
    ] {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = std::fs::File::open(archive.join(name)).unwrap();
        file.set_modified(time).unwrap();
    }
    let list = run_program(&world, &["archive", "list", "--json"]);
    for time in ["2026-03-14T09:00:00+01:00", "2026-07-12T10:00:00+02:00"] {
        assert!(list.contains(time), "{time}: {list}");
    }
}

#[test]
fn history_and_timeline_have_the_offset_of_each_day() {
    let world = world_with_both_offsets();
    // In winter again.
    world.clock.advance(150 * DAY);
    let engine = world.engine();
    let page = engine.history().agent_history("scout", 10).unwrap();
    let times = page.entries.iter().map(|entry| entry.record.time);
    let times: Vec<String> = times
        .map(|time| time.format("%m-%d %H:%M %:z").to_string())
        .collect();
    assert_eq!(times, ["07-12 10:00 +02:00", "03-14 09:00 +01:00"]);
    let subject = TimelineSubject::Agent("scout".to_string());
    let timeline: AgentTimeline = engine
        .timelines()
        .agent_timeline(&subject, 10, &|| true)
        .unwrap();
    let runs = timeline.rows.iter().filter_map(|row| match row {
        TimelineRow::Run(past) => Some(past.record.time.to_rfc3339()),
        _ => None,
    });
    let runs: Vec<String> = runs.map(|time| time[..13].to_string()).collect();
    assert_eq!(runs, ["2026-07-12T10", "2026-03-14T09"]);
    let last = engine
        .observer()
        .observe_all(&engine.config().agents.iter().collect::<Vec<_>>());
    let last = last[0].last_run.clone().unwrap();
    assert_eq!(last.time.format("%H:%M").to_string(), "10:00");
}

#[test]
fn report_in_winter_shows_summer_times() {
    let world = World::new(&["scout"]);
    world.clock.set_summer_time();
    world.clock.advance(120 * DAY);
    world.write_scratch("scout", "- a note\n");
    world.reset().assert_ok();
    // Another process recorded it in UTC.
    world.write_memory("scout", "no separator\n");
    let engine = world.engine();
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let mut seen = engine.observer().observe_all(&agents);
    for it in &mut seen {
        it.read_at = it.read_at.to_utc().fixed_offset();
    }
    engine.observations().record(&seen, Trigger::Cli);
    world.clock.advance(150 * DAY);
    let since = world.clock.now() - chrono::Duration::days(200);
    let report = world.engine().reports().report(since).unwrap();
    let rows: Vec<String> = report.rows().into_iter().map(|row| row.text).collect();
    assert!(
        rows.iter().any(|text| text.contains("2026-07-12 10:00")),
        "{rows:?}"
    );
}
