//! Draws text panes: the gutter with line numbers, signs and marks, and spans in their tones.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::text::{LineKind, Pane, PaneItem, PaneRow, PaneStyle, StyledSpan, TextLine};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, shorten_untrusted};

/// Cells left of the text of each of two sides.
pub const SIDE_GUTTER_CELLS: usize = 8;

/// What is drawn left of the lines.
#[derive(Clone, Copy, Debug)]
pub enum Gutter<'a> {
    /// Nothing.
    None,
    /// The sign of a changed line.
    Sign,
    /// The sign, and the numbers in both texts.
    Diff,
    /// The sign and the number of each of two sides.
    Sides,
    /// The label of each line.
    Labels(&'a [&'static str]),
    /// The cursor, the marks and the numbers of notes.
    Notes {
        /// Marked lines.
        marked: Option<&'a MarkedLines>,
    },
    /// The numbers of an archived text, its marks, and the cursor or the current hit.
    Entry {
        /// Marked lines.
        marked: Option<&'a MarkedLines>,
        /// Whether it has a line cursor, and not only a current hit.
        has_cursor: bool,
    },
}

impl Gutter<'_> {
    /// Returns its cells.
    pub fn width(self) -> usize {
        match self {
            Gutter::None => 0,
            Gutter::Sign => 1,
            Gutter::Diff => 14,
            Gutter::Sides => SIDE_GUTTER_CELLS,
            Gutter::Labels(_) => 22,
            Gutter::Notes { .. } => 9,
            Gutter::Entry { .. } => 7,
        }
    }
}

/// Returns the column of the line between two sides.
pub fn divider_column(width: u16) -> u16 {
    width.saturating_sub(2) / 2
}

/// A pane with all that its drawing depends on.
pub struct TextPane<'a> {
    /// The text and its scroll position.
    pub pane: &'a Pane,
    /// How lines are laid out.
    pub style: PaneStyle,
    /// What is left of them.
    pub gutter: Gutter<'a>,
}

/// A row of the pane that is being drawn.
struct VisibleRow<'a> {
    y: u16,
    row: &'a PaneRow,
    is_first: bool,
    hit: Option<&'a str>,
}

impl TextPane<'_> {
    /// Draws the visible rows into an area that ends at the right edge.
    pub fn draw(&self, canvas: &mut Canvas<'_>, area: Rect) {
        let pane = self.pane;
        let width = usize::from(area.width)
            .saturating_sub(self.gutter.width())
            .max(1);
        let (mut index, mut skipped) = pane.top;
        let mut y = area.y;
        while y < area.bottom() && index < pane.items.len() {
            let is_hit = pane.hits.binary_search(&index).is_ok() && !pane.query.is_empty();
            let rows = pane.rows(index, width, self.style);
            for (number, row) in rows.iter().enumerate().skip(skipped) {
                if y >= area.bottom() {
                    break;
                }
                let row = VisibleRow {
                    y,
                    row,
                    is_first: number == 0,
                    hit: is_hit.then_some(pane.query.as_str()),
                };
                self.draw_item(canvas, area, index, &row);
                y += 1;
            }
            skipped = 0;
            index += 1;
        }
    }

    fn draw_item(&self, canvas: &mut Canvas<'_>, area: Rect, index: usize, row: &VisibleRow<'_>) {
        let is_two_sided = matches!(self.gutter, Gutter::Sides);
        match self.pane.items[index] {
            PaneItem::FullWidth(at) if self.pane.lines[at].kind == LineKind::Separator => {
                let begin = if is_two_sided {
                    1
                } else {
                    self.gutter.width() as u16
                };
                draw_separator(canvas, area.x + begin, &self.pane.lines[at], row);
            }
            PaneItem::FullWidth(at) => {
                let line = &self.pane.lines[at];
                self.draw_gutter(canvas, area.x, (index, at), row);
                let x = area.x + self.gutter.width() as u16;
                draw_spans(canvas, x, row.y, Some(line), &row.row.spans, row.hit);
            }
            PaneItem::SideBySide(old, new) => {
                let line = |at: Option<usize>| at.and_then(|at| self.pane.lines.get(at));
                draw_side_by_side(canvas, area.width, [line(old), line(new)], row);
            }
            PaneItem::Folded(..) => {
                let x = if is_two_sided {
                    1
                } else {
                    self.gutter.width() as u16
                };
                draw_spans(canvas, area.x + x, row.y, None, &row.row.spans, None);
                if is_two_sided {
                    canvas.put_text(divider_column(area.width), row.y, "│", Role::Rule);
                }
            }
        }
    }

    /// Draws what is left of a row of a line, which has these indices among items and lines.
    fn draw_gutter(
        &self,
        canvas: &mut Canvas<'_>,
        x: u16,
        (item, at): (usize, usize),
        row: &VisibleRow<'_>,
    ) {
        let (y, line) = (row.y, &self.pane.lines[at]);
        let number = line.new_number.filter(|_| row.is_first);
        let (sign, role) = line_sign(line.kind);
        match self.gutter {
            Gutter::None => {}
            Gutter::Sign | Gutter::Sides => drop(canvas.put_text(x, y, sign, role)),
            Gutter::Diff => {
                canvas.put_text(x, y, sign, role);
                draw_number(
                    canvas,
                    x + 1,
                    y,
                    5,
                    line.old_number.filter(|_| row.is_first),
                );
                draw_number(canvas, x + 7, y, 5, number);
            }
            Gutter::Labels(labels) => {
                let label = labels.get(at).copied().unwrap_or_default();
                if line.bytes.is_empty() {
                    canvas.put_text(x + 1, y, label, Role::Heading);
                } else if row.is_first {
                    canvas.put_text(x + 3, y, label, Role::Dim);
                }
            }
            Gutter::Notes { marked } if row.is_first => {
                let is_marked = marked
                    .zip(number)
                    .is_some_and(|(it, line)| it.contains(line));
                draw_marks(
                    canvas,
                    [x, x + 1],
                    y,
                    [at == self.pane.cursor_line, is_marked],
                );
                draw_number(canvas, x + 2, y, 6, number);
            }
            Gutter::Entry { marked, has_cursor } if row.is_first => {
                let hit = self.pane.hits.get(self.pane.current_hit);
                let is_at_cursor = if has_cursor {
                    at == self.pane.cursor_line
                } else {
                    hit == Some(&item)
                };
                draw_number(canvas, x, y, 4, number);
                let is_marked = marked
                    .zip(number)
                    .is_some_and(|(it, line)| it.contains(line));
                draw_marks(canvas, [x + 4, x + 5], y, [is_at_cursor, is_marked]);
            }
            Gutter::Notes { .. } | Gutter::Entry { .. } => {}
        }
    }
}

/// Draws the titles of two sides.
pub fn draw_side_titles(canvas: &mut Canvas<'_>, y: u16, titles: &[String; 2]) {
    let middle = divider_column(canvas.width());
    let room = usize::from(middle).saturating_sub(2);
    canvas.put_text(1, y, &shorten_untrusted(&titles[0], room), Role::Dim);
    canvas.put_text(middle, y, "│", Role::Rule);
    let text = shorten_untrusted(&titles[1], room);
    canvas.put_text(middle + 2, y, &text, Role::Dim);
}

fn draw_marks(canvas: &mut Canvas<'_>, columns: [u16; 2], y: u16, is_drawn: [bool; 2]) {
    let marks = [(">", Role::Text), ("*", Role::Mark)];
    for ((x, (mark, role)), is_drawn) in columns.into_iter().zip(marks).zip(is_drawn) {
        if is_drawn {
            canvas.put_text(x, y, mark, role);
        }
    }
}

/// Draws a row of the boundary, with a line to the right edge.
fn draw_separator(canvas: &mut Canvas<'_>, begin: u16, line: &TextLine, row: &VisibleRow<'_>) {
    let y = row.y;
    // Rows are wrapped to the text's width: one that fills it has no room for the line.
    let text: usize = row.row.spans.iter().map(|span| span.text.width()).sum();
    let line_start = "═══ ";
    let x = if line_start.width() + text <= canvas.room(begin) {
        canvas.put_text(begin, y, line_start, Role::Separator)
    } else {
        begin
    };
    let x = draw_spans(canvas, x, y, Some(line), &row.row.spans, row.hit) + 1;
    let rest = canvas.room(x);
    canvas.put_text(x, y, &"═".repeat(rest), Role::Separator);
}

/// Draws a row of two lines side by side.
fn draw_side_by_side(
    canvas: &mut Canvas<'_>,
    width: u16,
    lines: [Option<&TextLine>; 2],
    row: &VisibleRow<'_>,
) {
    let (y, middle) = (row.y, divider_column(width));
    canvas.put_text(middle, y, "│", Role::Rule);
    for (side, begin) in [(0, 0), (1, middle + 2)] {
        let Some(line) = lines[side] else { continue };
        let (sign, role) = line_sign(line.kind);
        let spans = [&row.row.spans, &row.row.right_spans][side];
        // The other side has more rows.
        if !row.is_first && spans.is_empty() {
            continue;
        }
        canvas.put_text(begin, y, sign, role);
        let number = [line.old_number, line.new_number][side].filter(|_| row.is_first);
        draw_number(canvas, begin + 1, y, 5, number);
        let x = begin + SIDE_GUTTER_CELLS as u16;
        draw_spans(canvas, x, y, Some(line), spans, row.hit);
    }
}

/// Draws a line number in a gutter, without padding: blanks in the numbers' style would cost bytes.
pub fn draw_number(canvas: &mut Canvas<'_>, x: u16, y: u16, width: usize, number: Option<usize>) {
    if let Some(number) = number {
        canvas.put_text(x, y, &format!("{number:>width$}"), Role::Number);
    }
}

/// Returns the sign of a line, and its role.
fn line_sign(kind: LineKind) -> (&'static str, Role) {
    match kind {
        LineKind::Added => ("+", Role::Added),
        LineKind::Removed => ("-", Role::Removed),
        _ => (" ", Role::Number),
    }
}

/// Draws spans in the roles of their tone, mark and line. Returns the column behind them.
fn draw_spans(
    canvas: &mut Canvas<'_>,
    begin: u16,
    y: u16,
    line: Option<&TextLine>,
    row: &[StyledSpan],
    hit: Option<&str>,
) -> u16 {
    let kind = line.map_or(LineKind::Note, |line| line.kind);
    let worded = line.is_some_and(|line| !line.changed_ranges.is_empty());
    let (plain, word) = match kind {
        LineKind::Same => (Role::Text, Role::Hit),
        LineKind::Added => (Role::Added, Role::AddedWord),
        LineKind::Removed => (Role::Removed, Role::RemovedWord),
        LineKind::Separator => (Role::Separator, Role::Separator),
        LineKind::Note => (Role::Dim, Role::Dim),
    };
    let mut x = begin;
    for span in row {
        let role = match (span.is_mark, span.is_emphasized) {
            // Word marks come from the program and have the colour of their line.
            (true, _) if worded && is_word_mark(&span.text) => word,
            (true, _) => Role::Revealed,
            (false, true) => word,
            (false, false) if kind == LineKind::Same => span.tone,
            (false, false) => plain,
        };
        x = canvas.put_text(x, y, &span.text, role);
    }
    if let Some(query) = hit {
        let text: String = row.iter().map(|span| span.text.as_str()).collect();
        highlight_hits(canvas, begin, y, &text, query);
    }
    x
}

fn is_word_mark(text: &str) -> bool {
    matches!(text, "[-" | "-]" | "{+" | "+}" | "«" | "»")
}

/// Highlights the search hits in a row.
fn highlight_hits(canvas: &mut Canvas<'_>, begin: u16, y: u16, text: &str, query: &str) {
    let style: Style = canvas.theme.style(Role::Hit);
    let lower = text.to_lowercase();
    // Lower case may have another length; byte offsets would then be wrong, so the hits of such a
    // row are not highlighted.
    if lower.len() != text.len() {
        return;
    }
    for (at, _) in lower.match_indices(query) {
        let (Some(before), Some(found)) = (text.get(..at), text.get(at..at + query.len())) else {
            continue;
        };
        canvas.put_styled(begin + before.width() as u16, y, found, style);
    }
}
