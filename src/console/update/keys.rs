//! What a key does: a command, a part of a sequence, a letter of an input line or of the words
//! that confirm a plan, or nothing.

use std::time::Duration;

use super::overlay::{handle_overlay_key, run_exact_choice};
use super::{handoff, perform_command, plan, question, settle, trouble};
use crate::console::command::{Command, CommandCategory, KeyContext};
use crate::console::keys::key::{Key, KeyCode, format_sequence};
use crate::console::keys::keymap::{CONFIRM_KEY, KeyMeaning};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::{has_plan, plan_prompt};
use crate::console::model::visible_text::{has_text, visible_pane};
use crate::console::overlay::{Overlay, PendingKeys};
use crate::console::screen::Screen;
use crate::console::screens;
use crate::console::screens::fleet::visible_agents::{
    refresh_outdated_order, refresh_visible_agents,
};
use crate::console::screens::{agent, archives, baseline_plan, baselines, editor, search_query};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};

/// More printable keys than this in one read look like pasted text.
const MAX_TYPED_KEYS_PER_READ: usize = 8;

/// Interval within which a repeated key may be held.
const HELD_KEY_INTERVAL: Duration = Duration::from_secs(1);

/// Delay until the continuations of an incomplete sequence are listed.
const WHICH_KEY_DELAY: Duration = Duration::from_millis(400);

/// Handles the keys of one read.
pub(super) fn handle_keys(model: &mut Model, keys: Vec<Key>) -> Vec<Effect> {
    // The operator has had time to read the message; the log keeps it.
    model.is_dirty |= model.last_message.take().is_some();
    // A key is about the agent that the cursor is on now.
    model.fleet.is_cursor_pinned |= model.fleet.cursor_agent.is_some();
    baselines::update::pin_cursors(model);
    // An editor must not open while the operator does something else.
    model.handoff_request = None;
    let printable = keys.iter().filter(|key| key.printable_char().is_some());
    let is_burst = printable.count() > MAX_TYPED_KEYS_PER_READ;
    let cursor_before = model.fleet.cursor_agent.clone();
    trouble::end_trouble_on_screen(model);
    let mut effects = Vec::new();
    let mut has_dropped = false;
    for key in keys {
        // A line that was begun before anything looked pasted is a command over a slow line.
        let begins_line = !has_dropped && begins_typed_line(model, key);
        if is_burst && !is_typing_line(model) && !begins_line && is_pasted_key(model, key) {
            has_dropped = true;
            continue;
        }
        let was_covered = model.is_screen_covered();
        model.hosts.just_answered = None;
        let was_warned = editor::update::is_warned_of_quit(model);
        let unpinned = model.archives.unpin_request.clone();
        effects.extend(handle_key(model, key));
        if was_warned {
            editor::update::withdraw_quit_request(model);
        }
        if unpinned.is_some() && model.archives.unpin_request == unpinned {
            model.archives.unpin_request = None;
        }
        settle(model);
        if was_covered && !model.is_screen_covered() {
            // Rows stood still below the overlay.
            refresh_outdated_order(model);
        }
    }
    trouble::end_shown_trouble(model, cursor_before.as_deref());
    if has_dropped {
        model.report_warning(
            "many keys at once look like pasted text and were ignored; type them one by one",
        );
    }
    effects
}

/// Whether printable keys go into a line or a text, and no key of them is a command.
fn is_typing_line(model: &Model) -> bool {
    model.input_line.is_some() || is_typing_in_overlay(model) || editor::update::is_typing(model)
}

/// Whether a key opens a line in which what follows it is typed: a command, a filter or a search.
fn begins_typed_line(model: &Model, key: Key) -> bool {
    if model.overlay.is_some() || is_typing_confirmation(model) {
        return false;
    }
    let meaning = model
        .preferences
        .keymap
        .resolve(model.key_context(), &[key]);
    matches!(
        meaning,
        KeyMeaning::Command(
            Command::Palette | Command::CommandLine | Command::Filter | Command::Search
        )
    )
}

/// Whether a key of a burst is dropped as pasted text. A held movement key over a slow line
/// arrives as a burst, too, and is kept.
fn is_pasted_key(model: &Model, key: Key) -> bool {
    if is_plan_guarded(model) || (key.printable_char().is_none() && key.code != KeyCode::Enter) {
        return false;
    }
    let keymap = &model.preferences.keymap;
    let meaning = keymap.resolve(model.key_context(), &[key]);
    let is_navigation = matches!(meaning, KeyMeaning::Command(command)
        if keymap.spec_of(command).category == CommandCategory::Navigation
            && !matches!(command, Command::GoBack | Command::GoToPreviousScreen));
    !is_navigation || model.overlay.is_some() || is_typing_confirmation(model)
}

/// Handles pasted text: a line of it goes into an answer or an input line.
pub(super) fn handle_paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if model.input_line.is_none() && editor::update::is_typing(model) {
        return editor::update::paste(model, text);
    }
    if let Some(Overlay::AnswerQuestion(_)) = &model.overlay {
        return question::paste_answer(model, text);
    }
    let prompt = model.input_line.take_if(|_| model.overlay.is_none());
    let Some(mut prompt) = prompt else {
        model.report_warning("pasted text is never taken as keys; it was ignored");
        return Vec::new();
    };
    let line = text.lines().next().unwrap_or_default();
    let printable: String = line.chars().filter(|c| !c.is_control()).collect();
    prompt.insert(&printable);
    follow_prompt(model, &prompt);
    model.input_line = Some(prompt);
    Vec::new()
}

/// Whether printable keys go into a line of an overlay.
fn is_typing_in_overlay(model: &Model) -> bool {
    match &model.overlay {
        Some(Overlay::Help(chooser) | Overlay::Palette(chooser)) => chooser.is_typing,
        Some(Overlay::AnswerQuestion(_)) => true,
        _ => false,
    }
}

/// Whether a plan ignores the keys that arrive now.
fn is_plan_guarded(model: &Model) -> bool {
    has_plan(model)
        && !model.is_screen_covered()
        && model.key_guards.plan.is_active(model.now.elapsed)
}

/// Whether a key may be the first character of a confirmation whose plan is still being made.
fn may_begin_confirmation(model: &Model, key: Key) -> bool {
    let verbs = ["reset", "push", "undo", "redo", "edit", &model.config.name];
    let words: &[&str] = match (model.screen, model.baseline_plan.plan.request()) {
        _ if plan_prompt(model).is_some() => &[],
        (Screen::Reset, _) if has_plan(model) => &verbs,
        (Screen::BaselinePlan, Some(request)) => &[request.verb()],
        _ => &[],
    };
    let typed = key.printable_char();
    typed.is_some_and(|c| words.iter().any(|word| word.starts_with(c)))
}

/// Whether words are typed to confirm the plan on the screen.
fn is_typing_confirmation(model: &Model) -> bool {
    let prompt = plan_prompt(model).filter(|_| !model.read_only.is_forced);
    prompt.is_some_and(|prompt| prompt.awaits_text())
}

/// Types the confirmation of the plan. Returns `None` for a key that is a command, such as the one
/// that unlocks a read-only console.
fn handle_confirmation_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let meaning = model.preferences.keymap.resolve(KeyContext::Plan, &[key]);
    if model.read_only.is_on && meaning == KeyMeaning::Command(Command::ToggleReadOnly) {
        return None;
    }
    plan::type_confirmation(model, key)
}

fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let keymap = &model.preferences.keymap;
    let is_quit_key = keymap.resolve(KeyContext::Any, &[key]) == KeyMeaning::Command(Command::Quit);
    let is_typing = editor::update::is_typing(model) && model.input_line.is_none();
    // Out of habit, ^c ends typing.
    if is_quit_key && is_typing && key.printable_char().is_none() {
        return editor::update::go_back(model, true);
    }
    // A letter may be part of typed text.
    if is_quit_key && key.printable_char().is_none() {
        return perform_command(model, Command::Quit, key);
    }
    if model.is_too_small() && is_typing {
        // The keys of a text stay part of it, and `Esc` ends typing.
        if key.code == KeyCode::Esc {
            return editor::update::go_back(model, true);
        }
        return editor::update::handle_typed_key(model, key).unwrap_or_default();
    }
    if model.is_too_small() {
        // Nothing is visible, so the only key is the one that quits; not from a text, whose warning
        // would not be visible.
        let has_text = model.editor.as_ref().is_some_and(|it| it.is_modified);
        return if keymap.is_exit_key(key) && !model.reset.is_run_active() && !has_text {
            plan::quit(model)
        } else {
            Vec::new()
        };
    }
    if model.overlay.is_some() {
        return handle_overlay_key(model, key);
    }
    if let Some(prompt) = model.input_line.take() {
        return handle_prompt_key(model, prompt, key);
    }
    if is_typing && let Some(effects) = editor::update::handle_typed_key(model, key) {
        return effects;
    }
    if editor::update::is_answer_ignored(model, key) {
        return Vec::new();
    }
    if is_ignored_key(model, key) {
        return Vec::new();
    }
    if is_typing_confirmation(model)
        && let Some(effects) = handle_confirmation_key(model, key)
    {
        return effects;
    }
    resolve_key(model, key)
}

/// Whether a key is ignored because it was typed ahead, is held, or may belong to words typed for
/// something else.
fn is_ignored_key(model: &mut Model, key: Key) -> bool {
    let now = model.now.elapsed;
    if model.key_guards.typed_ahead.intercepts_key(now) {
        model.show_hint("keys typed for what has closed are ignored: pause for half a second");
        return true;
    }
    if let Some(last) = model.reset.confirm_held_at.take()
        && key.printable_char() == Some(CONFIRM_KEY)
        && now < last + HELD_KEY_INTERVAL
    {
        model.reset.confirm_held_at = Some(now);
        return true;
    }
    // Leaving a plan changes nothing, so Esc never waits.
    let is_escape = key.code == KeyCode::Esc;
    if has_plan(model) && !is_escape && model.key_guards.plan.intercepts_key(now) {
        return true;
    }
    let may_begin = may_begin_confirmation(model, key);
    if may_begin {
        model.key_guards.plan.ignore_key(now);
    }
    may_begin
}

/// Adds a key to the pending sequence and performs the command that it completes.
fn resolve_key(model: &mut Model, key: Key) -> Vec<Effect> {
    if model.pending_keys.keys.is_empty() && editor::update::take_digit(model, key) {
        return Vec::new();
    }
    let mut pending = std::mem::take(&mut model.pending_keys);
    model.is_dirty |= pending.is_hint_shown;
    if key.code == KeyCode::Esc && !pending.keys.is_empty() {
        return Vec::new();
    }
    pending.keys.push(key);
    let keymap = &model.preferences.keymap;
    match keymap.resolve(model.key_context(), &pending.keys) {
        KeyMeaning::Prefix => {
            model.pending_keys = PendingKeys {
                hint_due: model.now.elapsed + WHICH_KEY_DELAY,
                ..pending
            };
            Vec::new()
        }
        KeyMeaning::Command(command) => perform_command(model, command, key),
        KeyMeaning::Unbound if pending.keys.len() > 1 => {
            let sequence = format_sequence(&pending.keys);
            model.show_hint(&format!(
                "{sequence}: no such key sequence; nothing was done"
            ));
            Vec::new()
        }
        KeyMeaning::Unbound => {
            // It may be the first letter of the words that confirm the plan.
            if has_plan(model) {
                if key.printable_char().is_some() {
                    let now = model.now.elapsed;
                    model.key_guards.plan.ignore_key(now);
                }
            } else if model.preferences.keymap.is_bound_anywhere(&pending.keys) {
                model.show_hint(&format!("{key}: not on this screen"));
            }
            Vec::new()
        }
    }
}

/// Handles a key while text is typed into the prompt.
fn handle_prompt_key(model: &mut Model, mut prompt: Prompt, key: Key) -> Vec<Effect> {
    match (key.code, &mut prompt.purpose) {
        // The palette knows more than the commands of the editor.
        (KeyCode::Tab, PromptPurpose::EditorCommand) => {
            model.overlay = Some(Overlay::palette(&prompt.text));
            return Vec::new();
        }
        (KeyCode::Tab, PromptPurpose::Baseline(baseline)) => {
            baseline.exchange_form();
            model.is_dirty = true;
        }
        (KeyCode::Up | KeyCode::Esc, _) => {
            if let Some(old) = prompt.old.clone() {
                prompt.text = old;
                follow_prompt(model, &prompt);
            }
            if key.code == KeyCode::Esc {
                model.is_dirty = true;
                return Vec::new();
            }
        }
        (KeyCode::Enter, _) => return finish_prompt(model, prompt),
        _ => {
            if prompt.edit(key) {
                follow_prompt(model, &prompt);
            }
        }
    }
    model.input_line = Some(prompt);
    Vec::new()
}

/// Lets the filter or the search follow the text in the prompt.
fn follow_prompt(model: &mut Model, prompt: &Prompt) {
    model.is_dirty = true;
    let text = prompt.text.clone();
    match prompt.purpose {
        PromptPurpose::Filter(screen) => screens::set_filter(model, screen, text),
        PromptPurpose::Search => screens::set_query(model, text),
        _ => {}
    }
}

/// Ends the typing of a text and does what it is for.
fn finish_prompt(model: &mut Model, prompt: Prompt) -> Vec<Effect> {
    model.is_dirty = true;
    refresh_visible_agents(model);
    let Prompt {
        purpose,
        text,
        is_prefilled,
        ..
    } = prompt;
    match purpose {
        PromptPurpose::Filter(_) => {}
        PromptPurpose::Search => finish_search(model),
        PromptPurpose::Baseline(purpose) => {
            return baseline_plan::update::finish_prompt(model, purpose, text, is_prefilled);
        }
        PromptPurpose::OperationArgument(draft) => {
            return agent::update::memory::finish_argument(model, draft, text);
        }
        PromptPurpose::ExportPath(entry) => {
            return archives::update::export_entry(model, entry, &text);
        }
        PromptPurpose::SavePath => return handoff::save_marked_lines(model, &text),
        PromptPurpose::EditorCommand => {
            let effects = editor::update::run_command_line(model, &text);
            return run_exact_choice(model).unwrap_or(effects);
        }
        PromptPurpose::OverwriteWord => return editor::update::confirm_overwrite(model, &text),
        PromptPurpose::DiscardWord => return editor::update::confirm_discard(model, &text),
    }
    Vec::new()
}

/// Shows the number of hits of the search that was typed.
fn finish_search(model: &mut Model) {
    let hits = screens::finish_search(model);
    // The archives show their hits themselves, when the search has ended.
    let is_shown = model.key_context() == KeyContext::Archives;
    if search_query(model).is_empty() || is_shown {
        return;
    }
    let mut text = match hits {
        0 => "no hit".to_string(),
        1 => "1 hit".to_string(),
        hits => {
            let [next, previous] =
                [Command::NextHit, Command::PreviousHit].map(|it| model.key_hint(it));
            format!("{hits} hits; {next} next, {previous} previous")
        }
    };
    let lines = &visible_pane(model).lines;
    if has_text(model) && lines.iter().any(|line| line.is_truncated) {
        text.push_str("; what is not shown was not searched");
    }
    // In the log it would be one more row to find.
    model.show_hint(&text);
}
