//! Agents on other hosts, through the whole engine. The host is this machine's disk behind
//! OpenSSH's SFTP server.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::config::SshHost;
use memory_shepherd::engine::{Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::transport::SettleOutcome;

use memory_shepherd::transport::sftp::ssh::Connector;
use memory_shepherd::transport::sftp::{PerHostTransports, SftpTransport};

use super::contract::{
    DiskFixture, TransportFixture, displace_open_memory, read_file, settle_and_collect,
};
use super::servers::{
    FilteredServer, RequestFate, RequestFilter, host_named, sftp_server,
    sftp_server_with_open_files,
};
use super::sshd::{HOST_NAME, Sshd};
use super::world::{BASELINE, TestClock, World, apply_plan};
use crate::skip::skip_unsupported;

/// Adds an agent whose directory is on a host.
pub fn add_remote_agent(world: &mut World, agent: &str, host: &str) {
    let memory = world.memory_path(agent);
    let lines = format!("remote_host = {host}\nremote_memory = {}", memory.display());
    world.add_agent(agent, &lines);
    world.set_baseline(agent, BASELINE);
}

/// Returns an engine that reaches hosts by this connector.
pub fn engine_with_connector(world: &World, dial: impl Connector + 'static) -> Engine {
    let clock = world.clock.clone();
    let everywhere = PerHostTransports::new(world.local_transport(), Arc::new(dial), clock.clone());
    world.engine_with_transports(clock, Arc::new(everywhere), None)
}

/// Returns a directory on this disk, over SFTP with OpenSSH's server as a child.
pub fn sftp_fixture() -> Option<DiskFixture<SftpTransport>> {
    Some(sftp_fixture_with(host_named("remote"), sftp_server()?))
}

/// Returns a directory on this disk, through ssh and sshd.
pub fn sshd_fixture(server: &Sshd) -> DiskFixture<SftpTransport> {
    sftp_fixture_with(host_named(HOST_NAME), server.connector())
}

pub fn sftp_fixture_with(
    host: SshHost,
    dial: impl Connector + 'static,
) -> DiskFixture<SftpTransport> {
    let dir = crate::directory();
    fs::create_dir(dir.path().join("agent")).unwrap();
    symlink("agent", dir.path().join("alias")).unwrap();
    let clock = TestClock::new();
    DiskFixture {
        dir,
        transport: SftpTransport::new(host, Arc::new(dial), clock.clone()),
        can_exchange: false,
        clock,
        settles_twice: true,
        link_action: None,
    }
}

/// Returns a world with one agent on a host and one on this machine.
fn world_with_remote_agent() -> World {
    let mut world = World::new(&["scout"]);
    add_remote_agent(&mut world, "ranger", "box");
    world
}

#[test]
fn remote_agent_is_reset_undone_and_redone() {
    let Some(server) = sftp_server() else { return };
    let world = world_with_remote_agent();
    for agent in ["scout", "ranger"] {
        world.write_scratch(agent, "a note\n");
    }
    let before = world.read_memory("ranger");
    let engine = engine_with_connector(&world, server);
    let seen = engine.observer().observe(engine.agent("ranger").unwrap());
    assert_eq!((seen.state, seen.host.as_str()), (State::Scratch, "box"));
    let ran = world.reset_with_engine(&engine);
    for result in &ran.report.results {
        assert_eq!(result.outcome, Outcome::Ok, "{:?}", ran.report);
        assert_eq!(result.note, None);
    }
    assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
    assert!(
        world.leftovers("ranger").is_empty(),
        "{:?}",
        world.leftovers("ranger")
    );
    assert!(world.pending_journals().is_empty());
    assert!(world.all_entry_bytes("ranger").ends_with(b"a note\n"));
    let undo = |target| {
        let plan = engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap();
        apply_plan(&engine, &plan)
    };
    let ran = undo(UndoTarget::Agents(vec!["ranger".to_string()]));
    ran.assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), before);
    let ran = undo(UndoTarget::Redo(vec!["ranger".to_string()]));
    ran.assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
}

#[test]
fn push_to_remote_agent_keeps_notes() {
    let Some(server) = sftp_server() else { return };
    let world = world_with_remote_agent().without_agent("scout");
    let engine = engine_with_connector(&world, server);
    world.reset_with_engine(&engine).assert_outcome(Outcome::Ok);
    world.write_scratch("ranger", "- one\n- two\n");
    let before = world.read_memory("ranger");
    let new = BASELINE.replace("brief", "exact");
    world.set_baseline("ranger", &new);
    let names = ["ranger".to_string()];
    let push = |selection: &str| {
        let plan = engine
            .planner()
            .plan_push(&names, &selection.parse().unwrap(), false);
        let ran = apply_plan(&engine, &plan.unwrap());
        ran.assert_outcome(Outcome::Ok);
    };
    assert_eq!(
        engine
            .observer()
            .observe(engine.agent("ranger").unwrap())
            .state,
        State::Behind
    );
    push("all");
    assert_eq!(
        world.read_memory("ranger"),
        format!("{new}- one\n- two\n").as_bytes()
    );
    let target = UndoTarget::Agents(names.to_vec());
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    apply_plan(&engine, &plan).assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), before);
    push("8");
    assert_eq!(
        world.read_memory("ranger"),
        format!("{new}- two\n").as_bytes()
    );
    assert!(world.leftovers("ranger").is_empty());
    // No more than the transport can read back is installed.
    world.set_baseline("ranger", BASELINE.to_string() + &"#".repeat(1 << 20));
    world.write_memory("ranger", new + &"x".repeat((16 << 20) - 100));
    let plan = engine
        .planner()
        .plan_push(&names, &"all".parse().unwrap(), false)
        .unwrap();
    assert!(
        plan.skipped[0].reason.contains("can be read back"),
        "{plan:?}"
    );
}

#[test]
fn agent_over_ssh_is_observed_and_reset() {
    let Some(server) = Sshd::start() else { return };
    let world = world_with_remote_agent()
        .without_agent("scout")
        .with_general("remote_timeout = 120");
    world.write_scratch("ranger", "a note\n");
    let engine = engine_with_connector(&world, server.connector());
    let seen = engine.observer().observe(engine.agent("ranger").unwrap());
    assert_eq!(seen.state, State::Scratch, "{seen:?}\n{}", server.log());
    let ran = world.reset_with_engine(&engine);
    ran.assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
    assert!(world.all_entry_bytes("ranger").ends_with(b"a note\n"));
    // Everything ran over one connection.
    assert_eq!((server.connection_count(), server.session_count()), (1, 1));
}

#[test]
fn missing_remote_memory_is_created_and_undone() {
    let Some(server) = sftp_server() else { return };
    let world = world_with_remote_agent().without_agent("scout");
    let engine = engine_with_connector(&world, server);
    let seen = engine.observer().observe(engine.agent("ranger").unwrap());
    assert_eq!(seen.state, State::Missing);
    let ran = world.reset_with_engine(&engine);
    ran.assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    let ran = apply_plan(&engine, &plan);
    ran.assert_outcome(Outcome::Ok);
    assert!(!fs::exists(world.memory_path("ranger")).unwrap());
    assert!(world.leftovers("ranger").is_empty());
}

#[test]
fn seventy_agents_of_a_host_take_two_batches() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]);
    let names: Vec<String> = (0..70).map(|number| format!("agent-{number:02}")).collect();
    for name in &names {
        add_remote_agent(&mut world, name, "box");
        world.write_scratch(name, format!("a note of {name}\n"));
    }
    let engine = engine_with_connector(&world, server);
    let ran = world.reset_with_engine(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 70, "{:?}", ran.report);
    for name in &names {
        assert_eq!(world.read_memory(name), BASELINE.as_bytes());
        assert!(world.leftovers(name).is_empty());
        let archived = world.all_entry_bytes(name);
        assert!(archived.ends_with(format!("a note of {name}\n").as_bytes()));
    }
}

/// A server that opens fewer files than the fleet has agents there.
#[test]
fn agents_beyond_open_file_limit_of_host_are_read() {
    if sftp_server().is_none() {
        return;
    }
    let mut world = World::new(&[]);
    for number in 0..100 {
        let name = format!("agent-{number:02}");
        add_remote_agent(&mut world, &name, "box");
        world.write_scratch(&name, format!("a note of {name}\n"));
    }
    let engine = engine_with_connector(&world, sftp_server_with_open_files(60));
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let seen = engine.observer().observe_all(&agents);
    let states: Vec<_> = seen
        .iter()
        .filter(|it| it.state != State::Scratch)
        .collect();
    assert!(states.is_empty(), "{states:?}");
    let ran = world.reset_with_engine(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 100, "{:?}", ran.report);
}

#[test]
fn settle_looks_twice_and_finds_late_write() {
    let Some(fixture) = sftp_fixture() else {
        return;
    };
    let fixture: &dyn TransportFixture = &fixture;
    let (directory, displaced, mut writer) = displace_open_memory(fixture);
    // The swap made the first probe.
    assert_eq!(
        settle_and_collect(directory.as_ref(), &displaced),
        (SettleOutcome::StillOpen, Vec::new()),
        "the quiet period is not over"
    );
    writer(b" and late");
    assert!(fixture.advance_past_second_check());
    let (settled, seen) = settle_and_collect(directory.as_ref(), &displaced);
    assert_eq!(
        settled,
        SettleOutcome::StillOpen,
        "it changed after the last probe"
    );
    assert_eq!(seen, [b"old and late"]);
    assert!(fixture.advance_past_second_check());
    let (settled, seen) = settle_and_collect(directory.as_ref(), &displaced);
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"old and late"]);
    assert_eq!(fixture.names(), ["MEMORY.md"]);
}

/// Returns a filter that lets a server return at most this many bytes per read, and the number of
/// reads.
fn short_reads(max_bytes: u32) -> (RequestFilter, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    // SSH_FXP_READ: type, id, handle, offset, length.
    let judge: RequestFilter = Arc::new(move |_, frame| {
        if frame[0] == 5 {
            seen.fetch_add(1, Ordering::SeqCst);
            let at = frame.len() - 4;
            let asked = u32::from_be_bytes(frame[at..].try_into().unwrap());
            frame[at..].copy_from_slice(&asked.min(max_bytes).to_be_bytes());
        }
        RequestFate::Pass
    });
    (judge, count)
}

#[test]
fn short_reading_server_is_asked_for_less() {
    for max_bytes in [16 * 1024_u32, 1000] {
        let Some(server) = sftp_server() else { return };
        let (judge, count) = short_reads(max_bytes);
        let fixture = sftp_fixture_with(host_named("box"), FilteredServer::new(server, judge));
        let content = b"0123456789abcde\n".repeat(20_000);
        fixture.write("MEMORY.md", &content);
        assert!(read_file(fixture.open_directory().as_ref()) == content);
        // Besides, the first batch, whose later replies do not continue the first one.
        let needed = content.len().div_ceil(max_bytes as usize);
        let reads = count.load(Ordering::SeqCst);
        assert!(reads <= needed + 32, "{reads} reads, {needed} needed");
    }
}

#[test]
fn short_reading_server_loses_nothing() {
    for most in [16 * 1024_u32, 1000] {
        let Some(server) = sftp_server() else { return };
        let (judge, _) = short_reads(most);
        let world = world_with_remote_agent().without_agent("scout");
        let notes: String = (0..3000)
            .map(|number| format!("- note {number}\n"))
            .collect();
        world.write_scratch("ranger", &notes);
        let before = world.read_memory("ranger");
        let engine = engine_with_connector(&world, FilteredServer::new(server, judge));
        let ran = world.reset_with_engine(&engine);
        ran.assert_outcome(Outcome::Ok);
        assert!(world.all_entry_bytes("ranger").ends_with(notes.as_bytes()));
        assert_eq!(world.entry_names("ranger").len(), 1);
        let target = UndoTarget::Agents(vec!["ranger".to_string()]);
        let plan = engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap();
        apply_plan(&engine, &plan);
        assert_eq!(world.read_memory("ranger"), before);
    }
}

fn is_rename(frame: &[u8]) -> bool {
    frame
        .windows(24)
        .any(|it| it == b"posix-rename@openssh.com")
}

#[test]
fn host_lost_during_run_is_retried_before_its_end() {
    let Some(server) = sftp_server() else { return };
    let world = world_with_remote_agent().without_agent("scout");
    world.write_scratch("ranger", "a note\n");
    let before = world.read_memory("ranger");
    // Disconnects once, after the first rename.
    let cut = AtomicBool::new(false);
    let judge: RequestFilter = Arc::new(move |_, frame| {
        if is_rename(frame) && !cut.swap(true, Ordering::SeqCst) {
            RequestFate::DisconnectAfter
        } else {
            RequestFate::Pass
        }
    });
    let engine = engine_with_connector(&world, FilteredServer::new(server, judge));
    let ran = world.reset_with_engine(&engine);
    let [result] = ran.report.results.as_slice() else {
        panic!("{:?}", ran.report)
    };
    // The memory was displaced and its replacement not installed; the run finished that.
    assert_eq!(result.outcome, Outcome::Ok, "{:?}", ran.report);
    assert_eq!(result.kind, None, "{:?}", ran.report);
    assert_eq!(world.read_records().len(), 1, "{:?}", world.read_records());
    assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
    assert!(world.leftovers("ranger").is_empty());
    assert!(world.pending_journals().is_empty());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    let ran = apply_plan(&engine, &plan);
    assert_eq!(ran.report.results[0].outcome, Outcome::Ok);
    assert_eq!(world.read_memory("ranger"), before);
}

#[test]
fn leftover_on_host_is_not_sought_under_other_address() {
    let (Some(server), Some(good), Some(again)) = (sftp_server(), sftp_server(), sftp_server())
    else {
        return;
    };
    let mut world = world_with_remote_agent().without_agent("scout");
    world.write_scratch("ranger", "a note\n");
    // Disconnects at the first rename, for good.
    let lost = AtomicBool::new(false);
    let judge: RequestFilter = Arc::new(move |_, frame| {
        if lost.fetch_or(is_rename(frame), Ordering::SeqCst) || is_rename(frame) {
            RequestFate::Disconnect
        } else {
            RequestFate::Pass
        }
    });
    world.reset_with_engine(&engine_with_connector(
        &world,
        FilteredServer::new(server, judge),
    ));
    let pending = world.pending_journals();
    assert_eq!(pending.len(), 1, "the connection was cut in the middle");
    let (memory, lines) = (
        world.memory_path("ranger"),
        "remote_host = box\nremote_memory =",
    );
    let at_port = format!("remote_port = 2222\n{lines} {}", memory.display());
    world.add_agent("ranger", &at_port);
    let ran = world.reset_with_engine(&engine_with_connector(&world, good));
    let said = format!("{:?}", ran.report.errors);
    assert!(said.contains("its files were on box"), "{said}");
    assert_eq!(world.pending_journals(), pending);
    world.add_agent("ranger", &format!("{lines} {}", memory.display()));
    world.reset_with_engine(&engine_with_connector(&world, again));
    assert!(world.pending_journals().is_empty());
    assert!(world.leftovers("ranger").is_empty());
}

#[test]
fn plan_for_one_host_is_refused_on_another() {
    // User, path and content may be equal.
    for way in [
        "remote_host = crate",
        "remote_host = box\nremote_port = 2222",
    ] {
        let (Some(server), Some(other)) = (sftp_server(), sftp_server()) else {
            return;
        };
        let mut world = world_with_remote_agent().without_agent("scout");
        world.write_scratch("ranger", "a note\n");
        let before = world.read_memory("ranger");
        let names = ["ranger".to_string()];
        let first = engine_with_connector(&world, server);
        let memory = world.memory_path("ranger");
        world.add_agent(
            "ranger",
            &format!("{way}\nremote_memory = {}", memory.display()),
        );
        let second = engine_with_connector(&world, other);
        let plan = first.planner().plan_reset(&names, false).unwrap();
        assert_ne!(
            second.planner().plan_reset(&names, false).unwrap().hash,
            plan.hash
        );
        let ran = apply_plan(&second, &plan);
        let result = &ran.report.results[0];
        assert_eq!(result.kind, Some(ErrorKind::Conflict), "{result:?}");
        assert_eq!(world.read_memory("ranger"), before);
        // An undo is bound to the same location.
        let ran = apply_plan(&first, &plan);
        assert_eq!(ran.report.count(Outcome::Ok), 1, "{:?}", ran.report);
        let undo = |engine: &Engine| {
            let target = UndoTarget::Agents(names.to_vec());
            engine
                .planner()
                .plan_undo(&target, UndoMode::Refuse, false)
                .unwrap()
        };
        let plan = undo(&first);
        assert_ne!(undo(&second).hash, plan.hash);
        let ran = apply_plan(&second, &plan);
        assert_eq!(ran.report.results[0].kind, Some(ErrorKind::Conflict));
        assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
    }
}

/// A small file system mounted at an agent's directory until this is dropped.
struct SmallMount(std::path::PathBuf);

impl SmallMount {
    fn mount_at(directory: &std::path::Path) -> Option<SmallMount> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]);
        let mounted = mount.arg(directory).output();
        if !mounted.is_ok_and(|it| it.status.success()) {
            skip_unsupported("cannot mount a file system");
            return None;
        }
        Some(SmallMount(directory.to_path_buf()))
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn full_remote_disk_is_reported_and_loses_nothing() {
    let Some(server) = sftp_server() else { return };
    let world = world_with_remote_agent().without_agent("scout");
    let Some(_small) = SmallMount::mount_at(&world.agent_directory("ranger")) else {
        return;
    };
    world.write_scratch("ranger", "a note\n");
    let before = world.read_memory("ranger");
    let rest = world.agent_directory("ranger").join("rest");
    // Fills the remaining space.
    let _ = fs::write(&rest, vec![b'x'; 1 << 20]);
    let engine = engine_with_connector(&world, server);
    let ran = world.reset_with_engine(&engine);
    let [result] = ran.report.results.as_slice() else {
        panic!("{:?}", ran.report)
    };
    assert_eq!(result.kind, Some(ErrorKind::Host), "{result:?}");
    assert!(
        result.hints.iter().any(|it| it.contains("full")),
        "{result:?}"
    );
    assert_eq!(world.read_memory("ranger"), before);
    assert_eq!(world.leftovers("ranger"), ["rest"]);
    fs::remove_file(rest).unwrap();
    let ran = world.reset_with_engine(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 1, "{:?}", ran.report);
    assert!(world.all_entry_bytes("ranger").ends_with(b"a note\n"));
}

#[test]
fn remote_agents_sharing_a_memory_are_refused() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]);
    add_remote_agent(&mut world, "ranger", "box");
    let memory = world.memory_path("ranger");
    let lines = format!("remote_host = box\nremote_memory = {}", memory.display());
    world.add_agent("scout", &lines);
    world.set_baseline("scout", BASELINE);
    world.write_scratch("ranger", "a note\n");
    let engine = engine_with_connector(&world, server);
    let seen = engine.observer().observe(engine.agent("scout").unwrap());
    assert_eq!(seen.state, State::Error, "{seen:?}");
    assert!(seen.reason.contains("shares its memory file with ranger"));
    let ran = world.reset_with_engine(&engine);
    for result in &ran.report.results {
        assert_eq!(result.outcome, Outcome::Refused, "{:?}", ran.report);
    }
}

#[test]
fn undo_for_one_host_is_refused_on_another() {
    let Some(server) = sftp_server() else { return };
    let mut world = world_with_remote_agent().without_agent("scout");
    world.write_scratch("ranger", "a note of the first host\n");
    let ran = world.reset_with_engine(&engine_with_connector(&world, server));
    ran.assert_outcome(Outcome::Ok);
    let undo = |world: &World| {
        let engine = engine_with_connector(world, sftp_server().unwrap());
        let target = UndoTarget::Agents(vec!["ranger".to_string()]);
        engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap()
    };
    let memory = world.memory_path("ranger");
    let other = world.agent_directory("ranger").join("OTHER.md");
    let mut refused = |lines: String, now: &str| {
        world.add_agent("ranger", &lines);
        let plan = undo(&world);
        assert!(plan.steps.is_empty(), "{plan:?}");
        let why = &plan.skipped[0].reason;
        assert!(why.contains("it changed box:"), "{why}");
        assert!(why.contains(now), "{why}");
    };
    refused(
        format!("remote_host = other\nremote_memory = {}", memory.display()),
        "is now at other:",
    );
    refused(
        format!("remote_host = box\nremote_memory = {}", other.display()),
        "OTHER.md",
    );
    refused(
        format!("memory_file = {}", memory.display()),
        "is now at local:",
    );
    add_remote_agent(&mut world, "ranger", "box");
    assert_eq!(undo(&world).steps.len(), 1);
}
