//! `reset.log`: what runs did, a line each, in the original tool's form.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use chrono::{DateTime, FixedOffset};

use crate::archive::Archive;
use crate::durable;
use crate::error::{PathContext, Result};
use crate::untrusted;

/// Above this many bytes the log is moved to `reset.log.old`.
const MAX_SIZE: u64 = 1 << 20;

/// `[YYYY-MM-DD HH:MM:SS] [memory-shepherd] text`
pub(super) fn line(now: DateTime<FixedOffset>, text: &str) -> String {
    format!(
        "[{}] [memory-shepherd] {}",
        now.format("%Y-%m-%d %H:%M:%S"),
        untrusted::line(text)
    )
}

/// Appends lines to `<archive_dir>/reset.log`, and moves a log that has grown too
/// long out of the way.
pub(super) fn append(archive: &Archive, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    archive.folder("".as_ref())?;
    let path = archive.root().join("reset.log");
    let mut file = durable::open_own(
        &path,
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(archive.file_mode().as_raw_mode()),
    )
    .path("open", &path)?;
    archive.dress_own(&file, &path)?;
    file.write_all(format!("{}\n", lines.join("\n")).as_bytes())
        .path("append to", &path)?;
    if file.metadata().path("look at", &path)?.len() > MAX_SIZE {
        let old = archive.root().join("reset.log.old");
        std::fs::rename(&path, &old).path("move", &path)?;
    }
    Ok(())
}
