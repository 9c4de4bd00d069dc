//! Edits of several files of an agent that are killed, or lose the power, at every call: each file is
//! the old one or the new one, and the next run finishes all of them or none.

use std::fs;
use std::path::PathBuf;

use memory_shepherd::engine::Engine;

use super::crash::KillSweep;
use super::edited_files::{Tree, edited, edits, read_tree, write_notes};
use super::edits::{EDIT, is_frame};
use super::fixture::BASELINE;
use super::scene::{CheckResult, InitialMemory, Scene, assert_ok, check, output_text};
use super::strace::{self, can_trace};

/// The agent whose files are edited.
const AGENT: &str = "scout";

/// Edits of one, two and five files.
pub const EDITS: [(&str, usize); 3] = [("files-1", 1), ("files-2", 2), ("files-5", 5)];

/// Applies an edit of `count` files of the agent.
pub fn apply(engine: &Engine, count: usize) {
    let memory = engine.agent(AGENT).unwrap().observed_path();
    let root = memory.parent().unwrap();
    let plan = engine
        .planner()
        .plan_edit(AGENT, root, &edits(count), None, false)
        .unwrap();
    let report = engine
        .runs()
        .apply_plan(&plan, true, &Default::default(), &mut |_| {});
    assert_eq!(report.worst_kind(), None, "{report:?}");
}

/// Writes the files of the agent.
pub fn prepare(scene: &mut Scene) {
    write_notes(&scene.fleet.agent_directory(AGENT));
}

fn edit_scene() -> Scene {
    let mut scene = Scene::new(&[(AGENT, InitialMemory::file(BASELINE))]);
    prepare(&mut scene);
    scene
}

/// Returns the files of the agent before any edit.
fn tree_before() -> Tree {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("MEMORY.md"), BASELINE).unwrap();
    write_notes(directory.path());
    read_tree(directory.path())
}

/// Checks the files that an interrupted edit of `count` files left, their recovery by the next run, and
/// the undo of a finished edit.
pub fn check_after_edit(scene: &Scene, count: usize) -> CheckResult {
    let root = scene.fleet.agent_directory(AGENT);
    let before = tree_before();
    let after = edited(before.clone(), &edits(count));
    let found = read_tree(&root);
    for (path, bytes) in &found {
        let name = path.file_name().unwrap().to_string_lossy();
        let is_old_or_new = before.get(path) == Some(bytes) || after.get(path) == Some(bytes);
        check(is_old_or_new || name.starts_with(".shepherd-"), || {
            format!("{} is neither old nor new", path.display())
        })?;
    }
    let missing: Vec<&PathBuf> = before
        .keys()
        .filter(|path| after.contains_key(*path) && !found.contains_key(*path))
        .collect();
    check(missing.is_empty(), || format!("{missing:?} are gone"))?;
    let output = scene.fleet.run(&["reset", AGENT]);
    check(output.status.success(), || {
        format!("the next run: {}", output_text(&output))
    })?;
    let left = read_tree(&root);
    let is_finished = left == after;
    check(is_finished || left == before, || {
        format!(
            "neither all nor nothing: {left:#?}\n{}",
            output_text(&output)
        )
    })?;
    let pending = scene.fleet.pending_journals();
    check(pending.is_empty(), || format!("still pending: {pending:?}"))?;
    let done = scene
        .fleet
        .records()
        .into_iter()
        .filter(|it| it["act"] == "edit" && it["outcome"] == "ok")
        .count();
    check(done == usize::from(is_finished), || {
        format!("{done} edits are recorded")
    })?;
    if is_finished {
        let output = scene.fleet.run(&["undo", AGENT]);
        let left = read_tree(&root);
        check(output.status.success() && left == before, || {
            format!("the undo: {}\n{left:#?}", output_text(&output))
        })?;
    }
    let output = scene.fleet.run(&["verify"]);
    check(output.status.success(), || output_text(&output))
}

#[test]
fn kill_at_any_call_of_an_edit_leaves_all_or_nothing() {
    if !can_trace() {
        return;
    }
    for (name, count) in EDITS {
        let words = [EDIT, name];
        let mut calls = strace::record_changing_calls(&edit_scene(), &words);
        calls.retain(|call| !is_frame(call));
        KillSweep {
            name,
            scene: &edit_scene,
            run: &|_| words.map(str::to_string).to_vec(),
            check_recovery: &|scene| check_after_edit(scene, count),
            quick_points: 24,
        }
        .kill_at_points(&calls);
    }
}

#[test]
fn undisturbed_edit_passes_the_checks() {
    for (name, count) in EDITS {
        let scene = edit_scene();
        assert_ok(&scene.fleet.run(&[EDIT, name]));
        check_after_edit(&scene, count).unwrap();
    }
}
