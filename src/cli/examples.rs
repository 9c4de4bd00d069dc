//! Examples of every command, at the end of its help and in the manual page.

use clap::{Command, CommandFactory};

use super::arguments::Cli;

/// Examples of a command.
pub(super) struct CommandExamples {
    /// The words of the command, without the program: "archive list".
    pub(super) command: &'static str,
    /// Command lines without the program, each with what it does.
    pub(super) lines: &'static [(&'static str, &'static str)],
}

/// The examples of all commands. A test parses each line.
pub(super) const EXAMPLES: &[CommandExamples] = &[
    CommandExamples {
        command: "",
        lines: &[
            ("", "opens the console"),
            (
                "reset --all --dry-run",
                "shows what a reset of all agents would do",
            ),
            (
                "--config /srv/fleet.conf --read-only",
                "looks at a fleet, changes nothing",
            ),
        ],
    },
    CommandExamples {
        command: "init",
        lines: &[
            (
                "init --discover --dry-run",
                "shows a config for the agents in the usual directories",
            ),
            (
                "init ~/agents/scout --config /srv/fleet.conf",
                "writes a config with one agent",
            ),
        ],
    },
    CommandExamples {
        command: "status",
        lines: &[
            ("status", "shows all agents, the worst first"),
            ("status scout --json", "prints one agent for a script"),
            ("status --watch", "prints each state that changes"),
            (
                "status --exit-code -q",
                "tells a monitor whether an agent needs a look",
            ),
        ],
    },
    CommandExamples {
        command: "diff",
        lines: &[
            ("diff scout", "shows what the agent changed and wrote"),
            (
                "diff scout --three-way",
                "tells your changes of the rules from the agent's",
            ),
            (
                "diff scout --exit-code --stat",
                "exits with 1 if there are differences",
            ),
        ],
    },
    CommandExamples {
        command: "reset",
        lines: &[
            ("reset scout --dry-run", "shows the plan and its hash"),
            (
                "reset scout --plan 4f1a09c2",
                "runs only if that plan still holds",
            ),
            (
                "reset --all --wait 60",
                "waits up to a minute for other runs",
            ),
        ],
    },
    CommandExamples {
        command: "push",
        lines: &[
            (
                "push scout ranger",
                "installs new baselines and keeps all notes",
            ),
            (
                "push scout --keep 86-90,97",
                "keeps these lines of the memory",
            ),
        ],
    },
    CommandExamples {
        command: "undo",
        lines: &[
            (
                "undo scout",
                "restores the memory from before the last reset",
            ),
            (
                "undo --last --dry-run",
                "shows what undoing your last run would do",
            ),
            (
                "undo --run 361320c4 --dry-run",
                "shows what undoing a whole run would do",
            ),
            (
                "undo scout --append",
                "keeps what the agent has written since",
            ),
        ],
    },
    CommandExamples {
        command: "report",
        lines: &[
            ("report", "says what happened since yesterday, 18:00"),
            ("report --since 7d", "says what happened within a week"),
        ],
    },
    CommandExamples {
        command: "log",
        lines: &[
            ("log -n 20", "lists the last 20 rows"),
            ("log -n 20 --follow", "and goes on with those of later runs"),
            ("log scout --json", "prints the records of one agent"),
        ],
    },
    CommandExamples {
        command: "archive",
        lines: &[("archive search \"auth token\"", "finds what agents wrote")],
    },
    CommandExamples {
        command: "archive list",
        lines: &[
            (
                "archive list scout --since 7d",
                "lists the entries of a week",
            ),
            ("archive list --limit 10", "lists the ten newest entries"),
        ],
    },
    CommandExamples {
        command: "archive show",
        lines: &[(
            "archive show scout/2026-03-14_0900.md",
            "prints an entry, byte for byte in a pipe",
        )],
    },
    CommandExamples {
        command: "archive search",
        lines: &[
            (
                "archive search \"auth token\" agent:scout",
                "both words, of one agent",
            ),
            (
                "archive search timeout --since 2026-03 --order newest",
                "the newest first",
            ),
        ],
    },
    CommandExamples {
        command: "archive export",
        lines: &[(
            "archive export --agent scout --since 30d --to ./scout-notes",
            "copies the entries of a month",
        )],
    },
    CommandExamples {
        command: "archive reindex",
        lines: &[("archive reindex", "builds the search index again")],
    },
    CommandExamples {
        command: "archive pin",
        lines: &[(
            "archive pin scout/2026-03-14_0900.md",
            "keeps the entry from retention",
        )],
    },
    CommandExamples {
        command: "archive unpin",
        lines: &[(
            "archive unpin scout/2026-03-14_0900.md",
            "lets retention delete it again",
        )],
    },
    CommandExamples {
        command: "archive prune",
        lines: &[
            (
                "archive prune --dry-run",
                "shows what expires, and why the rest stays",
            ),
            (
                "archive prune scout -v",
                "deletes the expired entries of one agent",
            ),
        ],
    },
    CommandExamples {
        command: "baseline",
        lines: &[(
            "baseline list",
            "shows what changed, and who has an older version",
        )],
    },
    CommandExamples {
        command: "baseline list",
        lines: &[("baseline list", "lists all baselines, the worst first")],
    },
    CommandExamples {
        command: "baseline show",
        lines: &[
            ("baseline show scout", "prints the baseline of an agent"),
            (
                "baseline show scout --version sealed",
                "prints the version that is sealed",
            ),
        ],
    },
    CommandExamples {
        command: "baseline diff",
        lines: &[(
            "baseline diff scout --old pushed",
            "compares the file with the version that the agent got last",
        )],
    },
    CommandExamples {
        command: "baseline new",
        lines: &[
            ("baseline new scout-MEMORY.md", "begins with the template"),
            (
                "baseline new scout-MEMORY.md --from ranger",
                "begins with another baseline",
            ),
        ],
    },
    CommandExamples {
        command: "baseline edit",
        lines: &[(
            "baseline edit scout",
            "opens the baseline of an agent in $EDITOR",
        )],
    },
    CommandExamples {
        command: "baseline replace",
        lines: &[
            (
                "baseline replace --all --dry-run \"old name\" \"new name\"",
                "shows the difference in every baseline",
            ),
            (
                "baseline replace --regex \"v([0-9]+)\" \"version $1\" scout",
                "replaces by a regular expression",
            ),
        ],
    },
    CommandExamples {
        command: "baseline history",
        lines: &[(
            "baseline history scout -n 5",
            "lists the five newest versions",
        )],
    },
    CommandExamples {
        command: "baseline restore",
        lines: &[
            ("baseline restore scout", "puts the sealed version back"),
            (
                "baseline restore scout --version previous",
                "puts the version before back",
            ),
        ],
    },
    CommandExamples {
        command: "seal",
        lines: &[
            ("seal --dry-run", "shows what changed since the last seal"),
            ("seal scout", "accepts the changes of one baseline"),
            (
                "seal --all --sign ~/.ssh/id_ed25519.pub",
                "signs with a key of the ssh-agent",
            ),
        ],
    },
    CommandExamples {
        command: "guard",
        lines: &[
            ("guard", "watches until it is stopped"),
            ("guard --once", "looks once, for a timer"),
        ],
    },
    CommandExamples {
        command: "schedule",
        lines: &[("schedule status", "shows when each timer is due")],
    },
    CommandExamples {
        command: "schedule install",
        lines: &[
            (
                "schedule install --dry-run",
                "shows the units and the commands",
            ),
            ("schedule install --user", "installs timers of this user"),
        ],
    },
    CommandExamples {
        command: "schedule uninstall",
        lines: &[(
            "schedule uninstall --dry-run",
            "shows what would be removed",
        )],
    },
    CommandExamples {
        command: "schedule status",
        lines: &[(
            "schedule status --json",
            "prints the state of each timer for a script",
        )],
    },
    CommandExamples {
        command: "schedule pause",
        lines: &[
            (
                "schedule pause",
                "holds back all scheduled resets until `schedule resume`",
            ),
            (
                "schedule pause scout --dry-run",
                "shows what a pause of one agent would change",
            ),
        ],
    },
    CommandExamples {
        command: "schedule resume",
        lines: &[(
            "schedule resume scout",
            "ends the pause or the skip of one agent",
        )],
    },
    CommandExamples {
        command: "schedule skip",
        lines: &[(
            "schedule skip memory-shepherd.timer",
            "leaves out the next reset of that timer",
        )],
    },
    CommandExamples {
        command: "schedule run",
        lines: &[(
            "schedule run --config /etc/memory-shepherd/memory-shepherd.conf",
            "resets at the times of the timers, in a container",
        )],
    },
    CommandExamples {
        command: "alerts",
        lines: &[("alerts test", "shows whether every channel works")],
    },
    CommandExamples {
        command: "alerts test",
        lines: &[(
            "alerts test drifted",
            "sends a test of this event on every channel",
        )],
    },
    CommandExamples {
        command: "alerts send",
        lines: &[("alerts send -q", "sends what is due, from a timer")],
    },
    CommandExamples {
        command: "verify",
        lines: &[
            ("verify", "checks ledger, archive, baselines and seal"),
            (
                "verify --anchor 412:0000000000000000000000000000000000000000000000000000000000000000",
                "also requires this head, noted earlier",
            ),
        ],
    },
    CommandExamples {
        command: "lint",
        lines: &[
            (
                "lint scout",
                "checks the baseline and the memory of an agent",
            ),
            (
                "lint draft.md --fail-on warning",
                "checks a file before it is used",
            ),
            ("lint --format sarif", "prints findings for a code host"),
        ],
    },
    CommandExamples {
        command: "lint explain",
        lines: &[(
            "lint explain MS402",
            "says when the rule fires and what to do",
        )],
    },
    CommandExamples {
        command: "lint rules",
        lines: &[("lint rules --json", "prints all rules for a script")],
    },
    CommandExamples {
        command: "lint words",
        lines: &[("lint words", "lists the word lists")],
    },
    CommandExamples {
        command: "doctor",
        lines: &[
            ("doctor", "checks what resets rely on"),
            (
                "doctor --json",
                "prints the name and the level of each check",
            ),
        ],
    },
    CommandExamples {
        command: "keys",
        lines: &[("keys", "lists the keys of the console, with your own")],
    },
    CommandExamples {
        command: "completions",
        lines: &[(
            "completions bash",
            "prints them: redirect to ~/.local/share/bash-completion/completions/memory-shepherd",
        )],
    },
    CommandExamples {
        command: "man",
        lines: &[(
            "man",
            "prints the page: `memory-shepherd man | man -l -` shows it",
        )],
    },
    CommandExamples {
        command: "config",
        lines: &[("config check", "names every mistake in the config")],
    },
    CommandExamples {
        command: "config check",
        lines: &[(
            "config check --config new.conf",
            "checks a config before it is used",
        )],
    },
    CommandExamples {
        command: "config show",
        lines: &[("config show --json", "prints every value and its origin")],
    },
    #[cfg(feature = "demo")]
    CommandExamples {
        command: "demo",
        lines: &[
            ("demo", "opens the console on an example fleet"),
            (
                "demo --dir ./fleet --agents 100",
                "creates a larger one and keeps it",
            ),
        ],
    },
];

/// Returns the definition of the command line, with examples at the end of each help.
pub(super) fn command_line() -> Command {
    add_examples(Cli::command(), "")
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
pub(super) fn examples_text(path: &str) -> Option<String> {
    let examples = EXAMPLES.iter().find(|it| it.command == path)?;
    let mut text = "Examples:".to_string();
    for (line, purpose) in examples.lines {
        let line = format!("memory-shepherd {line}");
        text.push_str(&format!("\n  {}\n      {purpose}", line.trim_end()));
    }
    Some(text)
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
        visit_commands(&mut command_line(), "", &mut |command, path| {
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
                    help.contains(crate::cli::values::EXIT_CODES),
                    "{path}: {help}"
                );
            }
        });
    }

    #[test]
    fn every_example_is_a_call_of_its_command() {
        for examples in EXAMPLES {
            for (line, _) in examples.lines {
                let words = shell_words::split(&format!("memory-shepherd {line}")).unwrap();
                let parsed = command_line().try_get_matches_from(&words);
                let matches = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut matches = &matches;
                let mut path: Vec<&str> = Vec::new();
                while let Some((verb, below)) = matches.subcommand() {
                    path.push(verb);
                    matches = below;
                }
                // An example of a group may be one of a command in it.
                let path = path.join(" ");
                assert!(
                    path.starts_with(examples.command),
                    "{line} is a call of {path}"
                );
            }
        }
    }
}
