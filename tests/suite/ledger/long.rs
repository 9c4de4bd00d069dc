//! A ledger that is too long to be read by everybody.

use super::super::world::{Interposer, Moment};
use super::*;
use memory_shepherd::clock::Clock;
use memory_shepherd::engine::{LedgerRecord, Outcome, RunEvent, State, UndoMode};
use memory_shepherd::error::Error;
use memory_shepherd::transport::{FailureCause, TransportError};

/// Appends so many records of another agent, as its runs would.
pub(super) fn grow(world: &World, count: u64) {
    let records = world.records();
    let (mut seq, mut prev) = (records.len() as u64, Digest::ZERO);
    let mut text = fs::read_to_string(ledger(world)).unwrap_or_default();
    if let Some(last) = text.lines().last() {
        prev = Digest::of(last.as_bytes());
    }
    let event = r#"{"run":"0f0f0f0f","act":"reset","trigger":"timer","user":"timer","agent":"other","host":"local","outcome":"unchanged"}"#;
    let what: RunEvent = serde_json::from_str(event).unwrap();
    for _ in 0..count {
        seq += 1;
        let time = world.clock.now();
        let what = what.clone();
        let line = serde_json::to_string(&LedgerRecord {
            seq,
            previous_digest: prev,
            time,
            event: what,
        })
        .unwrap();
        prev = Digest::of(line.as_bytes());
        text.push_str(&line);
        text.push('\n');
    }
    fs::create_dir_all(world.archive().join(".shepherd")).unwrap();
    fs::write(ledger(world), text).unwrap();
}

fn index(world: &World) -> PathBuf {
    world.archive().join(".shepherd/ledger.index")
}

/// A world whose agent is behind its baseline, with a long ledger and its
/// index.
fn indexed() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    world.write_scratch("scout", "- two\n");
    world.set_baseline("scout", "# Other rules\n\n---\n");
    grow(&world, 300);
    assert!(!index(&world).exists());
    // Any append writes it, also of an agent that has no history yet.
    let mut other = world;
    other.add("ranger", "");
    other.set_baseline("ranger", super::super::world::BASELINE);
    other.write("ranger", super::super::world::BASELINE);
    let engine = other.engine();
    let plan = engine.plan_reset(&["ranger".to_string()], false).unwrap();
    super::super::world::apply(&engine, &plan).ended(Outcome::Unchanged);
    assert!(index(&other).exists());
    other
}

/// What is told of the agent: all of it comes from the ledger.
fn told(world: &World) -> (State, String, Option<String>) {
    let seen = world.observe("scout");
    assert_eq!(seen.ledger_error, None);
    (seen.state, seen.reason, seen.last_run.map(|last| last.run))
}

#[test]
fn the_index_says_the_same_as_the_ledger() {
    let world = indexed();
    let with = told(&world);
    assert_eq!(with.0, State::Scratch);
    assert!(with.1.starts_with("behind: "), "{}", with.1);
    assert!(with.2.is_some());
    fs::remove_file(index(&world)).unwrap();
    assert_eq!(told(&world), with);
    // It comes back by itself, and knows what was not asked for.
    world.write("ranger", "no boundary");
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), None);
    assert!(index(&world).exists());
    let last = told(&world).2;
    assert_eq!(last, Some(ran.report.run));
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(told(&world).1, with.1);
}

#[test]
fn what_the_index_covers_is_not_read_for_a_look_or_a_reset() {
    let world = indexed();
    let with = told(&world);
    let text = fs::read_to_string(ledger(&world)).unwrap();
    let changed = text.replacen("tester", "hacker", 1);
    fs::write(ledger(&world), &changed).unwrap();
    assert_eq!(told(&world), with);
    let ran = world.reset();
    assert_eq!(ran.of("scout").outcome, Outcome::Ok);
    // Whoever reads all of it finds the break.
    let error = super::super::world::records(&world.engine()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    finds(&world, FindingSubject::Ledger, "line 2: ");
    // Without the index everybody does.
    fs::remove_file(index(&world)).unwrap();
    assert!(world.observe("scout").ledger_error.is_some());
}

#[test]
fn a_break_behind_the_index_stops_runs() {
    let world = indexed();
    world.write_scratch("scout", "- three\n");
    for _ in 0..2 {
        world.reset();
    }
    let text = fs::read_to_string(ledger(&world)).unwrap();
    let at = text.rfind("\"unchanged\"").unwrap();
    assert!(text[at..].contains('\n'));
    let lines: Vec<&str> = text.lines().collect();
    let lost = [&lines[..lines.len() - 2], &lines[lines.len() - 1..]].concat();
    fs::write(ledger(&world), lost.join("\n") + "\n").unwrap();
    let error = world.observe("scout").ledger_error.unwrap();
    assert!(error.contains("is broken at line"), "{error}");
    world.write_scratch("scout", "- four\n");
    let ran = world.reset();
    assert_eq!(ran.of("scout").kind, Some(ErrorKind::Integrity));
    assert!(world.read("scout").ends_with(b"- four\n"));
}

#[test]
fn an_index_that_is_torn_or_of_another_ledger_is_none() {
    let world = indexed();
    let with = told(&world);
    let whole = fs::read(index(&world)).unwrap();
    let broken = |bytes: &[u8], what: &str| {
        fs::write(index(&world), bytes).unwrap();
        assert_eq!(told(&world), with, "{what}");
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
    // Of another ledger of the same length, or of one that was cut back.
    let other = indexed();
    fs::write(index(&other), &whole).unwrap();
    let theirs = told(&other).2;
    assert_ne!(theirs, with.2);
    assert_eq!(theirs, Some(other.records()[0].event.run.clone()));
    let text = fs::read_to_string(ledger(&world)).unwrap();
    fs::write(index(&world), &whole).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(ledger(&world), lines[..1].join("\n") + "\n").unwrap();
    assert_eq!(told(&world), with);
    fs::write(
        ledger(&world),
        text.replace("tester", "TESTER").lines().next().unwrap(),
    )
    .unwrap();
    assert_eq!(told(&world).2, None, "an unfinished line is no run");
    fs::remove_file(ledger(&world)).unwrap();
    assert_eq!(told(&world).2, None);
}

#[test]
fn an_index_that_cannot_be_written_stops_nothing() {
    let world = World::new(&["scout"]);
    grow(&world, 300);
    fs::create_dir_all(world.archive().join(".shepherd/ledger.index/x")).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(!world.archive().join(".shepherd/ledger.index.new").exists());
}

#[test]
fn an_entry_of_a_failed_run_is_used_again_also_when_only_the_index_knows_it() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let fails = || {
        let transport = Interposer::new(world.local(), |moment| match moment {
            Moment::Before("swap") => Err(TransportError::new(
                FailureCause::Refused,
                Error::new(ErrorKind::Host, "operation not permitted"),
            )),
            _ => Ok(()),
        });
        world
            .reset_by(&world.engine_on(transport))
            .ended(Outcome::Failed)
            .clone()
    };
    fails();
    grow(&world, 300);
    fails();
    assert!(index(&world).exists());
    fails();
    assert_eq!(world.entries("scout").len(), 1);
    world.reset().ok();
    assert_eq!(world.entries("scout").len(), 1);
}

#[test]
fn retention_reads_the_ledger_only_for_what_is_old() {
    let world = indexed();
    let broken = fs::read_to_string(ledger(&world))
        .unwrap()
        .replacen("tester", "hacker", 1);
    fs::write(ledger(&world), broken).unwrap();
    assert_eq!(world.engine().expired_entries().unwrap(), []);
    let folder = world.archive().join("scout");
    let old = folder.join("2026-01-01_0900.md");
    fs::write(&old, "x").unwrap();
    let past =
        std::time::SystemTime::from(world.clock.now()) - std::time::Duration::from_secs(60 * 86400);
    fs::File::options()
        .write(true)
        .open(&old)
        .unwrap()
        .set_modified(past)
        .unwrap();
    let error = world.engine().expired_entries().unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Integrity,
        "what an undo needs is not guessed"
    );
}
