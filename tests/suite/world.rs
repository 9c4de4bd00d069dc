//! An isolated world for each test: a temporary directory with a config, agents'
//! directories and baselines, a clock that the test owns, and an engine on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime};
use memory_shepherd::archive::WrittenEntry;
use memory_shepherd::base::clock::{BootTime, Clock};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::base::moment::Zone;
use memory_shepherd::config::{self, ConfigEnvironment, SftpExtension};
use memory_shepherd::engine::{
    AgentResult, Engine, EngineSetup, LedgerRecord, Observation, Operation, Outcome, Plan,
    RunProgress, RunReport, SavedBaseline, Trigger, UndoMode, UndoTarget,
};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    ByteSink, DirectoryListing, DirectoryObstacles, DirectoryProperties, FileMetadata, Inspector,
    InterruptedRun, MemoryDirectory, MemoryObject, NewMemory, ObjectId, RecoveredRun,
    SettleOutcome, SingleTransport, StagedAttributes, SwapOutcome, Transport, TransportError,
    Transports, UnsyncedObject,
};

use crate::notes_layout::LAYOUTS;
use tempfile::TempDir;

/// The default baseline of an agent.
pub const BASELINE: &str = "# Rules\n\n- be kind\n- be brief\n\n---\n";

/// A clock that only the test moves: `sleep` advances it and yields, after it has run
/// the test's actions for that moment.
pub struct TestClock {
    began: Instant,
    start: DateTime<FixedOffset>,
    elapsed: Mutex<Duration>,
    /// How far the time of day was set back; that of measurements goes on.
    set_back: Mutex<Duration>,
    offset_shift: Mutex<i32>,
    /// The boot of the machine, if it has one, and when it began.
    boot: Mutex<Option<(String, Duration)>>,
    has_summer_time: Mutex<bool>,
    on_sleep: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl TestClock {
    pub fn new() -> Arc<TestClock> {
        Arc::new(TestClock {
            began: Instant::now(),
            start: DateTime::parse_from_rfc3339("2026-03-14T09:00:30+01:00").unwrap(),
            elapsed: Mutex::default(),
            set_back: Mutex::default(),
            offset_shift: Mutex::default(),
            boot: Mutex::default(),
            has_summer_time: Mutex::default(),
            on_sleep: Mutex::default(),
        })
    }

    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock().unwrap() += by;
    }

    /// Sets the time of day back.
    pub fn set_back(&self, by: Duration) {
        *self.set_back.lock().unwrap() += by;
    }

    /// Sets a time of day right that was set back.
    pub fn set_forward(&self, by: Duration) {
        *self.set_back.lock().unwrap() -= by;
    }

    /// Starts the machine.
    pub fn boot(&self, id: &str) {
        let elapsed = *self.elapsed.lock().unwrap();
        *self.boot.lock().unwrap() = Some((id.to_string(), elapsed));
    }

    /// Shifts local time by that many seconds, as summer time does.
    pub fn shift_offset(&self, seconds: i32) {
        *self.offset_shift.lock().unwrap() += seconds;
    }

    /// Puts the clock into a zone with summer time: UTC+1, and UTC+2 from 2026-03-29 to 2026-10-25.
    pub fn set_summer_time(&self) {
        *self.has_summer_time.lock().unwrap() = true;
    }

    /// Runs `act` at every further sleep.
    pub fn on_sleep(&self, act: impl FnMut() + Send + 'static) {
        *self.on_sleep.lock().unwrap() = Some(Box::new(act));
    }
}

/// The same rules as the zone `CET-1CEST,M3.5.0,M10.5.0/3` has in 2026.
fn summer_time_offset(utc: NaiveDateTime) -> FixedOffset {
    let change = |month, day| NaiveDate::from_ymd_opt(2026, month, day)?.and_hms_opt(1, 0, 0);
    let is_summer = change(3, 29).unwrap() <= utc && utc < change(10, 25).unwrap();
    FixedOffset::east_opt(if is_summer { 7200 } else { 3600 }).unwrap()
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let offset = self.start.offset().local_minus_utc() + *self.offset_shift.lock().unwrap();
        let now = self.start + *self.elapsed.lock().unwrap() - *self.set_back.lock().unwrap();
        if *self.has_summer_time.lock().unwrap() {
            return self.zone().at(now);
        }
        now.with_timezone(&FixedOffset::east_opt(offset).unwrap())
    }

    fn zone(&self) -> Zone {
        if *self.has_summer_time.lock().unwrap() {
            return Zone::Changing(summer_time_offset);
        }
        Zone::Fixed(*self.now().offset())
    }

    fn instant(&self) -> Instant {
        self.began + *self.elapsed.lock().unwrap()
    }

    fn boot_time(&self) -> Option<BootTime> {
        let elapsed = *self.elapsed.lock().unwrap();
        let (id, began) = self.boot.lock().unwrap().clone()?;
        let seconds = (elapsed - began).as_secs();
        Some(BootTime { id, seconds })
    }

    fn sleep(&self, duration: Duration) {
        if let Some(act) = self.on_sleep.lock().unwrap().as_mut() {
            act();
        }
        self.advance(duration);
        // A program that another test starts shares all open files until it runs: who waits for them to
        // be closed has to give it time.
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub struct World {
    _dir: TempDir,
    pub root: PathBuf,
    pub clock: Arc<TestClock>,
    general_lines: String,
    agents: BTreeMap<String, String>,
}

impl World {
    /// A world with these agents, each with [`BASELINE`] and an empty directory.
    pub fn new(agents: &[&str]) -> World {
        let dir = crate::directory();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("baselines")).unwrap();
        let mut world = World {
            _dir: dir,
            root,
            clock: TestClock::new(),
            // A slow machine is not a dead host.
            general_lines: "min_baseline_size = 10\nremote_timeout = 600\n".to_string(),
            agents: BTreeMap::new(),
        };
        for agent in agents {
            world.add_agent(agent, "");
            world.set_baseline(agent, BASELINE);
        }
        world
    }

    /// Adds a line to `[general]`, or replaces the one with that key.
    pub fn with_general(mut self, line: &str) -> World {
        let key = line.split_once(" =").map_or("=", |(key, _)| key);
        let others = self
            .general_lines
            .lines()
            .filter(|line| !line.starts_with(key));
        self.general_lines = others
            .chain([line])
            .map(|line| format!("{line}\n"))
            .collect();
        self
    }

    /// Adds an agent with further lines of its section.
    pub fn add_agent(&mut self, agent: &str, lines: &str) {
        fs::create_dir_all(self.agent_directory(agent)).unwrap();
        self.agents.insert(agent.to_string(), lines.to_string());
    }

    /// Removes an agent from the config.
    pub fn without_agent(mut self, agent: &str) -> World {
        self.agents.remove(agent);
        self
    }

    pub fn agent_directory(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent)
    }

    pub fn memory_path(&self, agent: &str) -> PathBuf {
        self.agent_directory(agent).join("MEMORY.md")
    }

    pub fn archive_directory(&self) -> PathBuf {
        self.root.join("archives")
    }

    pub fn set_baseline(&self, agent: &str, text: impl AsRef<[u8]>) {
        fs::write(self.baseline_path(agent), text).unwrap();
    }

    pub fn baseline_path(&self, agent: &str) -> PathBuf {
        self.root.join("baselines").join(format!("{agent}.md"))
    }

    /// Seals all baselines with their current bytes.
    pub fn write_seal(&self) {
        let mut text = String::new();
        for item in fs::read_dir(self.root.join("baselines")).unwrap() {
            let path = item.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".md") {
                let digest = Digest::of(&fs::read(&path).unwrap());
                text.push_str(&format!("{digest}  {name}\n"));
            }
        }
        fs::write(self.root.join("baselines/.checksums"), text).unwrap();
    }

    /// Writes a memory in place, as most agents do.
    pub fn write_memory(&self, agent: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.memory_path(agent), bytes).unwrap();
    }

    /// Writes a memory that consists of the baseline and this scratch.
    pub fn write_scratch(&self, agent: &str, scratch: impl AsRef<[u8]>) {
        let mut bytes = fs::read(self.baseline_path(agent)).unwrap();
        bytes.extend_from_slice(scratch.as_ref());
        self.write_memory(agent, bytes);
    }

    /// Lets a run record the memory as a file, then puts another object in its place.
    pub fn replace_recorded_file(&self, agent: &str, put: impl FnOnce(&Path)) {
        self.write_scratch(agent, "");
        self.reset().assert_outcome(Outcome::Unchanged);
        fs::remove_file(self.memory_path(agent)).unwrap();
        put(&self.memory_path(agent));
    }

    pub fn read_memory(&self, agent: &str) -> Vec<u8> {
        fs::read(self.memory_path(agent)).unwrap()
    }

    /// Returns the bytes of an entry.
    pub fn read_entry(&self, written: &WrittenEntry) -> Vec<u8> {
        fs::read(self.archive_directory().join(&written.path)).unwrap()
    }

    /// Returns the names of an agent's entries, sorted.
    pub fn entry_names(&self, agent: &str) -> Vec<String> {
        sorted_names(&self.archive_directory().join(agent))
    }

    /// Returns the concatenated entries of an agent.
    pub fn all_entry_bytes(&self, agent: &str) -> Vec<u8> {
        let directory = self.archive_directory().join(agent);
        let entries = self.entry_names(agent).into_iter();
        entries
            .flat_map(|name| fs::read(directory.join(name)).unwrap())
            .collect()
    }

    /// Returns the files beside an agent's memory, with the content of directories.
    pub fn leftovers(&self, agent: &str) -> Vec<String> {
        let directory = self.agent_directory(agent);
        let beside = sorted_names(&directory)
            .into_iter()
            .filter(|it| it != "MEMORY.md");
        let mut litter = Vec::new();
        for name in beside {
            let inside = match fs::symlink_metadata(directory.join(&name)) {
                Ok(meta) if meta.is_dir() => sorted_names(&directory.join(&name)),
                _ => Vec::new(),
            };
            match inside.is_empty() {
                true => litter.push(name),
                false => litter.extend(inside.iter().map(|it| format!("{name}/{it}"))),
            }
        }
        litter
    }

    /// Returns the transaction records that are still open.
    pub fn pending_journals(&self) -> Vec<String> {
        sorted_names(&self.archive_directory().join(".shepherd/tx"))
    }

    pub fn config(&self) -> config::Config {
        let (path, env) = self.write_config();
        config::load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Returns the open transaction records without a look at the directories that they
    /// name.
    pub fn unchecked_config(&self) -> config::Config {
        let (path, env) = self.write_config();
        config::parse(&fs::read(&path).unwrap(), &path, &env).unwrap()
    }

    /// Returns the config file and the environment that it is read with.
    fn write_config(&self) -> (PathBuf, ConfigEnvironment) {
        let mut text = format!("[general]\n{}", self.general_lines);
        for (agent, lines) in &self.agents {
            text.push_str(&format!("[{agent}]\n{lines}\n"));
            // An agent with a layout and no baseline is never reset.
            if lines.contains("layout") && !self.baseline_path(agent).exists() {
                continue;
            }
            if !lines.contains("memory_file") && !lines.contains("remote_memory") {
                text.push_str(&format!("memory_file = agents/{agent}/MEMORY.md\n"));
            }
            if !lines.contains("baseline") {
                text.push_str(&format!("baseline = {agent}.md\n"));
            }
        }
        let path = self.root.join("memory-shepherd.conf");
        fs::write(&path, text).unwrap();
        let env = ConfigEnvironment {
            home: Some(self.root.clone()),
            uid: 1000,
            ..bare_environment(&self.root)
        };
        (path, env)
    }

    pub fn disk(&self) -> LocalTransport {
        LocalTransport::new(self.clock.clone())
    }

    pub fn local_transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.disk())
    }

    pub fn engine(&self) -> Engine {
        self.engine_with_transport(self.local_transport())
    }

    pub fn engine_with_transport(&self, transport: Arc<dyn Transport>) -> Engine {
        self.engine_with_clock(self.clock.clone(), transport)
    }

    /// An engine whose archive the members of a group may read.
    pub fn engine_with_archive_group(&self, group: u32) -> Engine {
        self.build_engine(self.clock.clone(), self.local_transport(), Some(group))
    }

    pub fn engine_with_clock(
        &self,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
    ) -> Engine {
        self.build_engine(clock, transport, None)
    }

    fn build_engine(
        &self,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
        archive_group: Option<u32>,
    ) -> Engine {
        self.engine_with_transports(clock, Arc::new(SingleTransport(transport)), archive_group)
    }

    pub fn engine_with_transports(
        &self,
        clock: Arc<dyn Clock>,
        transports: Arc<dyn Transports>,
        archive_group: Option<u32>,
    ) -> Engine {
        engine_with(self.config(), clock, transports, archive_group)
    }

    /// An engine on any config.
    pub fn engine_with_config(&self, config: config::Config) -> Engine {
        engine_with(
            config,
            self.clock.clone(),
            Arc::new(SingleTransport(self.local_transport())),
            None,
        )
    }

    /// An engine on the same files whose clock was never advanced.
    pub fn engine_with_start_clock(&self) -> Engine {
        self.engine_with_clock(TestClock::new(), self.local_transport())
    }

    pub fn observe(&self, agent: &str) -> Observation {
        let engine = self.engine();
        engine.observer().observe(engine.agent(agent).unwrap())
    }

    /// Plans and applies a reset of all agents with a new engine.
    pub fn reset(&self) -> RunOutput {
        self.reset_with_engine(&self.engine())
    }

    pub fn reset_with_engine(&self, engine: &Engine) -> RunOutput {
        let names: Vec<String> = self.agents.keys().cloned().collect();
        apply_plan(engine, &engine.planner().plan_reset(&names, false).unwrap())
    }

    /// Plans and applies an undo with a new engine.
    pub fn undo(&self, agent: &str, mode: UndoMode) -> RunOutput {
        let target = UndoTarget::Agents(vec![agent.to_string()]);
        self.undo_target(&target, mode)
    }

    pub fn redo(&self, agent: &str) -> RunOutput {
        let target = UndoTarget::Redo(vec![agent.to_string()]);
        self.undo_target(&target, UndoMode::Refuse)
    }

    pub fn undo_target(&self, target: &UndoTarget, mode: UndoMode) -> RunOutput {
        let engine = self.engine();
        apply_plan(
            &engine,
            &engine.planner().plan_undo(target, mode, false).unwrap(),
        )
    }

    /// Reads and verifies the ledger.
    pub fn read_records(&self) -> Vec<LedgerRecord> {
        records(&self.engine()).unwrap()
    }

    /// Returns whether every byte of `text` is in the memory, in one entry, or in one
    /// entry with the bytes appended to it.
    pub fn preserves(&self, agent: &str, text: &[u8]) -> bool {
        let found = |bytes: &[u8]| {
            text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
        };
        let directory = self.archive_directory().join(agent);
        fs::read(self.memory_path(agent)).is_ok_and(|memory| found(&memory))
            || self
                .entry_names(agent)
                .iter()
                .any(|name| found(&fs::read(directory.join(name)).unwrap()))
            || self.entry_chains(agent).iter().any(|chain| found(chain))
    }

    /// Returns the entries of each run of an agent, with the bytes appended to them.
    fn entry_chains(&self, agent: &str) -> Vec<Vec<u8>> {
        let mut chains: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for record in self.read_records() {
            let event = record.event;
            // A later record of a run names its entry once more.
            let entry = event
                .change
                .entry
                .iter()
                .filter(|_| event.operation != Operation::Repair);
            let written = entry.chain(&event.change.late_entries);
            for written in written.filter(|_| event.agent == agent) {
                let chain = chains.entry(event.run.clone()).or_default();
                if written.base.is_none() {
                    chain.clear();
                }
                chain.extend(self.read_entry(written));
            }
        }
        chains.into_values().collect()
    }
}

/// The environment of a program that root runs without variables.
pub fn bare_environment(cwd: &Path) -> ConfigEnvironment {
    ConfigEnvironment {
        layouts: LAYOUTS.config_keys(),
        ..ConfigEnvironment::bare(cwd)
    }
}

/// An engine as a command starts it.
pub fn engine_with(
    config: config::Config,
    clock: Arc<dyn Clock>,
    transports: Arc<dyn Transports>,
    archive_group: Option<u32>,
) -> Engine {
    Engine::new(EngineSetup {
        config,
        clock,
        transports,
        user: "tester".to_string(),
        trigger: Trigger::Cli,
        archive_group,
        layouts: LAYOUTS,
    })
}

/// Returns all records of a ledger after verification.
pub fn records(engine: &Engine) -> Result<Vec<LedgerRecord>, Error> {
    let mut records = Vec::new();
    engine
        .ledger()
        .records(None, None)?
        .for_each(&mut |record| {
            records.push(record.clone());
            Ok(())
        })?;
    Ok(records)
}

/// Shape of a key that no service gave out.
pub const KEY: &str = "ghp_R8sK2mVq0ZtYw5LxN3bHc7JdPfGa9Ue1Ti4X";

/// Fails a reset before it changes a memory.
pub fn fail_reset(world: &World) -> RunOutput {
    let transport = InterposingTransport::new(world.disk(), |call| match call {
        TransportCall::Before("stage") => {
            Err(Error::new(ErrorKind::Host, "no space left on device").into())
        }
        _ => Ok(()),
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert!(
        ran.report
            .results
            .iter()
            .all(|it| it.outcome == Outcome::Failed)
    );
    ran
}

/// Returns the names in a directory, sorted; empty where the directory is absent.
pub fn sorted_names(directory: &Path) -> Vec<String> {
    let items = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = items
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn permission_bits(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A run with its messages.
pub struct RunOutput {
    pub report: RunReport,
    pub lines: Vec<String>,
}

impl RunOutput {
    /// Returns the result of the only agent, or of the agent of this name.
    pub fn result_of(&self, agent: &str) -> &AgentResult {
        let mut results = self.report.results.iter();
        results.find(|result| result.agent == agent).unwrap()
    }

    /// Returns the first result and asserts its outcome.
    #[track_caller]
    pub fn assert_outcome(&self, outcome: Outcome) -> &AgentResult {
        let result = &self.report.results[0];
        assert_eq!(result.outcome, outcome, "{:?}\n{:?}", result, self.lines);
        result
    }

    /// Returns the first result and asserts its success.
    #[track_caller]
    pub fn assert_ok(&self) -> &AgentResult {
        let result = self.assert_outcome(Outcome::Ok);
        assert_eq!(result.kind, None, "{result:?}");
        result
    }

    pub fn note(&self) -> &str {
        self.report.results[0].note.as_deref().unwrap_or("")
    }
}

pub fn apply_plan(engine: &Engine, plan: &Plan) -> RunOutput {
    let mut lines = Vec::new();
    let report = engine
        .runs()
        .apply_plan(plan, true, &AtomicBool::new(false), &mut |progress| {
            if let RunProgress::LogLine(line) = progress {
                lines.push(line);
            }
        });
    RunOutput { report, lines }
}

/// A moment of a directory operation: its name, before or after the call. The commit of a staged
/// file is "link", then "swap".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportCall {
    Before(&'static str),
    After(&'static str),
}

type CallHook = Arc<Mutex<dyn FnMut(TransportCall) -> Result<(), TransportError> + Send>>;

/// A transport that reports every moment to a test; the test may then act as an agent,
/// fail the operation, or end the run as a crash would.
pub struct InterposingTransport {
    inner: Arc<dyn Transport>,
    hook: CallHook,
}

fn call_hook(hook: &CallHook, moment: TransportCall) -> Result<(), TransportError> {
    // A hook that ended an earlier run by unwinding may be called again.
    let mut hook = hook.lock().unwrap_or_else(|hook| hook.into_inner());
    hook(moment)
}

impl InterposingTransport {
    pub fn new(
        inner: LocalTransport,
        hook: impl FnMut(TransportCall) -> Result<(), TransportError> + Send + 'static,
    ) -> Arc<InterposingTransport> {
        let hook: CallHook = Arc::new(Mutex::new(hook));
        let link_hook = Arc::clone(&hook);
        let link_hook = move || call_hook(&link_hook, TransportCall::Before("swap"));
        let inner = Arc::new(inner.with_link_hook(Arc::new(link_hook)));
        Arc::new(InterposingTransport { inner, hook })
    }
}

impl Transport for InterposingTransport {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        self.inner.probe(memories)
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        Ok(Box::new(InterposingDirectory {
            inner: self.inner.open_directory(memory)?,
            hook: Arc::clone(&self.hook),
        }))
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        self.inner.list_directory(directory)
    }
}

struct InterposingDirectory {
    inner: Box<dyn MemoryDirectory>,
    hook: CallHook,
}

impl InterposingDirectory {
    fn call_with_hook<T>(
        &self,
        name: &'static str,
        act: impl FnOnce() -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        call_hook(&self.hook, TransportCall::Before(name))?;
        let done = act()?;
        call_hook(&self.hook, TransportCall::After(name))?;
        Ok(done)
    }
}

impl MemoryDirectory for InterposingDirectory {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        self.inner.take_unsynced()
    }

    fn is_at_its_path(&self) -> Result<bool, TransportError> {
        self.inner.is_at_its_path()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        self.call_with_hook("properties", || self.inner.properties())
    }

    fn obstacles(&self) -> Result<DirectoryObstacles, TransportError> {
        self.inner.obstacles()
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        self.call_with_hook("look", || self.inner.stat_memory())
    }

    fn find_similar_name(&self) -> Option<OsString> {
        self.inner.find_similar_name()
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        self.call_with_hook("read", || self.inner.read_memory(sink))
    }

    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        self.call_with_hook("unread", || self.inner.stat_leased_memory())
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        self.call_with_hook("object_id", || self.inner.object_id(name))
    }

    fn claim(&self, run: &str) -> Result<(), TransportError> {
        self.call_with_hook("claim", || self.inner.claim(run))
    }

    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError> {
        self.call_with_hook("stage", || self.inner.stage(run, content, attributes))
    }

    fn name_staged(&self, run: &str) -> Result<(), TransportError> {
        self.call_with_hook("name", || self.inner.name_staged(run))
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        self.call_with_hook("create_directory", || self.inner.create_directory())
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        self.call_with_hook("remove_directory", || self.inner.remove_directory())
    }

    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError> {
        let (before, after) = match new {
            NewMemory::StagedFile { .. } => ("link", "swap"),
            NewMemory::KeptObject(_) | NewMemory::Symlink(_) => ("put_back", "put_back"),
            NewMemory::Nothing => ("take_away", "take_away"),
        };
        call_hook(&self.hook, TransportCall::Before(before))?;
        let swapped = self.inner.commit(run, new)?;
        call_hook(&self.hook, TransportCall::After(after))?;
        Ok(swapped)
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        self.call_with_hook("settle", || {
            self.inner.settle(displaced, &mut |object| {
                self.call_with_hook("inspect", || Ok(inspect(object)?))?;
                Ok(())
            })
        })
    }

    fn next_settle_time(&self) -> Option<Instant> {
        self.inner.next_settle_time()
    }

    fn display_name(&self, displaced: &str) -> String {
        self.inner.display_name(displaced)
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        self.call_with_hook("recover", || self.inner.recover(run))
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        self.inner.has_files_of_run(run)
    }
}

/// Puts a version of a baseline back; none if the file is that version already.
pub fn restore_baseline(
    engine: &Engine,
    name: &str,
    version: &str,
) -> Result<Option<SavedBaseline>, Error> {
    let plan = engine
        .baseline_edits()
        .plan_restore(&[name.to_string()], version)?;
    let file = plan.files.first();
    file.map(|file| engine.baseline_edits().apply_planned_baseline(&plan, file))
        .transpose()
}
