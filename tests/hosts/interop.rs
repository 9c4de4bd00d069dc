//! The operator's own ssh setup: every login that ssh accepts works, and every refusal is reported.
//! All of it runs OpenSSH's client and server.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{AgentResult, Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::transport::sftp::ssh::SshConnector;
use tempfile::TempDir;

use super::remote::{add_remote_agent, engine_with_connector};
use super::sshd::{HOST_NAME, Sshd, read_public_key, ssh_keygen};
use super::world::{BASELINE, World, apply_plan};
use crate::skip::skip_missing_tool;

const AGENT: &str = "ranger";
const NOTE: &str = "- a note\n";

/// Returns an agent with a note on the host of this name.
fn world_on_host(host: &str) -> World {
    // A slow machine must not count as a dead host.
    let mut world = World::new(&[]).with_general("remote_timeout = 120");
    add_remote_agent(&mut world, AGENT, host);
    world.write_scratch(AGENT, NOTE);
    world
}

fn user_name() -> String {
    let id = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_string()
}

/// Resets as a timer does.
fn reset_agent(engine: &Engine) -> AgentResult {
    let plan = engine
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let mut report = engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    report.results.remove(0)
}

/// Observes, resets and undoes, all over one connection.
#[track_caller]
fn assert_works(server: &Sshd, host: &str) {
    let world = world_on_host(host);
    let before = world.read_memory(AGENT);
    let engine = engine_with_connector(&world, server.connector());
    let seen = engine.observer().observe(engine.agent(AGENT).unwrap());
    assert_eq!(seen.state, State::Scratch, "{seen:?}\n{}", server.log());
    let result = reset_agent(&engine);
    assert_eq!((result.outcome, result.kind), (Outcome::Ok, None));
    assert_eq!(world.read_memory(AGENT), BASELINE.as_bytes());
    assert!(world.all_entry_bytes(AGENT).ends_with(NOTE.as_bytes()));
    let target = UndoTarget::Agents(vec![AGENT.to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    let ran = apply_plan(&engine, &plan);
    assert_eq!(ran.report.results[0].outcome, Outcome::Ok);
    assert_eq!(world.read_memory(AGENT), before);
    assert!(world.leftovers(AGENT).is_empty());
    assert!(world.pending_journals().is_empty());
    assert_eq!((server.connection_count(), server.session_count()), (1, 1));
}

/// One refusal as an observation and as a reset report it.
struct ObservedRefusal {
    state: State,
    why: String,
    result: AgentResult,
}

/// Observes and resets, and asserts that both are refused.
#[track_caller]
fn assert_refused(dial: SshConnector, host: &str) -> ObservedRefusal {
    let world = world_on_host(host);
    let before = world.read_memory(AGENT);
    let engine = engine_with_connector(&world, dial);
    let seen = engine.observer().observe(engine.agent(AGENT).unwrap());
    let result = reset_agent(&engine);
    // A changed host key is a trust failure; everything else is an unreachable host.
    let ended = match seen.state {
        State::HostKey => (Outcome::Refused, Some(ErrorKind::Integrity)),
        _ => (Outcome::Failed, Some(ErrorKind::Host)),
    };
    assert_eq!((result.outcome, result.kind), ended, "{result:?}");
    assert_eq!(world.read_memory(AGENT), before);
    assert!(world.leftovers(AGENT).is_empty());
    assert!(world.entry_names(AGENT).is_empty());
    assert!(world.pending_journals().is_empty());
    ObservedRefusal {
        state: seen.state,
        why: seen.reason,
        result,
    }
}

impl ObservedRefusal {
    #[track_caller]
    fn assert_reason(&self, state: State, why: &str, hint: &str) {
        assert_eq!(self.state, state, "{}", self.why);
        assert!(self.why.contains(why), "{}", self.why);
        let note = self.result.note.as_deref().unwrap_or("");
        assert!(note.contains(why), "{note}");
        let hints = self.result.hints.join("\n");
        assert!(hints.contains(hint), "{hints}");
    }
}

/// Closes the server so that its log is complete, and asserts that it accepted no login.
#[track_caller]
fn assert_no_login(mut server: Sshd) {
    assert!(server.connection_count() > 0, "no connection was attempted");
    server.close();
    let log = server.log();
    assert_eq!(
        (server.login_count(), server.session_count()),
        (0, 0),
        "{log}"
    );
}

#[test]
fn key_file_login_works() {
    let Some(server) = Sshd::start() else { return };
    assert_works(&server, HOST_NAME);
}

#[test]
fn external_sftp_server_works() {
    let programs = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"];
    let Some(program) = programs.iter().find(|path| Path::new(path).exists()) else {
        skip_missing_tool("sftp-server");
        return;
    };
    let lines = format!("Subsystem sftp {program}");
    let Some(server) = Sshd::with_config_lines(&lines) else {
        return;
    };
    assert_works(&server, HOST_NAME);
}

/// A process that is killed on drop.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition, up to a time limit.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// A running ssh-agent.
struct KeyAgent {
    _process: KilledOnDrop,
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
            _process: KilledOnDrop(child),
            dir,
        };
        let socket = agent.socket();
        wait_until("the agent to answer", || {
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
fn agent_key_login_works() {
    let Some(server) = Sshd::start() else { return };
    let agent = KeyAgent::start();
    agent.add(&server.path("id"));
    fs::remove_file(server.path("id")).unwrap();
    server.prepend_client_config(&format!("IdentityAgent {}", agent.socket().display()));
    assert_works(&server, HOST_NAME);
}

#[test]
fn user_and_host_certificates_work() {
    let dir = TempDir::new().unwrap();
    let signers = dir.path().join("user_ca.pub");
    let lines = format!(
        "AuthorizedKeysFile none\nTrustedUserCAKeys {}\nHostCertificate {}",
        signers.display(),
        dir.path().join("host-cert.pub").display()
    );
    let Some(server) = Sshd::with_config_lines(&lines) else {
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
        &user_name(),
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
    let line = format!("@cert-authority * {}", read_public_key(&host_ca));
    fs::write(server.path("known_hosts"), line).unwrap();
    assert_works(&server, HOST_NAME);
    assert!(server.log().contains("-CERT"), "{}", server.log());
}

#[test]
fn jump_host_is_used() {
    let (Some(mut gate), Some(server)) = (Sshd::start(), Sshd::start()) else {
        return;
    };
    let through = format!(
        "Host {HOST_NAME}
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
    server.prepend_client_config(&through);
    assert_works(&server, HOST_NAME);
    assert_eq!((gate.connection_count(), gate.session_count()), (1, 0));
    gate.close();
    let refused = assert_refused(server.connector(), HOST_NAME);
    assert_eq!(refused.state, State::Unreach, "{}", refused.why);
    assert_eq!(server.connection_count(), 1, "more than one connection");
}

#[test]
fn unknown_jump_host_key_prompts_for_nothing() {
    let (Some(gate), Some(server)) = (Sshd::start(), Sshd::start()) else {
        return;
    };
    server.prepend_client_config(&format!(
        "Host {HOST_NAME}\nProxyJump 127.0.0.1:{}",
        gate.port()
    ));
    let known = fs::read(server.path("known_hosts")).unwrap();
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::Unreach, "not known here", "fingerprint");
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
    assert_eq!(server.connection_count(), 0);
    assert_no_login(gate);
}

/// An alias from an `Include`, completed by a `Match`, with tokens.
#[test]
fn aliases_includes_and_matches_apply() {
    let Some(server) = Sshd::start() else { return };
    let dir = server.path("known_hosts").parent().unwrap().to_path_buf();
    let more = server.path("included");
    fs::write(&more, "Host night-shift\nHostName 127.0.0.1\n").unwrap();
    fs::rename(server.path("id"), server.path("id-of-night-shift")).unwrap();
    let known = format!(
        "{} {}",
        "the-night",
        read_public_key(&server.path("host_key"))
    );
    fs::write(server.path("known-the-night"), known).unwrap();
    server.prepend_client_config(&format!(
        "Include {}
Match originalhost night-shift exec \"test %n = night-shift\"
User {}
Port {}
IdentityFile {dir}/id-of-%n
HostKeyAlias the-night
UserKnownHostsFile {dir}/known-%k
Match all",
        more.display(),
        user_name(),
        server.port(),
        dir = dir.display(),
    ));
    assert_works(&server, "night-shift");
}

/// Settings that are meant for an interactive terminal.
#[test]
fn interactive_ssh_settings_do_not_interfere() {
    let Some(server) = Sshd::with_config_lines("Banner /etc/passwd") else {
        return;
    };
    let master = server.path("master");
    server.prepend_client_config(&format!(
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
    assert_works(&server, HOST_NAME);
    assert!(!server.path("touched").exists());
    assert!(!master.exists(), "a master is left behind");
}

/// Options of ssh_config(5) that change the standard streams, the terminal, forking or the kind of
/// session; each alone, because one may end ssh before another counts.
const INTERACTIVE_OPTIONS: &[&str] = &[
    "StdinNull yes",
    "ForkAfterAuthentication yes",
    "SessionType none",
    "SessionType default",
    "RequestTTY force",
    "RequestTTY yes",
    "RemoteCommand exec tmux",
    "PermitLocalCommand yes\nLocalCommand echo local; touch TOUCHED",
    "ControlMaster auto\nControlPersist yes\nControlPath MASTER",
    "ControlMaster yes\nControlPersist 10m\nControlPath MASTER",
    "ControlMaster autoask\nControlPath MASTER",
    "EscapeChar ^@",
    "EscapeChar ~",
    "EnableEscapeCommandline yes",
    "LogLevel QUIET",
    "LogLevel DEBUG3",
    "LogVerbose *:*:*",
    "VisualHostKey yes",
    "BatchMode no",
    "Tunnel yes",
    "ForwardX11 yes",
    "ForwardAgent yes",
    "LocalForward 127.0.0.1:1 127.0.0.1:1\nExitOnForwardFailure yes",
    "DynamicForward 127.0.0.1:1\nExitOnForwardFailure yes",
];

#[test]
fn option_for_a_terminal_is_overridden() {
    for option in INTERACTIVE_OPTIONS {
        let Some(server) = Sshd::with_config_lines("Banner /etc/passwd") else {
            return;
        };
        let [touched, master] = ["touched", "master"].map(|name| server.path(name));
        let option = option
            .replace("TOUCHED", touched.to_str().unwrap())
            .replace("MASTER", master.to_str().unwrap());
        server.prepend_client_config(&format!("Host *\n{option}"));
        println!("{option}");
        assert_works(&server, HOST_NAME);
        assert!(!touched.exists(), "{option}");
        assert!(!master.exists(), "a master is left behind: {option}");
    }
}

#[test]
fn read_only_server_is_not_one_without_extensions() {
    let lines = "Subsystem sftp internal-sftp -R";
    let Some(server) = Sshd::with_config_lines(lines) else {
        return;
    };
    let world = world_on_host(HOST_NAME);
    let before = world.read_memory(AGENT);
    let engine = engine_with_connector(&world, server.connector());
    let plan = engine
        .planner()
        .plan_reset(&[AGENT.to_string()], false)
        .unwrap();
    let [skipped] = plan.skipped.as_slice() else {
        panic!("{plan:?}")
    };
    assert_eq!(skipped.kind, Some(ErrorKind::Host));
    assert!(
        skipped.reason.ends_with("the SFTP server is read-only"),
        "{skipped:?}"
    );
    assert!(skipped.hints[0].contains("let it write"), "{skipped:?}");
    let result = reset_agent(&engine);
    assert_eq!(result.outcome, Outcome::Failed);
    let note = result.note.unwrap();
    assert!(note.ends_with("the SFTP server is read-only"), "{note}");
    assert_eq!(world.read_memory(AGENT), before);
    assert!(world.leftovers(AGENT).is_empty());
    assert!(
        world.entry_names(AGENT).is_empty(),
        "{:?}",
        world.entry_names(AGENT)
    );
}

/// A server that denies these requests alone: accept_degraded helps.
#[test]
fn server_that_denies_extensions_lacks_them() {
    let denied = "posix-rename,hardlink,fsync,lsetstat,copy-data";
    let lines = format!("Subsystem sftp internal-sftp -P {denied}");
    let Some(server) = Sshd::with_config_lines(&lines) else {
        return;
    };
    let world = world_on_host(HOST_NAME);
    let engine = engine_with_connector(&world, server.connector());
    let plan = engine
        .planner()
        .plan_reset(&[AGENT.to_string()], false)
        .unwrap();
    let [skipped] = plan.skipped.as_slice() else {
        panic!("{plan:?}")
    };
    assert!(
        skipped.reason.contains("lacks posix-rename@openssh.com"),
        "{skipped:?}"
    );
    assert!(skipped.hints[0].contains("accept_degraded"), "{skipped:?}");
}

#[test]
fn running_control_master_is_used() {
    let Some(server) = Sshd::start() else { return };
    let path = server.path("master");
    server.prepend_client_config(&format!("ControlPath {}", path.display()));
    let master = Command::new("ssh")
        .arg("-F")
        .arg(server.path("ssh_config"))
        .args(["-M", "-N", HOST_NAME])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _master = KilledOnDrop(master.unwrap());
    wait_until("the master to answer", || {
        UnixStream::connect(&path).is_ok()
    });
    assert_works(&server, HOST_NAME);
}

#[test]
fn hashed_known_hosts_are_recognized() {
    let Some(server) = Sshd::start() else { return };
    ssh_keygen([&"-q", &"-H", &"-f", &server.path("known_hosts")]);
    let known = fs::read_to_string(server.path("known_hosts")).unwrap();
    assert!(known.starts_with("|1|"), "{known}");
    assert_works(&server, HOST_NAME);
}

#[test]
fn further_host_keys_are_not_learned() {
    let Some(server) = Sshd::with_further_key() else {
        return;
    };
    // What the operator configured for interactive logins has no effect here.
    server.prepend_client_config("UpdateHostKeys yes");
    let known = fs::read(server.path("known_hosts")).unwrap();
    assert_works(&server, HOST_NAME);
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
}

#[test]
fn changed_host_key_stops_everything() {
    let Some(server) = Sshd::start() else { return };
    server.set_known_host_key(&server.new_key("former"));
    let known = fs::read(server.path("known_hosts")).unwrap();
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::HostKey, "host key changed", "forget the old key");
    assert_eq!(fs::read(server.path("known_hosts")).unwrap(), known);
    assert_no_login(server);
}

#[test]
fn revoked_host_key_stops_everything() {
    let Some(server) = Sshd::start() else { return };
    let key = read_public_key(&server.path("host_key"));
    let known = format!("{} {key}@revoked * {key}", server.known_hosts_name());
    fs::write(server.path("known_hosts"), known).unwrap();
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::HostKey, "revoked", "find out why");
    assert_no_login(server);
}

#[test]
fn unknown_host_is_refused_and_not_remembered() {
    let Some(server) = Sshd::start() else { return };
    fs::remove_file(server.path("known_hosts")).unwrap();
    // What the operator configured for interactive logins has no effect here.
    server.prepend_client_config("StrictHostKeyChecking accept-new");
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::Unreach, "not known here", "compare the fingerprint");
    assert!(!server.path("known_hosts").exists());
    assert_no_login(server);
}

#[test]
fn rejected_user_key_is_reported() {
    let Some(server) = Sshd::start() else { return };
    let other = server.new_key("other");
    fs::copy(other.with_extension("pub"), server.path("authorized_keys")).unwrap();
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::Error, "access denied", "ssh-add -l");
    assert_no_login(server);
}

#[test]
fn server_without_sftp_is_reported() {
    let Some(server) = Sshd::with_config_lines("Subsystem other internal-sftp") else {
        return;
    };
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::Error, "no SFTP server", "Subsystem sftp");
}

#[test]
fn invalid_ssh_config_is_reported() {
    let Some(server) = Sshd::start() else { return };
    server.prepend_client_config("NoSuchOption yes");
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(
        State::Error,
        "Bad configuration option: nosuchoption",
        "ssh -G",
    );
    assert_eq!(server.connection_count(), 0);
}

#[test]
fn settings_are_those_of_the_connection() {
    let Some(server) = Sshd::start() else { return };
    let world = world_on_host(HOST_NAME);
    let engine = engine_with_connector(&world, server.connector());
    let host = engine.agent(AGENT).unwrap().host().unwrap();
    let settings = engine.hosts().connection_settings(host).unwrap();
    let port = settings.iter().find(|it| it.name == "port").unwrap();
    assert_eq!(port.value, server.port().to_string());
    assert_eq!(server.connection_count(), 0);
}

#[test]
fn stopped_host_is_unreachable() {
    let Some(mut server) = Sshd::start() else {
        return;
    };
    let world = world_on_host(HOST_NAME);
    let engine = engine_with_connector(&world, server.connector());
    let agent = engine.agent(AGENT).unwrap();
    assert_eq!(engine.observer().observe(agent).state, State::Scratch);
    // The server closes in the middle of a session and stays closed.
    server.close();
    for _ in 0..2 {
        let seen = engine.observer().observe(agent);
        assert_eq!(seen.state, State::Unreach, "{}", seen.reason);
    }
    let refused = assert_refused(server.connector(), HOST_NAME);
    refused.assert_reason(State::Unreach, "cannot be reached", "try `ssh box`");
}

#[test]
fn missing_ssh_names_the_package_to_install() {
    let dial = SshConnector::new(Arc::new(SystemClock)).with_program("/nowhere/ssh", Vec::new());
    let refused = assert_refused(dial, HOST_NAME);
    refused.assert_reason(State::Error, "ssh is not installed", "openssh-client");
}
