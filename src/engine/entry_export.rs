//! Export of entries: exact copies outside the archive, with checksums.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Engine;
use crate::archive::ArchiveEntry;
use crate::digest::{Digest, Hasher, format_checksum_line};
use crate::error::{Error, ErrorKind, PathContext, Result};

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

impl Engine {
    /// Copies entries into a new or an empty directory at an absolute path, with their paths below `archive_dir`
    /// and their times, readable by the operator alone. `SHA256SUMS` there fits `sha256sum --check`.
    ///
    /// # Errors
    /// The directory is in the archive, exists and is not empty, belongs to or can be written by
    /// another user, or cannot be created; or an entry cannot be read. What was written until then stays.
    pub fn export_entries(&self, entries: &[ArchiveEntry], to: &Path) -> Result<ExportReport> {
        self.create_export_directory(to)?;
        let mut report = ExportReport::default();
        for entry in entries {
            // sha256sum writes names as they are, and a line of text cannot.
            if entry.path.to_str().is_none() {
                let message = format!("the path {} is not UTF-8", entry.path.display());
                return Err(
                    Error::new(ErrorKind::Conflict, message).with_hint("copy this entry by hand")
                );
            }
            let target = to.join(&entry.path);
            if let Some(parent) = target.parent() {
                create_private_directories(parent)?;
            }
            let copy = create_private_file(&target)?;
            let (digest, size) = self.copy_entry(entry, copy, &target)?;
            report.entries.push((entry.path.clone(), digest));
            report.bytes += size;
        }
        report.entries.sort();
        report.entries.dedup();
        let mut sums = String::new();
        for (path, digest) in &report.entries {
            sums.push_str(&format_checksum_line(&path.to_string_lossy(), *digest));
        }
        let path = to.join(CHECKSUMS_FILE_NAME);
        let mut file = create_private_file(&path)?;
        file.write_all(sums.as_bytes()).with_path("write", &path)?;
        file.sync_all().with_path("sync", &path)?;
        Ok(report)
    }

    /// Copies the entry at a path below `archive_dir` to a new file at an absolute path, with its
    /// time, readable by the operator alone. Returns the digest and the number of bytes.
    ///
    /// # Errors
    /// The entry does not exist; the file is in the archive, exists, or cannot be created; or the
    /// entry cannot be read. Then there is no new file.
    pub fn export_entry(&self, entry: &Path, to: &Path) -> Result<(Digest, u64)> {
        let found = self.find_entry(entry)?;
        self.refuse_place_in_archive(to, "name a file outside of archive_dir")?;
        let copy = create_private_file(to)?;
        let copied = self.copy_entry(&found, copy, to);
        if copied.is_err() {
            // What fails is said by the error of the copy.
            let _ = fs::remove_file(to);
        }
        copied
    }

    /// Refuses an export into the archive: a copy there would be taken for an entry.
    fn refuse_place_in_archive(&self, to: &Path, hint: &str) -> Result<()> {
        match self.archive.resolve_typed_path(to) {
            Some(_) => {
                let message = format!("{} is in the archive", to.display());
                Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
            }
            None => Ok(()),
        }
    }

    fn create_export_directory(&self, to: &Path) -> Result<()> {
        self.refuse_place_in_archive(to, "name a directory outside of archive_dir")?;
        // Its parents are not created: where they end is known before anything is written.
        match fs::DirBuilder::new().mode(0o700).create(to) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::from_io("create", to, &error)),
        }
        let meta = fs::metadata(to).with_path("stat", to)?;
        let why = if meta.uid() != rustix::process::geteuid().as_raw() {
            Some("belongs to another user")
        } else if meta.mode() & 0o022 != 0 {
            Some("can be written by other users")
        } else {
            None
        };
        if let Some(why) = why {
            let message = format!("{} {why}, who could replace the entries", to.display());
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("name a directory that does not exist yet"));
        }
        let is_empty = fs::read_dir(to).with_path("list", to)?.next().is_none();
        if !is_empty {
            let message = format!("{} is not empty", to.display());
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("name a directory that does not exist yet"));
        }
        Ok(())
    }

    /// Copies an entry to a file that was just created at `target`.
    fn copy_entry(
        &self,
        entry: &ArchiveEntry,
        mut copy: fs::File,
        target: &Path,
    ) -> Result<(Digest, u64)> {
        let mut source = self.archive.open_entry(&entry.path)?;
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let count = source.read(&mut buffer).with_path("read", &entry.path)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            copy.write_all(&buffer[..count])
                .with_path("write", target)?;
            size += count as u64;
        }
        let modified = u64::try_from(entry.modified).unwrap_or_default();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
        copy.set_modified(modified)
            .with_path("set the time of", target)?;
        copy.sync_all().with_path("sync", target)?;
        Ok((hasher.finish(), size))
    }
}

/// Creates a directory and its missing parents, for the operator alone.
fn create_private_directories(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).with_path("create", path)
}

/// Creates a file that does not exist yet, for the operator alone.
fn create_private_file(path: &Path) -> Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).with_path("create", path)
}
