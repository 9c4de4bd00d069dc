//! `baseline diff`, `baseline new` and `baseline replace`: compares two versions of a baseline,
//! creates one, and replaces text in several.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::base::diff::Diff;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::base::invocation::quote_operand;
use crate::baseline::seal::seal_saved_command;
use crate::cli::baseline::{describe_users, resolve_name};
use crate::cli::diff::{
    DiffHunk, Difference, MAX_ALL_HUNK_BYTES, compare_texts, diff_hunks_within, write_visible_diff,
};
use crate::cli::output::{Document, Printer, dim, format_count, heading, plain};
use crate::cli::{CommandContext, CommandResult};
use crate::engine::{BaselineAction, BaselinePlan, Engine, PlannedBaseline, TextReplacement};

/// Arguments of `baseline diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// File in baseline_dir, or agent
    #[arg(value_name = "FILE|AGENT")]
    file: String,
    /// Old side: `disk`, `sealed`, `pushed`, `previous`, `template`, `file:NAME`, or the first
    /// digits of a digest in its history
    #[arg(long, value_name = "VERSION", default_value = "sealed")]
    old: String,
    /// New side, likewise
    #[arg(long, value_name = "VERSION", default_value = "disk")]
    new: String,
}

/// Arguments of `baseline new`.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// Name of the file in baseline_dir
    name: String,
    /// Text to begin with: `template`, or another baseline
    #[arg(long, value_name = "template|FILE|AGENT", default_value = "template")]
    from: String,
}

/// Arguments of `baseline replace`.
#[derive(Debug, clap::Args)]
pub struct ReplaceArgs {
    /// Text to find
    pattern: String,
    /// Text to put in its place; with --regex, `$1` stands for the first group
    replacement: String,
    /// Files in baseline_dir, or agents
    #[arg(value_name = "FILE|AGENT", required_unless_present = "all")]
    files: Vec<String>,
    /// Changes all baselines in use
    #[arg(long, conflicts_with = "files")]
    all: bool,
    /// Takes the text to find as a regular expression; `^` and `$` match at each line
    #[arg(long)]
    regex: bool,
    /// Shows what would change; writes nothing
    #[arg(long)]
    dry_run: bool,
}

/// The answer of `baseline diff`.
#[derive(Serialize)]
struct ComparisonDocument {
    file: String,
    old: String,
    new: String,
    old_sha256: Digest,
    new_sha256: Digest,
    #[serde(flatten)]
    difference: Difference,
}

/// The answer of `baseline new`.
#[derive(Serialize)]
struct NewDocument {
    file: String,
    from: String,
    path: PathBuf,
    sha256: Digest,
    run: String,
}

/// The answer of `baseline replace`.
#[derive(Serialize)]
struct ReplaceDocument {
    dry_run: bool,
    files: Vec<ReplacedItem>,
    unchanged: Vec<String>,
}

/// A baseline in which text is replaced.
#[derive(Serialize)]
struct ReplacedItem {
    file: String,
    replaced: usize,
    before: Option<Digest>,
    sha256: Digest,
    agents: Vec<String>,
    /// Id of the run; none in a dry run, and where the file was not written.
    run: Option<String>,
    hunks: Vec<DiffHunk>,
    /// Number of lines of the difference that `hunks` leaves out.
    more_lines: usize,
}

impl Document for ComparisonDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.old_sha256 == self.new_sha256 {
            let (old, new) = (&self.old, &self.new);
            return printer.write_plain_line(format!("no difference between {old} and {new}"));
        }
        let label = |side: &str| format!("{} ({side})", self.file);
        let diff = &self.difference.diff;
        write_visible_diff(printer, diff, &label(&self.old), &label(&self.new))
    }
}

impl Document for NewDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let (path, from, run) = (self.path.display(), &self.from, &self.run);
        printer.write_plain_line(format!("created {path} from {from} (run {run})"))
    }
}

impl Document for ReplaceDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let verb = if self.dry_run {
            "would change"
        } else {
            "changed"
        };
        let is_counted = |it: &&ReplacedItem| self.dry_run || it.run.is_some();
        let changed = self.files.iter().filter(is_counted).count();
        printer.write_plain_line(format!(
            "{verb} {}, {} without a match",
            format_count(changed, "baseline"),
            self.unchanged.len()
        ))
    }
}

impl ReplacedItem {
    /// Writes it as text: one file at a time, because a difference takes much memory.
    fn write_text(&self, printer: &mut Printer<'_>, diff: &Diff) -> io::Result<()> {
        let places = format_count(self.replaced, "place");
        let agents = describe_users(&self.agents);
        printer.write_line(&[
            heading(&self.file),
            plain(&format!("  {places}  ")),
            dim(&agents),
        ])?;
        let after = format!("{} (changed)", self.file);
        write_visible_diff(printer, diff, &self.file, &after)
    }

    fn new(file: &PlannedBaseline) -> ReplacedItem {
        let before = file.before.bytes();
        ReplacedItem {
            file: file.name.clone(),
            replaced: file.replaced,
            before: before.map(Digest::of),
            sha256: Digest::of(&file.after),
            agents: file.agents.clone(),
            run: None,
            hunks: Vec::new(),
            more_lines: 0,
        }
    }
}

/// Shows what is replaced, as text, or adds it to the items for JSON.
fn show_replacements(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    files: &[PlannedBaseline],
    items: &mut [ReplacedItem],
) -> Result<(), Error> {
    let is_json = context.output.is_json();
    let mut bytes_left = MAX_ALL_HUNK_BYTES;
    for (file, item) in files.iter().zip(items) {
        let before = file.before.bytes().unwrap_or_default();
        let diff = compare_texts(engine, before, &file.after);
        if is_json {
            let part = diff_hunks_within(&diff, bytes_left);
            bytes_left -= part.bytes;
            item.more_lines = part.omitted_lines;
            item.hunks = part.hunks;
        } else {
            context
                .output
                .print_text(|printer| item.write_text(printer, &diff))?;
        }
    }
    Ok(())
}

pub(in crate::cli) fn compare_baseline_versions(
    context: &mut CommandContext<'_>,
    args: &DiffArgs,
) -> CommandResult {
    let engine = context.open_engine()?;
    let name = resolve_name(context, &engine, &args.file)?;
    let (old_sha256, old) = engine
        .baseline_catalog()
        .find_baseline_version(&name, &args.old)?;
    let (new_sha256, new) = engine
        .baseline_catalog()
        .find_baseline_version(&name, &args.new)?;
    context.print_answer(&ComparisonDocument {
        file: name,
        old: args.old.clone(),
        new: args.new.clone(),
        old_sha256,
        new_sha256,
        difference: compare_texts(&engine, &old, &new).into(),
    })
}

pub(in crate::cli) fn create_baseline(
    context: &mut CommandContext<'_>,
    args: &NewArgs,
) -> CommandResult {
    let engine = context.open_engine()?;
    let source = match args.from.as_str() {
        "template" => args.from.clone(),
        other => resolve_name(context, &engine, other)?,
    };
    let plan = engine
        .baseline_edits()
        .plan_new_baseline(&args.name, &source)?;
    warn_of_foreign_lines(context, &engine, &plan);
    for file in &plan.files {
        let saved = engine
            .baseline_edits()
            .apply_planned_baseline(&plan, file)?;
        context.print_document(&NewDocument {
            file: file.name.clone(),
            from: source.clone(),
            path: saved.path,
            sha256: saved.digest,
            run: saved.run,
        })?;
    }
    let seal = format!("seal {}", quote_operand(&args.name));
    let seal = engine.command_line(&seal);
    context.print_hint(format!(
        "edit it, name it in the config as `baseline` of an agent, then: {seal}"
    ));
    Ok(None)
}

/// Warns of files that hold more than what the operator has sealed or saved.
pub(in crate::cli) fn warn_of_foreign_lines(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    plan: &BaselinePlan,
) {
    for file in plan.files.iter().filter(|file| file.is_foreign) {
        let (what, changed) = match &plan.action {
            BaselineAction::Create { source } => ("", source),
            BaselineAction::Restore { .. } => ("this version of ", &file.name),
            BaselineAction::Replace => ("", &file.name),
        };
        warn_of_foreign_baseline(context, engine, what, changed);
    }
}

/// Warns of a baseline that may hold lines of another program; `what` stands before its name.
pub(in crate::cli) fn warn_of_foreign_baseline(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    what: &str,
    name: &str,
) {
    let diff = format!("baseline diff {}", quote_operand(name));
    context.print_warning(format!(
        "not all of {what}{name} was saved by this program; compare it with its seal: {}",
        engine.command_line(&diff)
    ));
}

pub(in crate::cli) fn replace_in_baselines(
    context: &mut CommandContext<'_>,
    args: &ReplaceArgs,
) -> CommandResult {
    let engine = context.open_engine()?;
    if !args.dry_run {
        engine.baseline_files().recover_baseline_changes()?;
    }
    let names: Vec<String> = if args.all {
        let names = engine.config().baseline_names();
        let mut names: Vec<String> = names.map(str::to_string).collect();
        names.sort();
        names.dedup();
        names
    } else {
        let names = args.files.iter();
        let names = names.map(|it| resolve_name(context, &engine, it));
        names.collect::<Result<_, Error>>()?
    };
    let plan = engine.baseline_edits().plan_replacement(
        &names,
        &TextReplacement {
            pattern: args.pattern.clone(),
            replacement: args.replacement.clone(),
            is_regex: args.regex,
        },
    )?;
    let mut files: Vec<ReplacedItem> = plan.files.iter().map(ReplacedItem::new).collect();
    warn_of_foreign_lines(context, &engine, &plan);
    let mut errors: Vec<Error> = Vec::new();
    for (file, item) in plan.files.iter().zip(&mut files).filter(|_| !args.dry_run) {
        match engine.baseline_edits().apply_planned_baseline(&plan, file) {
            Ok(saved) => {
                for remark in saved.remarks() {
                    let warning = format!("{}: {remark}", file.name);
                    context.print_warning(&warning);
                }
                item.run = Some(saved.run);
            }
            Err(error) => errors.push(error),
        }
    }
    show_replacements(context, &engine, &plan.files, &mut files)?;
    let is_written = files.iter().any(|item| item.run.is_some());
    context.print_document(&ReplaceDocument {
        dry_run: args.dry_run,
        files,
        unchanged: plan.unchanged,
    })?;
    for error in &errors {
        context.print_failure(error);
    }
    if is_written {
        let seal = seal_saved_command(engine.config());
        context.print_hint(format!("seal the changes: {seal}"));
    }
    let kinds = errors.iter().map(Error::kind);
    Ok(kinds.reduce(ErrorKind::more_serious))
}
