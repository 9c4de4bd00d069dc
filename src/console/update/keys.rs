//! What a key means: movement and commands, a line that is being typed, a choice
//! in an overlay, the confirmation of a plan.

use std::time::Duration;

use super::commands::{
    go_to_screen, open_agent_at_finding, open_agent_tab, perform_command, report_hit_count,
    set_filter, set_sort_order, start_run,
};
use super::{Effect, handoff, question};
use crate::console::chooser;
use crate::console::command::{Command, CommandCategory, KeyContext};
use crate::console::keymap::{CONFIRM_KEY, Key, KeyCode, KeyMeaning};
use crate::console::model::{
    Chooser, ChooserItem, Confirmation, InputLine, MessageLevel, Model, Overlay, PendingKeys,
    ResetStage, Screen,
};
use crate::console::screens::reset::update::{request_plan_again, track_visible_plan};

/// How long `!` unlocks.
const UNLOCK_TIME: Duration = Duration::from_secs(30 * 60);

/// More printable keys than this in one read were not typed by a hand.
const MAX_TYPED_KEYS_PER_READ: usize = 8;

/// A key that comes again so soon may be held.
const HELD_KEY_INTERVAL: Duration = Duration::from_secs(1);

/// How many rows of a list a page is.
const PAGE_ROWS: isize = 10;

/// How long an unfinished sequence waits before it is shown what can follow.
const WHICH_KEY_DELAY: Duration = Duration::from_millis(400);

pub(in crate::console) fn handle_keys(model: &mut Model, keys: Vec<Key>) -> Vec<Effect> {
    // What was said was there to be read; the log keeps it.
    model.is_dirty |= model.last_message.take().is_some();
    // Whoever presses a key means the agent that the cursor is on now.
    model.is_cursor_pinned |= model.cursor_agent.is_some();
    // Who goes on with something else is not to find an editor under the hands.
    model.handoff_request = None;
    let printable_count = keys
        .iter()
        .filter(|key| key.printable_char().is_some())
        .count();
    let is_burst = printable_count > MAX_TYPED_KEYS_PER_READ
        && model.input_line.is_none()
        && !is_typing_in_overlay(model);
    let mut effects = Vec::new();
    let mut has_dropped = false;
    for key in keys {
        if is_burst
            && !is_plan_guarded(model)
            && (key.printable_char().is_some() || key.code == KeyCode::Enter)
        {
            // A held key over a slow line comes like this, too: let it move.
            let is_navigation = model.overlay.is_none()
                && !is_typing_confirmation(model)
                && {
                    let meaning = model
                        .preferences
                        .keymap
                        .resolve(model.key_context(), &[key]);
                    matches!(meaning, KeyMeaning::Command(command)
                    if model.preferences.keymap.spec_of(command).category == CommandCategory::Navigation
                        && !matches!(command, Command::GoBack | Command::GoToPreviousScreen))
                };
            if !is_navigation {
                has_dropped = true;
                continue;
            }
        }
        let was_covered = is_screen_covered(model);
        effects.extend(handle_key(model, key));
        track_visible_plan(model);
        if was_covered && !is_screen_covered(model) {
            // What changed meanwhile takes its place now.
            model.refresh_visible_agents();
        }
    }
    if has_dropped {
        model.report(
            MessageLevel::Warn,
            "many keys at once look like pasted text and were ignored; type them one by one",
        );
    }
    effects
}

pub(in crate::console) fn handle_paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let query = match (&mut model.overlay, &model.input_line) {
        (Some(Overlay::AnswerQuestion(_)), _) => return question::paste_answer(model, text),
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
    edit_input_line(model, |line| line.push_str(&printable))
}

/// Whether printable keys go into a line of an overlay.
fn is_typing_in_overlay(model: &Model) -> bool {
    match &model.overlay {
        Some(Overlay::Help(chooser) | Overlay::Palette(chooser)) => chooser.is_typing,
        Some(Overlay::AnswerQuestion(_)) => true,
        _ => false,
    }
}

/// Whether something is over the screen, so that rows must not move below it.
pub(in crate::console) fn is_screen_covered(model: &Model) -> bool {
    model.overlay.is_some() || model.input_line.is_some()
}

/// Whether a plan ignores the keys that come now.
fn is_plan_guarded(model: &Model) -> bool {
    model.has_plan() && !is_screen_covered(model) && model.reset.guard.is_active(model.now.elapsed)
}

/// Whether a key may be the first letter of what confirms a plan that is still being
/// made.
fn may_begin_confirmation(model: &Model, key: Key) -> bool {
    let words = ["reset", "undo", &model.fleet.name];
    let begins = |c: char| words.iter().any(|word| word.starts_with(c));
    let is_awaited = model.has_plan() && matches!(model.reset.stage, ResetStage::Planning(_));
    is_awaited && key.printable_char().is_some_and(begins)
}

/// Whether printable keys go into the confirmation of a plan.
pub(in crate::console) fn is_typing_confirmation(model: &Model) -> bool {
    match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset => {
            let is_typed = matches!(view.confirmation, Confirmation::TypedText(_));
            // Where nothing can be run there is nothing to type.
            is_typed && view.hidden_agents.is_empty() && !model.read_only.is_forced
        }
        _ => false,
    }
}

pub(in crate::console) fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let keymap = &model.preferences.keymap;
    let is_quit_key = keymap.resolve(KeyContext::Any, &[key]) == KeyMeaning::Command(Command::Quit);
    // A letter may be part of what is being typed.
    if is_quit_key && key.printable_char().is_none() {
        return perform_command(model, Command::Quit, key);
    }
    if model.is_too_small() {
        // Nothing can be seen, so nothing is done but to leave.
        return match model.preferences.keymap.is_exit_key(key) && !model.is_run_active() {
            true => vec![Effect::CancelRun, Effect::Quit],
            false => Vec::new(),
        };
    }
    if model.overlay.is_some() {
        return handle_overlay_key(model, key);
    }
    if model.input_line.is_some() {
        return handle_input_line_key(model, key);
    }
    if model
        .abandoned_question_guard
        .intercepts_key(model.now.elapsed)
    {
        model.show_hint("keys typed right behind an answer are ignored: pause for half a second");
        return Vec::new();
    }
    if let Some(last) = model.reset.confirm_held_at.take()
        && key.printable_char() == Some(CONFIRM_KEY)
        && model.now.elapsed < last + HELD_KEY_INTERVAL
    {
        model.reset.confirm_held_at = Some(model.now.elapsed);
        return Vec::new();
    }
    let now = model.now.elapsed;
    // Leaving a plan changes nothing, so that never waits.
    let is_escape = key.code == KeyCode::Esc;
    if model.has_plan() && !is_escape && model.reset.guard.intercepts_key(now) {
        return Vec::new();
    }
    if may_begin_confirmation(model, key) {
        model.reset.guard.ignore_key(now);
        return Vec::new();
    }
    if is_typing_confirmation(model)
        && let Some(effects) = handle_confirmation_key(model, key)
    {
        return effects;
    }
    let mut keys = std::mem::take(&mut model.pending_keys);
    model.is_dirty |= keys.is_hint_shown;
    if key.code == KeyCode::Esc && !keys.keys.is_empty() {
        return Vec::new();
    }
    keys.keys.push(key);
    match model
        .preferences
        .keymap
        .resolve(model.key_context(), &keys.keys)
    {
        KeyMeaning::Prefix => {
            model.pending_keys = PendingKeys {
                hint_due: model.now.elapsed + WHICH_KEY_DELAY,
                ..keys
            };
            Vec::new()
        }
        KeyMeaning::Command(command) => perform_command(model, command, key),
        // What is no sequence was a key of its own.
        KeyMeaning::Unbound if keys.keys.len() > 1 => handle_key(model, key),
        KeyMeaning::Unbound => {
            // It may be the first letter of what has to be typed.
            if key.printable_char().is_some() && model.has_plan() {
                model.reset.guard.ignore_key(now);
            }
            Vec::new()
        }
    }
}

/// A key while a plan is confirmed by typing; `None` when it is not for that.
pub(in crate::console) fn handle_confirmation_key(
    model: &mut Model,
    key: Key,
) -> Option<Vec<Effect>> {
    let meaning = model.preferences.keymap.resolve(KeyContext::Plan, &[key]);
    // What unlocks a run comes before the words that confirm it.
    if model.read_only.is_on && meaning == KeyMeaning::Command(Command::ToggleReadOnly) {
        return None;
    }
    let ResetStage::Plan(view) = &mut model.reset.stage else {
        return None;
    };
    let Confirmation::TypedText(word) = &view.confirmation else {
        return None;
    };
    match (key.code, key.printable_char()) {
        // Until typing has begun, other keys mean what they always do.
        (_, Some(c)) if view.typed_text.is_empty() && !word.starts_with(c) => return None,
        (_, Some(c)) => {
            view.typed_text.push(c);
            model.is_dirty = true;
        }
        (KeyCode::Backspace, _) => {
            view.typed_text.pop();
            model.is_dirty = true;
        }
        (KeyCode::Char('u'), _) if key.has_ctrl && !view.typed_text.is_empty() => {
            view.typed_text.clear();
            model.is_dirty = true;
        }
        (KeyCode::Enter, _) if view.typed_text.trim() == word => return Some(start_run(model)),
        (KeyCode::Enter, _) => {
            let text = format!("type {word} in full, then Enter");
            model.report(MessageLevel::Info, text);
        }
        _ => return None,
    }
    Some(Vec::new())
}

pub(in crate::console) fn handle_overlay_key(model: &mut Model, key: Key) -> Vec<Effect> {
    model.is_dirty = true;
    let mut overlay = match model.overlay.take() {
        Some(Overlay::AnswerQuestion(answering)) => {
            return question::handle_question_key(model, answering, key);
        }
        Some(Overlay::EditSealed(question)) => {
            return handoff::handle_seal_key(model, question, key);
        }
        Some(overlay) => overlay,
        None => return Vec::new(),
    };
    let choices = chooser::list_choices(model, &overlay);
    let (is_help, chooser) = match &mut overlay {
        Overlay::UnlockReadOnly => {
            if key.printable_char() == Some('y') {
                model.read_only.is_on = false;
                model.read_only.unlocked_until = Some(model.now.elapsed + UNLOCK_TIME);
                model.reset.confirm_held_at = Some(model.now.elapsed);
                model.report(MessageLevel::Warn, "unlocked for 30 minutes");
                // What was skipped as protected may be part of the plan now.
                return request_plan_again(model);
            }
            model.abandon_question(key, "read-only stays on");
            return Vec::new();
        }
        Overlay::Help(chooser) => (true, chooser),
        Overlay::Palette(chooser) => (false, chooser),
        // They are no lists; their keys are taken above.
        Overlay::AnswerQuestion(_) | Overlay::EditSealed(_) => return Vec::new(),
    };
    let is_typing = chooser.is_typing;
    let keymap = &model.preferences.keymap;
    let double_press = |key| keymap.resolve(KeyContext::Log, &[key, key]);
    // Its item may have moved.
    chooser.cursor_row = chooser::cursor_row(chooser, &choices).or(chooser.cursor_row);
    let mut by = None;
    match (key.code, key.printable_char()) {
        (KeyCode::Esc, _) if is_help && is_typing => {
            overlay = Overlay::Help(Chooser::for_browsing());
        }
        (KeyCode::Esc, _) => return Vec::new(),
        (KeyCode::Enter, _) => {
            let cursor_row = chooser::cursor_row(chooser, &choices);
            let item = chooser.selected.clone().filter(|_| cursor_row.is_some());
            return match item {
                Some(item) => run_chosen_item(model, item),
                None => {
                    model.show_hint(&chooser::no_choice_reason(chooser, &choices));
                    chooser::open_chooser(model, overlay);
                    Vec::new()
                }
            };
        }
        (KeyCode::Down, _) => by = Some(1),
        (KeyCode::Up, _) => by = Some(-1),
        (KeyCode::PageDown, _) => by = Some(PAGE_ROWS),
        (KeyCode::PageUp, _) => by = Some(-PAGE_ROWS),
        (KeyCode::Backspace, _) if is_typing => {
            // An empty palette is closed by one more Backspace.
            if chooser.query.pop().is_none() && !is_help {
                return Vec::new();
            }
            chooser.cursor_row = None;
        }
        (KeyCode::Char('u'), _) if is_typing && key.has_ctrl => {
            chooser.query.clear();
            chooser.cursor_row = None;
        }
        (_, Some(c)) if is_typing => {
            chooser.query.push(c);
            chooser.cursor_row = None;
        }
        _ if is_typing => {}
        // The keys are those of any list that can be searched.
        _ => match keymap.resolve(KeyContext::Log, &[key]) {
            KeyMeaning::Command(Command::Down) => by = Some(1),
            KeyMeaning::Command(Command::Up) => by = Some(-1),
            KeyMeaning::Command(Command::HalfDown | Command::PageDown) => by = Some(PAGE_ROWS),
            KeyMeaning::Command(Command::HalfUp | Command::PageUp) => by = Some(-PAGE_ROWS),
            KeyMeaning::Command(Command::Top) => by = Some(isize::MIN),
            // Nothing else begins with it here, so the first of two is enough.
            KeyMeaning::Prefix if double_press(key) == KeyMeaning::Command(Command::Top) => {
                by = Some(isize::MIN);
            }
            KeyMeaning::Command(Command::Bottom) => by = Some(isize::MAX),
            KeyMeaning::Command(Command::Search) => chooser.is_typing = true,
            KeyMeaning::Command(Command::GoBack | Command::Help) => return Vec::new(),
            _ => {}
        },
    }
    if let (Some(by), Overlay::Help(chooser) | Overlay::Palette(chooser)) = (by, &mut overlay) {
        // Where nothing was chosen yet any of these keys chooses the first.
        let moved = chooser
            .cursor_row
            .map(|cursor| cursor.saturating_add_signed(by));
        chooser.cursor_row = Some(moved.unwrap_or(0));
    }
    chooser::open_chooser(model, overlay);
    Vec::new()
}

/// Runs what was chosen.
fn run_chosen_item(model: &mut Model, item: ChooserItem) -> Vec<Effect> {
    match item {
        // Enter never confirms, whatever it is on.
        ChooserItem::Command(Command::ConfirmPlan) => {
            model.show_hint(&format!("{CONFIRM_KEY} confirms a plan; Enter never does"));
            Vec::new()
        }
        ChooserItem::Command(command) => {
            perform_command(model, command, Key::from_code(KeyCode::Enter))
        }
        ChooserItem::Sort(sort) => {
            set_sort_order(model, sort);
            Vec::new()
        }
        ChooserItem::Theme(name) => vec![Effect::LoadTheme(name)],
        ChooserItem::Filter(_, filter) => {
            set_filter(model, filter);
            go_to_screen(model, Screen::Fleet);
            Vec::new()
        }
        ChooserItem::Agent(name) => open_agent_at_finding(model, name),
        ChooserItem::Tab(tab, name) => open_agent_tab(model, name, tab),
    }
}

pub(in crate::console) fn handle_input_line_key(model: &mut Model, key: Key) -> Vec<Effect> {
    match (key.code, key.printable_char()) {
        (KeyCode::Up, _) => restore_input_line(model),
        (KeyCode::Esc, _) => {
            let effects = restore_input_line(model);
            model.input_line = None;
            model.is_dirty = true;
            effects
        }
        (KeyCode::Enter, _) => {
            let was_search = matches!(model.input_line, Some(InputLine::Search(_)));
            model.input_line = None;
            model.is_dirty = true;
            model.refresh_visible_agents();
            if was_search {
                report_hit_count(model);
            }
            Vec::new()
        }
        (KeyCode::Backspace, _) => edit_input_line(model, |line| {
            line.pop();
        }),
        (_, Some(c)) => edit_input_line(model, |line| line.push(c)),
        (KeyCode::Char('u'), _) if key.has_ctrl => edit_input_line(model, String::clear),
        _ => Vec::new(),
    }
}

/// Brings back what was filtered by, or searched for, before.
fn restore_input_line(model: &mut Model) -> Vec<Effect> {
    let old = match &model.input_line {
        Some(InputLine::Filter(old) | InputLine::Search(old)) => old.clone(),
        None => String::new(),
    };
    edit_input_line(model, |line| line.clone_from(&old))
}

/// Changes the line that is being typed, and shows at once what it means.
pub(in crate::console) fn edit_input_line(
    model: &mut Model,
    edit: impl FnOnce(&mut String),
) -> Vec<Effect> {
    model.is_dirty = true;
    match &model.input_line {
        Some(InputLine::Filter(_)) => {
            let mut filter = model.filter.clone();
            edit(&mut filter);
            set_filter(model, filter);
        }
        Some(InputLine::Search(_)) if model.screen == Screen::Log => edit(&mut model.log.query),
        Some(InputLine::Search(_)) => {
            let height = model.text_height();
            let pane = model.agent.current_pane_mut();
            let mut query = pane.query.clone();
            edit(&mut query);
            pane.search(&query);
            pane.go_to_first_hit(height);
        }
        None => {}
    }
    Vec::new()
}
