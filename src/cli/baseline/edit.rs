//! `baseline edit`: opens a baseline in the operator's editor, lints the result and saves it.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use serde::Serialize;

use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result, describe_io_error};
use crate::base::invocation::quote_operand;
use crate::base::program::describe_exit;
use crate::cli::baseline::resolve_name;
use crate::cli::diff::{Difference, compare_texts, write_visible_diff};
use crate::cli::output::{Document, Printer};
use crate::cli::{CommandContext, CommandResult, signals};
use crate::console::shell::external_copy::ExternalCopy;
use crate::engine::{Engine, OpenedBaseline, SavedBaseline};
use crate::lint::{Finding, Severity};

/// Arguments of `baseline edit`.
#[derive(Debug, clap::Args)]
pub struct EditArgs {
    /// File in baseline_dir, or agent
    #[arg(value_name = "FILE|AGENT")]
    file: String,
    /// Saves a text in which the lint finds errors, too
    #[arg(long)]
    force: bool,
}

/// The answer of `baseline edit`.
#[derive(Serialize)]
struct EditDocument {
    file: String,
    before: Digest,
    sha256: Digest,
    /// None if the text is as before.
    run: Option<String>,
    /// What the lint finds in the new text, a line each.
    findings: Vec<String>,
    #[serde(flatten)]
    difference: Difference,
}

impl Document for EditDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let Some(run) = &self.run else {
            return printer.write_plain_line(format!("{} is as before; not saved", self.file));
        };
        let after = format!("{} (edited)", self.file);
        write_visible_diff(printer, &self.difference.diff, &self.file, &after)?;
        printer.write_plain_line(format!("saved {} (run {run})", self.file))
    }
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>, args: &EditArgs) -> CommandResult {
    let engine = context.open_engine()?;
    let name = resolve_name(context, &engine, &args.file)?;
    engine.baseline_files().recover_baseline_changes()?;
    // Until the end, the guard restores nothing.
    let _edit = engine.baseline_files().begin_baseline_edit()?;
    let opened = engine.baseline_edits().open_baseline(&name)?;
    // The editor gets them, too: it decides whether they end the edit.
    signals::register_stop_flag(&Arc::default())?;
    let copy = ExternalCopy::write(
        &context.environment.temporary_root,
        &opened,
        engine.clock().instant(),
    )?;
    let ended = run_editor(context, copy.path());
    let ended_at = ended.is_ok().then(|| engine.clock().instant());
    // The text of a failed editor is not saved.
    let saved = ended.and_then(|()| copy.read_text()).and_then(|edited| {
        let findings = lint_draft(&engine, &name, &edited)?;
        let saved = save_draft(&engine, &opened, &edited, &findings, args.force)?;
        Ok((edited, findings, saved))
    });
    let stored = saved.as_ref().ok().map(|(edited, ..)| edited.as_slice());
    let kept = copy.finish(stored, ended_at).map(|kept| kept.to_string());
    let (edited, findings, saved) = match saved {
        Ok(saved) => saved,
        Err(error) => return Err(kept.into_iter().fold(error, Error::with_hint).into()),
    };
    if let Some(kept) = kept {
        context.print_warning(&kept);
    }
    context.print_document(&EditDocument {
        file: name.clone(),
        before: opened.digest,
        sha256: Digest::of(&edited),
        run: saved.as_ref().map(|it| it.run.clone()),
        findings: findings.iter().map(Finding::summary).collect(),
        difference: compare_texts(&engine, &opened.bytes, &edited).into(),
    })?;
    for remark in saved.iter().flat_map(SavedBaseline::remarks) {
        context.print_warning(format!("{name}: {remark}"));
    }
    for finding in &findings {
        context.print_note(finding.summary());
    }
    if saved.is_some() {
        let seal = format!("seal {}", quote_operand(&name));
        context.print_hint(format!("to seal it: {}", engine.command_line(&seal)));
    }
    Ok(None)
}

/// Runs the operator's editor on a file, and waits until it ends.
fn run_editor(context: &CommandContext<'_>, file: &Path) -> Result<()> {
    let mut failure = Error::new(ErrorKind::User, "no editor is set");
    for words in context.environment.external_tools.editor_commands()? {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        match start_editor(context, program, arguments, file) {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => {
                let why = describe_exit(status);
                let message = format!("the editor {program} failed ({why}); nothing was saved");
                return Err(Error::new(ErrorKind::User, message));
            }
            Err(error) => {
                let cause = describe_io_error(&error);
                let message = format!("cannot start the editor {program}: {cause}");
                failure = Error::new(ErrorKind::User, message);
            }
        }
    }
    Err(failure.with_hint("set VISUAL or EDITOR to the command of your editor"))
}

fn start_editor(
    context: &CommandContext<'_>,
    program: &str,
    arguments: &[String],
    file: &Path,
) -> io::Result<ExitStatus> {
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    if context.output.is_json() {
        // Standard output is for the document.
        let errors = io::stderr().as_fd().try_clone_to_owned()?;
        command.stdout(Stdio::from(errors));
    }
    command.status()
}

/// Returns what the lint finds in a text of a baseline.
fn lint_draft(engine: &Engine, name: &str, text: &[u8]) -> Result<Vec<Finding>> {
    let decisions = engine.lint().load_lint_decisions()?;
    let report = engine.lint().baseline_lint(name, &decisions).lint(text);
    Ok(report.findings)
}

/// Saves an edited baseline; none if its text is as before.
fn save_draft(
    engine: &Engine,
    opened: &OpenedBaseline,
    edited: &[u8],
    findings: &[Finding],
    is_forced: bool,
) -> Result<Option<SavedBaseline>> {
    if edited == opened.bytes {
        return Ok(None);
    }
    let mut errors = findings.iter().filter(|it| it.severity == Severity::Error);
    if let Some(first) = errors.next().filter(|_| !is_forced) {
        let message = format!("{}: {}; nothing was saved", opened.name, first.summary());
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("correct it, or save it as it is with --force"));
    }
    let expected = Some(opened.digest);
    engine
        .baseline_files()
        .save_baseline(&opened.name, edited, expected)
        .map(Some)
}
