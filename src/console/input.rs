//! What comes from outside: signals, and the terminal, each in a thread of its own.

use std::path::Path;
use std::thread;

use crossbeam_channel::Sender;
use crossterm::event::{self, Event};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::outside::{self, InputPause, InputPauseReader};
use super::term;
use crate::error::{PathContext, Result};

/// What comes from outside.
pub(super) enum Input {
    /// Keys, pasted text and the like.
    Terminal(Event),
    /// A signal, by its number.
    Signal(i32),
    /// The terminal went.
    Gone,
}

/// Hands on signals, in a thread of its own. None ends this program by itself from
/// now on.
pub(super) fn watch_signals(out: &Sender<Input>) -> Result<()> {
    let process = Path::new("this process");
    let signals = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH];
    let mut signals = Signals::new(signals).path("watch for signals in", process)?;
    let out = out.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            if out.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Reads keys and notices when the terminal goes, each in a thread of its own.
pub(super) fn read_terminal(out: Sender<Input>) -> InputPause {
    let sender = out.clone();
    thread::spawn(move || {
        term::wait_until_gone();
        let _ = sender.send(Input::Gone);
    });
    let (gate, watched) = outside::gate();
    thread::spawn(move || watch_terminal(&out, &watched));
    gate
}

fn watch_terminal(sender: &Sender<Input>, gate: &InputPauseReader) {
    loop {
        let input = match event::read() {
            Ok(event) => Input::Terminal(event),
            Err(_) => Input::Gone,
        };
        // What was typed while the gate closed was meant for who comes.
        if gate.pass() && !matches!(input, Input::Gone) {
            continue;
        }
        let gone = matches!(input, Input::Gone);
        if sender.send(input).is_err() || gone {
            return;
        }
    }
}
