//! `diff --three-way`: the rules as pushed last, as the baseline is now, and as the memory is now.

use std::io;

use serde::Serialize;

use crate::base::diff::drift::{ChangeKind, DriftCounts, LineChange, SectionDrift};
use crate::base::digest::Digest;
use crate::base::error::ErrorKind;
use crate::base::untrusted::RevealOptions;
use crate::cli::output::{Document, OutputRole, Printer, heading_cells, number_cell, text_cell};
use crate::cli::{CommandContext, CommandResult};
use crate::config::Agent;
use crate::engine::{DriftPoint, Engine};

/// Number of earlier runs in the drift history.
const MAX_HISTORY_RUNS: usize = 100;

/// Number of them in the text.
const MAX_SHOWN_RUNS: usize = 12;

/// The answer of `diff --three-way`.
#[derive(Serialize)]
struct ThreeWayDocument {
    agent: String,
    pushed: Option<Digest>,
    baseline: Digest,
    /// Whether a boundary was found; otherwise all of the memory counts as rules.
    boundary: bool,
    sections: Vec<SectionItem>,
    operator: Vec<ChangeItem>,
    drift: Vec<ChangeItem>,
    counts: DriftCounts,
    /// Protected lines whose text is gone from the memory.
    gone: Vec<ChangeItem>,
    history: Vec<DriftPoint>,
    #[serde(skip)]
    gone_lines: Vec<(usize, Vec<u8>)>,
    #[serde(skip)]
    headings: Vec<Vec<u8>>,
}

/// One section in the answer.
#[derive(Serialize)]
struct SectionItem {
    heading: String,
    /// Number of its lines; `None` where there is no such section.
    pushed: Option<usize>,
    baseline: Option<usize>,
    memory: Option<usize>,
    operator: DriftCounts,
    agent: DriftCounts,
}

/// One changed line in the answer.
#[derive(Clone, Serialize)]
struct ChangeItem {
    kind: ChangeKind,
    old_line: Option<usize>,
    new_line: Option<usize>,
    old: Option<String>,
    new: Option<String>,
}

impl SectionItem {
    fn new(section: &SectionDrift) -> SectionItem {
        let lines = |text: &Option<Vec<u8>>| {
            let text = text.as_ref()?;
            Some(text.split_inclusive(|byte| *byte == b'\n').count())
        };
        SectionItem {
            heading: String::from_utf8_lossy(&section.heading).into_owned(),
            pushed: lines(&section.pushed),
            baseline: lines(&section.baseline),
            memory: lines(&section.memory),
            operator: DriftCounts::of(&section.operator_changes),
            agent: DriftCounts::of(&section.agent_changes),
        }
    }
}

impl ChangeItem {
    fn new(change: &LineChange) -> ChangeItem {
        let line = |side: &Option<(usize, Vec<u8>)>| side.as_ref().map(|(line, _)| *line);
        let text = |side: &Option<(usize, Vec<u8>)>| {
            let (_, text) = side.as_ref()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        ChangeItem {
            kind: change.kind,
            old_line: line(&change.old),
            new_line: line(&change.new),
            old: text(&change.old),
            new: text(&change.new),
        }
    }
}

impl Document for ThreeWayDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let titles = ["LINES", "OPERATOR", "AGENT", "SECTION"];
        let mut rows = vec![heading_cells(&titles, &["LINES"])];
        for (section, heading) in self.sections.iter().zip(&self.headings) {
            let lines = section.pushed.or(section.memory).or(section.baseline);
            let heading = if heading.is_empty() {
                "(before the first heading)".to_string()
            } else {
                String::from_utf8_lossy(heading).into_owned()
            };
            let agent_role = if section.agent == DriftCounts::default() {
                OutputRole::Plain
            } else {
                OutputRole::Bad
            };
            rows.push(vec![
                number_cell(OutputRole::Plain, lines.unwrap_or(0).to_string()),
                text_cell(OutputRole::Plain, section.operator.to_string()),
                text_cell(agent_role, section.agent.to_string()),
                text_cell(OutputRole::Plain, heading),
            ]);
        }
        printer.write_table(&rows)?;
        if !self.boundary {
            printer.write_plain_line("no separator: all of the memory counts as rules")?;
        }
        let DriftCounts {
            added,
            removed,
            edited,
            moved,
        } = self.counts;
        let since = match self.pushed {
            Some(_) => "since the last push",
            None => "against a known version, of which none was pushed",
        };
        printer.write_plain_line(format!(
            "{}: lines {since}: {added} added, {removed} removed, {edited} edited, {moved} moved",
            self.agent,
        ))?;
        if !self.history.is_empty() {
            let oldest = self.history.len().saturating_sub(MAX_SHOWN_RUNS);
            let runs = self.history[oldest..].iter();
            let runs: Vec<String> = runs
                .map(|run| format!("+{} -{}", run.added, run.removed))
                .collect();
            printer.write_plain_line(format!(
                "drift at earlier runs, oldest first: {}",
                runs.join(", ")
            ))?;
        }
        for (line, text) in &self.gone_lines {
            let sign = format!("gone, L{line}: ");
            printer.write_untrusted_line(OutputRole::Removed, &sign, text, RevealOptions::DIFF)?;
        }
        Ok(())
    }
}

/// Compares the rules of an agent in three versions.
pub(in crate::cli) fn run(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    agent: &Agent,
    counts_drift: bool,
) -> CommandResult {
    let compared = engine.history().compare_rules(agent)?;
    let rules = compared.rules;
    let counts = DriftCounts::of(rules.agent_changes());
    let gone = rules.agent_changes();
    let gone: Vec<&LineChange> = gone.filter(|it| it.is_protection_gone()).collect();
    let has_drifted = counts != DriftCounts::default();
    context.print_document(&ThreeWayDocument {
        agent: agent.name.clone(),
        pushed: compared.pushed,
        baseline: compared.baseline,
        boundary: compared.has_boundary,
        operator: rules.operator_changes().map(ChangeItem::new).collect(),
        drift: rules.agent_changes().map(ChangeItem::new).collect(),
        counts,
        gone: gone.iter().map(|change| ChangeItem::new(change)).collect(),
        gone_lines: gone
            .iter()
            .filter_map(|change| change.old.clone())
            .collect(),
        history: engine
            .history()
            .drift_history(&agent.name, MAX_HISTORY_RUNS)?,
        headings: rules.sections.iter().map(|it| it.heading.clone()).collect(),
        sections: rules.sections.iter().map(SectionItem::new).collect(),
    })?;
    Ok((counts_drift && has_drifted).then_some(ErrorKind::Partial))
}
