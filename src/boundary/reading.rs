//! One sequential read of a memory: its beginning, and the counts and the digest of all of it.

use super::Baseline;
use crate::base::digest::{Digest, Hasher};

/// Maximum number of bytes of a memory that are kept to find the boundary and to show it. The rest
/// is only counted and digested, so memory use does not grow with the file.
pub const MAX_WINDOW_BYTES: usize = 1 << 20;

/// Returns the number of bytes to keep of a memory, for a baseline of this size.
pub fn memory_window(baseline_bytes: usize) -> usize {
    MAX_WINDOW_BYTES.max(4 * baseline_bytes)
}

/// Collects one sequential read of a file: keeps its beginning, counts and digests all of it.
#[derive(Default)]
pub struct MemoryAccumulator {
    /// Maximum number of bytes of the prefix.
    window: usize,
    prefix: Vec<u8>,
    size: u64,
    line_feeds: u64,
    last_byte: u8,
    /// Of all bytes, once the prefix is not all of them.
    hasher: Option<Hasher>,
    /// Digest of all bytes, once it is known.
    digest: Option<Digest>,
}

impl MemoryAccumulator {
    /// Starts a read of which enough is kept to find the boundary with a baseline. The default keeps
    /// nothing.
    pub fn for_baseline(baseline: &Baseline) -> MemoryAccumulator {
        MemoryAccumulator {
            window: memory_window(baseline.bytes().len()),
            ..MemoryAccumulator::default()
        }
    }

    /// Adds the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.window.saturating_sub(self.prefix.len());
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
        self.line_feeds += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.last_byte = bytes.last().copied().unwrap_or(self.last_byte);
    }

    /// The beginning of the file.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the beginning of the file.
    pub fn into_prefix(self) -> Vec<u8> {
        self.prefix
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the prefix is the whole file.
    pub fn is_whole(&self) -> bool {
        self.size == self.prefix.len() as u64
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

    /// Number of lines, including an unfinished last one.
    pub fn line_count(&self) -> u64 {
        self.line_feeds + u64::from(self.size > 0 && self.last_byte != b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulator_keeps_bounded_window() {
        let piece = [b'x'; 1000];
        let mut reading = MemoryAccumulator::for_baseline(&Baseline::new(Vec::new(), "---"));
        for _ in 0..5000 {
            reading.push(&piece);
        }
        assert_eq!(reading.size(), 5_000_000);
        assert_eq!(reading.prefix().len(), MAX_WINDOW_BYTES);
        assert!(reading.prefix.capacity() <= 2 * MAX_WINDOW_BYTES);
        assert_eq!(reading.digest(), Digest::of(&vec![b'x'; 5_000_000]));
        assert_eq!(reading.line_count(), 1);
    }

    #[test]
    fn window_size_follows_largest_baseline() {
        let baseline = |size| Baseline::new(vec![b'x'; size], "---");
        let window = |size| MemoryAccumulator::for_baseline(&baseline(size)).window;
        assert_eq!(window(10), MAX_WINDOW_BYTES);
        assert_eq!(window(1 << 20), 4 << 20);
    }
}
