//! What resets rely on besides the memories: file systems that answer, baselines and their seal,
//! owners of directories and files. Answers questions of `doctor`, and changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::archive::{PROGRAM_DIRECTORY_NAME, QUARANTINE_DIRECTORY_NAME};
use crate::base::error::{Error, ErrorKind, Result};
use crate::baseline::seal::{META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME};
use crate::config::Agent;
use crate::engine::runs::Runs;

impl Runs {
    /// Returns why runs refuse directories of the archive: those of the program and of `agents`
    /// that another user owns.
    pub fn refused_archive_directories(&self, agents: &[&Agent]) -> Vec<Error> {
        let own = Path::new(PROGRAM_DIRECTORY_NAME);
        let program = ["locks", "tx", "baselines"].map(|name| own.join(name));
        let entries = agents.iter().flat_map(|agent| {
            let directory = PathBuf::from(&agent.archive_subdir);
            let quarantine = directory.join(QUARANTINE_DIRECTORY_NAME);
            [directory, quarantine]
        });
        let directories: BTreeSet<PathBuf> = [PathBuf::new(), own.to_path_buf()]
            .into_iter()
            .chain(program)
            .chain(entries)
            .collect();
        let owners = directories
            .iter()
            .map(|path| self.context.archive().permissions().check_owner(path));
        owners.filter_map(Result::err).collect()
    }

    /// Returns the errors of directories of entries that cannot be read: no reset of their agents
    /// can archive anything.
    pub fn unreadable_entry_directories(&self) -> Vec<Error> {
        let directories = self.retention.agent_directories().into_iter();
        directories
            .filter_map(|directory| self.context.entries().list(directory.as_ref()).err())
            .collect()
    }

    /// Returns the journals of runs that were interrupted or are in progress, each with its agent.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn open_journals(&self) -> Result<Vec<(String, PathBuf)>> {
        self.context.journals().list()
    }

    /// Checks that recovery can use a journal. One that cannot be read is not checked: its run may have
    /// ended.
    ///
    /// # Errors
    /// It is damaged.
    pub fn check_journal(&self, journal: &Path) -> Result<()> {
        match self.context.journals().read(journal) {
            Err(error) if error.kind() == ErrorKind::Integrity => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the journals of agents that are not configured, for example because they were
    /// renamed: no run of this config settles them. The journals of a run in progress are left out:
    /// another config may name its agents.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn unclaimed_journals(&self) -> Result<Vec<PathBuf>> {
        let mut journals = self.context.journals().list()?;
        journals.retain(|(agent, _)| {
            let is_idle = || !self.context.leases().is_held(agent);
            self.context.config().agent(agent).is_none() && is_idle()
        });
        Ok(journals.into_iter().map(|(_, journal)| journal).collect())
    }

    /// Returns the files and directories that runs write or rely on and that no agent may write, as
    /// far as they concern `agents`; some may not exist.
    pub fn protected_paths(&self, agents: &[&Agent]) -> Vec<PathBuf> {
        let general = &self.context.config().general;
        let mut paths = vec![self.context.config().path.clone()];
        let seal_files = [SEAL_FILE_NAME, META_FILE_NAME, SIGNATURE_FILE_NAME];
        paths.extend(seal_files.map(|name| general.baseline_dir.join(name)));
        paths.extend(["reset.log", "reset.log.old"].map(|name| general.archive_dir.join(name)));
        let own = general.archive_dir.join(PROGRAM_DIRECTORY_NAME);
        let directories = [own.clone(), own.join("locks"), own.join("tx")];
        paths.extend(directories.iter().flat_map(|path| child_paths(path)));
        paths.extend(directories);
        for agent in agents {
            paths.extend(self.context.config().baseline_path(agent));
            paths.push(general.archive_dir.join(&agent.archive_subdir));
        }
        paths.extend(general.seal_signers.clone());
        let lint = &self.context.config().lint;
        let files = [&lint.allow_file, &lint.accepted_file, &lint.words_directory];
        paths.extend(files.into_iter().flatten().cloned());
        paths
    }
}

/// Returns the children of a directory, as far as it can be read.
fn child_paths(path: &Path) -> impl Iterator<Item = PathBuf> {
    let items = fs::read_dir(path).into_iter().flatten();
    items.filter_map(|item| Some(item.ok()?.path()))
}
