//! The update function: applies a message to the model and returns the effects to execute.
//! Pure: no input or output, no clock, no terminal library. What a screen does is in its
//! directory; the child modules handle keys, overlays, plans and handoffs.

pub(super) mod handoff;
mod keys;
pub(super) mod overlay;
pub(super) mod plan;
pub(super) mod question;
mod timer_dialog;
pub(super) mod trouble;
pub(super) mod undo;

use std::collections::HashMap;
use std::time::Duration;

use zeroize::Zeroize;

use keys::{handle_keys, handle_paste};

use super::chooser;
use super::command::Command;
use super::dispatch;
use super::handoff::HandoffRequest;
use super::message::{AgentTexts, Effect, Msg};
use super::model::background_jobs::{has_jobs, refresh_jobs};
use super::model::plans::{has_plan, plan_expiry, request_plan, track_visible_plan};
use super::model::read_only::is_unlocked;
use super::model::trouble::track_trouble;
use super::model::visible_text::{arrange_panes, clamp_text};
use super::model::{Model, Moment, REFRESH_INTERVAL, background_jobs};
use super::overlay::PendingKeys;
use super::preferences;
use super::screen::Screen;
use super::screens;
use super::screens::fleet::state::FleetConfig;
use super::screens::fleet::update::update_trends;
use super::screens::fleet::visible_agents::{move_changed_agents, refresh_visible_agents};
use super::screens::hosts::state::HostsScreen;
use super::screens::log::state::MessageLevel;
use super::screens::reset::state::PlanDetailsRequest;
use super::screens::{
    agent, archives, baseline_plan, baselines, editor, hosts, log, reset, verify,
};
use crate::config::{Diagnostic, DiagnosticLevel};
use crate::console::agent_row::AgentRow;
use crate::console::keys::key::Key;
use crate::console::keys::key_guard::KeyGuard;
use crate::engine::{FleetEvent, Observation, SavedObservations};

/// Delay, once all agents are read, until the cursor is pinned: by then the operator has
/// seen which agent it is on.
pub const CURSOR_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Applies a message to the model and returns the effects to execute. Sets `is_dirty` if the
/// screen must be redrawn.
pub fn update(model: &mut Model, now: Moment, msg: Msg) -> Vec<Effect> {
    let ignored = model.key_guard_notice_until().is_some();
    model.now = now;
    background_jobs::follow_message(model, &msg);
    let mut effects = end_expired_unlock(model);
    effects.extend(handle_message(model, msg));
    effects.extend(archives::update::request_due(model));
    effects.extend(agent::update::request_due(model));
    settle(model);
    // A filter is saved once it is complete.
    let view = model.fleet.view_state();
    if model.input_line.is_none() && view != model.fleet.saved_view_state {
        model.fleet.saved_view_state = view.clone();
        effects.insert(0, Effect::SaveViewState(view));
    }
    background_jobs::begin_reads(model, &effects);
    model.is_dirty |= refresh_jobs(model);
    model.is_dirty |= ignored != model.key_guard_notice_until().is_some();
    effects
}

/// Performs a command that `key` triggered, or shows why it cannot run now.
pub fn perform_command(model: &mut Model, command: Command, key: Key) -> Vec<Effect> {
    if let Err(why) = dispatch::check_enabled(command, model) {
        model.show_hint(&why);
        return Vec::new();
    }
    model.is_dirty = true;
    if model.screen == Screen::Editor
        && let Some(effects) = editor::update::perform_counted(model, command, |model| {
            dispatch::perform(command, model, key)
        })
    {
        return effects;
    }
    dispatch::perform(command, model, key)
}

/// Adapts what is on the screen to what has changed: the arrangement of texts, scroll positions, and
/// the plan that keys may confirm.
fn settle(model: &mut Model) {
    if model.is_dirty {
        arrange_panes(model);
        clamp_text(model);
        screens::fit_lists(model);
        chooser::select_item(model);
    }
    track_visible_plan(model);
}

fn handle_message(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::KeysPressed(keys) => return handle_keys(model, keys),
        Msg::TextPasted(mut text) => {
            let effects = handle_paste(model, &text);
            // The text may be a secret.
            text.zeroize();
            return effects;
        }
        Msg::Resized(columns, rows) => handle_resize(model, (columns, rows)),
        Msg::Tick => return handle_tick(model),
        Msg::Fleet(event) => return handle_fleet_event(model, event),
        Msg::SavedObservationsLoaded(observations) => {
            handle_saved_observations(model, observations);
        }
        Msg::TextsPrepared(texts) => return handle_texts(model, *texts),
        Msg::TextsNotPrepared(_, why) => model.report_error(why),
        Msg::TonesPrepared(name, generation, tones) => {
            agent::update::handle_tones(model, &name, generation, &tones);
        }
        Msg::NewRulesCompared(request, text) => {
            let request = PlanDetailsRequest::Rules(request);
            reset::details::handle_details(model, &request, text);
        }
        Msg::FileChangesCompared(request, text) => {
            let request = PlanDetailsRequest::Files(request);
            reset::details::handle_details(model, &request, text);
        }
        Msg::RulesCompared(name, rules) => agent::update::handle_rules(model, &name, rules),
        Msg::HistoryLoaded(name, history) => agent::update::handle_history(model, &name, history),
        Msg::RunDiffPrepared(name, seq, text) => {
            agent::update::handle_run_diff(model, &name, seq, text);
        }
        Msg::MemoryOpened(number, opened) => {
            agent::update::memory::handle_opened(model, number, opened.map(|opened| *opened));
        }
        Msg::ItemsRead(number, page) => agent::update::memory::handle_items(model, number, page),
        Msg::ItemsPaused(number) => {
            return agent::update::memory::handle_items_paused(model, number);
        }
        Msg::ItemContentRead(request, text) => {
            agent::update::memory::handle_content(model, &request, text);
        }
        Msg::MemoryChecked(number, findings) => {
            agent::update::memory::handle_health(model, number, findings);
        }
        Msg::PlanMade(request, plan) => return reset::update::handle_plan(model, request, plan),
        Msg::RunProgressed(progress) => reset::update::handle_progress(model, progress),
        Msg::RunEnded(report) => {
            archives::update::reload(model);
            return reset::update::handle_run_ended(model, &report);
        }
        Msg::RunNotStarted(why) => reset::update::handle_run_not_started(model, &why),
        Msg::LogLoaded(Ok(runs)) => return log::update::handle_runs(model, runs),
        Msg::LogLoaded(Err(why)) => note_ledger_error(model, &why),
        Msg::ReportLoaded(report) => log::update::handle_report(model, report),
        Msg::ScheduleLoaded(number, loaded) => {
            log::update::schedule::handle_loaded(model, number, loaded);
        }
        Msg::ScheduleChanged(change, outcome) => {
            return log::update::schedule::handle_changed(model, &change, outcome);
        }
        Msg::DraftsFound(names) => editor::update::report_left_drafts(model, &names),
        Msg::BaselinesLoaded(list) => baselines::update::handle_list(model, list),
        Msg::BaselineVersionsLoaded(name, records) => {
            baselines::update::handle_versions(model, &name, records);
        }
        Msg::BaselineCompared(request, texts) => {
            baselines::update::handle_comparison(model, &request, texts);
        }
        Msg::BaselinePlanMade(id, plan) => baseline_plan::update::handle_plan(model, id, plan),
        Msg::SigningKeyChecked(key, checked) => {
            return baseline_plan::update::handle_key_checked(model, key, checked);
        }
        Msg::BaselinePlanApplied(applied) => {
            let effects = baseline_plan::update::handle_applied(model, applied);
            return effects
                .into_iter()
                .chain(editor::update::open_again(model))
                .collect();
        }
        Msg::ArchiveSearched(number, found) => {
            archives::update::handle_result(model, number, found.map(|found| *found));
        }
        Msg::EntryRecordsRead(number, recorded) => {
            archives::update::handle_records(model, number, recorded);
        }
        Msg::ArchiveRelaxed(number, found) => {
            archives::update::handle_relaxations(model, number, found);
        }
        Msg::ArchiveSearchEnded(number) => archives::update::handle_search_ended(model, number),
        Msg::IndexProgressed(progress) => archives::update::handle_progress(model, progress),
        Msg::EntryTextRead(request, text) => {
            archives::update::handle_text(model, &request, text);
        }
        Msg::EntryCompared(request, texts) => {
            archives::update::handle_comparison(model, &request, texts);
        }
        Msg::EntryRunFound(entry, found) => {
            return archives::update::handle_run_found(model, &entry, found);
        }
        Msg::EntryPinned(entry, is_pinned, outcome) => {
            archives::update::handle_pinned(model, &entry, is_pinned, outcome);
        }
        Msg::TimelineLoaded(number, loaded) => {
            archives::update::timeline::handle_loaded(model, number, loaded);
        }
        Msg::RetentionLoaded(number, loaded) => {
            archives::update::retention::handle_loaded(model, number, loaded);
        }
        Msg::ArchivePruned(pruned) => {
            return archives::update::retention::handle_pruned(model, pruned);
        }
        Msg::SourceLoaded(source, page) => {
            return handoff::handle_entry(model, HandoffRequest::ReadSource(source), page);
        }
        Msg::VerifyProgressed(step) => verify::update::handle_progress(model, step),
        Msg::Verified(outcome) => return verify::update::handle_result(model, outcome),
        Msg::HostSettingsLoaded(host, settings) => {
            model.hosts.settings.insert(host, settings);
            model.is_dirty |= model.screen == Screen::Hosts;
        }
        Msg::PatchPrepared(agent, patch) => return handoff::handle_patch(model, &agent, patch),
        Msg::ClipboardCopied(clip, outcome) => return handoff::handle_copied(model, clip, outcome),
        Msg::EntryLoaded(agent, entry, page) => {
            return handoff::handle_entry(model, HandoffRequest::ReadEntry(agent, entry), page);
        }
        Msg::BaselineInspected(agent, found) => {
            return handoff::handle_baseline(model, &agent, found);
        }
        Msg::ExternalEditEnded(external) => {
            return editor::update::handle_external_text(model, *external);
        }
        Msg::BaselineOpened(name, opened) => {
            return editor::update::handle_opened(model, &name, opened);
        }
        Msg::OpenFileChecked(name, found) => {
            editor::update::handle_file_checked(model, &name, found);
        }
        Msg::TextAnalyzed(analysis) => editor::update::handle_analysis(model, *analysis),
        Msg::FileCompared(name, generation, compared) => {
            return editor::update::handle_compared(model, &name, generation, compared);
        }
        Msg::TextSaved(name, saved) => {
            let text = saved.as_ref().ok().map(|saved| saved.bytes.clone());
            let effects = editor::update::handle_saved(model, &name, saved);
            if let Some(text) = text {
                agent::update::unmark_saved_lines(model, &name, &text);
            }
            return effects;
        }
        Msg::TextsMerged(name, merged) => {
            return editor::update::handle_merged(model, &name, merged);
        }
        Msg::DraftWritten(name, bytes, outcome) => {
            editor::update::handle_draft_written(model, &name, &bytes, outcome);
        }
        Msg::Reported(level, text) => model.report(level, text),
        Msg::PromptEvent(event) => return question::handle_prompt_event(model, event),
        // The effect runner intercepts it.
        Msg::ConfigReloaded(_) => {}
        Msg::ConfigInvalid(problems) => handle_config_invalid(model, problems),
        Msg::ConfigAdopted(fleet, rows, read_only) => {
            archives::update::reload(model);
            return handle_config_adopted(model, fleet, rows, read_only);
        }
        Msg::PreferencesLoaded(preferences) => {
            model.adopt_preferences(*preferences);
            model.errors.preferences = None;
            model.pending_keys = PendingKeys::default();
            update_trends(model);
            model.report_info("the changed preferences are in force");
        }
        Msg::ExtraCommandEnded(text) => {
            model.report_info(text);
            let names = model.rows.iter().map(|row| row.name.clone()).collect();
            return vec![Effect::ReadAgents(names)];
        }
        Msg::PreferencesInvalid(problems) => {
            model.report_preference_problems(&problems);
            let why = model.errors.preferences.clone().unwrap_or_default();
            let text = format!("the previous preferences stay in force: {why}");
            model.report_error(text);
        }
        Msg::Quit => {
            let draft = editor::update::keep_draft_now(model);
            let quit = [Effect::CancelRun, Effect::Quit];
            return draft.into_iter().chain(quit).collect();
        }
    }
    Vec::new()
}

fn handle_fleet_event(model: &mut Model, event: FleetEvent) -> Vec<Effect> {
    match event {
        FleetEvent::Observed(observations) => return handle_observations(model, observations),
        FleetEvent::Confirmed { agents, at } => {
            for agent in &agents {
                if let Some(place) = model.rows.place(agent) {
                    model.rows.confirm(place, at);
                }
            }
        }
        FleetEvent::HostsChanged(statuses) => {
            for status in statuses {
                hosts::update::handle_host_status(model, status);
            }
        }
        FleetEvent::PausesChanged => {
            return log::update::schedule::handle_pauses_changed(model)
                .into_iter()
                .collect();
        }
        // A run of this console loads the log at its end.
        FleetEvent::LedgerChanged if model.reset.is_running() => {}
        FleetEvent::LedgerChanged => return vec![Effect::LoadLog],
        FleetEvent::StatesRecorded => {
            return log::update::refresh_report(model).into_iter().collect();
        }
        // The effect runner intercepts it.
        FleetEvent::ConfigChanged => {}
        FleetEvent::Notice(text) => model.report_warning(text),
    }
    Vec::new()
}

fn handle_resize(model: &mut Model, size: (u16, u16)) {
    model.size = size;
    // A resize also follows another program that had the terminal.
    model.key_guards.visible_plan = None;
    editor::update::keep_cursor_visible(model);
    model.is_dirty = true;
}

fn handle_saved_observations(model: &mut Model, observations: SavedObservations) {
    for seen in observations {
        // An observation of a previous address says nothing about the current memory.
        if let Some(place) = model.rows.place(&seen.agent)
            && seen.address.as_ref() == Some(&model.rows[place].address)
        {
            model.rows.change(place, |row| row.remember(seen));
        }
    }
    model.are_saved_states_known = true;
    refresh_visible_agents(model);
    model.is_dirty = true;
}

/// Reports what is wrong with a changed config; the errors last, so that they stay visible.
fn handle_config_invalid(model: &mut Model, problems: Vec<Diagnostic>) {
    let (errors, warnings): (Vec<_>, Vec<_>) = problems
        .into_iter()
        .partition(|it| it.level == DiagnosticLevel::Error);
    for (level, problems) in [
        (MessageLevel::Warn, &warnings),
        (MessageLevel::Error, &errors),
    ] {
        for problem in problems {
            model.report(level, preferences::format_problem(problem));
        }
    }
    let key = model.key_hint(Command::GoLog);
    model.report_error(format!(
        "config has errors; still using the previous one ({key} lists them)"
    ));
    let check_command = model.config.invocation.command_line("config check");
    let summary = preferences::summarize_problems(&errors, &check_command);
    model.errors.config = summary.map(|it| format!("previous config in force; {it}"));
}

/// Returns when the next [`Msg::Tick`] is due if nothing else happens.
pub fn next_wake(model: &Model) -> Duration {
    let now = model.now.elapsed;
    let mut wake = now + Duration::from_secs(20);
    let mut wake_by = |time: Option<Duration>| wake = time.map_or(wake, |time| wake.min(time));
    wake_by(model.fleet.strip_due);
    wake_by(model.fleet.cursor_pin_due);
    wake_by(model.key_guard_notice_until());
    wake_by(model.editor.as_ref().and_then(|editor| editor.draft_due));
    wake_by(editor::update::next_check(model));
    wake_by(log::update::schedule::next_refresh(model));
    let pending = &model.pending_keys;
    wake_by((!pending.keys.is_empty() && !pending.is_hint_shown).then_some(pending.hint_due));
    wake_by(model.read_only.unlocked_until);
    wake_by(plan_expiry(model));
    if model.reset.is_running() {
        wake_by(Some(now + Duration::from_millis(500)));
    }
    if model.screen == Screen::Log && has_jobs(model) {
        wake_by(Some(now + REFRESH_INTERVAL));
    }
    wake.max(now)
}

/// Ends an unlock of protected agents whose time is up, and what was planned with it.
fn end_expired_unlock(model: &mut Model) -> Vec<Effect> {
    let unlock = &mut model.read_only.unlocked_until;
    if unlock
        .take_if(|until| *until <= model.now.elapsed)
        .is_none()
    {
        return Vec::new();
    }
    model.read_only.is_on |= model.read_only.is_set_by_config;
    model.report_info("protected agents are read-only again");
    plan::void_all(model)
}

fn handle_tick(model: &mut Model) -> Vec<Effect> {
    let now = model.now.elapsed;
    if model.fleet.strip_due.is_some_and(|due| due <= now) {
        model.fleet.strip_due = None;
        model.is_dirty |= model.fleet.strip_agent != model.fleet.cursor_agent;
        model
            .fleet
            .strip_agent
            .clone_from(&model.fleet.cursor_agent);
    }
    let pending = &mut model.pending_keys;
    if !pending.keys.is_empty() && !pending.is_hint_shown && pending.hint_due <= now {
        pending.is_hint_shown = true;
        model.is_dirty = true;
    }
    if model
        .fleet
        .cursor_pin_due
        .take_if(|due| *due <= now)
        .is_some()
    {
        model.fleet.is_cursor_pinned = true;
    }
    let ages = screens::visible_ages(model);
    if ages != model.visible_ages {
        model.visible_ages = ages;
        model.is_dirty = true;
    }
    let mut effects: Vec<Effect> = editor::update::write_due_draft(model).into_iter().collect();
    effects.extend(editor::update::check_due_file(model));
    effects.extend(log::update::schedule::refresh_due(model));
    effects.extend(plan::renew_expired(model));
    model.is_dirty |= model.reset.is_running() && model.screen == Screen::Reset;
    effects
}

/// Effects of a batch of observations, collected before they are applied.
#[derive(Default)]
struct ObservationChanges {
    /// The places of the agents that have changed.
    places: Vec<usize>,
    /// Whether a run has ended, or a baseline was changed: the ledger may tell more.
    may_have_new_records: bool,
    is_plan_affected: bool,
    /// Whether the texts of the agent screen, which may not be shown, are outdated.
    are_texts_outdated: bool,
    /// Whether the file in the editor, or its seal, may have changed.
    is_open_file_affected: bool,
    /// Whether new trouble rings the bell.
    is_bell_due: bool,
}

/// Shows texts, and what was observed with them: it may say more than the watch, which does not read a
/// memory whose stamp is the same.
fn handle_texts(model: &mut Model, mut texts: AgentTexts) -> Vec<Effect> {
    let observation = texts.observation.take();
    agent::update::handle_texts(model, texts);
    let mut changes = ObservationChanges::default();
    if let Some(observation) = observation {
        apply_observation(model, *observation, &mut changes);
    }
    changes.are_texts_outdated = false;
    follow_changes(model, &changes)
}

fn handle_observations(model: &mut Model, observations: Vec<Observation>) -> Vec<Effect> {
    let mut changes = ObservationChanges::default();
    for seen in observations {
        apply_observation(model, seen, &mut changes);
    }
    follow_changes(model, &changes)
}

fn follow_changes(model: &mut Model, changes: &ObservationChanges) -> Vec<Effect> {
    let mut effects = Vec::new();
    effects.extend(changes.is_bell_due.then_some(Effect::RingBell));
    if changes.are_texts_outdated {
        effects.extend(agent::update::follow_agent(model));
    }
    if changes.is_open_file_affected {
        effects.extend(editor::update::check_file(model));
    }
    // A run of this console loads the log at its end; the history follows the log.
    if changes.may_have_new_records && !model.reset.is_running() {
        effects.push(Effect::LoadLog);
    }
    if !changes.places.is_empty() {
        if model.screen.shows_baseline_states() {
            effects.extend(baselines::update::reload(model));
        }
        model.is_dirty = true;
        if model.is_screen_covered() {
            model.fleet.is_order_outdated = true;
        } else {
            move_changed_agents(model, &changes.places);
        }
        // The next frame draws these ages.
        model.visible_ages = screens::visible_ages(model);
    }
    let is_fully_observed = model.rows.unread() == 0;
    let fleet = &mut model.fleet;
    if is_fully_observed && !fleet.is_cursor_pinned && fleet.cursor_pin_due.is_none() {
        fleet.cursor_pin_due = Some(model.now.elapsed + CURSOR_SETTLE_TIME);
    }
    if let Some(view) = model.reset.plan.shown()
        && changes.is_plan_affected
    {
        model.reset.is_plan_stale = model.reset.plan.requests.is_pending;
        if !model.reset.plan.requests.is_pending {
            let request = view.request.clone();
            effects.extend(request_plan(model, request, true));
        }
    }
    effects
}

/// Notes why the ledger cannot be read. Says so on every screen, once.
fn note_ledger_error(model: &mut Model, why: &str) {
    if model.errors.ledger.as_deref() != Some(why) {
        model.report_error(why.to_string());
        model.errors.ledger = Some(why.to_string());
    }
}

/// Applies an observation, unless it is older than the current one or of a previous address.
fn apply_observation(model: &mut Model, mut seen: Observation, changes: &mut ObservationChanges) {
    let Some(place) = model.rows.place(&seen.agent) else {
        return;
    };
    let row = &model.rows[place];
    let old = row.observation.as_deref();
    if row.has_moved(seen.address.as_ref())
        || old.is_some_and(|old| old.generation > seen.generation)
    {
        return;
    }
    let (read_at, generation) = (seen.read_at, seen.generation);
    let is_same = old.is_some_and(|old| {
        (seen.read_at, seen.generation) = (old.read_at, old.generation);
        *old == seen
    });
    (seen.read_at, seen.generation) = (read_at, generation);
    if !is_same {
        changes.places.push(place);
        changes.is_open_file_affected |= editor::update::concerns_open_file(model, old, &seen);
        changes.may_have_new_records |= old.is_some_and(|old| {
            let is_ledger_back = old.ledger_error.is_some() && seen.ledger_error.is_none();
            is_ledger_back || old.last_run != seen.last_run || old.baseline != seen.baseline
        });
        changes.are_texts_outdated |= model.agent.agent == seen.agent;
        archives::update::handle_read_memory(model, &seen);
        if let Some(view) = model.reset.plan.shown() {
            // What it skips because of a lock or a lost host may be possible now.
            changes.is_plan_affected |= view.plan.agents().any(|it| it == seen.agent);
        } else if let Some(request) = model.reset.plan.request() {
            // The plan being made may be based on the previous content.
            let names = request.agent_names();
            model.reset.is_plan_stale |= names.is_empty() || names.contains(&seen.agent);
        }
    }
    if let Some(why) = &seen.ledger_error {
        note_ledger_error(model, why);
    }
    if !is_same {
        changes.is_bell_due |= track_trouble(model, &seen);
    }
    model.rows.change(place, |row| row.observe(seen));
}

fn handle_config_adopted(
    model: &mut Model,
    fleet: FleetConfig,
    rows: Vec<AgentRow>,
    read_only: bool,
) -> Vec<Effect> {
    let mut effects = vec![Effect::LoadLog];
    effects.extend(log::update::schedule::forget(model));
    let old = std::mem::take(&mut model.rows).into_rows().into_iter();
    let mut old: HashMap<String, AgentRow> = old.map(|row| (row.name.clone(), row)).collect();
    let new = |mut row: AgentRow| {
        let known = old.remove(&row.name);
        let known = known.filter(|known| known.address == row.address);
        let has_moved = known
            .as_ref()
            .is_none_or(|known| known.layout != row.layout);
        if has_moved && model.agent.agent == row.name {
            // The loaded texts are of another memory.
            model.agent = model.agent.for_agent(row.name.clone());
            model.agent.is_text_due = true;
        }
        if let Some(known) = known {
            row.saved_observation = known.observation_to_save().cloned().map(Box::new);
            row.observation_before_reload = known.observation.or(known.observation_before_reload);
        }
        row
    };
    model.rows = rows.into_iter().map(new).collect();
    agent::update::keep_tab_offered(model);
    let rows = &model.rows;
    model.fleet.marks.retain(|name| rows.place(name).is_some());
    model.trouble.retain(|name| rows.place(name).is_some());
    let open = &model.agent.agent;
    let is_removed = !open.is_empty() && rows.place(open).is_none();
    let removed_agent = is_removed.then(|| open.clone());
    model.hosts = HostsScreen::default();
    model.config = fleet;
    model.read_only.is_set_by_config = read_only;
    model.read_only.is_on |= read_only && !is_unlocked(model);
    model.errors.config = None;
    if has_plan(model) {
        // The rest of a typed confirmation is not a command.
        model.key_guards.typed_ahead = KeyGuard::new(model.now.elapsed);
    }
    let closes_plan = plan::abandon_all(model);
    if model.screen.shows_baseline_states() {
        effects.extend(baselines::update::reload(model));
    }
    refresh_visible_agents(model);
    if closes_plan {
        let text = "the changed config is in force; it closed the plan, made with the previous one";
        model.report_warning(text);
    } else {
        model.report_info("the changed config is in force");
    }
    if removed_agent.is_some() {
        model.return_point = Default::default();
        model.reset.plan.opened_from = Screen::Fleet;
    }
    if let Some(name) = removed_agent.filter(|_| model.screen == Screen::Agent) {
        let text = format!("{name} is no longer in the config");
        model.report_warning(text);
        model.go_to_screen(Screen::Fleet);
    }
    effects
}
