//! Guarantees that the original script broke: file ownership, success, deletion.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::Outcome;

use crate::skip::{skip_missing_tool, skip_unsupported};
use crate::world::{
    BASELINE, InterposingTransport, TransportCall, World, permission_bits, sorted_names,
};

#[test]
fn unchanged_file_is_not_rewritten_or_archived() {
    let world = World::new(&["scout"]);
    world.set_baseline(
        "scout",
        format!("{BASELINE}\n## Scratch Notes\n\n(none yet)\n"),
    );
    world.write_scratch("scout", "");
    let before = fs::metadata(world.memory_path("scout"))
        .unwrap()
        .modified()
        .unwrap();
    for _ in 0..3 {
        world.reset().assert_outcome(Outcome::Unchanged);
    }
    let after = fs::metadata(world.memory_path("scout"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after);
    assert!(world.entry_names("scout").is_empty());
}

#[test]
fn refused_run_keeps_lock_of_first_run() {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- note\n");
    let refused = Arc::new(Mutex::new(Vec::new()));
    let transport = InterposingTransport::new(world.disk(), {
        let (world, refused) = (Arc::clone(&world), Arc::clone(&refused));
        move |moment| {
            if moment == TransportCall::Before("swap") {
                for _ in 0..2 {
                    let ran = world.reset();
                    refused
                        .lock()
                        .unwrap()
                        .push((ran.report.worst_kind(), ran.note().to_string()));
                }
            }
            Ok(())
        }
    });
    let first = world.reset_with_engine(&world.engine_with_transport(transport));
    first.assert_ok();
    let refused = refused.lock().unwrap();
    assert_eq!(refused.len(), 2);
    for (kind, note) in refused.iter() {
        assert_eq!(*kind, Some(ErrorKind::Busy));
        assert!(
            note.contains(&format!(" by run {} of ", first.report.run)),
            "{note}"
        );
    }
}

#[test]
fn unusable_baseline_or_busy_agent_is_a_failure() {
    let codes: Vec<u8> = [
        ErrorKind::Conflict,
        ErrorKind::Integrity,
        ErrorKind::Busy,
        ErrorKind::Host,
    ]
    .map(ErrorKind::exit_code)
    .to_vec();
    assert_eq!(codes, [6, 4, 5, 3]);
    let world = World::new(&["missing", "small"]).with_general("min_baseline_size = 40");
    fs::remove_file(world.baseline_path("missing")).unwrap();
    world.set_baseline("small", "# S\n---\n");
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Conflict));
    assert_eq!(ran.report.count(Outcome::Refused), 2);
    // A baseline that must not be pushed creates no memory.
    assert!(sorted_names(&world.agent_directory("missing")).is_empty());
    assert!(sorted_names(&world.agent_directory("small")).is_empty());
}

#[test]
fn retention_keeps_files_that_are_not_entries() {
    let world = World::new(&["scout"]).with_general("archive_retention_days = 1");
    let directory = world.archive_directory().join("scout");
    fs::create_dir_all(directory.join("2026-01-01_0901.md")).unwrap();
    let kept = [
        "README.md",
        "2026-01-01.md",
        "old-2026-01-01_0900.md",
        "2026-01-01_0902.md",
    ];
    for name in &kept[..3] {
        fs::write(directory.join(name), "x").unwrap();
    }
    symlink(world.root.join("nowhere"), directory.join(kept[3])).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    world.clock.advance(Duration::from_secs(1 << 30));
    assert!(
        world
            .engine()
            .retention()
            .expired_entries()
            .unwrap()
            .is_empty()
    );
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    assert!(
        kept.iter()
            .all(|name| fs::symlink_metadata(directory.join(name)).is_ok())
    );
}

/// The original script left a memory that its agent could not write.
#[test]
fn owner_mode_and_attributes_are_kept() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    // Only root can change the owner.
    let given = chown(&memory, Some(1234), Some(4321)).is_ok();
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o660)).unwrap();
    let colour = |words: &[&str]| {
        let ran = Command::new(words[0])
            .args(&words[1..])
            .arg(&memory)
            .output();
        ran.ok().filter(|output| output.status.success())
    };
    if Command::new("setfattr").arg("--version").output().is_err() {
        return skip_missing_tool("setfattr");
    }
    let set = colour(&["setfattr", "-n", "user.colour", "-v", "blue"]).is_some();
    world.reset().assert_ok();
    let meta = fs::metadata(&memory).unwrap();
    assert_eq!(permission_bits(&memory), 0o660);
    if given {
        assert_eq!((meta.uid(), meta.gid()), (1234, 4321));
    }
    match set {
        true => {
            let found = colour(&["getfattr", "--only-values", "-n", "user.colour"]);
            assert_eq!(found.unwrap().stdout, b"blue");
        }
        false => skip_unsupported("no user attributes here"),
    }
}
