//! Lines of an agent's scratch on their way into a baseline. They are hostile: what they hide becomes
//! visible text, and no line may move the separator under which the agent writes.

use super::buffer::TextBuffer;
use crate::base::untrusted;
use crate::boundary::{InsertionPoint, displaced_separator, is_separator};
use crate::console::screens::editor::buffer::replacement::insert_lines;

/// Lines of an agent's scratch that an operator promotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotedLines {
    /// The agent.
    pub agent: String,
    /// The lines, without their line feeds.
    pub lines: Vec<Vec<u8>>,
}

/// Where promoted lines go, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// Line of the text before which they go, from 0.
    pub row: usize,
    /// The lines.
    pub lines: Vec<String>,
    /// Whether hidden characters became visible marks.
    pub has_marks: bool,
    /// Whether a blank line follows: right below a paragraph, dashes are not a separator.
    pub is_padded: bool,
}

impl Insertion {
    /// Plans to insert lines at the end of the part above the separator; at the end of a text without
    /// one.
    ///
    /// # Errors
    /// Why the lines cannot be inserted: they would become or hide a separator.
    pub fn plan(
        text: &TextBuffer,
        promoted: &PromotedLines,
        separators: &[&str],
    ) -> Result<Insertion, String> {
        let mut has_marks = false;
        let visible = promoted.lines.iter().map(|line| {
            let (line, is_marked) =
                untrusted::escape_hidden(line.strip_suffix(b"\r").unwrap_or(line));
            has_marks |= is_marked;
            line
        });
        let lines: Vec<String> = visible.collect();
        let is_any = |line: &&String| {
            let mut separators = separators.iter();
            separators.any(|it| is_separator(line.as_bytes(), it.as_bytes()))
        };
        if let Some(line) = lines.iter().find(is_any) {
            let line = line.trim_ascii_end();
            return Err(format!(
                "a line is the separator {line}, which would end the baseline there: unmark it"
            ));
        }
        let bytes = text.to_bytes();
        let InsertionPoint { row, is_padded } = InsertionPoint::find(&bytes, separators);
        let insertion = Insertion {
            row,
            lines,
            has_marks,
            is_padded,
        };
        let mut after = text.clone();
        insert_lines(&mut after, insertion.row, &insertion.text_lines());
        insertion.check(&bytes, &after.to_bytes(), separators)?;
        Ok(insertion)
    }

    /// Returns the lines to insert.
    pub fn text_lines(&self) -> Vec<String> {
        let padding = self.is_padded.then(String::new);
        self.lines.iter().cloned().chain(padding).collect()
    }

    /// Checks that a text with the lines can be edited, and is cut where it was cut before.
    fn check(&self, before: &[u8], after: &[u8], separators: &[&str]) -> Result<(), String> {
        if TextBuffer::from_bytes(after).is_err() {
            return Err("the baseline would become too large for this editor".to_string());
        }
        let added = self.text_lines().len();
        match displaced_separator(before, after, added, separators) {
            Some(separator) => Err(format!(
                "the lines would hide the separator {separator}: mark the end of their code block, too"
            )),
            None => Ok(()),
        }
    }
}
