//! What the ledger records of entries: when each was made, and what the scan found in it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, Result};
use crate::engine::records::ArchiveSearch;
use crate::lint::ScanSummary;
use crate::store::record::LedgerPosition;

/// All entries that the ledger up to a record names.
#[derive(Default)]
pub(in crate::engine) struct KnownEntries {
    /// The end of the ledger up to which it was read; none before the first time.
    end: Option<LedgerPosition>,
    facts: HashMap<PathBuf, RecordedFacts>,
}

/// What the ledger records of an entry.
#[derive(Clone, Debug)]
struct RecordedFacts {
    /// The time of the first record that names it.
    time: DateTime<FixedOffset>,
    /// What the last record with findings says of it.
    findings: Option<ScanSummary>,
}

impl RecordedFacts {
    /// Adds what an older record says.
    fn with_older(&self, older: &RecordedFacts) -> RecordedFacts {
        let findings = self.findings.as_ref().or(older.findings.as_ref());
        RecordedFacts {
            time: older.time,
            findings: findings.cloned(),
        }
    }
}

/// What the ledger records of some entries.
#[derive(Clone, Debug, Default)]
pub struct RecordedEntries {
    /// When each was made; an entry without a record is not in it.
    pub times: HashMap<PathBuf, DateTime<FixedOffset>>,
    /// The entries with findings.
    pub findings: HashMap<PathBuf, ScanSummary>,
    /// Why older records cannot be read, if that is so: entries that only they name may have findings.
    pub unread: Option<Error>,
}

impl ArchiveSearch {
    /// Returns what the ledger records of these entries. `goes_on` is called for each record, and ends the
    /// reading when it returns false: what only older records name is then left out.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn recorded_entries(
        &self,
        entries: impl Iterator<Item = PathBuf>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<RecordedEntries> {
        let mut known = self
            .known_entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let ledger = self.context.ledger();
        let mut back = ledger.scan_back_to(known.end.map_or(0, |end| end.seq))?;
        let is_continued = known
            .end
            .is_none_or(|known| self.is_in_ledger(known, back.end()));
        if !is_continued {
            // Another ledger is read from its beginning.
            *known = KnownEntries::default();
            back = ledger.scan_backwards()?;
        }
        let mut added = HashMap::new();
        let mut is_whole = true;
        while let Some((_, record)) = back.next_readable(&mut |it| !it.agent.is_empty())? {
            if !goes_on() {
                is_whole = false;
                break;
            }
            for written in record.event.entries() {
                let findings = written.findings.clone().filter(|it| !it.is_clean());
                let time = record.time;
                let facts = RecordedFacts { time, findings };
                added
                    .entry(written.path.clone())
                    .and_modify(|newer: &mut RecordedFacts| *newer = newer.with_older(&facts))
                    .or_insert(facts);
            }
        }
        let find = |entry: &Path| match (added.get(entry), known.facts.get(entry)) {
            (Some(newer), Some(older)) => Some(newer.with_older(older)),
            (newer, older) => newer.or(older).cloned(),
        };
        let mut recorded = RecordedEntries::default();
        for entry in entries {
            if let Some(facts) = find(&entry) {
                recorded.times.insert(entry.clone(), facts.time);
                let findings = facts.findings.map(|findings| (entry, findings));
                recorded.findings.extend(findings);
            }
        }
        let unread = back.take_unread();
        if is_whole && unread.is_none() {
            for (entry, newer) in added {
                known
                    .facts
                    .entry(entry)
                    .and_modify(|older| *older = newer.with_older(older))
                    .or_insert(newer);
            }
            known.end = Some(back.end());
        }
        Ok(RecordedEntries { unread, ..recorded })
    }

    /// Returns whether the ledger with this end continues the one that ended at another position.
    fn is_in_ledger(&self, earlier: LedgerPosition, end: LedgerPosition) -> bool {
        if earlier.head() == end.head() {
            return true;
        }
        // The record that follows names the digest of the one before.
        let next = self.context.ledger().scan_back_to(earlier.seq);
        let next = next.and_then(|mut it| it.next_matching(&mut |it| it.seq == earlier.seq + 1));
        matches!(next, Ok(Some((_, next))) if next.previous_digest == earlier.line_digest)
    }
}
