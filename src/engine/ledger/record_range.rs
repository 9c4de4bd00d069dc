//! A range of ledger records, read oldest first when it is iterated.

use super::LedgerScan;
use crate::digest::Digest;
use crate::engine::Engine;
use crate::engine::record::{LedgerPosition, LedgerRecord};
use crate::error::Result;

/// A range of records of a ledger; only one is held in memory at a time.
pub struct RecordRange<'e> {
    engine: &'e Engine,
    agent: Option<String>,
    /// The position before the first record.
    start: LedgerPosition,
    /// Number and digest of the last record in the range.
    last_record: (u64, Digest),
}

impl RecordRange<'_> {
    /// Returns number and digest of the ledger's last record.
    pub fn head(&self) -> (u64, Digest) {
        self.last_record
    }

    /// Reads the records and passes each to `visit`. Every line is checked to continue the one
    /// before it.
    ///
    /// # Errors
    /// The ledger cannot be read, its chain is broken, or `visit` returned an error, which ends the
    /// iteration.
    pub fn for_each(&self, visit: &mut dyn FnMut(&LedgerRecord) -> Result<()>) -> Result<()> {
        let Some(mut scan) = LedgerScan::open_at(&self.engine.ledger_path(), self.start)? else {
            return Ok(());
        };
        while scan.position().seq < self.last_record.0
            && let Some(record) = scan.next_record()?
        {
            let agent = self.agent.as_ref();
            if agent.is_none_or(|agent| *agent == record.event.agent) {
                visit(&record)?;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Returns the records of an agent, or of all agents; with `last`, only that many of the
    /// newest.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn records(&self, agent: Option<&str>, last: Option<usize>) -> Result<RecordRange<'_>> {
        let (mut reverse_scan, end) = self.scan_ledger_backwards()?;
        let mut from = LedgerPosition::default();
        if let Some(last) = last {
            let mut first = end;
            for _ in 0..last {
                let is_wanted = |name: &str| agent.is_none_or(|agent| agent == name);
                match reverse_scan.next_matching(|record| is_wanted(&record.agent))? {
                    Some((position, record)) => {
                        first = position.before_last_line(record.previous_digest)
                    }
                    None => break,
                }
            }
            from = first;
        }
        Ok(RecordRange {
            engine: self,
            agent: agent.map(str::to_string),
            start: from,
            last_record: (end.seq, end.line_digest),
        })
    }

    /// Reads the records from the last one backwards until `visit` returns false.
    ///
    /// # Errors
    /// As [`Engine::records`].
    pub fn for_each_record_backwards(
        &self,
        mut visit: impl FnMut(LedgerRecord) -> bool,
    ) -> Result<()> {
        let (mut reverse_scan, _) = self.scan_ledger_backwards()?;
        while let Some((_, record)) = reverse_scan.next_matching(|_| true)? {
            if !visit(record) {
                break;
            }
        }
        Ok(())
    }
}
