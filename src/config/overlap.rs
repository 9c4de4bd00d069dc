//! Directories of a config that overlap. What agents may write, what the archive deletes
//! from, and where baselines are must be apart: in the archive's directories retention
//! and sweeps delete files, and what lies in an agent's directory the agent can change.
//!
//! Directories are compared as they really are ([`crate::file_systems::ancestry`]), so that neither links nor
//! bind mounts hide anything. Hosts are not asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::ini::{Diagnostics, Spot, excerpt};
use super::{Agent, Config, DiagnosticLevel, MemoryLocation, Origin};
use crate::archive::OWN;
use crate::clock::System;
use crate::file_systems::FileSystems;
use crate::file_systems::ancestry::{Ancestry, ancestries};

/// How long a file system may take to say where directories are. One that hangs keeps
/// nobody from its own agents, who are not reset then.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reports directories that overlap; `text` is what the config was read from.
pub(super) fn check(config: &Config, text: &[u8], report: &mut Diagnostics) {
    OverlapCheck::new(config, text).run(report);
}

struct OverlapCheck<'c> {
    config: &'c Config,
    text: &'c [u8],
    systems: FileSystems,
}

/// Directories of agents, each with its agent.
type Directories<'c> = Vec<(&'c Agent, Ancestry)>;

impl<'c> OverlapCheck<'c> {
    fn new(config: &'c Config, text: &'c [u8]) -> OverlapCheck<'c> {
        let limit = Duration::from_secs(config.general.local_timeout.into());
        OverlapCheck {
            config,
            text,
            systems: FileSystems::new(&config.general.archive_dir, limit, Arc::new(System)),
        }
    }

    fn run(&self, report: &mut Diagnostics) {
        let agents = self.agent_directories();
        let general = &self.config.general;
        let paths = [&general.archive_dir, &general.baseline_dir].map(PathBuf::clone);
        let found = ancestries(&self.systems, paths.to_vec(), PATIENCE);
        let [archive, baselines] = found.as_slice() else {
            return;
        };
        if let Some(archive) = archive {
            let (inside, apart): (Vec<_>, Vec<_>) =
                agents.iter().partition(|(_, at)| at.is_within(archive));
            for (agent, _) in inside {
                self.memory_in_archive(agent, archive, report);
            }
            let mounted = self.systems.mounts_below(&archive.path);
            let mounted = ancestries(&self.systems, mounted, PATIENCE);
            let parts = mounted.into_iter().flatten().chain([archive.clone()]);
            for part in parts {
                if self.is_inside_an_agents(apart.iter().copied(), "archive_dir", &part, report) {
                    break;
                }
            }
        }
        if let Some(baselines) = baselines {
            self.is_inside_an_agents(agents.iter(), "baseline_dir", baselines, report);
            self.below_baselines(&agents, baselines, report);
        }
        if let (Some(archive), Some(baselines)) = (archive, baselines) {
            self.baselines_among_entries(archive, baselines, report);
        }
    }

    fn agent_directories(&self) -> Directories<'c> {
        let local = |agent: &'c Agent| match &agent.place {
            MemoryLocation::Local { memory, .. } => Some((agent, memory.parent()?.to_path_buf())),
            MemoryLocation::Remote { .. } => None,
        };
        let agents = self.config.agents.iter().filter_map(local);
        let (agents, paths): (Vec<&Agent>, Vec<PathBuf>) = agents.unzip();
        let found = ancestries(&self.systems, paths, PATIENCE);
        let known = agents.into_iter().zip(found);
        known.filter_map(|(agent, at)| Some((agent, at?))).collect()
    }

    fn memory_in_archive(&self, agent: &Agent, archive: &Ancestry, report: &mut Diagnostics) {
        let message = format!(
            "the memory of `{}` is inside archive_dir, {}",
            agent.name,
            archive.path.display()
        );
        let hint = "move one of them away: among entries, retention and sweeps delete files";
        self.error(report, (&agent.name, "memory_file"), message, hint);
    }

    /// Reports a directory that is an agent's or inside it; whether it is.
    fn is_inside_an_agents<'d>(
        &self,
        mut agents: impl Iterator<Item = &'d (&'c Agent, Ancestry)>,
        key: &str,
        directory: &Ancestry,
        report: &mut Diagnostics,
    ) -> bool
    where
        'c: 'd,
    {
        let Some((agent, at)) = agents.find(|(_, at)| directory.is_within(at)) else {
            return false;
        };
        let message = format!(
            "{key}, {}, is inside the directory of `{}`, {}",
            directory.path.display(),
            agent.name,
            at.path.display()
        );
        let hint = "move it to where no agent writes, or the memory to a directory of its own";
        self.error(report, ("general", key), message, hint);
        true
    }

    /// Reports baselines in directories of their own below `baseline_dir`.
    fn below_baselines(
        &self,
        agents: &Directories<'_>,
        baselines: &Ancestry,
        report: &mut Diagnostics,
    ) {
        let mut holders: HashMap<&Path, &str> = HashMap::new();
        for (agent, at) in agents {
            if at.is_within(baselines) && !baselines.is_within(at) {
                holders.entry(&at.path).or_insert(&agent.name);
            }
        }
        for agent in self.config.agents.iter().filter(|_| !holders.is_empty()) {
            let baseline = baselines.path.join(&agent.baseline);
            let above = baseline.ancestors().skip(1);
            let Some(holder) = above.filter_map(|path| holders.get(path)).next() else {
                continue;
            };
            let message = format!(
                "the baseline of `{}`, {}, is inside the directory of `{holder}`",
                agent.name,
                baseline.display()
            );
            let hint = "move it to where no agent writes";
            self.error(report, (&agent.name, "baseline"), message, hint);
        }
    }

    /// Reports baselines where entries are deleted, or among the archive's own files.
    fn baselines_among_entries(
        &self,
        archive: &Ancestry,
        baselines: &Ancestry,
        report: &mut Diagnostics,
    ) {
        let Ok(below) = baselines.path.strip_prefix(&archive.path) else {
            return;
        };
        let mut agents = self.config.agents.iter();
        let entries = agents.any(|agent| below == Path::new(&agent.archive_subdir));
        if entries || below.starts_with(OWN) {
            let message = format!(
                "baseline_dir, {}, is a directory that the archive deletes files from",
                baselines.path.display()
            );
            let hint = "give the baselines a directory of their own";
            self.error(report, ("general", "baseline_dir"), message, hint);
        }
    }

    /// Adds an error about the line of a key, or about the agent's section where no line
    /// sets it.
    fn error(
        &self,
        report: &mut Diagnostics,
        (section, key): (&str, &str),
        message: String,
        hint: &str,
    ) {
        let line = match self.config.origin(section, key) {
            Origin::Line(line) => Some(line),
            Origin::Default => self.config.agent(section).map(|agent| agent.line),
        };
        let hint = Some(hint.to_string());
        match line {
            Some(line) => {
                let mut lines = self.text.split(|byte| *byte == b'\n');
                let text = lines.nth(line - 1).unwrap_or_default().trim_ascii();
                let text = excerpt(&String::from_utf8_lossy(text));
                report.error(&Spot { line, text }, message, hint);
            }
            None => report.add(DiagnosticLevel::Error, None, message, hint),
        }
    }
}
