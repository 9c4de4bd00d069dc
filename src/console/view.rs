//! Draws the model into a buffer of cells: the screen, then the overlay. Drawing changes no state
//! and builds only what is visible.

mod overlay;
mod question;
mod timer_dialog;

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr;

use super::frame::{draw_hints, draw_message, draw_schedule_note, draw_state_counts, draw_trouble};
use super::model::{MIN_TERMINAL_SIZE, Model};
use super::screens;
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
    let full = model.is_text_full_screen();
    if !full {
        draw_schedule_note(model, &mut canvas);
        draw_state_counts(model, &mut canvas);
        let y = model.size.1 - 2;
        let room = draw_trouble(model, &mut canvas, (1, y), model.size.0 - 2);
        draw_message(model, &mut canvas, (1, y), room);
    }
    if !full || model.input_line.is_some() {
        draw_hints(model, &mut canvas);
    }
    if model.pending_keys.is_hint_shown {
        overlay::draw_continuations(model, &mut canvas);
    }
    if let Some(overlay) = &model.overlay {
        overlay::draw(model, overlay, &mut canvas);
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
        .state_counts()
        .into_iter()
        .filter(|(state, _)| !state.is_healthy())
        .collect();
    let mut x = 0;
    for (state, count) in worst {
        x = canvas.put_text(x, y + 1, &format!("{count} {state} "), role_of_state(state));
    }
}
