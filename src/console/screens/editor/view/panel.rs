//! Draws the panel beside the text: the findings, the outline, or the agents.

use ratatui::layout::Rect;

use super::severity_sign;
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::agent_row::known_scratch_lines;
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::screens::editor::state::{EditorPanel, EditorScreen};
use crate::console::theme::{Role, role_of_state};
use crate::console::widgets::canvas::{Canvas, truncate_untrusted, wrap_text};
use crate::console::widgets::list_pane::ListPane;
use crate::engine::{NextRuleChange, State};

/// Rows of the explanation below the findings, where there is room for them.
const MAX_EXPLANATION_ROWS: u16 = 11;

/// Rows below which an explanation says nothing: its rule, the finding, and what it is about.
const MIN_EXPLANATION_ROWS: u16 = 3;

/// Marks a finding that has a fix.
const FIX_SIGN: &str = "*";

/// Rows that the titles and the findings keep.
const MIN_LIST_ROWS: u16 = 4;

pub(super) fn draw(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>, area: Rect) {
    let mut x = area.x;
    for panel in EditorPanel::ALL {
        let (text, role) = if panel == editor.panel {
            (format!("[{}]", panel.title()), Role::Heading)
        } else {
            (format!(" {} ", panel.title()), Role::Dim)
        };
        x = canvas.put_text(x, area.y, &text, role);
    }
    let mut height = usize::from(area.height).saturating_sub(1);
    let explanation = match editor.panel {
        EditorPanel::Findings => explain_finding(model, editor),
        EditorPanel::Outline => None,
        EditorPanel::Agents => explain_reset(model, editor),
    };
    let room = area.height.saturating_sub(MIN_LIST_ROWS);
    if let Some(paragraphs) = explanation
        && room >= MIN_EXPLANATION_ROWS
    {
        let rows = room.min(MAX_EXPLANATION_ROWS);
        height = height.saturating_sub(usize::from(rows));
        draw_explanation(&paragraphs, canvas, area, rows);
    }
    let room = usize::from(area.width).saturating_sub(2);
    let rows = panel_rows(model, editor);
    let cursor = match (editor.is_panel_focused, editor.panel) {
        (true, _) => Some(editor.panel_cursor),
        (false, EditorPanel::Findings) => editor.current_finding(),
        (false, _) => None,
    };
    let list = ListPane::<()>::at(cursor.unwrap_or(0));
    for (index, y) in list.visible(rows.len(), height).zip(area.y + 1..) {
        let (text, role) = &rows[index];
        if Some(index) == cursor {
            canvas.put_text(area.x, y, ">", Role::Text);
        }
        canvas.put_text(area.x + 1, y, &truncate_untrusted(text, room), *role);
        if Some(index) == cursor && editor.is_panel_focused {
            canvas.highlight_cursor(area.x + 1..area.right(), y);
        }
    }
}

/// Draws paragraphs below the list.
fn draw_explanation(paragraphs: &[(String, Role)], canvas: &mut Canvas<'_>, area: Rect, rows: u16) {
    let top = area.bottom().saturating_sub(rows);
    let width = usize::from(area.width);
    canvas.put_text(area.x, top, &"─".repeat(width), Role::Rule);
    let mut y = top + 1;
    for (text, role) in paragraphs {
        let room = usize::from(area.bottom().saturating_sub(y));
        for line in wrap_text(text, width, room.min(4)) {
            canvas.put_text(area.x, y, &line, *role);
            y += 1;
        }
    }
}

/// Returns what the current finding says, why that matters, and what to do.
fn explain_finding(model: &Model, editor: &EditorScreen) -> Option<Vec<(String, Role)>> {
    let finding = &editor.findings[editor.current_finding()?];
    let rule = finding.rule_row();
    let fix = match finding.fix {
        Some(_) => {
            let key = model.key_hint(Command::FixFinding);
            format!(" ({FIX_SIGN} {key} fixes it)")
        }
        None => String::new(),
    };
    let (_, role) = severity_sign(finding.severity);
    Some(vec![
        (format!("{} {}{fix}", rule.id, rule.name), Role::Heading),
        (untrusted::visible_line(&finding.message), role),
        (rule.why.to_string(), Role::Dim),
        (rule.help.to_string(), Role::Text),
    ])
}

/// Returns what the next reset of the selected agent changes once the text is saved.
fn explain_reset(model: &Model, editor: &EditorScreen) -> Option<Vec<(String, Role)>> {
    let user = if editor.is_panel_focused {
        editor.opened.users.get(editor.panel_cursor)
    } else {
        editor.opened.users.first()
    };
    let agent = &user?.agent;
    let rules = match editor.rule_changes.get(agent) {
        None => "the rules that it has are not known".to_string(),
        Some(NextRuleChange::NeverPushed) => "the whole baseline is new to it".to_string(),
        Some(NextRuleChange::Lines {
            added: 0,
            removed: 0,
        }) => "no line of the rules pushed last changes".to_string(),
        Some(NextRuleChange::Lines { added, removed }) => format!(
            "the rules pushed last gain {} and lose {}",
            format_count(*added as u64, "line"),
            format_count(*removed as u64, "line")
        ),
    };
    let row = model.find_row(agent);
    let seen = row.and_then(|row| row.last_readable_observation());
    let drift = match row.map(|row| row.state()) {
        Some(State::Drifted) => "; what the agent changed above its separator is reverted",
        _ => "",
    };
    let scratch = match seen.and_then(known_scratch_lines) {
        Some(0) => "it has no scratch to archive".to_string(),
        Some(1) => "1 line of scratch is archived; a push keeps it".to_string(),
        Some(lines) => format!("{lines} lines of scratch are archived; a push keeps them"),
        None => "its scratch is not known".to_string(),
    };
    Some(vec![
        (
            format!("next reset of {agent}, with this text"),
            Role::Heading,
        ),
        (format!("{rules}{drift}"), Role::Text),
        (scratch, Role::Text),
    ])
}

fn panel_rows(model: &Model, editor: &EditorScreen) -> Vec<(String, Role)> {
    match editor.panel {
        EditorPanel::Findings => {
            let findings = editor.findings.iter();
            let row = |finding: &crate::lint::Finding| {
                let (sign, role) = severity_sign(finding.severity);
                let line = finding.range.start.line;
                let rule = finding.rule.code();
                let fix = if finding.fix.is_some() { FIX_SIGN } else { " " };
                let message = &finding.message;
                (format!("{sign}{fix}{line:>4} {rule} {message}"), role)
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
                let rules = match editor.rule_changes.get(&user.agent) {
                    Some(NextRuleChange::Lines { added, removed }) => {
                        format!("rules +{added} -{removed}")
                    }
                    Some(NextRuleChange::NeverPushed) => "rules new".to_string(),
                    None => String::new(),
                };
                let scratch = match seen.and_then(known_scratch_lines) {
                    Some(lines) => format!("scratch {lines}"),
                    None => String::new(),
                };
                let word = state.map_or("", |state| state.as_str());
                let role = state.map_or(Role::Text, role_of_state);
                (format!("{} {word}  {rules}  {scratch}", user.agent), role)
            };
            users.map(row).collect()
        }
    }
}
