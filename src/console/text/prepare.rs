//! Prepares the lines of texts: of a live diff, of scratch, of what a run changed.

use std::time::Instant;

use super::{Kind, Line};
use crate::diff::{self, Diff, Op};
use crate::engine::{BaselineChange, Detail, Passed, Side};

/// How much of a text is shown; the rest is counted.
const SHOWN: usize = 256 * 1024;

/// How many lines of it: each takes memory, however short it is.
const SHOWN_LINES: usize = 20_000;

/// A text that was prepared for a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Its lines.
    pub lines: Vec<Line>,
    /// The same with lines that differ in blanks alone as equal ones; none where
    /// there are no such lines.
    pub but_blanks: Option<Vec<Line>>,
}

impl From<Vec<Line>> for Prepared {
    fn from(lines: Vec<Line>) -> Prepared {
        Prepared {
            lines,
            but_blanks: None,
        }
    }
}

/// The live diff of an agent: above the boundary line by line, then the boundary.
pub fn diff(detail: &Detail, deadline: Option<Instant>) -> Prepared {
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if let Some(error) = &detail.error {
        return vec![Line::note(Kind::Note, error.clone())].into();
    }
    let Some(old) = &detail.operator_part else {
        let why = "There is no baseline to compare with; the memory as it is:";
        let mut lines = vec![Line::note(Kind::Note, why)];
        show(&mut lines, &detail.memory, 1, detail.more);
        return lines.into();
    };
    let (above, _) = detail.parts();
    let end = boundary
        .filter(|boundary| boundary.line > 0)
        .map(|boundary| Line {
            new: Some(boundary.line),
            ..Line::note(
                Kind::Separator,
                format!(
                    "separator line {} ({} of {}), below: agent scratch, not compared",
                    boundary.line, boundary.nth, boundary.of
                ),
            )
        });
    match boundary {
        None => {
            let why = match detail.cr_lf {
                true => "The separator line ends with CR LF, so no line is the baseline's: the",
                false => "No separator: the",
            };
            let why = format!("{why} WHOLE file would be archived, then replaced.");
            let banner = vec![Line::note(Kind::Note, why)];
            compared(banner, [old, above], [0, detail.more], deadline)
        }
        Some(boundary) if boundary.drifted() => {
            let mut prepared = compared(Vec::new(), [old, above], [0, 0], deadline);
            prepared.lines.extend(end.clone());
            if let Some(lines) = &mut prepared.but_blanks {
                lines.extend(end);
            }
            prepared
        }
        Some(boundary) => {
            let count = content.map_or(0, |content| content.scratch_lines);
            let clean = content.is_some_and(|content| content.scratch_bytes == 0);
            let version = detail.pushed_version();
            let baseline = version.map_or("baseline".to_string(), |it| format!("the {it}"));
            let what = match (clean, count) {
                (true, _) => format!("Equal to {baseline}. 0 scratch lines."),
                (false, 1) => format!("Above the separator equal to {baseline}. 1 scratch line."),
                (false, count) => {
                    format!("Above the separator equal to {baseline}. {count} scratch lines.")
                }
            };
            let mut lines = vec![Line::note(Kind::Note, what), Line::note(Kind::Note, "")];
            show(&mut lines, above, 1, 0);
            lines.pop_if(|line| boundary.line > 0 && line.new == Some(boundary.line));
            lines.extend(end);
            lines.into()
        }
    }
}

/// A baseline file against the last version of it that is known, behind what there is to
/// know of it.
pub fn baseline(change: &BaselineChange, deadline: Option<Instant>) -> Prepared {
    let note = |text: String| Line::note(Kind::Note, text);
    let mut lines: Vec<Line> = change.notes().into_iter().map(note).collect();
    match (&change.file, &change.known) {
        (Ok(file), Some(known)) if *file == *known.bytes => {
            lines.push(note("The file and that version are equal:".to_string()));
            lines.push(note(String::new()));
            show(&mut lines, file, 1, 0);
            lines.into()
        }
        (Ok(file), Some(known)) => {
            lines.push(note(String::new()));
            compared(lines, [&known.bytes, file], [0, 0], deadline)
        }
        (Ok(file), None) => {
            lines.push(note("The file as it is:".to_string()));
            lines.push(note(String::new()));
            show(&mut lines, file, 1, 0);
            lines.into()
        }
        (Err(error), Some(known)) => {
            lines.push(note(format!("{error}; that version is:")));
            lines.push(note(String::new()));
            show(&mut lines, &known.bytes, 1, 0);
            lines.into()
        }
        (Err(error), None) => {
            lines.push(note(error.to_string()));
            lines.into()
        }
    }
}

/// The scratch of an agent.
pub fn scratch(detail: &Detail) -> Prepared {
    if let Some(error) = &detail.error {
        return vec![Line::note(Kind::Note, error.clone())].into();
    }
    let mut lines = Vec::new();
    let (above, mut scratch) = detail.parts();
    let content = detail.observation.content.as_ref();
    let boundary = content.and_then(|content| content.boundary);
    if boundary.is_none() {
        let why = if detail.operator_part.is_none() {
            "Without the baseline it cannot be told where the scratch begins; the memory as it is:"
        } else if detail.cr_lf {
            "No boundary, because lines end with CR LF; all of it may be scratch:"
        } else {
            "No separator, so all of it may be scratch:"
        };
        lines.push(Line::note(Kind::Note, why));
        scratch = above;
    }
    if scratch.is_empty() {
        lines.push(Line::note(Kind::Note, "0 scratch lines."));
    }
    let first = boundary.map_or(1, |boundary| boundary.line + 1);
    show(&mut lines, scratch, first, detail.more);
    lines.into()
}

/// What a run changed: what stood there before against what stood there after.
pub fn passed(passed: &Passed, deadline: Option<Instant>) -> Prepared {
    let mut lines = Vec::new();
    if passed.before == Side::Untouched && passed.after == Side::Untouched {
        return vec![Line::note(Kind::Note, "It changed nothing.")].into();
    }
    let texts =
        [("before", &passed.before), ("after", &passed.after)].map(|(when, side)| match side {
            Side::Text(bytes, _) => Some(bytes.as_slice()),
            Side::Absent => {
                let why = format!("There was no memory {when} it.");
                lines.push(Line::note(Kind::Note, why));
                Some(&[][..])
            }
            Side::Untouched => {
                let why = format!("{when}: it left the memory as it was");
                lines.push(Line::note(Kind::Note, why));
                None
            }
            Side::Gone(why) => {
                lines.push(Line::note(Kind::Note, format!("{when}: {why}")));
                None
            }
        });
    let more = [&passed.before, &passed.after].map(|side| match side {
        Side::Text(_, more) => *more,
        _ => 0,
    });
    match texts {
        [Some(before), Some(after)] if before == after && more == [0, 0] => {
            lines.push(Line::note(Kind::Note, "Before and after are equal."));
            show(&mut lines, after, 1, 0);
            lines.into()
        }
        [Some(before), Some(after)] => compared(lines, [before, after], more, deadline),
        [Some(text), None] => {
            lines.push(Line::note(Kind::Note, "What stood there before:"));
            show(&mut lines, text, 1, more[0]);
            lines.into()
        }
        [None, Some(text)] => {
            lines.push(Line::note(Kind::Note, "What stood there after it:"));
            show(&mut lines, text, 1, more[1]);
            lines.into()
        }
        [None, None] => lines.into(),
    }
}

/// The difference of two texts behind some lines, as far as they are shown.
fn compared(
    before: Vec<Line>,
    texts: [&[u8]; 2],
    more: [u64; 2],
    deadline: Option<Instant>,
) -> Prepared {
    let [(old, old_left), (new, new_left)] = texts.map(beginning);
    let left = [old_left + more[0], new_left + more[1]];
    let ends = left.map(|left| left > 0);
    let left = left[0].max(left[1]);
    let with = |diff: Diff| {
        let mut lines = before.clone();
        lines.extend(diff.lines.into_iter().map(line));
        if ends[0] && !old.ends_with(b"\n") {
            cut(&mut lines, |line| line.old.is_some());
        }
        if ends[1] && !new.ends_with(b"\n") {
            cut(&mut lines, |line| line.new.is_some());
        }
        lines.extend(rest(left));
        lines
    };
    let exact = diff::lines(old, new, deadline);
    // Only a change of both texts can be one of blanks.
    let worth = exact.added > 0 && exact.removed > 0;
    let but_blanks = worth.then(|| diff::lines_but_blanks(old, new, deadline));
    let differs = |diff: &Diff| diff.lines.iter().any(|line| line.before.is_some());
    Prepared {
        lines: with(exact),
        but_blanks: but_blanks.filter(differs).map(with),
    }
}

fn line(line: diff::DiffLine) -> Line {
    Line {
        kind: match line.op {
            Op::Equal => Kind::Same,
            Op::Insert => Kind::Added,
            Op::Delete => Kind::Removed,
        },
        old: line.old,
        new: line.new,
        unended: line.no_newline && line.op != Op::Equal,
        cut: false,
        raw: line.text,
        emphasis: line.emphasis,
        paired: line.paired,
        before: line.before,
        tones: Vec::new(),
    }
}

/// The lines of a text with their numbers, as far as they are shown.
fn show(lines: &mut Vec<Line>, text: &[u8], first: usize, more: u64) {
    let (shown, left) = beginning(text);
    for (number, line) in shown.split_inclusive(|byte| *byte == b'\n').enumerate() {
        lines.push(Line {
            new: Some(first + number),
            raw: line.strip_suffix(b"\n").unwrap_or(line).to_vec(),
            ..Line::default()
        });
    }
    if left + more > 0 && !shown.ends_with(b"\n") {
        cut(lines, |line| line.new.is_some());
    }
    lines.extend(rest(left + more));
}

/// The last of these lines goes on behind what is shown.
fn cut(lines: &mut [Line], of: impl Fn(&Line) -> bool) {
    if let Some(line) = lines.iter_mut().rfind(|line| of(line)) {
        line.cut = true;
        line.unended = false;
    }
}

/// What is shown of a text, and how many bytes are not.
fn beginning(text: &[u8]) -> (&[u8], u64) {
    let shown = &text[..text.len().min(SHOWN)];
    let mut ends = shown.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = ends
        .nth(SHOWN_LINES - 1)
        .map_or(shown.len(), |(at, _)| at + 1);
    (&shown[..end], (text.len() - end) as u64)
}

/// That so many bytes follow.
fn rest(more: u64) -> Option<Line> {
    (more > 0).then(|| Line {
        cut: true,
        ..Line::note(Kind::Note, format!("{more} bytes more are not shown"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(before: Side, after: Side) -> Prepared {
        passed(&Passed { before, after }, None)
    }

    fn file(text: &str) -> Side {
        Side::Text(text.as_bytes().to_vec(), 0)
    }

    fn shown(lines: &[Line]) -> Vec<String> {
        let sign = |kind| match kind {
            Kind::Added => '+',
            Kind::Removed => '-',
            Kind::Note => '#',
            _ => ' ',
        };
        let text = |line: &Line| String::from_utf8_lossy(&line.raw).into_owned();
        lines
            .iter()
            .map(|line| format!("{}{}", sign(line.kind), text(line)))
            .collect()
    }

    #[test]
    fn lines_that_differ_in_blanks_alone_can_be_equal() {
        let both = sides(file("a b\nc\nd\n"), file("a  b\r\nc \nD\n"));
        assert_eq!(
            shown(&both.lines),
            ["-a b", "-c", "-d", "+a  b\r", "+c ", "+D"]
        );
        let lines = both.but_blanks.unwrap();
        assert_eq!(shown(&lines), [" a  b\r", " c ", "-d", "+D"]);
        let before: Vec<_> = lines.iter().map(|line| line.before.as_deref()).collect();
        assert_eq!(before, [Some(&b"a b"[..]), Some(b"c"), None, None]);
        // Where it makes no difference there is no second text.
        assert_eq!(sides(file("a\n"), file("b\n")).but_blanks, None);
        // An invisible character is no blank.
        assert_eq!(sides(file("a\n"), file("a\u{200b}\n")).but_blanks, None);
    }

    #[test]
    fn what_cannot_be_shown_is_said_and_the_rest_is_shown() {
        let gone = || Side::Gone("it was deleted".to_string());
        assert_eq!(
            shown(&sides(gone(), file("a\n")).lines),
            [
                "#before: it was deleted",
                "#What stood there after it:",
                " a"
            ]
        );
        assert_eq!(
            shown(&sides(Side::Absent, file("a\n")).lines),
            ["#There was no memory before it.", "+a"]
        );
        assert_eq!(
            shown(&sides(file("a\n"), file("a\n")).lines),
            ["#Before and after are equal.", " a"]
        );
        let (first, second) = ("#before: it was deleted", "#after: it was deleted");
        assert_eq!(shown(&sides(gone(), gone()).lines), [first, second]);
    }

    #[test]
    fn of_a_long_text_the_beginning_is_shown_and_the_rest_counted() {
        for (line, count) in [
            ("x".repeat(63) + "\n", SHOWN / 64),
            ("\n".to_string(), SHOWN_LINES),
        ] {
            let long = line.repeat(SHOWN);
            let left = long.len() - count * line.len() + 7;
            let lines = sides(file(""), Side::Text(long.into_bytes(), 7)).lines;
            let last = shown(&lines[lines.len() - 1..]);
            assert_eq!(last, [format!("#{left} bytes more are not shown")]);
            assert_eq!(lines.len(), count + 1);
        }
    }

    #[test]
    fn a_line_that_is_cut_knows_it() {
        let long = "x".repeat(SHOWN + 9);
        let cuts = |prepared: Prepared| -> Vec<bool> {
            prepared.lines.iter().map(|line| line.cut).collect()
        };
        assert_eq!(cuts(sides(file("a\n"), file("a\nb"))), [false; 2]);
        assert_eq!(
            cuts(sides(file("a\n"), file(&format!("a\n{long}")))),
            [false, true, true]
        );
        assert_eq!(cuts(sides(file(&long), file("a\n"))), [true, false, true]);
        let gone = Side::Gone("it was deleted".to_string());
        assert_eq!(cuts(sides(gone, file(&long))), [false, false, true, true]);
        // Here only lines are missing, and none is cut.
        let lines = "\n".repeat(SHOWN_LINES + 1);
        let cut = cuts(sides(file(""), file(&lines)));
        assert_eq!(cut.iter().filter(|cut| **cut).count(), 1);
    }

    #[test]
    fn a_run_that_changed_nothing_says_so() {
        let untouched = || Side::Untouched;
        assert_eq!(
            shown(&sides(untouched(), untouched()).lines),
            ["#It changed nothing."]
        );
        assert_eq!(
            shown(&sides(file("a\n"), untouched()).lines),
            [
                "#after: it left the memory as it was",
                "#What stood there before:",
                " a"
            ]
        );
    }
}
