//! Hosts that do what they were asked for when whoever asked is long gone, and
//! somebody else has finished it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::frames::{INIT, called};
use super::scene::{ACTS, AGENT, Act, Count, Scene, at, each, good, requests, run, some};
use crate::remote::engine;
use crate::servers::{Between, Fate, Judge, Late};
use crate::world::BASELINE;

const LATER: &[u8] = b"a note from after the run\n";

/// From this request on the host is late, and nobody reaches it any more.
fn late_from(point: usize) -> Judge {
    Arc::new(move |number, frame| match number.cmp(&point) {
        std::cmp::Ordering::Less => Fate::Pass,
        std::cmp::Ordering::Equal if frame[0] != INIT => Fate::Late,
        _ => Fate::Cut,
    })
}

/// What the agent does before the host does what it is late with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    /// It writes to the file that stands there.
    Appends,
    /// It puts another file in its place.
    Replaces,
    /// It also puts a file where the folder of the run was.
    PlantsFile,
    /// Or a folder, which is an invitation; with a file in it.
    PlantsFolder,
    /// It has put a file into that folder before the run was finished, so that the
    /// folder cannot go.
    KeepsFolder,
}

/// The folder of the run that is not over, as it was called at first: its record
/// has the agent's name before that.
fn first_name(scene: &Scene) -> Option<String> {
    let records = scene.world.pending();
    let name = records.first()?.strip_prefix(AGENT)?;
    Some(name.strip_suffix(".json")?.to_string())
}

/// The agent's next note, in its memory.
fn writes(scene: &Scene, how: Meanwhile, folder: Option<&String>) -> Vec<u8> {
    let memory = scene.world.memory(AGENT);
    let with_note = [BASELINE.as_bytes(), LATER].concat();
    match how {
        Meanwhile::Replaces => {
            let new = scene.world.folder(AGENT).join("written");
            fs::write(&new, &with_note).unwrap();
            fs::rename(&new, &memory).unwrap();
        }
        _ => scene.world.write(AGENT, &with_note),
    }
    if let Some(folder) = folder {
        let folder = scene.world.folder(AGENT).join(folder);
        match how {
            Meanwhile::PlantsFile => fs::write(&folder, "planted").unwrap(),
            Meanwhile::PlantsFolder => {
                fs::create_dir(&folder).unwrap();
                fs::write(folder.join("new"), "planted").unwrap();
            }
            _ => {}
        }
    }
    with_note
}

/// The run is finished by another one, the agent writes, and then the host does
/// the rest; how many requests that was.
fn comes_to_nothing(scene: Scene, late: &Late, how: Meanwhile, fault: &str) -> usize {
    scene.holds(fault);
    let folder = first_name(&scene);
    if how == Meanwhile::KeepsFolder
        && let Some(folder) = &folder
    {
        // There is none yet where it is made late.
        let kept = scene.world.folder(AGENT).join(folder).join("kept");
        let _ = fs::write(kept, "planted");
    }
    let next = engine(&scene.world, good());
    let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let report = run(&next, &plan);
    let said = format!("{fault}\nthen {report:?}");
    assert_eq!(report.worst_kind(), None, "{said}");
    assert_eq!(
        scene.memory().as_deref(),
        Some(BASELINE.as_bytes()),
        "{said}"
    );
    assert_eq!(scene.world.pending(), Vec::<String>::new(), "{said}");
    let written = writes(&scene, how, folder.as_ref());
    let count = late.happens();
    let names = scene.world.litter(AGENT);
    let said = format!("{said}\nbeside the memory {names:?}");
    match how {
        // It may have been moved to where the agent wanted it.
        Meanwhile::PlantsFolder => assert!(scene.has(LATER), "{said}"),
        _ => {
            let memory = scene.memory();
            assert_eq!(memory.as_deref(), Some(written.as_slice()), "{said}");
        }
    }
    // What a host makes late, or an agent by itself, nobody knows of.
    for name in names {
        let path = scene.world.folder(AGENT).join(name);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    if how != Meanwhile::PlantsFolder {
        let report = run(&next, &plan);
        let said = format!("{said}\nat last {report:?}");
        assert_eq!(report.worst_kind(), None, "{said}");
        assert!(scene.world.holds(AGENT, LATER), "{said}");
        assert_eq!(
            scene.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{said}"
        );
    }
    count
}

#[test]
fn what_a_host_does_late_comes_to_nothing() {
    if !super::scene::there_is_a_server() {
        return;
    }
    let all = [
        Meanwhile::Appends,
        Meanwhile::Replaces,
        Meanwhile::PlantsFile,
        Meanwhile::PlantsFolder,
        Meanwhile::KeepsFolder,
    ];
    let mut points = Vec::new();
    let mut pairs = Vec::new();
    for act in ACTS {
        for (point, name) in requests(act).into_iter().enumerate().skip(1) {
            let group = match name {
                "posix-rename" | "hardlink" | "mkdir" | "create" | "remove" => &mut pairs,
                _ => &mut points,
            };
            group.extend(all.map(|how| (act, point, name, how)));
        }
    }
    pairs.extend(some(points, 5));
    let (done, changing) = (Count::default(), Count::default());
    let count = each(pairs, 8, |(act, point, name, how)| {
        let scene = Scene::new(act);
        let between = Between::new(good(), late_from(point));
        let late = between.late();
        let report = scene.run(between);
        let fault = format!("{act:?} late from request {point}, {name}, on; {how:?}: {report:?}");
        if comes_to_nothing(scene, &late, how, &fault) > 0 {
            done.add();
        }
        if name == "posix-rename" {
            changing.add();
        }
    });
    println!(
        "late at {count} points, {} of them with something to do, losses 0",
        done.get()
    );
    // Whether the last handles are given back before the end is not told.
    assert!(done.get() > count * 9 / 10);
    assert!(changing.get() > 0);
}

#[test]
fn what_a_host_does_late_of_a_recovery_comes_to_nothing() {
    if !super::scene::there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    let all = requests(Act::Reset);
    let places = ["posix-rename", "hardlink", "remove"];
    for (first, name) in all.into_iter().enumerate() {
        if places.contains(&name) {
            points.extend((1..60).map(|second| (first, second)));
        }
    }
    let done = Count::default();
    let count = each(some(points, 7), 8, |(first, second)| {
        let scene = Scene::new(Act::Reset);
        let cut: Judge = Arc::new(move |number, _| match number < first {
            true => Fate::Pass,
            false if number == first => Fate::CutBehind,
            false => Fate::Cut,
        });
        scene.run(Between::new(good(), cut));
        let between = Between::new(good(), late_from(second));
        let late = between.late();
        let next = engine(&scene.world, between);
        let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
        let report = run(&next, &plan);
        drop(next);
        let fault =
            format!("cut behind request {first}, late from request {second} on: {report:?}");
        if comes_to_nothing(scene, &late, Meanwhile::Appends, &fault) > 0 {
            done.add();
        }
    });
    println!(
        "late in {count} recoveries, {} of them with something to do, losses 0",
        done.get()
    );
    assert!(done.get() > count / 3);
}

#[test]
fn the_two_requests_that_replace_a_memory_are_late_together() {
    if !super::scene::there_is_a_server() {
        return;
    }
    let all = requests(Act::Reset);
    let point = all.iter().position(|name| *name == "posix-rename").unwrap();
    assert_eq!(all[point + 1], "hardlink");
    let scene = Scene::new(Act::Reset);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let inner = late_from(point);
    let judge: Judge = Arc::new(move |number, frame| {
        sees.lock().unwrap().push(called(frame));
        inner(number, frame)
    });
    let between = Between::new(good(), judge);
    let late = between.late();
    let report = scene.run(between);
    let fault = format!("the pair is late: {report:?}");
    let count = comes_to_nothing(scene, &late, Meanwhile::Appends, &fault);
    assert!(count >= 2, "{:?}", seen.lock().unwrap());
}

#[test]
fn what_a_host_does_late_while_the_next_run_is_at_work_loses_nothing() {
    if !super::scene::there_is_a_server() {
        return;
    }
    // More than the next run has.
    const NEXT: usize = 110;
    let mut points = Vec::new();
    for act in [Act::Reset, Act::Undo, Act::TakeBack] {
        let all = requests(act).into_iter().enumerate();
        for (first, _) in all.filter(|(_, name)| ["mkdir", "posix-rename"].contains(name)) {
            points.extend((1..NEXT).map(|second| (act, first, second)));
        }
    }
    let done = Count::default();
    let count = each(some(points, 3), 8, |(act, first, second)| {
        let scene = Scene::new(act);
        let between = Between::new(good(), late_from(first));
        let late = between.late();
        let report = scene.run(between);
        let memory = scene.world.memory(AGENT);
        let happened = done.clone();
        let wrote = Arc::new(AtomicBool::new(false));
        let writes = Arc::clone(&wrote);
        let then = at(second, move |_| {
            // The agent writes to what stands there, and the host catches up.
            let file = OpenOptions::new().append(true).create(true).open(&memory);
            file.unwrap().write_all(LATER).unwrap();
            writes.store(true, Ordering::SeqCst);
            if late.happens() > 0 {
                happened.add();
            }
            Fate::Pass
        });
        let next = engine(&scene.world, Between::new(good(), then));
        let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
        let again = run(&next, &plan);
        drop(next);
        let said = format!(
            "{act:?} late from {first} on, done before {second} of the next run: {report:?}\n\
             then {again:?}"
        );
        let last = engine(&scene.world, good());
        let report = run(&last, &plan);
        let said = format!("{said}\nat last {report:?}");
        assert_eq!(report.worst_kind(), None, "{said}");
        assert_eq!(
            scene.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{said}"
        );
        assert_eq!(scene.world.pending(), Vec::<String>::new(), "{said}");
        let wrote = wrote.load(Ordering::SeqCst);
        assert_eq!(scene.has(LATER), wrote, "the later note is lost: {said}");
        if scene.before.is_some() {
            assert!(scene.has(super::scene::NOTE), "the note is lost: {said}");
        }
    });
    println!(
        "late in {count} next runs, {} of them at work, losses 0",
        done.get()
    );
    assert!(done.get() > count / 3);
}
