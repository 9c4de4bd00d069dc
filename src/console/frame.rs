//! What every screen has around its content: the fleet's name, the last message, the key hints and
//! the pending questions.

use unicode_width::UnicodeWidthStr;

use super::command::{
    Command, CommandCategory, CommandSpec, KeyContext, changes_files, check_enabled,
    offered_commands,
};
use super::model::Model;
use super::screen::Screen;
use super::screens::agent::state::AgentTab;
use super::screens::archives::state::ArchivesPage;
use super::screens::log::state::MessageLevel;
use super::screens::log::view::schedule::header_parts;
use super::screens::reset::state::{PlanView, ResetStage};
use super::theme::{Role, role_of_state};
use super::widgets::list_pane::MIN_PREVIEW_COLUMNS;
use super::widgets::plan_pane::Confirmation;
use super::widgets::text_pane;
use crate::base::untrusted;
use crate::console::agent_row::AgentRow;
use crate::console::keys::key::format_sequence;
use crate::console::keys::keymap;
use crate::console::widgets::canvas::{
    Canvas, end_of_untrusted, fit_end_of_sentence, shorten_untrusted, truncate_untrusted,
};
use crate::engine::{SealMatch, State, UndoMode};

/// Notice shown while the key guard ignores keys that were typed ahead.
pub const KEYS_IGNORED_NOTICE: &str =
    "Typed-ahead keys ignored: pause for half a second, then continue.";

/// What every screen but the editor shows while the editor has a text that is not saved.
const UNSAVED_WORD: &str = "UNSAVED";

/// Cells that a shortened name of the fleet keeps.
const MIN_FLEET_NAME_CELLS: usize = 6;

/// Blank cells behind the fleet's name, its tag and the rights.
const FLEET_NAME_GAP: u16 = 2;

/// Draws the fleet's name, its tag, whether it is read-only and whether a text is not saved, as on
/// every screen. Returns the column behind them.
pub fn draw_fleet_name(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
    // The blanks behind it may be cut.
    let room = canvas.width().saturating_sub(x) + FLEET_NAME_GAP;
    draw_short_fleet_name(model, canvas, (x, y), room)
}

/// Draws the same in at most `room` cells with the blanks behind it, for which the name is shortened.
/// Returns the column behind them.
pub fn draw_short_fleet_name(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    room: u16,
) -> u16 {
    let name = &model.config.name;
    let whole = untrusted::visible_line(name).width();
    let others = fleet_name_width(model).saturating_sub(whole);
    let room = usize::from(room).saturating_sub(others);
    let mut x = if whole <= room {
        canvas.put_untrusted(x, y, name.as_bytes(), Role::Title)
    } else {
        let short = shorten_untrusted(name, room.max(MIN_FLEET_NAME_CELLS));
        canvas.put_text(x, y, &short, Role::Title)
    };
    x += 1;
    if let Some(tag) = &model.config.tag {
        x = canvas.put_untrusted(x, y, format!("[{tag}]").as_bytes(), Role::Tag) + 1;
    }
    let (word, role) = access_label(model);
    x = canvas.put_text(x, y, word, role) + 1;
    if is_text_unsaved(model) {
        x = canvas.put_text(x, y, UNSAVED_WORD, Role::Warn) + 1;
    }
    x + 1
}

/// Rows of the header in which the schedule may be shown, the preferred one first.
const SCHEDULE_ROWS: [u16; 2] = [1, 0];

/// Blank cells around what the header says about the schedule.
const SCHEDULE_MARGIN: u16 = 2;

/// Draws when the next scheduled run is due and whether the last one failed, where a row of the header
/// has room: all of it, else what is most important.
pub fn draw_schedule_note(model: &Model, canvas: &mut Canvas<'_>) {
    let parts = header_parts(model);
    for shown in (1..=parts.len()).rev() {
        let shown = &parts[..shown];
        let width: usize = shown.iter().map(|(text, _)| text.width() + 2).sum();
        let width = (width as u16).saturating_sub(2);
        for y in SCHEDULE_ROWS {
            let (from, cells) = canvas.widest_blank(y);
            // The note ends where the row ends, or before what stands there.
            let end = from + cells;
            let margin = if end == canvas.width() {
                0
            } else {
                SCHEDULE_MARGIN
            };
            if cells < width + margin + SCHEDULE_MARGIN {
                continue;
            }
            let mut x = end - margin - width;
            for (text, role) in shown {
                x = canvas.put_text(x, y, text, *role) + 2;
            }
            return;
        }
    }
}

/// Returns the cells that [`draw_fleet_name`] takes.
pub fn fleet_name_width(model: &Model) -> usize {
    let visible_width = |text: &str| untrusted::visible_line(text).width();
    let tag = model.config.tag.as_ref();
    let tag = tag.map_or(0, |tag| visible_width(&format!("[{tag}]")) + 1);
    let unsaved = if is_text_unsaved(model) {
        UNSAVED_WORD.len() + 1
    } else {
        0
    };
    visible_width(&model.config.name) + 1 + tag + access_label(model).0.len() + unsaved + 2
}

/// Returns the cells that [`draw_short_fleet_name`] takes at least.
pub fn least_fleet_name_width(model: &Model) -> usize {
    let name = untrusted::visible_line(&model.config.name).width();
    fleet_name_width(model) - name + name.min(MIN_FLEET_NAME_CELLS)
}

/// Draws a command line at a column and a line; where it does not fit, also the key that copies it.
pub fn draw_equivalent_command(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    command: &str,
    copy: Command,
) {
    let end = canvas.width().saturating_sub(x + 1);
    let room = |label: &str| usize::from(end).saturating_sub(label.len());
    let mut label = "same as:  ".to_string();
    if untrusted::visible_line(command).width() > room(&label) {
        label = format!("same as ({} copies):  ", model.key_hint(copy));
    }
    let text = truncate_untrusted(command, room(&label));
    let x = canvas.put_text(x, y, &label, Role::Dim);
    canvas.put_text(x, y, &text, Role::Text);
}

/// Whether the editor has a text that is not saved, and does not say so itself.
fn is_text_unsaved(model: &Model) -> bool {
    let editor = model.editor.as_ref();
    model.screen != Screen::Editor && editor.is_some_and(|it| it.is_modified)
}

/// Returns whether the fleet is read-only, in a word.
fn access_label(model: &Model) -> (&'static str, Role) {
    match (model.read_only_reason().is_some(), model.is_unlocked()) {
        (true, _) => ("RO", Role::Tag),
        (false, true) => ("RW unlocked", Role::Warn),
        (false, false) => ("RW", Role::Text),
    }
}

/// Draws the last line: the hints of this screen. As space runs out, help is the last to go.
pub fn draw_hints(model: &Model, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    let y = height - 1;
    if let Some(prompt) = &model.input_line {
        draw_input_line(canvas, y, [&prompt.label(), &prompt.text, &prompt.note()]);
        return;
    }
    if model.pending_keys.is_hint_shown {
        let x = canvas.put_text(1, y, "Esc", Role::Key);
        canvas.put_text(x, y, " cancels", Role::Text);
        return;
    }
    let mut help_keys = model.preferences.keymap.sequences(Command::Help).iter();
    let help_key = help_keys
        .find(|keys| !keymap::is_typed(model.key_context(), keys))
        .map_or_else(
            || model.key_hint(Command::Help),
            |keys| format_sequence(keys),
        );
    let help = format!("{help_key} help");
    let end = width.saturating_sub(help.width() as u16 + 1);
    let mut available_width = draw_pending_question(model, canvas, end);
    let mut x = 1;
    let mut hints = visible_hints(model);
    // The added command comes last and is always shown.
    if let Some(last) = hints.pop_if(|hint| hint.command == Command::Extra) {
        available_width = available_width.saturating_sub(last.width());
        last.draw(model, canvas, available_width, y);
    }
    for hint in hints {
        if x + hint.width() <= available_width {
            x = hint.draw(model, canvas, x, y);
        }
    }
    let x = canvas.put_text(end, y, help.trim_end_matches(" help"), Role::Key);
    canvas.put_text(x, y, " help", Role::Text);
}

/// Cells of the text of an input line that are visible at least.
const MIN_INPUT_CELLS: usize = 10;

/// Draws an input line: its label, the end of the text, and the keys that end it. A long label is
/// shortened.
fn draw_input_line(canvas: &mut Canvas<'_>, y: u16, [label, text, note]: [&str; 3]) {
    let width = canvas.room(0);
    let room = width.saturating_sub(note.width() + MIN_INPUT_CELLS + 4);
    let room = room.clamp(MIN_INPUT_CELLS, width / 2);
    let x = canvas.put_text(0, y, &shorten_untrusted(label, room), Role::Key);
    let room = width.saturating_sub(usize::from(x) + note.width() + 4);
    let room = room.max(MIN_INPUT_CELLS);
    let x = canvas.put_text(x, y, &end_of_untrusted(text, room), Role::Prompt);
    let x = canvas.put_text(x, y, "_", Role::Prompt);
    canvas.put_text(x + 2, y, note, Role::Dim);
}

/// A key with its command, in the last line.
struct KeyHint {
    command: Command,
    keys: String,
    text: &'static str,
}

impl KeyHint {
    /// Returns its width in cells, including the blanks behind it.
    fn width(&self) -> u16 {
        (self.keys.width() + self.text.width() + 3) as u16
    }

    /// Draws the hint and returns the column behind it.
    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
        let (key, text) = match check_enabled(self.command, model) {
            Ok(()) => (Role::Key, Role::Text),
            Err(_) => (Role::Disabled, Role::Disabled),
        };
        let after = canvas.put_text(x, y, &self.keys, key);
        canvas.put_text(after + 1, y, self.text, text) + 2
    }
}

/// Whether the screen shows the items of a memory.
fn is_item_list(model: &Model) -> bool {
    model.screen == Screen::Agent && model.agent.is_item_list()
}

/// Whether the first key of a command is a digit.
fn begins_with_digit(keymap: &keymap::Keymap, command: Command) -> bool {
    let first = keymap.sequences(command).first().and_then(|it| it.first());
    let typed = first.and_then(|key| key.printable_char());
    typed.is_some_and(|c| c.is_ascii_digit())
}

/// Returns the hints of this screen, the most important first.
fn visible_hints(model: &Model) -> Vec<KeyHint> {
    let context = model.key_context();
    let keymap = &model.preferences.keymap;
    let mut specs: Vec<_> = offered_commands(model)
        .filter(|spec| !spec.hint.is_empty() && spec.command != Command::Help)
        .filter(|spec| is_hint_relevant(spec.command, model))
        .filter(|spec| !context.takes_counts() || !begins_with_digit(keymap, spec.command))
        .filter(|spec| !(model.read_only.is_forced && changes_files(spec.command)))
        .collect();
    // Outside the fleet, actions come before commands that only show something.
    specs.sort_by_key(|spec| {
        let looks = spec.category != CommandCategory::Actions && context != KeyContext::Fleet;
        (spec.command == Command::Extra, looks)
    });
    let hint = |spec: &CommandSpec| {
        // Forward and back share one hint.
        let back = match spec.command {
            Command::NextHunk => Some(Command::PreviousHunk),
            Command::NextAgent => Some(Command::PreviousAgent),
            Command::NextFinding => Some(Command::PreviousFinding),
            _ => None,
        };
        let both = [Some(spec.command), back].into_iter().flatten();
        let keys = both.filter_map(|command| {
            let mut sequences = keymap.sequences(command).iter();
            sequences.find(|keys| !keymap::is_typed(context, keys))
        });
        let keys: Vec<String> = keys.map(|keys| format_sequence(keys)).collect();
        KeyHint {
            command: spec.command,
            keys: keys.join(" "),
            text: match (spec.command, context) {
                (Command::GoBack, KeyContext::Fleet) => "quit",
                (Command::GoBack, KeyContext::EditorTyping) => "end typing",
                (Command::Search, _) if is_item_list(model) => "filter",
                _ => spec.hint,
            },
        }
    };
    let mut hints: Vec<KeyHint> = specs.into_iter().map(hint).collect();
    // A command without a key appears only in help and in the palette.
    hints.retain(|hint| !hint.keys.is_empty());
    hints
}

/// Returns the key that shows the remedies of an agent whose resets are blocked.
pub fn blocked_step(model: &Model, agent: &str) -> Option<String> {
    let state = model.find_row(agent).map(AgentRow::state);
    let opens_baseline = model.screen == Screen::Fleet || model.agent.tab == AgentTab::Baseline;
    if state == Some(State::Tampered) && opens_baseline {
        let open = model.key_hint(Command::OpenSelected);
        return Some(format!("{open} shows the change"));
    }
    let plan = Command::PlanReset;
    let is_enabled = check_enabled(plan, model).is_ok();
    is_enabled.then(|| format!("{} says what to do", model.key_hint(plan)))
}

/// Draws the question that the answer key opens, and how many more wait, in the last line before
/// column `end`; they stay until they are answered. Returns the column at which they begin.
pub fn draw_pending_question(model: &Model, canvas: &mut Canvas<'_>, end: u16) -> u16 {
    let Some(current) = model.current_question() else {
        return end;
    };
    let mut text = format!("{} wants {}", current.host, current.short_name());
    match model.questions.len() {
        1 => {}
        many => text.push_str(&format!(", {} more", many - 1)),
    }
    let text = truncate_untrusted(&text, usize::from(end / 2));
    let key = model.key_hint(Command::AnswerQuestion);
    let length = text.width() + key.width() + 3;
    let x = end.saturating_sub(length as u16);
    let y = model.size.1 - 1;
    let after = canvas.put_text(x, y, &key, Role::Key);
    canvas.put_text(after + 1, y, &text, Role::Warn);
    x
}

/// Whether a hint is useful for the text in the editor.
fn is_editor_hint_relevant(command: Command, model: &Model) -> bool {
    let editor = model.editor.as_ref();
    let is_read_only = editor.is_some_and(|it| it.read_only.is_some());
    match command {
        Command::OpenSelected => {
            editor.is_some_and(|it| matches!(it.opened.seal, SealMatch::Mismatch(_)))
        }
        Command::FixFinding => !is_read_only && editor.is_some_and(|it| it.has_fix()),
        Command::InsertText | Command::UndoTyping | Command::CommandLine => !is_read_only,
        Command::GoBack => is_read_only,
        Command::GoLog | Command::Palette | Command::UndoSave => false,
        _ => true,
    }
}

/// Whether a hint is useful on the tab of the agent screen.
fn is_agent_hint_relevant(command: Command, model: &Model) -> bool {
    match command {
        Command::OpenSelected => {
            let opens_row = model.agent.is_list() && model.agent.tab != AgentTab::Health;
            opens_row || model.agent.tab == AgentTab::Baseline
        }
        // Where a memory with a layout is shown, its own keys need the room.
        Command::PlanReset | Command::PlanPush | Command::EditBaseline => {
            !model.agent.tab.is_about_layout() && is_reset(model)
        }
        Command::OpenDiff => {
            let is_elsewhere = model.agent.tab != AgentTab::Diff;
            is_elsewhere && !model.agent.tab.is_about_layout() && is_reset(model)
        }
        Command::ChooseOperation => model.agent.tab == AgentTab::Memory,
        Command::Search if model.agent.is_item_list() => true,
        Command::ToggleMark | Command::PromoteLines => model.agent.has_line_cursor(),
        Command::NextHunk => model.agent.is_comparison(),
        Command::ToggleSideBySide => model.agent.has_diff_options(),
        Command::ToggleWhitespaceMarks => model.agent.is_file_text(),
        Command::Search | Command::ToggleWrap | Command::ToggleFullScreen | Command::OpenPager => {
            !model.agent.is_list()
        }
        _ => true,
    }
}

/// Whether the agent that keys are about is reset.
fn is_reset(model: &Model) -> bool {
    model.check_subject_is_reset().is_ok()
}

/// Whether a command of the archives is about an entry.
fn needs_entry(command: Command, model: &Model) -> bool {
    match command {
        Command::CompareEntry
        | Command::PlanEntryRestore
        | Command::TogglePin
        | Command::ExportEntry => true,
        // In a text, it marks lines.
        Command::ToggleMark => model.key_context() == KeyContext::Archives,
        _ => false,
    }
}

/// Whether a hint is useful on the current screen and at the stage of a reset.
fn is_hint_relevant(command: Command, model: &Model) -> bool {
    match (model.key_context(), &model.reset.stage) {
        (context, _) if command == Command::VerifyNow => context == KeyContext::Verify,
        _ if command == Command::PlanOtherUndo => model.check_other_undo().is_ok(),
        (KeyContext::Result, ResetStage::Result(result)) => match command {
            Command::RetryFailed => model.retry_request().is_ok(),
            Command::PlanUndo => !model.undoable_agents(result).is_empty(),
            Command::OpenDiff => is_reset(model),
            _ => true,
        },
        (KeyContext::Log, _) => match command {
            Command::GoLog | Command::NextTab => false,
            Command::OpenDiff => model.subject_agent().is_some(),
            Command::UndoSave => model.undone_save().is_some(),
            Command::ControlTimer => model.log.schedule.has_schedule(),
            _ => true,
        },
        // The panel names the key that leads to it and back; Enter does the same as another key.
        (KeyContext::Schedule, _) => !matches!(
            command,
            Command::GoLog | Command::NextTab | Command::OpenSelected
        ),
        (KeyContext::Agent, _) => is_agent_hint_relevant(command, model),
        (KeyContext::Verify, _) => !matches!(command, Command::GoLog),
        (KeyContext::Archives | KeyContext::ArchiveText, _)
            if needs_entry(command, model) && model.archives.is_at_memory() =>
        {
            false
        }
        (KeyContext::Archives, _) => match command {
            // On a narrow screen the pages of the archives need the room.
            Command::ToggleMark => model.size.0 >= MIN_PREVIEW_COLUMNS,
            // Those of the text.
            Command::OpenPager | Command::ExportEntry => false,
            _ => command != Command::GoLog,
        },
        (KeyContext::ArchiveText, _) => match command {
            Command::ToggleWrap | Command::ToggleWhitespaceMarks => {
                model.size.0 >= MIN_PREVIEW_COLUMNS
            }
            _ => command != Command::GoLog,
        },
        (KeyContext::Retention, _) => match command {
            Command::OpenSelected | Command::PlanPrune => {
                model.archives.page == ArchivesPage::Retention
            }
            _ => command != Command::GoLog,
        },
        // Typed letters go into the confirmation.
        (KeyContext::PrunePlan, _) => command == Command::GoBack,
        (KeyContext::Timeline, _) => !matches!(command, Command::ToggleMark | Command::GoLog),
        (KeyContext::BaselinePlan, _) => match command {
            Command::ConfirmPlan | Command::NameSigningKey => check_enabled(command, model).is_ok(),
            Command::Palette | Command::GoLog => false,
            _ => true,
        },
        // On a narrow screen the choice of versions needs the room.
        (KeyContext::Comparison, _) => !matches!(
            command,
            Command::NextAgent
                | Command::ToggleSideBySide
                | Command::ToggleWrap
                | Command::ToggleWhitespaceMarks
        ),
        (KeyContext::Plan, _) if command == Command::OpenDiff && !is_reset(model) => false,
        (KeyContext::Plan, ResetStage::Plan(view)) => is_plan_hint_relevant(command, view),
        (KeyContext::Plan, _) => command == Command::GoBack,
        (KeyContext::EditorDialog, _) => match command {
            Command::GoLog | Command::Palette => false,
            _ => check_enabled(command, model).is_ok(),
        },
        (KeyContext::Editor | KeyContext::EditorSelection, _) => {
            is_editor_hint_relevant(command, model)
        }
        (KeyContext::EditorPanel, _) if command == Command::FixFinding => {
            is_editor_hint_relevant(command, model)
        }
        _ => true,
    }
}

fn is_plan_hint_relevant(command: Command, view: &PlanView) -> bool {
    match command {
        Command::KeepHiddenAgents | Command::DropHiddenAgents => true,
        _ if !view.hidden_agents.is_empty() => command == Command::GoBack,
        Command::ConfirmPlan => view.prompt.confirmation == Confirmation::SingleKey,
        Command::UndoAppend => view.offers_undo_mode(UndoMode::Append),
        Command::UndoOverwrite => view.offers_undo_mode(UndoMode::Overwrite),
        // Typed letters go into the confirmation.
        Command::Palette | Command::GoLog => {
            !matches!(view.prompt.confirmation, Confirmation::TypedText(_))
        }
        _ => true,
    }
}

/// Cells of a rule that stay behind the words in it.
const RULE_MARGIN: u16 = 2;

/// Draws how many agents need attention into the rule below the header, the worst state first. The
/// header of the fleet has all counts.
pub fn draw_state_counts(model: &Model, canvas: &mut Canvas<'_>) {
    let Some(y) = canvas.header_rule.filter(|_| model.screen != Screen::Fleet) else {
        return;
    };
    let room = canvas.room(2 * RULE_MARGIN);
    let counts = model.state_counts().into_iter();
    let mut left: Vec<(State, usize)> = counts.filter(|(it, _)| it.needs_attention()).collect();
    let mut words: Vec<(String, Role)> = Vec::new();
    let mut used = 0;
    while let Some((state, agents)) = left.first().copied() {
        let word = format!("{agents} {state}");
        let others: usize = left[1..].iter().map(|(_, agents)| agents).sum();
        let reserve = if others > 0 {
            more_agents(others).width() + 1
        } else {
            0
        };
        if used + word.width() + reserve > room {
            words.push((more_agents(others + agents), Role::Text));
            break;
        }
        used += word.width() + 1;
        words.push((word, role_of_state(state)));
        left.remove(0);
    }
    draw_in_rule(canvas, y, &words);
}

/// Names the number of agents that are left out.
pub fn more_agents(agents: usize) -> String {
    format!("{agents} more")
}

/// Draws words at the end of a rule.
pub fn draw_in_rule(canvas: &mut Canvas<'_>, y: u16, words: &[(String, Role)]) {
    let width: usize = words.iter().map(|(word, _)| word.width() + 1).sum();
    if words.is_empty() {
        return;
    }
    let end = canvas.width().saturating_sub(RULE_MARGIN);
    let mut x = end.saturating_sub(width as u16 + 1);
    x = canvas.put_text(x, y, " ", Role::Text);
    for (word, role) in words {
        x = canvas.put_text(x, y, word, *role);
        x = canvas.put_text(x, y, " ", Role::Text);
    }
}

/// Draws the line about new trouble at the end of the row of messages, as short as the message needs
/// it. Returns the cells that are left of `room`.
pub fn draw_trouble(model: &Model, canvas: &mut Canvas<'_>, (x, y): (u16, u16), room: u16) -> u16 {
    let Some(line) = model.trouble_line() else {
        return room;
    };
    let message = model.last_message.as_ref();
    let message = message.map_or(0, |it| untrusted::visible_line(&it.text).width() + 2);
    let fitted = line.fit(usize::from(room), message);
    let width = fitted.width() as u16;
    let x = x + room.saturating_sub(width);
    let after = canvas.put_text(x, y, &fitted.text, role_of_state(line.state));
    if !fitted.key.is_empty() {
        let after = canvas.put_text(after + 2, y, &fitted.key, Role::Key);
        canvas.put_text(after, y, fitted.act, role_of_state(line.state));
    }
    room.saturating_sub(width + 2)
}

/// Draws the last message, in a row of its own. Returns the column behind it.
pub fn draw_message(model: &Model, canvas: &mut Canvas<'_>, (x, y): (u16, u16), room: u16) -> u16 {
    let Some(message) = &model.last_message else {
        return x;
    };
    let role = match message.level {
        MessageLevel::Info => Role::Text,
        MessageLevel::Warn => Role::Warn,
        MessageLevel::Error => Role::Bad,
    };
    let times = match message.repeat_count {
        1 => String::new(),
        count => format!(" x{count}"),
    };
    let room = usize::from(room).saturating_sub(times.width());
    let x = if untrusted::visible_line(&message.text).width() > room {
        canvas.put_text(x, y, &fit_end_of_sentence(&message.text, room), role)
    } else {
        canvas.put_untrusted(x, y, message.text.as_bytes(), role)
    };
    canvas.put_text(x, y, &times, Role::Dim)
}

/// Draws how many rows of a list have each label, in the first row of the screen: equal labels are
/// behind each other.
pub fn draw_counts_in_row(
    canvas: &mut Canvas<'_>,
    mut x: u16,
    labels: impl Iterator<Item = (&'static str, Role)>,
) {
    let labels: Vec<(&str, Role)> = labels.collect();
    for same in labels.chunk_by(|a, b| a.0 == b.0) {
        let (label, role) = same[0];
        let text = format!("{} {label}", same.len());
        if canvas.room(x) < text.width() {
            break;
        }
        x = canvas.put_text(x, 0, &text, role) + 1;
    }
}

/// Draws the text of the screen from a row on.
pub fn draw_text_pane(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    if model.is_text_awaited() {
        canvas.put_text(1, y, "reading …", Role::Dim);
        return;
    }
    let area = canvas.rows(y, model.text_height() as u16);
    model.text_pane().draw(canvas, area);
    if model.screen == Screen::Agent && model.agent.is_cached() {
        canvas.dim(area);
    }
}

/// Draws the two compared texts of the screen from a row on; it has their titles where they are side
/// by side.
pub fn draw_compared_texts(model: &Model, canvas: &mut Canvas<'_>, y: u16, titles: &[String; 2]) {
    let is_two_sided = model.is_side_by_side();
    if is_two_sided {
        text_pane::draw_side_titles(canvas, y, titles);
    }
    draw_text_pane(model, canvas, y + u16::from(is_two_sided));
}
