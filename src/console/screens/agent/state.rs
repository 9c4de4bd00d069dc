//! One agent: its texts, its facts and its history, and how they are shown.

use chrono::{DateTime, FixedOffset};

use crate::console::text::{Arrangement, Pane, PreparedText, TextLine};
use crate::engine::HistoryEntry;

/// From so many columns on two texts can stand side by side.
pub const MIN_SIDE_BY_SIDE_COLUMNS: u16 = 110;

/// How many equal lines may be shown around a change.
pub const CONTEXT_LINE_CHOICES: [Option<usize>; 5] = [Some(0), Some(3), Some(10), Some(30), None];

/// Cells left of each side of a diff: a sign and one number.
pub const SIDE_GUTTER_CELLS: usize = 8;

/// The tabs of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentTab {
    /// Baseline against memory.
    #[default]
    Diff,
    /// What is below the boundary.
    Scratch,
    /// What is known of it.
    Facts,
    /// The last known version of its baseline against the file.
    Baseline,
    /// What was done to it.
    History,
}

impl AgentTab {
    /// All tabs.
    pub const ALL: [AgentTab; 5] = [
        AgentTab::Diff,
        AgentTab::Scratch,
        AgentTab::Facts,
        AgentTab::Baseline,
        AgentTab::History,
    ];

    /// Its name in the palette.
    pub fn id(self) -> &'static str {
        match self {
            AgentTab::Diff => "diff",
            AgentTab::Scratch => "scratch",
            AgentTab::Facts => "facts",
            AgentTab::Baseline => "baseline",
            AgentTab::History => "history",
        }
    }

    /// What it shows, in a line.
    pub fn description(self) -> &'static str {
        match self {
            AgentTab::Diff => "Show the live diff",
            AgentTab::Scratch => "Show the notes below the separator",
            AgentTab::Facts => "Show all that is known",
            AgentTab::Baseline => "Show what changed in the baseline",
            AgentTab::History => "Show the runs",
        }
    }

    /// So many tabs further, round the ends.
    pub fn cycle(self, by: usize) -> AgentTab {
        let here = AgentTab::ALL
            .iter()
            .position(|tab| *tab == self)
            .unwrap_or(0);
        AgentTab::ALL[(here + by) % AgentTab::ALL.len()]
    }
}

/// One agent's texts.
#[derive(Clone, Debug, Default)]
pub struct AgentScreen {
    /// Whose.
    pub agent: String,
    /// Which one is shown.
    pub tab: AgentTab,
    /// Baseline against memory.
    pub diff: Pane,
    /// The same by the other rule about blanks, where that makes a difference.
    pub diff_alternate: Option<Vec<TextLine>>,
    /// What is below the boundary.
    pub scratch: Pane,
    /// The last known version of its baseline against the file.
    pub baseline: Pane,
    /// The same by the other rule about blanks.
    pub baseline_alternate: Option<Vec<TextLine>>,
    /// Names of that version and of the file.
    pub baseline_titles: [String; 2],
    /// What is known of it.
    pub facts: Pane,
    /// What each of the facts is about; a heading where there is no more to it.
    pub fact_labels: Vec<&'static str>,
    /// What was done to it.
    pub history: HistoryPane,
    /// What is remarkable about the file.
    pub findings: String,
    /// Names of the baseline and of the memory.
    pub diff_titles: [String; 2],
    /// Generation of the texts; 0 before they came.
    pub generation: u64,
    /// When these texts were read, where they are no more than a copy.
    pub cached_at: Option<DateTime<FixedOffset>>,
    /// Wrap long lines.
    pub is_wrapping: bool,
    /// Mark ordinary white space.
    pub is_whitespace_marked: bool,
    /// Never two sides.
    pub is_unified: bool,
    /// Equal lines around a change; all where there is no number.
    pub context_lines: Option<usize>,
    /// Lines that differ in blanks alone are equal.
    pub is_whitespace_ignored: bool,
    /// Nothing but the text is on the screen.
    pub is_full_screen: bool,
}

/// What was done to an agent.
#[derive(Clone, Debug, Default)]
pub struct HistoryPane {
    /// The records, the youngest first, or why there are none; nothing before they
    /// came.
    pub records: Option<Result<Vec<HistoryEntry>, String>>,
    /// The record under the cursor, by its number.
    pub cursor_seq: Option<u64>,
    /// First visible row.
    pub top: usize,
    /// The record that is open, by its number.
    pub open_seq: Option<u64>,
    /// What it changed; empty before that came.
    pub diff: Pane,
    /// The same by the other rule about blanks.
    pub diff_alternate: Option<Vec<TextLine>>,
}

impl HistoryPane {
    /// The records, the youngest first.
    pub fn loaded_records(&self) -> &[HistoryEntry] {
        match &self.records {
            Some(Ok(past)) => past,
            _ => &[],
        }
    }

    /// The place of the record under the cursor: of the youngest, until one was
    /// chosen.
    pub fn cursor_index(&self) -> usize {
        let is_it = |past: &HistoryEntry| Some(past.record.seq) == self.cursor_seq;
        self.loaded_records().iter().position(is_it).unwrap_or(0)
    }

    /// The record under the cursor.
    pub fn current_record(&self) -> Option<&HistoryEntry> {
        self.loaded_records().get(self.cursor_index())
    }
}

impl AgentScreen {
    /// The screen of another agent, looked at in the same way.
    pub fn for_agent(&self, name: String) -> AgentScreen {
        AgentScreen {
            agent: name,
            tab: self.tab,
            is_wrapping: self.is_wrapping,
            is_whitespace_marked: self.is_whitespace_marked,
            is_unified: self.is_unified,
            context_lines: self.context_lines,
            is_whitespace_ignored: self.is_whitespace_ignored,
            is_full_screen: self.is_full_screen,
            ..AgentScreen::default()
        }
    }

    /// The pane that is shown.
    pub fn current_pane(&self) -> &Pane {
        match self.tab {
            AgentTab::Diff => &self.diff,
            AgentTab::Scratch => &self.scratch,
            AgentTab::Facts => &self.facts,
            AgentTab::Baseline => &self.baseline,
            AgentTab::History => &self.history.diff,
        }
    }

    /// The same, to be moved through.
    pub fn current_pane_mut(&mut self) -> &mut Pane {
        match self.tab {
            AgentTab::Diff => &mut self.diff,
            AgentTab::Scratch => &mut self.scratch,
            AgentTab::Facts => &mut self.facts,
            AgentTab::Baseline => &mut self.baseline,
            AgentTab::History => &mut self.history.diff,
        }
    }

    /// Whether what is shown is no more than a copy. Runs and baselines are of this
    /// machine.
    pub fn is_cached(&self) -> bool {
        self.cached_at.is_some() && !matches!(self.tab, AgentTab::Baseline | AgentTab::History)
    }

    /// Whether two texts are compared.
    pub fn is_comparison(&self) -> bool {
        match self.tab {
            AgentTab::Diff | AgentTab::Baseline => true,
            AgentTab::History => self.history.open_seq.is_some(),
            AgentTab::Scratch | AgentTab::Facts => false,
        }
    }

    /// Whether there is a list with a cursor instead of a text.
    pub fn is_list(&self) -> bool {
        self.tab == AgentTab::History && self.history.open_seq.is_none()
    }

    /// Whether the tab shows a text of a file, and no list or facts about it.
    pub fn is_file_text(&self) -> bool {
        !self.is_list() && self.tab != AgentTab::Facts
    }

    /// Whether whitespace has marks: that of files alone.
    pub fn can_mark_whitespace(&self) -> bool {
        self.is_whitespace_marked && self.is_file_text()
    }

    /// Shows panes as it is set, on a screen of so many columns.
    pub fn arrange_panes(&mut self, columns: u16) {
        let by = Arrangement {
            context_lines: self.context_lines,
            is_side_by_side: !self.is_unified
                && !self.is_full_screen
                && columns >= MIN_SIDE_BY_SIDE_COLUMNS,
        };
        self.diff.set_arrangement(by);
        self.baseline.set_arrangement(by);
        self.history.diff.set_arrangement(by);
    }

    /// Switches between the rules about blanks.
    pub fn toggle_ignore_whitespace(&mut self) {
        self.is_whitespace_ignored = !self.is_whitespace_ignored;
        let history = &mut self.history;
        for (pane, other) in [
            (&mut self.diff, &mut self.diff_alternate),
            (&mut self.baseline, &mut self.baseline_alternate),
            (&mut history.diff, &mut history.diff_alternate),
        ] {
            if let Some(lines) = other.take() {
                *other = Some(pane.lines.clone());
                pane.replace_lines(lines);
                pane.lines_added_above = 0;
            }
        }
    }

    /// Of a text that was prepared what is shown by the rule about blanks, and what
    /// is not.
    pub fn choose_lines(&self, prepared: PreparedText) -> (Vec<TextLine>, Option<Vec<TextLine>>) {
        match prepared.ignoring_whitespace {
            Some(lines) if self.is_whitespace_ignored => (lines, Some(prepared.lines)),
            other => (prepared.lines, other),
        }
    }
}
