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

use memory_shepherd::archive::EntryKind;
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{Engine, FileState, Outcome, RunProgress, State};
use memory_shepherd::error::ErrorKind;
use memory_shepherd::transport::SwapMethod;
use memory_shepherd::transport::fake::{FakeOperation, FakeTransport};

use super::world::{BASELINE, World, apply, mode};

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        println!("skipped: needs root");
    }
    root
}

fn plan(engine: &Engine, agent: &str) -> memory_shepherd::engine::Plan {
    engine.plan_reset(&[agent.to_string()], false).unwrap()
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let made = Command::new("mkfifo").arg(path.to_str().unwrap()).status();
    assert!(made.unwrap().success());
}

#[test]
fn every_state_is_told_from_the_others() {
    let mut world = World::new(&["clean", "scratch", "drifted", "nosep", "missing", "odd"]);
    world.add("oversize", "max_memory_size = 64\n");
    world.set_baseline("oversize", BASELINE);
    world.add("unusable", "");
    world.write_scratch("clean", "");
    world.write_scratch("scratch", "- a note\n");
    world.write("drifted", BASELINE.replace("brief", "verbose") + "- note\n");
    world.write("nosep", "nothing of the baseline\n");
    world.write_scratch("oversize", "x".repeat(64));
    symlink("/etc/passwd", world.memory("odd")).unwrap();
    fs::write(world.memory("unusable"), "x").unwrap();
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
    assert!(why.contains("a symbolic link to /etc/passwd"), "{why}");
    let (unusable, why) = state("unusable");
    assert_eq!(unusable, State::Error);
    assert!(why.contains("is missing"), "{why}");
    world.seal();
    world.set_baseline("clean", BASELINE.replace("kind", "evil"));
    assert_eq!(state("clean").0, State::Tampered);
}

#[test]
fn an_unreadable_folder_is_an_error_and_not_missing() {
    let world = World::new(&["scout"]);
    fs::remove_dir_all(world.folder("scout")).unwrap();
    assert_eq!(world.observe("scout").state, State::Error);
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Failed).kind, Some(ErrorKind::Host));
    fs::write(world.folder("scout"), "a file where the folder was").unwrap();
    assert_eq!(world.observe("scout").state, State::Error);
}

#[test]
fn a_clean_memory_is_not_written_and_not_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "");
    let before = fs::metadata(world.memory("scout")).unwrap();
    world.reset().ended(Outcome::Unchanged);
    let after = fs::metadata(world.memory("scout")).unwrap();
    assert_eq!(before.ino(), after.ino());
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert!(world.entries("scout").is_empty());
}

#[test]
fn a_baselines_own_tail_is_no_scratch() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", format!("{BASELINE}\n## Scratch Notes\n"));
    world.write_scratch("scout", "");
    assert_eq!(world.observe("scout").state, State::Clean);
    world.reset().ended(Outcome::Unchanged);
    world.write_scratch("scout", "mine\n");
    assert_eq!(
        world.observe("scout").content.unwrap().scratch_lines,
        1,
        "the tail does not count"
    );
    let ran = world.reset();
    let entry = world.entry(&ran.ok().entries[0]);
    assert!(entry.ends_with(b"\n\n\n## Scratch Notes\nmine\n"));
}

#[test]
fn a_scratch_entry_is_a_header_and_the_verbatim_bytes() {
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
        let [written] = ran.ok().entries.as_slice() else {
            panic!("{:?}", ran.ok().entries)
        };
        assert_eq!(written.kind, EntryKind::Scratch);
        let mut expected = "# scout scratch notes — archived 2026-03-14_0900\n\n"
            .as_bytes()
            .to_vec();
        expected.extend_from_slice(scratch);
        assert_eq!(world.entry(written), expected);
        assert_eq!(written.digest, Digest::of(&expected));
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
        assert!(
            world.litter("scout").is_empty(),
            "{:?}",
            world.litter("scout")
        );
        assert!(world.pending().is_empty());
    }
}

#[test]
fn drift_and_a_missing_boundary_archive_the_whole_file() {
    for text in [
        BASELINE.replace("kind", "cruel") + "- note\n",
        "no rule of mine\r\n\0\n\n---x".to_string(),
        String::new(),
    ] {
        let world = World::new(&["scout"]);
        world.write("scout", &text);
        let ran = world.reset();
        let entry = &ran.ok().entries[0];
        assert_eq!(entry.kind, EntryKind::FullBackup);
        assert!(entry.path.ends_with("2026-03-14_0900-full-backup.md"));
        assert_eq!(world.entry(entry), text.as_bytes());
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
    }
}

#[test]
fn a_memory_behind_its_baseline_is_split_by_the_version_it_has() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    world.write_scratch("scout", "- two\n");
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Scratch);
    assert!(seen.reason.starts_with("behind"), "{}", seen.reason);
    let ran = world.reset();
    let entry = world.entry(&ran.ok().entries[0]);
    assert!(entry.ends_with(b"\n\n- two\n"));
    assert!(!String::from_utf8(entry).unwrap().contains("be brief"));
    assert!(world.read("scout").ends_with(b"- be exact\n\n---\n"));
}

#[test]
fn a_missing_memory_is_created_with_its_folders_owner() {
    let world = World::new(&["scout"]);
    fs::set_permissions(world.folder("scout"), fs::Permissions::from_mode(0o750)).unwrap();
    if is_root() {
        chown(world.folder("scout"), Some(65534), Some(65534)).unwrap();
    }
    let ran = world.reset();
    assert!(ran.ok().entries.is_empty());
    let folder = fs::metadata(world.folder("scout")).unwrap();
    let memory = fs::metadata(world.memory("scout")).unwrap();
    assert_eq!((memory.uid(), memory.gid()), (folder.uid(), folder.gid()));
    assert_eq!(mode(&world.memory("scout")), 0o640);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    assert_eq!(world.records()[0].event.before, Some(FileState::Absent));
    assert_eq!(world.records()[0].event.method, Some(SwapMethod::Create));
}

#[test]
fn a_link_is_described_and_displaced_and_its_target_untouched() {
    let world = World::new(&["scout"]);
    let target = world.root.join("precious");
    fs::write(&target, "secret").unwrap();
    symlink(&target, world.memory("scout")).unwrap();
    let ran = world.reset();
    let entry = &ran.ok().entries[0];
    assert_eq!(entry.kind, EntryKind::Special);
    let text = String::from_utf8(world.entry(entry)).unwrap();
    assert!(text.contains("a symbolic link to") && text.contains("precious"));
    assert!(!text.contains("secret"));
    assert_eq!(fs::read(&target).unwrap(), b"secret");
    assert!(
        fs::symlink_metadata(world.memory("scout"))
            .unwrap()
            .is_file()
    );
    assert!(world.litter("scout").is_empty());
}

#[test]
fn a_fifo_and_a_folder_are_displaced_and_the_folder_is_kept() {
    let world = World::new(&["fifo", "folder"]);
    // Nobody takes the folder for a mistake in the config.
    assert_eq!(world.reset().report.worst_kind(), None);
    fs::remove_file(world.memory("fifo")).unwrap();
    fs::remove_file(world.memory("folder")).unwrap();
    fifo(&world.memory("fifo"));
    fs::create_dir(world.memory("folder")).unwrap();
    fs::write(world.memory("folder").join("inside"), "kept").unwrap();
    let ran = world.reset();
    for agent in ["fifo", "folder"] {
        assert_eq!(ran.of(agent).outcome, Outcome::Ok, "{:?}", ran.of(agent));
        assert_eq!(ran.of(agent).entries[0].kind, EntryKind::Special);
        assert_eq!(ran.of(agent).entries.len(), 1);
        assert_eq!(world.read(agent), BASELINE.as_bytes());
    }
    assert!(world.litter("fifo").is_empty());
    let [inside] = world.litter("folder").try_into().unwrap();
    let kept = inside.strip_suffix("/inside").unwrap();
    assert!(ran.of("folder").note.as_ref().unwrap().contains(kept));
    let inside = world.folder("folder").join(&inside);
    assert_eq!(fs::read(inside).unwrap(), b"kept");
    assert!(world.pending().is_empty());
}

#[test]
fn a_hard_link_to_somebody_elses_file_is_never_archived() {
    if !is_root() {
        return;
    }
    // The test runs as root, so "neither the folder's owner nor us" needs a
    // third user.
    let world = World::new(&["scout"]);
    chown(world.folder("scout"), Some(65534), Some(65534)).unwrap();
    let foreign = world.root.join("foreign");
    fs::write(&foreign, "somebody else's").unwrap();
    chown(&foreign, Some(1234), Some(1234)).unwrap();
    fs::hard_link(&foreign, world.memory("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.ok().entries[0].kind, EntryKind::Special);
    assert!(!world.holds("scout", b"somebody else's"));
    assert_eq!(fs::read(&foreign).unwrap(), b"somebody else's");
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), 1234);
    assert_eq!(fs::metadata(world.memory("scout")).unwrap().uid(), 65534);
}

#[test]
fn a_folder_that_is_a_link_is_refused_with_the_real_path() {
    let mut world = World::new(&["scout"]);
    symlink(world.folder("scout"), world.root.join("agents/alias")).unwrap();
    world.write_scratch("scout", "- note\n");
    world.add("alias", "memory_file = agents/alias/MEMORY.md\n");
    world.set_baseline("alias", BASELINE);
    let ran = world.reset();
    assert_eq!(ran.of("alias").outcome, Outcome::Failed);
    let note = ran.of("alias").note.as_ref().unwrap();
    assert!(note.contains("symbolic link"), "{note}");
    assert_eq!(ran.of("scout").outcome, Outcome::Ok, "others go on");
}

#[test]
fn a_baseline_that_must_not_be_pushed_is_refused_with_its_kind() {
    let refused = |general: &str, spoil: &dyn Fn(&World)| {
        let world = World::new(&["scout"]).general(general);
        world.write_scratch("scout", "- note\n");
        spoil(&world);
        let before = world.read("scout");
        let ran = world.reset();
        let result = ran.ended(Outcome::Refused);
        assert_eq!(world.read("scout"), before, "untouched");
        assert!(world.entries("scout").is_empty());
        (result.kind.unwrap(), ran.note().to_string())
    };
    let (kind, note) = refused("", &|world| {
        fs::remove_file(world.baseline("scout")).unwrap()
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
        world.seal();
        world.set_baseline("scout", BASELINE.replace("kind", "evil"));
    });
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("differs from the seal"), "{note}");
    let (kind, note) = refused("require_seal = always", &|_| {});
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("require_seal=always"), "{note}");
    let (kind, _) = refused("", &|world| {
        fs::remove_file(world.baseline("scout")).unwrap();
        symlink("/etc/passwd", world.baseline("scout")).unwrap();
    });
    assert_eq!(kind, ErrorKind::Conflict);
}

#[test]
fn a_good_seal_lets_the_baseline_through() {
    let world = World::new(&["scout"]).general("require_seal = always");
    world.seal();
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
}

#[test]
fn two_agents_on_one_memory_are_refused() {
    let mut world = World::new(&["scout", "other"]);
    world.add("twin", "memory_file = agents/scout/MEMORY.md\n");
    world.set_baseline("twin", BASELINE);
    world.write_scratch("scout", "- note\n");
    world.write_scratch("other", "- note\n");
    let ran = world.reset();
    for agent in ["scout", "twin"] {
        assert_eq!(ran.of(agent).outcome, Outcome::Refused);
        assert_eq!(ran.of(agent).kind, Some(ErrorKind::Conflict));
    }
    assert_eq!(ran.of("other").outcome, Outcome::Ok);
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn protect_readonly_refuses_until_unlocked() {
    let mut world = World::new(&[]);
    world.add("scout", "protect = readonly\n");
    world.set_baseline("scout", BASELINE);
    world.write_scratch("scout", "- note\n");
    assert_eq!(
        world.reset().ended(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(world.read("scout").ends_with(b"- note\n"));
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], true).unwrap();
    apply(&engine, &plan).ok();
}

#[test]
fn owner_mode_and_extended_attributes_stay() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory("scout");
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
    world.reset().ok();
    let after = fs::metadata(&memory).unwrap();
    assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
    assert_eq!(mode(&memory), 0o604);
    assert_eq!(after.nlink(), 1);
    let recorded = world.records()[0].event.attributes.clone().unwrap();
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
        println!("skipped: no user attributes here");
    }
}

#[test]
fn archive_folders_and_entries_are_private() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    let archive = world.archive();
    for folder in ["", "scout", ".shepherd", ".shepherd/tx", ".shepherd/locks"] {
        assert_eq!(mode(&archive.join(folder)), 0o700, "{folder}");
    }
    assert_eq!(mode(&archive.join(&ran.ok().entries[0].path)), 0o600);
    assert_eq!(mode(&archive.join(".shepherd/ledger.jsonl")), 0o600);
    assert_eq!(mode(&archive.join("reset.log")), 0o600);
}

#[test]
fn a_lock_held_by_another_process_is_busy_and_names_it() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    world.write_scratch("scout", "- more\n");
    let lock = world.archive().join(".shepherd/locks/scout.lock");
    let mut holder = Command::new("python3")
        .args([
            "-c",
            "import fcntl,struct,sys\n\
             f=open(sys.argv[1],'r+')\n\
             fcntl.fcntl(f,37,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0))\n\
             f.write('{\"pid\":4711,\"user\":\"ops\",\"since\":\"2026-03-14T08:00:06+01:00\",\"run\":\"5a10\"}');f.truncate();f.flush()\n\
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
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Busy));
    assert!(
        ran.note()
            .contains("locked by run 5a10 of ops (process 4711, since 08:00:06)"),
        "{}",
        ran.note()
    );
    // The holder is killed: its lock is gone, its note stays and blocks nobody.
    holder.kill().unwrap();
    holder.wait().unwrap();
    world.reset().ok();
}

#[test]
fn a_plan_holds_although_the_agent_writes_more_scratch() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let engine = world.engine();
    let plan = plan(&engine, "scout");
    world.write_scratch("scout", "- one\n- two\n");
    let ran = apply(&engine, &plan);
    assert!(
        world
            .entry(&ran.ok().entries[0])
            .ends_with(b"- one\n- two\n")
    );
}

#[test]
fn a_plan_is_refused_when_what_it_is_bound_to_moved() {
    let moved = |begin: &str, change: &dyn Fn(&World)| {
        let world = World::new(&["scout"]);
        world.write("scout", begin);
        let engine = world.engine();
        let plan = plan(&engine, "scout");
        change(&world);
        let before = world.read("scout");
        let ran = apply(&engine, &plan);
        assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
        assert_eq!(world.read("scout"), before, "untouched");
        assert!(world.entries("scout").is_empty());
        assert!(world.litter("scout").is_empty());
        // Without the bound it is done as it is found.
        let report = engine.apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
        assert_eq!(report.worst_kind(), None);
    };
    let scratch = format!("{BASELINE}- note\n");
    let drifted = scratch.replace("kind", "cruel");
    // The rules above it are edited.
    moved(&scratch, &|world| world.write("scout", &drifted));
    // They were edited, and are edited again.
    moved(&drifted, &|world| {
        world.write("scout", drifted.replace("brief", "loud"));
    });
    // The baseline changes.
    moved(&scratch, &|world| {
        world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    });
}

#[test]
fn the_hash_of_a_plan_names_what_it_is_bound_to() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let engine = world.engine();
    let first = plan(&engine, "scout");
    world.write_scratch("scout", "- one\n- two\n");
    let second = plan(&engine, "scout");
    assert_eq!(first.hash, second.hash);
    assert!(second.matches_hash(&first.hash[..8]));
    assert!(!second.matches_hash(&first.hash[..7]));
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    assert_ne!(plan(&engine, "scout").hash, first.hash);
}

#[test]
fn entries_of_one_minute_never_replace_each_other() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().ok();
    }
    assert_eq!(
        world.entries("scout"),
        [
            "2026-03-14_0900-1.md",
            "2026-03-14_0900-2.md",
            "2026-03-14_0900.md"
        ]
    );
    for note in ["- one\n", "- two\n", "- three\n"] {
        assert!(world.holds("scout", note.as_bytes()));
    }
}

#[test]
fn a_link_planted_at_an_entrys_name_is_not_followed() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let folder = world.archive().join("scout");
    fs::create_dir_all(&folder).unwrap();
    let target = world.root.join("precious");
    fs::write(&target, "secret").unwrap();
    symlink(&target, folder.join("2026-03-14_0900.md")).unwrap();
    let ran = world.reset();
    assert!(ran.ok().entries[0].path.ends_with("2026-03-14_0900-1.md"));
    assert_eq!(fs::read(&target).unwrap(), b"secret");
}

#[test]
fn one_agents_trouble_does_not_stop_the_others() {
    let world = World::new(&["a", "b", "c"]);
    for agent in ["a", "b", "c"] {
        world.write_scratch(agent, "- note\n");
    }
    fs::remove_file(world.baseline("b")).unwrap();
    // Nothing can be archived for a.
    fs::create_dir_all(world.archive()).unwrap();
    fs::write(world.archive().join("a"), "in the way").unwrap();
    let ran = world.reset();
    assert_eq!(ran.of("a").outcome, Outcome::Failed);
    assert_eq!(ran.of("b").outcome, Outcome::Refused);
    assert_eq!(ran.of("c").outcome, Outcome::Ok);
    assert!(
        world.read("a").ends_with(b"- note\n"),
        "unarchived, so untouched"
    );
    let records = world.records();
    assert_eq!(records.len(), 3);
    assert!(
        records
            .iter()
            .all(|r| r.event.agent == "c" || r.event.note.is_some())
    );
}

#[test]
fn the_cancel_flag_leaves_the_rest_not_started() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "- note\n");
    world.write_scratch("b", "- note\n");
    let engine = world.engine();
    let plan = engine
        .plan_reset(&["a".to_string(), "b".to_string()], false)
        .unwrap();
    let cancel = AtomicBool::new(false);
    // It comes while a is in hand, which is finished.
    let report = engine.apply_plan(&plan, true, &cancel, &mut |progress| {
        if let RunProgress::Stage(..) = progress {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(report.results[0].outcome, Outcome::Ok);
    assert_eq!(report.results[1].outcome, Outcome::NotStarted);
    assert_eq!(report.worst_kind(), Some(ErrorKind::Interrupted));
    assert_eq!(world.read("a"), BASELINE.as_bytes());
    assert!(world.read("b").ends_with(b"- note\n"));
    assert!(world.litter("b").is_empty());
    assert_eq!(world.records().len(), 2);
}

#[test]
fn an_observation_reads_a_memory_only_when_its_stamp_changed() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    fake.make_folder(world.folder("scout"), 1000, 1000, 0o755);
    let memory = world.memory("scout");
    fake.write_file(&memory, format!("{BASELINE}- one\n").as_bytes());
    let engine = world.engine_on(Arc::new(fake.clone()));
    let agent = engine.agent("scout").unwrap();
    engine.observe(agent);
    // A file that changed just now may change again within one tick.
    engine.observe(agent);
    assert_eq!(fake.count_calls(FakeOperation::Read, &memory), 2);
    world.clock.advance(Duration::from_secs(1));
    engine.observe(agent);
    assert_eq!(engine.observe(agent).content.unwrap().scratch_lines, 1);
    assert_eq!(fake.count_calls(FakeOperation::Read, &memory), 3);
    fake.write_file(&memory, format!("{BASELINE}- one\n- two\n").as_bytes());
    assert_eq!(engine.observe(agent).content.unwrap().scratch_lines, 2);
}

#[test]
fn unknown_agents_are_a_user_error() {
    let world = World::new(&["scout"]);
    let error = world
        .engine()
        .plan_reset(&["scuot".to_string()], false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.hints().iter().any(|hint| hint.contains("scout")));
}

#[test]
fn members_of_the_archives_group_can_read_all_of_it() {
    if !is_root() {
        return;
    }
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_for_group(4321);
    let ran = world.reset_by(&engine);
    let archive = world.archive();
    for folder in ["", "scout", ".shepherd", ".shepherd/locks", ".shepherd/tx"] {
        let meta = fs::metadata(archive.join(folder)).unwrap();
        assert_eq!(
            (meta.gid(), meta.mode() & 0o7777),
            (4321, 0o2750),
            "{folder}"
        );
    }
    let entry = ran.ok().entries[0].path.clone();
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
