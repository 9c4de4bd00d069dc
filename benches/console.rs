//! What the console costs, measured on the real binary in a pseudo-terminal of
//! 120x36 with the example fleet of 24 agents, none of which writes:
//!
//! - first useful frame: from exec until the first agent's name is on the screen;
//! - cursor keys: bytes and milliseconds from writing the key to the end of the
//!   frame it causes (the end of its synchronized update), single and held;
//! - an idle minute: bytes, processor time, context switches;
//! - resident memory.
//!
//! `cargo bench --bench console`; `SECONDS=10` shortens the idle minute. Other
//! programs that share the machine make times larger; bytes stay as they are.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness may stop and speak"
)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");
const FRAME_END: &[u8] = b"\x1b[?2026l";

struct Console {
    output: Receiver<(Instant, Vec<u8>)>,
    input: Box<dyn Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    screen: vt100::Parser,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Console {
    fn start(config: &Path) -> (Console, Instant) {
        let size = PtySize {
            rows: 36,
            cols: 120,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system()
            .openpty(size)
            .expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(BINARY);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.arg("--config");
        command.arg(config);
        let mut reader = pair.master.try_clone_reader().expect("a reader");
        let input = pair.master.take_writer().expect("a writer");
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender
                    .send((Instant::now(), buffer[..count].to_vec()))
                    .is_err()
                {
                    return;
                }
            }
        });
        let began = Instant::now();
        let child = pair.slave.spawn_command(command).expect("the console");
        let console = Console {
            output,
            input,
            child,
            screen: vt100::Parser::new(36, 120, 0),
            _master: pair.master,
        };
        (console, began)
    }

    fn until_text(&mut self, text: &str) -> Instant {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Ok((at, bytes)) = self.output.recv_timeout(Duration::from_secs(1)) {
                self.screen.process(&bytes);
                if self.screen.screen().contents().contains(text) {
                    return at;
                }
            }
        }
        panic!("{text} never came:\n{}", self.screen.screen().contents());
    }

    /// Takes output in until there has been none for `quiet`.
    fn drain(&mut self, quiet: Duration) -> (usize, Option<Instant>) {
        let (mut bytes, mut last) = (0, None);
        loop {
            match self.output.recv_timeout(quiet) {
                Ok((at, piece)) => {
                    bytes += piece.len();
                    self.screen.process(&piece);
                    if piece.ends_with(FRAME_END) {
                        last = last.or(Some(at));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return (bytes, last);
                }
            }
        }
    }

    fn key(&mut self, key: &[u8], quiet: Duration) -> (usize, Option<Duration>) {
        let pressed = Instant::now();
        self.input.write_all(key).expect("a key");
        let (bytes, frame) = self.drain(quiet);
        (bytes, frame.map(|frame| frame - pressed))
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = folder.path().join("fleet");
    let made = Command::new(BINARY)
        .args(["demo", "--agents", "24", "--dir"])
        .arg(&fleet)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    made.expect("the example fleet");
    let config = fleet.join("memory-shepherd.conf");
    let (mut console, began) = Console::start(&config);
    let first = console.until_text("billing-bot");
    println!("first useful frame      {:6.1} ms", millis(first - began));
    console.drain(Duration::from_millis(500));

    // Away from the ends of the list, so that every key moves the cursor.
    let (mut single, mut times) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let key = if round / 10 % 2 == 0 { b"j" } else { b"k" };
        let (bytes, time) = console.key(key, Duration::from_millis(150));
        single.push(bytes);
        times.extend(time.map(millis));
    }
    single.sort_unstable();
    times.sort_by(f64::total_cmp);
    println!(
        "cursor key              {:6} bytes median, {} at most; {:.2} ms median, {:.2} ms p95",
        single[single.len() / 2],
        single[single.len() - 1],
        times[times.len() / 2],
        times[times.len() * 95 / 100]
    );
    // Held: thirty keys a second.
    let mut held = 0;
    for _ in 0..15 {
        held += console.key(b"j", Duration::from_millis(33)).0;
    }
    println!("cursor key, held        {:6} bytes each", held / 15);
    console.drain(Duration::from_secs(1));

    let seconds: u64 = std::env::var("SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(60);
    let pid = console.child.process_id().expect("a process");
    let before = usage(pid);
    let (mut bytes, end) = (0, Instant::now() + Duration::from_secs(seconds));
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if let Ok((_, piece)) = console.output.recv_timeout(left) {
            bytes += piece.len();
        }
    }
    let after = usage(pid);
    println!(
        "idle for {seconds:3} s          {bytes:6} bytes, {:.3} % of a core, {} context switches",
        (after.0 - before.0) / seconds as f64 * 100.0,
        after.1 - before.1
    );
    println!("resident memory         {:6.1} MB", memory(pid));
    console.input.write_all(b"q").expect("a key");
    console.child.wait().expect("the end");
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Processor time in seconds and context switches of all threads.
fn usage(pid: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|field| field.parse().unwrap_or(0.0))
        .sum();
    let mut switches = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("tasks")
        .flatten()
    {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        switches += counts
            .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
            .sum::<u64>();
    }
    // USER_HZ is 100 on Linux.
    (ticks / 100.0, switches)
}

/// Resident memory in MB.
fn memory(pid: u32) -> f64 {
    let rollup =
        std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let rss = rollup
        .lines()
        .find(|line| line.starts_with("Rss:"))
        .unwrap_or("Rss: 0 kB");
    let kilobytes: f64 = rss
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    kilobytes / 1024.0
}
