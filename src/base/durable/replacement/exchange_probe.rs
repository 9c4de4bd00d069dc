//! Whether a file system can exchange two names, tried with two files.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use super::ReplacementNames;
use super::leftovers::remove_replacement_leftovers;
use crate::base::digest::Digest;
use crate::base::durable::{NewFile, open_directory};
use crate::base::error::{PathContext, Result};
use crate::base::sys;

/// What the names of the two files say that they belong to.
const PROBE_NAME: &str = "exchange probe";

/// The content of both files, by which a later probe recognizes what a killed one has left.
const PROBE_CONTENT: &[u8] = b"memory-shepherd tries to exchange two files\n";

/// Returns whether two files of a directory can be exchanged. Removes what an earlier probe has left that
/// was killed.
///
/// # Errors
/// The files cannot be created.
pub fn can_exchange_files(path: &Path) -> Result<bool> {
    let directory = Arc::new(open_directory(path)?);
    remove_replacement_leftovers(&directory, [OsStr::new(PROBE_NAME)]);
    let names = ReplacementNames::describing(PROBE_NAME.as_ref(), None, Digest::of(PROBE_CONTENT))?;
    let ReplacementNames([one, unfinished, two]) = names;
    // Locked, so that another probe spares them.
    let mut files = Vec::new();
    for name in [&one, &two] {
        let (mode, unfinished) = (Mode::RUSR | Mode::WUSR, || Ok(unfinished.clone()));
        let mut file = NewFile::create_with_options(&directory, path, mode, unfinished, true)?;
        let _ = sys::try_lock(file.file().as_fd());
        file.write(PROBE_CONTENT)?;
        file.link_as(OsStr::new(name))?;
        files.push(file);
    }
    let inode = |name: &String| {
        let stat = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| stat.st_ino)
    };
    let before = inode(&one);
    let exchanged = fs::renameat_with(&directory, &one, &directory, &two, RenameFlags::EXCHANGE);
    let has_moved = before.is_ok() && before == inode(&two);
    for name in [&one, &two] {
        let _ = fs::unlinkat(&directory, name, AtFlags::empty());
    }
    match exchanged {
        Ok(()) => Ok(has_moved),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno).with_path("try to exchange two files in", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_exchange_probe_leaves_nothing_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let names = || {
            let name = PROBE_NAME.as_ref();
            ReplacementNames::describing(name, None, Digest::of(PROBE_CONTENT)).unwrap()
        };
        let (ReplacementNames([one, ..]), ReplacementNames([.., two])) = (names(), names());
        let other = crate::base::durable::new_random_name().unwrap();
        for name in [&one, &two, &other] {
            std::fs::write(directory.path().join(name), PROBE_CONTENT).unwrap();
        }
        can_exchange_files(directory.path()).unwrap();
        let left = std::fs::read_dir(directory.path()).unwrap();
        let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, [OsStr::new(&other)]);
    }
}
