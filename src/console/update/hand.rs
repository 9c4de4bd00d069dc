//! Handing texts out, to the clipboard and to the pager, and baselines in, by the
//! editor.

use super::Effect;
use crate::baseline::Inspected;
use crate::console::command::Command;
use crate::console::keymap::Key;
use crate::console::model::{
    ClipboardText, CopyOutcome, Edit, HandoffRequest, KeyGuard, MessageLevel, Model, Overlay,
    PagerText, SealQuestion,
};
use crate::error::Error;

/// Copies what a command is about.
pub(super) fn copy(model: &mut Model, command: Command) -> Vec<Effect> {
    match model.clip(command) {
        Ok(clip) => vec![Effect::Copy(clip)],
        Err(why) => {
            model.hint(&why);
            Vec::new()
        }
    }
}

/// Asks for the diff of the agent that a key is about.
pub(super) fn copy_diff(model: &mut Model) -> Vec<Effect> {
    let agent = model.subject().map(str::to_string);
    agent.map(Effect::Patch).into_iter().collect()
}

/// The diff of an agent as a patch.
pub(super) fn patch_came(
    model: &mut Model,
    agent: &str,
    patch: Result<Vec<u8>, String>,
) -> Vec<Effect> {
    match patch {
        Ok(patch) => vec![Effect::Copy(ClipboardText::new(
            format!("the diff of {agent}"),
            &patch,
        ))],
        Err(why) => {
            model.say(MessageLevel::Warn, format!("nothing was copied: {why}"));
            Vec::new()
        }
    }
}

/// A text was handed out, or not.
pub(super) fn copied(model: &mut Model, clip: ClipboardText, handed: CopyOutcome) -> Vec<Effect> {
    let mut size = format!("{} B", clip.text.len());
    if clip.cut {
        size.push_str(", which is not all of it");
    }
    if clip.revealed {
        size.push_str(", what is invisible shown as marks");
    }
    let what = &clip.what;
    match handed {
        CopyOutcome::Program(program) => {
            model.say(MessageLevel::Info, format!("{program} has {what}, {size}"));
        }
        CopyOutcome::Terminal => model.say(
            MessageLevel::Info,
            format!("{what}: sent to terminal (unverified), {size}"),
        ),
        CopyOutcome::Nobody(why) => {
            if !why.is_empty() {
                model.say(
                    MessageLevel::Warn,
                    format!("{why}; the terminal is asked instead"),
                );
            }
            return vec![Effect::CopyByTerminal(clip)];
        }
        CopyOutcome::TooLong(most) => model.say(
            MessageLevel::Warn,
            format!("{what} has {size}, terminals take {most} B: nothing was copied"),
        ),
    }
    Vec::new()
}

/// Asks for the baseline of the agent that a key is about, to be edited.
pub(super) fn edit(model: &mut Model) -> Vec<Effect> {
    let Some(agent) = model.subject().map(str::to_string) else {
        return Vec::new();
    };
    model.wanted = Some(HandoffRequest::Baseline(agent.clone()));
    vec![Effect::Baseline(agent)]
}

/// The baseline that was asked for.
pub(super) fn baseline_came(
    model: &mut Model,
    agent: &str,
    found: Result<Box<Edit>, Error>,
) -> Vec<Effect> {
    if model.wanted.as_ref() != Some(&HandoffRequest::Baseline(agent.to_string())) {
        return Vec::new();
    }
    model.wanted = None;
    match found {
        Err(error) => {
            model.say(MessageLevel::Error, sentence(&error));
            Vec::new()
        }
        Ok(edit) if !edit.protected.is_empty() && !model.unlocked() => {
            let who = match edit.protected.as_slice() {
                [one] => format!("{one} has this baseline and is"),
                many => format!("{} have this baseline and are", many.join(", ")),
            };
            let key = model.key(Command::ReadOnly);
            let what = "protected as read-only";
            model.say(
                MessageLevel::Warn,
                format!("{who} {what}; {key} unlocks for 30 minutes"),
            );
            Vec::new()
        }
        Ok(edit) if edit.before.sealed => {
            model.overlay = Some(Overlay::Seal(Box::new(SealQuestion {
                edit: *edit,
                guard: KeyGuard::new(model.now.since),
            })));
            model.dirty = true;
            Vec::new()
        }
        Ok(edit) => vec![Effect::Edit(edit)],
    }
}

/// A key while it is asked whether a sealed baseline is to be edited.
pub(super) fn seal_key(
    model: &mut Model,
    mut question: Box<SealQuestion>,
    key: Key,
) -> Vec<Effect> {
    if question.guard.ignores(model.now.since) {
        model.overlay = Some(Overlay::Seal(question));
        return Vec::new();
    }
    match key.typed() {
        Some('y') => vec![Effect::Edit(Box::new(question.edit))],
        _ => {
            model.give_up_question(key, "the baseline was left alone");
            Vec::new()
        }
    }
}

/// A baseline was edited, or not.
pub(super) fn edited(
    model: &mut Model,
    edit: &Edit,
    now: Result<Inspected, Error>,
    (added, removed): (usize, usize),
) -> Vec<Effect> {
    let name = edit.before.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    match now {
        Err(error) => model.say(
            MessageLevel::Error,
            format!("{}; resets refuse it", sentence(&error)),
        ),
        Ok(now) if now.bytes == edit.before.bytes => {
            // That the editor failed is what there is to know.
            let failed = model.message.as_ref();
            if failed.is_none_or(|message| message.level == MessageLevel::Info) {
                model.say(MessageLevel::Info, format!("baseline {name} is unchanged"));
            }
            return Vec::new();
        }
        Ok(now) => {
            let who = match edit.users.as_slice() {
                [one] => format!("{one} has it"),
                many => format!("{} have it", many.join(", ")),
            };
            let when = match now.tampered {
                None => format!("{who} from the next reset on"),
                Some(_) => format!("{who} once it is sealed again"),
            };
            let said = format!("baseline {name} changed: +{added} -{removed} lines; {when}");
            model.say(MessageLevel::Info, said);
            let blocked = now.tampered.map(|how| format!("resets are BLOCKED: {how}"));
            let problems: Vec<String> = blocked.into_iter().chain(now.problems).collect();
            if !problems.is_empty() {
                let problems = problems.join("; ");
                model.say(MessageLevel::Warn, format!("baseline {name}: {problems}"));
            }
        }
    }
    vec![Effect::Read(edit.users.clone())]
}

/// Opens what is on the screen in the pager, or asks for the entry under the cursor.
pub(super) fn page(model: &mut Model) -> Vec<Effect> {
    if let Some(page) = model.page() {
        return vec![Effect::Page(page)];
    }
    match model.entry() {
        Ok((agent, entry)) => {
            model.wanted = Some(HandoffRequest::Entry(agent.clone(), entry.clone()));
            vec![Effect::Entry(agent, entry)]
        }
        Err(why) => {
            model.hint(&why);
            Vec::new()
        }
    }
}

/// The entry that was asked for.
pub(super) fn entry_came(
    model: &mut Model,
    which: HandoffRequest,
    page: Result<PagerText, Error>,
) -> Vec<Effect> {
    if model.wanted.as_ref() != Some(&which) {
        return Vec::new();
    }
    model.wanted = None;
    match page {
        Ok(page) => vec![Effect::Page(page)],
        Err(error) => {
            model.say(MessageLevel::Error, sentence(&error));
            Vec::new()
        }
    }
}

/// An error with what can be done about it, in a line.
pub(in crate::console) fn sentence(error: &Error) -> String {
    let mut text = error.to_string().replace('\n', " ");
    for hint in error.hints() {
        text.push_str(&format!("; {hint}"));
    }
    text
}
