//! Background jobs: an effect begins one, the message that answers it ends it. The list on the
//! screen changes at most once per [`REFRESH_INTERVAL`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Model, Moment, Screen};
use crate::console::message::{Effect, Msg};
use crate::console::screens::reset::state::ResetStage;

/// Age from which a job is shown.
const MIN_SHOWN_DURATION: Duration = Duration::from_secs(1);

/// Minimum time between two changes of the list on the screen.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of remembered plans that are not answered.
const MAX_UNANSWERED_PLANS: usize = 64;

/// A job in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundJob {
    /// What it does.
    pub label: String,
    /// When it began.
    pub started: Moment,
}

/// Requests that are not answered yet. A later request with the same key replaces the earlier one.
#[derive(Clone, Debug, Default)]
pub struct BackgroundJobs {
    agent_reads: BTreeMap<String, Moment>,
    pending: BTreeMap<BackgroundJobKey, PendingRequest>,
    /// The jobs on the screen.
    pub visible: Vec<BackgroundJob>,
    last_change: Duration,
}

/// What identifies the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BackgroundJobKey {
    MakePlan(u64),
    /// Texts of the agents of a host; empty for this machine.
    PrepareTexts(String),
    CompareRules(String),
    CompareNewRules,
    PreparePatch(String),
    /// History of an agent, or the diff of one of its records.
    LoadHistory(String, Option<u64>),
    /// A host, with user and port.
    Connect(String),
    LoadSettings,
    CopyToClipboard,
    LoadEntry,
    InspectBaseline,
    LoadLog,
    LoadReport,
    LoadSchedule,
    ChangeSchedule,
    LoadTimeline,
    LoadRetention,
    PruneArchive,
    LoadBaselines,
    LoadBaselineVersions,
    CompareBaseline,
    MakeBaselinePlan,
    ApplyBaselinePlan,
    Verify,
}

#[derive(Clone, Debug)]
struct PendingRequest {
    subject: String,
    job: BackgroundJob,
}

impl BackgroundJobs {
    /// Begins to read these agents.
    pub fn begin_reads(&mut self, agents: &[String], now: Moment) {
        for agent in agents {
            self.agent_reads.entry(agent.clone()).or_insert(now);
        }
    }

    fn begin_request(&mut self, key: BackgroundJobKey, subject: &str, label: String, now: Moment) {
        let replaced = self.pending.get(&key);
        let started = replaced.map_or(now, |request| request.job.started);
        let request = PendingRequest {
            subject: subject.to_string(),
            job: BackgroundJob { label, started },
        };
        self.pending.insert(key, request);
        let plans = self
            .pending
            .keys()
            .filter(|it| matches!(it, BackgroundJobKey::MakePlan(_)));
        if plans.count() > MAX_UNANSWERED_PLANS {
            self.pending.pop_first();
        }
    }

    /// Ends a request, or restarts it if a later one replaced its subject.
    fn finish_request(&mut self, key: &BackgroundJobKey, subject: &str, now: Moment) {
        match self.pending.get_mut(key) {
            Some(request) if request.subject != subject => request.job.started = now,
            _ => drop(self.pending.remove(key)),
        }
    }
}

/// Returns the host whose jobs prepare the texts of an agent; empty for this machine.
fn text_worker_host(model: &Model, agent: &str) -> String {
    let status = model.hosts.status_of_agent(agent);
    status.map_or_else(String::new, |status| status.host.name.clone())
}

/// Ends the jobs that a message answers.
pub fn finish_jobs(model: &mut Model, msg: &Msg) {
    let now = model.now;
    let (key, subject) = match msg {
        Msg::AgentsObserved(seen) => {
            for seen in seen {
                model.background_jobs.agent_reads.remove(&seen.agent);
            }
            return;
        }
        Msg::HostsChanged(hosts) => {
            let known = |name: &String| model.find_row(name).is_some();
            // Hosts of the previous config do not count.
            let hosts = hosts.iter().filter(|it| it.agents.iter().any(known));
            for status in hosts.collect::<Vec<_>>() {
                // Each login of a host has its own connection.
                let name = model.hosts.label(&status.host);
                let label = match status.connection.pending_prompt {
                    Some(_) => format!("{name}: waiting for an answer"),
                    None => format!("connecting to {name}"),
                };
                // The label changes once another host of the name is known.
                let key = BackgroundJobKey::Connect(status.host.authority());
                if status.connection.is_connecting {
                    model.background_jobs.begin_request(key, "", label, now);
                } else {
                    model.background_jobs.finish_request(&key, "", now);
                }
            }
            return;
        }
        Msg::ConfigAdopted(_, rows, _) => {
            // No message answers the requests to the previous engine.
            model.background_jobs = BackgroundJobs::default();
            let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
            model.background_jobs.begin_reads(&names, now);
            return;
        }
        Msg::PlanMade(id, _) => (BackgroundJobKey::MakePlan(*id), String::new()),
        Msg::TextsPrepared(texts) => (
            BackgroundJobKey::PrepareTexts(text_worker_host(model, &texts.agent)),
            texts.agent.clone(),
        ),
        Msg::TextsNotPrepared(agent, _) => (
            BackgroundJobKey::PrepareTexts(text_worker_host(model, agent)),
            agent.clone(),
        ),
        Msg::PatchPrepared(agent, _) => {
            (BackgroundJobKey::PreparePatch(agent.clone()), String::new())
        }
        Msg::RulesCompared(agent, _) => {
            (BackgroundJobKey::CompareRules(agent.clone()), String::new())
        }
        Msg::NewRulesCompared(request, _) => {
            (BackgroundJobKey::CompareNewRules, request.agent.clone())
        }
        Msg::HistoryLoaded(agent, _) => (
            BackgroundJobKey::LoadHistory(agent.clone(), None),
            String::new(),
        ),
        Msg::RunDiffPrepared(agent, seq, _) => (
            BackgroundJobKey::LoadHistory(agent.clone(), Some(*seq)),
            String::new(),
        ),
        Msg::HostSettingsLoaded(host, _) => (BackgroundJobKey::LoadSettings, host.name.clone()),
        Msg::ClipboardCopied(clip, _) => {
            (BackgroundJobKey::CopyToClipboard, clip.description.clone())
        }
        Msg::EntryLoaded(agent, ..) => (BackgroundJobKey::LoadEntry, agent.clone()),
        Msg::BaselineInspected(agent, _) => (BackgroundJobKey::InspectBaseline, agent.clone()),
        Msg::BaselinesLoaded(_) => (BackgroundJobKey::LoadBaselines, String::new()),
        Msg::BaselineVersionsLoaded(name, _) => {
            (BackgroundJobKey::LoadBaselineVersions, name.clone())
        }
        Msg::BaselineCompared(request, _) => {
            (BackgroundJobKey::CompareBaseline, request.name.clone())
        }
        Msg::BaselinePlanMade(..) => (BackgroundJobKey::MakeBaselinePlan, String::new()),
        Msg::BaselinePlanApplied(_) => (BackgroundJobKey::ApplyBaselinePlan, String::new()),
        Msg::Verified(_) => (BackgroundJobKey::Verify, String::new()),
        Msg::LogLoaded(_) => (BackgroundJobKey::LoadLog, String::new()),
        Msg::ReportLoaded(_) => (BackgroundJobKey::LoadReport, String::new()),
        Msg::ScheduleLoaded(number, _) => (BackgroundJobKey::LoadSchedule, number.to_string()),
        Msg::ScheduleChanged(..) => (BackgroundJobKey::ChangeSchedule, String::new()),
        Msg::TimelineLoaded(..) => (BackgroundJobKey::LoadTimeline, String::new()),
        Msg::RetentionLoaded(..) => (BackgroundJobKey::LoadRetention, String::new()),
        Msg::ArchivePruned(_) => (BackgroundJobKey::PruneArchive, String::new()),
        _ => return,
    };
    model.background_jobs.finish_request(&key, &subject, now);
}

/// Begins the jobs that effects request.
pub fn begin_jobs(model: &mut Model, effects: &[Effect]) {
    let now = model.now;
    let mut subject_number;
    for effect in effects {
        let (key, subject, label) = match effect {
            Effect::ReadAgents(agents) => {
                let known = agents.iter().filter(|name| model.find_row(name).is_some());
                let known: Vec<String> = known.cloned().collect();
                model.background_jobs.begin_reads(&known, now);
                continue;
            }
            Effect::MakePlan(id, request, _) => {
                let label = match request.agent_names() {
                    [] => "plan of an undo".to_string(),
                    [one] => format!("plan for {one}"),
                    many => format!("plan for {} agents", many.len()),
                };
                (BackgroundJobKey::MakePlan(*id), "", label)
            }
            // An agent that is no longer in the config gets no answer.
            Effect::PrepareTexts(agent)
            | Effect::PreparePatch(agent)
            | Effect::CompareRules(agent)
                if model.find_row(agent).is_none() =>
            {
                continue;
            }
            Effect::PrepareTexts(agent) => (
                BackgroundJobKey::PrepareTexts(text_worker_host(model, agent)),
                agent.as_str(),
                format!("texts of {agent}"),
            ),
            Effect::PreparePatch(agent) => (
                BackgroundJobKey::PreparePatch(agent.clone()),
                "",
                format!("diff of {agent} for the clipboard"),
            ),
            Effect::CompareRules(agent) => (
                BackgroundJobKey::CompareRules(agent.clone()),
                "",
                format!("rules of {agent}"),
            ),
            Effect::CompareNewRules(request) => (
                BackgroundJobKey::CompareNewRules,
                request.agent.as_str(),
                format!("new rules of {}", request.agent),
            ),
            Effect::LoadHistory(agent) => (
                BackgroundJobKey::LoadHistory(agent.clone(), None),
                "",
                format!("history of {agent}"),
            ),
            Effect::PrepareRunDiff(agent, seq) => (
                BackgroundJobKey::LoadHistory(agent.clone(), Some(*seq)),
                "",
                format!("run diff of {agent}"),
            ),
            Effect::LoadHostSettings(host) => (
                BackgroundJobKey::LoadSettings,
                host.name.as_str(),
                format!("ssh settings of {}", host.name),
            ),
            Effect::CopyToClipboard(clip) => (
                BackgroundJobKey::CopyToClipboard,
                clip.description.as_str(),
                format!("copy {}", clip.description),
            ),
            Effect::LoadEntry(agent, _) => (
                BackgroundJobKey::LoadEntry,
                agent.as_str(),
                format!("entry of {agent}"),
            ),
            Effect::InspectBaseline(agent) => (
                BackgroundJobKey::InspectBaseline,
                agent.as_str(),
                format!("baseline of {agent}"),
            ),
            Effect::LoadBaselines => (BackgroundJobKey::LoadBaselines, "", "baselines".to_string()),
            Effect::LoadBaselineVersions(name) => (
                BackgroundJobKey::LoadBaselineVersions,
                name.as_str(),
                format!("versions of {name}"),
            ),
            Effect::CompareBaseline(request) => (
                BackgroundJobKey::CompareBaseline,
                request.name.as_str(),
                format!("comparison of {}", request.name),
            ),
            Effect::MakeBaselinePlan(_, request) => (
                BackgroundJobKey::MakeBaselinePlan,
                "",
                format!("{} plan", request.verb()),
            ),
            Effect::ApplyBaselinePlan(_) => (
                BackgroundJobKey::ApplyBaselinePlan,
                "",
                "writing baselines".to_string(),
            ),
            Effect::Verify => (BackgroundJobKey::Verify, "", "verification".to_string()),
            Effect::LoadLog => (BackgroundJobKey::LoadLog, "", "ledger".to_string()),
            Effect::LoadReport => (BackgroundJobKey::LoadReport, "", "report".to_string()),
            Effect::LoadSchedule(number) => {
                subject_number = number.to_string();
                let label = "timers of the service managers".to_string();
                (
                    BackgroundJobKey::LoadSchedule,
                    subject_number.as_str(),
                    label,
                )
            }
            Effect::ChangeSchedule(change) => (
                BackgroundJobKey::ChangeSchedule,
                "",
                format!("schedule of {}", change.subject()),
            ),
            Effect::LoadTimeline(_) => (BackgroundJobKey::LoadTimeline, "", "timeline".to_string()),
            Effect::LoadRetention(_) => {
                (BackgroundJobKey::LoadRetention, "", "retention".to_string())
            }
            Effect::PruneArchive(_) => (
                BackgroundJobKey::PruneArchive,
                "",
                "pruning the archive".to_string(),
            ),
            _ => continue,
        };
        model
            .background_jobs
            .begin_request(key, subject, label, now);
    }
}

impl Model {
    /// Returns the jobs to show, oldest first.
    fn current_jobs(&self) -> Vec<BackgroundJob> {
        let jobs = &self.background_jobs;
        let mut list: Vec<BackgroundJob> = jobs.pending.values().map(|it| it.job.clone()).collect();
        if let Some(since) = jobs.agent_reads.values().min_by_key(|it| it.elapsed) {
            let label = match jobs.agent_reads.keys().next() {
                Some(name) if jobs.agent_reads.len() == 1 => format!("reading {name}"),
                _ => format!(
                    "reading {} of {} agents",
                    jobs.agent_reads.len(),
                    self.rows.len()
                ),
            };
            list.push(BackgroundJob {
                label,
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

    /// Refreshes the list on the screen if it is due; returns whether the list changed.
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

    /// Returns whether the list may have to change soon.
    pub fn has_jobs(&self) -> bool {
        let jobs = &self.background_jobs;
        !jobs.agent_reads.is_empty()
            || !jobs.pending.is_empty()
            || !jobs.visible.is_empty()
            || self.is_running()
    }
}
