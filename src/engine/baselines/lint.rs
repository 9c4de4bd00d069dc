//! Runs the lint on the fleet: reads baselines and memories, and gathers the facts that the rules
//! need from outside the text.

mod decisions;
mod finding_counts;
mod plan_lint;
mod writable_paths;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;

use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::durable::{self, ExpectedFile, OperatorDirectory, Replacement, ReplacementNames};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::baseline::seal::{BaselineSeal, is_baseline_name};
use crate::baseline::{self, BaselineRefusal, MAX_BASELINE_BYTES};
use crate::boundary::SeparatorLines;
use crate::config::{Agent, SealRequirement};
use crate::engine::baselines::Lint;
use crate::engine::baselines::change::DirectoryDigests;
use crate::lint::{
    Finding, FleetFacts, LintInput, LintReport, LintSettings, TextRole, apply_safe_fixes, lint,
};
pub use decisions::LintDecisions;
pub use finding_counts::FindingCounts;
pub(in crate::engine) use finding_counts::{FindingCountCache, FindingCounter};
pub(in crate::engine) use plan_lint::PlanLint;
use writable_paths::writable_paths;

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

/// Extensions of the files that may be drafts of baselines.
const MARKDOWN_EXTENSIONS: [&str; 2] = ["md", "markdown"];

/// What became of a file whose safe fixes were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FixedFile {
    /// It has none.
    Unchanged,
    /// It is changed, and belongs to no fleet.
    Draft,
    /// It is a changed baseline.
    Baseline {
        /// Name in `baseline_dir`.
        name: String,
        /// Whether another program had changed it before.
        is_foreign: bool,
    },
}

/// What the lint of several baselines has in common.
struct LintSources {
    /// The seal whose versions count.
    seal: Option<BaselineSeal>,
    /// Files beside the baselines, which may hold sealed versions.
    beside: OnceCell<DirectoryDigests>,
}

impl LintSources {
    fn new(seal: Option<BaselineSeal>) -> LintSources {
        LintSources {
            seal,
            beside: OnceCell::new(),
        }
    }
}

impl Lint {
    /// Returns the settings for the files of an agent; without one, those of the fleet.
    pub fn lint_settings(&self, agent: Option<&Agent>, decisions: &LintDecisions) -> LintSettings {
        let general = &self.context.config().general;
        let settings = &self.context.config().lint;
        let reset = agent.and_then(|agent| agent.reset.as_ref());
        LintSettings {
            min_baseline_size: general.min_baseline_size,
            max_memory_size: reset.map_or(general.max_memory_size, |it| it.max_size),
            is_tiny: settings.is_tiny,
            is_right_to_left: settings.is_right_to_left,
            is_shared: reset.is_none_or(|it| it.is_shared),
            ignored_rules: settings.ignored_rules.clone(),
            severities: settings.severities.clone(),
            allowances: Arc::clone(&decisions.allowances),
            accepted_findings: Arc::clone(&decisions.accepted_findings),
            words: decisions.words(),
            today: self.context.clock().now().date_naive(),
        }
    }

    /// Returns the lint of a baseline, for an editor and anything else that judges drafts of it: the
    /// settings, and facts from outside the text. `name` is a file in `baseline_dir`, which
    /// need not exist.
    pub fn baseline_lint(&self, name: &str, decisions: &LintDecisions) -> BaselineLint {
        let mut agents = self.context.config().agents.iter();
        let user = agents.find(|it| it.uses_baseline(name));
        let sources = LintSources::new(self.counted_seal());
        self.lint_beside_versions(name, user, decisions, &sources)
    }

    /// As [`Lint::baseline_lint`], for one of the agents that use the baseline.
    fn lint_beside_versions(
        &self,
        name: &str,
        agent: Option<&Agent>,
        decisions: &LintDecisions,
        sources: &LintSources,
    ) -> BaselineLint {
        let users = self.context.config().baseline_users(name);
        let seal = sources.seal.as_ref();
        let sealed = seal.and_then(|it| it.expected_digest(name));
        let sealed_version = sealed.and_then(|digest| {
            let current = baseline::read_file(&self.files.baseline_file_path(name)).ok();
            let current = current.filter(|bytes| Digest::of(bytes) == digest);
            current.or_else(|| {
                let found = self
                    .baselines
                    .find_sealed_version(digest, &users, &sources.beside)?;
                Some(found.bytes.to_vec())
            })
        });
        let pushed_version = || {
            let pushed = self.baselines.find_pushed_version(agent?, &users)?;
            Some(pushed.bytes.to_vec())
        };
        let facts = FleetFacts {
            other_agents: self.other_agents(agent),
            pushed_version: match sealed_version {
                Some(_) => None,
                None => pushed_version(),
            },
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
        let general = &self.context.config().general;
        BaselineLint {
            agent: agent.map(|it| it.name.clone()),
            path: self.files.baseline_file_path(name),
            separator: agent
                .map_or(general.separator.as_str(), Agent::separator)
                .to_string(),
            facts,
            settings: self.lint_settings(agent, decisions),
        }
    }

    /// Lints the baseline of an agent as it is on the disk, with its seal and its owners.
    ///
    /// # Errors
    /// The baseline cannot be read.
    pub fn lint_baseline(&self, agent: &Agent, decisions: &LintDecisions) -> Result<LintedFile> {
        let sources = LintSources::new(self.counted_seal());
        let name = &agent.required_reset()?.baseline;
        let mut lint = self.lint_beside_versions(name, Some(agent), decisions, &sources);
        let text = baseline::read_file(&lint.path)?;
        lint.facts.seal_fault = match self.baselines.baseline_cache().load(agent) {
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

    /// Applies the safe fixes of a linted file. A baseline is saved as an editor saves it: the version
    /// from before is kept, and the ledger has a record.
    ///
    /// # Errors
    /// The file has changed since it was linted, belongs to the archive or the seal, or cannot be
    /// written.
    pub fn fix_linted_file(&self, linted: &LintedFile) -> Result<FixedFile> {
        let general = &self.context.config().general;
        let path = fs::canonicalize(&linted.path).with_path("find", &linted.path)?;
        // A directory that is mounted elsewhere, too, has another path there.
        let name_below = |directory: &Path| {
            let identity = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
            let wanted = identity(directory)?;
            let mut above = path.ancestors().skip(1);
            let found = above.find(|it| identity(it) == Some(wanted))?;
            path.strip_prefix(found).ok()
        };
        let refusal = |what: &str| {
            let message = format!("cannot fix {}: {what}", linted.path.display());
            Err(Error::new(ErrorKind::Conflict, message).with_hint("only baselines are fixed"))
        };
        if name_below(&general.archive_dir).is_some() {
            return refusal("it is in the archive");
        }
        let Some(name) = name_below(&general.baseline_dir) else {
            if let Some(agent) = self.shared_memories.agent_of_memory_file(&path) {
                return refusal(&format!("it is the memory of {agent}"));
            }
            let config = fs::canonicalize(&self.context.config().path);
            if config.is_ok_and(|config| config == path) {
                return refusal("it is the config");
            }
            return fix_draft(linted, self.context.clock());
        };
        let Some(name) = name.to_str().filter(|name| is_baseline_name(name)) else {
            return refusal("a baseline cannot have that name");
        };
        let Some(fixed) = apply_safe_fixes(&linted.text, &linted.report.findings) else {
            return Ok(FixedFile::Unchanged);
        };
        check_unchanged(linted)?;
        let before = Digest::of(&linted.text);
        let is_foreign = self
            .baselines
            .known_versions()?
            .is_foreign_base(name, before);
        self.files.save_baseline(name, &fixed, Some(before))?;
        let name = name.to_string();
        Ok(FixedFile::Baseline { name, is_foreign })
    }

    /// Returns what the lint finds in the text of the fleet's baselines, each file once.
    /// It looks at no memory, because one on a hung mount would delay the answer.
    ///
    /// # Errors
    /// A file of `[lint]` cannot be used.
    pub fn lint_all_baselines(&self) -> Result<Vec<Finding>> {
        let decisions = self.load_lint_decisions()?;
        let seal = self.counted_seal();
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for agent in &self.context.config().agents {
            let Some(name) = agent.baseline().filter(|it| seen.insert(*it)) else {
                continue;
            };
            let path = self.context.config().general.baseline_dir.join(name);
            let Ok(text) = baseline::read_file(&path) else {
                continue;
            };
            let sealed = seal.as_ref().and_then(|it| it.expected_digest(name));
            let sealed = sealed.filter(|it| *it == Digest::of(&text));
            let version = sealed.map(|_| text.clone());
            findings.extend(self.baseline_findings(name, Some(agent), &text, version, &decisions));
        }
        Ok(findings)
    }

    /// Returns the findings of a baseline that was read already, as plans and seals show them. They
    /// are those of the text: what the seal says about it is shown otherwise.
    pub(in crate::engine) fn baseline_findings(
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
        self.lint_with_facts(name, agent, facts, decisions)
            .lint(text)
            .findings
    }

    /// Names of the other agents.
    fn other_agents(&self, agent: Option<&Agent>) -> Vec<String> {
        let agents = self.context.config().agents.iter();
        let others = agents.filter(|it| agent.is_none_or(|agent| agent.name != it.name));
        others.map(|it| it.name.clone()).collect()
    }

    /// Describes the files and directories that an agent shares with others and must not.
    fn shared_files(&self, agent: &Agent) -> Vec<String> {
        let groups = self.shared_memories.agents_sharing_memories().into_iter();
        let mut shared: Vec<String> = groups
            .filter(|group| group.contains(&agent.name.as_str()))
            .map(|group| format!("the agents {} share a memory file", group.join(", ")))
            .collect();
        let agents = self.context.config().agents.iter();
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
    pub(in crate::engine) fn counted_seal(&self) -> Option<BaselineSeal> {
        if self.context.config().general.require_seal == SealRequirement::Never {
            return None;
        }
        self.baselines.seal_verifier().read_seal().ok().flatten()
    }

    /// Describes what the user of an agent can write of its baseline, by owner and mode. An agent
    /// that runs as root or as the operator can write anything; `doctor` says so once.
    fn baseline_writers(&self, agent: &Agent) -> Vec<String> {
        let own = rustix::process::geteuid().as_raw();
        let users: BTreeSet<u32> = self.context.memory_owners(agent).into_iter().collect();
        let mut found = Vec::new();
        let Some(path) = self.context.config().baseline_path(agent) else {
            return found;
        };
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
pub(in crate::engine) fn end_of_last_separator(text: &[u8], separator: &str) -> usize {
    let lines = SeparatorLines::find(text, separator.as_bytes());
    lines.boundary().map_or(text.len(), |line| line.end)
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

/// Applies the safe fixes of a linted file of no fleet, atomically; owner, mode and attributes stay. Its
/// version from before is not kept, so only a Markdown file is taken for a baseline. Removes what a
/// killed process has left of an earlier fix.
///
/// # Errors
/// The file has another name ([`ErrorKind::User`]), has changed since it was linted, or cannot be
/// written.
pub fn fix_draft(linted: &LintedFile, clock: &dyn Clock) -> Result<FixedFile> {
    let path = &linted.path;
    let is_markdown = |path: &Path| {
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        MARKDOWN_EXTENSIONS
            .iter()
            .any(|it| it.eq_ignore_ascii_case(extension))
    };
    // A symlink may have another name than its file.
    let real_path = fs::canonicalize(path).with_path("find", path)?;
    if !is_markdown(path) || !is_markdown(&real_path) {
        let message = format!(
            "cannot fix {}: outside of baseline_dir, only Markdown files (.md, .markdown) are \
             taken for baselines",
            path.display()
        );
        return Err(Error::new(ErrorKind::User, message)
            .with_hint("nothing was changed; give a draft of a baseline such a name"));
    }
    if let Ok((directory, name)) = OperatorDirectory::open_parent(&real_path) {
        directory.remove_leftovers([name]);
    }
    let Some(fixed) = apply_safe_fixes(&linted.text, &linted.report.findings) else {
        return Ok(FixedFile::Unchanged);
    };
    check_unchanged(linted)?;
    let name = path.file_name().unwrap_or_default();
    let old = Some(Digest::of(&linted.text));
    let names = ReplacementNames::describing(name, old, Digest::of(&fixed))?;
    let replacement = Replacement::prepare(path, &fixed, names)?;
    let expected = ExpectedFile::of(Some(&linted.text));
    let installed = replacement.install(expected, MAX_BASELINE_BYTES)?;
    let Some(mut displaced) = installed.into_displaced() else {
        return Ok(FixedFile::Draft);
    };
    let aside = displaced.path().to_path_buf();
    let settled = displaced.read_settled(MAX_BASELINE_BYTES, clock)?;
    let what = match &settled {
        Some(_) => "was changed while it was fixed",
        None => "is fixed, but a program may still write to the old file",
    };
    if settled.as_ref() == Some(&linted.text) {
        let Some(late) = displaced.remove(MAX_BASELINE_BYTES, clock)? else {
            return Ok(FixedFile::Draft);
        };
        // Written in the instant of the removal, by a program that has the old file open.
        durable::replace_file(&aside, &late, Mode::RUSR | Mode::WUSR)?;
    }
    let message = format!(
        "{} {what}; what stood there is now {}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    #[test]
    fn leftover_of_killed_fix_is_removed_by_the_next() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap().join("draft.md");
        let (before, after) = ("# Draft\n\ntext\n", "# Draft\n\ntext\n\n---\n");
        let digests = (
            Some(Digest::of(before.as_bytes())),
            Digest::of(after.as_bytes()),
        );
        let names = ReplacementNames::describing(OsStr::new("draft.md"), digests.0, digests.1);
        let paths = serde_json::to_value(names.unwrap().paths_beside(&path)).unwrap();
        let left = Path::new(paths["provisional"].as_str().unwrap());
        let settings = LintSettings::default();
        for (text, fixed) in [(before, FixedFile::Draft), (after, FixedFile::Unchanged)] {
            fs::write(&path, text).unwrap();
            fs::write(left, before).unwrap();
            let text = text.as_bytes().to_vec();
            let linted = lint_text(&path, text, TextRole::Baseline, "---", &settings);
            assert_eq!(fix_draft(&linted, &SystemClock).unwrap(), fixed);
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            let names = fs::read_dir(root.path()).unwrap();
            assert_eq!(names.count(), 1, "only the draft");
        }
    }
}
