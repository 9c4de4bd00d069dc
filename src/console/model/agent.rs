//! One agent: its texts, its facts and its history, and how they are shown.

use chrono::{DateTime, FixedOffset};

use super::Model;
use crate::console::text::{Arrangement, Pane, PaneStyle, Prepared, TextLine};
use crate::engine::RunDiff;

/// From so many columns on two texts can stand side by side.
pub const SIDES: u16 = 110;

/// How many equal lines may be shown around a change.
pub const CONTEXTS: [Option<usize>; 5] = [Some(0), Some(3), Some(10), Some(30), None];

/// Cells left of a diff: a sign and two numbers.
pub const GUTTER_DIFF: usize = 14;

/// Cells left of a plain text: one number.
pub const GUTTER_TEXT: usize = 8;

/// Cells left of each side of a diff: a sign and one number.
pub const GUTTER_SIDE: usize = 8;

/// Cells left of facts: what they are about.
pub const GUTTER_FACT: usize = 22;

/// Rows above the list of what was done: two charts, an empty one, the column heads.
const CHARTS: usize = 4;

/// The tabs of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
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

impl Tab {
    /// All tabs.
    pub const ALL: [Tab; 5] = [
        Tab::Diff,
        Tab::Scratch,
        Tab::Facts,
        Tab::Baseline,
        Tab::History,
    ];

    /// Its name in the palette.
    pub fn word(self) -> &'static str {
        match self {
            Tab::Diff => "diff",
            Tab::Scratch => "scratch",
            Tab::Facts => "facts",
            Tab::Baseline => "baseline",
            Tab::History => "history",
        }
    }

    /// What it shows, in a line.
    pub fn title(self) -> &'static str {
        match self {
            Tab::Diff => "Show the live diff",
            Tab::Scratch => "Show the notes below the separator",
            Tab::Facts => "Show all that is known",
            Tab::Baseline => "Show what changed in the baseline",
            Tab::History => "Show the runs",
        }
    }

    /// So many tabs further, round the ends.
    pub fn step(self, by: usize) -> Tab {
        let here = Tab::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Tab::ALL[(here + by) % Tab::ALL.len()]
    }
}

/// One agent's texts.
#[derive(Clone, Debug, Default)]
pub struct AgentScreen {
    /// Whose.
    pub name: String,
    /// Which one is shown.
    pub tab: Tab,
    /// Baseline against memory.
    pub diff: Pane,
    /// The same by the other rule about blanks, where that makes a difference.
    pub other: Option<Vec<TextLine>>,
    /// What is below the boundary.
    pub scratch: Pane,
    /// The last known version of its baseline against the file.
    pub baseline: Pane,
    /// The same by the other rule about blanks.
    pub baseline_other: Option<Vec<TextLine>>,
    /// Names of that version and of the file.
    pub baseline_titles: [String; 2],
    /// What is known of it.
    pub facts: Pane,
    /// What each of the facts is about; a heading where there is no more to it.
    pub labels: Vec<&'static str>,
    /// What was done to it.
    pub history: HistoryPane,
    /// What is remarkable about the file.
    pub findings: String,
    /// Names of the baseline and of the memory.
    pub titles: [String; 2],
    /// Generation of the texts; 0 before they came.
    pub generation: u64,
    /// When these texts were read, where they are no more than a copy.
    pub copied: Option<DateTime<FixedOffset>>,
    /// Wrap long lines.
    pub wrap: bool,
    /// Mark ordinary white space.
    pub reveal: bool,
    /// Never two sides.
    pub unified: bool,
    /// Equal lines around a change; all where there is no number.
    pub context: Option<usize>,
    /// Lines that differ in blanks alone are equal.
    pub ignore_blanks: bool,
    /// Nothing but the text is on the screen.
    pub full: bool,
}

/// What was done to an agent.
#[derive(Clone, Debug, Default)]
pub struct HistoryPane {
    /// The records, the youngest first, or why there are none; nothing before they
    /// came.
    pub past: Option<Result<Vec<RunDiff>, String>>,
    /// The record under the cursor, by its number.
    pub cursor: Option<u64>,
    /// First visible row.
    pub top: usize,
    /// The record that is open, by its number.
    pub opened: Option<u64>,
    /// What it changed; empty before that came.
    pub pane: Pane,
    /// The same by the other rule about blanks.
    pub other: Option<Vec<TextLine>>,
}

impl HistoryPane {
    /// The records, the youngest first.
    pub fn rows(&self) -> &[RunDiff] {
        match &self.past {
            Some(Ok(past)) => past,
            _ => &[],
        }
    }

    /// The place of the record under the cursor: of the youngest, until one was
    /// chosen.
    pub fn index(&self) -> usize {
        let is_it = |past: &RunDiff| Some(past.record.seq) == self.cursor;
        self.rows().iter().position(is_it).unwrap_or(0)
    }

    /// The record under the cursor.
    pub fn current(&self) -> Option<&RunDiff> {
        self.rows().get(self.index())
    }
}

impl AgentScreen {
    /// The screen of another agent, looked at in the same way.
    pub fn of(&self, name: String) -> AgentScreen {
        AgentScreen {
            name,
            tab: self.tab,
            wrap: self.wrap,
            reveal: self.reveal,
            unified: self.unified,
            context: self.context,
            ignore_blanks: self.ignore_blanks,
            full: self.full,
            ..AgentScreen::default()
        }
    }

    /// The pane that is shown.
    pub fn pane(&self) -> &Pane {
        match self.tab {
            Tab::Diff => &self.diff,
            Tab::Scratch => &self.scratch,
            Tab::Facts => &self.facts,
            Tab::Baseline => &self.baseline,
            Tab::History => &self.history.pane,
        }
    }

    /// The same, to be moved through.
    pub fn pane_mut(&mut self) -> &mut Pane {
        match self.tab {
            Tab::Diff => &mut self.diff,
            Tab::Scratch => &mut self.scratch,
            Tab::Facts => &mut self.facts,
            Tab::Baseline => &mut self.baseline,
            Tab::History => &mut self.history.pane,
        }
    }

    /// Whether what is shown is no more than a copy. Runs and baselines are of this
    /// machine.
    pub fn is_copy(&self) -> bool {
        self.copied.is_some() && !matches!(self.tab, Tab::Baseline | Tab::History)
    }

    /// Whether two texts are compared.
    pub fn is_diff(&self) -> bool {
        match self.tab {
            Tab::Diff | Tab::Baseline => true,
            Tab::History => self.history.opened.is_some(),
            Tab::Scratch | Tab::Facts => false,
        }
    }

    /// Whether there is a list with a cursor instead of a text.
    pub fn is_list(&self) -> bool {
        self.tab == Tab::History && self.history.opened.is_none()
    }

    /// Whether the tab shows a text of a file, and no list or facts about it.
    pub fn is_text(&self) -> bool {
        !self.is_list() && self.tab != Tab::Facts
    }

    /// Whether whitespace has marks: that of files alone.
    pub fn has_whitespace_marks(&self) -> bool {
        self.reveal && self.is_text()
    }

    /// Shows panes as it is set, on a screen of so many columns.
    pub fn arrange(&mut self, columns: u16) {
        let by = Arrangement {
            context: self.context,
            sides: !self.unified && !self.full && columns >= SIDES,
        };
        self.diff.arrange(by);
        self.baseline.arrange(by);
        self.history.pane.arrange(by);
    }

    /// Switches between the rules about blanks.
    pub fn switch_blanks(&mut self) {
        self.ignore_blanks = !self.ignore_blanks;
        let history = &mut self.history;
        for (pane, other) in [
            (&mut self.diff, &mut self.other),
            (&mut self.baseline, &mut self.baseline_other),
            (&mut history.pane, &mut history.other),
        ] {
            if let Some(lines) = other.take() {
                *other = Some(pane.lines.clone());
                pane.replace(lines);
                pane.grown = 0;
            }
        }
    }

    /// Of a text that was prepared what is shown by the rule about blanks, and what
    /// is not.
    pub fn choose(&self, prepared: Prepared) -> (Vec<TextLine>, Option<Vec<TextLine>>) {
        match prepared.but_blanks {
            Some(lines) if self.ignore_blanks => (lines, Some(prepared.lines)),
            other => (prepared.lines, other),
        }
    }
}

impl Model {
    /// Rows of a text that fit.
    pub fn text_height(&self) -> usize {
        let agent = &self.agent;
        // Two lines of header, a rule; a rule, the findings, the message, the hints. In
        // full the state alone, and above two sides what they are.
        let fixed = match (agent.full && !agent.is_list(), self.has_sides()) {
            (true, _) => 1,
            (false, true) => 8,
            (false, false) => 7,
        };
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Whether two texts stand side by side.
    pub fn has_sides(&self) -> bool {
        self.agent.is_diff() && self.agent.pane().has_sides()
    }

    /// Cells left of the text.
    pub fn gutter(&self) -> usize {
        let agent = &self.agent;
        match agent.tab {
            _ if agent.is_diff() && self.has_sides() => GUTTER_SIDE,
            // What is copied off the screen should be the text, or a diff of it.
            _ if agent.is_diff() && agent.full => 1,
            _ if agent.is_diff() => GUTTER_DIFF,
            Tab::Facts => GUTTER_FACT,
            _ if agent.full => 0,
            _ => GUTTER_TEXT,
        }
    }

    /// Cells of a text that fit, without its gutter.
    pub fn text_width(&self) -> usize {
        usize::from(self.size.0)
            .saturating_sub(self.gutter())
            .max(1)
    }

    /// The column between two sides.
    pub fn middle(&self) -> usize {
        usize::from(self.size.0).saturating_sub(2) / 2
    }

    /// How texts look.
    pub fn look(&self) -> PaneStyle {
        PaneStyle {
            wrap: self.agent.wrap,
            reveal: self.agent.has_whitespace_marks(),
            prose: matches!(self.agent.tab, Tab::Scratch | Tab::Facts),
            word_marks: self.word_marks,
            half: self.middle().saturating_sub(GUTTER_SIDE).max(1),
        }
    }

    /// Rows of the history that fit.
    pub fn history_height(&self) -> usize {
        usize::from(self.size.1).saturating_sub(7 + CHARTS).max(1)
    }
}
