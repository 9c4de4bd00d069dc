//! The entry of a memory, written while the memory is read. It gets its name in step 3 of a reset.

use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

use crate::archive::{self, EntryDraft, EntryKind, WrittenEntry};
use crate::base::digest::Digest;
use crate::base::error::Error;
use crate::boundary::{Baseline, Classification, MemoryAccumulator, classify};
use crate::config::Agent;
use crate::engine::watch::Scanner;
use crate::engine::watch::classified_content::entry_kind_of;
use crate::store::record::FileState;

/// The baselines that a memory is classified against.
pub(super) struct References {
    pub(super) current: Arc<Baseline>,
    /// Those that were pushed before, newest first.
    pub(super) earlier: Vec<Arc<Baseline>>,
}

impl References {
    pub(super) fn classify(&self, reading: &MemoryAccumulator) -> Classification {
        classify(reading, &self.current, &self.earlier)
    }
}

/// The entry of a memory before it has its name.
pub(super) enum PendingEntry {
    /// The memory holds no bytes of the agent.
    None,
    /// An earlier run has archived the same memory.
    Reused(WrittenEntry),
    Draft(Box<EntryDraft>, EntryKind),
}

impl PendingEntry {
    fn kind_and_size(&self) -> Option<(EntryKind, u64)> {
        match self {
            PendingEntry::None => None,
            PendingEntry::Reused(written) => Some((written.kind, written.size)),
            PendingEntry::Draft(draft, kind) => Some((*kind, draft.size())),
        }
    }

    /// Returns the bytes of a memory that are not in its entry, and the offset in the entry of the
    /// rest.
    pub(super) fn archived_remainder(
        &self,
        reading: &MemoryAccumulator,
        classification: &Classification,
    ) -> Option<(Vec<u8>, u64)> {
        let (kind, size) = self.kind_and_size()?;
        let offset = match kind {
            EntryKind::Scratch => classification.boundary?.offset,
            EntryKind::FullBackup => 0,
            _ => return None,
        };
        let above = reading.prefix().get(..offset)?.to_vec();
        Some((above, size.checked_sub(reading.size() - offset as u64)?))
    }

    /// Returns the offset in an entry of what the agent has written since a run left the memory in
    /// this state: all that follows where the memory still begins with it, else its notes.
    pub(super) fn new_notes_offset(
        &self,
        reading: &MemoryAccumulator,
        classification: &Classification,
        left: &FileState,
    ) -> Option<u64> {
        let unchanged = unchanged_length(reading.prefix(), left)
            .filter(|length| *length >= classification.boundary_offset());
        let offset = unchanged.unwrap_or_else(|| classification.notes_offset(reading.prefix()));
        self.offset_in_entry(reading, offset as u64)
    }

    /// Returns the offset in the entry of a byte of the memory below the boundary.
    pub(super) fn offset_in_entry(&self, reading: &MemoryAccumulator, offset: u64) -> Option<u64> {
        let (kind, size) = self.kind_and_size()?;
        Some(match kind {
            // The entry is a header and everything below the boundary.
            EntryKind::Scratch => size.checked_sub(reading.size() - offset)?,
            _ => offset,
        })
    }
}

/// Returns how many bytes of a memory are still those of an earlier state, up to the end of a line;
/// `None` if it does not begin with them. A last line that the agent has continued is new.
fn unchanged_length(memory: &[u8], left: &FileState) -> Option<usize> {
    let FileState::File { sha256, size, .. } = left else {
        return None;
    };
    let (left, new) = memory.split_at_checked(usize::try_from(*size).ok()?)?;
    if Digest::of(left) != *sha256 {
        return None;
    }
    let last_line = left
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    Some(match new {
        _ if last_line == left.len() => left.len(),
        [] => left.len(),
        [b'\n', ..] => left.len() + 1,
        _ => last_line,
    })
}

/// Writes a memory to an entry while it is read: keeps its beginning until the boundary can be
/// found, and writes the rest directly.
pub(super) struct EntryWriter<'i> {
    scanner: &'i Scanner,
    agent: &'i Agent,
    header: String,
    references: &'i References,
    draft: Option<(EntryDraft, EntryKind)>,
}

impl<'i> EntryWriter<'i> {
    pub(super) fn new(
        scanner: &'i Scanner,
        agent: &'i Agent,
        references: &'i References,
        now: DateTime<FixedOffset>,
    ) -> EntryWriter<'i> {
        EntryWriter {
            scanner,
            agent,
            header: archive::format_scratch_header(&agent.name, now),
            references,
            draft: None,
        }
    }

    pub(super) fn write(
        &mut self,
        reading: &mut MemoryAccumulator,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let before = reading.prefix().len();
        reading.push(bytes);
        if reading.is_whole() {
            return Ok(());
        }
        let kept = reading.prefix().len() - before;
        if self.draft.is_none() {
            self.draft = self.start_draft(reading, &self.references.classify(reading))?;
        }
        match &mut self.draft {
            Some((draft, _)) => draft.write(&bytes[kept..]),
            None => Ok(()),
        }
    }

    /// Starts the entry with the kept beginning; None if the memory holds no bytes of the agent.
    fn start_draft(
        &self,
        reading: &MemoryAccumulator,
        classification: &Classification,
    ) -> Result<Option<(EntryDraft, EntryKind)>, Error> {
        let (Some(kind), Some(offset)) = (
            entry_kind_of(classification),
            classification.archived_offset,
        ) else {
            return Ok(None);
        };
        let mut draft = self.scanner.start_entry(self.agent)?;
        if kind == EntryKind::Scratch {
            draft.write(self.header.as_bytes())?;
        }
        draft.write(reading.prefix().get(offset..).unwrap_or_default())?;
        Ok(Some((draft, kind)))
    }

    pub(super) fn finish(
        mut self,
        reading: &MemoryAccumulator,
        classification: &Classification,
    ) -> Result<PendingEntry, Error> {
        if self.draft.is_none() {
            self.draft = self.start_draft(reading, classification)?;
        }
        Ok(match self.draft {
            Some((draft, kind)) => {
                draft.start_writeback();
                PendingEntry::Draft(Box::new(draft), kind)
            }
            None => PendingEntry::None,
        })
    }
}
