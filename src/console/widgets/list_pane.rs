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

/// The position in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListPane {
    /// Row index of the cursor.
    pub cursor: usize,
    /// First visible row.
    pub top: usize,
}

impl ListPane {
    /// Creates the position of a list that shows its rows from the beginning until the cursor is below
    /// them.
    pub fn ending_at_cursor(cursor: usize, height: usize) -> ListPane {
        ListPane {
            cursor,
            top: (cursor + 1).saturating_sub(height),
        }
    }

    /// Moves the cursor by rows.
    pub fn step(&mut self, by: isize, count: usize) {
        self.cursor = step_index(self.cursor, by, count);
    }

    /// Moves the cursor to the row that it was on before the rows changed, if that is still there.
    pub fn follow<K: PartialEq>(&mut self, before: Option<K>, rows: impl IntoIterator<Item = K>) {
        let found = before.and_then(|key| rows.into_iter().position(|row| row == key));
        self.cursor = found.unwrap_or(self.cursor);
    }

    /// Keeps the cursor on a row, and that row on the screen.
    pub fn fit(&mut self, count: usize, height: usize) {
        self.cursor = self.cursor.min(count.saturating_sub(1));
        let lowest = (self.cursor + 1).saturating_sub(height);
        let top = self.top.clamp(lowest, self.cursor);
        self.top = top.min(count.saturating_sub(height));
    }

    /// Returns the visible ones of some rows.
    pub fn visible(&self, count: usize, height: usize) -> Range<usize> {
        self.top.min(count)..count.min(self.top + height)
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
