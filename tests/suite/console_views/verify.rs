//! Views of the verification.

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::message::Msg;
use memory_shepherd::engine::{BaselineState, FindingSubject, Verification, VerifyProgress};

use super::{TestConsole, assert_view};
use crate::engine_samples::{
    baseline_finding, baseline_list, baseline_summary, finding, verification,
};

const STATES: [(&str, BaselineState); 4] = [
    ("billing-bot", BaselineState::Changed),
    ("scratchpad", BaselineState::Unsealed),
    ("code-reviewer", BaselineState::Ok),
    ("docs-writer", BaselineState::Ok),
];

fn show(console: &mut TestConsole, found: Verification) {
    console.press("6");
    let list = STATES.map(|(agent, state)| baseline_summary(agent, state));
    console.load_baselines(baseline_list(list.into()));
    console.send(Msg::Verified(Ok(Box::new(found))));
}

fn with_findings() -> Verification {
    let hint = "copy the archive as evidence before you repair anything; compare it with a backup";
    let mut found = verification(vec![
        baseline_finding(
            "billing-bot",
            "baseline does not match its seal: billing-bot-MEMORY.md has 9f2c1a00…, sealed 77ab03ff…",
            "review the change",
        ),
        finding(
            FindingSubject::Entry,
            "the entry triage/2026-03-14_0100.md was changed: its digest differs (record in line 9)",
            hint,
        ),
    ]);
    found.notes.push("1 entry is not in the ledger".to_string());
    found
}

#[test]
fn verification_with_findings_matches_snapshot() {
    assert_view("verify_findings", |console| {
        show(console, with_findings());
        console.press("gg");
    });
    assert_view("verify_entry", |console| {
        show(console, with_findings());
        console.press("gg j");
    });
    assert_view("verify_baseline", |console| {
        show(console, with_findings());
        console.press("gg j j j j j j j j j");
    });
}

#[test]
fn verification_without_findings_matches_snapshot() {
    assert_view("verify_ok", |console| {
        show(console, verification(Vec::new()));
        console.press("j");
    });
}

#[test]
fn running_and_failed_verification_match_snapshots() {
    assert_view("verify_running", |console| {
        console.press("6");
        console.send(Msg::VerifyProgressed(VerifyProgress::Entries(12, 96)));
    });
    assert_view("verify_failed", |console| {
        console.press("6");
        let message = "cannot read /var/lib/memory-shepherd/archives: permission denied";
        console.send(Msg::Verified(Err(Error::new(ErrorKind::Host, message))));
    });
}

#[test]
fn unsealed_fleet_is_not_called_checked() {
    assert_view("verify_unsealed", |console| {
        console.press("6");
        let list =
            ["billing-bot", "triage"].map(|agent| baseline_summary(agent, BaselineState::Unsealed));
        console.load_baselines(baseline_list(list.into()));
        let mut found = verification(Vec::new());
        found.counts.sealed_baselines = 0;
        found.counts.unsealed_baselines = 2;
        console.send(Msg::Verified(Ok(Box::new(found))));
        console.press("gg");
    });
}
