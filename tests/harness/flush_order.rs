//! The order of flushes: the table in `src/engine/runs/reset.rs`, compared with the system calls of the
//! real program.
//!
//! A file system may keep an order that no program asked for, and one with a journal does where
//! memory and archive share it, so a power-cut test can miss a missing flush. Here every missing
//! flush is a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::fixture::BASELINE;
use super::quarantine::scene_with;
use super::scene::{InitialMemory, RESET_ALL, Scene, assert_ok, twelve_agents};
use super::strace::{self, can_trace};

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlushRule {
    Content,
    Names,
    NewContent,
    Exchange,
    Mark,
    Removal,
    ReleasedName,
    ScanRecord,
    QuarantinedName,
    StateLog,
}

impl FlushRule {
    /// The rows of every reset.
    const RESET: [FlushRule; 6] = [
        FlushRule::Content,
        FlushRule::Names,
        FlushRule::NewContent,
        FlushRule::Exchange,
        FlushRule::Mark,
        FlushRule::Removal,
    ];

    /// The rows of an entry that is released from quarantine.
    const RELEASE: [FlushRule; 3] = [
        FlushRule::ReleasedName,
        FlushRule::ScanRecord,
        FlushRule::QuarantinedName,
    ];
}

impl Display for FlushRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlushRule::Content => "before an entry gets its name",
            FlushRule::Names => "before any change in an agent's directory",
            FlushRule::NewContent => "before a new file takes a memory's place",
            FlushRule::Exchange => "before the mark that records it",
            FlushRule::Mark => "before a displaced file is settled",
            FlushRule::Removal => "before the transaction record is removed",
            FlushRule::ReleasedName => "before the record of its scan",
            FlushRule::ScanRecord => "before the ledger's record",
            FlushRule::QuarantinedName => "before the name in the quarantine is removed",
            FlushRule::StateLog => "before the last known states cover it",
        })
    }
}

/// A system call with the files and directories that it is about.
struct TracedCall {
    name: String,
    /// Paths of its descriptors, in order. A file created without a name keeps the path that the
    /// kernel gives it.
    open: Vec<String>,
    /// Its quoted arguments.
    words: Vec<String>,
    text: String,
}

impl TracedCall {
    /// Parses a line of a log of `strace -y`; returns None for a failed call and for a line without
    /// a call.
    fn new(line: &str) -> Option<TracedCall> {
        let (_, text) = line.split_once(' ')?;
        let text = text.trim_start();
        assert!(!text.contains("unfinished"), "several threads: {text}");
        let (name, arguments) = text.split_once('(')?;
        let (arguments, answer) = arguments.rsplit_once(" = ")?;
        if answer.starts_with('-') {
            return None;
        }
        // Escaped quotes inside of arguments are replaced first.
        let arguments = arguments.replace("\\\"", "'");
        let pieces = arguments.split('"').enumerate();
        let outside = |at: usize| at.is_multiple_of(2);
        let words = pieces.clone().filter(|(at, _)| !outside(*at));
        let open = pieces.filter(|(at, _)| outside(*at)).flat_map(|(_, text)| {
            let paths = text.split('<').skip(1);
            paths.filter_map(|path| Some(path.split_once('>')?.0.to_string()))
        });
        Some(TracedCall {
            name: name.to_string(),
            open: open.collect(),
            words: words.map(|(_, word)| word.to_string()).collect(),
            text: text.to_string(),
        })
    }

    /// Returns the path of the quoted argument `at`, relative to the descriptor with the same
    /// number.
    fn path(&self, at: usize) -> String {
        let directory = self.open.get(at).map_or("", String::as_str);
        let word = &self.words[at];
        match word.as_str() {
            "" | "." => directory.to_string(),
            word if word.starts_with('/') => word.to_string(),
            word => format!("{directory}/{word}"),
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Changes of a run that are not flushed yet, and the steps it took too early.
struct FlushChecker<'s> {
    scene: &'s Scene,
    unsynced: BTreeSet<String>,
    /// Files of the archive that were created with their names.
    created: BTreeSet<String>,
    /// File behind each name beside a memory.
    staged: BTreeMap<String, String>,
    /// Agent of each record, by the path of the record.
    records: BTreeMap<String, String>,
    /// Agents whose swap is marked.
    marked: BTreeSet<String>,
    /// Transaction records that name a scanned entry.
    screened: BTreeSet<String>,
    /// Number of checks of each row.
    seen: BTreeMap<FlushRule, usize>,
    breaches: BTreeSet<String>,
}

impl<'s> FlushChecker<'s> {
    /// Follows a run through its calls.
    fn follow(scene: &'s Scene, log: &[&str]) -> FlushChecker<'s> {
        let mut disk = FlushChecker {
            scene,
            unsynced: BTreeSet::new(),
            created: BTreeSet::new(),
            staged: BTreeMap::new(),
            records: BTreeMap::new(),
            marked: BTreeSet::new(),
            screened: BTreeSet::new(),
            seen: BTreeMap::new(),
            breaches: BTreeSet::new(),
        };
        for step in log.iter().filter_map(|line| TracedCall::new(line)) {
            disk.handle_call(&step);
        }
        disk
    }

    fn in_agents<'p>(&self, path: &'p str) -> Option<&'p str> {
        let agents = self.scene.fleet.root.join("agents");
        let below = path.strip_prefix(agents.to_str()?)?.strip_prefix('/')?;
        below.split('/').next()
    }

    /// Returns the path below the archive; None for locks and `reset.log`, on which no recovery
    /// relies. The ledger has a row of its own.
    fn in_archive<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = path
            .strip_prefix(self.scene.fleet.archive.to_str()?)?
            .trim_start_matches('/');
        let others = [".shepherd/locks", ".shepherd/ledger", "reset.log"];
        let is_other = others.iter().any(|other| below.starts_with(other));
        (!is_other).then_some(below)
    }

    fn handle_call(&mut self, step: &TracedCall) {
        match step.name.as_str() {
            "openat" if step.text.contains("O_TMPFILE") => self.touch(&step.path(0)),
            "openat" | "openat2" if step.text.contains("O_CREAT") => self.create_file(step.path(0)),
            "write" | "pwrite64" | "writev" | "ftruncate" | "fchmod" | "fchown" | "fsetxattr"
            | "fremovexattr" => self.write(step),
            "mkdirat" => self.change_name(step.path(0)),
            "linkat" => self.link(step),
            "renameat" | "renameat2" => self.rename(step),
            "unlink" | "unlinkat" => self.remove(&step.path(0)),
            "fsync" | "fdatasync" => drop(self.unsynced.remove(&step.open[0])),
            // A baseline version whose time is lost looks older; the record that names it protects it.
            // The time of a lock is that of a check, which is then made once more.
            "utimensat" => assert!(
                Path::new(&step.open[0]).starts_with(&self.scene.fleet.archive),
                "classify this call here: {}",
                step.text
            ),
            // All files of the scene are on one file system.
            "syncfs" => self.unsynced.clear(),
            name => {
                let ours = |path: &&String| Path::new(path).starts_with(&self.scene.fleet.root);
                let paths = step.open.iter().chain(&step.words);
                let tells =
                    !strace::changes(name, &step.text) || !paths.clone().any(|it| ours(&it));
                // These take and give locks, or are only hints.
                let harmless = ["fcntl", "flock", "sync_file_range"].contains(&name);
                assert!(tells || harmless, "classify this call here: {}", step.text);
            }
        }
    }

    /// Records a violation if `what` is not on the disk yet.
    fn require_synced(&mut self, row: FlushRule, what: &str) {
        *self.seen.entry(row).or_default() += 1;
        if self.unsynced.contains(what) {
            let relative = Path::new(what)
                .strip_prefix(&self.scene.fleet.root)
                .unwrap();
            let name = relative.display().to_string();
            let subject = match name.split_once("/#") {
                Some((directory, _)) => format!("a file in {directory}"),
                None if name.is_empty() => "the archive's parent".to_string(),
                None => name,
            };
            self.breaches.insert(format!("{subject} {row}"));
        }
    }

    /// Records a step in this directory or on this file.
    fn touch(&mut self, path: &str) {
        if self.in_agents(path).is_none() {
            return;
        }
        *self.seen.entry(FlushRule::Names).or_default() += 1;
        let parent = self.scene.fleet.archive.parent().unwrap();
        let promised = |it: &&String| self.in_archive(it).is_some() || Path::new(it) == parent;
        let early: Vec<String> = self.unsynced.iter().filter(promised).cloned().collect();
        early
            .iter()
            .for_each(|what| self.require_synced(FlushRule::Names, what));
    }

    /// Records an open, which creates the file if it does not exist.
    fn create_file(&mut self, path: String) {
        // Locks and `reset.log` are created again where a power cut removes them.
        let own = Path::new(&path).starts_with(&self.scene.fleet.archive);
        let counts = self.in_archive(&path).is_some() || path.ends_with("/ledger.jsonl");
        if !own || counts && self.created.insert(path.clone()) {
            self.change_name(path);
        }
    }

    /// Records a name that was created or removed.
    fn change_name(&mut self, path: String) {
        self.touch(&path);
        self.unsynced.insert(parent(&path).to_string());
    }

    fn write(&mut self, step: &TracedCall) {
        let Some(file) = step.open.first().cloned() else {
            return;
        };
        let has_line = |start: &str| step.words.first().is_some_and(|it| it.starts_with(start));
        let is_mark = has_line("\\n{'swapped'");
        if let (true, Some(agent)) = (is_mark, self.records.get(&file).cloned()) {
            let directory = self
                .scene
                .fleet
                .agent_directory(&agent)
                .display()
                .to_string();
            self.require_synced(FlushRule::Exchange, &directory);
            self.marked.insert(agent);
        }
        let is_scan = has_line("\\n{'screened'");
        if let (true, Some(agent)) = (is_scan, self.records.get(&file).cloned()) {
            let directory = self.scene.fleet.archive.join(agent).display().to_string();
            self.require_synced(FlushRule::ReleasedName, &directory);
            self.screened.insert(file.clone());
        }
        if file.ends_with("/ledger.jsonl") {
            for record in self.screened.clone() {
                self.require_synced(FlushRule::ScanRecord, &record);
            }
        }
        self.check_state_log(&file);
        if file.ends_with("/states.known") {
            // The log may be new.
            self.require_synced(FlushRule::StateLog, parent(&file));
        }
        self.touch(&file);
        self.unsynced.insert(file);
    }

    /// Requires that the log of states is synced before the last known states are written.
    fn check_state_log(&mut self, path: &str) {
        if let Some(stem) = path.strip_suffix("/states.known") {
            self.require_synced(FlushRule::StateLog, &format!("{stem}/states.jsonl"));
        }
    }

    /// Records that a file gets its first or a further name.
    fn link(&mut self, step: &TracedCall) {
        let file = step.path(0);
        let name = step.path(1);
        match self.in_archive(&name) {
            Some(below) if below.starts_with(".shepherd/tx/") => {
                let agent = below.rsplit('/').next().and_then(|it| it.split_once('.'));
                self.records.insert(file, agent.unwrap().0.to_string());
            }
            Some(_) => self.require_synced(FlushRule::Content, &file),
            None => drop(self.staged.insert(name.clone(), file)),
        }
        self.change_name(name);
    }

    fn rename(&mut self, step: &TracedCall) {
        let (from, to) = (step.path(0), step.path(1));
        if to.ends_with("/MEMORY.md") {
            let file = self.staged.get(&from).cloned().expect("a staged file");
            self.require_synced(FlushRule::NewContent, &file);
        }
        self.check_state_log(&to);
        self.change_name(from);
        self.change_name(to);
    }

    fn remove(&mut self, path: &str) {
        if let Some(agent) = self.in_agents(path) {
            assert!(self.marked.contains(agent), "{path} is not marked");
            let records = self.records.clone();
            let own = records.iter().filter(|(_, of)| *of == agent);
            own.for_each(|(record, _)| self.require_synced(FlushRule::Mark, record));
        }
        let below = self.in_archive(path);
        if below.is_some_and(|it| it.contains("/quarantine/")) {
            let ledger = self.scene.fleet.archive.join(".shepherd/ledger.jsonl");
            self.require_synced(FlushRule::QuarantinedName, ledger.to_str().unwrap());
        }
        if let Some(name) = below.and_then(|it| it.strip_prefix(".shepherd/tx/")) {
            let (agent, _) = name.split_once('.').unwrap();
            let directory = self
                .scene
                .fleet
                .agent_directory(agent)
                .display()
                .to_string();
            self.require_synced(FlushRule::Removal, &directory);
            let own = self.scene.fleet.archive.join(".shepherd");
            let ledger = own.join("ledger.jsonl").display().to_string();
            self.require_synced(FlushRule::Removal, &ledger);
            self.require_synced(FlushRule::Removal, own.to_str().unwrap());
        }
        // A record that reappears is settled again, with nothing left to do.
        if below.is_none() {
            self.change_name(path.to_string());
        }
    }
}

/// Asserts that these rows are kept and were checked this often; returns the violations that each
/// left-out flush would cause.
fn assert_flush_order(
    scene: &Scene,
    rows: &[FlushRule],
    flush: &str,
    often: usize,
) -> BTreeSet<String> {
    let output = strace::run_traced(
        &scene.fleet,
        &scene.trace_log,
        &["-y".to_string()],
        RESET_ALL,
    );
    assert_ok(&output);
    let log = fs::read_to_string(&scene.trace_log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let disk = FlushChecker::follow(scene, &lines);
    assert_eq!(disk.breaches, BTreeSet::new());
    for row in rows {
        let seen = disk.seen.get(row).copied().unwrap_or_default();
        assert!(seen >= often, "{row}: checked {seen} times");
    }
    let is_flush = |line: &&&str| line.contains("sync(") || line.contains("syncfs(");
    let flushes = lines.iter().filter(is_flush).count();
    assert!(log.contains(flush), "no {flush} in\n{log}");
    let mut breaches = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        if is_flush(&line) {
            let without = [&lines[..at], &lines[at + 1..]].concat();
            breaches.append(&mut FlushChecker::follow(scene, &without).breaches);
        }
    }
    println!("{flushes} flushes keep their order");
    breaches
}

#[test]
fn reset_flushes_in_documented_order() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    let breaches = assert_flush_order(&scene, &FlushRule::RESET, "fsync(", 1);
    let expected = [
        "a file in agents/scout before a new file takes a memory's place",
        // The last known states.
        "a file in archives/.shepherd before an entry gets its name",
        "a file in archives/.shepherd/baselines before an entry gets its name",
        "a file in archives/.shepherd/baselines before any change in an agent's directory",
        "a file in archives/.shepherd/tx before a displaced file is settled",
        "a file in archives/.shepherd/tx before any change in an agent's directory",
        "a file in archives/scout before an entry gets its name",
        "a file in archives/scout before any change in an agent's directory",
        "agents/scout before the mark that records it",
        "agents/scout before the transaction record is removed",
        "archives before any change in an agent's directory",
        "archives/.shepherd before any change in an agent's directory",
        "archives/.shepherd/baselines before any change in an agent's directory",
        "archives/.shepherd/ledger.jsonl before the transaction record is removed",
        "archives/.shepherd/tx before any change in an agent's directory",
        "archives/scout before any change in an agent's directory",
        "the archive's parent before any change in an agent's directory",
    ];
    let breaches: Vec<&str> = breaches.iter().map(String::as_str).collect();
    assert_eq!(breaches, expected);
}

#[test]
fn fleet_reset_flushes_in_documented_order() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&twelve_agents());
    let breaches = assert_flush_order(&scene, &FlushRule::RESET, "syncfs(", 10);
    // The test of a single agent shows which flush serves which row.
    for row in FlushRule::RESET {
        let row = row.to_string();
        let seen = breaches.iter().any(|breach| breach.ends_with(&row));
        assert!(seen, "no flush is required {row}: {breaches:#?}");
    }
}

#[test]
fn release_flushes_in_documented_order() {
    if !can_trace() {
        return;
    }
    let scene = scene_with("quarantine", "- note\n");
    let breaches = assert_flush_order(&scene, &FlushRule::RELEASE, "fsync(", 1);
    for expected in [
        "archives/scout/quarantine/NAME before an entry gets its name",
        "archives/scout before the record of its scan",
        "a file in archives/.shepherd/tx before the ledger's record",
        "archives/.shepherd/ledger.jsonl before the name in the quarantine is removed",
    ] {
        let is_expected = |breach: &String| match expected.split_once("NAME") {
            Some((start, end)) => breach.starts_with(start) && breach.ends_with(end),
            None => breach == expected,
        };
        assert!(
            breaches.iter().any(is_expected),
            "{expected}: {breaches:#?}"
        );
    }
}

#[test]
fn state_log_is_flushed_before_the_states() {
    if !can_trace() {
        return;
    }
    let drifted = BASELINE.replace("\n---", "\n- be cruel\n---");
    let log = "archives/.shepherd/states.jsonl before the last known states cover it";
    let directory = "archives/.shepherd before the last known states cover it";
    let scene = Scene::new(&[("scout", InitialMemory::file(&drifted))]);
    let breaches = assert_flush_order(&scene, &[FlushRule::StateLog], "fsync(", 1);
    assert!(breaches.contains(log), "{breaches:#?}");
    // With last known states and without a log, the run appends to them and begins a log.
    let scene = Scene::new(&[("scout", InitialMemory::file(&drifted))]);
    let states = scene.fleet.archive.join(".shepherd/states.known");
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(states.parent().unwrap()).unwrap();
    let known = b"\t{\"log\":7,\"sorted\":0}\n";
    fs::write(&states, known).unwrap();
    let breaches = assert_flush_order(&scene, &[FlushRule::StateLog], "fsync(", 1);
    assert!(fs::read(&states).unwrap().starts_with(known));
    for expected in [log, directory] {
        assert!(breaches.contains(expected), "{expected}: {breaches:#?}");
    }
}
