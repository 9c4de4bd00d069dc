//! Draws the model into a buffer of cells: the screen, then the overlay. Drawing changes no state
//! and builds only what is visible.

mod hints;
mod overlay;
mod question;
mod timer_dialog;

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use super::frame::{draw_message, draw_state_counts, draw_trouble};
use super::model::visible_text::is_text_full_screen;
use super::model::{MIN_TERMINAL_SIZE, Model};
use super::screens;
use super::screens::log::view::schedule::header_parts;
use super::theme::{Role, Theme, role_of_state};
use crate::console::widgets::canvas::Canvas;
use crate::engine::State;

/// Draws the whole console, bottom layer first: the screen, then the overlay.
pub fn draw(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    // The terminal has shrunk and the resize message is not handled yet.
    if buffer.area.width < model.size.0 || buffer.area.height < model.size.1 {
        return;
    }
    let mut canvas = Canvas::new(buffer, theme);
    if model.is_too_small() {
        draw_too_small(model, &mut canvas);
        return;
    }
    screens::draw(model, &mut canvas);
    // A full-screen text draws its own last line.
    let full = is_text_full_screen(model);
    if !full {
        draw_schedule_note(model, &mut canvas);
        draw_state_counts(model, &mut canvas);
        let y = model.size.1 - 2;
        let room = draw_trouble(model, &mut canvas, (1, y), model.size.0 - 2);
        draw_message(model, &mut canvas, (1, y), room);
    }
    if !full || model.input_line.is_some() {
        hints::draw(model, &mut canvas);
    }
    if model.pending_keys.is_hint_shown {
        overlay::draw_continuations(model, &mut canvas);
    }
    if let Some(overlay) = &model.overlay {
        overlay::draw(model, overlay, &mut canvas);
    }
}

/// Rows of the header in which the schedule may be shown, the preferred one first.
const SCHEDULE_ROWS: [u16; 2] = [1, 0];

/// Blank cells around what the header says about the schedule.
const SCHEDULE_MARGIN: u16 = 2;

/// Draws when the next scheduled run is due and whether the last one failed, where a row of the header
/// has room: all of it, else what is most important.
fn draw_schedule_note(model: &Model, canvas: &mut Canvas<'_>) {
    let parts = header_parts(model);
    for shown in (1..=parts.len()).rev() {
        let shown = &parts[..shown];
        let width: usize = shown.iter().map(|(text, _)| text.width() + 2).sum();
        let width = (width as u16).saturating_sub(2);
        for y in SCHEDULE_ROWS {
            let (from, cells) = canvas.widest_blank(y);
            // The note ends where the row ends, or before what stands there.
            let end = from + cells;
            let margin = if end == canvas.width() {
                0
            } else {
                SCHEDULE_MARGIN
            };
            if cells < width + margin + SCHEDULE_MARGIN {
                continue;
            }
            let mut x = end - margin - width;
            for (text, role) in shown {
                x = canvas.put_text(x, y, text, *role) + 2;
            }
            return;
        }
    }
}

fn draw_too_small(model: &Model, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    let note = match &model.editor {
        Some(editor) if editor.is_modified => "UNSAVED TEXT".to_string(),
        _ => format!("{} quits", model.preferences.keymap.exit_key_text()),
    };
    let text = format!(
        "{}x{} needed (now {width}x{height}) - {note}",
        MIN_TERMINAL_SIZE.0, MIN_TERMINAL_SIZE.1,
    );
    let y = height / 2;
    let x = width.saturating_sub(text.width() as u16) / 2;
    canvas.put_text(x, y, &text, Role::Text);
    let worst: Vec<(State, usize)> = model
        .rows
        .state_counts()
        .into_iter()
        .filter(|(state, _)| !state.is_healthy())
        .collect();
    let mut x = 0;
    for (state, count) in worst {
        x = canvas.put_text(x, y + 1, &format!("{count} {state} "), role_of_state(state));
    }
}
