//! What the operator's own ssh knows, works; what it refuses, is told. All of it
//! with OpenSSH's client and server.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::clock::SystemClock;
use memory_shepherd::engine::{AgentResult, Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::error::ErrorKind;
use memory_shepherd::transport::sftp::ssh::SshConnector;
use tempfile::TempDir;

use super::remote::{add_remote, engine};
use super::sshd::{HOST, Sshd, public, ssh_keygen};
use super::world::{BASELINE, World, apply};

const AGENT: &str = "ranger";
const NOTE: &str = "- a note\n";

/// An agent with a note, on a host of this name.
fn world_on(host: &str) -> World {
    // A slow machine is no dead host.
    let mut world = World::new(&[]).general("remote_timeout = 120");
    add_remote(&mut world, AGENT, host);
    world.write_scratch(AGENT, NOTE);
    world
}

fn user() -> String {
    let id = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_string()
}

/// Resets as a timer does.
fn reset(engine: &Engine) -> AgentResult {
    let plan = engine.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let mut report = engine.apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    report.results.remove(0)
}

/// Looks, resets and undoes, all over one connection.
#[track_caller]
fn all_of_it_works(server: &Sshd, host: &str) {
    let world = world_on(host);
    let before = world.read(AGENT);
    let engine = engine(&world, server.dial());
    let seen = engine.observe(engine.agent(AGENT).unwrap());
    assert_eq!(seen.state, State::Scratch, "{seen:?}\n{}", server.log());
    let result = reset(&engine);
    assert_eq!((result.outcome, result.kind), (Outcome::Ok, None));
    assert_eq!(world.read(AGENT), BASELINE.as_bytes());
    assert!(world.archived(AGENT).ends_with(NOTE.as_bytes()));
    let target = UndoTarget::Agents(vec![AGENT.to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    let ran = apply(&engine, &plan);
    assert_eq!(ran.report.results[0].outcome, Outcome::Ok);
    assert_eq!(world.read(AGENT), before);
    assert!(world.litter(AGENT).is_empty());
    assert!(world.pending().is_empty());
    assert_eq!((server.connections(), server.sessions()), (1, 1));
}

/// What was refused, as a look and as a reset tell it.
struct Refused {
    state: State,
    why: String,
    result: AgentResult,
}

/// Looks and resets, neither of which may come to anything.
#[track_caller]
fn nothing_works(dial: SshConnector, host: &str) -> Refused {
    let world = world_on(host);
    let before = world.read(AGENT);
    let engine = engine(&world, dial);
    let seen = engine.observe(engine.agent(AGENT).unwrap());
    let result = reset(&engine);
    // Another key than the known one is a matter of trust, not of luck.
    let ended = match seen.state {
        State::HostKey => (Outcome::Refused, Some(ErrorKind::Integrity)),
        _ => (Outcome::Failed, Some(ErrorKind::Host)),
    };
    assert_eq!((result.outcome, result.kind), ended, "{result:?}");
    assert_eq!(world.read(AGENT), before);
    assert!(world.litter(AGENT).is_empty());
    assert!(world.entries(AGENT).is_empty());
    assert!(world.pending().is_empty());
    Refused {
        state: seen.state,
        why: seen.reason,
        result,
    }
}

impl Refused {
    #[track_caller]
    fn says(&self, state: State, why: &str, hint: &str) {
        assert_eq!(self.state, state, "{}", self.why);
        assert!(self.why.contains(why), "{}", self.why);
        let note = self.result.note.as_deref().unwrap_or("");
        assert!(note.contains(why), "{note}");
        let hints = self.result.hints.join("\n");
        assert!(hints.contains(hint), "{hints}");
    }
}

/// Closes the server, so that all is written that it has to say, and sees that it
/// let nobody in.
#[track_caller]
fn nobody_was_let_in(mut server: Sshd) {
    assert!(server.connections() > 0, "it was tried");
    server.close();
    let log = server.log();
    assert_eq!((server.logins(), server.sessions()), (0, 0), "{log}");
}

#[test]
fn a_key_file_is_enough() {
    let Some(server) = Sshd::start() else { return };
    all_of_it_works(&server, HOST);
}

#[test]
fn the_server_may_be_a_program_of_its_own() {
    let programs = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"];
    let Some(program) = programs.iter().find(|path| Path::new(path).exists()) else {
        println!("skipped: OpenSSH's sftp-server is not installed");
        return;
    };
    let lines = format!("Subsystem sftp {program}");
    let Some(server) = Sshd::with(&lines) else {
        return;
    };
    all_of_it_works(&server, HOST);
}

/// A process that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition, not for ever.
#[track_caller]
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// An ssh-agent.
struct KeyAgent {
    _process: Ended,
    dir: TempDir,
}

impl KeyAgent {
    fn start() -> KeyAgent {
        let dir = TempDir::new().unwrap();
        let child = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(dir.path().join("socket"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let agent = KeyAgent {
            _process: Ended(child),
            dir,
        };
        let socket = agent.socket();
        wait_for("the agent to answer", || {
            UnixStream::connect(&socket).is_ok()
        });
        agent
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn add(&self, key: &Path) {
        let mut command = Command::new("ssh-add");
        command.arg(key).env("SSH_AUTH_SOCK", self.socket());
        let done = command.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}

#[test]
fn a_key_that_only_an_agent_has_is_enough() {
    let Some(server) = Sshd::start() else { return };
    let agent = KeyAgent::start();
    agent.add(&server.path("id"));
    fs::remove_file(server.path("id")).unwrap();
    server.prepend(&format!("IdentityAgent {}", agent.socket().display()));
    all_of_it_works(&server, HOST);
}

#[test]
fn certificates_of_the_user_and_of_the_host_are_enough() {
    let dir = TempDir::new().unwrap();
    let signers = dir.path().join("user_ca.pub");
    let lines = format!(
        "AuthorizedKeysFile none\nTrustedUserCAKeys {}\nHostCertificate {}",
        signers.display(),
        dir.path().join("host-cert.pub").display()
    );
    let Some(server) = Sshd::with(&lines) else {
        return;
    };
    let (user_ca, host_ca) = (server.new_key("user_ca"), server.new_key("host_ca"));
    fs::copy(server.path("user_ca.pub"), signers).unwrap();
    let forever = "always:forever";
    let key = server.path("id.pub");
    ssh_keygen([
        &"-q",
        &"-s",
        &user_ca,
        &"-I",
        &"u",
        &"-n",
        &user(),
        &"-V",
        &forever,
        &key,
    ]);
    let key = server.path("host_key.pub");
    ssh_keygen([
        &"-q",
        &"-s",
        &host_ca,
        &"-I",
        &"h",
        &"-h",
        &"-n",
        &"127.0.0.1",
        &"-V",
        &forever,
        &key,
    ]);
    let certificate = server.path("host_key-cert.pub");
    fs::copy(certificate, dir.path().join("host-cert.pub")).unwrap();
    let line = format!("@cert-authority * {}", public(&host_ca));
    fs::write(server.path("known_hosts"), line).unwrap();
    all_of_it_works(&server, HOST);
    assert!(server.log().contains("-CERT"), "{}", server.log());
}

#[test]
fn a_host_behind_another_is_reached_through_it() {
    let (Some(mut gate), Some(server)) = (Sshd::start(), Sshd::start()) else {
        return;
    };
    let through = format!(
        "Host {HOST}
ProxyJump gate
Host gate
HostName 127.0.0.1
Port {}
IdentityFile {}
UserKnownHostsFile {}",
        gate.port(),
        gate.path("id").display(),
        gate.path("known_hosts").display()
    );
    server.prepend(&through);
    all_of_it_works(&server, HOST);
    assert_eq!((gate.connections(), gate.sessions()), (1, 0));
    gate.close();
    let refused = nothing_works(server.dial(), HOST);
    assert_eq!(refused.state, State::Unreach, "{}", refused.why);
    assert_eq!(server.connections(), 1, "there is no other way");
}

#[test]
fn an_unknown_key_of_a_jump_host_asks_nobody() {
    let (Some(gate), Some(server)) = (Sshd::start(), Sshd::start()) else {
        return;
    };
    server.prepend(&format!("Host {HOST}\nProxyJump 127.0.0.1:{}", gate.port()));
    let known = fs::read(server.path("known_hosts")).unwrap();
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::Error, "not known here", "fingerprint");
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
    assert_eq!(server.connections(), 0);
    nobody_was_let_in(gate);
}

/// An alias that comes by `Include`, and is completed by `Match`, with tokens.
#[test]
fn aliases_includes_and_matches_count() {
    let Some(server) = Sshd::start() else { return };
    let dir = server.path("known_hosts").parent().unwrap().to_path_buf();
    let more = server.path("included");
    fs::write(&more, "Host night-shift\nHostName 127.0.0.1\n").unwrap();
    fs::rename(server.path("id"), server.path("id-of-night-shift")).unwrap();
    let known = format!("{} {}", "the-night", public(&server.path("host_key")));
    fs::write(server.path("known-the-night"), known).unwrap();
    server.prepend(&format!(
        "Include {}
Match originalhost night-shift exec \"test %n = night-shift\"
User {}
Port {}
IdentityFile {dir}/id-of-%n
HostKeyAlias the-night
UserKnownHostsFile {dir}/known-%k
Match all",
        more.display(),
        user(),
        server.port(),
        dir = dir.display(),
    ));
    all_of_it_works(&server, "night-shift");
}

/// Such settings are made for people at a terminal.
#[test]
fn what_an_operator_has_set_for_their_shells_is_not_in_the_way() {
    let Some(server) = Sshd::with("Banner /etc/passwd") else {
        return;
    };
    let master = server.path("master");
    server.prepend(&format!(
        "Host *
RemoteCommand exec tmux
RequestTTY force
LocalForward 127.0.0.1:1 127.0.0.1:1
ExitOnForwardFailure yes
PermitLocalCommand yes
LocalCommand touch {}
ForwardAgent yes
ForwardX11 yes
LogLevel DEBUG3
ControlMaster auto
ControlPath {}
ControlPersist yes
BatchMode no
StrictHostKeyChecking no",
        server.path("touched").display(),
        master.display()
    ));
    all_of_it_works(&server, HOST);
    assert!(!server.path("touched").exists());
    assert!(!master.exists(), "no master is left behind");
}

#[test]
fn a_master_that_runs_already_is_used() {
    let Some(server) = Sshd::start() else { return };
    let path = server.path("master");
    server.prepend(&format!("ControlPath {}", path.display()));
    let master = Command::new("ssh")
        .arg("-F")
        .arg(server.path("ssh_config"))
        .args(["-M", "-N", HOST])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _master = Ended(master.unwrap());
    wait_for("the master to answer", || {
        UnixStream::connect(&path).is_ok()
    });
    all_of_it_works(&server, HOST);
}

#[test]
fn hashed_known_hosts_are_known() {
    let Some(server) = Sshd::start() else { return };
    ssh_keygen([&"-q", &"-H", &"-f", &server.path("known_hosts")]);
    let known = fs::read_to_string(server.path("known_hosts")).unwrap();
    assert!(known.starts_with("|1|"), "{known}");
    all_of_it_works(&server, HOST);
}

#[test]
fn further_keys_of_a_host_become_known_to_nobody() {
    let Some(server) = Sshd::with_further_key() else {
        return;
    };
    // What the operator allows themselves does not count without them.
    server.prepend("UpdateHostKeys yes");
    let known = fs::read(server.path("known_hosts")).unwrap();
    all_of_it_works(&server, HOST);
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
}

#[test]
fn a_changed_host_key_stops_everything() {
    let Some(server) = Sshd::start() else { return };
    server.know(&server.new_key("former"));
    let known = fs::read(server.path("known_hosts")).unwrap();
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::HostKey, "another host key", "forget the old key");
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
    nobody_was_let_in(server);
}

#[test]
fn a_revoked_host_key_stops_everything() {
    let Some(server) = Sshd::start() else { return };
    let key = public(&server.path("host_key"));
    let known = format!("{} {key}@revoked * {key}", server.known_as());
    fs::write(server.path("known_hosts"), known).unwrap();
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::HostKey, "revoked", "find out why");
    nobody_was_let_in(server);
}

#[test]
fn an_unknown_host_is_refused_and_not_remembered() {
    let Some(server) = Sshd::start() else { return };
    fs::remove_file(server.path("known_hosts")).unwrap();
    // What the operator allows themselves does not count without them.
    server.prepend("StrictHostKeyChecking accept-new");
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::Error, "not known here", "compare the fingerprint");
    assert!(!server.path("known_hosts").exists());
    nobody_was_let_in(server);
}

#[test]
fn a_key_that_the_server_does_not_take_is_told() {
    let Some(server) = Sshd::start() else { return };
    let other = server.new_key("other");
    fs::copy(other.with_extension("pub"), server.path("authorized_keys")).unwrap();
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::Error, "does not let us in", "ssh-add -l");
    nobody_was_let_in(server);
}

#[test]
fn a_server_without_sftp_is_told() {
    let Some(server) = Sshd::with("Subsystem other internal-sftp") else {
        return;
    };
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::Error, "no SFTP server", "Subsystem sftp");
}

#[test]
fn a_configuration_that_ssh_does_not_accept_is_told() {
    let Some(server) = Sshd::start() else { return };
    server.prepend("NoSuchOption yes");
    let refused = nothing_works(server.dial(), HOST);
    refused.says(
        State::Error,
        "Bad configuration option: nosuchoption",
        "ssh -G",
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_host_that_is_gone_is_unreachable() {
    let Some(mut server) = Sshd::start() else {
        return;
    };
    let world = world_on(HOST);
    let engine = engine(&world, server.dial());
    let agent = engine.agent(AGENT).unwrap();
    assert_eq!(engine.observe(agent).state, State::Scratch);
    // In the middle of a session, and from then on.
    server.close();
    for _ in 0..2 {
        let seen = engine.observe(agent);
        assert_eq!(seen.state, State::Unreach, "{}", seen.reason);
    }
    let refused = nothing_works(server.dial(), HOST);
    refused.says(State::Unreach, "cannot be reached", "try `ssh box`");
}

#[test]
fn without_ssh_it_is_told_what_to_install() {
    let dial = SshConnector::new(Arc::new(SystemClock)).with_program("/nowhere/ssh", Vec::new());
    let refused = nothing_works(dial, HOST);
    refused.says(State::Error, "ssh is not installed", "openssh-client");
}
