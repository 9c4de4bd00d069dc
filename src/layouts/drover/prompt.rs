//! What agents are given in their prompts: the index of entries, and the instruction files of a
//! directory.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::entry::{Entry, Scope, trim};
use super::ids::stable_id;
use super::view::View;

/// How many entries the index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// In all.
    pub max_entries: usize,
    /// Of each scope.
    pub max_per_scope: usize,
}

impl IndexLimits {
    /// Those that agents have unless configured otherwise.
    pub const DEFAULT: IndexLimits = IndexLimits {
        max_entries: 30,
        max_per_scope: 30,
    };
}

/// The index of entries in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBlock {
    /// Its text; empty without entries.
    pub text: String,
    /// The ids of the entries that it has, in its order.
    pub shown: Vec<String>,
    /// The ids of the entries that its limits cut off.
    pub cut: Vec<String>,
}

/// Builds the index that an agent is given. Entries of runs are never in it.
pub fn index_block<'e>(
    entries: impl Iterator<Item = &'e Entry>,
    agent_id: Option<&str>,
    limits: IndexLimits,
) -> IndexBlock {
    let view = View {
        agent_id: agent_id.map(str::to_string),
        scopes: vec![Scope::Global, Scope::Agent],
        ..View::default()
    };
    let newest_first = view.newest_first(entries.map(|entry| ((), entry)));
    let mut text = String::from(
        "\n## Recalled memory\n\nOne line per memory. For the text of one: recall(query=\"...\", scopes=[...]).\n",
    );
    let (mut shown, mut cut) = (Vec::new(), Vec::new());
    for scope in [Scope::Global, Scope::Agent] {
        let entries = newest_first.iter().map(|(_, entry)| entry);
        let of_scope = entries.filter(|entry| entry.scope == scope);
        let left = limits.max_entries.saturating_sub(shown.len());
        let limit = limits.max_per_scope.min(left);
        for (number, entry) in of_scope.enumerate() {
            if number >= limit {
                cut.push(entry.id.clone());
                continue;
            }
            if number == 0 {
                let heading = match (scope, agent_id) {
                    (Scope::Global, _) => "Global".to_string(),
                    (_, Some(agent)) => format!("Agent ({agent})"),
                    (_, None) => "Agent".to_string(),
                };
                text.push_str(&format!("\n### {heading}\n"));
            }
            text.push_str(&format!("- [{}] {}\n", entry.kind.as_str(), entry.summary));
            shown.push(entry.id.clone());
        }
    }
    text.truncate(text.trim_end().len());
    if shown.is_empty() {
        text.clear();
    }
    IndexBlock { text, shown, cut }
}

/// Which instruction files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionSettings {
    /// The directory from which the chain begins; none is the nearest repository around the working
    /// directory.
    pub root: Option<PathBuf>,
    /// The names of the files, in the order in which a directory's are read.
    pub filenames: Vec<String>,
    /// How many bytes of a file are read.
    pub max_bytes: usize,
}

impl Default for InstructionSettings {
    /// Those that agents have unless configured otherwise.
    fn default() -> InstructionSettings {
        InstructionSettings {
            root: None,
            filenames: ["AGENTS.md", "CLAUDE.md"].map(str::to_string).to_vec(),
            max_bytes: 16_384,
        }
    }
}

/// A file of instructions that agents are given whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its directory, from the root of the chain.
    pub relative_directory: String,
    /// Its name.
    pub filename: String,
    /// Its text, or the beginning of it.
    pub content: String,
    /// Whether the content is the beginning of the text only.
    pub is_truncated: bool,
    /// The id that it has as an entry.
    pub stable_id: String,
}

/// The instruction files of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionChain {
    /// The directory from which the chain begins.
    pub root: PathBuf,
    /// The files, those of the root first.
    pub files: Vec<InstructionFile>,
}

/// How many directories up a repository is looked for.
const MAX_ANCESTORS: usize = 40;

impl InstructionChain {
    /// Reads the files that an agent which works in a directory of this machine is given. Files that
    /// cannot be read are left out, as agents do. `directory`: an absolute path.
    pub fn read(directory: &Path, settings: &InstructionSettings) -> InstructionChain {
        let directory = normalize(directory);
        let repository = || {
            let mut ancestors = directory.ancestors().take(MAX_ANCESTORS);
            ancestors.find(|it| it.join(".git").exists())
        };
        let root = match &settings.root {
            Some(root) => normalize(&directory.join(root)),
            None => repository().unwrap_or(&directory).to_path_buf(),
        };
        let mut directories: Vec<&Path> = directory
            .ancestors()
            .take_while(|it| it.starts_with(&root))
            .collect();
        if directories.is_empty() {
            directories.push(&directory);
        }
        let paths = directories.iter().rev().flat_map(|directory| {
            let names = settings.filenames.iter();
            names.map(|name| (*directory, name.as_str()))
        });
        let files = paths.filter_map(|(directory, name)| {
            let path = normalize(&directory.join(name));
            let (content, is_truncated) = read_instructions(&path, settings.max_bytes)?;
            Some(InstructionFile {
                relative_directory: relative_path(&root, directory),
                filename: name.to_string(),
                stable_id: stable_id(&path.to_string_lossy()),
                path,
                content,
                is_truncated,
            })
        });
        let files = files.collect();
        InstructionChain { root, files }
    }

    /// Returns the text that agents are given; empty without files.
    pub fn text(&self) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let mut text = String::from(
            "\n## Project instructions\n\nFiles of this project for everyone who works on it, agents included.\nThose of inner directories come last and go before the others.\n",
        );
        for file in &self.files {
            let directory = match file.relative_directory.as_str() {
                "" => "(repo root)",
                directory => directory,
            };
            text.push_str(&format!(
                "\n### {directory} — {}\n\n{}\n",
                file.filename, file.content
            ));
        }
        text
    }
}

/// Reads the beginning of a file, and says whether there is more.
fn read_instructions(path: &Path, max_bytes: usize) -> Option<(String, bool)> {
    // A FIFO would block.
    let is_file = fs::metadata(path).ok()?.is_file();
    let file = is_file.then(|| File::open(path).ok()).flatten()?;
    let mut bytes = Vec::new();
    let read = file.take(max_bytes as u64 + 1).read_to_end(&mut bytes);
    read.ok()?;
    let is_truncated = bytes.len() > max_bytes;
    bytes.truncate(max_bytes);
    let text = String::from_utf8_lossy(&bytes);
    let text = trim(&text);
    let content = if is_truncated {
        format!("{text}\n\n[...truncated — file exceeds {max_bytes} bytes]")
    } else {
        text.to_string()
    };
    Some((content, is_truncated))
}

/// Removes `.` and `..` from an absolute path without a look at the disk.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            component => normal.push(component),
        }
    }
    normal
}

/// Returns the path of a directory from another one.
fn relative_path(from: &Path, to: &Path) -> String {
    let is_common = |(one, other): &(Component, Component)| one == other;
    let common = from.components().zip(to.components());
    let common = common.take_while(is_common).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    let down = to.components().skip(common);
    let path: PathBuf = up.chain(down).collect();
    path.to_string_lossy().into_owned()
}
