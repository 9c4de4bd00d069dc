//! Writes to entries of the layout `drover` without a config that are killed at every call: each file is
//! the old one or the new one, and the next write finishes all of them or none.

use std::fs;
use std::path::PathBuf;

use super::crash::KillSweep;
use super::edited_files::{Tree, read_tree};
use super::fixture::BASELINE;
use super::scene::{CheckResult, InitialMemory, Scene, assert_ok, check, output_text};
use super::strace::can_trace;

const ID: &str = "01HF7YAT00AAAAAAAAAAAAAAAA";
const NEXT_ID: &str = "01HF7YAT00BBBBBBBBBBBBBBBB";

/// Writes of one file, of none that stays, and of two files.
const WRITES: [(&str, &[&str]); 3] = [
    (
        "drover-put",
        &[
            "put",
            "--scope",
            "agent",
            "--agent-id",
            "w",
            "--kind",
            "user",
            "--summary",
            "new",
            "--body",
            "new",
            "--id",
            ID,
        ],
    ),
    ("drover-forget", &["forget", ID]),
    ("drover-move", &["move", ID, "--scope", "global"]),
];

fn root(scene: &Scene) -> PathBuf {
    scene.fleet.root.join("store")
}

fn entry_scene() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::file(BASELINE))]);
    let directory = root(&scene).join("agents/w");
    fs::create_dir_all(&directory).unwrap();
    fs::create_dir(root(&scene).join("global")).unwrap();
    let entry = format!("---\nid: {ID}\nkind: user\nsummary: old\ncreatedAt: 5\n---\n\nold\n");
    fs::write(directory.join(format!("{ID}.md")), entry).unwrap();
    scene
}

/// Returns the arguments of a write on the entries of a scene, at an instant that does not change.
fn arguments(scene: &Scene, write: &[&str]) -> Vec<String> {
    let root = root(scene).display().to_string();
    let mut words = vec!["drover".to_string()];
    words.extend(write.iter().map(|word| word.to_string()));
    words.extend(["--dir".to_string(), root]);
    words.extend(["--now", "2026-01-01T00:00:00Z"].map(str::to_string));
    words
}

fn run(scene: &Scene, write: &[&str]) -> std::process::Output {
    let words = arguments(scene, write);
    scene
        .fleet
        .run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the files of entries, and the names of what runs left.
fn entries(scene: &Scene) -> (Tree, Vec<PathBuf>) {
    let tree = read_tree(&root(scene));
    let is_left = |path: &PathBuf| {
        let mut parts = path
            .components()
            .map(|part| part.as_os_str().to_string_lossy());
        parts.any(|part| part.starts_with(".shepherd-"))
    };
    let left = tree.keys().filter(|path| is_left(path)).cloned().collect();
    let entries = tree.into_iter().filter(|(path, _)| !is_left(path));
    (entries.collect(), left)
}

/// Checks the files that an interrupted write left, and those after the next write.
fn check_after_write(scene: &Scene, write: &[&str]) -> CheckResult {
    let before = entries(&entry_scene()).0;
    let undisturbed = entry_scene();
    assert_ok(&run(&undisturbed, write));
    let after = entries(&undisturbed).0;
    for (path, bytes) in entries(scene).0 {
        let is_old_or_new = before.get(&path) == Some(&bytes) || after.get(&path) == Some(&bytes);
        check(is_old_or_new, || {
            format!("{} is neither old nor new", path.display())
        })?;
    }
    let next = [
        "put",
        "--scope",
        "global",
        "--kind",
        "user",
        "--summary",
        "next",
        "--body",
        "next",
        "--id",
        NEXT_ID,
    ];
    let output = run(scene, &next);
    check(output.status.success(), || {
        format!("the next write: {}", output_text(&output))
    })?;
    let (mut found, left) = entries(scene);
    let written = found.remove(&PathBuf::from(format!("global/{NEXT_ID}.md")));
    check(written.is_some(), || {
        "the next write wrote nothing".to_string()
    })?;
    check(found == before || found == after, || {
        format!("neither all nor nothing: {found:#?}")
    })?;
    // A directory without a journal may be that of a run that begins.
    let has_journal = left
        .iter()
        .any(|path| path.extension().is_some_and(|it| it == "json"));
    check(!has_journal, || format!("a journal is left: {left:?}"))?;
    let is_kept = left
        .iter()
        .any(|path| path.to_string_lossy().contains("-kept"));
    check(!is_kept, || format!("no other program wrote: {left:?}"))
}

#[test]
fn kill_at_any_call_leaves_all_or_nothing() {
    if !can_trace() {
        return;
    }
    for (name, write) in WRITES {
        KillSweep {
            name,
            scene: &entry_scene,
            run: &|scene| arguments(scene, write),
            check_recovery: &|scene| check_after_write(scene, write),
            quick_points: 24,
        }
        .kill_at_each_point();
    }
}

#[test]
fn undisturbed_direct_write_passes_the_checks() {
    for (_, write) in WRITES {
        let scene = entry_scene();
        assert_ok(&run(&scene, write));
        check_after_write(&scene, write).unwrap();
        assert!(entries(&scene).1.is_empty(), "{:?}", entries(&scene).1);
    }
}
