//! Connections that are lost, and hosts that say nothing any more.

use super::frames::INIT;
use super::scene::{
    ACTS, AGENT, Act, Count, Scene, each, good, judge, requests, run, some, there_is_a_server,
};
use memory_shepherd::engine::Outcome;

use crate::remote::engine;
use crate::servers::{Between, Fate, Judge};
use crate::world::BASELINE;

/// Lost at this request; later sessions are not.
fn cut(point: usize, behind: bool, reached: &Count) -> Judge {
    let reached = reached.clone();
    judge(move |number, _| {
        if number != point {
            return Fate::Pass;
        }
        reached.add();
        match behind {
            true => Fate::CutBehind,
            false => Fate::Cut,
        }
    })
}

/// Lost at this request, and no other session begins.
pub fn cut_for_good(point: usize, behind: bool) -> Judge {
    std::sync::Arc::new(move |number, _| match number.cmp(&point) {
        std::cmp::Ordering::Less => Fate::Pass,
        std::cmp::Ordering::Equal if behind => Fate::CutBehind,
        _ => Fate::Cut,
    })
}

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
    let count = each(some(points, 2), 8, |(act, point, behind)| {
        let scene = Scene::new(act);
        let fault = format!("{act:?} cut at request {point}, behind it: {behind}");
        let cut = cut(point, behind, &reached);
        scene.survives(Between::new(good(), cut), &fault);
    });
    println!("cut at {count} points, losses 0");
    // Whether the last handles are given back before the end is not told.
    assert!(reached.get() > count * 9 / 10);
}

#[test]
fn a_run_that_left_something_is_told_of_until_it_is_settled() {
    if !there_is_a_server() {
        return;
    }
    let told = Count::default();
    let points: Vec<usize> = (1..requests(Act::Reset).len()).step_by(3).collect();
    let count = each(points, 8, |point| {
        let scene = Scene::new(Act::Reset);
        let report = scene.run(Between::new(good(), cut_for_good(point, true)));
        let next = engine(&scene.world, good());
        let look = || {
            let seen = next.observe(next.agent(AGENT).unwrap());
            seen.reason.contains("unsettled")
        };
        let left = !scene.world.pending().is_empty();
        assert_eq!(look(), left, "cut at {point}: {report:?}");
        if left {
            told.add();
        }
        scene.settles(&format!("cut at {point}"));
        assert!(!look(), "cut at {point}");
    });
    assert!(
        (1..count).contains(&told.get()),
        "{} of {count}",
        told.get()
    );
}

#[test]
fn a_recovery_that_is_cut_as_well_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    // More than a recovery has: what is behind its end is the run that it is for.
    const RECOVERY: usize = 90;
    let mut points = Vec::new();
    for act in ACTS {
        for first in 1..requests(act).len() {
            for second in 1..RECOVERY {
                points.extend([false, true].map(|behind| (act, first, second, behind)));
            }
        }
    }
    let step = if super::scene::full() { 17 } else { 193 };
    let points = points.into_iter().step_by(step).collect();
    let reached = Count::default();
    let count = each(points, 8, |(act, first, second, behind)| {
        let scene = Scene::new(act);
        scene.run(Between::new(good(), cut_for_good(first, !behind)));
        let fault = format!(
            "{act:?} cut at request {first}, behind it: {}, then at {second}, behind it: {behind}",
            !behind
        );
        scene.holds(&fault);
        let next = engine(
            &scene.world,
            Between::new(good(), cut(second, behind, &reached)),
        );
        let plan = next
            .plan_unobserved(&[super::scene::AGENT.to_string()], false)
            .unwrap();
        let report = run(&next, &plan);
        drop(next);
        let said = format!("{fault}: {report:?}");
        scene.holds(&said);
        scene.settles(&said);
    });
    println!(
        "cut twice at {count} points, {} reached, losses 0",
        reached.get()
    );
    assert!(reached.get() > count / 3);
}

#[test]
fn a_host_that_says_nothing_any_more_is_waited_for_as_long_as_configured() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [Act::Reset, Act::Undo] {
        points.extend((1..requests(act).len()).map(|point| (act, point)));
    }
    // They wait, and do nothing else.
    let count = each(some(points, 3), 16, |(act, point)| {
        let scene = Scene::with(act, "remote_timeout = 1");
        let silent: Judge =
            std::sync::Arc::new(
                move |number, frame| match number >= point && frame[0] != INIT {
                    true => Fate::Swallow,
                    false => Fate::Pass,
                },
            );
        let report = scene.run(Between::new(good(), silent));
        let said = format!("{act:?}, silent from request {point} on: {report:?}");
        scene.holds(&said);
        let scene = scene.patient();
        scene.settles(&said);
    });
    println!("silent from {count} points on, losses 0");
}

#[test]
fn what_a_cut_run_did_not_do_is_not_recorded_as_done() {
    if !there_is_a_server() {
        return;
    }
    let asked = requests(Act::Create);
    let point = asked.iter().position(|it| *it == "write").unwrap();
    let scene = Scene::new(Act::Create);
    let report = scene.run(Between::new(good(), cut_for_good(point, false)));
    assert_eq!(report.results[0].outcome, Outcome::Failed, "{report:?}");
    assert_eq!(scene.memory(), None);
    // What the next contact finds: half a new file and no memory.
    scene.world.set_baseline(super::scene::AGENT, BASELINE);
    let next = engine(&scene.world, good());
    let plan = next
        .plan_unobserved(&[super::scene::AGENT.to_string()], false)
        .unwrap();
    run(&next, &plan);
    let of_cut = scene.world.records().into_iter();
    let of_cut: Vec<_> = of_cut.filter(|it| it.event.run == report.run).collect();
    assert!(
        of_cut.iter().all(|it| it.event.outcome != Outcome::Ok),
        "no memory was made, and the ledger says so: {of_cut:?}"
    );
}
