//! Invariants for every byte string that the program reads and does not control.
//!
//! Each target takes one input and panics where a promise is broken. `fuzz/` feeds the
//! targets from libFuzzer, `tests/suite/fuzz.rs` from seeds and a few edits of them.
//! [`SPLIT`] separates the parts of an input.

mod boundary;
mod config;
mod entry;
mod ledger;
mod lint;
mod reset;
mod seal;
mod sftp;
mod untrusted;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fake_transport::FakeTransport;
use chrono::{DateTime, FixedOffset, TimeZone};
use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config::{Config, ConfigEnvironment, ConfigErrors};
use memory_shepherd::engine::{Engine, EngineSetup, Trigger};
use memory_shepherd::transport::SingleTransport;
use tempfile::TempDir;

pub use boundary::boundary;
pub use config::config;
pub use entry::entry;
pub use ledger::{ledger, valid_ledger, valid_segment};
pub use lint::lint_text;
pub use reset::reset;
pub use seal::seal;
pub use sftp::sftp;
pub use untrusted::untrusted;

/// The separator between the parts of an input: the record separator of ASCII.
pub const PART_SEPARATOR: u8 = 0x1E;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("config", config),
    ("boundary", boundary),
    ("entry", entry),
    ("ledger", ledger),
    ("seal", seal),
    ("untrusted", untrusted),
    ("lint", lint_text),
    ("reset", reset),
    ("sftp", sftp),
];

/// Returns the part of that number; empty where the input has fewer parts.
fn input_part(bytes: &[u8], number: usize) -> &[u8] {
    let mut parts = bytes.split(|byte| *byte == PART_SEPARATOR);
    parts.nth(number).unwrap_or_default()
}

/// A temporary directory, in memory where the machine has such a file system.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    };
    made.unwrap()
}

const CONFIG: &str = "/etc/fleet/memory-shepherd.conf";

fn parse_config(text: &[u8]) -> Result<Config, ConfigErrors> {
    let env = ConfigEnvironment {
        home: Some(PathBuf::from("/home/operator")),
        uid: 1000,
        ..ConfigEnvironment::bare("/")
    };
    memory_shepherd::config::parse(text, Path::new(CONFIG), &env)
}

/// Returns a whole minute of the years from 1970 to 9999.
fn time_of_minute(number: u32) -> DateTime<FixedOffset> {
    let zone = FixedOffset::east_opt(3600).unwrap();
    let minutes = i64::from(number) % (8029 * 365 * 24 * 60);
    zone.timestamp_opt(minutes * 60, 0).unwrap()
}

fn engine_with_config(config: &str, transport: FakeTransport) -> Engine {
    Engine::new(EngineSetup {
        config: parse_config(config.as_bytes()).unwrap(),
        clock: Arc::new(SystemClock),
        transports: Arc::new(SingleTransport(Arc::new(transport))),
        user: "operator".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
        layouts: Default::default(),
    })
}
