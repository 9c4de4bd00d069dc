//! The text of the editor: its bytes as lines, the cursor, the selection, undo and search. The
//! editing model is `tui_textarea`; this module adds what an operator expects of it: every byte is
//! kept, one undo for all that was typed in one go, and motions that stay in their line.

use std::ops::Range;

use tui_textarea::{CursorMove, TextArea};

use super::layout::LineLayout;

/// Edits that can be undone.
const MAX_UNDONE_EDITS: usize = 20_000;

/// Largest text, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Largest number of lines, and of characters in a line: positions are 16 bits wide.
const MAX_LINES: usize = 60_000;

/// Spaces that the Tab key types.
const TAB_SPACES: u8 = 4;

/// A text that is edited.
#[derive(Clone, Debug)]
pub struct TextBuffer {
    area: TextArea<'static>,
    /// Whether every line ends with CR LF, as new ones then do. Any other CR is part of its line.
    has_cr_lf: bool,
    /// The other end of the selection; the character there is part of it, as the one at the cursor.
    anchor: Option<(usize, usize)>,
    /// Text that was cut or copied, and whether it is whole lines.
    register: (String, bool),
    /// Column that the cursor keeps while it moves up and down.
    wanted_column: Option<usize>,
    /// Edits that are undone at once, the last ones last.
    undo_steps: Vec<UndoStep>,
    redo_steps: Vec<UndoStep>,
    /// Whether the next edit belongs to the last step.
    is_step_open: bool,
    generation: u64,
    /// Whether an insertion was refused.
    is_refused: bool,
}

/// Edits that are undone and redone at once.
#[derive(Clone, Copy, Debug)]
struct UndoStep {
    edits: usize,
    /// The cursor before them: undo and redo lead there.
    cursor: (usize, usize),
}

/// Why a text cannot be edited here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UneditableText {
    /// Bytes that are not UTF-8: the line of the first ones.
    NotUtf8(usize),
    /// It is too large.
    TooLarge,
}

impl TextBuffer {
    /// Creates a buffer with the cursor at the beginning.
    ///
    /// # Errors
    /// Why the text cannot be edited without losing a byte.
    pub fn from_bytes(bytes: &[u8]) -> Result<TextBuffer, UneditableText> {
        let text = str::from_utf8(bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            UneditableText::NotUtf8(before.iter().filter(|byte| **byte == b'\n').count() + 1)
        })?;
        let feeds = text.matches('\n').count();
        let is_huge_line = |line: &str| line.len() > MAX_LINES;
        if text.len() > MAX_TEXT_BYTES || feeds >= MAX_LINES || text.lines().any(is_huge_line) {
            return Err(UneditableText::TooLarge);
        }
        Ok(TextBuffer::new(text, feeds))
    }

    /// Creates a buffer of text to read: bytes that are not UTF-8 become marks.
    pub fn for_reading(bytes: &[u8]) -> TextBuffer {
        let shown = bytes.get(..MAX_TEXT_BYTES).unwrap_or(bytes);
        let mut text = String::new();
        for chunk in shown.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                text.push_str(&format!("\\x{byte:02X}"));
            }
        }
        let lines: Vec<&str> = text.split('\n').take(MAX_LINES).collect();
        TextBuffer::new(&lines.join("\n"), lines.len() - 1)
    }

    /// Creates a buffer of text to edit, or to read if it cannot be edited.
    pub fn for_any(bytes: &[u8]) -> TextBuffer {
        TextBuffer::from_bytes(bytes).unwrap_or_else(|_| TextBuffer::for_reading(bytes))
    }

    /// Takes the place of a buffer of this generation.
    #[must_use]
    pub fn after_generation(mut self, generation: u64) -> TextBuffer {
        self.generation = generation + 1;
        self
    }

    fn new(text: &str, feeds: usize) -> TextBuffer {
        let has_cr_lf = feeds > 0 && text.matches("\r\n").count() == feeds;
        let separator = if has_cr_lf { "\r\n" } else { "\n" };
        let mut area = TextArea::new(text.split(separator).map(str::to_string).collect());
        area.set_max_histories(MAX_UNDONE_EDITS);
        area.set_tab_length(TAB_SPACES);
        TextBuffer {
            area,
            has_cr_lf,
            anchor: None,
            register: Default::default(),
            wanted_column: None,
            undo_steps: Vec::new(),
            redo_steps: Vec::new(),
            is_step_open: false,
            generation: 0,
            is_refused: false,
        }
    }

    /// Returns the bytes of the text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let separator = if self.has_cr_lf { "\r\n" } else { "\n" };
        self.lines().join(separator).into_bytes()
    }

    /// Returns the number of bytes of the text.
    pub fn size(&self) -> usize {
        let ends = (self.lines().len() - 1) * if self.has_cr_lf { 2 } else { 1 };
        self.lines().iter().map(String::len).sum::<usize>() + ends
    }

    /// Returns the lines without their ends.
    pub fn lines(&self) -> &[String] {
        self.area.lines()
    }

    /// Returns whether every line ends with CR LF.
    pub fn has_cr_lf(&self) -> bool {
        self.has_cr_lf
    }

    /// Returns a number that every change of the text increases.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the line of the cursor and its column in characters, both from 0.
    pub fn cursor(&self) -> (usize, usize) {
        self.area.cursor()
    }

    /// Returns the line of the cursor, and its place in that line in bytes.
    pub fn cursor_byte(&self) -> (usize, usize) {
        let (row, column) = self.cursor();
        (row, byte_of(self.line(row), column))
    }

    /// Returns a line without its end; empty where there is none.
    pub fn line(&self, row: usize) -> &str {
        self.lines().get(row).map_or("", String::as_str)
    }

    fn line_length(&self, row: usize) -> usize {
        self.line(row).chars().count()
    }

    /// Returns the columns of what is shown as one glyph at a column: a character with its combining
    /// marks, or an emoji of several. Empty behind the last one.
    fn glyph_columns(&self, row: usize, column: usize) -> Range<usize> {
        let line = self.line(row);
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
        if line.as_bytes().iter().all(is_plain) {
            return column..(column + 1).min(line.len()).max(column);
        }
        match LineLayout::new(line, usize::MAX).glyph_range(byte_of(line, column)) {
            Some(bytes) => {
                let columns = |bytes: usize| line.get(..bytes).map_or(0, |it| it.chars().count());
                columns(bytes.start)..columns(bytes.end)
            }
            None => column..column,
        }
    }

    fn jump(&mut self, row: usize, column: usize) {
        let column = self.glyph_columns(row, column).start;
        let narrow = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        self.area
            .move_cursor(CursorMove::Jump(narrow(row), narrow(column)));
    }

    /// Moves the cursor to a line and a column in characters, or as near as there is.
    pub fn go_to(&mut self, row: usize, column: usize) {
        self.wanted_column = None;
        self.jump(row, column);
    }

    /// Moves the cursor to the first non-blank character of a line.
    pub fn go_to_line(&mut self, row: usize) {
        let row = row.min(self.lines().len() - 1);
        let is_blank = |c: &char| matches!(c, ' ' | '\t');
        let column = self.line(row).chars().take_while(is_blank).count();
        self.go_to(row, column);
    }

    /// Moves the cursor by lines; it keeps its column where lines are long enough.
    pub fn move_lines(&mut self, by: isize) {
        let (row, column) = self.cursor();
        let wanted = *self.wanted_column.get_or_insert(column);
        let last = self.lines().len() - 1;
        let row = row.saturating_add_signed(by).min(last);
        self.jump(row, wanted.min(self.line_length(row)));
    }

    /// Moves the cursor by a glyph within its line.
    pub fn move_glyph(&mut self, is_forward: bool) {
        let (row, column) = self.cursor();
        let column = match (is_forward, column) {
            (true, _) => self.glyph_columns(row, column).end,
            (false, 0) => 0,
            (false, _) => self.glyph_columns(row, column - 1).start,
        };
        self.go_to(row, column);
    }

    /// Moves the cursor to the next or previous beginning of a word.
    pub fn move_word(&mut self, is_forward: bool) {
        self.wanted_column = None;
        self.area.move_cursor(if is_forward {
            CursorMove::WordForward
        } else {
            CursorMove::WordBack
        });
    }

    /// Moves the cursor to the beginning or the end of its line.
    pub fn move_to_line_end(&mut self, is_forward: bool) {
        let (row, _) = self.cursor();
        let end = if is_forward { self.line_length(row) } else { 0 };
        self.go_to(row, end);
    }

    /// Moves the cursor from behind the last character of its line onto it.
    pub fn rest_on_character(&mut self) {
        let (row, column) = self.cursor();
        let last = self.line_length(row).saturating_sub(1);
        if column > last {
            let wanted = self.wanted_column;
            self.jump(row, last);
            self.wanted_column = wanted;
        }
    }

    /// Makes all edits until [`TextBuffer::end_step`] one step for undo.
    pub fn begin_step(&mut self) {
        self.undo_steps.push(UndoStep {
            edits: 0,
            cursor: self.cursor(),
        });
        self.is_step_open = true;
    }

    /// Ends a step.
    pub fn end_step(&mut self) {
        self.is_step_open = false;
        self.undo_steps.pop_if(|step| step.edits == 0);
    }

    /// Edits the text. `change` returns whether it has changed anything.
    fn edit(&mut self, change: impl FnOnce(&mut TextArea<'static>) -> bool) -> bool {
        let cursor = self.cursor();
        let has_changed = change(&mut self.area);
        self.count_edit(has_changed, cursor);
        has_changed
    }

    /// Counts an edit of the text, if there was one. `cursor` is the one before it.
    fn count_edit(&mut self, has_changed: bool, cursor: (usize, usize)) {
        if !has_changed {
            return;
        }
        self.wanted_column = None;
        self.generation += 1;
        self.redo_steps.clear();
        match self.undo_steps.last_mut().filter(|_| self.is_step_open) {
            Some(step) => step.edits += 1,
            None => self.undo_steps.push(UndoStep { edits: 1, cursor }),
        }
    }

    /// Returns the number of steps that can be taken back.
    pub fn undo_depth(&self) -> usize {
        self.undo_steps.len()
    }

    /// Takes the last step back. Returns false if there is none.
    pub fn undo(&mut self) -> bool {
        self.end_step();
        let Some(step) = self.undo_steps.pop() else {
            return false;
        };
        for _ in 0..step.edits {
            self.area.undo();
        }
        self.redo_steps.push(step);
        self.generation += 1;
        self.go_to(step.cursor.0, step.cursor.1);
        true
    }

    /// Repeats the last step that was taken back. Returns false if there is none.
    pub fn redo(&mut self) -> bool {
        let Some(step) = self.redo_steps.pop() else {
            return false;
        };
        for _ in 0..step.edits {
            self.area.redo();
        }
        self.undo_steps.push(step);
        self.generation += 1;
        self.go_to(step.cursor.0, step.cursor.1);
        true
    }

    /// Whether an insertion at the cursor leaves a text that can be opened again. If not, the next
    /// [`TextBuffer::take_refusal`] says so.
    fn has_room_for(&mut self, text: &str) -> bool {
        let longest = text.split('\n').map(str::len).max().unwrap_or_default();
        let line = self.line(self.cursor().0).len();
        let lines = self.lines().len() + text.matches('\n').count();
        // An inserted LF may become CR LF.
        let size = self.size() + text.len() + text.matches('\n').count();
        let has_room = size <= MAX_TEXT_BYTES && lines <= MAX_LINES && line + longest <= MAX_LINES;
        self.is_refused |= !has_room;
        has_room
    }

    /// Returns whether an insertion was refused since the last call: the text would be too large.
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    /// Types a character.
    pub fn insert_char(&mut self, c: char) {
        if self.has_room_for(c.encode_utf8(&mut [0; 4])) {
            self.edit(|area| {
                area.insert_char(c);
                true
            });
        }
    }

    /// Ends the line at the cursor.
    pub fn insert_line_end(&mut self) {
        if self.has_room_for("\n") {
            self.edit(|area| {
                area.insert_newline();
                true
            });
        }
    }

    /// Adds a line below the cursor, and goes there.
    pub fn open_line_below(&mut self) {
        self.move_to_line_end(true);
        self.insert_line_end();
    }

    /// Adds a line above the cursor, and goes there.
    pub fn open_line_above(&mut self) {
        self.move_to_line_end(false);
        self.insert_line_end();
        self.move_lines(-1);
    }

    /// Types spaces up to the next tab stop.
    pub fn insert_tab(&mut self) {
        if self.has_room_for("    ") {
            self.edit(TextArea::insert_tab);
        }
    }

    /// Inserts pasted text. Terminals send CR for the ends of its lines.
    pub fn insert_pasted(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if self.has_room_for(&text) {
            self.edit(|area| area.insert_str(text));
        }
    }

    /// Inserts text as it is, CR included.
    fn insert_exact(&mut self, text: &str) {
        if !self.has_room_for(text) {
            return;
        }
        // The text area drops one CR at the end of a line.
        let kept = text.replace("\r\n", "\r\r\n");
        let kept = match kept.strip_suffix('\r') {
            Some(_) => kept + "\r",
            None => kept,
        };
        self.edit(|area| area.insert_str(kept));
    }

    /// Whether a whole text can take the place of any other.
    pub fn can_hold(text: &str) -> bool {
        // An inserted LF may become CR LF.
        let size = text.len() + text.matches('\n').count();
        size <= MAX_TEXT_BYTES && TextBuffer::from_bytes(text.as_bytes()).is_ok()
    }

    /// Replaces the whole text in one step. The cursor stays at its text, where that is not changed,
    /// else in its line as far as possible.
    pub fn replace_all(&mut self, text: &str) {
        let (row, column) = self.cursor();
        self.end_step();
        if !TextBuffer::can_hold(text) {
            self.is_refused = true;
            return;
        }
        if self.has_cr_lf && text.matches("\r\n").count() != text.matches('\n').count() {
            self.keep_cr_in_lines();
        }
        let separator = if self.has_cr_lf { "\r\n" } else { "\n" };
        let lines: Vec<&str> = text.split(separator).collect();
        let row = self.row_after_replacement(row, &lines);
        self.begin_step();
        self.edit(|area| {
            area.select_all();
            area.cut()
        });
        self.insert_exact(&lines.join("\n"));
        self.end_step();
        self.go_to(row, column);
    }

    /// Returns where a line is once other lines stand in place of all: lines behind the last change
    /// move with it.
    fn row_after_replacement(&self, row: usize, new: &[&str]) -> usize {
        let old = self.lines();
        let pairs = old.iter().zip(new);
        let before = pairs.take_while(|(old, new)| old == *new).count();
        let pairs = old.iter().rev().zip(new.iter().rev());
        let behind = pairs.take_while(|(old, new)| old == *new).count();
        if row >= before && row + behind >= old.len() {
            (row + new.len()).saturating_sub(old.len())
        } else {
            row
        }
    }

    /// Makes the CR of each line's end part of its line, since a text with other line ends follows.
    /// Undo does not reach beyond that.
    fn keep_cr_in_lines(&mut self) {
        let (generation, cursor) = (self.generation, self.cursor());
        let text = String::from_utf8(self.to_bytes()).unwrap_or_default();
        let lines = text.split('\n').map(str::to_string).collect();
        let register = std::mem::take(&mut self.register);
        *self = TextBuffer::new("", 0);
        self.area = TextArea::new(lines);
        self.area.set_max_histories(MAX_UNDONE_EDITS);
        self.area.set_tab_length(TAB_SPACES);
        self.register = register;
        self.generation = generation;
        self.go_to(cursor.0, cursor.1);
    }

    /// Inserts lines before the line `row`, or behind the last one, in one step.
    pub fn insert_lines(&mut self, row: usize, lines: &[String]) {
        let text = lines.join("\n");
        self.end_step();
        self.begin_step();
        if row < self.lines().len() {
            self.go_to(row, 0);
            self.insert_exact(&format!("{text}\n"));
        } else {
            self.go_to(row - 1, self.line_length(row - 1));
            self.insert_exact(&format!("\n{text}"));
        }
        self.end_step();
    }

    /// Deletes the glyph before the cursor, or joins the line with the one above.
    pub fn delete_before(&mut self) {
        let (row, column) = self.cursor();
        let count = match column {
            0 => 1,
            _ => column - self.glyph_columns(row, column - 1).start,
        };
        for _ in 0..count {
            self.edit(TextArea::delete_char);
        }
    }

    /// Deletes the glyph at the cursor, or joins the line with the one below.
    pub fn delete_after(&mut self) {
        let (row, column) = self.cursor();
        let count = self.glyph_columns(row, column).end - column;
        for _ in 0..count.max(1) {
            self.edit(TextArea::delete_next_char);
        }
    }

    /// Deletes the word before the cursor.
    pub fn delete_word_before(&mut self) {
        self.edit(TextArea::delete_word);
    }

    /// Deletes from the beginning of the line to the cursor.
    pub fn delete_line_before(&mut self) {
        if self.cursor().1 > 0 {
            self.edit(TextArea::delete_line_by_head);
        }
    }

    /// Cuts glyphs from the cursor on; never the end of the line.
    pub fn cut_chars(&mut self, count: usize) {
        let (row, column) = self.cursor();
        let length = self.line_length(row);
        let mut end = column;
        for _ in 0..count {
            if end >= length {
                break;
            }
            end = self.glyph_columns(row, end).end;
        }
        if end > column {
            self.cut_range((row, column), (row, end));
        }
    }

    /// Returns the rows of lines from the cursor on. Of several, none is the empty one behind the
    /// last line end.
    fn rows_from_cursor(&self, count: usize) -> Range<usize> {
        let row = self.cursor().0;
        let mut rows = self.lines().len();
        if row + 1 < rows && self.line(rows - 1).is_empty() {
            rows -= 1;
        }
        row..row.saturating_add(count.max(1)).min(rows)
    }

    /// Cuts lines from that of the cursor on.
    pub fn cut_lines(&mut self, count: usize) {
        let rows = self.rows_from_cursor(count);
        let (row, last) = (rows.start, rows.end - 1);
        let text = self.lines()[rows].join("\n");
        let end = (last, self.line_length(last));
        if last + 1 < self.lines().len() {
            self.cut_range((row, 0), (last + 1, 0));
        } else if row > 0 {
            self.cut_range((row - 1, self.line_length(row - 1)), end);
            self.go_to(row - 1, 0);
        } else {
            self.cut_range((0, 0), end);
        }
        self.register = (text, true);
    }

    /// Copies lines from that of the cursor on.
    pub fn copy_lines(&mut self, count: usize) {
        self.register = (self.lines()[self.rows_from_cursor(count)].join("\n"), true);
    }

    /// Inserts what was cut or copied: lines below that of the cursor, other text behind it.
    pub fn paste_register(&mut self) {
        let (text, is_line) = self.register.clone();
        let (row, column) = self.cursor();
        self.begin_step();
        if is_line {
            self.move_to_line_end(true);
            self.insert_exact(&format!("\n{text}"));
            self.go_to(row + 1, 0);
        } else if !text.is_empty() {
            self.go_to(row, self.glyph_columns(row, column).end);
            self.insert_exact(&text);
        }
        self.end_step();
    }

    /// Returns the text that was cut or copied last.
    pub fn register_text(&self) -> &str {
        &self.register.0
    }

    /// Begins a selection at the cursor.
    pub fn begin_selection(&mut self) {
        self.anchor = Some(self.cursor());
    }

    /// Selects whole lines; the cursor is at the end of the last one.
    pub fn select_lines(&mut self, row: usize, count: usize) {
        let last = row + count.saturating_sub(1);
        self.anchor = Some((row, 0));
        self.go_to(last, self.line_length(last));
    }

    /// Ends the selection. Returns false if there was none.
    pub fn end_selection(&mut self) -> bool {
        self.anchor.take().is_some()
    }

    /// Begins or ends a selection.
    pub fn toggle_selection(&mut self) {
        if !self.end_selection() {
            self.begin_selection();
        }
    }

    /// Returns whether text is selected.
    pub fn is_selecting(&self) -> bool {
        self.anchor.is_some()
    }

    /// Returns begin and end of the selection, each a line and a column in characters.
    fn selection(&self) -> Option<((usize, usize), (usize, usize))> {
        let anchor = self.anchor?;
        let cursor = self.cursor();
        let (begin, (row, column)) = (anchor.min(cursor), anchor.max(cursor));
        // The line's end is a character, too.
        let end = if column < self.line_length(row) || row + 1 == self.lines().len() {
            (row, self.glyph_columns(row, column).end)
        } else {
            (row + 1, 0)
        };
        Some((begin, end))
    }

    /// Returns the selected bytes of a line.
    pub fn selected_range(&self, row: usize) -> Option<Range<usize>> {
        let (begin, end) = self.selection()?;
        if !(begin.0..=end.0).contains(&row) {
            return None;
        }
        let line = self.line(row);
        let from = if row == begin.0 {
            byte_of(line, begin.1)
        } else {
            0
        };
        let to = if row == end.0 {
            byte_of(line, end.1)
        } else {
            line.len()
        };
        Some(from..to)
    }

    /// Cuts the selected text and ends the selection.
    pub fn cut_selection(&mut self) {
        if let Some((begin, end)) = self.selection() {
            self.anchor = None;
            self.go_to(begin.0, begin.1);
            self.cut_range(begin, end);
            self.keep_lines_whole(begin, end);
        }
    }

    /// Pastes what was cut or copied as lines, if it is whole lines.
    fn keep_lines_whole(&mut self, begin: (usize, usize), end: (usize, usize)) {
        if begin.1 == 0 && end.1 == 0 && begin.0 < end.0 {
            let (text, is_line) = &mut self.register;
            *is_line = text.ends_with('\n') && text.pop().is_some();
        }
    }

    /// Copies the selected text and ends the selection.
    pub fn copy_selection(&mut self) {
        if let Some((begin, end)) = self.selection() {
            self.anchor = None;
            self.select(begin, end);
            self.area.copy();
            self.register = (self.area.yank_text(), false);
            self.keep_lines_whole(begin, end);
            self.go_to(begin.0, begin.1);
        }
    }

    fn select(&mut self, begin: (usize, usize), end: (usize, usize)) {
        self.jump(begin.0, begin.1);
        self.area.start_selection();
        self.jump(end.0, end.1);
    }

    fn cut_range(&mut self, begin: (usize, usize), end: (usize, usize)) {
        let cursor = self.cursor();
        self.select(begin, end);
        let has_changed = self.area.cut();
        self.area.cancel_selection();
        if has_changed {
            self.register = (self.area.yank_text(), false);
        }
        self.count_edit(has_changed, cursor);
    }

    /// Sets the text to search for, in any case; empty for none.
    pub fn set_query(&mut self, query: &str) {
        let mut pattern = String::new();
        for c in query.chars() {
            if c.is_ascii_punctuation() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        let pattern = if pattern.is_empty() {
            pattern
        } else {
            format!("(?i){pattern}")
        };
        // Every character that has a meaning is escaped, so only a text that is too long fails.
        if self.area.set_search_pattern(pattern).is_err() {
            let _ = self.area.set_search_pattern("");
        }
    }

    /// Moves the cursor to the next or previous hit, around the ends of the text. Returns false if
    /// there is none.
    pub fn go_to_hit(&mut self, is_forward: bool, includes_cursor: bool) -> bool {
        self.wanted_column = None;
        if is_forward {
            self.area.search_forward(includes_cursor)
        } else {
            self.area.search_back(includes_cursor)
        }
    }

    /// Returns the hits of the search in a line, in bytes.
    pub fn hits(&self, row: usize) -> Vec<Range<usize>> {
        let Some(pattern) = self.area.search_pattern() else {
            return Vec::new();
        };
        let found = pattern.find_iter(self.line(row));
        found.map(|hit| hit.range()).collect()
    }

    /// Returns the number of hits in the text.
    pub fn count_hits(&self) -> usize {
        let Some(pattern) = self.area.search_pattern() else {
            return 0;
        };
        let lines = self.lines().iter();
        lines.map(|line| pattern.find_iter(line).count()).sum()
    }
}

/// Returns the place of a column in bytes; the end of the line if it is shorter.
pub fn byte_of(line: &str, column: usize) -> usize {
    line.char_indices()
        .nth(column)
        .map_or(line.len(), |(at, _)| at)
}
