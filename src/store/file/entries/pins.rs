//! Pins, the entries that retention never deletes: `<archive_dir>/.shepherd/pins`, one path below
//! `archive_dir` per line. Blank lines and lines that begin with `#` are ignored.
//!
//! Lines are compared as paths, without whitespace at their ends: operators write paths as typed,
//! such as `scout//ENTRY`, and editors add carriage returns. A path that begins with `#` or whitespace
//! has `./` before it. A line that names no entry is kept unchanged and reported as a [`PinFault`]:
//! the entry that it was meant for must not be deleted.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::FileEntries;
use crate::archive::{PROGRAM_DIRECTORY_NAME, agent_directory_of, is_below_archive};
use crate::base::durable;
use crate::base::error::{self, Error, Result};
use crate::store::entries::{Entries, PinFault, Pins};

/// Name of the file in the program's own directory.
const PINS_FILE_NAME: &str = "pins";

/// The pins of an archive. To change them, hold the lock of the pins from before the read until
/// after the write.
pub(super) struct FilePins {
    entries: FileEntries,
    lines: Vec<Vec<u8>>,
    pinned_entries: HashSet<PathBuf>,
}

impl FilePins {
    /// Reads the pins of an archive.
    ///
    /// # Errors
    /// The system's error. Without a pins file no entry is pinned.
    pub fn read(entries: &FileEntries) -> Result<FilePins> {
        entries.archive().check_expected()?;
        let path = entries.archive().program_path(PINS_FILE_NAME);
        let text = match durable::read_own_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::from_io("read the pins", &path, &error)),
            Ok(text) => text,
        };
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(Vec::from).collect();
        lines.pop_if(|last| last.is_empty());
        let mut pins = FilePins {
            entries: entries.clone(),
            lines,
            pinned_entries: HashSet::new(),
        };
        pins.pinned_entries = pins
            .lines
            .iter()
            .filter_map(|it| pins.entry_of_line(it))
            .collect();
        Ok(pins)
    }

    /// Returns the entry that a line names, by its text alone; none for a blank line or comment.
    fn entry_of_line(&self, line: &[u8]) -> Option<PathBuf> {
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            return None;
        }
        let path = Path::new(OsStr::from_bytes(text));
        let below = path
            .strip_prefix(self.entries.archive().root())
            .unwrap_or(path);
        let is_plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let resolved = if is_plain {
            None
        } else {
            self.entries.resolve_typed(path)
        };
        let parts = below.components();
        Some(resolved.unwrap_or_else(|| parts.filter(|it| *it != Component::CurDir).collect()))
    }

    /// Pins an entry; false when it is already pinned.
    ///
    /// # Errors
    /// No line of the file can name the entry.
    pub fn add(&mut self, entry: &Path) -> Result<bool> {
        if self.pinned_entries.contains(entry) {
            return Ok(false);
        }
        self.lines.push(self.line_of_entry(entry)?);
        Ok(self.pinned_entries.insert(entry.to_path_buf()))
    }

    /// Returns the line that names an entry.
    fn line_of_entry(&self, entry: &Path) -> Result<Vec<u8>> {
        let path = entry.as_os_str().as_bytes();
        let mut lines = [path.to_vec(), [b"./", path].concat()].into_iter();
        let names_entry = |line: &Vec<u8>| {
            !line.contains(&b'\n') && self.entry_of_line(line).as_deref() == Some(entry)
        };
        lines.find(names_entry).ok_or_else(|| {
            let message = format!("no line of the pins can name {}", entry.display());
            Error::new(error::ErrorKind::Conflict, message)
                .with_hint("give the agent an archive_subdir without line breaks")
        })
    }

    /// Unpins an entry; false when it is not pinned.
    pub fn remove(&mut self, entry: &Path) -> bool {
        let lines = std::mem::take(&mut self.lines).into_iter();
        let is_other = |line: &Vec<u8>| self.entry_of_line(line).as_deref() != Some(entry);
        self.lines = lines.filter(is_other).collect();
        self.pinned_entries.remove(entry)
    }

    /// Writes the pins, syncs them to the disk and reads them back.
    ///
    /// # Errors
    /// The system's error; the pins are then unchanged. [`error::ErrorKind::Integrity`]: the file
    /// does not say what was written.
    pub fn write(&self) -> Result<()> {
        let archive = self.entries.archive();
        archive.open_or_create_directory(PROGRAM_DIRECTORY_NAME.as_ref())?;
        let mut text = self.lines.join(&b'\n');
        if !text.is_empty() {
            text.push(b'\n');
        }
        let path = archive.program_path(PINS_FILE_NAME);
        archive.replace_program_file(&path, &text)?;
        if FilePins::read(&self.entries)?.pinned_entries != self.pinned_entries {
            let message = format!("{} does not name the entries to pin", path.display());
            return Err(Error::new(error::ErrorKind::Integrity, message)
                .with_hint("look for another program that writes this file"));
        }
        Ok(())
    }
}

impl Pins for FilePins {
    fn entries(&self) -> &HashSet<PathBuf> {
        &self.pinned_entries
    }

    fn find_faults(&self) -> Vec<PinFault> {
        let numbered = self.lines.iter().enumerate();
        let fault = |(number, line): (usize, &Vec<u8>)| {
            let entry = self.entry_of_line(line)?;
            let error = match self.entries.find(&entry) {
                Ok(Some(_)) => return None,
                Ok(None) => None,
                Err(error) => Some(error),
            };
            let is_known = |directory: &&Path| {
                let path = self.entries.location(directory);
                is_below_archive(directory) && durable::is_directory_no_symlinks(&path)
            };
            // An entry in quarantine may have got its name in the directory above.
            let directory = entry
                .parent()
                .map(|_| agent_directory_of(&entry))
                .filter(is_known);
            Some(PinFault {
                pins_path: self.entries.archive().program_path(PINS_FILE_NAME),
                line: number + 1,
                text: String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                directory: directory.map(Path::to_path_buf),
                error,
            })
        };
        numbered.filter_map(fault).collect()
    }
}
