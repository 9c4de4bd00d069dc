//! The ends of turns: their records in the ledger, their lines in the log, and their results.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ResetLane, Turn};
use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::engine::runs::plan::{EQUAL_REASON, PUSHED_REASON, still_absent_reason};
use crate::engine::runs::reset::UnchangedAgent;
use crate::engine::runs::reset::screening::{EntryJournal, ReleasedEntry};
use crate::engine::runs::reset::unrecorded::append_unrecorded_note;
use crate::engine::runs::run_report::{AgentResult, RunProgress};
use crate::engine::watch::parallel::Site;
use crate::store::lease::Lease;
use crate::store::record::{Operation, Outcome, RunEvent};
use crate::store::run_log;

/// A finished turn that is not reported yet.
pub(super) struct EndedTurn {
    pub(super) event: RunEvent,
    /// Whether recovery has appended it to the ledger already.
    pub(super) is_recorded: bool,
    pub(super) kind: Option<ErrorKind>,
    pub(super) hints: Vec<String>,
    pub(super) scratch_lines: u64,
    /// Entries that were released from quarantine, to be ended once the event is recorded.
    pub(super) released: Vec<ReleasedEntry>,
    /// Its journal, if its transaction is finished as well.
    pub(super) journal_path: Option<PathBuf>,
    pub(super) _lock: Option<Arc<dyn Lease>>,
}

impl EndedTurn {
    /// Creates the end of a turn that left neither entries to release nor a journal to remove.
    pub(super) fn new(
        event: RunEvent,
        kind: Option<ErrorKind>,
        lock: Option<Arc<dyn Lease>>,
    ) -> EndedTurn {
        EndedTurn {
            event,
            is_recorded: false,
            kind,
            hints: Vec::new(),
            scratch_lines: 0,
            released: Vec::new(),
            journal_path: None,
            _lock: lock,
        }
    }
}

impl<'a> ResetLane<'_, 'a> {
    /// Logs a memory that was replaced.
    pub(super) fn log_replaced(&self, event: &RunEvent) {
        self.run.log_line(&run_log::format_replacement(event));
    }

    /// Appends the ended turns to the ledger, removes their journals, and reports their results.
    pub(super) fn record_ended_turns(&mut self) {
        let ended = std::mem::take(&mut self.ended_turns);
        let unrecorded = ended.iter().filter(|ended| !ended.is_recorded);
        let events: Vec<RunEvent> = unrecorded.map(|ended| ended.event.clone()).collect();
        let failed = self.run.context().ledger().append(events).err();
        for mut ended in ended {
            if failed.is_none() {
                self.run.screening().end_releases(&ended.released);
            }
            match (&failed, &ended.journal_path) {
                (None, Some(journal)) => self.run.remove_journal(journal),
                (None, None) => {}
                (Some(_), _) if ended.is_recorded => {}
                (Some(error), _) => self.mark_unrecorded(&mut ended, error),
            }
            self.report_result(ended);
        }
        self.run.write_log_lines();
    }

    /// Marks an ended turn that could not be appended to the ledger.
    fn mark_unrecorded(&self, ended: &mut EndedTurn, error: &Error) {
        let event = &mut ended.event;
        let replaced = event.outcome == Outcome::Ok;
        let what = if replaced {
            format!("{}, but not recorded", event.describe_change())
        } else {
            "not recorded".to_string()
        };
        if replaced {
            event.outcome = Outcome::Failed;
        }
        self.run
            .log_line(&format!("{}: {what}: {error}", event.agent));
        append_unrecorded_note(
            &what,
            error,
            &mut event.note,
            &mut ended.kind,
            &mut ended.hints,
        );
    }

    fn report_result(&mut self, ended: EndedTurn) {
        let event = ended.event;
        let entries: Vec<WrittenEntry> = event.entries().cloned().collect();
        let findings = event.findings();
        let result = AgentResult {
            is_irreversible: event.is_irreversible(),
            is_host_lost: event.is_host_lost,
            is_archive_full: event.is_archive_full,
            agent: event.agent,
            outcome: event.outcome,
            kind: ended.kind,
            note: event.note,
            hints: ended.hints,
            findings: (!findings.is_clean()).then_some(findings),
            entries,
            scratch_lines: ended.scratch_lines,
            duration_ms: event.duration_ms,
        };
        self.run
            .report_progress(RunProgress::AgentDone(result.clone()));
        self.results.push(result);
    }

    pub(super) fn end_not_started(&mut self) {
        while let Some(queued) = self.queue.pop_front() {
            let kind = Some(ErrorKind::Interrupted);
            let event = RunEvent {
                kind,
                outcome: Outcome::NotStarted,
                note: Some("the run was interrupted before its turn".to_string()),
                ..self.run.new_event(&queued.step.agent)
            };
            self.ended_turns.push(EndedTurn::new(event, kind, None));
        }
    }

    /// Ends a turn that found nothing to change.
    pub(super) fn end_unchanged_turn(&mut self, turn: Turn<'a>) {
        let step = turn.queued.step;
        let reason = match &step.undone_run {
            Some(undo) => still_absent_reason(&undo.run),
            None if self.run.plan.operation == Operation::Push => PUSHED_REASON.to_string(),
            None => EQUAL_REASON.to_string(),
        };
        let baseline = turn.event.baseline.filter(|_| step.undone_run.is_none());
        self.end_unchanged(&step.agent, reason, baseline, turn.queued.lock);
    }

    /// Ends an agent that needs no change, and releases its lock: the run records all of them at its
    /// end. `baseline` is the version that its memory has: a record names it, so that the memory is
    /// behind, and not drifted, once the baseline changes.
    pub(super) fn end_unchanged(
        &mut self,
        agent: &str,
        reason: String,
        baseline: Option<Digest>,
        lock: Option<Arc<dyn Lease>>,
    ) {
        self.run.log_line(&format!("{agent}: {reason}"));
        let is_new = |version: &Digest| {
            let stored = self
                .run
                .memory_capture()
                .store_found_version(agent, *version);
            stored.unwrap_or_else(|error| {
                self.run.report_error(error);
                false
            })
        };
        let event = RunEvent {
            outcome: Outcome::Unchanged,
            note: Some(reason),
            baseline: baseline.filter(is_new),
            ..self.run.new_event(agent)
        };
        let unchanged = UnchangedAgent {
            event: event.clone(),
            seen: self.run.last_run_seen(agent),
        };
        self.run.shared().unchanged_agents.push(unchanged);
        self.report_result(EndedTurn::new(event, None, lock));
    }

    /// Ends an agent with an error, as refused or failed by its kind.
    pub(super) fn end_refused(
        &mut self,
        error: Error,
        event: RunEvent,
        lock: Option<Arc<dyn Lease>>,
    ) {
        let runs = self.run.runs;
        let root = runs.context.archive().root();
        let is_archive_full = is_archive_full(&error, &self.site, root);
        let error = if is_archive_full {
            error.with_hint(runs.context.full_archive_hint())
        } else {
            error
        };
        let kind = ErrorKind::Partial.more_serious(error.kind());
        let mut event = RunEvent {
            outcome: match error.kind() {
                ErrorKind::Busy | ErrorKind::Integrity | ErrorKind::Conflict => Outcome::Refused,
                _ => Outcome::Failed,
            },
            note: Some(error.to_string()),
            kind: Some(kind),
            is_host_lost: error.is_host_lost(),
            is_archive_full,
            ..event
        };
        event.changes_mut().for_each(|change| change.after = None);
        // No undo restores them, and those of many files may be too long for a record.
        let files = event.files.iter_mut();
        files.for_each(|change| change.attributes = None);
        self.run.log_line(&format!(
            "{}: {} — {error}",
            event.agent,
            event.outcome.as_str()
        ));
        let released = self.screen_refused(&mut event);
        self.ended_turns.push(EndedTurn {
            hints: error.hints().to_vec(),
            released,
            ..EndedTurn::new(event, Some(kind), lock)
        });
    }

    /// Screens the entries of a turn that failed.
    fn screen_refused(&self, event: &mut RunEvent) -> Vec<ReleasedEntry> {
        let run = self.run;
        match run.context().agent(&event.agent) {
            Ok(agent) if event.entries().next().is_some() => {
                let journal = if run.context().journals().can_have_journal(&agent.name) {
                    EntryJournal::LeftForNextRun
                } else {
                    EntryJournal::Absent
                };
                run.screening().screen_entries(agent, event, journal)
            }
            _ => Vec::new(),
        }
    }
}

/// Returns whether an error of an agent at `site` says that the disk of the archive is full: for a
/// file of the archive, or for one of the agent's on the same disk.
fn is_archive_full(error: &Error, site: &Site<'_>, root: &Path) -> bool {
    error.full_disk().is_some_and(|full| {
        // A quota beside the archive may be that of the agent's user.
        full.path.starts_with(root)
            || !full.is_quota && *site == Site::Trusted && is_on_same_disk(&full.path, root)
    })
}

/// Returns whether a file that may be missing is, or would be, on the file system of `root`.
fn is_on_same_disk(path: &Path, root: &Path) -> bool {
    let device_of = |path: &Path| {
        let mut existing = path.ancestors();
        existing.find_map(|it| std::fs::symlink_metadata(it).ok().map(|meta| meta.dev()))
    };
    device_of(path) == device_of(root)
}
