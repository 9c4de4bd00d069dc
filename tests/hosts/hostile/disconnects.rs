//! Lost connections, and hosts that stop answering.

use super::frames::INIT;
use super::scenario::{
    AGENT, HOST_OPERATIONS, HostOperation, HostScenario, SharedCount, has_sftp_server,
    request_filter, request_names, run, sample_points, sftp_server_program, try_each,
};
use memory_shepherd::engine::Outcome;

use crate::full_harness::is_full_harness;
use crate::remote::engine_with_connector;
use crate::servers::{FilteredServer, RequestFate, RequestFilter};
use crate::world::BASELINE;

/// Disconnects at this request only; later sessions work.
fn disconnect_at(point: usize, behind: bool, reached: &SharedCount) -> RequestFilter {
    let reached = reached.clone();
    request_filter(move |number, _| {
        if number != point {
            return RequestFate::Pass;
        }
        reached.add();
        if behind {
            RequestFate::DisconnectAfter
        } else {
            RequestFate::Disconnect
        }
    })
}

/// Disconnects at this request, and refuses every later session.
pub fn disconnect_for_good(point: usize, behind: bool) -> RequestFilter {
    std::sync::Arc::new(move |number, _| match number.cmp(&point) {
        std::cmp::Ordering::Less => RequestFate::Pass,
        std::cmp::Ordering::Equal if behind => RequestFate::DisconnectAfter,
        _ => RequestFate::Disconnect,
    })
}

#[test]
fn connection_cut_at_any_request_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for act in HOST_OPERATIONS {
        for point in 1..request_names(act).len() {
            points.extend([false, true].map(|behind| (act, point, behind)));
        }
    }
    let reached = SharedCount::default();
    let count = try_each(sample_points(points, 2), 8, |(act, point, behind)| {
        let scene = HostScenario::new(act);
        let fault = format!("{act:?} cut at request {point}, delivered: {behind}");
        let cut = disconnect_at(point, behind, &reached);
        scene.assert_survives(FilteredServer::new(sftp_server_program(), cut), &fault);
    });
    println!("cut at {count} points, losses 0");
    // The run may end without closing its last handles.
    assert!(reached.get() > count * 9 / 10);
}

#[test]
fn unsettled_run_is_reported_until_settled() {
    if !has_sftp_server() {
        return;
    }
    let told = SharedCount::default();
    let points: Vec<usize> = (1..request_names(HostOperation::Reset).len())
        .step_by(3)
        .collect();
    let count = try_each(points, 8, |point| {
        let scene = HostScenario::new(HostOperation::Reset);
        let report = scene.run(FilteredServer::new(
            sftp_server_program(),
            disconnect_for_good(point, true),
        ));
        let next = engine_with_connector(&scene.world, sftp_server_program());
        let look = || {
            let seen = next.observer().observe(next.agent(AGENT).unwrap());
            seen.reason.contains("unsettled")
        };
        let left = !scene.world.pending_journals().is_empty();
        assert_eq!(look(), left, "cut at {point}: {report:?}");
        if left {
            told.add();
        }
        scene.assert_next_run_settles(&format!("cut at {point}"));
        assert!(!look(), "cut at {point}");
    });
    assert!(
        (1..count).contains(&told.get()),
        "{} of {count}",
        told.get()
    );
}

#[test]
fn recovery_cut_as_well_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    // More requests than a recovery sends: the points after its end belong to the run that it
    // precedes.
    const RECOVERY: usize = 90;
    let mut points = Vec::new();
    for act in HOST_OPERATIONS {
        for first in 1..request_names(act).len() {
            for second in 1..RECOVERY {
                points.extend([false, true].map(|behind| (act, first, second, behind)));
            }
        }
    }
    let step = if is_full_harness() { 17 } else { 193 };
    let points = points.into_iter().step_by(step).collect();
    let reached = SharedCount::default();
    let count = try_each(points, 8, |(act, first, second, behind)| {
        let scene = HostScenario::new(act);
        scene.run(FilteredServer::new(
            sftp_server_program(),
            disconnect_for_good(first, !behind),
        ));
        let fault = format!(
            "{act:?} cut at request {first}, delivered: {}, then at {second}, delivered: {behind}",
            !behind
        );
        scene.assert_invariants(&fault);
        let next = engine_with_connector(
            &scene.world,
            FilteredServer::new(
                sftp_server_program(),
                disconnect_at(second, behind, &reached),
            ),
        );
        let plan = next
            .planner()
            .plan_unobserved(&[super::scenario::AGENT.to_string()], false)
            .unwrap();
        let report = run(&next, &plan);
        drop(next);
        let said = format!("{fault}: {report:?}");
        scene.assert_invariants(&said);
        scene.assert_next_run_settles(&said);
    });
    println!(
        "cut twice at {count} points, {} reached, losses 0",
        reached.get()
    );
    assert!(reached.get() > count / 3);
}

#[test]
fn silent_host_times_out_as_configured() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [HostOperation::Reset, HostOperation::Undo] {
        points.extend((1..request_names(act).len()).map(|point| (act, point)));
    }
    // These runs only wait, so many can run at a time.
    let count = try_each(sample_points(points, 3), 16, |(act, point)| {
        let scene = HostScenario::with_general(act, "remote_timeout = 1");
        let silent: RequestFilter = std::sync::Arc::new(move |number, frame| {
            if number >= point && frame[0] != INIT {
                RequestFate::Discard
            } else {
                RequestFate::Pass
            }
        });
        let report = scene.run(FilteredServer::new(sftp_server_program(), silent));
        let said = format!("{act:?}, silent from request {point} on: {report:?}");
        scene.assert_invariants(&said);
        let scene = scene.with_long_timeout();
        scene.assert_next_run_settles(&said);
    });
    println!("silent from each of {count} points on, losses 0");
}

#[test]
fn undone_step_of_cut_run_is_not_recorded() {
    if !has_sftp_server() {
        return;
    }
    let asked = request_names(HostOperation::Create);
    let point = asked.iter().position(|it| *it == "write").unwrap();
    let scene = HostScenario::new(HostOperation::Create);
    let report = scene.run(FilteredServer::new(
        sftp_server_program(),
        disconnect_for_good(point, false),
    ));
    assert_eq!(report.results[0].outcome, Outcome::Failed, "{report:?}");
    assert_eq!(scene.memory(), None);
    // The state that the next contact finds: half a new file and no memory.
    scene.world.set_baseline(super::scenario::AGENT, BASELINE);
    let next = engine_with_connector(&scene.world, sftp_server_program());
    let plan = next
        .planner()
        .plan_unobserved(&[super::scenario::AGENT.to_string()], false)
        .unwrap();
    run(&next, &plan);
    let records = scene.world.read_records().into_iter();
    let of_cut: Vec<_> = records.filter(|it| it.event.run == report.run).collect();
    assert!(
        of_cut.iter().all(|it| it.event.outcome != Outcome::Ok),
        "no memory was created, and the ledger says so: {of_cut:?}"
    );
}
