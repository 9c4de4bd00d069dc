//! What a server supports of the requests that replace a memory, and their substitutes where it lacks
//! an extension. [`SftpExtension::degradation`] describes the cost.
//!
//! | without | instead | the degradation |
//! |---|---|---|
//! | `posix-rename` | the protocol's own rename | servers make a link and remove the name: an object that gets that name in between is removed with it |
//! | `hardlink`, or a file system that has hard links | the same | it must not replace anything, yet some servers do |
//! | `fsync` | nothing | written bytes may be in memory only |

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::client::{SftpClient, path_bytes, remove_request, status_code};
use super::wire::{Request, status};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind};
use crate::config::SftpExtension;
use crate::transport::TransportError;

/// What a server supports, as far as that was tried.
pub(super) struct WriteSupport {
    client: Arc<SftpClient>,
    /// Whether the file system turned out to have no hard links.
    pub(super) lacks_hard_links: Cell<bool>,
    /// Whether the server refuses every request that writes, once that was asked.
    denies_writes: Cell<Option<bool>>,
}

impl WriteSupport {
    /// Creates the support of a server that was not tried yet.
    pub(super) fn new(client: &Arc<SftpClient>) -> WriteSupport {
        WriteSupport {
            client: Arc::clone(client),
            lacks_hard_links: Cell::new(false),
            denies_writes: Cell::new(None),
        }
    }

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
    pub(super) fn find_denied_writes(
        &self,
        memory: &Path,
    ) -> Result<Option<Error>, TransportError> {
        if !self.client.extensions().announces_reads_only() {
            return Ok(None);
        }
        let denies_writes = match self.denies_writes.get() {
            Some(known) => known,
            None => {
                let name = durable::new_random_name()?;
                let request = remove_request(&memory.with_file_name(name));
                let code = status_code(&self.client.request_one(request)?);
                let denies_writes = code == Some(status::PERMISSION_DENIED);
                self.denies_writes.set(Some(denies_writes));
                denies_writes
            }
        };
        let (host, memory) = (self.client.host_name(), memory.display());
        let message = format!("cannot replace {host}:{memory}: the SFTP server is read-only");
        let hint = "the host serves files with `sftp-server -R` or `internal-sftp -R`: let it write, or \
                    set remote_user to a user whose server may";
        let error = Error::new(ErrorKind::Host, message).with_hint(hint);
        Ok(denies_writes.then_some(error))
    }

    /// Gives a staged file the memory's name, if that name is free. Whether the file keeps its own
    /// name depends on the server.
    pub(super) fn install_request(&self, staged: &Path, memory: &Path) -> Request {
        let (from, to) = (path_bytes(staged), path_bytes(memory));
        if self.client.extensions().hardlink && !self.lacks_hard_links.get() {
            Request::HardLink { from, to }
        } else {
            Request::Rename { from, to }
        }
    }
}
