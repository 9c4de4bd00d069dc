//! `seal`: shows what changed since the last seal, and seals what the operator accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::diff::{DiffHunk, compare_texts, diff_hunks, write_visible_diff};
use super::output::{Document, OutputRole, Printer, format_count};
use super::{CommandContext, CommandResult};
use crate::baseline::seal::SealMeta;
use crate::baseline::signatures::{SignedSeal, SigningKey};
use crate::diff::Diff;
use crate::digest::Digest;
use crate::engine::{Engine, SealChange, SealChangeKind, SealReport, SealScope};
use crate::error::ErrorKind;
use crate::lint::Finding;

/// Arguments of `seal`.
#[derive(Debug, clap::Args)]
pub struct SealArgs {
    /// Baselines to seal: files in baseline_dir, or agents
    #[arg(value_name = "FILE|AGENT")]
    files: Vec<String>,
    /// Seals all baselines and every file that is sealed already
    #[arg(long, conflicts_with = "files")]
    all: bool,
    /// Seals baselines in which the lint finds errors, too
    #[arg(long)]
    force: bool,
    /// Shows what changed; writes nothing
    #[arg(long)]
    dry_run: bool,
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
    /// Files that changed since the seal.
    changes: Vec<ChangeItem>,
    unchanged: usize,
    sealed: Vec<String>,
    run: Option<String>,
    meta: Option<SealMeta>,
    signed: Option<SignedSeal>,
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
    #[serde(skip)]
    diff: Option<Diff>,
    #[serde(skip)]
    facts: Option<String>,
}

impl ChangeItem {
    fn new(engine: &Engine, change: &SealChange) -> ChangeItem {
        let new = change.bytes.as_deref().unwrap_or_default();
        let diff = match (change.kind, &change.sealed_bytes) {
            (SealChangeKind::New, _) => Some(compare_texts(engine, b"", new)),
            (_, Some(old)) => Some(compare_texts(engine, old, new)),
            (_, None) => None,
        };
        ChangeItem {
            file: change.name.clone(),
            kind: change.kind,
            was: change.sealed,
            sha256: change.bytes.as_deref().map(Digest::of),
            saved_here: change.is_saved_here,
            accepted: change.is_selected,
            agents: change.agents.clone(),
            lint: change.lint_errors.iter().map(Finding::summary).collect(),
            hunks: diff.as_ref().map(diff_hunks),
            diff,
            facts: change.owner.map(|owner| owner.describe()),
        }
    }

    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let digest = |digest: Option<Digest>| match digest {
            Some(digest) => format!("{}…", digest.short_hex(8)),
            None => "none".to_string(),
        };
        let label = format!("{:<8}", self.kind.as_str());
        let digests = format!("  {} -> {}", digest(self.was), digest(self.sha256));
        let origin = if self.saved_here {
            "  saved by this program"
        } else {
            "  not saved by this program"
        };
        printer.write_line(&[
            (OutputRole::Warn, &label),
            (OutputRole::Heading, &self.file),
            (OutputRole::Plain, &digests),
            (OutputRole::Notice, origin),
        ])?;
        let agents = match self.agents.as_slice() {
            [] => "no agent uses it".to_string(),
            agents => format!("used by {}", agents.join(", ")),
        };
        let facts = self.facts.iter().cloned().chain([agents]);
        for fact in facts {
            printer.write_line(&[(OutputRole::Dim, "    "), (OutputRole::Dim, &fact)])?;
        }
        for error in &self.lint {
            let label = "    lint error  ";
            printer.write_line(&[(OutputRole::Bad, label), (OutputRole::Plain, error)])?;
        }
        match &self.diff {
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
}

impl Document for SealDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for change in &self.changes {
            change.write_text(printer)?;
        }
        printer.write_plain_line(self.summary())?;
        let Some(run) = &self.run else {
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
            (true, _) if self.has_unaccepted_errors() => format!("{counts}; not sealed"),
            (true, _) => format!("{counts}; nothing to seal"),
            (false, true) => format!("{counts}; would seal {}", accepted.join(", ")),
            (false, false) => format!("{counts}; sealed {}", accepted.join(", ")),
        }
    }
}

impl CommandContext<'_> {
    pub(super) fn run_seal(&mut self, args: &SealArgs) -> CommandResult {
        let engine = self.open_engine()?;
        let cwd = &self.environment.env.cwd;
        let scope = if args.all {
            SealScope::All
        } else if args.files.is_empty() {
            SealScope::SavedHere
        } else {
            let names = args.files.iter();
            let names: Result<BTreeSet<String>, _> =
                names.map(|it| engine.baseline_name(it, cwd)).collect();
            SealScope::Named(names?)
        };
        let mut plan = engine.plan_seal(&scope)?;
        if args.force {
            plan.accept_lint_errors();
        }
        let refusal = plan.check_lint_errors(engine.config()).err();
        let is_in_scope = |change: &SealChange| match &scope {
            SealScope::Named(names) => names.contains(&change.name),
            SealScope::SavedHere | SealScope::All => true,
        };
        let changes: Vec<ChangeItem> = plan
            .changes
            .iter()
            .filter(|change| change.kind != SealChangeKind::Unchanged && is_in_scope(change))
            .map(|change| ChangeItem {
                accepted: change.is_selected && refusal.is_none(),
                ..ChangeItem::new(&engine, change)
            })
            .collect();
        let key_path = args.sign.as_ref().map(|path| cwd.join(path));
        let key = key_path.as_ref().map(|path| SigningKey {
            path,
            lifetime_days: args.expires_in,
        });
        let is_unchanged = |it: &&SealChange| it.kind == SealChangeKind::Unchanged;
        let unchanged = plan.changes.iter().filter(is_unchanged).count();
        let others = plan.unaccepted().filter(|it| !is_in_scope(it)).count();
        let report = if args.dry_run || refusal.is_some() {
            engine.preview_seal(&plan, key.as_ref())?
        } else {
            engine.apply_seal(&plan, key.as_ref())?
        };
        let SealReport {
            run,
            path,
            sealed,
            meta,
            signed,
        } = report;
        self.output.print_document(&SealDocument {
            path,
            dry_run: args.dry_run,
            changes,
            unchanged,
            sealed,
            run,
            meta,
            signed,
        })?;
        if let Some(refusal) = refusal {
            self.output.print_error(&format!("not sealed: {refusal}"));
            self.output.print_hints(refusal.hints());
            return Ok(Some(refusal.kind()));
        }
        if others > 0 {
            let files = format_count(others, "other file");
            self.output.print_note(&format!(
                "{files} changed since the seal; run `seal --dry-run`"
            ));
            return Ok(None);
        }
        if plan.unaccepted().next().is_none() {
            return Ok(None);
        }
        let names: Vec<&str> = plan.unaccepted().map(|it| it.name.as_str()).collect();
        self.output.print_error(&format!(
            "not sealed, because this program did not save the change: {}",
            names.join(", ")
        ));
        let names: Vec<String> = names
            .iter()
            .map(|name| shell_words::quote(name).into_owned())
            .collect();
        let seal = engine.command_line(&format!("seal {}", names.join(" ")));
        self.output
            .print_hint(&format!("read the changes above; to accept them: {seal}"));
        if plan.unaccepted().any(|it| it.sealed.is_some()) {
            let restore = engine.command_line("baseline restore FILE");
            self.output
                .print_hint(&format!("to put a sealed version back: {restore}"));
        }
        Ok(Some(ErrorKind::Conflict))
    }
}
