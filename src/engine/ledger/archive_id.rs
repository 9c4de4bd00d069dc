//! The id of an archive: the digest of the first record of its ledger, to which every later record is
//! chained, in whichever file it is.

use std::path::Path;

use super::files::LedgerFiles;
use super::index::LedgerIndex;
use super::locked::LEDGER_FILE_NAME;
use super::scan::LedgerScan;
use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::digest::Digest;
use crate::engine::record::LedgerPosition;
use crate::error::{ErrorKind, Result};

/// Mode of entries of an archive that only reads.
const UNUSED_MODE: u32 = 0o600;

/// Returns the id of the archive at a path; none without a record. Where the segment with the first
/// record is damaged, the ledger's index says it.
///
/// # Errors
/// The ledger cannot be read.
pub fn read_archive_id(root: &Path) -> Result<Option<Digest>> {
    let path = root.join(PROGRAM_DIRECTORY_NAME).join(LEDGER_FILE_NAME);
    let files = LedgerFiles::open(&path)?;
    let mut scan = LedgerScan::new(files.clone(), LedgerPosition::default());
    match scan.next_record() {
        Ok(None) => Ok(None),
        Ok(Some(_)) => Ok(Some(scan.position().line_digest)),
        Err(error) if error.kind() == ErrorKind::Integrity => {
            let archive = Archive::new(root, UNUSED_MODE, None);
            let index = LedgerIndex::read(&archive, &files);
            let id = index.and_then(|index| index.first_digest());
            id.map_or(Err(error), |id| Ok(Some(id)))
        }
        Err(error) => Err(error),
    }
}
