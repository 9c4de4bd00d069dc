//! Draws the versions of a baseline, newest first.

use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::baselines::view::{FACT_LINES, baselines_list_height, draw_facts};
use crate::console::theme::Role;
use crate::console::widgets::canvas::Canvas;
use crate::console::widgets::list_pane::{Columns, Fit, draw_unloaded};
use crate::engine::{BaselineSummary, BaselineVersion};

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.baselines.versions;
    let x = canvas.put_text(0, 0, "VERSIONS", Role::Title) + 2;
    let x = canvas.put_untrusted(x, 0, view.name.as_bytes(), Role::Title) + 2;
    draw_fleet_name(model, canvas, x, 0);
    let note = "newest first; compare a version with the file, or put it back";
    canvas.put_text(0, 1, note, Role::Dim);
    canvas.draw_rule(2);
    let bottom = canvas.area.height - 3 - FACT_LINES;
    canvas.draw_rule(bottom);
    let summary = model.baselines.find(&view.name);
    match (view.current(), summary) {
        (Some(version), _) => draw_note(canvas, bottom + 1, version),
        (None, Some(summary)) => draw_facts(model, canvas, bottom + 1, summary),
        (None, None) => {}
    }
    let Some(records) = draw_unloaded(canvas, 4, view.records.as_ref()) else {
        return;
    };
    if records.is_empty() {
        let text = "No versions in the ledger: it has not been sealed, saved or pushed yet.";
        canvas.put_text(1, 4, text, Role::Text);
        return;
    }
    let columns = Columns::from_x(2)
        .left("TIME", 17)
        .left("ACT", 9)
        .left("VERSION", 12)
        .left("NOW", 14)
        .left("BY", user_width(records))
        .fitted(Fit::SentenceEnd)
        .rest("NOTE", canvas.width())
        .fitted(Fit::SentenceEnd);
    columns.draw_headings(canvas, 3);
    let extent = (records.len(), baselines_list_height(model));
    view.list.draw(canvas, 4, extent, |canvas, y, index| {
        let version = &records[index];
        draw_row(canvas, y, &columns, version, summary);
        columns.x(2)..columns.x(2) + version_label(version).len() as u16
    });
}

fn user_width(records: &[BaselineVersion]) -> u16 {
    let longest = records.iter().map(|it| it.user.chars().count()).max();
    longest.unwrap_or(0).clamp(2, 12) as u16 + 1
}

fn draw_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &Columns,
    version: &BaselineVersion,
    summary: Option<&BaselineSummary>,
) {
    let is = |digest: Option<_>| digest.is_some() && digest == version.sha256;
    let places = [
        ("disk", summary.is_some_and(|it| is(it.sha256))),
        ("sealed", summary.is_some_and(|it| is(it.sealed))),
    ];
    let places: Vec<&str> = places
        .iter()
        .filter_map(|(place, is_there)| is_there.then_some(*place))
        .collect();
    let (now, role) = match (version.stored, places.is_empty()) {
        (_, false) => (places.join(" "), Role::Good),
        (false, true) if version.sha256.is_some() => ("not kept".to_string(), Role::Warn),
        _ => (String::new(), Role::Dim),
    };
    let cells = [
        (
            &*version.time.format("%Y-%m-%d %H:%M").to_string(),
            Role::Text,
        ),
        (version.operation.as_str(), Role::Text),
        (&version_label(version), Role::Text),
        (&now, role),
        (&version.user, Role::Dim),
        (&note(version), Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
}

fn version_label(version: &BaselineVersion) -> String {
    version.sha256.map_or("-".to_string(), |it| it.short_hex(8))
}

/// Draws what the row has no room for.
fn draw_note(canvas: &mut Canvas<'_>, y: u16, version: &BaselineVersion) {
    let (act, who) = (version.operation.as_str(), &version.user);
    let text = format!("{act} by {who}, run {}: {}", version.run, note(version));
    canvas.put_wrapped(1, y, &text, Role::Text, usize::from(FACT_LINES));
}

fn note(version: &BaselineVersion) -> String {
    let agents = match version.agents.as_slice() {
        [] => None,
        agents => Some(format!("pushed to {}", agents.join(", "))),
    };
    let replaced = version
        .replaced
        .map(|digest| format!("replaced {}", digest.short_hex(8)));
    let parts: Vec<String> = agents
        .into_iter()
        .chain(version.note.clone())
        .chain(replaced)
        .collect();
    parts.join("; ")
}
