//! Operations on files that agents do not see, or that lie where they do not belong, and on old runs.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::drover_entries::{BODY, EntryScope, entry_text, put_with_id_command};
use super::drover_fixture::{AGENT_ID, Entries, GLOBAL_ID, NEW_ID, OTHER_ID, RUN_ID};
use super::edited_files::read_tree;

/// Writes a file of the agent `w`, whose name has [`NEW_ID`]; returns its path.
fn write_faulty(entries: &Entries, text: &str) -> PathBuf {
    entries.write_text("agents/w", NEW_ID, text)
}

/// Returns the command line that repairs that file.
fn repair_command<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["repair", NEW_ID], arguments].concat()
}

/// Repairs that file without more arguments.
fn repair(entries: &Entries) -> (Option<i32>, Value) {
    entries.json(&repair_command(&[]))
}

/// A file that agents do not see, and its repair.
struct Repair {
    reason: &'static str,
    text: String,
    arguments: &'static [&'static str],
    /// The summary of the repaired entry.
    summary: &'static str,
}

/// Returns repairs for each reason. The text of each has the body, and a key that is kept.
fn repairs() -> Vec<Repair> {
    let mapping = format!("id: {NEW_ID}\nkind: user\nsummary: s\ncreatedAt: 5\nx-note: kept\n");
    let file = |mapping: &str| format!("---\n{mapping}---\n\n{BODY}\n");
    let replaced = |old: &str, new: &str| file(&mapping.replace(old, new));
    let with_line = |line: &str| file(&format!("{mapping}{line}\n"));
    let repair = |reason, text, summary| Repair {
        reason,
        text,
        arguments: &[],
        summary,
    };
    let plover = replaced(": s\n", ": plover: silent\n");
    vec![
        repair("bom", format!("\u{feff}{}", file(&mapping)), "s"),
        repair("yaml", plover, "plover: silent"),
        repair("yaml", with_line("summary: s"), "s"),
        repair("id", replaced(NEW_ID, "7"), "s"),
        repair("scope", with_line("scope: Agent"), "s"),
        repair("summary", replaced(": s\n", ": 48\n"), "48"),
        repair("created", replaced("createdAt: 5\n", ""), "s"),
        Repair {
            arguments: &["--kind", "project"],
            ..repair("kind", replaced("kind: user\n", ""), "s")
        },
        Repair {
            arguments: &["--kind", "user", "--summary", "t"],
            ..repair("no-fence", format!("{BODY}\nx-note: kept\n"), "t")
        },
    ]
}

#[test]
fn repaired_file_is_seen_and_keeps_its_body() {
    for Repair {
        reason,
        text,
        arguments,
        summary,
    } in repairs()
    {
        let entries = Entries::new();
        let path = write_faulty(&entries, &text);
        let repaired = entries.assert_outcome(&repair_command(arguments), "repaired");
        assert_eq!(repaired["reason"], reason, "{text}");
        let (code, shown) = entries.json(&["show", NEW_ID]);
        let found = (code, &shown["summary"]);
        assert_eq!(found, (Some(0), &json!(summary)), "{reason}");
        assert_eq!(shown["agent_id"], "w", "{reason}");
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.contains(BODY), "{written}");
        assert!(written.contains("x-note: kept"), "{written}");
        let found = entries.findings();
        let is_unseen =
            |(check, path): &(String, String)| check == "unloadable" && path.contains(NEW_ID);
        assert!(!found.iter().any(is_unseen), "{found:?}");
        entries.assert_outcome(&repair_command(&[]), "unchanged");
    }
}

#[test]
fn misplaced_file_is_moved_as_it_is() {
    let entries = Entries::new();
    // It says that it is another agent's, and has another id than its name.
    let text = format!(
        "---\nid: {OTHER_ID}\nkind: user\nsummary: s\nagentId: u\ncreatedAt: 5\n---\nodd   \n\n"
    );
    let path = write_faulty(&entries, &text);
    fs::remove_file(entries.path("agents/v", OTHER_ID)).unwrap();
    let (code, repaired) = repair(&entries);
    let found = (code, &repaired["reason"]);
    assert_eq!(found, (Some(0), &json!("misplaced")), "{repaired}");
    let moved = entries.path("agents/u", OTHER_ID);
    assert_eq!(fs::read_to_string(moved).unwrap(), text);
    assert!(!path.exists());
}

#[test]
fn repair_shows_no_file_to_more_agents() {
    let entries = Entries::new();
    // Its directory is that of all agents; what it says of itself counts.
    let lines = "id: 7\nkind: user\nsummary: s\nscope: Agent\nagentId: w\ncreatedAt: 5\n";
    let text = format!("---\n{lines}# why\nx-note: kept\n---\nb\n");
    let path = entries.write_text("global", NEW_ID, &text);
    let (code, repaired) = repair(&entries);
    assert_eq!(code, Some(0), "{repaired}");
    assert!(!path.exists());
    let written = fs::read_to_string(entries.path("agents/w", NEW_ID)).unwrap();
    let kept = format!("id: {NEW_ID}\nkind: user\nsummary: s\nscope: agent\nagentId: w\n");
    assert!(written.contains(&kept), "{written}");
    assert!(written.contains("# why\nx-note: kept\n"), "{written}");
}

#[test]
fn moved_file_says_whose_it_is() {
    let entries = Entries::new();
    let lines = "kind: user\nsummary: s\nscope: run\nrunId: r1\ncreatedAt: 5\n";
    let text = format!("---\nid: {NEW_ID}\n{lines}---\nb\n");
    let path = write_faulty(&entries, &text);
    let (code, repaired) = repair(&entries);
    assert_eq!(code, Some(0), "{repaired}");
    assert!(!path.exists());
    // Only the directory said which agent's it is.
    let written = fs::read_to_string(entries.path("runs/r1", NEW_ID)).unwrap();
    assert_eq!(
        written,
        format!("---\nid: {NEW_ID}\n{lines}agentId: w\n---\nb\n")
    );

    let path = entries.write_text("global", NEW_ID, &text);
    fs::remove_file(entries.path("runs/r1", NEW_ID)).unwrap();
    entries.assert_refused(&repair_command(&[]), "invalid_scope");
    assert!(path.exists());
}

#[test]
fn repair_is_refused_where_only_the_operator_knows() {
    let taken = format!("---\nid: {AGENT_ID}\nkind: user\nsummary: s\ncreatedAt: 5\n---\nb\n");
    let cases: [(&[u8], &str); 7] = [
        (b"---\nsummary: s\n---\nb\n", "has no kind (id); give one"),
        (
            b"---\nkind: user\n---\nb\n",
            "has no summary (id); give one",
        ),
        (
            b"---\nkind: user\nsummary: s\nscope: all\n---\nb\n",
            "has no scope that can be read",
        ),
        (
            b"---\nkind: user\nsummary: s\nsummary: t\n---\nb\n",
            "edit it by hand",
        ),
        (b"---\n- [\n---\nb\n", "edit it by hand"),
        (
            b"---\nkind: user\nsummary: \xff\n---\nb\n",
            "is not valid UTF-8",
        ),
        (taken.as_bytes(), "has the id"),
    ];
    for (bytes, why) in cases {
        let entries = Entries::new();
        let path = write_faulty(&entries, "");
        fs::write(&path, bytes).unwrap();
        let before = read_tree(entries.root());
        let (code, refused) = repair(&entries);
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(code, Some(1), "{refused}");
        assert!(message.contains(why), "{message}");
        assert_eq!(read_tree(entries.root()), before);
    }
    let entries = Entries::new();
    entries.write("agents/w", GLOBAL_ID, "kind: user\nsummary: s\n");
    entries.assert_refused(&["repair", GLOBAL_ID], "io");
    assert_eq!(
        entries.json(&["repair", NEW_ID]).1["error"]["reason"],
        "not_found"
    );
}

#[test]
fn operations_lose_nothing_that_agents_do_not_see() {
    let put = put_with_id_command(NEW_ID, EntryScope::Global, "t", "b");
    let forget = ["forget", NEW_ID, "--agent-id", "w"];
    let move_to_run = format!("move {NEW_ID} --scope run --run-id r1 --agent-id w");
    let move_to_run: Vec<&str> = move_to_run.split(' ').collect();
    let of_agent = |id| {
        let lines = EntryScope::Agent(id).mapping_lines("user", "s");
        entry_text(NEW_ID, &lines)
    };
    let (of_v, of_w) = (of_agent("v"), of_agent("w"));
    // An anchor that is written again without its name leaves an unknown key without a value.
    let alias = entry_text(NEW_ID, "kind: user\nsummary: &name s\nx-note: *name\n");
    let (unseen, dangling) = ([("global", "no entry")], [("global", alias.as_str())]);
    let shared = [("agents/w", of_w.as_str()), ("agents/v", of_v.as_str())];
    let cases = [
        (&unseen[..], &put[..], "do not see it"),
        (&dangling, &put, "would not see"),
        (&shared, &forget, "different agent"),
        (&shared, &move_to_run, "different agent"),
    ];
    for (files, arguments, why) in cases {
        let entries = Entries::new();
        for (directory, text) in files {
            entries.write_text(directory, NEW_ID, text);
        }
        let before = read_tree(entries.root());
        let (code, refused) = entries.json(arguments);
        assert_eq!(code, Some(1), "{refused}");
        let said = refused["error"]["message"].as_str().unwrap();
        assert!(said.contains(why), "{said}");
        assert_eq!(read_tree(entries.root()), before);
    }
}

#[test]
fn prune_removes_only_runs_that_are_old() {
    let entries = Entries::new();
    // Entries are from a day before now; one of this run has been replaced since.
    let of_run = EntryScope::Run("r2").mapping_lines("user", "s");
    entries.write("runs/r2", GLOBAL_ID, &of_run);
    let replaced = format!("{of_run}updatedAt: 1700086000000\n");
    entries.write("runs/r2", NEW_ID, &replaced);
    // What agents do not see, and what is another's, stays.
    let unseen = entries.write_text("runs/r1", NEW_ID, "no entry");
    let file = fs::File::options().write(true).open(unseen).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    let of_v = EntryScope::Agent("v").mapping_lines("user", "s");
    entries.write("runs/r1", OTHER_ID, &of_v);
    let before = read_tree(entries.root());
    entries.assert_outcome(&["prune", "--days", "2"], "unchanged");
    assert_eq!(read_tree(entries.root()), before);
    let (code, pruned) = entries.json(&["prune", "--days", "1"]);
    assert_eq!(
        (code, &pruned["runs"]),
        (Some(0), &json!(["r1"])),
        "{pruned}"
    );
    let after = read_tree(entries.root());
    let gone: Vec<&PathBuf> = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .collect();
    assert!(
        gone == [&PathBuf::from(format!("runs/r1/{RUN_ID}.md"))],
        "{gone:?}"
    );
    assert_eq!(entries.json(&["prune", "--days", "0"]).0, Some(2));
}
