//! The text on the screen: the pane that the keys for texts act on. Its display options are those of
//! the agent screen, wherever it is shown.

use super::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::state::MIN_SIDE_BY_SIDE_COLUMNS;
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::baselines::state::BaselinesPage;
use crate::console::text::{Arrangement, Pane};

/// Unchanged lines shown around a change of rules in a plan.
const RULE_CONTEXT_LINES: usize = 1;

impl Model {
    /// Whether the screen shows a text.
    pub fn has_text(&self) -> bool {
        match self.screen {
            Screen::Agent => !self.agent.is_list(),
            Screen::Baselines => self.baselines.page == BaselinesPage::Comparison,
            Screen::BaselinePlan => self.baseline_plan.view().is_some(),
            Screen::Reset => self.reset.has_rule_change(),
            Screen::Archives => self.archives.page.has_text(),
            _ => false,
        }
    }

    /// Returns the pane of the text on the screen; that of the agent screen where there is none.
    pub fn visible_pane(&self) -> &Pane {
        match self.screen {
            Screen::Baselines => &self.baselines.comparison.pane,
            Screen::BaselinePlan => &self.baseline_plan.pane,
            Screen::Reset if self.has_text() => &self.reset.rule_change.pane,
            Screen::Archives => self.archives.pane(),
            _ => self.agent.current_pane(),
        }
    }

    /// Returns the pane of the text on the screen, to scroll or search it.
    pub fn visible_pane_mut(&mut self) -> &mut Pane {
        match self.screen {
            Screen::Baselines => &mut self.baselines.comparison.pane,
            Screen::BaselinePlan => &mut self.baseline_plan.pane,
            Screen::Reset if self.reset.has_rule_change() => &mut self.reset.rule_change.pane,
            Screen::Archives => self.archives.pane_mut(),
            _ => self.agent.current_pane_mut(),
        }
    }

    /// Scrolls the text on the screen.
    pub fn scroll_text(&mut self, by: isize) {
        let (width, height, style) = (self.text_width(), self.text_height(), self.pane_style());
        let has_line_cursor = self.has_line_cursor();
        let pane = self.visible_pane_mut();
        if has_line_cursor && by.abs() == 1 {
            pane.step_cursor(by, width, height, style);
        } else if by < isize::MIN / 4 {
            pane.scroll_to_start();
            pane.cursor_line = 0;
        } else if by > isize::MAX / 4 {
            pane.scroll_to_end(width, height, style);
            pane.cursor_line = pane.lines.len().saturating_sub(1);
        } else if has_line_cursor {
            pane.page_cursor(by, width, height, style);
        } else {
            pane.scroll(by, width, height, style);
        }
    }

    /// Whether the text on the screen is a diff.
    pub fn is_comparison(&self) -> bool {
        match self.screen {
            Screen::Agent => self.agent.is_comparison(),
            Screen::Archives => self.archives.page == ArchivesPage::Comparison,
            _ => self.has_text(),
        }
    }

    /// Whether the text on the screen is a diff of two texts, which can be arranged.
    pub fn has_diff_options(&self) -> bool {
        match self.screen {
            Screen::Agent => self.agent.has_diff_options(),
            _ => self.is_comparison(),
        }
    }

    /// Whether the text on the screen has a cursor that marks lines.
    pub fn has_line_cursor(&self) -> bool {
        match self.screen {
            Screen::Agent => self.agent.has_line_cursor(),
            Screen::Archives => self.archives.page == ArchivesPage::Text,
            _ => false,
        }
    }

    /// Whether the text on the screen is not loaded yet.
    pub fn is_text_awaited(&self) -> bool {
        match self.screen {
            Screen::Baselines => !self.baselines.comparison.is_loaded,
            Screen::BaselinePlan => false,
            Screen::Archives => !self.archives.is_text_loaded(),
            Screen::Reset => self.visible_pane().lines.is_empty(),
            _ if self.agent.has_own_job() => self.agent.current_pane().lines.is_empty(),
            _ => self.agent.generation == 0,
        }
    }

    /// Whether the text takes the whole screen.
    pub fn is_text_full_screen(&self) -> bool {
        self.screen == Screen::Agent && self.agent.is_full_screen && !self.agent.is_list()
    }

    /// Arranges all panes for the display options and the width of the terminal.
    pub fn arrange_panes(&mut self) {
        let columns = self.size.0;
        self.agent.arrange_panes(columns);
        let arrangement = Arrangement {
            context_lines: self.agent.context_lines,
            is_side_by_side: !self.agent.is_unified && columns >= MIN_SIDE_BY_SIDE_COLUMNS,
        };
        self.baselines.comparison.pane.set_arrangement(arrangement);
        self.baseline_plan.pane.set_arrangement(arrangement);
        self.archives.comparison.pane.set_arrangement(arrangement);
        let rule_change = Arrangement {
            context_lines: Some(RULE_CONTEXT_LINES),
            ..arrangement
        };
        self.reset.rule_change.pane.set_arrangement(rule_change);
    }

    /// Shows or hides whitespace-only changes.
    pub fn toggle_ignore_whitespace(&mut self) {
        self.agent.toggle_ignore_whitespace();
        let view = &mut self.baselines.comparison;
        view.pane.exchange_lines(&mut view.alternate);
        let view = &mut self.archives.comparison;
        view.pane.exchange_lines(&mut view.alternate);
        let plan = &mut self.baseline_plan;
        plan.pane.exchange_lines(&mut plan.alternate);
    }
}
