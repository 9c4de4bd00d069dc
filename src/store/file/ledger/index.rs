//! The index of the ledger: for each agent, the facts that an observation and a reset need from the
//! records up to a position, so that they do not read the whole ledger.
//!
//! `<archive_dir>/.shepherd/ledger.index` can be deleted at any time. Its first line has digest and
//! length of the [`IndexHeader`] and the table that follow; behind them are the histories
//! ([`stored_histories`](super::stored_histories)). The index is valid only if the ledger still has
//! the line that ends at the header's position. So a run reads the table and the records behind that
//! position, however many segments there are.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use super::files::LedgerFiles;
use super::stored_histories::StoredHistories;
use crate::archive::Archive;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{PathContext, Result};
use crate::base::moment::Zone;
use crate::store::agent_history::AgentHistory;
use crate::store::ledger::RecordTimes;
use crate::store::record::{LedgerPosition, LedgerRecord};

/// The index file in the program's directory, and its name while it is written.
const INDEX_FILE_NAME: &str = "ledger.index";
const INDEX_STAGING_NAME: &str = "ledger.index.new";

/// The format number; an index of another format is ignored.
const INDEX_FORMAT: u32 = 11;

/// A process does not write the index for fewer new records than this, and one for every few agents:
/// its size grows with them.
const MIN_UNINDEXED_RECORDS: u64 = 64;
const AGENTS_PER_UNINDEXED_RECORD: u64 = 4;

/// The same for records that it had to read behind the index, which delays each cold run: a hundred
/// of them for a millisecond.
const AGENTS_PER_READ_RECORD: u64 = 256;

/// How many record times are kept: four days' worth, with a run every hour.
const MAX_RECORD_TIMES: usize = 96;

/// The index of a ledger, up to a position.
#[derive(Default)]
pub struct LedgerIndex {
    /// What the records say of the ledger as a whole.
    pub(super) header: IndexHeader,
    /// Histories that were parsed or changed.
    agents: HashMap<String, AgentHistory>,
    /// Those in the index file; the ones above replace them.
    stored: StoredHistories,
    /// The number of the last record that the file covers.
    written_seq: u64,
    /// How many records behind that one were read from the ledger.
    pub(super) read_records: u64,
    /// The agents of the records that were added since the last
    /// [`LedgerIndex::take_recorded_agents`]; none before the first.
    recorded_agents: Option<HashSet<String>>,
    /// Whether records are left out because of an error that may pass: the index is not written then.
    pub(super) is_incomplete: bool,
}

/// The second line of the file. Format and length are those of the file that was read; a new file
/// has its own.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct IndexHeader {
    #[serde(rename = "form")]
    format: u32,
    /// The position up to which the ledger is indexed. Compaction may have moved the last indexed
    /// record: a scan from there then sets the position that it reaches.
    #[serde(rename = "at")]
    pub(super) position: LedgerPosition,
    /// Number and time of the record with the latest time.
    #[serde(rename = "latest")]
    pub(super) latest_record: Option<(u64, DateTime<FixedOffset>)>,
    /// Times of the last records, in the ledger's order, at least an hour apart.
    #[serde(rename = "times")]
    record_times: Vec<DateTime<FixedOffset>>,
    /// The first record of the active file whose name is known to be on the disk.
    #[serde(rename = "synced")]
    pub(super) synced_first_seq: Option<u64>,
    /// The last record that is left out because its segment cannot be read, and the digest of the
    /// segments up to it: once they change, the index is rebuilt.
    pub(super) gap: Option<(u64, Digest)>,
    /// Number of bytes of the histories.
    #[serde(rename = "bytes")]
    history_bytes: u64,
}

impl LedgerIndex {
    /// Reads the index of a ledger; None if there is no valid one. A scan from its
    /// position shows whether it belongs to this ledger.
    pub fn read(archive: &Archive, files: &LedgerFiles) -> Option<LedgerIndex> {
        let path = archive.program_path(INDEX_FILE_NAME);
        let mut file = durable::open_own_file(&path, OpenOptions::new().read(true)).ok()?;
        let length = file.metadata().ok()?.len();
        let head = read_head(&mut file, length)?;
        let (header, table) = head.split_at(memchr::memchr(b'\n', &head)? + 1);
        let header: IndexHeader = serde_json::from_slice(header).ok()?;
        let start = FIRST_LINE_BYTES + head.len() as u64;
        if header.format != INDEX_FORMAT || start.checked_add(header.history_bytes)? != length {
            return None;
        }
        if let Some((last, digest)) = header.gap
            && files.digest_of_segments(last).ok() != Some(digest)
        {
            return None;
        }
        let stored = StoredHistories::new(file, table.to_vec(), start..length);
        Some(LedgerIndex {
            written_seq: header.position.seq,
            header,
            stored,
            ..LedgerIndex::default()
        })
    }

    /// Returns whether the index file covers the same records.
    pub fn is_on_disk(&self) -> bool {
        self.header.position.seq > 0 && self.header.position.seq == self.written_seq
    }

    /// Returns the times of the records, as times of a zone.
    pub fn record_times(&self, zone: Zone) -> RecordTimes {
        let (latest, recent) = (self.header.latest_record, &self.header.record_times);
        RecordTimes {
            latest: latest.map(|(seq, time)| (seq, zone.at(time))),
            recent: recent.iter().map(|time| zone.at(*time)).collect(),
        }
    }

    /// Returns the agents of the records that were added since the last call; None in the first call
    /// after the index was read.
    pub fn take_recorded_agents(&mut self) -> Option<HashSet<String>> {
        self.recorded_agents.replace(HashSet::new())
    }

    /// Returns a copy of an agent's history; None if it cannot be parsed.
    pub fn history(&self, agent: &str) -> Option<AgentHistory> {
        match self.agents.get(agent) {
            Some(history) => Some(history.clone()),
            None => self.stored.find(agent),
        }
    }

    /// Returns the history of an agent, to add a record to it; None if it cannot be parsed.
    fn history_mut(&mut self, agent: &str) -> Option<&mut AgentHistory> {
        if let Some(recorded) = &mut self.recorded_agents {
            recorded.insert(agent.to_string());
        }
        if !self.agents.contains_key(agent) {
            let history = self.history(agent)?;
            self.agents.insert(agent.to_string(), history);
        }
        self.agents.get_mut(agent)
    }

    /// Adds the next record, which ends at `at`. Returns false if the history of its agent cannot
    /// be parsed.
    #[must_use]
    pub fn add_record(&mut self, record: &LedgerRecord, at: LedgerPosition) -> bool {
        if self
            .header
            .latest_record
            .is_none_or(|(_, time)| record.time > time)
        {
            self.header.latest_record = Some((record.seq, record.time));
        }
        // Of two clocks that differ by a day or more one is wrong; the newer record counts.
        self.header
            .record_times
            .retain(|other| *other - record.time < Duration::days(1));
        // Compared with all times, not only the last: records by two clocks that differ would soon
        // fill the list.
        let is_apart = |other: &DateTime<_>| (record.time - *other).abs() >= Duration::hours(1);
        if self.header.record_times.iter().all(is_apart) {
            self.header.record_times.push(record.time);
            let more = self
                .header
                .record_times
                .len()
                .saturating_sub(MAX_RECORD_TIMES);
            self.header.record_times.drain(..more);
        }
        self.header.position = at;
        let event = &record.event;
        if event.unchanged.is_some() {
            return event.clone().into_views().iter().all(|view| {
                let history = self.history_mut(&view.agent);
                let added = history.map(|it| it.add_unchanged(view, record.time, at));
                added.is_some()
            });
        }
        // A record without an agent is about the ledger or the archive.
        if event.agent.is_empty() {
            return true;
        }
        let history = self.history_mut(&event.agent);
        let added = history.map(|it| it.add_event(event, record.time, at));
        added.is_some()
    }

    /// Writes the index if the ledger has grown far beyond the one on the disk. A failed write is
    /// ignored; it only costs time later.
    pub fn write_if_outdated(&mut self, archive: &Archive) {
        let agents = self.agents.len().max(self.stored.len()) as u64;
        let limit = |agents_per_record| MIN_UNINDEXED_RECORDS + agents / agents_per_record;
        let unindexed_records = self.header.position.seq.saturating_sub(self.written_seq);
        if unindexed_records > limit(AGENTS_PER_UNINDEXED_RECORD)
            || self.read_records > limit(AGENTS_PER_READ_RECORD)
        {
            self.write_now(archive);
        }
    }

    /// Writes the index. A failed write is ignored; it only costs time later.
    pub fn write_now(&mut self, archive: &Archive) {
        if !self.is_incomplete && self.write(archive).is_ok() {
            self.written_seq = self.header.position.seq;
            self.read_records = 0;
        }
    }

    /// Writes the index. The caller holds the ledger's lock, so no other process writes it. It is
    /// not synced: a file that a power cut has damaged does not match its digest.
    fn write(&self, archive: &Archive) -> Result<()> {
        let Some(text) = self.to_text() else {
            return Ok(());
        };
        archive.check_root()?;
        let path = archive.program_path(INDEX_STAGING_NAME);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = archive.permissions().open_own_file(&path, &mut options)?;
        let written = file
            .write_all(&text)
            .and_then(|()| std::fs::rename(&path, archive.program_path(INDEX_FILE_NAME)));
        if written.is_err() {
            // It would waste space on a disk that may be full.
            let _ = std::fs::remove_file(&path);
        }
        written.with_path("write", &path)
    }

    /// Returns the text of the file; None if a history cannot be read from the one before.
    fn to_text(&self) -> Option<Vec<u8>> {
        let (table, histories) = self.stored.merge(&self.agents)?;
        let header = IndexHeader {
            format: INDEX_FORMAT,
            history_bytes: histories.len() as u64,
            ..self.header.clone()
        };
        let mut head = serde_json::to_vec(&header).ok()?;
        head.push(b'\n');
        head.extend(table);
        let mut text = format_first_line(&head).into_bytes();
        text.extend(head);
        text.extend(histories);
        Some(text)
    }
}

/// Length of the first line: a digest, a blank, sixteen digits and the line feed.
const FIRST_LINE_BYTES: u64 = 64 + 1 + 16 + 1;

/// Formats the first line: the digest of the header and the table, and their length in hexadecimal.
fn format_first_line(head: &[u8]) -> String {
    format!("{} {:016x}\n", Digest::of(head), head.len())
}

/// Reads the header and the table; None unless they match the first line.
fn read_head(file: &mut File, file_length: u64) -> Option<Vec<u8>> {
    let mut first = vec![0; FIRST_LINE_BYTES as usize];
    file.read_exact(&mut first).ok()?;
    let (_, length) = str::from_utf8(&first).ok()?.trim_end().split_once(' ')?;
    let length = u64::from_str_radix(length, 16).ok()?;
    let mut head = Vec::new();
    file.take(length.min(file_length))
        .read_to_end(&mut head)
        .ok()?;
    (format_first_line(&head).as_bytes() == first).then_some(head)
}
