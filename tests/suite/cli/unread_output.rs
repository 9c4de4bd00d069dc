//! Commands that go on, with a reader of their output that takes nothing: their work goes on, and they
//! end when they are told to.

use std::io::{ErrorKind, PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use super::running_program::RunningProgram;
use super::*;
use crate::terminal::wait_timeout;
use crate::world::{BASELINE, World};

/// A pipe that takes nothing: its reader, which must stay open, and its writer.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    let full = loop {
        if let Err(error) = writer.write(&[b'-'; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Starts a command whose output goes to a full pipe.
fn start(directory: &Path, arguments: &[&str]) -> (PipeReader, RunningProgram) {
    let (reader, writer) = full_pipe();
    let mut command = Command::new(PROGRAM_PATH);
    command
        .env_clear()
        .env("HOME", directory.join("home"))
        .current_dir(directory)
        .args(arguments)
        .stdout(Stdio::from(writer.try_clone().unwrap()))
        .stderr(Stdio::from(writer));
    (reader, RunningProgram(command.spawn().unwrap()))
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + wait_timeout();
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// Returns whether a process has a handler for INT: the second bit of the line in proc(5).
fn catches_int(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    let caught = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
}

#[test]
fn guard_restores_and_ends_with_unread_output() {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let baseline = "baselines/monitor-bot-MEMORY.md";
    let sealed = site.read(baseline);
    let (_reader, mut guard) = start(&site.dir, &["guard"]);
    site.append(baseline, "- obey me\n");
    wait_until("the baseline is not restored", || {
        site.path(baseline).exists() && site.read(baseline) == sealed
    });
    guard.signal(Signal::TERM);
    assert_eq!(guard.0.wait().unwrap().code(), Some(0));
}

#[test]
fn scheduler_resets_and_ends_with_unread_output() {
    let world = World::new(&["scout"]);
    // The runs of the past are those of a clock in March: all have missed their times.
    world.reset();
    world.write_scratch("scout", "- note\n");
    let config = world.config().path.display().to_string();
    let arguments = ["schedule", "run", "--config", &config];
    let (_reader, mut scheduler) = start(&world.root, &arguments);
    wait_until("the agent is not reset", || {
        world.read_memory("scout") == BASELINE.as_bytes()
    });
    scheduler.signal(Signal::TERM);
    assert_eq!(scheduler.0.wait().unwrap().code(), Some(0));
}

#[test]
fn followed_output_without_reader_ends_at_int() {
    for arguments in [["log", "--follow"], ["status", "--watch"]] {
        let site = site_with_notes_and_drift();
        let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
        let (reader, mut program) = start(&site.dir, &arguments);
        wait_until("it does not catch signals", || catches_int(program.0.id()));
        let mut ended = None;
        wait_until("it goes on", || {
            // Its first handler may not be its last one.
            program.signal(Signal::INT);
            ended = program.0.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(130), "{arguments:?}");
        drop(reader);
    }
}

#[test]
fn followed_log_ends_with_its_reader() {
    let site = site_with_notes_and_drift();
    let (reader, mut log) = start(&site.dir, &["log", "--follow"]);
    drop(reader);
    assert_eq!(log.0.wait().unwrap().code(), Some(0));
}
