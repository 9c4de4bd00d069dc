//! New files without a name, which get one once their content is on the disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::random_names::new_random_name;
use super::sync_batch::UnsyncedObject;
use crate::base::error::{PathContext, Result};
use crate::base::sys;

/// A new file without a name in `directory`, or with an unguessable name on file systems that do
/// not support `O_TMPFILE`.
pub struct NewFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// The length at which writeback was last started.
    writeback_start_length: u64,
    provisional_name: Option<String>,
}

/// The largest file whose writeback is started early.
const MAX_EARLY_WRITEBACK_BYTES: u64 = 1 << 20;

/// How many bytes of a long file are written before their writeback is started.
const WRITEBACK_INTERVAL_BYTES: u64 = 8 << 20;

/// The shortest write of zeros that becomes a hole in a new file. A sparse memory may be far larger
/// than the disk of the archive.
const MIN_HOLE_BYTES: usize = 64 * 1024;

impl NewFile {
    /// Creates a file in `directory`; `path` is the directory's path, for messages.
    pub fn create(directory: &Arc<OwnedFd>, path: &Path, mode: Mode) -> Result<NewFile> {
        NewFile::create_with_options(directory, path, mode, new_random_name, true)
    }

    /// Creates a file that has the name `provisional` until it is linked, if the file system does
    /// not support nameless files or `may_be_nameless` is false.
    pub fn create_with_options(
        directory: &Arc<OwnedFd>,
        path: &Path,
        mode: Mode,
        provisional: impl FnOnce() -> Result<String>,
        may_be_nameless: bool,
    ) -> Result<NewFile> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let open = |name: &str, more| fs::openat(&**directory, name, flags | more, mode);
        let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let nameless = if may_be_nameless {
            open(".", OFlags::TMPFILE)
        } else {
            Err(Errno::OPNOTSUPP)
        };
        let (file, provisional) = match nameless {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let provisional = provisional()?;
                (open(&provisional, exclusive), Some(provisional))
            }
            file => (file, None),
        };
        Ok(NewFile {
            directory: Arc::clone(directory),
            path: path.to_path_buf(),
            file: Arc::new(File::from(file.with_path("create a file in", path)?)),
            length: 0,
            writeback_start_length: 0,
            provisional_name: provisional,
        })
    }

    /// Returns the open file, for changes of owner, mode and attributes.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// For example a full disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        let mut file = &*self.file;
        let written = if bytes.len() >= MIN_HOLE_BYTES && is_all_zeros(bytes) {
            file.set_len(self.length)
                .and_then(|()| file.seek(SeekFrom::End(0)).map(drop))
        } else {
            file.write_all(bytes)
        };
        if self.length - self.writeback_start_length >= WRITEBACK_INTERVAL_BYTES {
            self.writeback_start_length = self.length;
            sys::start_writeback(self.file.as_fd());
        }
        written.with_path("write a new file in", &self.path)
    }

    /// Starts the writeback of a short file, so that the disk works while the caller prepares other
    /// files. For a long file the call itself would block.
    pub fn start_writeback(&self) {
        if self.length <= MAX_EARLY_WRITEBACK_BYTES {
            sys::start_writeback(self.file.as_fd());
        }
    }

    /// Returns its content for a sync, which must succeed before the file is linked.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }

    /// Returns the path of its directory.
    pub fn directory_path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory.
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }

    /// Returns its directory for a sync, which must follow the link.
    pub fn unsynced_directory(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.directory) as _, &self.path)
    }

    /// Links the file as `name`. Returns false if the name is taken, so that the caller can try
    /// another one.
    pub fn link_as(&mut self, name: &OsStr) -> Result<bool> {
        let path = self.path.join(name);
        let linked = match &self.provisional_name {
            Some(provisional) => fs::linkat(
                &self.directory,
                provisional,
                &self.directory,
                name,
                AtFlags::empty(),
            ),
            None => match fs::linkat(&*self.file, "", &self.directory, name, AtFlags::EMPTY_PATH) {
                // Kernels before 6.10 require a capability for AT_EMPTY_PATH.
                Err(Errno::NOENT | Errno::PERM) => fs::linkat(
                    fs::CWD,
                    format!("/proc/self/fd/{}", self.file.as_raw_fd()),
                    &self.directory,
                    name,
                    AtFlags::SYMLINK_FOLLOW,
                ),
                result => result,
            },
        };
        match linked {
            Ok(()) => {
                if let Some(provisional) = self.provisional_name.take() {
                    fs::unlinkat(&self.directory, &provisional, AtFlags::empty())
                        .with_path("remove", &self.path.join(provisional))?;
                }
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).with_path("create", &path),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.provisional_name {
            // Best effort, after an error or for a trial file. A file that a killed run leaves in
            // an agent's directory is named by the run's journal; in the program's own directories
            // `remove_stale_files` removes it.
            let _ = fs::unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

fn is_all_zeros(bytes: &[u8]) -> bool {
    // Comparing slices is many times faster than a loop over bytes.
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut pieces = bytes.chunks(ZEROS.len());
    pieces.all(|piece| *piece == ZEROS[..piece.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_nonzero_byte_is_not_all_zeros() {
        for length in [1, 4095, 4096, 4097, 128 * 1024] {
            let mut bytes = vec![0; length];
            assert!(is_all_zeros(&bytes));
            bytes[length - 1] = 1;
            assert!(!is_all_zeros(&bytes));
        }
    }
}
