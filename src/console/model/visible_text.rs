//! The text on the screen: the pane that the keys for texts act on. Its display options are those of
//! the agent screen, wherever it is shown.

use super::Model;
use crate::console::command::{Command, require};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::{AgentTab, MIN_SIDE_BY_SIDE_COLUMNS};
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::baselines::state::BaselinesPage;
use crate::console::text::{Arrangement, Pane, PaneStyle};
use crate::console::widgets::text_pane::{Gutter, SIDE_GUTTER_CELLS, TextPane, divider_column};

/// Unchanged lines shown around a change in the details of a plan.
const DETAIL_CONTEXT_LINES: usize = 1;

impl Model {
    /// Whether the screen shows a text.
    pub fn has_text(&self) -> bool {
        match self.screen {
            Screen::Agent => !self.agent.is_list(),
            Screen::Baselines => self.baselines.page == BaselinesPage::Comparison,
            Screen::BaselinePlan => self.baseline_plan.view().is_some(),
            Screen::Reset => self.reset.has_details(),
            Screen::Archives => self.archives.page.has_text(),
            _ => false,
        }
    }

    /// Returns the pane of the text on the screen; that of the agent screen where there is none.
    pub fn visible_pane(&self) -> &Pane {
        match self.screen {
            Screen::Baselines => &self.baselines.comparison.shown.pane,
            Screen::BaselinePlan => &self.baseline_plan.pane,
            Screen::Reset if self.has_text() => &self.reset.details.pane,
            Screen::Archives => self.archives.pane(),
            _ => self.agent.current_pane(),
        }
    }

    /// Returns the pane of the text on the screen, to scroll or search it.
    pub fn visible_pane_mut(&mut self) -> &mut Pane {
        match self.screen {
            Screen::Baselines => &mut self.baselines.comparison.shown.pane,
            Screen::BaselinePlan => &mut self.baseline_plan.pane,
            Screen::Reset if self.reset.has_details() => &mut self.reset.details.pane,
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
        } else if has_line_cursor && by.abs() < isize::MAX / 4 {
            pane.page_cursor(by, width, height, style);
        } else {
            pane.scroll(by, width, height, style);
            if by.abs() > isize::MAX / 4 {
                let last = pane.lines.len().saturating_sub(1);
                pane.cursor_line = pane.cursor_line.saturating_add_signed(by).min(last);
            }
        }
    }

    /// Keeps the first visible row inside its line, which has fewer rows in a wider terminal, and the
    /// cursor on the screen.
    pub fn clamp_text(&mut self) {
        if self.has_text() || self.screen == Screen::Agent {
            let (width, height, style) = (self.text_width(), self.text_height(), self.pane_style());
            let has_line_cursor = self.has_line_cursor();
            let pane = self.visible_pane_mut();
            pane.clamp_top(width, style);
            if has_line_cursor {
                pane.show_cursor(width, height, style);
            }
        }
    }

    /// Starts a search of the text on the screen. Returns the previous query.
    pub fn begin_text_search(&mut self) -> String {
        let pane = self.visible_pane_mut();
        let query = pane.query.clone();
        pane.search("");
        query
    }

    /// Sets the query of the search and goes to its first hit.
    pub fn set_text_query(&mut self, query: &str) {
        let height = self.text_height();
        let pane = self.visible_pane_mut();
        pane.search(query);
        pane.go_to_first_hit(height);
        pane.move_cursor_to_hit();
    }

    /// Goes to the next or previous hit; without a search, to the next or previous hunk.
    pub fn go_to_next_hit(&mut self, is_forward: bool) {
        let height = self.text_height();
        let pane = self.visible_pane_mut();
        if pane.query.is_empty() {
            pane.go_to_hunk(is_forward, height);
        } else {
            pane.go_to_next_hit(is_forward, height);
            pane.move_cursor_to_hit();
        }
    }

    /// Goes to the next or previous hunk.
    pub fn go_to_hunk(&mut self, is_forward: bool) {
        let height = self.text_height();
        self.visible_pane_mut().go_to_hunk(is_forward, height);
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

    /// Checks that the screen shows a text.
    pub fn check_text(&self) -> Result<(), String> {
        let key = self.key_hint(Command::OpenSelected);
        let reason = format!("this tab is a list; {key} opens a text");
        require(self.has_text(), reason)
    }

    /// Checks that the screen shows a diff of two texts.
    pub fn check_comparison(&self) -> Result<(), String> {
        let key = self.key_hint(Command::NextTab);
        let reason = format!("no diff on this tab; {key} switches tabs");
        require(self.has_diff_options(), reason)
    }

    /// Checks that the texts of a diff can be side by side.
    pub fn check_side_by_side(&self) -> Result<(), String> {
        self.check_comparison()?;
        let key = self.key_hint(Command::ToggleFullScreen);
        require(
            self.screen != Screen::Agent || !self.agent.is_full_screen,
            format!("not side by side in full screen; {key} leaves it"),
        )?;
        let columns = self.size.0;
        require(
            columns >= MIN_SIDE_BY_SIDE_COLUMNS,
            format!(
                "side by side needs {MIN_SIDE_BY_SIDE_COLUMNS} columns; the terminal has {columns}"
            ),
        )
    }

    /// Checks that the screen shows a diff with hunks.
    pub fn check_hunks(&self) -> Result<(), String> {
        require(self.is_comparison(), "hunks are on the Diff tab")?;
        let reason = match (self.screen, self.agent.tab) {
            (Screen::Agent, AgentTab::Diff) => "no hunks: nothing above the separator differs",
            _ => "no hunks: nothing differs",
        };
        require(!self.visible_pane().hunks.is_empty(), reason)
    }

    /// Checks that a text without a search has hunks, to which the keys for hits go then.
    pub fn check_hits(&self) -> Result<(), String> {
        if self.has_text() && self.visible_pane().query.is_empty() {
            return self.check_hunks();
        }
        Ok(())
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
            Screen::Baselines => !self.baselines.comparison.shown.is_loaded,
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

    /// Arranges all texts by the options and the width of the screen; the lines at their tops stay.
    pub fn arrange_panes(&mut self) {
        let options = self.text_options;
        let arrangement = Arrangement {
            context_lines: options.context_lines,
            is_side_by_side: !options.is_unified && self.size.0 >= MIN_SIDE_BY_SIDE_COLUMNS,
        };
        let in_agent = Arrangement {
            is_side_by_side: arrangement.is_side_by_side && !self.agent.is_full_screen,
            ..arrangement
        };
        let in_plan = Arrangement {
            context_lines: Some(DETAIL_CONTEXT_LINES),
            ..arrangement
        };
        for (pane, arrangement) in [
            (&mut self.agent.diff, in_agent),
            (&mut self.agent.baseline, in_agent),
            (&mut self.agent.history.diff, in_agent),
            (&mut self.baselines.comparison.shown.pane, arrangement),
            (&mut self.baseline_plan.pane, arrangement),
            (&mut self.archives.comparison.shown.pane, arrangement),
            (&mut self.reset.details.pane, in_plan),
        ] {
            pane.set_arrangement(arrangement);
            pane.set_whitespace_ignored(options.is_whitespace_ignored);
        }
    }

    /// Returns the rows of the text that fit.
    pub fn text_height(&self) -> usize {
        let fixed = match (self.is_text_full_screen(), self.is_side_by_side()) {
            (true, _) => 1,
            // A row has the titles of the two sides.
            (false, true) => 8,
            (false, false) => 7,
        };
        let fixed = match self.screen {
            Screen::Baselines => fixed + 1,
            Screen::BaselinePlan => {
                self.baseline_plan_frame_height() + usize::from(self.is_side_by_side())
            }
            Screen::Reset if self.has_text() => return self.plan_details_height().max(1),
            _ => fixed,
        };
        self.rows_beside(fixed)
    }

    /// Whether two texts are side by side.
    pub fn is_side_by_side(&self) -> bool {
        self.is_comparison() && self.visible_pane().is_side_by_side()
    }

    /// Returns what is left of the lines of the text.
    pub fn gutter(&self) -> Gutter<'_> {
        let agent = &self.agent;
        match agent.tab {
            _ if self.is_side_by_side() => Gutter::Sides,
            _ if self.screen == Screen::Archives && !self.is_comparison() => Gutter::Entry {
                marked: Some(&self.archives.text.marked_lines),
                has_cursor: self.has_line_cursor(),
            },
            _ if self.is_comparison() && self.is_text_full_screen() => Gutter::Sign,
            _ if self.is_comparison() => Gutter::Diff,
            AgentTab::Memory if self.screen == Screen::Agent && !self.is_text_full_screen() => {
                Gutter::Entry {
                    marked: None,
                    has_cursor: false,
                }
            }
            AgentTab::Facts => Gutter::Labels(&agent.fact_labels),
            _ if self.is_text_full_screen() => Gutter::None,
            _ => Gutter::Notes {
                marked: agent.marked_lines_of(&agent.agent),
            },
        }
    }

    /// Returns the text of the screen, as it is drawn.
    pub fn text_pane(&self) -> TextPane<'_> {
        TextPane {
            pane: self.visible_pane(),
            style: self.pane_style(),
            gutter: self.gutter(),
        }
    }

    /// Returns the cells of a line of the text.
    pub fn text_width(&self) -> usize {
        usize::from(self.size.0)
            .saturating_sub(self.gutter().width())
            .max(1)
    }

    /// Returns how the lines of the text are laid out.
    pub fn pane_style(&self) -> PaneStyle {
        let is_agent = self.screen == Screen::Agent;
        let is_notes = matches!(
            self.agent.tab,
            AgentTab::Scratch | AgentTab::Facts | AgentTab::Memory
        );
        let marks_whitespace = self.text_options.is_whitespace_marked;
        let half = usize::from(divider_column(self.size.0));
        PaneStyle {
            is_wrapping: self.text_options.is_wrapping,
            is_whitespace_marked: marks_whitespace && (!is_agent || self.agent.is_file_text()),
            is_prose: is_agent && is_notes
                || self.screen == Screen::Archives && !self.is_comparison(),
            has_word_marks: self.has_word_marks,
            half_width: half.saturating_sub(SIDE_GUTTER_CELLS).max(1),
        }
    }
}
