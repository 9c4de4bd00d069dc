//! The lines below the list of a plan, and the rows that they leave to the list and to the details.

use super::push::describe_kept_scratch;
use super::state::PlanView;
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::command::Command;
use crate::console::model::read_only::unlock_hint;
use crate::console::model::{MIN_TERMINAL_SIZE, Model};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{truncate, wrap_text};
use crate::engine::{Plan, READ_ONLY_REASON};

/// Lines below the list of a plan: a rule, three lines, the message, the hints.
pub const PLAN_FOOTER_LINES: u16 = 6;

/// Agents of a plan that stay visible, however long the notes below them are.
const MIN_VISIBLE_AGENTS: usize = 3;

/// Rows of text below which details are not worth showing.
const MIN_TEXT_ROWS: usize = 3;

/// Returns the rows of a plan's list on a screen of this many rows.
pub fn list_height(rows: u16) -> usize {
    usize::from(rows.max(MIN_TERMINAL_SIZE.1) - PLAN_FOOTER_LINES - 3)
}

/// Returns the lines below a plan's list, of which some rows stay visible.
pub fn plan_footer(model: &Model, view: &PlanView) -> Vec<(String, Role)> {
    let agents = view.plan.steps.len() + view.plan.skipped.len();
    let min_list_rows = agents.clamp(1, MIN_VISIBLE_AGENTS);
    let room = usize::from(model.size.0).saturating_sub(2).max(1);
    let max_lines = list_height(model.size.1).saturating_sub(min_list_rows) + 1;
    let (text, role) = plan_note(model, view);
    let mut note = wrap_text(&untrusted::visible_line(&text), room, usize::MAX);
    // A note that does not fit is cut in its last line.
    if note.len() > max_lines {
        note.truncate(max_lines);
        if let Some(last) = note.last_mut() {
            *last = truncate(&format!("{last} …"), room);
        }
    }
    let kept = describe_kept_scratch(model, view);
    let kept_lines = usize::from(kept.is_some());
    let room_left = max_lines.saturating_sub(note.len() + kept_lines);
    let degradations = degradation_lines(&view.plan, room, room_left);
    let degradations = degradations.into_iter().map(|text| (text, Role::Warn));
    let kept = kept.into_iter().map(|text| (text, Role::Text));
    degradations
        .chain(kept)
        .chain(note.into_iter().map(|text| (text, role)))
        .collect()
}

/// Returns what a plan guarantees less than on this machine; of more than `max_lines` lines, the
/// number of those that are left out.
fn degradation_lines(plan: &Plan, room: usize, max_lines: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for text in plan.degradations() {
        lines.extend(wrap_text(&untrusted::visible_line(text), room, usize::MAX));
    }
    if lines.len() > max_lines {
        let more = format_count((lines.len() - max_lines + 1) as u64, "line");
        lines.truncate(max_lines.saturating_sub(1));
        lines.push(format!(
            "… and {more} more: --dry-run prints all degradations"
        ));
    }
    lines
}

/// Returns the note to read before this plan is confirmed.
fn plan_note(model: &Model, view: &PlanView) -> (String, Role) {
    if !model.reset.hidden_agents.is_empty() {
        let text = format!(
            "the filter hides {}: {} keeps them in the plan, {} drops them: {}",
            format_count(model.reset.hidden_agents.len() as u64, "marked agent"),
            model.key_hint(Command::KeepHiddenAgents),
            model.key_hint(Command::DropHiddenAgents),
            model.reset.hidden_agents.join(" ")
        );
        return (text, Role::Warn);
    }
    let skipped = model
        .reset
        .cursor_index()
        .checked_sub(view.plan.steps.len());
    if let Some(skipped) = skipped.and_then(|index| view.plan.skipped.get(index)) {
        let mut text = format!("{} skipped: {}", skipped.agent, skipped.reason);
        for hint in &skipped.hints {
            text.push_str(&format!("; {hint}"));
        }
        if skipped.reason == READ_ONLY_REASON && !model.read_only.is_forced {
            text.push_str(&format!("; {}", unlock_hint(model)));
        }
        return (text, Role::Text);
    }
    let current = view.plan.steps.get(model.reset.cursor_index());
    let note = current
        .into_iter()
        .chain(&view.plan.steps)
        .find_map(|step| {
            let notes = step.checks().cloned().collect::<Vec<_>>().join("; ");
            (!notes.is_empty()).then(|| format!("{}: {notes}", step.agent))
        });
    let retention = view.plan.retention.as_ref();
    let counts = [
        (retention.map_or(0, |it| it.entries.len()), "old entry"),
        (
            retention.map_or(0, |it| it.versions.len()),
            "unused baseline version",
        ),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| format_count(*count as u64, noun))
        .collect();
    let deletes =
        (!counts.is_empty()).then(|| format!("then retention deletes {}", counts.join(" and ")));
    let parts: Vec<String> = deletes.into_iter().chain(note).collect();
    (parts.join("; "), Role::Text)
}

/// Returns the rows that the details and their title take of `height` rows.
pub fn detail_rows(model: &Model, view: &PlanView, height: usize) -> usize {
    if !model.reset.has_details() {
        return 0;
    }
    let agents = view.plan.steps.len() + view.plan.skipped.len();
    let list = agents.clamp(1, MIN_VISIBLE_AGENTS.max(height / 3));
    let rest = height.saturating_sub(list);
    if rest > MIN_TEXT_ROWS { rest } else { 0 }
}

/// Returns the rows of the text of a plan's details.
pub fn plan_details_height(model: &Model) -> usize {
    let Some(view) = model.reset.plan.shown() else {
        return 0;
    };
    let footer = plan_footer(model, view).len().saturating_sub(1);
    let height = list_height(model.size.1).saturating_sub(footer);
    detail_rows(model, view, height).saturating_sub(1)
}
