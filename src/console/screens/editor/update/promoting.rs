//! Promotes lines of a scratch: opens the baseline of their agent, and inserts them above its
//! separator, where they stay selected. Nothing is saved.

use super::{change_text, jump_after, open_for, show};
use crate::base::quantity::format_count;
use crate::console::command::Command;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::targets::{subject_agent, subject_baseline};
use crate::console::screen::Screen;
use crate::console::screens::editor::buffer::replacement::insert_lines;
use crate::console::screens::editor::buffer::selection::{end_selection, select_lines};
use crate::console::screens::editor::promotion::{Insertion, PromotedLines};

/// Opens the baseline of the agent on the screen, to insert the marked lines of its scratch, or the
/// line under the cursor.
pub fn promote_lines(model: &mut Model) -> Vec<Effect> {
    let is_archived = model.screen == Screen::Archives;
    let lines = if is_archived {
        model.archives.chosen_lines()
    } else {
        model.agent.chosen_lines()
    };
    if lines.iter().any(|line| line.is_truncated) {
        model.show_hint("the end of a line was not read: promote it without this line");
        return Vec::new();
    }
    let promoted = PromotedLines {
        agent: if is_archived {
            subject_agent(model).unwrap_or_default().to_string()
        } else {
            model.agent.agent.clone()
        },
        lines: lines.into_iter().map(|line| line.bytes).collect(),
    };
    let Some(baseline) = subject_baseline(model).map(str::to_string) else {
        return Vec::new();
    };
    let Some(editor) = model.editor.as_mut().filter(|it| it.is_modified) else {
        return open_for(model, baseline, Some(promoted));
    };
    if editor.opened.name != baseline {
        return open_for(model, baseline, None);
    }
    if editor.dialog.is_some() {
        show(model);
        model.show_hint("not promoted: answer the question first");
        return Vec::new();
    }
    editor.promoted = Some(promoted);
    show(model);
    insert_promoted(model)
}

/// Inserts the lines that wait for the editor, unless a question about a draft is open.
pub(super) fn insert_promoted(model: &mut Model) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    if editor.dialog.is_some() {
        if editor.promoted.is_some() {
            model.show_hint("the lines are inserted once this question is answered");
        }
        return Vec::new();
    }
    let Some(promoted) = editor.promoted.take() else {
        return Vec::new();
    };
    let users = editor.opened.users.iter();
    let mut separators: Vec<&str> = users.map(|user| user.separator.as_str()).collect();
    separators.sort_unstable();
    separators.dedup();
    let planned = match &editor.read_only {
        Some(why) => Err(format!("read-only: {why}")),
        None => Insertion::plan(&editor.buffer, &promoted, &separators),
    };
    let insertion = match planned {
        Ok(insertion) => insertion,
        Err(why) => {
            model.report_warning(format!("not promoted: {why}"));
            return Vec::new();
        }
    };
    if editor.is_typing {
        editor.is_typing = false;
        editor.buffer.end_step();
    }
    editor.is_panel_focused = false;
    end_selection(&mut editor.buffer);
    editor.buffer.go_to(insertion.row, 0);
    let effects = jump_after(model, |model| {
        change_text(model, |text| {
            insert_lines(text, insertion.row, &insertion.text_lines());
            select_lines(text, insertion.row, insertion.lines.len());
        })
    });
    let count = format_count(insertion.lines.len() as u64, "line");
    let [cut, paste, save] = [
        Command::CutSelection,
        Command::PasteText,
        Command::CommandLine,
    ]
    .map(|it| model.key_hint(it));
    let moves = format!("{cut} cuts, {paste} pastes, {save}w saves");
    if insertion.has_marks {
        model.report_warning(format!(
            "{count} inserted; hidden characters are visible marks now: check them. {moves}"
        ));
    } else {
        model.show_hint(&format!("{count} of {} inserted: {moves}", promoted.agent));
    }
    effects
}
