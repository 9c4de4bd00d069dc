//! Arguments of the operations of layouts, which are known only when the program starts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches, Subcommand};

use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::arguments::values::EXIT_CODES;
use crate::layouts::{ArgumentForm, ArgumentSpec, Layouts, OperationRequest, OperationSpec};

/// Prefix of the ids of arguments that operations have.
const ARGUMENT: &str = "argument:";

/// Prefix of the ids of arguments that name a directory.
const DIRECTORY: &str = "directory:";

/// Prefix of the ids of arguments that name the file of a text.
const FILE: &str = "file:";

/// Maximum size in bytes of a file that holds a text.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// An operation and its arguments, as they were typed.
#[derive(Clone, Debug)]
pub(super) struct OperationArgs {
    /// Name of the operation.
    pub(super) operation: String,
    arguments: BTreeMap<String, Vec<String>>,
    directories: BTreeMap<String, PathBuf>,
    /// The files that hold texts.
    files: BTreeMap<String, PathBuf>,
}

impl OperationArgs {
    /// Returns the request, with the texts of its files. Relative paths begin at `cwd`.
    ///
    /// # Errors
    /// A file cannot be read, or is not text.
    pub(super) fn to_request(
        &self,
        cwd: &Path,
        now: DateTime<FixedOffset>,
    ) -> Result<OperationRequest> {
        let mut arguments = self.arguments.clone();
        for (name, path) in &self.directories {
            let path = cwd.join(path);
            let text = path.to_str().ok_or_else(|| {
                let message = format!("{} is not UTF-8", path.display());
                Error::new(ErrorKind::User, message)
            })?;
            arguments.insert(name.clone(), vec![text.to_string()]);
        }
        for (name, path) in &self.files {
            arguments.insert(name.clone(), vec![read_text(&cwd.join(path))?]);
        }
        Ok(OperationRequest {
            operation: self.operation.clone(),
            arguments,
            now,
        })
    }
}

/// Reads the file of a text.
fn read_text(path: &Path) -> Result<String> {
    let fail = |why: String| {
        let message = format!("cannot read {}: {why}", path.display());
        Error::new(ErrorKind::Host, message)
    };
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(fail("it is larger than 64 MiB".to_string()));
    }
    String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".to_string()))
}

impl FromArgMatches for OperationArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OperationArgs, clap::Error> {
        let (operation, matches) = matches
            .subcommand()
            .ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        let mut args = OperationArgs {
            operation: operation.to_string(),
            arguments: BTreeMap::new(),
            directories: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        for id in matches.ids().map(clap::Id::as_str) {
            if let Some(name) = id.strip_prefix(ARGUMENT) {
                let values = matches.get_many::<String>(id).into_iter().flatten();
                args.arguments
                    .insert(name.to_string(), values.cloned().collect());
            } else if let Some(name) = id.strip_prefix(DIRECTORY) {
                let path = matches.get_one::<PathBuf>(id).cloned();
                args.directories
                    .insert(name.to_string(), path.unwrap_or_default());
            } else if let Some(name) = id.strip_prefix(FILE) {
                let path = matches.get_one::<PathBuf>(id).cloned();
                args.files
                    .insert(name.to_string(), path.unwrap_or_default());
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OperationArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The operations themselves are added by [`add_layout_operations`].
impl Subcommand for OperationArgs {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommand_required(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        OperationArgs::augment_subcommands(command)
    }

    /// Used where operations are verbs beside others, which only built-in layouts have.
    fn has_subcommand(name: &str) -> bool {
        let layouts = Layouts::BUILT_IN.0.iter();
        let mut specs = layouts.flat_map(|layout| layout.operations());
        specs.any(|spec| spec.name == name)
    }
}

/// Adds the operations of layouts to the verbs that plan and apply them.
pub(super) fn add_layout_operations(definition: Command, layouts: Layouts) -> Command {
    let specs: Vec<OperationSpec> = layouts
        .0
        .iter()
        .flat_map(|layout| layout.operations())
        .copied()
        .collect();
    let all = add_operations_to(&specs);
    let of_drover: Vec<OperationSpec> = match layouts.find("drover") {
        Ok(layout) => layout.operations().to_vec(),
        Err(_) => Vec::new(),
    };
    let without_reset = of_drover.into_iter().filter(|it| it.name != "reset");
    let of_drover = add_operations_to(&without_reset.collect::<Vec<_>>());
    definition
        .mut_subcommand("memory", |memory| {
            memory
                .mut_subcommand("plan", &all)
                .mut_subcommand("apply", |verb| {
                    all(verb.mut_args(|argument| argument.global(true)))
                })
        })
        .mut_subcommand("drover", of_drover)
}

/// Returns what adds operations to a command as verbs; operations with one name become one verb.
fn add_operations_to(specs: &[OperationSpec]) -> impl Fn(Command) -> Command + use<> {
    let specs = specs.to_vec();
    move |mut command| {
        for (number, spec) in specs.iter().enumerate() {
            if specs[..number].iter().any(|it| it.name == spec.name) {
                continue;
            }
            let same_name: Vec<&OperationSpec> =
                specs.iter().filter(|it| it.name == spec.name).collect();
            command = command.subcommand(operation_command(&same_name));
        }
        command
    }
}

/// Defines a verb for operations with one name, of one or several layouts.
fn operation_command(specs: &[&OperationSpec]) -> Command {
    let titles: Vec<&str> = specs.iter().map(|spec| spec.title).collect();
    let mut command = Command::new(specs[0].name)
        .about(capitalize(&titles.join("; ")))
        .after_help(EXIT_CODES);
    let mut names: Vec<&str> = Vec::new();
    for argument in specs.iter().flat_map(|spec| spec.arguments) {
        if names.contains(&argument.name) {
            continue;
        }
        names.push(argument.name);
        let is_required = specs.iter().all(|spec| {
            let mut arguments = spec.arguments.iter();
            arguments.any(|it| it.name == argument.name && it.is_required)
        });
        command = add_argument(command, argument, is_required);
    }
    command
}

fn add_argument(command: Command, spec: &ArgumentSpec, is_required: bool) -> Command {
    let id = format!("{ARGUMENT}{}", spec.name);
    let value_name = spec.name.to_uppercase().replace('-', "_");
    let base = Arg::new(id.clone())
        .help(capitalize(spec.title))
        .value_name(value_name)
        .allow_hyphen_values(!spec.is_positional());
    match spec.form {
        ArgumentForm::Positional | ArgumentForm::ItemOrFile => {
            command.arg(base.required(is_required))
        }
        ArgumentForm::Named => command.arg(base.long(spec.name).required(is_required)),
        ArgumentForm::Directory | ArgumentForm::Record => {
            let directory = base
                .id(format!("{DIRECTORY}{}", spec.name))
                .long(spec.name)
                .value_parser(clap::value_parser!(PathBuf));
            command.arg(directory.required(is_required))
        }
        ArgumentForm::Repeated => {
            let repeated = base.long(spec.name).action(ArgAction::Append);
            command.arg(repeated.required(is_required))
        }
        ArgumentForm::Text => {
            let file_id = format!("{FILE}{}", spec.name);
            let file = Arg::new(file_id.clone())
                .help("The file that holds it")
                .long(format!("{}-file", spec.name))
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf));
            let group = ArgGroup::new(format!("text:{}", spec.name)).args([id, file_id]);
            command
                .arg(base.long(spec.name))
                .arg(file)
                .group(group.required(is_required))
        }
    }
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
