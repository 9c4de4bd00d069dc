//! Baselines as their operator sees them: the state of each, its known versions, and the way back to
//! one of them.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::lint::FindingCounter;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::baseline;
use crate::baseline::seal::{BaselineSeal, is_baseline_name};
use crate::baseline::signatures::SignedSeal;
use crate::config::SealRequirement;
use crate::engine::baselines::BaselineCatalog;
use crate::engine::baselines::file::read_optional;
use crate::engine::baselines::lint::FindingCounts;
use crate::engine::file_owner::FileOwner;
use crate::lint;
use crate::store::record::{FileState, LedgerRecord, Operation};
use crate::store::state::State;

/// Begins the note of a record that an operator put back whatever the seal said.
pub(in crate::engine) const SEALED_VERSION_NOTE: &str = "sealed version";

/// The least number of hexadecimal digits that name a version.
const MIN_VERSION_DIGITS: usize = 4;

/// End of the names of files that count as baselines although no agent uses them.
pub(in crate::engine) const BASELINE_EXTENSION: &str = ".md";

/// Maximum number of files in `baseline_dir` that are listed.
const MAX_LISTED_FILES: usize = 10_000;

/// Before the name of another baseline, where a version is named.
const FILE_VERSION_PREFIX: &str = "file:";

/// State of a baseline; the variants are ordered worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineState {
    /// It differs from the sealed version.
    Changed,
    /// It differs from the sealed version as an operator saved it, and waits for its seal.
    Saved,
    /// The file does not exist, or is not a plain readable file.
    Missing,
    /// It is smaller than `min_baseline_size`.
    TooSmall,
    /// No seal covers it.
    Unsealed,
    /// The seal has no good signature, and the config names who may sign.
    Unsigned,
    /// Agents have an older version.
    Behind,
    /// Nothing is wrong.
    Ok,
}

/// How large a baseline is, compared with those that work well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeBand {
    /// Under 5 KiB.
    Thin,
    /// 5 to 12 KiB.
    Short,
    /// 12 to 20 KiB.
    Good,
    /// 20 to 25 KiB.
    Long,
    /// Over 25 KiB.
    Bloated,
}

/// The last reset that pushed a baseline to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastPush {
    /// End of the run for that agent.
    pub time: DateTime<FixedOffset>,
    /// The run.
    pub run: String,
    /// The version.
    pub sha256: Digest,
}

/// A baseline for its operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BaselineSummary {
    /// Name in `baseline_dir`.
    pub name: String,
    /// Its state.
    pub state: BaselineState,
    /// Size in bytes, if there is a readable file.
    pub size: Option<u64>,
    /// How large that is.
    pub band: Option<SizeBand>,
    /// Whether it alone exceeds `max_memory_size` of an agent.
    pub over_limit: bool,
    /// The smallest `max_memory_size` of these agents.
    #[serde(skip)]
    pub limit: Option<u64>,
    /// Digest of the file.
    pub sha256: Option<Digest>,
    /// Digest in the seal.
    pub sealed: Option<Digest>,
    /// Agents whose baseline it is.
    pub agents: Vec<String>,
    /// Those of them that have an older version.
    pub behind: Vec<String>,
    /// When the file changed in any way.
    pub changed: Option<DateTime<FixedOffset>>,
    /// Owner, mode and times of the file.
    #[serde(skip)]
    pub owner: Option<FileOwner>,
    /// When it was last pushed.
    pub last_push: Option<LastPush>,
    /// Counts of lint findings in the file; none where there is no readable file, or where the decisions
    /// of `[lint]` cannot be read.
    pub findings: Option<FindingCounts>,
    /// Why the file cannot be read, if it cannot.
    pub problem: Option<String>,
}

/// The baselines of a fleet.
#[derive(Clone, Debug)]
pub struct BaselineList {
    /// `baseline_dir`.
    pub directory: PathBuf,
    /// Those in use, those in the seal and the other `.md` files there, worst first, then by name.
    pub baselines: Vec<BaselineSummary>,
    /// The signature of the seal, or its fault; none where the config names no signers.
    pub signature: Option<Result<SignedSeal>>,
    /// Why the seal cannot be read, or why its signature is not good where one is required.
    pub seal_error: Option<Error>,
    /// Whether resets refuse a baseline that is not in the seal, or all of them without a seal.
    pub is_unsealed_refused: bool,
    /// Why the ledger cannot be read: no push is known then.
    pub ledger_error: Option<Error>,
}

/// A version of a baseline in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BaselineVersion {
    /// When it was sealed, saved, restored or pushed.
    pub time: DateTime<FixedOffset>,
    /// The run.
    pub run: String,
    /// The operator.
    pub user: String,
    /// What was done.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// Its digest; none where the file was taken out of the seal.
    pub sha256: Option<Digest>,
    /// Digest of the file that it replaced, whose bytes are in the archive.
    #[serde(rename = "before")]
    pub replaced: Option<Digest>,
    /// Whether its bytes are in the archive.
    pub stored: bool,
    /// Agents that a reset gave it to.
    pub agents: Vec<String>,
    /// The note of the record.
    pub note: Option<String>,
}

/// The last versions of a baseline in the ledger.
#[derive(Clone, Debug)]
pub struct BaselineHistoryPage {
    /// The versions, newest first.
    pub versions: Vec<BaselineVersion>,
    /// Why older records cannot be read, if that is so.
    pub unread: Option<Error>,
}

impl BaselineState {
    /// The words for people.
    pub fn as_str(self) -> &'static str {
        match self {
            BaselineState::Changed => "changed since the seal",
            BaselineState::Saved => "saved, not sealed",
            BaselineState::Missing => "missing",
            BaselineState::TooSmall => "too small",
            BaselineState::Unsealed => "unsealed",
            BaselineState::Unsigned => "unsigned",
            BaselineState::Behind => "behind",
            BaselineState::Ok => "ok",
        }
    }
}

impl SizeBand {
    /// Returns the band of a size in bytes.
    pub fn of(bytes: u64) -> SizeBand {
        match bytes {
            0..5_120 => SizeBand::Thin,
            5_120..12_288 => SizeBand::Short,
            12_288..=20_480 => SizeBand::Good,
            20_481..=25_600 => SizeBand::Long,
            _ => SizeBand::Bloated,
        }
    }
}

impl fmt::Display for SizeBand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SizeBand::Thin => "thin",
            SizeBand::Short => "short",
            SizeBand::Good => "good",
            SizeBand::Long => "long",
            SizeBand::Bloated => "bloated",
        })
    }
}

impl BaselineList {
    /// Returns the kind of the worst state, which decides the exit code.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let errors = [&self.seal_error, &self.ledger_error].into_iter().flatten();
        // No reset refuses a file that neither an agent nor the seal names.
        let baselines = self.baselines.iter();
        let counted = baselines.filter(|it| !it.agents.is_empty() || it.sealed.is_some());
        let of_state = counted.filter_map(|it| match it.state {
            // Resets refuse both as TAMPERED.
            BaselineState::Changed | BaselineState::Saved => Some(ErrorKind::Integrity),
            BaselineState::Missing | BaselineState::TooSmall => Some(ErrorKind::Conflict),
            _ => None,
        });
        let kinds = of_state.chain(errors.map(Error::kind));
        kinds.reduce(ErrorKind::more_serious)
    }
}

impl BaselineCatalog {
    /// Lists the baselines in use, those in the seal and the other `.md` files of `baseline_dir`, with
    /// the state of each.
    ///
    /// A seal, a ledger or a file that cannot be read is part of the answer.
    pub fn list_baselines(&self) -> BaselineList {
        let general = &self.context.config().general;
        let (seal, signature, seal_error) = match self.baselines.seal_verifier().read_signed_seal()
        {
            Ok((seal, signature)) => (seal, Some(signature), None),
            Err(error) => (None, None, Some(error)),
        };
        let wants_signature =
            general.require_seal == SealRequirement::Signed || general.seal_signers.is_some();
        let signature = signature.filter(|_| wants_signature);
        // Resets refuse everything then.
        let is_required = general.require_seal == SealRequirement::Signed;
        let required = signature.as_ref().filter(|_| is_required);
        let seal_error = seal_error.or(required.and_then(|it| it.as_ref().err().cloned()));
        // A manifest that nothing vouches for accepts nothing; what it lists lacks only the signature.
        let listed = seal.clone();
        let seal = self
            .baselines
            .accepted_seal()
            .map_or(seal, |accepted| Some(accepted.seal));
        let is_listed = |summary: &BaselineSummary| {
            let listed = listed
                .as_ref()
                .and_then(|it| it.expected_digest(&summary.name));
            listed.is_some() && listed == summary.sha256
        };
        let is_unsigned = matches!(signature, Some(Err(_)));
        let other_files = self.other_baseline_files();
        let mut names: BTreeSet<&str> = seal.iter().flat_map(BaselineSeal::names).collect();
        names.extend(self.context.config().baseline_names());
        names.extend(other_files.iter().map(String::as_str));
        names.retain(|name| is_baseline_name(name));
        let (mut pushes, ledger_error) = self
            .last_pushes(&names)
            .unwrap_or_else(|error| (BTreeMap::new(), Some(error)));
        let mut counter = self.lint.start_finding_counts();
        let mut baselines = Vec::new();
        for name in names {
            let sealed = seal.as_ref().and_then(|seal| seal.expected_digest(name));
            let mut summary = self.summarize_baseline(name, sealed, counter.as_mut());
            let lacks_signature = summary.state > BaselineState::Unsigned
                || summary.state == BaselineState::Unsealed && is_listed(&summary);
            if is_unsigned && lacks_signature {
                summary.state = BaselineState::Unsigned;
            }
            summary.last_push = pushes.remove(name);
            baselines.push(summary);
        }
        self.tell_saved_from_changed(&mut baselines);
        if let Some(counter) = counter {
            counter.finish();
        }
        baselines.sort_by_key(|it| it.state);
        let is_unsealed_refused = match general.require_seal {
            SealRequirement::Never => false,
            SealRequirement::Always | SealRequirement::Signed => true,
            SealRequirement::IfPresent => listed.is_some() || seal_error.is_some(),
        };
        BaselineList {
            directory: general.baseline_dir.clone(),
            baselines,
            signature,
            seal_error,
            is_unsealed_refused,
            ledger_error,
        }
    }

    /// Tells the operator's own saves from the changes of other programs.
    fn tell_saved_from_changed(&self, baselines: &mut [BaselineSummary]) {
        let is_changed = |it: &&mut BaselineSummary| it.state == BaselineState::Changed;
        let mut changed = baselines.iter_mut().filter(is_changed).peekable();
        if changed.peek().is_none() {
            return;
        }
        // A ledger that cannot be read tells of no save.
        let Ok(known) = self.baselines.known_versions() else {
            return;
        };
        for summary in changed {
            let is_saved = |version| known.is_last_saved(&summary.name, version);
            if summary.sha256.is_some_and(is_saved) {
                summary.state = BaselineState::Saved;
            }
        }
    }

    /// Returns the names of the files in `baseline_dir` and below that look like baselines.
    fn other_baseline_files(&self) -> Vec<String> {
        let root = &self.context.config().general.baseline_dir;
        let mut names = Vec::new();
        let mut directories = vec![root.clone()];
        let mut seen = 0;
        while let Some(directory) = directories.pop() {
            // A directory that cannot be read shows in the state of each baseline in use.
            for file in fs::read_dir(&directory).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MAX_LISTED_FILES {
                    return names;
                }
                // Symlinks are neither: they may lead anywhere.
                let path = file.path();
                match file.file_type() {
                    Ok(kind) if kind.is_dir() => directories.push(path),
                    Ok(kind) if kind.is_file() => {
                        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
                        let is_listed =
                            |it: &&str| it.ends_with(BASELINE_EXTENSION) && is_baseline_name(it);
                        names.extend(name.filter(is_listed).map(str::to_string));
                    }
                    _ => {}
                }
            }
        }
        names
    }

    fn summarize_baseline(
        &self,
        name: &str,
        sealed: Option<Digest>,
        counter: Option<&mut FindingCounter<'_>>,
    ) -> BaselineSummary {
        let general = &self.context.config().general;
        let path = self.files.baseline_file_path(name);
        let (bytes, problem) = match read_optional(&path) {
            Ok(bytes) => (bytes, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let sha256 = bytes.as_deref().map(Digest::of);
        let size = bytes.as_ref().map(|bytes| bytes.len() as u64);
        let users = self.context.config().baseline_users(name);
        // No reset pushes a file that differs from its seal.
        let accepted = sealed.or(sha256);
        let names: Vec<&str> = users.iter().map(|it| it.name.as_str()).collect();
        let seen = self.context.observations().known_states(&names);
        let mut behind = Vec::new();
        for (name, seen) in names.into_iter().zip(seen) {
            let history = self.context.history(name).ok();
            let pushed = history.map(|it| it.pushed_versions.first().copied());
            let is_behind = match pushed {
                Some(Some(pushed)) => Some(pushed) != accepted,
                // No run has touched the memory: it is what it was when it was last seen.
                Some(None) => seen.is_some_and(|it| it.state == State::Behind),
                None => false,
            };
            behind.extend(is_behind.then(|| name.to_string()));
        }
        let is_checked = general.require_seal != SealRequirement::Never;
        let state = match (sha256, sealed) {
            (Some(digest), Some(sealed)) if digest != sealed && is_checked => {
                BaselineState::Changed
            }
            (None, _) => BaselineState::Missing,
            _ if size < Some(general.min_baseline_size) => BaselineState::TooSmall,
            (Some(_), None) if is_checked => BaselineState::Unsealed,
            _ if !behind.is_empty() => BaselineState::Behind,
            _ => BaselineState::Ok,
        };
        let owner = FileOwner::of(&path, self.context.clock().zone());
        let text = bytes.as_deref();
        BaselineSummary {
            name: name.to_string(),
            state,
            size,
            band: size.map(SizeBand::of),
            over_limit: users.iter().any(|it| size > Some(it.max_memory_size())),
            limit: users.iter().map(|it| it.max_memory_size()).min(),
            sha256,
            sealed,
            agents: users.iter().map(|it| it.name.clone()).collect(),
            behind,
            changed: owner.map(|owner| owner.changed_at),
            owner,
            last_push: None,
            findings: counter
                .zip(text)
                .map(|(counter, text)| counter.count(name, text)),
            problem,
        }
    }

    /// Reads a baseline file.
    ///
    /// # Errors
    /// It is missing or not a plain readable file.
    pub fn read_baseline(&self, name: &str) -> Result<Vec<u8>> {
        baseline::read_file(&self.files.baseline_file_path(name))
    }

    /// Returns the last push of each baseline that was ever pushed to an agent that uses it now, and
    /// why older records cannot be read, if some pushes are not found before a damaged segment.
    fn last_pushes(
        &self,
        names: &BTreeSet<&str>,
    ) -> Result<(BTreeMap<String, LastPush>, Option<Error>)> {
        let agents = self.context.config().agents.iter();
        let by_agent: BTreeMap<&str, &str> = agents
            .filter_map(|it| Some((it.name.as_str(), it.baseline()?)))
            .collect();
        // No record concerns a file that no agent uses.
        let mut wanted = names.clone();
        wanted.retain(|name| by_agent.values().any(|used| used == name));
        let mut pushes = BTreeMap::new();
        let mut back = self.context.ledger().scan_backwards()?;
        while !wanted.is_empty()
            && let Some((_, record)) =
                back.next_readable(&mut |it| by_agent.contains_key(it.agent.as_ref()))?
        {
            let Some(sha256) = pushed_version(&record) else {
                continue;
            };
            if let Some(name) = by_agent.get(record.event.agent.as_str())
                && wanted.remove(name)
            {
                let push = LastPush {
                    time: record.time,
                    run: record.event.run,
                    sha256,
                };
                pushes.insert((*name).to_string(), push);
            }
        }
        Ok((pushes, back.take_unread()))
    }

    /// Returns the versions of a baseline in the ledger, newest first, at most `max_versions`.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken; in a segment that is damaged, only if no
    /// record behind it is about the baseline.
    pub fn baseline_history(&self, name: &str, max_versions: usize) -> Result<BaselineHistoryPage> {
        let page = self.readable_baseline_history(name, max_versions)?;
        match page.unread {
            Some(error) if page.versions.is_empty() => Err(error),
            _ => Ok(page),
        }
    }

    /// Returns the versions of a baseline in the records that can be read, which may be none.
    fn readable_baseline_history(
        &self,
        name: &str,
        max_versions: usize,
    ) -> Result<BaselineHistoryPage> {
        let users: BTreeSet<&str> = self
            .context
            .config()
            .baseline_users(name)
            .into_iter()
            .map(|it| it.name.as_str())
            .collect();
        let mut back = self.context.ledger().scan_backwards()?;
        let mut versions: Vec<BaselineVersion> = Vec::new();
        while versions.len() < max_versions
            && let Some((_, record)) = back.next_readable(&mut |it| {
                it.is_about_archive() || users.contains(it.agent.as_ref())
            })?
        {
            let pushed = pushed_version(&record);
            let LedgerRecord { time, event, .. } = record;
            let sha256 = pushed.or(event.baseline);
            if pushed.is_none() && event.file.as_deref() != Some(name) {
                continue;
            }
            // The agents of one run are one push.
            if let Some(last) = versions
                .last_mut()
                .filter(|it| pushed.is_some() && (&it.run, it.sha256) == (&event.run, sha256))
            {
                last.agents.push(event.agent);
                continue;
            }
            versions.push(BaselineVersion {
                time,
                run: event.run,
                user: event.user,
                operation: event.operation,
                sha256,
                replaced: event
                    .change
                    .before
                    .as_ref()
                    .filter(|_| pushed.is_none())
                    .and_then(FileState::digest),
                stored: sha256
                    .is_some_and(|it| self.context.baseline_versions().read_version(it).is_ok()),
                agents: pushed.map(|_| event.agent).into_iter().collect(),
                note: event.note.filter(|_| pushed.is_none()),
            });
        }
        let unread = back.take_unread();
        Ok(BaselineHistoryPage { versions, unread })
    }

    /// Returns a version of a baseline: `disk` (the file), `sealed`, `pushed` (the last one), `previous`
    /// (the newest known one that differs from the file), the first digits of a digest in its
    /// history, `template` (that of this program), or `file:NAME` (another baseline).
    ///
    /// # Errors
    /// [`ErrorKind::User`] for a version that is not known, or whose bytes are not.
    pub fn find_baseline_version(
        &self,
        name: &str,
        wanted: &str,
    ) -> Result<(Digest, Arc<Vec<u8>>)> {
        let history = format!(
            "run `{}` to list its versions",
            self.context
                .command_line(&format!("baseline history {}", quote_operand(name)))
        );
        let unknown =
            |what: String| Err(Error::new(ErrorKind::User, what).with_hint(history.clone()));
        if let Some(bytes) = self.read_named_text(name, wanted) {
            let bytes = bytes?;
            return Ok((Digest::of(&bytes), Arc::new(bytes)));
        }
        let mut unread = None;
        let digest = match wanted {
            "previous" => self.previous_version(name, &mut unread)?,
            "sealed" => self.baselines.accepted_seal()?.seal.expected_digest(name),
            "pushed" => {
                let (mut pushes, error) = self.last_pushes(&BTreeSet::from([name]))?;
                unread = error;
                pushes.remove(name).map(|it| it.sha256)
            }
            digits if digits.len() >= MIN_VERSION_DIGITS => {
                let digits = digits.to_ascii_lowercase();
                let page = self.readable_baseline_history(name, usize::MAX)?;
                unread = page.unread;
                let matching: BTreeSet<Digest> = page
                    .versions
                    .iter()
                    .flat_map(|it| it.sha256.into_iter().chain(it.replaced))
                    .filter(|it| it.to_string().starts_with(&digits))
                    .collect();
                if matching.len() > 1 {
                    return unknown(format!("{wanted} begins several versions of {name}"));
                }
                matching.first().copied()
            }
            _ => None,
        };
        let Some(digest) = digest else {
            // The records that cannot be read may have it.
            if let Some(error) = unread {
                return Err(error);
            }
            return unknown(format!("{name} has no known version {wanted}"));
        };
        let users = self.context.config().baseline_users(name);
        match self
            .baselines
            .find_sealed_version(digest, &users, &OnceCell::new())
        {
            Some(known) => Ok((digest, known.bytes)),
            None => {
                self.context.baseline_versions().digest_version(digest)?;
                unknown(format!(
                    "the content of version {}… of {name} is not in the archive",
                    digest.short_hex(8)
                ))
            }
        }
    }

    /// Whether the accepted seal lists a baseline.
    pub fn is_in_seal(&self, name: &str) -> bool {
        let accepted = self.baselines.accepted_seal();
        accepted.is_ok_and(|it| it.seal.expected_digest(name).is_some())
    }

    /// Returns a text that is named by a word and not in the history; `None` for any other word.
    fn read_named_text(&self, name: &str, wanted: &str) -> Option<Result<Vec<u8>>> {
        match wanted {
            "disk" => Some(self.read_baseline(name)),
            "template" => Some(Ok(lint::TEMPLATE.to_vec())),
            _ => {
                let other = wanted.strip_prefix(FILE_VERSION_PREFIX)?;
                is_baseline_name(other).then(|| self.read_baseline(other))
            }
        }
    }

    /// Returns the newest version of a baseline that was sealed, saved or pushed and differs from the
    /// file; one that may hold lines of another program only if there is no other.
    fn previous_version(&self, name: &str, unread: &mut Option<Error>) -> Result<Option<Digest>> {
        let current = read_optional(&self.files.baseline_file_path(name))
            .ok()
            .flatten();
        let current = current.map(|bytes| Digest::of(&bytes));
        let page = self.readable_baseline_history(name, usize::MAX)?;
        let (versions, known) = (page.versions, self.baselines.known_versions()?);
        *unread = page.unread;
        // What the guard or a restore displaced is a stranger's, or has a record of its own.
        let own = versions.iter().flat_map(|it| {
            let replaced = it.replaced.filter(|_| it.operation == Operation::Save);
            [it.sha256, replaced]
        });
        let mut own = own.flatten().filter(|it| Some(*it) != current);
        let own = own.find(|it| !known.is_foreign_version(name, *it));
        let mut all = versions.iter().flat_map(|it| [it.sha256, it.replaced]);
        Ok(own.or_else(|| all.find_map(|digest| digest.filter(|it| Some(*it) != current))))
    }
}

/// Returns the version that a record's run pushed to its agent.
fn pushed_version(record: &LedgerRecord) -> Option<Digest> {
    let event = &record.event;
    let is_push = event.operation != Operation::Undo && event.has_changed_memory();
    event.baseline.filter(|_| is_push)
}
