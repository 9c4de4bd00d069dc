//! The rows below the text: the question that is open, what makes the text read-only, the finding of
//! the line, or what a save means for the agents. A question that needs more than a row takes them from
//! the text.

use unicode_width::UnicodeWidthStr;

use super::severity_sign;
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::age::format_time;
use crate::console::frame::KEYS_IGNORED_NOTICE;
use crate::console::model::Model;
use crate::console::screens::editor::state::{EditorDialog, EditorScreen, FileOnDisk, SaveDialog};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, wrap_text,
};
use crate::console::widgets::prompt::PromptPurpose;
use crate::engine::{BaselineFile, SealMatch};

/// Most rows of a question.
const MAX_QUESTION_ROWS: usize = 4;

/// Returns the number of rows of the notice.
pub(super) fn row_count(model: &Model) -> usize {
    let editor = model.editor.as_ref();
    editor.map_or(1, |editor| notice_rows(model, editor).0.len().max(1))
}

/// Draws the notice, from row `y` on.
pub(super) fn draw(model: &Model, editor: &EditorScreen, canvas: &mut Canvas<'_>, y: u16) {
    if model.key_guard_notice_until().is_some() && model.overlay.is_none() {
        canvas.put_text(1, y, KEYS_IGNORED_NOTICE, Role::Warn);
        return;
    }
    let (rows, role) = notice_rows(model, editor);
    for (row, y) in rows.iter().zip(y..) {
        canvas.put_text(1, y, row, role);
    }
}

/// Returns the rows of the notice, as wide as the screen allows.
fn notice_rows(model: &Model, editor: &EditorScreen) -> (Vec<String>, Role) {
    let room = usize::from(model.size.0).saturating_sub(2);
    let (sentences, role) = match &editor.dialog {
        Some(dialog) => describe_dialog(model, editor, dialog),
        None => {
            let (text, role) = describe_text(editor);
            return (vec![fit_notice(editor, &text, room)], role);
        }
    };
    let joined = untrusted::visible_line(sentences.join(" "));
    if joined.width() <= room {
        return (vec![joined], role);
    }
    let mut rows = Vec::new();
    for sentence in &sentences {
        let left = MAX_QUESTION_ROWS.saturating_sub(rows.len());
        rows.extend(wrap_text(&untrusted::visible_line(sentence), room, left));
    }
    rows.truncate(MAX_QUESTION_ROWS);
    (rows, role)
}

/// Fits what is said of the text into a row: of a finding, the beginning counts.
fn fit_notice(editor: &EditorScreen, text: &str, room: usize) -> String {
    match editor.read_only {
        Some(_) => fit_end_of_sentence(text, room),
        None => fit_start_of_sentence(text, room),
    }
}

/// Returns the sentences of a question.
fn describe_dialog(
    model: &Model,
    editor: &EditorScreen,
    dialog: &EditorDialog,
) -> (Vec<String>, Role) {
    match dialog {
        EditorDialog::Draft { draft, .. } => {
            let time = format_time(model.now.local_time, draft.time);
            if model
                .input_line
                .as_ref()
                .is_some_and(|it| it.purpose == PromptPurpose::DiscardWord)
            {
                let text = format!("The text of {time} is removed for good, and cannot be undone.");
                return (vec![text], Role::Warn);
            }
            let others = match editor.opened.drafts.older_count as u64 {
                0 => String::new(),
                count => format!(", nor {}", format_count(count, "older one")),
            };
            let text = format!("A text of {time} was not saved{others}. Recover it?");
            (vec![text], Role::Warn)
        }
        EditorDialog::Save(dialog) if dialog.is_saving => {
            (vec!["saving …".to_string()], Role::Text)
        }
        EditorDialog::Save(dialog) if dialog.diff.is_none() => {
            (vec!["comparing …".to_string()], Role::Text)
        }
        EditorDialog::Save(dialog) => (save_question(editor, dialog), Role::Warn),
        EditorDialog::Message(_) => {
            let key = model.preferences.keymap.exit_key_text();
            (vec![format!("{key} returns to the text")], Role::Text)
        }
        EditorDialog::Changed { disk, seal, .. } => {
            let what = match (disk, seal) {
                (BaselineFile::Absent, _) => "The file is gone",
                (BaselineFile::Unreadable(why), _) => why,
                (_, SealMatch::Mismatch(_)) => {
                    "The file has changed since it was opened, against its seal"
                }
                _ => "The file has changed since it was opened",
            };
            let text = format!("{what}. Your text is not saved.");
            (vec![text], Role::Warn)
        }
    }
}

/// Says what is special about the text while no question is open.
fn describe_text(editor: &EditorScreen) -> (String, Role) {
    match &editor.file {
        FileOnDisk::AsOpened => {}
        FileOnDisk::Changed => {
            let text = if editor.is_modified {
                "the file has changed since it was opened; a save asks what to do"
            } else {
                "the file has changed since it was opened: leave, and open it again"
            };
            return (text.to_string(), Role::Warn);
        }
        FileOnDisk::Gone => {
            let text = if editor.is_modified {
                "the file is gone from the disk; a save asks, and writes it again"
            } else {
                "the file is gone from the disk"
            };
            return (text.to_string(), Role::Warn);
        }
        FileOnDisk::Unreadable(why) => {
            return (format!("the file cannot be read: {why}"), Role::Warn);
        }
    }
    if let Some(why) = &editor.read_only {
        return (format!("read-only: {why}"), Role::Warn);
    }
    if let Some(finding) = editor.current_finding().map(|it| &editor.findings[it]) {
        let (sign, role) = severity_sign(finding.severity);
        return (format!("{sign} {}", finding.summary()), role);
    }
    let text = if editor.is_modified {
        describe_save_effect(editor)
    } else {
        String::new()
    };
    (text, Role::Dim)
}

fn count_agents(editor: &EditorScreen) -> String {
    match editor.opened.users.len() as u64 {
        0 => "no agent".to_string(),
        count => format_count(count, "agent"),
    }
}

/// Says what a save means for the agents.
fn describe_save_effect(editor: &EditorScreen) -> String {
    let agents = count_agents(editor);
    if editor.is_sealed_by_save() || editor.opened.seal == SealMatch::Unchecked {
        format!("a save leaves {agents} behind until the next reset or push")
    } else {
        format!("a save leaves resets of {agents} BLOCKED until it is sealed")
    }
}

/// Returns the question before a save: the changed lines, and what follows for the agents.
fn save_question(editor: &EditorScreen, dialog: &SaveDialog) -> Vec<String> {
    let (added, removed) = dialog.changed_lines;
    let mut sentences = Vec::new();
    if matches!(editor.opened.seal, SealMatch::Mismatch(_)) || editor.has_foreign_lines {
        // The difference from the file hides the lines of the other program, and the difference from
        // the seal those of the file that the save removes.
        let since = if dialog.is_from_seal {
            " since the seal"
        } else {
            ""
        };
        let dropped = match (dialog.is_from_seal, dialog.dropped_lines as u64) {
            (false, _) | (true, 0) => String::new(),
            (true, count) => format!("; it removes {} of the file", format_count(count, "line")),
        };
        sentences.push(format!("Save +{added} -{removed} lines{since}{dropped}?"));
        sentences.push(
            "Resets stay BLOCKED: another program has changed it. Review and seal it.".to_string(),
        );
    } else {
        let agents = count_agents(editor);
        let seal = match &editor.opened.seal {
            SealMatch::Unchecked => "",
            SealMatch::Sealed => " and seal it",
            SealMatch::Signed | SealMatch::SavedHere(_) | SealMatch::Mismatch(_) => {
                "; resets are BLOCKED until it is sealed"
            }
        };
        sentences.push(format!(
            "Save +{added} -{removed} lines for {agents}{seal}?"
        ));
    }
    if dialog.loses_separator {
        let text =
            "The baseline has no separator after this: every reset overwrites the whole file.";
        sentences.push(text.to_string());
    }
    if editor.opened.is_immutable {
        let text = "The file is immutable: it is unlocked, written and locked again.";
        sentences.push(text.to_string());
    }
    sentences
}
