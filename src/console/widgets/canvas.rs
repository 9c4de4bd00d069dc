//! The canvas that views draw into, and how texts fit into its cells: cut, shortened, wrapped, or
//! formatted as sizes and counts. Drawable text has no control characters: it is text of the
//! program, or untrusted text that was made visible.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::base::untrusted::{self, RevealOptions};
use crate::console::theme::{Role, Theme};

/// The cells to draw into and the theme, shared by all screens.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub theme: &'a Theme,
    pub area: Rect,
    /// The row of the first rule, which ends the header.
    pub header_rule: Option<u16>,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, theme: &'a Theme) -> Canvas<'a> {
        let area = buffer.area;
        buffer.set_style(area, theme.style(Role::Text));
        Canvas {
            buffer,
            theme,
            area,
            header_rule: None,
        }
    }

    pub fn width(&self) -> u16 {
        self.area.width
    }

    /// Returns the cells from a column on.
    pub fn room(&self, x: u16) -> usize {
        usize::from(self.width().saturating_sub(x))
    }

    /// Returns the area of some rows.
    pub fn rows(&self, y: u16, height: u16) -> Rect {
        Rect::new(0, y, self.width(), height)
    }

    /// Puts text of the program and returns the column behind it.
    pub fn put_text(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        self.put_styled(x, y, text, self.theme.style(role))
    }

    pub fn put_styled(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (x, _) = self.buffer.set_stringn(x, y, text, room, style);
        x
    }

    /// Puts untrusted text, made visible, and returns the column behind it.
    pub fn put_untrusted(&mut self, mut x: u16, y: u16, text: &[u8], role: Role) -> u16 {
        for token in untrusted::reveal_line(text, RevealOptions::PROSE) {
            let role = if token.is_mark { Role::Revealed } else { role };
            x = self.put_text(x, y, &token.text, role);
        }
        x
    }

    /// Returns the cells of a text that begins in a column. One behind the margin in column 0 ends
    /// before a margin, too.
    fn text_room(&self, x: u16) -> usize {
        self.room(x + u16::from(x == 1))
    }

    /// Puts a message to the right edge: what is too long loses its end.
    pub fn put_start(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        let text = fit_start_of_sentence(text, self.text_room(x));
        self.put_text(x, y, &text, role)
    }

    /// Puts a message to the right edge: what is too long loses text before its cause.
    pub fn put_end(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        let text = fit_end_of_sentence(text, self.text_room(x));
        self.put_text(x, y, &text, role)
    }

    /// Puts untrusted text to the right edge, cut at its end.
    pub fn put_truncated(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        let text = truncate_untrusted(text, self.text_room(x));
        self.put_text(x, y, &text, role)
    }

    /// Puts a message in as many rows as it needs, at most `max_rows`. Returns the row below it.
    pub fn put_wrapped(&mut self, x: u16, y: u16, text: &str, role: Role, max_rows: usize) -> u16 {
        let lines = wrap_text(&untrusted::visible_line(text), self.text_room(x), max_rows);
        for (line, y) in lines.iter().zip(y..) {
            self.put_text(x, y, line, role);
        }
        y + lines.len() as u16
    }

    /// Puts text that ends before column `end`.
    pub fn put_right(&mut self, end: u16, y: u16, text: &str, role: Role) {
        self.put_text(end.saturating_sub(text.width() as u16), y, text, role);
    }

    /// Applies the dim style to a region.
    pub fn dim(&mut self, area: Rect) {
        let area = area.intersection(self.area);
        self.buffer.set_style(area, self.theme.style(Role::Dim));
    }

    pub fn draw_rule(&mut self, y: u16) {
        self.header_rule.get_or_insert(y);
        let line = "─".repeat(usize::from(self.area.width));
        self.put_text(0, y, &line, Role::Rule);
    }

    /// Draws a vertical line beside some rows.
    pub fn draw_divider(&mut self, x: u16, rows: Range<u16>) {
        for y in rows {
            self.put_text(x, y, "│", Role::Rule);
        }
    }

    /// Adds the cursor's style to some columns of a row.
    pub fn highlight_cursor(&mut self, columns: Range<u16>, y: u16) {
        let width = columns.end.saturating_sub(columns.start);
        let area = Rect::new(columns.start, y, width, 1).intersection(self.area);
        self.buffer.set_style(area, self.theme.style(Role::Cursor));
    }

    /// Underlines some cells of a row.
    pub fn underline(&mut self, x: u16, y: u16, width: u16) {
        let area = Rect::new(x, y, width, 1).intersection(self.area);
        let style = Style::new().add_modifier(Modifier::UNDERLINED);
        self.buffer.set_style(area, style);
    }

    /// Returns the first column and the length of the longest run of blanks in a row, the last one of
    /// several.
    pub fn widest_blank(&self, y: u16) -> (u16, u16) {
        let (mut widest, mut current) = ((0, 0), (0, 0));
        for x in self.area.left()..self.area.right() {
            let cell = self.buffer.cell((x, y));
            if cell.is_some_and(|cell| cell.symbol() == " ") {
                current = if current.1 == 0 {
                    (x, 1)
                } else {
                    (current.0, current.1 + 1)
                };
                if current.1 >= widest.1 {
                    widest = current;
                }
            } else {
                current = (0, 0);
            }
        }
        widest
    }

    /// Clears a region to blanks in the style of ordinary text.
    pub fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.area);
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
        self.buffer.set_style(area, self.theme.style(Role::Text));
    }
}

/// Returns untrusted text for a column of `width` cells: made visible, and shortened in the middle
/// if it is too long.
pub fn shorten_untrusted(text: &str, width: usize) -> String {
    shorten_middle(&untrusted::visible_line(text), width)
}

/// Cuts drawable text in its middle to `width` cells.
fn shorten_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(1);
    let (start, end) = (prefix(text, room - room / 2), suffix(text, room / 2));
    format!("{start}…{end}")
}

/// Returns the longest beginning of drawable text that fits into `room` cells.
fn prefix(text: &str, room: usize) -> &str {
    let fitting = text.grapheme_indices(true).take_while(fits_into(room));
    let end = fitting.last().map_or(0, |(at, last)| at + last.len());
    &text[..end]
}

/// Returns the longest end of drawable text that fits into `room` cells.
fn suffix(text: &str, room: usize) -> &str {
    let fitting = text
        .grapheme_indices(true)
        .rev()
        .take_while(fits_into(room));
    let start = fitting.last().map_or(text.len(), |(at, _)| at);
    &text[start..]
}

/// Returns whether a grapheme and those before it fit into `room` cells.
fn fits_into(room: usize) -> impl FnMut(&(usize, &str)) -> bool {
    let mut used = 0;
    move |(_, grapheme)| {
        used += grapheme.width();
        used <= room
    }
}

/// Splits drawable text at the last blank that fits into `room` cells; the first part is empty if
/// none does.
pub fn split_at_blank(text: &str, room: usize) -> (&str, &str) {
    if text.width() <= room {
        return (text, "");
    }
    let mut end = 0;
    for (at, _) in text.match_indices(' ') {
        if text[..at].width() > room {
            break;
        }
        end = at;
    }
    (&text[..end], text[end..].trim_start())
}

/// Wraps drawable text into at most `max_lines` lines of `room` cells; truncates the last line if
/// text is left.
pub fn wrap_text(text: &str, room: usize, max_lines: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && lines.len() + 1 < max_lines {
        let (first, more) = match split_at_blank(rest, room) {
            // A word longer than the line continues on the next one.
            ("", _) => break_word(rest, room),
            parts => parts,
        };
        lines.push(first.to_string());
        rest = more;
    }
    if !rest.is_empty() {
        lines.push(truncate(rest, room));
    }
    lines
}

/// A cause of at most this many cells is kept, however little room there is.
const MIN_CAUSE_CELLS: usize = 20;

/// Cells that a shortened path keeps.
const MIN_PATH_CELLS: usize = 16;

/// Cells below which the path at the end of a message is left out.
const MIN_TRAILING_PATH_CELLS: usize = 5;

/// Splits off as much as fits, at least one character.
fn break_word(text: &str, room: usize) -> (&str, &str) {
    let first = text.graphemes(true).next().map_or(0, str::len);
    text.split_at(prefix(text, room).len().max(first))
}

/// Fits an error message into `room` cells and makes it visible. Paths lose their middle first,
/// then the text before the cause, which comes last, is cut. The cause itself is cut only if it is
/// so long that its subject would disappear, or if it is a path.
pub fn fit_end_of_sentence(text: &str, room: usize) -> String {
    let text = shorten_paths(text, room);
    match text.rsplit_once(": ") {
        // A path alone is what the message is about, and not a cause.
        Some((front, path)) if text.width() > room && path.contains('/') && !path.contains(' ') => {
            match room.checked_sub(front.width() + 2) {
                Some(left @ MIN_TRAILING_PATH_CELLS..) => {
                    format!("{front}: {}", shorten_middle(path, left))
                }
                _ => truncate(front, room),
            }
        }
        Some((front, cause))
            if text.width() > room && cause.width() <= MIN_CAUSE_CELLS.max(room * 2 / 3) =>
        {
            match room.checked_sub(cause.width() + 3) {
                Some(left) => format!("{}: {cause}", truncate(front, left + 1)),
                None => truncate(cause, room),
            }
        }
        _ => truncate(&text, room),
    }
}

/// Fits a message whose beginning matters most into `room` cells: its end is cut.
pub fn fit_start_of_sentence(text: &str, room: usize) -> String {
    truncate(&shorten_paths(text, room), room)
}

/// Makes text visible and cuts the middle of its paths until it fits into `room` cells, as far as
/// that goes.
pub fn shorten_paths(text: &str, room: usize) -> String {
    let text = untrusted::visible_line(text);
    let mut excess = text.width().saturating_sub(room);
    if excess == 0 {
        return text;
    }
    let words = text.split(' ').map(|word| {
        let width = word.width();
        if excess == 0 || width <= MIN_PATH_CELLS || !word.contains('/') {
            return word.to_string();
        }
        let short = shorten_middle(word, width.saturating_sub(excess).max(MIN_PATH_CELLS));
        excess -= excess.min(width - short.width());
        short
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns untrusted text for a column of `width` cells: made visible, and cut at its end.
pub fn truncate_untrusted(text: &str, width: usize) -> String {
    truncate(&untrusted::visible_line(text), width)
}

/// Returns the end of untrusted text that is being typed: made visible, and cut at its beginning.
pub fn end_of_untrusted(text: &str, width: usize) -> String {
    let text = untrusted::visible_line(text);
    if text.width() <= width {
        return text;
    }
    format!("…{}", suffix(&text, width.saturating_sub(1)))
}

/// Cuts drawable text at its end to `width` cells.
pub fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let kept = prefix(text, width.saturating_sub(1));
    let end = kept.trim_end_matches([',', ';', ':', ' ']);
    let kept = end.strip_suffix('…').unwrap_or(kept);
    format!("{kept}…")
}

/// Formats a search and its current hit for `room` cells: the query is left out first. Empty
/// without a search.
pub fn search_note(query: &str, hit: Option<usize>, hits: usize, room: usize) -> String {
    if query.is_empty() {
        return String::new();
    }
    let hit = hit.unwrap_or(0);
    let query = truncate_untrusted(query, 16);
    let notes = [
        format!("\"{query}\" {hit} of {hits}"),
        format!("hit {hit} of {hits}"),
    ];
    let fitting = notes.into_iter().find(|note| note.width() <= room);
    fitting.unwrap_or_else(|| format!("hit {hit}/{hits}"))
}

/// Formats how much of a limit is used, in at most four cells: `85%`, and `>9x` from ten times the
/// limit.
pub fn limit_usage(size: u64, limit: u64) -> String {
    match size.saturating_mul(100) / limit.max(1) {
        percent @ 0..1000 => format!("{percent}%"),
        _ => ">9x".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_cuts_a_path_at_the_end_in_its_middle() {
        let text = "the baseline is missing: /srv/fleet/baselines/newbie-MEMORY.md";
        assert_eq!(
            fit_end_of_sentence(text, 36),
            "the baseline is missing: /srv/…RY.md"
        );
        assert_eq!(fit_end_of_sentence(text, 28), "the baseline is missing");
        assert_eq!(fit_end_of_sentence(text, 14), "the baseline …");
    }

    #[test]
    fn cut_paths_have_no_marks_of_marks() {
        for text in [
            "cannot read /srv/fleet/agents/notes/a\u{202E}/b\u{202E}",
            "the baseline is missing: /srv/fleet/baselines/a\u{202E}/b\u{202E}",
        ] {
            for room in 1..80 {
                for shown in [fit_end_of_sentence(text, room), shorten_paths(text, room)] {
                    assert!(!shown.contains("203"), "{room}: {shown}");
                }
            }
        }
    }

    #[test]
    fn fit_keeps_the_start_before_a_long_cause() {
        let text = "resets are BLOCKED: x is 9da80d51, sealed was f024905b";
        assert_eq!(
            fit_end_of_sentence(text, 30),
            "resets are BLOCKED: x is 9da8…"
        );
    }

    #[test]
    fn shorten_cuts_middle_and_truncate_cuts_end() {
        assert_eq!(shorten_untrusted("code-reviewer", 13), "code-reviewer");
        assert_eq!(shorten_untrusted("code-reviewer", 9), "code…ewer");
        assert_eq!(shorten_untrusted("日本語日本語", 7), "日…語");
        assert_eq!(truncate_untrusted("rules edited", 6), "rules…");
        assert_eq!(truncate("/tmp/day…x.md", 10), "/tmp/day…");
        assert_eq!(truncate("3f2a…, 9b1c…", 6), "3f2a…");
        assert_eq!(truncate("sealed 77ab…; over", 14), "sealed 77ab…");
        assert_eq!(truncate("read …: denied", 8), "read …");
        assert_eq!(truncate("kim, lou", 5), "kim,…");
    }

    #[test]
    fn fit_keeps_the_cause_of_an_error() {
        let text =
            "cannot read box:/srv/agents/of/the/whole/fleet/scout/MEMORY.md: Permission denied";
        assert_eq!(fit_end_of_sentence(text, 100), text);
        assert_eq!(
            fit_end_of_sentence(text, 60),
            "cannot read box:/srv/agents…out/MEMORY.md: Permission denied"
        );
        assert_eq!(
            fit_end_of_sentence(text, 30),
            "cannot rea…: Permission denied"
        );
        assert_eq!(fit_end_of_sentence(text, 12), "Permission …");
        assert_eq!(fit_end_of_sentence("rules edited", 6), "rules…");
    }

    #[test]
    fn wrap_breaks_at_blanks_and_inside_long_words() {
        assert_eq!(wrap_text("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap_text("one two three", 7, 1), ["one tw…"]);
        assert_eq!(
            wrap_text("/a/very/long/path", 6, 9),
            ["/a/ver", "y/long", "/path"]
        );
        assert!(wrap_text("", 7, 3).is_empty());
    }
}
