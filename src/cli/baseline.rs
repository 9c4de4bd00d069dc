//! `baseline`: lists baselines and their versions, prints one, and puts one back. Its other
//! subcommands are in `baseline_plans`.

pub(super) mod edit;
pub(super) mod plans;

use std::io;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{
    Document, FileContent, OutputRole, Printer, TableCell, format_count, heading_cells,
    number_cell, text_cell,
};
use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::digest::Digest;
use crate::base::durable::LostAttributes;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::baseline::seal::{seal_hint, seal_saved_command};
use crate::baseline::signatures::SignedSeal;
use crate::cli::arguments::values::{EXIT_CODES, parse_record_count};
use crate::cli::baseline::edit::EditArgs;
use crate::cli::baseline::plans::{
    DiffArgs, NewArgs, ReplaceArgs, compare_baseline_versions, create_baseline,
    replace_in_baselines, warn_of_foreign_lines,
};
use crate::engine::{
    BaselineState, BaselineSummary, BaselineVersion, Engine, FindingCounts, SavedBaseline,
};

/// Subcommands of `baseline`.
#[derive(Debug, clap::Subcommand)]
pub enum BaselineVerb {
    /// Lists all baselines with state, size, users and last push, worst first
    ///
    /// Exits with 4 if a baseline has changed since the seal or the seal cannot be used, and with 6 if
    /// one is missing or too small.
    #[command(after_help = EXIT_CODES)]
    List,
    /// Prints a baseline or one of its versions
    #[command(after_help = EXIT_CODES)]
    Show {
        /// File in baseline_dir, or agent
        #[arg(value_name = "FILE|AGENT")]
        file: String,
        /// Version: `sealed`, `pushed`, `previous`, or the first digits of a digest in its history
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Compares two versions of a baseline, by default the sealed one with the file
    #[command(after_help = EXIT_CODES)]
    Diff(DiffArgs),
    /// Creates a baseline from the template or from another one
    #[command(after_help = EXIT_CODES)]
    New(NewArgs),
    /// Opens a baseline in your editor, and saves what it leaves
    ///
    /// The editor is $VISUAL, else $EDITOR, else vi. A text in which the lint finds errors is not
    /// saved without --force, and neither is one whose file has changed since; the exit code is
    /// then 6, and the text stays in a file that is named. The version from before is kept.
    #[command(after_help = EXIT_CODES)]
    Edit(EditArgs),
    /// Replaces text in several baselines
    ///
    /// The versions from before are kept. A file that changes before it is written is left as it is, and the
    /// exit code is 6.
    #[command(after_help = EXIT_CODES)]
    Replace(ReplaceArgs),
    /// Lists the versions of a baseline, newest last
    #[command(after_help = EXIT_CODES)]
    History {
        /// File in baseline_dir, or agent
        #[arg(value_name = "FILE|AGENT")]
        file: String,
        /// Shows at most this many versions, the newest
        #[arg(short = 'n', value_name = "COUNT", value_parser = parse_record_count)]
        count: Option<usize>,
    },
    /// Puts the sealed version of a baseline back, or another one
    ///
    /// The bytes that it replaces are kept as a version. Owner and mode of the file stay.
    #[command(after_help = EXIT_CODES)]
    Restore {
        /// File in baseline_dir, or agent
        #[arg(value_name = "FILE|AGENT")]
        file: String,
        /// Version: `sealed`, `pushed`, `previous`, or the first digits of a digest in its history
        #[arg(long, value_name = "VERSION", default_value = "sealed")]
        version: String,
    },
}

/// The answer of `baseline list`.
#[derive(Serialize)]
struct ListDocument {
    baseline_dir: PathBuf,
    baselines: Vec<BaselineSummary>,
    /// Who signed the seal; none without a good signature.
    signed: Option<SignedSeal>,
    /// Fault of the seal.
    seal_error: Option<String>,
    ledger_error: Option<String>,
}

/// The answer of `baseline show`.
#[derive(Serialize)]
struct ShowDocument {
    file: String,
    #[serde(flatten)]
    content: FileContent,
}

/// The answer of `baseline history`.
#[derive(Serialize)]
struct HistoryDocument {
    file: String,
    versions: Vec<BaselineVersion>,
}

/// The answer of `baseline restore`.
#[derive(Serialize)]
struct RestoreDocument {
    file: String,
    version: String,
    /// Id of the run; none if the file was that version already.
    run: Option<String>,
    before: Option<Digest>,
    sha256: Option<Digest>,
    kept_aside: Option<PathBuf>,
    lost: LostAttributes,
    #[serde(skip)]
    remarks: Vec<String>,
}

/// Returns the error of a restore that would count from a version which an interrupted change installed.
///
/// # Errors
/// The baseline or the ledger cannot be read.
fn interrupted_save_error(engine: &Engine, name: &str) -> Result<Error> {
    let (now, _) = engine
        .baseline_catalog()
        .find_baseline_version(name, "disk")?;
    let (previous, _) = engine
        .baseline_catalog()
        .find_baseline_version(name, "previous")?;
    let message = format!(
        "an interrupted change had replaced {name}: it is version {} now, and `previous` would be \
         version {}",
        now.short_hex(12),
        previous.short_hex(12)
    );
    let name = quote_operand(name);
    let restore = format!(
        "baseline restore {name} --version {}",
        previous.short_hex(12)
    );
    let diff = format!("baseline diff {name} --old previous");
    Ok(Error::new(ErrorKind::Conflict, message)
        .with_hint(format!(
            "nothing else was changed; to see the difference: {}",
            engine.command_line(&diff)
        ))
        .with_hint(format!(
            "to restore that version: {}",
            engine.command_line(&restore)
        )))
}

/// Formats a time in the zone of this machine; "-" without one.
pub(super) fn format_time(time: Option<DateTime<FixedOffset>>) -> String {
    let zone = SystemClock.zone();
    time.map_or("-".to_string(), |time| zone.format_second(time))
}

fn short_digest(digest: Option<Digest>) -> String {
    digest.map_or("-".to_string(), |digest| digest.short_hex(12))
}

fn state_cell(baseline: &BaselineSummary) -> TableCell {
    match baseline.state {
        BaselineState::Ok => text_cell(OutputRole::Good, "ok"),
        BaselineState::Behind => {
            let agents = format_count(baseline.behind.len(), "agent");
            text_cell(OutputRole::Warn, format!("behind on {agents}"))
        }
        state @ (BaselineState::Unsealed | BaselineState::Unsigned) => {
            text_cell(OutputRole::Warn, state.as_str())
        }
        BaselineState::Missing if baseline.problem.is_some() => {
            text_cell(OutputRole::Bad, "unreadable")
        }
        state => text_cell(OutputRole::Bad, state.as_str()),
    }
}

/// Returns, for example, "1 error, 2 warnings".
fn findings_cell(baseline: &BaselineSummary) -> TableCell {
    let Some(FindingCounts { errors, warnings }) = baseline.findings else {
        return text_cell(OutputRole::Plain, "-");
    };
    let counts = [(errors, "error"), (warnings, "warning")];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counted
        .map(|(count, noun)| format_count(*count, noun))
        .collect();
    match (texts.as_slice(), errors) {
        ([], _) => text_cell(OutputRole::Plain, "none"),
        (texts, 0) => text_cell(OutputRole::Warn, texts.join(", ")),
        (texts, _) => text_cell(OutputRole::Bad, texts.join(", ")),
    }
}

impl Document for ListDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.baselines.is_empty() {
            return printer.write_plain_line("no baselines");
        }
        let titles = [
            "STATE",
            "FILE",
            "BYTES",
            "SIZE",
            "FINDINGS",
            "CHANGED",
            "LAST PUSH",
            "AGENTS",
        ];
        let mut rows = vec![heading_cells(&titles, &["BYTES"])];
        for baseline in &self.baselines {
            let bytes = baseline.size.map_or("-".to_string(), |it| it.to_string());
            let mut band = baseline.band.map_or("-".to_string(), |it| it.to_string());
            if baseline.over_limit {
                band.push_str(", over the limit");
            }
            let pushed = baseline.last_push.as_ref().map(|push| push.time);
            rows.push(vec![
                state_cell(baseline),
                text_cell(OutputRole::Plain, &baseline.name),
                number_cell(OutputRole::Plain, bytes),
                text_cell(OutputRole::Plain, band),
                findings_cell(baseline),
                text_cell(OutputRole::Plain, format_time(baseline.changed)),
                text_cell(OutputRole::Plain, format_time(pushed)),
                text_cell(OutputRole::Dim, baseline.agents.join(", ")),
            ]);
        }
        printer.write_table_within_width(rows, &[3, 5, 6])?;
        if let Some(signed) = &self.signed {
            let (signer, meta) = (&signed.signer, &signed.meta);
            printer.write_plain_line(format!(
                "seal signed by {} ({}) at {}, serial {}",
                signer.principal,
                signer.key,
                format_time(Some(meta.time)),
                meta.serial
            ))?;
        }
        Ok(())
    }
}

impl Document for ShowDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(self.content.bytes())
    }
}

impl Document for HistoryDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.versions.is_empty() {
            return printer.write_plain_line("no versions in the ledger");
        }
        let titles = ["TIME", "RUN", "ACT", "VERSION", "KEPT", "NOTE"];
        let mut rows = vec![heading_cells(&titles, &[])];
        for version in &self.versions {
            let agents = match version.agents.as_slice() {
                [] => None,
                agents => Some(format!("pushed to {}", agents.join(", "))),
            };
            let replaced = version
                .replaced
                .map(|digest| format!("replaced {}", digest.short_hex(12)));
            let note: Vec<String> = agents
                .into_iter()
                .chain(version.note.clone())
                .chain(replaced)
                .collect();
            let kept = match (version.sha256, version.stored) {
                (None, _) => "-",
                (Some(_), true) => "yes",
                (Some(_), false) => "no",
            };
            rows.push(vec![
                text_cell(OutputRole::Plain, format_time(Some(version.time))),
                text_cell(OutputRole::Notice, &version.run),
                text_cell(OutputRole::Plain, version.operation.as_str()),
                text_cell(OutputRole::Plain, short_digest(version.sha256)),
                text_cell(OutputRole::Plain, kept),
                text_cell(OutputRole::Plain, note.join("; ")),
            ]);
        }
        printer.write_table_within_width(rows, &[4, 1])
    }
}

impl Document for RestoreDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let Some(run) = &self.run else {
            let version = match self.version.as_str() {
                "sealed" | "pushed" => format!("the {} version", self.version),
                digits => format!("version {digits}"),
            };
            let file = &self.file;
            return printer.write_plain_line(format!("no change: {file} already is {version}"));
        };
        printer.write_plain_line(format!(
            "restored {}: {} -> {} (run {run})",
            self.file,
            short_digest(self.before),
            short_digest(self.sha256)
        ))?;
        let mut remarks = self.remarks.iter();
        remarks.try_for_each(|remark| printer.write_plain_line(remark))
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, verb: &BaselineVerb) -> CommandResult {
    match verb {
        BaselineVerb::List => list_baselines(context),
        BaselineVerb::Show { file, version } => show_baseline(context, file, version.as_deref()),
        BaselineVerb::Diff(args) => compare_baseline_versions(context, args),
        BaselineVerb::New(args) => create_baseline(context, args),
        BaselineVerb::Edit(args) => edit::run(context, args),
        BaselineVerb::Replace(args) => replace_in_baselines(context, args),
        BaselineVerb::History { file, count } => show_history(context, file, *count),
        BaselineVerb::Restore { file, version } => restore_baseline(context, file, version),
    }
}

/// Returns the name of the baseline that an argument names: a file in `baseline_dir`, or an agent.
pub(super) fn resolve_name(
    context: &CommandContext<'_>,
    engine: &Engine,
    argument: &str,
) -> Result<String> {
    let cwd = &context.environment.env.cwd;
    engine.seals().baseline_name(argument, cwd)
}

/// Names the agents that use a baseline.
pub(super) fn describe_users(agents: &[String]) -> String {
    match agents {
        [] => "no agent uses it".to_string(),
        agents => format!("used by {}", agents.join(", ")),
    }
}

fn list_baselines(context: &mut CommandContext<'_>) -> CommandResult {
    let engine = context.open_engine()?;
    let list = engine.baseline_catalog().list_baselines();
    let kind = list.worst_kind();
    let (signed, signature_error) = match list.signature {
        Some(Ok(signed)) => (Some(signed), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let is_refused = list.seal_error.is_some();
    let seal_error = list.seal_error.or(signature_error);
    let document = ListDocument {
        baseline_dir: list.directory,
        baselines: list.baselines,
        signed,
        seal_error: seal_error.as_ref().map(Error::to_string),
        ledger_error: list.ledger_error.as_ref().map(Error::to_string),
    };
    context.print_document(&document)?;
    let baselines = &document.baselines;
    for baseline in baselines {
        if let Some(problem) = &baseline.problem {
            context.print_error(format!("{}: {problem}", baseline.name));
        }
    }
    match &seal_error {
        Some(error) if is_refused => context.print_failure(error),
        // Resets install the baselines all the same.
        Some(error) => {
            context.print_warning(error.message());
            context.print_hints(error.hints());
        }
        None => {}
    }
    if let Some(error) = &list.ledger_error {
        context.print_failure(error);
    }
    let in_state = |state| baselines.iter().filter(move |it| it.state == state);
    for baseline in in_state(BaselineState::Changed) {
        let name = quote_operand(&baseline.name);
        let seal = engine.command_line(&format!("seal --dry-run {name}"));
        let restore = engine.command_line(&format!("baseline restore {name}"));
        context.print_hint(format!("see what changed: {seal}; put it back: {restore}"));
    }
    if in_state(BaselineState::Saved).next().is_some() {
        let seal = seal_saved_command(engine.config());
        context.print_hint(format!("seal what you saved, and nothing else: {seal}"));
    }
    let has_unsealed = in_state(BaselineState::Unsealed).any(|it| !it.agents.is_empty());
    if has_unsealed && seal_error.is_none() {
        context.print_hint(seal_hint(engine.config()));
    }
    Ok(kind)
}

fn show_baseline(
    context: &mut CommandContext<'_>,
    file: &str,
    version: Option<&str>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let name = resolve_name(context, &engine, file)?;
    let bytes = match version {
        Some(version) => engine
            .baseline_catalog()
            .find_baseline_version(&name, version)?
            .1
            .to_vec(),
        None => engine.baseline_catalog().read_baseline(&name)?,
    };
    context.print_answer(&ShowDocument {
        file: name,
        content: FileContent::new(bytes),
    })
}

fn show_history(
    context: &mut CommandContext<'_>,
    file: &str,
    count: Option<usize>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let name = resolve_name(context, &engine, file)?;
    let page = engine
        .baseline_catalog()
        .baseline_history(&name, count.unwrap_or(usize::MAX))?;
    if let Some(error) = &page.unread {
        context.print_warning(format!("older versions cannot be read: {error}"));
    }
    let mut versions = page.versions;
    versions.reverse();
    context.print_answer(&HistoryDocument {
        file: name,
        versions,
    })
}

fn restore_baseline(context: &mut CommandContext<'_>, file: &str, version: &str) -> CommandResult {
    let engine = context.open_engine()?;
    let name = resolve_name(context, &engine, file)?;
    let is_interrupted = engine.baseline_files().recover_interrupted_save(&name)?;
    if version == "previous" && is_interrupted {
        return Err(interrupted_save_error(&engine, &name)?.into());
    }
    let plan = engine
        .baseline_edits()
        .plan_restore(std::slice::from_ref(&name), version)?;
    warn_of_foreign_lines(context, &engine, &plan);
    let file = plan.files.first();
    let restored = file.map(|file| engine.baseline_edits().apply_planned_baseline(&plan, file));
    let restored = restored.transpose()?;
    context.print_answer(&RestoreDocument {
        file: name,
        version: version.to_string(),
        remarks: restored
            .as_ref()
            .map(SavedBaseline::remarks)
            .unwrap_or_default(),
        lost: restored.as_ref().map(|it| it.lost).unwrap_or_default(),
        before: restored.as_ref().and_then(|it| it.before),
        sha256: restored.as_ref().map(|it| it.digest),
        kept_aside: restored.as_ref().and_then(|it| it.kept_aside.clone()),
        run: restored.map(|it| it.run),
    })
}
