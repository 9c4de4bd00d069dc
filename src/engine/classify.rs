//! A memory while it is read, and what it means against its baseline.

use std::sync::Arc;

use super::memory::{self, Baseline, Boundary, BoundaryRule};
use crate::digest::{Digest, Hasher};

/// How much of a memory is kept for finding the boundary and for showing it.
/// The rest is only counted and digested, so memory use does not grow with the
/// file.
pub const MAX_WINDOW_BYTES: usize = 1 << 20;

/// A file while it is read once: its beginning is kept, all of it is counted
/// and digested.
#[derive(Default)]
pub(super) struct MemoryAccumulator {
    pub prefix: Vec<u8>,
    pub size: u64,
    line_feeds: u64,
    last_byte: u8,
    hasher: Hasher,
    /// Once somebody asked for it, after the last piece.
    digest: Option<Digest>,
}

impl MemoryAccumulator {
    /// Takes the next piece, keeping at most `window` bytes in all.
    pub fn push(&mut self, bytes: &[u8], window: usize) {
        let room = window.saturating_sub(self.prefix.len());
        self.prefix
            .extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.size += bytes.len() as u64;
        self.line_feeds += count_line_feeds(bytes);
        self.last_byte = bytes.last().copied().unwrap_or(self.last_byte);
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
    pub fn line_count(&self) -> u64 {
        self.line_feeds + u64::from(self.size > 0 && self.last_byte != b'\n')
    }
}

/// How many lines these are; the last one may lack its end.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    count_line_feeds(bytes) + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

fn count_line_feeds(bytes: &[u8]) -> u64 {
    // So few at once that a byte can count them, which the compiler makes many
    // times faster than counting in 64 bits.
    let few = bytes.chunks(usize::from(u8::MAX));
    let count = |few: &[u8]| few.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    few.map(|few| u64::from(count(few))).sum()
}

/// How much of a memory to keep for a baseline of this size.
pub(super) fn window_size(baseline: &Baseline) -> usize {
    MAX_WINDOW_BYTES.max(4 * baseline.bytes().len())
}

/// What a memory means against its baseline.
pub(super) struct Classification {
    pub boundary: Option<Boundary>,
    /// The version that the boundary was found by.
    pub version: Option<Arc<Baseline>>,
    pub scratch_lines: u64,
    pub scratch_bytes: u64,
    /// Equal to the current baseline, byte for byte.
    pub is_clean: bool,
    /// The bytes above the boundary are the version's operator part exactly.
    pub is_exact: bool,
}

pub(super) fn classify(
    reading: &MemoryAccumulator,
    current: &Arc<Baseline>,
    earlier: &[Arc<Baseline>],
) -> Classification {
    let whole = reading.size == reading.prefix.len() as u64;
    // Measured against nothing, every line would be drift.
    let mut boundary = match current.bytes() {
        [] => None,
        _ => memory::find_boundary(&reading.prefix, current, earlier),
    };
    let version = boundary.and_then(|boundary| match boundary.rule {
        BoundaryRule::Intact => Some(Arc::clone(current)),
        BoundaryRule::Behind(digest) | BoundaryRule::Aligned(digest) => std::iter::once(current)
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
            let cut = found.offset.min(reading.prefix.len());
            let (above, below) = reading.prefix.split_at(cut);
            let tail = match below.starts_with(version.tail()) {
                true => version.tail(),
                false => b"",
            };
            let fixed = count_line_feeds(above) + count_line_feeds(tail);
            let unfinished = tail.last().is_some_and(|byte| *byte != b'\n')
                && reading.size == (found.offset + tail.len()) as u64;
            (
                reading
                    .line_count()
                    .saturating_sub(fixed + u64::from(unfinished)),
                reading
                    .size
                    .saturating_sub((found.offset + tail.len()) as u64),
            )
        }
        _ => (reading.line_count(), reading.size),
    };
    let exact = match (&boundary, &version) {
        (Some(found), Some(version)) if !found.is_drifted() => {
            reading.prefix.get(..found.offset) == Some(version.operator_part())
        }
        _ => false,
    };
    Classification {
        boundary,
        version,
        scratch_lines: if scratch_bytes == 0 { 0 } else { scratch_lines },
        scratch_bytes,
        is_clean: whole && reading.prefix == current.bytes(),
        is_exact: exact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reader_keeps_bounded_window() {
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
