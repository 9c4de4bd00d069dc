//! The terminal: entered, left, handed to the shell and taken back; one frame,
//! one write. The only place that writes escape codes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{TerminalOptions, Viewport};

use super::model::Model;
use super::theme::Theme;
use super::view;
use crate::error::{Error, PathContext, Result};

/// Draws frames: what changed since the last one goes out in one write, inside a
/// synchronized update, so that no terminal shows half of it.
pub struct Painter<W: Write> {
    terminal: ratatui::Terminal<CrosstermBackend<FrameWriter>>,
    frame: FrameWriter,
    out: W,
}

/// Where the drawing library writes. It flushes when it likes, also when it is
/// dropped; nothing leaves before the frame is whole.
#[derive(Clone, Default)]
struct FrameWriter(Rc<RefCell<Vec<u8>>>);

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Painter<W> {
    /// Frames go to `out`.
    ///
    /// # Errors
    /// When the size of the terminal is needed and not known.
    pub fn new(out: W, viewport: Viewport) -> io::Result<Painter<W>> {
        let frame = FrameWriter::default();
        let backend = CrosstermBackend::new(frame.clone());
        let terminal = ratatui::Terminal::with_options(backend, TerminalOptions { viewport })?;
        Ok(Painter {
            terminal,
            frame,
            out,
        })
    }

    /// Draws the model.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<()> {
        self.terminal
            .draw(|frame| view::draw(model, theme, frame.buffer_mut()))?;
        let drawn = std::mem::take(&mut *self.frame.0.borrow_mut());
        let mut bytes = Vec::with_capacity(drawn.len() + 16);
        queue!(bytes, BeginSynchronizedUpdate)?;
        bytes.extend(drawn);
        queue!(bytes, EndSynchronizedUpdate)?;
        self.out.write_all(&bytes)?;
        self.out.flush()
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    ///
    /// # Errors
    /// When the size of the terminal is not known.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`: that asks the terminal where its cursor is, and waits for
        // the answer.
        let area = self.terminal.get_frame().area();
        self.terminal.resize(area)
    }

    /// Where frames go.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// The terminal while the console has it. Dropping it gives it back.
pub struct Screen {
    painter: Painter<File>,
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
        let screen = duplicate().path("open", path)?;
        match Painter::new(screen, Viewport::Fullscreen) {
            Ok(painter) => Ok(Screen { painter }),
            Err(error) => {
                restore();
                Err(Error::io("take over", path, &error))
            }
        }
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        self.painter
            .terminal
            .size()
            .map_or((80, 24), |size| (size.width, size.height))
    }

    /// Draws the model.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<()> {
        self.painter.draw(model, theme)
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn forget(&mut self) -> io::Result<()> {
        self.painter.forget()
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
