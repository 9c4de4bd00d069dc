//! The texts behind the results of a search, and entries compared with other texts.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::memories::searched_start;
use crate::archive::search::{Query, TextHits, Vocabulary, add_vocabulary_words};
use crate::archive::{EntryKind, agent_directory_of, has_scratch_header, strip_scratch_header};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::Agent;
use crate::engine::LedgerRecord;
use crate::engine::records::ArchiveSearch;

/// Where a text of a result comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextSource {
    /// The entry at this path below `archive_dir`.
    Entry(PathBuf),
    /// The memory of this agent, as it was searched.
    Memory(String),
    /// A file of the memory of several files of an agent.
    MemoryFile {
        /// The agent.
        agent: String,
        /// The id of the collection of its item.
        collection: String,
        /// The id of its item.
        item: String,
        /// Its path below the directory of the memory.
        path: PathBuf,
    },
}

/// The beginning of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceText {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Number of bytes behind them.
    pub omitted_bytes: u64,
    /// Where the part begins that searches look at: in a memory, what the agent wrote.
    pub searched_start: usize,
}

/// What an entry is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryComparison {
    /// The memory of its agent now: scratch with scratch, a whole file with the whole file.
    Memory,
    /// Another entry.
    Entry(PathBuf),
    /// The version of the baseline that the run used which wrote the entry.
    Baseline,
}

/// Two texts and their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedTexts {
    /// Old and new.
    pub texts: [Vec<u8>; 2],
    /// What they are.
    pub titles: [String; 2],
}

impl ArchiveSearch {
    /// Reads the beginning of a text of a result.
    ///
    /// # Errors
    /// The entry is gone or cannot be read; the memory cannot be read, or was never read.
    pub fn read_source(&self, source: &TextSource, max_bytes: u64) -> Result<SourceText> {
        match source {
            TextSource::Entry(path) => self.read_entry_text(path, max_bytes),
            TextSource::MemoryFile { agent, path, .. } => {
                let mut bytes = self.read_memory_file(agent, path)?;
                let size = bytes.len() as u64;
                bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
                Ok(SourceText {
                    omitted_bytes: size - bytes.len() as u64,
                    searched_start: 0,
                    bytes,
                })
            }
            TextSource::Memory(name) => {
                let agent = self.context.agent(name)?;
                let memory = if agent.host().is_none() {
                    self.observer
                        .read_memory_text(agent, &Mutex::new(self.baselines.baseline_cache()))?
                } else {
                    let kept = self.observer.remote_texts().get(name);
                    kept.ok_or_else(|| never_read_error(name))?
                };
                let mut bytes = memory.text;
                let size = bytes.len() as u64;
                bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
                Ok(SourceText {
                    omitted_bytes: size - bytes.len() as u64,
                    searched_start: searched_start(memory.boundary, bytes.len()),
                    bytes,
                })
            }
        }
    }

    pub(in crate::engine) fn read_entry_text(
        &self,
        path: &Path,
        max_bytes: u64,
    ) -> Result<SourceText> {
        let file = self.context.entries().open(path)?;
        let size = file.size().with_path("stat", path)?;
        let mut bytes = Vec::new();
        let mut file = file.take(max_bytes);
        file.read_to_end(&mut bytes).with_path("read", path)?;
        Ok(SourceText {
            omitted_bytes: size.saturating_sub(bytes.len() as u64),
            searched_start: 0,
            bytes,
        })
    }

    /// Finds what a search found in a text: the words of the query, else those that resemble them.
    pub fn find_hits(&self, query: &Query, text: &SourceText) -> Option<TextHits> {
        let searched = &text.bytes[text.searched_start..];
        let similar = |query: Option<Query>| query?.find_hits(searched);
        let mut hits = query
            .find_hits(searched)
            .or_else(|| similar(self.widen_query(query)))
            .or_else(|| {
                // The index lacks the words of memories.
                let mut words = HashSet::new();
                add_vocabulary_words(searched, &mut words);
                similar(query.with_similar_words(&Vocabulary::new(words)))
            })?;
        hits.move_by(text.searched_start);
        Some(hits)
    }

    /// Reads the two texts of a comparison, at most `max_bytes` of each.
    ///
    /// # Errors
    /// One of them cannot be read, or is not known.
    pub fn compare_entry_with(
        &self,
        entry: &Path,
        other: &EntryComparison,
        max_bytes: u64,
    ) -> Result<ComparedTexts> {
        let found = self
            .context
            .entries()
            .find(entry)?
            .ok_or_else(|| self.context.controller().unknown_entry_error(entry))?;
        let text = self.read_entry_text(entry, max_bytes)?.bytes;
        let title = entry.display().to_string();
        match other {
            EntryComparison::Entry(path) => {
                let other = self.read_entry_text(path, max_bytes)?.bytes;
                Ok(ComparedTexts {
                    texts: [text, other],
                    titles: [title, path.display().to_string()],
                })
            }
            EntryComparison::Memory => {
                let agent = self.agent_of_entry(entry)?;
                let detail = self.observer.read_detail(agent);
                if let Some(error) = detail.error {
                    return Err(Error::new(ErrorKind::Host, error));
                }
                let scratch = strip_scratch_header(&text);
                let name = agent.name.as_str();
                // A redacted copy may be one of scratch or of a whole memory.
                let is_scratch = found.kind == EntryKind::Scratch
                    || found.kind == EntryKind::Redacted && has_scratch_header(&text, name);
                Ok(match scratch.filter(|_| is_scratch) {
                    Some(scratch) => ComparedTexts {
                        texts: [scratch.to_vec(), detail.split_at_boundary().1.to_vec()],
                        titles: [title, format!("scratch of {name} now")],
                    },
                    None => ComparedTexts {
                        texts: [text, detail.memory_prefix],
                        titles: [title, format!("memory of {name} now")],
                    },
                })
            }
            EntryComparison::Baseline => {
                let version = self.baseline_of_entry(entry)?;
                Ok(ComparedTexts {
                    texts: [version, text],
                    titles: ["baseline of that run".to_string(), title],
                })
            }
        }
    }

    /// Returns the agent of the config whose entry this is.
    fn agent_of_entry(&self, entry: &Path) -> Result<&Agent> {
        let directory = agent_directory_of(entry);
        let mut agents = self
            .context
            .config()
            .agents
            .iter()
            .filter(|it| Path::new(&it.archive_subdir) == directory);
        let first = agents.next().ok_or_else(|| {
            let message = format!("the agent of {} left the config", entry.display());
            Error::new(ErrorKind::Conflict, message)
        })?;
        match agents.next() {
            None => Ok(first),
            // Only the record knows which of the agents that share a directory it was.
            Some(_) => self
                .context
                .agent(&self.record_of_entry(entry)?.event.agent),
        }
    }

    fn baseline_of_entry(&self, entry: &Path) -> Result<Vec<u8>> {
        let record = self.record_of_entry(entry)?;
        let event = &record.event;
        let version = event.split_version.or(event.baseline).ok_or_else(|| {
            let message = format!("the record of {} names no baseline", entry.display());
            Error::new(ErrorKind::Conflict, message)
        })?;
        Ok(self
            .context
            .baseline_versions()
            .read_version(version)?
            .to_vec())
    }

    /// Returns the record of the run that wrote an entry.
    ///
    /// # Errors
    /// There is none: the original tool wrote it, or the record is gone; or the ledger cannot be read.
    pub fn record_of_entry(&self, entry: &Path) -> Result<LedgerRecord> {
        let mut found = None;
        let unread = self.context.ledger().for_each_record_backwards(|record| {
            if record.event.entries().any(|it| it.path == entry) {
                found = Some(record);
            }
            found.is_none()
        })?;
        found.ok_or_else(|| {
            let message = format!("no record of the ledger names {}", entry.display());
            match unread {
                Some(error) => error.with_context(message),
                None => Error::new(ErrorKind::Conflict, message),
            }
        })
    }
}

fn never_read_error(agent: &str) -> Error {
    Error::new(
        ErrorKind::Host,
        format!("the memory of {agent} was not read yet"),
    )
}
