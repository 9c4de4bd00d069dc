//! Whether another user than root can replace what a unit of the system runs or reads as root.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symlinks that a path may lead through, as in the kernel.
const MAX_SYMLINKS: usize = 40;

/// Directories in which a service looks for a program that is named without its directory.
const SERVICE_PATH: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// Returns the first file, directory or symlink that leads to a file and that another user than root
/// can change: on the path itself, and on those of the symlinks that it leads through.
pub fn find_untrusted_ancestor(path: &Path) -> Option<PathBuf> {
    let names = |path: &Path| -> VecDeque<OsString> {
        let components = path.components();
        let names = components.filter(|it| !matches!(it, Component::RootDir | Component::CurDir));
        names.map(|it| it.as_os_str().to_os_string()).collect()
    };
    let mut place = PathBuf::from("/");
    let mut rest = names(path);
    let mut symlinks = 0;
    loop {
        // What does not exist has nothing that a user could change now.
        let meta = fs::symlink_metadata(&place).ok()?;
        if is_untrusted(&meta) {
            return Some(place);
        }
        if meta.is_symlink() {
            symlinks += 1;
            let target = fs::read_link(&place)
                .ok()
                .filter(|_| symlinks <= MAX_SYMLINKS)?;
            place.pop();
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            let mut further = names(&target);
            further.append(&mut rest);
            rest = further;
        }
        let name = rest.pop_front()?;
        if name == OsStr::new("..") {
            place.pop();
        } else {
            place.push(name);
        }
    }
}

/// Returns what [`find_untrusted_ancestor`] does for the program of a command that a service runs in
/// a directory.
pub fn find_untrusted_command(program: &str, directory: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return find_untrusted_ancestor(&directory.join(program));
    }
    let places = SERVICE_PATH
        .iter()
        .map(|place| Path::new(place).join(program));
    let found = places.into_iter().find(|path| path.exists())?;
    find_untrusted_ancestor(&found)
}

/// Returns whether another user can change a file, or what a directory contains. The mode of a symlink
/// says nothing, and in a sticky directory each user changes only what is theirs.
fn is_untrusted(meta: &fs::Metadata) -> bool {
    let is_sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
    let is_writable = meta.mode() & 0o022 != 0 && !meta.is_symlink();
    meta.uid() != 0 || is_writable && !is_sticky_directory
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// The directories of tests belong to root only where root runs them.
    fn root_directory() -> Option<(tempfile::TempDir, PathBuf)> {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().canonicalize().unwrap();
        find_untrusted_ancestor(&path)
            .is_none()
            .then_some((temporary, path))
    }

    #[test]
    fn symlink_in_a_place_of_others_is_untrusted() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        let program = root.join("program");
        fs::write(&program, "").unwrap();
        fs::create_dir(root.join("open")).unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.join("open"), mode).unwrap();
        symlink("../program", root.join("open/link")).unwrap();
        symlink("open/link", root.join("far")).unwrap();
        assert_eq!(find_untrusted_ancestor(&program), None);
        for link in ["open/link", "far"] {
            let found = find_untrusted_ancestor(&root.join(link));
            assert_eq!(found, Some(root.join("open")), "{link}");
        }
        let found = find_untrusted_command("open/link", &root);
        assert_eq!(found, Some(root.join("open")));
        assert_eq!(find_untrusted_command("program-of-none", &root), None);
    }

    #[test]
    fn symlink_of_another_user_is_untrusted() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        fs::write(root.join("program"), "").unwrap();
        symlink("program", root.join("link")).unwrap();
        assert_eq!(find_untrusted_ancestor(&root.join("link")), None);
        std::os::unix::fs::lchown(root.join("link"), Some(4711), None).unwrap();
        let found = find_untrusted_ancestor(&root.join("link"));
        assert_eq!(found, Some(root.join("link")));
        chown(root.join("program"), Some(4711), None).unwrap();
        let found = find_untrusted_ancestor(&root.join("program"));
        assert_eq!(found, Some(root.join("program")));
    }

    #[test]
    fn loop_of_symlinks_ends() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("loop");
        symlink("loop", &link).unwrap();
        let _ = find_untrusted_ancestor(&link);
    }
}
