//! The lane of one site (this machine's trusted disks, a file system, or a host) in a run: takes
//! its agents through the steps in batches, syncs each step once per batch, and records the
//! results.

mod ended_turns;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::capture::Captured;
use super::early_end::EarlyEnd;
use super::ending::elapsed_millis;
use super::queued_turn::QueuedTurn;
use super::recovery::{FinishedTurn, ReadBack, describe_read_back, read_back};
use super::screening::EntryJournal;
use super::settle::{DisplacedFiles, Settlement};
use super::turn::{CaptureOutcome, PreparedSwap, Turn};
use super::{AgentResult, Run, RunStage};
use crate::base::durable::SyncBatch;
use crate::base::error::{Error, ErrorKind};
use crate::base::threads::KeptThreads;
use crate::config::Agent;
use crate::engine::runs::plan::{PlanStep, SkippedAgent};
use crate::engine::watch::parallel::Site;
use crate::store::agent_history::FailedAttempt;
use crate::store::journal::{Journal, JournalRecord};
use crate::store::lease::Lease;
use crate::store::record::{FileState, Outcome, RunEvent};
use crate::transport::{FailureCause, OnConnected, SwapOutcome, UnsyncedObject};
use ended_turns::EndedTurn;

/// How long a writer may keep a displaced file open before the run leaves it to the next run.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a run tries to reconnect to a host that it lost between two steps.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two such attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// How many times a reset is tried when the agent replaces its file during it.
const MAX_RESET_ATTEMPTS: usize = 3;

/// How long a local batch captures memories before it continues with those that it has: writes
/// after the capture become late writes.
const MAX_LOCAL_BATCH_TIME: Duration = Duration::from_millis(100);

/// The threads that agents of a host take their steps on.
type Threads<'t, 's, 'r> = Option<&'t KeptThreads<'s, 'r>>;

/// Turns that take their steps together, each with the result of its last step.
type Turns<'a, T> = Vec<(Turn<'a>, T)>;

/// A turn whose memory was replaced and whose displaced files are not all settled.
struct ReplacedTurn<'a> {
    turn: Turn<'a>,
    journal: Box<dyn Journal>,
    /// The displaced files of each file of the turn.
    displaced: Vec<DisplacedFiles>,
    deadline: Instant,
    scratch_lines: u64,
    notes: Vec<String>,
    /// The most serious problem so far; none of them prevented the swap.
    kind: Option<ErrorKind>,
}

impl ReplacedTurn<'_> {
    /// Tries to settle the displaced files of each file.
    fn settle(&mut self, run: &Run<'_>) -> Result<(), Error> {
        let mut result = Ok(());
        let mut notes = Vec::new();
        for (number, displaced) in self.displaced.iter_mut().enumerate() {
            let Turn {
                agent,
                files,
                event,
                ..
            } = &mut self.turn;
            let file = &files[number];
            let settlement = Settlement {
                run,
                agent,
                path: &file.path,
                directory: file.directory()?,
                journal: self.journal.as_ref(),
            };
            let change = &mut event.file_changes_mut()[number];
            let (more, settled) = settlement.settle(change, displaced);
            notes.extend(more);
            result = result.and(settled);
        }
        notes.into_iter().for_each(|note| self.add_note(note));
        result
    }

    /// Reads each file back. Returns the first result that is not as installed.
    fn read_back(&self) -> Result<ReadBack, Error> {
        let changes = self.turn.event.file_changes();
        for (file, change) in self.turn.files.iter().zip(changes) {
            match read_back(file.directory()?, &file.path, change)? {
                ReadBack::Same => {}
                other => return Ok(other),
            }
        }
        Ok(ReadBack::Same)
    }

    /// The names of the displaced files that are left, for display.
    fn displaced_names(&self) -> String {
        let names = self.displaced.iter().flat_map(|it| &it.names);
        names.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    fn add_note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn raise_kind(&mut self, kind: ErrorKind) {
        self.kind = Some(self.kind.unwrap_or(ErrorKind::Partial).more_serious(kind));
    }
}

/// The agents of one site, by the state of their turns.
pub(super) struct ResetLane<'r, 'a> {
    run: &'r Run<'a>,
    site: Site<'a>,
    /// How many agents take a step together, and how many may wait for late writers at the same
    /// time.
    batch_size: usize,
    /// Maximum number of agents of this machine that are locked together; lower where captures are
    /// slow, because a batch unlocks those that it does not reach.
    lock_limit: usize,
    /// Agents that wait for their turn.
    queue: VecDeque<QueuedTurn<'a>>,
    /// How many agents take their steps together now.
    batch_length: usize,
    unsettled: Vec<ReplacedTurn<'a>>,
    /// Turns whose host was lost, each with the error.
    lost_turns: Vec<(Turn<'a>, Error)>,
    ended_turns: Vec<EndedTurn>,
    results: Vec<AgentResult>,
}

impl<'r, 'a> ResetLane<'r, 'a> {
    /// Creates a lane without agents.
    pub(super) fn new(run: &'r Run<'a>, site: Site<'a>) -> ResetLane<'r, 'a> {
        ResetLane {
            run,
            site,
            batch_size: 1,
            lock_limit: usize::MAX,
            batch_length: 0,
            queue: VecDeque::new(),
            unsettled: Vec::new(),
            lost_turns: Vec::new(),
            ended_turns: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Adds an agent of this site.
    pub(super) fn enqueue(&mut self, step: &'a PlanStep) {
        self.queue.push_back(QueuedTurn {
            step,
            lock: None,
            attempts: 0,
            leased_since: None,
            is_alone: false,
            failed_attempt: None,
        });
    }

    /// Ends the agents that the plan skips.
    pub(super) fn end_skipped(&mut self, skipped: &[SkippedAgent]) {
        for skipped in skipped {
            let SkippedAgent { agent, reason, .. } = skipped;
            match skipped.to_error() {
                Some(error) => self.end_refused(error, self.run.new_event(agent), None),
                None => self.end_unchanged(agent, reason.clone(), skipped.baseline, None),
            }
        }
        self.record_ended_turns();
    }

    /// Calls `when_done` once the site answers or its connection fails.
    pub(super) fn connect_site(&self, when_done: OnConnected) {
        let runs = self.run.runs;
        let first = self.queue.front();
        match first.and_then(|it| runs.context.agent(&it.step.agent).ok()) {
            Some(agent) => runs.hosts.connect_site(&self.site, agent, when_done),
            None => when_done(),
        }
    }

    /// Takes every agent through all steps, at most `batch_size` of them together; those of a host on
    /// `threads`, because each waits for replies.
    pub(super) fn run(
        mut self,
        batch_size: usize,
        threads: Threads<'_, '_, 'r>,
    ) -> Vec<AgentResult> {
        let threads = threads.filter(|_| matches!(self.site, Site::Host(_)));
        self.batch_size = self.run.runs.hosts.limit_batch_size(&self.site, batch_size);
        while !self.queue.is_empty() {
            if self.run.is_cancelled() {
                self.end_not_started();
            } else {
                self.run_batch(threads);
            }
            self.record_ended_turns();
            if !self.queue.is_empty() && self.queue.iter().all(|it| it.leased_since.is_some()) {
                self.wait_for_writers(threads);
            }
        }
        while !self.unsettled.is_empty() {
            self.wait_for_writers(threads);
        }
        self.retry_lost(threads);
        self.record_ended_turns();
        self.results
    }

    /// Reconnects to a lost host before the run ends, and recovers its turns: a memory may have
    /// been moved away without a replacement, which should not last until the next run.
    fn retry_lost(&mut self, threads: Threads<'_, '_, 'r>) {
        let run = self.run;
        let Some((first, _)) = self.lost_turns.first() else {
            return;
        };
        let clock = run.context().clock();
        let end = clock.instant() + RECONNECT_TIMEOUT;
        let agent = first.agent;
        while clock.instant() < end
            && !run.is_cancelled()
            && matches!(run.context().probe_memory(agent), Err(error) if error.cause == FailureCause::Unreachable)
        {
            clock.sleep(RECONNECT_INTERVAL);
        }
        let lost = std::mem::take(&mut self.lost_turns);
        let results = map_agents(threads, lost, move |(turn, error)| {
            let recovered = run
                .recoverer()
                .recover(turn.agent, turn.queued.lock.as_ref());
            (turn, error, recovered)
        });
        for (turn, error, recovered) in results {
            match recovered {
                Ok(None) => self.end_refused(error, turn.event, turn.queued.lock),
                Ok(Some(finished)) => {
                    self.end_recovered(&error, finished, turn.began_at, turn.queued.lock)
                }
                Err(reason) => {
                    run.report_error(reason.with_context(&turn.agent.name));
                    let hint = "the memory may be absent until the next run, which recovers it";
                    self.end_refused(error.with_hint(hint), turn.event, turn.queued.lock);
                }
            }
        }
    }

    /// Ends a turn that failed, but that recovery finished and recorded.
    fn end_recovered(
        &mut self,
        error: &Error,
        finished: FinishedTurn,
        began_at: Instant,
        lock: Option<Arc<dyn Lease>>,
    ) {
        let FinishedTurn { mut event, kind } = finished;
        event.duration_ms = elapsed_millis(began_at, self.run.context().clock().instant());
        event.note = Some(match event.note {
            Some(note) => format!("{error}; {note}"),
            None => error.to_string(),
        });
        self.log_replaced(&event);
        self.ended_turns.push(EndedTurn {
            is_recorded: true,
            ..EndedTurn::new(event, kind, lock)
        });
    }

    /// Takes the next agents through all steps. Turns whose displaced files a writer still has open
    /// stay in `unsettled`.
    fn run_batch(&mut self, threads: Threads<'_, '_, 'r>) {
        // The displaced files of the others take the space that it needs.
        while !self.unsettled.is_empty() && self.queue.front().is_some_and(|next| next.is_alone) {
            self.wait_for_writers(threads);
        }
        let turns = self.begin_turns(threads);
        let turns = self.refuse_unrecordable(turns);
        let turns = self.sync_step(turns, |_, captured| {
            captured
                .iter()
                .flat_map(Captured::unsynced_contents)
                .collect()
        });
        let turns = self.run_step(threads, turns, Run::prepare_swap);
        let turns = self.sync_step(turns, |_, (_, changed)| std::mem::take(changed));
        let turns = self.run_step(threads, turns, |run, turn, (prepared, _)| {
            run.claim_files(turn, prepared)
        });
        let turns = self.run_step(threads, turns, Run::stage_contents);
        let turns = self.sync_step(turns, |turn, _| turn.take_unsynced());
        let turns = self.run_step(None, turns, Run::decide_swap);
        let turns = self.sync_step(turns, |turn, prepared| {
            let decision = turn.is_edit().then(|| prepared.journal.unsynced());
            decision.flatten().into_iter().collect()
        });
        let turns = self.run_step(threads, turns, Run::swap_files);
        let (turns, failed) = sync_turns(turns, |turn, _| turn.take_unsynced());
        for (turn, error) in failed {
            self.fail_after_swap(turn, &error);
        }
        self.mark_swapped(turns);
        // Turns with a settle time wait for it together.
        if self.last_settle_time().is_none() {
            self.settle_turns(threads);
        }
        // Each unsettled turn keeps files open.
        while self.unsettled.len() > self.batch_size {
            self.wait_for_writers(threads);
        }
    }

    /// Refuses the turns if the ledger cannot be written or no place among the replacing runs is
    /// free. Nothing in the agents' directories has been changed at this point.
    fn refuse_unrecordable(&mut self, turns: Turns<'a, Vec<Captured>>) -> Turns<'a, Vec<Captured>> {
        if turns.is_empty() {
            return turns;
        }
        let Err(error) = self.run.ensure_can_replace() else {
            return turns;
        };
        for (turn, _) in turns.into_iter().rev() {
            if self.run.is_cancelled() {
                self.queue.push_front(turn.queued);
            } else {
                self.end_refused(error.clone(), turn.event, turn.queued.lock);
            }
        }
        Vec::new()
    }

    /// Takes one step with each turn, and ends the turns whose step fails.
    fn run_step<T: Send + 'r, U: Send + 'r>(
        &mut self,
        threads: Threads<'_, '_, 'r>,
        turns: Turns<'a, T>,
        act: impl Fn(&Run<'a>, &mut Turn<'a>, T) -> Result<U, EarlyEnd> + Send + Sync + 'r,
    ) -> Turns<'a, U> {
        let run = self.run;
        let done = map_agents(threads, turns, move |(mut turn, data)| {
            let result = act(run, &mut turn, data);
            (turn, result)
        });
        let mut kept = Vec::with_capacity(done.len());
        for (turn, result) in done {
            match result {
                Ok(data) => kept.push((turn, data)),
                Err(early_end) => self.abort_or_requeue(turn, early_end),
            }
        }
        kept
    }

    /// Syncs the changes of a step before the swap, and ends the turns whose sync fails.
    fn sync_step<T>(
        &mut self,
        turns: Turns<'a, T>,
        changed: impl FnMut(&Turn<'a>, &mut T) -> Vec<UnsyncedObject>,
    ) -> Turns<'a, T> {
        let (kept, failed) = sync_turns(turns, changed);
        for (turn, error) in failed {
            self.abort_or_requeue(turn, error.into());
        }
        kept
    }

    /// Ends a turn whose memory was replaced, but whose sync failed. Syncing again would prove
    /// nothing, so the next run settles its displaced files.
    fn fail_after_swap(&mut self, turn: Turn<'a>, error: &Error) {
        let message = format!(
            "{}, but the change may not be on the disk: {}",
            turn.event.describe_change(),
            error.message()
        );
        let error = Error::new(error.kind(), message)
            .with_lost_host(error.is_host_lost())
            .with_hint("the next run settles the displaced files");
        self.end_refused(error, turn.event, turn.queued.lock);
    }

    /// Ends a turn early, or returns the agent to the queue. Notes that the agent wrote during the
    /// turn are in displaced files, which its journal names.
    fn abort_or_requeue(&mut self, turn: Turn<'a>, early_end: EarlyEnd) {
        let early_end = match early_end {
            EarlyEnd::HostLost(error)
                if self
                    .run
                    .context()
                    .journals()
                    .can_have_journal(&turn.agent.name) =>
            {
                return self.lost_turns.push((turn, error));
            }
            early_end => early_end,
        };
        let Turn {
            queued,
            agent,
            files,
            event,
            began_at,
        } = turn;
        drop(files);
        match early_end {
            // The memory is not as it was.
            EarlyEnd::HalfWritten(error) => {
                return self.end_refused(error.with_full_disk(false), event, queued.lock);
            }
            EarlyEnd::Leased(_) => return self.queue.push_back(self.start_lease_wait(queued)),
            EarlyEnd::Replaced(_) | EarlyEnd::HostLost(_) | EarlyEnd::Failed(_) => {}
        }
        let recovered = self.run.recoverer().recover(agent, queued.lock.as_ref());
        let is_recovered = recovered.is_ok();
        let finished = recovered.unwrap_or_else(|error| {
            self.run.report_error(error.with_context(&agent.name));
            None
        });
        // Recovery has finished a decided edit, whose files are no longer as its plan found them.
        let is_edit_finished = finished.is_some() && !queued.step.files.is_empty();
        match early_end {
            EarlyEnd::Replaced(_) if queued.attempts < MAX_RESET_ATTEMPTS && !is_edit_finished => {
                self.queue.push_front(queued)
            }
            EarlyEnd::Failed(error)
                if finished.is_none() && self.may_succeed_alone(&queued, &error) =>
            {
                self.queue_alone(queued, &event, &error)
            }
            // Recovery has archived the agent's file, which is still the memory.
            EarlyEnd::Replaced(error) if !is_edit_finished => {
                self.end_refused(error, event, queued.lock)
            }
            EarlyEnd::Replaced(error)
            | EarlyEnd::Leased(error)
            | EarlyEnd::HalfWritten(error)
            | EarlyEnd::HostLost(error)
            | EarlyEnd::Failed(error) => match finished {
                Some(finished) => self.end_recovered(&error, finished, began_at, queued.lock),
                None => {
                    // Without recovery, the memory may not be as it was.
                    let is_full = error.may_be_full_disk() && is_recovered;
                    self.end_refused(error.with_full_disk(is_full), event, queued.lock);
                }
            },
        }
    }

    /// Whether the error may be due to the space that other agents of this lane take until their
    /// displaced files are removed.
    fn may_succeed_alone(&self, queued: &QueuedTurn<'a>, error: &Error) -> bool {
        let others = self.batch_length > 1 || !self.unsettled.is_empty();
        error.may_be_full_disk() && others && !queued.is_alone
    }

    /// Returns an agent to the queue, to be tried once more without others.
    fn queue_alone(&mut self, mut queued: QueuedTurn<'a>, event: &RunEvent, error: &Error) {
        self.run.log_line(&format!(
            "{}: {error}; it is tried again alone, after the other agents",
            event.agent
        ));
        queued.is_alone = true;
        queued.failed_attempt = FailedAttempt::from_event(event);
        self.queue.push_back(queued);
    }

    /// Marks an agent whose memory is under a lease as waiting; the lane takes all other agents
    /// first.
    fn start_lease_wait(&self, mut queued: QueuedTurn<'a>) -> QueuedTurn<'a> {
        queued.attempts -= 1;
        let now = self.run.context().clock().instant();
        queued.leased_since.get_or_insert(now);
        queued
    }

    /// Takes steps 1 and 2 for the next agents: locks, and entries without names.
    fn begin_turns(&mut self, threads: Threads<'_, '_, 'r>) -> Turns<'a, Vec<Captured>> {
        let run = self.run;
        let began = run.context().clock().instant();
        let mut locked: VecDeque<(QueuedTurn<'a>, &'a Agent)> = VecDeque::new();
        let is_alone = self.queue.front().is_some_and(|next| next.is_alone);
        let limit = match threads {
            _ if is_alone => 1,
            Some(_) => self.batch_size,
            None => self.batch_size.min(self.lock_limit),
        };
        while locked.len() < limit
            && (locked.is_empty() || !run.is_cancelled())
            && let Some(next) = self.queue.front()
            && next.is_alone == is_alone
            && let Some(mut queued) = self.queue.pop_front()
        {
            run.report_stage(&queued.step.agent, RunStage::Lock);
            match run.ensure_locked(&mut queued) {
                Ok(agent) => locked.push_back((queued, agent)),
                Err(error) => self.end_refused(error, run.new_step_event(queued.step), None),
            }
        }
        // Read after the locks: no other run of these agents can write a journal from here on.
        let read_journals = || -> Result<_, Error> {
            // Brings the ledger's index up to date: each turn reads it.
            run.context().ledger().head()?;
            run.context().journals().list()
        };
        let journals = match read_journals() {
            Ok(left) => left,
            Err(error) => {
                for (queued, _) in locked {
                    let event = run.new_step_event(queued.step);
                    self.end_refused(error.clone(), event, queued.lock);
                }
                return Vec::new();
            }
        };
        let mut done = Vec::with_capacity(locked.len());
        let journals = Arc::new(journals);
        if threads.is_some() {
            let locked = locked.drain(..).collect();
            let journals = Arc::clone(&journals);
            done = map_agents(threads, locked, move |(queued, agent)| {
                run.capture(queued, agent, &journals)
            });
        }
        while let Some((queued, agent)) = locked.pop_front() {
            done.push(run.capture(queued, agent, &journals));
            let passed = run.context().clock().instant().duration_since(began);
            if passed > MAX_LOCAL_BATCH_TIME || run.is_cancelled() {
                break;
            }
        }
        self.lock_limit = if locked.is_empty() {
            self.lock_limit.saturating_mul(2)
        } else {
            done.len().max(1)
        };
        while let Some((mut queued, _)) = locked.pop_back() {
            // A turn that has not begun releases its lock, so that other runs do not wait for it.
            if queued.attempts == 0 && queued.leased_since.is_none() {
                queued.lock = None;
            }
            self.queue.push_front(queued);
        }
        self.batch_length = done.len();
        self.end_uncaptured(done)
    }

    /// Ends the turns that have nothing to replace, and returns the others.
    fn end_uncaptured(&mut self, done: Vec<CaptureOutcome<'a>>) -> Turns<'a, Vec<Captured>> {
        let run = self.run;
        let mut turns = Vec::with_capacity(done.len());
        for began in done {
            match began {
                CaptureOutcome::Captured(turn, captured) => turns.push((turn, captured)),
                CaptureOutcome::Unchanged(turn) => self.end_unchanged_turn(turn),
                CaptureOutcome::EndedEarly(turn, early_end) => {
                    self.abort_or_requeue(turn, early_end)
                }
                CaptureOutcome::Refused(queued, error) => {
                    self.end_refused(error, run.new_step_event(queued.step), queued.lock);
                }
            }
        }
        turns
    }

    /// Appends to the journals that the files were replaced.
    fn mark_swapped(&mut self, turns: Turns<'a, (PreparedSwap, Vec<SwapOutcome>)>) {
        let run = self.run;
        let first = self.unsettled.len();
        let mut batch = SyncBatch::default();
        for (number, (mut turn, (prepared, outcomes))) in turns.into_iter().enumerate() {
            let PreparedSwap { journal, files } = prepared;
            let scratch_lines = files.iter().map(|file| file.captured.scratch_lines).sum();
            let mut displaced = Vec::with_capacity(files.len());
            let swapped = files.into_iter().zip(outcomes).enumerate();
            for (file, (prepared, outcome)) in swapped {
                let SwapOutcome {
                    method,
                    displaced: names,
                } = outcome;
                let record = JournalRecord::Swapped {
                    file,
                    method,
                    displaced: names.clone(),
                };
                let is_journaled = journal.append(&record).is_ok();
                let mut known_digests = prepared.known_digests;
                // After a write in place, the staged file is among the displaced ones.
                let after = turn.event.file_changes()[file].after.as_ref();
                known_digests.extend(after.and_then(FileState::digest));
                displaced.push(DisplacedFiles {
                    file,
                    names,
                    remaining_names: Vec::new(),
                    known_digests,
                    archived_content: prepared.archived_content,
                    late_writes: HashMap::new(),
                    // Settling appends it again, and fails without it.
                    unmarked_swap: (!is_journaled).then_some(method),
                });
            }
            if displaced.iter().any(|it| it.unmarked_swap.is_none()) {
                batch.add(first + number, journal.unsynced());
            }
            run.report_stage(&turn.agent.name, RunStage::Settle);
            self.unsettled.push(ReplacedTurn {
                journal,
                displaced,
                deadline: run.context().clock().instant() + SETTLE_TIMEOUT,
                scratch_lines,
                notes: turn.event.note.take().into_iter().collect(),
                kind: None,
                turn,
            });
        }
        for (number, _) in batch.sync() {
            let replaced = &mut self.unsettled[number];
            let changes = replaced.turn.event.file_changes();
            for (displaced, change) in replaced.displaced.iter_mut().zip(changes) {
                displaced.unmarked_swap = change.method;
            }
        }
    }

    /// Returns the latest settle time of the unsettled turns that have one. On a host each attempt
    /// to settle costs a round trip, so all of them are settled at that time.
    fn last_settle_time(&self) -> Option<Instant> {
        self.unsettled
            .iter()
            .filter_map(|it| it.turn.next_settle_time())
            .max()
    }

    /// Waits for late writers, then tries to settle again.
    fn wait_for_writers(&mut self, threads: Threads<'_, '_, 'r>) {
        let clock = self.run.context().clock();
        let now = clock.instant();
        let delay = match (self.last_settle_time(), threads.is_some()) {
            (Some(due), _) => due.saturating_duration_since(now),
            (None, true) => Duration::from_millis(50),
            (None, false) => Duration::from_millis(10),
        };
        clock.sleep(delay);
        self.settle_turns(threads);
        self.record_ended_turns();
    }

    /// Takes step 4 for every unsettled turn; those with open displaced files stay unsettled.
    fn settle_turns(&mut self, threads: Threads<'_, '_, 'r>) {
        let run = self.run;
        let unsettled = std::mem::take(&mut self.unsettled);
        let results = map_agents(threads, unsettled, move |mut replaced: ReplacedTurn<'a>| {
            let settled = replaced.settle(run);
            (replaced, settled)
        });
        let mut finished = Vec::new();
        for (mut replaced, settled) in results {
            let left = replaced.displaced_names();
            match settled {
                Ok(()) if left.is_empty() => {}
                Ok(()) if replaced.displaced.iter().all(DisplacedFiles::is_deferred) => replaced.add_note(format!(
                    "the displaced file keeps changing; it stays as {left} until a run finds it \
                     unchanged"
                )),
                Ok(()) if run.context().clock().instant() < replaced.deadline => {
                    self.unsettled.push(replaced);
                    continue;
                }
                Ok(()) => replaced.add_note(format!(
                    "a writer has the displaced file open; it stays as {left} until the next run"
                )),
                Err(error) => {
                    replaced.raise_kind(error.kind());
                    replaced.add_note(if left.is_empty() {
                        error.to_string()
                    } else {
                        format!("cannot settle the displaced file {left}: {error}")
                    });
                }
            }
            finished.push(replaced);
        }
        let mut batch = SyncBatch::default();
        for (number, replaced) in finished.iter().enumerate() {
            batch.add(number, replaced.turn.take_unsynced());
        }
        let mut failed: HashMap<usize, Error> = batch.sync().into_iter().collect();
        let read = map_agents(threads, finished, move |replaced: ReplacedTurn<'a>| {
            run.report_stage(&replaced.turn.agent.name, RunStage::Verify);
            let back = replaced.read_back();
            (replaced, back)
        });
        for (number, (replaced, back)) in read.into_iter().enumerate() {
            self.end_turn(replaced, back, failed.remove(&number));
        }
    }

    /// Takes step 5 except for the ledger record.
    fn end_turn(
        &mut self,
        mut replaced: ReplacedTurn<'a>,
        read_back: Result<ReadBack, Error>,
        unsynced: Option<Error>,
    ) {
        if let Some((note, problem)) = describe_read_back(read_back) {
            replaced.add_note(note);
            if let Some(kind) = problem {
                replaced.raise_kind(kind);
            }
        }
        // Otherwise the journal stays, so that the next run settles the rest.
        let is_finished = replaced.displaced_names().is_empty() && unsynced.is_none();
        if let Some(error) = unsynced {
            replaced.raise_kind(error.kind());
            replaced.add_note(error.to_string());
        }
        let Turn { queued, agent, .. } = &replaced.turn;
        let removed = &queued.step.removed_directories;
        if is_finished
            && let Err(error) = self
                .run
                .remove_directories(agent, removed, queued.lock.as_ref())
        {
            replaced.raise_kind(error.kind());
            replaced.add_note(error.to_string());
        }
        let ReplacedTurn {
            turn,
            journal,
            scratch_lines,
            notes,
            kind,
            ..
        } = replaced;
        let mut event = turn.event;
        event.outcome = Outcome::Ok;
        event.duration_ms = elapsed_millis(turn.began_at, self.run.context().clock().instant());
        event.note = (!notes.is_empty()).then(|| notes.join("; "));
        let open_journal = EntryJournal::Open(journal.as_ref());
        let released = self
            .run
            .screening()
            .screen_entries(turn.agent, &mut event, open_journal);
        self.log_replaced(&event);
        self.ended_turns.push(EndedTurn {
            scratch_lines,
            released,
            journal_path: is_finished.then(|| journal.path().to_path_buf()),
            ..EndedTurn::new(event, kind, turn.queued.lock)
        });
    }
}

/// Applies `act` to each item: on threads at the same time, or one after the other here.
fn map_agents<'r, T: Send + 'r, U: Send + 'r>(
    threads: Threads<'_, '_, 'r>,
    items: Vec<T>,
    act: impl Fn(T) -> U + Send + Sync + 'r,
) -> Vec<U> {
    match threads {
        Some(threads) => threads.map(items, act),
        None => items.into_iter().map(act).collect(),
    }
}

/// Syncs the changes of a step. Returns the turns whose sync succeeded, and those whose sync
/// failed.
fn sync_turns<'a, T>(
    mut turns: Turns<'a, T>,
    mut changed: impl FnMut(&Turn<'a>, &mut T) -> Vec<UnsyncedObject>,
) -> (Turns<'a, T>, Turns<'a, Error>) {
    let mut batch = SyncBatch::default();
    for (number, (turn, data)) in turns.iter_mut().enumerate() {
        batch.add(number, changed(turn, data));
    }
    let mut failed: HashMap<usize, Error> = batch.sync().into_iter().collect();
    let (mut kept, mut left) = (Vec::with_capacity(turns.len()), Vec::new());
    for (number, (turn, data)) in turns.into_iter().enumerate() {
        match failed.remove(&number) {
            None => kept.push((turn, data)),
            Some(error) => left.push((turn, error)),
        }
    }
    (kept, left)
}
