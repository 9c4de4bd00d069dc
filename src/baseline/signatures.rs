//! Signed seals: whether the signature, serial and expiry of a seal are good, and the highest serial
//! that this archive has seen.
//!
//! A signature is an SSH signature over the manifest, which `ssh-keygen` makes and checks; nothing
//! here does cryptography. An allowed-signers file outside of the agents' reach (`seal_signers`)
//! says whose signature counts.

mod ssh_keygen;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::seal::{
    BaselineSeal, META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, SealFiles, SealMeta,
};
use super::writer_wait::{MAX_SETTLED_READS, WriterWait};
use crate::base::digest::{Digest, Hasher};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::{Config, SealRequirement};
use crate::store::controller::Controller;
use crate::store::holds::{Hold, Holds};

/// How long a good answer of `ssh-keygen` counts for the same files: keys and allowed signers have
/// times of validity.
const CHECK_LIFETIME: Duration = Duration::from_secs(60);

/// How long any other answer counts: the machine may just lack processes.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(5);

/// Size limit of an allowed-signers file.
const MAX_SIGNERS_BYTES: u64 = 1 << 20;

/// Maximum number of principals that are tried.
const MAX_PRINCIPALS: usize = 64;

/// Who signed a seal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Signer {
    /// The principal in the allowed-signers file.
    pub principal: String,
    /// Fingerprint of the key.
    pub key: String,
}

/// A seal with a good signature.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SignedSeal {
    /// Who signed it.
    pub signer: Signer,
    /// Serial, time and expiry.
    #[serde(flatten)]
    pub meta: SealMeta,
}

/// The key that signs a seal, and how long the seal is accepted.
#[derive(Clone, Debug)]
pub struct SigningKey<'a> {
    /// A private key, or a public key whose private part an ssh-agent has.
    pub path: &'a Path,
    /// Days after which the seal expires, if it does.
    pub lifetime_days: Option<u32>,
}

impl SigningKey<'_> {
    /// Returns the options of `seal` that sign with it, each behind a space.
    pub fn options(&self) -> String {
        let path = self.path.to_string_lossy();
        let days = self
            .lifetime_days
            .map(|days| format!(" --expires-in {days}"));
        format!(
            " --sign {}{}",
            shell_words::quote(&path),
            days.unwrap_or_default()
        )
    }
}

/// The serials of the seals that were seen in this archive.
#[derive(Default, Serialize, Deserialize)]
struct SeenSerials {
    /// The highest serial of each key.
    keys: BTreeMap<String, u64>,
    /// The seal with the highest serial, of any key.
    newest: Option<NewestSeal>,
}

/// The first seal that was seen with a serial.
#[derive(Serialize, Deserialize)]
struct NewestSeal {
    serial: u64,
    time: DateTime<FixedOffset>,
}

impl SeenSerials {
    /// Adds a seal; false if it changes nothing.
    fn add(&mut self, signed: &SignedSeal) -> bool {
        let SealMeta { serial, time, .. } = signed.meta;
        let highest = self.keys.entry(signed.signer.key.clone()).or_default();
        let is_higher = serial > *highest;
        *highest = serial.max(*highest);
        let is_newest = self.newest.as_ref().is_none_or(|it| it.serial < serial);
        if is_newest {
            self.newest = Some(NewestSeal { serial, time });
        }
        is_higher || is_newest
    }
}

/// Reads the seal of the baselines and checks its signature.
pub struct SealVerifier {
    controller: Arc<Controller>,
    holds: Arc<dyn Holds>,
    last_check: Mutex<Option<SignatureCheck>>,
}

/// An answer of `ssh-keygen`.
struct SignatureCheck {
    /// Digest of all files that were asked about.
    inputs: Digest,
    checked_at: Instant,
    answer: Result<Signer>,
}

impl SealVerifier {
    /// Creates a verifier that remembers serials in `holds`.
    pub fn new(controller: &Arc<Controller>, holds: &Arc<dyn Holds>) -> SealVerifier {
        SealVerifier {
            controller: Arc::clone(controller),
            holds: Arc::clone(holds),
            last_check: Mutex::default(),
        }
    }

    /// Returns the controller's config.
    pub fn config(&self) -> &Config {
        self.controller.config()
    }

    /// Reads the seal that baselines are checked against; none where there is none. With
    /// `require_seal=signed` its signature has to be good.
    ///
    /// # Errors
    /// A seal that cannot be used.
    pub fn read_seal(&self) -> Result<Option<BaselineSeal>> {
        let general = &self.config().general;
        if general.require_seal != SealRequirement::Signed {
            return BaselineSeal::read(&general.baseline_dir);
        }
        let (seal, signature) = self.read_signed_seal()?;
        signature?;
        Ok(seal)
    }

    /// Reads the seal and checks its signature, whether or not the config requires one. Remembers the
    /// serial of a good one.
    ///
    /// # Errors
    /// A seal that cannot be read. A fault of the signature is the second answer.
    pub fn read_signed_seal(&self) -> Result<(Option<BaselineSeal>, Result<SignedSeal>)> {
        let directory = &self.config().general.baseline_dir;
        let read = || {
            let files = SealFiles::read(directory)?;
            let signature = self.check_signature(&files).map(|(_, signed)| signed);
            Ok((files.parse(directory), signature))
        };
        let is_fault = |found: &Result<(_, Result<SignedSeal>)>| !matches!(found, Ok((_, Ok(_))));
        let mut wait = WriterWait::default();
        let (seal, signature) = self.read_settled(&mut wait, read, is_fault)?;
        if let Ok(signed) = &signature {
            self.remember_serial(signed);
        }
        Ok((seal?, signature))
    }

    /// Reads files that this program changes one after the other: baselines, and what their seal
    /// consists of. A fault is believed once two reads agree on it between which no process of this
    /// program was changing such files.
    pub fn read_settled<T: PartialEq>(
        &self,
        wait: &mut WriterWait,
        mut read: impl FnMut() -> T,
        is_fault: impl Fn(&T) -> bool,
    ) -> T {
        let mut found = read();
        for _ in 0..MAX_SETTLED_READS {
            if !is_fault(&found)
                || !wait.wait_for_writer(self.controller.archive(), self.controller.clock())
            {
                break;
            }
            let again = read();
            let is_confirmed = again == found;
            found = again;
            if is_confirmed {
                break;
            }
        }
        found
    }

    /// Checks signature, serial and expiry of the files of a seal. Returns its lines, and who signed it.
    ///
    /// # Errors
    /// The manifest cannot be parsed. [`ErrorKind::Integrity`]: the seal is not signed, or the signature
    /// does not count.
    pub fn check_signature(&self, files: &SealFiles) -> Result<(BaselineSeal, SignedSeal)> {
        let (seal, signed) = self.check_signed_lines(files)?;
        let expires = signed.meta.expires;
        let now = self.controller.clock().now();
        if let Some(expires) = expires.filter(|_| signed.meta.is_expired(now)) {
            // The key has signed it all the same: no older seal counts from then on.
            self.remember_serial(&signed);
            let config = self.config();
            let directory = config.general.baseline_dir.display();
            let expires = expires.format("%Y-%m-%d %H:%M:%S %:z");
            let message = format!("the seal has expired at {expires} (in {directory})");
            let renew = config.invocation.command_line("seal --sign KEYFILE");
            return Err(Error::new(ErrorKind::Integrity, message)
                .with_hint(format!("sign it again: {renew}")));
        }
        Ok((seal, signed))
    }

    /// Checks signature and serial of the files of a seal, which may have expired.
    ///
    /// # Errors
    /// As [`SealVerifier::check_signature`].
    pub fn check_signed_lines(&self, files: &SealFiles) -> Result<(BaselineSeal, SignedSeal)> {
        let config = self.config();
        let directory = config.general.baseline_dir.display();
        let refuse = |what: String| {
            let error = Error::new(
                ErrorKind::Integrity,
                // The cause first: lists of agents cut the rest.
                format!("the seal {what} (in {directory})"),
            );
            Err(error.with_hint(signing_hint(config)))
        };
        let seal = files.parse(&config.general.baseline_dir)?;
        let (Some(seal), Some(manifest)) = (seal, &files.manifest) else {
            return refuse(format!("is missing: there is no {SEAL_FILE_NAME}"));
        };
        let Some(signature) = &files.signature else {
            return refuse(format!("is not signed: there is no {SIGNATURE_FILE_NAME}"));
        };
        let signer = self.find_signer(manifest, signature)?;
        let Some(meta) = &files.meta else {
            return refuse(format!("has no serial: there is no {META_FILE_NAME}"));
        };
        if seal.expected_digest(META_FILE_NAME) != Some(Digest::of(meta)) {
            return refuse(format!("does not cover its {META_FILE_NAME}"));
        }
        let meta = match SealMeta::parse(meta) {
            Ok(meta) => meta.in_zone(self.controller.clock().zone()),
            Err(why) => return refuse(format!("has an invalid {META_FILE_NAME}: {why}")),
        };
        let own = &config.general.fleet_name;
        if let Some(fleet) = meta.fleet.as_ref().filter(|fleet| *fleet != own) {
            return refuse(format!(
                "is that of the fleet {fleet}; fleet_name is {own} in the config"
            ));
        }
        let SeenSerials { keys, newest } = self.read_serials()?;
        if let Some(highest) = keys.into_values().max().filter(|it| *it > meta.serial) {
            let serial = meta.serial;
            return refuse(format!(
                "is an old one: its serial is {serial}, and serial {highest} was seen before"
            ));
        }
        // Two seals that follow the same one have one serial, and would replace each other for ever.
        if newest.is_some_and(|it| it.serial == meta.serial && it.time != meta.time) {
            let serial = meta.serial;
            return refuse(format!(
                "is another one than the first that was seen with its serial {serial}"
            ));
        }
        Ok((seal, SignedSeal { signer, meta }))
    }

    /// Returns the signer of a manifest, from the last answer for the same files if it is recent.
    fn find_signer(&self, manifest: &[u8], signature: &[u8]) -> Result<Signer> {
        let Some(path) = &self.config().general.seal_signers else {
            let message = "the signature of the seal cannot be checked: seal_signers is not set";
            return Err(Error::new(ErrorKind::Integrity, message).with_hint(
                "set seal_signers in the config to an allowed-signers file (ssh-keygen(1))",
            ));
        };
        let signers = durable::read_regular_file(path, MAX_SIGNERS_BYTES)
            .with_path("read seal_signers", path)
            .map_err(|error| {
                error.with_kind(ErrorKind::Integrity).with_hint(
                    "write one line for each key that may sign: ssh-keygen(1), ALLOWED SIGNERS",
                )
            })?;
        let mut hasher = Hasher::default();
        for bytes in [manifest, signature, &signers] {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        let inputs = hasher.finish();
        let now = self.controller.clock().instant();
        let mut last = self
            .last_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(check) = last.as_ref().filter(|check| check.inputs == inputs) {
            let lifetime = if check.answer.is_ok() {
                CHECK_LIFETIME
            } else {
                REFUSAL_LIFETIME
            };
            if now.saturating_duration_since(check.checked_at) < lifetime {
                return check.answer.clone();
            }
        }
        let answer = self.ask_for_signer(path, manifest, signature, &signers);
        *last = Some(SignatureCheck {
            inputs,
            checked_at: now,
            answer: answer.clone(),
        });
        answer
    }

    /// Asks `ssh-keygen` whose signature it is, the way git does: every principal that the key may
    /// stand for is tried.
    fn ask_for_signer(
        &self,
        path: &Path,
        manifest: &[u8],
        signature: &[u8],
        signers: &[u8],
    ) -> Result<Signer> {
        let unable = |error: Error| {
            let context = "the signature of the seal cannot be checked";
            error.with_kind(ErrorKind::Integrity).with_context(context)
        };
        let clock = self.controller.clock();
        let mut refusal = None;
        let mut ask = |lines: &[u8]| {
            let principals = ssh_keygen::find_principals(signature, lines, clock)?;
            for principal in principals.into_iter().take(MAX_PRINCIPALS) {
                match ssh_keygen::verify(&principal, manifest, signature, signers, clock)? {
                    Ok(key) => return Ok(Some(Signer { principal, key })),
                    Err(why) => refusal = Some(why),
                }
            }
            Ok(None)
        };
        if let Some(signer) = ask(signers).map_err(unable)? {
            return Ok(signer);
        }
        let fits = ssh_keygen::check_novalidate(manifest, signature, clock).map_err(unable)?;
        if fits.is_ok() {
            // find-principals answers for the first line of a key alone.
            let lines = signers.split(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
            for line in lines.take(MAX_PRINCIPALS) {
                if let Some(signer) = ask(line).map_err(unable)? {
                    return Ok(signer);
                }
            }
        }
        let why = match (fits, refusal) {
            (Ok(key), None) => format!(
                "the key {key} signed the seal, and {} does not allow that key now",
                path.display()
            ),
            (_, Some(why)) | (Err(why), None) => {
                format!("the signature of the seal is not good: {why}")
            }
        };
        Err(Error::new(ErrorKind::Integrity, why).with_hint(signing_hint(self.config())))
    }

    /// Returns the highest serial that any key had, if one was seen.
    ///
    /// # Errors
    /// The memory of serials is damaged.
    pub fn highest_serial(&self) -> Result<Option<u64>> {
        Ok(self.read_serials()?.keys.into_values().max())
    }

    fn read_serials(&self) -> Result<SeenSerials> {
        self.parse_serials(self.holds.read(Hold::SealSerials)?)
    }

    fn parse_serials(&self, text: Option<Vec<u8>>) -> Result<SeenSerials> {
        let Some(text) = text else {
            return Ok(SeenSerials::default());
        };
        serde_json::from_slice(&text).map_err(|error| {
            let path = self.holds.location(Hold::SealSerials);
            let message = format!("{} is damaged: {error}", path.display());
            Error::new(ErrorKind::Integrity, message).with_hint(
                "restore it from a backup; without it, an old signed seal is not recognised",
            )
        })
    }

    /// Remembers the serial of a good seal. A reader of the archive without the right to write it
    /// does not.
    pub fn remember_serial(&self, signed: &SignedSeal) {
        let remember = || -> Result<()> {
            if !self.read_serials()?.add(signed) {
                return Ok(());
            }
            let mut lock = self.holds.lock(Hold::SealSerials)?;
            let mut serials = self.parse_serials(lock.read()?)?;
            serials.add(signed);
            let text = serde_json::to_vec(&serials).unwrap_or_default();
            lock.replace(Some(&text))
        };
        if let Err(error) = remember() {
            tracing::debug!("cannot remember the serial of the seal: {error}");
        }
    }

    /// Signs a manifest.
    ///
    /// # Errors
    /// The key cannot be used, or `ssh-keygen` cannot be run.
    pub fn sign(&self, manifest: &[u8], key: &SigningKey<'_>) -> Result<Vec<u8>> {
        ssh_keygen::sign(key.path, manifest, self.controller.clock())
    }
}

/// Hint for a seal whose signature does not count.
fn signing_hint(config: &Config) -> String {
    format!(
        "restore the seal from a backup, or review what a new one would accept: {}",
        config
            .invocation
            .command_line("seal --all --sign KEYFILE --dry-run")
    )
}
