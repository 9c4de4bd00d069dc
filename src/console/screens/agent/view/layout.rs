//! Layout of texts: rows and cells that the text on the screen and the history of an agent get.

use super::history;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::state::{AgentTab, SIDE_GUTTER_CELLS};
use crate::console::screens::archives::view::GUTTER_CELLS as ARCHIVE_GUTTER_CELLS;
use crate::console::text::PaneStyle;

/// Cells left of a diff: a sign and two numbers.
const DIFF_GUTTER_CELLS: usize = 14;

/// Cells left of the scratch: the cursor, the mark of a marked line, and a number.
const SCRATCH_GUTTER_CELLS: usize = 9;

/// Cells left of facts: their labels.
const FACT_GUTTER_CELLS: usize = 22;

/// Rows between the charts of a history and the list of its records: an empty one, the column heads.
const HISTORY_FRAME_ROWS: usize = 2;

impl Model {
    /// Returns the number of text rows that fit.
    pub fn text_height(&self) -> usize {
        // Two lines of header, a rule; a rule, the findings, the message, the hints. Full screen
        // has one line, side-by-side a line of titles, and a baseline a second line below the rule.
        let fixed = match (self.is_text_full_screen(), self.is_side_by_side()) {
            (true, _) => 1,
            (false, true) => 8,
            (false, false) => 7,
        };
        let fixed = match self.screen {
            Screen::Baselines => fixed + 1,
            Screen::BaselinePlan => {
                self.baseline_plan_frame_height() + usize::from(self.is_side_by_side())
            }
            Screen::Reset if self.has_text() => return self.rule_change_height().max(1),
            _ => fixed,
        };
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Whether a diff is shown side by side.
    pub fn is_side_by_side(&self) -> bool {
        self.is_comparison() && self.visible_pane().is_side_by_side()
    }

    /// Returns the cells left of the text.
    pub fn gutter_width(&self) -> usize {
        let is_full_screen = self.is_text_full_screen();
        match self.agent.tab {
            _ if self.is_side_by_side() => SIDE_GUTTER_CELLS,
            // Text copied off the full screen is the text itself, or a diff of it.
            _ if self.screen == Screen::Archives && !self.is_comparison() => {
                usize::from(ARCHIVE_GUTTER_CELLS)
            }
            _ if self.is_comparison() && is_full_screen => 1,
            _ if self.is_comparison() => DIFF_GUTTER_CELLS,
            AgentTab::Facts => FACT_GUTTER_CELLS,
            _ if is_full_screen => 0,
            _ => SCRATCH_GUTTER_CELLS,
        }
    }

    /// Returns the width of the text without its gutter, in cells.
    pub fn text_width(&self) -> usize {
        usize::from(self.size.0)
            .saturating_sub(self.gutter_width())
            .max(1)
    }

    /// Returns the column between two sides.
    pub fn divider_column(&self) -> usize {
        usize::from(self.size.0).saturating_sub(2) / 2
    }

    /// Returns how the text is laid out.
    pub fn pane_style(&self) -> PaneStyle {
        let is_agent = self.screen == Screen::Agent;
        let is_notes = matches!(self.agent.tab, AgentTab::Scratch | AgentTab::Facts);
        PaneStyle {
            is_wrapping: self.agent.is_wrapping,
            is_whitespace_marked: if is_agent {
                self.agent.can_mark_whitespace()
            } else {
                self.agent.is_whitespace_marked
            },
            is_prose: is_agent && is_notes
                || self.screen == Screen::Archives && !self.is_comparison(),
            has_word_marks: self.has_word_marks,
            half_width: self
                .divider_column()
                .saturating_sub(SIDE_GUTTER_CELLS)
                .max(1),
        }
    }

    /// Returns the number of history rows that fit.
    pub fn history_height(&self) -> usize {
        usize::from(self.size.1)
            .saturating_sub(7 + history::charts(self).len() + HISTORY_FRAME_ROWS)
            .max(1)
    }
}
