//! Alerts of a fleet on the disk: what runs, the console and the guard find is alerted once, on a
//! socket of the test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::archive::DiskSpace;
use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{
    Engine, EngineSetup, Hold, HolderLock, HolderLockKind, RunReport, State, Trigger, UndoMode,
};
use memory_shepherd::layouts::OperationRequest;
use memory_shepherd::transport::{FailureCause, SingleTransport, TransportError};
use memory_shepherd::unattended::alerts::{
    AlertChannel, AlertEnvironment, DeliveryReport, raise_and_deliver,
};
use memory_shepherd::unattended::schedule::{ScheduleAction, ScheduleChange, change_schedule};

use super::world::{BASELINE, InterposingTransport, TestClock, TransportCall, World, apply_plan};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A world whose alerts go to a socket.
struct AlertedWorld {
    world: World,
    socket: Option<UnixDatagram>,
}

impl AlertedWorld {
    /// A world of two agents after a run, with nothing to alert; `lines` belong to `[alerts]`.
    fn new(lines: &str) -> AlertedWorld {
        let alerted = AlertedWorld::after_run(lines);
        assert_eq!(alerted.send(None), Vec::<String>::new());
        alerted
    }

    fn after_run(lines: &str) -> AlertedWorld {
        let mut world = World::new(&["ranger", "scout"]);
        world.add_agent("scout", "every = 1h");
        AlertedWorld::from_world(world, &["ranger", "scout"], lines)
    }

    /// A world of agents on one host, with nothing to alert.
    fn of_host(agents: &[&str], lines: &str) -> AlertedWorld {
        let mut world = World::new(agents);
        for agent in agents {
            let memory = world.memory_path(agent).display().to_string();
            let lines = format!("remote_host = harbour\nremote_memory = {memory}");
            world.add_agent(agent, &lines);
        }
        let alerted = AlertedWorld::from_world(world, agents, lines);
        assert_eq!(alerted.send(None), Vec::<String>::new());
        alerted
    }

    fn from_world(world: World, agents: &[&str], lines: &str) -> AlertedWorld {
        let section = format!("[alerts]\njournal = ./socket\n{lines}");
        let world = world.with_general(&section);
        for agent in agents {
            world.write_memory(agent, BASELINE);
        }
        let mut alerted = AlertedWorld {
            world,
            socket: None,
        };
        alerted.open_socket();
        run(&alerted.world.engine());
        alerted
    }

    fn open_socket(&mut self) {
        let socket = UnixDatagram::bind(self.world.root.join("socket")).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.socket = Some(socket);
    }

    fn close_socket(&mut self) {
        self.socket = None;
        fs::remove_file(self.world.root.join("socket")).unwrap();
    }

    /// Returns the fields of the events that have come.
    fn received(&self) -> Vec<BTreeMap<String, String>> {
        let mut events = Vec::new();
        let mut buffer = [0; 8192];
        let socket = self.socket.as_ref().unwrap();
        while let Ok(length) = socket.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            let fields = text.lines().map(|line| line.split_once('=').unwrap());
            let fields = fields.map(|(name, value)| {
                let name = name.trim_start_matches("MEMORY_SHEPHERD_");
                (name.to_string(), value.to_string())
            });
            events.push(fields.collect());
        }
        events
    }

    fn deliver(&self, engine: &Engine, report: Option<&RunReport>) -> DeliveryReport {
        let environment = AlertEnvironment::default();
        raise_and_deliver(engine, report, &environment, &|| false).unwrap()
    }

    /// Raises and sends with a new engine, and returns kind and agents of what has come.
    fn send(&self, report: Option<&RunReport>) -> Vec<String> {
        let done = self.deliver(&self.world.engine(), report);
        assert_eq!(done.unrecorded, None);
        let events = self.received().into_iter();
        events
            .map(|event| match event.get("AGENTS") {
                Some(agents) => format!("{} {agents}", event["EVENT"]),
                None => event["EVENT"].clone(),
            })
            .collect()
    }

    fn drift(&self, agent: &str) {
        let drifted = BASELINE.replace("kind", "cruel");
        self.world.write_memory(agent, drifted);
    }

    /// Observes an agent as the console does.
    fn observe(&self, agent: &str) {
        self.world.clock.advance(MINUTE);
        let engine = self.world.engine();
        let seen = engine.observer().observe(engine.agent(agent).unwrap());
        engine.observations().record(&[seen], Trigger::Cli);
    }
}

/// Resets all agents as a timer does.
fn run(engine: &Engine) -> RunReport {
    let names: Vec<String> = engine
        .config()
        .agents
        .iter()
        .map(|it| it.name.clone())
        .collect();
    let plan = engine.planner().plan_unobserved(&names, false).unwrap();
    engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {})
}

/// A transport on which each read of a memory fails.
fn broken_transport(
    world: &World,
    cause: FailureCause,
    message: &'static str,
) -> std::sync::Arc<dyn memory_shepherd::transport::Transport> {
    InterposingTransport::new(world.disk(), move |call| match call {
        TransportCall::Before("look") => {
            let error = Error::new(ErrorKind::Host, message);
            Err(TransportError::new(cause, error))
        }
        _ => Ok(()),
    })
}

#[test]
fn drift_found_by_a_run_is_alerted_once() {
    let alerted = AlertedWorld::new("on = drifted");
    alerted.drift("scout");
    alerted.world.clock.advance(MINUTE);
    let report = run(&alerted.world.engine());
    assert_eq!(alerted.send(Some(&report)), ["drifted scout"]);
    assert_eq!(alerted.send(Some(&report)), Vec::<String>::new());
    alerted.world.clock.advance(HOUR);
    let report = run(&alerted.world.engine());
    assert_eq!(alerted.send(Some(&report)), Vec::<String>::new());
    alerted.drift("scout");
    let report = run(&alerted.world.engine());
    assert_eq!(alerted.send(Some(&report)), ["drifted scout"]);
}

#[test]
fn clock_that_is_set_back_repeats_no_alert() {
    let alerted = AlertedWorld::new("on = drifted");
    let clock = &alerted.world.clock;
    clock.advance(10 * HOUR);
    alerted.drift("scout");
    alerted.observe("scout");
    assert_eq!(alerted.send(None), ["drifted scout"]);
    alerted.world.write_memory("scout", BASELINE);
    alerted.observe("scout");
    assert_eq!(alerted.send(None), Vec::<String>::new());
    clock.set_back(3 * HOUR);
    assert_eq!(alerted.send(None), Vec::<String>::new());
    clock.advance(4 * HOUR);
    assert_eq!(alerted.send(None), Vec::<String>::new());
    // What is new is alerted, whatever the clock says.
    clock.set_back(3 * HOUR);
    alerted.drift("scout");
    alerted.observe("scout");
    assert_eq!(alerted.send(None), ["drifted scout"]);
}

#[test]
fn what_the_console_saw_is_alerted_by_the_next_run() {
    let alerted = AlertedWorld::new("on = drifted, oversize");
    alerted.drift("ranger");
    alerted.observe("ranger");
    // The agent puts it right before any run.
    alerted.world.write_memory("ranger", BASELINE);
    alerted.observe("ranger");
    let report = run(&alerted.world.engine());
    assert_eq!(alerted.send(Some(&report)), ["drifted ranger"]);
}

#[test]
fn baseline_that_the_guard_restored_is_alerted() {
    let alerted = AlertedWorld::new("on = tampered");
    let world = &alerted.world;
    world.write_seal();
    world.engine().guard().guard_baselines().unwrap();
    world.set_baseline("scout", BASELINE.replace("kind", "cruel"));
    world.clock.advance(MINUTE);
    world.engine().guard().guard_baselines().unwrap();
    alerted.deliver(&world.engine(), None);
    let [event] = alerted.received().try_into().unwrap();
    assert_eq!(event["EVENT"], "tampered");
    assert_eq!(event["STATE"], "TAMPERED");
    assert_eq!(event["PRIORITY"], "2");
    assert!(event["MESSAGE"].contains("scout.md"), "{event:?}");
    world.clock.advance(HOUR);
    world.engine().guard().guard_baselines().unwrap();
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn failed_reset_is_alerted_until_it_succeeds() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    let fail = || {
        world.clock.advance(HOUR);
        let transport = broken_transport(world, FailureCause::Refused, "the disk \x1b[31mhums");
        run(&world.engine_with_transport(transport))
    };
    let report = fail();
    alerted.deliver(&world.engine(), Some(&report));
    let events = alerted.received();
    assert_eq!(events.len(), 2);
    for event in &events {
        assert_eq!(event["RUN"], report.run);
        assert!(event["MESSAGE"].contains("hums"), "{event:?}");
        assert!(!event["MESSAGE"].contains('\x1b'), "{event:?}");
    }
    assert_eq!(alerted.send(Some(&fail())), Vec::<String>::new());
    world.clock.advance(HOUR);
    let report = run(&world.engine());
    assert_eq!(alerted.send(Some(&report)), Vec::<String>::new());
    // This one is known from the ledger alone.
    let _ = fail();
    let both = ["failed-reset ranger", "failed-reset scout"];
    assert_eq!(alerted.send(None), both);
}

#[test]
fn busy_refusal_raises_nothing() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let engine = alerted.world.engine();
    let held = engine.locks().hold_agent_lock("scout").unwrap();
    alerted.world.clock.advance(HOUR);
    let report = run(&alerted.world.engine());
    drop(held);
    assert_eq!(report.results[1].kind, Some(ErrorKind::Busy));
    assert_eq!(alerted.send(Some(&report)), Vec::<String>::new());
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

/// An engine that runs what the operator of the console asks for.
fn console_engine(world: &World) -> Engine {
    Engine::new(EngineSetup {
        config: world.config(),
        clock: world.clock.clone(),
        transports: Arc::new(SingleTransport(world.local_transport())),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Default::default(),
    })
}

#[test]
fn busy_refusal_of_the_console_raises_nothing() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    let fail = || {
        world.clock.advance(HOUR);
        let transport = broken_transport(world, FailureCause::Refused, "no");
        run(&world.engine_with_transport(transport))
    };
    let refuse = || {
        world.clock.advance(HOUR);
        let engine = world.engine();
        let held = ["ranger", "scout"].map(|agent| engine.locks().hold_agent_lock(agent).unwrap());
        let report = run(&console_engine(world));
        drop(held);
        assert_eq!(report.results[0].kind, Some(ErrorKind::Busy));
    };
    refuse();
    assert_eq!(alerted.send(None), Vec::<String>::new());
    assert_eq!(alerted.send(Some(&fail())).len(), 2);
    // A refusal does not end what failed before it.
    refuse();
    assert_eq!(alerted.send(None), Vec::<String>::new());
    assert_eq!(alerted.send(Some(&fail())), Vec::<String>::new());
}

#[test]
fn host_lost_in_a_run_is_one_alert_after_its_return() {
    let alerted = AlertedWorld::of_host(&["far", "farther"], "on = failed-reset");
    let world = &alerted.world;
    for agent in ["far", "farther"] {
        world.write_scratch(agent, "- a note\n");
    }
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Unreachable, "timed out");
    run(&world.engine_with_transport(transport));
    alerted.observe("far");
    alerted.observe("farther");
    let done = alerted.deliver(&world.engine(), None);
    let [event] = done.sent.try_into().unwrap();
    assert_eq!(event.host.as_deref(), Some("harbour"));
    assert_eq!(event.agents, ["far", "farther"]);
    assert_eq!(event.state, Some(State::Unreach));
}

#[test]
fn refusal_by_a_host_is_an_alert_of_its_agent() {
    let alerted = AlertedWorld::of_host(&["far", "farther"], "on = failed-reset");
    let world = &alerted.world;
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Refused, "permission denied");
    let report = run(&world.engine_with_transport(transport));
    let both = ["failed-reset far", "failed-reset farther"];
    assert_eq!(alerted.send(Some(&report)), both);
}

#[test]
fn failure_that_a_later_run_ended_is_alerted() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Refused, "no");
    run(&world.engine_with_transport(transport));
    world.clock.advance(HOUR);
    let report = run(&world.engine());
    let both = ["failed-reset ranger", "failed-reset scout"];
    assert_eq!(alerted.send(Some(&report)), both);
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn drift_behind_a_lost_host_is_alerted_once() {
    let alerted = AlertedWorld::of_host(&["far"], "on = drifted");
    let world = &alerted.world;
    alerted.drift("far");
    alerted.observe("far");
    assert_eq!(alerted.send(None), ["drifted far"]);
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Unreachable, "timed out");
    run(&world.engine_with_transport(transport));
    let known = world.engine().observations().known_state("far");
    assert_eq!(known.map(|known| known.state), Some(State::Unreach));
    assert_eq!(alerted.send(None), Vec::<String>::new());
    world.clock.advance(HOUR);
    alerted.observe("far");
    assert_eq!(alerted.send(None), Vec::<String>::new());
    // A run ends it.
    run(&world.engine());
    world.clock.advance(HOUR);
    alerted.drift("far");
    alerted.observe("far");
    assert_eq!(alerted.send(None), ["drifted far"]);
}

#[test]
fn unreadable_ledger_ends_no_failure() {
    let alerted = AlertedWorld::new("on = failed-reset, missed-schedule");
    let world = &alerted.world;
    world.clock.advance(3 * HOUR);
    let transport = broken_transport(world, FailureCause::Refused, "no");
    run(&world.engine_with_transport(transport));
    let known = [
        "failed-reset ranger",
        "failed-reset scout",
        "missed-schedule scout",
    ];
    assert_eq!(alerted.send(None), known);
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let aside = world.root.join("ledger");
    fs::rename(&ledger, &aside).unwrap();
    fs::create_dir(&ledger).unwrap();
    world.clock.advance(HOUR);
    assert!(world.engine().history().last_run("scout").is_err());
    assert_eq!(alerted.send(None), Vec::<String>::new());
    fs::remove_dir(&ledger).unwrap();
    fs::rename(&aside, &ledger).unwrap();
    world.clock.advance(HOUR);
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

/// Holds the lock of the outbox as another process does.
fn hold_alerts(engine: &Engine) -> HolderLock {
    let lock = engine
        .locks()
        .try_lock_with_holder(HolderLockKind::Hold(Hold::Alerts));
    lock.unwrap().unwrap()
}

/// The ledger can be read until another process, which holds the outbox, goes on.
#[test]
fn ledger_is_read_before_the_outbox_is_locked() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Refused, "no");
    run(&world.engine_with_transport(transport));
    let mut lock = Some(hold_alerts(&world.engine()));
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let aside = world.root.join("ledger");
    world.clock.on_sleep(move || {
        if lock.take().is_some() {
            fs::rename(&ledger, &aside).unwrap();
            fs::create_dir(&ledger).unwrap();
        }
    });
    let both = ["failed-reset ranger", "failed-reset scout"];
    assert_eq!(alerted.send(None), both);
}

#[test]
fn busy_outbox_loses_no_error_of_a_run() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    let log = world.archive_directory().join("reset.log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    world.clock.advance(HOUR);
    let failed = run(&world.engine());
    assert!(!failed.errors.is_empty());
    let lock = hold_alerts(&world.engine());
    let done = alerted.deliver(&world.engine(), Some(&failed));
    let holder = format!("process {} of ", std::process::id());
    assert!(done.unrecorded.is_some_and(|it| it.contains(&holder)));
    assert!(done.held.is_some() && done.sent.is_empty());
    drop(lock);
    fs::remove_dir(&log).unwrap();
    world.clock.advance(HOUR);
    let report = run(&world.engine());
    assert_eq!(report.errors, []);
    let done = alerted.deliver(&world.engine(), Some(&report));
    let [event] = done.sent.try_into().unwrap();
    assert_eq!(event.run, Some(failed.run));
    assert_eq!(alerted.received().len(), 1);
    world.clock.advance(HOUR);
    assert_eq!(
        alerted.send(Some(&run(&world.engine()))),
        Vec::<String>::new()
    );
}

#[test]
fn refused_undo_raises_nothing() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    world.write_scratch("scout", "- a note\n");
    let _ = world.reset();
    world.write_scratch("scout", "- a later note\n");
    let refused = world.undo("scout", UndoMode::Refuse);
    assert!(refused.report.worst_kind().is_some());
    assert_eq!(alerted.send(Some(&refused.report)), Vec::<String>::new());
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn full_disk_is_alerted_once() {
    let alerted = AlertedWorld::after_run("on = disk\ndisk_below = 99%");
    // Two percent of the disk, so that less than 99 are free.
    let space = DiskSpace::of(alerted.world.engine().archive().root()).unwrap();
    if u128::from(space.free_bytes) * 100 >= u128::from(space.total_bytes) * 99 {
        let file = fs::File::create(alerted.world.root.join("filler")).unwrap();
        let size = space.total_bytes / 50;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
    }
    let done = alerted.deliver(&alerted.world.engine(), None);
    assert_eq!(done.sent.len(), 1);
    let [event] = alerted.received().try_into().unwrap();
    assert_eq!(event["EVENT"], "disk");
    assert!(!event.contains_key("AGENT"), "{event:?}");
    assert!(
        alerted
            .deliver(&alerted.world.engine(), None)
            .sent
            .is_empty()
    );
}

#[test]
fn unreachable_memory_is_alerted_after_its_time() {
    let alerted = AlertedWorld::new("on = unreachable\nunreachable_after = 2h");
    let world = &alerted.world;
    let lose = || {
        world.clock.advance(HOUR);
        let transport = broken_transport(world, FailureCause::Unreachable, "timed out");
        run(&world.engine_with_transport(transport));
    };
    lose();
    assert_eq!(alerted.send(None), Vec::<String>::new());
    lose();
    assert_eq!(alerted.send(None), Vec::<String>::new());
    lose();
    assert_eq!(
        alerted.send(None),
        ["unreachable ranger", "unreachable scout"]
    );
    lose();
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn missed_schedule_is_alerted_until_a_reset_succeeds() {
    let alerted = AlertedWorld::new("on = missed-schedule");
    let world = &alerted.world;
    world.clock.advance(2 * HOUR);
    assert_eq!(alerted.send(None), Vec::<String>::new());
    world.clock.advance(MINUTE);
    assert_eq!(alerted.send(None), ["missed-schedule scout"]);
    // A run that fails is no success.
    let transport = broken_transport(world, FailureCause::Refused, "no");
    run(&world.engine_with_transport(transport));
    assert_eq!(alerted.send(None), Vec::<String>::new());
    run(&world.engine());
    assert_eq!(alerted.send(None), Vec::<String>::new());
    world.clock.advance(3 * HOUR);
    assert_eq!(alerted.send(None), ["missed-schedule scout"]);
}

#[test]
fn read_only_agent_misses_no_schedule() {
    let mut world = World::new(&["ranger", "scout"]);
    world.add_agent("scout", "every = 1h\nprotect = readonly");
    let alerted = AlertedWorld::from_world(world, &["ranger", "scout"], "on = missed-schedule");
    alerted.world.clock.advance(3 * HOUR);
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn missed_schedule_of_a_pause_says_so() {
    let alerted = AlertedWorld::new("on = missed-schedule");
    let world = &alerted.world;
    let change = |action| {
        let (engine, agent) = (world.engine(), Some("scout".to_string()));
        let changes = [ScheduleChange { agent, action }];
        change_schedule(&engine, &changes, &engine.clock().now()).unwrap();
    };
    change(ScheduleAction::Pause);
    world.clock.advance(2 * HOUR + MINUTE);
    alerted.deliver(&world.engine(), None);
    let event = alerted.received().remove(0);
    assert!(
        event["MESSAGE"].contains("; its schedule is paused since "),
        "{event:?}"
    );
    // The end of a pause gives it the time of two intervals again.
    change(ScheduleAction::Resume);
    assert_eq!(alerted.send(None), Vec::<String>::new());
    world.clock.advance(2 * HOUR + MINUTE);
    assert_eq!(alerted.send(None), ["missed-schedule scout"]);
}

#[test]
fn events_have_no_text_of_memories() {
    let alerted = AlertedWorld::new("on = drifted, oversize, failed-reset");
    let world = &alerted.world;
    let drifted = BASELINE.replace("kind", "zanzibar") + "- zanzibar\x1b[2J\n";
    world.write_memory("scout", drifted);
    world.write_memory("ranger", "zanzibar\n".repeat(10_000));
    world.clock.advance(MINUTE);
    let report = run(&world.engine());
    let done = alerted.deliver(&world.engine(), Some(&report));
    assert_eq!(done.sent.len(), 2);
    let received = format!("{:?}", alerted.received());
    let stored = fs::read_to_string(world.archive_directory().join(".shepherd/alerts.json"));
    for text in [received, stored.unwrap(), format!("{:?}", done.sent)] {
        assert!(
            !text.contains("zanzibar") && !text.contains('\x1b'),
            "{text}"
        );
    }
}

#[test]
fn event_waits_until_its_channel_is_back() {
    let mut alerted = AlertedWorld::new("on = drifted");
    alerted.close_socket();
    alerted.drift("scout");
    alerted.observe("scout");
    let done = alerted.deliver(&alerted.world.engine(), None);
    assert_eq!(
        (done.sent.len(), done.failed.len(), done.waiting),
        (0, 1, 1)
    );
    assert_eq!(done.failed[0].channel, AlertChannel::Journal);
    alerted.open_socket();
    assert_eq!(alerted.send(None), Vec::<String>::new());
    alerted.world.clock.advance(6 * MINUTE);
    assert_eq!(alerted.send(None), ["drifted scout"]);
    alerted.world.clock.advance(6 * MINUTE);
    assert_eq!(alerted.send(None), Vec::<String>::new());
}

#[test]
fn failure_is_alerted_although_it_cannot_be_recorded() {
    let alerted = AlertedWorld::new("on = failed-reset");
    let world = &alerted.world;
    let file = world.archive_directory().join(".shepherd/alerts.json");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let transport = broken_transport(world, FailureCause::Refused, "no");
    let report = run(&world.engine_with_transport(transport));
    let done = alerted.deliver(&world.engine(), Some(&report));
    assert!(done.unrecorded.is_some());
    assert_eq!(alerted.received().len(), 2);
}

#[test]
fn five_failures_at_most_are_sent_unrecorded() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let alerted = AlertedWorld::from_world(World::new(&names), &names, "on = failed-reset");
    let world = &alerted.world;
    let file = world.archive_directory().join(".shepherd/alerts.json");
    let _ = alerted.send(None);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let transport = broken_transport(world, FailureCause::Refused, "no");
    let report = run(&world.engine_with_transport(transport));
    let done = alerted.deliver(&world.engine(), Some(&report));
    assert_eq!(done.sent.len(), 5);
    assert_eq!(alerted.received().len(), 5);
}

#[test]
fn fifty_agents_at_most_are_named() {
    let names: Vec<String> = (0..60).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let alerted = AlertedWorld::of_host(&names, "on = failed-reset");
    let world = &alerted.world;
    world.clock.advance(HOUR);
    let transport = broken_transport(world, FailureCause::Unreachable, "timed out");
    let report = run(&world.engine_with_transport(transport));
    let done = alerted.deliver(&world.engine(), Some(&report));
    let [event] = done.sent.try_into().unwrap();
    assert_eq!((event.agent, event.agents.len()), (None, 50));
}

/// A clock on which every look at it takes a second.
struct SlowClock(Arc<TestClock>);

impl Clock for SlowClock {
    fn now(&self) -> DateTime<FixedOffset> {
        self.0.now()
    }

    fn instant(&self) -> Instant {
        self.0.advance(Duration::from_secs(1));
        self.0.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[test]
fn deliveries_of_a_process_end_after_thirty_seconds() {
    let names: Vec<String> = (0..16).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lines = "on = failed-reset\nmax_per_hour = 100";
    let alerted = AlertedWorld::from_world(World::new(&names), &names, lines);
    let world = &alerted.world;
    let _ = alerted.send(None);
    let transport = broken_transport(world, FailureCause::Refused, "no");
    let report = run(&world.engine_with_transport(transport));
    let clock = Arc::new(SlowClock(world.clock.clone()));
    let engine = world.engine_with_clock(clock, world.local_transport());
    let began = world.clock.instant();
    let done = alerted.deliver(&engine, Some(&report));
    let passed = world.clock.instant() - began;
    assert!(passed < Duration::from_secs(33), "{passed:?}");
    assert!(passed > Duration::from_secs(26), "{passed:?}");
    assert!(!done.sent.is_empty() && done.waiting > 0, "{done:?}");
    assert_eq!(done.sent.len() + done.waiting, 16);
    // The socket takes some ten messages that are not read.
    assert_eq!(alerted.received().len(), done.sent.len());
    let rest = alerted.deliver(&world.engine(), None);
    assert_eq!(rest.sent.len(), done.waiting);
}

/// The world's date, with waits that take real time: on the clock of a test, a few waiting threads pass
/// the time limits of a lock within milliseconds.
struct RealWaitClock(Arc<TestClock>);

impl Clock for RealWaitClock {
    fn now(&self) -> DateTime<FixedOffset> {
        self.0.now()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration);
    }
}

#[test]
fn processes_at_once_send_an_event_once() {
    let alerted = AlertedWorld::new("on = drifted");
    for agent in ["ranger", "scout"] {
        alerted.drift(agent);
        alerted.observe(agent);
    }
    let world = &alerted.world;
    let engine = || {
        let clock = Arc::new(RealWaitClock(Arc::clone(&world.clock)));
        world.engine_with_clock(clock, world.local_transport())
    };
    let engines: Vec<Engine> = (0..8).map(|_| engine()).collect();
    std::thread::scope(|scope| {
        for engine in &engines {
            scope.spawn(|| alerted.deliver(engine, None));
        }
    });
    assert_eq!(alerted.received().len(), 2);
}

#[test]
fn engine_without_alerts_does_nothing() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    let report = run(&world.engine());
    let environment = AlertEnvironment::default();
    let done = raise_and_deliver(&world.engine(), Some(&report), &environment, &|| false);
    assert!(done.is_none());
    assert!(
        !world
            .archive_directory()
            .join(".shepherd/alerts.json")
            .exists()
    );
}

#[test]
fn error_of_health_is_alerted_until_it_is_gone() {
    let mut world = World::new(&["ranger"]);
    let notes = world.agent_directory("keeper");
    world.add_agent(
        "keeper",
        &format!("layout = notes\nmemory_dir = {}", notes.display()),
    );
    let alerted = AlertedWorld::from_world(world, &["ranger"], "");
    let check = || {
        alerted.world.clock.advance(11 * MINUTE);
        let engine = alerted.world.engine();
        engine
            .health()
            .check_due(&[engine.agent("keeper").unwrap()]);
        alerted.observe("keeper");
        alerted.send(None)
    };
    assert!(check().is_empty());
    fs::write(notes.join("tea.md"), "").unwrap();
    assert_eq!(check(), ["health-worse keeper"]);
    assert!(check().is_empty(), "it is alerted once");
    fs::write(notes.join("tea.md"), "green tea\n").unwrap();
    assert!(check().is_empty());
    fs::write(notes.join("tea.md"), "").unwrap();
    assert_eq!(check(), ["health-worse keeper"]);
    // An operation that leaves the error alone is no end of it.
    let engine = alerted.world.engine();
    fs::write(notes.join("oolong.md"), "oolong\n").unwrap();
    let request = OperationRequest {
        operation: "keep".to_string(),
        arguments: [("note".to_string(), vec!["oolong.md".to_string()])].into(),
        now: engine.clock().now(),
    };
    let planned = engine.layouts().plan("keeper", &request, false).unwrap();
    let ran = apply_plan(&engine, &planned.plan);
    assert_eq!(ran.report.worst_kind(), None);
    assert!(check().is_empty());
}
