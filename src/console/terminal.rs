//! The terminal: what it can do, entered, left, handed to the shell and taken
//! back. Here and in the painter below it are the only escape codes.

mod ascii;
mod painter;
mod scroll;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, KeyEvent, KeyModifiers};
use crossterm::terminal::{
    self, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{cursor, event, queue};

pub use painter::Painter;

use super::external_tools::Multiplexer;
use super::keymap::{Key, KeyCode};
use super::model::Model;
use super::theme::{ColourDepth, Theme};
use crate::error::{PathContext, Result};

/// What a terminal can do. It goes by names alone: a terminal that is asked may
/// answer late or never, and what it answers comes between the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalFeatures {
    /// Rows can be moved within margins.
    pub can_scroll_region: bool,
    /// What is erased takes the background that is set.
    pub can_erase_to_background: bool,
    /// How many colours there are.
    pub colour_depth: ColourDepth,
    /// It shows ASCII alone.
    pub is_ascii_only: bool,
}

/// Terminals that cannot insert and delete lines within margins: those from
/// before the VT102, and what pretends to be none. All others do, the Linux
/// console and every multiplexer among them.
const TERMS_WITHOUT_SCROLL: &[&str] = &["", "dumb", "unknown", "vt52", "vt100", "ansi", "sun"];

/// Terminals with all colours that say so in their name only; `COLORTERM` does
/// not come along over SSH.
const TRUE_COLOUR_TERMS: &[&str] = &[
    "alacritty",
    "contour",
    "foot",
    "ghostty",
    "wezterm",
    "xterm-ghostty",
    "xterm-kitty",
];

impl TerminalFeatures {
    /// By `TERM` and `COLORTERM`, in a locale of UTF-8.
    pub fn from_term(term: &str, colorterm: &str) -> TerminalFeatures {
        // The variable is often that of the terminal around a GNU screen, which
        // itself knows fewer colours and erases without any.
        let screen = term.starts_with("screen");
        let said = matches!(colorterm, "truecolor" | "24bit") && !screen;
        let named = |name: &str| term == name || term.starts_with(&format!("{name}-"));
        let depth = match () {
            () if said || term.ends_with("-direct") => ColourDepth::TrueColour,
            () if TRUE_COLOUR_TERMS.iter().any(|name| named(name)) => ColourDepth::TrueColour,
            () if term.contains("256color") => ColourDepth::Indexed256,
            () => ColourDepth::Ansi16,
        };
        TerminalFeatures {
            can_scroll_region: !TERMS_WITHOUT_SCROLL.contains(&term),
            can_erase_to_background: !screen,
            colour_depth: depth,
            is_ascii_only: false,
        }
    }

    /// The same in this locale. One that is set says what the terminal takes. Where
    /// none is, as in containers and behind `env -i`, the terminal is the same one
    /// that showed UTF-8 a moment ago; only the console of a machine and real
    /// terminals are not to be relied on.
    #[must_use]
    pub fn with_locale(self, locale: Option<&str>, term: &str) -> TerminalFeatures {
        let utf8 = |locale: &str| {
            let locale = locale.to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        };
        let ascii = match locale {
            Some(locale) => !utf8(locale),
            None => term == "linux" || term.starts_with("vt"),
        };
        TerminalFeatures {
            is_ascii_only: ascii,
            ..self
        }
    }
}

/// When frames are drawn, so that what a held key moves stops when it is let go.
///
/// A key is answered at once and what happens in the background is gathered. Over
/// SSH nobody sees what waits on the way: a frame there is given the time that its
/// bytes take on a slow line before the next key is answered. All input is taken
/// in before a frame is drawn, so nothing piles up here, either.
#[derive(Clone, Copy, Debug)]
pub struct FramePacer {
    is_over_ssh: bool,
    /// When the last frame was drawn, and how many bytes it had.
    last_frame: Option<(Duration, usize)>,
}

impl FramePacer {
    /// The slowest line on which a held key does not lag, in bytes per second.
    pub const MIN_LINE_BYTES_PER_SECOND: u64 = 4_000;

    /// No frame makes a key wait for longer than this.
    const MAX_FRAME_DELAY: Duration = Duration::from_millis(120);

    /// No frame was drawn yet.
    pub fn new(over_ssh: bool) -> FramePacer {
        FramePacer {
            is_over_ssh: over_ssh,
            last_frame: None,
        }
    }

    /// A frame of so many bytes was drawn.
    pub fn record_frame(&mut self, now: Duration, bytes: usize) {
        self.last_frame = Some((now, bytes));
    }

    /// How long the next frame has to wait. `keyed`: it answers a key.
    pub fn delay_until_frame(&self, now: Duration, is_key_pending: bool) -> Duration {
        let Some((last, bytes)) = self.last_frame else {
            return Duration::ZERO;
        };
        let pause = match (self.is_over_ssh, is_key_pending) {
            (false, true) => Duration::ZERO,
            (false, false) => Duration::from_millis(33),
            (true, true) => Duration::from_micros(
                bytes as u64 * 1_000_000 / FramePacer::MIN_LINE_BYTES_PER_SECOND,
            )
            .min(FramePacer::MAX_FRAME_DELAY),
            (true, false) => Duration::from_millis(250),
        };
        (last + pause).saturating_sub(now)
    }
}

/// The terminal while the console has it. Dropping it gives it back.
pub struct TerminalScreen {
    painter: Painter<File>,
}

/// Whether a screen is entered, and the terminal it is on: for the panic hook,
/// which has nothing else. The one piece of shared state here.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
static ENTERED_TTY: Mutex<Option<File>> = Mutex::new(None);

impl TerminalScreen {
    /// Takes the terminal: raw mode, alternate screen, hidden cursor, pasted
    /// text marked as such. A panic of this thread gives it back first.
    ///
    /// # Errors
    /// When standard output is no terminal that can do this.
    pub fn enter(abilities: TerminalFeatures) -> Result<TerminalScreen> {
        let path = std::path::Path::new("the terminal");
        // Not the standard library's stdout: that flushes at every line feed.
        let duplicate = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
        *ENTERED_TTY
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(duplicate().with_path("open", path)?);
        install_panic_hook();
        // Whatever fails from here on drops this, which gives the terminal back.
        let screen = TerminalScreen {
            painter: Painter::new(duplicate().with_path("open", path)?, abilities),
        };
        acquire_terminal().with_path("take over", path)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        match rustix::termios::tcgetwinsize(&self.painter.out) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }

    /// Draws the model; says how many bytes that took.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<usize> {
        self.painter.draw(model, theme)
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    pub fn invalidate(&mut self) {
        self.painter.invalidate();
    }

    /// Gives the terminal to the shell until the process is continued.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Gives the terminal to another program, until [`TerminalScreen::resume`].
    pub fn release(&mut self) {
        restore_terminal();
    }

    /// Asks the terminal to put a text on its clipboard, whatever machine that is
    /// on. It says nothing back. False, and nothing is sent, when the text is longer
    /// than [`MAX_CLIPBOARD_BYTES`].
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy_to_clipboard(
        &mut self,
        text: &str,
        multiplexer: Option<Multiplexer>,
    ) -> io::Result<bool> {
        match clipboard_sequence(text, multiplexer) {
            Some(codes) => write_codes(&codes).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes the terminal again after somebody else had it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        acquire_terminal()?;
        self.invalidate();
        Ok(())
    }
}

/// The longest text for a terminal's clipboard, in bytes: 100 000 characters of
/// Base64 are what many terminals take, and part of a text is worse than none.
pub const MAX_CLIPBOARD_BYTES: usize = 74_994;

/// How much of a sequence GNU screen hands through at once.
const SCREEN_CHUNK_BYTES: usize = 254;

/// What puts a text on the terminal's clipboard (OSC 52); none when it is too long.
pub fn clipboard_sequence(text: &str, multiplexer: Option<Multiplexer>) -> Option<Vec<u8>> {
    if text.len() > MAX_CLIPBOARD_BYTES {
        return None;
    }
    let plain = format!("\x1b]52;c;{}\x07", BASE64.encode(text));
    Some(match multiplexer {
        None => plain.into_bytes(),
        // It takes the first with `set-clipboard on`, and hands the second through
        // with `allow-passthrough on`.
        Some(Multiplexer::Tmux) => {
            let doubled = plain.replace('\x1b', "\x1b\x1b");
            format!("{plain}\x1bPtmux;{doubled}\x1b\\").into_bytes()
        }
        Some(Multiplexer::Screen) => {
            let pieces = plain.as_bytes().chunks(SCREEN_CHUNK_BYTES);
            pieces
                .flat_map(|piece| [b"\x1bP", piece, b"\x1b\\"].concat())
                .collect()
        }
    })
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

fn acquire_terminal() -> io::Result<()> {
    // Raw mode first: what is typed meanwhile must not be echoed.
    terminal::enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
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
fn restore_terminal() {
    if !IS_ENTERED.swap(false, Ordering::SeqCst) {
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
    let tty = ENTERED_TTY
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match tty.as_ref() {
        Some(mut tty) => tty.write_all(codes),
        None => Ok(()),
    }
}

/// Gives the terminal back before a panic of this thread is reported. Panics of
/// workers are caught where they are started and said on the screen.
fn install_panic_hook() {
    let screen_thread = std::thread::current().id();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == screen_thread {
            restore_terminal();
            report(info);
        } else if !IS_ENTERED.load(Ordering::SeqCst) {
            report(info);
        }
    }));
}

/// A key of the terminal library as ours; none for keys that mean nothing here.
///
/// A terminal sends Alt as Escape before the key, so Escape and another key
/// that come together over a slow line look the same. Nothing is bound to Alt:
/// it is taken for the two keys.
pub fn keys_from_event(key: KeyEvent) -> Vec<Key> {
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    let code = match key.code {
        event::KeyCode::Char(c) => KeyCode::Char(c),
        event::KeyCode::Enter => KeyCode::Enter,
        event::KeyCode::Esc => KeyCode::Esc,
        event::KeyCode::Tab => KeyCode::Tab,
        event::KeyCode::BackTab => KeyCode::BackTab,
        event::KeyCode::Backspace => KeyCode::Backspace,
        event::KeyCode::Up => KeyCode::Up,
        event::KeyCode::Down => KeyCode::Down,
        event::KeyCode::Left => KeyCode::Left,
        event::KeyCode::Right => KeyCode::Right,
        event::KeyCode::PageUp => KeyCode::PageUp,
        event::KeyCode::PageDown => KeyCode::PageDown,
        event::KeyCode::Home => KeyCode::Home,
        event::KeyCode::End => KeyCode::End,
        event::KeyCode::F(number) => KeyCode::F(number),
        _ => return Vec::new(),
    };
    let key = Key {
        code,
        has_ctrl: key.modifiers.contains(KeyModifiers::CONTROL),
    };
    match alt {
        true => vec![Key::from_code(KeyCode::Esc), key],
        false => vec![key],
    }
}

/// Returns when the terminal has hung up. Reading it then yields nothing for
/// ever, and whoever reads it in a loop spins.
pub fn wait_for_hangup() {
    let stdin = io::stdin();
    // No events asked for: hang-up and errors are always told.
    let nothing = rustix::event::PollFlags::empty();
    let mut poll = [rustix::event::PollFd::new(&stdin, nothing)];
    while let Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) =
        rustix::event::poll(&mut poll, None)
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_features_follow_from_names() {
        let of = |term, colorterm| {
            let able = TerminalFeatures::from_term(term, colorterm);
            (
                able.colour_depth,
                able.can_scroll_region,
                able.can_erase_to_background,
            )
        };
        let table = [
            ("xterm-256color", "", (ColourDepth::Indexed256, true, true)),
            (
                "xterm-256color",
                "truecolor",
                (ColourDepth::TrueColour, true, true),
            ),
            (
                "tmux-256color",
                "24bit",
                (ColourDepth::TrueColour, true, true),
            ),
            ("xterm", "", (ColourDepth::Ansi16, true, true)),
            ("xterm", "yes", (ColourDepth::Ansi16, true, true)),
            ("linux", "", (ColourDepth::Ansi16, true, true)),
            ("xterm-kitty", "", (ColourDepth::TrueColour, true, true)),
            ("alacritty", "", (ColourDepth::TrueColour, true, true)),
            ("foot-extra", "", (ColourDepth::TrueColour, true, true)),
            ("footloose", "", (ColourDepth::Ansi16, true, true)),
            ("konsole-direct", "", (ColourDepth::TrueColour, true, true)),
            (
                "screen-256color",
                "truecolor",
                (ColourDepth::Indexed256, true, false),
            ),
            ("screen", "truecolor", (ColourDepth::Ansi16, true, false)),
            ("vt220", "", (ColourDepth::Ansi16, true, true)),
            ("vt100", "", (ColourDepth::Ansi16, false, true)),
            ("", "", (ColourDepth::Ansi16, false, true)),
        ];
        for (term, colorterm, expected) in table {
            assert_eq!(of(term, colorterm), expected, "{term}, {colorterm}");
        }
    }

    #[test]
    fn ascii_mode_follows_from_locale() {
        let ascii = |locale, term| {
            TerminalFeatures::from_term(term, "")
                .with_locale(locale, term)
                .is_ascii_only
        };
        for locale in ["C.UTF-8", "de_DE.utf8", "en_US.UTF-8@euro"] {
            assert!(!ascii(Some(locale), "linux"), "{locale}");
        }
        for locale in ["C", "POSIX", "en_US", "de_DE.ISO-8859-1"] {
            assert!(ascii(Some(locale), "xterm"), "{locale}");
        }
        assert!(ascii(None, "linux") && ascii(None, "vt220"));
        assert!(!ascii(None, "xterm-256color") && !ascii(None, "tmux"));
    }

    #[test]
    fn key_frames_are_delayed_only_over_ssh() {
        let ms = Duration::from_millis;
        let waits = |over_ssh, keyed, bytes| {
            let mut pace = FramePacer::new(over_ssh);
            assert_eq!(
                pace.delay_until_frame(ms(5), keyed),
                Duration::ZERO,
                "the first frame"
            );
            pace.record_frame(ms(10), bytes);
            (
                pace.delay_until_frame(ms(10), keyed),
                pace.delay_until_frame(ms(1_000), keyed),
            )
        };
        assert_eq!(waits(false, true, 9_000), (ms(0), ms(0)));
        assert_eq!(waits(false, false, 9_000), (ms(33), ms(0)));
        assert_eq!(waits(true, true, 100), (ms(25), ms(0)));
        assert_eq!(waits(true, true, 9_000), (ms(120), ms(0)));
        assert_eq!(waits(true, false, 100), (ms(250), ms(0)));
    }

    #[test]
    fn clipboard_sequence_is_wrapped_for_multiplexer() {
        let asked =
            |between| String::from_utf8(clipboard_sequence("hi\n", between).unwrap()).unwrap();
        assert_eq!(asked(None), "\x1b]52;c;aGkK\x07");
        assert_eq!(
            asked(Some(Multiplexer::Tmux)),
            "\x1b]52;c;aGkK\x07\x1bPtmux;\x1b\x1b]52;c;aGkK\x07\x1b\\"
        );
        assert_eq!(
            asked(Some(Multiplexer::Screen)),
            "\x1bP\x1b]52;c;aGkK\x07\x1b\\"
        );
    }

    #[test]
    fn screen_passthrough_is_chunked() {
        let text = "0123456789".repeat(100);
        let codes = clipboard_sequence(&text, Some(Multiplexer::Screen)).unwrap();
        let codes = String::from_utf8(codes).unwrap();
        let pieces: Vec<&str> = codes
            .split_terminator("\x1b\\")
            .map(|piece| piece.strip_prefix("\x1bP").unwrap())
            .collect();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() <= SCREEN_CHUNK_BYTES));
        assert_eq!(
            pieces.concat().into_bytes(),
            clipboard_sequence(&text, None).unwrap()
        );
    }

    #[test]
    fn oversize_text_is_not_sent_to_clipboard() {
        let most = "x".repeat(MAX_CLIPBOARD_BYTES);
        let codes = clipboard_sequence(&most, None).unwrap();
        assert!(codes.len() <= 100_000 + 9, "{}", codes.len());
        assert_eq!(clipboard_sequence(&(most + "x"), None), None);
    }
}
