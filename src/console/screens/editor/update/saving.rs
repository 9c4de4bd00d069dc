//! Saves of the editor: shown, confirmed, written; changes on the disk meanwhile.

use std::sync::Arc;

use super::drafts::{discard_draft, recover_draft};
use super::promoting::insert_promoted;
use super::{change_text, close, keep_cursor_visible, move_in_text};
use crate::console::canvas::format_count;
use crate::console::chooser;
use crate::console::command::Command;
use crate::console::key_guard::KeyGuard;
use crate::console::message::{Effect, FileComparison, SavedText, TextSave};
use crate::console::model::Model;
use crate::console::overlay::{Chooser, InputLine, Overlay};
use crate::console::screens::editor::state::{EditorDialog, EditorScreen, SaveDialog};
use crate::console::screens::log::state::MessageLevel;
use crate::console::text::{Arrangement, Pane, PreparedText};
use crate::console::update::handoff::error_with_hint;
use crate::digest::Digest;
use crate::engine::SealMatch;
use crate::error::{Error, ErrorKind};
use crate::lint::Severity;

/// The word that confirms a save over a file that has changed.
pub const OVERWRITE_WORD: &str = "overwrite";

/// Runs what was typed behind `:`.
pub fn run_command_line(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let command = std::mem::take(&mut editor.command_line);
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
            move_in_text(model, |text| text.go_to(line, 0))
        }
        // Anything else is meant for the palette.
        other => {
            let query = other.to_string();
            chooser::open_chooser(model, Overlay::Palette(Chooser::with_query(&query)));
            Vec::new()
        }
    }
}

/// Compares the text with the file, to confirm a save. A text with lint errors is saved only if the
/// operator accepts them.
fn request_save(model: &mut Model, closes: bool, accepts_lint_errors: bool) -> Vec<Effect> {
    let now = model.now.elapsed;
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let refusal = match (&editor.read_only, editor.find_conflict_marker()) {
        (Some(why), _) => Some(format!("read-only: {why}")),
        _ if !editor.is_modified => Some("no changes to save".to_string()),
        (None, Some(line)) => {
            move_in_text(model, |text| text.go_to(line, 0));
            Some(format!(
                "line {} is a marker of the merge: decide, and remove the markers",
                line + 1
            ))
        }
        (None, None) => match editor.count_findings(Severity::Error) {
            0 => None,
            _ if accepts_lint_errors => None,
            count => {
                let count = format_count(count as u64, "lint error");
                let [next, line] =
                    [Command::NextFinding, Command::CommandLine].map(|it| model.key_hint(it));
                Some(format!("{count}: {next} goes to it; {line}w! saves anyway"))
            }
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
        diff: None,
        changed_lines: (0, 0),
        guard: KeyGuard::new(now),
        is_saving: false,
        closes,
        accepts_lint_errors,
    }));
    model.is_dirty = true;
    vec![compare_with_file(editor)]
}

fn compare_with_file(editor: &EditorScreen) -> Effect {
    let text = Arc::new(editor.buffer.to_bytes());
    let name = editor.opened.name.clone();
    Effect::CompareWithFile(name, editor.buffer.generation(), text)
}

fn diff_pane(diff: PreparedText) -> Pane {
    let mut pane = Pane {
        arrangement: Arrangement {
            context_lines: Some(3),
            is_side_by_side: false,
        },
        ..Pane::default()
    };
    pane.replace_lines(diff.lines);
    pane
}

/// Shows how the text, or the draft, differs from the file.
pub fn handle_compared(
    model: &mut Model,
    name: &str,
    generation: u64,
    compared: Result<Box<FileComparison>, Error>,
) -> Vec<Effect> {
    let now = model.now.elapsed;
    let Some(editor) = model.editor.as_mut().filter(|it| it.opened.name == name) else {
        return Vec::new();
    };
    if editor.buffer.generation() != generation {
        return Vec::new();
    }
    model.is_dirty = true;
    let compared = match compared {
        Ok(compared) => *compared,
        Err(error) => {
            editor.dialog = None;
            model.report(MessageLevel::Error, error_with_hint(&error));
            return Vec::new();
        }
    };
    match &mut editor.dialog {
        Some(EditorDialog::Draft { diff, .. }) => *diff = Some(diff_pane(compared.diff)),
        Some(EditorDialog::Save(_)) if compared.disk != editor.opened.bytes => {
            editor.dialog = Some(EditorDialog::Changed {
                disk: compared.disk,
                diff: diff_pane(compared.diff),
                is_diff_shown: false,
            });
        }
        Some(EditorDialog::Save(dialog)) => {
            dialog.diff = Some(diff_pane(compared.diff));
            dialog.changed_lines = compared.changed_lines;
            dialog.guard.restart(now);
        }
        _ => {}
    }
    Vec::new()
}

/// Performs a command that answers the open question.
pub fn perform_answer(model: &mut Model, command: Command) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    match (command, &mut editor.dialog) {
        (Command::ConfirmSave, Some(EditorDialog::Save(dialog))) => {
            dialog.is_saving = true;
            let accepts_lint_errors = dialog.accepts_lint_errors;
            let expected = editor.opened.digest;
            vec![save_text(editor, expected, accepts_lint_errors)]
        }
        (Command::ShowChanges, Some(EditorDialog::Changed { is_diff_shown, .. })) => {
            *is_diff_shown = !*is_diff_shown;
            Vec::new()
        }
        (
            Command::ShowChanges,
            Some(EditorDialog::Draft {
                diff: diff @ Some(_),
                ..
            }),
        ) => {
            *diff = None;
            Vec::new()
        }
        (Command::ShowChanges, Some(EditorDialog::Draft { draft, .. })) => {
            let (name, text) = (editor.opened.name.clone(), Arc::new(draft.bytes.clone()));
            let generation = editor.buffer.generation();
            vec![Effect::CompareWithFile(name, generation, text)]
        }
        (Command::RecoverDraft, Some(EditorDialog::Draft { .. })) => {
            let effects = recover_draft(model);
            effects.into_iter().chain(insert_promoted(model)).collect()
        }
        (Command::DiscardDraft, Some(EditorDialog::Draft { .. })) => {
            editor.dialog = None;
            let discarded = discard_draft(editor);
            model.show_hint("draft discarded");
            discarded
                .into_iter()
                .chain(insert_promoted(model))
                .collect()
        }
        (Command::MergeChanges, Some(EditorDialog::Changed { disk, .. })) => {
            let texts = [
                editor.opened.bytes.clone(),
                editor.buffer.to_bytes(),
                disk.clone(),
            ];
            let name = editor.opened.name.clone();
            vec![Effect::MergeTexts(name, texts.map(Arc::new))]
        }
        (Command::TakeTheirs, Some(EditorDialog::Changed { disk, .. })) => {
            let disk = disk.clone();
            rebase(model, disk.clone(), &disk)
        }
        (Command::OverwriteFile, Some(EditorDialog::Changed { .. })) => {
            editor.command_line.clear();
            model.input_line = Some(InputLine::OverwriteWord);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Saves the text over the changed file, if the word was typed in full.
pub fn confirm_overwrite(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    let typed = std::mem::take(&mut editor.command_line);
    let Some(EditorDialog::Changed { disk, .. }) = &editor.dialog else {
        return Vec::new();
    };
    if typed.trim() != OVERWRITE_WORD {
        model.show_hint(&format!("type {OVERWRITE_WORD} in full, then Enter"));
        return Vec::new();
    }
    let expected = Digest::of(disk);
    let save = save_text(editor, expected, false);
    editor.dialog = Some(EditorDialog::Save(SaveDialog {
        diff: None,
        changed_lines: (0, 0),
        guard: KeyGuard::default(),
        is_saving: true,
        closes: false,
        accepts_lint_errors: false,
    }));
    vec![save]
}

fn save_text(editor: &EditorScreen, expected: Digest, accepts_lint_errors: bool) -> Effect {
    Effect::SaveText(Box::new(TextSave {
        name: editor.opened.name.clone(),
        bytes: editor.buffer.to_bytes(),
        expected,
        is_immutable: editor.opened.is_immutable,
        is_sealed: editor.opened.seal == SealMatch::Sealed,
        accepts_lint_errors,
    }))
}

/// Continues from another content of the file, with this text.
fn rebase(model: &mut Model, disk: Vec<u8>, text: &[u8]) -> Vec<Effect> {
    let Ok(text) = str::from_utf8(text) else {
        model.show_hint("the file is not UTF-8 any more: look at it with another program");
        return Vec::new();
    };
    if let Some(editor) = &mut model.editor {
        editor.dialog = None;
        editor.opened.digest = Digest::of(&disk);
        editor.opened.bytes = disk;
        // The text may hold a stranger's change from now on: no save seals that unseen.
        if editor.opened.seal == SealMatch::Sealed {
            let why = "another program changed the file".to_string();
            editor.opened.seal = SealMatch::SavedHere(why);
        }
    }
    let text = text.to_string();
    change_text(model, |buffer| buffer.replace_all(&text))
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
    let Some(EditorDialog::Changed { disk, .. }) = &editor.dialog else {
        return Vec::new();
    };
    let disk = disk.clone();
    let (text, is_clean) = match merged {
        Ok(merged) => merged,
        Err(why) => {
            model.report(MessageLevel::Error, why);
            return Vec::new();
        }
    };
    let mut effects = rebase(model, disk, &text);
    let marker = model
        .editor
        .as_ref()
        .and_then(|it| it.find_conflict_marker());
    match marker.filter(|_| !is_clean) {
        Some(line) => {
            effects.extend(move_in_text(model, |text| text.go_to(line, 0)));
            model.report(
                MessageLevel::Warn,
                "both changed the same lines: choose, and remove the markers; u undoes the merge",
            );
        }
        None => model.report(MessageLevel::Info, "merged; look it over, and save again"),
    }
    effects
}

/// Reports the outcome of a save.
pub fn handle_saved(
    model: &mut Model,
    name: &str,
    saved: Result<Box<SavedText>, Error>,
) -> Vec<Effect> {
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
            editor.dialog = Some(EditorDialog::Save(SaveDialog {
                diff: None,
                changed_lines: (0, 0),
                guard: KeyGuard::new(model.now.elapsed),
                is_saving: false,
                closes: false,
                accepts_lint_errors: false,
            }));
            let effect = compare_with_file(editor);
            model.report(MessageLevel::Warn, error_with_hint(&error));
            vec![effect]
        }
        Err(error) => {
            let text = format!("not saved: {}", error_with_hint(&error));
            model.report(MessageLevel::Error, text);
            Vec::new()
        }
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
    editor.is_modified = editor.buffer.to_bytes() != editor.opened.bytes;
    let name = editor.opened.name.clone();
    let users: Vec<String> = editor
        .opened
        .users
        .iter()
        .map(|it| it.agent.clone())
        .collect();
    let mut effects: Vec<Effect> = discard_draft(editor).into_iter().collect();
    let (level, rest) = match saved.seal {
        Ok(seal) => {
            let rest = match &seal {
                SealMatch::Unchecked => String::new(),
                SealMatch::Sealed | SealMatch::Signed => ", and sealed".to_string(),
                SealMatch::SavedHere(_) | SealMatch::Mismatch(_) => {
                    let seal = format!("seal {}", shell_words::quote(&name));
                    let command = model.config.invocation.command_line(&seal);
                    format!("; resets are BLOCKED until it is sealed: {command}")
                }
            };
            let level = match seal {
                SealMatch::SavedHere(_) | SealMatch::Mismatch(_) => MessageLevel::Warn,
                _ => MessageLevel::Info,
            };
            if let Some(editor) = &mut model.editor {
                editor.opened.seal = seal;
            }
            (level, rest)
        }
        Err(error) => (
            MessageLevel::Error,
            format!(", but not sealed: {}", error_with_hint(&error)),
        ),
    };
    let agents = match users.as_slice() {
        [] => "no agent uses it".to_string(),
        [one] => format!("{one} gets it at the next reset"),
        many => format!("{} agents get it at the next reset", many.len()),
    };
    let remarks = saved.remarks.iter().map(|remark| format!("; {remark}"));
    let remarks: String = remarks.collect();
    model.report(
        level,
        format!("{name} saved: +{added} -{removed} lines{rest}{remarks}; {agents}"),
    );
    effects.extend([Effect::ReadAgents(users), Effect::LoadLog]);
    if closes {
        effects.extend(close(model));
    } else {
        keep_cursor_visible(model);
    }
    effects
}
