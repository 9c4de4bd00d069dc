//! The panel beside the text of the editor: findings of the lint, which are visited and fixed, the
//! outline, and the agents.

use super::{change_text, jump_in_text};
use crate::console::command::Command;
use crate::console::message::{Effect, TextAnalysis};
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent;
use crate::console::screens::editor::buffer::replacement::replace_all;
use crate::console::screens::editor::state::{EditorPanel, EditorScreen};
use crate::console::widgets::list_pane::step_index;
use crate::lint::Fix;

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

/// Shows what was found in the text, if it is still the same.
pub fn handle_analysis(model: &mut Model, analysis: TextAnalysis) {
    let open = model.editor.as_mut();
    let Some(editor) = open.filter(|it| it.opened.name == analysis.baseline) else {
        return;
    };
    if editor.buffer.generation() == analysis.generation {
        editor.set_analysis(analysis.tones, analysis.findings, analysis.rule_changes);
        model.is_dirty |= model.screen == Screen::Editor;
    }
}

/// Goes to the next or previous finding, around the ends of the text. Findings that begin at one place
/// follow each other.
pub fn go_to_finding(model: &mut Model, is_forward: bool) -> Result<Vec<Effect>, String> {
    let Some(editor) = &mut model.editor else {
        return Ok(Vec::new());
    };
    let here = editor.buffer.cursor();
    let mut places: Vec<((usize, usize), usize)> = Vec::new();
    for (line, notes) in editor.line_notes.iter().enumerate() {
        let text = editor.buffer.line(line);
        let starts = notes.findings.iter().filter(|mark| mark.is_start);
        places.extend(starts.map(|mark| {
            let before = text.get(..mark.range.start).unwrap_or(text);
            ((line, before.chars().count()), mark.finding)
        }));
    }
    places.sort();
    let visited = editor.visited_finding();
    let next = if is_forward {
        let mut behind = places.iter().filter(|(place, finding)| {
            *place > here || *place == here && visited.is_some_and(|it| *finding > it)
        });
        behind.next().or(places.first())
    } else {
        let mut before = places.iter().filter(|(place, finding)| {
            *place < here || *place == here && visited.is_some_and(|it| *finding < it)
        });
        before.next_back().or(places.last())
    };
    let ((line, column), finding) = next.copied().ok_or("no findings")?;
    if editor.panel == EditorPanel::Findings {
        editor.panel_cursor = finding;
    }
    editor.is_panel_focused = false;
    Ok(visit_finding(model, finding, (line, column)))
}

/// Moves the cursor to a place of a finding, which is the current one from then on.
pub(super) fn visit_finding(
    model: &mut Model,
    finding: usize,
    (line, column): (usize, usize),
) -> Vec<Effect> {
    let effects = jump_in_text(model, |text| text.go_to(line, column));
    if let Some(editor) = &mut model.editor {
        editor.visited_finding = Some((finding, editor.buffer.cursor()));
    }
    model.is_dirty = true;
    effects
}

/// Applies the fix of the selected finding, in one step for undo.
pub fn fix_finding(model: &mut Model) -> Result<Vec<Effect>, String> {
    let Some(editor) = &model.editor else {
        return Ok(Vec::new());
    };
    let finding = editor.finding_to_fix().map(|it| &editor.findings[it]);
    let (text, name) = match finding.map(|finding| (&finding.fix, finding.rule.code())) {
        None => {
            let key = model.key_hint(Command::NextFinding);
            return Err(format!("no finding in this line; {key} goes to the next"));
        }
        Some((None, name)) => return Err(format!("{name} has no fix: it needs a decision")),
        Some(_) if editor.analyzed_generation != Some(editor.buffer.generation()) => {
            return Err("the text is being checked; press the key again".to_string());
        }
        Some((Some(fix), name)) => (apply_fix(&editor.buffer.to_bytes(), fix), name),
    };
    let effects = change_text(model, |buffer| replace_all(buffer, &text));
    if !effects.is_empty() {
        let key = model.key_hint(Command::UndoTyping);
        model.show_hint(&format!("{name} fixed; {key} undoes it"));
    }
    Ok(effects)
}

/// Returns a text with the edits of a fix.
fn apply_fix(text: &[u8], fix: &Fix) -> String {
    let mut fixed = Vec::with_capacity(text.len());
    let mut at = 0;
    for edit in &fix.edits {
        let (begin, end) = (edit.range.start.byte, edit.range.end.byte);
        fixed.extend(text.get(at..begin).unwrap_or_default());
        fixed.extend(edit.text.as_bytes());
        at = end;
    }
    fixed.extend(text.get(at..).unwrap_or_default());
    String::from_utf8_lossy(&fixed).into_owned()
}
