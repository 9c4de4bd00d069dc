//! Pins, the entries that retention never deletes: `<archive_dir>/.shepherd/pins`, one path below
//! `archive_dir` per line. Blank lines and lines that begin with `#` are ignored.
//!
//! Lines are compared as paths, without whitespace at their ends: operators write paths as typed,
//! such as `scout//ENTRY`, and editors add carriage returns. A path that begins with `#` or whitespace
//! has `./` before it. A line that names no entry is kept unchanged and reported as a [`PinFault`]:
//! the entry that it was meant for must not be deleted.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::{Archive, PROGRAM_DIRECTORY_NAME, agent_directory_of};
use crate::base::durable;
use crate::base::error::{self, Error, Result};

/// Name of the file in the program's own directory.
const PINS_FILE_NAME: &str = "pins";

/// The pins of an archive. To change them, hold the lock of the pins from before the read until
/// after the write.
#[derive(Clone, Debug)]
pub struct Pins {
    archive: Archive,
    lines: Vec<Vec<u8>>,
    pinned_entries: HashSet<PathBuf>,
}

/// A line of the pins file that names no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinFault {
    /// The pins file.
    pub pins_path: PathBuf,
    /// The line's number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The directory of the archive that it may concern; none where that is unknown, so that it may
    /// concern any.
    pub directory: Option<PathBuf>,
    /// Why the entry could not be checked, if that is the reason.
    pub error: Option<Error>,
}

impl PinFault {
    /// Returns whether the line may have been meant for this entry.
    pub fn may_concern(&self, entry: &Path) -> bool {
        let directory = self.directory.as_deref();
        directory.is_none_or(|directory| agent_directory_of(entry) == directory)
    }
}

impl fmt::Display for PinFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, text) = (self.pins_path.display(), self.line, &self.text);
        write!(f, "line {line} of {path} names no entry: {text}")?;
        match &self.error {
            Some(error) => write!(f, " ({error})"),
            None => Ok(()),
        }
    }
}

impl Pins {
    /// Reads the pins of an archive.
    ///
    /// # Errors
    /// The system's error. Without a pins file no entry is pinned.
    pub fn read(archive: &Archive) -> Result<Pins> {
        archive.check_expected()?;
        let path = archive.program_path(PINS_FILE_NAME);
        let text = match durable::read_own_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::from_io("read the pins", &path, &error)),
            Ok(text) => text,
        };
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(Vec::from).collect();
        lines.pop_if(|last| last.is_empty());
        let mut pins = Pins {
            archive: archive.clone(),
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
        let below = path.strip_prefix(self.archive.root()).unwrap_or(path);
        let is_plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let resolved = if is_plain {
            None
        } else {
            self.archive.resolve_typed_path(path)
        };
        let parts = below.components();
        Some(resolved.unwrap_or_else(|| parts.filter(|it| *it != Component::CurDir).collect()))
    }

    /// Returns the lines that name no entry.
    pub fn find_faults(&self) -> Vec<PinFault> {
        let numbered = self.lines.iter().enumerate();
        let fault = |(number, line): (usize, &Vec<u8>)| {
            let entry = self.entry_of_line(line)?;
            let error = match self.archive.find_entry(&entry) {
                Ok(Some(_)) => return None,
                Ok(None) => None,
                Err(error) => Some(error),
            };
            let is_known = |directory: &&Path| {
                let path = self.archive.root().join(directory);
                super::is_below_archive(directory) && durable::is_directory_no_symlinks(&path)
            };
            // An entry in quarantine may have got its name in the directory above.
            let directory = entry
                .parent()
                .map(|_| agent_directory_of(&entry))
                .filter(is_known);
            Some(PinFault {
                pins_path: self.archive.program_path(PINS_FILE_NAME),
                line: number + 1,
                text: String::from_utf8_lossy(line.trim_ascii()).into_owned(),
                directory: directory.map(Path::to_path_buf),
                error,
            })
        };
        numbered.filter_map(fault).collect()
    }

    /// Returns whether an entry is pinned.
    pub fn contains(&self, entry: &Path) -> bool {
        self.pinned_entries.contains(entry)
    }

    /// Returns the paths of the pinned entries.
    pub fn entries(&self) -> impl Iterator<Item = &Path> {
        self.pinned_entries.iter().map(PathBuf::as_path)
    }

    /// Pins an entry; false when it is already pinned.
    ///
    /// # Errors
    /// No line of the file can name the entry.
    pub fn add(&mut self, entry: &Path) -> Result<bool> {
        if self.contains(entry) {
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
    pub fn write(&self, archive: &Archive) -> Result<()> {
        archive.open_or_create_directory(PROGRAM_DIRECTORY_NAME.as_ref())?;
        let mut text = self.lines.join(&b'\n');
        if !text.is_empty() {
            text.push(b'\n');
        }
        let path = archive.program_path(PINS_FILE_NAME);
        archive.replace_program_file(&path, &text)?;
        if Pins::read(archive)?.pinned_entries != self.pinned_entries {
            let message = format!("{} does not name the entries to pin", path.display());
            return Err(Error::new(error::ErrorKind::Integrity, message)
                .with_hint("look for another program that writes this file"));
        }
        Ok(())
    }
}
