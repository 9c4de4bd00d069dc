//! Memory addresses in ledger records: an undo writes only to the memory that its
//! record names.

use std::fs;

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Outcome, UndoMode};

use super::world::World;

/// Two configs that share an archive and an agent name, each with its own memory.
fn two_configs() -> [World; 2] {
    let one = World::new(&["scout"]);
    let line = format!("archive_dir = {}", one.archive_directory().display());
    let other = World::new(&["scout"]).with_general(&line);
    [one, other]
}

#[test]
fn undo_into_other_memory_is_refused() {
    let [one, other] = two_configs();
    one.write_scratch("scout", "- of one\n");
    one.reset().assert_ok();
    other.write_scratch("scout", "- of the other\n");
    let before = other.read_memory("scout");
    let ran = other.undo("scout", UndoMode::Overwrite);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    let memory = one.memory_path("scout");
    assert!(
        ran.note().contains(memory.to_str().unwrap()),
        "{}",
        ran.note()
    );
    assert_eq!(other.read_memory("scout"), before);
    one.undo("scout", UndoMode::Refuse).assert_ok();
}

#[test]
fn undo_skips_runs_on_other_memory() {
    let [one, other] = two_configs();
    for world in [&one, &other, &one] {
        world.write_scratch("scout", format!("- {}\n", world.root.display()));
        world.reset().assert_ok();
    }
    other.undo("scout", UndoMode::Refuse).assert_ok();
    let note = format!("- {}\n", other.root.display());
    assert!(other.read_memory("scout").ends_with(note.as_bytes()));
    one.undo("scout", UndoMode::Refuse).assert_ok();
    other.redo("scout").assert_ok();
}

#[test]
fn record_without_address_can_be_undone() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let before = world.read_memory("scout");
    world.reset().assert_ok();
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let line = fs::read_to_string(&ledger).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&line).unwrap();
    let memory = record.as_object_mut().unwrap().remove("memory").unwrap();
    assert_eq!(memory, world.memory_path("scout").to_str().unwrap());
    fs::write(&ledger, format!("{record}\n")).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
}
