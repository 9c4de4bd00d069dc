//! Opens baselines for an editor: the bytes, who uses them, and what stands in the way of a save.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::Engine;
use super::baseline_drafts::BaselineDraft;
use super::baseline_versions::SEALED_VERSION_NOTE;
use super::observation::Protection;
use super::record::{Operation, Outcome};
use super::seal::SealReport;
use super::seal_plan::SealScope;
use crate::baseline::seal::{SealFiles, is_baseline_name};
use crate::config::SealRequirement;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind, Result};

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
    /// The operator's text that was not saved, or why it cannot be read.
    pub draft: Result<Option<BaselineDraft>>,
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

impl Engine {
    /// Opens a baseline for an editor.
    ///
    /// # Errors
    /// The name is not that of a baseline, or the file is missing or not a plain readable file.
    pub fn open_baseline(&self, name: &str) -> Result<OpenedBaseline> {
        if !is_baseline_name(name) {
            let message = format!("{name} is not the name of a baseline");
            return Err(Error::new(ErrorKind::User, message));
        }
        let users = self.baseline_users(name);
        let (bytes, is_checked, mismatch) = match users.first() {
            Some(agent) => {
                let found = self.inspect_baseline(agent)?;
                (found.bytes, found.is_sealed, found.seal_mismatch)
            }
            None => {
                let bytes = self.read_baseline(name)?;
                let (is_checked, mismatch) = self.check_unused_baseline(name, Digest::of(&bytes));
                (bytes, is_checked, mismatch)
            }
        };
        let digest = Digest::of(&bytes);
        let seal = match mismatch {
            Some(why) if self.unsealed_save(name)? == Some(digest) => SealMatch::SavedHere(why),
            Some(why) => SealMatch::Mismatch(why),
            None if !is_checked => SealMatch::Unchecked,
            None if self.has_signed_seal() => SealMatch::Signed,
            None => SealMatch::Sealed,
        };
        let path = self.baseline_file_path(name);
        Ok(OpenedBaseline {
            name: name.to_string(),
            is_immutable: durable::is_immutable(&path),
            path,
            bytes,
            digest,
            users: users
                .into_iter()
                .map(|agent| BaselineUser {
                    agent: agent.name.clone(),
                    protection: agent.protect.into(),
                    max_memory_size: agent.max_memory_size,
                    separator: agent.separator.clone(),
                })
                .collect(),
            seal,
            draft: self.load_baseline_draft(name),
        })
    }

    /// Returns whether a seal covers a baseline that no agent uses, and why it does not match, if it
    /// does not. What the seal does not list is no fault: no reset pushes it.
    fn check_unused_baseline(&self, name: &str, digest: Digest) -> (bool, Option<String>) {
        match self.seal_verifier.read_seal(self.config()) {
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
        let general = &self.config().general;
        general.require_seal == SealRequirement::Signed
            || SealFiles::read(&general.baseline_dir).is_ok_and(|it| it.signature.is_some())
    }

    /// Returns the version that an operator saved or restored last, if that is the last record of a
    /// baseline: it is not sealed yet, and no attack.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(super) fn unsealed_save(&self, name: &str) -> Result<Option<Digest>> {
        let (mut back, _) = self.scan_ledger_backwards()?;
        while let Some((_, record)) = back.next_matching(|it| it.agent.is_empty())? {
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

    /// Seals one baseline that was just saved, and no other. `accepts_lint_errors`: the operator has
    /// seen its lint errors.
    ///
    /// # Errors
    /// As [`Engine::plan_seal`] and [`Engine::apply_seal`].
    pub fn seal_saved_baseline(&self, name: &str, accepts_lint_errors: bool) -> Result<SealReport> {
        let scope = SealScope::Named(BTreeSet::from([name.to_string()]));
        let mut plan = self.plan_seal(&scope, false)?;
        for change in &mut plan.changes {
            change.is_selected &= change.name == name;
        }
        if accepts_lint_errors {
            plan.accept_lint_errors();
        }
        self.apply_seal(&plan, None)
    }
}
