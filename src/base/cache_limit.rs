//! The size limit of caches of baselines and their versions.

/// Maximum number of baselines or versions in memory, which many agents may share.
const MAX_CACHED_BASELINES: usize = 256;

/// Size from which on no more of them are kept, in bytes.
const MAX_CACHED_BYTES: usize = 64 << 20;

/// Returns whether a cache of items with these sizes takes no more.
pub(crate) fn is_full(sizes: impl ExactSizeIterator<Item = usize>) -> bool {
    sizes.len() >= MAX_CACHED_BASELINES || sizes.sum::<usize>() >= MAX_CACHED_BYTES
}
