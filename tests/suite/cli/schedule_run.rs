//! `schedule run`: the scheduler in the foreground.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use memory_shepherd::engine::{Outcome, Trigger};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::fake_time::FakeTime;
use crate::terminal::wait_timeout;
use crate::world::{BASELINE, World};

/// A scheduler, which ends with the test.
struct RunningScheduler(Child);

impl RunningScheduler {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for RunningScheduler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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

fn start_scheduler(world: &World) -> RunningScheduler {
    RunningScheduler(scheduler_command(world).spawn().unwrap())
}

/// Starts a scheduler whose five minutes pass in a second.
fn start_hasty_scheduler(world: &World, fake_time: FakeTime) -> RunningScheduler {
    let mut command = scheduler_command(world);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    fake_time.apply(&mut command, "+0 x300");
    RunningScheduler(command.spawn().unwrap())
}

/// Reads standard error up to a line with this text.
fn wait_for_error(scheduler: &mut RunningScheduler, text: &str) -> String {
    let lines = BufReader::new(scheduler.0.stderr.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let found = lines.find(|line| line.contains(text));
    found.unwrap_or_else(|| panic!("no {text}"))
}

#[test]
fn scheduler_makes_up_for_a_missed_reset_and_ends() {
    let mut world = World::new(&["scout", "triage"]);
    world.add_agent("weekly", "every = 7d\n");
    world.set_baseline("weekly", crate::world::BASELINE);
    // The runs of the past are those of a clock in March: all have missed their times.
    world.reset();
    let began = world.read_records()[0].time;
    let has_timed_run = || world.engine().has_timed_run(began).unwrap();
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
fn scheduled_reset_waits_for_a_locked_agent() {
    let world = World::new(&["scout"]);
    world.reset();
    world.write_scratch("scout", "- note\n");
    let engine = world.engine();
    let held = engine.hold_agent_lock("scout").unwrap();
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
    let mut scheduler = RunningScheduler(command.spawn().unwrap());
    let line = wait_for_error(&mut scheduler, "the reset of ");
    assert!(line.contains("ended with exit code 4"), "{line}");
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
    let _held = engine.hold_agent_lock("scout").unwrap();
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
    let mut scheduler = RunningScheduler(command.spawn().unwrap());
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
    let mut scheduler = RunningScheduler(command.spawn().unwrap());
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
