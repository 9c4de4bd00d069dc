//! Cache of classified memories: a file whose stamp is unchanged need not be read again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};

use super::classify::ClassifiedContent;
use crate::boundary::Boundary;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::lint::ScanSummary;
use crate::transport::Stamp;

/// A file whose last change is more recent than this may change again within the same tick of the
/// file system's clock.
pub(super) const RECENT_CHANGE: Duration = Duration::from_millis(50);

/// The same for stamps of whole seconds. A host's stamp counts as settled once it was first seen this
/// long ago; before, the file is read once more.
const RECENT_CHANGE_COARSE: Duration = Duration::from_secs(2);

/// Maximum lag assumed for a host's clock: a file that is older than this has no recent change.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// What the classification of a memory depends on.
#[derive(PartialEq)]
pub(super) struct ContentKey {
    pub stamp: Stamp,
    /// The version that the memory is measured against.
    pub baseline: Digest,
    pub pushed_versions: Vec<Digest>,
}

struct CachedContent {
    key: ContentKey,
    /// Time at which this stamp was first seen.
    first_seen: Instant,
    /// Whether another content may have the same stamp.
    is_racy: bool,
    content: ClassifiedContent,
}

/// The last classified content of each agent's memory.
#[derive(Default)]
pub(super) struct ContentCache {
    by_agent: Mutex<HashMap<String, Box<CachedContent>>>,
}

impl ContentCache {
    /// Returns the content that was stored under an equal key, unless the memory may have changed
    /// since without getting another stamp.
    pub fn get(&self, agent: &str, key: &ContentKey) -> Option<ClassifiedContent> {
        let cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = cache.get(agent)?;
        (!cached.is_racy && cached.key == *key).then(|| cached.content.clone())
    }

    /// Makes sure that the memories of agents are read at their next observation: a program that maps a
    /// file, or sets its times, may change it without giving it another stamp.
    pub fn forget(&self, agents: &[String]) {
        let mut cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        for agent in agents {
            cache.remove(agent);
        }
    }

    /// Returns the findings in the last content of an agent's memory, if it is the same content with
    /// the same boundary: a new stamp alone needs no scan.
    pub fn findings_in(
        &self,
        agent: &str,
        sha256: Digest,
        boundary: Option<Boundary>,
    ) -> Option<ScanSummary> {
        let cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let content = &cache.get(agent)?.content.content;
        let is_same = content.sha256 == sha256 && content.boundary == boundary;
        is_same.then(|| content.findings.clone())
    }

    /// Stores the content of an agent's memory in place of an earlier one. `read_began` is the time
    /// before its read.
    pub fn store(
        &self,
        agent: &str,
        key: ContentKey,
        content: ClassifiedContent,
        read_began: DateTime<FixedOffset>,
        clock: &dyn Clock,
    ) {
        let mut cache = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache
            .get(agent)
            .filter(|known| known.key.stamp == key.stamp);
        let first_seen = known.map_or_else(|| clock.instant(), |known| known.first_seen);
        let is_racy = is_racy(&key.stamp, first_seen, read_began, clock);
        let cached = CachedContent {
            is_racy,
            key,
            first_seen,
            content,
        };
        cache.insert(agent.to_string(), Box::new(cached));
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
