//! Drafts: the text of a baseline that is being edited and not saved yet, so that a lost terminal
//! loses no typing. There is one for each baseline and operator, which only that operator can read.

use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use rustix::fs::Mode;
use rustix::process::{Pid, geteuid, getpid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::Engine;
use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// Directory of the drafts, in the program's own directory of the archive.
const DRAFT_DIRECTORY_NAME: &str = "drafts";

/// The text of a baseline that was not saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineDraft {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Digest of the file when the edit began.
    pub base: Digest,
    /// Content of the file when the edit began; empty if that is not known any more.
    pub base_bytes: Vec<u8>,
    /// When the draft was written.
    pub time: DateTime<FixedOffset>,
    /// The process that wrote it, if it still runs and is not this one.
    pub running_process: Option<u32>,
}

/// First line of a draft's file; the text follows.
#[derive(Serialize, Deserialize)]
struct DraftHeader {
    baseline: String,
    base: Digest,
    time: DateTime<FixedOffset>,
    process: u32,
}

impl Engine {
    /// Writes the draft of a baseline; it is on the disk when this returns. `base` is the content of
    /// the file when the edit began.
    ///
    /// # Errors
    /// The system's error.
    pub fn save_baseline_draft(&self, name: &str, base: &[u8], bytes: &[u8]) -> Result<()> {
        let header = DraftHeader {
            baseline: name.to_string(),
            base: self.baseline_versions.store(base)?,
            time: self.clock().now(),
            process: getpid().as_raw_nonzero().get().unsigned_abs(),
        };
        let mut text = serde_json::to_vec(&header).map_err(|error| {
            let message = format!("cannot serialize the draft of {name}: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        text.push(b'\n');
        text.extend(bytes);
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(DRAFT_DIRECTORY_NAME);
        self.archive.open_or_create_directory(&directory)?;
        durable::replace_file(&self.draft_path(name), &text, Mode::RUSR | Mode::WUSR)
    }

    /// Reads the operator's draft of a baseline, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn load_baseline_draft(&self, name: &str) -> Result<Option<BaselineDraft>> {
        let path = self.draft_path(name);
        let text = match durable::read_own_file(&path) {
            Err(error) if durable::is_absent(&error) => return Ok(None),
            text => text.with_path("read", &path)?,
        };
        let damaged = || {
            let message = format!("the draft {} is damaged", path.display());
            Error::new(ErrorKind::Integrity, message)
                .with_hint("look at its text, which begins in its second line, and remove it")
        };
        let end = text.iter().position(|byte| *byte == b'\n');
        let (header, rest) = text.split_at(end.ok_or_else(damaged)?);
        let header: DraftHeader = serde_json::from_slice(header).map_err(|_| damaged())?;
        if header.baseline != name {
            return Err(damaged());
        }
        let own = getpid();
        let other = i32::try_from(header.process).ok().and_then(Pid::from_raw);
        let is_running = |pid: &Pid| *pid != own && test_kill_process(*pid).is_ok();
        Ok(Some(BaselineDraft {
            bytes: rest.get(1..).unwrap_or_default().to_vec(),
            base_bytes: self
                .baseline_versions
                .read_version(header.base)
                .map(|bytes| bytes.to_vec())
                .unwrap_or_default(),
            base: header.base,
            time: header.time,
            running_process: other.filter(is_running).map(|_| header.process),
        }))
    }

    /// Removes the operator's draft of a baseline, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn discard_baseline_draft(&self, name: &str) -> Result<()> {
        let path = self.draft_path(name);
        match std::fs::remove_file(&path) {
            Err(error) if durable::is_absent(&error) => Ok(()),
            removed => removed.with_path("remove", &path),
        }
    }

    /// Path of a draft. Names of baselines may hold slashes, so the file is called by their digest.
    fn draft_path(&self, name: &str) -> PathBuf {
        let name = Digest::of(name.as_bytes()).short_hex(16);
        let file = format!("{name}-{}", geteuid().as_raw());
        self.archive.program_path(DRAFT_DIRECTORY_NAME).join(file)
    }
}
