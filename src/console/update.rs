//! The update function: applies a message to the model and returns the effects to execute.
//! Pure: no input or output, no clock, no terminal library. The child modules handle one
//! screen or dialog each.

pub(super) mod commands;
pub(super) mod handoff;
pub(super) mod keys;
mod question;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use zeroize::Zeroize;

use super::screens::reset::update::{
    abandon_plan, handle_plan, replace_expired_plan, request_plan, track_visible_plan,
};
use commands::go_to_screen;
pub use commands::perform_command;
use keys::{handle_keys, handle_paste, is_screen_covered};

use super::command::Command;
use super::keymap::Key;
use super::model::{
    AgentRow, BaselineEdit, ClipboardText, CopyOutcome, FleetModel, HandoffRequest, HostsScreen,
    MessageLevel, Model, Moment, PagerText, PendingKeys, PlanRequest, REFRESH_INTERVAL, ResetStage,
    ResultView, RunSummary, Screen, ViewState, background_jobs, format_age, modified_time,
};
use super::preferences::{self, Preferences};
use super::screens::agent::update as agent;
use super::screens::hosts::update as hosts;
use super::text::{PreparedText, TextLine, Tones};
use crate::archive::WrittenEntry;
use crate::baseline::InspectedBaseline;
use crate::config::{self, Diagnostic, SshHost};
use crate::engine::{
    ConnectionSetting, Engine, HistoryEntry, HostStatus, MemoryAddress, Observation, Outcome, Plan,
    RunProgress, RunReport,
};
use crate::error::Error;
use crate::secret::Secret;
use crate::transport::sftp::askpass;

/// Age at which a plan expires and is made again.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(60);

/// Delay, once all agents are read, until the cursor is pinned: by then the operator has
/// seen which agent it is on.
pub const CURSOR_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Message to the model: input, a result, or a change observed outside.
#[derive(Debug)]
pub enum Msg {
    /// Keys of one read.
    KeysPressed(Vec<Key>),
    /// Pasted text.
    TextPasted(String),
    /// New size of the terminal, in columns and rows.
    Resized(u16, u16),
    /// The time that [`next_wake`] returned has come.
    Tick,
    /// Current observations of agents.
    AgentsObserved(Vec<Observation>),
    /// Observations saved by the previous session.
    SavedObservationsLoaded(Vec<Observation>),
    /// Reply to [`Effect::PrepareTexts`].
    TextsPrepared(Box<AgentTexts>),
    /// Syntax tones of an agent's memory by line number, for the texts of this generation.
    TonesPrepared(String, u64, HashMap<usize, Tones>),
    /// History of an agent, newest record first.
    HistoryLoaded(String, Result<Vec<HistoryEntry>, String>),
    /// Diff of one record of an agent, by its sequence number.
    RunDiffPrepared(String, u64, Result<PreparedText, String>),
    /// Reply to [`Effect::MakePlan`], by the number of the request.
    PlanMade(u64, Result<Box<Plan>, Error>),
    /// Progress of a run.
    RunProgressed(RunProgress),
    /// End of a run.
    RunEnded(Box<RunReport>),
    /// Runs of the ledger, newest first.
    LogLoaded(Result<Vec<RunSummary>, String>),
    /// Changed connection status of hosts.
    HostsChanged(Vec<HostStatus>),
    /// Effective ssh settings of a host.
    HostSettingsLoaded(SshHost, Result<Vec<ConnectionSetting>, String>),
    /// A host asks a question, or withdraws it.
    PromptEvent(askpass::PromptEvent),
    /// Patch of an agent, or the reason why there is none.
    PatchPrepared(String, Result<Vec<u8>, String>),
    /// Outcome of a copy to the clipboard.
    ClipboardCopied(ClipboardText, CopyOutcome),
    /// Reply to [`Effect::LoadEntry`].
    EntryLoaded(String, WrittenEntry, Result<PagerText, Error>),
    /// Reply to [`Effect::InspectBaseline`].
    BaselineInspected(String, Result<Box<BaselineEdit>, Error>),
    /// The editor ended: the baseline now, and the numbers of added and removed lines.
    BaselineEdited(
        Box<BaselineEdit>,
        Result<InspectedBaseline, Error>,
        (usize, usize),
    ),
    /// Message for the operator.
    Reported(MessageLevel, String),
    /// The config file changed; the effect runner reads it.
    ConfigChanged,
    /// The changed config is valid; the effect runner adopts its engine.
    ConfigReloaded(Arc<Engine>),
    /// The changed config is invalid; the previous one stays in force.
    ConfigInvalid(Vec<Diagnostic>),
    /// The changed config is in force: the fleet, its agents with their addresses, and
    /// whether it is read-only.
    ConfigAdopted(FleetModel, Vec<(String, MemoryAddress)>, bool),
    /// The preferences changed and are valid.
    PreferencesLoaded(Box<Preferences>),
    /// The added command ended; the text is for the operator. All agents are read again.
    ExtraCommandEnded(String),
    /// The preferences changed and are invalid; the previous ones stay in force.
    PreferencesInvalid(Vec<Diagnostic>),
    /// Quit at once, on a signal or the loss of the terminal.
    Quit,
}

/// Texts of an agent, prepared for panes.
#[derive(Debug)]
pub struct AgentTexts {
    /// The agent.
    pub agent: String,
    /// Location of its memory.
    pub address: Option<MemoryAddress>,
    /// Generation of the observation they belong to.
    pub generation: u64,
    /// Baseline against memory.
    pub diff: PreparedText,
    /// What is below the boundary.
    pub scratch: PreparedText,
    /// The last known version of its baseline against the file.
    pub baseline: PreparedText,
    /// Facts, each with its label.
    pub facts: Vec<(&'static str, TextLine)>,
    /// Names of the baseline and of the memory.
    pub diff_titles: [String; 2],
    /// Names of the last known version of the baseline, and of its file.
    pub baseline_titles: [String; 2],
    /// Summary of the findings in the file.
    pub findings: String,
    /// When they were read, if they are a cached copy.
    pub cached_at: Option<DateTime<FixedOffset>>,
}

/// Work that the model requests from the event loop or the effect runner.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read these agents again.
    ReadAgents(Vec<String>),
    /// Read the agents of the host with this login again.
    ReadHost(String),
    /// Allow the hosts of these agents to ask refused questions again.
    AllowQuestions(Vec<String>),
    /// Answer a question of a host.
    AnswerQuestion(u64, Secret),
    /// Refuse to answer a question of a host.
    RefuseQuestion(u64),
    /// Prepare the texts of an agent.
    PrepareTexts(String),
    /// Load the history of an agent.
    LoadHistory(String),
    /// Prepare the diff of one record of an agent, by its sequence number.
    PrepareRunDiff(String, u64),
    /// Prepare the diff of an agent as a patch.
    PreparePatch(String),
    /// Put a text on the operator's clipboard.
    CopyToClipboard(ClipboardText),
    /// Put a text on the clipboard through the terminal only.
    CopyThroughTerminal(ClipboardText),
    /// Load an entry of an agent for the pager.
    LoadEntry(String, WrittenEntry),
    /// Give the terminal to the pager.
    OpenPager(PagerText),
    /// Inspect the baseline of an agent before it is edited.
    InspectBaseline(String),
    /// Give the terminal to the editor.
    OpenEditor(Box<BaselineEdit>),
    /// Make a plan; the second says whether protected agents are unlocked.
    MakePlan(u64, PlanRequest, bool),
    /// Apply a plan.
    ApplyPlan(Box<Plan>),
    /// Finish the current agent, do not start the rest.
    CancelRun,
    /// Ask ssh for its effective settings of a host.
    LoadHostSettings(SshHost),
    /// Read the ledger.
    LoadLog,
    /// Run the command that the caller of the console added.
    RunExtraCommand,
    /// Switch to the theme of this name.
    LoadTheme(String),
    /// Save the view of the fleet.
    SaveViewState(ViewState),
    /// Redraw the whole screen.
    Redraw,
    /// Hand the terminal back to the shell.
    Suspend,
    /// Quit.
    Quit,
}

/// Applies a message to the model and returns the effects to execute. Sets `is_dirty` if the
/// screen must be redrawn.
pub fn update(model: &mut Model, now: Moment, msg: Msg) -> Vec<Effect> {
    let ignored = model.key_guard_notice_until().is_some();
    model.now = now;
    background_jobs::finish_jobs(model, &msg);
    let mut effects = handle_message(model, msg);
    track_visible_plan(model);
    agent::clamp_pane_top(model);
    // A filter is saved once it is complete.
    let view = model.view_state();
    if model.input_line.is_none() && view != model.saved_view_state {
        model.saved_view_state = view.clone();
        effects.insert(0, Effect::SaveViewState(view));
    }
    background_jobs::begin_jobs(model, &effects);
    model.is_dirty |= model.refresh_jobs();
    model.is_dirty |= ignored != model.key_guard_notice_until().is_some();
    effects
}

fn handle_message(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::KeysPressed(keys) => handle_keys(model, keys),
        Msg::TextPasted(mut text) => {
            let effects = handle_paste(model, &text);
            // The text may be a secret.
            text.zeroize();
            effects
        }
        Msg::Resized(columns, rows) => {
            model.size = (columns, rows);
            // This also follows another program that had the terminal.
            model.reset.visible_plan = None;
            model.keep_fleet_cursor_visible();
            model.agent.arrange_panes(columns);
            agent::keep_history_cursor_visible(model);
            model.is_dirty = true;
            Vec::new()
        }
        Msg::Tick => handle_tick(model),
        Msg::AgentsObserved(observations) => handle_observations(model, observations),
        Msg::SavedObservationsLoaded(observations) => {
            for seen in observations {
                // An observation of a previous address says nothing about the current memory.
                let same = |row: &&mut AgentRow| {
                    row.name == seen.agent && seen.address.as_ref() == Some(&row.address)
                };
                if let Some(row) = model.rows.iter_mut().find(same) {
                    row.saved_observation = Some(seen);
                }
            }
            model.refresh_visible_agents();
            model.is_dirty = true;
            Vec::new()
        }
        Msg::TextsPrepared(texts) => {
            agent::handle_texts(model, *texts);
            Vec::new()
        }
        Msg::TonesPrepared(name, generation, tones) => {
            agent::handle_tones(model, &name, generation, &tones);
            Vec::new()
        }
        Msg::HistoryLoaded(name, past) => {
            agent::handle_history(model, &name, past);
            Vec::new()
        }
        Msg::RunDiffPrepared(name, seq, text) => {
            agent::handle_run_diff(model, &name, seq, text);
            Vec::new()
        }
        Msg::PlanMade(request, plan) => handle_plan(model, request, plan),
        Msg::RunProgressed(progress) => {
            handle_progress(model, progress);
            Vec::new()
        }
        Msg::RunEnded(report) => handle_run_ended(model, &report),
        Msg::LogLoaded(Ok(runs)) => {
            model.is_dirty |= model.log.runs != runs || model.ledger_error.is_some();
            let first = !std::mem::replace(&mut model.log.is_loaded, true);
            if let Some(text) = runs
                .first()
                .filter(|_| first)
                .and_then(|run| interrupted_run_warning(model, run))
            {
                model.report(MessageLevel::Warn, text);
            }
            model.log.replace_runs(runs);
            model.ledger_error = None;
            model.update_trends();
            agent::request_history(model)
        }
        Msg::LogLoaded(Err(why)) => {
            model.report(MessageLevel::Error, why.clone());
            model.ledger_error = Some(why);
            Vec::new()
        }
        Msg::HostsChanged(hosts) => {
            hosts
                .into_iter()
                .for_each(|status| hosts::handle_host_status(model, status));
            Vec::new()
        }
        Msg::HostSettingsLoaded(host, settings) => {
            model.hosts.settings.insert(host, settings);
            model.is_dirty |= model.screen == Screen::Hosts;
            Vec::new()
        }
        Msg::PatchPrepared(agent, patch) => handoff::handle_patch(model, &agent, patch),
        Msg::ClipboardCopied(clip, handed) => handoff::handle_copied(model, clip, handed),
        Msg::EntryLoaded(agent, entry, page) => {
            handoff::handle_entry(model, HandoffRequest::ReadEntry(agent, entry), page)
        }
        Msg::BaselineInspected(agent, found) => handoff::handle_baseline(model, &agent, found),
        Msg::BaselineEdited(edit, now, lines) => handoff::handle_edited(model, &edit, now, lines),
        Msg::Reported(level, text) => {
            model.report(level, text);
            Vec::new()
        }
        Msg::PromptEvent(event) => question::handle_prompt_event(model, event),
        Msg::ConfigChanged | Msg::ConfigReloaded(_) => Vec::new(),
        Msg::ConfigInvalid(problems) => {
            let (errors, warnings): (Vec<_>, Vec<_>) = problems
                .into_iter()
                .partition(|it| it.level == config::DiagnosticLevel::Error);
            for (level, problems) in [
                (MessageLevel::Warn, &warnings),
                (MessageLevel::Error, &errors),
            ] {
                for problem in problems {
                    model.report(level, preferences::format_problem(problem, ""));
                }
            }
            model.report(
                MessageLevel::Error,
                "the configuration was changed and is wrong; the old one stays in force",
            );
            model.config_error = preferences::summarize_problems(
                &errors,
                &model.fleet.invocation.command_line("config check"),
            );
            Vec::new()
        }
        Msg::ConfigAdopted(fleet, agents, read_only) => {
            handle_config_adopted(model, fleet, agents, read_only)
        }
        Msg::ExtraCommandEnded(text) => {
            model.report(MessageLevel::Info, text);
            let names = model.rows.iter().map(|row| row.name.clone()).collect();
            vec![Effect::ReadAgents(names)]
        }
        Msg::PreferencesLoaded(preferences) => {
            model.adopt_preferences(*preferences);
            model.preferences_error = None;
            model.pending_keys = PendingKeys::default();
            model.update_trends();
            model.report(
                MessageLevel::Info,
                "the preferences were changed and are in force",
            );
            Vec::new()
        }
        Msg::PreferencesInvalid(problems) => {
            model.report_preference_problems(&problems);
            let why = model.preferences_error.clone().unwrap_or_default();
            let text = format!("the old preferences stay: {why}");
            model.report(MessageLevel::Error, text);
            Vec::new()
        }
        Msg::Quit => vec![Effect::CancelRun, Effect::Quit],
    }
}

/// Returns a warning if the last run was interrupted, for example by a lost connection.
fn interrupted_run_warning(model: &Model, run: &RunSummary) -> Option<String> {
    let left = run.count_outcome(Outcome::NotStarted);
    let (run, key) = (&run.run_id, model.key_hint(Command::GoLog));
    (left > 0).then(|| {
        format!("the last run, {run}, was cut short before it came to {left} of its agents; {key} has it")
    })
}

/// Returns when the next [`Msg::Tick`] is due if nothing else happens.
pub fn next_wake(model: &Model) -> Duration {
    let now = model.now.elapsed;
    let mut wake = now + Duration::from_secs(20);
    let mut wake_by = |time: Option<Duration>| wake = time.map_or(wake, |time| wake.min(time));
    wake_by(model.strip_due);
    wake_by(model.cursor_pin_due);
    wake_by(model.key_guard_notice_until());
    let pending = &model.pending_keys;
    wake_by((!pending.keys.is_empty() && !pending.is_hint_shown).then_some(pending.hint_due));
    wake_by(model.read_only.unlocked_until);
    match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset && !model.is_plan_pending => {
            wake_by(Some(view.made_at + PLAN_LIFETIME));
        }
        ResetStage::Run(_) => wake_by(Some(now + Duration::from_millis(500))),
        _ => {}
    }
    if model.screen == Screen::Log && model.has_jobs() {
        wake_by(Some(now + REFRESH_INTERVAL));
    }
    wake.max(now)
}

fn handle_tick(model: &mut Model) -> Vec<Effect> {
    let now = model.now.elapsed;
    if model.strip_due.is_some_and(|due| due <= now) {
        model.strip_due = None;
        model.is_dirty |= model.strip_agent != model.cursor_agent;
        model.strip_agent.clone_from(&model.cursor_agent);
    }
    let pending = &mut model.pending_keys;
    if !pending.keys.is_empty() && !pending.is_hint_shown && pending.hint_due <= now {
        pending.is_hint_shown = true;
        model.is_dirty = true;
    }
    if model
        .read_only
        .unlocked_until
        .is_some_and(|until| until <= now)
    {
        model.read_only.unlocked_until = None;
        model.read_only.is_on |= model.read_only.is_set_by_config;
        model.report(MessageLevel::Info, "protected agents are read-only again");
    }
    if model.cursor_pin_due.take_if(|due| *due <= now).is_some() {
        model.is_cursor_pinned = true;
    }
    let ages = visible_ages(model);
    if ages != model.visible_ages {
        model.visible_ages = ages;
        model.is_dirty = true;
    }
    match &model.reset.stage {
        ResetStage::Plan(_) if model.screen == Screen::Reset && !model.is_plan_pending => {
            replace_expired_plan(model)
        }
        ResetStage::Run(_) => {
            model.is_dirty |= model.screen == Screen::Reset;
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Returns the ages on the screen.
fn visible_ages(model: &Model) -> Vec<String> {
    let ages_of_row = |row: &AgentRow| {
        let now = model.now.local_time;
        let known = row.last_readable_observation()?;
        let changed = known
            .content
            .as_ref()
            .map(|content| modified_time(content.modified_ns, now));
        let changed = changed.map_or_else(String::new, |changed| format_age(now, changed));
        // The age of the read and the problem appear only for an unreachable agent.
        match model.host_problem(&row.name) {
            Some(why) => Some(format!(
                "{changed} {} {why}",
                format_age(now, known.read_at)
            )),
            None => Some(changed),
        }
    };
    match model.screen {
        Screen::Fleet => {
            let visible = model
                .visible_agents
                .iter()
                .skip(model.fleet_top)
                .take(model.fleet_height());
            visible
                .filter_map(|name| model.find_row(name))
                .filter_map(ages_of_row)
                .collect()
        }
        Screen::Agent => model
            .find_row(&model.agent.agent)
            .and_then(ages_of_row)
            .into_iter()
            .collect(),
        Screen::Hosts => hosts::visible_host_ages(model),
        Screen::Log => {
            let jobs = model.background_jobs.visible.iter();
            jobs.map(|job| format_age(model.now.local_time, job.started.local_time))
                .collect()
        }
        Screen::Reset => Vec::new(),
    }
}

fn handle_progress(model: &mut Model, progress: RunProgress) {
    let ResetStage::Run(view) = &mut model.reset.stage else {
        return;
    };
    match progress {
        RunProgress::Stage(agent, stage) => {
            view.agent_steps.insert(agent, stage);
        }
        RunProgress::AgentDone(result) => {
            view.outcomes
                .insert(result.agent, (result.outcome, result.note));
        }
        RunProgress::LogLine(_) => return,
    }
    model.is_dirty = true;
}

fn handle_run_ended(model: &mut Model, report: &RunReport) -> Vec<Effect> {
    let verb = match &model.reset.stage {
        ResetStage::Run(view) => view.verb,
        _ => report.operation.as_str(),
    };
    let result = ResultView::from_report(report, verb, model.now.local_time);
    let failed = result.failed_agents();
    let done = format!(
        "run {}: {} ok, {}",
        result.run_id,
        result.changed_agents().len(),
        result.failure_summary()
    );
    model.report(
        if failed.is_empty() {
            MessageLevel::Info
        } else {
            MessageLevel::Error
        },
        done,
    );
    if let Some(message) = model.log.messages.front_mut() {
        message.run_id = Some(result.run_id.clone());
    }
    let names = result.lines.iter().map(|line| line.agent.clone()).collect();
    if let Some((run, _)) = model
        .log
        .run_commands
        .front_mut()
        .filter(|it| it.0.is_empty())
    {
        run.clone_from(&result.run_id);
    }
    model.reset.stage = ResetStage::Result(Box::new(result));
    model.reset.previous_result = None;
    model.reset.cursor = 0;
    vec![Effect::ReadAgents(names), Effect::LoadLog]
}

fn handle_observations(model: &mut Model, observations: Vec<Observation>) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut is_plan_affected = false;
    let mut has_run_ended = false;
    let mut has_changed = false;
    for seen in observations {
        let Some(row) = model.rows.iter_mut().find(|row| row.name == seen.agent) else {
            continue;
        };
        if has_moved(row, seen.address.as_ref()) {
            continue;
        }
        if row
            .observation
            .as_ref()
            .is_some_and(|old| old.generation > seen.generation)
        {
            continue;
        }
        let same = row.observation.as_ref().is_some_and(|old| {
            let old = Observation {
                read_at: seen.read_at,
                generation: seen.generation,
                ..old.clone()
            };
            old == seen
        });
        has_changed |= !same;
        if !same {
            has_run_ended |= row
                .observation
                .as_ref()
                .is_some_and(|old| old.last_run != seen.last_run);
            if model.screen == Screen::Agent && model.agent.agent == seen.agent {
                effects.push(Effect::PrepareTexts(seen.agent.clone()));
            }
            match &model.reset.stage {
                ResetStage::Plan(view) => {
                    is_plan_affected |= view.plan.steps.iter().any(|step| step.agent == seen.agent);
                }
                // The plan being made may be based on the previous content.
                ResetStage::Planning(request) => {
                    let names = request.agent_names();
                    model.reset.is_plan_stale |= names.is_empty() || names.contains(&seen.agent);
                }
                _ => {}
            }
        }
        if let Some(why) = &seen.ledger_error {
            model.ledger_error = Some(why.clone());
        }
        if seen.is_content_known() {
            row.last_readable = Some(seen.clone());
        }
        row.observation = Some(seen);
    }
    // A run of this console loads the log at its end; the history follows the log.
    if has_run_ended && !model.is_running() {
        effects.push(Effect::LoadLog);
    }
    model.is_dirty |= has_changed;
    if has_changed && !is_screen_covered(model) {
        model.refresh_visible_agents();
    }
    if has_changed {
        // The next frame draws these ages.
        model.visible_ages = visible_ages(model);
    }
    let is_fully_observed = model.rows.iter().all(|row| row.observation.is_some());
    if is_fully_observed && !model.is_cursor_pinned && model.cursor_pin_due.is_none() {
        model.cursor_pin_due = Some(model.now.elapsed + CURSOR_SETTLE_TIME);
    }
    if let ResetStage::Plan(view) = &model.reset.stage
        && is_plan_affected
    {
        model.reset.is_plan_stale = model.is_plan_pending;
        if !model.is_plan_pending {
            let request = view.request.clone();
            effects.extend(request_plan(model, request, true));
        }
    }
    effects
}

/// Whether an observation is of an address that the config has changed since.
pub(super) fn has_moved(row: &AgentRow, address: Option<&MemoryAddress>) -> bool {
    address.is_some_and(|address| *address != row.address)
}

fn handle_config_adopted(
    model: &mut Model,
    fleet: FleetModel,
    agents: Vec<(String, MemoryAddress)>,
    read_only: bool,
) -> Vec<Effect> {
    let mut effects = vec![Effect::LoadLog];
    let mut old = std::mem::take(&mut model.rows);
    let new = |(name, address): (String, MemoryAddress)| {
        let place = old.iter().position(|row| row.name == name);
        let known = place.map(|place| old.swap_remove(place));
        let known = known.filter(|row| row.address == address);
        if known.is_none() && model.agent.agent == name {
            // The loaded texts are of another memory.
            model.agent = model.agent.for_agent(name.clone());
            model.agent.arrange_panes(model.size.0);
            effects.push(Effect::PrepareTexts(name.clone()));
        }
        AgentRow {
            name,
            address,
            observation: None,
            last_readable: None,
            saved_observation: known.and_then(|row| {
                row.last_readable_observation()
                    .or(row.observation.as_ref())
                    .cloned()
            }),
        }
    };
    model.rows = agents.into_iter().map(new).collect();
    let names: Vec<&String> = model.rows.iter().map(|row| &row.name).collect();
    model.marks.retain(|name| names.contains(&name));
    let open = &model.agent.agent;
    let removed_agent = (!open.is_empty() && !names.contains(&open)).then(|| open.clone());
    model.hosts = HostsScreen::default();
    model.fleet = fleet;
    model.read_only.is_set_by_config = read_only;
    model.read_only.is_on |= read_only && !model.is_unlocked();
    model.config_error = None;
    if let ResetStage::Plan(_) | ResetStage::Planning(_) = model.reset.stage {
        abandon_plan(model);
    }
    model.refresh_visible_agents();
    model.report(
        MessageLevel::Info,
        "the configuration was changed and is in force",
    );
    if removed_agent.is_some() {
        model.return_point = Default::default();
    }
    if let Some(name) = removed_agent.filter(|_| model.screen == Screen::Agent) {
        let text = format!("{name} is no longer in the configuration, which was changed");
        model.report(MessageLevel::Warn, text);
        go_to_screen(model, Screen::Fleet);
    }
    effects
}
