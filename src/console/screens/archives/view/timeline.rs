//! Draws the timeline of one agent: its runs and entries, newest first, and beside them the text of
//! the entry under the cursor.

use ratatui::layout::Rect;

use super::{archives_list_height, draw_pane, join_notes, kind_label};
use crate::archive::{agent_directory_of, has_scratch_header};
use crate::base::quantity::{format_count, format_size};
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::agent::view::history::{
    format_time, operation_label, record_note, trigger_label,
};
use crate::console::screens::archives::state::timeline::{MAX_TIMELINE_ROWS, TimelineView};
use crate::console::text::LineKind;
use crate::console::theme::{Role, role_of_outcome};
use crate::console::widgets::canvas::{
    Canvas, end_of_untrusted, fit_start_of_sentence, shorten_untrusted,
};
use crate::console::widgets::list_pane::MIN_PREVIEW_COLUMNS;
use crate::console::widgets::list_pane::{Columns, draw_unloaded};
use crate::engine::{
    EntryPresence, HistoryEntry, Outcome, TimelineEntry, TimelineRow, TimelineSubject,
    UnchangedRuns,
};

/// Returns the columns of a list of this width.
fn columns(width: u16) -> Columns {
    Columns::from_x(2)
        .left("WHEN", 17)
        .left("WHAT", 10)
        .left("OUTCOME", 12)
        .right("SIZE", 5)
        .gap(2)
        .rest("NOTE", width - 1)
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.timeline;
    draw_header(model, canvas);
    canvas.draw_rule(2);
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    let has_preview = canvas.width() >= MIN_PREVIEW_COLUMNS;
    // The notes of runs need as much room as the text.
    let width = if has_preview {
        canvas.width() * 3 / 5
    } else {
        canvas.width()
    };
    let timeline = draw_unloaded(canvas, 4, view.loaded.as_ref());
    if timeline.is_some_and(|it| it.rows.is_empty()) {
        canvas.put_text(1, 4, "No run and no entry yet.", Role::Text);
    } else if let Some(timeline) = timeline {
        let columns = columns(width);
        columns.draw_headings(canvas, 3);
        let extent = (timeline.rows.len(), archives_list_height(model));
        view.list.draw(canvas, 4, extent, |canvas, y, index| {
            draw_row(canvas, y, &columns, &timeline.rows[index], width);
            columns.x(0)..columns.x(1) - 1
        });
    }
    if has_preview && !view.rows().is_empty() {
        draw_preview(model, canvas, width, bottom);
    }
    draw_details(model, canvas, bottom + 1, has_preview);
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.timeline;
    let x = canvas.put_text(0, 0, "TIMELINE", Role::Title) + 2;
    let agent = match (view.timeline(), &view.subject) {
        (Some(timeline), _) => timeline.agent.clone(),
        (None, Some(TimelineSubject::Agent(agent))) => agent.clone(),
        _ => String::new(),
    };
    let room = canvas.room(0) / 2;
    let x = canvas.put_text(x, 0, &shorten_untrusted(&agent, room), Role::Heading) + 2;
    let x = if view.timeline().is_some_and(|it| it.has_left) {
        canvas.put_text(x, 0, "left the config", Role::Warn) + 2
    } else {
        x
    };
    let x = draw_fleet_name(model, canvas, x, 0);
    let Some(timeline) = view.timeline() else {
        return;
    };
    let count = format_count(timeline.rows.len() as u64, "row");
    let text = if timeline.has_more {
        format!("the newest {count}")
    } else {
        format!("{count}, newest first")
    };
    let room = canvas.room(x);
    canvas.put_right(
        canvas.width(),
        0,
        &fit_start_of_sentence(&text, room),
        Role::Dim,
    );
    let notes: Vec<&str> = timeline.notes.iter().map(String::as_str).collect();
    match (join_notes(&notes, canvas.room(0)), timeline.has_more) {
        (Some(note), _) => {
            canvas.put_end(0, 1, &note, Role::Warn);
        }
        (None, true) => {
            let text = format!(
                "older rows are not shown: a timeline has at most {MAX_TIMELINE_ROWS}; `log` and `archive list` have all"
            );
            canvas.put_start(0, 1, &text, Role::Dim);
        }
        (None, false) => {
            let text = "runs of the ledger, and each entry at its time; an entry is below its run";
            canvas.put_start(0, 1, text, Role::Dim);
        }
    }
}

fn draw_row(canvas: &mut Canvas<'_>, y: u16, columns: &Columns, row: &TimelineRow, width: u16) {
    match row {
        TimelineRow::Run(past) => {
            let event = &past.record.event;
            let outcome = event.outcome;
            // The cause of a failure is at its end.
            let note = if outcome.is_failure() {
                end_of_untrusted(&run_note(past), columns.room(4))
            } else {
                run_note(past)
            };
            let cells = [
                (&*format_time(past.record.time), Role::Text),
                (operation_label(past), Role::Text),
                (outcome.as_str(), role_of_outcome(outcome)),
                ("", Role::Text),
                (&note, Role::Text),
            ];
            columns.draw_row(canvas, y, cells);
        }
        TimelineRow::Unchanged(runs) => {
            canvas.put_text(columns.x(0), y, &format_time(runs.last), Role::Dim);
            let room = usize::from(width.saturating_sub(columns.x(1) + 1));
            let text = fit_start_of_sentence(&unchanged_text(runs), room);
            canvas.put_text(columns.x(1), y, &text, Role::Dim);
        }
        TimelineRow::Entry(entry) => draw_entry(canvas, y, columns, entry),
    }
}

fn draw_entry(canvas: &mut Canvas<'_>, y: u16, columns: &Columns, entry: &TimelineEntry) {
    let is_here = entry.presence == EntryPresence::Present;
    let shade = |role: Role| if is_here { role } else { Role::Dim };
    // That of a recorded entry is the time of the row above.
    let when = match entry.run {
        None => entry.stamp.format("%Y-%m-%d %H:%M").to_string(),
        Some(_) => String::new(),
    };
    let (kind, role) = kind_label(entry.kind);
    let kind = format!("{}{kind}", if entry.run.is_some() { "  " } else { "" });
    let size = entry.size.map(format_size).unwrap_or_default();
    // Of an entry in quarantine, the name says so.
    let name = entry.path.strip_prefix(agent_directory_of(&entry.path));
    let note = match (entry.presence, entry.run.is_some()) {
        (EntryPresence::Retired(time), _) => {
            format!("by retention {}", time.format("%Y-%m-%d"))
        }
        (_, false) => "no record".to_string(),
        (_, true) => name.unwrap_or(&entry.path).display().to_string(),
    };
    let cells = [
        (&*when, shade(Role::Text)),
        (&kind, shade(role)),
        presence_word(entry.presence),
        (&size, shade(Role::Text)),
        (&shorten_untrusted(&note, columns.room(4)), Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
    if entry.is_pinned {
        canvas.put_text(columns.x(1) + kind.len() as u16, y, "*", Role::Tag);
    }
}

fn presence_word(presence: EntryPresence) -> (&'static str, Role) {
    match presence {
        EntryPresence::Present => ("", Role::Text),
        EntryPresence::Retired(_) => ("deleted", Role::Dim),
        EntryPresence::Missing => ("MISSING", Role::Bad),
        EntryPresence::Unknown => ("unread", Role::Warn),
    }
}

/// Returns, for example, "unchanged in 12 runs since 2026-03-12 17:10".
fn unchanged_text(runs: &UnchangedRuns) -> String {
    match runs.count {
        1 => "unchanged in 1 run".to_string(),
        count => format!(
            "unchanged in {count} runs since {}",
            format_time(runs.first)
        ),
    }
}

/// Says why a run failed, or else what it did and who started it.
fn run_note(past: &HistoryEntry) -> String {
    let event = &past.record.event;
    let note = record_note(past);
    if event.outcome != Outcome::Ok {
        return if note.is_empty() {
            trigger_label(event)
        } else {
            note
        };
    }
    let mut parts: Vec<String> = Some(note).filter(|it| !it.is_empty()).into_iter().collect();
    parts.extend(event.scratch_lines.map(|lines| format!("{lines} scratch")));
    parts.extend(event.boundary.filter(|it| it.is_drifted()).map(|it| {
        let (added, removed) = (it.added_lines, it.removed_lines);
        format!("+{added} -{removed} above")
    }));
    parts.push(trigger_label(event));
    parts.join(", ")
}

fn draw_preview(model: &Model, canvas: &mut Canvas<'_>, list_width: u16, bottom: u16) {
    canvas.draw_divider(list_width, 3..bottom);
    let x = list_width + 2;
    let width = canvas.width().saturating_sub(x);
    let area = Rect::new(x, 4, width, bottom.saturating_sub(4));
    match model.archives.timeline.current_entry() {
        Ok(entry) => {
            let path = entry.path.display().to_string();
            let path = shorten_untrusted(&path, usize::from(width));
            canvas.put_text(x, 3, &path, Role::Heading);
            draw_pane(model, canvas, area);
        }
        Err(why) => {
            canvas.put_end(x, 4, &why, Role::Dim);
        }
    }
}

/// Draws what the row under the cursor says in full, and at its end, where the text is not beside
/// it, the first line that the agent wrote.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, has_preview: bool) {
    let view = &model.archives.timeline;
    let (text, role) = match view.current_row() {
        None => return,
        Some(TimelineRow::Unchanged(runs)) => (unchanged_text(runs), Role::Dim),
        Some(TimelineRow::Run(past)) => {
            let run = &past.record.event.run;
            (format!("run {run}: {}", run_note(past)), Role::Text)
        }
        Some(TimelineRow::Entry(entry)) if has_preview => {
            (entry.path.display().to_string(), Role::Dim)
        }
        Some(TimelineRow::Entry(entry)) => match (view.current_entry(), first_line(model, view)) {
            (Err(why), _) => (format!("{}: {why}", entry.path.display()), Role::Dim),
            (Ok(_), Some(line)) => (line, Role::Text),
            (Ok(_), None) => (entry.path.display().to_string(), Role::Dim),
        },
    };
    canvas.put_wrapped(1, y, &text, role, model.details_height());
}

/// Returns the first line of the text under the cursor that is not blank, behind the header of a
/// scratch entry.
fn first_line(model: &Model, view: &TimelineView) -> Option<String> {
    let text = &model.archives.text;
    let is_current = text.is_loaded && model.archives.is_text_current();
    let lines = is_current.then_some(&text.pane.lines)?;
    let agent = view.timeline().map_or("", |it| &it.agent);
    let has_header = lines
        .first()
        .is_some_and(|line| has_scratch_header(&line.bytes, agent));
    let mut lines = lines.iter().skip(if has_header { 2 } else { 0 });
    let line =
        lines.find(|line| line.kind == LineKind::Same && !line.bytes.trim_ascii().is_empty());
    line.map(|line| String::from_utf8_lossy(&line.bytes).into_owned())
}
