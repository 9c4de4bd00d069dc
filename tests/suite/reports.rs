//! Reports: what happened since a moment, from the ledger and the state changes.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::quantity::describe_size;
use memory_shepherd::engine::{
    FleetReport, Observation, Operation, Outcome, ReportLevel, State, Trigger, UndoMode,
};

use super::world::{BASELINE, KEY, World, engine_with, fail_reset};
use super::writers::append_while_settling;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

fn now(world: &World) -> DateTime<FixedOffset> {
    world.clock.now()
}

/// Reports the last hours.
fn report(world: &World, hours: i64) -> FleetReport {
    let since = now(world) - chrono::Duration::hours(hours);
    world.engine().reports().report(since).unwrap()
}

/// Observes all agents as `status` does, and lets another state be seen.
fn observe(world: &World, change: impl Fn(&mut Observation)) {
    let engine = world.engine();
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let mut seen = engine.observer().observe_all(&agents);
    seen.iter_mut().for_each(change);
    engine.observations().record(&seen, Trigger::Cli);
}

fn texts(report: &FleetReport) -> Vec<String> {
    let rows = report.rows().into_iter();
    rows.map(|row| format!("{} | {} | {}", row.topic, row.subject, row.text))
        .collect()
}

#[test]
fn quiet_fleet_has_an_empty_report() {
    let world = World::new(&["scout"]);
    let quiet = report(&world, 12);
    assert!(quiet.is_empty());
    assert_eq!(quiet.headline(), "nothing happened since 2026-03-13 21:00");
    assert!(quiet.rows().is_empty());
    // What was before the moment does not count.
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    world.clock.advance(2 * HOUR);
    assert!(report(&world, 1).is_empty());
    let busy = report(&world, 3);
    assert_eq!(
        busy.headline(),
        "since 08:00: 1 run (1 cli), 1 ok; 1 agent reset"
    );
    assert!(busy.rows().is_empty());
}

#[test]
fn drift_has_the_time_when_it_began() {
    let world = World::new(&["ranger", "scout"]);
    world.reset();
    for agent in ["ranger", "scout"] {
        world.write_memory(agent, BASELINE.replace("kind", "cruel"));
    }
    world.clock.advance(HOUR);
    observe(&world, |_| {});
    let first_seen = now(&world);
    world.clock.advance(HOUR);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    super::world::apply_plan(&engine, &plan).assert_ok();
    let report = report(&world, 12);
    let [open, reset] = report.drift.as_slice() else {
        panic!("{:#?}", report.drift);
    };
    assert_eq!((open.agent.as_str(), open.is_open), ("ranger", true));
    assert_eq!((open.first_seen, open.reset), (Some(first_seen), None));
    assert_eq!((reset.agent.as_str(), reset.is_open), ("scout", false));
    assert_eq!(reset.first_seen, Some(first_seen));
    assert_eq!((reset.added, reset.removed), (Some(1), Some(1)));
    let entry = reset.entry.clone().unwrap();
    assert!(entry.ends_with("-full-backup.md"), "{entry}");
    assert_eq!(
        texts(&report),
        [
            "drift | ranger | 10:00 first seen, not reset".to_string(),
            format!("drift | scout | 10:00 first seen, 11:00 reset, +1 -1; {entry}"),
        ]
    );
    // A month later it is still there, and still told.
    world.clock.advance(31 * DAY);
    let later = world
        .engine()
        .reports()
        .report(now(&world) - chrono::Duration::hours(1));
    assert_eq!(later.unwrap().drift.len(), 1);
}

#[test]
fn lost_host_has_times_and_count_of_flaps() {
    let mut world = World::new(&["scout"]);
    for agent in ["kim", "lou"] {
        world.set_baseline(agent, BASELINE);
        world.add_agent(agent, "remote_host = harbour\nremote_memory = /m.md");
    }
    world.write_memory("scout", BASELINE);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    super::world::apply_plan(&engine, &plan);
    let lose = |is_lost: bool| {
        world.clock.advance(HOUR);
        observe(&world, |seen| {
            if seen.agent != "scout" {
                seen.state = if is_lost {
                    State::Unreach
                } else {
                    State::Clean
                };
                seen.reason = "connection timed out".to_string();
            }
        });
        now(&world)
    };
    lose(false);
    let lost = lose(true);
    lose(false);
    lose(true);
    let back = lose(false);
    let seen = report(&world, 12);
    let [host] = seen.hosts.as_slice() else {
        panic!("{:#?}", seen.hosts);
    };
    assert_eq!((host.host.as_str(), host.times), ("harbour", 2));
    assert_eq!((host.lost, host.back), (lost, Some(back)));
    assert_eq!(host.agents, ["kim", "lou"]);
    assert_eq!(
        texts(&seen),
        ["host lost | harbour | 11:00 to 14:00, 2 times; 2 agents; connection timed out"]
    );
    lose(true);
    let seen = report(&world, 12);
    assert_eq!(seen.hosts[0].back, None);
    assert_eq!(seen.rows()[0].level, ReportLevel::Bad);
}

#[test]
fn several_causes_are_all_named() {
    let mut world = World::new(&["scout"]);
    world.set_baseline("kim", BASELINE);
    world.add_agent("kim", "remote_host = harbour\nremote_memory = /m.md");
    world.write_memory("scout", BASELINE);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    super::world::apply_plan(&engine, &plan);
    let see = |state: State, reason: &str| {
        world.clock.advance(HOUR);
        observe(&world, |seen| {
            let is_lost = matches!(state, State::HostKey | State::Unreach);
            seen.state = if is_lost == (seen.agent == "kim") {
                state
            } else {
                State::Clean
            };
            seen.reason = reason.to_string();
        });
    };
    see(State::Unreach, "connection timed out");
    see(State::HostKey, "host key changed");
    see(State::Clean, "");
    see(State::Unreach, "connection refused");
    see(State::Error, "permission denied");
    see(State::Clean, "");
    see(State::Error, "a directory");
    assert_eq!(
        texts(&report(&world, 12)),
        [
            "state | scout | ERROR since 16:00, 2 times since 14:00; a directory; also: permission denied",
            "host lost | harbour | 10:00 to 14:00, 2 times; 1 agent; connection refused; also: connection \
             timed out",
            "host key | harbour | 11:00 to 12:00; 1 agent; host key changed",
        ]
    );
}

#[test]
fn reset_of_lost_separator_tells_that_it_was_lost() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
    world.clock.advance(HOUR);
    observe(&world, |_| {});
    world.write_memory("scout", "nothing of the baseline\n");
    world.clock.advance(HOUR);
    observe(&world, |_| {});
    world.reset().assert_ok();
    let seen = report(&world, 12);
    assert_eq!(seen.drift.len(), 1, "{seen:?}");
    assert_eq!(seen.drift[0].state, State::NoSep);
    assert!(
        texts(&seen)[0].contains("no separator"),
        "{:?}",
        texts(&seen)
    );
}

/// Resets agents on a full disk.
#[test]
fn failure_names_reason_count_and_recovery() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    for _ in 0..2 {
        fail_reset(&world).assert_outcome(Outcome::Failed);
        world.clock.advance(HOUR);
    }
    let failed = report(&world, 12);
    assert_eq!(
        texts(&failed),
        ["failed | scout | 10:00, 2 times; reset FAILED: no space left on device"]
    );
    assert_eq!(failed.rows()[0].level, ReportLevel::Bad);
    assert!(failed.headline().contains("2 runs (2 cli), 0 ok, 2 failed"));
    world.reset().assert_ok();
    let recovered = report(&world, 12);
    assert_eq!(recovered.failures[0].recovered, Some(now(&world)));
    assert_eq!(recovered.rows()[0].level, ReportLevel::Warn);
}

#[test]
fn record_of_unchanged_agents_ends_a_failure() {
    let world = World::new(&["ranger", "scout"]);
    for agent in ["ranger", "scout"] {
        world.write_scratch(agent, "- note\n");
    }
    fail_reset(&world);
    assert_eq!(report(&world, 12).failures.len(), 2);
    world.clock.advance(HOUR);
    for agent in ["ranger", "scout"] {
        world.write_memory(agent, BASELINE);
    }
    world.reset();
    let records = world.read_records();
    let [.., first, second] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert_eq!(first.seq, second.seq);
    let recovered = report(&world, 12).failures;
    let at = Some(now(&world));
    assert!(
        recovered.iter().all(|it| it.recovered == at),
        "{recovered:?}"
    );
}

#[test]
fn rows_tell_findings_late_writers_and_triggers() {
    let world = World::new(&["scout"]).with_general("archive_findings = quarantine");
    world.write_scratch("scout", format!("- the key is {KEY}\n"));
    append_while_settling(&world);
    world.reset().assert_ok();
    world.clock.on_sleep(|| {});
    let transports = memory_shepherd::transport::SingleTransport(world.local_transport());
    let engine = engine_with(
        world.config(),
        world.clock.clone(),
        std::sync::Arc::new(transports),
        None,
    );
    world.write_scratch("scout", "- two\n");
    world.reset_with_engine(&engine).assert_ok();
    let seen = report(&world, 1);
    assert_eq!(
        texts(&seen),
        [
            "findings | scout | 1 secret in 1 entry, 1 in quarantine",
            "late writer | scout | 1 late write, 7 bytes",
        ]
    );
    assert_eq!(seen.runs.len(), 1);
    assert_eq!((seen.runs[0].trigger, seen.runs[0].runs), (Trigger::Cli, 2));
}

#[test]
fn broken_seal_and_guard_are_reported() {
    let world = World::new(&["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine
        .seals()
        .plan_seal(&memory_shepherd::engine::SealScope::All, false)
        .unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    let damaged = BASELINE.replace("kind", "cruel");
    fs::write(world.baseline_path("scout"), &damaged).unwrap();
    world.clock.advance(HOUR);
    engine.guard().guard_baselines().unwrap();
    let seen = report(&world, 12);
    let rows = texts(&seen);
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert!(rows[0].starts_with("seal broken | scout.md | 10:00 to 10:00; 1 agent; "));
    assert_eq!(rows[1], "guard | scout.md | 10:00 restored");
    fs::write(world.baseline_path("scout"), damaged).unwrap();
    observe(&world, |_| {});
    let seen = report(&world, 12);
    assert_eq!(seen.seals[0].ended, None);
    assert_eq!(seen.rows()[0].level, ReportLevel::Bad);
}

#[test]
fn states_of_other_kinds_are_reported() {
    let world = World::new(&["scout"]).with_general("max_memory_size = 100");
    world.write_memory("scout", BASELINE);
    world.reset();
    world.write_scratch("scout", "- long\n".repeat(20));
    world.clock.advance(HOUR);
    observe(&world, |_| {});
    let seen = report(&world, 12);
    assert_eq!(
        texts(&seen),
        ["state | scout | OVERSIZE since 10:00; over the limit of 100 bytes"]
    );
    world.clock.advance(HOUR);
    world.reset().assert_ok();
    let seen = report(&world, 12);
    assert_eq!(seen.states[0].ended, Some(now(&world)));
}

#[test]
fn end_of_a_missing_memory_names_the_run() {
    for is_reset in [true, false] {
        let world = World::new(&["scout"]);
        world.write_memory("scout", BASELINE);
        world.reset();
        world.clock.advance(HOUR);
        fs::remove_file(world.memory_path("scout")).unwrap();
        observe(&world, |_| {});
        let open = report(&world, 2);
        assert_eq!(
            texts(&open),
            ["state | scout | MISSING since 10:00; no memory file"]
        );
        world.clock.advance(HOUR);
        let end = if is_reset {
            world.reset().assert_ok();
            "ended by reset"
        } else {
            world.write_memory("scout", BASELINE);
            "ended without a run"
        };
        observe(&world, |_| {});
        // A later run does not end it once more.
        world.clock.advance(HOUR);
        world.write_scratch("scout", "- note\n");
        world.reset().assert_ok();
        let ended = report(&world, 4);
        let expected = format!("state | scout | MISSING 10:00 to 11:00; {end}; no memory file");
        assert_eq!(texts(&ended), [expected]);
        let operation = ended.states[0].ended_by;
        assert_eq!(operation, is_reset.then_some(Operation::Reset));
    }
}

#[test]
fn object_that_a_run_replaced_is_reported() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset();
    world.clock.advance(HOUR);
    fs::remove_file(world.memory_path("scout")).unwrap();
    std::os::unix::fs::symlink("/etc/motd", world.memory_path("scout")).unwrap();
    // As a timer does, which found it and ended it.
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_unobserved(&["scout".to_string()], false)
        .unwrap();
    engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    let seen = report(&world, 2);
    assert_eq!(seen.states.len(), 1, "{seen:?}");
    assert_eq!(seen.states[0].state, State::Error);
    assert!(seen.states[0].reason.contains("a symlink to /etc/motd"));
}

#[test]
fn agent_that_left_the_config_is_not_reported() {
    let world = World::new(&["ranger", "scout"]);
    for agent in ["ranger", "scout"] {
        world.write_scratch(agent, "- note\n");
    }
    fail_reset(&world);
    world.write_memory("ranger", BASELINE.replace("kind", "cruel"));
    observe(&world, |_| {});
    let subjects = |world: &World| {
        let rows = report(world, 12).rows().into_iter();
        rows.map(|row| (row.topic, row.subject)).collect::<Vec<_>>()
    };
    let row = |topic, agent: &str| (topic, agent.to_string());
    let all = [
        row("failed", "ranger"),
        row("failed", "scout"),
        row("drift", "ranger"),
    ];
    assert_eq!(subjects(&world), all);
    let world = world.without_agent("ranger");
    assert_eq!(subjects(&world), [row("failed", "scout")]);
    assert_eq!(report(&world, 12).runs[0].runs, 1);
    let world = world.without_agent("scout");
    assert!(report(&world, 12).is_empty());
}

#[test]
fn drift_that_an_undo_brings_back_is_open() {
    let world = World::new(&["scout"]);
    world.reset();
    let drift = |report: &FleetReport| report.drift[0].is_open;
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
    world.clock.advance(HOUR);
    world.reset().assert_ok();
    assert!(!drift(&report(&world, 12)));
    world.clock.advance(HOUR);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let undone = report(&world, 12);
    assert!(drift(&undone));
    let [text] = &texts(&undone)[..] else {
        panic!("{undone:#?}");
    };
    assert!(text.contains("10:00 reset and undone, +1 -1"), "{text}");
    observe(&world, |_| {});
    assert_eq!(texts(&report(&world, 12)), texts(&undone));
    world.clock.advance(HOUR);
    world.redo("scout").assert_ok();
    assert!(!drift(&report(&world, 12)));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    world.clock.advance(HOUR);
    world.reset().assert_ok();
    assert!(report(&world, 12).drift.iter().all(|it| !it.is_open));
}

#[test]
fn drift_that_comes_and_goes_is_one_item() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset();
    for _ in 0..3 {
        for text in [BASELINE.replace("kind", "cruel"), BASELINE.to_string()] {
            world.clock.advance(HOUR);
            world.write_memory("scout", text);
            observe(&world, |_| {});
        }
    }
    let seen = report(&world, 12);
    assert_eq!(
        texts(&seen),
        ["drift | scout | 10:00 first seen, 3 times, gone again"]
    );
}

#[test]
fn changes_of_a_clock_ahead_are_left_out() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset();
    let ahead = now(&world) + chrono::Duration::hours(3);
    let line = format!(
        r#"{{"time":"{}","agent":"scout","from":"CLEAN","to":"ERROR","why":"x","by":"timer"}}"#,
        ahead.to_rfc3339()
    );
    let log = world.archive_directory().join(".shepherd/states.jsonl");
    fs::write(log, line + "\n").unwrap();
    assert!(report(&world, 12).states.is_empty());
}

#[test]
fn full_backups_are_no_growth() {
    let world = World::new(&["scout"]);
    for day in 0..8 {
        world.write_scratch("scout", format!("- note {day}\n").repeat(100));
        world.reset();
        world.clock.advance(DAY);
    }
    let since = now(&world);
    // The operator's rules grow, and the agent edits one: the reset archives the whole file.
    let rules = "- a new rule\n".repeat(5000);
    let baseline = format!("# Rules\n\n{rules}\n---\n");
    let edited = baseline.replacen("a new rule", "a rule of mine", 1) + "- one note\n";
    for (baseline, memory) in [(baseline.as_str(), Some(edited)), (BASELINE, None)] {
        world.set_baseline("scout", baseline);
        world.reset().assert_ok();
        world.clock.advance(HOUR);
        if let Some(memory) = memory {
            world.write_memory("scout", memory);
            let run = world.reset();
            let written = &run.assert_ok().entries;
            assert_eq!(written[0].kind, EntryKind::FullBackup);
            world.clock.advance(HOUR);
        }
    }
    assert_eq!(world.engine().reports().report(since).unwrap().growth, []);
    // What the agent writes into a file without a boundary still counts.
    world.write_memory("scout", "- all new\n".repeat(9000));
    world.reset().assert_ok();
    world.clock.advance(HOUR);
    let growth = world.engine().reports().report(since).unwrap().growth;
    assert_eq!(growth.len(), 1, "{growth:?}");
    // Of the 90,000 bytes, those of the baseline that replaced them do not count.
    assert_eq!(growth[0].bytes_per_day / 1000, 89);
}

#[test]
fn agent_that_writes_unusually_much_is_named() {
    let world = World::new(&["ranger", "scout"]);
    for day in 0..8 {
        for agent in ["ranger", "scout"] {
            let notes = format!("- note {day}\n").repeat(100);
            world.write_scratch(agent, notes);
        }
        world.reset();
        world.clock.advance(DAY);
    }
    let since = now(&world);
    world.write_scratch("scout", "- much more than usual\n".repeat(2000));
    world.write_scratch("ranger", "- a little more\n".repeat(200));
    world.reset();
    world.clock.advance(2 * HOUR);
    let seen = world.engine().reports().report(since).unwrap();
    let [growth] = seen.growth.as_slice() else {
        panic!("{:#?}", seen.growth);
    };
    assert_eq!(growth.agent, "scout");
    assert_eq!(growth.bytes_per_day / 1000, 46);
    assert!(
        (900..1100).contains(&growth.usual_bytes_per_day),
        "{growth:?}"
    );
    let [now, usual] = [growth.bytes_per_day, growth.usual_bytes_per_day].map(describe_size);
    let row = format!("growth | scout | {now} a day, usually {usual}");
    assert!(texts(&seen).contains(&row), "{:#?}", texts(&seen));
    // Six days are not enough to know what is usual.
    let early = world
        .engine()
        .reports()
        .report(since - chrono::Duration::days(2))
        .unwrap();
    assert_eq!(early.growth, []);
}

#[test]
fn deleted_entries_are_counted() {
    let world = World::new(&["scout"]).with_general("archive_retention_days = 1");
    for day in 0..3 {
        world.write_scratch("scout", format!("- {day}\n"));
        let ran = world.reset();
        for entry in &ran.assert_ok().entries {
            let path = world.archive_directory().join(&entry.path);
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        }
        world.clock.advance(2 * DAY);
    }
    let seen = report(&world, 24 * 3);
    assert_eq!(seen.retired_entries, 1);
    assert_eq!(texts(&seen), ["retention |  | deleted 1 entry"]);
}
