//! Keeps the draft of the editor on the disk: the last change wins, and it is written before the
//! program ends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::error::Result;
use crate::base::temporary::{PrivateFile, TemporaryRoot};
use crate::console::message::{DraftChange, Msg};
use crate::console::screens::log::state::MessageLevel;
use crate::engine::{DraftFile, DraftId, Engine};

/// Numbers the changes of drafts in their order.
#[derive(Default)]
pub(super) struct DraftKeeper {
    last: Option<DraftJob>,
    count: u64,
    written: Arc<Mutex<WrittenDraft>>,
    /// Drafts of earlier edits that are not needed once the next change is on the disk. A job may be
    /// replaced by a later one before it removes them.
    replaced: Arc<Mutex<Vec<DraftId>>>,
}

/// The draft that is on the disk.
#[derive(Default)]
struct WrittenDraft {
    /// Number of the last change that was written.
    number: u64,
    /// The draft; none before the first change, and after it was removed.
    file: Option<DraftFile>,
}

/// A change of a draft that may have to be written.
#[derive(Clone)]
pub(super) struct DraftJob {
    engine: Arc<Engine>,
    change: DraftChange,
    number: u64,
    written: Arc<Mutex<WrittenDraft>>,
    replaced: Arc<Mutex<Vec<DraftId>>>,
}

impl DraftKeeper {
    /// Remembers a change; the job that is returned writes it.
    pub(super) fn begin_change(&mut self, engine: &Arc<Engine>, change: DraftChange) -> DraftJob {
        self.count += 1;
        lock(&self.replaced).extend(change.replaced.clone());
        let job = DraftJob {
            engine: Arc::clone(engine),
            change,
            number: self.count,
            written: Arc::clone(&self.written),
            replaced: Arc::clone(&self.replaced),
        };
        self.last = Some(job.clone());
        job
    }

    /// Writes the last change at once, unless that was done, before the program stops for a while.
    pub(super) fn write_last(&self) {
        if let Some(job) = &self.last {
            // Its job says why it cannot be written.
            let _ = job.write();
        }
    }

    /// Writes the last change, unless that was done. A text that cannot be kept as a draft is written
    /// to a new file in `root`, or else in `/tmp`, which only the operator can read.
    ///
    /// # Errors
    /// As [`Engine::write_baseline_draft`]; says where the text is, or that it is lost.
    pub(super) fn finish(&mut self, root: &TemporaryRoot) -> Result<()> {
        let Some(job) = self.last.take() else {
            return Ok(());
        };
        let DraftChange { name, text, .. } = &job.change;
        job.write().map_err(|error| match text {
            None => error.with_context(format!("the draft of {name} is not removed")),
            Some(text) => match write_copy(root, &text.bytes) {
                Ok(path) => {
                    let path = path.display();
                    error.with_context(format!(
                        "the text of {name} is in {path}, as it cannot be kept as a draft"
                    ))
                }
                Err(copy_error) => error
                    .with_context(format!("the text of {name} is lost"))
                    .with_hint(copy_error.to_line()),
            },
        })
    }
}

/// Writes a text to a new file in a new directory: in `root`, or else in `/tmp`. Returns its path.
///
/// # Errors
/// As [`PrivateFile::create`] in `root`.
fn write_copy(root: &TemporaryRoot, text: &[u8]) -> Result<PathBuf> {
    let create = |root: &TemporaryRoot| {
        PrivateFile::create(root, "memory-shepherd-draft-", "draft.md", text)
    };
    let file = create(root).or_else(|error| create(&root.system_root()).map_err(|_| error))?;
    Ok(file.keep())
}

impl DraftJob {
    /// Writes the change, unless a later one was written. Returns a message about its outcome.
    pub(super) fn perform(self) -> Option<Msg> {
        let outcome = self.write().map_err(|error| error.to_string());
        let name = self.change.name;
        match (self.change.text, outcome) {
            (Some(text), outcome) => Some(Msg::DraftWritten(name, text.bytes, outcome)),
            (None, Ok(())) => None,
            (None, Err(why)) => {
                let text = format!("the draft of {name} is not removed: {why}");
                Some(Msg::Reported(MessageLevel::Error, text))
            }
        }
    }

    /// Writes the change at once. Returns whether it is on the disk.
    pub(super) fn write_now(&self) -> bool {
        self.write().is_ok()
    }

    fn write(&self) -> Result<()> {
        let mut written = lock(&self.written);
        if written.number >= self.number {
            return Ok(());
        }
        match &self.change.text {
            Some(text) => {
                let name = &self.change.name;
                // A changed config may have moved the archive.
                let old = written.file.take_if(|file| {
                    file.baseline() != name
                        || !self.engine.baseline_edits().owns_baseline_draft(file)
                });
                let file = written
                    .file
                    .get_or_insert_with(|| self.engine.baseline_edits().new_baseline_draft(name));
                let result = self.engine.baseline_edits().write_baseline_draft(
                    file,
                    &text.base,
                    &text.bytes,
                );
                if let Some(old) = old {
                    match result {
                        Ok(()) => old.remove()?,
                        Err(_) => written.file = Some(old),
                    }
                }
                result?;
            }
            None => {
                if let Some(file) = &written.file {
                    file.remove()?;
                }
                written.file = None;
            }
        }
        written.number = self.number;
        let replaced = std::mem::take(&mut *lock(&self.replaced));
        for id in &replaced {
            self.engine.baseline_edits().remove_left_draft(id)?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::temporary_root::temporary_root;

    #[test]
    fn copy_of_a_text_is_kept_for_its_operator_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_copy(&temporary_root(directory.path()), b"typed\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"typed\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn unusable_directory_loses_no_text() {
        let directory = tempfile::tempdir().unwrap();
        let absent = temporary_root(&directory.path().join("absent"));
        let path = write_copy(&absent, b"typed\n").unwrap();
        assert!(path.starts_with("/tmp"), "{}", path.display());
        assert_eq!(std::fs::read(&path).unwrap(), b"typed\n");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
