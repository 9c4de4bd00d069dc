//! Reads a file that an edit is about to change, and writes its entry in one pass.

use super::{Captured, MemoryCapture, inode_of, read_object, set_state_before};
use crate::archive::{EntryDraft, EntryKind};
use crate::base::error::{Error, ErrorKind};
use crate::boundary::MemoryAccumulator;
use crate::config::Agent;
use crate::engine::runs::content::Replacement;
use crate::engine::runs::plan::PlannedFile;
use crate::engine::runs::reset::early_end::EarlyEnd;
use crate::engine::runs::reset::entry_writer::PendingEntry;
use crate::engine::runs::undo::InstallSource;
use crate::store::record::{FileChange, FileState};
use crate::transport::{MemoryDirectory, MemoryObject};

impl MemoryCapture<'_, '_> {
    /// Reads a file of an edit. `directory` is none where the step is about to create it. Returns a
    /// note, too, on what the run cannot keep of the file.
    ///
    /// # Errors
    /// The file, or the archived content that an undo restores, is not what the plan is bound to.
    pub(in crate::engine::runs::reset) fn capture_planned(
        &self,
        agent: &Agent,
        planned: &PlannedFile,
        directory: Option<&dyn MemoryDirectory>,
        change: &mut FileChange,
        may_wait_for_lease: bool,
    ) -> Result<(Captured, Option<String>), EarlyEnd> {
        let runs = self.run.runs;
        let mut reading = MemoryAccumulator::default();
        let mut draft: Option<EntryDraft> = None;
        let (object, attributes) = match directory {
            None => (MemoryObject::Absent, None),
            Some(directory) => read_object(directory, may_wait_for_lease, &mut |bytes| {
                reading.push(bytes);
                if draft.is_none() {
                    draft = Some(runs.scanner.start_entry(agent)?);
                }
                draft.as_mut().map_or(Ok(()), |draft| draft.write(bytes))
            })?,
        };
        let note = set_state_before(change, &object, attributes.as_ref(), &mut reading);
        if change.before.as_ref() != Some(&planned.before) {
            return Err(changed_file_error(planned).into());
        }
        if draft.is_none() && matches!(planned.before, FileState::File { .. }) {
            // An empty file.
            draft = Some(runs.scanner.start_entry(agent)?);
        }
        if let Some(parts) = &planned.content
            && parts.measure(&runs.context)?.0 != planned.after
        {
            let message = format!(
                "the content to install as {} is not the planned one",
                planned.path.display()
            );
            return Err(Error::new(ErrorKind::Integrity, message).into());
        }
        let content = planned.content.clone();
        let replacement = content.map_or(Replacement::Absent, Replacement::File);
        let source = InstallSource {
            attributes: planned.attributes.clone(),
            ..InstallSource::new(replacement, planned.after.clone())
        };
        change.after = Some(planned.after.clone());
        let captured = Captured {
            source,
            attributes,
            inode: inode_of(&object),
            scratch_lines: 0,
            entry: draft.map_or(PendingEntry::None, |draft| {
                draft.start_writeback();
                PendingEntry::Draft(Box::new(draft), EntryKind::FullBackup)
            }),
            versions: Vec::new(),
            append_offset: None,
            archived_remainder: None,
            captured_at: runs.context.clock().now(),
        };
        Ok((captured, note))
    }
}

fn changed_file_error(planned: &PlannedFile) -> Error {
    let message = format!("{} has changed since the plan", planned.path.display());
    Error::new(ErrorKind::Conflict, message).with_hint("review a new plan; nothing was changed")
}
