//! Opens baselines for an editor: the bytes, who uses them, and what stands in the way of a save.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::thread::CapabilitySet;

use super::seal::SealReport;
use super::seal_plan::{SealPlan, SealScope};
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::base::process_rights::has_capability;
use crate::baseline::seal::{SealFiles, is_baseline_name};
use crate::baseline::{InspectedBaseline, WriterWait};
use crate::config::{Protection, SealRequirement};
use crate::engine::baselines::BaselineEdits;
use crate::engine::baselines::catalog::SEALED_VERSION_NOTE;
use crate::engine::baselines::drafts::FoundDrafts;
use crate::engine::baselines::file::BaselineFile;
use crate::engine::baselines::save::BaselineWriter;
use crate::store::record::{Operation, Outcome};

/// A baseline that an editor opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedBaseline {
    /// Name in `baseline_dir`.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Digest of the content.
    pub digest: Digest,
    /// The agents whose baseline it is.
    pub users: Vec<BaselineUser>,
    /// What the seal says of the content.
    pub seal: SealMatch,
    /// Whether the file is immutable (`chattr +i`).
    pub is_immutable: bool,
    /// Why a save cannot unlock the file, and the commands that do, if it is immutable and this process
    /// lacks the right.
    pub unlock_refusal: Option<String>,
    /// Why resets refuse it, and what else is wrong with it for its agents.
    pub problems: Vec<String>,
    /// Whether resets refuse it because of them.
    pub is_refused: bool,
    /// The operator's texts that were not saved.
    pub drafts: FoundDrafts,
}

/// An agent whose baseline is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineUser {
    /// Its name.
    pub agent: String,
    /// How it is protected.
    pub protection: Protection,
    /// The size from which its memory counts as oversize, in bytes.
    pub max_memory_size: u64,
    /// Its separator line.
    pub separator: String,
}

/// What a seal says of a baseline's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealMatch {
    /// Resets check no seal.
    Unchecked,
    /// The content is sealed, and a new seal needs a signature.
    Signed,
    /// The content is sealed.
    Sealed,
    /// An operator saved the content and has not sealed it yet. The text says why resets refuse it.
    SavedHere(String),
    /// The content is not what was sealed, or the seal is not good. The text says why.
    Mismatch(String),
}

impl BaselineEdits {
    /// Opens a baseline for an editor.
    ///
    /// # Errors
    /// The name is not that of a baseline, or the file is missing or not a plain readable file.
    pub fn open_baseline(&self, name: &str) -> Result<OpenedBaseline> {
        if !is_baseline_name(name) {
            let message = format!("{name} is not the name of a baseline");
            return Err(Error::new(ErrorKind::User, message));
        }
        let users = self.context.config().baseline_users(name);
        let path = self.files.baseline_file_path(name);
        let found = match users.first() {
            Some(agent) => self.baselines.inspect_baseline(agent)?,
            None => {
                let (bytes, is_sealed, seal_mismatch) = self.read_unused_baseline(name)?;
                InspectedBaseline {
                    path: path.clone(),
                    bytes,
                    is_sealed,
                    seal_mismatch,
                    is_refused: false,
                    problems: Vec::new(),
                }
            }
        };
        let digest = Digest::of(&found.bytes);
        let seal = match found.seal_mismatch {
            Some(why) if self.unsealed_save(name)? == Some(digest) => SealMatch::SavedHere(why),
            Some(why) => SealMatch::Mismatch(why),
            None if !found.is_sealed => SealMatch::Unchecked,
            None if self.has_signed_seal() => SealMatch::Signed,
            None => SealMatch::Sealed,
        };
        Ok(OpenedBaseline {
            name: name.to_string(),
            is_immutable: durable::is_immutable(&path),
            unlock_refusal: self.unlock_refusal(name),
            path,
            bytes: found.bytes,
            problems: found.problems,
            is_refused: found.is_refused,
            digest,
            users: users
                .into_iter()
                .map(|agent| BaselineUser {
                    agent: agent.name.clone(),
                    protection: agent.protect,
                    max_memory_size: agent.max_memory_size(),
                    separator: agent.separator().to_string(),
                })
                .collect(),
            seal,
            drafts: self.find_baseline_drafts(name),
        })
    }

    /// Reads what is at the path of a baseline that is being edited, and what its seal says of it.
    pub fn read_edited_baseline(&self, name: &str) -> (BaselineFile, SealMatch) {
        match self.open_baseline(name) {
            Ok(opened) => (BaselineFile::Readable(opened.bytes), opened.seal),
            Err(error) => {
                let file = match BaselineFile::read(&self.files.baseline_file_path(name)) {
                    // The ledger, for example, cannot be read.
                    BaselineFile::Readable(_) => BaselineFile::Unreadable(error.to_string()),
                    file => file,
                };
                (file, SealMatch::Mismatch(error.to_string()))
            }
        }
    }

    /// Returns whether the file of a baseline is immutable (`chattr +i`).
    pub fn is_baseline_immutable(&self, name: &str) -> bool {
        durable::is_immutable(&self.files.baseline_file_path(name))
    }

    /// Returns why a save cannot unlock an immutable baseline, and the commands that do. None if it
    /// can, and if the file is not immutable.
    pub fn unlock_refusal(&self, name: &str) -> Option<String> {
        let is_refused =
            self.is_baseline_immutable(name) && !has_capability(CapabilitySet::LINUX_IMMUTABLE);
        is_refused.then(|| {
            let commands = durable::flag_commands(&self.files.baseline_file_path(name));
            format!("{name} is immutable, which only root may change; {commands}")
        })
    }

    /// Reads a baseline that no agent uses, whether a seal covers it, and why it does not match, if it
    /// does not.
    fn read_unused_baseline(&self, name: &str) -> Result<(Vec<u8>, bool, Option<String>)> {
        let read = || {
            let bytes = self.catalog.read_baseline(name)?;
            let (is_sealed, mismatch) = self.check_unused_baseline(name, Digest::of(&bytes));
            Ok((bytes, is_sealed, mismatch))
        };
        let is_fault = |found: &Result<_>| !matches!(found, Ok((_, _, None)));
        self.baselines
            .seal_verifier()
            .read_settled(&mut WriterWait::default(), read, is_fault)
    }

    /// Returns whether a seal covers a baseline that no agent uses, and why it does not match, if it
    /// does not. A file that the seal does not list is not a fault: no reset pushes it.
    fn check_unused_baseline(&self, name: &str, digest: Digest) -> (bool, Option<String>) {
        match self.baselines.seal_verifier().read_seal() {
            Err(error) => (true, Some(error.to_string())),
            Ok(seal) => match seal.and_then(|seal| seal.expected_digest(name)) {
                None => (false, None),
                Some(sealed) if sealed == digest => (true, None),
                Some(sealed) => {
                    let sealed = sealed.short_hex(8);
                    let why = format!("baseline does not match its seal: sealed {sealed}…");
                    (true, Some(why))
                }
            },
        }
    }

    /// Whether a new seal needs a signature: the config requires it, or the seal has one.
    fn has_signed_seal(&self) -> bool {
        let general = &self.context.config().general;
        general.require_seal == SealRequirement::Signed
            || SealFiles::read(&general.baseline_dir).is_ok_and(|it| it.signature.is_some())
    }

    /// Returns the version that an operator saved or restored last, if that is the last record of a
    /// baseline: it is not sealed yet, and no attack. Behind a segment that cannot be read, no save
    /// is known.
    ///
    /// # Errors
    /// The active file of the ledger cannot be read.
    pub(in crate::engine) fn unsealed_save(&self, name: &str) -> Result<Option<Digest>> {
        let mut back = self.context.ledger().scan_backwards()?;
        while let Some((_, record)) = back.next_readable(&mut |it| it.is_about_archive())? {
            let event = record.event;
            if event.file.as_deref() != Some(name) || event.outcome != Outcome::Ok {
                continue;
            }
            let note = event.note.as_deref().unwrap_or_default();
            let is_save = match event.operation {
                // It says what was left beside the file, and nothing of the file.
                Operation::Repair => continue,
                // The seal chose that version, and not the operator.
                Operation::Restore => !note.starts_with(SEALED_VERSION_NOTE),
                operation => operation == Operation::Save,
            };
            return Ok(event.baseline.filter(|_| is_save));
        }
        Ok(None)
    }

    /// Seals one baseline whose version `saved` was just saved, and nothing else, within the change that
    /// saved it. `accepts_lint_errors`: the operator has seen its lint errors.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the file is no longer that version; as
    /// [`plan_seal`](super::Seals::plan_seal) and [`apply_seal`](super::Seals::apply_seal).
    pub fn seal_saved(
        &self,
        writer: &BaselineWriter<'_>,
        name: &str,
        saved: Digest,
        accepts_lint_errors: bool,
    ) -> Result<SealReport> {
        let plan = self.plan_saved_seal(name, saved, accepts_lint_errors)?;
        let preview = self.seals.check_seal_plan(&plan, None)?;
        self.seals.apply_checked_seal(writer, &plan, None, preview)
    }

    /// Plans to seal one baseline whose version `saved` was just saved, and nothing else.
    ///
    /// # Errors
    /// As [`BaselineEdits::seal_saved`].
    fn plan_saved_seal(
        &self,
        name: &str,
        saved: Digest,
        accepts_lint_errors: bool,
    ) -> Result<SealPlan> {
        let scope = SealScope::Named(BTreeSet::from([name.to_string()]));
        let mut plan = self.seals.plan_seal(&scope, false)?;
        // Another program may have written to the file since.
        let mut changes = plan.changes.iter();
        if !changes.any(|it| it.name == name && it.sha256() == Some(saved)) {
            let path = self.files.baseline_file_path(name);
            let message = format!("{} has changed since it was saved", path.display());
            let show = self
                .context
                .command_line(&format!("seal --dry-run {}", quote_operand(name)));
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint(format!("it is not sealed; to review the change: {show}")));
        }
        for change in &mut plan.changes {
            change.is_selected &= change.name == name;
        }
        if accepts_lint_errors {
            plan.accept_lint_errors();
        }
        Ok(plan)
    }
}
