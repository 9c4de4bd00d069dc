//! Free names of entries in a directory.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use crate::base::error::{PathContext, Result};

/// Maximum number of times that another run may take a free name before this one fails.
const MAX_NAME_ATTEMPTS: usize = 64;

/// Takes the first name that `link` can give, behind those that are taken; none where there is no free
/// one. `link` returns false for a name that is taken.
///
/// # Errors
/// That of `link` or `is_taken`.
pub(super) fn take_free_name(
    name: impl Fn(u32) -> String,
    mut link: impl FnMut(&str) -> Result<bool>,
    is_taken: impl Fn(&str) -> Result<bool>,
) -> Result<Option<String>> {
    let mut number = 0;
    for _ in 0..MAX_NAME_ATTEMPTS {
        let free = name(number);
        if link(&free)? {
            return Ok(Some(free));
        }
        let Some(next) = next_free_number(number, |number| is_taken(&name(number)))? else {
            break;
        };
        number = next;
    }
    Ok(None)
}

/// Returns a free number behind `last_taken`. Numbers of a minute are consecutive, so few lookups
/// are needed, however many there are.
pub(super) fn next_free_number(
    mut last_taken: u32,
    is_taken: impl Fn(u32) -> Result<bool>,
) -> Result<Option<u32>> {
    let mut step = 1;
    let mut free = loop {
        let Some(next) = last_taken.checked_add(step) else {
            return Ok(None);
        };
        if !is_taken(next)? {
            break next;
        }
        (last_taken, step) = (next, step.saturating_mul(2));
    };
    while free - last_taken > 1 {
        let middle = last_taken + (free - last_taken) / 2;
        if is_taken(middle)? {
            last_taken = middle;
        } else {
            free = middle;
        }
    }
    Ok(Some(free))
}

/// Returns device and inode of a name in a directory, whose whole path is for errors; none without
/// such a name.
pub(super) fn file_id_at(
    directory: impl AsFd,
    path: &Path,
    name: &str,
) -> Result<Option<(u64, u64)>> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno).with_path("stat", &path.join(name)),
    }
}
