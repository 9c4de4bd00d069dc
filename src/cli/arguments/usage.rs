//! Messages of clap about a command line, as text or as JSON.

use std::ffi::OsString;

use clap::CommandFactory;

use crate::base::error::{Error, ErrorKind};
use crate::cli::Cli;
use crate::cli::output::{Output, OutputSettings};

/// Maximum distance between a mistyped word and the one that was meant.
const MAX_TYPOS: usize = 2;

/// Returns the words in front of which a command line has no option: the command, or an agent.
pub(in crate::cli) fn command_words(arguments: &[OsString]) -> Vec<String> {
    let cli = Cli::command();
    let takes_value = |flag: &str| {
        let mut options = cli.get_arguments();
        let is_named = |it: &clap::Arg| it.get_long().is_some_and(|long| flag[2..] == *long);
        flag.starts_with("--") && options.any(|it| it.get_action().takes_values() && is_named(it))
    };
    let mut words = Vec::new();
    // Behind the name of the program.
    let mut arguments = arguments.iter().skip(1).map(|it| it.to_string_lossy());
    while let Some(argument) = arguments.next() {
        if takes_value(&argument) {
            arguments.next();
        } else if !argument.starts_with('-') {
            words.push(argument.into_owned());
        }
    }
    words
}

/// Returns how many typos lead from the name of a command to a word, if few do.
fn count_typos(name: &str, word: &str) -> Option<usize> {
    let typos = strsim::damerau_levenshtein(name, word);
    (typos <= MAX_TYPOS && 2 * typos <= name.chars().count()).then_some(typos)
}

/// Returns the command that these words resemble most: `alerts test` for `alert test`; none if they
/// resemble no command.
pub(in crate::cli) fn closest_command(words: &[String]) -> Option<String> {
    let (first, second) = (words.first()?, words.get(1));
    let mut cli = Cli::command();
    cli.build();
    let commands = cli.get_subcommands().filter_map(|verb| {
        let typos = count_typos(verb.get_name(), first)?;
        let second = second.filter(|_| verb.has_subcommands());
        let Some(second) = second else {
            return Some((typos, verb.get_name().to_string()));
        };
        let subcommands = verb.get_subcommands().filter_map(|it| {
            let command = format!("{} {}", verb.get_name(), it.get_name());
            Some((typos + count_typos(it.get_name(), second)?, command))
        });
        let of_verb = (typos + MAX_TYPOS + 1, verb.get_name().to_string());
        subcommands.chain([of_verb]).min()
    });
    commands.min().map(|(_, command)| command)
}

/// Replaces the suggestion in an error about a mistyped command: clap compares the second word with
/// the commands, because it takes the first one for an agent.
fn suggest_closest_command(error: &mut clap::Error, arguments: &[OsString]) {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let words = command_words(arguments);
    let mut cli = Cli::command();
    cli.build();
    let is_command = |word: &String| cli.find_subcommand(word).is_some();
    let is_first_known = words.first().is_some_and(is_command);
    let is_invalid = error.kind() == ErrorKind::InvalidSubcommand;
    if !is_invalid && (error.kind() != ErrorKind::UnknownArgument || is_first_known) {
        return;
    }
    let Some(command) = closest_command(&words) else {
        return;
    };
    if is_invalid && !is_first_known {
        let typed = words[..words.len().min(2)].join(" ");
        error.insert(ContextKind::InvalidSubcommand, ContextValue::String(typed));
    }
    // The command that has no such subcommand is in the usage.
    if !words.contains(&command) {
        let suggested = ContextValue::Strings(vec![command]);
        error.insert(ContextKind::SuggestedSubcommand, suggested);
    }
}

/// Returns an error if a command with subcommands was called without one. Clap prints the help in
/// that case, which suits people but not JSON.
pub(in crate::cli) fn missing_verb_error(
    error: &clap::Error,
    arguments: &[OsString],
) -> Option<Error> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let reparse_error = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let mut cli = Cli::command();
            let names: Vec<String> = cli
                .get_subcommands()
                .filter(|verb| verb.has_subcommands())
                .map(|verb| verb.get_name().to_string())
                .collect();
            for name in names {
                cli = cli.mut_subcommand(name, |verb| verb.arg_required_else_help(false));
            }
            cli.try_get_matches_from(arguments).err()
        }
        _ => None,
    };
    let error = reparse_error.as_ref().unwrap_or(error);
    match (
        error.kind(),
        error.get(ContextKind::InvalidSubcommand),
        error.get(ContextKind::ValidSubcommand),
    ) {
        (
            ErrorKind::MissingSubcommand,
            Some(ContextValue::String(command)),
            Some(ContextValue::Strings(verbs)),
        ) => {
            let verbs = verbs.join(", ");
            let message = format!("`{command}` requires a subcommand: {verbs}");
            Some(
                Error::new(crate::base::error::ErrorKind::User, message)
                    .with_hint(format!("see `{command} --help`")),
            )
        }
        _ => None,
    }
}

/// Replaces the usage in an error about arguments that exclude each other: clap's names only the
/// one that came first.
fn insert_whole_usage(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let usage = match (error.kind(), error.get(ContextKind::Usage)) {
        (ErrorKind::ArgumentConflict, Some(ContextValue::StyledStr(usage))) => usage.to_string(),
        _ => return,
    };
    let mut cli = Cli::command();
    cli.build();
    let mut command = &cli;
    // Behind "Usage: memory-shepherd".
    for word in usage.split_whitespace().skip(2) {
        match command.find_subcommand(word) {
            Some(subcommand) => command = subcommand,
            None => break,
        }
    }
    let usage = command.clone().render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
}

/// Prints a message of clap: help, version, or a usage error.
pub(in crate::cli) fn print_clap_error(
    mut error: clap::Error,
    arguments: &[OsString],
    settings: OutputSettings,
) -> Option<ErrorKind> {
    insert_whole_usage(&mut error);
    suggest_closest_command(&mut error, arguments);
    let mut out = Output::new(settings);
    let text = error.render().to_string();
    if !error.use_stderr() {
        let printed = out.print_usage(&text, false);
        return printed.err().map(|error| error.kind());
    }
    if settings.is_json {
        let text = text.trim_start_matches("error: ");
        let (message, tips) = text.split_once("\n\n").unwrap_or((text, ""));
        let words: Vec<&str> = message.split_whitespace().collect();
        let mut error = Error::new(ErrorKind::User, words.join(" "));
        if let Some(tip) = tips
            .lines()
            .find_map(|line| line.trim().strip_prefix("tip: "))
        {
            error = error.with_hint(tip);
        }
        out.print_command_error(&error.with_hint("see `memory-shepherd --help`").into());
        return Some(ErrorKind::User);
    }
    let printed = out.print_usage(&text, true);
    Some(printed.map_or_else(|error| error.kind(), |()| ErrorKind::User))
}
