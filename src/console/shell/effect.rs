//! Effect runner: executes effects against the engine in jobs, so that the main thread never
//! waits for a disk or a host. Results return as messages. Owns the job queue, the current run
//! and the engine in force, and replaces the engine after a config change.

mod agent_texts;
mod archives;
mod baselines;
mod config_reload;
mod drafts;
mod editor;
mod external_copy;
mod facts;
mod files;
mod handoff;
mod job_queue;
mod ledger_runs;
mod memory;
mod preferences_watcher;
mod schedule;
mod text_analyzer;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};

use super::view_state::{self, ViewStateWriter};
use crate::base::error::{Error, Result};
use crate::base::moment;
use crate::base::temporary::TemporaryRoot;
use crate::config::{Agent, Config, ConfigEnvironment, Protection};
use crate::console::RunExtraCommand;
use crate::console::agent_row::AgentRow;
use crate::console::handoff::{ClipboardText, CopyOutcome, PagerText};
use crate::console::message::{Effect, Msg};
use crate::console::preferences::LoadedPreferences;
use crate::console::screens::fleet::state::FleetConfig;
use crate::console::screens::log::state::{MessageLevel, ReportText};
use crate::console::screens::reset::state::PlanRequest;
use crate::console::shell::external_copy::ExternalCopy;
use crate::console::text::{self, PreparedText};
use crate::console::theme::Themes;
use crate::engine::{
    BaselineFile, EditedFiles, Engine, FleetEvent, FleetWatcher, Observation, OpenedBaseline, Plan,
    SavedObservations, ScratchRequest,
};
use crate::transport::sftp::askpass::{self, PromptBroker};
use agent_texts::TextPreparer;
pub use agent_texts::summarize_findings;
use config_reload::ConfigReloader;
pub use config_reload::EngineFactory;
use drafts::DraftKeeper;
pub use files::{Loaded, LoadedTheme};

use job_queue::{JobClass, JobQueue, Request, spawn_reporting_panic};
pub use ledger_runs::load_runs;
pub use schedule::ScheduleAccess;
use text_analyzer::TextAnalyzer;

/// Maximum number of records in an agent's history.
const MAX_HISTORY_RECORDS: usize = 1000;

/// Capacity of the queue to the main thread; a sender blocks when it is full.
const MAX_QUEUED_MESSAGES: usize = 64;

/// Generations reserved per engine. What a later engine observed must supersede what an earlier one
/// still had queued, so its numbers start at this value times its index.
const GENERATIONS_PER_ENGINE: u64 = 1 << 40;

/// Limit of the wait for the states that were seen last: a disk that does not answer must not keep
/// the operator.
const WATCH_END_LIMIT: Duration = Duration::from_secs(2);

/// What the console says while it waits for the end of a run before it ends.
const RUN_WAIT_TEXT: &str = "finishing the agents in progress; ^C quits at once, and the next run \
                             recovers unfinished agents";

/// The same for a plan over baselines.
const BASELINES_WAIT_TEXT: &str = "writing the baselines of the plan; ^C quits at once, and the files \
                                   that are not written yet stay as they are";

/// The same while the archive is pruned.
const PRUNE_WAIT_TEXT: &str = "deleting what retention has shown; ^C quits at once, and the rest \
                               expires at the end of a run";

/// Handle of a run in progress, of a plan over baselines being applied, or of a prune: the channel
/// carries nothing and closes when that ends.
pub type RunHandle = Receiver<Infallible>;

/// Executes effects.
pub struct EffectRunner {
    engine: Arc<Engine>,
    prompt_broker: PromptBroker,
    messages: Sender<Msg>,
    workers: Workers,
    run_handle: Option<RunHandle>,
    baseline_write_handle: Option<RunHandle>,
    prune_handle: Option<RunHandle>,
    cancel_flag: Arc<AtomicBool>,
    verify_cancel_flag: Arc<AtomicBool>,
    /// Number of the search of the archives that was requested last.
    latest_search: Arc<AtomicU64>,
    /// Number of the timeline that was requested last.
    latest_timeline: Arc<AtomicU64>,
    /// The open collection of a memory with a layout.
    item_demand: Option<memory::ItemDemand>,
    /// Its paths are those of a key that the operator names.
    env: ConfigEnvironment,
    config_reloader: ConfigReloader,
    /// Engine of a changed config that is not in force yet.
    next_engine: Option<Arc<Engine>>,
    extra_command: Option<RunExtraCommand>,
    schedule_access: ScheduleAccess,
    /// Number of engines before this one.
    engine_count: u64,
    view_state_writer: Option<ViewStateWriter>,
    drafts: DraftKeeper,
    /// Jobs that do not concern the engine, so that they keep their order when it is replaced.
    file_jobs: JobQueue,
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

/// What works for one engine. Dropping it lets the queued jobs finish.
struct Workers {
    fleet: FleetWatcher,
    /// Events of the fleet watcher. Replacing the engine discards events still queued by the
    /// previous one. Holds a sender, so that the channel stays open.
    fleet_events: (Sender<FleetEvent>, Receiver<FleetEvent>),
    jobs: JobQueue,
    texts: Arc<TextPreparer>,
    analyzer: Arc<TextAnalyzer>,
}

impl Workers {
    /// Starts them; the watch of the fleet begins after `first`.
    fn start(
        engine: &Arc<Engine>,
        messages: &Sender<Msg>,
        first: impl FnOnce() + Send + 'static,
    ) -> Result<Workers> {
        let fleet_events = bounded(MAX_QUEUED_MESSAGES);
        Ok(Workers {
            fleet: FleetWatcher::start_after(
                first,
                Arc::clone(engine.watch()),
                fleet_events.0.clone(),
            )?,
            fleet_events,
            jobs: JobQueue::new(messages.clone()),
            texts: TextPreparer::new(engine),
            analyzer: TextAnalyzer::new(engine),
        })
    }
}

/// How long the watch of the fleet waits for the observations of the last session.
const MAX_SAVED_WAIT: Duration = Duration::from_secs(1);

/// A thread that loads the observations of the last session.
pub struct ObservationLoader(Receiver<SavedObservations>);

impl ObservationLoader {
    /// Starts to load them.
    pub fn start_loading(engine: &Arc<Engine>) -> ObservationLoader {
        let (sender, loaded) = bounded(1);
        let engine = Arc::clone(engine);
        // Without a thread, or with a disk that hangs, the agents are LOADING until they are read.
        let load = move || drop(sender.send(engine.observer().load_observations()));
        drop(thread::Builder::new().spawn(load));
        ObservationLoader(loaded)
    }

    /// Returns them; none if they are not loaded in time.
    fn wait(self) -> Option<SavedObservations> {
        self.0.recv_timeout(MAX_SAVED_WAIT).ok()
    }
}

impl EffectRunner {
    /// Starts the fleet watcher and the watchers of the operator's files.
    ///
    /// # Errors
    /// The system refuses a thread without which the console is useless.
    pub fn start(
        (engine, loader): (Arc<Engine>, ObservationLoader),
        (prompt_broker, prompt_events): (PromptBroker, Receiver<askpass::PromptEvent>),
        env: ConfigEnvironment,
        engine_factory: EngineFactory,
        extra_command: Option<RunExtraCommand>,
        user_files: UserFiles,
        schedule_access: ScheduleAccess,
    ) -> Result<(EffectRunner, Receiver<Msg>)> {
        let (messages, inbox) = bounded(MAX_QUEUED_MESSAGES);
        let out = messages.clone();
        spawn_reporting_panic(messages.clone(), move || {
            for event in prompt_events {
                if out.send(Msg::PromptEvent(event)).is_err() {
                    return; // The main thread has ended.
                }
            }
        })?;
        if let Some((path, known)) = user_files.preferences {
            let (clock, out) = (engine.context().clock_handle(), messages.clone());
            spawn_reporting_panic(messages.clone(), move || {
                preferences_watcher::watch_preferences(&path, known, &*clock, &out);
            })?;
        }
        let view_state_writer = user_files
            .view_state_file
            .map(|file| {
                ViewStateWriter::start(file, engine.context().clock_handle(), messages.clone())
            })
            .transpose()?;
        // The saved observations are shown until the fleet is read.
        let out = messages.clone();
        let report_saved = move || {
            if let Some(saved) = loader.wait() {
                // The main thread may have ended.
                let _ = out.send(Msg::SavedObservationsLoaded(saved));
            }
        };
        let runner = EffectRunner {
            workers: Workers::start(&engine, &messages, report_saved)?,
            engine,
            prompt_broker,
            file_jobs: JobQueue::new(messages.clone()),
            messages,
            run_handle: None,
            baseline_write_handle: None,
            prune_handle: None,
            cancel_flag: Arc::default(),
            verify_cancel_flag: Arc::default(),
            latest_search: Arc::default(),
            latest_timeline: Arc::default(),
            item_demand: None,
            env: env.clone(),
            config_reloader: ConfigReloader::new(env, engine_factory),
            next_engine: None,
            extra_command,
            schedule_access,
            engine_count: 0,
            view_state_writer,
            drafts: DraftKeeper::default(),
            loaded_channel: unbounded(),
        };
        Ok((runner, inbox))
    }

    /// Executes an effect that concerns the engine.
    pub fn execute(&mut self, effect: Effect) {
        tracing::debug!(effect = effect_name(&effect), "effect");
        let workers = &self.workers;
        match effect {
            Effect::ReadAgents(agents) => workers.fleet.request_read(agents),
            Effect::ReadHost(host) => {
                let is_on_host =
                    |agent: &&Agent| agent.host().is_some_and(|it| it.authority() == host);
                let agents = self.engine.config().agents.iter().filter(is_on_host);
                workers
                    .fleet
                    .request_read(agents.map(|agent| agent.name.clone()).collect());
            }
            Effect::AllowQuestions(agents) => {
                let agents = agents
                    .iter()
                    .filter_map(|name| self.engine.agent(name).ok());
                for host in agents.filter_map(|agent| agent.host()) {
                    self.prompt_broker.unblock(host);
                }
            }
            Effect::AnswerQuestion(question, answer) => {
                self.prompt_broker.answer(question, &answer)
            }
            Effect::RefuseQuestion(question) => self.prompt_broker.refuse(question),
            Effect::PrepareTexts(agent) => workers.texts.request_texts(agent, &workers.jobs),
            Effect::CompareRules(agent) => workers.texts.request_rules(agent, &workers.jobs),
            Effect::ReadItems(request) => memory::read_items(self, request),
            Effect::ReadItemContent(request) => memory::read_item_content(self, request),
            Effect::CheckMemory(number, agent) => memory::check_memory(self, number, agent),
            Effect::CompareFileChanges(changes) => memory::compare_file_changes(self, changes),
            Effect::PreparePatch(agent) => workers.texts.request_patch(agent, &workers.jobs),
            Effect::LoadEntry(agent, entry) => {
                let request = Request::listed(JobClass::Handoff, format!("entry of {agent}"));
                self.submit(request, move |engine| {
                    let page = engine.and_then(|it| handoff::load_entry(it, &agent, &entry));
                    Msg::EntryLoaded(agent, entry, page)
                })
            }
            Effect::SaveLines(path, lines) => {
                let path = self.config_reloader.resolve(&path);
                self.submit(JobClass::Handoff, move |started| {
                    let saved = started.and_then(|_| files::save_lines(&path, &lines));
                    match saved {
                        Ok(text) => Msg::Reported(MessageLevel::Info, text),
                        Err(error) => {
                            let text = format!("lines not saved: {error}");
                            Msg::Reported(MessageLevel::Error, text)
                        }
                    }
                })
            }
            Effect::InspectBaseline(agent) => {
                let request = Request::listed(JobClass::Handoff, format!("baseline of {agent}"));
                self.submit(request, move |engine| {
                    let opened = engine.and_then(|it| handoff::prepare_edit(it, &agent));
                    Msg::BaselineInspected(agent, opened.map(Box::new))
                })
            }
            Effect::OpenBaseline(name) => {
                // Its sealed and pushed versions may be others by now.
                workers.analyzer.forget_versions();
                self.submit(JobClass::Handoff, move |engine| {
                    let opened = engine.and_then(|it| it.baseline_edits().open_baseline(&name));
                    Msg::BaselineOpened(name, opened.map(Box::new))
                })
            }
            Effect::CheckOpenFile(name) => self.submit(JobClass::Editor, move |engine| {
                let found = match &engine {
                    Ok(engine) => editor::check_open_file(engine, &name),
                    Err(error) => Err(BaselineFile::Unreadable(error.to_string())),
                };
                Msg::OpenFileChecked(name, found)
            }),
            Effect::AnalyzeText(name, generation, text) => {
                let analyzer = Arc::clone(&workers.analyzer);
                let request = Request::latest(JobClass::Analysis, "analysis");
                workers.jobs.submit(request, move |started| {
                    started.ok()?;
                    let analysis = analyzer.analyze(name, generation, &text);
                    Some(Msg::TextAnalyzed(Box::new(analysis)))
                });
            }
            Effect::CompareWithFile(name, generation, text, known) => {
                self.submit(JobClass::Editor, move |engine| {
                    let compared =
                        engine.map(|it| editor::compare_with_file(it, &name, &text, known));
                    Msg::FileCompared(name, generation, compared.map(Box::new))
                })
            }
            Effect::MergeTexts(name, texts) => self.submit(JobClass::Editor, move |started| {
                let merged = started.and_then(|it| editor::merge(&texts, it.clock()));
                Msg::TextsMerged(name, merged.map_err(|error| error.to_string()))
            }),
            Effect::SaveText(save) => self.submit(JobClass::Editor, move |engine| {
                let name = save.name.clone();
                let saved = engine.and_then(|it| editor::save(it, *save));
                Msg::TextSaved(name, saved.map(Box::new))
            }),
            Effect::KeepDraft(change) => {
                let job = self.drafts.begin_change(&self.engine, change);
                let request = Request::latest(JobClass::Drafts, "draft");
                self.file_jobs.submit(request, move |_| job.perform());
            }
            Effect::MakePlan(id, plan_request, unlocked) => {
                let label = match plan_request.agent_names() {
                    [] => "plan of an undo".to_string(),
                    [one] => format!("plan for {one}"),
                    many => format!("plan for {} agents", many.len()),
                };
                self.submit(Request::listed(JobClass::Plan, label), move |engine| {
                    let plan = engine.and_then(|it| make_plan(it, &plan_request, unlocked));
                    Msg::PlanMade(id, plan.map(Box::new))
                })
            }
            Effect::LoadHistory(agent) => {
                let label = format!("history of {agent}");
                let request = Request::latest(JobClass::History, &label).listed_as(label);
                let jobs = self.workers.jobs.clone();
                self.submit(request, move |engine| {
                    let page = engine
                        .and_then(|it| it.history().agent_history(&agent, MAX_HISTORY_RECORDS));
                    let history = page.map(|page| {
                        report_unread_records(&jobs, page.unread);
                        page.entries
                    });
                    Msg::HistoryLoaded(agent, history.map_err(|error| error.to_string()))
                })
            }
            Effect::PrepareRunDiff(agent, seq) => {
                let request = Request::latest(JobClass::History, format!("run {seq} of {agent}"))
                    .listed_as(format!("run diff of {agent}"));
                self.submit(request, move |engine| {
                    let diff = engine.and_then(|it| prepare_run_diff(it, &agent, seq));
                    Msg::RunDiffPrepared(agent, seq, diff.map_err(|error| error.to_string()))
                })
            }
            Effect::LoadHostSettings(host) => {
                let request = Request::latest(JobClass::HostSettings, "settings")
                    .listed_as(format!("ssh settings of {}", host.name));
                self.submit(request, move |engine| {
                    let settings = engine.and_then(|it| it.hosts().connection_settings(&host));
                    Msg::HostSettingsLoaded(host, settings.map_err(|error| error.to_string()))
                })
            }
            Effect::LoadLog => {
                let jobs = self.workers.jobs.clone();
                let request = Request::latest(JobClass::FleetFiles, "ledger").listed_as("ledger");
                self.submit(request, move |engine| {
                    let loaded = engine.and_then(load_runs).map(|(runs, unread)| {
                        report_unread_records(&jobs, unread);
                        runs
                    });
                    Msg::LogLoaded(loaded.map_err(|error| error.to_string()))
                })
            }
            Effect::LoadReport => {
                let request = Request::latest(JobClass::FleetFiles, "report").listed_as("report");
                self.submit(request, |engine| {
                    Msg::ReportLoaded(
                        engine
                            .and_then(load_report)
                            .map_err(|error| error.to_string()),
                    )
                })
            }
            Effect::LoadSchedule(number) => schedule::load_schedule(self, number),
            Effect::ChangeSchedule(change) => schedule::change_schedule(self, change),
            Effect::FindDrafts => self.submit(JobClass::FleetFiles, |engine| {
                // What cannot be listed is said when a baseline is opened.
                let found = engine.and_then(|it| it.baseline_edits().baselines_with_left_drafts());
                Msg::DraftsFound(found.unwrap_or_default())
            }),
            Effect::LoadBaselines => baselines::list_baselines(self),
            Effect::LoadBaselineVersions(name) => baselines::load_baseline_versions(self, name),
            Effect::CompareNewRules(request) => baselines::compare_new_rules(self, request),
            Effect::CompareBaseline(request) => baselines::compare_baseline(self, request),
            Effect::MakeBaselinePlan(id, request) => {
                baselines::make_baseline_plan(self, id, request)
            }
            Effect::CheckSigningKey(key) => baselines::check_signing_key(self, key),
            Effect::ApplyBaselinePlan(plan) => baselines::apply_baseline_plan(self, plan),
            Effect::SearchArchive(request) => archives::search_archive(self, request),
            Effect::ReadEntryText(request) => archives::read_entry_text(self, request),
            Effect::CompareEntry(request) => archives::compare_entry(self, request),
            Effect::FindEntryRun(entry) => archives::find_entry_run(self, entry),
            Effect::SetPinned(entry, is_pinned) => archives::set_pinned(self, entry, is_pinned),
            Effect::LoadTimeline(number, subject) => archives::load_timeline(self, number, subject),
            Effect::ExportEntry(entry, path) => archives::export_entry(self, entry, &path),
            Effect::LoadRetention(number) => archives::load_retention(self, number),
            Effect::PruneArchive(shown) => archives::prune_archive(self, shown),
            Effect::LoadSource(source) => archives::load_source(self, source),
            Effect::Verify => baselines::verify(self),
            Effect::CancelVerify => self.verify_cancel_flag.store(true, Ordering::Relaxed),
            Effect::SaveViewState(view) => {
                if let Some(keeper) = &self.view_state_writer {
                    keeper.save(view);
                }
            }
            Effect::RunExtraCommand => self.run_extra_command(),
            Effect::ApplyPlan(plan) => self.apply_plan(*plan),
            Effect::CancelRun => self.cancel_flag.store(true, Ordering::Relaxed),
            // The event loop handles these.
            Effect::CopyToClipboard(_)
            | Effect::CopyThroughTerminal(_)
            | Effect::OpenEditor(_)
            | Effect::OpenPager(_)
            | Effect::LoadTheme(_)
            | Effect::Redraw
            | Effect::RingBell
            | Effect::Suspend
            | Effect::Quit => {}
        }
    }

    /// Submits a job for the engine in force, which gets the error instead if no thread can be
    /// started for it.
    fn submit(
        &self,
        request: impl Into<Request>,
        work: impl FnOnce(Result<&Engine>) -> Msg + Send + 'static,
    ) {
        let engine = Arc::clone(&self.engine);
        self.workers.jobs.submit(request, move |started| {
            Some(work(started.map(|()| &*engine)))
        });
    }

    /// Loads a theme; `is_requested` if the operator asked for it.
    pub fn load_theme(&self, themes: &Themes, name: &str, is_requested: bool) {
        let (themes, name) = (themes.clone(), name.to_string());
        self.submit_file_job(move || Loaded::Theme(files::load_theme(&themes, name, is_requested)));
    }

    /// Writes the copy of a baseline that the external editor works on, in `root`.
    pub fn write_external_copy(
        &self,
        number: u64,
        root: &TemporaryRoot,
        opened: Box<OpenedBaseline>,
    ) {
        let (root, now) = (root.clone(), self.engine.clock().instant());
        self.submit_file_job(move || {
            let copy = ExternalCopy::write(&root, &opened, now);
            Loaded::ExternalCopy(number, opened, copy)
        });
    }

    /// Writes a text for the pager to a file in `root`.
    pub fn write_page(&self, number: u64, root: &TemporaryRoot, page: PagerText) {
        let root = root.clone();
        self.submit_file_job(move || Loaded::Page(number, files::write_page(&root, &page)));
    }

    fn submit_file_job(&self, work: impl FnOnce() -> Loaded + Send + 'static) {
        let loaded = self.loaded_channel.0.clone();
        self.file_jobs.submit(JobClass::UserFiles, move |started| {
            started.ok()?;
            // The main thread may have ended.
            let _ = loaded.send(work());
            None
        });
    }

    /// Returns the labels of the jobs of the engine in force that have not ended.
    pub fn job_labels(&self) -> Vec<String> {
        self.workers.jobs.job_labels()
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
        let label = format!("copy {}", clip.description);
        self.submit(Request::listed(JobClass::Handoff, label), move |engine| {
            let outcome = match engine {
                Ok(_) => handoff::copy_to_clipboard(&commands, &clip),
                Err(error) => CopyOutcome::Failed(error.to_string()),
            };
            Msg::ClipboardCopied(clip, outcome)
        });
    }

    fn run_extra_command(&self) {
        let Some(run) = &self.extra_command else {
            return;
        };
        let ended = match run() {
            Ok(text) => Msg::ExtraCommandEnded(text),
            Err(error) => Msg::Reported(MessageLevel::Error, error.to_string()),
        };
        let _ = self.messages.try_send(ended);
    }

    fn apply_plan(&mut self, plan: Plan) {
        self.cancel_flag = Arc::default();
        let (engine, cancel) = (Arc::clone(&self.engine), Arc::clone(&self.cancel_flag));
        let messages = self.messages.clone();
        let (run_guard, run) = bounded(0);
        self.run_handle = Some(run);
        let started = spawn_reporting_panic(self.messages.clone(), move || {
            let _run_guard: Sender<Infallible> = run_guard;
            let report = engine
                .runs()
                .apply_plan(&plan, true, &cancel, &mut |progress| {
                    // The main thread may have ended; the run continues.
                    let _ = messages.send(Msg::RunProgressed(progress));
                });
            let _ = messages.send(Msg::RunEnded(Box::new(report)));
        });
        if let Err(error) = started {
            // Does not wait: this thread reads the messages.
            let _ = self
                .messages
                .try_send(Msg::RunNotStarted(error.to_string()));
        }
    }

    /// Handles messages about a changed config; returns all others.
    pub fn intercept(&mut self, msg: Msg) -> Option<Msg> {
        match msg {
            Msg::Fleet(FleetEvent::ConfigChanged) => {
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
        let (engine, reloader) = (Arc::clone(&self.engine), self.config_reloader.clone());
        self.workers
            .jobs
            .submit(JobClass::FleetFiles, move |started| match started {
                Ok(()) => reloader.reload(&engine),
                Err(error) => {
                    let text = format!("the configuration was not read again: {error}");
                    Some(Msg::Reported(MessageLevel::Error, text))
                }
            });
    }

    /// Returns the theme that the config in force names.
    pub fn config_theme(&self) -> &str {
        &self.engine.config().general.theme
    }

    /// Adopts a changed config, if there is one. The caller must not call this during a run:
    /// two engines would exist at once.
    pub fn adopt_config(&mut self) -> Option<Msg> {
        let engine = self.next_engine.take()?;
        engine
            .observer()
            .continue_generations((self.engine_count + 1) * GENERATIONS_PER_ENGINE);
        match Workers::start(&engine, &self.messages, || ()) {
            Ok(workers) => {
                self.workers = workers;
                self.item_demand = None;
            }
            Err(error) => {
                let text = format!("the changed configuration waits for a restart: {error}");
                return Some(Msg::Reported(MessageLevel::Error, text));
            }
        }
        self.engine = engine;
        self.engine.hosts().close_other_hosts();
        self.engine_count += 1;
        // The file may have changed between the two watchers.
        self.reload_config();
        let config = self.engine.config();
        let rows = config.agents.iter().map(AgentRow::unread);
        let read_only = config.general.protect == Protection::ReadOnly;
        Some(Msg::ConfigAdopted(
            fleet_model(config),
            rows.collect(),
            read_only,
        ))
    }

    /// Writes the draft of the editor to the disk, before the program stops.
    pub fn write_draft(&self) {
        self.drafts.write_last();
    }

    /// Writes the text of the editor to the disk, before anything that may wait: to `root`, or
    /// else to `/tmp`, if the archive cannot be written. Returns what to tell the operator then.
    pub fn finish_drafts(&mut self, root: &TemporaryRoot) -> Option<String> {
        let finished = self.drafts.finish(root);
        finished.err().map(|error| error.to_line())
    }

    /// Shuts down: lets a run finish its current agent and a plan over baselines its files, and saves
    /// the observations, if there are any to be saved. `wait` says its text, waits for the end of such work and returns false if
    /// the operator ends the wait; this then returns false at once.
    pub fn shut_down(
        mut self,
        inbox: Receiver<Msg>,
        observations: Option<Vec<&Observation>>,
        mut wait: impl FnMut(&RunHandle, &str) -> bool,
    ) -> bool {
        // A run that waits for the main thread must not block for ever.
        drop(inbox);
        self.prompt_broker.close();
        for (work, text) in [
            (self.run_handle.take(), RUN_WAIT_TEXT),
            (self.baseline_write_handle.take(), BASELINES_WAIT_TEXT),
            (self.prune_handle.take(), PRUNE_WAIT_TEXT),
        ] {
            if let Some(work) = work.filter(is_run_active)
                && !wait(&work, text)
            {
                return false;
            }
        }
        if let Some(keeper) = self.view_state_writer.take() {
            keeper.shut_down();
        }
        let Workers {
            fleet,
            fleet_events,
            ..
        } = self.workers;
        // A watch that waits for the main thread ends now.
        drop(fleet_events);
        fleet.stop(WATCH_END_LIMIT);
        // Closing the hosts ends the workers that wait for one.
        self.engine.hosts().close_all_hosts();
        if let Some(observations) = observations {
            // The saved observations are a convenience, so an error is ignored.
            let _ = self.engine.observer().save_observations(observations);
        }
        true
    }
}

/// Reports what happened since the last evening.
fn load_report(engine: &Engine) -> Result<ReportText> {
    let report = engine.reports().report(moment::last_evening(
        engine.clock().now(),
        engine.clock().zone(),
    ))?;
    Ok(ReportText::from(&report))
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

/// Returns the properties of the fleet that the console shows.
pub fn fleet_model(config: &Config) -> FleetConfig {
    FleetConfig {
        name: config.general.fleet_name.clone(),
        tag: config.general.fleet_tag.clone(),
        config_path: config.path.display().to_string(),
        invocation: config.invocation.clone(),
        retention_days: config.general.archive_retention_days,
    }
}

/// Reports why older records of the ledger are missing from what is shown.
fn report_unread_records(jobs: &JobQueue, unread: Option<Error>) {
    if let Some(error) = unread {
        let text = format!("older records are not shown: {error}");
        // The main thread may have ended.
        let _ = jobs.send(Msg::Reported(MessageLevel::Error, text));
    }
}

fn make_plan(engine: &Engine, request: &PlanRequest, unlocked: bool) -> Result<Plan> {
    match request {
        PlanRequest::Reset(agents) => engine.planner().plan_reset(agents, unlocked),
        PlanRequest::Push(agents, ScratchRequest::Selection(selection)) => {
            engine.planner().plan_push(agents, selection, unlocked)
        }
        PlanRequest::Push(agents, ScratchRequest::Chosen(lines)) => engine
            .planner()
            .plan_push_of_chosen(agents, lines, unlocked),
        PlanRequest::Edit { agent, request } => {
            let planned = engine.layouts().plan(agent, request, unlocked)?;
            Ok(planned.plan)
        }
        PlanRequest::Undo(target, mode) => engine.planner().plan_undo(target, *mode, unlocked),
    }
}

fn prepare_run_diff(engine: &Engine, agent: &str, seq: u64) -> Result<PreparedText> {
    let deadline = engine.clock().instant() + agent_texts::DIFF_TIMEOUT;
    let agent = engine.agent(agent)?;
    if let Some(edited) = engine.history().edited_files(agent, seq)? {
        let layout = agent.layout.as_ref();
        let root = layout.map_or(Path::new(""), |layout| &layout.directory);
        let EditedFiles { changes, edits } = edited;
        return Ok(text::prepare_recorded_changes(
            root,
            &changes,
            &edits,
            Some(deadline),
        ));
    }
    let diff = engine.history().run_diff(agent, seq)?;
    Ok(text::prepare_run_diff(&diff, Some(deadline)))
}

#[cfg(test)]
mod tests;
