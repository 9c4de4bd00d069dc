//! The last line: the keys of this screen, or what is being typed.

use unicode_width::UnicodeWidthStr;

use crate::console::command::{Command, CommandCategory, CommandSpec, KeyContext, changes_files};
use crate::console::dispatch::{check_enabled, offered_commands};
use crate::console::frame::draw_pending_question;
use crate::console::keys::key::format_sequence;
use crate::console::keys::keymap;
use crate::console::model::Model;
use crate::console::model::targets::{check_subject_is_reset, retry_request, subject_agent};
use crate::console::model::undo_offers::{check_other_undo, undone_save};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::verify::update::would_write;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, end_of_untrusted, shorten_untrusted};
use crate::console::widgets::list_pane::MIN_PREVIEW_COLUMNS;
use crate::console::widgets::plan_pane::Confirmation;
use crate::engine::{SealMatch, UndoMode};

/// Draws the last line: the hints of this screen. As space runs out, help is the last to go.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
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
                (Command::GoBack, KeyContext::Fleet)
                    if model.return_point.filter_before_host.is_none() =>
                {
                    "quit"
                }
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
        Command::ChooseOperation => model.agent.tab.is_about_layout(),
        Command::SortItems => model.agent.is_item_list(),
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
    check_subject_is_reset(model).is_ok()
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
    match (model.key_context(), model.reset.result()) {
        (context, _) if command == Command::VerifyNow => context == KeyContext::Verify,
        _ if command == Command::PlanOtherUndo => check_other_undo(model).is_ok(),
        (KeyContext::Result, Some(result)) => match command {
            Command::RetryFailed => retry_request(model).is_ok(),
            Command::PlanUndo => !model.log.undoable_agents(result).is_empty(),
            Command::OpenDiff => is_reset(model),
            _ => true,
        },
        (KeyContext::Log, _) => match command {
            Command::GoLog | Command::NextTab => false,
            Command::OpenDiff => subject_agent(model).is_some(),
            Command::UndoSave => undone_save(model).is_some(),
            Command::ControlTimer => model.log.schedule.has_schedule(),
            _ => true,
        },
        // The panel names the key that leads to it and back; Enter does the same as another key.
        (KeyContext::Schedule, _) => !matches!(
            command,
            Command::GoLog | Command::NextTab | Command::OpenSelected
        ),
        (KeyContext::Agent, _) => is_agent_hint_relevant(command, model),
        (KeyContext::Verify, _) => is_verify_hint_relevant(command, model),
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
                let is_overview = model.archives.page == ArchivesPage::Retention;
                is_overview && check_enabled(command, model).is_ok()
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
        (KeyContext::Plan, _) => is_plan_hint_relevant(command, model),
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

fn is_verify_hint_relevant(command: Command, model: &Model) -> bool {
    let is_relevant = match command {
        Command::GoLog => false,
        Command::PlanRestore | Command::PlanSeal => would_write(model, command),
        _ => true,
    };
    is_relevant && check_enabled(command, model).is_ok()
}

fn is_plan_hint_relevant(command: Command, model: &Model) -> bool {
    let Some(view) = model.reset.plan.shown() else {
        return command == Command::GoBack;
    };
    match command {
        Command::KeepHiddenAgents | Command::DropHiddenAgents => true,
        _ if !model.reset.hidden_agents.is_empty() => command == Command::GoBack,
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
