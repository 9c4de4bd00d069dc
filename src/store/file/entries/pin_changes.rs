//! Pins of entries: retention deletes no pinned entry. Each change of a pin has a record.

use std::path::PathBuf;

use super::FileEntries;
use super::pins::FilePins;
use crate::base::error::Result;
use crate::store::entries::{Entries, Pins};
use crate::store::file::lock::ArchiveLock;
use crate::store::record::{MAX_NAMES_PER_RECORD, Operation, RunEvent, new_run_id};

impl FileEntries {
    /// Pins or unpins entries as [`Entries::set_pinned`].
    pub(super) fn change_pins(&self, typed: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>> {
        let _lock = ArchiveLock::Pins.acquire(self.archive(), self.controller.clock())?;
        let mut pins = FilePins::read(self)?;
        let (mut changed, mut pinned) = (Vec::new(), Vec::new());
        for typed in typed {
            let entry = self.resolve_typed(typed);
            // A deleted entry can still be unpinned.
            let is_known = |entry: &PathBuf| -> Result<bool> {
                Ok(!is_pinned && pins.entries().contains(entry) || self.find(entry)?.is_some())
            };
            let is_known = entry.as_ref().map(is_known).transpose()?;
            let (Some(entry), Some(true)) = (entry, is_known) else {
                return Err(self.controller.unknown_entry_error(typed));
            };
            let is_new = if is_pinned {
                pins.add(&entry)?
            } else {
                pins.remove(&entry)
            };
            if is_new {
                changed.push(entry);
            } else if is_pinned {
                pinned.push(entry);
            }
        }
        if !changed.is_empty()
            && let Err(error) = pins.write()
        {
            let is_done = |now: FilePins| {
                let mut changed = changed.iter();
                changed.all(|it| now.entries().contains(it) == is_pinned)
            };
            let has_taken_effect = FilePins::read(self).is_ok_and(is_done);
            return Err(if has_taken_effect {
                error.with_context("the change took effect, but may not be on the disk")
            } else {
                error
            });
        }
        let mut unrecorded = self.without_pin_record(pinned)?;
        unrecorded.extend(changed.iter().cloned());
        if !unrecorded.is_empty() {
            self.record_pins(&unrecorded, is_pinned)?;
        }
        Ok(changed)
    }

    /// Returns those of these pinned entries whose last record does not say that they were pinned. Records
    /// that cannot be read may say so.
    fn without_pin_record(&self, mut pinned: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
        if pinned.is_empty() {
            return Ok(pinned);
        }
        let mut unrecorded = Vec::new();
        let mut back = self.ledger.scan_backwards()?;
        while !pinned.is_empty() {
            let next = back.next_readable(&mut |it| it.is_about_archive())?;
            let Some((_, record)) = next else { break };
            let event = record.event;
            let is_named = |entry: &mut PathBuf| event.pinned_entries.contains(entry);
            let named = pinned.extract_if(.., is_named);
            if event.operation == Operation::Pin {
                named.for_each(drop);
            } else {
                unrecorded.extend(named);
            }
        }
        let unread = back.take_unread();
        unrecorded.extend(pinned.into_iter().filter(|_| unread.is_none()));
        Ok(unrecorded)
    }

    fn record_pins(&self, entries: &[PathBuf], is_pinned: bool) -> Result<()> {
        let (act, word) = if is_pinned {
            (Operation::Pin, "pinned")
        } else {
            (Operation::Unpin, "unpinned")
        };
        let run = new_run_id();
        let events = entries.chunks(MAX_NAMES_PER_RECORD).map(|some| {
            let (trigger, user) = (self.controller.trigger(), self.controller.user());
            let mut event = RunEvent::for_archive(&run, act, trigger, user);
            let first = some.first().map(|entry| entry.display().to_string());
            let more = some.len() - 1;
            event.note = first.map(|first| match more {
                0 => first,
                more => format!("{first} and {more} more"),
            });
            event.pinned_entries = some.to_vec();
            event
        });
        self.ledger.append(events.collect()).map_err(|error| {
            error.with_context(format!("{word}, but cannot record it in the ledger"))
        })
    }
}
