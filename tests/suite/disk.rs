//! What only a disk can show of the obligations of `src/transport.rs`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use memory_shepherd::clock::Clock;
use memory_shepherd::error::Error;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    Attributes, FailureCause, MemoryObject, SettleOutcome, SpecialFile, Transport,
};

use super::contract::{Ground, NEW, OnDisk, read, settle, settle_wholly};
use super::world::names;

fn on_disks(case: impl Fn(&OnDisk)) {
    for exchanges in [true, false] {
        case(&OnDisk::new(exchanges));
    }
}

#[test]
fn the_size_that_a_file_claims_is_ignored() {
    on_disks(|ground| {
        // Files in /proc claim to be empty.
        let path = format!("/proc/{}/status", std::process::id());
        let folder = ground.transport.open_directory(Path::new(&path)).unwrap();
        let mut bytes = Vec::new();
        let file = folder.read_memory(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!(file.unwrap().stamp.size, 0);
        assert!(bytes.starts_with(b"Name:"));
        // One that grows is read to its new end.
        ground.write("MEMORY.md", b"old ");
        let mut bytes = Vec::new();
        let mut writer = ground.writer("MEMORY.md");
        let folder = ground.open();
        let file = folder.read_memory(&mut |piece| {
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
fn a_file_that_grows_as_fast_as_it_is_read_comes_to_an_end() {
    let ground = OnDisk::new(true);
    ground.write("MEMORY.md", b"old");
    let file = fs::File::options().write(true).open(ground.memory());
    let file = file.unwrap();
    let folder = ground.open();
    let (mut size, mut seen) = (0, 0);
    let read = folder.read_memory(&mut |piece| {
        seen += piece.len() as u64;
        size = seen + (1 << 20);
        assert!(seen < 1 << 30, "it never ends");
        file.set_len(size).unwrap();
        Ok(())
    });
    // What was not read is told by the stamp.
    assert_eq!(read.unwrap().stamp.size, size);
    assert!((64 << 20..65 << 20).contains(&seen), "{seen}");
    drop(file);
    // Settled, it is read to its end.
    let mut whole = 0;
    let settled = folder.settle("MEMORY.md", &mut |read| {
        read(&mut |piece| {
            whole += piece.len() as u64;
            Ok(())
        })?;
        Ok(())
    });
    assert_eq!(
        settled.unwrap(),
        SettleOutcome::Removed { was_watched: true }
    );
    assert_eq!(whole, size);
}

#[test]
fn a_file_that_claims_more_than_any_disk_holds_is_refused() {
    on_disks(|ground| {
        ground.write("MEMORY.md", b"old");
        let file = fs::File::options().write(true).open(ground.memory());
        if let Err(error) = file.unwrap().set_len((1 << 40) + 1) {
            println!("skipped: no sparse files here: {error}");
            return;
        }
        let folder = ground.open();
        let error = folder
            .read_memory(&mut |_| panic!("it was read"))
            .unwrap_err();
        assert_eq!(error.cause, FailureCause::Refused);
        let error = Error::from(error);
        assert!(error.message().contains("more than 16 GiB"), "{error}");
        assert!(error.hints()[0].contains("truncate"), "{error:?}");
        assert!(
            folder
                .settle(
                    "MEMORY.md",
                    &mut |read| Ok(read(&mut |_| Ok(())).map(drop)?)
                )
                .is_err()
        );
        assert_eq!(ground.names(), ["MEMORY.md"]);
    });
}

#[test]
fn an_open_folder_stays_the_same_whatever_is_swapped_into_its_path() {
    on_disks(|ground| {
        ground.write("MEMORY.md", b"old");
        let folder = ground.open();
        let elsewhere = ground.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("MEMORY.md"), "precious").unwrap();
        let away = ground.dir.path().join("away");
        fs::rename(ground.folder(), &away).unwrap();
        symlink(&elsewhere, ground.dir.path().join("agent")).unwrap();
        assert_eq!(read(folder.as_ref()), b"old");
        let attributes = folder.inherited_attributes(NEW).unwrap();
        let new = folder
            .stage(NEW, &mut |sink| sink(b"new"), &attributes)
            .unwrap();
        folder.link_staged(NEW).unwrap();
        let swapped = folder.swap(NEW, new).unwrap();
        settle_wholly(ground, folder.as_ref(), &swapped.displaced[0]);
        assert_eq!(fs::read(away.join("MEMORY.md")).unwrap(), b"new");
        assert_eq!(names(&elsewhere), ["MEMORY.md"]);
        assert_eq!(fs::read(elsewhere.join("MEMORY.md")).unwrap(), b"precious");
    });
}

#[test]
fn what_a_crash_leaves_of_a_look_at_a_new_file_has_a_name_that_is_known() {
    let ground = OnDisk::new(false);
    let folder = ground.open();
    ground.write(&format!("{NEW}-new"), b"");
    // It is that name and no other that is used.
    folder.inherited_attributes(NEW).unwrap_err();
    folder.remove_unfinished_staging(NEW).unwrap();
    folder.inherited_attributes(NEW).unwrap();
    assert!(ground.names().is_empty());
}

#[test]
fn a_created_memory_takes_after_its_folder() {
    on_disks(|ground| {
        let permissions = fs::Permissions::from_mode(0o2751);
        fs::set_permissions(ground.folder(), permissions).unwrap();
        let inherited = ground.open().inherited_attributes(NEW).unwrap();
        assert_eq!(inherited.mode, 0o640);
        let meta = fs::metadata(ground.folder()).unwrap();
        assert_eq!((inherited.uid, inherited.gid), (meta.uid(), meta.gid()));
    });
}

#[test]
fn created_memory_is_not_writable_by_everybody() {
    on_disks(|ground| {
        for (folder, memory) in [
            (0o1777, 0o644),
            (0o777, 0o664),
            (0o2775, 0o664),
            (0o2755, 0o644),
            (0o720, 0o620),
            (0o500, 0o600),
        ] {
            fs::set_permissions(ground.folder(), fs::Permissions::from_mode(folder)).unwrap();
            let inherited = ground.open().inherited_attributes(NEW);
            // A folder without the right to write is for root alone.
            if let Ok(inherited) = inherited {
                assert_eq!(inherited.mode, memory, "{folder:o}");
            }
        }
    });
}

#[test]
fn a_staged_file_gets_any_owner_and_permission() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    on_disks(|ground| {
        let attributes = Attributes {
            uid: 65534,
            gid: 1234,
            mode: 0o4751,
            xattrs: Vec::new(),
        };
        let folder = ground.open();
        folder
            .stage(NEW, &mut |sink| sink(b"new"), &attributes)
            .unwrap();
        folder.link_staged(NEW).unwrap();
        assert_eq!(ground.attributes(NEW), attributes.for_new_file());
        assert_eq!(attributes.for_new_file().mode, 0o751);
    });
}

#[test]
fn a_further_name_of_a_foreign_file_is_odd_and_its_only_name_is_not() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    on_disks(|ground| {
        chown(ground.folder(), Some(65534), Some(65534)).unwrap();
        ground.write("MEMORY.md", b"theirs");
        chown(ground.memory(), Some(1234), None).unwrap();
        assert!(matches!(ground.probe(), MemoryObject::File(_)));
        let other = ground.dir.path().join("other");
        fs::hard_link(ground.memory(), &other).unwrap();
        assert_eq!(
            ground.probe(),
            MemoryObject::Special(SpecialFile::ForeignHardLink(1234))
        );
        assert!(
            ground
                .open()
                .read_memory(&mut |_| panic!("it was read"))
                .is_err()
        );
        // Nor is one to a file of root's, though we are root.
        chown(&other, Some(0), None).unwrap();
        assert_eq!(
            ground.probe(),
            MemoryObject::Special(SpecialFile::ForeignHardLink(0))
        );
        // A link to a file of the folder's owner is the agent's own affair.
        chown(&other, Some(65534), None).unwrap();
        assert!(matches!(ground.probe(), MemoryObject::File(_)));
    });
}

#[test]
fn a_device_is_odd_and_not_read() {
    on_disks(|ground| {
        let folder = ground
            .transport
            .open_directory(Path::new("/dev/null"))
            .unwrap();
        assert_eq!(
            folder.stat_memory().unwrap(),
            MemoryObject::Special(SpecialFile::Device)
        );
        assert!(folder.read_memory(&mut |_| panic!("it was read")).is_err());
    });
}

#[test]
fn whoever_opens_a_file_while_it_is_settled_gets_it() {
    on_disks(|ground| {
        ground.write("displaced", b"old");
        let path = ground.folder().join("displaced");
        let folder = ground.open();
        let mut looks = 0;
        let settled = folder.settle("displaced", &mut |_| {
            looks += 1;
            // The lease makes this fail at once, and asks for it to be given up.
            let opened = fs::File::options()
                .append(true)
                .custom_flags(0o4000) // O_NONBLOCK
                .open(&path);
            assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            Ok(())
        });
        assert_eq!((settled.unwrap(), looks), (SettleOutcome::StillOpen, 1));
        // It was given up: the agent can write, and is heard.
        ground.writer("displaced")(b" and new");
        let (settled, seen) = settle_wholly(ground, folder.as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert_eq!(seen, [b"old and new"]);
    });
}

#[test]
fn an_opener_that_waits_for_the_lease_is_let_in() {
    on_disks(|ground| {
        ground.write("displaced", b"old");
        let path = ground.folder().join("displaced");
        let folder = ground.open();
        let mut opener = None;
        let settled = folder.settle("displaced", &mut |_| {
            if opener.is_none() {
                let theirs = path.clone();
                let thread = thread::spawn(move || fs::File::options().append(true).open(theirs));
                // It waits in the kernel as soon as somebody else is turned away.
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
        assert_eq!(settle(folder.as_ref(), "displaced").1, [b"old and new"]);
    });
}

#[test]
fn a_memory_that_nothing_can_replace_is_put_back() {
    let ground = OnDisk::new(false);
    let folder = ground.open();
    let attributes = folder.inherited_attributes(NEW).unwrap();
    let content = &mut |sink: memory_shepherd::transport::ByteSink<'_>| sink(b"new");
    let new = folder.stage(NEW, content, &attributes).unwrap();
    folder.link_staged(NEW).unwrap();
    ground.write("MEMORY.md", b"old");
    folder.remove_name(NEW).unwrap();
    folder.swap(NEW, new).unwrap_err();
    assert_eq!(ground.bytes("MEMORY.md").unwrap(), b"old");
    assert_eq!(ground.names(), ["MEMORY.md"]);
}

#[test]
fn nobody_guesses_where_a_memory_is_taken() {
    let ground = OnDisk::new(false);
    let folder = ground.open();
    let attributes = folder.inherited_attributes(NEW).unwrap();
    let mut taken = Vec::new();
    for _ in 0..2 {
        ground.write("MEMORY.md", b"old");
        let content = &mut |sink: memory_shepherd::transport::ByteSink<'_>| sink(b"new");
        let new = folder.stage(NEW, content, &attributes).unwrap();
        folder.link_staged(NEW).unwrap();
        // Names that look alike are not ours.
        ground.write(&format!("{NEW}-0"), b"theirs");
        ground.write(&format!("{NEW}.shepherd-0"), b"theirs");
        folder.link_staged(NEW).unwrap();
        let swapped = folder.swap(NEW, new).unwrap();
        assert_eq!(folder.displaced_names(NEW).unwrap(), swapped.displaced);
        folder.remove_name(&swapped.displaced[0]).unwrap();
        taken.extend(swapped.displaced);
    }
    assert_ne!(taken[0], taken[1]);
    assert_eq!(ground.bytes(&format!("{NEW}-0")).unwrap(), b"theirs");
}

#[test]
fn a_write_while_a_file_is_inspected_without_a_lease_is_not_removed() {
    let ground = OnDisk::new(true);
    let ground = OnDisk {
        transport: LocalTransport::without_leases(ground.clock.clone()),
        looks_twice: true,
        ..ground
    };
    ground.write("displaced", b"old");
    let folder = ground.open();
    let mut inspected = 0;
    let mut settle_once = || {
        folder.settle("displaced", &mut |read| {
            read(&mut |_| Ok(()))?;
            inspected += 1;
            ground.writer("displaced")(b" and new");
            Ok(())
        })
    };
    // It is too early to tell.
    assert_eq!(settle_once().unwrap(), SettleOutcome::StillOpen);
    ground.wait();
    assert_eq!(settle_once().unwrap(), SettleOutcome::StillOpen);
    assert_eq!(inspected, 1);
    let (settled, seen) = settle_wholly(&ground, folder.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: false });
    assert_eq!(seen, [b"old and new"]);
    assert!(ground.names().is_empty());
}

#[test]
fn unwatched_files_wait_together() {
    let ground = OnDisk::new(true);
    let ground = OnDisk {
        transport: LocalTransport::without_leases(ground.clock.clone()),
        looks_twice: true,
        ..ground
    };
    let folder = ground.open();
    for name in ["one", "two"] {
        ground.write(name, b"old");
        assert_eq!(settle(folder.as_ref(), name).0, SettleOutcome::StillOpen);
    }
    let due = folder.next_settle_time().unwrap();
    ground.wait();
    assert!(due <= ground.clock.instant());
    for name in ["one", "two"] {
        let settled = settle(folder.as_ref(), name).0;
        assert_eq!(settled, SettleOutcome::Removed { was_watched: false });
    }
    assert_eq!(folder.next_settle_time(), None);
}

#[test]
fn further_name_of_a_foreign_file_is_kept() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    on_disks(|ground| {
        let other = ground.dir.path().join("other");
        fs::write(&other, "theirs").unwrap();
        chown(&other, Some(1234), None).unwrap();
        fs::hard_link(&other, ground.folder().join("displaced")).unwrap();
        let folder = ground.open();
        let (settled, seen) = settle(folder.as_ref(), "displaced");
        assert_eq!(
            settled,
            SettleOutcome::Kept(SpecialFile::ForeignHardLink(1234))
        );
        assert!(seen.is_empty());
        assert_eq!(ground.bytes("displaced").unwrap(), b"theirs");
        // As its only name it is settled like any other.
        fs::remove_file(&other).unwrap();
        let (settled, seen) = settle_wholly(ground, folder.as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert_eq!(seen, [b"theirs"]);
    });
}

#[test]
fn second_name_of_the_memory_itself_is_removed() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    on_disks(|ground| {
        ground.write("MEMORY.md", b"new");
        chown(ground.memory(), Some(1234), None).unwrap();
        fs::hard_link(ground.memory(), ground.folder().join("displaced")).unwrap();
        let (settled, seen) = settle(ground.open().as_ref(), "displaced");
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert!(seen.is_empty());
        assert_eq!(ground.names(), ["MEMORY.md"]);
    });
}

#[test]
fn unread_refuses_a_further_name_of_a_foreign_file() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    on_disks(|ground| {
        ground.write("MEMORY.md", b"old");
        let folder = ground.open();
        assert_eq!(folder.stat_leased_memory().unwrap().stamp.size, 3);
        let other = ground.dir.path().join("other");
        fs::write(&other, "theirs").unwrap();
        chown(&other, Some(1234), None).unwrap();
        fs::remove_file(ground.memory()).unwrap();
        fs::hard_link(&other, ground.memory()).unwrap();
        assert_eq!(
            folder.stat_leased_memory().unwrap_err().cause,
            FailureCause::Replaced
        );
    });
}

#[test]
fn a_file_that_takes_the_place_of_a_link_is_not_said_to_be_removed() {
    let ground = OnDisk::new(true);
    let folder = ground.open();
    let (away, path) = (ground.dir.path().join("away"), ground.folder());
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
        // Nobody but us removes it.
        while fs::symlink_metadata(path.join("displaced")).is_err() {
            thread::yield_now();
        }
        let (settled, seen) = settle(folder.as_ref(), "displaced");
        if let SettleOutcome::Removed { .. } = settled
            && seen.is_empty()
        {
            over.store(true, Ordering::Relaxed);
            panic!("it stood there, and was not read");
        }
    }
    over.store(true, Ordering::Relaxed);
    racer.join().unwrap();
}

#[test]
fn racing_swaps_and_renames_lose_nothing() {
    on_disks(|ground| {
        const SAVES: usize = 300;
        ground.write("MEMORY.md", b"start");
        let path = ground.folder();
        let racer = thread::spawn({
            let path = path.clone();
            move || {
                for number in 0..SAVES {
                    let temporary = path.join("temporary");
                    fs::write(&temporary, format!("save {number};")).unwrap();
                    // What it replaces itself is its own loss: it says so.
                    fs::rename(&temporary, path.join("MEMORY.md")).unwrap();
                }
            }
        });
        let folder = ground.open();
        let mut number = 0;
        let mut seen = String::new();
        loop {
            let finished = racer.is_finished();
            number += 1;
            let name = format!("{NEW}{number}");
            let attributes = folder.inherited_attributes(NEW).unwrap();
            let new = folder
                .stage(&name, &mut |sink| sink(b"new"), &attributes)
                .unwrap();
            folder.link_staged(&name).unwrap();
            match folder.swap(&name, new) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.cause, FailureCause::Replaced),
            }
            for displaced in folder.displaced_names(&name).unwrap() {
                let (settled, content) = settle_wholly(ground, folder.as_ref(), &displaced);
                assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
                seen.push_str(str::from_utf8(&content[0]).unwrap());
            }
            // At no instant is it empty or half.
            let memory = fs::read_to_string(path.join("MEMORY.md"));
            match memory {
                Ok(text) => assert!(text == "new" || text.ends_with(';'), "{text}"),
                Err(_) => assert!(!ground.exchanges, "absent"),
            }
            if finished {
                break;
            }
        }
        racer.join().unwrap();
        assert_eq!(ground.names(), ["MEMORY.md"]);
        assert!(
            seen.contains(&format!("save {};", SAVES - 1)),
            "the last save"
        );
    });
}

#[test]
fn a_flood_of_attributes_is_bounded_and_holds_up_nothing() {
    // Few file systems take that many.
    let Ok(dir) = tempfile::TempDir::new_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let mut ground = OnDisk::new(true);
    fs::create_dir(dir.path().join("agent")).unwrap();
    ground.dir = dir;
    for (count, size, named) in [(20, 60_000, 10), (400, 1, 250)] {
        ground.write("MEMORY.md", b"old");
        let file = fs::File::open(ground.memory()).unwrap();
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
        let folder = ground.open();
        let read = folder.read_memory(&mut |_| Ok(())).unwrap();
        let xattrs = &read.attributes.xattrs;
        let sum: usize = xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(sum <= 64 * 1024, "{sum}");
        assert!(made < count || read.dropped_xattrs > 0);
        assert!(made == 0 || !xattrs.is_empty() || read.dropped_xattrs > 0);
        let attributes = read.attributes;
        let new = folder
            .stage(NEW, &mut |sink| sink(b"new"), &attributes)
            .unwrap();
        folder.link_staged(NEW).unwrap();
        let displaced = folder.swap(NEW, new).unwrap().displaced.remove(0);
        settle_wholly(&ground, folder.as_ref(), &displaced);
        assert_eq!(ground.names(), ["MEMORY.md"]);
    }
}

/// A default access control list that lets user 1234 read and write, in the form
/// of the kernel's `posix_acl_xattr.h`.
fn default_list() -> Vec<u8> {
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
fn a_default_access_control_list_is_for_new_files_and_not_for_replaced_ones() {
    on_disks(|ground| {
        ground.write("MEMORY.md", b"old");
        let folder = fs::File::open(ground.folder()).unwrap();
        let name = "system.posix_acl_default";
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::fsetxattr(&folder, name, &default_list(), flags) {
            println!("skipped: no access control lists here: {error}");
            return;
        }
        let folder = ground.open();
        let kept = || folder.read_memory(&mut |_| Ok(())).unwrap().attributes;
        let old = kept();
        assert!(old.xattrs.is_empty());
        let new = folder.stage(NEW, &mut |sink| sink(b"new"), &old).unwrap();
        folder.link_staged(NEW).unwrap();
        folder.swap(NEW, new).unwrap();
        assert!(kept().xattrs.is_empty());
        assert_eq!(ground.attributes("MEMORY.md"), old);
        // A created one gets the list.
        folder.move_memory_aside("aside").unwrap();
        let inherited = folder.inherited_attributes(NEW).unwrap();
        assert_eq!(inherited.xattrs.len(), 1);
        let new = folder
            .stage("created", &mut |sink| sink(b"new"), &inherited)
            .unwrap();
        folder.link_staged("created").unwrap();
        folder.swap("created", new).unwrap();
        assert_eq!(kept().xattrs, inherited.xattrs);
    });
}
