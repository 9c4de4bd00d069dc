//! Records that a run leaves: the ledger, `reset.log`, and the deletions of retention.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Duration;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{FileState, Operation, Outcome};
use memory_shepherd::transport::SwapMethod;

use memory_shepherd::base::clock::Clock;

use super::earlier::insert_earlier_run;
use super::fixture::{PROGRAM_PATH, Site};
use super::world::{BASELINE, InterposingTransport, TransportCall, World, records, sorted_names};
use crate::skip::skip_unsupported;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns a world with two recorded resets, the first of them changed in the ledger.
fn world_with_changed_ledger() -> World {
    let world = World::new(&["scout"]);
    for _ in 0..2 {
        world.write_scratch("scout", "- note\n");
        world.reset().assert_ok();
    }
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, text.replacen("tester", "hacker", 1)).unwrap();
    world
}

#[test]
fn run_log_keeps_original_format_and_rotates() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    let log = world.archive_directory().join("reset.log");
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.lines().collect::<Vec<_>>(), ran.lines);
    for line in text.lines() {
        assert!(
            line.starts_with("[2026-03-14 09:00:30] [memory-shepherd] "),
            "{line}"
        );
    }
    fs::write(&log, "x".repeat(1 << 20)).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    let old = fs::read(world.archive_directory().join("reset.log.old")).unwrap();
    assert!(old.len() > 1 << 20);
    assert!(fs::metadata(&log).unwrap().len() < 4096);
}

#[test]
fn hostile_names_do_not_reach_run_log() {
    let world = World::new(&["scout"]);
    world.replace_recorded_file("scout", |path| symlink("a\u{1b}[2Jb\nc", path).unwrap());
    let ran = world.reset();
    let log = fs::read_to_string(world.archive_directory().join("reset.log")).unwrap();
    assert!(!log.contains('\u{1b}'));
    assert!(log.lines().all(|line| line.starts_with('[')), "{log}");
    ran.assert_ok();
}

/// Ages an entry, its inode as well as its name.
fn set_entry_age(path: &Path, world: &World, days: u32) {
    let now: std::time::SystemTime = world.clock.now().into();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(now - DAY * days).unwrap();
}

#[test]
fn retention_deletes_only_listed_entries() {
    let world = World::new(&["a", "b"]);
    let directory = world.archive_directory().join("a");
    fs::create_dir_all(&directory).unwrap();
    for name in [
        "2026-01-01_0900.md",
        "2026-01-02_0900-full-backup.md",
        "notes.md",
        "2026-01-01_0900.txt",
    ] {
        fs::write(directory.join(name), "x").unwrap();
        set_entry_age(&directory.join(name), &world, 60);
    }
    fs::write(directory.join("2026-01-03_0900.md"), "young by its inode").unwrap();
    insert_earlier_run(&world.archive_directory(), "a", world.clock.now(), 2);
    world.write_scratch("a", "- note\n");
    world.write_scratch("b", "- note\n");
    // A run that fails deletes nothing.
    fs::rename(world.baseline_path("a"), world.root.join("away")).unwrap();
    assert!(world.reset().report.retired_entries.is_empty());
    fs::rename(world.root.join("away"), world.baseline_path("a")).unwrap();
    let shown: Vec<_> = world
        .engine()
        .retention()
        .expired_entries()
        .unwrap()
        .into_iter()
        .map(|e| e.path)
        .collect();
    let ran = world.reset();
    assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
    assert_eq!(ran.report.retired_entries, shown);
    assert_eq!(
        shown,
        [
            Path::new("a/2026-01-01_0900.md"),
            Path::new("a/2026-01-02_0900-full-backup.md")
        ]
    );
    assert_eq!(
        world.entry_names("a"),
        [
            "2026-01-01_0900.txt",
            "2026-01-03_0900.md",
            "2026-03-14_0900.md",
            "notes.md"
        ]
    );
}

#[test]
fn retention_keeps_newest_entry_of_any_age() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    let entry = world
        .archive_directory()
        .join(&ran.assert_ok().entries[0].path);
    world.clock.advance(DAY * 365);
    set_entry_age(&entry, &world, 364);
    for _ in 0..2 {
        assert!(world.reset().report.retired_entries.is_empty());
        assert!(entry.exists());
        world.clock.advance(DAY);
    }
    // Beside a newer entry it expires, also in a fleet of one agent.
    world.write_scratch("scout", "- newer\n");
    assert_eq!(world.reset().report.retired_entries.len(), 1);
    assert!(!entry.exists());
}

#[test]
fn unrecorded_clean_run_fails_with_integrity() {
    let world = world_with_changed_ledger();
    let ran = world.reset();
    let result = ran.assert_outcome(Outcome::Unchanged);
    assert_eq!(result.kind, Some(ErrorKind::Integrity));
    assert!(ran.note().contains("not recorded"), "{}", ran.note());
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Integrity));
}

#[test]
fn replaced_ledger_is_read_from_start() {
    let world = World::new(&["scout"]);
    let other = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    for note in ["- one\n", "- two\n"] {
        other.write_scratch("scout", note);
        other.reset().assert_ok();
    }
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let theirs = other.archive_directory().join(".shepherd/ledger.jsonl");
    for same_inode in [true, false] {
        let engine = world.engine();
        assert_eq!(
            records(&engine).unwrap().len(),
            if same_inode { 1 } else { 2 }
        );
        let text = fs::read(&theirs).unwrap();
        match same_inode {
            true => fs::write(&ledger, text).unwrap(),
            false => {
                other.write_scratch("scout", "- three\n");
                other.reset().assert_ok();
                fs::rename(&theirs, &ledger).unwrap();
            }
        }
        let found = records(&engine).unwrap();
        assert_eq!(found.len(), if same_inode { 2 } else { 3 });
        world.write_scratch("scout", "- more\n");
    }
    let engine = world.engine();
    records(&engine).unwrap();
    // The broken ledger is moved away, as the hint says: a new one begins.
    fs::remove_file(&ledger).unwrap();
    assert!(records(&engine).unwrap().is_empty());
    world.reset_with_engine(&engine).assert_ok();
    assert_eq!(world.read_records().len(), 1);
}

#[test]
fn ledger_records_are_chained_and_describe_the_run() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    world.reset().assert_outcome(Outcome::Unchanged);
    let records = world.read_records();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].previous_digest, Digest::ZERO);
    let text =
        fs::read_to_string(world.archive_directory().join(".shepherd/ledger.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(records[1].previous_digest, Digest::of(lines[0].as_bytes()));
    assert_eq!((records[0].seq, records[1].seq), (1, 2));
    assert_eq!(
        ran.report.ledger_head,
        Some((1, Digest::of(lines[0].as_bytes())))
    );
    let event = &records[0].event;
    assert_eq!(event.run, ran.report.run);
    assert_eq!(event.operation, Operation::Reset);
    assert_eq!(event.change.method, Some(SwapMethod::Exchange));
    assert_eq!(event.baseline, Some(Digest::of(BASELINE.as_bytes())));
    assert_eq!(event.change.entry.as_ref(), ran.assert_ok().entries.first());
    let whole = format!("{BASELINE}- note\n");
    assert_eq!(
        event.change.before,
        Some(FileState::File {
            sha256: Digest::of(whole.as_bytes()),
            size: whole.len() as u64,
            lines: 7
        })
    );
    assert!(
        ran.lines
            .last()
            .unwrap()
            .contains(&ran.report.ledger_head.unwrap().1.to_string())
    );
}

#[test]
fn torn_last_ledger_line_is_cut_and_recorded() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let mut text = fs::read(&ledger).unwrap();
    text.extend_from_slice(b"{\"seq\":2,\"pre");
    fs::write(&ledger, text).unwrap();
    assert_eq!(world.read_records().len(), 1, "a torn line was read");
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    let records = world.read_records();
    assert_eq!(records.len(), 3);
    assert_eq!(records[1].event.operation, Operation::Repair);
    assert_eq!(
        records[1].event.note.as_deref(),
        Some("cut 13 bytes of an unfinished record")
    );
    assert_eq!(records[2].event.outcome, Outcome::Ok);
}

#[test]
fn changed_ledger_line_is_found_and_refuses_resets() {
    let world = world_with_changed_ledger();
    let error = records(&world.engine()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert!(error.message().contains("is broken at line 2"), "{error}");
    world.write_scratch("scout", "- note\n");
    assert!(world.observe("scout").ledger_error.is_some());
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Integrity)
    );
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn internal_file_names_are_not_entries() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    assert_eq!(
        sorted_names(&world.archive_directory()),
        [".shepherd", "reset.log", "scout"]
    );
}

#[test]
fn archive_group_modes_ignore_umask_and_killed_run() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip_unsupported("needs root");
        return;
    }
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let config = config
        .replace("[general]", "[general]\narchive_group=daemon")
        .replace("archive_dir=./archives", "archive_dir=./deep/archives");
    site.write("memory-shepherd.conf", config);
    let reset = || {
        for agent in ["code-reviewer", "monitor-bot"] {
            site.append(&format!("agents/{agent}/MEMORY.md"), "- note\n");
        }
        let mut command = assert_cmd::Command::new("sh");
        let script = "umask 0777 && exec \"$0\" reset --all";
        command
            .args(["-c", script, PROGRAM_PATH])
            .current_dir(&site.dir);
        let _ = site.run_command(&mut command).assert_code(0);
    };
    let wrong = || {
        let mut wrong = Vec::new();
        let mut directories = vec![site.path("deep")];
        while let Some(directory) = directories.pop() {
            let mut paths = vec![directory.clone()];
            for item in fs::read_dir(&directory).unwrap() {
                let path = item.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => paths.push(path),
                }
            }
            for path in paths {
                let (meta, dir) = (fs::metadata(&path).unwrap(), path.is_dir());
                let is_lock = path.extension().is_some_and(|end| end == "lock");
                let want = match dir {
                    true => 0o2750,
                    // A user who can read a file can hold a lock on it.
                    false if is_lock => 0o600,
                    false => 0o640,
                };
                if meta.mode() & 0o7777 != want || meta.gid() == 0 {
                    wrong.push(format!("{} {:o}", path.display(), meta.mode()));
                }
            }
        }
        wrong
    };
    reset();
    assert_eq!(wrong(), Vec::<String>::new());
    // The state after a kill between creating them and setting their modes.
    let spoil = |name: &str, mode: u32| {
        let path = site.path("deep/archives").join(name);
        chown(&path, None, Some(0)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in [
        "",
        ".shepherd",
        ".shepherd/tx",
        ".shepherd/locks",
        "monitor",
    ] {
        spoil(name, 0o700);
    }
    for name in [
        "reset.log",
        ".shepherd/ledger.jsonl",
        ".shepherd/locks/code-reviewer.holder",
    ] {
        spoil(name, 0o600);
    }
    spoil(".shepherd/locks/code-reviewer.lock", 0o640);
    reset();
    assert_eq!(wrong(), Vec::<String>::new());
}

#[test]
fn operator_mode_of_archive_directory_is_kept() {
    let world = World::new(&["scout"]);
    fs::create_dir(world.archive_directory()).unwrap();
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(world.archive_directory(), permissions).unwrap();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    assert_eq!(
        super::world::permission_bits(&world.archive_directory()),
        0o755
    );
    assert_eq!(
        super::world::permission_bits(&world.archive_directory().join("scout")),
        0o700
    );
}

#[test]
fn journal_of_unconfigured_agent_is_reported() {
    let mut world = World::new(&["scout"]);
    let transport = InterposingTransport::new(world.disk(), |moment| match moment {
        TransportCall::After("swap") => resume_unwind(Box::new("crash")),
        _ => Ok(()),
    });
    let engine = world.engine_with_transport(transport);
    world.write_scratch("scout", "- note\n");
    assert!(catch_unwind(AssertUnwindSafe(|| world.reset_with_engine(&engine))).is_err());
    world.add_agent(
        "ranger",
        "memory_file = agents/scout/MEMORY.md\nbaseline = scout.md",
    );
    let world = world.without_agent("scout");
    let ran = world.reset();
    assert_eq!(ran.assert_outcome(Outcome::Unchanged).kind, None);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Partial));
    let [trouble] = ran.report.errors.as_slice() else {
        panic!("{:?}", ran.report.errors)
    };
    assert!(trouble.message().contains("tx/scout."), "{trouble}");
    assert!(ran.lines.iter().any(|line| line.contains("tx/scout.")));
    // The record belongs to no agent.
    let last = world.read_records().pop().unwrap().event;
    assert_eq!(
        (last.operation, last.outcome),
        (Operation::Reset, Outcome::Failed)
    );
    assert_eq!((last.agent.as_str(), &last.run), ("", &ran.report.run));
    assert!(last.note.unwrap().contains("tx/scout."));
    assert_eq!(world.engine().runs().unclaimed_journals().unwrap().len(), 1);
}

#[test]
fn unwritable_lock_holder_does_not_fail_reset() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let locks = world.archive_directory().join(".shepherd/locks");
    fs::create_dir_all(&locks).unwrap();
    // Every write to it fails with "no space left on device".
    match std::process::Command::new("mknod")
        .args(["-m", "600"])
        .arg(locks.join("scout.lock"))
        .args(["c", "1", "7"])
        .status()
    {
        Ok(status) if status.success() && fs::File::open(locks.join("scout.lock")).is_ok() => {}
        _ => return skip_unsupported("cannot make a device"),
    }
    world.reset().assert_ok();
}
