//! Replacements of baselines and of the seal's files: installed, recorded in the ledger, and only then
//! without what they displaced.
//!
//! `replacing.json` names the random names beside the files, and holds the records of the change, before
//! a file changes. After a kill at any call, [`BaselineFiles::recover_replacements`] stores what was
//! displaced, appends the records that the ledger lacks, and removes what is left beside the files. It
//! may be killed and repeated: no record is written twice, and no bytes are removed that neither a
//! record nor a file beside the baseline names.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::durable::{
    self, DisplacedFile, ExpectedFile, InstalledFile, LostAttributes, Replacement,
    ReplacementNames, ReplacementPaths,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::baseline::{self, MAX_BASELINE_BYTES};
use crate::engine::baselines::BaselineFiles;
use crate::store::holds::Hold;
use crate::store::record::{FileChange, FileState, Operation, RunEvent, new_run_id};

/// The changes that are under way or were interrupted, in the program's own directory of the archive.
pub(in crate::engine) const JOURNAL_FILE_NAME: &str = "replacing.json";

/// Note of a record that the process which made the change could not write.
const INTERRUPTED_NOTE: &str = "interrupted; recorded by the next change or guard";

/// A file of `baseline_dir` and its new content.
pub(in crate::engine) struct NewContent<'b> {
    /// Name in `baseline_dir`.
    pub name: &'b str,
    pub bytes: &'b [u8],
    /// What has to stand at the path.
    pub expected: ExpectedFile,
}

/// What the ledger and `reset.log` tell of a change.
pub(in crate::engine) struct ChangeRecord {
    pub run: String,
    pub events: Vec<RunEvent>,
    pub lines: Vec<String>,
}

/// A change in the journal.
#[derive(Clone, Deserialize, Serialize)]
struct JournaledChange {
    run: String,
    /// Number of the ledger's last record when it began.
    ledger_seq: u64,
    files: Vec<JournaledFile>,
    /// Its records; none once it has ended or failed.
    events: Vec<RunEvent>,
}

#[derive(Clone, Deserialize, Serialize)]
struct JournaledFile {
    /// Name in `baseline_dir`.
    name: String,
    /// Digest of the new content.
    content: Digest,
    #[serde(flatten)]
    paths: ReplacementPaths,
}

/// What a new file displaced, under its random name.
struct DisplacedContent {
    /// Name of the new file in `baseline_dir`.
    name: String,
    file: DisplacedFile,
    /// Its bytes, which are stored as a version; none of an object that keeps its random name.
    stored: Option<Vec<u8>>,
}

/// A file that was replaced.
pub(in crate::engine) struct ReplacedFile {
    displaced: Option<DisplacedContent>,
    pub lost: LostAttributes,
}

/// Files that were replaced, before that is recorded. Where this is dropped, the next recovery records
/// it.
pub(in crate::engine) struct UnrecordedChange<'e> {
    baseline_files: &'e BaselineFiles,
    journaled: JournaledChange,
    /// In the order of the new contents.
    pub files: Vec<ReplacedFile>,
    /// Whether everything that was displaced and can be read is stored.
    is_stored: bool,
}

impl DisplacedContent {
    fn state(&self) -> Option<FileState> {
        self.stored.as_deref().map(FileState::of)
    }
}

impl ReplacedFile {
    /// State of the displaced file, if its bytes are stored.
    pub fn stored(&self) -> Option<FileState> {
        self.displaced.as_ref()?.state()
    }

    /// Path of a displaced object whose bytes are not stored.
    pub fn kept_aside(&self) -> Option<&Path> {
        let kept = self.displaced.as_ref().filter(|it| it.stored.is_none());
        kept.map(|it| it.file.path())
    }
}

impl JournaledFile {
    fn is_installed(&self) -> bool {
        baseline::read_file(self.paths.path()).is_ok_and(|it| Digest::of(&it) == self.content)
    }
}

impl JournaledChange {
    fn is_installed(&self) -> bool {
        self.files.iter().all(JournaledFile::is_installed)
    }

    /// Returns why it cannot be recovered, if a directory of its files is missing: it may have been
    /// moved, with the only copy of what a file displaced.
    fn unreachable_error(&self, journal: &Path) -> Option<Error> {
        self.files.iter().find_map(|file| {
            let path = file.paths.path();
            let directory = path.parent()?;
            let errno = durable::open_directory_errno(directory).err()?;
            if ![Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&errno) {
                return None;
            }
            let message = format!(
                "an interrupted change of {} cannot be recovered: the directory {} is missing",
                path.display(),
                directory.display()
            );
            let names = file.paths.random_names().collect::<Vec<_>>().join(", ");
            let hint = format!(
                "put the directory back; or where it was moved to, look for what the change replaced \
                 ({names}), and then remove {}",
                journal.display()
            );
            Some(Error::new(ErrorKind::Integrity, message).with_hint(hint))
        })
    }
}

impl BaselineFiles {
    /// Replaces files of `baseline_dir`, in this order, and stores the bytes that they displace; all of
    /// them, or none if the system allows to put the first ones back. `record` is what a later recovery
    /// records. The caller holds the lock of the seal, and has recovered earlier changes.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something else than expected stands at a path; otherwise the
    /// system's error.
    pub(in crate::engine) fn replace_files(
        &self,
        contents: &[NewContent<'_>],
        record: &ChangeRecord,
    ) -> Result<UnrecordedChange<'_>> {
        let mut names = Vec::new();
        let mut files = Vec::new();
        for new in contents {
            let some = ReplacementNames::new()?;
            files.push(JournaledFile {
                name: new.name.to_string(),
                content: Digest::of(new.bytes),
                paths: some.paths_beside(&self.baseline_file_path(new.name)),
            });
            names.push(some);
        }
        let mut journaled = JournaledChange {
            run: record.run.clone(),
            ledger_seq: self.context.ledger().head()?.0,
            files,
            events: record.events.clone(),
        };
        // Earlier changes in it cannot be recovered.
        let mut changes = self.read_replacement_journal()?;
        changes.push(journaled.clone());
        self.write_replacement_journal(&changes)?;
        let installed = match self.install_files(contents, names) {
            Ok(installed) => installed,
            Err(error) => {
                // A file that is in place although its directory cannot be synced counts as changed;
                // one that gets this content later does not.
                if journaled.is_installed() {
                    let what = "the change took effect, but may not be on the disk";
                    return Err(error
                        .with_context(what)
                        .with_hint("the next change of baselines records it"));
                }
                changes.pop();
                journaled.events.clear();
                changes.push(journaled);
                let _ = self.write_replacement_journal(&changes);
                return Err(error);
            }
        };
        let mut is_stored = true;
        let mut files = Vec::new();
        for (file, new) in installed.into_iter().zip(contents) {
            let lost = file.lost();
            let displaced = file.into_displaced().map(|mut file| {
                // The new files are in place. What cannot be stored now is tried again by the next
                // recovery.
                let stored = self.store_displaced(&mut file);
                is_stored &= stored.is_ok();
                DisplacedContent {
                    name: new.name.to_string(),
                    file,
                    stored: stored.unwrap_or_default(),
                }
            });
            files.push(ReplacedFile { displaced, lost });
        }
        Ok(UnrecordedChange {
            baseline_files: self,
            journaled,
            files,
            is_stored,
        })
    }

    /// Installs new files, the last one only after all others; none after an error, as far as the
    /// system allows.
    fn install_files(
        &self,
        contents: &[NewContent<'_>],
        names: Vec<ReplacementNames>,
    ) -> Result<Vec<InstalledFile>> {
        // All of them are on the disk before the first one changes its name.
        let prepared: Result<Vec<Replacement>> = contents
            .iter()
            .zip(names)
            .map(|(new, names)| {
                Replacement::prepare(&self.baseline_file_path(new.name), new.bytes, names)
            })
            .collect();
        let mut installed: Vec<InstalledFile> = Vec::new();
        for (replacement, new) in prepared?.into_iter().zip(contents) {
            match replacement.install(new.expected, MAX_BASELINE_BYTES) {
                Ok(file) => installed.push(file),
                Err(error) => return Err(put_back_all(installed, error)),
            }
        }
        Ok(installed)
    }

    /// Recovers what killed processes left of their changes, and records it. Returns why some changes
    /// cannot be recovered; they stay in the journal. The caller holds the lock of the seal.
    ///
    /// # Errors
    /// The journal is damaged, the archive cannot be written, or the system's error.
    pub(in crate::engine) fn recover_replacements(&self) -> Result<Vec<Error>> {
        self.context
            .archive()
            .remove_leftovers(&[JOURNAL_FILE_NAME]);
        let changes = self.read_replacement_journal()?;
        let count = changes.len();
        let journal = self.context.holds().location(Hold::BaselineChanges);
        let (mut kept, mut problems) = (Vec::new(), Vec::new());
        for change in changes {
            match change.unreachable_error(&journal) {
                Some(problem) => {
                    problems.push(problem);
                    kept.push(change);
                }
                None => self.recover_change(&change)?,
            }
        }
        if kept.len() < count {
            self.write_replacement_journal(&kept)?;
        }
        Ok(problems)
    }

    /// Returns why interrupted changes of baselines cannot be recovered; none if there is none, or the
    /// next change recovers it.
    pub fn unrecoverable_replacements(&self) -> Vec<Error> {
        let journal = self.context.holds().location(Hold::BaselineChanges);
        match self.read_replacement_journal() {
            Ok(changes) => changes
                .iter()
                .filter_map(|change| change.unreachable_error(&journal))
                .collect(),
            Err(error) => vec![error],
        }
    }

    /// Returns whether changes are in the journal: under way, or interrupted. Without one, removes what
    /// killed processes have left of the program's own files.
    pub(in crate::engine) fn has_interrupted_change(&self) -> Result<bool> {
        let has_change = !self.read_replacement_journal()?.is_empty();
        if !has_change {
            self.context
                .archive()
                .remove_leftovers(&[JOURNAL_FILE_NAME]);
        }
        Ok(has_change)
    }

    /// Returns whether an interrupted change has replaced a file of `baseline_dir`, and its process did
    /// not get to say so. The caller holds the lock of the seal.
    pub(in crate::engine) fn was_replacement_interrupted(&self, name: &str) -> Result<bool> {
        for change in self.read_replacement_journal()? {
            let mut files = change.files.iter();
            if change.events.is_empty() || !files.any(|file| file.name == name) {
                continue;
            }
            let recorded = self.archive_events_since(change.ledger_seq)?;
            let is_recorded = recorded.iter().any(|event| event.run == change.run);
            if is_recorded || change.is_installed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn recover_change(&self, change: &JournaledChange) -> Result<()> {
        let mut displaced = Vec::new();
        for JournaledFile { name, paths, .. } in &change.files {
            for mut file in paths.recover()? {
                let stored = self.store_displaced(&mut file)?;
                displaced.push(DisplacedContent {
                    name: name.clone(),
                    file,
                    stored,
                });
            }
        }
        let mut recorded = self.archive_events_since(change.ledger_seq)?;
        let completed = missing_events(change, &displaced, &recorded);
        if !completed.is_empty() {
            recorded.extend(completed.iter().cloned());
            let lines = completed.iter().map(|event| {
                let (operation, file) = (event.operation.as_str(), event.file.as_deref());
                let file = file.unwrap_or("the seal");
                format!("Recorded an interrupted change: {operation} of {file}")
            });
            let lines = lines.collect();
            self.record_baseline_run(&change.run, completed, lines)?;
        }
        for content in &displaced {
            if !recorded.iter().any(|event| is_named_by(content, event)) {
                self.record_leftover(content)?;
            }
        }
        self.remove_recorded(displaced).map(drop)
    }

    /// Returns the events behind a record that concern baselines and no agent, newest first.
    fn archive_events_since(&self, seq: u64) -> Result<Vec<RunEvent>> {
        let mut back = self.context.ledger().scan_back_to(seq)?;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next_readable(&mut |it| it.is_about_archive())? {
            events.push(record.event);
        }
        Ok(events)
    }

    /// Records a version that a killed process left, so that the history of its baseline has it; or an
    /// object that stays beside it.
    fn record_leftover(&self, content: &DisplacedContent) -> Result<()> {
        match &content.stored {
            Some(bytes) => self.record_left_version(&content.name, bytes),
            None => self.record_kept_aside(&content.name, None, content.file.path()),
        }
    }

    fn record_left_version(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let note = "left by an interrupted change";
        let line = format!("Stored what an interrupted change left beside {name}");
        self.record_repair(name, Some(FileState::of(bytes)), note.to_string(), line)
    }

    fn record_kept_aside(&self, name: &str, state: Option<FileState>, aside: &Path) -> Result<()> {
        let aside = aside.display();
        let note = format!("a change left what stood there before as {aside}");
        let line = format!("A change left what was {name} as {aside}");
        self.record_repair(name, state, note, line)
    }

    fn record_repair(
        &self,
        name: &str,
        before: Option<FileState>,
        note: String,
        line: String,
    ) -> Result<()> {
        let run = new_run_id();
        let event = RunEvent {
            file: Some(name.to_string()),
            change: FileChange {
                before,
                ..FileChange::default()
            },
            note: Some(note),
            ..self.baseline_event(&run, Operation::Repair)
        };
        self.record_baseline_run(&run, vec![event], vec![line])
    }

    /// Stores displaced bytes and returns them; none of what is not a plain file of at most 16 MiB that
    /// can be read, or that a program keeps writing to.
    fn store_displaced(&self, file: &mut DisplacedFile) -> Result<Option<Vec<u8>>> {
        let bytes = file.read_settled(MAX_BASELINE_BYTES, self.context.clock())?;
        if let Some(bytes) = &bytes {
            self.context.baseline_versions().store(bytes)?;
        }
        Ok(bytes)
    }

    /// Removes displaced files whose bytes are stored and recorded. Returns the paths of those that
    /// cannot be removed; they do no harm. What a program has written to one since is stored and
    /// recorded, too.
    fn remove_recorded(&self, displaced: Vec<DisplacedContent>) -> Result<Vec<PathBuf>> {
        let mut kept = Vec::new();
        for content in displaced {
            let (name, state) = (content.name.clone(), content.state());
            let Some(mut newest) = content.stored else {
                continue;
            };
            // The last look without a lease; a lease tells of every writer.
            if let Some(late) = content.file.read_now(MAX_BASELINE_BYTES)
                && late != newest
            {
                self.store_late(&name, &late)?;
                newest = late;
            }
            let path = content.file.path().to_path_buf();
            match content
                .file
                .remove(MAX_BASELINE_BYTES, self.context.clock())
            {
                Ok(Some(late)) if late != newest => self.store_late(&name, &late)?,
                Ok(_) => {}
                // An append-only directory, for example.
                Err(_) if std::fs::symlink_metadata(&path).is_ok() => {
                    self.record_kept_aside(&name, state, &path)?;
                    kept.push(path);
                }
                // Its removal is not synced: after a power cut it may be back, and the ledger has it.
                Err(error) => tracing::debug!("cannot sync: {error}"),
            }
        }
        Ok(kept)
    }

    fn store_late(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.context.baseline_versions().store(bytes)?;
        self.record_left_version(name, bytes)
    }

    fn read_replacement_journal(&self) -> Result<Vec<JournaledChange>> {
        let Some(text) = self.context.holds().read(Hold::BaselineChanges)? else {
            return Ok(Vec::new());
        };
        serde_json::from_slice(&text).map_err(|error| {
            let journal = self.context.holds().location(Hold::BaselineChanges);
            let journal = journal.display();
            let message = format!("{journal} is damaged: {error}");
            Error::new(ErrorKind::Integrity, message).with_hint(format!(
                "look for files .shepherd-… beside the baselines: they hold what an interrupted change \
                 replaced; then remove {journal}"
            ))
        })
    }

    fn write_replacement_journal(&self, changes: &[JournaledChange]) -> Result<()> {
        let mut journal = self.context.holds().lock(Hold::BaselineChanges)?;
        if changes.is_empty() {
            return journal.replace(None);
        }
        let text = serde_json::to_vec(changes).map_err(|error| {
            let message = format!("cannot serialize the names of new files: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        journal.replace(Some(&text))
    }
}

impl UnrecordedChange<'_> {
    /// Records the change, and removes what it displaced and stored. Returns the paths of what cannot
    /// be removed.
    ///
    /// # Errors
    /// The change cannot be recorded; the next recovery does it.
    pub fn complete(self, record: ChangeRecord) -> Result<Vec<PathBuf>> {
        let recorded =
            self.baseline_files
                .record_baseline_run(&record.run, record.events, record.lines);
        recorded.map_err(|error| self.unrecorded_error(error))?;
        let displaced = self.files.into_iter().filter_map(|file| file.displaced);
        let kept = self.baseline_files.remove_recorded(displaced.collect())?;
        let (run, is_stored) = (&self.journaled.run, self.is_stored);
        let settled = self
            .baseline_files
            .read_replacement_journal()
            .and_then(|changes| {
                let settle = |mut change: JournaledChange| {
                    if change.run != *run {
                        return Some(change);
                    }
                    // Only what could not be stored is left to a recovery.
                    change.events.clear();
                    (!is_stored).then_some(change)
                };
                let left: Vec<_> = changes.into_iter().filter_map(settle).collect();
                self.baseline_files.write_replacement_journal(&left)
            });
        // The next recovery finds nothing to do, and forgets it.
        if let Err(error) = settled {
            tracing::debug!("cannot forget a recorded change: {error}");
        }
        Ok(kept)
    }

    /// Gives up a change whose files another program has replaced already: the ledger gets what they
    /// displaced, and no record of the change.
    ///
    /// # Errors
    /// As [`BaselineFiles::recover_replacements`].
    pub fn give_up(self) -> Result<()> {
        let baseline_files = self.baseline_files;
        let mut changes = baseline_files.read_replacement_journal()?;
        let given_up = changes.iter_mut().filter(|it| it.run == self.journaled.run);
        given_up.for_each(|change| change.events.clear());
        baseline_files.write_replacement_journal(&changes)?;
        // Releases the leases on what the recovery reads.
        drop(self.files);
        baseline_files.recover_replacements().map(drop)
    }

    /// Says that the files are replaced although that is not recorded, and where what they displaced is.
    fn unrecorded_error(&self, error: Error) -> Error {
        let Some(last) = self.journaled.files.last() else {
            return error;
        };
        let replaced = last.paths.path().display();
        let displaced = self.files.iter().filter_map(|it| it.displaced.as_ref());
        let error = displaced.fold(error, |error, content| {
            let path = self.baseline_files.baseline_file_path(&content.name);
            let (path, aside) = (path.display(), content.file.path().display());
            error.with_hint(format!(
                "what was {path} before is {aside}: once the archive can be written, the guard or the \
                 next change of a baseline stores and records it"
            ))
        });
        error.with_context(format!(
            "{replaced} was replaced, but that cannot be recorded"
        ))
    }
}

/// Returns the events of a change that the ledger lacks, if all of its files are in place.
fn missing_events(
    change: &JournaledChange,
    displaced: &[DisplacedContent],
    recorded: &[RunEvent],
) -> Vec<RunEvent> {
    if !change.is_installed() {
        return Vec::new();
    }
    let is_recorded = |event: &&RunEvent| {
        let key = |it: &RunEvent| (it.run.clone(), it.operation, it.file.clone());
        recorded.iter().any(|it| key(it) == key(event))
    };
    let events = change.events.iter().filter(|it| !is_recorded(it)).cloned();
    let complete = |mut event: RunEvent| {
        let of_file = displaced
            .iter()
            .find(|it| event.file.as_ref() == Some(&it.name));
        event.change.before = of_file
            .and_then(DisplacedContent::state)
            .or(event.change.before);
        event.add_note(INTERRUPTED_NOTE);
        event
    };
    events.map(complete).collect()
}

/// Returns whether an event names what a new file displaced.
fn is_named_by(content: &DisplacedContent, event: &RunEvent) -> bool {
    if event.file.as_ref() != Some(&content.name) {
        return false;
    }
    match content.state() {
        Some(state) => event.change.before == Some(state),
        None => {
            let path = content.file.path().display().to_string();
            event.note.as_ref().is_some_and(|it| it.contains(&path))
        }
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
