//! Nothing that is asked for on the screen's thread waits for a host.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::clock::SystemClock;
use crate::console::model::known_scratch_lines;
use crate::engine::{EngineSetup, Protection, Trigger};
use crate::transport::fake::FakeTransport;
use crate::transport::{
    MemoryDirectory, MemoryObject, SpecialFile, Transport, TransportError, Transports,
};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const BASELINE: &str = "# Rules\n\n- be kind\n\n---\n";

/// One for this machine, one for every host; these answer nothing before the
/// sender of the last is gone.
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
}

/// A fake with the memory of an agent.
fn fake_with_agent() -> FakeTransport {
    let fake = FakeTransport::new(Arc::new(SystemClock));
    for directory in ["/", "/agent"] {
        fake.make_directory(directory, 1000, 1000, 0o755);
    }
    fake.write_file("/agent/MEMORY.md", BASELINE.as_bytes());
    fake
}

fn test_env(root: &Path) -> ConfigEnvironment {
    ConfigEnvironment {
        cwd: root.to_path_buf(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        uid: 1000,
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
    let clock = Arc::new(SystemClock);
    let engine = Engine::new(EngineSetup {
        config,
        clock,
        transports: Arc::new(LocalAndSilentHosts(
            fake_with_agent(),
            fake_with_agent(),
            released,
        )),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
    });
    let (events, happened) = unbounded();
    let desk = PromptBroker::new(PathBuf::new(), Vec::new(), events);
    let (mut runner, inbox) = EffectRunner::start(
        Arc::new(engine),
        (desk, happened),
        test_env(root),
        Arc::new(|_| unreachable!("the config does not change")),
        None,
        UserFiles {
            preferences: None,
            view_state_file: None,
        },
    );
    let reset = |name: &str| PlanRequest::Reset(vec![name.to_string()]);
    let wait_for = |what: &str, wanted: &dyn Fn(&Msg) -> bool| loop {
        let msg = inbox.recv_timeout(WAIT_TIMEOUT);
        let msg = msg.unwrap_or_else(|_| panic!("{what} does not come"));
        if wanted(&msg) {
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
        "the text of another",
        &|msg| matches!(msg, Msg::TextsPrepared(texts) if texts.agent == "here"),
    );
    runner.execute(Effect::MakePlan(7, reset("here"), false));
    wait_for("the plan of another", &|msg| {
        matches!(msg, Msg::PlanMade(7, Ok(_)))
    });
    runner.execute(Effect::LoadHistory("here".to_string()));
    runner.execute(Effect::PrepareRunDiff("here".to_string(), 1));
    wait_for(
        "what was done",
        &|msg| matches!(msg, Msg::HistoryLoaded(name, Ok(past)) if name == "here" && past.is_empty()),
    );
    wait_for(
        "what a record changed",
        &|msg| matches!(msg, Msg::RunDiffPrepared(name, 1, Err(why)) if name == "here" && why.contains("no record")),
    );
    // It has a heading.
    runner.execute(Effect::PrepareTexts("here".to_string()));
    wait_for(
        "its colours",
        &|msg| matches!(msg, Msg::TonesPrepared(name, _, tones) if name == "here" && tones.contains_key(&1)),
    );
    runner.execute(Effect::LoadLog);
    wait_for("the ledger", &|msg| matches!(msg, Msg::LogLoaded(Ok(_))));
    drop(release);
    wait_for(
        "the text of the host's",
        &|msg| matches!(msg, Msg::TextsPrepared(texts) if texts.agent == "there"),
    );
    assert!(runner.shut_down(inbox, &[], |_| unreachable!("there is no run")));
}

#[test]
fn copies_keep_the_most_recently_opened() {
    let mut copies = text_workers::DetailCache::default();
    let size = 1 << 20;
    for number in 0..6 {
        copies.insert(agent_detail(&format!("agent-{number}"), size));
    }
    copies.insert(agent_detail("agent-3", size));
    let kept = |name: &str| copies.get(name).is_some();
    assert!(!kept("agent-0") && !kept("agent-1"));
    assert!(kept("agent-3") && kept("agent-5"));
    // One that is too large for itself is not kept, and nothing else is lost.
    copies.insert(agent_detail("agent-9", 5 * size));
    assert!(copies.get("agent-9").is_none());
    assert!(copies.get("agent-3").is_some());
}

fn agent_detail(name: &str, size: usize) -> crate::engine::AgentDetail {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("fleet.conf");
    let text = format!("[{name}]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n");
    std::fs::write(&path, text).unwrap();
    let engine = Engine::new(EngineSetup {
        config: config::load(&path, &test_env(root.path())).unwrap(),
        clock: Arc::new(SystemClock),
        transports: Arc::new(LocalAndSilentHosts(
            fake_with_agent(),
            fake_with_agent(),
            bounded(0).1,
        )),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
    });
    let mut detail = engine.read_detail(engine.agent(name).unwrap());
    detail.memory_prefix = vec![b'x'; size];
    detail
}

/// An engine of an agent with this memory, and of another one.
fn engine_with_memory(root: &Path, memory: &str) -> Engine {
    let here = fake_with_agent();
    here.write_file("/agent/MEMORY.md", memory.as_bytes());
    engine_with_transport(root, here)
}

fn engine_with_transport(root: &Path, here: FakeTransport) -> Engine {
    std::fs::write(root.join("a.md"), BASELINE).unwrap();
    let path = root.join("fleet.conf");
    let text = "[general]\nbaseline_dir = .\nmin_baseline_size = 10\n\
                [a]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n\
                [b]\nmemory_file = /other/MEMORY.md\nbaseline = a.md\n";
    std::fs::write(&path, text).unwrap();
    Engine::new(EngineSetup {
        config: config::load(&path, &test_env(root)).unwrap(),
        clock: Arc::new(SystemClock),
        transports: Arc::new(LocalAndSilentHosts(here, fake_with_agent(), bounded(0).1)),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
    })
}

/// What the facts of agent `a` say of something.
fn fact_text(engine: &Engine, label: &str) -> String {
    let agent = engine.agent("a").unwrap();
    let detail = engine.read_detail(agent);
    let facts = facts::agent_facts(engine, agent, &detail.observation, &detail);
    let of_it = facts
        .into_iter()
        .find(|(it, line)| *it == label && !line.bytes.is_empty());
    String::from_utf8(of_it.unwrap().1.bytes).unwrap()
}

#[test]
fn facts_say_how_plan_is_confirmed() {
    for (memory, said) in [
        (BASELINE.to_string(), "none: one key confirms"),
        (format!("{BASELINE}- a note\n"), "none: one key confirms"),
        (
            BASELINE.replace("kind", "quick"),
            "none, but its rules are not intact: a plan of it is confirmed by typing",
        ),
        ("no boundary\n".to_string(), "none, but its rules are not"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let engine = engine_with_memory(root.path(), &memory);
        let told = fact_text(&engine, "protection");
        assert!(told.starts_with(said), "{memory}: {told}");
    }
}

#[test]
fn facts_of_special_file_require_typing() {
    let root = tempfile::tempdir().unwrap();
    let here = fake_with_agent();
    here.put_special_file("/agent/MEMORY.md", SpecialFile::Fifo);
    let engine = engine_with_transport(root.path(), here);
    let told = fact_text(&engine, "protection");
    assert!(told.ends_with("is confirmed by typing"), "{told}");
}

#[test]
fn facts_name_commands_instead_of_keys() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    let agent = engine.agent("a").unwrap();
    let mut detail = engine.read_detail(agent);
    detail.observation.protection = Protection::ReadOnly;
    let facts = facts::agent_facts(&engine, agent, &detail.observation, &detail);
    let (_, told) = facts
        .iter()
        .find(|(label, _)| *label == "protection")
        .unwrap();
    let told = String::from_utf8_lossy(&told.bytes);
    assert_eq!(
        told,
        "readonly: the command read-only unlocks it for 30 minutes"
    );
}

#[test]
fn separator_with_cr_lf_is_reported_everywhere() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), &BASELINE.replace('\n', "\r\n"));
    let detail = engine.read_detail(engine.agent("a").unwrap());
    let shown = |prepared: crate::console::text::PreparedText| {
        String::from_utf8(prepared.lines[0].bytes.clone()).unwrap()
    };
    for told in [
        detail.observation.reason.clone(),
        fact_text(&engine, "separator"),
        text_workers::summarize_findings(&detail),
        shown(crate::console::text::prepare_diff(&detail, None)),
        shown(crate::console::text::prepare_scratch(&detail)),
    ] {
        assert!(told.contains("CR LF"), "{told}");
    }
}

#[test]
fn missing_baseline_leaves_scratch_unknown() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_memory(root.path(), BASELINE);
    std::fs::remove_file(root.path().join("a.md")).unwrap();
    let detail = engine.read_detail(engine.agent("a").unwrap());
    let scratch = crate::console::text::prepare_scratch(&detail);
    for told in [
        fact_text(&engine, "scratch"),
        fact_text(&engine, "separator"),
        text_workers::summarize_findings(&detail),
        String::from_utf8(scratch.lines[0].bytes.clone()).unwrap(),
    ] {
        let told = told.to_lowercase();
        assert!(told.contains("without the baseline"), "{told}");
        assert!(!told.contains("no separator"), "{told}");
    }
    assert_eq!(known_scratch_lines(&detail.observation), None);
}

#[test]
fn compared_version_is_named_correctly() {
    let root = tempfile::tempdir().unwrap();
    let here = fake_with_agent();
    here.write_file(
        "/agent/MEMORY.md",
        format!("{BASELINE}- a note\n").as_bytes(),
    );
    let engine = Arc::new(engine_with_transport(root.path(), here.clone()));
    let agent = engine.agent("a").unwrap();
    let title = || facts::diff_titles(agent, &engine.read_detail(agent))[0].clone();
    assert_eq!(title(), "baseline a.md (above ---)");
    let plan = engine.plan_reset(&["a".to_string()], false).unwrap();
    engine.apply_plan(&plan, true, &AtomicBool::new(false), &mut |_| {});
    std::fs::write(root.path().join("a.md"), BASELINE.replace("kind", "brief")).unwrap();
    assert_eq!(title(), "pushed version of a.md (above ---)");
    std::fs::write(root.path().join("a.md"), "tiny").unwrap();
    assert_eq!(title(), "last pushed version of a.md (above ---)");
    let detail = engine.read_detail(agent);
    let first = &crate::console::text::prepare_diff(&detail, None).lines[0].bytes;
    let said = "Equal to the last pushed version. 0 scratch lines.";
    assert_eq!(String::from_utf8_lossy(first), said);
    // The patch, too.
    here.write_file(
        "/agent/MEMORY.md",
        BASELINE.replace("kind", "evil").as_bytes(),
    );
    let (messages, came) = unbounded();
    let mut preparers = text_workers::TextWorkers::new(&engine, 0, &messages);
    preparers.request_patch("a".to_string());
    let Ok(Msg::PatchPrepared(_, Ok(patch))) = came.recv_timeout(WAIT_TIMEOUT) else {
        panic!("no patch comes");
    };
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.starts_with("--- last pushed version of /"), "{patch}");
}

/// A record of a run, as the ledger has it.
fn run_record(run: &str, act: &str, agent: &str, outcome: &str, undoes: &str) -> RunEvent {
    let text = format!(
        r#"{{"run":"{run}","act":"{act}","trigger":"cli","user":"op","agent":"{agent}","host":"local","outcome":"{outcome}","undoes":{undoes}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn run_lists_only_successfully_undone_agents() {
    let first = r#""first""#;
    let records = [
        run_record("first", "reset", "alpha", "ok", "null"),
        run_record("first", "reset", "bravo", "ok", "null"),
        run_record("second", "undo", "alpha", "ok", first),
        run_record("second", "undo", "bravo", "refused", first),
        run_record("third", "undo", "bravo", "failed", first),
        run_record("fourth", "undo", "alpha", "ok", first),
    ];
    let time = crate::clock::Clock::now(&SystemClock);
    let runs = group_into_runs(records.into_iter().map(|it| (time, it)));
    assert_eq!(runs.last().unwrap().undone_agents, ["alpha"]);
    assert!(runs.iter().all(|run| !run.is_redo));
}

#[test]
fn run_whose_undo_was_redone_is_not_undone() {
    let records = [
        run_record("first", "reset", "alpha", "ok", "null"),
        run_record("first", "reset", "bravo", "ok", "null"),
        run_record("second", "undo", "alpha", "ok", r#""first""#),
        run_record("second", "undo", "bravo", "ok", r#""first""#),
        run_record("third", "undo", "alpha", "ok", r#""second""#),
    ];
    let time = crate::clock::Clock::now(&SystemClock);
    let runs = group_into_runs(records.into_iter().map(|it| (time, it)));
    let undone: Vec<_> = runs
        .iter()
        .map(|run| (run.verb(), run.undone_agents.concat()))
        .collect();
    let expected = [("redo", ""), ("undo", "alpha"), ("reset", "bravo")];
    assert_eq!(undone, expected.map(|(verb, who)| (verb, who.to_string())));
    let undoable: Vec<&str> = runs.iter().flat_map(|run| run.undoable_agents()).collect();
    assert_eq!(undoable, ["alpha"]);
}

#[test]
fn run_list_is_limited_to_newest() {
    let time = crate::clock::Clock::now(&SystemClock);
    let records =
        (0..MAX_RUNS + 2).map(|number| run_record(&number.to_string(), "reset", "a", "ok", "null"));
    let runs = group_into_runs(records.map(|it| (time, it)));
    assert_eq!(runs.len(), MAX_RUNS);
    assert_eq!(
        runs[0].run_id,
        (MAX_RUNS + 1).to_string(),
        "the youngest are"
    );
}

/// A fleet whose config may change: one agent, on a host.
struct ReloadableFleet {
    root: tempfile::TempDir,
    runner: EffectRunner,
    inbox: Receiver<Msg>,
    /// No host answers before this is gone.
    _release_hosts: Sender<()>,
}

impl ReloadableFleet {
    fn new() -> ReloadableFleet {
        let root = tempfile::tempdir().unwrap();
        let (silence, released) = bounded(0);
        let make = move |config| {
            Engine::new(EngineSetup {
                config,
                clock: Arc::new(SystemClock),
                transports: Arc::new(LocalAndSilentHosts(
                    fake_with_agent(),
                    fake_with_agent(),
                    released.clone(),
                )),
                user: "tester".to_string(),
                trigger: Trigger::Console,
                archive_group: None,
            })
        };
        write_config(root.path(), &config_with_host("old"));
        let config = config::load(&config_path(root.path()), &test_env(root.path())).unwrap();
        let (events, happened) = unbounded();
        let desk = PromptBroker::new(PathBuf::new(), Vec::new(), events);
        let own = UserFiles {
            preferences: None,
            view_state_file: None,
        };
        let engine = Arc::new(make(config));
        let env = test_env(root.path());
        let (runner, inbox) =
            EffectRunner::start(engine, (desk, happened), env, Arc::new(make), None, own);
        ReloadableFleet {
            root,
            runner,
            inbox,
            _release_hosts: silence,
        }
    }

    /// The config was changed to this: what is read of it.
    fn write_and_read_config(&mut self, config: &str) -> Msg {
        write_config(self.root.path(), config);
        self.read()
    }

    fn read(&mut self) -> Msg {
        assert!(self.runner.intercept(Msg::ConfigChanged).is_none());
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
    let end = std::time::Instant::now() + WAIT_TIMEOUT;
    while fleet.runner.fleet_events().is_empty() {
        assert!(std::time::Instant::now() < end, "it tells nothing");
        thread::yield_now();
    }
    // It has told of the old host, which nobody has heard yet.
    let read = fleet.write_and_read_config(&config_with_host("new"));
    assert!(fleet.runner.intercept(read).is_none());
    assert!(matches!(
        fleet.runner.adopt_config(),
        Some(Msg::ConfigAdopted(_, agents, _)) if agents.len() == 1
    ));
    let Ok(FleetEvent::HostsChanged(hosts)) =
        fleet.runner.fleet_events().recv_timeout(WAIT_TIMEOUT)
    else {
        panic!("hosts come first");
    };
    assert_eq!(hosts[0].host.name, "new");
}

#[test]
fn broken_config_discards_waiting_one() {
    let mut fleet = ReloadableFleet::new();
    let (going, run) = bounded(0);
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
    drop(going);
    assert!(
        fleet.runner.adopt_config().is_none(),
        "it is not on the disk"
    );
    let read = fleet.write_and_read_config(&config_with_host("newer"));
    assert!(fleet.runner.intercept(read).is_none());
    assert!(fleet.runner.adopt_config().is_some());
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
fn end_waits_for_run_while_wanted() {
    for wanted in [true, false] {
        let mut fleet = ReloadableFleet::new();
        let (_going, run) = bounded(0);
        fleet.runner.run_handle = Some(run);
        let waited = fleet.runner.shut_down(fleet.inbox, &[], |run| {
            assert!(is_run_active(run));
            wanted
        });
        assert_eq!(waited, wanted);
    }
    // One that has ended is not spoken of.
    let mut fleet = ReloadableFleet::new();
    fleet.runner.run_handle = Some(bounded(0).1);
    assert!(fleet.runner.shut_down(fleet.inbox, &[], |_| false));
}

#[test]
fn themes_and_pager_files_load_in_background() {
    let fleet = ReloadableFleet::new();
    let themes = Themes::new(None, Default::default());
    fleet.runner.load_theme(&themes, "no-such-one", true);
    fleet.runner.load_theme(&themes, "dark", false);
    let page = PagerText::new("../alpha", b"note one\n");
    fleet.runner.write_page(7, fleet.root.path(), page);
    let brought = || fleet.runner.loaded().recv_timeout(WAIT_TIMEOUT).unwrap();
    let worn = |brought| match brought {
        Loaded::Theme(worn) => (worn.name, worn.theme.is_ok(), worn.is_requested),
        Loaded::Page(..) => panic!("themes come first"),
    };
    assert_eq!(worn(brought()), ("no-such-one".to_string(), false, true));
    assert_eq!(worn(brought()), ("dark".to_string(), true, false));
    let Loaded::Page(7, Ok(file)) = brought() else {
        panic!("no text");
    };
    assert_eq!(file.path().parent(), Some(fleet.root.path()));
    assert_eq!(std::fs::read(file.path()).unwrap(), b"note one\n");
    // The directory is gone.
    fleet.runner.write_page(
        8,
        &fleet.root.path().join("none"),
        PagerText::new("alpha", b""),
    );
    assert!(matches!(brought(), Loaded::Page(8, Err(_))));
}
