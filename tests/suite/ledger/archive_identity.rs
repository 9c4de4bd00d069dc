//! The identity of an archive, which the config may name.

use memory_shepherd::engine::{SealScope, UndoMode, UndoTarget};

use super::super::world::BASELINE;
use super::segments::{SegmentedWorld, program_directory, segment_paths};
use super::*;

/// The id of the archive of a world.
fn archive_id(world: &World) -> Digest {
    world.engine().ledger().archive_id().unwrap().unwrap()
}

/// The world with a config that names an archive.
fn with_archive_id(world: World, id: Digest) -> World {
    world.with_general(&format!("archive_id = {id}"))
}

/// A world with an entry and a run, whose config names its archive.
fn world_with_archive_id() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n");
    world.reset().assert_ok();
    let id = archive_id(&world);
    with_archive_id(world, id)
}

/// Asserts that no verb writes to the archive; `there` is what a message says of it.
#[track_caller]
fn assert_nothing_is_written(world: &World, there: &str) {
    let before = files_below(&world.archive_directory());
    let memory = format!("{BASELINE}- new\n");
    world.write_memory("scout", &memory);
    let engine = world.engine();
    let scout = ["scout".to_string()];
    let target = UndoTarget::Agents(scout.to_vec());
    let errors = [
        engine.planner().plan_reset(&scout, false).unwrap_err(),
        engine.planner().plan_unobserved(&scout, false).unwrap_err(),
        engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap_err(),
        engine
            .entries()
            .set_pinned(&["scout/x.md".into()], true)
            .unwrap_err(),
        engine
            .baseline_files()
            .begin_baseline_edit()
            .map(drop)
            .unwrap_err(),
        engine.context().log_text("a line").unwrap_err(),
        engine
            .seals()
            .plan_seal(&SealScope::All, false)
            .and_then(|plan| engine.seals().apply_seal(&plan, None))
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Host, "{error}");
        assert!(error.message().contains(there), "{error}");
    }
    assert_eq!(world.read_memory("scout"), memory.as_bytes());
    assert_eq!(files_below(&world.archive_directory()), before);
}

/// Paths of everything in a directory, with sizes.
fn files_below(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for item in fs::read_dir(directory).into_iter().flatten() {
        let path = item.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        found.extend(files_below(&path));
        found.push((path, if meta.is_file() { meta.len() } else { 0 }));
    }
    found.sort();
    found
}

#[test]
fn archive_that_is_not_mounted_is_refused() {
    let world = world_with_archive_id();
    world.write_scratch("scout", "- another\n");
    world.reset().assert_ok();
    let aside = world.root.join("disk");
    fs::rename(world.archive_directory(), &aside).unwrap();
    assert_nothing_is_written(&world, "no archive is there");
    fs::create_dir(world.archive_directory()).unwrap();
    assert_nothing_is_written(&world, "no archive is there");
    fs::remove_dir(world.archive_directory()).unwrap();
    fs::rename(&aside, world.archive_directory()).unwrap();
    world.reset().assert_ok();
}

/// An engine that has seen the archive looks again once another directory is there.
#[test]
fn archive_that_is_unmounted_later_is_refused() {
    let world = world_with_archive_id();
    let engine = world.engine();
    engine.context().log_text("a line").unwrap();
    fs::rename(world.archive_directory(), world.root.join("disk")).unwrap();
    fs::create_dir(world.archive_directory()).unwrap();
    let error = engine.context().log_text("a line").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Host);
    assert_eq!(files_below(&world.archive_directory()), []);
}

#[test]
fn other_archive_is_refused() {
    let world = world_with_archive_id();
    let other = World::new(&["scout"]);
    other.write_scratch("scout", "- of another\n");
    other.reset().assert_ok();
    let id = archive_id(&other);
    assert_ne!(id, archive_id(&world));
    let world = with_archive_id(world, id);
    assert_nothing_is_written(&world, "the archive there is ");
}

#[test]
fn archive_keeps_its_id_in_segments() {
    let world = World::new(&["ranger", "scout"]);
    world.reset();
    let before = archive_id(&world);
    let records = world.read_records();
    let second = &records[1];
    assert_eq!(second.previous_digest, before);

    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let id = archive_id(&world);
    let world = with_archive_id(world, id);
    world.write_scratch("scout", "- a note\n");
    assert_eq!(world.reset().report.worst_kind(), None);
}

#[test]
fn damaged_first_segment_stops_no_run() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let first = segment_paths(&world)[0].clone();
    let id = archive_id(&world);
    let world = with_archive_id(world, id);
    for damage in ["damaged", "missing"] {
        if damage == "missing" {
            fs::remove_file(&first).unwrap();
        } else {
            fs::write(&first, damage).unwrap();
        }
        fs::remove_file(program_directory(&world).join("ledger.index")).ok();
        assert_eq!(archive_id(&world), id, "{damage}");
        world.write_scratch("scout", format!("- a note, {damage}\n"));
        assert_eq!(world.reset().report.worst_kind(), None, "{damage}");
    }
}

#[test]
fn unknown_archive_is_read_and_not_written() {
    let SegmentedWorld { world, .. } = SegmentedWorld::new();
    let first = segment_paths(&world)[0].clone();
    let id = archive_id(&world);
    let world = with_archive_id(world, id);
    fs::write(&first, "damaged").unwrap();
    fs::remove_file(program_directory(&world).join("archive-id")).unwrap();
    let engine = world.engine();
    let error = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let segment = first.file_name().unwrap().to_str().unwrap();
    assert!(error.message().contains(segment), "{error}");
    let hints = error.hints().join("\n");
    assert!(hints.contains("archive_id in "), "{hints}");
    assert!(hints.contains("from a backup"), "{hints}");
    // Readers work on what can be read, and `verify` names the segment.
    assert!(world.observe("scout").last_run.is_some());
    let found = verify(&engine, None);
    assert_eq!(found.worst_kind(), Some(ErrorKind::Integrity));
    let mut findings = found.findings.iter();
    assert!(findings.any(|it| it.message.contains(segment)));
}

#[test]
fn run_that_begins_an_archive_says_so() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- a note\n");
    let ran = world.reset();
    let id = archive_id(&world);
    let line = format!("archive_id={id}");
    let says = |note: &&String| note.starts_with("began a new archive in ") && note.contains(&line);
    assert_eq!(ran.report.notes.iter().filter(says).count(), 1);
    let said = |it: &&String| it.contains("began a new archive in ");
    assert_eq!(ran.lines.iter().filter(said).count(), 1, "{:#?}", ran.lines);
    world.write_scratch("scout", "- another\n");
    let ran = world.reset();
    assert!(ran.lines.iter().find(said).is_none(), "{:#?}", ran.lines);
}

#[test]
fn archive_is_begun_once() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    assert_eq!(engine.ledger().archive_id(), Ok(None));
    let id = engine.context().begin_archive().unwrap();
    assert_eq!(engine.context().begin_archive(), Ok(id));
    assert_eq!(world.engine().ledger().archive_id(), Ok(Some(id)));
    assert_eq!(world.read_records().len(), 1);
    let world = with_archive_id(world, id);
    world.write_scratch("scout", "- a note\n");
    world.reset().assert_ok();
    assert_eq!(archive_id(&world), id);
    assert_eq!(verify(&world.engine(), None).worst_kind(), None);
}
