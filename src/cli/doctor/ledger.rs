//! Checks of the archive: the ledger, its clock, interrupted runs, pins and directories.

use std::collections::HashMap;

use super::{DoctorReport, FleetSubject};
use crate::cli::output::format_count;
use crate::config::Agent;
use crate::engine::{self, Engine, LedgerCheck, SwapMethod};

/// Checks the ledger, and reports agents whose memory was absent during their last reset.
pub(super) fn check_ledger(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let mut methods: HashMap<String, SwapMethod> = HashMap::new();
    let read = engine.ledger().records(None, None).and_then(|range| {
        range.for_each(&mut |record| {
            if let Some(method) = record.event.change.method {
                methods.insert(record.event.agent.clone(), method);
            }
            Ok(())
        })?;
        Ok(range.head())
    });
    let logged = engine
        .verifier()
        .last_logged_head()
        .unwrap_or_else(|error| {
            report.add_error(&error);
            None
        });
    let files = engine.ledger().check().unwrap_or_else(|error| {
        report.add_error(&error);
        LedgerCheck::default()
    });
    for error in files.all_errors() {
        report.add_error(error);
    }
    match read {
        // It also explains a head that differs from the logged one.
        Ok(_) if files.rollback_error.is_some() => {}
        Ok((0, _)) if logged.is_none() => report.add_ok("the ledger has no records yet"),
        Ok((seq, head)) => match logged {
            Some((logged, _)) if logged > seq => report.add_failure(
                format!(
                    "the ledger ends with record {seq}, but reset.log has the head of record \
                     {logged}: the ledger was truncated"
                ),
                &format!("see `{}`", engine.command_line("verify")),
            ),
            Some(_) => report.add_ok(format!("the ledger is intact; its head is {seq}:{head}")),
            None => report.add_warning(
                format!(
                    "the chain of the ledger is intact, with head {seq}:{head}, but reset.log has no \
                     head of it: a ledger whose end was cut off is not detected"
                ),
                "put reset.log back if it was moved away; the next run writes its head again",
            ),
        },
        Err(error) => {
            report.add_error(&error);
            methods.clear();
        }
    }
    report_absent_memories(report, engine, &methods);
}

/// Reports agents whose memory was absent for a moment during the last reset.
fn report_absent_memories(
    report: &mut DoctorReport,
    engine: &Engine,
    methods: &HashMap<String, SwapMethod>,
) {
    // On a host this is always the case.
    let all_agents = engine.config().agents.iter();
    let local_agents = all_agents.filter(|agent| agent.host().is_none());
    let was_absent = |agent: &&Agent| methods.get(&agent.name) == Some(&SwapMethod::TakeAway);
    let number = local_agents.filter(was_absent).count();
    if number > 0 {
        let agents = format_count(number, "agent");
        report.add_warning(
            format!("memories of {agents} were absent for a moment during the last reset"),
            "their file system cannot exchange two files; nothing is lost",
        );
    }
}

/// Checks that the archive is the one that the config names; names it for a config that does not.
pub(super) fn check_archive_id(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let root = engine.archive().root().display();
    if engine.config().general.archive_id.is_some() {
        return match engine.archive().check_expected_for_write() {
            Ok(()) => report.add_ok(format!("{root} has the archive that archive_id names")),
            Err(error) => report.add_error(&error),
        };
    }
    match engine.ledger().archive_id() {
        Ok(Some(id)) => report.add_ok(format!(
            "{root} has an archive; to refuse runs without it, add to [general]: {}",
            engine::archive_id_line(id)
        )),
        Ok(None) => report.add_ok(format!(
            "{root} has no archive yet, and no archive_id is set"
        )),
        Err(error) => report.add_error(&error),
    }
}

/// Reports directories of the archive that runs or `archive list` cannot use.
pub(super) fn check_archive_directories(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let refused = engine
        .runs()
        .refused_archive_directories(&fleet.answering_agents);
    let unreadable = engine.runs().unreadable_entry_directories();
    for error in &refused {
        report.add_error(error);
    }
    for error in unreadable {
        report.add_error(&error.with_context("entries"));
    }
    report.add_ok_if_silent("the directories of the archive can be used");
}

/// Reports lines of the pins file that retention cannot apply.
pub(super) fn check_pins(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    match engine.entries().pins() {
        Ok(pins) => {
            for fault in pins.find_faults() {
                let scope = match &fault.directory {
                    Some(directory) => format!("in {}", directory.display()),
                    None => "in the whole archive".to_string(),
                };
                report.add_warning(
                    format!("{fault}; retention deletes nothing {scope}"),
                    "correct the line, or remove it",
                );
            }
        }
        Err(error) => report.add_error(&error),
    }
    report.add_ok_if_silent("every pin names an entry");
}

/// Reports a record with a future time: the clock is wrong, or was wrong during the run.
pub(super) fn check_clock(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    // An unreadable ledger is reported by its own check.
    let Ok(future) = engine.retention().future_record() else {
        return;
    };
    let Some((seq, time)) = future else {
        return report.add_ok(format!(
            "no record of the ledger is later than the clock, {}",
            engine.clock().now().format("%Y-%m-%d %H:%M:%S %:z")
        ));
    };
    let ahead = (time - engine.clock().now()).num_hours();
    let ahead = match ahead / 24 {
        0 => format_count(ahead as usize, "hour"),
        days => format_count(days as usize, "day"),
    };
    report.add_warning(
        format!(
            "record {seq} of the ledger has the time {}, {ahead} ahead of the clock",
            time.format("%Y-%m-%d %H:%M:%S")
        ),
        "compare `date` with another clock, and set it (timedatectl set-ntp true). If it \
         is right, that of the run was wrong: leave the record, retention does not go by \
         it; entries with such dates in their names stay until then",
    );
}

/// Reports journals of interrupted runs, or of runs in progress.
pub(super) fn check_journals(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let journals = match engine.runs().open_journals() {
        Ok(journals) => journals,
        Err(error) => return report.add_error(&error),
    };
    let unclaimed = engine.runs().unclaimed_journals().unwrap_or_default();
    for (agent, path) in journals {
        let shown = path.display();
        if unclaimed.contains(&path) {
            report.add_failure(
                format!(
                    "{shown} is the transaction record of an agent that is not configured; its \
                     run is not recovered"
                ),
                engine::UNCLAIMED_JOURNAL_HINT,
            );
        } else if let Err(error) = engine.runs().check_journal(&path) {
            report.add_error(&error);
        } else {
            let is_reset = engine.agent(&agent).is_ok_and(|it| it.reset.is_some());
            let hint = if is_reset {
                "if it was interrupted, the next reset of the agent recovers it"
            } else {
                "if it was interrupted, the next operation on the memory, or undo, recovers it"
            };
            report.add_warning(
                format!("a run of {agent} is in progress or was interrupted: {shown}"),
                hint,
            );
        }
    }
    report.add_ok_if_silent("no transaction records of interrupted runs");
}
