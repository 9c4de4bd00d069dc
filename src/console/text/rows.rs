//! Lays out lines as rows of spans: made visible, then wrapped or truncated.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::{LineKind, PaneItem, PaneStyle, StyledSpan, TextLine, Tones};
use crate::base::untrusted::{self, RevealOptions};
use crate::console::theme::Role;

/// One row of a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaneRow {
    /// Its spans; of two sides, those of the left one.
    pub spans: Vec<StyledSpan>,
    /// The spans of the right side.
    pub right_spans: Vec<StyledSpan>,
}

/// Lays out an item as rows, at least one.
pub(super) fn lay_out_item(
    lines: &[TextLine],
    item: PaneItem,
    width: usize,
    style: PaneStyle,
) -> Vec<PaneRow> {
    let of = |at: Option<usize>, before: bool| {
        let line = at.and_then(|at| lines.get(at));
        line.map_or_else(Vec::new, |line| {
            let width = if matches!(item, PaneItem::SideBySide(..)) {
                style.half_width
            } else {
                width
            };
            let raw = line
                .old_bytes
                .as_ref()
                .filter(|_| before)
                .unwrap_or(&line.bytes);
            lay_out_line(line, raw, width, style)
        })
    };
    let (left, right) = match item {
        PaneItem::FullWidth(at) => (of(Some(at), false), Vec::new()),
        PaneItem::SideBySide(old, new) => (of(old, true), of(new, false)),
        PaneItem::Folded(_, count) => {
            let text = format!("⋯ {count} equal lines");
            (vec![vec![own_span(text, Role::Dim)]], Vec::new())
        }
    };
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let mut rows = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (None, None) => break,
            (left, right) => rows.push(PaneRow {
                spans: left.unwrap_or_default(),
                right_spans: right.unwrap_or_default(),
            }),
        }
    }
    if rows.is_empty() {
        rows.push(PaneRow::default());
    }
    rows
}

fn own_span(text: impl Into<String>, tone: Role) -> StyledSpan {
    StyledSpan {
        text: text.into(),
        tone,
        is_mark: false,
        is_emphasized: false,
    }
}

/// Lays out a line as rows; `raw` is its text on the side that is drawn.
fn lay_out_line(
    line: &TextLine,
    raw: &[u8],
    width: usize,
    style: PaneStyle,
) -> Vec<Vec<StyledSpan>> {
    let spans = line_spans(line, raw, style);
    let shown = |span: &StyledSpan| !span.is_mark && raw.starts_with(span.text.as_bytes());
    let plain = matches!(spans.as_slice(), [span] if shown(span));
    let width = width.max(1);
    // Text of the program is never truncated: it may be a command line to copy.
    let wraps = style.is_wrapping || line.kind == LineKind::Note;
    let mut rows = if wraps && line.kind != LineKind::Separator {
        wrap_spans(spans, width)
    } else {
        vec![truncate_spans(spans, width)]
    };
    if plain && !line.tones.is_empty() && line.old_bytes.is_none() {
        apply_tones(&mut rows, raw, &line.tones);
    }
    if line.lacks_line_feed {
        let note = own_span("(no newline at the end of the line above)", Role::Dim);
        rows.push(truncate_spans(vec![note], width));
    }
    rows
}

fn line_spans(line: &TextLine, raw: &[u8], style: PaneStyle) -> Vec<StyledSpan> {
    let is_ours = matches!(line.kind, LineKind::Note | LineKind::Separator);
    let view = RevealOptions {
        marks_whitespace: style.is_whitespace_marked && !is_ours,
        ..if style.is_prose {
            RevealOptions::PROSE
        } else {
            RevealOptions::DIFF
        }
    };
    let word_mark = |text: &str| StyledSpan {
        is_mark: true,
        ..own_span(text, Role::Text)
    };
    let (open, close) = match line.kind {
        LineKind::Added => ("{+", "+}"),
        LineKind::Same => ("«", "»"),
        _ => ("[-", "-]"),
    };
    let mut spans = Vec::new();
    let mut push = |bytes: &[u8], emphasis: bool| {
        let marked = emphasis && style.has_word_marks;
        spans.extend(marked.then(|| word_mark(open)));
        spans.extend(
            untrusted::reveal_line(bytes, view)
                .into_iter()
                .map(|token| StyledSpan {
                    text: token.text,
                    is_mark: token.is_mark,
                    is_emphasized: emphasis,
                    tone: Role::Text,
                }),
        );
        spans.extend(marked.then(|| word_mark(close)));
    };
    // A CR at the end of a line belongs to the line's end and is hidden; at the end of a piece it
    // must show, so it is doubled.
    let piece = |bytes: &[u8]| {
        if bytes.ends_with(b"\r") && !view.marks_whitespace {
            [bytes, b"\r"].concat()
        } else {
            bytes.to_vec()
        }
    };
    let mut at = 0;
    for range in &line.changed_ranges {
        let (Some(before), Some(changed)) = (raw.get(at..range.start), raw.get(range.clone()))
        else {
            continue;
        };
        push(&piece(before), false);
        push(&piece(changed), true);
        at = range.end;
    }
    push(raw.get(at..).unwrap_or_default(), false);
    spans
}

/// Gives the spans of wrapped rows their tones. Tones come last because line breaks must not depend
/// on colours. A line with revealed characters stays plain.
fn apply_tones(rows: &mut [Vec<StyledSpan>], raw: &[u8], tones: &Tones) {
    let Ok(text) = str::from_utf8(raw) else {
        return;
    };
    let mut rest = text;
    for row in rows {
        let mut toned: Vec<StyledSpan> = Vec::new();
        for span in row.drain(..) {
            if span.is_mark || span.tone != Role::Text {
                toned.push(span);
                continue;
            }
            for c in span.text.chars() {
                // Wrapping drops blanks at the end of a row.
                if !rest.starts_with(c) {
                    rest = rest.trim_start_matches(' ');
                }
                let at = text.len() - rest.len();
                rest = rest.strip_prefix(c).unwrap_or(rest);
                let next = tones.partition_point(|(range, _)| range.end <= at);
                let here = tones.get(next).filter(|(range, _)| range.contains(&at));
                let tone = here.map_or(Role::Text, |(_, tone)| *tone);
                match toned.last_mut() {
                    Some(last) if !last.is_mark && last.tone == tone => last.text.push(c),
                    _ => toned.push(own_span(c, tone)),
                }
            }
        }
        *row = toned;
    }
}

/// Wraps spans at blanks, and inside words that are longer than a row.
fn wrap_spans(spans: Vec<StyledSpan>, width: usize) -> Vec<Vec<StyledSpan>> {
    let mut rows: Vec<Vec<StyledSpan>> = vec![Vec::new()];
    let mut used = 0;
    for span in spans {
        let like = |text: String| StyledSpan {
            text,
            is_mark: span.is_mark,
            is_emphasized: span.is_emphasized,
            tone: span.tone,
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
                        continue; // A blank at the end of a row is invisible.
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

/// Truncates spans to `width` cells, with an ellipsis.
fn truncate_spans(spans: Vec<StyledSpan>, width: usize) -> Vec<StyledSpan> {
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
                row.push(StyledSpan { text, ..span });
                break 'all;
            }
            used += grapheme.width();
            text.push_str(grapheme);
        }
        row.push(StyledSpan { text, ..span });
    }
    row.push(StyledSpan {
        is_mark: true,
        ..own_span('…', Role::Text)
    });
    row
}
