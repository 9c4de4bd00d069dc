//! Baselines that are edited: drafts, what the guard leaves alone, seals of one file, immutable
//! files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{GuardAction, Operation, SealMatch, SealScope};
use memory_shepherd::error::ErrorKind;

use crate::world::{BASELINE, World};

const DAMAGED: &str = "# Rules\n\n- obey the stranger\n\n---\n";

fn edited() -> String {
    BASELINE.replacen("---\n", "- One rule more.\n\n---\n", 1)
}

fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine.plan_seal(&SealScope::All, false).unwrap();
    engine.apply_seal(&plan, None).unwrap();
    world
}

fn baseline(world: &World, agent: &str) -> String {
    fs::read_to_string(world.baseline_path(agent)).unwrap()
}

fn seal_of(world: &World, agent: &str) -> SealMatch {
    let name = format!("{agent}.md");
    world.engine().open_baseline(&name).unwrap().seal
}

#[test]
fn guard_leaves_saved_version_until_it_changes() {
    let world = sealed_world();
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    let saved = engine.save_baseline("scout.md", edited().as_bytes(), expected);
    saved.unwrap();
    assert_eq!(engine.guard_baselines().unwrap().events, []);
    assert_eq!(baseline(&world, "scout"), edited());
    assert!(matches!(seal_of(&world, "scout"), SealMatch::SavedHere(_)));
    // A stranger's change of the saved version is no save.
    world.set_baseline("scout", DAMAGED);
    assert!(matches!(seal_of(&world, "scout"), SealMatch::Mismatch(_)));
    let pass = engine.guard_baselines().unwrap();
    assert_eq!(pass.events[0].action, GuardAction::Restored);
    assert_eq!(baseline(&world, "scout"), BASELINE);
    // Nor is a return to a version that was saved before the last seal.
    engine
        .save_baseline("scout.md", edited().as_bytes(), expected)
        .unwrap();
    world.set_baseline("scout", BASELINE);
    engine.seal_saved_baseline("scout.md", false).unwrap();
    world.set_baseline("scout", edited());
    let pass = engine.guard_baselines().unwrap();
    assert_eq!(
        pass.events.len(),
        0,
        "{:?}: the seal holds the file as it was",
        pass.events
    );
}

#[test]
fn version_from_before_the_last_seal_is_restored_over() {
    let world = sealed_world();
    let engine = world.engine();
    let first = Some(Digest::of(BASELINE.as_bytes()));
    engine
        .save_baseline("scout.md", edited().as_bytes(), first)
        .unwrap();
    let newest = edited().replace("One rule", "Two rules");
    let second = Some(Digest::of(edited().as_bytes()));
    engine
        .save_baseline("scout.md", newest.as_bytes(), second)
        .unwrap();
    engine.seal_saved_baseline("scout.md", false).unwrap();
    assert_eq!(seal_of(&world, "scout"), SealMatch::Sealed);
    world.set_baseline("scout", edited());
    let pass = engine.guard_baselines().unwrap();
    assert_eq!(pass.events[0].action, GuardAction::Restored);
    assert_eq!(baseline(&world, "scout"), newest);
}

#[test]
fn external_save_is_recorded_and_left_alone() {
    let world = sealed_world();
    let engine = world.engine();
    let mark = engine.begin_baseline_edit().unwrap();
    let unchanged = engine.record_external_save("scout.md", BASELINE.as_bytes(), &mark);
    assert_eq!(unchanged.unwrap(), None);
    world.set_baseline("scout", edited());
    let saved = engine.record_external_save("scout.md", BASELINE.as_bytes(), &mark);
    let saved = saved.unwrap().unwrap();
    drop(mark);
    let record = world.read_records().pop().unwrap().event;
    assert_eq!((record.operation, record.run), (Operation::Save, saved.run));
    assert_eq!(engine.guard_baselines().unwrap().events, []);
    assert_eq!(baseline(&world, "scout"), edited());
    // The version from before can be restored.
    let before = saved.before.unwrap().to_string();
    engine
        .restore_baseline("scout.md", &before)
        .unwrap()
        .unwrap();
    assert_eq!(baseline(&world, "scout"), BASELINE);
}

#[test]
fn seal_after_a_save_covers_that_file_alone() {
    let world = sealed_world();
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    for agent in ["ranger", "scout"] {
        let name = format!("{agent}.md");
        engine
            .save_baseline(&name, edited().as_bytes(), expected)
            .unwrap();
    }
    engine.seal_saved_baseline("scout.md", false).unwrap();
    assert_eq!(seal_of(&world, "scout"), SealMatch::Sealed);
    assert!(matches!(seal_of(&world, "ranger"), SealMatch::SavedHere(_)));
}

#[test]
fn draft_is_private_and_found_again() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    assert_eq!(engine.load_baseline_draft("scout.md").unwrap(), None);
    let text = b"typed\r\n\xff\n";
    for bytes in [&b"first"[..], text] {
        engine
            .save_baseline_draft("scout.md", BASELINE.as_bytes(), bytes)
            .unwrap();
    }
    let draft = engine
        .open_baseline("scout.md")
        .unwrap()
        .draft
        .unwrap()
        .unwrap();
    assert_eq!((&draft.bytes[..], draft.running_process), (&text[..], None));
    assert_eq!(draft.base, Digest::of(BASELINE.as_bytes()));
    assert_eq!(draft.base_bytes, BASELINE.as_bytes());
    let directory = world.archive_directory().join(".shepherd/drafts");
    let files: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(files.len(), 1);
    assert_eq!(
        files[0].metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    // A damaged draft is reported, and kept.
    fs::write(files[0].path(), "half").unwrap();
    let error = engine.load_baseline_draft("scout.md").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    engine.discard_baseline_draft("scout.md").unwrap();
    engine.discard_baseline_draft("scout.md").unwrap();
    assert_eq!(engine.load_baseline_draft("scout.md").unwrap(), None);
}

/// Sets or clears the immutable flag of a file with `chattr`; false where that is impossible.
fn set_immutable(path: &std::path::Path, flag: &str) -> bool {
    let status = std::process::Command::new("chattr")
        .arg(flag)
        .arg(path)
        .status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn immutable_baseline_is_saved_and_stays_immutable() {
    let world = World::new(&["scout"]);
    let path = world.baseline_path("scout");
    if !set_immutable(&path, "+i") {
        return crate::skip::skip_unsupported("chattr +i does not work here");
    }
    let engine = world.engine();
    let is_immutable = || engine.open_baseline("scout.md").unwrap().is_immutable;
    assert!(is_immutable());
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    let refused = engine.save_baseline("scout.md", edited().as_bytes(), expected);
    let hints = refused.unwrap_err().hints().join(" ");
    assert!(hints.contains("chattr -ia"), "{hints}");
    // A refused save leaves the flag.
    let stale = engine.save_immutable_baseline("scout.md", b"x", None);
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(is_immutable());
    let saved = engine.save_immutable_baseline("scout.md", edited().as_bytes(), expected);
    let is_still_immutable = is_immutable();
    assert!(set_immutable(&path, "-i"));
    saved.unwrap();
    assert!(is_still_immutable);
    assert_eq!(baseline(&world, "scout"), edited());
}
