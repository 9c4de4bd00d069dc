//! Questions of a real ssh to the console: passphrases, passwords and unknown host keys.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::secret::Secret;
use memory_shepherd::config::SshHost;
use memory_shepherd::transport::sftp::SftpTransport;
use memory_shepherd::transport::sftp::askpass::{
    ExpectedAnswer, PromptBroker, PromptEvent, Question, SecretRecipient,
};
use memory_shepherd::transport::{
    FailureCause, MemoryObject, ProbeOutcome, Transport, TransportError,
};
use tempfile::TempDir;

use super::sshd::{HOST_NAME, Sshd, ssh_keygen};
use super::terminal::{self, Terminal};
use super::world::{BASELINE, World};
use crate::temporary_root::temporary_root;

const PROGRAM_PATH: &str = env!("CARGO_BIN_EXE_memory-shepherd");

/// Upper bound of a wait for an event that must happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const PASSPHRASE: &str = "open sesame";

/// A host on a server whose ssh sends its questions to a prompt broker.
struct AskingHost {
    server: Sshd,
    broker: PromptBroker,
    events: Receiver<PromptEvent>,
    host: SshHost,
    transport: SftpTransport,
    dir: TempDir,
}

fn asking_host(server: Sshd) -> AskingHost {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("MEMORY.md"), "a note\n").unwrap();
    fs::create_dir(dir.path().join("run")).unwrap();
    let (sender, events) = unbounded();
    let roots = vec![temporary_root(&dir.path().join("run"))];
    let desk = PromptBroker::new(PROGRAM_PATH.into(), roots, sender);
    let host = SshHost {
        // Generous: a busy machine must not fail the test.
        timeout_seconds: 3600,
        ..super::servers::host_named(HOST_NAME)
    };
    let dial = server.connector().with_prompts(desk.clone());
    let transport = SftpTransport::new(host.clone(), Arc::new(dial), Arc::new(SystemClock));
    AskingHost {
        server,
        broker: desk,
        events,
        host,
        transport,
        dir,
    }
}

/// Returns a server that accepts a key with a passphrase.
fn host_with_locked_key() -> Option<AskingHost> {
    let server = Sshd::start()?;
    lock_client_key(&server);
    Some(asking_host(server))
}

/// Gives the client's key a passphrase.
fn lock_client_key(server: &Sshd) {
    let key = server.path("id");
    ssh_keygen([&"-q", &"-p", &"-P", &"", &"-N", &PASSPHRASE, &"-f", &key]);
}

impl AskingHost {
    /// Probes the memory and returns whether it exists.
    fn probe_memory(&self) -> Result<(), TransportError> {
        let memory = self.dir.path().canonicalize().unwrap().join("MEMORY.md");
        match self.transport.probe(&[&memory]).remove(0)? {
            MemoryObject::File(_) => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next event, withdrawn questions skipped.
    fn next_event(&self) -> PromptEvent {
        loop {
            match self.events.recv_timeout(WAIT_TIMEOUT).unwrap() {
                PromptEvent::Withdrawn(_) => {}
                event => return event,
            }
        }
    }

    /// Probes the memory, expects that an answer is required, and returns the question.
    fn probe_and_get_question(&self) -> Question {
        let why = self.probe_memory().unwrap_err();
        assert_eq!(why.cause, FailureCause::Unreachable);
        let said = why.to_string();
        let PromptEvent::Asked(question) = self.next_event() else {
            panic!("{said}");
        };
        assert!(said.contains("it waits for your answer"), "{said}");
        assert!(said.contains(question.short_name()), "{said}");
        assert_eq!(question.host, HOST_NAME);
        // A watch, which does not wait, gets the same reason.
        let (sender, probed) = unbounded();
        let report = move |outcome: ProbeOutcome| sender.send(outcome().unwrap()).unwrap();
        self.transport
            .start_probe(&[Path::new("MEMORY.md")], Box::new(report));
        let why = probed.recv().unwrap().remove(0).unwrap_err();
        assert_eq!(why.to_string(), said);
        question
    }

    /// Returns the question that follows an answer.
    fn next_question(&self) -> Question {
        match self.next_event() {
            PromptEvent::Asked(question) => question,
            other => panic!("{other:?}"),
        }
    }

    fn answer_question(&self, question: &Question, text: &str) {
        let mut secret = Secret::new();
        assert!(secret.push(text));
        self.broker.answer(question.id, &secret);
    }

    fn assert_settled(&self) {
        assert_eq!(
            self.next_event(),
            PromptEvent::ConnectFinished(HOST_NAME.to_string())
        );
    }

    /// Asserts that the host gets no connection attempt until prompts are allowed.
    fn assert_barred(&self) {
        let connections = self.server.connection_count();
        for _ in 0..5 {
            let why = self.probe_memory().unwrap_err();
            let hint = why.hints().last().unwrap();
            assert!(hint.starts_with("read the agent again"), "{hint}");
        }
        assert_eq!(self.server.connection_count(), connections);
        assert!(self.events.is_empty());
    }

    fn known_hosts(&self) -> String {
        fs::read_to_string(self.server.path("known_hosts")).unwrap_or_default()
    }
}

#[test]
fn passphrase_unlocks_the_key() {
    let Some(host) = host_with_locked_key() else {
        return;
    };
    let question = host.probe_and_get_question();
    assert_eq!(
        question.expected_answer,
        ExpectedAnswer::Secret(SecretRecipient::LocalSsh)
    );
    assert!(
        question
            .text
            .to_visible_line()
            .contains("Enter passphrase for key")
    );
    // Further callers do not wait and cause no further question.
    for _ in 0..3 {
        assert!(
            host.probe_memory()
                .unwrap_err()
                .to_string()
                .contains("it waits")
        );
    }
    host.answer_question(&question, PASSPHRASE);
    host.assert_settled();
    host.probe_memory().unwrap();
    assert_eq!(host.server.connection_count(), 1);
    assert!(host.events.is_empty());
}

#[test]
fn wrong_passphrase_may_be_corrected() {
    let Some(host) = host_with_locked_key() else {
        return;
    };
    let question = host.probe_and_get_question();
    assert!(!question.is_repeated);
    host.answer_question(&question, "open barley");
    let second = host.next_question();
    assert!(second.is_repeated && second.id != question.id);
    host.answer_question(&second, PASSPHRASE);
    host.assert_settled();
    host.probe_memory().unwrap();
    assert_eq!(host.server.connection_count(), 1);
}

#[test]
fn wrong_passphrases_bar_the_host() {
    let Some(host) = host_with_locked_key() else {
        return;
    };
    let mut question = host.probe_and_get_question();
    for _ in 0..2 {
        host.answer_question(&question, "open barley");
        question = host.next_question();
    }
    host.answer_question(&question, "open barley");
    host.assert_settled();
    let why = host.probe_memory().unwrap_err();
    assert!(why.to_string().contains("access denied"), "{why}");
    host.assert_barred();
    host.broker.unblock(&host.host);
    host.answer_question(&host.probe_and_get_question(), PASSPHRASE);
    host.assert_settled();
    host.probe_memory().unwrap();
}

#[test]
fn refused_passphrase_is_not_asked_until_allowed() {
    let Some(host) = host_with_locked_key() else {
        return;
    };
    let question = host.probe_and_get_question();
    host.broker.refuse(question.id);
    host.assert_settled();
    let why = host.probe_memory().unwrap_err().to_string();
    assert!(
        why.contains("wants a passphrase; the question was not answered"),
        "{why}"
    );
    host.assert_barred();
    assert_eq!(host.server.connection_count(), 1);
    host.broker.unblock(&host.host);
    host.answer_question(&host.probe_and_get_question(), PASSPHRASE);
    host.assert_settled();
    host.probe_memory().unwrap();
}

/// Returns a server that asks for a password.
fn server_with_password() -> Option<Sshd> {
    let server = Sshd::with_config_lines("PasswordAuthentication yes\nPermitRootLogin yes")?;
    fs::remove_file(server.path("authorized_keys")).unwrap();
    Some(server)
}

/// Cancels the password prompt and asserts that ssh disconnects without having tried one.
fn assert_refused_password(host: &AskingHost) {
    let question = host.probe_and_get_question();
    assert_eq!(
        question.expected_answer,
        ExpectedAnswer::Secret(SecretRecipient::RemoteHost)
    );
    assert_eq!(question.short_name(), "a password");
    host.broker.refuse(question.id);
    host.assert_settled();
    host.assert_barred();
    let end = Instant::now() + WAIT_TIMEOUT;
    while !host.server.log().contains("authenticating user") {
        assert!(Instant::now() < end, "{}", host.server.log());
        thread::park_timeout(Duration::from_millis(5));
    }
    let log = host.server.log();
    assert!(!log.contains("Failed password"), "{log}");
}

#[test]
fn refused_password_is_not_tried_empty() {
    let Some(server) = server_with_password() else {
        return;
    };
    assert_refused_password(&asking_host(server));
}

#[test]
fn refused_jump_password_is_not_tried_empty() {
    let Some(server) = server_with_password() else {
        return;
    };
    use_jump_host(&server);
    assert_refused_password(&asking_host(server));
}

#[test]
fn accepted_unknown_host_is_known_afterwards() {
    let Some(server) = Sshd::start() else { return };
    fs::remove_file(server.path("known_hosts")).unwrap();
    let public = server.path("host_key.pub");
    let output = Command::new("ssh-keygen").arg("-lf").arg(public).output();
    let shown = String::from_utf8(output.unwrap().stdout).unwrap();
    let fingerprint = shown.split_whitespace().nth(1).unwrap();
    let host = asking_host(server);
    let question = host.probe_and_get_question();
    let ExpectedAnswer::HostKey(key) = &question.expected_answer else {
        panic!("{question:?}");
    };
    assert_eq!(key.fingerprint.to_visible_line(), fingerprint);
    assert_eq!(key.kind.to_visible_line(), "ED25519");
    assert!(key.host.to_visible_line().contains("127.0.0.1"));
    assert_eq!(host.known_hosts(), "");
    host.answer_question(&question, fingerprint);
    host.assert_settled();
    host.probe_memory().unwrap();
    let known = host.known_hosts();
    assert!(known.contains(&host.server.known_hosts_name()), "{known}");
    // The next session asks no question.
    let dial = host.server.connector().with_prompts(host.broker.clone());
    let again = SftpTransport::new(host.host.clone(), Arc::new(dial), Arc::new(SystemClock));
    let memory = host.dir.path().canonicalize().unwrap().join("MEMORY.md");
    again.probe(&[&memory]).remove(0).unwrap();
    assert!(host.events.is_empty());
}

#[test]
fn refused_unknown_host_stays_unknown() {
    let Some(server) = Sshd::start() else { return };
    fs::remove_file(server.path("known_hosts")).unwrap();
    let host = asking_host(server);
    let question = host.probe_and_get_question();
    host.broker.refuse(question.id);
    host.assert_settled();
    let why = host.probe_memory().unwrap_err().to_string();
    assert!(
        why.contains("wants its unknown host key to be checked"),
        "{why}"
    );
    host.assert_barred();
    assert_eq!(host.known_hosts(), "");
    assert_eq!(host.server.login_count(), 0);
}

#[test]
fn changed_or_revoked_host_key_is_never_asked_about() {
    for mark in ["", "@revoked "] {
        let Some(server) = Sshd::start() else { return };
        let key = match mark {
            "" => server.new_key("other"),
            _ => server.path("host_key"),
        };
        server.set_known_host_key(&key);
        let known = fs::read_to_string(server.path("known_hosts")).unwrap();
        let line = format!("{mark}{known}");
        fs::write(server.path("known_hosts"), &line).unwrap();
        let host = asking_host(server);
        let why = host.probe_memory().unwrap_err();
        assert_eq!(why.cause, FailureCause::HostKeyMismatch, "{mark}: {why}");
        assert!(host.events.is_empty(), "{mark}");
        assert_eq!(host.known_hosts(), line);
        assert_eq!(host.server.login_count(), 0);
    }
}

/// Configures the client to reach the host through a jump host, which is the same server.
fn use_jump_host(server: &Sshd) {
    let config = server.path("ssh_config");
    server.prepend_client_config(&format!(
        "Host {HOST_NAME}\nProxyCommand ssh -F {} -W 127.0.0.1:{} jump\nHost jump\nHostName 127.0.0.1\nPort {}\nProxyCommand none",
        config.display(),
        server.port(),
        server.port(),
    ));
}

#[test]
fn jump_host_questions_use_the_same_broker() {
    let Some(server) = Sshd::start() else { return };
    lock_client_key(&server);
    use_jump_host(&server);
    let host = asking_host(server);
    let jump = host.probe_and_get_question();
    host.answer_question(&jump, PASSPHRASE);
    let end = host.next_question();
    assert_ne!(end.id, jump.id);
    host.answer_question(&end, PASSPHRASE);
    host.assert_settled();
    host.probe_memory().unwrap();
}

#[test]
fn closing_broker_leaves_no_askpass_files() {
    let Some(host) = host_with_locked_key() else {
        return;
    };
    host.probe_and_get_question();
    host.broker.close();
    let run = host.dir.path().join("run");
    assert_eq!(fs::read_dir(run).unwrap().count(), 0);
    // A session that stays open would keep the server waiting.
    let AskingHost { mut server, .. } = host;
    server.close();
    assert!(!server.log().contains("Failed"), "{}", server.log());
}

#[test]
fn askpass_process_does_nothing_else() {
    let dir = TempDir::new().unwrap();
    for arguments in [
        &["Password: "][..],
        &["--version"],
        &["reset", "--all"],
        &[],
    ] {
        let mut command = Command::new(PROGRAM_PATH);
        command.args(arguments).env_clear().stdin(Stdio::null());
        command.env("MEMORY_SHEPHERD_ASKPASS", dir.path().join("nobody"));
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty());
    }
}

// ---- The console ---------------------------------------------------------------------

/// A fleet of one local agent and one on a server whose ssh asks questions, and a directory with an
/// ssh that knows the server.
struct AskpassSite {
    server: Sshd,
    world: World,
    config: PathBuf,
    path: PathBuf,
}

fn askpass_site(server: Sshd) -> AskpassSite {
    let mut world = World::new(&["scout"]);
    world.write_scratch("scout", "a note\n");
    let memory = world.memory_path("ranger");
    let lines = format!(
        "remote_host = {HOST_NAME}\nremote_timeout = 3600\nremote_memory = {}",
        memory.display()
    );
    world.add_agent("ranger", &lines);
    world.set_baseline("ranger", BASELINE);
    world.write_scratch("ranger", "a note\n");
    let config = world.config().path;
    let path = world.root.join("bin");
    fs::create_dir(&path).unwrap();
    let ssh = format!(
        "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n",
        server.path("ssh_config").display()
    );
    fs::write(path.join("ssh"), ssh).unwrap();
    fs::set_permissions(path.join("ssh"), PermissionsExt::from_mode(0o755)).unwrap();
    AskpassSite {
        server,
        world,
        config,
        path,
    }
}

impl AskpassSite {
    fn start_console(&self, size: (u16, u16)) -> Terminal {
        let mut command =
            terminal::isolated_command(Path::new(PROGRAM_PATH), &self.world.root.join("home"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path.display()));
        command.env("XDG_RUNTIME_DIR", self.world.root.join("home/tmp"));
        command.args(["--config", self.config.to_str().unwrap()]);
        Terminal::start(command, size)
    }

    /// Returns the number of sockets left.
    fn socket_count(&self) -> usize {
        fs::read_dir(self.world.root.join("home/tmp"))
            .unwrap()
            .count()
    }
}

/// Opens the question and types an answer once it accepts input, without Enter.
fn type_answer(terminal: &mut Terminal, answer: &str, shown: &str) {
    terminal.send("@");
    type_open_answer(terminal, answer, shown);
}

/// Types an answer into the question on the screen.
#[track_caller]
fn type_open_answer(terminal: &mut Terminal, answer: &str, shown: &str) {
    terminal.wait_for("Enter answer");
    terminal.send_until(&format!("\x15{answer}"), shown, |terminal| {
        terminal.text().contains(&format!("> {shown}_"))
    });
}

#[test]
fn terminal_passphrase_unlocks_agent() {
    let Some(server) = Sshd::start() else { return };
    lock_client_key(&server);
    let site = askpass_site(server);
    let mut terminal = site.start_console((80, 24));
    terminal.wait_for("@ box asks");
    terminal.wait("the other agent", |it| {
        it.text().contains("SCRATCH   scout")
    });
    terminal.wait_for("UNREACH   ranger");
    type_answer(&mut terminal, "wrong", &"•".repeat(5));
    terminal.send("\r");
    // The question opens again by itself.
    terminal.wait_for("was rejected");
    type_open_answer(&mut terminal, PASSPHRASE, &"•".repeat(PASSPHRASE.len()));
    let limits = fs::read_to_string(format!("/proc/{}/limits", terminal.pid())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let fields: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(fields[4..6], ["0", "0"], "core dumps are not disabled");
    terminal.send("\r");
    terminal.wait("the agent", |it| it.text().contains("SCRATCH   ranger"));
    assert!(!terminal.text().contains('@'), "a question is left");
    let bytes = String::from_utf8_lossy(&terminal.bytes).into_owned();
    assert!(!bytes.contains(PASSPHRASE) && !bytes.contains("sesame"));
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    terminal.assert_restored();
    assert_eq!(site.socket_count(), 0);
    assert_eq!(site.server.connection_count(), 1);
}

#[test]
fn terminal_unknown_host_is_refused_then_accepted() {
    let Some(server) = Sshd::start() else { return };
    fs::remove_file(server.path("known_hosts")).unwrap();
    let site = askpass_site(server);
    let mut terminal = site.start_console((120, 36));
    terminal.wait_for("@ box asks");
    type_answer(&mut terminal, "y", "y");
    assert!(terminal.text().contains("fingerprint  SHA256:"));
    terminal.send("\r");
    terminal.wait_for("type yes in full");
    terminal.send("\x1b");
    terminal.wait("the reason", |it| it.text().contains("was not answered"));
    assert!(!site.server.path("known_hosts").exists());
    terminal.send("R");
    terminal.wait_for("@ box asks");
    type_answer(&mut terminal, "yes", "yes");
    terminal.send("\r");
    terminal.wait("the agent", |it| it.text().contains("SCRATCH   ranger"));
    assert!(site.server.path("known_hosts").exists());
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    assert_eq!(site.socket_count(), 0);
}

#[test]
fn terminal_quit_with_open_question_leaves_nothing() {
    let Some(server) = Sshd::start() else { return };
    lock_client_key(&server);
    let mut site = askpass_site(server);
    let mut terminal = site.start_console((80, 24));
    terminal.wait_for("@ box asks");
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    terminal.assert_restored();
    assert_eq!(site.socket_count(), 0);
    site.server.close();
    assert_eq!(site.server.login_count(), 0);
}
