//! Requests that replace a memory, and their substitutes where the server lacks an extension.
//! [`SftpExtension::degradation`] describes the cost.
//!
//! | without | instead | the degradation |
//! |---|---|---|
//! | `posix-rename` | the protocol's own rename | servers make a link and remove the name: an object that gets that name in between is removed with it |
//! | `hardlink`, or a file system that has hard links | the same | it must not replace anything, yet some servers do |
//! | `fsync` | nothing | written bytes may be in memory only |

use std::path::Path;

use super::client::{path_bytes, status_code};
use super::directory::SftpDirectory;
use super::wire::{Request, status};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind};
use crate::config::SftpExtension;
use crate::transport::TransportError;

impl SftpDirectory {
    /// Returns the extensions that the server lacks, or the file system as far as that was tried.
    pub(super) fn find_missing_extensions(&self) -> Vec<SftpExtension> {
        let has = self.client.extensions();
        let lacks = |it: &SftpExtension| match it {
            SftpExtension::PosixRename => !has.posix_rename,
            SftpExtension::Hardlink => !has.hardlink || self.lacks_hard_links.get(),
            SftpExtension::Fsync => !has.fsync,
        };
        SftpExtension::ALL.into_iter().filter(lacks).collect()
    }

    /// Returns the error of a server that refuses every request that writes: it has the extensions, and
    /// does not announce them. Only such a server is asked, by the removal of a name that is free.
    pub(super) fn find_denied_writes(&self) -> Result<Option<Error>, TransportError> {
        if !self.client.extensions().announces_reads_only() {
            return Ok(None);
        }
        let denies_writes = match self.denies_writes.get() {
            Some(known) => known,
            None => {
                let name = durable::new_random_name()?;
                let path = path_bytes(&self.path_of(&name));
                let answers = self.client.request_batch(vec![Request::Remove { path }])?;
                let code = answers.first().and_then(status_code);
                self.denies_writes
                    .set(Some(code == Some(status::PERMISSION_DENIED)));
                code == Some(status::PERMISSION_DENIED)
            }
        };
        let message = format!(
            "cannot replace {}:{}: the SFTP server is read-only",
            self.client.host_name(),
            self.memory_path.display()
        );
        let hint = "the host serves files with `sftp-server -R` or `internal-sftp -R`: let it write, or \
                    set remote_user to a user whose server may";
        let error = Error::new(ErrorKind::Host, message).with_hint(hint);
        Ok(denies_writes.then_some(error))
    }

    /// Renames the memory to a free name.
    pub(super) fn move_aside_request(&self, aside: &str) -> Request {
        self.rename_request(&self.memory_path, &self.path_of(aside))
    }

    /// Renames a path to a free name.
    pub(super) fn rename_request(&self, from: &Path, to: &Path) -> Request {
        let (from, to) = (path_bytes(from), path_bytes(to));
        if self.client.extensions().posix_rename {
            Request::PosixRename { from, to }
        } else {
            Request::Rename { from, to }
        }
    }

    /// Gives a staged file the memory's name, if that name is free. Whether the file keeps its own
    /// name depends on the server.
    pub(super) fn install_request(&self, staged: &str) -> Request {
        let (from, to) = (
            path_bytes(&self.path_of(staged)),
            path_bytes(&self.memory_path),
        );
        if self.client.extensions().hardlink && !self.lacks_hard_links.get() {
            Request::HardLink { from, to }
        } else {
            Request::Rename { from, to }
        }
    }
}
