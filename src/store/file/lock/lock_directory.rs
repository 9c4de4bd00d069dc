//! The directory of the locks, open to look at those of many agents.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{find_held_lock, find_held_lock_with, holder_path};
use crate::archive::Archive;
use crate::store::lease::{HeldLock, LeaseSurvey};
use crate::transport::Stamp;

/// The open directory of the locks, to look at those of many agents.
pub struct LockDirectory {
    archive: Archive,
    /// None where it cannot be opened, or does not exist yet.
    descriptor: Option<OwnedFd>,
}

impl LockDirectory {
    pub fn open(archive: &Archive) -> LockDirectory {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(archive.program_path("locks"), flags, Mode::empty());
        LockDirectory {
            archive: archive.clone(),
            descriptor: opened.ok(),
        }
    }
}

impl LeaseSurvey for LockDirectory {
    fn stamp(&self, agent: &str) -> Option<Stamp> {
        let path = holder_path(&self.archive, agent);
        let stat = match &self.descriptor {
            Some(directory) => {
                let name = path.file_name().unwrap_or_default();
                rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => rustix::fs::lstat(&path),
        };
        stat.ok().map(|stat| Stamp::from_stat(&stat))
    }

    fn find_held(&self, agent: &str) -> Option<HeldLock> {
        let Some(directory) = &self.descriptor else {
            return find_held_lock(&self.archive, agent);
        };
        find_held_lock_with(&self.archive, agent, |path| {
            let name = path.file_name().unwrap_or_default();
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?.into())
        })
    }
}
