//! Draws the editor: the text with its marks, the panel, and the question about it.

mod notice;
mod panel;

use std::ops::Range;

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::layout::{GUTTER_CELLS, LineLayout, MIN_PANEL_COLUMNS, PANEL_CELLS, text_width};
use super::state::{EditorDialog, EditorScreen, FileOnDisk, FindingMark, LineNotes};
use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::editor::buffer::search::hits;
use crate::console::screens::editor::buffer::selection::{is_selecting, selected_range};
use crate::console::text::PaneStyle;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, limit_usage, shorten_untrusted, truncate_untrusted, wrap_text,
};
use crate::console::widgets::text_pane::{Gutter, TextPane, draw_number};
use crate::engine::{SealMatch, SizeBand};
use crate::lint::Severity;

/// Cells that the name of the baseline keeps.
const MIN_NAME_CELLS: usize = 8;

/// Bytes of text for one token, roughly, in Latin script.
const BYTES_PER_TOKEN: usize = 4;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let Some(editor) = &model.editor else {
        return;
    };
    draw_header(editor, canvas);
    draw_users(model, editor, canvas);
    canvas.draw_rule(2);
    let height = editor_height(model);
    if let Some(pane) = editor.diff() {
        let diff = TextPane {
            pane,
            style: editor_diff_style(model),
            gutter: Gutter::Diff,
        };
        diff.draw(canvas, Rect::new(0, 3, canvas.width(), height as u16));
    } else if let Some(EditorDialog::Message(text)) = &editor.dialog {
        // Sentences and hints begin in rows of their own.
        let width = canvas.room(2);
        let visible = untrusted::visible_line(text);
        let rows = visible
            .split("; ")
            .flat_map(|part| wrap_text(part, width, height));
        for (row, y) in rows.take(height).zip(3..) {
            canvas.put_text(1, y, &row, Role::Warn);
        }
    } else if editor.is_panel_focused && model.size.0 < MIN_PANEL_COLUMNS {
        let area = Rect::new(1, 3, canvas.width() - 1, height as u16);
        panel::draw(model, editor, canvas, area);
    } else {
        draw_text(model, editor, canvas);
        if model.size.0 >= MIN_PANEL_COLUMNS {
            let x = canvas.width() - PANEL_CELLS as u16;
            canvas.draw_divider(x, 3..3 + height as u16);
            let area = Rect::new(x + 2, 3, PANEL_CELLS as u16 - 2, height as u16);
            panel::draw(model, editor, canvas, area);
        }
    }
    let bottom = 3 + height as u16;
    canvas.draw_rule(bottom);
    notice::draw(model, editor, canvas, bottom + 1);
}

fn draw_header(editor: &EditorScreen, canvas: &mut Canvas<'_>) {
    let width = canvas.room(0);
    let is_narrow = width < usize::from(MIN_PANEL_COLUMNS);
    let (line, column) = editor.buffer.cursor();
    let mode = match (&editor.read_only, editor.is_typing) {
        (Some(_), _) => "READ-ONLY",
        (None, true) => "INSERT",
        (None, false) if is_selecting(&editor.buffer) => "SELECT",
        (None, false) => "NORMAL",
    };
    let place = format!("L{}:C{}", line + 1, column + 1);
    let mut x = 0;
    if !is_narrow {
        x = canvas.put_text(0, 0, "baseline ", Role::Text);
    }
    // The state of the seal is never dropped; the size is, part by part.
    let seal = file_note(editor);
    let end = width - mode.len();
    let others = seal.0.len() + place.len() + "MODIFIED".len() + 7;
    let room = end.saturating_sub(others).max(MIN_NAME_CELLS);
    let name = shorten_untrusted(
        &editor.opened.name,
        room.min(if is_narrow { 26 } else { 40 }),
    );
    x = canvas.put_text(x, 0, &name, Role::Title) + 1;
    if editor.is_modified {
        x = canvas.put_text(x, 0, "MODIFIED", Role::Warn) + 1;
    }
    let taken = usize::from(x) + 1 + seal.0.len() + 2 + place.len() + 2;
    let (gauge, gauge_role) = size_gauge(editor, is_narrow, end.saturating_sub(taken));
    if !gauge.is_empty() {
        x = canvas.put_text(x + 1, 0, &gauge, gauge_role) + 1;
    }
    canvas.put_text(x + 1, 0, seal.0, seal.1);
    canvas.put_text(end as u16, 0, mode, Role::Heading);
    canvas.put_right((end as u16).saturating_sub(2), 0, &place, Role::Text);
}

/// Returns the size of the text, its share of the limit and its tokens, as far as they fit into `room`
/// cells.
fn size_gauge(editor: &EditorScreen, is_narrow: bool, room: usize) -> (String, Role) {
    let size = editor.buffer.size();
    let limit = editor.max_memory_size();
    let band = SizeBand::of(size as u64);
    let mut parts = vec![format!("{} {band}", format_size(size as u64))];
    if let Some(limit) = limit {
        let mut usage = format!(" {}", limit_usage(size as u64, limit));
        if !is_narrow {
            usage.push_str(&format!(" of {}", format_size(limit)));
        }
        parts.push(usage);
    }
    if !is_narrow {
        let tokens = size.div_ceil(BYTES_PER_TOKEN);
        parts.push(format!("  ~{} tokens", format_size_of_count(tokens)));
    }
    let mut gauge = String::new();
    for part in parts {
        // A blank behind it separates it from the seal.
        if gauge.width() + part.width() + 1 > room {
            break;
        }
        gauge.push_str(&part);
    }
    let is_over = limit.is_some_and(|limit| size as u64 > limit);
    let role = match band {
        _ if is_over => Role::Bad,
        SizeBand::Good => Role::Good,
        SizeBand::Thin | SizeBand::Bloated => Role::Warn,
        SizeBand::Short | SizeBand::Long => Role::Text,
    };
    (gauge, role)
}

/// Formats a number of tokens: `812`, `3.6k`.
fn format_size_of_count(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{:.1}k", count as f64 / 1000.0),
    }
}

/// Returns what the seal says of the file, or what is at its path if that is not the opened version.
fn file_note(editor: &EditorScreen) -> (&'static str, Role) {
    match (&editor.file, &editor.opened.seal) {
        (FileOnDisk::Gone, _) => ("FILE GONE", Role::Bad),
        (FileOnDisk::Unreadable(_), _) => ("FILE UNREADABLE", Role::Bad),
        (FileOnDisk::Changed, _) => ("FILE CHANGED", Role::Warn),
        (_, SealMatch::Unchecked) => ("not sealed", Role::Dim),
        (_, SealMatch::Signed) => ("sealed, signed", Role::Good),
        (_, SealMatch::Sealed) => ("sealed", Role::Good),
        (_, SealMatch::SavedHere(_)) => ("saved, not sealed", Role::Warn),
        (_, SealMatch::Mismatch(_)) => ("TAMPERED", Role::Tampered),
    }
}

/// Draws the fleet's name and the agents that have the baseline.
fn draw_users(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>) {
    let x = draw_fleet_name(model, canvas, 0, 1);
    let users: Vec<&str> = editor
        .opened
        .users
        .iter()
        .map(|user| user.agent.as_str())
        .collect();
    let text = if users.is_empty() {
        "used by no agent".to_string()
    } else {
        format!("used by: {}", users.join(", "))
    };
    let is_narrow = canvas.width() < MIN_PANEL_COLUMNS;
    let mut counts = lint_summary(editor, is_narrow);
    if !editor.query.is_empty() {
        let query = shorten_untrusted(&editor.query, 14);
        let hits = format_count(editor.hit_count as u64, "hit");
        counts = format!("\"{query}\" {hits}  {counts}");
    }
    let counts = truncate_untrusted(counts.trim_end(), 60);
    let text = truncate_untrusted(&text, canvas.room(x + 2).saturating_sub(counts.width()));
    canvas.put_text(x, 1, &text, Role::Text);
    canvas.put_right(canvas.width(), 1, &counts, Role::Dim);
}

/// Returns the sign of a severity, and its role.
fn severity_sign(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Error => ("E", Role::Bad),
        Severity::Warning => ("W", Role::Warn),
        Severity::Info => ("I", Role::Dim),
    }
}

/// Returns the numbers of findings by severity, as "lint: 1 error 2 warnings"; shorter on a narrow
/// screen.
fn lint_summary(editor: &EditorScreen, is_narrow: bool) -> String {
    if editor.analyzed_generation.is_none() {
        return String::new();
    }
    let mut parts = Vec::new();
    for severity in Severity::ALL.into_iter().rev() {
        let count = editor.count_findings(severity);
        match (count, is_narrow, severity) {
            (0, ..) => {}
            (count, true, _) => parts.push(format!("{}{count}", severity_sign(severity).0)),
            (count, false, Severity::Info) => parts.push(format!("{count} info")),
            (count, false, _) => parts.push(format_count(count as u64, severity.as_str())),
        }
    }
    match (parts.is_empty(), is_narrow) {
        (true, _) => "no findings".to_string(),
        (false, true) => format!("{} (Tab)", parts.join(" ")),
        (false, false) => format!("lint: {}", parts.join(" ")),
    }
}

fn draw_text(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>) {
    let width = text_width(model.size.0);
    let bottom = 3 + editor_height(model) as u16;
    let (mut line, mut skipped) = editor.top;
    let mut y = 3;
    while y < bottom && line < editor.buffer.lines().len() {
        let layout = editor.layout(line, width);
        for (number, row) in layout.rows.iter().enumerate().skip(skipped) {
            if y >= bottom {
                break;
            }
            if number == 0 {
                draw_number(canvas, 1, y, GUTTER_CELLS - 2, Some(line + 1));
                if let Some(severity) = editor.line_severity(line) {
                    let (sign, role) = severity_sign(severity);
                    canvas.put_text(0, y, sign, role);
                }
            }
            draw_row(editor, canvas, y, &layout, line, row.clone());
            y += 1;
        }
        skipped = 0;
        line += 1;
    }
    draw_cursor(model, editor, canvas);
}

fn draw_row(
    editor: &EditorScreen,
    canvas: &mut Canvas<'_>,
    y: u16,
    layout: &LineLayout,
    line: usize,
    row: Range<usize>,
) {
    let no_notes = LineNotes::default();
    let notes = editor.line_notes.get(line).unwrap_or(&no_notes);
    let tones = &notes.tones;
    let hits = hits(&editor.buffer, line);
    let selected = selected_range(&editor.buffer, line);
    let mut x = GUTTER_CELLS as u16;
    for glyph in &layout.glyphs[row] {
        let at = glyph.source.start;
        let next = tones.partition_point(|(range, _)| range.end <= at);
        let tone = tones.get(next).filter(|(range, _)| range.contains(&at));
        let role = match tone {
            _ if glyph.is_mark => Role::Revealed,
            _ if hits.iter().any(|hit| hit.contains(&at)) => Role::Hit,
            Some((_, tone)) => *tone,
            None => Role::Text,
        };
        let after = canvas.put_text(x, y, layout.glyph_text(glyph), role);
        let is_found = |mark: &FindingMark| {
            let finding = editor.findings.get(mark.finding);
            mark.range.contains(&at) && finding.is_some_and(|it| it.severity > Severity::Info)
        };
        if notes.findings.iter().any(is_found) {
            canvas.underline(x, y, after - x);
        }
        if selected.as_ref().is_some_and(|it| it.contains(&at)) {
            canvas.highlight_cursor(x..after, y);
        }
        x = after;
    }
}

fn draw_cursor(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>) {
    let width = text_width(model.size.0);
    let (line, byte) = editor.buffer.cursor_byte();
    if editor.is_panel_focused || line < editor.top.0 {
        return;
    }
    let mut y = 3;
    for above in editor.top.0..line {
        let rows = editor.layout(above, width).rows.len();
        let skipped = if above == editor.top.0 {
            editor.top.1
        } else {
            0
        };
        y += rows.saturating_sub(skipped);
    }
    let layout = editor.layout(line, width);
    let (row, column) = layout.place_of(byte);
    let skipped = if line == editor.top.0 {
        editor.top.1
    } else {
        0
    };
    let Some(row) = row.checked_sub(skipped) else {
        return;
    };
    let y = y + row;
    if y >= 3 + editor_height(model) {
        return;
    }
    let glyph = layout
        .glyphs
        .iter()
        .find(|glyph| glyph.source.contains(&byte));
    let cells = glyph.map_or(1, |glyph| glyph.width) as u16;
    // A blank behind a full row has no cell of its own.
    let x = (GUTTER_CELLS + column.min(width)) as u16;
    canvas.highlight_cursor(x..x + cells, y as u16);
}

/// Returns the number of rows of the editor's text.
pub fn editor_height(model: &Model) -> usize {
    // Two lines of header, a rule; a rule, the notice, the message, the hints.
    let rows = usize::from(model.size.1).saturating_sub(6);
    rows.saturating_sub(notice::row_count(model)).max(1)
}

/// Returns how diffs are laid out in the editor.
pub fn editor_diff_style(model: &Model) -> PaneStyle {
    PaneStyle {
        is_wrapping: true,
        is_whitespace_marked: false,
        is_prose: false,
        has_word_marks: model.has_word_marks,
        half_width: 1,
    }
}
