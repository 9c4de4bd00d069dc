//! Sealing: what changed since the last seal, and a new seal for the files that the operator
//! accepts. Other lines of the manifest keep every byte.
//!
//! A change that this program saved is known. Any other change may be an attacker's, so it is sealed
//! only if the operator names the file, or says that all are accepted.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use chrono::{Duration, Timelike};
use rustix::fs::lstat;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::baseline_change::FileOwner;
use super::baseline_save::read_optional;
use super::lint::LintDecisions;
use super::lock;
use super::record::{Operation, Outcome, new_run_id};
use crate::baseline::seal::{
    self, BaselineSeal, META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, SealFiles, SealMeta,
    is_baseline_name,
};
use crate::baseline::signatures::{SignedSeal, SigningKey};
use crate::config::{Agent, Config, SealRequirement};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::lint::Finding;

/// The last seal that this program wrote or accepted, in its own directory of the archive: the guard
/// puts it back.
const KEPT_SEAL_FILE_NAME: &str = "seal.json";

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
    /// Bytes of the sealed version, where they are known.
    pub sealed_bytes: Option<Arc<Vec<u8>>>,
    /// Bytes of the file; none if it does not exist.
    pub bytes: Option<Vec<u8>>,
    /// Whether this program saved these bytes.
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
    /// The seal on the disk.
    files: SealFiles,
}

/// A seal that was written.
#[derive(Clone, Debug)]
pub struct SealReport {
    /// Id of the run; none if there was nothing to do.
    pub run: Option<String>,
    /// The manifest.
    pub path: PathBuf,
    /// Names that were sealed or taken out of the seal.
    pub sealed: Vec<String>,
    /// Serial, time and expiry of a signed seal.
    pub meta: Option<SealMeta>,
    /// The signer, where `seal_signers` tells.
    pub signed: Option<SignedSeal>,
}

/// The files of a seal that the guard can put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptSeal {
    pub manifest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl KeptSeal {
    /// Returns the seal in these files; none without a manifest.
    pub(super) fn from_files(files: &SealFiles) -> Option<KeptSeal> {
        let text = |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone()?).ok();
        Some(KeptSeal {
            manifest: text(&files.manifest)?,
            meta: text(&files.meta),
            signature: text(&files.signature),
        })
    }

    /// Returns the files as they are read from the disk.
    pub(super) fn to_files(&self) -> SealFiles {
        let bytes = |text: &String| text.clone().into_bytes();
        SealFiles {
            manifest: Some(bytes(&self.manifest)),
            meta: self.meta.as_ref().map(bytes),
            signature: self.signature.as_ref().map(bytes),
        }
    }
}

impl SealPlan {
    /// Seals files with lint errors, too: the operator has seen the errors and accepts them.
    pub fn accept_lint_errors(&mut self) {
        self.accepts_lint_errors = true;
    }

    /// Refuses to seal files whose lint errors the operator has not accepted.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the number of errors of each file.
    pub fn check_lint_errors(&self, config: &Config) -> Result<()> {
        let faulty = self.selected().filter(|it| !it.lint_errors.is_empty());
        let faulty: Vec<&SealChange> = faulty.collect();
        if self.accepts_lint_errors || faulty.is_empty() {
            return Ok(());
        }
        let counted = faulty.iter().map(|change| {
            let count = change.lint_errors.len();
            let noun = if count == 1 { "error" } else { "errors" };
            format!("{} ({count} {noun})", change.name)
        });
        let counted: Vec<String> = counted.collect();
        let names = faulty.iter().map(|it| shell_words::quote(&it.name));
        let names: Vec<_> = names.collect();
        let invocation = &config.invocation;
        let force = invocation.command_line(&format!("seal --force {}", names.join(" ")));
        let message = format!("the lint finds errors in {}", counted.join(", "));
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("correct them; `memory-shepherd lint explain RULE` says how")
            .with_hint(format!("to seal them all the same: {force}")))
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
}

impl Engine {
    /// Returns the name in `baseline_dir` of a baseline that the operator typed: an agent, or a path
    /// from `baseline_dir` or from `cwd`.
    ///
    /// # Errors
    /// [`ErrorKind::User`] if it is neither.
    pub fn baseline_name(&self, typed: &str, cwd: &Path) -> Result<String> {
        if let Some(agent) = self.config().agent(typed) {
            return Ok(agent.baseline.clone());
        }
        let directory = &self.config().general.baseline_dir;
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
                self.command_line("baseline list")
            )));
        }
        Ok(name)
    }

    /// Compares the baselines in use and the sealed files with their seal.
    ///
    /// # Errors
    /// A seal, a file or a ledger that cannot be read; a named file that neither exists nor is
    /// sealed.
    pub fn plan_seal(&self, scope: &SealScope) -> Result<SealPlan> {
        let directory = &self.config().general.baseline_dir;
        let files = SealFiles::read(directory)?;
        let sealed = files.parse(directory)?.unwrap_or_default();
        let saved_here = self.last_saved_versions()?;
        // A decision file that cannot be used allows nothing.
        let decisions = self.load_lint_decisions().unwrap_or_default();
        let counted = self.counted_seal();
        let mut names: BTreeSet<String> = sealed.names().map(str::to_string).collect();
        names.extend(self.config().agents.iter().map(|it| it.baseline.clone()));
        names.retain(|name| is_baseline_name(name));
        if let SealScope::Named(named) = scope {
            names.extend(named.iter().cloned());
        }
        let mut changes = Vec::new();
        for name in names {
            match self.compare_with_seal(&name, &sealed, &saved_here, scope) {
                Ok(Some(mut change)) => {
                    self.lint_change(&mut change, counted.as_ref(), &decisions);
                    changes.push(change);
                }
                Ok(None) => {}
                // An error of a file that was not named does not stop the others.
                Err(_) if matches!(scope, SealScope::Named(named) if !named.contains(&name)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SealPlan {
            changes,
            accepts_all: *scope == SealScope::All,
            accepts_lint_errors: false,
            files,
        })
    }

    /// Compares a file with its seal; none for a baseline in use that is neither sealed nor there.
    fn compare_with_seal(
        &self,
        name: &str,
        seal: &BaselineSeal,
        saved_here: &HashMap<String, Digest>,
        scope: &SealScope,
    ) -> Result<Option<SealChange>> {
        let path = self.baseline_file_path(name);
        let bytes = read_optional(&path)?;
        let digest = bytes.as_deref().map(Digest::of);
        let sealed = seal.expected_digest(name);
        let is_named = matches!(scope, SealScope::Named(named) if named.contains(name));
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
        let agents = self.config().agents.iter();
        let users: Vec<&Agent> = agents.filter(|agent| agent.baseline == name).collect();
        let is_saved_here = digest.is_some() && saved_here.get(name) == digest.as_ref();
        let is_accepted = match scope {
            SealScope::SavedHere => is_saved_here,
            SealScope::Named(_) => is_named,
            SealScope::All => true,
        };
        let known = sealed.and_then(|sealed| match &bytes {
            Some(bytes) if kind == SealChangeKind::Unchanged => Some(Arc::new(bytes.clone())),
            _ => Some(self.find_sealed_version(sealed, &users)?.bytes),
        });
        Ok(Some(SealChange {
            name: name.to_string(),
            kind,
            sealed,
            sealed_bytes: known,
            bytes,
            is_saved_here,
            is_selected: is_accepted && kind != SealChangeKind::Unchanged,
            owner: lstat(&path)
                .ok()
                .and_then(|stat| FileOwner::from_stat(&stat, self.clock().now())),
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
        let mut agents = self.config().agents.iter();
        change.lint_errors = self.baseline_errors(
            &change.name,
            agents.find(|agent| agent.baseline == change.name),
            bytes,
            sealed_bytes.map(|it| it.to_vec()),
            decisions,
        );
    }

    /// Returns the version of each baseline that this program saved last.
    fn last_saved_versions(&self) -> Result<HashMap<String, Digest>> {
        let (mut back, _) = self.scan_ledger_backwards()?;
        let mut saved = HashMap::new();
        while let Some((_, record)) = back.next_matching(|it| it.agent.is_empty())? {
            let event = record.event;
            let is_save = matches!(
                event.operation,
                Operation::Save | Operation::Restore | Operation::Guard
            );
            if let (Some(file), Some(digest)) = (event.file, event.baseline)
                && is_save
                && event.outcome == Outcome::Ok
            {
                saved.entry(file).or_insert(digest);
            }
        }
        Ok(saved)
    }

    /// Writes the seal of a plan, and signs it if `key` is given.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a file has changed since the plan was made, if a signature would
    /// cover what the plan does not accept, or if a file has lint errors that it does not accept. The
    /// seal is then unchanged.
    pub fn apply_seal(&self, plan: &SealPlan, key: Option<&SigningKey<'_>>) -> Result<SealReport> {
        plan.check_lint_errors(self.config())?;
        let preview = self.preview_seal(plan, key)?;
        if plan.selected().next().is_none() && key.is_none() {
            // "Nothing to seal" would hide a signature that is required and not good.
            self.seal_verifier.read_seal(self.config())?;
            return Ok(preview);
        }
        let _edit = self.begin_baseline_edit()?;
        let _lock = lock::lock_seal(&self.archive, self.clock())?;
        // A broken ledger could not record it.
        self.ledger_head()?;
        let directory = &self.config().general.baseline_dir;
        self.recover_replacements()?;
        let files = SealFiles::read(directory)?;
        if files != plan.files {
            return Err(moved_error(SEAL_FILE_NAME));
        }
        let mut seal = files.parse(directory)?.unwrap_or_default();
        for change in plan.selected() {
            if read_optional(&self.baseline_file_path(&change.name))? != change.bytes {
                return Err(moved_error(&change.name));
            }
            match &change.bytes {
                Some(bytes) => {
                    let digest = self.baseline_versions.store(bytes)?;
                    seal.set(&change.name, digest);
                }
                None => seal.remove(&change.name),
            }
        }
        let (kept, meta, signed) = self.build_seal(seal, &files, key)?;
        check_names(plan, &kept, directory)?;
        self.keep_seal(&kept)?;
        self.install_seal(&kept)?;
        if let Some(signed) = &signed {
            self.seal_verifier.remember_serial(signed);
        }
        let run = new_run_id();
        self.record_seal(&run, plan, meta.as_ref(), signed.as_ref())
            .map_err(|error| error.with_context("sealed, but that cannot be recorded"))?;
        Ok(SealReport {
            run: Some(run),
            sealed: plan.selected().map(|it| it.name.clone()).collect(),
            meta,
            signed,
            ..preview
        })
    }

    /// Refuses what [`Engine::apply_seal`] would refuse, lint errors aside, and writes nothing.
    ///
    /// # Errors
    /// As [`Engine::apply_seal`].
    pub fn preview_seal(
        &self,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
    ) -> Result<SealReport> {
        if key.is_some() {
            self.check_signing(plan)?;
        } else if plan.selected().next().is_some() {
            self.check_unsigned(plan)?;
        }
        Ok(SealReport {
            run: None,
            path: self.seal_path(),
            sealed: Vec::new(),
            meta: None,
            signed: None,
        })
    }

    /// Refuses a seal without a signature where one is required or there is one.
    fn check_unsigned(&self, plan: &SealPlan) -> Result<()> {
        let is_required = self.config().general.require_seal == SealRequirement::Signed;
        if !is_required && plan.files.signature.is_none() {
            return Ok(());
        }
        let hint = format!(
            "sign the seal: {}",
            self.command_line("seal --sign KEYFILE")
        );
        if is_required {
            let message = "require_seal=signed, and a seal without a signature is refused";
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(hint));
        }
        let message = "the seal is signed, and its signature would no longer fit";
        let remove =
            format!("to give up the signature, remove {SIGNATURE_FILE_NAME} and {META_FILE_NAME}");
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(hint)
            .with_hint(remove))
    }

    /// Refuses a signature over lines that neither the plan accepts nor a good signature covers.
    fn check_signing(&self, plan: &SealPlan) -> Result<()> {
        if plan.accepts_all {
            return Ok(());
        }
        let directory = &self.config().general.baseline_dir;
        let seal = plan.files.parse(directory)?;
        let good = self
            .seal_verifier
            .check_signature(self.config(), &plan.files, seal.as_ref());
        good.map(drop).map_err(|error| {
            let message = format!(
                "a signature accepts every line of the seal, and no good signature covers them \
                 yet: {}",
                error.message()
            );
            let all = self.command_line("seal --all --sign KEYFILE");
            Error::new(ErrorKind::Conflict, message)
                .with_hint(format!("review every baseline, then: {all}"))
        })
    }

    /// Builds the files of a seal. A signature that `seal_signers` does not accept is an error.
    fn build_seal(
        &self,
        mut seal: BaselineSeal,
        old: &SealFiles,
        key: Option<&SigningKey<'_>>,
    ) -> Result<(KeptSeal, Option<SealMeta>, Option<SignedSeal>)> {
        let Some(key) = key else {
            let kept = KeptSeal {
                manifest: seal.to_text(),
                meta: None,
                signature: None,
            };
            return Ok((kept, None, None));
        };
        let old_meta = old.meta.as_deref().map(SealMeta::parse);
        let old_serial = old_meta.and_then(Result::ok).map(|meta| meta.serial);
        let highest = self.seal_verifier.highest_serial()?.max(old_serial);
        let now = self.clock().now();
        let time = now.with_nanosecond(0).unwrap_or(now);
        let meta = SealMeta {
            serial: highest.unwrap_or(0).saturating_add(1),
            time,
            expires: key
                .lifetime_days
                .map(|days| time + Duration::days(days.into())),
        };
        let meta_bytes = meta.to_bytes();
        seal.set(META_FILE_NAME, Digest::of(&meta_bytes));
        let manifest = seal.to_text();
        let signature = self.seal_verifier.sign(manifest.as_bytes(), key)?;
        let files = SealFiles {
            manifest: Some(manifest.clone().into_bytes()),
            meta: Some(meta_bytes.clone()),
            signature: Some(signature.clone()),
        };
        let signed = match &self.config().general.seal_signers {
            None => None,
            Some(path) => Some(
                self.seal_verifier
                    .check_signature(self.config(), &files, Some(&seal))
                    .map_err(|error| {
                        let message = format!("the seal was not changed: {}", error.message());
                        Error::new(error.kind(), message).with_hint(format!(
                            "sign with a key that {} allows, or add this key to it",
                            path.display()
                        ))
                    })?,
            ),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let kept = KeptSeal {
            manifest,
            meta: Some(text(meta_bytes)),
            signature: Some(text(signature)),
        };
        Ok((kept, Some(meta), signed))
    }

    /// Keeps a copy of the seal where agents cannot write.
    pub(super) fn keep_seal(&self, seal: &KeptSeal) -> Result<()> {
        let path = self.archive.program_path(KEPT_SEAL_FILE_NAME);
        let bytes = serde_json::to_vec(seal).map_err(|error| {
            let message = format!("cannot serialize the seal: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        self.archive.replace_program_file(&path, &bytes)
    }

    /// Returns the kept copy of the seal; none if it is missing or invalid.
    pub(super) fn read_kept_seal(&self) -> Option<KeptSeal> {
        let path = self.archive.program_path(KEPT_SEAL_FILE_NAME);
        serde_json::from_slice(&crate::durable::read_own_file(&path).ok()?).ok()
    }

    /// Puts the files of a seal in their place, the manifest last.
    pub(super) fn install_seal(&self, seal: &KeptSeal) -> Result<()> {
        let directory = &self.config().general.baseline_dir;
        let files = [
            (META_FILE_NAME, seal.meta.as_ref()),
            (SIGNATURE_FILE_NAME, seal.signature.as_ref()),
            (SEAL_FILE_NAME, Some(&seal.manifest)),
        ];
        let files: Vec<(PathBuf, &[u8])> = files
            .into_iter()
            .filter_map(|(name, text)| Some((directory.join(name), text?.as_bytes())))
            .collect();
        self.replace_files(&files).map(drop)
    }

    fn record_seal(
        &self,
        run: &str,
        plan: &SealPlan,
        meta: Option<&SealMeta>,
        signed: Option<&SignedSeal>,
    ) -> Result<()> {
        let signature = meta.map(|meta| match signed {
            Some(signed) => format!("signed by {}, serial {}", signed.signer.key, meta.serial),
            None => format!("signed, serial {}", meta.serial),
        });
        let mut events = Vec::new();
        let mut lines = Vec::new();
        for change in plan.selected() {
            let digest = change.bytes.as_deref().map(Digest::of);
            let was = change.sealed.map(|it| format!("was {}", it.short_hex(8)));
            let note: Vec<String> = was.into_iter().chain(signature.clone()).collect();
            let mut event = self.baseline_event(run, Operation::Seal);
            event.file = Some(change.name.clone());
            event.baseline = digest;
            event.note = (!note.is_empty()).then(|| note.join("; "));
            events.push(event);
            lines.push(match digest {
                Some(digest) => format!("Sealed {} ({})", change.name, digest.short_hex(8)),
                None => format!("Took {} out of the seal", change.name),
            });
        }
        if events.is_empty() {
            let mut event = self.baseline_event(run, Operation::Seal);
            event.note = signature;
            events.push(event);
            lines.push("Signed the seal".to_string());
        }
        self.record_baseline_run(run, events, lines)
    }

    /// Path of the manifest.
    pub(super) fn seal_path(&self) -> PathBuf {
        let directory = &self.config().general.baseline_dir;
        directory.join(seal::SEAL_FILE_NAME)
    }
}

/// Checks that the manifest, read again, covers the names of a plan: sha256sum has no spelling for
/// a few of them.
fn check_names(plan: &SealPlan, seal: &KeptSeal, directory: &Path) -> Result<()> {
    let read = seal.to_files().parse(directory)?.unwrap_or_default();
    for change in plan.selected() {
        if read.expected_digest(&change.name) != change.bytes.as_deref().map(Digest::of) {
            let message = format!("a seal cannot name the file {}", change.name);
            return Err(Error::new(ErrorKind::User, message).with_hint("rename the file"));
        }
    }
    Ok(())
}

fn moved_error(name: &str) -> Error {
    let message = format!("{name} has changed since the change was shown; nothing was sealed");
    Error::new(ErrorKind::Conflict, message).with_hint("run the command again, and review it")
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
