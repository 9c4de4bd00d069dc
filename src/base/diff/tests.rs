//! Tests of comparisons: against `patch` and `diff` of this machine, and of properties.

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::skip::skip_missing_tool;

/// Formats the lines with the emphasis in braces, and `$` for a missing LF.
fn format_diff(old: &[u8], new: &[u8]) -> String {
    let show = |line: &DiffLine| {
        let mut text = line.text.clone();
        for range in line.emphasis.iter().rev() {
            text.insert(range.end, b'}');
            text.insert(range.start, b'{');
        }
        let sign = [' ', '-', '+'][line.op as usize];
        let end = if line.is_newline_missing { "$" } else { "" };
        format!("{sign}{}{end}\n", text.escape_ascii())
    };
    compare_lines(old, new, None)
        .lines
        .iter()
        .map(show)
        .collect()
}

#[test]
fn diff_shows_lines_and_line_endings() {
    let replaced = " a\n-b\n-c\n+x\n d\n";
    assert_eq!(format_diff(b"a\nb\nc\nd\n", b"a\nx\nd\n"), replaced);
    assert_eq!(count_changes(b"a\nb\nc\nd\n", b"a\nx\nd\n", None), (1, 2));
    assert_eq!(format_diff(b"", b"\n"), "+\n");
    assert_eq!(format_diff(b"a\nb", b"a\nb\n"), " a\n-b$\n+b\n");
    assert_eq!(format_diff(b"abc\n", b"abc\r\n"), "-abc\n+abc{\\r}\n");
    let odd = "-ten bytes \\xff{\\xfe}$\n+ten bytes \\xff{x}$\n";
    assert_eq!(format_diff(b"ten bytes \xFF\xFE", b"ten bytes \xFFx"), odd);
}

#[test]
fn changed_words_are_emphasized_in_matched_line() {
    let old = "- Ask before running any destructive command.\n";
    let new = "- Approval is implied when CI is green.
- Ask before running a truly destructive command.\n";
    let expected = "-- Ask before running {any} destructive command.
+- Approval is implied when CI is green.
+- Ask before running {a truly} destructive command.\n";
    assert_eq!(format_diff(old.as_bytes(), new.as_bytes()), expected);
    assert_eq!(
        format_diff(b"all else\n", b"no thing\n"),
        "-all else\n+no thing\n"
    );
}

fn numbered_lines(but: &[usize]) -> String {
    let numbers = (0..40).filter(|n| !but.contains(n));
    numbers.map(|n| format!("{n}\n")).collect()
}

#[test]
fn hunks_merge_when_their_context_would_touch() {
    let (old, new) = (numbered_lines(&[]), numbered_lines(&[3, 10, 18, 19]));
    let diff = compare_lines(old.as_bytes(), new.as_bytes(), None);
    let hunks = |context| -> Vec<_> {
        let hunks = diff.hunks(context).into_iter();
        hunks
            .map(|hunk| (hunk.line_range, hunk.changed_range))
            .collect()
    };
    assert_eq!(hunks(3), [(0..14, 3..11), (15..23, 18..20)]);
    assert_eq!(hunks(0).len(), 3);
    assert_eq!(hunks(usize::MAX), [(0..40, 3..20)]);
}

#[test]
fn file_names_cannot_forge_diff_lines() {
    let out = compare_lines(b"", b"x\n", None).to_unified("a\n+++ b", "c d", 3);
    let expected = "--- \"a\\012+++ b\"\n+++ c d\t\n@@ -0,0 +1 @@\n+x\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn unified_format_equals_diff_output() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let (all, few) = (numbered_lines(&[]), numbered_lines(&[0, 7, 15, 16, 25, 39]));
    for (old, new) in [("x", ""), ("x", "x\n"), (&all, &few), (&few, &all)] {
        fs::write(&a, old).unwrap();
        fs::write(&b, new).unwrap();
        for context in [0, 1, 3] {
            let mut diff = Command::new("diff");
            diff.args(["--label=a", "--label=b", &format!("-U{context}")]);
            let Ok(expected) = diff.args([&a, &b]).output() else {
                return skip_missing_tool("diff");
            };
            let ours =
                compare_lines(old.as_bytes(), new.as_bytes(), None).to_unified("a", "b", context);
            assert!(ours == expected.stdout, "{old:?} {new:?} {context}");
        }
    }
}

/// Generates two texts that have lines and words in common.
fn related_texts() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let part = (
        "[ab é漢\r\n\n\0+\\\\\u{301}-]{0,9}",
        "\n?",
        prop::collection::vec(any::<u8>(), 0..2),
    )
        .prop_map(|(text, end, bytes)| [text.as_bytes(), &bytes, end.as_bytes()].concat());
    let parts = prop::collection::vec((part.clone(), part, 0..4), 0..9);
    parts.prop_map(|parts| {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for (part, other, kind) in parts {
            old.extend_from_slice(&part);
            new.extend_from_slice(if kind == 0 { &other } else { &part });
        }
        (old, new)
    })
}

/// Rebuilds one of the two texts from the lines.
fn rebuild(diff: &Diff, without: LineOp, number: fn(&DiffLine) -> Option<usize>) -> Vec<u8> {
    let mut text = Vec::new();
    let lines = diff.lines.iter().filter(|line| line.op != without);
    for (line, at) in lines.zip(1..) {
        assert_eq!(number(line), Some(at));
        text.extend_from_slice(&line.text);
        text.extend_from_slice(if line.is_newline_missing { b"" } else { b"\n" });
    }
    text
}

fn assert_rebuilds(old: &[u8], new: &[u8], deadline: Option<Instant>) {
    let diff = compare_lines(old, new, deadline);
    assert_eq!(rebuild(&diff, LineOp::Insert, |line| line.old_number), old);
    assert_eq!(rebuild(&diff, LineOp::Delete, |line| line.new_number), new);
    assert_eq!(diff.is_empty(), old == new);
    assert_eq!(
        (diff.added, diff.removed),
        count_changes(old, new, deadline)
    );
    let mut ops = diff.lines.windows(2).map(|pair| (pair[0].op, pair[1].op));
    assert!(ops.all(|pair| pair != (LineOp::Insert, LineOp::Delete)));
    for line in &diff.lines {
        let mut last = None;
        for range in &line.emphasis {
            assert!(last < Some(range.start) && range.start < range.end);
            last = Some(range.end);
            if let Ok(text) = str::from_utf8(&line.text) {
                assert!(text.get(range.clone()).is_some());
            }
        }
        assert!(last <= Some(line.text.len()));
    }
}

proptest! {
    #[test]
    fn both_texts_can_be_rebuilt_from_diff((old, new) in related_texts()) {
        assert_rebuilds(&old, &new, None);
        assert_rebuilds(&old, &new, Some(Instant::now()));
    }
}

#[test]
fn expired_deadline_gives_coarse_but_correct_diff() {
    let line = |n: usize, step| format!("{} {}\n", n * step % 977, n % 7);
    let text = |step| (0..20_000).map(|n| line(n, step)).collect::<String>();
    let (old, new) = (text(31), text(57));
    assert_rebuilds(old.as_bytes(), new.as_bytes(), Some(Instant::now()));
}

#[test]
fn text_with_too_many_lines_is_counted() {
    let lines = |count: usize| "a\n".repeat(count);
    let too_many = lines(MAX_COMPARED_LINES);
    let old = format!("first\n{too_many}last\n");
    let new = format!("first\n{too_many}b\nlast\n");
    let diff = compare_lines(old.as_bytes(), new.as_bytes(), None);
    assert!(diff.is_too_large && !diff.is_empty() && diff.lines.is_empty());
    assert_eq!((diff.added, diff.removed), (1, 0));
    assert_eq!(count_changes(old.as_bytes(), new.as_bytes(), None), (1, 0));
    let unified = String::from_utf8(diff.to_unified("a", "b", 3)).unwrap();
    let why = "too large to show line by line: +1 -0 lines";
    assert_eq!(unified, format!("Files a and b differ, {why}\n"));
    let same = compare_lines(old.as_bytes(), old.as_bytes(), None);
    assert!(same.is_empty() && !same.is_too_large);
    let added = compare_lines(b"", too_many.as_bytes(), None);
    assert!(!added.is_too_large, "just few enough");
    // The end of a line is not a common line.
    let texts = [format!("{too_many}xb\n"), format!("{too_many}yb\n")];
    let diff = compare_lines(texts[0].as_bytes(), texts[1].as_bytes(), None);
    assert_eq!((diff.added, diff.removed), (1, 1));
    let shrunk = compare_lines(old.as_bytes(), b"first\n", None);
    assert_eq!((shrunk.added, shrunk.removed), (0, MAX_COMPARED_LINES + 1));
}

#[test]
fn patch_accepts_the_unified_format() {
    if Command::new("patch").arg("--version").output().is_err() {
        return skip_missing_tool("patch");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(40));
    let result = runner.run(&(related_texts(), 0..4usize), |((old, new), context)| {
        let diff = compare_lines(&old, &new, None).to_unified("a", "b", context);
        fs::write(path("a"), &old).unwrap();
        fs::write(path("diff"), &diff).unwrap();
        let mut patch = Command::new("patch");
        patch.args(["--batch", "--binary", "--output"]);
        patch
            .args([path("b"), path("a"), path("diff")])
            .output()
            .unwrap();
        if diff.is_empty() {
            prop_assert_eq!(old, new);
        } else {
            prop_assert_eq!(fs::read(path("b")).unwrap(), new);
        }
        Ok(())
    });
    result.unwrap();
}
