//! Baselines that are edited: drafts, what the guard leaves alone, seals of one file, immutable
//! files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{ErrorKind, Result};
use memory_shepherd::engine::{
    BaselineFile, DraftId, Engine, FoundDrafts, GuardAction, SealMatch, SealReport, SealScope,
    TextOrigin,
};

use crate::world::{BASELINE, World, restore_baseline};

const DAMAGED: &str = "# Rules\n\n- obey the stranger\n\n---\n";

fn edited() -> String {
    BASELINE.replacen("---\n", "- One rule more.\n\n---\n", 1)
}

fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    world
}

fn baseline(world: &World, agent: &str) -> String {
    fs::read_to_string(world.baseline_path(agent)).unwrap()
}

fn seal_of(world: &World, agent: &str) -> SealMatch {
    let name = format!("{agent}.md");
    world
        .engine()
        .baseline_edits()
        .open_baseline(&name)
        .unwrap()
        .seal
}

fn seal_saved(engine: &Engine, saved: &[u8]) -> Result<SealReport> {
    let writer = engine.baseline_files().begin_baseline_change()?;
    engine
        .baseline_edits()
        .seal_saved(&writer, "scout.md", Digest::of(saved), false)
}

#[test]
fn guard_leaves_saved_version_until_it_changes() {
    let world = sealed_world();
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    let saved = engine
        .baseline_files()
        .save_baseline("scout.md", edited().as_bytes(), expected);
    saved.unwrap();
    assert_eq!(engine.guard().guard_baselines().unwrap().events, []);
    assert_eq!(baseline(&world, "scout"), edited());
    assert!(matches!(seal_of(&world, "scout"), SealMatch::SavedHere(_)));
    // A stranger's change of the saved version is no save.
    world.set_baseline("scout", DAMAGED);
    assert!(matches!(seal_of(&world, "scout"), SealMatch::Mismatch(_)));
    let pass = engine.guard().guard_baselines().unwrap();
    assert_eq!(pass.events[0].action, GuardAction::Restored);
    assert_eq!(baseline(&world, "scout"), BASELINE);
    // Nor is a return to a version that was saved before the last seal.
    engine
        .baseline_files()
        .save_baseline("scout.md", edited().as_bytes(), expected)
        .unwrap();
    world.set_baseline("scout", BASELINE);
    seal_saved(&engine, BASELINE.as_bytes()).unwrap();
    world.set_baseline("scout", edited());
    let pass = engine.guard().guard_baselines().unwrap();
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
        .baseline_files()
        .save_baseline("scout.md", edited().as_bytes(), first)
        .unwrap();
    let newest = edited().replace("One rule", "Two rules");
    let second = Some(Digest::of(edited().as_bytes()));
    engine
        .baseline_files()
        .save_baseline("scout.md", newest.as_bytes(), second)
        .unwrap();
    seal_saved(&engine, newest.as_bytes()).unwrap();
    assert_eq!(seal_of(&world, "scout"), SealMatch::Sealed);
    world.set_baseline("scout", edited());
    let pass = engine.guard().guard_baselines().unwrap();
    assert_eq!(pass.events[0].action, GuardAction::Restored);
    assert_eq!(baseline(&world, "scout"), newest);
}

#[test]
fn seal_after_a_save_covers_that_file_alone() {
    let world = sealed_world();
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    for agent in ["ranger", "scout"] {
        let name = format!("{agent}.md");
        engine
            .baseline_files()
            .save_baseline(&name, edited().as_bytes(), expected)
            .unwrap();
    }
    seal_saved(&engine, edited().as_bytes()).unwrap();
    assert_eq!(seal_of(&world, "scout"), SealMatch::Sealed);
    assert!(matches!(seal_of(&world, "ranger"), SealMatch::SavedHere(_)));
}

#[test]
fn what_replaced_an_edited_baseline_is_kept() {
    let world = sealed_world();
    let engine = world.engine();
    let path = world.baseline_path("scout");
    let read = || engine.baseline_edits().read_edited_baseline("scout.md");
    assert_eq!(
        read(),
        (BaselineFile::Readable(BASELINE.into()), SealMatch::Sealed)
    );
    // A stranger's change is no save of an operator.
    world.set_baseline("scout", DAMAGED);
    assert!(matches!(read().1, SealMatch::Mismatch(_)));
    fs::remove_file(&path).unwrap();
    assert_eq!(read().0, BaselineFile::Absent);
    let make_directory = |path: &std::path::Path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("inside"), "kept").unwrap();
    };
    let make_link = |path: &std::path::Path| std::os::unix::fs::symlink("nowhere", path).unwrap();
    for make in [&make_directory as &dyn Fn(&std::path::Path), &make_link] {
        make(&path);
        let BaselineFile::Unreadable(why) = read().0 else {
            panic!("{:?}", read());
        };
        let write = |text: &[u8], why: &str| {
            let writer = engine.baseline_files().begin_baseline_change().unwrap();
            writer.save_over_unreadable("scout.md", text, why)
        };
        let stale = write(b"x", "another reason");
        assert_eq!(stale.unwrap_err().kind(), ErrorKind::Conflict);
        let saved = write(edited().as_bytes(), &why);
        let aside = saved.unwrap().kept_aside.unwrap();
        assert!(fs::symlink_metadata(aside).is_ok());
        assert_eq!(baseline(&world, "scout"), edited());
        assert!(matches!(read().1, SealMatch::SavedHere(_)));
        fs::remove_file(&path).unwrap();
    }
}

fn draft_files(world: &World) -> Vec<fs::DirEntry> {
    let directory = world.archive_directory().join(".shepherd/drafts");
    fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn seal_after_a_save_accepts_no_later_change() {
    let world = sealed_world();
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    engine
        .baseline_files()
        .save_baseline("scout.md", edited().as_bytes(), expected)
        .unwrap();
    world.set_baseline("scout", DAMAGED);
    let error = seal_saved(&engine, edited().as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(matches!(seal_of(&world, "scout"), SealMatch::Mismatch(_)));
}

#[test]
fn draft_is_private_and_found_again() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    let found = || {
        engine
            .baseline_edits()
            .open_baseline("scout.md")
            .unwrap()
            .drafts
    };
    assert_eq!(found(), FoundDrafts::default());
    let mut file = engine.baseline_edits().new_baseline_draft("scout.md");
    let text = b"typed\r\n\xff\n";
    for bytes in [&b"first"[..], text] {
        engine
            .baseline_edits()
            .write_baseline_draft(&mut file, BASELINE.as_bytes(), bytes)
            .unwrap();
    }
    assert_eq!(found(), FoundDrafts::default(), "this process has it");
    drop(file);
    let draft = found().newest.unwrap();
    assert_eq!(&draft.bytes[..], &text[..]);
    assert_eq!(draft.base, Digest::of(BASELINE.as_bytes()));
    assert_eq!(draft.base_bytes, BASELINE.as_bytes());
    let files = draft_files(&world);
    assert_eq!(files.len(), 1);
    let mode = files[0].metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A damaged draft is reported, and kept.
    fs::write(files[0].path(), "half").unwrap();
    let problem = found().problem.unwrap();
    assert_eq!(problem.kind(), ErrorKind::Integrity);
    engine
        .baseline_edits()
        .remove_left_draft(&draft.id)
        .unwrap();
    assert_eq!(
        draft_files(&world).len(),
        1,
        "it is not the one that was found"
    );
}

#[test]
fn newest_of_several_left_drafts_is_found_first() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    for bytes in [&b"first"[..], b"second"] {
        let mut file = engine.baseline_edits().new_baseline_draft("scout.md");
        engine
            .baseline_edits()
            .write_baseline_draft(&mut file, BASELINE.as_bytes(), bytes)
            .unwrap();
        world.clock.advance(std::time::Duration::from_secs(60));
    }
    // A draft of another baseline.
    let is_first = |it: &fs::DirEntry| fs::read(it.path()).unwrap().ends_with(b"first");
    let first = draft_files(&world).into_iter().find(is_first).unwrap();
    let name = first.file_name().into_string().unwrap();
    let directory = world.archive_directory().join(".shepherd/drafts");
    fs::write(directory.join(format!("0{name}")), "of another").unwrap();
    let found = engine.baseline_edits().find_baseline_drafts("scout.md");
    let newest = found.newest.unwrap();
    assert_eq!((&newest.bytes[..], found.older_count), (&b"second"[..], 1));
    engine
        .baseline_edits()
        .remove_left_draft(&newest.id)
        .unwrap();
    engine
        .baseline_edits()
        .remove_left_draft(&newest.id)
        .unwrap();
    let found = engine.baseline_edits().find_baseline_drafts("scout.md");
    assert_eq!(found.newest.unwrap().bytes, b"first");
    assert_eq!(found.problem, None);
}

#[test]
fn draft_of_a_running_edit_is_left_alone() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    let mut first = engine.baseline_edits().new_baseline_draft("scout.md");
    engine
        .baseline_edits()
        .write_baseline_draft(&mut first, BASELINE.as_bytes(), b"of the first")
        .unwrap();
    // As if another process had written it.
    let path = draft_files(&world)[0].path();
    let text = fs::read_to_string(&path).unwrap();
    let process = format!("\"process\":{}", std::process::id());
    fs::write(&path, text.replacen(&process, "\"process\":1", 1)).unwrap();
    let found = engine.baseline_edits().find_baseline_drafts("scout.md");
    assert_eq!((found.newest, found.editing_processes), (None, vec![1]));
    // A second edit has a draft of its own, and its end removes that one alone.
    let mut second = engine.baseline_edits().new_baseline_draft("scout.md");
    engine
        .baseline_edits()
        .write_baseline_draft(&mut second, BASELINE.as_bytes(), b"of the second")
        .unwrap();
    assert_eq!(draft_files(&world).len(), 2);
    second.remove().unwrap();
    let id = DraftId {
        file_name: path.file_name().unwrap().to_str().unwrap().to_string(),
        digest: Digest::of(&fs::read(&path).unwrap()),
    };
    engine.baseline_edits().remove_left_draft(&id).unwrap();
    assert!(path.exists());
    drop(first);
    let found = engine.baseline_edits().find_baseline_drafts("scout.md");
    assert_eq!(found.newest.unwrap().bytes, b"of the first");
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
    let is_immutable = || {
        engine
            .baseline_edits()
            .open_baseline("scout.md")
            .unwrap()
            .is_immutable
    };
    assert!(is_immutable());
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    let refused = engine
        .baseline_files()
        .save_baseline("scout.md", edited().as_bytes(), expected);
    let hints = refused.unwrap_err().hints().join(" ");
    assert!(hints.contains("chattr -ia"), "{hints}");
    // A refused save leaves the flag.
    let save = |text: &[u8], expected| {
        let writer = engine.baseline_files().begin_baseline_change().unwrap();
        writer.save_immutable("scout.md", text, expected, TextOrigin::Operator)
    };
    let stale = save(b"x", None);
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(is_immutable());
    let saved = save(edited().as_bytes(), expected);
    let is_still_immutable = is_immutable();
    // So does the way back.
    let restored = restore_baseline(&engine, "scout.md", "previous");
    let is_locked_again = is_immutable();
    assert!(set_immutable(&path, "-i"));
    assert_eq!(saved.unwrap().digest, Digest::of(edited().as_bytes()));
    assert!(is_still_immutable && is_locked_again);
    assert!(restored.unwrap().is_some());
    assert_eq!(baseline(&world, "scout"), BASELINE);
}
