//! Draws what retention deletes now and why the rest stays: all agents, one of them, and the plan to
//! delete what is shown.

use unicode_width::UnicodeWidthStr;

use super::{archives_list_height, kind_label};
use crate::base::quantity::{format_count, format_size};
use crate::console::command::Command;
use crate::console::confirmation_line::{PlanWords, draw_confirmation};
use crate::console::frame::{draw_equivalent_command, draw_short_fleet_name};
use crate::console::model::{Model, equivalent_command};
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::archives::state::retention::{
    PrunePlan, RetentionLine, RetentionRow, is_disk_full, used_disk_percent,
};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, shorten_untrusted,
};
use crate::console::widgets::list_pane::{Columns, Fit};
use crate::engine::{AgentRetention, RetentionOverview};

/// Lines below the rows of a plan: a rule, what is deleted, the command line, the confirmation, the
/// message, the hints.
pub(super) const PLAN_FOOTER_LINES: u16 = 6;

/// Columns from which the rows say why the rest stays.
const MIN_REASON_COLUMNS: u16 = 110;

/// Column of the rows.
const ROW_X: u16 = 2;

/// Returns the columns of agents.
fn group_columns(width: u16) -> Columns {
    let columns = Columns::from_x(ROW_X)
        .left("AGENT", 22)
        .fitted(Fit::Middle)
        .right("ENTRIES", 7)
        .right("ON DISK", 9)
        .right("EXPIRE", 8)
        .right("FREES", 8)
        .gap(2)
        .left("OLDEST", 11)
        .left("NEXT", 12);
    if width >= MIN_REASON_COLUMNS {
        columns.rest("THE REST STAYS", width - 1)
    } else {
        columns
    }
}

/// Returns the columns of the entries of one agent.
fn entry_columns(width: u16) -> Columns {
    Columns::from_x(ROW_X)
        .left("DATED", 11)
        .left("KIND", 10)
        .right("SIZE", 7)
        .gap(2)
        .rest("ENTRY", width - 1)
        .fitted(Fit::Middle)
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.retention;
    let page = model.archives.page;
    draw_header(model, canvas);
    canvas.draw_rule(2);
    let plan = view.plan.shown();
    let footer = plan.map_or(4, |_| PLAN_FOOTER_LINES);
    let bottom = canvas.area.height - footer;
    canvas.draw_rule(bottom);
    if let (None, Some(Err(why))) = (plan, &view.overview) {
        let text = format!("cannot tell what expires: {why}");
        canvas.put_end(1, 4, &text, Role::Bad);
        return;
    }
    let (lines, position) = if page == ArchivesPage::RetentionAgent {
        (view.detail_lines(), &view.detail)
    } else {
        (view.list_lines(), &view.list)
    };
    if view.shown().is_none() {
        canvas.put_text(1, 4, "reading …", Role::Dim);
        return;
    }
    let columns = if page == ArchivesPage::RetentionAgent {
        entry_columns(canvas.width())
    } else {
        group_columns(canvas.width())
    };
    columns.draw_headings(canvas, 3);
    let extent = (lines.len(), archives_list_height(model));
    position.draw(canvas, 4, extent, |canvas, y, index| {
        draw_line(model, canvas, y, &columns, &lines[index]);
        ROW_X..ROW_X + 10
    });
    match plan {
        Some(plan) => draw_plan(model, plan, canvas, bottom + 1),
        None => draw_details(model, canvas, bottom + 1, lines.get(position.cursor)),
    }
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.retention;
    let title = if view.plan.is_open() {
        "PRUNE PLAN"
    } else {
        "RETENTION"
    };
    let mut x = canvas.put_text(0, 0, title, Role::Title) + 2;
    if model.archives.page == ArchivesPage::RetentionAgent {
        let name = view.opened.as_ref().and_then(|it| it.agent.clone());
        let name = name.unwrap_or_else(|| "unknown agent".to_string());
        x = canvas.put_text(x, 0, &shorten_untrusted(&name, 30), Role::Heading) + 2;
    }
    let status = match (view.plan.applying(), view.plan.requests.is_pending) {
        (Some(()), _) => "deleting …",
        (None, true) => "reading …",
        _ if view.plan.is_open() => "nothing deleted yet",
        _ => "",
    };
    canvas.put_right(canvas.width(), 0, status, Role::Good);
    let end = canvas.width().saturating_sub(status.width() as u16 + 1);
    let Some(overview) = view.shown() else {
        draw_short_fleet_name(model, canvas, (x, 0), end.saturating_sub(x));
        return;
    };
    let expiring = match (model.archives.page, view.opened_group()) {
        (ArchivesPage::RetentionAgent, Some(group)) => {
            describe_entries(group.expiring.len(), group.expiring_disk_bytes)
        }
        _ => describe_expiring(overview),
    };
    let (text, role) = match expiring {
        Some(text) => (format!("{text} expire"), Role::Warn),
        None => ("nothing expires now".to_string(), Role::Text),
    };
    let room = end.saturating_sub(x + text.width() as u16);
    let x = draw_short_fleet_name(model, canvas, (x, 0), room);
    let room = usize::from(end.saturating_sub(x));
    canvas.put_text(x, 0, &fit_start_of_sentence(&text, room), role);
    let disk = describe_disk(overview);
    let role = if is_disk_full(overview) {
        Role::Bad
    } else {
        Role::Dim
    };
    canvas.put_right(canvas.width(), 1, &disk, role);
    let room = canvas.room(0).saturating_sub(disk.width() + 2);
    let days = format_count(u64::from(overview.days), "day");
    let is_wide = canvas.width() >= MIN_REASON_COLUMNS;
    let confirmed = match overview.confirmed {
        Some(_) if !is_wide => "date confirmed".to_string(),
        None if !is_wide => "date NOT confirmed".to_string(),
        Some(time) => format!("a run of {} confirms the date", time.format("%Y-%m-%d")),
        None => "no earlier run confirms the date: nothing expires".to_string(),
    };
    let text = if is_wide {
        format!("entries expire after {days}; {confirmed}")
    } else {
        format!("after {days}; {confirmed}")
    };
    canvas.put_text(0, 1, &fit_start_of_sentence(&text, room), Role::Text);
}

/// Returns, for example, "214 entries (1.2M) and 3 baseline versions"; none if nothing expires.
fn describe_expiring(overview: &RetentionOverview) -> Option<String> {
    let versions = overview.expiring_versions().len() as u64;
    let bytes = overview.agents.iter().map(|it| it.expiring_disk_bytes);
    let entries = describe_entries(overview.expiring().count(), bytes.sum());
    let versions = (versions > 0).then(|| format_count(versions, "baseline version"));
    let parts: Vec<String> = entries.into_iter().chain(versions).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Returns, for example, "214 entries (1.2M)"; none for no entries.
fn describe_entries(count: usize, disk_bytes: u64) -> Option<String> {
    let size = format_size(disk_bytes);
    (count > 0).then(|| format!("{} ({size})", format_count(count as u64, "entry")))
}

/// Returns how full the disk is, with a warning word if it is almost full.
fn describe_disk(overview: &RetentionOverview) -> String {
    let (Some(percent), Some(disk)) = (used_disk_percent(overview), overview.disk) else {
        return String::new();
    };
    let warning = if is_disk_full(overview) {
        "WARNING: "
    } else {
        ""
    };
    let free = format_size(disk.free_bytes);
    format!("{warning}disk {percent}% used, {free} free")
}

fn draw_line(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &Columns,
    line: &RetentionLine<'_>,
) {
    let room = canvas.room(3);
    match line {
        RetentionLine::Row(RetentionRow::Group(group)) => {
            draw_group(model, canvas, y, columns, group);
        }
        RetentionLine::Row(RetentionRow::Entry(entry)) => {
            let dated = entry.dated.format("%Y-%m-%d").to_string();
            let path = entry.path.display().to_string();
            let size = format_size(entry.size);
            let cells = [
                (&*dated, Role::Text),
                kind_label(entry.kind),
                (&size, Role::Text),
                (&path, Role::Text),
            ];
            columns.draw_row(canvas, y, cells);
        }
        RetentionLine::Warning(text) => {
            canvas.put_text(ROW_X, y, &fit_end_of_sentence(text, room), Role::Warn);
        }
        RetentionLine::Fact(text) => {
            canvas.put_text(ROW_X, y, &fit_end_of_sentence(text, room), Role::Dim);
        }
    }
}

fn draw_group(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &Columns,
    group: &AgentRetention,
) {
    let name = match &group.agent {
        Some(agent) => agent.clone(),
        None => format!("unknown: {}", group.directory.display()),
    };
    let name_role = if group.configured {
        Role::Text
    } else {
        Role::Dim
    };
    let (expiring, freed, expiring_role) = match group.expiring.len() {
        0 => ("-".to_string(), String::new(), Role::Dim),
        count => (
            count.to_string(),
            format_size(group.expiring_disk_bytes),
            Role::Warn,
        ),
    };
    let oldest = group.oldest.map(|it| it.format("%Y-%m-%d").to_string());
    let next = group
        .next_expiry
        .map(|it| it.format("%Y-%m-%d").to_string());
    let cells = [
        (name, name_role),
        (group.entries.to_string(), Role::Text),
        (format_size(group.disk_bytes), Role::Text),
        (expiring, expiring_role),
        (freed, Role::Text),
        (oldest.unwrap_or_default(), Role::Text),
        (next.unwrap_or_else(|| "-".to_string()), Role::Text),
        (describe_kept(model, group), Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Says why the entries of an agent stay that do not expire.
fn describe_kept(model: &Model, group: &AgentRetention) -> String {
    let days = model.archives.retention.shown().map_or(0, |it| it.days);
    group.describe_kept(days).join(", ")
}

/// Draws the line under the cursor in full.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, line: Option<&RetentionLine<'_>>) {
    let text = match line {
        None => return,
        Some(RetentionLine::Warning(text) | RetentionLine::Fact(text)) => text.clone(),
        Some(RetentionLine::Row(RetentionRow::Entry(entry))) => entry.path.display().to_string(),
        Some(RetentionLine::Row(RetentionRow::Group(group))) => {
            let directory = match group.directory.display().to_string() {
                directory if directory.is_empty() => "archive_dir itself".to_string(),
                directory => directory,
            };
            let left = if group.configured || group.agent.is_none() {
                ""
            } else {
                ", left the config"
            };
            let kept = describe_kept(model, group);
            format!("in {directory}{left}: {kept}")
        }
    };
    canvas.put_wrapped(1, y, &text, Role::Text, model.details_height());
}

/// Draws what the plan deletes, and what confirms it.
fn draw_plan(model: &Model, plan: &PrunePlan, canvas: &mut Canvas<'_>, y: u16) {
    let what = describe_expiring(&plan.plan).unwrap_or_default();
    let text = format!("Deletes {what}. No undo brings them back.");
    canvas.put_start(1, y, &text, Role::Warn);
    let command = equivalent_command::for_prune(model);
    draw_equivalent_command(model, canvas, (1, y + 1), &command, Command::CopyPlan);
    let words = PlanWords {
        verb: "delete",
        act: "delete",
        nothing: "Nothing to delete",
        forbidden: "nothing is deleted",
    };
    draw_confirmation(model, canvas, y + 2, &plan.prompt, &words);
}
