//! What a key means: movement and commands, a line that is being typed, a choice
//! in an overlay, the confirmation of a plan.

use std::time::Duration;

use super::act::{enter_agent, filter_by, go, open_tab, perform, report_hits, run_plan, sort_by};
use super::plan::{note_plan, plan_again};
use super::{Effect, hand, question};
use crate::console::chooser;
use crate::console::command::{self, Category, Command, Context};
use crate::console::keymap::{CONFIRM_KEY, Code, Key, KeyMeaning};
use crate::console::model::{
    Chooser, ChooserItem, Confirmation, MessageLevel, Model, Overlay, PendingKeys, Prompt,
    ResetStage, Screen,
};

/// How long `!` unlocks.
const UNLOCKED: Duration = Duration::from_secs(30 * 60);

/// More printable keys than this in one read were not typed by a hand.
const BURST: usize = 8;

/// A key that comes again so soon may be held.
const HELD: Duration = Duration::from_secs(1);

/// How many rows of a list a page is.
const PAGE: isize = 10;

/// How long an unfinished sequence waits before it is shown what can follow.
const WHICH_KEY: Duration = Duration::from_millis(400);

pub(super) fn keys_came(model: &mut Model, keys: Vec<Key>) -> Vec<Effect> {
    // What was said was there to be read; the log keeps it.
    model.dirty |= model.message.take().is_some();
    // Whoever presses a key means the agent that the cursor is on now.
    model.cursor_moved |= model.cursor.is_some();
    // Who goes on with something else is not to find an editor under the hands.
    model.wanted = None;
    let printable = keys.iter().filter(|key| key.typed().is_some()).count();
    let burst = printable > BURST && model.prompt.is_none() && !is_choosing(model);
    let mut effects = Vec::new();
    let mut dropped = false;
    for key in keys {
        if burst && !is_guarded(model) && (key.typed().is_some() || key.code == Code::Enter) {
            // A held key over a slow line comes like this, too: let it move.
            let moves = model.overlay.is_none() && !is_typing(model) && {
                let meaning = model.preferences.keymap.meaning(model.context(), &[key]);
                matches!(meaning, KeyMeaning::Command(command)
                    if command::spec(command).category == Category::Move
                        && !matches!(command, Command::Back | Command::Last))
            };
            if !moves {
                dropped = true;
                continue;
            }
        }
        let covered = is_covered(model);
        effects.extend(key_came(model, key));
        note_plan(model);
        if covered && !is_covered(model) {
            // What changed meanwhile takes its place now.
            model.arrange();
        }
    }
    if dropped {
        model.say(
            MessageLevel::Warn,
            "many keys at once look like pasted text and were ignored; type them one by one",
        );
    }
    effects
}

pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let query = match (&mut model.overlay, &model.prompt) {
        (Some(Overlay::Question(_)), _) => return question::paste(model, text),
        (None, Some(_)) => text.lines().next().unwrap_or_default(),
        _ => {
            model.say(
                MessageLevel::Warn,
                "pasted text is never taken as keys; it was ignored",
            );
            return Vec::new();
        }
    };
    let clean: String = query.chars().filter(|c| !c.is_control()).collect();
    edit_prompt(model, |line| line.push_str(&clean))
}

/// Whether printable keys go into a line of an overlay.
fn is_choosing(model: &Model) -> bool {
    match &model.overlay {
        Some(Overlay::Help(chooser) | Overlay::Palette(chooser)) => chooser.typing,
        Some(Overlay::Question(_)) => true,
        _ => false,
    }
}

/// Whether something is over the screen, so that rows must not move below it.
pub(super) fn is_covered(model: &Model) -> bool {
    model.overlay.is_some() || model.prompt.is_some()
}

/// Whether a plan ignores the keys that come now.
fn is_guarded(model: &Model) -> bool {
    model.has_plan() && !is_covered(model) && model.reset.guard.is_on(model.now.since)
}

/// Whether a key may be the first letter of what confirms a plan that is still being
/// made.
fn begins_confirmation(model: &Model, key: Key) -> bool {
    let words = ["reset", "undo", &model.fleet.name];
    let begins = |c: char| words.iter().any(|word| word.starts_with(c));
    let is_awaited = model.has_plan() && matches!(model.reset.stage, ResetStage::Planning(_));
    is_awaited && key.typed().is_some_and(begins)
}

/// Whether printable keys go into the confirmation of a plan.
pub(super) fn is_typing(model: &Model) -> bool {
    match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset => {
            let is_typed = matches!(view.form, Confirmation::Typed(_));
            // Where nothing can be run there is nothing to type.
            is_typed && view.hidden.is_empty() && !model.read_only.forced
        }
        _ => false,
    }
}

pub(super) fn key_came(model: &mut Model, key: Key) -> Vec<Effect> {
    let keymap = &model.preferences.keymap;
    let quits = keymap.meaning(Context::Any, &[key]) == KeyMeaning::Command(Command::Quit);
    // A letter may be part of what is being typed.
    if quits && key.typed().is_none() {
        return perform(model, Command::Quit, key);
    }
    if model.is_too_small() {
        // Nothing can be seen, so nothing is done but to leave.
        return match model.preferences.keymap.leaves(key) && !model.is_going_on() {
            true => vec![Effect::Cancel, Effect::Quit],
            false => Vec::new(),
        };
    }
    if model.overlay.is_some() {
        return overlay_key(model, key);
    }
    if model.prompt.is_some() {
        return prompt_key(model, key);
    }
    if model.given_up.ignores(model.now.since) {
        model.hint("keys typed right behind an answer are ignored: pause for half a second");
        return Vec::new();
    }
    if let Some(last) = model.reset.held.take()
        && key.typed() == Some(CONFIRM_KEY)
        && model.now.since < last + HELD
    {
        model.reset.held = Some(model.now.since);
        return Vec::new();
    }
    let now = model.now.since;
    // Leaving a plan changes nothing, so that never waits.
    let leaves = key.code == Code::Esc;
    if model.has_plan() && !leaves && model.reset.guard.ignores(now) {
        return Vec::new();
    }
    if begins_confirmation(model, key) {
        model.reset.guard.ignore(now);
        return Vec::new();
    }
    if is_typing(model)
        && let Some(effects) = confirm_key(model, key)
    {
        return effects;
    }
    let mut keys = std::mem::take(&mut model.pending);
    model.dirty |= keys.shown;
    if key.code == Code::Esc && !keys.keys.is_empty() {
        return Vec::new();
    }
    keys.keys.push(key);
    match model
        .preferences
        .keymap
        .meaning(model.context(), &keys.keys)
    {
        KeyMeaning::Prefix => {
            model.pending = PendingKeys {
                due: model.now.since + WHICH_KEY,
                ..keys
            };
            Vec::new()
        }
        KeyMeaning::Command(command) => perform(model, command, key),
        // What is no sequence was a key of its own.
        KeyMeaning::Nothing if keys.keys.len() > 1 => key_came(model, key),
        KeyMeaning::Nothing => {
            // It may be the first letter of what has to be typed.
            if key.typed().is_some() && model.has_plan() {
                model.reset.guard.ignore(now);
            }
            Vec::new()
        }
    }
}

/// A key while a plan is confirmed by typing; `None` when it is not for that.
pub(super) fn confirm_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let meaning = model.preferences.keymap.meaning(Context::Plan, &[key]);
    // What unlocks a run comes before the words that confirm it.
    if model.read_only.on && meaning == KeyMeaning::Command(Command::ReadOnly) {
        return None;
    }
    let ResetStage::Plan(view) = &mut model.reset.stage else {
        return None;
    };
    let Confirmation::Typed(word) = &view.form else {
        return None;
    };
    match (key.code, key.typed()) {
        // Until typing has begun, other keys mean what they always do.
        (_, Some(c)) if view.typed.is_empty() && !word.starts_with(c) => return None,
        (_, Some(c)) => {
            view.typed.push(c);
            model.dirty = true;
        }
        (Code::Backspace, _) => {
            view.typed.pop();
            model.dirty = true;
        }
        (Code::Char('u'), _) if key.ctrl && !view.typed.is_empty() => {
            view.typed.clear();
            model.dirty = true;
        }
        (Code::Enter, _) if view.typed.trim() == word => return Some(run_plan(model)),
        (Code::Enter, _) => {
            let text = format!("type {word} in full, then Enter");
            model.say(MessageLevel::Info, text);
        }
        _ => return None,
    }
    Some(Vec::new())
}

pub(super) fn overlay_key(model: &mut Model, key: Key) -> Vec<Effect> {
    model.dirty = true;
    let mut overlay = match model.overlay.take() {
        Some(Overlay::Question(answering)) => return question::key(model, answering, key),
        Some(Overlay::Seal(question)) => return hand::seal_key(model, question, key),
        Some(overlay) => overlay,
        None => return Vec::new(),
    };
    let choices = chooser::choices(model, &overlay);
    let (help, chooser) = match &mut overlay {
        Overlay::Unlock => {
            if key.typed() == Some('y') {
                model.read_only.on = false;
                model.read_only.unlocked_until = Some(model.now.since + UNLOCKED);
                model.reset.held = Some(model.now.since);
                model.say(MessageLevel::Warn, "unlocked for 30 minutes");
                // What was skipped as protected may be part of the plan now.
                return plan_again(model);
            }
            model.give_up_question(key, "read-only stays on");
            return Vec::new();
        }
        Overlay::Help(chooser) => (true, chooser),
        Overlay::Palette(chooser) => (false, chooser),
        // They are no lists; their keys are taken above.
        Overlay::Question(_) | Overlay::Seal(_) => return Vec::new(),
    };
    let edit = chooser.typing;
    let keymap = &model.preferences.keymap;
    let doubled = |key| keymap.meaning(Context::Log, &[key, key]);
    // Its item may have moved.
    chooser.cursor = chooser::place(chooser, &choices).or(chooser.cursor);
    let mut by = None;
    match (key.code, key.typed()) {
        (Code::Esc, _) if help && edit => {
            overlay = Overlay::Help(Chooser::browsing());
        }
        (Code::Esc, _) => return Vec::new(),
        (Code::Enter, _) => {
            let here = chooser::place(chooser, &choices);
            let item = chooser.on.clone().filter(|_| here.is_some());
            return match item {
                Some(item) => choose(model, item),
                None => {
                    model.hint(&chooser::objection(chooser, &choices));
                    chooser::show(model, overlay);
                    Vec::new()
                }
            };
        }
        (Code::Down, _) => by = Some(1),
        (Code::Up, _) => by = Some(-1),
        (Code::PageDown, _) => by = Some(PAGE),
        (Code::PageUp, _) => by = Some(-PAGE),
        (Code::Backspace, _) if edit => {
            // An empty palette is closed by one more Backspace.
            if chooser.query.pop().is_none() && !help {
                return Vec::new();
            }
            chooser.cursor = None;
        }
        (Code::Char('u'), _) if edit && key.ctrl => {
            chooser.query.clear();
            chooser.cursor = None;
        }
        (_, Some(c)) if edit => {
            chooser.query.push(c);
            chooser.cursor = None;
        }
        _ if edit => {}
        // The keys are those of any list that can be searched.
        _ => match keymap.meaning(Context::Log, &[key]) {
            KeyMeaning::Command(Command::Down) => by = Some(1),
            KeyMeaning::Command(Command::Up) => by = Some(-1),
            KeyMeaning::Command(Command::HalfDown | Command::PageDown) => by = Some(PAGE),
            KeyMeaning::Command(Command::HalfUp | Command::PageUp) => by = Some(-PAGE),
            KeyMeaning::Command(Command::Top) => by = Some(isize::MIN),
            // Nothing else begins with it here, so the first of two is enough.
            KeyMeaning::Prefix if doubled(key) == KeyMeaning::Command(Command::Top) => {
                by = Some(isize::MIN);
            }
            KeyMeaning::Command(Command::Bottom) => by = Some(isize::MAX),
            KeyMeaning::Command(Command::Search) => chooser.typing = true,
            KeyMeaning::Command(Command::Back | Command::Help) => return Vec::new(),
            _ => {}
        },
    }
    if let (Some(by), Overlay::Help(chooser) | Overlay::Palette(chooser)) = (by, &mut overlay) {
        // Where nothing was chosen yet any of these keys chooses the first.
        let moved = chooser
            .cursor
            .map(|cursor| cursor.saturating_add_signed(by));
        chooser.cursor = Some(moved.unwrap_or(0));
    }
    chooser::show(model, overlay);
    Vec::new()
}

/// Runs what was chosen.
fn choose(model: &mut Model, item: ChooserItem) -> Vec<Effect> {
    match item {
        // Enter never confirms, whatever it is on.
        ChooserItem::Command(Command::Confirm) => {
            model.hint(&format!("{CONFIRM_KEY} confirms a plan; Enter never does"));
            Vec::new()
        }
        ChooserItem::Command(command) => perform(model, command, Key::plain(Code::Enter)),
        ChooserItem::Sort(sort) => {
            sort_by(model, sort);
            Vec::new()
        }
        ChooserItem::Theme(name) => vec![Effect::Theme(name)],
        ChooserItem::Filter(_, filter) => {
            filter_by(model, filter);
            go(model, Screen::Fleet);
            Vec::new()
        }
        ChooserItem::Agent(name) => enter_agent(model, name),
        ChooserItem::Tab(tab, name) => open_tab(model, name, tab),
    }
}

pub(super) fn prompt_key(model: &mut Model, key: Key) -> Vec<Effect> {
    match (key.code, key.typed()) {
        (Code::Up, _) => recall(model),
        (Code::Esc, _) => {
            let effects = recall(model);
            model.prompt = None;
            model.dirty = true;
            effects
        }
        (Code::Enter, _) => {
            let searched = matches!(model.prompt, Some(Prompt::Search(_)));
            model.prompt = None;
            model.dirty = true;
            model.arrange();
            if searched {
                report_hits(model);
            }
            Vec::new()
        }
        (Code::Backspace, _) => edit_prompt(model, |line| {
            line.pop();
        }),
        (_, Some(c)) => edit_prompt(model, |line| line.push(c)),
        (Code::Char('u'), _) if key.ctrl => edit_prompt(model, String::clear),
        _ => Vec::new(),
    }
}

/// Brings back what was filtered by, or searched for, before.
fn recall(model: &mut Model) -> Vec<Effect> {
    let old = match &model.prompt {
        Some(Prompt::Filter(old) | Prompt::Search(old)) => old.clone(),
        None => String::new(),
    };
    edit_prompt(model, |line| line.clone_from(&old))
}

/// Changes the line that is being typed, and shows at once what it means.
pub(super) fn edit_prompt(model: &mut Model, edit: impl FnOnce(&mut String)) -> Vec<Effect> {
    model.dirty = true;
    match &model.prompt {
        Some(Prompt::Filter(_)) => {
            let mut filter = model.filter.clone();
            edit(&mut filter);
            filter_by(model, filter);
        }
        Some(Prompt::Search(_)) if model.screen == Screen::Log => edit(&mut model.log.query),
        Some(Prompt::Search(_)) => {
            let height = model.text_height();
            let pane = model.agent.pane_mut();
            let mut query = pane.query.clone();
            edit(&mut query);
            pane.search(&query);
            pane.first_hit(height);
        }
        None => {}
    }
    Vec::new()
}
