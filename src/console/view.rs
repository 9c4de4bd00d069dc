//! Draws the model into a buffer of cells: the screen, then the overlay. Drawing changes no state
//! and builds only what is visible.

mod overlay;
mod question;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::command::{self, Command, CommandCategory, KeyContext};
use super::keymap::format_sequence;
use super::model::{AgentTab, InputLine, MIN_TERMINAL_SIZE, MessageLevel, Model, Screen};
use super::screens::{agent, fleet, hosts, log, reset};
use super::theme::{Role, Theme, role_of_state};
use crate::engine::State;
use crate::untrusted::{self, RevealOptions};

/// Draws the whole console, bottom layer first: the screen, then the overlay.
pub fn draw(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    // The terminal has shrunk and the resize message is not handled yet.
    if buffer.area.width < model.size.0 || buffer.area.height < model.size.1 {
        return;
    }
    let mut canvas = Canvas::new(buffer, theme);
    if model.is_too_small() {
        draw_too_small(model, &mut canvas);
        return;
    }
    match model.screen {
        Screen::Fleet => fleet::view::draw(model, &mut canvas),
        Screen::Agent => agent::view::draw(model, &mut canvas),
        Screen::Reset => reset::view::draw(model, &mut canvas),
        Screen::Log => log::view::draw(model, &mut canvas),
        Screen::Hosts => hosts::view::draw(model, &mut canvas),
    }
    // A full-screen text draws its own last line.
    let full =
        model.screen == Screen::Agent && model.agent.is_full_screen && !model.agent.is_list();
    if !full {
        let y = model.size.1 - 2;
        let room = model.size.0 - 2;
        draw_message(model, &mut canvas, (1, y), room);
    }
    if !full || model.input_line.is_some() {
        draw_hints(model, &mut canvas);
    }
    if model.pending_keys.is_hint_shown {
        overlay::draw_continuations(model, &mut canvas);
    }
    if let Some(overlay) = &model.overlay {
        overlay::draw(model, overlay, &mut canvas);
    }
}

fn draw_too_small(model: &Model, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    let text = format!(
        "{}x{} needed (now {width}x{height}) - {} quits",
        MIN_TERMINAL_SIZE.0,
        MIN_TERMINAL_SIZE.1,
        model.preferences.keymap.exit_key_text()
    );
    let y = height / 2;
    let x = width.saturating_sub(text.width() as u16) / 2;
    canvas.put_text(x, y, &text, Role::Text);
    let worst: Vec<(State, usize)> = model
        .state_counts()
        .into_iter()
        .filter(|(state, _)| !state.is_healthy())
        .collect();
    let mut x = 0;
    for (state, count) in worst {
        x = canvas.put_text(x, y + 1, &format!("{count} {state} "), role_of_state(state));
    }
}

/// Notice shown while the key guard ignores keys that were typed ahead.
pub(super) const KEYS_IGNORED_NOTICE: &str =
    "Typed-ahead keys ignored: pause for half a second, then continue.";

/// Draws the last line: the hints of this screen. As space runs out, help is the last to go.
fn draw_hints(model: &Model, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    let y = height - 1;
    if let Some(prompt) = &model.input_line {
        let (label, text) = match prompt {
            InputLine::Filter(_) => ("filter: ", &model.filter),
            InputLine::Search(_) if model.screen == Screen::Log => ("search: ", &model.log.query),
            InputLine::Search(_) => ("search: ", &model.agent.current_pane().query),
        };
        let x = canvas.put_text(0, y, label, Role::Key);
        let x = canvas.put_untrusted(x, y, text.as_bytes(), Role::Prompt);
        let x = canvas.put_text(x, y, "_", Role::Prompt);
        canvas.put_text(x + 2, y, "Enter apply, Esc cancel", Role::Dim);
        return;
    }
    if model.pending_keys.is_hint_shown {
        let x = canvas.put_text(1, y, "Esc", Role::Key);
        canvas.put_text(x, y, " cancels", Role::Text);
        return;
    }
    let help = format!("{} help", model.key_hint(Command::Help));
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
        let (key, text) = match command::check_enabled(self.command, model) {
            Ok(()) => (Role::Key, Role::Text),
            Err(_) => (Role::Disabled, Role::Disabled),
        };
        let after = canvas.put_text(x, y, &self.keys, key);
        canvas.put_text(after + 1, y, self.text, text) + 2
    }
}

/// Returns the hints of this screen, the most important first.
fn visible_hints(model: &Model) -> Vec<KeyHint> {
    let context = model.key_context();
    let keymap = &model.preferences.keymap;
    let mut specs: Vec<_> = command::offered_commands(model)
        .filter(|spec| !spec.hint.is_empty() && spec.command != Command::Help)
        .filter(|spec| fits_reset_stage(spec.command, model))
        .collect();
    // Outside the fleet, actions come before commands that only show something.
    specs.sort_by_key(|spec| {
        let looks = spec.category != CommandCategory::Actions && context != KeyContext::Fleet;
        (spec.command == Command::Extra, looks)
    });
    let hint = |spec: &command::CommandSpec| {
        // Forward and back share one hint.
        let back = match spec.command {
            Command::NextHunk => Some(Command::PreviousHunk),
            Command::NextAgent => Some(Command::PreviousAgent),
            _ => None,
        };
        let both = [Some(spec.command), back].into_iter().flatten();
        let keys = both.filter_map(|command| keymap.sequences(command).first());
        let keys: Vec<String> = keys.map(|keys| format_sequence(keys)).collect();
        KeyHint {
            command: spec.command,
            keys: keys.join(" "),
            text: match (spec.command, context) {
                (Command::GoBack, KeyContext::Fleet) => "quit",
                _ => spec.hint,
            },
        }
    };
    let mut hints: Vec<KeyHint> = specs.into_iter().map(hint).collect();
    // A command without a key appears only in help and in the palette.
    hints.retain(|hint| !hint.keys.is_empty());
    hints
}

/// Draws the pending questions of hosts in the last line, before column `end`; they stay until they
/// are answered. Returns the column at which they begin.
pub(super) fn draw_pending_question(model: &Model, canvas: &mut Canvas<'_>, end: u16) -> u16 {
    let Some(first) = model.questions.first() else {
        return end;
    };
    let text = match model.questions.len() {
        1 => format!("{} wants {}", first.host, first.short_name()),
        many => format!("{many} questions from hosts"),
    };
    let text = truncate_untrusted(&text, usize::from(end / 2));
    let key = model.key_hint(Command::AnswerQuestion);
    let length = text.width() + key.width() + 3;
    let x = end.saturating_sub(length as u16);
    let y = model.size.1 - 1;
    let after = canvas.put_text(x, y, &key, Role::Key);
    canvas.put_text(after + 1, y, &text, Role::Warn);
    x
}

/// Returns whether a hint fits the current screen and the stage of a reset.
fn fits_reset_stage(command: Command, model: &Model) -> bool {
    use super::model::{Confirmation, ResetStage};
    if let ResetStage::Result(result) = &model.reset.stage
        && model.key_context() == KeyContext::Result
    {
        return match command {
            Command::RetryFailed => !result.failed_agents().is_empty(),
            Command::PlanUndo => !result.changed_agents().is_empty(),
            _ => true,
        };
    }
    if model.key_context() == KeyContext::Log {
        return match command {
            Command::GoLog => false,
            Command::OpenDiff => model.subject_agent().is_some(),
            _ => true,
        };
    }
    if model.key_context() == KeyContext::Agent {
        let texts = matches!(
            command,
            Command::NextHunk | Command::Search | Command::ToggleSideBySide | Command::ToggleWrap
        ) || matches!(
            command,
            Command::ToggleWhitespaceMarks | Command::ToggleFullScreen | Command::OpenPager
        );
        return match command {
            Command::OpenSelected => model.agent.is_list(),
            Command::OpenDiff => model.agent.tab != AgentTab::Diff,
            _ => !(texts && model.agent.is_list()),
        };
    }
    if model.key_context() != KeyContext::Plan {
        return true;
    }
    let ResetStage::Plan(view) = &model.reset.stage else {
        return command == Command::GoBack;
    };
    match command {
        Command::KeepHiddenAgents | Command::DropHiddenAgents => true,
        _ if !view.hidden_agents.is_empty() => command == Command::GoBack,
        Command::ConfirmPlan => view.confirmation == Confirmation::SingleKey,
        Command::UndoAppend | Command::UndoOverwrite => view.has_newer_notes(),
        // Typed letters go into the confirmation.
        Command::Palette | Command::GoLog => {
            !matches!(view.confirmation, Confirmation::TypedText(_))
        }
        _ => true,
    }
}

/// Draws the last message, in a row of its own. Returns the column behind it.
pub(super) fn draw_message(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    room: u16,
) -> u16 {
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

/// The cells to draw into and the theme, shared by all screens.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub(super) theme: &'a Theme,
    pub(super) area: Rect,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, theme: &'a Theme) -> Canvas<'a> {
        let area = buffer.area;
        buffer.set_style(area, theme.style(Role::Text));
        Canvas {
            buffer,
            theme,
            area,
        }
    }

    pub(super) fn width(&self) -> u16 {
        self.area.width
    }

    /// Puts text of the program and returns the column behind it.
    pub(super) fn put_text(&mut self, x: u16, y: u16, text: &str, role: Role) -> u16 {
        self.put_styled(x, y, text, self.theme.style(role))
    }

    pub(super) fn put_styled(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (x, _) = self.buffer.set_stringn(x, y, text, room, style);
        x
    }

    /// Puts untrusted text, made visible, and returns the column behind it.
    pub(super) fn put_untrusted(&mut self, mut x: u16, y: u16, text: &[u8], role: Role) -> u16 {
        for token in untrusted::reveal_line(text, RevealOptions::PROSE) {
            let role = if token.is_mark { Role::Revealed } else { role };
            x = self.put_text(x, y, &token.text, role);
        }
        x
    }

    /// Puts text that ends before column `end`.
    pub(super) fn put_right(&mut self, end: u16, y: u16, text: &str, role: Role) {
        self.put_text(end.saturating_sub(text.width() as u16), y, text, role);
    }

    /// Applies the dim style to a region.
    pub(super) fn dim(&mut self, area: Rect) {
        let area = area.intersection(self.area);
        self.buffer.set_style(area, self.theme.style(Role::Dim));
    }

    pub(super) fn draw_rule(&mut self, y: u16) {
        let line = "─".repeat(usize::from(self.area.width));
        self.put_text(0, y, &line, Role::Rule);
    }

    /// Adds the cursor's style to some cells of a row.
    pub(super) fn highlight_cursor(&mut self, x: u16, y: u16, width: u16) {
        let area = Rect::new(x, y, width, 1).intersection(self.area);
        self.buffer.set_style(area, self.theme.style(Role::Cursor));
    }

    /// Clears a region to blanks in the style of ordinary text.
    pub(super) fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.area);
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
        self.buffer.set_style(area, self.theme.style(Role::Text));
    }
}

/// Returns untrusted text for a column of `width` cells: made visible, and shortened in the middle
/// if it is too long.
pub(super) fn shorten_untrusted(text: &str, width: usize) -> String {
    let text = untrusted::visible_line(text);
    if text.width() <= width {
        return text;
    }
    let room = width.saturating_sub(1);
    let take = |graphemes: &mut dyn Iterator<Item = &str>, room: usize| {
        let mut used = 0;
        let mut taken = Vec::new();
        for grapheme in graphemes {
            used += grapheme.width();
            if used > room {
                break;
            }
            taken.push(grapheme.to_string());
        }
        taken
    };
    let end = take(&mut text.graphemes(true).rev(), room / 2);
    let start = take(&mut text.graphemes(true), room - room / 2);
    let end: String = end.into_iter().rev().collect();
    format!("{}…{end}", start.concat())
}

/// Splits drawable text at the last blank that fits into `room` cells.
pub(super) fn split_at_blank(text: &str, room: usize) -> (&str, &str) {
    if text.width() <= room {
        return (text, "");
    }
    let mut end = 0;
    for (at, _) in text.match_indices(' ') {
        if text[..at].width() > room {
            break;
        }
        end = at;
    }
    (&text[..end], text[end..].trim_start())
}

/// Wraps drawable text into at most `max_lines` lines of `room` cells; truncates the last line if
/// text is left.
pub(super) fn wrap_text(text: &str, room: usize, max_lines: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() && lines.len() + 1 < max_lines {
        let (first, more) = match split_at_blank(rest, room) {
            // A word longer than the line continues on the next one.
            ("", _) => break_word(rest, room),
            parts => parts,
        };
        lines.push(first.to_string());
        rest = more;
    }
    if !rest.is_empty() {
        lines.push(truncate(rest, room));
    }
    lines
}

/// A cause of at most this many cells is kept, however little room there is.
const MIN_CAUSE_CELLS: usize = 20;

/// Cells that a shortened path keeps.
const MIN_PATH_CELLS: usize = 16;

/// Splits off as much as fits, at least one character.
fn break_word(text: &str, room: usize) -> (&str, &str) {
    let mut used = 0;
    let fits = |(at, grapheme): &(usize, &str)| {
        used += grapheme.width();
        *at == 0 || used <= room
    };
    let last = text.grapheme_indices(true).take_while(fits).last();
    text.split_at(last.map_or(text.len(), |(at, grapheme)| at + grapheme.len()))
}

/// Fits an error message into `room` cells and makes it visible. Paths lose their middle first,
/// then the text before the cause, which comes last, is cut. The cause itself is cut only if it is
/// so long that its subject would disappear.
pub(super) fn fit_end_of_sentence(text: &str, room: usize) -> String {
    let text = shorten_paths(text, room);
    match text.rsplit_once(": ") {
        Some((front, cause))
            if text.width() > room && cause.width() <= MIN_CAUSE_CELLS.max(room * 2 / 3) =>
        {
            match room.checked_sub(cause.width() + 3) {
                Some(left) => format!("{}: {cause}", truncate(front, left + 1)),
                None => truncate(cause, room),
            }
        }
        _ => truncate(&text, room),
    }
}

/// Fits a message whose beginning matters most into `room` cells: its end is cut.
pub(super) fn fit_start_of_sentence(text: &str, room: usize) -> String {
    truncate(&shorten_paths(text, room), room)
}

/// Makes text visible and cuts the middle of its paths until it fits into `room` cells, as far as
/// that goes.
pub(super) fn shorten_paths(text: &str, room: usize) -> String {
    let text = untrusted::visible_line(text);
    let mut excess = text.width().saturating_sub(room);
    if excess == 0 {
        return text;
    }
    let words = text.split(' ').map(|word| {
        let width = word.width();
        if excess == 0 || width <= MIN_PATH_CELLS || !word.contains('/') {
            return word.to_string();
        }
        let short = shorten_untrusted(word, width.saturating_sub(excess).max(MIN_PATH_CELLS));
        excess -= excess.min(width - short.width());
        short
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns untrusted text for a column of `width` cells: made visible, and cut at its end.
pub(super) fn truncate_untrusted(text: &str, width: usize) -> String {
    truncate(&untrusted::visible_line(text), width)
}

/// Cuts drawable text at its end to `width` cells.
pub(super) fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut used = 0;
    let mut kept = String::new();
    for grapheme in text.graphemes(true) {
        used += grapheme.width();
        if used > width.saturating_sub(1) {
            break;
        }
        kept.push_str(grapheme);
    }
    kept + "…"
}

/// Formats a number of bytes for people: `812`, `14.1K`, `3.2M`. K is 1024 bytes.
pub(super) fn format_size(bytes: u64) -> String {
    let scaled = |unit: f64| bytes as f64 / unit;
    match bytes {
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => format!("{:.1}K", scaled(1024.0)),
        1_048_576..1_073_741_824 => format!("{:.1}M", scaled(1_048_576.0)),
        _ => format!("{:.1}G", scaled(1_073_741_824.0)),
    }
}

/// Formats a number with its noun, as `1 line` or `2 lines`.
pub(super) fn format_count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => match noun.strip_suffix("ry") {
            Some(noun) => format!("{number} {noun}ries"),
            None => format!("{number} {noun}s"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_keeps_the_cause_of_a_sentence() {
        let text = "resets are BLOCKED: x is 9da80d51, sealed was f024905b";
        assert_eq!(
            fit_end_of_sentence(text, 30),
            "resets are BLOCKED: x is 9da8…"
        );
    }

    #[test]
    fn count_uses_plural() {
        let counted = [(1, "entry"), (2, "entry"), (2, "day"), (0, "line")];
        let counted = counted.map(|(number, noun)| format_count(number, noun));
        assert_eq!(counted, ["1 entry", "2 entries", "2 days", "0 lines"]);
    }

    #[test]
    fn shorten_cuts_the_middle_and_cut_the_end() {
        assert_eq!(shorten_untrusted("code-reviewer", 13), "code-reviewer");
        assert_eq!(shorten_untrusted("code-reviewer", 9), "code…ewer");
        assert_eq!(shorten_untrusted("日本語日本語", 7), "日…語");
        assert_eq!(truncate_untrusted("rules edited", 6), "rules…");
    }

    #[test]
    fn fit_keeps_the_cause_of_an_error() {
        let text =
            "cannot read box:/srv/agents/of/the/whole/fleet/scout/MEMORY.md: Permission denied";
        assert_eq!(fit_end_of_sentence(text, 100), text);
        assert_eq!(
            fit_end_of_sentence(text, 60),
            "cannot read box:/srv/agents…out/MEMORY.md: Permission denied"
        );
        assert_eq!(
            fit_end_of_sentence(text, 30),
            "cannot rea…: Permission denied"
        );
        assert_eq!(fit_end_of_sentence(text, 12), "Permission …");
        assert_eq!(fit_end_of_sentence("rules edited", 6), "rules…");
    }

    #[test]
    fn wrap_breaks_at_blanks_and_inside_long_words() {
        assert_eq!(wrap_text("one two three", 7, 9), ["one two", "three"]);
        assert_eq!(wrap_text("one two three", 7, 1), ["one tw…"]);
        assert_eq!(
            wrap_text("/a/very/long/path", 6, 9),
            ["/a/ver", "y/long", "/path"]
        );
        assert!(wrap_text("", 7, 3).is_empty());
    }

    #[test]
    fn sizes_are_abbreviated() {
        assert_eq!(
            [
                format_size(812),
                format_size(14438),
                format_size(41 << 20),
                format_size(10 << 30)
            ],
            ["812", "14.1K", "41.0M", "10.0G"]
        );
    }
}
