//! Observing, planning and resetting on real files.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fake_transport::{FakeOperation, FakeTransport};
use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Engine, FileState, Outcome, RunProgress, State};
use memory_shepherd::transport::SwapMethod;

use super::world::{
    BASELINE, InterposingTransport, TransportCall, World, apply_plan, permission_bits,
};
use crate::skip::skip_unsupported;

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        skip_unsupported("needs root");
    }
    root
}

fn plan_reset(engine: &Engine, agent: &str) -> memory_shepherd::engine::Plan {
    engine
        .planner()
        .plan_reset(&[agent.to_string()], false)
        .unwrap()
}

pub(super) fn make_fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let made = Command::new("mkfifo").arg(path.to_str().unwrap()).status();
    assert!(made.unwrap().success());
}

#[test]
fn every_state_is_distinguished() {
    let mut world = World::new(&["clean", "scratch", "drifted", "nosep", "missing", "odd"]);
    world.add_agent("oversize", "max_memory_size = 64\n");
    world.set_baseline("oversize", BASELINE);
    world.add_agent("unusable", "");
    world.write_scratch("clean", "");
    world.write_scratch("scratch", "- a note\n");
    world.write_memory("drifted", BASELINE.replace("brief", "verbose") + "- note\n");
    world.write_memory("nosep", "nothing of the baseline\n");
    world.write_scratch("oversize", "x".repeat(64));
    symlink("/etc/passwd", world.memory_path("odd")).unwrap();
    fs::write(world.memory_path("unusable"), "x").unwrap();
    let state = |agent| {
        let seen = world.observe(agent);
        (seen.state, seen.reason)
    };
    assert_eq!(state("clean"), (State::Clean, String::new()));
    assert_eq!(state("scratch"), (State::Scratch, String::new()));
    assert_eq!(
        state("drifted"),
        (State::Drifted, "rules edited: L4".to_string())
    );
    assert_eq!(state("nosep").0, State::NoSep);
    assert_eq!(state("missing").0, State::Missing);
    assert_eq!(state("oversize").0, State::Oversize);
    let (odd, why) = state("odd");
    assert_eq!(odd, State::Error);
    assert!(why.contains("a symlink to /etc/passwd"), "{why}");
    let (unusable, why) = state("unusable");
    assert_eq!(unusable, State::Error);
    assert!(why.contains("is missing"), "{why}");
    world.write_seal();
    world.set_baseline("clean", BASELINE.replace("kind", "evil"));
    assert_eq!(state("clean").0, State::Tampered);
}

#[test]
fn unreadable_directory_is_error_not_missing() {
    let world = World::new(&["scout"]);
    fs::remove_dir_all(world.agent_directory("scout")).unwrap();
    assert_eq!(world.observe("scout").state, State::Error);
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Failed).kind,
        Some(ErrorKind::Host)
    );
    fs::write(
        world.agent_directory("scout"),
        "a file where the directory was",
    )
    .unwrap();
    assert_eq!(world.observe("scout").state, State::Error);
}

#[test]
fn clean_memory_is_neither_written_nor_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "");
    let before = fs::metadata(world.memory_path("scout")).unwrap();
    world.reset().assert_outcome(Outcome::Unchanged);
    let after = fs::metadata(world.memory_path("scout")).unwrap();
    assert_eq!(before.ino(), after.ino());
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert!(world.entry_names("scout").is_empty());
}

#[test]
fn baseline_tail_is_not_scratch() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", format!("{BASELINE}\n## Scratch Notes\n"));
    world.write_scratch("scout", "");
    assert_eq!(world.observe("scout").state, State::Clean);
    world.reset().assert_outcome(Outcome::Unchanged);
    world.write_scratch("scout", "mine\n");
    assert_eq!(
        world.observe("scout").content.unwrap().scratch_lines,
        1,
        "the tail does not count"
    );
    let ran = world.reset();
    let entry = world.read_entry(&ran.assert_ok().entries[0]);
    assert!(entry.ends_with(b"\n\n\n## Scratch Notes\nmine\n"));
}

#[test]
fn scratch_entry_is_header_plus_verbatim_bytes() {
    let scratches: [&[u8]; 7] = [
        b"\n\n- a\n\n\n- b\n\n",
        b"a\r\nb\r\n",
        b"nul \0 here\n",
        b"\xff\xfe not utf-8\n",
        b"no final newline",
        b"## Scratch Notes\n- under the heading\n# SCOUT scratch notes\n",
        b"---\n- below another rule\n---\n",
    ];
    for scratch in scratches {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", scratch);
        let ran = world.reset();
        let [written] = ran.assert_ok().entries.as_slice() else {
            panic!("{:?}", ran.assert_ok().entries)
        };
        assert_eq!(written.kind, EntryKind::Scratch);
        let mut expected = "# scout scratch notes — archived 2026-03-14_0900\n\n"
            .as_bytes()
            .to_vec();
        expected.extend_from_slice(scratch);
        assert_eq!(world.read_entry(written), expected);
        assert_eq!(written.digest, Digest::of(&expected));
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
        assert!(
            world.leftovers("scout").is_empty(),
            "{:?}",
            world.leftovers("scout")
        );
        assert!(world.pending_journals().is_empty());
    }
}

#[test]
fn drift_or_missing_boundary_archives_whole_file() {
    for text in [
        BASELINE.replace("kind", "cruel") + "- note\n",
        "no rule of mine\r\n\0\n\n---x".to_string(),
        String::new(),
    ] {
        let world = World::new(&["scout"]);
        world.write_memory("scout", &text);
        let ran = world.reset();
        let entry = &ran.assert_ok().entries[0];
        assert_eq!(entry.kind, EntryKind::FullBackup);
        assert!(entry.path.ends_with("2026-03-14_0900-full-backup.md"));
        assert_eq!(world.read_entry(entry), text.as_bytes());
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
}

#[test]
fn memory_behind_baseline_is_split_by_its_version() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    world.write_scratch("scout", "- two\n");
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Behind);
    assert_eq!(seen.reason, "behind by +1 -1 lines");
    assert_eq!(seen.content.unwrap().scratch_lines, 1);
    let ran = world.reset();
    let entry = world.read_entry(&ran.assert_ok().entries[0]);
    assert!(entry.ends_with(b"\n\n- two\n"));
    assert!(!String::from_utf8(entry).unwrap().contains("be brief"));
    assert!(world.read_memory("scout").ends_with(b"- be exact\n\n---\n"));
}

#[test]
fn missing_memory_is_created_with_directory_owner() {
    let world = World::new(&["scout"]);
    fs::set_permissions(
        world.agent_directory("scout"),
        fs::Permissions::from_mode(0o750),
    )
    .unwrap();
    if is_root() {
        chown(world.agent_directory("scout"), Some(65534), Some(65534)).unwrap();
    }
    let ran = world.reset();
    let created = ran.assert_ok();
    assert!(created.entries.is_empty());
    let note = created.note.as_deref().unwrap_or_default();
    assert!(note.starts_with("created"), "{note}");
    let directory = fs::metadata(world.agent_directory("scout")).unwrap();
    let memory = fs::metadata(world.memory_path("scout")).unwrap();
    assert_eq!(
        (memory.uid(), memory.gid()),
        (directory.uid(), directory.gid())
    );
    assert_eq!(permission_bits(&world.memory_path("scout")), 0o640);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert_eq!(
        world.read_records()[0].event.change.before,
        Some(FileState::Absent)
    );
    assert_eq!(
        world.read_records()[0].event.change.method,
        Some(SwapMethod::Create)
    );
}

#[test]
fn symlink_memory_is_described_and_displaced() {
    let world = World::new(&["scout"]);
    let target = world.root.join("precious");
    fs::write(&target, "secret").unwrap();
    world.replace_recorded_file("scout", |path| symlink(&target, path).unwrap());
    let ran = world.reset();
    let entry = &ran.assert_ok().entries[0];
    assert_eq!(entry.kind, EntryKind::Special);
    let text = String::from_utf8(world.read_entry(entry)).unwrap();
    assert!(text.contains("a symlink to") && text.contains("precious"));
    assert!(!text.contains("secret"));
    assert_eq!(fs::read(&target).unwrap(), b"secret");
    assert!(
        fs::symlink_metadata(world.memory_path("scout"))
            .unwrap()
            .is_file()
    );
    assert!(world.leftovers("scout").is_empty());
}

#[test]
fn fifo_and_directory_are_displaced() {
    let world = World::new(&["fifo", "directory"]);
    // The message does not call the directory a mistake in the config.
    assert_eq!(world.reset().report.worst_kind(), None);
    fs::remove_file(world.memory_path("fifo")).unwrap();
    fs::remove_file(world.memory_path("directory")).unwrap();
    make_fifo(&world.memory_path("fifo"));
    fs::create_dir(world.memory_path("directory")).unwrap();
    fs::write(world.memory_path("directory").join("inside"), "kept").unwrap();
    let ran = world.reset();
    for agent in ["fifo", "directory"] {
        assert_eq!(
            ran.result_of(agent).outcome,
            Outcome::Ok,
            "{:?}",
            ran.result_of(agent)
        );
        assert_eq!(ran.result_of(agent).entries[0].kind, EntryKind::Special);
        assert_eq!(ran.result_of(agent).entries.len(), 1);
        assert_eq!(world.read_memory(agent), BASELINE.as_bytes());
    }
    assert!(world.leftovers("fifo").is_empty());
    let [inside] = world.leftovers("directory").try_into().unwrap();
    let kept = inside.strip_suffix("/inside").unwrap();
    assert!(
        ran.result_of("directory")
            .note
            .as_ref()
            .unwrap()
            .contains(kept)
    );
    let inside = world.agent_directory("directory").join(&inside);
    assert_eq!(fs::read(inside).unwrap(), b"kept");
    assert!(world.pending_journals().is_empty());
}

#[test]
fn foreign_hard_link_is_never_archived() {
    if !is_root() {
        return;
    }
    // The test runs as root, so "neither the directory's owner nor us" needs a third
    // user.
    let world = World::new(&["scout"]);
    chown(world.agent_directory("scout"), Some(65534), Some(65534)).unwrap();
    let foreign = world.root.join("foreign");
    fs::write(&foreign, "somebody else's").unwrap();
    chown(&foreign, Some(1234), Some(1234)).unwrap();
    fs::hard_link(&foreign, world.memory_path("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.assert_ok().entries[0].kind, EntryKind::Special);
    assert!(!world.preserves("scout", b"somebody else's"));
    assert_eq!(fs::read(&foreign).unwrap(), b"somebody else's");
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), 1234);
    assert_eq!(
        fs::metadata(world.memory_path("scout")).unwrap().uid(),
        65534
    );
}

#[test]
fn symlinked_directory_is_refused_with_real_path() {
    let mut world = World::new(&["scout"]);
    symlink(
        world.agent_directory("scout"),
        world.root.join("agents/alias"),
    )
    .unwrap();
    world.write_scratch("scout", "- note\n");
    world.add_agent("alias", "memory_file = agents/alias/MEMORY.md\n");
    world.set_baseline("alias", BASELINE);
    let ran = world.reset();
    assert_eq!(ran.result_of("alias").outcome, Outcome::Failed);
    let note = ran.result_of("alias").note.as_ref().unwrap();
    assert!(note.contains("symlink"), "{note}");
    assert_eq!(
        ran.result_of("scout").outcome,
        Outcome::Ok,
        "other agents continue"
    );
}

#[test]
fn unusable_baseline_is_refused_with_its_kind() {
    let refused = |general: &str, spoil: &dyn Fn(&World)| {
        let world = World::new(&["scout"]).with_general(general);
        world.write_scratch("scout", "- note\n");
        spoil(&world);
        let before = world.read_memory("scout");
        let ran = world.reset();
        let result = ran.assert_outcome(Outcome::Refused);
        assert_eq!(world.read_memory("scout"), before, "untouched");
        assert!(world.entry_names("scout").is_empty());
        (result.kind.unwrap(), ran.note().to_string())
    };
    let (kind, note) = refused("", &|world| {
        fs::remove_file(world.baseline_path("scout")).unwrap()
    });
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(note.contains("is missing"), "{note}");
    let (kind, note) = refused("min_baseline_size = 1000", &|_| {});
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(note.contains("min_baseline_size is 1000"), "{note}");
    let (kind, note) = refused("", &|world| {
        fs::write(world.root.join("baselines/.checksums"), "").unwrap();
    });
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("not listed in the seal"), "{note}");
    let (kind, note) = refused("", &|world| {
        world.write_seal();
        world.set_baseline("scout", BASELINE.replace("kind", "evil"));
    });
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("does not match its seal"), "{note}");
    let (kind, note) = refused("require_seal = always", &|_| {});
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("require_seal=always"), "{note}");
    let (kind, _) = refused("", &|world| {
        fs::remove_file(world.baseline_path("scout")).unwrap();
        symlink("/etc/passwd", world.baseline_path("scout")).unwrap();
    });
    assert_eq!(kind, ErrorKind::Conflict);
}

#[test]
fn matching_seal_allows_reset() {
    let world = World::new(&["scout"]).with_general("require_seal = always");
    world.write_seal();
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
}

#[test]
fn agents_sharing_a_memory_are_refused() {
    let mut world = World::new(&["scout", "other"]);
    world.add_agent("twin", "memory_file = agents/scout/MEMORY.md\n");
    world.set_baseline("twin", BASELINE);
    world.write_scratch("scout", "- note\n");
    world.write_scratch("other", "- note\n");
    let ran = world.reset();
    for agent in ["scout", "twin"] {
        assert_eq!(ran.result_of(agent).outcome, Outcome::Refused);
        assert_eq!(ran.result_of(agent).kind, Some(ErrorKind::Conflict));
    }
    assert_eq!(ran.result_of("other").outcome, Outcome::Ok);
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn protect_readonly_refuses_until_unlocked() {
    let mut world = World::new(&[]);
    world.add_agent("scout", "protect = readonly\n");
    world.set_baseline("scout", BASELINE);
    world.write_scratch("scout", "- note\n");
    assert_eq!(
        world.reset().assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], true)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
}

#[test]
fn clean_protected_agent_is_unchanged() {
    let mut world = World::new(&["open"]);
    world.set_baseline("open", BASELINE);
    for agent in ["clean", "noted"] {
        world.add_agent(agent, "protect = readonly\n");
        world.set_baseline(agent, BASELINE);
        world.write_scratch(agent, "");
    }
    world.write_scratch("noted", "- note\n");
    world.write_scratch("open", "- note\n");
    let names = ["noted", "clean", "open"].map(str::to_string);
    let engine = world.engine();
    let observed = engine.planner().plan_reset(&names, false).unwrap();
    let unobserved = engine.planner().plan_unobserved(&names, false).unwrap();
    assert_eq!(
        unobserved.skipped, observed.skipped,
        "a dry run predicts the run"
    );
    let report = engine
        .runs()
        .apply_plan(&unobserved, false, &AtomicBool::new(false), &mut |_| ());
    let outcomes = report
        .results
        .iter()
        .map(|it| (it.agent.as_str(), it.outcome));
    let expected = [
        ("open", Outcome::Ok),
        ("noted", Outcome::Refused),
        ("clean", Outcome::Unchanged),
    ];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);
}

#[test]
fn read_only_hint_names_the_section() {
    let mut world = World::new(&["scout"]).with_general("protect = readonly");
    world.add_agent("own", "protect = readonly\n");
    for agent in ["scout", "own"] {
        world.set_baseline(agent, BASELINE);
        world.write_scratch(agent, "- note\n");
    }
    let ran = world.reset();
    for (agent, advice) in [
        (
            "scout",
            "set protect=none in [scout], or remove protect=readonly from [general]",
        ),
        ("own", "remove protect=readonly from [own]"),
    ] {
        let hints = &ran.result_of(agent).hints;
        assert!(hints[0].starts_with(advice), "{hints:?}");
    }
}

#[test]
fn reset_keeps_owner_mode_and_xattrs() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    if is_root() {
        chown(&memory, Some(1234), Some(4321)).unwrap();
    }
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o604)).unwrap();
    let attribute = Command::new("python3")
        .args([
            "-c",
            "import os,sys; os.setxattr(sys.argv[1], 'user.colour', b'blue\\0')",
        ])
        .arg(&memory)
        .status();
    let before = fs::metadata(&memory).unwrap();
    world.reset().assert_ok();
    let after = fs::metadata(&memory).unwrap();
    assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
    assert_eq!(permission_bits(&memory), 0o604);
    assert_eq!(after.nlink(), 1);
    let recorded = world.read_records()[0]
        .event
        .change
        .attributes
        .clone()
        .unwrap();
    assert_eq!((recorded.uid, recorded.mode), (before.uid(), 0o604));
    if attribute.is_ok_and(|status| status.success()) {
        let colour = Command::new("python3")
            .args([
                "-c",
                "import os,sys; sys.stdout.buffer.write(os.getxattr(sys.argv[1], 'user.colour'))",
            ])
            .arg(&memory)
            .output()
            .unwrap();
        assert_eq!(colour.stdout, b"blue\0");
        assert!(
            recorded
                .xattrs
                .contains(&(b"user.colour".to_vec(), b"blue\0".to_vec()))
        );
    } else {
        skip_unsupported("no user attributes here");
    }
}

#[test]
fn archive_directories_and_entries_are_private() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    let archive = world.archive_directory();
    for directory in ["", "scout", ".shepherd", ".shepherd/tx", ".shepherd/locks"] {
        assert_eq!(
            permission_bits(&archive.join(directory)),
            0o700,
            "{directory}"
        );
    }
    assert_eq!(
        permission_bits(&archive.join(&ran.assert_ok().entries[0].path)),
        0o600
    );
    assert_eq!(
        permission_bits(&archive.join(".shepherd/ledger.jsonl")),
        0o600
    );
    assert_eq!(permission_bits(&archive.join("reset.log")), 0o600);
}

#[test]
fn lock_of_other_process_is_busy_and_named() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    world.write_scratch("scout", "- more\n");
    let lock = world.archive_directory().join(".shepherd/locks/scout.lock");
    let mut holder = Command::new("python3")
        .args([
            "-c",
            "import fcntl,struct,sys\n\
             f=open(sys.argv[1],'r+')\n\
             fcntl.fcntl(f,37,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0))\n\
             f.write('{\"pid\":4711,\"user\":\"ops\",\"since\":\"2026-03-14T08:00:06+01:00\",\"run\":\"5a10\",\"trigger\":\"timer\",\"host\":\"build-1\"}');f.truncate();f.flush()\n\
             print('held',flush=True)\n\
             sys.stdin.read()",
        ])
        .arg(&lock)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = holder.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(line, "held\n");
    assert_eq!(world.observe("scout").state, State::Busy);
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Busy)
    );
    assert!(
        ran.note().contains(
            " by run 5a10 of ops@build-1 (timer, process 4711, since 2026-03-14 08:00:06)"
        ),
        "{}",
        ran.note()
    );
    // The holder is killed: its lock is released, its note remains and blocks no run.
    holder.kill().unwrap();
    holder.wait().unwrap();
    world.reset().assert_ok();
}

#[test]
fn plan_holds_after_scratch_grew() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let engine = world.engine();
    let plan = plan_reset(&engine, "scout");
    world.write_scratch("scout", "- one\n- two\n");
    let ran = apply_plan(&engine, &plan);
    assert!(
        world
            .read_entry(&ran.assert_ok().entries[0])
            .ends_with(b"- one\n- two\n")
    );
}

#[test]
fn plan_with_moved_inputs_is_refused() {
    let moved = |begin: &str, change: &dyn Fn(&World)| {
        let world = World::new(&["scout"]);
        world.write_memory("scout", begin);
        let engine = world.engine();
        let plan = plan_reset(&engine, "scout");
        change(&world);
        let before = world.read_memory("scout");
        let ran = apply_plan(&engine, &plan);
        assert_eq!(
            ran.assert_outcome(Outcome::Refused).kind,
            Some(ErrorKind::Conflict)
        );
        assert_eq!(world.read_memory("scout"), before, "untouched");
        assert!(world.entry_names("scout").is_empty());
        assert!(world.leftovers("scout").is_empty());
        // Without the binding the plan applies to the current state.
        let report = engine
            .runs()
            .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
        assert_eq!(report.worst_kind(), None);
    };
    let scratch = format!("{BASELINE}- note\n");
    let drifted = scratch.replace("kind", "cruel");
    // The rules above the boundary are edited.
    moved(&scratch, &|world| world.write_memory("scout", &drifted));
    // They were edited, and are edited again.
    moved(&drifted, &|world| {
        world.write_memory("scout", drifted.replace("brief", "loud"));
    });
    // The baseline changes.
    moved(&scratch, &|world| {
        world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    });
}

#[test]
fn plan_hash_covers_baseline_but_not_scratch() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let engine = world.engine();
    let first = plan_reset(&engine, "scout");
    world.write_scratch("scout", "- one\n- two\n");
    let second = plan_reset(&engine, "scout");
    assert_eq!(first.hash, second.hash);
    assert!(second.matches_hash(&first.hash[..8]));
    assert!(!second.matches_hash(&first.hash[..7]));
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    assert_ne!(plan_reset(&engine, "scout").hash, first.hash);
}

#[test]
fn entries_of_one_minute_never_overwrite() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
    }
    assert_eq!(
        world.entry_names("scout"),
        [
            "2026-03-14_0900-1.md",
            "2026-03-14_0900-2.md",
            "2026-03-14_0900.md"
        ]
    );
    for note in ["- one\n", "- two\n", "- three\n"] {
        assert!(world.preserves("scout", note.as_bytes()));
    }
}

#[test]
fn symlink_at_entry_name_is_not_followed() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let directory = world.archive_directory().join("scout");
    fs::create_dir_all(&directory).unwrap();
    let target = world.root.join("precious");
    fs::write(&target, "secret").unwrap();
    symlink(&target, directory.join("2026-03-14_0900.md")).unwrap();
    let ran = world.reset();
    assert!(
        ran.assert_ok().entries[0]
            .path
            .ends_with("2026-03-14_0900-1.md")
    );
    assert_eq!(fs::read(&target).unwrap(), b"secret");
}

#[test]
fn failed_agent_does_not_stop_the_others() {
    let world = World::new(&["a", "b", "c"]);
    for agent in ["a", "b", "c"] {
        world.write_scratch(agent, "- note\n");
    }
    fs::remove_file(world.baseline_path("b")).unwrap();
    // Archiving fails for agent a.
    fs::create_dir_all(world.archive_directory()).unwrap();
    fs::write(world.archive_directory().join("a"), "in the way").unwrap();
    let ran = world.reset();
    assert_eq!(ran.result_of("a").outcome, Outcome::Failed);
    assert_eq!(ran.result_of("b").outcome, Outcome::Refused);
    assert_eq!(ran.result_of("c").outcome, Outcome::Ok);
    assert!(
        world.read_memory("a").ends_with(b"- note\n"),
        "not archived, so unchanged"
    );
    let records = world.read_records();
    assert_eq!(records.len(), 3);
    assert!(
        records
            .iter()
            .all(|r| r.event.agent == "c" || r.event.note.is_some())
    );
}

#[test]
fn cancel_leaves_the_rest_not_started() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "- note\n");
    world.write_scratch("b", "- note\n");
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["a".to_string(), "b".to_string()], false)
        .unwrap();
    let cancel = AtomicBool::new(false);
    // The interrupt arrives while agent a is in progress; a is finished.
    let report = engine
        .runs()
        .apply_plan(&plan, true, &cancel, &mut |progress| {
            if let RunProgress::Stage(..) = progress {
                cancel.store(true, Ordering::Relaxed);
            }
        });
    assert_eq!(report.results[0].outcome, Outcome::Ok);
    assert_eq!(report.results[1].outcome, Outcome::NotStarted);
    assert_eq!(report.worst_kind(), Some(ErrorKind::Interrupted));
    assert_eq!(world.read_memory("a"), BASELINE.as_bytes());
    assert!(world.read_memory("b").ends_with(b"- note\n"));
    assert!(world.leftovers("b").is_empty());
    assert_eq!(world.read_records().len(), 2);
}

#[test]
fn memory_is_read_only_when_its_stamp_changed() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    fake.make_directory(world.agent_directory("scout"), 1000, 1000, 0o755);
    let memory = world.memory_path("scout");
    fake.write_file(&memory, format!("{BASELINE}- one\n").as_bytes());
    let engine = world.engine_with_transport(Arc::new(fake.clone()));
    let agent = engine.agent("scout").unwrap();
    engine.observer().observe(agent);
    // A file that changed just now may change again within one clock tick.
    engine.observer().observe(agent);
    assert_eq!(fake.count_calls(FakeOperation::Read, &memory), 2);
    // The times of the fake are whole seconds, as on file systems with coarse clocks.
    world.clock.advance(Duration::from_secs(2));
    engine.observer().observe(agent);
    assert_eq!(
        engine
            .observer()
            .observe(agent)
            .content
            .unwrap()
            .scratch_lines,
        1
    );
    assert_eq!(fake.count_calls(FakeOperation::Read, &memory), 3);
    fake.write_file(&memory, format!("{BASELINE}- one\n- two\n").as_bytes());
    assert_eq!(
        engine
            .observer()
            .observe(agent)
            .content
            .unwrap()
            .scratch_lines,
        2
    );
}

#[test]
fn unknown_agent_is_a_user_error() {
    let world = World::new(&["scout"]);
    let error = world
        .engine()
        .planner()
        .plan_reset(&["scuot".to_string()], false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.hints().iter().any(|hint| hint.contains("scout")));
}

#[test]
fn archive_group_can_read_everything() {
    if !is_root() {
        return;
    }
    let world = World::new(&["scout"]).with_general("archive_mode = 0640");
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_with_archive_group(4321);
    let ran = world.reset_with_engine(&engine);
    let archive = world.archive_directory();
    for directory in ["", "scout", ".shepherd", ".shepherd/locks", ".shepherd/tx"] {
        let meta = fs::metadata(archive.join(directory)).unwrap();
        assert_eq!(
            (meta.gid(), meta.mode() & 0o7777),
            (4321, 0o2750),
            "{directory}"
        );
    }
    let entry = ran.assert_ok().entries[0].path.clone();
    for file in [
        entry.as_path(),
        Path::new(".shepherd/ledger.jsonl"),
        Path::new("reset.log"),
    ] {
        let meta = fs::metadata(archive.join(file)).unwrap();
        assert_eq!(
            (meta.gid(), meta.mode() & 0o7777),
            (4321, 0o640),
            "{file:?}"
        );
    }
}

#[test]
fn archive_mode_hides_entries_from_group() {
    if !is_root() {
        return;
    }
    let world = World::new(&["scout"]).with_general("archive_mode = 0600");
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_with_archive_group(4321);
    let ran = world.reset_with_engine(&engine);
    let entry = ran.assert_ok().entries[0].path.clone();
    engine.search().update_index(&mut |_| true).unwrap();
    for (file, mode) in [
        (entry.as_path(), 0o600),
        (Path::new(".shepherd/index.sqlite"), 0o600),
        (Path::new(".shepherd/ledger.jsonl"), 0o640),
    ] {
        let meta = fs::metadata(world.archive_directory().join(file)).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o7777), (4321, mode), "{file:?}");
    }
}

/// The notes of the directory that is at the path now were neither archived nor reset.
#[test]
fn directory_replaced_during_a_run_is_no_success() {
    for moment in [
        TransportCall::After("properties"),
        TransportCall::After("stage"),
        TransportCall::Before("swap"),
    ] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let memory = world.memory_path("scout");
        let directory = memory.parent().unwrap().to_path_buf();
        let moved = directory.with_file_name("moved");
        let hook = {
            let (directory, moved) = (directory.clone(), moved.clone());
            move |call| {
                if call == moment && !moved.exists() {
                    fs::rename(&directory, &moved).unwrap();
                    fs::create_dir(&directory).unwrap();
                    fs::write(directory.join("MEMORY.md"), "- dodged\n").unwrap();
                }
                Ok(())
            }
        };
        let transport = InterposingTransport::new(world.disk(), hook);
        let ran = world.reset_with_engine(&world.engine_with_transport(transport));
        let result = ran.result_of("scout");
        assert_eq!(
            result.kind,
            Some(ErrorKind::Conflict),
            "{moment:?}: {result:?}"
        );
        let note = result.note.as_deref().unwrap();
        let is_refused = result.outcome == Outcome::Refused;
        let is_told = note.contains("was moved, replaced or unmounted");
        assert!(is_refused || is_told, "{note}");
        assert_eq!(fs::read_to_string(&memory).unwrap(), "- dodged\n");
    }
}
