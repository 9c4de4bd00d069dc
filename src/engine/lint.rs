//! Runs the lint on the fleet: reads baselines and memories, and gathers the facts that the rules
//! need from outside the text.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, StatxAttributes, StatxFlags, statx};
use serde::Deserialize;

use super::Engine;
use crate::baseline::seal::{BaselineSeal, is_baseline_name};
use crate::baseline::{self, BaselineRefusal, MAX_BASELINE_BYTES};
use crate::boundary::{Baseline, separator_lines};
use crate::clock::Clock;
use crate::config::{Agent, SealRequirement};
use crate::digest::Digest;
use crate::durable::{self, ExpectedFile, Replacement, ReplacementNames};
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::lint::{
    Allowance, DriftFacts, Finding, FleetFacts, LintInput, LintReport, LintSettings, RuleId,
    Severity, TextRole, Words, apply_safe_fixes, lint,
};

/// Size limit of the allowlist and of the accepted findings, in bytes.
const MAX_DECISION_BYTES: u64 = 64 << 20;

/// Time limit of the comparison of a memory with what was pushed; after it, the counts are those of
/// a coarser diff.
const DRIFT_DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// What the operator has decided about findings: the files that `[lint]` names.
#[derive(Clone, Debug, Default)]
pub struct LintDecisions {
    allowances: Vec<Allowance>,
    accepted_findings: BTreeSet<String>,
    /// The fleet's words; those of the program by default.
    words: Option<Arc<Words>>,
}

/// The allowlist, a TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowFile {
    #[serde(default)]
    allow: Vec<Allowance>,
}

/// What `lint --format json` prints, as far as it identifies findings.
#[derive(Deserialize)]
struct AcceptedFile {
    findings: Vec<AcceptedFinding>,
}

#[derive(Deserialize)]
struct AcceptedFinding {
    fingerprint: String,
}

/// A file that was linted.
#[derive(Clone, Debug)]
pub struct LintedFile {
    /// The file, or what stands for it.
    pub path: PathBuf,
    /// Its content, or the beginning of a large memory.
    pub text: Vec<u8>,
    /// Number of bytes behind `text` that were not checked.
    pub unread_bytes: u64,
    /// What was found.
    pub report: LintReport,
}

impl Engine {
    /// Reads the files of `[lint]`: which findings the operator knows, and the fleet's words.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: one of them cannot be read or has another format.
    pub fn load_lint_decisions(&self) -> Result<LintDecisions> {
        let settings = &self.config().lint;
        let mut decisions = LintDecisions::default();
        if let Some(path) = &settings.allow_file {
            let parsed: AllowFile = toml::from_str(&read_decisions(path)?)
                .map_err(|error| decision_error(path, error.message()))?;
            for allowance in &parsed.allow {
                check_allowance(allowance).map_err(|why| decision_error(path, &why))?;
            }
            decisions.allowances = parsed.allow;
        }
        if let Some(path) = &settings.accepted_file {
            let parsed: AcceptedFile = serde_json::from_str(&read_decisions(path)?)
                .map_err(|error| decision_error(path, &error.to_string()))?;
            let fingerprints = parsed.findings.into_iter().map(|it| it.fingerprint);
            decisions.accepted_findings = fingerprints.collect();
        }
        if let Some(directory) = &settings.words_directory {
            let words = Words::with_lists(&read_word_lists(directory)?)
                .map_err(|why| decision_error(directory, &why))?;
            decisions.words = Some(Arc::new(words));
        }
        Ok(decisions)
    }

    /// Returns the settings for the files of an agent; without one, those of the fleet.
    pub fn lint_settings(&self, agent: Option<&Agent>, decisions: &LintDecisions) -> LintSettings {
        let general = &self.config().general;
        let settings = &self.config().lint;
        LintSettings {
            min_baseline_size: general.min_baseline_size,
            max_memory_size: agent.map_or(general.max_memory_size, |it| it.max_memory_size),
            is_tiny: settings.is_tiny,
            is_right_to_left: settings.is_right_to_left,
            is_shared: agent.is_none_or(|it| it.is_shared),
            ignored_rules: settings.ignored_rules.clone(),
            severities: settings.severities.clone(),
            allowances: decisions.allowances.clone(),
            accepted_findings: decisions.accepted_findings.clone(),
            words: decisions.words.clone().unwrap_or_else(Words::built_in),
            today: self.clock().now().date_naive(),
        }
    }

    /// Returns the lint of a baseline, for an editor and anything else that judges drafts of it: the
    /// settings, and facts from outside the text. `name` is a file in `baseline_dir`, which
    /// need not exist.
    pub fn baseline_lint(&self, name: &str, decisions: &LintDecisions) -> BaselineLint {
        let mut agents = self.config().agents.iter();
        let user = agents.find(|it| it.baseline == name);
        self.lint_beside_versions(name, user, decisions)
    }

    /// As [`Engine::baseline_lint`], for one of the agents that use the baseline.
    fn lint_beside_versions(
        &self,
        name: &str,
        agent: Option<&Agent>,
        decisions: &LintDecisions,
    ) -> BaselineLint {
        let agents = self.config().agents.iter();
        let users: Vec<&Agent> = agents.filter(|it| it.baseline == name).collect();
        let sealed = self.counted_seal().and_then(|it| it.expected_digest(name));
        let sealed_version = sealed.and_then(|digest| {
            let current = baseline::read_file(&self.baseline_file_path(name)).ok();
            let current = current.filter(|bytes| Digest::of(bytes) == digest);
            current.or_else(|| {
                let found = self.find_sealed_version(digest, &users, &OnceCell::new())?;
                Some(found.bytes.to_vec())
            })
        });
        let pushed_version = || {
            let pushed = self.find_pushed_version(agent?, &users)?;
            Some(pushed.bytes.to_vec())
        };
        let facts = FleetFacts {
            other_agents: self.other_agents(agent),
            earlier_version: sealed_version.clone().or_else(pushed_version),
            sealed_version,
            ..FleetFacts::default()
        };
        self.lint_with_facts(name, agent, facts, decisions)
    }

    fn lint_with_facts(
        &self,
        name: &str,
        agent: Option<&Agent>,
        facts: FleetFacts,
        decisions: &LintDecisions,
    ) -> BaselineLint {
        let general = &self.config().general;
        BaselineLint {
            agent: agent.map(|it| it.name.clone()),
            path: self.baseline_file_path(name),
            separator: agent.map_or(&general.separator, |it| &it.separator).clone(),
            facts,
            settings: self.lint_settings(agent, decisions),
        }
    }

    /// Lints the baseline of an agent as it is on the disk, with its seal and its owners.
    ///
    /// # Errors
    /// The baseline cannot be read.
    pub fn lint_baseline(&self, agent: &Agent, decisions: &LintDecisions) -> Result<LintedFile> {
        let mut lint = self.lint_beside_versions(&agent.baseline, Some(agent), decisions);
        let text = baseline::read_file(&lint.path)?;
        lint.facts.seal_fault = match self.baseline_cache().load(agent) {
            Err(BaselineRefusal::Tampered(error)) => Some(error.to_string()),
            _ => None,
        };
        lint.facts.writers = self.baseline_writers(agent);
        lint.facts.sharing = self.shared_files(agent);
        let report = lint.lint(&text);
        Ok(LintedFile {
            path: lint.path,
            text,
            unread_bytes: 0,
            report,
        })
    }

    /// Lints the memory of an agent; `None` where it does not exist yet.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn lint_memory(
        &self,
        agent: &Agent,
        decisions: &LintDecisions,
    ) -> Result<Option<LintedFile>> {
        let detail = self.read_detail(agent);
        if detail.observation.is_absent {
            return Ok(None);
        }
        if let Some(why) = &detail.error {
            let message = format!("cannot read the memory of {}: {why}", agent.name);
            return Err(Error::new(ErrorKind::Host, message));
        }
        let content = detail.observation.content.as_ref();
        let boundary = content.and_then(|content| content.boundary);
        // Without a usable baseline the boundary is unknown; the memory is not at fault.
        let is_scratch_known = detail.observation.is_scratch_known();
        let text = detail.memory_prefix;
        let size = content.map_or(text.len() as u64, |content| content.size);
        let mut facts = FleetFacts {
            memory_size: Some(size),
            ..FleetFacts::default()
        };
        let role = match boundary {
            Some(boundary) => TextRole::Memory {
                scratch_start: boundary.offset.min(text.len()),
                is_intact: !boundary.is_drifted(),
            },
            None => TextRole::Memory {
                scratch_start: if is_scratch_known {
                    text.len()
                } else {
                    end_of_last_separator(&text, &agent.separator)
                },
                is_intact: false,
            },
        };
        if let (Some(boundary), Some(pushed)) = (
            boundary.filter(|it| it.is_drifted()),
            detail.operator_part.as_ref(),
        ) {
            let above = &text[..boundary.offset.min(text.len())];
            let deadline = self.clock().instant() + DRIFT_DIFF_TIMEOUT;
            let drift = DriftFacts::compare(pushed, above, Some(deadline));
            facts.drift = Some(drift.with_separator_line(boundary.line));
        } else if boundary.is_none() && is_scratch_known {
            facts.drift = Some(DriftFacts::without_separator());
        }
        let path = agent.location.memory().to_path_buf();
        let settings = self.lint_settings(Some(agent), decisions);
        let report = lint(
            &LintInput {
                agent: Some(&agent.name),
                path: &path.to_string_lossy(),
                text: &text,
                role,
                separator: &agent.separator,
                facts: &facts,
            },
            &settings,
        );
        Ok(Some(LintedFile {
            unread_bytes: size.saturating_sub(text.len() as u64),
            path,
            text,
            report,
        }))
    }

    /// Applies the safe fixes of a linted file. A baseline is saved as an editor saves it: the version
    /// from before is kept, and the ledger has a record. Returns whether the file changed.
    ///
    /// # Errors
    /// The file has changed since it was linted, belongs to the archive or the seal, or cannot be
    /// written.
    pub fn fix_linted_file(&self, linted: &LintedFile) -> Result<bool> {
        let general = &self.config().general;
        let path = fs::canonicalize(&linted.path).with_path("find", &linted.path)?;
        let name_below = |directory: &Path| {
            let directory = fs::canonicalize(directory).ok()?;
            path.strip_prefix(directory).ok()
        };
        let refusal = |what: &str| {
            let message = format!("cannot fix {}: {what}", linted.path.display());
            Err(Error::new(ErrorKind::Conflict, message).with_hint("only baselines are fixed"))
        };
        if name_below(&general.archive_dir).is_some() {
            return refusal("it is in the archive");
        }
        let Some(name) = name_below(&general.baseline_dir) else {
            return fix_draft(linted, self.clock());
        };
        let Some(name) = name.to_str().filter(|name| is_baseline_name(name)) else {
            return refusal("a baseline cannot have that name");
        };
        let Some(fixed) = apply_safe_fixes(&linted.text, &linted.report.findings) else {
            return Ok(false);
        };
        check_unchanged(linted)?;
        self.save_baseline(name, &fixed, Some(Digest::of(&linted.text)))?;
        Ok(true)
    }

    /// Returns the errors that the lint finds in the text of the fleet's baselines, each file once.
    /// It looks at no memory, because one on a hung mount would delay the answer.
    ///
    /// # Errors
    /// A file of `[lint]` cannot be used.
    pub fn baseline_lint_errors(&self) -> Result<Vec<Finding>> {
        let decisions = self.load_lint_decisions()?;
        let seal = self.counted_seal();
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for agent in &self.config().agents {
            if !seen.insert(agent.baseline.as_str()) {
                continue;
            }
            let Ok(text) = baseline::read_file(&self.config().baseline_path(agent)) else {
                continue;
            };
            let sealed = seal
                .as_ref()
                .and_then(|it| it.expected_digest(&agent.baseline));
            let sealed = sealed.filter(|it| *it == Digest::of(&text));
            let version = sealed.map(|_| text.clone());
            let name = &agent.baseline;
            findings.extend(self.baseline_errors(name, Some(agent), &text, version, &decisions));
        }
        Ok(findings)
    }

    /// Returns the errors in a baseline that was read already, as plans and seals show them. They
    /// are those of the text: what the seal says about it is shown otherwise.
    pub(super) fn baseline_errors(
        &self,
        name: &str,
        agent: Option<&Agent>,
        text: &[u8],
        sealed_version: Option<Vec<u8>>,
        decisions: &LintDecisions,
    ) -> Vec<Finding> {
        let facts = FleetFacts {
            sealed_version,
            ..FleetFacts::default()
        };
        let report = self
            .lint_with_facts(name, agent, facts, decisions)
            .lint(text);
        let findings = report.findings.into_iter();
        findings
            .filter(|it| it.severity == Severity::Error)
            .collect()
    }

    /// Names of the other agents.
    fn other_agents(&self, agent: Option<&Agent>) -> Vec<String> {
        let agents = self.config().agents.iter();
        let others = agents.filter(|it| agent.is_none_or(|agent| agent.name != it.name));
        others.map(|it| it.name.clone()).collect()
    }

    /// Describes the files and directories that an agent shares with others and must not.
    fn shared_files(&self, agent: &Agent) -> Vec<String> {
        let groups = self.agents_sharing_memories().into_iter();
        let mut shared: Vec<String> = groups
            .filter(|group| group.contains(&agent.name.as_str()))
            .map(|group| format!("the agents {} share a memory file", group.join(", ")))
            .collect();
        let agents = self.config().agents.iter();
        let same_entries =
            agents.filter(|it| it.name != agent.name && it.archive_subdir == agent.archive_subdir);
        shared.extend(same_entries.map(|other| {
            format!(
                "the agents {} and {} share the archive directory {}",
                agent.name, other.name, agent.archive_subdir
            )
        }));
        shared
    }

    /// Returns the seal whose versions may suppress findings: with a good signature where one is
    /// required, and none where seals are ignored or it cannot be used.
    pub(super) fn counted_seal(&self) -> Option<BaselineSeal> {
        if self.config().general.require_seal == SealRequirement::Never {
            return None;
        }
        self.seal_verifier.read_seal(self.config()).ok().flatten()
    }

    /// Describes what the user of an agent can write of its baseline, by owner and mode. An agent
    /// that runs as root or as the operator can write anything; `doctor` says so once.
    fn baseline_writers(&self, agent: &Agent) -> Vec<String> {
        let own = rustix::process::geteuid().as_raw();
        let users: BTreeSet<u32> = self.memory_owners(agent).into_iter().collect();
        let path = self.config().baseline_path(agent);
        let mut found = Vec::new();
        for uid in users.into_iter().filter(|uid| *uid != 0 && *uid != own) {
            let writable = writable_paths(&path, uid).into_iter();
            found.extend(writable.map(|it| {
                format!(
                    "uid {uid}, the user of {}, can write {}",
                    agent.name,
                    it.display()
                )
            }));
        }
        found
    }
}

/// The lint of one baseline, for any draft of its text.
#[derive(Clone, Debug)]
pub struct BaselineLint {
    agent: Option<String>,
    path: PathBuf,
    separator: String,
    facts: FleetFacts,
    settings: LintSettings,
}

impl BaselineLint {
    /// Lints a draft. Pure, and linear in the text: an editor calls it on any thread, as often as it
    /// likes.
    pub fn lint(&self, draft: &[u8]) -> LintReport {
        let input = LintInput {
            agent: self.agent.as_deref(),
            path: &self.path.to_string_lossy(),
            text: draft,
            role: TextRole::Baseline,
            separator: &self.separator,
            facts: &self.facts,
        };
        lint(&input, &self.settings)
    }
}

/// Returns the offset behind the last separator line of a memory; its length if there is none.
fn end_of_last_separator(text: &[u8], separator: &str) -> usize {
    let lines = separator_lines(text, separator.as_bytes());
    let last = lines.iter().rev().find(|line| line.is_eligible);
    last.map_or(text.len(), |line| line.end)
}

/// Lints a text of no agent.
pub fn lint_text(
    path: &Path,
    text: Vec<u8>,
    role: TextRole,
    separator: &str,
    settings: &LintSettings,
) -> LintedFile {
    let input = LintInput {
        agent: None,
        path: &path.to_string_lossy(),
        text: &text,
        role,
        separator,
        facts: &FleetFacts::default(),
    };
    let report = lint(&input, settings);
    let path = path.to_path_buf();
    LintedFile {
        path,
        text,
        unread_bytes: 0,
        report,
    }
}

/// Returns what owner, mode and flags let a user write of a file and the directories above it.
fn writable_paths(path: &Path, uid: u32) -> Vec<&Path> {
    let mut found = Vec::new();
    let mut is_child_immutable = false;
    for it in path.ancestors().filter(|it| !it.as_os_str().is_empty()) {
        let is_immutable = is_immutable(it);
        // A directory lets a user replace its entries, except an immutable file or directory.
        if !is_immutable && !is_child_immutable && is_writable_by(it, uid) {
            found.push(it);
        }
        is_child_immutable = is_immutable;
    }
    found
}

/// Whether owner and mode let a user write a file, or replace files in a directory.
fn is_writable_by(path: &Path, uid: u32) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return false;
    };
    let is_sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
    meta.uid() == uid || meta.mode() & 0o002 != 0 && !is_sticky_directory
}

/// Whether a file or directory has the flag that only root sets and removes (`chattr +i`).
fn is_immutable(path: &Path) -> bool {
    let status = statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::TYPE,
    );
    status.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

/// Applies the safe fixes of a linted file of no fleet, atomically; owner, mode and attributes stay.
/// Returns whether it changed.
///
/// # Errors
/// The file has changed since it was linted, or cannot be written.
pub fn fix_draft(linted: &LintedFile, clock: &dyn Clock) -> Result<bool> {
    let Some(fixed) = apply_safe_fixes(&linted.text, &linted.report.findings) else {
        return Ok(false);
    };
    let path = &linted.path;
    check_unchanged(linted)?;
    let replacement = Replacement::prepare(path, &fixed, ReplacementNames::new()?)?;
    let expected = ExpectedFile::of(Some(&linted.text));
    let installed = replacement.install(expected, MAX_BASELINE_BYTES)?;
    let Some(mut displaced) = installed.into_displaced() else {
        return Ok(true);
    };
    let aside = displaced.path().to_path_buf();
    let is_settled =
        displaced.read_settled(MAX_BASELINE_BYTES, clock)? == Some(linted.text.clone());
    if is_settled {
        let Some(late) = displaced.remove(MAX_BASELINE_BYTES, clock)? else {
            return Ok(true);
        };
        // Written in the instant of the removal, by a program that has the old file open.
        durable::replace_file(&aside, &late, Mode::RUSR | Mode::WUSR)?;
    }
    let message = format!(
        "{} was changed while it was fixed; what stood there is now {}",
        path.display(),
        aside.display()
    );
    Err(Error::new(ErrorKind::Conflict, message)
        .with_hint("compare the two files, and remove the second one"))
}

/// Checks that a file is what was linted.
fn check_unchanged(linted: &LintedFile) -> Result<()> {
    if baseline::read_file(&linted.path)? == linted.text {
        return Ok(());
    }
    let message = format!("{} has changed since it was checked", linted.path.display());
    Err(Error::new(ErrorKind::Conflict, message).with_hint("run the command again"))
}

/// Identifies a baseline version, its separator and the agent that it is allowed for, if the
/// allowlist names agents.
type LintedVersion<'e> = (Digest, &'e str, Option<&'e str>);

/// Lints the baselines of a plan, each version once.
pub(super) struct PlanLint<'e> {
    engine: &'e Engine,
    decisions: LintDecisions,
    seal: Option<BaselineSeal>,
    described: Mutex<HashMap<LintedVersion<'e>, Vec<String>>>,
}

impl<'e> PlanLint<'e> {
    /// A plan is not refused because of a lint file: the verb `lint` reports its fault.
    pub(super) fn new(engine: &'e Engine) -> PlanLint<'e> {
        PlanLint {
            engine,
            decisions: engine.load_lint_decisions().unwrap_or_default(),
            seal: engine.counted_seal(),
            described: Mutex::default(),
        }
    }

    /// Describes the errors of a baseline that was read already, one a line.
    pub(super) fn describe_errors(&self, agent: &'e Agent, baseline: &Baseline) -> Vec<String> {
        let mut allowances = self.decisions.allowances.iter();
        let is_for_agents = allowances.any(|it| it.agent.is_some());
        let name = is_for_agents.then_some(agent.name.as_str());
        let key = (baseline.digest(), agent.separator.as_str(), name);
        if let Some(described) = self.described().get(&key) {
            return described.clone();
        }
        let text = baseline.bytes();
        let seal = self.seal.as_ref();
        let sealed = seal.and_then(|it| it.expected_digest(&agent.baseline));
        let sealed_version = sealed.filter(|it| *it == baseline.digest());
        let findings = self.engine.baseline_errors(
            &agent.baseline,
            Some(agent),
            text,
            sealed_version.map(|_| text.to_vec()),
            &self.decisions,
        );
        let described = findings.iter().map(|it| format!("lint {}", it.summary()));
        let described: Vec<String> = described.collect();
        self.described().insert(key, described.clone());
        described
    }

    fn described(&self) -> MutexGuard<'_, HashMap<LintedVersion<'e>, Vec<String>>> {
        self.described
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_decisions(path: &Path) -> Result<String> {
    let bytes = durable::read_regular_file(path, MAX_DECISION_BYTES)
        .with_path("read", path)
        .map_err(|error| error.with_kind(ErrorKind::Config))?;
    String::from_utf8(bytes).map_err(|_| decision_error(path, "it is not UTF-8"))
}

/// Reads the word lists in a directory: its files `NAME.txt`.
fn read_word_lists(directory: &Path) -> Result<BTreeMap<String, String>> {
    let unreadable = |error: Error| error.with_kind(ErrorKind::Config);
    let entries = fs::read_dir(directory).with_path("read", directory);
    let mut lists = BTreeMap::new();
    for entry in entries.map_err(unreadable)? {
        let path = entry
            .with_path("read", directory)
            .map_err(unreadable)?
            .path();
        if path.extension().is_none_or(|it| it != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        lists.insert(name.into_owned(), read_decisions(&path)?);
    }
    Ok(lists)
}

fn decision_error(path: &Path, why: &str) -> Error {
    let message = format!("cannot use {}: {}", path.display(), why.trim());
    Error::new(ErrorKind::Config, message).with_hint("docs/lint.md describes the files of [lint]")
}

/// Checks what the types of an entry do not.
fn check_allowance(allowance: &Allowance) -> Result<(), String> {
    let name = &allowance.rule;
    if RuleId::parse(name).is_none() {
        return Err(format!("`{name}` is not a rule"));
    }
    if allowance.text.is_some() == allowance.fingerprint.is_some() {
        return Err(format!(
            "the entry for {name} needs either `text` or `fingerprint`"
        ));
    }
    if allowance.reason.trim().is_empty() {
        return Err(format!("the entry for {name} has no reason"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::skip::skip_unsupported;

    #[test]
    fn immutable_file_is_not_writable_by_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scout.md");
        fs::write(&path, "# Scout\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let other_user = rustix::process::geteuid().as_raw() + 4242;
        assert_eq!(writable_paths(&path, other_user), [path.as_path()]);
        let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).output();
        if !chattr("+i").is_ok_and(|ran| ran.status.success()) {
            return skip_unsupported("chattr +i needs root and a file system with flags");
        }
        let writable = writable_paths(&path, other_user);
        chattr("-i").unwrap();
        assert_eq!(writable, [""; 0].map(Path::new));
    }
}
