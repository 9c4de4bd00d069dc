//! The file of the alerts, `<archive_dir>/.shepherd/alerts.json`: the outbox of each config that uses
//! the archive. It is read, changed and replaced under a lock that is only held for that.
//!
//! The file can be deleted at any time: what still holds is alerted once more.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::outbox::Outbox;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::config_identity;
use crate::engine::{Engine, Hold, HoldLock};

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
    file: OutboxFile,
    config: String,
    lock: Box<dyn HoldLock + 'e>,
}

impl<'e> LockedOutbox<'e> {
    /// Locks and reads the file.
    ///
    /// # Errors
    /// The archive cannot be written, or another process holds the lock for long.
    pub fn open(engine: &'e Engine) -> Result<LockedOutbox<'e>> {
        // A lock would create the archive.
        if !engine.archive().is_begun() {
            return Err(absent_archive_error(engine.archive().root()));
        }
        let lock = engine.holds().lock(Hold::Alerts)?;
        Ok(LockedOutbox {
            file: parse_file(lock.read()?),
            config: config_key(engine),
            lock,
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
        self.lock.replace(Some(&text))
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
    engine.holds().read(Hold::Alerts).map(parse_file)
}

/// Parses the document. One that cannot be parsed was not written by this program.
fn parse_file(text: Option<Vec<u8>>) -> OutboxFile {
    let file = text.and_then(|text| serde_json::from_slice(&text).ok());
    file.unwrap_or_default()
}

fn absent_archive_error(archive: &Path) -> Error {
    let message = format!("there is no archive at {}", archive.display());
    Error::new(ErrorKind::Host, message).with_hint(
        "the first reset creates it; if agents were reset before, check that the disk of archive_dir \
         is mounted",
    )
}
