//! Costs of the console, measured on the real binary in a pseudo-terminal of 120x36, with 24 and
//! with 1,000 local agents, none of which writes by itself; each figure beside its budget. Then
//! other terminal programs that are installed, driven by the same code.
//!
//! `cargo bench --bench console`; `SECONDS=10` shortens the idle minute. Other load on the machine
//! makes times longer; bytes stay the same, and the tests hold those to their budgets.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/bench_terminal.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_terminal;
#[path = "../tests/support/measure.rs"]
mod measure;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::bench_terminal::{Terminal, cursor};
use self::measure::{median, share, sorted};

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");

/// Slightly longer than the interval between two sweeps of the fleet.
const SWEEP: Duration = Duration::from_secs(33);

fn console(config: &Path) -> Terminal {
    Terminal::start(BINARY, &[Path::new("--config"), config])
}

/// Prints one line of the table.
fn line(what: &str, figure: String, within: Option<(bool, &str)>) {
    let (verdict, budget) = match within {
        Some((true, budget)) => ("ok", budget),
        Some((false, budget)) => ("OVER", budget),
        None => ("", ""),
    };
    println!("  {what:<32}{figure:>34}  {budget:<14}{verdict}");
}

/// Prints a figure with its budget, if there is one.
fn figure(what: &str, value: f64, unit: &str, most: Option<f64>) {
    let budget = most.map(|most| format!("<= {most} {unit}"));
    let within = most.zip(budget.as_deref());
    let within = within.map(|(most, budget)| (value <= most, budget));
    line(what, format!("{value:.1} {unit}"), within);
}

fn main() {
    let seconds = std::env::var("SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(60);
    editor();
    // `cargo bench --bench console -- editor` measures nothing else.
    if std::env::args().any(|argument| argument == "editor") {
        return;
    }
    for agents in [24, 1_000] {
        fleet(agents, seconds);
    }
    others();
}

/// Returns the memories of a fleet.
fn memories(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.join("agents")];
    while let Some(directory) = directories.pop() {
        for item in fs::read_dir(directory).into_iter().flatten().flatten() {
            match item.path() {
                path if path.is_dir() => directories.push(path),
                path if path.ends_with("MEMORY.md") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn note(memory: &Path) {
    let file = File::options().append(true).open(memory);
    if let Ok(mut file) = file {
        let _ = file.write_all(b"- a note\n");
    }
}

fn fleet(agents: usize, seconds: u64) {
    println!("\n{agents} agents");
    let many = agents > 100;
    let directory = tempfile::tempdir().expect("a directory");
    let fleet = directory.path().join("fleet");
    let quiet = |arguments: &[&str], path: &Path| {
        let mut command = Command::new(BINARY);
        command.args(arguments).arg(path).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("the program");
    };
    quiet(&["demo", "--agents", &agents.to_string(), "--dir"], &fleet);
    let config = fleet.join("memory-shepherd.conf");
    let walls = (0..6).map(|_| {
        let began = Instant::now();
        quiet(&["status", "--config"], &config);
        millis(began.elapsed())
    });
    let warm = walls.collect::<Vec<_>>().split_off(1);
    figure("status, warm", median(warm), "ms", many.then_some(300.0));

    let (mut bytes, mut useful) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let mut console = self::console(&config);
        let frame = console.until("the fleet", |screen| {
            screen.contents().contains("billing-bot")
        });
        useful.push(millis(frame - console.began));
        bytes.extend(console.first_byte.map(|at| millis(at - console.began)));
        console.drain(Duration::from_millis(300));
        console.quit(b"q");
    }
    figure("first byte", median(bytes), "ms", (!many).then_some(40.0));
    let most = if many { 150.0 } else { 80.0 };
    figure("first useful frame", median(useful), "ms", Some(most));

    let mut console = self::console(&config);
    console.until("the fleet", |screen| {
        screen.contents().contains("billing-bot")
    });
    console.drain(Duration::from_secs(1));
    journey(&mut console);
    load(&mut console, &memories(&fleet));
    console.drain(Duration::from_secs(2));
    change(&mut console, &fleet);
    idle(&mut console, seconds);
    let most = if many { 60.0 } else { 20.0 };
    let (rss, pss) = measure::memory(console.pid());
    figure("resident (RSS)", rss, "MB", Some(most));
    figure("proportional (PSS)", pss, "MB", None);
    figure(
        "exit after the terminal closed",
        millis(console.close()),
        "ms",
        Some(200.0),
    );
}

/// Measures the delay from key to frame while text is typed into a baseline of 200 KB, with all rules
/// of the lint.
fn editor() {
    println!("\na baseline of 200 KB in the editor");
    let directory = tempfile::tempdir().expect("a directory");
    let fleet = directory.path().join("fleet");
    let mut demo = Command::new(BINARY);
    demo.args(["demo", "--dir"]).arg(&fleet);
    demo.stdin(Stdio::null()).stdout(Stdio::null());
    demo.stderr(Stdio::null()).status().expect("the program");
    let baseline = fleet.join("baselines/researcher-MEMORY.md");
    let text = fs::read_to_string(&baseline).expect("a baseline");
    fs::write(&baseline, text.repeat(200_000 / text.len() + 1)).expect("a large baseline");
    let mut config = fs::read_to_string(fleet.join("memory-shepherd.conf")).expect("a config");
    // The change of the baseline is the operator's.
    config = config.replacen("[general]\n", "[general]\nrequire_seal = never\n", 1);
    fs::write(fleet.join("memory-shepherd.conf"), config).expect("a config");
    let mut console = self::console(&fleet.join("memory-shepherd.conf"));
    console.until("the fleet", |screen| {
        screen.contents().contains("researcher")
    });
    console.drain(Duration::from_secs(1));
    for key in ":agent researcher".chars() {
        console.key(key.to_string().as_bytes());
    }
    console.key(b"\r");
    console.send(b"e");
    console.until("the editor", |screen| screen.contents().contains("NORMAL"));
    console.drain(Duration::from_secs(3));
    delays(
        &mut console,
        "motion to frame",
        b"jjjjjjjjjjjj\x04\x04\x15jjj",
        200,
    );
    delays(&mut console, "jump to frame", b"GkGk", 40);
    delays(&mut console, "typing begun", b"i", 1);
    delays(
        &mut console,
        "typed key to frame",
        b"typed text, with a blank. ",
        400,
    );
    console.send(b"\x1b");
    console.drain(Duration::from_millis(300));
    delays(&mut console, "line cut to frame", b"x", 40);
    console.key(b":");
    console.key(b"q");
    console.key(b"!");
    console.key(b"\r");
    console.quit(b"\x03");
}

/// Measures the delays from keys to their frames.
fn delays(console: &mut Terminal, what: &str, keys: &[u8], count: usize) {
    let delays = (0..count).map(|number| {
        let (pressed, before) = (Instant::now(), console.frames);
        console.send(&keys[number % keys.len()..][..1]);
        let end = pressed + Duration::from_secs(5);
        let mut shown = end;
        while console.frames == before && Instant::now() < end {
            if let Some((at, _)) = console.take(Duration::from_millis(5)) {
                shown = at;
            }
        }
        // As fast as a hurried typist.
        console.drain(Duration::from_millis(20));
        millis(shown - pressed)
    });
    let delays = sorted(delays.collect());
    figure(&format!("{what}, p50"), share(&delays, 50), "ms", None);
    figure(
        &format!("{what}, p99"),
        share(&delays, 99),
        "ms",
        Some(16.0),
    );
}

/// Measures bytes by kind of key, and writes per frame.
fn journey(console: &mut Terminal) {
    let (writes, before) = (measure::writes(console.pid()), console.frames);
    let mut bytes = |what: &str, keys: &[&[u8]], most: f64| frames(console, what, keys, most);
    let (down, up): (&[u8], &[u8]) = (b"j", b"k");
    bytes("cursor key", &[[down; 10], [up; 10]].concat(), 600.0);
    bytes("page", &[b"\x06"], 3_500.0);
    bytes("help", &[b"?"], 3_000.0);
    bytes("help closed", &[b"\x1b"], 6_000.0);
    bytes("filter prompt", &[b"/"], 600.0);
    bytes("filter character", &[b"b", b"o", b"t"], 1_500.0);
    bytes("filter cleared", &[b"\x1b"], 6_000.0);
    bytes("palette", &[b":"], 4_000.0);
    for key in "agent researcher".chars() {
        console.key(key.to_string().as_bytes());
    }
    let mut bytes = |what: &str, keys: &[&[u8]], most: f64| frames(console, what, keys, most);
    bytes("agent opened", &[b"\r"], 7_000.0);
    bytes("scratch", &[b"\t"], 3_500.0);
    bytes("scratch, one line", &[[down; 8], [up; 8]].concat(), 150.0);
    bytes("scratch, a page", &[b"\x06"], 3_500.0);
    bytes("back", &[b"q"], 6_000.0);
    let held = (0..30).map(|_| {
        console.send(b"j");
        console.drain(Duration::from_millis(33)).0
    });
    let held = held.sum::<usize>() as f64 / 30.0;
    figure("cursor key, held", held, "B", Some(300.0));
    console.drain(Duration::from_millis(500));
    let frames = (console.frames - before).max(1) as f64;
    let writes = measure::writes(console.pid()).saturating_sub(writes) as f64;
    figure("writes per frame, all threads", writes / frames, "", None);
}

/// Measures the cost of the frames of these keys.
fn frames(console: &mut Terminal, what: &str, keys: &[&[u8]], most: f64) {
    let bytes = keys.iter().map(|key| {
        let (now, _) = console.key(key);
        // The preview follows the cursor a moment later and counts, too.
        let (later, _) = console.drain(Duration::from_millis(150));
        (now + later) as f64
    });
    figure(what, median(bytes.collect()), "B", Some(most));
}

/// Measures the delay from key to frame while fifty files per second change.
fn load(console: &mut Terminal, memories: &[PathBuf]) {
    let enough = Arc::new(AtomicBool::new(false));
    let (stop, files) = (Arc::clone(&enough), memories.to_vec());
    let agents = thread::spawn(move || {
        for memory in files.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            note(memory);
            thread::sleep(Duration::from_millis(20));
        }
    });
    console.key(b"gg");
    let mut times = Vec::new();
    for round in 0..200 {
        console.drain(Duration::from_millis(1));
        let before = cursor(console.screen.screen());
        let key: &[u8] = if round / 10 % 2 == 0 { b"j" } else { b"k" };
        let pressed = Instant::now();
        console.send(key);
        let moved = |screen: &vt100::Screen| cursor(screen) != before;
        times.push(millis(console.until("the cursor", moved) - pressed));
        // The interval of a key repeat.
        console.drain(Duration::from_millis(5));
        thread::sleep(Duration::from_millis(20));
    }
    enough.store(true, Ordering::Relaxed);
    agents.join().expect("the agents");
    let times = sorted(times);
    let [half, most, all] = [50, 95, 99].map(|part| share(&times, part));
    let within = all <= 16.0;
    line(
        "key to frame, 50 files/s change",
        format!("p50 {half:.1} p95 {most:.1} p99 {all:.1} ms"),
        Some((within, "<= 16 ms p99")),
    );
}

/// Measures the delay from a note to its row.
fn change(console: &mut Terminal, fleet: &Path) {
    console.key(b"gg");
    console.drain(Duration::from_millis(500));
    let memory = fleet.join("agents/code-reviewer/MEMORY.md");
    let row = |screen: &vt100::Screen| {
        let text = screen.contents();
        let mut rows = text.lines().filter(|row| row.contains("code-reviewer"));
        rows.next().unwrap_or_default().to_string()
    };
    let mut times = Vec::new();
    for _ in 0..5 {
        let before = row(console.screen.screen());
        let written = Instant::now();
        note(&memory);
        let shown = console.until("the note", |screen| row(screen) != before);
        times.push(millis(shown - written));
        console.drain(Duration::from_millis(300));
    }
    figure(
        "change to row, worst of 5",
        share(&sorted(times), 100),
        "ms",
        Some(1_000.0),
    );
}

fn idle(console: &mut Terminal, seconds: u64) {
    // The next sweep reads a file once more if it changed just before it was read.
    let end = Instant::now() + SWEEP;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        console.take(left);
    }
    let before = measure::usage(console.pid());
    let (mut bytes, end) = (0, Instant::now() + Duration::from_secs(seconds));
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        bytes += console.take(left).map_or(0, |(_, count)| count);
    }
    let after = measure::usage(console.pid());
    let of_core = (after.0 - before.0) / seconds as f64 * 100.0;
    let minute = |count: f64| count * 60.0 / seconds as f64;
    // Ages whose text changes may be drawn.
    figure(
        "idle, bytes a minute",
        minute(bytes as f64),
        "B",
        Some(300.0),
    );
    line(
        "idle, of a core",
        format!("{of_core:.3} %"),
        Some((of_core <= 0.1, "<= 0.1 %")),
    );
    figure(
        "idle, switches a minute",
        minute((after.1 - before.1) as f64),
        "",
        Some(60.0),
    );
}

/// Measures other programs that show text, over the same bytes.
fn others() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("MEMORY.md");
    let memory = include_bytes!("../baselines/code-reviewer-MEMORY.md").repeat(20);
    fs::write(&text, memory).expect("a text");
    let programs: [(&str, &[&Path], &[u8]); 5] = [
        ("less", &[&text], b"q"),
        (
            "vim",
            &[Path::new("-u"), Path::new("NONE"), &text],
            b"\x1b:q!\r",
        ),
        ("tig", &[], b"Q"),
        ("htop", &[], b"q"),
        ("top", &[], b"q"),
    ];
    println!("\nother programs");
    for (name, arguments, quit) in programs {
        let installed = ["/usr/bin", "/bin", "/usr/local/bin"];
        if !installed
            .iter()
            .any(|directory| Path::new(directory).join(name).exists())
        {
            line(name, "not installed".to_string(), None);
            continue;
        }
        let mut terminal = Terminal::start(name, arguments);
        let (_, settled) = terminal.drain(Duration::from_millis(500));
        let settled = settled.map_or(f64::NAN, |at| millis(at - terminal.began));
        for _ in 0..40 {
            terminal.key(b"j");
        }
        let (mut bytes, mut times) = (Vec::new(), Vec::new());
        for round in 0..40 {
            let key: &[u8] = if round / 10 % 2 == 0 { b"j" } else { b"k" };
            let (count, time) = terminal.key(key);
            bytes.push(count as f64);
            times.extend(time.map(millis));
        }
        let (rss, _) = measure::memory(terminal.pid());
        let before = Instant::now();
        let mut idle = 0;
        while before.elapsed() < Duration::from_secs(5) {
            idle += terminal
                .take(Duration::from_millis(500))
                .map_or(0, |(_, count)| count);
        }
        let times = sorted(times);
        println!(
            "  {name:<8} settled {settled:7.1} ms   key {:5.0} B, p50 {:5.1} p95 {:5.1} ms   idle {:5} B/min   RSS {rss:5.1} MB",
            median(bytes),
            share(&times, 50),
            share(&times, 95),
            idle * 12
        );
        terminal.quit(quit);
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
