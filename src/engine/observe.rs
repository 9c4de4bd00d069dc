//! What an agent looks like now: its state, why, and what could be done.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::hosts;
use super::judge::{Classification, MemoryReader, classify, window_size};
use super::ledger::{Operation, Outcome};
use super::memory::{self, Baseline, Boundary, Rule};
use super::sharing::sharing_error;
use super::state::State;
use super::{AgentHistory, Engine};
use crate::baseline::{BaselineCache, Refusal};
use crate::config::{Agent, Host, MemoryLocation, Protect};
use crate::diff;
use crate::digest::Digest;
use crate::engine::lock;
use crate::error::{Error, Kind};
use crate::transport::{Cause, File, MemoryObject, SpecialFile, Stamp, Transport, TransportError};
use crate::untrusted::{self, Hidden};

/// A file that changed less than this before it was read may have changed again
/// within the same tick of the file system's clock.
pub(super) const RECENT_CHANGE: Duration = Duration::from_millis(50);

/// The same where stamps are of whole seconds: so long must the same one have been
/// seen, or it is read once more.
const RECENT_CHANGE_COARSE: Duration = Duration::from_secs(2);

/// How far the clock of a host is taken to be behind at most; a file that is older
/// than this did not change a moment ago.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// Bytes of memories that are read together at most, unless one alone is longer.
const BATCH_READ_BYTES: u64 = 8 << 20;

/// How long the search for the edited lines may take.
const DIFF_TIME: Duration = Duration::from_millis(50);

/// Where a memory is, as far as that tells it from any other: what was seen
/// elsewhere says nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The host with user and port, as the config names them; none for this machine.
    pub login: Option<String>,
    /// The path there.
    pub memory: String,
}

impl Address {
    /// Where a config puts a memory.
    pub fn of(place: &MemoryLocation) -> Address {
        Address {
            login: place.host().map(Host::login),
            memory: place.memory().to_string_lossy().into_owned(),
        }
    }
}

/// Why a reset is not possible now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Decides the exit code.
    pub kind: Kind,
    /// A sentence.
    pub why: String,
    /// What can be done about it.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Block {
    /// An error that keeps an agent from being reset.
    pub(super) fn of(error: &Error) -> Block {
        Block {
            kind: error.kind(),
            why: error.to_string(),
            hints: error.hints().to_vec(),
        }
    }

    /// What it means for the exit code that a memory was not read, which this is the
    /// reason of, if there is a reason: as for whoever would reset it.
    pub fn unread(block: Option<&Block>) -> Kind {
        match block.map(|block| block.kind) {
            Some(Kind::Integrity) => Kind::Integrity,
            _ => Kind::Host,
        }
    }

    /// The same as an error, to be told with another sentence.
    pub fn error(&self, message: impl Into<String>) -> Error {
        let error = Error::new(self.kind, message);
        self.hints
            .iter()
            .fold(error, |error, hint| error.hint(hint))
    }
}

/// The last run of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its id.
    pub run: String,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// What it did.
    pub act: Operation,
    /// How it ended.
    pub outcome: Outcome,
}

impl LastRun {
    /// How it ended, in a word: what was undone is not just `ok`.
    pub fn word(&self) -> &'static str {
        match (self.act, self.outcome) {
            (Operation::Undo, Outcome::Ok) => "undone",
            (_, outcome) => outcome.word(),
        }
    }
}

/// What an agent looked like at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The agent's name.
    pub agent: String,
    /// Where it lives: `local`, or the host.
    pub host: String,
    /// Where its memory is; none where an older version wrote it down.
    #[serde(default)]
    pub address: Option<Address>,
    /// Its state: the worst of the conditions that hold.
    pub state: State,
    /// Why it is in this state; empty when the word says it all.
    pub why: String,
    /// Why a reset is not possible, if it is not.
    pub block: Option<Block>,
    /// What can be done about its state, beside what the block says.
    #[serde(default)]
    pub hints: Vec<String>,
    /// Whether the fleet protects it.
    pub protect: Protection,
    /// When it was read.
    pub read: DateTime<FixedOffset>,
    /// A later observation has a higher generation.
    pub generation: u64,
    /// Limit of its size, in bytes.
    pub limit: u64,
    /// What was read, if anything was.
    pub content: Option<Content>,
    /// Whether the memory is provably absent.
    #[serde(default)]
    pub absent: bool,
    /// Digest of the baseline that a reset would install.
    pub baseline: Option<Digest>,
    /// Its last run.
    pub last: Option<LastRun>,
    /// Why the ledger could not be read, if it could not.
    pub ledger_error: Option<String>,
}

impl Observation {
    /// Whether it is known what the memory holds: it was read, or is provably
    /// absent.
    pub fn was_read(&self) -> bool {
        self.content.is_some() || self.absent
    }
}

/// How an agent is protected against resets from the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Not at all.
    #[default]
    None,
    /// Every plan that touches it must be confirmed by typing.
    Typed,
    /// It is read-only until unlocked.
    ReadOnly,
}

impl From<Protect> for Protection {
    fn from(protect: Protect) -> Protection {
        match protect {
            Protect::None => Protection::None,
            Protect::Typed => Protection::Typed,
            Protect::ReadOnly => Protection::ReadOnly,
        }
    }
}

/// What was found in a memory file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// Size in bytes.
    pub size: u64,
    /// Number of lines; an unfinished last line counts.
    pub lines: u64,
    /// Digest of the whole file.
    pub sha256: Digest,
    /// Last modification, in nanoseconds since 1970.
    pub modified: i64,
    /// Where the boundary is, if there is one.
    pub boundary: Option<Boundary>,
    /// Lines below the boundary, the baseline's own unchanged tail not counted;
    /// all lines when there is no boundary.
    pub scratch_lines: u64,
    /// The bytes of these lines.
    pub scratch_bytes: u64,
    /// What cannot be seen in the part that was kept.
    pub hidden: Hidden,
}

/// Files that are read together. All of them are open at once, and servers allow for
/// so many.
const BATCH_READ_FILES: usize = 256;

/// How many of these are read together.
fn portion(files: &[(usize, File)]) -> usize {
    let mut sum = 0_u64;
    let fits = |(_, file): &&(usize, File)| {
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

/// A content that was judged, with what it was judged by: as long as none of
/// it changes, the file need not be read again.
#[derive(Clone)]
pub(super) struct CachedContent {
    stamp: Stamp,
    /// When this stamp was seen first.
    first: Instant,
    /// Another content may have the same stamp.
    fresh: bool,
    baseline: Digest,
    pushed: Vec<Digest>,
    verdict: Verdict,
}

#[derive(Clone)]
struct Verdict {
    content: Content,
    state: State,
    why: String,
}

/// What stands at the memory's name, judged.
enum MemoryLook {
    Absent,
    Odd(SpecialFile),
    File(Box<Verdict>, Option<ClassifiedBytes>),
}

/// The bytes that were judged.
struct ClassifiedBytes {
    head: Vec<u8>,
    operator_part: Vec<u8>,
}

/// An agent as one look saw it, with the bytes that were looked at.
pub(super) struct ObservedAgent {
    pub observation: Observation,
    /// What stands in place of the memory, if it is not a file to be read.
    pub odd: Option<SpecialFile>,
    /// The beginning of the memory, at least [`super::MAX_WINDOW_BYTES`] bytes of it.
    pub head: Vec<u8>,
    /// The operator part that the memory was measured against.
    pub operator_part: Option<Vec<u8>>,
    /// The baseline, unless it must not be pushed.
    pub baseline: Option<Arc<Baseline>>,
}

/// An agent that is about to be looked at: what this machine knows of it.
struct ObservationSubject<'c> {
    agent: &'c Agent,
    generation: u64,
    history: AgentHistory,
    ledger_error: Option<String>,
    loaded: Result<Arc<Baseline>, Refusal>,
    earlier: Vec<Arc<Baseline>>,
}

impl ObservationSubject<'_> {
    /// What the memory is measured against. Without a usable baseline that is
    /// the one that was pushed last.
    fn against(&self) -> Option<&Arc<Baseline>> {
        self.loaded.as_ref().ok().or(self.earlier.first())
    }

    /// The same, or a baseline of nothing.
    fn measure(&self) -> Arc<Baseline> {
        let none = || Arc::new(Baseline::new(Vec::new(), &self.agent.separator));
        self.against().map_or_else(none, Arc::clone)
    }
}

impl Engine {
    /// Looks at an agent. Reads its memory only if its stamp changed.
    pub fn observe(&self, agent: &Agent) -> Observation {
        let shelf = Mutex::new(BaselineCache::new(self.config()));
        let subject = self.subject(agent, &shelf);
        let look = self.look(&subject, false);
        self.seen(subject, look).observation
    }

    /// Looks at many agents, several hosts at the same time. The answers are in
    /// their order.
    pub fn observe_all(&self, agents: &[&Agent]) -> Vec<Observation> {
        self.look_for_sharing();
        hosts::for_each_local_agent(
            self,
            agents,
            |agent| self.observe(agent),
            |agents| self.observe_together(agents, || ()),
        )
    }

    /// Looks at some agents of one host: one round trip tells which memories
    /// changed, two more read these. Nobody is read before `permit` answers, nor
    /// after what it answered is dropped.
    pub(super) fn observe_together<P>(
        &self,
        agents: &[&Agent],
        permit: impl FnOnce() -> P,
    ) -> Vec<Observation> {
        let Some(first) = agents.first() else {
            return Vec::new();
        };
        let transport = self.transport(&first.place);
        let shelf = Mutex::new(BaselineCache::new(self.config()));
        let subjects = agents.iter().map(|agent| self.subject(agent, &shelf));
        let subjects: Vec<ObservationSubject<'_>> = subjects.collect();
        let memories: Vec<&Path> = agents.iter().map(|agent| agent.place.memory()).collect();
        let probed = transport.probe(&memories);
        let mut looks: Vec<Option<Result<MemoryLook, TransportError>>> = Vec::new();
        let mut changed: Vec<(usize, File)> = Vec::new();
        for (number, (subject, object)) in subjects.iter().zip(probed).enumerate() {
            looks.push(match object {
                Ok(MemoryObject::Absent) => Some(Ok(MemoryLook::Absent)),
                Ok(MemoryObject::Odd(odd)) => Some(Ok(MemoryLook::Odd(odd))),
                Ok(MemoryObject::File(file)) => match self.unchanged(subject, &file.stamp) {
                    Some(verdict) => Some(Ok(MemoryLook::File(verdict, None))),
                    None => {
                        changed.push((number, file));
                        None
                    }
                },
                Err(error) => Some(Err(error)),
            });
        }
        if !changed.is_empty() {
            let _permit = permit();
            let mut rest = changed.as_slice();
            while !rest.is_empty() {
                let (some, others) = rest.split_at(portion(rest));
                self.read_together(&*transport, &subjects, some, &mut looks);
                rest = others;
            }
        }
        let seen = subjects.into_iter().zip(looks).map(|(subject, look)| {
            let look = look.unwrap_or_else(|| {
                Err(Error::new(Kind::Internal, "a probe was not answered").into())
            });
            self.seen(subject, look).observation
        });
        seen.collect()
    }

    /// Reads memories that changed, all at once.
    fn read_together(
        &self,
        transport: &dyn Transport,
        subjects: &[ObservationSubject<'_>],
        changed: &[(usize, File)],
        looks: &mut [Option<Result<MemoryLook, TransportError>>],
    ) {
        let files = changed.iter().map(|(number, file)| {
            let memory = subjects[*number].agent.place.memory();
            (memory, file)
        });
        let files: Vec<(&Path, &File)> = files.collect();
        let measures = changed
            .iter()
            .map(|(number, _)| subjects[*number].measure());
        let windows: Vec<usize> = measures.map(|it| window_size(&it)).collect();
        let mut readings: Vec<MemoryReader> =
            files.iter().map(|_| MemoryReader::default()).collect();
        let read = transport.read(&files, &mut |place, piece| {
            if let (Some(reading), Some(window)) = (readings.get_mut(place), windows.get(place)) {
                reading.take(piece, *window);
            }
        });
        for (((number, _), read), reading) in changed.iter().zip(read).zip(readings) {
            let subject = &subjects[*number];
            looks[*number] = Some(self.judged(subject, read, reading, false));
        }
    }

    /// An agent with the bytes of its memory, which is read in any case.
    pub(super) fn see<'c>(
        &'c self,
        agent: &'c Agent,
        shelf: &Mutex<BaselineCache<'c>>,
    ) -> ObservedAgent {
        let subject = self.subject(agent, shelf);
        let look = self.look(&subject, true);
        self.seen(subject, look)
    }

    fn subject<'c>(
        &'c self,
        agent: &'c Agent,
        shelf: &Mutex<BaselineCache<'c>>,
    ) -> ObservationSubject<'c> {
        let generation = self.next_generation();
        let (history, ledger_error) = match self.history(&agent.name) {
            Ok(history) => (history, None),
            Err(error) => (AgentHistory::default(), Some(error.to_string())),
        };
        let loaded = shelf
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .load(agent);
        let earlier = self.earlier(agent, &history, loaded.as_ref().ok());
        ObservationSubject {
            agent,
            generation,
            history,
            ledger_error,
            loaded,
            earlier,
        }
    }

    /// What a look came to, as an observation.
    fn seen(
        &self,
        subject: ObservationSubject<'_>,
        look: Result<MemoryLook, TransportError>,
    ) -> ObservedAgent {
        let agent = subject.agent;
        let measured = subject.against().is_some();
        let mut seen = ObservedAgent {
            observation: self.unseen(agent, subject.generation),
            odd: None,
            head: Vec::new(),
            operator_part: None,
            baseline: subject.loaded.as_ref().ok().map(Arc::clone),
        };
        let observation = &mut seen.observation;
        observation.last.clone_from(&subject.history.last);
        observation.ledger_error = subject.ledger_error;
        observation.baseline = seen.baseline.as_ref().map(|baseline| baseline.digest());
        let mut conditions: Vec<(State, String)> = Vec::new();
        let mut blocks: Vec<Block> = Vec::new();
        if let Err(refusal) = &subject.loaded {
            let error = refusal.error();
            let state = match refusal {
                Refusal::Tampered(_) => State::Tampered,
                Refusal::Unusable(_) => State::Error,
            };
            conditions.push((state, error.to_string()));
            blocks.push(Block::of(error));
        }
        match look {
            Ok(MemoryLook::Absent) => {
                observation.absent = true;
                conditions.push((State::Missing, "no memory file".to_string()));
            }
            Ok(MemoryLook::Odd(odd)) => {
                conditions.push((State::Error, odd.in_place_of_memory()));
                if let SpecialFile::ForeignLink(_) = odd {
                    observation.hints.push(foreign_link_hint(agent));
                }
                if odd == SpecialFile::Directory
                    && let Some(error) = self.directory_refusal(agent, &subject.history)
                {
                    blocks.push(Block::of(&error));
                }
                seen.odd = Some(odd);
            }
            Ok(MemoryLook::File(verdict, bytes)) => {
                if verdict.content.size > agent.max_memory_size {
                    let why = format!("over the limit of {} bytes", agent.max_memory_size);
                    conditions.push((State::Oversize, why));
                }
                // Measured against nothing, every memory would be drift.
                if measured {
                    conditions.push((verdict.state, verdict.why));
                }
                observation.content = Some(verdict.content);
                if let Some(bytes) = bytes {
                    seen.head = bytes.head;
                    seen.operator_part = measured.then_some(bytes.operator_part);
                }
            }
            Err(error) => {
                let state = match error.cause {
                    Cause::HostKey => State::HostKey,
                    Cause::Unreachable => State::Unreach,
                    _ => State::Error,
                };
                conditions.push((state, error.to_string()));
                blocks.push(Block::of(&error.into()));
            }
        }
        let is_clean = conditions.iter().all(|(state, _)| *state == State::Clean);
        if blocks.is_empty()
            && !is_clean
            && let Some(error) = self.replacement_refusal(agent)
        {
            conditions.push((State::Error, error.to_string()));
            blocks.push(Block::of(&error));
        }
        if let Some(kept) = self.kept_beside(agent, &subject.history) {
            // No state of its own, either.
            conditions.push((State::Clean, kept));
        }
        if let Some(other) = self.shares_memory(agent) {
            let error = sharing_error(&other);
            conditions.push((State::Error, error.to_string()));
            blocks.push(Block::of(&error));
        }
        let holder = lock::holder(self.archive(), &agent.name);
        if holder.is_none() && self.is_unsettled(&agent.name) {
            // No state of its own: what stands there is as it was judged.
            conditions.push((State::Clean, UNSETTLED.to_string()));
        }
        if let Some(holder) = holder {
            let why = match holder.as_str() {
                "" => "locked by another run".to_string(),
                holder => format!("locked by {holder}"),
            };
            let error = Error::new(Kind::Busy, why);
            conditions.push((State::Busy, error.to_string()));
            blocks.push(Block::of(&error));
        }
        conditions.sort_by_key(|(state, _)| *state);
        observation.state = conditions.first().map_or(State::Clean, |(state, _)| *state);
        let whys: Vec<&str> = conditions
            .iter()
            .map(|(_, why)| why.as_str())
            .filter(|why| !why.is_empty())
            .collect();
        observation.why = whys.join("; ");
        observation.block =
            blocks
                .into_iter()
                .reduce(|a, b| match a.kind.worst(b.kind) == a.kind {
                    true => a,
                    false => b,
                });
        seen
    }

    /// An agent of which nothing is known yet.
    fn unseen(&self, agent: &Agent, generation: u64) -> Observation {
        Observation {
            agent: agent.name.clone(),
            host: host(agent),
            address: Some(Address::of(&agent.place)),
            state: State::Error,
            why: String::new(),
            block: None,
            hints: Vec::new(),
            protect: agent.protect.into(),
            read: self.clock().now(),
            generation,
            limit: agent.max_memory_size,
            content: None,
            absent: false,
            baseline: None,
            last: None,
            ledger_error: None,
        }
    }

    fn look(
        &self,
        subject: &ObservationSubject<'_>,
        bytes: bool,
    ) -> Result<MemoryLook, TransportError> {
        let agent = subject.agent;
        // Who reads it in any case need not ask first, from afar.
        let folder = bytes.then(|| self.open(agent)).transpose()?;
        let object = match &folder {
            Some(folder) => folder.look()?,
            None => self.object(&agent.place)?,
        };
        let file = match object {
            MemoryObject::Absent => return Ok(MemoryLook::Absent),
            MemoryObject::Odd(odd) => return Ok(MemoryLook::Odd(odd)),
            MemoryObject::File(file) => file,
        };
        if !bytes && let Some(verdict) = self.unchanged(subject, &file.stamp) {
            return Ok(MemoryLook::File(verdict, None));
        }
        let mut reading = MemoryReader::default();
        let window = window_size(&subject.measure());
        let folder = folder.map_or_else(|| self.open(agent), Ok)?;
        let read = folder.read(&mut |piece: &[u8]| {
            reading.take(piece, window);
            Ok(())
        });
        self.judged(subject, read, reading, bytes)
    }

    /// What is known of a memory that has this stamp, if nothing that matters has
    /// changed since.
    fn unchanged(&self, subject: &ObservationSubject<'_>, stamp: &Stamp) -> Option<Box<Verdict>> {
        let cached = self.cached(&subject.agent.name)?;
        let same = !cached.fresh
            && cached.stamp == *stamp
            && cached.baseline == subject.measure().digest()
            && cached.pushed == subject.history.pushed;
        same.then(|| Box::new(cached.verdict))
    }

    /// What was read, judged and remembered.
    fn judged(
        &self,
        subject: &ObservationSubject<'_>,
        read: Result<File, TransportError>,
        mut reading: MemoryReader,
        bytes: bool,
    ) -> Result<MemoryLook, TransportError> {
        let file = match read {
            Err(error) if error.cause == Cause::Leased => {
                return Ok(MemoryLook::Odd(SpecialFile::Leased));
            }
            // It changed its kind since the probe; look again with next event.
            Err(error) if error.cause == Cause::Moved => return self.look_again(subject.agent),
            read => read?,
        };
        let current = subject.measure();
        let judgement = classify(&reading, &current, &subject.earlier);
        let verdict = self.verdict(&mut reading, &file.stamp, &judgement, &current);
        let name = &subject.agent.name;
        let cached = CachedContent {
            stamp: file.stamp,
            first: self.first_seen(name, &file.stamp),
            fresh: false,
            baseline: current.digest(),
            pushed: subject.history.pushed.clone(),
            verdict: verdict.clone(),
        };
        let fresh = self.is_fresh(&cached);
        self.cache(name, CachedContent { fresh, ..cached });
        let version = judgement.version.as_ref().unwrap_or(&current);
        let bytes = bytes.then(|| ClassifiedBytes {
            head: reading.head,
            operator_part: version.operator_part().to_vec(),
        });
        Ok(MemoryLook::File(Box::new(verdict), bytes))
    }

    /// When a stamp of an agent's memory was seen first.
    fn first_seen(&self, agent: &str, stamp: &Stamp) -> Instant {
        let known = self.cached(agent).filter(|known| known.stamp == *stamp);
        known.map_or_else(|| self.clock().instant(), |known| known.first)
    }

    /// Whether the memory may have changed again without getting another stamp.
    fn is_fresh(&self, cached: &CachedContent) -> bool {
        let stamp = &cached.stamp;
        let now = self.clock().now().timestamp_nanos_opt().unwrap_or(0);
        let age = now.saturating_sub(stamp.changed.max(stamp.modified));
        if stamp.inode != 0 {
            return age < RECENT_CHANGE.as_nanos() as i64;
        }
        // Of another clock, and of whole seconds.
        let recent = i128::from(age) < MAX_CLOCK_SKEW.as_nanos() as i128;
        recent && self.clock().instant().duration_since(cached.first) < RECENT_CHANGE_COARSE
    }

    fn look_again(&self, agent: &Agent) -> Result<MemoryLook, TransportError> {
        match self.open(agent)?.look()? {
            MemoryObject::Absent => Ok(MemoryLook::Absent),
            MemoryObject::Odd(odd) => Ok(MemoryLook::Odd(odd)),
            MemoryObject::File(_) => Err(Error::new(
                Kind::Host,
                format!(
                    "{} changes too fast to be read",
                    agent.place.memory().display()
                ),
            )
            .into()),
        }
    }

    fn verdict(
        &self,
        reading: &mut MemoryReader,
        stamp: &Stamp,
        judgement: &Classification,
        current: &Baseline,
    ) -> Verdict {
        let content = Content {
            size: reading.size,
            lines: reading.count_lines(),
            sha256: reading.digest(),
            modified: stamp.modified,
            boundary: judgement.boundary,
            scratch_lines: judgement.scratch_lines,
            scratch_bytes: judgement.scratch_bytes,
            hidden: untrusted::hidden(&reading.head),
        };
        let (state, why) = match (&judgement.boundary, &judgement.version) {
            (Some(found), Some(version)) if found.drifted() => {
                let above = &reading.head[..found.offset.min(reading.head.len())];
                (State::Drifted, self.edits(version.operator_part(), above))
            }
            (Some(found), _) if matches!(found.rule, Rule::Behind(_)) => (
                State::Scratch,
                "behind: the baseline changed since its last reset".to_string(),
            ),
            (Some(_), _) if judgement.clean => (State::Clean, String::new()),
            (Some(_), _) if judgement.scratch_bytes == 0 => (
                State::Scratch,
                "no scratch, but not the baseline's exact bytes".to_string(),
            ),
            (Some(_), _) => (State::Scratch, String::new()),
            (None, _) => {
                let cr_lf = memory::has_cr_lf(&reading.head, current);
                let why = if cr_lf { CR_LF } else { NO_BOUNDARY };
                (State::NoSep, why.to_string())
            }
        };
        Verdict {
            content,
            state,
            why,
        }
    }

    /// "rules edited: L31 L58", and what is hidden there.
    fn edits(&self, old: &[u8], new: &[u8]) -> String {
        let deadline = self.clock().instant() + DIFF_TIME;
        let diff = diff::lines(old, new, Some(deadline));
        let mut places: Vec<usize> = diff
            .hunks(0)
            .iter()
            .filter_map(|hunk| {
                diff.lines[hunk.changes.clone()]
                    .iter()
                    .find_map(|l| l.new.or(l.old))
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
        let hidden = untrusted::hidden(new);
        if hidden.invisible + hidden.controls > 0 {
            why.push_str(&format!(
                ", {} hidden characters",
                hidden.invisible + hidden.controls
            ));
        }
        why
    }
}

/// What to do about a memory that has a name elsewhere.
fn foreign_link_hint(agent: &Agent) -> String {
    let memory = agent.place.memory();
    let directory = memory.parent().unwrap_or(memory);
    let undo = match agent.place.host() {
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

/// What NOSEP means.
const NO_BOUNDARY: &str = "no boundary: the whole file would be archived";

/// The same where a separator line can be seen.
const CR_LF: &str = "no boundary: its separator line ends with CR LF, so no line above it is \
                     the baseline's; the whole file would be archived";

/// That a run was interrupted, or could not end, and nobody is at it.
const UNSETTLED: &str = "a run left something unsettled; the next reset settles it";

/// Where an agent lives: `local`, or the host.
pub(super) fn host(agent: &Agent) -> String {
    match &agent.place {
        MemoryLocation::Local { .. } => "local".to_string(),
        MemoryLocation::Remote { host, .. } => host.name.clone(),
    }
}

/// How an agent's host is reached, where that may lead elsewhere one day: another
/// user has another home, another port may be another host's.
pub(super) fn way(agent: &Agent) -> Option<String> {
    let host = agent.place.host()?;
    let user = host.user.iter().map(|user| format!("{user}@"));
    let port = host.port.iter().map(|port| format!(" port {port}"));
    Some(user.chain([host.name.clone()]).chain(port).collect())
}
