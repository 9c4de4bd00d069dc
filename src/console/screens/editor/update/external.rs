//! What an external editor wrote: a change of the text here, which is compared, linted, confirmed and
//! saved as a typed one.

use super::saving::request_save;
use super::whole_text::replace_text;
use super::{read_only_reason, show};
use crate::console::message::{Effect, ExternalText};
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::state::EditorScreen;
use crate::console::screens::log::state::MessageLevel;
use crate::error::Error;

/// Shows what an external editor wrote, and asks whether to save it.
pub fn handle_external_text(model: &mut Model, external: ExternalText) -> Vec<Effect> {
    let ExternalText { opened, text, kept } = external;
    let name = opened.name.clone();
    let kept = kept.map(|kept| {
        if kept.may_be_open {
            format!("baseline {name} is unchanged: {kept}")
        } else {
            kept.to_string()
        }
    });
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let error = kept.into_iter().fold(error, Error::with_hint);
            model.report(MessageLevel::Error, error.to_line());
            return Vec::new();
        }
    };
    if let Some(kept) = kept {
        model.report(MessageLevel::Warn, kept);
    }
    if text == opened.bytes {
        // A failure of the editor is already reported.
        let failed = model.last_message.as_ref();
        if failed.is_none_or(|message| message.level == MessageLevel::Info) {
            model.report(MessageLevel::Info, format!("baseline {name} is unchanged"));
        }
        return Vec::new();
    }
    // The baseline may have been locked while the editor had it. The text waits then.
    let read_only = read_only_reason(model, &opened);
    let buffer = TextBuffer::for_any(&opened.bytes);
    model.editor = Some(Box::new(EditorScreen::new(opened, buffer, None)));
    show(model);
    let mut effects = replace_text(model, &text);
    effects.extend(super::keep_draft_now(model));
    match read_only {
        Some(why) => {
            if let Some(editor) = &mut model.editor {
                editor.read_only = Some(why.clone());
            }
            model.report(MessageLevel::Warn, format!("{name} is not saved: {why}"));
        }
        None => effects.extend(request_save(model, false, false)),
    }
    effects
}
