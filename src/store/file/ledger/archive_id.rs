//! The id of an archive: the digest of the first record of its ledger, to which every later record is
//! chained, in whichever file it is.
//!
//! `<archive_dir>/.shepherd/archive-id` has it, too, from the time on when compaction moves that record
//! to a segment: damage to a segment then hides no archive.

use std::path::Path;

use super::files::LedgerFiles;
use super::locked::LEDGER_FILE_NAME;
use super::scan::FileLedgerScan;
use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::Result;
use crate::store::ledger::LedgerScan;
use crate::store::record::LedgerPosition;

/// The file in the program's directory.
pub(super) const ARCHIVE_ID_FILE_NAME: &str = "archive-id";

/// Returns the id of the archive at a path; none without a record. Where the segment with the first
/// record cannot be read, the file says it.
///
/// # Errors
/// The ledger cannot be read.
pub fn read_archive_id(root: &Path) -> Result<Option<Digest>> {
    let directory = root.join(PROGRAM_DIRECTORY_NAME);
    let files = LedgerFiles::open(&directory.join(LEDGER_FILE_NAME))?;
    let mut scan = FileLedgerScan::new(files, LedgerPosition::default());
    match scan.next_record() {
        Ok(None) => Ok(None),
        Ok(Some(_)) => Ok(Some(scan.position().line_digest)),
        Err(error) if scan.skip_unreadable() => read_id_file(&directory.join(ARCHIVE_ID_FILE_NAME))
            .map_or(Err(error), |id| Ok(Some(id))),
        Err(error) => Err(error),
    }
}

fn read_id_file(path: &Path) -> Option<Digest> {
    let text = durable::read_own_file(path).ok()?;
    str::from_utf8(&text).ok()?.trim_end().parse().ok()
}
