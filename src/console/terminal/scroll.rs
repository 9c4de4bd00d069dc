//! Whether rows of a screen only moved, and where to. A guess that saves bytes:
//! what is right is decided by whoever writes the difference that remains.

use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::{Buffer, Cell};

/// Whole rows that move within a block, what enters it being blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrollMove {
    /// The first row of the block.
    pub top: u16,
    /// The last one.
    pub bottom: u16,
    /// By how many rows.
    pub distance: u16,
    /// Towards the first row, as when one reads on.
    pub is_upward: bool,
}

/// About what it takes to go to a row, in cells.
const MOVE_COST: i64 = 7;

/// Less than this, in cells, is not worth the codes.
const MIN_SAVED_CELLS: i64 = 16;

/// What a row of the next screen costs.
struct RowCosts {
    /// Written over what is there.
    overwrite_costs: Vec<i64>,
    /// Written into a blank row.
    blank_costs: Vec<i64>,
    shown_digests: Vec<u64>,
    next_digests: Vec<u64>,
}

impl RowCosts {
    /// In an order of the rows in which everything moves to the front.
    fn reversed(mut self) -> RowCosts {
        self.overwrite_costs.reverse();
        self.blank_costs.reverse();
        self.shown_digests.reverse();
        self.next_digests.reverse();
        self
    }

    /// The block whose move to the front by so many rows saves most: what it
    /// saves, its first row, its last one.
    fn best_block(&self, by: usize) -> Option<(i64, usize, usize)> {
        let rows = self.next_digests.len();
        let entering = |row: usize| self.overwrite_costs[row] - self.blank_costs[row];
        let saves = |row: usize| match self.next_digests[row] == self.shown_digests[row + by] {
            true => self.overwrite_costs[row],
            false => entering(row),
        };
        // The rows behind the last one that is moved to.
        let mut enters: i64 = (0..by).map(entering).sum();
        // The run of rows up to here that saves most, and its first row.
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
    /// The move that leaves least to be written, if one is worth it.
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
        // A cursor that goes on changes two.
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
        match self.is_upward {
            true => {
                block.rotate_left(moved);
                block[kept..].fill(Cell::EMPTY);
            }
            false => {
                block.rotate_right(moved);
                block[..moved].fill(Cell::EMPTY);
            }
        }
    }
}

fn row_digest(row: &[Cell]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}
