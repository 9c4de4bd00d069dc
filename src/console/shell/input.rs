//! Input threads: forward signals, terminal events and the loss of the terminal to the main
//! thread. They interpret nothing, but join a key whose bytes arrive one by one. Reading pauses
//! while another program has the terminal.

mod split_escape;

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use crossterm::event::{self, Event};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::external_tools::{self, InputPause, InputPauseReader};
use super::terminal;
use crate::base::error::{Error, PathContext, Result};
use split_escape::SplitKeyJoiner;

/// Event from an input thread.
pub(in crate::console) enum InputEvent {
    /// Key, paste or other terminal event.
    Terminal(Event),
    /// A signal, by its number.
    Signal(i32),
    /// The terminal is gone.
    TerminalLost,
}

/// Starts the thread that forwards signals. From then on none of them ends the program by
/// itself.
pub(in crate::console) fn spawn_signal_reader(out: &Sender<InputEvent>) -> Result<()> {
    let process = Path::new("this process");
    let signals = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH];
    let mut signals = Signals::new(signals).with_path("watch for signals in", process)?;
    let out = out.clone();
    spawn_input_thread(move || {
        for signal in signals.forever() {
            if out.send(InputEvent::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

/// Starts two threads: one forwards terminal events, one reports the loss of the terminal.
pub(in crate::console) fn spawn_terminal_reader(out: Sender<InputEvent>) -> Result<InputPause> {
    let sender = out.clone();
    spawn_input_thread(move || {
        terminal::wait_for_hangup();
        let _ = sender.send(InputEvent::TerminalLost);
    })?;
    let (input_pause, reader) = external_tools::input_pause();
    spawn_input_thread(move || forward_terminal_events(&out, &reader))?;
    Ok(input_pause)
}

fn spawn_input_thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().spawn(work);
    started
        .map(drop)
        .map_err(|error| Error::from_thread_start(&error))
}

fn forward_terminal_events(sender: &Sender<InputEvent>, input_pause: &InputPauseReader) {
    let mut joiner = SplitKeyJoiner::default();
    loop {
        let events = read_event(joiner.max_wait()).map(|event| joiner.accept(event));
        // Input typed while the pause began was meant for the program that takes over.
        if input_pause.wait_while_paused() && events.is_ok() {
            continue;
        }
        let Ok(events) = events else {
            let _ = sender.send(InputEvent::TerminalLost);
            return;
        };
        for event in events {
            if sender.send(InputEvent::Terminal(event)).is_err() {
                return;
            }
        }
    }
}

/// Waits for the next event; returns `None` if none has come within `max_wait`.
fn read_event(max_wait: Option<Duration>) -> io::Result<Option<Event>> {
    match max_wait {
        Some(wait) if !event::poll(wait)? => Ok(None),
        _ => event::read().map(Some),
    }
}
