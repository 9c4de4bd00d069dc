//! Tests of isolated batches: their requests leave together and are never separated.

use super::*;

#[test]
fn pairs_are_sent_whole_in_separate_bursts() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let before = session.send_batch(vec![read_request(10), lstat_request("before")]);
    let pairs: Vec<PendingReplies> = (0..150)
        .map(|n| session.send_isolated(rename_pair(n), Vec::new()))
        .collect();
    let after = session.send_batch(vec![lstat_request("after")]);
    let asked = [peer.next_request(), peer.next_request()];
    peer.send_reply(103, asked[0].id, &length_prefixed(b"abc"));
    // A request is still in flight.
    peer.assert_nothing_sent();
    peer.send_status(&asked[1], 2);
    assert_eq!(before.wait().len(), 2);
    let (mut number, mut bursts, mut last) = (0, 0, None);
    while number < pairs.len() {
        let mut burst = peer.requests_of_one_read();
        // In a write of its own, right after the last of them.
        if number + burst.len() / 2 == pairs.len() {
            last = burst.pop_if(|asked| asked.matches_request(&lstat_request("after")));
        }
        let bytes: usize = burst.iter().map(|asked| 9 + asked.body.len()).sum();
        assert!(
            bytes <= WRITE_BURST_BYTES && burst.len().is_multiple_of(2),
            "{bytes}"
        );
        for both in burst.chunks(2) {
            let sent = rename_pair(number);
            assert!(both[0].matches_request(&sent[0]) && both[1].matches_request(&sent[1]));
            number += 1;
        }
        // The next burst waits for the last reply to this one.
        for asked in &burst {
            if number < pairs.len() {
                peer.assert_nothing_sent();
            }
            peer.send_status(asked, 0);
        }
        bursts += 1;
    }
    assert!((2..=4).contains(&bursts), "{bursts}");
    for pending in pairs {
        assert!(pending.wait().iter().all(|answer| status_code(answer) == 0));
    }
    let asked = last.unwrap_or_else(|| peer.next_request());
    assert!(asked.matches_request(&lstat_request("after")));
    peer.send_status(&asked, 2);
    after.wait();
}

#[test]
fn follow_up_requests_are_sent_after_all_pairs() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let block = session.send_batch(vec![lstat_request("block")]);
    let look = |n: usize| {
        vec![
            lstat_request(&format!("memory-{n}")),
            lstat_request(&format!("aside-{n}")),
        ]
    };
    let pairs: Vec<PendingReplies> = (0..3)
        .map(|n| session.send_isolated(rename_pair(n), look(n)))
        .collect();
    let asked = peer.next_request();
    peer.send_status(&asked, 0);
    block.wait();
    let burst = peer.requests_of_one_read();
    let expected: Vec<Request> = (0..3)
        .flat_map(rename_pair)
        .chain((0..3).flat_map(look))
        .collect();
    assert_eq!(burst.len(), expected.len());
    for (number, (asked, expected)) in burst.iter().zip(&expected).enumerate() {
        assert!(asked.matches_request(expected));
        peer.send_status(asked, number as u32 + 1);
    }
    for (n, pending) in pairs.into_iter().enumerate() {
        let codes: Vec<u32> = pending.wait().iter().map(status_code).collect();
        let [first, behind] = [2 * n as u32 + 1, 6 + 2 * n as u32 + 1];
        assert_eq!(codes, [first, first + 1, behind, behind + 1]);
    }
}

#[test]
fn overlong_pair_is_sent_alone_and_whole() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let long = |n: usize| {
        let path = |c: char| format!("/{c}{n}{}", "x".repeat(5_000)).into_bytes();
        let (from, to, new) = (path('a'), path('b'), path('c'));
        let first = Request::PosixRename {
            from: from.clone(),
            to,
        };
        let second = Request::HardLink {
            from: new,
            to: from,
        };
        vec![first, second]
    };
    let block = session.send_batch(vec![lstat_request("block")]);
    let pairs: Vec<PendingReplies> = (0..3)
        .map(|n| session.send_isolated(long(n), Vec::new()))
        .collect();
    let asked = peer.next_request();
    peer.send_status(&asked, 0);
    block.wait();
    for (n, pending) in pairs.into_iter().enumerate() {
        let burst = peer.requests_of_one_read();
        assert_eq!(burst.len(), 2);
        assert!(burst[0].matches_request(&long(n)[0]) && burst[1].matches_request(&long(n)[1]));
        for asked in &burst {
            peer.send_status(asked, 0);
        }
        pending.wait();
    }
    let many = vec![lstat_request("x"); MAX_REQUESTS_IN_FLIGHT + 1];
    let refused = session.send_isolated(many, Vec::new()).wait();
    assert!(
        refused
            .iter()
            .all(|it| matches!(it, Err(RequestError::NotSent(_))))
    );
}
