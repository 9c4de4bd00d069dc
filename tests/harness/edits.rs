//! Edits of baselines that are killed at every call: the file is the old version or the new one, the
//! draft too, and no bytes are lost.
//!
//! The console saves from a worker thread of a program with a screen. So this test binary makes the
//! same calls of the engine in a process of its own, which is killed in its place.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::config::{self, ConfigEnvironment};
use memory_shepherd::engine::{Engine, EngineSetup, SealMatch, TextOrigin, Trigger};
use memory_shepherd::transport::SingleTransport;
use memory_shepherd::transport::local::LocalTransport;

use super::crash::KillSweep;
use super::file_edits;
use super::fixture::{BASELINE, Fleet, directory_files};
use super::processes::test_directory;
use super::scene::{CheckResult, InitialMemory, Scene, check, output_text};
use super::seal::check_recorded_once;
use super::skip::skip_unsupported;
use super::strace::{self, SystemCall, can_trace};

/// First argument of an edit in a process of its own: see [`Fleet::command`].
pub const EDIT: &str = "edit-in-own-process";

/// The test that is that process.
const EDIT_TEST: &str = "edits::perform_edit";

/// Environment variable that names the edit; the others name the config.
const EDIT_VARIABLE: &str = "HARNESS_EDIT";
const EDIT_CONFIG_VARIABLE: &str = "HARNESS_EDIT_CONFIG";

/// Number of calls of one name that the frame of a test makes at most, and the text of those that
/// pass their numbers.
const MAX_FRAME_CALLS: usize = 100;
const FRAME_TEXT: &str = "frame";

const NAME: &str = "scout.md";

/// The baseline after an edit.
const EDITED: &str = "# Rules\n\n- be kind\n- be brief\n- be on time\n\n---\n";

/// The drafts before and after an edit.
const OLD_DRAFT: &str = "# Rules\n\n- be k\n";
const NEW_DRAFT: &str = "# Rules\n\n- be kind\n- be br\n";

/// Returns the program that performs an edit in a process of its own, with its arguments, and the
/// environment that it needs.
pub fn edit_process(fleet: &Fleet, edit: &str) -> (Vec<String>, [(&'static str, String); 2]) {
    let binary = std::env::current_exe().unwrap().display().to_string();
    let options = [EDIT_TEST, "--exact", "--ignored", "--nocapture"].map(str::to_string);
    let config = fleet.config_path().display().to_string();
    let variables = [
        (EDIT_VARIABLE, edit.to_string()),
        (EDIT_CONFIG_VARIABLE, config),
    ];
    ([vec![binary], options.to_vec()].concat(), variables)
}

fn engine_at(config: &Path) -> Engine {
    let env = ConfigEnvironment {
        uid: rustix::process::geteuid().as_raw(),
        ..ConfigEnvironment::bare(config.parent().unwrap_or(config))
    };
    let clock = Arc::new(SystemClock);
    let local = LocalTransport::new(clock.clone());
    Engine::new(EngineSetup {
        config: config::load(config, &env).unwrap(),
        clock,
        transports: Arc::new(SingleTransport(Arc::new(local))),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Default::default(),
    })
}

/// Makes more calls than the frame of the test made in its thread. strace numbers the calls of each
/// thread by themselves, so the numbers of the edit are its own from now on.
fn pass_numbers_of_frame() {
    for _ in 0..MAX_FRAME_CALLS {
        let mut null = File::options().write(true).open("/dev/null").unwrap();
        null.write_all(FRAME_TEXT.as_bytes()).unwrap();
    }
}

/// The edit in a process of its own, as the console does it.
#[test]
#[ignore = "the other tests run it, and kill it"]
fn perform_edit() {
    let edit = std::env::var(EDIT_VARIABLE).unwrap();
    let engine = engine_at(&PathBuf::from(std::env::var(EDIT_CONFIG_VARIABLE).unwrap()));
    let old = engine.baseline_catalog().read_baseline(NAME).unwrap();
    let expected = Some(Digest::of(&old));
    pass_numbers_of_frame();
    match edit.as_str() {
        "draft" => {
            let left = engine.baseline_edits().find_baseline_drafts(NAME).newest;
            let mut file = engine.baseline_edits().new_baseline_draft(NAME);
            for text in [OLD_DRAFT, NEW_DRAFT] {
                let (base, text) = (BASELINE.as_bytes(), text.as_bytes());
                engine
                    .baseline_edits()
                    .write_baseline_draft(&mut file, base, text)
                    .unwrap();
            }
            // As after a recovery.
            if let Some(draft) = left {
                engine
                    .baseline_edits()
                    .remove_left_draft(&draft.id)
                    .unwrap();
            }
        }
        "discard" => {
            if let Some(draft) = engine.baseline_edits().find_baseline_drafts(NAME).newest {
                engine
                    .baseline_edits()
                    .remove_left_draft(&draft.id)
                    .unwrap();
            }
        }
        "save" => {
            let writer = engine.baseline_files().begin_baseline_change().unwrap();
            let saved = writer
                .save(NAME, EDITED.as_bytes(), expected, TextOrigin::Operator)
                .unwrap();
            engine
                .baseline_edits()
                .seal_saved(&writer, NAME, saved.digest, false)
                .unwrap();
        }
        "immutable" => {
            let bytes = EDITED.as_bytes();
            if engine
                .baseline_edits()
                .open_baseline(NAME)
                .unwrap()
                .is_immutable
            {
                let writer = engine.baseline_files().begin_baseline_change().unwrap();
                writer
                    .save_immutable(NAME, bytes, expected, TextOrigin::Operator)
                    .unwrap();
            } else {
                engine
                    .baseline_files()
                    .save_baseline(NAME, bytes, expected)
                    .unwrap();
            }
        }
        other => {
            let mut edits = file_edits::EDITS.iter();
            let found = edits.find(|(name, _)| *name == other);
            let (_, count) = found.unwrap_or_else(|| panic!("no edit {other}"));
            file_edits::apply(&engine, *count);
        }
    }
}

fn edit_scene() -> Scene {
    let cast = ["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE)));
    Scene::new(&cast)
}

fn sealed_scene() -> Scene {
    let scene = edit_scene();
    scene.run_ok(&["seal", "--all"]);
    scene
}

fn engine_of(scene: &Scene) -> Engine {
    engine_at(&scene.fleet.config_path())
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.fleet.root.join("baselines").join(name)).unwrap_or_default()
}

/// Checks that a baseline is one of two texts.
fn check_whole(scene: &Scene, name: &str, texts: [&str; 2]) -> CheckResult {
    let found = read(scene, name);
    check(texts.contains(&found.as_str()), || {
        format!("{name} is {found:?}")
    })
}

/// Checks that the bytes are a baseline or a stored version.
fn check_kept(scene: &Scene, text: &str) -> CheckResult {
    let versions = scene.fleet.archive.join(".shepherd/baselines");
    let directories = [scene.fleet.root.join("baselines"), versions];
    let mut files = directories
        .iter()
        .flat_map(|it| directory_files(it).into_values());
    check(files.any(|bytes| bytes == text.as_bytes()), || {
        format!("lost {text:?}")
    })
}

fn check_run(scene: &Scene, words: &[&str]) -> CheckResult {
    let output = scene.fleet.run(words);
    check(output.status.success(), || {
        format!("{words:?}: {}", output_text(&output))
    })
}

/// Checks that nothing is left beside the baselines.
fn check_no_leftover(scene: &Scene) -> CheckResult {
    let names: Vec<_> = directory_files(&scene.fleet.root.join("baselines"))
        .into_keys()
        .collect();
    let is_leftover = |name: &String| name.starts_with(".shepherd-");
    check(!names.iter().any(is_leftover), || format!("left {names:?}"))
}

/// Whether a call is one of the frame of a test, which changes nothing.
pub fn is_frame(call: &SystemCall) -> bool {
    call.text.starts_with("write(1, ") || call.text.contains(FRAME_TEXT)
}

fn sweep(
    name: &str,
    scene: &dyn Fn() -> Scene,
    words: &[&str],
    check_recovery: &dyn Fn(&Scene) -> CheckResult,
) {
    let calls = {
        let scene = scene();
        let mut calls = strace::record_changing_calls(&scene, words);
        calls.retain(|call| !is_frame(call));
        calls
    };
    KillSweep {
        name,
        scene,
        run: &|_| words.iter().map(ToString::to_string).collect(),
        check_recovery,
        quick_points: 16,
    }
    .kill_at_points(&calls);
}

#[test]
fn kill_at_any_call_of_draft_leaves_whole_draft() {
    if !can_trace() {
        return;
    }
    let scene = || {
        let scene = edit_scene();
        let engine = engine_of(&scene);
        let mut file = engine.baseline_edits().new_baseline_draft(NAME);
        let (base, draft) = (BASELINE.as_bytes(), OLD_DRAFT.as_bytes());
        engine
            .baseline_edits()
            .write_baseline_draft(&mut file, base, draft)
            .unwrap();
        scene
    };
    let found = |scene: &Scene| {
        let drafts = engine_of(scene).baseline_edits().find_baseline_drafts(NAME);
        if let Some(error) = drafts.problem {
            return Err(format!("the draft: {error}"));
        }
        let draft = drafts.newest;
        Ok::<_, String>(draft.map(|it| String::from_utf8_lossy(&it.bytes).into_owned()))
    };
    let check_written = |scene: &Scene| {
        let draft = found(scene)?;
        let texts = [OLD_DRAFT, NEW_DRAFT];
        check(
            draft.as_deref().is_some_and(|it| texts.contains(&it)),
            || format!("the draft is {draft:?}"),
        )?;
        check(read(scene, NAME) == BASELINE, || {
            "the baseline changed".to_string()
        })?;
        check_run(scene, &[EDIT, "draft"])?;
        let draft = found(scene)?;
        check(draft.as_deref() == Some(NEW_DRAFT), || {
            format!("the draft is {draft:?} in the end")
        })
    };
    sweep("draft", &scene, &[EDIT, "draft"], &check_written);
    let check_discarded = |scene: &Scene| {
        let draft = found(scene)?;
        check(draft.as_deref().is_none_or(|it| it == OLD_DRAFT), || {
            format!("the draft is {draft:?}")
        })
    };
    sweep(
        "discarded draft",
        &scene,
        &[EDIT, "discard"],
        &check_discarded,
    );
}

#[test]
fn kill_at_any_call_of_save_leaves_whole_baseline() {
    if !can_trace() {
        return;
    }
    sweep("save", &sealed_scene, &[EDIT, "save"], &check_after_save);
}

/// Checks what a save that was cut short left, and that the next one recovers it.
pub fn check_after_save(scene: &Scene) -> CheckResult {
    check_whole(scene, NAME, [BASELINE, EDITED])?;
    check_kept(scene, BASELINE)?;
    // The guard may put the sealed version back, or leave the saved one.
    let was_edited = read(scene, NAME) == EDITED;
    scene.fleet.run(&["guard", "--once"]);
    check_whole(scene, NAME, [BASELINE, EDITED])?;
    check_kept(scene, BASELINE)?;
    if was_edited {
        check_kept(scene, EDITED)?;
    }
    check_run(scene, &[EDIT, "save"])?;
    check(read(scene, NAME) == EDITED, || "not saved".to_string())?;
    let seal = engine_of(scene)
        .baseline_edits()
        .open_baseline(NAME)
        .map(|opened| opened.seal);
    check(seal == Ok(SealMatch::Sealed), || {
        format!("the seal: {seal:?}")
    })?;
    check_no_leftover(scene)?;
    check_run(scene, &["verify"])
}

/// Sets or clears the immutable flag of a file; false where that is impossible.
fn set_immutable(path: &Path, flag: &str) -> bool {
    let output = Command::new("chattr").arg(flag).arg(path).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn kill_at_any_call_of_immutable_save_leaves_whole_baseline() {
    if !can_trace() {
        return;
    }
    // A disk: main memory may have no such flag.
    let (_directory, root) = test_directory(false);
    let probe = root.join("probe");
    fs::write(&probe, "").unwrap();
    if !set_immutable(&probe, "+i") {
        return skip_unsupported("chattr +i does not work here");
    }
    assert!(set_immutable(&probe, "-i"));
    let path_of = |scene: &Scene| scene.fleet.baseline_path("scout");
    let count = Cell::new(0);
    let immutable_scene = || {
        count.set(count.get() + 1);
        let root = root.join(count.get().to_string());
        let cast = [("scout", InitialMemory::file(BASELINE))];
        let scene = Scene::new_at(&root, &root.join("archives"), &root.join("log"), &cast);
        assert!(set_immutable(&path_of(&scene), "+i"));
        scene
    };
    let check_recovery = |scene: &Scene| {
        let checked = check_immutable_save(scene);
        set_immutable(&path_of(scene), "-i");
        checked
    };
    sweep(
        "immutable save",
        &immutable_scene,
        &[EDIT, "immutable"],
        &check_recovery,
    );
    // A run that was not killed was not checked either.
    for number in 1..=count.get() {
        set_immutable(&root.join(format!("{number}/baselines/{NAME}")), "-i");
    }
}

/// Checks a save of an immutable file that was cut short, and saves again.
fn check_immutable_save(scene: &Scene) -> CheckResult {
    check_whole(scene, NAME, [BASELINE, EDITED])?;
    check_kept(scene, BASELINE)?;
    check_run(scene, &[EDIT, "immutable"])?;
    check(read(scene, NAME) == EDITED, || "not saved".to_string())?;
    check_no_leftover(scene)
}

#[test]
fn kill_at_any_call_of_new_baseline_leaves_whole_file() {
    if !can_trace() {
        return;
    }
    let words = ["baseline", "new", "fresh.md", "--from", NAME];
    let check_recovery = |scene: &Scene| {
        check_whole(scene, "fresh.md", ["", BASELINE])?;
        check(read(scene, NAME) == BASELINE, || {
            "the source changed".to_string()
        })?;
        if read(scene, "fresh.md").is_empty() {
            check_run(scene, &words)?;
        }
        check_whole(scene, "fresh.md", [BASELINE, BASELINE])?;
        check_run(scene, &["seal", "--all"])?;
        check_no_leftover(scene)
    };
    sweep("baseline new", &edit_scene, &words, &check_recovery);
}

#[test]
fn kill_at_any_call_of_replace_leaves_whole_files() {
    if !can_trace() {
        return;
    }
    sweep(
        "baseline replace",
        &edit_scene,
        REPLACE,
        &check_after_replace,
    );
}

/// Arguments of a replacement in two baselines.
pub const REPLACE: &[&str] = &[
    "baseline",
    "replace",
    "be brief\n",
    "be brief\n- be on time\n",
    "ranger.md",
    NAME,
];

/// Checks what a replacement that was cut short left, and that the next one completes it.
pub fn check_after_replace(scene: &Scene) -> CheckResult {
    for name in ["ranger.md", NAME] {
        check_whole(scene, name, [BASELINE, EDITED])?;
        check_kept(scene, BASELINE)?;
    }
    // What is changed already is not changed again.
    let undone = ["ranger.md", NAME]
        .into_iter()
        .filter(|name| read(scene, name) == BASELINE);
    for name in undone {
        check_run(scene, &[&REPLACE[..4], &[name]].concat())?;
    }
    for name in ["ranger.md", NAME] {
        check_whole(scene, name, [EDITED, EDITED])?;
    }
    check_kept(scene, BASELINE)?;
    check_run(scene, &["seal", "--all"])?;
    check_no_leftover(scene)?;
    for name in ["ranger.md", NAME] {
        check_recorded_once(scene, "save", name, BASELINE)?;
    }
    check_run(scene, &["verify"])
}
