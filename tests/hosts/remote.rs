//! Agents on other hosts, through the whole engine. The host is this machine's
//! disk behind OpenSSH's SFTP server.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memory_shepherd::config::SshHost;
use memory_shepherd::engine::{Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::error::ErrorKind;
use memory_shepherd::transport::SettleOutcome;

use memory_shepherd::transport::sftp::ssh::Connector;
use memory_shepherd::transport::sftp::{PerHostTransports, SftpTransport};

use super::contract::{Ground, NEW, OnDisk, settle, stage};
use super::servers::{Between, Fate, Judge, host, sftp_server};
use super::sshd::{HOST, Sshd};
use super::world::{BASELINE, TestClock, World, apply};

/// Adds an agent whose folder is reached as one of a host.
pub fn add_remote(world: &mut World, agent: &str, host: &str) {
    let memory = world.memory(agent);
    let lines = format!("remote_host = {host}\nremote_memory = {}", memory.display());
    world.add(agent, &lines);
    world.set_baseline(agent, BASELINE);
}

/// An engine that reaches hosts by a dial.
pub fn engine(world: &World, dial: impl Connector + 'static) -> Engine {
    let clock = world.clock.clone();
    let everywhere = PerHostTransports::new(world.local(), Arc::new(dial), clock.clone());
    world.engine_through(clock, Arc::new(everywhere), None)
}

/// A folder on this disk, over SFTP with OpenSSH's server as a child.
pub fn ground() -> Option<OnDisk<SftpTransport>> {
    Some(ground_by(host("remote"), sftp_server()?))
}

/// A folder on this disk, through ssh and sshd.
pub fn ground_on(server: &Sshd) -> OnDisk<SftpTransport> {
    ground_by(host(HOST), server.dial())
}

pub fn ground_by(host: SshHost, dial: impl Connector + 'static) -> OnDisk<SftpTransport> {
    let dir = crate::folder();
    fs::create_dir(dir.path().join("agent")).unwrap();
    symlink("agent", dir.path().join("alias")).unwrap();
    let clock = TestClock::new();
    OnDisk {
        dir,
        transport: SftpTransport::new(host, Arc::new(dial), clock.clone()),
        exchanges: false,
        clock,
        looks_twice: true,
    }
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
fn an_agent_behind_ssh_is_seen_and_reset() {
    let Some(server) = Sshd::start() else { return };
    let world = world().without("scout").general("remote_timeout = 120");
    world.write_scratch("ranger", "a note\n");
    let engine = engine(&world, server.dial());
    let seen = engine.observe(engine.agent("ranger").unwrap());
    assert_eq!(seen.state, State::Scratch, "{seen:?}\n{}", server.log());
    let ran = world.reset_by(&engine);
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    assert!(world.archived("ranger").ends_with(b"a note\n"));
    // All of it over one connection.
    assert_eq!((server.connections(), server.sessions()), (1, 1));
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
        (SettleOutcome::StillOpen, Vec::new()),
        "it is too early to tell"
    );
    writer(b" and late");
    assert!(ground.wait());
    let (settled, seen) = settle(folder.as_ref(), &displaced);
    assert_eq!(settled, SettleOutcome::StillOpen, "it has changed since");
    assert_eq!(seen, [b"old and late"]);
    assert!(ground.wait());
    let (settled, seen) = settle(folder.as_ref(), &displaced);
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
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

fn is_rename(frame: &[u8]) -> bool {
    frame
        .windows(24)
        .any(|it| it == b"posix-rename@openssh.com")
}

#[test]
fn a_host_that_is_lost_in_the_middle_is_asked_again_before_the_run_ends() {
    let Some(server) = sftp_server() else { return };
    let world = world().without("scout");
    world.write_scratch("ranger", "a note\n");
    let before = world.read("ranger");
    // Behind the first rename, once.
    let cut = AtomicBool::new(false);
    let judge: Judge =
        Arc::new(
            move |_, frame| match is_rename(frame) && !cut.swap(true, Ordering::SeqCst) {
                true => Fate::CutBehind,
                false => Fate::Pass,
            },
        );
    let engine = engine(&world, Between::new(server, judge));
    let ran = world.reset_by(&engine);
    let [result] = ran.report.results.as_slice() else {
        panic!("{:?}", ran.report)
    };
    assert_eq!(result.kind, Some(ErrorKind::Host), "{:?}", ran.report);
    // The memory had been taken away and none put in its place.
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    assert!(world.litter("ranger").is_empty());
    assert!(world.pending().is_empty());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    let ran = apply(&engine, &plan);
    assert_eq!(ran.report.results[0].outcome, Outcome::Ok);
    assert_eq!(world.read("ranger"), before);
}

#[test]
fn what_was_left_on_a_host_is_not_looked_for_on_another_way() {
    let (Some(server), Some(good), Some(again)) = (sftp_server(), sftp_server(), sftp_server())
    else {
        return;
    };
    let mut world = world().without("scout");
    world.write_scratch("ranger", "a note\n");
    // At the first rename, and for good.
    let lost = AtomicBool::new(false);
    let judge: Judge = Arc::new(move |_, frame| {
        match lost.fetch_or(is_rename(frame), Ordering::SeqCst) || is_rename(frame) {
            true => Fate::Cut,
            false => Fate::Pass,
        }
    });
    world.reset_by(&engine(&world, Between::new(server, judge)));
    let pending = world.pending();
    assert_eq!(pending.len(), 1, "the connection was cut in the middle");
    let (memory, lines) = (world.memory("ranger"), "remote_host = box\nremote_memory =");
    let at_port = format!("remote_port = 2222\n{lines} {}", memory.display());
    world.add("ranger", &at_port);
    let ran = world.reset_by(&engine(&world, good));
    let said = format!("{:?}", ran.report.errors);
    assert!(said.contains("that was on box"), "{said}");
    assert_eq!(world.pending(), pending);
    world.add("ranger", &format!("{lines} {}", memory.display()));
    world.reset_by(&engine(&world, again));
    assert!(world.pending().is_empty());
    assert!(world.litter("ranger").is_empty());
}

#[test]
fn a_plan_for_one_host_is_not_carried_out_on_another() {
    // User, path and content may be the same.
    for way in [
        "remote_host = crate",
        "remote_host = box\nremote_port = 2222",
    ] {
        let (Some(server), Some(other)) = (sftp_server(), sftp_server()) else {
            return;
        };
        let mut world = world().without("scout");
        world.write_scratch("ranger", "a note\n");
        let before = world.read("ranger");
        let names = ["ranger".to_string()];
        let first = engine(&world, server);
        let memory = world.memory("ranger");
        world.add(
            "ranger",
            &format!("{way}\nremote_memory = {}", memory.display()),
        );
        let second = engine(&world, other);
        let plan = first.plan_reset(&names, false).unwrap();
        assert_ne!(second.plan_reset(&names, false).unwrap().hash, plan.hash);
        let ran = apply(&second, &plan);
        let result = &ran.report.results[0];
        assert_eq!(result.kind, Some(ErrorKind::Conflict), "{result:?}");
        assert_eq!(world.read("ranger"), before);
        // An undo is bound in the same way.
        let ran = apply(&first, &plan);
        assert_eq!(ran.report.count(Outcome::Ok), 1, "{:?}", ran.report);
        let undo = |engine: &Engine| {
            let target = UndoTarget::Agents(names.to_vec());
            engine.plan_undo(&target, UndoMode::Refuse, false).unwrap()
        };
        let plan = undo(&first);
        assert_ne!(undo(&second).hash, plan.hash);
        let ran = apply(&second, &plan);
        assert_eq!(ran.report.results[0].kind, Some(ErrorKind::Conflict));
        assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    }
}

/// A small file system of its own at an agent's folder, as long as this lives.
struct Small(std::path::PathBuf);

impl Small {
    fn at(folder: &std::path::Path) -> Option<Small> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]);
        let mounted = mount.arg(folder).output();
        if !mounted.is_ok_and(|it| it.status.success()) {
            println!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Small(folder.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_full_disk_on_a_host_is_told_as_one_and_loses_nothing() {
    let Some(server) = sftp_server() else { return };
    let world = world().without("scout");
    let Some(_small) = Small::at(&world.folder("ranger")) else {
        return;
    };
    world.write_scratch("ranger", "a note\n");
    let before = world.read("ranger");
    let rest = world.folder("ranger").join("rest");
    // As much as there is room for.
    let _ = fs::write(&rest, vec![b'x'; 1 << 20]);
    let engine = engine(&world, server);
    let ran = world.reset_by(&engine);
    let [result] = ran.report.results.as_slice() else {
        panic!("{:?}", ran.report)
    };
    assert_eq!(result.kind, Some(ErrorKind::Host), "{result:?}");
    assert!(
        result.hints.iter().any(|it| it.contains("full")),
        "{result:?}"
    );
    assert_eq!(world.read("ranger"), before);
    assert_eq!(world.litter("ranger"), ["rest"]);
    fs::remove_file(rest).unwrap();
    let ran = world.reset_by(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 1, "{:?}", ran.report);
    assert!(world.archived("ranger").ends_with(b"a note\n"));
}

#[test]
fn two_agents_with_one_memory_on_a_host_are_told_and_not_reset() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]);
    add_remote(&mut world, "ranger", "box");
    let memory = world.memory("ranger");
    let lines = format!("remote_host = box\nremote_memory = {}", memory.display());
    world.add("scout", &lines);
    world.set_baseline("scout", BASELINE);
    world.write_scratch("ranger", "a note\n");
    let engine = engine(&world, server);
    let seen = engine.observe(engine.agent("scout").unwrap());
    assert_eq!(seen.state, State::Error, "{seen:?}");
    assert!(seen.reason.contains("shares its memory file with ranger"));
    let ran = world.reset_by(&engine);
    for result in &ran.report.results {
        assert_eq!(result.outcome, Outcome::Refused, "{:?}", ran.report);
    }
}

#[test]
fn what_was_on_one_host_is_not_put_back_on_another() {
    let Some(server) = sftp_server() else { return };
    let mut world = world().without("scout");
    world.write_scratch("ranger", "a note of the first host\n");
    let ran = world.reset_by(&engine(&world, server));
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    let undo = |world: &World| {
        let engine = engine(world, sftp_server().unwrap());
        let target = UndoTarget::Agents(vec!["ranger".to_string()]);
        engine.plan_undo(&target, UndoMode::Refuse, false).unwrap()
    };
    let memory = world.memory("ranger");
    let other = world.folder("ranger").join("OTHER.md");
    let mut refused = |lines: String, now: &str| {
        world.add("ranger", &lines);
        let plan = undo(&world);
        assert!(plan.steps.is_empty(), "{plan:?}");
        let why = &plan.skipped[0].reason;
        assert!(why.contains("it was about box:"), "{why}");
        assert!(why.contains(now), "{why}");
    };
    refused(
        format!("remote_host = other\nremote_memory = {}", memory.display()),
        "is at other:",
    );
    refused(
        format!("remote_host = box\nremote_memory = {}", other.display()),
        "OTHER.md now",
    );
    refused(
        format!("memory_file = {}", memory.display()),
        "is at local:",
    );
    add_remote(&mut world, "ranger", "box");
    assert_eq!(undo(&world).steps.len(), 1);
}
