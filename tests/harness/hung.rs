//! Mounts that hang: only their own agents wait for them, and a call that returns late does no
//! harm.
//!
//! One is a FUSE mount without a server, where every call waits; others are separate disks on which
//! strace delays one call for longer than the program's timeout.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::io::{FdFlags, fcntl_setfd};

use super::fixture::{BASELINE, has_tool};
use super::mounts::{Mount, may_mount};
use super::processes::RUN_TIMEOUT;
use super::scene::{InitialMemory, RESET_ALL, Scene, output_text};
use super::strace::{self, can_trace, injection_options};
use crate::skip::skip_unsupported;

/// A mount on which every call waits until this is dropped.
struct HungMount {
    /// Closed first: then every call on the mount fails instead.
    _server: File,
    _mount: Mount,
}

impl HungMount {
    /// Mounts it; returns None, with the reason printed, where FUSE is not available.
    fn mount_over(directory: &Path) -> Option<HungMount> {
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(server) = server else {
            skip_unsupported("/dev/fuse cannot be opened");
            return None;
        };
        // mount(8) needs the descriptor, too.
        fcntl_setfd(&server, FdFlags::empty()).unwrap();
        let fd = server.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let words = ["-i", "-t", "fuse", "-o", &options, "hung"];
        let mounted = Mount::new(&words, directory);
        fcntl_setfd(&server, FdFlags::CLOEXEC).unwrap();
        match mounted {
            Ok(mount) => Some(HungMount {
                _server: server,
                _mount: mount,
            }),
            Err(why) => {
                skip_unsupported(format_args!("no FUSE mount: {why}"));
                None
            }
        }
    }
}

/// Sets the timeout of file systems to one second.
fn set_short_timeout(scene: &Scene) {
    let config = fs::read_to_string(scene.fleet.config_path()).unwrap();
    let changed = config.replacen("[general]\n", "[general]\nlocal_timeout = 1\n", 1);
    fs::write(scene.fleet.config_path(), changed).unwrap();
}

#[test]
fn hung_mount_delays_no_other_agent() {
    if !may_mount("hung::hung_mount_delays_no_other_agent") {
        return;
    }
    let cast = ["ada", "far", "gone", "linked", "zoe"]
        .map(|name| (name, InitialMemory::scratch("- a note\n")));
    let scene = Scene::new(&cast);
    set_short_timeout(&scene);
    let config = fs::read_to_string(scene.fleet.config_path()).unwrap();
    let nested = config.replace("agents/gone/", "agents/far/below/");
    fs::write(scene.fleet.config_path(), nested).unwrap();
    let Some(hung) = HungMount::mount_over(&scene.fleet.agent_directory("far")) else {
        return;
    };
    let point = scene.fleet.agent_directory("far").display().to_string();
    // An agent that may rename its own directory can redirect its path.
    let aside = scene.fleet.root.join("aside");
    fs::rename(scene.fleet.agent_directory("linked"), &aside).unwrap();
    symlink(
        scene.fleet.agent_directory("far").join("x"),
        scene.fleet.agent_directory("linked"),
    )
    .unwrap();
    for words in [
        &["status"][..],
        &["reset", "--all", "--dry-run"],
        RESET_ALL,
        &["doctor"],
        &["undo", "far"],
    ] {
        let began = Instant::now();
        let command = ["timeout", "-s", "KILL", "60"];
        let output = scene.fleet.command(&command, words).output().unwrap();
        let said = output_text(&output);
        assert!(began.elapsed() < RUN_TIMEOUT, "{words:?} hangs: {said}");
        if words[0] != "undo" {
            assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
            assert!(said.contains(&point), "{words:?}: {said}");
        }
    }
    let outcome = |agent: &str| {
        let records = scene.records();
        let own = records.iter().find(|record| record["agent"] == agent);
        own.map(|record| record["outcome"].as_str().unwrap().to_string())
    };
    for agent in ["ada", "zoe"] {
        assert_eq!(outcome(agent).as_deref(), Some("ok"), "{agent}");
        assert_eq!(
            scene.read_memory(agent).unwrap(),
            BASELINE.as_bytes(),
            "{agent}"
        );
        assert_eq!(scene.fleet.entries(agent).len(), 1, "{agent}");
    }
    for agent in ["far", "gone", "linked"] {
        assert_eq!(outcome(agent).as_deref(), Some("failed"), "{agent}");
    }
    drop(hung);
    fs::remove_file(scene.fleet.agent_directory("linked")).unwrap();
    fs::rename(aside, scene.fleet.agent_directory("linked")).unwrap();
    let config = fs::read_to_string(scene.fleet.config_path()).unwrap();
    let original = config.replace("agents/far/below/", "agents/gone/");
    fs::write(scene.fleet.config_path(), original).unwrap();
    scene.run_ok(RESET_ALL);
    scene.check_settled().unwrap();
}

/// Any call of a run may be the one that waits.
#[test]
fn hanging_call_in_a_run_loses_nothing() {
    if !can_trace() || !has_tool("mount") {
        return;
    }
    if !may_mount("hung::hanging_call_in_a_run_loses_nothing") {
        return;
    }
    // Each waits for seconds: all at once.
    let calls = ["openat", "linkat", "renameat2", "fsync", "unlinkat"];
    thread::scope(|scope| {
        for name in calls {
            scope.spawn(move || check_hanging_call(name));
        }
    });
    println!("hanging calls: {}", calls.len());
}

/// Checks a run in which the first of these calls on the agent's directory hangs.
fn check_hanging_call(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let disk = root.join("disk");
    let mount = Mount::new(&["-t", "tmpfs", "agents"], &disk).unwrap();
    let cast = [("scout", InitialMemory::scratch("- a note\n"))];
    let scene = Scene::new_at(&disk, &root.join("archives"), &root.join("log"), &cast);
    set_short_timeout(&scene);
    let directory = scene.fleet.agent_directory("scout").display().to_string();
    let mut options = injection_options(name, "delay_enter=4000000", 1, true);
    options.extend(["-P".to_string(), directory]);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
    let said = output_text(&output);
    assert!(said.contains("does not answer"), "{name}: {said}");
    scene.check_invariants().unwrap();
    scene.check_after_next_reset().unwrap();
    drop(scene);
    drop(mount);
}

/// The error of a reached process limit.
#[test]
fn missing_threads_cause_no_hang() {
    if !may_mount("hung::missing_threads_cause_no_hang") {
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let root = ground.path().canonicalize().unwrap();
    let disk = root.join("disk");
    let mount = Mount::new(&["-t", "tmpfs", "agents"], &disk).unwrap();
    let cast = [("scout", InitialMemory::scratch("- a note\n"))];
    let scene = Scene::new_at(&disk, &root.join("archives"), &root.join("log"), &cast);
    let before = scene.read_memory("scout");
    for words in [&["status"][..], RESET_ALL, &["doctor"]] {
        let wrapper = ["timeout", "-s", "KILL", "60"];
        let mut command = scene.fleet.command(&wrapper, words);
        // More than any address space has.
        command.env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        let output = command.output().unwrap();
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
        assert!(said.contains("cannot start a thread"), "{words:?}: {said}");
    }
    assert_eq!(scene.read_memory("scout"), before);
    scene.run_ok(RESET_ALL);
    scene.check_settled().unwrap();
    drop(scene);
    drop(mount);
}
