//! The observations of the last session, which the first screen of the next one shows until the fleet
//! is read: one line of JSON for each agent, so that several processors parse them.

use std::fs::{Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

use crate::archive;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::threads::map_chunks_on_processors;
use crate::engine::Observation;
use crate::engine::watch::Observer;

/// The file, in the program's own directory of the archive.
const FLEET_FILE_NAME: &str = "fleet.jsonl";

/// Maximum size of the file that is loaded: ten times that of a fleet of 10,000 agents.
const MAX_FLEET_BYTES: u64 = 64 << 20;

/// Observations of the last session. Each is in a box: those of a large fleet are moved several times.
pub type SavedObservations = Vec<Box<Observation>>;

/// Returns whether this user alone can have written a file.
fn is_written_here(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0
}

impl Observer {
    /// Saves observations for the next session.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn save_observations<'o>(
        &self,
        seen: impl IntoIterator<Item = &'o Observation>,
    ) -> Result<()> {
        self.context
            .archive()
            .open_or_create_directory(archive::PROGRAM_DIRECTORY_NAME.as_ref())?;
        let mut text = Vec::new();
        for seen in seen {
            let written = serde_json::to_writer(&mut text, seen).map_err(std::io::Error::from);
            written
                .and_then(|()| text.write_all(b"\n"))
                .map_err(|error| {
                    let message = format!("cannot serialize the observations: {error}");
                    Error::new(ErrorKind::Internal, message)
                })?;
        }
        self.context
            .archive()
            .replace_program_file(&self.context.archive().program_path(FLEET_FILE_NAME), &text)
    }

    /// Loads the observations of the last session, without those that cannot be read. The scan of the
    /// texts that they are about is not repeated, unless another user may have written the file.
    pub fn load_observations(&self) -> SavedObservations {
        if self.context.archive().check_expected().is_err() {
            return SavedObservations::new();
        }
        let path = self.context.archive().program_path(FLEET_FILE_NAME);
        let Ok(file) = durable::open_own_file(&path, OpenOptions::new().read(true)) else {
            return SavedObservations::new();
        };
        let is_own = file.metadata().is_ok_and(|meta| is_written_here(&meta));
        let text = durable::read_at_most(file, MAX_FLEET_BYTES).unwrap_or_default();
        let ends = memchr::memchr_iter(b'\n', &text).chain([text.len()]);
        let begins = [0].into_iter().chain(ends.clone().map(|end| end + 1));
        let lines = begins.zip(ends).map(|(begin, end)| &text[begin..end]);
        let lines: Vec<&[u8]> = lines.collect();
        let zone = self.context.clock().zone();
        let parse = |lines: &[&[u8]]| {
            let seen = lines.iter().filter_map(|line| {
                let mut seen: Box<Observation> = serde_json::from_slice(line).ok()?;
                seen.read_at = zone.at(seen.read_at);
                if let Some(last) = &mut seen.last_run {
                    last.time = zone.at(last.time);
                }
                Some(seen)
            });
            let seen: SavedObservations = seen.collect();
            if is_own {
                self.content_cache.keep_findings(&seen);
            }
            seen
        };
        let parts = map_chunks_on_processors(&lines, || parse);
        parts.into_iter().flatten().collect()
    }
}
