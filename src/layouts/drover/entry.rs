//! Entries: what agents have learned, one to a file, and the format of these files.
//!
//! A file begins with a mapping in YAML between two lines of dashes; the text behind them, without the
//! white space around it, is the body. Reading accepts what the agents' own program accepts.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::ids::{is_entry_id, is_segment};
use super::yaml::{Pair, Value, parse_mapping, write_text};

/// Who an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every agent.
    Global,
    /// One agent.
    Agent,
    /// One run of an agent.
    Run,
}

impl Scope {
    /// All scopes, in the order in which they are read.
    pub const ALL: [Scope; 3] = [Scope::Global, Scope::Agent, Scope::Run];

    /// The word for people and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Agent => "agent",
            Scope::Run => "run",
        }
    }

    /// The directory of its entries below that of the memory.
    pub fn directory(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Agent => "agents",
            Scope::Run => "runs",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Scope, String> {
        let mut scopes = Scope::ALL.into_iter();
        let scope = scopes.find(|scope| scope.as_str() == text);
        scope.ok_or_else(|| "the scopes are global, agent and run".to_string())
    }
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Facts about the operator.
    User,
    /// Rules of behaviour, from corrections and successes.
    Feedback,
    /// State of work that goes on.
    Project,
    /// Pointers to other systems.
    Reference,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::User, Kind::Feedback, Kind::Project, Kind::Reference];

    /// The word for people and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Feedback => "feedback",
            Kind::Project => "project",
            Kind::Reference => "reference",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let mut kinds = Kind::ALL.into_iter();
        kinds.find(|kind| kind.as_str() == text).ok_or_else(|| {
            format!("kind must be one of user, feedback, project, reference (got '{text}')")
        })
    }
}

/// What an agent has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Who it is for.
    pub scope: Scope,
    /// What it is about.
    pub kind: Kind,
    /// One line, which agents are given of every entry that they see.
    pub summary: String,
    /// The text, which agents are given on recall.
    pub body: String,
    /// The agent that it belongs to.
    pub agent_id: Option<String>,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was written first, in milliseconds since 1970.
    pub created_ms: i64,
    /// When it was replaced last, in milliseconds since 1970.
    pub updated_ms: Option<i64>,
    /// Lines of the mapping with keys that the format does not have.
    pub unknown_lines: String,
}

impl Entry {
    /// The time by which entries are sorted.
    pub fn recency(&self) -> i64 {
        self.updated_ms.unwrap_or(self.created_ms)
    }

    /// Whether it has the tag of entries that agents may not remove.
    pub fn has_instructions_tag(&self) -> bool {
        self.tags.iter().any(|tag| tag == INSTRUCTIONS_TAG)
    }
}

/// The lines around the mapping.
const FENCE: &str = "---";

/// The tag of the entries that instruction files are.
pub const INSTRUCTIONS_TAG: &str = "instructions";

/// Why agents do not see a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFault {
    /// A byte order mark is before the first line.
    Bom,
    /// The two lines of dashes are missing.
    NoFence,
    /// What is between them is not a mapping in YAML.
    Yaml,
    /// The id is missing, or not one.
    Id,
    /// The kind is not one of the four.
    Kind,
    /// The scope is not one of the three.
    Scope,
    /// The summary is missing or empty, or no string.
    Summary,
    /// The time of creation is not a number.
    Created,
}

impl LoadFault {
    /// The word for documents.
    pub fn as_str(self) -> &'static str {
        match self {
            LoadFault::Bom => "bom",
            LoadFault::NoFence => "no-fence",
            LoadFault::Yaml => "yaml",
            LoadFault::Id => "id",
            LoadFault::Kind => "kind",
            LoadFault::Scope => "scope",
            LoadFault::Summary => "summary",
            LoadFault::Created => "created",
        }
    }
}

/// The directory that an entry is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The scope of the directory.
    pub scope: Scope,
    /// The agent or run of the directory; empty for the global one.
    pub segment: String,
}

impl Place {
    /// Returns the one that a path below that of the memory names, if it can hold entries.
    pub fn of_directory(directory: &Path) -> Option<Place> {
        let text = directory.to_str()?;
        let (name, segment) = text.split_once('/').unwrap_or((text, ""));
        let scope = Scope::ALL.into_iter().find(|it| it.directory() == name)?;
        let is_place = match scope {
            Scope::Global => segment.is_empty(),
            Scope::Agent | Scope::Run => is_segment(segment),
        };
        is_place.then(|| Place {
            scope,
            segment: segment.to_string(),
        })
    }

    /// Its path below that of the memory.
    pub fn directory(&self) -> PathBuf {
        let directory = Path::new(self.scope.directory());
        match self.scope {
            Scope::Global => directory.to_path_buf(),
            Scope::Agent | Scope::Run => directory.join(&self.segment),
        }
    }

    /// The same as text.
    pub fn directory_name(&self) -> String {
        self.directory().display().to_string()
    }

    fn agent(&self) -> Option<String> {
        (self.scope == Scope::Agent).then(|| self.segment.clone())
    }

    fn run(&self) -> Option<String> {
        (self.scope == Scope::Run).then(|| self.segment.clone())
    }
}

/// Splits a text into its mapping and what is behind it: the mapping begins behind the first line of
/// dashes and all blank lines that follow it.
pub fn split_fences(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(FENCE)?;
    let blank = rest.len() - rest.trim_start_matches(is_blank).len();
    let line_ends = rest[..blank].rmatch_indices('\n').map(|(at, _)| at + 1);
    // Blank lines belong to the mapping only where nothing else does.
    line_ends.into_iter().find_map(|start| {
        let end = rest[start..].find("\n---")?;
        let behind = &rest[start + end + 1 + FENCE.len()..];
        Some((&rest[start..start + end], behind))
    })
}

/// Whether a character is white space in JavaScript.
fn is_blank(char: char) -> bool {
    char == '\u{feff}' || (char.is_whitespace() && char != '\u{85}')
}

/// Removes white space around a text, as JavaScript does.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// The length of a text in UTF-16 code units, in which its limits are.
pub fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Reads the file of an entry. What the mapping does not say, the directory does.
///
/// # Errors
/// Agents do not see the entry.
pub fn parse_entry(bytes: &[u8], place: &Place) -> Result<Entry, LoadFault> {
    let text = String::from_utf8_lossy(bytes);
    if text.starts_with('\u{feff}') {
        return Err(LoadFault::Bom);
    }
    let (mapping, rest) = split_fences(&text).ok_or(LoadFault::NoFence)?;
    let pairs = parse_mapping(mapping).map_err(|_| LoadFault::Yaml)?;
    let pairs = Pairs(&pairs);
    let id = pairs.id().ok_or(LoadFault::Id)?;
    let kind = pairs.kind().ok_or(LoadFault::Kind)?;
    if !pairs.has_readable_scope() {
        return Err(LoadFault::Scope);
    }
    let summary = pairs.string("summary").filter(|it| !it.is_empty());
    let summary = summary.ok_or(LoadFault::Summary)?.to_string();
    let segment = |key| pairs.string(key).filter(|it| is_segment(it));
    let segment = |key| segment(key).map(str::to_string);
    Ok(Entry {
        id,
        scope: pairs.scope().unwrap_or(place.scope),
        kind,
        summary,
        body: trim(rest).to_string(),
        agent_id: segment("agentId").or_else(|| place.agent()),
        run_id: segment("runId").or_else(|| place.run()),
        tags: pairs.value("tags").and_then(to_tags).unwrap_or_default(),
        created_ms: pairs.created_ms().ok_or(LoadFault::Created)?,
        updated_ms: pairs.value("updatedAt").and_then(to_millis),
        unknown_lines: unknown_lines(pairs.0),
    })
}

/// Returns the line of a file at which its mapping is not YAML; none where it is, or as a whole is not.
pub fn yaml_fault_line(bytes: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(bytes);
    let (mapping, _) = split_fences(&text)?;
    let fault = parse_mapping(mapping).err()?;
    // The first line has the dashes.
    fault.line.map(|line| line + 1)
}

/// The pairs of the mapping of an entry.
pub struct Pairs<'p>(pub &'p [Pair]);

impl Pairs<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|it| it.key == key).map(|it| &it.value)
    }

    /// Returns the value of a key that has a string.
    pub fn string(&self, key: &str) -> Option<&str> {
        self.value(key).and_then(Value::as_text)
    }

    /// Returns what is written behind a key that has a scalar, as text; none where it is blank.
    pub fn text_of(&self, key: &str) -> Option<String> {
        let pair = self.0.iter().find(|it| it.key == key)?;
        let text = match &pair.value {
            Value::Text(text) => text.clone(),
            Value::Number(_) | Value::Bool => {
                let (_, written) = pair.source.split_once(':')?;
                trim(written.lines().next()?).to_string()
            }
            Value::Null | Value::List(_) | Value::Mapping => return None,
        };
        Some(text).filter(|text| !trim(text).is_empty())
    }

    pub fn id(&self) -> Option<String> {
        let id = self.string("id").filter(|id| is_entry_id(id));
        id.map(str::to_string)
    }

    pub fn kind(&self) -> Option<Kind> {
        self.string("kind")?.parse().ok()
    }

    fn scope(&self) -> Option<Scope> {
        self.string("scope")?.parse().ok()
    }

    /// Whether the scope is one of the three, or that of the directory.
    pub fn has_readable_scope(&self) -> bool {
        matches!(self.value("scope"), None | Some(Value::Null)) || self.scope().is_some()
    }

    pub fn created_ms(&self) -> Option<i64> {
        self.value("createdAt").and_then(to_millis)
    }
}

/// Returns a time; of a string the number at its beginning, as JavaScript's `parseInt` does.
fn to_millis(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) if number.is_finite() => Some(*number as i64),
        Value::Text(text) => {
            let text = trim(text);
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let count = digits.bytes().take_while(u8::is_ascii_digit).count();
            let end = text.len() - digits.len() + count;
            text[..end].parse().ok()
        }
        _ => None,
    }
}

/// Returns tags; none unless all are strings.
fn to_tags(value: &Value) -> Option<Vec<String>> {
    let Value::List(values) = value else {
        return None;
    };
    let tags = values.iter().map(|it| it.as_text().map(str::to_string));
    tags.collect()
}

/// The keys of the format, in the order in which they are written.
const KEYS: [&str; 9] = [
    "id",
    "scope",
    "kind",
    "summary",
    "createdAt",
    "agentId",
    "runId",
    "tags",
    "updatedAt",
];

/// Returns the lines of a mapping with keys that the format does not have.
fn unknown_lines(pairs: &[Pair]) -> String {
    let unknown = pairs.iter().filter(|it| !KEYS.contains(&it.key.as_str()));
    unknown
        .flat_map(|pair| pair.source.lines())
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Writes the file of an entry.
pub fn format_entry(entry: &Entry) -> String {
    let mut text = String::from("---\n");
    let mut add = |key: &str, value: &str| {
        text.push_str(&format!("{key}: {value}\n"));
    };
    let string = |key: &str, value: &str| write_text(value, 2, Some(key.len() + 2));
    add("id", &string("id", &entry.id));
    add("scope", entry.scope.as_str());
    add("kind", entry.kind.as_str());
    add("summary", &string("summary", &entry.summary));
    add("createdAt", &entry.created_ms.to_string());
    let optional = [("agentId", &entry.agent_id), ("runId", &entry.run_id)];
    for (key, value) in optional {
        if let Some(value) = value {
            add(key, &string(key, value));
        }
    }
    if !entry.tags.is_empty() {
        text.push_str("tags:\n");
        for tag in &entry.tags {
            text.push_str(&format!("  - {}\n", write_text(tag, 4, None)));
        }
    }
    if let Some(updated) = entry.updated_ms {
        text.push_str(&format!("updatedAt: {updated}\n"));
    }
    text.push_str(&entry.unknown_lines);
    text.push_str(&format!("---\n\n{}\n", trim(&entry.body)));
    text
}

#[cfg(test)]
mod tests;
