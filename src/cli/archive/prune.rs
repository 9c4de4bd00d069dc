//! `archive prune`: shows what retention would delete and why the rest stays, or deletes it.

use std::io;

use clap::Args;
use serde::Serialize;

use crate::base::digest::Digest;
use crate::base::error::Error;
use crate::base::invocation::as_operand;
use crate::base::quantity::format_size;
use crate::cli::log::LedgerHead;
use crate::cli::output::{
    Document, ErrorItem, OutputRole, Printer, dim, format_count, heading, heading_cells,
    number_cell, plain, warn,
};
use crate::cli::{CommandContext, CommandResult};
use crate::engine::{AgentRetention, PruneReport, RetentionOverview};

#[derive(Debug, Args)]
pub(in crate::cli) struct PruneArgs {
    /// Prunes only entries of these agents, which may have left the config
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
    /// Shows what would be deleted and why the rest stays; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Lists each entry and baseline version
    #[arg(short, long)]
    verbose: bool,
}

/// The answer of `archive prune`.
#[derive(Serialize)]
struct PruneDocument<'a> {
    dry_run: bool,
    run: Option<&'a str>,
    #[serde(flatten)]
    overview: &'a RetentionOverview,
    /// Paths of the deleted entries.
    deleted: Vec<String>,
    deleted_versions: &'a [Digest],
    #[serde(rename = "trouble")]
    errors: Vec<ErrorItem<'a>>,
    notes: &'a [String],
    #[serde(rename = "head")]
    ledger_head: Option<LedgerHead>,
    #[serde(skip)]
    deleted_bytes: u64,
    #[serde(skip)]
    is_verbose: bool,
}

impl<'a> PruneDocument<'a> {
    fn new(report: &'a PruneReport, args: &PruneArgs) -> PruneDocument<'a> {
        let deleted = report.deleted_entries.iter();
        PruneDocument {
            dry_run: args.dry_run,
            run: report.run.as_deref(),
            overview: &report.overview,
            deleted: deleted.map(|path| path.display().to_string()).collect(),
            deleted_versions: &report.deleted_versions,
            errors: ErrorItem::list(&report.errors),
            notes: &report.notes,
            ledger_head: report.ledger_head.map(LedgerHead::from),
            deleted_bytes: report.deleted_bytes(),
            is_verbose: args.verbose,
        }
    }

    fn write_dates(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let days = format_count(self.overview.days as usize, "day");
        let confirmed = match self.overview.confirmed {
            Some(time) => format!("a run of {} confirms the date", time.format("%Y-%m-%d")),
            None => "no earlier run confirms the date, so nothing expires".to_string(),
        };
        printer.write_plain_line(format!("entries expire after {days}; {confirmed}"))?;
        if let Some(why) = &self.overview.unconfirmed {
            printer.write_line(&[warn("note: "), plain(why)])?;
        }
        for pin in &self.overview.unclear_pins {
            printer.write_line(&[warn("note: "), plain(pin)])?;
        }
        Ok(())
    }

    fn write_agent(&self, printer: &mut Printer<'_>, agent: &AgentRetention) -> io::Result<()> {
        let directory = agent.directory.display().to_string();
        let directory = match directory.as_str() {
            "" => "archive_dir itself",
            directory => directory,
        };
        let name = agent.agent.as_deref().unwrap_or("unknown agent");
        let place = match (&agent.agent, agent.configured) {
            (Some(name), true) if name == directory => String::new(),
            (Some(_), false) => format!(" (not in the config, in {directory})"),
            _ => format!(" (in {directory})"),
        };
        let entries = format_count(agent.entries, "entry");
        let size = format_size(agent.disk_bytes);
        printer.write_line(&[
            heading(name),
            plain(&place),
            plain(&format!(": {entries}, {size} on disk")),
        ])?;
        if let (Some(first), Some(last)) = (agent.expiring.first(), agent.expiring.last()) {
            let count = format_count(agent.expiring.len(), "entry");
            let size = format_size(agent.expiring_disk_bytes);
            let [first, last] = [first, last].map(|it| it.dated.format("%Y-%m-%d").to_string());
            let dates = if first == last {
                format!("of {first}")
            } else {
                format!("of {first} to {last}")
            };
            let text = format!("{count} {dates}, {size}");
            printer.write_line(&[warn("  expire  "), plain(&text)])?;
        }
        for entry in agent.expiring.iter().filter(|_| self.is_verbose) {
            let path = as_operand(&entry.path).display().to_string();
            let size = format_size(entry.size);
            printer.write_line(&[plain("    "), plain(&path), dim(&format!("  {size}"))])?;
        }
        let kept = agent.describe_kept(self.overview.days).join(", ");
        if kept.is_empty() {
            return Ok(());
        }
        printer.write_line(&[plain("  stay    "), plain(&kept)])
    }

    fn write_shorter(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let shorter = self.overview.shorter.iter();
        let freeing: Vec<_> = shorter.filter(|it| it.entries > 0).collect();
        if freeing.is_empty() {
            return printer.write_plain_line("a shorter retention time would free nothing now");
        }
        printer.write_plain_line("a shorter archive_retention_days would delete in addition:")?;
        let titles = ["DAYS", "ENTRIES", "ON DISK"];
        let mut rows = vec![heading_cells(&titles, &titles)];
        rows.extend(freeing.into_iter().map(|it| {
            vec![
                number_cell(OutputRole::Plain, it.days.to_string()),
                number_cell(OutputRole::Plain, it.entries.to_string()),
                number_cell(OutputRole::Plain, format_size(it.disk_bytes)),
            ]
        }));
        printer.write_table(&rows)
    }

    fn write_versions(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let Some(versions) = self.overview.versions.as_ref().filter(|it| it.stored > 0) else {
            return Ok(());
        };
        let stored = format_count(versions.stored, "baseline version");
        let size = format_size(versions.disk_bytes);
        let mut text = format!("{stored}, {size} on disk");
        if !versions.expiring.is_empty() {
            let size = format_size(versions.expiring_disk_bytes);
            let count = versions.expiring.len();
            text.push_str(&format!("; no undo needs {count} of them, {size}"));
        }
        printer.write_plain_line(text)?;
        for version in versions.expiring.iter().filter(|_| self.is_verbose) {
            printer.write_plain_line(format!("    {version}"))?;
        }
        match &versions.blocked {
            Some(why) => {
                printer.write_line(&[warn("note: "), plain("unused versions stay: "), plain(why)])
            }
            None => Ok(()),
        }
    }

    /// Says how much was, or would be, deleted.
    fn write_end(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let (entries, versions, bytes) = if self.dry_run {
            let expiring = self.overview.expiring();
            let (mut count, mut bytes) = (0, 0);
            for entry in expiring {
                count += 1;
                bytes += entry.size;
            }
            (count, self.overview.expiring_versions().len(), bytes)
        } else {
            let deleted = (self.deleted.len(), self.deleted_versions.len());
            (deleted.0, deleted.1, self.deleted_bytes)
        };
        let mut parts = Vec::new();
        if entries > 0 {
            let bytes = format_count(bytes as usize, "byte");
            parts.push(format!("{} ({bytes})", format_count(entries, "entry")));
        }
        if versions > 0 {
            parts.push(format_count(versions, "baseline version"));
        }
        let parts = parts.join(" and ");
        printer.write_plain_line(match (parts.as_str(), self.dry_run, self.run) {
            ("", true, _) => "nothing would be deleted".to_string(),
            ("", false, _) => "nothing was deleted".to_string(),
            (parts, true, _) => format!("{parts} would be deleted; nothing was changed"),
            (parts, false, run) => format!("deleted {parts}, run {}", run.unwrap_or_default()),
        })
    }
}

impl Document for PruneDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        self.write_dates(printer)?;
        let (with_entries, without) = self
            .overview
            .agents
            .iter()
            .partition::<Vec<_>, _>(|it| it.entries > 0);
        for agent in with_entries {
            self.write_agent(printer, agent)?;
        }
        if !without.is_empty() {
            let agents = format_count(without.len(), "agent");
            let verb = if without.len() == 1 { "has" } else { "have" };
            printer.write_plain_line(format!("{agents} of the config {verb} no entries"))?;
        }
        self.write_shorter(printer)?;
        self.write_versions(printer)?;
        if let Some(disk) = self.overview.disk {
            let [free, total] = [disk.free_bytes, disk.total_bytes].map(format_size);
            let archive = self.overview.archive.display();
            printer.write_plain_line(format!("{free} of {total} free on the disk of {archive}"))?;
        }
        self.write_end(printer)
    }
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>, args: &PruneArgs) -> CommandResult {
    let engine = context.open_engine()?;
    if args.dry_run {
        let report = preview(engine.retention().retention_overview(&args.agents)?);
        context.print_document(&PruneDocument::new(&report, args))?;
        print_problems(context, &report.errors);
        return Ok(report.overview.worst_kind());
    }
    let report = engine.retention().prune_archive(&args.agents)?;
    context.print_document(&PruneDocument::new(&report, args))?;
    print_problems(context, &report.errors);
    Ok(report.worst_kind())
}

/// Returns the report of a command that deletes nothing.
fn preview(overview: RetentionOverview) -> PruneReport {
    PruneReport {
        run: None,
        errors: overview.unreadable.clone(),
        overview,
        deleted_entries: Vec::new(),
        deleted_versions: Vec::new(),
        notes: Vec::new(),
        ledger_head: None,
    }
}

fn print_problems(context: &mut CommandContext<'_>, errors: &[Error]) {
    for error in errors {
        context.print_error(error.message());
    }
    context.print_hints(errors.iter().flat_map(Error::hints));
}
