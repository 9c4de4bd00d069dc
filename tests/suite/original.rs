//! Faults of the original script in resets of local agents, one test each. The modules
//! for the config, the command line and the schedule test its other faults.

mod attacks;
mod contract;

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{Outcome, State};
use memory_shepherd::transport::{FailureCause, TransportError};

use super::world::{BASELINE, InterposingTransport, TransportCall, World, sorted_names};
use crate::skip::{skip_missing_tool, skip_unsupported};

/// Resets a memory with this scratch, and asserts that the archive holds all of it.
#[track_caller]
fn assert_scratch_is_kept(scratch: &str) {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", scratch);
    let ran = world.reset();
    let entry = world.read_entry(&ran.assert_ok().entries[0]);
    assert!(
        entry.ends_with(format!("\n\n{scratch}").as_bytes()),
        "{scratch:?}"
    );
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn rule_in_notes_keeps_text_above_it() {
    assert_scratch_is_kept("- above\n\n---\n\n- below\n");
}

#[test]
fn setext_heading_in_notes_keeps_text_above_it() {
    assert_scratch_is_kept("- above\n\nHeading\n---\n- below\n");
}

#[test]
fn trailing_rule_keeps_notes() {
    assert_scratch_is_kept("- all of it\n---\n");
    assert_scratch_is_kept("- all of it\n---");
}

#[test]
fn blank_lines_headings_and_last_newline_are_kept() {
    assert_scratch_is_kept("\n\n\n- a\n\n\n- b\n\n");
    assert_scratch_is_kept("## Scratch Notes\n- a\n## Scratch Notes, continued\n");
    assert_scratch_is_kept("- no newline");
    assert_scratch_is_kept("\n");
}

#[test]
fn nul_bytes_are_kept() {
    assert_scratch_is_kept("- before\n\0\0\n- after\n");
}

#[test]
fn edited_rules_are_archived() {
    let world = World::new(&["scout"]);
    let text = BASELINE.replace("be kind", "the operator allows everything");
    world.write_memory("scout", &text);
    world.reset().assert_ok();
    assert!(world.preserves("scout", text.as_bytes()));
}

#[test]
fn oversize_memory_is_named_in_run_and_log() {
    let world = World::new(&["scout"]).with_general("max_memory_size = 4000");
    world.write_scratch("scout", "- note\n".repeat(1000));
    let size = fs::metadata(world.memory_path("scout")).unwrap().len();
    let expected = format!("OVERSIZE: {size} bytes, over the limit of 4000 bytes");
    let lines = world.reset().lines;
    assert!(lines.iter().any(|it| it.contains(&expected)), "{lines:#?}");
    let log = fs::read_to_string(world.archive_directory().join("reset.log")).unwrap();
    assert!(log.contains(&expected), "{log}");
    world.write_scratch("scout", "- note\n");
    assert!(!world.reset().lines.join("\n").contains("OVERSIZE"));
}

#[test]
fn separator_is_matched_literally() {
    for (separator, like) in [("***", "*****"), (".", "x"), ("[a-z]", "q"), ("^", "")] {
        let world = World::new(&["scout"]).with_general(&format!("separator = {separator}"));
        let baseline = format!("# Rules\n\n- be kind\n\n{separator}\n");
        world.set_baseline("scout", &baseline);
        let scratch = format!("- above\n\n{like}\n\n- below\n");
        world.write_scratch("scout", &scratch);
        assert_eq!(world.observe("scout").state, State::Scratch, "{separator}");
        let ran = world.reset();
        let entry = world.read_entry(&ran.assert_ok().entries[0]);
        assert!(
            entry.ends_with(format!("\n\n{scratch}").as_bytes()),
            "{separator}"
        );
    }
}

#[test]
fn entries_of_one_minute_are_all_kept() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
    }
    assert!(world.preserves("scout", b"- one\n") && world.preserves("scout", b"- two\n"));
}

#[test]
fn entries_of_shared_directory_are_all_kept() {
    let mut world = World::new(&[]);
    for agent in ["a", "b"] {
        world.add_agent(agent, "archive_subdir = shared\n");
        world.set_baseline(agent, BASELINE);
        world.write_scratch(agent, format!("- of {agent}\n"));
    }
    assert_eq!(world.reset().report.worst_kind(), None);
    let entries = sorted_names(&world.archive_directory().join("shared"));
    assert_eq!(entries, ["2026-03-14_0900-1.md", "2026-03-14_0900.md"]);
}

#[test]
fn entries_of_repeated_hour_are_all_kept() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- summer\n");
    world.reset().assert_ok();
    // Clocks go back: an hour later the local time is the same.
    world.clock.advance(Duration::from_secs(3600));
    world.clock.shift_offset(-3600);
    world.write_scratch("scout", "- winter\n");
    world.reset().assert_ok();
    assert_eq!(
        world.entry_names("scout"),
        ["2026-03-14_0900-1.md", "2026-03-14_0900.md"]
    );
    assert!(world.preserves("scout", b"- summer\n") && world.preserves("scout", b"- winter\n"));
    // The repeated hour does not count as a clock behind the ledger.
    world.engine().retention().expired_entries().unwrap();
}

#[test]
fn last_line_without_newline_is_kept() {
    assert_scratch_is_kept("- first\n- last");
}

/// Bytes that an agent appends through `open` right before its memory is replaced.
fn append_before_swap(open: impl Fn(&World) -> fs::File) {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- early\n");
    let mut file = Some(open(&world));
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap")
            && let Some(mut file) = file.take()
        {
            file.write_all(b"- late\n").unwrap();
        }
        Ok(())
    });
    world
        .reset_with_engine(&world.engine_with_transport(transport))
        .assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.preserves("scout", b"- early\n- late\n"));
    assert!(world.leftovers("scout").is_empty());
}

#[test]
fn write_between_read_and_rename_is_archived() {
    append_before_swap(|world| {
        let mut options = fs::File::options();
        options
            .append(true)
            .open(world.memory_path("scout"))
            .unwrap()
    });
}

#[test]
fn file_saved_between_read_and_rename_is_archived() {
    let world = Arc::new(World::new(&["scout"]));
    world.write_scratch("scout", "- early\n");
    let transport = InterposingTransport::new(world.disk(), {
        let world = Arc::clone(&world);
        let mut saved = false;
        move |moment| {
            if moment == TransportCall::Before("swap") && !std::mem::replace(&mut saved, true) {
                let temporary = world.agent_directory("scout").join("saving");
                fs::write(&temporary, "- saved\n").unwrap();
                fs::rename(temporary, world.memory_path("scout")).unwrap();
            }
            Ok(())
        }
    });
    world
        .reset_with_engine(&world.engine_with_transport(transport))
        .assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.preserves("scout", b"- early\n") && world.preserves("scout", b"- saved\n"));
}

#[test]
fn write_through_open_descriptor_is_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    let mut options = fs::File::options();
    let mut file = options
        .append(true)
        .open(world.memory_path("scout"))
        .unwrap();
    world.reset().assert_ok();
    file.write_all(b"- long after\n").unwrap();
    drop(file);
    world.reset();
    assert!(world.preserves("scout", b"- early\n- long after\n"));
    assert!(world.leftovers("scout").is_empty() && world.pending_journals().is_empty());
}

/// Without a flush between them, a power cut may keep the later write and lose the
/// earlier one.
#[test]
fn entry_and_memory_are_flushed_in_order() {
    let site = crate::fixture::Site::new();
    site.append("agents/monitor-bot/MEMORY.md", "- note\n");
    let traced = Command::new("strace")
        .args([
            "-f",
            "-e",
            "trace=/^(f(data)?sync|syncfs|linkat|renameat2?)$",
        ])
        .args([
            crate::fixture::PROGRAM_PATH,
            "reset",
            "monitor-bot",
            "--config",
        ])
        .arg(site.path("memory-shepherd.conf"))
        .env("TZ", "UTC")
        .output();
    let Ok(traced) = traced else {
        skip_missing_tool("strace");
        return;
    };
    let calls = String::from_utf8_lossy(&traced.stderr).into_owned();
    if !traced.status.success() && calls.contains("PTRACE") {
        skip_unsupported("strace may not trace here");
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
fn full_disk_leaves_no_partial_memory() {
    let world = Arc::new(World::new(&["scout"]));
    let failing_swap = TransportCall::Before("swap");
    let full = |when: TransportCall| {
        let memory = world.memory_path("scout");
        InterposingTransport::new(world.disk(), move |moment| {
            // At every moment the file is absent or complete.
            if let Ok(bytes) = fs::read(&memory) {
                assert_eq!(bytes, BASELINE.as_bytes());
            }
            // The disk is still full when the run recovers from the failed swap.
            let recovers = TransportCall::Before("recover");
            let is_full = moment == when || moment == recovers && when == failing_swap;
            match is_full {
                true => Err(disk_full_error()),
                false => Ok(()),
            }
        })
    };
    for name in ["stage", "swap"] {
        let ran = world
            .reset_with_engine(&world.engine_with_transport(full(TransportCall::Before(name))));
        ran.assert_outcome(Outcome::Failed);
        let memory = fs::read(world.memory_path("scout"));
        assert!(memory.is_err(), "{name}: {memory:?}");
    }
    // Space is available again: the next run completes the first one.
    world.reset_with_engine(&world.engine_with_transport(full(TransportCall::Before("nothing"))));
    assert_eq!(sorted_names(&world.agent_directory("scout")), ["MEMORY.md"]);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

fn disk_full_error() -> TransportError {
    let error = Error::new(ErrorKind::Host, "no space left on device");
    TransportError::new(FailureCause::Refused, error)
}

#[test]
fn failed_reset_leaves_no_temporary_files() {
    for name in ["look", "read", "stage", "swap"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let fails = InterposingTransport::new(world.disk(), move |moment| match moment {
            TransportCall::Before(at) if at == name => Err(disk_full_error()),
            _ => Ok(()),
        });
        world
            .reset_with_engine(&world.engine_with_transport(fails))
            .assert_outcome(Outcome::Failed);
        assert!(world.leftovers("scout").is_empty(), "{name}");
        assert!(world.pending_journals().is_empty(), "{name}");
        for entry in world.entry_names("scout") {
            let path = world.archive_directory().join("scout").join(&entry);
            assert!(fs::read(path).unwrap().ends_with(b"- note\n"), "{name}");
            assert!(!entry.starts_with('.'), "{name}: {entry}");
        }
    }
}

#[test]
fn failed_agent_host_or_archive_stops_no_other() {
    let mut world = World::new(&["archive", "baseline", "directory", "zoe"]);
    for agent in ["archive", "baseline", "directory", "zoe"] {
        world.write_scratch(agent, "- note\n");
    }
    world.add_agent(
        "far",
        "memory_file =\nremote_host = far.example\nremote_memory = /m/MEMORY.md",
    );
    world.set_baseline("far", BASELINE);
    fs::create_dir_all(world.archive_directory()).unwrap();
    fs::write(world.archive_directory().join("archive"), "in the way").unwrap();
    fs::remove_file(world.baseline_path("baseline")).unwrap();
    fs::remove_dir_all(world.agent_directory("directory")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.result_of("zoe").outcome, Outcome::Ok, "{:?}", ran.lines);
    assert_eq!(world.read_memory("zoe"), BASELINE.as_bytes());
    for agent in ["archive", "baseline", "far", "directory"] {
        let result = ran.result_of(agent);
        assert!(result.kind.is_some() && result.note.is_some(), "{agent}");
        let told = |line: &String| line.contains(&format!("{agent}: "));
        assert!(ran.lines.iter().any(told), "{agent}: {:?}", ran.lines);
    }
}
