//! The cursor of a pane whose lines can be marked: it moves by lines, and the pane scrolls so that it
//! stays visible.

use super::{Pane, PaneStyle};

impl Pane {
    /// Moves the cursor to the next or previous line, and scrolls to it.
    pub fn step_cursor(&mut self, by: isize, width: usize, height: usize, style: PaneStyle) {
        self.lines_added_above = 0;
        let last = self.lines.len().saturating_sub(1);
        self.cursor_line = self.cursor_line.saturating_add_signed(by).min(last);
        self.show_cursor(width, height, style);
    }

    /// Scrolls by rows, and moves the cursor by as many lines, as far as they are visible then: a page
    /// never skips text.
    pub fn page_cursor(&mut self, by: isize, width: usize, height: usize, style: PaneStyle) {
        let last = self.lines.len().saturating_sub(1);
        let wanted = self.cursor_line.saturating_add_signed(by).min(last);
        self.scroll(by, width, height, style);
        let first_item = self.top.0 + usize::from(self.top.1 > 0);
        let mut last_item = self.top.0;
        let mut rows = self.rows(last_item, width, style).len();
        // The rows above the top may be those of a wider pane.
        rows = rows.saturating_sub(self.top.1);
        while last_item + 1 < self.items.len() && rows < height {
            last_item += 1;
            rows += self.rows(last_item, width, style).len();
        }
        let line_of = |item: usize| self.items.get(item).map_or(0, |item| item.main_line());
        let visible = line_of(first_item.min(last_item))..=line_of(last_item);
        self.cursor_line = wanted.clamp(*visible.start(), *visible.end());
    }

    /// Scrolls as little as possible so that the whole line under the cursor is visible, or its
    /// beginning if it has more rows than the pane.
    pub fn show_cursor(&mut self, width: usize, height: usize, style: PaneStyle) {
        let item = self.item_of_line(self.cursor_line);
        let rows = self.rows(item, width, style).len();
        if (item, 0) <= self.top || rows >= height {
            self.top = (item, 0);
            return;
        }
        // The top that shows the line in the last rows: the rows above it fill the rest.
        let mut room = height - rows;
        let mut lowest_top = (item, 0);
        while room > 0 && lowest_top.0 > 0 {
            let above = lowest_top.0 - 1;
            let rows = self.rows(above, width, style).len();
            lowest_top = (above, rows.saturating_sub(room));
            room = room.saturating_sub(rows);
        }
        self.top = self.top.max(lowest_top);
    }

    /// Moves the cursor to the line of the current hit.
    pub fn move_cursor_to_hit(&mut self) {
        let hit = self.hits.get(self.current_hit);
        if let Some(item) = hit.and_then(|hit| self.items.get(*hit)) {
            self.cursor_line = item.main_line();
        }
    }

    /// Moves the cursor to the line at the top.
    pub fn move_cursor_to_top(&mut self) {
        self.cursor_line = self.top_line().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use crate::console::text::{Pane, PaneStyle, plain_line};

    const STYLE: PaneStyle = PaneStyle {
        is_wrapping: true,
        is_whitespace_marked: false,
        is_prose: true,
        has_word_marks: false,
        half_width: 0,
    };

    fn pane(lines: &[&str]) -> Pane {
        let mut pane = Pane::default();
        let lines = lines.iter().map(|it| plain_line(it));
        pane.replace_lines(lines.collect());
        pane
    }

    #[test]
    fn cursor_scrolls_no_further_than_needed() {
        let mut pane = pane(&["a", "one two", "b", "c", "d"]);
        let mut after = |by: isize| {
            pane.step_cursor(by, 4, 3, STYLE);
            (pane.cursor_line, pane.top)
        };
        assert_eq!(after(1), (1, (0, 0)));
        // Line 1 takes two rows.
        assert_eq!(after(1), (2, (1, 0)));
        assert_eq!(after(1), (3, (1, 1)));
        assert_eq!(after(9), (4, (2, 0)));
        assert_eq!(after(-1), (3, (2, 0)));
        assert_eq!(after(-2), (1, (1, 0)));
        assert_eq!(after(isize::MIN / 2), (0, (0, 0)));
    }

    #[test]
    fn page_shows_every_line() {
        let mut pane = pane(&["one two", "three four", "five six", "a", "b", "c"]);
        let mut after = |by: isize| {
            pane.page_cursor(by, 5, 2, STYLE);
            (pane.cursor_line, pane.top)
        };
        assert_eq!(after(2), (1, (1, 0)));
        assert_eq!(after(2), (2, (2, 0)));
        assert_eq!(after(-2), (1, (1, 0)));
        assert_eq!(after(100), (5, (4, 0)));
    }

    #[test]
    fn page_after_a_resize_begins_at_a_line() {
        let mut pane = pane(&["one two three four", "b"]);
        pane.top = (0, 3);
        pane.page_cursor(0, 80, 1, STYLE);
        assert_eq!(pane.cursor_line, 1);
    }

    #[test]
    fn cursor_follows_its_line_in_changed_text() {
        let mut pane = pane(&["a", "b", "c"]);
        pane.step_cursor(2, 10, 5, STYLE);
        let lines = ["x", "a", "b", "c", "d"].map(plain_line);
        pane.replace_lines(lines.to_vec());
        assert_eq!(pane.cursor_line, 3);
    }

    #[test]
    fn line_with_more_rows_than_pane_shows_its_beginning() {
        let mut pane = pane(&["a", "one two three four", "b"]);
        pane.step_cursor(1, 5, 2, STYLE);
        assert_eq!(pane.top, (1, 0));
        pane.step_cursor(1, 5, 2, STYLE);
        assert_eq!(pane.top, (1, 3));
    }

    proptest::proptest! {
        /// After every step the first row of the cursor's line is visible, and no row below the last
        /// line is.
        #[test]
        fn cursor_is_always_visible(
            lines in proptest::collection::vec("[a-c ]{0,12}", 1..30),
            steps in proptest::collection::vec(-12_isize..12, 1..30),
            width in 3_usize..9,
            height in 1_usize..9,
        ) {
            let texts: Vec<&str> = lines.iter().map(String::as_str).collect();
            let mut pane = pane(&texts);
            for by in steps {
                if by % 2 == 0 {
                    pane.page_cursor(by, width, height, STYLE);
                } else {
                    pane.step_cursor(by, width, height, STYLE);
                }
                let above: usize = (pane.top.0..pane.cursor_line)
                    .map(|item| pane.rows(item, width, STYLE).len())
                    .sum();
                // A line with more rows than the pane may begin above the top.
                let rows = pane.rows(pane.cursor_line, width, STYLE).len();
                proptest::prop_assert!(pane.top <= (pane.cursor_line, 0) || rows > height);
                proptest::prop_assert!(above < height + pane.top.1);
            }
        }
    }
}
