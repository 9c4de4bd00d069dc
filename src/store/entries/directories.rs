//! Directories of the archive, the agents whose entries are in them, and entries at typed paths.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::archive::{self, ArchiveEntry, WrittenEntry};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::Agent;
use crate::store::entries::Entries;

/// A directory of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryDirectory {
    /// Path below `archive_dir`; empty for `archive_dir` itself.
    pub path: PathBuf,
    /// The agents of the config whose entries are in it; none if they left the config.
    pub agents: Vec<String>,
}

impl EntryDirectory {
    /// Returns whether its agent left the config. Whose entries `archive_dir` itself has is not known.
    pub fn has_left(&self) -> bool {
        self.agents.is_empty() && !self.path.as_os_str().is_empty()
    }

    /// The names under which operators know the agents. Those of an agent that left the config are
    /// the path of its directory, and the last part of it.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let is_unclaimed = self.agents.is_empty();
        let path = is_unclaimed.then(|| self.path.display().to_string());
        let last = self
            .path
            .file_name()
            .filter(|_| is_unclaimed)
            .map(|name| name.to_string_lossy().into_owned());
        self.agents.iter().cloned().chain(path).chain(last)
    }

    /// The agents, for people.
    pub fn label(&self) -> String {
        match self.agents.as_slice() {
            [] if self.path.as_os_str().is_empty() => "unknown agent".to_string(),
            [] => self.path.display().to_string(),
            agents => agents.join(", "),
        }
    }
}

impl dyn Entries + '_ {
    /// Returns the directories of all agents, those of agents that left the config, and `archive_dir`
    /// itself if it has entries.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn entry_directories(&self) -> Result<Vec<EntryDirectory>> {
        let mut by_path: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for agent in &self.controller().config().agents {
            let agents = by_path
                .entry(PathBuf::from(&agent.archive_subdir))
                .or_default();
            agents.push(agent.name.clone());
        }
        let is_claimed = |directory: &Path| by_path.contains_key(directory);
        let unclaimed = self.unclaimed_directories(&is_claimed)?;
        by_path.extend(unclaimed.into_iter().map(|path| (path, Vec::new())));
        // An error here is one of every other directory as well.
        let own_entries = self.list(Path::new(""));
        if own_entries.is_ok_and(|entries| !entries.is_empty()) {
            by_path.entry(PathBuf::new()).or_default();
        }
        let directories = by_path.into_iter();
        Ok(directories
            .map(|(path, agents)| EntryDirectory { path, agents })
            .collect())
    }

    /// Returns the agents of the config that have their entries in a directory.
    pub(crate) fn agents_of_directory(&self, directory: &Path) -> Vec<&str> {
        let agents = self.controller().config().agents.iter();
        let here = agents.filter(|it| Path::new(&it.archive_subdir) == directory);
        here.map(|it| it.name.as_str()).collect()
    }

    /// Finds the entry at a path, typed in any form that leads to it.
    ///
    /// # Errors
    /// There is none, or the archive cannot be read.
    pub fn find_typed(&self, typed: &Path) -> Result<ArchiveEntry> {
        self.controller().archive().check_expected()?;
        let path = self.resolve_typed(typed);
        let found = path.map(|path| self.find(&path)).transpose()?;
        let unknown = || self.controller().unknown_entry_error(typed);
        found.flatten().ok_or_else(unknown)
    }

    /// Returns the archive directory of an agent, and the number and total size of its entries.
    pub fn archive_usage(&self, agent: &Agent) -> (PathBuf, Result<(usize, u64)>) {
        let subdir = Path::new(&agent.archive_subdir);
        let usage = self
            .list(subdir)
            .map(|entries| (entries.len(), entries.iter().map(|entry| entry.size).sum()));
        (self.location(subdir), usage)
    }

    /// Reads the beginning of an entry, up to `max_bytes` bytes, and checks the digest of all of it
    /// against the ledger.
    ///
    /// # Errors
    /// The entry cannot be read, or its digest differs.
    pub fn read_entry(&self, written: &WrittenEntry, max_bytes: usize) -> Result<Vec<u8>> {
        let path = self.location(&written.path);
        let mut file = self.open(&written.path)?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(max_bytes as u64)
            .read_to_end(&mut bytes)
            .with_path("read", &path)?;
        if archive::digest_reader(bytes.as_slice().chain(file), &path)? == written.digest {
            return Ok(bytes);
        }
        let message = format!("{} does not match its digest in the ledger", path.display());
        let verify = self.controller().command_line("verify");
        Err(Error::new(ErrorKind::Integrity, message)
            .with_hint(format!("run `{verify}` to check all entries")))
    }
}
