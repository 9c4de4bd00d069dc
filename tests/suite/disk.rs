//! Obligations of `src/transport.rs` that only a local disk can show.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    Attributes, DisplacedObject, FailureCause, InterruptedRun, MemoryObject, NewMemory,
    SettleOutcome, SpecialFile, StagedAttributes, SwapProgress, Transport, TransportError,
};

use super::contract::{
    DiskFixture, STAGED_NAME, TransportFixture, commit_staged, interrupted_run, read_displaced,
    read_file, settle_and_collect, settle_fully, stage_file,
};
use super::world::sorted_names;
use crate::skip::skip_unsupported;

fn for_each_disk_fixture(case: impl Fn(&DiskFixture)) {
    for exchanges in [true, false] {
        case(&DiskFixture::new(exchanges));
    }
}

#[test]
fn claimed_file_size_is_ignored() {
    for_each_disk_fixture(|fixture| {
        // Files in /proc report a size of zero.
        let path = format!("/proc/{}/status", std::process::id());
        let directory = fixture.transport.open_directory(Path::new(&path)).unwrap();
        let mut bytes = Vec::new();
        let file = directory.read_memory(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!(file.unwrap().stamp.size, 0);
        assert!(bytes.starts_with(b"Name:"));
        // A growing file is read to its new end.
        fixture.write("MEMORY.md", b"old ");
        let mut bytes = Vec::new();
        let mut writer = fixture.open_writer("MEMORY.md");
        let directory = fixture.open_directory();
        let file = directory.read_memory(&mut |piece| {
            if bytes.is_empty() {
                writer(b"and new");
            }
            bytes.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!(file.unwrap().stamp.size, bytes.len() as u64);
        assert_eq!(bytes, b"old and new");
    });
}

#[test]
fn read_of_growing_file_ends() {
    let fixture = DiskFixture::new(true);
    fixture.write("MEMORY.md", b"old");
    let file = fs::File::options().write(true).open(fixture.memory_path());
    let file = file.unwrap();
    let directory = fixture.open_directory();
    let (mut size, mut seen) = (0, 0);
    let read = directory.read_memory(&mut |piece| {
        seen += piece.len() as u64;
        size = seen + (1 << 20);
        assert!(seen < 1 << 30, "endless read");
        file.set_len(size).unwrap();
        Ok(())
    });
    // The stamp reveals the bytes that were not read.
    assert_eq!(read.unwrap().stamp.size, size);
    assert!((64 << 20..65 << 20).contains(&seen), "{seen}");
    drop(file);
    // Once settled, the file is read to its end.
    let (settled, seen) = settle_fully(&fixture, directory.as_ref(), "MEMORY.md");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen.concat().len() as u64, size);
}

#[test]
fn file_larger_than_any_disk_is_refused() {
    for_each_disk_fixture(|fixture| {
        fixture.write("MEMORY.md", b"old");
        let file = fs::File::options().write(true).open(fixture.memory_path());
        if let Err(error) = file.unwrap().set_len((1 << 40) + 1) {
            skip_unsupported(format_args!("no sparse files here: {error}"));
            return;
        }
        let directory = fixture.open_directory();
        let error = directory
            .read_memory(&mut |_| panic!("it was read"))
            .unwrap_err();
        assert_eq!(error.cause, FailureCause::Refused);
        let error = Error::from(error);
        assert!(error.message().contains("more than 16 GiB"), "{error}");
        assert!(error.hints()[0].contains("truncate"), "{error:?}");
        assert!(
            directory
                .settle("MEMORY.md", &mut |object| read_displaced(
                    object,
                    &mut |_| Ok(())
                ))
                .is_err()
        );
        assert_eq!(fixture.names(), ["MEMORY.md"]);
    });
}

#[test]
fn open_directory_survives_swapped_path() {
    for_each_disk_fixture(|fixture| {
        fixture.write("MEMORY.md", b"old");
        let directory = fixture.open_directory();
        let elsewhere = fixture.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("MEMORY.md"), "precious").unwrap();
        let away = fixture.dir.path().join("away");
        fs::rename(fixture.directory(), &away).unwrap();
        symlink(&elsewhere, fixture.dir.path().join("agent")).unwrap();
        assert_eq!(read_file(directory.as_ref()), b"old");
        stage_file(directory.as_ref(), b"new");
        let swapped = commit_staged(directory.as_ref()).unwrap();
        settle_fully(fixture, directory.as_ref(), &swapped.displaced[0]);
        assert_eq!(fs::read(away.join("MEMORY.md")).unwrap(), b"new");
        assert_eq!(sorted_names(&elsewhere), ["MEMORY.md"]);
        assert_eq!(fs::read(elsewhere.join("MEMORY.md")).unwrap(), b"precious");
    });
}

#[test]
fn unfinished_new_file_has_a_known_name() {
    let fixture = DiskFixture::new(false);
    let directory = fixture.open_directory();
    fixture.write(&format!("{STAGED_NAME}-new"), b"");
    // Staging uses exactly that name.
    let stage = || {
        let inherited = StagedAttributes::Inherited;
        directory.stage(STAGED_NAME, &mut |sink| sink(b"new"), inherited)
    };
    stage().unwrap_err();
    let recovered = directory.recover(&interrupted_run(b"new")).unwrap();
    assert!(recovered.unwrap().displaced.is_empty());
    assert!(fixture.names().is_empty());
    stage().unwrap();
}

/// Creates the memory with the attributes that it inherits.
fn create_memory(fixture: &dyn TransportFixture) -> Result<Attributes, TransportError> {
    let directory = fixture.open_directory();
    let inherited = StagedAttributes::Inherited;
    directory.stage(STAGED_NAME, &mut |sink| sink(b"new"), inherited)?;
    commit_staged(directory.as_ref())?;
    Ok(fixture.read_attributes("MEMORY.md"))
}

#[test]
fn created_memory_inherits_directory_owner() {
    for_each_disk_fixture(|fixture| {
        let permissions = fs::Permissions::from_mode(0o2751);
        fs::set_permissions(fixture.directory(), permissions).unwrap();
        let inherited = create_memory(fixture).unwrap();
        assert_eq!(inherited.mode, 0o640);
        let meta = fs::metadata(fixture.directory()).unwrap();
        assert_eq!((inherited.uid, inherited.gid), (meta.uid(), meta.gid()));
    });
}

#[test]
fn created_memory_is_not_world_writable() {
    for_each_disk_fixture(|fixture| {
        for (directory, memory) in [
            (0o1777, 0o644),
            (0o777, 0o664),
            (0o2775, 0o664),
            (0o2755, 0o644),
            (0o720, 0o620),
            (0o500, 0o600),
        ] {
            fs::set_permissions(fixture.directory(), fs::Permissions::from_mode(directory))
                .unwrap();
            // Only root can use a directory without write permission.
            if let Ok(inherited) = create_memory(fixture) {
                assert_eq!(inherited.mode, memory, "{directory:o}");
                fs::remove_file(fixture.memory_path()).unwrap();
            }
        }
    });
}

#[test]
fn staged_file_gets_recorded_owner_and_mode() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    for_each_disk_fixture(|fixture| {
        let attributes = Attributes {
            uid: 65534,
            gid: 1234,
            mode: 0o4751,
            xattrs: Vec::new(),
        };
        let directory = fixture.open_directory();
        let given = StagedAttributes::Exact(attributes.clone());
        directory
            .stage(STAGED_NAME, &mut |sink| sink(b"new"), given)
            .unwrap();
        commit_staged(directory.as_ref()).unwrap();
        assert_eq!(
            fixture.read_attributes("MEMORY.md"),
            attributes.for_new_file()
        );
        assert_eq!(attributes.for_new_file().mode, 0o751);
    });
}

#[test]
fn foreign_hard_link_is_special_only_while_linked() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    for_each_disk_fixture(|fixture| {
        chown(fixture.directory(), Some(65534), Some(65534)).unwrap();
        fixture.write("MEMORY.md", b"theirs");
        chown(fixture.memory_path(), Some(1234), None).unwrap();
        assert!(matches!(fixture.probe_memory(), MemoryObject::File(_)));
        let other = fixture.dir.path().join("other");
        fs::hard_link(fixture.memory_path(), &other).unwrap();
        assert_eq!(
            fixture.probe_memory(),
            MemoryObject::Special(SpecialFile::ForeignHardLink(1234))
        );
        assert!(
            fixture
                .open_directory()
                .read_memory(&mut |_| panic!("it was read"))
                .is_err()
        );
        // Nor does it follow a symlink to a file of root's, although the test runs as
        // root.
        chown(&other, Some(0), None).unwrap();
        assert_eq!(
            fixture.probe_memory(),
            MemoryObject::Special(SpecialFile::ForeignHardLink(0))
        );
        // A symlink to a file of the directory's owner is the agent's own affair.
        chown(&other, Some(65534), None).unwrap();
        assert!(matches!(fixture.probe_memory(), MemoryObject::File(_)));
    });
}

#[test]
fn device_is_special_and_not_read() {
    for_each_disk_fixture(|fixture| {
        let directory = fixture
            .transport
            .open_directory(Path::new("/dev/null"))
            .unwrap();
        assert_eq!(
            directory.stat_memory().unwrap(),
            MemoryObject::Special(SpecialFile::Device)
        );
        assert!(
            directory
                .read_memory(&mut |_| panic!("it was read"))
                .is_err()
        );
    });
}

#[test]
fn file_opened_while_settling_is_not_removed() {
    for_each_disk_fixture(|fixture| {
        fixture.write("displaced", b"old");
        let path = fixture.directory().join("displaced");
        let directory = fixture.open_directory();
        let mut looks = 0;
        let settled = directory.settle("displaced", &mut |_| {
            looks += 1;
            // The lease makes this call fail at once, and requests the release of the
            // lease.
            let opened = fs::File::options()
                .append(true)
                .custom_flags(0o4000) // O_NONBLOCK
                .open(&path);
            assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            Ok(())
        });
        assert_eq!((settled.unwrap(), looks), (SettleOutcome::StillOpen, 1));
        // The lease was released: the agent can write, and the write is detected.
        fixture.open_writer("displaced")(b" and new");
        let (settled, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert_eq!(seen, [b"old and new"]);
    });
}

#[test]
fn opener_waiting_for_lease_is_let_in() {
    for_each_disk_fixture(|fixture| {
        fixture.write("displaced", b"old");
        let path = fixture.directory().join("displaced");
        let directory = fixture.open_directory();
        let mut opener = None;
        let settled = directory.settle("displaced", &mut |_| {
            if opener.is_none() {
                let theirs = path.clone();
                let thread = thread::spawn(move || fs::File::options().append(true).open(theirs));
                // The writer waits in the kernel until the next one is refused.
                let nonblocking = || {
                    fs::File::options()
                        .append(true)
                        .custom_flags(0o4000)
                        .open(&path)
                };
                assert!(nonblocking().is_err());
                opener = Some(thread);
            }
            Ok(())
        });
        assert_eq!(settled.unwrap(), SettleOutcome::StillOpen);
        let mut file = opener.unwrap().join().unwrap().unwrap();
        file.write_all(b" and new").unwrap();
        drop(file);
        assert_eq!(
            settle_and_collect(directory.as_ref(), "displaced").1,
            [b"old and new"]
        );
    });
}

#[test]
fn failed_swap_puts_memory_back() {
    for_each_disk_fixture(|fixture| {
        let directory = fixture.open_directory();
        stage_file(directory.as_ref(), b"new");
        fixture.write("MEMORY.md", b"old");
        fixture.replace_staged_before_swap(None);
        commit_staged(directory.as_ref()).unwrap_err();
        assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"old");
        assert_eq!(fixture.names(), ["MEMORY.md"]);
    });
}

#[test]
fn displaced_name_is_not_guessable() {
    let fixture = DiskFixture::new(false);
    let directory = fixture.open_directory();
    let mut taken = Vec::new();
    for _ in 0..2 {
        fixture.write("MEMORY.md", b"old");
        stage_file(directory.as_ref(), b"new");
        // Files with similar names are not the program's.
        fixture.write(&format!("{STAGED_NAME}-0"), b"theirs");
        fixture.write(&format!("{STAGED_NAME}.shepherd-0"), b"theirs");
        let swapped = commit_staged(directory.as_ref()).unwrap();
        let recovered = directory
            .recover(&interrupted_run(b"new"))
            .unwrap()
            .unwrap();
        assert_eq!(recovered.displaced, swapped.displaced);
        settle_fully(&fixture, directory.as_ref(), &swapped.displaced[0]);
        taken.extend(swapped.displaced);
    }
    assert_ne!(taken[0], taken[1]);
    assert_eq!(
        fixture.bytes(&format!("{STAGED_NAME}-0")).unwrap(),
        b"theirs"
    );
}

#[test]
fn write_during_leaseless_inspection_is_not_removed() {
    let fixture = DiskFixture::new(true);
    let fixture = DiskFixture {
        transport: LocalTransport::without_leases(fixture.clock.clone()),
        settles_twice: true,
        ..fixture
    };
    fixture.write("displaced", b"old");
    let directory = fixture.open_directory();
    let mut inspected = 0;
    let mut settle_once = || {
        directory.settle("displaced", &mut |object| {
            read_displaced(object, &mut |_| Ok(()))?;
            inspected += 1;
            fixture.open_writer("displaced")(b" and new");
            Ok(())
        })
    };
    // The file is too recent to decide.
    assert_eq!(settle_once().unwrap(), SettleOutcome::StillOpen);
    fixture.advance_past_second_check();
    assert_eq!(settle_once().unwrap(), SettleOutcome::StillOpen);
    assert_eq!(inspected, 1);
    let (settled, seen) = settle_fully(&fixture, directory.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: false });
    assert_eq!(seen, [b"old and new"]);
    assert!(fixture.names().is_empty());
}

#[test]
fn unwatched_files_settle_together() {
    let fixture = DiskFixture::new(true);
    let fixture = DiskFixture {
        transport: LocalTransport::without_leases(fixture.clock.clone()),
        settles_twice: true,
        ..fixture
    };
    let directory = fixture.open_directory();
    for name in ["one", "two"] {
        fixture.write(name, b"old");
        assert_eq!(
            settle_and_collect(directory.as_ref(), name).0,
            SettleOutcome::StillOpen
        );
    }
    let due = directory.next_settle_time().unwrap();
    fixture.advance_past_second_check();
    assert!(due <= fixture.clock.instant());
    for name in ["one", "two"] {
        let settled = settle_and_collect(directory.as_ref(), name).0;
        assert_eq!(settled, SettleOutcome::Removed { was_watched: false });
    }
    assert_eq!(directory.next_settle_time(), None);
}

#[test]
fn foreign_hard_link_is_kept() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    for_each_disk_fixture(|fixture| {
        let other = fixture.dir.path().join("other");
        fs::write(&other, "theirs").unwrap();
        chown(&other, Some(1234), None).unwrap();
        fs::hard_link(&other, fixture.directory().join("displaced")).unwrap();
        let directory = fixture.open_directory();
        let (settled, seen) = settle_and_collect(directory.as_ref(), "displaced");
        assert_eq!(
            settled,
            SettleOutcome::Kept(SpecialFile::ForeignHardLink(1234))
        );
        assert!(seen.is_empty());
        assert_eq!(fixture.bytes("displaced").unwrap(), b"theirs");
        // A file with only this name is settled like any other.
        fs::remove_file(&other).unwrap();
        let (settled, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert_eq!(seen, [b"theirs"]);
    });
}

#[test]
fn second_link_of_own_memory_is_removed() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    for_each_disk_fixture(|fixture| {
        fixture.write("MEMORY.md", b"new");
        chown(fixture.memory_path(), Some(1234), None).unwrap();
        fs::hard_link(fixture.memory_path(), fixture.directory().join("displaced")).unwrap();
        let directory = fixture.open_directory();
        let (settled, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert!(seen.is_empty());
        assert_eq!(fixture.names(), ["MEMORY.md"]);
    });
}

#[test]
fn unread_refuses_foreign_hard_link() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    for_each_disk_fixture(|fixture| {
        fixture.write("MEMORY.md", b"old");
        let directory = fixture.open_directory();
        assert_eq!(directory.stat_leased_memory().unwrap().stamp.size, 3);
        let other = fixture.dir.path().join("other");
        fs::write(&other, "theirs").unwrap();
        chown(&other, Some(1234), None).unwrap();
        fs::remove_file(fixture.memory_path()).unwrap();
        fs::hard_link(&other, fixture.memory_path()).unwrap();
        assert_eq!(
            directory.stat_leased_memory().unwrap_err().cause,
            FailureCause::Replaced
        );
    });
}

#[test]
fn file_replacing_symlink_is_not_removed_unread() {
    let fixture = DiskFixture::new(true);
    let directory = fixture.open_directory();
    let (away, path) = (fixture.dir.path().join("away"), fixture.directory());
    let over = Arc::new(AtomicBool::new(false));
    let racer = thread::spawn({
        let (path, over) = (path.join("displaced"), Arc::clone(&over));
        move || {
            while !over.load(Ordering::Relaxed) {
                symlink("elsewhere", &away).unwrap();
                fs::rename(&away, &path).unwrap();
                fs::write(&away, "theirs").unwrap();
                fs::rename(&away, &path).unwrap();
            }
        }
    });
    for _ in 0..1000 {
        // Only the program removes it.
        while fs::symlink_metadata(path.join("displaced")).is_err() {
            thread::yield_now();
        }
        let mut was_read = false;
        let settled = directory.settle("displaced", &mut |object| match object {
            DisplacedObject::File(_) => {
                was_read = true;
                Ok(())
            }
            // The symlink stays for the racer.
            DisplacedObject::Special(_) => Err(Error::new(ErrorKind::Partial, "not described")),
        });
        if let Ok(SettleOutcome::Removed { .. }) = settled
            && !was_read
        {
            over.store(true, Ordering::Relaxed);
            panic!("the file was present, but was not read");
        }
    }
    over.store(true, Ordering::Relaxed);
    racer.join().unwrap();
}

#[test]
fn racing_swaps_and_renames_lose_nothing() {
    for_each_disk_fixture(|fixture| {
        const SAVES: usize = 300;
        fixture.write("MEMORY.md", b"start");
        let path = fixture.directory();
        let racer = thread::spawn({
            let path = path.clone();
            move || {
                for number in 0..SAVES {
                    let temporary = path.join("temporary");
                    fs::write(&temporary, format!("save {number};")).unwrap();
                    // The agent's own replacement destroys its own bytes: the result
                    // says so.
                    fs::rename(&temporary, path.join("MEMORY.md")).unwrap();
                }
            }
        });
        let directory = fixture.open_directory();
        let mut number = 0;
        let mut seen = String::new();
        loop {
            let finished = racer.is_finished();
            number += 1;
            let name = format!("{STAGED_NAME}{number}");
            let inherited = StagedAttributes::Inherited;
            directory
                .stage(&name, &mut |sink| sink(b"new"), inherited)
                .unwrap();
            let new = NewMemory::StagedFile {
                accepts_in_place: false,
            };
            match directory.commit(&name, new) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.cause, FailureCause::Replaced),
            }
            let run = InterruptedRun {
                name,
                progress: SwapProgress::Done,
                ..interrupted_run(b"new")
            };
            for displaced in directory.recover(&run).unwrap().unwrap().displaced {
                let (settled, content) = settle_fully(fixture, directory.as_ref(), &displaced);
                assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
                seen.push_str(str::from_utf8(&content[0]).unwrap());
            }
            // At no instant is the memory empty or partial.
            let memory = fs::read_to_string(path.join("MEMORY.md"));
            match memory {
                Ok(text) => assert!(text == "new" || text.ends_with(';'), "{text}"),
                Err(_) => assert!(!fixture.can_exchange, "absent"),
            }
            if finished {
                break;
            }
        }
        racer.join().unwrap();
        assert_eq!(fixture.names(), ["MEMORY.md"]);
        assert!(
            seen.contains(&format!("save {};", SAVES - 1)),
            "the last save"
        );
    });
}

#[test]
fn xattr_flood_is_bounded() {
    // Few file systems accept that many.
    let Ok(dir) = tempfile::TempDir::new_in("/dev/shm") else {
        skip_unsupported("no /dev/shm");
        return;
    };
    let mut fixture = DiskFixture::new(true);
    fs::create_dir(dir.path().join("agent")).unwrap();
    fixture.dir = dir;
    for (count, size, named) in [(20, 60_000, 10), (400, 1, 250)] {
        fixture.write("MEMORY.md", b"old");
        let file = fs::File::open(fixture.memory_path()).unwrap();
        let mut made = 0;
        for number in 0..count {
            let name = format!("user.{number:0named$}");
            let value = vec![b'x'; size];
            let flags = rustix::fs::XattrFlags::empty();
            made += u64::from(rustix::fs::fsetxattr(&file, name, &value, flags).is_ok());
        }
        if made < count {
            println!("only {made} of {count} attributes of {size} bytes fit");
        }
        let directory = fixture.open_directory();
        let read = directory.read_memory(&mut |_| Ok(())).unwrap();
        let xattrs = &read.attributes.xattrs;
        let sum: usize = xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(sum <= 64 * 1024, "{sum}");
        assert!(made < count || read.dropped_xattrs > 0);
        assert!(made == 0 || !xattrs.is_empty() || read.dropped_xattrs > 0);
        let given = StagedAttributes::Exact(read.attributes);
        directory
            .stage(STAGED_NAME, &mut |sink| sink(b"new"), given)
            .unwrap();
        let displaced = commit_staged(directory.as_ref())
            .unwrap()
            .displaced
            .remove(0);
        settle_fully(&fixture, directory.as_ref(), &displaced);
        assert_eq!(fixture.names(), ["MEMORY.md"]);
    }
}

/// A default access control list that lets user 1234 read and write, in the form of the
/// kernel's `posix_acl_xattr.h`.
fn default_acl() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1u16, 7u16, !0u32),
        (2, 6, 1234),
        (4, 5, !0),
        (16, 7, !0),
        (32, 5, !0),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn default_acl_applies_only_to_created_files() {
    for_each_disk_fixture(|fixture| {
        fixture.write("MEMORY.md", b"old");
        let directory = fs::File::open(fixture.directory()).unwrap();
        let name = "system.posix_acl_default";
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::fsetxattr(&directory, name, &default_acl(), flags) {
            skip_unsupported(format_args!("no access control lists here: {error}"));
            return;
        }
        let directory = fixture.open_directory();
        let kept = || directory.read_memory(&mut |_| Ok(())).unwrap().attributes;
        let old = kept();
        assert!(old.xattrs.is_empty());
        let given = StagedAttributes::Exact(old.clone());
        directory
            .stage(STAGED_NAME, &mut |sink| sink(b"new"), given)
            .unwrap();
        let swapped = commit_staged(directory.as_ref()).unwrap();
        settle_fully(fixture, directory.as_ref(), &swapped.displaced[0]);
        assert!(kept().xattrs.is_empty());
        assert_eq!(fixture.read_attributes("MEMORY.md"), old);
        // A created file inherits the list.
        fs::remove_file(fixture.memory_path()).unwrap();
        stage_file(directory.as_ref(), b"new");
        commit_staged(directory.as_ref()).unwrap();
        let inherited = kept().xattrs;
        assert_eq!(inherited.len(), 1);
        assert_eq!(inherited[0].0, b"system.posix_acl_access");
    });
}
