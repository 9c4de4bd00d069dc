//! Parallel work on several sites: a host, or a file system that may hang, delays only its own
//! agents, and the agents of one host wait for its replies at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::base::file_systems::FileSystem;
use crate::base::threads::{KeptThreads, available_open_files, map_on_processors, run_on_threads};
use crate::config::{Agent, SshHost};
use crate::engine::watch::Hosts;
use crate::transport::OnConnected;

/// Maximum number of hosts with agents at work. Hosts that are still connecting do not count: one
/// that does not answer delays no other.
const MAX_PARALLEL_HOSTS: usize = 16;

/// Maximum number of hosts that connect at the same time.
const MAX_PARALLEL_CONNECTS: usize = 128;

/// Maximum number of file systems that may hang with agents at work.
const MAX_PARALLEL_FILE_SYSTEMS: usize = 16;

/// Maximum number of agents of one host, or of this machine, at work at the same time.
const MAX_PARALLEL_AGENTS: usize = 64;

/// Maximum number of files that an agent has open during its change, those of a step that waits for
/// a late writer included.
const OPEN_FILES_PER_AGENT: usize = 12;

/// Maximum number of files that a connecting host has open.
const OPEN_FILES_PER_CONNECT: usize = 8;

/// Maximum number of files that an agent has open on its host during its change: its directory, the
/// run's directory, the new and the displaced file, and again as many for an agent of the batch
/// before that waits for a late writer; two to spare.
const OPEN_FILES_PER_HOST_AGENT: u64 = 10;

/// A place whose agents wait for the same disk or host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Site<'a> {
    /// The archive's own file systems, without which no run can work.
    Trusted,
    /// A file system of this machine that may hang, by its mount points.
    FileSystem(String),
    /// A host.
    Host(&'a SshHost),
}

impl Site<'_> {
    pub(in crate::engine) fn is_file_system(&self) -> bool {
        matches!(self, Site::FileSystem(_))
    }

    /// Returns the site of a memory on this machine; None stands for a trusted file system.
    fn of_file_system(system: Option<Arc<FileSystem>>) -> Self {
        system.map_or(Site::Trusted, |system| {
            Site::FileSystem(system.display_mount_points())
        })
    }
}

impl Hosts {
    /// Returns the site of an agent's memory.
    pub(in crate::engine) fn site_of<'a>(&self, agent: &'a Agent) -> Site<'a> {
        if let Some(host) = agent.host() {
            return Site::Host(host);
        }
        let system = self
            .context
            .file_systems()
            .find_untrusted(agent.observed_path());
        Site::of_file_system(system)
    }

    /// Returns the site of each agent's memory, from one look at the mount table.
    fn sites_of<'a>(&self, agents: &[&'a Agent]) -> Vec<Site<'a>> {
        let local = agents.iter().filter(|it| it.host().is_none());
        let memories = local.map(|agent| agent.observed_path());
        let mut systems = self
            .context
            .file_systems()
            .find_untrusted_all(memories)
            .into_iter();
        let site = |agent: &&'a Agent| match agent.host() {
            Some(host) => Site::Host(host),
            None => Site::of_file_system(systems.next().flatten()),
        };
        agents.iter().map(site).collect()
    }

    /// Calls `when_done` once a site answers, or is known not to; `agent` is one of its agents. Waits
    /// for a file system, and for no host. The next request reports a failure.
    pub(in crate::engine) fn connect_site(
        &self,
        site: &Site<'_>,
        agent: &Agent,
        when_done: OnConnected,
    ) {
        match site {
            Site::Host(host) => return self.start_connecting(host, when_done),
            Site::FileSystem(_) => drop(self.context.probe_memory(agent)),
            Site::Trusted => {}
        }
        when_done();
    }

    /// Returns how many of `batch_size` agents a site takes through a step together: fewer where a
    /// connected host limits the open files.
    pub(in crate::engine) fn limit_batch_size(&self, site: &Site<'_>, batch_size: usize) -> usize {
        let Site::Host(host) = site else {
            return batch_size;
        };
        let files = self.connection_status(host).max_open_files();
        files.map_or(batch_size, |files| {
            let agents = usize::try_from(files / OPEN_FILES_PER_HOST_AGENT).unwrap_or(usize::MAX);
            agents.clamp(1, batch_size)
        })
    }
}

/// Runs `local` on this thread, and at the same time `connect` and then `act` for each of the
/// others: `act` for up to [`MAX_PARALLEL_HOSTS`] of them at a time, and for `file_systems` more,
/// whose `connect` may wait. Starts no thread where there are no others; `act` gets further threads,
/// which all share.
pub(in crate::engine) fn run_local_and_remote<'env, J: Send, T: Send, U>(
    local: impl FnOnce() -> U,
    others: Vec<J>,
    file_systems: usize,
    connect: impl Fn(&J, OnConnected) + Sync,
    act: impl for<'scope> Fn(J, &KeptThreads<'scope, 'env>) -> T + Sync,
) -> (U, Vec<T>) {
    let count = others.len();
    let files = available_open_files(OPEN_FILES_PER_CONNECT * count.min(MAX_PARALLEL_CONNECTS));
    let connects = (files / OPEN_FILES_PER_CONNECT).clamp(1, MAX_PARALLEL_CONNECTS);
    let queue = Arc::new(ConnectQueue::new(count, connects));
    let others: Vec<Mutex<Option<J>>> = others.into_iter().map(|it| Mutex::new(Some(it))).collect();
    let threads = count.min(MAX_PARALLEL_HOSTS + file_systems.min(MAX_PARALLEL_FILE_SYSTEMS));
    let next_result = |kept: &KeptThreads<'_, 'env>| {
        loop {
            match queue.next_step()? {
                ConnectStep::Connect(number) => {
                    let other = lock(&others[number]);
                    let queue = Arc::clone(&queue);
                    let mark_ready = move || queue.mark_ready(number);
                    match &*other {
                        Some(other) => connect(other, Box::new(mark_ready)),
                        None => mark_ready(),
                    }
                }
                ConnectStep::Act(number) => {
                    let other = lock(&others[number]).take();
                    if let Some(other) = other {
                        return Some(act(other, kept));
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        let kept = KeptThreads::new(scope);
        let work = |_: usize| std::iter::from_fn(|| next_result(&kept)).collect::<Vec<T>>();
        let (local, done) = run_on_threads(local, (0..threads).collect(), threads, || work);
        (local, done.into_iter().flatten().collect())
    })
}

/// The sites that are still to be connected to, and those that are to be worked on. One that does not
/// answer delays no other.
struct ConnectQueue {
    state: Mutex<ConnectQueueState>,
    changed: Condvar,
    count: usize,
    max_connecting: usize,
}

#[derive(Default)]
struct ConnectQueueState {
    started_count: usize,
    connecting_count: usize,
    ready: VecDeque<usize>,
}

/// What a thread does next with a site, by its number.
enum ConnectStep {
    Connect(usize),
    Act(usize),
}

impl ConnectQueue {
    fn new(count: usize, max_connecting: usize) -> ConnectQueue {
        ConnectQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
            count,
            max_connecting,
        }
    }

    /// Waits for the next step; none when all have been worked on or are by other threads.
    fn next_step(&self) -> Option<ConnectStep> {
        let mut state = lock(&self.state);
        loop {
            if state.started_count < self.count && state.connecting_count < self.max_connecting {
                state.started_count += 1;
                state.connecting_count += 1;
                return Some(ConnectStep::Connect(state.started_count - 1));
            }
            if let Some(number) = state.ready.pop_front() {
                return Some(ConnectStep::Act(number));
            }
            if state.started_count == self.count && state.connecting_count == 0 {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks a site ready: its attempt to connect has ended.
    fn mark_ready(&self, number: usize) {
        let mut state = lock(&self.state);
        state.connecting_count -= 1;
        state.ready.push_back(number);
        drop(state);
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many agents each of `lanes` lanes takes through a step together: fewer where the
/// limit of open files is low. Lanes beyond [`MAX_PARALLEL_HOSTS`] wait.
pub(in crate::engine) fn batch_size(lanes: usize) -> usize {
    let files = OPEN_FILES_PER_AGENT * lanes.clamp(1, MAX_PARALLEL_HOSTS + 1);
    (available_open_files(files * MAX_PARALLEL_AGENTS) / files).clamp(1, MAX_PARALLEL_AGENTS)
}

/// Runs `act` for each agent: for those of this machine one after the other on each file system, for
/// those of a host at the same time. The results are in the order of the agents.
pub(in crate::engine) fn map_agents_by_site<'env, 'a: 'env, U: Send + 'env>(
    hosts: &Hosts,
    agents: &[&'a Agent],
    act: &'env (impl Fn(&'a Agent) -> U + Sync),
) -> Vec<U> {
    let one_by_one = |agents: Vec<&'a Agent>| agents.into_iter().map(act).collect();
    let at_once =
        |agents: &[&'a Agent], threads: &KeptThreads<'_, 'env>| threads.map(agents.to_vec(), act);
    map_sites(hosts, agents, one_by_one, one_by_one, at_once)
}

/// As [`map_agents_by_site`], for a function that only reads: several processors work on the agents
/// on the archive's own file systems. `start_local` makes the function of a thread.
pub(in crate::engine) fn read_agents_by_site<'env, 'a, U: Send, A: FnMut(&'a Agent) -> U>(
    hosts: &Hosts,
    agents: &[&'a Agent],
    start_local: impl Fn() -> A + Sync,
    map_host_batch: impl for<'scope> Fn(&[&'a Agent], &KeptThreads<'scope, 'env>) -> Vec<U> + Sync,
) -> Vec<U> {
    let on_processors = |agents| map_on_processors(agents, &start_local);
    let one_by_one = |agents: Vec<&'a Agent>| agents.into_iter().map(start_local()).collect();
    map_sites(hosts, agents, on_processors, one_by_one, map_host_batch)
}

/// Runs `map_trusted` for the agents on the archive's own file systems, and at the same time
/// `map_file_system` for those of each file system that may hang and `map_host_batch` for those of
/// each host.
fn map_sites<'env, 'a, U: Send>(
    hosts: &Hosts,
    agents: &[&'a Agent],
    map_trusted: impl FnOnce(Vec<&'a Agent>) -> Vec<U>,
    map_file_system: impl Fn(Vec<&'a Agent>) -> Vec<U> + Sync,
    map_host_batch: impl for<'scope> Fn(&[&'a Agent], &KeptThreads<'scope, 'env>) -> Vec<U> + Sync,
) -> Vec<U> {
    let mut here = Vec::new();
    let mut others: BTreeMap<Site<'a>, Vec<usize>> = BTreeMap::new();
    for (place, site) in hosts.sites_of(agents).into_iter().enumerate() {
        match site {
            Site::Trusted => here.push(place),
            site => others.entry(site).or_default().push(place),
        }
    }
    let batch_size = batch_size(others.len());
    let at = |places: &[usize]| -> Vec<&'a Agent> { places.iter().map(|it| agents[*it]).collect() };
    let numbered = |places: Vec<usize>, done: Vec<U>| -> Vec<(usize, U)> {
        places.into_iter().zip(done).collect()
    };
    let other = |(site, places): (Site<'a>, Vec<usize>), threads: &KeptThreads<'_, 'env>| {
        if !matches!(site, Site::Host(_)) {
            let done = map_file_system(at(&places));
            return numbered(places, done);
        }
        let mut done = Vec::with_capacity(places.len());
        for places in places.chunks(hosts.limit_batch_size(&site, batch_size)) {
            done.extend(map_host_batch(&at(places), threads));
        }
        numbered(places, done)
    };
    let connect = |(site, places): &(Site<'a>, Vec<usize>), when_done| {
        hosts.connect_site(site, agents[places[0]], when_done);
    };
    let file_systems = others.keys().filter(|site| site.is_file_system()).count();
    let others = others.into_iter().collect();
    let local = || map_trusted(at(&here));
    let (done, others) = run_local_and_remote(local, others, file_systems, connect, other);
    let mut done = numbered(here, done);
    done.extend(others.into_iter().flatten());
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_site_delays_no_other() {
        // As many hosts as there are permits connect only after all others are done.
        let (others, all) = (40, MAX_PARALLEL_HOSTS + 40);
        let done = Mutex::new(0);
        let slow: Mutex<Vec<OnConnected>> = Mutex::default();
        let connect = |number: &usize, when_done: OnConnected| {
            if *number < MAX_PARALLEL_HOSTS {
                slow.lock().unwrap().push(when_done);
            } else {
                when_done();
            }
        };
        let act = |number: usize, _: &KeptThreads<'_, '_>| {
            let mut count = done.lock().unwrap();
            *count += 1;
            if *count == others {
                slow.lock().unwrap().drain(..).for_each(|it| it());
            }
            number
        };
        let (_, mut ended) = run_local_and_remote(|| (), (0..all).collect(), 0, connect, act);
        ended.sort();
        assert_eq!(ended, (0..all).collect::<Vec<usize>>());
    }
}
