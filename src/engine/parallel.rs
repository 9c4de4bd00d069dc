//! Parallel work on several sites: a host, or a file system that may hang, delays only its own
//! agents, and the agents of one host wait for its replies at the same time.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Engine;
use crate::config::{Agent, SshHost};

/// Maximum number of hosts with agents at work. Hosts that are still connecting do not count: one
/// that does not answer delays no other.
const MAX_PARALLEL_HOSTS: usize = 16;

/// Maximum number of hosts that connect at the same time.
const MAX_PARALLEL_CONNECTS: usize = 128;

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

/// Files that the process always has open: streams, ledger, watches.
const RESERVED_OPEN_FILES: usize = 24;

/// A place whose agents wait for the same disk or host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Site<'a> {
    /// The archive's own file systems, without which no run can work.
    Trusted,
    /// A file system of this machine that may hang, by its mount points.
    FileSystem(String),
    /// A host.
    Host(&'a SshHost),
}

impl Engine {
    /// Returns the site of an agent's memory.
    pub(super) fn site_of<'a>(&self, agent: &'a Agent) -> Site<'a> {
        if let Some(host) = agent.location.host() {
            return Site::Host(host);
        }
        match self.file_systems().find_untrusted(agent.location.memory()) {
            Some(system) => Site::FileSystem(system.display_mount_points()),
            None => Site::Trusted,
        }
    }

    /// Waits until a site answers, or is known not to; `agent` is one of its agents. The next
    /// request reports a failure.
    pub(super) fn connect_site(&self, site: &Site<'_>, agent: &Agent) {
        match site {
            Site::Trusted => {}
            Site::FileSystem(_) => drop(self.probe_memory(&agent.location)),
            Site::Host(host) => self.connect_host(host),
        }
    }

    /// Returns how many of `batch_size` agents a site takes through a step together: fewer where a
    /// connected host limits the open files.
    pub(super) fn limit_batch_size(&self, site: &Site<'_>, batch_size: usize) -> usize {
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
/// others: `act` for up to [`MAX_PARALLEL_HOSTS`] of them at a time. Starts no thread where there
/// are no others.
pub(super) fn run_local_and_remote<J: Send, T: Send, U>(
    local: impl FnOnce() -> U,
    others: Vec<J>,
    connect: impl Fn(&J) + Sync,
    act: impl Fn(J) -> T + Sync,
) -> (U, Vec<T>) {
    let connect_threads = match others.len() {
        0 => 0,
        hosts => {
            available_open_files(OPEN_FILES_PER_CONNECT * hosts.min(MAX_PARALLEL_CONNECTS))
                / OPEN_FILES_PER_CONNECT
        }
    };
    let permits = ThreadSemaphore::new(MAX_PARALLEL_HOSTS);
    run_on_threads(
        local,
        others,
        connect_threads.clamp(1, MAX_PARALLEL_CONNECTS),
        |other| {
            connect(&other);
            let _place = permits.acquire();
            act(other)
        },
    )
}

/// Limits the number of threads at work.
struct ThreadSemaphore {
    free_permits: Mutex<usize>,
    permit_freed: Condvar,
}

/// A permit of the semaphore; dropping it returns the permit.
struct ThreadPermit<'p>(&'p ThreadSemaphore);

impl ThreadSemaphore {
    fn new(free: usize) -> ThreadSemaphore {
        ThreadSemaphore {
            free_permits: Mutex::new(free),
            permit_freed: Condvar::new(),
        }
    }

    fn acquire(&self) -> ThreadPermit<'_> {
        let free = self
            .free_permits
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .permit_freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        ThreadPermit(self)
    }
}

impl Drop for ThreadPermit<'_> {
    fn drop(&mut self) {
        let free = self.0.free_permits.lock();
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.permit_freed.notify_one();
    }
}

/// Runs `local` on this thread and at the same time `act` for each item, on a limited number of
/// other threads. With fewer threads than that, it takes longer.
fn run_on_threads<J: Send, T: Send, U>(
    here: impl FnOnce() -> U,
    items: Vec<J>,
    threads: usize,
    act: impl Fn(J) -> T + Sync,
) -> (U, Vec<T>) {
    let count = items.len().min(threads);
    let waiting = Mutex::new(items.into_iter());
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = || std::iter::from_fn(next).map(&act).collect::<Vec<T>>();
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (0..count).map_while(start).collect();
        let local_result = here();
        let mut done = work();
        for thread in threads {
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        (local_result, done)
    })
}

/// Returns how many agents each of `lanes` lanes takes through a step together: fewer where the
/// limit of open files is low. Lanes beyond [`MAX_PARALLEL_HOSTS`] wait.
pub(super) fn batch_size(lanes: usize) -> usize {
    let files = OPEN_FILES_PER_AGENT * lanes.clamp(1, MAX_PARALLEL_HOSTS + 1);
    (available_open_files(files * MAX_PARALLEL_AGENTS) / files).clamp(1, MAX_PARALLEL_AGENTS)
}

/// Returns how many files can be open besides those that the process always has. Where that is less
/// than `wanted`, raises the limit as far as possible: the usual limit of 1,024 serves select(2),
/// which this program does not use.
fn available_open_files(wanted: usize) -> usize {
    let available = |limit: Option<u64>| {
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        limit.saturating_sub(RESERVED_OPEN_FILES)
    };
    let limit = getrlimit(Resource::Nofile);
    if available(limit.current) >= wanted {
        return available(limit.current);
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => available(raised.current),
        Err(_) => available(limit.current),
    }
}

/// Runs `act` for each item, all at the same time.
pub(super) fn map_parallel<T: Send, U: Send>(items: Vec<T>, act: impl Fn(T) -> U + Sync) -> Vec<U> {
    let others = items.len().saturating_sub(1);
    let numbered = items.into_iter().enumerate().collect();
    let (_, mut done) = run_on_threads(
        || (),
        numbered,
        others,
        |(number, item)| (number, act(item)),
    );
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Runs `map_local` for each agent of this machine, one after the other on each file system, and
/// `map_host_batch` for those of each host. The results are in the order of the agents.
pub(super) fn map_agents_by_site<'a, U: Send>(
    engine: &Engine,
    agents: &[&'a Agent],
    map_local: impl Fn(&'a Agent) -> U + Sync,
    map_host_batch: impl Fn(&[&'a Agent]) -> Vec<U> + Sync,
) -> Vec<U> {
    let mut here = Vec::new();
    let mut others: BTreeMap<Site<'a>, Vec<usize>> = BTreeMap::new();
    for (place, agent) in agents.iter().enumerate() {
        match engine.site_of(agent) {
            Site::Trusted => here.push(place),
            site => others.entry(site).or_default().push(place),
        }
    }
    let batch_size = batch_size(others.len());
    let local = |places: &[usize]| {
        let done = places
            .iter()
            .map(|place| (*place, map_local(agents[*place])));
        done.collect::<Vec<_>>()
    };
    let other = |(site, places): (Site<'a>, Vec<usize>)| {
        if !matches!(site, Site::Host(_)) {
            return local(&places);
        }
        let mut done = Vec::with_capacity(places.len());
        for places in places.chunks(engine.limit_batch_size(&site, batch_size)) {
            let some: Vec<&Agent> = places.iter().map(|place| agents[*place]).collect();
            done.extend(places.iter().copied().zip(map_host_batch(&some)));
        }
        done
    };
    let connect = |(site, places): &(Site<'a>, Vec<usize>)| {
        engine.connect_site(site, agents[places[0]]);
    };
    let others = others.into_iter().collect();
    let (mut done, others) = run_local_and_remote(|| local(&here), others, connect, other);
    done.extend(others.into_iter().flatten());
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_thread_holds_no_permit() {
        // As many hosts as there are permits connect only after all others are done.
        let (others, all) = (40, MAX_PARALLEL_HOSTS + 40);
        let done = (Mutex::new(0), Condvar::new());
        let wait = |number: &usize| {
            if *number >= MAX_PARALLEL_HOSTS {
                return;
            }
            let count = done.0.lock().unwrap();
            drop(done.1.wait_while(count, |count| *count < others).unwrap());
        };
        let act = |number: usize| {
            *done.0.lock().unwrap() += 1;
            done.1.notify_all();
            number
        };
        let (_, mut ended) = run_local_and_remote(|| (), (0..all).collect(), wait, act);
        ended.sort();
        assert_eq!(ended, (0..all).collect::<Vec<usize>>());
    }

    #[test]
    fn all_work_is_done_with_few_or_no_threads() {
        for threads in [0, 1, 7] {
            let (here, mut done) =
                run_on_threads(|| "here", (0..100).collect(), threads, |it| it * 2);
            done.sort();
            assert_eq!(here, "here");
            assert_eq!(done, (0..200).step_by(2).collect::<Vec<i32>>());
        }
        assert_eq!(map_parallel(vec![3, 1, 2], |it| it + 1), [4, 2, 3]);
        assert_eq!(map_parallel(Vec::new(), |it: i32| it), [0; 0]);
    }
}
