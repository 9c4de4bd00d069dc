//! Overlap checks of the directories of a config. Memories, archive and baselines must be apart:
//! retention and sweeps delete files in directories of the archive, and an agent can change all
//! files in its directory.
//!
//! Compares real directories ([`crate::base::file_systems::ancestry`]), so that neither symlinks nor bind
//! mounts hide an overlap. Directories on other hosts are not checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::ini::{Diagnostics, SourceLine, excerpt};
use super::{Agent, Config, DiagnosticLevel, ValueOrigin};
use crate::archive::{PROGRAM_DIRECTORY_NAME, is_quarantine_directory};
use crate::base::clock::SystemClock;
use crate::base::file_systems::FileSystems;
use crate::base::file_systems::ancestry::{Ancestry, resolve_ancestries};

/// Time limit for a file system to resolve directories. Those on a hung file system are not
/// checked; agents there cannot be reset either.
const ANCESTRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports overlapping directories; `text` is the text of the config.
pub(super) fn report_overlaps(config: &Config, text: &[u8], diagnostics: &mut Diagnostics) {
    OverlapCheck::new(config, text).report_all(diagnostics);
}

struct OverlapCheck<'c> {
    config: &'c Config,
    text: &'c [u8],
    file_systems: FileSystems,
}

/// A directory that holds a memory of an agent.
struct AgentDirectory<'c> {
    agent: &'c Agent,
    /// The key of the config that names it.
    key: &'static str,
    at: Ancestry,
}

impl<'c> OverlapCheck<'c> {
    fn new(config: &'c Config, text: &'c [u8]) -> OverlapCheck<'c> {
        let limit = Duration::from_secs(config.general.local_timeout.into());
        OverlapCheck {
            config,
            text,
            file_systems: FileSystems::new(
                &config.general.archive_dir,
                limit,
                Arc::new(SystemClock),
            ),
        }
    }

    fn report_all(&self, diagnostics: &mut Diagnostics) {
        let agents = self.agent_directories();
        let general = &self.config.general;
        let paths = [&general.archive_dir, &general.baseline_dir].map(PathBuf::clone);
        let ancestries_found =
            resolve_ancestries(&self.file_systems, paths.to_vec(), ANCESTRY_TIMEOUT);
        let [archive, baselines] = ancestries_found.as_slice() else {
            return;
        };
        if let Some(archive) = archive {
            let (inside, outside): (Vec<_>, Vec<_>) =
                agents.iter().partition(|it| it.at.is_within(archive));
            for directory in inside {
                self.report_memory_in_archive(directory, archive, diagnostics);
            }
            let mount_points = self.file_systems.mount_points_below(&archive.path);
            let mounted = resolve_ancestries(&self.file_systems, mount_points, ANCESTRY_TIMEOUT);
            let parts = mounted.into_iter().flatten().chain([archive.clone()]);
            for part in parts {
                if self.report_inside_agent_directory(
                    outside.iter().copied(),
                    "archive_dir",
                    &part,
                    diagnostics,
                ) {
                    break;
                }
            }
        }
        if let Some(baselines) = baselines {
            self.report_inside_agent_directory(
                agents.iter(),
                "baseline_dir",
                baselines,
                diagnostics,
            );
            self.report_baselines_in_agent_directories(&agents, baselines, diagnostics);
        }
        if let (Some(archive), Some(baselines)) = (archive, baselines) {
            self.report_baselines_in_archive(archive, baselines, diagnostics);
        }
    }

    fn agent_directories(&self) -> Vec<AgentDirectory<'c>> {
        let local = |agent: &'c Agent| {
            let directories = agent.local_directories().into_iter();
            directories.map(move |(key, path)| ((agent, key), path.to_path_buf()))
        };
        let directories = self.config.agents.iter().flat_map(local);
        let (named, paths): (Vec<_>, Vec<PathBuf>) = directories.unzip();
        let found = resolve_ancestries(&self.file_systems, paths, ANCESTRY_TIMEOUT);
        let known = named.into_iter().zip(found);
        known
            .filter_map(|((agent, key), at)| {
                Some(AgentDirectory {
                    agent,
                    key,
                    at: at?,
                })
            })
            .collect()
    }

    fn report_memory_in_archive(
        &self,
        directory: &AgentDirectory<'_>,
        archive: &Ancestry,
        diagnostics: &mut Diagnostics,
    ) {
        let name = &directory.agent.name;
        let archive = archive.path.display();
        let message = format!("the memory of `{name}` is inside archive_dir, {archive}");
        let hint = "move one of them: retention and sweeps delete files among the entries";
        self.add_error(diagnostics, (name, directory.key), message, hint);
    }

    /// Reports `directory` if it is the directory of an agent or inside one. Returns whether it is.
    fn report_inside_agent_directory<'d>(
        &self,
        mut agents: impl Iterator<Item = &'d AgentDirectory<'c>>,
        key: &str,
        directory: &Ancestry,
        diagnostics: &mut Diagnostics,
    ) -> bool
    where
        'c: 'd,
    {
        let Some(found) = agents.find(|it| directory.is_within(&it.at)) else {
            return false;
        };
        let message = format!(
            "{key}, {}, is inside the directory of `{}`, {}",
            directory.path.display(),
            found.agent.name,
            found.at.path.display()
        );
        let hint = "move it to a directory that no agent writes to, or the memory to a directory of its own";
        self.add_error(diagnostics, ("general", key), message, hint);
        true
    }

    /// Reports baselines in directories of agents below `baseline_dir`.
    fn report_baselines_in_agent_directories(
        &self,
        agents: &[AgentDirectory<'_>],
        baselines: &Ancestry,
        diagnostics: &mut Diagnostics,
    ) {
        let mut agents_by_directory: HashMap<&Path, &str> = HashMap::new();
        for AgentDirectory { agent, at, .. } in agents {
            if at.is_within(baselines) && !baselines.is_within(at) {
                agents_by_directory.entry(&at.path).or_insert(&agent.name);
            }
        }
        for agent in self
            .config
            .agents
            .iter()
            .filter(|_| !agents_by_directory.is_empty())
        {
            let Some(name) = agent.baseline() else {
                continue;
            };
            let baseline = baselines.path.join(name);
            let above = baseline.ancestors().skip(1);
            let Some(holder) = above
                .filter_map(|path| agents_by_directory.get(path))
                .next()
            else {
                continue;
            };
            let message = format!(
                "the baseline of `{}`, {}, is inside the directory of `{holder}`",
                agent.name,
                baseline.display()
            );
            let hint = "move it to a directory that no agent writes to";
            self.add_error(diagnostics, (&agent.name, "baseline"), message, hint);
        }
    }

    /// Reports baselines where entries are deleted, or among the archive's own files.
    fn report_baselines_in_archive(
        &self,
        archive: &Ancestry,
        baselines: &Ancestry,
        diagnostics: &mut Diagnostics,
    ) {
        let Ok(below) = baselines.path.strip_prefix(&archive.path) else {
            return;
        };
        let directory = if is_quarantine_directory(below) {
            below.parent().unwrap_or(below)
        } else {
            below
        };
        let mut agents = self.config.agents.iter();
        let has_entries = agents.any(|agent| directory == Path::new(&agent.archive_subdir));
        if has_entries || below.starts_with(PROGRAM_DIRECTORY_NAME) {
            let message = format!(
                "baseline_dir, {}, is a directory that the archive deletes files from",
                baselines.path.display()
            );
            let hint = "give the baselines a directory of their own";
            self.add_error(diagnostics, ("general", "baseline_dir"), message, hint);
        }
    }

    /// Adds an error about the line of a key, or about the section of the agent if no line sets the
    /// key.
    fn add_error(
        &self,
        diagnostics: &mut Diagnostics,
        (section, key): (&str, &str),
        message: String,
        hint: &str,
    ) {
        let line = match self.config.origin(section, key) {
            ValueOrigin::Line(line) => Some(line),
            ValueOrigin::Default => self.config.agent(section).map(|agent| agent.section_line),
        };
        let hint = Some(hint.to_string());
        match line {
            Some(line) => {
                let mut lines = self.text.split(|byte| *byte == b'\n');
                let text = lines.nth(line - 1).unwrap_or_default().trim_ascii();
                let text = excerpt(String::from_utf8_lossy(text));
                diagnostics.add_error(&SourceLine { number: line, text }, message, hint);
            }
            None => diagnostics.add(DiagnosticLevel::Error, None, message, hint),
        }
    }
}
