//! Whose timeline it is: the agent, and the directories of the archive that hold its entries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::TimelineSubject;
use crate::archive::{WrittenEntry, agent_directory_of, has_scratch_header};
use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::records::Timelines;
use crate::store::entries::directories::EntryDirectory;

/// Bytes of an entry that are read to find its header.
pub(super) const MAX_HEADER_BYTES: u64 = 4096;

/// An agent and its directories.
pub(super) struct ResolvedSubject {
    /// The agent's name; where nothing names it, the path of its directory.
    pub agent: String,
    /// Its directories below `archive_dir`.
    pub directories: BTreeSet<PathBuf>,
    /// Whether the config, an entry or a record names it.
    pub is_known: bool,
}

impl Timelines {
    /// Finds the agent of a timeline.
    ///
    /// # Errors
    /// The ledger or the archive cannot be read; nothing says which agent of a shared directory
    /// wrote the entry.
    pub(super) fn resolve_timeline_subject(
        &self,
        subject: &TimelineSubject,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<ResolvedSubject> {
        match subject {
            TimelineSubject::Agent(name) => {
                if let Some(agent) = self.context.config().agent(name) {
                    let directories = BTreeSet::from([PathBuf::from(&agent.archive_subdir)]);
                    return Ok(ResolvedSubject::known(name, directories));
                }
                let directories = self.context.entries().entry_directories()?.into_iter();
                let mut left = directories.filter(|it| it.has_left());
                match left.find(|it| it.names().any(|known| known == *name)) {
                    Some(found) => self.resolve_left_agent(&found.path, goes_on),
                    // Its records may be all that is left of it.
                    None => Ok(ResolvedSubject {
                        is_known: false,
                        ..ResolvedSubject::known(name, BTreeSet::new())
                    }),
                }
            }
            TimelineSubject::Entry(path) => {
                let directory = agent_directory_of(path);
                let agents = self.context.entries().agents_of_directory(directory);
                match agents.as_slice() {
                    [] => self.resolve_left_agent(directory, goes_on),
                    [one] => {
                        let directories = BTreeSet::from([directory.to_path_buf()]);
                        Ok(ResolvedSubject::known(one, directories))
                    }
                    several => {
                        let agent = self.agent_of_shared_entry(path, several)?;
                        let directories = BTreeSet::from([directory.to_path_buf()]);
                        Ok(ResolvedSubject::known(&agent, directories))
                    }
                }
            }
        }
    }

    /// Resolves a directory that no agent of the config has: the newest record with an entry in it
    /// names its agent, which may have another directory now.
    fn resolve_left_agent(
        &self,
        directory: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<ResolvedSubject> {
        let mut directories = BTreeSet::from([directory.to_path_buf()]);
        let recorded = self.recorded_agent_of_directory(directory, goes_on)?;
        let left = EntryDirectory {
            path: directory.to_path_buf(),
            agents: Vec::new(),
        };
        let agent = recorded.unwrap_or_else(|| left.label());
        let configured = self.context.config().agent(&agent);
        directories.extend(configured.map(|it| PathBuf::from(&it.archive_subdir)));
        Ok(ResolvedSubject::known(&agent, directories))
    }

    fn recorded_agent_of_directory(
        &self,
        directory: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<String>> {
        let mut back = self.context.ledger().scan_backwards()?;
        while goes_on()
            && let Some((_, record)) = back.next_readable(&mut |it| !it.agent.is_empty())?
        {
            let is_here = |it: &WrittenEntry| agent_directory_of(&it.path) == directory;
            if record.event.entries().any(is_here) {
                return Ok(Some(record.event.agent));
            }
        }
        Ok(None)
    }

    /// Returns which of the agents that share a directory an entry is of: its record says so, or
    /// its header.
    fn agent_of_shared_entry(&self, path: &Path, agents: &[&str]) -> Result<String> {
        if let Ok(record) = self.search.record_of_entry(path) {
            return Ok(record.event.agent);
        }
        let text = self.search.read_entry_text(path, MAX_HEADER_BYTES)?.bytes;
        let named = agents.iter().find(|it| has_scratch_header(&text, it));
        named.map(|it| it.to_string()).ok_or_else(|| {
            let agents = agents.join(", ");
            let path = path.display();
            let message =
                format!("neither a record nor a header says which of {agents} wrote {path}");
            Error::new(ErrorKind::Conflict, message)
        })
    }
}

impl ResolvedSubject {
    fn known(agent: &str, directories: BTreeSet<PathBuf>) -> ResolvedSubject {
        ResolvedSubject {
            agent: agent.to_string(),
            directories,
            is_known: true,
        }
    }
}
