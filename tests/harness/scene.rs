//! Agents with notes, and the account afterwards: what has to be true of the
//! disk at every instant, and what once the next run has put things right.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::fixture::{BASELINE, Fleet, files, is_root};
use super::tools::ground;

/// What a check found wrong.
pub type Checked = Result<(), String>;

/// The agents' user, where this process may give files away.
const AGENT: u32 = 4711;

/// The mode of every memory, which no umask makes by itself.
const MODE: u32 = 0o640;

/// A file that somebody put among the entries, and that is none.
pub const KEPT: &str = "kept.md";

/// The words of a reset of all.
pub const RESET: &[&str] = &["reset", "--all"];

/// What an agent had at its memory's name before a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Had {
    Nothing,
    File(Vec<u8>),
    Fifo,
    /// A link to a file that is nobody's business.
    Link,
}

impl Had {
    /// Notes below an unchanged baseline.
    pub fn scratch(notes: &str) -> Had {
        Had::File(format!("{BASELINE}{notes}").into_bytes())
    }

    pub fn file(text: &str) -> Had {
        Had::File(text.as_bytes().to_vec())
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Had::File(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The part of the file that no run may lose.
    fn notes(&self) -> &[u8] {
        let bytes = self.bytes().unwrap_or_default();
        bytes.strip_prefix(BASELINE.as_bytes()).unwrap_or(bytes)
    }
}

/// One of each kind of memory.
pub fn crowd() -> Vec<(&'static str, Had)> {
    let long: String = (0..8_000)
        .map(|i| format!("- line {i} of many\n"))
        .collect();
    let odd_bytes = [
        BASELINE.as_bytes(),
        b"\r\n\0\xff\xfe\n\n## a\n\n---\nno end",
    ]
    .concat();
    vec![
        ("ada", Had::scratch("- ada\n")),
        (
            "ben",
            Had::File(
                format!("{BASELINE}- ben\n")
                    .replace("kind", "cruel")
                    .into_bytes(),
            ),
        ),
        ("cyd", Had::file("no boundary at all, by cyd\n")),
        ("dan", Had::Nothing),
        ("eve", Had::Fifo),
        ("fay", Had::Link),
        ("gus", Had::file(BASELINE)),
        ("hal", Had::File(odd_bytes)),
        ("ida", Had::scratch(&long)),
        ("jon", Had::file("")),
        ("kim", Had::scratch("- kim\n")),
        ("lou", Had::scratch("\n\n- lou, without a line feed")),
    ]
}

/// A fleet and what its agents had.
pub struct Scene {
    pub fleet: Fleet,
    had: BTreeMap<String, Had>,
    /// What agents wrote since, behind what they had.
    late: BTreeMap<String, Vec<u8>>,
    _folder: Option<TempDir>,
    pub log: PathBuf,
}

impl Scene {
    /// In a new folder, which is in main memory where there is such a place:
    /// kills and errors do not depend on the disk below.
    pub fn new(cast: &[(&str, Had)]) -> Scene {
        let (folder, root) = ground(true);
        let fleet = root.join("fleet");
        let mut scene = Scene::at(&fleet, &fleet.join("archives"), &root.join("log"), cast);
        scene._folder = Some(folder);
        scene
    }

    /// At places that the caller made.
    pub fn at(root: &Path, archive: &Path, log: &Path, cast: &[(&str, Had)]) -> Scene {
        let names: Vec<&str> = cast.iter().map(|(name, _)| *name).collect();
        let cast = cast
            .iter()
            .map(|(name, had)| (name.to_string(), had.clone()));
        let scene = Scene {
            fleet: Fleet::new(root, archive, &names),
            had: cast.collect(),
            late: BTreeMap::new(),
            _folder: None,
            log: log.to_path_buf(),
        };
        for (agent, had) in &scene.had {
            scene.lay(agent, had);
        }
        scene
    }

    /// Runs the program with these words to its end, which has to be a good one.
    #[track_caller]
    pub fn does(&self, words: &[&str]) {
        is_ok(&self.fleet.run(words));
    }

    fn lay(&self, agent: &str, had: &Had) {
        let memory = self.fleet.memory(agent);
        match had {
            Had::Nothing => {}
            Had::Fifo => {
                let made = Command::new("mkfifo").arg(&memory).status().unwrap();
                assert!(made.success());
            }
            Had::Link => symlink("/etc/hostname", &memory).unwrap(),
            Had::File(bytes) => {
                fs::write(&memory, bytes).unwrap();
                fs::set_permissions(&memory, fs::Permissions::from_mode(MODE)).unwrap();
            }
        }
        if is_root() {
            chown(self.fleet.folder(agent), Some(AGENT), Some(AGENT)).unwrap();
            if had.bytes().is_some() {
                chown(&memory, Some(AGENT), Some(AGENT)).unwrap();
            }
        }
    }

    /// Says that an agent wrote this behind what it had.
    pub fn wrote(&mut self, agent: &str, bytes: &[u8]) {
        self.late
            .entry(agent.to_string())
            .or_default()
            .extend(bytes);
    }

    fn late(&self, agent: &str) -> &[u8] {
        self.late.get(agent).map_or(&[], Vec::as_slice)
    }

    /// What holds whenever nobody runs: the checks after a kill, before anything
    /// else is done.
    pub fn at_every_instant(&self) -> Checked {
        self.ledger(true)?;
        for (agent, had) in &self.had {
            self.whole(agent, had)?;
            self.kept(agent, had)?;
            self.entries_are_right(agent, had)?;
        }
        Ok(())
    }

    /// The bytes of a memory that is a regular file: nobody writes to a FIFO, and
    /// a link leads elsewhere.
    pub fn stands(&self, agent: &str) -> Option<Vec<u8>> {
        let memory = self.fleet.memory(agent);
        let is_file = fs::symlink_metadata(&memory).is_ok_and(|meta| meta.is_file());
        is_file.then(|| fs::read(memory).unwrap())
    }

    /// The memory is wholly old or wholly new, and as it was dressed.
    fn whole(&self, agent: &str, had: &Had) -> Checked {
        let memory = self.fleet.memory(agent);
        let Ok(meta) = fs::symlink_metadata(&memory) else {
            return check(*had == Had::Nothing, || format!("{agent} has no memory"));
        };
        if !meta.is_file() {
            let same = matches!(had, Had::Fifo | Had::Link);
            return check(same, || {
                format!("{agent}: {:?} stands there", meta.file_type())
            });
        }
        let stands = fs::read(&memory).unwrap();
        let old = had
            .bytes()
            .is_some_and(|old| self.grown(agent, old, &stands));
        let new = stands == BASELINE.as_bytes();
        check(old || new, || {
            format!("{agent} is neither old nor new: {}", text(&stands))
        })?;
        let mode = meta.mode() & 0o7777;
        let created = matches!(had, Had::Nothing | Had::Fifo | Had::Link);
        check(created || mode == MODE, || {
            format!("{agent} has mode {mode:o}")
        })?;
        let owner = meta.uid();
        check(!is_root() || owner == AGENT, || {
            format!("{agent} belongs to {owner}")
        })
    }

    /// Whether `bytes` are these with some or all of what the agent wrote later.
    fn grown(&self, agent: &str, old: &[u8], bytes: &[u8]) -> bool {
        let late = bytes.strip_prefix(old);
        late.is_some_and(|late| self.late(agent).starts_with(late))
    }

    /// Every byte of the agent is in its memory, in an entry, or beside the
    /// memory in what the next run archives.
    fn kept(&self, agent: &str, had: &Had) -> Checked {
        let mut places = files(&self.fleet.folder(agent));
        places.extend(self.named_entries(agent));
        let holds = |what: &[u8]| what.is_empty() || places.values().any(|bytes| find(bytes, what));
        let lost = |what: &[u8]| format!("{agent} lost {}", text(what));
        check(holds(had.notes()), || lost(had.notes()))?;
        check(holds(self.late(agent)), || lost(self.late(agent)))
    }

    fn named_entries(&self, agent: &str) -> BTreeMap<String, Vec<u8>> {
        let mut entries = self.fleet.entries(agent);
        entries.retain(|name, _| !is_temporary(name) && name != KEPT);
        entries
    }

    /// No entry is half: each is what the ledger says, or what the agent had.
    fn entries_are_right(&self, agent: &str, had: &Had) -> Checked {
        for (name, bytes) in self.named_entries(agent) {
            let path = format!("{agent}/{name}");
            let recorded = self.recorded(&path).iter().any(|it| *it == digest(&bytes));
            let right = recorded || name.starts_with("2020-") || self.is_right(agent, had, &bytes);
            check(right, || {
                format!("the entry {path} is not right: {}", text(&bytes))
            })?;
            let mode = fs::metadata(self.fleet.archive.join(&path)).unwrap().mode() & 0o7777;
            let ours = !name.starts_with("2020-");
            check(!ours || mode == 0o600, || {
                format!("the entry {path} has mode {mode:o}")
            })?;
        }
        Ok(())
    }

    fn is_right(&self, agent: &str, had: &Had, entry: &[u8]) -> bool {
        if matches!(had, Had::Fifo | Had::Link) {
            let odd = format!("# {agent} ");
            return entry.starts_with(odd.as_bytes()) && entry.ends_with(b"not read.\n");
        }
        let header = format!("# {agent} scratch notes");
        let body = body(entry).filter(|_| entry.starts_with(header.as_bytes()));
        let whole = had.bytes().unwrap_or_default();
        let late = self.late(agent);
        self.grown(agent, whole, entry)
            || !entry.is_empty() && late.windows(entry.len()).any(|part| part == entry)
            || body.is_some_and(|body| self.grown(agent, had.notes(), body))
    }

    /// The digests that the ledger gives for an entry.
    fn recorded(&self, path: &str) -> Vec<String> {
        let entries = self.records().into_iter().flat_map(|record| {
            let late = record["late"].as_array().cloned().unwrap_or_default();
            late.into_iter().chain([record["entry"].clone()])
        });
        entries
            .filter(|entry| entry["path"] == path)
            .filter_map(|entry| entry["digest"].as_str().map(ToString::to_string))
            .collect()
    }

    /// The ledger's whole lines.
    pub fn records(&self) -> Vec<Value> {
        self.fleet.records()
    }

    /// The ledger is a chain, but for a last line that a kill tore.
    fn ledger(&self, torn: bool) -> Checked {
        let text = fs::read(self.fleet.archive.join(".shepherd/ledger.jsonl")).unwrap_or_default();
        let mut head = "0".repeat(64);
        for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(whole) = line.strip_suffix(b"\n") else {
                return check(torn, || "the ledger has a torn line".to_string());
            };
            let record: Value = serde_json::from_slice(whole)
                .map_err(|error| format!("line {} of the ledger: {error}", at + 1))?;
            let right = record["seq"] == at + 1 && record["prev"] == head.as_str();
            check(right, || format!("the ledger is broken at line {}", at + 1))?;
            head = digest(whole);
        }
        Ok(())
    }

    /// The next reset of all, and what holds after it.
    pub fn put_right(&self) -> Checked {
        let left = self.has_left_overs();
        let before = self.records().len();
        let output = self.fleet.run(RESET);
        let said = said(&output);
        check(output.status.code() == Some(0), || {
            format!("the next run failed: {said}")
        })?;
        let notes = self.records().into_iter().skip(before);
        let notes: String = notes.map(|record| record["note"].to_string()).collect();
        let told = ["interrupted", "settled", "displaced", "late write"];
        let told = told
            .iter()
            .any(|word| said.contains(word) || notes.contains(word));
        check(!left || told, || {
            format!("it did not say what it put right: {said}")
        })?;
        self.is_settled()
    }

    /// Whether a run left something beside a memory.
    fn has_left_overs(&self) -> bool {
        self.fleet
            .agents()
            .iter()
            .any(|agent| !self.fleet.litter(agent).is_empty())
    }

    /// All memories are their baselines, nothing is lost, nothing left behind.
    pub fn is_settled(&self) -> Checked {
        self.at_every_instant()?;
        self.ledger(false)?;
        for (agent, had) in &self.had {
            let stands = self.stands(agent).unwrap_or_default();
            check(stands == BASELINE.as_bytes(), || {
                format!("{agent} was not reset")
            })?;
            self.is_archived(agent, had)?;
            self.has_its_entries(agent)?;
        }
        self.is_tidy()
    }

    /// Once its memory is the baseline, all that an agent had is in entries.
    fn is_archived(&self, agent: &str, had: &Had) -> Checked {
        let entries = self.named_entries(agent);
        for what in [had.notes(), self.late(agent)] {
            let held = what.is_empty() || entries.values().any(|bytes| find(bytes, what));
            check(held, || format!("{agent}: no entry holds {}", text(what)))?;
        }
        Ok(())
    }

    /// Every entry that the ledger names is there, with that digest.
    fn has_its_entries(&self, agent: &str) -> Checked {
        let entries = self.named_entries(agent);
        for record in self
            .records()
            .iter()
            .filter(|record| record["agent"] == agent)
        {
            let late = record["late"].as_array().cloned().unwrap_or_default();
            for entry in late
                .iter()
                .chain([&record["entry"]])
                .filter(|it| !it.is_null())
            {
                let path = entry["path"].as_str().unwrap_or_default();
                let name = path.rsplit('/').next().unwrap_or_default();
                let found = entries.get(name).map(|bytes| digest(bytes));
                let same = found.as_deref() == entry["digest"].as_str();
                check(same, || {
                    format!("{path} is not what the ledger says: {found:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Nothing is left beside the memories, no run is pending, and the archive
    /// has nothing in it but what belongs there.
    pub fn is_tidy(&self) -> Checked {
        for agent in self.fleet.agents() {
            let litter = self.fleet.litter(agent);
            check(litter.is_empty(), || format!("beside {agent}: {litter:?}"))?;
        }
        let pending = self.fleet.pending();
        check(pending.is_empty(), || format!("still pending: {pending:?}"))?;
        for (folder, names) in self.archive_folders() {
            for name in names.into_keys().filter(|name| !is_temporary(name)) {
                let fits = belongs(&folder, &name);
                check(fits, || format!("{name} in {folder:?} of the archive"))?;
            }
        }
        self.versions_are_right()
    }

    fn archive_folders(&self) -> Vec<(String, BTreeMap<String, Vec<u8>>)> {
        let own = [
            "",
            ".shepherd",
            ".shepherd/tx",
            ".shepherd/locks",
            ".shepherd/baselines",
        ];
        let own = own.iter().map(ToString::to_string);
        own.chain(self.fleet.agents().iter().cloned())
            .map(|folder| {
                let names = files(&self.fleet.archive.join(&folder));
                (folder, names)
            })
            .collect()
    }

    fn versions_are_right(&self) -> Checked {
        for (name, bytes) in files(&self.fleet.archive.join(".shepherd/baselines")) {
            let right = is_temporary(&name) || name == format!("{}.md", digest(&bytes));
            check(right, || {
                format!("the version {name} is not right: {}", text(&bytes))
            })?;
        }
        Ok(())
    }

    /// Undoing the reset gives every agent back what it had.
    pub fn can_be_undone(&self) -> Checked {
        for (agent, had) in &self.had {
            self.is_undone(agent, had)?;
        }
        self.is_tidy()?;
        self.ledger(false)
    }

    fn is_undone(&self, agent: &str, had: &Had) -> Checked {
        let whole = [had.bytes().unwrap_or_default(), self.late(agent)].concat();
        if whole == BASELINE.as_bytes() {
            return Ok(());
        }
        let output = self.fleet.run(&["undo", agent]);
        let (code, said) = (output.status.code(), said(&output));
        if matches!(had, Had::Fifo | Had::Link) {
            return check(code == Some(6), || {
                format!("undo of {agent}: {code:?}: {said}")
            });
        }
        check(code == Some(0), || {
            format!("{agent} cannot be undone: {code:?}: {said}")
        })?;
        let stands = self.stands(agent);
        let expected = (*had != Had::Nothing).then_some(whole);
        check(stands == expected, || {
            let stands = stands.as_deref().map(text);
            format!("undo of {agent} gave {stands:?}; {said}")
        })?;
        match expected {
            Some(_) => self.whole(agent, had),
            None => Ok(()),
        }
    }

    /// What killed runs left without a name is gone after a day.
    pub fn is_swept_after_a_day(&self) -> Checked {
        let mut temporary = Vec::new();
        for (folder, names) in self.archive_folders() {
            let names = names.into_keys().filter(|name| is_temporary(name));
            let at = self.fleet.archive.join(folder);
            temporary.extend(names.map(|name| at.join(name)));
        }
        if temporary.is_empty() {
            return Ok(());
        }
        let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
        for path in &temporary {
            fs::File::open(path)
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
        self.fleet.run(RESET);
        temporary.retain(|path| path.exists());
        check(temporary.is_empty(), || {
            format!("never swept: {temporary:?}")
        })
    }

    /// All checks of a run that came to nothing: at that instant, after the
    /// next run, after an undo.
    pub fn account(&self) -> Checked {
        self.at_every_instant()
            .map_err(|why| format!("at that instant: {why}"))?;
        self.put_right()
            .map_err(|why| format!("after the next run: {why}"))?;
        self.can_be_undone()
            .map_err(|why| format!("after an undo: {why}"))?;
        self.is_swept_after_a_day()
    }
}

/// What a run printed.
pub fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}

/// That a run ended well.
#[track_caller]
pub fn is_ok(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

/// A name of a file that a killed run left before it got its own.
pub fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix(".shepherd-").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Whether a name belongs into a folder of the archive.
fn belongs(folder: &str, name: &str) -> bool {
    let stamp = |name: &str| {
        let form = name.get(..15).unwrap_or_default();
        form.bytes()
            .zip(*b"0000-00-00_0000")
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
    };
    match folder {
        "" => !name.starts_with(".") || name == ".shepherd",
        ".shepherd" => {
            let own = [
                "ledger.jsonl",
                "ledger.index",
                "pins",
                "locks",
                "tx",
                "baselines",
            ];
            own.contains(&name)
        }
        ".shepherd/locks" => name.ends_with(".lock"),
        ".shepherd/baselines" => name.len() == 64 + 3 && name.ends_with(".md"),
        ".shepherd/tx" => false,
        _ => stamp(name) && name.ends_with(".md") || name == KEPT,
    }
}

pub fn check(holds: bool, why: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(why()),
    }
}

/// Whether these bytes are where an agent's can be: at the beginning, below the
/// baseline or below an entry's header, or at the end.
fn find(bytes: &[u8], what: &[u8]) -> bool {
    let below = bytes.strip_prefix(BASELINE.as_bytes());
    bytes.starts_with(what)
        || bytes.ends_with(what)
        || below.is_some_and(|below| below.starts_with(what))
        || body(bytes).is_some_and(|body| body.starts_with(what))
}

/// What stands below the header of a scratch entry.
fn body(entry: &[u8]) -> Option<&[u8]> {
    let at = entry.windows(2).take(200).position(|two| two == b"\n\n")?;
    entry.starts_with(b"# ").then(|| &entry[at + 2..])
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of some bytes, for messages.
fn text(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(80)];
    format!(
        "{} bytes, {:?}",
        bytes.len(),
        String::from_utf8_lossy(beginning)
    )
}
