//! A program in a terminal of its own: a pseudo-terminal, an emulator behind
//! it, and helpers that wait for what is on the screen instead of sleeping.

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

/// How long anything is waited for. `MEMORY_SHEPHERD_TEST_WAIT` says it
/// otherwise, in seconds.
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
    /// Everything that came out.
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

    /// The same in a terminal that takes nothing, as after ^S, before the second is
    /// called.
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

    /// What stands in a row of the screen.
    pub fn row(&self, row: u16) -> String {
        let (_, columns) = self.screen().size();
        self.screen().rows(0, columns).nth(row.into()).unwrap()
    }

    pub fn text(&self) -> String {
        self.screen().contents()
    }

    pub fn send(&mut self, keys: &str) {
        let writer = self.writer.as_mut().expect("an open terminal");
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let master = self.master.as_ref().expect("an open terminal");
        master.resize(pty_size(columns, rows)).unwrap();
        self.emulator.screen_mut().set_size(rows, columns);
    }

    /// Has this size for an instant that the program does not see, and keeps what
    /// fits into it.
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

    /// Takes in what comes within a time; false when nothing came or nothing
    /// will any more.
    fn read_output(&mut self, time: Duration) -> bool {
        match self.output.recv_timeout(time) {
            Ok(bytes) => {
                self.emulator.process(&bytes);
                self.bytes.extend(bytes);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                // The reader is gone and there is nothing to wait for but time.
                thread::park_timeout(time.min(Duration::from_millis(5)));
                false
            }
        }
    }

    /// Takes in output until a condition holds; says how long it took.
    #[track_caller]
    pub fn wait(&mut self, what: &str, mut holds: impl FnMut(&mut Terminal) -> bool) -> Duration {
        let began = Instant::now();
        let end = began + wait_timeout();
        while self.is_half_drawn() || !holds(self) {
            if Instant::now() > end {
                panic!("waited for {what}; the screen is:\n{}", self.text());
            }
            self.read_output(Duration::from_millis(10));
        }
        began.elapsed()
    }

    /// Whether a frame has begun to come and not ended: a terminal shows none of
    /// it yet.
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

    /// Sends keys until a condition holds. What is typed ahead of a plan or a question is
    /// ignored, and the screen says so: they are sent again once keys count.
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
                !terminal.text().contains("Keys typed ahead")
            });
            holds(terminal)
        })
    }

    /// Waits until the screen shows exactly this; else says where it differs.
    #[track_caller]
    pub fn wait_for_cells(&mut self, what: &str, expected: &[Vec<VisibleCell>]) {
        let end = Instant::now() + wait_timeout();
        while self.is_half_drawn() || visible_cells(self.screen()) != expected {
            if Instant::now() > end {
                assert_same_cells(&visible_cells(self.screen()), expected, what);
                panic!("{what}: a frame has begun and does not end");
            }
            self.read_output(Duration::from_millis(10));
        }
    }

    /// How the program ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Takes in what has come.
    pub fn drain_output(&mut self) {
        while self.read_output(Duration::from_millis(3)) {}
    }

    /// Takes in output until none came for a while.
    pub fn wait_for_quiet(&mut self) {
        let end = Instant::now() + wait_timeout();
        while self.read_output(Duration::from_millis(120)) && Instant::now() < end {}
    }

    /// Waits for the end of the program, and takes in the rest of its output: there
    /// is none left once the reader has seen the end of it.
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

    /// The state letter and the processor time of the program, in seconds.
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

    /// That the terminal is as it was before the program came.
    #[track_caller]
    pub fn assert_restored(&self) {
        let screen = self.screen();
        assert!(
            !screen.alternate_screen(),
            "the alternate screen was not left"
        );
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "pasted text is still marked");
        assert_eq!(
            self.current_modes(),
            self.initial_modes,
            "the modes of the terminal"
        );
        assert!(!self.is_half_drawn(), "a synchronized update was not ended");
    }

    pub fn current_modes(&self) -> String {
        modes(self.master.as_deref().expect("an open terminal"))
    }

    /// Whether the terminal is in raw mode: no echo, no signals from keys.
    pub fn is_raw(&self) -> bool {
        self.current_modes() != self.initial_modes
    }

    /// Closes the terminal, as when its window goes. `key` makes the program
    /// write something, which is what wakes the thread that reads.
    pub fn close(&mut self, key: &str) {
        self.stop_reading.store(true, Ordering::SeqCst);
        self.send(key);
        let reader = self.reader.take().expect("an open terminal");
        self.wait("the reader's end", |_| reader.is_finished());
        reader.join().unwrap();
        self.writer = None;
        self.master = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
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

/// A command with an environment of its own: nothing of whoever runs the tests.
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

/// What can be seen in a cell: its text, and how it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleCell {
    pub text: String,
    pub fg: vt100::Color,
    pub bg: vt100::Color,
    /// Bold, dim, italic, underlined, reversed.
    pub attributes: [bool; 5],
}

impl VisibleCell {
    /// A blank shows neither its colour nor how thick it is.
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

/// What can be seen on a screen, row by row.
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

/// The first place in which two screens differ, for people.
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
