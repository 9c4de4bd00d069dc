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

/// Number of lines that one processor parses at a time.
const LINES_PER_PART: usize = 16;

impl Engine {
    /// Saves observations for the next session.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn save_observations<'o>(
        &self,
        seen: impl IntoIterator<Item = &'o Observation>,
    ) -> Result<()> {
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
        let ends = memchr::memchr_iter(b'\n', &text).chain([text.len()]);
        let begins = [0].into_iter().chain(ends.clone().map(|end| end + 1));
        let lines = begins.zip(ends).map(|(begin, end)| &text[begin..end]);
        let lines: Vec<&[u8]> = lines.collect();
        let parse = |lines: &[&[u8]]| {
            let seen = lines
                .iter()
                .filter_map(|line| serde_json::from_slice(line).ok());
            seen.collect::<Vec<Observation>>()
        };
        let parts = map_on_processors(lines.chunks(LINES_PER_PART).collect(), || parse);
        parts.into_iter().flatten().collect()
    }
}
