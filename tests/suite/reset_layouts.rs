//! Memories that a layout resets as a whole, by an operation that brings them back to a record: an index
//! with its topic files, and entries without any separator in one file whose bytes are canonical.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use memory_shepherd::base::error::{Error, ErrorKind, Result};
use memory_shepherd::config::AgentLayout;
use memory_shepherd::engine::{Engine, EngineSetup, Plan, Trigger, UndoMode, UndoTarget};
use memory_shepherd::layouts::{
    ArgumentForm, ArgumentSpec, Collection, FileEdit, HealthFinding, ItemContent, ItemPages,
    Layout, Layouts, MemoryFiles, OperationRequest, OperationSpec, PlanFailure, PlannedOperation,
    SearchAnswer, SearchableFile,
};
use memory_shepherd::transport::{MemoryObject, SingleTransport};

use super::edited_files::read_tree;
use super::world::{World, apply_plan};

/// Contents of files, by their paths.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// Reads the files of a directory.
fn read_files(files: &MemoryFiles, directory: &Path) -> Result<Contents> {
    let mut contents = Contents::new();
    for page in files.list(directory)?.into_iter().flatten() {
        for entry in page? {
            if let Ok(MemoryObject::File(_)) = entry.object {
                let path = directory.join(&entry.name);
                let bytes = files.read(&path)?.map_err(|fault| fault.to_error(&path))?;
                contents.insert(PathBuf::from(entry.name), bytes);
            }
        }
    }
    Ok(contents)
}

/// Returns the edits that make the files of a memory those of a record.
fn edits_between(found: &Contents, recorded: &Contents) -> Vec<FileEdit> {
    let paths: BTreeSet<&PathBuf> = found.keys().chain(recorded.keys()).collect();
    let edits = paths.into_iter().map(|path| FileEdit {
        path: path.clone(),
        before: found.get(path).cloned(),
        after: recorded.get(path).cloned(),
        moved_from: None,
    });
    edits.filter(|edit| edit.before != edit.after).collect()
}

/// Returns the edits that bring a memory back to a record.
type PlanReset = fn(&MemoryFiles, record: &Path) -> Result<Vec<FileEdit>>;

/// A layout with nothing but its reset.
struct ResetLayout {
    name: &'static str,
    plan: PlanReset,
}

const LAYOUTS: Layouts = Layouts(&[
    &ResetLayout {
        name: "topics",
        plan: plan_topics,
    },
    &ResetLayout {
        name: "entries",
        plan: plan_entries,
    },
]);

/// The memory is `INDEX.md` and the topics that it names; the record is a directory with the same.
fn plan_topics(files: &MemoryFiles, record: &Path) -> Result<Vec<FileEdit>> {
    let recorded = read_files(files, record)?;
    Ok(edits_between(&read_files(files, Path::new(""))?, &recorded))
}

/// The memory is `entries.txt`: entries of one line, sorted, each once.
fn plan_entries(files: &MemoryFiles, record: &Path) -> Result<Vec<FileEdit>> {
    let recorded = files
        .read(record)?
        .map_err(|fault| fault.to_error(record))?;
    let entries = recorded.split(|byte| *byte == b'\n');
    let entries: BTreeSet<&[u8]> = entries.filter(|entry| !entry.is_empty()).collect();
    let lines = entries.into_iter().map(|entry| [entry, b"\n"].concat());
    let path = PathBuf::from("entries.txt");
    let found = files.read(&path)?.ok().map(|bytes| (path.clone(), bytes));
    let recorded = (path, lines.collect::<Vec<_>>().concat());
    Ok(edits_between(
        &found.into_iter().collect(),
        &[recorded].into(),
    ))
}

impl Layout for ResetLayout {
    fn name(&self) -> &'static str {
        self.name
    }

    fn detect(&self, _: &MemoryFiles) -> Result<Option<String>> {
        Ok(None)
    }

    fn collections(&self, _: &MemoryFiles) -> Result<Vec<Collection>> {
        Ok(Vec::new())
    }

    fn items<'f>(&self, _: &'f MemoryFiles, _: &str) -> Result<ItemPages<'f>> {
        Ok(Box::new(std::iter::empty()))
    }

    fn read(&self, _: &MemoryFiles, _: Option<&str>, item: &str) -> Result<ItemContent> {
        Err(Error::new(ErrorKind::User, format!("no item {item}")))
    }

    fn texts(&self, _files: &MemoryFiles) -> Result<Vec<SearchableFile>> {
        Ok(Vec::new())
    }

    fn title(&self, _file: &SearchableFile, _bytes: &[u8]) -> String {
        String::new()
    }

    fn search(&self, _: &MemoryFiles, _: &str) -> Result<SearchAnswer> {
        Err(Error::new(ErrorKind::User, "it is not searched"))
    }

    fn health(&self, _: &MemoryFiles, _: DateTime<FixedOffset>) -> Result<Vec<HealthFinding>> {
        Ok(Vec::new())
    }

    fn operations(&self) -> &'static [OperationSpec] {
        &[OperationSpec {
            name: "reset",
            title: "go back to a record",
            arguments: &[ArgumentSpec {
                name: "to",
                title: "the record",
                form: ArgumentForm::Named,
                is_required: true,
                choices: &[],
            }],
        }]
    }

    fn plan(
        &self,
        files: &MemoryFiles,
        _: Option<&MemoryFiles>,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        Ok(PlannedOperation {
            outcome: "reset",
            message: "reset".to_string(),
            facts: serde_json::json!({}),
            edits: (self.plan)(files, Path::new(request.required("to")?))?,
            basis: None,
        })
    }
}

/// Returns an engine on the world's agent with a memory of this layout.
fn engine_with_layout(world: &World, name: &str) -> Engine {
    let mut config = world.config();
    config.agents[0].layout = Some(AgentLayout {
        name: name.to_string(),
        directory: world.agent_directory("scout").join("wide"),
        reference: None,
        state_directory: None,
    });
    Engine::new(EngineSetup {
        config,
        clock: world.clock.clone(),
        transports: Arc::new(SingleTransport(world.local_transport())),
        user: "tester".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
        layouts: LAYOUTS,
    })
}

/// Creates the files of the agent's memory.
fn write_memory(world: &World, files: &[(&str, &str)]) -> PathBuf {
    let root = world.agent_directory("scout").join("wide");
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn plan_reset(engine: &Engine, record: &str) -> Plan {
    let request = OperationRequest {
        operation: "reset".to_string(),
        arguments: [("to".to_string(), vec![record.to_string()])].into(),
        now: engine.clock().now(),
    };
    let planned = engine.layouts().plan("scout", &request, false);
    planned.unwrap().plan
}

fn undo(engine: &Engine) {
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine.planner().plan_undo(&target, UndoMode::Refuse, false);
    apply_plan(engine, &plan.unwrap()).assert_ok();
}

#[test]
fn index_and_its_topics_are_reset_as_one_step() {
    let world = World::new(&["scout"]);
    let root = write_memory(
        &world,
        &[
            ("INDEX.md", "- tea.md\n- gossip.md\n"),
            ("tea.md", "green, and black\n"),
            ("gossip.md", "invented\n"),
            ("record/INDEX.md", "- tea.md\n- rules.md\n"),
            ("record/tea.md", "green\n"),
            ("record/rules.md", "be kind\n"),
        ],
    );
    let before = read_tree(&root);
    let engine = engine_with_layout(&world, "topics");
    let plan = plan_reset(&engine, "record");
    assert_eq!((plan.steps.len(), plan.steps[0].files.len()), (1, 4));
    apply_plan(&engine, &plan).assert_ok();
    let restored = |name: &str| fs::read_to_string(root.join(name)).ok();
    for name in ["INDEX.md", "tea.md", "rules.md"] {
        assert_eq!(
            restored(name),
            restored(&format!("record/{name}")),
            "{name}"
        );
    }
    assert_eq!(restored("gossip.md"), None);
    undo(&engine);
    assert_eq!(read_tree(&root), before);
}

#[test]
fn entries_go_back_to_a_set_and_stay_canonical() {
    let world = World::new(&["scout"]);
    let root = write_memory(
        &world,
        &[
            ("entries.txt", "ask first\ninvented\n"),
            ("record.txt", "be kind\n\nask first\nbe kind"),
        ],
    );
    let before = read_tree(&root);
    let engine = engine_with_layout(&world, "entries");
    apply_plan(&engine, &plan_reset(&engine, "record.txt")).assert_ok();
    let entries = fs::read_to_string(root.join("entries.txt")).unwrap();
    assert_eq!(entries, "ask first\nbe kind\n");
    undo(&engine);
    assert_eq!(read_tree(&root), before);
}
