//! Memories of several files in a layout that only the tests have: the engine, the config and the
//! command line with it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::config::{self, ConfigEnvironment, LayoutKeys};
use memory_shepherd::engine::{
    Engine, Operation, Plan, ScratchSelection, State, UndoMode, UndoTarget,
};
use memory_shepherd::layouts::{
    FileEdit, HealthSeverity, MAX_TITLE_CHARS, MemoryItem, OperationRequest,
};
use serde_json::Value;

use super::crashes::{crash_at_call, crash_on_call, runs_to_end};
use super::edited_files::read_tree;
use super::world::{InterposingTransport, TransportCall, World, apply_plan};
use crate::skip::skip_missing_tool;

/// A world whose agent has a memory with a layout beside the one that is reset.
fn world_with_notes() -> World {
    let mut world = World::new(&["scout"]);
    let directory = world.agent_directory("scout");
    world.add_agent(
        "scout",
        &format!("layout = notes\nmemory_dir = {}", directory.display()),
    );
    world.write_scratch("scout", "- a note in the file\n");
    fs::create_dir(directory.join("kept")).unwrap();
    fs::write(directory.join("tea.md"), "green tea is good\n").unwrap();
    fs::write(directory.join("long.md"), "one\ntwo\nthree\n").unwrap();
    fs::write(directory.join("kept/old.md"), "an old note\n").unwrap();
    world
}

/// Plans to keep a note of an agent.
fn keep_note(engine: &Engine, agent: &str, note: &str) -> Plan {
    let request = OperationRequest {
        operation: "keep".to_string(),
        arguments: [("note".to_string(), vec![note.to_string()])].into(),
        now: engine.clock().now(),
    };
    engine.layouts().plan(agent, &request, false).unwrap().plan
}

fn items(engine: &Engine, collection: &str) -> Vec<String> {
    let memory = engine.layouts().open("scout").unwrap();
    let pages = memory.layout.items(&memory.files, collection).unwrap();
    let mut items: Vec<MemoryItem> = pages.flat_map(Result::unwrap).collect();
    items.sort_by(|a, b| a.id.cmp(&b.id));
    items
        .iter()
        .map(|item| format!("{}: {}", item.id, item.title))
        .collect()
}

#[test]
fn listing_search_and_health_change_no_file() {
    let world = world_with_notes();
    let root = world.agent_directory("scout");
    let before = read_tree(&root);
    let engine = world.engine();
    assert_eq!(
        items(&engine, "new"),
        ["long.md: one", "tea.md: green tea is good"]
    );
    assert_eq!(items(&engine, "kept"), ["kept/old.md: an old note"]);
    let memory = engine.layouts().open("scout").unwrap();
    let content = memory.layout.read(&memory.files, None, "tea.md").unwrap();
    assert_eq!(content.bytes, b"green tea is good\n");
    let found = memory.search("TWO").unwrap();
    assert_eq!(found.results.len(), 1);
    assert_eq!(found.results[0].item, "long.md");
    let health = memory.health(engine.clock().now()).unwrap();
    assert_eq!(health[0].check, "long");
    assert_eq!(health[0].severity, HealthSeverity::Warning);
    assert_eq!(read_tree(&root), before);
}

#[test]
fn endless_line_makes_a_title_of_bounded_length() {
    let world = world_with_notes();
    let path = world.agent_directory("scout").join("kept/endless.md");
    fs::write(path, "é".repeat(1 << 20)).unwrap();
    let titled = format!("kept/endless.md: {}", "é".repeat(MAX_TITLE_CHARS));
    assert_eq!(items(&world.engine(), "kept")[0], titled);
}

#[test]
fn operation_of_two_files_is_recorded_and_undone() {
    let world = world_with_notes();
    let root = world.agent_directory("scout");
    let before = read_tree(&root);
    let engine = world.engine();
    let plan = keep_note(&engine, "scout", "tea.md");
    assert_eq!(plan.steps[0].files.len(), 2);
    assert_eq!(read_tree(&root), before);
    apply_plan(&engine, &plan).assert_ok();
    assert_eq!(items(&engine, "new"), ["long.md: one"]);
    assert_eq!(items(&engine, "kept").len(), 2);
    let record = world.read_records().pop().unwrap();
    assert_eq!(record.event.operation, Operation::Edit);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(read_tree(&root), before);
}

#[test]
fn wrong_operation_is_refused_with_valid_names() {
    let world = world_with_notes();
    let engine = world.engine();
    let refused = |operation: &str, arguments: &[(&str, &str)]| {
        let arguments = arguments.iter();
        let request = OperationRequest {
            operation: operation.to_string(),
            arguments: arguments
                .map(|(name, value)| (name.to_string(), vec![value.to_string()]))
                .collect(),
            now: engine.clock().now(),
        };
        let planned = engine.layouts().plan("scout", &request, false);
        let error = Error::from(planned.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::User);
        format!("{}; {}", error.message(), error.hints().join("; "))
    };
    assert!(refused("burn", &[]).contains("its operations are keep"));
    assert!(refused("keep", &[]).contains("needs the argument note"));
    assert!(refused("keep", &[("note", "x"), ("to", "y")]).contains("no argument to"));
    assert!(refused("keep", &[("note", "absent.md")]).contains("no file absent.md"));
    assert!(refused("keep", &[("note", "../../baselines/scout.md")]).contains("not a path below"));
    let world = World::new(&["scout"]);
    let Err(error) = world.engine().layouts().open("scout") else {
        panic!("it has no layout")
    };
    assert_eq!(error.kind(), ErrorKind::User);
}

#[test]
fn layout_and_its_directory_belong_together() {
    let check = |lines: &str| {
        let text = format!(
            "[general]\n[scout]\nmemory_file = /srv/MEMORY.md\nbaseline = scout.md\n{lines}\n"
        );
        let env = ConfigEnvironment {
            layouts: vec![LayoutKeys {
                name: "notes",
                keys: &[],
            }],
            home: Some("/home/ops".into()),
            ..ConfigEnvironment::bare("/")
        };
        config::parse(text.as_bytes(), Path::new("/etc/shepherd/x.conf"), &env)
    };
    let directory_of = |lines: &str| {
        let config = check(lines).unwrap();
        config.agents[0].layout.clone().unwrap().directory
    };
    let cases = [
        ("memory_dir = /srv/notes", "/srv/notes"),
        ("memory_dir = ~/notes", "/home/ops/notes"),
        ("memory_dir = notes", "/etc/shepherd/notes"),
    ];
    for (line, directory) in cases {
        let lines = format!("layout = notes\n{line}");
        assert_eq!(directory_of(&lines), PathBuf::from(directory));
    }
    let faults = [
        ("layout = note\nmemory_dir = /x", "did you mean `notes`?"),
        ("layout = drawers\nmemory_dir = /x", "the layouts are notes"),
        ("layout = notes", "add `memory_dir = DIRECTORY`"),
        ("memory_dir = /x", "add `layout = NAME`"),
        ("state_dir = /x", "`state_dir` needs `layout`"),
        (
            "layout = notes\nmemory_dir = /x\nstate_dir = /y",
            "the layout notes has no `state_dir`",
        ),
        (
            "layout = notes\nmemory_dir = /x\nmemory_ref = main",
            "the layout notes has no `memory_ref`",
        ),
    ];
    for (lines, hint) in faults {
        let errors = check(lines).unwrap_err().to_string();
        assert!(errors.contains(hint), "{lines}: {errors}");
    }
    let remote = "[general]\n[scout]\nremote_host = box\nremote_memory = ~/MEMORY.md\n\
                  baseline = scout.md\nlayout = notes\nmemory_dir = ~/notes\n";
    let env = ConfigEnvironment {
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &[],
        }],
        ..ConfigEnvironment::bare("/")
    };
    let config = config::parse(remote.as_bytes(), Path::new("/x.conf"), &env).unwrap();
    let layout = config.agents[0].layout.clone().unwrap();
    assert_eq!(layout.directory, PathBuf::from("~/notes"));
}

/// Returns the path of the example program that has the layout of the tests; none if it is not built.
pub fn notes_program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.parent()?.parent()?.join("examples/notes");
    if !program.exists() {
        skip_missing_tool("the example `notes` (cargo build --examples)");
        return None;
    }
    Some(program)
}

fn run(program: &Path, world: &World, arguments: &[&str]) -> Output {
    world.config();
    Command::new(program)
        .arg("--config")
        .arg(world.root.join("memory-shepherd.conf"))
        .args(arguments)
        .env_clear()
        .current_dir(&world.root)
        .output()
        .unwrap()
}

#[test]
fn next_operation_settles_an_unsettled_edit() {
    let Some(program) = notes_program() else {
        return;
    };
    let mut settled = [0, 0];
    for point in 0.. {
        let world = world_with_layout_agent();
        let transport = crash_at_call(world.disk(), point);
        let engine = world.engine_with_transport(transport);
        let plan = keep_note(&world.engine(), "keeper", "tea.md");
        if runs_to_end(|| apply_plan(&engine, &plan)) {
            break;
        }
        let is_unsettled = !world.pending_journals().is_empty();
        let seen = world.observe("keeper");
        assert_eq!(seen.state, State::Layout, "{}", seen.reason);
        assert_eq!(seen.reason.contains("unsettled"), is_unsettled);
        assert!(seen.is_content_known());
        fs::write(world.agent_directory("keeper").join("oil.md"), "oil\n").unwrap();
        let apply = ["memory", "keeper", "apply", "keep", "oil.md"];
        let ran = run(&program, &world, &apply);
        assert_eq!(ran.status.code(), Some(0), "{point}: {ran:?}");
        let kept = super::world::sorted_names(&world.agent_directory("keeper").join("kept"));
        assert!(kept.contains(&"oil.md".to_string()), "{point}: {kept:?}");
        assert!(world.pending_journals().is_empty(), "{point}");
        settled[usize::from(kept.len() == 2)] += usize::from(is_unsettled);
    }
    assert!(settled.iter().all(|count| *count > 1), "{settled:?}");
}

#[test]
fn locked_agent_without_resets_is_busy_and_known() {
    let world = world_with_layout_agent();
    let watcher = world.engine();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watched = Arc::clone(&seen);
    let watch = move |call| {
        if call == TransportCall::Before("swap") {
            let agent = watcher.agent("keeper")?;
            let observed = watcher.observer().observe(agent);
            watched
                .lock()
                .unwrap()
                .push((observed.state, observed.is_content_known()));
        }
        Ok(())
    };
    let engine = world.engine_with_transport(InterposingTransport::new(world.disk(), watch));
    apply_plan(&engine, &keep_note(&engine, "keeper", "tea.md")).assert_ok();
    assert_eq!(*seen.lock().unwrap(), [(State::Busy, true)]);
}

#[test]
fn absent_directory_is_an_error_and_no_empty_memory() {
    let Some(program) = notes_program() else {
        return;
    };
    let world = world_with_layout_agent();
    let directory = world.agent_directory("keeper");
    fs::remove_dir_all(&directory).unwrap();
    for verb in ["tree", "health"] {
        let ran = run(&program, &world, &["memory", "keeper", verb]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{verb}: {said}");
        let absent = format!("memory_dir does not exist: {}", directory.display());
        assert!(said.contains(&absent), "{verb}: {said}");
    }
}

#[test]
fn item_that_cannot_be_read_hides_no_other() {
    let Some(program) = notes_program() else {
        return;
    };
    let world = world_with_notes();
    let root = world.agent_directory("scout");
    let huge = fs::File::create(root.join("huge.md")).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"\xff.md")), "green\n").unwrap();
    let ran = run(&program, &world, &["memory", "scout", "search", "green"]);
    let found = String::from_utf8(ran.stdout).unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(found.contains("tea.md"), "{found}");
    assert!(said.contains("huge.md is larger than 64 MiB"), "{said}");
    let ran = run(&program, &world, &["memory", "scout", "tree", "--json"]);
    let tree: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let items = tree["collections"][0]["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["path"] == "\u{fffd}.md"));
}

#[test]
fn command_line_serves_any_layout() {
    let Some(program) = notes_program() else {
        return;
    };
    let world = world_with_notes();
    let root = world.agent_directory("scout");
    let before = read_tree(&root);
    let json = |arguments: &[&str]| -> (Option<i32>, Value) {
        let ran = run(&program, &world, &[arguments, &["--json"]].concat());
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let document = serde_json::from_str(&text);
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        (
            ran.status.code(),
            document.unwrap_or_else(|error| panic!("{error}: {text}{errors}")),
        )
    };
    let (code, tree) = json(&["memory", "scout", "tree"]);
    assert_eq!(code, Some(0));
    assert_eq!(tree["layout"], "notes");
    assert_eq!(tree["collections"][1]["items"][0]["id"], "kept/old.md");
    let (code, health) = json(&["memory", "scout", "health"]);
    assert_eq!((code, &health["worst"]), (Some(1), &Value::from("warning")));
    let (_, found) = json(&["memory", "scout", "search", "GREEN"]);
    assert_eq!(found["results"][0]["item"], "tea.md");
    let shown = run(&program, &world, &["memory", "scout", "show", "tea.md"]);
    assert_eq!(shown.stdout, b"green tea is good\n");
    let (code, planned) = json(&["memory", "scout", "plan", "keep", "tea.md"]);
    assert_eq!(code, Some(0));
    let shown = run(
        &program,
        &world,
        &["memory", "scout", "plan", "keep", "tea.md"],
    );
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in [
        "archives 1 file, 18 bytes  changes 2 files".to_string(),
        format!("create  {}/kept/tea.md  18 bytes", root.display()),
        format!("remove  {}/tea.md", root.display()),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    assert_eq!(read_tree(&root), before);
    let hash = planned["plan"].as_str().unwrap();
    let apply = ["memory", "scout", "apply", "keep", "tea.md", "--plan"];
    let (code, _) = json(&[&apply[..], &["00000000"]].concat());
    assert_eq!(code, Some(6), "another plan");
    let (code, ran) = json(&[&apply[..], &[hash]].concat());
    assert_eq!((code, &ran["act"]), (Some(0), &Value::from("edit")));
    assert!(root.join("kept/tea.md").exists() && !root.join("tea.md").exists());
    let (code, _) = json(&["undo", "scout"]);
    assert_eq!(code, Some(0));
    assert_eq!(read_tree(&root), before);
}

/// A world with an agent that is reset, and one that only has a memory with a layout.
pub fn world_with_layout_agent() -> World {
    let mut world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let directory = world.agent_directory("keeper");
    world.add_agent(
        "keeper",
        &format!("layout = notes\nmemory_dir = {}", directory.display()),
    );
    fs::write(directory.join("tea.md"), "green tea\n").unwrap();
    world
}

#[test]
fn agent_without_resets_is_in_state_layout() {
    let world = world_with_layout_agent();
    let seen = world.observe("keeper");
    assert_eq!(seen.state, State::Layout, "{}", seen.reason);
    assert_eq!(seen.reason, "notes: health not checked yet");
    assert!(seen.blocker.is_none());
    fs::rename(world.agent_directory("keeper"), world.root.join("away")).unwrap();
    assert_eq!(world.observe("keeper").state, State::Missing);
    fs::write(world.agent_directory("keeper"), "a file").unwrap();
    assert_eq!(world.observe("keeper").state, State::Error);
}

#[test]
fn options_of_resets_without_a_reset_are_warned_of() {
    let options = [
        "separator = ***",
        "max_memory_size = 9000",
        "shared = no",
        "every = 1h",
    ];
    let text = format!(
        "[general]\n[keeper]\nlayout = notes\nmemory_dir = /srv/keeper\n{}\n",
        options.join("\n")
    );
    let env = ConfigEnvironment {
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &[],
        }],
        ..ConfigEnvironment::bare("/")
    };
    let config = config::parse(text.as_bytes(), Path::new("/x.conf"), &env).unwrap();
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    for option in options {
        let (key, _) = option.split_once(' ').unwrap();
        let why = format!("`{key}` has no effect for an agent that is never reset");
        assert!(warnings.iter().any(|it| it.contains(&why)), "{warnings:?}");
    }
    assert_eq!(config.agents[0].own_interval(), None);
}

#[test]
fn symlink_above_directory_of_a_layout_names_its_key() {
    let mut world = World::new(&["scout"]);
    let real = world.agent_directory("keeper");
    let linked = world.root.join("linked");
    std::os::unix::fs::symlink(real.parent().unwrap(), &linked).unwrap();
    let lines = format!("layout = notes\nmemory_dir = {}/keeper", linked.display());
    world.add_agent("keeper", &lines);
    let engine = world.engine();
    let faults = engine.memory_checks().irreplaceable_memories();
    let [(agent, key, error)] = faults.as_slice() else {
        panic!("{faults:?}");
    };
    assert_eq!((agent.name.as_str(), *key), ("keeper", "memory_dir"));
    let hint = format!("set memory_dir to its real path: {}", real.display());
    assert_eq!(error.hints(), [hint]);
}

#[test]
fn agent_without_resets_is_left_out_of_resets() {
    let world = world_with_layout_agent();
    let root = world.agent_directory("keeper");
    let before = read_tree(&root);
    let ran = world.reset();
    ran.assert_ok();
    assert_eq!(ran.report.results.len(), 1);
    let engine = world.engine();
    let planner = engine.planner();
    let both = ["keeper", "scout"].map(String::from);
    for names in [&both[..1], &both] {
        let plans = [
            planner.plan_reset(names, false),
            planner.plan_unobserved(names, false),
            planner.plan_push(names, &ScratchSelection::All, false),
        ];
        for plan in plans {
            match plan {
                Ok(plan) => assert_eq!(plan.steps.len() + plan.skipped.len(), 1),
                Err(error) => {
                    assert_eq!((names.len(), error.kind()), (1, ErrorKind::Conflict));
                    let why = "keeper has no baseline: it is never reset";
                    assert_eq!(error.message(), why);
                }
            }
        }
    }
    assert_eq!(read_tree(&root), before);
}

#[test]
fn edit_of_agent_without_resets_is_undone() {
    let world = world_with_layout_agent();
    let root = world.agent_directory("keeper");
    let before = read_tree(&root);
    let engine = world.engine();
    let plan = keep_note(&engine, "keeper", "tea.md");
    apply_plan(&engine, &plan).assert_ok();
    assert!(root.join("kept/tea.md").exists());
    assert_eq!(world.observe("keeper").state, State::Layout);
    world.undo("keeper", UndoMode::Refuse).assert_ok();
    assert_eq!(read_tree(&root), before);
}

#[test]
fn interrupted_edit_is_finished_before_one_of_another_agent() {
    let mut world = world_with_layout_agent();
    let directory = world.agent_directory("keeper");
    let lines = format!("layout = notes\nmemory_dir = {}", directory.display());
    world.add_agent("twin", &lines);
    let crashing = crash_on_call(world.disk(), TransportCall::Before("swap"));
    let engine = world.engine_with_transport(crashing);
    let plan = keep_note(&engine, "keeper", "tea.md");
    assert!(!runs_to_end(|| apply_plan(&engine, &plan)));
    assert!(directory.join("tea.md").exists());
    let engine = world.engine();
    let ran = apply_plan(&engine, &keep_note(&engine, "twin", "tea.md"));
    assert_eq!(ran.report.results[0].kind, Some(ErrorKind::Conflict));
    let kept = fs::read_to_string(directory.join("kept/tea.md")).unwrap();
    assert_eq!(kept, "green tea\n");
    assert!(!directory.join("tea.md").exists());
    assert!(world.pending_journals().is_empty());
}

#[test]
fn contents_of_an_edit_and_its_undo_are_known() {
    let world = world_with_layout_agent();
    let text = fs::read(world.agent_directory("keeper").join("tea.md")).unwrap();
    let engine = world.engine();
    apply_plan(&engine, &keep_note(&engine, "keeper", "tea.md")).assert_ok();
    let sides = |edits: Vec<FileEdit>| {
        let sides = edits.into_iter().map(|it| (it.path, (it.before, it.after)));
        sides.collect::<BTreeMap<_, _>>()
    };
    let [old, new] = ["tea.md", "kept/tea.md"].map(PathBuf::from);
    let page = engine.history().agent_history("keeper", 1).unwrap();
    let (agent, seq) = (engine.agent("keeper").unwrap(), page.entries[0].record.seq);
    let edited = engine.history().edited_files(agent, seq).unwrap().unwrap();
    let edits = sides(edited.edits);
    assert_eq!(edits[&old], (Some(text.clone()), None));
    assert_eq!(edits[&new], (None, Some(text.clone())));
    let target = UndoTarget::Agents(vec!["keeper".to_string()]);
    let plan = engine.planner().plan_undo(&target, UndoMode::Refuse, false);
    let files = &plan.unwrap().steps[0].files;
    let undone = sides(engine.layouts().undone_edits("keeper", files).unwrap());
    assert_eq!(undone[&old], (None, Some(text.clone())));
    assert_eq!(undone[&new], (Some(text), None));
}

#[test]
fn commands_name_agents_that_are_never_reset() {
    let Some(program) = notes_program() else {
        return;
    };
    let world = world_with_layout_agent();
    let ran = |arguments: &[&str]| {
        let ran = run(&program, &world, arguments);
        let text = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, status) = ran(&["status"]);
    assert_eq!(code, Some(0), "{status}");
    assert!(
        status.contains("LAYOUT") && !status.contains("error"),
        "{status}"
    );
    let (_, doctor) = ran(&["doctor"]);
    assert!(!doctor.contains("FAIL"), "{doctor}");
    assert!(doctor.contains("directories of 2 agents exist"), "{doctor}");
    for command in ["diff", "lint", "reset"] {
        let (code, said) = ran(&[command, "keeper"]);
        assert_ne!(code, Some(0), "{command}: {said}");
        assert!(
            said.contains("keeper has no baseline: it is never reset")
                && said.contains("`memory keeper tree`"),
            "{command}: {said}"
        );
        assert!(world.read_records().is_empty(), "{command}");
    }
    fs::remove_file(world.agent_directory("keeper").join("tea.md")).unwrap();
    fs::remove_dir(world.agent_directory("keeper")).unwrap();
    let (_, doctor) = ran(&["doctor"]);
    assert!(doctor.contains("FAIL  the directory of keeper"), "{doctor}");
}
