//! Costs against those of a recorded build, so that no change makes the program slower unnoticed.
//!
//! `benches/recorded-build` names the commit. It is compiled once, below `target/recorded`, as a
//! release is. Both programs then do the same work in turns, each with files of its own on the same
//! disk:
//!
//! - reset 200 agents with baselines of 12 KB and 40 notes each;
//! - reset one of them in a process of its own, as a timer does;
//! - show the states of 1,000 agents;
//! - search all entries that the resets archived.
//!
//! Each figure is the median of several rounds. The bench fails where this build needs clearly more
//! processor time: a change that is worth that records a new build, and says so.
//!
//! `cargo bench --bench recorded`, or `-- COMMIT` for another one.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/bench_fleet.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_fleet;
#[path = "../tests/support/cost.rs"]
#[allow(unsafe_code, dead_code, reason = "shared with other benchmarks")]
mod cost;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use self::bench_fleet::{Fleet, median, millis, ratio};
use self::cost::Cost;

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");
const ROUNDS: usize = 9;

/// How many times the recorded build's processor time is too much: more than the noise of a shared
/// machine.
const MAX_RATIO: f64 = 1.15;

fn main() -> ExitCode {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    let recorded = fs::read_to_string("benches/recorded-build").expect("the recorded commit");
    let commit = words.next().unwrap_or_else(|| recorded.trim().to_string());
    let recorded = build(&commit);
    let directory = tempfile::Builder::new()
        .prefix("recorded-bench")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a directory");
    println!("this build against {commit}: wall, then processor time");
    let sides = |name: &str, agents: usize| {
        let side = |program: &Path, side: &str| Side {
            program: program.to_path_buf(),
            fleet: Fleet::local(directory.path().join(format!("{name}-{side}")), agents),
        };
        [side(Path::new(BINARY), "this"), side(&recorded, "recorded")]
    };
    let many = sides("states", 1000);
    many.iter().for_each(|it| it.fleet.set_working_states());
    let fleets = sides("fleet", 200);
    let one = fleets[0].fleet.agents[7].clone();
    let slower = [
        compare("reset of 200 agents", &fleets, &["reset", "--all", "-q"]),
        compare("reset of one agent", &fleets, &["reset", &one, "-q"]),
        compare("states of 1,000 agents", &many, &["status"]),
        compare(
            "search of the entries",
            &fleets,
            &["archive", "search", "happened"],
        ),
    ];
    if slower.contains(&true) {
        println!("slower than {MAX_RATIO} times {commit}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A program with a fleet of its own.
struct Side {
    program: PathBuf,
    fleet: Fleet,
}

/// Compiles a commit of this repository, unless that was done, and returns its program.
fn build(commit: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .with_file_name("recorded")
        .join(commit);
    let program = sources.join("target/release/memory-shepherd");
    if !program.exists() {
        println!("compiling {commit}, once");
        fs::create_dir_all(&sources).expect("a directory");
        let mut archive = Command::new("git")
            .args(["archive", commit])
            .stdout(Stdio::piped())
            .spawn()
            .expect("git");
        let mut unpack = Command::new("tar");
        unpack.arg("-xC").arg(&sources);
        unpack.stdin(archive.stdout.take().expect("its output"));
        let is_unpacked = unpack.status().expect("tar").success();
        assert!(archive.wait().expect("git").success() && is_unpacked);
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--release", "--locked", "--target-dir", "target"]);
        cargo.current_dir(&sources).env_remove("CARGO_TARGET_DIR");
        assert!(cargo.status().expect("cargo").success());
    }
    program
}

/// Runs a command of both programs in turns, and returns whether this build's is too slow.
fn compare(title: &str, sides: &[Side; 2], arguments: &[&str]) -> bool {
    let mut walls = [const { Vec::new() }; 2];
    let mut processors = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        // Each is the first in every other round.
        for place in [round % 2, (round + 1) % 2] {
            let Side { program, fleet } = &sides[place];
            if arguments[0] == "reset" {
                fleet.scribble();
            }
            let mut command = Command::new(program);
            command
                .args(arguments)
                .arg("--config")
                .arg(fleet.config_path())
                .stderr(Stdio::null());
            let cost = Cost::of(&mut command);
            // The first round makes directories, versions and the index.
            if round > 0 {
                walls[place].push(cost.wall);
                processors[place].push(cost.processor);
            }
        }
    }
    let [ours, recorded] = walls.map(median);
    let [our_processor, recorded_processor] = processors.map(median);
    println!(
        "{title:24} {:7.1} ms, {:.2} times {:7.1} ms; {:7.1} ms, {:.2} times {:7.1} ms",
        millis(ours),
        ratio(ours, recorded),
        millis(recorded),
        millis(our_processor),
        ratio(our_processor, recorded_processor),
        millis(recorded_processor),
    );
    ratio(our_processor, recorded_processor) > MAX_RATIO
}
