//! Saves of the editor: shown, confirmed, written; changes by other programs.

use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use super::drafts::{discard_draft, recover_draft};
use super::promoting::insert_promoted;
use super::{change_text, check_save_allowed, close, jump_in_text, keep_cursor_visible};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::command::{Command, require};
use crate::console::message::{Effect, FileComparison, ReplacedBaseline, SavedText, TextSave};
use crate::console::model::Model;
use crate::console::overlay::Overlay;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::buffer::replacement::replace_all;
use crate::console::screens::editor::state::{EditorDialog, EditorScreen, FileOnDisk, SaveDialog};
use crate::console::screens::log::state::MessageLevel;
use crate::console::text::{Arrangement, Pane, PreparedText};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{BaselineFile, SealMatch};
use crate::lint::Severity;

/// The word that confirms a save over a file that has changed.
pub const OVERWRITE_WORD: &str = "overwrite";

/// Runs what was typed behind `:`.
pub fn run_command_line(model: &mut Model, command: &str) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    match command.trim() {
        "" => Vec::new(),
        "w" => request_save(model, false, false),
        "w!" => request_save(model, false, true),
        "wq" | "x" if editor.is_modified => request_save(model, true, false),
        "wq!" if editor.is_modified => request_save(model, true, true),
        "q" | "wq" | "wq!" | "x" | "q!" if !editor.is_modified => close(model),
        "q" => {
            let key = model.key_hint(Command::CommandLine);
            model.show_hint(&format!(
                "not saved: {key}wq saves, {key}q! drops the changes"
            ));
            Vec::new()
        }
        "q!" => {
            let discarded = discard_draft(editor);
            discarded.into_iter().chain(close(model)).collect()
        }
        number if number.parse::<usize>().is_ok() => {
            let line = number.parse::<usize>().unwrap_or(1).saturating_sub(1);
            jump_in_text(model, |text| text.go_to_line(line))
        }
        // Anything else is meant for the palette.
        other => {
            model.overlay = Some(Overlay::palette(other));
            Vec::new()
        }
    }
}

/// Compares the text with the file, to confirm a save. A text with lint errors is saved only if the
/// operator accepts them.
pub(super) fn request_save(
    model: &mut Model,
    closes: bool,
    accepts_lint_errors: bool,
) -> Vec<Effect> {
    let now = model.now.elapsed;
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let refusal = match (&editor.read_only, editor.find_conflict_marker()) {
        (Some(why), _) if editor.whole_text.is_none() => Some(format!("read-only: {why}")),
        _ if !editor.is_modified => Some("no changes to save".to_string()),
        (_, Some(line)) => {
            jump_in_text(model, |text| text.go_to_line(line));
            Some(format!(
                "line {} is a marker of the merge: decide, and remove the markers",
                line + 1
            ))
        }
        (_, None) => match editor.count_findings(Severity::Error) {
            0 => None,
            _ if accepts_lint_errors => None,
            count => Some(describe_lint_errors(model, count)),
        },
    };
    if let Some(why) = refusal {
        model.show_hint(&why);
        return Vec::new();
    }
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    editor.dialog = Some(EditorDialog::Save(SaveDialog {
        closes,
        accepts_lint_errors,
        ..SaveDialog::comparing(now)
    }));
    model.is_dirty = true;
    vec![compare_with_file(editor)]
}

fn describe_lint_errors(model: &Model, count: usize) -> String {
    let count = format_count(count as u64, "lint error");
    let [next, line] = [Command::NextFinding, Command::CommandLine].map(|it| model.key_hint(it));
    format!("{count}: {next} goes to it; {line}w! saves anyway")
}

fn compare_with_file(editor: &EditorScreen) -> Effect {
    let text = Arc::new(editor.text_bytes());
    let name = editor.opened.name.clone();
    let known = editor.opened.digest;
    Effect::CompareWithFile(name, editor.buffer.generation(), text, known)
}

fn diff_pane(diff: PreparedText) -> Pane {
    let mut pane = Pane::default();
    pane.set_arrangement(Arrangement {
        context_lines: Some(3),
        is_side_by_side: false,
    });
    pane.show(diff);
    pane
}

/// Shows how the text, or the draft, differs from the file.
pub fn handle_compared(
    model: &mut Model,
    name: &str,
    generation: u64,
    compared: Result<Box<FileComparison>, Error>,
) -> Vec<Effect> {
    let Some(editor) = model.editor.as_mut().filter(|it| it.opened.name == name) else {
        return Vec::new();
    };
    if editor.buffer.generation() != generation {
        return Vec::new();
    }
    model.is_dirty = true;
    match (compared, &mut editor.dialog) {
        (Err(error), _) => {
            editor.dialog = None;
            model.report_error(error.to_line());
        }
        (Ok(compared), Some(EditorDialog::Draft { diff, .. })) => {
            *diff = Some(diff_pane(compared.diff));
        }
        (Ok(compared), Some(EditorDialog::Save(_))) => show_comparison(model, *compared),
        _ => {}
    }
    Vec::new()
}

/// Shows what a save would change; asks what to do first if the file has changed.
fn show_comparison(model: &mut Model, compared: FileComparison) {
    let now = model.now.elapsed;
    let Some(editor) = &mut model.editor else {
        return;
    };
    editor.set_file(&compared.disk);
    let loses_separator = editor.loses_separator();
    let Some(EditorDialog::Save(dialog)) = &mut editor.dialog else {
        return;
    };
    if compared.disk.bytes() != Some(&editor.opened.bytes) {
        editor.dialog = Some(EditorDialog::Changed {
            disk: compared.disk,
            seal: compared.seal,
            diff: diff_pane(compared.diff),
            is_diff_shown: false,
        });
        return;
    }
    // The seal and the flag as they are now decide what the save does.
    editor.opened.seal = compared.seal;
    editor.opened.is_immutable = compared.is_immutable;
    if let Some(why) = compared.unlock_refusal {
        editor.dialog = None;
        report_whole(model, MessageLevel::Error, format!("not saved: {why}"));
        return;
    }
    if compared.findings.errors > 0 && !dialog.accepts_lint_errors {
        editor.dialog = None;
        let why = describe_lint_errors(model, compared.findings.errors);
        model.show_hint(&why);
        return;
    }
    dialog.diff = Some(diff_pane(compared.diff));
    dialog.is_from_seal = compared.is_from_seal;
    dialog.changed_lines = compared.changed_lines;
    dialog.dropped_lines = compared.dropped_lines;
    dialog.loses_separator = loses_separator;
    dialog.guard.restart(now);
}

/// Checks that a question is open to which the command is an answer.
pub(super) fn check_dialog(
    model: &Model,
    is_answered: impl FnOnce(&EditorScreen, &EditorDialog) -> bool,
) -> Result<(), String> {
    let editor = model.editor.as_deref();
    let is_answer = editor.and_then(|it| Some(is_answered(it, it.dialog.as_ref()?)));
    require(is_answer == Some(true), "not an answer to this question")
}

/// Checks that a save waits for its confirmation.
pub fn check_save(model: &Model) -> Result<(), String> {
    check_dialog(
        model,
        |_, dialog| matches!(dialog, EditorDialog::Save(save) if save.diff.is_some() && !save.is_saving),
    )?;
    check_save_allowed(model)
}

/// Checks that the question is about a draft.
pub fn check_draft(model: &Model) -> Result<(), String> {
    check_dialog(model, |_, dialog| {
        matches!(dialog, EditorDialog::Draft { .. })
    })
}

/// Checks that the question is about a changed file.
pub fn check_changed_file(model: &Model) -> Result<(), String> {
    check_dialog(model, |_, dialog| {
        matches!(dialog, EditorDialog::Changed { .. })
    })
}

/// Checks that the question is about a changed file that can become part of the text.
pub fn check_changed_text(model: &Model) -> Result<(), String> {
    check_dialog(model, |editor, dialog| {
        let is_editable = editor.whole_text.is_none();
        is_editable
            && matches!(dialog, EditorDialog::Changed { disk, .. } if disk.bytes().is_some())
    })
}

/// Checks that the question is about a text that differs from the file.
pub fn check_changes(model: &Model) -> Result<(), String> {
    check_draft(model).or_else(|_| check_changed_file(model))
}

/// Saves the text as the question shows it.
pub fn confirm_save(model: &mut Model) -> Option<Effect> {
    let editor = model.editor.as_mut()?;
    let Some(EditorDialog::Save(dialog)) = &mut editor.dialog else {
        return None;
    };
    dialog.is_saving = true;
    let accepts_lint_errors = dialog.accepts_lint_errors;
    let expected = ReplacedBaseline::File(editor.opened.digest);
    let is_sealed = editor.is_sealed_by_save();
    let effect = save_text(editor, expected, is_sealed, accepts_lint_errors);
    if !is_sealed {
        expect_unsealed_baseline(model);
    }
    Some(effect)
}

/// Notes that a save leaves the baseline of its agents unsealed.
fn expect_unsealed_baseline(model: &mut Model) {
    let users = model.editor.iter().flat_map(|it| &it.opened.users);
    let agents = users.map(|user| &user.agent);
    model.trouble.expect_unsealed(agents, model.now.local_time);
}

/// Shows the difference from the file, or hides it.
pub fn toggle_changes(model: &mut Model) -> Option<Effect> {
    let editor = model.editor.as_mut()?;
    match editor.dialog.as_mut()? {
        EditorDialog::Changed { is_diff_shown, .. } => *is_diff_shown = !*is_diff_shown,
        EditorDialog::Draft { draft, diff: None } => {
            let (name, text) = (editor.opened.name.clone(), Arc::new(draft.bytes.clone()));
            let generation = editor.buffer.generation();
            let known = editor.opened.digest;
            return Some(Effect::CompareWithFile(name, generation, text, known));
        }
        EditorDialog::Draft { diff, .. } => *diff = None,
        EditorDialog::Message(_) | EditorDialog::Save(_) => {}
    }
    None
}

/// Continues with the text of the draft.
pub fn take_draft(model: &mut Model) -> Vec<Effect> {
    let effects = recover_draft(model);
    effects.into_iter().chain(insert_promoted(model)).collect()
}

/// Asks for the word that discards the draft.
pub fn prompt_discard(model: &mut Model) {
    model.input_line = Some(Prompt::new(PromptPurpose::DiscardWord));
}

/// Asks for the word that overwrites the changed file.
pub fn prompt_overwrite(model: &mut Model) {
    model.input_line = Some(Prompt::new(PromptPurpose::OverwriteWord));
}

/// Returns the bytes of the changed file that the question is about.
fn changed_bytes(editor: &EditorScreen) -> Option<Vec<u8>> {
    match &editor.dialog {
        Some(EditorDialog::Changed { disk, .. }) => disk.bytes().map(<[u8]>::to_vec),
        _ => None,
    }
}

/// Merges the changes of the file and those of the text.
pub fn merge_changes(model: &mut Model) -> Option<Effect> {
    let editor = model.editor.as_ref()?;
    let texts = [
        editor.opened.bytes.clone(),
        editor.buffer.to_bytes(),
        changed_bytes(editor)?,
    ];
    let name = editor.opened.name.clone();
    Some(Effect::MergeTexts(name, texts.map(Arc::new)))
}

/// Replaces the text by the changed file.
pub fn take_theirs(model: &mut Model) -> Vec<Effect> {
    let changed = model.editor.as_deref().and_then(changed_bytes);
    let rebased = changed.and_then(|changed| rebase(model, &changed));
    rebased.unwrap_or_default()
}

/// Keeps the text against the changed file, if the word was typed in full: shows what that changes in
/// a file, and replaces an object that is not a file.
pub fn confirm_overwrite(model: &mut Model, typed: &str) -> Vec<Effect> {
    if let Err(why) = check_save_allowed(model) {
        model.show_hint(&why);
        return Vec::new();
    }
    let now = model.now.elapsed;
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let Some(EditorDialog::Changed { disk, .. }) = &editor.dialog else {
        return Vec::new();
    };
    if typed.trim() != OVERWRITE_WORD {
        model.show_hint(&format!("type {OVERWRITE_WORD} in full, then Enter"));
        return Vec::new();
    }
    let effect = match disk {
        BaselineFile::Readable(_) => {
            if let Some((disk, seal)) = take_changed_file(editor) {
                accept_file(editor, disk, seal);
            }
            compare_with_file(editor)
        }
        BaselineFile::Absent => save_text(editor, ReplacedBaseline::Absent, false, false),
        BaselineFile::Unreadable(why) => {
            let expected = ReplacedBaseline::Unreadable(why.clone());
            save_text(editor, expected, false, false)
        }
    };
    editor.dialog = Some(EditorDialog::Save(SaveDialog {
        is_saving: matches!(effect, Effect::SaveText(_)),
        ..SaveDialog::comparing(now)
    }));
    if matches!(effect, Effect::SaveText(_)) {
        expect_unsealed_baseline(model);
    }
    vec![effect]
}

fn save_text(
    editor: &EditorScreen,
    expected: ReplacedBaseline,
    is_sealed: bool,
    accepts_lint_errors: bool,
) -> Effect {
    Effect::SaveText(Box::new(TextSave {
        name: editor.opened.name.clone(),
        bytes: editor.text_bytes(),
        expected,
        is_immutable: editor.opened.is_immutable,
        is_sealed,
        has_foreign_lines: editor.has_foreign_lines,
        accepts_lint_errors,
    }))
}

/// Ends the question about a file that has changed. Returns the file, and what its seal says of it.
fn take_changed_file(editor: &mut EditorScreen) -> Option<(Vec<u8>, SealMatch)> {
    match editor.dialog.take()? {
        EditorDialog::Changed {
            disk: BaselineFile::Readable(disk),
            seal,
            ..
        } => Some((disk, seal)),
        _ => None,
    }
}

/// Continues from the file as it is now. What the seal says of that decides whether a save seals the
/// text, which may hold a stranger's change from now on.
fn accept_file(editor: &mut EditorScreen, disk: Vec<u8>, seal: SealMatch) {
    editor.opened.digest = Digest::of(&disk);
    editor.opened.bytes = disk;
    editor.opened.seal = seal;
    editor.file = FileOnDisk::AsOpened;
    editor.is_modified = editor.text_bytes() != editor.opened.bytes;
}

/// Continues from the file as it is now, with this text; none if the editor cannot hold the text. The
/// question then stays open, because the text has nothing of the file.
fn rebase(model: &mut Model, text: &[u8]) -> Option<Vec<Effect>> {
    let refusal = match str::from_utf8(text) {
        Ok(text) if TextBuffer::can_hold(text) => None,
        Ok(_) => Some("it is too large for this editor"),
        Err(_) => Some("it is not UTF-8 any more"),
    };
    if let Some(why) = refusal {
        let overwrite = model.key_hint(Command::OverwriteFile);
        model.show_hint(&format!(
            "not taken, {why}: edit the file with another program; {overwrite} saves your text over it"
        ));
        return None;
    }
    let (disk, seal) = take_changed_file(model.editor.as_mut()?)?;
    let text = str::from_utf8(text).ok()?;
    let generation = model.editor.as_ref()?.buffer.generation();
    let effects = change_text(model, |buffer| replace_all(buffer, text));
    if let Some(editor) = &mut model.editor {
        if editor.buffer.generation() == generation {
            editor.has_foreign_lines |= matches!(seal, SealMatch::Mismatch(_));
            accept_file(editor, disk, seal);
        } else {
            let digest = Digest::of(&disk);
            editor.replace_base(disk, digest, seal);
        }
    }
    Some(effects)
}

/// Shows a merge of both changes.
pub fn handle_merged(
    model: &mut Model,
    name: &str,
    merged: Result<(Vec<u8>, bool), String>,
) -> Vec<Effect> {
    let Some(editor) = model.editor.as_ref().filter(|it| it.opened.name == name) else {
        return Vec::new();
    };
    if !matches!(editor.dialog, Some(EditorDialog::Changed { .. })) {
        return Vec::new();
    }
    let (text, is_clean) = match merged {
        Ok(merged) => merged,
        Err(why) => {
            model.report_error(why);
            return Vec::new();
        }
    };
    let Some(mut effects) = rebase(model, &text) else {
        return Vec::new();
    };
    let marker = model
        .editor
        .as_ref()
        .and_then(|it| it.find_conflict_marker());
    let undo = model.key_hint(Command::UndoTyping);
    match marker.filter(|_| !is_clean) {
        Some(line) => {
            effects.extend(jump_in_text(model, |text| text.go_to_line(line)));
            model.report_warning(format!("both changed the same lines: choose, and remove the markers; {undo} undoes the merge"),
            );
        }
        None => model.report_info("merged; look it over, and save again"),
    }
    effects
}

/// Reports the outcome of a save.
pub fn handle_saved(
    model: &mut Model,
    name: &str,
    saved: Result<Box<SavedText>, Error>,
) -> Vec<Effect> {
    if let Ok(saved) = &saved {
        model.log.remember_change(vec![saved.run.clone()], false);
    }
    let Some(editor) = model.editor.as_mut().filter(|it| it.opened.name == name) else {
        return vec![Effect::LoadLog];
    };
    model.is_dirty = true;
    let dialog = match editor.dialog.take() {
        Some(EditorDialog::Save(dialog)) => Some(dialog),
        other => {
            editor.dialog = other;
            None
        }
    };
    match saved {
        Ok(saved) => {
            let closes = dialog.as_ref().is_some_and(|dialog| dialog.closes);
            let changed = dialog.map_or((0, 0), |dialog| dialog.changed_lines);
            finish_save(model, *saved, changed, closes)
        }
        Err(error) if error.kind() == ErrorKind::Conflict => {
            // The file has changed after it was compared; the comparison says so again.
            let dialog = SaveDialog::comparing(model.now.elapsed);
            editor.dialog = Some(EditorDialog::Save(dialog));
            let effect = compare_with_file(editor);
            model.report_warning(error.to_line());
            vec![effect]
        }
        Err(error) => {
            let text = format!("not saved: {}", error.to_line());
            report_whole(model, MessageLevel::Error, text);
            Vec::new()
        }
    }
}

/// Reports the outcome of a save. A text that the line of messages would cut is shown in place of the
/// baseline's text instead: it may hold a command. The log has it in either case.
fn report_whole(model: &mut Model, level: MessageLevel, text: String) {
    let is_cut = untrusted::visible_line(&text).width() + 2 > usize::from(model.size.0);
    model.report(level, text.clone());
    if let Some(editor) = model.editor.as_mut().filter(|_| is_cut) {
        editor.dialog = Some(EditorDialog::Message(text));
        model.last_message = None;
    }
}

/// Says what the seal covers after a save, with the level of the message.
fn describe_saved_seal(
    model: &Model,
    seal: &Result<SealMatch, Error>,
    closes: bool,
) -> (MessageLevel, String) {
    match seal {
        Ok(SealMatch::Unchecked) => (MessageLevel::Info, String::new()),
        Ok(SealMatch::Sealed | SealMatch::Signed) => {
            (MessageLevel::Info, ", and sealed".to_string())
        }
        Ok(SealMatch::SavedHere(_) | SealMatch::Mismatch(_)) => {
            // The screen behind the editor may be another one.
            let show = if closes {
                Command::GoBaselines
            } else {
                Command::OpenSelected
            };
            let [show, seal] = [show, Command::PlanSeal].map(|it| model.key_hint(it));
            let text = if closes {
                format!("; resets are BLOCKED: {show}, then {seal} seals it")
            } else {
                format!("; resets are BLOCKED: {show} shows it, {seal} there seals it")
            };
            (MessageLevel::Warn, text)
        }
        Err(error) => {
            let text = format!(", but not sealed: {}", error.to_line());
            (MessageLevel::Error, text)
        }
    }
}

/// Says which agents get a saved baseline when.
fn describe_receivers(users: &[String], is_blocked: bool) -> String {
    let when = if is_blocked {
        "a reset after that"
    } else {
        "the next reset"
    };
    match users {
        [] => "no agent uses it".to_string(),
        [one] => format!("{one} gets it at {when}"),
        many => format!("{} agents get it at {when}", many.len()),
    }
}

fn finish_save(
    model: &mut Model,
    saved: SavedText,
    (added, removed): (usize, usize),
    closes: bool,
) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    editor.opened.digest = Digest::of(&saved.bytes);
    editor.opened.bytes = saved.bytes;
    editor.forget_replaced_bases();
    editor.is_modified = editor.text_bytes() != editor.opened.bytes;
    let name = editor.opened.name.clone();
    let users: Vec<String> = editor
        .opened
        .users
        .iter()
        .map(|it| it.agent.clone())
        .collect();
    let mut effects: Vec<Effect> = discard_draft(editor).into_iter().collect();
    let is_blocked = matches!(
        saved.seal,
        Ok(SealMatch::SavedHere(_) | SealMatch::Mismatch(_)) | Err(_)
    );
    let (level, rest) = describe_saved_seal(model, &saved.seal, closes);
    if let (Ok(seal), Some(editor)) = (saved.seal, &mut model.editor) {
        editor.opened.seal = seal;
    }
    let agents = match users.as_slice() {
        _ if saved.is_refused => "no agent gets it".to_string(),
        users => describe_receivers(users, is_blocked),
    };
    // What replaces no file was not compared.
    let lines = match (added, removed) {
        (0, 0) => String::new(),
        _ => format!(": +{added} -{removed} lines"),
    };
    let is_as_before = saved.problems.is_empty() && saved.remarks.is_empty();
    let level = match is_as_before {
        false if level == MessageLevel::Info => MessageLevel::Warn,
        _ => level,
    };
    let remarks = saved.remarks.iter().chain(&saved.problems);
    let remarks = remarks.map(|remark| format!("; {remark}"));
    let remarks: String = remarks.collect();
    let text = format!("{name} saved{lines}{rest}{remarks}; {agents}");
    match level {
        MessageLevel::Info => model.report(level, text),
        // The screen behind the editor has no room for it.
        _ if closes => model.report(level, text),
        _ => report_whole(model, level, text),
    }
    effects.extend([Effect::ReadAgents(users), Effect::LoadLog]);
    if closes {
        effects.extend(close(model));
    } else {
        keep_cursor_visible(model);
    }
    effects
}
