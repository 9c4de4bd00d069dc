//! The guard: puts sealed versions of baselines back when their files change otherwise than by a new
//! seal. The versions come from the archive, where agents cannot write.
//!
//! It restores only what still verifies: a version whose digest is in the seal, a seal whose
//! signature is good where one is required. It stores the bytes that it replaces first, and records
//! each restore. It does nothing while an operator edits ([`Engine::begin_baseline_edit`]), and gives
//! up on a file that it has restored too often.

mod watch;

use std::collections::BTreeSet;

use chrono::Duration;
use serde::Serialize;

use super::Engine;
use super::baseline_save::{SaveCause, file_state, read_optional};
use super::lock;
use super::record::{Operation, Outcome, new_run_id};
use super::seal::KeptSeal;
use crate::baseline::seal::{BaselineSeal, SEAL_FILE_NAME, SealFiles, is_baseline_name};
use crate::config::SealRequirement;
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};

/// How often the guard restores a file within [`FIGHT_WINDOW`]. A seal, save or restore by an
/// operator starts the count anew.
const MAX_RESTORES: usize = 3;

/// The time in which restores are counted.
const FIGHT_WINDOW: Duration = Duration::hours(1);

/// What the guard did about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// The sealed version is back.
    Restored,
    /// The file was restored too often; it stays as it is.
    GaveUp,
    /// The file cannot be restored.
    Failed,
}

/// A file that differed from its seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GuardEvent {
    /// Name in `baseline_dir`.
    pub file: String,
    /// What was done.
    pub action: GuardAction,
    /// The same in one sentence.
    pub message: String,
    /// What the operator can do.
    pub hints: Vec<String>,
}

/// One look at all sealed files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GuardPass {
    /// Whether nothing was looked at because an operator edits baselines.
    pub deferred: bool,
    /// Number of sealed files.
    pub files: usize,
    /// Those that differed.
    pub events: Vec<GuardEvent>,
}

impl GuardPass {
    /// Returns the kind that decides the exit code: a file that is not restored is worse than one
    /// that is.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let kinds = self.events.iter().map(|event| match event.action {
            GuardAction::Restored => ErrorKind::Partial,
            GuardAction::GaveUp | GuardAction::Failed => ErrorKind::Integrity,
        });
        kinds.reduce(ErrorKind::more_serious)
    }
}

/// What recent records say of the guard and a file.
#[derive(Default)]
struct RecentRestores {
    count: usize,
    has_given_up: bool,
}

impl Engine {
    /// Compares every sealed file with its seal, and restores those that differ.
    ///
    /// # Errors
    /// There is no seal, or the archive cannot be written. A file that cannot be restored is part of
    /// the answer.
    pub fn guard_baselines(&self) -> Result<GuardPass> {
        if self.config().general.require_seal == SealRequirement::Never {
            let message = "require_seal=never: there is nothing to guard";
            return Err(Error::new(ErrorKind::Config, message)
                .with_hint("remove that line from the config"));
        }
        let Some(_edits) = lock::try_exclude_edits(&self.archive)? else {
            return Ok(GuardPass {
                deferred: true,
                ..GuardPass::default()
            });
        };
        let _lock = lock::lock_seal(&self.archive, self.clock())?;
        self.recover_replacements()?;
        let mut pass = GuardPass::default();
        let seal = match self.guard_seal(&mut pass) {
            Ok(seal) => seal,
            Err(error) => {
                pass.events.push(GuardEvent::failed(SEAL_FILE_NAME, &error));
                return Ok(pass);
            }
        };
        let names = self.guarded_names(&seal);
        pass.files = names.len();
        for name in &names {
            if let Some(sealed) = seal.expected_digest(name) {
                match self.guard_file(name, sealed) {
                    Ok(event) => pass.events.extend(event),
                    Err(error) => pass.events.push(GuardEvent::failed(name, &error)),
                }
            }
        }
        Ok(pass)
    }

    /// Returns the seal that files are compared with. Puts the kept copy back where the seal on the
    /// disk cannot be used; a newer seal that can be used stays.
    fn guard_seal(&self, pass: &mut GuardPass) -> Result<BaselineSeal> {
        let general = &self.config().general;
        let kept = self.read_kept_seal();
        let is_kept_signed = kept.as_ref().is_some_and(|kept| kept.signature.is_some());
        let is_signature_required = general.require_seal == SealRequirement::Signed
            || general.seal_signers.is_some() && is_kept_signed;
        let found = if is_signature_required {
            let answer = self.seal_verifier.read_signed_seal(self.config());
            answer.and_then(|(seal, signature)| signature.map(|_| seal))
        } else {
            BaselineSeal::read(&general.baseline_dir)
        };
        let why = match found {
            Ok(Some(seal)) => return Ok(seal),
            Ok(None) => Error::new(
                ErrorKind::Integrity,
                format!("{} is missing", self.seal_path().display()),
            )
            .with_hint(crate::baseline::seal::seal_hint(self.config())),
            Err(error) => error,
        };
        let Some(kept) = kept else {
            return Err(why);
        };
        let seal = self.check_kept_seal(&kept, is_signature_required)?;
        if let Some(event) = self.give_up_on(SEAL_FILE_NAME)? {
            pass.events.push(event);
            return Ok(seal);
        }
        self.restore_seal(&kept, &why)?;
        pass.events.push(GuardEvent {
            file: SEAL_FILE_NAME.to_string(),
            action: GuardAction::Restored,
            message: format!("restored the seal: {}", why.message()),
            hints: vec![self.writers_hint()],
        });
        Ok(seal)
    }

    /// Returns the sealed files that are baselines in use or that this program has sealed, by name.
    /// Whoever can write an unsigned seal can add any other name.
    fn guarded_names(&self, seal: &BaselineSeal) -> BTreeSet<String> {
        let kept = self.read_kept_seal();
        let kept = kept.and_then(|kept| {
            let directory = &self.config().general.baseline_dir;
            kept.to_files().parse(directory).ok().flatten()
        });
        let used = self.config().agents.iter().map(|it| it.baseline.as_str());
        let sealed_here = kept.iter().flat_map(BaselineSeal::names);
        used.chain(sealed_here)
            .filter(|name| is_baseline_name(name) && seal.expected_digest(name).is_some())
            .map(str::to_string)
            .collect()
    }

    /// Returns the kept seal, if it still counts.
    fn check_kept_seal(
        &self,
        kept: &KeptSeal,
        is_signature_required: bool,
    ) -> Result<BaselineSeal> {
        let files = kept.to_files();
        let seal = files.parse(&self.config().general.baseline_dir)?;
        if is_signature_required {
            self.seal_verifier
                .check_signature(self.config(), &files, seal.as_ref())?;
        }
        Ok(seal.unwrap_or_default())
    }

    /// Puts the kept seal back and records it.
    fn restore_seal(&self, kept: &KeptSeal, why: &Error) -> Result<()> {
        self.ledger_head()?;
        // What cannot be read is no file, and stays under a random name beside the seal.
        let found = SealFiles::read(&self.config().general.baseline_dir).unwrap_or_default();
        let manifest = found.manifest.as_deref().map(file_state);
        self.install_seal(kept)?;
        let run = new_run_id();
        let mut event = self.baseline_event(&run, Operation::Guard);
        event.file = Some(SEAL_FILE_NAME.to_string());
        event.before = manifest;
        event.after = Some(file_state(kept.manifest.as_bytes()));
        event.note = Some(why.message().to_string());
        let line = format!("Guard restored the seal: {}", why.message());
        self.record_baseline_run(&run, vec![event], vec![line])
    }

    /// Compares a file with its sealed digest; restores it if it differs.
    fn guard_file(&self, name: &str, sealed: Digest) -> Result<Option<GuardEvent>> {
        let path = self.baseline_file_path(name);
        // Anything but a plain file differs.
        let bytes = read_optional(&path).ok().flatten();
        if let Some(bytes) = bytes.filter(|bytes| Digest::of(bytes) == sealed) {
            if !self.baseline_versions.version_path(sealed).exists() {
                self.baseline_versions.store(&bytes)?;
            }
            return Ok(None);
        }
        let Ok(version) = self.baseline_versions.read_version(sealed) else {
            let digest = sealed.short_hex(8);
            let message =
                format!("{name} differs from its seal, and the archive has no copy of {digest}…");
            return Err(Error::new(ErrorKind::Integrity, message).with_hint(format!(
                "restore the file from a backup, or review it and seal it: {}",
                self.command_line(&format!("seal {}", shell_words::quote(name)))
            )));
        };
        if let Some(event) = self.give_up_on(name)? {
            return Ok(Some(event));
        }
        let cause = SaveCause {
            operation: Operation::Guard,
            note: Some("differed from its seal".to_string()),
        };
        let saved = self.replace_baseline(name, &version, cause)?;
        let was = match saved.before {
            Some(digest) => format!("it had become {}…", digest.short_hex(8)),
            None => "it was missing or no plain file".to_string(),
        };
        Ok(Some(GuardEvent {
            file: name.to_string(),
            action: GuardAction::Restored,
            message: format!("restored {name} to {}…: {was}", sealed.short_hex(8)),
            hints: saved
                .before
                .map(|before| self.evidence_hint(name, before))
                .into_iter()
                .chain([self.writers_hint()])
                .collect(),
        }))
    }

    fn evidence_hint(&self, name: &str, before: Digest) -> String {
        let name = shell_words::quote(name);
        let show = format!("baseline show {name} --version {}", before.short_hex(12));
        format!("the replaced bytes are kept: {}", self.command_line(&show))
    }

    fn writers_hint(&self) -> String {
        format!(
            "`{}` names the agents that can write baseline_dir",
            self.command_line("doctor")
        )
    }

    /// Returns an event if the guard has restored a file too often. The first time is recorded.
    fn give_up_on(&self, name: &str) -> Result<Option<GuardEvent>> {
        let recent = self.recent_restores(name)?;
        if recent.count < MAX_RESTORES {
            return Ok(None);
        }
        let minutes = FIGHT_WINDOW.num_minutes();
        let message = format!(
            "gave up on {name}: restored {} times within {minutes} minutes, and changed again",
            recent.count
        );
        if !recent.has_given_up {
            let run = new_run_id();
            let mut event = self.baseline_event(&run, Operation::Guard);
            event.file = Some(name.to_string());
            event.outcome = Outcome::Refused;
            event.note = Some(message.clone());
            let line = format!("Guard {message}");
            self.record_baseline_run(&run, vec![event], vec![line])?;
        }
        let restore = self.command_line(&format!("baseline restore {}", shell_words::quote(name)));
        Ok(Some(GuardEvent {
            file: name.to_string(),
            action: GuardAction::GaveUp,
            message,
            hints: vec![
                self.writers_hint(),
                format!("once no other program changes it, restore it: {restore}"),
            ],
        }))
    }

    fn recent_restores(&self, name: &str) -> Result<RecentRestores> {
        let begin = self.clock().now() - FIGHT_WINDOW;
        let mut recent = RecentRestores::default();
        let (mut back, _) = self.scan_ledger_backwards()?;
        while let Some((_, record)) = back.next_matching(|_| true)? {
            if record.time < begin {
                break;
            }
            let event = record.event;
            if event.file.as_deref() != Some(name) {
                continue;
            }
            match (event.operation, event.outcome) {
                (Operation::Guard, Outcome::Ok) => recent.count += 1,
                (Operation::Guard, _) => recent.has_given_up = true,
                _ => break,
            }
        }
        Ok(recent)
    }
}

impl GuardEvent {
    fn failed(name: &str, error: &Error) -> GuardEvent {
        GuardEvent {
            file: name.to_string(),
            action: GuardAction::Failed,
            message: format!("cannot restore {name}: {}", error.message()),
            hints: error.hints().to_vec(),
        }
    }
}
