//! The desk and messengers, without an ssh between them.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, unbounded};
use zeroize::Zeroizing;

use super::*;
use crate::transport::sftp::session::{CloseReason, Session, SessionPipes};

/// How long anything that surely happens may take.
const BOUND: Duration = Duration::from_secs(60);

const PASSPHRASE: &str = "Enter passphrase for key '/home/op/.ssh/id': ";

struct Office {
    desk: PromptBroker,
    events: Receiver<PromptEvent>,
    folder: TempDir,
}

fn office() -> Office {
    let folder = TempDir::new().unwrap();
    let (sender, events) = unbounded();
    let folders = vec![folder.path().to_path_buf()];
    Office {
        desk: PromptBroker::new("memory-shepherd".into(), folders, sender),
        events,
        folder,
    }
}

fn host(name: &str) -> SshHost {
    SshHost {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        timeout_seconds: 3600,
    }
}

fn secret(text: &str) -> Secret {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    secret
}

fn failed<T>() -> Result<T, TransportError> {
    Err(unreachable_error("harbour cannot be reached: it hangs up."))
}

/// Whoever asks, and waits for the answer.
type Messenger = JoinHandle<std::io::Result<Zeroizing<Vec<u8>>>>;

impl Office {
    fn call(&self, name: &str) -> ConnectAttempt {
        self.desk.start_attempt(&host(name)).unwrap().unwrap()
    }

    fn connect(&self) -> UnixStream {
        let state = self.desk.0.lock_state();
        let stream = UnixStream::connect(&state.prompt_socket.as_ref().unwrap().path).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// Asks in the name of a call; what the messenger gets.
    fn ask(&self, call: &ConnectAttempt, text: &str) -> Messenger {
        let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
        let (stream, text) = (self.connect(), text.to_string());
        thread::spawn(move || helper::ask_console(stream, token.as_bytes(), b"", text.as_bytes()))
    }

    /// Asks for a passphrase, and what the operator is asked.
    fn asked(&self, call: &ConnectAttempt) -> (Messenger, Question) {
        (self.ask(call, PASSPHRASE), self.question())
    }

    fn event(&self) -> PromptEvent {
        self.events.recv_timeout(BOUND).unwrap()
    }

    fn question(&self) -> Question {
        match self.event() {
            PromptEvent::Asked(question) => question,
            other => panic!("{other:?}"),
        }
    }
}

fn got(messenger: Messenger) -> Option<String> {
    let answer = messenger.join().unwrap().ok()?;
    Some(String::from_utf8(answer.to_vec()).unwrap())
}

#[test]
fn a_question_comes_with_its_host_and_its_answer_goes_back() {
    let office = office();
    let (harbour, cliff) = (office.call("harbour"), office.call("cliff"));
    let (first, asked) = office.asked(&harbour);
    assert_eq!((asked.host.as_str(), asked.is_repeated), ("harbour", false));
    assert_eq!(
        asked.expected_answer,
        ExpectedAnswer::Secret(SecretRecipient::LocalSsh)
    );
    assert_eq!(asked.text.as_bytes(), PASSPHRASE.as_bytes());
    let (second, other) = office.asked(&cliff);
    assert_eq!((other.host.as_str(), other.is_repeated), ("cliff", false));
    office.desk.answer(other.id, &secret("b"));
    office.desk.answer(asked.id, &secret("a é"));
    assert_eq!(got(first).as_deref(), Some("a é\n"));
    assert_eq!(got(second).as_deref(), Some("b\n"));
    // The same again means that it was not accepted.
    let (third, again) = office.asked(&harbour);
    assert!(again.is_repeated);
    office.desk.answer(again.id, &secret("c"));
    assert_eq!(got(third).as_deref(), Some("c\n"));
    // Answered once is answered.
    office.desk.answer(again.id, &secret("d"));
    let fourth = office.ask(&harbour, "another: ");
    assert!(!office.question().is_repeated);
    harbour.end();
    assert_eq!(got(fourth), None);
}

#[test]
fn whoever_lacks_the_token_is_not_heard() {
    let office = office();
    let call = office.call("harbour");
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
        // It may hang up in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    assert!(office.events.is_empty(), "nothing was asked");
    let right = office.ask(&call, &"x".repeat(9000));
    let asked = office.question();
    assert_eq!(
        asked.text.as_bytes().len(),
        helper::MAX_QUESTION_BYTES,
        "the rest is cut"
    );
    office.desk.answer(asked.id, &secret("y"));
    assert_eq!(got(right).as_deref(), Some("y\n"));
}

#[test]
fn the_socket_is_in_a_folder_of_its_own_and_goes_with_the_desk() {
    let office = office();
    let inside = || std::fs::read_dir(office.folder.path()).unwrap().count();
    assert_eq!(inside(), 0, "nothing is made before it is needed");
    let call = office.call("harbour");
    let made = std::fs::read_dir(office.folder.path()).unwrap();
    let made = made.last().unwrap().unwrap();
    assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o700);
    assert_eq!(office.call("cliff").0.shared.lock_state().attempts.len(), 2);
    assert_eq!(inside(), 1, "one socket for all");
    drop(call);
    office.desk.close();
    assert_eq!(inside(), 0);
    assert!(
        office
            .desk
            .start_attempt(&host("harbour"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn where_nobody_can_listen_ssh_does_not_ask_and_that_is_said_once() {
    let (sender, events) = unbounded();
    let folders = vec!["/nowhere/at/all".into()];
    let desk = PromptBroker::new("memory-shepherd".into(), folders, sender);
    for _ in 0..2 {
        assert!(desk.start_attempt(&host("harbour")).unwrap().is_none());
    }
    let PromptEvent::Unavailable(why) = events.try_recv().unwrap() else {
        panic!("it says why");
    };
    assert!(why.contains("/nowhere/at/all"), "{why}");
    assert!(events.is_empty());
}

#[test]
fn a_folder_that_fails_is_followed_by_the_next() {
    let folder = TempDir::new().unwrap();
    let (sender, _events) = unbounded();
    let folders = vec!["/nowhere/at/all".into(), folder.path().to_path_buf()];
    let desk = PromptBroker::new("memory-shepherd".into(), folders, sender);
    assert!(desk.start_attempt(&host("harbour")).unwrap().is_some());
}

#[test]
fn a_refusal_ends_ssh_and_bars_the_host_until_it_may_ask() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    assert!(
        call.pending_question_error()
            .unwrap()
            .to_string()
            .contains("wants a passphrase")
    );
    office.desk.refuse(asked.id);
    assert!(
        call.instant() <= SystemClock.instant(),
        "it is over at once"
    );
    assert!(!call.has_finished_asking(), "ssh must not go on by itself");
    assert!(!messenger.is_finished());
    let why = call.explain_outcome(failed::<()>()).unwrap_err();
    assert_eq!(why.cause, FailureCause::Unreachable);
    let said = why.to_string();
    assert!(
        said.contains("it wants a passphrase and got no answer"),
        "{said}"
    );
    call.end();
    assert_eq!(got(messenger), None);
    assert_eq!(office.event(), PromptEvent::Withdrawn(asked.id));
    call.report_finished(&host("harbour"));
    assert_eq!(
        office.event(),
        PromptEvent::ConnectFinished("harbour".to_string())
    );
    for _ in 0..3 {
        let barred = office.desk.start_attempt(&host("harbour")).err().unwrap();
        assert_eq!(barred.to_string(), said);
    }
    assert!(office.desk.is_blocked(&host("harbour")) && !office.desk.is_blocked(&host("cliff")));
    office.desk.unblock(&host("harbour"));
    assert!(
        office
            .desk
            .start_attempt(&host("harbour"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_host_that_asked_in_vain_is_barred_and_one_that_did_not_ask_is_not() {
    let office = office();
    let call = office.call("harbour");
    let why = call.explain_outcome(failed::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    call.report_finished(&host("harbour"));
    call.end();
    assert!(
        !office.desk.is_blocked(&host("harbour")),
        "its own pauses are enough"
    );
    assert!(office.events.is_empty());

    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    office.desk.answer(asked.id, &secret("wrong"));
    assert!(got(messenger).is_some());
    let why = call.explain_outcome(failed::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    assert_eq!(why.hints(), ["read it again to try again"]);
    assert!(office.desk.is_blocked(&host("harbour")));

    office.desk.unblock(&host("harbour"));
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    office.desk.answer(asked.id, &secret("right"));
    assert!(got(messenger).is_some());
    assert_eq!(call.explain_outcome(Ok(7)).unwrap(), 7);
    call.report_finished(&host("harbour"));
    assert_eq!(
        office.event(),
        PromptEvent::ConnectFinished("harbour".to_string())
    );
    assert!(!office.desk.is_blocked(&host("harbour")));
}

#[test]
fn an_answer_that_came_too_late_bars_nobody() {
    let office = office();
    let refused = || TransportError::new(FailureCause::Refused, Error::new(ErrorKind::Host, "no"));
    // A host that says no has heard the answer.
    for (why, bars) in [(failed::<()>().unwrap_err(), false), (refused(), true)] {
        let call = office.call("harbour");
        let (messenger, asked) = office.asked(&call);
        call.with_open_attempt(|call| call.started -= LATE_ANSWER_AFTER)
            .unwrap();
        office.desk.answer(asked.id, &secret("right"));
        assert!(got(messenger).is_some());
        assert!(call.explain_outcome(Err::<(), _>(why)).is_err());
        assert_eq!(office.desk.is_blocked(&host("harbour")), bars);
        if !bars {
            assert_eq!(
                office.event(),
                PromptEvent::AnswerTooLate("harbour".to_string())
            );
        }
        // Whoever listens looks at it again, and so connects anew.
        call.report_finished(&host("harbour"));
        assert_eq!(
            office.event(),
            PromptEvent::ConnectFinished("harbour".to_string())
        );
    }
}

#[test]
fn an_abandoned_call_ends_without_barring_anybody() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    call.abandon();
    assert!(call.instant() <= SystemClock.instant());
    assert!(call.explain_outcome(failed::<()>()).is_err());
    call.report_finished(&host("harbour"));
    drop(call);
    assert_eq!(got(messenger), None);
    assert_eq!(office.event(), PromptEvent::Withdrawn(asked.id));
    assert!(office.events.is_empty());
    assert!(!office.desk.is_blocked(&host("harbour")));
}

#[test]
fn a_messenger_that_goes_takes_its_question_with_it() {
    let office = office();
    let call = office.call("harbour");
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    let mut stream = office.connect();
    let mut frame = token.into_bytes();
    frame.push(b'n');
    frame.extend(2_u32.to_be_bytes());
    frame.extend(b"hi");
    stream.write_all(&frame).unwrap();
    let asked = office.question();
    assert_eq!(asked.expected_answer, ExpectedAnswer::NoAnswer);
    drop(stream);
    assert_eq!(office.event(), PromptEvent::Withdrawn(asked.id));
    // Too late, and for nobody.
    office.desk.answer(asked.id, &secret("x"));
    office.desk.refuse(asked.id);
    assert!(call.instant() > SystemClock.instant(), "the call goes on");
}

#[test]
fn an_open_question_stops_the_time_and_its_answer_begins_it_anew() {
    let office = office();
    let limit = Duration::from_secs(15);
    let slow = SshHost {
        timeout_seconds: 15,
        ..host("harbour")
    };
    let call = office.desk.start_attempt(&slow).unwrap().unwrap();
    let first = call.instant();
    assert!(first <= SystemClock.instant() + limit);
    let (messenger, asked) = office.asked(&call);
    let open = call.instant();
    assert!(open > first + limit && open <= SystemClock.instant() + ANSWER_TIMEOUT);
    office.desk.answer(asked.id, &secret("x"));
    let answered = call.instant();
    assert!(answered > first && answered <= SystemClock.instant() + limit);
    assert!(got(messenger).is_some());
}

#[test]
fn a_session_that_waits_ends_when_its_question_is_refused() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    // Nobody speaks on the other side, and there are minutes left.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = SessionPipes {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        stderr: None,
    };
    let until = call.clone();
    let session = thread::spawn(move || Session::start(link, until).err());
    // It has begun once it says INIT, which is nine bytes.
    theirs.set_read_timeout(Some(BOUND)).unwrap();
    (&theirs).read_exact(&mut [0; 9]).unwrap();
    office.desk.refuse(asked.id);
    let broken = session.join().unwrap().unwrap();
    assert!(
        matches!(broken.reason, CloseReason::ReplyTimeout(_)),
        "{broken}"
    );
    call.end();
    assert_eq!(got(messenger), None);
}

#[test]
fn a_call_asks_only_so_often() {
    let office = office();
    let call = office.call("harbour");
    for _ in 0..MAX_QUESTIONS_PER_ATTEMPT {
        let (messenger, asked) = office.asked(&call);
        office.desk.answer(asked.id, &secret("x"));
        assert!(got(messenger).is_some());
    }
    assert_eq!(got(office.ask(&call, PASSPHRASE)), None);
    assert!(office.events.is_empty());
}

#[test]
fn closing_the_desk_waits_for_what_is_still_asking() {
    let office = office();
    let call = office.call("harbour");
    let through = office.call("cliff");
    assert!(through.explain_outcome(Ok(())).is_ok());
    let messenger = office.ask(&call, PASSPHRASE);
    office.question();
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
    office.desk.close();
    let waited = SystemClock.instant() - begun;
    assert!(ended.load(Ordering::SeqCst) || waited >= CLOSE_TIMEOUT);
    let over = through.with_open_attempt(|call| call.end_reason.is_some());
    assert_eq!(over, Some(false), "whoever is through goes on");
    ending.join().unwrap();
    assert_eq!(got(messenger), None);
}

#[test]
fn an_ssh_that_may_ask_is_told_where() {
    let office = office();
    let call = office.call("harbour");
    let mut command = Command::new("ssh");
    call.configure_command(&mut command);
    let set: HashMap<String, String> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.into(), value?.to_str()?.into())))
        .collect();
    assert_eq!(set["SSH_ASKPASS"], "memory-shepherd");
    assert_eq!(set["SSH_ASKPASS_REQUIRE"], "force");
    assert!(Path::new(&set[SOCKET_VARIABLE]).starts_with(office.folder.path()));
    let token = call.with_open_attempt(|call| call.token.clone()).unwrap();
    assert_eq!((&set[helper::TOKEN_VARIABLE], token.len()), (&token, 64));
    let other = office
        .call("harbour")
        .with_open_attempt(|call| call.token.clone());
    assert_ne!(other.unwrap(), token);
}
