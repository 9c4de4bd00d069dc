//! Figures of fleets of 100, 1,000 and 10,000 agents, each beside its growth and its budget, measured
//! on the real program in a pseudo-terminal or as a process:
//!
//! - `keys`: from key to frame, at rest, during the first sweep, with 500 notes a second, with a
//!   filter, with each sort order, and while a filter is typed;
//! - `start`: from exec to the first useful frame and to the whole fleet;
//! - `idle`: threads, memory and processor time of a console on 5, 50 and 500 quiet hosts;
//! - `commands`: `status` and `reset --all`, of local agents and of those on hosts;
//! - `files`: a cold reset of one agent, and the files of the archive.
//!
//! `cargo bench --bench scale`; one section with its word, such as `-- keys`. `SIZES=100,1000` measures
//! these sizes, `SECONDS=10` shortens the idle minute, `PROGRAM=FILE` measures another build of the
//! program. Twenty agents are on each host, fifty baselines are shared by all agents; the fleets are in
//! main memory where possible. A host is an `ssh` that becomes OpenSSH's `sftp-server`, so that
//! encryption counts for nothing.

#![allow(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a harness may stop and speak"
)]

#[path = "../../tests/support/bench_engine.rs"]
mod bench_engine;
#[path = "../../tests/support/bench_fleet.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_fleet;
#[path = "../../tests/support/bench_terminal.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_terminal;
mod commands;
#[path = "../../tests/support/cost.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod cost;
mod files;
mod idle;
mod keys;
#[path = "../../tests/support/measure.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod measure;
#[path = "../../tests/support/sftp_hosts.rs"]
mod sftp_hosts;
#[path = "../../tests/support/skip.rs"]
mod skip;
mod start;
mod table;

use std::ffi::OsString;
use std::path::Path;

use tempfile::TempDir;

use self::bench_fleet::Fleet;
use self::bench_terminal::Terminal;
use self::table::Table;

/// Number of baselines that the agents of a fleet share.
const ROLES: usize = 50;

/// Number of agents on each host.
const AGENTS_PER_HOST: usize = 20;

/// Measures one section of one size. None where a tool is missing.
type Section = fn(&mut Table, usize) -> Option<()>;

fn main() {
    let sections: [(&str, Section); 5] = [
        ("keys", keys::measure),
        ("start", start::measure),
        ("idle", idle::measure),
        ("commands", commands::measure),
        ("files", files::measure),
    ];
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = asked.iter().filter(|it| !it.starts_with('-')).collect();
    for (title, section) in sections {
        if !words.is_empty() && !words.iter().any(|word| *word == title) {
            continue;
        }
        let mut table = Table::new(title, sizes());
        for size in sizes() {
            if section(&mut table, size).is_none() {
                break;
            }
        }
        table.print();
    }
}

fn sizes() -> Vec<usize> {
    let asked = std::env::var("SIZES").unwrap_or_default();
    let sizes: Vec<usize> = asked.split(',').filter_map(|it| it.parse().ok()).collect();
    if sizes.is_empty() {
        vec![100, 1_000, 10_000]
    } else {
        sizes
    }
}

/// Returns the program to measure.
fn program() -> OsString {
    std::env::var_os("PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_memory-shepherd").into())
}

/// Creates a directory in main memory where possible.
fn new_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        Path::new(env!("CARGO_TARGET_TMPDIR"))
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix("scale-bench").tempdir_in(place).unwrap()
}

/// Creates a fleet of local agents in the states of a fleet at work.
fn local_fleet(directory: &TempDir, agents: usize) -> Fleet {
    let root = directory.path().canonicalize().unwrap().join("fleet");
    let fleet = Fleet::local_with_roles(root, agents, ROLES);
    fleet.set_working_states();
    fleet
}

/// Starts a console on a fleet.
fn start_console(fleet: &Fleet, search_path: &OsString) -> Terminal {
    let program = program().into_string().expect("a path in UTF-8");
    let config = fleet.config_path();
    Terminal::start_in(&program, &[Path::new("--config"), &config], search_path)
}

fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// Whether a screen of the fleet shows agents.
fn shows_agents(screen: &vt100::Screen) -> bool {
    bench_terminal::cursor(screen).is_some()
}

/// Whether a screen of the fleet shows what is so now, for all agents.
fn is_live(screen: &vt100::Screen) -> bool {
    let text = screen.contents();
    let line = text.lines().next().unwrap_or_default().trim_end();
    line.ends_with("live")
}
