//! Line and word differences as plain data, for console and command line.
//!
//! Works on raw bytes: a CR, a missing line end or a byte that is not UTF-8 is a difference here
//! too; `untrusted` shows them. The line diff is that of the `similar` crate, stopped by the
//! deadline of the caller. The word diff inside changed lines stops at the same deadline and has
//! fixed budgets, since agents choose the input. Texts with too many lines are only counted. Nothing
//! here reads the clock: the caller makes the deadline.

pub mod drift;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};
use unicode_segmentation::UnicodeSegmentation;

/// Maximum number of lines, in both texts together, that are compared: each takes a hundred times
/// the memory of an empty line.
pub const MAX_COMPARED_LINES: usize = 1 << 20;
/// Memory that a compared line takes beside its text, in bytes, where it is compared twice, with
/// and without its blanks.
const COMPARED_LINE_BYTES: usize = 192;
/// Maximum length, in bytes, of a line whose words are compared.
const MAX_WORD_DIFF_LINE_BYTES: usize = 64 << 10;
/// Maximum number of bytes of changed lines, in one diff, whose words are compared: more is a
/// rewrite, which users do not read word by word.
const MAX_WORD_DIFF_BYTES: usize = 4 << 20;
/// Maximum number of word comparisons, in one diff, spent on matching deleted lines with inserted
/// ones; after that, lines pair by position.
const MAX_PAIRING_COST: usize = 4_000_000;
/// A line whose changed share, in percent, is above this counts as wholly changed: emphasis on
/// single words that happen to recur only distracts.
const MAX_EMPHASIS_PERCENT: usize = 70;

/// Operation on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineOp {
    /// The line is in both texts.
    Equal,
    /// The line is in the old text only.
    Delete,
    /// The line is in the new text only.
    Insert,
}

/// Byte ranges within a line.
type ByteRanges = Vec<Range<usize>>;

/// One line of either text, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    /// Operation on the line.
    pub op: LineOp,
    /// Line number in the old text, from 1.
    pub old_number: Option<usize>,
    /// Line number in the new text, from 1.
    pub new_number: Option<usize>,
    /// Raw bytes without the LF. A CR before the LF is part of them.
    pub text: Vec<u8>,
    /// The changed byte ranges within `text`, ascending and disjoint, on word boundaries (and so on
    /// character boundaries in UTF-8). Empty if the line has no counterpart, or too little in
    /// common with it: then the whole line changed. Also empty if its counterpart only gained
    /// something.
    pub emphasis: Vec<Range<usize>>,
    /// Whether the LF is missing, as it may be on the last line of a text.
    pub is_newline_missing: bool,
    /// Whether the line changed into, or comes from, a line of the other text: within a change the
    /// first paired deleted line belongs to the first paired inserted one, and so on.
    pub is_paired: bool,
    /// The old text of an equal line, where it differs in blanks alone.
    pub old_text: Option<Vec<u8>>,
}

/// Changes close enough to share their context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Indices into [`Diff::lines`] of the hunk with its context.
    pub line_range: Range<usize>,
    /// From the first changed line to the end of the last one.
    pub changed_range: Range<usize>,
}

/// The difference of two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// All lines in display order, including equal ones; within a change the deleted lines come
    /// before the inserted ones.
    pub lines: Vec<DiffLine>,
    /// Number of inserted lines.
    pub added: usize,
    /// Number of deleted lines.
    pub removed: usize,
    /// Whether the texts differ and have more than [`MAX_COMPARED_LINES`] lines: then `lines` is
    /// empty, and the two numbers count everything between the first and the last difference.
    pub is_too_large: bool,
}

impl Diff {
    /// Says that a difference is too large to show, and how large it is; `None` if its lines can be
    /// shown.
    pub fn describe_too_large(&self) -> Option<String> {
        let (added, removed) = (self.added, self.removed);
        self.is_too_large
            .then(|| format!("too large to show line by line: +{added} -{removed} lines"))
    }

    /// Returns the hunks with up to `context` equal lines around each change; as in `diff -u`,
    /// changes at most twice that far apart share a hunk.
    pub fn hunks(&self, context: usize) -> Vec<Hunk> {
        let mut hunks: Vec<Hunk> = Vec::new();
        let changed = |(_, line): &(usize, &DiffLine)| line.op != LineOp::Equal;
        for (at, _) in self.lines.iter().enumerate().filter(changed) {
            let end = (at + 1).saturating_add(context).min(self.lines.len());
            match hunks.last_mut() {
                Some(last) if at - last.changed_range.end <= context.saturating_mul(2) => {
                    last.changed_range.end = at + 1;
                    last.line_range.end = end;
                }
                _ => hunks.push(Hunk {
                    line_range: at.saturating_sub(context)..end,
                    changed_range: at..at + 1,
                }),
            }
        }
        hunks
    }

    /// Whether the two texts are equal, byte for byte.
    pub fn is_empty(&self) -> bool {
        self.added == 0 && self.removed == 0
    }

    /// Formats the diff as unified diff, exactly as `diff -u` prints and `patch` accepts it; empty
    /// if the texts are equal. A name with control characters, quotes or backslashes is quoted as
    /// in GNU diff, so that it cannot forge lines. Of texts that are too large it says so, in a line
    /// that `patch` does not accept.
    pub fn to_unified(&self, old_name: &str, new_name: &str, context: usize) -> Vec<u8> {
        if let Some(why) = self.describe_too_large() {
            let (old, new) = (quote_file_name(old_name), quote_file_name(new_name));
            return format!(
                "Files {} and {} differ, {why}\n",
                old.trim_end(),
                new.trim_end()
            )
            .into_bytes();
        }
        let mut out = Vec::new();
        let (mut at, mut old_seen, mut new_seen) = (0, 0, 0);
        for hunk in self.hunks(context) {
            if out.is_empty() {
                let names = format!(
                    "--- {}\n+++ {}\n",
                    quote_file_name(old_name),
                    quote_file_name(new_name)
                );
                out.extend_from_slice(names.as_bytes());
            }
            // Between hunks there are only equal lines.
            old_seen += hunk.line_range.start - at;
            new_seen += hunk.line_range.start - at;
            at = hunk.line_range.end;
            let lines = self.lines.get(hunk.line_range).unwrap_or_default();
            let old_len = lines
                .iter()
                .filter(|line| line.op != LineOp::Insert)
                .count();
            let new_len = lines
                .iter()
                .filter(|line| line.op != LineOp::Delete)
                .count();
            let (old, new) = (
                hunk_extent(old_seen, old_len),
                hunk_extent(new_seen, new_len),
            );
            out.extend_from_slice(format!("@@ -{old} +{new} @@\n").as_bytes());
            old_seen += old_len;
            new_seen += new_len;
            for line in lines {
                // In the order of `LineOp`.
                out.push(b" -+"[line.op as usize]);
                out.extend_from_slice(&line.text);
                out.push(b'\n');
                if line.is_newline_missing {
                    out.extend_from_slice(b"\\ No newline at end of file\n");
                }
            }
        }
        out
    }
}

/// Formats the lines of a hunk in one text, after `seen` lines before it. An empty range is named
/// by the line before it (POSIX `diff -u`).
fn hunk_extent(seen: usize, len: usize) -> String {
    match len {
        0 => format!("{seen},0"),
        1 => format!("{}", seen + 1),
        _ => format!("{},{len}", seen + 1),
    }
}

/// Quotes a file name for a header. Without a final TAB, `patch` takes the text after a blank for a
/// time stamp.
fn quote_file_name(name: &str) -> String {
    if name.contains(|c: char| c.is_control() || c == '"' || c == '\\') {
        let mut quoted = String::from("\"");
        for byte in name.bytes() {
            match byte {
                b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
                b' '..=b'~' => quoted.push(char::from(byte)),
                _ => quoted.push_str(&format!("\\{byte:03o}")),
            }
        }
        quoted + "\""
    } else if name.contains(' ') {
        format!("{name}\t")
    } else {
        name.to_string()
    }
}

/// Compares two texts line by line.
///
/// Each line of a text ends with an LF, except perhaps the last. After `deadline` the rest is
/// compared coarsely: correct, but with larger changes than necessary.
pub fn compare_lines(old: &[u8], new: &[u8], deadline: Option<Instant>) -> Diff {
    if let Some(diff) = compare_coarsely(old, new) {
        return diff;
    }
    let (old, new) = (split_lines(old), split_lines(new));
    compare_by_keys(&old, &new, [&old, &new], deadline)
}

/// Compares like [`compare_lines`], but treats lines that differ only in blanks, tabs and line ends
/// as equal.
pub fn compare_lines_ignoring_blanks(old: &[u8], new: &[u8], deadline: Option<Instant>) -> Diff {
    if let Some(diff) = compare_coarsely(old, new) {
        return diff;
    }
    let (old, new) = (split_lines(old), split_lines(new));
    let without_blanks = |line: &&[u8]| -> Vec<u8> {
        let bytes = line.iter().copied();
        bytes.filter(|byte| !b" \t\r\n".contains(byte)).collect()
    };
    let solid = [&old, &new].map(|lines| lines.iter().map(without_blanks).collect::<Vec<_>>());
    let keys = [&solid[0], &solid[1]].map(|lines| lines.iter().map(Vec::as_slice).collect());
    let keys: [Vec<&[u8]>; 2] = keys;
    compare_by_keys(&old, &new, [&keys[0], &keys[1]], deadline)
}

/// Compares two texts whose lines are equal if their keys are.
fn compare_by_keys(
    old: &[&[u8]],
    new: &[&[u8]],
    keys: [&[&[u8]]; 2],
    deadline: Option<Instant>,
) -> Diff {
    let mut diff = Diff::default();
    let mut word_diff = WordDiff {
        deadline,
        bytes_left: MAX_WORD_DIFF_BYTES,
        pairing_left: MAX_PAIRING_COST,
    };
    let (mut old_at, mut new_at) = (0, 0);
    for (deleted, inserted) in changed_ranges(keys[0], keys[1], deadline) {
        diff.push_equal_lines(old, new, old_at..deleted.start, new_at);
        (old_at, new_at) = (deleted.end, inserted.end);
        diff.removed += deleted.len();
        diff.added += inserted.len();
        let deleted_lines = old.get(deleted.clone()).unwrap_or_default();
        let inserted_lines = new.get(inserted.clone()).unwrap_or_default();
        let (deleted_emphasis, inserted_emphasis) =
            word_diff.emphasize_changes(deleted_lines, inserted_lines);
        for ((line, at), emphasis) in deleted_lines.iter().zip(deleted).zip(deleted_emphasis) {
            diff.push_line(LineOp::Delete, line, [Some(at), None], emphasis);
        }
        for ((line, at), emphasis) in inserted_lines.iter().zip(inserted).zip(inserted_emphasis) {
            diff.push_line(LineOp::Insert, line, [None, Some(at)], emphasis);
        }
    }
    diff.push_equal_lines(old, new, old_at..old.len(), new_at);
    diff
}

/// Counts added and removed lines: [`Diff::added`] and [`Diff::removed`] without building the lines
/// and words.
pub fn count_changes(old: &[u8], new: &[u8], deadline: Option<Instant>) -> (usize, usize) {
    if let Some(diff) = compare_coarsely(old, new) {
        return (diff.added, diff.removed);
    }
    let changes = changed_ranges(&split_lines(old), &split_lines(new), deadline);
    changes.iter().fold((0, 0), |(added, removed), (old, new)| {
        (added + new.len(), removed + old.len())
    })
}

/// Returns the number of lines of a text.
pub fn count_lines(text: &[u8]) -> usize {
    let line_feeds = memchr::memchr_iter(b'\n', text).count();
    line_feeds + usize::from(text.last().is_some_and(|byte| *byte != b'\n'))
}

/// Estimates the bytes of memory that a comparison of two texts takes, the texts included.
pub fn estimate_memory(old: &[u8], new: &[u8]) -> usize {
    let bytes = old.len() + new.len();
    match count_lines(old) + count_lines(new) {
        lines if lines <= MAX_COMPARED_LINES => bytes + lines * COMPARED_LINE_BYTES,
        _ => bytes,
    }
}

/// Counts what differs between two texts that have too many lines to compare them; `None` if they
/// do not. Of equal texts it returns an empty difference.
fn compare_coarsely(old: &[u8], new: &[u8]) -> Option<Diff> {
    // A text has no more lines than bytes.
    if old.len() + new.len() <= MAX_COMPARED_LINES
        || count_lines(old) + count_lines(new) <= MAX_COMPARED_LINES
    {
        return None;
    }
    if old == new {
        return Some(Diff::default());
    }
    let is_same = |(a, b): &(&u8, &u8)| a == b;
    let prefix = old.iter().zip(new).take_while(is_same).count();
    let start = old[..prefix].iter().rposition(|byte| *byte == b'\n');
    let start = start.map_or(0, |at| at + 1);
    let (old, new) = (&old[start..], &new[start..]);
    let suffix = old.iter().rev().zip(new.iter().rev()).take_while(is_same);
    let suffix = suffix.count();
    // Only whole lines are common.
    let begins_line = |text: &[u8]| {
        text[..text.len() - suffix]
            .last()
            .is_none_or(|it| *it == b'\n')
    };
    let kept = &old[old.len() - suffix..];
    let suffix = match kept.iter().position(|byte| *byte == b'\n') {
        _ if begins_line(old) && begins_line(new) => suffix,
        first_end => first_end.map_or(0, |at| suffix - at - 1),
    };
    Some(Diff {
        added: count_lines(&new[..new.len() - suffix]),
        removed: count_lines(&old[..old.len() - suffix]),
        is_too_large: true,
        ..Diff::default()
    })
}

impl Diff {
    /// Appends the lines of `range` of the old text, which are equal to those of the new one from
    /// index `new_at` on.
    fn push_equal_lines(
        &mut self,
        old: &[&[u8]],
        new: &[&[u8]],
        range: Range<usize>,
        new_at: usize,
    ) {
        let old_lines = old.get(range.clone()).unwrap_or_default();
        let new_lines = new.get(new_at..).unwrap_or_default();
        for ((old_line, line), (old, new)) in
            old_lines.iter().zip(new_lines).zip(range.zip(new_at..))
        {
            self.push_line(LineOp::Equal, line, [Some(old), Some(new)], None);
            if let Some(last) = self.lines.last_mut().filter(|_| old_line != line) {
                last.old_text = Some(old_line.strip_suffix(b"\n").unwrap_or(old_line).to_vec());
            }
        }
    }

    /// Appends a line, given with its LF and its indices in the old and new text.
    fn push_line(
        &mut self,
        op: LineOp,
        line: &[u8],
        at: [Option<usize>; 2],
        emphasis: Option<ByteRanges>,
    ) {
        let text = line.strip_suffix(b"\n");
        self.lines.push(DiffLine {
            op,
            old_number: at[0].map(|at| at + 1),
            new_number: at[1].map(|at| at + 1),
            text: text.unwrap_or(line).to_vec(),
            is_paired: emphasis.is_some(),
            emphasis: emphasis.unwrap_or_default(),
            is_newline_missing: text.is_none(),
            old_text: None,
        });
    }
}

/// Splits a text into lines with their LF, so that a missing one is a difference.
fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the index ranges that differ, in order; the lines between them are equal. At least one
/// range of each pair is not empty.
fn changed_ranges<'a>(
    old: &[&'a [u8]],
    new: &[&'a [u8]],
    deadline: Option<Instant>,
) -> Vec<(Range<usize>, Range<usize>)> {
    // Small numbers compare faster than text, and hash without collisions.
    let mut ids = HashMap::new();
    let mut number = |item: &&'a [u8]| {
        let next = ids.len();
        *ids.entry(*item).or_insert(next)
    };
    let old: Vec<usize> = old.iter().map(&mut number).collect();
    let new: Vec<usize> = new.iter().map(&mut number).collect();
    let mut changes: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for op in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline) {
        let (old, new) = (op.old_range(), op.new_range());
        match changes.last_mut() {
            _ if matches!(op, DiffOp::Equal { .. }) => {}
            Some(last) if last.0.end == old.start && last.1.end == new.start => {
                last.0.end = old.end;
                last.1.end = new.end;
            }
            _ => changes.push((old, new)),
        }
    }
    changes
}

/// Compares the words of changed lines, within the budgets.
struct WordDiff {
    deadline: Option<Instant>,
    /// Remainder of [`MAX_WORD_DIFF_BYTES`].
    bytes_left: usize,
    /// Remainder of [`MAX_PAIRING_COST`].
    pairing_left: usize,
}

impl WordDiff {
    /// Returns the emphasis of each deleted and each inserted line of one change; `None` for lines
    /// without a counterpart.
    fn emphasize_changes(
        &mut self,
        old: &[&[u8]],
        new: &[&[u8]],
    ) -> (Vec<Option<ByteRanges>>, Vec<Option<ByteRanges>>) {
        let mut emphasis = (vec![None; old.len()], vec![None; new.len()]);
        let size = old.iter().chain(new).map(|line| line.len()).sum::<usize>();
        if old.is_empty() || new.is_empty() || size > self.bytes_left {
            return emphasis;
        }
        self.bytes_left -= size;
        let old: Vec<_> = old.iter().map(|line| split_words(line)).collect();
        let new: Vec<_> = new.iter().map(|line| split_words(line)).collect();
        for (old_at, new_at) in self.pair_lines(&old, &new) {
            let changes = changed_ranges(&old[old_at], &new[new_at], self.deadline);
            let deleted_ranges =
                emphasis_ranges(&old[old_at], changes.iter().map(|change| &change.0));
            let inserted_ranges =
                emphasis_ranges(&new[new_at], changes.iter().map(|change| &change.1));
            if let (Some(gone), Some(come)) = (deleted_ranges, inserted_ranges) {
                emphasis.0[old_at] = Some(gone);
                emphasis.1[new_at] = Some(come);
            }
        }
        emphasis
    }

    /// Pairs deleted with inserted lines: the pairs in order that have the most words in common, or
    /// pairs by position if there are too many lines for the budget.
    fn pair_lines(&mut self, old: &[Vec<&[u8]>], new: &[Vec<&[u8]>]) -> Vec<(usize, usize)> {
        // A line counts as one word more, since even an empty one costs time.
        let count = |lines: &[Vec<&[u8]>]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
        let cost = (count(old) + count(new)).saturating_mul(old.len() + new.len());
        if old.len().max(new.len()) == 1 || cost > self.pairing_left {
            return (0..old.len().min(new.len())).map(|at| (at, at)).collect();
        }
        self.pairing_left -= cost;
        let old: Vec<_> = old.iter().map(|line| sorted_words(line)).collect();
        let new: Vec<_> = new.iter().map(|line| sorted_words(line)).collect();
        // best[a][b]: the highest sum of similarity within the first a old lines and the first b
        // new lines.
        let mut best = vec![vec![0; new.len() + 1]; old.len() + 1];
        for (a, old) in old.iter().enumerate() {
            for (b, new) in new.iter().enumerate() {
                let paired = best[a][b] + similarity(old, new);
                best[a + 1][b + 1] = paired.max(best[a][b + 1]).max(best[a + 1][b]);
            }
        }
        let (mut a, mut b) = (old.len(), new.len());
        let mut pairs = Vec::new();
        while a > 0 && b > 0 {
            if best[a][b] == best[a - 1][b] {
                a -= 1;
            } else if best[a][b] == best[a][b - 1] {
                b -= 1;
            } else {
                (a, b) = (a - 1, b - 1);
                pairs.push((a, b));
            }
        }
        pairs
    }
}

/// Splits a line without its LF into words and the text between them; each byte that is not UTF-8
/// is a word.
fn split_words(line: &[u8]) -> Vec<&[u8]> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if text.len() > MAX_WORD_DIFF_LINE_BYTES {
        return vec![text];
    }
    let words = text.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid().split_word_bounds().map(str::as_bytes);
        valid.chain(chunk.invalid().chunks(1))
    });
    words.collect()
}

fn is_blank(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_whitespace)
}

/// Returns the words of a line, sorted, without the blank ones.
fn sorted_words<'a>(line: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut bag: Vec<_> = line
        .iter()
        .copied()
        .filter(|word| !is_blank(word))
        .collect();
    bag.sort_unstable();
    bag
}

/// Returns the similarity of two sorted word lists: the share of bytes in common words, in
/// permille; 0 if it is too low for any emphasis.
fn similarity(old: &[&[u8]], new: &[&[u8]]) -> usize {
    let size = |bag: &[&[u8]]| bag.iter().map(|word| word.len()).sum::<usize>();
    let mut rest = new.iter().peekable();
    let mut common = 0;
    for word in old {
        while rest.next_if(|other| *other < word).is_some() {}
        common += rest.next_if_eq(&word).map_or(0, |word| word.len());
    }
    let (old, new) = (size(old), size(new));
    if common * 100 <= old.max(new) * (100 - MAX_EMPHASIS_PERCENT) {
        return 0;
    }
    2000 * common / (old + new)
}

/// Converts ranges of words to byte ranges, joined where only blanks are between them. Returns
/// `None` if they make up too much of the line.
fn emphasis_ranges<'a>(
    words: &[&[u8]],
    changed: impl Iterator<Item = &'a Range<usize>>,
) -> Option<ByteRanges> {
    let mut offsets = vec![0];
    for word in words {
        offsets.push(offsets[offsets.len() - 1] + word.len());
    }
    let mut ranges = ByteRanges::new();
    let mut previous_end = 0;
    for range in changed.filter(|range| !range.is_empty()) {
        let between = &words[previous_end..range.start];
        let end = offsets[range.end];
        match ranges.last_mut() {
            Some(last) if between.iter().all(|word| is_blank(word)) => last.end = end,
            _ => ranges.push(offsets[range.start]..end),
        }
        previous_end = range.end;
    }
    let changed: usize = ranges.iter().map(Range::len).sum();
    (changed * 100 <= offsets[words.len()] * MAX_EMPHASIS_PERCENT).then_some(ranges)
}
