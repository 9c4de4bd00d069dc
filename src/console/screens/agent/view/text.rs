//! Draws the text on the screen, row by row.

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::console::canvas::pane::{draw_number, draw_spans, line_sign};
use crate::console::canvas::{Canvas, shorten_untrusted};
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::state::{AgentTab, SIDE_GUTTER_CELLS};
use crate::console::text::{LineKind, PaneItem, PaneRow, TextLine};
use crate::console::theme::Role;

/// Draws the titles of the two sides.
pub fn draw_side_titles(model: &Model, canvas: &mut Canvas<'_>, y: u16, titles: &[String; 2]) {
    let middle = model.divider_column() as u16;
    let room = usize::from(middle).saturating_sub(2);
    canvas.put_text(1, y, &shorten_untrusted(&titles[0], room), Role::Dim);
    canvas.put_text(middle, y, "│", Role::Rule);
    canvas.put_text(
        middle + 2,
        y,
        &shorten_untrusted(&titles[1], room),
        Role::Dim,
    );
}

/// Draws the rows that fit below `y`.
pub fn draw(model: &Model, canvas: &mut Canvas<'_>, mut y: u16) {
    let pane = model.visible_pane();
    let (width, height, look) = (model.text_width(), model.text_height(), model.pane_style());
    let area = Rect::new(0, y, canvas.width(), height as u16);
    if model.is_text_awaited() {
        canvas.put_text(1, y, "reading …", Role::Dim);
        return;
    }
    let (mut index, mut skip) = pane.top;
    while y < area.bottom() && index < pane.items.len() {
        let hit = pane.hits.binary_search(&index).is_ok();
        let hit = hit.then_some(pane.query.as_str());
        let rows = pane.rows(index, width, look);
        for (number, row) in rows.iter().enumerate().skip(skip) {
            if y >= area.bottom() {
                break;
            }
            let first = number == 0;
            match pane.items[index] {
                PaneItem::FullWidth(at) => {
                    draw_full_width(model, canvas, y, (at, &pane.lines[at]), row, first, hit)
                }
                PaneItem::SideBySide(old, new) => {
                    let line = |at: Option<usize>| at.and_then(|at| pane.lines.get(at));
                    draw_side_by_side(model, canvas, y, [line(old), line(new)], row, first, hit);
                }
                PaneItem::Folded(..) => {
                    let x = if model.is_side_by_side() {
                        1
                    } else {
                        model.gutter_width() as u16
                    };
                    draw_spans(canvas, x, y, None, &row.spans, None);
                    if model.is_side_by_side() {
                        canvas.put_text(model.divider_column() as u16, y, "│", Role::Rule);
                    }
                }
            }
            y += 1;
        }
        skip = 0;
        index += 1;
    }
    if model.screen == Screen::Agent && model.agent.is_cached() {
        canvas.dim(area);
    }
}

/// Draws a row of a line that takes the whole width.
fn draw_full_width(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    (at, line): (usize, &TextLine),
    row: &PaneRow,
    is_first_row: bool,
    hit: Option<&str>,
) {
    let agent = &model.agent;
    let is_comparison = model.is_comparison();
    let gutter = model.gutter_width() as u16;
    let (sign, role) = line_sign(line.kind);
    if line.kind == LineKind::Separator {
        let begin = if model.is_side_by_side() { 1 } else { gutter };
        // Rows are wrapped to the text's width: one that fills it has no room for the line.
        let text: usize = row.spans.iter().map(|span| span.text.width()).sum();
        let line_start = "═══ ";
        let room = usize::from(canvas.width().saturating_sub(begin));
        let x = if line_start.width() + text <= room {
            canvas.put_text(begin, y, line_start, Role::Separator)
        } else {
            begin
        };
        let x = draw_spans(canvas, x, y, Some(line), &row.spans, hit) + 1;
        let rest = usize::from(canvas.width().saturating_sub(x));
        canvas.put_text(x, y, &"═".repeat(rest), Role::Separator);
        return;
    }
    if is_comparison {
        canvas.put_text(0, y, sign, role);
    }
    match agent.tab {
        AgentTab::Facts if !is_comparison => {
            let label = agent.fact_labels.get(at).copied().unwrap_or_default();
            match line.bytes.is_empty() {
                true => canvas.put_text(1, y, label, Role::Heading),
                false if is_first_row => canvas.put_text(3, y, label, Role::Dim),
                false => 0,
            };
        }
        _ if model.is_text_full_screen() || model.is_side_by_side() => {}
        _ if is_comparison => {
            draw_number(canvas, 1, y, 5, line.old_number.filter(|_| is_first_row));
            draw_number(canvas, 7, y, 5, line.new_number.filter(|_| is_first_row));
        }
        _ if !is_first_row => {}
        _ => {
            if at == agent.scratch.cursor_line {
                canvas.put_text(0, y, ">", Role::Text);
            }
            let marked = agent.marked_lines_of(&agent.agent).zip(line.new_number);
            if marked.is_some_and(|(marked, number)| marked.contains(number)) {
                canvas.put_text(1, y, "*", Role::Mark);
            }
            draw_number(canvas, 2, y, 6, line.new_number);
        }
    }
    draw_spans(canvas, gutter, y, Some(line), &row.spans, hit);
}

/// Draws a row of two lines side by side.
fn draw_side_by_side(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    lines: [Option<&TextLine>; 2],
    row: &PaneRow,
    is_first_row: bool,
    hit: Option<&str>,
) {
    let middle = model.divider_column() as u16;
    canvas.put_text(middle, y, "│", Role::Rule);
    for (side, begin) in [(0, 0), (1, middle + 2)] {
        let Some(line) = lines[side] else { continue };
        let (sign, role) = line_sign(line.kind);
        let row = [&row.spans, &row.right_spans][side];
        // The other side has more rows.
        if !is_first_row && row.is_empty() {
            continue;
        }
        canvas.put_text(begin, y, sign, role);
        let number = [line.old_number, line.new_number][side].filter(|_| is_first_row);
        draw_number(canvas, begin + 1, y, 5, number);
        draw_spans(
            canvas,
            begin + SIDE_GUTTER_CELLS as u16,
            y,
            Some(line),
            row,
            hit,
        );
    }
}
