//! What a memory is replaced with, and what takes its place where the server
//! lacks it. What that costs is told by [`Extension::without`].
//!
//! | without | instead | which is weaker, because |
//! |---|---|---|
//! | `posix-rename` | the protocol's own rename | servers make a link and remove the name: what comes to stand there in between goes with it |
//! | `hardlink`, or a file system that has such links | the same | it is not to replace anything, and some servers do all the same |
//! | `fsync` | nothing | what was written may be in memory only |

use std::path::Path;

use super::connection::bytes;
use super::folder::SftpFolder;
use super::wire::Request;
use crate::config::Extension;

impl SftpFolder {
    /// What the server lacks, and the file system as far as that was tried.
    pub(super) fn lacking(&self) -> Vec<Extension> {
        let has = self.host.extensions();
        let lacks = |it: &Extension| match it {
            Extension::PosixRename => !has.posix_rename,
            Extension::Hardlink => !has.hardlink || self.linkless.get(),
            Extension::Fsync => !has.fsync,
        };
        Extension::ALL.into_iter().filter(lacks).collect()
    }

    /// Gives the memory another name, at which nothing stands.
    pub(super) fn move_aside(&self, aside: &str) -> Request {
        self.rename(&self.memory, &self.at(aside))
    }

    /// Gives something another name, at which nothing stands.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Request {
        let (from, to) = (bytes(from), bytes(to));
        match self.host.extensions().posix_rename {
            true => Request::PosixRename { from, to },
            false => Request::Rename { from, to },
        }
    }

    /// Gives a staged file the memory's name, if nothing stands there. Whether it
    /// keeps its own depends on the server.
    pub(super) fn put_in_place(&self, staged: &str) -> Request {
        let (from, to) = (bytes(&self.at(staged)), bytes(&self.memory));
        match self.host.extensions().hardlink && !self.linkless.get() {
            true => Request::HardLink { from, to },
            false => Request::Rename { from, to },
        }
    }
}
