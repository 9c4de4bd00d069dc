//! A reset and its undo.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::fake_transport::FakeTransport;
use memory_shepherd::archive::{self, EntryKind};
use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::boundary::Baseline;
use memory_shepherd::engine::{Engine, Outcome, Plan, RunReport, UndoMode, UndoTarget};

use super::{directory, engine_with_config, input_part};

const SCOUT_MEMORY: &str = "/agents/scout/MEMORY.md";

/// Fuzzes a whole reset and its undo, on memories in this process and an archive on the
/// disk. Parts: the baseline that is pushed first; the operator's edited baseline (`=`:
/// the same); the memory, as in [`super::boundary`], where `<` refers to the first
/// baseline; a transaction record, if not empty.
pub fn reset(bytes: &[u8]) {
    let site = directory();
    let baseline = |bytes: &[u8]| {
        fs::create_dir_all(site.path().join("baselines")).unwrap();
        fs::write(site.path().join("baselines/scout.md"), bytes).unwrap();
    };
    let first = Baseline::new(input_part(bytes, 0).to_vec(), "---");
    let second = match input_part(bytes, 1) {
        b"=" => first.clone(),
        bytes => Baseline::new(bytes.to_vec(), "---"),
    };
    let notes = input_part(bytes, 2);
    let memory = match notes {
        [b'=', rest @ ..] => [second.operator_part(), rest].concat(),
        [b'<', rest @ ..] => [first.operator_part(), rest].concat(),
        bytes => bytes.to_vec(),
    };
    let fake = FakeTransport::new(Arc::new(SystemClock));
    let engine = engine_with_scout(site.path(), &fake);
    let plan = || {
        engine
            .planner()
            .plan_reset(&["scout".to_string()], false)
            .unwrap()
    };

    baseline(first.bytes());
    assert_success(&apply_plan(&engine, &plan()));
    assert_eq!(fake.content(SCOUT_MEMORY).unwrap(), first.bytes());

    fake.write_file(SCOUT_MEMORY, &memory);
    baseline(second.bytes());
    let record = input_part(bytes, 3);
    if !record.is_empty() {
        let directory = site.path().join("archives/.shepherd/tx");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("scout.0123456789abcdef.json"), record).unwrap();
    }
    let report = apply_plan(&engine, &plan());
    let held = fake.content(SCOUT_MEMORY);
    let kept = [&first, &second].map(Baseline::operator_part);
    assert_memory_is_kept(&report, held.as_deref(), &memory, kept, site.path());
    engine
        .observer()
        .read_detail(engine.agent("scout").unwrap());
    if !record.is_empty() {
        return;
    }
    assert_success(&report);
    if second.equals_apart_from_line_ends(&memory) {
        assert_eq!(report.results[0].outcome, Outcome::Unchanged);
        assert_eq!(held.unwrap(), memory);
        return;
    }
    assert_eq!(held.unwrap(), second.bytes());
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let undo = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert_success(&apply_plan(&engine, &undo));
    assert_eq!(fake.content(SCOUT_MEMORY).unwrap(), memory);
    assert_eq!(fake.list_names("/agents/scout"), ["MEMORY.md"]);
    assert_eq!(engine.ledger().head().unwrap().0, 3);
}

fn engine_with_scout(root: &Path, fake: &FakeTransport) -> Engine {
    let root = root.display();
    let config = format!(
        "[general]\narchive_dir={root}/archives\nbaseline_dir={root}/baselines\n\
         min_baseline_size=0\n[scout]\nmemory_file={SCOUT_MEMORY}\nbaseline=scout.md\n"
    );
    fake.make_directory("/agents/scout", 1000, 1000, 0o755);
    engine_with_config(&config, fake.clone())
}

/// Asserts that no byte of `memory` is lost: it is still `held`, is one of the operator's
/// `parts`, or is in an entry, whole or without one of the parts.
fn assert_memory_is_kept(
    report: &RunReport,
    held: Option<&[u8]>,
    memory: &[u8],
    parts: [&[u8]; 2],
    root: &Path,
) {
    let mut is_kept = held == Some(memory) || parts.contains(&memory);
    for entry in report.results.iter().flat_map(|result| &result.entries) {
        let bytes = fs::read(root.join("archives").join(&entry.path)).unwrap();
        assert_eq!(
            (Digest::of(&bytes), bytes.len() as u64),
            (entry.digest, entry.size)
        );
        is_kept |= match entry.kind {
            EntryKind::Scratch => {
                let scratch = archive::strip_scratch_header(&bytes).unwrap();
                parts.iter().any(|part| [part, scratch].concat() == memory)
            }
            _ => bytes == memory,
        };
    }
    assert!(is_kept, "{report:?}");
}

fn apply_plan(engine: &Engine, plan: &Plan) -> RunReport {
    engine
        .runs()
        .apply_plan(plan, true, &AtomicBool::new(false), &mut |_| {})
}

fn assert_success(report: &RunReport) {
    assert_eq!(report.worst_kind(), None, "{report:?}");
    let good = |outcome| matches!(outcome, Outcome::Ok | Outcome::Unchanged);
    assert!(report.results.iter().all(|result| good(result.outcome)));
    assert_eq!(report.results.len(), 1);
}
