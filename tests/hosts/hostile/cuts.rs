//! Connections that are lost.

use super::scene::{ACTS, Count, Scene, each, good, judge, requests, there_is_a_server};
use crate::servers::{Between, Fate};

#[test]
fn a_connection_that_is_cut_at_any_request_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in ACTS {
        for point in 1..requests(act).len() {
            points.extend([false, true].map(|behind| (act, point, behind)));
        }
    }
    let reached = Count::default();
    let count = each(points, 8, |(act, point, behind)| {
        let scene = Scene::new(act);
        let reach = reached.clone();
        let judge = judge(move |number, _| {
            if number != point {
                return Fate::Pass;
            }
            reach.add();
            match behind {
                true => Fate::CutBehind,
                false => Fate::Cut,
            }
        });
        let fault = format!("{act:?} cut at request {point}, behind it: {behind}");
        scene.survives(Between::new(good(), judge), &fault);
    });
    println!("cut at {count} points");
    assert_eq!(reached.get(), count);
}
