//! A directory in place of a memory: refused as a mistake in the config, or displaced,
//! kept beside the memory, and restored by an undo; also one that replaces what the run
//! had captured.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{FileState, Outcome, RunEvent, StepAction, UndoMode, UndoTarget};
use memory_shepherd::transport::{FailureCause, MemoryObject, NewMemory, SpecialFile, SwapMethod};
use rustix::fs::{CWD, FileType, Mode};

use super::contract::{DiskFixture, TransportFixture};
use super::engine::make_fifo;
use super::world::{BASELINE, InterposingTransport, TransportCall, World, apply_plan};
use crate::skip::skip_unsupported;

/// Creates an object at a path.
type PutObject = fn(&Path);

fn scout_name() -> [String; 1] {
    ["scout".to_string()]
}

/// Puts a directory with a file in it at the memory's path, in place of any other
/// object.
fn replace_with_directory(world: &World) {
    // The path may be absent.
    let _ = fs::remove_file(world.memory_path("scout"));
    fs::create_dir(world.memory_path("scout")).unwrap();
    fs::write(world.memory_path("scout").join("inside"), "notes").unwrap();
}

/// A memory that was a file, then a directory, and was reset both times; returned with
/// the name of the kept directory.
fn world_with_kept_directory() -> (World, String) {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    replace_with_directory(&world);
    world.reset().assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    let kept = world.read_records().pop().unwrap().event.change.kept_names;
    let [kept] = kept.try_into().unwrap();
    assert_eq!(world.leftovers("scout"), [format!("{kept}/inside")]);
    (world, kept)
}

#[track_caller]
fn assert_directory_restored(world: &World) {
    let inside = world.memory_path("scout").join("inside");
    assert_eq!(fs::read(inside).unwrap(), b"notes");
    assert_eq!(world.leftovers("scout"), [""; 0]);
    assert_eq!(world.pending_journals(), [""; 0]);
}

#[test]
fn directory_without_file_record_is_refused() {
    let world = World::new(&["scout"]);
    replace_with_directory(&world);
    let block = world.observe("scout").blocker.unwrap();
    assert_eq!(block.kind, ErrorKind::Conflict);
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    // As a timer does, without a plan.
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_unobserved(&scout_name(), false)
        .unwrap();
    let report = engine
        .runs()
        .apply_plan(&plan, false, &false.into(), &mut |_| ());
    assert_eq!(report.worst_kind(), Some(ErrorKind::Conflict));
    assert_directory_restored(&world);
}

#[test]
fn object_without_file_record_is_refused() {
    let puts: [(PutObject, &str); 3] = [
        (
            |path| symlink("AGENTS.md", path).unwrap(),
            "a symlink to AGENTS.md",
        ),
        (|path| make_fifo(path), "a FIFO"),
        (|path| drop(UnixListener::bind(path).unwrap()), "a socket"),
    ];
    for (put, what) in puts {
        let world = World::new(&["scout"]);
        put(&world.memory_path("scout"));
        let kind = fs::symlink_metadata(world.memory_path("scout"))
            .unwrap()
            .file_type();
        let block = world.observe("scout").blocker.unwrap();
        assert_eq!(block.kind, ErrorKind::Conflict);
        assert!(block.reason.contains(what), "{}", block.reason);
        world.reset().assert_outcome(Outcome::Refused);
        // As a timer does, without a plan.
        let engine = world.engine();
        let plan = engine
            .planner()
            .plan_unobserved(&scout_name(), false)
            .unwrap();
        let report = engine
            .runs()
            .apply_plan(&plan, false, &false.into(), &mut |_| ());
        assert_eq!(report.worst_kind(), Some(ErrorKind::Conflict));
        let left = fs::symlink_metadata(world.memory_path("scout")).unwrap();
        assert_eq!(left.file_type(), kind);
        let [(agent, error)] = engine
            .memory_checks()
            .misplaced_memories()
            .try_into()
            .unwrap();
        assert_eq!(agent.name, "scout");
        assert!(error.message().contains(what), "{error}");
        assert_eq!(engine.memory_checks().irreplaceable_memories().len(), 1);
    }
}

#[test]
fn device_without_file_record_is_refused() {
    let world = World::new(&["scout"]);
    let memory = world.memory_path("scout");
    let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
    // The numbers of /dev/null.
    if rustix::fs::mknodat(CWD, &memory, kind, mode, rustix::fs::makedev(1, 3)).is_err() {
        skip_unsupported("needs the right to create a device");
        return;
    }
    let ran = world.reset();
    ran.assert_outcome(Outcome::Refused);
    assert!(ran.note().contains("is a device"), "{}", ran.note());
    let left = fs::symlink_metadata(memory).unwrap();
    assert!(left.file_type().is_char_device());
}

#[test]
fn unchanged_file_counts_as_recorded() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset().assert_outcome(Outcome::Unchanged);
    replace_with_directory(&world);
    world.reset().assert_ok();
}

#[test]
fn record_of_other_memory_does_not_allow_directory() {
    let mut world = World::new(&["scout"]);
    world.add_agent("scout", "memory_file = agents/scout/OTHER.md\n");
    world.reset().assert_ok();
    fs::remove_file(world.agent_directory("scout").join("OTHER.md")).unwrap();
    world.add_agent("scout", "");
    replace_with_directory(&world);
    world.reset().assert_outcome(Outcome::Refused);
    assert_directory_restored(&world);
}

#[test]
fn undo_puts_kept_directory_back() {
    let (world, kept) = world_with_kept_directory();
    let target = UndoTarget::Agents(scout_name().to_vec());
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert_eq!(plan.steps[0].action, StepAction::PutBack);
    assert!(plan.steps[0].notes.join("; ").contains(&kept));
    apply_plan(&engine, &plan).assert_ok();
    assert_directory_restored(&world);
    let last = world.read_records().pop().unwrap().event;
    assert_eq!(
        last.change.after,
        Some(FileState::Special(SpecialFile::Directory))
    );
    // Undo and redo once more.
    world.redo("scout").assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_directory_restored(&world);
}

#[test]
fn put_back_exchanges_kept_object_with_memory() {
    fn assert_exchanges(fixture: &dyn TransportFixture) {
        fixture.write("MEMORY.md", b"memory");
        fixture.create_special_file("kept", &SpecialFile::Directory);
        let swapped = fixture
            .open_directory()
            .commit("kept", NewMemory::KeptObject(None))
            .unwrap();
        assert_eq!(swapped.method, SwapMethod::Exchange);
        let [displaced] = swapped.displaced.try_into().unwrap();
        assert_eq!(
            fixture.probe_memory(),
            MemoryObject::Special(SpecialFile::Directory)
        );
        assert_eq!(fixture.bytes(&displaced).unwrap(), b"memory");
        assert_eq!(
            fixture.names(),
            ["MEMORY.md", &displaced],
            "the name of the kept directory is taken"
        );
        let gone = fixture
            .open_directory()
            .commit("gone", NewMemory::KeptObject(None))
            .unwrap_err();
        assert_eq!(gone.cause, FailureCause::Replaced);
    }
    assert_exchanges(&DiskFixture::new(true));
    assert_exchanges(&DiskFixture::bounded());
}

#[test]
fn kept_names_are_unique_per_object() {
    let (world, _) = world_with_kept_directory();
    let first = world.read_records().pop().unwrap().event.run;
    let is_first = |name: &str| {
        let inside = world.agent_directory("scout").join(name).join("inside");
        inside.exists()
    };
    // Another directory is displaced in favor of the restored one.
    fs::remove_file(world.memory_path("scout")).unwrap();
    fs::create_dir(world.memory_path("scout")).unwrap();
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    assert!(is_first("MEMORY.md"));
    world.redo("scout").assert_outcome(Outcome::Ok);
    assert!(!is_first("MEMORY.md"));
    let engine = world.engine();
    let target = UndoTarget::Run(first);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
    assert!(is_first("MEMORY.md"));
}

/// The agent may rename the kept directory, and put another one at its name.
#[test]
fn replaced_kept_object_is_refused() {
    let (world, kept) = world_with_kept_directory();
    let kept = world.agent_directory("scout").join(kept);
    fs::rename(&kept, world.agent_directory("scout").join("mine")).unwrap();
    assert_eq!(world.observe("scout").reason, "");
    fs::create_dir(&kept).unwrap();
    let why = world.observe("scout").reason;
    assert!(why.starts_with("replaced since a run kept it: "), "{why}");
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(
        ran.note()
            .contains("another object of that kind, a directory, stands now"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    fs::remove_dir(&kept).unwrap();
    fs::write(&kept, "a file").unwrap();
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert!(
        ran.note().contains("a file of 6 bytes stands now"),
        "{}",
        ran.note()
    );
    // Back under its name, it is accepted again.
    fs::remove_file(&kept).unwrap();
    fs::rename(world.agent_directory("scout").join("mine"), &kept).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_directory_restored(&world);
}

/// The same rename between the check of the undo and the exchange.
#[test]
fn object_swapped_before_exchange_is_refused() {
    let (world, kept) = world_with_kept_directory();
    let (kept, mine) = (
        world.agent_directory("scout").join(kept),
        world.agent_directory("scout").join("mine"),
    );
    let transport = {
        let (kept, mine) = (kept.clone(), mine.clone());
        InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before("put_back") && !mine.exists() {
                fs::rename(&kept, &mine).unwrap();
                fs::create_dir(&kept).unwrap();
            }
            Ok(())
        })
    };
    let engine = world.engine_with_transport(transport as Arc<_>);
    let target = UndoTarget::Agents(scout_name().to_vec());
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    let ran = apply_plan(&engine, &plan);
    assert_ne!(ran.result_of("scout").outcome, Outcome::Ok);
    assert_eq!(ran.result_of("scout").kind, Some(ErrorKind::Conflict));
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(mine.join("inside").exists() && kept.exists());
}

#[test]
fn put_back_of_directory_archives_notes_first() {
    let (world, _) = world_with_kept_directory();
    world.write_scratch("scout", "- since\n");
    world
        .undo("scout", UndoMode::Refuse)
        .assert_outcome(Outcome::Refused);
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    assert_directory_restored(&world);
    assert!(world.preserves("scout", b"- since\n"));
}

#[test]
fn undo_says_when_kept_directory_is_gone() {
    let (world, kept) = world_with_kept_directory();
    fs::rename(
        world.agent_directory("scout").join(&kept),
        world.root.join("moved"),
    )
    .unwrap();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(ran.note().contains(&kept), "{}", ran.note());
    assert!(ran.note().contains("is no longer there"), "{}", ran.note());
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

/// After an undo that ends at any point, the next one restores the directory.
#[test]
fn put_back_crash_at_any_point_is_recovered() {
    let mut crashed = 0;
    for point in 0.. {
        let (world, _) = world_with_kept_directory();
        let passed = AtomicUsize::new(0);
        let transport = InterposingTransport::new(world.disk(), move |_| {
            if passed.fetch_add(1, Ordering::Relaxed) == point {
                resume_unwind(Box::new("crash"));
            }
            Ok(())
        });
        let engine = world.engine_with_transport(transport as Arc<_>);
        let target = UndoTarget::Agents(scout_name().to_vec());
        let undo = || {
            let plan = engine.planner().plan_undo(&target, UndoMode::Refuse, false);
            apply_plan(&engine, &plan.unwrap());
        };
        if catch_unwind(AssertUnwindSafe(undo)).is_ok() {
            break;
        }
        crashed += 1;
        // The first run recovers the crashed undo; after a crash behind the exchange
        // only the reset before remains to be undone.
        if world.memory_path("scout").is_file() {
            world
                .undo("scout", UndoMode::Refuse)
                .assert_outcome(Outcome::Ok);
        } else {
            let engine = world.engine();
            let plan = engine.planner().plan_reset(&scout_name(), false).unwrap();
            assert!(plan.skipped.is_empty(), "{plan:?}");
            world.reset().assert_outcome(Outcome::Ok);
            world
                .undo("scout", UndoMode::Refuse)
                .assert_outcome(Outcome::Ok);
        }
        assert_directory_restored(&world);
    }
    assert!(crashed > 5, "{crashed}");
    println!("{crashed} points");
}

/// A redo displaces the directory again, as the reset did.
#[test]
fn redo_that_displaces_directory_must_be_typed() {
    let (world, _) = world_with_kept_directory();
    let is_typed = |target| {
        let plan = world
            .engine()
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false);
        plan.unwrap().steps[0].is_confirmation_typed
    };
    assert!(!is_typed(UndoTarget::Agents(scout_name().to_vec())));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(is_typed(UndoTarget::Redo(scout_name().to_vec())));
}

/// Resets a memory that the agent replaces once, just before the exchange.
fn reset_while(world: &World, mut replace: impl FnMut(&Path) + Send + 'static) -> RunEvent {
    let memory = world.memory_path("scout");
    let mut is_replaced = false;
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") && !is_replaced {
            is_replaced = true;
            replace(&memory);
        }
        Ok(())
    });
    let engine = world.engine_with_transport(transport as Arc<_>);
    world.reset_with_engine(&engine).assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    world.read_records().pop().unwrap().event
}

/// Puts a directory with a file in it at a path, in place of a file or symlink.
fn put_directory(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
    fs::write(path.join("inside"), "notes").unwrap();
}

/// A memory with a symlink, a socket or a directory in its place.
fn worlds_with_special_files() -> [World; 3] {
    let put: [fn(&Path); 3] = [
        |path| symlink("/etc/passwd", path).unwrap(),
        |path| drop(UnixListener::bind(path).unwrap()),
        |path| fs::create_dir(path).unwrap(),
    ];
    let world = |put: fn(&Path)| {
        let world = World::new(&["scout"]);
        world.reset().assert_ok();
        fs::remove_file(world.memory_path("scout")).unwrap();
        put(&world.memory_path("scout"));
        world
    };
    put.map(world)
}

#[test]
fn notes_are_not_appended_to_an_object_put_back() {
    for world in worlds_with_special_files() {
        world.reset().assert_ok();
        let plan = || {
            let engine = world.engine();
            engine
                .planner()
                .plan_undo(&undo_target(), UndoMode::Refuse, false)
        };
        if plan().unwrap().steps.is_empty() {
            // The socket is gone.
            continue;
        }
        world.write_scratch("scout", "- mine\n");
        assert_eq!(plan().unwrap().undo_choices(), [UndoMode::Overwrite]);
        let ran = world.undo("scout", UndoMode::Append);
        let refused = ran.assert_outcome(Outcome::Refused);
        assert_eq!(refused.kind, Some(ErrorKind::Conflict));
        assert!(
            refused.hints[0].starts_with("--overwrite"),
            "{:?}",
            refused.hints
        );
        assert!(world.read_memory("scout").ends_with(b"- mine\n"));
        world.undo("scout", UndoMode::Overwrite).assert_ok();
        let put_back = fs::symlink_metadata(world.memory_path("scout")).unwrap();
        assert!(!put_back.is_file());
    }
}

fn undo_target() -> UndoTarget {
    UndoTarget::Agents(scout_name().to_vec())
}

#[test]
fn file_displaced_in_place_of_object_is_restored() {
    for world in worlds_with_special_files() {
        let late = b"the agent's notes";
        let event = reset_while(&world, move |memory| {
            if fs::remove_file(memory).is_err() {
                fs::remove_dir(memory).unwrap();
            }
            fs::write(memory, late).unwrap();
        });
        assert!(matches!(event.change.before, Some(FileState::Special(_))));
        for _ in 0..2 {
            world.undo("scout", UndoMode::Refuse).assert_ok();
            assert_eq!(world.read_memory("scout"), late);
            world.redo("scout").assert_outcome(Outcome::Ok);
            assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
        }
    }
}

/// Without an exchange, a file that the agent creates is displaced as well.
#[test]
fn file_displaced_in_place_of_none_is_restored() {
    let world = World::new(&["scout"]);
    let event = reset_while(&world, |memory| fs::write(memory, "notes").unwrap());
    assert_eq!(event.change.before, Some(FileState::Absent));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), b"notes");
}

#[test]
fn directory_displaced_in_place_of_object_is_put_back() {
    let [world, ..] = worlds_with_special_files();
    reset_while(&world, put_directory);
    let why = world.observe("scout").reason;
    assert!(why.contains("undo puts it back"), "{why}");
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_directory_restored(&world);
}

#[test]
fn directory_displaced_in_place_of_file_is_put_back() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_scratch("scout", "- captured\n");
    reset_while(&world, put_directory);
    for _ in 0..2 {
        let why = world.observe("scout").reason;
        assert!(why.contains("undo puts it back"), "{why}");
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert_directory_restored(&world);
        world.redo("scout").assert_outcome(Outcome::Ok);
    }
    // Once the operator has removed the directory, the file is what is left to restore.
    let kept = world.read_records().pop().unwrap().event.change.kept_names;
    fs::remove_dir_all(world.agent_directory("scout").join(&kept[0])).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let captured = format!("{BASELINE}- captured\n");
    assert_eq!(world.read_memory("scout"), captured.as_bytes());
}

#[test]
fn refused_undo_names_what_was_displaced() {
    let refusal = |world: &World| {
        let ran = world.undo("scout", UndoMode::Refuse);
        ran.assert_outcome(Outcome::Refused);
        ran.note().to_string()
    };
    let [link, _, directory] = worlds_with_special_files();
    reset_while(&link, put_directory);
    let kept = link.read_records().pop().unwrap().event.change.kept_names;
    let kept_path = link.agent_directory("scout").join(&kept[0]);
    fs::remove_dir_all(&kept_path).unwrap();
    let why = refusal(&link);
    let found = "it found a symlink to /etc/passwd and replaced another object, described in ";
    assert!(why.contains(found), "{why}");
    let gone = format!("was kept as {} and is no longer there", kept_path.display());
    assert!(why.contains(&gone), "{why}");

    reset_while(&directory, |memory| {
        fs::remove_dir(memory).unwrap();
        symlink("elsewhere", memory).unwrap();
    });
    let why = refusal(&directory);
    let found = "it found a directory and replaced another object, described in ";
    assert!(why.contains(found), "{why}");
    assert!(why.contains("which was described and not kept"), "{why}");

    let [_, _, directory] = worlds_with_special_files();
    reset_while(&directory, |memory| fs::remove_dir(memory).unwrap());
    let why = refusal(&directory);
    assert!(
        why.contains("was gone when the memory was created"),
        "{why}"
    );
}
