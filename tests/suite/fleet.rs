//! A watched fleet: the watch reports every change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::fake_transport::{FakeOperation, FakeTransport};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::config::SshHost;
use memory_shepherd::engine::{Engine, FleetEvent, FleetWatcher, Hold, Observation, State};
use memory_shepherd::transport::{Transport, Transports};
use memory_shepherd::unattended::schedule::{ScheduleAction, ScheduleChange, change_schedule};

use super::world::{BASELINE, InterposingTransport, TransportCall, World};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the next observation of an agent in this state.
fn wait_for_state(events: &Receiver<FleetEvent>, agent: &str, state: State) -> Observation {
    loop {
        let event = events
            .recv_timeout(WAIT_TIMEOUT)
            .expect("no report in time");
        let FleetEvent::Observed(seen) = event else {
            continue;
        };
        let found = seen
            .into_iter()
            .find(|seen| seen.agent == agent && seen.state == state);
        if let Some(found) = found {
            return found;
        }
    }
}

#[test]
fn agents_are_read_once_and_then_on_change() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "");
    world.write_scratch("b", "- note\n");
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let mut seen: Vec<Observation> = events
        .try_iter()
        .flat_map(|event| match event {
            FleetEvent::Observed(seen) => seen,
            FleetEvent::StatesRecorded => Vec::new(),
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_by(|a, b| a.agent.cmp(&b.agent));
    let states: Vec<State> = seen.iter().map(|seen| seen.state).collect();
    assert_eq!(states, [State::Clean, State::Scratch]);
    // The agent writes.
    world.write_scratch("a", "- note\n");
    let changed = wait_for_state(&events, "a", State::Scratch);
    assert!(changed.generation > seen[0].generation);
    // The watch reports a reset, too,
    world.reset_with_engine(&engine);
    wait_for_state(&events, "b", State::Clean);
    // and an operator's edit of the baseline.
    world.set_baseline("b", "# Other rules\n\n---\n");
    wait_for_state(&events, "b", State::Behind);
    drop(fleet);
    // The watch ends: its channel closes.
    while events.recv_timeout(WAIT_TIMEOUT).is_ok() {}
    let end = events.try_recv().unwrap_err();
    assert_eq!(end, crossbeam_channel::TryRecvError::Disconnected);
}

/// Returns the observations that have been reported, by agent.
fn take_observations(events: &Receiver<FleetEvent>) -> BTreeMap<String, Vec<Observation>> {
    let mut found: BTreeMap<String, Vec<Observation>> = BTreeMap::new();
    for event in events.try_iter() {
        if let FleetEvent::Observed(seen) = event {
            for seen in seen {
                found.entry(seen.agent.clone()).or_default().push(seen);
            }
        }
    }
    found
}

#[test]
fn first_read_observes_each_of_many_once() {
    // More agents than are observed one by one.
    let names: Vec<String> = (0..600).map(|number| format!("agent-{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        world.write_scratch(name, "- note\n");
    }
    world.write_scratch("agent-1", "");
    fs::remove_file(world.memory_path("agent-2")).unwrap();
    fs::remove_file(world.memory_path("agent-3")).unwrap();
    fs::create_dir(world.memory_path("agent-3")).unwrap();
    world.write_scratch("agent-4", "- a note of a long memory\n".repeat(100_000));
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    let held = engine.locks().hold_agent_lock("agent-5").unwrap();
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let seen = take_observations(&events);
    assert_eq!(seen.len(), names.len());
    assert!(seen.values().all(|seen| seen.len() == 1));
    for (name, seen) in &seen {
        let expected = match name.as_str() {
            "agent-1" => State::Clean,
            "agent-2" => State::Missing,
            "agent-3" => State::Error,
            "agent-4" => State::Oversize,
            "agent-5" => State::Busy,
            _ => State::Scratch,
        };
        assert_eq!(seen[0].state, expected, "{name}");
    }
    // From then on the watch reports changes.
    drop(held);
    wait_for_state(&events, "agent-5", State::Scratch);
    world.write_scratch("agent-599", "");
    wait_for_state(&events, "agent-599", State::Clean);
}

#[test]
fn change_before_a_large_fleet_is_watched_is_seen() {
    // More directories than are watched before the first read.
    let names: Vec<String> = (0..1100).map(|number| format!("agent-{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        world.write_scratch(name, "");
    }
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    let (sender, events) = bounded(0);
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    wait_for_state(&events, "agent-0", State::Clean);
    let mut changed: BTreeSet<String> = names.iter().step_by(20).cloned().collect();
    for name in &changed {
        world.write_scratch(name, "- note\n");
    }
    while !changed.is_empty() {
        if let FleetEvent::Observed(seen) = events.recv_timeout(WAIT_TIMEOUT).unwrap() {
            for seen in seen.iter().filter(|seen| seen.state == State::Scratch) {
                changed.remove(&seen.agent);
            }
        }
    }
    drop(fleet);
}

fn wait_for_event(events: &Receiver<FleetEvent>, is_it: impl Fn(&FleetEvent) -> bool) {
    while !is_it(&events.recv_timeout(WAIT_TIMEOUT).unwrap()) {}
}

/// Advances the watch, by a clock that moves only here, until the observation arrives.
fn advance_until(world: &World, fleet: &FleetWatcher, mut came: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !came() {
        assert!(
            began.elapsed() < WAIT_TIMEOUT,
            "the observation never arrived"
        );
        world.clock.advance(Duration::from_secs(1));
        fleet.request_read(Vec::new());
        // The clock does not run ahead of the watch.
        fleet.wait_idle(Duration::from_millis(20));
    }
}

/// Advances the watch in steps of 100 ms, by a clock that moves only here, until the agent has this
/// state; returns how far.
fn time_until_state(
    world: &World,
    (fleet, events): (&FleetWatcher, &Receiver<FleetEvent>),
    state: State,
) -> Duration {
    let (step, mut passed) = (Duration::from_millis(100), Duration::ZERO);
    let is_seen = |event: FleetEvent| match event {
        FleetEvent::Observed(seen) => seen.iter().any(|seen| seen.state == state),
        _ => false,
    };
    while !events.try_iter().any(is_seen) {
        assert!(passed < Duration::from_secs(600), "never {state}");
        world.clock.advance(step);
        passed += step;
        fleet.request_read(Vec::new());
        // The clock does not run ahead of the watch.
        fleet.wait_idle(Duration::from_millis(50));
    }
    passed
}

/// Moves the directory of agent `a` away, and waits until the watch knows it: the kernel reports the
/// change of agent `b` after that. The watch's clock stands still. Returns the states of `a` that were
/// observed.
fn move_directory_away(world: &World, events: &Receiver<FleetEvent>) -> Vec<State> {
    // The first reads delay no later ones any more.
    world.clock.advance(Duration::from_secs(1));
    fs::rename(world.agent_directory("a"), world.root.join("away")).unwrap();
    // In one change: the read after one half of it would not be followed by another while the clock stands.
    let marker = world.root.join("marker");
    fs::write(&marker, format!("{BASELINE}- marker\n")).unwrap();
    fs::rename(&marker, world.memory_path("b")).unwrap();
    let (mut states, mut is_known) = (Vec::new(), false);
    while !is_known {
        let event = events.recv_timeout(WAIT_TIMEOUT).unwrap();
        is_known = states_of(&event, "b").contains(&State::Scratch);
        states.extend(states_of(&event, "a"));
    }
    states
}

/// Returns the states of an agent that an event reports.
fn states_of(event: &FleetEvent, agent: &str) -> Vec<State> {
    let seen = match event {
        FleetEvent::Observed(seen) => seen.as_slice(),
        _ => &[],
    };
    let seen = seen.iter().filter(|it| it.agent == agent);
    seen.map(|it| it.state).collect()
}

/// Puts a new directory with this memory in the place of agent `a`'s.
fn put_new_directory(world: &World, memory: &str) {
    let new = world.root.join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("MEMORY.md"), memory).unwrap();
    fs::rename(&new, world.agent_directory("a")).unwrap();
}

#[test]
fn new_directory_of_an_agent_is_read_promptly() {
    let world = World::new(&["a", "b"]);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(world.engine().watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    move_directory_away(&world, &events);
    time_until_state(&world, (&fleet, &events), State::Error);
    put_new_directory(&world, &format!("{BASELINE}- note\n"));
    let passed = time_until_state(&world, (&fleet, &events), State::Scratch);
    assert!(passed < Duration::from_secs(3), "{passed:?}");
    // The watch reports the changes in it.
    world.write_scratch("a", "");
    time_until_state(&world, (&fleet, &events), State::Clean);
}

#[test]
fn replaced_directory_is_no_error() {
    let world = World::new(&["a", "b"]);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(world.engine().watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let mut states = move_directory_away(&world, &events);
    put_new_directory(&world, &format!("{BASELINE}- note\n"));
    advance_until(&world, &fleet, || {
        states.extend(events.try_iter().flat_map(|it| states_of(&it, "a")));
        states.contains(&State::Scratch)
    });
    assert!(!states.contains(&State::Error), "{states:?}");
}

/// Waits until the watch has received the changes of this thread, by one that the kernel reports after
/// them and the watch at once. The archive has a run.
fn wait_for_changes(engine: &Engine, events: &Receiver<FleetEvent>) {
    fs::write(engine.holds().location(Hold::Schedule), "").unwrap();
    wait_for_event(events, |event| matches!(event, FleetEvent::PausesChanged));
}

#[test]
fn change_after_a_slow_read_is_seen_promptly() {
    let world = World::new(&["a"]);
    world.write_scratch("a", "");
    let clock = Arc::clone(&world.clock);
    // Each read takes as long as on an overloaded machine.
    let transport = InterposingTransport::new(world.disk(), move |call| {
        if matches!(call, TransportCall::Before("read")) {
            clock.advance(Duration::from_secs(2));
        }
        Ok(())
    });
    let engine = Arc::new(world.engine_with_transport(transport));
    world.reset_with_engine(&engine);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    wait_for_state(&events, "a", State::Clean);
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    world.write_scratch("a", "- note\n");
    wait_for_changes(&engine, &events);
    let passed = time_until_state(&world, (&fleet, &events), State::Scratch);
    assert!(passed < Duration::from_secs(10), "{passed:?}");
}

#[test]
fn change_below_a_replaced_parent_is_seen_promptly() {
    let world = World::new(&["a"]);
    world.write_scratch("a", "");
    let engine = Arc::new(world.engine());
    // All watched directories exist after a run, so the sweeps are rare.
    world.reset_with_engine(&engine);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    wait_for_state(&events, "a", State::Clean);
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let parent = world.agent_directory("a");
    let parent = parent.parent().unwrap();
    fs::rename(parent, world.root.join("away")).unwrap();
    fs::create_dir_all(world.agent_directory("a")).unwrap();
    world.write_scratch("a", "- note\n");
    // A sweep finds it,
    time_until_state(&world, (&fleet, &events), State::Scratch);
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    // and the watch reports what follows.
    world.write_scratch("a", "");
    wait_for_changes(&engine, &events);
    let passed = time_until_state(&world, (&fleet, &events), State::Clean);
    assert!(passed < Duration::from_secs(3), "{passed:?}");
}

#[test]
fn sweep_observes_only_unwatched_changes() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "");
    world.write_scratch("b", "");
    // The watched directories do not show writes through these paths.
    let engine = Arc::new(world.engine());
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (memory, config) = (elsewhere.join("a.md"), elsewhere.join("conf"));
    fs::hard_link(world.memory_path("a"), &memory).unwrap();
    fs::hard_link(&engine.config().path, &config).unwrap();
    // Long after the last write.
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let looks = events.try_iter().count();
    assert!(looks > 0);
    // After many sweeps no agent has been read again.
    for _ in 0..10 {
        world.clock.advance(Duration::from_secs(60));
        fleet.request_read(Vec::new());
        assert!(fleet.wait_idle(WAIT_TIMEOUT));
    }
    let is_read = |event: &FleetEvent| matches!(event, FleetEvent::Observed(_));
    assert!(!events.try_iter().any(|event| is_read(&event)));
    let mut through = fs::File::options().append(true).open(memory).unwrap();
    through.write_all(b"- a note\n").unwrap();
    let mut seen = Vec::new();
    advance_until(&world, &fleet, || {
        seen.extend(events.try_iter().filter_map(|event| match event {
            FleetEvent::Observed(seen) => Some(seen),
            _ => None,
        }));
        !seen.is_empty()
    });
    let seen: Vec<(&str, State)> = seen
        .iter()
        .flatten()
        .map(|it| (it.agent.as_str(), it.state))
        .collect();
    assert_eq!(seen, [("a", State::Scratch)]);
    let mut through = fs::File::options().append(true).open(config).unwrap();
    through.write_all(b"# changed\n").unwrap();
    advance_until(&world, &fleet, || {
        events
            .try_iter()
            .any(|event| matches!(event, FleetEvent::ConfigChanged))
    });
}

#[test]
fn config_edited_before_the_watch_is_reported() {
    let world = World::new(&["a"]);
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    let config = &engine.config().path;
    let mut file = fs::File::options().append(true).open(config).unwrap();
    file.write_all(b"# changed\n").unwrap();
    let (sender, events) = unbounded();
    let _fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    wait_for_event(&events, |event| matches!(event, FleetEvent::ConfigChanged));
}

#[test]
fn run_makes_the_watch_read_only_its_agents() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "- note\n");
    world.write_scratch("b", "- note\n");
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    world.reset_with_engine(&engine);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let before = take_observations(&events)["a"][0].last_run.clone();
    world.write_scratch("a", "- note\n");
    wait_for_state(&events, "a", State::Scratch);
    let plan = engine
        .planner()
        .plan_reset(&["a".to_string()], false)
        .unwrap();
    engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    while wait_for_state(&events, "a", State::Clean).last_run == before {}
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    assert!(!take_observations(&events).contains_key("b"));
}

#[test]
fn sweep_after_a_run_observes_only_its_agents() {
    for is_first_run in [true, false] {
        let world = World::new(&["a", "b"]);
        world.write_scratch("a", "- note\n");
        world.write_scratch("b", "");
        // Long after the last write.
        world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
        let engine = Arc::new(world.engine());
        if !is_first_run {
            world.reset_with_engine(&engine);
            world.write_scratch("a", "- note\n");
        }
        let (sender, events) = unbounded();
        let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
        assert!(fleet.wait_idle(WAIT_TIMEOUT));
        take_observations(&events);
        // A run of another process.
        let other = world.engine();
        let plan = other
            .planner()
            .plan_reset(&["a".to_string()], false)
            .unwrap();
        other
            .runs()
            .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
        let last = other.observer().observe(other.agent("a").unwrap()).last_run;
        // Two sweeps, and what they make the watch read.
        let (mut seen, mut seconds) = (BTreeMap::new(), 0);
        advance_until(&world, &fleet, || {
            seconds += usize::from(fleet.wait_idle(Duration::from_millis(20)));
            seen.append(&mut take_observations(&events));
            seconds >= 70 && seen.contains_key("a")
        });
        let names: Vec<&String> = seen.keys().collect();
        assert_eq!(names, ["a"], "{is_first_run}");
        assert_eq!(seen["a"].last().unwrap().last_run, last);
    }
}

/// Begins the archive, and pauses the scheduled resets of all agents.
fn pause_all(engine: &Engine) {
    engine.context().begin_archive().unwrap();
    let change = ScheduleChange {
        agent: None,
        action: ScheduleAction::Pause,
    };
    change_schedule(engine, &[change], &engine.clock().now()).unwrap();
}

#[test]
fn pauses_and_recorded_states_are_reported() {
    let world = World::new(&["a"]);
    world.write_scratch("a", "");
    let engine = Arc::new(world.engine_with_clock(Arc::new(SystemClock), world.local_transport()));
    // The directory of the file exists after a run.
    world.reset_with_engine(&engine);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    pause_all(&engine);
    wait_for_event(&events, |event| matches!(event, FleetEvent::PausesChanged));
    // What the watch itself records is reported as well.
    world.write_memory("a", BASELINE.replace("kind", "cruel"));
    wait_for_event(&events, |event| matches!(event, FleetEvent::StatesRecorded));
}

#[test]
fn change_before_the_first_watch_is_reported() {
    let world = World::new(&["a"]);
    let engine = Arc::new(world.engine());
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    // The directory of the file does not exist yet, so no watch sees the first change.
    pause_all(&engine);
    advance_until(&world, &fleet, || {
        let mut reported = events.try_iter();
        reported.any(|event| matches!(event, FleetEvent::PausesChanged))
    });
}

#[test]
fn unreadable_agent_is_observed_every_sweep() {
    let world = World::new(&["a"]);
    fs::create_dir(world.memory_path("a")).unwrap();
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(world.engine().watch()), sender).unwrap();
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    assert!(events.try_iter().count() > 0);
    for _ in 0..3 {
        advance_until(&world, &fleet, || {
            let mut looks = events.try_iter();
            looks.any(|event| matches!(event, FleetEvent::Observed(_)))
        });
    }
}

/// Simulated hosts in this process, by name.
struct FakeHosts(HashMap<String, FakeTransport>);

impl Transports for FakeHosts {
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport> {
        let host = host.expect("an agent without a host");
        Arc::new(self.0[&host.name].clone())
    }
}

const HOST_COUNT: usize = 50;
const AGENTS_PER_HOST: usize = 20;

/// A thousand agents on fifty hosts, all with the same note, and a fixed delay per
/// round trip.
fn thousand_remote_agents(latency: Duration) -> (World, HashMap<String, FakeTransport>) {
    let mut world = World::new(&[]);
    world.set_baseline("shared", BASELINE);
    let mut hosts = HashMap::new();
    for number in 0..HOST_COUNT {
        let host = format!("host-{number:02}");
        let fake = FakeTransport::new(Arc::new(SystemClock));
        for number in 0..AGENTS_PER_HOST {
            let directory = format!("/agents/{number}");
            fake.make_directory(&directory, 1000, 1000, 0o755);
            fake.write_file(
                format!("{directory}/MEMORY.md"),
                format!("{BASELINE}- a note\n").as_bytes(),
            );
            let lines = format!(
                "remote_host = {host}\nremote_memory = {directory}/MEMORY.md\nbaseline = shared.md"
            );
            world.add_agent(&format!("{host}-agent-{number:02}"), &lines);
        }
        for directory in ["/", "/agents"] {
            fake.make_directory(directory, 0, 0, 0o755);
        }
        fake.set_latency(latency);
        hosts.insert(host, fake);
    }
    (world, hosts)
}

#[test]
fn memory_with_the_same_stamp_is_read_again_in_time() {
    let mut world = World::new(&[]);
    let clock: Arc<dyn Clock> = world.clock.clone();
    let fake = FakeTransport::new(Arc::clone(&clock));
    let memory = Path::new("/agents/a/MEMORY.md");
    for directory in ["/", "/agents", "/agents/a"] {
        fake.make_directory(directory, 1000, 1000, 0o755);
    }
    fake.write_file(memory, BASELINE.as_bytes());
    let lines = format!("remote_host = box\nremote_memory = {}", memory.display());
    world.add_agent("a", &lines);
    world.set_baseline("a", BASELINE);
    let hosts = FakeHosts(HashMap::from([("box".to_string(), fake.clone())]));
    let engine = world.engine_with_transports(clock, Arc::new(hosts), None);
    // Long after the last write.
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    wait_for_state(&events, "a", State::Clean);
    assert!(fleet.wait_idle(WAIT_TIMEOUT));
    let reads = || fake.count_calls(FakeOperation::Read, memory);
    let (before, begin) = (reads(), world.clock.instant());
    advance_until(&world, &fleet, || reads() > before);
    let elapsed = world.clock.instant() - begin;
    assert!(
        elapsed > Duration::from_secs(1700),
        "read after {elapsed:?}"
    );
}

/// Keeps a host silent until the sender is dropped.
fn hang_host(host: &FakeTransport) -> Sender<()> {
    let (release, released) = bounded::<()>(0);
    host.set_hook(move |_, _, _| {
        let _ = released.recv();
    });
    release
}

fn thread_count() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn silent_hosts_do_not_delay_others() {
    let (world, hosts) = thousand_remote_agents(Duration::from_millis(300));
    // More silent hosts than memories that are read in parallel.
    let silent: Vec<String> = (0..20).map(|number| format!("host-{number:02}")).collect();
    let release: Vec<Sender<()>> = silent.iter().map(|name| hang_host(&hosts[name])).collect();
    let engine =
        world.engine_with_transports(Arc::new(SystemClock), Arc::new(FakeHosts(hosts)), None);
    let (sender, events) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut take = |until: usize| {
        while seen.len() < until {
            match events
                .recv_timeout(WAIT_TIMEOUT)
                .expect("the other agents are not observed")
            {
                FleetEvent::Observed(some) => {
                    assert!(some.iter().all(|it| it.state == State::Scratch));
                    seen.extend(some.into_iter().map(|it| it.agent));
                }
                FleetEvent::HostsChanged(_) => {}
                other => panic!("{other:?}"),
            }
        }
        seen.clone()
    };
    let others = take((HOST_COUNT - silent.len()) * AGENTS_PER_HOST);
    assert!(
        others
            .iter()
            .all(|agent| !silent.iter().any(|host| agent.starts_with(host)))
    );
    // One connection per host, not per agent.
    assert!(thread_count() < 400, "{}", thread_count());
    drop(release);
    take(HOST_COUNT * AGENTS_PER_HOST);
    drop(fleet);
    while events.recv_timeout(WAIT_TIMEOUT).is_ok() {}
    let end = events.try_recv().unwrap_err();
    assert_eq!(end, crossbeam_channel::TryRecvError::Disconnected);
}
