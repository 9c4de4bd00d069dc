//! Detects rows that only moved from one screen to the next. The result is a guess that saves
//! bytes: the painter writes every difference that remains.

use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::{Buffer, Cell};

/// A move of whole rows within a block; the rows that enter it are blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrollMove {
    /// The first row of the block.
    pub top: u16,
    /// The last row of the block.
    pub bottom: u16,
    /// The distance in rows.
    pub distance: u16,
    /// Whether rows move towards the first row, as when reading on.
    pub is_upward: bool,
}

/// Approximate cost of moving the cursor to a row, in cells.
const MOVE_COST: i64 = 7;

/// The smallest saving that is worth the codes, in cells.
const MIN_SAVED_CELLS: i64 = 16;

/// Costs of the rows of the next screen, in cells, and digests of both screens' rows.
struct RowCosts {
    /// Cost of each row if it is written over the current one.
    overwrite_costs: Vec<i64>,
    /// Cost of each row if it is written into a blank one.
    blank_costs: Vec<i64>,
    shown_digests: Vec<u64>,
    next_digests: Vec<u64>,
}

impl RowCosts {
    /// Returns the costs in reverse order, in which a move down is a move to the front.
    fn reversed(mut self) -> RowCosts {
        self.overwrite_costs.reverse();
        self.blank_costs.reverse();
        self.shown_digests.reverse();
        self.next_digests.reverse();
        self
    }

    /// Returns the block that saves most by moving `by` rows to the front: the saving, its first
    /// row, its last row.
    fn best_block(&self, by: usize) -> Option<(i64, usize, usize)> {
        let rows = self.next_digests.len();
        let entering = |row: usize| self.overwrite_costs[row] - self.blank_costs[row];
        let saves = |row: usize| {
            if self.next_digests[row] == self.shown_digests[row + by] {
                self.overwrite_costs[row]
            } else {
                entering(row)
            }
        };
        // Cost of the rows that enter behind the last moved one.
        let mut enters: i64 = (0..by).map(entering).sum();
        // The run of rows ending here that saves most, and its first row.
        let (mut run, mut from) = (0, 0);
        let mut best = None;
        for row in 0..rows - by {
            if run <= 0 {
                (run, from) = (0, row);
            }
            run += saves(row);
            enters += entering(row + by) - entering(row);
            let saved = run + enters;
            if saved > MIN_SAVED_CELLS && best.is_none_or(|(most, _, _)| saved > most) {
                best = Some((saved, from, row + by));
            }
        }
        best
    }
}

impl ScrollMove {
    /// Returns the move that leaves least to write, if one is worthwhile.
    pub(super) fn find(shown: &Buffer, next: &Buffer) -> Option<ScrollMove> {
        let width = usize::from(next.area.width);
        if width == 0 || shown.area != next.area {
            return None;
        }
        let rows = || shown.content.chunks(width).zip(next.content.chunks(width));
        let written = |count: usize| {
            if count > 0 {
                count as i64 + MOVE_COST
            } else {
                0
            }
        };
        let differ = |(old, new): (&[Cell], &[Cell])| {
            written(old.iter().zip(new).filter(|(old, new)| old != new).count())
        };
        let before: Vec<i64> = rows().map(differ).collect();
        // A moved cursor changes two rows.
        if before.iter().filter(|cost| **cost > 0).count() < 3 {
            return None;
        }
        let text = |row: &[Cell]| written(row.iter().filter(|cell| cell.symbol() != " ").count());
        let mut costs = RowCosts {
            overwrite_costs: before,
            blank_costs: rows().map(|(_, new)| text(new)).collect(),
            shown_digests: rows().map(|(old, _)| row_digest(old)).collect(),
            next_digests: rows().map(|(_, new)| row_digest(new)).collect(),
        };
        let last = costs.next_digests.len() - 1;
        let mut best: Option<(i64, ScrollMove)> = None;
        for up in [true, false] {
            for by in 1..=last {
                let Some((saved, from, to)) = costs.best_block(by) else {
                    continue;
                };
                if best.is_some_and(|(most, _)| most >= saved) {
                    continue;
                }
                let (top, bottom) = if up {
                    (from, to)
                } else {
                    (last - to, last - from)
                };
                let scroll = ScrollMove {
                    top: top as u16,
                    bottom: bottom as u16,
                    distance: by as u16,
                    is_upward: up,
                };
                best = Some((saved, scroll));
            }
            costs = costs.reversed();
        }
        best.map(|(_, scroll)| scroll)
    }

    /// Moves the rows of a buffer as the terminal does.
    pub(super) fn apply(self, buffer: &mut Buffer) {
        let width = usize::from(buffer.area.width);
        let row = |row: u16| usize::from(row) * width;
        let block = &mut buffer.content[row(self.top)..row(self.bottom + 1)];
        let (moved, kept) = (row(self.distance), block.len() - row(self.distance));
        if self.is_upward {
            block.rotate_left(moved);
            block[kept..].fill(Cell::EMPTY);
        } else {
            block.rotate_right(moved);
            block[..moved].fill(Cell::EMPTY);
        }
    }
}

fn row_digest(row: &[Cell]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}
