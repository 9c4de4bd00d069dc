//! Draws the rows of text panes: line numbers, signs of changed lines, spans in their tones.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::Canvas;
use crate::console::text::{LineKind, Pane, PaneItem, PaneStyle, StyledSpan, TextLine};
use crate::console::theme::{Role, role_of_tone};

/// Columns of the numbers of both texts, and of the text of a unified diff.
const DIFF_COLUMNS: [u16; 3] = [1, 7, 14];

/// Draws the visible rows of a unified diff into an area.
pub fn draw_diff_rows(
    canvas: &mut Canvas<'_>,
    area: Rect,
    pane: &Pane,
    width: usize,
    style: PaneStyle,
) {
    let [old_column, new_column, text_column] = DIFF_COLUMNS;
    let (mut index, mut skipped) = pane.top;
    let mut y = area.y;
    while y < area.bottom() && index < pane.items.len() {
        let rows = pane.rows(index, width, style);
        for (number, row) in rows.iter().enumerate().skip(skipped) {
            if y >= area.bottom() {
                break;
            }
            if let PaneItem::FullWidth(at) = pane.items[index] {
                let line = &pane.lines[at];
                let (sign, role) = line_sign(line.kind);
                canvas.put_text(0, y, sign, role);
                if number == 0 {
                    draw_number(canvas, old_column, y, 5, line.old_number);
                    draw_number(canvas, new_column, y, 5, line.new_number);
                }
                draw_spans(canvas, text_column, y, Some(line), &row.spans, None);
            } else {
                draw_spans(canvas, text_column, y, None, &row.spans, None);
            }
            y += 1;
        }
        skipped = 0;
        index += 1;
    }
}

/// Draws a line number in a gutter, without padding: blanks in the numbers' style would cost bytes.
pub fn draw_number(canvas: &mut Canvas<'_>, x: u16, y: u16, width: usize, number: Option<usize>) {
    if let Some(number) = number {
        canvas.put_text(x, y, &format!("{number:>width$}"), Role::Number);
    }
}

/// Returns the sign of a line, and its role.
pub fn line_sign(kind: LineKind) -> (&'static str, Role) {
    match kind {
        LineKind::Added => ("+", Role::Added),
        LineKind::Removed => ("-", Role::Removed),
        _ => (" ", Role::Number),
    }
}

/// Draws spans in the roles of their tone, mark and line. Returns the column behind them.
pub fn draw_spans(
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
            (false, false) if kind == LineKind::Same => role_of_tone(span.tone),
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
