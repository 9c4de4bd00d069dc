//! Whether another user than root can replace what a unit of the system runs or reads as root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the first file or directory of a path that another user than root can change.
pub fn find_untrusted_ancestor(path: &Path) -> Option<PathBuf> {
    // A path that cannot be resolved has nothing that a user could change now.
    let resolved = path.canonicalize().ok()?;
    let found = resolved.ancestors().find(|part| {
        let Ok(meta) = fs::symlink_metadata(part) else {
            return false;
        };
        let is_sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
        meta.uid() != 0 || meta.mode() & 0o022 != 0 && !is_sticky_directory
    });
    found.map(Path::to_path_buf)
}
