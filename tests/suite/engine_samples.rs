//! Sample observations, plans, reports, records and questions in the form that the engine makes
//! them, for the tests of the console.

use std::sync::Arc;

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use memory_shepherd::archive::{EntryKind, WrittenEntry};
use memory_shepherd::base::diff::drift::DriftCounts;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::base::untrusted::{HiddenCounts, Untrusted};
use memory_shepherd::boundary::{Boundary, BoundaryRule};
use memory_shepherd::config::{self, Diagnostic, SftpExtension, SshHost};
use memory_shepherd::console::agent_row::AgentRow;
use memory_shepherd::console::screens::baseline_plan::state::{
    BaselineChangePlan, BaselinePlanRow, PreparedBaselinePlan,
};
use memory_shepherd::console::screens::log::state::RunSummary;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text;
use memory_shepherd::engine::{
    AgentResult, BaselineAction, BaselineChange, BaselineFile, BaselineList, BaselinePlan,
    BaselineState, BaselineSummary, BaselineVersion, Blocker, ConnectionStatus, FileOwner,
    FileState, Finding, FindingCounts, FindingSubject, HistoryEntry, HostStatus, KeptScratch,
    KnownVersion, LastPush, LastRun, LedgerRecord, LedgerSummary, MemoryAddress, MemoryContent,
    Observation, Operation, Outcome, Plan, PlanBinding, PlanStep, PlannedBaseline, Protection,
    Reachability, RunEvent, RunReport, ScanBasis, ScratchSelection, SizeBand, SkippedAgent, State,
    StepAction, Trigger, UndoMode, UndoTarget, UndoneRun, Verification, VerifiedCounts,
};
use memory_shepherd::lint::ScanSummary;
use memory_shepherd::transport::sftp::askpass::{
    ExpectedAnswer, Question, SecretRecipient, UnknownHostKey,
};
use memory_shepherd::transport::{FailureCause, ServerFeature, TransportError};

/// Returns the time at which every test begins.
pub fn test_time() -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339("2026-03-14T09:10:00+00:00").unwrap()
}

/// Returns a time before [`test_time`].
pub fn minutes_before(minutes: i64) -> DateTime<FixedOffset> {
    test_time() - chrono::Duration::minutes(minutes)
}

/// The prompt of ssh for a key with a passphrase.
pub fn passphrase_question(id: u64, host: &str) -> Question {
    Question {
        id,
        host: host.to_string(),
        expected_answer: ExpectedAnswer::Secret(SecretRecipient::LocalSsh),
        text: Untrusted::new("Enter passphrase for key '/home/op/.ssh/id_ed25519': "),
        is_repeated: false,
    }
}

/// The fingerprint that [`host_key`] shows.
pub const FINGERPRINT: &str = "SHA256:jZa6GCQXM1vkabGGZW1UsCBF8G+uNV4KilgXfyBElTw";

/// The prompt of ssh for an unknown host.
pub fn host_key_question(id: u64, host: &str) -> Question {
    Question {
        id,
        host: host.to_string(),
        expected_answer: ExpectedAnswer::HostKey(UnknownHostKey {
            host: Untrusted::new(format!("{host} (192.0.2.7)")),
            kind: Untrusted::new("ED25519"),
            fingerprint: Untrusted::new(FINGERPRINT),
            notes: vec![Untrusted::new("This key is not known by any other names.")],
        }),
        text: Untrusted::new("The authenticity of host ..."),
        is_repeated: false,
    }
}

/// The baseline of an agent, with one rule changed.
pub fn tampered_change(name: &str) -> BaselineChange {
    let sealed = "# Rules\n\n1. Never merge without approval.\n2. Report to #reviews.\n\n---\n";
    let digest = Digest::of(sealed.as_bytes());
    let known = KnownVersion {
        digest,
        bytes: sealed.as_bytes().to_vec().into(),
        path: format!("/var/lib/memory-shepherd/.shepherd/baselines/{digest}.md").into(),
        is_sealed: true,
    };
    let file = sealed.replace("without approval", "when in a hurry\u{200b}");
    BaselineChange {
        path: format!("/etc/memory-shepherd/baselines/{name}-MEMORY.md").into(),
        current: Ok(file.into_bytes()),
        owner: Some(FileOwner {
            uid: 1004,
            gid: 1004,
            mode: 0o664,
            modified_at: minutes_before(60 * 24 * 30),
            changed_at: minutes_before(65),
        }),
        refusal: Some("the baseline does not match the seal".to_string()),
        advice: Some(
            "if the change is not yours, restore the file from a backup; if it is: cd \
             /etc/memory-shepherd/baselines && sha256sum -- *.md > .checksums"
                .to_string(),
        ),
        reference: Some(known),
        missing_sealed_version: None,
        unread_version: None,
        agents: vec![name.to_string(), format!("{name}-eu")],
        receivers: vec![name.to_string(), format!("{name}-eu")],
    }
}

/// The sealed and the present text of a baseline in this state.
pub fn baseline_texts(state: BaselineState) -> [String; 2] {
    let sealed = "# Rules\n\n1. Never merge without approval.\n2. Report to #reviews.\n\n---\n";
    let current = match state {
        BaselineState::Changed => sealed.replace("without approval", "when in a hurry"),
        _ => sealed.to_string(),
    };
    [sealed.to_string(), current]
}

/// A baseline in this state, of the agent of the same name.
pub fn baseline_summary(agent: &str, state: BaselineState) -> BaselineSummary {
    let [sealed, current] = baseline_texts(state).map(|text| Digest::of(text.as_bytes()));
    let is_there = state != BaselineState::Missing;
    let size = if state == BaselineState::TooSmall {
        120
    } else {
        14_438
    };
    BaselineSummary {
        name: format!("{agent}-MEMORY.md"),
        state,
        size: is_there.then_some(size),
        band: is_there.then(|| SizeBand::of(size)),
        over_limit: false,
        limit: Some(16_384),
        sha256: is_there.then_some(current),
        sealed: (state != BaselineState::Unsealed).then_some(sealed),
        agents: vec![agent.to_string()],
        behind: match state {
            BaselineState::Behind => vec![agent.to_string()],
            _ => Vec::new(),
        },
        changed: is_there.then(|| minutes_before(419)),
        owner: is_there.then(|| FileOwner {
            uid: 1004,
            gid: 1004,
            mode: 0o664,
            modified_at: minutes_before(60 * 24 * 30),
            changed_at: minutes_before(419),
        }),
        last_push: Some(LastPush {
            time: minutes_before(490),
            run: "5a10".to_string(),
            sha256: sealed,
        }),
        findings: is_there.then_some(FindingCounts {
            errors: usize::from(state == BaselineState::TooSmall),
            warnings: usize::from(state == BaselineState::Behind),
        }),
        problem: None,
    }
}

/// A list of these baselines, in this order.
pub fn baseline_list(baselines: Vec<BaselineSummary>) -> BaselineList {
    BaselineList {
        directory: "/etc/memory-shepherd/baselines".into(),
        is_unsealed_refused: baselines.iter().any(|it| it.sealed.is_some()),
        baselines,
        signature: None,
        seal_error: None,
        ledger_error: None,
    }
}

/// A plan that changes these baselines, each of the agent of the same name; `is_foreign` for changes
/// that the program did not make.
pub fn baseline_plan(agents: &[&str], is_foreign: bool) -> PreparedBaselinePlan {
    let [before, after] = baseline_texts(BaselineState::Changed);
    let file = |agent: &&str| PlannedBaseline {
        name: format!("{agent}-MEMORY.md"),
        before: BaselineFile::Readable(before.clone().into_bytes()),
        after: after.clone().into_bytes().into(),
        replaced: 1,
        agents: vec![agent.to_string()],
        is_foreign,
        replaces_foreign: false,
        is_refused: false,
        has_been_sealed: false,
    };
    let files: Vec<PlannedBaseline> = agents.iter().map(file).collect();
    let row = |file: &PlannedBaseline| BaselinePlanRow {
        name: file.name.clone(),
        label: "changed".to_string(),
        digests: [&before, &after].map(|it| Digest::of(it.as_bytes()).short_hex(8)),
        changed_lines: (1, 1),
        is_foreign,
        replaces_foreign: false,
        is_refused: false,
        lint_errors: Vec::new(),
        owner: baseline_summary("any", BaselineState::Changed).owner,
        agents: file.agents.clone(),
        text: text::prepare_comparison([before.as_bytes(), after.as_bytes()], None),
    };
    PreparedBaselinePlan {
        problem: None,
        rows: files.iter().map(row).collect(),
        notes: vec!["resets push the sealed versions".to_string()],
        refusal: None,
        needs_key: false,
        change: Arc::new(BaselineChangePlan::Files {
            plan: BaselinePlan {
                action: BaselineAction::Replace,
                files,
                unchanged: Vec::new(),
            },
            is_resealed: false,
        }),
    }
}

/// A verification with these findings.
pub fn verification(findings: Vec<Finding>) -> Verification {
    Verification {
        ledger: LedgerSummary {
            path: "/var/lib/memory-shepherd/.shepherd/ledger.jsonl".into(),
            seq: 412,
            sha256: Digest::of(b"head"),
            segments: 0,
            torn_bytes: 0,
        },
        is_anchor_valid: None,
        is_log_valid: Some(true),
        counts: VerifiedCounts {
            lines: 412,
            entries: 96,
            bytes: 1_413_120,
            retired_entries: 8,
            unrecorded_entries: 0,
            versions: 12,
            sealed_baselines: 7,
            unsealed_baselines: 0,
        },
        signed: None,
        findings,
        omitted_findings: 0,
        notes: Vec::new(),
    }
}

/// A finding about a subject.
pub fn finding(subject: FindingSubject, message: &str, hint: &str) -> Finding {
    Finding {
        subject,
        baseline: None,
        kind: ErrorKind::Integrity,
        message: message.to_string(),
        hints: vec![hint.to_string()],
    }
}

/// A finding about the baseline of an agent.
pub fn baseline_finding(agent: &str, message: &str, hint: &str) -> Finding {
    Finding {
        baseline: Some(format!("{agent}-MEMORY.md")),
        ..finding(FindingSubject::Baseline, message, hint)
    }
}

/// Versions of a baseline: saved after a push, which followed its seal.
pub fn baseline_versions(agent: &str) -> Vec<BaselineVersion> {
    let [sealed, saved] =
        baseline_texts(BaselineState::Changed).map(|it| Digest::of(it.as_bytes()));
    let version = |minutes, operation, sha256| BaselineVersion {
        time: minutes_before(minutes),
        run: format!("run-{minutes}"),
        user: "ops".to_string(),
        operation,
        sha256: Some(sha256),
        replaced: None,
        stored: true,
        agents: Vec::new(),
        note: None,
    };
    vec![
        BaselineVersion {
            replaced: Some(sealed),
            ..version(5, Operation::Save, saved)
        },
        BaselineVersion {
            agents: vec![agent.to_string()],
            ..version(490, Operation::Reset, sealed)
        },
        BaselineVersion {
            note: Some("signed by ops, serial 7".to_string()),
            ..version(4000, Operation::Seal, sealed)
        },
    ]
}

/// A host in this state, with these agents on it.
pub fn host_status(name: &str, reach: Reachability, agents: &[&str]) -> HostStatus {
    let failed = |cause, text: &str, hint: &str| {
        let error = Error::new(ErrorKind::Host, text).with_hint(hint);
        Some(TransportError::new(cause, error))
    };
    let error = match reach {
        Reachability::HostKeyMismatch => failed(
            FailureCause::HostKeyMismatch,
            &format!("{name}: host key changed or revoked; nothing was read or sent"),
            &format!(
                "find out why first; if the host was reinstalled, `ssh {name}` says how to forget the old key"
            ),
        ),
        Reachability::Refused => failed(
            FailureCause::Refused,
            &format!("{name}: access denied: ops@{name}: Permission denied (publickey)."),
            &format!(
                "`ssh {name}` has to work without a prompt; see `ssh-add -l` and identity_file"
            ),
        ),
        Reachability::Unreachable => failed(
            FailureCause::Unreachable,
            &format!(
                "{name} cannot be reached: ssh: connect to host {name} port 22: No route to host"
            ),
            &format!("try `ssh {name}`"),
        ),
        Reachability::Unknown | Reachability::Connected => None,
    };
    let up = reach == Reachability::Connected;
    let ability = |(name, there, without)| ServerFeature {
        name,
        is_available: there,
        degradation: without,
        needs_consent: true,
    };
    let abilities = [
        ("posix-rename@openssh.com", true, ""),
        ("hardlink@openssh.com", true, ""),
        (
            "fsync@openssh.com",
            false,
            SftpExtension::Fsync.degradation(),
        ),
    ];
    HostStatus {
        host: SshHost {
            name: name.to_string(),
            user: name.len().is_multiple_of(2).then(|| "ops".to_string()),
            port: name.len().is_multiple_of(3).then_some(2222),
            identity_file: None,
            timeout_seconds: 15,
        },
        agents: agents.iter().map(|name| (*name).to_string()).collect(),
        connection: ConnectionStatus {
            reachability: reach,
            is_connecting: reach == Reachability::Unknown,
            pending_prompt: None,
            is_blocked: false,
            since: (reach != Reachability::Unknown).then(|| minutes_before(130)),
            next_attempt: error.is_some().then(|| minutes_before(-3)),
            next_attempt_instant: None,
            failures: if error.is_some() { 9 } else { 0 },
            latency: up.then_some(Duration::from_millis(142)),
            server_features: if up {
                abilities.map(ability).to_vec()
            } else {
                Vec::new()
            },
            server_limits: if up {
                vec![("read", 261_120), ("handles", 1019)]
            } else {
                Vec::new()
            },
            error,
        },
    }
}

/// Returns the content of a memory in a state, with the matching boundary.
fn content_of(name: &str, state: State) -> MemoryContent {
    let rule = match state {
        State::NoSep => None,
        State::Drifted => Some(BoundaryRule::Aligned(Digest::ZERO)),
        State::Behind => Some(BoundaryRule::Behind(Digest::ZERO)),
        _ => Some(BoundaryRule::Intact),
    };
    let boundary = rule.map(|rule| Boundary {
        offset: 9_000,
        line: 85,
        separator_number: 1,
        separator_count: 1,
        rule,
        added_lines: if state == State::Drifted { 14 } else { 0 },
        removed_lines: if state == State::Drifted { 3 } else { 0 },
    });
    let lines = match state {
        State::Clean => 0,
        State::NoSep => 212,
        State::Oversize => 903,
        _ => 40,
    };
    MemoryContent {
        size: if state == State::Oversize {
            41_000
        } else {
            12_700
        },
        lines: 85 + lines,
        sha256: Digest::of(name.as_bytes()),
        modified_ns: minutes_before(12).timestamp_nanos_opt().unwrap(),
        boundary,
        scratch_lines: lines,
        scratch_bytes: lines * 40,
        entry_kind: match state {
            State::Clean => None,
            State::NoSep | State::Drifted => Some(EntryKind::FullBackup),
            _ => Some(EntryKind::Scratch),
        },
        hidden: HiddenCounts::default(),
        findings: ScanSummary::default(),
        scan_basis: ScanBasis::default(),
    }
}

fn reason_of(state: State) -> &'static str {
    match state {
        State::Tampered => "the baseline does not match the seal",
        State::Drifted => "rules edited: L31 L58",
        State::NoSep => "no separator: the whole file would be archived",
        State::Error => "it is a directory",
        State::Missing => "no memory file",
        State::Oversize => "over the limit of 16384 bytes",
        State::Behind => "behind by +3 -1 lines",
        State::Busy => "locked by run 5a10c3d2 of timer",
        State::Unreach => {
            "box cannot be reached: ssh: connect to host box port 22: No route to host"
        }
        State::HostKey => "box: host key changed or revoked; nothing was read or sent",
        _ => "",
    }
}

fn blocker_of(state: State) -> Option<Blocker> {
    let kind = match state {
        State::Tampered | State::HostKey => ErrorKind::Integrity,
        State::Error | State::Unreach => ErrorKind::Host,
        State::Busy => ErrorKind::Busy,
        _ => return None,
    };
    Some(Blocker {
        kind,
        reason: reason_of(state).to_string(),
        hints: match state {
            State::Unreach => vec!["try `ssh box`".to_string()],
            _ => Vec::new(),
        },
    })
}

/// An agent in a state, with the matching details.
pub fn observation_of(name: &str, state: State) -> Observation {
    let is_unread = matches!(
        state,
        State::Unreach | State::HostKey | State::Error | State::Missing
    );
    Observation {
        agent: name.to_string(),
        host: "local".to_string(),
        address: None,
        state,
        reason: reason_of(state).to_string(),
        blocker: blocker_of(state),
        hints: Vec::new(),
        protection: Protection::None,
        read_at: test_time(),
        generation: 1,
        max_size: 16_384,
        content: (!is_unread).then(|| content_of(name, state)),
        is_absent: false,
        is_directory: false,
        health: None,
        baseline: Some(Digest::of(b"baseline")),
        last_run: Some(LastRun {
            run: "5a10c3d2".to_string(),
            time: minutes_before(190),
            operation: Operation::Reset,
            outcome: match state {
                State::Error => Outcome::Failed,
                _ => Outcome::Ok,
            },
            kind: (state == State::Error).then_some(ErrorKind::Host),
            is_host_lost: false,
            is_archive_full: false,
            is_redo: false,
        }),
        ledger_error: None,
        lock_holder: None,
    }
}

/// A mistake in the config.
pub fn config_error_of(what: &str) -> Diagnostic {
    Diagnostic {
        level: config::DiagnosticLevel::Error,
        file: "/etc/memory-shepherd/memory-shepherd.conf".into(),
        line: Some(7),
        text: String::new(),
        message: what.to_string(),
        hints: Vec::new(),
    }
}

/// The plan step for an agent in this state.
pub fn plan_step(name: &str, state: State) -> PlanStep {
    let whole = matches!(state, State::Drifted | State::NoSep);
    PlanStep {
        agent: name.to_string(),
        host: "local".to_string(),
        state,
        action: match state {
            State::Missing => StepAction::Create,
            _ => StepAction::Replace,
        },
        binding: PlanBinding {
            location: format!("/srv/{name}/MEMORY.md"),
            content_digest: Digest::of(b"baseline"),
            boundary_rule: "intact".to_string(),
            above_digest: Digest::ZERO,
            kept_scratch: None,
        },
        entry_kind: match state {
            State::Missing => None,
            _ if whole => Some(EntryKind::FullBackup),
            _ => Some(EntryKind::Scratch),
        },
        scratch_lines: 40,
        archive_bytes: if whole { 12_700 } else { 1_600 },
        added_lines: if state == State::Drifted { 14 } else { 0 },
        removed_lines: if state == State::Drifted { 3 } else { 0 },
        new_size: 11_100,
        is_confirmation_typed: whole,
        protection: Protection::None,
        notes: vec!["separator L85 (1 of 1)".to_string()],
        purpose: None,
        lint_findings: Vec::new(),
        degradations: Vec::new(),
        undone_run: None,
        kept_scratch: None,
        behind_version: None,
        files: Vec::new(),
        new_directories: Vec::new(),
        removed_directories: Vec::new(),
    }
}

/// A plan of these agents; its hash depends on their names.
pub fn plan(steps: &[(&str, State)]) -> Plan {
    let steps: Vec<PlanStep> = steps
        .iter()
        .map(|(name, state)| plan_step(name, *state))
        .collect();
    let names: Vec<&str> = steps.iter().map(|step| step.agent.as_str()).collect();
    Plan {
        operation: Operation::Reset,
        hash: Digest::of(names.join(" ").as_bytes()).short_hex(12),
        created_at: test_time(),
        is_whole_fleet: false,
        steps,
        skipped: Vec::new(),
        retention: None,
    }
}

/// The plan of a push to these agents that keeps `kept_lines` of the scratch of each.
pub fn push_plan(steps: &[(&str, State)], selection: &ScratchSelection, kept_lines: u64) -> Plan {
    let mut plan = plan(steps);
    plan.operation = Operation::Push;
    plan.hash = Digest::of(format!("{steps:?} {selection}").as_bytes()).short_hex(12);
    for step in &mut plan.steps {
        step.kept_scratch = Some(KeptScratch {
            selection: selection.clone(),
            lines: kept_lines,
            bytes: 20 * kept_lines,
        });
    }
    plan
}

/// The plan of an undo of these agents.
pub fn undo_plan(names: &[&str], written_since: bool, mode: UndoMode) -> Plan {
    let agents: Vec<(&str, State)> = names.iter().map(|name| (*name, State::Scratch)).collect();
    let mut plan = plan(&agents);
    plan.operation = Operation::Undo;
    plan.hash = Digest::of(format!("{names:?} {mode:?}").as_bytes()).short_hex(12);
    for step in &mut plan.steps {
        step.is_confirmation_typed = written_since && mode == UndoMode::Overwrite;
        step.undone_run = Some(UndoneRun {
            run: "5a10c3d2".to_string(),
            time: minutes_before(190),
            has_written_since: written_since,
            mode,
            skipped_run: None,
        });
    }
    plan
}

pub fn skipped_agent(name: &str, state: State, why: &str) -> SkippedAgent {
    SkippedAgent {
        agent: name.to_string(),
        state,
        reason: why.to_string(),
        kind: Some(ErrorKind::Integrity),
        baseline: None,
        hints: Vec::new(),
    }
}

/// The result of a run, agent by agent.
pub fn run_report(results: &[(&str, Outcome, Option<&str>)]) -> RunReport {
    let result = |(name, outcome, note): &(&str, Outcome, Option<&str>)| AgentResult {
        agent: name.to_string(),
        outcome: *outcome,
        kind: (*outcome != Outcome::Ok).then_some(ErrorKind::Conflict),
        note: note.map(str::to_string),
        hints: Vec::new(),
        is_irreversible: false,
        is_host_lost: false,
        is_archive_full: false,
        findings: None,
        entries: Vec::new(),
        scratch_lines: 40,
        duration_ms: 120,
    };
    RunReport {
        run: "7f3c0a11".to_string(),
        operation: Operation::Reset,
        errors: Vec::new(),
        results: results.iter().map(result).collect(),
        notes: Vec::new(),
        retired_entries: Vec::new(),
        retired_versions: Vec::new(),
        ledger_head: Some((7, Digest::ZERO)),
        duration_ms: 4200,
    }
}

/// A run of the ledger.
pub fn run_summary(id: &str, minutes_ago: i64, agents: &[(&str, Outcome)]) -> RunSummary {
    let event = |(agent, outcome): &(&str, Outcome)| {
        let text = format!(
            r#"{{"run":"{id}","act":"reset","trigger":"timer","user":"timer","agent":"{agent}","host":"local","outcome":"ok"}}"#
        );
        let mut event: RunEvent = serde_json::from_str(&text).unwrap();
        event.outcome = *outcome;
        event.trigger = Trigger::Timer;
        event
    };
    RunSummary {
        run_id: id.to_string(),
        began_at: minutes_before(minutes_ago),
        ended_at: minutes_before(minutes_ago),
        events: agents.iter().map(event).collect(),
        undone_agents: Vec::new(),
        is_redo: false,
        retired_entries: 0,
        problem: None,
    }
}

/// A run that saved or restored a baseline: from a version to another.
pub fn baseline_run(
    name: &str,
    id: &str,
    minutes_ago: i64,
    (operation, texts): (Operation, [&str; 2]),
) -> RunSummary {
    let mut run = run_summary(id, minutes_ago, &[("x", Outcome::Ok)]);
    let event = &mut run.events[0];
    event.agent = String::new();
    event.operation = operation;
    event.file = Some(name.to_string());
    let [before, after] = texts.map(|text| Digest::of(text.as_bytes()));
    event.change.before = Some(FileState::File {
        sha256: before,
        size: 3,
        lines: 1,
    });
    event.baseline = Some(after);
    run
}

/// Returns the path of an agent's memory in these fleets.
pub fn local_address(name: &str) -> MemoryAddress {
    MemoryAddress {
        login: None,
        memory: format!("/agents/{name}/MEMORY.md"),
    }
}

/// The agents of a config, at their usual paths.
pub fn configured_agents(names: &[&str]) -> Vec<AgentRow> {
    let rows = names.iter().map(|name| AgentRow {
        layout: None,
        name: name.to_string(),
        address: local_address(name),
        host_name: None,
        baseline: Some(format!("{name}.md")),
        observation: None,
        observation_before_reload: None,
        last_readable: None,
        saved_observation: None,
    });
    rows.collect()
}

/// A record of `code-reviewer`: its number, its time, and its kind.
pub fn history_record(
    seq: u64,
    minutes_ago: i64,
    change: impl FnOnce(&mut RunEvent),
) -> HistoryEntry {
    let mut record = LedgerRecord {
        seq,
        previous_digest: Digest::ZERO,
        time: minutes_before(minutes_ago),
        boot: None,
        event: run_summary(&format!("{seq:08x}"), 0, &[("code-reviewer", Outcome::Ok)])
            .events
            .remove(0),
    };
    let file = |name: &str, size| FileState::File {
        sha256: Digest::of(name.as_bytes()),
        size,
        lines: size / 50,
    };
    let event = &mut record.event;
    event.change.before = Some(file("before", 12_000 + seq * 300));
    event.change.after = Some(file("after", 11_100));
    event.boundary = observation_of("code-reviewer", State::Scratch)
        .content
        .unwrap()
        .boundary;
    event.change.entry = Some(WrittenEntry {
        path: format!("code-reviewer/2026-03-{seq:02}_0400.md").into(),
        kind: EntryKind::Scratch,
        digest: Digest::ZERO,
        size: 900,
        base: None,
        findings: None,
    });
    change(event);
    HistoryEntry {
        record,
        undone_by: None,
        is_redo: false,
    }
}

/// The history of `code-reviewer`, one record of each kind.
pub fn sample_history() -> Vec<HistoryEntry> {
    let drifted = observation_of("code-reviewer", State::Drifted)
        .content
        .unwrap()
        .boundary;
    let mut undone = history_record(7, 600, |event| {
        event.boundary = drifted;
        event.drift = Some(DriftCounts {
            added: 1,
            removed: 0,
            edited: 2,
            moved: 0,
        });
    });
    undone.undone_by = Some("00000008".to_string());
    vec![
        history_record(9, 190, |_| {}),
        history_record(8, 500, |event| {
            event.operation = Operation::Undo;
            event.trigger = Trigger::Console;
            event.user = "ops".to_string();
            event.undone_run = Some("00000007".to_string());
        }),
        undone,
        history_record(6, 2_000, |event| {
            event.outcome = Outcome::Failed;
            event.change.after = None;
            event.change.entry = None;
            event.note = Some("the archive's disk is full\u{202e}\x1b[31m".to_string());
        }),
        history_record(5, 3_000, |event| {
            event.operation = Operation::Repair;
            event.change.late_entries = event.change.entry.take().into_iter().collect();
        }),
        history_record(2, 40_000, |event| {
            event.change.before = Some(FileState::Absent);
            event.boundary = None;
            event.change.entry = None;
        }),
    ]
}

/// The request for a reset of these agents.
pub fn reset_request(names: &[&str]) -> PlanRequest {
    PlanRequest::Reset(names.iter().map(|name| name.to_string()).collect())
}

/// The request to undo the last reset of these agents.
pub fn undo_request(names: &[&str], mode: UndoMode) -> PlanRequest {
    let names = names.iter().map(|name| name.to_string()).collect();
    PlanRequest::Undo(UndoTarget::Agents(names), mode)
}
