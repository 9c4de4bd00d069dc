//! Carries effects out against the engine, away from the screen's thread; the
//! answers come back as messages. The only bridge between the two.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::model::{Fleet as FleetInfo, Level, Request, RunSummary};
use super::text;
use super::update::{Effect, Msg, Texts};
use crate::config::{self, Agent, Config, Env, Protect};
use crate::digest::Digest;
use crate::engine::{Act, Detail, Engine, Fleet, FleetEvent, Observation, Plan};
use crate::error::{Error, Result};
use crate::transport::sftp::askpass::{self, Desk};

/// How long a diff for the screen may take before it is shown coarser.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// How many messages may wait for the screen; then whoever sends waits.
const WAITING: usize = 64;

/// Every engine counts its generations from 1. What comes of a later engine has
/// to win over what an earlier one still had on the way, so it counts from here
/// times its number.
const GENERATIONS: u64 = 1 << 40;

/// How long a config file has to stay the same before it is read.
const SETTLE: Duration = Duration::from_millis(50);

/// How often that is waited for.
const SETTLE_TRIES: usize = 40;

/// What the config file held when it was read last.
type Known = Arc<Mutex<Option<Digest>>>;

/// Makes an engine for a config that was changed.
pub type Rebuild = Box<dyn Fn(Config) -> Engine + Send>;

/// Runs effects.
pub struct Runner {
    engine: Arc<Engine>,
    desk: Desk,
    fleet: Fleet,
    messages: Sender<Msg>,
    texts: Sender<String>,
    jobs: Sender<Job>,
    run: Option<JoinHandle<()>>,
    cancel: Arc<AtomicBool>,
    env: Env,
    rebuild: Rebuild,
    /// How many engines there were before this one.
    engines: u64,
    known: Known,
}

enum Job {
    Plan(u64, Request, bool),
    LoadLog,
    ReadConfig(Env, Known),
    Remember,
}

impl Runner {
    /// Starts watching the fleet, and everything that answers effects.
    pub fn start(
        engine: Arc<Engine>,
        (desk, events): (Desk, Receiver<askpass::Event>),
        env: Env,
        rebuild: Rebuild,
    ) -> (Runner, Receiver<Msg>) {
        let (messages, inbox) = bounded(WAITING);
        let out = messages.clone();
        guarded(messages.clone(), move || {
            for event in events {
                if out.send(Msg::Desk(event)).is_err() {
                    return; // The screen has gone.
                }
            }
        });
        let (texts, jobs, fleet) = workers(&engine, 0, &messages);
        // What the fleet looked like last time is shown until it has been read.
        drop(jobs.send(Job::Remember));
        let runner = Runner {
            engine,
            desk,
            fleet,
            messages,
            texts,
            jobs,
            run: None,
            cancel: Arc::default(),
            env,
            rebuild,
            engines: 0,
            known: Known::default(),
        };
        (runner, inbox)
    }

    /// Carries out an effect that concerns the engine.
    pub fn carry_out(&mut self, effect: Effect) {
        // A worker that is gone has said so by itself.
        match effect {
            Effect::Read(agents) => self.fleet.read(agents),
            Effect::ReadHost(host) => {
                let there = |agent: &&Agent| agent.place.host().is_some_and(|it| it.name == host);
                let agents = self.engine.config().agents.iter().filter(there);
                self.fleet
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
            Effect::Texts(agent) => drop(self.texts.send(agent)),
            Effect::Plan(id, request, unlocked) => {
                drop(self.jobs.send(Job::Plan(id, request, unlocked)));
            }
            Effect::LoadLog => drop(self.jobs.send(Job::LoadLog)),
            Effect::Apply(plan) => self.apply(*plan),
            Effect::Cancel => self.cancel.store(true, Ordering::Relaxed),
            Effect::Redraw | Effect::Suspend | Effect::Quit => {}
        }
    }

    fn apply(&mut self, plan: Plan) {
        self.cancel = Arc::default();
        let (engine, cancel) = (Arc::clone(&self.engine), Arc::clone(&self.cancel));
        let messages = self.messages.clone();
        self.run = Some(guarded(self.messages.clone(), move || {
            let report = engine.apply(&plan, true, &cancel, &mut |progress| {
                // The screen may be gone; the run goes on all the same.
                let _ = messages.send(Msg::Progress(progress));
            });
            let _ = messages.send(Msg::Ended(Box::new(report)));
        }));
    }

    /// Waits until a run has ended: what it has in hand is finished.
    fn wait_for_run(&mut self) {
        if let Some(run) = self.run.take() {
            // A panic in it was caught and said already.
            let _ = run.join();
        }
    }

    /// Reads the config anew, after its file changed.
    pub fn read_config(&self) {
        drop(
            self.jobs
                .send(Job::ReadConfig(self.env.clone(), Arc::clone(&self.known))),
        );
    }

    /// Goes on with a changed config. Not while a run is in progress: it would
    /// have two engines at once.
    pub fn take_config(&mut self, config: Config) -> Msg {
        let names = config
            .agents
            .iter()
            .map(|agent| agent.name.clone())
            .collect();
        let info = info(&config);
        let read_only = config.general.protect == Protect::ReadOnly;
        self.engine = Arc::new((self.rebuild)(config));
        self.engines += 1;
        let first = self.engines * GENERATIONS;
        (self.texts, self.jobs, self.fleet) = workers(&self.engine, first, &self.messages);
        // The file may have changed while nobody watched it.
        self.read_config();
        Msg::ConfigLoaded(info, names, read_only)
    }

    /// Ends: lets a run finish the agent in hand, and remembers what the fleet
    /// looked like.
    pub fn end(mut self, inbox: Receiver<Msg>, seen: &[Observation]) {
        // A run that waits for the screen must not wait for ever.
        drop(inbox);
        self.desk.close();
        self.wait_for_run();
        // Only a convenience: an archive that cannot be written has none.
        let _ = self.engine.remember(seen);
    }
}

/// What the console shows of a config.
pub fn info(config: &Config) -> FleetInfo {
    FleetInfo {
        name: config.general.fleet_name.clone(),
        tag: config.general.fleet_tag.clone(),
        config: config.path.display().to_string(),
        retention_days: config.general.archive_retention_days,
    }
}

/// Starts what answers effects for one engine. It ends when the senders go.
fn workers(
    engine: &Arc<Engine>,
    first: u64,
    messages: &Sender<Msg>,
) -> (Sender<String>, Sender<Job>, Fleet) {
    let (texts, wanted) = unbounded::<String>();
    let (own, out) = (Arc::clone(engine), messages.clone());
    guarded(messages.clone(), move || {
        prepare_texts(&own, first, &wanted, &out)
    });
    let (jobs, queue) = unbounded();
    let (own, out) = (Arc::clone(engine), messages.clone());
    guarded(messages.clone(), move || do_jobs(&own, &queue, &out));
    let (events, seen) = bounded(WAITING);
    let fleet = Fleet::start(Arc::clone(engine), events);
    let out = messages.clone();
    guarded(messages.clone(), move || pass_on(first, &seen, &out));
    (texts, jobs, fleet)
}

/// A thread whose panic is said on the screen instead of taking it down.
fn guarded(messages: Sender<Msg>, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            let text = "a fault in this program stopped a part of it; leave and start it again, and please report it";
            let _ = messages.send(Msg::Note(Level::Error, text.to_string()));
        }
    })
}

fn pass_on(first: u64, events: &Receiver<FleetEvent>, messages: &Sender<Msg>) {
    for event in events {
        let message = match event {
            FleetEvent::Observed(mut seen) => {
                for seen in &mut seen {
                    seen.generation += first;
                }
                Msg::Observed(seen)
            }
            FleetEvent::ConfigChanged => Msg::ConfigChanged,
            FleetEvent::Note(text) => Msg::Note(Level::Warn, text),
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// Prepares texts. When several are wanted, only the last one is.
fn prepare_texts(engine: &Engine, first: u64, wanted: &Receiver<String>, messages: &Sender<Msg>) {
    while let Ok(mut name) = wanted.recv() {
        while let Ok(newer) = wanted.try_recv() {
            name = newer;
        }
        let Ok(agent) = engine.agent(&name) else {
            continue;
        };
        let detail = engine.detail(agent);
        let deadline = engine.clock().instant() + DIFF_TIME;
        let texts = Texts {
            agent: name,
            generation: detail.observation.generation + first,
            diff: text::diff(&detail, Some(deadline)),
            scratch: text::scratch(&detail),
            findings: findings(&detail),
        };
        if messages.send(Msg::Texts(Box::new(texts))).is_err() {
            return;
        }
    }
}

/// What is remarkable about a file, in a line.
fn findings(detail: &Detail) -> String {
    let Some(content) = &detail.observation.content else {
        return detail.observation.why.clone();
    };
    let mut found = Vec::new();
    match &content.boundary {
        Some(boundary) if boundary.line > 0 => {
            found.push(format!(
                "separator L{} ({} of {})",
                boundary.line, boundary.nth, boundary.of
            ));
        }
        Some(_) => found.push("the baseline has no separator".to_string()),
        None => found.push("no separator".to_string()),
    }
    let hidden = content.hidden;
    for (count, one, many) in [
        (
            hidden.invisible,
            "invisible character",
            "invisible characters",
        ),
        (hidden.controls, "control character", "control characters"),
        (hidden.escapes, "of them an escape", "of them escapes"),
        (
            hidden.invalid,
            "byte that is no UTF-8",
            "bytes that are no UTF-8",
        ),
    ] {
        match count {
            0 => {}
            1 => found.push(format!("1 {one}")),
            count => found.push(format!("{count} {many}")),
        }
    }
    if crate::untrusted::mixed_scripts(&detail.memory) {
        found.push("words of mixed scripts".to_string());
    }
    if content.size > detail.observation.limit {
        found.push(format!(
            "over the limit by {} bytes",
            content.size - detail.observation.limit
        ));
    }
    if let Some(block) = &detail.observation.block {
        found.push(format!("resets are BLOCKED: {}", block.why));
    }
    found.join(" · ")
}

fn do_jobs(engine: &Engine, queue: &Receiver<Job>, messages: &Sender<Msg>) {
    for job in queue {
        let message = match job {
            Job::Plan(id, request, unlocked) => {
                let plan = make_plan(engine, &request, unlocked);
                Msg::Planned(id, plan.map(Box::new))
            }
            Job::ReadConfig(env, known) => {
                let digest = settled(engine);
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if *known == Some(digest) {
                    continue;
                }
                *known = Some(digest);
                match config::load(&engine.config().path, &env) {
                    Ok(config) => Msg::ConfigRead(Box::new(config)),
                    Err(problems) => Msg::ConfigBroken(problems.to_string()),
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

/// The digest of the config file, once it stays the same for a moment: many
/// programs empty a file and then write it, and an empty config is a valid one.
fn settled(engine: &Engine) -> Digest {
    let read = || Digest::of(&std::fs::read(&engine.config().path).unwrap_or_default());
    let mut digest = read();
    for _ in 0..SETTLE_TRIES {
        engine.clock().sleep(SETTLE);
        let next = read();
        if next == digest {
            break;
        }
        digest = next;
    }
    digest
}

fn make_plan(engine: &Engine, request: &Request, unlocked: bool) -> Result<Plan, Error> {
    match request {
        Request::Reset(agents) => engine.plan_reset(agents, unlocked),
        Request::Undo(target, mode) => engine.plan_undo(target, *mode, unlocked),
    }
}

/// The records of the ledger as runs, the youngest first.
///
/// # Errors
/// A ledger that cannot be read or is broken.
pub fn runs(engine: &Engine) -> Result<Vec<RunSummary>> {
    let mut runs: Vec<RunSummary> = Vec::new();
    // Where the last part of each run is.
    let mut places: HashMap<String, usize> = HashMap::new();
    for record in engine.records()?.iter() {
        let event = record.what.clone();
        if event.act == Act::Retire {
            if let Some(place) = places.get(&event.run) {
                runs[*place].retired += event.retired.len();
            }
            continue;
        }
        if event.act == Act::Undo
            && let Some(undone) = &event.undoes
            && let Some(place) = places.get(undone)
        {
            runs[*place].undone.push(event.agent.clone());
        }
        match runs.last_mut() {
            Some(last) if last.run == event.run => {
                last.time = record.time;
                last.events.push(event);
            }
            _ => {
                places.insert(event.run.clone(), runs.len());
                runs.push(RunSummary {
                    run: event.run.clone(),
                    time: record.time,
                    events: vec![event],
                    undone: Vec::new(),
                    retired: 0,
                });
            }
        }
    }
    runs.reverse();
    Ok(runs)
}
