//! The search for directories of agents that left the config.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, DirEntry, FileType};
use rustix::io::Errno;

use crate::archive::{PROGRAM_DIRECTORY_NAME, is_quarantine_directory, parse_entry_name};
use crate::base::durable;
use crate::base::error::{PathContext, Result};

/// Maximum depth of the search.
pub(super) const MAX_SEARCH_DEPTH: usize = 32;

/// Lists the directories below `root` that are neither claimed nor the program's own, also those below
/// claimed ones, without their quarantines. Does not follow symlinks.
///
/// # Errors
/// The system's error.
pub(super) fn find_unclaimed(
    root: &Path,
    is_claimed: &dyn Fn(&Path) -> bool,
) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let path = root.join(&directory);
        let opened = match durable::open_directory_errno(&path) {
            // Removed since it was listed, or of another user.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
        };
        if has_no_subdirectory(&opened) {
            continue;
        }
        for item in fs::Dir::read_from(&opened).with_path("list", &path)? {
            let item = item.with_path("list", &path)?;
            if !is_subdirectory(&opened, &item) {
                continue;
            }
            let name = OsStr::from_bytes(item.file_name().to_bytes());
            let below = directory.join(name);
            let is_own = below == Path::new(PROGRAM_DIRECTORY_NAME);
            let is_quarantine = is_quarantine_directory(&below);
            if is_own || is_quarantine || below.components().count() > MAX_SEARCH_DEPTH {
                continue;
            }
            if !is_claimed(&below) {
                found.insert(below.clone());
            }
            open.push(below);
        }
    }
    Ok(found)
}

/// File systems on which a directory has a link for its name, one for `.`, and one for each
/// subdirectory: ext2 to ext4, XFS and tmpfs (`EXT4_SUPER_MAGIC` and others in linux/magic.h).
const COUNTING_FILE_SYSTEMS: [i64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// Whether it is known, without a list of its names, that a directory has no subdirectory: a list of
/// thousands of entries takes long.
fn has_no_subdirectory(directory: &OwnedFd) -> bool {
    let is_alone = fs::fstat(directory).is_ok_and(|stat| stat.st_nlink == 2);
    let is_counted = |it: fs::StatFs| COUNTING_FILE_SYSTEMS.contains(&it.f_type);
    is_alone && fs::fstatfs(directory).is_ok_and(is_counted)
}

/// Returns whether an item of a directory is a directory, and not the item of itself or its parent.
fn is_subdirectory(directory: &OwnedFd, item: &DirEntry) -> bool {
    let name = item.file_name();
    let kind = match item.file_type() {
        // Some file systems list no types. An entry's name need not be looked up.
        FileType::Unknown if name.to_str().is_ok_and(|it| parse_entry_name(it).is_some()) => {
            FileType::RegularFile
        }
        FileType::Unknown => fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode)),
        kind => kind,
    };
    kind == FileType::Directory && !matches!(name.to_bytes(), b"." | b"..")
}
