//! The guard: puts sealed versions of baselines back when their files change otherwise than by a new
//! seal. The versions come from the archive, where agents cannot write.
//!
//! It restores only what still verifies: a version whose digest is in the seal, a seal whose
//! signature is good where one is required. It stores the bytes that it replaces first, and records
//! each restore. It does nothing while an operator edits with this program
//! ([`BaselineFiles::begin_baseline_edit`]), leaves a version that an operator has saved with it and not sealed
//! yet, and gives up on a file that it has restored too often. Neither a file that cannot be restored
//! nor versions that anyone can seal make it fill the disk.

mod backoff;
mod byte_budget;
mod watch;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use chrono::Duration;
use serde::Serialize;

use crate::base::digest::Digest;
use crate::base::durable::ExpectedFile;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::baseline::seal::{
    BaselineSeal, META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, SealFiles, is_baseline_name,
    seal_hint,
};
use crate::config::{Agent, SealRequirement};
use crate::engine::baselines::Guard;
use crate::engine::baselines::file::read_optional;
use crate::engine::baselines::replacement::{ChangeRecord, JOURNAL_FILE_NAME};
use crate::engine::baselines::save::SaveCause;
use crate::engine::file_owner::FileOwner;
use crate::store::file::lock::ArchiveLock;
use crate::store::observations::{SeenState, StateNote, StateObserver};
use crate::store::record::{FileState, Operation, Outcome, new_run_id};
use crate::store::state::State;
use backoff::Backoff;
use byte_budget::ByteBudget;
pub use watch::GuardProgress;

/// How often the guard restores a file within [`FIGHT_WINDOW`]. A seal, save or restore by an
/// operator resets the count.
const MAX_RESTORES: usize = 3;

/// The time in which restores are counted.
const FIGHT_WINDOW: Duration = Duration::hours(1);

/// How long the files of a seal have to stay unchanged before the guard puts the kept seal back.
const SEAL_SETTLE_TIME: Duration = Duration::seconds(10);

/// How long the guard waits for that at most.
const MAX_SEAL_WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// How long a pass holds the locks before it leaves the rest of the files to the next one.
const MAX_PASS_TIME: std::time::Duration = std::time::Duration::from_secs(10);

/// Pauses between attempts to restore a file that fail: an attempt may leave a copy and a record.
const FAILURE_PAUSES: [std::time::Duration; 2] = [
    std::time::Duration::from_secs(30),
    std::time::Duration::from_secs(60 * 60),
];

/// Number of bytes of versions that the guard stores within [`BUDGET_TIME`] because a seal without a
/// signature covers them: a process that can write `baseline_dir` can make any number of such seals.
const MAX_UNSIGNED_BYTES: u64 = 64 << 20;

/// The time for which [`MAX_UNSIGNED_BYTES`] are enough.
const BUDGET_TIME: std::time::Duration = std::time::Duration::from_secs(60 * 60);

/// Why a pass looks at nothing while an operator saves or seals.
const EDIT_DEFERRAL: &str = "this program is saving or sealing a baseline; nothing was checked";

/// What the guard did about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// The sealed version is back.
    Restored,
    /// The seal is broken, and another program may be copying it: it is restored a little later.
    Waiting,
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
    /// Why not all files were checked, if so; the next pass checks them.
    pub deferred: Option<&'static str>,
    /// Number of sealed files.
    pub files: usize,
    /// Those that differed.
    pub events: Vec<GuardEvent>,
    /// Those that an operator saved and has not sealed yet: they are left as they are, and resets
    /// refuse them.
    pub unsealed: Vec<String>,
}

impl GuardPass {
    /// Returns the kind that decides the exit code: a file that is not restored is worse than one
    /// that is, or than one that was not checked.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let kinds = self.events.iter().map(|event| match event.action {
            GuardAction::Restored => ErrorKind::Partial,
            GuardAction::Waiting | GuardAction::GaveUp | GuardAction::Failed => {
                ErrorKind::Integrity
            }
        });
        let deferred = self.deferred.map(|_| ErrorKind::Busy);
        kinds.chain(deferred).reduce(ErrorKind::more_serious)
    }

    /// Returns how many sealed files, or the seal, differed. An earlier change that cannot be recovered
    /// is none of them.
    pub fn changed_count(&self) -> usize {
        let is_file = |event: &&GuardEvent| event.file != JOURNAL_FILE_NAME;
        self.events.iter().filter(is_file).count()
    }

    /// Returns whether the next pass has something to do soon.
    fn is_unfinished(&self) -> bool {
        let is_waiting = |event: &GuardEvent| event.action == GuardAction::Waiting;
        self.deferred.is_some() || self.events.iter().any(is_waiting)
    }
}

/// What the guard does not repeat without end.
pub(in crate::engine) struct GuardPauses {
    /// Restores that failed.
    failed: Mutex<Backoff>,
    /// Bytes of versions under seals without a signature.
    stored: Mutex<ByteBudget>,
}

impl Default for GuardPauses {
    fn default() -> GuardPauses {
        let [first, longest] = FAILURE_PAUSES;
        let failed = Mutex::new(Backoff::new(first, longest));
        let stored = Mutex::new(ByteBudget::new(MAX_UNSIGNED_BYTES, BUDGET_TIME));
        GuardPauses { failed, stored }
    }
}

/// The seal that files are compared with.
struct TrustedSeal {
    seal: BaselineSeal,
    /// Whether its signature was required, and is good.
    is_signed: bool,
}

/// What recent records say of the guard and a file.
#[derive(Default)]
struct RecentRestores {
    count: usize,
    has_given_up: bool,
}

impl Guard {
    /// Compares every sealed file with its seal, and restores those that differ.
    ///
    /// # Errors
    /// The seal is missing, or the archive cannot be written. A file that cannot be restored is part of
    /// the answer.
    pub fn guard_baselines(&self) -> Result<GuardPass> {
        self.guard_until(&|| false)
    }

    /// Notes that the agents that use a changed baseline are TAMPERED, or were until the guard
    /// restored it. A pass that has checked all files ends that state for the others.
    fn note_tampering(&self, pass: &GuardPass) {
        let time = self.context.clock().now();
        let mut notes = Vec::new();
        // A seal that is being copied is no evidence yet.
        let is_evidence = |event: &&GuardEvent| event.action != GuardAction::Waiting;
        for event in pass.events.iter().filter(is_evidence) {
            let agents = self.context.config().agents.iter();
            for agent in agents.filter(|agent| event.concerns(agent)) {
                let seen = SeenState {
                    agent: agent.name.clone(),
                    state: State::Tampered,
                    reason: event.message.clone(),
                    time,
                };
                notes.push(match event.action {
                    GuardAction::Restored => StateNote::EndedByGuard(seen),
                    _ => StateNote::Seen {
                        seen,
                        observer: StateObserver::Guard,
                    },
                });
            }
        }
        if !pass.is_unfinished() {
            let agents = self.context.config().agents.iter();
            let ended = agents
                .filter(|agent| !pass.events.iter().any(|event| event.concerns(agent)))
                .filter(|agent| self.has_tampering_ended(agent));
            notes.extend(ended.map(|agent| StateNote::Forgotten(agent.name.clone())));
        }
        self.context.observations().note(&notes);
    }

    /// Whether an agent was TAMPERED when it was last seen, and its baseline is in order now.
    fn has_tampering_ended(&self, agent: &Agent) -> bool {
        let known = self.context.observations().known_state(&agent.name);
        known.is_some_and(|known| known.state == State::Tampered)
            && self.baselines.baseline_cache().load(agent).is_ok()
    }

    /// Like [`Guard::guard_baselines`], and ends between two files once `stops` says so.
    fn guard_until(&self, stops: &dyn Fn() -> bool) -> Result<GuardPass> {
        let _root_pin = self.context.archive().pin_root();
        let pass = self.guard_files(stops)?;
        self.note_tampering(&pass);
        Ok(pass)
    }

    fn guard_files(&self, stops: &dyn Fn() -> bool) -> Result<GuardPass> {
        if self.context.config().general.require_seal == SealRequirement::Never {
            let message = "require_seal=never: there is nothing to guard";
            return Err(Error::new(ErrorKind::Config, message)
                .with_hint("remove that line from the config"));
        }
        let Some(_edits) = ArchiveLock::BaselineEdits.try_acquire_all(self.context.archive())?
        else {
            return Ok(GuardPass {
                deferred: Some(EDIT_DEFERRAL),
                ..GuardPass::default()
            });
        };
        let _lock = ArchiveLock::Seal.acquire(self.context.archive(), self.context.clock())?;
        let mut pass = GuardPass::default();
        for problem in self.files.recover_replacements()? {
            pass.events.push(GuardEvent::unrecoverable(&problem));
        }
        let trusted = match self.guard_seal(&mut pass) {
            Ok(trusted) => trusted,
            Err(error) => {
                pass.events.push(GuardEvent::failed(SEAL_FILE_NAME, &error));
                return Ok(pass);
            }
        };
        let names = self.guarded_names(&trusted);
        pass.files = names.len();
        let end = self.context.clock().instant() + MAX_PASS_TIME;
        let mut position = self
            .guard_position
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // From where the last pass ended, so that slow files do not hide the others.
        let begin = position.take().unwrap_or_default();
        let (first, last): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| **name < begin);
        for name in last.into_iter().chain(first) {
            if stops() {
                pass.deferred = Some("stopped before all files were checked");
                break;
            }
            if self.context.clock().instant() >= end {
                *position = Some(name.clone());
                pass.deferred = Some("this took too long; the next pass looks at the other files");
                break;
            }
            if let Some(sealed) = trusted.seal.expected_digest(name) {
                match self.guard_file(name, sealed, trusted.is_signed, &mut pass.unsealed) {
                    Ok(event) => pass.events.extend(event),
                    Err(error) => pass.events.push(GuardEvent::failed(name, &error)),
                }
            }
        }
        Ok(pass)
    }

    /// Returns the seal that files are compared with: that in `baseline_dir` if it can be used, which
    /// is then kept; otherwise the kept one, which is put back.
    fn guard_seal(&self, pass: &mut GuardPass) -> Result<TrustedSeal> {
        let kept = self.baselines.read_kept_seal();
        let is_signed = self.baselines.counts_only_signed(kept.as_ref());
        let found =
            SealFiles::read(&self.context.config().general.baseline_dir).and_then(|files| {
                let seal = self.check_seal_files(&files, is_signed)?;
                if let Some(kept) = kept.as_ref().filter(|_| !is_signed) {
                    self.check_coverage(&seal, kept)?;
                }
                Ok((seal, files))
            });
        let mut broken_since = self
            .seal_broken_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let why = match found {
            Ok((seal, files)) => {
                *broken_since = None;
                self.take_over_seal(&seal, &files, kept, is_signed)?;
                return Ok(TrustedSeal { seal, is_signed });
            }
            Err(error) => error,
        };
        let Some(kept) = kept else {
            return Err(why);
        };
        let accepted = self.baselines.accepted_seal_among(&kept, is_signed)?;
        if let Some(problem) = accepted.problem {
            return Err(problem);
        }
        let trusted = TrustedSeal {
            seal: accepted.seal,
            is_signed,
        };
        let now = self.context.clock().instant();
        let waited = now.saturating_duration_since(*broken_since.get_or_insert(now));
        let event = if let Err(error) = self.check_seal_files(&kept, is_signed) {
            GuardEvent::failed(SEAL_FILE_NAME, &error)
        } else if self.has_fresh_seal_file() && waited < MAX_SEAL_WAIT {
            GuardEvent {
                action: GuardAction::Waiting,
                message: format!("the seal was changed a moment ago: {}", why.message()),
                ..GuardEvent::failed(SEAL_FILE_NAME, &why)
            }
        } else if let Some(event) = self.give_up_on(SEAL_FILE_NAME)? {
            event
        } else {
            self.attempt_restore(SEAL_FILE_NAME, || self.restore_seal(&kept, &why))?;
            *broken_since = None;
            GuardEvent {
                file: SEAL_FILE_NAME.to_string(),
                action: GuardAction::Restored,
                message: format!("restored the seal: {}", why.message()),
                hints: vec![self.writers_hint()],
            }
        };
        pass.events.push(event);
        Ok(trusted)
    }

    /// Refuses a seal without a signature that no longer covers a baseline in use which the kept one
    /// covers: resets would refuse that baseline, and the kept seal would be lost.
    fn check_coverage(&self, seal: &BaselineSeal, kept: &SealFiles) -> Result<()> {
        let Ok(Some(kept)) = kept.parse(&self.context.config().general.baseline_dir) else {
            return Ok(());
        };
        let covers = |seal: &BaselineSeal, name: &str| seal.expected_digest(name).is_some();
        let mut names = self.context.config().baseline_names();
        match names.find(|name| covers(&kept, name) && !covers(seal, name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!(
                    "the seal {} no longer covers {name}, which an agent uses",
                    self.baselines.seal_path().display()
                );
                Err(Error::new(ErrorKind::Integrity, message))
            }
        }
    }

    /// Keeps a seal that was made elsewhere. A signature that was not checked is not kept.
    fn take_over_seal(
        &self,
        seal: &BaselineSeal,
        files: &SealFiles,
        kept: Option<SealFiles>,
        is_signed: bool,
    ) -> Result<()> {
        if kept.as_ref() == Some(files) {
            return Ok(());
        }
        let has_signers = self.context.config().general.seal_signers.is_some();
        let is_good = is_signed
            || has_signers
                && files.signature.is_some()
                && self.check_seal_files(files, true).is_ok();
        if is_good {
            self.record_taken_over(seal, kept.as_ref())?;
            return self.baselines.keep_seal(Some(files));
        }
        if kept.is_some_and(|kept| kept.manifest == files.manifest) {
            return Ok(());
        }
        self.baselines.keep_seal(Some(&SealFiles {
            manifest: files.manifest.clone(),
            ..SealFiles::default()
        }))
    }

    /// Records which files a signed seal covers otherwise than the one before: they are not fought
    /// over, and what was saved here before is sealed over.
    fn record_taken_over(&self, seal: &BaselineSeal, before: Option<&SealFiles>) -> Result<()> {
        let directory = &self.context.config().general.baseline_dir;
        let before = before.and_then(|before| before.parse(directory).ok()?);
        let before = before.unwrap_or_default();
        let run = new_run_id();
        let names: BTreeSet<&str> = seal.names().chain(before.names()).collect();
        let mut events = Vec::new();
        for name in names.into_iter().filter(|name| is_baseline_name(name)) {
            let digest = seal.expected_digest(name);
            if digest == before.expected_digest(name) {
                continue;
            }
            let mut event = self.files.baseline_event(&run, Operation::Seal);
            event.file = Some(name.to_string());
            event.note = Some("sealed elsewhere".to_string());
            // Its bytes may come later than its seal.
            event.baseline =
                digest.filter(|it| self.context.baseline_versions().read_version(*it).is_ok());
            events.push(event);
        }
        if events.is_empty() {
            return Ok(());
        }
        let line = "Guard took over a signed seal that was made elsewhere".to_string();
        self.files.record_baseline_run(&run, events, vec![line])
    }

    /// Returns the seal in these files, if it counts.
    fn check_seal_files(&self, files: &SealFiles, is_signed: bool) -> Result<BaselineSeal> {
        if is_signed {
            let verifier = self.baselines.seal_verifier();
            let (seal, signed) = verifier.check_signature(files)?;
            verifier.remember_serial(&signed);
            return Ok(seal);
        }
        let seal = files.parse(&self.context.config().general.baseline_dir)?;
        seal.ok_or_else(|| {
            let message = format!("{} is missing", self.baselines.seal_path().display());
            Error::new(ErrorKind::Integrity, message).with_hint(seal_hint(self.context.config()))
        })
    }

    /// Returns whether one of the seal's files has changed in the last seconds: an operator may be
    /// copying them.
    fn has_fresh_seal_file(&self) -> bool {
        let now = self.context.clock().now();
        let directory = &self.context.config().general.baseline_dir;
        let names = [SEAL_FILE_NAME, META_FILE_NAME, SIGNATURE_FILE_NAME];
        names.iter().any(|name| {
            let owner = FileOwner::of(&directory.join(name), self.context.clock().zone());
            owner.is_some_and(|owner| {
                let age = now - owner.changed_at;
                age >= Duration::zero() && age < SEAL_SETTLE_TIME
            })
        })
    }

    /// Returns the names of the files to guard. A user who can write a seal without a signature can add
    /// any name to it, so only the baselines in use count then.
    fn guarded_names(&self, trusted: &TrustedSeal) -> BTreeSet<String> {
        let used = self.context.config().baseline_names();
        let sealed = trusted.seal.names().filter(|_| trusted.is_signed);
        used.chain(sealed)
            .filter(|name| is_baseline_name(name) && trusted.seal.expected_digest(name).is_some())
            .map(str::to_string)
            .collect()
    }

    /// Puts the kept seal back and records it.
    fn restore_seal(&self, kept: &SealFiles, why: &Error) -> Result<()> {
        self.context.ledger().head()?;
        // An unreadable object is not a file; it stays under a random name beside the seal.
        let found =
            SealFiles::read(&self.context.config().general.baseline_dir).unwrap_or_default();
        let manifest = found.manifest.as_deref().map(FileState::of);
        let run = new_run_id();
        let mut event = self.files.baseline_event(&run, Operation::Guard);
        event.file = Some(SEAL_FILE_NAME.to_string());
        event.change.before = manifest;
        event.change.after = kept.manifest.as_deref().map(FileState::of);
        event.note = Some(why.message().to_string());
        let record = ChangeRecord {
            run,
            events: vec![event],
            lines: vec![format!("Guard restored the seal: {}", why.message())],
        };
        self.seals.install_seal(kept, None, record, || {})
    }

    /// Compares a file with its sealed digest; restores it if it differs.
    fn guard_file(
        &self,
        name: &str,
        sealed: Digest,
        is_signed: bool,
        unsealed: &mut Vec<String>,
    ) -> Result<Option<GuardEvent>> {
        let path = self.files.baseline_file_path(name);
        // Anything but a plain file differs.
        let bytes = read_optional(&path).ok().flatten();
        let digest = bytes.as_deref().map(Digest::of);
        if let Some(bytes) = bytes.filter(|_| digest == Some(sealed)) {
            self.keep_sealed_version(name, &bytes, is_signed)?;
            return Ok(None);
        }
        if digest.is_some() && digest == self.edits.unsealed_save(name)? {
            unsealed.push(name.to_string());
            return Ok(None);
        }
        let Ok(version) = self.context.baseline_versions().read_version(sealed) else {
            let digest = sealed.short_hex(8);
            let message =
                format!("{name} differs from its seal, and the archive has no copy of {digest}…");
            return Err(Error::new(ErrorKind::Integrity, message).with_hint(format!(
                "restore the file from a backup, or review it and seal it: {}",
                self.context
                    .command_line(&format!("seal --dry-run {}", quote_operand(name)))
            )));
        };
        if let Some(event) = self.give_up_on(name)? {
            return Ok(Some(event));
        }
        let cause = SaveCause {
            operation: Operation::Guard,
            note: Some("differed from its seal".to_string()),
            expected: ExpectedFile::Any,
        };
        let saved =
            self.attempt_restore(name, || self.files.replace_baseline(name, &version, cause))?;
        let was = match saved.before {
            Some(digest) => format!("it had become {}…", digest.short_hex(8)),
            None => "it was missing or no plain readable file".to_string(),
        };
        let remarks = saved.remarks().into_iter();
        let remarks: String = remarks.map(|remark| format!("; {remark}")).collect();
        // Where the archive is full, the bytes are in the file beside it alone.
        let is_stored = |it: &Digest| self.context.baseline_versions().location(*it).exists();
        Ok(Some(GuardEvent {
            file: name.to_string(),
            action: GuardAction::Restored,
            message: format!(
                "restored {name} to {}…: {was}{remarks}",
                sealed.short_hex(8)
            ),
            hints: saved
                .before
                .filter(is_stored)
                .map(|before| self.evidence_hint(name, before))
                .into_iter()
                .chain([self.edit_hint(name), self.writers_hint()])
                .collect(),
        }))
    }

    /// Stores the sealed version of a file if the archive lacks it.
    fn keep_sealed_version(&self, name: &str, bytes: &[u8], is_signed: bool) -> Result<()> {
        let path = self.context.baseline_versions().location(Digest::of(bytes));
        if path.exists() {
            return Ok(());
        }
        if !is_signed {
            let budget = &self.guard_pauses.stored;
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            if !budget.take(bytes.len() as u64, self.context.clock().instant()) {
                let message = format!(
                    "{name} is not kept as a version: {} MiB of files under a seal without a \
                     signature were stored within an hour",
                    MAX_UNSIGNED_BYTES >> 20
                );
                return Err(
                    Error::new(ErrorKind::Integrity, message).with_hint(self.writers_hint())
                );
            }
        }
        self.context.baseline_versions().store(bytes)?;
        Ok(())
    }

    /// Restores a file, unless that has failed a moment ago: then it is the same error again.
    fn attempt_restore<T>(&self, name: &str, restore: impl FnOnce() -> Result<T>) -> Result<T> {
        let pauses = &self.guard_pauses.failed;
        let mut pauses = pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.context.clock().instant();
        if let Some(error) = pauses.paused_after(name, now) {
            return Err(error.clone());
        }
        match restore() {
            Ok(restored) => {
                pauses.forget(name);
                Ok(restored)
            }
            Err(error) => {
                let failed = pauses.pause_after(name, now, |length| {
                    let next = (self.context.clock().now() + length).format("%Y-%m-%d %H:%M:%S");
                    error.with_hint(format!(
                        "the guard tries again at {next}, and at once when it is restarted"
                    ))
                });
                Err(failed.clone())
            }
        }
    }

    fn evidence_hint(&self, name: &str, before: Digest) -> String {
        let name = quote_operand(name);
        let show = format!("baseline show {name} --version {}", before.short_hex(12));
        format!(
            "the replaced bytes are kept: {}",
            self.context.command_line(&show)
        )
    }

    /// Returns how an operator changes a baseline under the guard. A file that an editor leaves beside
    /// it proves nothing: other users may give it that name.
    fn edit_hint(&self, name: &str) -> String {
        let edit = format!("baseline edit {}", quote_operand(name));
        format!(
            "to change it yourself: {}",
            self.context.command_line(&edit)
        )
    }

    fn writers_hint(&self) -> String {
        format!(
            "`{}` names the agents that can write baseline_dir",
            self.context.command_line("doctor")
        )
    }

    /// Returns how an operator ends a fight.
    fn truce_hint(&self, name: &str) -> String {
        if name == SEAL_FILE_NAME {
            let seal = self.context.command_line("seal --all --dry-run");
            return format!("once no other program changes it, review it and seal again: {seal}");
        }
        let restore = self
            .context
            .command_line(&format!("baseline restore {}", quote_operand(name)));
        format!("once no other program changes it, restore it: {restore}")
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
            let mut event = self.files.baseline_event(&run, Operation::Guard);
            event.file = Some(name.to_string());
            event.outcome = Outcome::Refused;
            event.note = Some(message.clone());
            let line = format!("Guard {message}");
            self.files
                .record_baseline_run(&run, vec![event], vec![line])?;
        }
        Ok(Some(GuardEvent {
            file: name.to_string(),
            action: GuardAction::GaveUp,
            message,
            hints: vec![self.writers_hint(), self.truce_hint(name)],
        }))
    }

    fn recent_restores(&self, name: &str) -> Result<RecentRestores> {
        let now = self.context.clock().now();
        let begin = now - FIGHT_WINDOW;
        let mut recent = RecentRestores::default();
        let mut back = self.context.ledger().scan_backwards()?;
        while let Some((_, record)) = back.next_readable(&mut |_| true)? {
            if record.time < begin {
                break;
            }
            let event = record.event;
            let is_of_seal = name == SEAL_FILE_NAME && event.operation == Operation::Seal;
            // A clock that was set back makes records of the future.
            if record.time > now || event.file.as_deref() != Some(name) && !is_of_seal {
                continue;
            }
            match (event.operation, event.outcome) {
                (Operation::Guard, Outcome::Refused) => recent.has_given_up = true,
                // One that was undone at once counts, too.
                (Operation::Guard, _) => recent.count += 1,
                (Operation::Repair, _) => {}
                _ => break,
            }
        }
        Ok(recent)
    }
}

impl GuardEvent {
    /// Whether the baseline of an agent is the changed file, or under the changed seal.
    fn concerns(&self, agent: &Agent) -> bool {
        self.file == SEAL_FILE_NAME || agent.uses_baseline(&self.file)
    }

    /// An earlier change that cannot be recovered. It concerns no agent: the files may be in order.
    fn unrecoverable(error: &Error) -> GuardEvent {
        GuardEvent {
            file: JOURNAL_FILE_NAME.to_string(),
            action: GuardAction::Failed,
            message: error.message().to_string(),
            hints: error.hints().to_vec(),
        }
    }

    fn failed(name: &str, error: &Error) -> GuardEvent {
        GuardEvent {
            file: name.to_string(),
            action: GuardAction::Failed,
            message: match name {
                SEAL_FILE_NAME => format!("no usable seal: {}", error.message()),
                _ => format!("cannot restore {name}: {}", error.message()),
            },
            hints: error.hints().to_vec(),
        }
    }
}
