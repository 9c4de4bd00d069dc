//! Runs with secrets in the notes that are killed at every call: no file that others than the
//! archive's owner may read ever holds a secret, except the agent's own files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use super::archive::{files_below, fleet_with_group};
use super::crash::KillSweep;
use super::fixture::{BASELINE, is_root};
use super::scene::{
    CheckResult, InitialMemory, RESET_ALL, Scene, assert_ok, check, is_temporary, output_text,
};
use super::strace::can_trace;

/// Shape of a key that no service gave out.
pub const KEY: &str = "ghp_R8sK2mVq0ZtYw5LxN3bHc7JdPfGa9Ue1Ti4X";

/// Returns an agent with these notes, whose entries others may read.
pub fn scene_with(policy: &str, notes: &str) -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::scratch(notes))]);
    set_policy(&scene, policy);
    scene
}

/// Makes the entries of a scene readable by others, but for those with findings.
pub fn set_policy(scene: &Scene, policy: &str) {
    let path = scene.fleet.config_path();
    let config = fs::read_to_string(&path).unwrap();
    let group = if is_root() {
        "archive_group = daemon\n"
    } else {
        ""
    };
    let general = format!("[general]\narchive_mode = 0644\n{group}archive_findings = {policy}\n");
    fs::write(path, config.replace("[general]\n", &general)).unwrap();
}

fn has_key(path: &PathBuf) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes.windows(KEY.len()).any(|it| it == KEY.as_bytes())
}

/// Checks that only the owner may read the files with the key.
fn check_exposure(scene: &Scene) -> CheckResult {
    let archive = Some(&scene.fleet.archive).filter(|it| it.exists());
    let files = archive.map_or_else(Vec::new, |it| files_below(it));
    let is_open = |path: &&PathBuf| fs::metadata(path).unwrap().mode() & 0o077 != 0;
    let exposed: Vec<_> = files
        .iter()
        .filter(is_open)
        .filter(|it| has_key(it))
        .collect();
    check(exposed.is_empty(), || format!("exposed: {exposed:?}"))
}

fn run_checked(scene: &Scene, words: &[&str]) -> CheckResult {
    let output = scene.fleet.run(words);
    check(output.status.code() == Some(0), || {
        format!("{words:?}: {}", output_text(&output))
    })
}

/// Checks the state after a kill, after the next run, and after an undo of the reset.
pub fn check_recovery(scene: &Scene, notes: &str) -> CheckResult {
    check_exposure(scene).map_err(|why| format!("immediately: {why}"))?;
    run_checked(scene, RESET_ALL)?;
    check_exposure(scene).map_err(|why| format!("after the next run: {why}"))?;
    check(scene.fleet.pending_journals().is_empty(), || {
        format!("left: {:?}", scene.fleet.pending_journals())
    })?;
    run_checked(scene, &["verify"])?;
    let records = scene.records();
    let last = records.iter().rfind(|it| it["entry"].is_object()).unwrap();
    let path = last["entry"]["path"].as_str().unwrap();
    let is_bad = notes.contains(KEY);
    let has_findings = last["entry"]["findings"]["secrets"] == 1;
    check(
        path.contains("/quarantine/") == is_bad && has_findings == is_bad,
        || format!("recorded as {}", last["entry"]),
    )?;
    run_checked(scene, &["undo", "scout"])?;
    let restored = scene.read_memory("scout").unwrap();
    check(restored == format!("{BASELINE}{notes}").as_bytes(), || {
        "the undo restored something else".to_string()
    })?;
    check_exposure(scene).map_err(|why| format!("after an undo: {why}"))?;
    run_checked(scene, &["verify"])
}

#[test]
fn kill_in_quarantine_mode_exposes_no_secret() {
    if !can_trace() {
        return;
    }
    for policy in ["quarantine", "redact-copy"] {
        let notes = format!("- the key is {KEY}\n");
        KillSweep {
            name: &format!("reset with a secret, {policy}"),
            scene: &|| scene_with(policy, &notes),
            run: &|_| RESET_ALL.iter().map(ToString::to_string).collect(),
            check_recovery: &|scene| check_recovery(scene, &notes),
            quick_points: 16,
        }
        .kill_at_each_point();
    }
}

#[test]
fn kill_during_release_of_entry_is_recovered() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "reset without a secret, quarantine",
        scene: &|| scene_with("quarantine", "- note\n"),
        run: &|_| RESET_ALL.iter().map(ToString::to_string).collect(),
        check_recovery: &|scene| {
            check_recovery(scene, "- note\n")?;
            // A run that is killed before its record exists leaves an entry that no record names.
            let directory = scene.fleet.archive.join("scout/quarantine");
            let names = files_below(&directory).into_iter().filter(|path| {
                !is_temporary(&path.file_name().unwrap_or_default().to_string_lossy())
            });
            check(names.count() <= 1, || {
                "entries are left in quarantine".to_string()
            })
        },
        quick_points: 16,
    }
    .kill_at_each_point();
}

#[test]
fn group_member_verifies_all_but_quarantine() {
    let Some((_temporary, fleet, group)) = fleet_with_group(&["scout"]) else {
        return;
    };
    let path = fleet.config_path();
    let config = fs::read_to_string(&path).unwrap();
    let general = "[general]\narchive_findings = quarantine\n";
    fs::write(path, config.replace("[general]\n", general)).unwrap();
    drop(fleet.append_note("scout", BASELINE));
    drop(fleet.append_note("scout", &format!("- the key is {KEY}\n")));
    assert_ok(&fleet.run(RESET_ALL));
    let mut command = fleet.command(&[], &["verify"]);
    let output = command.uid(65_534).gid(group).output().unwrap();
    let text = output_text(&output);
    assert!(
        text.contains("in the quarantine of scout NOT checked"),
        "{text}"
    );
    assert!(!text.contains("Permission denied"), "{text}");
    assert_ok(&output);
}
