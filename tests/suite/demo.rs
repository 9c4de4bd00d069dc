//! The example fleet shows every state that it promises, and leaves no files behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::config;
use memory_shepherd::demo::{self, Demo};
use memory_shepherd::engine::{Engine, Operation, Outcome, Plan, State, UndoMode, UndoTarget};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::sftp::PerHostTransports;
use tempfile::TempDir;

use crate::fixture::Site;
use crate::temporary_root::temporary_root;
use crate::world::{bare_environment, engine_with};

fn demo_engine(demo: &Demo) -> Engine {
    let env = bare_environment(demo.directory());
    let transports = Arc::new(PerHostTransports::new(
        Arc::new(LocalTransport::new(Arc::new(SystemClock))),
        demo.host().clone(),
        Arc::new(SystemClock),
    ));
    let config = config::load(demo.config_path(), &env).unwrap();
    engine_with(config, Arc::new(SystemClock), transports, None)
}

fn agents_by_state(engine: &Engine) -> BTreeMap<State, Vec<String>> {
    let mut states: BTreeMap<State, Vec<String>> = BTreeMap::new();
    let agents: Vec<_> = engine.config().agents.iter().collect();
    engine.health().check_due(&agents);
    for agent in agents {
        let seen = engine.observer().observe(agent);
        states.entry(seen.state).or_default().push(seen.agent);
    }
    states
}

fn temporary_demo() -> (TempDir, Demo) {
    let place = tempfile::tempdir().unwrap();
    let demo = demo::build_temporary(&temporary_root(place.path()), None, &SystemClock).unwrap();
    (place, demo)
}

#[test]
fn demo_has_every_local_state() {
    let (_place, demo) = temporary_demo();
    let states = agents_by_state(&demo_engine(&demo));
    let expected = [
        (State::Tampered, &["billing-bot"][..]),
        (
            State::Drifted,
            &["code-reviewer", "triage", "customs-clerk"],
        ),
        (State::NoSep, &["log-digger"]),
        (State::Error, &["inbox-scout"]),
        (State::Missing, &["test-runner"]),
        (State::Ill, &["carrier-scout"]),
        (State::Oversize, &["researcher"]),
        (State::Behind, &["docs-writer"]),
        (State::Busy, &["release-captain"]),
        (
            State::Scratch,
            &["monitor-bot", "oncall-buddy", "dock-watch"],
        ),
        (State::Clean, &["data-steward"]),
    ];
    let expected: BTreeMap<State, Vec<String>> = expected
        .iter()
        .map(|(state, names)| (*state, names.iter().map(|name| name.to_string()).collect()))
        .collect();
    assert_eq!(states, expected);
}

#[test]
fn demo_has_one_hidden_edit() {
    let (_place, demo) = temporary_demo();
    let engine = demo_engine(&demo);
    let seen = |name| engine.observer().observe(engine.agent(name).unwrap());
    assert!(
        seen("triage").reason.contains("invisible characters"),
        "{}",
        seen("triage").reason
    );
    assert!(!seen("code-reviewer").reason.contains("invisible"));
}

#[test]
fn demo_history_is_recorded_and_undoable() {
    let (_place, demo) = temporary_demo();
    let engine = demo_engine(&demo);
    let records = super::world::records(&engine).unwrap();
    let now = chrono::Local::now().fixed_offset();
    assert!(
        records
            .iter()
            .all(|record| record.time < now && record.event.outcome == Outcome::Ok)
    );
    assert!(
        records
            .iter()
            .any(|record| record.event.operation == Operation::Undo)
    );
    assert!(records.windows(2).all(|pair| pair[0].time <= pair[1].time));
    for record in records.iter() {
        if let Some(entry) = &record.event.change.entry {
            assert_eq!(engine.entries().digest(&entry.path).unwrap(), entry.digest);
        }
    }
    for agent in engine.config().reset_agents() {
        assert!(
            engine.observer().observe(agent).last_run.is_some(),
            "{}",
            agent.name
        );
    }
}

#[test]
fn demo_seal_fails_only_for_tampered_baseline() {
    let (_place, demo) = temporary_demo();
    let checked = std::process::Command::new("sha256sum")
        .args(["--check", "--quiet", ".checksums"])
        .current_dir(demo.directory().join("baselines"))
        .output();
    let Ok(checked) = checked else {
        return; // No coreutils here.
    };
    let out = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(out, "billing-bot-MEMORY.md: FAILED\n");
}

/// The version of the last push is kept, so a comparison is possible.
#[test]
fn demo_tampered_baseline_has_a_diff() {
    let site = Site::new();
    let _ = site.run(["demo", "--dir", "demo"]).assert_code(0);
    let config = ["--config", "demo/memory-shepherd.conf"];
    let ran = site
        .run([config[0], config[1], "diff", "billing-bot"])
        .assert_code(0);
    let _ = ran
        .assert_stderr_has("comparing with the last known version")
        .assert_stdout_has("\n+- ");
    let ran = site
        .run([config[0], config[1], "diff", "inbox-scout"])
        .assert_code(3);
    let _ = ran.assert_stderr_has("it is a directory");
}

#[test]
fn demo_agent_count_can_be_raised() {
    let place = tempfile::tempdir().unwrap();
    let demo =
        demo::build_temporary(&temporary_root(place.path()), Some(40), &SystemClock).unwrap();
    let states = agents_by_state(&demo_engine(&demo));
    let counts: Vec<usize> = states.values().map(Vec::len).collect();
    assert_eq!(counts.iter().sum::<usize>(), 40);
    assert_eq!(states[&State::Tampered].len(), 1);
    assert!(
        states[&State::Scratch].contains(&"android-16".to_string()),
        "{states:?}"
    );
    assert!(
        states[&State::Clean].contains(&"android-40".to_string()),
        "{states:?}"
    );
}

#[test]
fn temporary_demo_leaves_no_files_behind() {
    let (place, demo) = temporary_demo();
    let writers = demo.start_writers_with_pause(Duration::ZERO..Duration::from_millis(1));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    drop(writers);
    drop(demo);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn demo_writers_write_until_stopped() {
    let (_place, demo) = temporary_demo();
    let path = |agent: &str| demo.directory().join(agent).join("MEMORY.md");
    let size = |agent: &str| fs::metadata(path(agent)).unwrap().len();
    let agents = [
        "agents/monitor-bot",
        "agents/oncall-buddy",
        "harbour/dock-watch",
    ];
    let before = agents.map(size);
    let writers = demo.start_writers_with_pause(Duration::ZERO..Duration::from_millis(1));
    let end = Instant::now() + Duration::from_secs(30);
    while agents
        .map(size)
        .iter()
        .zip(before)
        .any(|(now, before)| *now <= before)
    {
        assert!(Instant::now() < end, "no agent writes");
        std::thread::yield_now();
    }
    drop(writers);
    let after = agents.map(size);
    let text = fs::read_to_string(path("agents/monitor-bot")).unwrap();
    assert!(text.ends_with('\n') && text.lines().last().unwrap().starts_with("- "));
    assert_eq!(agents.map(size), after);
}

#[test]
fn demo_refuses_nonempty_directory() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("mine"), "mine").unwrap();
    let error = demo::build_in(place.path(), None, &SystemClock)
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn demo_without_terminal_prints_status() {
    let site = Site::new();
    let before = site.snapshot_files();
    let ran = site.run(["demo"]).assert_code(0);
    let _ = ran
        .assert_stdout_has("BUSY      release-captain")
        .assert_stdout_has("15 agents")
        .assert_stderr_has("the fleet is removed now");
    assert!(site.snapshot_files().keys().eq(before.keys()));
    let _ = site.run(["demo", "--dir", "kept"]).assert_code(0);
    assert!(site.path("kept/memory-shepherd.conf").exists());
    let _ = site
        .run(["demo", "--dir", "kept"])
        .assert_code(6)
        .assert_stderr_has("is not empty");
    let _ = site.run(["demo", "--agents", "1001"]).assert_code(2);
}

/// The two agents on the host behave like the others: their history consists of runs,
/// and they can be reset and undone.
#[test]
fn demo_host_agents_reset_undo_and_go_unreachable() {
    let (_place, demo) = temporary_demo();
    let engine = demo_engine(&demo);
    let state = |name: &str| engine.observer().observe(engine.agent(name).unwrap()).state;
    let names = ["dock-watch", "customs-clerk"].map(str::to_string);
    let read = |name: &String| {
        fs::read(
            demo.directory()
                .join("harbour")
                .join(name)
                .join("MEMORY.md"),
        )
    };
    let before = names.each_ref().map(|name| read(name).unwrap());
    let apply = |plan: &Plan| {
        let ran = engine
            .runs()
            .apply_plan(plan, true, &AtomicBool::new(false), &mut |_| {});
        let well = ran.results.iter().all(|it| it.outcome == Outcome::Ok);
        assert!(well && ran.results.len() == 2, "{ran:?}");
    };
    apply(&engine.planner().plan_reset(&names, false).unwrap());
    assert_eq!(names.each_ref().map(|name| state(name)), [State::Clean; 2]);
    let target = UndoTarget::Agents(names.to_vec());
    apply(
        &engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap(),
    );
    assert_eq!(names.each_ref().map(|name| read(name).unwrap()), before);
    demo.host().go_offline();
    assert_eq!(
        names.each_ref().map(|name| state(name)),
        [State::Unreach; 2]
    );
    assert_eq!(state("docs-writer"), State::Behind);
    // A new connection finds it again.
    demo.host().go_online().unwrap();
    let engine = super::demo::demo_engine(&demo);
    let seen = engine
        .observer()
        .observe(engine.agent("dock-watch").unwrap());
    assert_eq!(
        (seen.state, seen.host.as_str()),
        (State::Scratch, "harbour")
    );
}

/// The demo's host has stopped, so a real host of that name would be contacted.
#[test]
fn kept_demo_fleet_is_local() {
    let site = Site::new();
    let _ = site.run(["demo", "--dir", "kept"]).assert_code(0);
    let ssh = site.path("bin/ssh");
    fs::create_dir(site.path("bin")).unwrap();
    fs::write(&ssh, "#!/bin/sh\ntouch \"$0.asked\"\n").unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let mut status = site.command();
    status.env("PATH", site.path("bin"));
    status.args(["status", "--config", "kept/memory-shepherd.conf"]);
    // One of the other agents has a baseline that differs from its seal.
    let _ = site
        .run_command(&mut status)
        .assert_code(4)
        .assert_stdout_has("SCRATCH   dock-watch")
        .assert_stdout_has("DRIFTED   customs-clerk")
        .assert_stdout_has("15 agents");
    assert!(!site.path("bin/ssh.asked").exists(), "no ssh is started");
}
