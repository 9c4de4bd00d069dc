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
//! | `directory`, `run_directory`, `stage`, `settle`, `pump`, `weaker` | the directory of one memory: [`super::MemoryDirectory`] over SFTP |
//! | `together` | many memories read at the same time |
//!
//! The other side may be anything. No reply is believed that was not asked for,
//! nothing is allocated because a reply announces it, and what a host says is
//! foreign text.

pub mod askpass;
mod batch_read;
mod chunked_read;
mod client;
mod degraded;
mod host_connection;
mod memory_directory;
mod run_directory;
pub mod session;
mod settle;
pub mod ssh;
mod stage;
pub mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use host_connection::SftpTransport;

use super::{Transport, Transports};
use crate::clock::Clock;
use crate::config::SshHost;

/// How long processes may take to end when they are asked to.
const PROCESS_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// This machine's disks by one transport, hosts by sessions.
pub struct PerHostTransports {
    local: Arc<dyn Transport>,
    connector: Arc<dyn ssh::Connector>,
    clock: Arc<dyn Clock>,
    hosts: Mutex<HashMap<SshHost, Arc<SftpTransport>>>,
    /// No host is connected to any more.
    is_closed: AtomicBool,
}

impl PerHostTransports {
    /// No host is connected to before it is asked for.
    pub fn new(
        here: Arc<dyn Transport>,
        dial: Arc<dyn ssh::Connector>,
        clock: Arc<dyn Clock>,
    ) -> PerHostTransports {
        PerHostTransports {
            local: here,
            connector: dial,
            clock,
            hosts: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Transports for PerHostTransports {
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport> {
        let Some(host) = host else {
            return Arc::clone(&self.local);
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(host) {
            return known.clone();
        }
        let new = SftpTransport::new(host.clone(), self.connector.clone(), self.clock.clone());
        let new = Arc::new(new);
        if self.is_closed.load(Ordering::SeqCst) {
            new.close();
        }
        hosts.insert(host.clone(), new.clone());
        new
    }

    fn close_others(&self, kept: &[&SshHost]) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|host, it| !(kept.contains(&host) && it.is_closed()));
        // They stay among the others: who still asks for one must not connect again.
        let others = hosts.iter().filter(|(host, _)| !kept.contains(host));
        others.for_each(|(_, it)| it.close());
    }

    fn close_all(&self) {
        let hosts: Vec<Arc<SftpTransport>> = {
            let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_closed.store(true, Ordering::SeqCst);
            hosts.values().cloned().collect()
        };
        // All of them at once: the slowest decides, not their number.
        hosts.iter().for_each(|host| host.close());
        let end = self.clock.instant() + PROCESS_EXIT_TIMEOUT;
        while !hosts.iter().all(|host| host.has_process_exited()) {
            if self.clock.instant() >= end {
                hosts.iter().for_each(|host| host.kill_process());
                return;
            }
            self.clock.sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for PerHostTransports {
    fn drop(&mut self) {
        self.close_all();
    }
}
