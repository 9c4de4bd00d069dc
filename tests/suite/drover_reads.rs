//! What the reading verbs of the layout `drover` answer on a directory and without a config: list,
//! recall, index and instructions.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::drover_entries::{BODY, EntryScope, put_with_id_command};
use super::drover_fixture::{AGENT_ID, Entries, GLOBAL_ID, INSTRUCTIONS_ID, OTHER_ID, RUN_ID};
use super::edited_files::read_tree;

#[test]
fn list_of_an_agent_has_the_entries_of_its_view() {
    let entries = Entries::new();
    let in_run = ["list", "--agent-id", "w", "--run-id", "r1"];
    let cases: [(&[&str], &[&str]); 3] = [
        (&["list"], &[GLOBAL_ID, OTHER_ID, AGENT_ID, RUN_ID]),
        (&["list", "--agent-id", "w"], &[GLOBAL_ID, AGENT_ID]),
        (&in_run, &[GLOBAL_ID, AGENT_ID, RUN_ID]),
    ];
    for (arguments, ids) in cases {
        assert_eq!(entries.ids(arguments), ids, "{arguments:?}");
    }
    let (_, listed) = entries.json(&["list", "--agent-id", "w"]);
    assert_eq!(listed["view"], "agent");
    assert_eq!(listed["scopes"], json!(["global", "agent"]));
    let path = format!("agents/w/{AGENT_ID}.md");
    assert_eq!(listed["entries"][1]["path"], path);
}

#[test]
fn list_is_filtered_by_scope_kind_and_tag() {
    let entries = Entries::new();
    let run_of_agent = ["list", "--agent-id", "w", "--scope", "run"];
    assert!(entries.ids(&run_of_agent).is_empty());
    let one_project = ["list", "--kind", "project", "--limit", "1"];
    assert_eq!(entries.ids(&one_project), [OTHER_ID]);
    assert_eq!(entries.ids(&["list", "--tag", "STYLE"]), [GLOBAL_ID]);
    let of_agent = entries.text(&["list", "--scope", "agent", "--agent-id", "w"]);
    let line = format!("{AGENT_ID} [agent · feedback] short answers\n");
    assert_eq!(of_agent, line);
    for wrong in [["list", "--agent-id", ""], ["list", "--kind", "other"]] {
        assert_eq!(entries.run(&wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn recall_ranks_and_prints_as_agents_are_answered() {
    let entries = Entries::new();
    let (_, found) = entries.json(&["recall", "tea style", "--agent-id", "w"]);
    assert_eq!(found["mode"], "bm25");
    assert_eq!(found["hits"][0]["id"], GLOBAL_ID);
    assert!(
        entries.ids(&["recall", "the of"]).is_empty(),
        "stop words only"
    );
    assert_eq!(entries.ids(&["recall", "", "--limit", "1"]), [GLOBAL_ID]);
    let none = "(no memories matched in scopes: global, agent)\n";
    assert_eq!(entries.text(&["recall", "zebra", "--agent-id", "w"]), none);
    let text = entries.text(&["recall", "answers", "--agent-id", "w"]);
    let beginning = "## Recalled (1 entries, scopes: global, agent)\n\n\
                     ### [agent · feedback] short answers\nscore: ";
    assert!(text.starts_with(beginning), "{text}");
    let ending = format!(" · id: {AGENT_ID}\n\n{BODY}\n");
    assert!(text.ends_with(&ending), "{text}");
}

#[test]
fn better_recall_finds_words_of_other_scripts() {
    let entries = Entries::new();
    // Neither the tag of two words nor the summary is a word of the default ranking.
    let lines = EntryScope::Global.mapping_lines("user", "茶を飲む");
    let lines = format!("{lines}tags:\n  - code-review\n");
    entries.write("global", INSTRUCTIONS_ID, &lines);
    assert!(entries.ids(&["recall", "茶"]).is_empty());
    let better = entries.ids(&["recall", "茶", "--better"]);
    assert_eq!(better, [INSTRUCTIONS_ID]);
}

#[test]
fn index_is_cut_at_its_limits() {
    let entries = Entries::new();
    let lines = EntryScope::Global.mapping_lines("project", "newer");
    let lines = format!("{lines}updatedAt: 1700000000001\n");
    entries.write("global", INSTRUCTIONS_ID, &lines);
    let (_, index) = entries.json(&["index", "--agent-id", "w"]);
    let text = index["text"].as_str().unwrap();
    assert!(text.starts_with("\n## Recalled memory\n\n"), "{text}");
    let ending = "\n\n### Global\n- [project] newer\n- [user] likes tea\n\n### Agent (w)\n- [feedback] short answers";
    assert!(text.ends_with(ending), "{text}");
    let shown = json!([INSTRUCTIONS_ID, GLOBAL_ID, AGENT_ID]);
    assert_eq!(index["shown"], shown);
    assert_eq!(entries.text(&["index", "--agent-id", "w"]), text);
    let (_, index) = entries.json(&["index", "--agent-id", "w", "--max-entries", "1"]);
    let cut = json!([GLOBAL_ID, AGENT_ID]);
    assert_eq!(index["cut"], cut, "global entries come first");
    assert_eq!(Entries::empty().text(&["index"]), "");
}

#[test]
fn instructions_are_those_from_the_repository_down() {
    let project = tempfile::tempdir().unwrap();
    let root = project.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("a/b/.keep")).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    fs::write(root.join("AGENTS.md"), "\nroot rules\n").unwrap();
    fs::write(root.join("a/CLAUDE.md"), "x".repeat(16_385)).unwrap();
    fs::create_dir(root.join("a/b/AGENTS.md")).unwrap();
    let entries = Entries::new();
    let cwd = root.join("a/b");
    let [root_text, cwd_text] = [&root, &cwd].map(|path| path.to_str().unwrap());
    let (_, chain) = entries.json(&["instructions", "--cwd", cwd_text]);
    assert_eq!(chain["root"], root_text);
    let files = chain["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(files[0]["content"], "root rules");
    let id = entries.text(&["id", "--path", root.join("AGENTS.md").to_str().unwrap()]);
    assert_eq!(format!("{}\n", files[0]["stable_id"].as_str().unwrap()), id);
    let second = (&files[1]["relative_dir"], &files[1]["truncated"]);
    assert_eq!(second, (&json!("a"), &json!(true)));
    let cut = "xxx\n\n[...truncated — file exceeds 16384 bytes]";
    assert!(files[1]["content"].as_str().unwrap().ends_with(cut));
    let text = chain["text"].as_str().unwrap();
    assert!(text.starts_with("\n## Project instructions\n\n"));
    assert!(text.contains("\n### (repo root) — AGENTS.md\n\nroot rules\n\n### a — CLAUDE.md\n\n"));
    // A root that is not above the directory leaves the directory alone.
    let elsewhere = ["instructions", "--cwd", root_text, "--root", cwd_text];
    let (_, chain) = entries.json(&elsewhere);
    assert_eq!(chain["files"][0]["relative_dir"], "../..");
}

#[test]
fn reads_and_refused_writes_change_nothing() {
    let entries = Entries::new();
    let target = entries.root().join("target");
    fs::write(&target, "of another\n").unwrap();
    symlink(&target, entries.path("global", OTHER_ID)).unwrap();
    let before = read_tree(entries.root());
    let root = entries.root().to_str().unwrap();
    let put = put_with_id_command(OTHER_ID, EntryScope::Global, "s", "b");
    for verb in [
        &["list"][..],
        &["show", GLOBAL_ID],
        &["show", "unknown"],
        &["recall", "tea"],
        &["index", "--agent-id", "w"],
        &["instructions", "--cwd", root],
        &["health"],
        &["forget", "unknown"],
        &[&put[..], &["--agent-id", "v"]].concat(),
    ] {
        entries.run(verb);
        assert_eq!(read_tree(entries.root()), before, "{verb:?}");
    }
}

#[test]
fn refused_put_creates_no_directory() {
    let entries = Entries::new();
    let absent = entries.root().join("absent");
    // It does not say which agent's entry it is.
    let put = "put --scope agent --kind user --summary s --body b --dir";
    let arguments = put.split(' ').chain(absent.to_str());
    let ran = entries.run(&arguments.collect::<Vec<_>>());
    assert_eq!(ran.status.code(), Some(1));
    assert!(!absent.exists());
}
