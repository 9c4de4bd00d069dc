//! Drafts of the editor: unsaved text is written to the disk, offered when the baseline is opened
//! again, and discarded.

use std::sync::Arc;

use super::promoting::insert_promoted;
use super::replacement::replace_text;
use crate::base::quantity::format_count;
use crate::console::command::Command;
use crate::console::message::{DraftChange, DraftText, Effect};
use crate::console::model::Model;
use crate::console::screens::editor::state::{EditorDialog, EditorScreen, FileOnDisk, QuitRequest};
use crate::console::screens::log::state::MessageLevel;
use crate::engine::{DraftId, SealMatch};

/// The word that confirms the removal of a draft.
const DISCARD_WORD: &str = "discard";

/// Continues with the text of a draft. The operator may undo that.
pub(super) fn recover_draft(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let Some(EditorDialog::Draft { draft, .. }) = editor.dialog.take() else {
        return Vec::new();
    };
    let base = Arc::new(draft.base_bytes.clone());
    let is_outdated = draft.base != editor.opened.digest;
    if is_outdated {
        model.report_warning("draft recovered; the file has changed since, which a save shows");
    } else {
        model.report_info("draft recovered; it is not saved yet");
    }
    let effects = replace_text(model, &draft.bytes);
    let Some(editor) = &mut model.editor else {
        return effects;
    };
    if is_outdated {
        // A save then finds that the file has changed since.
        let seal = editor.opened.seal.clone();
        editor.replace_base(draft.base_bytes, draft.base, seal);
        editor.file = FileOnDisk::Changed;
        // What it began with may have been another program's.
        editor.has_foreign_lines |= editor.opened.seal != SealMatch::Unchecked;
    }
    editor.draft_due = None;
    editor.draft_generation = Some(editor.buffer.generation());
    editor.draft_outcome = None;
    let kept = Effect::KeepDraft(DraftChange {
        name: editor.opened.name.clone(),
        text: Some(DraftText {
            bytes: Arc::new(draft.bytes),
            base,
        }),
        replaced: Some(draft.id),
    });
    effects.into_iter().chain([kept]).collect()
}

/// Removes the draft that was found, if the word was typed in full. The operator cannot undo that.
pub fn confirm_discard(model: &mut Model, typed: &str) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let Some(EditorDialog::Draft { draft, .. }) = &editor.dialog else {
        return Vec::new();
    };
    if typed.trim() != DISCARD_WORD {
        model.show_hint(&format!(
            "not discarded: type {DISCARD_WORD} in full, then Enter"
        ));
        return Vec::new();
    }
    let discarded = discard_found_draft(editor, &draft.id);
    editor.dialog = None;
    let rest = match editor.opened.drafts.older_count as u64 {
        0 => String::new(),
        count => format!(
            "; {} kept for the next time it is opened",
            format_count(count, "older text")
        ),
    };
    model.show_hint(&format!("draft discarded{rest}"));
    let effects = [discarded].into_iter();
    effects.chain(insert_promoted(model)).collect()
}

/// Says at the start which texts an earlier console left, and the keys that offer them.
pub fn report_left_drafts(model: &mut Model, names: &[String]) {
    let texts = match names {
        [] => return,
        [one] => format!("an unsaved text of {one} is kept"),
        many => format!(
            "unsaved texts of {} baselines are kept: {}",
            many.len(),
            many.join(", ")
        ),
    };
    let [baselines, edit] =
        [Command::GoBaselines, Command::EditBaseline].map(|it| model.key_hint(it));
    let text = format!("{texts}; {baselines} lists baselines, {edit} there offers it");
    model.report_warning(text);
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
    let has_failed = matches!(editor.draft_outcome, Some(Err(_)));
    if editor.draft_generation.replace(generation) == Some(generation) && !has_failed {
        return None;
    }
    editor.draft_outcome = None;
    Some(Effect::KeepDraft(DraftChange {
        name: editor.opened.name.clone(),
        text: Some(DraftText {
            bytes: Arc::new(editor.text_bytes()),
            base: Arc::new(editor.opened.bytes.clone()),
        }),
        replaced: None,
    }))
}

/// Notes whether the draft of a text was written. A waiting request to quit is answered with that.
pub fn handle_draft_written(
    model: &mut Model,
    name: &str,
    bytes: &[u8],
    outcome: Result<(), String>,
) {
    let editor = model.editor.as_mut();
    let Some(editor) = editor.filter(|it| it.opened.name == name && it.text_bytes() == bytes)
    else {
        return;
    };
    editor.draft_outcome = Some(outcome.clone());
    match (editor.quit_request, outcome) {
        (QuitRequest::WaitsForDraft, _) => warn_of_quit(model),
        (_, Err(why)) => {
            let text = format!("the text of {name} is only in this console: {why}");
            model.report_error(text);
        }
        (_, Ok(())) => {}
    }
}

/// Warns before the console is left with a text that is not saved, once it is known whether its draft
/// can be kept. Returns the effects of that; none if the operator knows and quits all the same.
pub fn warn_before_quit(model: &mut Model) -> Option<Vec<Effect>> {
    let editor = model.editor.as_mut().filter(|it| it.is_modified)?;
    if editor.is_typing {
        editor.is_typing = false;
        editor.buffer.end_step();
    }
    let name = editor.opened.name.clone();
    match editor.quit_request {
        QuitRequest::Warned => return None,
        QuitRequest::WaitsForDraft => {
            editor.quit_request = QuitRequest::Warned;
            let text =
                format!("the text of {name} is not on the disk yet; again quits, and may lose it");
            model.report_warning(text);
            return Some(Vec::new());
        }
        QuitRequest::None => editor.quit_request = QuitRequest::WaitsForDraft,
    }
    let effect = keep_draft(editor);
    if editor.draft_outcome.is_some() {
        warn_of_quit(model);
    } else {
        model.report_warning(format!("{name} is not saved; keeping its text …"));
    }
    Some(effect.into_iter().collect())
}

/// Whether the next request to quit leaves a text that is not saved.
pub fn is_warned_of_quit(model: &Model) -> bool {
    let editor = model.editor.as_ref();
    editor.is_some_and(|it| it.quit_request == QuitRequest::Warned)
}

/// Asks again at the next request to quit: the key behind the warning has done something else.
pub fn withdraw_quit_request(model: &mut Model) {
    if let Some(editor) = &mut model.editor {
        editor.quit_request = QuitRequest::None;
    }
}

/// Says what becomes of the text if the console is left now.
fn warn_of_quit(model: &mut Model) {
    let Some(editor) = &mut model.editor else {
        return;
    };
    editor.quit_request = QuitRequest::Warned;
    let name = &editor.opened.name;
    let (level, text) = match &editor.draft_outcome {
        Some(Err(why)) => (
            MessageLevel::Error,
            format!("{name} is not saved; again quits, AND LOSES ITS TEXT: {why}"),
        ),
        _ => (
            MessageLevel::Warn,
            format!("{name} is not saved; again quits, and the next start offers its text"),
        ),
    };
    model.report(level, text);
}

pub(super) fn discard_draft(editor: &mut EditorScreen) -> Option<Effect> {
    editor.draft_due = None;
    editor.draft_generation.take().map(|_| {
        Effect::KeepDraft(DraftChange {
            name: editor.opened.name.clone(),
            text: None,
            replaced: None,
        })
    })
}

/// Forgets the text that an earlier edit left.
pub(super) fn discard_found_draft(editor: &EditorScreen, draft: &DraftId) -> Effect {
    Effect::KeepDraft(DraftChange {
        name: editor.opened.name.clone(),
        text: None,
        replaced: Some(draft.clone()),
    })
}
