//! Background jobs: an effect begins one, the message that answers it ends it. The list on the
//! screen changes at most once per [`REFRESH_INTERVAL`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Model, Moment, Screen};
use crate::console::message::{Effect, Msg};
use crate::console::screens::reset::state::ResetStage;
use crate::engine::HostStatus;

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

/// A job, what it is about, and how the log calls it.
type BegunJob = (BackgroundJobKey, String, String);

/// Removes the jobs that a message ends.
pub fn finish_jobs(model: &mut Model, msg: &Msg) {
    match msg {
        Msg::AgentsObserved(seen) => {
            for seen in seen {
                model.background_jobs.agent_reads.remove(&seen.agent);
            }
        }
        Msg::HostsChanged(hosts) => follow_connections(model, hosts),
        Msg::ConfigAdopted(_, rows, _) => {
            // Replies to the requests of the previous config do not come any more.
            model.background_jobs = BackgroundJobs::default();
            let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
            model.background_jobs.begin_reads(&names, model.now);
        }
        _ => {
            if let Some((key, subject)) = finished_job(model, msg) {
                model
                    .background_jobs
                    .finish_request(&key, &subject, model.now);
            }
        }
    }
}

/// Follows which hosts are being connected.
fn follow_connections(model: &mut Model, hosts: &[HostStatus]) {
    let known = |name: &String| model.find_row(name).is_some();
    let hosts = hosts.iter().filter(|it| it.agents.iter().any(known));
    for status in hosts.collect::<Vec<_>>() {
        let name = model.hosts.label(&status.host);
        let label = match status.connection.pending_prompt {
            Some(_) => format!("{name}: waiting for an answer"),
            None => format!("connecting to {name}"),
        };
        let key = BackgroundJobKey::Connect(status.host.authority());
        if status.connection.is_connecting {
            model
                .background_jobs
                .begin_request(key, "", label, model.now);
        } else {
            model.background_jobs.finish_request(&key, "", model.now);
        }
    }
}

/// Returns the job that a message ends, and what it was about.
fn finished_job<'a>(model: &Model, msg: &'a Msg) -> Option<(BackgroundJobKey, Cow<'a, str>)> {
    use BackgroundJobKey as Key;
    let (key, subject): (Key, &str) = match msg {
        Msg::PlanMade(id, _) => (Key::MakePlan(*id), ""),
        Msg::TextsPrepared(texts) => {
            let host = text_worker_host(model, &texts.agent);
            (Key::PrepareTexts(host), &texts.agent)
        }
        Msg::TextsNotPrepared(agent, _) => {
            (Key::PrepareTexts(text_worker_host(model, agent)), agent)
        }
        Msg::PatchPrepared(agent, _) => (Key::PreparePatch(agent.clone()), agent),
        Msg::RulesCompared(agent, _) => (Key::CompareRules(agent.clone()), agent),
        Msg::NewRulesCompared(request, _) => (Key::CompareNewRules, &request.agent),
        Msg::HistoryLoaded(agent, _) => (Key::LoadHistory(agent.clone(), None), agent),
        Msg::RunDiffPrepared(agent, seq, _) => (Key::LoadHistory(agent.clone(), Some(*seq)), agent),
        Msg::HostSettingsLoaded(host, _) => (Key::LoadSettings, &host.name),
        Msg::ClipboardCopied(clip, _) => (Key::CopyToClipboard, &clip.description),
        Msg::EntryLoaded(agent, ..) => (Key::LoadEntry, agent),
        Msg::BaselineInspected(agent, _) => (Key::InspectBaseline, agent),
        Msg::BaselinesLoaded(_) => (Key::LoadBaselines, ""),
        Msg::BaselineVersionsLoaded(name, _) => (Key::LoadBaselineVersions, name),
        Msg::BaselineCompared(request, _) => (Key::CompareBaseline, &request.name),
        Msg::BaselinePlanMade(..) => (Key::MakeBaselinePlan, ""),
        Msg::BaselinePlanApplied(_) => (Key::ApplyBaselinePlan, ""),
        Msg::Verified(_) => (Key::Verify, ""),
        Msg::LogLoaded(_) => (Key::LoadLog, ""),
        Msg::ReportLoaded(_) => (Key::LoadReport, ""),
        Msg::ScheduleLoaded(number, _) => {
            return Some((Key::LoadSchedule, number.to_string().into()));
        }
        Msg::ScheduleChanged(..) => (Key::ChangeSchedule, ""),
        Msg::TimelineLoaded(..) => (Key::LoadTimeline, ""),
        Msg::RetentionLoaded(..) => (Key::LoadRetention, ""),
        Msg::ArchivePruned(_) => (Key::PruneArchive, ""),
        _ => return None,
    };
    Some((key, subject.into()))
}

/// Adds the jobs that effects begin.
pub fn begin_jobs(model: &mut Model, effects: &[Effect]) {
    for effect in effects {
        if let Effect::ReadAgents(agents) = effect {
            let known = agents.iter().filter(|name| model.find_row(name).is_some());
            let known: Vec<String> = known.cloned().collect();
            model.background_jobs.begin_reads(&known, model.now);
        } else if let Some((key, subject, label)) = begun_job(model, effect) {
            let jobs = &mut model.background_jobs;
            jobs.begin_request(key, &subject, label, model.now);
        }
    }
}

/// Returns the job that an effect begins. An agent that has left the config has none.
fn begun_job(model: &Model, effect: &Effect) -> Option<BegunJob> {
    use BackgroundJobKey as Key;
    let plain = |key: Key, label: &str| (key, String::new(), label.to_string());
    let of = |key: Key, noun: &str, subject: &str| {
        let label = format!("{noun} of {subject}");
        (key, subject.to_string(), label)
    };
    Some(match effect {
        Effect::PrepareTexts(agent) | Effect::PreparePatch(agent) | Effect::CompareRules(agent)
            if model.find_row(agent).is_none() =>
        {
            return None;
        }
        Effect::MakePlan(id, request, _) => match request.agent_names() {
            [] => plain(Key::MakePlan(*id), "plan of an undo"),
            [one] => plain(Key::MakePlan(*id), &format!("plan for {one}")),
            many => plain(
                Key::MakePlan(*id),
                &format!("plan for {} agents", many.len()),
            ),
        },
        Effect::PrepareTexts(agent) => of(
            Key::PrepareTexts(text_worker_host(model, agent)),
            "texts",
            agent,
        ),
        Effect::PreparePatch(agent) => {
            let label = format!("diff of {agent} for the clipboard");
            (Key::PreparePatch(agent.clone()), agent.clone(), label)
        }
        Effect::CompareRules(agent) => of(Key::CompareRules(agent.clone()), "rules", agent),
        Effect::CompareNewRules(request) => of(Key::CompareNewRules, "new rules", &request.agent),
        Effect::LoadHistory(agent) => of(Key::LoadHistory(agent.clone(), None), "history", agent),
        Effect::PrepareRunDiff(agent, seq) => of(
            Key::LoadHistory(agent.clone(), Some(*seq)),
            "run diff",
            agent,
        ),
        Effect::LoadHostSettings(host) => of(Key::LoadSettings, "ssh settings", &host.name),
        Effect::CopyToClipboard(clip) => {
            let what = clip.description.clone();
            (Key::CopyToClipboard, what.clone(), format!("copy {what}"))
        }
        Effect::LoadEntry(agent, _) => of(Key::LoadEntry, "entry", agent),
        Effect::InspectBaseline(agent) => of(Key::InspectBaseline, "baseline", agent),
        Effect::LoadBaselines => plain(Key::LoadBaselines, "baselines"),
        Effect::LoadBaselineVersions(name) => of(Key::LoadBaselineVersions, "versions", name),
        Effect::CompareBaseline(request) => of(Key::CompareBaseline, "comparison", &request.name),
        Effect::MakeBaselinePlan(_, request) => {
            plain(Key::MakeBaselinePlan, &format!("{} plan", request.verb()))
        }
        Effect::ApplyBaselinePlan(_) => plain(Key::ApplyBaselinePlan, "writing baselines"),
        Effect::Verify => plain(Key::Verify, "verification"),
        Effect::LoadLog => plain(Key::LoadLog, "ledger"),
        Effect::LoadReport => plain(Key::LoadReport, "report"),
        Effect::LoadSchedule(number) => {
            let label = "timers of the service managers".to_string();
            (Key::LoadSchedule, number.to_string(), label)
        }
        Effect::ChangeSchedule(change) => plain(
            Key::ChangeSchedule,
            &format!("schedule of {}", change.subject()),
        ),
        Effect::LoadTimeline(_) => plain(Key::LoadTimeline, "timeline"),
        Effect::LoadRetention(_) => plain(Key::LoadRetention, "retention"),
        Effect::PruneArchive(_) => plain(Key::PruneArchive, "pruning the archive"),
        _ => return None,
    })
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
