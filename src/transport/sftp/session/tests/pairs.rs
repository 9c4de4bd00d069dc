//! Requests that belong together: they leave together and are never cut.

use super::*;

#[test]
fn pairs_go_apart_and_are_never_cut() {
    let (session, mut peer) = session(LONG);
    let before = session.send_batch(vec![get(10), lstat("before")]);
    let pairs: Vec<PendingReplies> = (0..150)
        .map(|n| session.send_isolated(pair(n), Vec::new()))
        .collect();
    let after = session.send_batch(vec![lstat("after")]);
    let asked = [peer.next(), peer.next()];
    peer.reply(103, asked[0].id, &string(b"abc"));
    // Something is under way still.
    peer.nothing_more();
    peer.status(&asked[1], 2);
    assert_eq!(before.wait().len(), 2);
    let (mut number, mut bursts, mut last) = (0, 0, None);
    while number < pairs.len() {
        let mut burst = peer.one_read();
        // In a write of its own, right behind the last of them.
        if number + burst.len() / 2 == pairs.len() {
            last = burst.pop_if(|asked| asked.is(&lstat("after")));
        }
        let bytes: usize = burst.iter().map(|asked| 9 + asked.body.len()).sum();
        assert!(
            bytes <= WRITE_BURST_BYTES && burst.len().is_multiple_of(2),
            "{bytes}"
        );
        for both in burst.chunks(2) {
            let sent = pair(number);
            assert!(both[0].is(&sent[0]) && both[1].is(&sent[1]));
            number += 1;
        }
        // The next burst waits for the last reply to this one.
        for asked in &burst {
            if number < pairs.len() {
                peer.nothing_more();
            }
            peer.status(asked, 0);
        }
        bursts += 1;
    }
    assert!((2..=4).contains(&bursts), "{bursts}");
    for pending in pairs {
        assert!(pending.wait().iter().all(|answer| code(answer) == 0));
    }
    let asked = last.unwrap_or_else(|| peer.next());
    assert!(asked.is(&lstat("after")));
    peer.status(&asked, 2);
    after.wait();
}

#[test]
fn what_is_to_be_known_after_pairs_is_asked_behind_all_of_them() {
    let (session, mut peer) = session(LONG);
    let block = session.send_batch(vec![lstat("block")]);
    let look = |n: usize| vec![lstat(&format!("memory-{n}")), lstat(&format!("aside-{n}"))];
    let pairs: Vec<PendingReplies> = (0..3)
        .map(|n| session.send_isolated(pair(n), look(n)))
        .collect();
    let asked = peer.next();
    peer.status(&asked, 0);
    block.wait();
    let burst = peer.one_read();
    let expected: Vec<Request> = (0..3).flat_map(pair).chain((0..3).flat_map(look)).collect();
    assert_eq!(burst.len(), expected.len());
    for (number, (asked, expected)) in burst.iter().zip(&expected).enumerate() {
        assert!(asked.is(expected));
        peer.status(asked, number as u32 + 1);
    }
    for (n, pending) in pairs.into_iter().enumerate() {
        let codes: Vec<u32> = pending.wait().iter().map(code).collect();
        let [first, behind] = [2 * n as u32 + 1, 6 + 2 * n as u32 + 1];
        assert_eq!(codes, [first, first + 1, behind, behind + 1]);
    }
}

#[test]
fn a_pair_too_long_for_a_burst_goes_alone_and_whole() {
    let (session, mut peer) = session(LONG);
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
    let block = session.send_batch(vec![lstat("block")]);
    let pairs: Vec<PendingReplies> = (0..3)
        .map(|n| session.send_isolated(long(n), Vec::new()))
        .collect();
    let asked = peer.next();
    peer.status(&asked, 0);
    block.wait();
    for (n, pending) in pairs.into_iter().enumerate() {
        let burst = peer.one_read();
        assert_eq!(burst.len(), 2);
        assert!(burst[0].is(&long(n)[0]) && burst[1].is(&long(n)[1]));
        for asked in &burst {
            peer.status(asked, 0);
        }
        pending.wait();
    }
    let many = vec![lstat("x"); MAX_REQUESTS_IN_FLIGHT + 1];
    let refused = session.send_isolated(many, Vec::new()).wait();
    assert!(
        refused
            .iter()
            .all(|it| matches!(it, Err(RequestError::NotSent(_))))
    );
}
