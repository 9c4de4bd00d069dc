//! Work on several hosts at the same time: a slow one delays nobody else's
//! agents, and the agents of one wait for its answers together.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::{Agent, Host};

/// How many hosts are worked on at the same time.
const HOSTS: usize = 16;

/// How many agents of one host are worked on at the same time.
const AGENTS: usize = 64;

/// Does `here` on this thread and meanwhile `act` for each of the others, up to
/// [`HOSTS`] of them at a time. Without others no thread is started.
pub(super) fn side_by_side<J: Send, T: Send, U>(
    here: impl FnOnce() -> U,
    others: Vec<J>,
    act: impl Fn(J) -> T + Sync,
) -> (U, Vec<T>) {
    let count = others.len().min(HOSTS);
    if count > 0 {
        raise_file_limit();
    }
    let waiting = Mutex::new(others.into_iter());
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = || std::iter::from_fn(next).map(&act).collect::<Vec<T>>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let here = here();
        let done = threads.into_iter().map(|thread| thread.join());
        let done = done.flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)));
        (here, done.collect())
    })
}

/// Several hosts at the same time have more files open than the 1,024 that a
/// process may by default; more are allowed to whoever asks. Nothing here uses
/// select(2), for which that default is made.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the old one fewer agents are done at once, and the others are told of.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Does this for each, all at once.
pub(super) fn at_once<T: Send, U: Send>(items: Vec<T>, act: impl Fn(T) -> U + Sync) -> Vec<U> {
    if items.len() < 2 {
        return items.into_iter().map(act).collect();
    }
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = items
            .into_iter()
            .map(|item| scope.spawn(move || act(item)))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Does `one` for each agent of this machine, one after the other, and `batch` for
/// those of each host. The answers are in the order of the agents.
pub(super) fn for_each<'a, U: Send>(
    agents: &[&'a Agent],
    one: impl Fn(&'a Agent) -> U,
    batch: impl Fn(&[&'a Agent]) -> Vec<U> + Sync,
) -> Vec<U> {
    let mut here = Vec::new();
    let mut hosts: BTreeMap<&Host, Vec<usize>> = BTreeMap::new();
    for (place, agent) in agents.iter().enumerate() {
        match agent.place.host() {
            None => here.push(place),
            Some(host) => hosts.entry(host).or_default().push(place),
        }
    }
    let local = || {
        let done = here.iter().map(|place| (*place, one(agents[*place])));
        done.collect::<Vec<_>>()
    };
    let remote = |places: Vec<usize>| {
        let mut done = Vec::with_capacity(places.len());
        for places in places.chunks(AGENTS) {
            let some: Vec<&Agent> = places.iter().map(|place| agents[*place]).collect();
            done.extend(places.iter().copied().zip(batch(&some)));
        }
        done
    };
    let (mut done, others) = side_by_side(local, hosts.into_values().collect(), remote);
    done.extend(others.into_iter().flatten());
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
