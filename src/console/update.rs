//! What a message does to the model, and what should be done about it outside.
//! No input or output, no clock, no terminal library.

mod act;
mod agent;
pub(super) mod hand;
mod host;
mod keys;
mod plan;
mod question;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use zeroize::Zeroize;

use act::go;
pub use act::perform;
use keys::{is_covered, keys_came, paste};
use plan::{ask_for_plan, give_up_plan, note_plan, plan_anew, planned};

use super::command::Command;
use super::keymap::Key;
use super::model::{
    AgentRow, ClipboardText, CopyOutcome, Edit, FleetModel, FleetView, HandoffRequest, HostsScreen,
    MessageLevel, Model, Moment, PagerText, PendingKeys, PlanRequest, REFRESH_INTERVAL, ResetStage,
    ResultView, RunSummary, Screen, age, jobs, modified,
};
use super::preferences::{self, Preferences};
use super::text::{Prepared, TextLine, Tones};
use crate::archive::Written;
use crate::baseline::Inspected;
use crate::config::{self, Diagnostic, Host};
use crate::engine::{
    Address, ConnectionSetting, Engine, HostStatus, Observation, Outcome, Plan, Progress, Report,
    RunDiff,
};
use crate::error::Error;
use crate::secret::Secret;
use crate::transport::sftp::askpass;

/// After this a plan is void and made anew.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(60);

/// How long everybody must have been seen until the cursor stays where it is: by
/// then the operator has seen what it is on.
pub const CURSOR_SETTLE_TIME: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Debug)]
pub enum Msg {
    /// Keys, as many as came in one go.
    Keys(Vec<Key>),
    /// Text that was pasted.
    Paste(String),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// The time that [`next_wake`] asked for has come.
    Tick,
    /// Agents as they look now.
    Observed(Vec<Observation>),
    /// Agents as they looked when the console was used last.
    Remembered(Vec<Observation>),
    /// Texts that were asked for.
    Texts(Box<Texts>),
    /// What the pieces of an agent's memory are, by the lines of the memory: for the
    /// texts of this generation.
    Tones(String, u64, HashMap<usize, Tones>),
    /// The records of an agent, the youngest first.
    History(String, Result<Vec<RunDiff>, String>),
    /// What a record of an agent's changed, by the record's number.
    Passed(String, u64, Result<Prepared, String>),
    /// A plan that was asked for, by the number of the request.
    Planned(u64, Result<Box<Plan>, Error>),
    /// A run goes on.
    Progress(Progress),
    /// A run ended.
    Ended(Box<Report>),
    /// The runs of the ledger, the youngest first.
    Log(Result<Vec<RunSummary>, String>),
    /// How some hosts stand now.
    Hosts(Vec<HostStatus>),
    /// What ssh makes of its configuration for a host.
    Settings(Host, Result<Vec<ConnectionSetting>, String>),
    /// A host asks something, or no longer does.
    Desk(askpass::Event),
    /// The diff of an agent as a patch, or why there is none.
    Patch(String, Result<Vec<u8>, String>),
    /// What became of a text for the clipboard.
    Copied(ClipboardText, CopyOutcome),
    /// An entry of an agent that was asked for.
    Entry(String, Written, Result<PagerText, Error>),
    /// The baseline of an agent that was asked for.
    Baseline(String, Result<Box<Edit>, Error>),
    /// A baseline was in the editor: what it is now, and how many lines were added
    /// and removed.
    Edited(Box<Edit>, Result<Inspected, Error>, (usize, usize)),
    /// Something to be said.
    Note(MessageLevel, String),
    /// The config file was changed; it is read elsewhere.
    ConfigChanged,
    /// The changed config is right; its engine is put in force elsewhere.
    ConfigRead(Arc<Engine>),
    /// The config was changed and is wrong; the old one stays.
    ConfigBroken(Vec<Diagnostic>),
    /// The config was changed: the fleet, its agents and where they are, and
    /// whether it is read-only.
    ConfigLoaded(FleetModel, Vec<(String, Address)>, bool),
    /// The operator's preferences were changed.
    Preferences(Box<Preferences>),
    /// They were changed and are wrong in these ways; the old ones stay.
    PreferencesBroken(Vec<Diagnostic>),
    /// Quit at once: the terminal or the system says so.
    Quit,
}

/// The texts of an agent, prepared for panes.
#[derive(Debug)]
pub struct Texts {
    /// Whose.
    pub agent: String,
    /// Where its memory is.
    pub address: Option<Address>,
    /// Generation of the observation they belong to.
    pub generation: u64,
    /// Baseline against memory.
    pub diff: Prepared,
    /// What is below the boundary.
    pub scratch: Prepared,
    /// The last known version of its baseline against the file.
    pub baseline: Prepared,
    /// What is known of it: of each fact what it is about, and the fact.
    pub facts: Vec<(&'static str, TextLine)>,
    /// Names of the baseline and of the memory.
    pub titles: [String; 2],
    /// Names of the last known version of the baseline, and of its file.
    pub baseline_titles: [String; 2],
    /// What is remarkable about the file.
    pub findings: String,
    /// When they were read, where they are no more than a copy of what was.
    pub copied: Option<DateTime<FixedOffset>>,
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read these agents again.
    Read(Vec<String>),
    /// Read the agents of the host with this login again.
    ReadHost(String),
    /// The hosts of these agents may ask again what they were not answered.
    LetAsk(Vec<String>),
    /// Answer a question of a host's.
    Answer(u64, Secret),
    /// Give it no answer.
    Refuse(u64),
    /// Prepare the texts of an agent.
    Texts(String),
    /// Read what was done to an agent.
    History(String),
    /// Read what a record of an agent's changed, by the record's number.
    Passed(String, u64),
    /// Prepare the diff of an agent as a patch.
    Patch(String),
    /// Put a text on the operator's clipboard.
    Copy(ClipboardText),
    /// The same, by the terminal alone.
    CopyByTerminal(ClipboardText),
    /// Fetch an entry of an agent, to be read.
    Entry(String, Written),
    /// Give the terminal to the pager.
    Page(PagerText),
    /// Look at the baseline of an agent, before it is edited.
    Baseline(String),
    /// Give the terminal to the editor.
    Edit(Box<Edit>),
    /// Make a plan; the second says whether protected agents are unlocked.
    Plan(u64, PlanRequest, bool),
    /// Carry a plan out.
    Apply(Box<Plan>),
    /// Finish the agent in hand, do not start the rest.
    Cancel,
    /// Ask ssh what it makes of its configuration for a host.
    Settings(Host),
    /// Read the ledger.
    LoadLog,
    /// Make the demo's host go away, or come back.
    HostAway(bool),
    /// Wear the theme of this name.
    Theme(String),
    /// Keep for the next time how the fleet is looked at.
    Keep(FleetView),
    /// Draw everything again.
    Redraw,
    /// Hand the terminal back to the shell.
    Suspend,
    /// Leave.
    Quit,
}

/// Changes the model. Sets `dirty` when something that is drawn changed.
pub fn update(model: &mut Model, now: Moment, msg: Msg) -> Vec<Effect> {
    let ignored = model.ignores_keys_until().is_some();
    model.now = now;
    jobs::ended(model, &msg);
    let mut effects = answer(model, msg);
    note_plan(model);
    agent::stay_within(model);
    // A filter is kept when it has been typed in full.
    let view = model.fleet_view();
    if model.prompt.is_none() && view != model.kept {
        model.kept = view.clone();
        effects.insert(0, Effect::Keep(view));
    }
    jobs::begun(model, &effects);
    model.dirty |= model.refresh_jobs();
    model.dirty |= ignored != model.ignores_keys_until().is_some();
    effects
}

fn answer(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Keys(keys) => keys_came(model, keys),
        Msg::Paste(mut text) => {
            let effects = paste(model, &text);
            // It may have been a secret.
            text.zeroize();
            effects
        }
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            // Also after another program had the terminal.
            model.reset.in_sight = None;
            model.keep_cursor_visible();
            model.agent.arrange(columns);
            agent::keep_cursor_visible(model);
            model.dirty = true;
            Vec::new()
        }
        Msg::Tick => tick(model),
        Msg::Observed(observations) => observed(model, observations),
        Msg::Remembered(observations) => {
            for seen in observations {
                // One that has moved since says nothing of the memory where it is now.
                let same = |row: &&mut AgentRow| {
                    row.name == seen.agent && seen.address.as_ref() == Some(&row.address)
                };
                if let Some(row) = model.rows.iter_mut().find(same) {
                    row.remembered = Some(seen);
                }
            }
            model.arrange();
            model.dirty = true;
            Vec::new()
        }
        Msg::Texts(texts) => {
            agent::texts_came(model, *texts);
            Vec::new()
        }
        Msg::Tones(name, generation, tones) => {
            agent::tones_came(model, &name, generation, &tones);
            Vec::new()
        }
        Msg::History(name, past) => {
            agent::history_came(model, &name, past);
            Vec::new()
        }
        Msg::Passed(name, seq, text) => {
            agent::passed_came(model, &name, seq, text);
            Vec::new()
        }
        Msg::Planned(request, plan) => planned(model, request, plan),
        Msg::Progress(progress) => {
            progressed(model, progress);
            Vec::new()
        }
        Msg::Ended(report) => ended(model, &report),
        Msg::Log(Ok(runs)) => {
            model.dirty |= model.log.runs != runs || model.ledger_error.is_some();
            let first = !std::mem::replace(&mut model.log.read, true);
            if let Some(text) = runs
                .first()
                .filter(|_| first)
                .and_then(|run| cut_short(model, run))
            {
                model.say(MessageLevel::Warn, text);
            }
            model.log.take_runs(runs);
            model.ledger_error = None;
            model.follow_trends();
            agent::history(model)
        }
        Msg::Log(Err(why)) => {
            model.say(MessageLevel::Error, why.clone());
            model.ledger_error = Some(why);
            Vec::new()
        }
        Msg::Hosts(hosts) => {
            hosts
                .into_iter()
                .for_each(|status| host::stands(model, status));
            Vec::new()
        }
        Msg::Settings(host, settings) => {
            model.hosts.settings.insert(host, settings);
            model.dirty |= model.screen == Screen::Hosts;
            Vec::new()
        }
        Msg::Patch(agent, patch) => hand::patch_came(model, &agent, patch),
        Msg::Copied(clip, handed) => hand::copied(model, clip, handed),
        Msg::Entry(agent, entry, page) => {
            hand::entry_came(model, HandoffRequest::Entry(agent, entry), page)
        }
        Msg::Baseline(agent, found) => hand::baseline_came(model, &agent, found),
        Msg::Edited(edit, now, lines) => hand::edited(model, &edit, now, lines),
        Msg::Note(level, text) => {
            model.say(level, text);
            Vec::new()
        }
        Msg::Desk(event) => question::told(model, event),
        Msg::ConfigChanged | Msg::ConfigRead(_) => Vec::new(),
        Msg::ConfigBroken(problems) => {
            let (errors, warnings): (Vec<_>, Vec<_>) = problems
                .into_iter()
                .partition(|it| it.level == config::DiagnosticLevel::Error);
            for (level, problems) in [
                (MessageLevel::Warn, &warnings),
                (MessageLevel::Error, &errors),
            ] {
                for problem in problems {
                    model.say(level, preferences::line(problem, ""));
                }
            }
            model.say(
                MessageLevel::Error,
                "the configuration was changed and is wrong; the old one stays in force",
            );
            model.config_error =
                preferences::summary(&errors, &model.fleet.invocation.line("config check"));
            Vec::new()
        }
        Msg::ConfigLoaded(fleet, agents, read_only) => {
            config_loaded(model, fleet, agents, read_only)
        }
        Msg::Preferences(preferences) => {
            model.preferences = *preferences;
            model.preferences_error = None;
            model.pending = PendingKeys::default();
            model.follow_trends();
            model.say(
                MessageLevel::Info,
                "the preferences were changed and are in force",
            );
            Vec::new()
        }
        Msg::PreferencesBroken(problems) => {
            model.complain(&problems);
            let why = model.preferences_error.clone().unwrap_or_default();
            let text = format!("the old preferences stay: {why}");
            model.say(MessageLevel::Error, text);
            Vec::new()
        }
        Msg::Quit => vec![Effect::Cancel, Effect::Quit],
    }
}

/// What there is to be told of a run that was cut short, as by a line that broke.
fn cut_short(model: &Model, run: &RunSummary) -> Option<String> {
    let left = run.count(Outcome::NotStarted);
    let (run, key) = (&run.run, model.key(Command::GoLog));
    (left > 0).then(|| {
        format!("the last run, {run}, was cut short before it came to {left} of its agents; {key} has it")
    })
}

/// When [`Msg::Tick`] should come next, if nothing else happens.
pub fn next_wake(model: &Model) -> Duration {
    let now = model.now.since;
    let mut wake = now + Duration::from_secs(20);
    let mut at = |time: Option<Duration>| wake = time.map_or(wake, |time| wake.min(time));
    at(model.strip_due);
    at(model.cursor_due);
    at(model.ignores_keys_until());
    let pending = &model.pending;
    at((!pending.keys.is_empty() && !pending.shown).then_some(pending.due));
    at(model.read_only.unlocked_until);
    match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset && !model.waiting => {
            at(Some(view.shown + PLAN_LIFETIME));
        }
        ResetStage::Run(_) => at(Some(now + Duration::from_millis(500))),
        _ => {}
    }
    if model.screen == Screen::Log && model.has_jobs() {
        at(Some(now + REFRESH_INTERVAL));
    }
    wake.max(now)
}

fn tick(model: &mut Model) -> Vec<Effect> {
    let now = model.now.since;
    if model.strip_due.is_some_and(|due| due <= now) {
        model.strip_due = None;
        model.dirty |= model.strip != model.cursor;
        model.strip.clone_from(&model.cursor);
    }
    let pending = &mut model.pending;
    if !pending.keys.is_empty() && !pending.shown && pending.due <= now {
        pending.shown = true;
        model.dirty = true;
    }
    if model
        .read_only
        .unlocked_until
        .is_some_and(|until| until <= now)
    {
        model.read_only.unlocked_until = None;
        model.read_only.on |= model.read_only.by_config;
        model.say(MessageLevel::Info, "protected agents are read-only again");
    }
    if model.cursor_due.take_if(|due| *due <= now).is_some() {
        model.cursor_moved = true;
    }
    let ages = ages(model);
    if ages != model.ages {
        model.ages = ages;
        model.dirty = true;
    }
    match &model.reset.stage {
        ResetStage::Plan(_) if model.screen == Screen::Reset && !model.waiting => plan_anew(model),
        ResetStage::Run(_) => {
            model.dirty |= model.screen == Screen::Reset;
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// The ages that are on the screen.
fn ages(model: &Model) -> Vec<String> {
    let of = |row: &AgentRow| {
        let now = model.now.wall;
        let known = row.last_read()?;
        let changed = known
            .content
            .as_ref()
            .map(|content| modified(content.modified, now));
        let changed = changed.map_or_else(String::new, |changed| age(now, changed));
        // Of who can be reached neither of the other two is shown.
        match model.cut_off(&row.name) {
            Some(why) => Some(format!("{changed} {} {why}", age(now, known.read))),
            None => Some(changed),
        }
    };
    match model.screen {
        Screen::Fleet => {
            let visible = model.order.iter().skip(model.top).take(model.list_height());
            visible
                .filter_map(|name| model.row(name))
                .filter_map(of)
                .collect()
        }
        Screen::Agent => model
            .row(&model.agent.name)
            .and_then(of)
            .into_iter()
            .collect(),
        Screen::Hosts => host::ages(model),
        Screen::Log => {
            let jobs = model.jobs.shown.iter();
            jobs.map(|job| age(model.now.wall, job.since.wall))
                .collect()
        }
        Screen::Reset => Vec::new(),
    }
}

fn progressed(model: &mut Model, progress: Progress) {
    let ResetStage::Run(view) = &mut model.reset.stage else {
        return;
    };
    match progress {
        Progress::Stage(agent, stage) => {
            view.stages.insert(agent, stage);
        }
        Progress::Done(result) => {
            view.outcomes
                .insert(result.agent, (result.outcome, result.note));
        }
        Progress::Line(_) => return,
    }
    model.dirty = true;
}

fn ended(model: &mut Model, report: &Report) -> Vec<Effect> {
    let verb = match &model.reset.stage {
        ResetStage::Run(view) => view.verb,
        _ => report.act.word(),
    };
    let result = ResultView::of_report(report, verb, model.now.wall);
    let failed = result.failed();
    let done = format!(
        "run {}: {} ok, {}",
        result.run,
        result.changed().len(),
        result.bad()
    );
    model.say(
        if failed.is_empty() {
            MessageLevel::Info
        } else {
            MessageLevel::Error
        },
        done,
    );
    if let Some(message) = model.log.messages.front_mut() {
        message.run = Some(result.run.clone());
    }
    let names = result.lines.iter().map(|line| line.agent.clone()).collect();
    if let Some((run, _)) = model.log.commands.front_mut().filter(|it| it.0.is_empty()) {
        run.clone_from(&result.run);
    }
    model.reset.stage = ResetStage::Result(Box::new(result));
    model.reset.behind = None;
    model.reset.cursor = 0;
    vec![Effect::Read(names), Effect::LoadLog]
}

fn observed(model: &mut Model, observations: Vec<Observation>) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut replan = false;
    let mut ran = false;
    let mut changed = false;
    for seen in observations {
        let Some(row) = model.rows.iter_mut().find(|row| row.name == seen.agent) else {
            continue;
        };
        if is_elsewhere(row, seen.address.as_ref()) {
            continue;
        }
        if row
            .seen
            .as_ref()
            .is_some_and(|old| old.generation > seen.generation)
        {
            continue;
        }
        let same = row.seen.as_ref().is_some_and(|old| {
            let old = Observation {
                read: seen.read,
                generation: seen.generation,
                ..old.clone()
            };
            old == seen
        });
        changed |= !same;
        if !same {
            ran |= row.seen.as_ref().is_some_and(|old| old.last != seen.last);
            if model.screen == Screen::Agent && model.agent.name == seen.agent {
                effects.push(Effect::Texts(seen.agent.clone()));
            }
            match &model.reset.stage {
                ResetStage::Plan(view) => {
                    replan |= view.plan.steps.iter().any(|step| step.agent == seen.agent);
                }
                // What is being made may be of before that.
                ResetStage::Planning(request) => {
                    let names = request.names();
                    model.reset.stale |= names.is_empty() || names.contains(&seen.agent);
                }
                _ => {}
            }
        }
        if let Some(why) = &seen.ledger_error {
            model.ledger_error = Some(why.clone());
        }
        if seen.was_read() {
            row.known = Some(seen.clone());
        }
        row.seen = Some(seen);
    }
    // A run of this console reads the log at its end; the history follows the log.
    if ran && !model.is_running() {
        effects.push(Effect::LoadLog);
    }
    model.dirty |= changed;
    if changed && !is_covered(model) {
        model.arrange();
    }
    if changed {
        // Those that are drawn with it.
        model.ages = ages(model);
    }
    let settled = model.rows.iter().all(|row| row.seen.is_some());
    if settled && !model.cursor_moved && model.cursor_due.is_none() {
        model.cursor_due = Some(model.now.since + CURSOR_SETTLE_TIME);
    }
    if let ResetStage::Plan(view) = &model.reset.stage
        && replan
    {
        model.reset.stale = model.waiting;
        if !model.waiting {
            let request = view.request.clone();
            effects.extend(ask_for_plan(model, request, true));
        }
    }
    effects
}

/// Whether something is of where the agent was before the config moved it.
fn is_elsewhere(row: &AgentRow, address: Option<&Address>) -> bool {
    address.is_some_and(|address| *address != row.address)
}

fn config_loaded(
    model: &mut Model,
    fleet: FleetModel,
    agents: Vec<(String, Address)>,
    read_only: bool,
) -> Vec<Effect> {
    let mut effects = vec![Effect::LoadLog];
    let mut old = std::mem::take(&mut model.rows);
    let new = |(name, address): (String, Address)| {
        let place = old.iter().position(|row| row.name == name);
        let known = place.map(|place| old.swap_remove(place));
        let known = known.filter(|row| row.address == address);
        if known.is_none() && model.agent.name == name {
            // Its texts are those of another memory.
            model.agent = model.agent.of(name.clone());
            model.agent.arrange(model.size.0);
            effects.push(Effect::Texts(name.clone()));
        }
        AgentRow {
            name,
            address,
            seen: None,
            known: None,
            remembered: known.and_then(|row| row.last_read().or(row.seen.as_ref()).cloned()),
        }
    };
    model.rows = agents.into_iter().map(new).collect();
    let names: Vec<&String> = model.rows.iter().map(|row| &row.name).collect();
    model.marks.retain(|name| names.contains(&name));
    let open = &model.agent.name;
    let gone = (!open.is_empty() && !names.contains(&open)).then(|| open.clone());
    model.hosts = HostsScreen::default();
    model.fleet = fleet;
    model.read_only.by_config = read_only;
    model.read_only.on |= read_only && !model.unlocked();
    model.config_error = None;
    if let ResetStage::Plan(_) | ResetStage::Planning(_) = model.reset.stage {
        give_up_plan(model);
    }
    model.arrange();
    model.say(
        MessageLevel::Info,
        "the configuration was changed and is in force",
    );
    if gone.is_some() {
        model.back = Default::default();
    }
    if let Some(name) = gone.filter(|_| model.screen == Screen::Agent) {
        let text = format!("{name} is no longer in the configuration, which was changed");
        model.say(MessageLevel::Warn, text);
        go(model, Screen::Fleet);
    }
    effects
}
