//! What goes on in the background: begun by an effect, ended by the message that
//! answers it. Nothing here spins: what is shown changes twice a second at most.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Model, Moment, ResetStage, Screen};
use crate::console::update::{Effect, Msg};

/// What takes less than this is not worth a row.
const MIN_SHOWN_DURATION: Duration = Duration::from_secs(1);

/// How often what is shown may change.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// How many plans that nobody answers are remembered.
const MAX_UNANSWERED_PLANS: usize = 64;

/// Something that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundJob {
    /// What it is, in words.
    pub what: String,
    /// Since when.
    pub since: Moment,
}

/// What was asked for and is not answered yet. Each queue has one row: what is
/// asked for last takes the place of what it was asked before.
#[derive(Clone, Debug, Default)]
pub struct BackgroundJobs {
    reads: BTreeMap<String, Moment>,
    queues: BTreeMap<JobQueue, PendingRequest>,
    /// What is on the screen, and since when.
    pub shown: Vec<BackgroundJob>,
    changed: Duration,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JobQueue {
    Plan(u64),
    /// The host's, for texts; none for this machine's.
    Texts(String),
    Patch(String),
    /// What was done to an agent, or what one record of it changed.
    Past(String, Option<u64>),
    Connect(String),
    Settings,
    Copy,
    Entry,
    Baseline,
    Log,
}

#[derive(Clone, Debug)]
struct PendingRequest {
    subject: String,
    job: BackgroundJob,
}

impl BackgroundJobs {
    /// These agents are going to be read.
    pub fn read(&mut self, agents: &[String], now: Moment) {
        for agent in agents {
            self.reads.entry(agent.clone()).or_insert(now);
        }
    }

    fn ask(&mut self, queue: JobQueue, subject: &str, what: String, now: Moment) {
        let waiting = self.queues.get(&queue).map(|asked| asked.job.since);
        let since = waiting.unwrap_or(now);
        let job = BackgroundJob { what, since };
        let subject = subject.to_string();
        self.queues.insert(queue, PendingRequest { subject, job });
        let plans = self
            .queues
            .keys()
            .filter(|it| matches!(it, JobQueue::Plan(_)));
        if plans.count() > MAX_UNANSWERED_PLANS {
            self.queues.pop_first();
        }
    }

    /// An answer. Where something else is wanted by now, that goes on.
    fn answered(&mut self, queue: &JobQueue, subject: &str, now: Moment) {
        match self.queues.get_mut(queue) {
            Some(asked) if asked.subject != subject => asked.job.since = now,
            _ => drop(self.queues.remove(queue)),
        }
    }
}

/// The queue that prepares the texts of an agent.
fn texts_of(model: &Model, agent: &str) -> String {
    let status = model.hosts.of(agent);
    status.map_or_else(String::new, |status| status.host.name.clone())
}

/// Takes note of what a message answers.
pub fn ended(model: &mut Model, msg: &Msg) {
    let now = model.now;
    let (queue, subject) = match msg {
        Msg::Observed(seen) => {
            for seen in seen {
                model.jobs.reads.remove(&seen.agent);
            }
            return;
        }
        Msg::Hosts(hosts) => {
            let known = |name: &String| model.row(name).is_some();
            // One of the config before tells nothing any more.
            let hosts = hosts.iter().filter(|it| it.agents.iter().any(known));
            for status in hosts.collect::<Vec<_>>() {
                // Several users of one host are several.
                let name = model.hosts.label(&status.host);
                let queue = JobQueue::Connect(name.clone());
                match status.contact.trying {
                    true => model
                        .jobs
                        .ask(queue, "", format!("connecting to {name}"), now),
                    false => model.jobs.answered(&queue, "", now),
                }
            }
            return;
        }
        Msg::ConfigLoaded(_, names, _) => {
            // Others answer now, and nobody what the old ones were asked.
            model.jobs = BackgroundJobs::default();
            let names: Vec<String> = names.iter().map(|(name, _)| name.clone()).collect();
            model.jobs.read(&names, now);
            return;
        }
        Msg::Planned(id, _) => (JobQueue::Plan(*id), String::new()),
        Msg::Texts(texts) => (
            JobQueue::Texts(texts_of(model, &texts.agent)),
            texts.agent.clone(),
        ),
        Msg::Patch(agent, _) => (JobQueue::Patch(agent.clone()), String::new()),
        Msg::History(agent, _) => (JobQueue::Past(agent.clone(), None), String::new()),
        Msg::Passed(agent, seq, _) => (JobQueue::Past(agent.clone(), Some(*seq)), String::new()),
        Msg::Settings(host, _) => (JobQueue::Settings, host.name.clone()),
        Msg::Copied(clip, _) => (JobQueue::Copy, clip.what.clone()),
        Msg::Entry(agent, ..) => (JobQueue::Entry, agent.clone()),
        Msg::Baseline(agent, _) => (JobQueue::Baseline, agent.clone()),
        Msg::Log(_) => (JobQueue::Log, String::new()),
        _ => return,
    };
    model.jobs.answered(&queue, &subject, now);
}

/// Takes note of what is asked for.
pub fn begun(model: &mut Model, effects: &[Effect]) {
    let now = model.now;
    for effect in effects {
        let (queue, subject, what) = match effect {
            Effect::Read(agents) => {
                let known = agents.iter().filter(|name| model.row(name).is_some());
                let known: Vec<String> = known.cloned().collect();
                model.jobs.read(&known, now);
                continue;
            }
            Effect::Plan(id, request, _) => {
                let what = match request.names() {
                    [] => "plan of an undo".to_string(),
                    [one] => format!("plan for {one}"),
                    many => format!("plan for {} agents", many.len()),
                };
                (JobQueue::Plan(*id), "", what)
            }
            // Nobody answers for who is not in the config any more.
            Effect::Texts(agent) | Effect::Patch(agent) if model.row(agent).is_none() => continue,
            Effect::Texts(agent) => (
                JobQueue::Texts(texts_of(model, agent)),
                agent.as_str(),
                format!("texts of {agent}"),
            ),
            Effect::Patch(agent) => (
                JobQueue::Patch(agent.clone()),
                "",
                format!("diff of {agent}, to be copied"),
            ),
            Effect::History(agent) => (
                JobQueue::Past(agent.clone(), None),
                "",
                format!("history of {agent}"),
            ),
            Effect::Passed(agent, seq) => (
                JobQueue::Past(agent.clone(), Some(*seq)),
                "",
                format!("what a run changed at {agent}"),
            ),
            Effect::Settings(host) => (
                JobQueue::Settings,
                host.name.as_str(),
                format!("ssh's settings for {}", host.name),
            ),
            Effect::Copy(clip) => (
                JobQueue::Copy,
                clip.what.as_str(),
                format!("copy {}", clip.what),
            ),
            Effect::Entry(agent, _) => (
                JobQueue::Entry,
                agent.as_str(),
                format!("an entry of {agent}"),
            ),
            Effect::Baseline(agent) => (
                JobQueue::Baseline,
                agent.as_str(),
                format!("the baseline of {agent}"),
            ),
            Effect::LoadLog => (JobQueue::Log, "", "the ledger".to_string()),
            _ => continue,
        };
        model.jobs.ask(queue, subject, what, now);
    }
}

impl Model {
    /// What goes on now, the oldest first.
    fn going_on(&self) -> Vec<BackgroundJob> {
        let jobs = &self.jobs;
        let mut list: Vec<BackgroundJob> = jobs.queues.values().map(|it| it.job.clone()).collect();
        if let Some(since) = jobs.reads.values().min_by_key(|it| it.since) {
            let what = match jobs.reads.len() {
                1 => format!("reading {}", jobs.reads.keys().next().map_or("", |it| it)),
                many => format!("reading {many} of {} agents", self.rows.len()),
            };
            list.push(BackgroundJob {
                what,
                since: *since,
            });
        }
        if let ResetStage::Run(run) = &self.reset.stage {
            let age = self.now.since.saturating_sub(run.began);
            let age = chrono::Duration::from_std(age).unwrap_or_default();
            list.push(BackgroundJob {
                what: format!(
                    "run: {} of {} agents done",
                    run.outcomes.len(),
                    run.plan.steps.len()
                ),
                since: Moment {
                    since: run.began,
                    wall: self.now.wall - age,
                },
            });
        }
        list.retain(|job| self.now.since >= job.since.since + MIN_SHOWN_DURATION);
        list.sort_by_key(|job| job.since.since);
        list
    }

    /// Shows what goes on now, unless that changed a moment ago; whether it looks
    /// different.
    pub fn refresh_jobs(&mut self) -> bool {
        let due =
            self.screen == Screen::Log && self.now.since >= self.jobs.changed + REFRESH_INTERVAL;
        if !due {
            return false;
        }
        let list = self.going_on();
        let differs = list != self.jobs.shown;
        if differs {
            self.jobs.shown = list;
            self.jobs.changed = self.now.since;
        }
        differs
    }

    /// Whether what is shown may have to change soon.
    pub fn has_jobs(&self) -> bool {
        let jobs = &self.jobs;
        !jobs.reads.is_empty()
            || !jobs.queues.is_empty()
            || !jobs.shown.is_empty()
            || self.is_running()
    }
}
