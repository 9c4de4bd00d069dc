//! `reset.log`: one line per event of a run, in the original tool's format. The last line of a run
//! has the ledger's head, which exposes what the ledger alone cannot: a truncated end.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use chrono::{DateTime, FixedOffset};

use crate::archive::Archive;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{PathContext, Result};
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::store::record::{FileState, Operation, RunEvent};

/// Size in bytes above which the log is moved to `reset.log.old`.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// The current log, and the previous one.
const LOG_FILE_NAME: &str = "reset.log";
const ROTATED_LOG_NAME: &str = "reset.log.old";

/// Number of bytes at the end of a log that are searched for the last lines of runs.
const LOG_TAIL_BYTES: u64 = 2 * MAX_LOG_BYTES;

/// Formats a line: `[YYYY-MM-DD HH:MM:SS] [memory-shepherd] text`.
pub(crate) fn format_line(now: DateTime<FixedOffset>, text: &str) -> String {
    format!(
        "[{}] [memory-shepherd] {}",
        now.format("%Y-%m-%d %H:%M:%S"),
        untrusted::visible_line(text)
    )
}

/// Appends lines to `<archive_dir>/reset.log`, and rotates a log that is too long.
pub(crate) fn append_lines(archive: &Archive, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    archive.open_or_create_directory("".as_ref())?;
    let path = archive.root().join(LOG_FILE_NAME);
    let permissions = archive.permissions();
    let mut file =
        permissions.open_own_file(&path, OpenOptions::new().append(true).create(true))?;
    file.write_all(format!("{}\n", lines.join("\n")).as_bytes())
        .with_path("append to", &path)?;
    if file.metadata().with_path("stat", &path)?.len() > MAX_LOG_BYTES {
        let old = archive.root().join(ROTATED_LOG_NAME);
        std::fs::rename(&path, &old).with_path("move", &path)?;
    }
    Ok(())
}

/// Formats the last line of a run, with the ledger's head if that is known.
pub(crate) fn format_run_end(run: &str, counts: &str, head: Option<(u64, Digest)>) -> String {
    let head = head.map(|(seq, digest)| format!("; ledger head {seq}:{digest}"));
    format!("run {run} ended: {counts}{}", head.unwrap_or_default())
}

/// Formats the line about a memory that was replaced, or files that were changed.
pub(crate) fn format_replacement(event: &RunEvent) -> String {
    let note = event.note.as_ref();
    let suffix = note.map_or(String::new(), |note| format!("; {note}"));
    if event.is_about_files() {
        let verb = match event.operation {
            Operation::Undo => "Restored",
            _ => "Changed",
        };
        let files = format_count(event.files.len() as u64, "file");
        return format!("{verb} {files} of {}{suffix}", event.agent);
    }
    let verb = match (event.operation, &event.change.after) {
        (_, Some(FileState::Absent)) => match &event.undone_run {
            Some(run) => format!("Removed the memory that run {run} created for"),
            None => "Removed the memory of".to_string(),
        },
        (_, Some(FileState::Special(_))) => {
            "Restored the object at the memory's path of".to_string()
        }
        (Operation::Undo, _) => "Restored the memory of".to_string(),
        (Operation::Push, _) => "Pushed the baseline to".to_string(),
        _ => "Reset".to_string(),
    };
    let size = match event.change.after {
        Some(FileState::File { size, .. }) => format!(" ({size} bytes)"),
        _ => String::new(),
    };
    let kept = match &event.kept_scratch {
        Some(kept) if kept.lines == 1 => ", kept 1 line".to_string(),
        Some(kept) => format!(", kept {} lines", kept.lines),
        None => String::new(),
    };
    format!("{verb} {}{size}{kept}{suffix}", event.agent)
}

/// Returns the heads of the ledger in the last lines of runs that are kept, oldest first. Includes
/// heads that later runs have built on: a ledger that was truncated before a run lacks the head of
/// that run, too.
///
/// # Errors
/// A log exists and cannot be read.
pub(crate) fn read_logged_heads(archive: &Path) -> Result<Vec<(u64, Digest)>> {
    let mut heads = Vec::new();
    for name in [ROTATED_LOG_NAME, LOG_FILE_NAME] {
        let path = archive.join(name);
        let end = match read_log_end(&path) {
            Err(error) if durable::is_absent(&error) => continue,
            end => end.with_path("read", &path)?,
        };
        let lines = end.split(|byte| *byte == b'\n');
        heads.extend(lines.filter_map(|line| parse_logged_head(str::from_utf8(line).ok()?)));
    }
    Ok(heads)
}

fn read_log_end(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = durable::open_own_file(path, OpenOptions::new().read(true))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut end)?;
    Ok(end)
}

/// Parses the head in the last line of a run. Other lines may quote text of agents.
fn parse_logged_head(line: &str) -> Option<(u64, Digest)> {
    let (_, text) = line.split_once("] [memory-shepherd] run ")?;
    let (run, text) = text.split_once(" ended: ")?;
    let (_, head) = text.rsplit_once("; ledger head ")?;
    let (seq, digest) = head.split_once(':')?;
    let is_run = run.bytes().all(|byte| byte.is_ascii_hexdigit());
    let head = (seq.parse().ok()?, digest.parse().ok()?);
    is_run.then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_head_is_read_only_from_run_end_lines() {
        let digest = Digest::of(b"x");
        let tally = "1 ok, 0 unchanged, 0 not";
        let told = format_run_end("5a10c3d2", tally, Some((7, digest)));
        let line = |text: &str| format!("[2026-03-14 09:00:00] [memory-shepherd] {text}");
        assert_eq!(parse_logged_head(&line(&told)), Some((7, digest)));
        assert!(!format_run_end("5a10c3d2", tally, None).contains("head"));
        for other in [
            format_run_end("5a10c3d2", tally, None),
            format!("Reset scout: a symlink to {told}"),
            format!("scout: {told}"),
            format!("run of scout ended: {told}"),
        ] {
            assert_eq!(parse_logged_head(&line(&other)), None, "{other}");
        }
    }
}
