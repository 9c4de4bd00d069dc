//! Lists: the row under the cursor, the visible rows, and rows in columns.

use std::ops::Range;

use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, shorten_untrusted, truncate_untrusted,
};

/// The highlighted columns of a row that only the mark shows to be under the cursor.
pub const NO_HIGHLIGHT: Range<u16> = 0..0;

/// Smallest width of the terminal for a text beside its list, in columns.
pub const MIN_PREVIEW_COLUMNS: u16 = 110;

/// Rows of a list, each with a key that stays the same when rows come, go and move.
pub trait KeyedRows<K> {
    /// Returns the number of rows.
    fn count(&self) -> usize;

    /// Returns the key of a row; `None` behind the last one.
    fn key(&self, index: usize) -> Option<K>;

    /// Whether a row has this key. A list of very many rows compares them without a copy.
    fn has_key(&self, index: usize, key: &K) -> bool
    where
        K: PartialEq,
    {
        self.key(index).as_ref() == Some(key)
    }
}

/// A row of a list with a key.
pub trait KeyedRow<K> {
    /// Returns what tells it from other rows.
    fn key(&self) -> K;
}

impl KeyedRow<String> for str {
    fn key(&self) -> String {
        self.to_string()
    }
}

impl<K, R: KeyedRow<K> + ?Sized> KeyedRow<K> for &R {
    fn key(&self) -> K {
        (**self).key()
    }
}

impl<K, R: KeyedRow<K>> KeyedRows<K> for [R] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, index: usize) -> Option<K> {
        self.get(index).map(KeyedRow::key)
    }
}

/// The position in a list. A cursor with a key stays on its row, however the rows change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPane<K = ()> {
    /// Row index of the cursor when the list was fitted last, or where it was moved to.
    pub cursor: usize,
    /// First visible row.
    pub top: usize,
    /// Key of the row under the cursor; none for a cursor that stays where it is when rows change.
    pub key: Option<K>,
}

impl<K> Default for ListPane<K> {
    fn default() -> ListPane<K> {
        ListPane::at(0)
    }
}

impl<K> ListPane<K> {
    /// Creates the position of a list whose cursor is on the row of an index.
    pub fn at(cursor: usize) -> ListPane<K> {
        ListPane {
            cursor,
            top: 0,
            key: None,
        }
    }
}

impl<K: Clone + PartialEq> ListPane<K> {
    /// Returns the row index of the cursor: of the row with its key, if that is there; else it stays where
    /// it was.
    pub fn cursor_in(&self, rows: &(impl KeyedRows<K> + ?Sized)) -> usize {
        let count = rows.count();
        // Mostly the rows have not moved.
        let mut indices = [self.cursor].into_iter().chain(0..count);
        let key = self.key.as_ref();
        let found = key.and_then(|key| indices.find(|index| rows.has_key(*index, key)));
        found.unwrap_or(self.cursor.min(count.saturating_sub(1)))
    }

    /// Returns the position with the cursor on the row of an index, where it stays.
    pub fn moved_to(&self, index: usize, rows: &(impl KeyedRows<K> + ?Sized)) -> ListPane<K> {
        ListPane {
            cursor: index,
            top: self.top,
            key: rows.key(index),
        }
    }

    /// Returns the position with the cursor some rows further.
    pub fn stepped(&self, by: isize, rows: &(impl KeyedRows<K> + ?Sized)) -> ListPane<K> {
        let index = step_index(self.cursor_in(rows), by, rows.count());
        self.moved_to(index, rows)
    }

    /// Returns the position with the cursor some rows further. One that was moved up to the first row stays
    /// at the top when rows come above that.
    pub fn stepped_from_top(&self, by: isize, rows: &(impl KeyedRows<K> + ?Sized)) -> ListPane<K> {
        let mut moved = self.stepped(by, rows);
        moved.key = moved.key.filter(|_| moved.cursor > 0 || by > 0);
        moved
    }

    /// Returns the position whose cursor stays on its row from now on.
    pub fn pinned(&self, rows: &(impl KeyedRows<K> + ?Sized)) -> ListPane<K> {
        self.stepped(0, rows)
    }

    /// Returns the position with the row under the cursor on the screen.
    pub fn fitted(&self, rows: &(impl KeyedRows<K> + ?Sized), height: usize) -> ListPane<K> {
        self.scrolled_to(self.cursor_in(rows), rows.count(), height)
    }

    /// Returns the position with the cursor on the row of an index, and that row on the screen.
    pub fn scrolled_to(&self, cursor: usize, count: usize, height: usize) -> ListPane<K> {
        ListPane {
            cursor,
            top: fitted_top(self.top, cursor, count, height),
            key: self.key.clone(),
        }
    }
}

/// Returns the first visible row closest to `top` with which the cursor is visible, and no row is free
/// below the last one.
fn fitted_top(top: usize, cursor: usize, count: usize, height: usize) -> usize {
    let lowest = (cursor + 1).saturating_sub(height.max(1));
    top.clamp(lowest, cursor).min(count.saturating_sub(height))
}

impl<K> ListPane<K> {
    /// Returns the visible ones of some rows.
    pub fn visible(&self, count: usize, height: usize) -> Range<usize> {
        let top = fitted_top(self.top, self.cursor, count, height);
        top..count.min(top + height)
    }

    /// Draws the visible rows from a row of the screen on, and marks the one under the cursor.
    /// `draw_row` returns the columns that are highlighted there.
    pub fn draw(
        &self,
        canvas: &mut Canvas<'_>,
        y: u16,
        extent: (usize, usize),
        draw_row: impl FnMut(&mut Canvas<'_>, u16, usize) -> Range<u16>,
    ) {
        self.draw_at(canvas, (0, y), extent, draw_row);
    }

    /// Draws the visible rows from a column and a row of the screen on.
    pub fn draw_at(
        &self,
        canvas: &mut Canvas<'_>,
        (x, y): (u16, u16),
        (count, height): (usize, usize),
        mut draw_row: impl FnMut(&mut Canvas<'_>, u16, usize) -> Range<u16>,
    ) {
        for (index, y) in self.visible(count, height).zip(y..) {
            let highlighted = draw_row(canvas, y, index);
            if index == self.cursor {
                canvas.put_text(x, y, ">", Role::Text);
                canvas.highlight_cursor(highlighted, y);
            }
        }
    }
}

/// Rows that say why a list cannot be shown.
const MAX_FAILURE_ROWS: usize = 4;

/// Returns what was loaded for a list. While it is being read, and if that has failed, the row `y` says
/// so.
pub fn draw_unloaded<'a, T>(
    canvas: &mut Canvas<'_>,
    y: u16,
    loaded: Option<&'a Result<T, String>>,
) -> Option<&'a T> {
    match loaded {
        None => {
            canvas.put_text(1, y, "reading …", Role::Dim);
        }
        Some(Err(why)) => {
            canvas.put_wrapped(1, y, why, Role::Bad, MAX_FAILURE_ROWS);
        }
        Some(Ok(loaded)) => return Some(loaded),
    }
    None
}

/// Moves an index by rows, and keeps it on a row.
pub fn step_index(index: usize, by: isize, count: usize) -> usize {
    index.saturating_add_signed(by).min(count.saturating_sub(1))
}

/// How a text fits into its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Its end is cut.
    #[default]
    End,
    /// Its middle is cut, as that of names and paths.
    Middle,
    /// The end of a message is cut.
    SentenceEnd,
    /// A message keeps its cause, which is at its end.
    Cause,
}

/// A column of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// Where it begins.
    pub x: u16,
    /// Its cells and the gap behind it, or up to its end if its texts end there.
    pub width: u16,
    /// Whether its texts end at its end.
    pub is_right_aligned: bool,
    /// How its texts fit.
    pub fit: Fit,
}

/// The columns of a list, from left to right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    columns: Vec<Column>,
    end: u16,
}

impl Columns {
    /// Creates columns that begin at `x`.
    pub fn from_x(x: u16) -> Columns {
        Columns {
            columns: Vec::new(),
            end: x,
        }
    }

    fn push(mut self, title: &'static str, width: u16, is_right_aligned: bool) -> Columns {
        self.columns.push(Column {
            title,
            x: self.end,
            width,
            is_right_aligned,
            fit: Fit::End,
        });
        self.end += width;
        self
    }

    /// Adds a column. Without cells it is not shown.
    pub fn left(self, title: &'static str, width: u16) -> Columns {
        self.push(title, width, false)
    }

    /// Adds a column whose texts end at its end.
    pub fn right(self, title: &'static str, width: u16) -> Columns {
        self.push(title, width, true)
    }

    /// Adds a column up to the right edge of a list of this width.
    pub fn rest(self, title: &'static str, list_width: u16) -> Columns {
        let width = (list_width + 1).saturating_sub(self.end);
        self.push(title, width, false)
    }

    /// Leaves cells free.
    pub fn gap(mut self, cells: u16) -> Columns {
        self.end += cells;
        self
    }

    /// Sets how the texts of the last column fit.
    pub fn fitted(mut self, fit: Fit) -> Columns {
        if let Some(column) = self.columns.last_mut() {
            column.fit = fit;
        }
        self
    }

    /// Returns the column behind the last one.
    pub fn end(&self) -> u16 {
        self.end
    }

    /// Returns where a column begins.
    pub fn x(&self, index: usize) -> u16 {
        self.columns.get(index).map_or(self.end, |column| column.x)
    }

    /// Returns the cells of a column.
    pub fn room(&self, index: usize) -> usize {
        self.columns
            .get(index)
            .map_or(0, |it| usize::from(it.width.saturating_sub(1)))
    }

    /// Returns the headings.
    pub fn titles(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|column| column.title)
    }

    /// Draws the headings.
    pub fn draw_headings(&self, canvas: &mut Canvas<'_>, y: u16) {
        for column in self.columns.iter().filter(|it| it.width > 0) {
            if column.is_right_aligned {
                canvas.put_right(column.x + column.width, y, column.title, Role::Heading);
            } else {
                canvas.put_text(column.x, y, column.title, Role::Heading);
            }
        }
    }

    /// Draws a row, with a text for each column.
    pub fn draw_row<T: AsRef<str>>(
        &self,
        canvas: &mut Canvas<'_>,
        y: u16,
        cells: impl IntoIterator<Item = (T, Role)>,
    ) {
        for (column, (text, role)) in self.columns.iter().zip(cells) {
            let text = text.as_ref();
            let width = usize::from(column.width.saturating_sub(1));
            match column.fit {
                _ if column.width == 0 => {}
                _ if column.is_right_aligned => {
                    canvas.put_right(column.x + column.width, y, text, role);
                }
                fit => {
                    let text = match fit {
                        Fit::End => truncate_untrusted(text, width),
                        Fit::Middle => shorten_untrusted(text, width),
                        Fit::SentenceEnd => fit_start_of_sentence(text, width),
                        Fit::Cause => fit_end_of_sentence(text, width),
                    };
                    canvas.put_text(column.x, y, &text, role);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_stays_on_its_row_when_rows_change() {
        let list = ListPane::<String>::default().stepped(1, &["a", "b", "c"][..]);
        let cursor = |rows: &[&str]| list.cursor_in(rows);
        assert_eq!(cursor(&["new", "a", "b", "c"]), 2);
        assert_eq!(cursor(&["b"]), 0);
        assert_eq!(cursor(&["a", "c", "d"]), 1, "its row is gone");
        assert_eq!(cursor(&["a"]), 0);
        assert_eq!(cursor(&[]), 0);
    }

    #[test]
    fn cursor_moved_to_the_top_stays_there() {
        let rows = ["a", "b"];
        let list = ListPane::<String>::default().stepped_from_top(1, &rows[..]);
        assert_eq!(list.cursor_in(&["new", "a", "b"][..]), 2);
        let list = list.stepped_from_top(-1, &rows[..]);
        assert_eq!(list.cursor_in(&["new", "a", "b"][..]), 0);
    }

    #[test]
    fn fitted_list_shows_its_cursor_and_no_free_rows() {
        let rows: Vec<String> = (0..9).map(|it| it.to_string()).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let list = ListPane::<String>::at(5).fitted(&rows[..], 3);
        assert_eq!(list.visible(9, 3), 3..6);
        assert_eq!(list.stepped(-1, &rows[..]).visible(9, 3), 3..6);
        assert_eq!(list.fitted(&rows[..], 8).visible(9, 8), 1..9);
        assert_eq!(list.visible(9, 0), 5..5);
    }
}
