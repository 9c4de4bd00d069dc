//! Draws two versions of a baseline, and the facts about its file.

use unicode_width::UnicodeWidthStr;

use crate::console::canvas::{Canvas, fit_start_of_sentence, search_note, shorten_untrusted};
use crate::console::frame::{draw_compared_texts, draw_fleet_name, fleet_name_width};
use crate::console::model::Model;
use crate::console::screens::baselines::state::ComparedVersion;
use crate::console::screens::baselines::view::{FACT_LINES, draw_facts, long_state, state_role};
use crate::console::theme::Role;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.baselines.comparison;
    let name = &view.request.name;
    let summary = model.baselines.find(name);
    let shown_name = shorten_untrusted(name, usize::from(canvas.width() / 2));
    let mut x = canvas.put_text(0, 0, &shown_name, Role::Title) + 2;
    if let Some(summary) = summary {
        let state = long_state(summary);
        x = canvas.put_text(x, 0, &state, state_role(summary.state)) + 2;
    }
    draw_position(model, canvas, x);
    draw_sides(model, canvas);
    canvas.draw_rule(2);
    draw_compared_texts(model, canvas, 3, &view.shown.titles);
    let bottom = canvas.area.height - 3 - FACT_LINES;
    canvas.draw_rule(bottom);
    if let Some(summary) = summary {
        draw_facts(model, canvas, bottom + 1, summary);
    }
}

/// Draws the current hunk and the numbers of changed lines.
fn draw_position(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let view = &model.baselines.comparison.shown;
    let pane = &view.pane;
    if !view.is_loaded {
        return;
    }
    let (added, removed) = view.changed_lines;
    let mut parts = vec![format!("+{added} -{removed}")];
    parts.extend(pane.describe_hunk(model.text_height()));
    let hit = (!pane.hits.is_empty()).then_some(pane.current_hit + 1);
    let room = canvas.room(x);
    let search = search_note(&pane.query, hit, pane.hits.len(), room / 2);
    if !search.is_empty() {
        parts.insert(0, search);
    }
    while parts.join("  ").width() > room && parts.pop().is_some() {}
    canvas.put_right(canvas.width(), 0, &parts.join("  "), Role::Text);
}

/// Draws which versions are compared, and the fleet.
fn draw_sides(model: &Model, canvas: &mut Canvas<'_>) {
    let [old, new] = &model.baselines.comparison.request.sides;
    let title = |side: usize, version: &ComparedVersion| {
        let titles = &model.baselines.comparison.shown.titles;
        if model.is_side_by_side() {
            version.label()
        } else {
            titles[side].clone()
        }
    };
    let text = format!("{} -> {}", title(0, old), title(1, new));
    let text = fit_start_of_sentence(
        &text,
        canvas.room(0).saturating_sub(fleet_name_width(model) + 2),
    );
    let x = canvas.put_text(0, 1, &text, Role::Heading) + 2;
    draw_fleet_name(model, canvas, x, 1);
}
