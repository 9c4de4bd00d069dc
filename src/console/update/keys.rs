//! What a key does: a command, a part of a sequence, a letter of an input line or of the words
//! that confirm a plan, or nothing.

use std::time::Duration;

use super::commands::perform_command;
use super::overlay::{handle_overlay_key, run_exact_choice};
use super::{handoff, question, trouble};
use crate::console::command::{Command, CommandCategory, KeyContext};
use crate::console::key::{Key, KeyCode};
use crate::console::keymap::{CONFIRM_KEY, KeyMeaning};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::overlay::{InputLine, Overlay, PendingKeys};
use crate::console::screen::Screen;
use crate::console::screens;
use crate::console::screens::baseline_plan::state::BaselinePlanStage;
use crate::console::screens::log::state::MessageLevel;
use crate::console::screens::reset::state::{Confirmation, ResetStage};
use crate::console::screens::{archives, baseline_plan, baselines, editor, fleet, reset};

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
        model.track_visible_plan();
        if was_covered && !model.is_screen_covered() {
            // Rows stood still below the overlay.
            model.refresh_outdated_order();
        }
    }
    trouble::end_shown_trouble(model, cursor_before.as_deref());
    if has_dropped {
        model.report(
            MessageLevel::Warn,
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
    let query = match (&mut model.overlay, &model.input_line) {
        (Some(Overlay::AnswerQuestion(_)), _) => return question::paste_answer(model, text),
        (None, Some(InputLine::Baseline { .. })) => {
            let line = text.lines().next().unwrap_or_default();
            let printable: String = line.chars().filter(|c| !c.is_control()).collect();
            if let Some(InputLine::Baseline { prompt, text }) = &mut model.input_line {
                prompt.insert(text, &printable);
                model.is_dirty = true;
            }
            return Vec::new();
        }
        (None, Some(_)) => text.lines().next().unwrap_or_default(),
        _ => {
            model.report(
                MessageLevel::Warn,
                "pasted text is never taken as keys; it was ignored",
            );
            return Vec::new();
        }
    };
    let printable: String = query.chars().filter(|c| !c.is_control()).collect();
    edit_input_line(model, |line| line.push_str(&printable));
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
    model.has_plan() && !model.is_screen_covered() && model.plan_guard.is_active(model.now.elapsed)
}

/// Whether a key may be the first letter of the words that confirm a plan still being made.
fn may_begin_confirmation(model: &Model, key: Key) -> bool {
    if model.screen == Screen::BaselinePlan {
        let stage = &model.baseline_plan.stage;
        let BaselinePlanStage::Planning(request) = stage else {
            return false;
        };
        let typed = key.printable_char();
        return typed.is_some_and(|c| request.verb().starts_with(c));
    }
    let words = ["reset", "push", "undo", "redo", &model.config.name];
    let begins = |c: char| words.iter().any(|word| word.starts_with(c));
    let is_awaited = model.has_plan() && matches!(model.reset.stage, ResetStage::Planning(_));
    is_awaited && key.printable_char().is_some_and(begins)
}

/// Whether printable keys go into the confirmation of a plan.
fn is_typing_confirmation(model: &Model) -> bool {
    if let BaselinePlanStage::Plan(view) = &model.baseline_plan.stage
        && model.screen == Screen::BaselinePlan
    {
        let is_typed = matches!(view.confirmation, Confirmation::TypedText(_));
        return is_typed && view.refusal.is_none() && !model.read_only.is_forced;
    }
    if model.has_prune_plan() {
        return !model.read_only.is_forced;
    }
    match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset => {
            let is_typed = matches!(view.confirmation, Confirmation::TypedText(_));
            // A plan that cannot run takes no typing.
            is_typed && view.hidden_agents.is_empty() && !model.read_only.is_forced
        }
        _ => false,
    }
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
        // The keys of a text stay part of it.
        return editor::update::handle_typed_key(model, key).unwrap_or_default();
    }
    if model.is_too_small() {
        // Nothing is visible, so the only key is the one that quits; not from a text, whose warning
        // would not be visible.
        let has_text = model.editor.as_ref().is_some_and(|it| it.is_modified);
        return if keymap.is_exit_key(key) && !model.is_run_active() && !has_text {
            reset::update::quit(model)
        } else {
            Vec::new()
        };
    }
    if model.overlay.is_some() {
        return handle_overlay_key(model, key);
    }
    match model.input_line.take() {
        Some(InputLine::Baseline { prompt, text }) => {
            return baseline_plan::update::handle_prompt_key(model, prompt, text, key);
        }
        None => {}
        line => {
            model.input_line = line;
            return handle_input_line_key(model, key);
        }
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
    if model.typed_ahead_guard.intercepts_key(now) {
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
    if model.has_plan() && !is_escape && model.plan_guard.intercepts_key(now) {
        return true;
    }
    let may_begin = may_begin_confirmation(model, key);
    if may_begin {
        model.plan_guard.ignore_key(now);
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
        // The key that breaks a sequence counts by itself.
        KeyMeaning::Unbound if pending.keys.len() > 1 => handle_key(model, key),
        KeyMeaning::Unbound => {
            // It may be the first letter of the words that confirm the plan.
            if model.has_plan() {
                if key.printable_char().is_some() {
                    let now = model.now.elapsed;
                    model.plan_guard.ignore_key(now);
                }
            } else if model.preferences.keymap.is_bound_anywhere(&pending.keys) {
                model.show_hint(&format!("{key}: not on this screen"));
            }
            Vec::new()
        }
    }
}

/// Handles a key while a plan is confirmed by typing; `None` if the key is not part of that.
fn handle_confirmation_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let meaning = model.preferences.keymap.resolve(KeyContext::Plan, &[key]);
    // The key that unlocks a run has precedence over the words that confirm it.
    if model.read_only.is_on && meaning == KeyMeaning::Command(Command::ToggleReadOnly) {
        return None;
    }
    let is_baseline_plan = model.screen == Screen::BaselinePlan;
    if model.has_prune_plan() {
        let plan = model.archives.retention.plan.as_mut()?;
        let typed = type_confirmation(&plan.word, &mut plan.typed_text, key)?;
        return Some(finish_typing(
            model,
            typed,
            archives::update::retention::apply_plan,
        ));
    }
    let (confirmation, typed_text) = match (&mut model.baseline_plan.stage, &mut model.reset.stage)
    {
        (BaselinePlanStage::Plan(view), _) if is_baseline_plan => {
            (&view.confirmation, &mut view.typed_text)
        }
        (_, ResetStage::Plan(view)) if !is_baseline_plan => {
            (&view.confirmation, &mut view.typed_text)
        }
        _ => return None,
    };
    let Confirmation::TypedText(word) = confirmation else {
        return None;
    };
    let typed = type_confirmation(word, typed_text, key)?;
    let apply = if is_baseline_plan {
        baseline_plan::update::apply_plan
    } else {
        reset::update::start_run
    };
    Some(finish_typing(model, typed, apply))
}

/// What a key does to the words that confirm a plan.
enum TypedConfirmation {
    /// They have changed.
    Changed,
    /// They were complete, and Enter confirms them.
    Confirmed,
    /// Enter came too early, for these words.
    Incomplete(String),
}

/// Adds a key to the words that confirm a plan; `None` if the key is not part of that.
fn type_confirmation(word: &str, typed_text: &mut String, key: Key) -> Option<TypedConfirmation> {
    match (key.code, key.printable_char()) {
        // Until typing has begun, other keys keep their meaning.
        (_, Some(c)) if typed_text.is_empty() && !word.starts_with(c) => return None,
        (_, Some(c)) => typed_text.push(c),
        (KeyCode::Backspace, _) => drop(typed_text.pop()),
        (KeyCode::Char('u'), _) if key.has_ctrl && !typed_text.is_empty() => typed_text.clear(),
        (KeyCode::Enter, _) if typed_text.trim() == word => {
            return Some(TypedConfirmation::Confirmed);
        }
        (KeyCode::Enter, _) => return Some(TypedConfirmation::Incomplete(word.to_string())),
        _ => return None,
    }
    Some(TypedConfirmation::Changed)
}

fn finish_typing(
    model: &mut Model,
    typed: TypedConfirmation,
    apply: fn(&mut Model) -> Vec<Effect>,
) -> Vec<Effect> {
    match typed {
        TypedConfirmation::Changed => model.is_dirty = true,
        TypedConfirmation::Confirmed => return apply(model),
        TypedConfirmation::Incomplete(word) => {
            let text = format!("type {word} in full, then Enter");
            model.report(MessageLevel::Info, text);
        }
    }
    Vec::new()
}

fn handle_input_line_key(model: &mut Model, key: Key) -> Vec<Effect> {
    match (key.code, key.printable_char()) {
        // The palette knows more than the commands of the editor.
        (KeyCode::Tab, _) if model.input_line == Some(InputLine::EditorCommand) => {
            model.input_line = None;
            return editor::update::open_palette(model);
        }
        (KeyCode::Up, _) => restore_input_line(model),
        (KeyCode::Esc, _) => {
            restore_input_line(model);
            model.input_line = None;
        }
        (KeyCode::Enter, _) => {
            model.is_dirty = true;
            let line = model.input_line.take();
            model.refresh_visible_agents();
            match line {
                Some(InputLine::Search(_)) => finish_search(model),
                Some(InputLine::ExportPath { entry, path }) => {
                    return archives::update::export::finish(model, entry, &path);
                }
                Some(InputLine::SavePath(path)) => {
                    return handoff::save_marked_lines(model, &path);
                }
                Some(InputLine::EditorCommand) => {
                    let effects = editor::update::run_command_line(model);
                    return run_exact_choice(model).unwrap_or(effects);
                }
                Some(InputLine::OverwriteWord) => {
                    return editor::update::confirm_overwrite(model);
                }
                Some(InputLine::DiscardWord) => return editor::update::confirm_discard(model),
                Some(
                    InputLine::Filter(_)
                    | InputLine::BaselineFilter(_)
                    | InputLine::Baseline { .. },
                )
                | None => {}
            }
        }
        (KeyCode::Backspace, _) => edit_input_line(model, |line| {
            line.pop();
        }),
        (_, Some(c)) => edit_input_line(model, |line| line.push(c)),
        (KeyCode::Char('u'), _) if key.has_ctrl => edit_input_line(model, String::clear),
        _ => {}
    }
    Vec::new()
}

/// Restores the filter or the query from before the input line was opened.
fn restore_input_line(model: &mut Model) {
    let old = match &model.input_line {
        Some(InputLine::Filter(old) | InputLine::BaselineFilter(old) | InputLine::Search(old)) => {
            old.clone()
        }
        Some(InputLine::EditorCommand | InputLine::OverwriteWord | InputLine::DiscardWord) => {
            String::new()
        }
        Some(
            InputLine::SavePath(_) | InputLine::ExportPath { .. } | InputLine::Baseline { .. },
        )
        | None => return,
    };
    edit_input_line(model, |line| line.clone_from(&old));
}

/// Edits the open input line and applies it at once.
fn edit_input_line(model: &mut Model, edit: impl FnOnce(&mut String)) {
    model.is_dirty = true;
    match &mut model.input_line {
        Some(InputLine::SavePath(path) | InputLine::ExportPath { path, .. }) => edit(path),
        Some(InputLine::Filter(_)) => {
            let mut filter = model.fleet.filter.clone();
            edit(&mut filter);
            fleet::update::set_filter(model, filter);
        }
        Some(InputLine::BaselineFilter(_)) => {
            let mut filter = model.baselines.filter.clone();
            edit(&mut filter);
            baselines::update::set_filter(model, filter);
        }
        Some(InputLine::Search(_)) => screens::edit_search(model, edit),
        Some(InputLine::EditorCommand | InputLine::OverwriteWord | InputLine::DiscardWord) => {
            if let Some(editor) = &mut model.editor {
                edit(&mut editor.command_line);
            }
        }
        Some(InputLine::Baseline { .. }) | None => {}
    }
}

/// Shows the number of hits of the search that was typed.
fn finish_search(model: &mut Model) {
    let hits = screens::finish_search(model);
    // The archives show their hits themselves, when the search has ended.
    let is_shown = model.key_context() == KeyContext::Archives;
    if model.search_query().is_empty() || is_shown {
        return;
    }
    let text = match hits {
        0 => "no hit".to_string(),
        1 => "1 hit".to_string(),
        hits => {
            let [next, previous] =
                [Command::NextHit, Command::PreviousHit].map(|it| model.key_hint(it));
            format!("{hits} hits; {next} next, {previous} previous")
        }
    };
    // In the log it would be one more row to find.
    model.show_hint(&text);
}
