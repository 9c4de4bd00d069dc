//! Plans over baseline files: a version to put back, a new baseline, one change in several
//! baselines. A plan holds the bytes before and after, and is applied to a file only while the file
//! is what the plan saw. Seals have plans of their own.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use regex::bytes::{NoExpand, Regex, RegexBuilder};

use super::Engine;
use super::baseline_save::{SaveCause, SavedBaseline, read_optional};
use super::baseline_versions::SEALED_VERSION_NOTE;
use super::lock;
use super::record::Operation;
use crate::baseline::MAX_BASELINE_BYTES;
use crate::baseline::seal::is_baseline_name;
use crate::digest::Digest;
use crate::durable::ExpectedFile;
use crate::error::{Error, ErrorKind, Result};
use crate::untrusted;

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A reference to a group in a replacement, `$1` or `${name}`, or an escaped dollar sign.
#[expect(clippy::expect_used, reason = "the pattern is constant")]
static GROUP_REFERENCE: LazyLock<regex::Regex> = LazyLock::new(|| {
    regex::Regex::new(r"\$(?:\$|\{([^}]+)\}|([0-9A-Za-z_]+))").expect("the pattern is valid")
});

/// What a plan does to baselines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineAction {
    /// Puts a version back.
    Restore {
        /// The version, as the operator named it.
        version: String,
    },
    /// Creates a file.
    Create {
        /// The text that it begins with, as the operator named it.
        source: String,
    },
    /// Replaces text.
    Replace,
}

/// A change of baseline files, bound to the bytes that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselinePlan {
    /// What it does.
    pub action: BaselineAction,
    /// The files that it changes.
    pub files: Vec<PlannedBaseline>,
    /// Names of the files that it would not change.
    pub unchanged: Vec<String>,
}

/// A file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBaseline {
    /// Name in `baseline_dir`.
    pub name: String,
    /// The object at its path now.
    pub before: BaselineFile,
    /// The bytes that the plan writes.
    pub after: Arc<Vec<u8>>,
    /// Number of places where text is replaced.
    pub replaced: usize,
    /// Agents whose baseline it is.
    pub agents: Vec<String>,
}

/// The object at the path of a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineFile {
    /// Nothing.
    Absent,
    /// A file with these bytes.
    Readable(Vec<u8>),
    /// Something that cannot be read as a baseline, and why.
    Unreadable(String),
}

/// A search and replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextReplacement {
    /// The text to find.
    pub pattern: String,
    /// The text to put in its place. With a regular expression, `$1` stands for its first group.
    pub replacement: String,
    /// Whether the pattern is a regular expression, in which `^` and `$` match at each line.
    pub is_regex: bool,
}

impl BaselineFile {
    fn read(path: &Path) -> BaselineFile {
        match read_optional(path) {
            Ok(None) => BaselineFile::Absent,
            Ok(Some(bytes)) => BaselineFile::Readable(bytes),
            Err(error) => BaselineFile::Unreadable(error.message().to_string()),
        }
    }

    /// Returns its bytes, if they can be read.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            BaselineFile::Readable(bytes) => Some(bytes),
            BaselineFile::Absent | BaselineFile::Unreadable(_) => None,
        }
    }
}

impl TextReplacement {
    fn compile(&self) -> Result<Regex> {
        let pattern = if self.is_regex {
            self.pattern.clone()
        } else {
            regex::escape(&self.pattern)
        };
        let regex = RegexBuilder::new(&pattern)
            .multi_line(true)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| {
                // The last line of the message names the fault; the others draw its place.
                let text = error.to_string();
                let why = text.lines().last().unwrap_or_default();
                let why = why.trim_start_matches("error: ");
                let message = format!("`{}` is not a regular expression: {why}", self.pattern);
                Error::new(ErrorKind::User, message)
                    .with_hint("write a backslash before a character that stands for itself")
            })?;
        if regex.is_match(b"") {
            let message = format!("`{}` matches everywhere, even without text", self.pattern);
            return Err(Error::new(ErrorKind::User, message));
        }
        match self.unknown_group(&regex).filter(|_| self.is_regex) {
            None => Ok(regex),
            Some(reference) => {
                let message = format!("`{reference}` is no group of `{}`", self.pattern);
                Err(Error::new(ErrorKind::User, message)
                    .with_hint("write `${1}` before a letter or digit, and `$$` for a dollar sign"))
            }
        }
    }

    /// Returns a reference of the replacement to a group that the pattern lacks. It would stand for
    /// no text, and so remove what it seems to keep.
    fn unknown_group(&self, regex: &Regex) -> Option<&str> {
        let mut references = GROUP_REFERENCE.captures_iter(&self.replacement);
        let unknown = references.find(|reference| {
            let name = reference.get(1).or(reference.get(2));
            let is_known = |name: &str| match name.parse::<usize>() {
                Ok(number) => number < regex.captures_len(),
                Err(_) => regex.capture_names().flatten().any(|it| it == name),
            };
            name.is_some_and(|name| !is_known(name.as_str()))
        });
        Some(unknown?.get(0)?.as_str())
    }

    /// Returns the new text and the number of places; `None` if nothing matches.
    fn apply(&self, regex: &Regex, text: &[u8]) -> Option<(Vec<u8>, usize)> {
        let count = regex.find_iter(text).count();
        if count == 0 {
            return None;
        }
        let new = self.replacement.as_bytes();
        let replaced = if self.is_regex {
            regex.replace_all(text, new)
        } else {
            regex.replace_all(text, NoExpand(new))
        };
        Some((replaced.into_owned(), count))
    }
}

impl Engine {
    /// Plans to put a version of a baseline back; without files if it is that version already.
    ///
    /// # Errors
    /// As [`Engine::find_baseline_version`].
    pub fn plan_restore(&self, name: &str, version: &str) -> Result<BaselinePlan> {
        let (_, bytes) = self.find_baseline_version(name, version)?;
        let mut plan = BaselinePlan {
            action: BaselineAction::Restore {
                version: version.to_string(),
            },
            files: Vec::new(),
            unchanged: Vec::new(),
        };
        let before = BaselineFile::read(&self.baseline_file_path(name));
        if before.bytes() == Some(&bytes) {
            plan.unchanged.push(name.to_string());
        } else {
            plan.files
                .push(self.planned_baseline(name, before, bytes, 0));
        }
        Ok(plan)
    }

    /// Plans to create a baseline with the text of `source`: `template`, or the name of another
    /// baseline.
    ///
    /// # Errors
    /// [`ErrorKind::User`] if commands could not name it; [`ErrorKind::Conflict`] if there
    /// is something under it.
    pub fn plan_new_baseline(&self, name: &str, source: &str) -> Result<BaselinePlan> {
        // Commands take a name with a dash for an option, and the name of an agent for its baseline;
        // control characters cannot be typed.
        let can_be_typed =
            !name.starts_with('-') && untrusted::visible_line(name.as_bytes()) == name;
        if !is_baseline_name(name) || !can_be_typed || self.config().agent(name).is_some() {
            let message = format!("a new baseline cannot have the name `{name}`");
            return Err(Error::new(ErrorKind::User, message)
                .with_hint("name a file in baseline_dir, such as scout-MEMORY.md"));
        }
        let path = self.baseline_file_path(name);
        let before = BaselineFile::read(&path);
        if before != BaselineFile::Absent {
            let message = format!("{} exists already", path.display());
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("choose another name"));
        }
        let bytes = match source {
            "template" => self.find_baseline_version(name, source)?.1,
            other => Arc::new(self.read_baseline(other)?),
        };
        Ok(BaselinePlan {
            action: BaselineAction::Create {
                source: source.to_string(),
            },
            files: vec![self.planned_baseline(name, before, bytes, 0)],
            unchanged: Vec::new(),
        })
    }

    /// Plans to replace text in baselines, each one once.
    ///
    /// # Errors
    /// [`ErrorKind::User`] for a pattern that cannot be used; a baseline that cannot be read.
    pub fn plan_replacement(
        &self,
        names: &[String],
        replacement: &TextReplacement,
    ) -> Result<BaselinePlan> {
        let regex = replacement.compile()?;
        let mut plan = BaselinePlan {
            action: BaselineAction::Replace,
            files: Vec::new(),
            unchanged: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        for name in names.iter().filter(|name| seen.insert(*name)) {
            let before = self.read_baseline(name)?;
            match replacement.apply(&regex, &before) {
                Some((after, _)) if after.len() as u64 > MAX_BASELINE_BYTES => {
                    let message = format!("{name} would have more than 16 MiB");
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                Some((after, count)) if after != before => {
                    let before = BaselineFile::Readable(before);
                    let file = self.planned_baseline(name, before, Arc::new(after), count);
                    plan.files.push(file);
                }
                _ => plan.unchanged.push(name.clone()),
            }
        }
        Ok(plan)
    }

    fn planned_baseline(
        &self,
        name: &str,
        before: BaselineFile,
        after: Arc<Vec<u8>>,
        replaced: usize,
    ) -> PlannedBaseline {
        let users = self.baseline_users(name).into_iter();
        PlannedBaseline {
            name: name.to_string(),
            before,
            after,
            replaced,
            agents: users.map(|agent| agent.name.clone()).collect(),
        }
    }

    /// Writes one file of a plan. The bytes that it replaces are stored first.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the file has changed since the plan was made; otherwise the system's
    /// error. The file is then unchanged.
    pub fn apply_planned_baseline(
        &self,
        plan: &BaselinePlan,
        file: &PlannedBaseline,
    ) -> Result<SavedBaseline> {
        let BaselineAction::Restore { version } = &plan.action else {
            let expected = file.before.bytes().map(Digest::of);
            return self.save_baseline(&file.name, &file.after, expected);
        };
        let _edit = self.begin_baseline_edit()?;
        let _lock = lock::lock_seal(&self.archive, self.clock())?;
        let path = self.baseline_file_path(&file.name);
        if BaselineFile::read(&path) != file.before {
            let message = format!("{} has changed since the plan was made", path.display());
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("make the plan again, and review it"));
        }
        let cause = SaveCause {
            operation: Operation::Restore,
            note: Some(match version.as_str() {
                "sealed" => SEALED_VERSION_NOTE.to_string(),
                "pushed" | "previous" => format!("{version} version"),
                _ => format!("version {}", Digest::of(&file.after).short_hex(8)),
            }),
            expected: match &file.before {
                BaselineFile::Absent => ExpectedFile::Absent,
                BaselineFile::Readable(bytes) => ExpectedFile::of(Some(bytes)),
                BaselineFile::Unreadable(_) => ExpectedFile::Any,
            },
        };
        self.replace_baseline(&file.name, &file.after, cause)
    }

    /// Puts a version of a baseline back; none if the file is that version already. The bytes that
    /// it replaces are stored first.
    ///
    /// # Errors
    /// As [`Engine::find_baseline_version`]; the system's error.
    pub fn restore_baseline(&self, name: &str, version: &str) -> Result<Option<SavedBaseline>> {
        let plan = self.plan_restore(name, version)?;
        let mut files = plan.files.iter();
        files
            .next()
            .map(|file| self.apply_planned_baseline(&plan, file))
            .transpose()
    }
}
