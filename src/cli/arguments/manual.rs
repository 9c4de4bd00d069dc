//! `completions` and `man`: shell completions and the manual page, generated from the one
//! definition of the command line.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use serde::Serialize;

use super::examples::examples_text;
use crate::cli::arguments::Cli;
use crate::cli::output::{Document, Printer};
use crate::cli::{CommandContext, CommandResult};

/// A generated file, printed as it is.
#[derive(Serialize)]
struct GeneratedFile {
    /// The usual name of the file.
    name: String,
    text: String,
}

impl Document for GeneratedFile {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(self.text.as_bytes())
    }
}

/// Prints the completions for a shell.
pub(in crate::cli) fn print_completions(
    context: &mut CommandContext<'_>,
    shell: Shell,
) -> CommandResult {
    use clap_complete::Generator;
    let mut command = Cli::command();
    let program = command.get_name().to_string();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, &program, &mut text);
    context.print_answer(&GeneratedFile {
        name: shell.file_name(&program),
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// Prints the manual page.
pub(in crate::cli) fn print_manual(context: &mut CommandContext<'_>) -> CommandResult {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = write_page(&mut page);
    context.print_answer(&GeneratedFile {
        name: "memory-shepherd.1".to_string(),
        text: String::from_utf8_lossy(&page).into_owned(),
    })
}

/// Writes one page for the program and all of its commands.
fn write_page(page: &mut Vec<u8>) -> io::Result<()> {
    let command = Cli::command().disable_help_subcommand(true);
    let man = Man::new(command.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    page.extend_from_slice(b".SH COMMANDS\n");
    for verb in command.get_subcommands() {
        write_command(page, verb, command.get_name())?;
    }
    let mut exit_status = Vec::new();
    man.render_extra_section(&mut exit_status)?;
    let exit_status = String::from_utf8_lossy(&exit_status).replace(".SH EXTRA", ".SH EXIT STATUS");
    page.extend_from_slice(exit_status.as_bytes());
    Ok(())
}

/// Writes the part of the page about a command, then those about the commands below it.
fn write_command(page: &mut Vec<u8>, command: &Command, parent: &str) -> io::Result<()> {
    let name = format!("{parent} {}", command.get_name());
    let man = Man::new(command.clone().bin_name(name.as_str()));
    let mut part = Vec::new();
    man.render_synopsis_section(&mut part)?;
    man.render_description_section(&mut part)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut part)?;
    }
    let part = String::from_utf8_lossy(&part)
        .replacen(".SH SYNOPSIS", &format!(".SS {name}"), 1)
        .replace(".SH DESCRIPTION", ".PP")
        .replace(".SH OPTIONS", ".PP");
    page.extend_from_slice(part.as_bytes());
    let path = name.split_once(' ').map_or("", |(_, path)| path);
    if let Some(examples) = examples_text(path) {
        // A backslash would begin a request of roff, and a dot or a quote at the start of a line.
        let lines = examples.replace('\\', "\\e").replace('-', "\\-");
        page.extend_from_slice(format!(".PP\n.nf\n{lines}\n.fi\n").as_bytes());
    }
    for verb in command.get_subcommands() {
        write_command(page, verb, &name)?;
    }
    Ok(())
}
