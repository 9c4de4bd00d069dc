//! Saves of baseline files: atomic, with owner and mode kept, the version from before stored first,
//! and a record in the ledger. Editors, restores and the guard save in this way.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, lstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::baseline_file::{BaselineFile, read_optional};
use super::lock;
use super::record::{FileState, Operation, Outcome, RunEvent, new_run_id};
use super::run_log;
use super::seal::SealReport;
use super::semaphore::Permit;
use crate::baseline::seal::BaselineSeal;
use crate::baseline::{self, MAX_BASELINE_BYTES};
use crate::digest::Digest;
use crate::durable::{
    self, DisplacedFile, ExpectedFile, InstalledFile, LostAttributes, Replacement,
    ReplacementNames, ReplacementPaths,
};
use crate::error::{Error, ErrorKind, PathContext, Result};

/// The random names under which new files are being installed, in the program's own directory of the
/// archive.
const REPLACING_FILE_NAME: &str = "replacing.json";

/// Begins the note of a save with lines that another program wrote.
pub(super) const MERGED_TEXT_NOTE: &str = "with lines of another program";

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
#[derive(Debug)]
pub struct BaselineWriter<'e> {
    pub(super) engine: &'e Engine,
    _seal_lock: Permit,
    _edit: BaselineEdit,
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

/// What a new file displaced.
#[derive(Default)]
pub(super) struct ReplacedFile {
    /// Whether nothing is left for the next recovery to store or remove.
    pub is_settled: bool,
    /// State of the file whose bytes were stored.
    stored: Option<FileState>,
    /// Path of what stays beside the new file: see [`SavedBaseline::kept_aside`].
    kept_aside: Option<PathBuf>,
    lost: LostAttributes,
}

/// The journal of files that are being replaced.
#[derive(Serialize, Deserialize)]
struct ReplacementJournal {
    /// Number of the ledger's last record when it was written; every record about them follows it.
    #[serde(rename = "ledger")]
    ledger_seq: u64,
    files: Vec<ReplacementPaths>,
}

/// Why a baseline is saved.
pub(super) struct SaveCause {
    pub operation: Operation,
    /// Note of the record.
    pub note: Option<String>,
    /// What the operator saw at the path.
    pub expected: ExpectedFile,
}

impl Engine {
    /// Marks that an operator edits baselines, until the result is dropped.
    ///
    /// # Errors
    /// The archive cannot be written, or the guard is at work for longer than a minute.
    pub fn begin_baseline_edit(&self) -> Result<BaselineEdit> {
        let permit = lock::mark_baseline_edit(&self.archive, self.clock())?;
        Ok(BaselineEdit { _permit: permit })
    }

    /// Begins a change of baselines and their seal.
    ///
    /// # Errors
    /// As [`Engine::begin_baseline_edit`]; another process changes them for longer than a minute.
    pub fn begin_baseline_change(&self) -> Result<BaselineWriter<'_>> {
        let edit = self.begin_baseline_edit()?;
        Ok(BaselineWriter {
            engine: self,
            _seal_lock: lock::lock_seal(&self.archive, self.clock())?,
            _edit: edit,
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
    pub(super) fn baseline_file_path(&self, name: &str) -> PathBuf {
        self.config().general.baseline_dir.join(name)
    }

    /// Replaces a baseline file. The caller holds the lock of the seal.
    pub(super) fn replace_baseline(
        &self,
        name: &str,
        bytes: &[u8],
        cause: SaveCause,
    ) -> Result<SavedBaseline> {
        // A broken ledger could not record it.
        self.ledger_head()?;
        let path = self.baseline_file_path(name);
        self.recover_replacements()?;
        let before = read_state(&path)?;
        let sealed = match cause.operation {
            // A seal that cannot be read vouches for nothing.
            Operation::Save => self.accepted_seal().unwrap_or_default().seal,
            _ => BaselineSeal::default(),
        };
        let digest = self.baseline_versions.store(bytes)?;
        let replaced = self.replace_files(&[(path.clone(), bytes, cause.expected)])?;
        let ReplacedFile {
            is_settled,
            stored,
            kept_aside,
            lost,
        } = replaced.into_iter().next().unwrap_or_default();
        // A program may have written to it since it was read.
        let before = stored.or(before);
        let is_read_back =
            baseline::read_file(&path).is_ok_and(|bytes| Digest::of(&bytes) == digest);
        let run = new_run_id();
        let old_digest = before.as_ref().and_then(FileState::digest);
        let aside = kept_aside
            .as_ref()
            .map(|aside| format!("what stood there before is now {}", aside.display()));
        let note = cause.note.into_iter().chain(aside).chain(lost.describe());
        let note: Vec<String> = note.collect();
        let outcome = if is_read_back {
            Outcome::Ok
        } else {
            Outcome::Failed
        };
        let event = RunEvent {
            file: Some(name.to_string()),
            outcome,
            before,
            after: is_read_back.then(|| file_state(bytes)),
            baseline: Some(digest),
            sealed_version: sealed.expected_digest(name),
            note: (!note.is_empty()).then(|| note.join("; ")),
            ..self.baseline_event(&run, cause.operation)
        };
        let line = format!(
            "{} the baseline {name}: {} -> {}",
            match cause.operation {
                Operation::Save => "Saved",
                Operation::Guard => "Guard restored",
                _ => "Restored",
            },
            old_digest.map_or("no file".to_string(), |old| old.short_hex(8)),
            digest.short_hex(8)
        );
        self.record_baseline_run(&run, vec![event], vec![line])
            .map_err(|error| {
                let path = path.display();
                error.with_context(format!("{path} was saved, but that cannot be recorded"))
            })?;
        if is_settled {
            self.remove_replacement_journal()?;
        }
        if !is_read_back {
            let message = format!("{} was changed right after it was saved", path.display());
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(SavedBaseline {
            run,
            path,
            before: old_digest,
            digest,
            kept_aside,
            lost,
        })
    }

    /// Creates the event of a run that concerns a baseline file.
    pub(super) fn baseline_event(&self, run: &str, operation: Operation) -> RunEvent {
        RunEvent::for_archive(run, operation, self.setup.trigger, &self.setup.user)
    }

    /// Records a run that concerns baseline files, in the ledger and in `reset.log`.
    pub(super) fn record_baseline_run(
        &self,
        run: &str,
        events: Vec<RunEvent>,
        lines: Vec<String>,
    ) -> Result<()> {
        let counts = match events.len() {
            1 => "1 baseline".to_string(),
            count => format!("{count} baselines"),
        };
        self.append_to_ledger(events)?;
        let head = self.ledger().durable_head().ok();
        let end = run_log::format_run_end(run, &counts, head);
        let now = self.clock().now();
        let lines: Vec<String> = lines
            .into_iter()
            .chain([end])
            .map(|line| run_log::format_line(now, &line))
            .collect();
        run_log::append_lines(&self.archive, &lines)
    }

    /// Replaces files, in this order, and stores the bytes that they displace; all of them, or none
    /// if the system allows to put the first ones back. The caller holds the lock of the seal, and
    /// calls [`Engine::end_replacement`] once the ledger has them.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something else than expected stands at a path; otherwise the
    /// system's error.
    pub(super) fn replace_files(
        &self,
        files: &[(PathBuf, &[u8], ExpectedFile)],
    ) -> Result<Vec<ReplacedFile>> {
        let mut names = Vec::new();
        let mut contents = ReplacementJournal {
            ledger_seq: self.ledger_head().map_or(0, |(seq, _)| seq),
            files: Vec::new(),
        };
        for (path, ..) in files {
            let some = ReplacementNames::new()?;
            contents.files.push(some.paths_beside(path));
            names.push(some);
        }
        let journal = self.archive.program_path(REPLACING_FILE_NAME);
        let text = serde_json::to_vec(&contents).map_err(|error| {
            let message = format!("cannot serialize the names of new files: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        self.archive.replace_program_file(&journal, &text)?;
        // All of them are on the disk before the first one changes its name.
        let prepared: Result<Vec<Replacement>> = files
            .iter()
            .zip(names)
            .map(|((path, bytes, _), names)| Replacement::prepare(path, bytes, names))
            .collect();
        let mut installed: Vec<InstalledFile> = Vec::new();
        for (replacement, (_, _, expected)) in prepared?.into_iter().zip(files) {
            match replacement.install(*expected, MAX_BASELINE_BYTES) {
                Ok(file) => installed.push(file),
                Err(error) => return Err(put_back_all(installed, error)),
            }
        }
        let mut replaced = Vec::new();
        for file in installed {
            let lost = file.lost();
            let stored = match file.into_displaced() {
                None => ReplacedFile {
                    is_settled: true,
                    ..ReplacedFile::default()
                },
                Some(displaced) => {
                    let path = displaced.path().to_path_buf();
                    // The new files are in place. What cannot be stored or removed now is tried again
                    // by the next recovery.
                    self.store_displaced(displaced).unwrap_or(ReplacedFile {
                        kept_aside: Some(path),
                        ..ReplacedFile::default()
                    })
                }
            };
            replaced.push(ReplacedFile { lost, ..stored });
        }
        Ok(replaced)
    }

    /// Removes the journal of a replacement, unless the next recovery needs it.
    pub(super) fn end_replacement(&self, replaced: &[ReplacedFile]) -> Result<()> {
        if replaced.iter().all(|it| it.is_settled) {
            self.remove_replacement_journal()
        } else {
            Ok(())
        }
    }

    fn remove_replacement_journal(&self) -> Result<()> {
        let journal = self.archive.program_path(REPLACING_FILE_NAME);
        std::fs::remove_file(&journal).with_path("remove", &journal)
    }

    /// Recovers an interrupted change of baselines, and removes what killed processes have left of the
    /// program's own files.
    ///
    /// # Errors
    /// What a change left cannot be stored or recorded.
    pub fn recover_baseline_changes(&self) -> Result<()> {
        if self.pending_replacements()?.is_none() {
            self.archive.remove_leftovers(&[REPLACING_FILE_NAME]);
            return Ok(());
        }
        let _lock = lock::lock_seal(&self.archive, self.clock())?;
        self.recover_replacements()
    }

    /// Does the same, and returns whether the process that changed this baseline ended before its change
    /// did, and had replaced the file.
    ///
    /// # Errors
    /// As [`Engine::recover_baseline_changes`], or the ledger cannot be read.
    pub fn recover_interrupted_save(&self, name: &str) -> Result<bool> {
        let path = self.baseline_file_path(name);
        let concerns = |it: &ReplacementJournal| it.files.iter().any(|file| file.path() == path);
        if !self.pending_replacements()?.is_some_and(|it| concerns(&it)) {
            return self.recover_baseline_changes().map(|()| false);
        }
        let _lock = lock::lock_seal(&self.archive, self.clock())?;
        // A change in progress has ended by now, and removed the journal.
        let Some(journal) = self.pending_replacements()?.filter(concerns) else {
            return Ok(false);
        };
        let recorded = self.baseline_history(name, usize::MAX)?;
        let recorded = recorded.iter().find_map(|it| it.sha256);
        let (back, _) = self.scan_ledger_backwards()?;
        let mut back = back.stopping_after(journal.ledger_seq);
        let mut is_recorded = false;
        while let Some((_, record)) = back.next_matching(|it| it.is_about_archive())? {
            is_recorded |= record.event.file.as_deref() == Some(name);
        }
        // What was displaced and is still there may be left for lack of a right, or to its writer.
        let has_displaced = self.recover_journal(journal)?;
        let found = read_optional(&path)?.map(|bytes| Digest::of(&bytes));
        Ok(if is_recorded {
            !has_displaced
        } else {
            found != recorded
        })
    }

    /// Returns the journal of replacements; none if there is none.
    fn pending_replacements(&self) -> Result<Option<ReplacementJournal>> {
        let journal = self.archive.program_path(REPLACING_FILE_NAME);
        let text = match durable::read_own_file(&journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_path("read", &journal)?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let message = format!("{} is damaged: {error}", journal.display());
            Error::new(ErrorKind::Integrity, message)
                .with_hint("look for files .shepherd-… beside the baselines, then remove it")
        })
    }

    /// Stores what a killed process left beside baselines or seal, and removes it there. The caller
    /// holds the lock of the seal.
    pub(super) fn recover_replacements(&self) -> Result<()> {
        self.archive.remove_leftovers(&[REPLACING_FILE_NAME]);
        match self.pending_replacements()? {
            Some(journal) => self.recover_journal(journal).map(drop),
            None => Ok(()),
        }
    }

    /// Does the same for a journal, and returns whether there was anything to store.
    fn recover_journal(&self, journal: ReplacementJournal) -> Result<bool> {
        let mut has_displaced = false;
        for replacement in journal.files {
            for displaced in replacement.recover()? {
                has_displaced = true;
                let found = self.store_displaced(displaced)?;
                self.record_recovered(replacement.path(), found)?;
            }
        }
        self.remove_replacement_journal()?;
        Ok(has_displaced)
    }

    /// Records a version that a killed process left, so that the history of its baseline has it.
    fn record_recovered(&self, path: &Path, found: ReplacedFile) -> Result<()> {
        let directory = &self.config().general.baseline_dir;
        let name = path.strip_prefix(directory).ok().and_then(Path::to_str);
        let Some(name) = name else {
            return Ok(());
        };
        let run = new_run_id();
        let (note, line) = match &found.kept_aside {
            None => (
                "left by an interrupted change".to_string(),
                format!("Stored what an interrupted change left beside {name}"),
            ),
            Some(aside) => {
                let aside = aside.display();
                (
                    format!("an interrupted change left what stood there before as {aside}"),
                    format!("An interrupted change left what was {name} as {aside}"),
                )
            }
        };
        let event = RunEvent {
            file: Some(name.to_string()),
            before: found.stored,
            note: Some(note),
            ..self.baseline_event(&run, Operation::Repair)
        };
        self.record_baseline_run(&run, vec![event], vec![line])
    }

    /// Stores displaced bytes and removes their file, unless it stays: it is not a plain file of at most
    /// 16 MiB, a program keeps writing to it, or it cannot be removed.
    fn store_displaced(&self, mut displaced: DisplacedFile) -> Result<ReplacedFile> {
        let Some(bytes) = displaced.read_settled(MAX_BASELINE_BYTES, self.clock())? else {
            return Ok(ReplacedFile {
                is_settled: true,
                kept_aside: Some(displaced.path().to_path_buf()),
                ..ReplacedFile::default()
            });
        };
        self.baseline_versions.store(&bytes)?;
        let path = displaced.path().to_path_buf();
        // An append-only directory, for example. The bytes are stored, and the file does no harm.
        let Ok(late) = displaced.remove(MAX_BASELINE_BYTES, self.clock()) else {
            return Ok(ReplacedFile {
                stored: Some(file_state(&bytes)),
                kept_aside: Some(path),
                ..ReplacedFile::default()
            });
        };
        if let Some(late) = &late {
            self.baseline_versions.store(late)?;
        }
        Ok(ReplacedFile {
            is_settled: true,
            stored: Some(file_state(&late.unwrap_or(bytes))),
            ..ReplacedFile::default()
        })
    }
}

impl BaselineWriter<'_> {
    /// Saves an edited baseline as [`Engine::save_baseline`] does.
    ///
    /// # Errors
    /// As [`Engine::save_baseline`].
    pub fn save(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
        origin: TextOrigin,
    ) -> Result<SavedBaseline> {
        let path = self.engine.baseline_file_path(name);
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
        self.engine.replace_baseline(name, bytes, cause)
    }

    /// Saves an edited baseline over an object that cannot be read as a file, which is kept beside it. `seen`
    /// is the reason why it cannot be read, as the operator saw it.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something else is there by now; otherwise the system's error. What
    /// is there is then unchanged.
    pub fn save_over_unreadable(
        &self,
        name: &str,
        bytes: &[u8],
        seen: &str,
    ) -> Result<SavedBaseline> {
        let path = self.engine.baseline_file_path(name);
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
        self.engine.replace_baseline(name, bytes, cause)
    }

    /// Saves an edited baseline as [`BaselineWriter::save`] does, though its file is immutable: the
    /// flag is cleared, and set again on what is there afterwards. A kill in between leaves the file
    /// without its flag.
    ///
    /// # Errors
    /// As [`Engine::save_baseline`], or the flag cannot be changed.
    pub fn save_immutable(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<Digest>,
        origin: TextOrigin,
    ) -> Result<SavedBaseline> {
        let flag = durable::clear_immutable(&self.engine.baseline_file_path(name))?;
        let saved = self.save(name, bytes, expected, origin)?;
        flag.set_again()?;
        Ok(saved)
    }

    /// Seals one baseline whose version `saved` was just saved, and nothing else.
    /// `accepts_lint_errors`: the operator has seen its lint errors.
    ///
    /// # Errors
    /// As [`Engine::seal_saved_baseline`].
    pub fn seal_saved(
        &self,
        name: &str,
        saved: Digest,
        accepts_lint_errors: bool,
    ) -> Result<SealReport> {
        let plan = self
            .engine
            .plan_saved_seal(name, saved, accepts_lint_errors)?;
        let preview = self.engine.check_seal_plan(&plan, None)?;
        self.apply_seal(&plan, None, preview)
    }
}

/// Puts back what new files displaced, the last one first, and returns the error that this is for.
fn put_back_all(installed: Vec<InstalledFile>, mut error: Error) -> Error {
    for file in installed.into_iter().rev() {
        if let Err(failed) = file.put_back() {
            error = error.with_hint(format!("not all files were put back: {failed}"));
        }
    }
    error
}

/// Returns the state of a file with these bytes.
pub(super) fn file_state(bytes: &[u8]) -> FileState {
    let feeds = bytes.iter().filter(|byte| **byte == b'\n').count();
    let has_rest = bytes.last().is_some_and(|last| *last != b'\n');
    FileState::File {
        sha256: Digest::of(bytes),
        size: bytes.len() as u64,
        lines: (feeds + usize::from(has_rest)) as u64,
    }
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
        .map(|bytes| file_state(&bytes)))
}
