//! Drafts of the editor: unsaved text is written to the disk, offered when the baseline is opened
//! again, and discarded.

use std::sync::Arc;

use super::{keep_cursor_visible, request_analysis};
use crate::console::message::{DraftChange, DraftText, Effect};
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::state::{EditorDialog, EditorScreen, LineNotes};
use crate::console::screens::log::state::MessageLevel;

/// Continues with the text of a draft. The operator may undo that.
pub(super) fn recover_draft(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let Some(EditorDialog::Draft { draft, .. }) = editor.dialog.take() else {
        return Vec::new();
    };
    let buffer = match TextBuffer::from_bytes(&draft.bytes) {
        Ok(buffer) => buffer,
        Err(_) => {
            model.report(MessageLevel::Error, "the draft is not UTF-8 text");
            return Vec::new();
        }
    };
    editor.line_notes = vec![LineNotes::default(); buffer.lines().len()];
    editor.buffer = buffer;
    editor.is_modified = true;
    editor.draft_generation = Some(editor.buffer.generation());
    editor.analyzed_generation = None;
    if draft.base != editor.opened.digest {
        // A save then finds that the file has changed since.
        editor.opened.digest = draft.base;
        editor.opened.bytes = draft.base_bytes;
        model.report(
            MessageLevel::Warn,
            "draft recovered; the file has changed since, which a save shows",
        );
    } else {
        model.report(MessageLevel::Info, "draft recovered; it is not saved yet");
    }
    keep_cursor_visible(model);
    request_analysis(model).into_iter().collect()
}

/// Writes the draft if its time has come.
pub fn write_due_draft(model: &mut Model) -> Option<Effect> {
    let now = model.now.elapsed;
    let editor = model.editor.as_mut()?;
    editor.draft_due.filter(|due| *due <= now)?;
    keep_draft(editor)
}

/// Writes the draft at once: the console ends, or stops.
pub fn keep_draft_now(model: &mut Model) -> Option<Effect> {
    model.editor.as_mut().and_then(|editor| keep_draft(editor))
}

fn keep_draft(editor: &mut EditorScreen) -> Option<Effect> {
    editor.draft_due = None;
    if !editor.is_modified {
        return discard_draft(editor);
    }
    let generation = editor.buffer.generation();
    if editor.draft_generation.replace(generation) == Some(generation) {
        return None;
    }
    Some(Effect::KeepDraft(DraftChange {
        name: editor.opened.name.clone(),
        text: Some(DraftText {
            bytes: Arc::new(editor.buffer.to_bytes()),
            base: Arc::new(editor.opened.bytes.clone()),
        }),
    }))
}

pub(super) fn discard_draft(editor: &mut EditorScreen) -> Option<Effect> {
    editor.draft_due = None;
    editor.draft_generation.take().map(|_| {
        Effect::KeepDraft(DraftChange {
            name: editor.opened.name.clone(),
            text: None,
        })
    })
}
