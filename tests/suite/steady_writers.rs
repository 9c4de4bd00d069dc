//! Writers that never pause while resets continue: no line is lost.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Outcome, State};
use memory_shepherd::transport::Transport;
use memory_shepherd::transport::local::LocalTransport;

use super::world::World;

const RESET_COUNT: usize = 200;

/// The number of lines that a writer may write per reset, so that writes and resets
/// overlap.
const LINES_PER_RESET: usize = 8;

/// Writes lines with `write` while resets continue; returns their number.
fn write_lines_at_pace(resets: &AtomicUsize, mut write: impl FnMut(usize)) -> usize {
    for line in 0.. {
        loop {
            let done = resets.load(Ordering::Relaxed);
            if done >= RESET_COUNT {
                return line;
            }
            if line < LINES_PER_RESET * (done + 1) {
                break;
            }
            thread::yield_now();
        }
        write(line);
    }
    unreachable!()
}

/// Resets repeatedly, then settles the files that the writers kept open until they
/// ended; returns the number of lines of each writer.
fn reset_while_writing(
    world: &World,
    transport: Arc<dyn Transport>,
    resets: &AtomicUsize,
    writers: Vec<thread::JoinHandle<usize>>,
) -> Vec<usize> {
    let engine = world.engine_with_clock(Arc::new(SystemClock), transport);
    let agent = engine.agent("scout").unwrap();
    for _ in 0..RESET_COUNT {
        // Each reset displaces some bytes.
        for tries in 0.. {
            if engine.observer().observe(agent).state != State::Clean {
                break;
            }
            assert!(tries < 1_000_000, "the writers are stuck");
            thread::yield_now();
        }
        let ran = world.reset_with_engine(&engine);
        let result = &ran.report.results[0];
        // An agent that always wins the race is refused in the end; this is rare.
        assert!(
            matches!(result.outcome, Outcome::Ok | Outcome::Unchanged)
                || result.kind == Some(ErrorKind::Conflict),
            "{result:?}"
        );
        resets.fetch_add(1, Ordering::Relaxed);
    }
    let lines = writers.into_iter().map(|writer| writer.join().unwrap());
    let lines = lines.collect();
    world.reset_with_engine(&engine);
    lines
}

/// Asserts that every line of every writer is in the memory or in an entry.
fn assert_every_line_is_kept(world: &World, lines: &[usize]) {
    let mut text = world.all_entry_bytes("scout");
    text.extend(world.read_memory("scout"));
    let text = String::from_utf8(text).unwrap();
    let notes = text.lines().filter(|line| line.starts_with("note "));
    let found: HashSet<&str> = notes.collect();
    let numbers = lines.iter().enumerate();
    let expected: HashSet<String> = numbers
        .flat_map(|(writer, lines)| (0..*lines).map(move |line| note_line(writer, line)))
        .collect();
    assert!(expected.len() > RESET_COUNT, "{lines:?}");
    let lost = expected
        .iter()
        .filter(|line| !found.contains(line.as_str()));
    let lost: Vec<&String> = lost.collect();
    let all = expected.len();
    assert!(lost.is_empty(), "lost {} of {all}: {lost:?}", lost.len());
    assert_eq!(found.len(), all, "and no line is torn");
    let entries = world.entry_names("scout").len();
    assert!(
        entries > RESET_COUNT / 2,
        "too few writes during resets: {entries} entries"
    );
    assert!(
        world.leftovers("scout").is_empty(),
        "{:?}",
        world.leftovers("scout")
    );
    assert!(world.pending_journals().is_empty());
}

fn note_line(writer: usize, line: usize) -> String {
    format!("note {writer} {line};")
}

fn local_transports() -> [Arc<dyn Transport>; 2] {
    let clock = Arc::new(SystemClock);
    [
        Arc::new(LocalTransport::new(clock.clone())),
        Arc::new(LocalTransport::without_kernel_features(clock)),
    ]
}

#[test]
fn appended_lines_survive_200_resets() {
    for transport in local_transports() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "");
        let resets = Arc::new(AtomicUsize::new(0));
        let writers = (0..3).map(|writer| {
            let memory = world.memory_path("scout");
            let resets = Arc::clone(&resets);
            thread::spawn(move || {
                let mut kept: Option<fs::File> = None;
                write_lines_at_pace(&resets, |line| {
                    // One writer opens the memory for each line, others keep it open.
                    if line % (1 + 3 * writer) == 0 {
                        drop(kept.take());
                    }
                    let file = kept.get_or_insert_with(|| {
                        // Where files cannot be exchanged the memory is absent for
                        // moments.
                        loop {
                            if let Ok(file) = fs::File::options().append(true).open(&memory) {
                                break file;
                            }
                        }
                    });
                    // One write per line; otherwise lines of other writers interleave.
                    let text = note_line(writer, line) + "\n";
                    file.write_all(text.as_bytes()).unwrap();
                    // No writer holds the memory open while it waits for the next
                    // reset.
                    if line % LINES_PER_RESET == LINES_PER_RESET - 1 {
                        drop(kept.take());
                    }
                })
            })
        });
        let writers = writers.collect();
        let lines = reset_while_writing(&world, transport, &resets, writers);
        assert_every_line_is_kept(&world, &lines);
    }
}

#[test]
fn lines_saved_by_rename_survive_200_resets() {
    for transport in local_transports() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "");
        let memory = world.memory_path("scout");
        let resets = Arc::new(AtomicUsize::new(0));
        let writer = thread::spawn({
            let resets = Arc::clone(&resets);
            move || {
                let temporary = memory.with_extension("tmp");
                write_lines_at_pace(&resets, |line| {
                    // Where files cannot be exchanged the memory is absent for moments.
                    let mut text = loop {
                        match fs::read_to_string(&memory) {
                            Ok(text) => break text,
                            Err(_) => thread::yield_now(),
                        }
                    };
                    text.push_str(&note_line(0, line));
                    text.push('\n');
                    fs::write(&temporary, text).unwrap();
                    fs::rename(&temporary, &memory).unwrap();
                })
            }
        });
        let lines = reset_while_writing(&world, transport, &resets, vec![writer]);
        assert_every_line_is_kept(&world, &lines);
    }
}
