//! Files that an agent has a lease on (fcntl(2)): whoever opens one waits until
//! its holder lets go, or until the kernel takes the lease away, 45 seconds later
//! where nobody set another time (`/proc/sys/fs/lease-break-time`).
//!
//! An agent must not get around its reset that way. To displace such a memory
//! would need no open, but nobody could have archived it before, and it could not
//! be undone; so it is waited for. To look every now and then whether it can be
//! opened is not enough, since the holder can take a new lease between two looks.
//! But whoever waits inside open(2) has it open as far as leases go, so that from
//! then on no new one is granted, and the wait is over when the kernel says so.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{LocalFolder, moved, refused};
use crate::error::{Error, Kind, PathContext};
use crate::transport::TransportError;

/// How long is waited: somewhat longer than the kernel lets a lease last that
/// somebody waits for, where nobody has set that to more, or to for ever.
const LONGEST: Duration = Duration::from_secs(60);

impl LocalFolder {
    /// Waits until nobody has a lease on `name` that keeps us from reading it.
    /// Nobody can take one as long as the answer is open.
    pub(super) fn outwait(&self, name: &OsStr) -> Result<StdFile, TransportError> {
        let path = self.path.join(name);
        // What was found there once cannot become a FIFO that holds us for ever.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(moved(&path)),
            found => StdFile::from(found.path("read", &path).map_err(refused)?),
        };
        let stat = self.stat(&found, &path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(moved(&path));
        }
        let (sender, receiver) = channel();
        // A thread, because nothing else ends an open(2) that waits for too long.
        let waiting = thread::Builder::new().spawn(move || {
            let again = format!("/proc/self/fd/{}", found.as_raw_fd());
            // Who asked may have gone.
            let _ = sender.send(StdFile::open(again));
        });
        waiting.path("wait for", &path).map_err(refused)?;
        match receiver.recv_timeout(LONGEST) {
            Ok(opened) => opened.path("read", &path).map_err(refused),
            Err(_) => Err(leased(&path)),
        }
    }
}

/// Why a file cannot be read that somebody has a lease on.
pub(super) fn leased(path: &Path) -> TransportError {
    let message = format!("cannot read {}: somebody has a lease on it", path.display());
    refused(Error::new(Kind::Host, message).hint(
        "run it again in a minute: the kernel ends such a lease after \
         /proc/sys/fs/lease-break-time seconds; lslocks names who has it",
    ))
}
