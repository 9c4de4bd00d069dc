//! The search index, killed at every call while it is built or brought up to date: the next search
//! finds every entry, and the index again.

use std::fs;

use super::crash::KillSweep;
use super::fixture::BASELINE;
use super::scene::{CheckResult, InitialMemory, Scene, check, output_text};
use super::strace::{can_trace, record_changing_calls, run_traced};

const SEARCH: &[&str] = &[
    "archive",
    "search",
    "walrus in:archive",
    "--order",
    "oldest",
];

/// Entries with the word, in two directories.
const ENTRY_COUNT: usize = 12;

fn write_entries(scene: &Scene, minutes: std::ops::Range<usize>) {
    for minute in minutes {
        let agent = ["ranger", "scout"][minute % 2];
        let directory = scene.fleet.archive.join(agent);
        fs::create_dir_all(&directory).unwrap();
        let name = format!("2025-01-02_03{minute:02}.md");
        fs::write(
            directory.join(name),
            format!("a walrus, seen at {minute}\n"),
        )
        .unwrap();
    }
}

/// An archive without an index.
fn unindexed_scene() -> Scene {
    let scene = Scene::new(&["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE))));
    write_entries(&scene, 0..ENTRY_COUNT);
    scene
}

/// An archive whose index lacks entries, and has one that is gone.
fn outdated_scene() -> Scene {
    let scene = Scene::new(&["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE))));
    write_entries(&scene, 0..ENTRY_COUNT / 2);
    write_entries(&scene, 50..51);
    scene.run_ok(SEARCH);
    fs::remove_file(scene.fleet.archive.join("ranger/2025-01-02_0350.md")).unwrap();
    write_entries(&scene, ENTRY_COUNT / 2..ENTRY_COUNT);
    scene
}

/// Checks that a search finds all entries, by the index.
fn check_search(scene: &Scene) -> CheckResult {
    let output = scene.fleet.run(SEARCH);
    let found = String::from_utf8_lossy(&output.stdout);
    let expected: String = (0..ENTRY_COUNT)
        .map(|minute| {
            let agent = ["ranger", "scout"][minute % 2];
            format!("{agent}/2025-01-02_03{minute:02}.md:1:a walrus, seen at {minute}\n")
        })
        .collect();
    check(output.status.success() && found == expected, || {
        format!("found {}", output_text(&output))
    })?;
    let notes = String::from_utf8_lossy(&output.stderr);
    check(notes.is_empty(), || format!("noted {notes}"))
}

fn sweep(name: &str, scene: &dyn Fn() -> Scene) {
    if !can_trace() {
        return;
    }
    KillSweep {
        name,
        scene,
        run: &|_| SEARCH.iter().map(|word| word.to_string()).collect(),
        check_recovery: &|scene| {
            check_search(scene)?;
            // What the next search left is whole as well.
            check_search(scene)
        },
        quick_points: 24,
    }
    .kill_at_points(&record_changing_calls(&scene(), SEARCH));
}

#[test]
fn kill_at_any_call_of_a_new_index_hides_no_entry() {
    sweep("new index", &unindexed_scene);
}

#[test]
fn kill_at_any_call_of_an_update_hides_no_entry() {
    sweep("index update", &outdated_scene);
}

#[test]
fn unreadable_entry_is_named_and_found_again() {
    if !can_trace() {
        return;
    }
    let unreadable = "ranger/2025-01-02_0300.md";
    for (scene, command) in [
        (unindexed_scene(), SEARCH),
        // The index has the entry; a search reads it again.
        (outdated_scene(), SEARCH),
        (unindexed_scene(), &["archive", "reindex"][..]),
    ] {
        let path = scene.fleet.archive.join(unreadable).display().to_string();
        let options = ["-P", &path, "-e", "inject=read,pread64:error=EIO"].map(str::to_string);
        let output = run_traced(&scene.fleet, &scene.trace_log, &options, command);
        let shown = output_text(&output);
        assert_eq!(output.status.code(), Some(3), "{shown}");
        assert!(shown.contains(unreadable), "{shown}");
        check_search(&scene).unwrap();
    }
}
