//! What the scan found in entries, as the ledger records it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::PoisonError;

use super::Engine;
use super::ledger::RecordSummary;
use super::record::LedgerPosition;
use crate::error::{Error, Result};
use crate::lint::ScanSummary;

/// All entries with findings, as the ledger up to a record names them.
#[derive(Default)]
pub(super) struct KnownFindings {
    /// The end of the ledger up to which it was read; none before the first time.
    end: Option<LedgerPosition>,
    by_entry: HashMap<PathBuf, ScanSummary>,
}

/// What the scan found in some entries.
#[derive(Clone, Debug, Default)]
pub struct EntryFindings {
    /// The entries with findings.
    pub by_entry: HashMap<PathBuf, ScanSummary>,
    /// Why older records cannot be read, if that is so: entries that only they name may have findings.
    pub unread: Option<Error>,
}

impl Engine {
    /// Returns which of these entries have findings. `goes_on` is called for each record, and ends the
    /// reading when it returns false: what only older records name is then left out.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn findings_of_entries(
        &self,
        entries: impl Iterator<Item = PathBuf>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<EntryFindings> {
        let mut known = self
            .entry_findings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (back, end) = self.scan_ledger_backwards()?;
        // Another ledger is read from its beginning.
        let is_continued = known.end.is_none_or(|known| self.is_in_ledger(known, end));
        if !is_continued {
            *known = KnownFindings::default();
        }
        let mut back = back.stopping_after(known.end.map_or(0, |end| end.seq));
        let mut unread = None;
        let mut added = HashMap::new();
        let mut is_whole = true;
        while let Some((_, record)) = back.next_readable(&mut unread, |it| !it.agent.is_empty())? {
            if !goes_on() {
                is_whole = false;
                break;
            }
            for written in record.event.entries() {
                if let Some(findings) = written.findings.as_ref().filter(|it| !it.is_clean()) {
                    added
                        .entry(written.path.clone())
                        .or_insert_with(|| findings.clone());
                }
            }
        }
        if is_whole && unread.is_none() {
            known.by_entry.extend(added);
            known.end = Some(end);
            added = HashMap::new();
        }
        let find = |entry: PathBuf| {
            let findings = added.get(&entry).or_else(|| known.by_entry.get(&entry))?;
            Some((entry, findings.clone()))
        };
        Ok(EntryFindings {
            by_entry: entries.filter_map(find).collect(),
            unread,
        })
    }

    /// Returns whether the ledger with this end continues the one that ended at another position.
    fn is_in_ledger(&self, earlier: LedgerPosition, end: LedgerPosition) -> bool {
        if earlier.seq == end.seq {
            return earlier.line_digest == end.line_digest;
        }
        // The record that follows names the digest of the one before.
        let Ok((back, _)) = self.scan_ledger_backwards() else {
            return false;
        };
        let mut back = back.stopping_after(earlier.seq);
        let is_next = |it: &RecordSummary<'_>| it.seq == earlier.seq + 1;
        let mut unread = None;
        match back.next_readable(&mut unread, is_next) {
            Ok(Some((_, next))) => next.previous_digest == earlier.line_digest,
            _ => false,
        }
    }
}
