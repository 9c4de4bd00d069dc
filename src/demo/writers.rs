//! Agents that keep writing, so that the fleet changes while it is watched.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

/// Threads that append notes to memories. Dropping this ends them and waits for them: nothing is
/// written afterwards.
pub struct NoteWriters {
    stop: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl NoteWriters {
    pub(super) fn start(agents: Vec<(PathBuf, Vec<&'static str>)>, pause: Range<Duration>) -> Self {
        let (stop, stopped) = bounded(0);
        let start = |(number, (memory, notes)): (usize, (PathBuf, Vec<&'static str>))| {
            let (stopped, pause) = (stopped.clone(), pause.clone());
            thread::spawn(move || {
                append_notes_until_stopped(&memory, &notes, &stopped, &pause, number as u32)
            })
        };
        NoteWriters {
            stop: Some(stop),
            threads: agents.into_iter().enumerate().map(start).collect(),
        }
    }
}

impl Drop for NoteWriters {
    fn drop(&mut self) {
        self.stop = None;
        for thread in self.threads.drain(..) {
            // A panicked writer has stopped too.
            let _ = thread.join();
        }
    }
}

fn append_notes_until_stopped(
    memory: &Path,
    notes: &[&str],
    stopped: &Receiver<()>,
    pause: &Range<Duration>,
    number: u32,
) {
    let pause_range = pause.end.saturating_sub(pause.start);
    for (turn, note) in (0u32..).zip(notes.iter().cycle()) {
        // Pauses are irregular, but the same every time.
        let share = turn.wrapping_mul(7).wrapping_add(number * 5) % 11;
        let wait = pause.start + pause_range * share / 10;
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        // Agents open, append and close. A memory that is absent for a moment is not created again;
        // the next note follows soon.
        let file = OpenOptions::new().append(true).open(memory);
        let _ = file.and_then(|mut file| file.write_all(format!("{note}\n").as_bytes()));
    }
}
