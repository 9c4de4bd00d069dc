//! The comparison of a memory with its baseline: boundary, scratch, and the part that a reset archives.

use std::sync::Arc;

use super::{Baseline, Boundary, MemoryAccumulator, find_boundary};

/// Result of [`classify`].
pub struct Classification {
    /// Where the scratch begins, if that is known.
    pub boundary: Option<Boundary>,
    /// The version that the boundary was found with.
    pub version: Option<Arc<Baseline>>,
    /// Lines of scratch, without an unchanged tail of the version.
    pub scratch_lines: u64,
    /// Bytes of these lines.
    pub scratch_bytes: u64,
    /// Whether the memory equals the current baseline, line ends aside.
    pub is_clean: bool,
    /// Whether it equals it byte for byte.
    pub is_identical: bool,
    /// Whether the bytes above the boundary equal the version's operator part.
    pub is_exact: bool,
    /// Offset of the first byte that a reset archives: the boundary, or 0 for the whole memory; none if
    /// the memory holds no bytes of the agent.
    pub archived_offset: Option<usize>,
}

impl Classification {
    /// Offset of the boundary; 0 where there is none, so that all bytes are below it.
    pub fn boundary_offset(&self) -> usize {
        self.boundary.map_or(0, |boundary| boundary.offset)
    }

    /// Offset of the agent's own notes in a memory that begins with `prefix`: that of the boundary, or
    /// behind an unchanged tail of the version.
    pub fn notes_offset(&self, prefix: &[u8]) -> usize {
        let boundary = self.boundary_offset();
        let below = prefix.get(boundary..).unwrap_or_default();
        let version = self.version.as_ref();
        let tail = version.and_then(|version| version.unchanged_tail_length(below));
        boundary + tail.unwrap_or(0)
    }
}

/// Classifies a memory against the current baseline and the other versions that were pushed to its
/// agent, newest first.
pub fn classify(
    reading: &MemoryAccumulator,
    current: &Arc<Baseline>,
    earlier: &[Arc<Baseline>],
) -> Classification {
    let (prefix, is_whole) = (reading.prefix(), reading.is_whole());
    // Against an empty baseline every line would count as drift.
    let mut boundary = match current.bytes() {
        [] => None,
        _ => find_boundary(prefix, current, earlier),
    };
    let version = boundary.and_then(|boundary| {
        let digest = boundary.rule.version().unwrap_or(current.digest());
        let mut versions = std::iter::once(current).chain(earlier);
        versions.find(|version| version.digest() == digest).cloned()
    });
    if let Some(found) = boundary
        .as_mut()
        .filter(|found| found.line == 0 && found.is_drifted())
    {
        // No separator shows where the baseline part ends: all bytes are above the boundary,
        // including those that were not kept.
        found.offset = reading.size() as usize;
    }
    let (scratch_lines, scratch_bytes) = match (&boundary, &version) {
        (Some(found), Some(version)) => count_scratch(reading, found, version),
        _ => (reading.line_count(), reading.size()),
    };
    let intact_version = version
        .as_ref()
        .filter(|_| boundary.is_some_and(|found| !found.is_drifted()));
    let is_exact = intact_version
        .zip(boundary)
        .is_some_and(|(version, found)| {
            prefix.get(..found.offset) == Some(version.operator_part())
        });
    // An undo makes such a memory from the version alone.
    let is_version = is_whole
        && intact_version
            .is_some_and(|version| prefix == version.operator_part() || prefix == version.bytes());
    // Without a separator line nothing in the file marks the boundary, so the entry keeps all of it,
    // as the original tool's does.
    let split_at = boundary.filter(|found| is_exact && found.line > 0);
    Classification {
        archived_offset: (!is_version).then(|| split_at.map_or(0, |found| found.offset)),
        is_clean: is_whole && current.equals_apart_from_line_ends(prefix),
        is_identical: is_whole && prefix == current.bytes(),
        is_exact,
        boundary,
        version,
        scratch_lines,
        scratch_bytes,
    }
}

/// Counts lines and bytes below a boundary, without an unchanged tail of the version.
fn count_scratch(reading: &MemoryAccumulator, found: &Boundary, version: &Baseline) -> (u64, u64) {
    let (above, below) = found.split(reading.prefix());
    let tail_length = version.unchanged_tail_length(below).unwrap_or(0);
    let bytes = reading
        .size()
        .saturating_sub((found.offset + tail_length) as u64);
    if bytes == 0 {
        return (0, 0);
    }
    let count_line_feeds = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() as u64;
    let fixed = count_line_feeds(above) + count_line_feeds(&below[..tail_length]);
    (reading.line_count().saturating_sub(fixed), bytes)
}
