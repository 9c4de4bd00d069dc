//! The immutable flag of a file (`chattr +i`): whether it is set, and saves in spite of it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{self, IFlags, Mode, OFlags};

use crate::error::{PathContext, Result};

/// A file whose flag was cleared for a moment. [`ClearedFlag::set_again`] ends that; so does a drop,
/// which reports no error.
pub struct ClearedFlag {
    path: PathBuf,
    is_cleared: bool,
}

/// Returns whether a file is immutable. A file system without such flags, and a file that cannot be
/// opened, have none.
pub fn is_immutable(path: &Path) -> bool {
    let flags = open(path).and_then(|file| fs::ioctl_getflags(&file));
    flags.is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}

/// Clears the flag of a file, which needs the capability `CAP_LINUX_IMMUTABLE`.
///
/// # Errors
/// The system's error.
pub fn clear_immutable(path: &Path) -> Result<ClearedFlag> {
    change_flag(path, false).map_err(|error| {
        let path = path.display();
        error.with_hint(format!(
            "as root, `chattr -i {path}` before the save and `chattr +i {path}` after it"
        ))
    })?;
    Ok(ClearedFlag {
        path: path.to_path_buf(),
        is_cleared: true,
    })
}

impl ClearedFlag {
    /// Sets the flag of the file that is at the path now.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_again(mut self) -> Result<()> {
        self.is_cleared = false;
        change_flag(&self.path, true)
    }
}

impl Drop for ClearedFlag {
    fn drop(&mut self) {
        if self.is_cleared {
            let _ = change_flag(&self.path, true);
        }
    }
}

fn open(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty()).map(File::from)
}

fn change_flag(path: &Path, is_immutable: bool) -> Result<()> {
    let file = open(path).with_path("open", path)?;
    let mut flags = fs::ioctl_getflags(&file).with_path("read the flags of", path)?;
    flags.set(IFlags::IMMUTABLE, is_immutable);
    let verb = if is_immutable {
        "make immutable"
    } else {
        "clear the immutable flag of"
    };
    fs::ioctl_setflags(&file, flags).with_path(verb, path)
}
