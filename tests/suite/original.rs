//! What the original script got wrong, one test a fault: those that concern
//! resets of local agents. The others of its faults are tested with the config,
//! the command line and the schedule.

mod attack;
mod contract;

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use memory_shepherd::engine::{Outcome, State};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::{FailureCause, TransportError};

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
    assert_eq!(world.reset().report.worst_kind(), None);
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
    world.engine().expired_entries().unwrap();
}

#[test]
fn a_last_line_without_newline_was_lost() {
    keeps("- first\n- last");
}

/// What an agent appends right before its memory is replaced, through `open`.
fn appended_before_the_swap(open: impl Fn(&World) -> fs::File) {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- early\n");
    let mut file = Some(open(&world));
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::Before("swap")
            && let Some(mut file) = file.take()
        {
            file.write_all(b"- late\n").unwrap();
        }
        Ok(())
    });
    world.reset_by(&world.engine_on(transport)).ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(world.holds("scout", b"- early\n- late\n"));
    assert!(world.litter("scout").is_empty());
}

#[test]
fn what_was_written_between_read_and_rename_was_lost() {
    appended_before_the_swap(|world| {
        let mut options = fs::File::options();
        options.append(true).open(world.memory("scout")).unwrap()
    });
}

#[test]
fn a_file_that_was_saved_between_read_and_rename_was_lost() {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- early\n");
    let transport = Interposer::new(world.local(), {
        let world = Arc::clone(&world);
        let mut saved = false;
        move |moment| {
            if moment == Moment::Before("swap") && !std::mem::replace(&mut saved, true) {
                let temporary = world.folder("scout").join("saving");
                fs::write(&temporary, "- saved\n").unwrap();
                fs::rename(temporary, world.memory("scout")).unwrap();
            }
            Ok(())
        }
    });
    world.reset_by(&world.engine_on(transport)).ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert!(world.holds("scout", b"- early\n") && world.holds("scout", b"- saved\n"));
}

#[test]
fn what_was_written_through_an_open_descriptor_was_lost() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut options = fs::File::options();
    let mut file = options.append(true).open(world.memory("scout")).unwrap();
    world.reset().ok();
    file.write_all(b"- long after\n").unwrap();
    drop(file);
    world.reset();
    assert!(world.holds("scout", b"- early\n- long after\n"));
    assert!(world.litter("scout").is_empty() && world.pending().is_empty());
}

/// Without a flush between them, a power cut may keep what came last and lose
/// what came first.
#[test]
fn a_power_cut_left_an_empty_entry_and_a_reset_memory() {
    let site = crate::fixture::Site::new();
    site.append("agents/monitor-bot/MEMORY.md", "- note\n");
    let traced = Command::new("strace")
        .args([
            "-f",
            "-e",
            "trace=/^(f(data)?sync|syncfs|linkat|renameat2?)$",
        ])
        .args([crate::fixture::PROGRAM, "reset", "monitor-bot", "--config"])
        .arg(site.path("memory-shepherd.conf"))
        .env("TZ", "UTC")
        .output();
    let Ok(traced) = traced else {
        println!("skipped: strace is not installed");
        return;
    };
    let calls = String::from_utf8_lossy(&traced.stderr).into_owned();
    if !traced.status.success() && calls.contains("PTRACE") {
        println!("skipped: strace may not trace here");
        return;
    }
    assert!(traced.status.success(), "{calls}");
    let calls: Vec<&str> = calls.lines().collect();
    let at = |what: &[&str]| {
        let is = |call: &&str| what.iter().all(|part| call.contains(part));
        calls.iter().position(is).unwrap()
    };
    let entry = at(&["linkat(", ".md\""]);
    let swap = at(&["rename", "MEMORY.md"]);
    assert!(entry < swap, "{calls:#?}");
    let flushes = |calls: &[&str]| calls.iter().any(|call| call.contains("sync"));
    assert!(flushes(&calls[entry..swap]), "the entry: {calls:#?}");
    assert!(flushes(&calls[swap..]), "the memory: {calls:#?}");
}

#[test]
fn a_missing_file_was_created_by_a_copy_that_a_full_disk_left_half() {
    let world = Arc::new(World::new(&["scout"]));
    let full = |when: Moment| {
        let memory = world.memory("scout");
        Interposer::new(world.local(), move |moment| {
            // At every moment it is not there, or is there as a whole.
            if let Ok(bytes) = fs::read(&memory) {
                assert_eq!(bytes, BASELINE.as_bytes());
            }
            match moment == when {
                true => Err(no_space()),
                false => Ok(()),
            }
        })
    };
    for name in ["stage", "swap"] {
        let ran = world.reset_by(&world.engine_on(full(Moment::Before(name))));
        ran.ended(Outcome::Failed);
        let memory = fs::read(world.memory("scout"));
        assert!(memory.is_err(), "{name}: {memory:?}");
    }
    // Room again: what was begun is finished.
    world.reset_by(&world.engine_on(full(Moment::Before("nothing"))));
    assert_eq!(names(&world.folder("scout")), ["MEMORY.md"]);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

fn no_space() -> TransportError {
    let error = Error::new(ErrorKind::Host, "no space left on device");
    TransportError::new(FailureCause::Refused, error)
}

#[test]
fn temporaries_and_half_entries_were_left() {
    for name in ["look", "read", "stage", "swap"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let fails = Interposer::new(world.local(), move |moment| match moment {
            Moment::Before(at) if at == name => Err(no_space()),
            _ => Ok(()),
        });
        world
            .reset_by(&world.engine_on(fails))
            .ended(Outcome::Failed);
        assert!(world.litter("scout").is_empty(), "{name}");
        assert!(world.pending().is_empty(), "{name}");
        for entry in world.entries("scout") {
            let path = world.archive().join("scout").join(&entry);
            assert!(fs::read(path).unwrap().ends_with(b"- note\n"), "{name}");
            assert!(!entry.starts_with('.'), "{name}: {entry}");
        }
    }
}

#[test]
fn one_failing_agent_host_or_archive_stopped_all_the_others() {
    let mut world = World::new(&["archive", "baseline", "folder", "zoe"]);
    for agent in ["archive", "baseline", "folder", "zoe"] {
        world.write_scratch(agent, "- note\n");
    }
    world.add(
        "far",
        "memory_file =\nremote_host = far.example\nremote_memory = /m/MEMORY.md",
    );
    world.set_baseline("far", BASELINE);
    fs::create_dir_all(world.archive()).unwrap();
    fs::write(world.archive().join("archive"), "in the way").unwrap();
    fs::remove_file(world.baseline("baseline")).unwrap();
    fs::remove_dir_all(world.folder("folder")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.of("zoe").outcome, Outcome::Ok, "{:?}", ran.lines);
    assert_eq!(world.read("zoe"), BASELINE.as_bytes());
    for agent in ["archive", "baseline", "far", "folder"] {
        let result = ran.of(agent);
        assert!(result.kind.is_some() && result.note.is_some(), "{agent}");
        let told = |line: &String| line.contains(&format!("{agent}: "));
        assert!(ran.lines.iter().any(told), "{agent}: {:?}", ran.lines);
    }
}
