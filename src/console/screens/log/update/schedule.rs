//! What the schedule in the log does: asks for it, focuses its panel, and opens the dialog that runs,
//! skips or pauses a timer.

use std::time::Duration;

use crate::base::error::Error;
use crate::console::command::require;
use crate::console::keys::key_guard::KeyGuard;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::check_no_run;
use crate::console::model::read_only::check_writable;
use crate::console::overlay::Overlay;
use crate::console::requests::NumberedRequests;
use crate::console::screens::log::state::schedule::{
    MAX_SCHEDULE_AGE, REFRESH_INTERVAL, ScheduleView, TimerDialog, TimerRow,
};
use crate::unattended::schedule::{ScheduleChange, ScheduleOverview};

/// Asks for the schedule.
pub fn request(model: &mut Model) -> Effect {
    Effect::LoadSchedule(model.log.schedule.requests.begin())
}

/// Asks for the schedule again if it was read before and no question is open.
pub fn refresh(model: &mut Model) -> Option<Effect> {
    let view = &model.log.schedule;
    (view.refresh_due.is_some() && !view.requests.is_pending).then(|| request(model))
}

/// Asks for the schedule again because the log is opened, unless it was just read.
pub fn refresh_opened(model: &mut Model) -> Option<Effect> {
    let is_old = model.now.elapsed >= model.log.schedule.loaded_at + MAX_SCHEDULE_AGE;
    is_old.then(|| refresh(model)).flatten()
}

/// Asks for the schedule again if that is due.
pub fn refresh_due(model: &mut Model) -> Option<Effect> {
    let due = model.log.schedule.refresh_due;
    let is_due = due.is_some_and(|due| due <= model.now.elapsed);
    is_due.then(|| refresh(model)).flatten()
}

/// Returns when the schedule is read again, unless a question is open.
pub fn next_refresh(model: &Model) -> Option<Duration> {
    let view = &model.log.schedule;
    view.refresh_due.filter(|_| !view.requests.is_pending)
}

/// Forgets the schedule of a config that is not in force any more.
pub fn forget(model: &mut Model) -> Option<Effect> {
    let was_read = model.log.schedule.refresh_due.is_some();
    let last_id = model.log.schedule.requests.last_id;
    close_dialog(model);
    model.log.schedule = ScheduleView {
        requests: NumberedRequests {
            last_id,
            is_pending: false,
        },
        ..ScheduleView::default()
    };
    was_read.then(|| request(model))
}

/// Shows the schedule, unless a later one was asked for.
pub fn handle_loaded(
    model: &mut Model,
    number: u64,
    loaded: Result<Box<ScheduleOverview>, String>,
) {
    let now = model.now;
    let view = &mut model.log.schedule;
    if !view.requests.accept(number) {
        return;
    }
    view.loaded_at = now.elapsed;
    view.refresh_due = Some(now.elapsed + REFRESH_INTERVAL);
    let before = (view.rows.clone(), view.overview.take());
    match loaded {
        Ok(overview) => view.overview = Some(*overview),
        Err(why) => {
            view.overview.clone_from(&before.1);
            model.report_error(format!("schedule not read: {why}"));
        }
    }
    refresh_rows(model);
    let view = &model.log.schedule;
    model.is_dirty |= (&view.rows, &view.overview) != (&before.0, &before.1);
}

/// Makes the rows again, after the ledger or the schedule was read.
pub fn refresh_rows(model: &mut Model) {
    let runs = std::mem::take(&mut model.log.runs);
    let now = model.now.local_time;
    model.log.schedule.refresh_rows(&runs, now);
    model.log.runs = runs;
    if model.log.schedule.overview.is_none() {
        model.log.schedule.is_focused = false;
    }
}

/// Moves the keys to the panel, or back to the log.
pub fn toggle_focus(model: &mut Model) {
    if model.log.schedule.overview.is_none() {
        model.show_hint("the schedule is being read");
    } else {
        model.log.schedule.is_focused ^= true;
    }
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let view = &mut model.log.schedule;
    view.list = view.list.stepped(by, &view.rows[..]);
}

/// Opens the dialog about the timer under the cursor.
pub fn open_dialog(model: &mut Model) {
    let view = &mut model.log.schedule;
    let (Some(row), Some(overview)) = (view.current_row().cloned(), &view.overview) else {
        return;
    };
    let file = overview.controls_path.display().to_string();
    view.is_focused = true;
    model.overlay = Some(Overlay::Timer(Box::new(TimerDialog {
        row,
        plan: None,
        file,
        guard: KeyGuard::default(),
    })));
}

fn close_dialog(model: &mut Model) {
    if matches!(model.overlay, Some(Overlay::Timer(_))) {
        model.overlay = None;
    }
}

/// Reads the schedule again after another process changed pauses or skips. The answer to a change of
/// this console does the same.
pub fn handle_pauses_changed(model: &mut Model) -> Option<Effect> {
    let view = &model.log.schedule;
    (view.refresh_due.is_some() && !view.is_changing).then(|| request(model))
}

/// Reports a change of pauses and skips, and reads the schedule again.
pub fn handle_changed(
    model: &mut Model,
    change: &ScheduleChange,
    outcome: Result<(), Error>,
) -> Vec<Effect> {
    model.log.schedule.is_changing = false;
    match outcome {
        Ok(()) => model.report_info(change.describe()),
        Err(error) => model.report_error(error.to_line()),
    }
    // An answer to an earlier question knows nothing of the change.
    vec![request(model)]
}

/// Checks that a dialog about the timer under the cursor can be opened now.
pub fn check_timer(model: &Model) -> Result<(), String> {
    check_writable(model)?;
    let view = &model.log.schedule;
    require(view.overview.is_some(), "the schedule is being read")?;
    require(!view.is_changing, "the schedule is being changed")?;
    let install = model.config.invocation.command_line("schedule install");
    let row = view.current_row();
    let row = row.ok_or_else(|| format!("no timers; `{install}` installs them"))?;
    let name = &row.name;
    require(
        row.is_known,
        format!("{name} is of an agent that left the config; `{install}` removes it"),
    )
}

/// Returns why the agents of a timer cannot be reset now.
pub fn timer_run_refusal(model: &Model, row: &TimerRow) -> Option<String> {
    let has_agents = !row.group.agents.is_empty();
    let check = check_no_run(model);
    let reason = "this timer resets no agent of the config";
    check.and_then(|()| require(has_agents, reason)).err()
}
