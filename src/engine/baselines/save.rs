//! Saves of baseline files: atomic, with owner and mode kept, the version from before stored first,
//! and a record in the ledger. Editors, restores and the guard save in this way.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, lstat};
use rustix::io::Errno;

use super::saved_versions::MERGED_TEXT_NOTE;
use crate::archive::RootPin;
use crate::base::digest::Digest;
use crate::base::durable::{self, ExpectedFile, LostAttributes};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::baseline::seal::BaselineSeal;
use crate::baseline::{self, MAX_BASELINE_BYTES};
use crate::engine::baselines::BaselineFiles;
use crate::engine::baselines::file::{BaselineFile, read_optional};
use crate::engine::baselines::replacement::{ChangeRecord, NewContent, ReplacedFile};
use crate::store::file::lock::ArchiveLock;
use crate::store::file::semaphore::Permit;
use crate::store::record::{FileChange, FileState, Operation, Outcome, RunEvent, new_run_id};
use crate::store::run_log;

/// Whose lines a saved text holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOrigin {
    /// The operator's, besides those of the file that it replaces.
    Operator,
    /// Also those of another program that had changed the file: a seal accepts it only by name.
    Merged,
}

/// Marks that an operator edits baselines: the guard restores nothing until this is dropped.
#[derive(Debug)]
pub struct BaselineEdit {
    _permit: Permit,
}

/// The right to change baselines and their seal. Other processes take what it changes for one change:
/// until this is dropped, or its process ends, they wait before they believe that a file does not
/// match its seal.
pub struct BaselineWriter<'e> {
    pub(in crate::engine) files: &'e BaselineFiles,
    _seal_lock: Permit,
    _edit: BaselineEdit,
    _root_pin: RootPin,
}

/// A baseline that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedBaseline {
    /// Id of the record's run.
    pub run: String,
    /// The file.
    pub path: PathBuf,
    /// Digest of the bytes before; none if there was no file, or none that could be read.
    pub before: Option<Digest>,
    /// Digest of the saved bytes.
    pub digest: Digest,
    /// What stood at the path, under another name beside it, if it was not a file of at most 16 MiB,
    /// a program keeps it open for writing, or it cannot be removed.
    pub kept_aside: Option<PathBuf>,
    /// What the file no longer has of the one before.
    pub lost: LostAttributes,
}

impl SavedBaseline {
    /// Says what is not as it was before, in one sentence each, without the name of the file.
    pub fn remarks(&self) -> Vec<String> {
        let aside = self.kept_aside.as_ref();
        let aside = aside.map(|path| format!("what stood there before is now {}", path.display()));
        aside.into_iter().chain(self.lost.describe()).collect()
    }
}

/// Why a baseline is saved.
pub(in crate::engine) struct SaveCause {
    pub operation: Operation,
    /// Note of the record.
    pub note: Option<String>,
    /// What the operator saw at the path.
    pub expected: ExpectedFile,
}

impl BaselineFiles {
    /// Marks that an operator edits baselines, until the result is dropped.
    ///
    /// # Errors
    /// The archive cannot be written, or the guard is at work for longer than a minute.
    pub fn begin_baseline_edit(&self) -> Result<BaselineEdit> {
        let permit =
            ArchiveLock::BaselineEdits.acquire(self.context.archive(), self.context.clock())?;
        Ok(BaselineEdit { _permit: permit })
    }

    /// Begins a change of baselines and their seal.
    ///
    /// # Errors
    /// As [`BaselineFiles::begin_baseline_edit`]; another process changes them for longer than a minute.
    pub fn begin_baseline_change(&self) -> Result<BaselineWriter<'_>> {
        let root_pin = self.context.archive().pin_root();
        let edit = self.begin_baseline_edit()?;
        Ok(BaselineWriter {
            files: self,
            _seal_lock: ArchiveLock::Seal.acquire(self.context.archive(), self.context.clock())?,
            _edit: edit,
            _root_pin: root_pin,
        })
    }

    /// Saves an edited baseline. `expected` is the digest of the file when the edit began; none if
    /// there was no file.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the file has changed since; otherwise the system's error. The file
    /// is then unchanged.
    pub fn save_baseline(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
    ) -> Result<SavedBaseline> {
        let writer = self.begin_baseline_change()?;
        writer.save(name, bytes, expected, TextOrigin::Operator)
    }

    /// Path of a baseline file.
    pub(in crate::engine) fn baseline_file_path(&self, name: &str) -> PathBuf {
        self.context.config().general.baseline_dir.join(name)
    }

    /// Replaces a baseline file. The caller holds the lock of the seal.
    pub(in crate::engine) fn replace_baseline(
        &self,
        name: &str,
        bytes: &[u8],
        cause: SaveCause,
    ) -> Result<SavedBaseline> {
        // A broken ledger could not record it.
        self.context.ledger().head()?;
        let path = self.baseline_file_path(name);
        self.recover_replacements()?;
        let before = read_state(&path)?;
        let sealed = match cause.operation {
            // A seal that cannot be read vouches for nothing.
            Operation::Save => self.baselines.accepted_seal().unwrap_or_default().seal,
            _ => BaselineSeal::default(),
        };
        let digest = self.context.baseline_versions().store(bytes)?;
        let run = new_run_id();
        let event = RunEvent {
            file: Some(name.to_string()),
            change: FileChange {
                before: before.clone(),
                after: Some(FileState::of(bytes)),
                ..FileChange::default()
            },
            baseline: Some(digest),
            sealed_version: sealed.expected_digest(name),
            note: cause.note,
            ..self.baseline_event(&run, cause.operation)
        };
        let mut record = ChangeRecord {
            events: vec![event],
            run: run.clone(),
            lines: Vec::new(),
        };
        let expected = cause.expected;
        let new = NewContent {
            name,
            bytes,
            expected,
        };
        let change = self.replace_files(&[new], &record)?;
        let replaced = change.files.first();
        // A program may have written to it since it was read.
        let before = replaced.and_then(ReplacedFile::stored).or(before);
        let lost = replaced.map(|it| it.lost).unwrap_or_default();
        let kept_aside = replaced.and_then(ReplacedFile::kept_aside);
        let kept_aside = kept_aside.map(Path::to_path_buf);
        let verified = verify_saved(&path, digest);
        let mut saved = SavedBaseline {
            run,
            path,
            before: before.as_ref().and_then(FileState::digest),
            digest,
            kept_aside,
            lost,
        };
        for event in &mut record.events {
            event.change.before = before.clone();
            saved.remarks().iter().for_each(|note| event.add_note(note));
            match &verified {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    event.outcome = Outcome::Failed;
                    event.change.after = None;
                }
                Err(error) => event.add_note(error.message()),
            }
        }
        record
            .lines
            .push(describe_save(cause.operation, &saved, name));
        let unremoved = change.complete(record)?;
        verified?;
        saved.kept_aside = saved.kept_aside.or(unremoved.into_iter().next());
        Ok(saved)
    }

    /// Creates the event of a run that concerns a baseline file.
    pub(in crate::engine) fn baseline_event(&self, run: &str, operation: Operation) -> RunEvent {
        RunEvent::for_archive(run, operation, self.context.trigger(), self.context.user())
    }

    /// Records a run that concerns baseline files, in the ledger and in `reset.log`.
    pub(in crate::engine) fn record_baseline_run(
        &self,
        run: &str,
        events: Vec<RunEvent>,
        lines: Vec<String>,
    ) -> Result<()> {
        let counts = match events.len() {
            1 => "1 baseline".to_string(),
            count => format!("{count} baselines"),
        };
        self.context.ledger().append(events)?;
        let end = run_log::format_run_end(run, &counts, self.context.ledger().durable_head());
        let now = self.context.clock().now();
        let lines: Vec<String> = lines
            .into_iter()
            .chain([end])
            .map(|line| run_log::format_line(now, &line))
            .collect();
        run_log::append_lines(self.context.archive(), &lines)
    }

    /// Recovers an interrupted change of baselines, and removes what killed processes have left of the
    /// program's own files.
    ///
    /// # Errors
    /// What a change left cannot be stored or recorded.
    pub fn recover_baseline_changes(&self) -> Result<()> {
        if !self.has_interrupted_change()? {
            return Ok(());
        }
        let _lock = ArchiveLock::Seal.acquire(self.context.archive(), self.context.clock())?;
        self.recover_replacements().map(drop)
    }

    /// Recovers interrupted changes as [`BaselineFiles::recover_baseline_changes`] does. Returns whether one of
    /// them had replaced the file of this baseline.
    ///
    /// # Errors
    /// As [`BaselineFiles::recover_baseline_changes`], or the ledger cannot be read.
    pub fn recover_interrupted_save(&self, name: &str) -> Result<bool> {
        if !self.has_interrupted_change()? {
            return Ok(false);
        }
        let _lock = ArchiveLock::Seal.acquire(self.context.archive(), self.context.clock())?;
        // A change in progress has ended by now.
        let is_interrupted = self.was_replacement_interrupted(name)?;
        self.recover_replacements()?;
        Ok(is_interrupted)
    }
}

impl BaselineWriter<'_> {
    /// Saves an edited baseline as [`BaselineFiles::save_baseline`] does.
    ///
    /// # Errors
    /// As [`BaselineFiles::save_baseline`].
    pub fn save(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
        origin: TextOrigin,
    ) -> Result<SavedBaseline> {
        let path = self.files.baseline_file_path(name);
        let found = read_optional(&path)?.map(|bytes| Digest::of(&bytes));
        if found != expected {
            let message = format!("{} has changed since it was opened", path.display());
            let diff = "compare it with your text before you save again";
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(diff));
        }
        let cause = SaveCause {
            operation: Operation::Save,
            note: (origin == TextOrigin::Merged).then(|| MERGED_TEXT_NOTE.to_string()),
            expected: expected.map_or(ExpectedFile::Absent, ExpectedFile::Content),
        };
        self.files.replace_baseline(name, bytes, cause)
    }

    /// Saves an edited baseline over an object that cannot be read as a file, which is kept beside
    /// it. `seen` is the reason why it cannot be read, as the operator saw it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another object has its place by now, or the system's error. Nothing
    /// is changed then.
    pub fn save_over_unreadable(
        &self,
        name: &str,
        bytes: &[u8],
        seen: &str,
    ) -> Result<SavedBaseline> {
        let path = self.files.baseline_file_path(name);
        if BaselineFile::read(&path) != BaselineFile::Unreadable(seen.to_string()) {
            let message = format!("{} has changed since it was shown", path.display());
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("look at it again before you save"));
        }
        let cause = SaveCause {
            operation: Operation::Save,
            note: None,
            expected: ExpectedFile::Any,
        };
        self.files.replace_baseline(name, bytes, cause)
    }

    /// Saves an edited baseline as [`BaselineWriter::save`] does, though its file is immutable: the
    /// flag is cleared, and set again on what is there afterwards. A kill in between leaves the file
    /// without its flag.
    ///
    /// # Errors
    /// As [`BaselineFiles::save_baseline`], or the flag cannot be changed.
    pub fn save_immutable(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
        origin: TextOrigin,
    ) -> Result<SavedBaseline> {
        let flag = durable::clear_immutable(&self.files.baseline_file_path(name))?;
        let saved = self.save(name, bytes, expected, origin)?;
        flag.set_again()?;
        Ok(saved)
    }
}

/// Checks that a saved file has the content that was saved.
///
/// # Errors
/// [`ErrorKind::Conflict`] if another program has changed it by now; otherwise the system's error.
fn verify_saved(path: &Path, saved: Digest) -> Result<()> {
    let found = read_optional(path).map_err(|error| {
        error.with_context(format!("{} was saved, but not verified", path.display()))
    })?;
    if found.as_deref().map(Digest::of) == Some(saved) {
        return Ok(());
    }
    let message = format!("{} was changed right after it was saved", path.display());
    Err(Error::new(ErrorKind::Conflict, message))
}

/// Returns the line of `reset.log` about a baseline that was saved.
fn describe_save(operation: Operation, saved: &SavedBaseline, name: &str) -> String {
    let old = saved.before.map(|old| old.short_hex(8));
    format!(
        "{} the baseline {name}: {} -> {}",
        match operation {
            Operation::Save => "Saved",
            Operation::Guard => "Guard restored",
            _ => "Restored",
        },
        old.as_deref().unwrap_or("no file"),
        saved.digest.short_hex(8)
    )
}

/// Returns the state of the path of a baseline. That of anything else than a regular file of at most
/// 16 MiB that can be read is unknown.
fn read_state(path: &Path) -> Result<Option<FileState>> {
    let stat = match lstat(path) {
        Err(Errno::NOENT) => return Ok(Some(FileState::Absent)),
        stat => stat.with_path("stat", path)?,
    };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_size as u64 > MAX_BASELINE_BYTES {
        return Ok(None);
    }
    // A program may keep it from being read: it is displaced all the same.
    Ok(baseline::read_file(path)
        .ok()
        .map(|bytes| FileState::of(&bytes)))
}
