//! The schedule at the top of the log: the timers of the service managers, the ones that need
//! attention first; and what every header says about it.

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use super::log_height;
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::age::format_age;
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::model::read_only::read_only_reason;
use crate::console::screen::Screen;
use crate::console::screens::log::state::schedule::{TimerRow, TimerSource};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, fit_end_of_sentence};
use crate::console::widgets::list_pane::{Columns, Fit};
use crate::unattended::schedule::{
    HeldAgent, ManagerSchedule, ScheduleHold, ScheduleOverview, TimerResult, UnitScope,
};

/// Columns from which the agents of a timer have a column of their own.
const MIN_WIDE_COLUMNS: u16 = 110;

/// Rows of the log below which the panel is one line until it is focused.
const MIN_TALL_ROWS: usize = 24;

/// Rows of the log below which there is no room for headings.
const MIN_HEADING_ROWS: usize = 12;

/// Column of the names, behind the mark.
const NAME_X: u16 = 4;

/// Returns the columns of a list of this width.
fn columns(width: u16) -> Columns {
    let [first, next, last, result, agents] = match width {
        MIN_WIDE_COLUMNS.. => [NAME_X, 42, 60, 73, width - 24],
        _ => [
            NAME_X,
            width.saturating_sub(48),
            width.saturating_sub(31),
            width.saturating_sub(18),
            width,
        ],
    };
    let is_wide = agents < width;
    let columns = Columns::from_x(NAME_X)
        .left(if is_wide { "TIMER" } else { "AGENTS" }, next - first)
        .fitted(Fit::Middle)
        .left("NEXT", last - next)
        .left("LAST", result - last);
    if is_wide {
        columns
            .left("RESULT", agents - result)
            .rest("AGENTS", width)
    } else {
        columns.rest("RESULT", width)
    }
}

/// Draws the panel.
pub(super) fn draw_schedule(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let Some(overview) = &model.log.schedule.overview else {
        return;
    };
    draw_headline(model, canvas, y, overview);
    let view = &model.log.schedule;
    let shown = shown_timer_rows(model);
    let mut below = y + 1;
    if view.rows.is_empty() {
        for text in schedule_advice(model) {
            canvas.put_end(NAME_X, below, &text, Role::Text);
            below += 1;
        }
    } else if shown > 0 {
        let columns = columns(canvas.width());
        if has_timer_headings(model) {
            columns.draw_headings(canvas, below);
            below += 1;
        }
        for (index, y) in view.list.visible(view.rows.len(), shown).zip(below..) {
            draw_row(model, canvas, y, &columns, &view.rows[index]);
            if view.is_focused && index == view.list.cursor {
                canvas.put_text(0, y, ">", Role::Text);
                canvas.highlight_cursor(NAME_X..columns.x(1) - 1, y);
            }
        }
    }
    canvas.draw_rule(y + schedule_height(model) - 1);
}

/// Draws the first line: what each service manager has, and the keys of the panel.
fn draw_headline(model: &Model, canvas: &mut Canvas<'_>, y: u16, overview: &ScheduleOverview) {
    let view = &model.log.schedule;
    let [tab, control] = [Command::NextTab, Command::ControlTimer].map(|it| model.key_hint(it));
    let hint = match (view.is_focused, view.rows.is_empty()) {
        (false, _) => format!("{tab} selects"),
        (true, false) if read_only_reason(model).is_some() => "read-only".to_string(),
        (true, false) => format!("{control} run/skip/pause"),
        (true, true) => format!("{} copies", model.key_hint(Command::CopyScheduleLine)),
    };
    canvas.put_right(canvas.width(), y, &hint, Role::Dim);
    let end = canvas.width().saturating_sub(hint.width() as u16 + 2);
    let mut x = canvas.put_text(1, y, "SCHEDULE", Role::Title) + 2;
    let mut managers = overview.managers.iter();
    let is_absent = managers.all(|it| !it.is_running && it.timers.is_empty());
    let parts: Vec<(String, Role)> = if is_absent {
        vec![("no service manager runs".to_string(), Role::Dim)]
    } else {
        let managers = overview.managers.iter();
        managers.map(|it| describe_manager(model, it)).collect()
    };
    let unmanaged = view
        .rows
        .iter()
        .filter(|row| row.source == TimerSource::Unmanaged);
    let unmanaged = unmanaged.count();
    let by_itself = (unmanaged > 0).then(|| {
        let groups = format_count(unmanaged as u64, "group");
        let source = if overview.is_scheduler_running {
            "schedule run"
        } else {
            "schedule run or cron"
        };
        (format!("{source}: {groups}"), Role::Text)
    });
    let held = overview.controls_error.as_ref();
    let held = held.map(|why| (format!("pauses unknown: {why}"), Role::Bad));
    for (text, role) in held.into_iter().chain(by_itself).chain(parts) {
        let room = usize::from(end.saturating_sub(x));
        if room == 0 {
            break;
        }
        x = canvas.put_text(x, y, &fit_end_of_sentence(&text, room), role) + 3;
    }
}

/// Describes what a service manager has: `system: 2 timers, 1 FAILED`.
fn describe_manager(model: &Model, manager: &ManagerSchedule) -> (String, Role) {
    let scope = scope_word(manager.scope);
    let source = TimerSource::Manager(manager.scope);
    let rows = || {
        model
            .log
            .schedule
            .rows
            .iter()
            .filter(|row| row.source == source)
    };
    let timers = format_count(rows().count() as u64, "timer");
    if let Some(why) = manager
        .unknown_because
        .as_ref()
        .filter(|_| manager.is_running)
    {
        return (
            format!("{scope}: {timers}, states unknown: {why}"),
            Role::Bad,
        );
    }
    let mut text = match (rows().count(), manager.is_running) {
        (0, false) => format!("{scope}: no service manager runs"),
        (0, true) => format!("{scope}: no timers"),
        (_, false) => format!("{scope}: {timers}, no service manager runs"),
        (_, true) => format!("{scope}: {timers}"),
    };
    let mut role = Role::Text;
    for (count, word, of) in [
        (
            rows().filter(|row| row.pause().is_some()).count(),
            "paused",
            Role::Warn,
        ),
        (
            rows().filter(|row| row.is_missed).count(),
            "MISSED",
            Role::Bad,
        ),
        (
            rows().filter(|row| row.has_failed()).count(),
            "FAILED",
            Role::Bad,
        ),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
            role = of;
        }
    }
    if rows().count() == 0 {
        role = Role::Dim;
    }
    (text, role)
}

fn scope_word(scope: UnitScope) -> &'static str {
    match scope {
        UnitScope::System => "system",
        UnitScope::User => "user",
    }
}

fn draw_row(model: &Model, canvas: &mut Canvas<'_>, y: u16, columns: &Columns, row: &TimerRow) {
    let (mark, role) = row_mark(row);
    canvas.put_text(2, y, mark, role);
    let (next, next_role) = next_cell(model, row);
    let (last, last_role) = match row.last {
        Some(last) => (format_moment(model, last), Role::Text),
        None if row.has_never_run => ("never".to_string(), Role::Warn),
        None => ("-".to_string(), Role::Dim),
    };
    let (result, result_role) = result_cell(row);
    let cells = [
        (
            &*row_name(model, canvas.width() >= MIN_WIDE_COLUMNS, row),
            Role::Text,
        ),
        (&*next, next_role),
        (&*last, last_role),
        (&*result, result_role),
        (&*agents_cell(row), Role::Text),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Returns the sign in front of a row that needs attention.
fn row_mark(row: &TimerRow) -> (&'static str, Role) {
    if row.has_failed() || row.is_missed {
        ("!", Role::Bad)
    } else if row.is_unknown {
        ("?", Role::Warn)
    } else if row.pause().is_some() {
        ("=", Role::Warn)
    } else if row.has_never_run {
        ("*", Role::Warn)
    } else {
        (" ", Role::Text)
    }
}

/// Returns the name of a timer, with its service manager if both have timers. Without a column for
/// them, its agents stand for it: they take less room than the name of a unit.
fn row_name(model: &Model, is_wide: bool, row: &TimerRow) -> String {
    let name = if !is_wide && row.is_known {
        agents_cell(row)
    } else {
        row.name.clone()
    };
    let mut others = model.log.schedule.rows.iter();
    match row.source {
        TimerSource::Manager(scope) if others.any(|it| it.source != row.source) => {
            format!("{}: {name}", scope_word(scope))
        }
        _ => name,
    }
}

fn next_cell(model: &Model, row: &TimerRow) -> (String, Role) {
    match (row.group.next, row.pause(), row.skip_of_next()) {
        (_, Some(_), _) => ("paused".to_string(), Role::Warn),
        (_, None, Some(_)) => match row.group.after_next {
            Some(after) => (
                format!("skips to {}", format_moment(model, after)),
                Role::Warn,
            ),
            None => ("skips one".to_string(), Role::Warn),
        },
        (Some(next), None, None) => (format_due(model, next), Role::Text),
        (None, None, None) if row.is_unknown => ("unknown".to_string(), Role::Warn),
        (None, None, None) => ("-".to_string(), Role::Dim),
    }
}

fn result_cell(row: &TimerRow) -> (String, Role) {
    let text = row.result.describe();
    let (text, role) = match &row.result {
        TimerResult::Running => return (text.to_string(), Role::Busy),
        TimerResult::Unknown if row.is_missed => return ("MISSED".to_string(), Role::Bad),
        TimerResult::Failed(_) if row.is_repaired => (format!("{text}, ok since"), Role::Text),
        TimerResult::Failed(_) => (text.to_string(), Role::Bad),
        TimerResult::Ok(_) => (text.to_string(), Role::Good),
        TimerResult::Unknown => (text.to_string(), Role::Dim),
    };
    if row.is_missed {
        (format!("MISSED, {text}"), Role::Bad)
    } else {
        (text, role)
    }
}

fn agents_cell(row: &TimerRow) -> String {
    let agents = match (&row.group.agent, row.group.agents.as_slice()) {
        (Some(agent), _) => agent.clone(),
        (None, []) => "none".to_string(),
        (None, [one]) => one.clone(),
        (None, many) => format_count(many.len() as u64, "agent"),
    };
    let is_paused = |held: &&HeldAgent| matches!(held.hold, ScheduleHold::Paused(_));
    let held = row.group.held_agents.len();
    let paused = row.group.held_agents.iter().filter(is_paused).count();
    match held - paused {
        0 if paused == 0 => agents,
        0 => format!("{agents}, {paused} paused"),
        skipped if paused == 0 => format!("{agents}, {skipped} skipped"),
        _ => format!("{agents}, {held} held back"),
    }
}

/// Draws details of the timer under the cursor, below the log.
pub(super) fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let Some(row) = model.log.schedule.current_row() else {
        return;
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(row.pause().map(|pause| pause.describe()));
    parts.extend(row.group.skip.as_ref().map(|skip| skip.describe()));
    let held = row.group.held_agents.iter();
    parts.extend(held.map(|held| format!("{}: {}", held.agent, held.hold.describe())));
    if let TimerResult::Failed(how) = &row.result {
        let since = if row.is_repaired {
            "; its agents were reset since"
        } else {
            ""
        };
        parts.push(format!("last run failed: {how}{since}"));
    }
    if row.has_never_run {
        parts.push("it waits for its first run".to_string());
    }
    if row.is_missed {
        parts.push("a run is overdue, or the timer is not active".to_string());
    }
    let output = row.journal_command();
    let key = model.key_hint(Command::CopyScheduleLine);
    parts.extend(output.map(|line| format!("output ({key} copies): {line}")));
    let text = untrusted::visible_line(parts.join("; "));
    canvas.put_truncated(1, y, &text, Role::Text);
}

/// Returns what every header says about the schedule, in parts that may be left out from the end, the
/// most important one first.
pub fn header_parts(model: &Model) -> Vec<(String, Role)> {
    let rows = &model.log.schedule.rows;
    let mut parts = Vec::new();
    if rows.iter().any(TimerRow::has_failed) {
        parts.push(("run FAILED".to_string(), Role::Bad));
    } else if rows.iter().any(|row| row.is_missed) {
        parts.push(("run MISSED".to_string(), Role::Bad));
    }
    let next = rows.iter().filter_map(TimerRow::next_reset).min();
    let is_paused = |row: &TimerRow| row.pause().is_some();
    match next {
        Some(next) => {
            parts.push((format!("next run {}", format_due(model, next)), Role::Dim));
        }
        None if !rows.is_empty() && rows.iter().all(is_paused) => {
            parts.push(("schedule PAUSED".to_string(), Role::Warn));
        }
        None => {}
    }
    parts
}

/// Formats when a run is due: `04:00 (45m)`.
fn format_due(model: &Model, next: DateTime<FixedOffset>) -> String {
    let time = format_moment(model, next);
    let now = model.now.local_time;
    if next > now {
        format!("{time} ({})", format_until(now, next))
    } else {
        format!("{time} (due)")
    }
}

/// Formats the time until a run: to the minute when it is near.
fn format_until(now: DateTime<FixedOffset>, next: DateTime<FixedOffset>) -> String {
    match (next - now).num_minutes() {
        minutes @ 1..10 => format!("{minutes}m"),
        _ => format_age(next, now),
    }
}

/// Formats a time of today as `04:00`, one of another day as `03-15 04:00`: in its own offset, which
/// differs from that of now across a change of summer time.
pub fn format_moment(model: &Model, time: DateTime<FixedOffset>) -> String {
    if time.date_naive() == model.now.local_time.date_naive() {
        time.format("%H:%M").to_string()
    } else {
        time.format("%m-%d %H:%M").to_string()
    }
}

/// Returns the ages that the header and the panel show.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let mut ages: Vec<String> = header_parts(model)
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    if model.screen == Screen::Log {
        let next = model
            .log
            .schedule
            .rows
            .iter()
            .filter_map(|row| row.group.next);
        ages.extend(next.map(|next| format_until(model.now.local_time, next)));
    }
    ages
}

/// Whether the log has so few rows that one panel at a time is more than a line.
fn is_log_short(model: &Model) -> bool {
    log_height(model) < MIN_TALL_ROWS
}

/// Whether the report makes room for the schedule.
pub(super) fn is_report_collapsed(model: &Model) -> bool {
    let is_tiny = log_height(model) < MIN_HEADING_ROWS;
    let has_schedule = model.log.schedule.overview.is_some();
    model.log.is_report_folded
        || model.log.schedule.is_focused && is_log_short(model)
        || has_schedule && is_tiny
}

/// Whether the background jobs make room for the schedule.
pub(super) fn are_jobs_hidden(model: &Model) -> bool {
    model.log.schedule.is_focused && log_height(model) < MIN_HEADING_ROWS
}

/// Returns how many timers are shown.
pub fn shown_timer_rows(model: &Model) -> usize {
    let view = &model.log.schedule;
    if is_log_short(model) && !view.is_focused {
        return 0;
    }
    let most = if has_timer_headings(model) {
        log_height(model) / 4
    } else {
        1
    };
    view.rows.len().min(most)
}

fn has_timer_headings(model: &Model) -> bool {
    log_height(model) >= MIN_HEADING_ROWS
}

/// Returns what to do where no schedule is in use.
fn schedule_advice(model: &Model) -> Vec<String> {
    let view = &model.log.schedule;
    let Some(overview) = view.overview.as_ref().filter(|_| view.rows.is_empty()) else {
        return Vec::new();
    };
    if is_log_short(model) && !view.is_focused {
        return Vec::new();
    }
    let line = |verb: &str| model.config.invocation.command_line(verb);
    let mut lines = if overview.has_manager() {
        let install = line("schedule install");
        vec![format!(
            "No timers of this config: `{install}` installs them"
        )]
    } else {
        let run = line("schedule run");
        let mut lines = vec![format!("`{run}` resets in the foreground; or for cron:")];
        lines.extend(overview.crontab.iter().cloned());
        lines
    };
    lines.truncate((log_height(model) / 4).max(1));
    lines
}

/// Returns the rows that the schedule takes, with the rule below it.
pub(super) fn schedule_height(model: &Model) -> u16 {
    if model.log.schedule.overview.is_none() {
        return 0;
    }
    let timers = match shown_timer_rows(model) {
        0 => 0,
        rows => rows + usize::from(has_timer_headings(model)),
    };
    (2 + timers + schedule_advice(model).len()) as u16
}
