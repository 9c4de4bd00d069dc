//! Entries that retention never deletes: `<archive_dir>/.shepherd/pins`, one path
//! below `archive_dir` a line. Lines that name nothing are kept as they are.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Archive, OWN};
use crate::durable;
use crate::error::{Error, Result};

/// The file among the program's own.
const NAME: &str = "pins";

/// The pins as they were read. To change them, hold the lock of pins from before
/// they are read until they are written.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    lines: Vec<Vec<u8>>,
    set: HashSet<Vec<u8>>,
}

impl Pins {
    /// Reads the pins of an archive.
    ///
    /// # Errors
    /// What the system answered. Where there is no such file nothing is pinned.
    pub fn read(archive: &Archive) -> Result<Pins> {
        let path = archive.own(NAME);
        let text = match durable::read_own(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Pins::default()),
            Err(error) => return Err(Error::io("read the pins", &path, &error)),
            Ok(text) => text,
        };
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(Vec::from).collect();
        lines.pop_if(|last| last.is_empty());
        let set = lines.iter().cloned().collect();
        Ok(Pins { lines, set })
    }

    /// Whether an entry is pinned.
    pub fn contains(&self, entry: &Path) -> bool {
        self.set.contains(entry.as_os_str().as_bytes())
    }

    /// Pins an entry; false when it was pinned before.
    pub fn add(&mut self, entry: &Path) -> bool {
        let line = entry.as_os_str().as_bytes().to_vec();
        let new = self.set.insert(line.clone());
        if new {
            self.lines.push(line);
        }
        new
    }

    /// Unpins an entry; false when it was not pinned.
    pub fn remove(&mut self, entry: &Path) -> bool {
        let line = entry.as_os_str().as_bytes();
        self.lines.retain(|other| other != line);
        self.set.remove(line)
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
