//! The directory of the locks, open to look at those of many agents.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{HeldLock, find_held_lock, find_held_lock_with, holder_path};
use crate::archive::Archive;
use crate::transport::Stamp;

/// The open directory of the locks, to look at those of many agents.
pub struct LockDirectory {
    /// None where it cannot be opened, or does not exist yet.
    descriptor: Option<OwnedFd>,
}

impl LockDirectory {
    pub fn open(archive: &Archive) -> LockDirectory {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(archive.program_path("locks"), flags, Mode::empty());
        LockDirectory {
            descriptor: opened.ok(),
        }
    }

    /// Returns the stamp of the file that describes the holder of an agent's lock; none if it cannot
    /// be read.
    pub fn holder_stamp(&self, archive: &Archive, agent: &str) -> Option<Stamp> {
        let path = holder_path(archive, agent);
        let stat = match &self.descriptor {
            Some(directory) => {
                let name = path.file_name().unwrap_or_default();
                rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => rustix::fs::lstat(&path),
        };
        stat.ok().map(|stat| Stamp::from_stat(&stat))
    }

    /// As [`find_held_lock`].
    pub fn find_held(&self, archive: &Archive, agent: &str) -> Option<HeldLock> {
        let Some(directory) = &self.descriptor else {
            return find_held_lock(archive, agent);
        };
        find_held_lock_with(archive, agent, |path| {
            let name = path.file_name().unwrap_or_default();
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?.into())
        })
    }
}
