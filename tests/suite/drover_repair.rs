//! Operations on files that agents do not see, or that lie where they do not belong, and on old runs.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::drover::{AGENT_ID, Entries, GLOBAL_ID, OTHER_ID};
use crate::edited_files::read_tree;
use crate::odd_entries::BODY;

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
            format!("---\n{mapping}summary: again\n---\n\n{BODY}\n"),
            &[],
            json!("again"),
        ),
        (
            "id",
            format!("---\n{}---\n\n{BODY}\n", mapping.replace(NEW_ID, "7")),
            &[],
            json!("s"),
        ),
        (
            "scope",
            format!("---\n{mapping}scope: all\n---\n\n{BODY}\n"),
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
fn repair_is_refused_where_only_the_operator_knows() {
    let taken = format!("---\nid: {AGENT_ID}\nkind: user\nsummary: s\ncreatedAt: 5\n---\nb\n");
    let cases: [(&[u8], &str); 5] = [
        (b"---\nsummary: s\n---\nb\n", "has no kind (id): give one"),
        (
            b"---\nkind: user\n---\nb\n",
            "has no summary (id): give one",
        ),
        (b"---\n- [\n---\nb\n", "edit it by hand"),
        (
            b"---\nkind: user\nsummary: \xff\n---\nb\n",
            "is not valid UTF-8",
        ),
        (taken.as_bytes(), "exists, so that two files would hold"),
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
        gone.iter().all(|path| path.starts_with("runs/r1")) && !gone.is_empty(),
        "{gone:?}"
    );
    assert_eq!(entries.json(&["prune", "--days", "0"]).0, Some(2));
}
