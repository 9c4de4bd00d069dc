//! Drift between two or three versions of a text: each changed line is added, removed, edited or
//! moved; by Markdown section; and the lines with never, must or do not that are gone. Pure.
//!
//! It states facts about lines. Whether a change is harmful is for the operator to judge.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Diff, LineOp, compare_lines};

/// Words of protected lines, in lower case: those that forbid or oblige, in the languages in which the
/// lint knows prohibitions.
const PROTECTED_WORDS: &[&str] = &[
    // English
    "never",
    "must",
    "do not",
    "don't",
    "don’t",
    "forbidden",
    "prohibited",
    // German, Dutch
    "nie",
    "niemals",
    "nicht",
    "muss",
    "müssen",
    "musst",
    "verboten",
    "nooit",
    "niet",
    "moet",
    "verboden",
    // French, Spanish, Portuguese, Italian
    "jamais",
    "doit",
    "dois",
    "ne pas",
    "interdit",
    "nunca",
    "jamás",
    "debe",
    "debes",
    "prohibido",
    "deve",
    "proibido",
    "mai",
    "devi",
    "vietato",
    // Scandinavian
    "aldrig",
    "aldri",
    "måste",
    "skal",
    "förbjudet",
    "forbudt",
    // Polish, Turkish, Indonesian, Russian
    "nigdy",
    "musi",
    "musisz",
    "asla",
    "yasak",
    "jangan",
    "dilarang",
    "harus",
    "никогда",
    "нельзя",
    "запрещено",
    "должен",
];

/// Such words of languages that put no blanks between words.
const PROTECTED_PARTS: &[&str] = &[
    "禁止",
    "不要",
    "不得",
    "不可",
    "切勿",
    "必须",
    "必須",
    "绝不",
    "絕不",
    "决不",
    "決して",
    "絶対に",
    "절대",
    "금지",
    "반드시",
];

/// What happened to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has another text.
    Edited,
    /// It has the same text in another place.
    Moved,
}

/// One changed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// What happened to it.
    pub kind: ChangeKind,
    /// Its number and text in the old version; none if it was added.
    pub old: Option<(usize, Vec<u8>)>,
    /// Its number and text in the new version; none if it was removed.
    pub new: Option<(usize, Vec<u8>)>,
}

impl LineChange {
    /// Whether it is a protected line whose text is in the new version no more.
    pub fn is_protection_gone(&self) -> bool {
        let is_gone = matches!(self.kind, ChangeKind::Removed | ChangeKind::Edited);
        let old = self.old.as_ref();
        is_gone && old.is_some_and(|(_, text)| is_protected(text))
    }
}

/// Numbers of changed lines by kind. Blank lines do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCounts {
    /// Added lines.
    pub added: usize,
    /// Removed lines.
    pub removed: usize,
    /// Edited lines.
    pub edited: usize,
    /// Moved lines.
    pub moved: usize,
}

impl DriftCounts {
    /// Counts changes.
    pub fn of<'a>(changes: impl IntoIterator<Item = &'a LineChange>) -> DriftCounts {
        let mut counts = DriftCounts::default();
        for change in changes {
            *match change.kind {
                ChangeKind::Added => &mut counts.added,
                ChangeKind::Removed => &mut counts.removed,
                ChangeKind::Edited => &mut counts.edited,
                ChangeKind::Moved => &mut counts.moved,
            } += 1;
        }
        counts
    }
}

/// Writes counts as "+1 -2 ~3 >4": added, removed, edited, moved; "same" without changes.
impl fmt::Display for DriftCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ('+', self.added),
            ('-', self.removed),
            ('~', self.edited),
            ('>', self.moved),
        ];
        let parts = parts.iter().filter(|(_, count)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(sign, count)| format!("{sign}{count}"))
            .collect();
        if parts.is_empty() {
            f.write_str("same")
        } else {
            f.write_str(&parts.join(" "))
        }
    }
}

/// Classifies the changes of a diff, in the order of its lines.
pub fn classify_changes(diff: &Diff) -> Vec<LineChange> {
    let lines = &diff.lines;
    let is_rule = |at: &usize| !lines[*at].text.trim_ascii().is_empty();
    let with_op = |op: LineOp| move |at: &usize| lines[*at].op == op;
    // The old line of each new one, by indices in the diff.
    let mut origins: HashMap<usize, (usize, ChangeKind)> = HashMap::new();
    let mut deleted: HashMap<&[u8], VecDeque<usize>> = HashMap::new();
    for at in (0..lines.len())
        .filter(with_op(LineOp::Delete))
        .filter(is_rule)
    {
        deleted.entry(&lines[at].text).or_default().push_back(at);
    }
    for at in (0..lines.len())
        .filter(with_op(LineOp::Insert))
        .filter(is_rule)
    {
        let same_text = deleted.get_mut(lines[at].text.as_slice());
        if let Some(old) = same_text.and_then(VecDeque::pop_front) {
            origins.insert(at, (old, ChangeKind::Moved));
        }
    }
    let moved: HashSet<usize> = origins.values().map(|(old, _)| *old).collect();
    for hunk in diff.hunks(0) {
        let paired = |op: LineOp| {
            let range = hunk.changed_range.clone();
            range.filter(move |at| lines[*at].op == op && lines[*at].is_paired)
        };
        for (old, new) in paired(LineOp::Delete).zip(paired(LineOp::Insert)) {
            if !moved.contains(&old) && is_rule(&old) && is_rule(&new) {
                origins.entry(new).or_insert((old, ChangeKind::Edited));
            }
        }
    }
    let kept: HashSet<usize> = origins.values().map(|(old, _)| *old).collect();
    let old = |at: usize| {
        lines[at]
            .old_number
            .map(|line| (line, lines[at].text.clone()))
    };
    let change = |at: usize| match (lines[at].op, origins.get(&at)) {
        (LineOp::Insert, origin) => Some(LineChange {
            kind: origin.map_or(ChangeKind::Added, |(_, kind)| *kind),
            old: origin.and_then(|(from, _)| old(*from)),
            new: lines[at]
                .new_number
                .map(|line| (line, lines[at].text.clone())),
        }),
        (LineOp::Delete, _) if !kept.contains(&at) => Some(LineChange {
            kind: ChangeKind::Removed,
            old: old(at),
            new: None,
        }),
        _ => None,
    };
    (0..lines.len())
        .filter(is_rule)
        .filter_map(change)
        .collect()
}

/// Whether a line says what an agent never or always has to do.
fn is_protected(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line).to_lowercase();
    let is_word = |(at, word): (usize, &str)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        ![before, behind]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric)
    };
    let has_word = |word: &&str| text.match_indices(word).any(is_word);
    PROTECTED_WORDS.iter().any(has_word) || PROTECTED_PARTS.iter().any(|part| text.contains(part))
}

/// The rules of three versions: as pushed last, as the baseline is now, and as the memory is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreeWay {
    /// The sections, in the order of the pushed version; those that it lacks come last.
    pub sections: Vec<SectionDrift>,
}

impl ThreeWay {
    /// Returns what the operator changed since the push.
    pub fn operator_changes(&self) -> impl Iterator<Item = &LineChange> {
        self.sections.iter().flat_map(|it| &it.operator_changes)
    }

    /// Returns what the agent changed since the push.
    pub fn agent_changes(&self) -> impl Iterator<Item = &LineChange> {
        self.sections.iter().flat_map(|it| &it.agent_changes)
    }
}

/// One section of three versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionDrift {
    /// Its heading; empty for the text before the first one.
    pub heading: Vec<u8>,
    /// Its text as pushed last; none where there is no such section.
    pub pushed: Option<Vec<u8>>,
    /// Its text in the baseline.
    pub baseline: Option<Vec<u8>>,
    /// Its text in the memory.
    pub memory: Option<Vec<u8>>,
    /// What the operator changed in it since the push.
    pub operator_changes: Vec<LineChange>,
    /// What the agent changed in it since the push.
    pub agent_changes: Vec<LineChange>,
}

/// Compares three versions of the rules; after the deadline, coarsely.
pub fn compare_three_ways(
    pushed: &[u8],
    baseline: &[u8],
    memory: &[u8],
    deadline: Option<Instant>,
) -> ThreeWay {
    let texts = [pushed, baseline, memory].map(split_sections);
    // An agent may have written any number of headings.
    let mut known: HashSet<&SectionKey> = HashSet::new();
    let keys = texts.iter().flatten().map(|section| &section.key);
    let keys: Vec<&SectionKey> = keys.filter(|key| known.insert(*key)).collect();
    let [operator_changes, agent_changes] =
        [baseline, memory].map(|new| classify_changes(&compare_lines(pushed, new, deadline)));
    let group = |changes: Vec<LineChange>, new: &[Section]| {
        let mut groups: HashMap<SectionKey, Vec<LineChange>> = HashMap::new();
        for change in changes {
            let key = match (&change.new, &change.old) {
                (Some((line, _)), _) => section_at(new, *line),
                (None, Some((line, _))) => section_at(&texts[0], *line),
                (None, None) => None,
            };
            if let Some(key) = key {
                groups.entry(key.clone()).or_default().push(change);
            }
        }
        groups
    };
    let mut operator_changes = group(operator_changes, &texts[1]);
    let mut agent_changes = group(agent_changes, &texts[2]);
    let by_key = |sections: &[Section]| -> HashMap<SectionKey, Vec<u8>> {
        let sections = sections.iter();
        let pairs = sections.map(|section| (section.key.clone(), section.text.clone()));
        pairs.collect()
    };
    let [mut pushed, mut baseline, mut memory] = texts.each_ref().map(|text| by_key(text));
    let sections = keys.into_iter().map(|key| SectionDrift {
        heading: key.0.clone(),
        pushed: pushed.remove(key),
        baseline: baseline.remove(key),
        memory: memory.remove(key),
        operator_changes: operator_changes.remove(key).unwrap_or_default(),
        agent_changes: agent_changes.remove(key).unwrap_or_default(),
    });
    ThreeWay {
        sections: sections.collect(),
    }
}

/// A heading, and how many sections before it have the same one.
type SectionKey = (Vec<u8>, usize);

/// A section of one text.
struct Section {
    key: SectionKey,
    first_line: usize,
    text: Vec<u8>,
}

fn section_at(sections: &[Section], line: usize) -> Option<&SectionKey> {
    let count = sections.partition_point(|section| section.first_line <= line);
    Some(&sections.get(count.checked_sub(1)?)?.key)
}

/// Splits a text at its Markdown headings; those in code fences are text.
fn split_sections(text: &[u8]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut fence: Option<u8> = None;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let content = line.trim_ascii();
        let mark = content.first().copied().unwrap_or_default();
        let is_fence = content.starts_with(b"```") || content.starts_with(b"~~~");
        let is_heading = fence.is_none() && is_atx_heading(line);
        if is_fence && fence.is_none_or(|open| open == mark) {
            fence = if fence.is_none() { Some(mark) } else { None };
        }
        if is_heading || sections.is_empty() {
            let heading = if is_heading {
                content.to_vec()
            } else {
                Vec::new()
            };
            let earlier = seen.entry(heading.clone()).or_default();
            sections.push(Section {
                key: (heading, *earlier),
                first_line: number + 1,
                text: Vec::new(),
            });
            *earlier += 1;
        }
        if let Some(section) = sections.last_mut() {
            section.text.extend_from_slice(line);
        }
    }
    sections
}

fn is_atx_heading(line: &[u8]) -> bool {
    let level = line.iter().take_while(|byte| **byte == b'#').count();
    (1..=6).contains(&level) && line.get(level).is_none_or(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(old: &str, new: &str) -> Vec<LineChange> {
        classify_changes(&compare_lines(old.as_bytes(), new.as_bytes(), None))
    }

    fn kinds(old: &str, new: &str) -> Vec<(ChangeKind, Option<usize>, Option<usize>)> {
        let number = |side: &Option<(usize, Vec<u8>)>| side.as_ref().map(|(line, _)| *line);
        let changes = changes(old, new).into_iter();
        changes
            .map(|it| (it.kind, number(&it.old), number(&it.new)))
            .collect()
    }

    #[test]
    fn changed_lines_are_classified() {
        use ChangeKind::*;
        let old = "- be kind\n- ask before you delete anything\n- be brief\n";
        assert!(kinds(old, old).is_empty());
        assert_eq!(
            kinds(old, &format!("{old}\n- new\n")),
            [(Added, None, Some(5))]
        );
        assert_eq!(
            kinds(old, "- be kind\n- be brief\n"),
            [(Removed, Some(2), None)]
        );
        let edited = old.replace("before you delete", "after you delete");
        assert_eq!(kinds(old, &edited), [(Edited, Some(2), Some(2))]);
        let moved = "- be brief\n- be kind\n- ask before you delete anything\n";
        assert_eq!(kinds(old, moved), [(Moved, Some(3), Some(1))]);
        // Blank lines are not rules.
        assert!(kinds(old, &old.replace('\n', "\n\n")).is_empty());
    }

    #[test]
    fn protected_lines_that_are_gone_are_named() {
        let old = "- Never delete.\n- You MUST ask.\n- do not guess\n- a nevertheless\n- mustard\n";
        let gone = |new: &str| -> Vec<usize> {
            let gone = changes(old, new)
                .into_iter()
                .filter(LineChange::is_protection_gone);
            gone.filter_map(|change| Some(change.old?.0)).collect()
        };
        assert_eq!(gone(""), [1, 2, 3]);
        assert_eq!(gone(&old.replace("Never", "Rarely")), [1]);
        assert!(gone("- You MUST ask.\n- Never delete.\n- do not guess\n").is_empty());
        let old =
            "- Lösche NIEMALS etwas.\n- Никогда не удаляй.\n- 请不要删除文件\n- Die Linie hält.\n";
        let gone = changes(old, "")
            .into_iter()
            .filter(LineChange::is_protection_gone);
        let gone: Vec<usize> = gone.filter_map(|change| Some(change.old?.0)).collect();
        assert_eq!(gone, [1, 2, 3]);
    }

    #[test]
    fn sections_say_who_changed_what() {
        let pushed = "intro\n# A\n- one\n```\n# no heading\n```\n# B\n- two\n# A\n- three\n";
        let baseline = pushed.replace("- two\n", "- two\n- four\n");
        let memory = pushed
            .replace("- three\n", "")
            .replace("# B\n", "# Mine\n- five\n# B\n");
        let found = compare_three_ways(
            pushed.as_bytes(),
            baseline.as_bytes(),
            memory.as_bytes(),
            None,
        );
        let counts: Vec<(String, usize, usize, usize)> = found
            .sections
            .iter()
            .map(|it| {
                let heading = String::from_utf8(it.heading.clone()).unwrap();
                (
                    heading,
                    DriftCounts::of(&it.operator_changes).added,
                    DriftCounts::of(&it.agent_changes).added,
                    DriftCounts::of(&it.agent_changes).removed,
                )
            })
            .collect();
        let expected = [
            ("", 0, 0, 0),
            ("# A", 0, 0, 0),
            ("# B", 1, 0, 0),
            ("# A", 0, 0, 1),
            ("# Mine", 0, 2, 0),
        ];
        let expected = expected.map(|(heading, a, b, c)| (heading.to_string(), a, b, c));
        assert_eq!(counts, expected);
        assert_eq!(found.sections[4].pushed, None);
        assert_eq!(found.sections[3].memory.as_deref(), Some(&b"# A\n"[..]));
    }

    /// A comparison of each heading with all others would take minutes.
    #[test]
    fn many_headings_are_compared() {
        let memory: String = (0..100_000).map(|n| format!("# {n}\n")).collect();
        let found = compare_three_ways(b"# a\n", b"# a\n", memory.as_bytes(), None);
        assert_eq!(found.sections.len(), 100_001);
        let counts = DriftCounts::of(found.agent_changes());
        assert_eq!(counts.added + counts.edited, 100_000);
    }

    proptest! {
        /// Sections make up their text, and every change is in one of them.
        #[test]
        fn sections_and_changes_are_complete(
            pushed in "([#a-c `\n~]|# |```){0,60}",
            memory in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let whole: Vec<u8> = split_sections(&memory).into_iter().flat_map(|it| it.text).collect();
            prop_assert_eq!(&whole, &memory);
            let found = compare_three_ways(pushed.as_bytes(), pushed.as_bytes(), &memory, None);
            let all = classify_changes(&compare_lines(pushed.as_bytes(), &memory, None));
            prop_assert_eq!(found.agent_changes().count(), all.len());
            prop_assert_eq!(found.operator_changes().count(), 0);
        }
    }
}
