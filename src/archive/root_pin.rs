//! Holds a run, or a change of baselines, to the directory that stood at `archive_dir` when it began:
//! one that takes its place has no entries, transaction records or ledger of it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};

/// The runs that use an archive, and the directory that they use. All clones of an archive share
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct RootPins(Arc<Mutex<PinnedRoot>>);

#[derive(Debug, Default)]
struct PinnedRoot {
    pin_count: usize,
    /// Device and inode; `None` until the directory exists.
    identity: Option<(u64, u64)>,
}

/// Keeps an archive's directory from being replaced unnoticed until it is dropped.
#[derive(Debug)]
pub struct RootPin(RootPins);

impl RootPins {
    pub(super) fn pin(&self) -> RootPin {
        self.lock().pin_count += 1;
        RootPin(self.clone())
    }

    /// Checks that `root` is the directory of the first check since it was pinned. Checks nothing
    /// while no run uses it.
    ///
    /// # Errors
    /// It has been moved, replaced or unmounted, or the system's error.
    pub(super) fn check(&self, root: &Path) -> Result<()> {
        let mut pinned = self.lock();
        if pinned.pin_count == 0 {
            return Ok(());
        }
        let found = match std::fs::metadata(root) {
            Ok(found) => Some((found.dev(), found.ino())),
            Err(error) if durable::is_absent(&error) => None,
            Err(error) => return Err(Error::from_io("stat", root, &error)),
        };
        match pinned.identity {
            None => pinned.identity = found,
            identity if identity == found => {}
            _ => {
                let message = format!(
                    "{} was moved, replaced or unmounted since this began; nothing is written or \
                     deleted in its place",
                    root.display()
                );
                return Err(Error::new(ErrorKind::Host, message).with_hint(
                    "put the directory back: the next run or guard recovers what is unfinished",
                ));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, PinnedRoot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RootPin {
    fn drop(&mut self) {
        let mut pinned = self.0.lock();
        pinned.pin_count -= 1;
        if pinned.pin_count == 0 {
            pinned.identity = None;
        }
    }
}
