//! Layout of the agent screen: rows and cells that its texts and its history get.

use crate::console::model::Model;
use crate::console::screens::agent::state::{AgentTab, SIDE_GUTTER_CELLS};
use crate::console::text::PaneStyle;

/// Cells left of a diff: a sign and two numbers.
const DIFF_GUTTER_CELLS: usize = 14;

/// Cells left of the scratch: the cursor, the mark of a marked line, and a number.
const SCRATCH_GUTTER_CELLS: usize = 9;

/// Cells left of facts: their labels.
const FACT_GUTTER_CELLS: usize = 22;

/// Rows above the list of records: two charts, an empty one, the column heads.
const CHART_ROWS: usize = 4;

impl Model {
    /// Returns the number of text rows that fit.
    pub fn text_height(&self) -> usize {
        let agent = &self.agent;
        // Two lines of header, a rule; a rule, the findings, the message, the hints. Full screen
        // has one line, and side-by-side a line of titles.
        let fixed = match (
            agent.is_full_screen && !agent.is_list(),
            self.is_side_by_side(),
        ) {
            (true, _) => 1,
            (false, true) => 8,
            (false, false) => 7,
        };
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Whether a diff is shown side by side.
    pub fn is_side_by_side(&self) -> bool {
        self.agent.is_comparison() && self.agent.current_pane().is_side_by_side()
    }

    /// Returns the cells left of the text.
    pub fn gutter_width(&self) -> usize {
        let agent = &self.agent;
        match agent.tab {
            _ if agent.is_comparison() && self.is_side_by_side() => SIDE_GUTTER_CELLS,
            // Text copied off the full screen is the text itself, or a diff of it.
            _ if agent.is_comparison() && agent.is_full_screen => 1,
            _ if agent.is_comparison() => DIFF_GUTTER_CELLS,
            AgentTab::Facts => FACT_GUTTER_CELLS,
            _ if agent.is_full_screen => 0,
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
        PaneStyle {
            is_wrapping: self.agent.is_wrapping,
            is_whitespace_marked: self.agent.can_mark_whitespace(),
            is_prose: matches!(self.agent.tab, AgentTab::Scratch | AgentTab::Facts),
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
            .saturating_sub(7 + CHART_ROWS)
            .max(1)
    }
}
