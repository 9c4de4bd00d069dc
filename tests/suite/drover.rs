//! The layout `drover` from the command line, on a directory and without a config: what each verb
//! answers, which files it leaves, and with which code it exits.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::edited_files::read_tree;
use super::fixture::PROGRAM_PATH;
use super::odd_entries::{BODY, entry_text};

pub(super) const GLOBAL_ID: &str = "01HF7YAT00AAAAAAAAAAAAAAAA";
pub(super) const AGENT_ID: &str = "01HF7YAT00BBBBBBBBBBBBBBBB";
pub(super) const RUN_ID: &str = "01HF7YAT00CCCCCCCCCCCCCCCC";
pub(super) const OTHER_ID: &str = "01HF7YAT00DDDDDDDDDDDDDDDD";
const INSTRUCTIONS_ID: &str = "01HF7YAT00EEEEEEEEEEEEEEEE";

/// The instant that counts as now: a day after the entries were written.
pub(super) const NOW: &str = "2023-11-15T22:13:20Z";
const NOW_MS: i64 = 1_700_086_400_000;

/// A directory of entries.
pub(super) struct Entries {
    directory: TempDir,
}

impl Entries {
    pub(super) fn new() -> Entries {
        let entries = Entries {
            directory: tempfile::tempdir().unwrap(),
        };
        entries.write(
            "global",
            GLOBAL_ID,
            "scope: global\nkind: user\nsummary: likes tea\ntags:\n  - style\n",
        );
        entries.write(
            "agents/w",
            AGENT_ID,
            "scope: agent\nkind: feedback\nsummary: short answers\nagentId: w\n",
        );
        entries.write(
            "agents/v",
            OTHER_ID,
            "scope: agent\nkind: project\nsummary: of another\nagentId: v\n",
        );
        entries.write(
            "runs/r1",
            RUN_ID,
            "scope: run\nkind: project\nsummary: half done\nagentId: w\nrunId: r1\n",
        );
        entries
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, directory: &str, id: &str) -> PathBuf {
        self.root().join(directory).join(format!("{id}.md"))
    }

    /// Writes the file of an entry, whose mapping has these lines beside id and time.
    pub(super) fn write(&self, directory: &str, id: &str, lines: &str) -> PathBuf {
        self.write_text(directory, id, &entry_text(id, lines))
    }

    pub(super) fn write_text(&self, directory: &str, name: &str, text: &str) -> PathBuf {
        let path = self.path(directory, name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM_PATH)
            .args(["drover", "--dir"])
            .arg(self.root())
            .args(arguments)
            .args(["--now", NOW])
            .env_clear()
            .current_dir(self.root())
            .output()
            .unwrap()
    }

    /// Runs a verb; returns its exit code and its document.
    pub(super) fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let ran = self.run(&[arguments, &["--json"]].concat());
        let document = serde_json::from_slice(&ran.stdout);
        let document = document.unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        (ran.status.code(), document)
    }

    /// Runs a verb that must succeed; returns what it prints.
    pub(super) fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    pub(super) fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let (code, listed) = self.json(arguments);
        assert_eq!(code, Some(0));
        let entries = listed["entries"].as_array().or(listed["hits"].as_array());
        let ids = entries.unwrap().iter().map(|it| it["id"].as_str().unwrap());
        ids.map(str::to_string).collect()
    }

    /// The names of the checks that find something, with the files they are about.
    pub(super) fn findings(&self) -> Vec<(String, String)> {
        let (_, health) = self.json(&["health"]);
        let findings = health["findings"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        findings
            .map(|it| (text(&it["check"]), text(&it["path"])))
            .collect()
    }
}

#[test]
fn view_of_an_agent_has_what_it_is_given() {
    let entries = Entries::new();
    assert_eq!(
        entries.ids(&["list"]),
        [GLOBAL_ID, OTHER_ID, AGENT_ID, RUN_ID]
    );
    assert_eq!(
        entries.ids(&["list", "--agent-id", "w"]),
        [GLOBAL_ID, AGENT_ID]
    );
    let in_run = ["list", "--agent-id", "w", "--run-id", "r1"];
    assert_eq!(entries.ids(&in_run), [GLOBAL_ID, AGENT_ID, RUN_ID]);
    assert!(
        entries
            .ids(&["list", "--agent-id", "w", "--scope", "run"])
            .is_empty()
    );
    assert_eq!(
        entries.ids(&["list", "--kind", "project", "--limit", "1"]),
        [OTHER_ID]
    );
    assert_eq!(entries.ids(&["list", "--tag", "STYLE"]), [GLOBAL_ID]);
    let (_, listed) = entries.json(&["list", "--agent-id", "w"]);
    assert_eq!(listed["view"], "agent");
    assert_eq!(listed["scopes"], json!(["global", "agent"]));
    assert_eq!(
        listed["entries"][1]["path"],
        format!("agents/w/{AGENT_ID}.md")
    );
    for wrong in [["list", "--agent-id", ""], ["list", "--kind", "other"]] {
        assert_eq!(entries.run(&wrong).status.code(), Some(2), "{wrong:?}");
    }
    let line = format!("{AGENT_ID} [agent · feedback] short answers\n");
    assert_eq!(
        entries.text(&["list", "--scope", "agent", "--agent-id", "w"]),
        line
    );
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
    assert!(
        text.ends_with(&format!(" · id: {AGENT_ID}\n\n{BODY}\n")),
        "{text}"
    );
    // Tags of several words, and words of other scripts.
    entries.write(
        "global",
        INSTRUCTIONS_ID,
        "scope: global\nkind: user\nsummary: 茶を飲む\ntags:\n  - code-review\n",
    );
    assert!(entries.ids(&["recall", "茶"]).is_empty());
    assert_eq!(
        entries.ids(&["recall", "茶", "--better"]),
        [INSTRUCTIONS_ID]
    );
}

#[test]
fn put_creates_and_replaces_an_entry() {
    let entries = Entries::new();
    let put = [
        "put",
        "--scope",
        "agent",
        "--agent-id",
        "w",
        "--kind",
        "user",
        "--summary",
        "a: b",
        "--body",
        BODY,
    ];
    let (code, created) = entries.json(&put);
    assert_eq!((code, &created["outcome"]), (Some(0), &json!("created")));
    assert_eq!(created["created_ms"], NOW_MS);
    let id = created["id"].as_str().unwrap().to_string();
    let path = entries.path("agents/w", &id);
    let expected = format!(
        "---\nid: {id}\nscope: agent\nkind: user\nsummary: \"a: b\"\ncreatedAt: {NOW_MS}\nagentId: w\n---\n\n{BODY}\n"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    // Mode and unknown keys stay; tags that are left out go.
    let old = entry_text(
        &id,
        "scope: agent\nkind: user\nsummary: s\nagentId: w\nextra: [1]\ntags: [x]\n",
    );
    fs::write(&path, old).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let (_, updated) = entries.json(&[&put[..], &["--id", &id]].concat());
    assert_eq!(
        (&updated["outcome"], &updated["updated_ms"]),
        (&json!("updated"), &json!(NOW_MS))
    );
    let expected = expected
        .replace(&format!("createdAt: {NOW_MS}"), "createdAt: 1700000000000")
        .replace(
            "---\n\n",
            &format!("updatedAt: {NOW_MS}\nextra: [1]\n---\n\n"),
        );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn put_is_refused_in_the_words_of_agents() {
    let entries = Entries::new();
    entries.write(
        "global",
        INSTRUCTIONS_ID,
        "scope: global\nkind: reference\nsummary: s\ntags: [instructions]\n",
    );
    let long = "x".repeat(4001);
    let cases: &[(&[&str], &str, &str)] = &[
        (
            &["--id", "x", "--scope", "agent"],
            "invalid_id",
            "id must be a 26-char ULID (got 'x')",
        ),
        (
            &["--scope", "agent"],
            "invalid_scope",
            "scope 'agent' requires agentId",
        ),
        (
            &["--scope", "run", "--agent-id", "w"],
            "invalid_scope",
            "scope 'run' requires runId",
        ),
        (
            &["--scope", "agent", "--agent-id", "../w"],
            "path_escape",
            "agentId must match",
        ),
        (
            &["--summary", "", "--kind", "x"],
            "io",
            "summary must be 1-200 chars (got 0)",
        ),
        (
            &["--body", &long],
            "io",
            "body must be 1-4000 chars (got 4001)",
        ),
        (
            &["--kind", "x"],
            "io",
            "kind must be one of user, feedback, project, reference (got 'x')",
        ),
        (&["--summary", " "], "io", "summary must not be blank"),
        (&["--summary", "a\nb"], "io", "summary must be one line"),
        (&["--tag", ""], "io", "a tag must not be empty"),
        (
            &["--id", AGENT_ID, "--agent-id", "v"],
            "not_owned",
            "owned by a different agent",
        ),
        (
            &["--id", INSTRUCTIONS_ID],
            "read_only",
            "Edit the file on disk instead",
        ),
    ];
    let before = read_tree(entries.root());
    for (given, reason, message) in cases {
        let mut arguments = vec!["put"];
        for (name, value) in [
            ("--scope", "global"),
            ("--kind", "user"),
            ("--summary", "s"),
            ("--body", "b"),
        ] {
            if !given.contains(&name) {
                arguments.extend([name, value]);
            }
        }
        arguments.extend(*given);
        let (code, refused) = entries.json(&arguments);
        assert_eq!(
            (code, &refused["error"]["reason"]),
            (Some(1), &json!(reason)),
            "{refused}"
        );
        let said = refused["error"]["message"].as_str().unwrap();
        assert!(said.contains(message), "{said}");
        let ran = entries.run(&arguments);
        let failed = format!("remember failed: {said}\n");
        assert_eq!(String::from_utf8(ran.stderr).unwrap(), failed);
        assert_eq!(read_tree(entries.root()), before, "{given:?}");
    }
    // A reference may be longer, and an entry that no instruction file has is no instruction file.
    let put = [
        "put",
        "--scope",
        "global",
        "--kind",
        "reference",
        "--summary",
        "s",
        "--body",
        &long,
    ];
    entries.text(&put);
    let root = entries.root().to_str().unwrap();
    entries.text(&[&put[..], &["--id", INSTRUCTIONS_ID, "--cwd", root]].concat());
}

#[test]
fn forget_removes_every_file_with_the_id() {
    let entries = Entries::new();
    // A raced move leaves two.
    let text = fs::read_to_string(entries.path("agents/w", AGENT_ID)).unwrap();
    let twin = entries.write_text("global", AGENT_ID, &text);
    let refused = entries.run(&["forget", AGENT_ID, "--agent-id", "v"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(
        said,
        format!("cannot forget '{AGENT_ID}' — owned by a different agent.\n")
    );
    let forgot = entries.text(&["forget", AGENT_ID, "--agent-id", "w"]);
    assert_eq!(forgot, format!("forgot memory '{AGENT_ID}'.\n"));
    assert!(!twin.exists() && !entries.path("agents/w", AGENT_ID).exists());
    let unknown = entries.text(&["forget", AGENT_ID]);
    assert_eq!(unknown, format!("no memory '{AGENT_ID}' to forget.\n"));
    let (_, removed) = entries.json(&["forget", GLOBAL_ID]);
    assert_eq!(
        removed,
        json!({"schema": "memory-shepherd/1", "id": GLOBAL_ID, "removed": true})
    );
}

#[test]
fn move_changes_scope_and_directory() {
    let entries = Entries::new();
    let (code, moved) = entries.json(&["move", AGENT_ID, "--scope", "global"]);
    assert_eq!((code, &moved["outcome"]), (Some(0), &json!("moved")));
    assert!(!entries.path("agents/w", AGENT_ID).exists());
    let text = fs::read_to_string(entries.path("global", AGENT_ID)).unwrap();
    assert!(text.contains("scope: global\n") && text.contains(&format!("updatedAt: {NOW_MS}\n")));
    assert!(text.ends_with(&format!("\n\n{BODY}\n")));
    let (code, refused) = entries.json(&["move", OTHER_ID, "--scope", "run"]);
    assert_eq!(
        (code, &refused["error"]["reason"]),
        (Some(1), &json!("invalid_scope"))
    );
    let bytes = [
        fs::read(entries.path("agents/v", OTHER_ID)).unwrap(),
        b"\xff\n".to_vec(),
    ]
    .concat();
    fs::write(entries.path("agents/v", OTHER_ID), &bytes).unwrap();
    let (code, refused) = entries.json(&["move", OTHER_ID, "--scope", "global"]);
    assert_eq!(
        (code, &refused["error"]["reason"]),
        (Some(1), &json!("io")),
        "not UTF-8"
    );
    assert_eq!(fs::read(entries.path("agents/v", OTHER_ID)).unwrap(), bytes);
}

#[test]
fn move_gives_an_entry_to_another_agent() {
    let entries = Entries::new();
    let to_w = ["move", OTHER_ID, "--scope", "agent", "--to-agent", "w"];
    let (code, refused) = entries.json(&[&to_w[..], &["--agent-id", "w"]].concat());
    assert_eq!(
        (code, &refused["error"]["reason"]),
        (Some(1), &json!("not_owned"))
    );
    let (code, moved) = entries.json(&to_w);
    assert_eq!(
        (code, &moved["outcome"]),
        (Some(0), &json!("moved")),
        "{moved}"
    );
    assert!(entries.path("agents/w", OTHER_ID).exists());
    assert!(!entries.path("agents/v", OTHER_ID).exists());
    assert_eq!(entries.json(&["show", OTHER_ID]).1["agent_id"], "w");
}

#[test]
fn looking_and_failing_change_nothing() {
    let entries = Entries::new();
    let target = entries.root().join("target");
    fs::write(&target, "of another\n").unwrap();
    symlink(&target, entries.path("global", OTHER_ID)).unwrap();
    let before = read_tree(entries.root());
    let root = entries.root().to_str().unwrap();
    for verb in [
        &["list"][..],
        &["show", GLOBAL_ID],
        &["show", "unknown"],
        &["recall", "tea"],
        &["index", "--agent-id", "w"],
        &["instructions", "--cwd", root],
        &["health"],
        &["forget", "unknown"],
        &[
            "put",
            "--scope",
            "global",
            "--kind",
            "user",
            "--summary",
            "s",
            "--body",
            "b",
            "--id",
            OTHER_ID,
            "--agent-id",
            "v",
        ],
    ] {
        entries.run(verb);
        assert_eq!(read_tree(entries.root()), before, "{verb:?}");
    }
    let absent = entries.root().join("absent");
    let put = [
        "put",
        "--scope",
        "agent",
        "--kind",
        "user",
        "--summary",
        "s",
        "--body",
        "b",
        "--dir",
    ];
    let ran = entries.run(&[&put[..], &[absent.to_str().unwrap()]].concat());
    assert_eq!(ran.status.code(), Some(1));
    assert!(!absent.exists(), "a refused put makes no directory");
}

#[test]
fn index_is_cut_at_its_limits() {
    let entries = Entries::new();
    entries.write(
        "global",
        INSTRUCTIONS_ID,
        "scope: global\nkind: project\nsummary: newer\nupdatedAt: 1700000000001\n",
    );
    let (_, index) = entries.json(&["index", "--agent-id", "w"]);
    let text = index["text"].as_str().unwrap();
    assert!(text.starts_with("\n## Recalled memory\n\n"), "{text}");
    let ending = "\n\n### Global\n- [project] newer\n- [user] likes tea\n\n### Agent (w)\n- [feedback] short answers";
    assert!(text.ends_with(ending), "{text}");
    assert_eq!(
        index["shown"],
        json!([INSTRUCTIONS_ID, GLOBAL_ID, AGENT_ID])
    );
    assert_eq!(entries.text(&["index", "--agent-id", "w"]), text);
    let (_, index) = entries.json(&["index", "--agent-id", "w", "--max-entries", "1"]);
    assert_eq!(
        index["cut"],
        json!([GLOBAL_ID, AGENT_ID]),
        "global entries come first"
    );
    let empty = Entries {
        directory: tempfile::tempdir().unwrap(),
    };
    assert_eq!(empty.text(&["index"]), "");
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
    let (_, chain) = entries.json(&["instructions", "--cwd", cwd.to_str().unwrap()]);
    assert_eq!(chain["root"], root.to_str().unwrap());
    let files = chain["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(files[0]["content"], "root rules");
    let id = entries.text(&["id", "--path", root.join("AGENTS.md").to_str().unwrap()]);
    assert_eq!(format!("{}\n", files[0]["stable_id"].as_str().unwrap()), id);
    assert_eq!(
        (&files[1]["relative_dir"], &files[1]["truncated"]),
        (&json!("a"), &json!(true))
    );
    let cut = "xxx\n\n[...truncated — file exceeds 16384 bytes]";
    assert!(files[1]["content"].as_str().unwrap().ends_with(cut));
    let text = chain["text"].as_str().unwrap();
    assert!(text.starts_with("\n## Project instructions\n\n"));
    assert!(text.contains("\n### (repo root) — AGENTS.md\n\nroot rules\n\n### a — CLAUDE.md\n\n"));
    // A root that is not above the directory leaves the directory alone.
    let elsewhere = [
        "instructions",
        "--cwd",
        root.to_str().unwrap(),
        "--root",
        cwd.to_str().unwrap(),
    ];
    let (_, chain) = entries.json(&elsewhere);
    assert_eq!(chain["files"][0]["relative_dir"], "../..");
}

#[test]
fn health_names_each_fault() {
    let entries = Entries::new();
    let (code, health) = entries.json(&["health"]);
    assert_eq!(
        (code, &health["worst"]),
        (Some(0), &json!("ok")),
        "{health}"
    );
    let old = "scope: global\nkind: user\nsummary: text\n";
    let other = "01HF7YAT00FFFFFFFFFFFFFFFF";
    let cases: &[(&str, &str, String)] = &[
        (
            "unloadable",
            "global",
            entry_text(other, "scope: global\nkind: x\nsummary: s\n"),
        ),
        ("id-mismatch", "global", entry_text(RUN_ID, old)),
        ("scope-mismatch", "agents/w", entry_text(other, old)),
        (
            "agent-mismatch",
            "agents/w",
            entry_text(
                other,
                "scope: agent\nkind: user\nsummary: text\nagentId: v\n",
            ),
        ),
        (
            "run-mismatch",
            "runs/r1",
            entry_text(other, "scope: run\nkind: user\nsummary: text\nrunId: r2\n"),
        ),
        (
            "time-order",
            "global",
            entry_text(other, &format!("{old}updatedAt: 1600000000000\n")),
        ),
        (
            "time-future",
            "global",
            entry_text(other, &format!("{old}updatedAt: 1800000000000\n")),
        ),
        (
            "time-old",
            "global",
            entry_text(other, old).replace("1700000000000", "\"2026-01-01\""),
        ),
        (
            "ulid-time",
            "global",
            entry_text(other, old).replace("1700000000000", "1600000000000"),
        ),
        (
            "summary-long",
            "global",
            entry_text(other, &old.replace("text", &"x".repeat(201))),
        ),
        (
            "summary-multiline",
            "global",
            entry_text(other, &old.replace("text", "|-\n  a\n  b")),
        ),
        (
            "summary-blank",
            "global",
            entry_text(other, &old.replace("text", "\"  \"")),
        ),
        (
            "body-long",
            "global",
            entry_text(other, old).replace("a reason", &"x".repeat(4001)),
        ),
        (
            "body-blank",
            "global",
            entry_text(other, old).replace(BODY, ""),
        ),
        (
            "body-shape",
            "global",
            entry_text(other, old).replace("**Why:**", "why"),
        ),
        (
            "tags-many",
            "global",
            entry_text(
                other,
                &format!("{old}tags: [a1,b1,c1,d1,e1,f1,g1,h1,i1,j1,k1,l1,m1]\n"),
            ),
        ),
        (
            "tags-case",
            "global",
            entry_text(other, &format!("{old}tags: [Style]\n")),
        ),
        (
            "tags-unboostable",
            "global",
            entry_text(other, &format!("{old}tags: [code-review]\n")),
        ),
        (
            "near-duplicate",
            "global",
            entry_text(other, &old.replace("text", "likes tea")),
        ),
        (
            "restates-global",
            "agents/w",
            entry_text(
                other,
                "scope: agent\nkind: user\nsummary: Likes tea!\nagentId: w\n",
            ),
        ),
        (
            "instructions-stale",
            "global",
            entry_text(other, &format!("{old}tags: [instructions]\n")),
        ),
        (
            "line-ends",
            "global",
            entry_text(other, old).replace('\n', "\r\n"),
        ),
        (
            "control",
            "global",
            entry_text(other, old).replace("a reason", "a\u{1}b"),
        ),
        (
            "secret",
            "global",
            entry_text(other, old).replace("a reason", "AKIAQ3EGT4RSNYUZ7XWP"),
        ),
    ];
    for (check, directory, text) in cases {
        let path = entries.write_text(directory, other, text);
        let expected = (check.to_string(), format!("{directory}/{other}.md"));
        let found = entries.findings();
        assert!(found.contains(&expected), "{check}: {found:?}");
        fs::remove_file(path).unwrap();
    }
    let path = entries.path("global", other);
    fs::write(&path, [entry_text(other, old).as_bytes(), b"\xff"].concat()).unwrap();
    fs::create_dir(entries.root().join("agents/a b")).unwrap();
    entries.write_text("global", "notes", "text\n");
    let twin = fs::read_to_string(entries.path("agents/w", AGENT_ID)).unwrap();
    entries.write_text("agents/z", AGENT_ID, &twin);
    for number in 0..30 {
        let id = format!("01HF7YAT00GGGGGGGGGGGGGG{number:02}");
        entries.write(
            "global",
            &id,
            &format!("scope: global\nkind: user\nsummary: number {number} alone\n"),
        );
    }
    let of_run = "scope: run\nkind: user\nsummary: of old\nrunId: old\n";
    let text = entry_text(RUN_ID, of_run).replace("1700000000000", "1690000000000");
    entries.write_text("runs/old", RUN_ID, &text);
    let found = entries.findings();
    for (check, path) in [
        ("run-old", "runs/old".to_string()),
        ("utf8", format!("global/{other}.md")),
        ("bad-directory", "agents/a b".to_string()),
        ("bad-name", "global/notes.md".to_string()),
        ("duplicate-id", format!("agents/z/{AGENT_ID}.md")),
        ("index-overflow", "global".to_string()),
    ] {
        assert!(
            found.contains(&(check.to_string(), path)),
            "{check}: {found:?}"
        );
    }
}

#[test]
fn file_that_cannot_be_read_is_an_error_and_hides_no_other() {
    let entries = Entries::new();
    let huge = fs::File::create(entries.path("global", INSTRUCTIONS_ID)).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    let name = entries.path("global", INSTRUCTIONS_ID);
    for verb in [
        &["list"][..],
        &["recall", "tea"],
        &["index"],
        &["show", GLOBAL_ID],
    ] {
        let ran = entries.run(verb);
        assert_eq!(ran.status.code(), Some(3), "{verb:?}: {ran:?}");
        assert!(!ran.stdout.is_empty(), "{verb:?}");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(said.contains("larger than 64 MiB"), "{said}");
    }
    // It may have the same id.
    for verb in [&["health"][..], &["forget", GLOBAL_ID]] {
        assert_eq!(entries.run(verb).status.code(), Some(3), "{verb:?}");
    }
    assert!(entries.path("global", GLOBAL_ID).exists());
    fs::remove_file(name).unwrap();
    // The directory itself may be named by a symlink.
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
fn interrupted_write_is_recovered_by_the_next() {
    let entries = Entries::new();
    // A directory that no run needs any more goes, a young one stays: its run may begin right now.
    let left = entries.root().join(format!(".shepherd-{}", "0".repeat(32)));
    fs::create_dir(&left).unwrap();
    entries.text(&["forget", GLOBAL_ID]);
    assert!(left.exists());
    let names = fs::read_dir(entries.root()).unwrap().flatten();
    let dotted = names.filter(|it| it.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(dotted.count(), 1, "nothing else is left");
}

/// Writes the config of a fleet whose agent `web` has the entries.
pub(super) fn write_config(entries: &Entries, fleet: &Path) -> PathBuf {
    fs::create_dir(fleet.join("baselines")).unwrap();
    let config = fleet.join("memory-shepherd.conf");
    let root = entries.root().display();
    let text = format!(
        "[general]\nbaseline_dir=baselines\narchive_dir=archives\n[web]\nlayout=drover\nmemory_dir={root}\n"
    );
    fs::write(&config, text).unwrap();
    config
}

/// Runs a command on the agent `web`, which has the entries.
pub(super) fn run_on_agent(entries: &Entries, config: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM_PATH)
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env_clear()
        .current_dir(entries.root())
        .output()
        .unwrap()
}

#[test]
fn operations_of_an_agent_are_planned_and_undone() {
    let entries = Entries::new();
    let fleet = tempfile::tempdir().unwrap();
    let config = write_config(&entries, fleet.path());
    let record = fleet.path().join("record");
    fs::create_dir(&record).unwrap();
    let recorded = entry_text(
        AGENT_ID,
        "scope: agent\nkind: user\nsummary: recorded\nagentId: w\n",
    );
    fs::write(record.join(format!("{AGENT_ID}.md")), &recorded).unwrap();
    let own = fs::read_to_string(entries.path("agents/w", AGENT_ID)).unwrap();
    entries.write_text("global", AGENT_ID, &own);
    entries.write_text(
        "agents/w",
        INSTRUCTIONS_ID,
        &entry_text(
            INSTRUCTIONS_ID,
            "scope: agent\nkind: reference\nsummary: s\nagentId: w\ntags: [instructions]\n",
        ),
    );
    entries.write(
        "agents/w",
        GLOBAL_ID,
        "scope: agent\nkind: user\nsummary: extra\nagentId: w\n",
    );
    let record = record.to_str().unwrap();
    let operations: &[(&[&str], &str, usize)] = &[
        (
            &[
                "put",
                "--scope",
                "global",
                "--kind",
                "user",
                "--summary",
                "s",
                "--body",
                "b",
            ],
            "created",
            1,
        ),
        (
            &[
                "put",
                "--scope",
                "agent",
                "--agent-id",
                "w",
                "--kind",
                "user",
                "--summary",
                "s",
                "--body",
                "b",
                "--id",
                AGENT_ID,
            ],
            "updated",
            2,
        ),
        (&["forget", AGENT_ID], "removed", 2),
        (&["move", OTHER_ID, "--scope", "global"], "moved", 2),
        (&["reset", "--to", record, "--agent-id", "w"], "reset", 2),
    ];
    let before = read_tree(entries.root());
    for (operation, outcome, writes) in operations {
        let json = |verb: &str, rest: &[&str]| -> (Option<i32>, Value) {
            let words = [&["memory", "web", verb], *operation, rest, &["--json"]].concat();
            let ran = run_on_agent(&entries, &config, &words);
            let document = serde_json::from_slice(&ran.stdout);
            (
                ran.status.code(),
                document.unwrap_or_else(|error| panic!("{error}: {ran:?}")),
            )
        };
        let (code, planned) = json("plan", &[]);
        assert_eq!((code, &planned["outcome"]), (Some(0), &json!(outcome)));
        assert_eq!(
            planned["writes"].as_array().unwrap().len(),
            *writes,
            "{planned}"
        );
        assert_eq!(read_tree(entries.root()), before, "a plan changes nothing");
        let hash = planned["plan"].as_str().unwrap();
        let (code, applied) = json("apply", &["--plan", hash]);
        assert_eq!(
            (code, &applied["outcome"]),
            (Some(0), &json!(outcome)),
            "{applied}"
        );
        assert!(applied["run"].is_string());
        assert_ne!(read_tree(entries.root()), before);
        if *outcome == "reset" {
            assert!(entries.path("agents/w", INSTRUCTIONS_ID).exists());
            assert!(!entries.path("agents/w", GLOBAL_ID).exists());
            let text = fs::read_to_string(entries.path("agents/w", AGENT_ID)).unwrap();
            assert_eq!(text, recorded);
        }
        let undone = run_on_agent(&entries, &config, &["undo", "web"]);
        assert_eq!(undone.status.code(), Some(0), "{undone:?}");
        assert_eq!(read_tree(entries.root()), before, "{operation:?}");
    }
    // A record that does not exist is not an empty one; a relative path begins at the working directory.
    let reset = ["memory", "web", "plan", "reset", "--agent-id", "w", "--to"];
    let ran = run_on_agent(&entries, &config, &[&reset[..], &["absent"]].concat());
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("absent does not exist"), "{said}");
    fs::create_dir(entries.root().join("here")).unwrap();
    let ran = run_on_agent(&entries, &config, &[&reset[..], &["here"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    // What the plan is bound to has moved.
    let forget = ["memory", "web", "plan", "forget", OTHER_ID, "--json"];
    let planned = run_on_agent(&entries, &config, &forget);
    let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let path = entries.path("agents/v", OTHER_ID);
    fs::write(&path, own.replace(AGENT_ID, OTHER_ID)).unwrap();
    let hash = planned["plan"].as_str().unwrap();
    let apply = ["memory", "web", "apply", "forget", OTHER_ID, "--plan", hash];
    assert_eq!(
        run_on_agent(&entries, &config, &apply).status.code(),
        Some(6)
    );
    assert!(path.exists());
}
