//! Fixture of the tests of the layout `drover`: a directory of entries, the program run on it, and a
//! fleet whose agent `web` has these entries as its memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::drover_entries::{EntryScope, NOW, entry_path, entry_text, parse_reply, write_entry};
use super::fixture::PROGRAM_PATH;
use super::odd_entries::ODD_ID;

pub const GLOBAL_ID: &str = "01HF7YAT00AAAAAAAAAAAAAAAA";
pub const AGENT_ID: &str = "01HF7YAT00BBBBBBBBBBBBBBBB";
pub const RUN_ID: &str = "01HF7YAT00CCCCCCCCCCCCCCCC";
pub const OTHER_ID: &str = "01HF7YAT00DDDDDDDDDDDDDDDD";
pub const INSTRUCTIONS_ID: &str = "01HF7YAT00EEEEEEEEEEEEEEEE";

/// An id that no entry has at first.
pub const NEW_ID: &str = "01HF7YAT00FFFFFFFFFFFFFFFF";

/// [`NOW`] in milliseconds since the epoch.
pub const NOW_MS: i64 = 1_700_086_400_000;

/// A directory of entries.
pub struct Entries {
    directory: TempDir,
}

impl Entries {
    /// Entries of each scope, in which health finds nothing.
    pub fn new() -> Entries {
        let entries = Entries::empty();
        let global = EntryScope::Global.mapping_lines("user", "likes tea");
        let run = EntryScope::Run("r1").mapping_lines("project", "half done");
        for (directory, id, lines) in [
            ("global", GLOBAL_ID, format!("{global}tags:\n  - style\n")),
            (
                "agents/w",
                AGENT_ID,
                EntryScope::Agent("w").mapping_lines("feedback", "short answers"),
            ),
            (
                "agents/v",
                OTHER_ID,
                EntryScope::Agent("v").mapping_lines("project", "of another"),
            ),
            ("runs/r1", RUN_ID, format!("{run}agentId: w\n")),
        ] {
            entries.write(directory, id, &lines);
        }
        entries
    }

    pub fn empty() -> Entries {
        Entries {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, directory: &str, id: &str) -> PathBuf {
        entry_path(self.root(), directory, id)
    }

    pub fn read(&self, directory: &str, id: &str) -> String {
        fs::read_to_string(self.path(directory, id)).unwrap()
    }

    /// Writes the file of an entry, whose mapping has these lines beside id and time.
    pub fn write(&self, directory: &str, id: &str, lines: &str) -> PathBuf {
        self.write_text(directory, id, &entry_text(id, lines))
    }

    pub fn write_text(&self, directory: &str, name: &str, text: &str) -> PathBuf {
        write_entry(self.root(), directory, name, text)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
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
    pub fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        parse_reply(&self.run(&[arguments, &["--json"]].concat()))
    }

    /// Runs a verb that must succeed; returns what it prints.
    pub fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Runs an operation that must have an outcome; returns its document.
    #[track_caller]
    pub fn assert_outcome(&self, arguments: &[&str], outcome: &str) -> Value {
        let (code, document) = self.json(arguments);
        let found = (code, &document["outcome"]);
        assert_eq!(
            found,
            (Some(0), &json!(outcome)),
            "{arguments:?}: {document}"
        );
        document
    }

    /// Runs an operation that must be refused for a reason; returns the message.
    #[track_caller]
    pub fn assert_refused(&self, arguments: &[&str], reason: &str) -> String {
        let (code, document) = self.json(arguments);
        let error = &document["error"];
        let found = (code, &error["reason"]);
        assert_eq!(
            found,
            (Some(1), &json!(reason)),
            "{arguments:?}: {document}"
        );
        error["message"].as_str().unwrap().to_string()
    }

    pub fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let (code, listed) = self.json(arguments);
        assert_eq!(code, Some(0));
        let entries = listed["entries"].as_array().or(listed["hits"].as_array());
        let ids = entries.unwrap().iter().map(|it| it["id"].as_str().unwrap());
        ids.map(str::to_string).collect()
    }

    /// The names of the checks that find something, with the files they are about.
    pub fn findings(&self) -> Vec<(String, String)> {
        let (_, health) = self.json(&["health"]);
        let findings = health["findings"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        findings
            .map(|it| (text(&it["check"]), text(&it["path"])))
            .collect()
    }
}

/// Entries that are also the memory of the agent `web` of a fleet.
pub struct WebEntries {
    pub entries: Entries,
    pub fleet: TempDir,
    config: PathBuf,
}

impl WebEntries {
    pub fn new() -> WebEntries {
        let (entries, fleet) = (Entries::new(), tempfile::tempdir().unwrap());
        fs::create_dir(fleet.path().join("baselines")).unwrap();
        let config = fleet.path().join("memory-shepherd.conf");
        let root = entries.root().display();
        let text = format!(
            "[general]\nbaseline_dir=baselines\narchive_dir=archives\n[web]\nlayout=drover\nmemory_dir={root}\n"
        );
        fs::write(&config, text).unwrap();
        WebEntries {
            entries,
            fleet,
            config,
        }
    }

    /// Entries beside the odd file, which has these bytes.
    pub fn with_odd_file(bytes: &[u8]) -> WebEntries {
        let web = WebEntries::new();
        fs::write(web.odd_path(), bytes).unwrap();
        web
    }

    /// The path of the odd file.
    pub fn odd_path(&self) -> PathBuf {
        self.entries.path("global", ODD_ID)
    }

    /// Runs a command with the config of the fleet.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM_PATH)
            .args(arguments)
            .arg("--config")
            .arg(&self.config)
            .env_clear()
            .current_dir(self.entries.root())
            .output()
            .unwrap()
    }

    /// Runs a verb of `memory` on the agent.
    pub fn memory(&self, arguments: &[&str]) -> Output {
        self.run(&[&["memory", "--now", NOW, "web"], arguments].concat())
    }

    /// Runs a verb of `memory` on the agent; returns its exit code and its document.
    pub fn memory_json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        parse_reply(&self.memory(&[arguments, &["--json"]].concat()))
    }

    /// Applies an operation to the memory of the agent.
    pub fn apply(&self, operation: &[&str]) -> Output {
        self.memory(&[&["apply"], operation].concat())
    }

    /// Returns the titles of the items that the tree has of a collection.
    pub fn titles(&self, collection: &str, id: &str) -> Vec<Value> {
        let (_, tree) = self.memory_json(&["tree", collection]);
        let items = tree["collections"][0]["items"].as_array().unwrap().iter();
        let items = items.filter(|item| item["id"] == id);
        items.map(|item| item["title"].clone()).collect()
    }

    pub fn undo(&self) {
        let undone = self.run(&["undo", "web"]);
        assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    }
}
