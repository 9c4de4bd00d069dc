//! The panel beside the text of the editor: findings, outline, agents.

use super::findings::visit_finding;
use super::jump_in_text;
use crate::console::message::Effect;
use crate::console::model::{Model, step_index};
use crate::console::screens::agent;
use crate::console::screens::editor::state::{EditorPanel, EditorScreen};

/// Moves to the next or previous panel; where there is room for one only, first into it.
pub fn cycle_panel(model: &mut Model, by: usize) {
    let Some(editor) = &mut model.editor else {
        return;
    };
    let all = EditorPanel::ALL;
    let place = all.iter().position(|it| *it == editor.panel).unwrap_or(0);
    if editor.is_panel_focused {
        editor.panel = all[(place + by) % all.len()];
    }
    editor.is_panel_focused = true;
    let row = editor.buffer.cursor().0;
    let current = editor.current_finding().unwrap_or(0);
    editor.panel_cursor = match editor.panel {
        EditorPanel::Findings => current,
        EditorPanel::Outline => {
            let outline = editor.outline();
            outline
                .partition_point(|entry| entry.line <= row)
                .saturating_sub(1)
        }
        EditorPanel::Agents => 0,
    };
}

/// Moves the cursor of the panel.
pub(super) fn move_panel_cursor(editor: &mut EditorScreen, by: isize) {
    editor.panel_cursor = step_index(editor.panel_cursor, by, editor.panel_length());
}

/// Opens the row of the panel under the cursor: a place in the text, or an agent.
pub fn open_selected(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    match editor.panel {
        EditorPanel::Findings => {
            let wanted = editor.panel_cursor;
            let lines = editor.line_notes.iter().enumerate();
            let mut places = lines.filter_map(|(line, notes)| {
                let mut marks = notes.findings.iter();
                let mark = marks.find(|mark| mark.finding == wanted)?;
                let before = editor.buffer.line(line).get(..mark.range.start)?;
                Some((line, before.chars().count()))
            });
            let place = places.next();
            editor.is_panel_focused = false;
            place.map_or_else(Vec::new, |place| visit_finding(model, wanted, place))
        }
        EditorPanel::Outline => {
            let outline = editor.outline();
            let line = outline.get(editor.panel_cursor).map(|entry| entry.line);
            editor.is_panel_focused = false;
            match line {
                Some(line) => jump_in_text(model, |text| text.go_to_line(line)),
                None => Vec::new(),
            }
        }
        EditorPanel::Agents => {
            let user = editor.opened.users.get(editor.panel_cursor);
            let agent = user.map(|user| user.agent.clone());
            agent.map_or_else(Vec::new, |agent| {
                agent::update::open_at_finding(model, agent)
            })
        }
    }
}
