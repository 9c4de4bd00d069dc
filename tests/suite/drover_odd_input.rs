//! The layout `drover` on files that its agents do not write: what is shown of them, what a write does
//! with them, and what it refuses.

use serde_json::Value;

use super::drover_entries::{EntryScope, entry_text};
use super::drover_fixture::{Entries, WebEntries};
use super::edited_files::{Tree, read_tree};
use super::odd_entries::{CLAIMED_ID, EntryOperation, ODD_ID, ODD_LINES, odd_files};

fn has_id(found: &[String]) -> bool {
    found.iter().any(|id| id == ODD_ID)
}

#[test]
fn odd_file_is_shown_as_agents_see_it() {
    for odd in odd_files() {
        let web = WebEntries::with_odd_file(&odd.bytes);
        let (entries, name) = (&web.entries, odd.name);
        let is_seen = odd.seen.is_ok();
        let shown = entries.run(&["show", ODD_ID]);
        let expected = odd.seen.as_ref().map(|body| format!("{body}\n"));
        assert_eq!(shown.status.code(), Some(i32::from(!is_seen)), "{name}");
        let stdout = String::from_utf8(shown.stdout).unwrap();
        assert!(stdout == expected.unwrap_or_default(), "{name}");
        assert_eq!(has_id(&entries.ids(&["list"])), is_seen, "{name}");
        let recalled = entries.ids(&["recall", "odd"]);
        assert_eq!(has_id(&recalled), is_seen, "{name}");
        let index = entries.text(&["index"]);
        assert_eq!(index.contains("\n- [user] odd"), is_seen, "{name}");
        // The same for an agent of a config, and the exact bytes.
        let title = odd
            .seen
            .map_or_else(|it| format!("agents do not see it: {it}"), |_| "odd".into());
        assert_eq!(web.titles("global", ODD_ID), [title], "{name}");
        let shown = web.memory(&["show", ODD_ID]);
        assert!(shown.stdout == odd.bytes, "{name}: {:?}", shown.stderr);
        let (_, found) = web.memory_json(&["search", "odd"]);
        assert_eq!(
            found["results"].as_array().unwrap().len(),
            usize::from(is_seen)
        );
    }
}

#[test]
fn health_finds_what_is_wrong_with_an_odd_file() {
    for odd in odd_files() {
        let web = WebEntries::with_odd_file(&odd.bytes);
        let (exit_code, health) = web.entries.json(&["health"]);
        let path = format!("global/{ODD_ID}.md");
        let findings = health["findings"].as_array().unwrap().iter();
        let found: Vec<&Value> = findings.filter(|it| it["path"] == path.as_str()).collect();
        let checks = found.iter().map(|it| it["check"].as_str().unwrap());
        assert_eq!(checks.collect::<Vec<_>>(), odd.checks, "{}", odd.name);
        if let Err(reason) = odd.seen {
            assert_eq!(found[0]["measured"], reason, "{}", odd.name);
        }
        let expected = i32::from(!odd.checks.is_empty());
        assert_eq!(exit_code, Some(expected), "{}", odd.name);
        let (exit_code, of_agent) = web.memory_json(&["health"]);
        assert_eq!(exit_code, Some(expected), "{}", odd.name);
        assert_eq!(of_agent["findings"], health["findings"], "{}", odd.name);
    }
}

/// Returns the tree without the odd file.
fn read_others(entries: &Entries) -> Tree {
    let mut tree = read_tree(entries.root());
    tree.retain(|path, _| !path.ends_with(format!("{ODD_ID}.md")));
    tree
}

#[test]
fn put_on_an_odd_file_replaces_only_what_is_seen() {
    for odd in odd_files() {
        let name = odd.name;
        let entries = WebEntries::with_odd_file(&odd.bytes).entries;
        let (before, others) = (read_tree(entries.root()), read_others(&entries));
        let (_, put) = entries.json(&EntryOperation::Put.command(ODD_ID));
        if odd.seen.is_ok() {
            assert_eq!(put["outcome"], "updated", "{name}: {put}");
            assert_eq!(entries.run(&["health"]).status.code(), Some(0), "{name}");
            assert_eq!(read_others(&entries), others, "{name}");
        } else {
            assert_eq!(put["error"]["reason"], "io", "{name}: {put}");
            assert!(read_tree(entries.root()) == before, "{name}");
        }
    }
}

#[test]
fn move_of_an_odd_file_keeps_its_body_or_is_refused() {
    for odd in odd_files() {
        let name = odd.name;
        let entries = WebEntries::with_odd_file(&odd.bytes).entries;
        let (before, others) = (read_tree(entries.root()), read_others(&entries));
        let moved = entries.run(&EntryOperation::Move.command(ODD_ID));
        let said = String::from_utf8(moved.stderr.clone()).unwrap();
        match odd.move_refusal {
            None => {
                assert_eq!(moved.status.code(), Some(0), "{name}: {said}");
                let text = entries.read("agents/w", ODD_ID);
                let body = format!("---\n\n{}\n", odd.seen.as_ref().unwrap());
                assert!(text.ends_with(&body), "{name}: {text}");
                assert_eq!(read_others(&entries), others, "{name}");
            }
            Some(why) => {
                assert_eq!(moved.status.code(), Some(1), "{name}: {said}");
                assert!(said.contains(why), "{name}: {said}");
                assert!(read_tree(entries.root()) == before, "{name}");
            }
        }
    }
}

#[test]
fn forget_removes_an_odd_file_only_if_it_is_seen() {
    for odd in odd_files() {
        let (name, is_seen) = (odd.name, odd.seen.is_ok());
        let entries = WebEntries::with_odd_file(&odd.bytes).entries;
        let others = read_others(&entries);
        let (_, forgot) = entries.json(&EntryOperation::Forget.command(ODD_ID));
        assert_eq!(forgot["removed"], is_seen, "{name}");
        let is_left = entries.path("global", ODD_ID).exists();
        assert_eq!(is_left, !is_seen, "{name}");
        assert_eq!(read_others(&entries), others, "{name}");
    }
}

#[test]
fn operations_on_an_odd_file_are_undone_exactly() {
    for odd in odd_files() {
        let web = WebEntries::with_odd_file(&odd.bytes);
        let before = read_tree(web.entries.root());
        for operation in EntryOperation::ALL {
            let what = format!("{}, {operation:?}", odd.name);
            let ran = web.apply(&operation.command(ODD_ID));
            let is_changed = read_tree(web.entries.root()) != before;
            let expected = i32::from(odd.is_refused(operation));
            assert_eq!(ran.status.code(), Some(expected), "{what}: {ran:?}");
            assert_eq!(is_changed, odd.is_changed_by(operation), "{what}");
            if is_changed {
                web.undo();
                assert!(read_tree(web.entries.root()) == before, "{what}");
            }
        }
    }
}

#[test]
fn file_with_another_id_is_known_by_that_id() {
    let web = WebEntries::with_odd_file(entry_text(CLAIMED_ID, ODD_LINES).as_bytes());
    let entries = &web.entries;
    let (_, shown) = entries.json(&["show", CLAIMED_ID]);
    assert_eq!(shown["path"], format!("global/{ODD_ID}.md"));
    let before = read_tree(entries.root());
    // By its name it is not known, and the memory that it holds is not lost.
    for (words, expected, said) in [
        (vec!["show", ODD_ID], 1, "no memory"),
        (EntryOperation::Move.command(ODD_ID), 1, "no memory"),
        (EntryOperation::Forget.command(ODD_ID), 0, "no memory"),
        (EntryOperation::Put.command(ODD_ID), 1, CLAIMED_ID),
    ] {
        let ran = entries.run(&words);
        let text = String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap();
        assert_eq!(ran.status.code(), Some(expected), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
        assert_eq!(read_tree(entries.root()), before, "{words:?}");
    }
    // A write under its id leaves no file of it behind.
    for (operation, directory) in [
        (EntryOperation::Put, Some("global")),
        (EntryOperation::Move, Some("agents/w")),
        (EntryOperation::Forget, None),
    ] {
        let ran = web.apply(&operation.command(CLAIMED_ID));
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        assert!(!web.odd_path().exists(), "{operation:?}");
        let is_file = |it: &&str| entries.path(it, CLAIMED_ID).exists();
        let places = ["global", "agents/w"].into_iter().find(is_file);
        assert_eq!(places, directory, "{operation:?}");
        web.undo();
        assert_eq!(read_tree(entries.root()), before, "{operation:?}");
    }
}

#[test]
fn last_of_two_files_with_one_id_counts() {
    let web = WebEntries::with_odd_file(entry_text(ODD_ID, ODD_LINES).as_bytes());
    let entries = &web.entries;
    let run = EntryScope::Run("r1").mapping_lines("user", "last");
    entries.write("runs/r1", ODD_ID, &format!("{run}agentId: w\n"));
    let before = read_tree(entries.root());
    let (_, shown) = entries.json(&["show", ODD_ID]);
    assert_eq!(shown["summary"], "last");
    let listed = entries.ids(&["list"]);
    assert_eq!(listed.iter().filter(|id| *id == ODD_ID).count(), 1);
    let duplicate = ("duplicate-id".to_string(), format!("runs/r1/{ODD_ID}.md"));
    assert!(entries.findings().contains(&duplicate));
    assert_eq!(web.titles("global", ODD_ID), ["odd"]);
    assert_eq!(web.titles("runs/r1", ODD_ID), ["last"]);
    for (operation, left) in [
        (EntryOperation::Put, 1),
        (EntryOperation::Move, 1),
        (EntryOperation::Forget, 0),
    ] {
        let ran = web.apply(&operation.command(ODD_ID));
        assert_eq!(ran.status.code(), Some(0), "{operation:?}: {ran:?}");
        let tree = read_tree(entries.root());
        let files = tree
            .keys()
            .filter(|it| it.ends_with(format!("{ODD_ID}.md")));
        assert_eq!(files.count(), left, "{operation:?}");
        web.undo();
        assert_eq!(read_tree(entries.root()), before, "{operation:?}");
    }
}
