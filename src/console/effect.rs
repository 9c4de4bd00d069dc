//! Carries effects out against the engine, away from the screen's thread; the
//! answers come back as messages. The only bridge between the two.

mod facts;
mod files;
mod hand;
mod texts;
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

use super::kept::{self, ViewStateWriter};
use super::model::{
    ClipboardText, Edit, FleetModel as FleetInfo, MAX_RUNS, MessageLevel, PagerText, PlanRequest,
    RunSummary,
};
use super::preferences::LoadedPreferences;
use super::text;
use super::theme::Themes;
use super::update::{Effect, Msg};
use crate::clock::Clock;
use crate::config::{self, Agent, Config, Env, Host, Protect};
use crate::demo;
use crate::digest::Digest;
use crate::durable;
use crate::engine::{
    Address, Engine, Event, Fleet, FleetEvent, Observation, Operation, Outcome, Plan,
};
use crate::error::{Error, Result};
use crate::transport::sftp::askpass::{self, PromptBroker};
use files::FileJob;
pub use files::{Loaded, LoadedTheme};
use hand::HandoffJob;
use texts::TextWorkers;
pub use texts::findings;

/// How many plans are made at the same time: one that waits for a host that was
/// never tried before keeps nobody else's waiting.
const PLAN_WORKERS: usize = 4;

/// How many records the runs of the log have together at most.
const MAX_LOG_RECORDS: usize = 50_000;

/// How many records of an agent's history are shown.
const MAX_HISTORY_RECORDS: usize = 1000;

/// How many messages may wait for the screen; then whoever sends waits.
const MAX_QUEUED_MESSAGES: usize = 64;

/// Every engine counts its generations from 1. The texts of a later engine have
/// to win over those that an earlier one still had on the way, so they count from
/// here times its number.
const GENERATIONS_PER_ENGINE: u64 = 1 << 40;

/// How long a config file has to stay the same before it is read.
const CONFIG_DEBOUNCE: Duration = Duration::from_millis(50);

/// How often that is waited for.
const CONFIG_DEBOUNCE_ATTEMPTS: usize = 40;

/// What the config file held when it was read last.
type ConfigDigest = Arc<Mutex<Option<Digest>>>;

/// Makes an engine for a config that was changed.
pub type Rebuild = Arc<dyn Fn(Config) -> Engine + Send + Sync>;

/// What a run in progress holds: nothing ever comes of it but its end.
pub type RunHandle = Receiver<Infallible>;

/// What a changed config is read with.
#[derive(Clone)]
struct Reader {
    env: Env,
    rebuild: Rebuild,
    known: ConfigDigest,
}

/// Runs effects.
pub struct EffectRunner {
    engine: Arc<Engine>,
    desk: PromptBroker,
    messages: Sender<Msg>,
    workers: Workers,
    run: Option<RunHandle>,
    cancel: Arc<AtomicBool>,
    reader: Reader,
    /// The engine of a changed config that is not in force yet.
    next: Option<Arc<Engine>>,
    host: Option<Arc<demo::host::Host>>,
    /// How many engines there were before this one.
    engines: u64,
    keeper: Option<ViewStateWriter>,
    chores: Sender<FileJob>,
    /// It has a sender of its own, so that it stays open.
    brought: (Sender<Loaded>, Receiver<Loaded>),
}

/// Files of the operator's own.
pub struct UserFiles {
    /// The preferences, and what they said when the console began.
    pub preferences: Option<(PathBuf, LoadedPreferences)>,
    /// How the fleet is looked at.
    pub kept: Option<kept::ViewStateFile>,
}

/// Those who answer effects for one engine. They end when this is dropped.
struct Workers {
    fleet: Fleet,
    /// What the watch of the fleet tells. What one of an engine before had on the way
    /// is gone with it. It has a sender of its own, so that it stays open.
    news: (Sender<FleetEvent>, Receiver<FleetEvent>),
    texts: TextWorkers,
    plans: Sender<Wanted>,
    settings: Sender<Host>,
    past: Sender<Look>,
    errands: Sender<HandoffJob>,
    jobs: Sender<Job>,
}

/// What is wanted of an agent's history: all of it, or one record.
type Look = (String, Option<u64>);

/// A plan that is wanted: the number of the request, what for, and whether
/// protected agents are unlocked.
type Wanted = (u64, PlanRequest, bool);

enum Job {
    LoadLog,
    ReadConfig(Reader),
    Remember,
}

impl EffectRunner {
    /// Starts watching the fleet, and everything that answers effects.
    pub fn start(
        engine: Arc<Engine>,
        (desk, events): (PromptBroker, Receiver<askpass::Event>),
        env: Env,
        rebuild: Rebuild,
        host: Option<Arc<demo::host::Host>>,
        own: UserFiles,
    ) -> (EffectRunner, Receiver<Msg>) {
        let (messages, inbox) = bounded(MAX_QUEUED_MESSAGES);
        let out = messages.clone();
        guarded(messages.clone(), move || {
            for event in events {
                if out.send(Msg::Desk(event)).is_err() {
                    return; // The screen has gone.
                }
            }
        });
        let workers = Workers::start(&engine, 0, &messages);
        // What the fleet looked like last time is shown until it has been read.
        drop(workers.jobs.send(Job::Remember));
        if let Some((path, known)) = own.preferences {
            let (clock, out) = (engine.shared_clock(), messages.clone());
            guarded(messages.clone(), move || {
                watch::preferences(&path, known, &*clock, &out);
            });
        }
        let keeper = own
            .kept
            .map(|place| ViewStateWriter::start(place, engine.shared_clock(), messages.clone()));
        let (chores, wanted) = unbounded();
        let brought = unbounded();
        let out = brought.0.clone();
        guarded(messages.clone(), move || files::run(&wanted, &out));
        let runner = EffectRunner {
            engine,
            desk,
            messages,
            workers,
            run: None,
            cancel: Arc::default(),
            reader: Reader {
                env,
                rebuild,
                known: ConfigDigest::default(),
            },
            next: None,
            host,
            engines: 0,
            keeper,
            chores,
            brought,
        };
        (runner, inbox)
    }

    /// Carries out an effect that concerns the engine.
    pub fn carry_out(&mut self, effect: Effect) {
        // A worker that is gone has said so by itself.
        let workers = &mut self.workers;
        match effect {
            Effect::Read(agents) => workers.fleet.read(agents),
            Effect::ReadHost(host) => {
                let there =
                    |agent: &&Agent| agent.place.host().is_some_and(|it| it.login() == host);
                let agents = self.engine.config().agents.iter().filter(there);
                workers
                    .fleet
                    .read(agents.map(|agent| agent.name.clone()).collect());
            }
            Effect::LetAsk(agents) => {
                let agents = agents
                    .iter()
                    .filter_map(|name| self.engine.agent(name).ok());
                for host in agents.filter_map(|agent| agent.place.host()) {
                    self.desk.let_ask(host);
                }
            }
            Effect::Answer(question, answer) => self.desk.answer(question, &answer),
            Effect::Refuse(question) => self.desk.refuse(question),
            Effect::Texts(agent) => workers.texts.want(agent),
            Effect::Patch(agent) => workers.texts.want_patch(agent),
            Effect::Entry(agent, entry) => {
                drop(workers.errands.send(HandoffJob::Entry(agent, entry)));
            }
            Effect::Baseline(agent) => drop(workers.errands.send(HandoffJob::Baseline(agent))),
            Effect::Plan(id, request, unlocked) => {
                drop(workers.plans.send((id, request, unlocked)));
            }
            Effect::History(agent) => drop(workers.past.send((agent, None))),
            Effect::Passed(agent, seq) => drop(workers.past.send((agent, Some(seq)))),
            Effect::Settings(host) => drop(workers.settings.send(host)),
            Effect::LoadLog => drop(workers.jobs.send(Job::LoadLog)),
            Effect::Keep(view) => {
                if let Some(keeper) = &self.keeper {
                    keeper.keep(view);
                }
            }
            Effect::HostAway(away) => self.host_away(away),
            Effect::Apply(plan) => self.apply(*plan),
            Effect::Cancel => self.cancel.store(true, Ordering::Relaxed),
            // These are the screen's.
            Effect::Copy(_)
            | Effect::CopyByTerminal(_)
            | Effect::Edit(_)
            | Effect::Page(_)
            | Effect::Theme(_)
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => {}
        }
    }

    /// Reads a theme; `asked`: the operator asked for it just now.
    pub fn theme(&self, themes: &Themes, name: &str, asked: bool) {
        let name = name.to_string();
        drop(
            self.chores
                .send(FileJob::Theme(themes.clone(), name, asked)),
        );
    }

    /// Writes a text for the pager into a folder.
    pub fn page(&self, number: u64, folder: &Path, page: PagerText) {
        drop(
            self.chores
                .send(FileJob::Page(number, folder.to_path_buf(), page)),
        );
    }

    /// Where themes and texts for the pager come.
    pub fn brought(&self) -> &Receiver<Loaded> {
        &self.brought.1
    }

    /// Where the fleet in force tells how it is.
    pub fn news(&self) -> &Receiver<FleetEvent> {
        &self.workers.news.1
    }

    /// Puts a text on the clipboard by one of these programs.
    pub fn copy(&self, copiers: Vec<&'static [&'static str]>, clip: ClipboardText) {
        drop(self.workers.errands.send(HandoffJob::Copy(copiers, clip)));
    }

    /// Looks at a baseline after somebody had it in an editor.
    pub fn edited(&self, edit: Box<Edit>) {
        drop(self.workers.errands.send(HandoffJob::Edited(edit)));
    }

    fn host_away(&self, away: bool) {
        let Some(host) = &self.host else { return };
        match away {
            true => host.go_away(),
            false => {
                if let Err(error) = host.come_back() {
                    let note = Msg::Note(MessageLevel::Error, error.to_string());
                    let _ = self.messages.try_send(note);
                }
            }
        }
    }

    fn apply(&mut self, plan: Plan) {
        self.cancel = Arc::default();
        let (engine, cancel) = (Arc::clone(&self.engine), Arc::clone(&self.cancel));
        let messages = self.messages.clone();
        let (going, run) = bounded(0);
        self.run = Some(run);
        guarded(self.messages.clone(), move || {
            let _going: Sender<Infallible> = going;
            let report = engine.apply(&plan, true, &cancel, &mut |progress| {
                // The screen may be gone; the run goes on all the same.
                let _ = messages.send(Msg::Progress(progress));
            });
            let _ = messages.send(Msg::Ended(Box::new(report)));
        });
    }

    /// Takes in what is not the screen's; what is, comes back.
    pub fn intercept(&mut self, msg: Msg) -> Option<Msg> {
        match msg {
            Msg::ConfigChanged => {
                self.read_config();
                None
            }
            Msg::ConfigRead(engine) => {
                self.next = Some(engine);
                let text = "the configuration was changed; it waits for the end of the run";
                let waits = self.run.as_ref().is_some_and(is_going);
                waits.then(|| Msg::Note(MessageLevel::Info, text.to_string()))
            }
            Msg::ConfigBroken(_) => {
                // What waits is not what the file says any more.
                self.next = None;
                Some(msg)
            }
            msg => Some(msg),
        }
    }

    /// Reads the config anew, after its file changed.
    fn read_config(&self) {
        let job = Job::ReadConfig(self.reader.clone());
        drop(self.workers.jobs.send(job));
    }

    /// The theme that the config in force names.
    pub fn fleets_theme(&self) -> &str {
        &self.engine.config().general.theme
    }

    /// Goes on with a changed config, if there is one. Not while a run is in
    /// progress: it would have two engines at once.
    pub fn adopt_config(&mut self) -> Option<Msg> {
        self.engine = self.next.take()?;
        self.engine.leave_others();
        self.engines += 1;
        let first = self.engines * GENERATIONS_PER_ENGINE;
        self.workers = Workers::start(&self.engine, first, &self.messages);
        // The file may have changed while nobody watched it.
        self.read_config();
        let config = self.engine.config();
        let agents = config.agents.iter();
        let agents = agents.map(|agent| (agent.name.clone(), Address::of(&agent.place)));
        let read_only = config.general.protect == Protect::ReadOnly;
        Some(Msg::ConfigLoaded(info(config), agents.collect(), read_only))
    }

    /// Ends: lets a run finish the agent in hand, and remembers what the fleet
    /// looked like. `wait` waits for the end of a run, or answers false when the
    /// operator does not want to: then nothing more is done, and this does, too.
    pub fn end(
        mut self,
        inbox: Receiver<Msg>,
        seen: &[Observation],
        wait: impl FnOnce(&RunHandle) -> bool,
    ) -> bool {
        // A run that waits for the screen must not wait for ever.
        drop(inbox);
        self.desk.close();
        if !self
            .run
            .take()
            .is_none_or(|run| !is_going(&run) || wait(&run))
        {
            return false;
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.end();
        }
        // Whoever waits for a host need not be waited for.
        self.engine.leave();
        // Only a convenience: an archive that cannot be written has none.
        let _ = self.engine.remember(seen);
        true
    }
}

/// Whether a run has not ended yet. A panic in it is its end, too.
fn is_going(run: &RunHandle) -> bool {
    matches!(run.try_recv(), Err(TryRecvError::Empty))
}

/// What the watch of a fleet tells, as a message.
pub fn told(event: FleetEvent) -> Msg {
    match event {
        FleetEvent::Observed(seen) => Msg::Observed(seen),
        FleetEvent::Hosts(hosts) => Msg::Hosts(hosts),
        FleetEvent::ConfigChanged => Msg::ConfigChanged,
        FleetEvent::Note(text) => Msg::Note(MessageLevel::Warn, text),
    }
}

/// What the console shows of a config.
pub fn info(config: &Config) -> FleetInfo {
    FleetInfo {
        name: config.general.fleet_name.clone(),
        tag: config.general.fleet_tag.clone(),
        config: config.path.display().to_string(),
        invocation: config.invocation.clone(),
        retention_days: config.general.archive_retention_days,
        memories: config.agents.iter().map(memory).collect(),
    }
}

/// Where the memory of an agent is, as `scp` would take it.
fn memory(agent: &Agent) -> (String, String) {
    let path = agent.place.memory().display();
    let place = match agent.place.host() {
        Some(host) => format!("{}:{path}", host.name),
        None => path.to_string(),
    };
    (agent.name.clone(), place)
}

impl Workers {
    fn start(engine: &Arc<Engine>, first: u64, messages: &Sender<Msg>) -> Workers {
        let (plans, wanted) = unbounded::<Wanted>();
        for _ in 0..PLAN_WORKERS {
            let wanted = wanted.clone();
            worker(engine, messages, move |own, out| plan(own, &wanted, out));
        }
        let (settings, hosts) = unbounded();
        worker(engine, messages, move |own, out| look_up(own, &hosts, out));
        let (past, looks) = unbounded();
        worker(engine, messages, move |own, out| {
            look_back(own, &looks, out)
        });
        let (errands, wanted) = unbounded();
        worker(engine, messages, move |own, out| {
            hand::run(own, &wanted, out)
        });
        let (jobs, queue) = unbounded();
        worker(engine, messages, move |own, out| do_jobs(own, &queue, out));
        let news = bounded(MAX_QUEUED_MESSAGES);
        Workers {
            fleet: Fleet::start(Arc::clone(engine), news.0.clone()),
            news,
            texts: TextWorkers::new(engine, first, messages),
            plans,
            settings,
            past,
            errands,
            jobs,
        }
    }
}

fn worker(
    engine: &Arc<Engine>,
    messages: &Sender<Msg>,
    work: impl FnOnce(&Engine, &Sender<Msg>) + Send + 'static,
) {
    let (own, out) = (Arc::clone(engine), messages.clone());
    guarded(messages.clone(), move || work(&own, &out));
}

/// A thread whose panic is said on the screen instead of taking it down.
fn guarded(messages: Sender<Msg>, work: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            let text = "a fault in this program stopped a part of it; leave and start it again, and please report it";
            let _ = messages.send(Msg::Note(MessageLevel::Error, text.to_string()));
        }
    });
}

fn do_jobs(engine: &Engine, queue: &Receiver<Job>, messages: &Sender<Msg>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| queue.recv().ok()) {
        if matches!(job, Job::LoadLog) {
            // One answer does for all that wait.
            next = queue.try_iter().find(|job| !matches!(job, Job::LoadLog));
        }
        let message = match job {
            Job::ReadConfig(reader) => {
                let path = &engine.config().path;
                let digest = settled(engine.clock(), path);
                let mut known = reader.known.lock().unwrap_or_else(PoisonError::into_inner);
                if *known == Some(digest) {
                    continue;
                }
                *known = Some(digest);
                match config::reload(path, &reader.env) {
                    // It may ask for its group, which may take a while.
                    Ok(mut config) => {
                        config.invocation = engine.config().invocation.clone();
                        Msg::ConfigRead(Arc::new((reader.rebuild)(config)))
                    }
                    Err(problems) => Msg::ConfigBroken(problems.0),
                }
            }
            Job::Remember => Msg::Remembered(engine.remembered()),
            Job::LoadLog => Msg::Log(runs(engine).map_err(|error| error.to_string())),
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// The digest of a file, once it stays the same for a moment: many
/// programs empty a file and then write it, and an empty config is a valid one. One
/// that cannot be read has that of the reason.
fn settled(clock: &dyn Clock, path: &Path) -> Digest {
    let read = || match durable::read_regular(path, config::FILE_MAX) {
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

fn plan(engine: &Engine, wanted: &Receiver<Wanted>, messages: &Sender<Msg>) {
    for (id, request, unlocked) in wanted {
        let plan = make_plan(engine, &request, unlocked);
        if messages.send(Msg::Planned(id, plan.map(Box::new))).is_err() {
            return;
        }
    }
}

/// Asks what the setup for hosts comes to. When several are wanted, only the last
/// one is.
fn look_up(engine: &Engine, hosts: &Receiver<Host>, messages: &Sender<Msg>) {
    while let Ok(mut host) = hosts.recv() {
        while let Ok(newer) = hosts.try_recv() {
            host = newer;
        }
        let settings = engine.settings(&host).map_err(|error| error.to_string());
        if messages.send(Msg::Settings(host, settings)).is_err() {
            return;
        }
    }
}

/// Reads what was done to agents. When the same is wanted several times, once is
/// enough.
fn look_back(engine: &Engine, looks: &Receiver<Look>, messages: &Sender<Msg>) {
    while let Ok(first) = looks.recv() {
        let mut wanted = vec![first];
        for look in looks.try_iter() {
            wanted.retain(|other| *other != look);
            wanted.push(look);
        }
        for (name, seq) in wanted {
            let message = match seq {
                None => {
                    let past = engine.past(&name, MAX_HISTORY_RECORDS);
                    Msg::History(name, past.map_err(|error| error.to_string()))
                }
                Some(seq) => {
                    let passed = engine.agent(&name).and_then(|it| engine.passed(it, seq));
                    let deadline = engine.clock().instant() + texts::DIFF_TIME;
                    let text = passed.map(|passed| text::passed(&passed, Some(deadline)));
                    Msg::Passed(name, seq, text.map_err(|error| error.to_string()))
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

/// The last runs of the ledger, at most [`MAX_RUNS`], the youngest first.
///
/// # Errors
/// A ledger that cannot be read or is broken.
pub fn runs(engine: &Engine) -> Result<Vec<RunSummary>> {
    let (mut names, mut records) = (HashSet::new(), Vec::new());
    engine.last_records(|record| {
        names.insert(record.what.run.clone());
        let fits = names.len() <= MAX_RUNS && records.len() < MAX_LOG_RECORDS;
        if fits {
            records.push((record.time, record.what));
        }
        fits
    })?;
    Ok(in_runs(records.into_iter().rev()))
}

/// Records in the order of the ledger as runs: the last ones, the youngest first.
fn in_runs(records: impl Iterator<Item = (DateTime<FixedOffset>, Event)>) -> Vec<RunSummary> {
    let mut runs: Vec<RunSummary> = Vec::new();
    // Where the last part of each run is.
    let mut places: HashMap<String, usize> = HashMap::new();
    for (time, event) in records {
        if event.act == Operation::Retire {
            if let Some(place) = places.get(&event.run) {
                runs[*place].retired += event.retired.len();
            }
            continue;
        }
        if event.agent.is_empty() && matches!(event.act, Operation::Reset | Operation::Undo) {
            if let Some(place) = places.get(&event.run) {
                runs[*place].trouble = event.note;
            }
            continue;
        }
        let undone = event
            .undoes
            .as_ref()
            .filter(|_| event.act == Operation::Undo);
        let undone = undone.and_then(|undone| places.get(undone).copied());
        // What an undo of an undo brings back.
        let redone = undone.and_then(|place| {
            let mut undos = runs[place].events.iter();
            let undo = undos.find(|it| it.agent == event.agent)?;
            undo.undoes.clone()
        });
        let redo = redone.is_some();
        // One that was refused or failed took nothing back.
        if let Some(place) = undone.filter(|_| event.outcome == Outcome::Ok) {
            let undone = &mut runs[place].undone;
            undone.retain(|agent| *agent != event.agent);
            undone.push(event.agent.clone());
            if let Some(place) = redone.and_then(|run| places.get(&run)) {
                runs[*place].undone.retain(|agent| *agent != event.agent);
            }
        }
        match runs.last_mut() {
            Some(last) if last.run == event.run => {
                last.time = time;
                last.events.push(event);
            }
            _ => {
                places.insert(event.run.clone(), runs.len());
                runs.push(RunSummary {
                    run: event.run.clone(),
                    time,
                    events: vec![event],
                    undone: Vec::new(),
                    redo,
                    retired: 0,
                    trouble: None,
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
