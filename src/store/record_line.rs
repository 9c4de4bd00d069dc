//! The line of a record in a ledger: how it is written and read, and its largest size.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Deserializer};

use crate::base::clock::BootTime;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::record::{FileChange, LedgerPosition, LedgerRecord, RunEvent};

/// The largest size of a record; real ones are far smaller, and a longer line is not a record.
pub(in crate::store) const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The largest number of a record: real ones are far smaller, and numbers can be added without an
/// overflow.
pub(in crate::store) const MAX_SEQ: u64 = 1 << 53;

/// Deserializes the number of a record.
///
/// # Errors
/// A number that no record has.
fn deserialize_seq<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        seq @ 1..=MAX_SEQ => Ok(seq),
        _ => Err(serde::de::Error::custom("not the number of a record")),
    }
}

/// Describes why a line is not a record, without the parser's words.
pub(in crate::store) fn describe_fault(error: &serde_json::Error) -> String {
    let column = error.column();
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a value is missing or unknown before column {column}")
        }
        serde_json::error::Category::Syntax => format!("column {column} is not valid JSON"),
        serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            "its end is missing".to_string()
        }
    }
}

/// The fields that every record begins with.
#[derive(Deserialize)]
pub(in crate::store) struct RecordHeader {
    #[serde(deserialize_with = "deserialize_seq")]
    pub seq: u64,
    #[serde(rename = "prev")]
    pub previous_digest: Digest,
    time: DateTime<FixedOffset>,
    #[serde(default)]
    boot: Option<BootTime>,
}

/// Parses the fields that every record begins with; the rest may have words that this version does
/// not know.
pub(in crate::store) fn parse_record_header(line: &[u8]) -> serde_json::Result<RecordHeader> {
    serde_json::from_slice(line)
}

/// The fields that are parsed of every record, wanted or not.
#[derive(Deserialize)]
pub struct RecordSummary<'l> {
    /// Its number.
    #[serde(deserialize_with = "deserialize_seq")]
    pub seq: u64,
    /// Digest of the line before, without its line feed.
    #[serde(rename = "prev")]
    pub previous_digest: Digest,
    /// Its run.
    #[serde(borrow)]
    pub run: Cow<'l, str>,
    /// Its agent; empty where it has none, or several.
    #[serde(borrow)]
    pub agent: Cow<'l, str>,
    #[serde(default)]
    unchanged: Option<UnchangedNames>,
}

/// The names in the record of several unchanged agents.
#[derive(Deserialize)]
struct UnchangedNames {
    agents: BTreeMap<String, Vec<String>>,
}

impl RecordSummary<'_> {
    /// Returns whether the record is about an agent, alone or among others.
    pub fn is_about_agent(&self, agent: &str) -> bool {
        match &self.unchanged {
            None => self.agent == agent,
            Some(list) => list.agents.values().flatten().any(|name| name == agent),
        }
    }

    /// Returns whether the record is about the archive or baselines, and no agent.
    pub fn is_about_archive(&self) -> bool {
        self.agent.is_empty() && self.unchanged.is_none()
    }
}

impl LedgerRecord {
    /// Creates the record of an event that follows the record at a position, and its line.
    ///
    /// # Errors
    /// The record has no JSON.
    pub(in crate::store) fn new(
        event: RunEvent,
        at: LedgerPosition,
        time: DateTime<FixedOffset>,
        boot: Option<BootTime>,
    ) -> Result<(LedgerRecord, Vec<u8>)> {
        let record = LedgerRecord {
            seq: at.seq + 1,
            previous_digest: at.line_digest,
            time,
            boot,
            event,
        };
        let line = serde_json::to_vec(&record).map_err(|error| {
            let message = format!("cannot write a record: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        Ok((record, line))
    }

    /// Parses a line of the ledger. Each of its parts is parsed from the whole line, which is much
    /// faster than collecting the fields that another part leaves.
    ///
    /// # Errors
    /// The line is not a record of this version.
    pub fn parse(line: &[u8]) -> serde_json::Result<LedgerRecord> {
        let RecordHeader {
            seq,
            previous_digest,
            time,
            boot,
        } = parse_record_header(line)?;
        let event: RunEvent = serde_json::from_slice(line)?;
        let change: FileChange = serde_json::from_slice(line)?;
        Ok(LedgerRecord {
            seq,
            previous_digest,
            time,
            boot,
            event: RunEvent { change, ..event },
        })
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::store::record::Operation;
    use crate::store::trigger::Trigger;

    #[test]
    fn written_record_is_read_back_whole() {
        let boot = BootTime {
            id: "0123456789abcdef".to_string(),
            seconds: 7,
        };
        // Each field of the header has a value, so that one that is not read is missed.
        let record = LedgerRecord {
            seq: 3,
            previous_digest: Digest::of(b"line"),
            time: DateTime::from_timestamp(1_700_000_000, 0)
                .unwrap()
                .fixed_offset(),
            boot: Some(boot),
            event: RunEvent::new(
                "1a2b3c4d",
                Operation::Reset,
                Trigger::Cli,
                "tester",
                "scout",
            ),
        };
        let line = serde_json::to_vec(&record).unwrap();
        assert_eq!(
            LedgerRecord::parse(&line).unwrap(),
            record,
            "RecordHeader lacks a field of LedgerRecord"
        );
    }
}
