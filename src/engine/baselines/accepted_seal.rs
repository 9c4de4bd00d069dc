//! The seal whose lines the operator has accepted, and the copy of it in the archive.
//!
//! Where signatures count, only a good one vouches for a line: that of the seal in `baseline_dir`,
//! or that of the kept copy. A manifest that no good signature covers says nothing there, whatever
//! it claims. Elsewhere the manifest in `baseline_dir` counts, as resets check it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::baseline::seal::{self, BaselineSeal, SealFiles, SealMeta};
use crate::baseline::signatures::SealVerifier;
use crate::baseline::{self, BaselineCache, InspectedBaseline};
use crate::boundary::Baseline;
use crate::config::{Agent, SealRequirement};
use crate::engine::baselines::Baselines;
use crate::store::holds::Hold;

/// A seal whose lines the operator has accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::engine) struct AcceptedSeal {
    /// Its lines; none if nothing vouches for any.
    pub seal: BaselineSeal,
    /// Serial, time and expiry, if its signature is good.
    pub meta: Option<SealMeta>,
    /// Why the seal in `baseline_dir` is not the accepted one, if it is not.
    pub problem: Option<Error>,
}

/// Whether the baselines are protected by a seal.
pub enum SealStatus {
    /// The seal at this path applies.
    Applied(PathBuf),
    /// There is no seal.
    Missing {
        /// How to make one.
        hint: String,
    },
    /// The config ignores any seal.
    Ignored,
}

impl Baselines {
    /// Checks seals and their signatures.
    pub(in crate::engine) fn seal_verifier(&self) -> &SealVerifier {
        &self.seal_verifier
    }

    /// Returns whether only a good signature vouches for a seal: the config requires one, or names
    /// who may sign and the last accepted seal was signed.
    pub(in crate::engine) fn counts_only_signed(&self, kept: Option<&SealFiles>) -> bool {
        let general = &self.context.config().general;
        let is_kept_signed = kept.is_some_and(|kept| kept.signature.is_some());
        general.require_seal == SealRequirement::Signed
            || general.seal_signers.is_some() && (is_kept_signed || self.is_kept_seal_unreadable())
    }

    /// Returns the seal whose lines count as accepted now.
    ///
    /// # Errors
    /// Without signatures: the seal in `baseline_dir` cannot be read.
    pub(in crate::engine) fn accepted_seal(&self) -> Result<AcceptedSeal> {
        let kept = self.read_kept_seal();
        let needs_signature = self.counts_only_signed(kept.as_ref());
        match SealFiles::read(&self.context.config().general.baseline_dir) {
            Ok(files) => self.accepted_seal_among(&files, needs_signature),
            Err(error) if needs_signature => {
                let accepted = self.accepted_seal_among(&SealFiles::default(), true)?;
                Ok(AcceptedSeal {
                    problem: Some(error),
                    ..accepted
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the seal whose lines count as accepted, where these are its files in `baseline_dir`.
    ///
    /// # Errors
    /// As [`Baselines::accepted_seal`].
    pub(in crate::engine) fn accepted_seal_among(
        &self,
        files: &SealFiles,
        needs_signature: bool,
    ) -> Result<AcceptedSeal> {
        let directory = &self.context.config().general.baseline_dir;
        if !needs_signature {
            return Ok(AcceptedSeal {
                seal: files.parse(directory)?.unwrap_or_default(),
                ..AcceptedSeal::default()
            });
        }
        let problem = match self.check_lines(files) {
            Ok(accepted) => return Ok(accepted),
            Err(error) => Some(error),
        };
        let kept = self.read_kept_seal();
        let accepted = kept.and_then(|kept| self.check_lines(&kept).ok());
        // Before the first seal there is nothing to say.
        let is_first = accepted.is_none() && *files == SealFiles::default();
        Ok(AcceptedSeal {
            problem: problem.filter(|_| !is_first),
            ..accepted.unwrap_or_default()
        })
    }

    /// Returns the lines of a seal with a good signature. An operator has accepted those of an
    /// expired one, too.
    fn check_lines(&self, files: &SealFiles) -> Result<AcceptedSeal> {
        let (seal, signed) = self.seal_verifier.check_signed_lines(files)?;
        Ok(AcceptedSeal {
            seal,
            meta: Some(signed.meta),
            problem: None,
        })
    }

    /// Returns the versions in the accepted seal, in that in `baseline_dir` and in the kept copy.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(in crate::engine) fn sealed_digests(&self) -> Result<HashSet<Digest>> {
        let directory = &self.context.config().general.baseline_dir;
        let kept = self.context.holds().read(Hold::AcceptedSeal)?;
        let kept = kept.and_then(|text| parse_kept_seal(&text));
        let kept = kept.map(|kept| kept.parse(directory));
        let on_disk = SealFiles::read(directory)?.parse(directory)?;
        let seals = [
            Some(self.accepted_seal()?.seal),
            on_disk,
            kept.transpose()?.flatten(),
        ];
        let digests = |seal: &BaselineSeal| -> Vec<Digest> {
            let names = seal.names();
            names
                .filter_map(|name| seal.expected_digest(name))
                .collect()
        };
        Ok(seals.iter().flatten().flat_map(digests).collect())
    }

    /// Keeps a copy of the seal where agents cannot write; none removes it.
    pub(in crate::engine) fn keep_seal(&self, seal: Option<&SealFiles>) -> Result<()> {
        let text = seal.map(serde_json::to_vec).transpose().map_err(|error| {
            let message = format!("cannot serialize the seal: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        self.context
            .holds()
            .lock(Hold::AcceptedSeal)?
            .replace(text.as_deref())
    }

    /// Returns whether there is a kept seal that is damaged, or that this user cannot read: it may be a
    /// signed one.
    fn is_kept_seal_unreadable(&self) -> bool {
        match self.context.holds().read(Hold::AcceptedSeal) {
            Ok(Some(text)) => parse_kept_seal(&text).is_none(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Returns the kept copy of the seal; none if there is no valid one.
    pub(in crate::engine) fn read_kept_seal(&self) -> Option<SealFiles> {
        parse_kept_seal(&self.context.holds().read(Hold::AcceptedSeal).ok()??)
    }

    /// Creates an empty cache of baselines, each of which is read and checked once.
    pub fn baseline_cache(&self) -> BaselineCache<'_> {
        BaselineCache::new(&self.seal_verifier)
    }

    /// Reads and checks the baseline of an agent for its operator.
    ///
    /// # Errors
    /// The file is missing or not a plain readable file.
    pub fn inspect_baseline(&self, agent: &Agent) -> Result<InspectedBaseline> {
        baseline::inspect_baseline(&self.seal_verifier, agent)
    }

    /// Returns whether a seal protects the baselines.
    ///
    /// # Errors
    /// The seal cannot be used.
    pub fn seal_status(&self) -> Result<SealStatus> {
        let general = &self.context.config().general;
        if general.require_seal == SealRequirement::Never {
            return Ok(SealStatus::Ignored);
        }
        Ok(match self.seal_verifier.read_seal()? {
            Some(_) => SealStatus::Applied(self.seal_path()),
            None => SealStatus::Missing {
                hint: seal::seal_hint(self.context.config()),
            },
        })
    }

    /// Returns the agents whose baselines resets refuse, each with the reason.
    pub fn refused_baselines(&self) -> Vec<(&Agent, Error)> {
        let mut baselines = self.baseline_cache();
        let agents = self.context.config().agents.iter();
        agents
            .filter(|agent| agent.reset.is_some())
            .filter_map(|agent| {
                let refusal = baselines.load(agent).err()?;
                Some((agent, refusal.error().clone()))
            })
            .collect()
    }

    /// Returns the agents whose baselines resets accept, each with its baseline.
    pub fn accepted_baselines(&self) -> Vec<(&Agent, Arc<Baseline>)> {
        let mut baselines = self.baseline_cache();
        let agents = self.context.config().agents.iter();
        agents
            .filter_map(|agent| Some((agent, baselines.load(agent).ok()?)))
            .collect()
    }

    /// Path of the manifest.
    pub(in crate::engine) fn seal_path(&self) -> PathBuf {
        let directory = &self.context.config().general.baseline_dir;
        directory.join(seal::SEAL_FILE_NAME)
    }
}

/// Parses the kept copy of a seal; none if it is damaged, or has no manifest.
fn parse_kept_seal(text: &[u8]) -> Option<SealFiles> {
    let files: SealFiles = serde_json::from_slice(text).ok()?;
    files.manifest.is_some().then_some(files)
}
