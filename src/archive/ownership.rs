//! Whose files and directories of the archive are.

use std::path::Path;

use rustix::fs::Stat;

use super::Archive;
use crate::durable::{self, PathWalk};
use crate::error::{Error, ErrorKind, PathContext, Result};

impl Archive {
    /// Refuses a directory below `archive_dir` as runs do, which rely on what is in it. One
    /// that cannot be opened is fine: runs say so themselves.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check_owner(&self, path: &Path) -> Result<()> {
        let path = match path.as_os_str().is_empty() {
            true => self.root().to_path_buf(),
            false => self.root().join(path),
        };
        match durable::open_directory_errno(&path, PathWalk::Openat2) {
            Ok(directory) => {
                let stat = rustix::fs::fstat(&directory).with_path("look at", &path)?;
                check_directory_owner(&stat, &path)
            }
            Err(_) => Ok(()),
        }
    }
}

/// Refuses a directory of the archive that somebody else can change: by what a record
/// there says, runs read, replace and remove files.
pub(super) fn check_directory_owner(stat: &Stat, path: &Path) -> Result<()> {
    let us = rustix::process::geteuid().as_raw();
    let path = path.display();
    let (why, hint) = if ![0, us].contains(&stat.st_uid) {
        let owner = stat.st_uid;
        (
            format!("belongs to user {owner}"),
            format!("run as that user (sudo -u '#{owner}'), or take it over: chown -R {us} {path}"),
        )
    } else if stat.st_mode & 0o1002 == 0o002 {
        (
            "can be written by every user".to_string(),
            format!("chmod o-w {path}"),
        )
    } else {
        return Ok(());
    };
    let message = format!("{path}, a directory of the archive, {why}");
    Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
}

pub(super) fn may_change_owner_and_mode(stat: &Stat) -> bool {
    let us = rustix::process::geteuid();
    us.is_root() || stat.st_uid == us.as_raw()
}
