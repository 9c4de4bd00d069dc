//! Some of the records of a ledger, oldest first, read when they are asked for.

use super::{LedgerPosition, Record, Scan};
use crate::digest::Digest;
use crate::engine::Engine;
use crate::error::Result;

/// Some of the records of a ledger. However many they are, one is held at a time.
pub struct RecordRange<'e> {
    engine: &'e Engine,
    agent: Option<String>,
    /// Behind which record they begin.
    from: LedgerPosition,
    /// The last one that counts.
    end: (u64, Digest),
}

impl RecordRange<'_> {
    /// Number and digest of the ledger's last record.
    pub fn head(&self) -> (u64, Digest) {
        self.end
    }

    /// Reads the records. Every line is checked to continue the one before.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken, or what `take` answers,
    /// which is not called any more then.
    pub fn each(&self, take: &mut dyn FnMut(&Record) -> Result<()>) -> Result<()> {
        let Some(mut scan) = Scan::open_at(&self.engine.ledger_path(), self.from)? else {
            return Ok(());
        };
        while scan.place().seq < self.end.0
            && let Some(record) = scan.record()?
        {
            let agent = self.agent.as_ref();
            if agent.is_none_or(|agent| *agent == record.what.agent) {
                take(&record)?;
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
        let (mut back, end) = self.ledger_back()?;
        let mut from = LedgerPosition::default();
        if let Some(last) = last {
            let mut first = end;
            for _ in 0..last {
                let is_wanted = |name: &str| agent.is_none_or(|agent| agent == name);
                match back.next(|record| is_wanted(&record.agent))? {
                    Some((place, record)) => first = place.before(record.prev),
                    None => break,
                }
            }
            from = first;
        }
        Ok(RecordRange {
            engine: self,
            agent: agent.map(str::to_string),
            from,
            end: (end.seq, end.head),
        })
    }

    /// Reads the records from the last one back, as long as `take` answers true.
    ///
    /// # Errors
    /// As [`Engine::records`].
    pub fn last_records(&self, mut take: impl FnMut(Record) -> bool) -> Result<()> {
        let (mut back, _) = self.ledger_back()?;
        while let Some((_, record)) = back.next(|_| true)? {
            if !take(record) {
                break;
            }
        }
        Ok(())
    }
}
