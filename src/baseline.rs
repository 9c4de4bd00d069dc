//! The baseline store: loads and checks the baselines that resets push, and stores the versions
//! that were pushed, sealed or replaced.

pub mod seal;
pub mod signatures;
mod writer_wait;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::base::cache_limit::is_full;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::boundary::Baseline;
use crate::config::{Agent, SealRequirement};
use crate::lint;
use signatures::SealVerifier;
pub use writer_wait::WriterWait;

/// Size limit of a baseline, which is read into memory whole.
pub const MAX_BASELINE_BYTES: u64 = 16 << 20;

/// Why a baseline must not be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineRefusal {
    /// Missing, too small, too large, or not a plain readable file.
    Unusable(Error),
    /// It is not in the seal or does not match it, or the seal cannot be read or is missing
    /// although it is required.
    Tampered(Error),
}

impl BaselineRefusal {
    /// Returns the underlying error.
    pub fn error(&self) -> &Error {
        match self {
            BaselineRefusal::Unusable(error) | BaselineRefusal::Tampered(error) => error,
        }
    }
}

/// The baselines of a fleet, each read once per plan or run: agents that share a baseline and its
/// separator get the same version. Beyond 256 baselines, some are read again.
pub struct BaselineCache<'c> {
    verifier: &'c SealVerifier,
    seal: OnceCell<Result<Option<seal::BaselineSeal>>>,
    writer_wait: WriterWait,
    loaded: HashMap<(&'c str, &'c str), Result<Arc<Baseline>, BaselineRefusal>>,
}

impl<'c> BaselineCache<'c> {
    /// Creates an empty cache.
    pub fn new(verifier: &'c SealVerifier) -> BaselineCache<'c> {
        BaselineCache {
            verifier,
            seal: OnceCell::new(),
            writer_wait: WriterWait::default(),
            loaded: HashMap::new(),
        }
    }

    /// Loads an agent's baseline and checks that it may be pushed: its size, and the seal unless
    /// `require_seal` is `never`. The bytes that were checked are the bytes returned.
    ///
    /// # Errors
    /// The reason why it must not be pushed.
    pub fn load(&mut self, agent: &'c Agent) -> Result<Arc<Baseline>, BaselineRefusal> {
        let reset = agent.required_reset().map_err(BaselineRefusal::Unusable)?;
        let name = reset.baseline.as_str();
        let key = (name, reset.separator.as_str());
        if let Some(loaded) = self.loaded.get(&key) {
            return loaded.clone();
        }
        let bytes = |it: &Result<Arc<Baseline>, _>| it.as_ref().map_or(0, |it| it.bytes().len());
        if is_full(self.loaded.values().map(bytes)) {
            self.loaded.clear();
        }
        let loaded = self.read_checked(agent, name).map(Arc::new);
        self.loaded.insert(key, loaded.clone());
        loaded
    }

    fn read_checked(&mut self, agent: &Agent, name: &str) -> Result<Baseline, BaselineRefusal> {
        let path = self.verifier.config().general.baseline_dir.join(name);
        let compared = self.compare_with_seal(agent, name);
        let (baseline, seal_fault) = compared.map_err(|error| match error.kind() {
            ErrorKind::Integrity => BaselineRefusal::Tampered(error),
            _ => BaselineRefusal::Unusable(error),
        })?;
        if let Some(fault) = seal_fault {
            return Err(BaselineRefusal::Tampered(fault));
        }
        let size = baseline.bytes().len() as u64;
        let min_bytes = self.verifier.config().general.min_baseline_size;
        if size < min_bytes {
            let message = format!(
                "the baseline {} has only {size} bytes; min_baseline_size is {min_bytes}",
                path.display(),
            );
            return Err(BaselineRefusal::Unusable(
                Error::new(ErrorKind::Conflict, message)
                    .with_hint("it is probably damaged; restore it, or lower min_baseline_size"),
            ));
        }
        if let Some(fault) = template_fault(baseline.bytes()) {
            let message = format!("the baseline {} {fault}", path.display());
            return Err(BaselineRefusal::Unusable(
                Error::new(ErrorKind::Conflict, message).with_hint(
                    "fill in the placeholders, or delete the sentences around them; \
                     `memory-shepherd lint explain MS305` says what counts as one",
                ),
            ));
        }
        Ok(baseline)
    }

    /// Reads the baseline of an agent, and what is wrong with its seal. While this program changes
    /// the two, they do not fit together.
    fn compare_with_seal(
        &mut self,
        agent: &Agent,
        name: &str,
    ) -> Result<(Baseline, Option<Error>)> {
        let verifier = self.verifier;
        let directory = &verifier.config().general.baseline_dir;
        let path = directory.join(name);
        let mut wait = std::mem::take(&mut self.writer_wait);
        let mut is_first = true;
        let read = || {
            // The seal may have been read before the change.
            if !std::mem::take(&mut is_first) {
                self.seal = OnceCell::new();
            }
            let bytes = read_below(directory, &path)?;
            let baseline = agent.cut_baseline(bytes);
            let fault = self.check_seal(agent, name, &baseline).err();
            Ok((baseline, fault))
        };
        let is_fault = |found: &Result<_>| !matches!(found, Ok((_, None)));
        let found = verifier.read_settled(&mut wait, read, is_fault);
        self.writer_wait = wait;
        found
    }

    fn check_seal(&self, agent: &Agent, name: &str, baseline: &Baseline) -> Result<()> {
        let general = &self.verifier.config().general;
        if general.require_seal == SealRequirement::Never {
            return Ok(());
        }
        let seal = self.seal.get_or_init(|| self.verifier.read_seal());
        let Some(seal) = seal.as_ref().map_err(Clone::clone)? else {
            return match general.require_seal {
                SealRequirement::Always => {
                    let directory = general.baseline_dir.display();
                    let message = format!(
                        "require_seal=always, but {directory} has no {}",
                        seal::SEAL_FILE_NAME
                    );
                    Err(Error::new(ErrorKind::Integrity, message)
                        .with_hint(seal::seal_hint(self.verifier.config())))
                }
                // A missing seal lacks its signature, so the read returns an error.
                SealRequirement::Signed | SealRequirement::IfPresent | SealRequirement::Never => {
                    Ok(())
                }
            };
        };
        match seal.expected_digest(name) {
            None => {
                let message = format!("the baseline {name} is not listed in the seal");
                Err(Error::new(ErrorKind::Integrity, message)
                    .with_hint(seal::unlisted_hint(self.verifier.config(), name)))
            }
            Some(digest) if digest != baseline.digest() => {
                let message = format!(
                    "baseline does not match its seal: {name} has {}…, sealed {}…",
                    baseline.digest().short_hex(8),
                    digest.short_hex(8)
                );
                Err(Error::new(ErrorKind::Integrity, message)
                    .with_hint(self.comparison_hint(agent))
                    .with_hint(seal::reseal_hint(self.verifier.config(), name)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Hint for comparing a baseline with its sealed version. It names this program's `diff`, which
    /// escapes terminal control codes that an attacker may have written into the file.
    fn comparison_hint(&self, agent: &Agent) -> String {
        let diff = format!("diff --baseline {}", agent.name);
        let diff = self.verifier.config().invocation.command_line(&diff);
        format!("review the change before you accept it: {diff}")
    }
}

/// A baseline file as an operator who edits it sees it, whether or not it may be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedBaseline {
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whether resets check it against a seal, which an edit breaks.
    pub is_sealed: bool,
    /// Why resets already refuse it because of the seal, if they do.
    pub seal_mismatch: Option<String>,
    /// Whether resets refuse it for one of its problems.
    pub is_refused: bool,
    /// Problems other than the seal, as sentences, worst first.
    pub problems: Vec<String>,
}

/// Describes the missing separator line of a baseline of `agent`, and its consequences: `no separator
/// line …`.
pub fn describe_missing_separator(agent: &Agent, baseline: &Baseline) -> String {
    let excluded = baseline.excluded_line();
    let excluded = excluded.map_or(String::new(), |line| format!(" ({line})"));
    format!(
        "no separator line {}{excluded}: what an agent adds below its last line is scratch, and a \
         reset archives the whole memory",
        agent.separator()
    )
}

/// Reads and checks the baseline of an agent.
///
/// # Errors
/// The file is missing or not a plain readable file.
pub fn inspect_baseline(verifier: &SealVerifier, agent: &Agent) -> Result<InspectedBaseline> {
    let general = &verifier.config().general;
    let reset = agent.required_reset()?;
    let path = general.baseline_dir.join(&reset.baseline);
    let mut cache = BaselineCache::new(verifier);
    let (baseline, tampered) = cache.compare_with_seal(agent, &reset.baseline)?;
    let bytes = baseline.bytes().to_vec();
    let mut problems = Vec::new();
    let (size, least) = (bytes.len() as u64, general.min_baseline_size);
    if size == 0 {
        problems.push("it is empty, so resets refuse it".to_string());
    } else if size < least {
        problems.push(format!(
            "it has only {size} bytes, so resets refuse it (min_baseline_size is {least})"
        ));
    }
    if let Some(fault) = template_fault(&bytes) {
        problems.push(format!("it {fault}, so resets refuse it"));
    }
    let is_refused = !problems.is_empty();
    if size > 0 && baseline.separator_line().is_none() {
        problems.push(format!(
            "it has {}",
            describe_missing_separator(agent, &baseline)
        ));
    }
    let limit = reset.max_size;
    if size > limit {
        problems.push(format!("it has {size} bytes, max_memory_size is {limit}"));
    }
    let required = matches!(
        general.require_seal,
        SealRequirement::Always | SealRequirement::Signed
    );
    let sealed = required || !matches!(cache.seal.get(), None | Some(Ok(None)));
    Ok(InspectedBaseline {
        path,
        bytes,
        is_sealed: sealed,
        seal_mismatch: tampered.map(|error| error.to_string()),
        is_refused,
        problems,
    })
}

/// Beginning of the reason why a baseline without a file cannot be read.
pub const MISSING_BASELINE_REASON: &str = "the baseline is missing";

/// Maximum number of lines that a message about placeholders names.
const MAX_NAMED_LINES: usize = 10;

/// Says how a baseline is still the template that it was made from, if it is; to be read after its
/// name.
fn template_fault(bytes: &[u8]) -> Option<String> {
    let is_template = bytes == lint::TEMPLATE;
    let lines = lint::unfilled_lines(bytes)?;
    let named = lines.iter().take(MAX_NAMED_LINES);
    let named: Vec<String> = named.map(usize::to_string).collect();
    let more = match lines.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let fault = if is_template {
        "is still the template that this program ships"
    } else {
        "is not filled in"
    };
    let lines = named.join(", ");
    Some(format!("{fault}: placeholders in lines {lines}{more}"))
}

/// Reads a baseline below `directory`. A symlink below it may be an attacker's: the config should not
/// name where it leads.
fn read_below(directory: &Path, path: &Path) -> Result<Vec<u8>> {
    read_file(path).map_err(|error| {
        let opens = |path: &Path| durable::open_directory(path).is_ok();
        if !opens(directory) || path.parent().is_some_and(opens) {
            return error;
        }
        Error::new(error.kind(), error.message())
            .with_hint("below baseline_dir there must be directories, and no symlinks to some")
    })
}

/// Reads a whole file of the operator, without following symlinks.
///
/// # Errors
/// The file is missing or not a plain readable file.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let unusable = |message: String| Err(Error::new(ErrorKind::Conflict, message));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return unusable(format!("{} is not the path of a file", path.display()));
    };
    let directory = durable::open_directory(parent)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            let message = format!("{MISSING_BASELINE_REASON}: {}", path.display());
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                "`baseline restore NAME` puts back its last version, `baseline new NAME` creates \
                 it; or correct `baseline` in the config",
            ));
        }
        Err(Errno::LOOP) => {
            return unusable(format!("the baseline {} is a symlink", path.display()));
        }
        Err(Errno::AGAIN) => {
            let message = format!(
                "the baseline {} cannot be read: another program has a lease on it",
                path.display()
            );
            return Err(Error::new(ErrorKind::Integrity, message)
                .with_hint("run `lslocks` as root to find that program"));
        }
        Err(errno) => return Err(errno).with_path("read", path),
    };
    let stat = fs::fstat(&file).with_path("stat", path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        let found = durable::describe_file_type(kind);
        return unusable(format!("the baseline {} is {found}", path.display()));
    }
    let size = (stat.st_size as u64).min(MAX_BASELINE_BYTES) as usize;
    let mut bytes = Vec::with_capacity(size + 1);
    std::fs::File::from(file)
        .take(MAX_BASELINE_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_path("read", path)?;
    if bytes.len() as u64 > MAX_BASELINE_BYTES {
        return unusable(format!("the baseline {} is over 16 MiB", path.display()));
    }
    Ok(bytes)
}
