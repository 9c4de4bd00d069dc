//! File ownership: an agent that plants files at the names that a reset uses gains no
//! owner, mode or bytes that it did not have, and removes none.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{Outcome, UndoMode};
use memory_shepherd::transport::{FailureCause, TransportError};

use super::world::{BASELINE, InterposingTransport, TransportCall, World, permission_bits};
use crate::skip::skip_unsupported;

/// The agent's user and group, and a user that is neither the agent nor root.
const AGENT_UID: u32 = 4711;
const OTHER_UID: u32 = 1234;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip_unsupported("only root can give files away");
    }
    root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn owner_of(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

/// A directory `root:AGENT 2775` with the agent's own notes in it.
fn world_with_shared_directory(notes: &str) -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", notes);
    chown(world.agent_directory("scout"), Some(0), Some(AGENT_UID)).unwrap();
    set_mode(&world.agent_directory("scout"), 0o2775);
    give(&world.memory_path("scout"), AGENT_UID);
    set_mode(&world.memory_path("scout"), 0o640);
    world
}

/// Returns a world whose memory belongs to another user, in a directory of the agent.
fn world_with_foreign_memory() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- theirs\n");
    give(&world.agent_directory("scout"), AGENT_UID);
    give(&world.memory_path("scout"), OTHER_UID);
    world
}

/// Gives a file to a user and to the group of the same number.
fn give(path: &Path, id: u32) {
    chown(path, Some(id), Some(id)).unwrap();
}

/// Asserts that the memory belongs to a user and to the group of the same number.
#[track_caller]
fn assert_memory_owner(world: &World, id: u32) {
    assert_eq!(owner_of(&world.memory_path("scout")), (id, id));
}

#[test]
fn second_hard_link_is_kept_until_removed() {
    if !is_root() {
        return;
    }
    let world = world_with_shared_directory("- in a backup\n");
    let backup = world.root.join("backup.md");
    fs::hard_link(world.memory_path("scout"), &backup).unwrap();
    let ran = world.reset();
    ran.assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    let [name] = world.leftovers("scout").try_into().unwrap();
    let kept = world.agent_directory("scout").join(&name);
    assert!(
        ran.note().contains(kept.to_str().unwrap()),
        "{ran:?}",
        ran = ran.note()
    );
    assert_eq!(world.read_records()[0].event.change.kept_names, [name]);
    assert!(world.pending_journals().is_empty());
    // The backup rotates: these are the last bytes.
    fs::remove_file(&backup).unwrap();
    let text = fs::read(&kept).unwrap();
    assert!(text.ends_with(b"- in a backup\n"));
    let why = world.observe("scout").reason;
    assert!(why.contains(kept.to_str().unwrap()), "{why}");
    // Neither another reset nor a reset without changes affects it.
    world.write_memory("scout", format!("{BASELINE}- more\n"));
    world.reset().assert_ok();
    assert_eq!(fs::read(&kept).unwrap(), text);
    fs::remove_file(&kept).unwrap();
    let why = world.observe("scout").reason;
    assert!(!why.contains("kept"), "{why}");
}

#[test]
fn second_hard_link_is_put_back_by_undo() {
    if !is_root() {
        return;
    }
    let world = world_with_shared_directory("- in a backup\n");
    let (memory, backup) = (world.memory_path("scout"), world.root.join("backup.md"));
    fs::hard_link(&memory, &backup).unwrap();
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&memory), inode(&backup));
    assert!(world.leftovers("scout").is_empty());
    let why = world.observe("scout").reason;
    assert!(!why.contains("kept"), "{why}");
}

#[test]
fn kept_link_as_last_name_is_put_back() {
    if !is_root() {
        return;
    }
    let world = world_with_shared_directory("- in a backup\n");
    let before = world.read_memory("scout");
    let backup = world.root.join("backup.md");
    fs::hard_link(world.memory_path("scout"), &backup).unwrap();
    world.reset().assert_ok();
    fs::remove_file(&backup).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
    let left = world.read_records().pop().unwrap().event.change.after;
    assert_eq!(left.and_then(|it| it.digest()), Some(Digest::of(&before)));
    // The file has not been written since.
    world.redo("scout").assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn file_of_group_member_keeps_its_owner() {
    if !is_root() {
        return;
    }
    let world = world_with_shared_directory("- mine\n");
    let before = world.read_memory("scout");
    let keeps_its_owner = || {
        assert_memory_owner(&world, AGENT_UID);
        assert_eq!(permission_bits(&world.memory_path("scout")), 0o640);
    };
    world.reset().assert_ok();
    keeps_its_owner();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    keeps_its_owner();
    assert_eq!(world.read_memory("scout"), before);
}

#[test]
fn link_in_a_shared_directory_is_foreign() {
    if !is_root() {
        return;
    }
    let world = world_with_shared_directory("");
    // Root owns the file and the directory, but any member of the group may have linked
    // it.
    let secret = world.root.join("secret");
    fs::write(&secret, "a secret of root's").unwrap();
    set_mode(&secret, 0o640);
    fs::remove_file(world.memory_path("scout")).unwrap();
    fs::hard_link(&secret, world.memory_path("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.assert_ok().entries[0].kind, EntryKind::Special);
    assert!(!world.preserves("scout", b"a secret of root's"));
    assert_eq!(world.leftovers("scout").len(), 1);
    assert_eq!(owner_of(&world.memory_path("scout")), (0, AGENT_UID));
    assert_eq!(permission_bits(&world.memory_path("scout")), 0o664);
}

#[test]
fn set_id_bits_and_capabilities_are_dropped() {
    if !is_root() {
        return;
    }
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    let before = world.read_memory("scout");
    // CAP_SETUID, permitted and effective, in the form of `linux/capability.h`.
    let capability: Vec<u8> = [0x0200_0001_u32, 0x80, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let name = "security.capability";
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&memory, name, &capability, flags).unwrap();
    set_mode(&memory, 0o7755);
    let ran = world.reset();
    assert!(ran.note().contains("mode 7755"), "{}", ran.note());
    let is_plain = || {
        assert_eq!(permission_bits(&memory), 0o755);
        let mut value = [0; 64];
        let found = rustix::fs::getxattr(&memory, name, &mut value[..]);
        assert_eq!(found.unwrap_err(), rustix::io::Errno::NODATA);
    };
    is_plain();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
    is_plain();
}

/// Another process holds a lease, and adds a hard link to another user's program just
/// before the run reads owner and mode.
#[test]
fn link_replacing_leased_memory_gives_no_rights() {
    if !is_root() {
        return;
    }
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    for path in [world.agent_directory("scout"), world.memory_path("scout")] {
        give(&path, AGENT_UID);
    }
    let program = world.root.join("program");
    fs::write(&program, "somebody else's program").unwrap();
    give(&program, OTHER_UID);
    set_mode(&program, 0o4755);
    let (memory, learned) = (world.memory_path("scout"), Arc::new(AtomicUsize::new(0)));
    let hook = {
        let (clock, learned) = (world.clock.clone(), Arc::clone(&learned));
        move |moment| match moment {
            // The lease, until it is no longer needed.
            TransportCall::Before("read") if learned.load(Ordering::Relaxed) < 3 => {
                clock.advance(std::time::Duration::from_secs(1));
                let error = Error::new(ErrorKind::Host, "another process holds a lease on it");
                Err(TransportError::new(FailureCause::Leased, error))
            }
            TransportCall::Before("unread") => {
                if learned.fetch_add(1, Ordering::Relaxed) == 0 {
                    fs::remove_file(&memory).unwrap();
                    fs::hard_link(&program, &memory).unwrap();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    };
    let local = world.disk();
    let ran = world
        .reset_with_engine(&world.engine_with_transport(InterposingTransport::new(local, hook)));
    ran.assert_ok();
    assert_eq!(learned.load(Ordering::Relaxed), 1);
    assert_memory_owner(&world, AGENT_UID);
    assert_eq!(permission_bits(&world.memory_path("scout")) & 0o7022, 0);
    for record in world.read_records() {
        let attributes = record.event.change.attributes;
        assert!(
            attributes.is_none_or(|it| it.uid != OTHER_UID),
            "{:?}",
            record.event.note
        );
    }
}

/// The agent moves a foreign file to its memory's name, and replaces it by its own
/// between read and swap.
#[test]
fn undo_restores_owner_of_restored_bytes() {
    if !is_root() {
        return;
    }
    let world = world_with_foreign_memory();
    let memory = world.memory_path("scout");
    let swap_in_own = move || -> io::Result<()> {
        let own = memory.with_file_name("own");
        fs::write(&own, "bytes of the agent\n")?;
        chown(&own, Some(AGENT_UID), Some(AGENT_UID))?;
        fs::rename(&own, &memory)
    };
    let hook = move |moment| {
        if moment == TransportCall::Before("swap") {
            swap_in_own().unwrap();
        }
        Ok(())
    };
    let local = world.disk();
    world
        .reset_with_engine(&world.engine_with_transport(InterposingTransport::new(local, hook)))
        .assert_ok();
    // The operator's bytes, with owner and mode of the file that was read.
    assert_memory_owner(&world, OTHER_UID);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), b"bytes of the agent\n");
    assert_memory_owner(&world, AGENT_UID);
}

#[test]
fn undo_appending_notes_of_another_owner_inherits() {
    if !is_root() {
        return;
    }
    let world = world_with_foreign_memory();
    world.reset().assert_ok();
    assert_memory_owner(&world, OTHER_UID);
    fs::remove_file(world.memory_path("scout")).unwrap();
    world.write_memory("scout", format!("{BASELINE}- the agent's\n"));
    give(&world.memory_path("scout"), AGENT_UID);
    world.undo("scout", UndoMode::Append).assert_ok();
    let text = String::from_utf8(world.read_memory("scout")).unwrap();
    assert!(text.ends_with("- theirs\n- the agent's\n"), "{text}");
    assert_memory_owner(&world, AGENT_UID);
}

/// The state after an unmount of the memory's file system, whose owners were
/// meaningless.
#[test]
fn undo_gives_no_owner_absent_from_directory() {
    if !is_root() {
        return;
    }
    for was in [OTHER_UID, 0] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let give_both = |user: u32| {
            for path in [world.agent_directory("scout"), world.memory_path("scout")] {
                give(&path, user);
            }
        };
        give_both(was);
        set_mode(&world.memory_path("scout"), 0o777);
        world.reset().assert_ok();
        assert_eq!(owner_of(&world.memory_path("scout")), (was, was));
        give_both(AGENT_UID);
        world.undo("scout", UndoMode::Overwrite).assert_ok();
        assert_eq!(
            owner_of(&world.memory_path("scout")),
            (AGENT_UID, AGENT_UID),
            "{was}"
        );
    }
}

#[test]
fn undo_shows_private_bytes_to_no_other_user() {
    if !is_root() {
        return;
    }
    let world = world_with_foreign_memory();
    set_mode(&world.memory_path("scout"), 0o600);
    world.reset().assert_ok();
    fs::remove_file(world.memory_path("scout")).unwrap();
    fs::write(world.memory_path("scout"), BASELINE).unwrap();
    give(&world.memory_path("scout"), AGENT_UID);
    let refuses = |mode: UndoMode, why: &str| {
        let before = world.read_memory("scout");
        let ran = world.undo("scout", mode);
        ran.assert_outcome(Outcome::Refused);
        assert!(ran.note().contains(why), "{}", ran.note());
        assert_eq!(world.read_memory("scout"), before);
    };
    let private = "were private to user id 1234 (mode 0600)";
    refuses(UndoMode::Overwrite, private);
    world.write_memory("scout", format!("{BASELINE}- newer\n"));
    refuses(
        UndoMode::Append,
        "one of them could read private bytes of the other",
    );
    refuses(UndoMode::Overwrite, private);
    give(&world.agent_directory("scout"), OTHER_UID);
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    let memory = world.memory_path("scout");
    assert_eq!(owner_of(&memory), (OTHER_UID, OTHER_UID));
    assert_eq!(permission_bits(&memory), 0o600);
}

#[test]
fn undo_that_appends_takes_the_rights_of_both_files() {
    for (before, since) in [(0o644, 0o600), (0o600, 0o644), (0o660, 0o604)] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let memory = world.memory_path("scout");
        set_mode(&memory, before);
        world.reset().assert_ok();
        world.write_scratch("scout", "- newer\n");
        set_mode(&memory, since);
        world.undo("scout", UndoMode::Append).assert_ok();
        assert_eq!(permission_bits(&memory), before & since, "{before:o}");
    }
}

#[test]
fn archive_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    for below in ["", ".shepherd", ".shepherd/tx", "scout"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- first\n");
        world.reset().assert_ok();
        world.write_scratch("scout", "- second\n");
        let before = world.read_memory("scout");
        let directory = world.archive_directory().join(below);
        for (owner, bits, why) in [
            (OTHER_UID, 0o700, "belongs to user 1234"),
            (0, 0o707, "is writable by every user"),
            (0, 0o1707, "is writable by every user"),
        ] {
            chown(&directory, Some(owner), None).unwrap();
            set_mode(&directory, bits);
            if owner == 0 && below.starts_with(".shepherd") {
                // These files have one fixed mode, and get it back.
                continue;
            }
            let ran = world.reset();
            assert!(
                ran.result_of("scout").outcome.is_failure(),
                "{below}: {:?}",
                ran.lines
            );
            let told = ran.lines.iter().any(|line| line.contains(why));
            let trouble = ran
                .report
                .errors
                .iter()
                .any(|it| it.message().contains(why));
            assert!(told || trouble, "{below}: {:?}", ran.lines);
            assert_eq!(world.read_memory("scout"), before, "{below}");
        }
    }
}

#[test]
fn forged_record_removes_no_other_file() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    // A real record, as an interrupted run leaves it.
    let cut = |moment| match moment {
        TransportCall::After("swap") => resume_unwind(Box::new("crash")),
        _ => Ok(()),
    };
    let engine = world.engine_with_transport(InterposingTransport::new(world.disk(), cut));
    assert!(catch_unwind(AssertUnwindSafe(|| world.reset_with_engine(&engine))).is_err());
    let [record] = world.pending_journals().try_into().unwrap();
    let directory = world.archive_directory().join(".shepherd/tx");
    let text = fs::read_to_string(directory.join(&record)).unwrap();
    let staged = record.strip_prefix("scout").unwrap();
    let staged = staged.strip_suffix(".json").unwrap();
    assert!(text.contains(staged), "{text}");
    fs::remove_file(directory.join(&record)).unwrap();
    let forged = text.replace(staged, "mine");
    fs::write(directory.join(&record), forged).unwrap();
    let mine = world.agent_directory("scout").join("mine");
    fs::write(&mine, "a file of the agent's").unwrap();
    let ran = world.reset();
    assert_eq!(
        ran.report.worst_kind(),
        Some(ErrorKind::Integrity),
        "{:?}",
        ran.lines
    );
    assert!(mine.exists());
}
