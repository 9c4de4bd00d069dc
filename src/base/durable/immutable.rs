//! The immutable flag of a file (`chattr +i`): whether it is set, and saves in spite of it. No path
//! leads through a symlink, and the flag is set again in the directory in which it was cleared.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, IFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{open_directory, open_directory_errno};
use crate::base::error::{PathContext, Result};
use crate::base::invocation::quote_operand;

/// A file whose flag was cleared for a moment. [`ClearedFlag::set_again`] ends that; so does a drop,
/// which reports no error.
pub struct ClearedFlag {
    directory: OwnedFd,
    path: PathBuf,
    is_cleared: bool,
}

/// Returns whether a file is immutable. A file system without such flags, and a file that cannot be
/// opened, have none.
pub fn is_immutable(path: &Path) -> bool {
    let Some(Ok(directory)) = path.parent().map(open_directory_errno) else {
        return false;
    };
    let flags = open(&directory, path).and_then(|file| fs::ioctl_getflags(&file));
    flags.is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}

/// Clears the flag of a file, which needs the capability `CAP_LINUX_IMMUTABLE`.
///
/// # Errors
/// The system's error.
pub fn clear_immutable(path: &Path) -> Result<ClearedFlag> {
    let directory = open_directory(path.parent().unwrap_or(path))?;
    change_flag(&directory, path, false).map_err(|error| error.with_hint(flag_commands(path)))?;
    Ok(ClearedFlag {
        directory,
        path: path.to_path_buf(),
        is_cleared: true,
    })
}

/// Returns the commands that clear the flag of a file for a save, as a hint.
pub fn flag_commands(path: &Path) -> String {
    let path = quote_operand(path);
    format!("as root, `chattr -i {path}` before the save and `chattr +i {path}` after it")
}

impl ClearedFlag {
    /// Sets the flag of the file that has the name now, in the directory that was opened before.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_again(mut self) -> Result<()> {
        self.is_cleared = false;
        change_flag(&self.directory, &self.path, true)
    }
}

impl Drop for ClearedFlag {
    fn drop(&mut self) {
        if self.is_cleared {
            let _ = change_flag(&self.directory, &self.path, true);
        }
    }
}

fn open(directory: &OwnedFd, path: &Path) -> rustix::io::Result<File> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(directory, name, flags, Mode::empty()).map(File::from)
}

fn change_flag(directory: &OwnedFd, path: &Path, is_immutable: bool) -> Result<()> {
    let file = open(directory, path).with_path("open", path)?;
    let mut flags = fs::ioctl_getflags(&file).with_path("read the flags of", path)?;
    flags.set(IFlags::IMMUTABLE, is_immutable);
    let verb = if is_immutable {
        "make immutable"
    } else {
        "clear the immutable flag of"
    };
    fs::ioctl_setflags(&file, flags).with_path(verb, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_behind_a_symlink_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("foreign")).unwrap();
        std::fs::write(root.join("foreign/a.md"), "x").unwrap();
        std::os::unix::fs::symlink("foreign", root.join("sub")).unwrap();
        let path = root.join("sub/a.md");
        assert!(!is_immutable(&path));
        let error = clear_immutable(&path).err().unwrap();
        assert!(error.message().contains("symlink"), "{error}");
    }
}
