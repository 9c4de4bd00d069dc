//! Examples of every command, at the end of its help and in the manual page.

use clap::{Command, CommandFactory};

use crate::cli::arguments::Cli;
use crate::cli::operation_arguments::add_layout_operations;
use crate::layouts::Layouts;

/// The examples of all commands: `[command]`, then each command line and what it does. A test parses
/// each line.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the definition of the command line with the operations of layouts, and examples at the end of
/// each help.
pub(in crate::cli) fn command_line(layouts: Layouts) -> Command {
    add_examples(add_layout_operations(Cli::command(), layouts), "")
}

/// Adds the examples of a command, whose words are `path`, and of those below it.
fn add_examples(mut command: Command, path: &str) -> Command {
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_string())
        .collect();
    for verb in verbs {
        let path = format!("{path} {verb}");
        command = command.mut_subcommand(verb, |verb| add_examples(verb, path.trim_start()));
    }
    let Some(text) = examples_text(path) else {
        return command;
    };
    let before = command
        .get_after_help()
        .map_or(String::new(), |text| format!("{text}\n\n"));
    command.after_help(format!("{before}{text}"))
}

/// Returns the examples of a command as text; none where it has no examples.
pub(in crate::cli) fn examples_text(path: &str) -> Option<String> {
    let (_, from_section) = EXAMPLES.split_once(&format!("[{path}]\n"))?;
    let section = from_section.split("\n[").next()?.trim_end();
    Some(format!("Examples:\n{section}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with each command and its words.
    fn visit_commands(
        command: &mut Command,
        path: &str,
        visit: &mut dyn FnMut(&mut Command, &str),
    ) {
        visit(command, path);
        for verb in command.get_subcommands_mut() {
            let path = format!("{path} {}", verb.get_name());
            visit_commands(verb, path.trim_start(), visit);
        }
    }

    #[test]
    fn every_help_ends_with_examples() {
        visit_commands(
            &mut command_line(Layouts::BUILT_IN),
            "",
            &mut |command, path| {
                if path == "help" {
                    return;
                }
                let text = examples_text(path);
                let text = text.unwrap_or_else(|| panic!("no example of `{path}`"));
                for help in [command.render_long_help(), command.render_help()] {
                    let help = help.to_string();
                    // A long line is wrapped.
                    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                    assert!(words(&help).ends_with(&words(&text)), "{path}: {help}");
                    assert!(
                        help.contains(crate::cli::arguments::values::EXIT_CODES),
                        "{path}: {help}"
                    );
                }
            },
        );
    }

    #[test]
    fn every_example_is_a_call_of_its_command() {
        let mut command = "";
        for line in EXAMPLES.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                command = name;
            }
            let is_call = line.starts_with("  memory-shepherd");
            if !is_call || command == "demo" && !cfg!(feature = "demo") {
                continue;
            }
            let words = shell_words::split(line).unwrap();
            let parsed = command_line(Layouts::BUILT_IN).try_get_matches_from(&words);
            let matches = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
            let mut matches = &matches;
            let mut path: Vec<&str> = Vec::new();
            while let Some((verb, below)) = matches.subcommand() {
                path.push(verb);
                matches = below;
            }
            // An example of a group may be one of a command in it.
            let path = path.join(" ");
            assert!(path.starts_with(command), "{line} is a call of {path}");
        }
    }
}
