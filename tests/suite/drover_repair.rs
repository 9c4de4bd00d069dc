//! Operations on files that agents do not see, or that lie where they do not belong, and on old runs.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use crate::drover::{AGENT_ID, Entries, GLOBAL_ID, OTHER_ID, RUN_ID};
use crate::edited_files::read_tree;
use crate::odd_entries::{BODY, entry_text};

const NEW_ID: &str = "01HF7YAT00FFFFFFFFFFFFFFFF";

/// Writes a file of the agent `w`, whose name has [`NEW_ID`]; returns its path.
fn write_faulty(entries: &Entries, text: &str) -> PathBuf {
    entries.write_text("agents/w", NEW_ID, text)
}

fn repair(entries: &Entries, arguments: &[&str]) -> (Option<i32>, Value) {
    entries.json(&[&["repair", NEW_ID], arguments].concat())
}

#[test]
fn repaired_file_is_seen_and_keeps_its_body() {
    let mapping = format!("id: {NEW_ID}\nkind: user\nsummary: s\ncreatedAt: 5\nx-note: kept\n");
    let cases: [(&str, String, &[&str], Value); 9] = [
        (
            "bom",
            format!("\u{feff}---\n{mapping}---\n\n{BODY}\n"),
            &[],
            json!("s"),
        ),
        (
            "yaml",
            format!(
                "---\n{}---\n\n{BODY}\n",
                mapping.replace(": s\n", ": plover: silent\n")
            ),
            &[],
            json!("plover: silent"),
        ),
        (
            "yaml",
            format!("---\n{mapping}summary: s\n---\n\n{BODY}\n"),
            &[],
            json!("s"),
        ),
        (
            "id",
            format!("---\n{}---\n\n{BODY}\n", mapping.replace(NEW_ID, "7")),
            &[],
            json!("s"),
        ),
        (
            "scope",
            format!("---\n{mapping}scope: Agent\n---\n\n{BODY}\n"),
            &[],
            json!("s"),
        ),
        (
            "summary",
            format!("---\n{}---\n\n{BODY}\n", mapping.replace(": s\n", ": 48\n")),
            &[],
            json!("48"),
        ),
        (
            "created",
            format!(
                "---\n{}---\n\n{BODY}\n",
                mapping.replace("createdAt: 5\n", "")
            ),
            &[],
            json!("s"),
        ),
        (
            "kind",
            format!(
                "---\n{}---\n\n{BODY}\n",
                mapping.replace("kind: user\n", "")
            ),
            &["--kind", "project"],
            json!("s"),
        ),
        (
            "no-fence",
            format!("{BODY}\nx-note: kept\n"),
            &["--kind", "user", "--summary", "t"],
            json!("t"),
        ),
    ];
    for (reason, text, arguments, summary) in cases {
        let entries = Entries::new();
        let path = write_faulty(&entries, &text);
        let (code, repaired) = repair(&entries, arguments);
        assert_eq!(
            (code, &repaired["outcome"]),
            (Some(0), &json!("repaired")),
            "{repaired}"
        );
        assert_eq!(repaired["reason"], reason, "{text}");
        let (code, shown) = entries.json(&["show", NEW_ID]);
        assert_eq!((code, &shown["summary"]), (Some(0), &summary), "{reason}");
        assert_eq!(shown["agent_id"], "w", "{reason}");
        let written = fs::read_to_string(&path).unwrap();
        assert!(
            written.contains(BODY) && written.contains("x-note: kept"),
            "{written}"
        );
        let about = entries
            .findings()
            .into_iter()
            .filter(|(_, path)| path.contains(NEW_ID));
        let about: Vec<String> = about.map(|(check, _)| check).collect();
        assert!(!about.contains(&"unloadable".to_string()), "{about:?}");
        let again = repair(&entries, &[]).1;
        assert_eq!(again["outcome"], "unchanged", "{again}");
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
    let (code, repaired) = repair(&entries, &[]);
    assert_eq!(
        (code, &repaired["reason"]),
        (Some(0), &json!("misplaced")),
        "{repaired}"
    );
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
    let (code, repaired) = repair(&entries, &[]);
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
    let (code, repaired) = repair(&entries, &[]);
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
    let (code, refused) = repair(&entries, &[]);
    assert_eq!(
        (code, &refused["error"]["reason"]),
        (Some(1), &json!("invalid_scope")),
        "{refused}"
    );
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
        let (code, refused) = repair(&entries, &[]);
        let message = refused["error"]["message"].as_str().unwrap();
        assert_eq!(code, Some(1), "{refused}");
        assert!(message.contains(why), "{message}");
        assert_eq!(read_tree(entries.root()), before);
    }
    let entries = Entries::new();
    entries.write("agents/w", GLOBAL_ID, "kind: user\nsummary: s\n");
    let (code, refused) = entries.json(&["repair", GLOBAL_ID]);
    assert_eq!((code, &refused["error"]["reason"]), (Some(1), &json!("io")));
    assert_eq!(
        entries.json(&["repair", NEW_ID]).1["error"]["reason"],
        "not_found"
    );
}

#[test]
fn operations_lose_nothing_that_agents_do_not_see() {
    let put_global = "put --scope global --kind user --summary t --body b --id";
    let put_global = format!("{put_global} {NEW_ID}");
    let forget = format!("forget {NEW_ID} --agent-id w");
    let move_ = format!("move {NEW_ID} --scope run --run-id r1 --agent-id w");
    let lines = "kind: user\nsummary: s\n";
    let of_v = entry_text(NEW_ID, &format!("scope: agent\n{lines}agentId: v\n"));
    let of_w = entry_text(NEW_ID, &format!("scope: agent\n{lines}agentId: w\n"));
    // An anchor that is written again without its name leaves an unknown key without a value.
    let alias = entry_text(NEW_ID, "kind: user\nsummary: &name s\nx-note: *name\n");
    let (unseen, dangling) = ([("global", "no entry")], [("global", alias.as_str())]);
    let shared = [("agents/w", of_w.as_str()), ("agents/v", of_v.as_str())];
    let cases = [
        (&unseen[..], &put_global, "do not see it"),
        (&dangling, &put_global, "would not see"),
        (&shared, &forget, "different agent"),
        (&shared, &move_, "different agent"),
    ];
    for (files, arguments, why) in cases {
        let entries = Entries::new();
        for (directory, text) in files {
            entries.write_text(directory, NEW_ID, text);
        }
        let before = read_tree(entries.root());
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let (code, refused) = entries.json(&arguments);
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
    let kept = "scope: run\nkind: user\nsummary: s\nrunId: r2\nupdatedAt: 1700086000000\n";
    entries.write(
        "runs/r2",
        GLOBAL_ID,
        "scope: run\nkind: user\nsummary: s\nrunId: r2\n",
    );
    entries.write("runs/r2", NEW_ID, kept);
    // What agents do not see, and what is another's, stays.
    let unseen = entries.write_text("runs/r1", NEW_ID, "no entry");
    let file = fs::File::options().write(true).open(unseen).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    entries.write(
        "runs/r1",
        OTHER_ID,
        "scope: agent\nkind: user\nsummary: s\nagentId: v\n",
    );
    let before = read_tree(entries.root());
    let (code, nothing) = entries.json(&["prune", "--days", "2"]);
    assert_eq!((code, &nothing["outcome"]), (Some(0), &json!("unchanged")));
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
