//! Hosts that execute requests long after the client that sent them has disconnected and another
//! run has finished its work.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::frames::{INIT, request_name};
use super::scenario::{
    AGENT, HOST_OPERATIONS, HostOperation, HostScenario, SharedCount, filter_at, request_names,
    run, sample_points, sftp_server_program, try_each,
};
use crate::remote::engine_with_connector;
use crate::servers::{DelayedRequests, FilteredServer, RequestFate, RequestFilter};
use crate::world::BASELINE;

const NOTE_AFTER_RUN: &[u8] = b"a note from after the run\n";

/// Delays the requests from `point` on; no later session begins.
fn delay_from(point: usize) -> RequestFilter {
    Arc::new(move |number, frame| match number.cmp(&point) {
        std::cmp::Ordering::Less => RequestFate::Pass,
        std::cmp::Ordering::Equal if frame[0] != INIT => RequestFate::Delay,
        _ => RequestFate::Disconnect,
    })
}

/// Action of the agent before the host executes the delayed requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AgentAction {
    /// Appends to the memory file.
    Appends,
    /// Replaces the memory file.
    Replaces,
    /// Also puts a file at the path of the run's directory.
    PlantsFile,
    /// Also puts a directory there, into which a delayed rename can move files, with a file in it.
    PlantsDirectory,
    /// Puts a file into the run's directory before the run is finished, so that the directory
    /// cannot be removed.
    KeepsDirectory,
}

/// Returns the original name of the pending run's directory: the name of its record, without the
/// agent's name in front.
fn first_run_directory(scene: &HostScenario) -> Option<String> {
    let records = scene.world.pending_journals();
    let name = records.first()?.strip_prefix(AGENT)?;
    Some(name.strip_suffix(".json")?.to_string())
}

/// Writes the agent's next note into its memory.
fn write_next_note(scene: &HostScenario, how: AgentAction, directory: Option<&String>) -> Vec<u8> {
    let memory = scene.world.memory_path(AGENT);
    let with_note = [BASELINE.as_bytes(), NOTE_AFTER_RUN].concat();
    match how {
        AgentAction::Replaces => {
            let new = scene.world.agent_directory(AGENT).join("written");
            fs::write(&new, &with_note).unwrap();
            fs::rename(&new, &memory).unwrap();
        }
        _ => scene.world.write_memory(AGENT, &with_note),
    }
    if let Some(directory) = directory {
        let directory = scene.world.agent_directory(AGENT).join(directory);
        match how {
            AgentAction::PlantsFile => fs::write(&directory, "planted").unwrap(),
            AgentAction::PlantsDirectory => {
                fs::create_dir(&directory).unwrap();
                fs::write(directory.join("new"), "planted").unwrap();
            }
            _ => {}
        }
    }
    with_note
}

/// Lets another run finish the first one and the agent write, then lets the host execute the
/// delayed requests. Returns their number.
fn assert_delayed_is_harmless(
    scene: HostScenario,
    late: &DelayedRequests,
    how: AgentAction,
    fault: &str,
) -> usize {
    scene.assert_invariants(fault);
    let directory = first_run_directory(&scene);
    if how == AgentAction::KeepsDirectory
        && let Some(directory) = &directory
    {
        // The directory does not exist yet where its creation is delayed.
        let kept = scene
            .world
            .agent_directory(AGENT)
            .join(directory)
            .join("kept");
        let _ = fs::write(kept, "planted");
    }
    let next = engine_with_connector(&scene.world, sftp_server_program());
    let plan = next
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let report = run(&next, &plan);
    let said = format!("{fault}\nthen {report:?}");
    assert_eq!(report.worst_kind(), None, "{said}");
    scene.assert_recovered(&said);
    let written = write_next_note(&scene, how, directory.as_ref());
    let count = late.deliver();
    let names = scene.world.leftovers(AGENT);
    let context = format!("{said}\nbeside the memory {names:?}");
    match how {
        // A delayed rename may have moved it into the agent's directory.
        AgentAction::PlantsDirectory => assert!(scene.preserves(NOTE_AFTER_RUN), "{context}"),
        _ => {
            let memory = scene.memory();
            assert_eq!(memory.as_deref(), Some(written.as_slice()), "{context}");
        }
    }
    // No record names what a host creates late, or an agent by itself.
    for name in names {
        let path = scene.world.agent_directory(AGENT).join(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    if how != AgentAction::PlantsDirectory {
        let report = run(&next, &plan);
        let context = format!("{context}\nlast run: {report:?}");
        assert_eq!(report.worst_kind(), None, "{context}");
        assert!(scene.world.preserves(AGENT, NOTE_AFTER_RUN), "{context}");
        assert_eq!(
            scene.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{context}"
        );
    }
    count
}

#[test]
fn late_host_operations_lose_nothing() {
    if !super::scenario::has_sftp_server() {
        return;
    }
    let all = [
        AgentAction::Appends,
        AgentAction::Replaces,
        AgentAction::PlantsFile,
        AgentAction::PlantsDirectory,
        AgentAction::KeepsDirectory,
    ];
    let mut points = Vec::new();
    let mut pairs = Vec::new();
    for act in HOST_OPERATIONS {
        for (point, name) in request_names(act).into_iter().enumerate().skip(1) {
            let group = match name {
                "posix-rename" | "hardlink" | "mkdir" | "create" | "remove" => &mut pairs,
                _ => &mut points,
            };
            group.extend(all.map(|how| (act, point, name, how)));
        }
    }
    pairs.extend(sample_points(points, 5));
    let (done, changing) = (SharedCount::default(), SharedCount::default());
    let count = try_each(pairs, 8, |(act, point, name, how)| {
        let scene = HostScenario::new(act);
        let between = FilteredServer::new(sftp_server_program(), delay_from(point));
        let late = between.delayed_requests();
        let report = scene.run(between);
        let fault =
            format!("{act:?} delayed from request {point} ({name}) on, {how:?}: {report:?}");
        if assert_delayed_is_harmless(scene, &late, how, &fault) > 0 {
            done.add();
        }
        if name == "posix-rename" {
            changing.add();
        }
    });
    println!(
        "delayed at {count} points, {} with requests left, losses 0",
        done.get()
    );
    // The run may end without closing its last handles.
    assert!(done.get() > count * 9 / 10);
    assert!(changing.get() > 0);
}

#[test]
fn late_recovery_operations_lose_nothing() {
    if !super::scenario::has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    let all = request_names(HostOperation::Reset);
    let places = ["posix-rename", "hardlink", "remove"];
    for (first, name) in all.into_iter().enumerate() {
        if places.contains(&name) {
            points.extend((1..60).map(|second| (first, second)));
        }
    }
    let done = SharedCount::default();
    let count = try_each(sample_points(points, 7), 8, |(first, second)| {
        let scene = HostScenario::new(HostOperation::Reset);
        let cut: RequestFilter = Arc::new(move |number, _| match number.cmp(&first) {
            std::cmp::Ordering::Less => RequestFate::Pass,
            std::cmp::Ordering::Equal => RequestFate::DisconnectAfter,
            std::cmp::Ordering::Greater => RequestFate::Disconnect,
        });
        scene.run(FilteredServer::new(sftp_server_program(), cut));
        let between = FilteredServer::new(sftp_server_program(), delay_from(second));
        let late = between.delayed_requests();
        let next = engine_with_connector(&scene.world, between);
        let plan = next
            .planner()
            .plan_unobserved(&[AGENT.to_string()], false)
            .unwrap();
        let report = run(&next, &plan);
        drop(next);
        let fault =
            format!("cut after request {first}, delayed from request {second} on: {report:?}");
        if assert_delayed_is_harmless(scene, &late, AgentAction::Appends, &fault) > 0 {
            done.add();
        }
    });
    println!(
        "delayed in {count} recoveries, {} with requests left, losses 0",
        done.get()
    );
    assert!(done.get() > count / 3);
}

#[test]
fn late_swap_pair_loses_nothing() {
    if !super::scenario::has_sftp_server() {
        return;
    }
    let all = request_names(HostOperation::Reset);
    let point = all.iter().position(|name| *name == "posix-rename").unwrap();
    assert_eq!(all[point + 1], "hardlink");
    let scene = HostScenario::new(HostOperation::Reset);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let inner = delay_from(point);
    let judge: RequestFilter = Arc::new(move |number, frame| {
        sees.lock().unwrap().push(request_name(frame));
        inner(number, frame)
    });
    let between = FilteredServer::new(sftp_server_program(), judge);
    let late = between.delayed_requests();
    let report = scene.run(between);
    let fault = format!("both renames delayed: {report:?}");
    let count = assert_delayed_is_harmless(scene, &late, AgentAction::Appends, &fault);
    assert!(count >= 2, "{:?}", seen.lock().unwrap());
}

#[test]
fn late_operations_during_next_run_lose_nothing() {
    if !super::scenario::has_sftp_server() {
        return;
    }
    // More requests than the next run sends.
    const NEXT: usize = 110;
    let mut points = Vec::new();
    for act in [
        HostOperation::Reset,
        HostOperation::Undo,
        HostOperation::UndoCreate,
    ] {
        let all = request_names(act).into_iter().enumerate();
        for (first, _) in all.filter(|(_, name)| ["mkdir", "posix-rename"].contains(name)) {
            points.extend((1..NEXT).map(|second| (act, first, second)));
        }
    }
    let done = SharedCount::default();
    let count = try_each(sample_points(points, 3), 8, |(act, first, second)| {
        let scene = HostScenario::new(act);
        let between = FilteredServer::new(sftp_server_program(), delay_from(first));
        let late = between.delayed_requests();
        let report = scene.run(between);
        let memory = scene.world.memory_path(AGENT);
        let happened = done.clone();
        let wrote = Arc::new(AtomicBool::new(false));
        let writes = Arc::clone(&wrote);
        let then = filter_at(second, move |_| {
            // The agent appends to the memory, and the host catches up.
            let file = OpenOptions::new().append(true).create(true).open(&memory);
            file.unwrap().write_all(NOTE_AFTER_RUN).unwrap();
            writes.store(true, Ordering::SeqCst);
            if late.deliver() > 0 {
                happened.add();
            }
            RequestFate::Pass
        });
        let next = engine_with_connector(
            &scene.world,
            FilteredServer::new(sftp_server_program(), then),
        );
        let plan = next
            .planner()
            .plan_unobserved(&[AGENT.to_string()], false)
            .unwrap();
        let again = run(&next, &plan);
        drop(next);
        let last = engine_with_connector(&scene.world, sftp_server_program());
        let last_report = run(&last, &plan);
        let context = format!(
            "{act:?} late from {first} on, done before {second} of the next run: {report:?}\n\
             then {again:?}\nlast run: {last_report:?}"
        );
        assert_eq!(last_report.worst_kind(), None, "{context}");
        scene.assert_recovered(&context);
        let wrote = wrote.load(Ordering::SeqCst);
        assert_eq!(
            scene.preserves(NOTE_AFTER_RUN),
            wrote,
            "the later note is lost: {context}"
        );
        if scene.before.is_some() {
            assert!(
                scene.preserves(super::scenario::NOTE),
                "the note is lost: {context}"
            );
        }
    });
    println!(
        "delayed during {count} later runs, {} with requests left, losses 0",
        done.get()
    );
    assert!(done.get() > count / 3);
}
