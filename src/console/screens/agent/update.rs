//! The screen of one agent: texts that come, and how they are shown.

use std::collections::HashMap;

use crate::console::command::Command;
use crate::console::model::{AgentTab, CONTEXT_LINE_CHOICES, Model, Screen};
use crate::console::text::{LineKind, Pane, PreparedText, TextLine, Tones};
use crate::console::update::{AgentTexts, Effect, has_moved};
use crate::engine::HistoryEntry;

pub(in crate::console) fn handle_texts(model: &mut Model, texts: AgentTexts) {
    let row = model.find_row(&texts.agent);
    if row.is_some_and(|row| has_moved(row, texts.address.as_ref())) {
        return;
    }
    let agent = &mut model.agent;
    if agent.agent != texts.agent || texts.generation < agent.generation {
        return;
    }
    let first = agent.generation == 0;
    agent.generation = texts.generation;
    let (lines, other) = agent.choose_lines(texts.diff);
    agent.diff.replace_lines(lines);
    agent.diff_alternate = other;
    agent.scratch.replace_lines(texts.scratch.lines);
    let (lines, other) = agent.choose_lines(texts.baseline);
    agent.baseline.replace_lines(lines);
    agent.baseline_alternate = other;
    let facts;
    (agent.fact_labels, facts) = texts.facts.into_iter().unzip();
    agent.facts.replace_lines(facts);
    agent.facts.lines_added_above = 0;
    agent.diff_titles = texts.diff_titles;
    agent.baseline_titles = texts.baseline_titles;
    agent.findings = texts.findings;
    agent.cached_at = texts.cached_at;
    agent.arrange_panes(model.size.0);
    if first {
        let height = model.text_height();
        scroll_to_first_hunk(height, &mut model.agent.diff);
    }
    model.is_dirty = true;
}

/// Colours of lines; those of an older text would be of other lines.
pub(in crate::console) fn handle_tones(
    model: &mut Model,
    name: &str,
    generation: u64,
    tones: &HashMap<usize, Tones>,
) {
    let agent = &mut model.agent;
    if agent.agent != name || agent.generation != generation {
        return;
    }
    agent.diff.apply_tones(tones);
    agent.scratch.apply_tones(tones);
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Asks for what was done to the agent, if that is on the screen.
pub(in crate::console) fn request_history(model: &Model) -> Vec<Effect> {
    match (model.screen, model.agent.tab) {
        (Screen::Agent, AgentTab::History) => vec![Effect::LoadHistory(model.agent.agent.clone())],
        _ => Vec::new(),
    }
}

pub(in crate::console) fn handle_history(
    model: &mut Model,
    name: &str,
    past: Result<Vec<HistoryEntry>, String>,
) {
    if model.agent.agent == name {
        model.agent.history.records = Some(past);
        keep_history_cursor_visible(model);
        model.is_dirty = true;
    }
}

/// What a run changed has come; it is for the row that was opened last.
pub(in crate::console) fn handle_run_diff(
    model: &mut Model,
    name: &str,
    seq: u64,
    text: Result<PreparedText, String>,
) {
    let agent = &mut model.agent;
    if agent.agent != name || agent.history.open_seq != Some(seq) {
        return;
    }
    let prepared = text.unwrap_or_else(|why| vec![TextLine::note(LineKind::Note, why)].into());
    let (lines, other) = agent.choose_lines(prepared);
    agent.history.diff.replace_lines(lines);
    agent.history.diff_alternate = other;
    agent.arrange_panes(model.size.0);
    scroll_to_first_hunk(model.text_height(), &mut model.agent.history.diff);
    model.is_dirty = true;
}

fn scroll_to_first_hunk(height: usize, pane: &mut Pane) {
    if let Some(hunk) = pane.hunks.first().copied() {
        pane.scroll_to_item(hunk, height);
    }
}

/// Opens what the run under the cursor changed.
pub(in crate::console) fn open_run_diff(model: &mut Model) -> Vec<Effect> {
    let agent = &mut model.agent;
    let Some(seq) = agent.history.current_record().map(|past| past.record.seq) else {
        return Vec::new();
    };
    agent.history.cursor_seq = Some(seq);
    agent.history.open_seq = Some(seq);
    agent.history.diff = Pane::default();
    agent.history.diff_alternate = None;
    agent.arrange_panes(model.size.0);
    vec![Effect::PrepareRunDiff(agent.agent.clone(), seq)]
}

pub(in crate::console) fn move_history_cursor(model: &mut Model, by: isize) {
    let history = &mut model.agent.history;
    let last = history.loaded_records().len().saturating_sub(1);
    let index = history.cursor_index().saturating_add_signed(by).min(last);
    history.cursor_seq = history
        .loaded_records()
        .get(index)
        .map(|past| past.record.seq);
    keep_history_cursor_visible(model);
}

pub(in crate::console) fn keep_history_cursor_visible(model: &mut Model) {
    let height = model.history_height();
    let history = &mut model.agent.history;
    let index = history.cursor_index();
    history.top = history.top.clamp((index + 1).saturating_sub(height), index);
    history.top = history
        .top
        .min(history.loaded_records().len().saturating_sub(height));
}

/// One side or two, more or fewer equal lines.
pub(in crate::console) fn change_arrangement(model: &mut Model, command: Command) {
    let agent = &mut model.agent;
    let context_index = CONTEXT_LINE_CHOICES
        .iter()
        .position(|it| *it == agent.context_lines);
    let here = context_index.unwrap_or(CONTEXT_LINE_CHOICES.len() - 1);
    match command {
        Command::ToggleSideBySide => agent.is_unified = !agent.is_unified,
        Command::MoreContext => {
            agent.context_lines =
                CONTEXT_LINE_CHOICES[(here + 1).min(CONTEXT_LINE_CHOICES.len() - 1)]
        }
        _ => agent.context_lines = CONTEXT_LINE_CHOICES[here.saturating_sub(1)],
    }
    agent.arrange_panes(model.size.0);
    match (command, here) {
        (Command::LessContext, 0) => model.show_hint("changes alone are shown already"),
        (Command::MoreContext, last) if last + 1 == CONTEXT_LINE_CHOICES.len() => {
            model.show_hint("all equal lines are shown already");
        }
        _ => {}
    }
}

/// The line at the top may have fewer rows than before, in a wider terminal or cut.
pub(in crate::console) fn clamp_pane_top(model: &mut Model) {
    if model.screen == Screen::Agent {
        let (width, look) = (model.text_width(), model.pane_style());
        model.agent.current_pane_mut().clamp_top(width, look);
    }
}
