//! States and reasons that an operator sees of a host that fails or sends false replies.

use memory_shepherd::engine::State;

use super::frames::{read_string, request_name, status_reply};
use super::scenario::{
    AGENT, HostOperation, HostScenario, has_sftp_server, pass_all, reply_filter, request_filter,
    sftp_server_program, try_each,
};
use crate::remote::engine_with_connector;
use crate::servers::{
    FilteredServer, ReplyFate, ReplyFilter, RequestFate, RequestFilter, with_length,
};

/// Observes the scene's memory through this server; returns its state and the reason.
fn observed_state(scene: &HostScenario, between: FilteredServer) -> (State, String) {
    let engine = engine_with_connector(&scene.world, between);
    let seen = engine.observer().observe(engine.agent(AGENT).unwrap());
    (seen.state, seen.reason)
}

/// Returns the requests of an observation, in order.
fn observation_requests(act: HostOperation) -> Vec<&'static str> {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(vec!["init"]));
    let hears = std::sync::Arc::clone(&heard);
    let all = request_filter(move |_, frame| {
        hears.lock().unwrap().push(request_name(frame));
        RequestFate::Pass
    });
    observed_state(
        &HostScenario::new(act),
        FilteredServer::new(sftp_server_program(), all),
    );
    let heard = heard.lock().unwrap();
    heard.clone()
}

#[test]
fn error_is_never_shown_as_clean_or_missing() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for (point, name) in observation_requests(HostOperation::Reset)
        .into_iter()
        .enumerate()
        .skip(1)
    {
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 31] {
            points.push((point, name, Some(code)));
        }
        // No status, but the end of the connection.
        points.push((point, name, None));
    }
    let count = try_each(points, 8, |(point, name, code)| {
        let scene = HostScenario::new(HostOperation::Reset);
        let judge: RequestFilter = std::sync::Arc::new(move |number, frame| match code {
            Some(code) if number == point => {
                RequestFate::Reply(with_length(&status_reply(frame, code)))
            }
            None if number >= point => RequestFate::Disconnect,
            _ => RequestFate::Pass,
        });
        let (state, why) =
            observed_state(&scene, FilteredServer::new(sftp_server_program(), judge));
        let said = format!("{code:?} at {point}, {name}: {state} {why}");
        // Some requests are optional, and the client repeats one that fails.
        let right = match state {
            State::Scratch => code.is_some() || name == "close",
            State::Unreach | State::Error => !why.is_empty(),
            _ => false,
        };
        assert!(right, "{said}");
    });
    println!("observed with {count} faults");
}

#[test]
fn unsearchable_directory_is_an_error() {
    if !has_sftp_server() {
        return;
    }
    // Every request, for a memory that exists and for one that does not.
    for act in [HostOperation::Reset, HostOperation::Create] {
        for code in [1, 2, 3, 4, 31] {
            let scene = HostScenario::new(act);
            let judge = request_filter(move |_, frame| {
                let inside =
                    request_name(frame) == "lstat" && read_string(frame, 5).ends_with(b"/.");
                let memory =
                    request_name(frame) == "lstat" && read_string(frame, 5).ends_with(b".md");
                if inside || memory {
                    RequestFate::Reply(with_length(&status_reply(frame, code)))
                } else {
                    RequestFate::Pass
                }
            });
            let (state, why) =
                observed_state(&scene, FilteredServer::new(sftp_server_program(), judge));
            assert_eq!(state, State::Error, "{code}: {why}");
            assert!(why.contains("cannot"), "{why}");
        }
    }
}

#[test]
fn silent_host_is_shown_as_unreachable() {
    if !has_sftp_server() {
        return;
    }
    let points = observation_requests(HostOperation::Reset)
        .into_iter()
        .enumerate()
        .collect();
    try_each(points, 16, |(point, name)| {
        let scene = HostScenario::with_general(HostOperation::Reset, "remote_timeout = 1");
        // VERSION answers the request that no filter sees.
        let ear: ReplyFilter = std::sync::Arc::new(move |asked, _| {
            if asked.number >= point {
                ReplyFate::Drop
            } else {
                ReplyFate::Pass
            }
        });
        let (state, why) = observed_state(
            &scene,
            FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(ear),
        );
        // The client does not wait for the reply to a close.
        let fine = state == State::Unreach || name == "close";
        assert!(fine, "silent from {point} on: {state} {why}");
        if state == State::Unreach {
            assert!(why.contains("no reply for 1 s"), "{why}");
        }
    });
}

#[test]
fn host_message_is_not_shown_as_ours() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let lies = reply_filter(|asked, frame| {
        if request_name(&asked.frame) == "lstat" {
            *frame = super::frames::reply_head(super::frames::STATUS, &asked.frame);
            frame.extend(4_u32.to_be_bytes());
            super::frames::put_string(frame, b"\x1b[2Jall is well");
            super::frames::put_string(frame, b"en");
        }
        ReplyFate::Pass
    });
    let (state, why) = observed_state(
        &scene,
        FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(lies),
    );
    assert_eq!(state, State::Error);
    assert!(
        !why.contains("all is well") && !why.contains('\x1b'),
        "{why}"
    );
}
