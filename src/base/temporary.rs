//! Temporary files: a private directory in one that a variable of the environment names, and files
//! without any directory.
//!
//! `su` and `sudo -E` keep the variables of the user before them. Who owns such a directory can rename
//! what another user creates in it, and put something else there under the same name.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, Mode, memfd_create};
use tempfile::TempDir;

use crate::base::durable::OperatorDirectory;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::trust::{TrustedUser, find_untrusted_ancestor};

/// A directory for temporary files that a variable of the environment names.
#[derive(Clone, Debug)]
pub struct TemporaryRoot {
    path: PathBuf,
    variable: &'static str,
    user: TrustedUser,
}

impl TemporaryRoot {
    /// Creates the value for an absolute path that `variable` names, in a process of `user`.
    pub fn new(variable: &'static str, path: PathBuf, user: TrustedUser) -> TemporaryRoot {
        TemporaryRoot {
            path,
            variable,
            user,
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `/tmp` of the same user, for a text that would be lost where this directory cannot be
    /// used.
    pub fn system_root(&self) -> TemporaryRoot {
        TemporaryRoot {
            path: PathBuf::from("/tmp"),
            ..self.clone()
        }
    }

    /// Creates a directory in it that only this user can reach. Its name begins with `prefix`.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] where another user could replace that directory; the system's error.
    pub fn create_directory(&self, prefix: &str) -> Result<PrivateDirectory> {
        const ACTION: &str = "create a private directory in";
        if let Some(place) = find_untrusted_ancestor(&self.path, self.user) {
            let (path, variable) = (self.path.display(), self.variable);
            let owner = place.describe(self.user.database);
            let message = format!("cannot {ACTION} {path}: {owner}, and could replace it");
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint(format!("set {variable} to a directory of your own")));
        }
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.path)
            .with_path(ACTION, &self.path)?;
        let handle = OperatorDirectory::open(directory.path())?;
        handle.check_own_and_empty()?;
        Ok(PrivateDirectory { directory, handle })
    }
}

/// A temporary directory of this user alone, which is open. It is removed when this is dropped, unless
/// it is kept.
#[derive(Debug)]
pub struct PrivateDirectory {
    directory: TempDir,
    handle: OperatorDirectory,
}

impl PrivateDirectory {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Creates a file in it that other users cannot read. Returns its path.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_file(&self, name: &OsStr, bytes: &[u8]) -> Result<PathBuf> {
        self.handle
            .create_file(name, bytes, Mode::RUSR | Mode::WUSR)?;
        Ok(self.path().join(name))
    }

    /// Reads a regular file in it, of this user or root and at most `max_bytes` bytes. No symlink is
    /// followed.
    ///
    /// # Errors
    /// The system's error, or that it is another object.
    pub fn read_file(&self, name: &OsStr, max_bytes: u64) -> Result<Vec<u8>> {
        let read = self.handle.read_own_file(name, max_bytes);
        read.with_path("read", &self.path().join(name))
    }

    /// Returns the names in it.
    ///
    /// # Errors
    /// The system's error.
    pub fn names(&self) -> Result<Vec<OsString>> {
        self.handle.names()
    }

    /// Whether a name in it is a symlink.
    pub fn is_symlink(&self, name: &OsStr) -> bool {
        self.handle.read_symlink(name).is_some()
    }

    /// Keeps it when this is dropped.
    pub fn keep(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// Removes it, also where it is kept. What cannot be removed stays.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(self.path());
    }
}

/// A file in a [`PrivateDirectory`], which is removed with it when this is dropped.
#[derive(Debug)]
pub struct PrivateFile {
    path: PathBuf,
    _directory: PrivateDirectory,
}

impl PrivateFile {
    /// Creates a file with the name in a new directory, whose name begins with `prefix`.
    ///
    /// # Errors
    /// As [`TemporaryRoot::create_directory`].
    pub fn create(
        root: &TemporaryRoot,
        prefix: &str,
        name: &str,
        bytes: &[u8],
    ) -> Result<PrivateFile> {
        let directory = root.create_directory(prefix)?;
        Ok(PrivateFile {
            path: directory.create_file(OsStr::new(name), bytes)?,
            _directory: directory,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps it; returns its path.
    pub fn keep(mut self) -> PathBuf {
        self._directory.keep();
        self.path
    }
}

/// Creates an empty file in memory, which has no name.
///
/// # Errors
/// The system's error.
pub fn create_memory_file() -> io::Result<File> {
    let file = memfd_create("memory-shepherd", MemfdFlags::CLOEXEC)?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;
    use crate::skip::skip_unsupported;
    use crate::temporary_root::{OTHER_USER, temporary_root};

    #[test]
    fn directory_of_another_user_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let below = temporary.path().join("below");
        fs::create_dir(&below).unwrap();
        let file = PrivateFile::create(&temporary_root(&below), "page-", "a", b"text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(file.path()), 0o600);
        assert_eq!(mode(file.path().parent().unwrap()), 0o700);
        drop(file);
        if chown(temporary.path(), Some(OTHER_USER), None).is_err() {
            return skip_unsupported("only root can give directories away");
        }
        for place in [temporary.path(), &below] {
            let error = temporary_root(place).create_directory("page-").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            let owner = format!("uid {OTHER_USER} owns {}", temporary.path().display());
            assert!(error.message().contains(&owner), "{error}");
            assert!(error.to_line().contains("set TMPDIR"), "{error}");
        }
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
    }

    #[test]
    fn directory_that_others_can_write_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let chmod = |mode| {
            fs::set_permissions(temporary.path(), Permissions::from_mode(mode)).unwrap();
            temporary_root(temporary.path())
                .create_directory("edit-")
                .is_ok()
        };
        assert!(!chmod(0o777));
        assert!(chmod(0o1777), "sticky, as /tmp");
        assert!(chmod(0o700));
    }

    #[test]
    fn planted_object_is_not_read_as_own_file() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary_root(temporary.path())
            .create_directory("edit-")
            .unwrap();
        let name = OsStr::new("copy.md");
        let path = directory.create_file(name, b"typed\n").unwrap();
        assert_eq!(directory.read_file(name, 10).unwrap(), b"typed\n");
        // By the handle, whatever has the path now.
        let moved = temporary.path().join("moved");
        fs::rename(directory.path(), &moved).unwrap();
        fs::create_dir(directory.path()).unwrap();
        fs::write(&path, "planted\n").unwrap();
        assert_eq!(directory.read_file(name, 10).unwrap(), b"typed\n");
        let own = moved.join(name);
        if chown(&own, Some(OTHER_USER), None).is_ok() {
            let error = directory.read_file(name, 10).unwrap_err();
            assert!(error.to_string().contains("uid 4711 owns it"), "{error}");
        }
        fs::remove_file(&own).unwrap();
        symlink(&path, &own).unwrap();
        let error = directory.read_file(name, 10).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
