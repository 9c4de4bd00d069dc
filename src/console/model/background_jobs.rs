//! Background jobs: those of the effect runner, reads of agents, connections and the run. The list on
//! the screen changes at most once per [`REFRESH_INTERVAL`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Model, Moment, Screen};
use crate::console::message::{Effect, Msg};
use crate::engine::{FleetEvent, HostStatus};

/// Age from which a job is shown.
const MIN_SHOWN_DURATION: Duration = Duration::from_secs(1);

/// Minimum time between two changes of the list on the screen.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// A job in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundJob {
    /// What it does.
    pub label: String,
    /// When it began.
    pub started: Moment,
}

/// The work in progress.
#[derive(Clone, Debug, Default)]
pub struct BackgroundJobs {
    agent_reads: BTreeMap<String, Moment>,
    /// Jobs of the effect runner, by label.
    requested: BTreeMap<String, Moment>,
    /// Connections that are being made, by host with user and port.
    connections: BTreeMap<String, BackgroundJob>,
    /// The jobs on the screen.
    pub visible: Vec<BackgroundJob>,
    last_change: Duration,
}

impl BackgroundJobs {
    /// Begins to read these agents.
    pub fn begin_reads(&mut self, agents: &[String], now: Moment) {
        for agent in agents {
            self.agent_reads.entry(agent.clone()).or_insert(now);
        }
    }

    /// Follows which jobs of the effect runner have not ended.
    pub fn follow_requests(&mut self, labels: Vec<String>, now: Moment) {
        let known = std::mem::take(&mut self.requested);
        let with_start = |label: String| {
            let started = known.get(&label).copied().unwrap_or(now);
            (label, started)
        };
        self.requested = labels.into_iter().map(with_start).collect();
    }
}

/// Follows what a message says of reads and connections.
pub fn follow_message(model: &mut Model, msg: &Msg) {
    match msg {
        Msg::Fleet(FleetEvent::Observed(seen)) => {
            for seen in seen {
                model.background_jobs.agent_reads.remove(&seen.agent);
            }
        }
        Msg::Fleet(FleetEvent::HostsChanged(hosts)) => follow_connections(model, hosts),
        Msg::ConfigAdopted(_, rows, _) => {
            // The engine of the previous config works no longer.
            model.background_jobs = BackgroundJobs::default();
            let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
            model.background_jobs.begin_reads(&names, model.now);
        }
        _ => {}
    }
}

/// Follows which hosts are being connected.
fn follow_connections(model: &mut Model, hosts: &[HostStatus]) {
    let known = |name: &String| model.find_row(name).is_some();
    let hosts = hosts.iter().filter(|it| it.agents.iter().any(known));
    for status in hosts.collect::<Vec<_>>() {
        let login = status.host.authority();
        let name = model.hosts.label(&status.host);
        let connections = &mut model.background_jobs.connections;
        if !status.connection.is_connecting {
            connections.remove(&login);
            continue;
        }
        let label = match status.connection.pending_prompt {
            Some(_) => format!("{name}: waiting for an answer"),
            None => format!("connecting to {name}"),
        };
        let known = connections.get(&login);
        let started = known.map_or(model.now, |job| job.started);
        connections.insert(login, BackgroundJob { label, started });
    }
}

/// Adds the reads that effects begin.
pub fn begin_reads(model: &mut Model, effects: &[Effect]) {
    for effect in effects {
        if let Effect::ReadAgents(agents) = effect {
            let known = agents.iter().filter(|name| model.find_row(name).is_some());
            let known: Vec<String> = known.cloned().collect();
            model.background_jobs.begin_reads(&known, model.now);
        }
    }
}

/// Returns the jobs to show, oldest first.
fn current_jobs(model: &Model) -> Vec<BackgroundJob> {
    let jobs = &model.background_jobs;
    let requested = jobs.requested.iter().map(|(label, started)| BackgroundJob {
        label: label.clone(),
        started: *started,
    });
    let connections = jobs.connections.values().cloned();
    let mut list: Vec<BackgroundJob> = requested.chain(connections).collect();
    if let Some(since) = jobs.agent_reads.values().min_by_key(|it| it.elapsed) {
        let label = match jobs.agent_reads.keys().next() {
            Some(name) if jobs.agent_reads.len() == 1 => format!("reading {name}"),
            _ => format!(
                "reading {} of {} agents",
                jobs.agent_reads.len(),
                model.rows.len()
            ),
        };
        list.push(BackgroundJob {
            label,
            started: *since,
        });
    }
    if let Some(run) = model.reset.plan.applying() {
        let age = model.now.elapsed.saturating_sub(run.started_at);
        let age = chrono::Duration::from_std(age).unwrap_or_default();
        list.push(BackgroundJob {
            label: format!(
                "run: {} of {} agents done",
                run.outcomes.len(),
                run.plan.steps.len()
            ),
            started: Moment {
                elapsed: run.started_at,
                local_time: model.now.local_time - age,
            },
        });
    }
    list.retain(|job| model.now.elapsed >= job.started.elapsed + MIN_SHOWN_DURATION);
    list.sort_by_key(|job| job.started.elapsed);
    list
}

/// Refreshes the list on the screen if it is due; returns whether the list changed.
pub fn refresh_jobs(model: &mut Model) -> bool {
    let is_due = model.screen == Screen::Log
        && model.now.elapsed >= model.background_jobs.last_change + REFRESH_INTERVAL;
    if !is_due {
        return false;
    }
    let list = current_jobs(model);
    let has_changed = list != model.background_jobs.visible;
    if has_changed {
        model.background_jobs.visible = list;
        model.background_jobs.last_change = model.now.elapsed;
    }
    has_changed
}

/// Returns whether the list may have to change soon.
pub fn has_jobs(model: &Model) -> bool {
    let jobs = &model.background_jobs;
    !jobs.agent_reads.is_empty()
        || !jobs.requested.is_empty()
        || !jobs.connections.is_empty()
        || !jobs.visible.is_empty()
        || model.reset.is_running()
}
