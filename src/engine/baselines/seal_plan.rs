//! What a seal would change: each baseline compared with the seal that the operator accepted last.
//!
//! A change that this program saved is known. Any other change may be an attacker's, so it is sealed
//! only if the operator names the file, or says that all are accepted.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::accepted_seal::AcceptedSeal;
use super::lint::LintDecisions;
use super::saved_versions::SavedVersions;
use crate::base::digest::{Digest, Hasher};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::base::quantity::list_names;
use crate::baseline::seal::{BaselineSeal, META_FILE_NAME, SealFiles, is_baseline_name};
use crate::baseline::signatures::SigningKey;
use crate::config::{Agent, Config};
use crate::engine::baselines::Seals;
use crate::engine::baselines::change::DirectoryDigests;
use crate::engine::baselines::file::read_optional;
use crate::engine::file_owner::FileOwner;
use crate::engine::plan_budget::PlanBudget;
use crate::lint::{Finding, Severity};

/// Which changes a seal accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealScope {
    /// Those that this program saved.
    SavedHere,
    /// Those of these files, by their names in `baseline_dir`.
    Named(BTreeSet<String>),
    /// All.
    All,
}

/// A file compared with its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SealChangeKind {
    /// It is not sealed yet.
    New,
    /// It differs.
    Changed,
    /// It is sealed and does not exist.
    Removed,
    /// It is what was sealed.
    Unchanged,
}

/// A file compared with its seal, in full.
#[derive(Clone, Debug, PartialEq)]
pub struct SealChange {
    /// Name in `baseline_dir`.
    pub name: String,
    /// What changed.
    pub kind: SealChangeKind,
    /// Digest in the seal.
    pub sealed: Option<Digest>,
    /// Bytes of the sealed version, where they are known; none of an unchanged file.
    pub sealed_bytes: Option<Arc<Vec<u8>>>,
    /// Bytes of the file; none if it does not exist, or is outside of the scope and not selected.
    pub bytes: Option<Vec<u8>>,
    /// Whether this program saved these bytes, from a version that was sealed or saved by it.
    pub is_saved_here: bool,
    /// Whether the plan seals it.
    pub is_selected: bool,
    /// Owner and times of the file.
    pub owner: Option<FileOwner>,
    /// Agents whose baseline it is.
    pub agents: Vec<String>,
    /// Errors that the lint finds in a new or changed file.
    pub lint_errors: Vec<Finding>,
}

/// What a seal would do, bound to the files that it saw.
#[derive(Clone, Debug, PartialEq)]
pub struct SealPlan {
    /// All baselines in use and all sealed files, by name.
    pub changes: Vec<SealChange>,
    /// Whether every change is accepted, which a first signature needs.
    pub accepts_all: bool,
    /// Whether files with lint errors are sealed, too.
    accepts_lint_errors: bool,
    /// Why the seal on the disk counts for nothing, if so: files are compared with the last good one
    /// that the archive keeps, and without one they are all new.
    pub problem: Option<Error>,
    /// The lines that stay as they are, and the serial that the next one follows.
    pub(in crate::engine) accepted: AcceptedSeal,
    /// Whether the config and the last seal ask for a signature.
    pub(in crate::engine) needs_signature: bool,
    /// Whether a good signature covers every accepted line.
    pub(in crate::engine) is_vouched_for: bool,
    /// The seal on the disk.
    pub(in crate::engine) files: SealFiles,
}

/// What the files of a plan are compared with.
struct SealComparison<'s> {
    accepted: AcceptedSeal,
    saved: SavedVersions,
    scope: &'s SealScope,
    /// Files beside the baselines, which may hold sealed versions.
    beside: OnceCell<DirectoryDigests>,
}

impl SealPlan {
    /// Seals files with lint errors, too: the operator has seen the errors and accepts them.
    pub fn accept_lint_errors(&mut self) {
        self.accepts_lint_errors = true;
    }

    /// Whether the new seal has no line that the operator did not accept with this plan.
    pub(in crate::engine) fn selects_every_line(&self) -> bool {
        let mut names = self.accepted.seal.names();
        names.all(|name| self.selected().any(|change| change.name == name))
    }

    /// Refuses to seal files whose lint errors the operator has not accepted.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the number of errors of each file. The command of its hint seals
    /// what this plan would, with `key` if it signs.
    pub fn check_lint_errors(&self, config: &Config, key: Option<&SigningKey<'_>>) -> Result<()> {
        let Some(faulty) = list_lint_errors(self.selected()).filter(|_| !self.accepts_lint_errors)
        else {
            return Ok(());
        };
        let names = self.selected().map(|it| quote_operand(&it.name));
        let names = if self.accepts_all {
            "--all".to_string()
        } else {
            names.collect::<Vec<_>>().join(" ")
        };
        let sign = key.map(SigningKey::options).unwrap_or_default();
        // The files may change before the command is run.
        let force = format!("seal --force {names}{sign} --plan {}", self.hash());
        let force = config.invocation.command_line(&force);
        Err(Error::new(
            ErrorKind::Conflict,
            format!("the lint finds errors in {faulty}"),
        )
        .with_hint("correct them; `memory-shepherd lint explain RULE` says how")
        .with_hint(format!("to seal all of it with these errors: {force}")))
    }

    /// Says why the seal on the disk counts for nothing, if so, and what the files are compared with
    /// instead.
    pub fn describe_problem(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let mut changes = self.changes.iter();
        let instead = if changes.all(|it| it.kind == SealChangeKind::New) {
            "nothing is taken as sealed"
        } else {
            "compared with the last good seal, which the archive keeps"
        };
        Some(format!("{}; {instead}", problem.message()))
    }

    /// Whether a seal without a signature is refused: the config requires one, or the seal has one.
    pub fn needs_key(&self) -> bool {
        self.needs_signature || self.files.signature.is_some()
    }

    /// Returns whether the accepted lines are what stands on the disk.
    pub(in crate::engine) fn is_on_disk(&self) -> bool {
        let has_meta_line = self.accepted.seal.expected_digest(META_FILE_NAME).is_some();
        let lacks_meta = has_meta_line && self.files.meta.is_none();
        self.problem.is_none() && !lacks_meta
    }

    /// Returns the changes that the plan seals.
    pub fn selected(&self) -> impl Iterator<Item = &SealChange> {
        self.changes.iter().filter(|change| change.is_selected)
    }

    /// Returns the changes that the plan leaves unsealed.
    pub fn unaccepted(&self) -> impl Iterator<Item = &SealChange> {
        let is_unaccepted =
            |it: &&SealChange| it.kind != SealChangeKind::Unchanged && !it.is_selected;
        self.changes.iter().filter(is_unaccepted)
    }

    /// Returns the hash of what the plan seals: `seal --plan` with it accepts nothing else.
    pub fn hash(&self) -> String {
        hash_changes(self.selected())
    }

    /// Returns the hash of a plan that accepts what this one leaves unsealed, by name.
    pub fn hash_of_unaccepted(&self) -> String {
        hash_changes(self.unaccepted())
    }

    /// Returns the hash of a plan that accepts every change.
    pub fn hash_of_all(&self) -> String {
        let changes = self.changes.iter();
        hash_changes(changes.filter(|it| it.kind != SealChangeKind::Unchanged))
    }

    /// Refuses a plan that does not have this hash. It is not shortened: an attacker who writes both
    /// a harmless file and another one can make them agree in the first digits.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: a file has changed since the hash was printed.
    pub fn check_hash(&self, hash: &str) -> Result<()> {
        if self.hash() == hash {
            return Ok(());
        }
        let message = format!(
            "plan {hash} is out of date; the plan is now {}",
            self.hash()
        );
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("nothing was sealed; review the new plan with --dry-run"))
    }
}

/// Lists the changes with lint errors, and the number of errors of each; none if there are no errors.
pub fn list_lint_errors<'a>(changes: impl Iterator<Item = &'a SealChange>) -> Option<String> {
    let faulty = changes.filter(|it| !it.lint_errors.is_empty());
    let counted = faulty.map(|change| {
        let count = change.lint_errors.len();
        let noun = if count == 1 { "error" } else { "errors" };
        format!("{} ({count} {noun})", change.name)
    });
    let counted: Vec<String> = counted.collect();
    let counted: Vec<&str> = counted.iter().map(String::as_str).collect();
    (!counted.is_empty()).then(|| list_names(&counted))
}

/// Returns the hash of changes: what each file was, and what it becomes.
fn hash_changes<'a>(changes: impl Iterator<Item = &'a SealChange>) -> String {
    let mut hasher = Hasher::default();
    for change in changes {
        let digest = |digest: Option<Digest>| digest.map_or("-".to_string(), |it| it.to_string());
        let (was, is) = (digest(change.sealed), digest(change.sha256()));
        hasher.update(format!("{was} {is} {}\0", change.name).as_bytes());
    }
    hasher.finish().to_string()
}

impl SealChange {
    /// Returns the digest of the file.
    pub fn sha256(&self) -> Option<Digest> {
        match self.kind {
            SealChangeKind::Unchanged => self.sealed,
            _ => self.bytes.as_deref().map(Digest::of),
        }
    }
}

impl Seals {
    /// Returns the name in `baseline_dir` of a baseline that the operator typed: an agent, or a path
    /// from `baseline_dir` or from `cwd`.
    ///
    /// # Errors
    /// [`ErrorKind::User`] if it is neither.
    pub fn baseline_name(&self, typed: &str, cwd: &Path) -> Result<String> {
        if let Some(agent) = self.context.config().agent(typed) {
            return Ok(agent.required_reset()?.baseline.clone());
        }
        let directory = &self.context.config().general.baseline_dir;
        let from_cwd = cwd.join(typed);
        let path = match from_cwd.strip_prefix(directory) {
            Ok(below) => below.to_path_buf(),
            Err(_) => PathBuf::from(typed),
        };
        let parts = path.components().map(|part| match part {
            Component::Normal(part) => part.to_str(),
            Component::CurDir => Some("."),
            _ => None,
        });
        let parts: Option<Vec<&str>> = parts.filter(|part| *part != Some(".")).collect();
        let name = parts.unwrap_or_default().join("/");
        if !is_baseline_name(&name) {
            let message = format!(
                "{typed} is neither an agent nor a file in {}",
                directory.display()
            );
            return Err(Error::new(ErrorKind::User, message).with_hint(format!(
                "run `{}` to list all baselines",
                self.context.command_line("baseline list")
            )));
        }
        Ok(name)
    }

    /// Compares the baselines in use and the sealed files with the seal that the operator accepted
    /// last. `is_for_signature`: the new seal is to be signed, so only lines that a good signature
    /// covers are taken as sealed.
    ///
    /// # Errors
    /// A seal, a file or a ledger that cannot be read; a named file that neither exists nor is
    /// sealed.
    pub fn plan_seal(&self, scope: &SealScope, is_for_signature: bool) -> Result<SealPlan> {
        let files = SealFiles::read(&self.context.config().general.baseline_dir)?;
        let needs_signature = self
            .baselines
            .counts_only_signed(self.baselines.read_kept_seal().as_ref());
        let is_vouched_for = needs_signature || is_for_signature;
        let mut accepted = self.baselines.accepted_seal_among(&files, is_vouched_for)?;
        let problem = accepted.problem.take();
        let comparison = SealComparison {
            saved: self.baselines.saved_versions(&accepted)?,
            accepted,
            scope,
            beside: OnceCell::new(),
        };
        let sealed = &comparison.accepted.seal;
        // A decision file that cannot be used allows nothing.
        let decisions = self.lint.load_lint_decisions().unwrap_or_default();
        let counted = self.lint.counted_seal();
        let mut names: BTreeSet<String> = sealed.names().map(str::to_string).collect();
        names.extend(self.context.config().baseline_names().map(str::to_string));
        names.retain(|name| is_baseline_name(name));
        if let SealScope::Named(named) = scope {
            names.extend(named.iter().cloned());
        }
        let mut changes: Vec<SealChange> = Vec::new();
        let mut budget = PlanBudget::default();
        for name in names {
            match self.compare_with_seal(&name, &comparison) {
                Ok(Some(mut change)) => {
                    let sealed = change.sealed_bytes.as_deref();
                    budget.spend(
                        sealed.map_or(&[], Vec::as_slice),
                        change.bytes.as_deref().unwrap_or_default(),
                    )?;
                    self.lint_change(&mut change, counted.as_ref(), &decisions);
                    changes.push(change);
                }
                Ok(None) => {}
                // A file that was not asked for keeps no other from being sealed.
                Err(_) if matches!(scope, SealScope::Named(named) if !named.contains(&name)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SealPlan {
            changes,
            accepts_all: *scope == SealScope::All,
            accepts_lint_errors: false,
            problem,
            accepted: comparison.accepted,
            needs_signature,
            is_vouched_for,
            files,
        })
    }

    /// Compares a file with its seal; none for a baseline in use that is neither sealed nor there.
    fn compare_with_seal(
        &self,
        name: &str,
        with: &SealComparison<'_>,
    ) -> Result<Option<SealChange>> {
        let path = self.files.baseline_file_path(name);
        let bytes = read_optional(&path)?;
        let digest = bytes.as_deref().map(Digest::of);
        let sealed = with.accepted.seal.expected_digest(name);
        let is_named = matches!(with.scope, SealScope::Named(named) if named.contains(name));
        let kind = match (sealed, digest) {
            (None, None) if is_named => {
                let message = format!("{} does not exist", path.display());
                return Err(Error::new(ErrorKind::User, message));
            }
            (None, None) => return Ok(None),
            (None, Some(_)) => SealChangeKind::New,
            (Some(_), None) => SealChangeKind::Removed,
            (Some(sealed), Some(digest)) if sealed == digest => SealChangeKind::Unchanged,
            (Some(_), Some(_)) => SealChangeKind::Changed,
        };
        let agents = self.context.config().agents.iter();
        let users: Vec<&Agent> = agents.filter(|agent| agent.uses_baseline(name)).collect();
        let is_saved_here = digest.is_some_and(|it| with.saved.is_last_saved(name, it));
        let (is_accepted, is_in_scope) = match with.scope {
            SealScope::SavedHere => (is_saved_here, true),
            SealScope::Named(_) => (is_named, is_named),
            SealScope::All => (true, true),
        };
        let is_shown = is_in_scope && kind != SealChangeKind::Unchanged;
        let known = sealed.filter(|_| is_shown);
        let known = known
            .and_then(|sealed| {
                self.baselines
                    .find_sealed_version(sealed, &users, &with.beside)
            })
            .map(|known| known.bytes);
        Ok(Some(SealChange {
            name: name.to_string(),
            kind,
            sealed,
            sealed_bytes: known,
            bytes: bytes.filter(|_| is_shown),
            is_saved_here,
            is_selected: is_accepted && kind != SealChangeKind::Unchanged,
            owner: FileOwner::of(&path, self.context.clock().zone()),
            agents: users.into_iter().map(|it| it.name.clone()).collect(),
            lint_errors: Vec::new(),
        }))
    }

    /// Finds the lint errors of a new or changed file. What an earlier seal covered was accepted.
    fn lint_change(
        &self,
        change: &mut SealChange,
        counted: Option<&BaselineSeal>,
        decisions: &LintDecisions,
    ) {
        let is_changed = matches!(change.kind, SealChangeKind::New | SealChangeKind::Changed);
        let Some(bytes) = change.bytes.as_deref().filter(|_| is_changed) else {
            return;
        };
        let sealed = counted.and_then(|seal| seal.expected_digest(&change.name));
        let is_counted = sealed.is_some() && sealed == change.sealed;
        let sealed_bytes = change.sealed_bytes.as_ref().filter(|_| is_counted);
        let mut agents = self.context.config().agents.iter();
        let mut findings = self.lint.baseline_findings(
            &change.name,
            agents.find(|agent| agent.uses_baseline(&change.name)),
            bytes,
            sealed_bytes.map(|it| it.to_vec()),
            decisions,
        );
        findings.retain(|it| it.severity == Severity::Error);
        change.lint_errors = findings;
    }
}

impl SealChangeKind {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            SealChangeKind::New => "new",
            SealChangeKind::Changed => "changed",
            SealChangeKind::Removed => "removed",
            SealChangeKind::Unchanged => "unchanged",
        }
    }
}
