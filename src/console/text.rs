//! Texts that are read in a pane: lines of raw bytes, made visible only when
//! they are drawn, with scrolling, wrapping and search. Pure.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::diff::{self, Op};
use crate::engine::Detail;
use crate::untrusted::{self, View};

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text as it is in both versions, or simply text.
    Same,
    /// Added by the agent.
    Added,
    /// Removed by the agent.
    Removed,
    /// The boundary.
    Separator,
    /// Said by us, not by the file.
    Note,
}

/// One line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub kind: Kind,
    /// Its number in the baseline.
    pub old: Option<usize>,
    /// Its number in the memory.
    pub new: Option<usize>,
    /// Its bytes, without the line feed; our own words in notes.
    pub raw: Vec<u8>,
    /// Which bytes of a changed line changed.
    pub emphasis: Vec<Range<usize>>,
}

impl Line {
    /// A line of our own.
    pub fn note(kind: Kind, text: impl Into<String>) -> Line {
        Line {
            kind,
            old: None,
            new: None,
            raw: text.into().into_bytes(),
            emphasis: Vec::new(),
        }
    }
}

/// A run of cells of one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Safe to draw.
    pub text: String,
    /// Made visible by us: wears a style that no agent can obtain.
    pub mark: bool,
    /// One of the words that changed.
    pub emphasis: bool,
}

/// How a pane shows its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Wrap long lines instead of cutting them.
    pub wrap: bool,
    /// Mark ordinary white space, too.
    pub reveal: bool,
    /// A text that is no diff: known emoji sequences pass whole.
    pub prose: bool,
    /// Put `[-…-]` and `{+…+}` around changed words, for themes without colour.
    pub word_marks: bool,
}

/// A text in a pane.
#[derive(Clone, Debug, Default)]
pub struct Pane {
    /// All lines.
    pub lines: Vec<Line>,
    /// Indices of lines at which hunks begin.
    pub hunks: Vec<usize>,
    /// The line at the top, and how many of its rows are above it.
    pub top: (usize, usize),
    /// What is searched for, lower case; empty when nothing is.
    pub query: String,
    /// The lines that contain it.
    pub hits: Vec<usize>,
    /// Which hit was gone to last.
    pub hit: usize,
    /// Lines that came in above the top when the text changed.
    pub grown: usize,
}

impl Pane {
    /// Puts a new text in, staying on the line that was at the top.
    pub fn replace(&mut self, lines: Vec<Line>, hunks: Vec<usize>) {
        let anchor = self.lines.get(self.top.0).map(|line| line.raw.clone());
        let near = |index: &usize| index.abs_diff(self.top.0);
        let found = anchor.and_then(|raw| {
            (0..lines.len())
                .filter(|index| lines[*index].raw == raw)
                .min_by_key(near)
        });
        if self.top.0 > 0 {
            let top = found
                .unwrap_or(self.top.0)
                .min(lines.len().saturating_sub(1));
            self.grown = top.saturating_sub(self.top.0);
            self.top.0 = top;
        }
        self.lines = lines;
        self.hunks = hunks;
        let query = std::mem::take(&mut self.query);
        self.search(&query);
    }

    /// Moves by rows, down when positive.
    pub fn scroll(&mut self, rows: isize, width: usize, height: usize, look: Look) {
        self.grown = 0;
        for _ in 0..rows.unsigned_abs() {
            let moved = if rows > 0 {
                self.down(width, height, look)
            } else {
                self.up(width, look)
            };
            if !moved {
                break;
            }
        }
    }

    fn down(&mut self, width: usize, height: usize, look: Look) -> bool {
        if !self.has_more(width, height, look) {
            return false;
        }
        let rows = self.rows(self.top.0, width, look).len();
        self.top = match self.top {
            (line, row) if row + 1 < rows => (line, row + 1),
            (line, _) => (line + 1, 0),
        };
        true
    }

    fn up(&mut self, width: usize, look: Look) -> bool {
        self.top = match self.top {
            (0, 0) => return false,
            (line, 0) => (line - 1, self.rows(line - 1, width, look).len() - 1),
            (line, row) => (line, row - 1),
        };
        true
    }

    /// Whether there are rows below the ones that fit.
    fn has_more(&self, width: usize, height: usize, look: Look) -> bool {
        let mut rows = 0;
        for line in self.top.0..self.lines.len() {
            rows += self.rows(line, width, look).len();
            if rows > height + self.top.1 {
                return true;
            }
        }
        false
    }

    /// Shows the end.
    pub fn to_end(&mut self, width: usize, height: usize, look: Look) {
        self.top = (self.lines.len().saturating_sub(1), 0);
        let mut rows = self.rows(self.top.0, width, look).len();
        while rows < height && self.up(width, look) {
            rows += 1;
        }
    }

    /// Shows a line near the top, with a little of what is above it.
    pub fn go_to(&mut self, line: usize, height: usize) {
        self.grown = 0;
        self.top = (
            line.saturating_sub(height / 4)
                .min(self.lines.len().saturating_sub(1)),
            0,
        );
    }

    /// Goes to the next or previous hunk, seen from the top.
    pub fn hunk(&mut self, forward: bool, height: usize) {
        let here = self.current_hunk(height);
        let next = match (here, forward) {
            (None, true) => 0,
            (Some(here), true) => here + 1,
            (None, false) => return,
            (Some(here), false) => match here.checked_sub(1) {
                Some(next) => next,
                None => return self.go_to(0, height),
            },
        };
        if let Some(line) = self.hunks.get(next) {
            self.go_to(*line, height);
        }
    }

    /// The hunk that was gone to or scrolled to, if one begins above the place
    /// where [`Pane::go_to`] puts lines.
    pub fn current_hunk(&self, height: usize) -> Option<usize> {
        let here = self.top.0 + height / 4;
        self.hunks.iter().rposition(|line| *line <= here)
    }

    /// Searches for text, ignoring case; an empty text ends the search.
    pub fn search(&mut self, query: &str) {
        self.query = query.to_lowercase();
        self.hits.clear();
        if !self.query.is_empty() {
            let matches = |line: &Line| {
                String::from_utf8_lossy(&line.raw)
                    .to_lowercase()
                    .contains(&self.query)
            };
            self.hits = (0..self.lines.len())
                .filter(|index| matches(&self.lines[*index]))
                .collect();
        }
        self.hit = self.hit.min(self.hits.len().saturating_sub(1));
    }

    /// Goes to the first hit at or below the top.
    pub fn first_hit(&mut self, height: usize) {
        let below = self.hits.iter().position(|line| *line >= self.top.0);
        self.hit = below.unwrap_or(0);
        self.show_hit(height);
    }

    /// Goes to the next or previous hit, round the ends.
    pub fn next_hit(&mut self, forward: bool, height: usize) {
        let count = self.hits.len();
        if count > 0 {
            self.hit = (self.hit + if forward { 1 } else { count - 1 }) % count;
            self.show_hit(height);
        }
    }

    fn show_hit(&mut self, height: usize) {
        if let Some(line) = self.hits.get(self.hit) {
            self.go_to(*line, height);
        }
    }

    /// A line as rows of at most `width` cells; at least one.
    pub fn rows(&self, line: usize, width: usize, look: Look) -> Vec<Vec<Span>> {
        match self.lines.get(line) {
            Some(line) => rows(line, width, look),
            None => vec![Vec::new()],
        }
    }
}

/// A line as rows of spans.
fn rows(line: &Line, width: usize, look: Look) -> Vec<Vec<Span>> {
    let spans = spans(line, look);
    let width = width.max(1);
    if look.wrap && line.kind != Kind::Separator {
        wrap(spans, width)
    } else {
        vec![cut(spans, width)]
    }
}

fn spans(line: &Line, look: Look) -> Vec<Span> {
    let view = View {
        whitespace: look.reveal,
        ..if look.prose { View::PROSE } else { View::DIFF }
    };
    let mut spans = Vec::new();
    let mut push = |bytes: &[u8], emphasis: bool| {
        for token in untrusted::reveal(bytes, view) {
            spans.push(Span {
                text: token.text,
                mark: token.mark,
                emphasis,
            });
        }
    };
    if matches!(line.kind, Kind::Note | Kind::Separator) {
        push(&line.raw, false);
        return spans;
    }
    let (open, close) = match line.kind {
        Kind::Added => ("{+", "+}"),
        _ => ("[-", "-]"),
    };
    let mut at = 0;
    for range in &line.emphasis {
        let (Some(before), Some(changed)) =
            (line.raw.get(at..range.start), line.raw.get(range.clone()))
        else {
            continue;
        };
        push(before, false);
        if look.word_marks {
            push(open.as_bytes(), true);
        }
        push(changed, true);
        if look.word_marks {
            push(close.as_bytes(), true);
        }
        at = range.end;
    }
    push(line.raw.get(at..).unwrap_or_default(), false);
    spans
}

/// Breaks at the last blank of a row, or in a word that is longer than a row.
fn wrap(spans: Vec<Span>, width: usize) -> Vec<Vec<Span>> {
    let mut rows: Vec<Vec<Span>> = vec![Vec::new()];
    let mut used = 0;
    for span in spans {
        let like = |text: String| Span {
            text,
            mark: span.mark,
            emphasis: span.emphasis,
        };
        let mut text = String::new();
        for word in span.text.split_inclusive(' ') {
            let cells = word.trim_end_matches(' ').width();
            if used > 0 && used + cells > width {
                rows.last_mut()
                    .into_iter()
                    .for_each(|row| row.push(like(std::mem::take(&mut text))));
                rows.push(Vec::new());
                used = 0;
            }
            for grapheme in word.graphemes(true) {
                let cells = grapheme.width();
                if used + cells > width {
                    if grapheme == " " {
                        continue; // A blank at the end of a row shows nothing.
                    }
                    rows.last_mut()
                        .into_iter()
                        .for_each(|row| row.push(like(std::mem::take(&mut text))));
                    rows.push(Vec::new());
                    used = 0;
                }
                text.push_str(grapheme);
                used += cells;
            }
        }
        rows.last_mut()
            .into_iter()
            .for_each(|row| row.push(like(text.clone())));
    }
    for row in &mut rows {
        row.retain(|span| !span.text.is_empty());
    }
    rows
}

/// Cuts a line at the width, with a mark that says so.
fn cut(spans: Vec<Span>, width: usize) -> Vec<Span> {
    let total: usize = spans.iter().map(|span| span.text.width()).sum();
    if total <= width {
        return spans;
    }
    let room = width - 1;
    let mut row = Vec::new();
    let mut used = 0;
    'all: for span in spans {
        let mut text = String::new();
        for grapheme in span.text.graphemes(true) {
            if used + grapheme.width() > room {
                row.push(Span { text, ..span });
                break 'all;
            }
            used += grapheme.width();
            text.push_str(grapheme);
        }
        row.push(Span { text, ..span });
    }
    row.push(Span {
        text: "…".to_string(),
        mark: true,
        emphasis: false,
    });
    row
}

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 3;

/// How much of a memory is shown; the rest is counted.
const SHOWN: usize = 256 * 1024;

/// A text that was prepared for a pane: its lines and where hunks begin.
pub type Prepared = (Vec<Line>, Vec<usize>);

/// The live diff of an agent: above the boundary line by line, then the
/// boundary.
pub fn diff(detail: &Detail, deadline: Option<std::time::Instant>) -> Prepared {
    let mut lines = Vec::new();
    let mut hunks = Vec::new();
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if let Some(error) = &detail.error {
        lines.push(Line::note(Kind::Note, error.clone()));
        return (lines, hunks);
    }
    let Some(old) = &detail.operator_part else {
        lines.push(Line::note(
            Kind::Note,
            "There is no baseline to compare with; the memory as it is:",
        ));
        numbered(&mut lines, &detail.memory, 1);
        return (lines, hunks);
    };
    let (above, _) = detail.parts();
    let Some(boundary) = boundary else {
        lines.push(Line::note(
            Kind::Note,
            "No separator: the WHOLE file would be archived, then replaced.",
        ));
        append_diff(
            &mut lines,
            &mut hunks,
            old,
            &above[..above.len().min(SHOWN)],
            deadline,
        );
        return (lines, hunks);
    };
    if !boundary.drifted() {
        let scratch = content.map_or(0, |content| content.scratch_lines);
        let what = match (
            content.is_some_and(|content| content.scratch_bytes == 0),
            scratch,
        ) {
            (true, _) => "Equal to baseline. 0 scratch lines.".to_string(),
            (false, 1) => "Above the separator equal to baseline. 1 scratch line.".to_string(),
            (false, count) => {
                format!("Above the separator equal to baseline. {count} scratch lines.")
            }
        };
        lines.push(Line::note(Kind::Note, what));
        lines.push(Line::note(Kind::Note, ""));
        numbered(&mut lines, above, 1);
        lines.pop_if(|line| boundary.line > 0 && line.new == Some(boundary.line));
    } else {
        append_diff(&mut lines, &mut hunks, old, above, deadline);
    }
    if boundary.line > 0 {
        lines.push(Line {
            new: Some(boundary.line),
            ..Line::note(
                Kind::Separator,
                format!(
                    "separator line {} ({} of {}), below: agent scratch, not compared",
                    boundary.line, boundary.nth, boundary.of
                ),
            )
        });
    }
    (lines, hunks)
}

fn append_diff(
    lines: &mut Vec<Line>,
    hunks: &mut Vec<usize>,
    old: &[u8],
    new: &[u8],
    deadline: Option<std::time::Instant>,
) {
    let diff = diff::lines(old, new, deadline);
    let mut shown = 0;
    for hunk in diff.hunks(CONTEXT) {
        skip(lines, hunk.lines.start.saturating_sub(shown));
        shown = hunk.lines.end;
        for index in hunk.lines {
            if index == hunk.changes.start {
                hunks.push(lines.len());
            }
            let line = &diff.lines[index];
            lines.push(Line {
                kind: match line.op {
                    Op::Equal => Kind::Same,
                    Op::Insert => Kind::Added,
                    Op::Delete => Kind::Removed,
                },
                old: line.old,
                new: line.new,
                raw: line.text.clone(),
                emphasis: line.emphasis.clone(),
            });
            if line.no_newline && line.op != Op::Equal {
                lines.push(Line::note(
                    Kind::Note,
                    "(no newline at the end of the line above)",
                ));
            }
        }
    }
    skip(lines, diff.lines.len().saturating_sub(shown));
}

fn skip(lines: &mut Vec<Line>, count: usize) {
    if count > 0 {
        let s = if count == 1 { "" } else { "s" };
        lines.push(Line::note(Kind::Note, format!("⋮ {count} equal line{s}")));
    }
}

/// The scratch of an agent.
pub fn scratch(detail: &Detail) -> Prepared {
    let mut lines = Vec::new();
    if let Some(error) = &detail.error {
        lines.push(Line::note(Kind::Note, error.clone()));
        return (lines, Vec::new());
    }
    let (above, mut scratch) = detail.parts();
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if boundary.is_none() {
        lines.push(Line::note(
            Kind::Note,
            "No separator, so all of it may be scratch:",
        ));
        scratch = above;
    }
    if scratch.is_empty() {
        lines.push(Line::note(Kind::Note, "0 scratch lines."));
    }
    let shown = &scratch[..scratch.len().min(SHOWN)];
    let first = boundary.map_or(1, |boundary| boundary.line + 1);
    numbered(&mut lines, shown, first);
    let more = detail.more + (scratch.len() - shown.len()) as u64;
    if more > 0 {
        lines.push(Line::note(
            Kind::Note,
            format!("{more} bytes more are not shown"),
        ));
    }
    (lines, Vec::new())
}

fn numbered(lines: &mut Vec<Line>, text: &[u8], first: usize) {
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        lines.push(Line {
            kind: Kind::Same,
            old: None,
            new: Some(first + number),
            raw: line.strip_suffix(b"\n").unwrap_or(line).to_vec(),
            emphasis: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        wrap: true,
        reveal: false,
        prose: false,
        word_marks: false,
    };

    fn pane(lines: &[&str]) -> Pane {
        let mut pane = Pane::default();
        pane.replace(
            lines
                .iter()
                .map(|text| Line::note(Kind::Same, *text))
                .collect(),
            Vec::new(),
        );
        pane
    }

    fn text(rows: &[Vec<Span>]) -> Vec<String> {
        let join = |row: &Vec<Span>| row.iter().map(|span| span.text.as_str()).collect();
        rows.iter().map(join).collect()
    }

    #[test]
    fn lines_wrap_at_blanks_and_inside_long_words() {
        let rows_of = |line: &str, width| text(&rows(&Line::note(Kind::Same, line), width, LOOK));
        assert_eq!(rows_of("one two three", 8), ["one two ", "three"]);
        assert_eq!(rows_of("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(rows_of("日本語", 4), ["日本", "語"]);
        assert_eq!(rows_of("", 4), [""]);
    }

    #[test]
    fn a_cut_line_says_so() {
        let look = Look {
            wrap: false,
            ..LOOK
        };
        let line = Line::note(Kind::Same, "日本語abc");
        assert_eq!(text(&rows(&line, 6, look)), ["日本…"]);
        assert_eq!(text(&rows(&line, 9, look)), ["日本語abc"]);
    }

    #[test]
    fn scrolling_stops_at_both_ends_and_goes_through_wrapped_lines() {
        let mut pane = pane(&["one two", "three", "four"]);
        pane.scroll(1, 4, 2, LOOK);
        assert_eq!(pane.top, (0, 1), "the second row of the first line");
        pane.scroll(10, 4, 2, LOOK);
        assert_eq!(
            pane.top,
            (1, 1),
            "th-ree, four: the last two rows are three's second and four"
        );
        pane.scroll(-10, 4, 2, LOOK);
        assert_eq!(pane.top, (0, 0));
        pane.to_end(4, 2, LOOK);
        assert_eq!(pane.top, (1, 1));
    }

    #[test]
    fn a_changed_text_keeps_the_line_that_was_at_the_top() {
        let mut pane = pane(&["a", "b", "c", "d"]);
        pane.scroll(2, 10, 1, LOOK);
        let lines = ["x", "y", "a", "b", "c", "d"];
        pane.replace(
            lines.iter().map(|t| Line::note(Kind::Same, *t)).collect(),
            Vec::new(),
        );
        assert_eq!(pane.lines[pane.top.0].raw, b"c");
        assert_eq!(pane.grown, 2);
    }

    #[test]
    fn search_finds_every_line_and_goes_round() {
        let mut pane = pane(&["Alpha", "beta", "ALPHABET", "x"]);
        pane.search("alpha");
        assert_eq!(pane.hits, [0, 2]);
        pane.first_hit(0);
        pane.next_hit(true, 0);
        assert_eq!(pane.top.0, 2);
        pane.next_hit(true, 0);
        assert_eq!(pane.top.0, 0);
        pane.next_hit(false, 0);
        assert_eq!(pane.top.0, 2);
        pane.search("");
        assert!(pane.hits.is_empty());
    }
}
