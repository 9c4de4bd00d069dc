//! `init`: shows and writes a first config with its baselines.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use serde::Serialize;

use super::output::{Document, Printer, dim, format_count, heading};
use super::{CommandContext, CommandResult};
use crate::base::clock::SystemClock;
use crate::base::digest::Digest;
use crate::base::durable::OperatorDirectory;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::invocation::Invocation;
use crate::config::{Config, ConfigEnvironment};
use crate::engine::archive_id_line;
use crate::layouts::{Layouts, MemoryFiles};
use crate::lint::TEMPLATE;
use crate::transport::local::LocalTransport;

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// Memories, or directories with a MEMORY.md or a known layout, that become agents; without any, an
    /// example agent
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Also takes the agents in ~/.openclaw/workspace*, ~/.clawdbot, ~/clawd, /data/memory, ./memory and
    /// ./.memory
    #[arg(long)]
    discover: bool,
    /// Shows the files; writes nothing
    #[arg(long)]
    dry_run: bool,
}

/// Name of a memory in the directory of an agent.
const MEMORY_FILE_NAME: &str = "MEMORY.md";

/// Directories below the home in which agents usually are; `*` at the end stands for any characters.
const USUAL_HOMES: [&str; 3] = [".openclaw/workspace*", ".clawdbot", "clawd"];

/// Directories in which memories of several files usually are, from the working directory.
const USUAL_MEMORY_DIRECTORIES: [&str; 3] = ["/data/memory", "memory", ".memory"];

/// Maximum length of an agent's name that is made of its directory.
const MAX_NAME_LENGTH: usize = 40;

/// An agent of the new config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ProposedAgent {
    agent: String,
    /// Its file, or the directory of its layout.
    memory: PathBuf,
    /// The layout of a memory of several files.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<&'static str>,
}

/// A memory that can become that of an agent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FoundMemory {
    path: PathBuf,
    layout: Option<&'static str>,
}

impl FoundMemory {
    /// The directory that gives the agent its name.
    fn named_directory(&self) -> Option<&Path> {
        let is_usual = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            self.layout.is_some() && (name == "memory" || name == ".memory")
        };
        let directory = match self.layout {
            Some(_) => Some(self.path.as_path()),
            None => self.path.parent(),
        };
        directory.map(|it| match it.parent() {
            Some(parent) if is_usual(it) && parent.file_name().is_some() => parent,
            _ => it,
        })
    }
}

/// A file that is, or would be, written.
#[derive(Serialize)]
struct NewFileItem {
    path: PathBuf,
    content: String,
}

/// The answer of `init`.
#[derive(Serialize)]
struct InitDocument {
    dry_run: bool,
    config: PathBuf,
    agents: Vec<ProposedAgent>,
    files: Vec<NewFileItem>,
}

impl Document for InitDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for (index, file) in self.files.iter().enumerate() {
            let path = file.path.display().to_string();
            printer.write_line(&[heading(&path)])?;
            // The baselines have one text, the template.
            let is_repeated = self
                .files
                .iter()
                .take(index)
                .any(|it| it.content == file.content);
            if is_repeated {
                printer.write_line(&[dim("  the same text")])?;
            } else {
                for line in file.content.lines() {
                    printer.write_plain_line(format!("  {line}"))?;
                }
            }
        }
        let (verb, end) = if self.dry_run {
            ("would write", "; nothing was written")
        } else {
            ("wrote", "")
        };
        let files = format_count(self.files.len(), "file");
        let agents = format_count(self.agents.len(), "agent");
        printer.write_plain_line(format!("{verb} {files} for {agents}{end}"))
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &InitArgs) -> CommandResult {
    let env = &context.environment.env;
    let config = new_config_path(context)?;
    let layouts = context.environment.layouts;
    let Proposal { agents, left_out } = propose_agents(args, &config, env, layouts)?;
    let files = new_files(&config, &agents, None);
    let parsed = check_config(&config, &files, &agents, env)?;
    let written = find_written_baselines(&files, &config)?;
    // The archive is begun before the files are written.
    for file in &files {
        check_directory(&file.path)?;
    }
    check_baseline_directory(&parsed.general.baseline_dir)?;
    let archive_dir = parsed.general.archive_dir.clone();
    let files = if args.dry_run {
        files
    } else {
        let id = context
            .new_cli_engine(parsed, None)
            .context()
            .begin_archive()?;
        new_files(&config, &agents, Some(id))
    };
    let is_new = |it: &NewFileItem| !written.contains(&it.path);
    let document = InitDocument {
        dry_run: args.dry_run,
        config,
        agents,
        files: files.into_iter().filter(is_new).collect(),
    };
    if !args.dry_run {
        for file in &document.files {
            create_file(file)?;
        }
    }
    context.print_document(&document)?;
    for path in &written {
        let path = path.display();
        context.print_note(format!("{path} has this text already, and stays"));
    }
    for reason in left_out {
        context.print_note(format!("left out: {reason}"));
    }
    if args.dry_run {
        let archive = archive_dir.display();
        context.print_note(format!(
            "init also begins the archive in {archive}, and names it in the config with archive_id"
        ));
    }
    let invocation = match &context.config_flag {
        Some(_) => Invocation::with_config(&document.config),
        None => Invocation::default(),
    };
    if args.dry_run {
        return Ok(None);
    }
    if document.agents.iter().any(|agent| agent.layout.is_none()) {
        context.print_hint(format!(
            "fill in the baselines first, then: {}; the first reset archives each memory and \
             installs its baseline",
            invocation.command_line("config check")
        ));
    } else if let Some(first) = document.agents.first() {
        let check = format!("memory {} health", first.agent);
        context.print_hint(format!(
            "`{}` checks the memory; the console shows it",
            invocation.command_line(&check)
        ));
    }
    Ok(None)
}

/// Returns the path of the new config.
fn new_config_path(context: &CommandContext<'_>) -> Result<PathBuf> {
    let env = &context.environment.env;
    if let Some(path) = &context.config_flag {
        return Ok(env.resolve(path));
    }
    let from_variable = env.xdg_config_home.clone().filter(|it| it.is_absolute());
    let base = from_variable.or_else(|| Some(env.home.as_ref()?.join(".config")));
    base.map(|it| it.join("memory-shepherd/memory-shepherd.conf"))
        .ok_or_else(|| {
            let message = "cannot find a directory for the config: no home is known";
            Error::new(ErrorKind::User, message).with_hint("set HOME, or pass --config FILE")
        })
}

/// Returns the baselines that exist with the text of the template: an `init` that was killed wrote
/// them, and the config is its last file.
///
/// # Errors
/// [`ErrorKind::Conflict`] if the config exists, or a baseline with another text.
fn find_written_baselines(files: &[NewFileItem], config: &Path) -> Result<BTreeSet<PathBuf>> {
    let existing = files.iter().filter(|it| it.path.symlink_metadata().is_ok());
    let mut written = BTreeSet::new();
    for file in existing {
        let has_text = || {
            let (directory, name) = OperatorDirectory::open_parent(&file.path).ok()?;
            let bytes = directory.read_file(name).ok()??;
            Some(bytes == file.content.as_bytes())
        };
        if file.path == config || has_text() != Some(true) {
            let message = format!("{} exists; nothing was written", file.path.display());
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("edit it, or choose another config with --config FILE"));
        }
        written.insert(file.path.clone());
    }
    Ok(written)
}

/// Checks that no symlink of another user leads to a new file, and that not every user can replace it
/// or its directory.
fn check_directory(path: &Path) -> Result<()> {
    let mut above = path.ancestors().skip(1);
    match above.find(|it| it.symlink_metadata().is_ok()) {
        Some(existing) => OperatorDirectory::open(existing)?.check_not_public(),
        None => Ok(()),
    }
}

/// Checks that no other user can replace baselines in a directory that exists already: what stands there
/// becomes the text of the agents.
fn check_baseline_directory(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    OperatorDirectory::open(path)?.check_owner()
}

/// The agents of the new config.
struct Proposal {
    agents: Vec<ProposedAgent>,
    /// What was discovered and cannot be an agent, with the reasons.
    left_out: Vec<String>,
}

/// Returns the agents of the new config, which gets this path.
///
/// # Errors
/// A path that the operator named cannot be an agent, or no agent is found.
fn propose_agents(
    args: &InitArgs,
    config: &Path,
    env: &ConfigEnvironment,
    layouts: Layouts,
) -> Result<Proposal> {
    let mut memories: Vec<FoundMemory> = Vec::new();
    let mut left_out = Vec::new();
    for path in &args.paths {
        let memory = find_memory(&env.resolve(path), layouts).ok_or_else(|| {
            let path = path.display();
            let message = format!("{path} is neither a memory nor a directory with one");
            let names: Vec<&str> = layouts.names().collect();
            Error::new(ErrorKind::User, message).with_hint(format!(
                "name a file, or a directory with a {MEMORY_FILE_NAME} or with the layout {}",
                names.join(", ")
            ))
        })?;
        memories.push(memory.map_err(|error| error.with_hint("nothing was written"))?);
    }
    if let Some(home) = env.home.as_ref().filter(|_| args.discover) {
        let of_layouts = USUAL_MEMORY_DIRECTORIES.map(|it| env.cwd.join(it));
        let found = usual_directories(home).into_iter().chain(of_layouts);
        for memory in found.filter_map(|directory| find_memory(&directory, layouts)) {
            match memory {
                Ok(memory) if can_be_named(&memory, config, env) => memories.push(memory),
                Ok(memory) => {
                    let memory = memory.path.display();
                    left_out.push(format!("{memory}: a config cannot name it"));
                }
                Err(error) => left_out.push(error.message().to_string()),
            }
        }
        if memories.is_empty() {
            let home = home.display();
            let message =
                format!("no agent is in the usual directories of {home}; nothing was written");
            let error = Error::new(ErrorKind::User, message)
                .with_hint("name the directories of your agents: memory-shepherd init PATH...");
            return Err(left_out.into_iter().fold(error, |error, reason| {
                error.with_hint(format!("left out: {reason}"))
            }));
        }
    }
    if memories.is_empty() {
        let home = env.home.clone().unwrap_or_else(|| env.cwd.clone());
        memories.push(FoundMemory {
            path: home.join("agents/my-agent").join(MEMORY_FILE_NAME),
            layout: None,
        });
    }
    let mut seen = BTreeSet::new();
    memories.retain(|memory| seen.insert(memory.clone()));
    let mut names = BTreeSet::new();
    let agents = memories.into_iter().map(|memory| ProposedAgent {
        agent: unique_name(&memory, &mut names),
        memory: memory.path,
        layout: memory.layout,
    });
    Ok(Proposal {
        agents: agents.collect(),
        left_out,
    })
}

/// Whether a config can name a memory: the name of its directory, which an agent may have chosen, can
/// contain line breaks, control characters and comments.
fn can_be_named(memory: &FoundMemory, config: &Path, env: &ConfigEnvironment) -> bool {
    let agent = ProposedAgent {
        agent: unique_name(memory, &mut BTreeSet::new()),
        memory: memory.path.clone(),
        layout: memory.layout,
    };
    let agents = [agent];
    parse_new_config(config, &new_files(config, &agents, None), &agents, env).is_some()
}

/// Returns the memory at a path, which is the memory or its directory, below the real path of its
/// directory: a config must not name a symlink.
///
/// # Errors
/// The memory itself is a symlink, or its directory cannot be resolved.
fn find_memory(path: &Path, layouts: Layouts) -> Option<Result<FoundMemory>> {
    let inside = path.join(MEMORY_FILE_NAME);
    let memory = if inside.is_file() || inside.is_symlink() {
        inside
    } else if path.is_dir() {
        return find_layout(path, layouts);
    } else {
        path.is_file().then(|| path.to_path_buf())?
    };
    Some(real_memory_path(&memory).map(|path| FoundMemory { path, layout: None }))
}

/// Returns a directory that has a layout.
fn find_layout(directory: &Path, layouts: Layouts) -> Option<Result<FoundMemory>> {
    let path = match fs::canonicalize(directory).with_path("resolve", directory) {
        Ok(path) => path,
        Err(error) => return Some(Err(error)),
    };
    let transport = Arc::new(LocalTransport::new(Arc::new(SystemClock)));
    let files = MemoryFiles::new(transport, &path);
    let mut layouts = layouts.0.iter();
    let layout = layouts.find_map(|layout| match layout.detect(&files) {
        Ok(evidence) => evidence.map(|_| Ok(layout.name())),
        Err(error) => Some(Err(error)),
    })?;
    Some(layout.map(|layout| FoundMemory {
        path,
        layout: Some(layout),
    }))
}

fn real_memory_path(memory: &Path) -> Result<PathBuf> {
    if let Ok(target) = fs::read_link(memory) {
        let target = target.display();
        let message = format!("{} is a symlink to {target}", memory.display());
        let hint = format!(
            "a reset would replace the link: if {target} is the agent's memory, name it; else name \
             the directories of the other agents"
        );
        return Err(Error::new(ErrorKind::User, message).with_hint(hint));
    }
    let (parent, name) = (memory.parent(), memory.file_name());
    let directory = fs::canonicalize(parent.unwrap_or(Path::new("/")));
    let directory = directory.with_path("resolve", memory)?;
    Ok(directory.join(name.unwrap_or_default()))
}

/// Returns the directories below a home in which agents usually are, by name.
fn usual_directories(home: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for pattern in USUAL_HOMES {
        let path = home.join(pattern);
        let Some(prefix) = path.as_os_str().as_bytes().strip_suffix(b"*") else {
            found.push(path);
            continue;
        };
        let parent = path.parent().unwrap_or(home);
        let list = fs::read_dir(parent).into_iter().flatten().flatten();
        let mut matching: Vec<PathBuf> = list
            .map(|item| item.path())
            .filter(|path| path.as_os_str().as_bytes().starts_with(prefix))
            .collect();
        matching.sort();
        found.extend(matching);
    }
    found
}

/// Returns a name for the agent of a memory that no other agent has, and records it.
fn unique_name(memory: &FoundMemory, names: &mut BTreeSet<String>) -> String {
    let directory = memory.named_directory().and_then(Path::file_name);
    let text = directory.map_or(String::new(), |it| it.to_string_lossy().into_owned());
    let kept: String = text
        .trim_start_matches('.')
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(MAX_NAME_LENGTH)
        .collect();
    // The names of the other sections of a config.
    let base = match kept.trim_matches('-') {
        "" | "general" | "lint" | "alerts" | "all" => "agent".to_string(),
        kept => kept.to_string(),
    };
    let candidates = (2..).map(|number| format!("{base}-{number}"));
    let mut candidates = std::iter::once(base.clone()).chain(candidates);
    let name = candidates
        .find(|name| !names.contains(name))
        .unwrap_or(base);
    names.insert(name.clone());
    name
}

/// Returns the config and the baselines of its agents; the config names the archive with this id.
fn new_files(
    config: &Path,
    agents: &[ProposedAgent],
    archive_id: Option<Digest>,
) -> Vec<NewFileItem> {
    let mut text = "[general]\nbaseline_dir=./baselines\narchive_dir=./archives\n".to_string();
    if let Some(id) = archive_id {
        text.push_str(&format!("{}\n", archive_id_line(id)));
    }
    let directory = config.parent().unwrap_or(Path::new("/")).join("baselines");
    let mut files = Vec::new();
    for agent in agents {
        let (name, memory) = (&agent.agent, agent.memory.display());
        if let Some(layout) = agent.layout {
            text.push_str(&format!(
                "\n[{name}]\nlayout={layout}\nmemory_dir={memory}\n"
            ));
            continue;
        }
        let baseline = format!("{name}-MEMORY.md");
        text.push_str(&format!(
            "\n[{name}]\nmemory_file={memory}\nbaseline={baseline}\n"
        ));
        files.push(NewFileItem {
            path: directory.join(baseline),
            content: String::from_utf8_lossy(TEMPLATE).into_owned(),
        });
    }
    let config = NewFileItem {
        path: config.to_path_buf(),
        content: text,
    };
    // The config comes last, so that one that is there has all its baselines.
    files.push(config);
    files
}

/// Checks that the new config names the proposed agents and their memories. Returns the config.
fn check_config(
    path: &Path,
    files: &[NewFileItem],
    agents: &[ProposedAgent],
    env: &ConfigEnvironment,
) -> Result<Config> {
    parse_new_config(path, files, agents, env).ok_or_else(|| {
        let odd = agents.iter().find(|it| {
            let memory = FoundMemory {
                path: it.memory.clone(),
                layout: it.layout,
            };
            !can_be_named(&memory, path, env)
        });
        let what = odd.map_or_else(String::new, |it| format!(" {}", it.memory.display()));
        let message = format!("cannot name the memory{what} in a config; nothing was written");
        Error::new(ErrorKind::User, message)
            .with_hint("rename its directory, or name the directories of the other agents")
    })
}

/// Returns the new config if it names the proposed agents and their memories.
fn parse_new_config(
    path: &Path,
    files: &[NewFileItem],
    agents: &[ProposedAgent],
    env: &ConfigEnvironment,
) -> Option<Config> {
    let text = files.last().map_or("", |it| &it.content);
    let parsed = crate::config::parse(text.as_bytes(), path, env);
    let found = parsed.as_ref().map(|config| {
        let agents = config.agents.iter();
        let found = agents.map(|it| (it.name.as_str(), it.observed_path()));
        found.collect::<Vec<_>>()
    });
    let expected: Vec<_> = agents
        .iter()
        .map(|it| (it.agent.as_str(), it.memory.as_path()))
        .collect();
    // A pager or terminal that shows the config would act on control characters.
    let acts = |c: char| c.is_control() && c != '\t';
    let is_plain = |it: &ProposedAgent| !it.memory.to_string_lossy().contains(acts);
    let is_expected = found == Ok(expected) && agents.iter().all(is_plain);
    let config = parsed.ok().filter(|_| is_expected);
    config.filter(|config| config.alerts.is_none())
}

/// Creates a file that only this user can read and write, and its directories.
fn create_file(file: &NewFileItem) -> Result<()> {
    let (Some(parent), Some(name)) = (file.path.parent(), file.path.file_name()) else {
        let message = format!("{} is not a file path", file.path.display());
        return Err(Error::new(ErrorKind::User, message));
    };
    let directory = OperatorDirectory::open_or_create(parent, Mode::RWXU)?;
    directory.create_file(name, file.content.as_bytes(), Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_agents_are_valid_and_unique() {
        let mut names = BTreeSet::new();
        let mut name_of = |path: &str, layout| {
            let path = path.into();
            unique_name(&FoundMemory { path, layout }, &mut names)
        };
        let mut name = |path: &str| name_of(path, None);
        let found = [
            name("/home/a/.openclaw/workspace-ops/MEMORY.md"),
            name("/home/a/.clawdbot/MEMORY.md"),
            name("/srv/my bot!/MEMORY.md"),
            name("/srv/x/clawdbot/MEMORY.md"),
            name("/srv/general/MEMORY.md"),
        ];
        assert_eq!(
            found,
            ["workspace-ops", "clawdbot", "my-bot", "clawdbot-2", "agent"]
        );
        let found = [
            name_of("/srv/web/.memory", Some("drover")),
            name_of("/data/notes", Some("drover")),
            name_of("/memory", Some("drover")),
        ];
        assert_eq!(found, ["web", "notes", "memory"]);
    }
}
