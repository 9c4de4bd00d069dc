//! What an installed unit file runs, and who else can change it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::escape::split_words;

/// Returns the program that a service starts; none in a unit without `ExecStart=`.
pub fn find_unit_program(text: &str) -> Option<PathBuf> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))?;
    let words = split_words(value)?;
    words.first().map(PathBuf::from)
}

/// Returns the unit file or its directory, whichever another user than root and `uid` can change.
///
/// # Errors
/// The system's error.
pub fn find_writable_part(unit: &Path, uid: u32) -> io::Result<Option<PathBuf>> {
    for part in unit.ancestors().take(2) {
        let meta = fs::symlink_metadata(part)?;
        let is_foreign = meta.uid() != 0 && meta.uid() != uid;
        // A group with the number of the user is usually the user's own.
        let is_group_shared = meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != uid;
        let is_sticky_directory = meta.is_dir() && meta.mode() & 0o1000 != 0;
        let is_shared = meta.mode() & 0o002 != 0 || is_group_shared;
        if is_foreign || is_shared && !is_sticky_directory {
            return Ok(Some(part.to_path_buf()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn program_of_a_service_is_unquoted() {
        let text = "[Service]\nType=oneshot\nExecStart=\"/opt/a b/x\" reset --config \"/c\"\n";
        assert_eq!(find_unit_program(text), Some(PathBuf::from("/opt/a b/x")));
        assert_eq!(find_unit_program("[Timer]\nOnCalendar=daily\n"), None);
    }

    #[test]
    fn file_or_directory_of_others_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let unit = directory.path().join("a.timer");
        fs::write(&unit, "x").unwrap();
        let uid = fs::metadata(&unit).unwrap().uid();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        let found = |uid| find_writable_part(&unit, uid).unwrap();
        chmod(&unit, 0o644);
        assert_eq!(found(uid), None);
        chmod(&unit, 0o646);
        assert_eq!(found(uid).as_deref(), Some(unit.as_path()));
        chmod(&unit, 0o644);
        chmod(directory.path(), 0o777);
        assert_eq!(found(uid).as_deref(), Some(directory.path()));
        chmod(directory.path(), 0o1777);
        assert_eq!(found(uid), None, "a sticky directory");
    }
}
