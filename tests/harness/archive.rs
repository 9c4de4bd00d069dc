//! The archive under manual changes: entries in other spellings, and access of other users to its
//! files.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};

use super::crash::scene_with_old_entries;
use super::fixture::{BASELINE, Fleet, is_root};
use super::mounts::{Mount, may_mount};
use super::processes::{RunningProgram, test_directory, wait_for};
use super::scene::{InitialMemory, Scene, assert_ok, output_text};
use crate::skip::skip_unsupported;

#[test]
fn pin_through_bind_mount_pins_the_entry() {
    if !may_mount("archive::pin_through_bind_mount_pins_the_entry") {
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    assert_ok(&scene.fleet.run(&["reset", "--all"]));
    let entries = scene.fleet.entries("scout");
    let (name, _) = entries.first_key_value().unwrap();
    let at = scene.fleet.root.join("elsewhere");
    let archive = scene.fleet.archive.to_str().unwrap();
    let _mount = Mount::new(&["--bind", archive], &at).unwrap();
    let typed = at.join("scout").join(name);
    assert_ok(
        &scene
            .fleet
            .run(&["archive", "pin", typed.to_str().unwrap()]),
    );
    let pins = fs::read_to_string(scene.fleet.archive.join(".shepherd/pins")).unwrap();
    assert_eq!(pins, format!("scout/{name}\n"));
    assert_eq!(
        fs::read(scene.fleet.memory_path("scout")).unwrap(),
        BASELINE.as_bytes()
    );
}

/// Returns a fleet whose archive the members of a group may read, and the group's id; None where
/// this process cannot give files to a group.
pub fn fleet_with_group(agents: &[&str]) -> Option<(tempfile::TempDir, Fleet, u32)> {
    if !is_root() {
        skip_unsupported("needs root");
        return None;
    }
    let group_file = fs::read_to_string("/etc/group").unwrap_or_default();
    let fields = |line: &str| line.split(':').map(String::from).collect::<Vec<String>>();
    let mut groups = group_file.lines().map(fields);
    let Some(group) = groups.find(|it| it[0] == "daemon") else {
        skip_unsupported("no group daemon");
        return None;
    };
    let (temporary, root) = test_directory(true);
    let fleet = Fleet::new(&root, &root.join("archives"), agents);
    let config = fs::read_to_string(fleet.config_path()).unwrap();
    let general = "[general]\narchive_group = daemon\n";
    fs::write(fleet.config_path(), config.replace("[general]\n", general)).unwrap();
    Some((temporary, fleet, group[2].parse().unwrap()))
}

/// Returns all files below a directory, directories excluded.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for item in fs::read_dir(directory).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// Takes shared locks on all files that the group may read, as a member could.
fn take_shared_locks(archive: &Path) -> Vec<File> {
    let files = files_below(archive).into_iter();
    let readable = files.filter(|path| fs::metadata(path).unwrap().mode() & 0o040 != 0);
    let lock = |path: PathBuf| {
        let file = File::open(path).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        file
    };
    readable.map(lock).collect()
}

#[test]
fn shared_locks_of_group_members_block_nothing() {
    let Some((_temporary, fleet, _)) = fleet_with_group(&["scout"]) else {
        return;
    };
    drop(fleet.append_note("scout", BASELINE));
    drop(fleet.append_note("scout", "- one\n"));
    assert_ok(&fleet.run(&["reset", "--all"]));
    let entries = fleet.entries("scout");
    let entry = format!("scout/{}", entries.first_key_value().unwrap().0);
    assert_ok(&fleet.run(&["archive", "pin", &entry]));
    let locks = fleet.archive.join(".shepherd/locks");
    let held = take_shared_locks(&fleet.archive);
    assert!(
        held.len() > 3,
        "the group reads entries, the ledger, the log"
    );
    for path in files_below(&locks) {
        let is_note = path.extension().is_some_and(|end| end == "holder");
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, if is_note { 0o640 } else { 0o600 }, "{path:?}");
    }
    drop(fleet.append_note("scout", "- two\n"));
    for verb in [
        &["reset", "scout"][..],
        &["undo", "scout", "--wait", "5"],
        &["archive", "unpin", &entry],
    ] {
        assert_ok(&fleet.run(verb));
    }
    drop(held);
}

/// The operator made these files readable, and another process has them open since.
#[test]
fn shared_lock_on_readable_file_blocks_nothing() {
    let Some((_temporary, fleet, _)) = fleet_with_group(&["scout"]) else {
        return;
    };
    drop(fleet.append_note("scout", BASELINE));
    assert_ok(&fleet.run(&["reset", "--all", "--wait", "1"]));
    // A run that relies on an old version takes this lock.
    let past = SystemTime::now() - Duration::from_secs(3 * 86_400);
    for path in files_below(&fleet.archive.join(".shepherd/baselines")) {
        let version = OpenOptions::new().write(true).open(path).unwrap();
        version.set_modified(past).unwrap();
    }
    let locks = fleet.archive.join(".shepherd/locks");
    fs::write(locks.join(".versions.lock"), "").unwrap();
    for path in files_below(&locks) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    }
    let held = take_shared_locks(&locks);
    assert!(held.len() >= 3);
    drop(fleet.append_note("scout", "- note\n"));
    assert_ok(&fleet.run(&["reset", "--all"]));
    let mode = |name: &str| fs::metadata(locks.join(name)).unwrap().mode() & 0o7777;
    let modes = ["scout.lock", ".ledger.lock", ".versions.lock"].map(mode);
    assert_eq!(modes, [0o600; 3]);
    drop(held);
}

#[test]
fn group_member_sees_lock_holder() {
    let Some((_temporary, fleet, group)) = fleet_with_group(&["scout"]) else {
        return;
    };
    drop(fleet.append_note("scout", BASELINE));
    let member = || {
        let mut command = fleet.command(&[], &["status"]);
        let output = command.uid(65_534).gid(group).output().unwrap();
        output_text(&output)
    };
    assert_ok(&fleet.run(&["reset", "--all"]));
    assert!(!member().contains("locked"), "{}", member());
    let writer = fleet.append_note("scout", "- note\n");
    let mut run = RunningProgram::start_on(&fleet, &["reset", "scout"]);
    wait_for("a displaced file", || !fleet.leftovers("scout").is_empty());
    let pid = Pid::from_raw(run.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let named = format!("process {}, since ", run.pid());
    assert!(member().contains(&named), "{}", member());
    run.kill();
    run.wait();
    assert!(!member().contains("locked"), "{}", member());
    drop(writer);
}

#[test]
fn read_only_archive_is_shown_and_not_pruned() {
    if !may_mount("archive::read_only_archive_is_shown_and_not_pruned") {
        return;
    }
    let scene = scene_with_old_entries();
    let directory = scene.fleet.archive.join("scout");
    let words = ["--bind", directory.to_str().unwrap()];
    let mount = Mount::mount_over_file(&words, &directory).unwrap();
    mount.remount("bind,ro");
    let shown = scene.fleet.run(&["archive", "prune", "--dry-run"]);
    assert_ok(&shown);
    assert!(output_text(&shown).contains("4 entries"), "{shown:?}");
    let pruned = scene.fleet.run(&["archive", "prune"]);
    assert_eq!(pruned.status.code(), Some(3), "{pruned:?}");
    assert!(output_text(&pruned).contains("cannot delete"), "{pruned:?}");
    drop(mount);
    let names = scene.fleet.entries("scout").into_keys();
    assert_eq!(names.filter(|name| name.starts_with("2020-")).count(), 5);
}

#[test]
fn unwritable_ledger_leaves_memories_unchanged() {
    if !may_mount("archive::unwritable_ledger_leaves_memories_unchanged") {
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- one\n"))]);
    let fleet = &scene.fleet;
    assert_ok(&fleet.run(&["reset", "--all"]));
    drop(fleet.append_note("scout", "- two\n"));
    let before = fs::read(fleet.memory_path("scout")).unwrap();
    let ledger = fleet.archive.join(".shepherd/ledger.jsonl");
    let mount = Mount::mount_over_file(&["--bind", ledger.to_str().unwrap()], &ledger).unwrap();
    mount.remount("bind,ro");
    let output = fleet.run(&["reset", "--all"]);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("cannot open the ledger"),
        "{}",
        output_text(&output)
    );
    assert_eq!(fs::read(fleet.memory_path("scout")).unwrap(), before);
    assert_eq!(
        (fleet.leftovers("scout"), fleet.pending_journals()),
        (vec![], vec![])
    );
    drop(mount);
    assert_ok(&fleet.run(&["reset", "--all"]));
}

#[test]
fn run_waiting_for_permit_changes_nothing() {
    let (_temporary, root) = test_directory(true);
    let fleet = Fleet::new(&root, &root.join("archives"), &["scout"]);
    drop(fleet.append_note("scout", BASELINE));
    assert_ok(&fleet.run(&["reset", "--all"]));
    drop(fleet.append_note("scout", "- note\n"));
    let before = fs::read(fleet.memory_path("scout")).unwrap();
    let locks = fleet.archive.join(".shepherd/locks");
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let places = options.open(locks.join(".replace.lock")).unwrap();
    fcntl_lock(&places, FlockOperation::LockExclusive).unwrap();
    let heeding = ["env", "--default-signal=INT,TERM"];
    let run = RunningProgram::start(fleet.command(&heeding, &["reset", "scout"]));
    let lock = locks.join("scout.lock");
    wait_for("the lock", || fs::read(&lock).unwrap().starts_with(b"{"));
    let pid = Pid::from_raw(run.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = run.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(fs::read(fleet.memory_path("scout")).unwrap(), before);
    assert_eq!(
        (fleet.leftovers("scout"), fleet.pending_journals()),
        (vec![], vec![])
    );
    drop(places);
    assert_ok(&fleet.run(&["reset", "--all"]));
}
