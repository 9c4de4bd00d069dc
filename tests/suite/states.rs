//! The log of state changes: when an agent's state was first seen, and by what.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{
    Engine, FleetEvent, FleetWatcher, GuardAction, GuardPass, Observation, SealScope, State,
    StateChange, StateObserver, Trigger, UndoMode,
};
use memory_shepherd::transport::{FailureCause, TransportError};

use super::world::{BASELINE, InterposingTransport, TransportCall, World, permission_bits};

/// A world whose archive exists, after a run that found nothing to do.
fn world_after_run() -> World {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world
        .reset()
        .assert_outcome(memory_shepherd::engine::Outcome::Unchanged);
    world
}

fn log_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/states.jsonl")
}

fn states_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/states.known")
}

fn append(path: &Path, bytes: &[u8]) {
    let file = fs::File::options().append(true).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

fn drift(world: &World) {
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
}

/// Observes the agent a minute later with an engine of its own, as another process does.
fn observe(world: &World) -> Observation {
    world.clock.advance(Duration::from_secs(60));
    let engine = world.engine();
    let seen = engine.observer().observe(engine.agent("scout").unwrap());
    engine
        .observations()
        .record(std::slice::from_ref(&seen), Trigger::Cli);
    seen
}

/// Resets the agent as a timer does, without a look at it before.
fn run(engine: &Engine) {
    let names = ["scout".to_string()];
    let plan = engine.planner().plan_unobserved(&names, false).unwrap();
    engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
}

fn changes(world: &World) -> Vec<StateChange> {
    world.engine().observations().changes().unwrap()
}

fn targets(world: &World) -> Vec<State> {
    changes(world).iter().map(|change| change.to).collect()
}

#[test]
fn change_is_recorded_once_with_its_first_time() {
    let world = world_after_run();
    observe(&world);
    drift(&world);
    let seen = observe(&world);
    observe(&world);
    let other = world.engine();
    other
        .observations()
        .record(&[seen.clone(), seen.clone()], Trigger::Cli);
    let [change] = changes(&world).try_into().unwrap();
    assert_eq!(
        (change.from, change.to),
        (Some(State::Clean), State::Drifted)
    );
    assert_eq!(
        (change.time, change.observer),
        (seen.read_at, StateObserver::Cli)
    );
    assert!(change.reason.starts_with("rules edited"), "{change:?}");
    assert_eq!(
        other.observations().state_since("scout", State::Drifted),
        Some(seen.read_at)
    );
    assert_eq!(
        other.observations().state_since("scout", State::Clean),
        None
    );
    assert_eq!(
        other.observations().state_since("nobody", State::Clean),
        None
    );
}

#[test]
fn end_of_a_bad_state_is_recorded_too() {
    let world = world_after_run();
    drift(&world);
    observe(&world);
    world.write_memory("scout", BASELINE);
    let seen = observe(&world);
    assert_eq!(targets(&world), [State::Drifted, State::Clean]);
    let since = world
        .engine()
        .observations()
        .state_since("scout", State::Clean);
    assert_eq!(since, Some(seen.read_at));
}

#[test]
fn first_notes_of_healthy_agent_are_no_change() {
    let world = world_after_run();
    observe(&world);
    world.write_scratch("scout", "- note\n");
    let seen = observe(&world);
    assert_eq!(targets(&world), []);
    let since = world
        .engine()
        .observations()
        .state_since("scout", State::Scratch);
    assert_eq!(since, Some(seen.read_at));
}

#[test]
fn agent_first_seen_in_a_bad_state_is_a_change() {
    let world = world_after_run();
    fs::remove_file(states_path(&world)).unwrap();
    drift(&world);
    observe(&world);
    let [change] = changes(&world).try_into().unwrap();
    assert_eq!((change.from, change.to), (None, State::Drifted));
}

#[test]
fn reset_notes_what_it_found_and_left() {
    let world = world_after_run();
    drift(&world);
    world.clock.advance(Duration::from_secs(60));
    run(&world.engine());
    observe(&world);
    // The reset itself is in the ledger.
    let [change] = changes(&world).try_into().unwrap();
    assert_eq!(
        (change.from, change.to),
        (Some(State::Clean), State::Drifted)
    );
    assert_eq!(change.reason, "rules edited: +1 -1 lines");
    drift(&world);
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted, State::Drifted]);
    // After an undo nothing is known, and the drift that it restored is new.
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    observe(&world);
    assert_eq!(changes(&world).last().unwrap().from, None);
}

#[test]
fn runs_that_find_notes_write_no_states() {
    let world = world_after_run();
    let before = fs::metadata(states_path(&world))
        .unwrap()
        .modified()
        .unwrap();
    world.write_scratch("scout", "- note\n");
    run(&world.engine());
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    let after = fs::metadata(states_path(&world))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after);
    assert_eq!(targets(&world), []);
}

#[test]
fn run_notes_refused_baselines_and_lost_hosts() {
    let world = world_after_run();
    world.write_seal();
    fs::write(
        world.baseline_path("scout"),
        BASELINE.replace("kind", "cruel"),
    )
    .unwrap();
    run(&world.engine());
    world.set_baseline("scout", BASELINE);
    world.write_scratch("scout", "- note\n");
    let transport = InterposingTransport::new(world.disk(), |call| match call {
        TransportCall::Before("look") => {
            let error = Error::new(ErrorKind::Host, "connection timed out");
            Err(TransportError::new(FailureCause::Unreachable, error))
        }
        _ => Ok(()),
    });
    run(&world.engine_with_transport(transport));
    let changes = changes(&world);
    let steps: Vec<_> = changes.iter().map(|it| (it.from, it.to)).collect();
    assert_eq!(
        steps,
        [
            (Some(State::Clean), State::Tampered),
            (Some(State::Tampered), State::Unreach),
        ]
    );
    assert_eq!(changes[1].reason, "connection timed out");
}

#[test]
fn state_that_the_guard_ends_is_recorded_by_it() {
    let world = world_after_run();
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    fs::write(
        world.baseline_path("scout"),
        BASELINE.replace("kind", "cruel"),
    )
    .unwrap();
    engine.guard().guard_baselines().unwrap();
    let [change] = changes(&world).try_into().unwrap();
    assert_eq!(
        (change.to, change.observer),
        (State::Tampered, StateObserver::Guard)
    );
    observe(&world);
    assert_eq!(targets(&world), [State::Tampered]);
    assert!(
        world
            .engine()
            .observations()
            .state_since("scout", State::Clean)
            .is_some()
    );
}

#[test]
fn seal_copied_in_two_steps_leaves_no_tampered_line() {
    let world = world_after_run();
    world.write_seal();
    world.engine().guard().guard_baselines().unwrap();
    let seal = world.baseline_path("scout").with_file_name(".checksums");
    let sealed = fs::read(&seal).unwrap();
    fs::write(&seal, &sealed[..10]).unwrap();
    let actions = |pass: GuardPass| -> Vec<GuardAction> {
        pass.events.iter().map(|event| event.action).collect()
    };
    // The change time of a file is the machine's.
    let engine = world.engine_with_clock(Arc::new(SystemClock), world.local_transport());
    assert_eq!(
        actions(engine.guard().guard_baselines().unwrap()),
        [GuardAction::Waiting]
    );
    fs::write(&seal, sealed).unwrap();
    assert_eq!(actions(engine.guard().guard_baselines().unwrap()), []);
    assert_eq!(targets(&world), []);
}

#[test]
fn guard_notes_the_end_of_tampering_by_others() {
    let world = world_after_run();
    world.write_seal();
    world.engine().guard().guard_baselines().unwrap();
    let path = world.baseline_path("scout");
    let sealed = fs::read(&path).unwrap();
    fs::write(&path, BASELINE.replace("kind", "cruel")).unwrap();
    run(&world.engine());
    assert_eq!(targets(&world), [State::Tampered]);
    fs::write(&path, sealed).unwrap();
    world.engine().guard().guard_baselines().unwrap();
    assert_eq!(
        world
            .engine()
            .observations()
            .state_since("scout", State::Tampered),
        None
    );
    fs::write(&path, BASELINE.replace("kind", "cruel")).unwrap();
    run(&world.engine());
    assert_eq!(targets(&world), [State::Tampered, State::Tampered]);
}

#[test]
fn torn_line_is_skipped_and_left_alone() {
    let world = world_after_run();
    drift(&world);
    observe(&world);
    append(&log_path(&world), br#"{"time":"2026-03-14T09:0"#);
    world.write_memory("scout", BASELINE);
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted, State::Clean]);
    let text = fs::read_to_string(log_path(&world)).unwrap();
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn line_of_a_killed_observer_is_not_repeated() {
    let world = world_after_run();
    let before = fs::read(states_path(&world)).unwrap();
    drift(&world);
    observe(&world);
    // Killed between the log and the states.
    fs::write(states_path(&world), before).unwrap();
    let seen = observe(&world);
    assert_eq!(targets(&world), [State::Drifted]);
    let since = world
        .engine()
        .observations()
        .state_since("scout", State::Drifted)
        .unwrap();
    assert!(since < seen.read_at);
    // Without the file, the log tells.
    fs::remove_file(states_path(&world)).unwrap();
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted]);
}

#[test]
fn unfinished_line_of_known_states_is_ignored() {
    let world = world_after_run();
    drift(&world);
    let seen = observe(&world);
    append(
        &states_path(&world),
        br#"scout	{"state":"CLEAN","since":"2026-03-14T10:0"#,
    );
    let since = |state| world.engine().observations().state_since("scout", state);
    assert_eq!(since(State::Drifted), Some(seen.read_at));
    world.write_memory("scout", BASELINE);
    let seen = observe(&world);
    assert_eq!(since(State::Clean), Some(seen.read_at));
    assert_eq!(targets(&world), [State::Drifted, State::Clean]);
}

#[test]
fn unfinished_write_of_states_does_not_cover_the_log() {
    let world = world_after_run();
    let before = fs::read(states_path(&world)).unwrap();
    drift(&world);
    let drifted = observe(&world).read_at;
    let after = fs::read(states_path(&world)).unwrap();
    assert!(after.starts_with(&before));
    for length in before.len()..after.len() {
        fs::write(states_path(&world), &after[..length]).unwrap();
        observe(&world);
        assert_eq!(targets(&world), [State::Drifted], "{length} bytes");
        let since = world
            .engine()
            .observations()
            .state_since("scout", State::Drifted);
        assert_eq!(since, Some(drifted), "{length} bytes");
    }
}

/// Writes known states of this many other agents, which are all CLEAN, as a whole file.
fn write_known_states(world: &World, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count)
        .map(|number| format!("agent-{number:05}"))
        .collect();
    let lines = names.iter().map(|name| {
        format!(r#"{name}	{{"state":"CLEAN","since":"2026-03-14T08:00:00+01:00"}}"#) + "\n"
    });
    let lines: String = lines.collect();
    let first = format!(r#"	{{"log":0,"sorted":{}}}"#, lines.len());
    fs::write(states_path(world), format!("{first}\n{lines}")).unwrap();
    names
}

/// Returns those whose state is known. One engine for all soon parses the whole file.
fn known_agents(world: &World, names: &[String]) -> Vec<String> {
    let engine = world.engine();
    let is_known = |name: &&String| engine.observations().known_state(name).is_some();
    names.iter().filter(is_known).cloned().collect()
}

/// Asserts which agents are known, each looked up for itself and all at once.
fn assert_known_agents(world: &World, names: &[String], expected: &[String]) {
    assert_eq!(known_agents(world, names), expected);
    for name in names.iter().step_by(7) {
        let is_known = world.engine().observations().known_state(name).is_some();
        assert_eq!(is_known, expected.contains(name), "{name}");
    }
}

#[test]
fn each_agent_of_many_is_found() {
    let world = world_after_run();
    let names = write_known_states(&world, 3_000);
    for name in ["agent-", "agent-00000-", "agent-02999-", "zeno"] {
        assert_eq!(
            world.engine().observations().known_state(name),
            None,
            "{name}"
        );
    }
    assert_known_agents(&world, &names, &names);
}

#[test]
fn damaged_line_hides_only_its_agent() {
    let world = world_after_run();
    let names = write_known_states(&world, 3_000);
    let text = fs::read(states_path(&world)).unwrap();
    // Where a bisection looks first.
    let is_damaged = |number: usize| {
        [1_500_usize, 750, 2_250]
            .iter()
            .any(|it| it.abs_diff(number) < 3)
    };
    let expected = names.iter().enumerate();
    let expected = expected.filter(|(number, _)| !is_damaged(*number));
    let expected: Vec<String> = expected.map(|(_, name)| name.clone()).collect();
    for damage in [b"zzzzz zzzzzz", &[0; 12], b"\t\t\t\t\t\t\t\t\t\t\t\t"] {
        let mut text = text.clone();
        for name in names.iter().filter(|name| !expected.contains(name)) {
            let at = memchr::memmem::find(&text, name.as_bytes()).unwrap();
            text[at..at + damage.len()].copy_from_slice(damage);
        }
        fs::write(states_path(&world), text).unwrap();
        assert_known_agents(&world, &names, &expected);
    }
    drift(&world);
    observe(&world);
    assert_eq!(known_agents(&world, &names), expected);
}

#[test]
fn damaged_first_line_of_states_hides_no_agent() {
    let world = world_after_run();
    let names = write_known_states(&world, 3_000);
    let text = fs::read_to_string(states_path(&world)).unwrap();
    for first in ["", "torn\n", "\t{\"log\":0,\"sorted\":1000000}\n"] {
        let (_, lines) = text.split_once('\n').unwrap();
        fs::write(states_path(&world), format!("{first}{lines}")).unwrap();
        assert_eq!(known_agents(&world, &names), names);
        drift(&world);
        observe(&world);
        assert_eq!(known_agents(&world, &names), names);
        let written = fs::read_to_string(states_path(&world)).unwrap();
        assert!(written.starts_with("\t{\"log\":"), "{first:?}");
        assert!(
            world
                .engine()
                .observations()
                .state_since("scout", State::Drifted)
                .is_some()
        );
    }
}

#[test]
fn superseded_lines_of_known_states_are_removed() {
    let world = world_after_run();
    let names = write_known_states(&world, 100);
    let whole = fs::metadata(states_path(&world)).unwrap().len();
    let line = |state: &str| {
        format!(r#"agent-00007	{{"state":"{state}","since":"2026-03-14T08:30:00+01:00"}}"#) + "\n"
    };
    append(&states_path(&world), line("SCRATCH").repeat(900).as_bytes());
    append(&states_path(&world), line("DRIFTED").as_bytes());
    append(&states_path(&world), b"agent-00008\tnull\n");
    for text in [BASELINE.replace("kind", "cruel"), BASELINE.to_string()]
        .iter()
        .cycle()
        .take(64)
    {
        world.write_memory("scout", text);
        let seen = observe(&world);
        let engine = world.engine();
        assert_eq!(
            engine.observations().state_since("scout", seen.state),
            Some(seen.read_at)
        );
        let state = engine
            .observations()
            .known_state("agent-00007")
            .map(|known| known.state);
        assert_eq!(state, Some(State::Drifted));
        assert_eq!(engine.observations().known_state("agent-00008"), None);
    }
    let size = fs::metadata(states_path(&world)).unwrap().len();
    assert!(
        (whole..whole + 16_000).contains(&size),
        "{size} bytes after {whole}"
    );
    assert_eq!(known_agents(&world, &names).len(), 99);
}

#[test]
fn run_of_one_agent_appends_one_known_state() {
    let world = world_after_run();
    write_known_states(&world, 3_000);
    drift(&world);
    observe(&world);
    world.write_scratch("scout", "- note\n");
    observe(&world);
    let before = fs::read_to_string(states_path(&world)).unwrap();
    run(&world.engine());
    let after = fs::read_to_string(states_path(&world)).unwrap();
    let added = after.strip_prefix(&before).unwrap();
    assert_eq!(added.lines().count(), 1, "{added}");
    assert!(
        added.starts_with("scout\t") && added.contains("CLEAN"),
        "{added}"
    );
}

#[test]
fn concurrent_observers_lose_no_known_state() {
    let world = World::new(&["ada", "bob"]);
    for agent in ["ada", "bob"] {
        world.write_memory(agent, BASELINE);
    }
    world.reset();
    let world = &world;
    std::thread::scope(|scope| {
        for agent in ["ada", "bob"] {
            // It writes the config.
            let engine = world.engine();
            scope.spawn(move || {
                for word in ["cruel", "kind"].iter().cycle().take(20) {
                    world.write_memory(agent, BASELINE.replace("kind", word));
                    world.clock.advance(Duration::from_secs(60));
                    let seen = engine.observer().observe(engine.agent(agent).unwrap());
                    // An observer does not wait for long for the other one.
                    let is_recorded = (0..1_000).any(|_| {
                        engine
                            .observations()
                            .record(std::slice::from_ref(&seen), Trigger::Cli);
                        engine
                            .observations()
                            .state_since(agent, seen.state)
                            .is_some()
                    });
                    assert!(is_recorded, "{agent}: {word}");
                }
            });
        }
    });
    for agent in ["ada", "bob"] {
        let of_agent = |change: &StateChange| change.agent == agent;
        let targets = changes(world).into_iter().filter(of_agent);
        let targets: Vec<State> = targets.map(|change| change.to).collect();
        assert_eq!(
            targets,
            [State::Drifted, State::Clean].repeat(10),
            "{agent}"
        );
        assert!(
            world
                .engine()
                .observations()
                .state_since(agent, State::Clean)
                .is_some()
        );
    }
}

#[test]
fn line_before_the_known_state_is_not_applied() {
    let world = world_after_run();
    drift(&world);
    observe(&world);
    let log = fs::read(log_path(&world)).unwrap();
    world.write_memory("scout", BASELINE);
    let seen = observe(&world);
    // As a power cut leaves it that takes the last line, which the states cover.
    fs::write(log_path(&world), log).unwrap();
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted]);
    let since = world
        .engine()
        .observations()
        .state_since("scout", State::Clean);
    assert_eq!(since, Some(seen.read_at));
}

#[test]
fn line_of_an_observer_killed_after_rotation_counts() {
    let world = world_after_run();
    drift(&world);
    let drifted = observe(&world).read_at.to_rfc3339();
    // As a process leaves it that was killed between the new log and the states.
    let log = fs::read_to_string(log_path(&world)).unwrap();
    fs::write(
        world.archive_directory().join(".shepherd/states.jsonl.old"),
        &log,
    )
    .unwrap();
    let line = format!(
        r#"{{"time":"{drifted}","agent":"scout","from":"DRIFTED","to":"CLEAN","by":"cli"}}"#
    );
    assert!(line.len() + 1 < log.len());
    fs::write(log_path(&world), line + "\n").unwrap();
    world.write_memory("scout", BASELINE);
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted, State::Clean]);
}

#[test]
fn older_observation_does_not_replace_newer_state() {
    let world = world_after_run();
    drift(&world);
    let engine = world.engine();
    let older = engine.observer().observe(engine.agent("scout").unwrap());
    world.clock.advance(Duration::from_secs(5));
    world.reset().assert_ok();
    let count = targets(&world).len();
    engine.observations().record(&[older], Trigger::Cli);
    assert_eq!(targets(&world).len(), count);
}

#[test]
fn state_known_since_a_future_time_stays_known() {
    let world = world_after_run();
    drift(&world);
    observe(&world);
    // As a run leaves it whose clock is a year ahead.
    let states = fs::read_to_string(states_path(&world)).unwrap();
    let ahead = states.replacen("2026", "2027", 1);
    assert_ne!(ahead, states);
    fs::write(states_path(&world), ahead).unwrap();
    // An unchanged state adds no line.
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted]);
    world.write_memory("scout", BASELINE.replace("\n---\n", "\n"));
    observe(&world);
    assert_eq!(targets(&world), [State::Drifted, State::NoSep]);
    let engine = world.engine();
    assert!(
        engine
            .observations()
            .state_since("scout", State::NoSep)
            .is_some()
    );
}

#[test]
fn secret_in_the_target_of_a_link_is_masked() {
    let world = world_after_run();
    let target = "postgres://admin:S3cretPassw0rd@db/x";
    fs::remove_file(world.memory_path("scout")).unwrap();
    std::os::unix::fs::symlink(target, world.memory_path("scout")).unwrap();
    assert!(observe(&world).reason.contains("a symlink to •••"));
    run(&world.engine());
    for path in [log_path(&world), states_path(&world)] {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains("S3cret"), "{text}");
    }
}

#[test]
fn huge_files_of_states_are_not_read_whole() {
    let world = world_after_run();
    drift(&world);
    observe(&world);
    for path in [log_path(&world), states_path(&world)] {
        let file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.set_len(1 << 40).unwrap();
    }
    assert_eq!(changes(&world), []);
    world.write_memory("scout", BASELINE);
    observe(&world);
    drift(&world);
    observe(&world);
    assert_eq!(targets(&world).last(), Some(&State::Drifted));
}

#[test]
fn observer_without_archive_creates_nothing() {
    let world = World::new(&["scout"]);
    drift(&world);
    observe(&world);
    assert!(!world.archive_directory().exists());
    assert_eq!(targets(&world), []);
}

#[test]
fn observer_that_may_not_write_says_nothing() {
    let world = world_after_run();
    fs::remove_file(log_path(&world)).unwrap();
    fs::create_dir(log_path(&world)).unwrap();
    drift(&world);
    observe(&world);
    assert_eq!(
        world
            .engine()
            .observations()
            .state_since("scout", State::Drifted),
        None
    );
}

#[test]
fn busy_agent_has_no_new_state() {
    let world = world_after_run();
    observe(&world);
    let engine = world.engine();
    let _held = engine.locks().hold_agent_lock("scout").unwrap();
    world.write_scratch("scout", "- note\n");
    assert_eq!(observe(&world).state, State::Busy);
    assert_eq!(targets(&world), []);
    assert!(
        engine
            .observations()
            .state_since("scout", State::Clean)
            .is_some()
    );
    // A lock ends; the reason of a worse state is recorded and stays.
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
    let drifted = observe(&world);
    assert_eq!(drifted.state, State::Drifted);
    assert!(!drifted.reason.contains("locked"), "{}", drifted.reason);
    let blocker = drifted.blocker.unwrap().reason;
    assert!(blocker.starts_with("locked "), "{blocker}");
}

#[test]
fn log_of_thirty_days_is_kept_up_to_8_mib() {
    let world = world_after_run();
    let line = |time: &str| {
        format!(
            r#"{{"time":"{time}","agent":"other","from":"CLEAN","to":"UNREACH","why":"{}","by":"timer"}}"#,
            "x".repeat(190)
        ) + "\n"
    };
    let recent = line("2026-03-13T09:00:00+01:00");
    let count = (1 << 20) / recent.len() + 10;
    fs::write(log_path(&world), recent.repeat(count)).unwrap();
    drift(&world);
    observe(&world);
    let old_path = world.archive_directory().join(".shepherd/states.jsonl.old");
    assert!(!old_path.exists());
    let old = line("2026-01-13T09:00:00+01:00");
    fs::write(log_path(&world), old + &recent.repeat(count)).unwrap();
    world.write_memory("scout", BASELINE);
    observe(&world);
    assert!(old_path.exists());
    assert!(fs::metadata(log_path(&world)).unwrap().len() < 1000);
    let kept = changes(&world);
    assert_eq!(kept.len(), count + 2);
    assert_eq!(kept.last().unwrap().to, State::Clean);
    // Above 8 MiB, the age of the lines does not matter.
    fs::remove_file(&old_path).unwrap();
    fs::write(log_path(&world), recent.repeat(8 * count)).unwrap();
    drift(&world);
    observe(&world);
    assert!(old_path.exists());
    assert!(fs::metadata(log_path(&world)).unwrap().len() < 1000);
}

#[test]
fn archive_group_can_read_the_states() {
    let world = World::new(&["scout"]);
    if rustix::process::geteuid().as_raw() != 0 {
        return crate::skip::skip_unsupported("needs root");
    }
    let engine = world.engine_with_archive_group(4321);
    drift(&world);
    world.reset_with_engine(&engine).assert_ok();
    for path in [log_path(&world), states_path(&world)] {
        assert_eq!(permission_bits(&path), 0o640, "{}", path.display());
    }
}

#[test]
fn watched_fleet_is_recorded_before_the_watch_ends() {
    let world = world_after_run();
    drift(&world);
    let (sender, events) = crossbeam_channel::unbounded();
    let watcher = FleetWatcher::start(Arc::clone(world.engine().watch()), sender).unwrap();
    let is_observed = |event: &FleetEvent| matches!(event, FleetEvent::Observed(_));
    while !is_observed(&events.recv().unwrap()) {}
    watcher.stop(std::time::Duration::from_secs(60));
    assert_eq!(targets(&world), [State::Drifted]);
}

#[test]
fn watch_without_receiver_records_what_it_saw() {
    let world = world_after_run();
    drift(&world);
    let (sender, events) = crossbeam_channel::unbounded();
    let engine = world.engine();
    let services = Arc::downgrade(engine.watch());
    drop(events);
    let _watcher = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    drop(engine);
    // The watch has ended when it holds its services no more.
    let end = Instant::now() + Duration::from_secs(60);
    while services.strong_count() > 0 {
        assert!(Instant::now() < end, "the watch goes on");
        std::thread::yield_now();
    }
    assert_eq!(targets(&world), [State::Drifted]);
}
