//! `seal`: shows what changed since the last seal, and seals what the operator accepts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::baseline::{describe_users, resolve_name};
use super::diff::{
    DiffHunk, MAX_ALL_HUNK_BYTES, compare_texts, diff_hunks_within, write_visible_diff,
};
use super::output::{Document, Printer, bad, dim, format_count, heading, notice, plain, warn};
use super::{CommandContext, CommandResult};
use crate::base::diff::Diff;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::quote_operand;
use crate::base::quantity::{MAX_LISTED_NAMES, list_names};
use crate::baseline::seal::SealMeta;
use crate::baseline::signatures::{SignedSeal, SigningKey};
use crate::engine::{
    Engine, FileOwner, SealChange, SealChangeKind, SealPlan, SealScope, list_lint_errors,
};
use crate::lint::Finding;

/// Size limit of a difference in JSON, in bytes.
const MAX_HUNK_BYTES: usize = 1 << 20;

/// Arguments of `seal`.
#[derive(Debug, clap::Args)]
pub struct SealArgs {
    /// Baselines to seal: files in baseline_dir, or agents
    #[arg(value_name = "FILE|AGENT")]
    files: Vec<String>,
    /// Seals all baselines that agents use and every file that is sealed already
    #[arg(long, conflicts_with = "files")]
    all: bool,
    /// Seals baselines in which the lint finds errors, too
    #[arg(long)]
    force: bool,
    /// Shows what changed, and the hash of the plan; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Refuses to seal unless the plan has this hash, with all its digits
    #[arg(long, value_name = "HASH", value_parser = crate::cli::arguments::values::parse_plan_hash)]
    plan: Option<String>,
    /// Signs the seal with this SSH key: a private key without a passphrase, or the .pub file of a
    /// key in the ssh-agent
    #[arg(long, value_name = "KEYFILE")]
    sign: Option<PathBuf>,
    /// Days after which a signed seal is no longer accepted
    #[arg(long, value_name = "DAYS", requires = "sign", value_parser = clap::value_parser!(u32).range(1..=36500))]
    expires_in: Option<u32>,
}

/// The answer of `seal`.
#[derive(Serialize)]
struct SealDocument {
    path: PathBuf,
    dry_run: bool,
    /// Hash of what is sealed.
    plan: String,
    /// Why the seal on the disk counts for nothing, if so.
    problem: Option<String>,
    /// Files that changed since the seal.
    changes: Vec<ChangeItem>,
    unchanged: usize,
    sealed: Vec<String>,
    run: Option<String>,
    meta: Option<SealMeta>,
    signed: Option<SignedSeal>,
    /// Whether a key signs the seal.
    #[serde(skip)]
    is_signing: bool,
}

/// A file that differs from its seal.
#[derive(Serialize)]
struct ChangeItem {
    file: String,
    kind: SealChangeKind,
    was: Option<Digest>,
    sha256: Option<Digest>,
    /// Whether this program saved these bytes.
    saved_here: bool,
    /// Whether the seal accepts the change.
    accepted: bool,
    agents: Vec<String>,
    /// Errors that the lint finds in the file.
    lint: Vec<String>,
    /// The difference from the sealed version; none if its bytes are not known.
    hunks: Option<Vec<DiffHunk>>,
    /// Number of lines of the difference that `hunks` leaves out.
    more_lines: usize,
}

impl ChangeItem {
    /// Writes it as text: one at a time, because a difference takes much memory.
    fn write_text(
        &self,
        printer: &mut Printer<'_>,
        diff: Option<&Diff>,
        owner: Option<FileOwner>,
    ) -> io::Result<()> {
        let digest = |digest: Option<Digest>| match digest {
            Some(digest) => format!("{}…", digest.short_hex(8)),
            None => "none".to_string(),
        };
        let label = format!("{:<8}", self.kind.as_str());
        let digests = format!("  {} -> {}", digest(self.was), digest(self.sha256));
        let origin = if self.saved_here {
            "  saved by this program"
        } else {
            "  not all saved by this program"
        };
        printer.write_line(&[
            warn(&label),
            heading(&self.file),
            plain(&digests),
            notice(origin),
        ])?;
        let agents = describe_users(&self.agents);
        let owner = owner.map(|owner| owner.describe());
        let facts = owner.into_iter().chain([agents]);
        for fact in facts {
            printer.write_line(&[dim("    "), dim(&fact)])?;
        }
        for error in &self.lint {
            let label = "    lint error  ";
            printer.write_line(&[bad(label), plain(error)])?;
        }
        match diff {
            Some(diff) => {
                let old = match self.kind {
                    SealChangeKind::New => "/dev/null".to_string(),
                    _ => format!("{} (sealed)", self.file),
                };
                let new = match self.kind {
                    SealChangeKind::Removed => "/dev/null",
                    _ => &self.file,
                };
                write_visible_diff(printer, diff, &old, new)
            }
            None => printer.write_plain_line(
                "    the content of the sealed version is not known: read the whole file",
            ),
        }
    }

    fn new(change: &SealChange) -> ChangeItem {
        ChangeItem {
            file: change.name.clone(),
            kind: change.kind,
            was: change.sealed,
            sha256: change.sha256(),
            saved_here: change.is_saved_here,
            accepted: change.is_selected,
            agents: change.agents.clone(),
            lint: change.lint_errors.iter().map(Finding::summary).collect(),
            more_lines: 0,
            hunks: None,
        }
    }

    /// Adds the difference, within the bytes that are left for it.
    fn add_hunks(&mut self, diff: &Diff, bytes_left: &mut usize) {
        let part = diff_hunks_within(diff, MAX_HUNK_BYTES.min(*bytes_left));
        *bytes_left -= part.bytes;
        self.more_lines = part.omitted_lines;
        self.hunks = Some(part.hunks);
    }
}

/// Compares a file with its seal; none if the sealed version is not known.
fn compare_change(engine: &Engine, change: &SealChange) -> Option<Diff> {
    let new = change.bytes.as_deref().unwrap_or_default();
    match (change.kind, &change.sealed_bytes) {
        (SealChangeKind::New, _) => Some(compare_texts(engine, b"", new)),
        (_, Some(old)) => Some(compare_texts(engine, old, new)),
        (_, None) => None,
    }
}

impl Document for SealDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_plain_line(self.summary())?;
        let Some(run) = &self.run else {
            if self.dry_run && self.changes.iter().any(|it| it.accepted) {
                printer.write_line(&[plain("plan "), notice(&self.plan)])?;
            }
            return Ok(());
        };
        let signature = match (&self.signed, &self.meta) {
            (Some(signed), _) => format!(
                ", signed by {} ({}), serial {}",
                signed.signer.principal, signed.signer.key, signed.meta.serial
            ),
            (None, Some(meta)) => format!(", signed, serial {}", meta.serial),
            (None, None) => String::new(),
        };
        let path = self.path.display();
        printer.write_plain_line(format!("wrote {path} (run {run}){signature}"))
    }
}

impl SealDocument {
    fn has_unaccepted_errors(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|it| !it.accepted && !it.lint.is_empty())
    }

    /// Returns, for example, "1 changed, 2 unchanged; sealed scout.md".
    fn summary(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for change in &self.changes {
            *counts.entry(change.kind.as_str()).or_default() += 1;
        }
        counts.insert("unchanged", self.unchanged);
        let counts: Vec<String> = counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let accepted: Vec<&str> = self
            .changes
            .iter()
            .filter(|it| it.accepted)
            .map(|it| it.file.as_str())
            .collect();
        let counts = counts.join(", ");
        match (accepted.is_empty(), self.dry_run) {
            (true, _) if self.run.is_some() && self.is_signing => {
                format!("{counts}; signed the unchanged seal")
            }
            (true, _) if self.run.is_some() => format!("{counts}; wrote the unchanged seal again"),
            (true, _) if self.has_unaccepted_errors() => format!("{counts}; not sealed"),
            (true, true) if self.is_signing => {
                format!("{counts}; would sign the unchanged seal")
            }
            (true, _) if !self.changes.is_empty() => format!("{counts}; not sealed"),
            (true, _) => format!("{counts}; nothing to seal"),
            (false, true) => format!("{counts}; would seal {}", list_names(&accepted)),
            (false, false) => format!("{counts}; sealed {}", list_names(&accepted)),
        }
    }
}

/// A call of `seal`, and what it would do.
struct SealCommand<'c> {
    engine: &'c Engine,
    args: &'c SealArgs,
    scope: SealScope,
    key: Option<SigningKey<'c>>,
    plan: SealPlan,
}

impl SealCommand<'_> {
    fn is_in_scope(&self, change: &SealChange) -> bool {
        match &self.scope {
            SealScope::Named(names) => names.contains(&change.name),
            SealScope::SavedHere | SealScope::All => true,
        }
    }

    /// Returns the options of the command that name the key.
    fn key_options(&self) -> String {
        let key = self.key.as_ref();
        key.map(SigningKey::options).unwrap_or_default()
    }
}

/// Returns the changes that the operator accepts.
fn seal_scope(context: &CommandContext<'_>, args: &SealArgs, engine: &Engine) -> Result<SealScope> {
    if args.all {
        return Ok(SealScope::All);
    }
    if args.files.is_empty() {
        return Ok(SealScope::SavedHere);
    }
    let names = args.files.iter();
    let names = names.map(|it| resolve_name(context, engine, it));
    Ok(SealScope::Named(names.collect::<Result<_>>()?))
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &SealArgs) -> CommandResult {
    let engine = context.open_engine()?;
    let scope = seal_scope(context, args, &engine)?;
    if !args.dry_run {
        engine.baseline_files().recover_baseline_changes()?;
    }
    let cwd = &context.environment.env.cwd;
    let key_path = args.sign.as_ref().map(|path| cwd.join(path));
    let key = key_path.as_ref().map(|path| SigningKey {
        path,
        lifetime_days: args.expires_in,
    });
    let mut plan = engine.seals().plan_seal(&scope, key.is_some())?;
    if let Some(hash) = &args.plan {
        plan.check_hash(hash)?;
    }
    if args.force {
        plan.accept_lint_errors();
    }
    let command = SealCommand {
        engine: &engine,
        args,
        scope,
        key,
        plan,
    };
    let refusal = command
        .plan
        .check_lint_errors(engine.config(), command.key.as_ref());
    seal_changes(context, &command, refusal.err())
}

/// Shows the changes, seals those that are accepted unless the lint refuses that, and says what is left.
fn seal_changes(
    context: &mut CommandContext<'_>,
    command: &SealCommand<'_>,
    refusal: Option<Error>,
) -> CommandResult {
    let SealCommand {
        engine, args, plan, ..
    } = command;
    let key = command.key.as_ref();
    let changes = show_changes(context, command, refusal.is_some())?;
    let report = if args.dry_run || refusal.is_some() {
        engine.seals().preview_seal(plan, key)?
    } else {
        engine.seals().apply_seal(plan, key)?
    };
    let is_sealed = report.run.is_some();
    let is_unchanged = |it: &&SealChange| it.kind == SealChangeKind::Unchanged;
    context.print_document(&SealDocument {
        path: report.path,
        dry_run: args.dry_run,
        plan: plan.hash(),
        problem: plan.problem.as_ref().map(ToString::to_string),
        changes,
        unchanged: plan.changes.iter().filter(is_unchanged).count(),
        sealed: report.sealed,
        run: report.run,
        meta: report.meta,
        signed: report.signed,
        is_signing: key.is_some(),
    })?;
    if let Some(refusal) = refusal {
        context.print_error(format!("not sealed: {refusal}"));
        context.print_hints(refusal.hints());
        return Ok(Some(refusal.kind()));
    }
    if args.dry_run && plan.selected().next().is_some() {
        print_accepting_command(context, command);
    }
    Ok(report_unaccepted(context, command, is_sealed))
}

/// Prints the command that seals what a dry run showed, and nothing else.
fn print_accepting_command(context: &mut CommandContext<'_>, command: &SealCommand<'_>) {
    let args = command.args;
    let mut words = "seal".to_string();
    if args.all {
        words.push_str(" --all");
    }
    for name in &args.files {
        words.push_str(&format!(" {}", quote_operand(name)));
    }
    if args.force {
        words.push_str(" --force");
    }
    let options = command.key_options();
    words.push_str(&format!("{options} --plan {}", command.plan.hash()));
    let line = command.engine.command_line(&words);
    context.print_hint(format!("to seal this and nothing else: {line}"));
}

/// Says which changed files a seal left as they are; the kind of the error, if one of those it
/// showed.
fn report_unaccepted(
    context: &mut CommandContext<'_>,
    command: &SealCommand<'_>,
    is_sealed: bool,
) -> Option<ErrorKind> {
    let unaccepted = command.plan.unaccepted();
    let others = unaccepted.filter(|it| !command.is_in_scope(it)).count();
    if others > 0 {
        let files = format_count(others, "other file");
        context.print_note(format!(
            "{files} changed since the seal; run `seal --dry-run`"
        ));
        return None;
    }
    command.plan.unaccepted().next()?;
    print_unaccepted(context, command, is_sealed);
    Some(ErrorKind::Conflict)
}

/// Shows what would be sealed, and returns it; JSON has the differences in the answer. Nothing is sealed
/// that could not be shown.
fn show_changes(
    context: &mut CommandContext<'_>,
    command: &SealCommand<'_>,
    is_refused: bool,
) -> Result<Vec<ChangeItem>> {
    if let Some(problem) = command.plan.describe_problem() {
        context.print_warning(&problem);
    }
    let is_json = context.output.is_json();
    let mut bytes_left = MAX_ALL_HUNK_BYTES;
    let mut items = Vec::new();
    for change in &command.plan.changes {
        if change.kind == SealChangeKind::Unchanged || !command.is_in_scope(change) {
            continue;
        }
        let mut item = ChangeItem::new(change);
        item.accepted &= !is_refused;
        let diff = compare_change(command.engine, change);
        if !is_json {
            context
                .output
                .print_text(|printer| item.write_text(printer, diff.as_ref(), change.owner))?;
        } else if let Some(diff) = &diff {
            item.add_hunks(diff, &mut bytes_left);
        }
        items.push(item);
    }
    if !is_json && context.output.is_closed() {
        let message = "the changes could not be shown; nothing was sealed";
        return Err(Error::new(ErrorKind::Host, message));
    }
    Ok(items)
}

/// Says which changes were not sealed, and how to accept them: by name, or, where they are more than
/// a handful, with `--all` and the hash of a plan of all changes, if there is one.
fn print_unaccepted(context: &mut CommandContext<'_>, command: &SealCommand<'_>, is_sealed: bool) {
    let SealCommand { engine, plan, .. } = command;
    let names: Vec<&str> = plan.unaccepted().map(|it| it.name.as_str()).collect();
    context.print_error(format!(
        "not sealed, because not all of the change was saved by this program: {}",
        list_names(&names)
    ));
    let is_long = names.len() > MAX_LISTED_NAMES;
    let names: Vec<String> = names.iter().map(quote_operand).collect();
    let (names, hash) = match &command.scope {
        SealScope::SavedHere | SealScope::All if is_long => {
            // The next plan has the baselines that this run sealed as unchanged.
            let hash = if is_sealed {
                plan.hash_of_unaccepted()
            } else {
                plan.hash_of_all()
            };
            ("--all".to_string(), hash)
        }
        _ => (names.join(" "), plan.hash_of_unaccepted()),
    };
    let faulty = list_lint_errors(plan.unaccepted());
    let force = if faulty.is_some() { "--force " } else { "" };
    let forced = faulty.map(|it| format!(", with the lint errors of {it}"));
    let sign = command.key_options();
    let seal = engine.command_line(&format!("seal {force}{names}{sign} --plan {hash}"));
    context.print_hint(format!(
        "read the changes above; to accept them{}: {seal}",
        forced.unwrap_or_default()
    ));
    if plan.unaccepted().any(|it| it.sealed.is_some()) {
        let restore = engine.command_line("baseline restore FILE");
        context.print_hint(format!("to put a sealed version back: {restore}"));
    }
}
