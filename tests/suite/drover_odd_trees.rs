//! The layout `drover` on objects, directories and trees that its agents do not make: what is read of
//! them, what is left alone, and that looking changes nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::drover_entries::{BODY, EntryScope, entry_text, put_command};
use super::drover_fixture::{AGENT_ID, Entries, GLOBAL_ID, OTHER_ID, RUN_ID, WebEntries};
use super::engine::make_fifo;
use super::fixture::PROGRAM_PATH;
use super::odd_entries::{
    CLAIMED_ID, EntryOperation, ODD_ID, ODD_LINES, SPECIAL_OBJECTS, odd_files,
};
use super::skip::skip_unsupported;
use super::tree_snapshot::snapshot_tree;

#[test]
fn special_object_named_as_an_entry_is_left_alone() {
    for (name, make) in SPECIAL_OBJECTS {
        let web = WebEntries::new();
        let entries = &web.entries;
        let target = entry_text(ODD_ID, ODD_LINES);
        fs::write(entries.root().join("target.md"), target).unwrap();
        make(&web.odd_path());
        let before = snapshot_tree(entries.root());
        let listed = entries.ids(&["list"]);
        assert!(listed.iter().all(|id| id != ODD_ID), "{name}");
        assert!(web.titles("global", ODD_ID).is_empty(), "{name}");
        let path = format!("global/{ODD_ID}.md");
        let found = entries.findings();
        assert_eq!(found, [("bad-name".to_string(), path)], "{name}");
        let [put, to_w, forget] = EntryOperation::ALL.map(|it| it.command(ODD_ID));
        for (operation, reason) in [(&put, "io"), (&to_w, "not_found")] {
            let (code, refused) = entries.json(operation);
            let found = (code, &refused["error"]["reason"]);
            assert_eq!(found, (Some(1), &json!(reason)), "{name}");
        }
        let (_, forgot) = entries.json(&forget);
        assert_eq!(forgot["removed"], false, "{name}");
        for (words, expected) in [(&["show", ODD_ID][..], 1), (&forget, 0)] {
            let ran = entries.run(words);
            assert_eq!(ran.status.code(), Some(expected), "{name}: {ran:?}");
        }
        let shown = web.memory(&["show", ODD_ID]);
        assert_eq!(shown.status.code(), Some(2), "{name}: {shown:?}");
        let applied = web.apply(&put);
        assert_eq!(applied.status.code(), Some(1), "{name}: {applied:?}");
        assert_eq!(snapshot_tree(entries.root()), before, "{name}");
    }
}

#[test]
fn symlinked_directory_is_neither_read_nor_written() {
    let verbs = [&["list"][..], &["recall", "tea"], &["index"], &["health"]];
    let put_of_z = put_command(EntryScope::Agent("z"), "s", BODY);
    let put_odd = EntryOperation::Put.command(ODD_ID);
    // The directory of an agent is one of several, which are read without it.
    for (link, expected) in [("agents/z", 0), ("agents", 3), ("runs", 3), ("global", 3)] {
        let entries = Entries::new();
        let elsewhere = tempfile::tempdir().unwrap();
        entries.write("outside", ODD_ID, ODD_LINES);
        let outside = elsewhere.path().join("outside");
        fs::rename(entries.root().join("outside"), &outside).unwrap();
        let path = entries.root().join(link);
        if path.exists() {
            fs::rename(&path, elsewhere.path().join("own")).unwrap();
        }
        symlink(&outside, &path).unwrap();
        let trees = || [entries.root(), elsewhere.path()].map(snapshot_tree);
        let before = trees();
        for verb in verbs {
            let ran = entries.run(verb);
            assert_eq!(
                ran.status.code(),
                Some(expected),
                "{link}, {verb:?}: {ran:?}"
            );
            let stdout = String::from_utf8(ran.stdout).unwrap();
            assert!(!stdout.contains("odd"), "{link}, {verb:?}: {stdout}");
        }
        for write in [&put_of_z, &put_odd] {
            if expected == 0 && write.contains(&ODD_ID) {
                continue;
            }
            let ran = entries.run(write);
            assert_eq!(ran.status.code(), Some(3), "{link}, {write:?}: {ran:?}");
        }
        assert_eq!(trees(), before, "{link}");
    }
}

#[test]
fn root_may_be_named_by_a_symlink() {
    let entries = Entries::new();
    let link = entries.root().join("link");
    symlink(entries.root(), &link).unwrap();
    let linked = Command::new(PROGRAM_PATH)
        .args(["drover", "forget", GLOBAL_ID, "--dir"])
        .arg(&link)
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(linked.status.code(), Some(0), "{linked:?}");
}

#[test]
fn directory_with_an_illegal_name_is_reported_only() {
    let web = WebEntries::new();
    let entries = &web.entries;
    let seen = entries.ids(&["list"]);
    let long = "x".repeat(65);
    let names = [
        OsStr::new("a b"),
        OsStr::new("a.b"),
        OsStr::new(&long),
        OsStr::new("é"),
        OsStr::from_bytes(b"\xff"),
    ];
    let directories = ["agents", "runs"].map(|parent| names.map(|it| Path::new(parent).join(it)));
    let deep = PathBuf::from("agents/w/deep");
    let ignored = [PathBuf::from("other"), PathBuf::from("global/deep"), deep];
    for directory in directories.iter().flatten().chain(&ignored) {
        let path = entries.root().join(directory);
        fs::create_dir(&path).unwrap();
        let text = entry_text(ODD_ID, ODD_LINES);
        fs::write(path.join(format!("{ODD_ID}.md")), text).unwrap();
    }
    assert_eq!(entries.ids(&["list"]), seen);
    let expected = directories.iter().flatten().map(|path| {
        let path = path.to_string_lossy().into_owned();
        ("bad-directory".to_string(), path)
    });
    let (mut expected, mut found) = (expected.collect::<Vec<_>>(), entries.findings());
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let (_, tree) = web.memory_json(&["tree"]);
    let collections = tree["collections"].as_array().unwrap().iter();
    let collections: Vec<&str> = collections.map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(collections, ["global", "agents/v", "agents/w", "runs/r1"]);
    for id in ["a b", "../w", "", &long] {
        let put = put_command(EntryScope::Agent(id), "s", "b");
        entries.assert_refused(&put, "path_escape");
    }
}

#[test]
fn unreadable_file_is_named_and_hides_no_other() {
    let web = WebEntries::new();
    let path = web.odd_path();
    let huge = File::create(&path).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    assert_unreadable(&web, "larger than 64 MiB");
    if rustix::process::geteuid().is_root() {
        return skip_unsupported("root may read any file");
    }
    fs::write(&path, entry_text(ODD_ID, ODD_LINES)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    assert_unreadable(&web, "ermission denied");
}

/// Asserts that every verb says why the odd file cannot be read, and shows the others.
fn assert_unreadable(web: &WebEntries, why: &str) {
    let entries = &web.entries;
    let before = read_names(entries.root());
    let [put, to_w, forget] = EntryOperation::ALL.map(|it| it.command(ODD_ID));
    // Each with a word of its answer; what has to know all entries has none.
    let verbs: [(&[&str], &str); 9] = [
        (&["list"], "likes tea"),
        (&["recall", "tea"], "likes tea"),
        (&["index"], "likes tea"),
        (&["show", GLOBAL_ID], "the rule"),
        (&["show", ODD_ID], ""),
        (&put, ""),
        (&to_w, ""),
        (&forget, ""),
        // The odd file may have the same id.
        (&["forget", GLOBAL_ID], ""),
    ];
    let of_agent: [(&[&str], &str); 4] = [
        (&["search", "tea"], "likes tea"),
        (&[&["plan"], &put[..]].concat(), ""),
        (&[&["apply"], &forget[..]].concat(), ""),
        (&["show", ODD_ID], ""),
    ];
    for (code, health) in [entries.json(&["health"]), web.memory_json(&["health"])] {
        let finding = &health["findings"][0];
        let found = (code, &finding["check"]);
        assert_eq!(found, (Some(1), &json!("unloadable")), "{health}");
        let measured = finding["measured"].as_str().unwrap();
        assert!(measured.contains(why), "{health}");
    }
    let tree = web.memory(&["tree"]);
    let [listed, said] = [&tree.stdout, &tree.stderr].map(|it| String::from_utf8_lossy(it));
    assert_eq!(tree.status.code(), Some(3), "{tree:?}");
    assert!(
        listed.contains("likes tea") && said.contains(why),
        "{tree:?}"
    );
    let ran = verbs.map(|(verb, word)| (verb, word, entries.run(verb)));
    let of_agent = of_agent.map(|(verb, word)| (verb, word, web.memory(verb)));
    for (verb, word, ran) in ran.iter().chain(&of_agent) {
        let [stdout, stderr] = [&ran.stdout, &ran.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(ran.status.code(), Some(3), "{verb:?}: {stderr}");
        assert!(stderr.contains(why), "{verb:?}: {stderr}");
        assert!(stdout.contains(word), "{verb:?}: {stdout}{stderr}");
    }
    assert_eq!(read_names(entries.root()), before);
}

/// Returns the names below a directory, without a look into its files.
fn read_names(directory: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::new();
    for item in fs::read_dir(directory).unwrap() {
        let item = item.unwrap();
        if item.file_type().unwrap().is_dir() {
            names.extend(read_names(&item.path()));
        }
        names.insert(item.path());
    }
    names
}

/// Entries with everything odd that can be looked at, in one tree.
fn odd_tree() -> WebEntries {
    let web = WebEntries::new();
    let entries = &web.entries;
    let root = entries.root();
    for (number, odd) in odd_files().into_iter().enumerate() {
        let id = format!("01HF7YAT00HHHHHHHHHHHHHH{number:02}");
        fs::write(entries.path("global", &id), odd.bytes).unwrap();
    }
    make_fifo(&entries.path("agents/w", ODD_ID));
    let link = entries.path("agents/v", ODD_ID);
    symlink(entries.path("global", GLOBAL_ID), link).unwrap();
    symlink(root.join("global"), root.join("agents/link")).unwrap();
    fs::create_dir(root.join("agents/a b")).unwrap();
    fs::create_dir(root.join("runs/r1/deep")).unwrap();
    entries.write("agents/z", AGENT_ID, ODD_LINES);
    entries.write_text("global", ODD_ID, &entry_text(CLAIMED_ID, ODD_LINES));
    entries.write_text("global", "notes", "text\n");
    fs::set_permissions(root.join("agents/w"), fs::Permissions::from_mode(0o2570)).unwrap();
    web
}

/// The ids that the odd tree has, and one that no entry has.
const IDS: [&str; 7] = [
    GLOBAL_ID, AGENT_ID, OTHER_ID, RUN_ID, ODD_ID, CLAIMED_ID, "x",
];

#[test]
fn looking_at_an_odd_tree_changes_nothing() {
    let web = odd_tree();
    let entries = &web.entries;
    let root = entries.root().to_str().unwrap();
    let before = snapshot_tree(entries.root());
    let view = ["--agent-id", "w", "--run-id", "r1", "--limit", "1000"];
    let verbs = [
        &["list"][..],
        &[&["list"], &view[..]].concat(),
        &["recall", "odd"],
        &["recall", "tea", "--better"],
        &["recall"],
        &["index", "--agent-id", "w"],
        &["instructions", "--cwd", root],
        &["id", "--path", root],
        &["health"],
        // These are refused, or have nothing to do.
        &["forget", "x"],
        &["move", "x", "--scope", "global"],
        &["move", AGENT_ID, "--scope", "run"],
        &EntryOperation::Put.command("x"),
        &EntryOperation::Put.command(ODD_ID),
    ];
    let shows = IDS.map(|id| ["show", id]);
    for verb in verbs.into_iter().chain(shows.iter().map(|it| &it[..])) {
        for form in [&[][..], &["--json"]] {
            entries.run(&[verb, form].concat());
            assert!(snapshot_tree(entries.root()) == before, "{verb:?}");
        }
    }
}

#[test]
fn planning_on_an_odd_tree_changes_nothing() {
    let web = odd_tree();
    let entries = &web.entries;
    let record = web.fleet.path().join("record");
    fs::create_dir(&record).unwrap();
    let record = record.to_str().unwrap();
    let before = snapshot_tree(entries.root());
    let [put, to_w, forget] = EntryOperation::ALL.map(|it| it.command(GLOBAL_ID));
    let verbs = [
        &["tree"][..],
        &["tree", "global"],
        &["search", "odd"],
        &["health"],
        &[&["plan"], &put[..]].concat(),
        &[&["plan"], &to_w[..]].concat(),
        &[&["plan"], &forget[..]].concat(),
        &["plan", "reset", "--agent-id", "w", "--to", record],
        &[&["apply"], &forget[..], &["--plan", "00000000"]].concat(),
    ];
    let shows = IDS.map(|id| ["show", id]);
    for verb in verbs.into_iter().chain(shows.iter().map(|it| &it[..])) {
        web.memory(verb);
        assert!(snapshot_tree(entries.root()) == before, "{verb:?}");
    }
}
