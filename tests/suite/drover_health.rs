//! What `health` of the layout `drover` finds: each fault of an entry, a file or a directory by the name
//! of its check.

use std::fs;

use serde_json::json;

use super::drover_entries::{BODY, EntryScope, entry_text, entry_with_body};
use super::drover_fixture::{AGENT_ID, Entries, NEW_ID, RUN_ID};

/// The lines of an entry without faults.
const LINES: &str = "scope: global\nkind: user\nsummary: text\n";

/// Returns the text of an entry without faults.
fn healthy_text() -> String {
    entry_text(NEW_ID, LINES)
}

/// Returns that text with one more line in its mapping.
fn with_line(line: &str) -> String {
    entry_text(NEW_ID, &format!("{LINES}{line}\n"))
}

/// Returns that text with a replacement.
fn replaced(old: &str, new: &str) -> String {
    healthy_text().replace(old, new)
}

/// Asserts for each check that it finds a file with this text in this directory.
fn assert_found_in(cases: &[(&str, &str, String)]) {
    let entries = Entries::new();
    for (check, directory, text) in cases {
        let path = entries.write_text(directory, NEW_ID, text);
        let expected = (check.to_string(), format!("{directory}/{NEW_ID}.md"));
        let found = entries.findings();
        assert!(found.contains(&expected), "{check}: {found:?}");
        fs::remove_file(path).unwrap();
    }
}

/// Asserts for each check that it finds a global entry with this text.
fn assert_found<const N: usize>(cases: [(&str, String); N]) {
    assert_found_in(&cases.map(|(check, text)| (check, "global", text)));
}

#[test]
fn healthy_entries_have_no_findings() {
    let (code, health) = Entries::new().json(&["health"]);
    let found = (code, &health["worst"]);
    assert_eq!(found, (Some(0), &json!("ok")), "{health}");
}

#[test]
fn fault_of_id_or_scope_is_found() {
    let of_agent = EntryScope::Agent("v").mapping_lines("user", "text");
    let of_run = EntryScope::Run("r2").mapping_lines("user", "text");
    assert_found_in(&[
        (
            "unloadable",
            "global",
            entry_text(NEW_ID, &EntryScope::Global.mapping_lines("x", "s")),
        ),
        ("id-mismatch", "global", entry_text(RUN_ID, LINES)),
        ("scope-mismatch", "agents/w", healthy_text()),
        ("agent-mismatch", "agents/w", entry_text(NEW_ID, &of_agent)),
        ("run-mismatch", "runs/r1", entry_text(NEW_ID, &of_run)),
    ]);
}

#[test]
fn fault_of_a_time_is_found() {
    let created = "1700000000000";
    assert_found([
        ("time-order", with_line("updatedAt: 1600000000000")),
        ("time-future", with_line("updatedAt: 1800000000000")),
        ("time-old", replaced(created, "\"2026-01-01\"")),
        ("ulid-time", replaced(created, "1600000000000")),
    ]);
}

#[test]
fn fault_of_a_summary_is_found() {
    assert_found([
        ("summary-long", replaced("text", &"x".repeat(201))),
        ("summary-multiline", replaced("text", "|-\n  a\n  b")),
        ("summary-blank", replaced("text", "\"  \"")),
    ]);
}

#[test]
fn fault_of_a_body_is_found() {
    assert_found([
        ("body-long", replaced("a reason", &"x".repeat(4001))),
        ("body-blank", replaced(BODY, "")),
        ("body-shape", replaced("**Why:**", "why")),
        ("line-ends", replaced("\n", "\r\n")),
        ("control", replaced("a reason", "a\u{1}b")),
        ("secret", replaced("a reason", "AKIAQ3EGT4RSNYUZ7XWP")),
    ]);
}

#[test]
fn fault_of_a_tag_is_found() {
    let many = "tags: [a1,b1,c1,d1,e1,f1,g1,h1,i1,j1,k1,l1,m1]";
    assert_found([
        ("tags-many", with_line(many)),
        ("tags-case", with_line("tags: [Style]")),
        ("tags-unboostable", with_line("tags: [code-review]")),
        ("instructions-stale", with_line("tags: [instructions]")),
    ]);
}

#[test]
fn entry_that_repeats_another_is_found() {
    let restated = EntryScope::Agent("w").mapping_lines("user", "Likes tea!");
    assert_found_in(&[
        ("near-duplicate", "global", replaced("text", "likes tea")),
        ("restates-global", "agents/w", entry_text(NEW_ID, &restated)),
    ]);
}

/// Entries with files and directories that have a fault apart from their text.
fn faulty_tree() -> Entries {
    let entries = Entries::new();
    let text = [healthy_text().as_bytes(), b"\xff"].concat();
    fs::write(entries.path("global", NEW_ID), text).unwrap();
    fs::create_dir(entries.root().join("agents/a b")).unwrap();
    entries.write_text("global", "notes", "text\n");
    entries.write_text("agents/z", AGENT_ID, &entries.read("agents/w", AGENT_ID));
    for number in 0..30 {
        let id = format!("01HF7YAT00GGGGGGGGGGGGGG{number:02}");
        let summary = format!("number {number} alone");
        let lines = EntryScope::Global.mapping_lines("user", &summary);
        entries.write("global", &id, &lines);
    }
    let lines = EntryScope::Run("old").mapping_lines("user", "of old");
    let lines = format!("{lines}createdAt: 1690000000000\n");
    entries.write_text("runs/old", RUN_ID, &entry_with_body(RUN_ID, &lines, BODY));
    entries
}

#[test]
fn fault_of_a_file_or_directory_is_found() {
    let found = faulty_tree().findings();
    for (check, path) in [
        ("run-old", "runs/old"),
        ("utf8", &format!("global/{NEW_ID}.md")),
        ("bad-directory", "agents/a b"),
        ("bad-name", "global/notes.md"),
        ("duplicate-id", &format!("agents/z/{AGENT_ID}.md")),
        ("index-overflow", "global"),
    ] {
        let expected = (check.to_string(), path.to_string());
        assert!(found.contains(&expected), "{check}: {found:?}");
    }
}
