//! The text of the editor: its bytes as lines, the cursor, the selection, undo and search. The
//! editing model is `tui_textarea`; this module adds what an operator expects of it: every byte is
//! kept, one undo for all that was typed in one go, and motions that stay in their line.

use std::ops::Range;

use tui_textarea::{CursorMove, TextArea};

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
    /// Numbers of edits that are undone at once, the last one last.
    undo_steps: Vec<usize>,
    redo_steps: Vec<usize>,
    /// Whether the next edit belongs to the last step.
    is_step_open: bool,
    generation: u64,
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

    fn jump(&mut self, row: usize, column: usize) {
        let narrow = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        self.area
            .move_cursor(CursorMove::Jump(narrow(row), narrow(column)));
    }

    /// Moves the cursor to a line and a column in characters, or as near as there is.
    pub fn go_to(&mut self, row: usize, column: usize) {
        self.wanted_column = None;
        self.jump(row, column);
    }

    /// Moves the cursor by lines; it keeps its column where lines are long enough.
    pub fn move_lines(&mut self, by: isize) {
        let (row, column) = self.cursor();
        let wanted = *self.wanted_column.get_or_insert(column);
        let last = self.lines().len() - 1;
        let row = row.saturating_add_signed(by).min(last);
        self.jump(row, wanted.min(self.line_length(row)));
    }

    /// Moves the cursor by characters within its line.
    pub fn move_columns(&mut self, by: isize) {
        let (row, column) = self.cursor();
        let column = column.saturating_add_signed(by);
        self.go_to(row, column.min(self.line_length(row)));
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
        self.undo_steps.push(0);
        self.is_step_open = true;
    }

    /// Ends a step.
    pub fn end_step(&mut self) {
        self.is_step_open = false;
        self.undo_steps.pop_if(|edits| *edits == 0);
    }

    /// Counts an edit of the text, if there was one.
    fn count_edit(&mut self, has_changed: bool) {
        if !has_changed {
            return;
        }
        self.wanted_column = None;
        self.generation += 1;
        self.redo_steps.clear();
        match self.undo_steps.last_mut().filter(|_| self.is_step_open) {
            Some(edits) => *edits += 1,
            None => self.undo_steps.push(1),
        }
    }

    /// Takes the last step back. Returns false if there is none.
    pub fn undo(&mut self) -> bool {
        self.end_step();
        let Some(edits) = self.undo_steps.pop() else {
            return false;
        };
        for _ in 0..edits {
            self.area.undo();
        }
        self.redo_steps.push(edits);
        self.generation += 1;
        true
    }

    /// Repeats the last step that was taken back. Returns false if there is none.
    pub fn redo(&mut self) -> bool {
        let Some(edits) = self.redo_steps.pop() else {
            return false;
        };
        for _ in 0..edits {
            self.area.redo();
        }
        self.undo_steps.push(edits);
        self.generation += 1;
        true
    }

    /// Types a character.
    pub fn insert_char(&mut self, c: char) {
        self.area.insert_char(c);
        self.count_edit(true);
    }

    /// Ends the line at the cursor.
    pub fn insert_line_end(&mut self) {
        self.area.insert_newline();
        self.count_edit(true);
    }

    /// Types spaces up to the next tab stop.
    pub fn insert_tab(&mut self) {
        let has_changed = self.area.insert_tab();
        self.count_edit(has_changed);
    }

    /// Inserts pasted text. Terminals send CR for the ends of its lines.
    pub fn insert_pasted(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let has_changed = self.area.insert_str(text);
        self.count_edit(has_changed);
    }

    /// Inserts text as it is, CR included.
    fn insert_exact(&mut self, text: &str) {
        // The text area drops one CR at the end of a line.
        let kept = text.replace("\r\n", "\r\r\n");
        let kept = match kept.strip_suffix('\r') {
            Some(_) => kept + "\r",
            None => kept,
        };
        let has_changed = self.area.insert_str(kept);
        self.count_edit(has_changed);
    }

    /// Replaces the whole text in one step. The cursor stays in its line as far as possible.
    pub fn replace_all(&mut self, text: &str) {
        let (row, column) = self.cursor();
        let separator = if self.has_cr_lf { "\r\n" } else { "\n" };
        let lines: Vec<&str> = text.split(separator).collect();
        self.end_step();
        self.begin_step();
        self.area.select_all();
        let has_changed = self.area.cut();
        self.count_edit(has_changed);
        self.insert_exact(&lines.join("\n"));
        self.end_step();
        self.go_to(row, column);
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

    /// Deletes the character before the cursor, or joins the line with the one above.
    pub fn delete_before(&mut self) {
        let has_changed = self.area.delete_char();
        self.count_edit(has_changed);
    }

    /// Deletes the character at the cursor, or joins the line with the one below.
    pub fn delete_after(&mut self) {
        let has_changed = self.area.delete_next_char();
        self.count_edit(has_changed);
    }

    /// Deletes the word before the cursor.
    pub fn delete_word_before(&mut self) {
        let has_changed = self.area.delete_word();
        self.count_edit(has_changed);
    }

    /// Deletes from the beginning of the line to the cursor.
    pub fn delete_line_before(&mut self) {
        let has_changed = self.cursor().1 > 0 && self.area.delete_line_by_head();
        self.count_edit(has_changed);
    }

    /// Cuts the character at the cursor; never the end of the line.
    pub fn cut_char(&mut self) {
        let (row, column) = self.cursor();
        if column < self.line_length(row) {
            self.cut_range((row, column), (row, column + 1));
        }
    }

    /// Cuts the line of the cursor.
    pub fn cut_line(&mut self) {
        let (row, _) = self.cursor();
        let text = self.line(row).to_string();
        let last = self.lines().len() - 1;
        if row < last {
            self.cut_range((row, 0), (row + 1, 0));
        } else if row > 0 {
            self.cut_range(
                (row - 1, self.line_length(row - 1)),
                (row, self.line_length(row)),
            );
            self.go_to(row - 1, 0);
        } else {
            self.cut_range((0, 0), (0, self.line_length(0)));
        }
        self.register = (text, true);
    }

    /// Copies the line of the cursor.
    pub fn copy_line(&mut self) {
        self.register = (self.line(self.cursor().0).to_string(), true);
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
            self.go_to(row, (column + 1).min(self.line_length(row)));
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
            (row, (column + 1).min(self.line_length(row)))
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
        self.select(begin, end);
        let has_changed = self.area.cut();
        self.area.cancel_selection();
        if has_changed {
            self.register = (self.area.yank_text(), false);
        }
        self.count_edit(has_changed);
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
