//! What the page about retention does: requests the overview, opens an agent, and prunes what was
//! shown once that is confirmed.

use std::sync::Arc;

use crate::base::quantity::format_count;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::read_only::check_writable;
use crate::console::screen::Screen;
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::archives::state::retention::{
    BEING_PRUNED_REASON, GroupKey, MAX_OVERVIEW_AGE, PrunePlan, RetentionLine, RetentionRow,
    has_expired,
};
use crate::console::screens::log::state::MessageLevel;
use crate::console::widgets::list_pane::ListPane;
use crate::engine::{PruneReport, RetentionOverview};

/// Opens the page, and makes the overview again.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.archives.page = ArchivesPage::Retention;
    model.archives.retention.plan = None;
    move_to_first_agent(model);
    vec![request(model)]
}

/// Checks that a row of an agent is under the cursor, which opens.
pub fn check_selected(model: &Model) -> Result<(), String> {
    let screen = &model.archives;
    let is_list = screen.page == ArchivesPage::Retention;
    let group = screen.retention.current_group().filter(|_| is_list);
    require(group.is_some(), "no agent under the cursor")
}

pub fn request(model: &mut Model) -> Effect {
    let view = &mut model.archives.retention;
    view.is_due = false;
    Effect::LoadRetention(view.requests.begin())
}

/// Notes that the archives are opened: the overview is made if there is none yet, or an old one.
pub fn note_opened(model: &mut Model) {
    let now = model.now.elapsed;
    let view = &mut model.archives.retention;
    view.is_due |= view.overview.is_none() || now >= view.loaded_at + MAX_OVERVIEW_AGE;
}

/// Requests the overview if it is due; a search comes first.
pub fn request_due(model: &mut Model) -> Option<Effect> {
    let screen = &model.archives;
    let is_busy = screen.searches.is_pending || screen.retention.requests.is_pending;
    (screen.retention.is_due && !is_busy).then(|| request(model))
}

/// Shows the overview, unless a later one was requested. A plan that would delete something else is
/// made again, and has to be confirmed again.
pub fn handle_loaded(
    model: &mut Model,
    number: u64,
    loaded: Result<Box<RetentionOverview>, String>,
) {
    let now = model.now.elapsed;
    let view = &mut model.archives.retention;
    if !view.requests.accept(number) {
        return;
    }
    let current = view.current_group().map(GroupKey::of);
    let is_first = view.overview.is_none();
    view.loaded_at = now;
    view.overview = Some(loaded.map(|it| Arc::new(*it)));
    if view.plan.is_some() {
        renew_plan(model);
    }
    let view = &mut model.archives.retention;
    let is_current = |line: &RetentionLine<'_>| match line {
        RetentionLine::Row(RetentionRow::Group(group)) => Some(GroupKey::of(group)) == current,
        _ => false,
    };
    let at = view.list_lines().iter().position(is_current);
    let is_gone = view.opened_group().is_none();
    match at {
        Some(at) => view.list.cursor = at,
        None if is_first => move_to_first_agent(model),
        None => {}
    }
    if model.archives.page == ArchivesPage::RetentionAgent && is_gone {
        model.archives.page = ArchivesPage::Retention;
    }
    model.is_dirty |= model.screen == Screen::Archives;
}

/// Makes the plan again from the present overview.
fn renew_plan(model: &mut Model) {
    let now = model.now.elapsed;
    let view = &mut model.archives.retention;
    let (Some(old), Some(overview)) = (view.plan.take(), &view.overview) else {
        return;
    };
    let new = match overview {
        Ok(overview) => PrunePlan::new(Arc::clone(overview), now),
        Err(why) => {
            let why = why.clone();
            model.archives.page = ArchivesPage::Retention;
            return model.report_error(why);
        }
    };
    match new {
        Some(mut new) if old.deletes_same(&new.shown) => {
            new.prompt.typed_text = old.prompt.typed_text;
            view.plan = Some(new);
        }
        Some(new) => {
            view.plan = Some(new);
            let text = "plan refreshed: what expires has changed";
            model.report_warning(text);
        }
        None => {
            model.archives.page = ArchivesPage::Retention;
            model.report_info("nothing expires any more");
        }
    }
}

fn move_to_first_agent(model: &mut Model) {
    let view = &mut model.archives.retention;
    let mut lines = view.list_lines().into_iter();
    let first = lines.position(|line| matches!(line, RetentionLine::Row(_)));
    view.list = ListPane {
        cursor: first.unwrap_or(0),
        top: 0,
    };
}

/// Opens the agent under the cursor.
pub fn open_selected(model: &mut Model) {
    let view = &mut model.archives.retention;
    match view.current_group().map(GroupKey::of) {
        Some(key) => {
            view.opened = Some(key);
            view.detail = Default::default();
            model.archives.page = ArchivesPage::RetentionAgent;
        }
        None => model.show_hint("no agent under the cursor"),
    }
}

/// Goes back one level: from an agent to all of them, from the plan to the overview, and from there
/// to the list.
pub fn go_back(model: &mut Model) {
    let screen = &mut model.archives;
    screen.page = match screen.page {
        ArchivesPage::RetentionAgent | ArchivesPage::PrunePlan => ArchivesPage::Retention,
        _ => ArchivesPage::List,
    };
    screen.retention.plan = None;
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let is_detail = model.archives.page == ArchivesPage::RetentionAgent;
    let view = &mut model.archives.retention;
    if is_detail {
        let count = view.detail_lines().len();
        view.detail.step(by, count);
    } else {
        let count = view.list_lines().len();
        view.list.step(by, count);
    }
}

/// Opens the plan that deletes what the page shows.
pub fn plan_prune(model: &mut Model) {
    let now = model.now.elapsed;
    let view = &mut model.archives.retention;
    let plan = view
        .shown()
        .and_then(|it| PrunePlan::new(Arc::clone(it), now));
    if plan.is_some() {
        view.plan = plan;
        model.archives.page = ArchivesPage::PrunePlan;
    }
}

/// Abandons the plan, because another config is in force. Returns whether there was one.
pub fn abandon_plan(model: &mut Model) -> bool {
    let screen = &mut model.archives;
    if screen.page == ArchivesPage::PrunePlan {
        screen.page = ArchivesPage::Retention;
    }
    let view = &mut screen.retention;
    // An overview that is being made is one of the config before.
    view.requests.is_pending = false;
    view.is_due = true;
    view.plan.take().is_some()
}

/// Deletes what the confirmed plan shows; an expired one is made again instead.
pub fn apply_plan(model: &mut Model) -> Vec<Effect> {
    if let Err(why) = check_prune(model) {
        model.report_warning(why);
        return Vec::new();
    }
    let view = &mut model.archives.retention;
    // What is being read may show something else.
    let Some(plan) = view.plan.take_if(|_| !view.requests.is_pending) else {
        model.show_hint("the plan is not ready yet");
        return Vec::new();
    };
    view.is_pruning = true;
    model.archives.page = ArchivesPage::Retention;
    model.is_dirty = true;
    vec![Effect::PruneArchive(plan.shown)]
}

/// Reports what was deleted, and reads what it concerns again.
pub fn handle_pruned(model: &mut Model, pruned: Result<Box<PruneReport>, String>) -> Vec<Effect> {
    model.archives.retention.is_pruning = false;
    let report = match pruned {
        Ok(report) => report,
        Err(why) => {
            let text = format!("nothing was deleted: {why}");
            model.report_error(text);
            return vec![request(model)];
        }
    };
    for note in &report.notes {
        model.report_info(note.clone());
    }
    for error in &report.errors {
        model.report_error(error.to_line());
    }
    let (text, level) = (describe_report(model, &report), report_level(&report));
    model.report(level, text);
    model.archives.is_search_due |= model.screen == Screen::Archives;
    vec![request(model), Effect::LoadLog]
}

fn report_level(report: &PruneReport) -> MessageLevel {
    if report.errors.is_empty() {
        MessageLevel::Info
    } else {
        MessageLevel::Error
    }
}

/// Returns, for example, "deleted 12 entries (345 bytes) and 1 baseline version, run 5a10c3d2".
fn describe_report(model: &Model, report: &PruneReport) -> String {
    let mut parts = Vec::new();
    if !report.deleted_entries.is_empty() {
        let entries = format_count(report.deleted_entries.len() as u64, "entry");
        let bytes = format_count(report.deleted_bytes(), "byte");
        parts.push(format!("{entries} ({bytes})"));
    }
    if !report.deleted_versions.is_empty() {
        let count = report.deleted_versions.len() as u64;
        parts.push(format_count(count, "baseline version"));
    }
    let deleted = match (parts.is_empty(), &report.run) {
        (true, _) => "nothing was deleted".to_string(),
        (false, run) => {
            let run = run.as_deref().unwrap_or_default();
            format!("deleted {}, run {run}", parts.join(" and "))
        }
    };
    match report.errors.len() as u64 {
        0 => deleted,
        count => {
            let key = model.key_hint(Command::GoLog);
            let problems = format_count(count, "problem");
            format!("{deleted}; {problems}, listed in the log ({key})")
        }
    }
}

/// Checks that what the page about retention shows can be pruned now.
pub fn check_prune(model: &Model) -> Result<(), String> {
    check_writable(model)?;
    let key = model.key_hint(Command::GoBack);
    require(
        model.archives.page != ArchivesPage::RetentionAgent,
        format!("a prune is about all agents; {key} goes back to them"),
    )?;
    let view = &model.archives.retention;
    require(!view.is_pruning, BEING_PRUNED_REASON)?;
    let shown = view.shown().ok_or("the overview is not ready yet")?;
    require(has_expired(shown), "nothing expires now")
}
