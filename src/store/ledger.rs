//! The ledger: the chain of records of what was done, to which runs append. Each record has the digest
//! of the one before, which exposes changed, removed and reordered records.

use std::collections::HashSet;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::store::agent_history::AgentHistory;
use crate::store::record::{LedgerPosition, LedgerRecord, RunEvent};
use crate::store::record_line::RecordSummary;
use crate::transport::Attributes;

/// The ledger of a store. What it knows of the records is brought up to date by every method that
/// says so; readers never wait for a process that appends.
pub trait Ledger: Send + Sync {
    /// Appends a record of each event. They are durable when this returns. Waits for other processes
    /// that append, so the caller should hold no lock that others wait for.
    ///
    /// # Errors
    /// The ledger cannot be written, or its chain is broken; none of the events is recorded then.
    fn append(&self, events: Vec<RunEvent>) -> Result<()>;

    /// Checks that a record can most likely be appended.
    ///
    /// # Errors
    /// Why it cannot.
    fn check_writable(&self) -> Result<()>;

    /// Reads what was appended since the last call, by any process. Returns number and digest of the
    /// last record; 0 without a record.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    fn head(&self) -> Result<(u64, Digest)>;

    /// Returns number and digest of the last record that this process knows of.
    fn known_head(&self) -> (u64, Digest);

    /// Returns the head after this process's last append, otherwise the ledger's: records of other
    /// processes may not be durable yet. None where there is no record, or another archive by now.
    fn durable_head(&self) -> Option<(u64, Digest)>;

    /// Returns what the records that this process knows of say of an agent: complete if
    /// [`Ledger::head`] was called while the agent was locked.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    fn known_history(&self, agent: &str) -> Result<AgentHistory>;

    /// Brings the ledger up to date, and returns the agents of the records that this process has learned
    /// of since the last call; none if they are not known, as in the first call.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    fn take_recorded_agents(&self) -> Result<Option<HashSet<String>>>;

    /// Brings the ledger up to date, and returns the times of its records.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    fn record_times(&self) -> Result<RecordTimes>;

    /// Starts to read the records behind a position, oldest first, each with the time offset that it was
    /// written with; none if there is no ledger.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn scan(&self, from: LedgerPosition) -> Result<Option<Box<dyn LedgerScan>>>;

    /// Brings the ledger up to date, and starts to read its records, last one first, down to the one
    /// that follows record `seq`. Older records are checked only as far as they are read.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    fn scan_back_to(&self, seq: u64) -> Result<Box<dyn ReverseScan>>;

    /// Reads the record that ends at a position.
    ///
    /// # Errors
    /// It cannot be read, or another record has its number.
    fn read_record(&self, position: LedgerPosition) -> Result<LedgerRecord>;

    /// Returns the runs that records behind a position undid, much faster than a scan, which checks
    /// the chain.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn undone_runs(&self, from: LedgerPosition) -> Result<HashSet<String>>;

    /// Checks for damage that a scan of the records does not show.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn check(&self) -> Result<LedgerCheck>;

    /// Returns the id of the archive, which is the digest of the first record; none before that.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn archive_id(&self) -> Result<Option<Digest>>;

    /// Compacts the storage of older records, at the end of a run, and returns what it did, for the
    /// log. Does nothing while another process appends; the next run does it.
    ///
    /// # Errors
    /// The ledger cannot be written, or contradicts itself. No record is lost.
    fn compact(&self) -> Result<Option<String>>;

    /// Reserves space again for the record of a deletion on a full disk, once one has used it. A
    /// failure is ignored: the next run does it.
    fn renew_reserve(&self);

    /// Where it is, for people and for watches.
    fn location(&self) -> PathBuf;
}

impl dyn Ledger + '_ {
    /// Returns what the records say of an agent.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    pub(crate) fn history(&self, agent: &str) -> Result<AgentHistory> {
        self.head()?;
        self.known_history(agent)
    }

    /// Starts to read all records, last one first.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    pub(crate) fn scan_backwards(&self) -> Result<Box<dyn ReverseScan>> {
        self.scan_back_to(0)
    }

    /// Reads the records from the last one backwards until `visit` returns false. Returns why older
    /// records cannot be read, if that ends it.
    ///
    /// # Errors
    /// As [`Ledger::head`].
    pub fn for_each_record_backwards(
        &self,
        mut visit: impl FnMut(LedgerRecord) -> bool,
    ) -> Result<Option<Error>> {
        let mut back = self.scan_backwards()?;
        while let Some((_, record)) = back.next_readable(&mut |_| true)? {
            if !visit(record) {
                break;
            }
        }
        Ok(back.take_unread())
    }

    /// Returns the attributes in an event, or in the record that the event names instead.
    ///
    /// # Errors
    /// As [`Ledger::read_record`].
    pub(crate) fn event_attributes(&self, event: &RunEvent) -> Result<Option<Attributes>> {
        match (&event.change.attributes, event.change.attributes_position) {
            (None, Some(at)) => Ok(self.read_record(at)?.event.change.attributes),
            (attributes, _) => Ok(attributes.clone()),
        }
    }
}

/// A scan of a ledger, oldest record first.
pub trait LedgerScan {
    /// The position behind the last line that was read.
    fn position(&self) -> LedgerPosition;

    /// Returns the next line, with its problem if it has one; none at the end, before a record that is
    /// being written, and before what a crash left. The line after it is checked against this one.
    ///
    /// # Errors
    /// Records that cannot be read, which [`LedgerScan::skip_unreadable`] may skip.
    fn next_line(&mut self) -> Result<Option<LedgerLine>>;

    /// Skips the records at which the last call failed; false if that is not possible.
    fn skip_unreadable(&mut self) -> bool;

    /// Returns how many bytes follow the position, which are no record. At the end of the scan they
    /// belong to one that is being written, or were left by a crash.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn trailing_bytes(&self) -> Result<u64>;

    /// Returns the record in the next line.
    ///
    /// # Errors
    /// As [`LedgerScan::next_line`]; a line with a problem.
    fn next_record(&mut self) -> Result<Option<LedgerRecord>> {
        match self.next_line()? {
            Some(LedgerLine {
                problem: Some(problem),
                ..
            }) => Err(problem.error),
            line => Ok(line.and_then(|line| line.record)),
        }
    }
}

/// A line of a ledger.
pub struct LedgerLine {
    /// Its number, from 1.
    pub number: u64,
    /// The record in it, if there is one.
    pub record: Option<LedgerRecord>,
    /// Its problem; a line without a record has one.
    pub problem: Option<LineProblem>,
}

/// A line that is not a record, or does not continue the one before.
pub struct LineProblem {
    /// Says which line it is, and what is wrong with it.
    pub description: String,
    /// What to do about it, if only some of the records are affected.
    pub restore_hint: Option<String>,
    /// The error for readers that stop at it.
    pub error: Error,
}

/// A scan of a ledger, last record first. Each record is checked to be the one that the following one
/// continues.
pub trait ReverseScan {
    /// The position that it began at: the end of the ledger.
    fn end(&self) -> LedgerPosition;

    /// Returns the next wanted record and the position at which it ends; none at the end of the scan,
    /// and before older records that cannot be read, as [`ReverseScan::take_unread`] then says.
    ///
    /// # Errors
    /// Newer records cannot be read, or are not those that were written.
    fn next_readable(
        &mut self,
        is_wanted: &mut dyn FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>>;

    /// Returns why older records cannot be read, if the scan has ended before them.
    fn take_unread(&mut self) -> Option<Error>;

    /// As [`ReverseScan::next_readable`] where all records have to be readable.
    ///
    /// # Errors
    /// A record cannot be read, or is not the one that was written.
    fn next_matching(
        &mut self,
        is_wanted: &mut dyn FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>> {
        let next = self.next_readable(is_wanted)?;
        self.take_unread().map_or(Ok(next), Err)
    }
}

/// The times of a ledger's records.
pub struct RecordTimes {
    /// Number and time of the record with the latest time.
    pub latest: Option<(u64, DateTime<FixedOffset>)>,
    /// Those of the last records, of the last days, at least an hour apart.
    pub recent: Vec<DateTime<FixedOffset>>,
}

/// What a check of a ledger found beside its records.
#[derive(Default)]
pub struct LedgerCheck {
    /// Number of segments that hold older records.
    pub segments: u64,
    /// Number of segments whose records are elsewhere, too: compaction was interrupted, or is at work.
    pub repeated: u64,
    /// What is not part of the ledger, and damage that a scan does not meet.
    pub errors: Vec<Error>,
    /// Records that were there once are missing: the newest part was replaced by an older one.
    pub rollback_error: Option<Error>,
}

impl LedgerCheck {
    /// Returns all errors.
    pub fn all_errors(&self) -> impl Iterator<Item = &Error> {
        self.errors.iter().chain(&self.rollback_error)
    }
}
