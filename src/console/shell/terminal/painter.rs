//! Turns one screen into the next with as few bytes as possible, in one write per frame.

use std::io::{self, Write};

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::TerminalFeatures;
use super::ascii;
use super::scroll::ScrollMove;
use crate::console::model::Model;
use crate::console::theme::{ANSI_COLOURS, Role, Theme};
use crate::console::view;

/// The terminal applies the bytes between these two at once.
const BEGIN_SYNC: &[u8] = b"\x1b[?2026h";
const END_SYNC: &[u8] = b"\x1b[?2026l";

/// Draws frames: the changes since the last one in one write, inside a synchronized update, so that
/// no terminal shows half a frame. An unchanged frame writes nothing. The terminal itself moves
/// rows that only moved.
pub struct Painter<W: Write> {
    pub(super) out: W,
    features: TerminalFeatures,
    current_buffer: Buffer,
    next_buffer: Buffer,
    /// Whether the screen's contents are unknown.
    is_invalid: bool,
}

impl<W: Write> Painter<W> {
    /// Creates a painter for `out`, an empty screen with these features.
    pub fn new(out: W, abilities: TerminalFeatures) -> Painter<W> {
        Painter {
            out,
            features: abilities,
            current_buffer: Buffer::default(),
            next_buffer: Buffer::default(),
            is_invalid: false,
        }
    }

    /// Draws the model and returns the number of bytes written.
    pub fn draw(&mut self, model: &Model, theme: &Theme) -> io::Result<usize> {
        let area = Rect::new(0, 0, model.size.0, model.size.1);
        let ground = theme.style(Role::Text).bg.unwrap_or_default();
        self.draw_frame(area, ground, |buffer| view::draw(model, theme, buffer))
    }

    /// Draws what `draw` puts into an empty buffer, most of it on the background `ground`, and
    /// returns the number of bytes written.
    pub fn draw_frame(
        &mut self,
        area: Rect,
        ground: Color,
        draw: impl FnOnce(&mut Buffer),
    ) -> io::Result<usize> {
        let mut pen = Pen::new(self.features.can_erase_to_background);
        if self.current_buffer.area != area || self.is_invalid {
            // The screen, the style and the margins may be anything.
            let known = !self.is_invalid && self.current_buffer.area.is_empty();
            self.current_buffer = Buffer::empty(area);
            if !known {
                pen.bytes.extend(b"\x1b[m\x1b[r\x1b[2J");
            }
            if ground != Color::Reset && self.features.can_erase_to_background {
                pen.set_style(Style::new().bg(ground));
                pen.bytes.extend(b"\x1b[2J");
                self.current_buffer.set_style(area, Style::new().bg(ground));
            }
        }
        self.next_buffer.resize(area);
        self.next_buffer.reset();
        draw(&mut self.next_buffer);
        if self.features.is_ascii_only {
            ascii::substitute_ascii(&mut self.next_buffer, cell_width);
        }
        let bytes = self.shortest_update(pen);
        if !bytes.is_empty() {
            let frame = [BEGIN_SYNC, &bytes, END_SYNC].concat();
            self.out.write_all(&frame)?;
            self.out.flush()?;
        }
        self.is_invalid = false;
        std::mem::swap(&mut self.current_buffer, &mut self.next_buffer);
        Ok(match bytes.len() {
            0 => 0,
            length => length + BEGIN_SYNC.len() + END_SYNC.len(),
        })
    }

    /// Returns the bytes for the next screen: with rows moved by the terminal or without, whichever
    /// is shorter.
    fn shortest_update(&self, mut pen: Pen) -> Vec<u8> {
        let scroll = if self.features.can_scroll_region {
            ScrollMove::find(&self.current_buffer, &self.next_buffer)
        } else {
            None
        };
        let moved = scroll.map(|scroll| {
            let (mut pen, mut shown) = (pen.clone(), self.current_buffer.clone());
            pen.scroll_rows(scroll);
            scroll.apply(&mut shown);
            pen.write_changes(&shown, &self.next_buffer);
            pen.bytes
        });
        pen.write_changes(&self.current_buffer, &self.next_buffer);
        match moved {
            Some(moved) if moved.len() < pen.bytes.len() => moved,
            _ => pen.bytes,
        }
    }

    /// Forgets the screen's contents, so that the next frame draws all of it.
    pub fn invalidate(&mut self) {
        self.is_invalid = true;
    }

    /// Returns the writer that frames go to.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// Blanks at the end of a row from which erasing is cheaper than writing.
const MIN_ERASE_CELLS: usize = 4;

/// Distance in cells from which a jump is cheaper than writing the cells again.
const MIN_JUMP_CELLS: u16 = 7;

/// The bytes written so far, and the terminal's state after them.
#[derive(Clone)]
struct Pen {
    bytes: Vec<u8>,
    style: Style,
    /// The cursor's position, if it is certain.
    position: Option<(u16, u16)>,
    /// Whether erased cells take the current background.
    can_erase: bool,
}

impl Pen {
    /// Creates a pen in the state in which each frame begins and ends.
    fn new(erases: bool) -> Pen {
        Pen {
            bytes: Vec::new(),
            style: Style::reset(),
            position: None,
            can_erase: erases,
        }
    }

    /// Moves rows by deleting or inserting lines within margins. That is older than the codes for
    /// scrolling, which the Linux console lacks and some multiplexers support only in part. Setting
    /// margins moves the cursor.
    fn scroll_rows(&mut self, scroll: ScrollMove) {
        self.set_style(Style::reset());
        let (top, bottom) = (scroll.top + 1, scroll.bottom + 1);
        let command = if scroll.is_upward { 'M' } else { 'L' };
        let by = match scroll.distance {
            1 => String::new(),
            by => by.to_string(),
        };
        let codes = format!("\x1b[{top};{bottom}r\x1b[{top}H\x1b[{by}{command}\x1b[r");
        self.bytes.extend(codes.into_bytes());
        self.position = None;
    }

    /// Writes the bytes that turn one screen into another.
    fn write_changes(&mut self, shown: &Buffer, next: &Buffer) {
        let changes = changed_cells(shown, next);
        let mut index = 0;
        while let Some(&(x, y, cell)) = changes.get(index) {
            self.move_to(next, x, y);
            let blanks = if is_blank(cell) && x >= row_text_end(next, y) {
                let rest = changes[index..].iter();
                rest.take_while(|(_, row, _)| *row == y).count()
            } else {
                0
            };
            if blanks >= MIN_ERASE_CELLS && (self.can_erase || cell.bg == Color::Reset) {
                self.set_style(Style::new().bg(cell.bg));
                self.bytes.extend(b"\x1b[K");
                index += blanks;
                continue;
            }
            self.put_cell(cell);
            // Terminals disagree on the width of a cluster of several characters, and on the
            // cursor's position behind the last column.
            let alone = cell.symbol().chars().nth(1).is_none();
            let after = x + cell_width(cell);
            self.position = (alone && after < next.area.width).then_some((after, y));
            index += 1;
        }
        self.set_style(Style::reset());
    }

    /// Moves the cursor to a cell: by writing the cells before it, if they are few and look as the
    /// pen writes, else with a code.
    fn move_to(&mut self, next: &Buffer, x: u16, y: u16) {
        if self.position == Some((x, y)) {
            return;
        }
        let near = |(from, row): &(u16, u16)| *row == y && *from < x && x - from < MIN_JUMP_CELLS;
        let between = self.position.filter(near).and_then(|(from, _)| {
            let cells = (from..x).map(|column| &next[(column, y)]);
            let text = cells.map(|cell| {
                let same =
                    style_of_cell(cell) == normalized_style(self.style) || self.is_blank_like(cell);
                let ascii = cell.symbol().len() == 1 && !cell.symbol().contains(char::is_control);
                (same && ascii).then_some(cell.symbol())
            });
            text.collect::<Option<String>>()
        });
        match between {
            Some(text) => self.bytes.extend(text.into_bytes()),
            None if x == 0 => self.bytes.extend(format!("\x1b[{}H", y + 1).into_bytes()),
            None => {
                let code = format!("\x1b[{};{}H", y + 1, x + 1);
                self.bytes.extend(code.into_bytes());
            }
        }
        self.position = Some((x, y));
    }

    /// Returns whether a blank written with the pen looks like this cell.
    fn is_blank_like(&self, cell: &Cell) -> bool {
        let style = self.style;
        is_blank(cell)
            && !style.add_modifier.intersects(BLANK_MODIFIERS)
            && style.bg.unwrap_or_default() == cell.bg
    }

    fn put_cell(&mut self, cell: &Cell) {
        if !self.is_blank_like(cell) {
            self.set_style(cell.style());
        }
        let symbol = cell.symbol();
        // Untrusted text was made visible long before; this is the last line of defence.
        if symbol.chars().any(char::is_control) {
            self.bytes.push(b'?')
        } else {
            self.bytes.extend(symbol.as_bytes())
        }
    }

    /// Switches to another style: from the current one or from a reset, whichever is shorter.
    fn set_style(&mut self, next: Style) {
        let (now, next_style) = (normalized_style(self.style), normalized_style(next));
        if now == next_style {
            return;
        }
        self.style = next;
        let step = style_codes(now, next_style).join(";");
        let mut reset = vec![String::new()];
        reset.extend(style_codes(normalized_style(Style::reset()), next_style));
        let reset = reset.join(";");
        let code = if step.len() < reset.len() {
            step
        } else {
            reset
        };
        self.bytes.extend(format!("\x1b[{code}m").into_bytes());
    }
}

/// Returns the cells to write, row by row. Terminals differ in what they leave of a wide character
/// when one half is overwritten, so the other half is written as well.
fn changed_cells<'n>(shown: &Buffer, next: &'n Buffer) -> Vec<(u16, u16, &'n Cell)> {
    let mut changes = Vec::new();
    for y in next.area.rows().map(|row| row.y) {
        let (mut covered, mut overwritten) = (0, 0);
        for x in next.area.left()..next.area.right() {
            let (old, new) = (&shown[(x, y)], &next[(x, y)]);
            let blank = is_blank(old) && is_blank(new) && old.bg == new.bg;
            let changed = (old != new && !blank) || overwritten > 0;
            overwritten = if changed {
                cell_width(old).max(cell_width(new)).max(overwritten) - 1
            } else {
                0
            };
            if covered > 0 {
                covered -= 1;
                continue;
            }
            covered = cell_width(new) - 1;
            if changed {
                changes.push((x, y, new));
            }
        }
    }
    changes
}

/// Returns the width of a cell's symbol in columns, at least 1.
fn cell_width(cell: &Cell) -> u16 {
    match cell.symbol().len() {
        0..=1 => 1,
        _ => cell.symbol().width().max(1) as u16,
    }
}

/// Modifiers that are visible on a blank.
const BLANK_MODIFIERS: Modifier = Modifier::UNDERLINED.union(Modifier::REVERSED);

/// Returns whether a cell shows only its background.
fn is_blank(cell: &Cell) -> bool {
    cell.symbol() == " " && !cell.modifier.intersects(BLANK_MODIFIERS)
}

/// Returns the column from which a row is blank, all on one background.
fn row_text_end(buffer: &Buffer, y: u16) -> u16 {
    let (left, right) = (buffer.area.left(), buffer.area.right());
    let ground = buffer[(right - 1, y)].bg;
    let row = (left..right).rev().map(|x| (x, &buffer[(x, y)]));
    let mut texts = row.skip_while(|(_, cell)| is_blank(cell) && cell.bg == ground);
    texts.next().map_or(0, |(x, cell)| x + cell_width(cell))
}

/// The visible attributes of a cell: foreground, background, modifiers.
type CellStyle = (Color, Color, Modifier);

fn style_of_cell(cell: &Cell) -> CellStyle {
    normalized_style(cell.style())
}

fn normalized_style(style: Style) -> CellStyle {
    (
        style.fg.unwrap_or_default(),
        style.bg.unwrap_or_default(),
        style.add_modifier,
    )
}

/// Returns the codes that switch from one style to another.
fn style_codes((fg, bg, modifiers): CellStyle, (next_fg, next_bg, next): CellStyle) -> Vec<String> {
    let gone = modifiers - next;
    let mut added = next - modifiers;
    let mut codes = Vec::new();
    // One code switches both off.
    let weight = Modifier::BOLD | Modifier::DIM;
    if gone.intersects(weight) {
        codes.push(22.to_string());
        added |= next & weight;
    }
    for (modifier, on, off) in [
        (Modifier::BOLD, 1, 0),
        (Modifier::DIM, 2, 0),
        (Modifier::ITALIC, 3, 23),
        (Modifier::UNDERLINED, 4, 24),
        (Modifier::REVERSED, 7, 27),
    ] {
        if gone.contains(modifier) && off > 0 {
            codes.push(off.to_string());
        }
        if added.contains(modifier) {
            codes.push(on.to_string());
        }
    }
    if fg != next_fg {
        codes.push(colour_code(next_fg, 30));
    }
    if bg != next_bg {
        codes.push(colour_code(next_bg, 40));
    }
    codes
}

/// Returns the code of a colour; `base` is 30 for the foreground and 40 for the background.
fn colour_code(colour: Color, base: u8) -> String {
    match colour {
        Color::Reset => (base + 9).to_string(),
        Color::Indexed(index) => format!("{};5;{index}", base + 8),
        Color::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", base + 8),
        named => {
            let number = ANSI_COLOURS.iter().position(|(it, _)| *it == named);
            match number.unwrap_or(0) as u8 {
                plain @ ..8 => (base + plain).to_string(),
                bright => (base + 60 + bright - 8).to_string(),
            }
        }
    }
}
