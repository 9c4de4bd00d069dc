//! An excerpt of an error output of any length: its beginning and its end.

use std::collections::VecDeque;

/// Bytes kept of the beginning, and of the end.
const EXCERPT_BYTES: usize = 4096;

/// The beginning and the end of some text.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted_bytes: usize,
}

impl Excerpt {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(EXCERPT_BYTES - self.head.len()));
        self.head.extend(first);
        // Bytes that later ones would push out need not be stored.
        let late = rest.len().saturating_sub(EXCERPT_BYTES);
        self.tail.extend(&rest[late..]);
        let excess = self.tail.len().saturating_sub(EXCERPT_BYTES);
        self.tail.drain(..excess);
        self.omitted_bytes += late + excess;
    }

    /// Returns the text, with whole lines only where some were left out.
    pub(super) fn to_text(&self) -> Vec<u8> {
        let mut text = self.head.clone();
        let mut last: Vec<u8> = self.tail.iter().copied().collect();
        if self.omitted_bytes > 0 {
            let line = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n');
            let end = text.iter().rposition(|byte| *byte == b'\n');
            text.truncate(end.map_or(0, |at| at + 1));
            last.drain(..line(&last).map_or(last.len(), |at| at + 1));
            text.extend_from_slice(b"(some of it was left out)\n");
        }
        text.append(&mut last);
        text
    }
}
