//! A host in this process: folders of this machine behind an SFTP server, for
//! the demo and for tests. It needs neither ssh nor keys and listens nowhere;
//! only its own [`Connector`] leads to it.

mod files;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config;
use crate::error::{Error, Kind, Result};
use crate::transport::sftp::session::Link;
use crate::transport::sftp::ssh::{Connector, SftpStream};
use crate::transport::{Cause, TransportError};
pub use files::{Abilities, Files};

/// A host. What is connected to it is cut when it is dropped or goes away.
pub struct Host {
    home: PathBuf,
    abilities: Abilities,
    serving: Mutex<Option<Serving>>,
}

impl Host {
    /// A host that can be reached at once. Paths that are not absolute begin in
    /// `home`; the others are those of this machine.
    ///
    /// # Errors
    /// What the system answered.
    pub fn start(home: &Path, abilities: Abilities) -> Result<Host> {
        let host = Host {
            home: home.to_path_buf(),
            abilities,
            serving: Mutex::default(),
        };
        host.come_back()?;
        Ok(host)
    }

    /// Cuts every connection and refuses new ones, as if its network had failed.
    pub fn go_away(&self) {
        // Dropped by whoever calls: nothing is served any more when this returns.
        let gone = self.serving().take();
        drop(gone);
    }

    /// Can be reached again.
    ///
    /// # Errors
    /// What the system answered.
    pub fn come_back(&self) -> Result<()> {
        let mut serving = self.serving();
        if serving.is_none() {
            let started = Serving::start(self.home.clone(), self.abilities);
            let failed = |error| Error::io("serve", &self.home, &error);
            *serving = Some(started.map_err(failed)?);
        }
        Ok(())
    }

    /// Whether it cannot be reached.
    pub fn is_away(&self) -> bool {
        self.serving().is_none()
    }

    fn serving(&self) -> MutexGuard<'_, Option<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for Host {
    fn dial(&self, host: &config::Host) -> std::result::Result<SftpStream, TransportError> {
        let failed = |why: &str| {
            let message = format!("{} cannot be reached: {why}", host.name);
            TransportError::new(Cause::Unreachable, Error::new(Kind::Host, message))
        };
        let serving = self.serving();
        let Some(serving) = serving.as_ref() else {
            return Err(failed("no route to host"));
        };
        let connected = || {
            let (ours, theirs) = UnixStream::pair()?;
            theirs.set_nonblocking(true)?;
            let output = ours.try_clone()?;
            Ok((ours, output, theirs))
        };
        let connected =
            connected().map_err(|error: io::Error| failed(&crate::error::cause(&error)));
        let (input, output, theirs) = connected?;
        if !serving.takes(theirs) {
            return Err(failed("it does not serve any more"));
        }
        Ok(SftpStream {
            link: Link {
                input: input.into(),
                output: output.into(),
                errors: None,
            },
            child: None,
        })
    }
}

/// The thread that serves. Dropping this ends it, and every connection with it.
struct Serving {
    connections: Option<UnboundedSender<UnixStream>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(home: PathBuf, abilities: Abilities) -> io::Result<Serving> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (sender, receiver) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("demo host".into())
            .spawn(move || serve(runtime, receiver, &home, abilities))?;
        Ok(Serving {
            connections: Some(sender),
            thread: Some(thread),
        })
    }

    /// Serves one more connection; false where nobody does any more.
    fn takes(&self, connection: UnixStream) -> bool {
        let connections = self.connections.as_ref();
        connections.is_some_and(|connections| connections.send(connection).is_ok())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.connections = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it serves nobody, either.
            let _ = thread.join();
        }
    }
}

/// Serves connections, one request of each after the other, until nobody can send
/// any more. What is still connected then is cut: it goes with the runtime.
fn serve(
    runtime: Runtime,
    mut connections: UnboundedReceiver<UnixStream>,
    home: &Path,
    abilities: Abilities,
) {
    runtime.block_on(async {
        while let Some(connection) = connections.recv().await {
            // One that cannot be watched is dropped, which its other end sees.
            if let Ok(connection) = tokio::net::UnixStream::from_std(connection) {
                let files = Files::new(home, abilities);
                russh_sftp::server::run(connection, files).await;
            }
        }
    });
}
