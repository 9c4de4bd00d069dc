//! Prepares the lines of a pane: the live diff, the diff of a baseline, the scratch, the diff of a
//! run.

use std::time::Instant;

use super::{LineKind, TextLine};
use crate::base::diff::{self, Diff, LineOp};
use crate::boundary::{Boundary, describe_line_ends};
use crate::engine::{AgentDetail, BaselineChange, RunDiff, RunDiffSide};
use crate::layouts::ItemContent;

/// Bytes of a text that are shown; the rest is counted.
const MAX_SHOWN_BYTES: usize = 256 * 1024;

/// Lines of a text that are shown: each takes memory, however short it is.
const MAX_SHOWN_LINES: usize = 20_000;

/// A text that is ready for a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedText {
    /// Its lines.
    pub lines: Vec<TextLine>,
    /// The lines when whitespace is ignored; `None` if that makes no difference.
    pub ignoring_whitespace: Option<Vec<TextLine>>,
}

impl PreparedText {
    /// Creates a text of one line of the program's own.
    pub fn note(text: impl Into<String>) -> PreparedText {
        vec![TextLine::note(text)].into()
    }
}

impl From<Vec<TextLine>> for PreparedText {
    fn from(lines: Vec<TextLine>) -> PreparedText {
        PreparedText {
            lines,
            ignoring_whitespace: None,
        }
    }
}

/// Prepares the live diff of an agent: the part above the boundary line by line, then the boundary.
pub fn prepare_diff(detail: &AgentDetail, deadline: Option<Instant>) -> PreparedText {
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if let Some(error) = &detail.error {
        return PreparedText::note(error.clone());
    }
    let Some((old, new)) = detail.compared_parts() else {
        let note = "No baseline to compare with; the whole memory:";
        let mut lines = vec![TextLine::note(note)];
        push_text_lines(&mut lines, &detail.memory_prefix, 1, detail.omitted_bytes);
        return lines.into();
    };
    let (above, scratch) = detail.split_at_boundary();
    let end = boundary.and_then(|boundary| boundary_line(&boundary, !scratch.is_empty()));
    match boundary {
        None => {
            let note = "No separator: the WHOLE file would be archived, then replaced.";
            let banner = vec![TextLine::note(note)];
            compare_texts(banner, [&old, new], [0, detail.omitted_bytes], deadline)
        }
        Some(boundary) if boundary.is_drifted() => {
            let prepared = compare_texts(Vec::new(), [&old, new], [0, 0], deadline);
            with_last_line(prepared, end)
        }
        Some(_) if detail.next_operator_part.is_some() => {
            let note = "Behind: a reset installs the new rules in place of the old ones.";
            let banner = vec![TextLine::note(note)];
            let prepared = compare_texts(banner, [&old, new], [0, 0], deadline);
            // The line has a number in the memory, which is the old side here.
            let end = end.map(|line| TextLine {
                old_number: line.new_number,
                new_number: None,
                ..line
            });
            with_last_line(prepared, end)
        }
        Some(boundary) => {
            let count = content.map_or(0, |content| content.scratch_lines);
            let clean = content.is_some_and(|content| content.scratch_bytes == 0);
            let version = detail.reference_label();
            let baseline = version.map_or("baseline".to_string(), |it| format!("the {it}"));
            let what = match (clean, count) {
                (true, _) => format!("Equal to {baseline}. 0 scratch lines."),
                (false, 1) => format!("Equal to {baseline} above the separator. 1 scratch line."),
                (false, count) => {
                    format!("Equal to {baseline} above the separator. {count} scratch lines.")
                }
            };
            let mut lines = vec![TextLine::note(what)];
            let version = detail.operator_part.as_deref().unwrap_or_default();
            if let Some(line_ends) = describe_line_ends(above, version) {
                lines.push(TextLine::note(line_ends));
            }
            lines.push(TextLine::note(""));
            push_text_lines(&mut lines, above, 1, 0);
            lines.pop_if(|line| boundary.line > 0 && line.new_number == Some(boundary.line));
            lines.extend(end);
            lines.into()
        }
    }
}

/// Returns the line that stands for the boundary: the separator, or, in a baseline without one, its
/// end where scratch follows.
fn boundary_line(boundary: &Boundary, has_scratch: bool) -> Option<TextLine> {
    let text = match (boundary.describe_separator(), has_scratch) {
        (None, false) => return None,
        (None, true) => {
            "end of the baseline, which has no separator; scratch not compared".to_string()
        }
        (Some(separator), _) => format!("{separator}, scratch not compared"),
    };
    Some(TextLine {
        new_number: (boundary.line > 0).then_some(boundary.line),
        ..TextLine::separator(text)
    })
}

/// Appends a line under both whitespace rules.
fn with_last_line(mut prepared: PreparedText, line: Option<TextLine>) -> PreparedText {
    prepared.lines.extend(line.clone());
    if let Some(lines) = &mut prepared.ignoring_whitespace {
        lines.extend(line);
    }
    prepared
}

/// Prepares the diff of a baseline file against its last known version, after the notes on that
/// change.
pub fn prepare_baseline_diff(change: &BaselineChange, deadline: Option<Instant>) -> PreparedText {
    let note = |text: String| TextLine::note(text);
    let mut lines: Vec<TextLine> = change.notes().into_iter().map(note).collect();
    let (title, text) = match (&change.current, &change.reference) {
        (Ok(file), Some(known)) if *file == *known.bytes => {
            ("The file equals that version:".to_string(), file)
        }
        (Ok(file), Some(known)) => {
            lines.push(note(String::new()));
            return compare_texts(lines, [&known.bytes, file], [0, 0], deadline);
        }
        (Ok(file), None) => ("The current file:".to_string(), file),
        (Err(error), Some(known)) => (format!("{error}; that version:"), &*known.bytes),
        (Err(error), None) => {
            lines.push(note(error.to_string()));
            return lines.into();
        }
    };
    lines.extend(prepare_whole(&title, text).lines);
    lines.into()
}

/// Prepares the diff of an old and a new text.
pub fn prepare_comparison([old, new]: [&[u8]; 2], deadline: Option<Instant>) -> PreparedText {
    if old != new {
        return compare_texts(Vec::new(), [old, new], [0, 0], deadline);
    }
    prepare_whole("The two are equal:", new)
}

/// Prepares a whole text behind a note of the program.
pub fn prepare_whole(note: &str, text: &[u8]) -> PreparedText {
    let mut lines = vec![TextLine::note(note), TextLine::note("")];
    push_text_lines(&mut lines, text, 1, 0);
    lines.into()
}

/// Prepares the beginning of an entry or a memory.
pub fn prepare_entry(text: &[u8], omitted_bytes: u64) -> PreparedText {
    let mut lines = Vec::new();
    if text.is_empty() {
        lines.push(TextLine::note("It is empty."));
    }
    push_text_lines(&mut lines, text, 1, omitted_bytes);
    lines.into()
}

/// Prepares the content of an item of a memory, and what the agent is given of it where that differs.
pub fn prepare_item(content: &ItemContent) -> PreparedText {
    let mut text = prepare_entry(&content.bytes, 0);
    if let Some(given) = &content.given {
        let title = "what the agent is given of it";
        text.lines.push(TextLine::separator(title));
        text.lines.extend(prepare_entry(given, 0).lines);
    }
    text
}

/// Prepares an agent's scratch.
pub fn prepare_scratch(detail: &AgentDetail) -> PreparedText {
    if let Some(error) = &detail.error {
        return PreparedText::note(error.clone());
    }
    let mut lines = Vec::new();
    let (above, mut scratch) = detail.split_at_boundary();
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if boundary.is_none() {
        let note = if detail.operator_part.is_none() {
            "The start of scratch is unknown without the baseline; the whole memory:"
        } else {
            "No separator. All of it may be scratch:"
        };
        lines.push(TextLine::note(note));
        scratch = above;
    }
    if scratch.is_empty() {
        lines.push(TextLine::note("0 scratch lines."));
    }
    let first = match boundary {
        Some(_) => 1 + above.split_inclusive(|byte| *byte == b'\n').count(),
        None => 1,
    };
    push_text_lines(&mut lines, scratch, first, detail.omitted_bytes);
    lines.into()
}

/// Prepares the diff of a run: the memory before it against the memory after it.
pub fn prepare_run_diff(run_diff: &RunDiff, deadline: Option<Instant>) -> PreparedText {
    let mut lines = Vec::new();
    if run_diff.before == RunDiffSide::Unchanged && run_diff.after == RunDiffSide::Unchanged {
        return PreparedText::note("No changes.");
    }
    let texts =
        [("before", &run_diff.before), ("after", &run_diff.after)].map(|(when, side)| match side {
            RunDiffSide::Text(bytes, _) => Some(bytes.as_slice()),
            RunDiffSide::Absent => {
                let note = format!("{when}: no memory file");
                lines.push(TextLine::note(note));
                Some(&[][..])
            }
            RunDiffSide::Unchanged => {
                let note = format!("{when}: memory unchanged");
                lines.push(TextLine::note(note));
                None
            }
            RunDiffSide::Unavailable(note) => {
                lines.push(TextLine::note(format!("{when}: {note}")));
                None
            }
        });
    let omitted_bytes = [&run_diff.before, &run_diff.after].map(|side| match side {
        RunDiffSide::Text(_, omitted_bytes) => *omitted_bytes,
        _ => 0,
    });
    let (title, text, omitted) = match texts {
        [Some(before), Some(after)] if before == after && omitted_bytes == [0, 0] => {
            ("No difference before and after.", after, 0)
        }
        [Some(before), Some(after)] => {
            return compare_texts(lines, [before, after], omitted_bytes, deadline);
        }
        [Some(text), None] => ("The memory before:", text, omitted_bytes[0]),
        [None, Some(text)] => ("The memory after:", text, omitted_bytes[1]),
        [None, None] => return lines.into(),
    };
    lines.push(TextLine::note(title));
    push_text_lines(&mut lines, text, 1, omitted);
    lines.into()
}

/// Compares two texts, as far as they are shown, and puts the diff behind `leading_lines`.
pub(super) fn compare_texts(
    leading_lines: Vec<TextLine>,
    texts: [&[u8]; 2],
    omitted_bytes: [u64; 2],
    deadline: Option<Instant>,
) -> PreparedText {
    let [(old, old_left), (new, new_left)] = texts.map(shown_part);
    let left = [old_left + omitted_bytes[0], new_left + omitted_bytes[1]];
    let ends = left.map(|left| left > 0);
    let left = left[0].max(left[1]);
    let with = |diff: Diff| {
        let mut lines = leading_lines.clone();
        lines.extend(diff.lines.into_iter().map(text_line));
        if ends[0] && !old.ends_with(b"\n") {
            mark_last_truncated(&mut lines, |line| line.old_number.is_some());
        }
        if ends[1] && !new.ends_with(b"\n") {
            mark_last_truncated(&mut lines, |line| line.new_number.is_some());
        }
        lines.extend(omitted_bytes_note(left));
        lines
    };
    let exact = diff::compare_lines(old, new, deadline);
    // Whitespace can only be ignored if both texts have changed lines.
    let has_whitespace_changes = exact.added > 0 && exact.removed > 0;
    let ignoring_whitespace =
        has_whitespace_changes.then(|| diff::compare_lines_ignoring_blanks(old, new, deadline));
    let differs = |diff: &Diff| diff.lines.iter().any(|line| line.old_text.is_some());
    PreparedText {
        lines: with(exact),
        ignoring_whitespace: ignoring_whitespace.filter(differs).map(with),
    }
}

/// Converts a line of a diff.
pub(super) fn text_line(line: diff::DiffLine) -> TextLine {
    TextLine {
        kind: match line.op {
            LineOp::Equal => LineKind::Same,
            LineOp::Insert => LineKind::Added,
            LineOp::Delete => LineKind::Removed,
        },
        old_number: line.old_number,
        new_number: line.new_number,
        lacks_line_feed: line.is_newline_missing && line.op != LineOp::Equal,
        is_truncated: false,
        bytes: line.text,
        changed_ranges: line.emphasis,
        is_paired: line.is_paired,
        old_bytes: line.old_text,
        tones: Vec::new(),
    }
}

/// Appends the lines of a text with their numbers from `first`, as far as they are shown.
fn push_text_lines(lines: &mut Vec<TextLine>, text: &[u8], first: usize, omitted_bytes: u64) {
    let (shown, left) = shown_part(text);
    for (number, line) in shown.split_inclusive(|byte| *byte == b'\n').enumerate() {
        lines.push(TextLine {
            new_number: Some(first + number),
            bytes: line.strip_suffix(b"\n").unwrap_or(line).to_vec(),
            ..TextLine::default()
        });
    }
    if left + omitted_bytes > 0 && !shown.ends_with(b"\n") {
        mark_last_truncated(lines, |line| line.new_number.is_some());
    }
    lines.extend(omitted_bytes_note(left + omitted_bytes));
}

/// Marks the last candidate among the lines as truncated.
fn mark_last_truncated(lines: &mut [TextLine], is_candidate: impl Fn(&TextLine) -> bool) {
    if let Some(line) = lines.iter_mut().rfind(|line| is_candidate(line)) {
        line.is_truncated = true;
        line.lacks_line_feed = false;
    }
}

/// Returns the part of a text that is shown, and how many bytes are not.
fn shown_part(text: &[u8]) -> (&[u8], u64) {
    let shown = &text[..text.len().min(MAX_SHOWN_BYTES)];
    let mut ends = shown.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = ends
        .nth(MAX_SHOWN_LINES - 1)
        .map_or(shown.len(), |(at, _)| at + 1);
    (&shown[..end], (text.len() - end) as u64)
}

/// Returns the note that bytes are omitted, if any are.
fn omitted_bytes_note(omitted_bytes: u64) -> Option<TextLine> {
    (omitted_bytes > 0).then(|| TextLine {
        is_truncated: true,
        ..TextLine::note(match omitted_bytes {
            1 => "1 more byte not shown".to_string(),
            count => format!("{count} more bytes not shown"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(before: RunDiffSide, after: RunDiffSide) -> PreparedText {
        prepare_run_diff(&RunDiff { before, after }, None)
    }

    fn text_side(text: &str) -> RunDiffSide {
        RunDiffSide::Text(text.as_bytes().to_vec(), 0)
    }

    fn shown(lines: &[TextLine]) -> Vec<String> {
        let sign = |kind| match kind {
            LineKind::Added => '+',
            LineKind::Removed => '-',
            LineKind::Note => '#',
            _ => ' ',
        };
        let text = |line: &TextLine| String::from_utf8_lossy(&line.bytes).into_owned();
        lines
            .iter()
            .map(|line| format!("{}{}", sign(line.kind), text(line)))
            .collect()
    }

    #[test]
    fn blank_only_changes_can_be_shown_as_equal() {
        let both = sides(text_side("a b\nc\nd\n"), text_side("a  b\r\nc \nD\n"));
        assert_eq!(
            shown(&both.lines),
            ["-a b", "-c", "-d", "+a  b\r", "+c ", "+D"]
        );
        let lines = both.ignoring_whitespace.unwrap();
        assert_eq!(shown(&lines), [" a  b\r", " c ", "-d", "+D"]);
        let before: Vec<_> = lines.iter().map(|line| line.old_bytes.as_deref()).collect();
        assert_eq!(before, [Some(&b"a b"[..]), Some(b"c"), None, None]);
        // Where it makes no difference there is no second text.
        assert_eq!(
            sides(text_side("a\n"), text_side("b\n")).ignoring_whitespace,
            None
        );
        // An invisible character is not a blank.
        assert_eq!(
            sides(text_side("a\n"), text_side("a\u{200b}\n")).ignoring_whitespace,
            None
        );
    }

    #[test]
    fn missing_side_is_stated_and_other_is_shown() {
        let gone = || RunDiffSide::Unavailable("it was deleted".to_string());
        assert_eq!(
            shown(&sides(gone(), text_side("a\n")).lines),
            ["#before: it was deleted", "#The memory after:", " a"]
        );
        assert_eq!(
            shown(&sides(RunDiffSide::Absent, text_side("a\n")).lines),
            ["#before: no memory file", "+a"]
        );
        assert_eq!(
            shown(&sides(text_side("a\n"), text_side("a\n")).lines),
            ["#No difference before and after.", " a"]
        );
        let (first, second) = ("#before: it was deleted", "#after: it was deleted");
        assert_eq!(shown(&sides(gone(), gone()).lines), [first, second]);
    }

    #[test]
    fn long_text_shows_beginning_and_counts_the_rest() {
        for (line, count) in [
            ("x".repeat(63) + "\n", MAX_SHOWN_BYTES / 64),
            ("\n".to_string(), MAX_SHOWN_LINES),
        ] {
            let long = line.repeat(MAX_SHOWN_BYTES);
            let left = long.len() - count * line.len() + 7;
            let lines = sides(text_side(""), RunDiffSide::Text(long.into_bytes(), 7)).lines;
            let last = shown(&lines[lines.len() - 1..]);
            assert_eq!(last, [format!("#{left} more bytes not shown")]);
            assert_eq!(lines.len(), count + 1);
        }
    }

    #[test]
    fn cut_line_is_flagged() {
        let long = "x".repeat(MAX_SHOWN_BYTES + 9);
        let cuts = |prepared: PreparedText| -> Vec<bool> {
            prepared
                .lines
                .iter()
                .map(|line| line.is_truncated)
                .collect()
        };
        assert_eq!(cuts(sides(text_side("a\n"), text_side("a\nb"))), [false; 2]);
        assert_eq!(
            cuts(sides(text_side("a\n"), text_side(&format!("a\n{long}")))),
            [false, true, true]
        );
        assert_eq!(
            cuts(sides(text_side(&long), text_side("a\n"))),
            [true, false, true]
        );
        let gone = RunDiffSide::Unavailable("it was deleted".to_string());
        assert_eq!(
            cuts(sides(gone, text_side(&long))),
            [false, false, true, true]
        );
        // Here only lines are missing, and none is cut.
        let lines = "\n".repeat(MAX_SHOWN_LINES + 1);
        let cut = cuts(sides(text_side(""), text_side(&lines)));
        assert_eq!(cut.iter().filter(|cut| **cut).count(), 1);
    }

    #[test]
    fn unchanged_run_says_so() {
        let untouched = || RunDiffSide::Unchanged;
        assert_eq!(
            shown(&sides(untouched(), untouched()).lines),
            ["#No changes."]
        );
        assert_eq!(
            shown(&sides(text_side("a\n"), untouched()).lines),
            ["#after: memory unchanged", "#The memory before:", " a"]
        );
    }
}
