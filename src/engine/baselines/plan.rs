//! Plans over baseline files: a version to put back, a new baseline, one change in several
//! baselines. A plan holds the bytes before and after, and is applied to a file only while the file
//! is what the plan saw. Seals have plans of their own.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use regex::bytes::{Regex, RegexBuilder};

use crate::base::digest::Digest;
use crate::base::durable::{self, ClearedFlag, ExpectedFile};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::untrusted;
use crate::baseline::MAX_BASELINE_BYTES;
use crate::baseline::seal::is_baseline_name;
use crate::config::SealRequirement;
use crate::engine::baselines::BaselineEdits;
use crate::engine::baselines::catalog::{BASELINE_EXTENSION, SEALED_VERSION_NOTE};
use crate::engine::baselines::file::BaselineFile;
use crate::engine::baselines::save::{BaselineWriter, SaveCause, SavedBaseline, TextOrigin};
use crate::engine::plan_budget::PlanBudget;
use crate::store::record::Operation;

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

impl BaselinePlan {
    /// Creates a plan that changes no file yet.
    fn new(action: BaselineAction) -> BaselinePlan {
        BaselinePlan {
            action,
            files: Vec::new(),
            unchanged: Vec::new(),
        }
    }
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
    /// Whether lines of another program may be in what is changed, copied or put back: a seal covers
    /// it, and no operator sealed it, or made it from what was sealed.
    pub is_foreign: bool,
    /// Whether a restore removes lines that another program wrote, and does not put back the sealed
    /// version.
    pub replaces_foreign: bool,
    /// Whether resets refuse what a restore puts back, because the seal does not list that version.
    pub is_refused: bool,
    /// Whether what a restore puts back was sealed before.
    pub has_been_sealed: bool,
}

/// A search and replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextReplacement {
    /// The text to find.
    pub pattern: String,
    /// The text to put in its place. With a regular expression, `$1` stands for its first group.
    pub replacement: String,
    /// Whether the pattern is a regular expression, in which `^` and `$` match at each line.
    pub is_regex: bool,
}

impl TextReplacement {
    /// Checks the pattern before there is a replacement.
    ///
    /// # Errors
    /// [`ErrorKind::User`] for a pattern that cannot be used.
    pub fn check_pattern(&self) -> Result<()> {
        self.compile().map(drop)
    }

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
                let message = format!("`{reference}` is not a group of `{}`", self.pattern);
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

    /// Returns the new text of a baseline and the number of places; `None` if nothing matches.
    ///
    /// # Errors
    /// The text would be too large for a baseline.
    fn apply(&self, regex: &Regex, name: &str, text: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
        let mut new = Vec::new();
        let (mut end, mut count) = (0, 0);
        for captures in regex.captures_iter(text) {
            let place = captures.get_match();
            new.extend_from_slice(&text[end..place.start()]);
            if self.is_regex {
                captures.expand(self.replacement.as_bytes(), &mut new);
            } else {
                new.extend_from_slice(self.replacement.as_bytes());
            }
            end = place.end();
            count += 1;
            // A long replacement of a short text can multiply its size.
            check_baseline_size(name, &new)?;
        }
        new.extend_from_slice(&text[end..]);
        check_baseline_size(name, &new)?;
        Ok((count > 0).then_some((new, count)))
    }
}

fn check_baseline_size(name: &str, text: &[u8]) -> Result<()> {
    if text.len() as u64 <= MAX_BASELINE_BYTES {
        return Ok(());
    }
    let message = format!(
        "{name} would have more than {} MiB",
        MAX_BASELINE_BYTES >> 20
    );
    Err(Error::new(ErrorKind::Conflict, message).with_hint("use a shorter replacement"))
}

impl BaselineEdits {
    /// Plans to put a version of baselines back; those that are that version already stay out.
    ///
    /// # Errors
    /// As [`find_baseline_version`](super::BaselineCatalog::find_baseline_version).
    pub fn plan_restore(&self, names: &[String], version: &str) -> Result<BaselinePlan> {
        let mut plan = BaselinePlan::new(BaselineAction::Restore {
            version: version.to_string(),
        });
        let known = self.baselines.known_versions()?;
        let seal = self.baselines.accepted_seal().unwrap_or_default().seal;
        let is_checked = self.context.config().general.require_seal != SealRequirement::Never;
        let has_seal = is_checked && seal.names().next().is_some();
        let mut budget = PlanBudget::default();
        for name in names {
            let (digest, bytes) = self.catalog.find_baseline_version(name, version)?;
            let before = BaselineFile::read(&self.files.baseline_file_path(name));
            if before.bytes() == Some(&bytes) {
                plan.unchanged.push(name.clone());
                continue;
            }
            budget.spend(before.bytes().unwrap_or_default(), &bytes)?;
            let mut file = self.planned_baseline(name, before, bytes, 0);
            file.is_foreign = known.is_foreign_version(name, digest);
            let is_sealed = seal.expected_digest(name) == Some(digest);
            let replaced = file.before.bytes().map(Digest::of);
            let is_foreign = replaced.is_some_and(|it| known.is_foreign_base(name, it));
            file.replaces_foreign = is_foreign && !is_sealed;
            file.is_refused = has_seal && !is_sealed;
            file.has_been_sealed = known.has_been_sealed(name, digest);
            plan.files.push(file);
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
        if !is_baseline_name(name) || !can_be_typed || self.context.config().agent(name).is_some() {
            let message = format!("a new baseline cannot have the name `{name}`");
            return Err(Error::new(ErrorKind::User, message)
                .with_hint("name a file in baseline_dir, such as scout-MEMORY.md"));
        }
        if !name.ends_with(BASELINE_EXTENSION)
            && self.context.config().baseline_users(name).is_empty()
        {
            let message = format!("`{name}` does not end in {BASELINE_EXTENSION}");
            return Err(Error::new(ErrorKind::User, message).with_hint(format!(
                "a file that no agent uses is a baseline only with that end: {name}{BASELINE_EXTENSION}"
            )));
        }
        let path = self.files.baseline_file_path(name);
        let before = BaselineFile::read(&path);
        let taken = match &before {
            BaselineFile::Absent => None,
            BaselineFile::Readable(_) => Some(format!("{} exists already", path.display())),
            BaselineFile::Unreadable(why) => Some(why.clone()),
        };
        if let Some(message) = taken {
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("choose another name"));
        }
        let (bytes, is_foreign) = match source {
            "template" => (self.catalog.find_baseline_version(name, source)?.1, false),
            other => {
                let bytes = self.catalog.read_baseline(other)?;
                let known = self.baselines.known_versions()?;
                let is_foreign = known.is_foreign_base(other, Digest::of(&bytes));
                (Arc::new(bytes), is_foreign)
            }
        };
        let mut file = self.planned_baseline(name, before, bytes, 0);
        file.is_foreign = is_foreign;
        let mut plan = BaselinePlan::new(BaselineAction::Create {
            source: source.to_string(),
        });
        plan.files.push(file);
        Ok(plan)
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
        let mut plan = BaselinePlan::new(BaselineAction::Replace);
        let known = self.baselines.known_versions()?;
        let mut seen = BTreeSet::new();
        let mut budget = PlanBudget::default();
        for name in names.iter().filter(|name| seen.insert(*name)) {
            let before = self.catalog.read_baseline(name)?;
            match replacement.apply(&regex, name, &before)? {
                Some((after, count)) if after != before => {
                    budget.spend(&before, &after)?;
                    let is_foreign = known.is_foreign_base(name, Digest::of(&before));
                    let before = BaselineFile::Readable(before);
                    let mut file = self.planned_baseline(name, before, Arc::new(after), count);
                    file.is_foreign = is_foreign;
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
        let users = self.context.config().baseline_users(name).into_iter();
        PlannedBaseline {
            name: name.to_string(),
            before,
            after,
            replaced,
            agents: users.map(|agent| agent.name.clone()).collect(),
            is_foreign: false,
            replaces_foreign: false,
            is_refused: false,
            has_been_sealed: false,
        }
    }

    /// Writes one file of a plan, as [`BaselineWriter::apply`] does.
    ///
    /// # Errors
    /// As [`BaselineWriter::apply`] and
    /// [`begin_baseline_change`](super::BaselineFiles::begin_baseline_change).
    pub fn apply_planned_baseline(
        &self,
        plan: &BaselinePlan,
        file: &PlannedBaseline,
    ) -> Result<SavedBaseline> {
        self.files.begin_baseline_change()?.apply(plan, file)
    }
}

impl BaselineWriter<'_> {
    /// Writes one file of a plan. The bytes that it replaces are stored first. An immutable file is
    /// unlocked, and what is there afterwards locked again.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the file has changed since the plan was made; otherwise the system's
    /// error. The file is then unchanged.
    pub fn apply(&self, plan: &BaselinePlan, file: &PlannedBaseline) -> Result<SavedBaseline> {
        let path = self.files.baseline_file_path(&file.name);
        let flag = durable::is_immutable(&path).then(|| durable::clear_immutable(&path));
        let flag = flag.transpose()?;
        let saved = self.write_planned(plan, file)?;
        flag.map_or(Ok(()), ClearedFlag::set_again)?;
        Ok(saved)
    }

    fn write_planned(&self, plan: &BaselinePlan, file: &PlannedBaseline) -> Result<SavedBaseline> {
        let BaselineAction::Restore { version } = &plan.action else {
            let expected = file.before.bytes().map(Digest::of);
            return self.save(&file.name, &file.after, expected, TextOrigin::Operator);
        };
        let path = self.files.baseline_file_path(&file.name);
        let found = BaselineFile::read(&path);
        if found != file.before {
            let path = path.display();
            let message = match found {
                // The process may have no file descriptor left, and the file be the same.
                BaselineFile::Unreadable(why) => {
                    format!("cannot tell whether {path} is what the plan saw: {why}")
                }
                _ => format!("{path} has changed since the plan was made"),
            };
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
        self.files.replace_baseline(&file.name, &file.after, cause)
    }
}
