//! Operations on the entries of an agent of a fleet: each is planned, applied as planned, and undone.

use std::fs;

use serde_json::{Value, json};

use super::drover_entries::{
    EntryScope, entry_text, parse_reply, put_command, put_with_id_command, write_entry,
};
use super::drover_fixture::{AGENT_ID, GLOBAL_ID, INSTRUCTIONS_ID, OTHER_ID, WebEntries};
use super::edited_files::{Tree, read_tree};

/// Entries of `web`, of which the agent `w` has three: one has a twin among the global entries, one is
/// of an instruction file, and one has the id of a global entry.
fn entries_of_web() -> WebEntries {
    let web = WebEntries::new();
    let entries = &web.entries;
    entries.write_text("global", AGENT_ID, &entries.read("agents/w", AGENT_ID));
    let of_w = |kind, summary| EntryScope::Agent("w").mapping_lines(kind, summary);
    let instructions = format!("{}tags: [instructions]\n", of_w("reference", "s"));
    entries.write("agents/w", INSTRUCTIONS_ID, &instructions);
    entries.write("agents/w", GLOBAL_ID, &of_w("user", "extra"));
    web
}

/// Runs a verb of `memory` for an operation, at the time of this machine.
fn run_operation(web: &WebEntries, verb: &str, words: &[&str]) -> (Option<i32>, Value) {
    parse_reply(&web.run(&[&["memory", "web", verb], words, &["--json"]].concat()))
}

/// Plans and applies an operation that must have an outcome and a number of writes. Returns the tree from
/// before.
fn plan_and_apply(web: &WebEntries, operation: &[&str], outcome: &str, writes: usize) -> Tree {
    let root = web.entries.root();
    let before = read_tree(root);
    let (code, planned) = run_operation(web, "plan", operation);
    assert_eq!((code, &planned["outcome"]), (Some(0), &json!(outcome)));
    let planned_writes = planned["writes"].as_array().unwrap();
    assert_eq!(planned_writes.len(), writes, "{planned}");
    assert_eq!(read_tree(root), before, "a plan changes nothing");
    let hash = planned["plan"].as_str().unwrap();
    let words = [operation, &["--plan", hash]].concat();
    let (code, applied) = run_operation(web, "apply", &words);
    let found = (code, &applied["outcome"]);
    assert_eq!(found, (Some(0), &json!(outcome)), "{applied}");
    assert!(applied["run"].is_string());
    assert_ne!(read_tree(root), before);
    before
}

#[test]
fn operation_of_an_agent_is_planned_and_undone() {
    let web = entries_of_web();
    let new = put_command(EntryScope::Global, "s", "b");
    let replacement = put_with_id_command(AGENT_ID, EntryScope::Agent("w"), "s", "b");
    let operations: [(&[&str], &str, usize); 4] = [
        (&new, "created", 1),
        (&replacement, "updated", 2),
        (&["forget", AGENT_ID], "removed", 2),
        (&["move", OTHER_ID, "--scope", "global"], "moved", 2),
    ];
    for (operation, outcome, writes) in operations {
        let before = plan_and_apply(&web, operation, outcome, writes);
        web.undo();
        assert_eq!(read_tree(web.entries.root()), before, "{operation:?}");
    }
}

#[test]
fn reset_to_a_record_is_planned_and_undone() {
    let web = entries_of_web();
    let lines = EntryScope::Agent("w").mapping_lines("user", "recorded");
    let recorded = entry_text(AGENT_ID, &lines);
    write_entry(web.fleet.path(), "record", AGENT_ID, &recorded);
    let record = web.fleet.path().join("record");
    let reset = ["reset", "--to", record.to_str().unwrap(), "--agent-id", "w"];
    let before = plan_and_apply(&web, &reset, "reset", 2);
    let entries = &web.entries;
    assert!(entries.path("agents/w", INSTRUCTIONS_ID).exists());
    assert!(!entries.path("agents/w", GLOBAL_ID).exists());
    assert_eq!(entries.read("agents/w", AGENT_ID), recorded);
    web.undo();
    assert_eq!(read_tree(entries.root()), before);
}

#[test]
fn reset_to_an_absent_record_is_refused() {
    let web = entries_of_web();
    let reset = ["memory", "web", "plan", "reset", "--agent-id", "w", "--to"];
    let ran = web.run(&[&reset[..], &["absent"]].concat());
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("absent does not exist"), "{said}");
    // A relative path begins at the working directory.
    fs::create_dir(web.entries.root().join("here")).unwrap();
    let ran = web.run(&[&reset[..], &["here"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

#[test]
fn apply_of_an_outdated_plan_is_refused() {
    let web = entries_of_web();
    let (_, planned) = run_operation(&web, "plan", &["forget", OTHER_ID]);
    // What the plan is bound to has moved.
    let own = web.entries.read("agents/w", AGENT_ID);
    let other = own.replace(AGENT_ID, OTHER_ID);
    let path = web.entries.write_text("agents/v", OTHER_ID, &other);
    let hash = planned["plan"].as_str().unwrap();
    let apply = ["memory", "web", "apply", "forget", OTHER_ID, "--plan", hash];
    assert_eq!(web.run(&apply).status.code(), Some(6));
    assert!(path.exists());
}
