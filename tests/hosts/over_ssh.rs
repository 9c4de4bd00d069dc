//! The demo's SFTP server behind the SSH protocol, in this process and on loopback: the operator's
//! ssh as the client, without OpenSSH on the server side.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config;
use memory_shepherd::demo::host::{SftpHandler, SupportedExtensions};
use memory_shepherd::transport::TransportError;
use memory_shepherd::transport::sftp::SftpTransport;
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream, SshConnector};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, Session, VerifiedPublicKey, run_stream,
};
use russh::{Channel, ChannelId};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::contract::DiskFixture;
use super::remote::sftp_fixture_with;
use super::servers;
use super::sshd::client_identity;
use crate::skip::skip_missing_tool;

/// Alias of the server in the client's configuration.
const HOST_NAME: &str = "box";

/// A server, and an ssh that knows it. Dropping it closes every connection.
struct RusshServer {
    dir: TempDir,
    /// Dropping it ends the server thread.
    running: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl RusshServer {
    /// Starts the server; returns None where ssh is missing.
    fn start() -> Option<RusshServer> {
        let ssh = Command::new("ssh").arg("-V").stderr(Stdio::null()).status();
        if ssh.is_err() {
            skip_missing_tool("ssh");
            return None;
        }
        let (theirs, ours) = (random_key(), random_key());
        let known = theirs.public_key().to_openssh().unwrap();
        let guest = ours.public_key().clone();
        let config = Arc::new(Config {
            keys: vec![theirs],
            // ssh first tries without a key, to learn which methods there are.
            auth_rejection_time: Duration::ZERO,
            nodelay: true,
            ..Config::default()
        });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = runtime.block_on(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (running, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                tokio::spawn(serve(listener, config, guest));
                let _ = stopped.await;
            });
        });
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("known_hosts"), format!("[127.0.0.1]:{port} {known}\n")).unwrap();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(at("id"))
            .unwrap();
        let secret = ours.to_openssh(LineEnding::LF).unwrap();
        file.write_all(secret.as_bytes()).unwrap();
        let client = format!(
            "Host {HOST_NAME}
HostName 127.0.0.1
Port {port}
User shepherd
{}",
            client_identity(dir.path()),
        );
        fs::write(at("ssh_config"), client).unwrap();
        Some(RusshServer {
            dir,
            running: Some(running),
            thread: Some(thread),
        })
    }
}

impl Drop for RusshServer {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Connects with the ssh of this machine.
impl Connector for RusshServer {
    fn connect(&self, host: &config::SshHost) -> Result<SftpStream, TransportError> {
        let file = self.dir.path().join("ssh_config").into_os_string();
        // The server is a thread of this process: when the machine pauses, ssh must not count it as
        // dead.
        let alive = "-oServerAliveInterval=0".into();
        let ssh = SshConnector::new(Arc::new(SystemClock))
            .with_program("ssh", vec!["-F".into(), file, alive]);
        ssh.connect(host)
    }
}

fn random_key() -> PrivateKey {
    let mut seed = [0; 32];
    let flags = rustix::rand::GetRandomFlags::empty();
    assert_eq!(
        rustix::rand::getrandom(&mut seed, flags).unwrap(),
        seed.len()
    );
    PrivateKey::from(Ed25519Keypair::from_seed(&seed))
}

async fn serve(listener: TcpListener, config: Arc<Config>, guest: PublicKey) {
    while let Ok((stream, _)) = listener.accept().await {
        let door = SftpOnlyHandler {
            client_key: guest.clone(),
            channel: None,
        };
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            if let Ok(session) = run_stream(config, stream, door).await {
                // A client may disconnect without a message.
                let _ = session.await;
            }
        });
    }
}

/// Accepts one key, and the SFTP subsystem only.
struct SftpOnlyHandler {
    client_key: PublicKey,
    channel: Option<Channel<Msg>>,
}

impl Handler for SftpOnlyHandler {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(if key.public_key.key_data() == self.client_key.key_data() {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match self.channel.take() {
            Some(channel) if name == "sftp" => {
                session.channel_success(id)?;
                let files = SftpHandler::new(Path::new("/"), SupportedExtensions::ALL);
                russh_sftp::server::run(channel.into_stream(), files).await;
                Ok(())
            }
            _ => session.channel_failure(id),
        }
    }
}

/// Returns a directory on this disk, through ssh and a server that is not OpenSSH's.
pub fn ssh_fixture() -> Option<DiskFixture<SftpTransport>> {
    Some(sftp_fixture_with(
        servers::host_named(HOST_NAME),
        RusshServer::start()?,
    ))
}
