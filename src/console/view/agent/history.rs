//! What was done to an agent: charts of its size and of its drift, and a list.

use chrono::{DateTime, FixedOffset};

use super::super::{Canvas, cut, fit, size, with_short_paths, wrap};
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::theme::{Role, of_outcome};
use crate::engine::{Event, FileState, Operation, RunDiff};

/// Heights of a chart's columns, the lowest first.
const HEIGHTS: [&str; 7] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇"];

/// Below this many columns only what matters most is in a row.
const WIDE: u16 = 110;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let history = &model.agent.history;
    match &history.past {
        None => {
            canvas.put(1, 3, "reading …", Role::Dim);
            return;
        }
        Some(Err(why)) => {
            let room = usize::from(canvas.width()).saturating_sub(2);
            canvas.put(1, 3, &fit(why, room), Role::Bad);
            return;
        }
        Some(Ok(past)) if past.is_empty() => {
            let text = "Nothing was done to it yet; the first reset is recorded here.";
            canvas.put(1, 3, text, Role::Text);
            return;
        }
        Some(Ok(_)) => {}
    }
    charts(model, canvas);
    heads(canvas, 6);
    let rows = history.rows();
    let index = history.index();
    for (place, past) in rows
        .iter()
        .enumerate()
        .skip(history.top)
        .take(model.history_height())
    {
        let y = 7 + (place - history.top) as u16;
        row(model, canvas, y, past, place == index);
    }
}

/// The memory's size at each run, and its drift, the oldest left.
fn charts(model: &Model, canvas: &mut Canvas<'_>) {
    let runs = model.agent.history.rows().iter();
    let runs =
        runs.filter(|past| matches!(past.record.what.act, Operation::Reset | Operation::Undo));
    let runs: Vec<&Event> = runs.map(|past| &past.record.what).collect();
    let sizes: Vec<u64> = runs
        .iter()
        .filter_map(|event| bytes(&event.before))
        .collect();
    let drifts: Vec<u64> = runs
        .iter()
        .filter_map(|event| event.boundary)
        .map(|boundary| (boundary.added + boundary.removed) as u64)
        .collect();
    let range = |values: &[u64], show: &dyn Fn(u64) -> String| match (
        values.iter().min(),
        values.iter().max(),
    ) {
        (_, Some(0)) => "none".to_string(),
        (Some(least), Some(most)) if least == most => show(*most),
        (Some(least), Some(most)) => format!("{} to {}", show(*least), show(*most)),
        _ => "not known".to_string(),
    };
    for (y, label, values, range) in [
        (3, "size before", &sizes, range(&sizes, &size)),
        (
            4,
            "lines edited",
            &drifts,
            range(&drifts, &|lines| lines.to_string()),
        ),
    ] {
        canvas.put(1, y, label, Role::Dim);
        let room = usize::from(canvas.width() / 2);
        let x = canvas.put(15, y, &chart(values, room), Role::Text) + 2;
        canvas.put(x, y, &range, Role::Dim);
    }
}

/// Values as columns, the youngest of them, which come first, rightmost.
fn chart(values: &[u64], room: usize) -> String {
    let shown = &values[..values.len().min(room)];
    let most = shown.iter().copied().max().unwrap_or(0).max(1);
    // The largest is the highest, and anything but nothing shows.
    let height = |value: u64| {
        let scaled = u128::from(value) * HEIGHTS.len() as u128;
        scaled.div_ceil(u128::from(most)) as usize
    };
    let column = |value: &u64| match height(*value) {
        0 => " ",
        height => HEIGHTS[height - 1],
    };
    shown.iter().rev().map(column).collect()
}

/// A column: its head, where it begins, how wide it is, and whether right-aligned.
type Column = (&'static str, u16, usize, bool);

/// The columns that fit.
fn columns(width: u16) -> impl Iterator<Item = &'static Column> {
    let columns: &[Column] = match width >= WIDE {
        true => &[
            ("WHEN", 3, 16, false),
            ("ACT", 21, 6, false),
            ("OUTCOME", 29, 11, false),
            ("BEFORE", 40, 7, true),
            ("AFTER", 48, 7, true),
            ("SCRATCH", 56, 8, true),
            ("ABOVE---", 65, 9, true),
            ("RUN", 76, 8, false),
            ("BY", 86, 14, false),
            ("NOTE", 101, 0, false),
        ],
        false => &[
            ("WHEN", 3, 16, false),
            ("ACT", 21, 6, false),
            ("OUTCOME", 28, 11, false),
            ("BEFORE", 39, 6, true),
            ("SCRATCH", 46, 8, true),
            ("ABOVE---", 55, 9, true),
            ("NOTE", 66, 0, false),
        ],
    };
    let fits = move |column: &&Column| usize::from(column.1) + column.2.max(8) < usize::from(width);
    columns.iter().filter(fits)
}

fn heads(canvas: &mut Canvas<'_>, y: u16) {
    for (head, x, width, right) in columns(canvas.width()) {
        put(canvas, (*x, y), head, (*width, *right), Role::Heading);
    }
}

fn put(canvas: &mut Canvas<'_>, (x, y): (u16, u16), text: &str, column: (usize, bool), role: Role) {
    let rest = usize::from(canvas.width().saturating_sub(x + 1));
    let (width, right) = column;
    // A note tells what went wrong: its end matters most.
    let text = match width {
        0 => fit(text, rest),
        width => cut(text, width),
    };
    match right {
        true => canvas.put_right(x + width as u16, y, &text, role),
        false => {
            canvas.put(x, y, &text, role);
        }
    }
}

fn row(model: &Model, canvas: &mut Canvas<'_>, y: u16, past: &RunDiff, here: bool) {
    let event = &past.record.what;
    let standing = |standing: &Option<FileState>| match standing {
        Some(FileState::Absent) => "none".to_string(),
        Some(FileState::Odd(_)) => "odd".to_string(),
        other => bytes(other).map_or("-".to_string(), size),
    };
    let scratch = match (&event.before, event.boundary) {
        _ if event.scratch_lines.is_some() => event.scratch_lines,
        // An older record. What the baseline has below its separator counts, too.
        (Some(FileState::File { lines, .. }), boundary) => {
            let above = boundary.map_or(0, |boundary| boundary.line as u64);
            Some(lines.saturating_sub(above))
        }
        _ => None,
    };
    let scratch = scratch.map_or("-".to_string(), |lines| lines.to_string());
    let above = match event.boundary {
        Some(boundary) if boundary.drifted() => {
            format!("+{} -{}", boundary.added, boundary.removed)
        }
        Some(_) => "0".to_string(),
        None => "-".to_string(),
    };
    for (head, x, width, right) in columns(canvas.width()) {
        let (text, role) = match *head {
            "WHEN" => (when(model, past.record.time), Role::Text),
            "ACT" => (word(past).to_string(), Role::Text),
            "OUTCOME" => (event.outcome.word().to_string(), of_outcome(event.outcome)),
            "BEFORE" => (standing(&event.before), Role::Text),
            "AFTER" => (standing(&event.after), Role::Text),
            "SCRATCH" => (scratch.clone(), Role::Text),
            "ABOVE---" if above.starts_with('+') => (above.clone(), Role::Drifted),
            "ABOVE---" => (above.clone(), Role::Text),
            "RUN" => (event.run.clone(), Role::Dim),
            "BY" => (by(event), Role::Dim),
            _ => (note(past), Role::Text),
        };
        put(canvas, (*x, y), &text, (*width, *right), role);
    }
    if here {
        canvas.put(0, y, ">", Role::Text);
        canvas.highlight(3, y, 16);
    }
}

/// More about the run under the cursor, or the one that is open.
pub(super) fn about(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let history = &model.agent.history;
    let opened = |past: &&RunDiff| Some(past.record.seq) == history.opened;
    let past = match history.opened {
        Some(_) => history.rows().iter().find(opened),
        None => history.current(),
    };
    let Some(past) = past else { return };
    let event = &past.record.what;
    // What went wrong comes first: it is what is read where the rest is cut.
    let mut parts: Vec<String> = event.note.iter().cloned().collect();
    parts.push(format!(
        "{} of run {} by {}",
        word(past),
        event.run,
        by(event)
    ));
    let entries = event
        .written()
        .map(|entry| entry.path.display().to_string());
    parts.extend(entries.take(1));
    parts.extend(relations(past));
    if history.opened.is_none() {
        parts.push(format!(
            "{} shows before and after",
            model.key(Command::Open)
        ));
    }
    let room = usize::from(canvas.width()).saturating_sub(2);
    // The row below is that of messages.
    let rows = if model.message.is_some() { 1 } else { 2 };
    let text = with_short_paths(&parts.join(" · "), room * rows);
    for (line, y) in wrap(&text, room, rows).iter().zip(y..) {
        canvas.put(1, y, line, Role::Text);
    }
}

/// What the two sides of an opened run are.
pub(super) fn titles(model: &Model) -> [String; 2] {
    let history = &model.agent.history;
    let opened = |past: &&RunDiff| Some(past.record.seq) == history.opened;
    match history.rows().iter().find(opened) {
        Some(past) => {
            let word = word(past);
            let when = when(model, past.record.time);
            [
                format!("before the {word} of {when}"),
                format!("after the {word}"),
            ]
        }
        None => ["before".to_string(), "after".to_string()],
    }
}

fn when(model: &Model, time: DateTime<FixedOffset>) -> String {
    let local = time.with_timezone(model.now.wall.offset());
    local.format("%Y-%m-%d %H:%M").to_string()
}

fn word(past: &RunDiff) -> &'static str {
    match past.record.what.act {
        Operation::Undo if past.redo => "redo",
        Operation::Repair if !past.record.what.late.is_empty() => "late",
        act => act.word(),
    }
}

fn by(event: &Event) -> String {
    let trigger = event.trigger.word();
    match event.user == trigger {
        true => trigger.to_string(),
        false => format!("{} {trigger}", event.user),
    }
}

fn note(past: &RunDiff) -> String {
    let mut parts = relations(past);
    parts.extend(past.record.what.note.clone());
    parts.join(", ")
}

/// The runs that a record is related to, and what came late.
fn relations(past: &RunDiff) -> Vec<String> {
    let event = &past.record.what;
    let mut parts = Vec::new();
    parts.extend(
        past.undone_by
            .as_ref()
            .map(|run| format!("undone by {run}")),
    );
    parts.extend(event.undoes.as_ref().map(|run| format!("of {run}")));
    if !event.late.is_empty() {
        parts.push(format!("{} late", event.late.len()));
    }
    parts
}

/// Bytes of what stood there, if it was a file.
fn bytes(standing: &Option<FileState>) -> Option<u64> {
    match standing {
        Some(FileState::File { size, .. }) => Some(*size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_youngest_value_at_the_right() {
        assert_eq!(chart(&[7, 1, 0], 9), " ▁▇");
        assert_eq!(chart(&[1, 2, 3, 4], 2), "▇▄");
        assert_eq!(chart(&[u64::MAX, 0], 9), " ▇");
        assert_eq!(chart(&[], 9), "");
    }
}
