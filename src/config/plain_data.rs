//! Configurations built in code, for programs that embed the engine.

use std::path::{Component, Path, PathBuf};

use super::agent_name::{MAX_AGENT_NAME_BYTES, is_agent_name};
use super::keys::{PathBases, SectionKind};
use super::resolved_section::{InheritedValues, KeySlots, ResolvedSection};
use super::{Agent, Config, GeneralSettings, LintConfig, ResetMemory, is_baseline_name};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::file_systems::hash_path;
use crate::base::invocation::Invocation;

/// Returns the values that a section of a kind has where a file sets none of them.
fn default_section(kind: SectionKind) -> ResolvedSection {
    let bases = PathBases {
        directory: Path::new("/"),
        home: None,
    };
    let inherited = InheritedValues::new(&bases, kind, None);
    ResolvedSection::new(KeySlots::default(), &[], &inherited)
}

impl GeneralSettings {
    /// Returns the defaults of all keys, with these directories, which are absolute.
    pub fn new(baseline_dir: PathBuf, archive_dir: PathBuf) -> GeneralSettings {
        GeneralSettings {
            baseline_dir,
            archive_dir,
            ..default_section(SectionKind::General).to_general_settings()
        }
    }
}

impl Agent {
    /// Creates an agent on this machine with the settings of its fleet: its memory, an absolute path,
    /// and its baseline, a file name in `baseline_dir`. Its entries are in a directory of its name.
    pub fn new(general: &GeneralSettings, name: &str, memory: PathBuf, baseline: &str) -> Agent {
        Agent {
            name: name.to_string(),
            remote: None,
            reset: Some(ResetMemory {
                path: memory,
                baseline: baseline.to_string(),
                separator: general.separator.clone(),
                max_size: general.max_memory_size,
                is_shared: true,
                accept_in_place: false,
                own_interval: None,
            }),
            layout: None,
            archive_subdir: name.to_string(),
            archive_findings: general.archive_findings,
            protect: general.protect,
            section_line: 0,
        }
    }

    /// Checks the constraints that the config file enforces on an agent.
    fn check(&self) -> Result<()> {
        let subdir = Path::new(&self.archive_subdir);
        let mut parts = subdir.components();
        let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
        // On a host, a path may start at the home there.
        let is_usable = |path: &Path| self.remote.is_some() || path.is_absolute();
        let fault = if !is_agent_name(&self.name) {
            "its name has characters that agents cannot have"
        } else if self.name.len() > MAX_AGENT_NAME_BYTES {
            "its name is too long"
        } else if self.reset.is_none() && self.layout.is_none() {
            "it has neither a baseline nor a layout"
        } else if self.reset.as_ref().is_some_and(|it| !is_usable(&it.path)) {
            "the path of its memory is not absolute"
        } else if self
            .layout
            .as_ref()
            .is_some_and(|it| !is_usable(&it.directory))
        {
            "the path of its memory_dir is not absolute"
        } else if self
            .reset
            .as_ref()
            .is_some_and(|it| !is_baseline_name(&it.baseline))
        {
            "its baseline is not a file name in baseline_dir"
        } else if self.archive_subdir.is_empty() || !is_below {
            "its archive_subdir is not a directory below archive_dir"
        } else {
            return Ok(());
        };
        let message = format!("the agent {}: {fault}", self.name);
        Err(Error::new(ErrorKind::Config, message))
    }
}

impl Config {
    /// Creates a config without a file. Agents may be on hosts; alerts are not configured.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: a directory that is not absolute, an agent that a file could not
    /// describe, or two agents of one name.
    pub fn new(general: GeneralSettings, agents: Vec<Agent>) -> Result<Config> {
        for directory in [&general.baseline_dir, &general.archive_dir] {
            if !directory.is_absolute() {
                let message = format!("{} is not absolute", directory.display());
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
        agents.iter().try_for_each(Agent::check)?;
        let local = agents.iter().enumerate();
        let local = local.filter(|(_, agent)| agent.host().is_none());
        let mut local_memories: Vec<(u64, usize)> = local
            .map(|(index, agent)| (hash_path(agent.observed_path()), index))
            .collect();
        local_memories.sort_unstable();
        let agents_by_name = sorted_by_name(&agents);
        let names = agents_by_name.iter().map(|index| &agents[*index].name);
        if let Some((name, _)) = names.clone().zip(names.skip(1)).find(|(a, b)| a == b) {
            let message = format!("two agents have the name {name}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Config {
            path: PathBuf::new(),
            invocation: Invocation::default(),
            general,
            lint: LintConfig::default(),
            alerts: None,
            agents,
            warnings: Vec::new(),
            resolved: None,
            agents_by_name,
            local_memories,
            text_digest: Digest::of(b""),
        })
    }
}

/// Returns the indexes of agents in the order of their names.
pub(super) fn sorted_by_name(agents: &[Agent]) -> Vec<usize> {
    let mut by_name: Vec<usize> = (0..agents.len()).collect();
    by_name.sort_unstable_by(|a, b| agents[*a].name.cmp(&agents[*b].name));
    by_name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigEnvironment, parse};

    fn general() -> GeneralSettings {
        GeneralSettings::new("/fleet/baselines".into(), "/fleet/archives".into())
    }

    fn scout() -> Agent {
        Agent::new(&general(), "scout", "/srv/MEMORY.md".into(), "scout.md")
    }

    #[test]
    fn settings_are_those_of_a_short_file() {
        let text = "[general]\nbaseline_dir=/fleet/baselines\narchive_dir=/fleet/archives\n\
                    [scout]\nmemory_file=/srv/MEMORY.md\nbaseline=scout.md\n";
        let env = ConfigEnvironment::bare("/");
        let read = parse(text.as_bytes(), Path::new("/fleet/x.conf"), &env).unwrap();
        let built = Config::new(general(), vec![scout()]).unwrap();
        let fleet_name = read.general.fleet_name.clone();
        let of_file = GeneralSettings {
            fleet_name,
            ..built.general.clone()
        };
        assert_eq!(read.general, of_file);
        assert_eq!(read.lint, built.lint);
        let section_line = read.agents[0].section_line;
        let of_file = Agent {
            section_line,
            ..scout()
        };
        assert_eq!(read.agents, [of_file]);
        assert_eq!(read.local_memories(), built.local_memories());
        assert_eq!(built.agent("scout"), Some(&scout()));
    }

    #[test]
    fn agents_that_no_file_can_describe_are_refused() {
        let refused = |agents: Vec<Agent>| {
            let error = Config::new(general(), agents).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            error.message().to_string()
        };
        let agent = |change: fn(&mut Agent)| {
            let mut agent = scout();
            change(&mut agent);
            vec![agent]
        };
        let named = |change, what: &str| {
            let message = refused(agent(change));
            assert!(message.contains(what), "{message}");
        };
        named(|it| it.name = "../scout".to_string(), "its name");
        named(
            |it| it.reset.as_mut().unwrap().baseline = "../x.md".to_string(),
            "its baseline",
        );
        named(|it| it.reset = None, "neither a baseline nor a layout");
        named(
            |it| it.archive_subdir = "../x".to_string(),
            "archive_subdir",
        );
        let relative = Agent::new(&general(), "scout", "MEMORY.md".into(), "scout.md");
        assert!(refused(vec![relative]).contains("not absolute"));
        assert!(refused(vec![scout(), scout()]).contains("two agents"));
        let general = GeneralSettings::new("baselines".into(), "/archives".into());
        assert!(Config::new(general, Vec::new()).is_err());
    }
}
