//! Agents that keep writing, so that a fleet that is being looked at lives.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

/// Threads that append notes to memories. They end when this is dropped, and it
/// waits for them: nothing is written afterwards.
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
            // A writer that panicked has stopped, too.
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
        // Irregular enough to look at, and the same every time.
        let share = turn.wrapping_mul(7).wrapping_add(number * 5) % 11;
        let wait = pause.start + pause_range * share / 10;
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        // As agents do: open, append, close. A memory that is away for a moment
        // is not made anew; the next note comes soon.
        let file = OpenOptions::new().append(true).open(memory);
        let _ = file.and_then(|mut file| file.write_all(format!("{note}\n").as_bytes()));
    }
}
