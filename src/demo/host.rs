//! A host in this process: directories of this machine behind an SFTP server, for the demo and for
//! tests. It needs neither ssh nor keys and listens on no port; only its own [`Connector`] connects
//! to it.

mod sftp_handler;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::base::error::{Error, ErrorKind, Result};
use crate::config;
use crate::transport::sftp::session::SessionPipes;
use crate::transport::sftp::ssh::{Connector, SftpStream};
use crate::transport::{FailureCause, TransportError};
pub use sftp_handler::{SftpHandler, SupportedExtensions};

/// A host. Dropping it, or taking it offline, cuts its connections.
pub struct DemoHost {
    home: PathBuf,
    extensions: SupportedExtensions,
    server: Mutex<Option<HostServer>>,
}

impl DemoHost {
    /// Creates a host that is online. Relative paths start in `home`; absolute paths are those of
    /// this machine.
    pub fn start(home: &Path, abilities: SupportedExtensions) -> Result<DemoHost> {
        let host = DemoHost {
            home: home.to_path_buf(),
            extensions: abilities,
            server: Mutex::default(),
        };
        host.go_online()?;
        Ok(host)
    }

    /// Cuts every connection and refuses new ones, as after a network failure.
    pub fn go_offline(&self) {
        // The server is dropped by this call: no request is served after it returns.
        let server = self.lock_server().take();
        drop(server);
    }

    /// Accepts connections again.
    pub fn go_online(&self) -> Result<()> {
        let mut serving = self.lock_server();
        if serving.is_none() {
            let started = HostServer::start(self.home.clone(), self.extensions);
            let failed = |error| Error::from_io("serve", &self.home, &error);
            *serving = Some(started.map_err(failed)?);
        }
        Ok(())
    }

    /// Whether the host is offline.
    pub fn is_offline(&self) -> bool {
        self.lock_server().is_none()
    }

    fn lock_server(&self) -> MutexGuard<'_, Option<HostServer>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for DemoHost {
    fn connect(&self, host: &config::SshHost) -> std::result::Result<SftpStream, TransportError> {
        let unreachable_error = |why: &str| {
            let message = format!("{} cannot be reached: {why}", host.name);
            TransportError::new(
                FailureCause::Unreachable,
                Error::new(ErrorKind::Host, message),
            )
        };
        let serving = self.lock_server();
        let Some(serving) = serving.as_ref() else {
            return Err(unreachable_error("no route to host"));
        };
        let connected = || {
            let (ours, theirs) = UnixStream::pair()?;
            theirs.set_nonblocking(true)?;
            let output = ours.try_clone()?;
            Ok((ours, output, theirs))
        };
        let connected = connected().map_err(|error: io::Error| {
            unreachable_error(&crate::base::error::describe_io_error(&error))
        });
        let (input, output, theirs) = connected?;
        if !serving.accept_connection(theirs) {
            return Err(unreachable_error("it does not serve any more"));
        }
        Ok(SftpStream {
            pipes: SessionPipes {
                input: input.into(),
                output: output.into(),
                stderr: None,
            },
            child: None,
        })
    }
}

/// The server thread. Dropping it ends the thread and every connection.
struct HostServer {
    connections: Option<UnboundedSender<UnixStream>>,
    thread: Option<JoinHandle<()>>,
}

impl HostServer {
    fn start(home: PathBuf, abilities: SupportedExtensions) -> io::Result<HostServer> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (sender, receiver) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("demo host".into())
            .spawn(move || serve_connections(runtime, receiver, &home, abilities))?;
        Ok(HostServer {
            connections: Some(sender),
            thread: Some(thread),
        })
    }

    /// Serves one more connection. Returns false if the server has ended.
    fn accept_connection(&self, connection: UnixStream) -> bool {
        let connections = self.connections.as_ref();
        connections.is_some_and(|connections| connections.send(connection).is_ok())
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        self.connections = None;
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread, the server has ended too.
            let _ = thread.join();
        }
    }
}

/// Serves connections, one request of each after the other, until all senders are gone. Open
/// connections are then cut: they end with the runtime.
fn serve_connections(
    runtime: Runtime,
    mut connections: UnboundedReceiver<UnixStream>,
    home: &Path,
    extensions: SupportedExtensions,
) {
    runtime.block_on(async {
        while let Some(connection) = connections.recv().await {
            // A connection that cannot be watched is dropped, which its other end notices.
            if let Ok(connection) = tokio::net::UnixStream::from_std(connection) {
                let files = SftpHandler::new(home, extensions);
                russh_sftp::server::run(connection, files).await;
            }
        }
    });
}
