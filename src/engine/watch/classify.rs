//! Classification of a memory against its baseline, from one sequential read of the file.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::archive::EntryKind;
use crate::base::clock::Clock;
use crate::base::diff;
use crate::base::diff::drift::{self, DriftCounts, LineChange};
use crate::base::digest::{Digest, Hasher};
use crate::base::untrusted;
use crate::boundary::{
    self, Baseline, Boundary, BoundaryRule, describe_line_ends, with_line_ends_of,
};
use crate::engine::context::memory_window;
use crate::lint::ScanSummary;
use crate::store::observation::MemoryContent;
use crate::store::record::FileState;
use crate::store::scan_basis::ScanBasis;
use crate::store::state::State;
use crate::transport::Stamp;

/// Time limit of the search for edited lines.
const EDITS_DIFF_TIMEOUT: Duration = Duration::from_millis(50);

/// Reason of [`State::Missing`].
pub(in crate::engine) const NO_MEMORY_REASON: &str = "no memory file";

/// Reason of [`State::NoSep`].
const NO_BOUNDARY_REASON: &str = "no separator: the whole file would be archived";

/// Collects one sequential read of a file: keeps its beginning, counts and digests all of it.
#[derive(Default)]
pub(in crate::engine) struct MemoryAccumulator {
    pub prefix: Vec<u8>,
    pub size: u64,
    line_feeds: u64,
    last_byte: u8,
    /// Of all bytes, once the prefix is not all of them.
    hasher: Option<Hasher>,
    /// Digest of all bytes, once it is known.
    digest: Option<Digest>,
}

impl MemoryAccumulator {
    /// Adds the next bytes of the file; keeps at most `window` bytes in all.
    pub fn push(&mut self, bytes: &[u8], window: usize) {
        let room = window.saturating_sub(self.prefix.len());
        let (kept, rest) = bytes.split_at(room.min(bytes.len()));
        self.prefix.extend_from_slice(kept);
        if !rest.is_empty() {
            let prefix = &self.prefix;
            let hasher = self.hasher.get_or_insert_with(|| {
                let mut hasher = Hasher::default();
                hasher.update(prefix);
                hasher
            });
            hasher.update(rest);
        }
        self.size += bytes.len() as u64;
        self.line_feeds += count_line_feeds(bytes);
        self.last_byte = bytes.last().copied().unwrap_or(self.last_byte);
    }

    /// Returns the digest of all bytes. No bytes may be added afterwards.
    pub fn digest(&mut self) -> Digest {
        let (hasher, prefix) = (&mut self.hasher, &self.prefix);
        *self.digest.get_or_insert_with(|| match hasher.take() {
            Some(hasher) => hasher.finish(),
            None => Digest::of(prefix),
        })
    }

    /// Sets the digest of all bytes, where another file with the same bytes has shown it.
    pub fn set_digest(&mut self, digest: Digest) {
        self.digest = Some(digest);
    }

    /// Returns the state of the file. No bytes may be added afterwards.
    pub fn file_state(&mut self) -> FileState {
        FileState::File {
            sha256: self.digest(),
            size: self.size,
            lines: self.line_count(),
        }
    }

    /// Number of lines, including an unfinished last one.
    pub fn line_count(&self) -> u64 {
        self.line_feeds + u64::from(self.size > 0 && self.last_byte != b'\n')
    }
}

/// Counts lines; the last one may lack its line feed.
pub(in crate::engine) fn count_lines(bytes: &[u8]) -> u64 {
    count_line_feeds(bytes) + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

fn count_line_feeds(bytes: &[u8]) -> u64 {
    // A chunk is small enough to be counted in one byte, which the compiler makes many times faster
    // than counting in 64 bits.
    let few = bytes.chunks(usize::from(u8::MAX));
    let count = |few: &[u8]| few.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    few.map(|few| u64::from(count(few))).sum()
}

/// Number of bytes of a memory to keep for a baseline of this size.
pub(in crate::engine) fn window_size(baseline: &Baseline) -> usize {
    memory_window(baseline.bytes().len())
}

/// Result of [`classify`].
pub(in crate::engine) struct Classification {
    pub boundary: Option<Boundary>,
    /// The version that the boundary was found with.
    pub version: Option<Arc<Baseline>>,
    pub scratch_lines: u64,
    pub scratch_bytes: u64,
    /// Whether the memory equals the current baseline, line ends aside.
    pub is_clean: bool,
    /// Whether it equals it byte for byte.
    pub is_identical: bool,
    /// Whether the bytes above the boundary equal the version's operator part.
    pub is_exact: bool,
    /// The entry that a reset writes of the memory.
    pub entry_kind: Option<EntryKind>,
}

impl Classification {
    /// Returns the state of the memory, apart from its size.
    pub fn state(&self) -> State {
        match (&self.boundary, &self.version) {
            (None, _) => State::NoSep,
            (Some(found), Some(_)) if found.is_drifted() => State::Drifted,
            (Some(found), Some(_)) if matches!(found.rule, BoundaryRule::Behind(_)) => {
                State::Behind
            }
            (Some(_), _) if self.is_clean => State::Clean,
            (Some(_), _) => State::Scratch,
        }
    }

    /// Says how many lines above the boundary the agent changed, without another diff; none without
    /// drift.
    pub fn describe_drift(&self) -> Option<String> {
        let boundary = self.boundary.filter(|boundary| boundary.is_drifted())?;
        Some(describe_edit_counts(
            boundary.added_lines,
            boundary.removed_lines,
        ))
    }

    /// Counts the lines above the boundary that the agent changed, by kind; none without drift. `prefix`
    /// is the beginning of the memory.
    pub fn count_drift(&self, prefix: &[u8], clock: &dyn Clock) -> Option<DriftCounts> {
        let boundary = self.boundary.filter(|boundary| boundary.is_drifted())?;
        let new = prefix.get(..boundary.offset).unwrap_or(prefix);
        let old = with_line_ends_of(self.version.as_ref()?.operator_part(), new);
        let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
        let diff = diff::compare_lines(&old, new, Some(deadline));
        (!diff.is_too_large).then(|| DriftCounts::of(&drift::classify_changes(&diff)))
    }
}

pub(in crate::engine) fn classify(
    reading: &MemoryAccumulator,
    current: &Arc<Baseline>,
    earlier: &[Arc<Baseline>],
) -> Classification {
    let whole = reading.size == reading.prefix.len() as u64;
    // Against an empty baseline every line would count as drift.
    let mut boundary = match current.bytes() {
        [] => None,
        _ => boundary::find_boundary(&reading.prefix, current, earlier),
    };
    let version = boundary.and_then(|boundary| match boundary.rule {
        BoundaryRule::Intact => Some(Arc::clone(current)),
        BoundaryRule::Behind(digest) | BoundaryRule::Aligned(digest) => std::iter::once(current)
            .chain(earlier)
            .find(|version| version.digest() == digest)
            .cloned(),
    });
    if let Some(found) = boundary
        .as_mut()
        .filter(|found| found.line == 0 && found.is_drifted())
    {
        // No separator shows where the baseline part ends: all bytes are above the boundary,
        // including those that were not kept.
        found.offset = reading.size as usize;
    }
    let (scratch_lines, scratch_bytes) = match (&boundary, &version) {
        (Some(found), Some(version)) => count_scratch(reading, found, version),
        _ => (reading.line_count(), reading.size),
    };
    let prefix = reading.prefix.as_slice();
    let intact_version = version
        .as_ref()
        .filter(|_| boundary.is_some_and(|found| !found.is_drifted()));
    let is_exact = intact_version
        .zip(boundary)
        .is_some_and(|(version, found)| {
            prefix.get(..found.offset) == Some(version.operator_part())
        });
    // An undo makes such a memory from the version alone.
    let is_version = whole
        && intact_version
            .is_some_and(|version| prefix == version.operator_part() || prefix == version.bytes());
    // Without a separator line nothing in the file marks the boundary, so the entry keeps all of it,
    // as the original tool's does.
    let is_split = is_exact && boundary.is_some_and(|found| found.line > 0);
    Classification {
        entry_kind: if is_version {
            None
        } else if is_split {
            Some(EntryKind::Scratch)
        } else {
            Some(EntryKind::FullBackup)
        },
        is_clean: whole && current.equals_apart_from_line_ends(prefix),
        is_identical: whole && prefix == current.bytes(),
        is_exact,
        boundary,
        version,
        scratch_lines,
        scratch_bytes,
    }
}

/// Counts lines and bytes below a boundary, without an unchanged tail of the version.
fn count_scratch(reading: &MemoryAccumulator, found: &Boundary, version: &Baseline) -> (u64, u64) {
    let (above, below) = reading
        .prefix
        .split_at(found.offset.min(reading.prefix.len()));
    let tail_length = version.unchanged_tail_length(below).unwrap_or(0);
    let bytes = reading
        .size
        .saturating_sub((found.offset + tail_length) as u64);
    if bytes == 0 {
        return (0, 0);
    }
    let fixed = count_line_feeds(above) + count_line_feeds(&below[..tail_length]);
    (reading.line_count().saturating_sub(fixed), bytes)
}

/// A memory's content, and the state that follows from it.
#[derive(Clone)]
pub(in crate::engine) struct ClassifiedContent {
    pub content: MemoryContent,
    pub state: State,
    pub reason: String,
}

impl ClassifiedContent {
    /// Describes a memory that was read; `stamp` is the file's, `current` the baseline that
    /// `classification` was made with, and `findings` those of the scan.
    pub fn new(
        reading: &mut MemoryAccumulator,
        stamp: &Stamp,
        classification: &Classification,
        current: &Baseline,
        (findings, scan_basis): (ScanSummary, ScanBasis),
        clock: &dyn Clock,
    ) -> ClassifiedContent {
        let content = MemoryContent {
            size: reading.size,
            lines: reading.line_count(),
            sha256: reading.digest(),
            modified_ns: stamp.modified,
            boundary: classification.boundary,
            scratch_lines: classification.scratch_lines,
            scratch_bytes: classification.scratch_bytes,
            entry_kind: classification.entry_kind,
            hidden: untrusted::count_hidden(&reading.prefix),
            findings,
            scan_basis,
        };
        let state = classification.state();
        let reason = describe_state(&reading.prefix, state, classification, current, clock);
        ClassifiedContent {
            content,
            state,
            reason,
        }
    }
}

/// Describes why a memory has its state, and how its line ends differ from those of its version.
fn describe_state(
    prefix: &[u8],
    state: State,
    classification: &Classification,
    current: &Baseline,
    clock: &dyn Clock,
) -> String {
    let found = classification.boundary.as_ref();
    let Some((found, version)) = found.zip(classification.version.as_ref()) else {
        return match state {
            State::NoSep => NO_BOUNDARY_REASON.to_string(),
            _ => String::new(),
        };
    };
    let above = &prefix[..found.offset.min(prefix.len())];
    let line_ends = describe_line_ends(above, version.operator_part());
    let reason = match state {
        State::Drifted => describe_edits(version.operator_part(), above, clock),
        State::Behind => describe_lag(version, current, clock),
        State::Scratch if classification.scratch_bytes == 0 && line_ends.is_none() => {
            "no scratch, but not the baseline's exact bytes".to_string()
        }
        _ => String::new(),
    };
    match line_ends {
        Some(line_ends) if reason.is_empty() => line_ends,
        Some(line_ends) => format!("{reason}; {line_ends}"),
        None => reason,
    }
}

/// Says that a memory is larger than its agent allows; none if it is not.
pub(in crate::engine) fn describe_oversize(size: u64, limit: u64) -> Option<String> {
    (size > limit).then(|| format!("over the limit of {limit} bytes"))
}

fn describe_edit_counts(added: impl Display, removed: impl Display) -> String {
    format!("rules edited: +{added} -{removed} lines")
}

/// Says how far a version is behind the current baseline: "behind by +3 -1 lines".
fn describe_lag(version: &Baseline, current: &Baseline, clock: &dyn Clock) -> String {
    let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
    let old = with_line_ends_of(version.bytes(), current.bytes());
    let (added, removed) = diff::count_changes(&old, current.bytes(), Some(deadline));
    format!("behind by +{added} -{removed} lines")
}

/// Counts the protected lines that are gone, names the edited lines, and counts the invisible
/// characters: "1 protected line gone, rules edited: L31 L58".
fn describe_edits(old: &[u8], new: &[u8], clock: &dyn Clock) -> String {
    let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
    let diff = diff::compare_lines(&with_line_ends_of(old, new), new, Some(deadline));
    if diff.is_too_large {
        return describe_edit_counts(diff.added, diff.removed);
    }
    let mut numbers: Vec<usize> = diff
        .hunks(0)
        .iter()
        .filter_map(|hunk| {
            diff.lines[hunk.changed_range.clone()]
                .iter()
                .find_map(|l| l.new_number.or(l.old_number))
        })
        .collect();
    let more = numbers.len() > 4;
    numbers.truncate(4);
    let numbers: Vec<String> = numbers.iter().map(|line| format!("L{line}")).collect();
    let changes = drift::classify_changes(&diff).into_iter();
    // Lost protection comes first: a narrow column cuts the end of a reason.
    let mut why = match changes.filter(LineChange::is_protection_gone).count() {
        0 => String::new(),
        1 => "1 protected line gone, ".to_string(),
        count => format!("{count} protected lines gone, "),
    };
    why.push_str(&format!(
        "rules edited: {}{}",
        numbers.join(" "),
        if more { " …" } else { "" }
    ));
    let hidden = untrusted::count_hidden(new);
    match hidden.invisible + hidden.controls {
        0 => {}
        1 => why.push_str(", 1 invisible character"),
        count => why.push_str(&format!(", {count} invisible characters")),
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::context::MAX_WINDOW_BYTES;

    #[test]
    fn accumulator_keeps_bounded_window() {
        let piece = [b'x'; 1000];
        let mut reading = MemoryAccumulator::default();
        for _ in 0..5000 {
            reading.push(&piece, MAX_WINDOW_BYTES);
        }
        assert_eq!(reading.size, 5_000_000);
        assert_eq!(reading.prefix.len(), MAX_WINDOW_BYTES);
        assert!(reading.prefix.capacity() <= 2 * MAX_WINDOW_BYTES);
        assert_eq!(reading.digest(), Digest::of(&vec![b'x'; 5_000_000]));
        assert_eq!(reading.line_count(), 1);
    }

    #[test]
    fn line_feeds_are_counted_at_any_length() {
        for length in [0, 1, 254, 255, 256, 510, 511, 100_000] {
            assert_eq!(count_line_feeds(&vec![b'\n'; length]), length as u64);
            assert_eq!(count_line_feeds(&vec![b'x'; length]), 0);
            let mixed: Vec<u8> = (0..length).map(|at| [b'\n', 0][at % 2]).collect();
            assert_eq!(count_line_feeds(&mixed), length.div_ceil(2) as u64);
        }
    }

    #[test]
    fn window_size_follows_largest_baseline() {
        let baseline = |size| Baseline::new(vec![b'x'; size], "---");
        assert_eq!(window_size(&baseline(10)), MAX_WINDOW_BYTES);
        assert_eq!(window_size(&baseline(1 << 20)), 4 << 20);
    }
}
