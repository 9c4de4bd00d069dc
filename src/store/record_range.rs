//! A range of ledger records, read oldest first when it is iterated. Each agent of a record has a
//! record of its own here.

use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::ledger::Ledger;
use crate::store::record::{LedgerPosition, LedgerRecord};
use crate::store::record_line::RecordSummary;

/// A range of records of a ledger; only one is held in memory at a time.
pub struct RecordRange<'e> {
    ledger: &'e dyn Ledger,
    agent: Option<String>,
    /// The position before the first record.
    start: LedgerPosition,
    /// How many of the first record's agents are left out.
    skipped_views: usize,
    /// The position after the last record.
    end: LedgerPosition,
}

impl<'e> RecordRange<'e> {
    /// Returns number and digest of the ledger's last record.
    pub fn head(&self) -> (u64, Digest) {
        self.end.head()
    }

    /// Returns the records that were appended after this range.
    ///
    /// # Errors
    /// The ledger cannot be read, or has lost records of this range.
    pub fn continued(&self) -> Result<RecordRange<'e>> {
        let end = self.ledger.scan_backwards()?.end();
        let is_replaced = end.seq == self.end.seq && end.line_digest != self.end.line_digest;
        if end.seq < self.end.seq || is_replaced {
            let path = self.ledger.location().display().to_string();
            let message = format!("{path} does not have record {} any more", self.end.seq);
            return Err(Error::new(ErrorKind::Integrity, message)
                .with_hint("`verify` says more; another process has replaced the file"));
        }
        Ok(RecordRange {
            ledger: self.ledger,
            agent: self.agent.clone(),
            start: self.end,
            skipped_views: 0,
            end,
        })
    }

    /// Reads the records and passes each to `visit`, with the offset that it was written with. Every line
    /// is checked to continue the one before it.
    ///
    /// # Errors
    /// The ledger cannot be read, its chain is broken, or `visit` returned an error, which ends the
    /// iteration.
    pub fn for_each(&self, visit: &mut dyn FnMut(&LedgerRecord) -> Result<()>) -> Result<()> {
        let Some(mut scan) = self.ledger.scan(self.start)? else {
            return Ok(());
        };
        let mut skipped = self.skipped_views;
        while scan.position().seq < self.end.seq
            && let Some(record) = scan.next_record()?
        {
            match &self.agent {
                Some(agent) => {
                    if let Some(view) = record.view_of_agent(agent) {
                        visit(&view)?;
                    }
                }
                None if record.event.unchanged.is_none() => visit(&record)?,
                None => {
                    for view in record.views().skip(std::mem::take(&mut skipped)) {
                        visit(&view)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl dyn Ledger + '_ {
    /// Returns the records of an agent, or of all agents; with `last`, only that many of the
    /// newest. Unchanged agents that share a record of a run count each.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn records(&self, agent: Option<&str>, last: Option<usize>) -> Result<RecordRange<'_>> {
        let mut back = self.scan_backwards()?;
        let end = back.end();
        let mut start = LedgerPosition::default();
        let mut skipped_views = 0;
        if let Some(last) = last {
            start = end;
            let mut missing = last;
            let mut is_wanted =
                |it: &RecordSummary<'_>| agent.is_none_or(|agent| it.is_about_agent(agent));
            while missing > 0
                && let Some((position, record)) = back.next_matching(&mut is_wanted)?
            {
                start = position.before_last_line(record.previous_digest);
                let views = match &record.event.unchanged {
                    Some(_) if agent.is_none() => record.event.agents().count(),
                    _ => 1,
                };
                skipped_views = views.saturating_sub(missing);
                missing = missing.saturating_sub(views);
            }
        }
        Ok(RecordRange {
            ledger: self,
            agent: agent.map(str::to_string),
            start,
            skipped_views,
            end,
        })
    }
}
