//! Fits the reasons of the fleet's rows into their column. What is gone comes first, words are
//! abbreviated and paths left out before anything is cut, and two reasons that differ in more than a
//! path never look the same.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use crate::base::untrusted;
use crate::console::widgets::canvas::{fit_end_of_sentence, truncate};

/// The least room for a reason beside findings.
const MIN_REASON_CELLS: usize = 14;

/// Words of the program, and what stands for them where there is no room; the first go first.
const ABBREVIATIONS: &[(&str, &str)] = &[
    ("rules edited: ", ""),
    (" protected lines gone", " protected gone"),
    (" protected line gone", " protected gone"),
    ("invisible characters", "invisible"),
    ("invisible character", "invisible"),
    ("injections", "inj."),
    ("injection", "inj."),
    ("the baseline ", "baseline "),
    (" that this program ships", ""),
];

/// Cells of the common beginning that stay at least where reasons differ only behind it: one in so
/// many.
const HEAD_SHARE: usize = 3;

/// Bytes of a common beginning that are shown again, so that a word is whole.
const MAX_WORD_BEGINNING: usize = 8;

/// The whole reason of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeReason {
    /// The reason.
    pub reason: String,
    /// What the scan found.
    pub findings: String,
}

/// What the cell of a row shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasonCell {
    /// The reason.
    pub reason: String,
    /// What the scan found, with the sign between the two.
    pub findings: String,
}

impl WholeReason {
    /// Returns reason and findings in one drawable line.
    fn to_line(&self) -> String {
        let parts = [self.reason.as_str(), self.findings.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        untrusted::visible_line(parts.join("; "))
    }
}

impl ReasonCell {
    fn to_line(&self) -> String {
        format!("{}{}", self.reason, self.findings)
    }
}

/// Fits the reasons of the visible rows into `room` cells each.
pub fn fit_reasons(whole: &[WholeReason], room: usize) -> Vec<ReasonCell> {
    let mut cells: Vec<ReasonCell> = whole.iter().map(|whole| fit_reason(whole, room)).collect();
    // The agent tells reasons apart that differ only in their paths.
    let lines = whole.iter().map(|whole| omit_paths(&whole.to_line()));
    let lines: Vec<String> = lines.collect();
    // Each round tells the members of a group apart; they may look like those of another group then.
    for _ in 0..=cells.len() {
        let groups = find_lookalikes(&lines, &cells);
        if groups.is_empty() {
            return cells;
        }
        for group in groups {
            show_difference(&lines, &group, &mut cells, room);
        }
    }
    let rest = find_lookalikes(&lines, &cells).concat();
    number_reasons(&lines, &rest, &mut cells, room);
    cells
}

fn fit_reason(whole: &WholeReason, room: usize) -> ReasonCell {
    let mut reason = untrusted::visible_line(&whole.reason);
    let mut findings = untrusted::visible_line(&whole.findings);
    if !reason.is_empty() && !findings.is_empty() {
        findings.insert_str(0, "; ");
    }
    let fits = |reason: &str, findings: &str| reason.width() + findings.width() <= room;
    for (word, short) in ABBREVIATIONS {
        if fits(&reason, &findings) {
            break;
        }
        reason = reason.replacen(word, short, 1);
        findings = findings.replacen(word, short, 1);
    }
    if !fits(&reason, &findings) {
        let left = room.saturating_sub(findings.width());
        let left = left.max(MIN_REASON_CELLS.min(room));
        reason = fit_worst_reason(&reason, left);
        findings = match room.saturating_sub(reason.width()) {
            0 => String::new(),
            left => truncate(&findings, left),
        };
    }
    ReasonCell { reason, findings }
}

/// Fits several reasons, the worst first, into `room` cells; that one keeps its cause.
fn fit_worst_reason(reasons: &str, room: usize) -> String {
    let reasons = omit_paths(reasons);
    match reasons.split_once("; ") {
        Some((worst, _)) if worst.width() < room => truncate(&reasons, room),
        Some((worst, _)) => fit_end_of_sentence(worst, room),
        None => fit_end_of_sentence(&reasons, room),
    }
}

/// Leaves paths out of a text, except one at its end.
fn omit_paths(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let last = words.len() - 1;
    let word = |(at, word): (usize, &&str)| {
        let path = word.trim_end_matches([':', ';', ',']);
        if at < last && path.contains('/') {
            format!("…{}", &word[path.len()..])
        } else {
            word.to_string()
        }
    };
    let words: Vec<String> = words.iter().enumerate().map(word).collect();
    words.join(" ")
}

/// Returns the rows that look the same though their reasons differ, in groups.
fn find_lookalikes(lines: &[String], cells: &[ReasonCell]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        groups.entry(cell.to_line()).or_default().push(index);
    }
    let differs = |group: &Vec<usize>| group.iter().any(|at| lines[*at] != lines[group[0]]);
    groups.into_values().filter(differs).collect()
}

/// Shows of each reason of a group what is different, behind a part of the common beginning.
fn show_difference(lines: &[String], group: &[usize], cells: &mut [ReasonCell], room: usize) {
    let first = &lines[group[0]];
    let common_length = |line: &String| {
        let both = first.chars().zip(line.chars());
        let common = both.take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8());
        common.sum::<usize>()
    };
    let others = group.iter().map(|at| &lines[*at]);
    let others = others.filter(|line| *line != first).map(common_length);
    let common = others.min().unwrap_or(0);
    // A short word that differs in its middle is shown whole.
    let word = first[..common].rfind(' ').map_or(0, |blank| blank + 1);
    let from = if common - word <= MAX_WORD_BEGINNING {
        word
    } else {
        common
    };
    for at in group {
        let (beginning, rest) = lines[*at].split_at(from);
        let head = room.saturating_sub(rest.width()).max(room / HEAD_SHARE);
        let head = truncate(beginning, head);
        let rest = truncate(rest, room.saturating_sub(head.width()));
        cells[*at] = ReasonCell {
            reason: format!("{head}{rest}"),
            findings: String::new(),
        };
    }
}

/// Numbers the reasons of rows, where nothing else tells them apart.
fn number_reasons(lines: &[String], group: &[usize], cells: &mut [ReasonCell], room: usize) {
    let mut known: Vec<&String> = group.iter().map(|at| &lines[*at]).collect();
    known.sort();
    known.dedup();
    for at in group {
        let number = known.iter().position(|line| **line == lines[*at]);
        let number = format!(" #{}", number.unwrap_or(0) + 1);
        let text = truncate(&lines[*at], room.saturating_sub(number.width()));
        cells[*at] = ReasonCell {
            reason: format!("{text}{number}"),
            findings: String::new(),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(reason: &str, findings: &str) -> WholeReason {
        WholeReason {
            reason: reason.to_string(),
            findings: findings.to_string(),
        }
    }

    fn shown(whole: &[WholeReason], room: usize) -> Vec<String> {
        let cells = fit_reasons(whole, room);
        cells.iter().map(ReasonCell::to_line).collect()
    }

    #[test]
    fn gone_protection_is_named_before_injections() {
        let drifts = [
            whole(
                "1 protected line gone, rules edited: L22 L31",
                "1 injection",
            ),
            whole("rules edited: L7", "1 injection"),
            whole("rules edited: L8 L9 L10 L11 …", "1 injection"),
        ];
        assert_eq!(
            shown(&drifts, 60)[0],
            "1 protected line gone, rules edited: L22 L31; 1 injection"
        );
        assert_eq!(
            shown(&drifts, 34),
            [
                "1 protected gone, L22 L31; 1 inj.",
                "rules edited: L7; 1 injection",
                "L8 L9 L10 L11 …; 1 injection"
            ]
        );
        assert_eq!(shown(&drifts, 22)[0], "1 protected g…; 1 inj.");
    }

    #[test]
    fn compound_reason_leaves_the_others_their_room() {
        let shared = "no separator line: what stands here is archived whole";
        let compound = format!("{shared}; over 16K limit");
        let texts = shown(
            &[whole(shared, ""), whole(&compound, ""), whole(shared, "")],
            34,
        );
        assert_eq!(texts[0], "no separator line: what stan…whole");
        assert_eq!(texts[1], "no separator…whole; over 16K limit");
        assert_eq!(texts[2], texts[0]);
    }

    #[test]
    fn decisive_words_outlast_a_path() {
        let reason = |agent: &str, rest: &str| {
            let path = format!("/etc/memory-shepherd/baselines/{agent}-MEMORY.md");
            whole(&format!("the baseline {path} {rest}"), "")
        };
        let template = "is still the template that this program ships: placeholders in lines 3, 5";
        let missing = "the baseline is missing: /etc/shepherd/baselines/scout.md; over 16K limit";
        let denied = "cannot read /agents/perm/MEMORY.md: Permission denied; unsettled: reset perm";
        let reasons = [
            reason("newbie", template),
            reason("novice", template),
            reason("small", "has only 12 bytes (min_baseline_size is 500)"),
            whole(missing, ""),
            whole(denied, ""),
        ];
        let texts = [
            "baseline … is still the template:…",
            "baseline … is still the template:…",
            "baseline … has only 12 bytes (min…",
            "baseline is missing: …; over 16K …",
            "cannot read …: Permission denied;…",
        ];
        assert_eq!(shown(&reasons, 34), texts);
    }

    #[test]
    fn different_reasons_never_look_the_same() {
        let rules = "3 protected lines gone, rules edited: L22 L31 L44";
        let alike = [
            whole(&format!("{rules} L50"), "1 injection"),
            whole(&format!("{rules} L51"), "1 injection"),
            whole(&format!("{rules} L61"), ""),
            whole(&format!("{rules} L50"), "1 injection"),
        ];
        let texts = shown(&alike, 22);
        assert_eq!(texts[0], texts[3], "one reason looks the same");
        assert_ne!(texts[0], texts[1]);
        assert_ne!(texts[1], texts[2]);
        assert!(texts[1].contains("51"), "{texts:?}");
    }

    proptest! {
        #[test]
        fn any_two_reasons_are_told_apart(
            reasons in prop::collection::vec(("[ab]{0,60}", "[ab]{0,12}"), 2..12),
            room in 14_usize..40,
        ) {
            let reasons: Vec<WholeReason> =
                reasons.iter().map(|(reason, findings)| whole(reason, findings)).collect();
            let cells = fit_reasons(&reasons, room);
            for (one, cell) in reasons.iter().zip(&cells) {
                prop_assert!(cell.to_line().width() <= room, "{cell:?}");
                for (other, shown) in reasons.iter().zip(&cells) {
                    let is_same = one.to_line() == other.to_line();
                    prop_assert_eq!(is_same, cell.to_line() == shown.to_line());
                }
            }
        }
    }
}
