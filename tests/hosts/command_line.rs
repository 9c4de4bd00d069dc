//! The real binary with agents on a host; a script takes the place of ssh.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memory_shepherd::config::SftpExtension;
use memory_shepherd::demo::host::{DemoHost, SupportedExtensions};
use memory_shepherd::transport::sftp::ssh::Connector;
use rustix::process::{Pid, Signal, kill_process_group};

use super::hostile::frames::{is_changing, reply_head, request_name, status_reply};
use super::remote_site::RemoteSite;
use super::servers::{
    FilteredServer, ReplyFate, RequestFate, RequestFilter, host_named, sftp_server, with_length,
};
use super::sshd::Sshd;
use super::world::World;
use crate::skip::skip_missing_tool;

/// Upper bound of a wait for an event that must happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a fleet of one agent on the host that this `ssh` script connects to.
fn site_with_ssh(ssh: &str) -> RemoteSite {
    RemoteSite::new(World::new(&[]), &["ranger"], "", ssh)
}

/// A loopback port that forwards to a host, for an ssh in another process.
struct PortForward {
    port: u16,
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortForward {
    fn listen(dial: impl Connector + 'static) -> PortForward {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&closed);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                forward_stream(&stream.unwrap(), &dial);
            }
        });
        PortForward {
            port,
            closed,
            thread: Some(thread),
        }
    }

    /// Returns a script that connects through the port.
    fn ssh_script(&self) -> String {
        format!(
            "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{}\ncat <&3 &\ncat >&3\nkill $!\n",
            self.port
        )
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Copies bytes between a stream and a host until either side closes.
fn forward_stream(stream: &TcpStream, dial: &impl Connector) {
    let link = dial.connect(&host_named("box")).unwrap().pipes;
    let (mut there, mut back) = (File::from(link.input), File::from(link.output));
    let (mut asks, mut hears) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    thread::spawn(move || {
        copy_bytes(&mut asks, &mut there);
        // Both ends of the link are one socket.
        let _ = rustix::net::shutdown(&there, rustix::net::Shutdown::Both);
    });
    thread::spawn(move || {
        copy_bytes(&mut back, &mut hears);
        let _ = hears.shutdown(Shutdown::Both);
    });
}

fn copy_bytes(from: &mut impl Read, to: &mut impl Write) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn remote_agent_is_reset_with_restricted_writes() {
    let Some(server) = Sshd::start() else { return };
    let config = server.path("ssh_config");
    let ssh = format!(
        "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n",
        config.display()
    );
    let site = site_with_ssh(&ssh);
    let before = site.world.read_memory("ranger");
    for argument in ["ranger", "--all"] {
        let done = site.run_program(&["reset", argument, "--restrict-writes"]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    }
    assert_ne!(site.world.read_memory("ranger"), before);
    assert_eq!(server.connection_count(), 2);
    let done = site.run_program(&["undo", "ranger"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(site.world.read_memory("ranger"), before);
}

/// Index of a field in the reply to statvfs.
const BLOCKS_AVAILABLE_FIELD: usize = 4;
const FLAGS_FIELD: usize = 9;

#[test]
fn unwritable_host_is_reported_with_its_reason() {
    if !Path::new("/bin/bash").exists() {
        return skip_missing_tool("bash");
    }
    const FAILURE: u32 = 4;
    const DENIED: u32 = 3;
    for (code, number, value, hint) in [
        (
            FAILURE,
            FLAGS_FIELD,
            1,
            Some("the host's file system is read-only"),
        ),
        (
            FAILURE,
            BLOCKS_AVAILABLE_FIELD,
            0,
            Some("the host's file system is full"),
        ),
        // A quota does not show in the reply.
        (FAILURE, BLOCKS_AVAILABLE_FIELD, 1_000_000, None),
        (DENIED, FLAGS_FIELD, 0, None),
    ] {
        let Some(server) = sftp_server() else { return };
        let judge: RequestFilter = Arc::new(move |_, frame| {
            if is_changing(frame) {
                RequestFate::Reply(with_length(&status_reply(frame, code)))
            } else {
                RequestFate::Pass
            }
        });
        let between =
            FilteredServer::new(server, judge).with_reply_filter(Arc::new(move |asked, frame| {
                if asked.number > 0 && request_name(&asked.frame) == "statvfs" {
                    // A disk with room for everything.
                    let mut numbers = [1_000_000_u64; 11];
                    (numbers[0], numbers[1], numbers[FLAGS_FIELD]) = (4096, 4096, 0);
                    numbers[number] = value;
                    *frame = reply_head(201, &asked.frame);
                    frame.extend(numbers.iter().flat_map(|it| it.to_be_bytes()));
                }
                ReplyFate::Pass
            }));
        let door = PortForward::listen(between);
        let site = site_with_ssh(&door.ssh_script());
        let before = site.world.read_memory("ranger");
        let done = site.run_program(&["reset", "ranger"]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(3), "{code} {number}: {done:?}");
        assert!(said.contains("error: ranger: "), "{said}");
        let words = match code {
            DENIED => "permission denied",
            _ => "the server failed without a reason",
        };
        assert!(said.to_lowercase().contains(words), "{said}");
        match hint {
            Some(hint) => assert!(said.contains(&format!("hint: {hint}")), "{said}"),
            None => assert!(!said.contains("the host's file system"), "{said}"),
        }
        assert_eq!(site.world.read_memory("ranger"), before);
        assert!(site.world.leftovers("ranger").is_empty());
    }
}

#[test]
fn dry_run_lists_each_degradation_once() {
    if !Path::new("/bin/bash").exists() {
        return skip_missing_tool("bash");
    }
    let lacks = SupportedExtensions {
        posix_rename: false,
        hardlink: false,
        fsync: false,
        statvfs: true,
        limits: true,
    };
    let door = PortForward::listen(DemoHost::start(Path::new("/"), lacks).unwrap());
    let accepts = "accept_degraded = posix-rename, hardlink, fsync";
    let agents = ["ranger", "scout"];
    let site = RemoteSite::new(World::new(&[]), &agents, accepts, &door.ssh_script());
    let done = site.run_program(&["reset", "--all", "--dry-run"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<&str> = said
        .lines()
        .filter(|it| it.starts_with("degraded: "))
        .collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].contains("on other hosts a memory is absent for a moment"));
    for (line, lacks) in lines[1..].iter().zip(SftpExtension::ALL) {
        let (name, without) = (lacks.as_str(), lacks.degradation());
        assert_eq!(
            *line,
            format!("degraded: box lacks {name}@openssh.com: {without}")
        );
    }
}

/// Returns the state letter of a process, or None if it does not exist.
fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields follow the process name, which may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn quit_console_leaves_no_ssh_process() {
    if sftp_server().is_none() {
        return;
    }
    for by_key in [true, false] {
        // A child that does not exit on its own when its input closes.
        let site = site_with_ssh(
            "#!/bin/sh

case \"$*\" in *-G*) exit 0 ;; esac
echo $$ > \"${0%/*}/pid\"
for server in /usr/lib/openssh/sftp-server /usr/libexec/sftp-server; do
    [ -x $server ] && $server
done
sleep 600
",
        );
        let mut console = site.start_console();
        console.wait("the agent was read", |console| {
            let text = console.text();
            let mut lines = text.lines();
            lines.any(|line| line.contains("SCRATCH") && line.contains("ranger"))
        });
        let pid_text = fs::read_to_string(site.bin.join("pid")).unwrap();
        let pid: u32 = pid_text.trim().parse().unwrap();
        assert!(
            process_state(pid).is_some_and(|it| it != 'Z'),
            "no session was opened"
        );
        if by_key {
            console.send("q");
        } else {
            console.signal(Signal::TERM);
        }
        console.wait_for_exit();
        let end = Instant::now() + WAIT_TIMEOUT;
        // A zombie counts as ended: its parent may not have reaped it yet.
        let is_left = || process_state(pid).is_some_and(|it| it != 'Z');
        while is_left() && Instant::now() < end {
            thread::park_timeout(Duration::from_millis(5));
        }
        let left = is_left();
        if left && let Some(group) = Pid::from_raw(pid.cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        assert!(!left, "ssh is left, by key: {by_key}");
    }
}
