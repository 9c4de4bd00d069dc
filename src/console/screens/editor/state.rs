//! Editor screen: a baseline, its text, and the question that is open about it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use super::buffer::{TextBuffer, byte_of};
use super::layout::LineLayout;
use super::promotion::PromotedLines;
use crate::console::command::KeyContext;
use crate::console::key_guard::KeyGuard;
use crate::console::text::{Pane, Tone, Tones};
use crate::engine::{BaselineDraft, OpenedBaseline};
use crate::lint::{Finding, Severity, TextRange};

/// Columns from which the panel is beside the text.
pub const MIN_PANEL_COLUMNS: u16 = 110;

/// Beginnings of the lines that a merge puts around what it cannot decide.
const CONFLICT_MARKERS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];

/// An open baseline.
#[derive(Clone, Debug)]
pub struct EditorScreen {
    /// The baseline as it was opened, or saved last.
    pub opened: OpenedBaseline,
    /// Its text.
    pub buffer: TextBuffer,
    /// Whether keys type text.
    pub is_typing: bool,
    /// Whether the text differs from the file.
    pub is_modified: bool,
    /// Why the text cannot be changed, if it cannot.
    pub read_only: Option<String>,
    /// The question that is open.
    pub dialog: Option<EditorDialog>,
    /// The line at the top, and how many of its rows are above the top.
    pub top: (usize, usize),
    /// The search; empty without one.
    pub query: String,
    /// Number of its hits when it was typed.
    pub hit_count: usize,
    /// What was typed behind `:`, or to confirm.
    pub command_line: String,
    /// What was found in the lines; it moves with them.
    pub line_notes: Vec<LineNotes>,
    /// Findings of the lint.
    pub findings: Vec<Finding>,
    /// The generation of the text for which they were found.
    pub analyzed_generation: Option<u64>,
    /// What the panel shows.
    pub panel: EditorPanel,
    /// Whether keys move in the panel.
    pub is_panel_focused: bool,
    /// The row of the panel under the cursor.
    pub panel_cursor: usize,
    /// When the draft is written.
    pub draft_due: Option<Duration>,
    /// The generation of the text that the draft has, if there is one.
    pub draft_generation: Option<u64>,
    /// Lines that are inserted once the question about a draft is answered.
    pub promoted: Option<PromotedLines>,
    /// Whether the next request to quit is obeyed though the text is not saved.
    pub is_quit_warned: bool,
}

/// What was found in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineNotes {
    /// Its tones.
    pub tones: Tones,
    /// The pieces that findings are about, in bytes, each with the index of its finding.
    pub findings: Vec<(Range<usize>, usize)>,
}

/// A question about the text, with what it is about.
#[derive(Clone, Debug)]
pub enum EditorDialog {
    /// A draft was found.
    Draft {
        /// The draft.
        draft: BaselineDraft,
        /// The file against the draft, once it is asked for.
        diff: Option<Pane>,
    },
    /// The changes wait for confirmation.
    Save(SaveDialog),
    /// The file has changed since it was opened.
    Changed {
        /// Its content now.
        disk: Vec<u8>,
        /// The file against the text.
        diff: Pane,
        /// Whether the diff is shown, and not the text.
        is_diff_shown: bool,
    },
}

/// Confirmation of a save.
#[derive(Clone, Debug)]
pub struct SaveDialog {
    /// The file against the text; none until it is compared.
    pub diff: Option<Pane>,
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
    /// Ignores keys typed before the operator can have seen the diff.
    pub guard: KeyGuard,
    /// Whether the save was confirmed and is in progress.
    pub is_saving: bool,
    /// Whether the editor closes after it.
    pub closes: bool,
    /// Whether the operator accepts the lint errors of the text.
    pub accepts_lint_errors: bool,
}

/// What the panel beside the text shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditorPanel {
    /// Findings of the lint.
    #[default]
    Findings,
    /// Headings.
    Outline,
    /// The agents whose baseline it is.
    Agents,
}

/// A heading of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineEntry {
    /// Its line, from 0.
    pub line: usize,
    /// Its level, from 1.
    pub level: usize,
    /// Its text.
    pub title: String,
}

impl EditorPanel {
    /// All panels, in the order of Tab.
    pub const ALL: [EditorPanel; 3] = [
        EditorPanel::Findings,
        EditorPanel::Outline,
        EditorPanel::Agents,
    ];

    /// Returns its name.
    pub fn title(self) -> &'static str {
        match self {
            EditorPanel::Findings => "Findings",
            EditorPanel::Outline => "Outline",
            EditorPanel::Agents => "Agents",
        }
    }
}

impl EditorScreen {
    /// Shows a baseline that was opened, with the cursor at the beginning.
    pub fn new(opened: OpenedBaseline, buffer: TextBuffer, read_only: Option<String>) -> Self {
        EditorScreen {
            line_notes: vec![LineNotes::default(); buffer.lines().len()],
            findings: Vec::new(),
            opened,
            buffer,
            is_typing: false,
            is_modified: false,
            read_only,
            dialog: None,
            top: (0, 0),
            query: String::new(),
            hit_count: 0,
            command_line: String::new(),
            analyzed_generation: None,
            panel: EditorPanel::default(),
            is_panel_focused: false,
            panel_cursor: 0,
            draft_due: None,
            draft_generation: None,
            promoted: None,
            is_quit_warned: false,
        }
    }

    /// Returns the context of keys.
    pub fn key_context(&self) -> KeyContext {
        if self.dialog.is_some() {
            KeyContext::EditorDialog
        } else if self.is_panel_focused {
            KeyContext::EditorPanel
        } else if self.is_typing {
            KeyContext::EditorTyping
        } else if self.buffer.is_selecting() {
            KeyContext::EditorSelection
        } else {
            KeyContext::Editor
        }
    }

    /// Returns the guard of the confirmation of a save, if that is open.
    pub fn key_guard(&self) -> Option<&KeyGuard> {
        match &self.dialog {
            Some(EditorDialog::Save(dialog)) => Some(&dialog.guard),
            _ => None,
        }
    }

    /// Applies a change to the text. What was found in its lines moves with them until it is found
    /// again.
    pub fn change_text(&mut self, change: impl FnOnce(&mut TextBuffer)) {
        let old_generation = self.buffer.generation();
        let (old_row, old_count) = (self.buffer.cursor().0, self.buffer.lines().len());
        change(&mut self.buffer);
        if self.buffer.generation() == old_generation {
            return;
        }
        let count = self.buffer.lines().len();
        let notes = &mut self.line_notes;
        let row = old_row.min(self.buffer.cursor().0).min(notes.len());
        if count > old_count {
            let new = std::iter::repeat_n(LineNotes::default(), count - old_count);
            let behind = (row + 1).min(notes.len());
            notes.splice(behind..behind, new);
        } else {
            let behind = (row + old_count - count).min(notes.len());
            notes.drain(row..behind);
        }
        notes.resize(count, LineNotes::default());
        self.is_modified = self.buffer.to_bytes() != self.opened.bytes;
        self.is_quit_warned = false;
    }

    /// Returns the diff on the screen, if there is one.
    pub fn diff(&self) -> Option<&Pane> {
        match self.dialog.as_ref()? {
            EditorDialog::Draft { diff, .. } => diff.as_ref(),
            EditorDialog::Save(dialog) => dialog.diff.as_ref(),
            EditorDialog::Changed {
                diff,
                is_diff_shown,
                ..
            } => is_diff_shown.then_some(diff),
        }
    }

    /// Returns the diff on the screen, if there is one, to scroll it.
    pub fn diff_mut(&mut self) -> Option<&mut Pane> {
        match self.dialog.as_mut()? {
            EditorDialog::Draft { diff, .. } => diff.as_mut(),
            EditorDialog::Save(dialog) => dialog.diff.as_mut(),
            EditorDialog::Changed {
                diff,
                is_diff_shown,
                ..
            } => is_diff_shown.then_some(diff),
        }
    }

    /// Returns the first line, from 0, with a marker of a merge that is not resolved.
    pub fn find_conflict_marker(&self) -> Option<usize> {
        let is_marker = |line: &String| CONFLICT_MARKERS.iter().any(|it| line.starts_with(it));
        self.buffer.lines().iter().position(is_marker)
    }

    /// Returns the headings of the text. Only lines that were recognized as headings count.
    pub fn outline(&self) -> Vec<OutlineEntry> {
        let lines = self.buffer.lines().iter().zip(&self.line_notes).enumerate();
        let heading = |(number, (line, notes)): (usize, (&String, &LineNotes))| {
            let is_heading = notes.tones.iter().any(|(_, tone)| *tone == Tone::Heading);
            let level = line.len() - line.trim_start_matches('#').len();
            (is_heading && level > 0).then(|| OutlineEntry {
                line: number,
                level,
                title: line.trim_matches(['#', ' ', '\r']).to_string(),
            })
        };
        lines.filter_map(heading).collect()
    }

    /// Returns the number of rows of the panel.
    pub fn panel_length(&self) -> usize {
        match self.panel {
            EditorPanel::Findings => self.findings.len(),
            EditorPanel::Outline => self.outline().len(),
            EditorPanel::Agents => self.opened.users.len(),
        }
    }

    /// Replaces what was found in the text, which is the one that was analyzed.
    pub fn set_analysis(&mut self, mut tones: HashMap<usize, Tones>, findings: Vec<Finding>) {
        let mut notes = vec![LineNotes::default(); self.buffer.lines().len()];
        for (number, notes) in notes.iter_mut().enumerate() {
            notes.tones = tones.remove(&(number + 1)).unwrap_or_default();
        }
        for (index, finding) in findings.iter().enumerate() {
            for range in finding.ranges() {
                self.mark_range(&mut notes, range, index);
            }
        }
        self.line_notes = notes;
        self.findings = findings;
        self.analyzed_generation = Some(self.buffer.generation());
        if self.panel == EditorPanel::Findings {
            self.panel_cursor = self.panel_cursor.min(self.findings.len().saturating_sub(1));
        }
    }

    /// Notes a place of a finding in the lines that it covers.
    fn mark_range(&self, notes: &mut [LineNotes], range: TextRange, finding: usize) {
        let (first, last) = (range.start.line.max(1) - 1, range.end.line.max(1) - 1);
        for (number, notes) in notes.iter_mut().enumerate().take(last + 1).skip(first) {
            let line = self.buffer.line(number);
            let begin = match number == first {
                true => byte_of(line, range.start.col.saturating_sub(1)),
                false => 0,
            };
            let end = match number == last {
                true => byte_of(line, range.end.col.saturating_sub(1)),
                false => line.len(),
            };
            // A range that ends at the beginning of a line does not reach into it.
            if begin < end || number == first {
                notes.findings.push((begin..end.max(begin), finding));
            }
        }
    }

    /// Returns the findings of a severity.
    pub fn count_findings(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|it| it.severity == severity).count()
    }

    /// Returns the severity of the worst finding in a line.
    pub fn line_severity(&self, line: usize) -> Option<Severity> {
        let notes = self.line_notes.get(line)?;
        let indices = notes.findings.iter().map(|(_, index)| *index);
        indices
            .filter_map(|it| Some(self.findings.get(it)?.severity))
            .max()
    }

    /// Returns the index of the finding that is looked at: in the panel, else in the line of the
    /// cursor, the worst first.
    pub fn current_finding(&self) -> Option<usize> {
        if self.is_panel_focused && self.panel == EditorPanel::Findings {
            return (self.panel_cursor < self.findings.len()).then_some(self.panel_cursor);
        }
        let notes = self.line_notes.get(self.buffer.cursor().0)?;
        let indices = notes.findings.iter().map(|(_, index)| *index);
        let known = indices.filter(|it| *it < self.findings.len());
        known.max_by_key(|it| (self.findings[*it].severity, Reverse(*it)))
    }

    /// Returns the index of the finding whose fix is wanted: the one that is looked at, or another
    /// one of its line if only that has a fix.
    pub fn finding_to_fix(&self) -> Option<usize> {
        let current = self.current_finding()?;
        let has_fix = |it: &usize| self.findings.get(*it).is_some_and(|it| it.fix.is_some());
        if self.is_panel_focused || has_fix(&current) {
            return Some(current);
        }
        let notes = self.line_notes.get(self.buffer.cursor().0)?;
        let mut indices = notes.findings.iter().map(|(_, index)| *index);
        indices.find(has_fix).or(Some(current))
    }

    /// Returns a line as it is laid out in rows of `width` cells.
    pub fn layout(&self, line: usize, width: usize) -> LineLayout {
        let text = self.buffer.lines().get(line);
        LineLayout::new(text.map_or("", String::as_str), width)
    }

    /// Returns the smallest limit of the agents' memories.
    pub fn max_memory_size(&self) -> Option<u64> {
        let users = self.opened.users.iter();
        users.map(|user| user.max_memory_size).min()
    }
}
