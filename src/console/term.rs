//! The terminal: entered, left, handed to the shell and taken back; one frame,
//! one write. The only place that writes escape codes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, queue};
use ratatui::backend::CrosstermBackend;

use super::model::Model;
use super::theme::Theme;
use super::view;
use crate::error::{Error, PathContext, Result};

/// Collects a frame and writes it at once, inside a synchronized update, so
/// that no terminal shows half of it.
pub struct FrameWriter<W: Write> {
    out: W,
    frame: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    /// Frames go to `out`.
    pub fn new(out: W) -> FrameWriter<W> {
        FrameWriter {
            out,
            frame: Vec::new(),
        }
    }
}

impl<W: Write> Write for FrameWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.frame.is_empty() {
            queue!(self.frame, BeginSynchronizedUpdate)?;
        }
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        queue!(self.frame, EndSynchronizedUpdate)?;
        let result = self
            .out
            .write_all(&self.frame)
            .and_then(|()| self.out.flush());
        self.frame.clear();
        result
    }
}

/// The terminal as a file. Nothing goes out to it any more once it was given
/// back: the drawing library writes when it is dropped, and complains on
/// standard error when it cannot, which a terminal that is gone would turn into
/// a panic.
struct Tty(File);

impl Write for Tty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match ENTERED.load(Ordering::SeqCst) {
            true => self.0.write(bytes),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal while the console has it. Dropping it gives it back.
pub struct Screen {
    terminal: ratatui::Terminal<CrosstermBackend<FrameWriter<Tty>>>,
}

/// Whether a screen is entered, and the terminal it is on: for the panic hook,
/// which has nothing else. The one piece of shared state here.
static ENTERED: AtomicBool = AtomicBool::new(false);
static TTY: Mutex<Option<File>> = Mutex::new(None);

impl Screen {
    /// Takes the terminal: raw mode, alternate screen, hidden cursor, pasted
    /// text marked as such. A panic of this thread gives it back first.
    ///
    /// # Errors
    /// When standard output is no terminal that can do this.
    pub fn enter() -> Result<Screen> {
        let path = std::path::Path::new("the terminal");
        // Not the standard library's stdout: that flushes at every line feed.
        let duplicate = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
        *TTY.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(duplicate().path("open", path)?);
        // NO_COLOR is the theme's business. Left to itself crossterm would
        // answer it with empty codes, which take the cursor's look away.
        crossterm::style::force_color_output(true);
        restore_on_panic();
        acquire().path("take over", path)?;
        let tty = Tty(duplicate().path("open", path)?);
        let backend = CrosstermBackend::new(FrameWriter::new(tty));
        match ratatui::Terminal::new(backend) {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                restore();
                Err(Error::io("take over", path, &error))
            }
        }
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        self.terminal
            .size()
            .map_or((80, 24), |size| (size.width, size.height))
    }

    /// Draws the model: what changed since the last frame goes out in one
    /// write.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<()> {
        self.terminal
            .draw(|frame| view::draw(model, theme, frame.buffer_mut()))?;
        Ok(())
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn forget(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    /// Gives the terminal to the shell until the process is continued.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again after somebody else had it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        acquire()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn acquire() -> io::Result<()> {
    // Raw mode first: what is typed meanwhile must not be echoed.
    terminal::enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    let mut codes = Vec::new();
    queue!(
        codes,
        EnterAlternateScreen,
        EnableBracketedPaste,
        cursor::Hide
    )?;
    write_codes(&codes)
}

/// Gives the terminal back as it was; does nothing when it is not taken. Never
/// fails: at this point there is nobody to tell.
fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut codes = Vec::new();
    let queued = queue!(
        codes,
        EndSynchronizedUpdate,
        DisableBracketedPaste,
        cursor::Show,
        LeaveAlternateScreen
    );
    if queued.is_ok() {
        let _ = write_codes(&codes);
    }
    let _ = terminal::disable_raw_mode();
}

fn write_codes(codes: &[u8]) -> io::Result<()> {
    let tty = TTY
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match tty.as_ref() {
        Some(mut tty) => tty.write_all(codes),
        None => Ok(()),
    }
}

/// Gives the terminal back before a panic of this thread is reported. Panics of
/// workers are caught where they are started and said on the screen.
fn restore_on_panic() {
    let screen_thread = std::thread::current().id();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == screen_thread {
            restore();
            report(info);
        } else if !ENTERED.load(Ordering::SeqCst) {
            report(info);
        }
    }));
}

/// Returns when the terminal has hung up. Reading it then yields nothing for
/// ever, and whoever reads it in a loop spins.
pub fn wait_until_gone() {
    let stdin = io::stdin();
    // No events asked for: hang-up and errors are always told.
    let nothing = rustix::event::PollFlags::empty();
    let mut poll = [rustix::event::PollFd::new(&stdin, nothing)];
    while let Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) =
        rustix::event::poll(&mut poll, None)
    {}
}
