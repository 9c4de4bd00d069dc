//! Checks of baselines: the seal, what refuses a reset, and the lint.

use std::collections::BTreeSet;

use super::{DoctorReport, FleetSubject};
use crate::baseline::describe_missing_separator;
use crate::cli::output::format_count;
use crate::engine::SealStatus;
use crate::lint::{Finding, Severity};

/// Checks whether baselines are protected by a seal.
pub(super) fn check_seal(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    match engine.baselines().seal_status() {
        Ok(SealStatus::Missing { .. }) if !fleet.has_baselines() => {
            report.add_ok("no baseline that a seal could protect");
        }
        Ok(SealStatus::Ignored) => report.add_warning(
            "require_seal=never: a tampered baseline is not detected",
            "remove that line from the config, and seal the baselines",
        ),
        Ok(SealStatus::Applied(path)) => report.add_ok(format!("seal {}", path.display())),
        Ok(SealStatus::Missing { hint }) => {
            report.add_warning("no seal: a tampered baseline is not detected", &hint);
        }
        Err(error) => report.add_error(&error),
    }
}

/// Checks whether resets accept the baselines, and whether interrupted changes of them can be
/// recovered.
pub(super) fn check_baselines(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    for error in engine.baseline_files().unrecoverable_replacements() {
        report.add_error(&error);
    }
    let refused = engine.baselines().refused_baselines();
    let agents = engine.config().agents.iter();
    let ok_count = agents.filter(|agent| agent.reset.is_some()).count() - refused.len();
    for (agent, error) in refused {
        report.add_error(&error.with_context(&agent.name));
    }
    for (agent, baseline) in engine.baselines().accepted_baselines() {
        match (baseline.separator_line(), baseline.excluded_line()) {
            (None, _) => report.add_warning(
                format!(
                    "{}: the baseline has {}",
                    agent.name,
                    describe_missing_separator(agent, &baseline)
                ),
                "add the separator line below the rules, after an empty line",
            ),
            (Some(separator), Some(excluded)) => report.add_ok(format!(
                "{}: the boundary of the baseline is line {}; {excluded}, so it is not a separator",
                agent.name, separator.line
            )),
            (Some(_), None) => {}
        }
    }
    if ok_count > 0 {
        let agents = format_count(ok_count, "agent");
        report.add_ok(format!("baselines of {agents} pass their checks"));
    }
}

/// Reports errors and warnings of the lint in baselines, except those for which [`check_baselines`]
/// reports the baseline as refused.
pub(super) fn check_lint(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let found = match fleet.engine.lint().lint_all_baselines() {
        Ok(found) => found,
        Err(error) => return report.add_error(&error),
    };
    let faults: Vec<&Finding> = found
        .iter()
        .filter(|it| it.severity >= Severity::Warning)
        .collect();
    if faults.is_empty() {
        report.add_ok("the lint finds no error and no warning in baselines");
    }
    let refused = fleet.engine.baselines().refused_baselines().into_iter();
    let refused: BTreeSet<String> = refused
        .filter_map(|(agent, _)| fleet.engine.config().baseline_path(agent))
        .map(|path| path.display().to_string())
        .collect();
    let is_reported = |it: &&Finding| {
        let is_refusal = it.severity == Severity::Error && it.rule_row().blocks_resets;
        is_refusal && refused.contains(&it.path)
    };
    for finding in faults.into_iter().filter(|it| !is_reported(it)) {
        let path = &finding.path;
        report.add_warning(
            format!("{path}: {}", finding.summary()),
            finding.rule_row().help,
        );
    }
}
