//! One line of a ledger: its largest size, the record in it, and the error for a line that breaks the
//! chain.

use std::path::Path;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Deserializer};

use crate::base::clock::BootTime;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::store::record::{FileChange, LedgerRecord, RunEvent};

/// The largest size of a record; real ones are far smaller, and a longer line is not a record.
pub(in crate::store) const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The largest number of a record: real ones are far smaller, and numbers can be added without an
/// overflow.
pub(super) const MAX_SEQ: u64 = 1 << 53;

/// Deserializes the number of a record.
///
/// # Errors
/// A number that no record has.
pub(super) fn deserialize_seq<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        seq @ 1..=MAX_SEQ => Ok(seq),
        _ => Err(serde::de::Error::custom("not the number of a record")),
    }
}

/// Describes why a line is not a record, without the parser's words.
pub(super) fn describe_fault(error: &serde_json::Error) -> String {
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
pub(super) struct RecordHeader {
    #[serde(deserialize_with = "deserialize_seq")]
    pub(super) seq: u64,
    #[serde(rename = "prev")]
    pub(super) previous_digest: Digest,
    time: DateTime<FixedOffset>,
    #[serde(default)]
    boot: Option<BootTime>,
}

/// Parses the fields that every record begins with; the rest may have words that this version does
/// not know.
pub(super) fn parse_record_header(line: &[u8]) -> serde_json::Result<RecordHeader> {
    serde_json::from_slice(line)
}

impl LedgerRecord {
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

/// Returns the error for a ledger whose chain is broken.
pub fn broken_chain_error(path: &Path, line: u64, why: &str) -> Error {
    Error::new(
        ErrorKind::Integrity,
        format!(
            "the ledger {} is broken at line {line}: {why}",
            path.display()
        ),
    )
    .with_hint(
        "`verify` lists every broken line; keep the file as evidence, and move it away together \
         with its segments (ledger-*.jsonl.gz), reset.log and reset.log.old: the next run begins a \
         new ledger",
    )
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
