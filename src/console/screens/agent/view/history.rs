//! Draws an agent's history: charts of its size and drift, and the list of its records.

use chrono::{DateTime, FixedOffset};

use crate::base::diff::drift::DriftCounts;
use crate::base::quantity::format_size;
use crate::console::agent_row::AgentRow;
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::theme::{Role, role_of_outcome};
use crate::console::widgets::canvas::{Canvas, shorten_paths, wrap_text};
use crate::console::widgets::list_pane::{Columns, Fit, draw_unloaded};
use crate::engine::{FileState, HistoryEntry, Operation, RunEvent};

/// A blank row below the charts, and the headings.
const FRAME_ROWS: usize = 2;

/// Bars of a chart, the lowest first.
const CHART_BARS: [&str; 7] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇"];

/// Lower screens show no charts of the kinds of drift.
const MIN_KIND_ROWS: u16 = 30;

/// Narrower screens show the most important columns only.
const WIDE_SCREEN_COLUMNS: u16 = 110;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let history = &model.agent.history;
    let Some(records) = draw_unloaded(canvas, 3, history.records.as_ref()) else {
        return;
    };
    if records.is_empty() {
        let row = model.find_row(&model.agent.agent);
        let text = if row.is_some_and(AgentRow::is_never_reset) {
            "No runs yet; the first operation on the memory appears here."
        } else {
            "No runs yet; the first reset appears here."
        };
        canvas.put_text(1, 3, text, Role::Text);
        return;
    }
    let top = draw_charts(model, canvas) + 1;
    let columns = columns(canvas.width());
    columns.draw_headings(canvas, top);
    let extent = (records.len(), history_height(model));
    let list = &history.list;
    list.draw(canvas, top + 1, extent, |canvas, y, index| {
        draw_row(canvas, y, &columns, &records[index]);
        columns.x(0)..columns.x(1) - 1
    });
}

/// A line of bars, one for each run.
struct Chart {
    label: &'static str,
    /// The values, newest first.
    values: Vec<u64>,
    /// The values in words.
    range: String,
}

/// Returns the charts of the memory's size and of its drift at each run; where there is room, also
/// of each kind of drift that occurs.
fn charts(model: &Model) -> Vec<Chart> {
    let runs = model.agent.history.loaded_records().iter();
    let runs = runs.filter(|past| past.record.event.operation.replaces_memories());
    // An undo of an operation changes other files.
    let events = runs.map(|past| &past.record.event);
    let runs: Vec<&RunEvent> = events.filter(|event| event.files.is_empty()).collect();
    if runs.is_empty() {
        return Vec::new();
    }
    let sizes = runs
        .iter()
        .filter_map(|event| file_size(&event.change.before));
    let boundaries = runs.iter().filter_map(|event| event.boundary);
    let edits = boundaries.map(|it| (it.added_lines + it.removed_lines) as u64);
    // Nothing was there to be measured.
    let is_absent = |event: &&RunEvent| event.change.before == Some(FileState::Absent);
    let had_no_file = !runs.is_empty() && runs.iter().all(is_absent);
    let chart = |label, values: Vec<u64>, show: &dyn Fn(u64) -> String| Chart {
        label,
        range: match (values.iter().min(), values.iter().max()) {
            (_, Some(0)) => "none".to_string(),
            (None, None) if had_no_file => "none".to_string(),
            (Some(least), Some(most)) if least == most => show(*most),
            (Some(least), Some(most)) => format!("{} to {}", show(*least), show(*most)),
            _ => "unknown".to_string(),
        },
        values,
    };
    let lines = |lines: u64| lines.to_string();
    let mut charts = vec![
        chart("size before", sizes.collect(), &format_size),
        chart("lines edited", edits.collect(), &lines),
    ];
    if model.size.1 >= MIN_KIND_ROWS {
        // A failed run need not have counted them.
        let drifts = runs.iter().filter(|event| {
            let boundary = event.boundary;
            event.drift.is_some() || boundary.is_some_and(|boundary| !boundary.is_drifted())
        });
        let drifts: Vec<DriftCounts> = drifts.map(|it| it.drift.unwrap_or_default()).collect();
        let of_kind = |count: fn(&DriftCounts) -> usize| -> Vec<u64> {
            drifts.iter().map(|it| count(it) as u64).collect()
        };
        let kinds = [
            ("  added", of_kind(|it| it.added)),
            ("  removed", of_kind(|it| it.removed)),
            ("  reworded", of_kind(|it| it.edited)),
            ("  moved", of_kind(|it| it.moved)),
        ];
        for (label, values) in kinds {
            if values.iter().any(|value| *value > 0) {
                charts.push(chart(label, values, &lines));
            }
        }
    }
    charts
}

/// Draws the charts, the oldest run at the left. Returns the row below.
fn draw_charts(model: &Model, canvas: &mut Canvas<'_>) -> u16 {
    let mut y = 3;
    for chart in charts(model) {
        canvas.put_text(1, y, chart.label, Role::Dim);
        let room = usize::from(canvas.width() / 2);
        let bars = chart_line(&chart.values, room);
        let x = canvas.put_text(15, y, &bars, Role::Text) + 2;
        canvas.put_text(x, y, &chart.range, Role::Dim);
        y += 1;
    }
    y
}

/// Returns values, newest first, as a line of bars with the newest at the right.
fn chart_line(values: &[u64], room: usize) -> String {
    let shown = &values[..values.len().min(room)];
    let most = shown.iter().copied().max().unwrap_or(0).max(1);
    // The largest value has the highest bar, and any value but 0 has one.
    let height = |value: u64| {
        let scaled = u128::from(value) * CHART_BARS.len() as u128;
        scaled.div_ceil(u128::from(most)) as usize
    };
    let column = |value: &u64| match height(*value) {
        0 => " ",
        height => CHART_BARS[height - 1],
    };
    shown.iter().rev().map(column).collect()
}

/// Returns the columns that fit into a list of this width.
fn columns(width: u16) -> Columns {
    let columns = Columns::from_x(3)
        .left("WHEN", 17)
        .left("OPERATION", 10)
        .left("OUTCOME", 12)
        .right("BEFORE", 5);
    if width >= WIDE_SCREEN_COLUMNS {
        return columns
            .right("AFTER", 8)
            .right("SCRATCH", 9)
            .right("ABOVE---", 10)
            .gap(2)
            .left("RUN", 9)
            .gap(1)
            .left("BY", 15)
            .rest("NOTE", width - 1)
            .fitted(Fit::Cause);
    }
    let columns = columns.right("SCRATCH", 8);
    match width {
        ..=65 => columns,
        66..=75 => columns.right("ABOVE---", 10),
        _ => columns
            .right("ABOVE---", 10)
            .gap(2)
            .rest("NOTE", width - 1)
            .fitted(Fit::Cause),
    }
}

fn draw_row(canvas: &mut Canvas<'_>, y: u16, columns: &Columns, record: &HistoryEntry) {
    let event = &record.record.event;
    let size_text = |state: &Option<FileState>| match state {
        Some(FileState::Absent) => "none".to_string(),
        Some(FileState::Special(_)) => "special".to_string(),
        other => file_size(other).map_or("-".to_string(), format_size),
    };
    let scratch = match (&event.change.before, event.boundary) {
        _ if event.scratch_lines.is_some() => event.scratch_lines,
        // An older record without the count: this includes the baseline's own lines below its
        // separator.
        (Some(FileState::File { lines, .. }), boundary) => {
            let above = boundary.map_or(0, |boundary| boundary.line as u64);
            Some(lines.saturating_sub(above))
        }
        _ => None,
    };
    let scratch = scratch.map_or("-".to_string(), |lines| lines.to_string());
    let above = match event.boundary {
        Some(boundary) if boundary.is_drifted() => {
            format!("+{} -{}", boundary.added_lines, boundary.removed_lines)
        }
        Some(_) => "0".to_string(),
        None => "-".to_string(),
    };
    let cells = columns.titles().map(|title| match title {
        "WHEN" => (format_time(record.record.time), Role::Text),
        "OPERATION" => (operation_label(record).to_string(), Role::Text),
        "OUTCOME" => (
            event.outcome.as_str().to_string(),
            role_of_outcome(event.outcome),
        ),
        "BEFORE" => (size_text(&event.change.before), Role::Text),
        "AFTER" => (size_text(&event.change.after), Role::Text),
        "SCRATCH" => (scratch.clone(), Role::Text),
        "ABOVE---" if above.starts_with('+') => (above.clone(), Role::Drifted),
        "ABOVE---" => (above.clone(), Role::Text),
        "RUN" => (event.run.clone(), Role::Dim),
        "BY" => (trigger_label(event), Role::Dim),
        _ => (record_note(record), Role::Text),
    });
    let cells: Vec<(String, Role)> = cells.collect();
    columns.draw_row(canvas, y, cells);
}

/// Draws details of the record under the cursor, or of the opened one.
pub fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let history = &model.agent.history;
    let is_open = |entry: &&HistoryEntry| Some(entry.record.seq) == history.open_seq;
    let entry = match history.open_seq {
        Some(_) => history.loaded_records().iter().find(is_open),
        None => history.current_record(),
    };
    let Some(entry) = entry else { return };
    let event = &entry.record.event;
    // The note comes first, because the end is cut.
    let mut parts: Vec<String> = event.note.iter().cloned().collect();
    parts.push(format!(
        "{} of run {} by {}",
        operation_label(entry),
        event.run,
        trigger_label(event)
    ));
    let entries = event
        .entries()
        .map(|archived| archived.path.display().to_string());
    parts.extend(entries.take(1));
    parts.extend(related_runs(entry));
    if history.open_seq.is_none() {
        parts.push(format!(
            "{} shows before and after",
            model.key_hint(Command::OpenSelected)
        ));
    }
    let room = canvas.room(2);
    let rows = model.details_height();
    let text = shorten_paths(&parts.join(" · "), room * rows);
    for (line, y) in wrap_text(&text, room, rows).iter().zip(y..) {
        canvas.put_text(1, y, line, Role::Text);
    }
}

/// Returns the titles of the two sides of an opened run.
pub fn run_diff_titles(model: &Model) -> [String; 2] {
    let history = &model.agent.history;
    let is_open = |entry: &&HistoryEntry| Some(entry.record.seq) == history.open_seq;
    match history.loaded_records().iter().find(is_open) {
        Some(entry) => {
            let word = operation_label(entry);
            let when = format_time(entry.record.time);
            [
                format!("before the {word} of {when}"),
                format!("after the {word}"),
            ]
        }
        None => ["before".to_string(), "after".to_string()],
    }
}

pub fn format_time(time: DateTime<FixedOffset>) -> String {
    time.format("%Y-%m-%d %H:%M").to_string()
}

pub fn operation_label(record: &HistoryEntry) -> &'static str {
    match record.record.event.operation {
        Operation::Undo if record.is_redo => "redo",
        Operation::Repair if !record.record.event.change.late_entries.is_empty() => "late",
        act => act.as_str(),
    }
}

pub fn trigger_label(event: &RunEvent) -> String {
    let trigger = event.trigger.as_str();
    if event.user == trigger {
        trigger.to_string()
    } else {
        format!("{} {trigger}", event.user)
    }
}

pub fn record_note(record: &HistoryEntry) -> String {
    let mut parts = related_runs(record);
    let findings = record.record.event.findings().describe();
    parts.extend((!findings.is_empty()).then_some(findings));
    parts.extend(record.record.event.note.clone());
    parts.join(", ")
}

/// Returns the runs that a record is related to, and the number of its late entries.
fn related_runs(record: &HistoryEntry) -> Vec<String> {
    let event = &record.record.event;
    let mut parts = Vec::new();
    parts.extend(
        record
            .undone_by
            .as_ref()
            .map(|run| format!("undone by {run}")),
    );
    parts.extend(event.undone_run.as_ref().map(|run| format!("of {run}")));
    if !event.change.late_entries.is_empty() {
        parts.push(format!("{} late", event.change.late_entries.len()));
    }
    parts
}

/// Returns the size in bytes of a state that is a file.
fn file_size(state: &Option<FileState>) -> Option<u64> {
    match state {
        Some(FileState::File { size, .. }) => Some(*size),
        _ => None,
    }
}

/// Returns the rows of the history that fit: the rest has header, charts, headings and footer.
pub(super) fn history_height(model: &Model) -> usize {
    let fixed = 7 + charts(model).len() + FRAME_ROWS;
    model.rows_beside(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_puts_newest_value_at_the_right() {
        assert_eq!(chart_line(&[7, 1, 0], 9), " ▁▇");
        assert_eq!(chart_line(&[1, 2, 3, 4], 2), "▇▄");
        assert_eq!(chart_line(&[u64::MAX, 0], 9), " ▇");
        assert_eq!(chart_line(&[], 9), "");
    }
}
