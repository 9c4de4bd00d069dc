//! Agents with notes, and the checks of the disk: what has to hold at every instant, and what has
//! to hold once the next run has recovered.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::fixture::{BASELINE, Fleet, NEW_BASELINE, directory_files, is_root};
use super::processes::test_directory;

/// Result of a check, with a description of what is wrong.
pub type CheckResult = Result<(), String>;

/// The agents' user, where this process may give files away.
const AGENT_UID: u32 = 4711;

/// Mode of every memory, which no umask produces by itself.
const MEMORY_MODE: u32 = 0o640;

/// Name of a file that a user put among the entries, and that is not an entry.
pub const FOREIGN_FILE_NAME: &str = "kept.md";

/// Arguments of a reset of all agents.
pub const RESET_ALL: &[&str] = &["reset", "--all"];

/// What an agent had at its memory's name before a run.
#[derive(Clone, Debug, PartialEq)]
pub enum InitialMemory {
    Missing,
    File(Vec<u8>),
    Fifo,
    /// A link to a file outside the agent's reach.
    Link,
}

impl InitialMemory {
    /// Returns notes below an unchanged baseline.
    pub fn scratch(notes: &str) -> InitialMemory {
        InitialMemory::File(format!("{BASELINE}{notes}").into_bytes())
    }

    pub fn file(text: &str) -> InitialMemory {
        InitialMemory::File(text.as_bytes().to_vec())
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            InitialMemory::File(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the part of the file that no run may lose.
    fn notes(&self) -> &[u8] {
        let bytes = self.bytes().unwrap_or_default();
        bytes.strip_prefix(BASELINE.as_bytes()).unwrap_or(bytes)
    }
}

/// Target of [`InitialMemory::Link`].
const LINK_TARGET: &str = "/etc/hostname";

/// Returns agents with one of each kind of memory.
pub fn twelve_agents() -> Vec<(&'static str, InitialMemory)> {
    let long: String = (0..8_000)
        .map(|i| format!("- line {i} of many\n"))
        .collect();
    let odd_bytes = [
        BASELINE.as_bytes(),
        b"\r\n\0\xff\xfe\n\n## a\n\n---\nno end",
    ]
    .concat();
    vec![
        ("ada", InitialMemory::scratch("- ada\n")),
        (
            "ben",
            InitialMemory::File(
                format!("{BASELINE}- ben\n")
                    .replace("kind", "cruel")
                    .into_bytes(),
            ),
        ),
        ("cyd", InitialMemory::file("no boundary at all, by cyd\n")),
        ("dan", InitialMemory::Missing),
        ("eve", InitialMemory::Fifo),
        ("fay", InitialMemory::Link),
        ("gus", InitialMemory::file(BASELINE)),
        ("hal", InitialMemory::File(odd_bytes)),
        ("ida", InitialMemory::scratch(&long)),
        ("jon", InitialMemory::file("")),
        ("kim", InitialMemory::scratch("- kim\n")),
        (
            "lou",
            InitialMemory::scratch("\n\n- lou, without a line feed"),
        ),
    ]
}

/// A fleet and its agents' memories before the run.
pub struct Scene {
    pub fleet: Fleet,
    initial_memories: BTreeMap<String, InitialMemory>,
    /// What the run installs: the baseline, or what a push makes of it.
    new_memories: Vec<Vec<u8>>,
    /// Whether the run is a push.
    is_push: bool,
    /// Bytes that agents appended since.
    late_bytes: BTreeMap<String, Vec<u8>>,
    _directory: Option<TempDir>,
    pub trace_log: PathBuf,
}

impl Scene {
    /// Creates the scene in a new directory, in main memory where possible: kills and errors do not
    /// depend on the disk below.
    pub fn new(cast: &[(&str, InitialMemory)]) -> Scene {
        let (directory, root) = test_directory(true);
        let fleet = root.join("fleet");
        let mut scene = Scene::new_at(&fleet, &fleet.join("archives"), &root.join("log"), cast);
        scene._directory = Some(directory);
        scene
    }

    /// Creates the scene in the caller's directories.
    pub fn new_at(
        root: &Path,
        archive: &Path,
        log: &Path,
        cast: &[(&str, InitialMemory)],
    ) -> Scene {
        let names: Vec<&str> = cast.iter().map(|(name, _)| *name).collect();
        let cast = cast
            .iter()
            .map(|(name, had)| (name.to_string(), had.clone()));
        let scene = Scene {
            fleet: Fleet::new(root, archive, &names),
            initial_memories: cast.collect(),
            new_memories: vec![BASELINE.into()],
            is_push: false,
            late_bytes: BTreeMap::new(),
            _directory: None,
            trace_log: log.to_path_buf(),
        };
        for (agent, had) in &scene.initial_memories {
            scene.write_initial_memory(agent, had);
        }
        scene
    }

    /// Makes the agents behind: they were reset once, then wrote their notes, and their baselines
    /// have changed since. A push keeps all of the notes, or these.
    pub fn make_behind(&mut self, kept: &str) {
        for agent in self.initial_memories.keys() {
            let memory = self.fleet.memory_path(agent);
            fs::write(&memory, format!("{BASELINE}- archived before\n")).unwrap();
        }
        self.run_ok(RESET_ALL);
        self.is_push = true;
        self.new_memories = vec![format!("{NEW_BASELINE}{kept}").into_bytes()];
        for (agent, had) in &self.initial_memories {
            self.write_initial_memory(agent, had);
            fs::write(self.fleet.baseline_path(agent), NEW_BASELINE).unwrap();
            let all = [NEW_BASELINE.as_bytes(), had.notes()].concat();
            self.new_memories.push(all);
        }
    }

    /// Resets the agents once, with other notes than those that they have then.
    pub fn reset_once_before(&self, notes: &str) {
        for agent in self.initial_memories.keys() {
            let memory = self.fleet.memory_path(agent);
            fs::write(&memory, format!("{BASELINE}{notes}")).unwrap();
        }
        self.run_ok(RESET_ALL);
        for (agent, had) in &self.initial_memories {
            self.write_initial_memory(agent, had);
        }
    }

    /// Runs the program with these arguments to its end, which must be a success.
    #[track_caller]
    pub fn run_ok(&self, words: &[&str]) {
        assert_ok(&self.fleet.run(words));
    }

    fn write_initial_memory(&self, agent: &str, had: &InitialMemory) {
        let memory = self.fleet.memory_path(agent);
        if matches!(had, InitialMemory::Fifo | InitialMemory::Link) {
            // Only where a record has a file is another object displaced.
            fs::write(&memory, BASELINE).unwrap();
            self.run_ok(&["reset", agent]);
            fs::remove_file(&memory).unwrap();
        }
        match had {
            InitialMemory::Missing => {}
            InitialMemory::Fifo => {
                let made = Command::new("mkfifo").arg(&memory).status().unwrap();
                assert!(made.success());
            }
            InitialMemory::Link => symlink(LINK_TARGET, &memory).unwrap(),
            InitialMemory::File(bytes) => {
                fs::write(&memory, bytes).unwrap();
                fs::set_permissions(&memory, fs::Permissions::from_mode(MEMORY_MODE)).unwrap();
            }
        }
        if is_root() {
            chown(
                self.fleet.agent_directory(agent),
                Some(AGENT_UID),
                Some(AGENT_UID),
            )
            .unwrap();
            if had.bytes().is_some() {
                chown(&memory, Some(AGENT_UID), Some(AGENT_UID)).unwrap();
            }
        }
    }

    /// Records bytes that an agent appended.
    pub fn record_late_write(&mut self, agent: &str, bytes: &[u8]) {
        self.late_bytes
            .entry(agent.to_string())
            .or_default()
            .extend(bytes);
    }

    fn late_bytes_of(&self, agent: &str) -> &[u8] {
        self.late_bytes.get(agent).map_or(&[], Vec::as_slice)
    }

    /// Checks what holds whenever no run is active, immediately after a kill.
    pub fn check_invariants(&self) -> CheckResult {
        self.check_ledger(true)?;
        for (agent, had) in &self.initial_memories {
            self.check_memory(agent, had)?;
            self.check_preserved(agent, had)?;
            self.check_entries(agent, had)?;
        }
        Ok(())
    }

    /// Returns the bytes of a memory that is a regular file; agents do not write to a FIFO, and a
    /// link leads elsewhere.
    pub fn read_memory(&self, agent: &str) -> Option<Vec<u8>> {
        let memory = self.fleet.memory_path(agent);
        let is_file = fs::symlink_metadata(&memory).is_ok_and(|meta| meta.is_file());
        is_file.then(|| fs::read(memory).unwrap())
    }

    /// Whether the memory is the link of [`InitialMemory::Link`].
    pub fn is_initial_link(&self, agent: &str) -> bool {
        let target = fs::read_link(self.fleet.memory_path(agent));
        target.is_ok_and(|target| target == Path::new(LINK_TARGET))
    }

    /// Checks that the memory is wholly old or wholly new, with its owner and mode.
    fn check_memory(&self, agent: &str, had: &InitialMemory) -> CheckResult {
        let memory = self.fleet.memory_path(agent);
        let Ok(meta) = fs::symlink_metadata(&memory) else {
            return check(*had == InitialMemory::Missing, || {
                format!("{agent} has no memory")
            });
        };
        if !meta.is_file() {
            let same = matches!(had, InitialMemory::Fifo | InitialMemory::Link);
            return check(same, || {
                format!("{agent}: the memory is a {:?}", meta.file_type())
            });
        }
        let stands = fs::read(&memory).unwrap();
        let old = had
            .bytes()
            .is_some_and(|old| self.is_with_late_bytes(agent, old, &stands));
        // A push also keeps what an agent appended before the memory was archived.
        let new = self.new_memories.iter().any(|new| {
            *new == stands || self.is_push && self.is_with_late_bytes(agent, new, &stands)
        });
        check(old || new, || {
            format!("{agent}: neither old nor new: {}", excerpt(&stands))
        })?;
        let mode = meta.mode() & 0o7777;
        let created = matches!(
            had,
            InitialMemory::Missing | InitialMemory::Fifo | InitialMemory::Link
        );
        check(created || mode == MEMORY_MODE, || {
            format!("{agent} has mode {mode:o}")
        })?;
        let owner = meta.uid();
        check(!is_root() || owner == AGENT_UID, || {
            format!("{agent} belongs to {owner}")
        })
    }

    /// Returns whether `bytes` are `old` with some or all of the bytes that the agent appended
    /// later.
    fn is_with_late_bytes(&self, agent: &str, old: &[u8], bytes: &[u8]) -> bool {
        let late = bytes.strip_prefix(old);
        late.is_some_and(|late| self.late_bytes_of(agent).starts_with(late))
    }

    /// Checks that every byte of the agent is in its memory, in an entry, or in a file beside the
    /// memory that the next run archives.
    fn check_preserved(&self, agent: &str, had: &InitialMemory) -> CheckResult {
        let mut places = directory_files(&self.fleet.agent_directory(agent));
        places.extend(self.named_entries(agent));
        let holds = |what: &[u8]| {
            what.is_empty()
                || places
                    .values()
                    .any(|bytes| contains_at_boundary(bytes, what))
        };
        let lost = |what: &[u8]| format!("{agent} lost {}", excerpt(what));
        check(holds(had.notes()), || lost(had.notes()))?;
        check(holds(self.late_bytes_of(agent)), || {
            lost(self.late_bytes_of(agent))
        })
    }

    fn named_entries(&self, agent: &str) -> BTreeMap<String, Vec<u8>> {
        let mut entries = self.fleet.entries(agent);
        entries.retain(|name, _| !is_temporary(name) && name != FOREIGN_FILE_NAME);
        entries
    }

    /// Checks that no entry is partial: each has the digest in the ledger, or the agent's bytes.
    fn check_entries(&self, agent: &str, had: &InitialMemory) -> CheckResult {
        for (name, bytes) in self.named_entries(agent) {
            let path = format!("{agent}/{name}");
            let recorded = self
                .recorded_digests(&path)
                .iter()
                .any(|it| *it == digest(&bytes));
            let right =
                recorded || name.starts_with("2020-") || self.is_valid_entry(agent, had, &bytes);
            check(right, || {
                format!("entry {path} has wrong content: {}", excerpt(&bytes))
            })?;
            let mode = fs::metadata(self.fleet.archive.join(&path)).unwrap().mode() & 0o7777;
            let ours = !name.starts_with("2020-");
            check(!ours || mode == 0o600, || {
                format!("entry {path} has mode {mode:o}")
            })?;
        }
        Ok(())
    }

    fn is_valid_entry(&self, agent: &str, had: &InitialMemory, entry: &[u8]) -> bool {
        if matches!(had, InitialMemory::Fifo | InitialMemory::Link) {
            let odd = format!("# {agent} ");
            return entry.starts_with(odd.as_bytes()) && entry.ends_with(b"displaced unread.\n");
        }
        let header = format!("# {agent} scratch notes");
        let body = scratch_body(entry).filter(|_| entry.starts_with(header.as_bytes()));
        let whole = had.bytes().unwrap_or_default();
        let late = self.late_bytes_of(agent);
        self.is_with_late_bytes(agent, whole, entry)
            || !entry.is_empty() && late.windows(entry.len()).any(|part| part == entry)
            || body.is_some_and(|body| self.is_with_late_bytes(agent, had.notes(), body))
    }

    /// Returns the digests that the ledger gives for an entry.
    fn recorded_digests(&self, path: &str) -> Vec<String> {
        let entries = self.records().into_iter().flat_map(|record| {
            let late = record["late"].as_array().cloned().unwrap_or_default();
            late.into_iter().chain([record["entry"].clone()])
        });
        entries
            .filter(|entry| entry["path"] == path)
            .filter_map(|entry| entry["digest"].as_str().map(ToString::to_string))
            .collect()
    }

    /// Returns the ledger's complete lines.
    pub fn records(&self) -> Vec<Value> {
        self.fleet.records()
    }

    /// Checks that the ledger is a chain, except for a last line torn by a kill.
    fn check_ledger(&self, torn: bool) -> CheckResult {
        let text = self.fleet.ledger_text();
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

    /// Resets all agents and checks what holds after that.
    pub fn check_after_next_reset(&self) -> CheckResult {
        let left = self.all_leftovers();
        let before = self.records().len();
        let output = self.fleet.run(RESET_ALL);
        let said = output_text(&output);
        check(output.status.code() == Some(0), || {
            format!("the next run failed: {said}")
        })?;
        let new_records = self.records().into_iter().skip(before);
        let notes: String = new_records
            .map(|record| record["note"].to_string())
            .collect();
        let words = ["interrupted", "settled", "displaced", "late write"];
        let is_reported = words
            .iter()
            .any(|word| said.contains(word) || notes.contains(word));
        check(left.is_empty() || is_reported, || {
            format!("the recovery of {left:?} is not reported: {said}")
        })?;
        self.check_settled()
    }

    /// Pushes to all agents and checks that each has the new baseline, that no bytes are lost, and
    /// that no files are left behind. All notes that are still in a memory stay there.
    fn check_after_next_push(&self) -> CheckResult {
        for agent in self.fleet.agents() {
            let output = self.fleet.run(&["push", agent]);
            check(output.status.code() == Some(0), || {
                format!("the next push failed: {}", output_text(&output))
            })?;
        }
        self.check_invariants()?;
        self.check_ledger(false)?;
        for (agent, had) in &self.initial_memories {
            let stands = self.read_memory(agent).unwrap_or_default();
            check(stands.starts_with(NEW_BASELINE.as_bytes()), || {
                format!("{agent} does not have the new baseline")
            })?;
            self.check_archived(agent, had)?;
            self.check_recorded_entries(agent)?;
        }
        self.check_no_leftovers()
    }

    /// Returns the names of files that a run left beside memories.
    fn all_leftovers(&self) -> Vec<String> {
        let agents = self.fleet.agents();
        let names = agents.iter().flat_map(|agent| self.fleet.leftovers(agent));
        names.collect()
    }

    /// Checks that all memories are their baselines, that no bytes are lost, and that no files are
    /// left behind.
    pub fn check_settled(&self) -> CheckResult {
        self.check_invariants()?;
        self.check_ledger(false)?;
        for (agent, had) in &self.initial_memories {
            let stands = self.read_memory(agent).unwrap_or_default();
            check(stands == BASELINE.as_bytes(), || {
                format!("{agent} was not reset")
            })?;
            self.check_archived(agent, had)?;
            self.check_recorded_entries(agent)?;
        }
        self.check_no_leftovers()
    }

    /// Checks that all bytes of an agent are in entries once its memory was replaced.
    fn check_archived(&self, agent: &str, had: &InitialMemory) -> CheckResult {
        let entries = self.named_entries(agent);
        for what in [had.notes(), self.late_bytes_of(agent)] {
            let held = what.is_empty()
                || entries
                    .values()
                    .any(|bytes| contains_at_boundary(bytes, what));
            check(held, || {
                format!("{agent}: no entry holds {}", excerpt(what))
            })?;
        }
        Ok(())
    }

    /// Checks that every entry that the ledger names exists with the recorded digest.
    fn check_recorded_entries(&self, agent: &str) -> CheckResult {
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
                    format!("{path} differs from the ledger: {found:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Checks that no file is left beside the memories, that no run is pending, and that the
    /// archive has no foreign files.
    pub fn check_no_leftovers(&self) -> CheckResult {
        for agent in self.fleet.agents() {
            let litter = self.fleet.leftovers(agent);
            check(litter.is_empty(), || format!("beside {agent}: {litter:?}"))?;
        }
        let pending = self.fleet.pending_journals();
        check(pending.is_empty(), || format!("still pending: {pending:?}"))?;
        for (directory, names) in self.archive_directories() {
            for name in names.into_keys().filter(|name| !is_temporary(name)) {
                let fits = is_archive_name(&directory, &name);
                check(fits, || {
                    format!("foreign file {name} in {directory:?} of the archive")
                })?;
            }
        }
        self.check_versions()
    }

    fn archive_directories(&self) -> Vec<(String, BTreeMap<String, Vec<u8>>)> {
        let own = [
            "",
            ".shepherd",
            ".shepherd/tx",
            ".shepherd/locks",
            ".shepherd/baselines",
        ];
        own.iter()
            .map(ToString::to_string)
            .chain(self.fleet.agents().iter().cloned())
            .map(|directory| {
                let names = directory_files(&self.fleet.archive.join(&directory));
                (directory, names)
            })
            .collect()
    }

    fn check_versions(&self) -> CheckResult {
        for (name, bytes) in directory_files(&self.fleet.archive.join(".shepherd/baselines")) {
            let right = is_temporary(&name) || name == format!("{}.md", digest(&bytes));
            check(right, || {
                format!("version {name} has wrong content: {}", excerpt(&bytes))
            })?;
        }
        Ok(())
    }

    /// Undoes the reset and checks that every agent has its former memory.
    pub fn check_undo(&self) -> CheckResult {
        for (agent, had) in &self.initial_memories {
            self.check_undone(agent, had)?;
        }
        self.check_no_leftovers()?;
        self.check_ledger(false)
    }

    fn check_undone(&self, agent: &str, had: &InitialMemory) -> CheckResult {
        let whole = [had.bytes().unwrap_or_default(), self.late_bytes_of(agent)].concat();
        if whole == BASELINE.as_bytes() {
            return Ok(());
        }
        let output = self.fleet.run(&["undo", agent]);
        let (code, said) = (output.status.code(), output_text(&output));
        if *had == InitialMemory::Fifo {
            return check(code == Some(6), || {
                format!("undo of {agent}: {code:?}: {said}")
            });
        }
        check(code == Some(0), || {
            format!("{agent} cannot be undone: {code:?}: {said}")
        })?;
        if *had == InitialMemory::Link {
            return check(self.is_initial_link(agent), || {
                format!("undo of {agent} did not restore the link: {said}")
            });
        }
        let stands = self.read_memory(agent);
        let expected = (*had != InitialMemory::Missing).then_some(whole);
        check(stands == expected, || {
            let stands = stands.as_deref().map(excerpt);
            format!("undo of {agent} gave {stands:?}; {said}")
        })?;
        match expected {
            Some(_) => self.check_memory(agent, had),
            None => Ok(()),
        }
    }

    /// Checks that a run removes the unnamed files of killed runs after a day.
    pub fn check_sweep_after_a_day(&self) -> CheckResult {
        let mut temporary = Vec::new();
        for (directory, names) in self.archive_directories() {
            let names = names.into_keys().filter(|name| is_temporary(name));
            let at = self.fleet.archive.join(directory);
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
        self.fleet.run(RESET_ALL);
        temporary.retain(|path| path.exists());
        check(temporary.is_empty(), || {
            format!("not removed after a day: {temporary:?}")
        })
    }

    /// Runs all checks after a failed run: immediately, after the next run, and after an undo.
    pub fn check_all(&self) -> CheckResult {
        self.check_invariants()
            .map_err(|why| format!("immediately: {why}"))?;
        let recovered = if self.is_push {
            self.check_after_next_push()
        } else {
            self.check_after_next_reset()
        };
        recovered.map_err(|why| format!("after the next run: {why}"))?;
        self.check_undo()
            .map_err(|why| format!("after an undo: {why}"))?;
        self.check_sweep_after_a_day()
    }
}

/// Returns a run's output.
pub fn output_text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}

/// Asserts that a run succeeded.
#[track_caller]
pub fn assert_ok(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", output_text(output));
}

/// Returns whether this is the name of a file that a killed run left before naming it.
pub fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix(".shepherd-").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns whether a name is one of those expected in a directory of the archive.
fn is_archive_name(directory: &str, name: &str) -> bool {
    let stamp = |name: &str| {
        let form = name.get(..15).unwrap_or_default();
        form.bytes()
            .zip(*b"0000-00-00_0000")
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
    };
    match directory {
        "" => !name.starts_with(".") || name == ".shepherd",
        ".shepherd" => {
            let own = [
                "ledger.jsonl",
                "ledger.index",
                // The next index replaces it.
                "ledger.index.new",
                "ledger.reserve",
                "archive-id",
                "states.known",
                "states.jsonl",
                "pins",
                "locks",
                "tx",
                "baselines",
            ];
            own.contains(&name) || name.starts_with("ledger-") && name.ends_with(".jsonl.gz")
        }
        ".shepherd/locks" => name.ends_with(".lock"),
        ".shepherd/baselines" => name.len() == 64 + 3 && name.ends_with(".md"),
        ".shepherd/tx" => false,
        _ => stamp(name) && name.ends_with(".md") || name == FOREIGN_FILE_NAME,
    }
}

pub fn check(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(why()) }
}

/// Returns whether `bytes` contain an agent's bytes where these can be: at the beginning, below the
/// baseline or an entry's header, or at the end.
fn contains_at_boundary(bytes: &[u8], what: &[u8]) -> bool {
    let below = bytes.strip_prefix(BASELINE.as_bytes());
    bytes.starts_with(what)
        || bytes.ends_with(what)
        || below.is_some_and(|below| below.starts_with(what))
        || scratch_body(bytes).is_some_and(|body| body.starts_with(what))
}

/// Returns the bytes below the header of a scratch entry.
fn scratch_body(entry: &[u8]) -> Option<&[u8]> {
    let at = entry.windows(2).take(200).position(|two| two == b"\n\n")?;
    entry.starts_with(b"# ").then(|| &entry[at + 2..])
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first bytes, for messages.
fn excerpt(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(80)];
    format!(
        "{} bytes, {:?}",
        bytes.len(),
        String::from_utf8_lossy(beginning)
    )
}
