//! A fleet on the disk for the real binary, and the inspection of its files afterwards.

use crate::edits::{EDIT, edit_process};
use crate::skip::skip_missing_tool;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use serde_json::Value;

/// Baseline of every agent.
pub const BASELINE: &str = "# Rules\n\n- be kind\n- be brief\n\n---\n";

/// The baseline after its operator has changed it.
pub const NEW_BASELINE: &str = "# Rules\n\n- be kind\n- be exact\n- ask first\n\n---\n";

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Returns whether a tool can be run; prints a notice if it cannot.
pub fn has_tool(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(tool).is_file());
    if !found {
        skip_missing_tool(tool);
    }
    found
}

/// Environment variable that marks the separate process of a test.
const OWN_PROCESS_VARIABLE: &str = "HARNESS_APART";

/// Timeout of such a test, in seconds.
const OWN_PROCESS_TIMEOUT: &str = "600";

/// Returns whether this process runs one test only.
pub fn is_own_process() -> bool {
    std::env::var_os(OWN_PROCESS_VARIABLE).is_some()
}

/// Runs the test with this name again in a separate process behind these wrapper words, and fails
/// when that one does.
pub fn run_in_own_process(test: &str, wrapper: &[&str]) {
    let output = Command::new("timeout")
        .args(["-s", "KILL", OWN_PROCESS_TIMEOUT])
        .args(wrapper)
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(OWN_PROCESS_VARIABLE, "1")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let frame =
        |line: &&str| line.is_empty() || line.starts_with("running ") || line.starts_with("test ");
    out.lines()
        .filter(|line| !frame(line))
        .for_each(|line| println!("{line}"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(out.contains("1 passed"), "no test named {test}");
}

/// A config with its agents, in a new directory or in a given one.
pub struct Fleet {
    pub root: PathBuf,
    pub archive: PathBuf,
    agents: Vec<String>,
}

impl Fleet {
    /// Creates agents with their directories and baselines below `root`, and the archive at
    /// `archive`. Writes no memory.
    pub fn new(root: &Path, archive: &Path, agents: &[&str]) -> Fleet {
        let fleet = Fleet {
            root: root.to_path_buf(),
            archive: archive.to_path_buf(),
            agents: agents.iter().map(ToString::to_string).collect(),
        };
        fs::create_dir_all(root.join("baselines")).unwrap();
        let mut config = format!(
            "[general]\nmin_baseline_size = 10\narchive_dir = {}\n",
            archive.display()
        );
        for agent in agents {
            fs::create_dir_all(fleet.agent_directory(agent)).unwrap();
            fs::write(fleet.baseline_path(agent), BASELINE).unwrap();
            config.push_str(&format!(
                "[{agent}]\nmemory_file = agents/{agent}/MEMORY.md\nbaseline = {agent}.md\n"
            ));
        }
        fs::write(root.join("memory-shepherd.conf"), config).unwrap();
        fleet
    }

    pub fn agents(&self) -> &[String] {
        &self.agents
    }

    pub fn config_path(&self) -> PathBuf {
        self.root.join("memory-shepherd.conf")
    }

    pub fn baseline_path(&self, agent: &str) -> PathBuf {
        self.root.join(format!("baselines/{agent}.md"))
    }

    pub fn agent_directory(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent)
    }

    pub fn memory_path(&self, agent: &str) -> PathBuf {
        self.agent_directory(agent).join("MEMORY.md")
    }

    /// Appends to a memory, as an agent does, or creates it. Returns the open file.
    pub fn append_note(&self, agent: &str, text: &str) -> File {
        let mut memory = File::options()
            .append(true)
            .create(true)
            .open(self.memory_path(agent))
            .unwrap();
        memory.write_all(text.as_bytes()).unwrap();
        memory
    }

    /// Returns the program's path.
    pub fn program() -> &'static str {
        env!("CARGO_BIN_EXE_memory-shepherd")
    }

    /// Returns the program with these arguments on this fleet, behind `wrapper` (strace and its
    /// options, say), in a scrubbed environment; or an edit of a baseline as the console does it.
    pub fn command(&self, wrapper: &[&str], arguments: &[&str]) -> Command {
        let (program, variables) = match arguments {
            [EDIT, edit] => {
                let (words, variables) = edit_process(self, edit);
                (words, variables.to_vec())
            }
            _ => {
                let config = self.config_path().display().to_string();
                let words = std::iter::once(Fleet::program())
                    .chain(arguments.iter().copied())
                    .chain(["--config", config.as_str()]);
                (words.map(str::to_string).collect(), Vec::new())
            }
        };
        let wrapper = wrapper.iter().map(ToString::to_string);
        let mut words = wrapper.chain(program);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TZ", "UTC")
            .envs(variables);
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(&[], arguments).output().unwrap()
    }

    /// Returns the entries of an agent: name and content.
    pub fn entries(&self, agent: &str) -> BTreeMap<String, Vec<u8>> {
        directory_files(&self.archive.join(agent))
    }

    /// Returns the bytes of the whole ledger. A segment whose first record the active file has, too,
    /// does not count.
    pub fn ledger_text(&self) -> Vec<u8> {
        let own = self.archive.join(".shepherd");
        let active = fs::read(own.join("ledger.jsonl")).unwrap_or_default();
        let line = active.split(|byte| *byte == b'\n').next().unwrap();
        let first = serde_json::from_slice::<Value>(line)
            .ok()
            .and_then(|record| record["seq"].as_u64());
        let mut text = Vec::new();
        for name in segment_names(&own) {
            let number: u64 = name.split('-').nth(1).unwrap().parse().unwrap();
            if first.is_none_or(|first| number < first) {
                let file = File::open(own.join(name)).unwrap();
                GzDecoder::new(file).read_to_end(&mut text).unwrap();
            }
        }
        text.extend(active);
        text
    }

    /// Returns the ledger's complete lines.
    pub fn records(&self) -> Vec<Value> {
        let text = self.ledger_text();
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter(|line| line.ends_with(b"\n"));
        whole
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Returns the names of other files beside an agent's memory, sorted. One of them may be larger
    /// than the memory of this machine.
    pub fn leftovers(&self, agent: &str) -> Vec<String> {
        let items = fs::read_dir(self.agent_directory(agent))
            .into_iter()
            .flatten();
        let mut names: Vec<String> = items
            .map(|item| item.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name != "MEMORY.md")
            .collect();
        names.sort();
        names
    }

    /// Returns the names of pending transaction records. A file that a kill left without a final
    /// name does not count.
    pub fn pending_journals(&self) -> Vec<String> {
        let mut names: Vec<String> = directory_files(&self.archive.join(".shepherd/tx"))
            .into_keys()
            .collect();
        names.retain(|name| !name.starts_with(".shepherd-"));
        names
    }
}

/// Returns the names of the ledger's segments, in order.
pub fn segment_names(directory: &Path) -> Vec<String> {
    let names = directory_files(directory).into_keys();
    names.filter(|name| name.ends_with(".jsonl.gz")).collect()
}

/// Returns the names in a directory, with the content of regular files; empty where the directory
/// does not exist.
pub fn directory_files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let items = fs::read_dir(directory).into_iter().flatten();
    items
        .map(|item| {
            let item = item.unwrap();
            let bytes = if item.file_type().unwrap().is_file() {
                fs::read(item.path()).unwrap()
            } else {
                Vec::new()
            };
            (item.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect()
}
