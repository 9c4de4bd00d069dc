//! Agents that plant files, links, directories and FIFOs where a run is at work.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memory_shepherd::engine::Outcome;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::scenario::{
    AGENT, HostOperation, HostScenario, NOTE, SharedCount, any_file_contains, filter_at,
    has_sftp_server, request_names, run, sample_points, sftp_server_program, try_each,
};
use crate::remote::engine_with_connector;
use crate::servers::{FilteredServer, RequestFate};
use crate::world::{BASELINE, sorted_names};

const PLANTED_TEXT: &[u8] = b"what the agent planted\n";

/// Kind of the planted object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PlantedObject {
    File,
    /// A hard link to a file of the agent's own elsewhere.
    Link,
    Symlink,
    Directory,
    Fifo,
    /// Nothing: the existing object is moved away.
    Nothing,
}

/// Path at which the object is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PlantedPlace {
    Memory,
    /// The directory of the run.
    RunDirectory,
    NewFile,
    /// The displaced file, once there is one: its future name cannot be guessed.
    DisplacedFile,
}

impl PlantedPlace {
    /// Returns the current path; None where the run has not created it yet.
    fn path(self, directory: &Path) -> Option<PathBuf> {
        let of_run = || {
            let mut names = sorted_names(directory).into_iter();
            let name = names.find(|name| name.starts_with(".shepherd-"))?;
            Some(directory.join(name))
        };
        match self {
            PlantedPlace::Memory => Some(directory.join("MEMORY.md")),
            PlantedPlace::RunDirectory => of_run(),
            PlantedPlace::NewFile => Some(of_run()?.join("new")),
            PlantedPlace::DisplacedFile => {
                let run = of_run()?;
                let mut names = sorted_names(&run).into_iter();
                Some(run.join(names.find(|name| name.starts_with("old"))?))
            }
        }
    }
}

/// Plants the object; moves the existing one into `away`, as the agent may.
fn plant(thing: PlantedObject, path: &Path, away: &Path) {
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
    // The parent directory may be gone by now.
    let _ = match thing {
        PlantedObject::File => fs::write(path, PLANTED_TEXT),
        PlantedObject::Link => {
            let own = free();
            fs::write(&own, PLANTED_TEXT).unwrap();
            fs::hard_link(own, path)
        }
        PlantedObject::Symlink => {
            let own = free();
            fs::write(&own, PLANTED_TEXT).unwrap();
            symlink(own, path)
        }
        PlantedObject::Directory => {
            fs::create_dir(path).and_then(|()| fs::write(path.join("x"), PLANTED_TEXT))
        }
        PlantedObject::Fifo => {
            let made = mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
            made.map_err(Into::into)
        }
        PlantedObject::Nothing => Ok(()),
    };
}

/// Unblocks every process that waits at a FIFO.
fn release_fifo(directory: &Path) {
    for item in fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = item.file_type().unwrap();
        if kind.is_dir() {
            release_fifo(&item.path());
        } else if !kind.is_file() && !kind.is_symlink() {
            let _ = OpenOptions::new().read(true).write(true).open(item.path());
        }
    }
}

/// The server did remove the file that the agent creates again.
#[test]
fn recreated_file_is_not_blamed_on_server() {
    if !has_sftp_server() {
        return;
    }
    let reports = SharedCount::default();
    let count = request_names(HostOperation::Reset).len();
    try_each((1..count).collect(), 8, |point| {
        let scene = HostScenario::with_general(HostOperation::Reset, "remote_timeout = 2");
        let directory = scene.world.agent_directory(AGENT);
        let away = scene.world.root.join("away");
        let second_name = scene.world.root.join("fifo");
        let judge = filter_at(point, {
            let (directory, second_name) = (directory.clone(), second_name.clone());
            move |_| {
                if let Some(path) = PlantedPlace::NewFile.path(&directory) {
                    plant(PlantedObject::Fifo, &path, &away);
                    let _ = fs::hard_link(&path, &second_name);
                }
                RequestFate::Pass
            }
        });
        let report = scene.run(FilteredServer::new(sftp_server_program(), judge));
        // A server may wait at the FIFO although the run has removed its name.
        let ends = OpenOptions::new().read(true).write(true).open(&second_name);
        let _ = fs::remove_dir_all(&directory);
        drop(ends);
        let said = format!("{report:?}");
        assert!(!said.contains("reported its removal"), "{said}");
        if said.contains("or the agent created it again") {
            reports.add();
        }
    });
    assert!(reports.get() > 0);
}

/// Returns every object at every place before every request of each operation.
fn planting_points() -> Vec<(HostOperation, usize, PlantedPlace, PlantedObject)> {
    let objects = [
        PlantedObject::File,
        PlantedObject::Link,
        PlantedObject::Symlink,
        PlantedObject::Directory,
        PlantedObject::Fifo,
        PlantedObject::Nothing,
    ];
    let places = [
        PlantedPlace::Memory,
        PlantedPlace::RunDirectory,
        PlantedPlace::NewFile,
        PlantedPlace::DisplacedFile,
    ];
    let mut points = Vec::new();
    for operation in [
        HostOperation::Reset,
        HostOperation::Create,
        HostOperation::UndoCreate,
    ] {
        for point in 1..request_names(operation).len() {
            for place in places {
                points.extend(objects.map(|object| (operation, point, place, object)));
            }
        }
    }
    points
}

/// Runs three resets, which restore the memory whatever else is left of an object; returns their
/// reports.
fn reset_repeatedly(scene: &HostScenario, directory: &Path) -> String {
    let engine = engine_with_connector(&scene.world, sftp_server_program());
    let plan = engine
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let mut reports = String::new();
    for _ in 0..3 {
        let report = run(&engine, &plan);
        release_fifo(directory);
        reports.push_str(&format!("\nthen {report:?}"));
    }
    reports
}

#[test]
fn object_planted_at_any_moment_harms_no_other_user() {
    if !has_sftp_server() {
        return;
    }
    let planted = SharedCount::default();
    let count = try_each(
        sample_points(planting_points(), 19),
        8,
        |(operation, point, place, object)| {
            let scene = HostScenario::with_general(operation, "remote_timeout = 2");
            let directory = scene.world.agent_directory(AGENT);
            let away = scene.world.root.join("away");
            let outside = away.clone();
            let plants = planted.clone();
            let judge = filter_at(point, {
                let directory = directory.clone();
                move |_| {
                    if let Some(path) = place.path(&directory) {
                        plants.add();
                        plant(object, &path, &outside);
                    }
                    RequestFate::Pass
                }
            });
            let report = scene.run(FilteredServer::new(sftp_server_program(), judge));
            release_fifo(&directory);
            let said = format!(
                "{operation:?}: {object:?} at {place:?} before request {point}: {report:?}"
            );
            // What the agent moved away is in `away`.
            let archive = scene.world.archive_directory().join(AGENT);
            let places = [&directory, &away, &archive];
            let kept = |bytes: &[u8]| places.iter().any(|place| any_file_contains(place, bytes));
            if scene.before.is_some() {
                assert!(kept(NOTE), "the note is lost: {said}");
            }
            let has_content = matches!(
                object,
                PlantedObject::File | PlantedObject::Link | PlantedObject::Directory
            );
            if has_content && place == PlantedPlace::Memory {
                let count = fs::read_dir(&away).map_or(0, Iterator::count);
                assert!(
                    count == 0 || kept(PLANTED_TEXT),
                    "the planted object is lost: {said}"
                );
            }
            let scene = scene.with_long_timeout();
            let said = format!("{said}{}", reset_repeatedly(&scene, &directory));
            // What was there before any record of a file may be intended.
            let found = fs::symlink_metadata(scene.world.memory_path(AGENT));
            let stays = found.is_ok_and(|found| !found.is_file());
            if stays {
                assert!(
                    said.contains("the ledger has no record of a file"),
                    "{said}"
                );
                return;
            }
            scene.assert_recovered(&said);
            if scene.before.is_some() {
                assert!(kept(NOTE), "the note is lost: {said}");
            }
        },
    );
    println!(
        "{count} points, objects planted at {}, losses 0",
        planted.get()
    );
    assert!(planted.get() > count / 3);
}

/// Runs a reset that loses its connection right after the exchange of names; returns the run's
/// directory.
fn run_interrupted_reset(scene: &HostScenario) -> PathBuf {
    let asked = request_names(HostOperation::Reset);
    let point = asked.iter().rposition(|it| *it == "hardlink").unwrap();
    scene.run(FilteredServer::new(
        sftp_server_program(),
        super::disconnects::disconnect_for_good(point, true),
    ));
    let directory = scene.world.agent_directory(AGENT);
    let mut names = sorted_names(&directory).into_iter();
    let run = names.find(|name| name.starts_with(".shepherd-")).unwrap();
    directory.join(run)
}

#[test]
fn displaced_file_is_settled_despite_planted_names() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let run_directory = run_interrupted_reset(&scene);
    let old = sorted_names(&run_directory)
        .into_iter()
        .find(|name| name.starts_with("old"))
        .unwrap();
    let mut late = OpenOptions::new()
        .append(true)
        .open(run_directory.join(&old))
        .unwrap();
    std::io::Write::write_all(&mut late, b"a late note\n").unwrap();
    drop(late);
    // Names in the format of a run, all sorted before the true one.
    let (head, digits) = old.split_at(old.len() - 32);
    assert_eq!(digits.len(), 32);
    for number in 0..40 {
        fs::write(
            run_directory.join(format!("{head}{number:032}")),
            PLANTED_TEXT,
        )
        .unwrap();
    }
    for _ in 0..4 {
        let next = engine_with_connector(&scene.world, sftp_server_program());
        let plan = next
            .planner()
            .plan_unobserved(&[AGENT.to_string()], false)
            .unwrap();
        run(&next, &plan);
    }
    let archive = scene.world.archive_directory().join(AGENT);
    assert!(
        any_file_contains(&archive, b"a late note\n") || !scene.world.pending_journals().is_empty(),
        "no record or entry has the bytes of {:?}",
        scene.world.leftovers(AGENT)
    );
    assert!(any_file_contains(&archive, b"a late note\n"));
}

#[test]
fn kept_directory_is_where_ledger_says() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let memory = scene.world.memory_path(AGENT);
    // From now on a record says that a file was here.
    let first = engine_with_connector(&scene.world, sftp_server_program());
    let plan = first
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    run(&first, &plan);
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    fs::write(memory.join("inside"), NOTE).unwrap();
    run_interrupted_reset(&scene);
    let next = engine_with_connector(&scene.world, sftp_server_program());
    let plan = next
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let report = run(&next, &plan);
    let mut records = scene.world.read_records().into_iter();
    let kept = records
        .find_map(|mut record| record.event.change.kept_names.pop())
        .unwrap_or_else(|| panic!("{report:?}"));
    assert!(
        scene
            .world
            .agent_directory(AGENT)
            .join(&kept)
            .join("inside")
            .exists(),
        "{kept} is missing; found {:?}",
        scene.world.leftovers(AGENT)
    );
}

#[test]
fn symlink_replacing_run_directory_is_not_followed() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let run_directory = run_interrupted_reset(&scene);
    let away = scene.world.root.join("away");
    fs::create_dir(&away).unwrap();
    fs::rename(&run_directory, scene.world.root.join("taken")).unwrap();
    let old = format!("old.shepherd-{}", "0".repeat(32));
    for name in ["new", old.as_str()] {
        fs::write(away.join(name), PLANTED_TEXT).unwrap();
    }
    symlink(&away, &run_directory).unwrap();
    let next = engine_with_connector(&scene.world, sftp_server_program());
    let plan = next
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let report = run(&next, &plan);
    let mut expected = vec!["new".to_string(), old];
    expected.sort();
    assert_eq!(sorted_names(&away), expected, "{report:?}");
    let archive = scene.world.archive_directory().join(AGENT);
    assert!(!any_file_contains(&archive, PLANTED_TEXT), "{report:?}");
    assert_eq!(scene.memory().as_deref(), Some(BASELINE.as_bytes()));
}

#[test]
fn memory_with_missing_new_file_is_put_back() {
    if !has_sftp_server() {
        return;
    }
    for gone in [false, true] {
        assert_put_back(gone);
    }
}

fn assert_put_back(gone: bool) {
    let scene = HostScenario::new(HostOperation::Reset);
    let asked = request_names(HostOperation::Reset);
    let point = asked.iter().rposition(|it| *it == "hardlink").unwrap();
    scene.run(FilteredServer::new(
        sftp_server_program(),
        super::disconnects::disconnect_for_good(point, false),
    ));
    assert_eq!(scene.memory(), None);
    let directory = scene.world.agent_directory(AGENT);
    let mut inside = sorted_names(&directory).into_iter();
    let run_directory = inside.find(|name| name.starts_with(".shepherd-")).unwrap();
    // The state after a power cut where the server lacks fsync.
    let new = directory.join(run_directory).join("new");
    if gone {
        fs::remove_file(new).unwrap();
    } else {
        fs::write(new, "").unwrap();
    }
    // The agent is now protected from resets; its leftovers are settled all the same.
    let mut world = scene.world.without_agent(AGENT);
    let memory = world.memory_path(AGENT);
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nprotect = readonly",
        memory.display()
    );
    world.add_agent(AGENT, &lines);
    let next = engine_with_connector(&world, sftp_server_program());
    let plan = next
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let report = run(&next, &plan);
    let records = world.read_records();
    assert!(
        memory.exists(),
        "the memory is absent: {report:?} {records:?}"
    );
    assert_eq!(fs::read(&memory).ok(), scene.before);
    assert!(records.iter().all(|it| it.event.outcome != Outcome::Ok));
    assert_eq!(world.leftovers(AGENT), Vec::<String>::new());
    assert_eq!(world.pending_journals(), Vec::<String>::new());
}
