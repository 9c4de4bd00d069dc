//! Memories on other hosts: SFTP version 3 (draft-ietf-secsh-filexfer-02) with
//! OpenSSH's extensions (its file PROTOCOL), over a child of the operator's own
//! ssh. One session for each host, which everybody shares.
//!
//! | module | what it is for |
//! |---|---|
//! | [`wire`] | the bytes of requests and replies: pure, and hostile on the other side |
//! | [`session`] | many requests of many callers over one pair of pipes, in bounded time and memory |
//! | [`ssh`] | the child, and what its words mean |
//! | [`askpass`] | what the child asks, in the console |
//! | `host` | one host: whether there is a session, and the pauses between the tries |
//! | `connection` | one session, and what a look at a memory says |
//! | `folder`, `run_folder`, `stage`, `settle`, `pump`, `weaker` | the folder of one memory: [`super::Folder`] over SFTP |
//! | `together` | many memories read at the same time |
//!
//! The other side may be anything. No reply is believed that was not asked for,
//! nothing is allocated because a reply announces it, and what a host says is
//! foreign text.

pub mod askpass;
mod connection;
mod folder;
mod host;
mod pump;
mod run_folder;
pub mod session;
mod settle;
pub mod ssh;
mod stage;
mod together;
mod weaker;
pub mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use host::Sftp;

use super::{Transport, Transports};
use crate::clock::Clock;
use crate::config::Host;

/// How long processes may take to end when they are asked to.
const ENDING: Duration = Duration::from_secs(1);

/// This machine's disks by one transport, hosts by sessions.
pub struct Everywhere {
    here: Arc<dyn Transport>,
    dial: Arc<dyn ssh::Connector>,
    clock: Arc<dyn Clock>,
    hosts: Mutex<HashMap<Host, Arc<Sftp>>>,
    /// No host is connected to any more.
    left: AtomicBool,
}

impl Everywhere {
    /// No host is connected to before it is asked for.
    pub fn new(
        here: Arc<dyn Transport>,
        dial: Arc<dyn ssh::Connector>,
        clock: Arc<dyn Clock>,
    ) -> Everywhere {
        Everywhere {
            here,
            dial,
            clock,
            hosts: Mutex::default(),
            left: AtomicBool::new(false),
        }
    }
}

impl Transports for Everywhere {
    fn to(&self, host: Option<&Host>) -> Arc<dyn Transport> {
        let Some(host) = host else {
            return Arc::clone(&self.here);
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(host) {
            return known.clone();
        }
        let new = Sftp::new(host.clone(), self.dial.clone(), self.clock.clone());
        let new = Arc::new(new);
        if self.left.load(Ordering::SeqCst) {
            new.leave();
        }
        hosts.insert(host.clone(), new.clone());
        new
    }

    fn leave_others(&self, kept: &[&Host]) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|host, it| !(kept.contains(&host) && it.is_left()));
        // They stay among the others: who still asks for one must not connect again.
        let others = hosts.iter().filter(|(host, _)| !kept.contains(host));
        others.for_each(|(_, it)| it.leave());
    }

    fn leave(&self) {
        let hosts: Vec<Arc<Sftp>> = {
            let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            self.left.store(true, Ordering::SeqCst);
            hosts.values().cloned().collect()
        };
        // All of them at once: the slowest decides, not their number.
        hosts.iter().for_each(|host| host.leave());
        let end = self.clock.instant() + ENDING;
        while !hosts.iter().all(|host| host.has_left()) {
            if self.clock.instant() >= end {
                hosts.iter().for_each(|host| host.kill());
                return;
            }
            self.clock.sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        self.leave();
    }
}
