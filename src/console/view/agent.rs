//! One agent: its live diff, its scratch, its facts and its history.

mod history;
mod text;

use unicode_width::UnicodeWidthStr;

use super::fleet::{fleet_name, share};
use super::{Canvas, asked, count, cut, fit, message, shorten, size};
use crate::console::command::Command;
use crate::console::model::{HostProblem, Model, SIDES, Tab, age, modified, scratch_lines};
use crate::console::theme::{Role, of_state};
use crate::engine::{Observation, State};
use crate::untrusted;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let agent = &model.agent;
    let seen = model.row(&agent.name).and_then(|row| row.best());
    if agent.full && !agent.is_list() {
        text::draw(model, canvas, 0);
        return full(model, canvas);
    }
    header(model, canvas, seen);
    tabs(model, canvas, seen);
    canvas.rule(2);
    if agent.is_list() {
        history::draw(model, canvas);
    } else if model.has_sides() {
        sides(model, canvas);
        text::draw(model, canvas, 4);
    } else {
        text::draw(model, canvas, 3);
    }
    // Below it the findings, the message, the hints.
    let bottom = canvas.area.height - 4;
    canvas.rule(bottom);
    if agent.is_list() {
        return history::about(model, canvas, bottom + 1);
    }
    let mut x = 1;
    if agent.ignore_blanks && agent.is_diff() && model.size.0 < SIDES {
        x = canvas.put(x, bottom + 1, "ws: ignored", Role::Warn) + 2;
    }
    let x = match agent.pane().grown {
        0 => x,
        grown => canvas.put(
            x,
            bottom + 1,
            &format!("▲ {} added above  ", count(grown as u64, "line")),
            Role::Warn,
        ),
    };
    match agent.tab {
        Tab::History => history::about(model, canvas, bottom + 1),
        _ => {
            let room = usize::from(canvas.width().saturating_sub(x + 1));
            let findings = &agent.findings;
            match untrusted::line(findings).width() > room {
                true => canvas.put(x, bottom + 1, &fit(findings, room), Role::Text),
                false => canvas.foreign(x, bottom + 1, findings.as_bytes(), Role::Text),
            };
        }
    }
}

/// The one line below a text that has the screen for itself.
fn full(model: &Model, canvas: &mut Canvas<'_>) {
    if model.prompt.is_some() {
        return;
    }
    let y = canvas.area.height - 1;
    let agent = &model.agent;
    let name = shorten(&agent.name, usize::from(canvas.width() / 4));
    let x = canvas.put(1, y, &name, Role::Title) + 1;
    let x = state(model, canvas, x, y) + 1;
    let mut x = fleet_name(model, canvas, x, y);
    if agent.is_copy() {
        x = canvas.put(x, y, "CACHED", Role::Warn) + 2;
    }
    if agent.ignore_blanks && agent.is_diff() {
        x = canvas.put(x, y, "ws: ignored", Role::Warn) + 2;
    }
    let end = canvas.width().saturating_sub(1);
    let end = asked(model, canvas, end);
    let pane = agent.pane();
    let mut place = title(agent.tab).to_string();
    if !pane.hunks.is_empty() {
        let here = pane.current_hunk(model.text_height());
        let here = here.map_or(0, |hunk| hunk + 1);
        place.push_str(&format!(" {here}/{}", pane.hunks.len()));
    }
    let leaves = format!("{} leaves", model.key(Command::Full));
    let help = format!("{} help", model.key(Command::Help));
    for text in [&leaves, &help] {
        if usize::from(end.saturating_sub(x)) > text.width() {
            x = canvas.put(x, y, text, Role::Dim) + 2;
        }
    }
    let room = end.saturating_sub(x);
    if model.message.is_some() {
        message(model, canvas, (x, y), room);
    } else if usize::from(room) > place.width() {
        canvas.put(x, y, &place, Role::Dim);
    }
}

/// What the two sides are.
fn sides(model: &Model, canvas: &mut Canvas<'_>) {
    let agent = &model.agent;
    let middle = model.middle() as u16;
    let titles = match agent.tab {
        Tab::History => history::titles(model),
        Tab::Baseline => agent.baseline_titles.clone(),
        _ => agent.titles.clone(),
    };
    let room = usize::from(middle).saturating_sub(2);
    canvas.put(1, 3, &shorten(&titles[0], room), Role::Dim);
    canvas.put(middle, 3, "│", Role::Rule);
    canvas.put(middle + 2, 3, &shorten(&titles[1], room), Role::Dim);
}

fn title(tab: Tab) -> &'static str {
    match tab {
        Tab::Diff => "Diff",
        Tab::Scratch => "Scratch",
        Tab::Facts => "Facts",
        Tab::Baseline => "Baseline",
        Tab::History => "History",
    }
}

fn header(model: &Model, canvas: &mut Canvas<'_>, seen: Option<&Observation>) {
    let width = canvas.width();
    let name = shorten(&model.agent.name, usize::from(width / 4));
    let mut x = canvas.put(0, 0, &name, Role::Title) + 1;
    x = state(model, canvas, x, 0) + 1;
    if let Some(seen) = seen {
        x = canvas.put(x, 0, &cut(&seen.host, 12), Role::Text) + 1;
        if let Some(trouble) = model.cut_off(&model.agent.name) {
            x = cached(model, canvas, x, &trouble);
        } else if let Some(content) = &seen.content {
            let share = share(content.size, seen.limit);
            let text = format!("{}/{} {share}", size(content.size), size(seen.limit));
            x = canvas.put(x, 0, &text, Role::Text) + 2;
            let when = age(model.now.wall, modified(content.modified, model.now.wall));
            x = canvas.put(x, 0, &format!("changed {when} ago"), Role::Text) + 2;
        }
    }
    right(model, canvas, x);
}

/// The state of the agent.
fn state(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
    let row = model.row(&model.agent.name);
    let state = row.map_or(State::Loading, |row| row.state());
    let text = format!("{} {state}", state.glyph().trim_end());
    canvas.put(x, y, &text, of_state(state))
}

/// That what is shown is only a copy, how old that is, and why.
fn cached(model: &Model, canvas: &mut Canvas<'_>, x: u16, trouble: &HostProblem) -> u16 {
    let text = match model.agent.copied {
        Some(read) => format!("CACHED {} old - {trouble}", age(model.now.wall, read)),
        None => format!("no copy - {trouble}"),
    };
    // Where it is narrow this matters more than what else is in the line.
    let reserve = if canvas.width() < 110 { 1 } else { 22 };
    let room = usize::from(canvas.width().saturating_sub(x + reserve));
    canvas.put(x, 0, &fit(&text, room), Role::Warn) + 2
}

/// Which agent of how many, and where in its text.
fn right(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let width = canvas.width();
    let pane = model.agent.pane();
    let mut right = String::new();
    if let Some(place) = model
        .order
        .iter()
        .position(|name| *name == model.agent.name)
    {
        right = format!("[{} of {}]", place + 1, model.order.len());
    }
    if model.agent.is_diff() && !pane.hunks.is_empty() {
        let here = pane
            .current_hunk(model.text_height())
            .map_or(0, |hunk| hunk + 1);
        right.push_str(&format!("  hunk {here}/{}", pane.hunks.len()));
    }
    if x + (right.width() as u16) < width {
        canvas.put_right(width, 0, &right, Role::Text);
    }
}

fn tabs(model: &Model, canvas: &mut Canvas<'_>, seen: Option<&Observation>) {
    let row = model.row(&model.agent.name);
    // Of a copy it is told what it holds.
    let copied = row.filter(|_| model.agent.copied.is_some());
    let seen = copied.and_then(|row| row.last_read()).or(seen);
    let content = seen.and_then(|seen| seen.content.as_ref());
    let scratch = match seen.and_then(scratch_lines) {
        Some(lines) if canvas.width() < SIDES => format!("Scratch {lines}"),
        Some(lines) => format!("Scratch {}", count(lines, "line")),
        None => "Scratch".to_string(),
    };
    let mut x = 0;
    for tab in Tab::ALL {
        let here = tab == model.agent.tab;
        let title = match tab {
            // The fleet's name and tag need the room.
            tab if canvas.width() < 80 && !here => &title(tab)[..1],
            Tab::Scratch => scratch.as_str(),
            tab => title(tab),
        };
        x = match here {
            true => canvas.put(x, 1, &format!("[{title}]"), Role::Heading),
            false => canvas.put(x, 1, &format!(" {title} "), Role::Dim),
        } + 1;
    }
    x = fleet_name(model, canvas, x + 2, 1);
    let mut state = Vec::new();
    let pane = model.agent.pane();
    if !pane.query.is_empty() {
        let at = if pane.hits.is_empty() {
            0
        } else {
            pane.hit + 1
        };
        state.push(format!(
            "\"{}\" {at}/{}",
            cut(&pane.query, 16),
            pane.hits.len()
        ));
    }
    // What is open in the history is not about now.
    if let Some(boundary) = content
        .and_then(|content| content.boundary)
        .filter(|b| b.drifted() && model.agent.history.opened.is_none())
    {
        state.push(format!("+{} -{}", boundary.added, boundary.removed));
    }
    state.extend(how(model));
    // What is said first matters most.
    let room = usize::from(canvas.width().saturating_sub(x));
    while state.join("  ").width() >= room && state.pop().is_some() {}
    canvas.put_right(canvas.width(), 1, &state.join("  "), Role::Dim);
}

/// How the text is shown; what hides something comes first.
fn how(model: &Model) -> Vec<String> {
    let agent = &model.agent;
    let on = |on: bool| if on { "on" } else { "off" };
    let mut how = Vec::new();
    if agent.is_list() {
        return how;
    }
    if agent.is_diff() {
        // Where it is narrow, this stands with the findings.
        if model.size.0 >= SIDES {
            let ws = if agent.ignore_blanks {
                "ignored"
            } else {
                "exact"
            };
            how.push(format!("ws: {ws}"));
        }
        how.push(match agent.context {
            Some(lines) => format!("context: {lines}"),
            None => "context: all".to_string(),
        });
    }
    how.push(format!("wrap: {}", on(agent.wrap)));
    if agent.has_whitespace_marks() {
        how.push("invisibles: on".to_string());
    }
    how
}
