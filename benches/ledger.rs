//! The ledger of a year: its size, and what it costs a run that starts cold.
//!
//! A hundred agents are reset eight times a day for 365 days, by the program's own engine on a
//! clock of its own. In the realistic mix 30 % of the agents have notes in each run and 1 % have
//! drifted; the other 69 % are unchanged. In the worst case all of them have notes. Memories and
//! baselines differ from agent to agent. It prints the size of the ledger (below 20 MB for the
//! realistic mix), and the time of a `reset` of one agent by the program with that ledger beside
//! the same with an empty one (at most 2 ms more).
//!
//! `cargo bench --bench ledger`; `-- DAYS` simulates fewer days. The fleets are in main memory
//! where possible. Retention is turned off: the simulation does not wait for it to read the ledger.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/bench_engine.rs"]
mod bench_engine;
#[allow(dead_code, reason = "shared with other benchmarks")]
#[path = "../tests/support/bench_fleet.rs"]
mod bench_fleet;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, TimeDelta};
use memory_shepherd::base::clock::{Clock, SystemClock};

use self::bench_engine::engine_of;
use self::bench_fleet::{Fleet, median, millis, ratio};

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");

const AGENTS: usize = 100;
const DAYS: usize = 365;
const RUNS_PER_DAY: usize = 8;

/// Rounds of the comparison of cold runs.
const ROUNDS: usize = 41;

fn main() {
    let days = std::env::args().filter_map(|word| word.parse().ok()).next();
    let days: usize = days.unwrap_or(DAYS);
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        Path::new(env!("CARGO_TARGET_TMPDIR"))
    };
    let directory = tempfile::Builder::new()
        .prefix("ledger-bench")
        .tempdir_in(place)
        .expect("a directory");
    let root = directory.path().canonicalize().expect("its path");
    let real = simulate(&root, "realistic", &RealisticMix::default(), days);
    compare_cold_runs(&root, &real);
    drop(real);
    simulate(&root, "all changed", &AllChanged, days);
}

/// What the agents do before each run.
trait Mix {
    /// Returns what an agent does before a run.
    fn activity(&self) -> Activity;
}

enum Activity {
    None,
    Notes,
    Drift,
}

/// Chooses by a fixed sequence of random numbers.
struct RealisticMix(Mutex<u64>);

impl Default for RealisticMix {
    fn default() -> RealisticMix {
        RealisticMix(Mutex::new(0x9e37_79b9_7f4a_7c15))
    }
}

impl Mix for RealisticMix {
    fn activity(&self) -> Activity {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        match *state % 100 {
            0 => Activity::Drift,
            1..=30 => Activity::Notes,
            _ => Activity::None,
        }
    }
}

struct AllChanged;

impl Mix for AllChanged {
    fn activity(&self) -> Activity {
        Activity::Notes
    }
}

/// A clock that the simulation advances.
struct SimulatedClock(Mutex<DateTime<FixedOffset>>);

impl Clock for SimulatedClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let mut now = self.0.lock().unwrap();
        // Two records of a run have different times.
        *now += TimeDelta::nanoseconds(1_234_567);
        *now
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration);
    }
}

/// A fleet whose year is over.
struct SimulatedYear {
    fleet: Fleet,
}

impl SimulatedYear {
    fn program_directory(&self) -> PathBuf {
        self.fleet.root.join("archives/.shepherd")
    }
}

fn new_fleet(root: PathBuf) -> Fleet {
    let agents = (0..AGENTS).map(|number| format!("agent-{number:03}"));
    let lines = |_: &Fleet, agent: &str| format!("memory_file = agents/{agent}/MEMORY.md\n");
    let general = "archive_retention_days = 3650\n";
    let fleet = Fleet::create(root, general, agents.collect(), lines);
    for agent in &fleet.agents {
        fs::write(fleet.baseline(agent), baseline_of(&fleet, agent)).unwrap();
        fs::write(fleet.memory(agent), baseline_of(&fleet, agent)).unwrap();
    }
    fleet
}

fn baseline_of(fleet: &Fleet, agent: &str) -> String {
    format!("# {agent}\n\n{}", fleet.baseline)
}

fn simulate(root: &Path, name: &str, mix: &dyn Mix, days: usize) -> SimulatedYear {
    let fleet = new_fleet(root.join(name.replace(' ', "-")));
    let begin = DateTime::parse_from_rfc3339("2026-01-01T00:00:00+01:00").unwrap();
    let clock = Arc::new(SimulatedClock(Mutex::new(begin)));
    let began = Instant::now();
    let mut compactions = Vec::new();
    for run in 0..days * RUNS_PER_DAY {
        let hours = (run * 24 / RUNS_PER_DAY) as i64;
        *clock.0.lock().unwrap() = begin + TimeDelta::hours(hours);
        for agent in &fleet.agents {
            let baseline = || baseline_of(&fleet, agent);
            let memory = match mix.activity() {
                Activity::None => continue,
                Activity::Notes => format!("{}- note {run} of {agent}\n", baseline()),
                Activity::Drift => baseline().replacen("be brief", &format!("be {run}"), 3),
            };
            fs::write(fleet.memory(agent), memory).unwrap();
        }
        // A process for each run, as a timer starts it.
        let engine = engine_of(&fleet, clock.clone());
        let plan = engine.planner().plan_reset(&fleet.agents, false).unwrap();
        let mut last_line = Instant::now();
        let report =
            engine
                .runs()
                .apply_plan(&plan, true, &AtomicBool::new(false), &mut |progress| {
                    if format!("{progress:?}").contains("Moved the records") {
                        compactions.push(last_line.elapsed());
                    }
                    last_line = Instant::now();
                });
        assert_eq!(report.worst_kind(), None, "{:?}", report.errors);
    }
    let year = SimulatedYear { fleet };
    print_sizes(&year, name, days, began.elapsed(), compactions);
    year
}

fn print_sizes(
    year: &SimulatedYear,
    name: &str,
    days: usize,
    took: Duration,
    compactions: Vec<Duration>,
) {
    let (mut segments, mut compressed, mut active, mut index) = (0, 0, 0, 0);
    let mut longest_name = String::new();
    for item in fs::read_dir(year.program_directory()).unwrap() {
        let item = item.unwrap();
        let (file, bytes) = (item.file_name(), item.metadata().unwrap().len());
        match file.to_str().unwrap() {
            "ledger.jsonl" => active = bytes,
            "ledger.index" => index = bytes,
            name if name.ends_with(".jsonl.gz") => {
                (segments, compressed) = (segments + 1, compressed + bytes);
                longest_name = longest_name.max(name.to_string());
            }
            _ => {}
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let engine = engine_of(&year.fleet, clock);
    let (seq, _) = engine.ledger().head().unwrap();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{name}: {AGENTS} agents, {RUNS_PER_DAY} runs a day, {days} days (simulated in {:.0} s): \
         {seq} records; ledger {:.2} MB: {segments} segments {:.2} MB (last {longest_name}), \
         ledger.jsonl {:.2} MB; index {:.2} MB",
        took.as_secs_f64(),
        megabytes(compressed + active),
        megabytes(compressed),
        megabytes(active),
        megabytes(index)
    );
    if !compactions.is_empty() {
        println!(
            "  a run with compaction takes {:.0} ms more ({} runs), after its results are known",
            millis(median(compactions.clone())),
            compactions.len()
        );
    }
    let began = Instant::now();
    let found = engine
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    let about = found.findings.iter().take(3).collect::<Vec<_>>();
    println!(
        "  verify reads all of it, and {} entries, in {:.1} s: {} findings {about:?}",
        found.counts.entries,
        began.elapsed().as_secs_f64(),
        found.findings.len()
    );
}

/// Compares a cold reset of one agent with a year's ledger, and with an empty one. Entries of a year
/// are in neither archive: listing them does not count as a cost of the ledger.
fn compare_cold_runs(root: &Path, year: &SimulatedYear) {
    let empty = new_fleet(root.join("empty"));
    let full = new_fleet(root.join("full"));
    let own = full.root.join("archives/.shepherd");
    fs::create_dir_all(&own).unwrap();
    for item in fs::read_dir(year.program_directory()).unwrap() {
        let item = item.unwrap();
        if item.metadata().unwrap().is_file() {
            fs::copy(item.path(), own.join(item.file_name())).unwrap();
        }
    }
    let agent = empty.agents[0].clone();
    let reset = |fleet: &Fleet, note: usize| {
        let memory = format!("{}- cold {note}\n", baseline_of(fleet, &agent));
        fs::write(fleet.memory(&agent), memory).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["reset", &agent, "-q", "--config"]);
        command.arg(fleet.config_path()).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        let status = command.status().expect("the program");
        let took = began.elapsed();
        assert!(status.success(), "the program failed");
        took
    };
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        // The first round makes directories.
        let round_times = [reset(&empty, round), reset(&full, round)];
        if round > 0 {
            for (times, time) in times.iter_mut().zip(round_times) {
                times.push(time);
            }
        }
    }
    let [empty, full] = times.map(median);
    println!(
        "cold reset of one agent: {:.2} ms with the realistic ledger, {:.2} ms with an empty one: \
         {:.2} ms more (at most 2), {:.2} times it",
        millis(full),
        millis(empty),
        millis(full) - millis(empty),
        ratio(full, empty)
    );
}
