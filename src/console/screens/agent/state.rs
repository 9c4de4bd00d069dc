//! Agent screen: the texts, facts and history of one agent, its memory with a layout, and how they are
//! shown.

pub mod memory;

use std::collections::BTreeMap;

use crate::console::agent_row::AgentRow;
use crate::console::requests::NumberedRequests;
use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::text::{Pane, TextLine};
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{HistoryEntry, Observation};
use memory::{HealthPane, MemoryPane};

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
    /// Collections and items of its memory with a layout.
    Memory,
    /// Findings of the checks of that memory.
    Health,
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
    const ALL: [AgentTab; 8] = [
        AgentTab::Diff,
        AgentTab::Scratch,
        AgentTab::Memory,
        AgentTab::Health,
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
            AgentTab::Memory => "memory",
            AgentTab::Health => "health",
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
            AgentTab::Memory => "Show the collections and items of the memory",
            AgentTab::Health => "Show the health findings of the memory",
            AgentTab::Facts => "Show all facts",
            AgentTab::Baseline => "Show what changed in the baseline",
            AgentTab::Rules => "Show who changed which rules since the last push",
            AgentTab::History => "Show the runs",
        }
    }

    /// Whether it is about a memory with a layout.
    pub fn is_about_layout(self) -> bool {
        matches!(self, AgentTab::Memory | AgentTab::Health)
    }

    /// Whether it compares with a baseline.
    fn is_about_baseline(self) -> bool {
        matches!(
            self,
            AgentTab::Diff | AgentTab::Scratch | AgentTab::Baseline | AgentTab::Rules
        )
    }

    /// Returns the tabs that an agent has; the first is shown where another one is not among them.
    pub fn offered_for(row: Option<&AgentRow>) -> Vec<AgentTab> {
        let has_layout = row.is_some_and(|row| row.layout.is_some());
        let is_never_reset = row.is_some_and(AgentRow::is_never_reset);
        let is_offered = |tab: &AgentTab| {
            (has_layout || !tab.is_about_layout()) && (!is_never_reset || !tab.is_about_baseline())
        };
        AgentTab::ALL.into_iter().filter(is_offered).collect()
    }

    /// Returns the tab `by` tabs further among those that are offered, around the ends.
    pub fn cycle(self, offered: &[AgentTab], by: isize) -> AgentTab {
        let index = offered.iter().position(|tab| *tab == self).unwrap_or(0);
        let next = (index as isize + by).rem_euclid(offered.len().max(1) as isize);
        offered.get(next as usize).copied().unwrap_or(self)
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
    /// Its memory with a layout.
    pub memory: MemoryPane,
    /// Findings of the checks of that memory.
    pub health: HealthPane,
    /// Requests about a memory with a layout.
    pub memory_requests: NumberedRequests,
    /// Summary of the findings in the file.
    pub findings: String,
    /// Titles of the baseline and of the memory.
    pub diff_titles: [String; 2],
    /// Generation of the texts; 0 until they are loaded.
    pub generation: u64,
    /// Whether the texts have to be requested when the screen is shown.
    pub is_text_due: bool,
    /// What was observed when these texts were read, if they are a cached copy.
    pub cached_observation: Option<Box<Observation>>,
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
    /// Position in the records, by their sequence numbers. The cursor is on the newest until a key moves it.
    pub list: ListPane<u64>,
    /// Sequence number of the open record.
    pub open_seq: Option<u64>,
    /// Diff of the open record; empty until it is loaded.
    pub diff: Pane,
}

impl KeyedRow<u64> for HistoryEntry {
    fn key(&self) -> u64 {
        self.record.seq
    }
}

impl HistoryPane {
    /// Returns the records, newest first.
    pub fn loaded_records(&self) -> &[HistoryEntry] {
        match &self.records {
            Some(Ok(records)) => records,
            _ => &[],
        }
    }

    /// Returns the record under the cursor.
    pub fn current_record(&self) -> Option<&HistoryEntry> {
        let records = self.loaded_records();
        records.get(self.list.cursor_in(records))
    }
}

impl AgentScreen {
    /// Returns the screen of another agent with the same display options.
    pub fn for_agent(&self, name: String) -> AgentScreen {
        AgentScreen {
            agent: name,
            tab: self.tab,
            is_full_screen: self.is_full_screen,
            memory_requests: self.memory_requests,
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
            AgentTab::Memory | AgentTab::Health => &self.memory.content.pane,
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
            AgentTab::Memory | AgentTab::Health => &mut self.memory.content.pane,
            AgentTab::Facts => &mut self.facts,
            AgentTab::Baseline => &mut self.baseline,
            AgentTab::Rules => &mut self.rules,
            AgentTab::History => &mut self.history.diff,
        }
    }

    /// Whether the tab shows a cached copy. Runs and baselines are on this machine.
    pub fn is_cached(&self) -> bool {
        let has_own_read = matches!(self.tab, AgentTab::Baseline | AgentTab::History);
        self.cached_observation.is_some() && !has_own_read && !self.tab.is_about_layout()
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
            _ => false,
        }
    }

    /// Whether a tab that is a list has a text, too: the content of the item under the cursor, or what
    /// the checks found.
    pub fn has_current_content(&self) -> bool {
        match self.tab {
            AgentTab::Memory => {
                let current = self.memory.items.current_item();
                current.map(|item| item.id.as_str()) == self.memory.content.item()
            }
            tab => tab == AgentTab::Health,
        }
    }

    /// Whether the tab has a whole text to copy or to open in the pager.
    pub fn has_full_text(&self) -> bool {
        match self.tab {
            AgentTab::Health => !self.health.findings().is_empty(),
            _ if self.is_list() && !self.has_current_content() => false,
            _ => !self.current_pane().lines.is_empty(),
        }
    }

    /// Whether the tab shows the items of a memory.
    pub fn is_item_list(&self) -> bool {
        self.tab == AgentTab::Memory && self.is_list()
    }

    /// Whether the tab shows a list with a cursor instead of a text.
    pub fn is_list(&self) -> bool {
        match self.tab {
            AgentTab::History => self.history.open_seq.is_none(),
            AgentTab::Memory => !self.memory.content.is_open,
            AgentTab::Health => true,
            _ => false,
        }
    }

    /// Whether the text of the tab is loaded by itself, and not with the agent's other texts.
    pub fn has_own_job(&self) -> bool {
        matches!(self.tab, AgentTab::History | AgentTab::Rules) || self.tab.is_about_layout()
    }

    /// Whether the tab shows text of a file.
    pub fn is_file_text(&self) -> bool {
        !self.is_list() && self.tab != AgentTab::Facts
    }
}
