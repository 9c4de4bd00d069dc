//! Attacks that the original script allowed: predictable names, symlinks, open
//! permissions.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::engine::Outcome;

use crate::world::{
    BASELINE, InterposingTransport, TransportCall, World, permission_bits, sorted_names,
};

#[test]
fn temporary_names_are_unpredictable() {
    let world = World::new(&["scout"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        world.write_scratch("scout", "- note\n");
        let (directory, seen) = (world.agent_directory("scout"), Arc::clone(&seen));
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before("swap") {
                let mut names = sorted_names(&directory);
                names.retain(|name| name != "MEMORY.md");
                seen.lock().unwrap().extend(names);
            }
            Ok(())
        });
        world
            .reset_with_engine(&world.engine_with_transport(transport))
            .assert_ok();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0], seen[1]);
    for name in seen.iter() {
        // Agents watch and index Markdown.
        assert!(name.starts_with('.') && !name.ends_with(".md"), "{name}");
    }
}

#[test]
fn planted_links_and_fifos_are_not_written_to() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let precious = world.root.join("precious");
    fs::write(&precious, "secret").unwrap();
    let mut planted = Vec::new();
    for name in [
        "MEMORY.md.tmp",
        ".MEMORY.md.lock",
        "MEMORY.md.new",
        "MEMORY.md.bak",
    ] {
        symlink(&precious, world.agent_directory("scout").join(name)).unwrap();
        planted.push(name.to_string());
    }
    let fifo = world.agent_directory("scout").join("tmp");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    planted.push("tmp".to_string());
    planted.sort();
    world.reset().assert_ok();
    assert_eq!(world.leftovers("scout"), planted);
    assert_eq!(fs::read(&precious).unwrap(), b"secret");
}

#[test]
fn symlink_as_archive_directory_is_refused() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(world.archive_directory()).unwrap();
    symlink(&elsewhere, world.archive_directory().join("scout")).unwrap();
    world.reset().assert_outcome(Outcome::Failed);
    assert!(sorted_names(&elsewhere).is_empty());
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn stale_lock_does_not_block() {
    let world = World::new(&["scout"]);
    let locks = world.archive_directory().join(".shepherd/locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = locks.join("scout.lock");
    fs::write(&lock, "1\n").unwrap();
    let future = std::time::SystemTime::now() + Duration::from_secs(1 << 30);
    let file = fs::File::options().write(true).open(&lock).unwrap();
    file.set_modified(future).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
}

#[test]
fn symlink_as_memory_is_not_followed() {
    let world = World::new(&["scout"]);
    let precious = world.root.join("precious");
    fs::write(&precious, "secret").unwrap();
    world.replace_recorded_file("scout", |path| symlink(&precious, path).unwrap());
    let ran = world.reset();
    assert_eq!(ran.assert_ok().entries[0].kind, EntryKind::Special);
    assert_eq!(fs::read(&precious).unwrap(), b"secret");
    assert!(!world.preserves("scout", b"secret"));
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(
        fs::symlink_metadata(world.memory_path("scout"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn symlink_as_parent_directory_is_refused() {
    let world = World::new(&["scout"]);
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("MEMORY.md"), "secret").unwrap();
    fs::remove_dir(world.agent_directory("scout")).unwrap();
    symlink(&elsewhere, world.agent_directory("scout")).unwrap();
    let ran = world.reset();
    ran.assert_outcome(Outcome::Failed);
    assert!(ran.note().contains("symlink"), "{}", ran.note());
    assert_eq!(sorted_names(&elsewhere), ["MEMORY.md"]);
    assert_eq!(fs::read(elsewhere.join("MEMORY.md")).unwrap(), b"secret");
    assert!(!world.archive_directory().join("scout").exists());
}

#[test]
fn locks_are_in_private_directory() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    let locks = world.archive_directory().join(".shepherd/locks");
    assert_eq!(
        sorted_names(&locks),
        [
            ".ledger.lock",
            ".replace.lock",
            ".states.lock",
            ".versions.lock",
            "scout.lock"
        ]
    );
    assert_eq!(
        (
            permission_bits(&locks),
            permission_bits(&locks.join("scout.lock"))
        ),
        (0o700, 0o600)
    );
    // The lock file stays: a new file would be another lock.
    let inode = || fs::metadata(locks.join("scout.lock")).unwrap().ino();
    let before = inode();
    world.reset();
    assert_eq!(inode(), before);
}

#[test]
fn entries_are_private() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let path = world.reset().assert_ok().entries[0].path.clone();
    let directory = world.archive_directory().join("scout");
    assert_eq!(
        (
            permission_bits(&world.archive_directory()),
            permission_bits(&directory)
        ),
        (0o700, 0o700)
    );
    assert_eq!(
        permission_bits(&world.archive_directory().join(path)),
        0o600
    );
}
