//! Unguessable names of files in work, and the removal of those that killed runs left.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use super::path_walk::open_directory_errno;
use crate::base::digest::to_hex;
use crate::base::error::{PathContext, Result};

/// The age from which a file with a random name is stale: no run works on one for that long.
const STALE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The prefix of random names, and how many hexadecimal digits follow it.
pub(super) const RANDOM_NAME_PREFIX: &str = ".shepherd-";
const RANDOM_NAME_DIGITS: usize = 32;

/// Removes files with random names that runs killed long before `now` have left in a directory that
/// only this program writes, and returns how many. It spares the names that `find_named` returns.
/// `find_named` is called after the listing: a file that is named later is not in the listing, and
/// a file that is named already is among those names.
///
/// # Errors
/// A directory that cannot be listed. A directory that does not exist, or that only a symlink leads
/// to, holds no such files, because no run ever wrote there.
pub fn remove_stale_files(
    path: &Path,
    now: SystemTime,
    find_named: impl FnOnce() -> Result<HashSet<String>>,
) -> Result<usize> {
    let directory = match open_directory_errno(path) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(0),
        directory => directory.with_path("open the directory", path)?,
    };
    let mut stale = list_stale_files(&directory, path, now)?;
    if stale.is_empty() {
        return Ok(0);
    }
    let named = find_named()?;
    stale.retain(|name| !named.contains(name));
    let mut removed = 0;
    for name in stale {
        match fs::unlinkat(&directory, &name, AtFlags::empty()) {
            Ok(()) => removed += 1,
            // Another run has removed it.
            Err(Errno::NOENT) => {}
            Err(errno) => Err(errno).with_path("remove", &path.join(name))?,
        }
    }
    Ok(removed)
}

/// Lists the regular files with random names that were last modified before `now` minus
/// [`STALE_AGE`].
fn list_stale_files(directory: &OwnedFd, path: &Path, now: SystemTime) -> Result<Vec<String>> {
    let limit = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| {
        now.saturating_sub(STALE_AGE).as_secs().min(i64::MAX as u64) as i64
    });
    let mut stale = Vec::new();
    for entry in fs::Dir::read_from(directory).with_path("list", path)? {
        let entry = entry.with_path("list", path)?;
        let name = str::from_utf8(entry.file_name().to_bytes());
        let Some(name) = name.ok().filter(|name| is_random_name(name)) else {
            continue;
        };
        let stat = match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat.with_path("stat", &path.join(name))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if file && stat.st_mtime < limit {
            stale.push(name.to_string());
        }
    }
    Ok(stale)
}

/// Returns every random name that occurs in a text.
pub fn find_random_names(text: &[u8]) -> HashSet<String> {
    text.windows(RANDOM_NAME_PREFIX.len() + RANDOM_NAME_DIGITS)
        .filter(|window| window.starts_with(RANDOM_NAME_PREFIX.as_bytes()))
        .filter_map(|window| str::from_utf8(window).ok())
        .filter(|name| is_random_name(name))
        .map(str::to_string)
        .collect()
}

/// Whether a name has the form of those that [`new_random_name`] returns.
pub fn is_random_name(name: &str) -> bool {
    let digits = name.strip_prefix(RANDOM_NAME_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == RANDOM_NAME_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Returns an unguessable dot name. It does not end in `.md`, because agents watch and index such
/// files.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn new_random_name() -> Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .with_path("read random bytes from", Path::new("the kernel"))?;
    Ok(format!("{RANDOM_NAME_PREFIX}{}", to_hex(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_names_are_found_in_any_text() {
        let (one, two) = (new_random_name().unwrap(), new_random_name().unwrap());
        let text = format!("{one}{two}-copy {{\"staged\":\"{one}\"}} .shepherd-12 \u{e9}");
        assert_eq!(
            find_random_names(text.as_bytes()),
            HashSet::from([one, two])
        );
        assert_eq!(find_random_names(b".shepherd-"), HashSet::new());
    }
}
