//! Agents on other hosts, through the whole engine. The host is this machine's
//! disk behind OpenSSH's SFTP server.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memory_shepherd::engine::{Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::transport::Settled;

use memory_shepherd::transport::sftp::ssh::Dial;
use memory_shepherd::transport::sftp::{Everywhere, Sftp};
use tempfile::TempDir;

use super::contract::{Ground, NEW, OnDisk, settle, stage};
use super::servers::{Between, Fate, Judge, host, sftp_server};
use super::world::{BASELINE, TestClock, World, apply};

/// Adds an agent whose folder is reached as one of a host.
pub fn add_remote(world: &mut World, agent: &str, host: &str) {
    let memory = world.memory(agent);
    let lines = format!("remote_host = {host}\nremote_memory = {}", memory.display());
    world.add(agent, &lines);
    world.set_baseline(agent, BASELINE);
}

/// An engine that reaches hosts by a dial.
pub fn engine(world: &World, dial: impl Dial + 'static) -> Engine {
    let clock = world.clock.clone();
    let everywhere = Everywhere::new(world.local(), Arc::new(dial), clock.clone());
    world.engine_through(clock, Arc::new(everywhere), None)
}

/// A folder on this disk, over SFTP with OpenSSH's server as a child.
pub fn ground() -> Option<OnDisk<Sftp>> {
    let server = sftp_server()?;
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("agent")).unwrap();
    symlink("agent", dir.path().join("alias")).unwrap();
    let clock = TestClock::new();
    Some(OnDisk {
        dir,
        transport: Sftp::new(host("remote"), Arc::new(server), clock.clone()),
        exchanges: false,
        clock,
        looks_twice: true,
    })
}

/// An agent on a host, and one on this machine.
fn world() -> World {
    let mut world = World::new(&["scout"]);
    add_remote(&mut world, "ranger", "box");
    world
}

#[test]
fn a_remote_agent_is_seen_reset_undone_and_redone_like_a_local_one() {
    let Some(server) = sftp_server() else { return };
    let world = world();
    for agent in ["scout", "ranger"] {
        world.write_scratch(agent, "a note\n");
    }
    let before = world.read("ranger");
    let engine = engine(&world, server);
    let seen = engine.observe(engine.agent("ranger").unwrap());
    assert_eq!((seen.state, seen.host.as_str()), (State::Scratch, "box"));
    let ran = world.reset_by(&engine);
    for result in &ran.report.results {
        assert_eq!(result.outcome, Outcome::Ok, "{:?}", ran.report);
        assert_eq!(result.note, None);
    }
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    assert!(
        world.litter("ranger").is_empty(),
        "{:?}",
        world.litter("ranger")
    );
    assert!(world.pending().is_empty());
    assert!(world.archived("ranger").ends_with(b"a note\n"));
    let undo = |target| {
        let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
        apply(&engine, &plan)
    };
    let ran = undo(UndoTarget::Agents(vec!["ranger".to_string()]));
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), before);
    let ran = undo(UndoTarget::Redo(vec!["ranger".to_string()]));
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
}

#[test]
fn a_missing_remote_memory_is_made_and_its_making_undone() {
    let Some(server) = sftp_server() else { return };
    let world = world().without("scout");
    let engine = engine(&world, server);
    let seen = engine.observe(engine.agent("ranger").unwrap());
    assert_eq!(seen.state, State::Missing);
    let ran = world.reset_by(&engine);
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    let ran = apply(&engine, &plan);
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert!(!fs::exists(world.memory("ranger")).unwrap());
    assert!(world.litter("ranger").is_empty());
}

#[test]
fn seventy_agents_of_a_host_are_done_in_two_batches() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]);
    let names: Vec<String> = (0..70).map(|number| format!("agent-{number:02}")).collect();
    for name in &names {
        add_remote(&mut world, name, "box");
        world.write_scratch(name, format!("a note of {name}\n"));
    }
    let engine = engine(&world, server);
    let ran = world.reset_by(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 70, "{:?}", ran.report);
    for name in &names {
        assert_eq!(world.read(name), BASELINE.as_bytes());
        assert!(world.litter(name).is_empty());
        let archived = world.archived(name);
        assert!(archived.ends_with(format!("a note of {name}\n").as_bytes()));
    }
}

#[test]
fn settling_looks_twice_and_finds_what_a_writer_left() {
    let Some(ground) = ground() else { return };
    let ground: &dyn Ground = &ground;
    ground.write("MEMORY.md", b"old");
    let folder = ground.open();
    let mut writer = ground.writer("MEMORY.md");
    let new = stage(ground, folder.as_ref(), b"new");
    let displaced = folder.swap(NEW, new).unwrap().displaced.remove(0);
    // The swap has looked for the first time.
    assert_eq!(
        settle(folder.as_ref(), &displaced),
        (Settled::Open, Vec::new()),
        "it is too early to tell"
    );
    writer(b" and late");
    assert!(ground.wait());
    let (settled, seen) = settle(folder.as_ref(), &displaced);
    assert_eq!(settled, Settled::Open, "it has changed since");
    assert_eq!(seen, [b"old and late"]);
    assert!(ground.wait());
    let (settled, seen) = settle(folder.as_ref(), &displaced);
    assert_eq!(settled, Settled::Removed { watched: true });
    assert_eq!(seen, [b"old and late"]);
    assert_eq!(ground.names(), ["MEMORY.md"]);
}

#[test]
fn a_server_that_reads_less_than_it_is_asked_loses_nothing() {
    for most in [16 * 1024_u32, 1000] {
        let Some(server) = sftp_server() else { return };
        // SSH_FXP_READ: type, id, handle, offset, length.
        let judge: Judge = Arc::new(move |_, frame| {
            if frame[0] == 5 {
                let at = frame.len() - 4;
                let asked = u32::from_be_bytes(frame[at..].try_into().unwrap());
                frame[at..].copy_from_slice(&asked.min(most).to_be_bytes());
            }
            Fate::Pass
        });
        let world = world().without("scout");
        let notes: String = (0..3000)
            .map(|number| format!("- note {number}\n"))
            .collect();
        world.write_scratch("ranger", &notes);
        let before = world.read("ranger");
        let engine = engine(&world, Between::new(server, judge));
        let ran = world.reset_by(&engine);
        assert_eq!(
            ran.report.results[0].outcome,
            Outcome::Ok,
            "{:?}",
            ran.report
        );
        assert!(world.archived("ranger").ends_with(notes.as_bytes()));
        assert_eq!(world.entries("ranger").len(), 1);
        let target = UndoTarget::Agents(vec!["ranger".to_string()]);
        let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
        apply(&engine, &plan);
        assert_eq!(world.read("ranger"), before);
    }
}

#[test]
fn a_connection_that_is_cut_at_any_request_of_a_reset_loses_nothing() {
    let mut points = 0;
    for behind in [false, true] {
        for at in 1.. {
            let (Some(server), Some(good)) = (sftp_server(), sftp_server()) else {
                return;
            };
            assert!(at < 200, "it comes to an end");
            let world = world().without("scout");
            world.write_scratch("ranger", "a note\n");
            let before = world.read("ranger");
            let cut = Arc::new(AtomicBool::new(false));
            let judge: Judge = {
                let cut = Arc::clone(&cut);
                Arc::new(move |number, _| {
                    if number < at {
                        return Fate::Pass;
                    }
                    cut.store(true, Ordering::SeqCst);
                    match behind {
                        true => Fate::CutBehind,
                        false => Fate::Cut,
                    }
                })
            };
            let first = engine(&world, Between::new(server, judge));
            let plan = first.plan_unseen(&["ranger".to_string()], false).unwrap();
            let ran = first.apply(&plan, false, &AtomicBool::new(false), &mut |_| {});
            if !cut.load(Ordering::SeqCst) {
                assert_eq!(ran.results[0].outcome, Outcome::Ok, "{ran:?}");
                break;
            }
            points += 1;
            let said = format!("cut at request {at}, behind it: {behind}; {ran:?}");
            let memory = fs::read(world.memory("ranger")).ok();
            let archived = world.archived("ranger");
            let has = |bytes: &[u8]| bytes.windows(7).any(|it| it == b"a note\n");
            let whole = |bytes: &[u8]| bytes == before || bytes == BASELINE.as_bytes();
            assert!(memory.iter().all(|bytes| whole(bytes)), "{said}");
            assert!(
                has(&archived) || memory.as_deref().is_some_and(has),
                "{said}"
            );
            // The next run puts it right.
            drop(first);
            let next = engine(&world, good);
            let plan = next.plan_unseen(&["ranger".to_string()], false).unwrap();
            let ran = next.apply(&plan, false, &AtomicBool::new(false), &mut |_| {});
            let said = format!("{said}\nthen {ran:?}");
            assert_eq!(ran.kind(), None, "{said}");
            assert_eq!(world.read("ranger"), BASELINE.as_bytes(), "{said}");
            assert!(
                world.litter("ranger").is_empty(),
                "{:?} {said}",
                world.litter("ranger")
            );
            assert!(world.pending().is_empty(), "{said}");
            assert!(has(&world.archived("ranger")), "{said}");
            // And it can be undone, exactly.
            let target = UndoTarget::Agents(vec!["ranger".to_string()]);
            let plan = next.plan_undo(&target, UndoMode::Refuse, false).unwrap();
            let ran = apply(&next, &plan);
            assert_eq!(
                ran.report.results[0].outcome,
                Outcome::Ok,
                "{said}\n{:?}",
                ran.report
            );
            assert_eq!(world.read("ranger"), before, "{said}");
        }
    }
    println!("cut at {points} points");
    assert!(points > 60);
}
