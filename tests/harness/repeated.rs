//! Commands that are killed at any call and then repeated: the second one does nothing twice, and
//! sweeps what the first one has left.

use std::fs;

use super::crash::KillSweep;
use super::fixture::{BASELINE, NEW_BASELINE};
use super::scene::{
    CheckResult, InitialMemory, RESET_ALL, Scene, check, is_temporary, output_text,
};
use super::strace::can_trace;

/// The baseline after a second change.
const NEWEST_BASELINE: &str = "# Rules\n\n- be kind\n- ask last\n\n---\n";

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(ToString::to_string).collect()
}

/// Runs the command again, which may refuse to go on, and returns what it said.
fn repeat(scene: &Scene, command: &str) -> Result<String, String> {
    let words: Vec<&str> = command.split(' ').collect();
    let output = scene.fleet.run(&words);
    let code = output.status.code();
    let said = output_text(&output);
    check(matches!(code, Some(0 | 6)), || format!("{code:?}: {said}"))?;
    Ok(said)
}

/// A fleet whose agent got three baselines, one after the other.
fn scene_after_three_resets() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    scene.run_ok(RESET_ALL);
    for baseline in [NEW_BASELINE, NEWEST_BASELINE] {
        fs::write(scene.fleet.baseline_path("scout"), baseline).unwrap();
        scene.run_ok(RESET_ALL);
    }
    scene
}

#[test]
fn killed_and_repeated_undo_last_undoes_one_run() {
    if !can_trace() {
        return;
    }
    for command in ["undo --last", "undo scout"] {
        KillSweep {
            name: command,
            scene: &scene_after_three_resets,
            run: &|_| words(command),
            check_recovery: &|scene| check_one_run_is_undone(scene, command),
            quick_points: 12,
        }
        .kill_at_each_point();
    }
}

fn check_one_run_is_undone(scene: &Scene, command: &str) -> CheckResult {
    let records = scene.records();
    let is_recorded = records.last().unwrap()["act"] == "undo";
    if is_recorded && scene.fleet.pending_journals().is_empty() {
        // The killed command was done but for its output.
        return Ok(());
    }
    let said = repeat(scene, command)?;
    let memory = scene.read_memory("scout").unwrap_or_default();
    check(memory == NEW_BASELINE.as_bytes(), || {
        let memory = String::from_utf8_lossy(&memory);
        format!("the second {command} left {memory:?}: {said}")
    })
}

/// A fleet with two saved versions of a baseline that has a seal.
fn scene_with_saved_versions() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::file(BASELINE))]);
    scene.run_ok(&["seal", "--all"]);
    scene.run_ok(&["baseline", "replace", "brief", "short", "scout"]);
    scene.run_ok(&["baseline", "replace", "short", "exact", "scout"]);
    scene
}

/// Returns the files that a killed command has left beside baselines and in the archive's own
/// directory.
fn leftovers(scene: &Scene) -> Vec<String> {
    let directories = [
        scene.fleet.root.join("baselines"),
        scene.fleet.archive.clone(),
        scene.fleet.archive.join(".shepherd"),
    ];
    let entries = directories.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| is_temporary(name) || name == "replacing.json")
        .collect()
}

fn check_no_leftovers(scene: &Scene, command: &str) -> CheckResult {
    let left = leftovers(scene);
    check(left.is_empty(), || format!("{command} left {left:?}"))
}

#[test]
fn killed_and_repeated_restore_does_not_toggle() {
    if !can_trace() {
        return;
    }
    let command = "baseline restore scout --version previous";
    let path = |scene: &Scene| scene.fleet.baseline_path("scout");
    KillSweep {
        name: command,
        scene: &scene_with_saved_versions,
        run: &|_| words(command),
        check_recovery: &|scene| {
            let records = scene.records();
            let is_recorded = records.last().unwrap()["act"] == "restore";
            let journal = scene.fleet.archive.join(".shepherd/replacing.json");
            if is_recorded && !journal.exists() {
                return Ok(());
            }
            let said = repeat(scene, command)?;
            let text = fs::read_to_string(path(scene)).unwrap();
            check(text.contains("- be short"), || format!("{text:?}: {said}"))?;
            check_no_leftovers(scene, command)
        },
        quick_points: 12,
    }
    .kill_at_each_point();
}

#[test]
fn killed_and_repeated_command_leaves_no_litter() {
    if !can_trace() {
        return;
    }
    for command in [
        "guard --once",
        "baseline restore scout",
        "baseline replace exact right scout",
        "seal scout",
    ] {
        KillSweep {
            name: command,
            scene: &|| {
                let scene = scene_with_saved_versions();
                if command == "guard --once" {
                    // The guard keeps the seal anew.
                    fs::remove_file(scene.fleet.archive.join(".shepherd/seal.json")).unwrap();
                }
                scene
            },
            run: &|_| words(command),
            check_recovery: &|scene| {
                let words: Vec<&str> = command.split(' ').collect();
                scene.fleet.run(&words);
                check_no_leftovers(scene, command)
            },
            quick_points: 10,
        }
        .kill_at_each_point();
    }
}
