//! Editor screen: a baseline, its text, and the question that is open about it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use super::buffer::{TextBuffer, byte_of};
use super::layout::LineLayout;
use super::promotion::PromotedLines;
use crate::base::digest::Digest;
use crate::boundary::SeparatorLines;
use crate::console::command::KeyContext;
use crate::console::keys::key_guard::KeyGuard;
use crate::console::screens::editor::buffer::search::count_hits;
use crate::console::screens::editor::buffer::selection::is_selecting;
use crate::console::text::{Pane, Tones};
use crate::console::theme::Role;
use crate::engine::{BaselineDraft, BaselineFile, NextRuleChange, OpenedBaseline, SealMatch};
use crate::lint::{Finding, Severity, TextRange};

/// Beginnings of the lines that a merge puts around what it cannot decide.
const CONFLICT_MARKERS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];

/// An open baseline.
#[derive(Clone, Debug)]
pub struct EditorScreen {
    /// The baseline as it was opened, or saved last.
    pub opened: OpenedBaseline,
    /// What is at its path now, as far as that is known.
    pub file: FileOnDisk,
    /// When the path is checked next.
    pub check_due: Duration,
    /// Its text.
    pub buffer: TextBuffer,
    /// Whether keys type text.
    pub is_typing: bool,
    /// Whether the text differs from the file.
    pub is_modified: bool,
    /// Why the text cannot be changed, if it cannot.
    pub read_only: Option<String>,
    /// The bytes to save, if another program wrote what cannot be edited here. The buffer shows them.
    pub whole_text: Option<Vec<u8>>,
    /// The question that is open.
    pub dialog: Option<EditorDialog>,
    /// The line at the top, and how many of its rows are above the top.
    pub top: (usize, usize),
    /// The search; empty without one.
    pub query: String,
    /// Number of its hits.
    pub hit_count: usize,
    /// The number that was typed before a command.
    pub count: Option<usize>,
    /// What was found in the lines; it moves with them.
    pub line_notes: Vec<LineNotes>,
    /// Findings of the lint.
    pub findings: Vec<Finding>,
    /// The generation of the text for which they were found.
    pub analyzed_generation: Option<u64>,
    /// The finding that a key went to, and the cursor there: several may begin at one place.
    pub visited_finding: Option<(usize, (usize, usize))>,
    /// What the text changes in the rules of each agent, by its name.
    pub rule_changes: BTreeMap<String, NextRuleChange>,
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
    /// Whether that draft was written, or why not; none until that is known.
    pub draft_outcome: Option<Result<(), String>>,
    /// How far a request to quit is, though the text is not saved.
    pub quit_request: QuitRequest,
    /// The versions that the text continued from before another program's version was taken into it,
    /// the last one last.
    replaced_bases: Vec<ReplacedBase>,
    /// Whether a version was taken into the text that its seal did not cover: no save seals that, also
    /// when the file is another one by then.
    pub has_foreign_lines: bool,
}

/// The file of the open baseline, compared with the version that the text continues from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOnDisk {
    /// It has that version.
    AsOpened,
    /// It has another one.
    Changed,
    /// There is none.
    Gone,
    /// Something that cannot be read as a baseline, and why.
    Unreadable(String),
}

/// A version that the text no longer continues from, unless the operator undoes that.
#[derive(Clone, Debug)]
struct ReplacedBase {
    /// The number of steps that can be undone in a text that continues from it, at most.
    undo_depth: usize,
    /// Its content.
    bytes: Vec<u8>,
    digest: Digest,
    seal: SealMatch,
    has_foreign_lines: bool,
}

/// A request to quit the console with a text that is not saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuitRequest {
    /// There is none since the last change, or the last key that did something else.
    #[default]
    None,
    /// The draft is being written; its outcome decides what to tell the operator.
    WaitsForDraft,
    /// The operator knows what becomes of the text; the next request is obeyed.
    Warned,
}

/// What was found in a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineNotes {
    /// Its tones.
    pub tones: Tones,
    /// The pieces that findings are about.
    pub findings: Vec<FindingMark>,
}

/// A piece of a line that a finding is about.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingMark {
    /// The piece, in bytes.
    pub range: Range<usize>,
    /// The index of the finding.
    pub finding: usize,
    /// Whether the place of the finding begins here, and not in a line above.
    pub is_start: bool,
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
    /// What a save has to say, whole: its last line may be a command to copy.
    Message(String),
    /// The changes wait for confirmation.
    Save(SaveDialog),
    /// The file has changed since it was opened.
    Changed {
        /// What is there now.
        disk: BaselineFile,
        /// What the seal says of that.
        seal: SealMatch,
        /// The file against the text.
        diff: Pane,
        /// Whether the diff is shown, and not the text.
        is_diff_shown: bool,
    },
}

/// Confirmation of a save.
#[derive(Clone, Debug, Default)]
pub struct SaveDialog {
    /// The file against the text; none until it is compared.
    pub diff: Option<Pane>,
    /// Whether that is the sealed version, because another program has changed the file since.
    pub is_from_seal: bool,
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
    /// Number of lines of the file as it is now that the text does not have.
    pub dropped_lines: usize,
    /// Whether the opened version ends with a separator, and the text has none.
    pub loses_separator: bool,
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

impl SaveDialog {
    /// Asks for a comparison first; a guard then ignores keys typed before it is on the screen.
    pub fn comparing(now: Duration) -> SaveDialog {
        SaveDialog {
            guard: KeyGuard::new(now),
            ..SaveDialog::default()
        }
    }
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
            file: FileOnDisk::AsOpened,
            check_due: Duration::ZERO,
            buffer,
            is_typing: false,
            is_modified: false,
            read_only,
            whole_text: None,
            dialog: None,
            top: (0, 0),
            query: String::new(),
            hit_count: 0,
            count: None,
            analyzed_generation: None,
            visited_finding: None,
            rule_changes: BTreeMap::new(),
            panel: EditorPanel::default(),
            is_panel_focused: false,
            panel_cursor: 0,
            draft_due: None,
            draft_generation: None,
            promoted: None,
            draft_outcome: None,
            quit_request: QuitRequest::None,
            replaced_bases: Vec::new(),
            has_foreign_lines: false,
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
        } else if is_selecting(&self.buffer) {
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
        self.is_modified = self.text_bytes() != self.opened.bytes;
        self.quit_request = QuitRequest::None;
        if !self.query.is_empty() {
            self.hit_count = count_hits(&self.buffer);
        }
    }

    /// Continues from another version of the file, which the last step took into the text. Undoing
    /// that step continues from the version before.
    pub fn replace_base(&mut self, bytes: Vec<u8>, digest: Digest, seal: SealMatch) {
        let has_foreign_lines = self.has_foreign_lines;
        self.has_foreign_lines |= matches!(seal, SealMatch::Mismatch(_));
        self.replaced_bases.push(ReplacedBase {
            has_foreign_lines,
            undo_depth: self.buffer.undo_depth().saturating_sub(1),
            bytes: std::mem::replace(&mut self.opened.bytes, bytes),
            digest: std::mem::replace(&mut self.opened.digest, digest),
            seal: std::mem::replace(&mut self.opened.seal, seal),
        });
        self.file = FileOnDisk::AsOpened;
        self.is_modified = self.text_bytes() != self.opened.bytes;
    }

    /// Continues from the version that the text had before its last undo took the other one out of
    /// it. Returns whether there was one: a save then has to find the change of the file again.
    pub fn restore_base(&mut self) -> bool {
        let depth = self.buffer.undo_depth();
        let mut has_changed = false;
        while let Some(base) = self.replaced_bases.pop_if(|it| it.undo_depth >= depth) {
            self.opened.bytes = base.bytes;
            self.opened.digest = base.digest;
            self.opened.seal = base.seal;
            self.has_foreign_lines = base.has_foreign_lines;
            self.file = FileOnDisk::Changed;
            has_changed = true;
        }
        self.is_modified = self.text_bytes() != self.opened.bytes;
        has_changed
    }

    /// Continues from the version that is in the file, whatever is undone from now on.
    pub fn forget_replaced_bases(&mut self) {
        self.file = FileOnDisk::AsOpened;
        self.has_foreign_lines = false;
        self.replaced_bases.clear();
    }

    /// Whether a save seals the text: the file is the sealed one, and the text has no lines of another
    /// program.
    pub fn is_sealed_by_save(&self) -> bool {
        self.opened.seal == SealMatch::Sealed && !self.has_foreign_lines
    }

    /// Notes what is at the path of the baseline now.
    pub fn set_file(&mut self, found: &BaselineFile) {
        self.file = match found {
            BaselineFile::Readable(bytes) if *bytes == self.opened.bytes => FileOnDisk::AsOpened,
            BaselineFile::Readable(_) => FileOnDisk::Changed,
            BaselineFile::Absent => FileOnDisk::Gone,
            BaselineFile::Unreadable(why) => FileOnDisk::Unreadable(why.clone()),
        };
    }

    /// Whether the opened version has a separator, for one of its agents at least, that the text does
    /// not have.
    pub fn loses_separator(&self) -> bool {
        let text = self.text_bytes();
        let has_separator = |bytes: &[u8], separator: &str| {
            let lines = SeparatorLines::find(bytes, separator.as_bytes());
            lines.boundary().is_some()
        };
        let mut separators = self.opened.users.iter().map(|it| it.separator.as_str());
        separators.any(|it| has_separator(&self.opened.bytes, it) && !has_separator(&text, it))
    }

    /// Whether a fix is known for the finding that the key would fix.
    pub fn has_fix(&self) -> bool {
        let finding = self.finding_to_fix().and_then(|it| self.findings.get(it));
        finding.is_some_and(|it| it.fix.is_some())
    }

    /// Returns the bytes that a save writes.
    pub fn text_bytes(&self) -> Vec<u8> {
        match &self.whole_text {
            Some(bytes) => bytes.clone(),
            None => self.buffer.to_bytes(),
        }
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
            EditorDialog::Message(_) => None,
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
            EditorDialog::Message(_) => None,
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
            let is_heading = notes
                .tones
                .iter()
                .any(|(_, tone)| *tone == Role::MarkdownHeading);
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
    pub fn set_analysis(
        &mut self,
        mut tones: HashMap<usize, Tones>,
        findings: Vec<Finding>,
        rule_changes: BTreeMap<String, NextRuleChange>,
    ) {
        self.rule_changes = rule_changes;
        self.visited_finding = None;
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
            let begin = if number == first {
                byte_of(line, range.start.col.saturating_sub(1))
            } else {
                0
            };
            let end = if number == last {
                byte_of(line, range.end.col.saturating_sub(1))
            } else {
                line.len()
            };
            // A range that ends at the beginning of a line does not reach into it.
            if begin < end || number == first {
                notes.findings.push(FindingMark {
                    range: begin..end.max(begin),
                    finding,
                    is_start: number == first,
                });
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
        let indices = notes.findings.iter().map(|mark| mark.finding);
        indices
            .filter_map(|it| Some(self.findings.get(it)?.severity))
            .max()
    }

    /// Returns the index of the selected finding: in the panel, else the one that a key went to, else
    /// the worst in the line of the cursor.
    pub fn current_finding(&self) -> Option<usize> {
        if self.is_panel_focused && self.panel == EditorPanel::Findings {
            return (self.panel_cursor < self.findings.len()).then_some(self.panel_cursor);
        }
        if let Some(visited) = self.visited_finding() {
            return Some(visited);
        }
        let notes = self.line_notes.get(self.buffer.cursor().0)?;
        let indices = notes.findings.iter().map(|mark| mark.finding);
        let known = indices.filter(|it| *it < self.findings.len());
        known.max_by_key(|it| (self.findings[*it].severity, Reverse(*it)))
    }

    /// Returns the index of the finding that a key went to, if the cursor is still there.
    pub fn visited_finding(&self) -> Option<usize> {
        let (finding, place) = self.visited_finding?;
        (place == self.buffer.cursor() && finding < self.findings.len()).then_some(finding)
    }

    /// Returns the index of the finding whose fix is wanted: the selected one, or another
    /// one of its line if only that has a fix.
    pub fn finding_to_fix(&self) -> Option<usize> {
        let current = self.current_finding()?;
        let has_fix = |it: &usize| self.findings.get(*it).is_some_and(|it| it.fix.is_some());
        if self.is_panel_focused || self.visited_finding().is_some() || has_fix(&current) {
            return Some(current);
        }
        let notes = self.line_notes.get(self.buffer.cursor().0)?;
        let mut indices = notes.findings.iter().map(|mark| mark.finding);
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
