//! A world of its own for each test: a temporary folder with a config, agents'
//! folders and baselines, a clock that the test owns, and an engine on it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::archive::WrittenEntry;
use memory_shepherd::clock::Clock;
use memory_shepherd::config::{self, ConfigEnvironment, SftpExtension};
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{
    AgentResult, Engine, EngineSetup, LedgerRecord, Observation, Operation, Outcome, Plan,
    RunProgress, RunReport, Trigger, UndoMode, UndoTarget,
};
use memory_shepherd::error::Error;
use memory_shepherd::transport::Transports;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    Attributes, ByteSink, FileIdentity, FileMetadata, FileReader, MemoryDirectory, MemoryObject,
    ObjectId, SettleOutcome, SingleTransport, SpecialFile, SwapOutcome, Transport, TransportError,
    UnsyncedObject,
};
use tempfile::TempDir;

/// The baseline of every agent that asks for no other.
pub const BASELINE: &str = "# Rules\n\n- be kind\n- be brief\n\n---\n";

/// A clock that only moves when told: `sleep` advances it and yields, after
/// running what the test wants to happen meanwhile.
pub struct TestClock {
    began: Instant,
    start: DateTime<FixedOffset>,
    passed: Mutex<Duration>,
    shift: Mutex<i32>,
    meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl TestClock {
    pub fn new() -> Arc<TestClock> {
        Arc::new(TestClock {
            began: Instant::now(),
            start: DateTime::parse_from_rfc3339("2026-03-14T09:00:30+01:00").unwrap(),
            passed: Mutex::default(),
            shift: Mutex::default(),
            meanwhile: Mutex::default(),
        })
    }

    pub fn advance(&self, by: Duration) {
        *self.passed.lock().unwrap() += by;
    }

    /// Moves local time by so many seconds, as summer time does.
    pub fn shift(&self, seconds: i32) {
        *self.shift.lock().unwrap() += seconds;
    }

    /// Runs `act` at every further sleep.
    pub fn meanwhile(&self, act: impl FnMut() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let offset = self.start.offset().local_minus_utc() + *self.shift.lock().unwrap();
        let now = self.start + *self.passed.lock().unwrap();
        now.with_timezone(&FixedOffset::east_opt(offset).unwrap())
    }

    fn instant(&self) -> Instant {
        self.began + *self.passed.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) {
        if let Some(act) = self.meanwhile.lock().unwrap().as_mut() {
            act();
        }
        self.advance(duration);
        std::thread::yield_now();
    }
}

pub struct World {
    _dir: TempDir,
    pub root: PathBuf,
    pub clock: Arc<TestClock>,
    general: String,
    agents: BTreeMap<String, String>,
}

impl World {
    /// A world with these agents, each with [`BASELINE`] and an empty folder.
    pub fn new(agents: &[&str]) -> World {
        let dir = crate::folder();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("baselines")).unwrap();
        let mut world = World {
            _dir: dir,
            root,
            clock: TestClock::new(),
            // A slow machine is no dead host.
            general: "min_baseline_size = 10\nremote_timeout = 600\n".to_string(),
            agents: BTreeMap::new(),
        };
        for agent in agents {
            world.add(agent, "");
            world.set_baseline(agent, BASELINE);
        }
        world
    }

    /// Adds a line to `[general]`, in the place of one with that key.
    pub fn general(mut self, line: &str) -> World {
        let key = line.split_once(" =").map_or("=", |(key, _)| key);
        let others = self.general.lines().filter(|line| !line.starts_with(key));
        self.general = others
            .chain([line])
            .map(|line| format!("{line}\n"))
            .collect();
        self
    }

    /// Adds an agent with further lines of its section.
    pub fn add(&mut self, agent: &str, lines: &str) {
        fs::create_dir_all(self.folder(agent)).unwrap();
        self.agents.insert(agent.to_string(), lines.to_string());
    }

    /// Drops an agent from the config.
    pub fn without(mut self, agent: &str) -> World {
        self.agents.remove(agent);
        self
    }

    pub fn folder(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent)
    }

    pub fn memory(&self, agent: &str) -> PathBuf {
        self.folder(agent).join("MEMORY.md")
    }

    pub fn archive(&self) -> PathBuf {
        self.root.join("archives")
    }

    pub fn set_baseline(&self, agent: &str, text: impl AsRef<[u8]>) {
        fs::write(self.baseline(agent), text).unwrap();
    }

    pub fn baseline(&self, agent: &str) -> PathBuf {
        self.root.join("baselines").join(format!("{agent}.md"))
    }

    /// Writes a seal over all baselines as they are now.
    pub fn seal(&self) {
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
    pub fn write(&self, agent: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.memory(agent), bytes).unwrap();
    }

    /// Writes a memory that is the baseline and this scratch.
    pub fn write_scratch(&self, agent: &str, scratch: impl AsRef<[u8]>) {
        let mut bytes = fs::read(self.baseline(agent)).unwrap();
        bytes.extend_from_slice(scratch.as_ref());
        self.write(agent, bytes);
    }

    pub fn read(&self, agent: &str) -> Vec<u8> {
        fs::read(self.memory(agent)).unwrap()
    }

    /// The bytes of an entry.
    pub fn entry(&self, written: &WrittenEntry) -> Vec<u8> {
        fs::read(self.archive().join(&written.path)).unwrap()
    }

    /// The names of an agent's entries, sorted.
    pub fn entries(&self, agent: &str) -> Vec<String> {
        names(&self.archive().join(agent))
    }

    /// All entries of an agent, one after the other.
    pub fn archived(&self, agent: &str) -> Vec<u8> {
        let folder = self.archive().join(agent);
        let entries = self.entries(agent).into_iter();
        entries
            .flat_map(|name| fs::read(folder.join(name)).unwrap())
            .collect()
    }

    /// What stands beside an agent's memory; of a folder, what is in it.
    pub fn litter(&self, agent: &str) -> Vec<String> {
        let folder = self.folder(agent);
        let beside = names(&folder).into_iter().filter(|it| it != "MEMORY.md");
        let mut litter = Vec::new();
        for name in beside {
            let inside = match fs::symlink_metadata(folder.join(&name)) {
                Ok(meta) if meta.is_dir() => names(&folder.join(&name)),
                _ => Vec::new(),
            };
            match inside.is_empty() {
                true => litter.push(name),
                false => litter.extend(inside.iter().map(|it| format!("{name}/{it}"))),
            }
        }
        litter
    }

    /// Transaction records that are not over.
    pub fn pending(&self) -> Vec<String> {
        names(&self.archive().join(".shepherd/tx"))
    }

    pub fn config(&self) -> config::Config {
        let (path, env) = self.write_config();
        config::load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The same without a look at the directories that it names.
    pub fn unchecked_config(&self) -> config::Config {
        let (path, env) = self.write_config();
        config::parse(&fs::read(&path).unwrap(), &path, &env).unwrap()
    }

    /// The config file, and what it is read with.
    fn write_config(&self) -> (PathBuf, ConfigEnvironment) {
        let mut text = format!("[general]\n{}", self.general);
        for (agent, lines) in &self.agents {
            text.push_str(&format!("[{agent}]\n{lines}\n"));
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
            cwd: self.root.clone(),
            home: Some(self.root.clone()),
            xdg_config_home: None,
            xdg_state_home: None,
            config_path_variable: None,
            uid: 1000,
        };
        (path, env)
    }

    pub fn local(&self) -> Arc<dyn Transport> {
        Arc::new(LocalTransport::new(self.clock.clone()))
    }

    pub fn engine(&self) -> Engine {
        self.engine_on(self.local())
    }

    pub fn engine_on(&self, transport: Arc<dyn Transport>) -> Engine {
        self.engine_of(self.clock.clone(), transport)
    }

    /// An engine whose archive the members of a group may read.
    pub fn engine_for_group(&self, group: u32) -> Engine {
        self.engine_with(self.clock.clone(), self.local(), Some(group))
    }

    pub fn engine_of(&self, clock: Arc<dyn Clock>, transport: Arc<dyn Transport>) -> Engine {
        self.engine_with(clock, transport, None)
    }

    fn engine_with(
        &self,
        clock: Arc<dyn Clock>,
        transport: Arc<dyn Transport>,
        archive_group: Option<u32>,
    ) -> Engine {
        self.engine_through(clock, Arc::new(SingleTransport(transport)), archive_group)
    }

    pub fn engine_through(
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
            Arc::new(SingleTransport(self.local())),
            None,
        )
    }

    /// An engine on the same files whose clock was never advanced.
    pub fn with_clock_at_start(&self) -> Engine {
        self.engine_of(TestClock::new(), self.local())
    }

    pub fn observe(&self, agent: &str) -> Observation {
        let engine = self.engine();
        engine.observe(engine.agent(agent).unwrap())
    }

    /// Plans and applies a reset of all agents by a fresh engine.
    pub fn reset(&self) -> Ran {
        self.reset_by(&self.engine())
    }

    pub fn reset_by(&self, engine: &Engine) -> Ran {
        let names: Vec<String> = self.agents.keys().cloned().collect();
        apply(engine, &engine.plan_reset(&names, false).unwrap())
    }

    /// Plans and applies an undo by a fresh engine.
    pub fn undo(&self, agent: &str, mode: UndoMode) -> Ran {
        let target = UndoTarget::Agents(vec![agent.to_string()]);
        self.undo_of(&target, mode)
    }

    pub fn redo(&self, agent: &str) -> Ran {
        let target = UndoTarget::Redo(vec![agent.to_string()]);
        self.undo_of(&target, UndoMode::Refuse)
    }

    pub fn undo_of(&self, target: &UndoTarget, mode: UndoMode) -> Ran {
        let engine = self.engine();
        apply(&engine, &engine.plan_undo(target, mode, false).unwrap())
    }

    /// The ledger, read anew and verified.
    pub fn records(&self) -> Vec<LedgerRecord> {
        records(&self.engine()).unwrap()
    }

    /// Whether every byte of `text` is in the memory, in one entry, or in one with what
    /// was appended behind it.
    pub fn holds(&self, agent: &str, text: &[u8]) -> bool {
        let found = |bytes: &[u8]| {
            text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
        };
        let folder = self.archive().join(agent);
        fs::read(self.memory(agent)).is_ok_and(|memory| found(&memory))
            || self
                .entries(agent)
                .iter()
                .any(|name| found(&fs::read(folder.join(name)).unwrap()))
            || self.chains(agent).iter().any(|chain| found(chain))
    }

    /// The entries of each run of an agent, with what was appended behind them.
    fn chains(&self, agent: &str) -> Vec<Vec<u8>> {
        let mut chains: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for record in self.records() {
            let event = record.event;
            // What was recorded later of a run names its entry once more.
            let entry = event
                .entry
                .iter()
                .filter(|_| event.operation != Operation::Repair);
            let written = entry.chain(&event.late_entries);
            for written in written.filter(|_| event.agent == agent) {
                let chain = chains.entry(event.run.clone()).or_default();
                if written.base.is_none() {
                    chain.clear();
                }
                chain.extend(self.entry(written));
            }
        }
        chains.into_values().collect()
    }
}

fn engine_with(
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
    })
}

/// All records of a ledger, which are verified.
pub fn records(engine: &Engine) -> Result<Vec<LedgerRecord>, Error> {
    let mut records = Vec::new();
    engine.records(None, None)?.for_each(&mut |record| {
        records.push(record.clone());
        Ok(())
    })?;
    Ok(records)
}

/// The names in a folder, sorted; none where there is no folder.
pub fn names(folder: &Path) -> Vec<String> {
    let items = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = items
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A run, with what it said.
pub struct Ran {
    pub report: RunReport,
    pub lines: Vec<String>,
}

impl Ran {
    /// The result of the only agent, or of the one of this name.
    pub fn of(&self, agent: &str) -> &AgentResult {
        let mut results = self.report.results.iter();
        results.find(|result| result.agent == agent).unwrap()
    }

    /// The first result, which must have ended so.
    #[track_caller]
    pub fn ended(&self, outcome: Outcome) -> &AgentResult {
        let result = &self.report.results[0];
        assert_eq!(result.outcome, outcome, "{:?}\n{:?}", result, self.lines);
        result
    }

    /// The first result, which must be a success.
    #[track_caller]
    pub fn ok(&self) -> &AgentResult {
        let result = self.ended(Outcome::Ok);
        assert_eq!(result.kind, None, "{result:?}");
        result
    }

    pub fn note(&self) -> &str {
        self.report.results[0].note.as_deref().unwrap_or("")
    }
}

pub fn apply(engine: &Engine, plan: &Plan) -> Ran {
    let mut lines = Vec::new();
    let report = engine.apply_plan(plan, true, &AtomicBool::new(false), &mut |progress| {
        if let RunProgress::LogLine(line) = progress {
            lines.push(line);
        }
    });
    Ran { report, lines }
}

/// A moment of an operation on a folder: its method's name, before or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before(&'static str),
    After(&'static str),
}

type Interposed = Arc<Mutex<dyn FnMut(Moment) -> Result<(), TransportError> + Send>>;

/// A transport that tells a test about every moment; the test may act as an
/// agent then, fail the operation, or end the run as a crash would.
pub struct Interposer {
    inner: Arc<dyn Transport>,
    hook: Interposed,
}

impl Interposer {
    pub fn new(
        inner: Arc<dyn Transport>,
        hook: impl FnMut(Moment) -> Result<(), TransportError> + Send + 'static,
    ) -> Arc<Interposer> {
        let hook = Arc::new(Mutex::new(hook));
        Arc::new(Interposer { inner, hook })
    }
}

impl Transport for Interposer {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        self.inner.probe(memories)
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        Ok(Box::new(InterposedFolder {
            inner: self.inner.open_directory(memory)?,
            hook: Arc::clone(&self.hook),
        }))
    }
}

struct InterposedFolder {
    inner: Box<dyn MemoryDirectory>,
    hook: Interposed,
}

impl InterposedFolder {
    fn wrap<T>(
        &self,
        name: &'static str,
        act: impl FnOnce() -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        let tell = |moment| {
            // A hook that ended an earlier run by unwinding may be called again.
            let mut hook = self.hook.lock().unwrap_or_else(|hook| hook.into_inner());
            hook(moment)
        };
        tell(Moment::Before(name))?;
        let done = act()?;
        tell(Moment::After(name))?;
        Ok(done)
    }
}

impl MemoryDirectory for InterposedFolder {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        self.inner.take_unsynced()
    }

    fn directory_id(&self) -> Result<Option<u64>, TransportError> {
        self.wrap("identity", || self.inner.directory_id())
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        self.wrap("look", || self.inner.stat_memory())
    }

    fn missing_extensions(&self) -> Vec<SftpExtension> {
        self.inner.missing_extensions()
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        self.wrap("read", || self.inner.read_memory(sink))
    }

    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        self.wrap("unread", || self.inner.stat_leased_memory())
    }

    fn inherited_attributes(&self, staged: &str) -> Result<Attributes, TransportError> {
        self.wrap("inherited", || self.inner.inherited_attributes(staged))
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<FileIdentity, TransportError> {
        self.wrap("stage", || self.inner.stage(name, content, attributes))
    }

    fn link_staged(&self, staged: &str) -> Result<(), TransportError> {
        self.inner.link_staged(staged)
    }

    fn remove_unfinished_staging(&self, name: &str) -> Result<(), TransportError> {
        self.wrap("remove_unfinished", || {
            self.inner.remove_unfinished_staging(name)
        })
    }

    fn swap(&self, staged: &str, new: FileIdentity) -> Result<SwapOutcome, TransportError> {
        self.wrap("swap", || self.inner.swap(staged, new))
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        self.wrap("object_id", || self.inner.object_id(name))
    }

    fn restore_object(
        &self,
        kept: &str,
        id: Option<ObjectId>,
    ) -> Result<SwapOutcome, TransportError> {
        self.wrap("put_back", || self.inner.restore_object(kept, id))
    }

    fn write_in_place(
        &self,
        staged: &str,
        new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        self.wrap("write_in_place", || self.inner.write_in_place(staged, new))
    }

    fn move_memory_aside(&self, aside: &str) -> Result<(), TransportError> {
        self.wrap("take_away", || self.inner.move_memory_aside(aside))
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError> {
        self.wrap("settle", || {
            self.inner.settle(displaced, &mut |read| {
                self.wrap("inspect", || Ok(inspect(read)?))?;
                Ok(())
            })
        })
    }

    fn remove_special_file(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        self.wrap("remove_odd", || self.inner.remove_special_file(name, odd))
    }

    fn next_settle_time(&self) -> Option<Instant> {
        self.inner.next_settle_time()
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        self.wrap("displaced_names", || self.inner.displaced_names(staged))
    }

    fn is_half_written(&self, staged: &str) -> Result<bool, TransportError> {
        self.inner.is_half_written(staged)
    }

    fn exists(&self, name: &str) -> Result<bool, TransportError> {
        self.wrap("stands", || self.inner.exists(name))
    }

    fn find_content(
        &self,
        name: &str,
        content: Digest,
    ) -> Result<Option<FileIdentity>, TransportError> {
        self.wrap("holds", || self.inner.find_content(name, content))
    }

    fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        self.wrap("remove", || self.inner.remove_name(name))
    }
}
