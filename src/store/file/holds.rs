//! Holds in files of their own, each with a lock that names its holder.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::controller::Controller;
use crate::store::file::Locks;
use crate::store::file::lock::{HolderLock, HolderLockKind};
use crate::store::holds::{Hold, HoldLock, Holds};
use crate::store::lease::{LockHolder, describe_holder};

/// Maximum size of a document in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// How often a lock is tried, and how long a process waits in between.
const LOCK_ATTEMPTS: usize = 1000;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// The documents in `<archive_dir>/.shepherd/`.
pub(crate) struct FileHolds {
    controller: Arc<Controller>,
    locks: Arc<Locks>,
}

/// A document whose lock this process holds.
struct LockedFile<'h> {
    holds: &'h FileHolds,
    hold: Hold,
    _lock: HolderLock,
}

impl Hold {
    /// The name of its file.
    fn file_name(self) -> &'static str {
        match self {
            Hold::Schedule => "schedule.json",
            Hold::Alerts => "alerts.json",
            Hold::AcceptedSeal => "seal.json",
            Hold::SealSerials => "seal-serials.json",
            Hold::BaselineChanges => "replacing.json",
            Hold::Health => "health.json",
        }
    }

    /// What it is, for people.
    fn title(self) -> &'static str {
        match self {
            Hold::Schedule => "the pauses and skips",
            Hold::Alerts => "the alerts",
            Hold::AcceptedSeal => "the files of the accepted seal",
            Hold::SealSerials => "the serials of seals",
            Hold::BaselineChanges => "the changes of baselines",
            Hold::Health => "the results of health checks",
        }
    }
}

impl FileHolds {
    /// Creates the documents; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>, locks: &Arc<Locks>) -> FileHolds {
        FileHolds {
            controller: Arc::clone(controller),
            locks: Arc::clone(locks),
        }
    }

    /// Refuses a document that another user wrote. Who owns the archive may change what it holds.
    fn check_writer(&self, uid: u32) -> Result<(), String> {
        let archive = std::fs::metadata(self.controller.archive().root()).map(|it| it.uid());
        let own = rustix::process::geteuid().as_raw();
        if [0, own, archive.unwrap_or(own)].contains(&uid) {
            return Ok(());
        }
        Err(format!("it belongs to user {uid}"))
    }
}

impl Holds for FileHolds {
    fn read(&self, hold: Hold) -> Result<Option<Vec<u8>>> {
        self.controller.archive().check_expected()?;
        let path = self.location(hold);
        let file = match durable::open_own_file(&path, OpenOptions::new().read(true)) {
            Err(error) if durable::is_absent(&error) => return Ok(None),
            file => file.with_path("read", &path)?,
        };
        let meta = file.metadata().with_path("stat", &path)?;
        self.check_writer(meta.uid()).map_err(|why| {
            let message = format!("{} does not count: {why}", path.display());
            Error::new(ErrorKind::Conflict, message)
                .with_hint("look at it, and give it to the owner of the archive, or move it away")
        })?;
        let mut text = Vec::new();
        let read = file.take(MAX_DOCUMENT_BYTES).read_to_end(&mut text);
        read.with_path("read", &path)?;
        Ok(Some(text))
    }

    fn lock(&self, hold: Hold) -> Result<Box<dyn HoldLock + '_>> {
        for _ in 0..LOCK_ATTEMPTS {
            let kind = HolderLockKind::Hold(hold);
            if let Some(lock) = self.locks.try_lock_with_holder(kind)? {
                return Ok(Box::new(LockedFile {
                    holds: self,
                    hold,
                    _lock: lock,
                }));
            }
            self.controller.clock().sleep(LOCK_INTERVAL);
        }
        let holder = describe_holder(
            self.holder(hold).flatten().as_ref(),
            self.controller.clock().zone(),
        );
        let path = self.locks.holder_lock_path(HolderLockKind::Hold(hold));
        let message = format!("{} are held by {holder}", hold.title());
        let who = format!("run `fuser -v {}` to list the processes", path.display());
        Err(Error::new(ErrorKind::Busy, message).with_hint(who))
    }

    fn holder(&self, hold: Hold) -> Option<Option<LockHolder>> {
        self.locks.find_lock_holder_of(HolderLockKind::Hold(hold))
    }

    fn location(&self, hold: Hold) -> PathBuf {
        self.controller.archive().program_path(hold.file_name())
    }
}

impl HoldLock for LockedFile<'_> {
    fn read(&self) -> Result<Option<Vec<u8>>> {
        self.holds.read(self.hold)
    }

    fn replace(&mut self, text: Option<&[u8]>) -> Result<()> {
        let path = self.holds.location(self.hold);
        let archive = self.holds.controller.archive();
        match text {
            Some(text) => archive.replace_program_file(&path, text),
            None => archive.remove_program_file(&path),
        }
    }
}
