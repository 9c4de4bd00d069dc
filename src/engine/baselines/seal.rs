//! A new seal for the files that the operator accepts, with a signature or without. Other lines of
//! the manifest keep every byte.

use std::path::{Path, PathBuf};

use chrono::{Duration, Timelike};

use super::seal_plan::SealPlan;
use crate::base::digest::Digest;
use crate::base::durable::ExpectedFile;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::baseline::seal::{
    BaselineSeal, META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, SealFiles, SealMeta,
};
use crate::baseline::signatures::{SignedSeal, SigningKey};
use crate::config::SealRequirement;
use crate::engine::baselines::Seals;
use crate::engine::baselines::file::read_optional;
use crate::engine::baselines::replacement::{ChangeRecord, NewContent};
use crate::engine::baselines::save::BaselineWriter;
use crate::store::record::{Operation, new_run_id};

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

impl Seals {
    /// Writes the seal of a plan, and signs it if `key` is given.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a file has changed since the plan was made, if a signature would
    /// cover what the plan does not accept, or if a file has lint errors that it does not accept. The
    /// seal is then unchanged.
    pub fn apply_seal(&self, plan: &SealPlan, key: Option<&SigningKey<'_>>) -> Result<SealReport> {
        let preview = self.check_seal_plan(plan, key)?;
        if is_seal_unchanged(plan, key) {
            return Ok(preview);
        }
        let writer = self.files.begin_baseline_change()?;
        self.apply_checked_seal(&writer, plan, key, preview)
    }

    /// Writes the seal of a plan that was checked, and signs it if `key` is given. `_writer` keeps
    /// other processes from changing baselines.
    ///
    /// # Errors
    /// As [`Seals::apply_seal`].
    pub(in crate::engine) fn apply_checked_seal(
        &self,
        _writer: &BaselineWriter<'_>,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
        preview: SealReport,
    ) -> Result<SealReport> {
        if is_seal_unchanged(plan, key) {
            return Ok(preview);
        }
        self.write_seal(plan, key, preview)
    }

    /// Refuses what [`Seals::apply_seal`] would refuse, and writes nothing.
    pub(in crate::engine) fn check_seal_plan(
        &self,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
    ) -> Result<SealReport> {
        plan.check_lint_errors(self.context.config(), key)?;
        self.preview_seal(plan, key)
    }

    /// Writes the seal of a plan. The caller holds the lock of the seal.
    fn write_seal(
        &self,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
        preview: SealReport,
    ) -> Result<SealReport> {
        let directory = &self.context.config().general.baseline_dir;
        // A broken ledger could not record it.
        self.context.ledger().head()?;
        self.files.recover_replacements()?;
        let check_files = || {
            if SealFiles::read(directory)? == plan.files {
                Ok(())
            } else {
                Err(moved_error(SEAL_FILE_NAME))
            }
        };
        check_files()?;
        let mut seal = plan.accepted.seal.clone();
        for change in plan.selected() {
            if read_optional(&self.files.baseline_file_path(&change.name))? != change.bytes {
                return Err(moved_error(&change.name));
            }
            match &change.bytes {
                Some(bytes) => {
                    let digest = self.context.baseline_versions().store(bytes)?;
                    seal.set(&change.name, digest);
                }
                None => seal.remove(&change.name),
            }
        }
        let (files, meta, signed) = self.build_seal(seal, plan, key)?;
        check_names(plan, &files, directory)?;
        // A signature may take a minute.
        check_files()?;
        let record = self.seal_record(plan, meta.as_ref(), signed.as_ref());
        let run = record.run.clone();
        self.install_seal(&files, Some(&plan.files), record, || {
            if let Some(signed) = &signed {
                self.baselines.seal_verifier().remember_serial(signed);
            }
        })?;
        Ok(SealReport {
            run: Some(run),
            sealed: plan.selected().map(|it| it.name.clone()).collect(),
            meta,
            signed,
            ..preview
        })
    }

    /// Refuses what [`Seals::apply_seal`] would refuse, lint errors aside, and writes nothing.
    ///
    /// # Errors
    /// As [`Seals::apply_seal`].
    pub fn preview_seal(
        &self,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
    ) -> Result<SealReport> {
        if key.is_some() {
            self.check_signing(plan)?;
        } else if let Some(problem) = &plan.problem {
            return Err(problem.clone());
        } else if plan.selected().next().is_some() {
            self.check_unsigned(plan)?;
        } else {
            // "Nothing to seal" would hide a seal that has expired.
            self.baselines.seal_verifier().read_seal()?;
        }
        Ok(SealReport {
            run: None,
            path: self.baselines.seal_path(),
            sealed: Vec::new(),
            meta: None,
            signed: None,
        })
    }

    /// Refuses a seal without a signature where one is required or there is one.
    fn check_unsigned(&self, plan: &SealPlan) -> Result<()> {
        let is_required = self.context.config().general.require_seal == SealRequirement::Signed;
        if !plan.needs_key() {
            return Ok(());
        }
        let names = plan.selected().map(|it| quote_operand(&it.name));
        let names: Vec<_> = names.collect();
        let names = if plan.accepts_all {
            "--all".to_string()
        } else {
            names.join(" ")
        };
        let sign = self
            .context
            .command_line(&format!("seal {names} --sign KEYFILE"));
        let hint = format!("sign the seal: {sign}");
        if is_required {
            let message = "require_seal=signed, and a seal without a signature is refused";
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(hint));
        }
        let message = "the seal is signed, and its signature would no longer fit";
        let remove = format!(
            "to give up signatures: remove seal_signers from the config, restart the guard, remove \
             {SIGNATURE_FILE_NAME} and {META_FILE_NAME}, and seal again"
        );
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(hint)
            .with_hint(remove))
    }

    /// Refuses a signature over lines that neither the plan accepts nor a good signature covers.
    fn check_signing(&self, plan: &SealPlan) -> Result<()> {
        let why = match &plan.problem {
            _ if !plan.is_vouched_for => "the plan is that of a seal without a signature",
            _ if plan.accepts_all || plan.accepted.meta.is_some() => return Ok(()),
            None if plan.selects_every_line() => return Ok(()),
            Some(error) => error.message(),
            None => "there is none",
        };
        let message = format!(
            "a signature accepts every line of the seal, and no good signature covers them yet: \
             {why}"
        );
        let all = self
            .context
            .command_line("seal --all --sign KEYFILE --dry-run");
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(format!("review every baseline: {all}")))
    }

    /// Builds the files of a seal. A signature that `seal_signers` does not accept is an error.
    fn build_seal(
        &self,
        mut seal: BaselineSeal,
        plan: &SealPlan,
        key: Option<&SigningKey<'_>>,
    ) -> Result<(SealFiles, Option<SealMeta>, Option<SignedSeal>)> {
        let Some(key) = key else {
            if plan.files.meta.is_none() {
                seal.remove(META_FILE_NAME);
            }
            let files = SealFiles {
                manifest: Some(seal.to_text().into_bytes()),
                ..SealFiles::default()
            };
            return Ok((files, None, None));
        };
        let serial = self.next_serial(plan)?;
        let now = self.context.clock().now();
        let time = now.with_nanosecond(0).unwrap_or(now);
        let meta = SealMeta {
            serial,
            time,
            expires: key
                .lifetime_days
                .map(|days| time + Duration::days(days.into())),
            fleet: Some(self.context.config().general.fleet_name.clone()),
        };
        let meta_bytes = meta.to_bytes();
        seal.set(META_FILE_NAME, Digest::of(&meta_bytes));
        let manifest = seal.to_text().into_bytes();
        let signature = self.baselines.seal_verifier().sign(&manifest, key)?;
        let files = SealFiles {
            manifest: Some(manifest),
            meta: Some(meta_bytes),
            signature: Some(signature),
        };
        let signed = match &self.context.config().general.seal_signers {
            None => None,
            Some(path) => {
                let checked = self.baselines.seal_verifier().check_signature(&files);
                let (_, signed) = checked.map_err(|error| {
                    let message = format!("the seal was not changed: {}", error.message());
                    Error::new(error.kind(), message).with_hint(format!(
                        "sign with a key that {} allows, or add this key to it",
                        path.display()
                    ))
                })?;
                Some(signed)
            }
        };
        Ok((files, Some(meta), signed))
    }

    /// Returns the serial of a new seal. That of a file that no good signature covers counts for
    /// nothing.
    fn next_serial(&self, plan: &SealPlan) -> Result<u64> {
        let accepted = plan.accepted.meta.as_ref().map(|meta| meta.serial);
        let highest = self
            .baselines
            .seal_verifier()
            .highest_serial()?
            .max(accepted);
        highest.unwrap_or(0).checked_add(1).ok_or_else(|| {
            let message = "the serial of the seal is the highest that there is";
            Error::new(ErrorKind::Integrity, message).with_hint(
                "remove the key that signed it from seal_signers, and its line from \
                 .shepherd/seal-serials.json in the archive",
            )
        })
    }

    /// Keeps a seal in the archive, puts its files in their place, the manifest last, and records it.
    /// `found` is what stands there, if that matters; `on_installed` is called before the record. After
    /// an error before that, the kept seal is that from before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something else than `found` stands there, or another program
    /// replaces the new files at once; otherwise the system's error.
    pub(in crate::engine) fn install_seal(
        &self,
        seal: &SealFiles,
        found: Option<&SealFiles>,
        record: ChangeRecord,
        on_installed: impl FnOnce(),
    ) -> Result<()> {
        let expected = match found {
            Some(found) => found.named().map(|(_, bytes)| ExpectedFile::of(bytes)),
            None => [ExpectedFile::Any; 3],
        };
        let files = seal.named().into_iter().zip(expected);
        let files: Vec<NewContent<'_>> = files
            .filter_map(|((name, bytes), expected)| {
                Some(NewContent {
                    name,
                    bytes: bytes?,
                    expected,
                })
            })
            .collect();
        let kept_before = self.baselines.read_kept_seal();
        self.baselines.keep_seal(Some(seal))?;
        let installed = self
            .files
            .replace_files(&files, &record)
            .and_then(|change| match self.check_installed_seal(seal) {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    change.give_up()?;
                    Err(error)
                }
                checked => Ok((change, checked)),
            });
        match installed {
            Ok((change, checked)) => {
                // What cannot be read is recorded by the next recovery, if it is this seal.
                checked?;
                on_installed();
                change.complete(record).map(drop)
            }
            Err(error) => {
                self.baselines.keep_seal(kept_before.as_ref())?;
                Err(error)
            }
        }
    }

    /// Reads a seal again that was put in its place.
    fn check_installed_seal(&self, seal: &SealFiles) -> Result<()> {
        let directory = &self.context.config().general.baseline_dir;
        let found = SealFiles::read(directory)?;
        let mut files = seal.named().into_iter().zip(found.named());
        if files.all(|((_, new), (_, found))| new.is_none() || new == found) {
            return Ok(());
        }
        let directory = directory.display();
        let message = format!("another program replaced the new seal in {directory}");
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("find the program that writes there, and seal again"))
    }

    fn seal_record(
        &self,
        plan: &SealPlan,
        meta: Option<&SealMeta>,
        signed: Option<&SignedSeal>,
    ) -> ChangeRecord {
        let run = new_run_id();
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
            let mut event = self.files.baseline_event(&run, Operation::Seal);
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
            let mut event = self.files.baseline_event(&run, Operation::Seal);
            event.note = signature;
            events.push(event);
            lines.push("Signed the seal".to_string());
        }
        ChangeRecord { run, events, lines }
    }
}

/// Whether the seal of a plan is on the disk already.
fn is_seal_unchanged(plan: &SealPlan, key: Option<&SigningKey<'_>>) -> bool {
    key.is_none() && plan.selected().next().is_none() && plan.is_on_disk()
}

/// Checks that the manifest, read again, covers the names of a plan: sha256sum has no spelling for
/// a few of them.
fn check_names(plan: &SealPlan, seal: &SealFiles, directory: &Path) -> Result<()> {
    let read = seal.parse(directory)?.unwrap_or_default();
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
