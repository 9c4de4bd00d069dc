//! Random archives: `archive prune` deletes what the overview shows.

use super::super::world::BASELINE;
use super::retention::{DAY, confirm_date, set_entry_age};
use super::retention_overview::{archive_files, create_old_entry, expiring, overview, prune};
use super::*;
use memory_shepherd::engine::{EntryStatus, UndoMode};
use std::collections::BTreeSet;

/// Numbers that look random, the same in each run of a test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A world with entries of random ages, agents that left, pins and an undo; and the pinned entries.
fn random_world(random: &mut Random) -> (World, Vec<PathBuf>) {
    let mut world = World::new(&["ranger", "scout"]);
    world.add_agent("left", "archive_subdir = scout/left");
    world.set_baseline("left", BASELINE);
    for note in 0..2 + random.below(3) {
        for agent in ["left", "ranger", "scout"] {
            world.write_scratch(agent, format!("- {note} of {agent}\n"));
        }
        world.reset();
        world.clock.advance(DAY * (1 + random.below(20) as u32));
    }
    if random.below(2) == 0 {
        world = world.without_agent("left");
    }
    world.clock.advance(DAY * random.below(40) as u32);
    let directories = ["scout", "ranger", "scout/left", "stray", ""];
    for _ in 0..20 {
        let directory = directories[random.below(directories.len() as u64) as usize];
        create_old_entry(&world, directory, random.below(80) as u32);
    }
    let entries: Vec<PathBuf> = archive_files(&world)
        .into_iter()
        .filter(|it| !it.starts_with(".shepherd"))
        .collect();
    for entry in &entries {
        set_entry_age(&world, entry, random.below(80) as u32);
    }
    if random.below(3) > 0 {
        confirm_date(&world);
    }
    let pinned: Vec<PathBuf> = entries
        .into_iter()
        .filter(|_| random.below(5) == 0)
        .collect();
    world.engine().entries().set_pinned(&pinned, true).unwrap();
    world.undo("scout", UndoMode::Overwrite);
    (world, pinned)
}

fn statuses(world: &World) -> Vec<EntryStatus> {
    let engine = world.engine();
    engine
        .retention()
        .entry_statuses(&[], &Default::default())
        .unwrap()
        .entries
}

#[test]
fn prune_matches_overview_for_random_archives() {
    let mut random = Random(0x5eed);
    let mut deleted_total = 0;
    for round in 0..12 {
        let (world, pinned) = random_world(&mut random);
        let expected = expiring(&overview(&world));
        for status in statuses(&world) {
            let path = &status.entry.path;
            let is_kept = status.is_pinned || status.is_needed == Some(true);
            assert!(!(is_kept && expected.contains(path)), "{round}: {path:?}");
        }
        assert!(pinned.iter().all(|it| !expected.contains(it)), "{round}");
        let before = archive_files(&world);
        let report = prune(&world);
        let after = archive_files(&world);
        let gone: BTreeSet<PathBuf> = before.difference(&after).cloned().collect();
        assert_eq!(gone, expected, "{round}");
        assert_eq!(report.deleted_entries.len(), expected.len(), "{round}");
        let left = statuses(&world);
        for agent in ["ranger", "scout"] {
            let has_entry = left.iter().any(|it| it.entry.path.starts_with(agent));
            assert!(has_entry, "{round}: {agent} has no entry left");
        }
        assert_eq!(findings(&world), [], "{round}");
        for agent in ["ranger", "scout"] {
            let worst = world.redo(agent).report.worst_kind();
            assert_ne!(worst, Some(ErrorKind::Integrity), "{round}");
            world.undo(agent, UndoMode::Overwrite);
        }
        deleted_total += expected.len();
    }
    assert!(deleted_total > 20, "{deleted_total} entries in all");
}
