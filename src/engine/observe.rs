//! Observation of agents: reads their memories where needed, and determines their state, the
//! reason, and what blocks a reset.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::address::{MemoryAddress, host_name};
use super::classify::{Classification, MemoryAccumulator, classify, window_size};
use super::observation::{Blocker, MemoryContent, Observation};
use super::parallel;
use super::shared_memories::sharing_error;
use super::state::State;
use super::{AgentHistory, Engine};
use crate::baseline::{BaselineCache, BaselineRefusal};
use crate::boundary::{self, Baseline, BoundaryRule};
use crate::config::Agent;
use crate::diff;
use crate::digest::Digest;
use crate::engine::lock;
use crate::error::{Error, ErrorKind};
use crate::transport::{
    FailureCause, FileMetadata, MemoryObject, SpecialFile, Stamp, Transport, TransportError,
};
use crate::untrusted;

/// A file whose last change is more recent than this may change again within the same tick of the
/// file system's clock.
pub(super) const RECENT_CHANGE: Duration = Duration::from_millis(50);

/// The same for stamps of whole seconds: a stamp counts as settled once it was first seen this long
/// ago; before, the file is read once more.
const RECENT_CHANGE_COARSE: Duration = Duration::from_secs(2);

/// Maximum lag assumed for a host's clock: a file that is older than this has no recent change.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// Maximum bytes of memories that are read in one batch, unless a single one is longer.
const BATCH_READ_BYTES: u64 = 8 << 20;

/// Time limit of the search for edited lines.
const EDITS_DIFF_TIMEOUT: Duration = Duration::from_millis(50);

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

/// A classified content and the stamps that it depends on: while they stay the same, the file need
/// not be read again.
#[derive(Clone)]
pub(super) struct CachedContent {
    stamp: Stamp,
    /// Time at which this stamp was first seen.
    first_seen: Instant,
    /// Whether another content may have the same stamp.
    is_racy: bool,
    baseline: Digest,
    pushed_versions: Vec<Digest>,
    classified: ClassifiedContent,
}

#[derive(Clone)]
struct ClassifiedContent {
    content: MemoryContent,
    state: State,
    reason: String,
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
    operator_part: Vec<u8>,
}

/// An observation with the bytes that it is based on.
pub(super) struct ObservedAgent {
    pub observation: Observation,
    /// What the path holds, if it is not a file that can be read.
    pub special_file: Option<SpecialFile>,
    /// The beginning of the memory, at least [`super::MAX_WINDOW_BYTES`] bytes of it.
    pub prefix: Vec<u8>,
    /// The operator part that the memory was measured against.
    pub operator_part: Option<Vec<u8>>,
    /// The baseline, unless resets refuse it.
    pub baseline: Option<Arc<Baseline>>,
}

/// An agent before its memory is probed, with what this machine knows of it.
struct ObservationSubject<'c> {
    agent: &'c Agent,
    generation: u64,
    history: AgentHistory,
    ledger_error: Option<String>,
    baseline: Result<Arc<Baseline>, BaselineRefusal>,
    earlier_versions: Vec<Arc<Baseline>>,
}

impl ObservationSubject<'_> {
    /// The version that the memory is measured against: the baseline, or the last pushed version
    /// where the baseline cannot be used.
    fn reference_baseline(&self) -> Option<&Arc<Baseline>> {
        self.baseline
            .as_ref()
            .ok()
            .or(self.earlier_versions.first())
    }

    /// The reference baseline, or an empty one.
    fn reference_or_empty(&self) -> Arc<Baseline> {
        let none = || Arc::new(Baseline::new(Vec::new(), &self.agent.separator));
        self.reference_baseline().map_or_else(none, Arc::clone)
    }
}

impl Engine {
    /// Observes an agent. Reads its memory only if its stamp changed.
    pub fn observe(&self, agent: &Agent) -> Observation {
        let _span = tracing::debug_span!("observe", agent = agent.name).entered();
        let baselines = Mutex::new(BaselineCache::new(self.config()));
        let subject = self.prepare_subject(agent, &baselines);
        let look = self.observe_memory(&subject, false);
        self.build_observed_agent(subject, look).observation
    }

    /// Observes many agents, on several hosts at the same time. The results are in the order of
    /// `agents`.
    pub fn observe_all(&self, agents: &[&Agent]) -> Vec<Observation> {
        self.refresh_shared_memories();
        parallel::map_agents_by_site(
            self,
            agents,
            |agent| self.observe(agent),
            |agents| self.observe_host_agents(agents, || ()),
        )
    }

    /// Observes agents of one host: one round trip probes their memories, two more read those that
    /// changed. Reads wait for `permit` and end before its result is dropped.
    pub(super) fn observe_host_agents<P>(
        &self,
        agents: &[&Agent],
        permit: impl FnOnce() -> P,
    ) -> Vec<Observation> {
        let Some(first) = agents.first() else {
            return Vec::new();
        };
        let _span = tracing::debug_span!(
            "observe host",
            host = host_name(first),
            agents = agents.len()
        )
        .entered();
        let transport = self.transport_for(&first.location);
        let baselines = Mutex::new(BaselineCache::new(self.config()));
        let subjects = agents
            .iter()
            .map(|agent| self.prepare_subject(agent, &baselines));
        let subjects: Vec<ObservationSubject<'_>> = subjects.collect();
        let memories: Vec<&Path> = agents.iter().map(|agent| agent.location.memory()).collect();
        let probed = transport.probe(&memories);
        let mut looks: Vec<Option<Result<ObservedMemory, TransportError>>> = Vec::new();
        let mut changed: Vec<(usize, FileMetadata)> = Vec::new();
        for (number, (subject, object)) in subjects.iter().zip(probed).enumerate() {
            looks.push(match object {
                Ok(MemoryObject::Absent) => Some(Ok(ObservedMemory::Absent)),
                Ok(MemoryObject::Special(odd)) => Some(Ok(ObservedMemory::Special(odd))),
                Ok(MemoryObject::File(file)) => {
                    match self.cached_if_unchanged(subject, &file.stamp) {
                        Some(verdict) => Some(Ok(ObservedMemory::File(verdict, None))),
                        None => {
                            changed.push((number, file));
                            None
                        }
                    }
                }
                Err(error) => Some(Err(error)),
            });
        }
        if !changed.is_empty() {
            let _permit = permit();
            let mut rest = changed.as_slice();
            while !rest.is_empty() {
                let (some, others) = rest.split_at(batch_length(rest));
                self.read_host_memories(&*transport, &subjects, some, &mut looks);
                rest = others;
            }
        }
        let seen = subjects.into_iter().zip(looks).map(|(subject, look)| {
            let look = look.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Internal, "no reply to a probe").into())
            });
            self.build_observed_agent(subject, look).observation
        });
        seen.collect()
    }

    /// Reads the memories that changed, in one batch.
    fn read_host_memories(
        &self,
        transport: &dyn Transport,
        subjects: &[ObservationSubject<'_>],
        changed: &[(usize, FileMetadata)],
        looks: &mut [Option<Result<ObservedMemory, TransportError>>],
    ) {
        let files = changed.iter().map(|(number, file)| {
            let memory = subjects[*number].agent.location.memory();
            (memory, file)
        });
        let files: Vec<(&Path, &FileMetadata)> = files.collect();
        let measures = changed
            .iter()
            .map(|(number, _)| subjects[*number].reference_or_empty());
        let windows: Vec<usize> = measures.map(|it| window_size(&it)).collect();
        let mut readings: Vec<MemoryAccumulator> =
            files.iter().map(|_| MemoryAccumulator::default()).collect();
        let read = transport.read_batch(&files, &mut |place, piece| {
            if let (Some(reading), Some(window)) = (readings.get_mut(place), windows.get(place)) {
                reading.push(piece, *window);
            }
        });
        for (((number, _), read), reading) in changed.iter().zip(read).zip(readings) {
            let subject = &subjects[*number];
            looks[*number] = Some(self.classify_and_cache(subject, read, reading, false));
        }
    }

    /// Observes an agent and reads its memory even if its stamp is unchanged.
    pub(super) fn observe_with_bytes<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> ObservedAgent {
        let subject = self.prepare_subject(agent, baselines);
        let look = self.observe_memory(&subject, true);
        self.build_observed_agent(subject, look)
    }

    fn prepare_subject<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> ObservationSubject<'c> {
        let generation = self.next_generation();
        let (history, ledger_error) = match self.ledger_history(&agent.name) {
            Ok(history) => (history, None),
            Err(error) => (AgentHistory::default(), Some(error.to_string())),
        };
        let loaded = baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .load(agent);
        let earlier = self.earlier_versions(agent, &history, loaded.as_ref().ok());
        ObservationSubject {
            agent,
            generation,
            history,
            ledger_error,
            baseline: loaded,
            earlier_versions: earlier,
        }
    }

    /// Builds the observation from the outcome of a probe or read.
    fn build_observed_agent(
        &self,
        subject: ObservationSubject<'_>,
        look: Result<ObservedMemory, TransportError>,
    ) -> ObservedAgent {
        let agent = subject.agent;
        let measured = subject.reference_baseline().is_some();
        let mut seen = ObservedAgent {
            observation: self.unread_observation(agent, subject.generation),
            special_file: None,
            prefix: Vec::new(),
            operator_part: None,
            baseline: subject.baseline.as_ref().ok().map(Arc::clone),
        };
        let observation = &mut seen.observation;
        observation.last_run.clone_from(&subject.history.last_run);
        observation.ledger_error = subject.ledger_error;
        observation.baseline = seen.baseline.as_ref().map(|baseline| baseline.digest());
        let mut conditions: Vec<(State, String)> = Vec::new();
        let mut blocks: Vec<Blocker> = Vec::new();
        if let Err(refusal) = &subject.baseline {
            let error = refusal.error();
            let state = match refusal {
                BaselineRefusal::Tampered(_) => State::Tampered,
                BaselineRefusal::Unusable(_) => State::Error,
            };
            conditions.push((state, error.to_string()));
            blocks.push(Blocker::from_error(error));
        }
        match look {
            Ok(ObservedMemory::Absent) => {
                observation.is_absent = true;
                conditions.push((State::Missing, "no memory file".to_string()));
            }
            Ok(ObservedMemory::Special(odd)) => {
                conditions.push((State::Error, odd.describe_in_place_of_memory()));
                if let SpecialFile::ForeignHardLink(_) = odd {
                    observation.hints.push(foreign_link_hint(agent));
                }
                if odd == SpecialFile::Directory
                    && let Some(error) = self.directory_error(agent, &subject.history)
                {
                    blocks.push(Blocker::from_error(&error));
                }
                seen.special_file = Some(odd);
            }
            Ok(ObservedMemory::File(verdict, bytes)) => {
                if verdict.content.size > agent.max_memory_size {
                    let why = format!("over the limit of {} bytes", agent.max_memory_size);
                    conditions.push((State::Oversize, why));
                }
                // Measured against nothing, every memory would be drift.
                if measured {
                    conditions.push((verdict.state, verdict.reason));
                }
                observation.content = Some(verdict.content);
                if let Some(bytes) = bytes {
                    seen.prefix = bytes.prefix;
                    seen.operator_part = measured.then_some(bytes.operator_part);
                }
            }
            Err(error) => {
                let state = match error.cause {
                    FailureCause::HostKeyMismatch => State::HostKey,
                    FailureCause::Unreachable => State::Unreach,
                    _ => State::Error,
                };
                conditions.push((state, error.to_string()));
                blocks.push(Blocker::from_error(&error.into()));
            }
        }
        let is_clean = conditions.iter().all(|(state, _)| *state == State::Clean);
        if blocks.is_empty()
            && !is_clean
            && let Some(error) = self.replacement_refusal(agent)
        {
            conditions.push((State::Error, error.to_string()));
            blocks.push(Blocker::from_error(&error));
        }
        if let Some(kept) = self.kept_objects_note(agent, &subject.history) {
            // This has no state of its own.
            conditions.push((State::Clean, kept));
        }
        if let Some(other) = self.known_sharing_agent(agent) {
            let error = sharing_error(&other);
            conditions.push((State::Error, error.to_string()));
            blocks.push(Blocker::from_error(&error));
        }
        let holder = lock::describe_holder(self.archive(), &agent.name);
        if holder.is_none() && self.has_journal(&agent.name) {
            // This has no state of its own: the classification of the memory holds.
            conditions.push((State::Clean, UNSETTLED_REASON.to_string()));
        }
        if let Some(holder) = holder {
            let why = match holder.as_str() {
                "" => "locked by another run".to_string(),
                holder => format!("locked by {holder}"),
            };
            let error = Error::new(ErrorKind::Busy, why);
            conditions.push((State::Busy, error.to_string()));
            blocks.push(Blocker::from_error(&error));
        }
        conditions.sort_by_key(|(state, _)| *state);
        observation.state = conditions.first().map_or(State::Clean, |(state, _)| *state);
        let whys: Vec<&str> = conditions
            .iter()
            .map(|(_, why)| why.as_str())
            .filter(|why| !why.is_empty())
            .collect();
        observation.reason = whys.join("; ");
        observation.blocker = blocks.into_iter().reduce(|a, b| {
            if a.kind.more_serious(b.kind) == a.kind {
                a
            } else {
                b
            }
        });
        seen
    }

    /// An observation without content.
    fn unread_observation(&self, agent: &Agent, generation: u64) -> Observation {
        Observation {
            agent: agent.name.clone(),
            host: host_name(agent),
            address: Some(MemoryAddress::from_location(&agent.location)),
            state: State::Error,
            reason: String::new(),
            blocker: None,
            hints: Vec::new(),
            protection: agent.protect.into(),
            read_at: self.clock().now(),
            generation,
            max_size: agent.max_memory_size,
            content: None,
            is_absent: false,
            baseline: None,
            last_run: None,
            ledger_error: None,
        }
    }

    fn observe_memory(
        &self,
        subject: &ObservationSubject<'_>,
        bytes: bool,
    ) -> Result<ObservedMemory, TransportError> {
        let agent = subject.agent;
        // A read that happens in any case needs no probe first, which would cost a round trip.
        let directory = bytes.then(|| self.open_directory(agent)).transpose()?;
        let object = match &directory {
            Some(directory) => directory.stat_memory()?,
            None => self.probe_memory(&agent.location)?,
        };
        let file = match object {
            MemoryObject::Absent => return Ok(ObservedMemory::Absent),
            MemoryObject::Special(odd) => return Ok(ObservedMemory::Special(odd)),
            MemoryObject::File(file) => file,
        };
        if !bytes && let Some(verdict) = self.cached_if_unchanged(subject, &file.stamp) {
            return Ok(ObservedMemory::File(verdict, None));
        }
        let mut reading = MemoryAccumulator::default();
        let window = window_size(&subject.reference_or_empty());
        let directory = directory.map_or_else(|| self.open_directory(agent), Ok)?;
        let read = directory.read_memory(&mut |piece: &[u8]| {
            reading.push(piece, window);
            Ok(())
        });
        self.classify_and_cache(subject, read, reading, bytes)
    }

    /// Returns the cached content of a memory that has this stamp, if neither baseline nor pushed
    /// versions have changed since.
    fn cached_if_unchanged(
        &self,
        subject: &ObservationSubject<'_>,
        stamp: &Stamp,
    ) -> Option<Box<ClassifiedContent>> {
        let cached = self.cached_content(&subject.agent.name)?;
        let same = !cached.is_racy
            && cached.stamp == *stamp
            && cached.baseline == subject.reference_or_empty().digest()
            && cached.pushed_versions == subject.history.pushed_versions;
        same.then(|| Box::new(cached.classified))
    }

    /// Classifies what was read, and stores it in the cache.
    fn classify_and_cache(
        &self,
        subject: &ObservationSubject<'_>,
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
        let classification = classify(&reading, &current, &subject.earlier_versions);
        let verdict = self.classify_content(&mut reading, &file.stamp, &classification, &current);
        let name = &subject.agent.name;
        let cached = CachedContent {
            stamp: file.stamp,
            first_seen: self.stamp_first_seen(name, &file.stamp),
            is_racy: false,
            baseline: current.digest(),
            pushed_versions: subject.history.pushed_versions.clone(),
            classified: verdict.clone(),
        };
        let fresh = self.is_racy(&cached);
        self.store_cached_content(
            name,
            CachedContent {
                is_racy: fresh,
                ..cached
            },
        );
        let version = classification.version.as_ref().unwrap_or(&current);
        let bytes = bytes.then(|| ClassifiedBytes {
            prefix: reading.prefix,
            operator_part: version.operator_part().to_vec(),
        });
        Ok(ObservedMemory::File(Box::new(verdict), bytes))
    }

    /// Returns when this stamp of an agent's memory was first seen.
    fn stamp_first_seen(&self, agent: &str, stamp: &Stamp) -> Instant {
        let known = self
            .cached_content(agent)
            .filter(|known| known.stamp == *stamp);
        known.map_or_else(|| self.clock().instant(), |known| known.first_seen)
    }

    /// Returns whether the memory may change again without getting another stamp.
    fn is_racy(&self, cached: &CachedContent) -> bool {
        let stamp = &cached.stamp;
        let now = self.clock().now().timestamp_nanos_opt().unwrap_or(0);
        let age = now.saturating_sub(stamp.changed.max(stamp.modified));
        if stamp.inode != 0 {
            return age < RECENT_CHANGE.as_nanos() as i64;
        }
        // The host's clock may differ from this one, and its stamps are whole seconds.
        let recent = i128::from(age) < MAX_CLOCK_SKEW.as_nanos() as i128;
        recent && self.clock().instant().duration_since(cached.first_seen) < RECENT_CHANGE_COARSE
    }

    fn recheck_kind(&self, agent: &Agent) -> Result<ObservedMemory, TransportError> {
        match self.open_directory(agent)?.stat_memory()? {
            MemoryObject::Absent => Ok(ObservedMemory::Absent),
            MemoryObject::Special(odd) => Ok(ObservedMemory::Special(odd)),
            MemoryObject::File(_) => Err(Error::new(
                ErrorKind::Host,
                format!(
                    "{} changes too fast to read it",
                    agent.location.memory().display()
                ),
            )
            .into()),
        }
    }

    fn classify_content(
        &self,
        reading: &mut MemoryAccumulator,
        stamp: &Stamp,
        classification: &Classification,
        current: &Baseline,
    ) -> ClassifiedContent {
        let content = MemoryContent {
            size: reading.size,
            lines: reading.line_count(),
            sha256: reading.digest(),
            modified_ns: stamp.modified,
            boundary: classification.boundary,
            scratch_lines: classification.scratch_lines,
            scratch_bytes: classification.scratch_bytes,
            hidden: untrusted::count_hidden(&reading.prefix),
        };
        let (state, why) = match (&classification.boundary, &classification.version) {
            (Some(found), Some(version)) if found.is_drifted() => {
                let above = &reading.prefix[..found.offset.min(reading.prefix.len())];
                (
                    State::Drifted,
                    self.describe_edits(version.operator_part(), above),
                )
            }
            (Some(found), _) if matches!(found.rule, BoundaryRule::Behind(_)) => (
                State::Scratch,
                "behind: the baseline changed since its last reset".to_string(),
            ),
            (Some(_), _) if classification.is_clean => (State::Clean, String::new()),
            (Some(_), _) if classification.scratch_bytes == 0 => (
                State::Scratch,
                "no scratch, but not the baseline's exact bytes".to_string(),
            ),
            (Some(_), _) => (State::Scratch, String::new()),
            (None, _) => {
                let cr_lf = boundary::has_cr_lf_separator(&reading.prefix, current);
                let why = if cr_lf {
                    CR_LF_REASON
                } else {
                    NO_BOUNDARY_REASON
                };
                (State::NoSep, why.to_string())
            }
        };
        ClassifiedContent {
            content,
            state,
            reason: why,
        }
    }

    /// Names the edited lines and the hidden characters there: "rules edited: L31 L58".
    fn describe_edits(&self, old: &[u8], new: &[u8]) -> String {
        let deadline = self.clock().instant() + EDITS_DIFF_TIMEOUT;
        let diff = diff::compare_lines(old, new, Some(deadline));
        let mut places: Vec<usize> = diff
            .hunks(0)
            .iter()
            .filter_map(|hunk| {
                diff.lines[hunk.changed_range.clone()]
                    .iter()
                    .find_map(|l| l.new_number.or(l.old_number))
            })
            .collect();
        let more = places.len() > 4;
        places.truncate(4);
        let places: Vec<String> = places.iter().map(|line| format!("L{line}")).collect();
        let mut why = format!(
            "rules edited: {}{}",
            places.join(" "),
            if more { " …" } else { "" }
        );
        let hidden = untrusted::count_hidden(new);
        if hidden.invisible + hidden.controls > 0 {
            why.push_str(&format!(
                ", {} hidden characters",
                hidden.invisible + hidden.controls
            ));
        }
        why
    }
}

/// Returns what to do about a memory that has a hard link elsewhere.
fn foreign_link_hint(agent: &Agent) -> String {
    let memory = agent.location.memory();
    let directory = memory.parent().unwrap_or(memory);
    let undo = match agent.location.host() {
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

/// Reason of [`State::NoSep`].
const NO_BOUNDARY_REASON: &str = "no boundary: the whole file would be archived";

/// The same where a separator line is visible.
const CR_LF_REASON: &str = "no boundary: its separator line ends with CR LF, so no line above it is \
                     the baseline's; the whole file would be archived";

/// A run was interrupted or could not finish, and no run is at work on the agent now.
const UNSETTLED_REASON: &str = "a run left something unsettled; the next reset settles it";
