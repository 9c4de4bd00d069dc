//! The file system of the archive: its space, its inodes, and whether it can be written. The archive's
//! directory may not exist yet; then the one above it counts.

use std::path::Path;

use rustix::fs::{self, StatVfs, StatVfsMountFlags};
use serde::Serialize;

use crate::base::error::{Error, ErrorKind};

/// Space on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes that are in use or that this user may still write: as in the percentage of `df`,
    /// without those that are reserved for root.
    pub total_bytes: u64,
}

impl DiskSpace {
    /// Returns how much of the file system of `archive_dir` is free; `None` if it does not say.
    pub fn of(root: &Path) -> Option<DiskSpace> {
        let statvfs = find_status(root)?;
        let used_blocks = statvfs.f_blocks.saturating_sub(statvfs.f_bfree);
        let total_blocks = used_blocks.saturating_add(statvfs.f_bavail);
        Some(DiskSpace {
            free_bytes: statvfs.f_bavail.saturating_mul(statvfs.f_frsize),
            total_bytes: total_blocks.saturating_mul(statvfs.f_frsize),
        })
    }
}

/// Returns why no run can write the archive at `archive_dir`, if its file system is read-only.
pub fn read_only_error(root: &Path) -> Option<Error> {
    if !find_status(root)?
        .f_flag
        .contains(StatVfsMountFlags::RDONLY)
    {
        return None;
    }
    let message = format!("{} is on a read-only file system", root.display());
    Some(Error::new(ErrorKind::Host, message).with_hint(
        "remount it for writing; the kernel may have made it read-only after an error: see dmesg",
    ))
}

/// Returns how many more files this user can create on the file system of `archive_dir`; none if it
/// has no fixed number.
pub fn free_inodes(root: &Path) -> Option<u64> {
    let statvfs = find_status(root)?;
    (statvfs.f_files > 0).then_some(statvfs.f_favail)
}

fn find_status(root: &Path) -> Option<StatVfs> {
    root.ancestors().find_map(|it| fs::statvfs(it).ok())
}
