//! What the editor does: opens a baseline, changes its text, and leaves.

mod drafts;
mod other_texts;
mod panel;
mod promoting;
mod replacement;
mod saving;
mod scrolling;
mod typing;

use std::sync::Arc;
use std::time::Duration;

pub use drafts::{
    confirm_discard, handle_draft_written, is_warned_of_quit, keep_draft_now, report_left_drafts,
    warn_before_quit, withdraw_quit_request, write_due_draft,
};
pub use other_texts::{
    check_due_file, check_file, concerns_open_file, handle_external_text, handle_file_checked,
    next_check,
};
pub use panel::{cycle_panel, fix_finding, go_to_finding, handle_analysis, open_selected};
pub use promoting::promote_lines;
pub use saving::{
    check_changed_file, check_changed_text, check_changes, check_draft, check_save,
    confirm_overwrite, confirm_save, handle_compared, handle_merged, handle_saved, merge_changes,
    prompt_discard, prompt_overwrite, run_command_line, take_draft, take_theirs, toggle_changes,
};
pub use scrolling::{go_to_end, keep_cursor_visible, move_cursor, move_half_page, move_page};
use scrolling::{jump_after, jump_in_text};
pub use typing::{
    begin_search, begin_typing, change_at_rest, check_editable, copy, finish_search,
    go_to_next_hit, handle_typed_key, paste, perform_counted, set_query, take_digit, undo_typing,
};

use super::buffer::{TextBuffer, UneditableText};
use super::promotion::PromotedLines;
use super::state::{EditorDialog, EditorScreen};
use crate::base::error::Error;
use crate::console::age::format_time;
use crate::console::command::{Command, KeyContext};
use crate::console::handoff::HandoffRequest;
use crate::console::keys::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::read_only::{self, is_unlocked, unlock_hint};
use crate::console::model::targets::subject_baseline;
use crate::console::screen::Screen;
use crate::console::screens::baselines;
use crate::console::screens::editor::buffer::search::search_for;
use crate::console::screens::editor::buffer::selection::{end_selection, is_selecting};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{FoundDrafts, OpenedBaseline, Protection, SealMatch};

/// What is said of an insertion that would make a text that cannot be opened again.
const TOO_LARGE_REFUSAL: &str =
    "not inserted: a text has at most 1 MiB, 60,000 lines, and 60,000 bytes in a line";

/// Time after a change until the draft is written.
const DRAFT_DELAY: Duration = Duration::from_millis(800);

/// Returns whether keys type text into the editor.
pub fn is_typing(model: &Model) -> bool {
    model.overlay.is_none() && model.key_context() == KeyContext::EditorTyping
}

/// Whether a key is ignored because it was typed before the question can have been read. Leaving it
/// changes nothing, so Esc never waits.
pub fn is_answer_ignored(model: &mut Model, key: Key) -> bool {
    let now = model.now.elapsed;
    if model.screen != Screen::Editor || model.overlay.is_some() || key.code == KeyCode::Esc {
        return false;
    }
    match model
        .editor
        .as_mut()
        .and_then(|editor| editor.dialog.as_mut())
    {
        Some(EditorDialog::Save(dialog)) => dialog.guard.intercepts_key(now),
        _ => false,
    }
}

/// Opens the comparison of the baseline with its sealed version. What a save said is read then.
pub fn open_evidence(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    if matches!(editor.dialog, Some(EditorDialog::Message(_))) {
        editor.dialog = None;
    }
    let name = editor.opened.name.clone();
    baselines::update::open_evidence(model, name)
}

/// Checks that the editor shows what a save said of a baseline that is not sealed.
pub fn check_evidence(model: &Model) -> Result<(), String> {
    saving::check_dialog(model, |editor, dialog| {
        let seal = &editor.opened.seal;
        matches!(dialog, EditorDialog::Message(_))
            && matches!(seal, SealMatch::SavedHere(_) | SealMatch::Mismatch(_))
    })
}

/// Opens the input line for a command of the editor.
pub fn begin_command_line(model: &mut Model) {
    let prompt = Prompt::replacing(PromptPurpose::EditorCommand, String::new());
    model.input_line = model.editor.is_some().then_some(prompt);
}

/// Keeps the text that is not saved, and suspends the console.
pub fn suspend(model: &mut Model) -> Vec<Effect> {
    let draft = keep_draft_now(model);
    draft.into_iter().chain([Effect::Suspend]).collect()
}

/// Requests the baseline that a key is about.
pub fn open_subject(model: &mut Model) -> Vec<Effect> {
    let baseline = subject_baseline(model).map(str::to_string);
    baseline.map_or_else(Vec::new, |baseline| open(model, baseline))
}

/// Requests a baseline for the editor; goes to the editor if it is open there with unsaved text.
pub fn open(model: &mut Model, baseline: String) -> Vec<Effect> {
    open_for(model, baseline, None)
}

/// Requests a baseline for the editor, to insert lines.
fn open_for(model: &mut Model, baseline: String, promoted: Option<PromotedLines>) -> Vec<Effect> {
    match &model.editor {
        Some(editor) if editor.opened.name == baseline && editor.is_modified => {
            show(model);
            return Vec::new();
        }
        Some(editor) if editor.is_modified => {
            let text = format!(
                "{} is open with changes that are not saved: save or leave it first",
                editor.opened.name
            );
            show(model);
            model.show_hint(&text);
            return Vec::new();
        }
        _ => {}
    }
    model.handoff_request = Some(HandoffRequest::OpenBaseline {
        name: baseline.clone(),
        promoted,
    });
    vec![Effect::OpenBaseline(baseline)]
}

/// Requests the open baseline again, after its file or its seal may have changed. Unsaved text stays:
/// the header says what became of the file, and a save compares the two.
pub fn open_again(model: &Model) -> Option<Effect> {
    let editor = model.editor.as_ref()?;
    let name = editor.opened.name.clone();
    Some(if editor.is_modified {
        Effect::CheckOpenFile(name)
    } else {
        Effect::OpenBaseline(name)
    })
}

/// Goes to the editor.
fn show(model: &mut Model) {
    // The comparison that was opened here leads back here: the two must not lead to each other
    // forever.
    let is_own_comparison = model.key_context() == KeyContext::Comparison
        && model.baselines.comparison.opened_from == Screen::Editor;
    if model.screen != Screen::Editor && !is_own_comparison {
        model.return_point.from_editor = match model.screen {
            Screen::Reset => Screen::Fleet,
            screen => screen,
        };
    }
    model.go_to_screen(Screen::Editor);
    model.is_dirty = true;
}

/// Shows the requested baseline, or the present state of the one that is open.
pub fn handle_opened(
    model: &mut Model,
    name: &str,
    opened: Result<Box<OpenedBaseline>, Error>,
) -> Vec<Effect> {
    let request = model.handoff_request.take_if(
        |it| matches!(it, HandoffRequest::OpenBaseline { name: wanted, .. } if wanted == name),
    );
    let is_requested = request.is_some();
    let promoted = match request {
        Some(HandoffRequest::OpenBaseline { promoted, .. }) => promoted,
        _ => None,
    };
    let open = model.editor.as_ref();
    let is_open = open.is_some_and(|it| it.opened.name == name && !it.is_modified);
    if !is_requested && !is_open {
        return Vec::new();
    }
    match opened {
        Ok(opened) => {
            let mut effects = show_opened(model, *opened);
            if is_requested {
                show(model);
            }
            if let Some(editor) = model.editor.as_mut().filter(|_| promoted.is_some()) {
                editor.promoted = promoted;
                effects.extend(promoting::insert_promoted(model));
            }
            effects
        }
        Err(error) => {
            model.report_error(error.to_line());
            Vec::new()
        }
    }
}

fn show_opened(model: &mut Model, opened: OpenedBaseline) -> Vec<Effect> {
    let (buffer, fault) = match TextBuffer::from_bytes(&opened.bytes) {
        Ok(buffer) => (buffer, None),
        Err(fault) => (
            TextBuffer::for_reading(&opened.bytes),
            Some(describe_fault(model, &fault)),
        ),
    };
    let refusal = read_only_reason(model, &opened);
    let may_change = refusal.is_none();
    let read_only = fault.or(refusal);
    let drafts = opened.drafts.clone();
    let mut editor = EditorScreen::new(opened, buffer, read_only);
    if let Some(open) = model
        .editor
        .take_if(|it| it.opened.name == editor.opened.name)
    {
        let (line, column) = open.buffer.cursor();
        editor.buffer.go_to(line, column);
        editor.top = open.top;
        editor.panel = open.panel;
    }
    let mut effects = Vec::new();
    if let Some(why) = editor.opened.unlock_refusal.as_ref().filter(|_| may_change) {
        model.report_warning(why.clone());
    }
    report_drafts(model, &editor.opened.name, may_change, &drafts);
    match drafts.newest {
        // A save was recorded, and its draft left behind by a kill.
        Some(draft) if draft.bytes == editor.opened.bytes => {
            effects.push(drafts::discard_found_draft(&editor, &draft.id));
        }
        Some(draft) if may_change => {
            editor.dialog = Some(EditorDialog::Draft { draft, diff: None });
        }
        _ => {}
    }
    model.editor = Some(Box::new(editor));
    other_texts::postpone_check(model);
    keep_cursor_visible(model);
    model.is_dirty = true;
    effects.extend(request_analysis(model));
    effects
}

/// Says what is known of unsaved texts of a baseline, apart from the one that is offered.
fn report_drafts(model: &mut Model, name: &str, may_change: bool, drafts: &FoundDrafts) {
    if let Some(error) = &drafts.problem {
        model.report_warning(error.to_line());
    }
    if let Some(draft) = drafts.newest.as_ref().filter(|_| !may_change) {
        let time = format_time(model.now.local_time, draft.time);
        let text = format!("your text of {time} is kept, and offered once {name} can be changed");
        model.report_warning(text);
    }
    let processes: Vec<String> = drafts
        .editing_processes
        .iter()
        .map(u32::to_string)
        .collect();
    if !processes.is_empty() {
        let (noun, verb) = match processes.len() {
            1 => ("process", "has"),
            _ => ("processes", "have"),
        };
        let text = format!(
            "{noun} {} {verb} changes of {name} that are not saved; the later save will have to merge",
            processes.join(", ")
        );
        model.report_warning(text);
    }
}

fn describe_fault(model: &Model, fault: &UneditableText) -> String {
    let key = model.key_hint(Command::EditExternally);
    match fault {
        UneditableText::NotUtf8(line) => {
            format!("line {line} is not UTF-8, so bytes would be lost; {key} opens your editor")
        }
        UneditableText::TooLarge => {
            format!("over 1 MiB, or a line over 60,000 characters; {key} opens your editor")
        }
    }
}

/// Returns why a baseline cannot be changed now.
pub fn read_only_reason(model: &Model, opened: &OpenedBaseline) -> Option<String> {
    let mismatch = match &opened.seal {
        SealMatch::Mismatch(why) => {
            let key = model.key_hint(Command::OpenSelected);
            Some(format!("{key} shows why; {why}"))
        }
        _ => None,
    };
    if let Some(why) = read_only::read_only_reason(model) {
        let tampered = mismatch.map(|it| format!("; TAMPERED: {it}"));
        return Some(format!("{why}{}", tampered.unwrap_or_default()));
    }
    let protected = check_unlocked(model, opened).err();
    let protected = protected.map(|why| format!("{why}, then open it again"));
    protected.or(mismatch)
}

/// Checks that no agent of a baseline is protected as read-only, or that such agents are unlocked.
fn check_unlocked(model: &Model, opened: &OpenedBaseline) -> Result<(), String> {
    let mut users = opened.users.iter();
    let protected = users.find(|user| user.protection == Protection::ReadOnly);
    match protected.filter(|_| !is_unlocked(model)) {
        Some(user) => Err(format!(
            "{} is protected as read-only; {}",
            user.agent,
            unlock_hint(model)
        )),
        None => Ok(()),
    }
}

/// Checks that a text can be saved now: it may have been opened before the console became read-only, or
/// while a protected agent was unlocked.
fn check_save_allowed(model: &Model) -> Result<(), String> {
    read_only::check_writable(model)?;
    let opened = model.editor.as_ref().map(|editor| &editor.opened);
    opened.map_or(Ok(()), |opened| check_unlocked(model, opened))
}

/// Requests the tones of the text, unless they are known.
fn request_analysis(model: &mut Model) -> Option<Effect> {
    let editor = model.editor.as_ref()?;
    let generation = editor.buffer.generation();
    let text = Arc::new(editor.text_bytes());
    let name = editor.opened.name.clone();
    (editor.analyzed_generation != Some(generation))
        .then(|| Effect::AnalyzeText(name, generation, text))
}

/// Changes the text, unless it is only for reading. Returns what follows from the change.
fn change_text(model: &mut Model, change: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    let due = model.now.elapsed + DRAFT_DELAY;
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    if let Some(why) = &editor.read_only {
        let why = format!("read-only: {why}");
        model.show_hint(&why);
        return Vec::new();
    }
    let generation = editor.buffer.generation();
    editor.change_text(change);
    let has_changed = editor.buffer.generation() != generation;
    if has_changed {
        editor.draft_due.get_or_insert(due);
    }
    if editor.buffer.take_refusal() {
        model.report_warning(TOO_LARGE_REFUSAL);
    }
    keep_cursor_visible(model);
    model.is_dirty = true;
    if has_changed {
        request_analysis(model).into_iter().collect()
    } else {
        Vec::new()
    }
}

/// Moves the cursor of the text.
pub fn move_in_text(model: &mut Model, step: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    if let Some(editor) = &mut model.editor {
        step(&mut editor.buffer);
        if !editor.is_typing && !is_selecting(&editor.buffer) {
            editor.buffer.rest_on_character();
        }
        keep_cursor_visible(model);
        model.is_dirty = true;
    }
    Vec::new()
}

/// Goes back one level: typing, selection, panel, question, search, and then out of the editor.
pub fn go_back(model: &mut Model, is_escape: bool) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        model.go_to_screen(Screen::Fleet);
        return Vec::new();
    };
    model.is_dirty = true;
    match &mut editor.dialog {
        Some(EditorDialog::Save(dialog)) if dialog.is_saving => {
            model.show_hint("the save is in progress");
            return Vec::new();
        }
        // A draft stays until it is recovered or discarded.
        Some(EditorDialog::Draft { diff: None, .. }) => return close(model),
        Some(EditorDialog::Draft { diff, .. }) => {
            *diff = None;
            return Vec::new();
        }
        Some(EditorDialog::Message(_)) => {
            editor.dialog = None;
            return Vec::new();
        }
        Some(_) => {
            editor.dialog = None;
            model.show_hint("not saved");
            return Vec::new();
        }
        None => {}
    }
    if editor.is_typing {
        editor.is_typing = false;
        editor.buffer.end_step();
        editor.buffer.move_glyph(false);
        keep_cursor_visible(model);
    } else if editor.is_panel_focused {
        editor.is_panel_focused = false;
    } else if is_selecting(&editor.buffer) {
        end_selection(&mut editor.buffer);
        editor.buffer.rest_on_character();
    } else if is_escape && !editor.query.is_empty() {
        editor.query.clear();
        search_for(&mut editor.buffer, "");
    } else if is_escape {
        let key = model.preferences.keymap.exit_key_text();
        model.show_hint(&format!("{key} leaves the editor"));
    } else if editor.is_modified {
        let key = model.key_hint(Command::CommandLine);
        model.show_hint(&format!(
            "not saved: {key}wq saves and leaves, {key}q! leaves without saving"
        ));
    } else {
        return close(model);
    }
    Vec::new()
}

/// Closes the editor and goes back to where it was opened.
pub(super) fn close(model: &mut Model) -> Vec<Effect> {
    model.editor = None;
    let to = model.return_point.from_editor;
    model.go_to_screen(to);
    if model.previous_screen == Some(Screen::Editor) {
        model.previous_screen = None;
    }
    model.is_dirty = true;
    match to {
        // The list may show the state of before a save.
        Screen::Baselines => baselines::update::reload(model),
        _ => Vec::new(),
    }
}
