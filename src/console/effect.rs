//! Effect runner: executes effects against the engine in worker threads, so that the main
//! thread never waits for a disk or a host. Results return as messages. Owns the workers,
//! the current run and the engine in force, and replaces the engine after a config change.

mod facts;
mod files;
mod handoff;
mod text_workers;
mod watch;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};

use super::model::{
    BaselineEdit, ClipboardText, FleetModel as FleetInfo, MAX_RUNS, MessageLevel, PagerText,
    PlanRequest, RunSummary,
};
use super::preferences::LoadedPreferences;
use super::text;
use super::theme::Themes;
use super::update::{Effect, Msg};
use super::view_state::{self, ViewStateWriter};
use crate::clock::Clock;
use crate::config::{self, Agent, Config, ConfigEnvironment, ProtectLevel, SshHost};
use crate::demo;
use crate::digest::Digest;
use crate::durable;
use crate::engine::{
    Engine, FleetEvent, FleetWatcher, MemoryAddress, Observation, Operation, Outcome, Plan,
    RunEvent,
};
use crate::error::{Error, Result};
use crate::transport::sftp::askpass::{self, PromptBroker};
use files::FileJob;
pub use files::{Loaded, LoadedTheme};
use handoff::HandoffJob;
use text_workers::TextWorkers;
pub use text_workers::summarize_findings;

/// Number of plans made in parallel, so that a plan that waits for a host does not delay
/// the others.
const PLAN_WORKERS: usize = 4;

/// Maximum number of records in all runs of the log.
const MAX_LOG_RECORDS: usize = 50_000;

/// Maximum number of records in an agent's history.
const MAX_HISTORY_RECORDS: usize = 1000;

/// Capacity of the queue to the main thread; a sender blocks when it is full.
const MAX_QUEUED_MESSAGES: usize = 64;

/// Generations reserved per engine. Every engine counts from 1; the texts of a later engine
/// must supersede those still queued by an earlier one, so its numbers start at this value
/// times its index.
const GENERATIONS_PER_ENGINE: u64 = 1 << 40;

/// Time that a config file must stay unchanged before it is read.
const CONFIG_DEBOUNCE: Duration = Duration::from_millis(50);

/// Maximum number of waits of [`CONFIG_DEBOUNCE`].
const CONFIG_DEBOUNCE_ATTEMPTS: usize = 40;

/// Digest of the config file at its last read.
type ConfigDigest = Arc<Mutex<Option<Digest>>>;

/// Creates an engine for a changed config.
pub type EngineFactory = Arc<dyn Fn(Config) -> Engine + Send + Sync>;

/// Handle of a run in progress: the channel carries nothing and closes when the run ends.
pub type RunHandle = Receiver<Infallible>;

/// Inputs for reading a changed config.
#[derive(Clone)]
struct ConfigReloader {
    env: ConfigEnvironment,
    engine_factory: EngineFactory,
    known_digest: ConfigDigest,
}

/// Executes effects.
pub struct EffectRunner {
    engine: Arc<Engine>,
    prompt_broker: PromptBroker,
    messages: Sender<Msg>,
    workers: Workers,
    run_handle: Option<RunHandle>,
    cancel_flag: Arc<AtomicBool>,
    config_reloader: ConfigReloader,
    /// Engine of a changed config that is not in force yet.
    next_engine: Option<Arc<Engine>>,
    demo_host: Option<Arc<demo::host::DemoHost>>,
    /// Number of engines before this one.
    engine_count: u64,
    view_state_writer: Option<ViewStateWriter>,
    file_jobs: Sender<FileJob>,
    /// Holds a sender, so that the channel stays open.
    loaded_channel: (Sender<Loaded>, Receiver<Loaded>),
}

/// Files of the operator.
pub struct UserFiles {
    /// Path of the preferences, and their content at start.
    pub preferences: Option<(PathBuf, LoadedPreferences)>,
    /// Location of the saved view.
    pub view_state_file: Option<view_state::ViewStateFile>,
}

/// Worker threads of one engine. They end when this is dropped.
struct Workers {
    fleet: FleetWatcher,
    /// Events of the fleet watcher. Replacing the engine discards events still queued by the
    /// previous one. Holds a sender, so that the channel stays open.
    fleet_events: (Sender<FleetEvent>, Receiver<FleetEvent>),
    text_workers: TextWorkers,
    plan_jobs: Sender<PlanJob>,
    settings_requests: Sender<SshHost>,
    history_requests: Sender<HistoryRequest>,
    handoff_jobs: Sender<HandoffJob>,
    engine_jobs: Sender<EngineJob>,
}

/// Request for an agent's history, or for one record of it.
type HistoryRequest = (String, Option<u64>);

/// Plan request: its number, what to plan, and whether protected agents are unlocked.
type PlanJob = (u64, PlanRequest, bool);

enum EngineJob {
    LoadLog,
    ReloadConfig(ConfigReloader),
    LoadSavedObservations,
}

impl EffectRunner {
    /// Starts the fleet watcher and all workers.
    pub fn start(
        engine: Arc<Engine>,
        (desk, events): (PromptBroker, Receiver<askpass::PromptEvent>),
        env: ConfigEnvironment,
        rebuild: EngineFactory,
        host: Option<Arc<demo::host::DemoHost>>,
        user_files: UserFiles,
    ) -> (EffectRunner, Receiver<Msg>) {
        let (messages, inbox) = bounded(MAX_QUEUED_MESSAGES);
        let out = messages.clone();
        spawn_reporting_panics(messages.clone(), move || {
            for event in events {
                if out.send(Msg::PromptEvent(event)).is_err() {
                    return; // The main thread has ended.
                }
            }
        });
        let workers = Workers::start(&engine, 0, &messages);
        // The saved observations are shown until the fleet is read.
        drop(workers.engine_jobs.send(EngineJob::LoadSavedObservations));
        if let Some((path, known)) = user_files.preferences {
            let (clock, out) = (engine.clock_handle(), messages.clone());
            spawn_reporting_panics(messages.clone(), move || {
                watch::watch_preferences(&path, known, &*clock, &out);
            });
        }
        let keeper = user_files
            .view_state_file
            .map(|place| ViewStateWriter::start(place, engine.clock_handle(), messages.clone()));
        let (file_jobs, wanted) = unbounded();
        let brought = unbounded();
        let out = brought.0.clone();
        spawn_reporting_panics(messages.clone(), move || {
            files::run_file_jobs(&wanted, &out)
        });
        let runner = EffectRunner {
            engine,
            prompt_broker: desk,
            messages,
            workers,
            run_handle: None,
            cancel_flag: Arc::default(),
            config_reloader: ConfigReloader {
                env,
                engine_factory: rebuild,
                known_digest: ConfigDigest::default(),
            },
            next_engine: None,
            demo_host: host,
            engine_count: 0,
            view_state_writer: keeper,
            file_jobs,
            loaded_channel: brought,
        };
        (runner, inbox)
    }

    /// Executes an effect that concerns the engine.
    pub fn execute(&mut self, effect: Effect) {
        tracing::debug!(effect = effect_name(&effect), "effect");
        // A worker that panicked has reported it itself.
        let workers = &mut self.workers;
        match effect {
            Effect::ReadAgents(agents) => workers.fleet.request_read(agents),
            Effect::ReadHost(host) => {
                let is_on_host = |agent: &&Agent| {
                    agent
                        .location
                        .host()
                        .is_some_and(|it| it.authority() == host)
                };
                let agents = self.engine.config().agents.iter().filter(is_on_host);
                workers
                    .fleet
                    .request_read(agents.map(|agent| agent.name.clone()).collect());
            }
            Effect::AllowQuestions(agents) => {
                let agents = agents
                    .iter()
                    .filter_map(|name| self.engine.agent(name).ok());
                for host in agents.filter_map(|agent| agent.location.host()) {
                    self.prompt_broker.unblock(host);
                }
            }
            Effect::AnswerQuestion(question, answer) => {
                self.prompt_broker.answer(question, &answer)
            }
            Effect::RefuseQuestion(question) => self.prompt_broker.refuse(question),
            Effect::PrepareTexts(agent) => workers.text_workers.request_texts(agent),
            Effect::PreparePatch(agent) => workers.text_workers.request_patch(agent),
            Effect::LoadEntry(agent, entry) => {
                drop(
                    workers
                        .handoff_jobs
                        .send(HandoffJob::LoadEntry(agent, entry)),
                );
            }
            Effect::InspectBaseline(agent) => drop(
                workers
                    .handoff_jobs
                    .send(HandoffJob::InspectBaseline(agent)),
            ),
            Effect::MakePlan(id, request, unlocked) => {
                drop(workers.plan_jobs.send((id, request, unlocked)));
            }
            Effect::LoadHistory(agent) => drop(workers.history_requests.send((agent, None))),
            Effect::PrepareRunDiff(agent, seq) => {
                drop(workers.history_requests.send((agent, Some(seq))))
            }
            Effect::LoadHostSettings(host) => drop(workers.settings_requests.send(host)),
            Effect::LoadLog => drop(workers.engine_jobs.send(EngineJob::LoadLog)),
            Effect::SaveViewState(view) => {
                if let Some(keeper) = &self.view_state_writer {
                    keeper.save(view);
                }
            }
            Effect::SetDemoHostAway(away) => self.set_demo_host_away(away),
            Effect::ApplyPlan(plan) => self.apply_plan(*plan),
            Effect::CancelRun => self.cancel_flag.store(true, Ordering::Relaxed),
            // The event loop handles these.
            Effect::CopyToClipboard(_)
            | Effect::CopyThroughTerminal(_)
            | Effect::OpenEditor(_)
            | Effect::OpenPager(_)
            | Effect::LoadTheme(_)
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => {}
        }
    }

    /// Loads a theme; `is_requested` if the operator asked for it.
    pub fn load_theme(&self, themes: &Themes, name: &str, is_requested: bool) {
        let name = name.to_string();
        drop(
            self.file_jobs
                .send(FileJob::Theme(themes.clone(), name, is_requested)),
        );
    }

    /// Writes a text for the pager to a file in `directory`.
    pub fn write_page(&self, number: u64, directory: &Path, page: PagerText) {
        drop(
            self.file_jobs
                .send(FileJob::Page(number, directory.to_path_buf(), page)),
        );
    }

    /// Returns the channel of loaded themes and pager files.
    pub fn loaded(&self) -> &Receiver<Loaded> {
        &self.loaded_channel.1
    }

    /// Returns the channel of fleet events of the engine in force.
    pub fn fleet_events(&self) -> &Receiver<FleetEvent> {
        &self.workers.fleet_events.1
    }

    /// Puts a text on the clipboard with the first of these programs that works.
    pub fn copy_to_clipboard(&self, commands: Vec<&'static [&'static str]>, clip: ClipboardText) {
        drop(
            self.workers
                .handoff_jobs
                .send(HandoffJob::CopyToClipboard(commands, clip)),
        );
    }

    /// Inspects a baseline after the editor ended.
    pub fn inspect_edited(&self, edit: Box<BaselineEdit>) {
        drop(
            self.workers
                .handoff_jobs
                .send(HandoffJob::InspectEdited(edit)),
        );
    }

    fn set_demo_host_away(&self, is_away: bool) {
        let Some(host) = &self.demo_host else { return };
        if is_away {
            host.go_offline();
        } else if let Err(error) = host.go_online() {
            let note = Msg::Reported(MessageLevel::Error, error.to_string());
            let _ = self.messages.try_send(note);
        }
    }

    fn apply_plan(&mut self, plan: Plan) {
        self.cancel_flag = Arc::default();
        let (engine, cancel) = (Arc::clone(&self.engine), Arc::clone(&self.cancel_flag));
        let messages = self.messages.clone();
        let (run_guard, run) = bounded(0);
        self.run_handle = Some(run);
        spawn_reporting_panics(self.messages.clone(), move || {
            let _run_guard: Sender<Infallible> = run_guard;
            let report = engine.apply_plan(&plan, true, &cancel, &mut |progress| {
                // The main thread may have ended; the run continues.
                let _ = messages.send(Msg::RunProgressed(progress));
            });
            let _ = messages.send(Msg::RunEnded(Box::new(report)));
        });
    }

    /// Handles messages about a changed config; returns all others.
    pub fn intercept(&mut self, msg: Msg) -> Option<Msg> {
        match msg {
            Msg::ConfigChanged => {
                self.reload_config();
                None
            }
            Msg::ConfigReloaded(engine) => {
                self.next_engine = Some(engine);
                let text = "the configuration was changed; it waits for the end of the run";
                let is_run_active = self.run_handle.as_ref().is_some_and(is_run_active);
                is_run_active.then(|| Msg::Reported(MessageLevel::Info, text.to_string()))
            }
            Msg::ConfigInvalid(_) => {
                // The waiting engine no longer matches the file.
                self.next_engine = None;
                Some(msg)
            }
            msg => Some(msg),
        }
    }

    /// Reads the config again, after its file changed.
    fn reload_config(&self) {
        let job = EngineJob::ReloadConfig(self.config_reloader.clone());
        drop(self.workers.engine_jobs.send(job));
    }

    /// Returns the theme that the config in force names.
    pub fn config_theme(&self) -> &str {
        &self.engine.config().general.theme
    }

    /// Adopts a changed config, if there is one. The caller must not call this during a run:
    /// two engines would exist at once.
    pub fn adopt_config(&mut self) -> Option<Msg> {
        self.engine = self.next_engine.take()?;
        self.engine.close_other_hosts();
        self.engine_count += 1;
        let generation_base = self.engine_count * GENERATIONS_PER_ENGINE;
        self.workers = Workers::start(&self.engine, generation_base, &self.messages);
        // The file may have changed between the two watchers.
        self.reload_config();
        let config = self.engine.config();
        let agents = config.agents.iter();
        let agents = agents.map(|agent| {
            (
                agent.name.clone(),
                MemoryAddress::from_location(&agent.location),
            )
        });
        let read_only = config.general.protect == ProtectLevel::ReadOnly;
        Some(Msg::ConfigAdopted(
            fleet_model(config),
            agents.collect(),
            read_only,
        ))
    }

    /// Shuts down: lets a run finish its current agent and saves the observations.
    /// `wait_for_run` waits for the end of a run and returns false if the operator ends the
    /// wait; this then returns false at once.
    pub fn shut_down(
        mut self,
        inbox: Receiver<Msg>,
        observations: &[Observation],
        wait_for_run: impl FnOnce(&RunHandle) -> bool,
    ) -> bool {
        // A run that waits for the main thread must not block for ever.
        drop(inbox);
        self.prompt_broker.close();
        if !self
            .run_handle
            .take()
            .is_none_or(|run| !is_run_active(&run) || wait_for_run(&run))
        {
            return false;
        }
        if let Some(keeper) = self.view_state_writer.take() {
            keeper.shut_down();
        }
        // Closing the hosts ends the workers that wait for one.
        self.engine.close_all_hosts();
        // The saved observations are a convenience, so an error is ignored.
        let _ = self.engine.save_observations(observations);
        true
    }
}

/// Returns the name of an effect without its fields, which may be secret.
fn effect_name(effect: &Effect) -> String {
    let text = format!("{effect:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric());
    text[..end.unwrap_or(text.len())].to_string()
}

/// Whether a run has not ended yet. A panic ends it as well.
fn is_run_active(run: &RunHandle) -> bool {
    matches!(run.try_recv(), Err(TryRecvError::Empty))
}

/// Converts an event of the fleet watcher to a message.
pub fn fleet_event_message(event: FleetEvent) -> Msg {
    match event {
        FleetEvent::Observed(seen) => Msg::AgentsObserved(seen),
        FleetEvent::HostsChanged(hosts) => Msg::HostsChanged(hosts),
        FleetEvent::ConfigChanged => Msg::ConfigChanged,
        FleetEvent::Notice(text) => Msg::Reported(MessageLevel::Warn, text),
    }
}

/// Returns the properties of the fleet that the console shows.
pub fn fleet_model(config: &Config) -> FleetInfo {
    FleetInfo {
        name: config.general.fleet_name.clone(),
        tag: config.general.fleet_tag.clone(),
        config_path: config.path.display().to_string(),
        invocation: config.invocation.clone(),
        retention_days: config.general.archive_retention_days,
        memory_locations: config.agents.iter().map(memory_location).collect(),
    }
}

/// Returns the name of an agent and the location of its memory, in the syntax of `scp`.
fn memory_location(agent: &Agent) -> (String, String) {
    let path = agent.location.memory().display();
    let place = match agent.location.host() {
        Some(host) => format!("{}:{path}", host.name),
        None => path.to_string(),
    };
    (agent.name.clone(), place)
}

impl Workers {
    fn start(engine: &Arc<Engine>, first: u64, messages: &Sender<Msg>) -> Workers {
        let (plans, wanted) = unbounded::<PlanJob>();
        for _ in 0..PLAN_WORKERS {
            let wanted = wanted.clone();
            spawn_worker(engine, messages, move |own, out| {
                run_plan_jobs(own, &wanted, out)
            });
        }
        let (settings, hosts) = unbounded();
        spawn_worker(engine, messages, move |own, out| {
            answer_settings_requests(own, &hosts, out)
        });
        let (past, looks) = unbounded();
        spawn_worker(engine, messages, move |own, out| {
            answer_history_requests(own, &looks, out)
        });
        let (errands, wanted) = unbounded();
        spawn_worker(engine, messages, move |own, out| {
            handoff::run_handoff_jobs(own, &wanted, out)
        });
        let (jobs, queue) = unbounded();
        spawn_worker(engine, messages, move |own, out| {
            run_engine_jobs(own, &queue, out)
        });
        let news = bounded(MAX_QUEUED_MESSAGES);
        Workers {
            fleet: FleetWatcher::start(Arc::clone(engine), news.0.clone()),
            fleet_events: news,
            text_workers: TextWorkers::new(engine, first, messages),
            plan_jobs: plans,
            settings_requests: settings,
            history_requests: past,
            handoff_jobs: errands,
            engine_jobs: jobs,
        }
    }
}

fn spawn_worker(
    engine: &Arc<Engine>,
    messages: &Sender<Msg>,
    work: impl FnOnce(&Engine, &Sender<Msg>) + Send + 'static,
) {
    let (engine_handle, out) = (Arc::clone(engine), messages.clone());
    spawn_reporting_panics(messages.clone(), move || work(&engine_handle, &out));
}

/// Starts a thread whose panic is reported to the operator.
fn spawn_reporting_panics(messages: Sender<Msg>, work: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            let text = "a fault in this program stopped a part of it; leave and start it again, and please report it";
            let _ = messages.send(Msg::Reported(MessageLevel::Error, text.to_string()));
        }
    });
}

fn run_engine_jobs(engine: &Engine, queue: &Receiver<EngineJob>, messages: &Sender<Msg>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| queue.recv().ok()) {
        if matches!(job, EngineJob::LoadLog) {
            // One reply serves all queued requests.
            next = queue
                .try_iter()
                .find(|job| !matches!(job, EngineJob::LoadLog));
        }
        let message = match job {
            EngineJob::ReloadConfig(reader) => {
                let _span = tracing::debug_span!("reload config").entered();
                let path = &engine.config().path;
                let digest = wait_for_settled_digest(engine.clock(), path);
                let mut known = reader
                    .known_digest
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if *known == Some(digest) {
                    continue;
                }
                *known = Some(digest);
                match config::reload(path, &reader.env) {
                    // Creating the engine may look up a group, which may be slow.
                    Ok(mut config) => {
                        config.invocation = engine.config().invocation.clone();
                        Msg::ConfigReloaded(Arc::new((reader.engine_factory)(config)))
                    }
                    Err(problems) => Msg::ConfigInvalid(problems.0),
                }
            }
            EngineJob::LoadSavedObservations => {
                Msg::SavedObservationsLoaded(engine.load_observations())
            }
            EngineJob::LoadLog => {
                Msg::LogLoaded(load_runs(engine).map_err(|error| error.to_string()))
            }
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// Returns the digest of a file once it stays the same for [`CONFIG_DEBOUNCE`]: many
/// programs truncate a file before they write it, and an empty config is valid. For an
/// unreadable file, returns the digest of the error.
fn wait_for_settled_digest(clock: &dyn Clock, path: &Path) -> Digest {
    let read = || match durable::read_regular_file(path, config::MAX_CONFIG_BYTES) {
        Ok(bytes) => Digest::of(&bytes),
        Err(error) => Digest::of(error.to_string().as_bytes()),
    };
    let mut digest = read();
    for _ in 0..CONFIG_DEBOUNCE_ATTEMPTS {
        clock.sleep(CONFIG_DEBOUNCE);
        let next = read();
        if next == digest {
            break;
        }
        digest = next;
    }
    digest
}

fn run_plan_jobs(engine: &Engine, wanted: &Receiver<PlanJob>, messages: &Sender<Msg>) {
    for (id, request, unlocked) in wanted {
        let plan = make_plan(engine, &request, unlocked);
        if messages
            .send(Msg::PlanMade(id, plan.map(Box::new)))
            .is_err()
        {
            return;
        }
    }
}

/// Worker: loads the effective ssh settings of hosts. Skips all queued requests but the
/// last.
fn answer_settings_requests(engine: &Engine, hosts: &Receiver<SshHost>, messages: &Sender<Msg>) {
    while let Ok(mut host) = hosts.recv() {
        while let Ok(newer) = hosts.try_recv() {
            host = newer;
        }
        let settings = engine
            .connection_settings(&host)
            .map_err(|error| error.to_string());
        if messages
            .send(Msg::HostSettingsLoaded(host, settings))
            .is_err()
        {
            return;
        }
    }
}

/// Worker: loads histories and run diffs. Merges equal queued requests.
fn answer_history_requests(
    engine: &Engine,
    looks: &Receiver<HistoryRequest>,
    messages: &Sender<Msg>,
) {
    while let Ok(first) = looks.recv() {
        let mut wanted = vec![first];
        for look in looks.try_iter() {
            wanted.retain(|other| *other != look);
            wanted.push(look);
        }
        for (name, seq) in wanted {
            let message = match seq {
                None => {
                    let past = engine.agent_history(&name, MAX_HISTORY_RECORDS);
                    Msg::HistoryLoaded(name, past.map_err(|error| error.to_string()))
                }
                Some(seq) => {
                    let passed = engine.agent(&name).and_then(|it| engine.run_diff(it, seq));
                    let deadline = engine.clock().instant() + text_workers::DIFF_TIMEOUT;
                    let text = passed.map(|passed| text::prepare_run_diff(&passed, Some(deadline)));
                    Msg::RunDiffPrepared(name, seq, text.map_err(|error| error.to_string()))
                }
            };
            if messages.send(message).is_err() {
                return;
            }
        }
    }
}

fn make_plan(engine: &Engine, request: &PlanRequest, unlocked: bool) -> Result<Plan, Error> {
    match request {
        PlanRequest::Reset(agents) => engine.plan_reset(agents, unlocked),
        PlanRequest::Undo(target, mode) => engine.plan_undo(target, *mode, unlocked),
    }
}

/// Loads the last runs of the ledger, at most [`MAX_RUNS`], newest first.
///
/// # Errors
/// The ledger cannot be read or is damaged.
pub fn load_runs(engine: &Engine) -> Result<Vec<RunSummary>> {
    let (mut names, mut records) = (HashSet::new(), Vec::new());
    engine.for_each_record_backwards(|record| {
        names.insert(record.event.run.clone());
        let fits = names.len() <= MAX_RUNS && records.len() < MAX_LOG_RECORDS;
        if fits {
            records.push((record.time, record.event));
        }
        fits
    })?;
    Ok(group_into_runs(records.into_iter().rev()))
}

/// Groups records in ledger order into runs; returns the last ones, newest first.
fn group_into_runs(
    records: impl Iterator<Item = (DateTime<FixedOffset>, RunEvent)>,
) -> Vec<RunSummary> {
    let mut runs: Vec<RunSummary> = Vec::new();
    // Index of the last part of each run.
    let mut run_indices: HashMap<String, usize> = HashMap::new();
    for (time, event) in records {
        if event.operation == Operation::Retire {
            if let Some(place) = run_indices.get(&event.run) {
                runs[*place].retired_entries += event.retired_entries.len();
            }
            continue;
        }
        if event.agent.is_empty() && matches!(event.operation, Operation::Reset | Operation::Undo) {
            if let Some(place) = run_indices.get(&event.run) {
                runs[*place].problem = event.note;
            }
            continue;
        }
        let undone = event
            .undone_run
            .as_ref()
            .filter(|_| event.operation == Operation::Undo);
        let undone = undone.and_then(|undone| run_indices.get(undone).copied());
        // The run that an undo of an undo restores.
        let redone = undone.and_then(|place| {
            let mut undos = runs[place].events.iter();
            let undo = undos.find(|it| it.agent == event.agent)?;
            undo.undone_run.clone()
        });
        let redo = redone.is_some();
        // A refused or failed undo changed nothing.
        if let Some(place) = undone.filter(|_| event.outcome == Outcome::Ok) {
            let undone = &mut runs[place].undone_agents;
            undone.retain(|agent| *agent != event.agent);
            undone.push(event.agent.clone());
            if let Some(place) = redone.and_then(|run| run_indices.get(&run)) {
                runs[*place]
                    .undone_agents
                    .retain(|agent| *agent != event.agent);
            }
        }
        match runs.last_mut() {
            Some(last) if last.run_id == event.run => {
                last.ended_at = time;
                last.events.push(event);
            }
            _ => {
                run_indices.insert(event.run.clone(), runs.len());
                runs.push(RunSummary {
                    run_id: event.run.clone(),
                    ended_at: time,
                    events: vec![event],
                    undone_agents: Vec::new(),
                    is_redo: redo,
                    retired_entries: 0,
                    problem: None,
                });
            }
        }
    }
    runs.reverse();
    runs.truncate(MAX_RUNS);
    runs
}

#[cfg(test)]
mod tests;
