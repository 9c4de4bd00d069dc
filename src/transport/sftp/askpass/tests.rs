//! Tests of broker and helpers, without an ssh between them.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, unbounded};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;
use crate::skip::skip_unsupported;
use crate::temporary_root::{OTHER_USER, temporary_root};
use crate::transport::sftp::session::{CloseReason, Session, SessionPipes};

/// Time limit of events that surely happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const PASSPHRASE_PROMPT: &str = "Enter passphrase for key '/home/op/.ssh/id': ";

struct BrokerFixture {
    broker: PromptBroker,
    events: Receiver<PromptEvent>,
    directory: TempDir,
}

fn broker_fixture() -> BrokerFixture {
    let directory = TempDir::new().unwrap();
    let (sender, events) = unbounded();
    let roots = vec![temporary_root(directory.path())];
    BrokerFixture {
        broker: PromptBroker::new("memory-shepherd".into(), roots, sender),
        events,
        directory,
    }
}

fn host_named(name: &str) -> SshHost {
    SshHost {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        timeout_seconds: 3600,
    }
}

fn secret_of(text: &str) -> Secret {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    secret
}

fn failed_connect<T>() -> Result<T, TransportError> {
    Err(unreachable_error("harbour cannot be reached: it hangs up."))
}

/// A helper that asks and waits for the answer.
type AskpassThread = JoinHandle<std::io::Result<Zeroizing<Vec<u8>>>>;

impl BrokerFixture {
    fn start_call(&self, name: &str) -> ConnectAttempt {
        self.broker
            .start_attempt(&host_named(name))
            .unwrap()
            .unwrap()
    }

    fn connect(&self) -> UnixStream {
        let state = self.broker.0.lock_state();
        let stream = UnixStream::connect(&state.prompt_socket.as_ref().unwrap().path).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream
    }

    /// Asks in the name of an attempt; returns what the helper receives.
    fn send_question(&self, call: &ConnectAttempt, text: &str) -> AskpassThread {
        let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
        let (stream, text) = (self.connect(), text.to_string());
        thread::spawn(move || helper::ask_console(stream, token.as_bytes(), b"", text.as_bytes()))
    }

    /// Asks for a passphrase; returns the question to the operator.
    fn ask_for_passphrase(&self, call: &ConnectAttempt) -> (AskpassThread, Question) {
        (
            self.send_question(call, PASSPHRASE_PROMPT),
            self.next_question(),
        )
    }

    fn next_event(&self) -> PromptEvent {
        self.events.recv_timeout(WAIT_TIMEOUT).unwrap()
    }

    fn next_question(&self) -> Question {
        match self.next_event() {
            PromptEvent::Asked(question) => question,
            other => panic!("{other:?}"),
        }
    }
}

fn received_answer(messenger: AskpassThread) -> Option<String> {
    let answer = messenger.join().unwrap().ok()?;
    Some(String::from_utf8(answer.to_vec()).unwrap())
}

#[test]
fn question_names_its_host_and_gets_its_answer() {
    let office = broker_fixture();
    let (harbour, cliff) = (office.start_call("harbour"), office.start_call("cliff"));
    let (first, asked) = office.ask_for_passphrase(&harbour);
    assert_eq!((asked.host.as_str(), asked.is_repeated), ("harbour", false));
    assert_eq!(
        asked.expected_answer,
        ExpectedAnswer::Secret(SecretRecipient::LocalSsh)
    );
    assert_eq!(asked.text.as_bytes(), PASSPHRASE_PROMPT.as_bytes());
    let (second, other) = office.ask_for_passphrase(&cliff);
    assert_eq!((other.host.as_str(), other.is_repeated), ("cliff", false));
    office.broker.answer(other.id, &secret_of("b"));
    office.broker.answer(asked.id, &secret_of("a é"));
    assert_eq!(received_answer(first).as_deref(), Some("a é\n"));
    assert_eq!(received_answer(second).as_deref(), Some("b\n"));
    // The same question again means that the answer was rejected.
    let (third, again) = office.ask_for_passphrase(&harbour);
    assert!(again.is_repeated);
    office.broker.answer(again.id, &secret_of("c"));
    assert_eq!(received_answer(third).as_deref(), Some("c\n"));
    // A question can be answered once.
    office.broker.answer(again.id, &secret_of("d"));
    let fourth = office.send_question(&harbour, "another: ");
    assert!(!office.next_question().is_repeated);
    harbour.end();
    assert_eq!(received_answer(fourth), None);
}

#[test]
fn request_without_token_is_ignored() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    let mut other = token.clone().into_bytes();
    other[63] ^= 1;
    let frame = |token: &[u8], kind: u8, length: u32, text: &[u8]| {
        let mut frame = token.to_vec();
        frame.push(kind);
        frame.extend(length.to_be_bytes());
        frame.extend(text);
        frame
    };
    let token = token.as_bytes();
    let bad = [
        frame(&other, b'-', 2, b"hi"),
        frame(&[b'0'; 64], b'-', 2, b"hi"),
        frame(token, b'?', 2, b"hi"),
        frame(token, b'-', 4097, &[b'x'; 4097]),
        frame(token, b'-', u32::MAX, b"hi"),
        frame(token, b'-', 3, b"hi"),
        token[..63].to_vec(),
        Vec::new(),
    ];
    for bytes in bad {
        let mut stream = office.connect();
        // It may disconnect in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    assert!(office.events.is_empty(), "nothing was asked");
    let right = office.send_question(&call, &"x".repeat(9000));
    let asked = office.next_question();
    assert_eq!(
        asked.text.as_bytes().len(),
        helper::MAX_QUESTION_BYTES,
        "the rest is cut"
    );
    office.broker.answer(asked.id, &secret_of("y"));
    assert_eq!(received_answer(right).as_deref(), Some("y\n"));
}

#[test]
fn unfinished_request_delays_no_other() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    let mut stream = office.connect();
    stream.write_all(token.as_bytes()).unwrap();
    let other = office.start_call("cliff");
    let (messenger, asked) = office.ask_for_passphrase(&other);
    office.broker.answer(asked.id, &secret_of("y"));
    assert_eq!(received_answer(messenger).as_deref(), Some("y\n"));
    // The rest of the first one arrives in pieces.
    for piece in [&b"-\0\0"[..], b"\0\x02h", b"i"] {
        stream.write_all(piece).unwrap();
    }
    let asked = office.next_question();
    assert_eq!(asked.text.as_bytes(), b"hi");
    drop(stream);
    assert_eq!(office.next_event(), PromptEvent::Withdrawn(asked.id));
}

#[test]
fn socket_is_in_private_directory_and_removed() {
    let office = broker_fixture();
    let inside = || std::fs::read_dir(office.directory.path()).unwrap().count();
    assert_eq!(inside(), 0, "nothing is made before it is needed");
    let call = office.start_call("harbour");
    let made = std::fs::read_dir(office.directory.path()).unwrap();
    let made = made.last().unwrap().unwrap();
    assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o700);
    assert_eq!(
        office
            .start_call("cliff")
            .0
            .shared
            .lock_state()
            .attempts
            .len(),
        2
    );
    assert_eq!(inside(), 1, "one socket for all");
    drop(call);
    office.broker.close();
    assert_eq!(inside(), 0);
    assert!(
        office
            .broker
            .start_attempt(&host_named("harbour"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn unavailable_socket_is_reported_once() {
    let (sender, events) = unbounded();
    let roots = vec![temporary_root(Path::new("/nowhere/at/all"))];
    let desk = PromptBroker::new("memory-shepherd".into(), roots, sender);
    for _ in 0..2 {
        assert!(
            desk.start_attempt(&host_named("harbour"))
                .unwrap()
                .is_none()
        );
    }
    let PromptEvent::Unavailable(why) = events.try_recv().unwrap() else {
        panic!("it says why");
    };
    assert!(why.contains("/nowhere/at/all"), "{why}");
    assert!(events.is_empty());
}

#[test]
fn socket_is_in_no_directory_of_another_user() {
    let (foreign, own) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    if std::os::unix::fs::chown(foreign.path(), Some(OTHER_USER), None).is_err() {
        return skip_unsupported("only root can give directories away");
    }
    let start = |places: &[&Path]| {
        let (sender, events) = unbounded();
        let roots = places.iter().map(|it| temporary_root(it)).collect();
        let desk = PromptBroker::new("memory-shepherd".into(), roots, sender);
        let call = desk.start_attempt(&host_named("harbour")).unwrap();
        (call.is_some(), events.try_recv().ok())
    };
    assert_eq!(start(&[foreign.path(), own.path()]), (true, None));
    let (is_started, event) = start(&[foreign.path(), foreign.path()]);
    let Some(PromptEvent::Unavailable(why)) = event else {
        panic!("{event:?}");
    };
    assert!(!is_started);
    assert!(why.contains("uid 4711 owns"), "{why}");
    assert_eq!(std::fs::read_dir(foreign.path()).unwrap().count(), 0);
}

#[test]
fn failing_directory_falls_back_to_next() {
    let directory = TempDir::new().unwrap();
    let (sender, _events) = unbounded();
    let roots = [Path::new("/nowhere/at/all"), directory.path()];
    let roots = roots.map(temporary_root).to_vec();
    let desk = PromptBroker::new("memory-shepherd".into(), roots, sender);
    assert!(
        desk.start_attempt(&host_named("harbour"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn refused_question_bars_host_until_allowed() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let (messenger, asked) = office.ask_for_passphrase(&call);
    assert!(
        call.pending_question_error()
            .unwrap()
            .to_string()
            .contains("wants a passphrase")
    );
    office.broker.refuse(asked.id);
    assert!(
        call.instant() <= SystemClock.instant(),
        "it is over at once"
    );
    assert!(!call.has_finished_asking(), "ssh must not go on by itself");
    assert!(!messenger.is_finished());
    let why = call.explain_outcome(failed_connect::<()>()).unwrap_err();
    assert_eq!(why.cause, FailureCause::Unreachable);
    let message = why.to_string();
    assert!(
        message.contains("it wants a passphrase; the question was not answered"),
        "{message}"
    );
    call.end();
    assert_eq!(received_answer(messenger), None);
    assert_eq!(office.next_event(), PromptEvent::Withdrawn(asked.id));
    call.report_finished(&host_named("harbour"));
    assert_eq!(
        office.next_event(),
        PromptEvent::ConnectFinished("harbour".to_string())
    );
    for _ in 0..3 {
        let barred = office
            .broker
            .start_attempt(&host_named("harbour"))
            .err()
            .unwrap();
        assert_eq!(barred.to_string(), message);
    }
    assert!(
        office.broker.is_blocked(&host_named("harbour"))
            && !office.broker.is_blocked(&host_named("cliff"))
    );
    office.broker.unblock(&host_named("harbour"));
    assert!(
        office
            .broker
            .start_attempt(&host_named("harbour"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn failed_login_after_a_question_bars_the_host() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let why = call.explain_outcome(failed_connect::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    call.report_finished(&host_named("harbour"));
    call.end();
    assert!(
        !office.broker.is_blocked(&host_named("harbour")),
        "its own pauses are enough"
    );
    assert!(office.events.is_empty());

    let call = office.start_call("harbour");
    let (messenger, asked) = office.ask_for_passphrase(&call);
    office.broker.answer(asked.id, &secret_of("wrong"));
    assert!(received_answer(messenger).is_some());
    let why = call.explain_outcome(failed_connect::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    assert_eq!(why.hints(), ["read the agent again to retry"]);
    assert!(office.broker.is_blocked(&host_named("harbour")));

    office.broker.unblock(&host_named("harbour"));
    let call = office.start_call("harbour");
    let (messenger, asked) = office.ask_for_passphrase(&call);
    office.broker.answer(asked.id, &secret_of("right"));
    assert!(received_answer(messenger).is_some());
    assert_eq!(call.explain_outcome(Ok(7)).unwrap(), 7);
    call.report_finished(&host_named("harbour"));
    assert_eq!(
        office.next_event(),
        PromptEvent::ConnectFinished("harbour".to_string())
    );
    assert!(!office.broker.is_blocked(&host_named("harbour")));
}

#[test]
fn late_answer_does_not_bar_the_host() {
    let office = broker_fixture();
    let refused = || TransportError::new(FailureCause::Refused, Error::new(ErrorKind::Host, "no"));
    // A host that denies access has received the answer.
    for (why, bars) in [
        (failed_connect::<()>().unwrap_err(), false),
        (refused(), true),
    ] {
        let call = office.start_call("harbour");
        let (messenger, asked) = office.ask_for_passphrase(&call);
        call.with_open_attempt(|call| call.started -= LATE_ANSWER_AFTER)
            .unwrap();
        office.broker.answer(asked.id, &secret_of("right"));
        assert!(received_answer(messenger).is_some());
        assert!(call.explain_outcome(Err::<(), _>(why)).is_err());
        assert_eq!(office.broker.is_blocked(&host_named("harbour")), bars);
        if !bars {
            assert_eq!(
                office.next_event(),
                PromptEvent::AnswerTooLate("harbour".to_string())
            );
        }
        // The receiver of the event polls the host again, and so starts another attempt.
        call.report_finished(&host_named("harbour"));
        assert_eq!(
            office.next_event(),
            PromptEvent::ConnectFinished("harbour".to_string())
        );
    }
}

#[test]
fn abandoned_call_does_not_bar_the_host() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let (messenger, asked) = office.ask_for_passphrase(&call);
    call.abandon();
    assert!(call.instant() <= SystemClock.instant());
    assert!(call.explain_outcome(failed_connect::<()>()).is_err());
    call.report_finished(&host_named("harbour"));
    drop(call);
    assert_eq!(received_answer(messenger), None);
    assert_eq!(office.next_event(), PromptEvent::Withdrawn(asked.id));
    assert!(office.events.is_empty());
    assert!(!office.broker.is_blocked(&host_named("harbour")));
}

#[test]
fn disconnected_askpass_withdraws_its_question() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    let mut stream = office.connect();
    let mut frame = token.into_bytes();
    frame.push(b'n');
    frame.extend(2_u32.to_be_bytes());
    frame.extend(b"hi");
    stream.write_all(&frame).unwrap();
    let asked = office.next_question();
    assert_eq!(asked.expected_answer, ExpectedAnswer::NoAnswer);
    drop(stream);
    assert_eq!(office.next_event(), PromptEvent::Withdrawn(asked.id));
    // Too late: the question has ended.
    office.broker.answer(asked.id, &secret_of("x"));
    office.broker.refuse(asked.id);
    assert!(call.instant() > SystemClock.instant(), "the call goes on");
}

#[test]
fn open_question_suspends_the_timeout() {
    let office = broker_fixture();
    let limit = Duration::from_secs(15);
    let slow = SshHost {
        timeout_seconds: 15,
        ..host_named("harbour")
    };
    let call = office.broker.start_attempt(&slow).unwrap().unwrap();
    let first = call.instant();
    assert!(first <= SystemClock.instant() + limit);
    let (messenger, asked) = office.ask_for_passphrase(&call);
    let open = call.instant();
    assert!(open > first + limit && open <= SystemClock.instant() + ANSWER_TIMEOUT);
    office.broker.answer(asked.id, &secret_of("x"));
    let answered = call.instant();
    assert!(answered > first && answered <= SystemClock.instant() + limit);
    assert!(received_answer(messenger).is_some());
}

#[test]
fn refused_question_ends_waiting_session() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let (messenger, asked) = office.ask_for_passphrase(&call);
    // The other side is silent, and minutes are left.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = SessionPipes {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        stderr: None,
    };
    let until = call.clone();
    let session = thread::spawn(move || Session::start(link, until).err());
    // The session has started once it sends INIT, which is nine bytes.
    theirs.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    (&theirs).read_exact(&mut [0; 9]).unwrap();
    office.broker.refuse(asked.id);
    let broken = session.join().unwrap().unwrap();
    assert!(
        matches!(broken.reason, CloseReason::ReplyTimeout(_)),
        "{broken}"
    );
    call.end();
    assert_eq!(received_answer(messenger), None);
}

#[test]
fn questions_per_call_are_limited() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    for _ in 0..MAX_QUESTIONS_PER_ATTEMPT {
        let (messenger, asked) = office.ask_for_passphrase(&call);
        office.broker.answer(asked.id, &secret_of("x"));
        assert!(received_answer(messenger).is_some());
    }
    assert_eq!(
        received_answer(office.send_question(&call, PASSPHRASE_PROMPT)),
        None
    );
    assert!(office.events.is_empty());
}

#[test]
fn close_waits_for_open_questions() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let through = office.start_call("cliff");
    assert!(through.explain_outcome(Ok(())).is_ok());
    let messenger = office.send_question(&call, PASSPHRASE_PROMPT);
    office.next_question();
    let ended = Arc::new(AtomicBool::new(false));
    let ending = {
        let (call, ended) = (call.clone(), Arc::clone(&ended));
        thread::spawn(move || {
            // As the thread that waits for ssh does.
            while call.instant() > SystemClock.instant() {
                thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
            call.end();
        })
    };
    let begun = SystemClock.instant();
    office.broker.close();
    let waited = SystemClock.instant() - begun;
    assert!(ended.load(Ordering::SeqCst) || waited >= CLOSE_TIMEOUT);
    let over = through.with_open_attempt(|call| call.end_reason.is_some());
    assert_eq!(over, Some(false), "whoever is through goes on");
    ending.join().unwrap();
    assert_eq!(received_answer(messenger), None);
}

#[test]
fn ssh_gets_askpass_environment() {
    let office = broker_fixture();
    let call = office.start_call("harbour");
    let mut command = Command::new("ssh");
    call.configure_command(&mut command);
    let set: HashMap<String, String> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.into(), value?.to_str()?.into())))
        .collect();
    assert_eq!(set["SSH_ASKPASS"], "memory-shepherd");
    assert_eq!(set["SSH_ASKPASS_REQUIRE"], "force");
    assert!(Path::new(&set[SOCKET_VARIABLE]).starts_with(office.directory.path()));
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    assert_eq!((&set[helper::TOKEN_VARIABLE], token.len()), (&token, 64));
    let other = office
        .start_call("harbour")
        .with_open_attempt(|call| call.token.clone());
    assert_ne!(other.unwrap(), token);
}
