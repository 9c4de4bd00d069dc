//! The copy of a baseline that the external editor works on: written, read when the editor ended, and
//! kept where its text could be lost otherwise.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::EffectRunner;
use super::job_queue::JobClass;
use crate::baseline::MAX_BASELINE_BYTES;
use crate::console::message::{DraftChange, DraftText, ExternalText, Msg};
use crate::durable;
use crate::engine::OpenedBaseline;
use crate::error::{PathContext, Result};

/// The copy of a baseline that the external editor works on, in a directory that only the operator
/// can read. Other programs' changes of the file are not part of the operator's edit. The copy
/// is removed when this is dropped.
pub struct ExternalCopy {
    directory: TempDir,
    path: PathBuf,
}

impl ExternalCopy {
    /// Writes a copy in a new directory in `directory`.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn write(directory: &Path, opened: &OpenedBaseline) -> Result<ExternalCopy> {
        let own = tempfile::Builder::new()
            .prefix("memory-shepherd-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(directory)
            .with_path("create a directory for the editor in", directory)?;
        // Editors choose colours by the name.
        let name = opened.path.file_name().unwrap_or(OsStr::new("baseline.md"));
        let path = own.path().join(name);
        fs::write(&path, &opened.bytes).with_path("write", &path)?;
        Ok(ExternalCopy {
            directory: own,
            path,
        })
    }

    /// Returns the path of the copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the copy after the editor ended. A copy that cannot be read is kept.
    ///
    /// # Errors
    /// The system's error, with the path of the copy.
    pub fn take_text(self) -> Result<Vec<u8>> {
        let text = durable::read_regular_file(&self.path, MAX_BASELINE_BYTES);
        text.with_path("read", &self.path).map_err(|error| {
            let kept = self.keep();
            error.with_hint(format!(
                "what the editor wrote is kept in {}",
                kept.display()
            ))
        })
    }

    /// Keeps the copy and what else the editor wrote beside it. Returns the directory.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Whether the editor left another file beside the copy: one to recover from, for example.
    pub fn has_other_files(&self) -> bool {
        fs::read_dir(self.directory.path()).is_ok_and(|files| files.count() > 1)
    }
}

impl EffectRunner {
    /// Reads the copy of a baseline after the external editor ended.
    pub fn read_external_copy(&self, opened: Box<OpenedBaseline>, copy: ExternalCopy) {
        self.submit(JobClass::Handoff, None, move |started| {
            let text = match started {
                Ok(_) => copy.take_text(),
                Err(error) => {
                    let kept = copy.keep();
                    let hint = format!("what the editor wrote is kept in {}", kept.display());
                    Err(error.with_hint(hint))
                }
            };
            Msg::ExternalEditEnded(Box::new(ExternalText {
                opened: *opened,
                text,
            }))
        });
    }

    /// Keeps what an external editor wrote until the console ended, as a draft that is written at
    /// once. Returns what to tell the operator.
    pub fn keep_external_copy(
        &mut self,
        opened: &OpenedBaseline,
        copy: ExternalCopy,
    ) -> Option<String> {
        let text = fs::read(copy.path());
        let is_changed = text.as_ref().is_ok_and(|text| *text != opened.bytes);
        let change = text.ok().filter(|_| is_changed).map(|text| DraftChange {
            name: opened.name.clone(),
            text: Some(DraftText {
                bytes: Arc::new(text),
                base: Arc::new(opened.bytes.clone()),
            }),
            replaced: None,
        });
        let is_kept = change.is_some_and(|change| {
            let job = self.drafts.begin_change(&self.engine, change);
            job.write_now()
        });
        (copy.has_other_files() || !is_kept && is_changed).then(|| {
            let directory = copy.keep();
            format!("what the editor wrote is kept in {}", directory.display())
        })
    }
}
