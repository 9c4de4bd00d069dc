//! A program in its own pseudo-terminal, with an emulator behind it, and helpers that
//! wait for text on the screen instead of sleeping.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use portable_pty::{
    Child, CommandBuilder, ExitStatus, MasterPty, PtyPair, PtySize, native_pty_system,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Action, tcflow};

/// Returns the timeout of every wait. `MEMORY_SHEPHERD_TEST_WAIT` sets it in seconds.
pub fn wait_timeout() -> Duration {
    let seconds = std::env::var("MEMORY_SHEPHERD_TEST_WAIT");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// A program in a terminal.
pub struct Terminal {
    master: Option<Box<dyn MasterPty + Send>>,
    writer: Option<Box<dyn Write + Send>>,
    reader: Option<JoinHandle<()>>,
    stop_reading: Arc<AtomicBool>,
    output: Receiver<Vec<u8>>,
    child: Box<dyn Child + Send + Sync>,
    emulator: vt100::Parser,
    /// The complete output.
    pub bytes: Vec<u8>,
    initial_modes: String,
}

impl Terminal {
    /// Starts a command in a terminal of this size.
    pub fn start(command: CommandBuilder, (columns, rows): (u16, u16)) -> Terminal {
        let pair = native_pty_system()
            .openpty(pty_size(columns, rows))
            .unwrap();
        Terminal::spawn(pair, command, (columns, rows))
    }

    /// Starts a command in a terminal that accepts no output, as after ^S, until the
    /// returned function is called.
    pub fn start_stopped(
        command: CommandBuilder,
        (columns, rows): (u16, u16),
    ) -> (Terminal, impl FnOnce()) {
        let pair = native_pty_system()
            .openpty(pty_size(columns, rows))
            .unwrap();
        let mut options = fs::File::options();
        let options = options.read(true).write(true);
        let flags = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let tty = options
            .custom_flags(flags)
            .open(pair.master.tty_name().unwrap());
        let tty = tty.unwrap();
        tcflow(&tty, Action::OOff).unwrap();
        let terminal = Terminal::spawn(pair, command, (columns, rows));
        (terminal, move || tcflow(&tty, Action::OOn).unwrap())
    }

    fn spawn(pair: PtyPair, command: CommandBuilder, (columns, rows): (u16, u16)) -> Terminal {
        let modes = modes(pair.master.as_ref());
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut from = pair.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        let enough = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&enough);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let gone = sender.send(buffer[..count].to_vec()).is_err();
                if gone || stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        Terminal {
            writer: Some(pair.master.take_writer().unwrap()),
            master: Some(pair.master),
            reader: Some(reader),
            stop_reading: enough,
            output,
            child,
            emulator: vt100::Parser::new(rows, columns, 0),
            bytes: Vec::new(),
            initial_modes: modes,
        }
    }

    pub fn screen(&self) -> &vt100::Screen {
        self.emulator.screen()
    }

    /// Returns the text of a screen row.
    pub fn row(&self, row: u16) -> String {
        let (_, columns) = self.screen().size();
        self.screen().rows(0, columns).nth(row.into()).unwrap()
    }

    pub fn text(&self) -> String {
        self.screen().contents()
    }

    pub fn send(&mut self, keys: &str) {
        let writer = self.writer.as_mut().expect("the terminal is closed");
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let master = self.master.as_ref().expect("the terminal is closed");
        master.resize(pty_size(columns, rows)).unwrap();
        self.emulator.screen_mut().set_size(rows, columns);
    }

    /// Takes this size for an instant that the program does not see, and keeps the
    /// content that fits into it.
    pub fn resize_unseen(&mut self, columns: u16, rows: u16) {
        let (was_rows, was_columns) = self.screen().size();
        let screen = self.emulator.screen_mut();
        screen.set_size(rows, columns);
        screen.set_size(was_rows, was_columns);
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Reads the output that arrives within a time; false when none arrived or none can
    /// arrive any more.
    fn read_output(&mut self, time: Duration) -> bool {
        match self.output.recv_timeout(time) {
            Ok(bytes) => {
                self.emulator.process(&bytes);
                self.bytes.extend(bytes);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                // The reader has ended; only the time remains to wait for.
                thread::park_timeout(time.min(Duration::from_millis(5)));
                false
            }
        }
    }

    /// Reads output until a condition holds; returns the time that took.
    #[track_caller]
    pub fn wait(&mut self, what: &str, mut holds: impl FnMut(&mut Terminal) -> bool) -> Duration {
        let began = Instant::now();
        let end = began + wait_timeout();
        while self.is_half_drawn() || !holds(self) {
            if Instant::now() > end {
                panic!("timeout waiting for {what}; screen:\n{}", self.text());
            }
            self.read_output(Duration::from_millis(10));
        }
        began.elapsed()
    }

    /// Returns whether a frame has begun and not ended: a terminal does not show it
    /// yet.
    fn is_half_drawn(&self) -> bool {
        let last = |code: &[u8]| {
            self.bytes
                .windows(code.len())
                .rposition(|bytes| bytes == code)
        };
        last(b"\x1b[?2026h") > last(b"\x1b[?2026l")
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> Duration {
        self.wait(&format!("{text:?}"), |terminal| {
            terminal.text().contains(text)
        })
    }

    /// Sends keys until a condition holds. A plan or a question ignores keys typed
    /// ahead, and the screen says so: the keys are sent again once it accepts them.
    #[track_caller]
    pub fn send_until(
        &mut self,
        keys: &str,
        what: &str,
        mut holds: impl FnMut(&mut Terminal) -> bool,
    ) -> Duration {
        self.wait(what, |terminal| {
            terminal.send(keys);
            terminal.wait_for_quiet();
            terminal.wait("keys to count", |terminal| {
                !terminal.text().contains("Typed-ahead keys")
            });
            holds(terminal)
        })
    }

    /// Waits until the screen shows exactly this; fails with the first difference.
    #[track_caller]
    pub fn wait_for_cells(&mut self, what: &str, expected: &[Vec<VisibleCell>]) {
        let end = Instant::now() + wait_timeout();
        while self.is_half_drawn() || visible_cells(self.screen()) != expected {
            if Instant::now() > end {
                assert_same_cells(&visible_cells(self.screen()), expected, what);
                panic!("{what}: unfinished frame");
            }
            self.read_output(Duration::from_millis(10));
        }
    }

    /// Returns the exit status of the program, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Reads the output that has arrived.
    pub fn drain_output(&mut self) {
        while self.read_output(Duration::from_millis(3)) {}
    }

    /// Reads what a key causes at once; some keys cause nothing.
    pub fn wait_for_reaction(&mut self) {
        self.read_output(Duration::from_millis(120));
        self.drain_output();
    }

    /// Reads output until none arrives for a while.
    pub fn wait_for_quiet(&mut self) {
        let end = Instant::now() + wait_timeout();
        while self.read_output(Duration::from_millis(120)) && Instant::now() < end {}
    }

    /// Waits for the end of the program, and reads the rest of its output; the output
    /// is complete once the reader has seen its end.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let mut ended = None;
        self.wait("the end", |terminal| {
            ended = terminal.child.try_wait().unwrap();
            ended.is_some()
        });
        self.wait("the end of its output", |terminal| {
            let reader = terminal.reader.as_ref();
            let ended = reader.is_none_or(JoinHandle::is_finished);
            while terminal.read_output(Duration::ZERO) {}
            ended
        });
        ended.unwrap()
    }

    /// Returns the state letter and the processor time of the program, in seconds.
    pub fn process_state(&self) -> (char, f64) {
        let path = format!("/proc/{}/stat", self.pid());
        let text = fs::read_to_string(path).unwrap_or_default();
        let rest = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok());
        let state = fields.first().and_then(|text| text.chars().next());
        let ticks = number(11).unwrap_or(0.0) + number(12).unwrap_or(0.0);
        (state.unwrap_or('?'), ticks / 100.0)
    }

    /// Asserts that the terminal is as it was before the program started.
    #[track_caller]
    pub fn assert_restored(&self) {
        let screen = self.screen();
        assert!(
            !screen.alternate_screen(),
            "the alternate screen was not left"
        );
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is still on");
        assert_eq!(
            self.current_modes(),
            self.initial_modes,
            "the modes of the terminal"
        );
        assert!(!self.is_half_drawn(), "unfinished synchronized update");
    }

    pub fn current_modes(&self) -> String {
        modes(self.master.as_deref().expect("the terminal is closed"))
    }

    /// Returns whether the terminal is in raw mode: no echo, no signals from keys.
    pub fn is_raw(&self) -> bool {
        self.current_modes() != self.initial_modes
    }

    /// Closes the terminal, as a closed window does. `key` makes the program write
    /// something, which wakes the reading thread.
    pub fn close(&mut self, key: &str) {
        self.stop_reading.store(true, Ordering::SeqCst);
        self.send(key);
        let reader = self.reader.take().expect("the terminal is closed");
        self.wait("the reader's end", |_| reader.is_finished());
        reader.join().unwrap();
        self.writer = None;
        self.master = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test leaves no running program.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn pty_size(columns: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols: columns,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn modes(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

/// A command with an isolated environment: no variable of the user who runs the tests.
pub fn isolated_command(program: &Path, home: &Path) -> CommandBuilder {
    let mut command = CommandBuilder::new(program);
    command.env_clear();
    command.env("HOME", home);
    command.env("XDG_CONFIG_HOME", home.join("config"));
    command.env("XDG_STATE_HOME", home.join("state"));
    command.env("TMPDIR", home.join("tmp"));
    command.env("PATH", "/usr/bin:/bin");
    command.env("TERM", "xterm-256color");
    command.env("LANG", "C.UTF-8");
    command.env("TZ", "UTC");
    fs::create_dir_all(home.join("tmp")).unwrap();
    command.cwd(home);
    command
}

/// The visible content of a cell: its text and its style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleCell {
    pub text: String,
    pub fg: vt100::Color,
    pub bg: vt100::Color,
    /// Bold, dim, italic, underlined, reversed.
    pub attributes: [bool; 5],
}

impl VisibleCell {
    /// A blank shows neither its color nor its weight.
    pub fn new(
        text: &str,
        fg: vt100::Color,
        bg: vt100::Color,
        attributes: [bool; 5],
    ) -> VisibleCell {
        let blank = text.trim().is_empty();
        let [bold, dim, italic, underlined, reversed] = attributes;
        let plain = blank && !underlined && !reversed;
        VisibleCell {
            text: if blank { " " } else { text }.to_string(),
            fg: if plain { vt100::Color::Default } else { fg },
            bg,
            attributes: match blank {
                true => [false, false, false, underlined, reversed],
                false => [bold, dim, italic, underlined, reversed],
            },
        }
    }
}

/// Returns the visible content of a screen, row by row.
pub fn visible_cells(screen: &vt100::Screen) -> Vec<Vec<VisibleCell>> {
    let (rows, columns) = screen.size();
    let cell = |row, column| {
        let cell = screen.cell(row, column).unwrap();
        let attributes = [
            cell.bold(),
            cell.dim(),
            cell.italic(),
            cell.underline(),
            cell.inverse(),
        ];
        VisibleCell::new(cell.contents(), cell.fgcolor(), cell.bgcolor(), attributes)
    };
    let row = |row| (0..columns).map(|column| cell(row, column)).collect();
    (0..rows).map(row).collect()
}

/// Asserts that two screens are equal; a failure names the first difference.
#[track_caller]
pub fn assert_same_cells(left: &[Vec<VisibleCell>], right: &[Vec<VisibleCell>], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}: rows");
    for (number, (left, right)) in left.iter().zip(right).enumerate() {
        let text = |row: &[VisibleCell]| {
            row.iter()
                .map(|cell| cell.text.as_str())
                .collect::<String>()
        };
        assert_eq!(text(left), text(right), "{what}: row {number}");
        for (column, (left, right)) in left.iter().zip(right).enumerate() {
            assert_eq!(left, right, "{what}: row {number}, column {column}");
        }
    }
}
