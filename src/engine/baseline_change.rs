//! What changed in a baseline file: the file as it stands there against the last version
//! of it whose bytes are known, with what there is to know before it is accepted.
//!
//! It reads and judges nothing of memories, and changes nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

use super::Engine;
use crate::baseline::seal::BaselineSeal;
use crate::baseline::{self, BaselineCache};
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable;
use crate::error::Result;

/// So many files are looked at for the bytes of a version.
const MAX_SEARCHED_FILES: usize = 1000;

/// A larger file is no baseline.
const MAX_BASELINE_BYTES: u64 = 16 << 20;

/// The form of times for people.
const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S";

/// A baseline file against the last version of it that is known.
#[derive(Clone, Debug)]
pub struct BaselineChange {
    /// The file.
    pub path: PathBuf,
    /// What it holds, or why it cannot be read.
    pub current: Result<Vec<u8>>,
    /// Whose it is and when it changed; none where nothing stands there.
    pub owner: Option<FileOwner>,
    /// Why resets refuse it, if they do.
    pub refusal: Option<String>,
    /// What to do about that.
    pub advice: Option<String>,
    /// What it is compared with; none where no bytes of a version are kept.
    pub reference: Option<KnownVersion>,
    /// The digest in the seal, where the file is another version and the bytes of that
    /// one are not kept.
    pub missing_sealed_version: Option<Digest>,
    /// The agents that have this baseline: their next reset would give it to them.
    pub agents: Vec<String>,
}

/// A version of a baseline whose bytes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownVersion {
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Where they are kept, or the file that begins with them.
    pub path: PathBuf,
    /// Whether it is the one that was sealed; else it is the one pushed last.
    pub is_sealed: bool,
}

/// Whose a file is, and when it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Permissions, with the set-user, set-group and sticky bits.
    pub mode: u32,
    /// When its content was written, as far as nobody set that time.
    pub modified_at: DateTime<FixedOffset>,
    /// When the file changed in any way, which nobody can set.
    pub changed_at: DateTime<FixedOffset>,
}

impl BaselineChange {
    /// Whether the file is the version that it is compared with.
    pub fn is_unchanged(&self) -> bool {
        let known = self.reference.as_ref();
        let file = self.current.as_ref().ok();
        file.zip(known)
            .is_some_and(|(file, known)| *file == *known.bytes)
    }

    /// What there is to know beside the difference, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        // That it is not the sealed version shows by itself.
        let is_shown = self.reference.as_ref().is_some_and(|known| known.is_sealed);
        let refused = self.refusal.as_ref().filter(|_| !is_shown);
        notes.extend(refused.map(|why| format!("resets are BLOCKED: {why}")));
        notes.extend(self.owner.map(|owner| owner.describe()));
        notes.push(match &self.reference {
            Some(known) => known.describe(),
            None => "no version of it is kept to compare it with".to_string(),
        });
        notes.extend(self.missing_sealed_version.map(|sealed| {
            let digest = sealed.short_hex(8);
            format!("no bytes of the sealed version {digest}… are kept")
        }));
        let agents = self.agents.join(", ");
        notes.push(match self.refusal {
            Some(_) => format!("without the seal the next reset would give it to: {agents}"),
            None => format!("the next reset gives it to: {agents}"),
        });
        notes.extend(self.advice.clone());
        notes
    }
}

impl KnownVersion {
    fn describe(&self) -> String {
        let which = match self.is_sealed {
            true => "sealed version",
            false => "last pushed version",
        };
        let digest = self.digest.short_hex(8);
        let name = self.digest.to_string();
        let place = match self.path.file_stem() == Some(name.as_ref()) {
            true => String::new(),
            false => format!(", which {} begins with", self.path.display()),
        };
        format!("compared with the {which} {digest}…{place}")
    }
}

impl FileOwner {
    fn read(path: &Path, like: DateTime<FixedOffset>) -> Option<FileOwner> {
        let meta = fs::symlink_metadata(path).ok()?;
        let time = |seconds, nanoseconds: i64| {
            let time = DateTime::from_timestamp(seconds, nanoseconds.try_into().unwrap_or(0));
            Some(time?.with_timezone(like.offset()))
        };
        Some(FileOwner {
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            modified_at: time(meta.mtime(), meta.mtime_nsec())?,
            changed_at: time(meta.ctime(), meta.ctime_nsec())?,
        })
    }

    fn describe(&self) -> String {
        let (uid, gid, mode) = (self.uid, self.gid, self.mode);
        let [written, changed] =
            [self.modified_at, self.changed_at].map(|it| it.format(TIME_FORMAT));
        let mut text = format!("file of uid {uid}, gid {gid}, mode {mode:04o}, written {written}");
        // Who sets the one back cannot set the other.
        if (self.changed_at - self.modified_at).num_seconds().abs() > 1 {
            text.push_str(&format!(", changed {changed}"));
        }
        text
    }
}

impl Engine {
    /// The baseline file of an agent against the version that was sealed, where its
    /// bytes are kept, else against the one that was pushed last. Reads the file again.
    pub fn compare_baseline(&self, agent: &Agent) -> BaselineChange {
        let general = &self.config().general;
        let path = general.baseline_dir.join(&agent.baseline);
        let refusal = BaselineCache::new(self.config()).load(agent).err();
        let file = baseline::inspect_baseline(self.config(), agent).map(|found| found.bytes);
        let current = file.as_ref().ok().map(|bytes| Digest::of(bytes));
        let seal = BaselineSeal::read(&general.baseline_dir).ok().flatten();
        let sealed = seal.and_then(|seal| seal.expected_digest(&agent.baseline));
        // What is sealed as it stands there is measured by what was pushed.
        let differs = sealed.filter(|sealed| Some(*sealed) != current);
        let users = self.config().agents.iter();
        let users = users.filter(|it| it.baseline == agent.baseline);
        let users: Vec<&Agent> = users.collect();
        let known = differs.and_then(|sealed| {
            let kept = self.stored_version(sealed, true);
            let copy = || self.find_sealed_in_baselines(sealed);
            let kept = kept.or_else(copy);
            kept.or_else(|| {
                users
                    .iter()
                    .find_map(|it| self.find_sealed_in_memory(it, sealed))
            })
        });
        let known = known.or_else(|| {
            let others = users.iter().filter(|it| it.name != agent.name);
            let mut names = std::iter::once(&agent).chain(others).map(|it| &it.name);
            names.find_map(|name| {
                let pushed = self.ledger_history(name).ok()?.pushed_versions;
                self.stored_version(*pushed.first()?, false)
            })
        });
        let is_known = known.as_ref().is_some_and(|known| known.is_sealed);
        BaselineChange {
            owner: FileOwner::read(&path, self.clock().now()),
            current: file,
            refusal: refusal.as_ref().map(|it| it.error().to_string()),
            // The first of several leads to what is shown here.
            advice: refusal.and_then(|it| it.error().hints().last().cloned()),
            missing_sealed_version: differs.filter(|_| !is_known),
            reference: known,
            agents: users.into_iter().map(|it| it.name.clone()).collect(),
            path,
        }
    }

    /// The sealed version under another name in the directory of the baselines.
    fn find_sealed_in_baselines(&self, sealed: Digest) -> Option<KnownVersion> {
        let files = fs::read_dir(&self.config().general.baseline_dir).ok()?;
        let mut paths = files
            .take(MAX_SEARCHED_FILES)
            .filter_map(|file| Some(file.ok()?.path()));
        paths.find_map(|path| {
            let bytes = durable::read_regular_file(&path, MAX_BASELINE_BYTES).ok()?;
            (Digest::of(&bytes) == sealed).then(|| KnownVersion {
                digest: sealed,
                bytes: Arc::new(bytes),
                path,
                is_sealed: true,
            })
        })
    }

    /// The sealed version at the beginning of an agent's memory, on this machine.
    fn find_sealed_in_memory(&self, agent: &Agent, sealed: Digest) -> Option<KnownVersion> {
        if agent.location.host().is_some() {
            return None;
        }
        let mut bytes = self.read_detail(agent).memory_prefix;
        bytes.truncate(sealed.matching_prefix_length(&bytes)?);
        Some(KnownVersion {
            digest: sealed,
            bytes: Arc::new(bytes),
            path: agent.location.memory().to_path_buf(),
            is_sealed: true,
        })
    }

    fn stored_version(&self, digest: Digest, is_sealed: bool) -> Option<KnownVersion> {
        let bytes = self.baseline_versions.read_version(digest).ok()?;
        Some(KnownVersion {
            path: self.baseline_versions.version_path(digest),
            digest,
            bytes,
            is_sealed,
        })
    }
}
