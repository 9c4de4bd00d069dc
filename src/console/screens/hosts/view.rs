//! Draws the hosts: a row of status for each, and the details of the current one.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::format_age;
use crate::console::frame::{draw_counts_in_row, draw_fleet_name};
use crate::console::model::Model;
use crate::console::screens::hosts::state::{
    NO_HOSTS_REASON, next_attempt_text, problem_of, status_label,
};
use crate::console::theme::{Role, role_of_state};
use crate::console::widgets::canvas::{Canvas, fit_end_of_sentence, wrap_text};
use crate::console::widgets::list_pane::{Columns, Fit};
use crate::engine::{HostStatus, Reachability, State};

/// Returns the columns of a list of this width, with names of `name_width` cells.
fn columns(width: u16, name_width: u16) -> Columns {
    let columns = Columns::from_x(5)
        .left("STATE", 11)
        .left("HOST", name_width)
        .fitted(Fit::Middle)
        .right("AGENTS", 7);
    let columns = if width < 100 {
        columns.right("REPLY", 6).right("SINCE", 6).right("NEXT", 5)
    } else {
        columns
            .right("REPLY", 8)
            .right("SINCE", 7)
            .right("NEXT TRY", 10)
    };
    columns.gap(2).rest("WHY", width)
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    draw_header(model, canvas);
    canvas.draw_rule(2);
    let statuses = model.hosts.sorted_statuses();
    let name_width = statuses.iter().map(|it| it.host.authority().width()).max();
    let name_width = (name_width.unwrap_or(0) as u16 + 1).clamp(8, canvas.width() / 4);
    let columns = columns(canvas.width(), name_width);
    columns.draw_headings(canvas, 3);
    if statuses.is_empty() {
        canvas.put_text(1, 4, NO_HOSTS_REASON, Role::Text);
    }
    let height = hosts_list_height(model);
    let (list, extent) = (&model.hosts.list, (statuses.len(), height));
    list.draw(canvas, 4, extent, |canvas, y, index| {
        draw_row(model, canvas, y, &columns, statuses[index]);
        columns.x(1)..columns.x(2) - 1
    });
    let bottom = 4 + height as u16;
    canvas.draw_rule(bottom);
    if let Some(status) = model.hosts.current_status() {
        draw_details(model, canvas, bottom + 1, status);
    }
}

fn status_style(status: &HostStatus) -> (&'static str, Role) {
    if status.connection.pending_prompt.is_some() {
        return ("@ ", Role::Warn);
    }
    match status.connection.reachability {
        Reachability::HostKeyMismatch => (State::HostKey.glyph(), role_of_state(State::HostKey)),
        Reachability::Refused => (State::Error.glyph(), role_of_state(State::Error)),
        Reachability::Unreachable => (State::Unreach.glyph(), role_of_state(State::Unreach)),
        Reachability::Unknown => (State::Loading.glyph(), role_of_state(State::Loading)),
        Reachability::Connected => (State::Clean.glyph(), Role::Text),
    }
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "HOSTS", Role::Title) + 2;
    let mut x = draw_fleet_name(model, canvas, x, 0);
    let order = model.hosts.sorted_statuses();
    if canvas.width() >= 100 && !order.is_empty() {
        let all = format!("{}:", format_count(order.len() as u64, "host"));
        x = canvas.put_text(x, 0, &all, Role::Text) + 1;
    }
    let counts = order
        .iter()
        .map(|it| (status_label(it), status_style(it).1));
    draw_counts_in_row(canvas, x, counts);
}

fn draw_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &Columns,
    status: &HostStatus,
) {
    let (glyph, role) = status_style(status);
    canvas.put_text(2, y, glyph.trim_end(), role);
    let connection = &status.connection;
    let now = model.now.local_time;
    let keymap = &model.preferences.keymap;
    let none = || "-".to_string();
    let latency = connection.latency.map_or_else(none, format_latency);
    let since = connection.since.map(|since| format_age(now, since));
    let room = columns.room(6);
    let asks = connection
        .pending_prompt
        .and_then(|_| problem_of(status, now, keymap));
    let asks = asks.map(|asks| asks.to_string());
    let whole = asks.filter(|asks| asks.width() <= room);
    let why = connection
        .short_reason()
        .map(|reason| whole.unwrap_or_else(|| fit_end_of_sentence(&reason, room)));
    let cells = [
        (status_label(status), role),
        (&*status.host.authority(), Role::Text),
        (&*status.agents.len().to_string(), Role::Text),
        (&*latency, Role::Text),
        (&*since.unwrap_or_else(none), Role::Text),
        (&*next_attempt_text(status, now, keymap), Role::Text),
        (&*why.unwrap_or_default(), Role::Text),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Formats a latency, rounded to steps of its order of magnitude so that small variations do not
/// repaint.
fn format_latency(latency: Duration) -> String {
    match latency.as_millis() {
        0 => "<1ms".to_string(),
        millis @ 1..10 => format!("{millis}ms"),
        millis @ 10..1000 => format!("{}ms", millis / 10 * 10),
        millis => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
    }
}

/// Draws the details of a host, the most important first.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, status: &HostStatus) {
    let parts = host_details(model, status);
    let height = host_details_height(model);
    let room = canvas.room(9);
    let count = parts.len();
    let mut line = 0;
    for (number, (label, text, role)) in parts.into_iter().enumerate() {
        // Reserves a line for each of the parts below, if there is room.
        let max_lines = height.saturating_sub(line + (count - number - 1));
        let max_lines = max_lines.max(usize::from(line < height));
        let texts = wrap_text(&untrusted::visible_line(&text), room, max_lines);
        for (number, text) in texts.iter().take(max_lines).enumerate() {
            let at = y + line as u16;
            if number == 0 {
                canvas.put_text(1, at, label, Role::Dim);
            }
            canvas.put_text(8, at, text, role);
            line += 1;
        }
    }
}

/// Returns what is known about a host, most important first, each with its label.
fn host_details(model: &Model, status: &HostStatus) -> Vec<(&'static str, String, Role)> {
    let connection = &status.connection;
    let mut parts = Vec::new();
    let agents = format_count(status.agents.len() as u64, "agent");
    let names = status.agents.join(" ");
    parts.push((
        "host",
        format!("{}, {agents}: {names}", status.host.authority()),
        Role::Text,
    ));
    // A host that asks is past its last failure.
    if connection.pending_prompt.is_some() {
        let problem = problem_of(status, model.now.local_time, &model.preferences.keymap);
        parts.extend(problem.map(|it| ("why", it.to_string(), Role::Warn)));
    } else if let Some(error) = &connection.error {
        let failures = match connection.failures {
            0 => String::new(),
            failures => format!(" ({} in a row)", format_count(failures.into(), "failure")),
        };
        let (_, role) = status_style(status);
        parts.push(("why", format!("{error}{failures}"), role));
        parts.extend(
            error
                .hints()
                .iter()
                .map(|hint| ("hint", hint.clone(), Role::Text)),
        );
    }
    let settings = match model.hosts.settings.get(&status.host) {
        None => ("running ssh -G …".to_string(), Role::Dim),
        Some(Err(why)) => (why.clone(), Role::Warn),
        Some(Ok(settings)) if settings.is_empty() => ("demo host, no ssh".to_string(), Role::Dim),
        Some(Ok(settings)) => {
            let each = settings
                .iter()
                .map(|it| format!("{} {}", it.name, it.value));
            (each.collect::<Vec<_>>().join(" · "), Role::Text)
        }
    };
    parts.push(("ssh", settings.0, settings.1));
    let features = |is_available| {
        connection
            .server_features
            .iter()
            .filter(move |it| it.is_available == is_available)
    };
    let names: Vec<&str> = features(true).map(|it| it.name).collect();
    if !connection.server_features.is_empty() {
        parts.push(("has", names.join(" "), Role::Text));
    }
    let lacks = features(false).map(|it| ("lacks", it.describe_missing(), Role::Warn));
    parts.extend(lacks);
    let limits = connection
        .server_limits
        .iter()
        .map(|(name, limit)| match *name {
            "handles" => format!("{limit} {name}"),
            _ => format!("{name} {}", format_size(*limit)),
        });
    let limits: Vec<String> = limits.collect();
    if !limits.is_empty() {
        parts.push(("limits", limits.join(", "), Role::Text));
    }
    parts
}

/// Returns the height of the host details: all lines that the list leaves.
pub fn host_details_height(model: &Model) -> usize {
    hosts_area_height(model).saturating_sub(hosts_list_height(model))
}

/// Returns the number of host rows that fit.
pub fn hosts_list_height(model: &Model) -> usize {
    let room = hosts_area_height(model);
    // A long list must leave room for the details of one host.
    let details = match model.size.1 {
        30.. => 14,
        24.. => 8,
        _ => room / 2,
    };
    let count = model.hosts.sorted_statuses().len();
    count.clamp(1, room.saturating_sub(details).max(1))
}

fn hosts_area_height(model: &Model) -> usize {
    // Two lines of header, a rule, the column heads; a rule before the details;
    // the message, the hints.
    usize::from(model.size.1).saturating_sub(7)
}
