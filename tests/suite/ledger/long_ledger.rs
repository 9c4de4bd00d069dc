//! A ledger that is too long for every command to read as a whole.

use super::super::world::{InterposingTransport, TransportCall};
use super::*;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::error::Error;
use memory_shepherd::engine::{LedgerRecord, Outcome, RunEvent, State, UndoMode};
use memory_shepherd::transport::{FailureCause, TransportError};

/// Appends that many records of another agent, as its runs would.
pub(super) fn append_records(world: &World, count: u64) {
    append_records_with_note(world, count, None);
}

/// Does the same; each record has this note.
pub(super) fn append_records_with_note(world: &World, count: u64, note: Option<String>) {
    let records = world.read_records();
    let (mut seq, mut prev) = (records.len() as u64, Digest::ZERO);
    let mut text = fs::read_to_string(ledger_path(world)).unwrap_or_default();
    if let Some(last) = text.lines().last() {
        prev = Digest::of(last.as_bytes());
    }
    let event = r#"{"run":"0f0f0f0f","act":"reset","trigger":"timer","user":"timer","agent":"other","host":"local","outcome":"unchanged"}"#;
    let mut what: RunEvent = serde_json::from_str(event).unwrap();
    what.note = note;
    for _ in 0..count {
        seq += 1;
        let time = world.clock.now();
        let what = what.clone();
        let line = serde_json::to_string(&LedgerRecord {
            seq,
            previous_digest: prev,
            time,
            boot: None,
            event: what,
        })
        .unwrap();
        prev = Digest::of(line.as_bytes());
        text.push_str(&line);
        text.push('\n');
    }
    fs::create_dir_all(world.archive_directory().join(".shepherd")).unwrap();
    fs::write(ledger_path(world), text).unwrap();
}

fn index_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/ledger.index")
}

/// A world whose agent is behind its baseline, with a long ledger and its index.
fn world_with_index() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    world.write_scratch("scout", "- two\n");
    world.set_baseline("scout", "# Other rules\n\n---\n");
    append_records(&world, 300);
    assert!(!index_path(&world).exists());
    // Every append writes the index, also for an agent without history.
    let mut other = world;
    other.add_agent("ranger", "");
    other.set_baseline("ranger", super::super::world::BASELINE);
    other.write_memory("ranger", super::super::world::BASELINE);
    let engine = other.engine();
    let plan = engine
        .planner()
        .plan_reset(&["ranger".to_string()], false)
        .unwrap();
    super::super::world::apply_plan(&engine, &plan).assert_outcome(Outcome::Unchanged);
    assert!(index_path(&other).exists());
    other
}

/// Returns what the program reports about the agent: all of it comes from the ledger.
fn observed_ledger_facts(world: &World) -> (State, String, Option<String>) {
    let seen = world.observe("scout");
    assert_eq!(seen.ledger_error, None);
    (seen.state, seen.reason, seen.last_run.map(|last| last.run))
}

#[test]
fn index_agrees_with_ledger() {
    let world = world_with_index();
    let with = observed_ledger_facts(&world);
    assert_eq!(with.0, State::Behind);
    assert!(with.1.starts_with("behind by "), "{}", with.1);
    assert!(with.2.is_some());
    fs::remove_file(index_path(&world)).unwrap();
    assert_eq!(observed_ledger_facts(&world), with);
    // The index rebuilds itself, with the same content.
    world.write_memory("ranger", "no boundary");
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), None);
    assert!(index_path(&world).exists());
    let last = observed_ledger_facts(&world).2;
    assert_eq!(last, Some(ran.report.run));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(observed_ledger_facts(&world).1, with.1);
}

#[test]
fn observe_and_reset_skip_indexed_records() {
    let world = world_with_index();
    let with = observed_ledger_facts(&world);
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let changed = text.replacen("tester", "hacker", 1);
    fs::write(ledger_path(&world), &changed).unwrap();
    assert_eq!(observed_ledger_facts(&world), with);
    let ran = world.reset();
    assert_eq!(ran.result_of("scout").outcome, Outcome::Ok);
    // A complete read finds the break.
    let error = super::super::world::records(&world.engine()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert_single_finding(&world, FindingSubject::Ledger, "line 2: ");
    // Without the index every command reads the whole ledger.
    fs::remove_file(index_path(&world)).unwrap();
    assert!(world.observe("scout").ledger_error.is_some());
}

#[test]
fn break_after_indexed_records_refuses_resets() {
    let world = world_with_index();
    world.write_scratch("scout", "- three\n");
    for _ in 0..2 {
        world.reset();
    }
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let at = text.rfind("\"unchanged\"").unwrap();
    assert!(text[at..].contains('\n'));
    let lines: Vec<&str> = text.lines().collect();
    let lost = [&lines[..lines.len() - 2], &lines[lines.len() - 1..]].concat();
    fs::write(ledger_path(&world), lost.join("\n") + "\n").unwrap();
    let error = world.observe("scout").ledger_error.unwrap();
    assert!(error.contains("is broken at line"), "{error}");
    world.write_scratch("scout", "- four\n");
    let ran = world.reset();
    assert_eq!(ran.result_of("scout").kind, Some(ErrorKind::Integrity));
    assert!(world.read_memory("scout").ends_with(b"- four\n"));
}

#[test]
fn torn_or_foreign_index_is_ignored() {
    let world = world_with_index();
    let with = observed_ledger_facts(&world);
    let whole = fs::read(index_path(&world)).unwrap();
    let broken = |bytes: &[u8], what: &str| {
        fs::write(index_path(&world), bytes).unwrap();
        assert_eq!(observed_ledger_facts(&world), with, "{what}");
    };
    for cut in (0..whole.len()).step_by(7) {
        broken(&whole[..cut], &format!("cut at {cut}"));
        let mut bytes = whole.clone();
        bytes[cut] ^= 1;
        broken(&bytes, &format!("changed at {cut}"));
        bytes[cut..].fill(0);
        broken(&bytes, &format!("zeros from {cut}"));
    }
    broken(b"\n\n\n", "empty lines");
    // The index of another ledger of the same length, or of one that was cut back.
    let other = world_with_index();
    fs::write(index_path(&other), &whole).unwrap();
    let theirs = observed_ledger_facts(&other).2;
    assert_ne!(theirs, with.2);
    assert_eq!(theirs, Some(other.read_records()[0].event.run.clone()));
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    fs::write(index_path(&world), &whole).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(ledger_path(&world), lines[..1].join("\n") + "\n").unwrap();
    assert_eq!(observed_ledger_facts(&world), with);
    fs::write(
        ledger_path(&world),
        text.replace("tester", "TESTER").lines().next().unwrap(),
    )
    .unwrap();
    assert_eq!(
        observed_ledger_facts(&world).2,
        None,
        "an unfinished line counts as a run"
    );
    fs::remove_file(ledger_path(&world)).unwrap();
    assert_eq!(observed_ledger_facts(&world).2, None);
}

#[test]
fn unwritable_index_does_not_fail_runs() {
    let world = World::new(&["scout"]);
    append_records(&world, 300);
    fs::create_dir_all(world.archive_directory().join(".shepherd/ledger.index/x")).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(
        !world
            .archive_directory()
            .join(".shepherd/ledger.index.new")
            .exists()
    );
}

#[test]
fn indexed_entry_of_failed_run_is_reused() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let fails = || {
        let transport = InterposingTransport::new(world.disk(), |moment| match moment {
            TransportCall::Before("swap") => Err(TransportError::new(
                FailureCause::Refused,
                Error::new(ErrorKind::Host, "operation not permitted"),
            )),
            _ => Ok(()),
        });
        world
            .reset_with_engine(&world.engine_with_transport(transport))
            .assert_outcome(Outcome::Failed)
            .clone()
    };
    fails();
    append_records(&world, 300);
    fails();
    assert!(index_path(&world).exists());
    fails();
    assert_eq!(world.entry_names("scout").len(), 1);
    world.reset().assert_ok();
    assert_eq!(world.entry_names("scout").len(), 1);
}

#[test]
fn retention_reads_ledger_only_for_old_entries() {
    let world = world_with_index();
    let broken = fs::read_to_string(ledger_path(&world))
        .unwrap()
        .replacen("tester", "hacker", 1);
    fs::write(ledger_path(&world), broken).unwrap();
    assert_eq!(world.engine().retention().expired_entries().unwrap(), []);
    let directory = world.archive_directory().join("scout");
    let old = directory.join("2026-01-01_0900.md");
    fs::write(&old, "x").unwrap();
    let past =
        std::time::SystemTime::from(world.clock.now()) - std::time::Duration::from_secs(60 * 86400);
    fs::File::options()
        .write(true)
        .open(&old)
        .unwrap()
        .set_modified(past)
        .unwrap();
    let error = world.engine().retention().expired_entries().unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Integrity,
        "the undo guessed a missing record"
    );
}
