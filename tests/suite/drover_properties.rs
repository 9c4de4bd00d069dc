//! Properties of operations on random entries of the layout `drover`: their undo restores the tree, and
//! what they are not about stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use memory_shepherd::engine::{OperationPlan, UndoMode};
use memory_shepherd::layouts::{OperationRequest, PlanFailure};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::TestRunner;

use super::edited_files::read_tree;
use super::world::{World, apply_plan, permission_bits};

/// Directories of entries, in the order in which agents read them.
const DIRECTORIES: [&str; 4] = ["global", "agents/v", "agents/w", "runs/r1"];

const SCOPES: [&str; 3] = ["global", "agent", "run"];

/// Lines with keys that the format does not have.
const UNKNOWN_LINES: [&str; 5] = [
    "extra: [1, \"two\"]\n",
    "block: |\n  text\n\n    of é lines\n",
    "nested:\n  kind: inner\n  list:\n    - '---'\n",
    "\"odd key\": 0x1F   # a comment\n",
    "empty:\n",
];

const AGENT: &str = "keeper";

/// Returns one of the ids of a tree.
fn entry_id(number: usize) -> String {
    format!("01HF7YAT00AAAAAAAAAAAAAAA{number}")
}

/// A file of a tree.
#[derive(Clone, Debug)]
struct TreeFile {
    bytes: Vec<u8>,
    mode: u32,
    /// The id that it has, and its lines with unknown keys; none where agents do not see it.
    entry: Option<(String, String)>,
}

type TreeFiles = BTreeMap<PathBuf, TreeFile>;

/// An operation, with its arguments.
type RandomOperation = (&'static str, Vec<(&'static str, String)>);

fn line_of_text() -> impl Strategy<Value = String> {
    "[a-z0-9:#'\"é茶-][ -~é茶]{0,60}"
}

fn entry_file() -> impl Strategy<Value = TreeFile> {
    let lines = (
        0..4_usize,
        select(&SCOPES[..]),
        line_of_text(),
        subsequence(UNKNOWN_LINES.to_vec(), 0..=3),
        select(&["", "tags: [a, b]\n", "updatedAt: 1700000000001\n"][..]),
    );
    let body = "[ -~\né]{0,200}";
    (lines, body).prop_map(|((number, scope, summary, unknown, known), body)| {
        let (id, unknown) = (entry_id(number), unknown.concat());
        let summary = serde_json::to_string(&summary).unwrap();
        let text = format!(
            "---\nid: {id}\nscope: {scope}\nkind: user\n{unknown}summary: {summary}\n{known}createdAt: 5\n---\n{body}"
        );
        TreeFile {
            bytes: text.into_bytes(),
            mode: 0o644,
            entry: Some((id, unknown)),
        }
    })
}

fn tree_files() -> impl Strategy<Value = TreeFiles> {
    let unseen = vec(any::<u8>(), 0..40).prop_map(|bytes| TreeFile {
        bytes,
        mode: 0o644,
        entry: None,
    });
    let file = prop_oneof![4 => entry_file(), 1 => unseen];
    let mode = select(&[0o600, 0o640, 0o644, 0o444][..]);
    let place = (select(&DIRECTORIES[..]), 0..4_usize);
    btree_map(place, (file, mode), 2..9).prop_map(|files| {
        let files = files
            .into_iter()
            .map(|((directory, number), (file, mode))| {
                let path = Path::new(directory).join(format!("{}.md", entry_id(number)));
                (path, TreeFile { mode, ..file })
            });
        files.collect()
    })
}

fn operation() -> impl Strategy<Value = RandomOperation> {
    let id = || (0..5_usize).prop_map(|number| ("id", entry_id(number)));
    let place = || {
        let agent = || select(&["v", "w", "new"][..]).prop_map(|it| ("agent-id", it.to_string()));
        let scope = |name: &str| Just(("scope", name.to_string()));
        let run = Just(("run-id", "r1".to_string()));
        prop_oneof![
            scope("global").prop_map(|it| vec![it]),
            (scope("agent"), agent()).prop_map(|(scope, agent)| vec![scope, agent]),
            (scope("run"), agent(), run).prop_map(|(scope, agent, run)| vec![scope, agent, run]),
        ]
    };
    let put = (
        place(),
        line_of_text(),
        line_of_text(),
        proptest::option::weighted(0.8, id()),
    )
        .prop_map(|(mut arguments, summary, body, id)| {
            let kind = "project".to_string();
            arguments.extend([("kind", kind), ("summary", summary), ("body", body)]);
            arguments.extend(id);
            ("put", arguments)
        });
    let moved = (place(), id()).prop_map(|(mut arguments, id)| {
        arguments.push(id);
        ("move", arguments)
    });
    prop_oneof![
        2 => put,
        1 => id().prop_map(|id| ("forget", vec![id])),
        1 => moved,
    ]
}

/// A world whose agent has these files.
fn world_with(files: &TreeFiles) -> World {
    let mut world = World::new(&[]);
    let directory = world.agent_directory(AGENT);
    let lines = format!("layout = drover\nmemory_dir = {}", directory.display());
    world.add_agent(AGENT, &lines);
    for (path, file) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &file.bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).unwrap();
    }
    world
}

/// Returns names, bytes and modes of everything below the directory of the agent.
fn read_modes_and_bytes(world: &World) -> BTreeMap<PathBuf, (Option<Vec<u8>>, u32)> {
    let root = world.agent_directory(AGENT);
    let with_mode = |(path, bytes): (PathBuf, _)| {
        let mode = permission_bits(&root.join(&path));
        (path, (bytes, mode))
    };
    read_tree(&root).into_iter().map(with_mode).collect()
}

/// Returns the file that agents see of an id.
fn seen_file<'f>(files: &'f TreeFiles, id: &str) -> Option<&'f TreeFile> {
    let has_id = |file: &TreeFile| file.entry.as_ref().is_some_and(|(its, _)| its == id);
    let of_directory = |directory: &&str| {
        let mut inside = files
            .iter()
            .filter(|(path, _)| path.parent() == Some(Path::new(directory)));
        inside.rfind(|(_, file)| has_id(file))
    };
    let last = DIRECTORIES.iter().rev().find_map(of_directory);
    last.map(|(_, file)| file)
}

/// Applies an operation and undoes it, and checks both. Returns the outcome, if it is not refused.
fn check_operation(
    world: &World,
    files: &TreeFiles,
    (name, arguments): &RandomOperation,
) -> Result<Option<&'static str>, TestCaseError> {
    let engine = world.engine();
    let before = read_modes_and_bytes(world);
    let arguments = arguments.iter();
    let request = OperationRequest {
        operation: name.to_string(),
        arguments: arguments
            .map(|(name, value)| (name.to_string(), vec![value.clone()]))
            .collect(),
        now: engine.clock().now(),
    };
    let planned = engine.layouts().plan(AGENT, &request, false);
    prop_assert_eq!(&read_modes_and_bytes(world), &before);
    let OperationPlan { operation, plan } = match planned {
        Ok(planned) if planned.operation.edits.is_empty() => return Ok(None),
        Ok(planned) => planned,
        Err(PlanFailure::Refused(_)) => return Ok(None),
        Err(PlanFailure::Failed(error)) => panic!("{request:?}: {error}"),
    };
    apply_plan(&engine, &plan).assert_ok();
    let after = read_modes_and_bytes(world);
    let id = operation.facts["id"].as_str().unwrap();
    let written = operation.facts["path"].as_str().map(Path::new);
    for (path, file) in files {
        let is_meant = file.entry.as_ref().is_some_and(|(its, _)| its == id);
        let is_replaced = written == Some(path);
        if !is_meant && !is_replaced {
            prop_assert_eq!(after.get(path), before.get(path), "{:?}", path);
        }
        if is_meant && !is_replaced {
            prop_assert!(!after.contains_key(path), "{:?}", path);
        }
        prop_assert!(file.entry.is_none() || is_meant || !is_replaced);
    }
    if let Some(path) = written {
        let (bytes, mode) = &after[path];
        let text = String::from_utf8(bytes.clone().unwrap()).unwrap();
        let seen = seen_file(files, id);
        let lines = seen.and_then(|file| file.entry.as_ref());
        let expected = format!("\n{}---\n\n", lines.map_or("", |(_, lines)| lines));
        prop_assert!(text.contains(&expected), "{}", text);
        // What the file at the path and the one that agents saw have in common.
        let old = [files.get(path), seen].into_iter().flatten();
        let common = old.map(|file| file.mode).reduce(|one, other| one & other);
        prop_assert_eq!(*mode, common.unwrap_or(*mode));
    }
    let is_new = |path: &&PathBuf| !before.contains_key(*path) && after[*path].0.is_some();
    let new = after.keys().filter(is_new).map(PathBuf::as_path);
    prop_assert!(new.eq(written.filter(|path| !before.contains_key(*path))));
    world.undo(AGENT, UndoMode::Refuse).assert_ok();
    prop_assert_eq!(&read_modes_and_bytes(world), &before);
    Ok(Some(operation.outcome))
}

#[test]
fn undo_of_any_operation_restores_the_tree() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let outcomes = std::cell::RefCell::new(BTreeMap::<&str, usize>::new());
    let cases = (tree_files(), vec(operation(), 1..6));
    let result = runner.run(&cases, |(files, operations)| {
        let world = world_with(&files);
        for operation in &operations {
            if let Some(outcome) = check_operation(&world, &files, operation)? {
                *outcomes.borrow_mut().entry(outcome).or_default() += 1;
            }
        }
        Ok(())
    });
    result.unwrap();
    // A failure to generate what can be done would pass for a property.
    let outcomes = outcomes.into_inner();
    let names: Vec<&str> = outcomes.keys().copied().collect();
    assert_eq!(
        names,
        ["created", "moved", "removed", "updated"],
        "{outcomes:?}"
    );
}
