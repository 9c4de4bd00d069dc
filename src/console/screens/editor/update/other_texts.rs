//! Texts of other programs: what they write into the file of the open baseline, and what an
//! external editor has written.

use std::time::Duration;

use super::replacement::replace_text;
use super::saving::request_save;
use super::{read_only_reason, show};
use crate::base::error::Error;
use crate::console::message::{Effect, ExternalText};
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::state::{EditorScreen, FileOnDisk};
use crate::console::screens::log::state::MessageLevel;
use crate::engine::{BaselineFile, Observation, OpenedBaseline};

/// Interval of the checks while nothing reports a change.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// Returns when the file is checked next, if the editor is on the screen.
pub fn next_check(model: &Model) -> Option<Duration> {
    let editor = model.editor.as_ref();
    let editor = editor.filter(|_| model.screen == Screen::Editor);
    editor.map(|it| it.check_due)
}

/// Requests a check if its time has come.
pub fn check_due_file(model: &mut Model) -> Option<Effect> {
    next_check(model).filter(|due| *due <= model.now.elapsed)?;
    check_file(model)
}

/// Requests a check of the file now.
pub fn check_file(model: &mut Model) -> Option<Effect> {
    postpone_check(model);
    let editor = model.editor.as_ref()?;
    Some(Effect::CheckOpenFile(editor.opened.name.clone()))
}

/// Begins the interval again: what is at the path is known now.
pub(super) fn postpone_check(model: &mut Model) {
    if let Some(editor) = &mut model.editor {
        editor.check_due = model.now.elapsed + CHECK_INTERVAL;
    }
}

/// Whether a changed observation of an agent may come from a change of the open baseline or its seal.
pub fn concerns_open_file(model: &Model, old: Option<&Observation>, seen: &Observation) -> bool {
    let mut editors = model.editor.iter();
    let is_user = editors.any(|it| it.opened.users.iter().any(|user| user.agent == seen.agent));
    is_user
        && old.is_none_or(|old| {
            (old.baseline, old.state, &old.reason, &old.blocker)
                != (seen.baseline, seen.state, &seen.reason, &seen.blocker)
        })
}

/// Shows what is at the path of the open baseline, and what its seal says of it if it is the opened
/// version still. A text that is not saved stays editable: its save asks.
pub fn handle_file_checked(
    model: &mut Model,
    name: &str,
    found: Result<Box<OpenedBaseline>, BaselineFile>,
) {
    let Some(editor) = model.editor.as_mut().filter(|it| it.opened.name == name) else {
        return;
    };
    let old = (editor.file.clone(), editor.opened.clone());
    match found {
        Ok(found) if found.bytes == editor.opened.bytes => {
            let drafts = std::mem::take(&mut editor.opened.drafts);
            editor.opened = OpenedBaseline { drafts, ..*found };
            editor.file = FileOnDisk::AsOpened;
        }
        Ok(found) => editor.set_file(&BaselineFile::Readable(found.bytes)),
        // It has come back since.
        Err(BaselineFile::Readable(_)) => {}
        Err(object) => editor.set_file(&object),
    }
    if old == (editor.file.clone(), editor.opened.clone()) {
        return;
    }
    model.is_dirty |= model.screen == Screen::Editor;
    refresh_read_only(model);
}

/// Decides again whether the text can be changed. A text that cannot be edited here stays read-only.
fn refresh_read_only(model: &mut Model) {
    let Some(editor) = &model.editor else {
        return;
    };
    let is_uneditable = TextBuffer::from_bytes(&editor.opened.bytes).is_err();
    if is_uneditable || editor.whole_text.is_some() {
        return;
    }
    let reason = read_only_reason(model, &editor.opened);
    if let Some(editor) = &mut model.editor
        && (reason.is_none() || !editor.is_modified)
    {
        if reason.is_some() && editor.is_typing {
            editor.is_typing = false;
            editor.buffer.end_step();
        }
        editor.read_only = reason;
    }
}

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
            model.report_error(error.to_line());
            return Vec::new();
        }
    };
    if let Some(kept) = kept {
        model.report_warning(kept);
    }
    if text == opened.bytes {
        // A failure of the editor is already reported.
        let failed = model.last_message.as_ref();
        if failed.is_none_or(|message| message.level == MessageLevel::Info) {
            model.report_info(format!("baseline {name} is unchanged"));
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
            model.report_warning(format!("{name} is not saved: {why}"));
        }
        None => effects.extend(request_save(model, false, false)),
    }
    effects
}
