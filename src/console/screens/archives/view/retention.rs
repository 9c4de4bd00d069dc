//! Draws what retention deletes now and why the rest stays: all agents, one of them, and the plan to
//! delete what is shown.

use unicode_width::UnicodeWidthStr;

use super::kind_label;
use crate::console::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, shorten_untrusted, truncate_untrusted,
    wrap_text,
};
use crate::console::command::Command;
use crate::console::confirmation_line::draw_typed_confirmation;
use crate::console::frame::{draw_equivalent_command, draw_short_fleet_name};
use crate::console::model::{Model, equivalent_command};
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::archives::state::retention::{
    PrunePlan, RetentionLine, RetentionRow, is_disk_full, used_disk_percent,
};
use crate::console::screens::reset::view::draw_keys_ignored;
use crate::console::theme::Role;
use crate::engine::{AgentRetention, ExpiringEntry, RetentionOverview};
use crate::quantity::{format_count, format_size};
use crate::untrusted;

/// Lines below the rows of a plan: a rule, what is deleted, the command line, the confirmation, the
/// message, the hints.
pub(super) const PLAN_FOOTER_LINES: u16 = 6;

/// Columns from which the rows say why the rest stays.
const MIN_REASON_COLUMNS: u16 = 110;

const AGENT_X: u16 = 2;
const ENTRIES_END: u16 = 31;
const DISK_END: u16 = 40;
const EXPIRE_END: u16 = 48;
const FREES_END: u16 = 56;
const OLDEST_X: u16 = 58;
const NEXT_X: u16 = 69;
const REASON_X: u16 = 81;

/// Columns of the entries of one agent.
const KIND_X: u16 = 13;
const SIZE_END: u16 = 30;
const PATH_X: u16 = 32;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.retention;
    let page = model.archives.page;
    draw_header(model, canvas);
    canvas.draw_rule(2);
    let footer = if page == ArchivesPage::PrunePlan {
        PLAN_FOOTER_LINES
    } else {
        4
    };
    let bottom = canvas.area.height - footer;
    canvas.draw_rule(bottom);
    if let (None, Some(Err(why))) = (&view.plan, &view.overview) {
        let room = usize::from(canvas.width()) - 2;
        let text = format!("cannot tell what expires: {why}");
        canvas.put_text(1, 4, &fit_end_of_sentence(&text, room), Role::Bad);
        return;
    }
    let (lines, position) = if page == ArchivesPage::RetentionAgent {
        (view.detail_lines(), view.detail)
    } else {
        (view.list_lines(), view.list)
    };
    if view.shown().is_none() {
        canvas.put_text(1, 4, "reading …", Role::Dim);
        return;
    }
    if page == ArchivesPage::RetentionAgent {
        draw_entry_headings(canvas);
    } else {
        draw_headings(canvas);
    }
    let visible = lines.iter().enumerate().skip(position.top);
    for (index, line) in visible.take(model.archives_list_height()) {
        let y = 4 + (index - position.top) as u16;
        draw_line(model, canvas, y, line);
        if index == position.cursor {
            canvas.put_text(0, y, ">", Role::Text);
            canvas.highlight_cursor(AGENT_X, y, 10);
        }
    }
    match &view.plan {
        Some(plan) => draw_confirmation(model, plan, canvas, bottom + 1),
        None => draw_details(model, canvas, bottom + 1, lines.get(position.cursor)),
    }
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.retention;
    let title = match model.archives.page {
        ArchivesPage::PrunePlan => "PRUNE PLAN",
        _ => "RETENTION",
    };
    let mut x = canvas.put_text(0, 0, title, Role::Title) + 2;
    if model.archives.page == ArchivesPage::RetentionAgent {
        let name = view.opened.as_ref().and_then(|it| it.agent.clone());
        let name = name.unwrap_or_else(|| "unknown agent".to_string());
        x = canvas.put_text(x, 0, &shorten_untrusted(&name, 30), Role::Heading) + 2;
    }
    let status = match (view.is_pruning, view.is_loading) {
        (true, _) => "deleting …",
        (false, true) => "reading …",
        _ if view.plan.is_some() => "nothing deleted yet",
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
    let room = usize::from(canvas.width()).saturating_sub(disk.width() + 2);
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

fn draw_headings(canvas: &mut Canvas<'_>) {
    canvas.put_text(AGENT_X, 3, "AGENT", Role::Heading);
    for (end, title) in [
        (ENTRIES_END, "ENTRIES"),
        (DISK_END, "ON DISK"),
        (EXPIRE_END, "EXPIRE"),
        (FREES_END, "FREES"),
    ] {
        canvas.put_right(end, 3, title, Role::Heading);
    }
    canvas.put_text(OLDEST_X, 3, "OLDEST", Role::Heading);
    canvas.put_text(NEXT_X, 3, "NEXT", Role::Heading);
    if canvas.width() >= MIN_REASON_COLUMNS {
        canvas.put_text(REASON_X, 3, "THE REST STAYS", Role::Heading);
    }
}

fn draw_entry_headings(canvas: &mut Canvas<'_>) {
    canvas.put_text(AGENT_X, 3, "DATED", Role::Heading);
    canvas.put_text(KIND_X, 3, "KIND", Role::Heading);
    canvas.put_right(SIZE_END, 3, "SIZE", Role::Heading);
    canvas.put_text(PATH_X, 3, "ENTRY", Role::Heading);
}

fn draw_line(model: &Model, canvas: &mut Canvas<'_>, y: u16, line: &RetentionLine<'_>) {
    let room = usize::from(canvas.width()).saturating_sub(3);
    match line {
        RetentionLine::Row(RetentionRow::Group(group)) => draw_group(model, canvas, y, group),
        RetentionLine::Row(RetentionRow::Entry(entry)) => draw_entry(canvas, y, entry),
        RetentionLine::Warning(text) => {
            canvas.put_text(AGENT_X, y, &fit_end_of_sentence(text, room), Role::Warn);
        }
        RetentionLine::Fact(text) => {
            canvas.put_text(AGENT_X, y, &fit_end_of_sentence(text, room), Role::Dim);
        }
    }
}

fn draw_group(model: &Model, canvas: &mut Canvas<'_>, y: u16, group: &AgentRetention) {
    let name = match &group.agent {
        Some(agent) => agent.clone(),
        None => format!("unknown: {}", group.directory.display()),
    };
    let name = shorten_untrusted(&name, usize::from(ENTRIES_END - 8 - AGENT_X));
    let role = if group.configured {
        Role::Text
    } else {
        Role::Dim
    };
    canvas.put_text(AGENT_X, y, &name, role);
    let entries = group.entries.to_string();
    canvas.put_right(ENTRIES_END, y, &entries, Role::Text);
    let size = format_size(group.disk_bytes);
    canvas.put_right(DISK_END, y, &size, Role::Text);
    match group.expiring.len() {
        0 => canvas.put_right(EXPIRE_END, y, "-", Role::Dim),
        count => {
            canvas.put_right(EXPIRE_END, y, &count.to_string(), Role::Warn);
            let size = format_size(group.expiring_disk_bytes);
            canvas.put_right(FREES_END, y, &size, Role::Text);
        }
    }
    if let Some(oldest) = group.oldest {
        let oldest = oldest.format("%Y-%m-%d").to_string();
        canvas.put_text(OLDEST_X, y, &oldest, Role::Text);
    }
    let next = group
        .next_expiry
        .map(|it| it.format("%Y-%m-%d").to_string());
    canvas.put_text(NEXT_X, y, next.as_deref().unwrap_or("-"), Role::Text);
    if canvas.width() >= MIN_REASON_COLUMNS {
        let room = usize::from(canvas.width().saturating_sub(REASON_X + 1));
        let text = truncate_untrusted(&describe_kept(model, group), room);
        canvas.put_text(REASON_X, y, &text, Role::Dim);
    }
}

/// Says why the entries of an agent stay that do not expire.
fn describe_kept(model: &Model, group: &AgentRetention) -> String {
    let days = model.archives.retention.shown().map_or(0, |it| it.days);
    group.describe_kept(days).join(", ")
}

fn draw_entry(canvas: &mut Canvas<'_>, y: u16, entry: &ExpiringEntry) {
    let dated = entry.dated.format("%Y-%m-%d").to_string();
    canvas.put_text(AGENT_X, y, &dated, Role::Text);
    let (kind, role) = kind_label(entry.kind);
    canvas.put_text(KIND_X, y, kind, role);
    canvas.put_right(SIZE_END, y, &format_size(entry.size), Role::Text);
    let room = usize::from(canvas.width().saturating_sub(PATH_X + 1));
    let path = shorten_untrusted(&entry.path.display().to_string(), room);
    canvas.put_text(PATH_X, y, &path, Role::Text);
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
    let room = usize::from(canvas.width()).saturating_sub(2);
    let text = untrusted::visible_line(&text);
    // The row below shows the last message.
    let rows = if model.last_message.is_some() { 1 } else { 2 };
    for (line, y) in wrap_text(&text, room, rows).iter().zip(y..) {
        canvas.put_text(1, y, line, Role::Text);
    }
}

/// Draws what the plan deletes, and what confirms it.
fn draw_confirmation(model: &Model, plan: &PrunePlan, canvas: &mut Canvas<'_>, y: u16) {
    let room = usize::from(canvas.width()) - 2;
    let what = describe_expiring(&plan.shown).unwrap_or_default();
    let text = format!("Deletes {what}. No undo brings them back.");
    canvas.put_text(1, y, &fit_start_of_sentence(&text, room), Role::Warn);
    let command = equivalent_command::for_prune(model);
    draw_equivalent_command(model, canvas, (1, y + 1), &command, Command::CopyPlan);
    let y = y + 2;
    if draw_keys_ignored(model, canvas, y) {
        return;
    }
    draw_typed_confirmation(model, canvas, (y, "delete"), &plan.word, &plan.typed_text);
}
