//! Draws the Health tab: the findings of the checks of a memory with a layout, why the one under the
//! cursor matters, and what to do about it.

use super::agent_list_height;
use crate::base::quantity::format_count;
use crate::console::age::format_age;
use crate::console::model::Model;
use crate::console::screens::agent::state::memory::{FindingCells, HealthPane, describe_place};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, wrap_text};
use crate::console::widgets::list_pane::{Columns, Fit, draw_unloaded};
use crate::layouts::{HealthFinding, HealthSeverity};

/// Rows beside the list: header, status and headings; a rule, the details, the message, the hints.
pub const FRAME_ROWS: usize = 8 + DETAIL_ROWS as usize;

/// Rows that say why a finding matters and what to do.
const DETAIL_ROWS: u16 = 4;

/// The row of the status; the headings and the list are below it.
const STATUS_ROW: u16 = 3;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let bottom = canvas.area.height - DETAIL_ROWS - 3;
    canvas.draw_rule(bottom);
    let health = &model.agent.health;
    let Some(findings) = draw_unloaded(canvas, STATUS_ROW, health.findings.as_ref()) else {
        return;
    };
    draw_status(model, canvas);
    if findings.is_empty() {
        canvas.put_text(1, STATUS_ROW + 2, "No findings.", Role::Good);
        return;
    }
    let columns = columns(health.cells, canvas.width());
    columns.draw_headings(canvas, STATUS_ROW + 1);
    let extent = (findings.len(), agent_list_height(model));
    let draw_row = |canvas: &mut Canvas<'_>, y: u16, index: usize| {
        draw_finding(canvas, y, &columns, &findings[index]);
        columns.x(0)..columns.x(2) - 1
    };
    health.list.draw(canvas, STATUS_ROW + 2, extent, draw_row);
    if let Some(finding) = health.current_finding() {
        draw_details(canvas, bottom + 1, finding);
    }
}

/// Draws the number of findings, and when the checks ended.
fn draw_status(model: &Model, canvas: &mut Canvas<'_>) {
    let health = &model.agent.health;
    let x = canvas.put_text(1, STATUS_ROW, &summarize(health), Role::Text) + 2;
    let checked = health
        .checked_at
        .map(|then| format_age(model.now.local_time, then));
    if let Some(age) = checked {
        canvas.put_text(x, STATUS_ROW, &format!("checked {age} ago"), Role::Dim);
    }
}

/// Counts the findings by severity: `4 findings: 1 error, 2 warnings, 1 info`.
fn summarize(health: &HealthPane) -> String {
    let severities = [
        HealthSeverity::Error,
        HealthSeverity::Warning,
        HealthSeverity::Info,
    ];
    let describe = |severity| match (severity, health.count(severity)) {
        (_, 0) => None,
        (HealthSeverity::Info, count) => Some(format!("{count} info")),
        (severity, count) => Some(format_count(count as u64, severity.as_str())),
    };
    let counts: Vec<String> = severities.into_iter().filter_map(describe).collect();
    match health.findings().len() {
        0 => "no findings".to_string(),
        all => format!(
            "{}: {}",
            format_count(all as u64, "finding"),
            counts.join(", ")
        ),
    }
}

fn columns(cells: FindingCells, width: u16) -> Columns {
    let fit = |cells: u16, least: u16| cells.saturating_add(2).clamp(least, width / 4);
    let check = fit(cells.check, 8);
    let (measured, reported) = (fit(cells.measured, 10), fit(cells.reported, 10));
    let place = width.saturating_sub(13 + check + measured + reported);
    Columns::from_x(2)
        .left("SEVERITY", 10)
        .left("CHECK", check)
        .left("PLACE", place)
        .fitted(Fit::Middle)
        .left("MEASURED", measured)
        .rest("REPORTED", width - 1)
}

fn draw_finding(canvas: &mut Canvas<'_>, y: u16, columns: &Columns, finding: &HealthFinding) {
    let role = match finding.severity {
        HealthSeverity::Error => Role::Bad,
        HealthSeverity::Warning => Role::Warn,
        HealthSeverity::Info => Role::Dim,
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let cells = [
        (finding.severity.as_str(), role),
        (finding.check, Role::Text),
        (&*describe_place(finding), Role::Text),
        (&*text(&finding.measured), Role::Text),
        (&*text(&finding.reported), Role::Text),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Draws why a finding matters, and what to do about it.
fn draw_details(canvas: &mut Canvas<'_>, mut y: u16, finding: &HealthFinding) {
    let room = canvas.room(10);
    for (label, text) in [("why", finding.why), ("to do", finding.remedy)] {
        canvas.put_text(1, y, label, Role::Heading);
        for line in wrap_text(text, room, usize::from(DETAIL_ROWS / 2)) {
            canvas.put_text(8, y, &line, Role::Text);
            y += 1;
        }
    }
}
