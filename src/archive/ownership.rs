//! Checks of owner and mode of the archive's directories.

use std::path::Path;

use rustix::fs::Stat;

use super::Archive;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};

impl Archive {
    /// Checks owner and mode of a directory below `archive_dir`, as runs do. Accepts one that
    /// cannot be opened: runs report it themselves.
    ///
    /// # Errors
    /// The reason why runs refuse the directory.
    pub fn check_owner(&self, path: &Path) -> Result<()> {
        let path = if path.as_os_str().is_empty() {
            self.root().to_path_buf()
        } else {
            self.root().join(path)
        };
        match durable::open_directory_errno(&path) {
            Ok(directory) => {
                let stat = rustix::fs::fstat(&directory).with_path("stat", &path)?;
                check_directory_owner(&stat, &path)
            }
            Err(_) => Ok(()),
        }
    }
}

/// Refuses a directory of the archive that belongs to neither this user nor root, or that every
/// user can write: records there decide which files a run reads, replaces and removes. A sticky bit
/// does not help, since others can create names there. Accepts one that its group can write.
pub(super) fn check_directory_owner(stat: &Stat, path: &Path) -> Result<()> {
    let us = rustix::process::geteuid().as_raw();
    let path = path.display();
    let (why, hint) = if ![0, us].contains(&stat.st_uid) {
        let owner = stat.st_uid;
        (
            format!("belongs to user {owner}"),
            format!(
                "run as that user (sudo -u '#{owner}'), or change its owner: chown -R {us} {path}"
            ),
        )
    } else if stat.st_mode & 0o002 != 0 {
        let hint = if stat.st_mode & 0o1000 == 0 {
            format!("chmod o-w {path}")
        } else {
            "keep the archive in a directory of its own".to_string()
        };
        ("is writable by every user".to_string(), hint)
    } else {
        return Ok(());
    };
    let message = format!("{path}, a directory of the archive, {why}");
    Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
}

/// Returns whether this process may change owner and mode: it runs as root or owns the object.
pub(super) fn may_change_owner_and_mode(stat: &Stat) -> bool {
    let us = rustix::process::geteuid();
    us.is_root() || stat.st_uid == us.as_raw()
}
