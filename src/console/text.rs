//! Text panes: lines of raw bytes, with folding, two sides, scrolling, wrapping and search. Bytes
//! are made visible only when they are drawn. Pure: no input or output.

mod arrangement;
mod comparison;
mod cursor;
mod file_changes;
mod prepare;
mod rows;
mod rules;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

pub use arrangement::{Arrangement, PaneItem};
pub use comparison::{ComparedTexts, Comparison, TextOptions};
pub use file_changes::{prepare_file_changes, prepare_recorded_changes};
pub use prepare::{
    PreparedText, prepare_baseline_diff, prepare_comparison, prepare_diff, prepare_entry,
    prepare_item, prepare_run_diff, prepare_scratch, prepare_whole,
};
pub use rows::PaneRow;
pub use rules::prepare_rules;

use crate::console::theme::Role;

/// Kind of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineKind {
    /// Text that both versions have, or text that is not compared.
    #[default]
    Same,
    /// Added by the agent.
    Added,
    /// Removed by the agent.
    Removed,
    /// The boundary.
    Separator,
    /// Text of the program, not of the file.
    Note,
}

impl LineKind {
    /// Returns whether the line is in one of two texts only.
    pub fn is_changed(self) -> bool {
        matches!(self, LineKind::Added | LineKind::Removed)
    }
}

/// The tones of a line, by byte ranges in ascending order that do not overlap.
pub type Tones = Vec<(Range<usize>, Role)>;

/// Lines that are compared to tell a line from equal ones elsewhere.
const MATCH_CONTEXT_LINES: usize = 16;

/// One line of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextLine {
    /// Its kind.
    pub kind: LineKind,
    /// Its number in the baseline.
    pub old_number: Option<usize>,
    /// Its number in the memory.
    pub new_number: Option<usize>,
    /// Its bytes, without the line feed; in notes, text of the program.
    pub bytes: Vec<u8>,
    /// The bytes of a changed line that changed; of an equal one, those that a search found.
    pub changed_ranges: Vec<Range<usize>>,
    /// Whether it is one of a removed and an added line that replace each other.
    pub is_paired: bool,
    /// The baseline's bytes of an equal line, if they differ in blanks.
    pub old_bytes: Option<Vec<u8>>,
    /// Whether a changed line lacks its line feed.
    pub lacks_line_feed: bool,
    /// Whether text behind it is not shown, of this line or of the whole text.
    pub is_truncated: bool,
    /// The tones of its pieces.
    pub tones: Tones,
}

impl TextLine {
    /// Whether a search of the archives emphasizes ranges of it: a line that did not change has none
    /// else.
    pub fn has_found_ranges(&self) -> bool {
        self.kind == LineKind::Same && !self.changed_ranges.is_empty()
    }

    /// Creates the line of the boundary.
    pub fn separator(text: impl Into<String>) -> TextLine {
        TextLine {
            kind: LineKind::Separator,
            ..TextLine::note(text)
        }
    }

    /// Creates a line of the program's own text.
    pub fn note(text: impl Into<String>) -> TextLine {
        TextLine {
            kind: LineKind::Note,
            bytes: text.into().into_bytes(),
            ..TextLine::default()
        }
    }
}

/// A run of cells of one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StyledSpan {
    /// The text; safe to draw.
    pub text: String,
    /// Whether it was made visible; no agent's text can have its style.
    pub is_mark: bool,
    /// Whether it is part of a changed word.
    pub is_emphasized: bool,
    /// Its tone.
    pub tone: Role,
}

/// Options for drawing a pane's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaneStyle {
    /// Wrap long lines instead of truncating them.
    pub is_wrapping: bool,
    /// Mark ordinary whitespace as well.
    pub is_whitespace_marked: bool,
    /// The text is not a diff: known emoji sequences are drawn as they are.
    pub is_prose: bool,
    /// Put `[-…-]` and `{+…+}` around changed words, for themes without colour.
    pub has_word_marks: bool,
    /// Width of each half in cells, if two texts are side by side.
    pub half_width: usize,
}

/// A text in a pane, with its layout, search and scroll position.
#[derive(Clone, Debug, Default)]
pub struct Pane {
    /// All lines.
    pub lines: Vec<TextLine>,
    /// The visible lines and folds, in order.
    pub items: Vec<PaneItem>,
    /// The rules by which `items` are made.
    pub arrangement: Arrangement,
    /// The items at which hunks begin, as indices.
    pub hunks: Vec<usize>,
    /// The item at the top, and how many of its rows are above the top.
    pub top: (usize, usize),
    /// The search query in lower case; empty without a search.
    pub query: String,
    /// The items that match the query, as indices.
    pub hits: Vec<usize>,
    /// The current hit, as an index into `hits`.
    pub current_hit: usize,
    /// Lines that were added above the top by the last change of the text.
    pub lines_added_above: usize,
    /// The line under the cursor, as an index, in a text whose lines can be marked.
    pub cursor_line: usize,
    /// The other form of the text, if there is one: with or without changes of whitespace only.
    alternate: Option<Vec<TextLine>>,
    /// Whether the form that ignores whitespace is shown where there is one.
    ignores_whitespace: bool,
}

impl Pane {
    /// Replaces the text and keeps the line at the top in place. Lines that the old text had as
    /// well keep their tones.
    pub fn replace_lines(&mut self, mut lines: Vec<TextLine>) {
        let toned = self.lines.iter().filter(|line| !line.tones.is_empty());
        let known_tones: HashMap<&[u8], &Tones> = toned
            .map(|line| (line.bytes.as_slice(), &line.tones))
            .collect();
        if !known_tones.is_empty() {
            for line in lines.iter_mut().filter(|line| line.kind == LineKind::Same) {
                if let Some(tones) = known_tones.get(line.bytes.as_slice()) {
                    line.tones = (*tones).clone();
                }
            }
        }
        let old_top = self.top_line();
        let new_top = old_top.map(|old_top| (old_top, self.find_again(old_top, &lines)));
        self.cursor_line = if self.cursor_line == 0 {
            0
        } else {
            self.find_again(self.cursor_line, &lines)
        };
        self.lines = lines;
        self.lay_out();
        if let Some((old_top, new_top)) = new_top.filter(|_| self.top.0 > 0) {
            self.lines_added_above = new_top.saturating_sub(old_top);
            self.top.0 = self.item_of_line(new_top);
        }
    }

    /// Shows a prepared text in place of the old one.
    pub fn show(&mut self, text: PreparedText) {
        let (lines, alternate) = match text.ignoring_whitespace {
            Some(lines) if self.ignores_whitespace => (lines, Some(text.lines)),
            other => (text.lines, other),
        };
        self.replace_lines(lines);
        self.alternate = alternate;
    }

    /// Removes the text; the arrangement stays.
    pub fn clear(&mut self) {
        *self = Pane {
            arrangement: self.arrangement,
            ignores_whitespace: self.ignores_whitespace,
            ..Pane::default()
        };
    }

    /// Shows the form of the text that ignores whitespace, or the exact one.
    pub fn set_whitespace_ignored(&mut self, is_ignored: bool) {
        if std::mem::replace(&mut self.ignores_whitespace, is_ignored) == is_ignored {
            return;
        }
        if let Some(lines) = self.alternate.take() {
            self.alternate = Some(self.lines.clone());
            self.replace_lines(lines);
            self.lines_added_above = 0;
        }
    }

    /// Returns the index of one of this pane's lines in a changed text; the nearest one if the text
    /// has it no more.
    fn find_again(&self, old_index: usize, lines: &[TextLine]) -> usize {
        let same = |behind: usize, index: usize| {
            let pair = self.lines.get(old_index + behind).zip(lines.get(index));
            pair.is_some_and(|(old, new)| old.bytes == new.bytes)
        };
        let found = (0..lines.len()).filter(|index| same(0, *index));
        // Of several equal lines, such as empty ones, the one with the same text behind it.
        let likely = |index: &usize| {
            let following =
                (0..MATCH_CONTEXT_LINES).take_while(|behind| same(*behind, index + behind));
            (Reverse(following.count()), index.abs_diff(old_index))
        };
        let end = lines.len().saturating_sub(1);
        found.min_by_key(likely).unwrap_or(old_index).min(end)
    }

    /// Changes the arrangement and keeps the line at the top in place.
    pub fn set_arrangement(&mut self, arrangement: Arrangement) {
        if self.arrangement != arrangement {
            self.arrangement = arrangement;
            self.change_keeping_top(|_| {});
        }
    }

    /// Applies tones to equal lines, by their numbers in the memory.
    pub fn apply_tones(&mut self, tones: &HashMap<usize, Tones>) {
        for line in &mut self.lines {
            let of = line.new_number.filter(|_| line.kind == LineKind::Same);
            line.tones = of
                .and_then(|new| tones.get(&new))
                .cloned()
                .unwrap_or_default();
        }
    }

    /// Returns whether the pane is arranged in two sides and has changes to show.
    pub fn is_side_by_side(&self) -> bool {
        self.arrangement.is_side_by_side && !self.hunks.is_empty()
    }

    /// Applies a change and lays out the lines again; the line at the top stays in place.
    fn change_keeping_top(&mut self, change: impl FnOnce(&mut Pane)) {
        let top_line = self.top_line();
        // At the very beginning the pane stays there, unless it begins with a fold: then the text
        // that is read must not move.
        let is_folded = matches!(self.items.first(), Some(PaneItem::Folded(..)));
        let is_kept = self.top != (0, 0) || is_folded;
        change(self);
        self.lay_out();
        self.lines_added_above = 0;
        if let Some(top_line) = top_line.filter(|_| is_kept) {
            self.top = (self.item_of_line(top_line), 0);
        }
    }

    fn lay_out(&mut self) {
        let is_hit = |line: &TextLine| {
            if self.query.is_empty() {
                return line.has_found_ranges();
            }
            let text = String::from_utf8_lossy(&line.bytes).to_lowercase();
            text.contains(&self.query)
        };
        let has_search =
            !self.query.is_empty() || self.lines.iter().any(TextLine::has_found_ranges);
        let hits: Vec<usize> = if !has_search {
            Vec::new()
        } else {
            (0..self.lines.len())
                .filter(|at| is_hit(&self.lines[*at]))
                .collect()
        };
        let hunks = arrangement::find_hunks(&self.lines);
        let arrangement = Arrangement {
            is_side_by_side: self.arrangement.is_side_by_side && !hunks.is_empty(),
            ..self.arrangement
        };
        self.items = arrangement::arrange_lines(&self.lines, arrangement, &hits);
        let item_indices = arrangement::item_indices(&self.items, self.lines.len());
        let items_of = |lines: Vec<usize>| {
            let mut items: Vec<usize> = lines.into_iter().map(|line| item_indices[line]).collect();
            items.sort_unstable();
            items.dedup();
            items
        };
        self.hunks = items_of(hunks);
        self.hits = items_of(hits);
        self.current_hit = self.current_hit.min(self.hits.len().saturating_sub(1));
        self.top.0 = self.top.0.min(self.items.len().saturating_sub(1));
    }

    /// Describes the current hunk, such as "hunk 2/5"; `None` without hunks.
    pub fn describe_hunk(&self, height: usize) -> Option<String> {
        let current = self.current_hunk(height).map_or(0, |hunk| hunk + 1);
        (!self.hunks.is_empty()).then(|| format!("hunk {current}/{}", self.hunks.len()))
    }

    /// Returns the current line: that of the current hit, else the one at the top.
    pub fn current_line(&self) -> Option<usize> {
        let hit = self.hits.get(self.current_hit);
        let hit = hit.and_then(|hit| self.items.get(*hit));
        hit.map(|item| item.main_line()).or_else(|| self.top_line())
    }

    fn top_line(&self) -> Option<usize> {
        let end = self.lines.len().saturating_sub(1);
        self.items.get(self.top.0).map(|item| match *item {
            PaneItem::Folded(first, count) => (first + count).min(end),
            item => item.main_line(),
        })
    }

    /// Returns the item that contains a line.
    fn item_of_line(&self, line: usize) -> usize {
        let found = self.items.iter().position(|item| item.contains_line(line));
        found.unwrap_or(0)
    }

    /// Scrolls by rows, down if positive; by far more than there are, to an end.
    pub fn scroll(&mut self, rows: isize, width: usize, height: usize, style: PaneStyle) {
        self.lines_added_above = 0;
        let by = rows.unsigned_abs();
        if rows < isize::MIN / 4 {
            self.scroll_to_start();
        } else if rows > isize::MAX / 4 {
            self.scroll_to_end(width, height, style);
        } else if rows > 0 {
            self.scroll_down(by, width, height, style);
        } else {
            self.scroll_up(by, width, style);
        }
    }

    /// Scrolls down, at most until the last row is visible.
    fn scroll_down(&mut self, by: usize, width: usize, height: usize, style: PaneStyle) {
        let visible_end = self.top.1 + height;
        let (mut counts, mut rows) = (Vec::new(), 0);
        for item in self.top.0..self.items.len() {
            if rows >= visible_end.saturating_add(by) {
                break;
            }
            let count = self.rows(item, width, style).len();
            counts.push(count);
            rows += count;
        }
        self.top.1 += by.min(rows.saturating_sub(visible_end));
        for count in counts {
            if self.top.1 < count {
                break;
            }
            self.top = (self.top.0 + 1, self.top.1 - count);
        }
    }

    fn scroll_up(&mut self, by: usize, width: usize, style: PaneStyle) {
        let mut remaining = by;
        while remaining > self.top.1 && self.top.0 > 0 {
            remaining -= self.top.1 + 1;
            let item = self.top.0 - 1;
            self.top = (item, self.rows(item, width, style).len() - 1);
        }
        self.top.1 = self.top.1.saturating_sub(remaining);
    }

    fn scroll_to_start(&mut self) {
        self.lines_added_above = 0;
        self.top = (0, 0);
    }

    fn scroll_to_end(&mut self, width: usize, height: usize, style: PaneStyle) {
        let last = self.items.len().saturating_sub(1);
        self.top = (last, self.rows(last, width, style).len() - 1);
        self.scroll_up(height.saturating_sub(1), width, style);
    }

    /// Moves the top to an existing row after the width or the style has changed.
    pub fn clamp_top(&mut self, width: usize, style: PaneStyle) {
        if self.top.1 > 0 {
            let rows = self.rows(self.top.0, width, style).len();
            self.top.1 = self.top.1.min(rows - 1);
        }
    }

    /// Scrolls so that an item is a quarter of the height below the top.
    pub fn scroll_to_item(&mut self, item: usize, height: usize) {
        self.lines_added_above = 0;
        let top = item.saturating_sub(height / 4);
        self.top = (top.min(self.items.len().saturating_sub(1)), 0);
    }

    /// Scrolls to the first hunk, if there is one.
    pub fn scroll_to_first_hunk(&mut self, height: usize) {
        if let Some(hunk) = self.hunks.first().copied() {
            self.scroll_to_item(hunk, height);
        }
    }

    /// Goes to the next or previous hunk, counted from [`Pane::current_hunk`].
    pub fn go_to_hunk(&mut self, is_forward: bool, height: usize) {
        let current = self.current_hunk(height);
        let next = match (current, is_forward) {
            (None, true) => 0,
            (Some(current), true) => current + 1,
            (None, false) => return,
            (Some(0), false) => return self.scroll_to_item(0, height),
            (Some(current), false) => current - 1,
        };
        if let Some(item) = self.hunks.get(next) {
            self.scroll_to_item(*item, height);
        }
    }

    /// Returns the last hunk that begins above the row where [`Pane::scroll_to_item`] puts items.
    pub fn current_hunk(&self, height: usize) -> Option<usize> {
        let anchor = self.top.0 + height / 4;
        self.hunks.iter().rposition(|item| *item <= anchor)
    }

    /// Searches for text, ignoring case; an empty query ends the search. Matching lines are not
    /// folded.
    pub fn search(&mut self, query: &str) {
        let query = query.to_lowercase();
        self.change_keeping_top(|pane| pane.query = query);
    }

    /// Goes to the first hit at or below the top.
    pub fn go_to_first_hit(&mut self, height: usize) {
        let below = self.hits.iter().position(|item| *item >= self.top.0);
        self.current_hit = below.unwrap_or(0);
        self.scroll_to_current_hit(height);
    }

    /// Goes to the next or previous hit, wrapping around at the ends.
    pub fn go_to_next_hit(&mut self, is_forward: bool, height: usize) {
        let count = self.hits.len();
        if count > 0 {
            self.current_hit = (self.current_hit + if is_forward { 1 } else { count - 1 }) % count;
            self.scroll_to_current_hit(height);
        }
    }

    /// Scrolls to the current hit, if there is one.
    pub fn scroll_to_current_hit(&mut self, height: usize) {
        if let Some(item) = self.hits.get(self.current_hit) {
            self.scroll_to_item(*item, height);
        }
    }

    /// Returns an item as rows of at most `width` cells, or of two halves; at least one row.
    pub fn rows(&self, item: usize, width: usize, style: PaneStyle) -> Vec<PaneRow> {
        match self.items.get(item) {
            Some(item) => rows::lay_out_item(&self.lines, *item, width, style),
            None => vec![PaneRow::default()],
        }
    }
}

/// Returns a line of a text, for tests.
#[cfg(test)]
pub(in crate::console) fn plain_line(text: &str) -> TextLine {
    TextLine {
        kind: LineKind::Same,
        ..TextLine::note(text)
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    /// Returns the rows of a single line.
    fn rows(line: &TextLine, width: usize, style: PaneStyle) -> Vec<Vec<StyledSpan>> {
        let rows = rows::lay_out_item(
            std::slice::from_ref(line),
            PaneItem::FullWidth(0),
            width,
            style,
        );
        rows.into_iter().map(|row| row.spans).collect()
    }

    const TEST_STYLE: PaneStyle = PaneStyle {
        is_wrapping: true,
        is_whitespace_marked: false,
        is_prose: false,
        has_word_marks: false,
        half_width: 0,
    };

    fn pane(lines: &[&str]) -> Pane {
        let mut pane = Pane::default();
        pane.replace_lines(lines.iter().map(|text| plain_line(text)).collect());
        pane
    }

    fn text(rows: &[Vec<StyledSpan>]) -> Vec<String> {
        let join = |row: &Vec<StyledSpan>| row.iter().map(|span| span.text.as_str()).collect();
        rows.iter().map(join).collect()
    }

    #[test]
    fn lines_wrap_at_blanks_and_inside_long_words() {
        let rows_of = |line: &str, width| text(&rows(&plain_line(line), width, TEST_STYLE));
        assert_eq!(rows_of("one two three", 8), ["one two ", "three"]);
        assert_eq!(rows_of("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(rows_of("日本語", 4), ["日本", "語"]);
        assert_eq!(rows_of("", 4), [""]);
    }

    #[test]
    fn truncated_line_ends_with_ellipsis() {
        let style = PaneStyle {
            is_wrapping: false,
            ..TEST_STYLE
        };
        let line = plain_line("日本語abc");
        assert_eq!(text(&rows(&line, 6, style)), ["日本…"]);
        assert_eq!(text(&rows(&line, 9, style)), ["日本語abc"]);
    }

    #[test]
    fn scroll_stops_at_ends_and_counts_wrapped_rows() {
        let mut pane = pane(&["one two", "three", "four"]);
        pane.scroll(1, 4, 2, TEST_STYLE);
        assert_eq!(pane.top, (0, 1), "the second row of the first line");
        pane.scroll(10, 4, 2, TEST_STYLE);
        assert_eq!(
            pane.top,
            (1, 1),
            "th-ree, four: the last two rows are three's second and four"
        );
        pane.scroll(-10, 4, 2, TEST_STYLE);
        assert_eq!(pane.top, (0, 0));
        pane.scroll_to_end(4, 2, TEST_STYLE);
        assert_eq!(pane.top, (1, 1));
    }

    #[test]
    fn changed_text_keeps_its_top_line() {
        let mut pane = pane(&["a", "b", "c", "d"]);
        pane.scroll(2, 10, 1, TEST_STYLE);
        let lines = ["x", "y", "a", "b", "c", "d"];
        pane.replace_lines(lines.iter().map(|t| plain_line(t)).collect());
        assert_eq!(pane.lines[pane.top.0].bytes, b"c");
        assert_eq!(pane.lines_added_above, 2);
    }

    /// Returns a pane of lines; `+` and `-` begin changed ones.
    fn changed(lines: &[&str], context: Option<usize>, sides: bool) -> Pane {
        let line = |text: &&str| TextLine {
            kind: match text.as_bytes().first() {
                Some(b'+') => LineKind::Added,
                Some(b'-') => LineKind::Removed,
                _ => LineKind::Same,
            },
            ..plain_line(text)
        };
        let mut pane = Pane {
            arrangement: Arrangement {
                context_lines: context,
                is_side_by_side: sides,
            },
            ..Pane::default()
        };
        pane.replace_lines(lines.iter().map(line).collect());
        pane
    }

    #[test]
    fn search_hits_are_unfolded_and_top_line_stays() {
        let lines = ["a", "b", "c", "d", "-e", "f", "g", "h", "i"];
        let mut pane = changed(&lines, Some(0), false);
        assert_eq!(
            pane.items,
            [
                PaneItem::Folded(0, 4),
                PaneItem::FullWidth(4),
                PaneItem::Folded(5, 4)
            ]
        );
        pane.search("b");
        assert_eq!(pane.hits, [1]);
        assert_eq!(
            pane.items[..2],
            [PaneItem::FullWidth(0), PaneItem::FullWidth(1)]
        );
        pane.search("");
        assert_eq!(pane.items.len(), 3);
        pane.set_arrangement(Arrangement::default());
        assert_eq!(
            pane.items[pane.top.0],
            PaneItem::FullWidth(4),
            "the change is still there"
        );
        pane.scroll(-9, 9, 1, TEST_STYLE);
        pane.set_arrangement(Arrangement {
            context_lines: Some(1),
            is_side_by_side: false,
        });
        assert_eq!(
            pane.top,
            (0, 0),
            "from the beginning one sees the beginning"
        );
    }

    #[test]
    fn hunks_do_not_depend_on_context() {
        let mut lines = vec!["-a"];
        lines.extend(["."; 6]);
        lines.push("+b");
        lines.extend(["."; 7]);
        lines.push("+c");
        for context in [Some(0), Some(3), None] {
            let pane = changed(&lines, context, false);
            let begins: Vec<usize> = pane
                .hunks
                .iter()
                .map(|at| pane.items[*at].main_line())
                .collect();
            assert_eq!(begins, [0, 15]);
        }
    }

    #[test]
    fn side_by_side_rows_follow_the_longer_side() {
        let style = PaneStyle {
            half_width: 5,
            ..TEST_STYLE
        };
        let mut pane = changed(&["same", "-one two three", "+1"], None, true);
        assert!(pane.is_side_by_side());
        pane.lines[2].lacks_line_feed = true;
        let sides = |item| {
            let rows = pane.rows(item, 20, style);
            let join = |spans: &Vec<StyledSpan>| text(std::slice::from_ref(spans)).concat();
            rows.iter()
                .map(|row| (join(&row.spans), join(&row.right_spans)))
                .collect::<Vec<_>>()
        };
        let pair = |left: &str, right: &str| (left.to_string(), right.to_string());
        assert_eq!(sides(0), [pair("same", "same")]);
        let expected = [
            pair("-one ", "+1"),
            pair("two ", "(no …"),
            pair("three", ""),
        ];
        assert_eq!(sides(1), expected);
    }

    #[test]
    fn tones_change_no_row_and_cover_their_text() {
        let mut line = plain_line("say `one two` größer **three**");
        let plain = text(&rows(&line, 9, TEST_STYLE));
        line.tones = vec![(4..13, Role::MarkdownCode), (23..32, Role::MarkdownStrong)];
        let toned = rows(&line, 9, TEST_STYLE);
        assert_eq!(text(&toned), plain);
        let of = |tone| -> String {
            let spans = toned.iter().flatten().filter(|span| span.tone == tone);
            spans
                .map(|span| span.text.as_str())
                .collect::<Vec<_>>()
                .join("|")
        };
        assert_eq!(
            (of(Role::MarkdownCode), of(Role::MarkdownStrong)),
            ("`one |two`".to_string(), "**three**".to_string())
        );
    }

    #[test]
    fn tones_are_correct_after_dropped_blank() {
        let mut line = plain_line("abcde `fg` h");
        line.tones = vec![(6..10, Role::MarkdownCode), (11..12, Role::MarkdownStrong)];
        let spans = rows(&line, 5, TEST_STYLE);
        assert_eq!(text(&spans), ["abcde", "`fg` ", "h"]);
        let tones: Vec<Role> = spans.concat().iter().map(|span| span.tone).collect();
        assert_eq!(
            tones,
            [
                Role::Text,
                Role::MarkdownCode,
                Role::Text,
                Role::MarkdownStrong
            ]
        );
    }

    #[test]
    fn line_with_revealed_characters_stays_plain() {
        for text in ["a\u{202e}b", "a\tb", "a\x1bb", "x\u{200b}"] {
            let mut line = plain_line(text);
            line.tones = vec![(0..text.len(), Role::MarkdownStrong)];
            let spans = rows(&line, 40, TEST_STYLE).concat();
            assert!(
                spans.iter().all(|span| span.tone == Role::Text),
                "{spans:?}"
            );
        }
    }

    #[test]
    fn carriage_return_at_emphasis_end_is_marked() {
        let mut line = TextLine {
            kind: LineKind::Added,
            ..plain_line("ab\rcd")
        };
        line.changed_ranges.push(0..3);
        let spans = rows(&line, 40, TEST_STYLE).concat();
        assert!(spans.iter().any(|span| span.is_mark), "{spans:?}");
    }

    #[test]
    fn search_finds_every_line_and_wraps_around() {
        let mut pane = pane(&["Alpha", "beta", "ALPHABET", "x"]);
        pane.search("alpha");
        assert_eq!(pane.hits, [0, 2]);
        pane.go_to_first_hit(0);
        pane.go_to_next_hit(true, 0);
        assert_eq!(pane.top.0, 2);
        pane.go_to_next_hit(true, 0);
        assert_eq!(pane.top.0, 0);
        pane.go_to_next_hit(false, 0);
        assert_eq!(pane.top.0, 2);
        pane.search("");
        assert!(pane.hits.is_empty());
    }
    proptest::proptest! {
        /// Two sides take as many rows as the longer one; no side is wider than its half; each
        /// equals the rows of its line alone.
        #[test]
        fn side_by_side_rows_equal_rows_of_their_lines(
            old in "[a-d日\u{200b}\t ]{0,40}",
            new in "[a-d日\u{200b}\t ]{0,40}",
            half in 8_usize..20,
            wrap in proptest::bool::ANY,
        ) {
            let style = PaneStyle { is_wrapping: wrap, half_width: half, ..TEST_STYLE };
            let line = |kind, text: &str| TextLine {
                kind,
                ..TextLine::note(text)
            };
            let lines = [line(LineKind::Removed, &old), line(LineKind::Added, &new)];
            let alone = [0, 1].map(|at| rows(&lines[at], half, style));
            let both = rows::lay_out_item(&lines, PaneItem::SideBySide(Some(0), Some(1)), 99, style);
            proptest::prop_assert_eq!(both.len(), alone[0].len().max(alone[1].len()));
            for (at, row) in both.iter().enumerate() {
                for (side, spans) in [(0, &row.spans), (1, &row.right_spans)] {
                    let expected = alone[side].get(at).cloned().unwrap_or_default();
                    proptest::prop_assert_eq!(spans, &expected);
                    let width: usize = spans.iter().map(|span| span.text.width()).sum();
                    proptest::prop_assert!(width <= half);
                }
            }
        }
    }
}
