//! The desk and messengers, without an ssh between them.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, unbounded};
use zeroize::Zeroizing;

use super::*;
use crate::transport::sftp::session::{CloseReason, Link, Session};

/// How long anything that surely happens may take.
const BOUND: Duration = Duration::from_secs(60);

const PASSPHRASE: &str = "Enter passphrase for key '/home/op/.ssh/id': ";

struct Office {
    desk: PromptBroker,
    events: Receiver<Event>,
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

fn host(name: &str) -> Host {
    Host {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        timeout: 3600,
    }
}

fn secret(text: &str) -> Secret {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    secret
}

fn failed<T>() -> Result<T, TransportError> {
    Err(unreachable("harbour cannot be reached: it hangs up."))
}

/// Whoever asks, and waits for the answer.
type Messenger = JoinHandle<std::io::Result<Zeroizing<Vec<u8>>>>;

impl Office {
    fn call(&self, name: &str) -> Call {
        self.desk.call(&host(name)).unwrap().unwrap()
    }

    fn connect(&self) -> UnixStream {
        let state = self.desk.0.state();
        let stream = UnixStream::connect(&state.listening.as_ref().unwrap().socket).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// Asks in the name of a call; what the messenger gets.
    fn ask(&self, call: &Call, text: &str) -> Messenger {
        let token = call.with(|call| call.token.clone()).unwrap();
        let (stream, text) = (self.connect(), text.to_string());
        thread::spawn(move || helper::ask(stream, token.as_bytes(), b"", text.as_bytes()))
    }

    /// Asks for a passphrase, and what the operator is asked.
    fn asked(&self, call: &Call) -> (Messenger, Question) {
        (self.ask(call, PASSPHRASE), self.question())
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(BOUND).unwrap()
    }

    fn question(&self) -> Question {
        match self.event() {
            Event::Asked(question) => question,
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
    assert_eq!((asked.host.as_str(), asked.again), ("harbour", false));
    assert_eq!(asked.wants, Wants::Secret(Whose::Machine));
    assert_eq!(asked.text.bytes(), PASSPHRASE.as_bytes());
    let (second, other) = office.asked(&cliff);
    assert_eq!((other.host.as_str(), other.again), ("cliff", false));
    office.desk.answer(other.id, &secret("b"));
    office.desk.answer(asked.id, &secret("a é"));
    assert_eq!(got(first).as_deref(), Some("a é\n"));
    assert_eq!(got(second).as_deref(), Some("b\n"));
    // The same again means that it was not accepted.
    let (third, again) = office.asked(&harbour);
    assert!(again.again);
    office.desk.answer(again.id, &secret("c"));
    assert_eq!(got(third).as_deref(), Some("c\n"));
    // Answered once is answered.
    office.desk.answer(again.id, &secret("d"));
    let fourth = office.ask(&harbour, "another: ");
    assert!(!office.question().again);
    harbour.end();
    assert_eq!(got(fourth), None);
}

#[test]
fn whoever_lacks_the_token_is_not_heard() {
    let office = office();
    let call = office.call("harbour");
    let token = call.with(|call| call.token.clone()).unwrap();
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
    assert_eq!(asked.text.bytes().len(), helper::LONGEST, "the rest is cut");
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
    assert_eq!(office.call("cliff").0.shared.state().calls.len(), 2);
    assert_eq!(inside(), 1, "one socket for all");
    drop(call);
    office.desk.close();
    assert_eq!(inside(), 0);
    assert!(office.desk.call(&host("harbour")).unwrap().is_none());
}

#[test]
fn where_nobody_can_listen_ssh_does_not_ask_and_that_is_said_once() {
    let (sender, events) = unbounded();
    let folders = vec!["/nowhere/at/all".into()];
    let desk = PromptBroker::new("memory-shepherd".into(), folders, sender);
    for _ in 0..2 {
        assert!(desk.call(&host("harbour")).unwrap().is_none());
    }
    let Event::Unavailable(why) = events.try_recv().unwrap() else {
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
    assert!(desk.call(&host("harbour")).unwrap().is_some());
}

#[test]
fn a_refusal_ends_ssh_and_bars_the_host_until_it_may_ask() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    assert!(
        call.waits()
            .unwrap()
            .to_string()
            .contains("wants a passphrase")
    );
    office.desk.refuse(asked.id);
    assert!(call.at() <= System.instant(), "it is over at once");
    assert!(!call.is_through(), "ssh must not go on by itself");
    assert!(!messenger.is_finished());
    let why = call.judge(failed::<()>()).unwrap_err();
    assert_eq!(why.cause, Cause::Unreachable);
    let said = why.to_string();
    assert!(
        said.contains("it wants a passphrase and got no answer"),
        "{said}"
    );
    call.end();
    assert_eq!(got(messenger), None);
    assert_eq!(office.event(), Event::Withdrawn(asked.id));
    call.tell(&host("harbour"));
    assert_eq!(office.event(), Event::Settled("harbour".to_string()));
    for _ in 0..3 {
        let barred = office.desk.call(&host("harbour")).err().unwrap();
        assert_eq!(barred.to_string(), said);
    }
    assert!(office.desk.bars(&host("harbour")) && !office.desk.bars(&host("cliff")));
    office.desk.let_ask(&host("harbour"));
    assert!(office.desk.call(&host("harbour")).unwrap().is_some());
}

#[test]
fn a_host_that_asked_in_vain_is_barred_and_one_that_did_not_ask_is_not() {
    let office = office();
    let call = office.call("harbour");
    let why = call.judge(failed::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    call.tell(&host("harbour"));
    call.end();
    assert!(
        !office.desk.bars(&host("harbour")),
        "its own pauses are enough"
    );
    assert!(office.events.is_empty());

    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    office.desk.answer(asked.id, &secret("wrong"));
    assert!(got(messenger).is_some());
    let why = call.judge(failed::<()>()).unwrap_err();
    assert_eq!(why.to_string(), "harbour cannot be reached: it hangs up.");
    assert_eq!(why.hints(), ["read it again to try again"]);
    assert!(office.desk.bars(&host("harbour")));

    office.desk.let_ask(&host("harbour"));
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    office.desk.answer(asked.id, &secret("right"));
    assert!(got(messenger).is_some());
    assert_eq!(call.judge(Ok(7)).unwrap(), 7);
    call.tell(&host("harbour"));
    assert_eq!(office.event(), Event::Settled("harbour".to_string()));
    assert!(!office.desk.bars(&host("harbour")));
}

#[test]
fn an_answer_that_came_too_late_bars_nobody() {
    let office = office();
    let refused = || TransportError::new(Cause::Refused, Error::new(Kind::Host, "no"));
    // A host that says no has heard the answer.
    for (why, bars) in [(failed::<()>().unwrap_err(), false), (refused(), true)] {
        let call = office.call("harbour");
        let (messenger, asked) = office.asked(&call);
        call.with(|call| call.begun -= LATE).unwrap();
        office.desk.answer(asked.id, &secret("right"));
        assert!(got(messenger).is_some());
        assert!(call.judge(Err::<(), _>(why)).is_err());
        assert_eq!(office.desk.bars(&host("harbour")), bars);
        if !bars {
            assert_eq!(office.event(), Event::Late("harbour".to_string()));
        }
        // Whoever listens looks at it again, and so connects anew.
        call.tell(&host("harbour"));
        assert_eq!(office.event(), Event::Settled("harbour".to_string()));
    }
}

#[test]
fn an_abandoned_call_ends_without_barring_anybody() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    call.abandon();
    assert!(call.at() <= System.instant());
    assert!(call.judge(failed::<()>()).is_err());
    call.tell(&host("harbour"));
    drop(call);
    assert_eq!(got(messenger), None);
    assert_eq!(office.event(), Event::Withdrawn(asked.id));
    assert!(office.events.is_empty());
    assert!(!office.desk.bars(&host("harbour")));
}

#[test]
fn a_messenger_that_goes_takes_its_question_with_it() {
    let office = office();
    let call = office.call("harbour");
    let token = call.with(|call| call.token.clone()).unwrap();
    let mut stream = office.connect();
    let mut frame = token.into_bytes();
    frame.push(b'n');
    frame.extend(2_u32.to_be_bytes());
    frame.extend(b"hi");
    stream.write_all(&frame).unwrap();
    let asked = office.question();
    assert_eq!(asked.wants, Wants::Nothing);
    drop(stream);
    assert_eq!(office.event(), Event::Withdrawn(asked.id));
    // Too late, and for nobody.
    office.desk.answer(asked.id, &secret("x"));
    office.desk.refuse(asked.id);
    assert!(call.at() > System.instant(), "the call goes on");
}

#[test]
fn an_open_question_stops_the_time_and_its_answer_begins_it_anew() {
    let office = office();
    let limit = Duration::from_secs(15);
    let slow = Host {
        timeout: 15,
        ..host("harbour")
    };
    let call = office.desk.call(&slow).unwrap().unwrap();
    let first = call.at();
    assert!(first <= System.instant() + limit);
    let (messenger, asked) = office.asked(&call);
    let open = call.at();
    assert!(open > first + limit && open <= System.instant() + PATIENCE);
    office.desk.answer(asked.id, &secret("x"));
    let answered = call.at();
    assert!(answered > first && answered <= System.instant() + limit);
    assert!(got(messenger).is_some());
}

#[test]
fn a_session_that_waits_ends_when_its_question_is_refused() {
    let office = office();
    let call = office.call("harbour");
    let (messenger, asked) = office.asked(&call);
    // Nobody speaks on the other side, and there are minutes left.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = Link {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        errors: None,
    };
    let until = call.clone();
    let session = thread::spawn(move || Session::start(link, until).err());
    // It has begun once it says INIT, which is nine bytes.
    theirs.set_read_timeout(Some(BOUND)).unwrap();
    (&theirs).read_exact(&mut [0; 9]).unwrap();
    office.desk.refuse(asked.id);
    let broken = session.join().unwrap().unwrap();
    assert!(matches!(broken.why, CloseReason::NoAnswer(_)), "{broken}");
    call.end();
    assert_eq!(got(messenger), None);
}

#[test]
fn a_call_asks_only_so_often() {
    let office = office();
    let call = office.call("harbour");
    for _ in 0..MOST_QUESTIONS {
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
    assert!(through.judge(Ok(())).is_ok());
    let messenger = office.ask(&call, PASSPHRASE);
    office.question();
    let ended = Arc::new(AtomicBool::new(false));
    let ending = {
        let (call, ended) = (call.clone(), Arc::clone(&ended));
        thread::spawn(move || {
            // As the thread that waits for ssh does.
            while call.at() > System.instant() {
                thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
            call.end();
        })
    };
    let begun = System.instant();
    office.desk.close();
    let waited = System.instant() - begun;
    assert!(ended.load(Ordering::SeqCst) || waited >= CLOSING);
    let over = through.with(|call| call.over.is_some());
    assert_eq!(over, Some(false), "whoever is through goes on");
    ending.join().unwrap();
    assert_eq!(got(messenger), None);
}

#[test]
fn an_ssh_that_may_ask_is_told_where() {
    let office = office();
    let call = office.call("harbour");
    let mut command = Command::new("ssh");
    call.prepare(&mut command);
    let set: HashMap<String, String> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.into(), value?.to_str()?.into())))
        .collect();
    assert_eq!(set["SSH_ASKPASS"], "memory-shepherd");
    assert_eq!(set["SSH_ASKPASS_REQUIRE"], "force");
    assert!(Path::new(&set[SOCKET]).starts_with(office.folder.path()));
    let token = call.with(|call| call.token.clone()).unwrap();
    assert_eq!((&set[helper::TOKEN], token.len()), (&token, 64));
    let other = office.call("harbour").with(|call| call.token.clone());
    assert_ne!(other.unwrap(), token);
}
