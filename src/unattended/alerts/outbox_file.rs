//! The file of the alerts, `<archive_dir>/.shepherd/alerts.json`: the outbox of each config that uses
//! the archive. It is read, changed and replaced under a lock that is only held for that.
//!
//! The file can be deleted at any time: what still holds is alerted once more.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::outbox::Outbox;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::config_identity;
use crate::engine::{Engine, HolderLock, HolderLockKind, describe_holder};

/// The file in the program's directory.
const FILE_NAME: &str = "alerts.json";

/// Maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How often the lock is tried, and how long a process waits in between.
const LOCK_ATTEMPTS: usize = 1000;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// How long the outbox of a config that no run uses is kept.
const UNUSED_MEMORY: chrono::Duration = chrono::Duration::days(90);

/// The content of the file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct OutboxFile {
    /// Outboxes by the path of their config.
    configs: BTreeMap<String, Outbox>,
}

/// The locked file. Dropping it without [`LockedOutbox::save`] changes nothing.
pub(super) struct LockedOutbox<'e> {
    engine: &'e Engine,
    file: OutboxFile,
    config: String,
    _lock: HolderLock,
}

impl<'e> LockedOutbox<'e> {
    /// Locks and reads the file.
    ///
    /// # Errors
    /// The archive cannot be written, or another process holds the lock for long.
    pub fn open(engine: &'e Engine) -> Result<LockedOutbox<'e>> {
        let lock = lock_outbox(engine)?;
        Ok(LockedOutbox {
            engine,
            file: read_file(engine)?,
            config: config_key(engine),
            _lock: lock,
        })
    }

    /// The outbox of the engine's config.
    pub fn outbox(&mut self) -> &mut Outbox {
        self.file.configs.entry(self.config.clone()).or_default()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn save(&mut self, now: DateTime<FixedOffset>) -> Result<()> {
        let own = &self.config;
        self.file.configs.retain(|config, outbox| {
            let is_used = outbox
                .checked
                .is_some_and(|checked| now - checked < UNUSED_MEMORY);
            config == own || is_used
        });
        let text = serde_json::to_vec(&self.file).map_err(|error| {
            let message = format!("cannot serialize the alerts: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        let archive = self.engine.archive();
        archive.replace_program_file(&archive.program_path(FILE_NAME), &text)
    }
}

/// Reads the outbox of the engine's config without a lock: it may change at once.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_outbox(engine: &Engine) -> Result<Outbox> {
    let mut file = read_file(engine)?;
    Ok(file.configs.remove(&config_key(engine)).unwrap_or_default())
}

fn config_key(engine: &Engine) -> String {
    let path = config_identity(&engine.config().path);
    path.display().to_string()
}

fn read_file(engine: &Engine) -> Result<OutboxFile> {
    engine.archive().check_expected()?;
    let path = engine.archive().program_path(FILE_NAME);
    let mut text = Vec::new();
    let read = durable::open_own_file(&path, OpenOptions::new().read(true))
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut text));
    match read {
        Err(error) if !durable::is_absent(&error) => Err(Error::from_io("read", &path, &error)),
        // A file that cannot be parsed was not written by this program.
        _ => Ok(serde_json::from_slice(&text).unwrap_or_default()),
    }
}

fn absent_archive_error(directory: &Path) -> Error {
    // Without the slash at its end.
    let directory = directory.components().as_path();
    let message = format!("{} does not exist", directory.display());
    Error::new(ErrorKind::Host, message).with_hint(
        "the first reset creates it; if agents were reset before, check that the disk of archive_dir \
         is mounted",
    )
}

fn lock_outbox(engine: &Engine) -> Result<HolderLock> {
    let directory = engine.archive().program_path("");
    // A lock would create the archive.
    match std::fs::symlink_metadata(&directory) {
        Err(error) if durable::is_absent(&error) => return Err(absent_archive_error(&directory)),
        found => found.with_path("stat", &directory)?,
    };
    for _ in 0..LOCK_ATTEMPTS {
        if let Some(lock) = engine
            .locks()
            .try_lock_with_holder(HolderLockKind::AlertOutbox)?
        {
            return Ok(lock);
        }
        engine.clock().sleep(LOCK_INTERVAL);
    }
    let holder = engine
        .locks()
        .find_lock_holder_of(HolderLockKind::AlertOutbox)
        .flatten();
    let message = format!(
        "the alerts are held by {}",
        describe_holder(holder.as_ref(), engine.clock().zone())
    );
    Err(Error::new(ErrorKind::Busy, message))
}
