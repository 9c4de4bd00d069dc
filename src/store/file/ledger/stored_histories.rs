//! The histories in a ledger's index file: a table, and a line for each row of it. A run of few
//! agents reads the table and the lines of its agents; one of many agents reads all lines at once.
//!
//! A line is an agent's name as JSON, a tab, and its [`AgentHistory`]. A row has three hexadecimal
//! numbers: the beginning of the digest of the name, the offset of the line behind the table, and the
//! beginning of the digest of the line. The rows are in the order of their text.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::base::digest::Digest;
use crate::store::agent_history::AgentHistory;

/// Digits of each number in a row.
const DIGITS: usize = 16;

/// Length of a row: its numbers, two blanks and the line feed.
const ROW_BYTES: usize = 3 * DIGITS + 3;

/// From so many lookups on, all lines are read at once.
const MAX_SINGLE_LOOKUPS: usize = 64;

/// A row of the table.
struct Row<'t>(&'t [u8]);

impl<'t> Row<'t> {
    fn number(&self, place: usize) -> &'t [u8] {
        let start = place * (DIGITS + 1);
        &self.0[start..start + DIGITS]
    }

    fn key(&self) -> &'t [u8] {
        self.number(0)
    }

    fn offset(&self) -> Option<u64> {
        u64::from_str_radix(str::from_utf8(self.number(1)).ok()?, 16).ok()
    }

    fn check(&self) -> &'t [u8] {
        self.number(2)
    }
}

/// Returns the beginning of the digest of some bytes, as it is in a row.
fn short_digest(bytes: &[u8]) -> String {
    Digest::of(bytes).short_hex(DIGITS)
}

/// The histories of an index file; none without a file.
#[derive(Default)]
pub struct StoredHistories {
    file: Option<File>,
    table: Vec<u8>,
    /// The offsets in the file of the first line and of its end.
    lines: Range<u64>,
    /// All lines, once they were read.
    text: OnceCell<Option<Vec<u8>>>,
    lookups: Cell<usize>,
}

impl StoredHistories {
    /// Takes the table of a file, whose digest is correct and behind which its lines are.
    pub fn new(file: File, table: Vec<u8>, lines: Range<u64>) -> StoredHistories {
        StoredHistories {
            file: Some(file),
            table,
            lines,
            ..StoredHistories::default()
        }
    }

    /// Number of histories.
    pub fn len(&self) -> usize {
        self.table.len() / ROW_BYTES
    }

    fn row(&self, number: usize) -> Option<Row<'_>> {
        let start = number * ROW_BYTES;
        self.table.get(start..start + ROW_BYTES).map(Row)
    }

    /// Returns the history of an agent, an empty one if it has none; None if it cannot be read.
    pub fn find(&self, agent: &str) -> Option<AgentHistory> {
        let key = short_digest(agent.as_bytes());
        let name = serde_json::to_vec(agent).ok()?;
        for number in self.first_with(key.as_bytes())?..self.len() {
            let row = self.row(number)?;
            if row.key() != key.as_bytes() {
                break;
            }
            let line = self.read_line(number)?;
            let history = line.strip_prefix(name.as_slice());
            if let Some(history) = history.and_then(|it| it.strip_prefix(b"\t")) {
                return serde_json::from_slice(history).ok();
            }
        }
        Some(AgentHistory::default())
    }

    /// Returns the number of the first row whose key is not before this one.
    fn first_with(&self, key: &[u8]) -> Option<usize> {
        let mut range = 0..self.len();
        while !range.is_empty() {
            let middle = range.start + range.len() / 2;
            if self.row(middle)?.key() < key {
                range.start = middle + 1;
            } else {
                range.end = middle;
            }
        }
        Some(range.start)
    }

    /// Reads the line of a row, without its line feed; None if it is not the one that was written.
    fn read_line(&self, number: usize) -> Option<Vec<u8>> {
        let row = self.row(number)?;
        let start = self.lines.start.checked_add(row.offset()?)?;
        let end = match self.row(number + 1) {
            Some(next) => self.lines.start.checked_add(next.offset()?)?,
            None => self.lines.end,
        };
        let line = start..end.checked_sub(1)?;
        if line.start > line.end || line.end > self.lines.end {
            return None;
        }
        self.lookups.set(self.lookups.get() + 1);
        let bytes = if self.lookups.get() <= MAX_SINGLE_LOOKUPS {
            self.read_range(line)?
        } else {
            let text = self
                .text
                .get_or_init(|| self.read_range(self.lines.clone()));
            let at = |offset: u64| usize::try_from(offset - self.lines.start).ok();
            text.as_ref()?.get(at(line.start)?..at(line.end)?)?.to_vec()
        };
        (short_digest(&bytes).as_bytes() == row.check()).then_some(bytes)
    }

    fn read_range(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        let file = self.file.as_ref()?;
        file.read_exact_at(&mut bytes, range.start).ok()?;
        Some(bytes)
    }

    /// Returns the table and the lines of an index with these histories and, for all other agents,
    /// the ones stored here; None if one of these cannot be read.
    pub fn merge(&self, changed: &HashMap<String, AgentHistory>) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut lines: Vec<(String, Vec<u8>)> = Vec::new();
        for number in 0..self.len() {
            let line = self.read_line(number)?;
            let name = line.split(|byte| *byte == b'\t').next()?;
            let name: String = serde_json::from_slice(name).ok()?;
            if !changed.contains_key(&name) {
                lines.push((short_digest(name.as_bytes()), line));
            }
        }
        for (name, history) in changed {
            let mut line = serde_json::to_vec(name).ok()?;
            line.push(b'\t');
            serde_json::to_writer(&mut line, history).ok()?;
            lines.push((short_digest(name.as_bytes()), line));
        }
        lines.sort_unstable();
        let (mut table, mut text) = (Vec::new(), Vec::new());
        for (key, line) in lines {
            let (offset, check) = (text.len(), short_digest(&line));
            table.extend_from_slice(format!("{key} {offset:0DIGITS$x} {check}\n").as_bytes());
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        Some((table, text))
    }
}
