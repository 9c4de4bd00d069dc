//! Lines of an agent's scratch that the operator has marked: to keep them in a push, to copy or to
//! save them. They are remembered with their bytes, so that a memory that changes never swaps one
//! for another.

use std::collections::BTreeMap;

use crate::console::text::TextLine;
use crate::engine::ChosenLines;

/// Chosen lines of one agent's scratch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedLines {
    /// The lines by their numbers in the memory.
    lines: BTreeMap<usize, TextLine>,
    /// Number of the line that was marked last; a range begins there.
    last: Option<usize>,
}

impl MarkedLines {
    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no line is marked.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether the line with this number in the memory is marked.
    pub fn contains(&self, number: usize) -> bool {
        self.lines.contains_key(&number)
    }

    /// Returns the lines in the order of the memory.
    pub fn iter(&self) -> impl Iterator<Item = &TextLine> {
        self.lines.values()
    }

    /// Returns the lines with their numbers, for the plan of a push.
    pub fn to_chosen(&self) -> ChosenLines {
        let lines = self.lines.iter();
        ChosenLines(
            lines
                .map(|(number, line)| (*number, line.bytes.clone()))
                .collect(),
        )
    }

    /// Returns the lines as a text in the order of the memory.
    pub fn to_text(&self) -> Vec<u8> {
        let lines = self.iter().map(|line| line.bytes.as_slice());
        lines.flat_map(|line| [line, b"\n"].concat()).collect()
    }

    /// Marks a line of the memory, or unmarks it.
    pub fn toggle(&mut self, line: &TextLine) {
        let Some(number) = line.new_number else {
            return;
        };
        self.last = None;
        if self.lines.remove(&number).is_none() && !line.is_truncated {
            self.lines.insert(number, line.clone());
            self.last = Some(number);
        }
    }

    /// Marks all lines of a text, except one that is only shown in part.
    pub fn extend(&mut self, text: &[TextLine]) {
        let whole = text.iter().filter(|line| !line.is_truncated);
        let numbered = whole.filter_map(|line| Some((line.new_number?, line.clone())));
        self.lines.extend(numbered);
    }

    /// Unmarks all lines.
    pub fn clear(&mut self) {
        *self = MarkedLines::default();
    }

    /// Whether only blank lines are marked.
    pub fn is_blank(&self) -> bool {
        let is_blank = |line: &TextLine| line.bytes.trim_ascii().is_empty();
        !self.is_empty() && self.iter().all(is_blank)
    }

    /// Unmarks the lines that `others` has with the same bytes. Returns their number.
    pub fn remove_lines(&mut self, others: &MarkedLines) -> usize {
        let count = self.len();
        self.lines.retain(|number, line| {
            let other = others.lines.get(number);
            other.is_none_or(|other| other.bytes != line.bytes)
        });
        self.last = None;
        count - self.len()
    }

    /// Marks the lines of a text from the one that was marked last to `line`.
    pub fn extend_to(&mut self, line: &TextLine, text: &[TextLine]) {
        let Some(number) = line.new_number else {
            return;
        };
        let start = self.last.unwrap_or(number);
        let range = start.min(number)..=start.max(number);
        let is_in_range = |line: &&TextLine| line.new_number.is_some_and(|it| range.contains(&it));
        for line in text.iter().filter(is_in_range) {
            self.extend(std::slice::from_ref(line));
        }
        self.last = Some(number);
    }

    /// Finds the lines again in a changed text. Lines that it has no more are dropped; returns their
    /// number.
    pub fn follow(&mut self, text: &[TextLine]) -> usize {
        let numbered = text
            .iter()
            .filter_map(|line| Some((line.new_number?, line)));
        let numbered: Vec<(usize, &TextLine)> = numbered.collect();
        let is_in_place = |(number, marked): (&usize, &TextLine)| {
            let found = numbered.binary_search_by_key(number, |(number, _)| *number);
            found.is_ok_and(|index| numbered[index].1.bytes == marked.bytes)
        };
        if self.lines.iter().all(is_in_place) {
            return 0;
        }
        let texts = numbered
            .iter()
            .map(|(number, line)| (*number, line.bytes.as_slice()));
        let found = self.to_chosen().find_in(&texts.collect::<Vec<_>>());
        let count = found.len();
        self.lines.clear();
        for number in found.into_iter().flatten() {
            if let Ok(index) = numbered.binary_search_by_key(&number, |(number, _)| *number) {
                self.lines.insert(number, numbered[index].1.clone());
            }
        }
        self.last = None;
        // Blank lines separate others; alone they are not worth keeping.
        if self.is_blank() {
            self.lines.clear();
        }
        count - self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::text::plain_line;

    fn text(lines: &[&str], first: usize) -> Vec<TextLine> {
        let line = |(index, text): (usize, &&str)| TextLine {
            new_number: Some(first + index),
            ..plain_line(text)
        };
        lines.iter().enumerate().map(line).collect()
    }

    fn numbers(marked: &MarkedLines) -> Vec<usize> {
        marked.iter().filter_map(|line| line.new_number).collect()
    }

    fn marked(text: &[TextLine], indices: &[usize]) -> MarkedLines {
        let mut marked = MarkedLines::default();
        for index in indices {
            marked.toggle(&text[*index]);
        }
        marked
    }

    #[test]
    fn range_extends_from_last_marked_line() {
        let text = text(&["a", "b", "c", "d"], 10);
        let mut lines = marked(&text, &[2]);
        lines.extend_to(&text[0], &text);
        assert_eq!(numbers(&lines), [10, 11, 12]);
        lines.toggle(&text[1]);
        assert_eq!(numbers(&lines), [10, 12]);
        lines.extend_to(&text[3], &text);
        assert_eq!(numbers(&lines), [10, 12, 13]);
    }

    #[test]
    fn marked_lines_follow_inserted_and_lost_lines() {
        let old = text(&["a", "", "b", "", "c"], 5);
        let mut lines = marked(&old, &[1, 2, 4]);
        assert_eq!(lines.follow(&text(&["a", "", "b", "", "c", "d"], 5)), 0);
        assert_eq!(numbers(&lines), [6, 7, 9]);
        assert_eq!(lines.follow(&text(&["x", "a", "", "b", "", "c"], 5)), 0);
        assert_eq!(numbers(&lines), [7, 8, 10]);
        assert_eq!(lines.follow(&text(&["", "c"], 9)), 1, "b is lost");
        assert_eq!(numbers(&lines), [9, 10]);
        assert_eq!(lines.follow(&[]), 2);
        assert!(lines.is_empty());
    }

    #[test]
    fn line_shown_in_part_is_never_marked() {
        let mut text = text(&["a", "b", "cut"], 5);
        text[2].is_truncated = true;
        let mut lines = marked(&text, &[2]);
        assert!(lines.is_empty());
        lines.extend(&text);
        assert_eq!(numbers(&lines), [5, 6]);
        lines.extend_to(&text[2], &text);
        assert_eq!(numbers(&lines), [5, 6]);
    }

    proptest::proptest! {
        /// The lines marked afterwards have the bytes of those marked before, in the same order.
        #[test]
        fn followed_lines_keep_bytes_and_order(
            old in proptest::collection::vec("[a-c]{0,1}", 0..20),
            new in proptest::collection::vec("[a-c]{0,1}", 0..20),
            first in 1_usize..5,
        ) {
            let all = |lines: &[String], first| {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                text(&lines, first)
            };
            let before = all(&old, first);
            let mut lines = marked(&before, &(0..before.len()).step_by(2).collect::<Vec<_>>());
            let wanted: Vec<Vec<u8>> = lines.iter().map(|line| line.bytes.clone()).collect();
            let after = all(&new, 3);
            let lost = lines.follow(&after);
            proptest::prop_assert_eq!(lost + lines.len(), wanted.len());
            let mut wanted = wanted.into_iter();
            for line in lines.iter() {
                proptest::prop_assert!(after.contains(line));
                proptest::prop_assert!(wanted.any(|bytes| bytes == line.bytes));
            }
        }
    }
}
