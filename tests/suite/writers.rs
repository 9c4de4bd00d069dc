//! Agents that write while they are reset. What they wrote is in the memory, in
//! an entry, or in a displaced file that the next run archives.

use std::collections::HashSet;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::clock::{Clock, SystemClock};
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{MAX_WINDOW_BYTES, Operation, Outcome, State, UndoMode};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::fake::FakeTransport;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{FailureCause, Transport, TransportError};

use super::world::{BASELINE, Interposer, Moment, World, names};

/// A descriptor that an agent opened long ago.
fn appender(path: &Path) -> fs::File {
    fs::File::options().append(true).open(path).unwrap()
}

/// Scout has its memory open, and writes to it while whoever resets it waits.
pub fn write_late(world: &World) {
    let mut file = Some(appender(&world.memory("scout")));
    let mut sleeps = 0;
    world.clock.meanwhile(move || {
        sleeps += 1;
        match sleeps {
            3 => file.as_mut().unwrap().write_all(b"- late\n").unwrap(),
            5 => drop(file.take()),
            _ => {}
        }
    });
}

#[test]
fn a_late_write_through_an_old_descriptor_gets_an_entry() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    write_late(&world);
    let ran = world.reset();
    let [first, late] = ran.ok().entries.as_slice() else {
        panic!("{:?}", ran.ok().entries)
    };
    assert_eq!(
        (first.kind, late.kind),
        (EntryKind::Scratch, EntryKind::Appended)
    );
    assert!(late.path.ends_with("2026-03-14_0900-appended.md"));
    assert_eq!(world.entry(late), b"- late\n");
    let whole = format!("{BASELINE}- early\n- late\n");
    let digest = Digest::of(whole.as_bytes());
    assert_eq!(late.whole_content(), (digest, whole.len() as u64));
    assert!(
        ran.note().contains("a late write was archived"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(world.litter("scout").is_empty());
    assert_eq!(
        world.records()[0].event.late_entries.as_slice(),
        &ran.ok().entries[1..]
    );
}

/// An agent that writes to the displaced file after each look, so that it is never
/// settled: by a save of its own, in this way.
fn writes_after_each_look(
    world: &World,
    saves: usize,
    save: impl Fn(&mut fs::File, usize) + Send + 'static,
) -> Arc<Interposer> {
    let folder = world.folder("scout");
    let mut saved = 0;
    Interposer::new(world.local(), move |moment| {
        let mut displaced = names(&folder).into_iter();
        let displaced = displaced.find(|name| name.starts_with(".shepherd-"));
        let Some(path) = displaced.map(|name| folder.join(name)) else {
            return Ok(());
        };
        let writable = || fs::File::options().read(true).write(true).clone();
        match moment {
            // Whoever opens it asks for the lease back, so it is not removed.
            Moment::After("inspect") if saved < saves => {
                let opened = writable().custom_flags(libc::O_NONBLOCK).open(&path);
                assert!(opened.is_err(), "there is a lease");
            }
            Moment::After("settle") if saved < saves => {
                saved += 1;
                save(&mut writable().open(&path).unwrap(), saved);
            }
            _ => {}
        }
        Ok(())
    })
}

/// The sizes of an agent's entries but the first.
fn late_sizes(world: &World) -> Vec<u64> {
    let records = world.records();
    let late = records.iter().flat_map(|record| &record.event.late_entries);
    late.map(|written| written.size).collect()
}

#[test]
fn late_entries_hold_only_what_was_appended() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n".repeat(100_000));
    let before = world.read("scout");
    let transport = writes_after_each_look(&world, 3, |file, number| {
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(format!("- late {number}\n").as_bytes())
            .unwrap();
    });
    world.reset_by(&world.engine_on(transport)).ok();
    assert_eq!(late_sizes(&world), [9, 9, 9]);
    assert!(world.litter("scout").is_empty());
    world.undo("scout", UndoMode::Refuse).ok();
    let after = [&before[..], b"- late 1\n- late 2\n- late 3\n"].concat();
    assert!(world.read("scout") == after);
}

#[test]
fn file_that_keeps_changing_is_archived_a_few_times() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n".repeat(1000));
    // Another beginning each time, so that each would be a whole entry.
    let size = world.read("scout").len() as u64;
    let transport = writes_after_each_look(&world, 1000, |file, number| {
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&(number as u64).to_le_bytes()).unwrap();
    });
    let engine = world.engine_on(transport);
    let ran = world.reset_by(&engine);
    ran.ok();
    assert!(ran.note().contains("again and again"), "{}", ran.note());
    assert_eq!(late_sizes(&world), [size; 4]);
    let [left] = world.litter("scout").try_into().unwrap();
    let left = world.folder("scout").join(left);
    for byte in b'a'..=b't' {
        let mut bytes = fs::read(&left).unwrap();
        bytes[0] = byte;
        fs::write(&left, bytes).unwrap();
        world.reset_by(&engine).ended(Outcome::Unchanged);
    }
    assert_eq!(late_sizes(&world), [size; 16]);
    assert_eq!(world.pending().len(), 1);
    // When it stops, the next run finds it as the last one did.
    let last = fs::read(&left).unwrap();
    world.reset().ended(Outcome::Unchanged);
    assert_eq!(late_sizes(&world), [size; 17]);
    assert!(world.litter("scout").is_empty());
    assert!(world.pending().is_empty());
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout") == last);
}

/// What earlier versions wrote: an entry of the whole file, and a record of that.
#[test]
fn late_entry_without_a_base_is_the_whole_file() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    write_late(&world);
    world.reset().ok();
    let whole = format!("{BASELINE}- early\n- late\n");
    let ledger = world.archive().join(".shepherd/ledger.jsonl");
    let mut record: serde_json::Value =
        serde_json::from_slice(&fs::read(&ledger).unwrap()).unwrap();
    record["late"] = serde_json::json!([{
        "path": "scout/2026-03-14_0900-late.md",
        "kind": "late",
        "digest": Digest::of(whole.as_bytes()),
        "size": whole.len(),
    }]);
    fs::write(&ledger, format!("{record}\n")).unwrap();
    let entry = world.archive().join("scout/2026-03-14_0900-late.md");
    fs::write(entry, &whole).unwrap();
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), whole.as_bytes());
}

#[test]
fn an_old_descriptor_that_writes_nothing_makes_no_late_entry() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut file = Some(appender(&world.memory("scout")));
    world.clock.meanwhile(move || drop(file.take()));
    assert_eq!(world.reset().ok().entries.len(), 1);
    assert!(world.litter("scout").is_empty());
}

#[test]
fn a_writer_that_stays_is_settled_by_the_next_run_of_the_clean_agent() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut file = appender(&world.memory("scout"));
    let ran = world.reset();
    // No failure, but it is said.
    assert_eq!(ran.ok().entries.len(), 1);
    let [left] = world.litter("scout").try_into().unwrap();
    assert!(
        ran.note().contains(&format!("it stays as {left}")),
        "{}",
        ran.note()
    );
    assert_eq!(world.pending().len(), 1);
    file.write_all(b"- late\n").unwrap();
    // Still open: the next run says so, and waits for nobody.
    let ran = world.reset();
    ran.ended(Outcome::Unchanged);
    assert!(
        ran.lines
            .iter()
            .any(|line| line.contains("a writer still has")),
        "{:?}",
        ran.lines
    );
    assert_eq!(world.litter("scout"), [left.as_str()]);
    drop(file);
    world.reset().ended(Outcome::Unchanged);
    assert!(world.litter("scout").is_empty());
    assert!(world.pending().is_empty());
    assert!(world.holds("scout", b"- early\n- late\n"));
    let records = world.records();
    let repair = records
        .iter()
        .find(|r| r.event.operation == Operation::Repair)
        .unwrap();
    assert_eq!(repair.event.run, records[0].event.run);
    assert_eq!(repair.event.late_entries.len(), 1);
    assert_eq!(repair.event.outcome, Outcome::Ok);
    // It is no run of its own: the last one is still what the operator did.
    assert_eq!(
        world.observe("scout").last_run.unwrap().operation,
        Operation::Reset
    );
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"---\n- early\n- late\n"));
}

#[test]
fn a_writer_that_never_closes_holds_up_no_later_reset() {
    let world = World::new(&["scout"]);
    let mut files = Vec::new();
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        files.push(appender(&world.memory("scout")));
        world.reset().ok();
        assert_eq!(world.litter("scout").len(), files.len());
    }
    for file in &mut files {
        file.write_all(b"- late\n").unwrap();
    }
    drop(files);
    world.reset().ended(Outcome::Unchanged);
    assert!(world.litter("scout").is_empty());
    assert!(world.pending().is_empty());
    for note in ["- one\n- late\n", "- two\n- late\n", "- three\n- late\n"] {
        assert!(world.holds("scout", note.as_bytes()), "{note}");
    }
}

#[test]
fn a_save_between_reading_and_replacing_is_archived() {
    for by_rename in [false, true] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- early\n");
        let memory = world.memory("scout");
        let transport = Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before("swap") {
                let path = match by_rename {
                    true => memory.with_extension("tmp"),
                    false => memory.clone(),
                };
                fs::write(&path, "saved just now").unwrap();
                fs::rename(&path, &memory).unwrap();
            }
            Ok(())
        });
        let ran = world.reset_by(&world.engine_on(transport));
        assert_eq!(ran.ok().entries[1].kind, EntryKind::Late);
        assert_eq!(world.entry(&ran.ok().entries[1]), b"saved just now");
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
    }
}

/// A large displaced file is compared with its entry, not hashed.
#[test]
fn whatever_changes_in_a_large_memory_while_it_is_replaced_is_archived() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 5] = [
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
                let text = world.read("scout");
                world.write("scout", [b"# Mine\n", &text[..]].concat());
            }
            let before = world.read("scout");
            let mut changed = before.clone();
            change(&mut changed);
            let (memory, late) = (world.memory("scout"), changed.clone());
            let transport = Interposer::new(world.local(), move |moment| {
                if moment == Moment::Before("swap") {
                    fs::write(&memory, &late).unwrap();
                }
                Ok(())
            });
            let ran = world.reset_by(&world.engine_on(transport));
            assert_eq!(world.read("scout"), BASELINE.as_bytes());
            let entries = &ran.ok().entries;
            match changed == before {
                true => assert_eq!(entries.len(), 1, "{what}"),
                false => {
                    assert_eq!(entries.len(), 2, "{what}, drifted: {drifted}");
                    let late = world.entry(&entries[1]);
                    match entries[1].kind {
                        EntryKind::Appended => assert_eq!(late, b"!", "{what}"),
                        _ => assert!(late == changed, "{what}"),
                    }
                }
            }
            assert_eq!(
                world.undo("scout", UndoMode::Refuse).ok().outcome,
                Outcome::Ok
            );
            assert!(world.read("scout") == changed, "{what}");
        }
    }
}

#[test]
fn a_memory_that_appears_while_it_is_created_is_archived() {
    let world = World::new(&["scout"]);
    let memory = world.memory("scout");
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::Before("swap") {
            fs::write(&memory, "re-seeded").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    ran.ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(world.holds("scout", b"re-seeded"));
}

#[test]
fn an_agent_that_writes_again_at_once_is_no_failure() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory("scout");
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::After("settle") {
            fs::write(&memory, "mine again").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    ran.ok();
    assert!(
        ran.note().contains("already changed it again"),
        "{}",
        ran.note()
    );
    assert_eq!(world.read("scout"), b"mine again");
    // Scratch below the new content is what agents do, and is not even noted.
    world.write_scratch("scout", "- early\n");
    let memory = world.memory("scout");
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::After("settle") {
            appender(&memory).write_all(b"- next\n").unwrap();
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    assert_eq!(ran.ok().note, None);
}

/// A swap that says the agent was quicker, after it has exchanged.
#[test]
fn an_agent_that_was_quicker_is_reset_again_and_undone_to_the_last() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory("scout");
    let swaps = AtomicUsize::new(0);
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::After("swap") && swaps.fetch_add(1, Ordering::Relaxed) == 0 {
            let temporary = memory.with_extension("tmp");
            fs::write(&temporary, format!("{BASELINE}- quick\n")).unwrap();
            fs::rename(&temporary, &memory).unwrap();
            let error = Error::new(ErrorKind::Conflict, "replaced by somebody else");
            return Err(TransportError::new(FailureCause::Replaced, error));
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    ran.ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(world.holds("scout", b"- early\n"));
    assert!(world.holds("scout", b"- quick\n"));
    assert!(world.litter("scout").is_empty());
    assert!(world.pending().is_empty());
    // Both turns are in the ledger; the run is undone to what it took out last.
    let changed = world
        .records()
        .into_iter()
        .filter(|r| r.event.has_changed_memory());
    assert_eq!(changed.count(), 2);
    let run = memory_shepherd::engine::UndoTarget::Run(ran.report.run);
    let undone = world.undo_of(&run, UndoMode::Refuse);
    assert_eq!(undone.report.results.len(), 1);
    assert_eq!(
        world.read("scout"),
        format!("{BASELINE}- quick\n").as_bytes()
    );
}

#[test]
fn a_displaced_file_that_cannot_be_archived_is_a_failure_and_stays() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let memory = world.memory("scout");
    let archive = world.archive();
    let transport = Interposer::new(world.local(), move |moment| {
        match moment {
            Moment::Before("swap") => fs::write(&memory, "saved just now").unwrap(),
            // The archive goes away.
            Moment::Before("settle") => {
                fs::rename(archive.join("scout"), archive.join("away")).unwrap();
                fs::write(archive.join("scout"), "in the way").unwrap();
            }
            _ => {}
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    let result = ran.ended(Outcome::Ok);
    assert_eq!(
        result.kind,
        Some(ErrorKind::Host),
        "the memory was replaced, yet not all is well"
    );
    assert_eq!(world.litter("scout").len(), 1);
    let archive = world.archive();
    fs::remove_file(archive.join("scout")).unwrap();
    fs::rename(archive.join("away"), archive.join("scout")).unwrap();
    world.reset().ended(Outcome::Unchanged);
    assert!(world.holds("scout", b"saved just now"));
    assert!(world.litter("scout").is_empty());
}

const RESETS: usize = 200;

/// Lines that a writer may write for each reset, so that all of it happens at
/// the same time.
const PACE: usize = 8;

/// Writes lines with `write` while resets go on; gives their number.
fn lines_at_pace(resets: &AtomicUsize, mut write: impl FnMut(usize)) -> usize {
    for line in 0.. {
        loop {
            let done = resets.load(Ordering::Relaxed);
            if done >= RESETS {
                return line;
            }
            if line < PACE * (done + 1) {
                break;
            }
            thread::yield_now();
        }
        write(line);
    }
    unreachable!()
}

/// Resets again and again, then settles what the writers kept open until they
/// ended; gives the number of lines that each of them wrote.
fn reset_against(
    world: &World,
    transport: Arc<dyn Transport>,
    resets: &AtomicUsize,
    writers: Vec<thread::JoinHandle<usize>>,
) -> Vec<usize> {
    let engine = world.engine_of(Arc::new(SystemClock), transport);
    let agent = engine.agent("scout").unwrap();
    for _ in 0..RESETS {
        // Each reset takes something out.
        for tries in 0.. {
            if engine.observe(agent).state != State::Clean {
                break;
            }
            assert!(tries < 1_000_000, "the writers are stuck");
            thread::yield_now();
        }
        let ran = world.reset_by(&engine);
        let result = &ran.report.results[0];
        // An agent that is always quicker is refused in the end; it is rare.
        assert!(
            matches!(result.outcome, Outcome::Ok | Outcome::Unchanged)
                || result.kind == Some(ErrorKind::Conflict),
            "{result:?}"
        );
        resets.fetch_add(1, Ordering::Relaxed);
    }
    let lines = writers.into_iter().map(|writer| writer.join().unwrap());
    let lines = lines.collect();
    world.reset_by(&engine);
    lines
}

/// Every line of every writer is in the memory or in an entry.
fn count_lines(world: &World, lines: &[usize]) {
    let mut text = world.archived("scout");
    text.extend(world.read("scout"));
    let text = String::from_utf8(text).unwrap();
    let notes = text.lines().filter(|line| line.starts_with("note "));
    let found: HashSet<&str> = notes.collect();
    let numbers = lines.iter().enumerate();
    let expected: HashSet<String> = numbers
        .flat_map(|(writer, lines)| (0..*lines).map(move |line| note(writer, line)))
        .collect();
    assert!(expected.len() > RESETS, "{lines:?}");
    let lost = expected
        .iter()
        .filter(|line| !found.contains(line.as_str()));
    let lost: Vec<&String> = lost.collect();
    let all = expected.len();
    assert!(lost.is_empty(), "lost {} of {all}: {lost:?}", lost.len());
    assert_eq!(found.len(), all, "and no line is torn");
    let entries = world.entries("scout").len();
    assert!(
        entries > RESETS / 2,
        "the writers wrote all the time: {entries}"
    );
    assert!(
        world.litter("scout").is_empty(),
        "{:?}",
        world.litter("scout")
    );
    assert!(world.pending().is_empty());
}

fn note(writer: usize, line: usize) -> String {
    format!("note {writer} {line};")
}

fn transports() -> [Arc<dyn Transport>; 2] {
    let clock = Arc::new(SystemClock);
    [
        Arc::new(LocalTransport::new(clock.clone())),
        Arc::new(LocalTransport::without_kernel_features(clock)),
    ]
}

#[test]
fn no_appended_line_is_lost_in_two_hundred_resets() {
    for transport in transports() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "");
        let resets = Arc::new(AtomicUsize::new(0));
        let writers = (0..3).map(|writer| {
            let memory = world.memory("scout");
            let resets = Arc::clone(&resets);
            thread::spawn(move || {
                let mut kept: Option<fs::File> = None;
                lines_at_pace(&resets, |line| {
                    // One opens it anew for each line, others keep it open.
                    if line % (1 + 3 * writer) == 0 {
                        drop(kept.take());
                    }
                    let file = kept.get_or_insert_with(|| {
                        // Where files cannot be exchanged it is absent for moments.
                        loop {
                            if let Ok(file) = fs::File::options().append(true).open(&memory) {
                                break file;
                            }
                        }
                    });
                    // A line in one write, or those of others get between.
                    let text = note(writer, line) + "\n";
                    file.write_all(text.as_bytes()).unwrap();
                    // Nobody holds it open while it waits for the next reset.
                    if line % PACE == PACE - 1 {
                        drop(kept.take());
                    }
                })
            })
        });
        let writers = writers.collect();
        let lines = reset_against(&world, transport, &resets, writers);
        count_lines(&world, &lines);
    }
}

#[test]
fn no_line_saved_by_rename_is_lost_in_two_hundred_resets() {
    for transport in transports() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "");
        let memory = world.memory("scout");
        let resets = Arc::new(AtomicUsize::new(0));
        let writer = thread::spawn({
            let resets = Arc::clone(&resets);
            move || {
                let temporary = memory.with_extension("tmp");
                lines_at_pace(&resets, |line| {
                    // Where files cannot be exchanged it is absent for moments.
                    let mut text = loop {
                        match fs::read_to_string(&memory) {
                            Ok(text) => break text,
                            Err(_) => thread::yield_now(),
                        }
                    };
                    text.push_str(&note(0, line));
                    text.push('\n');
                    fs::write(&temporary, text).unwrap();
                    fs::rename(&temporary, &memory).unwrap();
                })
            }
        });
        let lines = reset_against(&world, transport, &resets, vec![writer]);
        count_lines(&world, &lines);
    }
}

#[test]
fn attributes_that_are_not_kept_are_told_of() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    let memory = world.memory("scout");
    fake.make_folder(world.folder("scout"), 1000, 100, 0o755);
    fake.write_file(&memory, format!("{BASELINE}- old\n").as_bytes());
    let mut attributes = fake.attributes(&memory).unwrap();
    attributes.xattrs = (0..1000)
        .map(|number| (format!("user.{number}").into_bytes(), vec![b'x'; 60_000]))
        .collect();
    let label = (b"security.label".to_vec(), b"kept".to_vec());
    attributes.xattrs.push(label.clone());
    fake.set_attributes(&memory, attributes);
    let ran = world.reset_by(&world.engine_on(Arc::new(fake.clone())));
    ran.ok();
    assert!(
        ran.note().contains("999 or more extended attributes"),
        "{}",
        ran.note()
    );
    let kept = fake.attributes(&memory).unwrap().xattrs;
    assert_eq!(kept.len(), 2);
    assert!(kept.contains(&label));
    let ledger = fs::metadata(world.archive().join(".shepherd/ledger.jsonl"));
    assert!(ledger.unwrap().len() < 200_000);
}

#[test]
fn a_memory_larger_than_the_window_is_archived_and_restored_exactly() {
    let drifted = BASELINE.replace("kind", "cruel");
    for above in [BASELINE, &drifted, "no rule\n"] {
        for size in [
            MAX_WINDOW_BYTES - 1,
            MAX_WINDOW_BYTES,
            MAX_WINDOW_BYTES + 1,
            3 * MAX_WINDOW_BYTES + 7,
        ] {
            let world = World::new(&["scout"]).general("max_memory_size = 1000000000");
            let mut bytes = above.as_bytes().to_vec();
            bytes.extend((0..size - above.len()).map(|n| (n % 251) as u8));
            world.write("scout", &bytes);
            let ran = world.reset();
            assert_eq!(ran.ok().entries.len(), 1);
            assert!(
                world
                    .entry(&ran.ok().entries[0])
                    .ends_with(&bytes[above.len()..])
            );
            world.undo("scout", UndoMode::Refuse).ok();
            assert!(world.read("scout") == bytes);
        }
    }
}

#[test]
fn a_hundred_megabytes_are_reset() {
    const SIZE: u64 = 100 << 20;
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- beginning\n");
    let file = appender(&world.memory("scout"));
    file.set_len(SIZE).unwrap();
    drop(file);
    assert_eq!(world.observe("scout").state, State::Oversize);
    let ran = world.reset();
    let entry = &ran.ok().entries[0];
    let header = "# scout scratch notes — archived 2026-03-14_0900\n\n";
    assert_eq!(
        entry.size,
        SIZE - BASELINE.len() as u64 + header.len() as u64
    );
    let engine = world.engine();
    assert_eq!(
        engine.archive().digest_entry(&entry.path).unwrap(),
        entry.digest
    );
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert_ne!(entry.digest, Digest::of(b""));
}

#[test]
fn what_killed_runs_left_in_the_archive_is_swept_after_a_day() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    let name = format!(".shepherd-{}", "0f".repeat(16));
    let archive = world.archive();
    let own = archive.join(".shepherd");
    let folders = [own.clone(), own.join("tx"), own.join("baselines")];
    let folders = folders.into_iter().chain([archive.join("scout")]);
    let folders: Vec<_> = folders.collect();
    let now = std::time::SystemTime::from(world.clock.now());
    for folder in &folders {
        for (name, hours) in [(name.as_str(), 25), (".shepherd-kept", 25)] {
            let file = fs::File::create(folder.join(name)).unwrap();
            let age = Duration::from_secs(hours * 60 * 60);
            file.set_modified(now - age).unwrap();
        }
    }
    let young = own.join(format!(".shepherd-{}", "1e".repeat(16)));
    let file = fs::File::create(&young).unwrap();
    file.set_modified(now - Duration::from_secs(23 * 60 * 60))
        .unwrap();
    world.write_scratch("scout", "- two\n");
    world.reset().ok();
    for folder in &folders {
        assert!(!folder.join(&name).exists(), "{folder:?}");
        assert!(folder.join(".shepherd-kept").exists(), "{folder:?}");
    }
    assert!(young.exists());
}

#[test]
fn a_memory_that_claims_more_than_any_disk_holds_is_an_error_and_stays() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let size = (1 << 40) + 1;
    if appender(&world.memory("scout")).set_len(size).is_err() {
        println!("skipped: no sparse files here");
        return;
    }
    let ran = world.reset();
    assert!(ran.note().contains("more than 16 GiB"), "{}", ran.note());
    assert_eq!(fs::metadata(world.memory("scout")).unwrap().len(), size);
    assert_eq!(world.observe("scout").state, State::Error);
    assert!(world.litter("scout").is_empty());
}

/// An agent that puts a file of its own at the staged name is not reset to it.
#[test]
fn an_agent_cannot_dodge_a_reset_by_planting_its_own_file() {
    for always in [false, true] {
        for exchanges in [true, false] {
            let world = World::new(&["scout"]);
            world.write_scratch("scout", "- note\n");
            let folder = world.folder("scout");
            let mut planted = 0;
            let inner: Arc<dyn Transport> = match exchanges {
                true => world.local(),
                false => Arc::new(LocalTransport::without_kernel_features(world.clock.clone())),
            };
            let transport = Interposer::new(inner, move |moment| {
                if moment == Moment::Before("swap") && (always || planted == 0) {
                    let mut names = super::world::names(&folder);
                    names.retain(|name| name.starts_with(".shepherd-"));
                    planted += 1;
                    let own = folder.join("own");
                    fs::write(&own, format!("{BASELINE}mine {planted}\n")).unwrap();
                    fs::rename(own, folder.join(&names[0])).unwrap();
                }
                Ok(())
            });
            let ran = world.reset_by(&world.engine_on(transport));
            let result = &ran.report.results[0];
            if always {
                assert_eq!(result.kind, Some(ErrorKind::Conflict), "{result:?}");
                let last = format!("{BASELINE}mine 3\n");
                assert_eq!(world.read("scout"), last.as_bytes());
                assert!(world.holds("scout", b"mine 2"));
            } else {
                assert_eq!(ran.ok().kind, None);
                assert_eq!(world.read("scout"), BASELINE.as_bytes());
            }
            assert!(world.holds("scout", b"- note\n"));
            assert!(world.litter("scout").is_empty());
            // And however it ended, the next one is a reset as any other.
            world.reset();
            assert_eq!(world.read("scout"), BASELINE.as_bytes());
            assert!(world.holds("scout", b"mine 1"));
        }
    }
}

#[test]
fn a_write_during_the_last_look_is_archived_also_without_leases() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory("scout");
    let mut file = Some(appender(&memory));
    let mut sleeps = 0;
    // Through a descriptor opened before; the third wait is that of the second
    // look, after the agent was seen at work in the first.
    world.clock.meanwhile(move || {
        sleeps += 1;
        if sleeps < 3 {
            let text = format!("- late {sleeps}\n");
            file.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        } else {
            file = None;
        }
    });
    let transport = Arc::new(LocalTransport::without_leases(world.clock.clone()));
    let ran = world.reset_by(&world.engine_on(transport));
    ran.ok();
    assert!(
        ran.note().contains("late writers cannot be detected"),
        "{}",
        ran.note()
    );
    assert!(world.holds("scout", b"- note\n- late 1\n- late 2\n"));
    assert!(world.litter("scout").is_empty());
}
