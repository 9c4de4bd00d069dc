//! Observation of agents: reads their memories where needed, and determines their state, the
//! reason, and what blocks a reset.

pub(in crate::engine) mod memory_text;

use std::cell::OnceCell;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, FixedOffset};

use super::classified_content::{ClassifiedContent, NO_MEMORY_REASON, describe_oversize};
use super::content_cache::{ContentKey, ScannedText};
use super::degraded::replacement_degradation;
use super::known_fleet::KnownFleet;
use super::memory_health::MemoryHealthFacts;
use super::similar_names::SimilarFile;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::baseline::{BaselineCache, BaselineRefusal};
use crate::boundary::{Baseline, MAX_WINDOW_BYTES, MemoryAccumulator, classify};
use crate::config::Agent;
use crate::engine::shared_memories::sharing_error;
use crate::engine::watch::Observer;
use crate::store::address::{MemoryAddress, host_name};
use crate::store::agent_history::AgentHistory;
use crate::store::lease::{LeaseSurvey, LockHolder, describe_lock};
use crate::store::observation::{Blocker, Observation};
use crate::store::state::State;
use crate::transport::{
    FailureCause, FileMetadata, MemoryDirectory, MemoryObject, SpecialFile, Stamp, Transport,
    TransportError,
};

/// Maximum bytes of memories that are read in one batch, unless a single one is longer.
const BATCH_READ_BYTES: u64 = 8 << 20;

/// Maximum number of files in one batch. All of them are open at once, and servers limit open
/// files.
const BATCH_READ_FILES: usize = 256;

/// Number of these files that fit into one batch.
fn batch_length(files: &[(usize, FileMetadata)]) -> usize {
    let mut sum = 0_u64;
    let fits = |(_, file): &&(usize, FileMetadata)| {
        sum = sum.saturating_add(file.stamp.size);
        sum <= BATCH_READ_BYTES
    };
    files
        .iter()
        .take(BATCH_READ_FILES)
        .take_while(fits)
        .count()
        .max(1)
}

/// The outcome of a probe or read of an agent's memory on a host; none before the read.
type HostOutcome = Option<Result<ObservedMemory, TransportError>>;

fn memories_of<'a>(agents: &[&'a Agent]) -> Vec<&'a Path> {
    agents.iter().map(|agent| agent.observed_path()).collect()
}

/// State of the memory's path, classified.
enum ObservedMemory {
    Absent,
    Special(SpecialFile),
    File(Box<ClassifiedContent>, Option<ClassifiedBytes>),
}

/// The bytes that were classified.
struct ClassifiedBytes {
    prefix: Vec<u8>,
    version: Arc<Baseline>,
}

/// An observation with the bytes that it is based on.
pub(in crate::engine) struct ObservedAgent {
    pub observation: Observation,
    /// What the path holds, if it is not a file that can be read.
    pub special_file: Option<SpecialFile>,
    /// The file that a missing memory may be.
    pub similar_file: Option<SimilarFile>,
    /// The beginning of the memory, at least [`crate::engine::MAX_WINDOW_BYTES`] bytes of it.
    pub prefix: Vec<u8>,
    /// The version that the memory was measured against.
    pub version: Option<Arc<Baseline>>,
    /// The baseline, unless resets refuse it.
    pub baseline: Option<Arc<Baseline>>,
    /// The baseline version that was pushed last, if one was.
    pub pushed_version: Option<Digest>,
}

/// An observation of a local agent, with the stamps from before its read.
pub(in crate::engine) struct QuickObservation {
    pub observation: Observation,
    pub memory_stamp: Stamp,
    pub directory_stamp: Stamp,
}

/// An agent before its memory is probed, with what this machine knows of it.
struct ObservationSubject<'c> {
    observer: &'c Observer,
    agent: &'c Agent,
    generation: u64,
    history: AgentHistory,
    /// See [`Baselines::earlier_digests`].
    earlier_digests: Vec<Digest>,
    ledger_error: Option<String>,
    baseline: Result<Arc<Baseline>, BaselineRefusal>,
    /// See [`ObservationSubject::earlier_versions`].
    earlier_versions: OnceCell<Vec<Arc<Baseline>>>,
    /// Whether a run may have left something unsettled.
    may_have_journal: bool,
    /// Who works on the agents of a fleet.
    leases: Option<&'c dyn LeaseSurvey>,
}

impl ObservationSubject<'_> {
    /// The version that the memory is measured against: the baseline, or the last pushed version
    /// where the baseline cannot be used.
    fn reference_baseline(&self) -> Option<&Arc<Baseline>> {
        let baseline = self.baseline.as_ref().ok();
        baseline.or_else(|| self.earlier_versions().first())
    }

    /// The earlier versions that can be read; a memory whose content is known needs none.
    fn earlier_versions(&self) -> &[Arc<Baseline>] {
        self.earlier_versions.get_or_init(|| {
            let current = self.baseline.as_ref().ok();
            self.observer
                .baselines
                .earlier_versions(self.agent, &self.history, current)
        })
    }

    /// Whether each pushed version can be read.
    fn are_earlier_versions_known(&self) -> bool {
        self.earlier_versions().len() >= self.history.pushed_versions.len()
    }

    /// The reference baseline, or an empty one.
    fn reference_or_empty(&self) -> Arc<Baseline> {
        let none = || Arc::new(self.agent.cut_baseline(Vec::new()));
        self.reference_baseline().map_or_else(none, Arc::clone)
    }

    fn content_key(&self, stamp: Stamp) -> ContentKey {
        ContentKey {
            stamp,
            baseline: self.reference_or_empty().digest(),
            earlier_versions: self.earlier_digests.clone(),
        }
    }
}

/// The conditions that hold for an agent. Each has a state and a reason, which may be empty; some
/// keep the agent from being reset.
#[derive(Default)]
struct Conditions {
    found: Vec<(State, String)>,
    blockers: Vec<Blocker>,
}

impl Conditions {
    fn add(&mut self, state: State, reason: impl Into<String>) {
        self.found.push((state, reason.into()));
    }

    fn add_blocking(&mut self, state: State, error: &Error) {
        self.add(state, error.to_string());
        self.blockers.push(Blocker::from_error(error));
    }

    /// Adds the missing memory, and the similar file beside it.
    fn add_missing(&mut self, similar: Option<&SimilarFile>) {
        let Some(similar) = similar else {
            return self.add(State::Missing, NO_MEMORY_REASON);
        };
        let reason = format!("{NO_MEMORY_REASON}, but {}", similar.describe());
        self.add(State::Missing, reason);
        let refusal = similar.refusal.iter().map(Blocker::from_error);
        self.blockers.extend(refusal);
    }

    /// Sets state, reason and blocker of an observation; the worst condition decides. A lock is no
    /// reason of a worse state: the holder and the blocker say it, and the reason outlasts the lock.
    fn apply_to(mut self, observation: &mut Observation) {
        self.found.sort_by_key(|(state, _)| *state);
        observation.state = self.found.first().map_or(State::Clean, |(state, _)| *state);
        let is_reason = |(state, reason): &&(State, String)| {
            let is_lock = *state == State::Busy && observation.state != State::Busy;
            !reason.is_empty() && !is_lock
        };
        let reasons = self.found.iter().filter(is_reason);
        let reasons: Vec<&str> = reasons.map(|(_, reason)| reason.as_str()).collect();
        observation.reason = reasons.join("; ");
        observation.blocker = self.blockers.into_iter().reduce(|a, b| {
            if a.kind.more_serious(b.kind) == a.kind {
                a
            } else {
                b
            }
        });
    }
}

impl Observer {
    /// Makes sure that the observations of agents that begin from now on read their memories, whatever
    /// their stamps, and scan them by the decisions that are in force now.
    pub(in crate::engine) fn forget_contents(&self, agents: &[String]) {
        self.scanner.forget_scan_decisions();
        self.content_cache.forget(agents, self.next_generation());
    }

    /// Observes an agent. Reads its memory only if its stamp changed.
    pub fn observe(&self, agent: &Agent) -> Observation {
        let _span = tracing::debug_span!("observe", agent = agent.name).entered();
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let subject = self.prepare_subject(agent, self.context.history(&agent.name), &baselines);
        self.observe_prepared(subject, false).observation
    }

    /// Observes an agent of this machine by what is known of the whole fleet.
    pub(in crate::engine) fn observe_as_one_of_many<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
        known: &KnownFleet,
    ) -> Observation {
        let _span = tracing::debug_span!("observe", agent = agent.name).entered();
        let subject = self.subject_of_many(agent, baselines, known);
        self.observe_prepared(subject, false).observation
    }

    /// As [`Observer::observe_as_one_of_many`], if the memory is a file that is read in no time.
    pub(in crate::engine) fn observe_if_quick<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
        known: &KnownFleet,
    ) -> Option<QuickObservation> {
        let _span = tracing::debug_span!("observe", agent = agent.name).entered();
        let directory = self.context.open_directory(agent).ok()?;
        let directory_stamp = directory.stamp()?;
        let stamp = match directory.stat_memory() {
            Ok(MemoryObject::File(file)) if file.stamp.size <= MAX_WINDOW_BYTES as u64 => {
                file.stamp
            }
            _ => return None,
        };
        let subject = self.subject_of_many(agent, baselines, known);
        let directory = Some(&*directory);
        let outcome = self.observe_file(&subject, directory, stamp, false);
        Some(QuickObservation {
            observation: self
                .build_observed_agent(subject, directory, outcome)
                .observation,
            memory_stamp: stamp,
            directory_stamp,
        })
    }

    fn subject_of_many<'s, 'c: 's>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
        known: &'s KnownFleet,
    ) -> ObservationSubject<'s> {
        ObservationSubject {
            may_have_journal: known.journaled.contains(&agent.name),
            leases: Some(known.leases.as_ref()),
            ..self.prepare_subject(agent, known.history(&self.context, agent), baselines)
        }
    }

    /// Observes agents of one host: one round trip probes their memories, two more read those that
    /// changed.
    pub(in crate::engine) fn observe_host_agents(&self, agents: &[&Agent]) -> Vec<Observation> {
        let Some(first) = agents.first() else {
            return Vec::new();
        };
        let _span = tracing::debug_span!(
            "observe host",
            host = host_name(first),
            agents = agents.len()
        )
        .entered();
        let transport = self.context.transport_for(first);
        let subjects = self.prepare_subjects(agents);
        let probed = transport.probe(&memories_of(agents));
        let (mut outcomes, changed) = self.split_probed(&subjects, probed);
        let mut rest = changed.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at(batch_length(rest));
            self.read_host_memories(&*transport, &subjects, some, &mut outcomes);
            rest = others;
        }
        self.build_observations(subjects, outcomes)
    }

    /// Observes agents of one host from a probe that began at this generation. Sends no requests, so
    /// it returns `None` if a memory has to be read.
    pub(in crate::engine) fn observe_probed_agents(
        &self,
        agents: &[&Agent],
        generation: u64,
        probed: Vec<Result<MemoryObject, TransportError>>,
    ) -> Option<Vec<Observation>> {
        let mut subjects = self.prepare_subjects(agents);
        for subject in &mut subjects {
            subject.generation = generation;
        }
        let (outcomes, changed) = self.split_probed(&subjects, probed);
        changed
            .is_empty()
            .then(|| self.build_observations(subjects, outcomes))
    }

    /// Prepares agents of one host.
    fn prepare_subjects<'c>(&'c self, agents: &[&'c Agent]) -> Vec<ObservationSubject<'c>> {
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let journaled = self.context.journals().agents();
        let subjects = agents.iter().map(|agent| ObservationSubject {
            may_have_journal: journaled.contains(&agent.name),
            ..self.prepare_subject(agent, self.context.history(&agent.name), &baselines)
        });
        subjects.collect()
    }

    /// Splits probed objects into outcomes that are known, and files that have to be read.
    fn split_probed(
        &self,
        subjects: &[ObservationSubject<'_>],
        probed: Vec<Result<MemoryObject, TransportError>>,
    ) -> (Vec<HostOutcome>, Vec<(usize, FileMetadata)>) {
        let mut outcomes: Vec<HostOutcome> = Vec::new();
        let mut changed: Vec<(usize, FileMetadata)> = Vec::new();
        for (number, (subject, object)) in subjects.iter().zip(probed).enumerate() {
            outcomes.push(match object {
                Ok(MemoryObject::Absent) => Some(Ok(ObservedMemory::Absent)),
                Ok(MemoryObject::Special(special)) => Some(Ok(ObservedMemory::Special(special))),
                Ok(MemoryObject::File(file)) => match self.cached_content(subject, file.stamp) {
                    Some(classified) => Some(Ok(ObservedMemory::File(classified, None))),
                    None => {
                        changed.push((number, file));
                        None
                    }
                },
                Err(error) => Some(Err(error)),
            });
        }
        (outcomes, changed)
    }

    fn build_observations(
        &self,
        subjects: Vec<ObservationSubject<'_>>,
        outcomes: Vec<HostOutcome>,
    ) -> Vec<Observation> {
        let seen = subjects
            .into_iter()
            .zip(outcomes)
            .map(|(subject, outcome)| {
                let outcome = outcome.unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Internal, "no reply to a probe").into())
                });
                self.build_observed_agent(subject, None, outcome)
                    .observation
            });
        seen.collect()
    }

    /// Reads the memories that changed, in one batch.
    fn read_host_memories(
        &self,
        transport: &dyn Transport,
        subjects: &[ObservationSubject<'_>],
        changed: &[(usize, FileMetadata)],
        outcomes: &mut [HostOutcome],
    ) {
        let files = changed.iter().map(|(number, file)| {
            let memory = subjects[*number].agent.observed_path();
            (memory, file)
        });
        let files: Vec<(&Path, &FileMetadata)> = files.collect();
        let measures = changed
            .iter()
            .map(|(number, _)| subjects[*number].reference_or_empty());
        let mut readings: Vec<MemoryAccumulator> = measures
            .map(|it| MemoryAccumulator::for_baseline(&it))
            .collect();
        let began = self.context.clock().now();
        let read = transport.read_batch(&files, &mut |place, piece| {
            if let Some(reading) = readings.get_mut(place) {
                reading.push(piece);
            }
        });
        for (((number, _), read), reading) in changed.iter().zip(read).zip(readings) {
            let subject = &subjects[*number];
            outcomes[*number] = Some(self.classify_and_cache(subject, began, read, reading, false));
        }
    }

    /// Observes an agent and reads its memory even if its stamp is unchanged.
    pub(in crate::engine) fn observe_with_bytes<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> ObservedAgent {
        let history = self.context.history(&agent.name);
        self.observe_prepared(self.prepare_subject(agent, history, baselines), true)
    }

    /// Observes an agent; reads a memory whose stamp is unchanged only if `bytes` is set.
    fn observe_prepared(&self, subject: ObservationSubject<'_>, bytes: bool) -> ObservedAgent {
        let agent = subject.agent;
        // A read that happens in any case needs no probe first, which would cost a round trip to a
        // host. On this machine one open directory serves all that follows.
        let opened = (bytes || agent.host().is_none()).then(|| self.context.open_directory(agent));
        match opened.transpose() {
            Ok(directory) => {
                let outcome = self.observe_memory(&subject, directory.as_deref(), bytes);
                self.build_observed_agent(subject, directory.as_deref(), outcome)
            }
            Err(error) => self.build_observed_agent(subject, None, Err(error)),
        }
    }

    fn prepare_subject<'c>(
        &'c self,
        agent: &'c Agent,
        history: Result<AgentHistory, Error>,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> ObservationSubject<'c> {
        let generation = self.next_generation();
        let (history, ledger_error) = match history {
            Ok(history) => (history, None),
            Err(error) => (AgentHistory::default(), Some(error.to_string())),
        };
        let loaded = baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .load(agent);
        ObservationSubject {
            observer: self,
            agent,
            generation,
            earlier_digests: self.baselines.earlier_digests(agent, &history),
            history,
            ledger_error,
            baseline: loaded,
            earlier_versions: OnceCell::new(),
            may_have_journal: true,
            leases: None,
        }
    }

    /// Builds the observation from the outcome of a probe or read.
    /// `directory` is the memory's, if it is open.
    fn build_observed_agent(
        &self,
        subject: ObservationSubject<'_>,
        directory: Option<&dyn MemoryDirectory>,
        memory: Result<ObservedMemory, TransportError>,
    ) -> ObservedAgent {
        let mut conditions = Conditions::default();
        if subject.agent.reset.is_some()
            && let Err(refusal) = &subject.baseline
        {
            let state = match refusal {
                BaselineRefusal::Tampered(_) => State::Tampered,
                BaselineRefusal::Unusable(_) => State::Error,
            };
            conditions.add_blocking(state, refusal.error());
        }
        let mut seen = ObservedAgent {
            observation: self.unread_observation(&subject),
            special_file: None,
            similar_file: None,
            prefix: Vec::new(),
            version: None,
            baseline: subject.baseline.as_ref().ok().map(Arc::clone),
            pushed_version: subject.history.pushed_versions.first().copied(),
        };
        self.apply_memory(&subject, directory, memory, &mut seen, &mut conditions);
        self.add_replacement_conditions(&subject, directory, &mut conditions);
        self.add_health_conditions(subject.agent, &mut seen.observation, &mut conditions);
        seen.observation.lock_holder = self.add_run_conditions(&subject, &mut conditions);
        conditions.apply_to(&mut seen.observation);
        seen
    }

    /// An observation without content.
    fn unread_observation(&self, subject: &ObservationSubject<'_>) -> Observation {
        let agent = subject.agent;
        Observation {
            agent: agent.name.clone(),
            host: host_name(agent),
            address: Some(MemoryAddress::of_agent(agent)),
            state: State::Error,
            reason: String::new(),
            blocker: None,
            hints: Vec::new(),
            protection: agent.protect,
            read_at: self.context.clock().now(),
            generation: subject.generation,
            max_size: agent.reset.as_ref().map_or(0, |it| it.max_size),
            content: None,
            is_absent: false,
            is_directory: false,
            health: None,
            baseline: subject.baseline.as_ref().ok().map(|it| it.digest()),
            last_run: subject.history.last_run.clone(),
            ledger_error: subject.ledger_error.clone(),
            lock_holder: None,
        }
    }

    /// Adds the memory's content, or what the path holds instead, and the conditions that follow
    /// from it.
    fn apply_memory(
        &self,
        subject: &ObservationSubject<'_>,
        directory: Option<&dyn MemoryDirectory>,
        memory: Result<ObservedMemory, TransportError>,
        seen: &mut ObservedAgent,
        conditions: &mut Conditions,
    ) {
        let agent = subject.agent;
        let observation = &mut seen.observation;
        match memory {
            Ok(ObservedMemory::Special(SpecialFile::Directory)) if agent.reset.is_none() => {
                observation.is_directory = true;
                conditions.add(State::Layout, "");
            }
            Ok(ObservedMemory::Absent) if agent.reset.is_none() => {
                observation.is_absent = true;
                conditions.add(State::Missing, "memory_dir does not exist");
            }
            Ok(ObservedMemory::Special(special)) if agent.reset.is_none() => {
                let reason = format!("memory_dir is {special}, not a directory");
                conditions.add(State::Error, self.scanner.mask_secrets_in(&reason));
            }
            Ok(ObservedMemory::File(..)) if agent.reset.is_none() => {
                conditions.add(State::Error, "memory_dir is a file, not a directory");
            }
            Ok(ObservedMemory::Absent) => {
                observation.is_absent = true;
                seen.similar_file = directory
                    .and_then(|it| self.checks.find_similar_file(agent, &subject.history, it));
                conditions.add_missing(seen.similar_file.as_ref());
            }
            Ok(ObservedMemory::Special(special)) => {
                if let SpecialFile::ForeignHardLink(_) = special {
                    observation.hints.push(foreign_link_hint(agent));
                }
                if let Some(error) =
                    self.checks
                        .misplacement_error(agent, &subject.history, &special)
                {
                    let reason = format!("it is {special}; a reset refuses it");
                    conditions.add(State::Error, self.scanner.mask_secrets_in(&reason));
                    conditions.blockers.push(Blocker::from_error(&error));
                } else {
                    conditions.add(State::Error, self.scanner.describe_special(agent, &special));
                }
                seen.special_file = Some(special);
            }
            Ok(ObservedMemory::File(classified, bytes)) => {
                let size = classified.content.size;
                if let Some(reason) = describe_oversize(size, agent.max_memory_size()) {
                    conditions.add(State::Oversize, reason);
                }
                // Measured against nothing, every memory would be drift.
                let is_measured = subject.reference_baseline().is_some();
                if is_measured {
                    conditions.add(classified.state, classified.reason);
                }
                observation.content = Some(classified.content);
                if let Some(bytes) = bytes {
                    seen.prefix = bytes.prefix;
                    seen.version = is_measured.then_some(bytes.version);
                }
            }
            Err(error) => {
                let state = match error.cause {
                    FailureCause::HostKeyMismatch => State::HostKey,
                    FailureCause::Unreachable => State::Unreach,
                    _ => State::Error,
                };
                conditions.add_blocking(state, &error.into());
            }
        }
    }

    /// Adds what the last check of the memory of several files found.
    fn add_health_conditions(
        &self,
        agent: &Agent,
        observation: &mut Observation,
        conditions: &mut Conditions,
    ) {
        let Some(layout) = &agent.layout else {
            return;
        };
        let MemoryHealthFacts { known, failure } = self.health.facts(agent);
        observation.health = known.clone();
        if agent.reset.is_none() && !observation.is_directory {
            // What is known is of another time.
            return;
        }
        let state = match agent.reset {
            // This has no state of its own.
            Some(_) => State::Clean,
            None => State::Layout,
        };
        let (state, text) = match (&failure, &known) {
            (Some(why), _) => (State::Error, format!("cannot check its health: {why}")),
            (None, Some(known)) if known.is_ill() => (State::Ill, known.describe()),
            (None, Some(known)) if known.worst.is_none() && agent.reset.is_some() => return,
            (None, Some(known)) => (state, known.describe()),
            (None, None) => (state, "health not checked yet".to_string()),
        };
        let reason = format!("{}: {text}", layout.name);
        conditions.add(state, self.scanner.mask_secrets_in(&reason));
    }

    /// Adds why the memory cannot be replaced, and what earlier runs kept beside it.
    fn add_replacement_conditions(
        &self,
        subject: &ObservationSubject<'_>,
        directory: Option<&dyn MemoryDirectory>,
        conditions: &mut Conditions,
    ) {
        let agent = subject.agent;
        if agent.reset.is_none() {
            return;
        }
        let is_clean = conditions
            .found
            .iter()
            .all(|(state, _)| *state == State::Clean);
        if conditions.blockers.is_empty()
            && !is_clean
            && let Some(directory) = directory
            && let Err(error) = replacement_degradation(agent, directory)
        {
            conditions.add_blocking(State::Error, &error);
        }
        if let Some(note) = self.checks.kept_objects_note(agent, &subject.history) {
            // This has no state of its own.
            conditions.add(State::Clean, note);
        }
        if let Some(other) = self.shared_memories.known_sharing_agent(agent) {
            conditions.add_blocking(State::Error, &sharing_error(&other));
        }
    }

    /// Adds whether a run is at work on the agent, or left something unsettled. Returns that run, if it
    /// has written who it is.
    fn add_run_conditions(
        &self,
        subject: &ObservationSubject<'_>,
        conditions: &mut Conditions,
    ) -> Option<LockHolder> {
        let agent = subject.agent;
        let held = match subject.leases {
            Some(leases) => leases.find_held(&agent.name),
            None => self.context.leases().find_held(&agent.name),
        };
        match held {
            Some(held) => {
                let reason = describe_lock(
                    held.holder.as_ref(),
                    self.context.clock().now(),
                    self.context.clock().zone(),
                );
                conditions.add_blocking(State::Busy, &Error::new(ErrorKind::Busy, reason));
                return held.holder;
            }
            // This has no state of its own: the classification of the memory holds.
            // A run may have ended since the journals were listed.
            None if subject.may_have_journal
                && self.context.journals().has_journal(&agent.name) =>
            {
                conditions.add(State::Clean, self.describe_unsettled_run(agent));
            }
            None => {}
        }
        None
    }

    /// Says that a run was interrupted or could not finish, while no run is at work on the agent
    /// now. A plan skips an unchanged agent, so only the command line settles it in any case.
    pub(in crate::engine) fn describe_unsettled_run(&self, agent: &Agent) -> String {
        let left = "a run left something unsettled";
        if agent.reset.is_none() {
            return format!("{left}; the next operation on the memory, or undo, settles it");
        }
        let reset = format!("reset {}", agent.name);
        let command = self.context.config().invocation.command_line(&reset);
        format!("{left}; `{command}` settles it")
    }

    fn observe_memory(
        &self,
        subject: &ObservationSubject<'_>,
        directory: Option<&dyn MemoryDirectory>,
        bytes: bool,
    ) -> Result<ObservedMemory, TransportError> {
        let object = match directory {
            Some(directory) => directory.stat_memory()?,
            None => self.context.probe_memory(subject.agent)?,
        };
        let file = match object {
            MemoryObject::Absent => return Ok(ObservedMemory::Absent),
            MemoryObject::Special(special) => return Ok(ObservedMemory::Special(special)),
            MemoryObject::File(file) => file,
        };
        self.observe_file(subject, directory, file.stamp, bytes)
    }

    /// Observes a memory that is a file with this stamp.
    fn observe_file(
        &self,
        subject: &ObservationSubject<'_>,
        directory: Option<&dyn MemoryDirectory>,
        stamp: Stamp,
        bytes: bool,
    ) -> Result<ObservedMemory, TransportError> {
        if !bytes && let Some(classified) = self.cached_content(subject, stamp) {
            return Ok(ObservedMemory::File(classified, None));
        }
        let agent = subject.agent;
        let began = self.context.clock().now();
        let mut reading = MemoryAccumulator::for_baseline(&subject.reference_or_empty());
        let mut add = |piece: &[u8]| {
            reading.push(piece);
            Ok(())
        };
        let read = match directory {
            Some(directory) => directory.read_memory(&mut add),
            None => self.context.open_directory(agent)?.read_memory(&mut add),
        };
        self.classify_and_cache(subject, began, read, reading, bytes)
    }

    /// Returns the cached content of a memory that has this stamp, if neither baseline nor pushed
    /// versions have changed since.
    fn cached_content(
        &self,
        subject: &ObservationSubject<'_>,
        stamp: Stamp,
    ) -> Option<Box<ClassifiedContent>> {
        let key = subject.content_key(stamp);
        let content = self.content_cache.get(&subject.agent.name, &key)?;
        self.remote_texts
            .confirm(&subject.agent.name, self.context.clock().now());
        Some(Box::new(content))
    }

    /// Classifies what was read from `began` on, and stores it in the cache.
    fn classify_and_cache(
        &self,
        subject: &ObservationSubject<'_>,
        began: DateTime<FixedOffset>,
        read: Result<FileMetadata, TransportError>,
        mut reading: MemoryAccumulator,
        bytes: bool,
    ) -> Result<ObservedMemory, TransportError> {
        let file = match read {
            Err(error) if error.cause == FailureCause::Leased => {
                return Ok(ObservedMemory::Special(SpecialFile::Leased));
            }
            // The file's type changed since the probe: probe again.
            Err(error) if error.cause == FailureCause::Replaced => {
                return self.recheck_kind(subject.agent);
            }
            read => read?,
        };
        let current = subject.reference_or_empty();
        let classification = classify(&reading, &current, subject.earlier_versions());
        if classification.is_identical {
            reading.set_digest(current.digest());
        }
        let decisions = self.scanner.scan_decisions();
        let scanned = ScannedText {
            sha256: reading.digest(),
            boundary: classification.boundary,
            baseline: current.digest(),
            basis: decisions.basis,
        };
        let known = self
            .content_cache
            .findings_in(&subject.agent.name, &scanned);
        let scan = || {
            self.scanner
                .scan_memory(subject.agent, &reading, &classification, &decisions)
        };
        let findings = known.unwrap_or_else(scan);
        let content = ClassifiedContent::new(
            &mut reading,
            &file.stamp,
            &classification,
            &current,
            (findings, decisions.basis),
            self.context.clock(),
        );
        // The cause of a failed read may pass without a new stamp.
        if subject.are_earlier_versions_known() {
            self.content_cache.store(
                (&subject.agent.name, subject.generation),
                subject.content_key(file.stamp),
                content.clone(),
                began,
                self.context.clock(),
            );
        }
        if subject.agent.host().is_some() {
            let now = self.context.clock().now();
            let texts = &self.remote_texts;
            texts.keep(
                &subject.agent.name,
                reading.prefix(),
                classification.boundary,
                now,
            );
        }
        let bytes = bytes.then(|| ClassifiedBytes {
            prefix: reading.into_prefix(),
            version: classification.version.unwrap_or(current),
        });
        Ok(ObservedMemory::File(Box::new(content), bytes))
    }

    /// Probes again after a read found another type of file.
    fn recheck_kind(&self, agent: &Agent) -> Result<ObservedMemory, TransportError> {
        match self.context.open_directory(agent)?.stat_memory()? {
            MemoryObject::Absent => Ok(ObservedMemory::Absent),
            MemoryObject::Special(special) => Ok(ObservedMemory::Special(special)),
            MemoryObject::File(_) => Err(Error::new(
                ErrorKind::Host,
                format!(
                    "{} changes too fast to read it",
                    agent.observed_path().display()
                ),
            )
            .into()),
        }
    }
}

/// Returns what to do about a memory that has a hard link elsewhere.
fn foreign_link_hint(agent: &Agent) -> String {
    let memory = agent.observed_path();
    let directory = memory.parent().unwrap_or(memory);
    let undo = match agent.host() {
        None => ", and an undo puts it back",
        Some(_) => "",
    };
    format!(
        "a reset keeps it beside {} unread{undo}; to have it read and \
         archived, remove its other names (`find / -xdev -samefile` finds them), or give {} to \
         the user who owns the file and let no other user write there",
        memory.display(),
        directory.display()
    )
}
