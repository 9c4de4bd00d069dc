//! What an agent looks like now: its state, why, and what could be done.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::hosts;
use super::ledger::{Act, Outcome};
use super::memory::{self, Baseline, Boundary, Rule};
use super::{Engine, History};
use crate::baseline::{Refusal, Shelf};
use crate::config::{Agent, Place, Protect};
use crate::diff;
use crate::digest::{Digest, Hasher};
use crate::engine::lock;
use crate::error::Kind;
use crate::transport::{Cause, Object, Odd, Stamp, TransportError};
use crate::untrusted::{self, Hidden};

/// How much of a memory is kept for finding the boundary and for showing it.
/// The rest is only counted and digested, so memory use does not grow with the
/// file.
pub const WINDOW: usize = 1 << 20;

/// A file that changed less than this before it was read may have changed again
/// within the same tick of the file system's clock.
const FRESH: Duration = Duration::from_millis(50);

/// How long the search for the edited lines may take.
const DIFF_TIME: Duration = Duration::from_millis(50);

/// The state of an agent; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// The baseline file does not match the seal.
    Tampered,
    /// The host shows another key than the one that is known.
    HostKey,
    /// The text above the boundary differs from the baseline.
    Drifted,
    /// There is no boundary.
    NoSep,
    /// The host did not answer.
    Unreach,
    /// Reached, but reading, permission or parsing failed.
    Error,
    /// Reached, and the file is provably absent.
    Missing,
    /// Over `max_memory_size`.
    Oversize,
    /// Locked by a run.
    Busy,
    /// Intact, with something below the boundary, or behind its baseline.
    Scratch,
    /// Equal to the baseline.
    Clean,
    /// Not read yet.
    Loading,
}

impl State {
    /// All states, the worst first.
    pub const ALL: [State; 12] = [
        State::Tampered,
        State::HostKey,
        State::Drifted,
        State::NoSep,
        State::Unreach,
        State::Error,
        State::Missing,
        State::Oversize,
        State::Busy,
        State::Scratch,
        State::Clean,
        State::Loading,
    ];

    /// The word for people and scripts.
    pub fn word(self) -> &'static str {
        match self {
            State::Tampered => "TAMPERED",
            State::HostKey => "HOSTKEY",
            State::Drifted => "DRIFTED",
            State::NoSep => "NOSEP",
            State::Unreach => "UNREACH",
            State::Error => "ERROR",
            State::Missing => "MISSING",
            State::Oversize => "OVERSIZE",
            State::Busy => "BUSY",
            State::Scratch => "SCRATCH",
            State::Clean => "CLEAN",
            State::Loading => "LOADING",
        }
    }

    /// Two cells that tell it without colour.
    pub fn glyph(self) -> &'static str {
        match self {
            State::Tampered => "!!",
            State::HostKey => "HK",
            State::Drifted => "~~",
            State::NoSep => "??",
            State::Unreach => "x ",
            State::Error => "E ",
            State::Missing => "- ",
            State::Oversize => "^ ",
            State::Busy => "> ",
            State::Scratch => ". ",
            State::Clean => "  ",
            State::Loading => "… ",
        }
    }

    /// Whether nobody needs to look at it.
    pub fn is_fine(self) -> bool {
        matches!(
            self,
            State::Scratch | State::Clean | State::Busy | State::Loading
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a reset is not possible now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Decides the exit code.
    pub kind: Kind,
    /// A sentence.
    pub why: String,
}

/// The last run of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its id.
    pub run: String,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// What it did.
    pub act: Act,
    /// How it ended.
    pub outcome: Outcome,
}

/// What an agent looked like at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The agent's name.
    pub agent: String,
    /// Where it lives: `local`, or the host.
    pub host: String,
    /// Its state: the worst of the conditions that hold.
    pub state: State,
    /// Why it is in this state; empty when the word says it all.
    pub why: String,
    /// Why a reset is not possible, if it is not.
    pub block: Option<Block>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Not at all.
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

/// A file while it is read once: its beginning is kept, all of it is counted
/// and digested.
#[derive(Default)]
pub(super) struct Reading {
    pub head: Vec<u8>,
    pub size: u64,
    newlines: u64,
    last: u8,
    hasher: Hasher,
    /// Once somebody asked for it, after the last piece.
    digest: Option<Digest>,
}

impl Reading {
    /// Takes the next piece, keeping at most `window` bytes in all.
    pub fn take(&mut self, bytes: &[u8], window: usize) {
        let room = window.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.size += bytes.len() as u64;
        self.newlines += newlines(bytes);
        self.last = bytes.last().copied().unwrap_or(self.last);
        self.hasher.update(bytes);
    }

    /// The digest of all of it, which ends it.
    pub fn digest(&mut self) -> Digest {
        let hasher = &mut self.hasher;
        *self
            .digest
            .get_or_insert_with(|| std::mem::take(hasher).finish())
    }

    /// Lines, an unfinished last one included.
    pub fn lines(&self) -> u64 {
        self.newlines + u64::from(self.size > 0 && self.last != b'\n')
    }
}

/// How many lines these are; the last one may lack its end.
pub(super) fn lines(bytes: &[u8]) -> u64 {
    newlines(bytes) + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

fn newlines(bytes: &[u8]) -> u64 {
    // So few at once that a byte can count them, which the compiler makes many
    // times faster than counting in 64 bits.
    let few = bytes.chunks(usize::from(u8::MAX));
    let count = |few: &[u8]| few.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    few.map(|few| u64::from(count(few))).sum()
}

/// How much of a memory to keep for a baseline of this size.
pub(super) fn window(baseline: &Baseline) -> usize {
    WINDOW.max(4 * baseline.bytes().len())
}

/// What a memory means against its baseline.
pub(super) struct Judgement {
    pub boundary: Option<Boundary>,
    /// The version that the boundary was found by.
    pub version: Option<Arc<Baseline>>,
    pub scratch_lines: u64,
    pub scratch_bytes: u64,
    /// Equal to the current baseline, byte for byte.
    pub clean: bool,
    /// The bytes above the boundary are the version's operator part exactly.
    pub exact: bool,
}

pub(super) fn judge(
    reading: &Reading,
    current: &Arc<Baseline>,
    earlier: &[Arc<Baseline>],
) -> Judgement {
    let whole = reading.size == reading.head.len() as u64;
    let mut boundary = memory::find(&reading.head, current, earlier);
    let version = boundary.and_then(|boundary| match boundary.rule {
        Rule::Intact => Some(Arc::clone(current)),
        Rule::Behind(digest) | Rule::Aligned(digest) => std::iter::once(current)
            .chain(earlier)
            .find(|version| version.digest() == digest)
            .cloned(),
    });
    if let Some(found) = boundary.as_mut().filter(|found| found.line == 0) {
        // Without a separator everything is above, also what was not kept.
        found.offset = reading.size as usize;
    }
    let (scratch_lines, scratch_bytes) = match (&boundary, &version) {
        (Some(found), Some(version)) => {
            let cut = found.offset.min(reading.head.len());
            let (above, below) = reading.head.split_at(cut);
            let tail = match below.starts_with(version.tail()) {
                true => version.tail(),
                false => b"",
            };
            let fixed = newlines(above) + newlines(tail);
            let unfinished = tail.last().is_some_and(|byte| *byte != b'\n')
                && reading.size == (found.offset + tail.len()) as u64;
            (
                reading
                    .lines()
                    .saturating_sub(fixed + u64::from(unfinished)),
                reading
                    .size
                    .saturating_sub((found.offset + tail.len()) as u64),
            )
        }
        _ => (reading.lines(), reading.size),
    };
    let exact = match (&boundary, &version) {
        (Some(found), Some(version)) if !found.drifted() => {
            reading.head.get(..found.offset) == Some(version.operator_part())
        }
        _ => false,
    };
    Judgement {
        boundary,
        version,
        scratch_lines: if scratch_bytes == 0 { 0 } else { scratch_lines },
        scratch_bytes,
        clean: whole && reading.head == current.bytes(),
        exact,
    }
}

/// A content that was judged, with what it was judged by: as long as none of
/// it changes, the file need not be read again.
#[derive(Clone)]
pub(super) struct Cached {
    stamp: Stamp,
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
enum Look {
    Absent,
    Odd(Odd),
    File(Box<Verdict>, Option<Bytes>),
}

/// What a probe answered.
type Probed = Result<Object, TransportError>;

/// The bytes that were judged.
struct Bytes {
    head: Vec<u8>,
    operator_part: Vec<u8>,
}

/// An agent as one look saw it, with the bytes that were looked at.
pub(super) struct Seen {
    pub observation: Observation,
    /// What stands in place of the memory, if it is not a file to be read.
    pub odd: Option<Odd>,
    /// The beginning of the memory, at least [`WINDOW`] bytes of it.
    pub head: Vec<u8>,
    /// The operator part that the memory was measured against.
    pub operator_part: Option<Vec<u8>>,
    /// The baseline, unless it must not be pushed.
    pub baseline: Option<Arc<Baseline>>,
}

impl Engine {
    /// Looks at an agent. Reads its memory only if its stamp changed.
    pub fn observe(&self, agent: &Agent) -> Observation {
        let shelf = Mutex::new(Shelf::new(&self.config().general));
        self.see(agent, false, None, &shelf).observation
    }

    /// Looks at many agents, the agents of a host and several hosts at the same
    /// time. The answers are in their order.
    pub fn observe_all(&self, agents: &[&Agent]) -> Vec<Observation> {
        let shelf = Mutex::new(Shelf::new(&self.config().general));
        let look = |agent, probed| self.see(agent, false, probed, &shelf).observation;
        hosts::for_each(
            agents,
            |agent| look(agent, None),
            |agents| {
                let probed = self.probe(agents).into_iter().map(Some);
                let probed = agents.iter().copied().zip(probed).collect();
                hosts::at_once(probed, |(agent, probed)| look(agent, probed))
            },
        )
    }

    /// What stands at the memories of some agents of one host.
    fn probe(&self, agents: &[&Agent]) -> Vec<Probed> {
        let Some(first) = agents.first() else {
            return Vec::new();
        };
        let memories: Vec<&Path> = agents.iter().map(|agent| agent.place.memory()).collect();
        self.transport(&first.place).probe(&memories)
    }

    /// The same; with `bytes`, the memory is read in any case, and kept. `probed`
    /// is what was found at its name a moment ago.
    pub(super) fn see<'c>(
        &'c self,
        agent: &'c Agent,
        bytes: bool,
        probed: Option<Probed>,
        shelf: &Mutex<Shelf<'c>>,
    ) -> Seen {
        let generation = self.next_generation();
        let (history, ledger_error) = match self.history(&agent.name) {
            Ok(history) => (history, None),
            Err(error) => (History::default(), Some(error.to_string())),
        };
        let mut seen = Seen {
            observation: self.unseen(agent, generation),
            odd: None,
            head: Vec::new(),
            operator_part: None,
            baseline: None,
        };
        let observation = &mut seen.observation;
        observation.last.clone_from(&history.last);
        observation.ledger_error = ledger_error;
        let loaded = shelf
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .load(agent);
        seen.baseline = loaded.as_ref().ok().map(Arc::clone);
        observation.baseline = loaded.as_ref().ok().map(|baseline| baseline.digest());
        // Without a usable baseline the memory is still shown against the one
        // that was pushed last.
        let earlier = self.earlier(agent, &history, loaded.as_ref().ok());
        let against = loaded.as_ref().ok().or(earlier.first());
        let mut conditions: Vec<(State, String)> = Vec::new();
        let mut blocks: Vec<Block> = Vec::new();
        if let Err(refusal) = &loaded {
            let error = refusal.error();
            let state = match refusal {
                Refusal::Tampered(_) => State::Tampered,
                Refusal::Unusable(_) => State::Error,
            };
            conditions.push((state, error.to_string()));
            blocks.push(Block {
                kind: error.kind(),
                why: error.to_string(),
            });
        }
        match self.look(agent, against, &earlier, &history, bytes, probed) {
            Ok(Look::Absent) => {
                observation.absent = true;
                conditions.push((State::Missing, "no memory file".to_string()));
            }
            Ok(Look::Odd(odd)) => {
                conditions.push((State::Error, format!("{odd} stands in its place")));
                seen.odd = Some(odd);
            }
            Ok(Look::File(verdict, bytes)) => {
                if verdict.content.size > agent.max_memory_size {
                    let why = format!("over the limit of {} bytes", agent.max_memory_size);
                    conditions.push((State::Oversize, why));
                }
                // Measured against nothing, every memory would be drift.
                if against.is_some() {
                    conditions.push((verdict.state, verdict.why));
                }
                observation.content = Some(verdict.content);
                if let Some(bytes) = bytes {
                    seen.head = bytes.head;
                    seen.operator_part = against.map(|_| bytes.operator_part);
                }
            }
            Err(error) => {
                let state = match error.cause {
                    Cause::HostKey => State::HostKey,
                    Cause::Unreachable => State::Unreach,
                    _ => State::Error,
                };
                conditions.push((state, error.to_string()));
                blocks.push(Block {
                    kind: error.kind(),
                    why: error.to_string(),
                });
            }
        }
        if let Some(other) = self.shares_memory(agent) {
            let why = shares(other);
            conditions.push((State::Error, why.clone()));
            blocks.push(Block {
                kind: Kind::Conflict,
                why,
            });
        }
        if let Some(holder) = lock::holder(self.archive(), &agent.name) {
            let why = match holder.as_str() {
                "" => "locked by another run".to_string(),
                holder => format!("locked by {holder}"),
            };
            conditions.push((State::Busy, why.clone()));
            blocks.push(Block {
                kind: Kind::Busy,
                why,
            });
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
            state: State::Error,
            why: String::new(),
            block: None,
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
        agent: &Agent,
        against: Option<&Arc<Baseline>>,
        earlier: &[Arc<Baseline>],
        history: &History,
        bytes: bool,
        probed: Option<Probed>,
    ) -> Result<Look, TransportError> {
        // Who reads it in any case need not ask first, from afar.
        let folder = bytes.then(|| self.open(agent)).transpose()?;
        let object = match (&folder, probed) {
            (Some(folder), _) => folder.look()?,
            (None, Some(probed)) => probed?,
            (None, None) => self.object(&agent.place)?,
        };
        let file = match object {
            Object::Absent => return Ok(Look::Absent),
            Object::Odd(odd) => return Ok(Look::Odd(odd)),
            Object::File(file) => file,
        };
        let none = Arc::new(Baseline::new(Vec::new(), &agent.separator));
        let current = against.unwrap_or(&none);
        if let Some(cached) = self.cached(&agent.name)
            && !bytes
            && !cached.fresh
            && cached.stamp == file.stamp
            && cached.baseline == current.digest()
            && cached.pushed == history.pushed
        {
            return Ok(Look::File(Box::new(cached.verdict), None));
        }
        let mut reading = Reading::default();
        let window = window(current);
        let folder = folder.map_or_else(|| self.open(agent), Ok)?;
        let mut take = |piece: &[u8]| {
            reading.take(piece, window);
            Ok(())
        };
        let file = match folder.read(&mut take) {
            Err(error) if error.cause == Cause::Leased => return Ok(Look::Odd(Odd::Leased)),
            // It changed its kind since the probe; look again with next event.
            Err(error) if error.cause == Cause::Moved => return self.look_again(agent),
            read => read?,
        };
        let judgement = judge(&reading, current, earlier);
        let verdict = self.verdict(&mut reading, &file.stamp, &judgement);
        let now = self.clock().now().timestamp_nanos_opt().unwrap_or(0);
        let changed = file.stamp.changed.max(file.stamp.modified);
        self.cache(
            &agent.name,
            Cached {
                stamp: file.stamp,
                fresh: now.saturating_sub(changed) < FRESH.as_nanos() as i64,
                baseline: current.digest(),
                pushed: history.pushed.clone(),
                verdict: verdict.clone(),
            },
        );
        let version = judgement.version.as_ref().unwrap_or(current);
        let bytes = bytes.then(|| Bytes {
            head: reading.head,
            operator_part: version.operator_part().to_vec(),
        });
        Ok(Look::File(Box::new(verdict), bytes))
    }

    fn look_again(&self, agent: &Agent) -> Result<Look, TransportError> {
        match self.open(agent)?.look()? {
            Object::Absent => Ok(Look::Absent),
            Object::Odd(odd) => Ok(Look::Odd(odd)),
            Object::File(_) => Err(crate::error::Error::new(
                Kind::Host,
                format!(
                    "{} changes too fast to be read",
                    agent.place.memory().display()
                ),
            )
            .into()),
        }
    }

    fn verdict(&self, reading: &mut Reading, stamp: &Stamp, judgement: &Judgement) -> Verdict {
        let content = Content {
            size: reading.size,
            lines: reading.lines(),
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
            (None, _) => (
                State::NoSep,
                "no boundary: the whole file would be archived".to_string(),
            ),
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

/// Why an agent whose memory is another one's, too, is an error.
pub(super) fn shares(other: &str) -> String {
    format!("shares its memory file with {other}")
}

/// The host as it is shown.
pub(super) fn host(agent: &Agent) -> String {
    match &agent.place {
        Place::Local { .. } => "local".to_string(),
        Place::Remote { host, .. } => host.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_keeps_a_window_however_long_the_file_is() {
        let piece = [b'x'; 1000];
        let mut reading = Reading::default();
        for _ in 0..5000 {
            reading.take(&piece, WINDOW);
        }
        assert_eq!(reading.size, 5_000_000);
        assert_eq!(reading.head.len(), WINDOW);
        assert!(reading.head.capacity() <= 2 * WINDOW);
        assert_eq!(reading.digest(), Digest::of(&vec![b'x'; 5_000_000]));
        assert_eq!(reading.lines(), 1);
    }

    #[test]
    fn line_feeds_are_counted_however_many_there_are() {
        for length in [0, 1, 254, 255, 256, 510, 511, 100_000] {
            assert_eq!(newlines(&vec![b'\n'; length]), length as u64);
            assert_eq!(newlines(&vec![b'x'; length]), 0);
            let mixed: Vec<u8> = (0..length).map(|at| [b'\n', 0][at % 2]).collect();
            assert_eq!(newlines(&mixed), length.div_ceil(2) as u64);
        }
    }

    #[test]
    fn the_window_is_bounded_by_the_largest_baseline() {
        let baseline = |size| Baseline::new(vec![b'x'; size], "---");
        assert_eq!(window(&baseline(10)), WINDOW);
        assert_eq!(window(&baseline(1 << 20)), 4 << 20);
    }
}
