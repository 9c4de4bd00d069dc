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
    BEING_PRUNED_REASON, GroupKey, MAX_OVERVIEW_AGE, RetentionLine, expires_same, has_expired,
    plan_prune,
};
use crate::console::screens::log::state::MessageLevel;
use crate::console::widgets::list_pane::ListPane;
use crate::console::widgets::plan_pane::{PlanChange, PlanStage};
use crate::engine::{PruneReport, RetentionOverview};

/// Opens the page, and makes the overview again.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.archives.page = ArchivesPage::Retention;
    model.archives.retention.plan.abandon();
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
    Effect::LoadRetention(view.plan.requests.begin())
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
    let is_busy = screen.searches.is_pending || screen.retention.plan.requests.is_pending;
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
    if !view.plan.requests.accept(number) {
        return;
    }
    view.list = view.list.pinned(&view.list_lines()[..]);
    let is_first = view.overview.is_none();
    view.loaded_at = now;
    view.overview = Some(loaded.map(|it| Arc::new(*it)));
    if view.plan.is_open() {
        renew_plan(model);
    }
    let view = &mut model.archives.retention;
    let is_gone = view.opened_group().is_none();
    if is_first {
        move_to_first_agent(model);
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
    let Some(overview) = &view.overview else {
        return;
    };
    match overview.as_ref().map(|it| plan_prune(Arc::clone(it), now)) {
        Err(why) => {
            view.plan.abandon();
            let why = why.clone();
            model.report_error(why);
        }
        Ok(None) => {
            view.plan.abandon();
            model.report_info("nothing expires any more");
        }
        Ok(Some(new)) => {
            if view.plan.show(new, expires_same) == PlanChange::Other {
                model.report_warning("plan refreshed: what expires has changed");
            }
        }
    }
}

fn move_to_first_agent(model: &mut Model) {
    let view = &mut model.archives.retention;
    let mut lines = view.list_lines().into_iter();
    let first = lines.position(|line| matches!(line, RetentionLine::Row(_)));
    view.list = ListPane::at(first.unwrap_or(0));
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
    let had_plan = screen.retention.plan.abandon();
    screen.page = match screen.page {
        ArchivesPage::Retention if !had_plan => ArchivesPage::List,
        _ => ArchivesPage::Retention,
    };
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let is_detail = model.archives.page == ArchivesPage::RetentionAgent;
    let view = &mut model.archives.retention;
    if is_detail {
        view.detail = view.detail.stepped(by, &view.detail_lines()[..]);
    } else {
        view.list = view.list.stepped(by, &view.list_lines()[..]);
    }
}

/// Opens the plan that deletes what the page shows.
pub fn open_plan(model: &mut Model) {
    let now = model.now.elapsed;
    let view = &mut model.archives.retention;
    if let Some(plan) = view.shown().and_then(|it| plan_prune(Arc::clone(it), now)) {
        view.plan.show(plan, expires_same);
    }
}

/// Abandons the plan, because another config is in force. Returns whether there was one.
pub fn abandon_plan(model: &mut Model) -> bool {
    let view = &mut model.archives.retention;
    // An overview that is being made is one of the config before.
    view.plan.requests.is_pending = false;
    view.is_due = true;
    view.plan.abandon()
}

/// Deletes what the confirmed plan shows; an expired one is made again instead.
pub fn apply_plan(model: &mut Model) -> Vec<Effect> {
    if let Err(why) = check_prune(model) {
        model.report_warning(why);
        return Vec::new();
    }
    let view = &mut model.archives.retention;
    // What is being read may show something else.
    let Some(shown) = view.plan.shown().filter(|_| !view.plan.requests.is_pending) else {
        model.show_hint("the plan is not ready yet");
        return Vec::new();
    };
    let overview = Arc::clone(&shown.plan);
    view.plan.stage = PlanStage::Applying(());
    model.is_dirty = true;
    vec![Effect::PruneArchive(overview)]
}

/// Reports what was deleted, and reads what it concerns again.
pub fn handle_pruned(model: &mut Model, pruned: Result<Box<PruneReport>, String>) -> Vec<Effect> {
    model.archives.retention.plan.stage = PlanStage::Empty;
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
    require(view.plan.applying().is_none(), BEING_PRUNED_REASON)?;
    let shown = view.shown().ok_or("the overview is not ready yet")?;
    require(has_expired(shown), "nothing expires now")
}
