//! Entries that retention never deletes: `<archive_dir>/.shepherd/pins`, one path
//! below `archive_dir` a line. Lines that name nothing are kept as they are.
//!
//! Lines are compared as paths: earlier versions wrote down what was typed, such as
//! `scout//ENTRY`, which names the same entry.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Archive, OWN};
use crate::durable;
use crate::error::{Error, Result};

/// The file among the program's own.
const NAME: &str = "pins";

/// The pins as they were read. To change them, hold the lock of pins from before
/// they are read until they are written.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    root: PathBuf,
    lines: Vec<Vec<u8>>,
    set: HashSet<PathBuf>,
}

impl Pins {
    /// Reads the pins of an archive.
    ///
    /// # Errors
    /// What the system answered. Where there is no such file nothing is pinned.
    pub fn read(archive: &Archive) -> Result<Pins> {
        let path = archive.own(NAME);
        let text = match durable::read_own(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("read the pins", &path, &error)),
            Ok(text) => text,
        };
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(Vec::from).collect();
        lines.pop_if(|last| last.is_empty());
        let mut pins = Pins {
            root: archive.root().to_path_buf(),
            lines,
            set: HashSet::new(),
        };
        pins.set = pins.lines.iter().map(|line| pins.entry(line)).collect();
        Ok(pins)
    }

    /// The entry that a line names.
    fn entry(&self, line: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(line));
        path.strip_prefix(&self.root).unwrap_or(path).to_path_buf()
    }

    /// Whether an entry is pinned.
    pub fn contains(&self, entry: &Path) -> bool {
        self.set.contains(entry)
    }

    /// Pins an entry; false when it was pinned before.
    pub fn add(&mut self, entry: &Path) -> bool {
        let is_new = self.set.insert(entry.to_path_buf());
        if is_new {
            self.lines.push(entry.as_os_str().as_bytes().to_vec());
        }
        is_new
    }

    /// Unpins an entry; false when it was not pinned.
    pub fn remove(&mut self, entry: &Path) -> bool {
        let lines = std::mem::take(&mut self.lines).into_iter();
        self.lines = lines.filter(|line| self.entry(line) != entry).collect();
        self.set.remove(entry)
    }

    /// Puts the pins on the disk.
    ///
    /// # Errors
    /// What the system answered; the pins are as before then.
    pub fn write(&self, archive: &Archive) -> Result<()> {
        archive.folder(OWN.as_ref())?;
        let mut text = self.lines.join(&b'\n');
        if !text.is_empty() {
            text.push(b'\n');
        }
        archive.replace_own(&archive.own(NAME), &text)
    }
}
