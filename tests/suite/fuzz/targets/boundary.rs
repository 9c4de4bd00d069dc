//! The boundary between the operator's part of a memory and scratch.

use std::sync::Arc;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::boundary::{self, Baseline, Boundary, BoundaryRule, SeparatorLines};

use super::{PART_SEPARATOR, input_part};

/// Fuzzes the boundary. Parts: separator, baseline, memory, earlier versions. A memory
/// that begins with `=` is the baseline's operator part and the rest, with `<` the
/// first earlier version's, with `~` the baseline without the line of that number; any
/// other memory is taken verbatim.
pub fn boundary(bytes: &[u8]) {
    let separator = String::from_utf8_lossy(input_part(bytes, 0));
    let separator = separator.trim_matches(|c: char| c.is_ascii_whitespace() || c.is_control());
    let separator = if separator.is_empty() {
        "---"
    } else {
        separator
    };
    let current = Baseline::new(input_part(bytes, 1).to_vec(), separator);
    let earlier = bytes.split(|byte| *byte == PART_SEPARATOR).skip(3).take(3);
    let earlier: Vec<Arc<Baseline>> = earlier
        .map(|version| Arc::new(Baseline::new(version.to_vec(), separator)))
        .collect();
    let first = earlier.first().map_or(&current, Arc::as_ref);
    let (memory, base) = memory_and_base(input_part(bytes, 2), &current, first);
    assert_baseline_split(&current, separator);
    assert_separators(&memory, separator.as_bytes());
    let found = boundary::find_boundary(&memory, &current, &earlier);
    if let Some(base) = base {
        assert_base_is_found(found.as_ref(), &memory, base, &current);
    }
    let Some(found) = found else {
        assert!(
            first.separator_line().is_some(),
            "a part of it is below the boundary"
        );
        return;
    };
    let mut versions = std::iter::once(&current).chain(earlier.iter().map(Arc::as_ref));
    let version = match found.rule {
        BoundaryRule::Intact => &current,
        BoundaryRule::Behind(digest) | BoundaryRule::Aligned(digest) => versions
            .find(|version| version.digest() == digest)
            .expect("a version outside the input"),
    };
    assert_boundary_is_at_separator(&found, &memory, version, separator);
    if found.is_drifted() {
        assert_eq!(
            version.digest(),
            first.digest(),
            "not the last pushed version"
        );
        return;
    }
    assert_eq!((found.added_lines, found.removed_lines), (0, 0));
    if let Some(cut) = version.separator_line() {
        // The operator part, except for whitespace after the separator.
        let above = &version.bytes()[..cut.start];
        let own = without_line_ends(&memory[..found.offset]);
        assert!(own.starts_with(&without_line_ends(above)));
        assert_eq!(own.last(), Some(&separator.as_bytes()));
        assert_boundary_ignores_length(&found, &memory, &current, &earlier);
    }
}

/// Returns the memory that a part describes, and the version that it begins with.
fn memory_and_base<'a>(
    part: &[u8],
    current: &'a Baseline,
    first: &'a Baseline,
) -> (Vec<u8>, Option<&'a Baseline>) {
    match part {
        [b'=', rest @ ..] => ([current.operator_part(), rest].concat(), Some(current)),
        [b'<', rest @ ..] => ([first.operator_part(), rest].concat(), Some(first)),
        [b'~', number, rest @ ..] => {
            let lines = current.bytes().split_inclusive(|byte| *byte == b'\n');
            let kept = lines
                .enumerate()
                .filter(|(at, _)| at % 16 != usize::from(*number) % 16);
            let kept: Vec<&[u8]> = kept.map(|(_, line)| line).collect();
            ([&kept.concat(), rest].concat(), None)
        }
        bytes => (bytes.to_vec(), None),
    }
}

/// Asserts that a memory that begins with `base` is not drifted.
fn assert_base_is_found(
    found: Option<&Boundary>,
    memory: &[u8],
    base: &Baseline,
    current: &Baseline,
) {
    let part = base.operator_part();
    // A last line without line feed continues in the bytes that follow.
    if !(part.ends_with(b"\n") || memory == part) {
        return;
    }
    let found = found.unwrap();
    assert!(!found.is_drifted());
    // An earlier version may have a longer operator part, or equal all of the memory.
    assert!(found.offset >= part.len());
    if base.digest() == current.digest() && found.rule == BoundaryRule::Intact {
        assert_eq!(found.offset, part.len());
    }
}

/// Asserts that the boundary is behind a separator line, or at the end where `version` has none.
fn assert_boundary_is_at_separator(
    found: &Boundary,
    memory: &[u8],
    version: &Baseline,
    separator: &str,
) {
    let (above, below) = memory.split_at(found.offset);
    assert!(above.is_empty() || above.ends_with(b"\n") || below.is_empty());
    if version.separator_line().is_none() {
        assert_eq!((found.line, found.separator_count), (0, 0));
        if found.is_drifted() {
            assert_eq!(found.offset, memory.len());
        } else {
            assert_eq!(without_line_ends(above), without_line_ends(version.bytes()));
        }
        return;
    }
    let lines = SeparatorLines::find(memory, separator.as_bytes());
    match lines.eligible.iter().find(|line| line.line == found.line) {
        Some(line) => assert_eq!(line.end, found.offset),
        // Text below an intact boundary can make front matter of what is above it.
        None => assert!(!found.is_drifted()),
    }
    assert!(
        (1..=found.separator_count).contains(&found.separator_number)
            && found.separator_count <= lines.eligible.len() + 1
    );
}

/// Returns the lines of a text, without the whitespace at their ends.
fn without_line_ends(text: &[u8]) -> Vec<&[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .collect()
}

/// Asserts that the boundary does not depend on the length of the bytes that follow, given a
/// beginning several times as long as the baselines; unless all of it is whitespace after the
/// separator, in which case no match counts as exact.
fn assert_boundary_ignores_length(
    found: &Boundary,
    memory: &[u8],
    current: &Baseline,
    earlier: &[Arc<Baseline>],
) {
    let versions = std::iter::once(current).chain(earlier.iter().map(Arc::as_ref));
    let longest = versions.map(|version| version.bytes().len()).max();
    let window = longest.unwrap_or_default() * 4 + 1;
    let longer = [memory, &b"\n- more"[..].repeat(window)[..window]].concat();
    let place = |memory: &[u8]| {
        let found = boundary::find_boundary(memory, current, earlier).unwrap();
        (found.offset, found.line, found.rule)
    };
    if found.offset < window {
        assert_eq!(place(&longer[..window]), place(&longer));
    }
}

fn assert_baseline_split(baseline: &Baseline, separator: &str) {
    let whole = [baseline.operator_part(), baseline.tail()].concat();
    assert_eq!(whole, baseline.bytes());
    assert_eq!(baseline.digest(), Digest::of(&whole));
    let lines = SeparatorLines::find(baseline.bytes(), separator.as_bytes());
    assert_eq!(baseline.separator_line(), lines.eligible.last().copied());
}

/// Compares the separator lines with a plain reading; they stay the same while the text
/// above them does.
fn assert_separators(text: &[u8], separator: &[u8]) {
    let found = SeparatorLines::find(text, separator);
    let mut plain = Vec::new();
    let mut start = 0;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let end = (start + line.len() + 1).min(text.len());
        if start < text.len() && line.trim_ascii_end() == separator {
            plain.push(number + 1);
        }
        start = end;
    }
    for line in &found.eligible {
        assert_eq!(text[line.start..line.end].trim_ascii_end(), separator);
    }
    let eligible = found.eligible.iter().map(|it| it.line);
    let excluded = found.excluded.iter().map(|it| it.line);
    let mut lines: Vec<usize> = eligible.chain(excluded).collect();
    lines.sort_unstable();
    assert_eq!(lines, plain);
    let found = found.eligible;
    let front_matter = text.starts_with(b"---") || text.starts_with(b"\xEF\xBB\xBF---");
    if let Some(middle) = found.get(found.len() / 2).filter(|_| !front_matter) {
        let before = SeparatorLines::find(&text[..middle.end], separator).eligible;
        assert_eq!(before, found[..before.len()]);
    }
}
