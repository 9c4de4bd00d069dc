//! The ledger: findings of `verify`, records of retention, and reads of a long ledger.

mod archive_identity;
mod attributes;
mod clock_steps;
mod full_disk;
mod long_ledger;
mod pins;
mod random_archives;
mod retention;
mod retention_overview;
mod run_history;
mod segment_damage;
mod segments;
mod timeline;
mod torn_appends;
mod unchanged;
mod unused_versions;
mod verification;
mod versions;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Engine, FindingSubject, Outcome, Verification};

use super::world::World;

fn ledger_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/ledger.jsonl")
}

/// A world with three runs of two agents, each with an entry.
fn world_with_three_runs() -> World {
    let world = World::new(&["ranger", "scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("ranger", note);
        world.write_scratch("scout", note);
        assert_eq!(world.reset().report.worst_kind(), None);
    }
    world
}

fn verify(engine: &Engine, anchor: Option<(u64, Digest)>) -> Verification {
    engine
        .verifier()
        .verify(anchor, &AtomicBool::new(false), &mut |_| {})
        .unwrap()
}

/// Returns the findings as text.
fn findings(world: &World) -> Vec<(FindingSubject, ErrorKind, String)> {
    let found = verify(&world.engine(), None);
    let findings = found.findings.into_iter();
    findings
        .map(|it| (it.subject, it.kind, it.message))
        .collect()
}

#[track_caller]
fn assert_single_finding(world: &World, about: FindingSubject, words: &str) {
    let found = findings(world);
    let [(what, ErrorKind::Integrity, text)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!((*what, text.contains(words)), (about, true), "{text}");
}
