//! Retention of entries that were written under a clock that was behind.

use std::time::Duration;

use super::retention::{DAY, set_entry_age};
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// How far the clock is behind.
const LAG: u32 = 40;

/// Resets scout once it has new notes; returns the new entry.
fn reset_with_notes(world: &World) -> PathBuf {
    world.write_scratch("scout", "- a note\n");
    let ran = world.reset();
    ran.assert_ok().entries[0].path.clone()
}

/// A machine without a battery: its clock is behind, and it has written an entry.
fn world_with_slow_clock() -> (World, PathBuf) {
    let world = World::new(&["scout"]);
    world.clock.boot("a0");
    world.clock.set_back(DAY * LAG);
    let entry = reset_with_notes(&world);
    set_entry_age(&world, &entry, 0);
    (world, entry)
}

/// Resets with the right time, on two days, and returns what retention deleted.
fn retired_on_two_days(world: &World) -> Vec<PathBuf> {
    let mut retired = Vec::new();
    for _ in 0..2 {
        world.write_scratch("scout", "- a note\n");
        retired.extend(world.reset().report.retired_entries);
        world.clock.advance(DAY + HOUR);
    }
    world.write_scratch("scout", "- a note\n");
    retired.extend(world.reset().report.retired_entries);
    retired
}

#[test]
fn entry_of_a_slow_clock_is_kept_its_time() {
    for is_index_lost in [false, true] {
        let (world, entry) = world_with_slow_clock();
        world.clock.advance(HOUR);
        world.clock.set_forward(DAY * LAG);
        assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
        if is_index_lost {
            let index = world.archive_directory().join(".shepherd/ledger.index");
            let _ = fs::remove_file(index);
        }
        world.clock.advance(DAY * 20);
        assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
        // Its time is over a month after it was written, and not after the clock was set.
        world.clock.advance(DAY * 10);
        assert!(retired_on_two_days(&world).contains(&entry));
    }
}

#[test]
fn entry_of_an_earlier_boot_is_kept_from_the_step() {
    let (world, entry) = world_with_slow_clock();
    // A boot of which nothing is known but that it comes before.
    world.clock.advance(HOUR);
    world.clock.boot("b1");
    set_entry_age(&world, &reset_with_notes(&world), 0);
    world.clock.advance(HOUR);
    world.clock.set_forward(DAY * LAG);
    assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
    // Boots with a step of their own do not keep it any longer.
    for boot in ["c2", "d3"] {
        world.clock.advance(DAY * 14);
        world.clock.boot(boot);
        world.clock.set_back(DAY * LAG);
        set_entry_age(&world, &reset_with_notes(&world), 0);
        world.clock.advance(HOUR);
        world.clock.set_forward(DAY * LAG);
    }
    assert!(retired_on_two_days(&world).contains(&entry));
}

#[test]
fn clock_corrected_by_a_boot_deletes_nothing_early() {
    for slow_boots in [1, 2] {
        let (world, entry) = world_with_slow_clock();
        for boot in 1..slow_boots {
            world.clock.advance(HOUR);
            world.clock.boot(&format!("b{boot}"));
            set_entry_age(&world, &reset_with_notes(&world), 0);
        }
        // The machine is right before its first run, so no boot has a step.
        world.clock.advance(HOUR);
        world.clock.boot("c0");
        world.clock.set_forward(DAY * LAG);
        assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
        world.clock.advance(DAY * 20);
        assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
        // Later starts, also after nights, do not keep it any longer.
        for boot in ["d1", "e2"] {
            world.clock.advance(DAY * 3);
            world.clock.boot(boot);
            set_entry_age(&world, &reset_with_notes(&world), 0);
        }
        assert!(retired_on_two_days(&world).contains(&entry));
    }
}

#[test]
fn nightly_boots_do_not_keep_entries_for_long() {
    let world = World::new(&["scout"]);
    world.clock.boot("a0");
    let entry = reset_with_notes(&world);
    set_entry_age(&world, &entry, 0);
    let mut kept_days = 0;
    for day in 1..40 {
        world.clock.advance(DAY);
        world.clock.boot(&format!("b{day}"));
        world.write_scratch("scout", "- a note\n");
        let ran = world.reset();
        set_entry_age(&world, &ran.assert_ok().entries[0].path, 0);
        if ran.report.retired_entries.contains(&entry) {
            kept_days = day;
            break;
        }
    }
    // A night more than a month, and the day until the next run.
    assert_eq!(kept_days, 33);
}

#[test]
fn unrecorded_entry_of_a_slow_clock_is_kept_its_time() {
    let (world, entry) = world_with_slow_clock();
    // As a run leaves it that was killed before its record.
    let whole = world.archive_directory().join(&entry);
    let unrecorded = entry.with_file_name(
        entry
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace(".md", "-1.md"),
    );
    fs::copy(&whole, world.archive_directory().join(&unrecorded)).unwrap();
    set_entry_age(&world, &unrecorded, 0);
    world.clock.advance(HOUR);
    world.clock.set_forward(DAY * LAG);
    assert_eq!(retired_on_two_days(&world), Vec::<PathBuf>::new());
    world.clock.advance(DAY * 31);
    assert!(retired_on_two_days(&world).contains(&unrecorded));
}

#[test]
fn records_of_a_right_clock_are_dated_as_before() {
    let world = World::new(&["scout"]);
    world.clock.boot("a0");
    let entry = reset_with_notes(&world);
    set_entry_age(&world, &entry, 0);
    assert!(world.read_records()[0].boot.is_some());
    world.clock.advance(DAY * 31);
    assert!(retired_on_two_days(&world).contains(&entry));
    let found = verify(&world.engine(), None);
    assert_eq!(found.worst_kind(), None);
}
