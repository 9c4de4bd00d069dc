//! Requests that replace a memory, and their substitutes where the server lacks an extension.
//! [`SftpExtension::degradation`] describes the cost.
//!
//! | without | instead | the degradation |
//! |---|---|---|
//! | `posix-rename` | the protocol's own rename | servers make a link and remove the name: an object that gets that name in between is removed with it |
//! | `hardlink`, or a file system that has hard links | the same | it must not replace anything, yet some servers do |
//! | `fsync` | nothing | written bytes may be in memory only |

use std::path::Path;

use super::client::path_bytes;
use super::directory::SftpDirectory;
use super::wire::Request;
use crate::config::SftpExtension;

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
