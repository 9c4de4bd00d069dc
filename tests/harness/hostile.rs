//! Agents that attack. They are another user, and plant links, FIFOs, devices,
//! folders and foreign files at every name that a reset touches, before it
//! comes and while it is at work. Canaries stand wherever they point.
//!
//! What must hold: nothing but the memory and the archive is read into an
//! entry, written, or changed in any way; no run hangs; and in the end the
//! memory is the baseline, or the run has said why not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::fixture::{BASELINE, Fleet, files, full, has, is_root};
use crate::tools::{Ended, Running, ground};

/// Users that nobody else is.
pub const AGENT: u32 = 61_001;
const NEIGHBOUR: u32 = 61_002;

/// What stands in every canary and must stand nowhere else.
const SONG: &str = "CANARY";

/// As long as a run may take that reads little and meets nobody.
const SOON: Duration = Duration::from_secs(10);

/// A file that must stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Canary {
    owner: (u32, u32),
    mode: u32,
    inode: u64,
    modified: (i64, i64),
    bytes: Vec<u8>,
}

impl Canary {
    fn look(path: &Path) -> Canary {
        let meta = fs::symlink_metadata(path).unwrap();
        Canary {
            owner: (meta.uid(), meta.gid()),
            mode: meta.mode(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            bytes: match meta.is_file() {
                true => fs::read(path).unwrap(),
                false => format!("{:?}", files(path).keys()).into_bytes(),
            },
        }
    }
}

/// An agent called scout with its own user, and canaries around it.
pub struct Scene {
    _temporary: TempDir,
    pub fleet: Fleet,
    canaries: BTreeMap<PathBuf, Canary>,
}

impl Scene {
    /// None, and said so, where this process may not be somebody else.
    pub fn new(in_memory: bool) -> Option<Scene> {
        if !is_root() {
            println!("skipped: only root can be other users");
            return None;
        }
        let (temporary, root) = ground(in_memory);
        let fleet = Fleet::new(&root, &root.join("archives"), &["scout"]);
        let mut scene = Scene {
            _temporary: temporary,
            fleet,
            canaries: BTreeMap::new(),
        };
        // It may rename its folder, too.
        for folder in [root.join("agents"), scene.fleet.folder("scout")] {
            chown(folder, Some(AGENT), Some(AGENT)).unwrap();
        }
        scene.write("- note\n");
        fs::create_dir_all(root.join("vault/inner")).unwrap();
        fs::create_dir_all(root.join("neighbour")).unwrap();
        fs::create_dir_all(root.join("archives/old")).unwrap();
        fs::set_permissions(root.join("archives"), fs::Permissions::from_mode(0o700)).unwrap();
        scene.put("vault/secret", 0, 0o600);
        scene.put("vault/MEMORY.md", 0, 0o644);
        scene.put("vault/inner/deep", 0, 0o666);
        scene.put("neighbour/MEMORY.md", NEIGHBOUR, 0o600);
        scene.put("archives/old/2020-01-01_0000.md", 0, 0o600);
        for folder in ["vault", "vault/inner", "neighbour"] {
            scene.watch(&root.join(folder));
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
        self.fleet.memory("scout")
    }

    pub fn folder(&self) -> PathBuf {
        self.fleet.folder("scout")
    }

    fn put(&mut self, name: &str, owner: u32, mode: u32) {
        let path = self.path(name);
        fs::write(&path, format!("{BASELINE}{SONG} of {name}\n")).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self.watch(&path);
    }

    fn watch(&mut self, path: &Path) {
        self.canaries.insert(path.to_path_buf(), Canary::look(path));
    }

    /// A memory of the agent's own with these notes.
    pub fn write(&self, notes: &str) {
        fs::write(self.memory(), format!("{BASELINE}{notes}")).unwrap();
        chown(self.memory(), Some(AGENT), Some(AGENT)).unwrap();
    }

    /// One run, which ends soon.
    #[track_caller]
    pub fn reset(&self) -> Ended {
        let ended = Running::on(&self.fleet, &["reset", "scout"]).end_within(SOON);
        says_nothing_raw(&ended);
        ended
    }

    /// Nothing outside was touched, and nothing of it is in the archive.
    #[track_caller]
    pub fn is_unharmed(&self) {
        for (path, before) in &self.canaries {
            assert_eq!(&Canary::look(path), before, "{}", path.display());
        }
        let mut kept = Vec::new();
        walk(&self.fleet.archive, &mut kept);
        for path in kept {
            let sings = fs::read(&path).unwrap();
            let sings = sings.windows(SONG.len()).any(|it| it == SONG.as_bytes());
            let own = self.canaries.contains_key(&path);
            assert!(!sings || own, "{} has read a canary", path.display());
        }
    }

    /// The memory is the baseline, a file of its own with this owner.
    #[track_caller]
    pub fn is_reset(&self, owner: u32) {
        let meta = fs::symlink_metadata(self.memory()).unwrap();
        assert!(meta.is_file(), "{meta:?}");
        assert_eq!((meta.nlink(), meta.uid()), (1, owner));
        assert_eq!(fs::read(self.memory()).unwrap(), BASELINE.as_bytes());
        assert_eq!(self.fleet.pending(), [""; 0]);
    }

    pub fn all_entries(&self) -> String {
        let entries = self.fleet.entries("scout").into_values();
        String::from_utf8_lossy(&entries.flatten().collect::<Vec<u8>>()).into_owned()
    }
}

/// No byte that a terminal obeys, whatever an agent calls its files.
#[track_caller]
pub fn says_nothing_raw(ended: &Ended) {
    for text in [&ended.out, &ended.err] {
        let raw = |it: char| it.is_control() && it != '\n';
        assert!(!text.contains(raw) && !text.contains(SONG), "{ended:?}");
    }
}

/// All regular files below a folder; links are not followed.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for item in fs::read_dir(folder).into_iter().flatten() {
        let item = item.unwrap();
        let kind = item.file_type().unwrap();
        if kind.is_dir() {
            walk(&item.path(), found);
        } else if kind.is_file() {
            found.push(item.path());
        }
    }
}

#[track_caller]
fn tool(words: &[&str], path: &Path) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What is planted at the memory's name, and what its description says.
const ODD: &[(&str, &str)] = &[
    ("a link to a secret", "link"),
    ("a link to a folder", "link"),
    ("a link to an entry", "link"),
    ("a link to nowhere with escape codes", "link"),
    ("a further name of a secret", "0"),
    ("a further name of a neighbour's memory", "61002"),
    ("a further name of an entry", "0"),
    ("a FIFO", "pipe"),
    ("a socket", "socket"),
    ("a device that never ends", "device"),
    ("a block device", "device"),
];

fn plant(scene: &Scene, what: &str) {
    let at = scene.memory();
    fs::remove_file(&at).unwrap();
    let entry = scene.path("archives/old/2020-01-01_0000.md");
    match what {
        "a link to a secret" => symlink(scene.secret(), at).unwrap(),
        "a link to a folder" => symlink(scene.path("vault"), at).unwrap(),
        "a link to an entry" => symlink(entry, at).unwrap(),
        "a link to nowhere with escape codes" => {
            symlink("/no\n\x1b]0;title\x07\u{202e}where", at).unwrap();
        }
        "a further name of a secret" => fs::hard_link(scene.secret(), at).unwrap(),
        "a further name of a neighbour's memory" => {
            fs::hard_link(scene.path("neighbour/MEMORY.md"), at).unwrap();
        }
        "a further name of an entry" => fs::hard_link(entry, at).unwrap(),
        "a FIFO" => drop(tool(&["mkfifo"], &at)),
        "a socket" => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
        "a device that never ends" => device(&at, &["c", "1", "5"]),
        "a block device" => device(&at, &["b", "7", "77"]),
        other => panic!("{other}"),
    }
}

fn device(at: &Path, numbers: &[&str]) {
    let made = Command::new("mknod").arg(at).args(numbers).status();
    assert!(made.unwrap().success());
}

#[test]
fn whatever_stands_at_the_memorys_name_is_described_displaced_and_not_read() {
    for (what, said) in ODD {
        let Some(scene) = Scene::new(false) else {
            return;
        };
        plant(&scene, what);
        let ended = scene.reset();
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        scene.is_unharmed();
        scene.is_reset(AGENT);
        // A further name may be the last one by then.
        let litter = scene.fleet.litter("scout");
        let kept = usize::from(what.starts_with("a further name"));
        assert_eq!(litter.len(), kept, "{what}: {litter:?}");
        assert!(litter.iter().all(|name| ended.out.contains(name)), "{what}");
        let entries = scene.fleet.entries("scout");
        assert_eq!(entries.len(), 1, "{what}");
        assert!(entries.keys().all(|name| name.contains("-odd")), "{what}");
        assert!(scene.all_entries().contains(said), "{what}: {entries:?}");
        assert!(!scene.all_entries().contains('\x1b'));
    }
    println!("{} planted objects", ODD.len());
}

#[test]
fn a_folder_at_the_memorys_name_is_kept_beside_it_and_its_content_untouched() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    // Without a record of a file the config would be wrong.
    assert_eq!(scene.reset().code, Some(0));
    fs::remove_file(scene.memory()).unwrap();
    fs::create_dir(scene.memory()).unwrap();
    fs::hard_link(scene.secret(), scene.memory().join("secret")).unwrap();
    symlink(scene.path("vault"), scene.memory().join("link")).unwrap();
    let ended = scene.reset();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    scene.is_unharmed();
    scene.is_reset(AGENT);
    let [kept] = scene.fleet.litter("scout").try_into().unwrap();
    assert!(ended.out.contains(&kept), "{ended:?}");
    let kept = files(&scene.folder().join(kept));
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["link", "secret"]);
}

#[test]
fn a_memory_of_somebody_elses_is_reset_and_stays_theirs() {
    for owner in [0, NEIGHBOUR] {
        let Some(scene) = Scene::new(false) else {
            return;
        };
        chown(scene.memory(), Some(owner), Some(owner)).unwrap();
        assert_eq!(scene.reset().code, Some(0));
        scene.is_unharmed();
        scene.is_reset(owner);
        assert!(scene.all_entries().contains("- note\n"));
    }
}

#[test]
fn owner_group_mode_attributes_and_access_list_stay() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    if !["setfattr", "getfattr", "setfacl", "getfacl"]
        .into_iter()
        .all(has)
    {
        return;
    }
    let memory = scene.memory();
    chown(&memory, Some(AGENT), Some(NEIGHBOUR)).unwrap();
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o640)).unwrap();
    tool(
        &["setfattr", "-n", "user.\x1b[2J\n", "-v", "\x1b[2J\n"],
        &memory,
    );
    tool(
        &["setfattr", "-n", "trusted.kept", "-v", "of root"],
        &memory,
    );
    tool(&["setfacl", "-m", "u:61002:r,g:61001:rw"], &memory);
    let look = || {
        let meta = fs::metadata(&memory).unwrap();
        let attributes = tool(&["getfattr", "-d", "-m", "-", "-e", "hex"], &memory);
        let list = tool(&["getfacl", "-n"], &memory);
        (meta.uid(), meta.gid(), meta.mode(), attributes, list)
    };
    let before = look();
    for _ in 0..3 {
        fs::write(&memory, format!("{BASELINE}- more\n")).unwrap();
        assert_eq!(scene.reset().code, Some(0));
        scene.is_reset(AGENT);
        assert_eq!(look(), before);
    }
}

/// Gives a file back that nobody can change.
struct Fixed(PathBuf, &'static str);

impl Fixed {
    /// None where the file system knows no such thing.
    fn new(path: &Path, flag: &'static str) -> Option<Fixed> {
        let set = Command::new("chattr")
            .arg(format!("+{flag}"))
            .arg(path)
            .output();
        if set.is_ok_and(|output| output.status.success()) {
            return Some(Fixed(path.to_path_buf(), flag));
        }
        println!("skipped: chattr +{flag} is not possible here");
        None
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let mut clear = Command::new("chattr");
        let _ = clear.arg(format!("-{}", self.1)).arg(&self.0).status();
    }
}

/// What a reset is refused for is in its plan and in what `doctor` finds.
fn is_foreseen(scene: &Scene, command: &str) {
    for words in [&["reset", "scout", "--dry-run"][..], &["doctor"]] {
        let output = scene.fleet.run(words);
        // Hints of a dry run go where hints go.
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains(command), "{words:?}: {told}");
        assert_ne!(output.status.code(), Some(0), "{words:?}: {told}");
    }
}

#[test]
fn an_immutable_or_append_only_memory_is_refused_with_the_command_that_helps() {
    for flag in ["i", "a"] {
        let Some(scene) = Scene::new(false) else {
            return;
        };
        if !has("chattr") {
            return;
        }
        let Some(fixed) = Fixed::new(&scene.memory(), flag) else {
            return;
        };
        for _ in 0..2 {
            let ended = scene.reset();
            assert_ne!(ended.code, Some(0), "{ended:?}");
            let memory = scene.memory().display().to_string();
            assert!(ended.err.contains(&memory), "{ended:?}");
            let command = format!("chattr -{flag} {memory} ");
            assert!(ended.err.contains(&command), "{ended:?}");
            is_foreseen(&scene, &command);
            assert!(fs::read(scene.memory()).unwrap().ends_with(b"- note\n"));
            assert_eq!(scene.fleet.litter("scout"), [""; 0], "+{flag}");
            scene.is_unharmed();
        }
        drop(fixed);
        assert_eq!(scene.reset().code, Some(0));
        scene.is_reset(AGENT);
        assert!(scene.all_entries().contains("- note\n"));
    }
}

#[test]
fn a_folder_in_which_nothing_can_change_is_refused_and_the_memory_stays() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    if !has("chattr") {
        return;
    }
    for flag in ["i", "a"] {
        let Some(fixed) = Fixed::new(&scene.folder(), flag) else {
            return;
        };
        let ended = scene.reset();
        assert_ne!(ended.code, Some(0), "+{flag}: {ended:?}");
        let command = format!("chattr -{flag} {} ", scene.folder().display());
        assert!(ended.err.contains(&command), "{ended:?}");
        is_foreseen(&scene, &command);
        assert!(fs::read(scene.memory()).unwrap().ends_with(b"- note\n"));
        scene.is_unharmed();
        drop(fixed);
        scene.write("- note\n");
        assert_eq!(scene.reset().code, Some(0));
        scene.is_reset(AGENT);
        // In an append-only folder nothing could be removed either; now it is.
        assert_eq!(scene.fleet.litter("scout"), [""; 0], "+{flag}");
        scene.write("- note\n");
    }
}

#[test]
fn a_file_of_holes_is_archived_in_bounded_memory() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    let size: u64 = if full() { 10 << 30 } else { 64 << 20 };
    let statvfs = rustix::fs::statvfs(&scene.fleet.root).unwrap();
    if statvfs.f_bavail * statvfs.f_frsize < 3 * size {
        println!("skipped: not enough room for {size} bytes");
        return;
    }
    let file = fs::File::options()
        .append(true)
        .open(scene.memory())
        .unwrap();
    file.set_len(size).unwrap();
    drop(file);
    // Address space, in KiB: far less than the file.
    let limit = "ulimit -v 400000 && exec \"$@\"";
    let command = scene
        .fleet
        .command(&["/bin/sh", "-c", limit, "sh"], &["reset", "scout"]);
    let ended = Running::start(command).end_within(Duration::from_secs(400));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    scene.is_reset(AGENT);
    let entries = scene.path("archives/scout");
    let entry = fs::read_dir(entries).unwrap().next().unwrap().unwrap();
    assert!(entry.metadata().unwrap().len() > size - 1000);
    println!("{size} bytes of holes: {:.1?}", ended.took);
}

#[test]
fn hostile_names_beside_the_memory_stay_and_reach_no_terminal() {
    let Some(scene) = Scene::new(false) else {
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
        fs::write(scene.folder().join(name), "of the agent").unwrap();
    }
    symlink(scene.secret(), scene.folder().join(".shepherd-")).unwrap();
    for verb in [
        &["status"][..],
        &["diff", "scout"],
        &["doctor"],
        &["reset", "scout"],
    ] {
        let ended = Running::on(&scene.fleet, verb).end_within(SOON);
        says_nothing_raw(&ended);
    }
    scene.is_unharmed();
    scene.is_reset(AGENT);
    let mut found = files(&scene.folder());
    for name in names {
        assert_eq!(found.remove(&name).unwrap(), b"of the agent", "{name:?}");
    }
    assert_eq!(
        found.into_keys().collect::<Vec<_>>(),
        [".shepherd-", "MEMORY.md"]
    );
}

/// What is planted in the archive, where agents cannot write unless somebody
/// has made a mistake; and whether a reset can be done all the same.
const IN_THE_ARCHIVE: &[(&str, &str)] = &[
    ("link to folder", "scout"),
    ("link to folder", ".shepherd"),
    ("link to folder", ".shepherd/tx"),
    ("link to folder", ".shepherd/locks"),
    ("link to folder", ".shepherd/baselines"),
    ("link to file", ".shepherd/ledger.jsonl"),
    ("link to file", "reset.log"),
    ("FIFO", "scout"),
    ("FIFO", ".shepherd/tx"),
    ("FIFO", ".shepherd/ledger.jsonl"),
    ("FIFO", "reset.log"),
    ("folder", ".shepherd/ledger.jsonl"),
    ("folder", "reset.log"),
];

/// Plants, resets, and says what is wrong then.
fn with_planted(what: &str, name: &str) -> Result<Option<i32>, String> {
    let Some(scene) = Scene::new(true) else {
        return Ok(None);
    };
    let at = scene.fleet.archive.join(name);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    match what {
        "link to folder" => symlink(scene.path("vault"), &at).unwrap(),
        "link to file" => symlink(scene.secret(), &at).unwrap(),
        "FIFO" => drop(tool(&["mkfifo"], &at)),
        _ => fs::create_dir(&at).unwrap(),
    }
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let ended = scene.reset();
        scene.is_unharmed();
        let done = fs::read(scene.memory()).unwrap() == BASELINE.as_bytes();
        if done {
            assert!(scene.all_entries().contains("- note\n"));
        } else {
            // It says so, and names what is in its way.
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
fn links_and_folders_planted_in_the_archive_are_not_followed() {
    planted_in_the_archive(|what| what != "FIFO");
}

#[test]
fn fifos_planted_in_the_archive_hold_nobody_up() {
    planted_in_the_archive(|what| what == "FIFO");
}

fn planted_in_the_archive(wanted: impl Fn(&str) -> bool) {
    let tried = IN_THE_ARCHIVE.iter().filter(|(what, _)| wanted(what));
    let mut wrong = Vec::new();
    for (what, name) in tried {
        match with_planted(what, name) {
            Ok(code) => println!("{what} at {name}: exit {code:?}"),
            Err(message) => wrong.push(message),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn links_at_the_names_of_the_next_entries_are_not_followed() {
    let Some(scene) = Scene::new(true) else {
        return;
    };
    let folder = scene.path("archives/scout");
    fs::create_dir_all(&folder).unwrap();
    let now = chrono::Utc::now();
    for minute in 0..3 {
        let stamp = (now + chrono::Duration::minutes(minute)).format("%Y-%m-%d_%H%M");
        for kind in ["", "-full-backup", "-odd", "-late", "-appended"] {
            for number in ["", "-1", "-2"] {
                let name = format!("{stamp}{kind}{number}.md");
                symlink(scene.secret(), folder.join(name)).unwrap();
            }
        }
    }
    assert_eq!(scene.reset().code, Some(0));
    scene.is_unharmed();
    scene.is_reset(AGENT);
    let mut kept = Vec::new();
    walk(&folder, &mut kept);
    let [kept] = kept.try_into().unwrap();
    assert!(kept.to_string_lossy().ends_with("-3.md"), "{kept:?}");
    assert!(fs::read(kept).unwrap().ends_with(b"- note\n"));
}

#[test]
fn a_folder_that_is_a_link_is_refused_and_its_target_untouched() {
    let Some(scene) = Scene::new(true) else {
        return;
    };
    fs::rename(scene.folder(), scene.path("agents/real")).unwrap();
    for target in ["vault", "agents/real"] {
        symlink(scene.path(target), scene.folder()).unwrap();
        let ended = scene.reset();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.err.contains("symbolic link"), "{ended:?}");
        scene.is_unharmed();
        fs::remove_file(scene.folder()).unwrap();
    }
    fs::rename(scene.path("agents/real"), scene.folder()).unwrap();
    assert_eq!(scene.reset().code, Some(0));
    scene.is_reset(AGENT);
}
