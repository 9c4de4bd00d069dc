//! Layouts: the shapes of memories that are more than one file. A layout says what is in a directory
//! (collections of items), what is wrong with it (health), and which edits an operation consists of.
//!
//! A layout only reads, through [`MemoryFiles`], and looking changes nothing. Reading is tolerant:
//! what is malformed is shown or reported, not left out. A plan of the engine applies its edits:
//! archived, recorded, and undone as a reset is.

pub mod drover;
mod files;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize, Serializer};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::untrusted::serialize_path;
use crate::config::LayoutKeys;
use crate::lint::{self, FleetFacts, LintInput, LintSettings, TextRole};
use crate::transport::FileMetadata;
pub use files::{DirectoryPages, FileReadFault, MAX_LISTED_NAMES, MemoryFiles};

/// The shape of a memory.
pub trait Layout: Send + Sync {
    /// Its name in the config and in documents.
    fn name(&self) -> &'static str;

    /// The keys of an agent's section that it has, of those that not all layouts have.
    fn config_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns what shows that the directory has this layout, as a phrase; none if nothing does.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn detect(&self, files: &MemoryFiles) -> Result<Option<String>>;

    /// Returns the collections, in the order in which they are shown.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn collections(&self, files: &MemoryFiles) -> Result<Vec<Collection>>;

    /// Opens a collection. Its items come in pages, so that a large one opens as fast as a small one.
    ///
    /// # Errors
    /// There is no such collection, or it cannot be read.
    fn items<'f>(&self, files: &'f MemoryFiles, collection: &str) -> Result<ItemPages<'f>>;

    /// Returns the content of an item. Of several with one id, `collection` says which; else the one
    /// that the agent sees.
    ///
    /// # Errors
    /// There is no such item, or it cannot be read.
    fn read(
        &self,
        files: &MemoryFiles,
        collection: Option<&str>,
        item: &str,
    ) -> Result<ItemContent>;

    /// Lists the files whose texts can be searched, without reading them.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn texts(&self, files: &MemoryFiles) -> Result<Vec<SearchableFile>>;

    /// Returns the title of the item that is in a file with these bytes.
    fn title(&self, file: &SearchableFile, bytes: &[u8]) -> String;

    /// Finds items by words, the best first, as the agents' own program does.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn search(&self, files: &MemoryFiles, query: &str) -> Result<SearchAnswer>;

    /// Checks the memory; the worst finding need not come first.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn health(&self, files: &MemoryFiles, now: DateTime<FixedOffset>)
    -> Result<Vec<HealthFinding>>;

    /// The operations that can be planned.
    fn operations(&self) -> &'static [OperationSpec];

    /// Returns what an operation would do, based on what the files hold now. `record`: the directory
    /// that an argument of the form [`ArgumentForm::Record`] names.
    ///
    /// # Errors
    /// The operation is refused, or the files cannot be read.
    fn plan(
        &self,
        files: &MemoryFiles,
        record: Option<&MemoryFiles>,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure>;
}

/// What an operation would do.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedOperation {
    /// The word for it in documents.
    pub outcome: &'static str,
    /// The sentence for people.
    pub message: String,
    /// What documents say of it: an object.
    pub facts: serde_json::Value,
    /// The changes of files, none where there is nothing to do.
    pub edits: Vec<FileEdit>,
    /// What is wanted, where the time decides about bytes and names of the files: a plan is bound to it
    /// in their place.
    pub basis: Option<String>,
}

/// Why an operation cannot be planned.
#[derive(Debug)]
pub enum PlanFailure {
    /// The layout does not allow it.
    Refused(Refusal),
    /// The files cannot be read, or an argument is wrong.
    Failed(Error),
}

/// Why a layout does not allow an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The word of the layout for it.
    pub reason: &'static str,
    /// The sentence of the layout for it.
    pub message: String,
}

impl From<Error> for PlanFailure {
    fn from(error: Error) -> PlanFailure {
        PlanFailure::Failed(error)
    }
}

impl From<PlanFailure> for Error {
    fn from(failure: PlanFailure) -> Error {
        match failure {
            PlanFailure::Refused(Refusal { reason, message }) => {
                Error::new(ErrorKind::Partial, message).with_reason(reason)
            }
            PlanFailure::Failed(error) => error,
        }
    }
}

/// The items of a collection, a page at a time; a page may be empty.
pub type ItemPages<'f> = Box<dyn Iterator<Item = Result<Vec<MemoryItem>>> + 'f>;

/// A group of items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collection {
    /// Its id, which is stable.
    pub id: String,
    /// What it holds, in a few words.
    pub name: String,
}

/// A document of a memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryItem {
    /// Its id, which is stable while the document exists.
    pub id: String,
    /// Its title, which agents write; [`MemoryItem::title_of`] makes one of a text.
    pub title: String,
    /// The file that holds it, below the directory of the memory.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was changed last; none where that is unknown.
    pub modified: Option<DateTime<FixedOffset>>,
    /// Who is given it: `all`, or an agent or run.
    pub visible_to: String,
    /// Words about it, such as its kind and its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Why it cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl MemoryItem {
    /// Makes a title of a text: its first line, at most [`MAX_TITLE_CHARS`] of it.
    pub fn title_of(text: &str) -> String {
        let line = text.lines().next().unwrap_or_default();
        line.chars().take(MAX_TITLE_CHARS).collect()
    }
}

/// Maximum length of a title in characters: more than a line of a screen has.
pub const MAX_TITLE_CHARS: usize = 300;

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemContent {
    /// The file that holds it, below the directory of the memory.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the agent is given of it, where that differs.
    pub given: Option<Vec<u8>>,
}

/// A file whose text can be searched.
#[derive(Clone, Debug)]
pub struct SearchableFile {
    /// The id of the item in it.
    pub item: String,
    /// The id of its collection.
    pub collection: String,
    /// Its path below the directory of the memory.
    pub path: PathBuf,
    /// Its attributes, as they were listed.
    pub metadata: FileMetadata,
}

/// What a search found.
#[derive(Debug)]
pub struct SearchAnswer {
    /// The word for the way in which items are ranked.
    pub mode: &'static str,
    /// The items, the best first.
    pub results: Vec<FoundItem>,
    /// Why others could not be read.
    pub unread: Vec<Error>,
}

/// An item that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundItem {
    /// Its id.
    pub item: String,
    /// The file that holds it, below the directory of the memory.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// The first line with what was looked for, from 1.
    pub line: Option<u64>,
    /// How well it fits.
    pub score: f64,
    /// That line, or the title.
    pub snippet: String,
}

/// How bad a finding of a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthSeverity {
    /// Worth knowing.
    Info,
    /// The agent works worse, or may soon.
    Warning,
    /// Something is lost, or the agent cannot see it.
    Error,
}

impl HealthSeverity {
    /// The word for people and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthSeverity::Info => "info",
            HealthSeverity::Warning => "warning",
            HealthSeverity::Error => "error",
        }
    }
}

/// What a check found at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthFinding {
    /// The name of the check.
    pub check: &'static str,
    /// How bad it is.
    pub severity: HealthSeverity,
    /// The file, below the directory of the memory.
    #[serde(serialize_with = "serialize_path_of_finding")]
    pub path: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// The item, or what else the check is about.
    pub id: Option<String>,
    /// What was measured.
    pub measured: Option<String>,
    /// What the memory says of itself.
    pub reported: Option<String>,
    /// Why it matters.
    pub why: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

fn serialize_path_of_finding<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serialize_path(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// An operation of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSpec {
    /// Its name.
    pub name: &'static str,
    /// What it does, as an imperative.
    pub title: &'static str,
    /// Its arguments.
    pub arguments: &'static [ArgumentSpec],
}

/// An argument of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentSpec {
    /// Its name.
    pub name: &'static str,
    /// What it is, as a phrase.
    pub title: &'static str,
    /// How it is given.
    pub form: ArgumentForm,
    /// Whether it must be given.
    pub is_required: bool,
    /// The values that it can have; none where the layout alone knows.
    pub choices: &'static [&'static str],
}

impl ArgumentSpec {
    /// Whether it is given by its place on a command line: it is what the operation is about.
    pub fn is_positional(&self) -> bool {
        matches!(
            self.form,
            ArgumentForm::Positional | ArgumentForm::ItemOrFile
        )
    }
}

/// How an argument is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentForm {
    /// By its place on a command line.
    Positional,
    /// As [`ArgumentForm::Positional`]: an item, or the path of its file below the directory of the memory.
    ItemOrFile,
    /// By its name.
    Named,
    /// By its name, as often as there are values.
    Repeated,
    /// By its name; a command line also takes the file that holds it.
    Text,
    /// By its name: an absolute path of a directory of this machine.
    Directory,
    /// As [`ArgumentForm::Directory`], whose files the operation reads.
    Record,
}

/// A requested operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRequest {
    /// The name of the operation.
    pub operation: String,
    /// The values of the arguments, by name.
    pub arguments: BTreeMap<String, Vec<String>>,
    /// The instant that counts as now.
    pub now: DateTime<FixedOffset>,
}

impl OperationRequest {
    /// Returns the value of an argument that has one.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values(name).first().map(String::as_str)
    }

    /// Returns the values of an argument.
    pub fn values(&self, name: &str) -> &[String] {
        self.arguments.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the value of an argument that must have one.
    ///
    /// # Errors
    /// [`ErrorKind::User`]: it was not given.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.value(name)
            .ok_or_else(|| Error::new(ErrorKind::User, format!("argument {name} is missing")))
    }

    /// Describes what is wanted, the time aside.
    pub fn basis(&self) -> String {
        format!("{} {:?}", self.operation, self.arguments)
    }

    /// Checks that the layout has the operation, and that its arguments are those of its
    /// specification.
    ///
    /// # Errors
    /// [`ErrorKind::User`], with what there is.
    pub fn check(&self, layout: &dyn Layout) -> Result<()> {
        let specs = layout.operations();
        let Some(spec) = specs.iter().find(|spec| spec.name == self.operation) else {
            let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
            let message = format!(
                "the layout {} has no operation {}",
                layout.name(),
                self.operation
            );
            let hint = if names.is_empty() {
                "it has no operations".to_string()
            } else {
                format!("its operations are {}", names.join(", "))
            };
            return Err(Error::new(ErrorKind::User, message).with_hint(hint));
        };
        let argument = |name: &str| spec.arguments.iter().find(|it| it.name == name);
        let given = self
            .arguments
            .iter()
            .map(|(name, values)| match argument(name) {
                None => Some(format!("{} has no argument {name}", spec.name)),
                Some(it) if it.form != ArgumentForm::Repeated && values.len() > 1 => {
                    Some(format!("argument {name} is given twice"))
                }
                Some(_) => None,
            });
        let missing = spec.arguments.iter().map(|it| {
            (it.is_required && self.value(it.name).is_none())
                .then(|| format!("{} needs the argument {}", spec.name, it.name))
        });
        let Some(fault) = given.chain(missing).flatten().next() else {
            return Ok(());
        };
        let names: Vec<&str> = spec.arguments.iter().map(|it| it.name).collect();
        let hint = format!("its arguments are {}", names.join(", "));
        Err(Error::new(ErrorKind::User, fault).with_hint(hint))
    }
}

/// Returns the ranges of bytes of a text that are secrets.
pub(crate) fn find_secrets(text: &[u8]) -> Vec<Range<usize>> {
    let facts = FleetFacts::default();
    let input = LintInput {
        agent: None,
        path: "",
        text,
        role: TextRole::Scratch,
        separator: "---",
        facts: &facts,
    };
    let report = lint::scan(&input, None, &LintSettings::default());
    report.places.into_iter().map(|place| place.range).collect()
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEdit {
    /// Its path below the directory of the memory.
    pub path: PathBuf,
    /// The content that the change is based on; none where there is no file.
    pub before: Option<Vec<u8>>,
    /// The new content; none to remove the file.
    pub after: Option<Vec<u8>>,
    /// The file of the same operation that the content comes from. A new file gets its owner, mode and
    /// attributes; one that exists keeps those that both have.
    pub moved_from: Option<PathBuf>,
}

/// The layouts that this program knows.
#[derive(Clone, Copy, Default)]
pub struct Layouts(pub &'static [&'static dyn Layout]);

impl fmt::Debug for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Layouts {
    /// Those of the program itself.
    pub const BUILT_IN: Layouts = Layouts(&[&drover::DroverLayout]);

    /// Returns the names of the layouts.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|layout| layout.name())
    }

    /// Returns what the config knows of the layouts.
    pub fn config_keys(self) -> Vec<LayoutKeys> {
        let layouts = self.0.iter();
        let keys = layouts.map(|layout| LayoutKeys {
            name: layout.name(),
            keys: layout.config_keys(),
        });
        keys.collect()
    }

    /// Returns the layout of a name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: this program has none of that name.
    pub fn find(self, name: &str) -> Result<&'static dyn Layout> {
        let mut layouts = self.0.iter().copied();
        layouts
            .find(|layout| layout.name() == name)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("no layout is named {name}")))
    }
}
