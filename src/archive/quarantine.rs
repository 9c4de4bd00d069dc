//! The quarantine of an agent's entries: `<archive_subdir>/quarantine/`, which only the archive's
//! owner can read; `archive_mode` and `archive_group` do not apply to it.

use std::path::{Path, PathBuf};

use rustix::fs::Mode;

/// Name of the directory, below that of an agent's entries.
pub const QUARANTINE_DIRECTORY_NAME: &str = "quarantine";

/// Its mode.
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;

/// The mode of entries in it.
pub(crate) const QUARANTINED_ENTRY_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Returns whether a directory below `archive_dir` is a quarantine. A directory of that name right
/// below `archive_dir` is one of an agent's entries.
pub fn is_quarantine_directory(directory: &Path) -> bool {
    let mut names = directory.components().rev();
    let is_named = names
        .next()
        .is_some_and(|name| name.as_os_str() == QUARANTINE_DIRECTORY_NAME);
    is_named && names.next().is_some()
}

/// Returns the quarantine of the entries in a directory; none for a quarantine and for `archive_dir`
/// itself.
pub(crate) fn quarantine_of(subdir: &Path) -> Option<PathBuf> {
    let has_one = !is_quarantine_directory(subdir) && !subdir.as_os_str().is_empty();
    has_one.then(|| subdir.join(QUARANTINE_DIRECTORY_NAME))
}

/// Returns whether an entry, a path below `archive_dir`, is in quarantine.
pub fn is_quarantined(entry: &Path) -> bool {
    entry.parent().is_some_and(is_quarantine_directory)
}

/// Returns the directory of the agent that an entry belongs to: of one in quarantine, the
/// directory above.
pub fn agent_directory_of(entry: &Path) -> &Path {
    let directory = entry.parent().unwrap_or(Path::new(""));
    if is_quarantine_directory(directory) {
        directory.parent().unwrap_or(directory)
    } else {
        directory
    }
}
