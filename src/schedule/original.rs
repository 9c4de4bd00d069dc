//! Recognises units of the original tool: services that run its script, and their timers.
//!
//! Its own installer wrote `memory-shepherd*.service`; deployments that shipped it have other
//! names, and services that run the script several times.

use serde::Serialize;

use super::escape::split_words;

/// Name of the original tool's script.
const SCRIPT_NAME: &str = "memory-shepherd.sh";

/// Programs that run the script which is their argument.
const SHELLS: [&str; 4] = ["env", "bash", "sh", "dash"];

/// A service of the original tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginalUnit {
    /// Name of the service's file.
    pub service: String,
    /// Agents that it resets; `all` stands for every agent.
    pub agents: Vec<String>,
}

/// Returns the original's service in a unit file, if it is one: each of its commands runs the
/// script, before and after it, too.
pub(super) fn parse_original_service(name: &str, text: &str) -> Option<OriginalUnit> {
    if !name.ends_with(".service") {
        return None;
    }
    // A line that ends with a backslash goes on in the next one.
    let text = text.replace("\\\n", " ");
    let commands = text.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        key.trim_end().starts_with("Exec").then_some(value.trim())
    });
    let mut agents = Vec::new();
    let mut has_command = false;
    for command in commands.filter(|command| !command.is_empty()) {
        agents.extend(script_arguments(command)?);
        has_command = true;
    }
    has_command.then(|| OriginalUnit {
        service: name.to_string(),
        agents,
    })
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
    let path = word.trim_start_matches(['@', '-', ':', '+', '!']);
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
