//! A directory in place of a memory: refused as a mistake in the config, or displaced,
//! kept beside the memory, and put back by an undo.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_shepherd::engine::{FileState, Outcome, StepAction, UndoMode, UndoTarget};
use memory_shepherd::error::ErrorKind;
use memory_shepherd::transport::{FailureCause, MemoryObject, SpecialFile, SwapMethod};

use super::contract::{Ground, OnDisk};
use super::world::{BASELINE, Interposer, Moment, World, apply};

fn scout() -> [String; 1] {
    ["scout".to_string()]
}

/// Puts a directory with a file in it in place of whatever stands there.
fn put_directory(world: &World) {
    // Nothing stands there at first.
    let _ = fs::remove_file(world.memory("scout"));
    fs::create_dir(world.memory("scout")).unwrap();
    fs::write(world.memory("scout").join("inside"), "notes").unwrap();
}

/// A memory that was a file, then a directory, and was reset both times; with the name
/// that the directory is kept under.
fn displaced() -> (World, String) {
    let world = World::new(&["scout"]);
    world.reset().ok();
    put_directory(&world);
    world.reset().ended(Outcome::Ok);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    let kept = world.records().pop().unwrap().event.kept_names;
    let [kept] = kept.try_into().unwrap();
    assert_eq!(world.litter("scout"), [format!("{kept}/inside")]);
    (world, kept)
}

#[track_caller]
fn is_put_back(world: &World) {
    let inside = world.memory("scout").join("inside");
    assert_eq!(fs::read(inside).unwrap(), b"notes");
    assert_eq!(world.litter("scout"), [""; 0]);
    assert_eq!(world.pending(), [""; 0]);
}

#[test]
fn directory_without_a_record_of_a_file_is_refused() {
    let world = World::new(&["scout"]);
    put_directory(&world);
    let block = world.observe("scout").blocker.unwrap();
    assert_eq!(block.kind, ErrorKind::Conflict);
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    // As timers do it, who make no plan.
    let engine = world.engine();
    let plan = engine.plan_unobserved(&scout(), false).unwrap();
    let report = engine.apply_plan(&plan, false, &false.into(), &mut |_| ());
    assert_eq!(report.worst_kind(), Some(ErrorKind::Conflict));
    is_put_back(&world);
}

#[test]
fn file_that_was_never_changed_is_on_record() {
    let world = World::new(&["scout"]);
    world.write("scout", BASELINE);
    world.reset().ended(Outcome::Unchanged);
    put_directory(&world);
    world.reset().ok();
}

#[test]
fn record_about_another_memory_allows_no_directory() {
    let mut world = World::new(&["scout"]);
    world.add("scout", "memory_file = agents/scout/OTHER.md\n");
    world.reset().ok();
    fs::remove_file(world.folder("scout").join("OTHER.md")).unwrap();
    world.add("scout", "");
    put_directory(&world);
    world.reset().ended(Outcome::Refused);
    is_put_back(&world);
}

#[test]
fn kept_directory_is_put_back_by_undo() {
    let (world, kept) = displaced();
    let target = UndoTarget::Agents(scout().to_vec());
    let engine = world.engine();
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    assert_eq!(plan.steps[0].action, StepAction::PutBack);
    assert!(plan.steps[0].notes.join("; ").contains(&kept));
    apply(&engine, &plan).ok();
    is_put_back(&world);
    let last = world.records().pop().unwrap().event;
    assert_eq!(last.after, Some(FileState::Special(SpecialFile::Directory)));
    // And once more, there and back.
    world.redo("scout").ended(Outcome::Ok);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    world.undo("scout", UndoMode::Refuse).ok();
    is_put_back(&world);
}

#[test]
fn put_back_exchanges_a_kept_object_with_the_memory() {
    fn exchanges(ground: &dyn Ground) {
        ground.write("MEMORY.md", b"memory");
        ground.put_odd("kept", &SpecialFile::Directory);
        let swapped = ground.open().restore_object("kept", None).unwrap();
        assert_eq!(swapped.method, SwapMethod::Exchange);
        let [displaced] = swapped.displaced.try_into().unwrap();
        assert_eq!(
            ground.probe(),
            MemoryObject::Special(SpecialFile::Directory)
        );
        assert_eq!(ground.bytes(&displaced).unwrap(), b"memory");
        assert_eq!(ground.names(), ["MEMORY.md", &displaced], "kept is free");
        let gone = ground.open().restore_object("gone", None).unwrap_err();
        assert_eq!(gone.cause, FailureCause::Replaced);
    }
    exchanges(&OnDisk::new(true));
    exchanges(&OnDisk::bounded());
}

#[test]
fn kept_name_never_stands_for_another_object() {
    let (world, _) = displaced();
    let first = world.records().pop().unwrap().event.run;
    let is_first = |name: &str| {
        let inside = world.folder("scout").join(name).join("inside");
        inside.exists()
    };
    // Another directory makes room for the one that is put back.
    fs::remove_file(world.memory("scout")).unwrap();
    fs::create_dir(world.memory("scout")).unwrap();
    world.undo("scout", UndoMode::Overwrite).ok();
    assert!(is_first("MEMORY.md"));
    world.redo("scout").ended(Outcome::Ok);
    assert!(!is_first("MEMORY.md"));
    let engine = world.engine();
    let target = UndoTarget::Run(first);
    let plan = engine
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap();
    apply(&engine, &plan).ok();
    assert!(is_first("MEMORY.md"));
}

/// The agent may rename what is kept, and put another one at its name.
#[test]
fn other_object_at_a_kept_name_is_refused() {
    let (world, kept) = displaced();
    let kept = world.folder("scout").join(kept);
    fs::rename(&kept, world.folder("scout").join("mine")).unwrap();
    assert_eq!(world.observe("scout").reason, "");
    fs::create_dir(&kept).unwrap();
    let why = world.observe("scout").reason;
    assert!(
        why.starts_with("another object stands where a run kept one: "),
        "{why}"
    );
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(
        ran.note()
            .contains("another object of that kind, a directory, stands now"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    fs::remove_dir(&kept).unwrap();
    fs::write(&kept, "a file").unwrap();
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert!(
        ran.note().contains("a file of 6 bytes stands now"),
        "{}",
        ran.note()
    );
    // Back under its name, it is the one again.
    fs::remove_file(&kept).unwrap();
    fs::rename(world.folder("scout").join("mine"), &kept).unwrap();
    world.undo("scout", UndoMode::Refuse).ok();
    is_put_back(&world);
}

/// The same between the look of the undo and the exchange.
#[test]
fn object_swapped_before_its_exchange_is_refused() {
    let (world, kept) = displaced();
    let (kept, mine) = (
        world.folder("scout").join(kept),
        world.folder("scout").join("mine"),
    );
    let transport = {
        let (kept, mine) = (kept.clone(), mine.clone());
        Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before("put_back") && !mine.exists() {
                fs::rename(&kept, &mine).unwrap();
                fs::create_dir(&kept).unwrap();
            }
            Ok(())
        })
    };
    let engine = world.engine_on(transport as Arc<_>);
    let target = UndoTarget::Agents(scout().to_vec());
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    let ran = apply(&engine, &plan);
    assert_ne!(ran.of("scout").outcome, Outcome::Ok);
    assert_eq!(ran.of("scout").kind, Some(ErrorKind::Conflict));
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(mine.join("inside").exists() && kept.exists());
}

#[test]
fn notes_are_archived_before_a_directory_is_put_back() {
    let (world, _) = displaced();
    world.write_scratch("scout", "- since\n");
    world
        .undo("scout", UndoMode::Refuse)
        .ended(Outcome::Refused);
    world.undo("scout", UndoMode::Overwrite).ok();
    is_put_back(&world);
    assert!(world.holds("scout", b"- since\n"));
}

#[test]
fn undo_says_when_the_kept_directory_is_gone() {
    let (world, kept) = displaced();
    fs::rename(world.folder("scout").join(&kept), world.root.join("moved")).unwrap();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(ran.note().contains(&kept), "{}", ran.note());
    assert!(ran.note().contains("is no longer there"), "{}", ran.note());
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

/// Wherever an undo ends, the next one puts the directory back.
#[test]
fn directory_is_put_back_after_a_crash_at_any_point() {
    let mut crashed = 0;
    for point in 0.. {
        let (world, _) = displaced();
        let passed = AtomicUsize::new(0);
        let transport = Interposer::new(world.local(), move |_| {
            if passed.fetch_add(1, Ordering::Relaxed) == point {
                resume_unwind(Box::new("crash"));
            }
            Ok(())
        });
        let engine = world.engine_on(transport as Arc<_>);
        let target = UndoTarget::Agents(scout().to_vec());
        let undo = || {
            let plan = engine.plan_undo(&target, UndoMode::Refuse, false);
            apply(&engine, &plan.unwrap());
        };
        if catch_unwind(AssertUnwindSafe(undo)).is_ok() {
            break;
        }
        crashed += 1;
        // The first settles what the crash left; where that was after the exchange,
        // there is nothing more to undo but the reset before.
        if world.memory("scout").is_file() {
            world.undo("scout", UndoMode::Refuse).ended(Outcome::Ok);
        } else {
            let engine = world.engine();
            let plan = engine.plan_reset(&scout(), false).unwrap();
            assert!(plan.skipped.is_empty(), "{plan:?}");
            world.reset().ended(Outcome::Ok);
            world.undo("scout", UndoMode::Refuse).ended(Outcome::Ok);
        }
        is_put_back(&world);
    }
    assert!(crashed > 5, "{crashed}");
    println!("{crashed} points");
}

/// Taking the undo back displaces the directory again, as the reset did.
#[test]
fn redo_that_displaces_a_directory_is_typed() {
    let (world, _) = displaced();
    let is_typed = |target| {
        let plan = world.engine().plan_undo(&target, UndoMode::Refuse, false);
        plan.unwrap().steps[0].is_confirmation_typed
    };
    assert!(!is_typed(UndoTarget::Agents(scout().to_vec())));
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(is_typed(UndoTarget::Redo(scout().to_vec())));
}
