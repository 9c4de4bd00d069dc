//! Owns the terminal: its features, raw mode and the alternate screen, the hand-over to the shell
//! or to another program, the clipboard. Escape codes occur only here and in the painter below.

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
use crate::base::error::{PathContext, Result};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::model::Model;
use crate::console::theme::{ColourDepth, Theme};

/// Maximum number of columns that are used: every cell takes memory, and a terminal may report any
/// size.
const MAX_COLUMNS: u16 = 1024;

/// Maximum number of rows that are used.
const MAX_ROWS: u16 = 512;

/// What a terminal supports, judged by its name alone: a terminal may answer a query late or never,
/// and its answer arrives between the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalFeatures {
    /// Whether rows can be moved within margins.
    pub can_scroll_region: bool,
    /// Whether erased cells take the current background.
    pub can_erase_to_background: bool,
    /// The number of colours.
    pub colour_depth: ColourDepth,
    /// Whether only ASCII can be shown.
    pub is_ascii_only: bool,
}

/// Terminals that cannot insert and delete lines within margins: those older than the VT102, and
/// those of no or unknown type. All others can, the Linux console and every multiplexer included.
const TERMS_WITHOUT_SCROLL: &[&str] = &["", "dumb", "unknown", "vt52", "vt100", "ansi", "sun"];

/// Terminals with true colour that only their name tells: SSH does not forward `COLORTERM`.
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
    /// Returns the features for the values of `TERM` and `COLORTERM`, in a UTF-8 locale.
    pub fn from_term(term: &str, colorterm: &str) -> TerminalFeatures {
        // Inside GNU screen `COLORTERM` is often that of the outer terminal; screen itself has
        // fewer colours and does not erase to the background.
        let screen = term.starts_with("screen");
        let is_claimed = matches!(colorterm, "truecolor" | "24bit") && !screen;
        let named = |name: &str| term == name || term.starts_with(&format!("{name}-"));
        let depth = match () {
            () if is_claimed || term.ends_with("-direct") => ColourDepth::TrueColour,
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

    /// Returns the features in a locale. A locale that is set tells what the terminal shows.
    /// Without one, as in containers and behind `env -i`, the terminal is assumed to show UTF-8,
    /// except for the Linux console and hardware terminals (`vt*`).
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

/// Decides when frames are drawn, so that motion stops when a held key is released.
///
/// Locally a key is answered at once, and background changes are collected. Over SSH the bytes of a
/// frame queue on the line, where the console cannot see them: the next key is answered only after
/// the time that a slow line takes to send the last frame. All pending input is handled before a
/// frame is drawn, so no backlog builds up in the console either.
#[derive(Clone, Copy, Debug)]
pub struct FramePacer {
    is_over_ssh: bool,
    /// Time of the last frame since the start of the console, and its size in bytes.
    last_frame: Option<(Duration, usize)>,
}

impl FramePacer {
    /// The slowest line on which a held key does not lag, in bytes per second.
    pub const MIN_LINE_BYTES_PER_SECOND: u64 = 4_000;

    /// The longest time that a frame delays a key.
    const MAX_FRAME_DELAY: Duration = Duration::from_millis(120);

    /// Creates a pacer before the first frame.
    pub fn new(over_ssh: bool) -> FramePacer {
        FramePacer {
            is_over_ssh: over_ssh,
            last_frame: None,
        }
    }

    /// Records that a frame of `bytes` bytes was drawn.
    pub fn record_frame(&mut self, now: Duration, bytes: usize) {
        self.last_frame = Some((now, bytes));
    }

    /// Returns how long to wait before the next frame; `is_awaited` if the operator waits for it, as
    /// after a key.
    pub fn delay_until_frame(&self, now: Duration, is_awaited: bool) -> Duration {
        let Some((last, bytes)) = self.last_frame else {
            return Duration::ZERO;
        };
        let pause = match (self.is_over_ssh, is_awaited) {
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

/// The terminal while the console owns it. Dropping it restores the terminal.
pub struct TerminalScreen {
    painter: Painter<File>,
}

/// Whether the screen is entered, and its terminal: for the panic hook, which has no other access.
/// The only global state of the console.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
static ENTERED_TTY: Mutex<Option<File>> = Mutex::new(None);

impl TerminalScreen {
    /// Takes over the terminal: raw mode, alternate screen, hidden cursor, bracketed paste. A panic
    /// of this thread restores it first.
    ///
    /// # Errors
    /// If standard output is not a terminal that supports this.
    pub fn enter(abilities: TerminalFeatures) -> Result<TerminalScreen> {
        let path = std::path::Path::new("the terminal");
        // The standard library's stdout would flush at every line feed.
        let duplicate = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
        *ENTERED_TTY
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(duplicate().with_path("open", path)?);
        install_panic_hook();
        // An error from here on drops `screen`, which restores the terminal.
        let screen = TerminalScreen {
            painter: Painter::new(duplicate().with_path("open", path)?, abilities),
        };
        acquire_terminal().with_path("take over", path)?;
        Ok(screen)
    }

    /// Returns columns and rows, at most 1,024 and 512; 80x24 if the terminal does not tell.
    pub fn size(&self) -> (u16, u16) {
        match rustix::termios::tcgetwinsize(&self.painter.out) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.min(MAX_COLUMNS), size.ws_row.min(MAX_ROWS))
            }
            _ => (80, 24),
        }
    }

    /// Draws the model and returns the number of bytes written.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<usize> {
        self.painter.draw(model, theme)
    }

    /// Forgets the screen's contents, so that the next frame draws all of it.
    pub fn invalidate(&mut self) {
        self.painter.invalidate();
    }

    /// Restores the terminal and stops the process; takes the terminal again when the process is
    /// continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Restores the terminal for another program, until [`TerminalScreen::resume`].
    pub fn release(&mut self) {
        restore_terminal();
    }

    /// Takes the keys, but not the screen, which keeps the output of another program, and writes a line
    /// below that; until [`TerminalScreen::resume`].
    pub fn show_return_prompt(&mut self, text: &str) -> io::Result<()> {
        terminal::enable_raw_mode()?;
        IS_ENTERED.store(true, Ordering::SeqCst);
        // A pasted text is one event, and no keys.
        let mut codes = Vec::new();
        queue!(codes, EnableBracketedPaste)?;
        codes.extend_from_slice(format!("\r\n{text}").as_bytes());
        write_codes(&codes)
    }

    /// Asks the terminal to put a text on its clipboard, on whatever machine it runs. The terminal
    /// does not acknowledge. Returns false and sends nothing if the text is longer than
    /// [`MAX_CLIPBOARD_BYTES`].
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

    /// Rings the bell of the terminal.
    pub fn ring_bell(&mut self) -> io::Result<()> {
        write_codes(b"\x07")
    }

    /// Takes the terminal again after another program or the shell had it.
    pub fn resume(&mut self) -> io::Result<()> {
        acquire_terminal()?;
        self.invalidate();
        Ok(())
    }
}

/// The longest text for a terminal's clipboard, in bytes: many terminals accept 100,000 characters
/// of Base64, and a truncated text is worse than none.
pub const MAX_CLIPBOARD_BYTES: usize = 74_994;

/// Bytes of a sequence that GNU screen passes through at once.
const SCREEN_CHUNK_BYTES: usize = 254;

/// Returns the sequence that puts a text on the terminal's clipboard (OSC 52), or `None` if the
/// text is too long.
pub fn clipboard_sequence(text: &str, multiplexer: Option<Multiplexer>) -> Option<Vec<u8>> {
    if text.len() > MAX_CLIPBOARD_BYTES {
        return None;
    }
    let plain = format!("\x1b]52;c;{}\x07", BASE64.encode(text));
    Some(match multiplexer {
        None => plain.into_bytes(),
        // tmux accepts the first with `set-clipboard on`, and passes the second through with
        // `allow-passthrough on`.
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
    // Raw mode first: keys typed during the switch must not be echoed.
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

/// Restores the terminal; does nothing if it is not taken. Errors are ignored: at this point
/// nothing can report them.
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

/// Installs a panic hook that restores the terminal before a panic of this thread is reported.
/// Panics of workers are caught where the workers start and shown on the screen.
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

/// Converts a key event into the keys of the console; none for keys that have no meaning here.
///
/// A terminal sends Alt as Escape before the key, so Alt and a key looks the same as Escape and a
/// key that arrive together over a slow line. No command is bound to Alt: the event counts as the
/// two keys.
pub fn keys_from_event(key: KeyEvent) -> Vec<Key> {
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    let code = match key.code {
        event::KeyCode::Char(c) => KeyCode::Char(c),
        event::KeyCode::Enter => KeyCode::Enter,
        event::KeyCode::Esc => KeyCode::Esc,
        event::KeyCode::Tab => KeyCode::Tab,
        event::KeyCode::BackTab => KeyCode::BackTab,
        event::KeyCode::Backspace => KeyCode::Backspace,
        event::KeyCode::Delete => KeyCode::Delete,
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
    if alt {
        vec![Key::from_code(KeyCode::Esc), key]
    } else {
        vec![key]
    }
}

/// Blocks until the terminal hangs up. Reading it then returns nothing for ever, so that a reader
/// in a loop would spin.
pub fn wait_for_hangup() {
    let stdin = io::stdin();
    // No events are requested: hang-up and errors are always reported.
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
