//! The text of the editor: its bytes as lines, the cursor, the selection, undo and search. The
//! editing model is `tui_textarea`; this module adds what an operator expects of it: every byte is
//! kept, one undo for all that was typed in one go, and motions that stay in their line.

pub mod register;
pub mod replacement;
pub mod search;
pub mod selection;

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
        TextBuffer {
            area: new_area(text.split(separator).map(str::to_string).collect()),
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

    /// Ends a step, and makes all edits until [`TextBuffer::end_step`] one step for undo.
    pub fn begin_step(&mut self) {
        self.end_step();
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
}

fn new_area(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(lines);
    area.set_max_histories(MAX_UNDONE_EDITS);
    area.set_tab_length(TAB_SPACES);
    area
}

/// Returns the place of a column in bytes; the end of the line if it is shorter.
pub fn byte_of(line: &str, column: usize) -> usize {
    line.char_indices()
        .nth(column)
        .map_or(line.len(), |(at, _)| at)
}
