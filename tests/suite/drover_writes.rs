//! What put, forget and move of the layout `drover` do on a directory and without a config: their
//! replies, the files that they leave, and what they refuse.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::drover_entries::{BODY, EntryScope, put_command};
use super::drover_fixture::{
    AGENT_ID, Entries, GLOBAL_ID, INSTRUCTIONS_ID, NEW_ID, NOW_MS, OTHER_ID,
};
use super::edited_files::read_tree;

#[test]
fn put_creates_an_entry() {
    let entries = Entries::new();
    let put = put_command(EntryScope::Agent("w"), "a: b", BODY);
    let created = entries.assert_outcome(&put, "created");
    assert_eq!(created["created_ms"], NOW_MS);
    let id = created["id"].as_str().unwrap();
    let expected = format!(
        "---\nid: {id}\nscope: agent\nkind: user\nsummary: \"a: b\"\ncreatedAt: {NOW_MS}\nagentId: w\n---\n\n{BODY}\n"
    );
    assert_eq!(entries.read("agents/w", id), expected);
}

#[test]
fn replacing_put_keeps_mode_time_and_unknown_keys() {
    let entries = Entries::new();
    let lines = EntryScope::Agent("w").mapping_lines("user", "s");
    let path = entries.write(
        "agents/w",
        NEW_ID,
        &format!("{lines}extra: [1]\ntags: [x]\n"),
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let put = put_command(EntryScope::Agent("w"), "a: b", BODY);
    let updated = entries.assert_outcome(&[&put[..], &["--id", NEW_ID]].concat(), "updated");
    assert_eq!(updated["updated_ms"], NOW_MS);
    // Tags that are left out go.
    let expected = format!(
        "---\nid: {NEW_ID}\nscope: agent\nkind: user\nsummary: \"a: b\"\ncreatedAt: 1700000000000\nagentId: w\nupdatedAt: {NOW_MS}\nextra: [1]\n---\n\n{BODY}\n"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// Entries of which one is that of an instruction file.
fn entries_with_instructions() -> Entries {
    let entries = Entries::new();
    let lines = EntryScope::Global.mapping_lines("reference", "s");
    let lines = format!("{lines}tags: [instructions]\n");
    entries.write("global", INSTRUCTIONS_ID, &lines);
    entries
}

/// Returns the arguments of a global put; these replace its own.
fn put_with<'a>(given: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["put"];
    let defaults = [
        ("--scope", "global"),
        ("--kind", "user"),
        ("--summary", "s"),
        ("--body", "b"),
    ];
    for (name, value) in defaults {
        if !given.contains(&name) {
            arguments.extend([name, value]);
        }
    }
    arguments.extend(given);
    arguments
}

/// Asserts that puts are refused in the words of agents, and change nothing.
fn assert_puts_refused(cases: &[(&[&str], &str, &str)]) {
    let entries = entries_with_instructions();
    let before = read_tree(entries.root());
    for (given, reason, message) in cases {
        let arguments = put_with(given);
        let said = entries.assert_refused(&arguments, reason);
        assert!(said.contains(message), "{said}");
        let ran = entries.run(&arguments);
        let failed = format!("remember failed: {said}\n");
        assert_eq!(String::from_utf8(ran.stderr).unwrap(), failed);
        assert_eq!(read_tree(entries.root()), before, "{given:?}");
    }
}

#[test]
fn put_in_a_wrong_place_is_refused() {
    let short_id = "id must be a 26-char ULID (got 'x')";
    let (agent, run) = (["--scope", "agent"], ["--scope", "run", "--agent-id", "w"]);
    let parent = ["--scope", "agent", "--agent-id", "../w"];
    let of_another = ["--id", AGENT_ID, "--agent-id", "v"];
    assert_puts_refused(&[
        (&["--id", "x", "--scope", "agent"], "invalid_id", short_id),
        (&agent, "invalid_scope", "scope 'agent' requires agentId"),
        (&run, "invalid_scope", "scope 'run' requires runId"),
        (&parent, "path_escape", "agentId must match"),
        (&of_another, "not_owned", "owned by a different agent"),
        (
            &["--id", INSTRUCTIONS_ID],
            "read_only",
            "Edit the file on disk instead",
        ),
    ]);
}

#[test]
fn put_of_an_invalid_text_is_refused() {
    let long = "x".repeat(4001);
    let kinds = "kind must be one of user, feedback, project, reference (got 'x')";
    let cases: [(&[&str], &str); 6] = [
        (
            &["--summary", "", "--kind", "x"],
            "summary must be 1-200 chars (got 0)",
        ),
        (&["--body", &long], "body must be 1-4000 chars (got 4001)"),
        (&["--kind", "x"], kinds),
        (&["--summary", " "], "summary must not be blank"),
        (&["--summary", "a\nb"], "summary must be one line"),
        (&["--tag", ""], "a tag must not be empty"),
    ];
    assert_puts_refused(&cases.map(|(given, message)| (given, "io", message)));
}

#[test]
fn reference_may_be_longer_than_other_entries() {
    let entries = Entries::new();
    let long = "x".repeat(4001);
    entries.text(&put_with(&["--kind", "reference", "--body", &long]));
}

#[test]
fn entry_that_no_instruction_file_has_may_be_put() {
    let entries = entries_with_instructions();
    let root = entries.root().to_str().unwrap();
    let reference = [
        "--kind",
        "reference",
        "--id",
        INSTRUCTIONS_ID,
        "--cwd",
        root,
    ];
    entries.text(&put_with(&reference));
}

#[test]
fn forget_removes_every_file_with_the_id() {
    let entries = Entries::new();
    // A raced move leaves two.
    let twin = entries.write_text("global", AGENT_ID, &entries.read("agents/w", AGENT_ID));
    let refused = entries.run(&["forget", AGENT_ID, "--agent-id", "v"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    let expected = format!("cannot forget '{AGENT_ID}' — owned by a different agent.\n");
    assert_eq!(said, expected);
    let forgot = entries.text(&["forget", AGENT_ID, "--agent-id", "w"]);
    assert_eq!(forgot, format!("forgot memory '{AGENT_ID}'.\n"));
    assert!(!twin.exists() && !entries.path("agents/w", AGENT_ID).exists());
    let unknown = entries.text(&["forget", AGENT_ID]);
    assert_eq!(unknown, format!("no memory '{AGENT_ID}' to forget.\n"));
    let (_, removed) = entries.json(&["forget", GLOBAL_ID]);
    let expected = json!({"schema": "memory-shepherd/1", "id": GLOBAL_ID, "removed": true});
    assert_eq!(removed, expected);
}

#[test]
fn move_changes_scope_and_directory() {
    let entries = Entries::new();
    entries.assert_outcome(&["move", AGENT_ID, "--scope", "global"], "moved");
    assert!(!entries.path("agents/w", AGENT_ID).exists());
    let text = entries.read("global", AGENT_ID);
    assert!(text.contains("scope: global\n") && text.contains(&format!("updatedAt: {NOW_MS}\n")));
    assert!(text.ends_with(&format!("\n\n{BODY}\n")));
}

#[test]
fn move_without_a_run_or_valid_text_is_refused() {
    let entries = Entries::new();
    entries.assert_refused(&["move", OTHER_ID, "--scope", "run"], "invalid_scope");
    let path = entries.path("agents/v", OTHER_ID);
    let bytes = [&fs::read(&path).unwrap()[..], b"\xff\n"].concat();
    fs::write(&path, &bytes).unwrap();
    entries.assert_refused(&["move", OTHER_ID, "--scope", "global"], "io");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn move_gives_an_entry_to_another_agent() {
    let entries = Entries::new();
    let to_w = ["move", OTHER_ID, "--scope", "agent", "--to-agent", "w"];
    entries.assert_refused(&[&to_w[..], &["--agent-id", "w"]].concat(), "not_owned");
    entries.assert_outcome(&to_w, "moved");
    assert!(entries.path("agents/w", OTHER_ID).exists());
    assert!(!entries.path("agents/v", OTHER_ID).exists());
    assert_eq!(entries.json(&["show", OTHER_ID]).1["agent_id"], "w");
}

#[test]
fn young_run_directory_is_kept_and_no_other_left() {
    let entries = Entries::new();
    // An old one goes. The run of a young one may begin right now.
    let left = entries.root().join(format!(".shepherd-{}", "0".repeat(32)));
    fs::create_dir(&left).unwrap();
    entries.text(&["forget", GLOBAL_ID]);
    assert!(left.exists());
    let names = fs::read_dir(entries.root()).unwrap().flatten();
    let dotted = names.filter(|it| it.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(dotted.count(), 1, "nothing else is left");
}
