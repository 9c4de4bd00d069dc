//! Arranges the lines of a text: folds equal lines far from changes, and pairs the two sides of a
//! diff.

use super::{LineKind, TextLine};

/// Most equal lines between two changes of the same hunk.
const HUNK_GAP_LINES: usize = 6;

/// Rules for arranging lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// Equal lines shown around a change; `None` shows all lines.
    pub context_lines: Option<usize>,
    /// Shows the old text at the left, the new one at the right.
    pub is_side_by_side: bool,
}

/// One item of a pane: a line, a pair of lines, or a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaneItem {
    /// A line that takes the whole width of the pane.
    FullWidth(usize),
    /// A line of the old text and the corresponding one of the new text.
    SideBySide(Option<usize>, Option<usize>),
    /// A fold of equal lines: the first one and their number.
    Folded(usize, usize),
}

impl PaneItem {
    /// Returns the line that stands for the item: the first one of a fold, the new one of two
    /// sides.
    pub fn main_line(self) -> usize {
        match self {
            PaneItem::FullWidth(line) | PaneItem::Folded(line, _) => line,
            PaneItem::SideBySide(old, new) => new.or(old).unwrap_or(0),
        }
    }

    /// Returns whether the item contains a line.
    pub fn contains_line(self, line: usize) -> bool {
        match self {
            PaneItem::FullWidth(own) => own == line,
            PaneItem::SideBySide(old, new) => old == Some(line) || new == Some(line),
            PaneItem::Folded(first, count) => (first..first + count).contains(&line),
        }
    }
}

/// Returns the lines at which hunks begin: changes near each other form one hunk, unless an empty note
/// separates them, as it does the sections of rules.
pub(super) fn find_hunks(lines: &[TextLine]) -> Vec<usize> {
    let mut hunks = Vec::new();
    let mut last: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.kind == LineKind::Note && line.bytes.is_empty() {
            last = None;
        }
        if !line.kind.is_changed() {
            continue;
        }
        if last.is_none_or(|last| at - last > HUNK_GAP_LINES + 1) {
            hunks.push(at);
        }
        last = Some(at);
    }
    hunks
}

/// Arranges lines into items. Changes, notes, the separator and the lines of `always_shown`
/// (ascending) are never folded.
pub(super) fn arrange_lines(
    lines: &[TextLine],
    arrangement: Arrangement,
    always_shown: &[usize],
) -> Vec<PaneItem> {
    let shown = visible_lines(lines, arrangement.context_lines, always_shown);
    let run_length = |from: usize, continues: &dyn Fn(usize) -> bool| {
        (from..lines.len()).take_while(|at| continues(*at)).count()
    };
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let end = at
            + match line.kind {
                _ if !shown[at] => run_length(at, &|at| !shown[at]),
                LineKind::Added | LineKind::Removed if arrangement.is_side_by_side => {
                    run_length(at, &|at| lines[at].kind.is_changed())
                }
                _ => 1,
            };
        match line.kind {
            // A fold of one line would not save a row.
            _ if !shown[at] && end - at > 1 => items.push(PaneItem::Folded(at, end - at)),
            LineKind::Same if arrangement.is_side_by_side => {
                items.push(PaneItem::SideBySide(Some(at), Some(at)))
            }
            LineKind::Added | LineKind::Removed if arrangement.is_side_by_side => {
                push_side_by_side(lines, at..end, &mut items)
            }
            _ => items.push(PaneItem::FullWidth(at)),
        }
        at = end;
    }
    items
}

/// Returns the index of the item of each of `count` lines.
pub(super) fn item_indices(items: &[PaneItem], count: usize) -> Vec<usize> {
    let mut indices = vec![0; count];
    for (index, item) in items.iter().enumerate() {
        let lines = match *item {
            PaneItem::FullWidth(line) => line..line + 1,
            PaneItem::Folded(first, count) => first..first + count,
            PaneItem::SideBySide(old, new) => {
                for line in [old, new].into_iter().flatten() {
                    indices[line] = index;
                }
                continue;
            }
        };
        indices[lines].fill(index);
    }
    indices
}

fn visible_lines(lines: &[TextLine], context: Option<usize>, always_shown: &[usize]) -> Vec<bool> {
    let any = lines.iter().any(|line| line.kind.is_changed());
    let Some(context) = context.filter(|_| any) else {
        return vec![true; lines.len()];
    };
    let mut shown: Vec<bool> = lines
        .iter()
        .map(|line| line.kind != LineKind::Same)
        .collect();
    for at in always_shown {
        shown[*at] = true;
    }
    // Context reaches down from each change, then up.
    let reach = |order: &mut dyn Iterator<Item = usize>, shown: &mut Vec<bool>| {
        let mut left = 0;
        for at in order {
            left = if lines[at].kind.is_changed() {
                context + 1
            } else {
                left
            };
            shown[at] |= left > 0;
            left = left.saturating_sub(1);
        }
    };
    reach(&mut (0..lines.len()), &mut shown);
    reach(&mut (0..lines.len()).rev(), &mut shown);
    shown
}

/// Appends the lines of one change: paired lines side by side, the lines between them in order.
fn push_side_by_side(
    lines: &[TextLine],
    change: std::ops::Range<usize>,
    items: &mut Vec<PaneItem>,
) {
    let of = |kind: LineKind| change.clone().filter(move |at| lines[*at].kind == kind);
    let (old, new): (Vec<usize>, Vec<usize>) = (
        of(LineKind::Removed).collect(),
        of(LineKind::Added).collect(),
    );
    let (mut old, mut new) = (old.as_slice(), new.as_slice());
    let unpaired_count =
        |side: &[usize]| side.iter().take_while(|at| !lines[**at].is_paired).count();
    while !old.is_empty() || !new.is_empty() {
        let (left, right) = (unpaired_count(old), unpaired_count(new));
        for at in 0..left.max(right) {
            let left = old[..left].get(at).copied();
            let right = new[..right].get(at).copied();
            items.push(PaneItem::SideBySide(left, right));
        }
        (old, new) = (&old[left..], &new[right..]);
        if !old.is_empty() || !new.is_empty() {
            items.push(PaneItem::SideBySide(
                old.first().copied(),
                new.first().copied(),
            ));
            old = old.get(1..).unwrap_or_default();
            new = new.get(1..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns lines written as `=`, `-`, `+`, `#` (note), and `<`, `>` for paired ones.
    fn lines(text: &str) -> Vec<TextLine> {
        let line = |(at, c): (usize, char)| TextLine {
            kind: match c {
                '-' | '<' => LineKind::Removed,
                '+' | '>' => LineKind::Added,
                '#' => LineKind::Note,
                _ => LineKind::Same,
            },
            is_paired: matches!(c, '<' | '>'),
            bytes: at.to_string().into_bytes(),
            ..TextLine::default()
        };
        text.chars().enumerate().map(line).collect()
    }

    fn sides(context: Option<usize>) -> Arrangement {
        Arrangement {
            context_lines: context,
            is_side_by_side: true,
        }
    }

    #[test]
    fn paired_lines_are_side_by_side() {
        let (one, two) = (|at| Some(at), |a, b| PaneItem::SideBySide(Some(a), Some(b)));
        assert_eq!(
            arrange_lines(&lines("=<->="), sides(None), &[]),
            [
                two(0, 0),
                two(1, 3),
                PaneItem::SideBySide(one(2), None),
                two(4, 4)
            ]
        );
        assert_eq!(
            arrange_lines(&lines("--<+>>"), sides(None), &[]),
            [
                two(0, 3),
                PaneItem::SideBySide(one(1), None),
                two(2, 4),
                PaneItem::SideBySide(None, one(5))
            ]
        );
    }

    #[test]
    fn distant_lines_fold_except_single_ones() {
        let by = |context| Arrangement {
            context_lines: Some(context),
            is_side_by_side: false,
        };
        let shown = |text: &str, context, wanted: &[usize]| {
            let word = |item: &PaneItem| match item {
                PaneItem::Folded(_, count) => format!("({count})"),
                item => item.main_line().to_string(),
            };
            let items = arrange_lines(&lines(text), by(context), wanted);
            items.iter().map(word).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("=====-=====", 1, &[]), "(4) 4 5 6 (4)");
        assert_eq!(shown("=====-=====", 4, &[]), "0 1 2 3 4 5 6 7 8 9 10");
        assert_eq!(shown("=====-=====", 0, &[2]), "(2) 2 (2) 5 (5)");
        assert_eq!(shown("=======", 0, &[]), "0 1 2 3 4 5 6", "nothing changed");
        assert_eq!(shown("#====+", 0, &[]), "0 (4) 5");
    }

    #[test]
    fn all_changed_text_is_arranged_in_linear_time() {
        let lines = lines(&"+".repeat(300_000));
        for sides in [false, true] {
            let by = Arrangement {
                context_lines: Some(3),
                is_side_by_side: sides,
            };
            assert_eq!(arrange_lines(&lines, by, &[]).len(), lines.len());
        }
    }

    proptest! {
        /// Every line of both texts appears exactly once, in order; changes and `always_shown`
        /// lines are never folded.
        #[test]
        fn arrangement_keeps_every_line_in_order(
            text in "[=<>+#-]{0,60}",
            context in proptest::option::of(0_usize..5),
            two in any::<bool>(),
            wanted in proptest::collection::btree_set(0_usize..60, 0..4),
        ) {
            // Within a change, removed lines come first.
            let mut lines = lines(&text);
            for run in lines.chunk_by_mut(|a, b| a.kind.is_changed() == b.kind.is_changed()) {
                run.sort_by_key(|line| line.kind == LineKind::Added);
            }
            let wanted: Vec<usize> = wanted.into_iter().filter(|at| *at < lines.len()).collect();
            let by = Arrangement { context_lines: context, is_side_by_side: two };
            let items = arrange_lines(&lines, by, &wanted);
            let mut seen = [Vec::new(), Vec::new()];
            for item in &items {
                let (old, new): (Vec<usize>, Vec<usize>) = match *item {
                    PaneItem::FullWidth(at) => (vec![at], vec![at]),
                    PaneItem::Folded(first, count) => {
                        let lines_of = first..first + count;
                        for at in lines_of.clone() {
                            prop_assert!(lines[at].kind == LineKind::Same && !wanted.contains(&at));
                        }
                        (lines_of.clone().collect(), lines_of.collect())
                    }
                    PaneItem::SideBySide(old, new) => {
                        prop_assert!(two);
                        (old.into_iter().collect(), new.into_iter().collect())
                    }
                };
                seen[0].extend(old.into_iter().filter(|at| lines[*at].kind != LineKind::Added));
                seen[1].extend(new.into_iter().filter(|at| lines[*at].kind != LineKind::Removed));
            }
            for (seen, other) in seen.iter().zip([LineKind::Added, LineKind::Removed]) {
                let all: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].kind != other).collect();
                prop_assert_eq!(seen, &all);
            }
            let places = item_indices(&items, lines.len());
            for (line, place) in places.iter().enumerate() {
                prop_assert!(items[*place].contains_line(line));
            }
        }
    }
}
