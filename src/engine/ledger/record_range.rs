//! Some of the records of a ledger, oldest first, read when they are asked for.

use super::{LedgerPosition, LedgerRecord, LedgerScan};
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::Result;

/// Some of the records of a ledger. However many they are, one is held at a time.
pub struct RecordRange<'e> {
    engine: &'e Engine,
    agent: Option<String>,
    /// Behind which record they begin.
    start: LedgerPosition,
    /// The last one that counts.
    last_record: (u64, Digest),
}

impl RecordRange<'_> {
    /// Number and digest of the ledger's last record.
    pub fn head(&self) -> (u64, Digest) {
        self.last_record
    }

    /// Reads the records. Every line is checked to continue the one before.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken, or what `take` answers,
    /// which is not called any more then.
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
    /// The records of an agent, or all of them; with `last` no more than so many, the
    /// last ones.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken.
    pub fn records(&self, agent: Option<&str>, last: Option<usize>) -> Result<RecordRange<'_>> {
        let (mut back, end) = self.scan_ledger_backwards()?;
        let mut from = LedgerPosition::default();
        if let Some(last) = last {
            let mut first = end;
            for _ in 0..last {
                let is_wanted = |name: &str| agent.is_none_or(|agent| agent == name);
                match back.next_matching(|record| is_wanted(&record.agent))? {
                    Some((place, record)) => first = place.before_last_line(record.previous_digest),
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

    /// Reads the records from the last one back, as long as `take` answers true.
    ///
    /// # Errors
    /// As [`Engine::records`].
    pub fn for_each_record_backwards(
        &self,
        mut visit: impl FnMut(LedgerRecord) -> bool,
    ) -> Result<()> {
        let (mut back, _) = self.scan_ledger_backwards()?;
        while let Some((_, record)) = back.next_matching(|_| true)? {
            if !visit(record) {
                break;
            }
        }
        Ok(())
    }
}
