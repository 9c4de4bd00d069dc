//! SHA-256 digests: the identity of baselines, entries and memories.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Text form: 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns its bytes.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns the length of the prefix of `bytes` that has this digest and that ends with a line,
    /// before or after its line feed, or is all of `bytes`.
    pub fn matching_prefix_length(self, bytes: &[u8]) -> Option<usize> {
        let mut hasher = Sha256::new();
        let mut hashed = 0;
        let line_ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let prefix_lengths = line_ends.flat_map(|(at, _)| [at, at + 1]);
        prefix_lengths.chain([bytes.len()]).find(|end| {
            hasher.update(&bytes[hashed..*end]);
            hashed = *end;
            Digest(hasher.clone().finalize().into()) == self
        })
    }

    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// All zeros: the predecessor of the first record of a chain.
    pub const ZERO: Digest = Digest([0; 32]);

    /// Returns its first eight bytes as a number, where an accidental collision does no harm.
    pub fn to_number(self) -> u64 {
        let (first, _) = self.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_be_bytes(*first)
    }

    /// Returns the first `digits` hexadecimal digits, for display.
    pub fn short_hex(&self, digits: usize) -> String {
        let mut text = self.to_string();
        text.truncate(digits);
        text
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// Size from which bytes are hashed on a thread of their own, in parallel to reading and writing
/// them. Few memories are that large.
const MIN_THREADED_BYTES: u64 = 4 << 20;

/// Maximum number of bytes queued for that thread.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Computes a [`Digest`] of bytes that arrive in pieces.
#[derive(Default)]
pub struct Hasher {
    state: Sha256,
    hashed_bytes: u64,
    worker: Option<HashWorker>,
}

/// A thread that continues a digest.
struct HashWorker {
    pieces: SyncSender<Vec<u8>>,
    partial_piece: Vec<u8>,
    /// Returned buffers, to be filled again.
    empty_buffers: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
}

impl Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        // The thread starts only when more bytes arrive: bytes at hand are hashed here.
        if self.hashed_bytes > MIN_THREADED_BYTES && self.worker.is_none() {
            // Without a thread, hashing is slower but has the same result.
            self.worker = HashWorker::start(&self.state);
        }
        self.hashed_bytes += bytes.len() as u64;
        match &mut self.worker {
            Some(beside) => beside.update(bytes),
            None => self.state.update(bytes),
        }
    }

    /// Returns the digest of all bytes added.
    pub fn finish(self) -> Digest {
        let hasher = match self.worker {
            None => self.state,
            Some(beside) => beside.finish(),
        };
        Digest(hasher.finalize().into())
    }
}

impl HashWorker {
    /// Starts a thread that continues from `state`. Returns `None` if no thread can be started.
    fn start(state: &Sha256) -> Option<HashWorker> {
        let (pieces, queue) = sync_channel::<Vec<u8>>(2);
        let (back, empty) = channel();
        let begun = state.clone();
        let work = move || {
            queue.into_iter().fold(begun, |mut hasher, mut piece| {
                hasher.update(&piece);
                piece.clear();
                // The receiver may be gone.
                let _ = back.send(piece);
                hasher
            })
        };
        let thread = thread::Builder::new().spawn(work).ok()?;
        Some(HashWorker {
            pieces,
            partial_piece: Vec::new(),
            empty_buffers: empty,
            thread,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        self.partial_piece.extend_from_slice(bytes);
        if self.partial_piece.len() >= MAX_QUEUED_BYTES / 4 {
            let next = self.empty_buffers.try_recv().unwrap_or_default();
            // The thread ends only after the last piece.
            let _ = self
                .pieces
                .send(std::mem::replace(&mut self.partial_piece, next));
        }
    }

    fn finish(self) -> Sha256 {
        let HashWorker {
            pieces,
            partial_piece: piece,
            thread,
            ..
        } = self;
        let _ = pieces.send(piece);
        drop(pieces);
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = String;

    /// Parses exactly 64 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Digest, String> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err("a SHA-256 digest has 64 hexadecimal digits".to_string());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let nibble = |digit: u8| (digit as char).to_digit(16);
            match (nibble(pair[0]), nibble(pair[1])) {
                (Some(high), Some(low)) => *byte = (high * 16 + low) as u8,
                _ => return Err("a SHA-256 digest has hexadecimal digits only".to_string()),
            }
        }
        Ok(Digest(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        deserializer.deserialize_str(DigestVisitor)
    }
}

/// Parses the text form where it is, because ledgers and indexes have many digests.
struct DigestVisitor;

impl Visitor<'_> for DigestVisitor {
    type Value = Digest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a SHA-256 digest")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
        text.parse().map_err(E::custom)
    }
}

/// Formats the line of a file as sha256sum(1) does, with its line feed.
pub fn format_checksum_line(name: &str, digest: Digest) -> String {
    let mut escaped = String::new();
    for c in name.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            c => escaped.push(c),
        }
    }
    let mark = if escaped == name { "" } else { "\\" };
    format!("{mark}{digest}  {escaped}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_in_pieces_equals_digest_of_whole() {
        let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 251) as u8).collect();
        let whole = Digest(Sha256::digest(&bytes).into());
        for piece in [bytes.len(), 1_000_001, 65_536, 7_777] {
            let mut hasher = Hasher::default();
            bytes.chunks(piece).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), whole, "in pieces of {piece}");
        }
    }

    #[test]
    fn digest_text_form_matches_sha256sum() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        assert!("ba78".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }

    #[test]
    fn beginning_is_found_by_its_digest() {
        let bytes = b"one\ntwo\nthree";
        for beginning in [&b"one"[..], b"one\n", b"one\ntwo", b"one\ntwo\n", bytes] {
            let found = Digest::of(beginning).matching_prefix_length(bytes);
            assert_eq!(found, Some(beginning.len()));
        }
        assert_eq!(Digest::of(b"one\nt").matching_prefix_length(bytes), None);
        assert_eq!(Digest::of(b"").matching_prefix_length(b""), Some(0));
    }
}
