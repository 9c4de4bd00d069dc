//! Changes of a baseline file: compares the current file with the last version whose bytes are
//! known, and gathers what an operator should know before accepting it.
//!
//! It classifies no memory and writes nothing.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::baseline::{self, BaselineRefusal, MAX_BASELINE_BYTES};
use crate::boundary::memory_window;
use crate::config::{Agent, Protection};
use crate::engine::baselines::Baselines;
use crate::engine::file_owner::FileOwner;
use crate::store::record::{Operation, Outcome};

/// Maximum number of files that are searched for the bytes of a version.
const MAX_SEARCHED_FILES: usize = 1000;

/// Maximum number of their bytes.
const MAX_SEARCHED_BYTES: u64 = 256 << 20;

/// Files by the digests of their contents.
pub(in crate::engine) type DirectoryDigests = HashMap<Digest, PathBuf>;

/// A baseline file and the last known version of it.
#[derive(Clone, Debug)]
pub struct BaselineChange {
    /// The file.
    pub path: PathBuf,
    /// Its content, or why it cannot be read.
    pub current: Result<Vec<u8>>,
    /// Its owner and times; none where the file does not exist.
    pub owner: Option<FileOwner>,
    /// Why resets refuse the file, if they do.
    pub refusal: Option<String>,
    /// What to do about the refusal.
    pub advice: Option<String>,
    /// The version that it is compared with; none where the archive keeps no version's bytes.
    pub reference: Option<KnownVersion>,
    /// The digest in the seal, where the file is another version and the bytes of the sealed one
    /// are not kept.
    pub missing_sealed_version: Option<Digest>,
    /// Why a version that it would be compared with cannot be read, although it is or may be stored.
    pub unread_version: Option<Error>,
    /// The agents that use this baseline.
    pub agents: Vec<String>,
    /// Those of them whose next reset pushes the file, once it is accepted.
    pub receivers: Vec<String>,
}

/// A version of a baseline whose bytes are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownVersion {
    /// Digest of its bytes.
    pub digest: Digest,
    /// Its content.
    pub bytes: Arc<Vec<u8>>,
    /// The file that holds the bytes, or begins with them.
    pub path: PathBuf,
    /// Whether it is the sealed version; otherwise it is the last pushed one, or before the first push
    /// an earlier one that was sealed or saved.
    pub is_sealed: bool,
}

impl BaselineChange {
    /// Lines that accompany the difference: owner, compared version, affected agents, advice.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        // The difference itself shows that it is not the sealed version.
        let is_shown = self.reference.as_ref().is_some_and(|known| known.is_sealed);
        let refused = self.refusal.as_ref().filter(|_| !is_shown);
        notes.extend(refused.map(|why| format!("resets are BLOCKED: {why}")));
        notes.extend(self.owner.map(|owner| owner.describe()));
        notes.push(match &self.reference {
            Some(known) => known.describe(),
            None => "no known version to compare with".to_string(),
        });
        notes.extend(match (&self.unread_version, self.missing_sealed_version) {
            (Some(error), _) => Some(error.message().to_string()),
            (None, Some(sealed)) => {
                let digest = sealed.short_hex(8);
                let what = format!("the content of the sealed version {digest}…");
                Some(format!("{what} is not in the archive"))
            }
            (None, None) => None,
        });
        if !self.receivers.is_empty() {
            let accepted = self.refusal.as_ref().map_or("", |_| "if accepted, ");
            let receivers = self.receivers.join(", ");
            notes.push(format!(
                "{accepted}the next reset pushes it to: {receivers}"
            ));
        }
        notes.extend(self.advice.clone());
        notes
    }
}

impl KnownVersion {
    fn describe(&self) -> String {
        let which = if self.is_sealed {
            "sealed version"
        } else {
            "last known version"
        };
        let digest = self.digest.short_hex(8);
        let name = self.digest.to_string();
        let place = if self.path.file_stem() == Some(name.as_ref()) {
            String::new()
        } else {
            format!(", found at the start of {}", self.path.display())
        };
        format!("compared with the {which} {digest}…{place}")
    }
}

impl Baselines {
    /// Compares the baseline file of an agent with the sealed version, where its bytes are known,
    /// otherwise with the last pushed or saved one. Reads the file again.
    ///
    /// # Errors
    /// The agent is never reset.
    pub fn compare_baseline(&self, agent: &Agent) -> Result<BaselineChange> {
        let name = &agent.required_reset()?.baseline;
        let path = self.context.config().general.baseline_dir.join(name);
        let refusal = self.baseline_cache().load(agent).err();
        let file = self.inspect_baseline(agent).map(|found| found.bytes);
        let current = file.as_ref().ok().map(|bytes| Digest::of(bytes));
        let accepted = self.accepted_seal().ok();
        let sealed = accepted.and_then(|it| it.seal.expected_digest(name));
        // A file that matches its seal is compared with the last pushed version.
        let differs = sealed.filter(|sealed| Some(*sealed) != current);
        let users = self.context.config().baseline_users(name);
        let known = differs
            .and_then(|sealed| self.find_sealed_version(sealed, &users, &OnceCell::new()))
            .or_else(|| self.find_pushed_version(agent, &users))
            .or_else(|| self.find_earlier_version(agent, current));
        let is_known = known.as_ref().is_some_and(|known| known.is_sealed);
        let missing = differs.filter(|_| !is_known);
        let pushed = known
            .is_none()
            .then(|| self.context.history(&agent.name).ok());
        let pushed = pushed
            .flatten()
            .and_then(|it| it.pushed_versions.first().copied());
        let mut looked_for = missing.into_iter().chain(pushed);
        let versions = self.context.baseline_versions();
        // No seal helps a file that is too small, or the template.
        let is_unusable = matches!(refusal, Some(BaselineRefusal::Unusable(_)));
        let receives = |it: &Agent| {
            let is_pushed = !is_unusable && it.protect != Protection::ReadOnly;
            is_pushed && self.last_version(it) != current
        };
        let receivers = users.iter().filter(|it| receives(it));
        Ok(BaselineChange {
            receivers: receivers.map(|it| it.name.clone()).collect(),
            owner: FileOwner::of(&path, self.context.clock().zone()),
            current: file,
            refusal: refusal.as_ref().map(|it| it.error().to_string()),
            // The last hint of several leads to the comparison that is shown here.
            advice: refusal.and_then(|it| it.error().hints().last().cloned()),
            missing_sealed_version: missing,
            unread_version: looked_for.find_map(|it| versions.digest_version(it).err()),
            reference: known,
            agents: users.into_iter().map(|it| it.name.clone()).collect(),
            path,
        })
    }

    /// Returns the version of its baseline that the last change left an agent with; none if it is not
    /// known. An undo may have put back a memory with none.
    fn last_version(&self, agent: &Agent) -> Option<Digest> {
        let history = self.context.history(&agent.name).ok()?;
        let last = history.last_run.as_ref()?;
        if last.operation != Operation::Undo || last.outcome != Outcome::Ok {
            return history.pushed_versions.first().copied();
        }
        let mut back = self.context.ledger().scan_backwards().ok()?;
        loop {
            let (_, record) = back
                .next_readable(&mut |it| it.agent == agent.name)
                .ok()??;
            if record.event.has_changed_memory() {
                return record.event.baseline;
            }
        }
    }

    /// Finds the sealed version in the archive, beside the baselines or in the memory of an agent.
    /// `beside` is filled at the first need.
    pub(in crate::engine) fn find_sealed_version(
        &self,
        sealed: Digest,
        agents: &[&Agent],
        beside: &OnceCell<DirectoryDigests>,
    ) -> Option<KnownVersion> {
        self.stored_version(sealed, true)
            .or_else(|| {
                let beside = beside.get_or_init(|| self.digest_baseline_directory());
                find_sealed_beside(sealed, beside)
            })
            .or_else(|| {
                agents
                    .iter()
                    .find_map(|it| self.find_sealed_in_memory(it, sealed))
            })
    }

    /// Finds the version that was last pushed to an agent, or else to another agent that uses the
    /// same baseline.
    pub(in crate::engine) fn find_pushed_version(
        &self,
        agent: &Agent,
        users: &[&Agent],
    ) -> Option<KnownVersion> {
        let others = users.iter().copied().filter(|it| it.name != agent.name);
        std::iter::once(agent).chain(others).find_map(|it| {
            let pushed = self.context.history(&it.name).ok()?.pushed_versions;
            self.stored_version(*pushed.first()?, false)
        })
    }

    /// Finds the newest earlier version of an agent's baseline that is kept, other than the current one.
    fn find_earlier_version(&self, agent: &Agent, current: Option<Digest>) -> Option<KnownVersion> {
        let history = self.context.history(&agent.name).ok()?;
        let digests = self.earlier_digests(agent, &history).into_iter();
        let mut others = digests.filter(|it| Some(*it) != current);
        others.find_map(|it| self.stored_version(it, false))
    }

    /// Returns the files in the directory of the baselines by their digests.
    fn digest_baseline_directory(&self) -> DirectoryDigests {
        let mut digests = DirectoryDigests::new();
        let Ok(files) = fs::read_dir(&self.context.config().general.baseline_dir) else {
            return digests;
        };
        let mut bytes_left = MAX_SEARCHED_BYTES;
        for file in files.take(MAX_SEARCHED_FILES).flatten() {
            // A symlink may be an attacker's, and lead anywhere.
            let is_file = file.file_type().is_ok_and(|kind| kind.is_file());
            let size = file.metadata().map_or(u64::MAX, |it| it.len());
            if !is_file || size > bytes_left {
                continue;
            }
            let path = file.path();
            if let Ok(bytes) = baseline::read_file(&path) {
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                digests.insert(Digest::of(&bytes), path);
            }
        }
        digests
    }

    /// Finds the sealed version at the beginning of an agent's memory, on this machine.
    fn find_sealed_in_memory(&self, agent: &Agent, sealed: Digest) -> Option<KnownVersion> {
        if agent.host().is_some() {
            return None;
        }
        let file = fs::metadata(self.context.config().baseline_path(agent)?);
        let size = file.map_or(0, |it| it.len()).min(MAX_BASELINE_BYTES);
        let window = memory_window(size as usize);
        let mut bytes = self.context.read_memory_prefix(agent, window).ok()?;
        bytes.truncate(sealed.matching_prefix_length(&bytes)?);
        Some(KnownVersion {
            digest: sealed,
            bytes: Arc::new(bytes),
            path: agent.observed_path().to_path_buf(),
            is_sealed: true,
        })
    }

    fn stored_version(&self, digest: Digest, is_sealed: bool) -> Option<KnownVersion> {
        let bytes = self.context.baseline_versions().read_version(digest).ok()?;
        Some(KnownVersion {
            path: self.context.baseline_versions().location(digest),
            digest,
            bytes,
            is_sealed,
        })
    }
}

/// Reads the sealed version under another name in the directory of the baselines.
fn find_sealed_beside(sealed: Digest, beside: &DirectoryDigests) -> Option<KnownVersion> {
    let path = beside.get(&sealed)?;
    let bytes = baseline::read_file(path).ok()?;
    (Digest::of(&bytes) == sealed).then(|| KnownVersion {
        digest: sealed,
        bytes: Arc::new(bytes),
        path: path.clone(),
        is_sealed: true,
    })
}
