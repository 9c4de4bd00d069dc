//! Entries of the layout `drover`: their texts and files, the command lines that put them, and the
//! replies of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

/// A body of the shape that agents are asked for.
pub const BODY: &str = "the rule\n\n**Why:** a reason\n\n**How to apply:** always";

/// The instant that counts as now: a day after the entries were written.
pub const NOW: &str = "2023-11-15T22:13:20Z";

/// The scope of an entry.
#[derive(Clone, Copy)]
pub enum EntryScope<'a> {
    Global,
    /// The scope of the agent with this id.
    Agent(&'a str),
    /// The scope of the run with this id.
    Run(&'a str),
}

impl<'a> EntryScope<'a> {
    /// Returns the arguments that name the scope in a command line.
    fn arguments(self) -> Vec<&'a str> {
        match self {
            EntryScope::Global => vec!["--scope", "global"],
            EntryScope::Agent(id) => vec!["--scope", "agent", "--agent-id", id],
            EntryScope::Run(id) => vec!["--scope", "run", "--run-id", id],
        }
    }

    /// Returns the lines of an entry's mapping, without id and time.
    pub fn mapping_lines(self, kind: &str, summary: &str) -> String {
        let (name, owner) = match self {
            EntryScope::Global => ("global", String::new()),
            EntryScope::Agent(id) => ("agent", format!("agentId: {id}\n")),
            EntryScope::Run(id) => ("run", format!("runId: {id}\n")),
        };
        format!("scope: {name}\nkind: {kind}\nsummary: {summary}\n{owner}")
    }
}

/// Returns the text of an entry, whose mapping has these lines beside id and time.
pub fn entry_text(id: &str, lines: &str) -> String {
    entry_with_body(id, &format!("{lines}createdAt: 1700000000000\n"), BODY)
}

/// Returns the text of an entry, whose mapping has these lines beside the id.
pub fn entry_with_body(id: &str, lines: &str, body: &str) -> String {
    format!("---\nid: {id}\n{lines}---\n\n{body}\n")
}

/// Returns the path of an entry in a directory below `root`.
pub fn entry_path(root: &Path, directory: &str, id: &str) -> PathBuf {
    root.join(directory).join(format!("{id}.md"))
}

/// Writes the file of an entry, and its directory; returns its path.
pub fn write_entry(root: &Path, directory: &str, id: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = entry_path(root, directory, id);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// Returns the command line that puts a new entry of the kind `user`.
pub fn put_command<'a>(scope: EntryScope<'a>, summary: &'a str, body: &'a str) -> Vec<&'a str> {
    let text = ["--kind", "user", "--summary", summary, "--body", body];
    [&["put"], &scope.arguments()[..], &text].concat()
}

/// Returns the command line that puts an entry of the kind `user` with an id.
pub fn put_with_id_command<'a>(
    id: &'a str,
    scope: EntryScope<'a>,
    summary: &'a str,
    body: &'a str,
) -> Vec<&'a str> {
    [&put_command(scope, summary, body)[..], &["--id", id]].concat()
}

/// Returns the exit code of the program, and the document that it printed.
pub fn parse_reply(ran: &Output) -> (Option<i32>, Value) {
    let document = serde_json::from_slice(&ran.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (ran.status.code(), document)
}
