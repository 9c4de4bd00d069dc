//! The histories in a ledger's index file. Each is parsed when it is asked for: a run of a few
//! agents needs few.

use std::ops::Range;

use super::index::AgentHistory;

/// The lines of an index file that hold histories: an agent's name as JSON, a tab, and its
/// [`AgentHistory`], in the order of these names.
#[derive(Default)]
pub struct StoredHistories {
    text: Vec<u8>,
    lines: Vec<Range<usize>>,
}

impl StoredHistories {
    /// Takes the lines of `text` from an offset on; None if they are not in order.
    pub fn new(text: Vec<u8>, start: usize) -> Option<StoredHistories> {
        let line_feeds = memchr::memchr_iter(b'\n', &text[start..]);
        let ends = line_feeds.map(|offset| start + offset);
        let mut start = start;
        let lines = ends.map(|end| std::mem::replace(&mut start, end + 1)..end);
        let lines: Vec<Range<usize>> = lines.collect();
        let stored = StoredHistories { text, lines };
        let is_sorted = stored.iter().is_sorted_by(|(one, _), (two, _)| one < two);
        is_sorted.then_some(stored)
    }

    /// Number of histories.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the JSON of each agent's name and history.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| self.split(line))
    }

    /// Returns an agent's history, if it is stored; [`None`] inside if it cannot be parsed.
    pub fn find(&self, agent: &str) -> Option<Option<AgentHistory>> {
        let name = serde_json::to_vec(agent).ok()?;
        let key = |line: &Range<usize>| self.split(line).0;
        let found = self.lines.binary_search_by(|line| key(line).cmp(&name));
        let (_, history) = self.split(self.lines.get(found.ok()?)?);
        Some(serde_json::from_slice(history).ok())
    }

    fn split(&self, line: &Range<usize>) -> (&[u8], &[u8]) {
        let line = &self.text[line.clone()];
        match memchr::memchr(b'\t', line) {
            Some(tab) => (&line[..tab], &line[tab + 1..]),
            None => (line, &[]),
        }
    }
}
