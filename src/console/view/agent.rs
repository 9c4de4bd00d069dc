//! One agent: its live diff and its scratch.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::fleet::{fleet_name, share};
use super::{Canvas, count, cut, fit, message, shorten, size};
use crate::console::model::{GUTTER_DIFF, GUTTER_TEXT, Model, Tab, Trouble, age, modified};
use crate::console::text::{Kind, Line, Span};
use crate::console::theme::{Role, of_state};
use crate::engine::{Observation, State};
use crate::untrusted;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let seen = model.row(&model.agent.name).and_then(|row| row.best());
    header(model, canvas, seen);
    tabs(model, canvas, seen);
    canvas.rule(2);
    text(model, canvas);
    let bottom = canvas.area.height - 3;
    canvas.rule(bottom);
    if !message(model, canvas, bottom + 1) {
        let grown = model.agent.pane().grown;
        let x = match grown {
            0 => 1,
            grown => canvas.put(
                1,
                bottom + 1,
                &format!("▲ {} added above  ", count(grown as u64, "line")),
                Role::Warn,
            ),
        };
        let room = usize::from(canvas.width().saturating_sub(x + 1));
        let findings = &model.agent.findings;
        match untrusted::line(findings).width() > room {
            true => canvas.put(x, bottom + 1, &fit(findings, room), Role::Text),
            false => canvas.foreign(x, bottom + 1, findings.as_bytes(), Role::Text),
        };
    }
}

fn header(model: &Model, canvas: &mut Canvas<'_>, seen: Option<&Observation>) {
    let width = canvas.width();
    let name = shorten(&model.agent.name, usize::from(width / 4));
    let mut x = canvas.put(0, 0, &name, Role::Title) + 1;
    let state = model
        .row(&model.agent.name)
        .map_or(State::Loading, |row| row.state());
    x = canvas.put(
        x,
        0,
        &format!("{} {state}", state.glyph().trim_end()),
        of_state(state),
    ) + 1;
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

/// That what is shown is only a copy, how old that is, and why.
fn cached(model: &Model, canvas: &mut Canvas<'_>, x: u16, trouble: &Trouble) -> u16 {
    let text = match model.agent.copied {
        Some(read) => format!("CACHED {} old - {trouble}", age(model.now.wall, read)),
        None => format!("no copy - {trouble}"),
    };
    // Where it is narrow this matters more than what else is in the line.
    let reserve = if canvas.width() < 110 { 1 } else { 22 };
    let room = usize::from(canvas.width().saturating_sub(x + reserve));
    canvas.put(x, 0, &cut(&text, room), Role::Warn) + 2
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
    if model.agent.tab == Tab::Diff && !pane.hunks.is_empty() {
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
    let scratch = match content {
        Some(content) => format!("Scratch {}", count(content.scratch_lines, "line")),
        None => "Scratch".to_string(),
    };
    let mut x = 0;
    for (tab, title) in [(Tab::Diff, "Diff".to_string()), (Tab::Scratch, scratch)] {
        x = match tab == model.agent.tab {
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
    if let Some(boundary) = content
        .and_then(|content| content.boundary)
        .filter(|b| b.drifted())
    {
        state.push(format!("+{} -{}", boundary.added, boundary.removed));
    }
    state.push(format!(
        "wrap: {}",
        if model.agent.wrap { "on" } else { "off" }
    ));
    if model.agent.reveal {
        state.push("invisibles: on".to_string());
    }
    let state = state.join("  ");
    if x + (state.width() as u16) < canvas.width() {
        canvas.put_right(canvas.width(), 1, &state, Role::Dim);
    }
}

fn text(model: &Model, canvas: &mut Canvas<'_>) {
    let pane = model.agent.pane();
    let (width, height, look) = (model.text_width(), model.text_height(), model.look());
    let mut y = 3;
    let end = 3 + height as u16;
    if model.agent.generation == 0 {
        canvas.put(1, y, "reading …", Role::Dim);
        return;
    }
    let (mut index, mut skip) = pane.top;
    while y < end && index < pane.lines.len() {
        let line = &pane.lines[index];
        let hit = pane.hits.binary_search(&index).is_ok();
        for (number, row) in pane
            .rows(index, width, look)
            .into_iter()
            .enumerate()
            .skip(skip)
        {
            if y >= end {
                break;
            }
            gutter(model, canvas, y, line, number == 0);
            spans(
                model,
                canvas,
                y,
                line,
                &row,
                hit.then_some(pane.query.as_str()),
            );
            y += 1;
        }
        skip = 0;
        index += 1;
    }
    if model.agent.copied.is_some() {
        canvas.dim(Rect::new(0, 3, canvas.width(), height as u16));
    }
}

fn gutter(model: &Model, canvas: &mut Canvas<'_>, y: u16, line: &Line, first: bool) {
    let number = |number: Option<usize>| match number {
        Some(number) if first => number.to_string(),
        _ => String::new(),
    };
    let (sign, role) = match line.kind {
        Kind::Added => ("+", Role::Added),
        Kind::Removed => ("-", Role::Removed),
        _ => (" ", Role::Number),
    };
    match model.agent.tab {
        _ if line.kind == Kind::Separator => {}
        Tab::Diff => {
            canvas.put(0, y, sign, role);
            let numbers = format!("{:>5} {:>5}", number(line.old), number(line.new));
            canvas.put(1, y, &numbers, Role::Number);
        }
        Tab::Scratch => {
            canvas.put(0, y, &format!("{:>6}", number(line.new)), Role::Number);
        }
    }
}

fn spans(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    line: &Line,
    row: &[Span],
    hit: Option<&str>,
) {
    let gutter = match model.agent.tab {
        Tab::Diff => GUTTER_DIFF,
        Tab::Scratch => GUTTER_TEXT,
    } as u16;
    let (plain, word) = match line.kind {
        Kind::Same => (Role::Text, Role::Text),
        Kind::Added => (Role::Added, Role::AddedWord),
        Kind::Removed => (Role::Removed, Role::RemovedWord),
        Kind::Separator => (Role::Separator, Role::Separator),
        Kind::Note => (Role::Dim, Role::Dim),
    };
    let mut x = gutter;
    if line.kind == Kind::Separator {
        x = canvas.put(0, y, "═══ ", Role::Separator);
    }
    let begin = x;
    for span in row {
        let role = match (span.mark, span.emphasis) {
            // The word marks are ours and wear the colour of their line.
            (true, _) if is_word_mark(&span.text) && !line.emphasis.is_empty() => word,
            (true, _) => Role::Revealed,
            (false, true) => word,
            (false, false) => plain,
        };
        x = canvas.put(x, y, &span.text, role);
    }
    if line.kind == Kind::Separator {
        let rest = usize::from(canvas.width().saturating_sub(x + 1));
        canvas.put(x + 1, y, &"═".repeat(rest), Role::Separator);
    }
    if let Some(query) = hit {
        let text: String = row.iter().map(|span| span.text.as_str()).collect();
        highlight(canvas, begin, y, &text, query);
    }
}

fn is_word_mark(text: &str) -> bool {
    matches!(text, "[-" | "-]" | "{+" | "+}")
}

/// Marks the places where a row contains what is searched for.
fn highlight(canvas: &mut Canvas<'_>, begin: u16, y: u16, text: &str, query: &str) {
    let style: Style = canvas.theme.style(Role::Hit);
    let lower = text.to_lowercase();
    // Lower case may have other lengths; then the row is marked by its line
    // only.
    if lower.len() != text.len() {
        return;
    }
    for (at, _) in lower.match_indices(query) {
        let (Some(before), Some(found)) = (text.get(..at), text.get(at..at + query.len())) else {
            continue;
        };
        canvas.put_styled(begin + before.width() as u16, y, found, style);
    }
}
