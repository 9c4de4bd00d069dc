//! The unit files of a directory, as they are read for an installation and for the state of timers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::base::durable;
use crate::base::error::{PathContext, Result, describe_io_error};

/// Maximum size of a unit file that is read, in bytes.
const MAX_UNIT_BYTES: u64 = 4 << 20;

/// A unit file.
pub(super) struct UnitFile {
    /// Its text, or why it cannot be read; of a symlink, that of the file to which it leads.
    pub text: std::result::Result<String, String>,
    /// Where it leads, if it is a symlink.
    pub link: Option<PathBuf>,
}

/// Reads the services and timers of a directory, by name; none where the directory does not exist.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn unit_files(directory: &Path) -> Result<BTreeMap<String, UnitFile>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if durable::is_absent(&error) => return Ok(BTreeMap::new()),
        entries => entries.with_path("read", directory)?,
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry.with_path("read", directory)?;
        let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".timer");
        if let Some(name) = entry.file_name().to_str().filter(is_unit) {
            files.insert(name.to_string(), UnitFile::read(&entry.path()));
        }
    }
    Ok(files)
}

impl UnitFile {
    /// Returns whether it is a symlink that masks a unit or drop-in of its name (systemd.unit(5)).
    pub(super) fn is_mask(&self) -> bool {
        self.link.as_deref() == Some(Path::new("/dev/null"))
    }

    /// Returns its text, which is empty for a mask.
    pub(super) fn text_in_effect(self) -> std::result::Result<String, String> {
        if self.is_mask() {
            return Ok(String::new());
        }
        self.text
    }

    /// Reads a unit file or drop-in.
    pub(super) fn read(path: &Path) -> UnitFile {
        let link = fs::read_link(path).ok();
        let text = match &link {
            Some(_) => path
                .canonicalize()
                .map_err(|error| unreadable(&error))
                .and_then(|target| read_text(&target)),
            None => read_text(path),
        };
        UnitFile { text, link }
    }
}

fn read_text(path: &Path) -> std::result::Result<String, String> {
    let bytes =
        durable::read_regular_file(path, MAX_UNIT_BYTES).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_string())
}

fn unreadable(error: &std::io::Error) -> String {
    format!("it cannot be read: {}", describe_io_error(error))
}
