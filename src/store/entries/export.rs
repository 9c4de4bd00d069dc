//! Export of entries: exact copies outside the archive, with checksums.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::Mode;

use crate::archive::ArchiveEntry;
use crate::base::digest::{Digest, Hasher, format_checksum_line};
use crate::base::durable::OperatorDirectory;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::entries::Entries;

/// Mode of exported entries and checksums.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Name of the checksums beside exported entries, in the format of sha256sum.
const CHECKSUMS_FILE_NAME: &str = "SHA256SUMS";

/// What an export wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// The entries with their digests, in the order of the checksums.
    pub entries: Vec<(PathBuf, Digest)>,
    /// Number of bytes of all entries.
    pub bytes: u64,
}

impl dyn Entries + '_ {
    /// Copies entries into a new or an empty directory at an absolute path, with their paths below `archive_dir`
    /// and their times, readable by the operator alone. `SHA256SUMS` there fits `sha256sum --check`.
    ///
    /// # Errors
    /// The directory is in the archive, exists and is not empty, belongs to or can be written by
    /// another user, or cannot be created; or an entry cannot be read. What was written until then stays.
    pub fn export_entries(&self, entries: &[ArchiveEntry], to: &Path) -> Result<ExportReport> {
        let directory = self.create_export_directory(to)?;
        let mut report = ExportReport::default();
        for entry in entries {
            // sha256sum writes names as they are, and a line of text cannot.
            if entry.path.to_str().is_none() {
                let message = format!("the path {} is not UTF-8", entry.path.display());
                return Err(
                    Error::new(ErrorKind::Conflict, message).with_hint("copy this entry by hand")
                );
            }
            let parent = entry.path.parent().unwrap_or(Path::new(""));
            let parent = directory.open_or_create_below(parent, Mode::RWXU)?;
            let name = entry.path.file_name().unwrap_or_default();
            let (digest, size) = self.copy_entry(entry, &parent, name)?;
            report.entries.push((entry.path.clone(), digest));
            report.bytes += size;
        }
        report.entries.sort();
        report.entries.dedup();
        let mut sums = String::new();
        for (path, digest) in &report.entries {
            sums.push_str(&format_checksum_line(&path.to_string_lossy(), *digest));
        }
        directory.create_file(CHECKSUMS_FILE_NAME.as_ref(), sums.as_bytes(), FILE_MODE)?;
        Ok(report)
    }

    /// Copies the entry at a path below `archive_dir` to a new file at an absolute path, with its
    /// time, readable by the operator alone. Returns the digest and the number of bytes.
    ///
    /// # Errors
    /// The entry does not exist; the file is in the archive, exists, or cannot be created; or the
    /// entry cannot be read. Then there is no new file.
    pub fn export_entry(&self, entry: &Path, to: &Path) -> Result<(Digest, u64)> {
        let found = self.find_typed(entry)?;
        let (directory, name) = OperatorDirectory::open_parent(to)?;
        let target = directory.path().join(name);
        self.refuse_place_in_archive(&target, "name a file outside of archive_dir")?;
        self.copy_entry(&found, &directory, name)
    }

    /// Refuses an export into the archive: a copy there would be taken for an entry.
    fn refuse_place_in_archive(&self, to: &Path, hint: &str) -> Result<()> {
        match self.resolve_typed(to) {
            Some(_) => {
                let message = format!("{} is in the archive", to.display());
                Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
            }
            None => Ok(()),
        }
    }

    fn create_export_directory(&self, to: &Path) -> Result<OperatorDirectory> {
        self.refuse_place_in_archive(to, "name a directory outside of archive_dir")?;
        // Its parents are not created: where they end is known before anything is written.
        if let Some(parent) = to.parent() {
            OperatorDirectory::open(parent)?;
        }
        let directory = OperatorDirectory::open_or_create(to, Mode::RWXU)?;
        self.refuse_place_in_archive(directory.path(), "name a directory outside of archive_dir")?;
        directory.check_own_and_empty()?;
        Ok(directory)
    }

    /// Copies an entry to a new file, with its time.
    fn copy_entry(
        &self,
        entry: &ArchiveEntry,
        directory: &OperatorDirectory,
        name: &OsStr,
    ) -> Result<(Digest, u64)> {
        let mut copy = directory.new_file(FILE_MODE)?;
        let mut source = self.open(&entry.path)?;
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let count = source.read(&mut buffer).with_path("read", &entry.path)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            copy.write(&buffer[..count])?;
            size += count as u64;
        }
        let modified = u64::try_from(entry.modified).unwrap_or_default();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
        let set = copy.file().set_modified(modified);
        set.with_path("set the time of", &directory.path().join(name))?;
        directory.link_new_file(copy, name)?;
        Ok((hasher.finish(), size))
    }
}
