//! Cache of classified memories: a file whose stamp is unchanged need not be read again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};

use super::classified_content::ClassifiedContent;
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::boundary::Boundary;
use crate::engine::Observation;
use crate::lint::ScanSummary;
use crate::store::observation::MemoryContent;
use crate::store::scan_basis::ScanBasis;
use crate::transport::Stamp;

/// A file whose last change is more recent than this may change again within the same tick of the
/// file system's clock.
pub(in crate::engine) const RECENT_CHANGE: Duration = Duration::from_millis(50);

/// The same for stamps of whole seconds. A host's stamp counts as settled once it was first seen this
/// long ago; before, the file is read once more.
const RECENT_CHANGE_COARSE: Duration = Duration::from_secs(2);

/// Maximum lag assumed for a host's clock: a file that is older than this has no recent change.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// What the classification of a memory depends on.
#[derive(PartialEq)]
pub(in crate::engine) struct ContentKey {
    pub stamp: Stamp,
    /// The version that the memory is measured against.
    pub baseline: Digest,
    /// The versions that the memory may have.
    pub earlier_versions: Vec<Digest>,
}

struct CachedContent {
    key: ContentKey,
    /// Time at which this stamp was first seen.
    first_seen: Instant,
    /// Whether another content may have the same stamp.
    is_racy: bool,
    content: ClassifiedContent,
}

/// What the findings in a memory depend on.
#[derive(PartialEq)]
pub(in crate::engine) struct ScannedText {
    pub sha256: Digest,
    pub boundary: Option<Boundary>,
    /// The version that the memory was measured against, unless the boundary names another.
    pub baseline: Digest,
    pub basis: ScanBasis,
}

impl ScannedText {
    fn new(content: &MemoryContent, baseline: Digest) -> ScannedText {
        ScannedText {
            sha256: content.sha256,
            boundary: content.boundary,
            baseline,
            basis: content.scan_basis,
        }
    }
}

/// What is known of an agent's memory.
#[derive(Default)]
struct AgentContent {
    /// Generation up to which observations do not count any more.
    forgotten: Option<u64>,
    last: Option<Box<CachedContent>>,
}

/// The last classified content of each agent's memory.
#[derive(Default)]
pub(in crate::engine) struct ContentCache {
    by_agent: Mutex<HashMap<String, AgentContent>>,
    /// What the last session found in memories, until they are read.
    last_session: Mutex<HashMap<String, Box<(ScannedText, ScanSummary)>>>,
}

impl ContentCache {
    /// Returns the content that was stored under an equal key, unless the memory may have changed
    /// since without getting another stamp.
    pub fn get(&self, agent: &str, key: &ContentKey) -> Option<ClassifiedContent> {
        let cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = cache.get(agent)?.last.as_ref()?;
        (!cached.is_racy && cached.key == *key).then(|| cached.content.clone())
    }

    /// Makes sure that the memories of agents are read by each observation after this generation: a
    /// program that maps a file, or sets its times, may change it without giving it another stamp.
    pub fn forget(&self, agents: &[String], generation: u64) {
        let mut cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        for agent in agents {
            let forgotten = AgentContent {
                forgotten: Some(generation),
                last: None,
            };
            cache.insert(agent.clone(), forgotten);
        }
    }

    /// Returns the findings in the last content of an agent's memory, if it was the same: a new stamp
    /// alone needs no scan.
    pub fn findings_in(&self, agent: &str, text: &ScannedText) -> Option<ScanSummary> {
        let cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cached) = cache.get(agent).and_then(|it| it.last.as_ref()) else {
            return self.findings_of_last_session(agent, text);
        };
        let content = &cached.content.content;
        let is_same = ScannedText::new(content, cached.key.baseline) == *text;
        is_same.then(|| content.findings.clone())
    }

    fn findings_of_last_session(&self, agent: &str, text: &ScannedText) -> Option<ScanSummary> {
        let mut scanned = self.lock_last_session();
        let (earlier, findings) = *scanned.remove(agent)?;
        if scanned.is_empty() {
            scanned.shrink_to_fit();
        }
        (earlier == *text).then_some(findings)
    }

    fn lock_last_session(
        &self,
    ) -> MutexGuard<'_, HashMap<String, Box<(ScannedText, ScanSummary)>>> {
        self.last_session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the last session found in memories, for those that still have the same content when
    /// they are read. One that equals its baseline has nothing that the agent wrote.
    pub fn keep_findings(&self, seen: &[Box<Observation>]) {
        let scanned = seen.iter().filter_map(|seen| {
            let content = seen.content.as_ref()?;
            let baseline = seen.baseline.filter(|it| *it != content.sha256)?;
            let scanned = (
                ScannedText::new(content, baseline),
                content.findings.clone(),
            );
            Some((seen.agent.clone(), Box::new(scanned)))
        });
        let scanned: Vec<_> = scanned.collect();
        self.lock_last_session().extend(scanned);
    }

    /// Stores the content of an agent's memory in place of an earlier one, unless it was read by an
    /// observation from before it was to be forgotten. `read_began` is the time before its read.
    pub fn store(
        &self,
        (agent, generation): (&str, u64),
        key: ContentKey,
        content: ClassifiedContent,
        read_began: DateTime<FixedOffset>,
        clock: &dyn Clock,
    ) {
        let mut cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match cache.get_mut(agent) {
            Some(slot) => slot,
            None => cache.entry(agent.to_string()).or_default(),
        };
        if slot.forgotten.is_some_and(|last| generation <= last) {
            return;
        }
        let last = slot.last.as_ref();
        let known = last.filter(|known| known.key.stamp == key.stamp);
        let first_seen = known.map_or_else(|| clock.instant(), |known| known.first_seen);
        let is_racy = is_racy(&key.stamp, first_seen, read_began, clock);
        let cached = CachedContent {
            is_racy,
            key,
            first_seen,
            content,
        };
        slot.last = Some(Box::new(cached));
    }
}

/// Returns whether a memory that was read from `read_began` on may change again, or may have changed
/// during the read, without getting another stamp.
fn is_racy(
    stamp: &Stamp,
    first_seen: Instant,
    read_began: DateTime<FixedOffset>,
    clock: &dyn Clock,
) -> bool {
    if stamp.inode != 0 {
        return !is_settled(stamp, read_began);
    }
    // The host's clock may differ from this one, and its stamps are whole seconds.
    let now = clock.now().timestamp_nanos_opt().unwrap_or(0);
    let age = now.saturating_sub(stamp.changed.max(stamp.modified));
    let is_recent = i128::from(age) < MAX_CLOCK_SKEW.as_nanos() as i128;
    is_recent && clock.instant().duration_since(first_seen) < RECENT_CHANGE_COARSE
}

/// Returns whether the last change of a file of this machine was so long before a time that each
/// later one gives it another stamp.
fn is_settled(stamp: &Stamp, time: DateTime<FixedOffset>) -> bool {
    let has_fraction = |time: i64| time % 1_000_000_000 != 0;
    let limit = if has_fraction(stamp.changed) || has_fraction(stamp.modified) {
        RECENT_CHANGE
    } else {
        RECENT_CHANGE_COARSE
    };
    let now = time.timestamp_nanos_opt().unwrap_or(0);
    let age = now.saturating_sub(stamp.changed.max(stamp.modified));
    i128::from(age) >= limit.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::base::untrusted::HiddenCounts;
    use crate::store::state::State;

    fn stamp() -> Stamp {
        Stamp {
            size: 6,
            modified: 1,
            changed: 1,
            inode: 1,
        }
    }

    fn key() -> ContentKey {
        ContentKey {
            stamp: stamp(),
            baseline: Digest::ZERO,
            earlier_versions: Vec::new(),
        }
    }

    fn store(cache: &ContentCache, generation: u64, text: &str) {
        let content = MemoryContent {
            size: text.len() as u64,
            lines: 1,
            sha256: Digest::of(text.as_bytes()),
            modified_ns: 1,
            boundary: None,
            scratch_lines: 1,
            scratch_bytes: text.len() as u64,
            entry_kind: None,
            hidden: HiddenCounts::default(),
            findings: ScanSummary::default(),
            scan_basis: ScanBasis::default(),
        };
        let content = ClassifiedContent {
            content,
            state: State::NoSep,
            reason: String::new(),
        };
        let now = SystemClock.now();
        cache.store(("a", generation), key(), content, now, &SystemClock);
    }

    #[test]
    fn read_from_before_a_request_does_not_answer_it() {
        let cache = ContentCache::default();
        let known = || cache.get("a", &key()).map(|it| it.content.sha256);
        store(&cache, 1, "first");
        assert_eq!(known(), Some(Digest::of(b"first")));
        cache.forget(&["a".to_string()], 3);
        assert_eq!(known(), None);
        // This read was running when the request came.
        store(&cache, 2, "first");
        assert_eq!(known(), None);
        store(&cache, 4, "other");
        assert_eq!(known(), Some(Digest::of(b"other")));
    }
}
