//! The index of contents: a command over a large fleet reads only the memories that have changed
//! since an earlier one, and what it shows is never wrong.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use memory_shepherd::config::Agent;
use memory_shepherd::engine::{Engine, Observation, State};

use super::world::{BASELINE, InterposingTransport, TransportCall, World};
use crate::skip::skip_unsupported;

/// More agents than are read as fast as the index.
const AGENTS: usize = 70;

fn agent_names() -> Vec<String> {
    (0..AGENTS)
        .map(|number| format!("agent-{number}"))
        .collect()
}

/// A fleet with notes, whose archive exists, at a time when no memory is new.
fn settled_world() -> World {
    let world = new_world();
    let newest = fs::metadata(world.memory_path("agent-0")).unwrap().ctime();
    let start = memory_shepherd::clock::Clock::now(&*world.clock).timestamp();
    let seconds = (newest - start).max(0).unsigned_abs() + 60;
    world.clock.advance(Duration::from_secs(seconds));
    world
}

fn new_world() -> World {
    let names = agent_names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(&names);
    for name in names {
        world.write_scratch(name, format!("- a note of {name}\n"));
    }
    world.engine().save_observations(&[]).unwrap();
    world
}

fn index_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/content.index")
}

/// Observes the fleet with a new engine, as a command does; returns also how many memories it read.
fn observe(world: &World) -> (Vec<Observation>, usize) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let transport = InterposingTransport::new(world.disk(), move |call| {
        if call == TransportCall::Before("read") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let seen = observe_with(&world.engine_with_transport(transport));
    (seen, reads.load(Ordering::Relaxed))
}

fn observe_with(engine: &Engine) -> Vec<Observation> {
    let agents: Vec<&Agent> = engine.config().agents.iter().collect();
    engine.observe_all(&agents)
}

fn state_of(seen: &[Observation], agent: &str) -> State {
    seen.iter().find(|seen| seen.agent == agent).unwrap().state
}

/// Asserts that the next command reads all memories, and shows the same.
#[track_caller]
fn assert_all_read(world: &World, what: &str) {
    let (seen, reads) = observe(world);
    assert_eq!(reads, AGENTS, "{what}");
    assert!(
        seen.iter().all(|seen| seen.state == State::Scratch),
        "{what}"
    );
}

#[test]
fn unchanged_memories_are_read_once() {
    let world = settled_world();
    let (first, reads) = observe(&world);
    assert_eq!(reads, AGENTS);
    let (second, reads) = observe(&world);
    assert_eq!(reads, 0);
    for (first, second) in first.iter().zip(&second) {
        let facts = |seen: &Observation| {
            let content = seen.content.clone();
            (seen.agent.clone(), seen.state, seen.reason.clone(), content)
        };
        assert_eq!(facts(first), facts(second));
    }
}

#[test]
fn changed_memory_is_read_again() {
    let world = settled_world();
    observe(&world);
    // A save in place, a replacement, and one more of the same size and time of change.
    world.write_memory("agent-1", BASELINE);
    let new = world.root.join("new");
    fs::write(&new, BASELINE.replace("kind", "rude")).unwrap();
    fs::rename(&new, world.memory_path("agent-2")).unwrap();
    let path = world.memory_path("agent-3");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("kind", "rude")).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    fs::remove_file(world.memory_path("agent-4")).unwrap();
    let (seen, reads) = observe(&world);
    assert_eq!(reads, 3);
    assert_eq!(state_of(&seen, "agent-1"), State::Clean);
    assert_eq!(state_of(&seen, "agent-2"), State::Drifted);
    assert_eq!(state_of(&seen, "agent-3"), State::Drifted);
    assert_eq!(state_of(&seen, "agent-4"), State::Missing);
    assert_eq!(state_of(&seen, "agent-5"), State::Scratch);
}

#[test]
fn memory_read_right_after_its_change_is_not_kept() {
    let world = new_world();
    let newest = fs::metadata(world.memory_path("agent-0")).unwrap();
    // The clock is behind the change, or not far enough ahead of it.
    let start = memory_shepherd::clock::Clock::now(&*world.clock).timestamp();
    observe(&world);
    assert_all_read(&world, "before the change");
    let seconds = (newest.ctime() - start).max(0).unsigned_abs();
    world.clock.advance(Duration::from_secs(seconds));
    assert_all_read(&world, "in the second of the change");
    assert!(!index_path(&world).exists());
}

#[test]
fn changed_baseline_or_setting_is_followed() {
    let world = settled_world();
    observe(&world);
    world.set_baseline("agent-7", BASELINE.replace("kind", "rude"));
    let (seen, reads) = observe(&world);
    assert_eq!(reads, 1);
    assert_eq!(state_of(&seen, "agent-7"), State::Drifted);
    let world = world.with_general("separator = ***");
    let (_, reads) = observe(&world);
    assert_eq!(reads, AGENTS);
}

#[test]
fn damaged_index_is_not_used() {
    let world = settled_world();
    observe(&world);
    let path = index_path(&world);
    let whole = fs::read(&path).unwrap();
    for at in [0, 70, whole.len() / 2, whole.len() - 2] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_all_read(&world, "a changed byte");
    }
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert_all_read(&world, "a part");
    fs::write(&path, "").unwrap();
    assert_all_read(&world, "an empty file");
    let endless = File::create(&path).unwrap();
    endless.set_len(1 << 40).unwrap();
    assert_all_read(&world, "a file that fits nowhere");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_all_read(&world, "a directory");
    fs::remove_dir(&path).unwrap();
    // Each but the last was replaced by a whole one.
    fs::write(&path, &whole).unwrap();
    assert_eq!(observe(&world).1, 0);
}

#[test]
fn index_that_others_can_write_is_not_used() {
    let world = settled_world();
    observe(&world);
    let path = index_path(&world);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o662)).unwrap();
    assert_all_read(&world, "a file that all can write");
    assert_eq!(observe(&world).1, 0);
    if chown(&path, Some(4_000_000), None).is_err() {
        return skip_unsupported("only root can give files away");
    }
    assert_all_read(&world, "a file of another user");
}

#[test]
fn archive_that_cannot_be_written_fails_nothing() {
    let world = settled_world();
    let staging = world
        .archive_directory()
        .join(".shepherd/content.index.new");
    fs::create_dir(&staging).unwrap();
    observe(&world);
    assert_all_read(&world, "no index can be written");
    fs::remove_dir(&staging).unwrap();
    fs::remove_dir_all(world.archive_directory()).unwrap();
    assert_all_read(&world, "no archive");
    assert!(!world.archive_directory().exists());
}

#[test]
fn commands_at_once_leave_a_whole_index() {
    let world = settled_world();
    let all: Vec<Engine> = (0..4).map(|_| world.engine()).collect();
    std::thread::scope(|scope| {
        for engine in &all {
            scope.spawn(|| {
                let seen = observe_with(engine);
                assert!(seen.iter().all(|seen| seen.state == State::Scratch));
            });
        }
    });
    assert_eq!(observe(&world).1, 0);
}

#[test]
fn stale_staging_file_does_not_stop_writes() {
    let world = settled_world();
    let staging = world
        .archive_directory()
        .join(".shepherd/content.index.new");
    fs::write(&staging, vec![b'x'; 1 << 20]).unwrap();
    observe(&world);
    assert_eq!(observe(&world).1, 0);
    assert!(!staging.exists());
}

#[test]
fn plan_reads_memories_itself() {
    let world = settled_world();
    observe(&world);
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let transport = InterposingTransport::new(world.disk(), move |call| {
        if call == TransportCall::Before("read") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let engine = world.engine_with_transport(transport);
    engine.plan_reset(&agent_names(), false).unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), AGENTS);
}
