//! `schedule run`: the scheduler in the foreground.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use memory_shepherd::engine::Trigger;
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::terminal::wait_timeout;
use crate::world::World;

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

fn start_scheduler(world: &World) -> RunningScheduler {
    let scheduler = Command::new(PROGRAM_PATH)
        .args(["schedule", "run", "--config"])
        .arg(world.config().path)
        .current_dir(&world.root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    RunningScheduler(scheduler.unwrap())
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

#[test]
fn scheduler_prints_no_json() {
    let site = Site::new();
    let ran = site.run(["schedule", "run", "--json"]).assert_code(2);
    let _ = ran.assert_stderr_has("does not end by itself");
}
