//! What owner, mode and flags let a user write of a file and the directories above it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

/// Returns what owner, mode and flags let a user write of a file and the directories above it.
pub(super) fn writable_paths(path: &Path, uid: u32) -> Vec<&Path> {
    let mut found = Vec::new();
    let mut is_child_immutable = false;
    for it in path.ancestors().filter(|it| !it.as_os_str().is_empty()) {
        let is_immutable = is_immutable(it);
        // A directory lets a user replace its entries, except an immutable file or directory.
        if !is_immutable && !is_child_immutable && is_writable_by(it, uid) {
            found.push(it);
        }
        is_child_immutable = is_immutable;
    }
    found
}

/// Whether owner and mode let a user write a file, or replace files in a directory.
fn is_writable_by(path: &Path, uid: u32) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return false;
    };
    let is_sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
    meta.uid() == uid || meta.mode() & 0o002 != 0 && !is_sticky_directory
}

/// Whether a file or directory has the flag that only root sets and removes (`chattr +i`).
fn is_immutable(path: &Path) -> bool {
    let status = statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::TYPE,
    );
    status.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::skip::skip_unsupported;

    #[test]
    fn immutable_file_is_not_writable_by_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scout.md");
        fs::write(&path, "# Scout\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let other_user = rustix::process::geteuid().as_raw() + 4242;
        assert_eq!(writable_paths(&path, other_user), [path.as_path()]);
        let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).output();
        if !chattr("+i").is_ok_and(|ran| ran.status.success()) {
            return skip_unsupported("chattr +i needs root and a file system with flags");
        }
        let writable = writable_paths(&path, other_user);
        chattr("-i").unwrap();
        assert_eq!(writable, [""; 0].map(Path::new));
    }
}
