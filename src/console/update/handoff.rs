//! Texts for the clipboard and the pager, and baselines for the editor: requested, handed over, and
//! reported.

use std::path::PathBuf;

use crate::base::error::Error;
use crate::console::command::{Command, require};
use crate::console::handoff::{ClipboardText, CopyOutcome, HandoffRequest, PagerText};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::copied_text::{clipboard_text, pager_text};
use crate::console::model::read_only::{check_writable, is_unlocked, unlock_hint};
use crate::console::model::targets::{
    check_subject_is_reset, no_subject_reason, selected_entry, subject_agent,
};
use crate::console::screen::Screen;
use crate::console::screens::archives::state::NO_ENTRY_REASON;
use crate::console::screens::editor;
use crate::engine::{OpenedBaseline, Protection};

/// Copies the text that a command is about.
pub fn copy_to_clipboard(model: &Model, command: Command) -> Result<Vec<Effect>, String> {
    let copied = clipboard_text(model, command)?;
    Ok(vec![Effect::CopyToClipboard(copied)])
}

/// Requests the patch of the agent that a key is about.
pub fn request_patch(model: &mut Model) -> Option<Effect> {
    let agent = subject_agent(model).map(str::to_string);
    agent.map(Effect::PreparePatch)
}

/// Copies a patch.
pub(super) fn handle_patch(
    model: &mut Model,
    agent: &str,
    patch: Result<Vec<u8>, String>,
) -> Vec<Effect> {
    match patch {
        Ok(patch) => vec![Effect::CopyToClipboard(ClipboardText::new(
            format!("the diff of {agent}"),
            &patch,
        ))],
        Err(why) => {
            model.report_warning(format!("nothing was copied: {why}"));
            Vec::new()
        }
    }
}

/// Reports the outcome of a copy; without a clipboard program, the terminal is tried.
pub(super) fn handle_copied(
    model: &mut Model,
    clip: ClipboardText,
    outcome: CopyOutcome,
) -> Vec<Effect> {
    let mut size = format!("{} B", clip.text.len());
    if clip.is_truncated {
        size.push_str(", truncated");
    }
    if clip.is_escaped {
        size.push_str(", invisible characters shown as marks");
    }
    let what = &clip.description;
    match outcome {
        CopyOutcome::CopiedBy(program) => {
            model.report_info(format!("{program} has {what}, {size}"));
        }
        CopyOutcome::SentToTerminal => {
            model.report_info(format!("{what}: sent to terminal (unverified), {size}"))
        }
        CopyOutcome::Failed(why) => {
            if !why.is_empty() {
                model.report_warning(format!("{why}; trying the terminal instead"));
            }
            return vec![Effect::CopyThroughTerminal(clip)];
        }
        CopyOutcome::TooLong(most) => model.report_warning(format!(
            "{what} has {size}, terminals take {most} B: nothing was copied"
        )),
    }
    Vec::new()
}

/// Requests the baseline of the agent that a key is about, to edit it.
pub fn request_edit(model: &mut Model) -> Vec<Effect> {
    let Some(agent) = subject_agent(model).map(str::to_string) else {
        return Vec::new();
    };
    model.handoff_request = Some(HandoffRequest::EditBaseline(agent.clone()));
    vec![Effect::InspectBaseline(agent)]
}

/// Opens the external editor for the requested baseline, unless that must not change.
pub(super) fn handle_baseline(
    model: &mut Model,
    agent: &str,
    inspected: Result<Box<OpenedBaseline>, Error>,
) -> Vec<Effect> {
    if model.handoff_request.as_ref() != Some(&HandoffRequest::EditBaseline(agent.to_string())) {
        return Vec::new();
    }
    model.handoff_request = None;
    let opened = match inspected {
        Ok(opened) => opened,
        Err(error) => {
            model.report_error(error.to_line());
            return Vec::new();
        }
    };
    if let Some(why) = editor::update::read_only_reason(model, &opened) {
        model.report_warning(format!("{}: {why}", opened.name));
        return Vec::new();
    }
    vec![Effect::OpenEditor(opened)]
}

/// Saves the marked lines of the agent on the screen to a new file.
pub(super) fn save_marked_lines(model: &mut Model, path: &str) -> Vec<Effect> {
    let path = path.trim();
    let Some(lines) = model.agent.marked_lines_of(&model.agent.agent) else {
        return Vec::new();
    };
    if path.is_empty() {
        model.show_hint("not saved: no file was named");
        return Vec::new();
    }
    vec![Effect::SaveLines(PathBuf::from(path), lines.to_text())]
}

/// Opens the text on the screen in the pager, or requests the entry under the cursor.
pub fn open_pager(model: &mut Model) -> Result<Vec<Effect>, String> {
    if let Some(page) = pager_text(model) {
        return Ok(vec![Effect::OpenPager(page)]);
    }
    if model.screen == Screen::Archives {
        let source = model.archives.subject_source().ok_or(NO_ENTRY_REASON)?;
        model.handoff_request = Some(HandoffRequest::ReadSource(source.clone()));
        return Ok(vec![Effect::LoadSource(source)]);
    }
    let (agent, entry) = selected_entry(model)?;
    model.handoff_request = Some(HandoffRequest::ReadEntry(agent.clone(), entry.clone()));
    Ok(vec![Effect::LoadEntry(agent, entry)])
}

/// Opens the requested entry in the pager.
pub(super) fn handle_entry(
    model: &mut Model,
    request: HandoffRequest,
    page: Result<PagerText, Error>,
) -> Vec<Effect> {
    if model.handoff_request.as_ref() != Some(&request) {
        return Vec::new();
    }
    model.handoff_request = None;
    match page {
        Ok(page) => vec![Effect::OpenPager(page)],
        Err(error) => {
            model.report_error(error.to_line());
            Vec::new()
        }
    }
}

/// Checks that the external editor may change the baseline of the agent that a key is about.
pub fn check_external_edit(model: &Model) -> Result<(), String> {
    let agent = subject_agent(model).ok_or_else(|| no_subject_reason(model))?;
    check_subject_is_reset(model)?;
    let row = model.find_row(agent);
    let observation = row.and_then(|row| row.latest_observation());
    let protected = observation.is_some_and(|seen| seen.protection == Protection::ReadOnly);
    let is_modified = model.editor.as_ref().is_some_and(|it| it.is_modified);
    require(
        !is_modified,
        "the editor has changes that are not saved: save or leave it first",
    )?;
    require(
        !protected || is_unlocked(model),
        format!("agent is protected as read-only; {}", unlock_hint(model)),
    )?;
    check_writable(model)
}
