//! Hosts that say what is not so.

use super::frames::status;
use super::scene::{Act, Scene, at, each, ear, good, pass, requests, some, there_is_a_server};
use crate::servers::{Between, Fate, Said, packet};

const CODES: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 31];

#[test]
fn a_false_status_at_any_request_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [Act::Reset, Act::Undo, Act::Create, Act::TakeBack] {
        for (point, name) in requests(act).into_iter().enumerate().skip(1) {
            for code in CODES {
                points.extend([false, true].map(|done| (act, point, name, code, done)));
            }
        }
    }
    let count = each(some(points, 17), 8, |(act, point, name, code, done)| {
        let scene = Scene::new(act);
        let between = match done {
            true => Between::new(good(), pass()).hearing(ear(move |asked, frame| {
                if asked.number == point {
                    *frame = status(&asked.frame, code);
                }
                Said::Pass
            })),
            false => {
                let lie = move |frame: &mut Vec<u8>| Fate::Answer(packet(&status(frame, code)));
                Between::new(good(), at(point, lie))
            }
        };
        let fault = format!("{act:?}, status {code} at request {point}, {name}, done: {done}");
        scene.survives(between, &fault);
    });
    println!("a false status at {count} points");
}
