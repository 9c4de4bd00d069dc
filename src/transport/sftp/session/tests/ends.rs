//! How a session ends, and what everybody who waits is told.

use super::*;

#[test]
fn a_peer_that_never_reads_ends_the_session_and_every_wait() {
    let (alone, peer) = session(SHORT);
    let pending = alone.send_batch(vec![put(250_000)]);
    assert_eq!(
        broken(&pending.wait()[0]).reason,
        CloseReason::ReplyTimeout(SHORT)
    );
    drop(alone);
    peer.has_been_left();
    let (session, peer) = session(SHORT);
    let first = session.send_batch(vec![put(250_000); 4]);
    // There is no room for these.
    let second = session.send_batch(vec![put(250_000); 4]);
    for pending in [first, second] {
        for answer in pending.wait() {
            assert_eq!(broken(&answer).reason, CloseReason::ReplyTimeout(SHORT));
        }
    }
    assert_eq!(
        session.end_error().unwrap().reason,
        CloseReason::ReplyTimeout(SHORT)
    );
    // And whoever comes later.
    assert!(broken(&session.send_batch(vec![open()]).wait()[0]).has_greeted);
    drop(session);
    peer.has_been_left();
}

#[test]
fn a_reply_that_does_not_come_ends_the_session() {
    // Long enough for the first reply on a busy machine.
    let patience = Duration::from_secs(3);
    let (session, mut peer) = session(patience);
    let pending = session.send_batch(vec![lstat("a"), lstat("b")]);
    let waits = session.send_isolated(pair(1), Vec::new());
    let asked = peer.next();
    peer.status(&asked, 2);
    let answers = pending.wait();
    assert_eq!(code(&answers[0]), 2);
    let why = broken(&answers[1]);
    assert_eq!(
        (why.reason.clone(), why.has_greeted),
        (CloseReason::ReplyTimeout(patience), true)
    );
    assert_eq!(why.to_string(), "no answer for 3 s");
    assert_eq!(
        broken(&waits.wait()[1]).reason,
        CloseReason::ReplyTimeout(patience)
    );
    drop(session);
    peer.has_been_left();
}

#[test]
fn a_reply_that_never_ends_does_not_hold_anybody() {
    let (session, mut peer) = session(SHORT);
    let pending = session.send_batch(vec![get(200_000)]);
    let asked = peer.next();
    let head = [&[0, 3, 0, 0, 103][..], &asked.id.to_be_bytes()].concat();
    let _ = peer.replies.write_all(&head);
    // Until our end is closed, which happens long before so many bytes.
    while peer.replies.write_all(b"x").is_ok() {}
    assert_eq!(
        broken(&pending.wait()[0]).reason,
        CloseReason::ReplyTimeout(SHORT)
    );
}

#[test]
fn bytes_that_answer_nothing_end_the_session() {
    let status = |id: u32| string(&[&[101][..], &id.to_be_bytes(), &[0; 4]].concat());
    // From the id of the one request, what is said.
    type Says = Box<dyn Fn(u32) -> Vec<u8>>;
    let scripts: Vec<(&str, Says)> = vec![
        ("unknown id", Box::new(move |id| status(id + 1))),
        (
            "answered twice",
            Box::new(move |id| [status(id), status(id)].concat()),
        ),
        ("nothing", Box::new(|_| vec![0; 4])),
        ("4 GiB", Box::new(|_| vec![0xFF; 5])),
        ("no id", Box::new(|_| vec![0, 0, 0, 2, 101, 0])),
        ("only a type", Box::new(|_| vec![0, 0, 0, 1, 101])),
        ("VERSION again", Box::new(|_| version(&[]))),
        (
            "a request",
            Box::new(|id| string(&[&[7][..], &id.to_be_bytes(), &[0; 4]].concat())),
        ),
        ("text", Box::new(|_| b"Segmentation fault\n".to_vec())),
    ];
    for (name, says) in scripts {
        let (session, mut peer) = session(LONG);
        let pending = session.send_batch(vec![lstat("a"), lstat("b")]);
        let asked = peer.next();
        peer.say(&says(asked.id + 1));
        let why = broken(&pending.wait()[0]);
        assert!(
            matches!(why.reason, CloseReason::ProtocolViolation(_)) && why.has_greeted,
            "{name}: {why:?}"
        );
        drop(session);
        peer.has_been_left();
    }
}

#[test]
fn a_request_that_was_not_written_yet_has_no_reply() {
    let (session, mut peer) = session(LONG);
    let pending = session.send_batch(vec![put(200_000)]);
    let id = session.0.shared.state.lock().unwrap().last_id;
    peer.reply(101, id, &[0; 4]);
    assert!(matches!(
        broken(&pending.wait()[0]).reason,
        CloseReason::ProtocolViolation(_)
    ));
}

#[test]
fn a_session_that_does_not_begin_says_why() {
    let start = |says: &[u8], heard: &[u8], stays: bool| {
        let (link, mut peer) = pipes();
        peer.errors.write_all(heard).unwrap();
        peer.say(says);
        let kept = stays.then_some(peer);
        let deadline = if stays { SHORT } else { LONG };
        let broken = Session::start(link, soon(deadline)).unwrap_err();
        drop(kept);
        assert!(!broken.has_greeted);
        broken
    };
    let line = b"ssh: connect to host example.org port 22: Connection refused\r\n";
    let ended = start(b"", line, false);
    assert_eq!(
        (&ended.reason, &ended.stderr.before_version[..]),
        (&CloseReason::EndOfFile, &line[..])
    );
    assert!(ended.stderr.after_version.is_empty());
    assert_eq!(ended.to_string(), "the connection ended before SFTP began");
    let mute = start(b"", b"", true);
    assert!(matches!(mute.reason, CloseReason::ReplyTimeout(time) if time <= SHORT));
    assert!(matches!(
        start(&version(&[])[..7], b"", true).reason,
        CloseReason::ReplyTimeout(_)
    ));
    let shell = start(b"Welcome to example.org!\n", b"", false);
    assert!(shell.to_string().contains("login shell"), "{shell}");
    let newer = string(&[2, 0, 0, 0, 4]);
    assert!(matches!(
        start(&newer, b"", false).reason,
        CloseReason::ProtocolViolation(_)
    ));
    let status = string(&[101, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert!(matches!(
        start(&status, b"", false).reason,
        CloseReason::ProtocolViolation(_)
    ));
}

#[test]
fn what_is_said_before_version_and_after_it_is_kept_apart() {
    let (link, mut peer) = pipes();
    let warning = b"Warning: Permanently added 'a' to the list of known hosts.\n";
    peer.errors.write_all(warning).unwrap();
    let starting = thread::spawn(move || Session::start(link, soon(LONG)).unwrap());
    peer.read(9);
    // The words are read as soon as they are there.
    until_read(&peer.errors);
    peer.say(&version(&[]));
    let session = starting.join().unwrap();
    let pending = session.send_batch(vec![lstat("a")]);
    peer.next();
    let lost = b"Connection to a closed by remote host.\r\n";
    peer.errors.write_all(lost).unwrap();
    drop(peer);
    let ended = broken(&pending.wait()[0]);
    assert_eq!(
        (ended.reason.clone(), ended.has_greeted),
        (CloseReason::EndOfFile, true)
    );
    assert_eq!(ended.stderr.before_version, warning);
    assert_eq!(ended.stderr.after_version, lost);
}

#[test]
fn closing_ends_it_for_everybody() {
    let (session, mut peer) = session(LONG);
    let pending = session.send_batch(vec![lstat("a")]);
    let clone = session.clone();
    peer.next();
    clone.close();
    assert_eq!(broken(&pending.wait()[0]).reason, CloseReason::Closed);
    assert_eq!(
        broken(&session.send_isolated(pair(1), Vec::new()).wait()[0]).reason,
        CloseReason::Closed
    );
    peer.has_been_left();
}

#[test]
fn the_last_who_goes_closes_it() {
    let (session, mut peer) = session(LONG);
    let clone = session.clone();
    drop(session);
    let pending = clone.send_batch(vec![lstat("a")]);
    let asked = peer.next();
    peer.status(&asked, 0);
    pending.wait();
    let late = clone.send_batch(vec![lstat("b")]);
    drop(clone);
    assert_eq!(broken(&late.wait()[0]).reason, CloseReason::Closed);
    peer.has_been_left();
}

#[test]
fn replies_count_that_came_before_the_other_side_left() {
    let (session, mut peer) = session(LONG);
    let first = session.send_batch(vec![lstat("a")]);
    let asked = peer.next();
    peer.status(&asked, 3);
    let Peer {
        requests, replies, ..
    } = peer;
    drop(requests);
    let second = session.send_batch(vec![lstat("b")]);
    // Whoever is just starting a process has a copy of it for an instant.
    while session.end_error().is_none() {
        drop(session.send_batch(vec![lstat("c")]));
    }
    assert_eq!(broken(&second.wait()[0]).reason, CloseReason::EndOfFile);
    assert_eq!(code(&first.wait()[0]), 3);
    drop(replies);
    let (session, mut peer) = super::tests::session(LONG);
    let both = session.send_batch(vec![lstat("a"), lstat("b")]);
    let asked = peer.next();
    peer.status(&asked, status::EOF);
    drop(peer);
    let answers = both.wait();
    assert_eq!(code(&answers[0]), status::EOF);
    assert_eq!(broken(&answers[1]).reason, CloseReason::EndOfFile);
}

#[test]
fn a_deadline_that_moves_nearer_wakes_who_waits_for_version() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = SessionPipes {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        stderr: None,
    };
    let deadline = Arc::new(Moving {
        begun: SystemClock.instant(),
        moved: AtomicBool::new(false),
        asked: AtomicUsize::new(0),
        nearer: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
    });
    let until = Arc::clone(&deadline);
    let starting = thread::spawn(move || Session::start(link, until).unwrap_err());
    // Once for its length, twice around the write of INIT; after that nothing
    // happens, so it sleeps on the moment that it was told then.
    while deadline.asked.load(Ordering::SeqCst) < 4 {
        thread::yield_now();
    }
    deadline.moved.store(true, Ordering::SeqCst);
    rustix::io::write(&deadline.nearer, &1_u64.to_ne_bytes()).unwrap();
    let broken = starting.join().unwrap();
    assert!(
        matches!(broken.reason, CloseReason::ReplyTimeout(_)),
        "{broken}"
    );
    drop(theirs);
}

/// Answers some requests, each in time, and tells how many before the session ends.
fn answered_late(skip: usize) -> (usize, CloseReason) {
    let patience = Duration::from_secs(2);
    let (session, mut peer) = session(patience);
    let pending = session.send_batch(vec![lstat("a"); MAX_REQUESTS_IN_FLIGHT]);
    let asked: Vec<Asked> = (0..MAX_REQUESTS_IN_FLIGHT).map(|_| peer.next()).collect();
    let mut given = 0;
    for asked in &asked[skip..] {
        if peer.has_left_within(patience / 2) {
            break;
        }
        peer.status(asked, 2);
        given += 1;
    }
    (
        given,
        broken(&pending.wait()[MAX_REQUESTS_IN_FLIGHT - 1]).reason,
    )
}

#[test]
fn replies_that_are_all_late_do_not_hold_anybody_for_ever() {
    // All of them would take a quarter of an hour.
    let (given, why) = answered_late(0);
    assert!(given < 16, "{given} replies");
    assert_eq!(why, CloseReason::ReplyTimeout(Duration::from_secs(8)));
}

#[test]
fn a_reply_that_is_left_out_ends_the_session_whatever_else_is_answered() {
    let (given, why) = answered_late(1);
    assert!(given < 16, "{given} replies");
    assert_eq!(why, CloseReason::ReplyTimeout(Duration::from_secs(8)));
}
