//! OpenSSH's own server on loopback, with its own keys, configuration and log, and the
//! configuration of a client that knows it.
//!
//! This process owns the port, and each connection gets an sshd of its own, as an inetd or a
//! systemd socket would start it (`sshd -i`). So no other process can take the port between
//! choosing and using it, no test waits for a daemon to start, no daemon outlives a killed test,
//! and connections can be counted.

use crate::skip::{skip_missing_tool, skip_unsupported};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::transport::sftp::ssh::SshConnector;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Alias of the server in the client's configuration.
pub const HOST_NAME: &str = "box";

const SSHD_PATH: &str = "/usr/sbin/sshd";

/// Directory that an sshd of root requires, and that a boot creates.
const PRIVSEP_DIRECTORY: &str = "/run/sshd";

/// Upper bound of a wait for an event that must happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// An SSH server. Dropping it closes its port and every connection, and waits for their processes.
pub struct Sshd {
    dir: TempDir,
    port: u16,
    connections: Arc<Connections>,
    acceptor: Option<JoinHandle<()>>,
}

/// Open connections and their count.
struct Connections {
    /// None when the server is closed.
    open: Mutex<Option<Vec<Connection>>>,
    total: AtomicUsize,
}

/// A connection with the process that serves it, and the thread that waits for the end of that
/// process and then closes the connection.
struct Connection {
    stream: TcpStream,
    served_by: Option<Pid>,
    waiting: JoinHandle<()>,
}

impl Connections {
    fn lock_open(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves every connection until the server is closed.
    fn accept_connections(&self, listener: &TcpListener, dir: &Path) {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            let mut inside = self.lock_open();
            let Some(inside) = inside.as_mut() else {
                return;
            };
            self.total.fetch_add(1, Ordering::SeqCst);
            inside.retain(|guest| !guest.waiting.is_finished());
            let end = |stream: &TcpStream| OwnedFd::from(stream.try_clone().expect("a copy"));
            let log = OpenOptions::new().append(true).open(dir.join("log"));
            let mut child = Command::new(SSHD_PATH)
                .args(["-i", "-e", "-f"])
                .arg(dir.join("sshd_config"))
                .stdin(end(&stream))
                .stdout(end(&stream))
                .stderr(log.expect("the log"))
                .spawn()
                .expect("sshd");
            let served_by = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let ours = stream.try_clone().expect("a copy");
            let waiting = thread::spawn(move || {
                let _ = child.wait();
                let _ = ours.shutdown(Shutdown::Both);
            });
            inside.push(Connection {
                stream,
                served_by,
                waiting,
            });
        }
    }
}

impl Sshd {
    /// Starts a server that accepts the user of this process by a key. Returns None where sshd is
    /// missing or cannot run.
    pub fn start() -> Option<Sshd> {
        Sshd::with_config_lines("")
    }

    /// Starts one with a second host key, of another type, that the client does not know.
    pub fn with_further_key() -> Option<Sshd> {
        Sshd::start_with("", true)
    }

    /// Starts one with lines of sshd_config that take precedence over the default ones.
    pub fn with_config_lines(lines: &str) -> Option<Sshd> {
        Sshd::start_with(lines, false)
    }

    fn start_with(lines: &str, further_key: bool) -> Option<Sshd> {
        if !can_run_sshd() {
            return None;
        }
        // Avoids a disk that may be under load, where possible.
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .expect("a directory");
        let at = |name: &str| dir.path().join(name);
        make_key(&at("host_key"));
        make_key(&at("id"));
        fs::copy(at("id.pub"), at("authorized_keys")).expect("the key is copied");
        File::create(at("log")).expect("a log");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let guests = Arc::new(Connections {
            open: Mutex::new(Some(Vec::new())),
            total: AtomicUsize::new(0),
        });
        // A second line for a subsystem is an error, and not ignored.
        let subsystem = if lines.contains("Subsystem ") {
            ""
        } else {
            "Subsystem sftp internal-sftp"
        };
        let config = format!(
            "{lines}
HostKey {}
AuthorizedKeysFile {}
UsePAM no
StrictModes no
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxSessions 1000
LoginGraceTime 300
LogLevel VERBOSE
{subsystem}
",
            at("host_key").display(),
            at("authorized_keys").display(),
        );
        fs::write(at("sshd_config"), config).expect("a configuration");
        if further_key {
            let path = at("further_key");
            ssh_keygen([&"-q", &"-t", &"ecdsa", &"-N", &"", &"-f", &path]);
            let line = format!("HostKey {}\n", path.display());
            let mut config = OpenOptions::new()
                .append(true)
                .open(at("sshd_config"))
                .expect("the configuration");
            config.write_all(line.as_bytes()).expect("a further line");
        }
        let client = format!(
            "Host {HOST_NAME}
HostName 127.0.0.1
Port {port}
Host *
{}",
            client_identity(dir.path()),
        );
        fs::write(at("ssh_config"), client).expect("a configuration");
        let door = {
            let (guests, dir) = (Arc::clone(&guests), dir.path().to_path_buf());
            thread::spawn(move || guests.accept_connections(&listener, &dir))
        };
        let server = Sshd {
            dir,
            port,
            connections: guests,
            acceptor: Some(door),
        };
        server.set_known_host_key(&server.path("host_key"));
        Some(server)
    }

    /// Returns the path of a file of the server: `host_key`, `authorized_keys`, the client's `id`,
    /// `known_hosts` and `ssh_config`, or a new one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's name in known_hosts.
    pub fn known_hosts_name(&self) -> String {
        format!("[127.0.0.1]:{}", self.port)
    }

    /// Writes this key, and no other, into the client's known_hosts.
    pub fn set_known_host_key(&self, key: &Path) {
        let line = format!("{} {}", self.known_hosts_name(), read_public_key(key));
        fs::write(self.path("known_hosts"), line).expect("known_hosts");
    }

    /// Puts lines at the top of the client's configuration: the first value of an option counts.
    pub fn prepend_client_config(&self, lines: &str) {
        let path = self.path("ssh_config");
        let rest = fs::read_to_string(&path).expect("the configuration");
        fs::write(path, format!("{lines}\n{rest}")).expect("the configuration");
    }

    /// Creates a further key pair in the server's directory.
    pub fn new_key(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        make_key(&path);
        path
    }

    /// Returns a connector with the client's configuration.
    pub fn connector(&self) -> SshConnector {
        let config = self.path("ssh_config").into_os_string();
        SshConnector::new(Arc::new(SystemClock)).with_program("ssh", vec!["-F".into(), config])
    }

    /// Returns the number of connections so far.
    pub fn connection_count(&self) -> usize {
        self.connections.total.load(Ordering::SeqCst)
    }

    /// Returns the server's log so far.
    pub fn log(&self) -> String {
        let log = fs::read(self.path("log")).expect("the log");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the number of accepted logins.
    pub fn login_count(&self) -> usize {
        self.log().matches("\nAccepted publickey for ").count()
    }

    /// Returns the number of sessions, of any kind.
    pub fn session_count(&self) -> usize {
        self.log().matches("\nStarting session: ").count()
    }

    /// Closes the port and every connection.
    pub fn close(&mut self) {
        let Some(inside) = self.connections.lock_open().take() else {
            return;
        };
        // Wakes the accept loop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(door) = self.acceptor.take() {
            let _ = door.join();
        }
        for guest in &inside {
            let _ = guest.stream.shutdown(Shutdown::Both);
        }
        let end = Instant::now() + WAIT_TIMEOUT;
        for guest in inside {
            while !guest.waiting.is_finished() && Instant::now() < end {
                thread::park_timeout(Duration::from_millis(2));
            }
            // The process is not reaped yet, so its pid is still its own.
            if !guest.waiting.is_finished()
                && let Some(pid) = guest.served_by
            {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = guest.waiting.join();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.close();
    }
}

fn can_run_sshd() -> bool {
    let here = |program: &str| {
        let found = program
            .starts_with('/')
            .then(|| Path::new(program).exists());
        found.unwrap_or_else(|| Command::new(program).arg("-?").output().is_ok())
    };
    for program in [SSHD_PATH, "ssh", "ssh-keygen"] {
        if !here(program) {
            skip_missing_tool(program);
            return false;
        }
    }
    if rustix::process::geteuid().is_root() && !Path::new(PRIVSEP_DIRECTORY).is_dir() {
        let made = fs::DirBuilder::new().mode(0o755).create(PRIVSEP_DIRECTORY);
        // Another test may have created it since the check.
        if let Err(error) = made
            && !Path::new(PRIVSEP_DIRECTORY).is_dir()
        {
            skip_unsupported(format_args!(
                "sshd as root wants {PRIVSEP_DIRECTORY}: {error}"
            ));
            return false;
        }
    }
    true
}

/// Runs ssh-keygen, which must succeed.
pub fn ssh_keygen<const N: usize>(arguments: [&dyn AsRef<std::ffi::OsStr>; N]) {
    let mut command = Command::new("ssh-keygen");
    for argument in arguments {
        command.arg(argument);
    }
    let done = command.stdin(Stdio::null()).output().expect("ssh-keygen");
    assert!(done.status.success(), "{done:?}");
}

fn make_key(path: &Path) {
    ssh_keygen([
        &"-q", &"-t", &"ed25519", &"-N", &"", &"-C", &"", &"-f", &path,
    ]);
}

/// Returns the lines of a client's configuration that name its key and the known hosts in a
/// directory, and nothing of the user who runs the tests.
pub fn client_identity(directory: &Path) -> String {
    format!(
        "IdentityFile {}
IdentitiesOnly yes
IdentityAgent none
UserKnownHostsFile {}
GlobalKnownHostsFile /dev/null
",
        directory.join("id").display(),
        directory.join("known_hosts").display(),
    )
}

/// Reads the public half of a key.
pub fn read_public_key(key: &Path) -> String {
    fs::read_to_string(key.with_extension("pub")).expect("a public key")
}
