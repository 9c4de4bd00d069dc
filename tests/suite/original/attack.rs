//! What it let an attacker do: foreseeable names, links, open doors.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::engine::Outcome;

use crate::world::{BASELINE, Interposer, Moment, World, mode, names};

#[test]
fn temporary_names_were_known_in_advance() {
    let world = World::new(&["scout"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        world.write_scratch("scout", "- note\n");
        let (folder, seen) = (world.folder("scout"), Arc::clone(&seen));
        let transport = Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before("swap") {
                let mut names = names(&folder);
                names.retain(|name| name != "MEMORY.md");
                seen.lock().unwrap().extend(names);
            }
            Ok(())
        });
        world.reset_by(&world.engine_on(transport)).ok();
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
fn links_and_fifos_planted_beside_the_memory_were_written_to() {
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
        symlink(&precious, world.folder("scout").join(name)).unwrap();
        planted.push(name.to_string());
    }
    let fifo = world.folder("scout").join("tmp");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    planted.push("tmp".to_string());
    planted.sort();
    world.reset().ok();
    assert_eq!(world.litter("scout"), planted);
    assert_eq!(fs::read(&precious).unwrap(), b"secret");
}

#[test]
fn a_link_in_place_of_the_archives_folder_was_followed() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(world.archive()).unwrap();
    symlink(&elsewhere, world.archive().join("scout")).unwrap();
    world.reset().ended(Outcome::Failed);
    assert!(names(&elsewhere).is_empty());
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn a_lock_left_behind_or_dated_into_the_future_blocked_for_ever() {
    let world = World::new(&["scout"]);
    let locks = world.archive().join(".shepherd/locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = locks.join("scout.lock");
    fs::write(&lock, "1\n").unwrap();
    let future = std::time::SystemTime::now() + Duration::from_secs(1 << 30);
    let file = fs::File::options().write(true).open(&lock).unwrap();
    file.set_modified(future).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
}

#[test]
fn a_link_as_memory_was_read_and_written_through() {
    let world = World::new(&["scout"]);
    let precious = world.root.join("precious");
    fs::write(&precious, "secret").unwrap();
    symlink(&precious, world.memory("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.ok().entries[0].kind, EntryKind::Special);
    assert_eq!(fs::read(&precious).unwrap(), b"secret");
    assert!(!world.holds("scout", b"secret"));
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(
        fs::symlink_metadata(world.memory("scout"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn a_link_as_parent_folder_was_followed() {
    let world = World::new(&["scout"]);
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("MEMORY.md"), "secret").unwrap();
    fs::remove_dir(world.folder("scout")).unwrap();
    symlink(&elsewhere, world.folder("scout")).unwrap();
    let ran = world.reset();
    ran.ended(Outcome::Failed);
    assert!(ran.note().contains("symbolic link"), "{}", ran.note());
    assert_eq!(names(&elsewhere), ["MEMORY.md"]);
    assert_eq!(fs::read(elsewhere.join("MEMORY.md")).unwrap(), b"secret");
    assert!(!world.archive().join("scout").exists());
}

#[test]
fn a_lock_lay_where_anybody_could_make_one() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    let locks = world.archive().join(".shepherd/locks");
    assert_eq!(
        names(&locks),
        [".ledger.lock", ".replace.lock", "scout.lock"]
    );
    assert_eq!(
        (mode(&locks), mode(&locks.join("scout.lock"))),
        (0o700, 0o600)
    );
    // And it stays: a file that is made anew would be another lock.
    let inode = || fs::metadata(locks.join("scout.lock")).unwrap().ino();
    let before = inode();
    world.reset();
    assert_eq!(inode(), before);
}

#[test]
fn entries_were_readable_by_everyone() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let path = world.reset().ok().entries[0].path.clone();
    let folder = world.archive().join("scout");
    assert_eq!((mode(&world.archive()), mode(&folder)), (0o700, 0o700));
    assert_eq!(mode(&world.archive().join(path)), 0o600);
}
