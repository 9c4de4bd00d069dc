//! The typed configuration: `memory-shepherd.conf` with the keys and defaults of the original tool
//! plus ours, checked as a whole before anything runs.
//!
//! A reset with half a config gives one agent another's identity, so all faults are found and
//! reported together ([`ConfigErrors`]), with file, line, text and hints. One table (`keys`) defines
//! which keys exist, their values and defaults; the parser, the spelling suggestions, `config show`
//! and the documentation follow it. `main` resolves home, environment and current directory and
//! passes them in as [`ConfigEnvironment`].

mod agent;
mod agent_name;
mod alert_settings;
mod baseline_name;
mod command_words;
mod foreign_habits;
mod identity;
mod ini;
mod keys;
mod overlap;
mod parser;
mod plain_data;
mod resolved_section;
mod shared_directories;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{self, Error, ErrorKind, Result};
use crate::base::invocation::Invocation;
use crate::base::reset_interval::ResetInterval;
use crate::base::trust::{TrustedUser, UserDatabase, find_untrusted_ancestor};
use crate::lint::{RuleId, Severity};

pub use agent::{
    ACCEPT_IN_PLACE, Agent, AgentLayout, RemoteAccess, ResetMemory, SftpExtension, SshHost,
};
pub(crate) use agent_name::is_agent_name;
pub use alert_settings::{AlertKind, AlertSettings, JournalTarget};
pub use baseline_name::{META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, is_baseline_name};
pub use identity::config_identity;
use ini::Diagnostics;
pub use ini::{Diagnostic, DiagnosticLevel};
use keys::canonical_key;
pub(crate) use keys::closest_match;
pub use keys::{KeySpec, SectionKind, keys};
use parser::{ALERTS_SECTION, LINT_SECTION, parse_partial};
pub use parser::{SAME_MEMORY_HINT, parse, same_memory_message};
use resolved_section::ResolvedSections;
pub use resolved_section::{EffectiveValue, ValueOrigin};
pub use shared_directories::{
    SHARED_ENTRY_DIRECTORY_HINT, SharedEntryDirectory, shared_entry_directories,
};

/// The process environment as `main` resolved it; this module reads none of it by itself.
#[derive(Clone, Debug)]
pub struct ConfigEnvironment {
    /// The current directory, absolute.
    pub cwd: PathBuf,
    /// Home directory of the user; `~` expands to it.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`; `~/.config` if unset.
    pub xdg_config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`; `~/.local/state` if unset.
    pub xdg_state_home: Option<PathBuf>,
    /// `$MEMORY_SHEPHERD_CONF`; an empty one counts as unset.
    pub config_path_variable: Option<PathBuf>,
    /// Directory of this program.
    pub program_directory: Option<PathBuf>,
    /// The effective user id.
    pub uid: u32,
    /// The users and groups of the machine.
    pub user_database: UserDatabase,
    /// The layouts that an agent can have.
    pub layouts: Vec<LayoutKeys>,
}

/// A layout that an agent can have.
#[derive(Clone, Copy, Debug)]
pub struct LayoutKeys {
    /// Its name.
    pub name: &'static str,
    /// The keys of a section that it has, of those that not all layouts have.
    pub keys: &'static [&'static str],
}

impl ConfigEnvironment {
    /// Creates the environment of root in a directory, without any variable.
    pub fn bare(cwd: impl Into<PathBuf>) -> ConfigEnvironment {
        ConfigEnvironment {
            cwd: cwd.into(),
            home: None,
            xdg_config_home: None,
            xdg_state_home: None,
            config_path_variable: None,
            program_directory: None,
            uid: 0,
            user_database: UserDatabase::EMPTY,
            layouts: Vec::new(),
        }
    }

    /// Returns the user of this process, whose files it trusts.
    pub fn trusted_user(&self) -> TrustedUser {
        TrustedUser {
            uid: self.uid,
            database: self.user_database,
        }
    }

    /// Returns the absolute path of a file that the user named; `~` is the home directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.cwd.join(path),
        }
    }

    /// Returns the config that the variable names.
    fn named_config(&self) -> Option<&Path> {
        let path = self.config_path_variable.as_deref();
        path.filter(|path| !path.as_os_str().is_empty())
    }

    /// Whether the variable names a config.
    pub fn names_config(&self) -> bool {
        self.named_config().is_some()
    }

    /// Returns the directory of the user's own settings of this program.
    pub fn config_directory(&self) -> Option<PathBuf> {
        self.user_directory(&self.xdg_config_home, ".config")
    }

    /// Returns the directory of the state that this program keeps for the user.
    pub fn state_directory(&self) -> Option<PathBuf> {
        self.user_directory(&self.xdg_state_home, ".local/state")
    }

    /// A relative path in such a variable counts as unset, as the XDG specification requires.
    fn user_directory(&self, variable: &Option<PathBuf>, default: &str) -> Option<PathBuf> {
        let from_variable = variable.clone().filter(|path| path.is_absolute());
        let directory = from_variable.or_else(|| Some(self.home.as_ref()?.join(default)))?;
        Some(directory.join("memory-shepherd"))
    }
}

/// The config file found by the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedConfig {
    /// The file, absolute.
    pub path: PathBuf,
    /// Invocation of this program on the file, for suggested command lines: without `--config` only
    /// if the search finds the file from any directory.
    pub invocation: Invocation,
}

impl LocatedConfig {
    /// Reads and checks the config.
    pub fn load(&self, env: &ConfigEnvironment) -> std::result::Result<Config, ConfigErrors> {
        let config = load(&self.path, env)?;
        Ok(Config {
            invocation: self.invocation.clone(),
            ..config
        })
    }
}

const CONFIG_FILE_NAME: &str = "memory-shepherd.conf";
/// The config of the machine, which is used where no other is found.
pub const SYSTEM_CONFIG_PATH: &str = "/etc/memory-shepherd/memory-shepherd.conf";

/// Finds the config file: the flag, the variable, the current directory, the directory of the user,
/// that of the program (as the original script does), `/etc`.
///
/// # Errors
/// A file that is named but missing, or that is found where another user can write it: never a
/// fall-through, so that no other fleet is used by mistake.
pub fn locate(flag: Option<&Path>, env: &ConfigEnvironment) -> Result<LocatedConfig> {
    locate_with_system_path(flag, env, Path::new(SYSTEM_CONFIG_PATH))
}

fn locate_with_system_path(
    flag: Option<&Path>,
    env: &ConfigEnvironment,
    system: &Path,
) -> Result<LocatedConfig> {
    if let Some(named) = locate_named(flag, env)? {
        return Ok(named);
    }
    match search(env, system)? {
        Ok(found) => Ok(found),
        Err(SearchedPaths(searched)) => Err(no_config_error(env, &searched)),
    }
}

/// Finds the config file as [`locate`] does; none if there is none in any place.
///
/// # Errors
/// As [`locate`].
pub fn locate_if_any(
    flag: Option<&Path>,
    env: &ConfigEnvironment,
) -> Result<Option<LocatedConfig>> {
    match locate_named(flag, env)? {
        Some(named) => Ok(Some(named)),
        None => Ok(search(env, Path::new(SYSTEM_CONFIG_PATH))?.ok()),
    }
}

/// The places without a config.
struct SearchedPaths(Vec<PathBuf>);

/// Searches the places where a config may be that neither a flag nor a variable names.
fn search(
    env: &ConfigEnvironment,
    system: &Path,
) -> Result<std::result::Result<LocatedConfig, SearchedPaths>> {
    let local_path = env.cwd.join(CONFIG_FILE_NAME);
    let user_path = env
        .config_directory()
        .map(|directory| directory.join(CONFIG_FILE_NAME));
    let program_path = env
        .program_directory
        .as_ref()
        .map(|directory| directory.join(CONFIG_FILE_NAME));
    let mut candidates = vec![local_path.clone()];
    for path in [&user_path, &program_path].into_iter().flatten() {
        if !candidates.contains(path) {
            candidates.push(path.clone());
        }
    }
    candidates.push(system.to_path_buf());
    let mut searched = Vec::new();
    for path in candidates {
        if !exists(&path)? {
            searched.push(path);
            continue;
        }
        let is_local = path == local_path;
        // HOME may be another user's: `su -m` and `sudo -E` keep it.
        let is_of_home = Some(&path) == user_path.as_ref() && env.uid == 0;
        if is_local || is_of_home || Some(&path) == program_path.as_ref() {
            check_trusted(&path, is_local, env)?;
        }
        let invocation = if is_local {
            Invocation::with_config(&path)
        } else {
            Invocation::default()
        };
        return Ok(Ok(LocatedConfig { path, invocation }));
    }
    Ok(Err(SearchedPaths(searched)))
}

fn no_config_error(env: &ConfigEnvironment, searched: &[PathBuf]) -> Error {
    let user_path = env.config_directory();
    let example_path = user_path
        .as_ref()
        .unwrap_or(&env.cwd)
        .join(CONFIG_FILE_NAME);
    let example_path = example_path.display();
    let searched: Vec<String> = searched.iter().map(|it| it.display().to_string()).collect();
    let message = format!("no config found; looked for {}", searched.join(", "));
    let mut error = Error::new(ErrorKind::Config, message);
    if cfg!(feature = "demo") {
        error = error.with_hint("run `memory-shepherd demo` to try it on an example fleet");
    }
    error
        .with_hint(format!(
            "to start, `memory-shepherd init` writes {example_path}; edit it, and check it with \
             `memory-shepherd config check`"
        ))
        .with_hint("for a config at another path, pass --config FILE")
}

/// Returns the config that the flag or the variable names, if one does.
fn locate_named(flag: Option<&Path>, env: &ConfigEnvironment) -> Result<Option<LocatedConfig>> {
    let named = flag.map(|path| (path, "--config"));
    let Some((path, source)) = named.or(env
        .named_config()
        .map(|path| (path, "$MEMORY_SHEPHERD_CONF")))
    else {
        return Ok(None);
    };
    let path = strip_dot_components(&env.resolve(path));
    if exists(&path)? {
        return Ok(Some(LocatedConfig {
            invocation: Invocation::with_config(&path),
            path,
        }));
    }
    let message = format!("config {} named by {source} does not exist", path.display());
    Err(Error::new(ErrorKind::Config, message).with_hint(format!(
        "correct {source}, or omit it to search the default locations"
    )))
}

/// Whether `path` exists. A dangling symlink does, and is reported when the file is read. Missing
/// permission is an error, not absence.
fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if durable::is_absent(&error) => Ok(false),
        Err(error) => Err(Error::from_io("stat", path, &error).with_kind(ErrorKind::Config)),
    }
}

/// Refuses a config that the search found and that another user can write or replace: it decides
/// which files this process reads and writes, and which programs it runs, as its user.
fn check_trusted(path: &Path, is_local: bool, env: &ConfigEnvironment) -> Result<()> {
    let Some(place) = find_untrusted_ancestor(path, env.trusted_user()) else {
        return Ok(());
    };
    let message = format!(
        "the config {} was found and is not used: {}",
        path.display(),
        place.describe(env.user_database)
    );
    let named = shell_words::quote(&path.to_string_lossy()).into_owned();
    let error = Error::new(ErrorKind::Config, message)
        .with_hint(format!("if you trust what it says, pass --config {named}"));
    Err(match place.remedy() {
        _ if is_local => {
            error.with_hint("for the config that is found elsewhere, run this in another directory")
        }
        Some(remedy) => error.with_hint(format!("or make it yours alone: {remedy}")),
        None => error.with_hint("or move it to a directory of your own"),
    })
}

/// All faults of a config, in the order of the file: at least one error, and the warnings.
/// Displayed with hints; as an [`Error`], each is a detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigErrors(pub Vec<Diagnostic>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Diagnostic::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigErrors> for Error {
    fn from(ConfigErrors(list): ConfigErrors) -> Error {
        let errors = list
            .iter()
            .filter(|it| it.level == DiagnosticLevel::Error)
            .count();
        let plural = if errors == 1 { "" } else { "s" };
        let file = list
            .first()
            .map_or(Path::new(CONFIG_FILE_NAME), |it| &it.file);
        let message = format!("{}: {errors} error{plural}", file.display());
        let error = Error::new(ErrorKind::Config, message);
        list.iter()
            .fold(error, |error, it| error.with_detail(it.to_single_line()))
    }
}

/// A config without errors.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from, absolute; empty if it was built in code.
    pub path: PathBuf,
    /// Invocation of this program on the file, for suggested command lines.
    pub invocation: Invocation,
    /// Settings of the whole fleet.
    pub general: GeneralSettings,
    /// Settings of the lint.
    pub lint: LintConfig,
    /// Settings of alerts; none without a section `[alerts]`.
    pub alerts: Option<AlertSettings>,
    /// The agents in the order of the file.
    pub agents: Vec<Agent>,
    /// Warnings: lines that probably do not say what was meant.
    pub warnings: Vec<Diagnostic>,
    /// The values of all sections, from which the settings were made; none without a file.
    resolved: Option<ResolvedSections>,
    /// Indexes of the agents, in the order of their names.
    agents_by_name: Vec<usize>,
    /// See [`Config::local_memories`].
    local_memories: Vec<(u64, usize)>,
    /// Digest of the file's text.
    text_digest: Digest,
}

impl Config {
    /// Returns the agent of a name.
    pub fn agent(&self, name: &str) -> Option<&Agent> {
        self.agent_index(name)
            .and_then(|index| self.agents.get(index))
    }

    /// Returns the agents that use a baseline, a file of `baseline_dir`.
    pub fn baseline_users(&self, name: &str) -> Vec<&Agent> {
        let agents = self.agents.iter();
        agents.filter(|agent| agent.uses_baseline(name)).collect()
    }

    /// Returns the position of the agent of a name among all agents.
    pub fn agent_index(&self, name: &str) -> Option<usize> {
        let name_at = |index: &usize| self.agents.get(*index).map(|agent| agent.name.as_str());
        let by_name = &self.agents_by_name;
        let found = by_name.binary_search_by(|index| name_at(index).cmp(&Some(name)));
        Some(by_name[found.ok()?])
    }

    /// Returns whether the file has another text now. A file that is not a regular file is not read
    /// again.
    pub fn has_changed_since_read(&self) -> bool {
        let is_file = fs::metadata(&self.path).is_ok_and(|meta| meta.is_file());
        let text = || durable::read_regular_file(&self.path, MAX_CONFIG_BYTES);
        is_file && text().map_or(true, |text| Digest::of(&text) != self.text_digest)
    }

    /// Returns the digest of the file's text.
    pub fn text_digest(&self) -> Digest {
        self.text_digest
    }

    /// Returns the hashes of the paths of memories on this machine
    /// ([`hash_path`](crate::base::file_systems::hash_path)), each with the index of its agent, sorted.
    pub fn local_memories(&self) -> &[(u64, usize)] {
        &self.local_memories
    }

    /// Returns the agents that are reset.
    pub fn reset_agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().filter(|agent| agent.reset.is_some())
    }

    /// Returns the path of the baseline of an agent; none for one that is never reset.
    pub fn baseline_path(&self, agent: &Agent) -> Option<PathBuf> {
        let reset = agent.reset.as_ref()?;
        Some(self.general.baseline_dir.join(&reset.baseline))
    }

    /// Returns the path of the baseline of an agent.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: the agent is never reset.
    pub fn required_baseline_path(&self, agent: &Agent) -> Result<PathBuf> {
        let reset = agent.required_reset()?;
        Ok(self.general.baseline_dir.join(&reset.baseline))
    }

    /// Returns the names of the baselines of all agents, each as often as agents have it.
    pub fn baseline_names(&self) -> impl Iterator<Item = &str> {
        let resets = self.agents.iter().filter_map(|agent| agent.reset.as_ref());
        resets.map(|reset| reset.baseline.as_str())
    }

    /// Returns the origin of the effective value of a key.
    pub fn origin(&self, section: &str, key: &str) -> ValueOrigin {
        let Some(resolved) = &self.resolved else {
            return ValueOrigin::Default;
        };
        let values = match section {
            "general" => Some(&resolved.general),
            name => match self.agent_index(name) {
                Some(index) => resolved.agents.get(index),
                None if name == LINT_SECTION => Some(&resolved.lint),
                None if name == ALERTS_SECTION => resolved.alerts.as_ref(),
                None => None,
            },
        };
        let origin = values.and_then(|values| values.origin(canonical_key(key)));
        origin.unwrap_or(ValueOrigin::Default)
    }

    /// Returns the effective values of an agent, in the order of the table of keys.
    pub fn values_of_agent(&self, name: &str) -> Vec<EffectiveValue> {
        let index = self.agent_index(name);
        let resolved = self.resolved.as_ref();
        let values = index.and_then(|index| resolved?.agents.get(index));
        values.map_or(Vec::new(), |values| values.effective_values(name))
    }

    /// Returns an error at the line of a value, for a fault that the text of the config alone does
    /// not show.
    pub fn error_at_value(
        &self,
        (section, key): (&str, &str),
        value: &str,
        message: String,
        hints: Vec<String>,
    ) -> Diagnostic {
        Diagnostic {
            level: DiagnosticLevel::Error,
            file: self.path.clone(),
            line: match self.origin(section, key) {
                ValueOrigin::Line(line) => Some(line),
                ValueOrigin::Default => None,
            },
            text: format!("{key}={value}"),
            message,
            hints,
        }
    }

    /// Returns the agent whose name is most similar to an unknown name.
    pub fn suggest_agent(&self, name: &str) -> Option<&str> {
        closest_match(name, self.agents.iter().map(|agent| agent.name.as_str()))
    }

    /// Returns the effective values: `[general]`, then the agents in the order of the file. Keys
    /// without a value are omitted. None without a file.
    pub fn effective_values(&self) -> Vec<EffectiveValue> {
        let Some(resolved) = &self.resolved else {
            return Vec::new();
        };
        let mut values = resolved.general.effective_values("general");
        values.extend(resolved.lint.effective_values(LINT_SECTION));
        if let Some(alerts) = &resolved.alerts {
            values.extend(alerts.effective_values(ALERTS_SECTION));
        }
        for (agent, section) in self.agents.iter().zip(&resolved.agents) {
            values.extend(section.effective_values(&agent.name));
        }
        values
    }
}

/// The `[general]` section. Local paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneralSettings {
    /// Directory of the baselines.
    pub baseline_dir: PathBuf,
    /// Directory of the archive.
    pub archive_dir: PathBuf,
    /// The archive that has to be there: the digest of its ledger's first record.
    pub archive_id: Option<Digest>,
    /// Bytes; a larger memory is OVERSIZE.
    pub max_memory_size: u64,
    /// Bytes; a smaller baseline is never pushed.
    pub min_baseline_size: u64,
    /// Days after which retention deletes an entry.
    pub archive_retention_days: u32,
    /// The line between the two domains of a memory.
    pub separator: String,
    /// Name typed to confirm a plan of the whole fleet.
    pub fleet_name: String,
    /// Tag such as `PROD` in the header of every screen.
    pub fleet_tag: Option<String>,
    /// Protection against resets.
    pub protect: Protection,
    /// Requirement on the seal for a baseline to be pushed.
    pub require_seal: SealRequirement,
    /// An OpenSSH allowed-signers file.
    pub seal_signers: Option<PathBuf>,
    /// Timeout, in seconds, of file systems other than that of the archive.
    pub local_timeout: u32,
    /// Timeout of a remote host, in seconds.
    pub remote_timeout: u32,
    /// Interval between two polls of a remote memory, in seconds.
    pub remote_poll: u32,
    /// Permission bits of entries; the owner can always read and write.
    pub archive_mode: u32,
    /// The group whose members may read the archive.
    pub archive_group: Option<String>,
    /// What happens to entries with secrets or injections.
    pub archive_findings: FindingsPolicy,
    /// Interval of the scheduled resets of agents without one of their own.
    pub every: ResetInterval,
    /// The theme of the screens, not checked here.
    pub theme: String,
}

/// The `[lint]` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintConfig {
    /// Whether small baselines are meant to be small.
    pub is_tiny: bool,
    /// Whether the fleet writes right-to-left scripts.
    pub is_right_to_left: bool,
    /// Rules that are not checked.
    pub ignored_rules: BTreeSet<RuleId>,
    /// Severities that replace the usual ones.
    pub severities: BTreeMap<RuleId, Severity>,
    /// File of findings that are allowed.
    pub allow_file: Option<PathBuf>,
    /// File of findings that are known.
    pub accepted_file: Option<PathBuf>,
    /// Directory of word lists that replace those of the program.
    pub words_directory: Option<PathBuf>,
}

/// Protection of an agent against resets from the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Unprotected: confirmed by a key on screen.
    #[default]
    None,
    /// Every plan that touches it must be confirmed by typing.
    Typed,
    /// It is read-only until unlocked: resets are refused.
    ReadOnly,
}

impl Protection {
    /// Returns the one-cell sign of a protected agent; empty for an unprotected one.
    pub fn glyph(self) -> &'static str {
        match self {
            Protection::None => "",
            Protection::Typed => "T",
            Protection::ReadOnly => "R",
        }
    }

    /// Returns the level as the config names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Protection::None => "none",
            Protection::Typed => "typed",
            Protection::ReadOnly => "readonly",
        }
    }

    /// Returns what the protection requires of the operator.
    pub fn description(self) -> &'static str {
        match self {
            Protection::None => "one key confirms a plan of this agent alone",
            Protection::Typed => "every plan that touches it is confirmed by typing",
            Protection::ReadOnly => "no reset before you unlock it; a plan of it names the key",
        }
    }
}

/// What happens to entries in which the scan finds secrets or injections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingsPolicy {
    /// The findings are recorded.
    #[default]
    Record,
    /// The entry is also kept in quarantine, where only the archive's owner can read it.
    Quarantine,
    /// As `Quarantine`, with a copy without the secrets in its usual place.
    RedactCopy,
}

impl FindingsPolicy {
    /// Returns whether entries with findings are kept in quarantine.
    pub fn has_quarantine(self) -> bool {
        self != FindingsPolicy::Record
    }
}

/// Requirement on the seal for a baseline to be pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SealRequirement {
    /// An existing seal must match.
    #[default]
    IfPresent,
    /// There must be a seal, and it must match.
    Always,
    /// As `Always`, and a key in `seal_signers` must have signed it.
    Signed,
    /// Seals are ignored.
    Never,
}

/// Maximum size of a config in bytes: far above any real one, and small enough to read when the
/// path is wrong.
pub const MAX_CONFIG_BYTES: u64 = 1 << 22;

/// How long a config that is a FIFO waits for a program that opens it for writing.
const FIFO_WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads and checks the config at `path`, which may be a pipe.
pub fn load(path: &Path, env: &ConfigEnvironment) -> std::result::Result<Config, ConfigErrors> {
    reject_errors(check_file(path, env))
}

/// Reads and checks the config again while a console runs. Does not wait for a file that is not a
/// regular file.
pub fn reload(path: &Path, env: &ConfigEnvironment) -> std::result::Result<Config, ConfigErrors> {
    reject_errors(check_read_bytes(
        durable::read_regular_file(path, MAX_CONFIG_BYTES),
        path,
        env,
    ))
}

/// The readable part of a config, and all of its faults.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The config with the agents whose memory is known; `None` if the directories of the fleet are
    /// not known.
    pub config: Option<Config>,
    /// Diagnostics in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the config at `path` like [`load`], and its readable part if it has errors.
pub fn check_file(path: &Path, env: &ConfigEnvironment) -> CheckedConfig {
    let read = durable::read_file_or_pipe(path, MAX_CONFIG_BYTES, FIFO_WRITER_TIMEOUT);
    check_read_bytes(read, path, env)
}

fn check_read_bytes(
    read: io::Result<Vec<u8>>,
    path: &Path,
    env: &ConfigEnvironment,
) -> CheckedConfig {
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!(
                "cannot read the config: {}",
                error::describe_io_error(&error)
            );
            let mut diagnostics = Diagnostics::new(&strip_dot_components(&env.cwd.join(path)));
            diagnostics.add(DiagnosticLevel::Error, None, message, None);
            return CheckedConfig {
                config: None,
                diagnostics: diagnostics.into_sorted(),
            };
        }
    };
    let mut parsed = parse_partial(&bytes, path, env);
    if parsed.has_directories {
        overlap::report_overlaps(&parsed.config, &bytes, &mut parsed.diagnostics);
    }
    CheckedConfig {
        config: parsed.has_directories.then_some(parsed.config),
        diagnostics: parsed.diagnostics.into_sorted(),
    }
}

fn reject_errors(examined: CheckedConfig) -> std::result::Result<Config, ConfigErrors> {
    let is_error = |it: &Diagnostic| it.level == DiagnosticLevel::Error;
    match examined.config {
        Some(config) if !examined.diagnostics.iter().any(is_error) => Ok(Config {
            warnings: examined.diagnostics,
            ..config
        }),
        _ => Err(ConfigErrors(examined.diagnostics)),
    }
}

/// Removes `.` components. `a/../b` stays unchanged: its meaning depends on symlinks.
fn strip_dot_components(path: &Path) -> PathBuf {
    // In one allocation.
    let mut stripped = PathBuf::with_capacity(path.as_os_str().len());
    stripped.extend(path.components().filter(|part| *part != Component::CurDir));
    stripped
}
