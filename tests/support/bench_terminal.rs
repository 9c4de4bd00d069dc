//! A terminal program driven by a benchmark: keys in, and the times and bytes of its frames out.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const FRAME_END: &[u8] = b"\x1b[?2026l";

/// Queries to a terminal, and its replies.
const ANSWERS: &[(&[u8], &[u8])] = &[
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[>c", b"\x1b[>41;354;0c"),
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),
    (b"\x1b[?u", b"\x1b[?0u"),
    (b"\x1b]10;?", b"\x1b]10;rgb:eeee/eeee/eeee\x07"),
    (b"\x1b]11;?", b"\x1b]11;rgb:1111/1111/1111\x07"),
];

/// A program in a pseudo-terminal.
pub struct Terminal {
    output: Receiver<(Instant, Vec<u8>)>,
    input: Arc<Mutex<Box<dyn Write + Send>>>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    pub screen: vt100::Parser,
    master: Box<dyn portable_pty::MasterPty + Send>,
    reader: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    pub began: Instant,
    pub first_byte: Option<Instant>,
    pub frames: usize,
}

impl Terminal {
    pub fn start(program: &str, arguments: &[&Path]) -> Terminal {
        Terminal::start_in(program, arguments, "/usr/bin:/bin".as_ref())
    }

    /// Starts a program that finds others on this search path.
    pub fn start_in(program: &str, arguments: &[&Path], search_path: &OsStr) -> Terminal {
        let size = PtySize {
            rows: 36,
            cols: 120,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(program);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.env("PATH", search_path);
        command.env("LANG", "C.UTF-8");
        command.cwd(env!("CARGO_MANIFEST_DIR"));
        command.args(arguments);
        let mut from = pair.master.try_clone_reader().expect("a reader");
        let input = Arc::new(Mutex::new(pair.master.take_writer().expect("a writer")));
        let (sender, output) = channel();
        let answers = Arc::downgrade(&input);
        let began = Instant::now();
        let child = pair.slave.spawn_command(command).expect("a program");
        let stop = Arc::new(AtomicBool::new(false));
        let enough = Arc::clone(&stop);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let (at, piece) = (Instant::now(), buffer[..count].to_vec());
                for (question, answer) in ANSWERS {
                    if find(&piece, question)
                        && let Some(input) = answers.upgrade()
                        && let Ok(mut input) = input.lock()
                    {
                        let _ = input.write_all(answer);
                    }
                }
                let gone = sender.send((at, piece)).is_err();
                if gone || enough.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Terminal {
            output,
            input,
            child,
            screen: vt100::Parser::new(36, 120, 0),
            master: pair.master,
            reader,
            stop,
            began,
            first_byte: None,
            frames: 0,
        }
    }

    pub fn send(&self, keys: &[u8]) {
        let mut input = self.input.lock().expect("a writer");
        input.write_all(keys).expect("a key");
    }

    /// Reads one piece of output; returns its arrival time and number of bytes.
    pub fn take(&mut self, wait: Duration) -> Option<(Instant, usize)> {
        let (at, piece) = self.output.recv_timeout(wait).ok()?;
        self.first_byte.get_or_insert(at);
        self.screen.process(&piece);
        self.frames += piece
            .windows(FRAME_END.len())
            .filter(|bytes| *bytes == FRAME_END)
            .count();
        Some((at, piece.len()))
    }

    /// Reads output until a condition holds; returns the arrival time of the last piece.
    pub fn until(&mut self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) -> Instant {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if let Some((at, _)) = self.take(Duration::from_millis(100))
                && holds(self.screen.screen())
            {
                return at;
            }
        }
        panic!("{what} never came:\n{}", self.screen.screen().contents());
    }

    /// Reads output until there has been none for `quiet`; returns the number of bytes and the
    /// arrival time of the last one.
    pub fn drain(&mut self, quiet: Duration) -> (usize, Option<Instant>) {
        let (mut bytes, mut last) = (0, None);
        while let Some((at, count)) = self.take(quiet) {
            bytes += count;
            last = Some(at);
        }
        (bytes, last)
    }

    /// Sends a key; returns the bytes of its frame and their delay.
    pub fn key(&mut self, key: &[u8]) -> (usize, Option<Duration>) {
        let pressed = Instant::now();
        self.send(key);
        let (bytes, last) = self.drain(Duration::from_millis(30));
        (bytes, last.map(|last| last - pressed))
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("a process")
    }

    /// Closes the terminal; returns how long the program outlives it.
    pub fn close(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        // The output for this key wakes the reader, which has the terminal open, too.
        self.send(b"j");
        self.reader.join().expect("the reader");
        drop((self.master, self.input));
        let began = Instant::now();
        self.child.wait().expect("the end");
        began.elapsed()
    }

    pub fn quit(mut self, key: &[u8]) {
        self.send(key);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            self.take(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

/// Returns the row of the cursor.
pub fn cursor(screen: &vt100::Screen) -> Option<u16> {
    (0..36).find(|row| {
        screen
            .cell(*row, 0)
            .is_some_and(|cell| cell.contents() == ">")
    })
}
