//! What an operator is shown of a host that fails or lies.

use memory_shepherd::engine::State;

use super::frames::{called, status, string};
use super::scene::{AGENT, Act, Scene, each, ear, good, judge, pass, there_is_a_server};
use crate::remote::engine;
use crate::servers::{Between, Ear, Fate, Judge, Said, packet};

/// What is shown of the memory of a scene, by this way.
fn shown(scene: &Scene, between: Between) -> (State, String) {
    let engine = engine(&scene.world, between);
    let seen = engine.observe(engine.agent(AGENT).unwrap());
    (seen.state, seen.reason)
}

/// The requests of a look, in order.
fn looks(act: Act) -> Vec<&'static str> {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(vec!["init"]));
    let hears = std::sync::Arc::clone(&heard);
    let all = judge(move |_, frame| {
        hears.lock().unwrap().push(called(frame));
        Fate::Pass
    });
    shown(&Scene::new(act), Between::new(good(), all));
    let heard = heard.lock().unwrap();
    heard.clone()
}

#[test]
fn an_error_is_never_shown_as_clean_or_missing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for (point, name) in looks(Act::Reset).into_iter().enumerate().skip(1) {
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 31] {
            points.push((point, name, Some(code)));
        }
        // No status, but the end of the connection.
        points.push((point, name, None));
    }
    let count = each(points, 8, |(point, name, code)| {
        let scene = Scene::new(Act::Reset);
        let judge: Judge = std::sync::Arc::new(move |number, frame| match code {
            Some(code) if number == point => Fate::Answer(packet(&status(frame, code))),
            None if number >= point => Fate::Cut,
            _ => Fate::Pass,
        });
        let (state, why) = shown(&scene, Between::new(good(), judge));
        let said = format!("{code:?} at {point}, {name}: {state} {why}");
        // Some answers are not needed, and one that fails is asked again.
        let right = match state {
            State::Scratch => code.is_some() || name == "close",
            State::Unreach | State::Error => !why.is_empty(),
            _ => false,
        };
        assert!(right, "{said}");
    });
    println!("looked at {count} ways");
}

#[test]
fn a_folder_that_cannot_be_searched_lacks_nothing() {
    if !there_is_a_server() {
        return;
    }
    // Each time, and of a memory that is there and of one that is not.
    for act in [Act::Reset, Act::Create] {
        for code in [1, 2, 3, 4, 31] {
            let scene = Scene::new(act);
            let judge = judge(move |_, frame| {
                let inside = called(frame) == "lstat" && string(frame, 5).ends_with(b"/.");
                let memory = called(frame) == "lstat" && string(frame, 5).ends_with(b".md");
                match inside || memory {
                    true => Fate::Answer(packet(&status(frame, code))),
                    false => Fate::Pass,
                }
            });
            let (state, why) = shown(&scene, Between::new(good(), judge));
            assert_eq!(state, State::Error, "{code}: {why}");
            assert!(why.contains("cannot"), "{why}");
        }
    }
}

#[test]
fn a_host_that_says_nothing_is_shown_as_not_reached() {
    if !there_is_a_server() {
        return;
    }
    let points = looks(Act::Reset).into_iter().enumerate().collect();
    each(points, 16, |(point, name)| {
        let scene = Scene::with(Act::Reset, "remote_timeout = 1");
        // The greeting is the answer to the request that no judge sees.
        let ear: Ear = std::sync::Arc::new(move |asked, _| match asked.number >= point {
            true => Said::Drop,
            false => Said::Pass,
        });
        let (state, why) = shown(&scene, Between::new(good(), pass()).hearing(ear));
        // Nobody waits for the answer to a handle that is given back.
        let fine = state == State::Unreach || name == "close";
        assert!(fine, "silent from {point} on: {state} {why}");
        if state == State::Unreach {
            assert!(why.contains("no answer for 1 s"), "{why}");
        }
    });
}

#[test]
fn words_of_a_host_are_not_shown_as_ours() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let lies = ear(|asked, frame| {
        if called(&asked.frame) == "lstat" {
            *frame = super::frames::answer(super::frames::STATUS, &asked.frame);
            frame.extend(4_u32.to_be_bytes());
            super::frames::put_string(frame, b"\x1b[2Jall is well");
            super::frames::put_string(frame, b"en");
        }
        Said::Pass
    });
    let (state, why) = shown(&scene, Between::new(good(), pass()).hearing(lies));
    assert_eq!(state, State::Error);
    assert!(
        !why.contains("all is well") && !why.contains('\x1b'),
        "{why}"
    );
}
