//! Owner, modes and group of the archive's directories and files.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, Mode, Stat};

use super::{PROGRAM_DIRECTORY_NAME, is_quarantine_directory, quarantine};
use crate::base::durable::{self, NewFile};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::invocation::quote_operand;

/// Modes and group of the directories and files of an archive.
#[derive(Clone, Debug)]
pub struct Permissions {
    root: PathBuf,
    directory_mode: Mode,
    entry_mode: Mode,
    file_mode: Mode,
    group: Option<u32>,
}

impl Permissions {
    pub(super) fn new(root: &Path, entry_mode: u32, group: Option<u32>) -> Permissions {
        Permissions {
            root: root.to_path_buf(),
            directory_mode: Mode::from_raw_mode(if group.is_some() { 0o2750 } else { 0o700 }),
            entry_mode: Mode::from_raw_mode(entry_mode),
            file_mode: Mode::from_raw_mode(if group.is_some() { 0o640 } else { entry_mode }),
            group,
        }
    }

    /// Returns whether the members of a group can read the archive.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Mode of the program's own files, apart from those with words of entries.
    pub fn file_mode(&self) -> Mode {
        self.file_mode
    }

    /// Mode of entries, and of the program's own files with words of entries.
    pub fn entry_mode(&self) -> Mode {
        self.entry_mode
    }

    /// Checks owner and mode of a directory below `archive_dir`, as runs do. Accepts one that
    /// cannot be opened: runs report it themselves.
    ///
    /// # Errors
    /// The reason why runs refuse the directory.
    pub fn check_owner(&self, path: &Path) -> Result<()> {
        let path = if path.as_os_str().is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        };
        let Ok(directory) = durable::open_directory_errno(&path) else {
            return Ok(());
        };
        let stat = fs::fstat(&directory).with_path("stat", &path)?;
        check_directory_owner(&stat, &path)
    }

    /// Returns the mode of a directory; `path` is whole.
    pub(super) fn mode_of_directory(&self, path: &Path) -> Mode {
        if self.is_quarantine(path) {
            quarantine::DIRECTORY_MODE
        } else {
            self.directory_mode
        }
    }

    /// Returns whether a directory is a quarantine; `path` is whole.
    fn is_quarantine(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root)
            .is_ok_and(is_quarantine_directory)
    }

    /// Restores the mode of a directory. A run that was killed between creating the directory and
    /// setting its mode leaves one that lacks bits, and whose name may not be on the disk. Further
    /// bits are the operator's choice, except in the program's own directories and in quarantines,
    /// which have exactly their mode.
    pub(super) fn repair_directory(&self, directory: &OwnedFd, path: &Path) -> Result<()> {
        let Ok(relative_path) = path.strip_prefix(&self.root) else {
            return Ok(());
        };
        let stat = fs::fstat(directory).with_path("stat", path)?;
        check_directory_owner(&stat, path)?;
        let is_quarantine = is_quarantine_directory(relative_path);
        let (mode, wanted_mode) = (
            stat.st_mode & 0o7777,
            self.mode_of_directory(path).as_raw_mode(),
        );
        let is_lacking = mode & wanted_mode != wanted_mode
            || !is_quarantine && self.group.is_some_and(|group| group != stat.st_gid);
        let is_own = is_quarantine || relative_path.starts_with(PROGRAM_DIRECTORY_NAME);
        let repaired_mode = if is_own {
            wanted_mode
        } else {
            mode | wanted_mode
        };
        if may_change_owner_and_mode(&stat) && (is_lacking || mode != repaired_mode) {
            if is_lacking {
                durable::sync_directory_name(path)?;
            }
            self.apply(directory, Mode::from_raw_mode(repaired_mode), path)?;
        }
        Ok(())
    }

    /// Gives a directory of the archive, or a file of the program, its group and mode, because the
    /// umask may have cleared bits. A change of owner clears the set-group bit, so the mode follows
    /// it. A quarantine has no group.
    pub(crate) fn apply(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        if let Some(group) = self.group.filter(|_| !self.is_quarantine(path)) {
            let group = Some(fs::Gid::from_raw(group));
            fs::fchown(&file, None, group).with_path("give to archive_group", path)?;
        }
        fs::fchmod(file, mode).with_path("set the mode of", path)
    }

    /// Gives one of the program's own files its group and mode if it lacks them: it is new, or a
    /// run was killed before it set them.
    ///
    /// # Errors
    /// The system's error.
    pub fn repair_own_file(&self, file: impl AsFd, path: &Path) -> Result<()> {
        self.repair_file(file, self.file_mode, path)
    }

    /// Returns whether only its owner may open a file, or this process may not change its mode.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_private(&self, file: impl AsFd, path: &Path) -> Result<bool> {
        let stat = fs::fstat(&file).with_path("stat", path)?;
        Ok(stat.st_mode & 0o077 == 0 || !may_change_owner_and_mode(&stat))
    }

    /// Gives a file its group and a mode, if it lacks them.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn repair_file(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        let stat = fs::fstat(&file).with_path("stat", path)?;
        let is_right = stat.st_mode & 0o7777 == mode.as_raw_mode()
            && self.group.is_none_or(|group| group == stat.st_gid);
        if is_right || !may_change_owner_and_mode(&stat) {
            return Ok(());
        }
        self.apply(file, mode, path)
    }

    /// Opens one of the program's own files, and gives it its group and mode.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_own_file(&self, path: &Path, options: &mut OpenOptions) -> Result<File> {
        let options = options.mode(self.file_mode.as_raw_mode());
        let file = durable::open_own_file(path, options).with_path("open", path)?;
        self.repair_own_file(&file, path)?;
        Ok(file)
    }

    /// Creates one of the program's own files, which has no name yet, in the open directory at `path`.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_own_file(&self, directory: &Arc<OwnedFd>, path: &Path) -> Result<NewFile> {
        let file = NewFile::create(directory, path, self.file_mode)?;
        self.repair_own_file(file.file(), path)?;
        Ok(file)
    }
}

/// Refuses a directory of the archive that belongs to neither this user nor root, or that every
/// user can write: records there decide which files a run reads, replaces and removes. A sticky bit
/// does not help, since others can create names there. Accepts one that its group can write.
fn check_directory_owner(stat: &Stat, path: &Path) -> Result<()> {
    let us = rustix::process::geteuid().as_raw();
    let (path, operand) = (path.display(), quote_operand(path));
    let (why, hint) = if ![0, us].contains(&stat.st_uid) {
        let owner = stat.st_uid;
        (
            format!("belongs to user {owner}"),
            format!(
                "run as that user (sudo -u '#{owner}'), or change its owner: chown -R {us} {operand}"
            ),
        )
    } else if stat.st_mode & 0o002 != 0 {
        let hint = if stat.st_mode & 0o1000 == 0 {
            format!("chmod o-w {operand}")
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
fn may_change_owner_and_mode(stat: &Stat) -> bool {
    let us = rustix::process::geteuid();
    us.is_root() || stat.st_uid == us.as_raw()
}
