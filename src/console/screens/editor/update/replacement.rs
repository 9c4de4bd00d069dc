//! A whole text in place of that of the editor.

use super::{describe_fault, keep_cursor_visible, request_analysis};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::buffer::replacement::replace_all;
use crate::console::screens::editor::state::LineNotes;

/// Continues with another text, which is one step for undo. A text that cannot be edited here is
/// shown, and saved as it is.
pub(super) fn replace_text(model: &mut Model, bytes: &[u8]) -> Vec<Effect> {
    let fault = TextBuffer::from_bytes(bytes)
        .err()
        .map(|fault| describe_fault(model, &fault));
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    match str::from_utf8(bytes) {
        Ok(text) if fault.is_none() && editor.whole_text.is_none() => {
            editor.change_text(|buffer| replace_all(buffer, text));
        }
        _ => {
            let generation = editor.buffer.generation();
            editor.buffer = TextBuffer::for_any(bytes).after_generation(generation);
            editor.line_notes = vec![LineNotes::default(); editor.buffer.lines().len()];
            editor.whole_text = fault.is_some().then(|| bytes.to_vec());
            editor.is_modified = bytes != editor.opened.bytes;
        }
    }
    editor.read_only = fault;
    keep_cursor_visible(model);
    model.is_dirty = true;
    request_analysis(model).into_iter().collect()
}
