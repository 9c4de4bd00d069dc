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
    pub label: String,
    /// Since when.
    pub started: Moment,
}

/// What was asked for and is not answered yet. Each queue has one row: what is
/// asked for last takes the place of what it was asked before.
#[derive(Clone, Debug, Default)]
pub struct BackgroundJobs {
    agent_reads: BTreeMap<String, Moment>,
    pending: BTreeMap<JobKey, PendingRequest>,
    /// What is on the screen, and since when.
    pub visible: Vec<BackgroundJob>,
    last_change: Duration,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum JobKey {
    MakePlan(u64),
    /// The host's, for texts; none for this machine's.
    PrepareTexts(String),
    PreparePatch(String),
    /// What was done to an agent, or what one record of it changed.
    LoadHistory(String, Option<u64>),
    Connect(String),
    LoadSettings,
    CopyToClipboard,
    LoadEntry,
    InspectBaseline,
    LoadLog,
}

#[derive(Clone, Debug)]
struct PendingRequest {
    subject: String,
    job: BackgroundJob,
}

impl BackgroundJobs {
    /// These agents are going to be read.
    pub fn begin_reads(&mut self, agents: &[String], now: Moment) {
        for agent in agents {
            self.agent_reads.entry(agent.clone()).or_insert(now);
        }
    }

    fn begin_request(&mut self, queue: JobKey, subject: &str, what: String, now: Moment) {
        let waiting = self.pending.get(&queue).map(|asked| asked.job.started);
        let since = waiting.unwrap_or(now);
        let job = BackgroundJob {
            label: what,
            started: since,
        };
        let subject = subject.to_string();
        self.pending.insert(queue, PendingRequest { subject, job });
        let plans = self
            .pending
            .keys()
            .filter(|it| matches!(it, JobKey::MakePlan(_)));
        if plans.count() > MAX_UNANSWERED_PLANS {
            self.pending.pop_first();
        }
    }

    /// An answer. Where something else is wanted by now, that goes on.
    fn finish_request(&mut self, queue: &JobKey, subject: &str, now: Moment) {
        match self.pending.get_mut(queue) {
            Some(asked) if asked.subject != subject => asked.job.started = now,
            _ => drop(self.pending.remove(queue)),
        }
    }
}

/// The queue that prepares the texts of an agent.
fn text_worker_host(model: &Model, agent: &str) -> String {
    let status = model.hosts.status_of_agent(agent);
    status.map_or_else(String::new, |status| status.host.name.clone())
}

/// Takes note of what a message answers.
pub fn finish_jobs(model: &mut Model, msg: &Msg) {
    let now = model.now;
    let (queue, subject) = match msg {
        Msg::AgentsObserved(seen) => {
            for seen in seen {
                model.background_jobs.agent_reads.remove(&seen.agent);
            }
            return;
        }
        Msg::HostsChanged(hosts) => {
            let known = |name: &String| model.find_row(name).is_some();
            // One of the config before tells nothing any more.
            let hosts = hosts.iter().filter(|it| it.agents.iter().any(known));
            for status in hosts.collect::<Vec<_>>() {
                // Several users of one host are several.
                let name = model.hosts.label(&status.host);
                let queue = JobKey::Connect(name.clone());
                match status.connection.is_connecting {
                    true => model.background_jobs.begin_request(
                        queue,
                        "",
                        format!("connecting to {name}"),
                        now,
                    ),
                    false => model.background_jobs.finish_request(&queue, "", now),
                }
            }
            return;
        }
        Msg::ConfigAdopted(_, names, _) => {
            // Others answer now, and nobody what the old ones were asked.
            model.background_jobs = BackgroundJobs::default();
            let names: Vec<String> = names.iter().map(|(name, _)| name.clone()).collect();
            model.background_jobs.begin_reads(&names, now);
            return;
        }
        Msg::PlanMade(id, _) => (JobKey::MakePlan(*id), String::new()),
        Msg::TextsPrepared(texts) => (
            JobKey::PrepareTexts(text_worker_host(model, &texts.agent)),
            texts.agent.clone(),
        ),
        Msg::PatchPrepared(agent, _) => (JobKey::PreparePatch(agent.clone()), String::new()),
        Msg::HistoryLoaded(agent, _) => (JobKey::LoadHistory(agent.clone(), None), String::new()),
        Msg::RunDiffPrepared(agent, seq, _) => (
            JobKey::LoadHistory(agent.clone(), Some(*seq)),
            String::new(),
        ),
        Msg::HostSettingsLoaded(host, _) => (JobKey::LoadSettings, host.name.clone()),
        Msg::ClipboardCopied(clip, _) => (JobKey::CopyToClipboard, clip.description.clone()),
        Msg::EntryLoaded(agent, ..) => (JobKey::LoadEntry, agent.clone()),
        Msg::BaselineInspected(agent, _) => (JobKey::InspectBaseline, agent.clone()),
        Msg::LogLoaded(_) => (JobKey::LoadLog, String::new()),
        _ => return,
    };
    model.background_jobs.finish_request(&queue, &subject, now);
}

/// Takes note of what is asked for.
pub fn begin_jobs(model: &mut Model, effects: &[Effect]) {
    let now = model.now;
    for effect in effects {
        let (queue, subject, what) = match effect {
            Effect::ReadAgents(agents) => {
                let known = agents.iter().filter(|name| model.find_row(name).is_some());
                let known: Vec<String> = known.cloned().collect();
                model.background_jobs.begin_reads(&known, now);
                continue;
            }
            Effect::MakePlan(id, request, _) => {
                let what = match request.agent_names() {
                    [] => "plan of an undo".to_string(),
                    [one] => format!("plan for {one}"),
                    many => format!("plan for {} agents", many.len()),
                };
                (JobKey::MakePlan(*id), "", what)
            }
            // Nobody answers for who is not in the config any more.
            Effect::PrepareTexts(agent) | Effect::PreparePatch(agent)
                if model.find_row(agent).is_none() =>
            {
                continue;
            }
            Effect::PrepareTexts(agent) => (
                JobKey::PrepareTexts(text_worker_host(model, agent)),
                agent.as_str(),
                format!("texts of {agent}"),
            ),
            Effect::PreparePatch(agent) => (
                JobKey::PreparePatch(agent.clone()),
                "",
                format!("diff of {agent}, to be copied"),
            ),
            Effect::LoadHistory(agent) => (
                JobKey::LoadHistory(agent.clone(), None),
                "",
                format!("history of {agent}"),
            ),
            Effect::PrepareRunDiff(agent, seq) => (
                JobKey::LoadHistory(agent.clone(), Some(*seq)),
                "",
                format!("what a run changed at {agent}"),
            ),
            Effect::LoadHostSettings(host) => (
                JobKey::LoadSettings,
                host.name.as_str(),
                format!("ssh's settings for {}", host.name),
            ),
            Effect::CopyToClipboard(clip) => (
                JobKey::CopyToClipboard,
                clip.description.as_str(),
                format!("copy {}", clip.description),
            ),
            Effect::LoadEntry(agent, _) => (
                JobKey::LoadEntry,
                agent.as_str(),
                format!("an entry of {agent}"),
            ),
            Effect::InspectBaseline(agent) => (
                JobKey::InspectBaseline,
                agent.as_str(),
                format!("the baseline of {agent}"),
            ),
            Effect::LoadLog => (JobKey::LoadLog, "", "the ledger".to_string()),
            _ => continue,
        };
        model
            .background_jobs
            .begin_request(queue, subject, what, now);
    }
}

impl Model {
    /// What goes on now, the oldest first.
    fn current_jobs(&self) -> Vec<BackgroundJob> {
        let jobs = &self.background_jobs;
        let mut list: Vec<BackgroundJob> = jobs.pending.values().map(|it| it.job.clone()).collect();
        if let Some(since) = jobs.agent_reads.values().min_by_key(|it| it.elapsed) {
            let what = match jobs.agent_reads.len() {
                1 => format!(
                    "reading {}",
                    jobs.agent_reads.keys().next().map_or("", |it| it)
                ),
                many => format!("reading {many} of {} agents", self.rows.len()),
            };
            list.push(BackgroundJob {
                label: what,
                started: *since,
            });
        }
        if let ResetStage::Run(run) = &self.reset.stage {
            let age = self.now.elapsed.saturating_sub(run.started_at);
            let age = chrono::Duration::from_std(age).unwrap_or_default();
            list.push(BackgroundJob {
                label: format!(
                    "run: {} of {} agents done",
                    run.outcomes.len(),
                    run.plan.steps.len()
                ),
                started: Moment {
                    elapsed: run.started_at,
                    local_time: self.now.local_time - age,
                },
            });
        }
        list.retain(|job| self.now.elapsed >= job.started.elapsed + MIN_SHOWN_DURATION);
        list.sort_by_key(|job| job.started.elapsed);
        list
    }

    /// Shows what goes on now, unless that changed a moment ago; whether it looks
    /// different.
    pub fn refresh_jobs(&mut self) -> bool {
        let is_due = self.screen == Screen::Log
            && self.now.elapsed >= self.background_jobs.last_change + REFRESH_INTERVAL;
        if !is_due {
            return false;
        }
        let list = self.current_jobs();
        let has_changed = list != self.background_jobs.visible;
        if has_changed {
            self.background_jobs.visible = list;
            self.background_jobs.last_change = self.now.elapsed;
        }
        has_changed
    }

    /// Whether what is shown may have to change soon.
    pub fn has_jobs(&self) -> bool {
        let jobs = &self.background_jobs;
        !jobs.agent_reads.is_empty()
            || !jobs.pending.is_empty()
            || !jobs.visible.is_empty()
            || self.is_running()
    }
}
