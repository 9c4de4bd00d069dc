//! The baseline store: what is pushed to agents, checked before it is used, and
//! every version of it that ever was.

pub mod seal;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::archive::{Archive, OWN};
use crate::config::{Agent, Config, RequireSeal};
use crate::digest::Digest;
use crate::durable::{self, NewFile, Unsynced, Walk};
use crate::engine::memory::Baseline;
use crate::error::{Error, Kind, PathContext, Result};

/// A baseline is read into memory whole; no sensible one comes near this.
const MAX_SIZE: u64 = 16 << 20;

/// How many baselines or versions are held in memory, which many agents may
/// share.
const KNOWN: usize = 256;

/// Why a baseline must not be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Missing, too small, or not a plain readable file.
    Unusable(Error),
    /// It does not match the seal, or a seal that is required is not there.
    Tampered(Error),
}

impl Refusal {
    /// The error behind it.
    pub fn error(&self) -> &Error {
        match self {
            Refusal::Unusable(error) | Refusal::Tampered(error) => error,
        }
    }
}

/// The baselines of a fleet, each read once: as long as a plan is made, or for a
/// run, everybody gets the same, and agents that share one cost it once.
pub struct BaselineCache<'c> {
    config: &'c Config,
    seal: OnceCell<Result<Option<seal::Seal>>>,
    loaded: HashMap<(&'c str, &'c str), Result<Arc<Baseline>, Refusal>>,
}

impl<'c> BaselineCache<'c> {
    /// Nothing is read yet.
    pub fn new(config: &'c Config) -> BaselineCache<'c> {
        BaselineCache {
            config,
            seal: OnceCell::new(),
            loaded: HashMap::new(),
        }
    }

    /// An agent's baseline, of which was checked that it may be pushed: its size,
    /// and the seal as the configuration requires it. The bytes that were checked
    /// are the bytes returned.
    ///
    /// # Errors
    /// Why it must not be pushed.
    pub fn load(&mut self, agent: &'c Agent) -> Result<Arc<Baseline>, Refusal> {
        let key = (agent.baseline.as_str(), agent.separator.as_str());
        if let Some(loaded) = self.loaded.get(&key) {
            return loaded.clone();
        }
        if self.loaded.len() >= KNOWN {
            self.loaded.clear();
        }
        let loaded = self.read(agent).map(Arc::new);
        self.loaded.insert(key, loaded.clone());
        loaded
    }

    fn read(&self, agent: &Agent) -> Result<Baseline, Refusal> {
        let path = self.config.general.baseline_dir.join(&agent.baseline);
        let bytes = read(&path).map_err(Refusal::Unusable)?;
        let baseline = Baseline::new(bytes, &agent.separator);
        self.check_seal(agent, &baseline)
            .map_err(Refusal::Tampered)?;
        let size = baseline.bytes().len() as u64;
        let least = self.config.general.min_baseline_size;
        if size < least {
            let message = format!(
                "the baseline {} has only {size} bytes, min_baseline_size is {least}",
                path.display(),
            );
            return Err(Refusal::Unusable(Error::new(Kind::Conflict, message).hint(
                "it is probably damaged; restore it, or lower min_baseline_size",
            )));
        }
        Ok(baseline)
    }

    fn check_seal(&self, agent: &Agent, baseline: &Baseline) -> Result<()> {
        let general = &self.config.general;
        match general.require_seal {
            RequireSeal::Never => return Ok(()),
            RequireSeal::Signed => {
                let message = "require_seal=signed: this version cannot check signatures yet, so it \
                               pushes no baseline";
                return Err(Error::new(Kind::Integrity, message).hint("use require_seal=always"));
            }
            RequireSeal::IfPresent | RequireSeal::Always => {}
        }
        let seal = self
            .seal
            .get_or_init(|| seal::Seal::read(&general.baseline_dir));
        let Some(seal) = seal.as_ref().map_err(Clone::clone)? else {
            return match general.require_seal {
                RequireSeal::Always => {
                    let directory = general.baseline_dir.display();
                    let message = format!(
                        "require_seal=always, and there is no {} in {directory}",
                        seal::FILE
                    );
                    Err(Error::new(Kind::Integrity, message).hint(seal::how_to_seal(general)))
                }
                _ => Ok(()),
            };
        };
        match seal.expected(&agent.baseline) {
            None => {
                let message = format!("the baseline {} is not listed in the seal", agent.baseline);
                Err(Error::new(Kind::Integrity, message)
                    .hint(self.comparison_hint(agent))
                    .hint(seal::reseal_hint(&general.baseline_dir)))
            }
            Some(digest) if digest != baseline.digest() => {
                let message = format!(
                    "baseline differs from the seal: {} is {}…, sealed was {}…",
                    agent.baseline,
                    baseline.digest().short(8),
                    digest.short(8)
                );
                Err(Error::new(Kind::Integrity, message)
                    .hint(self.comparison_hint(agent))
                    .hint(seal::reseal_hint(&general.baseline_dir)))
            }
            Some(_) => Ok(()),
        }
    }

    /// How to see what of a baseline is not as it was sealed. A `diff` of another program
    /// would let out on the terminal what somebody may have written to act on it.
    fn comparison_hint(&self, agent: &Agent) -> String {
        let diff = format!("diff --baseline {}", agent.name);
        let diff = self.config.invocation.line(&diff);
        format!("look at what changed before you accept it: {diff}")
    }
}

/// A baseline as it stands there, whether or not it may be pushed: what somebody who
/// edits it should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// Whether a seal is there or required, which an edit breaks.
    pub sealed: bool,
    /// How it differs from the seal already, if it does.
    pub tampered: Option<String>,
    /// What else is wrong with it, in sentences, the worst first.
    pub problems: Vec<String>,
}

/// Looks at the baseline of an agent.
///
/// # Errors
/// One that is missing, or no plain readable file.
pub fn inspect(config: &Config, agent: &Agent) -> Result<Inspected> {
    let general = &config.general;
    let path = general.baseline_dir.join(&agent.baseline);
    let bytes = read(&path)?;
    let baseline = Baseline::new(bytes.clone(), &agent.separator);
    let shelf = BaselineCache::new(config);
    let tampered = shelf.check_seal(agent, &baseline).err();
    let mut problems = Vec::new();
    let (size, least) = (bytes.len() as u64, general.min_baseline_size);
    if size == 0 {
        problems.push("it is empty, so resets refuse it".to_string());
    } else if size < least {
        problems.push(format!(
            "it has only {size} bytes, so resets refuse it (min_baseline_size is {least})"
        ));
    }
    if size > 0 && baseline.cut().is_none() {
        let separator = &agent.separator;
        problems.push(format!(
            "it has no separator line {separator}, so a reset archives the whole memory"
        ));
    }
    let limit = agent.max_memory_size;
    if size > limit {
        problems.push(format!("it has {size} bytes, max_memory_size is {limit}"));
    }
    let required = matches!(
        general.require_seal,
        RequireSeal::Always | RequireSeal::Signed
    );
    let sealed = required || !matches!(shelf.seal.get(), None | Some(Ok(None)));
    Ok(Inspected {
        path,
        bytes,
        sealed,
        tampered: tampered.map(|error| error.to_string()),
        problems,
    })
}

/// Reads a whole file of the operator's, following no link.
fn read(path: &Path) -> Result<Vec<u8>> {
    let unusable = |message: String| Err(Error::new(Kind::Conflict, message));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return unusable(format!("{} is not the path of a file", path.display()));
    };
    let folder = durable::open_folder(parent, Walk::Kernel)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(&folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            let message = format!("the baseline {} is missing", path.display());
            return Err(Error::new(Kind::Conflict, message).hint(
                "write it (who the agent is, its rules, where things are, and the separator), \
                 restore it from your own copy, or correct `baseline` in the config",
            ));
        }
        Err(Errno::LOOP) => {
            return unusable(format!(
                "the baseline {} is a symbolic link",
                path.display()
            ));
        }
        Err(errno) => return Err(errno).path("read", path),
    };
    let stat = fs::fstat(&file).path("look at", path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return unusable(format!(
            "the baseline {} is not a regular file",
            path.display()
        ));
    }
    let size = (stat.st_size as u64).min(MAX_SIZE) as usize;
    let mut bytes = Vec::with_capacity(size + 1);
    std::fs::File::from(file)
        .take(MAX_SIZE + 1)
        .read_to_end(&mut bytes)
        .path("read", path)?;
    if bytes.len() as u64 > MAX_SIZE {
        return unusable(format!("the baseline {} is over 16 MiB", path.display()));
    }
    Ok(bytes)
}

/// Every baseline version that was ever pushed, by digest, in
/// `<archive_dir>/.shepherd/baselines/`.
pub struct Versions {
    archive: Archive,
    known: Mutex<HashMap<Digest, Arc<Vec<u8>>>>,
}

impl Versions {
    /// The versions kept in `archive`.
    pub fn new(archive: &Archive) -> Versions {
        Versions {
            archive: archive.clone(),
            known: Mutex::default(),
        }
    }

    /// Where a version is kept, if it is.
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.archive.own("baselines").join(format!("{digest}.md"))
    }

    /// Starts to keep a version; none when it is kept already.
    ///
    /// # Errors
    /// What the system answered.
    pub fn draft(&self, baseline: &Baseline) -> Result<Option<Draft>> {
        let digest = baseline.digest();
        if self.is_kept(digest, baseline.bytes()) {
            return Ok(None);
        }
        let path = self.archive.own("baselines");
        let folder = Arc::new(self.archive.folder(&Path::new(OWN).join("baselines"))?);
        let mut file = NewFile::create(&folder, &path, self.archive.file_mode())?;
        self.archive.dress_own(file.file(), &path)?;
        file.write(baseline.bytes())?;
        let bytes = Arc::new(baseline.bytes().to_vec());
        Ok(Some(Draft {
            digest,
            bytes,
            file,
        }))
    }

    /// Whether a version is on the disk byte for byte. The length alone tells nothing
    /// of a copy that a power cut or the disk has damaged, nor does what this process
    /// read earlier.
    fn is_kept(&self, digest: Digest, bytes: &[u8]) -> bool {
        let path = self.path(digest);
        let Ok(file) = durable::open_own(&path, OpenOptions::new().read(true)) else {
            return false;
        };
        let mut kept = Vec::with_capacity(bytes.len() + 1);
        let read = file.take(bytes.len() as u64 + 1).read_to_end(&mut kept);
        read.is_ok() && kept == bytes
    }

    /// Gives a version its name; its content is on the disk. The name is after
    /// [`Versions::unsynced`] was synced.
    ///
    /// # Errors
    /// What the system answered.
    pub fn name(&self, mut draft: Draft) -> Result<()> {
        let path = self.path(draft.digest);
        if draft.file.link(path.file_name().unwrap_or_default())? {
            self.remember(draft.digest, draft.bytes);
        } else if !self.is_kept(draft.digest, &draft.bytes) {
            // It is damaged; otherwise another run was quicker.
            self.archive.replace_own(&path, &draft.bytes)?;
        }
        Ok(())
    }

    /// The file of a version that is kept, and its folder, to be synced before
    /// anybody relies on them.
    ///
    /// # Errors
    /// What the system answered.
    pub fn unsynced(&self, version: Digest) -> Result<[Unsynced; 2]> {
        let name = format!("{version}.md");
        self.archive
            .unsynced(&Path::new(OWN).join("baselines").join(name))
    }

    /// The bytes of a version.
    ///
    /// # Errors
    /// When it is not kept, cannot be read, or is not what its name says.
    pub fn get(&self, digest: Digest) -> Result<Arc<Vec<u8>>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&digest) {
            return Ok(Arc::clone(bytes));
        }
        drop(known);
        let path = self.path(digest);
        let bytes = durable::read_own(&path).path("read the baseline version", &path)?;
        if Digest::of(&bytes) != digest {
            let message = format!("the baseline version {} is damaged", path.display());
            return Err(Error::new(Kind::Integrity, message));
        }
        Ok(self.remember(digest, Arc::new(bytes)))
    }

    fn remember(&self, digest: Digest, bytes: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(digest, Arc::clone(&bytes));
        bytes
    }
}

/// A version that is being kept and has no name yet.
pub struct Draft {
    digest: Digest,
    bytes: Arc<Vec<u8>>,
    file: NewFile,
}

impl Draft {
    /// Its content, which has to be on the disk before it gets its name.
    pub fn content(&self) -> Unsynced {
        self.file.content()
    }
}
