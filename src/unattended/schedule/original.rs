//! Recognises units of the original tool: services that run its script, and their timers.
//!
//! Its own installer wrote `memory-shepherd*.service`; deployments that shipped it have other
//! names, and services that run the script several times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::escape::split_words;
use super::search_path::UnitSearchPath;
use super::unit_files::UnitFile;

/// Name of the original tool's script.
const SCRIPT_NAME: &str = "memory-shepherd.sh";

/// Programs that run the script which is their argument.
const SHELLS: [&str; 4] = ["env", "bash", "sh", "dash"];

/// What may stand before a program in a command line of a unit (systemd.service(5)).
pub(super) const COMMAND_PREFIXES: [char; 6] = ['@', '-', ':', '+', '!', '|'];

/// Settings of a service that are commands.
const COMMAND_KEYS: [&str; 7] = [
    "ExecCondition",
    "ExecStartPre",
    "ExecStart",
    "ExecStartPost",
    "ExecReload",
    "ExecStop",
    "ExecStopPost",
];

/// Maximum size of all unit files and drop-ins that are searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 256 << 20;

/// A service of the original tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginalUnit {
    /// Name of the service's file.
    pub service: String,
    /// Agents that it resets; `all` stands for every agent.
    pub agents: Vec<String>,
}

/// A service that runs the script, whatever else it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptService {
    /// Its file.
    pub path: PathBuf,
    /// Its name, and the agents that it resets.
    pub unit: OriginalUnit,
}

/// Returns the original's service in a unit file, if it is one: each of its commands runs the
/// script, before and after it, too.
pub(super) fn parse_original_service(name: &str, text: &str) -> Option<OriginalUnit> {
    if !name.ends_with(".service") {
        return None;
    }
    let settings = parse_commands(text);
    let commands = effective_commands(&settings);
    let mut agents = Vec::new();
    for command in &commands {
        agents.extend(script_arguments(command)?);
    }
    (!commands.is_empty()).then(|| OriginalUnit {
        service: name.to_string(),
        agents,
    })
}

/// Finds the services in a search path that run the script with one of their commands, as their
/// drop-ins leave them.
///
/// Also returns what could not be read, with the reasons.
pub fn find_script_services(search_path: &UnitSearchPath) -> (Vec<ScriptService>, Vec<String>) {
    let mut reader = CommandReader::default();
    let mut services = Vec::new();
    for name in search_path.services() {
        let files = search_path.deciding_files(name);
        // Drop-ins alone make no unit.
        let Some(path) = files.unit else {
            continue;
        };
        for file in std::iter::once(&path).chain(&files.drop_ins) {
            reader.read(file);
        }
        let files = std::iter::once(&path).chain(&files.drop_ins);
        let settings = files.filter_map(|file| reader.commands.get(file)).flatten();
        let arguments: Vec<Vec<String>> = effective_commands(settings)
            .into_iter()
            .filter_map(script_arguments)
            .collect();
        if !arguments.is_empty() {
            services.push(ScriptService {
                path,
                unit: OriginalUnit {
                    service: name.to_string(),
                    agents: arguments.concat(),
                },
            });
        }
    }
    let unread = search_path.unread.iter().cloned();
    (services, unread.chain(reader.unread).collect())
}

/// A setting that is a command: its key and its value.
type CommandSetting = (String, String);

/// Reads the commands of files, of each one once.
#[derive(Default)]
struct CommandReader {
    commands: BTreeMap<PathBuf, Vec<CommandSetting>>,
    byte_count: usize,
    unread: Vec<String>,
}

impl CommandReader {
    fn read(&mut self, path: &Path) {
        if self.commands.contains_key(path) {
            return;
        }
        let text = if self.byte_count < MAX_SEARCHED_BYTES {
            UnitFile::read(path).text_in_effect()
        } else {
            Err("there are too many units".to_string())
        };
        let text = text.unwrap_or_else(|reason| {
            self.unread.push(format!("{}: {reason}", path.display()));
            String::new()
        });
        self.byte_count += text.len();
        self.commands
            .insert(path.to_path_buf(), parse_commands(&text));
    }
}

/// Returns the settings of a unit file or drop-in that are commands.
fn parse_commands(text: &str) -> Vec<CommandSetting> {
    let is_comment = |line: &&str| line.trim_start().starts_with(['#', ';']);
    let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    // A line that ends with a backslash goes on in the next one that is not a comment.
    let text = lines.join("\n").replace("\\\n", " ");
    let settings = text.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        let key = key.trim_end();
        let is_command = COMMAND_KEYS.contains(&key);
        is_command.then(|| (key.to_string(), value.trim().to_string()))
    });
    settings.collect()
}

/// Returns the commands that a service has with these settings: an empty value takes back the earlier
/// ones of its key.
fn effective_commands<'a>(settings: impl IntoIterator<Item = &'a CommandSetting>) -> Vec<&'a str> {
    let mut commands: Vec<&CommandSetting> = Vec::new();
    for setting in settings {
        if setting.1.is_empty() {
            commands.retain(|(key, _)| *key != setting.0);
        } else {
            commands.push(setting);
        }
    }
    commands
        .into_iter()
        .map(|(_, value)| value.as_str())
        .collect()
}

/// Returns the service that a timer starts: that of its `Unit=`, or of its own name. None for a
/// service.
pub(super) fn started_unit(name: &str, text: &str) -> Option<String> {
    let stem = name.strip_suffix(".timer")?;
    let named = text.lines().rev().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim_end() == "Unit").then(|| value.trim().to_string())
    });
    let named = named.filter(|unit| !unit.is_empty());
    Some(named.unwrap_or_else(|| format!("{stem}.service")))
}

/// Returns the arguments of the script in a command line that runs it, also through a shell.
fn script_arguments(command: &str) -> Option<Vec<String>> {
    let words = split_words(command)?;
    // Another program may be given the script as a file, as a backup is.
    let script = words
        .iter()
        .position(|word| !SHELLS.contains(&file_name(word)))?;
    let is_script = file_name(words.get(script)?) == SCRIPT_NAME;
    is_script.then(|| words.into_iter().skip(script + 1).collect())
}

/// Returns the file name of a program in a command line of a unit, which may have a prefix.
fn file_name(word: &str) -> &str {
    let path = word.trim_start_matches(COMMAND_PREFIXES);
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_run_the_script_are_recognised() {
        for (text, agents) in [
            (
                "[Service]\nType=oneshot\nExecStart=/opt/ms/memory-shepherd.sh all\n",
                vec!["all"],
            ),
            (
                "[Service]\nExecStart=%h/ms/memory-shepherd.sh agent-agents\n\
                 ExecStart=%h/ms/memory-shepherd.sh agent-tools\n",
                vec!["agent-agents", "agent-tools"],
            ),
            (
                "[Service]\nExecStart=-/bin/bash \"/opt/a b/memory-shepherd.sh\" \\\n  x\n",
                vec!["x"],
            ),
        ] {
            let found = parse_original_service("any-name.service", text).unwrap();
            assert_eq!(found.agents, agents, "{text}");
        }
    }

    #[test]
    fn drop_ins_and_further_commands_are_searched() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let script = "/opt/ms/memory-shepherd.sh";
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let reload = format!("[Service]\nExecStart={script} a\nExecReload=/bin/kill\n");
        write("usr/reload.service", &reload);
        write("usr/plain.service", "[Service]\nExecStart=/bin/true\n");
        let run = format!("[Service]\nExecStart=\nExecStart={script} b\n");
        write("run/plain.service.d/x.conf", &run);
        write(
            "usr/ended.service",
            &format!("[Service]\nExecStart={script} c\n"),
        );
        write("etc/ended.service.d/x.conf", "[Service]\nExecStart=\n");
        write(
            "usr/masked.service",
            &format!("[Service]\nExecStart={script} d\n"),
        );
        std::os::unix::fs::symlink("/dev/null", root.join("etc/masked.service")).unwrap();
        std::os::unix::fs::symlink("reload.service", root.join("usr/alias.service")).unwrap();
        write("usr/at@.service", "[Service]\nExecStart=/bin/true\n");
        write(
            "etc/at@x.service.d/x.conf",
            &format!("[Service]\nExecStop={script} e\n"),
        );
        write("etc/none.service.d/x.conf", &run);
        let path = UnitSearchPath::read(["etc", "run", "usr", "no"].map(|it| root.join(it)));
        let (found, unread) = find_script_services(&path);
        let found: Vec<_> = found
            .into_iter()
            .map(|it| (it.unit.service, it.unit.agents.join(" ")))
            .collect();
        let expected = [
            ("at@x.service", "e"),
            ("plain.service", "b"),
            ("reload.service", "a"),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
        assert_eq!(unread, [""; 0]);
        std::fs::write(root.join("usr/odd.service"), [0xff]).unwrap();
        let path = UnitSearchPath::read([root.join("usr")]);
        assert_eq!(find_script_services(&path).1.len(), 1);
    }

    #[test]
    fn other_services_are_not_the_original() {
        for text in [
            "[Service]\nExecStart=/usr/bin/memory-shepherd reset --all\n",
            "[Service]\nExecStart=/opt/memory-shepherd.sh a\nExecStart=/usr/bin/backup\n",
            "# ExecStart=/opt/memory-shepherd.sh all\n",
            "[Service]\nExecStart=/usr/bin/sha256sum /opt/memory-shepherd.sh\n",
            "[Service]\nExecStart=/opt/memory-shepherd.sh a\nExecStartPost=/usr/bin/backup\n",
            "[Service]\nExecStart=/usr/bin/tar cf /x /opt/a /opt/memory-shepherd.sh\n",
            "",
        ] {
            assert_eq!(parse_original_service("a.service", text), None, "{text}");
        }
        let text = "[Service]\nExecStart=/opt/memory-shepherd.sh all\n";
        assert_eq!(parse_original_service("a.timer", text), None);
    }
}
