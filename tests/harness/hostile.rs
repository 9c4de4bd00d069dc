//! Attacking agents. They run as another user, and plant links, FIFOs, devices, directories and
//! foreign files at every name that a reset touches, before it starts and while it runs. Canary
//! files mark everything that these links point to.
//!
//! The run must read nothing but the memory and the archive into an entry, and write or change
//! nothing else; no run hangs; and in the end the memory is the baseline, or the run has reported
//! why not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::fixture::{BASELINE, Fleet, directory_files, has_tool, is_root};
use crate::full_harness::is_full_harness;
use crate::processes::{EndedRun, RunningProgram, test_directory};
use crate::skip::skip_unsupported;

/// User id that no other process has.
pub const AGENT_UID: u32 = 61_001;
const NEIGHBOR_UID: u32 = 61_002;

/// Content of every canary, which must appear in no other file.
const CANARY_TEXT: &str = "CANARY";

/// Upper bound of a run that reads little and waits for no writer.
const QUICK_RUN_TIMEOUT: Duration = Duration::from_secs(10);

/// A file that must stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CanaryFile {
    owner: (u32, u32),
    mode: u32,
    inode: u64,
    modified: (i64, i64),
    bytes: Vec<u8>,
}

impl CanaryFile {
    fn read_state(path: &Path) -> CanaryFile {
        let meta = fs::symlink_metadata(path).unwrap();
        CanaryFile {
            owner: (meta.uid(), meta.gid()),
            mode: meta.mode(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            bytes: if meta.is_file() {
                fs::read(path).unwrap()
            } else {
                format!("{:?}", directory_files(path).keys()).into_bytes()
            },
        }
    }
}

/// An agent called scout with its own user, and canaries around it.
pub struct CanaryScene {
    _temporary: TempDir,
    pub fleet: Fleet,
    canaries: BTreeMap<PathBuf, CanaryFile>,
}

impl CanaryScene {
    /// Creates the scene; returns None, with a notice, where this process cannot change its user.
    pub fn new(in_memory: bool) -> Option<CanaryScene> {
        if !is_root() {
            skip_unsupported("needs root, to act as another user");
            return None;
        }
        let (temporary, root) = test_directory(in_memory);
        let fleet = Fleet::new(&root, &root.join("archives"), &["scout"]);
        let mut scene = CanaryScene {
            _temporary: temporary,
            fleet,
            canaries: BTreeMap::new(),
        };
        // The agent may rename its directory, too.
        for directory in [root.join("agents"), scene.fleet.agent_directory("scout")] {
            chown(directory, Some(AGENT_UID), Some(AGENT_UID)).unwrap();
        }
        scene.write("- note\n");
        fs::create_dir_all(root.join("vault/inner")).unwrap();
        fs::create_dir_all(root.join("neighbour")).unwrap();
        fs::create_dir_all(root.join("archives/old")).unwrap();
        fs::set_permissions(root.join("archives"), fs::Permissions::from_mode(0o700)).unwrap();
        scene.add_canary("vault/secret", 0, 0o600);
        scene.add_canary("vault/MEMORY.md", 0, 0o644);
        scene.add_canary("vault/inner/deep", 0, 0o666);
        scene.add_canary("neighbour/MEMORY.md", NEIGHBOR_UID, 0o600);
        scene.add_canary("archives/old/2020-01-01_0000.md", 0, 0o600);
        for directory in ["vault", "vault/inner", "neighbour"] {
            scene.watch_file(&root.join(directory));
        }
        Some(scene)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.fleet.root.join(name)
    }

    pub fn secret(&self) -> PathBuf {
        self.path("vault/secret")
    }

    pub fn memory(&self) -> PathBuf {
        self.fleet.memory_path("scout")
    }

    pub fn directory(&self) -> PathBuf {
        self.fleet.agent_directory("scout")
    }

    fn add_canary(&mut self, name: &str, owner: u32, mode: u32) {
        let path = self.path(name);
        fs::write(&path, format!("{BASELINE}{CANARY_TEXT} of {name}\n")).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self.watch_file(&path);
    }

    fn watch_file(&mut self, path: &Path) {
        self.canaries
            .insert(path.to_path_buf(), CanaryFile::read_state(path));
    }

    /// Writes a memory of the agent's own with these notes.
    pub fn write(&self, notes: &str) {
        fs::write(self.memory(), format!("{BASELINE}{notes}")).unwrap();
        chown(self.memory(), Some(AGENT_UID), Some(AGENT_UID)).unwrap();
    }

    /// Runs a reset and asserts that it ends soon.
    #[track_caller]
    pub fn reset(&self) -> EndedRun {
        let ended = RunningProgram::start_on(&self.fleet, &["reset", "scout"])
            .end_within(QUICK_RUN_TIMEOUT);
        assert_no_raw_output(&ended);
        ended
    }

    /// Asserts that no canary was touched and that none of their content is in the archive.
    #[track_caller]
    pub fn assert_canaries_unchanged(&self) {
        for (path, before) in &self.canaries {
            assert_eq!(&CanaryFile::read_state(path), before, "{}", path.display());
        }
        let mut kept = Vec::new();
        collect_files(&self.fleet.archive, &mut kept);
        for path in kept {
            let has_canary = fs::read(&path)
                .unwrap()
                .windows(CANARY_TEXT.len())
                .any(|it| it == CANARY_TEXT.as_bytes());
            let own = self.canaries.contains_key(&path);
            assert!(!has_canary || own, "{} contains a canary", path.display());
        }
    }

    /// Asserts that the memory is the baseline, a separate file of this owner.
    #[track_caller]
    pub fn assert_reset(&self, owner: u32) {
        let meta = fs::symlink_metadata(self.memory()).unwrap();
        assert!(meta.is_file(), "{meta:?}");
        assert_eq!((meta.nlink(), meta.uid()), (1, owner));
        assert_eq!(fs::read(self.memory()).unwrap(), BASELINE.as_bytes());
        assert_eq!(self.fleet.pending_journals(), [""; 0]);
    }

    pub fn all_entries(&self) -> String {
        let entries = self.fleet.entries("scout").into_values();
        String::from_utf8_lossy(&entries.flatten().collect::<Vec<u8>>()).into_owned()
    }
}

/// Asserts that the output has no terminal control bytes, whatever an agent names its files.
#[track_caller]
pub fn assert_no_raw_output(ended: &EndedRun) {
    for text in [&ended.out, &ended.err] {
        let raw = |it: char| it.is_control() && it != '\n';
        assert!(
            !text.contains(raw) && !text.contains(CANARY_TEXT),
            "{ended:?}"
        );
    }
}

/// Collects all regular files below a directory, without following links.
fn collect_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for item in fs::read_dir(directory).into_iter().flatten() {
        let item = item.unwrap();
        let kind = item.file_type().unwrap();
        if kind.is_dir() {
            collect_files(&item.path(), found);
        } else if kind.is_file() {
            found.push(item.path());
        }
    }
}

#[track_caller]
fn tool_output(words: &[&str], path: &Path) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Objects planted at the memory's name, with their descriptions in messages.
const SPECIAL_OBJECTS: &[(&str, &str)] = &[
    ("a link to a secret", "link"),
    ("a link to a directory", "link"),
    ("a link to an entry", "link"),
    ("a dangling link with escape codes", "link"),
    ("a hard link to a secret", "0"),
    ("a hard link to a neighbour's memory", "61002"),
    ("a hard link to an entry", "0"),
    ("a FIFO", "FIFO"),
    ("a socket", "socket"),
    ("a device that never ends", "device"),
    ("a block device", "device"),
];

fn plant_object(scene: &CanaryScene, what: &str) {
    let at = scene.memory();
    fs::remove_file(&at).unwrap();
    let entry = scene.path("archives/old/2020-01-01_0000.md");
    match what {
        "a link to a secret" => symlink(scene.secret(), at).unwrap(),
        "a link to a directory" => symlink(scene.path("vault"), at).unwrap(),
        "a link to an entry" => symlink(entry, at).unwrap(),
        "a dangling link with escape codes" => {
            symlink("/no\n\x1b]0;title\x07\u{202e}where", at).unwrap();
        }
        "a hard link to a secret" => fs::hard_link(scene.secret(), at).unwrap(),
        "a hard link to a neighbour's memory" => {
            fs::hard_link(scene.path("neighbour/MEMORY.md"), at).unwrap();
        }
        "a hard link to an entry" => fs::hard_link(entry, at).unwrap(),
        "a FIFO" => drop(tool_output(&["mkfifo"], &at)),
        "a socket" => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
        "a device that never ends" => make_device(&at, &["c", "1", "5"]),
        "a block device" => make_device(&at, &["b", "7", "77"]),
        other => panic!("{other}"),
    }
}

fn make_device(at: &Path, numbers: &[&str]) {
    let made = Command::new("mknod").arg(at).args(numbers).status();
    assert!(made.unwrap().success());
}

#[test]
fn special_file_as_memory_is_displaced_unread() {
    for (what, said) in SPECIAL_OBJECTS {
        let Some(scene) = CanaryScene::new(false) else {
            return;
        };
        // The first reset records a file; without that record most objects are config errors.
        scene.write("");
        assert_eq!(scene.reset().code, Some(0));
        plant_object(&scene, what);
        let ended = scene.reset();
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        scene.assert_canaries_unchanged();
        scene.assert_reset(AGENT_UID);
        // A second name may be the last one by then.
        let litter = scene.fleet.leftovers("scout");
        let kept = usize::from(what.starts_with("a hard link"));
        assert_eq!(litter.len(), kept, "{what}: {litter:?}");
        assert!(litter.iter().all(|name| ended.out.contains(name)), "{what}");
        let entries = scene.fleet.entries("scout");
        assert_eq!(entries.len(), 1, "{what}");
        assert!(entries.keys().all(|name| name.contains("-odd")), "{what}");
        assert!(scene.all_entries().contains(said), "{what}: {entries:?}");
        assert!(!scene.all_entries().contains('\x1b'));
    }
    println!("{} planted objects", SPECIAL_OBJECTS.len());
}

#[test]
fn directory_as_memory_is_kept_with_its_content() {
    let Some(scene) = CanaryScene::new(false) else {
        return;
    };
    // The first reset records a file; without that record a directory counts as a config error.
    assert_eq!(scene.reset().code, Some(0));
    fs::remove_file(scene.memory()).unwrap();
    fs::create_dir(scene.memory()).unwrap();
    fs::hard_link(scene.secret(), scene.memory().join("secret")).unwrap();
    symlink(scene.path("vault"), scene.memory().join("link")).unwrap();
    let ended = scene.reset();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    scene.assert_canaries_unchanged();
    scene.assert_reset(AGENT_UID);
    let [kept] = scene.fleet.leftovers("scout").try_into().unwrap();
    assert!(ended.out.contains(&kept), "{ended:?}");
    let kept = directory_files(&scene.directory().join(kept));
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["link", "secret"]);
}

#[test]
fn memory_of_other_user_is_reset_and_keeps_owner() {
    for owner in [0, NEIGHBOR_UID] {
        let Some(scene) = CanaryScene::new(false) else {
            return;
        };
        chown(scene.memory(), Some(owner), Some(owner)).unwrap();
        assert_eq!(scene.reset().code, Some(0));
        scene.assert_canaries_unchanged();
        scene.assert_reset(owner);
        assert!(scene.all_entries().contains("- note\n"));
    }
}

#[test]
fn owner_mode_xattrs_and_acl_are_kept() {
    let Some(scene) = CanaryScene::new(false) else {
        return;
    };
    if !["setfattr", "getfattr", "setfacl", "getfacl"]
        .into_iter()
        .all(has_tool)
    {
        return;
    }
    let memory = scene.memory();
    chown(&memory, Some(AGENT_UID), Some(NEIGHBOR_UID)).unwrap();
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o640)).unwrap();
    tool_output(
        &["setfattr", "-n", "user.\x1b[2J\n", "-v", "\x1b[2J\n"],
        &memory,
    );
    tool_output(
        &["setfattr", "-n", "trusted.kept", "-v", "of root"],
        &memory,
    );
    tool_output(&["setfacl", "-m", "u:61002:r,g:61001:rw"], &memory);
    let look = || {
        let meta = fs::metadata(&memory).unwrap();
        let attributes = tool_output(&["getfattr", "-d", "-m", "-", "-e", "hex"], &memory);
        let list = tool_output(&["getfacl", "-n"], &memory);
        (meta.uid(), meta.gid(), meta.mode(), attributes, list)
    };
    let before = look();
    for _ in 0..3 {
        fs::write(&memory, format!("{BASELINE}- more\n")).unwrap();
        assert_eq!(scene.reset().code, Some(0));
        scene.assert_reset(AGENT_UID);
        assert_eq!(look(), before);
    }
}

/// Clears a file flag on drop, so that the file can be removed.
struct FlaggedFile(PathBuf, &'static str);

impl FlaggedFile {
    /// Sets the flag; returns None where the file system does not support it.
    fn new(path: &Path, flag: &'static str) -> Option<FlaggedFile> {
        let set = Command::new("chattr")
            .arg(format!("+{flag}"))
            .arg(path)
            .output();
        if set.is_ok_and(|output| output.status.success()) {
            return Some(FlaggedFile(path.to_path_buf(), flag));
        }
        skip_unsupported(format_args!("cannot set chattr +{flag}"));
        None
    }
}

impl Drop for FlaggedFile {
    fn drop(&mut self) {
        let mut clear = Command::new("chattr");
        let _ = clear.arg(format!("-{}", self.1)).arg(&self.0).status();
    }
}

/// Asserts that the plan and `doctor` show the reason for which a reset is refused.
fn assert_refusal_is_planned(scene: &CanaryScene, command: &str) {
    for words in [&["reset", "scout", "--dry-run"][..], &["doctor"]] {
        let output = scene.fleet.run(words);
        // A dry run prints its hints to standard error.
        let bytes = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(command), "{words:?}: {text}");
        assert_ne!(output.status.code(), Some(0), "{words:?}: {text}");
    }
}

#[test]
fn immutable_memory_is_refused_with_chattr_hint() {
    for flag in ["i", "a"] {
        let Some(scene) = CanaryScene::new(false) else {
            return;
        };
        if !has_tool("chattr") {
            return;
        }
        let Some(fixed) = FlaggedFile::new(&scene.memory(), flag) else {
            return;
        };
        for _ in 0..2 {
            let ended = scene.reset();
            assert_ne!(ended.code, Some(0), "{ended:?}");
            let memory = scene.memory().display().to_string();
            assert!(ended.err.contains(&memory), "{ended:?}");
            let command = format!("chattr -{flag} {memory} ");
            assert!(ended.err.contains(&command), "{ended:?}");
            assert_refusal_is_planned(&scene, &command);
            assert!(fs::read(scene.memory()).unwrap().ends_with(b"- note\n"));
            assert_eq!(scene.fleet.leftovers("scout"), [""; 0], "+{flag}");
            scene.assert_canaries_unchanged();
        }
        drop(fixed);
        assert_eq!(scene.reset().code, Some(0));
        scene.assert_reset(AGENT_UID);
        assert!(scene.all_entries().contains("- note\n"));
    }
}

#[test]
fn immutable_directory_is_refused_and_memory_stays() {
    let Some(scene) = CanaryScene::new(false) else {
        return;
    };
    if !has_tool("chattr") {
        return;
    }
    for flag in ["i", "a"] {
        let Some(fixed) = FlaggedFile::new(&scene.directory(), flag) else {
            return;
        };
        let ended = scene.reset();
        assert_ne!(ended.code, Some(0), "+{flag}: {ended:?}");
        let command = format!("chattr -{flag} {} ", scene.directory().display());
        assert!(ended.err.contains(&command), "{ended:?}");
        assert_refusal_is_planned(&scene, &command);
        assert!(fs::read(scene.memory()).unwrap().ends_with(b"- note\n"));
        // The append-only flag lets files be created that cannot be removed again.
        assert_eq!(scene.fleet.leftovers("scout"), [""; 0], "+{flag}");
        scene.assert_canaries_unchanged();
        drop(fixed);
        scene.write("- note\n");
        assert_eq!(scene.reset().code, Some(0));
        scene.assert_reset(AGENT_UID);
        scene.write("- note\n");
    }
}

#[test]
fn sparse_file_is_archived_in_bounded_memory() {
    let Some(scene) = CanaryScene::new(false) else {
        return;
    };
    let size: u64 = if is_full_harness() {
        10 << 30
    } else {
        64 << 20
    };
    let statvfs = rustix::fs::statvfs(&scene.fleet.root).unwrap();
    if statvfs.f_bavail * statvfs.f_frsize < 3 * size {
        skip_unsupported(format_args!("not enough room for {size} bytes"));
        return;
    }
    let file = fs::File::options()
        .append(true)
        .open(scene.memory())
        .unwrap();
    file.set_len(size).unwrap();
    drop(file);
    // Address space in KiB: far less than the file's size.
    let limit = "ulimit -v 400000 && exec \"$@\"";
    let command = scene
        .fleet
        .command(&["/bin/sh", "-c", limit, "sh"], &["reset", "scout"]);
    let ended = RunningProgram::start(command).end_within(Duration::from_secs(400));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    scene.assert_reset(AGENT_UID);
    let entries = scene.path("archives/scout");
    let entry = fs::read_dir(entries).unwrap().next().unwrap().unwrap();
    assert!(entry.metadata().unwrap().len() > size - 1000);
    println!("{size} bytes of holes: {:.1?}", ended.duration);
}

#[test]
fn hostile_sibling_names_stay_and_are_not_printed_raw() {
    let Some(scene) = CanaryScene::new(false) else {
        return;
    };
    let hex = "0123456789abcdef0123456789abcdef";
    let names = [
        format!(".shepherd-{hex}"),
        format!(".shepherd-{hex}-new"),
        format!(".shepherd-{hex}.shepherd-{hex}"),
        ".shepherd-\n\x1b]0;title\x07\x1b[2J".to_string(),
        "\u{202e}dm.\n\nReset scout (0 bytes)".to_string(),
        "MEMORY.md\n".to_string(),
    ];
    for name in &names {
        fs::write(scene.directory().join(name), "of the agent").unwrap();
    }
    symlink(scene.secret(), scene.directory().join(".shepherd-")).unwrap();
    for verb in [
        &["status"][..],
        &["diff", "scout"],
        &["doctor"],
        &["reset", "scout"],
    ] {
        let ended = RunningProgram::start_on(&scene.fleet, verb).end_within(QUICK_RUN_TIMEOUT);
        assert_no_raw_output(&ended);
    }
    scene.assert_canaries_unchanged();
    scene.assert_reset(AGENT_UID);
    let mut found = directory_files(&scene.directory());
    for name in names {
        assert_eq!(found.remove(&name).unwrap(), b"of the agent", "{name:?}");
    }
    assert_eq!(
        found.into_keys().collect::<Vec<_>>(),
        [".shepherd-", "MEMORY.md"]
    );
}

/// Objects planted in the archive, where agents can write only after a configuration mistake; and
/// whether a reset can still succeed.
const ARCHIVE_OBJECTS: &[(&str, &str)] = &[
    ("link to directory", "scout"),
    ("link to directory", ".shepherd"),
    ("link to directory", ".shepherd/tx"),
    ("link to directory", ".shepherd/locks"),
    ("link to directory", ".shepherd/baselines"),
    ("link to file", ".shepherd/ledger.jsonl"),
    ("link to file", "reset.log"),
    ("FIFO", "scout"),
    ("FIFO", ".shepherd/tx"),
    ("FIFO", ".shepherd/ledger.jsonl"),
    ("FIFO", "reset.log"),
    ("directory", ".shepherd/ledger.jsonl"),
    ("directory", "reset.log"),
];

/// Plants an object, resets, and reports what is wrong afterwards.
fn check_planted_in_archive(what: &str, name: &str) -> Result<Option<i32>, String> {
    let Some(scene) = CanaryScene::new(true) else {
        return Ok(None);
    };
    let at = scene.fleet.archive.join(name);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    match what {
        "link to directory" => symlink(scene.path("vault"), &at).unwrap(),
        "link to file" => symlink(scene.secret(), &at).unwrap(),
        "FIFO" => drop(tool_output(&["mkfifo"], &at)),
        _ => fs::create_dir(&at).unwrap(),
    }
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ended = scene.reset();
        scene.assert_canaries_unchanged();
        let done = fs::read(scene.memory()).unwrap() == BASELINE.as_bytes();
        if done {
            assert!(scene.all_entries().contains("- note\n"));
        } else {
            // The run fails and names the obstacle.
            assert_ne!(ended.code, Some(0), "{ended:?}");
            assert!(ended.err.contains("archives"), "{ended:?}");
        }
        ended.code
    }));
    tried.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        format!("{what} at {name}: {}", text.unwrap_or_default())
    })
}

#[test]
fn links_and_directories_in_archive_are_not_followed() {
    assert_archive_objects_are_harmless(|what| what != "FIFO");
}

#[test]
fn fifos_in_archive_do_not_block() {
    assert_archive_objects_are_harmless(|what| what == "FIFO");
}

fn assert_archive_objects_are_harmless(wanted: impl Fn(&str) -> bool) {
    let tried = ARCHIVE_OBJECTS.iter().filter(|(what, _)| wanted(what));
    let mut wrong = Vec::new();
    for (what, name) in tried {
        match check_planted_in_archive(what, name) {
            Ok(code) => println!("{what} at {name}: exit {code:?}"),
            Err(message) => wrong.push(message),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn symlinks_at_next_entry_names_are_not_followed() {
    let Some(scene) = CanaryScene::new(true) else {
        return;
    };
    let directory = scene.path("archives/scout");
    fs::create_dir_all(&directory).unwrap();
    let now = chrono::Utc::now();
    for minute in 0..3 {
        let stamp = (now + chrono::Duration::minutes(minute)).format("%Y-%m-%d_%H%M");
        for kind in ["", "-full-backup", "-odd", "-late", "-appended"] {
            for number in ["", "-1", "-2"] {
                let name = format!("{stamp}{kind}{number}.md");
                symlink(scene.secret(), directory.join(name)).unwrap();
            }
        }
    }
    assert_eq!(scene.reset().code, Some(0));
    scene.assert_canaries_unchanged();
    scene.assert_reset(AGENT_UID);
    let mut kept = Vec::new();
    collect_files(&directory, &mut kept);
    let [kept] = kept.try_into().unwrap();
    assert!(kept.to_string_lossy().ends_with("-3.md"), "{kept:?}");
    assert!(fs::read(kept).unwrap().ends_with(b"- note\n"));
}

#[test]
fn symlinked_directory_is_refused_target_untouched() {
    let Some(scene) = CanaryScene::new(true) else {
        return;
    };
    fs::rename(scene.directory(), scene.path("agents/real")).unwrap();
    for target in ["vault", "agents/real"] {
        symlink(scene.path(target), scene.directory()).unwrap();
        let ended = scene.reset();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.err.contains("symlink"), "{ended:?}");
        scene.assert_canaries_unchanged();
        fs::remove_file(scene.directory()).unwrap();
    }
    fs::rename(scene.path("agents/real"), scene.directory()).unwrap();
    assert_eq!(scene.reset().code, Some(0));
    scene.assert_reset(AGENT_UID);
}
