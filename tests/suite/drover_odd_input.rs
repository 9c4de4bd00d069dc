//! The layout `drover` on files and directories that its agents do not write: what is shown of them, what
//! a write does with them and what it refuses, and that looking changes nothing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::drover::{
    AGENT_ID, Entries, GLOBAL_ID, NOW, OTHER_ID, RUN_ID, run_on_agent, write_config,
};
use super::edited_files::read_tree;
use super::engine::make_fifo;
use super::odd_entries::{BODY, ODD_ID, ODD_LINES, entry_text, odd_files};
use super::skip::skip_unsupported;
use super::tree_snapshot::snapshot_tree;

/// The id that an odd file claims to have.
const CLAIMED_ID: &str = "01HF7YAT00GGGGGGGGGGGGGGGG";

const PUT: &[&str] = &[
    "put",
    "--scope",
    "global",
    "--kind",
    "user",
    "--summary",
    "new",
    "--body",
    BODY,
    "--id",
];

const FORGET: &[&str] = &["forget"];

const MOVE: &[&str] = &["move", "--scope", "agent", "--agent-id", "w"];

/// Entries that are also the memory of the agent `web`.
struct WebEntries {
    entries: Entries,
    fleet: TempDir,
    config: PathBuf,
}

impl WebEntries {
    fn new() -> WebEntries {
        let (entries, fleet) = (Entries::new(), tempfile::tempdir().unwrap());
        let config = write_config(&entries, fleet.path());
        WebEntries {
            entries,
            fleet,
            config,
        }
    }

    /// The path of the odd file.
    fn odd_path(&self) -> PathBuf {
        self.entries.path("global", ODD_ID)
    }

    fn with_odd_file(bytes: &[u8]) -> WebEntries {
        let web = WebEntries::new();
        fs::write(web.odd_path(), bytes).unwrap();
        web
    }

    /// Runs a verb of `memory` on the agent.
    fn memory(&self, arguments: &[&str]) -> Output {
        let words = [&["memory", "--now", NOW, "web"], arguments].concat();
        run_on_agent(&self.entries, &self.config, &words)
    }

    fn memory_json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let ran = self.memory(&[arguments, &["--json"]].concat());
        let document = serde_json::from_slice(&ran.stdout);
        let document = document.unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        (ran.status.code(), document)
    }

    /// Returns the titles of the items that the tree has of a collection.
    fn titles(&self, collection: &str, id: &str) -> Vec<Value> {
        let (_, tree) = self.memory_json(&["tree", collection]);
        let items = tree["collections"][0]["items"].as_array().unwrap().iter();
        let items = items.filter(|item| item["id"] == id);
        items.map(|item| item["title"].clone()).collect()
    }

    fn undo(&self) {
        let undone = run_on_agent(&self.entries, &self.config, &["undo", "web"]);
        assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    }
}

fn code(ran: &Output) -> Option<i32> {
    ran.status.code()
}

fn has_id(found: &[String]) -> bool {
    found.iter().any(|id| id == ODD_ID)
}

/// Appends the id of the odd file to the words of an operation.
fn on_odd<'w>(operation: &[&'w str]) -> Vec<&'w str> {
    [operation, &[ODD_ID]].concat()
}

#[test]
fn odd_file_is_shown_as_agents_see_it() {
    for odd in odd_files() {
        let web = WebEntries::with_odd_file(&odd.bytes);
        let (entries, name) = (&web.entries, odd.name);
        let is_seen = odd.seen.is_ok();
        let shown = entries.run(&["show", ODD_ID]);
        let expected = odd.seen.as_ref().map(|body| format!("{body}\n"));
        assert_eq!(code(&shown), Some(i32::from(!is_seen)), "{name}");
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

#[test]
fn writes_to_an_odd_file_lose_nothing_else() {
    for odd in odd_files() {
        let name = odd.name;
        let is_seen = odd.seen.is_ok();
        let odd_entries = || WebEntries::with_odd_file(&odd.bytes).entries;
        let entries = odd_entries();
        let before = read_tree(entries.root());
        let others = |entries: &Entries| {
            let mut tree = read_tree(entries.root());
            tree.retain(|path, _| !path.ends_with(format!("{ODD_ID}.md")));
            tree
        };
        let before_others = others(&entries);
        let (_, put) = entries.json(&on_odd(PUT));
        if is_seen {
            assert_eq!(put["outcome"], "updated", "{name}: {put}");
            assert_eq!(code(&entries.run(&["health"])), Some(0), "{name}");
            assert_eq!(others(&entries), before_others, "{name}");
        } else {
            assert_eq!(put["error"]["reason"], "io", "{name}: {put}");
            assert!(read_tree(entries.root()) == before, "{name}");
        }

        let entries = odd_entries();
        let moved = entries.run(&on_odd(MOVE));
        let said = String::from_utf8(moved.stderr.clone()).unwrap();
        match odd.move_refusal {
            None => {
                assert_eq!(code(&moved), Some(0), "{name}: {said}");
                let text = fs::read_to_string(entries.path("agents/w", ODD_ID)).unwrap();
                let body = format!("---\n\n{}\n", odd.seen.as_ref().unwrap());
                assert!(text.ends_with(&body), "{name}: {text}");
                assert_eq!(others(&entries), before_others, "{name}");
            }
            Some(why) => {
                assert_eq!(code(&moved), Some(1), "{name}: {said}");
                assert!(said.contains(why), "{name}: {said}");
                assert!(read_tree(entries.root()) == before, "{name}");
            }
        }

        let entries = odd_entries();
        let (_, forgot) = entries.json(&on_odd(FORGET));
        assert_eq!(forgot["removed"], is_seen, "{name}");
        let is_left = entries.path("global", ODD_ID).exists();
        assert_eq!(is_left, !is_seen, "{name}");
        assert_eq!(others(&entries), before_others, "{name}");
    }
}

#[test]
fn operations_on_an_odd_file_are_undone_exactly() {
    for odd in odd_files() {
        let web = WebEntries::with_odd_file(&odd.bytes);
        let before = read_tree(web.entries.root());
        for operation in [PUT, MOVE, FORGET] {
            let what = format!("{}, {}", odd.name, operation[0]);
            let ran = web.memory(&[&["apply"], &on_odd(operation)[..]].concat());
            let is_changed = read_tree(web.entries.root()) != before;
            let is_refused = (operation == PUT && odd.seen.is_err())
                || (operation == MOVE && odd.move_refusal.is_some());
            let is_idle = operation == FORGET && odd.seen.is_err();
            assert_eq!(code(&ran), Some(i32::from(is_refused)), "{what}: {ran:?}");
            assert_eq!(is_changed, !is_refused && !is_idle, "{what}");
            if is_changed {
                web.undo();
                assert!(read_tree(web.entries.root()) == before, "{what}");
            }
        }
    }
}

#[test]
fn special_object_named_as_an_entry_is_left_alone() {
    type Make = fn(&Path);
    let objects: [(&str, Make); 5] = [
        ("symlink", |path| symlink("target.md", path).unwrap()),
        ("dangling symlink", |path| symlink("absent", path).unwrap()),
        ("symlink to a directory", |path| {
            symlink("../agents", path).unwrap();
        }),
        ("FIFO", make_fifo),
        ("directory", |path| fs::create_dir(path).unwrap()),
    ];
    for (name, make) in objects {
        let web = WebEntries::new();
        let entries = &web.entries;
        let target = entry_text(ODD_ID, ODD_LINES);
        fs::write(entries.root().join("global/target.md"), target).unwrap();
        make(&web.odd_path());
        let before = snapshot_tree(entries.root());
        assert!(!has_id(&entries.ids(&["list"])), "{name}");
        assert!(web.titles("global", ODD_ID).is_empty(), "{name}");
        let found = entries.findings();
        assert!(!found.iter().any(|(_, path)| path.contains(ODD_ID)));
        let (exit_code, refused) = entries.json(&on_odd(PUT));
        let reason = &refused["error"]["reason"];
        assert_eq!((exit_code, reason), (Some(1), &json!("io")), "{name}");
        let (_, refused) = entries.json(&on_odd(MOVE));
        assert_eq!(refused["error"]["reason"], "not_found", "{name}");
        let (_, forgot) = entries.json(&on_odd(FORGET));
        assert_eq!(forgot["removed"], false, "{name}");
        for (verb, expected) in [("show", 1), ("forget", 0)] {
            let ran = entries.run(&[verb, ODD_ID]);
            assert_eq!(code(&ran), Some(expected), "{name}: {ran:?}");
        }
        let shown = web.memory(&["show", ODD_ID]);
        assert_eq!(code(&shown), Some(2), "{name}: {shown:?}");
        let applied = web.memory(&[&["apply"], &on_odd(PUT)[..]].concat());
        assert_eq!(code(&applied), Some(1), "{name}: {applied:?}");
        assert_eq!(snapshot_tree(entries.root()), before, "{name}");
    }
}

#[test]
fn symlinked_directory_is_neither_read_nor_written() {
    let verbs = [&["list"][..], &["recall", "tea"], &["index"], &["health"]];
    let put = |segment| {
        let owner = ["--scope", "agent", "--agent-id", segment, "--summary", "s"];
        [&["put", "--kind", "user", "--body", BODY], &owner[..]].concat()
    };
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
            assert_eq!(code(&ran), Some(expected), "{link}, {verb:?}: {ran:?}");
            let stdout = String::from_utf8(ran.stdout).unwrap();
            assert!(!stdout.contains("odd"), "{link}, {verb:?}: {stdout}");
        }
        for write in [&put("z")[..], &on_odd(PUT)] {
            if expected == 0 && write.contains(&ODD_ID) {
                continue;
            }
            let ran = entries.run(write);
            assert_eq!(code(&ran), Some(3), "{link}, {write:?}: {ran:?}");
        }
        assert_eq!(trees(), before, "{link}");
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
        (&["show"][..], 1, "no memory"),
        (MOVE, 1, "no memory"),
        (FORGET, 0, "no memory"),
        (PUT, 1, CLAIMED_ID),
    ] {
        let ran = entries.run(&on_odd(words));
        let text = String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap();
        assert_eq!(ran.status.code(), Some(expected), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
        assert_eq!(read_tree(entries.root()), before, "{words:?}");
    }
    // A write under its id leaves no file of it behind.
    for (words, directory) in [
        (PUT, Some("global")),
        (MOVE, Some("agents/w")),
        (FORGET, None),
    ] {
        let apply = [&["apply"], words, &[CLAIMED_ID]].concat();
        let ran = web.memory(&apply);
        assert_eq!(code(&ran), Some(0), "{ran:?}");
        assert!(!web.odd_path().exists(), "{words:?}");
        let is_file = |it: &&str| entries.path(it, CLAIMED_ID).exists();
        let places = ["global", "agents/w"].into_iter().find(is_file);
        assert_eq!(places, directory, "{words:?}");
        web.undo();
        assert_eq!(read_tree(entries.root()), before, "{words:?}");
    }
}

#[test]
fn last_of_two_files_with_one_id_counts() {
    let web = WebEntries::with_odd_file(entry_text(ODD_ID, ODD_LINES).as_bytes());
    let entries = &web.entries;
    let run = "scope: run\nkind: user\nsummary: last\nrunId: r1\nagentId: w\n";
    entries.write("runs/r1", ODD_ID, run);
    let before = read_tree(entries.root());
    let (_, shown) = entries.json(&["show", ODD_ID]);
    assert_eq!(shown["summary"], "last");
    let listed = entries.ids(&["list"]);
    assert_eq!(listed.iter().filter(|id| *id == ODD_ID).count(), 1);
    let duplicate = ("duplicate-id".to_string(), format!("runs/r1/{ODD_ID}.md"));
    assert!(entries.findings().contains(&duplicate));
    assert_eq!(web.titles("global", ODD_ID), ["odd"]);
    assert_eq!(web.titles("runs/r1", ODD_ID), ["last"]);
    for (words, left) in [(PUT, 1), (MOVE, 1), (FORGET, 0)] {
        let ran = web.memory(&[&["apply"], &on_odd(words)[..]].concat());
        assert_eq!(code(&ran), Some(0), "{words:?}: {ran:?}");
        let tree = read_tree(entries.root());
        let files = tree
            .keys()
            .filter(|it| it.ends_with(format!("{ODD_ID}.md")));
        assert_eq!(files.count(), left, "{words:?}");
        web.undo();
        assert_eq!(read_tree(entries.root()), before, "{words:?}");
    }
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
        let put = ["put", "--scope", "agent", "--kind", "user", "--agent-id"];
        let text = ["--summary", "s", "--body", "b"];
        let (_, refused) = entries.json(&[&put[..], &[id], &text].concat());
        assert_eq!(refused["error"]["reason"], "path_escape", "{id:?}");
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
    // Each with a word of its answer; what has to know all entries has none.
    let verbs: [(&[&str], &str); 9] = [
        (&["list"], "likes tea"),
        (&["recall", "tea"], "likes tea"),
        (&["index"], "likes tea"),
        (&["show", GLOBAL_ID], "the rule"),
        (&["show", ODD_ID], ""),
        (&["health"], ""),
        (&on_odd(PUT), ""),
        (&on_odd(FORGET), ""),
        (&on_odd(MOVE), ""),
    ];
    let of_agent: [(&[&str], &str); 5] = [
        (&["search", "tea"], "likes tea"),
        (&["health"], ""),
        (&[&["plan"], &on_odd(PUT)[..]].concat(), ""),
        (&[&["apply"], &on_odd(FORGET)[..]].concat(), ""),
        (&["show", ODD_ID], ""),
    ];
    let tree = web.memory(&["tree"]);
    let [listed, said] = [&tree.stdout, &tree.stderr].map(|it| String::from_utf8_lossy(it));
    assert_eq!(code(&tree), Some(3), "{tree:?}");
    assert!(
        listed.contains("likes tea") && said.contains(why),
        "{tree:?}"
    );
    let ran = verbs.map(|(verb, word)| (verb, word, entries.run(verb)));
    let of_agent = of_agent.map(|(verb, word)| (verb, word, web.memory(verb)));
    for (verb, word, ran) in ran.iter().chain(&of_agent) {
        let [stdout, stderr] = [&ran.stdout, &ran.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(code(ran), Some(3), "{verb:?}: {stderr}");
        assert!(stderr.contains(why), "{verb:?}: {stderr}");
        assert!(stdout.contains(word), "{verb:?}: {stdout}{stderr}");
    }
    assert_eq!(read_names(entries.root()), before);
}

/// Returns the names below a directory.
fn read_names(root: &Path) -> Vec<PathBuf> {
    snapshot_tree(root).into_keys().collect()
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
    symlink(
        entries.path("global", GLOBAL_ID),
        entries.path("agents/v", ODD_ID),
    )
    .unwrap();
    symlink(root.join("global"), root.join("agents/link")).unwrap();
    fs::create_dir(root.join("agents/a b")).unwrap();
    fs::create_dir(root.join("runs/r1/deep")).unwrap();
    entries.write("agents/z", AGENT_ID, ODD_LINES);
    entries.write_text("global", ODD_ID, &entry_text(CLAIMED_ID, ODD_LINES));
    entries.write_text("global", "notes", "text\n");
    fs::set_permissions(root.join("agents/w"), fs::Permissions::from_mode(0o2570)).unwrap();
    web
}

#[test]
fn looking_at_an_odd_tree_changes_nothing() {
    let web = odd_tree();
    let entries = &web.entries;
    let root = entries.root().to_str().unwrap();
    let record = web.fleet.path().join("record");
    fs::create_dir(&record).unwrap();
    let before = snapshot_tree(entries.root());
    let ids = [
        GLOBAL_ID, AGENT_ID, OTHER_ID, RUN_ID, ODD_ID, CLAIMED_ID, "x",
    ];
    let mut verbs: Vec<Vec<&str>> = [
        &["list"][..],
        &[
            "list",
            "--agent-id",
            "w",
            "--run-id",
            "r1",
            "--limit",
            "1000",
        ],
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
        &[PUT, &["x"]].concat(),
        &[PUT, &[ODD_ID]].concat(),
    ]
    .map(<[&str]>::to_vec)
    .to_vec();
    verbs.extend(ids.map(|id| vec!["show", id]));
    for verb in &verbs {
        for form in [&[][..], &["--json"]] {
            entries.run(&[verb, form].concat());
            assert!(snapshot_tree(entries.root()) == before, "{verb:?}");
        }
    }
    let mut verbs: Vec<Vec<&str>> = [
        &["tree"][..],
        &["tree", "global"],
        &["search", "odd"],
        &["health"],
        &[&["plan"], PUT, &[GLOBAL_ID]].concat(),
        &[&["plan"], MOVE, &[GLOBAL_ID]].concat(),
        &[&["plan"], FORGET, &[GLOBAL_ID]].concat(),
        &[
            "plan",
            "reset",
            "--agent-id",
            "w",
            "--to",
            record.to_str().unwrap(),
        ],
        &[&["apply"], FORGET, &[GLOBAL_ID, "--plan", "00000000"]].concat(),
    ]
    .map(<[&str]>::to_vec)
    .to_vec();
    verbs.extend(ids.map(|id| vec!["show", id]));
    for verb in &verbs {
        web.memory(verb);
        assert!(snapshot_tree(entries.root()) == before, "{verb:?}");
    }
}
