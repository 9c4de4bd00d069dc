//! Files of the layout `drover` as they are on the disk: who may read a moved one, writers at once, one
//! of several with the same id, and what only the name of a file says.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use serde_json::json;

use super::drover_entries::{EntryScope, entry_text};
use super::drover_fixture::{AGENT_ID, Entries, GLOBAL_ID, NEW_ID, OTHER_ID, WebEntries};
use super::edited_files::read_tree;
use super::skip::skip_unsupported;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn make_private(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[track_caller]
fn assert_removed(entries: &Entries, forget: &[&str]) {
    let (code, said) = entries.json(forget);
    assert_eq!((code, &said["removed"]), (Some(0), &json!(true)), "{said}");
}

#[test]
fn moved_entry_has_no_more_readers() {
    let entries = Entries::new();
    make_private(&entries.path("global", GLOBAL_ID));
    let to_agent = ["move", GLOBAL_ID, "--scope", "agent", "--agent-id", "new"];
    entries.assert_outcome(&to_agent, "moved");
    assert_eq!(mode_of(&entries.path("agents/new", GLOBAL_ID)), 0o600);
    // Repair moves a file, too.
    let of_v = EntryScope::Agent("v").mapping_lines("user", "text");
    make_private(&entries.write("agents/w", NEW_ID, &of_v));
    let misplaced = format!("agents/w/{NEW_ID}.md");
    entries.assert_outcome(&["repair", &misplaced], "repaired");
    assert_eq!(mode_of(&entries.path("agents/v", NEW_ID)), 0o600);
}

#[test]
fn move_of_an_agent_keeps_the_mode_through_undo() {
    let web = WebEntries::new();
    let old = web.entries.path("global", GLOBAL_ID);
    make_private(&old);
    let moved = web.apply(&["move", GLOBAL_ID, "--scope", "agent", "--agent-id", "new"]);
    assert_eq!(moved.status.code(), Some(0), "{moved:?}");
    let new = web.entries.path("agents/new", GLOBAL_ID);
    assert_eq!((mode_of(&new), old.exists()), (0o600, false));
    web.undo();
    assert_eq!((mode_of(&old), new.exists()), (0o600, false));
}

#[test]
fn one_of_several_writers_moves_or_forgets_an_entry() {
    let entries = Entries::new();
    let move_to = |agent| ["move", GLOBAL_ID, "--scope", "agent", "--to-agent", agent];
    let writes: [Vec<&str>; 4] = [
        vec!["forget", GLOBAL_ID],
        move_to("one").to_vec(),
        vec!["forget", GLOBAL_ID],
        move_to("two").to_vec(),
    ];
    let answers: Vec<_> = thread::scope(|scope| {
        let (entries, writes) = (&entries, &writes);
        let running: Vec<_> = writes
            .iter()
            .map(|write| scope.spawn(move || entries.json(write)))
            .collect();
        running.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let forgot = answers.iter().filter(|(_, said)| said["removed"] == true);
    assert_eq!(forgot.count(), 1, "{answers:?}");
    let left = fs::read_dir(entries.root().join("agents")).unwrap();
    let files = left.flat_map(|it| fs::read_dir(it.unwrap().path()).unwrap());
    let names: Vec<_> = files.map(|it| it.unwrap().file_name()).collect();
    let name = format!("{GLOBAL_ID}.md");
    assert!(!names.iter().any(|it| *it == *name), "{names:?}");
    let top = fs::read_dir(entries.root()).unwrap();
    let hidden = top.filter(|it| it.as_ref().unwrap().file_name().as_bytes()[0] == b'.');
    assert_eq!(hidden.count(), 0, "no writer is another program");
}

#[test]
fn moved_entry_has_the_readers_of_its_own_file() {
    let entries = Entries::new();
    let secret = EntryScope::Agent("w").mapping_lines("user", "secret");
    // Agents see the later one of two files with one id.
    make_private(&entries.write("agents/w", GLOBAL_ID, &secret));
    let to_run = ["move", GLOBAL_ID, "--scope", "run", "--run-id", "r9"];
    entries.assert_outcome(&to_run, "moved");
    assert!(entries.read("runs/r9", GLOBAL_ID).contains("secret"));
    assert_eq!(mode_of(&entries.path("runs/r9", GLOBAL_ID)), 0o600);
    // In place of a file that everyone may read.
    let entries = Entries::new();
    make_private(&entries.write("agents/w", GLOBAL_ID, &secret));
    entries.assert_outcome(&["move", GLOBAL_ID, "--scope", "global"], "moved");
    assert_eq!(mode_of(&entries.path("global", GLOBAL_ID)), 0o600);
}

#[test]
fn writers_with_and_without_a_config_wait_for_each_other() {
    let web = WebEntries::new();
    let forget = ["forget", GLOBAL_ID];
    let (by_path, by_agent) = thread::scope(|scope| {
        let by_path = scope.spawn(|| web.entries.json(&forget));
        let by_agent = web.memory_json(&["apply", "forget", GLOBAL_ID]);
        (by_path.join().unwrap(), by_agent)
    });
    let is_done = by_agent.0 == Some(0) && by_agent.1["outcome"] == "removed";
    let removals = [by_path.1["removed"] == true, is_done];
    let count = removals.into_iter().filter(|it| *it).count();
    assert_eq!(count, 1, "{by_path:?} {by_agent:?}");
}

#[test]
fn undo_of_a_move_sees_that_the_entry_has_moved_on() {
    let web = WebEntries::new();
    let move_to = |agent| ["move", GLOBAL_ID, "--scope", "agent", "--to-agent", agent];
    let (_, moved) = web.memory_json(&[&["apply"][..], &move_to("one")].concat());
    let run = moved["run"].as_str().unwrap();
    assert_eq!(web.apply(&move_to("two")).status.code(), Some(0));
    let before = read_tree(web.entries.root());
    let undone = web.run(&["undo", "--run", run]);
    assert_eq!(undone.status.code(), Some(6), "{undone:?}");
    assert_eq!(read_tree(web.entries.root()), before);
    let forgotten = web.apply(&["forget", GLOBAL_ID]);
    assert_eq!(forgotten.status.code(), Some(0), "{forgotten:?}");
    let undone = web.run(&["undo", "--run", run]);
    assert_eq!(undone.status.code(), Some(6), "{undone:?}");
}

#[test]
fn forget_by_path_removes_one_of_two_files() {
    let web = WebEntries::new();
    let twin = web.entries.read("agents/w", AGENT_ID);
    let kept = web.entries.path("agents/w", AGENT_ID);
    let removed = web.entries.write_text("global", AGENT_ID, &twin);
    let before = read_tree(web.entries.root());
    let path = format!("global/{AGENT_ID}.md");
    assert!(
        web.entries
            .findings()
            .iter()
            .any(|it| it.0 == "duplicate-id")
    );
    let applied = web.apply(&["forget", &path]);
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
    assert!(kept.exists() && !removed.exists());
    // The log says what the operation was about.
    let log = web.run(&["log", "web"]);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains(&format!("forget {path}")), "{log}");
    web.undo();
    assert_eq!(read_tree(web.entries.root()), before);
}

#[test]
fn forget_by_path_takes_a_file_that_agents_do_not_see() {
    let entries = Entries::new();
    let path = entries.write_text("global", NEW_ID, "no mapping");
    let shown = format!("global/{NEW_ID}.md");
    let by_agent = ["forget", &shown, "--agent-id", "w"];
    entries.assert_refused(&by_agent, "not_owned");
    let foreign = format!("agents/v/{OTHER_ID}.md");
    entries.assert_refused(&["forget", &foreign, "--agent-id", "w"], "not_owned");
    entries.assert_refused(&["forget", &format!("global/{AGENT_ID}.md")], "io");
    for odd in [
        "../x.md",
        "global/notes.md",
        "else/01HF7YAT00FFFFFFFFFFFFFFFF.md",
    ] {
        entries.assert_refused(&["forget", odd], "not_found");
    }
    assert!(path.exists());
    assert_removed(&entries, &["forget", path.to_str().unwrap()]);
    assert!(!path.exists());
}

#[test]
fn other_objects_with_the_name_of_an_entry_are_found() {
    let entries = Entries::new();
    let directory = entries.root().join("global");
    symlink("/etc/hostname", directory.join(format!("{NEW_ID}.md"))).unwrap();
    fs::write(directory.join(OsStr::from_bytes(b"\xff.md")), "text").unwrap();
    let (_, health) = entries.json(&["health"]);
    let findings = health["findings"].as_array().unwrap().iter();
    let found = findings.filter(|it| it["check"] == "bad-name");
    let measured: Vec<_> = found.map(|it| it["measured"].clone()).collect();
    assert_eq!(measured.len(), 2, "{health}");
    assert!(
        measured.contains(&json!("a symlink to /etc/hostname")),
        "{health}"
    );
}

#[test]
fn line_of_a_broken_mapping_is_named() {
    let entries = Entries::new();
    let text = entry_text(NEW_ID, "scope: global\nkind: user\nsummary: a: b\n");
    entries.write_text("global", NEW_ID, &text);
    let (_, health) = entries.json(&["health"]);
    let finding = &health["findings"][0];
    let found = (&finding["check"], &finding["measured"], &finding["line"]);
    assert_eq!(found, (&json!("unloadable"), &json!("yaml"), &json!(5)));
}

#[test]
fn escaped_control_character_is_found() {
    let entries = Entries::new();
    let lines = "scope: global\nkind: user\nsummary: \"a\\e[31m\"\n";
    entries.write("global", NEW_ID, lines);
    let found = ("control".to_string(), format!("global/{NEW_ID}.md"));
    assert!(entries.findings().contains(&found));
}

#[test]
fn file_is_shown_by_its_path() {
    let web = WebEntries::new();
    let text = "no mapping";
    web.entries.write_text("agents/w", GLOBAL_ID, text);
    let path = format!("agents/w/{GLOBAL_ID}.md");
    let (code, shown) = web.memory_json(&["show", &path]);
    assert_eq!((code, &shown["text"]), (Some(0), &json!(text)), "{shown}");
    let unknown = web.memory(&["show", "agents/w/none.md"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[test]
fn cut_list_says_how_many_entries_there_are() {
    let entries = Entries::new();
    let listed = entries.run(&["list", "--limit", "1"]);
    let said = String::from_utf8(listed.stderr).unwrap();
    assert_eq!(said, "note: 1 of 4 entries; --limit shows more\n");
    assert!(entries.run(&["list"]).stderr.is_empty());
}

#[test]
fn run_directory_of_another_user_stops_no_write() {
    let entries = Entries::new();
    let planted = entries
        .root()
        .join(".shepherd-0123456789abcdef0123456789abcdef");
    fs::create_dir(&planted).unwrap();
    if rustix::fs::chown(&planted, Some(rustix::fs::Uid::from_raw(65_534)), None).is_err() {
        return skip_unsupported("only root can give a directory away");
    }
    make_private(&planted);
    symlink("/etc", planted.join(".shepherd")).unwrap();
    assert_removed(&entries, &["forget", GLOBAL_ID, "--agent-id", "w"]);
    assert!(planted.exists());
}
