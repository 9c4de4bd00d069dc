//! Directories of the archive: no file is put into one before the directory's name is on the disk,
//! also where the run that created it failed or was killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::crash::is_killed;
use super::fixture::is_root;
use super::scene::{InitialMemory, Scene, output_text};
use super::strace::{self, can_trace, injection_options};
use crate::skip::skip_unsupported;

const RESET: &[&str] = &["reset", "--all"];

fn scene_with_note() -> Scene {
    Scene::new(&[("scout", InitialMemory::scratch("- a note\n"))])
}

/// Returns the directories that a first run creates, each with the number of the sync that makes
/// its name durable.
fn created_directories() -> Vec<(String, usize)> {
    let scene = scene_with_note();
    let (output, calls) = strace::record_calls(&scene.fleet, &scene.trace_log, RESET);
    assert!(output.status.success(), "{}", output_text(&output));
    let mut made = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        if call.name == "mkdirat" && call.text.ends_with(" = 0") {
            let name = call.text.split('"').nth(1).unwrap().to_string();
            let sync = calls[at..].iter().find(|call| call.name == "fsync");
            made.push((name, sync.unwrap().occurrence));
        }
    }
    assert!(made.len() >= 4, "{made:?}");
    made
}

/// Returns the directory of this name that is the archive or inside it.
fn find_directory(archive: &Path, name: &str) -> Option<PathBuf> {
    if !archive.is_dir() || archive.ends_with(name) {
        return archive.is_dir().then(|| archive.to_path_buf());
    }
    let items = fs::read_dir(archive).unwrap();
    items
        .flatten()
        .find_map(|item| find_directory(&item.path(), name))
}

#[test]
fn directory_with_failed_sync_is_removed() {
    if !can_trace() {
        return;
    }
    for (name, sync) in created_directories() {
        let scene = scene_with_note();
        let mut options = injection_options("fsync", "error=EIO", sync, false);
        options[0] = "--trace=fsync,unlinkat".to_string();
        let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET);
        assert!(!output.status.success(), "{name}: {}", output_text(&output));
        assert!(
            output_text(&output).contains("input/output error"),
            "{name}"
        );
        // The same run may create it again, for its log or its ledger.
        let log = fs::read_to_string(&scene.trace_log).unwrap();
        let mut calls = log.lines().skip_while(|line| !line.contains("(INJECTED)"));
        let removed = format!("{name:?}, AT_REMOVEDIR)");
        let next = calls.nth(1).unwrap();
        let done = next.contains(&removed) && next.ends_with(" = 0");
        assert!(done, "{name}: {log}");
        let output = scene.fleet.run(RESET);
        assert!(output.status.success(), "{name}: {}", output_text(&output));
    }
}

#[test]
fn directory_of_killed_run_is_synced_before_use() {
    // Users other than root cannot open a directory that they cannot write.
    if !is_root() {
        return skip_unsupported("needs root");
    }
    if !can_trace() {
        return;
    }
    for (name, sync) in created_directories() {
        let scene = scene_with_note();
        let options = injection_options("fsync", "signal=KILL", sync, false);
        assert!(is_killed(&strace::run_traced(
            &scene.fleet,
            &scene.trace_log,
            &options,
            RESET
        )));
        let directory = find_directory(&scene.fleet.archive, &name).unwrap();
        let options = ["-y", "--trace=fsync,fchmod"].map(str::to_string);
        let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET);
        assert!(output.status.success(), "{name}: {}", output_text(&output));
        let mode = fs::metadata(&directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{name}");
        let log = fs::read_to_string(&scene.trace_log).unwrap();
        let at = |call: &str, path: &Path| {
            let path = format!("<{}>", path.display());
            let of = |line: &&str| line.contains(call) && line.contains(&path);
            log.lines().position(|line| of(&line))
        };
        let synced = at("fsync(", directory.parent().unwrap());
        let dressed = at("fchmod(", &directory);
        assert!(synced.is_some() && dressed.is_some(), "{name}: {log}");
        assert!(synced < dressed, "{name}: {log}");
    }
}
