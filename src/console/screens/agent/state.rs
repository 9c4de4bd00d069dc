//! Agent screen: the texts, facts and history of one agent, and how they are shown.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};

use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::text::{Pane, TextLine};
use crate::console::widgets::list_pane::ListPane;
use crate::engine::HistoryEntry;

/// Smallest width of the terminal for two texts side by side, in columns.
pub const MIN_SIDE_BY_SIDE_COLUMNS: u16 = 110;

/// Choices for the number of unchanged lines around a change; `None` is all.
pub const CONTEXT_LINE_CHOICES: [Option<usize>; 5] = [Some(0), Some(3), Some(10), Some(30), None];

/// The tabs of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentTab {
    /// Baseline against memory.
    #[default]
    Diff,
    /// Scratch below the boundary.
    Scratch,
    /// Facts about the agent.
    Facts,
    /// The last known version of its baseline against the file.
    Baseline,
    /// Its rules as pushed last, as the baseline is now, and as the memory is now.
    Rules,
    /// Runs of the agent.
    History,
}

impl AgentTab {
    /// All tabs.
    pub const ALL: [AgentTab; 6] = [
        AgentTab::Diff,
        AgentTab::Scratch,
        AgentTab::Facts,
        AgentTab::Baseline,
        AgentTab::Rules,
        AgentTab::History,
    ];

    /// Returns its name in the palette.
    pub fn id(self) -> &'static str {
        match self {
            AgentTab::Diff => "diff",
            AgentTab::Scratch => "scratch",
            AgentTab::Facts => "facts",
            AgentTab::Baseline => "baseline",
            AgentTab::Rules => "rules",
            AgentTab::History => "history",
        }
    }

    /// Returns its description in the palette.
    pub fn description(self) -> &'static str {
        match self {
            AgentTab::Diff => "Show the live diff",
            AgentTab::Scratch => "Show the notes below the separator",
            AgentTab::Facts => "Show all facts",
            AgentTab::Baseline => "Show what changed in the baseline",
            AgentTab::Rules => "Show who changed which rules since the last push",
            AgentTab::History => "Show the runs",
        }
    }

    /// Returns the tab `by` tabs further, around the ends.
    pub fn cycle(self, by: usize) -> AgentTab {
        let index = AgentTab::ALL
            .iter()
            .position(|tab| *tab == self)
            .unwrap_or(0);
        AgentTab::ALL[(index + by) % AgentTab::ALL.len()]
    }
}

/// Agent screen.
#[derive(Clone, Debug, Default)]
pub struct AgentScreen {
    /// Name of the agent.
    pub agent: String,
    /// The open tab.
    pub tab: AgentTab,
    /// Baseline against memory.
    pub diff: Pane,
    /// Scratch below the boundary.
    pub scratch: Pane,
    /// The last known version of its baseline against the file.
    pub baseline: Pane,
    /// Titles of that version and of the file.
    pub baseline_titles: [String; 2],
    /// What operator and agent changed in the rules; empty until it is loaded.
    pub rules: Pane,
    /// Facts about the agent.
    pub facts: Pane,
    /// Labels of the facts; a fact without text is a heading.
    pub fact_labels: Vec<&'static str>,
    /// Runs of the agent.
    pub history: HistoryPane,
    /// Summary of the findings in the file.
    pub findings: String,
    /// Titles of the baseline and of the memory.
    pub diff_titles: [String; 2],
    /// Generation of the texts; 0 until they are loaded.
    pub generation: u64,
    /// Whether the texts have to be requested when the screen is shown.
    pub is_text_due: bool,
    /// When these texts were read, if they are a cached copy.
    pub cached_at: Option<DateTime<FixedOffset>>,
    /// Whether the text takes the whole screen.
    pub is_full_screen: bool,
    /// Marked lines of the scratch, by agent.
    pub marked_lines: BTreeMap<String, MarkedLines>,
    /// Marked lines that were inserted into the baseline of their agent, which is not saved yet.
    pub promoted_lines: BTreeMap<String, MarkedLines>,
}

/// Runs of an agent.
#[derive(Clone, Debug, Default)]
pub struct HistoryPane {
    /// The records, newest first, or why they cannot be read; `None` until they are loaded.
    pub records: Option<Result<Vec<HistoryEntry>, String>>,
    /// Sequence number of the record under the cursor.
    pub cursor_seq: Option<u64>,
    /// Position in the records; its cursor follows the chosen one.
    pub list: ListPane,
    /// Sequence number of the open record.
    pub open_seq: Option<u64>,
    /// Diff of the open record; empty until it is loaded.
    pub diff: Pane,
}

impl HistoryPane {
    /// Returns the records, newest first.
    pub fn loaded_records(&self) -> &[HistoryEntry] {
        match &self.records {
            Some(Ok(records)) => records,
            _ => &[],
        }
    }

    /// Returns the index of the record under the cursor; of the newest until a key moves it.
    pub fn cursor_index(&self) -> usize {
        let is_current = |entry: &HistoryEntry| Some(entry.record.seq) == self.cursor_seq;
        self.loaded_records()
            .iter()
            .position(is_current)
            .unwrap_or(0)
    }

    /// Returns the record under the cursor.
    pub fn current_record(&self) -> Option<&HistoryEntry> {
        self.loaded_records().get(self.cursor_index())
    }
}

impl AgentScreen {
    /// Returns the screen of another agent with the same display options.
    pub fn for_agent(&self, name: String) -> AgentScreen {
        AgentScreen {
            agent: name,
            tab: self.tab,
            is_full_screen: self.is_full_screen,
            marked_lines: self.marked_lines.clone(),
            promoted_lines: self.promoted_lines.clone(),
            ..AgentScreen::default()
        }
    }

    /// Returns the marked lines of an agent's scratch, if there are any.
    pub fn marked_lines_of(&self, agent: &str) -> Option<&MarkedLines> {
        let marked = self.marked_lines.get(agent);
        marked.filter(|marked| !marked.is_empty())
    }

    /// Returns the marked lines of the agent on the screen, else the line under the cursor.
    pub fn chosen_lines(&self) -> Vec<TextLine> {
        match self.marked_lines_of(&self.agent) {
            Some(marked) => marked.iter().cloned().collect(),
            None => {
                let line = self.scratch.lines.get(self.scratch.cursor_line);
                let line = line.filter(|line| line.new_number.is_some());
                line.cloned().into_iter().collect()
            }
        }
    }

    /// Whether the tab shows a text whose lines can be marked, with a cursor.
    pub fn has_line_cursor(&self) -> bool {
        self.tab == AgentTab::Scratch && !self.is_full_screen
    }

    /// Returns the pane of the open tab.
    pub fn current_pane(&self) -> &Pane {
        match self.tab {
            AgentTab::Diff => &self.diff,
            AgentTab::Scratch => &self.scratch,
            AgentTab::Facts => &self.facts,
            AgentTab::Baseline => &self.baseline,
            AgentTab::Rules => &self.rules,
            AgentTab::History => &self.history.diff,
        }
    }

    /// Returns the pane of the open tab, to scroll or search it.
    pub fn current_pane_mut(&mut self) -> &mut Pane {
        match self.tab {
            AgentTab::Diff => &mut self.diff,
            AgentTab::Scratch => &mut self.scratch,
            AgentTab::Facts => &mut self.facts,
            AgentTab::Baseline => &mut self.baseline,
            AgentTab::Rules => &mut self.rules,
            AgentTab::History => &mut self.history.diff,
        }
    }

    /// Whether the tab shows a cached copy. Runs and baselines are on this machine.
    pub fn is_cached(&self) -> bool {
        self.cached_at.is_some() && !matches!(self.tab, AgentTab::Baseline | AgentTab::History)
    }

    /// Whether the tab shows changed lines.
    pub fn is_comparison(&self) -> bool {
        self.tab == AgentTab::Rules || self.has_diff_options()
    }

    /// Whether the tab shows a diff of two texts, which can be arranged.
    pub fn has_diff_options(&self) -> bool {
        match self.tab {
            AgentTab::Diff | AgentTab::Baseline => true,
            AgentTab::History => self.history.open_seq.is_some(),
            AgentTab::Scratch | AgentTab::Facts | AgentTab::Rules => false,
        }
    }

    /// Whether the tab shows a list with a cursor instead of a text.
    pub fn is_list(&self) -> bool {
        self.tab == AgentTab::History && self.history.open_seq.is_none()
    }

    /// Whether the text of the tab is loaded by itself, and not with the agent's other texts.
    pub fn has_own_job(&self) -> bool {
        matches!(self.tab, AgentTab::History | AgentTab::Rules)
    }

    /// Whether the tab shows text of a file.
    pub fn is_file_text(&self) -> bool {
        !self.is_list() && self.tab != AgentTab::Facts
    }
}
