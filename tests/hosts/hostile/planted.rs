//! Agents that put things where a run is at work.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memory_shepherd::engine::Outcome;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::scene::{
    AGENT, Act, Count, NOTE, Scene, at, contains, each, good, requests, run, some,
    there_is_a_server,
};
use crate::remote::engine;
use crate::servers::{Between, Fate};
use crate::world::{BASELINE, names};

const PLANTED: &[u8] = b"what the agent planted\n";

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Thing {
    File,
    /// A further name of a file of its own that it has elsewhere.
    Link,
    Symlink,
    Folder,
    Fifo,
    /// What stands there is taken away, and nothing planted.
    Nothing,
}

/// Where.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spot {
    Memory,
    /// The folder of the run.
    Run,
    New,
    /// What was displaced, or else what it is going to be displaced to cannot be
    /// guessed.
    Old,
}

impl Spot {
    /// Where that is now; nowhere where the run has not come so far.
    fn path(self, folder: &Path) -> Option<PathBuf> {
        let of_run = || {
            let mut names = names(folder).into_iter();
            let name = names.find(|name| name.starts_with(".shepherd-"))?;
            Some(folder.join(name))
        };
        match self {
            Spot::Memory => Some(folder.join("MEMORY.md")),
            Spot::Run => of_run(),
            Spot::New => Some(of_run()?.join("new")),
            Spot::Old => {
                let run = of_run()?;
                let mut names = names(&run).into_iter();
                Some(run.join(names.find(|name| name.starts_with("old"))?))
            }
        }
    }
}

/// Plants it; what stood there is kept elsewhere, as an agent's own business.
fn plant(thing: Thing, path: &Path, away: &Path) {
    let mut number = 0;
    let mut free = || {
        number += 1;
        away.join(format!(
            "{}-{number}",
            path.file_name().unwrap_or(OsStr::new("x")).display()
        ))
    };
    fs::create_dir_all(away).unwrap();
    let _ = fs::rename(path, free());
    // The folder around it may have gone meanwhile.
    let _ = match thing {
        Thing::File => fs::write(path, PLANTED),
        Thing::Link => {
            let own = free();
            fs::write(&own, PLANTED).unwrap();
            fs::hard_link(own, path)
        }
        Thing::Symlink => {
            let own = free();
            fs::write(&own, PLANTED).unwrap();
            symlink(own, path)
        }
        Thing::Folder => fs::create_dir(path).and_then(|()| fs::write(path.join("x"), PLANTED)),
        Thing::Fifo => {
            let made = mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
            made.map_err(Into::into)
        }
        Thing::Nothing => Ok(()),
    };
}

/// Whoever waits at a FIFO goes on.
fn release(folder: &Path) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = item.file_type().unwrap();
        if kind.is_dir() {
            release(&item.path());
        } else if !kind.is_file() && !kind.is_symlink() {
            let _ = OpenOptions::new().read(true).write(true).open(item.path());
        }
    }
}

#[test]
fn what_an_agent_plants_at_any_moment_harms_nobody_else() {
    if !there_is_a_server() {
        return;
    }
    let things = [
        Thing::File,
        Thing::Link,
        Thing::Symlink,
        Thing::Folder,
        Thing::Fifo,
        Thing::Nothing,
    ];
    let spots = [Spot::Memory, Spot::Run, Spot::New, Spot::Old];
    let mut points = Vec::new();
    for act in [Act::Reset, Act::Create, Act::TakeBack] {
        for point in 1..requests(act).len() {
            for spot in spots {
                points.extend(things.map(|thing| (act, point, spot, thing)));
            }
        }
    }
    let planted = Count::default();
    let count = each(some(points, 19), 8, |(act, point, spot, thing)| {
        let scene = Scene::with(act, "remote_timeout = 2");
        let folder = scene.world.folder(AGENT);
        let away = scene.world.root.join("away");
        let outside = away.clone();
        let plants = planted.clone();
        let judge = at(point, {
            let folder = folder.clone();
            move |_| {
                if let Some(path) = spot.path(&folder) {
                    plants.add();
                    plant(thing, &path, &outside);
                }
                Fate::Pass
            }
        });
        let report = scene.run(Between::new(good(), judge));
        release(&folder);
        let said = format!("{act:?}: {thing:?} at {spot:?} before request {point}: {report:?}");
        // What the agent took away is where it put it.
        let archive = scene.world.archive().join(AGENT);
        let places = [&folder, &away, &archive];
        let kept = |bytes: &[u8]| places.iter().any(|place| contains(place, bytes));
        if scene.before.is_some() {
            assert!(kept(NOTE), "the note is lost: {said}");
        }
        let has_content = matches!(thing, Thing::File | Thing::Link | Thing::Folder);
        if has_content && spot == Spot::Memory {
            let count = fs::read_dir(&away).map_or(0, Iterator::count);
            assert!(
                count == 0 || kept(PLANTED),
                "what was planted is lost: {said}"
            );
        }
        // The next runs put the memory right, whatever else stays of it.
        let scene = scene.patient();
        let next = engine(&scene.world, good());
        let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
        let mut said = said;
        for _ in 0..3 {
            let report = run(&next, &plan);
            release(&folder);
            said = format!("{said}\nthen {report:?}");
        }
        // A directory that came before any record of a file may be meant.
        let stays = matches!(thing, Thing::Folder) && scene.world.memory(AGENT).is_dir();
        if stays {
            assert!(said.contains("no record says that a file"), "{said}");
            return;
        }
        assert_eq!(
            scene.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{said}"
        );
        assert_eq!(scene.world.pending(), Vec::<String>::new(), "{said}");
        if scene.before.is_some() {
            assert!(kept(NOTE), "the note is lost: {said}");
        }
    });
    println!("{count} points, planted at {}, losses 0", planted.get());
    assert!(planted.get() > count / 3);
}

/// Runs a reset that is lost right behind the exchange of names; the folder of it.
fn interrupted(scene: &Scene) -> PathBuf {
    let asked = requests(Act::Reset);
    let point = asked.iter().rposition(|it| *it == "hardlink").unwrap();
    scene.run(Between::new(good(), super::cuts::cut_for_good(point, true)));
    let folder = scene.world.folder(AGENT);
    let mut names = names(&folder).into_iter();
    let run = names.find(|name| name.starts_with(".shepherd-")).unwrap();
    folder.join(run)
}

#[test]
fn what_was_displaced_is_settled_however_much_is_planted_beside_it() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let run_folder = interrupted(&scene);
    let old = names(&run_folder)
        .into_iter()
        .find(|name| name.starts_with("old"))
        .unwrap();
    let mut late = OpenOptions::new()
        .append(true)
        .open(run_folder.join(&old))
        .unwrap();
    std::io::Write::write_all(&mut late, b"a late note\n").unwrap();
    drop(late);
    // Names as a run gives them, all before the true one.
    let (head, digits) = old.split_at(old.len() - 32);
    assert_eq!(digits.len(), 32);
    for number in 0..40 {
        fs::write(run_folder.join(format!("{head}{number:032}")), PLANTED).unwrap();
    }
    for _ in 0..4 {
        let next = engine(&scene.world, good());
        let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
        run(&next, &plan);
    }
    let archive = scene.world.archive().join(AGENT);
    assert!(
        contains(&archive, b"a late note\n") || !scene.world.pending().is_empty(),
        "nobody knows any more of {:?}",
        scene.world.litter(AGENT)
    );
    assert!(contains(&archive, b"a late note\n"));
}

#[test]
fn a_folder_that_is_kept_is_where_the_ledger_says() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let memory = scene.world.memory(AGENT);
    // From now on it is known that a file stood there.
    let first = engine(&scene.world, good());
    let plan = first.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    run(&first, &plan);
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    fs::write(memory.join("inside"), NOTE).unwrap();
    interrupted(&scene);
    let next = engine(&scene.world, good());
    let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let report = run(&next, &plan);
    let mut records = scene.world.records().into_iter();
    let kept = records.find_map(|mut record| record.event.kept_names.pop());
    let kept = kept.unwrap_or_else(|| panic!("{report:?}"));
    assert!(
        scene
            .world
            .folder(AGENT)
            .join(&kept)
            .join("inside")
            .exists(),
        "{kept} is not there; {:?} is",
        scene.world.litter(AGENT)
    );
}

#[test]
fn a_link_in_place_of_the_folder_of_a_run_is_not_followed() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let run_folder = interrupted(&scene);
    let away = scene.world.root.join("away");
    fs::create_dir(&away).unwrap();
    fs::rename(&run_folder, scene.world.root.join("taken")).unwrap();
    let old = format!("old.shepherd-{}", "0".repeat(32));
    for name in ["new", old.as_str()] {
        fs::write(away.join(name), PLANTED).unwrap();
    }
    symlink(&away, &run_folder).unwrap();
    let next = engine(&scene.world, good());
    let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let report = run(&next, &plan);
    let mut expected = vec!["new".to_string(), old];
    expected.sort();
    assert_eq!(names(&away), expected, "{report:?}");
    let archive = scene.world.archive().join(AGENT);
    assert!(!contains(&archive, PLANTED), "{report:?}");
    assert_eq!(scene.memory().as_deref(), Some(BASELINE.as_bytes()));
}

#[test]
fn a_memory_whose_new_file_is_gone_is_put_back() {
    if !there_is_a_server() {
        return;
    }
    for gone in [false, true] {
        is_put_back(gone);
    }
}

fn is_put_back(gone: bool) {
    let scene = Scene::new(Act::Reset);
    let asked = requests(Act::Reset);
    let point = asked.iter().rposition(|it| *it == "hardlink").unwrap();
    scene.run(Between::new(
        good(),
        super::cuts::cut_for_good(point, false),
    ));
    assert_eq!(scene.memory(), None);
    let folder = scene.world.folder(AGENT);
    let mut inside = names(&folder).into_iter();
    let run_folder = inside.find(|name| name.starts_with(".shepherd-")).unwrap();
    // As a power cut leaves it where the server lacks fsync.
    let new = folder.join(run_folder).join("new");
    match gone {
        true => fs::remove_file(new).unwrap(),
        false => fs::write(new, "").unwrap(),
    }
    // It is not to be reset now; what was left is settled all the same.
    let mut world = scene.world.without(AGENT);
    let memory = world.memory(AGENT);
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nprotect = readonly",
        memory.display()
    );
    world.add(AGENT, &lines);
    let next = engine(&world, good());
    let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let report = run(&next, &plan);
    let records = world.records();
    assert!(
        memory.exists(),
        "the memory is absent: {report:?} {records:?}"
    );
    assert_eq!(fs::read(&memory).ok(), scene.before);
    assert!(records.iter().all(|it| it.event.outcome != Outcome::Ok));
    assert_eq!(world.litter(AGENT), Vec::<String>::new());
    assert_eq!(world.pending(), Vec::<String>::new());
}
