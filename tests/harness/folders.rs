//! Folders of the archive: nothing is put into one before its name is on the
//! disk, also where the run that made it failed or was killed before.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::crash::is_killed;
use super::fixture::is_root;
use super::scene::{Had, Scene, said};
use super::trace::{self, can_trace, inject};

const RESET: &[&str] = &["reset", "--all"];

fn scene() -> Scene {
    Scene::new(&[("scout", Had::scratch("- a note\n"))])
}

/// The folders that a first run makes, each with the number of the sync that
/// puts its name on the disk.
fn made() -> Vec<(String, usize)> {
    let scene = scene();
    let (output, calls) = trace::record(&scene.fleet, &scene.log, RESET);
    assert!(output.status.success(), "{}", said(&output));
    let mut made = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        if call.name == "mkdirat" && call.text.ends_with(" = 0") {
            let name = call.text.split('"').nth(1).unwrap().to_string();
            let sync = calls[at..].iter().find(|call| call.name == "fsync");
            made.push((name, sync.unwrap().nth));
        }
    }
    assert!(made.len() >= 4, "{made:?}");
    made
}

/// The folder of this name that is the archive or inside it.
fn find(archive: &Path, name: &str) -> Option<PathBuf> {
    if !archive.is_dir() || archive.ends_with(name) {
        return archive.is_dir().then(|| archive.to_path_buf());
    }
    let items = fs::read_dir(archive).unwrap();
    items.flatten().find_map(|item| find(&item.path(), name))
}

#[test]
fn a_folder_whose_name_did_not_come_to_the_disk_does_not_stay() {
    if !can_trace() {
        return;
    }
    for (name, sync) in made() {
        let scene = scene();
        let mut options = inject("fsync", "error=EIO", sync, false);
        options[0] = "--trace=fsync,unlinkat".to_string();
        let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
        assert!(!output.status.success(), "{name}: {}", said(&output));
        assert!(said(&output).contains("input/output error"), "{name}");
        // The same run may make it once more, for its log or its ledger.
        let log = fs::read_to_string(&scene.log).unwrap();
        let mut calls = log.lines().skip_while(|line| !line.contains("(INJECTED)"));
        let removed = format!("{name:?}, AT_REMOVEDIR)");
        let next = calls.nth(1).unwrap();
        let done = next.contains(&removed) && next.ends_with(" = 0");
        assert!(done, "{name}: {log}");
        let output = scene.fleet.run(RESET);
        assert!(output.status.success(), "{name}: {}", said(&output));
    }
}

#[test]
fn a_folder_that_a_killed_run_made_is_synced_before_it_is_used() {
    // Others may not look into what they cannot write.
    if !can_trace() || !is_root() {
        return;
    }
    for (name, sync) in made() {
        let scene = scene();
        let options = inject("fsync", "signal=KILL", sync, false);
        assert!(is_killed(&trace::run(
            &scene.fleet,
            &scene.log,
            &options,
            RESET
        )));
        let folder = find(&scene.fleet.archive, &name).unwrap();
        let options = ["-y", "--trace=fsync,fchmod"].map(str::to_string);
        let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
        assert!(output.status.success(), "{name}: {}", said(&output));
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{name}");
        let log = fs::read_to_string(&scene.log).unwrap();
        let at = |call: &str, path: &Path| {
            let path = format!("<{}>", path.display());
            let of = |line: &&str| line.contains(call) && line.contains(&path);
            log.lines().position(|line| of(&line))
        };
        let synced = at("fsync(", folder.parent().unwrap());
        let dressed = at("fchmod(", &folder);
        assert!(synced.is_some() && dressed.is_some(), "{name}: {log}");
        assert!(synced < dressed, "{name}: {log}");
    }
}
