//! The terminal: entered, left, handed to the shell and taken back; one frame,
//! one write. The only place that writes escape codes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, queue};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::model::Model;
use super::outside::Multiplexer;
use super::theme::Theme;
use super::view;
use crate::error::{PathContext, Result};

/// Draws frames: what changed since the last one goes out in one write, inside a
/// synchronized update, so that no terminal shows half of it. Nothing changed,
/// nothing goes out.
pub struct Painter<W: Write> {
    out: W,
    shown: Buffer,
    next: Buffer,
    /// Nothing is known of what is on the screen.
    forgotten: bool,
}

impl<W: Write> Painter<W> {
    /// Frames go to `out`, an empty screen.
    pub fn new(out: W) -> Painter<W> {
        Painter {
            out,
            shown: Buffer::default(),
            next: Buffer::default(),
            forgotten: false,
        }
    }

    /// Draws the model.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<()> {
        let area = Rect::new(0, 0, model.size.0, model.size.1);
        let mut bytes = Vec::new();
        queue!(bytes, BeginSynchronizedUpdate)?;
        let empty = bytes.len();
        if self.shown.area != area || self.forgotten {
            if self.forgotten || !self.shown.area.is_empty() {
                bytes.extend(b"\x1b[m\x1b[2J");
            }
            self.shown = Buffer::empty(area);
        }
        self.next.resize(area);
        self.next.reset();
        view::draw(model, theme, &mut self.next);
        encode(&self.shown, &self.next, &mut bytes)?;
        if bytes.len() > empty {
            queue!(bytes, EndSynchronizedUpdate)?;
            self.out.write_all(&bytes)?;
            self.out.flush()?;
        }
        self.forgotten = false;
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    pub fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Where frames go.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// From so many blanks on at the end of a row it is cheaper to erase them.
const ERASE: usize = 4;

/// What turns one screen into another.
fn encode(shown: &Buffer, next: &Buffer, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut style = Style::reset();
    let mut cursor = None;
    let changes = changes(shown, next);
    let mut index = 0;
    while let Some(&(x, y, cell)) = changes.get(index) {
        let rest = &changes[index..];
        if cursor != Some((x, y)) {
            match between(next, cursor, (x, y), style) {
                Some(same) => bytes.extend(same.as_bytes()),
                None => write!(bytes, "\x1b[{};{}H", y + 1, x + 1)?,
            }
        }
        let blanks = match x >= text_end(next, y) {
            true => rest.iter().take_while(|(_, row, _)| *row == y).count(),
            false => 0,
        };
        if blanks >= ERASE {
            restyle(bytes, &mut style, Style::reset())?;
            bytes.extend(b"\x1b[K");
            cursor = Some((x, y));
            index += blanks;
            continue;
        }
        restyle(bytes, &mut style, cell.style())?;
        let symbol = cell.symbol();
        // Everything foreign was made visible long before; if something were
        // not, it would end here.
        match symbol.chars().any(char::is_control) {
            true => bytes.push(b'?'),
            false => bytes.extend(symbol.as_bytes()),
        }
        // Terminals disagree on how wide a cluster of several characters is.
        let alone = symbol.chars().nth(1).is_none();
        cursor = alone.then_some((x + width(cell), y));
        index += 1;
    }
    restyle(bytes, &mut style, Style::reset())
}

/// The cells that have to be written, row by row. What a wide sign leaves of
/// itself when half of it is overwritten is up to the terminal, so the other half
/// is written, too.
fn changes<'n>(shown: &Buffer, next: &'n Buffer) -> Vec<(u16, u16, &'n Cell)> {
    let mut changes = Vec::new();
    for y in next.area.rows().map(|row| row.y) {
        let (mut covered, mut spoilt) = (0, 0);
        for x in next.area.left()..next.area.right() {
            let (old, new) = (&shown[(x, y)], &next[(x, y)]);
            let changed = old != new || spoilt > 0;
            spoilt = match changed {
                true => width(old).max(width(new)).max(spoilt) - 1,
                false => 0,
            };
            if covered > 0 {
                covered -= 1;
                continue;
            }
            covered = width(new) - 1;
            if changed {
                changes.push((x, y, new));
            }
        }
    }
    changes
}

/// How many columns a cell's sign takes: one at least.
fn width(cell: &Cell) -> u16 {
    match cell.symbol().len() {
        0..=1 => 1,
        _ => cell.symbol().width().max(1) as u16,
    }
}

/// So many cells are cheaper written again than jumped over.
const JUMP: u16 = 7;

/// What stands between the cursor and a cell to its right, if that is little and
/// looks as what is written now.
fn between(
    buffer: &Buffer,
    cursor: Option<(u16, u16)>,
    (x, y): (u16, u16),
    style: Style,
) -> Option<String> {
    let (from, _) = cursor.filter(|(from, row)| *row == y && *from < x && x - from < JUMP)?;
    let bare = Modifier::UNDERLINED | Modifier::REVERSED;
    let plain =
        style.bg.unwrap_or_default() == Color::Reset && !style.add_modifier.intersects(bare);
    let cells = (from..x).map(|column| &buffer[(column, y)]);
    let text = cells.map(|cell| {
        let same = cell.style() == style || (plain && *cell == Cell::EMPTY);
        let ascii = cell.symbol().len() == 1 && !cell.symbol().contains(char::is_control);
        (same && ascii).then_some(cell.symbol())
    });
    text.collect()
}

/// The column behind the last cell of a row that shows anything.
fn text_end(buffer: &Buffer, y: u16) -> u16 {
    let row = (buffer.area.left()..buffer.area.right()).rev();
    let blank = |cell: &Cell| cell.symbol() == " " && cell.style() == Cell::EMPTY.style();
    let last = row
        .map(|x| (x, &buffer[(x, y)]))
        .find(|(_, cell)| !blank(cell));
    last.map_or(0, |(x, cell)| x + width(cell))
}

/// Goes from one style to another.
fn restyle(bytes: &mut Vec<u8>, now: &mut Style, next: Style) -> io::Result<()> {
    let own = |style: Style| {
        (
            style.fg.unwrap_or_default(),
            style.bg.unwrap_or_default(),
            style.add_modifier,
        )
    };
    let ((fg, bg, modifiers), (next_fg, next_bg, next_modifiers)) = (own(*now), own(next));
    if own(*now) == own(next) {
        return Ok(());
    }
    *now = next;
    // What is added is added; to take something away everything is.
    let takes = !next_modifiers.contains(modifiers)
        || (fg != next_fg && next_fg == Color::Reset)
        || (bg != next_bg && next_bg == Color::Reset);
    let mut codes: Vec<String> = Vec::new();
    let (fg, bg, modifiers) = match takes {
        true => {
            codes.push(String::new());
            (Color::Reset, Color::Reset, Modifier::empty())
        }
        false => (fg, bg, modifiers),
    };
    for (modifier, code) in [
        (Modifier::BOLD, 1),
        (Modifier::DIM, 2),
        (Modifier::ITALIC, 3),
        (Modifier::UNDERLINED, 4),
        (Modifier::REVERSED, 7),
    ] {
        if (next_modifiers - modifiers).contains(modifier) {
            codes.push(code.to_string());
        }
    }
    if fg != next_fg {
        codes.push(colour(next_fg, 30));
    }
    if bg != next_bg {
        codes.push(colour(next_bg, 40));
    }
    write!(bytes, "\x1b[{}m", codes.join(";"))
}

/// The code of a colour; `base` is 30 for the text and 40 behind it.
fn colour(colour: Color, base: u8) -> String {
    let plain = |number: u8| (base + number).to_string();
    let bright = |number: u8| (base + 60 + number).to_string();
    match colour {
        Color::Reset => plain(9),
        Color::Black => plain(0),
        Color::Red => plain(1),
        Color::Green => plain(2),
        Color::Yellow => plain(3),
        Color::Blue => plain(4),
        Color::Magenta => plain(5),
        Color::Cyan => plain(6),
        Color::Gray => plain(7),
        Color::DarkGray => bright(0),
        Color::LightRed => bright(1),
        Color::LightGreen => bright(2),
        Color::LightYellow => bright(3),
        Color::LightBlue => bright(4),
        Color::LightMagenta => bright(5),
        Color::LightCyan => bright(6),
        Color::White => bright(7),
        Color::Indexed(index) => format!("{};5;{index}", base + 8),
        Color::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", base + 8),
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
        restore_on_panic();
        acquire().path("take over", path)?;
        let screen = duplicate().path("open", path)?;
        Ok(Screen {
            painter: Painter::new(screen),
        })
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        match rustix::termios::tcgetwinsize(&self.painter.out) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }

    /// Draws the model.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<()> {
        self.painter.draw(model, theme)
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    pub fn forget(&mut self) {
        self.painter.forget();
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

    /// Gives the terminal to another program, until [`Screen::resume`].
    pub fn lend(&mut self) {
        restore();
    }

    /// Asks the terminal to put a text on its clipboard, whatever machine that is
    /// on. It says nothing back. False, and nothing is sent, when the text is longer
    /// than [`CLIPBOARD`].
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(&mut self, text: &str, between: Option<Multiplexer>) -> io::Result<bool> {
        match clipboard(text, between) {
            Some(codes) => write_codes(&codes).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes the terminal again after somebody else had it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        acquire()?;
        self.forget();
        Ok(())
    }
}

/// The longest text for a terminal's clipboard, in bytes: 100 000 characters of
/// Base64 are what many terminals take, and part of a text is worse than none.
pub const CLIPBOARD: usize = 74_994;

/// How much of a sequence GNU screen hands through at once.
const PIECE: usize = 254;

/// What puts a text on the terminal's clipboard (OSC 52); none when it is too long.
pub fn clipboard(text: &str, between: Option<Multiplexer>) -> Option<Vec<u8>> {
    if text.len() > CLIPBOARD {
        return None;
    }
    let plain = format!("\x1b]52;c;{}\x07", BASE64.encode(text));
    Some(match between {
        None => plain.into_bytes(),
        // It takes the first with `set-clipboard on`, and hands the second through
        // with `allow-passthrough on`.
        Some(Multiplexer::Tmux) => {
            let doubled = plain.replace('\x1b', "\x1b\x1b");
            format!("{plain}\x1bPtmux;{doubled}\x1b\\").into_bytes()
        }
        Some(Multiplexer::Screen) => {
            let pieces = plain.as_bytes().chunks(PIECE);
            pieces
                .flat_map(|piece| [b"\x1bP", piece, b"\x1b\\"].concat())
                .collect()
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clipboard_is_asked_in_the_words_of_what_is_in_between() {
        let asked = |between| String::from_utf8(clipboard("hi\n", between).unwrap()).unwrap();
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
    fn screen_is_given_pieces_that_make_the_whole() {
        let text = "0123456789".repeat(100);
        let codes = clipboard(&text, Some(Multiplexer::Screen)).unwrap();
        let codes = String::from_utf8(codes).unwrap();
        let pieces: Vec<&str> = codes
            .split_terminator("\x1b\\")
            .map(|piece| piece.strip_prefix("\x1bP").unwrap())
            .collect();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(
            pieces.concat().into_bytes(),
            clipboard(&text, None).unwrap()
        );
    }

    #[test]
    fn a_text_that_is_too_long_is_not_sent_in_part() {
        let most = "x".repeat(CLIPBOARD);
        let codes = clipboard(&most, None).unwrap();
        assert!(codes.len() <= 100_000 + 9, "{}", codes.len());
        assert_eq!(clipboard(&(most + "x"), None), None);
    }
}
