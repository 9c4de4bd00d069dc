//! `schedule run`: the scheduler in the foreground.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use memory_shepherd::engine::{HolderLockKind, Outcome, Trigger, UndoMode};
use rustix::process::Signal;

use super::running_program::RunningProgram;
use super::*;
use crate::fake_time::FakeTime;
use crate::skip::skip_unsupported;
use crate::terminal::wait_timeout;
use crate::world::{BASELINE, World};

fn scheduler_command(world: &World) -> Command {
    let mut command = Command::new(PROGRAM_PATH);
    command
        .args(["schedule", "run", "--config"])
        .arg(world.config().path)
        .current_dir(&world.root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn start_scheduler(world: &World) -> RunningProgram {
    RunningProgram(scheduler_command(world).spawn().unwrap())
}

/// Starts a scheduler whose five minutes pass in a second.
fn start_hasty_scheduler(world: &World, fake_time: FakeTime) -> RunningProgram {
    let mut command = scheduler_command(world);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    fake_time.apply(&mut command, "+0 x300");
    RunningProgram(command.spawn().unwrap())
}

fn schedule_status(world: &World) -> serde_json::Value {
    let mut command = Command::new(PROGRAM_PATH);
    let arguments = ["schedule", "status", "--user", "--prefix", "units"];
    command.args(arguments).args(["--json", "--config"]);
    // A config that is written again and again would never be adopted.
    command.arg("memory-shepherd.conf").current_dir(&world.root);
    let output = command.output().unwrap().stdout;
    serde_json::from_slice(&output).unwrap()
}

/// Reads standard error up to a line with this text.
fn wait_for_error(scheduler: &mut RunningProgram, text: &str) -> String {
    let lines = BufReader::new(scheduler.0.stderr.take().unwrap()).lines();
    let (sender, read) = channel();
    // Ends with the scheduler, or with the receiver.
    let reader = move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    };
    std::thread::spawn(reader);
    let end = Instant::now() + wait_timeout();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match read.recv_timeout(left) {
            Ok(line) if line.contains(text) => return line,
            Ok(_) if !left.is_zero() => {}
            _ => panic!("no {text}"),
        }
    }
}

#[test]
fn scheduler_makes_up_for_a_missed_reset_and_ends() {
    let mut world = World::new(&["scout", "triage"]);
    world.add_agent("weekly", "every = 7d\n");
    world.set_baseline("weekly", crate::world::BASELINE);
    // The runs of the past are those of a clock in March: all have missed their times.
    world.reset();
    let began = world.read_records()[0].time;
    let has_timed_run = || world.engine().history().has_timed_run(began).unwrap();
    assert!(!has_timed_run());
    for agent in ["scout", "triage", "weekly"] {
        world.write_scratch(agent, "- note\n");
    }
    let mut scheduler = start_scheduler(&world);
    let lines = BufReader::new(scheduler.0.stdout.take().unwrap()).lines();
    // Each run prints its end.
    let ends = lines
        .map(|line| line.unwrap())
        .filter(|line| line.contains(" ended: "));
    assert_eq!(ends.take(2).count(), 2);
    let status = schedule_status(&world);
    let groups = status["scheduler"]["groups"].as_array().unwrap();
    let results = groups.iter().map(|group| group["result"]["ok"].as_u64());
    let mut results: Vec<Option<u64>> = results.collect();
    results.sort();
    assert_eq!(results, [Some(1), Some(2)]);
    assert!(groups.iter().all(|group| group["last"].is_string()));
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
    let baseline = crate::world::BASELINE.as_bytes();
    for agent in ["scout", "triage", "weekly"] {
        assert_eq!(
            fs::read(world.memory_path(agent)).unwrap(),
            baseline,
            "{agent}"
        );
    }
    let records = world.read_records();
    let timed = records
        .iter()
        .filter(|it| it.event.trigger == Trigger::Timer);
    assert_eq!(timed.count(), 3);
    assert!(has_timed_run());
}

#[test]
fn second_scheduler_of_a_config_is_refused() {
    let world = World::new(&["scout"]);
    let mut first = start_scheduler(&world);
    // It says what is due next when it has the lock.
    let mut lines = BufReader::new(first.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("next reset"));
    let second = scheduler_command(&world).output().unwrap();
    assert_eq!(second.status.code(), Some(5));
    let running = schedule_status(&world);
    assert_eq!(running["scheduler"]["pid"], first.0.id());
    assert!(running["scheduler"]["groups"][0]["next"].is_string());
    drop(first);
    assert_eq!(
        schedule_status(&world)["scheduler"],
        serde_json::Value::Null
    );
}

/// Waits until the status of the schedule names a scheduler.
fn wait_for_scheduler(world: &World, process: u32) {
    let end = Instant::now() + wait_timeout();
    while schedule_status(world)["scheduler"]["pid"] != process {
        assert!(Instant::now() < end, "the scheduler is not in the archive");
    }
}

#[test]
fn changed_archive_allows_no_second_scheduler() {
    let world = World::new(&["scout"]);
    let mut first = start_scheduler(&world);
    let mut lines = BufReader::new(first.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("next reset"));
    let world = world.with_general("archive_dir = moved");
    let _ = world.config();
    wait_for_scheduler(&world, first.0.id());
    let second = scheduler_command(&world)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(5));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&first.0.id().to_string()), "{said}");
    // A deleted archive has no lock that would refuse a second one.
    fs::remove_dir_all(world.root.join("moved")).unwrap();
    let _ = world.config();
    wait_for_scheduler(&world, first.0.id());
    first.signal(Signal::TERM);
    assert_eq!(first.0.wait().unwrap().code(), Some(0));
}

#[test]
fn scheduler_ends_where_the_new_archive_has_one() {
    let world = World::new(&["scout"]);
    let mut command = scheduler_command(&world);
    command.stderr(Stdio::piped());
    let mut first = RunningProgram(command.spawn().unwrap());
    let mut lines = BufReader::new(first.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("next reset"));
    let mut config = world.config();
    config.general.archive_dir = world.root.join("moved");
    let other = world.engine_with_config(config);
    let held = other
        .locks()
        .try_lock_with_holder(HolderLockKind::Scheduler);
    let _held = held.unwrap().unwrap();
    let world = world.with_general("archive_dir = moved");
    let _ = world.config();
    let end = Instant::now() + wait_timeout();
    let status = loop {
        if let Some(status) = first.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "two schedulers run");
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(5));
    let said = wait_for_error(&mut first, "has a scheduler already");
    assert!(said.contains(&std::process::id().to_string()), "{said}");
}

#[test]
fn scheduled_reset_waits_for_a_locked_agent() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_scratch("scout", "- note\n");
    let engine = world.engine();
    let held = engine.locks().hold_agent_lock("scout").unwrap();
    let mut scheduler = start_scheduler(&world);
    let queue = world
        .archive_directory()
        .join(".shepherd/locks/scout.queue");
    let end = Instant::now() + wait_timeout();
    while !queue.exists() {
        assert!(Instant::now() < end, "the reset does not wait");
        std::thread::yield_now();
    }
    drop(held);
    let lines = BufReader::new(scheduler.0.stdout.take().unwrap()).lines();
    let mut ends = lines
        .map(|line| line.unwrap())
        .filter(|line| line.contains(" ended: "));
    let end = ends.next().unwrap();
    assert!(end.contains("1 ok"), "{end}");
    let baseline = crate::world::BASELINE.as_bytes();
    assert_eq!(world.read_memory("scout"), baseline);
    scheduler.signal(Signal::INT);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(130));
}

/// A writer keeps the displaced memory open, so that the reset is still at work when TERM comes.
#[test]
fn term_lets_the_reset_finish_its_agent() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_scratch("scout", "- note\n");
    let writer = fs::File::options()
        .append(true)
        .open(world.memory_path("scout"));
    let mut scheduler = start_scheduler(&world);
    let end = Instant::now() + wait_timeout();
    while world.leftovers("scout").is_empty() {
        assert!(Instant::now() < end, "the reset does not begin");
        std::thread::yield_now();
    }
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
    drop(writer);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    let records = world.read_records();
    let last = &records.last().unwrap().event;
    assert_eq!((last.trigger, last.outcome), (Trigger::Timer, Outcome::Ok));
}

#[test]
fn failed_reset_is_reported_with_its_exit_code() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_seal();
    world.set_baseline("scout", BASELINE.replace("kind", "cruel"));
    let mut command = scheduler_command(&world);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut scheduler = RunningProgram(command.spawn().unwrap());
    let line = wait_for_error(&mut scheduler, "the reset of ");
    assert!(line.contains("ended: exit code 4"), "{line}");
}

#[test]
fn reset_that_is_still_running_is_skipped() {
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    let mut world = World::new(&[]);
    world.add_agent("scout", "every = 5m\n");
    world.set_baseline("scout", BASELINE);
    world.reset();
    world.write_scratch("scout", "- note\n");
    let engine = world.engine();
    let _held = engine.locks().hold_agent_lock("scout").unwrap();
    let mut scheduler = start_hasty_scheduler(&world, fake_time);
    let line = wait_for_error(&mut scheduler, "skipped a reset of scout");
    assert!(line.contains("warning"), "{line}");
}

#[test]
fn changed_config_is_adopted_while_running() {
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    let mut world = World::new(&[]);
    world.add_agent("scout", "every = 7d\n");
    world.set_baseline("scout", BASELINE);
    world.write_scratch("scout", "- note\n");
    let mut command = scheduler_command(&world);
    fake_time.apply(&mut command, "+0 x300");
    let mut scheduler = RunningProgram(command.spawn().unwrap());
    let lines = BufReader::new(scheduler.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("next reset: ")));
    world.add_agent("scout", "every = 5m\n");
    let _ = world.config();
    let end = Instant::now() + wait_timeout();
    while world.read_memory("scout") != BASELINE.as_bytes() {
        assert!(Instant::now() < end, "the config is not adopted");
        std::thread::yield_now();
    }
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
}

#[test]
fn quiet_scheduler_has_quiet_resets() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_scratch("scout", "- note\n");
    let mut command = scheduler_command(&world);
    command.args(["--quiet", "--color", "always"]);
    let mut scheduler = RunningProgram(command.spawn().unwrap());
    let end = Instant::now() + wait_timeout();
    while world.read_memory("scout") != BASELINE.as_bytes() || !world.leftovers("scout").is_empty()
    {
        assert!(Instant::now() < end, "no reset");
        std::thread::yield_now();
    }
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    let mut output = scheduler.0.stdout.take().unwrap();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn scheduler_prints_no_json() {
    let site = Site::new();
    let ran = site.run(["schedule", "run", "--json"]).assert_code(2);
    let _ = ran.assert_stderr_has("does not end by itself");
}

#[test]
fn undo_does_not_hide_a_missed_reset() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    // The runs are those of a clock in March.
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_ne!(world.read_memory("scout"), BASELINE.as_bytes());
    let mut scheduler = start_scheduler(&world);
    let lines = BufReader::new(scheduler.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    // It says that only after it has started what is due.
    let end = lines.find(|line| line.contains(" ended: ") || line.contains("next reset"));
    assert!(end.is_some());
    let end = Instant::now() + wait_timeout();
    while world.read_memory("scout") != BASELINE.as_bytes() {
        assert!(Instant::now() < end, "the missed reset is not made up for");
        std::thread::yield_now();
    }
}

#[test]
fn config_that_becomes_a_fifo_stops_nothing() {
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    let mut world = World::new(&[]);
    world.add_agent("scout", "every = 5m\n");
    world.set_baseline("scout", BASELINE);
    let path = world.config().path;
    let mut command = scheduler_command(&world);
    command.stderr(Stdio::piped());
    fake_time.apply(&mut command, "+0 x300");
    let mut scheduler = RunningProgram(command.spawn().unwrap());
    let lines = BufReader::new(scheduler.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("next reset: ")));
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    // The scheduler has looked at the config before it starts the reset that cannot read it.
    let _ = wait_for_error(&mut scheduler, "the reset of scout ended: exit code");
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
}

/// Returns the children of a process, ended ones included.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let list = fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect()
}

#[test]
fn missed_resets_of_many_agents_start_by_turns() {
    const AGENTS: usize = 18;
    const MAX_RUNNING: usize = 16;
    let mut world = World::new(&[]);
    let names: Vec<String> = (0..AGENTS).map(|number| format!("a{number:02}")).collect();
    for name in &names {
        world.add_agent(name, "every = 7d\n");
        world.set_baseline(name, BASELINE);
    }
    // A run of a clock in March: all have missed their times.
    world.reset();
    let engine = world.engine();
    let hold = |name: &String| engine.locks().hold_agent_lock(name).unwrap();
    let mut held: Vec<_> = names.iter().map(hold).collect();
    let scheduler = start_scheduler(&world);
    let locks = world.archive_directory().join(".shepherd/locks");
    let waits = |name: &String| locks.join(format!("{name}.queue")).exists();
    let end = Instant::now() + wait_timeout();
    let wait_for = |is_reached: &dyn Fn() -> bool| {
        while !is_reached() {
            assert!(children(scheduler.0.id()).len() <= MAX_RUNNING);
            assert!(Instant::now() < end, "the resets do not start");
            std::thread::yield_now();
        }
    };
    wait_for(&|| names[..MAX_RUNNING].iter().all(waits));
    assert!(!names[MAX_RUNNING..].iter().any(waits));
    drop(held.remove(0));
    wait_for(&|| waits(&names[MAX_RUNNING]));
    assert!(!waits(&names[MAX_RUNNING + 1]));
    drop(held);
    scheduler.signal(Signal::TERM);
}

/// As the first process of a container, the scheduler gets the children of processes that ended.
#[test]
fn first_process_of_a_container_leaves_no_zombies() {
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let is_possible = Command::new("unshare").args(unshare).arg("true").output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        return skip_unsupported("no namespace of processes");
    }
    let world = World::new(&["scout"]);
    let fifo = world.root.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let script = r#"(sh -c 'read line <"$0"' "$FIFO" &) ; exec "$@""#;
    let own = scheduler_command(&world);
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", script, "sh"]);
    command.arg(own.get_program()).args(own.get_args());
    command.env("FIFO", &fifo).current_dir(&world.root);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut unshared = RunningProgram(command.spawn().unwrap());
    let lines = BufReader::new(unshared.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("next reset: ")));
    let scheduler = children(unshared.0.id())[0];
    assert_eq!(children(scheduler).len(), 1);
    // Ends the process that is left behind.
    drop(fs::File::options().write(true).open(&fifo).unwrap());
    let end = Instant::now() + wait_timeout();
    while !children(scheduler).is_empty() {
        assert!(Instant::now() < end, "a zombie stays");
        std::thread::yield_now();
    }
}
