//! Messages of clap about a command line, as text or as JSON.

use std::ffi::OsString;

use clap::CommandFactory;

use super::Cli;
use super::output::{Output, OutputSettings};
use crate::error::{Error, ErrorKind};

/// Returns an error if a command with subcommands was called without one. Clap prints the help in
/// that case, which suits people but not JSON.
pub(super) fn missing_verb_error(error: &clap::Error, arguments: &[OsString]) -> Option<Error> {
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
                Error::new(crate::error::ErrorKind::User, message)
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
pub(super) fn print_clap_error(
    mut error: clap::Error,
    settings: OutputSettings,
) -> Option<ErrorKind> {
    insert_whole_usage(&mut error);
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
