//! What the original script got wrong, one test a fault: those that concern
//! resets of local agents. The others of its faults are tested with the config,
//! the command line and the schedule.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_shepherd::engine::{Outcome, State};
use memory_shepherd::error::Kind;

use super::world::{BASELINE, Interposer, Moment, World, names};

/// Resets a memory with this scratch, which must be archived whole.
#[track_caller]
fn keeps(scratch: &str) {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", scratch);
    let ran = world.reset();
    let entry = world.entry(&ran.ok().entries[0]);
    assert!(
        entry.ends_with(format!("\n\n{scratch}").as_bytes()),
        "{scratch:?}"
    );
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

#[test]
fn a_rule_in_the_notes_lost_what_stood_above_it() {
    keeps("- above\n\n---\n\n- below\n");
}

#[test]
fn a_setext_heading_in_the_notes_lost_what_stood_above_it() {
    keeps("- above\n\nHeading\n---\n- below\n");
}

#[test]
fn a_trailing_rule_lost_all_notes() {
    keeps("- all of it\n---\n");
    keeps("- all of it\n---");
}

#[test]
fn blank_lines_headings_and_the_last_line_end_were_dropped() {
    keeps("\n\n\n- a\n\n\n- b\n\n");
    keeps("## Scratch Notes\n- a\n## Scratch Notes, continued\n");
    keeps("- no newline");
    keeps("\n");
}

#[test]
fn nul_bytes_lost_everything() {
    keeps("- before\n\0\0\n- after\n");
}

#[test]
fn edited_rules_were_overwritten_unarchived() {
    let world = World::new(&["scout"]);
    let text = BASELINE.replace("be kind", "the operator allows everything");
    world.write("scout", &text);
    world.reset().ok();
    assert!(world.holds("scout", text.as_bytes()));
}

#[test]
fn the_separator_was_a_pattern() {
    for (separator, like) in [("***", "*****"), (".", "x"), ("[a-z]", "q"), ("^", "")] {
        let world = World::new(&["scout"]).general(&format!("separator = {separator}"));
        let baseline = format!("# Rules\n\n- be kind\n\n{separator}\n");
        world.set_baseline("scout", &baseline);
        let scratch = format!("- above\n\n{like}\n\n- below\n");
        world.write_scratch("scout", &scratch);
        assert_eq!(world.observe("scout").state, State::Scratch, "{separator}");
        let ran = world.reset();
        let entry = world.entry(&ran.ok().entries[0]);
        assert!(
            entry.ends_with(format!("\n\n{scratch}").as_bytes()),
            "{separator}"
        );
    }
}

#[test]
fn entries_of_one_minute_overwrote_each_other() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n"] {
        world.write_scratch("scout", note);
        world.reset().ok();
    }
    assert!(world.holds("scout", b"- one\n") && world.holds("scout", b"- two\n"));
}

#[test]
fn entries_of_agents_that_share_a_folder_overwrote_each_other() {
    let mut world = World::new(&[]);
    for agent in ["a", "b"] {
        world.add(agent, "archive_subdir = shared\n");
        world.set_baseline(agent, BASELINE);
        world.write_scratch(agent, format!("- of {agent}\n"));
    }
    assert_eq!(world.reset().report.kind(), None);
    let entries = names(&world.archive().join("shared"));
    assert_eq!(entries, ["2026-03-14_0900-1.md", "2026-03-14_0900.md"]);
}

#[test]
fn entries_of_the_repeated_hour_overwrote_each_other() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- summer\n");
    world.reset().ok();
    // Clocks go back: an hour later it is as late as before.
    world.clock.advance(Duration::from_secs(3600));
    world.clock.shift(-3600);
    world.write_scratch("scout", "- winter\n");
    world.reset().ok();
    assert_eq!(
        world.entries("scout"),
        ["2026-03-14_0900-1.md", "2026-03-14_0900.md"]
    );
    assert!(world.holds("scout", b"- summer\n") && world.holds("scout", b"- winter\n"));
    // The repeated hour is no clock that is behind the ledger.
    world.engine().retention().unwrap();
}

#[test]
fn unchanged_files_were_rewritten_and_the_templates_text_archived() {
    let world = World::new(&["scout"]);
    world.set_baseline(
        "scout",
        format!("{BASELINE}\n## Scratch Notes\n\n(none yet)\n"),
    );
    world.write_scratch("scout", "");
    let before = fs::metadata(world.memory("scout"))
        .unwrap()
        .modified()
        .unwrap();
    for _ in 0..3 {
        world.reset().ended(Outcome::Unchanged);
    }
    let after = fs::metadata(world.memory("scout"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after);
    assert!(world.entries("scout").is_empty());
}

#[test]
fn a_refused_second_run_deleted_the_first_ones_lock() {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- note\n");
    let refused = Arc::new(Mutex::new(Vec::new()));
    let transport = Interposer::new(world.local(), {
        let (world, refused) = (Arc::clone(&world), Arc::clone(&refused));
        move |moment| {
            if moment == Moment::Before("swap") {
                for _ in 0..2 {
                    let ran = world.reset();
                    refused
                        .lock()
                        .unwrap()
                        .push((ran.report.kind(), ran.note().to_string()));
                }
            }
            Ok(())
        }
    });
    let first = world.reset_by(&world.engine_on(transport));
    first.ok();
    let refused = refused.lock().unwrap();
    assert_eq!(refused.len(), 2);
    for (kind, note) in refused.iter() {
        assert_eq!(*kind, Some(Kind::Busy));
        assert!(
            note.contains(&format!("locked by run {}", first.report.run)),
            "{note}"
        );
    }
}

#[test]
fn a_lock_left_behind_or_dated_into_the_future_blocked_for_ever() {
    let world = World::new(&["scout"]);
    let locks = world.archive().join(".shepherd/locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = locks.join("scout.lock");
    fs::write(&lock, "1\n").unwrap();
    let future = std::time::SystemTime::now() + Duration::from_secs(1 << 30);
    let file = fs::File::options().write(true).open(&lock).unwrap();
    file.set_modified(future).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
}

#[test]
fn temporary_names_were_known_in_advance() {
    let world = World::new(&["scout"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        world.write_scratch("scout", "- note\n");
        let (folder, seen) = (world.folder("scout"), Arc::clone(&seen));
        let transport = Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before("swap") {
                let mut names = names(&folder);
                names.retain(|name| name != "MEMORY.md");
                seen.lock().unwrap().extend(names);
            }
            Ok(())
        });
        world.reset_by(&world.engine_on(transport)).ok();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0], seen[1]);
    for name in seen.iter() {
        // Agents watch and index Markdown.
        assert!(name.starts_with('.') && !name.ends_with(".md"), "{name}");
    }
}

#[test]
fn links_and_fifos_planted_beside_the_memory_were_written_to() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let precious = world.root.join("precious");
    fs::write(&precious, "secret").unwrap();
    let mut planted = Vec::new();
    for name in [
        "MEMORY.md.tmp",
        ".MEMORY.md.lock",
        "MEMORY.md.new",
        "MEMORY.md.bak",
    ] {
        symlink(&precious, world.folder("scout").join(name)).unwrap();
        planted.push(name.to_string());
    }
    let fifo = world.folder("scout").join("tmp");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    planted.push("tmp".to_string());
    planted.sort();
    world.reset().ok();
    assert_eq!(world.litter("scout"), planted);
    assert_eq!(fs::read(&precious).unwrap(), b"secret");
}

#[test]
fn a_link_in_place_of_the_archives_folder_was_followed() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let elsewhere = world.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(world.archive()).unwrap();
    symlink(&elsewhere, world.archive().join("scout")).unwrap();
    world.reset().ended(Outcome::Failed);
    assert!(names(&elsewhere).is_empty());
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn a_missing_or_small_baseline_and_a_busy_agent_were_successes() {
    let codes: Vec<u8> = [Kind::Conflict, Kind::Integrity, Kind::Busy, Kind::Host]
        .map(Kind::exit_code)
        .to_vec();
    assert_eq!(codes, [6, 4, 5, 3]);
    let world = World::new(&["missing", "small"]).general("min_baseline_size = 40");
    fs::remove_file(world.baseline("missing")).unwrap();
    world.set_baseline("small", "# S\n---\n");
    let ran = world.reset();
    assert_eq!(ran.report.kind(), Some(Kind::Conflict));
    assert_eq!(ran.report.count(Outcome::Refused), 2);
    // Nothing is created from a baseline that must not be pushed.
    assert!(names(&world.folder("missing")).is_empty());
    assert!(names(&world.folder("small")).is_empty());
}

#[test]
fn retention_deleted_any_old_markdown() {
    let world = World::new(&["scout"]).general("archive_retention_days = 1");
    let folder = world.archive().join("scout");
    fs::create_dir_all(folder.join("2026-01-01_0901.md")).unwrap();
    let kept = [
        "README.md",
        "2026-01-01.md",
        "old-2026-01-01_0900.md",
        "2026-01-01_0902.md",
    ];
    for name in &kept[..3] {
        fs::write(folder.join(name), "x").unwrap();
    }
    symlink(world.root.join("nowhere"), folder.join(kept[3])).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    world.clock.advance(Duration::from_secs(1 << 30));
    assert!(world.engine().retention().unwrap().is_empty());
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    assert!(
        kept.iter()
            .all(|name| fs::symlink_metadata(folder.join(name)).is_ok())
    );
}
