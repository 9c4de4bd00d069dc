//! What a session keeps and asks for is bounded, whatever the other side does.

use super::*;

#[test]
fn no_more_than_1024_requests_are_without_a_reply() {
    let (session, mut peer) = session(LONG);
    let count = 1500;
    let pending = session.send_batch((0..count).map(|n| lstat(&format!("{n}"))).collect());
    let asked: Vec<Asked> = (0..MAX_REQUESTS_IN_FLIGHT).map(|_| peer.next()).collect();
    peer.nothing_more();
    // As a peer may, though servers do not.
    for (number, asked) in asked.iter().enumerate().rev() {
        peer.status(asked, number as u32 + 1);
    }
    for number in MAX_REQUESTS_IN_FLIGHT..count {
        let asked = peer.next();
        peer.status(&asked, number as u32 + 1);
    }
    let codes: Vec<u32> = pending.wait().iter().map(code).collect();
    assert_eq!(codes, (1..=count as u32).collect::<Vec<_>>());
}

#[test]
fn no_more_than_two_mebibytes_are_expected() {
    let (session, mut peer) = session(LONG);
    let reads = session.send_batch(vec![get(65_536); 60]);
    let behind = session.send_batch(vec![lstat("behind")]);
    let mut asked: VecDeque<Asked> = (0..32).map(|_| peer.next()).collect();
    peer.nothing_more();
    for number in 0..60 {
        let one = asked.pop_front().unwrap();
        peer.reply(103, one.id, &string(&vec![number; 65_536]));
        if number < 28 {
            // In their order, and nothing overtakes them.
            asked.push_back(peer.next());
            assert!(asked.back().unwrap().is(&get(65_536)));
        }
    }
    let answers = reads.wait();
    for (number, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Ok(Reply::Data(bytes)) if bytes.len() == 65_536
                && bytes[0] as usize == number)
        );
    }
    let last = peer.next();
    assert!(last.is(&lstat("behind")));
    peer.status(&last, 0);
    behind.wait();
}

#[test]
fn who_asks_too_much_waits_until_there_is_room() {
    let (session, mut peer) = session(LONG);
    let first = session.send_batch(vec![put(200_000); 5]);
    let other = session.clone();
    let asker = thread::spawn(move || other.send_batch(vec![put(200_000); 5]).wait().len());
    until(&session, |state| state.waiting_turns.len() == 1);
    assert!(lock(&session.0.shared.state).queued_bytes <= MAX_QUEUED_BYTES);
    // There would be room for this, but others came before.
    let other = session.clone();
    let small = thread::spawn(move || other.send_batch(vec![lstat("small")]).wait().len());
    until(&session, |state| state.waiting_turns.len() == 2);
    for _ in 0..10 {
        let asked = peer.next();
        assert!(asked.is(&put(200_000)));
        assert!(lock(&session.0.shared.state).queued_bytes <= MAX_QUEUED_BYTES);
        peer.status(&asked, 0);
    }
    let asked = peer.next();
    assert!(asked.is(&lstat("small")));
    peer.status(&asked, 2);
    assert_eq!(first.wait().len(), 5);
    assert_eq!((asker.join().unwrap(), small.join().unwrap()), (5, 1));
}

#[test]
fn a_batch_beyond_all_room_goes_piece_by_piece() {
    let (session, mut peer) = session(LONG);
    let other = session.clone();
    let asker = thread::spawn(move || other.send_batch(vec![put(250_000); 12]).wait());
    for number in 0..12 {
        let asked = peer.next();
        assert!(asked.is(&put(250_000)));
        peer.status(&asked, number);
    }
    let codes: Vec<u32> = asker.join().unwrap().iter().map(code).collect();
    assert_eq!(codes, (0..12).collect::<Vec<_>>());
}

#[test]
fn however_much_is_said_little_of_it_is_kept() {
    let (link, peer) = pipes();
    let talker = thread::spawn(move || {
        let mut peer = peer;
        for number in 0..40_000 {
            writeln!(peer.errors, "line {number}").unwrap();
        }
    });
    let ended = Session::start(link, soon(LONG)).unwrap_err();
    talker.join().unwrap();
    assert_eq!(ended.reason, CloseReason::EndOfFile);
    let text = String::from_utf8(ended.stderr.before_version.clone()).unwrap();
    assert!(text.len() < 2 * 4096 + 40);
    assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 39999\n"));
    for line in text.lines().filter(|line| !line.starts_with('(')) {
        let number = line.strip_prefix("line ").unwrap();
        assert!(number.parse::<u32>().is_ok(), "{line}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('(')).count(), 1);
}

#[test]
fn handles_that_nobody_waits_for_are_given_back() {
    let (session, mut peer) = session(LONG);
    let close = |handle: &[u8]| Request::Close {
        handle: handle.to_vec(),
    };
    // Dropped before the reply came.
    drop(session.send_batch(vec![lstat("a"), open(), open()]));
    let asked: Vec<Asked> = (0..3).map(|_| peer.next()).collect();
    peer.status(&asked[0], 2);
    peer.handle(&asked[1], b"late");
    peer.status(&asked[2], 4);
    let given = peer.next();
    assert!(given.is(&close(b"late")));
    peer.status(&given, 0);
    // Dropped after it.
    let unseen = session.send_batch(vec![open()]);
    let seen = session.send_batch(vec![open()]);
    for handle in [b"unseen", b"seen  "] {
        let asked = peer.next();
        peer.handle(&asked, handle);
    }
    assert!(matches!(&seen.wait()[0], Ok(Reply::Handle(_))));
    drop(unseen);
    let given = peer.next();
    assert!(given.is(&close(b"unseen")));
    peer.status(&given, 0);
    // And nothing else is.
    let last = session.send_batch(vec![lstat("last")]);
    let asked = peer.next();
    assert!(asked.is(&lstat("last")));
    peer.status(&asked, 0);
    last.wait();
}
