//! Verification of baselines: their versions in the archive, the seal with its signature, serial and
//! expiry, and the files in use.

use std::collections::HashSet;
use std::mem;

use chrono::Duration;

use super::{
    ArchiveClaims, FindingSubject, ProgressReport, Verification, VerifyProgress,
    names_retired_since,
};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::baseline::seal::{BaselineSeal, SealFiles, is_baseline_name, reseal_hint};
use crate::baseline::{BaselineRefusal, WriterWait};
use crate::config::SealRequirement;
use crate::engine::records::Verifier;
use crate::store::record::LedgerPosition;

/// Time before the expiry of a seal in which a note announces it.
const EXPIRY_NOTICE_DAYS: i64 = 14;

impl Verifier {
    pub(super) fn check_versions(
        &self,
        verification: &mut Verification,
        claims: &ArchiveClaims,
        end: LedgerPosition,
        progress: &mut ProgressReport<'_>,
    ) -> Result<()> {
        let versions = self.context.baseline_versions();
        let mut missing = claims.versions.clone();
        for digest in versions.digests()? {
            progress.step(VerifyProgress::Versions(verification.counts.versions))?;
            missing.remove(&digest);
            match versions.digest_version(digest) {
                Ok(Some(is)) if is == digest => verification.counts.versions += 1,
                Ok(Some(_)) => {
                    let path = versions.location(digest);
                    verification.add_integrity_finding(
                        FindingSubject::Version,
                        format!("the baseline version {} was changed", path.display()),
                    );
                }
                // Retention has deleted it in between.
                Ok(None) => {}
                Err(error) => {
                    verification.add_finding(FindingSubject::Version, error.kind(), error.message())
                }
            }
        }
        if !missing.is_empty() {
            // Retention may run at the same time; its record precedes the deletion.
            let (_, retired) = names_retired_since(self.context.ledger(), end)?;
            missing.retain(|digest| !retired.contains(digest));
        }
        if claims.may_be_retired_unread(0) {
            let count = missing.len() as u64;
            let names = ("baseline version", "baseline versions");
            verification.add_unknown_retired_note(count, names);
            return Ok(());
        }
        for digest in missing {
            let what =
                format!("the baseline version {digest}, which was pushed or sealed, is missing");
            verification.add_integrity_finding(FindingSubject::Version, what);
        }
        Ok(())
    }

    /// Checks the seal by itself. Returns whether baselines can be compared with it.
    pub(super) fn check_seal(&self, verification: &mut Verification) -> bool {
        let general = &self.context.config().general;
        if general.require_seal == SealRequirement::Never {
            return true;
        }
        let files = SealFiles::read(&general.baseline_dir).unwrap_or_default();
        let is_required = general.require_seal == SealRequirement::Signed;
        if !is_required && files.signature.is_none() {
            return match BaselineSeal::read(&general.baseline_dir) {
                Ok(_) => true,
                Err(error) => {
                    verification.add_error(FindingSubject::Seal, &error);
                    false
                }
            };
        }
        if !is_required && general.seal_signers.is_none() {
            let note = "the signature of the seal was not checked: seal_signers is not set";
            verification.notes.push(note.to_string());
            return true;
        }
        let checked = self.baselines.seal_verifier().read_signed_seal();
        match checked.and_then(|(_, signature)| signature) {
            Ok(signed) => {
                if let Some(expires) = signed.meta.expires
                    && expires - self.context.clock().now() < Duration::days(EXPIRY_NOTICE_DAYS)
                {
                    let expires = expires.format("%Y-%m-%d %H:%M:%S");
                    let seal = self.context.command_line("seal --sign KEYFILE");
                    let note = format!("the seal expires at {expires}; seal again before: {seal}");
                    verification.notes.push(note);
                }
                verification.signed = Some(signed);
                true
            }
            Err(error) => {
                verification.add_error(FindingSubject::Seal, &error);
                !is_required
            }
        }
    }

    /// Compares the baselines in use, and all other sealed files, with the seal.
    pub(super) fn check_baselines(&self, verification: &mut Verification) {
        if !self.check_seal(verification) {
            return;
        }
        let general = &self.context.config().general;
        let is_checked = general.require_seal != SealRequirement::Never;
        let seal = BaselineSeal::read(&general.baseline_dir);
        let seal = seal.ok().flatten().filter(|_| is_checked);
        let is_sealed = seal.is_some();
        let mut seal = seal.unwrap_or_default();
        let mut wait = WriterWait::default();
        let mut baselines = self.baselines.baseline_cache();
        let mut checked = HashSet::new();
        for agent in &self.context.config().agents {
            let Some(name) = agent.baseline().filter(|it| checked.insert(*it)) else {
                continue;
            };
            match baselines.load(agent) {
                Ok(_) if is_sealed => verification.counts.sealed_baselines += 1,
                Ok(_) => verification.counts.unsealed_baselines += 1,
                Err(BaselineRefusal::Tampered(error)) => {
                    verification.add_baseline_error(name, &error);
                }
                Err(BaselineRefusal::Unusable(error)) => {
                    match self.check_sealed_file(name, &mut seal, &mut wait) {
                        Err(error) => verification.add_baseline_error(name, &error),
                        Ok(()) => verification.notes.push(error.message().to_string()),
                    }
                }
            }
        }
        // What no agent uses is covered by the seal all the same.
        let others = seal.names().filter(|it| is_baseline_name(it));
        let mut others: Vec<String> = others.map(str::to_string).collect();
        others.retain(|name| !checked.contains(name.as_str()));
        others.sort_unstable();
        for name in &others {
            match self.check_sealed_file(name, &mut seal, &mut wait) {
                Ok(()) => verification.counts.sealed_baselines += 1,
                Err(error) => verification.add_baseline_error(name, &error),
            }
        }
    }

    /// Compares a file with the seal, if it is sealed. This program may be changing both: the seal is
    /// read again if the file differs.
    fn check_sealed_file(
        &self,
        name: &str,
        seal: &mut BaselineSeal,
        wait: &mut WriterWait,
    ) -> Result<()> {
        let mut is_first = true;
        let compare = || {
            if !mem::take(&mut is_first) {
                *seal = BaselineSeal::read(&self.context.config().general.baseline_dir)?
                    .unwrap_or_default();
            }
            self.compare_sealed_file(name, seal)
        };
        self.baselines
            .seal_verifier()
            .read_settled(wait, compare, Result::is_err)
    }

    /// Compares a file with a seal, if that lists it. One that is missing or cannot be read is not
    /// what was sealed.
    fn compare_sealed_file(&self, name: &str, seal: &BaselineSeal) -> Result<()> {
        let Some(sealed) = seal.expected_digest(name) else {
            return Ok(());
        };
        let is = match self.catalog.read_baseline(name) {
            Ok(bytes) if Digest::of(&bytes) == sealed => return Ok(()),
            Ok(bytes) => format!(
                "baseline does not match its seal: {name} has {}…, sealed {}…",
                Digest::of(&bytes).short_hex(8),
                sealed.short_hex(8)
            ),
            Err(error) => format!("{name} is sealed, but {}", error.message()),
        };
        Err(Error::new(ErrorKind::Integrity, is)
            .with_hint(reseal_hint(self.context.config(), name)))
    }
}
