//! Texts for the clipboard and the pager, and baselines for the editor: requested, handed over, and
//! reported.

use std::path::PathBuf;

use crate::console::canvas::format_count;
use crate::console::command::Command;
use crate::console::handoff::{
    ClipboardText, CopyOutcome, ExternalEdit, HandoffRequest, PagerText, SealQuestion,
};
use crate::console::key::Key;
use crate::console::key_guard::KeyGuard;
use crate::console::message::{EditedBaseline, Effect};
use crate::console::model::Model;
use crate::console::overlay::Overlay;
use crate::console::screen::Screen;
use crate::console::screens::log::state::MessageLevel;
use crate::engine::FindingCounts;
use crate::error::Error;

/// Copies the text that a command is about.
pub(super) fn copy_to_clipboard(model: &mut Model, command: Command) -> Vec<Effect> {
    match model.clipboard_text(command) {
        Ok(clip) => vec![Effect::CopyToClipboard(clip)],
        Err(why) => {
            model.show_hint(&why);
            Vec::new()
        }
    }
}

/// Requests the patch of the agent that a key is about.
pub(super) fn request_patch(model: &mut Model) -> Vec<Effect> {
    let agent = model.subject_agent().map(str::to_string);
    agent.map(Effect::PreparePatch).into_iter().collect()
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
            model.report(MessageLevel::Warn, format!("nothing was copied: {why}"));
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
            model.report(MessageLevel::Info, format!("{program} has {what}, {size}"));
        }
        CopyOutcome::SentToTerminal => model.report(
            MessageLevel::Info,
            format!("{what}: sent to terminal (unverified), {size}"),
        ),
        CopyOutcome::Failed(why) => {
            if !why.is_empty() {
                model.report(
                    MessageLevel::Warn,
                    format!("{why}; trying the terminal instead"),
                );
            }
            return vec![Effect::CopyThroughTerminal(clip)];
        }
        CopyOutcome::TooLong(most) => model.report(
            MessageLevel::Warn,
            format!("{what} has {size}, terminals take {most} B: nothing was copied"),
        ),
    }
    Vec::new()
}

/// Requests the baseline of the agent that a key is about, to edit it.
pub(super) fn request_edit(model: &mut Model) -> Vec<Effect> {
    let Some(agent) = model.subject_agent().map(str::to_string) else {
        return Vec::new();
    };
    model.handoff_request = Some(HandoffRequest::EditBaseline(agent.clone()));
    vec![Effect::InspectBaseline(agent)]
}

/// Opens the editor for the requested baseline; asks first if it is sealed.
pub(super) fn handle_baseline(
    model: &mut Model,
    agent: &str,
    inspected: Result<Box<ExternalEdit>, Error>,
) -> Vec<Effect> {
    if model.handoff_request.as_ref() != Some(&HandoffRequest::EditBaseline(agent.to_string())) {
        return Vec::new();
    }
    model.handoff_request = None;
    match inspected {
        Err(error) => {
            model.report(MessageLevel::Error, error_with_hint(&error));
            Vec::new()
        }
        Ok(edit) if !edit.protected_agents.is_empty() && !model.is_unlocked() => {
            let who = match edit.protected_agents.as_slice() {
                [one] => format!("{one} has this baseline and is"),
                many => format!("{} have this baseline and are", many.join(", ")),
            };
            let what = "protected as read-only";
            let text = format!("{who} {what}; {}", model.unlock_hint());
            model.report(MessageLevel::Warn, text);
            Vec::new()
        }
        Ok(edit) if edit.original.is_sealed => {
            model.overlay = Some(Overlay::EditSealed(Box::new(SealQuestion {
                edit: *edit,
                guard: KeyGuard::new(model.now.elapsed),
            })));
            model.is_dirty = true;
            Vec::new()
        }
        Ok(edit) => vec![Effect::OpenEditor(edit)],
    }
}

/// Handles a key of the question whether to edit a sealed baseline.
pub(super) fn handle_seal_key(
    model: &mut Model,
    mut question: Box<SealQuestion>,
    key: Key,
) -> Vec<Effect> {
    if question.guard.intercepts_key(model.now.elapsed) {
        model.overlay = Some(Overlay::EditSealed(question));
        return Vec::new();
    }
    match key.printable_char() {
        Some('y') => vec![Effect::OpenEditor(Box::new(question.edit))],
        _ => {
            model.abandon_question(key, "baseline not edited");
            Vec::new()
        }
    }
}

/// Reports the outcome of an edit, with the findings of the lint, and reads the agents of the baseline
/// again.
pub(super) fn handle_edited(model: &mut Model, edited: EditedBaseline) -> Vec<Effect> {
    let EditedBaseline {
        edit,
        now,
        changed_lines: (added, removed),
        findings,
    } = edited;
    let name = edit.original.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    match now {
        Err(error) => model.report(
            MessageLevel::Error,
            format!("{}; resets refuse it", error_with_hint(&error)),
        ),
        Ok(now) if now.bytes == edit.original.bytes => {
            // A failure of the editor is already reported.
            let failed = model.last_message.as_ref();
            if failed.is_none_or(|message| message.level == MessageLevel::Info) {
                model.report(MessageLevel::Info, format!("baseline {name} is unchanged"));
            }
            return Vec::new();
        }
        Ok(now) => {
            let who = match edit.sharing_agents.as_slice() {
                [one] => format!("{one} has it"),
                many => format!("{} have it", many.join(", ")),
            };
            let when = match now.seal_mismatch {
                Some(_) => format!("; {who} once it is sealed again"),
                None if now.is_refused => String::new(),
                None => format!("; {who} from the next reset on"),
            };
            let found = describe_findings(model, findings);
            let said = found.iter().map(|found| format!(", {found}"));
            let said: String = said.collect();
            let text = format!("baseline {name} changed: +{added} -{removed} lines{said}{when}");
            let level = match findings.errors {
                0 => MessageLevel::Info,
                _ => MessageLevel::Warn,
            };
            model.report(level, text);
            let blocked = now.seal_mismatch.as_ref();
            let blocked = blocked.map(|_| "resets are BLOCKED".to_string());
            let problems: Vec<String> = blocked.into_iter().chain(now.problems).collect();
            if !problems.is_empty() {
                // Only the last message stays on the screen, and its end may not fit.
                let all = problems.into_iter().chain(found).chain(now.seal_mismatch);
                let all: Vec<String> = all.collect();
                let text = format!("baseline {name}: {}", all.join("; "));
                model.report(MessageLevel::Warn, text);
            }
        }
    }
    vec![Effect::ReadAgents(edit.sharing_agents)]
}

/// Says what the lint finds in an edited baseline, and the key that shows it, if it finds anything.
fn describe_findings(model: &Model, counts: FindingCounts) -> Option<String> {
    let counted = [
        (counts.errors, "lint error"),
        (counts.warnings, "lint warning"),
    ];
    let counted = counted.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counted
        .map(|(count, noun)| format_count(*count as u64, noun))
        .collect();
    let command = match model.screen {
        Screen::Editor => Command::NextFinding,
        _ => Command::EditBaseline,
    };
    let key = model.key_hint(command);
    let what = if counts.errors + counts.warnings == 1 {
        "it"
    } else {
        "them"
    };
    (!texts.is_empty()).then(|| format!("{} ({key} shows {what})", texts.join(", ")))
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
pub(super) fn open_pager(model: &mut Model) -> Vec<Effect> {
    if let Some(page) = model.pager_text() {
        return vec![Effect::OpenPager(page)];
    }
    match model.selected_entry() {
        Ok((agent, entry)) => {
            model.handoff_request = Some(HandoffRequest::ReadEntry(agent.clone(), entry.clone()));
            vec![Effect::LoadEntry(agent, entry)]
        }
        Err(why) => {
            model.show_hint(&why);
            Vec::new()
        }
    }
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
            model.report(MessageLevel::Error, error_with_hint(&error));
            Vec::new()
        }
    }
}

/// Formats an error with its hints in one line.
pub(in crate::console) fn error_with_hint(error: &Error) -> String {
    let mut text = error.to_string().replace('\n', " ");
    for hint in error.hints() {
        text.push_str(&format!("; {hint}"));
    }
    text
}
