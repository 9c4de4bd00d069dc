//! The observations of the last session, which the first screen of the next one shows until the fleet
//! is read: one line of JSON for each agent, so that several processors parse them.

use std::io::Write;

use super::{Engine, Observation};
use crate::archive;
use crate::durable;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::map_on_processors;

/// The file, in the program's own directory of the archive.
const FLEET_FILE_NAME: &str = "fleet.jsonl";

/// The same of earlier versions, which wrote one array.
const OLD_FLEET_FILE_NAME: &str = "fleet.json";

impl Engine {
    /// Saves observations for the next session.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn save_observations(&self, seen: &[Observation]) -> Result<()> {
        self.archive
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
        self.archive
            .replace_program_file(&self.archive.program_path(FLEET_FILE_NAME), &text)?;
        let old = self.archive.program_path(OLD_FLEET_FILE_NAME);
        // It only wastes space.
        let _ = std::fs::remove_file(old);
        Ok(())
    }

    /// Loads the observations of the last session, without those that cannot be read.
    pub fn load_observations(&self) -> Vec<Observation> {
        let path = self.archive.program_path(FLEET_FILE_NAME);
        let text = durable::read_own_file(&path).unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n').collect();
        let seen = map_on_processors(lines, || |line: &[u8]| serde_json::from_slice(line).ok());
        seen.into_iter().flatten().collect()
    }
}
