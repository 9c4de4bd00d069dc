//! Drafts: the text of a baseline that is being edited and not saved yet, so that a lost terminal
//! loses no typing. Each edit has a draft of its own, which only its operator can read. The process
//! that edits holds a lock on its draft; a draft without one was left, and is offered to the next
//! edit. No process changes or removes the draft of another one that still runs.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use rustix::fs::Mode;
use rustix::process::{geteuid, getpid};
use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::sys;
use crate::baseline::MAX_BASELINE_BYTES;
use crate::engine::baselines::BaselineEdits;
use crate::store::file::lock::is_still_at;
use crate::store::record::new_run_id;

/// Bytes that no draft reaches: its first line, and a text.
const MAX_DRAFT_BYTES: u64 = MAX_BASELINE_BYTES + (1 << 16);

/// Attempts to open a draft while its edit replaces it.
const MAX_OPEN_ATTEMPTS: usize = 100;

/// The text of a baseline that an edit left without a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineDraft {
    /// Its file.
    pub id: DraftId,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Digest of the file when the edit began.
    pub base: Digest,
    /// Content of the file when the edit began; empty if that is not known any more.
    pub base_bytes: Vec<u8>,
    /// When the draft was written.
    pub time: DateTime<FixedOffset>,
}

/// A draft's file, and what it held when it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftId {
    /// Name in the directory of the drafts.
    pub file_name: String,
    /// Digest of the file.
    pub digest: Digest,
}

/// The drafts that an operator has of a baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDrafts {
    /// The newest one that was left.
    pub newest: Option<BaselineDraft>,
    /// Number of the other ones that were left.
    pub older_count: usize,
    /// The processes other than this one that edit the baseline now and have not saved.
    pub editing_processes: Vec<u32>,
    /// Why a draft cannot be read.
    pub problem: Option<Error>,
}

/// The draft of an edit of this process. Others take it for one that was left once this is dropped.
#[derive(Debug)]
pub struct DraftFile {
    path: PathBuf,
    baseline: String,
    /// Holds the lock, once the draft is written.
    file: Option<Arc<File>>,
}

/// First line of a draft's file; the text follows.
#[derive(Serialize, Deserialize)]
struct DraftHeader {
    baseline: String,
    base: Digest,
    time: DateTime<FixedOffset>,
    process: u32,
}

impl DraftFile {
    /// Returns the name of the baseline.
    pub fn baseline(&self) -> &str {
        &self.baseline
    }

    /// Removes the draft, if it was written.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self) -> Result<()> {
        match &self.file {
            Some(_) => remove_if_present(&self.path),
            None => Ok(()),
        }
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // A program that this process is just starting has a copy of the file.
        if let Some(file) = &self.file {
            sys::unlock(file.as_fd());
        }
    }
}

impl BaselineEdits {
    /// Returns the draft of a new edit, which is not written yet.
    pub fn new_baseline_draft(&self, name: &str) -> DraftFile {
        let file = format!("{}-{}", draft_name(name), new_run_id());
        DraftFile {
            path: self.draft_directory().join(file),
            baseline: name.to_string(),
            file: None,
        }
    }

    /// Whether a draft is in the archive of this edits.
    pub fn owns_baseline_draft(&self, draft: &DraftFile) -> bool {
        draft.path.starts_with(self.draft_directory())
    }

    /// Writes the draft of an edit; it is on the disk when this returns. `base` is the content of the
    /// file when the edit began.
    ///
    /// # Errors
    /// The system's error; the draft is then as it was.
    pub fn write_baseline_draft(
        &self,
        draft: &mut DraftFile,
        base: &[u8],
        bytes: &[u8],
    ) -> Result<()> {
        let header = DraftHeader {
            baseline: draft.baseline.clone(),
            base: self.context.baseline_versions().store(base)?,
            time: self.context.clock().now(),
            process: own_process(),
        };
        let mut text = serde_json::to_vec(&header).map_err(|error| {
            let message = format!("cannot serialize the draft of {}: {error}", draft.baseline);
            Error::new(ErrorKind::Internal, message)
        })?;
        text.push(b'\n');
        text.extend(bytes);
        self.context.controller().create_draft_directory()?;
        let mode = Mode::RUSR | Mode::WUSR;
        draft.file = Some(durable::replace_locked_file(&draft.path, &text, mode)?);
        Ok(())
    }

    /// Finds the operator's drafts of a baseline.
    pub fn find_baseline_drafts(&self, name: &str) -> FoundDrafts {
        let mut found = FoundDrafts::default();
        let mut left = Vec::new();
        let files = self.draft_files(name).unwrap_or_else(|error| {
            found.problem = Some(error);
            Vec::new()
        });
        for file in files {
            match self.read_draft(name, &file) {
                Ok(None) => {}
                Ok(Some((_, Some(process)))) if process == own_process() => {}
                Ok(Some((_, Some(process)))) => found.editing_processes.push(process),
                Ok(Some((draft, None))) => left.push(draft),
                Err(error) => found.problem = Some(error),
            }
        }
        left.sort_by_key(|draft| draft.time);
        found.newest = left.pop();
        found.older_count = left.len();
        found
    }

    /// Returns the names of the baselines of which the operator left a text, with drafts that can be
    /// read and are not what the file holds by now.
    ///
    /// # Errors
    /// The directory of the drafts cannot be listed.
    pub fn baselines_with_left_drafts(&self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for file in self.all_draft_files()? {
            let header = read_header(&self.draft_directory().join(&file));
            let Some(DraftHeader { baseline, .. }) = header else {
                continue;
            };
            if let Ok(Some((draft, None))) = self.read_draft(&baseline, &file)
                && self
                    .catalog
                    .read_baseline(&baseline)
                    .is_ok_and(|bytes| bytes != draft.bytes)
            {
                names.insert(baseline);
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Returns the versions that the drafts of all operators begin with.
    ///
    /// # Errors
    /// A draft cannot be read, or is damaged.
    pub(in crate::engine) fn draft_bases(&self) -> Result<HashSet<Digest>> {
        let mut bases = HashSet::new();
        for file in self.all_draft_files()? {
            let path = self.draft_directory().join(&file);
            // A draft has a random name while it is written; its version is stored before.
            if durable::is_random_name(&file) {
                continue;
            }
            let Some((file, _)) = open_draft(&path)? else {
                continue;
            };
            let header = parse_header(&file).with_path("read", &path)?;
            let header = header.ok_or_else(|| damaged_draft_error(&path))?;
            bases.insert(header.base);
        }
        Ok(bases)
    }

    /// Removes a draft that was left, unless an edit of another process has it by now.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove_left_draft(&self, id: &DraftId) -> Result<()> {
        let path = self.draft_directory().join(&id.file_name);
        let mut options = OpenOptions::new();
        let file = match durable::open_own_file(&path, options.read(true).write(true)) {
            Err(error) if durable::is_absent(&error) => return Ok(()),
            file => file.with_path("remove", &path)?,
        };
        let is_left = sys::try_lock(file.as_fd()).with_path("lock", &path)?;
        let mut text = Vec::new();
        (&file)
            .take(MAX_DRAFT_BYTES)
            .read_to_end(&mut text)
            .with_path("read", &path)?;
        if is_left && Digest::of(&text) == id.digest {
            remove_if_present(&path)?;
        }
        Ok(())
    }

    /// Lists the files of the operator's drafts of a baseline.
    fn draft_files(&self, name: &str) -> Result<Vec<String>> {
        let prefix = format!("{}-", draft_name(name));
        let mut files = self.all_draft_files()?;
        files.retain(|file| file.starts_with(&prefix));
        Ok(files)
    }

    /// Lists the files of all drafts.
    fn all_draft_files(&self) -> Result<Vec<String>> {
        let directory = self.draft_directory();
        let entries = match fs::read_dir(&directory) {
            Err(error) if durable::is_absent(&error) => return Ok(Vec::new()),
            entries => entries.with_path("list", &directory)?,
        };
        let names = entries.map(|entry| entry.map(|it| it.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>();
        let names = names.with_path("list", &directory)?;
        let readable = names.iter().filter_map(|it| OsStr::to_str(it));
        Ok(readable.map(str::to_string).collect())
    }

    /// Reads a draft, if it still exists, and the process that edits it, if there is one.
    fn read_draft(
        &self,
        name: &str,
        file_name: &str,
    ) -> Result<Option<(BaselineDraft, Option<u32>)>> {
        let path = self.draft_directory().join(file_name);
        let Some((mut file, is_edited)) = open_draft(&path)? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        file.by_ref()
            .take(MAX_DRAFT_BYTES)
            .read_to_end(&mut text)
            .with_path("read", &path)?;
        let damaged = || damaged_draft_error(&path);
        if text.len() as u64 == MAX_DRAFT_BYTES {
            return Err(damaged());
        }
        let end = text.iter().position(|byte| *byte == b'\n');
        let (header, rest) = text.split_at(end.ok_or_else(damaged)?);
        let header: DraftHeader = serde_json::from_slice(header).map_err(|_| damaged())?;
        if header.baseline != name {
            return Err(damaged());
        }
        let draft = BaselineDraft {
            id: DraftId {
                file_name: file_name.to_string(),
                digest: Digest::of(&text),
            },
            bytes: rest.get(1..).unwrap_or_default().to_vec(),
            base_bytes: self
                .context
                .baseline_versions()
                .read_version(header.base)
                .map(|bytes| bytes.to_vec())
                .unwrap_or_default(),
            base: header.base,
            time: self.context.clock().zone().at(header.time),
        };
        Ok(Some((draft, is_edited.then_some(header.process))))
    }

    fn draft_directory(&self) -> PathBuf {
        self.context.controller().draft_directory()
    }
}

/// Returns how the names of the operator's drafts of a baseline begin. Names of baselines may hold
/// slashes, so their digest stands for them.
fn draft_name(baseline: &str) -> String {
    let baseline = Digest::of(baseline.as_bytes()).short_hex(16);
    format!("{baseline}-{}", geteuid().as_raw())
}

/// Reads the first line of a file that may be one of the operator's drafts.
fn read_header(path: &Path) -> Option<DraftHeader> {
    let (file, _) = open_draft(path).ok()??;
    let is_own = file.metadata().ok()?.uid() == geteuid().as_raw();
    parse_header(&file).ok()?.filter(|_| is_own)
}

/// Parses the first line of a draft; none if that is not a header.
fn parse_header(file: &File) -> io::Result<Option<DraftHeader>> {
    let mut line = Vec::new();
    io::BufReader::new(file.take(1 << 16)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line).ok())
}

fn damaged_draft_error(path: &Path) -> Error {
    let message = format!("the draft {} is damaged", path.display());
    Error::new(ErrorKind::Integrity, message)
        .with_hint("look at its text, which begins in its second line, and remove it")
}

/// Opens a draft, if it still exists. Returns, too, whether an edit has it.
fn open_draft(path: &Path) -> Result<Option<(File, bool)>> {
    for _ in 0..MAX_OPEN_ATTEMPTS {
        let file = match durable::open_own_file(path, OpenOptions::new().read(true)) {
            Err(error) if durable::is_absent(&error) => return Ok(None),
            file => file.with_path("read", path)?,
        };
        let conflict = sys::lock_conflict(file.as_fd()).with_path("read the lock of", path)?;
        if conflict.is_some() || is_still_at(&file, path) {
            return Ok(Some((file, conflict.is_some())));
        }
        // An edit has replaced the file since it was opened, and released the lock of this one.
    }
    let message = format!("cannot read {}: it changes all the time", path.display());
    Err(Error::new(ErrorKind::Busy, message))
}

fn own_process() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

fn remove_if_present(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if durable::is_absent(&error) => Ok(()),
        removed => removed.with_path("remove", path),
    }
}
