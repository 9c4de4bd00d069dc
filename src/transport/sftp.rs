//! Access to memories on other hosts: SFTP version 3 (draft-ietf-secsh-filexfer-02) with OpenSSH's
//! extensions (its file PROTOCOL), over a child process of the operator's own ssh. All callers
//! share one session per host.
//!
//! | module | what it owns |
//! |---|---|
//! | [`wire`] | encoding of requests and replies: pure; the other side is hostile |
//! | [`session`] | many requests of many callers over one pair of pipes, in bounded time and memory |
//! | [`ssh`] | the ssh child, and the meaning of its messages |
//! | [`askpass`] | the child's questions to the operator, in the console |
//! | `host_connection` | the connection to one host: its session, and the pauses between attempts |
//! | `ending_links` | sessions that have ended, until their processes have exited |
//! | `client` | one session: paths, limits, and requests about a path |
//! | `chunked_read`, `timed_reader`, `batch_read` | reads of open files, in bounded time, and of several memories at once |
//! | `directory` | an open directory: its state |
//! | `run_directory`, `displaced_files`, `write_support` | parts of that state: the directory of a run, the open files in it, and what the server supports |
//! | `stage`, `swap`, `settle`, `recovery` | the steps of a replacement in it |
//! | `memory_directory` | [`super::MemoryDirectory`] over SFTP |
//!
//! The other side may be hostile. The client accepts no reply that it did not request, allocates
//! nothing because a reply announces it, and treats all text of a host as untrusted.

pub mod askpass;
mod batch_read;
mod chunked_read;
mod client;
mod directory;
mod displaced_files;
mod ending_links;
mod host_connection;
mod listing;
mod memory_directory;
mod recovery;
mod run_directory;
pub mod session;
mod settle;
pub mod ssh;
mod stage;
mod swap;
mod timed_reader;
pub mod wire;
mod write_support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use host_connection::SftpTransport;

use super::{Transport, Transports};
use crate::base::clock::Clock;
use crate::config::SshHost;

/// Time for processes to exit after they were asked to.
const PROCESS_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The local transport for this machine's disks, and one session per host.
pub struct PerHostTransports {
    local: Arc<dyn Transport>,
    connector: Arc<dyn ssh::Connector>,
    clock: Arc<dyn Clock>,
    hosts: Mutex<HashMap<SshHost, Arc<SftpTransport>>>,
    /// Set when all connections were closed; no further one opens.
    is_closed: AtomicBool,
}

impl PerHostTransports {
    /// Creates the transports; a host is connected on first use.
    pub fn new(
        local: Arc<dyn Transport>,
        connector: Arc<dyn ssh::Connector>,
        clock: Arc<dyn Clock>,
    ) -> PerHostTransports {
        PerHostTransports {
            local,
            connector,
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
        // The other hosts stay in the map: a caller that still holds one must not reconnect.
        let others = hosts.iter().filter(|(host, _)| !kept.contains(host));
        others.for_each(|(_, it)| it.close());
    }

    fn close_all(&self) {
        let hosts: Vec<Arc<SftpTransport>> = {
            let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_closed.store(true, Ordering::SeqCst);
            hosts.values().cloned().collect()
        };
        // Closes all before waiting: the slowest decides, not their number.
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
