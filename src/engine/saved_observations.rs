//! The observations of the last session, which the first screen of the next one shows until the fleet
//! is read: one line of JSON for each agent, so that several processors parse them. With them, how
//! the contents of memories on this machine were classified, which spares a memory whose stamp is
//! still the same another read.

use std::io;

use serde::{Deserialize, Serialize};

use super::content_cache::SavedClassification;
use super::{Engine, Observation};
use crate::archive;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::map_on_processors;

/// The file, in the program's own directory of the archive.
const FLEET_FILE_NAME: &str = "fleet.jsonl";

/// The same of earlier versions, which wrote one array.
const OLD_FLEET_FILE_NAME: &str = "fleet.json";

/// Number of lines that one processor parses at a time.
const LINES_PER_PART: usize = 16;

/// What classifications depend on besides their keys: those of another program, or by another
/// config, are not used. The first line of the file.
#[derive(PartialEq, Serialize, Deserialize)]
struct ClassificationBasis {
    program: String,
    config: Digest,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct SavedAgent<O> {
    seen: O,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classified: Option<SavedClassification>,
}

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
        let basis = self.classification_basis();
        let text = self.serialize_agents(basis, seen).map_err(|error| {
            let message = format!("cannot serialize the observations: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        self.archive
            .replace_program_file(&self.archive.program_path(FLEET_FILE_NAME), &text)?;
        let old = self.archive.program_path(OLD_FLEET_FILE_NAME);
        // It only wastes space.
        let _ = std::fs::remove_file(old);
        Ok(())
    }

    fn serialize_agents<'o>(
        &self,
        basis: Option<ClassificationBasis>,
        seen: impl IntoIterator<Item = &'o Observation>,
    ) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        serde_json::to_writer(&mut text, &basis)?;
        text.push(b'\n');
        for seen in seen {
            let content = seen.content.as_ref().filter(|_| basis.is_some());
            let classified = content.and_then(|content| {
                let cache = &self.content_cache;
                cache.classification_to_save(&seen.agent, content)
            });
            serde_json::to_writer(&mut text, &SavedAgent { seen, classified })?;
            text.push(b'\n');
        }
        Ok(text)
    }

    /// Loads the observations of the last session, without those that cannot be read. Memories with
    /// the stamps that they had then are not read again.
    pub fn load_observations(&self) -> Vec<Observation> {
        let path = self.archive.program_path(FLEET_FILE_NAME);
        let text = durable::read_own_file(&path).unwrap_or_default();
        let ends = memchr::memchr_iter(b'\n', &text).chain([text.len()]);
        let begins = [0].into_iter().chain(ends.clone().map(|end| end + 1));
        let mut lines = begins.zip(ends).map(|(begin, end)| &text[begin..end]);
        let basis = lines
            .next()
            .and_then(|line| serde_json::from_slice(line).ok());
        let is_valid = basis.is_some() && basis == self.classification_basis();
        let lines: Vec<&[u8]> = lines.collect();
        let load = |lines: &[&[u8]]| {
            let agents = lines
                .iter()
                .filter_map(|line| serde_json::from_slice(line).ok());
            let load = |SavedAgent { seen, classified }: SavedAgent<Observation>| {
                if is_valid
                    && let Some(classified) = classified
                    && let Some(content) = seen.content.clone()
                {
                    let cache = &self.content_cache;
                    cache.restore(&seen.agent, classified, content, self.clock());
                }
                seen
            };
            agents.map(load).collect::<Vec<Observation>>()
        };
        let parts = map_on_processors(lines.chunks(LINES_PER_PART).collect(), || load);
        parts.into_iter().flatten().collect()
    }

    /// None where the scan depends on files beside the config, which may change at any time.
    fn classification_basis(&self) -> Option<ClassificationBasis> {
        let lint = &self.config().lint;
        let files = [&lint.allow_file, &lint.accepted_file, &lint.words_directory];
        files
            .into_iter()
            .all(Option::is_none)
            .then(|| ClassificationBasis {
                program: env!("MEMORY_SHEPHERD_VERSION").to_string(),
                config: self.config().text_digest(),
            })
    }
}
