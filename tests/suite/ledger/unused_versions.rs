//! Baseline versions that no undo needs any more, and those that stay.

use super::super::world::{BASELINE, sorted_names};
use super::retention::{DAY, confirm_date, set_entry_age};
use super::*;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::{Operation, State, UndoMode, UndoTarget, VersionRetention};
use std::time::SystemTime;

/// Rules number `number`.
fn rules(number: u32) -> String {
    format!("# Rules {number}\n\n- be kind\n\n---\n")
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn version_path(world: &World, text: &str) -> PathBuf {
    let versions = world.archive_directory().join(".shepherd/baselines");
    versions.join(format!("{}.md", digest(text)))
}

/// Ages all files of versions.
fn set_version_ages(world: &World, days: u32) {
    let now = SystemTime::from(world.clock.now());
    let versions = world.archive_directory().join(".shepherd/baselines");
    for name in sorted_names(&versions) {
        let file = fs::File::options().write(true).open(versions.join(name));
        file.unwrap().set_modified(now - DAY * days).unwrap();
    }
}

/// Ages all entries of an agent.
fn set_entry_ages(world: &World, agent: &str, days: u32) {
    for name in world.entry_names(agent) {
        set_entry_age(world, &Path::new(agent).join(name), days);
    }
}

/// A world whose agent got four baselines in turn, all of them 100 days ago, and a run since then
/// that confirms the date.
fn world_with_four_versions() -> World {
    let world = World::new(&["scout"]);
    for number in 1..=4 {
        world.set_baseline("scout", rules(number));
        world.write_scratch("scout", format!("- note {number}\n"));
        world.reset().assert_ok();
        world.clock.advance(DAY);
    }
    world.clock.advance(DAY * 100);
    set_version_ages(&world, 100);
    set_entry_ages(&world, "scout", 100);
    confirm_date(&world);
    world
}

fn versions(world: &World) -> VersionRetention {
    let overview = world.engine().retention().retention_overview(&[]).unwrap();
    overview.versions.unwrap()
}

/// Returns the numbers of the rules whose versions are stored.
fn stored_rules(world: &World) -> Vec<u32> {
    let is_stored = |number: &u32| version_path(world, &rules(*number)).exists();
    (1..=9).filter(is_stored).collect()
}

/// Deletes the entries first: what they are split by is unused only then.
fn prune_twice(world: &World) {
    for _ in 0..2 {
        let report = world.engine().retention().prune_archive(&[]).unwrap();
        assert_eq!(report.worst_kind(), None, "{:?}", report.errors);
    }
}

#[test]
fn unused_versions_are_deleted_and_recorded() {
    let world = world_with_four_versions();
    // The undos of existing entries need them.
    assert_eq!(versions(&world).expiring, []);
    let first = world.engine().retention().prune_archive(&[]).unwrap();
    assert_eq!(first.deleted_entries.len(), 3);
    assert_eq!(first.deleted_versions, []);
    let mut unused = vec![digest(&rules(1)), digest(&rules(2))];
    unused.sort();
    let shown = versions(&world);
    assert_eq!((shown.stored, shown.expiring), (4, unused.clone()));
    let report = world.engine().retention().prune_archive(&[]).unwrap();
    assert_eq!(report.deleted_versions, unused);
    assert_eq!(stored_rules(&world), [3, 4]);
    let last = world.read_records().pop().unwrap().event;
    assert_eq!(last.operation, Operation::Retire);
    assert_eq!(last.retired_versions, unused);
    assert_eq!(findings(&world), []);
    // The memory still tells that it is behind, and the last run can be undone.
    world.set_baseline("scout", rules(5));
    assert_eq!(world.observe("scout").state, State::Behind);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"- note 4\n"));
}

#[test]
fn run_deletes_planned_versions_once_a_day() {
    let world = world_with_four_versions();
    world.engine().retention().prune_archive(&[]).unwrap();
    let plan = || {
        let plan = world
            .engine()
            .planner()
            .plan_reset(&["scout".to_string()], false);
        plan.unwrap()
    };
    // The last check was a moment ago.
    assert_eq!(plan().retention.unwrap().versions, []);
    world.clock.advance(DAY);
    let planned = plan();
    assert_eq!(planned.retention.as_ref().unwrap().versions.len(), 2);
    let ran = super::super::world::apply_plan(&world.engine(), &planned);
    assert_eq!(ran.report.retired_versions.len(), 2);
    let told = |line: &String| line.ends_with("Deleted 2 baseline versions that no undo needs");
    assert!(ran.lines.iter().any(told), "{:?}", ran.lines);
    assert_eq!(stored_rules(&world), [3, 4]);
    assert_eq!(findings(&world), []);
    // The plan's hash tells the deletion.
    assert_ne!(plan().hash, planned.hash);
}

#[test]
fn missing_version_that_was_not_retired_is_found() {
    let world = world_with_four_versions();
    fs::remove_file(version_path(&world, &rules(1))).unwrap();
    assert_single_finding(&world, FindingSubject::Version, "is missing");
    prune_twice(&world);
    // Another one that retention did not delete.
    fs::remove_file(version_path(&world, &rules(3))).unwrap();
    let found = findings(&world);
    let is_third = |text: &str| text.contains(&digest(&rules(3)).to_string());
    assert!(found.iter().any(|(_, _, text)| is_third(text)), "{found:?}");
}

#[test]
fn version_pushed_again_after_deletion_verifies() {
    let world = world_with_four_versions();
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4]);
    world.set_baseline("scout", rules(1));
    world.write_memory("scout", format!("{}- again\n", rules(4)));
    world.reset().assert_ok();
    assert_eq!(stored_rules(&world), [1, 3, 4]);
    assert_eq!(findings(&world), []);
}

#[test]
fn version_of_a_pinned_entry_stays() {
    let world = world_with_four_versions();
    let name = world.entry_names("scout").remove(1);
    let pinned = Path::new("scout").join(name);
    let engine = world.engine();
    engine
        .entries()
        .set_pinned(std::slice::from_ref(&pinned), true)
        .unwrap();
    prune_twice(&world);
    // The second reset displaced the second rules with its note.
    assert_eq!(stored_rules(&world), [2, 3, 4]);
    let records = world.read_records();
    let record = records.iter().find(|record| {
        let entry = record.event.change.entry.as_ref();
        entry.is_some_and(|entry| entry.path == pinned)
    });
    let target = UndoTarget::Run(record.unwrap().event.run.clone());
    let ran = world.undo_target(&target, UndoMode::Overwrite);
    ran.assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{}- note 2\n", rules(2)).as_bytes()
    );
    assert_eq!(findings(&world), []);
}

#[test]
fn version_named_within_the_retention_time_stays() {
    let world = world_with_four_versions();
    // Its only use is a save that was replaced at once.
    let engine = world.engine();
    for (text, before) in [(rules(7), rules(4)), (rules(4), rules(7))] {
        let expected = Some(digest(&before));
        engine
            .baseline_files()
            .save_baseline("scout.md", text.as_bytes(), expected)
            .unwrap();
    }
    set_version_ages(&world, 100);
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4, 7]);
    world.clock.advance(DAY * 32);
    set_entry_ages(&world, "scout", 130);
    set_version_ages(&world, 100);
    confirm_date(&world);
    prune_twice(&world);
    // It stays as the version before the last save, which `baseline restore` puts back.
    assert_eq!(stored_rules(&world), [3, 4, 7]);
}

#[test]
fn young_version_without_a_record_stays() {
    let world = world_with_four_versions();
    fs::write(version_path(&world, &rules(8)), rules(8)).unwrap();
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4, 8]);
    set_version_ages(&world, 40);
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4]);
    let versions = world.archive_directory().join(".shepherd/baselines");
    fs::write(versions.join("notes.md"), "x").unwrap();
    set_version_ages(&world, 40);
    prune_twice(&world);
    assert!(versions.join("notes.md").exists());
}

#[test]
fn sealed_version_stays() {
    let world = world_with_four_versions();
    world.engine().retention().prune_archive(&[]).unwrap();
    // A seal made by hand is over a file that is no longer there.
    let line = format!("{}  old.md\n", digest(&rules(1)));
    fs::write(world.root.join("baselines/.checksums"), line).unwrap();
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [1, 3, 4]);
    // A seal that cannot be read keeps all of them.
    fs::write(world.root.join("baselines/.checksums"), "no seal\n").unwrap();
    set_version_ages(&world, 100);
    let shown = versions(&world);
    assert_eq!(shown.expiring, []);
    let why = shown.blocked.unwrap();
    assert!(why.contains(".checksums"), "{why}");
    world.clock.advance(DAY);
    let ran = world.reset();
    let told = |note: &String| note.starts_with("retention keeps 1 baseline version");
    assert!(ran.report.notes.iter().any(told), "{:?}", ran.report.notes);
    assert_eq!(stored_rules(&world), [1, 3, 4]);
}

#[test]
fn beginning_of_a_draft_stays() {
    let world = world_with_four_versions();
    let engine = world.engine();
    let mut draft = engine.baseline_edits().new_baseline_draft("scout.md");
    engine
        .baseline_edits()
        .write_baseline_draft(&mut draft, rules(1).as_bytes(), b"# New\n")
        .unwrap();
    set_version_ages(&world, 100);
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [1, 3, 4]);
    draft.remove().unwrap();
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4]);
    let drafts = world.archive_directory().join(".shepherd/drafts");
    fs::write(drafts.join("damaged"), "x").unwrap();
    fs::write(version_path(&world, &rules(8)), rules(8)).unwrap();
    set_version_ages(&world, 100);
    assert!(versions(&world).blocked.unwrap().contains("draft"));
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4, 8]);
}

#[test]
fn version_in_a_transaction_record_stays() {
    let world = world_with_four_versions();
    let journal = world
        .archive_directory()
        .join(".shepherd/tx/other.shepherd-0123456789abcdef0123456789abcdef.json");
    let text = format!("{{\"event\":{{\"split\":\"{}\"}}", digest(&rules(2)));
    fs::write(&journal, text).unwrap();
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [2, 3, 4]);
}

#[test]
fn agents_of_another_config_keep_all_versions() {
    let mut world = World::new(&["scout"]);
    world.add_agent("other", "");
    world.set_baseline("other", BASELINE);
    for number in 1..=4 {
        world.set_baseline("scout", rules(number));
        world.write_scratch("scout", format!("- note {number}\n"));
        world.reset();
        world.clock.advance(DAY);
    }
    world.clock.advance(DAY * 100);
    set_entry_ages(&world, "scout", 100);
    world.write_scratch("other", "- note\n");
    world.reset();
    let world = world.without_agent("other");
    set_version_ages(&world, 100);
    confirm_date(&world);
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [1, 2, 3, 4]);
    let why = versions(&world).blocked.unwrap();
    assert!(why.contains("runs of other"), "{why}");
    world.clock.advance(DAY * 32);
    set_version_ages(&world, 100);
    confirm_date(&world);
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [3, 4]);
}

#[test]
fn reset_keeps_a_version_that_it_uses_again() {
    let world = world_with_four_versions();
    // The rules of long ago are the baseline again.
    world.set_baseline("scout", rules(1));
    world.write_memory("scout", format!("{}- more\n", rules(4)));
    world.reset().assert_ok();
    let meta = fs::metadata(version_path(&world, &rules(1))).unwrap();
    assert_eq!(
        meta.modified().unwrap(),
        SystemTime::from(world.clock.now())
    );
    prune_twice(&world);
    assert_eq!(stored_rules(&world), [1, 4]);
}
