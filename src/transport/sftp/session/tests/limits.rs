//! Tests of the bounds of a session, whatever the other side does.

use super::*;

#[test]
fn requests_in_flight_are_limited_to_1024() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let count = 1500;
    let pending = session.send_batch((0..count).map(|n| lstat_request(&format!("{n}"))).collect());
    let asked: Vec<ReceivedRequest> = (0..MAX_REQUESTS_IN_FLIGHT)
        .map(|_| peer.next_request())
        .collect();
    peer.assert_nothing_sent();
    // As a peer may do, though servers do not.
    for (number, asked) in asked.iter().enumerate().rev() {
        peer.send_status(asked, number as u32 + 1);
    }
    for number in MAX_REQUESTS_IN_FLIGHT..count {
        let asked = peer.next_request();
        peer.send_status(&asked, number as u32 + 1);
    }
    let codes: Vec<u32> = pending.wait().iter().map(status_code).collect();
    assert_eq!(codes, (1..=count as u32).collect::<Vec<_>>());
}

#[test]
fn expected_bytes_are_limited_to_two_mebibytes() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let reads = session.send_batch(vec![read_request(65_536); 60]);
    let behind = session.send_batch(vec![lstat_request("behind")]);
    let mut asked: VecDeque<ReceivedRequest> = (0..32).map(|_| peer.next_request()).collect();
    peer.assert_nothing_sent();
    for number in 0..60 {
        let one = asked.pop_front().unwrap();
        peer.send_reply(103, one.id, &length_prefixed(&vec![number; 65_536]));
        if number < 28 {
            // In order, and without overtaking.
            asked.push_back(peer.next_request());
            assert!(asked.back().unwrap().matches_request(&read_request(65_536)));
        }
    }
    let answers = reads.wait();
    for (number, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Ok(Reply::Data(bytes)) if bytes.len() == 65_536
                && bytes[0] as usize == number)
        );
    }
    let last = peer.next_request();
    assert!(last.matches_request(&lstat_request("behind")));
    peer.send_status(&last, 0);
    behind.wait();
}

#[test]
fn oversized_queue_blocks_callers_until_there_is_room() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let first = session.send_batch(vec![write_request(200_000); 5]);
    let other = session.clone();
    let asker = thread::spawn(move || {
        other
            .send_batch(vec![write_request(200_000); 5])
            .wait()
            .len()
    });
    wait_until(&session, |state| state.waiting_turns.len() == 1);
    assert!(lock(&session.0.shared.state).queued_bytes <= MAX_QUEUED_BYTES);
    // There would be room for this, but other callers came first.
    let other = session.clone();
    let small = thread::spawn(move || other.send_batch(vec![lstat_request("small")]).wait().len());
    wait_until(&session, |state| state.waiting_turns.len() == 2);
    for _ in 0..10 {
        let asked = peer.next_request();
        assert!(asked.matches_request(&write_request(200_000)));
        assert!(lock(&session.0.shared.state).queued_bytes <= MAX_QUEUED_BYTES);
        peer.send_status(&asked, 0);
    }
    let asked = peer.next_request();
    assert!(asked.matches_request(&lstat_request("small")));
    peer.send_status(&asked, 2);
    assert_eq!(first.wait().len(), 5);
    assert_eq!((asker.join().unwrap(), small.join().unwrap()), (5, 1));
}

#[test]
fn batch_larger_than_queue_is_sent_in_pieces() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let other = session.clone();
    let asker = thread::spawn(move || other.send_batch(vec![write_request(250_000); 12]).wait());
    for number in 0..12 {
        let asked = peer.next_request();
        assert!(asked.matches_request(&write_request(250_000)));
        peer.send_status(&asked, number);
    }
    let codes: Vec<u32> = asker.join().unwrap().iter().map(status_code).collect();
    assert_eq!(codes, (0..12).collect::<Vec<_>>());
}

#[test]
fn stderr_excerpt_is_bounded() {
    let (link, peer) = piped_link();
    let talker = thread::spawn(move || {
        let mut peer = peer;
        for number in 0..40_000 {
            writeln!(peer.errors, "line {number}").unwrap();
        }
    });
    let ended = Session::start(link, deadline_in(LONG_TIMEOUT)).unwrap_err();
    talker.join().unwrap();
    assert_eq!(ended.reason, CloseReason::EndOfFile);
    let text = String::from_utf8(ended.stderr_before_version.to_vec()).unwrap();
    assert!(text.len() < 2 * 4096 + 40);
    assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 39999\n"));
    for line in text.lines().filter(|line| !line.starts_with('(')) {
        let number = line.strip_prefix("line ").unwrap();
        assert!(number.parse::<u32>().is_ok(), "{line}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('(')).count(), 1);
}

#[test]
fn handles_without_a_waiter_are_closed() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let close = |handle: &[u8]| Request::Close(handle.to_vec());
    // Dropped before the reply arrived.
    drop(session.send_batch(vec![lstat_request("a"), open_request(), open_request()]));
    let asked: Vec<ReceivedRequest> = (0..3).map(|_| peer.next_request()).collect();
    peer.send_status(&asked[0], 2);
    peer.send_handle(&asked[1], b"late");
    peer.send_status(&asked[2], 4);
    let given = peer.next_request();
    assert!(given.matches_request(&close(b"late")));
    peer.send_status(&given, 0);
    // Dropped after it.
    let unseen = session.send_batch(vec![open_request()]);
    let seen = session.send_batch(vec![open_request()]);
    for handle in [b"unseen", b"seen  "] {
        let asked = peer.next_request();
        peer.send_handle(&asked, handle);
    }
    assert!(matches!(&seen.wait()[0], Ok(Reply::Handle(_))));
    drop(unseen);
    let given = peer.next_request();
    assert!(given.matches_request(&close(b"unseen")));
    peer.send_status(&given, 0);
    // No other handle is closed.
    let last = session.send_batch(vec![lstat_request("last")]);
    let asked = peer.next_request();
    assert!(asked.matches_request(&lstat_request("last")));
    peer.send_status(&asked, 0);
    last.wait();
}
