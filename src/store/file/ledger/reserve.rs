//! The reserve of a ledger: space on its disk that is released when a full disk has none left for
//! the record of a deletion. The record precedes the deletion, so a full disk could not be emptied
//! without it.
//!
//! `<archive_dir>/.shepherd/ledger.reserve` holds nothing of use and can be deleted at any time. The
//! end of a run makes it again as soon as the disk has space for more than that. It is not synced: after
//! a power cut it may be shorter, which the next run corrects.

use std::fs::OpenOptions;
use std::io::{self, Write};

use rustix::rand::{GetRandomFlags, getrandom};

use super::locked::{LEDGER_FILE_NAME, LockedLedger};
use crate::archive::{Archive, DiskSpace};
use crate::base::durable;
use crate::base::error::{PathContext, Result};

/// Name of the reserve in the program's own directory.
const RESERVE_FILE_NAME: &str = "ledger.reserve";

/// Size of the reserve. It has space for one record of a deletion.
const RESERVE_BYTES: u64 = 64 << 10;

/// Number of random bytes that the kernel always returns whole, as in getrandom(2).
const UNINTERRUPTED_BYTES: usize = 256;

/// How much of the disk has to be free before the reserve takes its part: entries need it more.
const MIN_FREE_BYTES: u64 = 8 * RESERVE_BYTES;

/// Returns whether a ledger has no reserve although its disk has space for it.
pub fn is_reserve_due(archive: &Archive) -> bool {
    let length = |name| {
        let meta = std::fs::symlink_metadata(archive.program_path(name));
        meta.ok().map(|meta| meta.len())
    };
    length(RESERVE_FILE_NAME).is_none_or(|length| length < RESERVE_BYTES)
        && length(LEDGER_FILE_NAME).is_some()
        && DiskSpace::of(archive.root()).is_some_and(|disk| disk.free_bytes >= MIN_FREE_BYTES)
}

/// Writes the reserve of a locked ledger.
///
/// # Errors
/// The system's error: there is no reserve then.
pub fn write_reserve(archive: &Archive, _locked: &LockedLedger) -> Result<()> {
    let path = archive.program_path(RESERVE_FILE_NAME);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = archive.permissions().open_own_file(&path, &mut options)?;
    // A file system that compresses would store zeros without taking space for them.
    let written = random_bytes(RESERVE_BYTES as usize)
        .and_then(|bytes| file.write_all(&bytes))
        .with_path("write", &path);
    if written.is_err() {
        // A part of it only wastes space.
        let _ = file.set_len(0);
    }
    written
}

fn random_bytes(count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    for chunk in bytes.chunks_mut(UNINTERRUPTED_BYTES) {
        getrandom(chunk, GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Releases the space of the reserve of a locked ledger. Returns false if there was none.
pub(super) fn release_reserve(archive: &Archive, _locked: &LockedLedger) -> bool {
    let path = archive.program_path(RESERVE_FILE_NAME);
    let file = durable::open_own_file(&path, OpenOptions::new().write(true));
    file.is_ok_and(|file| {
        let had_space = file.metadata().is_ok_and(|meta| meta.len() > 0);
        had_space && file.set_len(0).is_ok()
    })
}
