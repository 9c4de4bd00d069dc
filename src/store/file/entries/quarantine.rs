//! The release of entries from quarantine.
//!
//! An entry begins there before its content is scanned. One without findings is released: it gets
//! its usual mode and a name among the other entries, and loses the one in the quarantine once the
//! ledger has recorded the new one.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use super::ENTRY_OPEN_FLAGS;
use super::draft::next_free_number;
use crate::archive::{
    Archive, WrittenEntry, agent_directory_of, format_entry_name, parse_entry_name,
};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::entries::not_an_entry_error;

/// Maximum number of names that a release tries.
const MAX_RELEASE_ATTEMPTS: usize = 64;

/// Gives an entry in quarantine its usual mode and a name among the other entries.
///
/// # Errors
/// The system's error; the entry is then in quarantine alone.
pub(super) fn release(archive: &Archive, written: &WrittenEntry) -> Result<WrittenEntry> {
    let entry = &written.path;
    let name = entry.file_name().and_then(|name| name.to_str());
    let stamp = name.and_then(parse_entry_name);
    let (Some(name), Some((stamp, ..))) = (name, stamp) else {
        return Err(not_an_entry_error(entry));
    };
    let subdir = agent_directory_of(entry);
    let source_path = archive.root().join(entry.parent().unwrap_or(subdir));
    let source = durable::open_directory(&source_path)?;
    let target_path = archive.root().join(subdir);
    let target = archive.open_or_create_directory(subdir)?;
    let path = source_path.join(name);
    let file = fs::openat(&source, name, ENTRY_OPEN_FLAGS, Mode::empty());
    let file = file.with_path("open", &path)?;
    let stat = fs::fstat(&file).with_path("stat", &path)?;
    let id = (stat.st_dev, stat.st_ino);
    // The directory keeps others out until the entry has its other name.
    let mode = archive.permissions().entry_mode();
    archive.permissions().apply(&file, mode, &target_path)?;
    fs::fsync(&file).with_path("sync", &path)?;
    let mut number = 0;
    for _ in 0..MAX_RELEASE_ATTEMPTS {
        let new_name = format_entry_name(stamp, written.kind, number);
        match fs::linkat(&source, name, &target, &new_name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::EXIST) if file_id_at(&target, &target_path, &new_name)? == Some(id) => {}
            Err(Errno::EXIST) => {
                let next = next_free_number(number, |number| {
                    let name = format_entry_name(stamp, written.kind, number);
                    let found = file_id_at(&target, &target_path, &name)?;
                    Ok(found.is_some_and(|found| found != id))
                })?;
                match next {
                    Some(next) => number = next,
                    None => break,
                }
                continue;
            }
            Err(errno) => {
                return Err(errno).with_path("create", &target_path.join(new_name));
            }
        }
        fs::fsync(&target).with_path("sync", &target_path)?;
        return Ok(WrittenEntry {
            path: subdir.join(new_name),
            ..written.clone()
        });
    }
    let message = format!("no free entry name in {}", target_path.display());
    Err(Error::new(ErrorKind::Host, message))
}

/// Returns device and inode of a name in a directory, whose whole path is for errors; none without
/// such a name.
fn file_id_at(directory: impl AsFd, path: &Path, name: &str) -> Result<Option<(u64, u64)>> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno).with_path("stat", &path.join(name)),
    }
}
