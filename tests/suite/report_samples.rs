//! A report about a fleet, for tests of the log screen.

use memory_shepherd::engine::{
    BrokenSealReport, DriftReport, FailureReport, FindingsReport, FleetReport, GrowthReport,
    GuardReport, HostReport, LateWriterReport, Operation, Outcome, RunTotals, State, StateObserver,
    StateReport, Trigger,
};
use memory_shepherd::lint::ScanSummary;

use crate::engine_samples::minutes_before;

/// A report with an item of each kind, about these names and reasons.
pub fn fleet_report(name: &str, reason: &str) -> FleetReport {
    let (name, reason) = (name.to_string(), reason.to_string());
    let runs = |trigger, runs, failed| RunTotals {
        trigger,
        runs,
        ok: runs - failed,
        failed,
    };
    FleetReport {
        since: minutes_before(900),
        until: minutes_before(0),
        runs: vec![runs(Trigger::Timer, 5, 1), runs(Trigger::Console, 1, 0)],
        reset_agents: 12,
        seals: vec![BrokenSealReport {
            baseline: format!("{name}-MEMORY.md"),
            agents: vec![name.clone(); 3],
            first_seen: minutes_before(400),
            observer: StateObserver::Guard,
            ended: Some(minutes_before(399)),
            open_since: None,
            times: 1,
            reason: reason.clone(),
        }],
        guard: vec![GuardReport {
            file: format!("{name}-MEMORY.md"),
            time: minutes_before(399),
            restores: 1,
            gave_up: false,
        }],
        failures: vec![FailureReport {
            agent: name.clone(),
            operation: Operation::Reset,
            outcome: Outcome::Failed,
            time: minutes_before(190),
            times: 3,
            reason: reason.clone(),
            recovered: None,
        }],
        hosts: vec![host_report(&name, &reason)],
        drift: vec![drift_report(&name)],
        findings: vec![FindingsReport {
            agent: name.clone(),
            summary: ScanSummary {
                secrets: 2,
                injections: 1,
                rules: vec!["MS601".to_string(), "MS701".to_string()],
                unscanned_bytes: 0,
            },
            entries: vec![format!("{name}/quarantine/2026-03-14_0300.md")],
            quarantined: 1,
        }],
        states: vec![StateReport {
            agent: name.clone(),
            state: State::Oversize,
            first_seen: minutes_before(60),
            ended: None,
            open_since: Some(minutes_before(20)),
            ended_by: None,
            times: 2,
            reason,
        }],
        late_writers: vec![LateWriterReport {
            agent: name.clone(),
            entries: 3,
            bytes: 1234,
        }],
        growth: vec![GrowthReport {
            agent: name,
            bytes_per_day: 120 << 10,
            usual_bytes_per_day: 4 << 10,
        }],
        retired_entries: 12,
        notes: Vec::new(),
    }
}

fn host_report(name: &str, reason: &str) -> HostReport {
    HostReport {
        host: name.to_string(),
        agents: vec![name.to_string(); 4],
        state: State::Unreach,
        lost: minutes_before(700),
        back: Some(minutes_before(300)),
        open_since: None,
        times: 2,
        reason: reason.to_string(),
    }
}

fn drift_report(name: &str) -> DriftReport {
    DriftReport {
        agent: name.to_string(),
        state: State::Drifted,
        first_seen: Some(minutes_before(500)),
        reset: Some(minutes_before(360)),
        entry: Some(format!("{name}/2026-03-14_0300-full-backup.md")),
        times: 1,
        is_open: false,
        added: Some(14),
        removed: Some(3),
    }
}
