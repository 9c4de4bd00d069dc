//! Draws the log: the schedule, the report, runs of the ledger, messages of this session, background jobs.

pub mod schedule;

use crate::base::quantity::format_count;
use crate::console::age::{format_age, format_time};
use crate::console::command::Command;
use crate::console::frame::{draw_equivalent_command, draw_fleet_name};
use crate::console::model::{Model, equivalent_command};
use crate::console::screens::log::state::{LogRow, MAX_RUNS, MessageLevel, ReportText, RunSummary};
use crate::console::screens::log::update::find_hits;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, search_note, shorten_untrusted,
    truncate_untrusted,
};
use crate::engine::{Outcome, ReportLevel, ReportRow};
use schedule::{are_jobs_hidden, is_report_collapsed, schedule_height};

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "LOG", Role::Title) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    // The report counts the runs, since a moment that it names.
    let order = match model.log.runs.len() {
        MAX_RUNS => "newest first, older ones are not shown",
        _ => "newest first",
    };
    let x = canvas.put_text(x, 0, order, Role::Text) + 2;
    let hits = find_hits(model);
    // The cursor may have left the hits.
    let hit = hits.iter().position(|hit| *hit == model.log.list.cursor);
    let room = canvas.room(x);
    let note = search_note(&model.log.query, hit.map(|hit| hit + 1), hits.len(), room);
    canvas.put_right(canvas.width(), 0, &note, Role::Dim);
    if let Some(error) = &model.errors.ledger {
        canvas.put_end(0, 1, error, Role::Bad);
    }
    canvas.draw_rule(2);
    schedule::draw_schedule(model, canvas, 3);
    let below = 3 + schedule_height(model);
    draw_report(model, canvas, below);
    let below = below + report_height(model);
    draw_background_jobs(model, canvas, below);
    let top = below + jobs_height(model);
    let rows = model.log.rows();
    let height = log_list_height(model);
    if rows.is_empty() {
        canvas.put_text(
            1,
            top + 1,
            "No runs yet; the first reset appears here.",
            Role::Text,
        );
    }
    let list = &model.log.list;
    for (index, y) in list.visible(rows.len(), height).zip(top..) {
        let is_at_cursor = index == list.cursor && !model.log.schedule.is_focused;
        draw_row(model, canvas, y, &rows[index], is_at_cursor);
    }
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    if model.log.schedule.is_focused {
        schedule::draw_details(model, canvas, bottom + 1);
    } else {
        draw_details(model, canvas, bottom + 1, rows.get(model.log.list.cursor));
    }
}

fn draw_row(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &LogRow<'_>, is_at_cursor: bool) {
    let query = model.log.query.to_lowercase();
    let text = row.text();
    let is_hit = !query.is_empty() && text.to_lowercase().contains(&query);
    if is_at_cursor {
        canvas.put_text(0, y, ">", Role::Text);
    }
    let now = model.now.local_time;
    let time = row.time();
    let time = if format_time(now, time).contains(':') {
        time.format("%H:%M:%S").to_string()
    } else {
        time.format("%m-%d %H:%M").to_string()
    };
    canvas.put_text(2, y, &format!("{time:>11}"), Role::Dim);
    let (word, role) = row_label(row);
    canvas.put_text(15, y, word, role);
    let room = canvas.room(23);
    let text = match row {
        LogRow::Run(_) => truncate_untrusted(&text, room),
        LogRow::Message(_) => fit_start_of_sentence(&text, room),
    };
    canvas.put_text(23, y, &text, if is_hit { Role::Hit } else { Role::Text });
    if is_at_cursor {
        canvas.highlight_cursor(2..13, y);
    }
}

/// Returns the label of a row: how a run ended, or the level of a message.
fn row_label(row: &LogRow<'_>) -> (&'static str, Role) {
    match row {
        LogRow::Run(run) => match run.failures().first() {
            None => ("run", Role::Good),
            Some((Outcome::Refused, _)) => ("REFUSED", Role::Bad),
            Some((Outcome::NotStarted, _)) => ("stopped", Role::Bad),
            Some(_) => ("FAILED", Role::Bad),
        },
        LogRow::Message(message) => match message.level {
            MessageLevel::Info => ("note", Role::Dim),
            MessageLevel::Warn => ("warn", Role::Warn),
            MessageLevel::Error => ("error", Role::Bad),
        },
    }
}

/// Draws details of the row under the cursor.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: Option<&LogRow<'_>>) {
    match row {
        Some(LogRow::Run(run)) => draw_run_details(model, canvas, y, run),
        // Here the message has the whole width.
        Some(row @ LogRow::Message(_)) => {
            canvas.put_start(1, y, &row.text(), Role::Text);
        }
        None => {}
    }
}

fn draw_run_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, run: &RunSummary) {
    let who = run.events.first().map_or(String::new(), |event| {
        let trigger = event.trigger.as_str();
        let key = model.key_hint(Command::OpenSelected);
        format!("by {} ({trigger}); {key} opens it", event.user)
    });
    let x = canvas.put_untrusted(1, y, who.as_bytes(), Role::Dim);
    if let Some(command) = equivalent_command::for_run(model, run) {
        draw_equivalent_command(model, canvas, (x + 3, y), &command, Command::CopyCommand);
    }
}

/// Draws the background jobs above the log.
fn draw_background_jobs(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let jobs = &model.background_jobs.visible;
    if jobs_height(model) == 0 {
        return;
    }
    let shown = shown_of(jobs.len(), log_height(model) / 3);
    for (row, job) in (y..).zip(jobs.iter().take(shown)) {
        let time = job.started.local_time.format("%H:%M:%S");
        canvas.put_text(2, row, &format!("{time:>11}"), Role::Dim);
        canvas.put_text(15, row, "now", Role::Busy);
        let since = format_age(model.now.local_time, job.started.local_time);
        let text = truncate_untrusted(
            &job.label,
            canvas.room(0).saturating_sub(24 + since.len() + 5),
        );
        let x = canvas.put_text(23, row, &text, Role::Text) + 2;
        canvas.put_text(x, row, &format!("for {since}"), Role::Dim);
    }
    if shown < jobs.len() {
        let more = format!("and {} more", jobs.len() - shown);
        canvas.put_text(23, y + shown as u16, &more, Role::Dim);
    }
    canvas.draw_rule(y + jobs_height(model) - 1);
}

/// Returns how many of some rows are shown in at most `max_rows` rows, one of which says how many are
/// left out.
fn shown_of(rows: usize, max_rows: usize) -> usize {
    if rows > max_rows {
        max_rows.saturating_sub(1)
    } else {
        rows
    }
}

/// Returns the height of rows of which some are shown, with a rule below them.
fn height_of(rows: usize, shown: usize) -> u16 {
    (shown + usize::from(shown < rows) + 1) as u16
}

/// Returns the number of rows between header and details.
fn log_height(model: &Model) -> usize {
    // Two lines of header, a rule; a rule, the row's run, the message, the hints.
    model.rows_beside(7)
}

/// Returns the number of log rows that fit below the report and the background jobs.
pub fn log_list_height(model: &Model) -> usize {
    let panels = schedule_height(model) + report_height(model) + jobs_height(model);
    let above = usize::from(panels);
    log_height(model).saturating_sub(above).max(1)
}

/// Returns the rows that the background jobs take, with the rule below them.
fn jobs_height(model: &Model) -> u16 {
    match model.background_jobs.visible.len() {
        0 => 0,
        _ if are_jobs_hidden(model) => 0,
        jobs => height_of(jobs, shown_of(jobs, log_height(model) / 3)),
    }
}

/// Returns how many rows of the report are shown below its first line.
fn shown_report_rows(model: &Model) -> usize {
    match &model.log.report {
        Some(Ok(report)) if !is_report_collapsed(model) => {
            shown_of(report.rows.len(), (log_height(model) / 3).max(1))
        }
        _ => 0,
    }
}

/// Returns the rows that the report takes, with the rule below it.
fn report_height(model: &Model) -> u16 {
    match &model.log.report {
        None => 0,
        Some(Ok(report)) if !is_report_collapsed(model) => {
            1 + height_of(report.rows.len(), shown_report_rows(model))
        }
        Some(_) => 2,
    }
}

/// Column of the subjects, behind the topics.
const SUBJECT_X: u16 = 15;

/// Draws the report.
fn draw_report(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let report = match &model.log.report {
        None => return,
        Some(Ok(report)) => report,
        Some(Err(why)) => {
            let text = format!("report: {why}");
            canvas.put_end(1, y, &text, Role::Bad);
            canvas.draw_rule(y + 1);
            return;
        }
    };
    draw_report_headline(model, canvas, y, report);
    let shown = shown_report_rows(model);
    for (y, row) in (y + 1..).zip(report.rows.iter().take(shown)) {
        draw_report_row(canvas, y, row);
    }
    if shown < report.rows.len() && !is_report_collapsed(model) {
        let command = model.config.invocation.command_line("report");
        let more = format!("and {} more: {command}", report.rows.len() - shown);
        canvas.put_end(2, y + 1 + shown as u16, &more, Role::Dim);
    }
    canvas.draw_rule(y + report_height(model) - 1);
}

fn draw_report_headline(model: &Model, canvas: &mut Canvas<'_>, y: u16, report: &ReportText) {
    let key = model.key_hint(Command::FoldReport);
    let hint = match (report.rows.len(), model.log.is_report_folded) {
        (0, _) => String::new(),
        // The key shows nothing while the schedule has its room.
        (rows, false) if is_report_collapsed(model) => format_count(rows as u64, "item"),
        (rows, true) => format!("{key} shows {}", format_count(rows as u64, "item")),
        (_, false) => format!("{key} folds"),
    };
    canvas.put_right(canvas.width(), y, &hint, Role::Dim);
    let text = fit_end_of_sentence(
        &report.headline,
        canvas.room(0).saturating_sub(hint.len() + 2),
    );
    canvas.put_text(1, y, &text, Role::Title);
}

fn draw_report_row(canvas: &mut Canvas<'_>, y: u16, row: &ReportRow) {
    let role = match row.level {
        ReportLevel::Bad => Role::Bad,
        ReportLevel::Warn => Role::Warn,
        ReportLevel::Info => Role::Dim,
    };
    canvas.put_text(2, y, row.topic, role);
    let width = if canvas.width() >= 100 { 24 } else { 16 };
    let subject = shorten_untrusted(&row.subject, width);
    canvas.put_text(SUBJECT_X, y, &subject, Role::Text);
    let x = SUBJECT_X + width as u16 + 1;
    // How often and since when is at its start.
    canvas.put_truncated(x, y, &row.text, Role::Text);
}
