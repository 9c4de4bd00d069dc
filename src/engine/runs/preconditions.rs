//! What resets rely on besides the memories: file systems that answer, baselines and their seal,
//! owners of directories and files. Answers questions of `doctor`, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::bounded;

use crate::archive::{PROGRAM_DIRECTORY_NAME, QUARANTINE_DIRECTORY_NAME};
use crate::baseline::seal::{self, META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME};
use crate::boundary::Baseline;
use crate::config::{Agent, SealRequirement};
use crate::durable;
use crate::engine::Engine;
use crate::error::{Error, PathContext, Result};
use crate::file_systems::FileSystem;

/// Whether the baselines are protected by a seal.
pub enum SealStatus {
    /// The seal at this path applies.
    Applied(PathBuf),
    /// There is no seal.
    Missing {
        /// How to make one.
        hint: String,
    },
    /// The config ignores any seal.
    Ignored,
}

impl Engine {
    /// Returns the errors of this machine's file systems that do not answer, each with the agents
    /// whose memories are there.
    pub fn silent_file_systems(&self) -> Vec<(Error, Vec<&str>)> {
        let mut groups: BTreeMap<String, (Arc<FileSystem>, &Path, Vec<&str>)> = BTreeMap::new();
        for agent in self.local_agents() {
            let memory = agent.location.memory();
            if let Some(system) = self.file_systems.find_untrusted(memory) {
                let group = groups
                    .entry(system.display_mount_points())
                    .or_insert_with(|| (system, memory, Vec::new()));
                group.2.push(&agent.name);
            }
        }
        // All probes start before the first is waited for.
        let pending: Vec<_> = groups
            .into_values()
            .map(|(system, memory, agents)| {
                let (reply, answer) = bounded(1);
                let path = memory.to_path_buf();
                let probe = move || {
                    let _ = reply.send(durable::stat_no_symlinks(&path).is_ok());
                };
                (system.start_call(probe).map(|call| (call, answer)), agents)
            })
            .collect();
        pending
            .into_iter()
            .filter_map(|(call, agents)| {
                let answer = call.and_then(|(call, answer)| call.receive(&answer));
                answer.err().map(|error| (error, agents))
            })
            .collect()
    }

    /// Returns whether a seal protects the baselines.
    ///
    /// # Errors
    /// The seal cannot be used.
    pub fn seal_status(&self) -> Result<SealStatus> {
        let general = &self.config().general;
        if general.require_seal == SealRequirement::Never {
            return Ok(SealStatus::Ignored);
        }
        Ok(match self.seal_verifier.read_seal(self.config())? {
            Some(_) => SealStatus::Applied(self.seal_path()),
            None => SealStatus::Missing {
                hint: seal::seal_hint(self.config()),
            },
        })
    }

    /// Returns the agents whose baselines resets refuse, each with the reason.
    pub fn refused_baselines(&self) -> Vec<(&Agent, Error)> {
        let mut baselines = self.baseline_cache();
        let agents = self.config().agents.iter();
        agents
            .filter_map(|agent| {
                let refusal = baselines.load(agent).err()?;
                Some((agent, refusal.error().clone()))
            })
            .collect()
    }

    /// Returns the agents whose baselines resets accept, each with its baseline.
    pub fn accepted_baselines(&self) -> Vec<(&Agent, Arc<Baseline>)> {
        let mut baselines = self.baseline_cache();
        let agents = self.config().agents.iter();
        agents
            .filter_map(|agent| Some((agent, baselines.load(agent).ok()?)))
            .collect()
    }

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
            .map(|path| self.archive.check_owner(path));
        owners.filter_map(Result::err).collect()
    }

    /// Returns the errors of directories of entries that cannot be read: no reset of their agents
    /// can archive anything.
    pub fn unreadable_entry_directories(&self) -> Vec<Error> {
        let directories = self.agent_directories().into_iter();
        directories
            .filter_map(|directory| self.archive.list_entries(directory.as_ref()).err())
            .collect()
    }

    /// Returns the files that stand for runs which were interrupted or are in progress, each with
    /// the agent that its name begins with. Includes files that no run has written.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn journal_files(&self) -> Result<Vec<(String, PathBuf)>> {
        let directory = self.archive.program_path("tx");
        let items = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.with_path("list", &directory)?,
        };
        let paths = items.flatten().map(|item| item.path());
        let paths = paths.filter(|it| it.extension().is_some_and(|end| end == "json"));
        let with_agent = paths.map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let agent = name.split('.').next().unwrap_or_default();
            (agent.to_string(), path)
        });
        Ok(with_agent.collect())
    }

    /// Returns the owner of a memory of this machine or, if it does not exist, of its directory;
    /// then the owner of the directory, who can replace any file in it.
    pub fn memory_owners(&self, agent: &Agent) -> Vec<u32> {
        if agent.location.host().is_some() {
            return Vec::new();
        }
        let memory = agent.location.memory();
        let directory = memory.parent().unwrap_or(memory);
        let owner = |path| durable::stat_no_symlinks(path).ok().map(|it| it.st_uid);
        let directory_owner = owner(directory);
        let memory_owner = owner(memory).or(directory_owner);
        memory_owner.into_iter().chain(directory_owner).collect()
    }

    /// Returns the files and directories that runs write or rely on and that no agent may write, as
    /// far as they concern `agents`; some may not exist.
    pub fn protected_paths(&self, agents: &[&Agent]) -> Vec<PathBuf> {
        let general = &self.config().general;
        let mut paths = vec![self.config().path.clone()];
        let seal_files = [SEAL_FILE_NAME, META_FILE_NAME, SIGNATURE_FILE_NAME];
        paths.extend(seal_files.map(|name| general.baseline_dir.join(name)));
        paths.extend(["reset.log", "reset.log.old"].map(|name| general.archive_dir.join(name)));
        let own = general.archive_dir.join(PROGRAM_DIRECTORY_NAME);
        let directories = [own.clone(), own.join("locks"), own.join("tx")];
        paths.extend(directories.iter().flat_map(|path| child_paths(path)));
        paths.extend(directories);
        for agent in agents {
            paths.push(self.config().baseline_path(agent));
            paths.push(general.archive_dir.join(&agent.archive_subdir));
        }
        paths.extend(general.seal_signers.clone());
        let lint = &self.config().lint;
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
