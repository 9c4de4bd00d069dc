//! Costs of agents on other hosts, as ratios of operations in the same run, with OpenSSH's client
//! and server on loopback:
//!
//! - 20 and 100 agents of one host, observed and reset by the program, against the original tool's
//!   procedure: for each agent an scp down, an entry, an scp up;
//! - 200 agents on 20 hosts, of which three are dead: when the live ones are done, with the dead
//!   and without them, and when the command ends;
//! - 50 agents of one host behind a line with a round trip of 100 ms: the number of round trips of
//!   a sweep and of a reset, without connecting.
//!
//! `cargo bench --bench hosts`; one part of it with a word of its title, such as `cargo bench
//! --bench hosts -- line`. Each figure is the median of several rounds, in which the compared
//! operations take turns.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/bench_fleet.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_fleet;
#[path = "../tests/support/skip.rs"]
mod skip;
#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/hosts/sshd.rs"]
mod sshd;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config::SshHost;
use memory_shepherd::transport::Transport;
use memory_shepherd::transport::sftp::SftpTransport;
use memory_shepherd::transport::sftp::ssh::SshConnector;

use self::bench_fleet::{Fleet, median, millis, ratio};
use self::sshd::{HOST_NAME, Sshd, read_public_key};

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");
const ROUNDS: usize = 5;

/// Round trip of the long line.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Timeout of a host, in seconds.
const TIMEOUT: u32 = 5;

/// Upper bound of any command: what takes longer hangs.
const BOUND: Duration = Duration::from_secs(300);

fn main() {
    let directory = tempfile::Builder::new()
        .prefix("hosts-bench")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a directory");
    let directory = directory.path().canonicalize().expect("a directory");
    type Part = fn(&Path) -> Option<()>;
    let parts: [(&str, Part); 3] = [("scp", against_scp), ("dead", dead), ("line", line)];
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let words = asked.iter().filter(|word| !word.starts_with('-'));
    let words: Vec<&String> = words.collect();
    for (title, part) in parts {
        if words.is_empty() || words.iter().any(|word| *word == title) {
            // Where sshd is missing, a notice was printed.
            let _ = part(&directory.join(title));
        }
    }
}

impl Fleet {
    /// Creates `each` agents on each of these hosts, reached by an ssh that reads only this
    /// configuration.
    fn new(root: PathBuf, hosts: &[String], each: usize, ssh_config: &Path) -> Fleet {
        let general = format!("remote_timeout = {TIMEOUT}\n");
        let fleet = Fleet::on_hosts(root, &general, hosts, each);
        fleet.wrap("ssh", ssh_config);
        fleet.wrap("scp", ssh_config);
        fleet
    }

    /// Writes a wrapper of the program of that name that reads only this configuration.
    fn wrap(&self, name: &str, ssh_config: &Path) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|directory| directory.join(name));
        let real = found.find(|path| path.is_file()).expect("OpenSSH's client");
        let wrapper = self.root.join("bin").join(name);
        fs::create_dir_all(wrapper.parent().unwrap()).unwrap();
        let script = format!(
            "#!/bin/sh\nexec {} -F {} \"$@\"\n",
            real.display(),
            ssh_config.display()
        );
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn is_reset(&self, agent: &str) -> bool {
        // Between two names it is absent for a moment.
        let length = fs::metadata(self.memory(agent)).map(|meta| meta.len());
        length.is_ok_and(|length| length == self.baseline.len() as u64)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = std::iter::once(self.root.join("bin"));
        let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
        command.env_clear().env("PATH", path);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(BINARY);
        command.args(arguments).arg("-q").arg("--config");
        command.arg(self.config_path());
        command
    }

    /// Runs a command, which must succeed, and returns its duration.
    fn time(&self, mut command: Command) -> Duration {
        let began = Instant::now();
        let code = wait(command.spawn().expect("the program"), |_| {});
        assert_eq!(code, Some(0), "{command:?}");
        began.elapsed()
    }

    fn status(&self) -> Duration {
        self.time(self.program(&["status"]))
    }

    fn reset(&self) -> Duration {
        let time = self.time(self.program(&["reset", "--all"]));
        for agent in &self.agents {
            assert!(self.is_reset(agent), "{agent} was not reset");
        }
        time
    }

    /// Measures the original tool's procedure: `what` is `look` or `reset`.
    fn by_scp(&self, what: &str) -> Duration {
        let script = self.root.join("original.sh");
        fs::write(&script, SCRIPT).unwrap();
        let mut command = self.command("bash");
        command.arg(script).arg(&self.root).arg(HOST_NAME).arg(what);
        self.time(command)
    }
}

/// Waits for the end of a process and calls `look` in the meantime; returns the exit code.
fn wait(mut child: Child, mut look: impl FnMut(Duration)) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if began.elapsed() > BOUND {
            child.kill().unwrap();
        }
        look(began.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
}

/// For each agent: fetches its memory, keeps the part below the last separator, and sends the
/// baseline.
const SCRIPT: &str = r##"
set -e
root=$1
host=$2
what=$3
mkdir -p "$root/by-scp"
for directory in "$root"/agents/*; do
  agent=$(basename "$directory")
  memory=$directory/MEMORY.md
  baseline=$root/baselines/$agent.md
  here=$root/by-scp/$agent.tmp
  timeout 15 scp -q -o BatchMode=yes "$host:$memory" "$here"
  [ "$what" = reset ] || continue
  line=$(grep -n '^---$' "$here" | tail -1 | cut -d: -f1)
  notes=$(tail -n +$((line + 1)) "$here" | sed '/^$/d')
  stamp=$(date +%Y-%m-%d_%H%M)
  mkdir -p "$root/by-scp/$agent"
  printf '# %s\n\n%s\n' "$agent" "$notes" > "$root/by-scp/$agent/$stamp.md"
  timeout 15 scp -q -o BatchMode=yes "$baseline" "$host:$memory"
  rm "$here"
done
"##;

/// Returns the verdict on a figure.
fn verdict(good: bool) -> &'static str {
    if good { "" } else { "   <-- NOT MET" }
}

fn against_scp(directory: &Path) -> Option<()> {
    let server = Sshd::start()?;
    for (count, least, rounds) in [(20, 10.0, 3), (100, 25.0, 1)] {
        let root = directory.join(format!("of-{count}"));
        let hosts = [HOST_NAME.to_string()];
        let fleet = Fleet::new(root, &hosts, count, &server.path("ssh_config"));
        let mut times = [const { Vec::new() }; 4];
        for round in 0..=rounds {
            fleet.scribble();
            let ours = [fleet.status(), fleet.reset()];
            // The first round makes directories and keeps the baselines' versions.
            if round == 0 {
                continue;
            }
            let theirs_looking = fleet.by_scp("look");
            fleet.scribble();
            let all = [ours[0], ours[1], theirs_looking, fleet.by_scp("reset")];
            for (times, time) in times.iter_mut().zip(all) {
                times.push(time);
            }
        }
        let [status, reset, look, scp] = times.map(median);
        for (what, ours, theirs) in [("status", status, look), ("reset", reset, scp)] {
            let times = ratio(theirs, ours);
            println!(
                "{count} agents of one host, {what}: {:.0} ms; by scp {:.0} ms, {times:.1} times \
                 slower (at least {least}){}",
                millis(ours),
                millis(theirs),
                verdict(times >= least)
            );
        }
    }
    Some(())
}

/// Number of hosts of [`dead`].
const HOSTS: usize = 20;
/// Number of agents on each of them.
const EACH: usize = 10;
/// The hosts that do not answer.
const DEAD: [usize; 3] = [3, 7, 11];

fn host_name(number: usize) -> String {
    format!("host-{number:02}")
}

/// The hosts, some of them dead, and the ssh config that names them.
struct HostsWithDead {
    ssh_config: PathBuf,
    _servers: Vec<Sshd>,
    _silent: Vec<TcpListener>,
}

/// Starts the hosts. `None` where there is no sshd.
fn start_hosts_with_dead(directory: &Path) -> Option<HostsWithDead> {
    let mut config = String::new();
    let mut servers = Vec::new();
    // Two accept connections and never send a byte, one has no listener.
    let mut silent: Vec<TcpListener> = (0..DEAD.len())
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .collect();
    let ports = silent.iter().map(|it| it.local_addr().unwrap().port());
    let ports: Vec<u16> = ports.collect();
    for number in 0..HOSTS {
        let (port, more) = match DEAD.iter().position(|it| *it == number) {
            Some(place) => (ports[place], String::new()),
            None => {
                let server = Sshd::start()?;
                let more = format!(
                    "IdentityFile {}\nUserKnownHostsFile {}\n",
                    server.path("id").display(),
                    server.path("known_hosts").display()
                );
                let port = server.port();
                servers.push(server);
                (port, more)
            }
        };
        config.push_str(&format!(
            "Host {}\nHostName 127.0.0.1\nPort {port}\n{more}",
            host_name(number)
        ));
    }
    // Not earlier: the port is free from here on.
    silent.pop();
    config.push_str(
        "Host *\nIdentitiesOnly yes\nIdentityAgent none\nGlobalKnownHostsFile /dev/null\n",
    );
    fs::create_dir_all(directory).unwrap();
    let ssh_config = directory.join("ssh_config");
    fs::write(&ssh_config, config).unwrap();
    Some(HostsWithDead {
        ssh_config,
        _servers: servers,
        _silent: silent,
    })
}

/// Measures agents on twenty hosts, all of which answer or three of which are dead.
fn dead(directory: &Path) -> Option<()> {
    let hosts = start_hosts_with_dead(directory)?;
    let all: Vec<String> = (0..HOSTS).map(host_name).collect();
    let living: Vec<String> = (0..HOSTS)
        .filter(|it| !DEAD.contains(it))
        .map(host_name)
        .collect();
    let with = Fleet::new(directory.join("with"), &all, EACH, &hosts.ssh_config);
    let without = Fleet::new(directory.join("without"), &living, EACH, &hosts.ssh_config);
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        for (place, fleet) in [&with, &without].into_iter().enumerate() {
            fleet.scribble();
            let (done, end) = until_living_are_done(fleet, &living);
            if round > 0 {
                times[place].push(done);
                times[2 + place].push(end);
            }
        }
    }
    let [with, without, with_end, without_end] = times.map(median);
    let times = ratio(with, without);
    println!(
        "{} agents on {HOSTS} hosts, {} of them dead: the live ones are done after {:.0} ms, {times:.2} \
         times the {:.0} ms without the dead ones (at most 1.2){}",
        HOSTS * EACH,
        DEAD.len(),
        millis(with),
        millis(without),
        verdict(times <= 1.2)
    );
    // ssh and the program have to start and to end as well.
    let limit = Duration::from_secs(TIMEOUT.into()) + Duration::from_millis(1500);
    println!(
        "the command ends after {:.0} ms, the connect limit is {TIMEOUT} s{}; without the dead \
         after {:.0} ms",
        millis(with_end),
        verdict(with_end <= limit),
        millis(without_end)
    );
    Some(())
}

/// Resets; returns when the last agent of a live host was reset, and when the command ended.
fn until_living_are_done(fleet: &Fleet, living: &[String]) -> (Duration, Duration) {
    let is_living = |agent: &&String| living.iter().any(|host| agent.starts_with(host.as_str()));
    let mut left: Vec<&String> = fleet.agents.iter().filter(is_living).collect();
    let mut done = None;
    let mut command = fleet.program(&["reset", "--all"]);
    command.stderr(Stdio::null());
    let began = Instant::now();
    let code = wait(command.spawn().expect("the program"), |passed| {
        left.retain(|agent| !fleet.is_reset(agent));
        if left.is_empty() {
            done.get_or_insert(passed);
        }
    });
    let end = began.elapsed();
    let dead = fleet.agents.iter().filter(|it| !is_living(it)).count();
    assert_eq!(code, Some(if dead > 0 { 3 } else { 0 }));
    left.retain(|agent| !fleet.is_reset(agent));
    assert!(left.is_empty(), "not reset: {left:?}");
    (done.unwrap_or(end), end)
}

fn line(directory: &Path) -> Option<()> {
    const AGENTS: usize = 50;
    let server = Sshd::start()?;
    let port = slow_line(server.port());
    server.prepend_client_config(&format!(
        "Host far\nHostName 127.0.0.1\nPort {port}\nHostKeyAlias far"
    ));
    let mut known = File::options()
        .append(true)
        .open(server.path("known_hosts"))
        .unwrap();
    write!(known, "far {}", read_public_key(&server.path("host_key"))).unwrap();
    let ssh_config = server.path("ssh_config");
    let hosts = ["far".to_string()];
    let fleet = |count: usize| {
        let root = directory.join(format!("of-{count}"));
        Fleet::new(root, &hosts, count, &ssh_config)
    };
    let (one, many) = (fleet(1), fleet(AGENTS));
    let mut times = [const { Vec::new() }; 5];
    for round in 0..=ROUNDS {
        one.scribble();
        many.scribble();
        let all = [
            connect(&ssh_config),
            one.status(),
            one.reset(),
            many.status(),
            many.reset(),
        ];
        if round > 0 {
            for (times, time) in times.iter_mut().zip(all) {
                times.push(time);
            }
        }
    }
    let [connect, one_status, one_reset, status, reset] = times.map(median);
    println!(
        "round trip of {:.0} ms: connect, one request and disconnect take {:.0} ms, {:.1} round trips",
        millis(ROUND_TRIP),
        millis(connect),
        ratio(connect, ROUND_TRIP)
    );
    let trips = |time: Duration| ratio(time.saturating_sub(connect), ROUND_TRIP);
    for (what, one, many, most) in [
        ("status", one_status, status, 6.0),
        ("reset", one_reset, reset, 14.0),
    ] {
        println!(
            "{AGENTS} agents, {what}: {:.0} ms, {:.1} round trips after connecting (at most \
             {most}){}; one agent {:.1}",
            millis(many),
            trips(many),
            verdict(trips(many) <= most),
            trips(one)
        );
    }
    Some(())
}

/// Measures the time to connect, to resolve one path, and to end.
fn connect(ssh_config: &Path) -> Duration {
    let host = SshHost {
        name: "far".to_string(),
        user: None,
        port: None,
        identity_file: None,
        timeout_seconds: 60,
    };
    let clock = Arc::new(SystemClock);
    let arguments = vec!["-F".into(), ssh_config.as_os_str().to_os_string()];
    let dial = SshConnector::new(clock.clone()).with_program("ssh", arguments);
    let began = Instant::now();
    let far = SftpTransport::new(host, Arc::new(dial), clock);
    far.probe(&[]);
    let connected = began.elapsed();
    let outside = far.probe(&[Path::new("/etc/passwd")]);
    outside[0].as_ref().expect("it is connected");
    let began = Instant::now();
    drop(far);
    connected + began.elapsed()
}

/// Opens a port that forwards to another one, half a round trip away. It delays and keeps the
/// order; the amount of data in transit is not limited.
fn slow_line(to: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("a connection");
            let far = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).expect("the server");
            for (from, to) in [(&near, &far), (&far, &near)] {
                from.set_nodelay(true).unwrap();
                let (sender, receiver) = channel();
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || take(from, &sender));
                thread::spawn(move || deliver(to, &receiver));
            }
        }
    });
    port
}

/// Reads bytes and records their arrival time.
fn take(mut from: TcpStream, to: &Sender<(Instant, Vec<u8>)>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if to.send((Instant::now(), bytes[..length].to_vec())).is_err() {
            break;
        }
    }
}

/// Writes bytes when their time has come, and then closes.
fn deliver(mut to: TcpStream, from: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((came, bytes)) = from.recv() {
        let due = came + ROUND_TRIP / 2;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    thread::sleep(ROUND_TRIP / 2);
    let _ = to.shutdown(Shutdown::Write);
}
