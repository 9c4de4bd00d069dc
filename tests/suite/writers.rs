//! Agents that write during a reset. Their bytes are in the memory, in an entry, or in
//! a displaced file that the next run archives.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fake_transport::FakeTransport;
use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{MAX_WINDOW_BYTES, Operation, Outcome, State, UndoMode};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{FailureCause, TransportError};

use super::world::{BASELINE, InterposingTransport, TransportCall, World, sorted_names};
use crate::skip::skip_unsupported;

/// A descriptor that an agent opened long ago.
fn open_for_append(path: &Path) -> fs::File {
    fs::File::options().append(true).open(path).unwrap()
}

/// The agent `scout` has its memory open, and writes to it while the run waits for its
/// lease.
pub fn append_while_settling(world: &World) {
    let mut file = Some(open_for_append(&world.memory_path("scout")));
    let mut sleeps = 0;
    world.clock.on_sleep(move || {
        sleeps += 1;
        match sleeps {
            3 => file.as_mut().unwrap().write_all(b"- late\n").unwrap(),
            5 => drop(file.take()),
            _ => {}
        }
    });
}

#[test]
fn late_write_through_old_descriptor_is_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    append_while_settling(&world);
    let ran = world.reset();
    let [first, late] = ran.assert_ok().entries.as_slice() else {
        panic!("{:?}", ran.assert_ok().entries)
    };
    assert_eq!(
        (first.kind, late.kind),
        (EntryKind::Scratch, EntryKind::Appended)
    );
    assert!(late.path.ends_with("2026-03-14_0900-appended.md"));
    assert_eq!(world.read_entry(late), b"- late\n");
    let whole = format!("{BASELINE}- early\n- late\n");
    let digest = Digest::of(whole.as_bytes());
    assert_eq!(late.whole_content(), (digest, whole.len() as u64));
    assert!(
        ran.note().contains("a late write was archived"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.leftovers("scout").is_empty());
    assert_eq!(
        world.read_records()[0].event.change.late_entries.as_slice(),
        &ran.assert_ok().entries[1..]
    );
}

/// An agent that writes to the displaced file after each inspection, by a save of the
/// given kind, so that the file never settles.
fn write_after_each_inspection(
    world: &World,
    saves: usize,
    save: impl Fn(&mut fs::File, usize) + Send + 'static,
) -> Arc<InterposingTransport> {
    let directory = world.agent_directory("scout");
    let mut saved = 0;
    InterposingTransport::new(world.disk(), move |moment| {
        let mut displaced = sorted_names(&directory).into_iter();
        let displaced = displaced.find(|name| name.starts_with(".shepherd-"));
        let Some(path) = displaced.map(|name| directory.join(name)) else {
            return Ok(());
        };
        let writable = || fs::File::options().read(true).write(true).clone();
        match moment {
            // An open call requests the lease back, so the file is not removed.
            TransportCall::After("inspect") if saved < saves => {
                let opened = writable().custom_flags(libc::O_NONBLOCK).open(&path);
                assert!(opened.is_err(), "there is a lease");
            }
            TransportCall::After("settle") if saved < saves => {
                saved += 1;
                save(&mut writable().open(&path).unwrap(), saved);
            }
            _ => {}
        }
        Ok(())
    })
}

/// Returns the sizes of an agent's entries except the first.
fn late_entry_sizes(world: &World) -> Vec<u64> {
    let records = world.read_records();
    let late = records
        .iter()
        .flat_map(|record| &record.event.change.late_entries);
    late.map(|written| written.size).collect()
}

#[test]
fn late_entries_hold_only_appended_bytes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n".repeat(100_000));
    let before = world.read_memory("scout");
    let transport = write_after_each_inspection(&world, 3, |file, number| {
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(format!("- late {number}\n").as_bytes())
            .unwrap();
    });
    world
        .reset_with_engine(&world.engine_with_transport(transport))
        .assert_ok();
    assert_eq!(late_entry_sizes(&world), [9, 9, 9]);
    assert!(world.leftovers("scout").is_empty());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let after = [&before[..], b"- late 1\n- late 2\n- late 3\n"].concat();
    assert!(world.read_memory("scout") == after);
}

#[test]
fn constantly_changing_file_is_archived_boundedly() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n".repeat(1000));
    // Another beginning each time, so that each would be a whole entry.
    let size = world.read_memory("scout").len() as u64;
    let transport = write_after_each_inspection(&world, 1000, |file, number| {
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&(number as u64).to_le_bytes()).unwrap();
    });
    let engine = world.engine_with_transport(transport);
    let ran = world.reset_with_engine(&engine);
    ran.assert_ok();
    assert!(ran.note().contains("keeps changing"), "{}", ran.note());
    assert_eq!(late_entry_sizes(&world), [size; 4]);
    let [left] = world.leftovers("scout").try_into().unwrap();
    let left = world.agent_directory("scout").join(left);
    for byte in b'a'..=b't' {
        let mut bytes = fs::read(&left).unwrap();
        bytes[0] = byte;
        fs::write(&left, bytes).unwrap();
        world
            .reset_with_engine(&engine)
            .assert_outcome(Outcome::Unchanged);
    }
    assert_eq!(late_entry_sizes(&world), [size; 16]);
    assert_eq!(world.pending_journals().len(), 1);
    // When the agent stops, the next run finds the file as the last one did.
    let last = fs::read(&left).unwrap();
    world.reset().assert_outcome(Outcome::Unchanged);
    assert_eq!(late_entry_sizes(&world), [size; 17]);
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout") == last);
}

#[test]
fn late_entry_without_base_is_whole_file() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    append_while_settling(&world);
    world.reset().assert_ok();
    let whole = format!("{BASELINE}- early\n- late\n");
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let mut record: serde_json::Value =
        serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    record["late"] = serde_json::json!([{
        "path": "scout/2026-03-14_0900-late.md",
        "kind": "late",
        "digest": Digest::of(whole.as_bytes()),
        "size": whole.len(),
    }]);
    fs::write(&ledger, format!("{record}\n")).unwrap();
    let entry = world
        .archive_directory()
        .join("scout/2026-03-14_0900-late.md");
    fs::write(entry, &whole).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), whole.as_bytes());
}

#[test]
fn idle_old_descriptor_makes_no_late_entry() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut file = Some(open_for_append(&world.memory_path("scout")));
    world.clock.on_sleep(move || drop(file.take()));
    assert_eq!(world.reset().assert_ok().entries.len(), 1);
    assert!(world.leftovers("scout").is_empty());
}

#[test]
fn idle_writer_is_settled_by_next_clean_run() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut file = open_for_append(&world.memory_path("scout"));
    let ran = world.reset();
    // Not a failure, but the run reports it.
    assert_eq!(ran.assert_ok().entries.len(), 1);
    let [left] = world.leftovers("scout").try_into().unwrap();
    assert!(
        ran.note().contains(&format!("it stays as {left}")),
        "{}",
        ran.note()
    );
    assert_eq!(world.pending_journals().len(), 1);
    file.write_all(b"- late\n").unwrap();
    // Still open: the next run reports it, and does not wait.
    let ran = world.reset();
    ran.assert_outcome(Outcome::Unchanged);
    assert!(
        ran.lines.iter().any(|line| line.contains("a writer has")),
        "{:?}",
        ran.lines
    );
    assert_eq!(world.leftovers("scout"), [left.as_str()]);
    drop(file);
    world.reset().assert_outcome(Outcome::Unchanged);
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
    assert!(world.preserves("scout", b"- early\n- late\n"));
    let records = world.read_records();
    let repair = records
        .iter()
        .find(|r| r.event.operation == Operation::Repair)
        .unwrap();
    assert_eq!(repair.event.run, records[0].event.run);
    assert_eq!(repair.event.change.late_entries.len(), 1);
    assert_eq!(repair.event.outcome, Outcome::Ok);
    // It does not count as a run: the last run is still the operator's.
    assert_eq!(
        world.observe("scout").last_run.unwrap().operation,
        Operation::Reset
    );
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(
        world
            .read_memory("scout")
            .ends_with(b"---\n- early\n- late\n")
    );
}

#[test]
fn open_writer_does_not_block_later_resets() {
    let world = World::new(&["scout"]);
    let mut files = Vec::new();
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        files.push(open_for_append(&world.memory_path("scout")));
        world.reset().assert_ok();
        assert_eq!(world.leftovers("scout").len(), files.len());
    }
    for file in &mut files {
        file.write_all(b"- late\n").unwrap();
    }
    drop(files);
    world.reset().assert_outcome(Outcome::Unchanged);
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
    for note in ["- one\n- late\n", "- two\n- late\n", "- three\n- late\n"] {
        assert!(world.preserves("scout", note.as_bytes()), "{note}");
    }
}

#[test]
fn save_between_read_and_swap_is_archived() {
    for by_rename in [false, true] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- early\n");
        let memory = world.memory_path("scout");
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before("swap") {
                let path = match by_rename {
                    true => memory.with_extension("tmp"),
                    false => memory.clone(),
                };
                fs::write(&path, "saved just now").unwrap();
                fs::rename(&path, &memory).unwrap();
            }
            Ok(())
        });
        let ran = world.reset_with_engine(&world.engine_with_transport(transport));
        assert_eq!(ran.assert_ok().entries[1].kind, EntryKind::Late);
        assert_eq!(
            world.read_entry(&ran.assert_ok().entries[1]),
            b"saved just now"
        );
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
}

/// A large displaced file is compared with its entry, not hashed.
#[test]
fn change_to_large_memory_during_swap_is_archived() {
    type BytesChange = fn(&mut Vec<u8>);
    let changes: [(&str, BytesChange); 5] = [
        ("nothing", |_| {}),
        ("a byte in the middle", |bytes| bytes[3_000_000] = b'!'),
        ("a byte of the rules", |bytes| bytes[3] = b'!'),
        ("one more byte", |bytes| bytes.push(b'!')),
        ("one byte less", |bytes| bytes.truncate(bytes.len() - 1)),
    ];
    for drifted in [false, true] {
        for (what, change) in changes {
            let world = World::new(&["scout"]);
            world.write_scratch("scout", "- a line of an agent's\n".repeat(250_000));
            if drifted {
                let text = world.read_memory("scout");
                world.write_memory("scout", [b"# Mine\n", &text[..]].concat());
            }
            let before = world.read_memory("scout");
            let mut changed = before.clone();
            change(&mut changed);
            let (memory, late) = (world.memory_path("scout"), changed.clone());
            let transport = InterposingTransport::new(world.disk(), move |moment| {
                if moment == TransportCall::Before("swap") {
                    fs::write(&memory, &late).unwrap();
                }
                Ok(())
            });
            let ran = world.reset_with_engine(&world.engine_with_transport(transport));
            assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
            let entries = &ran.assert_ok().entries;
            match changed == before {
                true => assert_eq!(entries.len(), 1, "{what}"),
                false => {
                    assert_eq!(entries.len(), 2, "{what}, drifted: {drifted}");
                    let late = world.read_entry(&entries[1]);
                    match entries[1].kind {
                        EntryKind::Appended => assert_eq!(late, b"!", "{what}"),
                        _ => assert!(late == changed, "{what}"),
                    }
                }
            }
            assert_eq!(
                world.undo("scout", UndoMode::Refuse).assert_ok().outcome,
                Outcome::Ok
            );
            assert!(world.read_memory("scout") == changed, "{what}");
        }
    }
}

#[test]
fn memory_appearing_during_creation_is_archived() {
    let world = World::new(&["scout"]);
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::write(&memory, "re-seeded").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    ran.assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.preserves("scout", b"re-seeded"));
}

#[test]
fn write_after_reset_is_not_a_failure() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::After("settle") {
            fs::write(&memory, "mine again").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    ran.assert_ok();
    assert!(
        ran.note().contains("changed the memory since"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read_memory("scout"), b"mine again");
    // Scratch below the new content is usual, and not even noted.
    world.write_scratch("scout", "- early\n");
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::After("settle") {
            open_for_append(&memory).write_all(b"- next\n").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.assert_ok().note, None);
}

/// A swap that reports a concurrent change after it has exchanged the files.
#[test]
fn lost_swap_race_resets_again_and_undoes_to_last() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory_path("scout");
    let swaps = AtomicUsize::new(0);
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::After("swap") && swaps.fetch_add(1, Ordering::Relaxed) == 0 {
            let temporary = memory.with_extension("tmp");
            fs::write(&temporary, format!("{BASELINE}- quick\n")).unwrap();
            fs::rename(&temporary, &memory).unwrap();
            let error = Error::new(ErrorKind::Conflict, "replaced by another process");
            return Err(TransportError::new(FailureCause::Replaced, error));
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    ran.assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.preserves("scout", b"- early\n"));
    assert!(world.preserves("scout", b"- quick\n"));
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
    // Both attempts are in the ledger; the undo restores the content that the last one
    // displaced.
    let changed = world
        .read_records()
        .into_iter()
        .filter(|r| r.event.has_changed_memory());
    assert_eq!(changed.count(), 2);
    let run = memory_shepherd::engine::UndoTarget::Run(ran.report.run);
    let undone = world.undo_target(&run, UndoMode::Refuse);
    assert_eq!(undone.report.results.len(), 1);
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- quick\n").as_bytes()
    );
}

#[test]
fn unarchivable_displaced_file_fails_and_stays() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory_path("scout");
    let archive = world.archive_directory();
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        match moment {
            TransportCall::Before("swap") => fs::write(&memory, "saved just now").unwrap(),
            // The archive disappears.
            TransportCall::Before("settle") => {
                fs::rename(archive.join("scout"), archive.join("away")).unwrap();
                fs::write(archive.join("scout"), "in the way").unwrap();
            }
            _ => {}
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    let result = ran.assert_outcome(Outcome::Ok);
    assert_eq!(
        result.kind,
        Some(ErrorKind::Host),
        "the memory was replaced, but the run did not succeed"
    );
    assert_eq!(world.leftovers("scout").len(), 1);
    let archive = world.archive_directory();
    fs::remove_file(archive.join("scout")).unwrap();
    fs::rename(archive.join("away"), archive.join("scout")).unwrap();
    world.reset().assert_outcome(Outcome::Unchanged);
    assert!(world.preserves("scout", b"saved just now"));
    assert!(world.leftovers("scout").is_empty());
}

#[test]
fn dropped_attributes_are_reported() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    let memory = world.memory_path("scout");
    fake.make_directory(world.agent_directory("scout"), 1000, 100, 0o755);
    fake.write_file(&memory, format!("{BASELINE}- old\n").as_bytes());
    let mut attributes = fake.attributes(&memory).unwrap();
    attributes.xattrs = (0..1000)
        .map(|number| (format!("user.{number}").into_bytes(), vec![b'x'; 60_000]))
        .collect();
    let label = (b"security.label".to_vec(), b"kept".to_vec());
    attributes.xattrs.push(label.clone());
    fake.set_attributes(&memory, attributes);
    let ran = world.reset_with_engine(&world.engine_with_transport(Arc::new(fake.clone())));
    ran.assert_ok();
    assert!(
        ran.note().contains("999 or more extended attributes"),
        "{}",
        ran.note()
    );
    let kept = fake.attributes(&memory).unwrap().xattrs;
    assert_eq!(kept.len(), 2);
    assert!(kept.contains(&label));
    let ledger = fs::metadata(world.archive_directory().join(".shepherd/ledger.jsonl"));
    assert!(ledger.unwrap().len() < 200_000);
}

#[test]
fn memory_larger_than_window_is_restored_exactly() {
    let drifted = BASELINE.replace("kind", "cruel");
    for above in [BASELINE, &drifted, "no rule\n"] {
        for size in [
            MAX_WINDOW_BYTES - 1,
            MAX_WINDOW_BYTES,
            MAX_WINDOW_BYTES + 1,
            3 * MAX_WINDOW_BYTES + 7,
        ] {
            let world = World::new(&["scout"]).with_general("max_memory_size = 1000000000");
            let mut bytes = above.as_bytes().to_vec();
            bytes.extend((0..size - above.len()).map(|n| (n % 251) as u8));
            world.write_memory("scout", &bytes);
            let ran = world.reset();
            assert_eq!(ran.assert_ok().entries.len(), 1);
            assert!(
                world
                    .read_entry(&ran.assert_ok().entries[0])
                    .ends_with(&bytes[above.len()..])
            );
            world.undo("scout", UndoMode::Refuse).assert_ok();
            assert!(world.read_memory("scout") == bytes);
        }
    }
}

#[test]
fn memory_of_100_mb_is_reset() {
    const SIZE: u64 = 100 << 20;
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- beginning\n");
    let file = open_for_append(&world.memory_path("scout"));
    file.set_len(SIZE).unwrap();
    drop(file);
    assert_eq!(world.observe("scout").state, State::Oversize);
    let ran = world.reset();
    let entry = &ran.assert_ok().entries[0];
    let header = "# scout scratch notes — archived 2026-03-14_0900\n\n";
    assert_eq!(
        entry.size,
        SIZE - BASELINE.len() as u64 + header.len() as u64
    );
    let engine = world.engine();
    assert_eq!(engine.entries().digest(&entry.path).unwrap(), entry.digest);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert_ne!(entry.digest, Digest::of(b""));
}

#[test]
fn leftovers_of_killed_runs_are_swept_after_a_day() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    let name = format!(".shepherd-{}", "0f".repeat(16));
    let archive = world.archive_directory();
    let own = archive.join(".shepherd");
    let directories = [own.clone(), own.join("tx"), own.join("baselines")];
    let directories = directories.into_iter().chain([archive.join("scout")]);
    let directories: Vec<_> = directories.collect();
    let now = std::time::SystemTime::from(world.clock.now());
    for directory in &directories {
        for (name, hours) in [(name.as_str(), 25), (".shepherd-kept", 25)] {
            let file = fs::File::create(directory.join(name)).unwrap();
            let age = Duration::from_secs(hours * 60 * 60);
            file.set_modified(now - age).unwrap();
        }
    }
    let young = own.join(format!(".shepherd-{}", "1e".repeat(16)));
    let file = fs::File::create(&young).unwrap();
    file.set_modified(now - Duration::from_secs(23 * 60 * 60))
        .unwrap();
    world.write_scratch("scout", "- two\n");
    world.reset().assert_ok();
    for directory in &directories {
        assert!(!directory.join(&name).exists(), "{directory:?}");
        assert!(directory.join(".shepherd-kept").exists(), "{directory:?}");
    }
    assert!(young.exists());
}

#[test]
fn memory_larger_than_any_disk_is_an_error_and_stays() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let size = (1 << 40) + 1;
    if open_for_append(&world.memory_path("scout"))
        .set_len(size)
        .is_err()
    {
        skip_unsupported("no sparse files here");
        return;
    }
    let ran = world.reset();
    assert!(ran.note().contains("more than 16 GiB"), "{}", ran.note());
    assert_eq!(
        fs::metadata(world.memory_path("scout")).unwrap().len(),
        size
    );
    assert_eq!(world.observe("scout").state, State::Error);
    assert!(world.leftovers("scout").is_empty());
}

/// A file that an agent puts at the staged name does not become its memory.
#[test]
fn file_planted_at_staged_name_does_not_avoid_reset() {
    for always in [false, true] {
        for exchanges in [true, false] {
            let world = World::new(&["scout"]);
            world.write_scratch("scout", "- note\n");
            let directory = world.agent_directory("scout");
            let mut planted = 0;
            let inner = match exchanges {
                true => world.disk(),
                false => LocalTransport::without_kernel_features(world.clock.clone()),
            };
            let transport = InterposingTransport::new(inner, move |moment| {
                if moment == TransportCall::Before("swap") && (always || planted == 0) {
                    let mut names = super::world::sorted_names(&directory);
                    names.retain(|name| name.starts_with(".shepherd-"));
                    planted += 1;
                    let own = directory.join("own");
                    fs::write(&own, format!("{BASELINE}mine {planted}\n")).unwrap();
                    fs::rename(own, directory.join(&names[0])).unwrap();
                }
                Ok(())
            });
            let ran = world.reset_with_engine(&world.engine_with_transport(transport));
            let result = &ran.report.results[0];
            if always {
                assert_eq!(result.kind, Some(ErrorKind::Conflict), "{result:?}");
                let last = format!("{BASELINE}mine 3\n");
                assert_eq!(world.read_memory("scout"), last.as_bytes());
                assert!(world.preserves("scout", b"mine 2"));
            } else {
                assert_eq!(ran.assert_ok().kind, None);
                assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
            }
            assert!(world.preserves("scout", b"- note\n"));
            assert!(world.leftovers("scout").is_empty());
            // After any result the next reset works normally.
            world.reset();
            assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
            assert!(world.preserves("scout", b"mine 1"));
        }
    }
}

#[test]
fn write_during_last_check_without_lease_is_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    let mut file = Some(open_for_append(&memory));
    let mut sleeps = 0;
    // Through a descriptor opened before; the third wait belongs to the second
    // inspection, after the first one detected the agent's write.
    world.clock.on_sleep(move || {
        sleeps += 1;
        if sleeps < 3 {
            let text = format!("- late {sleeps}\n");
            file.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        } else {
            file = None;
        }
    });
    let transport = Arc::new(LocalTransport::without_leases(world.clock.clone()));
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    ran.assert_ok();
    assert!(
        ran.note().contains("late writers cannot be detected"),
        "{}",
        ran.note()
    );
    assert!(world.preserves("scout", b"- note\n- late 1\n- late 2\n"));
    assert!(world.leftovers("scout").is_empty());
}
