//! Keys of an open overlay: help, the palette, and the questions of the console and of hosts.

use std::time::Duration;

use super::{perform_command, plan, question, timer_dialog};
use crate::console::chooser;
use crate::console::command::{Command, KeyContext};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::keys::key_guard::KeyGuard;
use crate::console::keys::keymap::{CONFIRM_KEY, KeyMeaning};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::overlay::{Chooser, ChooserItem, Overlay};
use crate::console::screen::Screen;
use crate::console::screens::agent::update::memory::check_operations;
use crate::console::screens::{agent, baselines, fleet};

/// Duration of an unlock of read-only agents.
const UNLOCK_TIME: Duration = Duration::from_secs(30 * 60);

/// Rows of a page in a list.
const PAGE_ROWS: isize = 10;

/// Handles a key of the open overlay.
pub(super) fn handle_overlay_key(model: &mut Model, key: Key) -> Vec<Effect> {
    model.is_dirty = true;
    match model.overlay.take() {
        Some(Overlay::AnswerQuestion(dialog)) => question::handle_question_key(model, dialog, key),
        Some(Overlay::UnlockReadOnly) => handle_unlock_key(model, key),
        Some(Overlay::Timer(dialog)) => timer_dialog::handle_timer_key(model, dialog, key),
        Some(overlay) => handle_chooser_key(model, overlay, key),
        None => Vec::new(),
    }
}

fn handle_unlock_key(model: &mut Model, key: Key) -> Vec<Effect> {
    if key.printable_char() != Some(CONFIRM_KEY) {
        abandon_question(model, key, "read-only stays on");
        return Vec::new();
    }
    model.read_only.is_on = false;
    model.read_only.unlocked_until = Some(model.now.elapsed + UNLOCK_TIME);
    model.reset.confirm_held_at = Some(model.now.elapsed);
    model.report_warning("unlocked for 30 minutes");
    // Agents that were skipped as protected may be part of the plan now.
    plan::request_again(model)
}

/// What a key does in a chooser.
enum ChooserAction {
    Close,
    /// Run the item under the cursor.
    Choose,
    /// Move the cursor by rows.
    Move(isize),
    SetQuery(String),
    BeginTyping,
    /// Drop the query and browse all items.
    Browse,
    Nothing,
}

fn handle_chooser_key(model: &mut Model, mut overlay: Overlay, key: Key) -> Vec<Effect> {
    let choices = chooser::list_choices(model, &overlay);
    let is_help = matches!(overlay, Overlay::Help(_));
    let (Overlay::Help(chooser) | Overlay::Palette(chooser)) = &mut overlay else {
        return Vec::new();
    };
    let offered_row = chooser::cursor_row(chooser, &choices);
    chooser.cursor_row = offered_row.or(chooser.cursor_row);
    match chooser_action(model, chooser, is_help, key) {
        ChooserAction::Close => return Vec::new(),
        ChooserAction::Choose => match chooser.selected.clone() {
            Some(item) if offered_row.is_some() => return run_chosen_item(model, item),
            _ => model.show_hint(&chooser::no_choice_reason(chooser, &choices)),
        },
        ChooserAction::Move(by) => {
            // If no row is chosen yet, any movement chooses the first.
            let row = chooser.cursor_row.map(|row| row.saturating_add_signed(by));
            chooser.cursor_row = Some(row.unwrap_or(0));
        }
        ChooserAction::SetQuery(query) => {
            chooser.query = query;
            chooser.cursor_row = None;
        }
        ChooserAction::BeginTyping => chooser.is_typing = true,
        ChooserAction::Browse => overlay = Overlay::Help(Chooser::for_browsing()),
        ChooserAction::Nothing => {}
    }
    if let Overlay::Help(chooser) | Overlay::Palette(chooser) = &mut overlay {
        chooser.selected = None;
    }
    model.overlay = Some(overlay);
    Vec::new()
}

fn chooser_action(model: &Model, chooser: &Chooser, is_help: bool, key: Key) -> ChooserAction {
    match key.code {
        KeyCode::Esc if is_help && chooser.is_typing => ChooserAction::Browse,
        KeyCode::Esc => ChooserAction::Close,
        KeyCode::Enter => ChooserAction::Choose,
        KeyCode::Down => ChooserAction::Move(1),
        KeyCode::Up => ChooserAction::Move(-1),
        KeyCode::PageDown => ChooserAction::Move(PAGE_ROWS),
        KeyCode::PageUp => ChooserAction::Move(-PAGE_ROWS),
        _ if chooser.is_typing => typing_action(&chooser.query, is_help, key),
        _ => browsing_action(model, key),
    }
}

fn typing_action(query: &str, is_help: bool, key: Key) -> ChooserAction {
    let mut query = query.to_string();
    match (key.code, key.printable_char()) {
        // Backspace in an empty palette closes it.
        (KeyCode::Backspace, _) if query.pop().is_none() && !is_help => ChooserAction::Close,
        (KeyCode::Backspace, _) => ChooserAction::SetQuery(query),
        (KeyCode::Char('u'), _) if key.has_ctrl => ChooserAction::SetQuery(String::new()),
        (_, Some(c)) => {
            query.push(c);
            ChooserAction::SetQuery(query)
        }
        _ => ChooserAction::Nothing,
    }
}

/// Returns what a key does in a list without a query: the same as in the log.
fn browsing_action(model: &Model, key: Key) -> ChooserAction {
    let keymap = &model.preferences.keymap;
    let double_press = || keymap.resolve(KeyContext::Log, &[key, key]);
    match keymap.resolve(KeyContext::Log, &[key]) {
        KeyMeaning::Command(Command::Down) => ChooserAction::Move(1),
        KeyMeaning::Command(Command::Up) => ChooserAction::Move(-1),
        KeyMeaning::Command(Command::HalfDown | Command::PageDown) => {
            ChooserAction::Move(PAGE_ROWS)
        }
        KeyMeaning::Command(Command::HalfUp | Command::PageUp) => ChooserAction::Move(-PAGE_ROWS),
        KeyMeaning::Command(Command::Top) => ChooserAction::Move(isize::MIN),
        // No other sequence begins with the key here, so the first of two is enough.
        KeyMeaning::Prefix if double_press() == KeyMeaning::Command(Command::Top) => {
            ChooserAction::Move(isize::MIN)
        }
        KeyMeaning::Command(Command::Bottom) => ChooserAction::Move(isize::MAX),
        KeyMeaning::Command(Command::Search) => ChooserAction::BeginTyping,
        KeyMeaning::Command(Command::GoBack | Command::Help) => ChooserAction::Close,
        _ => ChooserAction::Nothing,
    }
}

/// Runs the item of the open palette whose whole name was typed before the palette opened, and closes
/// it; `None` if there is no such item.
pub(super) fn run_exact_choice(model: &mut Model) -> Option<Vec<Effect>> {
    let Some(Overlay::Palette(chooser)) = &model.overlay else {
        return None;
    };
    let item = chooser::find_exact_item(model, chooser)?;
    model.overlay = None;
    Some(run_chosen_item(model, item))
}

fn run_chosen_item(model: &mut Model, item: ChooserItem) -> Vec<Effect> {
    match item {
        // Enter never confirms, whichever item it is on.
        ChooserItem::Command(Command::ConfirmPlan) => {
            model.show_hint(&format!("{CONFIRM_KEY} confirms a plan; Enter never does"));
        }
        ChooserItem::Command(Command::ConfirmSave) => {
            model.show_hint(&format!("{CONFIRM_KEY} confirms a save; Enter never does"));
        }
        ChooserItem::Command(command) => {
            return perform_command(model, command, Key::from_code(KeyCode::Enter));
        }
        ChooserItem::Sort(sort) => fleet::update::set_sort_order(model, sort),
        ChooserItem::Theme(name) => return vec![Effect::LoadTheme(name)],
        ChooserItem::Filter(_, filter) => {
            fleet::update::set_filter(model, filter);
            model.go_to_screen(Screen::Fleet);
        }
        ChooserItem::Agent(name) => return agent::update::open_at_finding(model, name),
        ChooserItem::ComparisonSide(side, version) => {
            return baselines::update::change_side(model, side, version);
        }
        ChooserItem::Operation(name) => {
            return match check_operations(model) {
                Ok(()) => agent::update::memory::begin_operation(model, name),
                Err(why) => {
                    model.show_hint(&why);
                    Vec::new()
                }
            };
        }
        ChooserItem::Tab(tab, name) => return agent::update::open_tab(model, name, tab),
    }
    Vec::new()
}

/// Reports what follows from a question that a key cancelled. If the key was meant for
/// something else, more such keys follow, which the guard ignores.
fn abandon_question(model: &mut Model, key: Key, consequence: &str) {
    if key.code != KeyCode::Esc && key.printable_char() != Some('n') {
        model.key_guards.typed_ahead = KeyGuard::new(model.now.elapsed);
    }
    model.report_info(consequence);
}
