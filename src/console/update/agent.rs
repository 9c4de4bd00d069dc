//! The screen of one agent: texts that come, and how they are shown.

use std::collections::HashMap;

use super::{Effect, Texts, is_elsewhere};
use crate::console::command::Command;
use crate::console::model::{CONTEXTS, Model, Screen, Tab};
use crate::console::text::{LineKind, Pane, Prepared, TextLine, Tones};
use crate::engine::RunDiff;

pub(super) fn texts_came(model: &mut Model, texts: Texts) {
    let row = model.row(&texts.agent);
    if row.is_some_and(|row| is_elsewhere(row, texts.address.as_ref())) {
        return;
    }
    let agent = &mut model.agent;
    if agent.name != texts.agent || texts.generation < agent.generation {
        return;
    }
    let first = agent.generation == 0;
    agent.generation = texts.generation;
    let (lines, other) = agent.choose(texts.diff);
    agent.diff.replace(lines);
    agent.other = other;
    agent.scratch.replace(texts.scratch.lines);
    let (lines, other) = agent.choose(texts.baseline);
    agent.baseline.replace(lines);
    agent.baseline_other = other;
    let facts;
    (agent.labels, facts) = texts.facts.into_iter().unzip();
    agent.facts.replace(facts);
    agent.facts.grown = 0;
    agent.titles = texts.titles;
    agent.baseline_titles = texts.baseline_titles;
    agent.findings = texts.findings;
    agent.copied = texts.copied;
    agent.arrange(model.size.0);
    if first {
        let height = model.text_height();
        to_first_hunk(height, &mut model.agent.diff);
    }
    model.dirty = true;
}

/// Colours of lines; those of an older text would be of other lines.
pub(super) fn tones_came(
    model: &mut Model,
    name: &str,
    generation: u64,
    tones: &HashMap<usize, Tones>,
) {
    let agent = &mut model.agent;
    if agent.name != name || agent.generation != generation {
        return;
    }
    agent.diff.tone(tones);
    agent.scratch.tone(tones);
    model.dirty |= model.screen == Screen::Agent;
}

/// Asks for what was done to the agent, if that is on the screen.
pub(super) fn history(model: &Model) -> Vec<Effect> {
    match (model.screen, model.agent.tab) {
        (Screen::Agent, Tab::History) => vec![Effect::History(model.agent.name.clone())],
        _ => Vec::new(),
    }
}

pub(super) fn history_came(model: &mut Model, name: &str, past: Result<Vec<RunDiff>, String>) {
    if model.agent.name == name {
        model.agent.history.past = Some(past);
        keep_cursor_visible(model);
        model.dirty = true;
    }
}

/// What a run changed has come; it is for the row that was opened last.
pub(super) fn passed_came(model: &mut Model, name: &str, seq: u64, text: Result<Prepared, String>) {
    let agent = &mut model.agent;
    if agent.name != name || agent.history.opened != Some(seq) {
        return;
    }
    let prepared = text.unwrap_or_else(|why| vec![TextLine::note(LineKind::Note, why)].into());
    let (lines, other) = agent.choose(prepared);
    agent.history.pane.replace(lines);
    agent.history.other = other;
    agent.arrange(model.size.0);
    to_first_hunk(model.text_height(), &mut model.agent.history.pane);
    model.dirty = true;
}

fn to_first_hunk(height: usize, pane: &mut Pane) {
    if let Some(hunk) = pane.hunks.first().copied() {
        pane.go_to(hunk, height);
    }
}

/// Opens what the run under the cursor changed.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    let agent = &mut model.agent;
    let Some(seq) = agent.history.current().map(|past| past.record.seq) else {
        return Vec::new();
    };
    agent.history.cursor = Some(seq);
    agent.history.opened = Some(seq);
    agent.history.pane = Pane::default();
    agent.history.other = None;
    agent.arrange(model.size.0);
    vec![Effect::Passed(agent.name.clone(), seq)]
}

pub(super) fn move_by(model: &mut Model, by: isize) {
    let history = &mut model.agent.history;
    let last = history.rows().len().saturating_sub(1);
    let index = history.index().saturating_add_signed(by).min(last);
    history.cursor = history.rows().get(index).map(|past| past.record.seq);
    keep_cursor_visible(model);
}

pub(super) fn keep_cursor_visible(model: &mut Model) {
    let height = model.history_height();
    let history = &mut model.agent.history;
    let index = history.index();
    history.top = history.top.clamp((index + 1).saturating_sub(height), index);
    history.top = history.top.min(history.rows().len().saturating_sub(height));
}

/// One side or two, more or fewer equal lines.
pub(super) fn arrange(model: &mut Model, command: Command) {
    let agent = &mut model.agent;
    let here = CONTEXTS.iter().position(|it| *it == agent.context);
    let here = here.unwrap_or(CONTEXTS.len() - 1);
    match command {
        Command::Sides => agent.unified = !agent.unified,
        Command::MoreContext => agent.context = CONTEXTS[(here + 1).min(CONTEXTS.len() - 1)],
        _ => agent.context = CONTEXTS[here.saturating_sub(1)],
    }
    agent.arrange(model.size.0);
    match (command, here) {
        (Command::LessContext, 0) => model.hint("changes alone are shown already"),
        (Command::MoreContext, last) if last + 1 == CONTEXTS.len() => {
            model.hint("all equal lines are shown already");
        }
        _ => {}
    }
}

/// The line at the top may have fewer rows than before, in a wider terminal or cut.
pub(super) fn stay_within(model: &mut Model) {
    if model.screen == Screen::Agent {
        let (width, look) = (model.text_width(), model.look());
        model.agent.pane_mut().stay_within(width, look);
    }
}
