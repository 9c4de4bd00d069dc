//! What the log screen does: loads the ledger's runs, searches, and opens a run as a result.

pub mod schedule;

use crate::console::age::format_age;
use crate::console::command::Command;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::update as agent;
use crate::console::screens::fleet::update::update_trends;
use crate::console::screens::log::state::{LogRow, ReportText, RunSummary};
use crate::console::screens::reset;
use crate::console::screens::{archives, baselines};
use crate::engine::{Outcome, Trigger};

/// Goes to the log and loads it again.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.go_to_screen(Screen::Log);
    let schedule = schedule::refresh_opened(model);
    schedule.into_iter().chain([Effect::LoadLog]).collect()
}

/// Replaces the runs. The first time, warns if the last run was interrupted.
pub fn handle_runs(model: &mut Model, runs: Vec<RunSummary>) -> Vec<Effect> {
    let has_changed = model.log.runs != runs;
    model.is_dirty |= has_changed || model.errors.ledger.is_some();
    let last_run_of_agent = |runs: &[RunSummary]| {
        let is_about = |run: &&RunSummary| run.is_about(&model.agent.agent);
        runs.iter().find(is_about).cloned()
    };
    let has_agent_changed = last_run_of_agent(&model.log.runs) != last_run_of_agent(&runs);
    let is_first = !std::mem::replace(&mut model.log.is_loaded, true);
    let has_new_records = has_changed && !is_first;
    // The screens have followed a run of this console at its end.
    let newest = runs.first().map(|run| run.run_id.as_str());
    let is_own = newest.is_some_and(|id| model.log.find_own_run(id).is_some());
    if has_new_records && !is_own {
        archives::update::reload(model);
    }
    if let Some(text) = runs
        .first()
        .filter(|_| is_first)
        .and_then(|run| interrupted_run_warning(model, run))
    {
        model.report_warning(text);
    }
    model.log.replace_runs(runs);
    model.errors.ledger = None;
    update_trends(model);
    let newest = newest_timed_run(model);
    let has_timed_run = newest.is_some() && newest != model.log.newest_timed_run;
    model.log.newest_timed_run = newest;
    schedule::refresh_rows(model);
    // The facts follow the ledger, too.
    model.agent.is_text_due |= has_agent_changed;
    let mut effects = if has_agent_changed || model.agent.tab.is_about_layout() {
        Vec::new()
    } else {
        agent::request_tab(model)
    };
    if has_timed_run {
        effects.extend(schedule::refresh(model));
    }
    if has_new_records && model.screen.shows_baseline_states() {
        effects.extend(baselines::update::reload(model));
    }
    effects.extend(refresh_report(model));
    effects
}

/// Reads the report again while it is on the screen.
pub fn refresh_report(model: &Model) -> Option<Effect> {
    (model.screen == Screen::Log).then_some(Effect::LoadReport)
}

/// Returns the last run that a timer started.
fn newest_timed_run(model: &Model) -> Option<String> {
    let is_timed = |run: &&RunSummary| {
        let first = run.events.first();
        first.is_some_and(|event| event.trigger == Trigger::Timer)
    };
    let run = model.log.runs.iter().find(is_timed);
    run.map(|run| run.run_id.clone())
}

/// Replaces the report.
pub fn handle_report(model: &mut Model, report: Result<ReportText, String>) {
    let report = Some(report);
    model.is_dirty |= model.screen == Screen::Log && model.log.report != report;
    model.log.report = report;
}

/// Returns a warning if the last run was interrupted, for example by a lost connection.
fn interrupted_run_warning(model: &Model, run: &RunSummary) -> Option<String> {
    let left = run.count_outcome(Outcome::NotStarted);
    let (run, key) = (&run.run_id, model.key_hint(Command::GoLog));
    (left > 0).then(|| {
        format!(
            "the last run, {run}, was interrupted: {left} of its agents not started; {key} shows it"
        )
    })
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    if model.log.schedule.is_focused {
        return schedule::move_cursor(model, by);
    }
    model.log.list = model.log.list.stepped_from_top(by, &model.log.rows()[..]);
}

/// Opens the run under the cursor, unless a run is in progress.
pub fn open_selected(model: &mut Model) {
    let run = model
        .log
        .current_run()
        .filter(|_| !model.reset.is_running());
    if let Some(result) = run.map(RunSummary::to_result_view) {
        reset::update::open_result(model, result);
    }
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let jobs = model.background_jobs.visible.iter();
    jobs.map(|job| format_age(model.now.local_time, job.started.local_time))
        .collect()
}

/// Goes back one level: Esc clears the search, any other key leaves the screen.
pub fn go_back(model: &mut Model, is_escape: bool) {
    if model.log.schedule.is_focused {
        model.log.schedule.is_focused = false;
    } else if is_escape && !model.log.query.is_empty() {
        model.log.query.clear();
    } else {
        model.go_to_screen(Screen::Fleet);
    }
}

/// Goes to the first hit from the cursor on. Returns the number of hits.
pub fn finish_search(model: &mut Model) -> usize {
    go_to_hit(model, true, true);
    find_hits(model).len()
}

/// Goes to the next or previous hit; without a search, shows the key that searches.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    if model.log.query.is_empty() {
        let key = model.key_hint(Command::Search);
        model.show_hint(&format!("{key} searches"));
    } else {
        go_to_hit(model, is_forward, false);
    }
}

/// Returns the rows that the search finds.
pub fn find_hits(model: &Model) -> Vec<usize> {
    let query = model.log.query.to_lowercase();
    let rows = model.log.rows();
    let matches = |row: &LogRow<'_>| row.text().to_lowercase().contains(&query);
    (0..rows.len())
        .filter(|index| !query.is_empty() && matches(&rows[*index]))
        .collect()
}

/// Goes to the next or previous hit, around the ends of the log.
fn go_to_hit(model: &mut Model, is_forward: bool, includes_cursor: bool) {
    let hits = find_hits(model);
    let rows = model.log.rows();
    let cursor = model.log.list.cursor_in(&rows[..]);
    let next = if is_forward {
        hits.iter()
            .find(|hit| **hit > cursor || (includes_cursor && **hit == cursor))
            .or(hits.first())
    } else {
        let mut before = hits.iter().rev();
        before.find(|hit| **hit < cursor).or(hits.last())
    };
    if let Some(hit) = next {
        model.log.list = model.log.list.moved_to(*hit, &rows[..]);
        model.is_dirty = true;
    }
}
