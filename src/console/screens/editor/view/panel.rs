//! Draws the panel beside the text: the findings, the outline, or the agents.

use ratatui::layout::Rect;

use super::severity_sign;
use crate::console::canvas::{Canvas, truncate_untrusted, wrap_text};
use crate::console::model::{Model, known_scratch_lines};
use crate::console::screens::editor::state::{EditorPanel, EditorScreen};
use crate::console::theme::{Role, role_of_state};
use crate::untrusted;

/// Rows of the explanation below the findings.
const EXPLANATION_ROWS: usize = 11;

pub(super) fn draw(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>, area: Rect) {
    let mut x = area.x;
    for panel in EditorPanel::ALL {
        let (text, role) = match panel == editor.panel {
            true => (format!("[{}]", panel.title()), Role::Heading),
            false => (format!(" {} ", panel.title()), Role::Dim),
        };
        x = canvas.put_text(x, area.y, &text, role);
    }
    let mut height = usize::from(area.height).saturating_sub(1);
    if editor.panel == EditorPanel::Findings && editor.current_finding().is_some() {
        height = height.saturating_sub(EXPLANATION_ROWS);
        draw_explanation(editor, canvas, area);
    }
    let room = usize::from(area.width).saturating_sub(2);
    let rows = panel_rows(model, editor);
    let cursor = match (editor.is_panel_focused, editor.panel) {
        (true, _) => Some(editor.panel_cursor),
        (false, EditorPanel::Findings) => editor.current_finding(),
        (false, _) => None,
    };
    let from = cursor.map_or(0, |cursor| (cursor + 1).saturating_sub(height));
    let visible = rows.iter().enumerate().skip(from).take(height);
    for ((index, (text, role)), y) in visible.zip(area.y + 1..) {
        if Some(index) == cursor {
            canvas.put_text(area.x, y, ">", Role::Text);
        }
        canvas.put_text(area.x + 1, y, &truncate_untrusted(text, room), *role);
        if Some(index) == cursor && editor.is_panel_focused {
            canvas.highlight_cursor(area.x + 1, y, area.width - 1);
        }
    }
}

/// Draws what the current finding says, why that matters, and what to do.
fn draw_explanation(editor: &EditorScreen, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(finding) = editor.current_finding().map(|it| &editor.findings[it]) else {
        return;
    };
    let top = area.bottom().saturating_sub(EXPLANATION_ROWS as u16);
    let width = usize::from(area.width);
    canvas.put_text(area.x, top, &"─".repeat(width), Role::Rule);
    let rule = finding.rule_row();
    let fix = match finding.fix {
        Some(_) => " F applies the fix.",
        None => "",
    };
    let (_, role) = severity_sign(finding.severity);
    let texts = [
        (format!("{} {}", rule.id, rule.name), Role::Heading),
        (untrusted::visible_line(&finding.message), role),
        (rule.why.to_string(), Role::Dim),
        (format!("{}{fix}", rule.help), Role::Text),
    ];
    let mut y = top + 1;
    for (text, role) in texts {
        let room = usize::from(area.bottom().saturating_sub(y));
        for line in wrap_text(&text, width, room.min(4)) {
            canvas.put_text(area.x, y, &line, role);
            y += 1;
        }
    }
}

fn panel_rows(model: &Model, editor: &EditorScreen) -> Vec<(String, Role)> {
    match editor.panel {
        EditorPanel::Findings => {
            let findings = editor.findings.iter();
            let row = |finding: &crate::lint::Finding| {
                let (sign, role) = severity_sign(finding.severity);
                let line = finding.range.start.line;
                let rule = finding.rule.code();
                (format!("{sign} {line:>4} {rule} {}", finding.message), role)
            };
            findings.map(row).collect()
        }
        EditorPanel::Outline => {
            let entries = editor.outline().into_iter();
            let row = |entry: crate::console::screens::editor::state::OutlineEntry| {
                let indent = " ".repeat(2 * (entry.level - 1));
                let text = format!("{:>4} {indent}{}", entry.line + 1, entry.title);
                (text, Role::Text)
            };
            entries.map(row).collect()
        }
        EditorPanel::Agents => {
            let users = editor.opened.users.iter();
            let row = |user: &crate::engine::BaselineUser| {
                let row = model.find_row(&user.agent);
                let state = row.map(|row| row.state());
                let seen = row.and_then(|row| row.last_readable_observation());
                let next = match seen.and_then(known_scratch_lines) {
                    Some(lines) => format!("next reset archives {lines} lines"),
                    None => String::new(),
                };
                let word = state.map_or("", |state| state.as_str());
                let role = state.map_or(Role::Text, role_of_state);
                (format!("{} {word}  {next}", user.agent), role)
            };
            users.map(row).collect()
        }
    }
}
