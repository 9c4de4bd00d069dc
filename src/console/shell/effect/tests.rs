//! Tests of the effect runner: no request of the main thread waits for a host. Also of its parts:
//! the cache of details, facts and texts of an agent, config reload, shutdown, background loads.

mod baseline_changes;
mod memory;
mod schedule;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::archive::index::CandidateOrder;
use crate::base::clock::{Clock, SystemClock};
use crate::base::digest::Digest;
use crate::base::error::ErrorKind;
use crate::config::{self, Config, ConfigErrors, LayoutKeys, SshHost};
use crate::console::agent_row::known_scratch_lines;
use crate::console::initial_model;
use crate::console::model::Moment;
use crate::console::screens::archives::state::ArchiveSearchRequest;
use crate::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselineChangePlan, BaselinePlanRequest,
};
use crate::console::screens::baselines::state::{ComparedVersion, ComparisonRequest};
use crate::console::update::update;
use crate::engine::{
    BaselineAction, BaselineFile, BaselinePlan, EngineSetup, PlannedBaseline, Protection,
    SealMatch, SealScope, State, TextOrigin, TextReplacement, Trigger,
};
use crate::fake_transport::FakeTransport;
use crate::temporary_root::temporary_root;
use crate::transport::{
    DirectoryListing, MemoryDirectory, MemoryObject, SpecialFile, Transport, TransportError,
    Transports,
};
use crate::unattended::schedule::{ManagerAccess, UnitScope};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const BASELINE: &str = "# Rules\n\n- be kind\n\n---\n";

/// A fake for this machine, and one for every host, which answers nothing until the sender of
/// the receiver is dropped.
struct LocalAndSilentHosts(FakeTransport, FakeTransport, Receiver<()>);

impl Transports for LocalAndSilentHosts {
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport> {
        match host {
            None => Arc::new(self.0.clone()),
            Some(_) => Arc::new(SilentTransport(self.1.clone(), self.2.clone())),
        }
    }
}

struct SilentTransport(FakeTransport, Receiver<()>);

impl Transport for SilentTransport {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        let _ = self.1.recv();
        self.0.probe(memories)
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        let _ = self.1.recv();
        self.0.open_directory(memory)
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        let _ = self.1.recv();
        self.0.list_directory(directory)
    }
}

/// Returns a fake with the memory of an agent.
fn fake_with_agent() -> FakeTransport {
    let fake = FakeTransport::new(Arc::new(SystemClock));
    for directory in ["/", "/agent", "/agent/numbers", "/agent/others"] {
        fake.make_directory(directory, 1000, 1000, 0o755);
    }
    fake.write_file("/agent/MEMORY.md", BASELINE.as_bytes());
    fake
}

/// Returns an engine whose hosts answer nothing until the sender of `released` is dropped.
fn engine_of(config: Config, local: FakeTransport, released: Receiver<()>) -> Engine {
    Engine::new(EngineSetup {
        config,
        clock: Arc::new(SystemClock),
        transports: Arc::new(LocalAndSilentHosts(local, fake_with_agent(), released)),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Default::default(),
    })
}

fn start_runner(
    root: &Path,
    engine: Engine,
    factory: EngineFactory,
) -> (EffectRunner, Receiver<Msg>) {
    let (events, prompt_events) = unbounded();
    let broker = PromptBroker::new(PathBuf::new(), Vec::new(), events);
    let user_files = UserFiles {
        preferences: None,
        view_state_file: None,
    };
    let engine = Arc::new(engine);
    let loader = ObservationLoader::start_loading(&engine);
    EffectRunner::start(
        (engine, loader),
        (broker, prompt_events),
        test_env(root),
        factory,
        None,
        user_files,
        schedule_access(root),
    )
    .unwrap()
}

/// Access to no service manager: the directory of its units is empty.
fn schedule_access(root: &Path) -> ScheduleAccess {
    let managers = ManagerAccess::new(&test_env(root), None).with_program(
        vec![(UnitScope::User, root.join("units"))],
        &root.join("systemctl"),
        &root.join("running"),
    );
    ScheduleAccess {
        managers,
        program: root.join("memory-shepherd"),
    }
}

#[test]
fn refused_thread_answers_plan_with_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("fleet.conf");
    std::fs::write(&path, "").unwrap();
    let config = config::load(&path, &test_env(root.path())).unwrap();
    let (_release, released) = bounded::<()>(0);
    let engine = engine_of(config, fake_with_agent(), released);
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(root.path(), engine, factory);
    let jobs = runner.workers.jobs.clone();
    jobs.refuse_threads(JobClass::Plan, || {
        runner.execute(Effect::MakePlan(7, PlanRequest::Reset(Vec::new()), false));
    });
    let answer = std::iter::from_fn(|| inbox.recv_timeout(WAIT_TIMEOUT).ok())
        .find(|msg| matches!(msg, Msg::PlanMade(..)))
        .unwrap();
    assert!(
        matches!(&answer, Msg::PlanMade(7, Err(error)) if error.to_string().starts_with("cannot start a thread: ")),
        "{answer:?}"
    );
}

fn test_env(root: &Path) -> ConfigEnvironment {
    ConfigEnvironment {
        uid: 1000,
        layouts: vec![LayoutKeys {
            name: "numbers",
            keys: &[],
        }],
        ..ConfigEnvironment::bare(root)
    }
}

#[test]
fn silent_host_does_not_delay_other_texts_or_plans() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    std::fs::create_dir(root.join("baselines")).unwrap();
    std::fs::write(root.join("baselines/a.md"), BASELINE).unwrap();
    let path = root.join("fleet.conf");
    std::fs::write(
        &path,
        "[general]\nmin_baseline_size = 10\n\
         [here]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n\
         [there]\nremote_host = box\nremote_memory = /agent/MEMORY.md\nbaseline = a.md\n",
    )
    .unwrap();
    let config = config::load(&path, &test_env(root)).unwrap();
    let (release, released) = bounded::<()>(0);
    let engine = engine_of(config, fake_with_agent(), released);
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(root, engine, factory);
    let reset = |name: &str| PlanRequest::Reset(vec![name.to_string()]);
    let wait_for = |subject: &str, is_expected: &dyn Fn(&Msg) -> bool| loop {
        let msg = inbox
            .recv_timeout(WAIT_TIMEOUT)
            .unwrap_or_else(|_| panic!("no message: {subject}"));
        if is_expected(&msg) {
            return;
        }
    };
    // Each of these would hang if it waited for the host.
    for number in 0..3 {
        runner.execute(Effect::PrepareTexts("there".to_string()));
        runner.execute(Effect::MakePlan(number, reset("there"), false));
        runner.execute(Effect::ReadAgents(vec!["there".to_string()]));
    }
    runner.execute(Effect::PrepareTexts("here".to_string()));
    wait_for(
        "text of the local agent",
        &|msg| matches!(msg, Msg::TextsPrepared(texts) if texts.agent == "here"),
    );
    runner.execute(Effect::MakePlan(7, reset("here"), false));
    wait_for("plan of the local agent", &|msg| {
        matches!(msg, Msg::PlanMade(7, Ok(_)))
    });
    runner.execute(Effect::LoadHistory("here".to_string()));
    runner.execute(Effect::PrepareRunDiff("here".to_string(), 1));
    wait_for(
        "history",
        &|msg| matches!(msg, Msg::HistoryLoaded(name, Ok(past)) if name == "here" && past.is_empty()),
    );
    wait_for(
        "diff of a record",
        &|msg| matches!(msg, Msg::RunDiffPrepared(name, 1, Err(why)) if name == "here" && why.contains("no record")),
    );
    // The memory has a heading.
    runner.execute(Effect::PrepareTexts("here".to_string()));
    wait_for(
        "syntax tones",
        &|msg| matches!(msg, Msg::TonesPrepared(name, _, tones) if name == "here" && tones.contains_key(&1)),
    );
    runner.execute(Effect::LoadLog);
    wait_for("log", &|msg| matches!(msg, Msg::LogLoaded(Ok(_))));
    drop(release);
    wait_for(
        "text of the remote agent",
        &|msg| matches!(msg, Msg::TextsPrepared(texts) if texts.agent == "there"),
    );
    assert!(runner.shut_down(inbox, None, |_, _| unreachable!("there is no run")));
}

#[test]
fn detail_cache_keeps_the_newest_details() {
    let mut cache = agent_texts::DetailCache::default();
    let size = 1 << 20;
    for number in 0..6 {
        cache.insert(agent_detail(&format!("agent-{number}"), size));
    }
    cache.insert(agent_detail("agent-3", size));
    let kept = |name: &str| cache.get(name).is_some();
    assert!(!kept("agent-0") && !kept("agent-1"));
    assert!(kept("agent-3") && kept("agent-5"));
    // A detail that is too large by itself is not kept and displaces no other.
    cache.insert(agent_detail("agent-9", 5 * size));
    assert!(cache.get("agent-9").is_none());
    assert!(cache.get("agent-3").is_some());
}

fn agent_detail(name: &str, size: usize) -> crate::engine::AgentDetail {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("fleet.conf");
    let text = format!("[{name}]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n");
    std::fs::write(&path, text).unwrap();
    let config = config::load(&path, &test_env(root.path())).unwrap();
    let engine = engine_of(config, fake_with_agent(), bounded(0).1);
    let mut detail = engine.observer().read_detail(engine.agent(name).unwrap());
    detail.memory_prefix = vec![b'x'; size];
    detail
}

/// Returns an engine of agent `a` with this memory, and of agent `b`.
fn engine_with_memory(root: &Path, memory: &str) -> Engine {
    let local = fake_with_agent();
    local.write_file("/agent/MEMORY.md", memory.as_bytes());
    engine_with_transport(root, local)
}

fn engine_with_transport(root: &Path, local: FakeTransport) -> Engine {
    std::fs::write(root.join("a.md"), BASELINE).unwrap();
    let path = root.join("fleet.conf");
    let text = "[general]\nbaseline_dir = .\nmin_baseline_size = 10\n\
                [a]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n\
                [b]\nmemory_file = /other/MEMORY.md\nbaseline = a.md\n";
    std::fs::write(&path, text).unwrap();
    let config = config::load(&path, &test_env(root)).unwrap();
    engine_of(config, local, bounded(0).1)
}

/// Returns the text of a fact of agent `a`.
fn fact_text(engine: &Engine, label: &str) -> String {
    let agent = engine.agent("a").unwrap();
    let detail = engine.observer().read_detail(agent);
    let facts = facts::agent_facts(engine, agent, &detail.observation, &detail);
    let fact = facts
        .into_iter()
        .find(|(it, line)| *it == label && !line.bytes.is_empty());
    String::from_utf8(fact.unwrap().1.bytes).unwrap()
}

#[test]
fn facts_say_how_plan_is_confirmed() {
    for (memory, expected) in [
        (BASELINE.to_string(), "none: one key confirms"),
        (format!("{BASELINE}- a note\n"), "none: one key confirms"),
        (
            BASELINE.replace("kind", "quick"),
            "none; typed confirmation because the rules were edited",
        ),
        (
            "no separator\n".to_string(),
            "none; typed confirmation because the rules are not intact",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        let engine = engine_with_memory(root.path(), &memory);
        let fact = fact_text(&engine, "protection");
        assert!(fact.starts_with(expected), "{memory}: {fact}");
    }
}

#[test]
fn facts_of_special_file_require_typing() {
    let root = tempfile::tempdir().unwrap();
    let local = fake_with_agent();
    let engine = engine_with_transport(root.path(), local.clone());
    // Only where a run found a file may something else be displaced.
    let plan = engine
        .planner()
        .plan_reset(&["a".to_string()], false)
        .unwrap();
    engine
        .runs()
        .apply_plan(&plan, true, &AtomicBool::new(false), &mut |_| {});
    local.put_special_file("/agent/MEMORY.md", SpecialFile::Fifo);
    let fact = fact_text(&engine, "protection");
    assert!(fact.contains("typed confirmation"), "{fact}");
}

#[test]
fn facts_name_commands_instead_of_keys() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    let agent = engine.agent("a").unwrap();
    let mut detail = engine.observer().read_detail(agent);
    detail.observation.protection = Protection::ReadOnly;
    let facts = facts::agent_facts(&engine, agent, &detail.observation, &detail);
    let (_, line) = facts
        .iter()
        .find(|(label, _)| *label == "protection")
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&line.bytes),
        "readonly: no reset before you unlock it; a plan of it names the key"
    );
}

#[test]
fn facts_without_a_ledger_are_unknown() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    let agent = engine.agent("a").unwrap();
    let mut detail = engine.observer().read_detail(agent);
    detail.observation.ledger_error = Some("no archive is there".to_string());
    let facts = facts::agent_facts(&engine, agent, &detail.observation, &detail);
    for (label, expected) in [
        ("reset", "refused: the ledger cannot be read"),
        ("last run", "unknown"),
    ] {
        let (_, line) = facts.iter().find(|(it, _)| *it == label).unwrap();
        assert_eq!(String::from_utf8_lossy(&line.bytes), expected);
    }
}

#[test]
fn other_line_ends_are_noted_and_no_drift() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), &BASELINE.replace('\n', "\r\n"));
    let detail = engine.observer().read_detail(engine.agent("a").unwrap());
    assert_eq!(detail.observation.state, State::Clean);
    let diff = text::prepare_diff(&detail, None).lines;
    for shown in [
        detail.observation.reason.clone(),
        fact_text(&engine, "above it"),
        String::from_utf8_lossy(&diff[1].bytes).into_owned(),
    ] {
        assert!(shown.contains("CR LF"), "{shown}");
    }
    assert!(!diff.iter().any(|line| line.kind.is_changed()));
}

#[test]
fn missing_baseline_leaves_scratch_unknown() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    std::fs::remove_file(root.path().join("a.md")).unwrap();
    let detail = engine.observer().read_detail(engine.agent("a").unwrap());
    let scratch = text::prepare_scratch(&detail);
    for shown in [
        fact_text(&engine, "scratch"),
        fact_text(&engine, "separator"),
        summarize_findings(&detail),
        String::from_utf8(scratch.lines[0].bytes.clone()).unwrap(),
    ] {
        let shown = shown.to_lowercase();
        assert!(shown.contains("without the baseline"), "{shown}");
        assert!(!shown.contains("no separator"), "{shown}");
    }
    assert_eq!(known_scratch_lines(&detail.observation), None);
}

#[test]
fn missing_baseline_is_not_edited() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    assert!(handoff::prepare_edit(&engine, "a").is_ok());
    std::fs::remove_file(root.path().join("a.md")).unwrap();
    let error = handoff::prepare_edit(&engine, "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let agent = engine.agent("a").unwrap();
    let path = engine.config().baseline_path(agent).unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "edit opens existing baselines only; the baseline {} is missing",
            path.display()
        )
    );
}

#[test]
fn titles_and_patch_name_the_compared_version() {
    let root = tempfile::tempdir().unwrap();
    let local = fake_with_agent();
    local.write_file(
        "/agent/MEMORY.md",
        format!("{BASELINE}- a note\n").as_bytes(),
    );
    let engine = Arc::new(engine_with_transport(root.path(), local.clone()));
    let agent = engine.agent("a").unwrap();
    let title = || facts::diff_titles(agent, &engine.observer().read_detail(agent))[0].clone();
    assert_eq!(title(), "baseline a.md (above ---)");
    let plan = engine
        .planner()
        .plan_reset(&["a".to_string()], false)
        .unwrap();
    engine
        .runs()
        .apply_plan(&plan, true, &AtomicBool::new(false), &mut |_| {});
    std::fs::write(root.path().join("a.md"), BASELINE.replace("kind", "brief")).unwrap();
    // Behind: the rules that the memory has are the old side.
    assert_eq!(title(), "memory /agent/MEMORY.md (above ---)");
    let patch = TextPreparer::new(&engine).make_patch("a").unwrap();
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.starts_with("--- /agent/MEMORY.md\n+++ /"), "{patch}");
    assert!(
        patch.contains("-- be kind\n") && patch.contains("+- be brief\n"),
        "{patch}"
    );
    std::fs::write(root.path().join("a.md"), "tiny").unwrap();
    assert_eq!(title(), "last known version of a.md (above ---)");
    let detail = engine.observer().read_detail(agent);
    let first = &text::prepare_diff(&detail, None).lines[0].bytes;
    let expected = "Equal to the last known version. 0 scratch lines.";
    assert_eq!(String::from_utf8_lossy(first), expected);
    // The patch names the same version.
    local.write_file(
        "/agent/MEMORY.md",
        BASELINE.replace("kind", "evil").as_bytes(),
    );
    let patch = TextPreparer::new(&engine).make_patch("a").unwrap();
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.starts_with("--- last known version of /"), "{patch}");
}

/// A fleet of one agent on a host, whose config may change.
struct ReloadableFleet {
    root: tempfile::TempDir,
    runner: EffectRunner,
    inbox: Receiver<Msg>,
    /// No host answers until this is dropped.
    _release_hosts: Sender<()>,
}

impl ReloadableFleet {
    fn new() -> ReloadableFleet {
        let root = tempfile::tempdir().unwrap();
        let (release_hosts, released) = bounded(0);
        let make = move |config: Config| {
            if config.general.archive_group.is_some() {
                let missing = config.error_at_value(
                    ("general", "archive_group"),
                    "gone",
                    "no group".to_string(),
                    Vec::new(),
                );
                return Err(ConfigErrors(vec![missing]));
            }
            Ok(engine_of(config, fake_with_agent(), released.clone()))
        };
        write_config(root.path(), &config_with_host("old"));
        let config = config::load(&config_path(root.path()), &test_env(root.path())).unwrap();
        let engine = make(config).unwrap();
        let (runner, inbox) = start_runner(root.path(), engine, Arc::new(make));
        ReloadableFleet {
            root,
            runner,
            inbox,
            _release_hosts: release_hosts,
        }
    }

    /// Changes the config; returns the message that it was read.
    fn write_and_read_config(&mut self, config: &str) -> Msg {
        write_config(self.root.path(), config);
        self.read()
    }

    fn read(&mut self) -> Msg {
        assert!(
            self.runner
                .intercept(Msg::Fleet(FleetEvent::ConfigChanged))
                .is_none()
        );
        self.wait_for(|msg| matches!(msg, Msg::ConfigReloaded(_) | Msg::ConfigInvalid(_)))
    }

    fn wait_for(&self, wanted: impl Fn(&Msg) -> bool) -> Msg {
        loop {
            let msg = self.inbox.recv_timeout(WAIT_TIMEOUT).unwrap();
            if wanted(&msg) {
                return msg;
            }
        }
    }
}

fn config_path(root: &Path) -> PathBuf {
    root.join("fleet.conf")
}

fn write_config(root: &Path, config: &str) {
    std::fs::write(config_path(root), config).unwrap();
}

fn config_with_host(host: &str) -> String {
    format!("[there]\nremote_host = {host}\nremote_memory = /agent/MEMORY.md\nbaseline = a.md\n")
}

#[test]
fn messages_of_previous_engine_are_dropped() {
    let mut fleet = ReloadableFleet::new();
    let end = Instant::now() + WAIT_TIMEOUT;
    while fleet.runner.fleet_events().is_empty() {
        assert!(Instant::now() < end, "no fleet event");
        thread::yield_now();
    }
    // An event of the old host is queued.
    let read = fleet.write_and_read_config(&config_with_host("new"));
    assert!(fleet.runner.intercept(read).is_none());
    assert!(matches!(
        fleet.runner.adopt_config(),
        Some(Msg::ConfigAdopted(_, agents, _)) if agents.len() == 1
    ));
    let Ok(FleetEvent::HostsChanged(hosts)) =
        fleet.runner.fleet_events().recv_timeout(WAIT_TIMEOUT)
    else {
        panic!("the first event is not about hosts");
    };
    assert_eq!(hosts[0].host.name, "new");
}

#[test]
fn broken_config_discards_waiting_one() {
    let mut fleet = ReloadableFleet::new();
    let (run_guard, run) = bounded(0);
    fleet.runner.run_handle = Some(run);
    let read = fleet.write_and_read_config(&config_with_host("new"));
    let note = fleet.runner.intercept(read);
    assert!(
        matches!(&note, Some(Msg::Reported(MessageLevel::Info, text)) if text.contains("waits for the end")),
        "{note:?}"
    );
    let broken = fleet.write_and_read_config("[there]\nwhat = 1\n");
    assert!(matches!(
        fleet.runner.intercept(broken),
        Some(Msg::ConfigInvalid(_))
    ));
    drop(run_guard);
    assert!(
        fleet.runner.adopt_config().is_none(),
        "the config on the disk is broken"
    );
    let read = fleet.write_and_read_config(&config_with_host("newer"));
    assert!(fleet.runner.intercept(read).is_none());
    assert!(fleet.runner.adopt_config().is_some());
}

#[test]
fn observations_of_a_later_engine_supersede_earlier_ones() {
    let mut fleet = ReloadableFleet::new();
    let config = "[here]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n";
    let read = fleet.write_and_read_config(config);
    assert!(fleet.runner.intercept(read).is_none());
    assert!(fleet.runner.adopt_config().is_some());
    let engine = &fleet.runner.engine;
    let seen = engine.observer().observe(engine.agent("here").unwrap());
    assert!(seen.generation >= GENERATIONS_PER_ENGINE);
}

#[test]
fn config_without_engine_is_read_again_unchanged() {
    let mut fleet = ReloadableFleet::new();
    let config = format!(
        "[general]\narchive_group = gone\n{}",
        config_with_host("new")
    );
    for read in [fleet.write_and_read_config(&config), fleet.read()] {
        assert!(
            matches!(&read, Msg::ConfigInvalid(why) if why[0].line == Some(2)),
            "{read:?}"
        );
    }
}

#[test]
fn fifo_as_config_does_not_block() {
    let mut fleet = ReloadableFleet::new();
    let path = config_path(fleet.root.path());
    std::fs::remove_file(&path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let read = fleet.read();
    assert!(
        matches!(&read, Msg::ConfigInvalid(why) if why[0].message.contains("not a regular file")),
        "{read:?}"
    );
    fleet.runner.execute(Effect::LoadLog);
    fleet.wait_for(|msg| matches!(msg, Msg::LogLoaded(Ok(_))));
}

#[test]
fn missing_archive_is_trouble_on_every_screen() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("fleet.conf");
    let id = "0123456789abcdef".repeat(4);
    let agent = "[a]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n";
    std::fs::write(&path, format!("[general]\narchive_id = {id}\n{agent}")).unwrap();
    let config = config::load(&path, &test_env(root.path())).unwrap();
    let moment = Moment {
        elapsed: Duration::ZERO,
        local_time: SystemClock.now(),
    };
    let mut model = initial_model(&config, moment, (120, 36));
    let (_release, released) = bounded::<()>(0);
    let engine = engine_of(config, fake_with_agent(), released);
    let seen = engine.observer().observe(engine.agent("a").unwrap());
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(root.path(), engine, factory);
    runner.execute(Effect::LoadLog);
    let loaded = std::iter::from_fn(|| inbox.recv_timeout(WAIT_TIMEOUT).ok())
        .find(|msg| matches!(msg, Msg::LogLoaded(_)));
    update(&mut model, moment, loaded.unwrap());
    let says = |text: Option<&str>| text.is_some_and(|it| it.ends_with("no archive is there"));
    assert!(
        says(model.errors.ledger.as_deref()),
        "{:?}",
        model.errors.ledger
    );
    let shown = model.last_message.as_ref().map(|it| it.text.as_str());
    assert!(says(shown), "{shown:?}");
    assert!(
        says(seen.ledger_error.as_deref()),
        "{:?}",
        seen.ledger_error
    );
    // It is said once, until the archive is there again.
    update(
        &mut model,
        moment,
        Msg::Fleet(FleetEvent::Observed(vec![seen.clone()])),
    );
    assert_eq!(model.last_message.as_ref().unwrap().repeat_count, 1);
    let again = Observation {
        ledger_error: None,
        generation: seen.generation + 1,
        ..seen
    };
    let effects = update(
        &mut model,
        moment,
        Msg::Fleet(FleetEvent::Observed(vec![again])),
    );
    assert!(effects.contains(&Effect::LoadLog), "{effects:?}");
}

#[test]
fn shutdown_waits_only_for_an_active_run() {
    for waits in [true, false] {
        let mut fleet = ReloadableFleet::new();
        let (_run_guard, run) = bounded(0);
        fleet.runner.run_handle = Some(run);
        let waited = fleet.runner.shut_down(fleet.inbox, None, |run, text| {
            assert!(is_run_active(run) && text.contains("agents"), "{text}");
            waits
        });
        assert_eq!(waited, waits);
    }
    // A run that has ended is not waited for.
    let mut fleet = ReloadableFleet::new();
    fleet.runner.run_handle = Some(bounded(0).1);
    assert!(fleet.runner.shut_down(fleet.inbox, None, |_, _| false));
}

#[test]
fn shutdown_waits_for_baselines_being_written() {
    for waits in [true, false] {
        let mut fleet = ReloadableFleet::new();
        let jobs = fleet.runner.workers.jobs.clone();
        let (release, released) = bounded::<()>(0);
        jobs.submit(JobClass::BaselinePlans, move |_| {
            let _ = released.recv();
            None
        });
        fleet
            .runner
            .execute(Effect::ApplyBaselinePlan(empty_baseline_plan()));
        let mut release = Some(release);
        let waited = fleet.runner.shut_down(fleet.inbox, None, |work, text| {
            assert!(is_run_active(work) && text.contains("baselines"), "{text}");
            if waits {
                release.take();
                // The channel closes once all files are written.
                assert!(work.recv().is_err());
            }
            waits
        });
        assert_eq!(waited, waits);
    }
}

fn empty_baseline_plan() -> Arc<BaselineChangePlan> {
    Arc::new(BaselineChangePlan::Files {
        plan: BaselinePlan {
            action: BaselineAction::Replace,
            files: Vec::new(),
            unchanged: Vec::new(),
        },
        is_resealed: false,
    })
}

/// Replaces text in the baseline of a fleet; returns the note of the plan, and what was written.
fn replace_text(fleet: &mut ReloadableFleet, new: &str) -> (String, AppliedBaselinePlan) {
    let request = BaselinePlanRequest::Replace {
        names: vec!["a.md".to_string()],
        replacement: TextReplacement {
            pattern: "be kind".to_string(),
            replacement: new.to_string(),
            is_regex: false,
        },
    };
    change_baselines(fleet, request)
}

/// Makes and applies a plan over baselines; returns the note of the plan, and what was written.
fn change_baselines(
    fleet: &mut ReloadableFleet,
    request: BaselinePlanRequest,
) -> (String, AppliedBaselinePlan) {
    fleet.runner.execute(Effect::MakeBaselinePlan(1, request));
    let made = fleet.wait_for(|msg| matches!(msg, Msg::BaselinePlanMade(..)));
    let Msg::BaselinePlanMade(_, Ok(prepared)) = made else {
        panic!("no plan: {made:?}");
    };
    let plan = Arc::clone(&prepared.change);
    fleet.runner.execute(Effect::ApplyBaselinePlan(plan));
    let applied = fleet.wait_for(|msg| matches!(msg, Msg::BaselinePlanApplied(_)));
    let Msg::BaselinePlanApplied(Ok(applied)) = applied else {
        panic!("not applied: {applied:?}");
    };
    (prepared.notes.join("; "), applied)
}

#[test]
fn replacement_in_sealed_baseline_is_sealed() {
    let mut fleet = ReloadableFleet::new();
    let engine = Arc::clone(&fleet.runner.engine);
    let seal_of = |engine: &Engine| engine.baseline_edits().open_baseline("a.md").unwrap().seal;
    let directory = &engine.config().general.baseline_dir;
    std::fs::create_dir_all(directory).unwrap();
    // Below min_baseline_size no seal would be made without words that accept it.
    let lines: String = (1..60).map(|n| format!("- note {n} of many\n")).collect();
    let text = BASELINE.replacen("- be kind\n", &format!("- be kind\n{lines}"), 1);
    std::fs::write(directory.join("a.md"), text).unwrap();
    // Without a seal, none is made.
    let (note, applied) = replace_text(&mut fleet, "be kind, always");
    assert!(note.contains("seal the baselines afterwards"), "{note}");
    assert!(!applied.summary.contains("sealed"), "{}", applied.summary);
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    let (note, applied) = replace_text(&mut fleet, "be kind to all");
    assert!(note.contains("sealed, too"), "{note}");
    assert!(applied.summary.contains("and sealed it"), "{applied:?}");
    assert_eq!(seal_of(&engine), SealMatch::Sealed);
}

#[test]
fn undone_restore_seals_no_unsealed_version() {
    let mut fleet = ReloadableFleet::new();
    let engine = Arc::clone(&fleet.runner.engine);
    let directory = &engine.config().general.baseline_dir;
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("a.md"), BASELINE).unwrap();
    let mut plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    plan.accept_lint_errors();
    engine.seals().apply_seal(&plan, None).unwrap();
    let text = BASELINE.replace("kind", "brief").into_bytes();
    let sealed = Some(Digest::of(BASELINE.as_bytes()));
    let writer = engine.baseline_files().begin_baseline_change().unwrap();
    let saved = writer
        .save("a.md", &text, sealed, TextOrigin::Operator)
        .unwrap();
    drop(writer);
    let restore = |version: String| BaselinePlanRequest::Restore {
        names: vec!["a.md".to_string()],
        version,
    };
    let seal_of = |engine: &Engine| engine.baseline_edits().open_baseline("a.md").unwrap().seal;
    change_baselines(&mut fleet, restore("sealed".to_string()));
    assert_eq!(seal_of(&engine), SealMatch::Sealed);
    let (note, applied) = change_baselines(&mut fleet, restore(saved.digest.to_string()));
    assert!(note.contains("until it is sealed"), "{note}");
    assert!(!applied.summary.contains("sealed"), "{}", applied.summary);
    assert!(matches!(seal_of(&engine), SealMatch::SavedHere(_)));
}

#[test]
fn plan_names_immutable_files_first() {
    let mut fleet = ReloadableFleet::new();
    let directory = fleet.runner.engine.config().general.baseline_dir.clone();
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("a.md");
    std::fs::write(&path, BASELINE).unwrap();
    let chattr = |flag: &str| {
        let status = std::process::Command::new("chattr")
            .args([flag.as_ref(), path.as_os_str()])
            .status();
        status.is_ok_and(|it| it.success())
    };
    if !chattr("+i") {
        return crate::skip::skip_unsupported("chattr +i does not work here");
    }
    let (note, _) = replace_text(&mut fleet, "be kind, always");
    let is_locked_again = fleet
        .runner
        .engine
        .baseline_edits()
        .is_baseline_immutable("a.md");
    assert!(chattr("-i") && is_locked_again);
    assert!(
        note.starts_with("unlocks a.md for the write and locks it again; "),
        "{note}"
    );
}

#[test]
fn slow_list_delays_no_plan_over_baselines() {
    let mut fleet = ReloadableFleet::new();
    let jobs = fleet.runner.workers.jobs.clone();
    let (_release, released) = bounded::<()>(0);
    jobs.submit(JobClass::BaselineList, move |_| {
        let _ = released.recv();
        None
    });
    let request = BaselinePlanRequest::Restore {
        names: vec!["a.md".to_string()],
        version: "sealed".to_string(),
    };
    let (runner, wait_for) = (&mut fleet.runner, &fleet.inbox);
    runner.execute(Effect::LoadBaselines);
    runner.execute(Effect::LoadBaselineVersions("a.md".to_string()));
    runner.execute(Effect::MakeBaselinePlan(7, request));
    runner.execute(Effect::ApplyBaselinePlan(empty_baseline_plan()));
    let mut left = vec!["versions", "plan", "applied"];
    while !left.is_empty() {
        let answered = match wait_for.recv_timeout(WAIT_TIMEOUT).unwrap() {
            Msg::BaselineVersionsLoaded(..) => "versions",
            Msg::BaselinePlanMade(7, _) => "plan",
            Msg::BaselinePlanApplied(_) => "applied",
            _ => continue,
        };
        left.retain(|it| *it != answered);
    }
}

#[test]
fn requested_jobs_are_listed_until_they_end() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(root.path(), engine, factory);
    let jobs = runner.workers.jobs.clone();
    let (release, released) = bounded::<()>(0);
    let local = JobClass::Texts(None);
    let classes = [
        JobClass::FleetFiles,
        JobClass::Schedule,
        JobClass::History,
        local,
    ];
    let plans = std::iter::repeat_n(JobClass::Plan, 4);
    for class in classes.into_iter().chain(plans) {
        let released = released.clone();
        jobs.submit(class, move |_| {
            let _ = released.recv();
            None
        });
    }
    let reset =
        |names: &[&str]| PlanRequest::Reset(names.iter().map(ToString::to_string).collect());
    for effect in [
        Effect::LoadLog,
        Effect::LoadLog,
        Effect::LoadReport,
        Effect::FindDrafts,
        // The second request replaces the first one, which nothing answers.
        Effect::LoadSchedule(1),
        Effect::LoadSchedule(2),
        Effect::LoadHistory("a".to_string()),
        Effect::PrepareRunDiff("a".to_string(), 7),
        Effect::PrepareTexts("a".to_string()),
        Effect::PrepareTexts("not in the config".to_string()),
        Effect::MakePlan(1, reset(&["a"]), false),
        Effect::MakePlan(2, reset(&["a", "b"]), false),
    ] {
        runner.execute(effect);
    }
    let mut labels = runner.job_labels();
    labels.sort();
    let expected = [
        "history of a",
        "ledger",
        "plan for 2 agents",
        "plan for a",
        "report",
        "run diff of a",
        "texts of a",
        "timers of the service managers",
    ];
    assert_eq!(labels, expected);
    drop(release);
    let end = Instant::now() + WAIT_TIMEOUT;
    while !runner.job_labels().is_empty() {
        assert!(Instant::now() < end, "{:?}", runner.job_labels());
        let _ = inbox.try_recv();
        thread::yield_now();
    }
}

#[test]
fn themes_and_pager_files_load_in_background() {
    let fleet = ReloadableFleet::new();
    let themes = Themes::new(None, Default::default());
    fleet.runner.load_theme(&themes, "no-such-one", true);
    fleet.runner.load_theme(&themes, "dark", false);
    let page = PagerText::new("../alpha", b"note one\n");
    let root = temporary_root(fleet.root.path());
    fleet.runner.write_page(7, &root, page);
    let next_loaded = || fleet.runner.loaded().recv_timeout(WAIT_TIMEOUT).unwrap();
    for expected in [("no-such-one", false, true), ("dark", true, false)] {
        let Loaded::Theme(loaded) = next_loaded() else {
            panic!("the themes were requested first");
        };
        let theme = (&*loaded.name, loaded.theme.is_ok(), loaded.is_requested);
        assert_eq!(theme, expected);
    }
    let Loaded::Page(7, Ok(file)) = next_loaded() else {
        panic!("no pager file");
    };
    let directory = file.path().parent().unwrap();
    assert_eq!(directory.parent(), Some(fleet.root.path()));
    assert_eq!(std::fs::read(file.path()).unwrap(), b"note one\n");
    // A directory that does not exist.
    fleet.runner.write_page(
        8,
        &temporary_root(&fleet.root.path().join("none")),
        PagerText::new("alpha", b""),
    );
    assert!(matches!(next_loaded(), Loaded::Page(8, Err(_))));
}

#[test]
fn lines_are_saved_to_new_file_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.md");
    let saved = files::save_lines(&path, b"- one\n- two\n").unwrap();
    assert_eq!(saved, format!("2 lines saved to {}", path.display()));
    let error = files::save_lines(&path, b"- other\n").unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"- one\n- two\n");
    let names = std::fs::read_dir(directory.path()).unwrap();
    assert_eq!(names.count(), 1, "no leftover");
    assert!(files::save_lines(&directory.path().join("none/x"), b"x\n").is_err());
}

#[test]
fn signing_key_is_checked_in_home_directory() {
    let mut fleet = ReloadableFleet::new();
    let mut check = |key: &str| {
        fleet
            .runner
            .execute(Effect::CheckSigningKey(key.to_string()));
        match fleet.wait_for(|msg| matches!(msg, Msg::SigningKeyChecked(..))) {
            Msg::SigningKeyChecked(_, checked) => checked.map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    };
    assert!(check("~/nokey").unwrap_err().contains("nokey"));
    assert!(check("/").unwrap_err().contains("not a file"));
    assert_eq!(
        check("/dev/null").map_err(|why| why.contains("not a file")),
        Err(true)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(check(file.path().to_str().unwrap()), Ok(()));
}

#[test]
fn restore_note_says_each_fact_once() {
    let file = |name: &str| PlannedBaseline {
        name: name.to_string(),
        before: BaselineFile::Readable(b"old".to_vec()),
        after: b"new".to_vec().into(),
        replaced: 0,
        agents: Vec::new(),
        is_foreign: false,
        replaces_foreign: false,
        is_refused: false,
        has_been_sealed: false,
    };
    let plan = BaselinePlan {
        action: BaselineAction::Restore {
            version: "sealed".to_string(),
        },
        files: ["a.md", "b.md", "c.md"].map(file).into(),
        unchanged: Vec::new(),
    };
    let note = super::baselines::files_note(&plan, true);
    assert_eq!(note.matches("owner and mode stay").count(), 1, "{note}");
    assert!(note.ends_with("the files are sealed, too"), "{note}");
}

#[test]
fn unsealed_baseline_is_compared_with_template() {
    let mut fleet = ReloadableFleet::new();
    let engine = Arc::clone(&fleet.runner.engine);
    let directory = &engine.config().general.baseline_dir;
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("a.md"), BASELINE).unwrap();
    let name = || "a.md".to_string();
    let mut compare = |request: ComparisonRequest| {
        fleet.runner.execute(Effect::CompareBaseline(request));
        let compared = fleet.wait_for(|msg| matches!(msg, Msg::BaselineCompared(..)));
        let Msg::BaselineCompared(_, texts) = compared else {
            panic!("{compared:?}");
        };
        texts
    };
    let texts = compare(ComparisonRequest::with_file(
        name(),
        ComparedVersion::Sealed,
    ));
    let texts = texts.unwrap();
    assert_eq!(texts.old_side, ComparedVersion::Template);
    let titles = &texts.texts.titles;
    assert!(titles[0].starts_with("template"), "{titles:?}");
    // A version that a key has chosen is not replaced by another one.
    let mut request = ComparisonRequest::with_file(name(), ComparedVersion::Previous);
    assert!(compare(request.clone()).is_err());
    request.fallback = Some(ComparedVersion::Template);
    let texts = compare(request).unwrap();
    assert_eq!(texts.old_side, ComparedVersion::Template);
}

#[test]
fn search_without_hits_is_followed_by_relaxations() {
    let mut fleet = ReloadableFleet::new();
    let directory = fleet.root.path().join("archives/scout");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("2026-03-14_0900.md"), "a walrus\n").unwrap();
    let request = ArchiveSearchRequest {
        number: 1,
        query: "walrus zebra".to_string(),
        order: CandidateOrder::Relevance,
        limit: 10,
    };
    fleet.runner.execute(Effect::SearchArchive(request.clone()));
    // The search has ended before.
    fleet.wait_for(|msg| matches!(msg, Msg::ArchiveSearchEnded(1)));
    match fleet.wait_for(|msg| matches!(msg, Msg::ArchiveRelaxed(..))) {
        Msg::ArchiveRelaxed(1, Ok(found)) => {
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].describe(), "without `zebra`");
        }
        msg => panic!("{msg:?}"),
    }
    // Where something is found, no other query is tried.
    for (number, query) in [(2, "walrus"), (3, "")] {
        let query = query.to_string();
        fleet
            .runner
            .execute(Effect::SearchArchive(ArchiveSearchRequest {
                number,
                query,
                ..request.clone()
            }));
        let ended = |msg: &Msg| {
            assert!(!matches!(msg, Msg::ArchiveRelaxed(..)));
            matches!(msg, Msg::ArchiveSearchEnded(it) if *it == number)
        };
        fleet.wait_for(ended);
    }
}

#[test]
fn overview_and_prune_are_answered_and_waited_for() {
    let mut fleet = ReloadableFleet::new();
    fleet.runner.execute(Effect::LoadRetention(7));
    let loaded = fleet.wait_for(|msg| matches!(msg, Msg::RetentionLoaded(..)));
    let Msg::RetentionLoaded(7, Ok(overview)) = loaded else {
        panic!("{loaded:?}")
    };
    let jobs = fleet.runner.workers.jobs.clone();
    let (release, released) = bounded::<()>(0);
    jobs.submit(JobClass::Retention, move |_| {
        let _ = released.recv();
        None
    });
    fleet
        .runner
        .execute(Effect::PruneArchive(Arc::from(overview)));
    let mut release = Some(release);
    assert!(fleet.runner.shut_down(fleet.inbox, None, |work, text| {
        assert!(is_run_active(work) && text.contains("retention"), "{text}");
        release.take();
        // The channel closes once all of it is deleted.
        assert!(work.recv().is_err());
        true
    }));
}

#[test]
fn entry_is_exported_to_the_start_directory() {
    let mut fleet = ReloadableFleet::new();
    let directory = fleet.root.path().join("archives/scout");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("2026-03-14_0900.md"), "a walrus\n").unwrap();
    let entry = PathBuf::from("scout/2026-03-14_0900.md");
    let copy = test_env(fleet.root.path()).cwd.join("copy.md");
    for (level, words) in [
        (MessageLevel::Info, copy.display().to_string()),
        (MessageLevel::Error, "not exported".to_string()),
    ] {
        let effect = Effect::ExportEntry(entry.clone(), "copy.md".into());
        fleet.runner.execute(effect);
        let reported = fleet.wait_for(|msg| matches!(msg, Msg::Reported(..)));
        let is_expected =
            matches!(&reported, Msg::Reported(it, text) if *it == level && text.contains(&words));
        assert!(is_expected, "{reported:?}");
        assert_eq!(std::fs::read(&copy).unwrap(), b"a walrus\n");
    }
}
