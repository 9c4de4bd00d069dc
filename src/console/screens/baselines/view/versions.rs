//! Draws the versions of a baseline, newest first.

use crate::console::canvas::{Canvas, fit_start_of_sentence, wrap_text};
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::baselines::view::{FACT_LINES, draw_facts};
use crate::console::theme::Role;
use crate::engine::{BaselineSummary, BaselineVersion};
use crate::untrusted;

/// Columns of time, act, version, and of what the version is now.
const TIME_X: u16 = 2;
const ACT_X: u16 = 19;
const VERSION_X: u16 = 28;
const NOW_X: u16 = 40;
const USER_X: u16 = 54;

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
    let records = match &view.records {
        None => {
            canvas.put_text(1, 4, "reading …", Role::Dim);
            return;
        }
        Some(Err(why)) => {
            let room = usize::from(canvas.width()) - 2;
            let lines = wrap_text(&untrusted::visible_line(why), room, 4);
            for (line, y) in lines.iter().zip(4..) {
                canvas.put_text(1, y, line, Role::Bad);
            }
            return;
        }
        Some(Ok(records)) => records,
    };
    if records.is_empty() {
        let text = "No versions in the ledger: it has not been sealed, saved or pushed yet.";
        canvas.put_text(1, 4, text, Role::Text);
        return;
    }
    for (x, title) in [
        (TIME_X, "TIME"),
        (ACT_X, "ACT"),
        (VERSION_X, "VERSION"),
        (NOW_X, "NOW"),
        (USER_X, "BY"),
    ] {
        canvas.put_text(x, 3, title, Role::Heading);
    }
    let user_width = user_width(records);
    canvas.put_text(USER_X + user_width, 3, "NOTE", Role::Heading);
    let height = model.baselines_list_height();
    for (index, version) in records.iter().enumerate().skip(view.top).take(height) {
        let y = 4 + (index - view.top) as u16;
        draw_row(
            canvas,
            y,
            version,
            summary,
            user_width,
            index == view.cursor,
        );
    }
}

fn user_width(records: &[BaselineVersion]) -> u16 {
    let longest = records.iter().map(|it| it.user.chars().count()).max();
    longest.unwrap_or(0).clamp(2, 12) as u16 + 1
}

fn draw_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    version: &BaselineVersion,
    summary: Option<&BaselineSummary>,
    user_width: u16,
    is_at_cursor: bool,
) {
    if is_at_cursor {
        canvas.put_text(0, y, ">", Role::Text);
    }
    let time = version.time.format("%Y-%m-%d %H:%M").to_string();
    canvas.put_text(TIME_X, y, &time, Role::Text);
    canvas.put_text(ACT_X, y, version.operation.as_str(), Role::Text);
    let digest = version.sha256.map_or("-".to_string(), |it| it.short_hex(8));
    canvas.put_text(VERSION_X, y, &digest, Role::Text);
    if is_at_cursor {
        canvas.highlight_cursor(VERSION_X, y, digest.len() as u16);
    }
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
    canvas.put_text(NOW_X, y, &now, role);
    let user = fit_start_of_sentence(&version.user, usize::from(user_width) - 1);
    canvas.put_text(USER_X, y, &user, Role::Dim);
    let x = USER_X + user_width;
    let room = usize::from(canvas.width().saturating_sub(x));
    let note = fit_start_of_sentence(&note(version), room);
    canvas.put_text(x, y, &note, Role::Dim);
}

/// Draws what the row has no room for.
fn draw_note(canvas: &mut Canvas<'_>, y: u16, version: &BaselineVersion) {
    let (act, who) = (version.operation.as_str(), &version.user);
    let text = format!("{act} by {who}, run {}: {}", version.run, note(version));
    let room = usize::from(canvas.width()) - 2;
    let lines = wrap_text(
        &untrusted::visible_line(&text),
        room,
        usize::from(FACT_LINES),
    );
    for (line, y) in lines.iter().zip(y..) {
        canvas.put_text(1, y, line, Role::Text);
    }
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
