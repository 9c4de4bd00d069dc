use proptest::prelude::*;

use std::sync::Arc;

use super::*;

const BASELINE: &str = "# Scout\n\nI am Scout.\n\n## Rules\n- Never delete.\n- Ask first.\n\n---\n";

fn baseline_of(text: &str) -> Baseline {
    Baseline::new(text.as_bytes().to_vec(), "---")
}

fn boundary_of(memory: &[u8], text: &str) -> Option<Boundary> {
    find_boundary(memory, &baseline_of(text), &[])
}

/// Returns the lines of `text` that rule 1 accepts as a boundary.
fn eligible_lines(text: &str) -> Vec<usize> {
    let lines = SeparatorLines::find(text.as_bytes(), b"---").eligible;
    lines.iter().map(|line| line.line).collect()
}

proptest! {
    #[test]
    fn separators_are_those_of_a_whole_scan(
        lines in prop::collection::vec("(---|--- |----|-- -|=---|\\|---\\||a|```|- i|)(\r)?", 0..12),
        separator in "(---|\\|---\\||a|-|)",
        ends in any::<bool>(),
    ) {
        let text = lines.join("\n") + if ends { "\n" } else { "" };
        let (text, separator) = (text.as_bytes(), separator.as_bytes());
        let scanned = SeparatorLines::among(scan_lines(text), text, separator);
        let count = scanned.eligible.len() + scanned.excluded.len();
        prop_assert_eq!(SeparatorLines::find(text, separator), scanned);
        prop_assert_eq!(has_one_separator(text, separator), count == 1);
    }
}

#[test]
fn each_line_has_the_kind_of_its_block() {
    let text = "---\na: b\n---\n# T\nx\n---\n- i\n> q\n\n```\nc\n```\n<!-- a\nb -->\n\n    code\n\n| a |\n|---|\n| 1 |\n\n***\n";
    let kinds: Vec<LineKind> = scan_lines(text.as_bytes()).map(|it| it.kind).collect();
    use LineKind::*;
    let expected = [
        FrontMatter,
        FrontMatter,
        FrontMatter,
        Heading,
        Text,
        SetextUnderline,
        ListItem,
        Quote,
        Blank,
        FenceStart,
        Fenced,
        Fenced,
        Html,
        Comment,
        Blank,
        IndentedCode,
        Blank,
        Text,
        TableRow,
        TableRow,
        Blank,
        ThematicBreak,
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn unclosed_fence_is_found_at_its_start() {
    let line = |text: &str| unclosed_fence_line(text.as_bytes());
    assert_eq!(line("a\n```\nb\n```\n"), None);
    assert_eq!(line("a\n```\nb\n```\n~~~\nc\n\n---\n"), Some(5));
    assert_eq!(line("- ```\n  a\n"), Some(1));
    assert_eq!(line("- ```\n  a\nb\n"), None, "the margin ends it");
}

#[test]
fn dashes_separate_only_as_thematic_break() {
    let cases: &[(&str, &str, &[usize])] = &[
        ("alone", "text\n\n---\n", &[3]),
        ("trailing whitespace", "a\n\n---  \t\r\n", &[3]),
        ("no final newline", "a\n\n---", &[3]),
        ("indented is another line", "a\n\n ---\n", &[]),
        ("setext underline", "Title\n---\n", &[]),
        ("second line of a paragraph", "a\nb\n---\n", &[]),
        ("below a heading", "# a\n---\n", &[2]),
        ("below a list item", "- a\n---\n", &[2]),
        ("below a continued list item", "- a\n  b\n---\n", &[3]),
        ("below a lazy line of an item", "- a\nb\n---\n", &[3]),
        ("below the second numbered item", "1. a\n2. b\n---\n", &[3]),
        ("below a quotation", "> a\n---\n", &[2]),
        ("below text after a list", "- a\n\nb\n---\n", &[]),
        ("below a paragraph of an item", "- a\n\n  b\n---\n", &[4]),
        ("in a fence", "```\n---\n```\n\n---\n", &[5]),
        ("in a tilde fence", "~~~ yaml\n---\n~~~\n", &[]),
        (
            "in a fence of an item",
            "- a\n  ```\n  x\n  ```\n---\n",
            &[5],
        ),
        (
            "item's fence ended by the margin",
            "- a\n  ```\n  x\n---\n",
            &[4],
        ),
        ("in an open fence", "```\n---\n", &[]),
        (
            "shorter fence does not close",
            "````\n```\n---\n````\n---\n",
            &[5],
        ),
        ("front matter", "---\ntitle: x\n---\n\n---\n", &[5]),
        ("front matter, dots", "---\ntitle: x\n...\n\n---\n", &[5]),
        ("not front matter: blank line", "---\n\nx\n\n---\n", &[5]),
        ("not front matter: never closed", "---\nx\n", &[]),
        ("front matter below a blank line", "\n---\na: b\n---\n", &[]),
        ("nothing above but others", "\n---\n---\n\na\n\n---\n", &[7]),
        ("in a comment", "<!--\n---\n-->\n\n---\n", &[5]),
        ("in an open comment", "a\n\n<!-- b\n\n---\n", &[]),
        (
            "below a link definition",
            "[a]: https://example.org\n---\n",
            &[2],
        ),
        ("below a comment", "<!-- a -->\n---\n", &[2]),
        (
            "below text after a comment that ends a list",
            "- a\n<!-- b -->\n  c\n---\n",
            &[],
        ),
        ("below a block of HTML", "<div>\n</div>\n---\n", &[3]),
        ("below indented code", "    code\n---\n", &[2]),
        ("below a rule", "***\n---\n", &[2]),
        (
            "below a table",
            "| a | b |\n|---|---|\n| 1 | 2 |\n---\n",
            &[4],
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(eligible_lines(text), *expected, "{name}: {text:?}");
    }
}

#[test]
fn separator_is_not_found_inside_table() {
    let text = b"| a |\n|---|\n| 1 |\n\n|---|\n";
    let found = SeparatorLines::find(text, b"|---|");
    let row = ExcludedLine {
        line: 2,
        exclusion: SeparatorExclusion::TableRow,
    };
    assert_eq!(found.excluded, [row]);
    let lines: Vec<usize> = found.eligible.iter().map(|it| it.line).collect();
    assert_eq!(lines, [5]);
}

#[test]
fn separator_is_compared_literally() {
    let count = |separator: &[u8]| {
        let text = b"abc\n\n.*\n\n***\n";
        SeparatorLines::find(text, separator).eligible.len()
    };
    assert_eq!(count(b".*"), 1);
    assert_eq!(count(b"***"), 1);
    assert_eq!(count(b"..."), 0);
}

#[test]
fn line_ends_alone_are_no_drift() {
    let lf = format!("{BASELINE}## Notes\n");
    let cr_lf = lf.replace('\n', "\r\n");
    let mixed = lf.replacen('\n', "\r\n", 3);
    for (text, memory) in [
        (&lf, &cr_lf),
        (&cr_lf, &lf),
        (&lf, &mixed),
        (&mixed, &cr_lf),
    ] {
        let baseline = baseline_of(text);
        assert!(baseline.equals_apart_from_line_ends(memory.as_bytes()));
        let noted = format!("{memory}- note\n");
        let found = find_boundary(noted.as_bytes(), &baseline, &[]).unwrap();
        assert_eq!(found.rule, BoundaryRule::Intact);
        let below = &noted[found.offset..];
        let tail = baseline.unchanged_tail_length(below.as_bytes()).unwrap();
        assert_eq!(&below[tail..], "- note\n");
    }
    // A carriage return elsewhere is text.
    let other = lf.replace("delete.", "delete.\r\r");
    assert!(boundary_of(other.as_bytes(), &lf).unwrap().is_drifted());
}

#[test]
fn drift_with_other_line_ends_counts_edited_lines() {
    let memory = BASELINE
        .replace("- Ask first.", "- Ask never.")
        .replace('\n', "\r\n");
    let found = boundary_of(memory.as_bytes(), BASELINE).unwrap();
    assert!(found.is_drifted());
    assert_eq!(
        (found.line, found.added_lines, found.removed_lines),
        (9, 1, 1)
    );
    let old = with_line_ends_of(BASELINE.as_bytes(), memory.as_bytes());
    assert_eq!(*old, *BASELINE.replace('\n', "\r\n").as_bytes());
}

#[test]
fn version_with_other_line_ends_is_not_behind() {
    let current = baseline_of(&BASELINE.replace('\n', "\r\n"));
    let pushed = Arc::new(baseline_of(BASELINE));
    let found = find_boundary(BASELINE.as_bytes(), &current, &[pushed]).unwrap();
    assert_eq!(found.rule, BoundaryRule::Intact);
}

#[test]
fn line_ends_are_taken_from_the_model() {
    let convert = |text: &str, model: &str| {
        let converted = with_line_ends_of(text.as_bytes(), model.as_bytes());
        String::from_utf8(converted.into_owned()).unwrap()
    };
    assert_eq!(convert("a\nb\nc", "a\r\nb\nc\n"), "a\r\nb\nc");
    assert_eq!(convert("a\r\nb\r\n", "a\nx\n"), "a\nb\n");
    assert_eq!(convert("a\nb\nc\n", "a\r\nx\r\nc\r\n"), "a\r\nb\r\nc\r\n");
    assert_eq!(convert("a\nb\n", ""), "a\nb\n");
    assert_eq!(convert("a\nb\r\nc\n", "x\nb\r\nc\n"), "a\nb\r\nc\n");
}

#[test]
fn operator_part_ends_with_last_separator() {
    let cut = |text: &str| {
        let baseline = baseline_of(text);
        let part = baseline.operator_part().to_vec();
        (part.len(), baseline.tail().len())
    };
    assert_eq!(cut("a\n\n---\n"), (7, 0));
    assert_eq!(cut("a\n\n---\n## Scratch\n"), (7, 11));
    assert_eq!(cut("a\n\n---\n\nb\n\n---\ntail"), (15, 4));
    // None is eligible.
    assert_eq!(cut("---\nname: a\n---\nrule\n"), (21, 0));
    assert_eq!(cut("Notes\n---\nrule\n"), (15, 0));
    assert_eq!(cut("```\n---\n```\nrule\n"), (17, 0));
    assert_eq!(cut("<!--\n---\n-->\nrule\n"), (18, 0));
    assert_eq!(cut("---\nrule\n"), (9, 0));
    assert_eq!(cut("no separator\n"), (13, 0));
    assert_eq!(cut(""), (0, 0));
}

#[test]
fn intact_memory_has_boundary_after_operator_part() {
    let memory = format!("{BASELINE}- a note\n\n---\n- another\n");
    let found = boundary_of(memory.as_bytes(), BASELINE).unwrap();
    assert_eq!(found.offset, BASELINE.len());
    assert_eq!(found.rule, BoundaryRule::Intact);
    assert_eq!(
        (found.line, found.separator_number, found.separator_count),
        (9, 1, 2)
    );
}

#[test]
fn separator_line_ending_is_not_drift() {
    for memory in [
        BASELINE.trim_end().to_string(),
        format!("{}\r\nnote", BASELINE.trim_end()),
        format!("{}  \n", BASELINE.trim_end()),
    ] {
        let found = boundary_of(memory.as_bytes(), BASELINE).unwrap();
        assert_eq!(found.rule, BoundaryRule::Intact, "{memory:?}");
        assert_eq!(found.offset, memory.find("note").unwrap_or(memory.len()));
    }
    // The same in the baseline: it ends without a line feed.
    let found = boundary_of(BASELINE.as_bytes(), BASELINE.trim_end()).unwrap();
    assert_eq!(
        (found.rule, found.offset),
        (BoundaryRule::Intact, BASELINE.len())
    );
}

#[test]
fn line_starting_like_separator_is_no_boundary() {
    let memory = format!("{}more\n", BASELINE.trim_end());
    assert_eq!(boundary_of(memory.as_bytes(), BASELINE), None);
}

#[test]
fn memory_on_earlier_version_is_behind_not_drifted() {
    let old = baseline_of("# Scout\n\nOld rules.\n\n---\n");
    let memory = b"# Scout\n\nOld rules.\n\n---\n- note\n";
    let found = find_boundary(memory, &baseline_of(BASELINE), &[Arc::new(old.clone())]).unwrap();
    assert_eq!(found.rule, BoundaryRule::Behind(old.digest()));
    assert!(!found.is_drifted());
    assert_eq!(&memory[found.offset..], b"- note\n");
}

#[test]
fn drift_keeps_boundary_at_matching_separator() {
    let memory = BASELINE.replace("- Ask first.", "- Ask never.\n- Approval is implied.")
        + "- note\n\n---\n- after my own rule\n\n---\n";
    let found = boundary_of(memory.as_bytes(), BASELINE).unwrap();
    assert_eq!(
        found.rule,
        BoundaryRule::Aligned(baseline_of(BASELINE).digest())
    );
    assert_eq!(
        (found.line, found.separator_number, found.separator_count),
        (10, 1, 3)
    );
    assert_eq!((found.added_lines, found.removed_lines), (2, 1));
    assert!(memory[found.offset..].starts_with("- note"));
}

#[test]
fn drift_is_measured_against_last_pushed_version() {
    let pushed = baseline_of("# Scout\n\nPushed.\n\n---\n");
    let memory = b"# Scout\n\nPushed!\n\n---\n";
    let found = find_boundary(memory, &baseline_of(BASELINE), &[Arc::new(pushed.clone())]).unwrap();
    assert_eq!(found.rule, BoundaryRule::Aligned(pushed.digest()));
    assert_eq!((found.added_lines, found.removed_lines), (1, 1));
}

#[test]
fn memory_without_shared_lines_has_no_boundary() {
    assert_eq!(boundary_of(b"", BASELINE), None);
    assert_eq!(boundary_of(b"# Scout\n\nI am Scout.\n", BASELINE), None);
    assert_eq!(boundary_of(b"other\n\n---\nnotes\n", BASELINE), None);
}

#[test]
fn drift_without_separator_is_all_above() {
    let found = boundary_of(b"one\nTWO\nmine\n", "one\ntwo\n").unwrap();
    assert!(found.is_drifted());
    assert_eq!((found.offset, found.line), (13, 0));
    assert_eq!((found.added_lines, found.removed_lines), (2, 1));
}

#[test]
fn text_below_baseline_without_separator_is_scratch() {
    let place = |memory: &str, baseline: &str| {
        let found = boundary_of(memory.as_bytes(), baseline).unwrap();
        assert_eq!((found.line, found.separator_count), (0, 0));
        (found.rule == BoundaryRule::Intact).then_some(found.offset)
    };
    assert_eq!(place("one\ntwo\n", "one\ntwo\n"), Some(8));
    assert_eq!(place("one\ntwo\nmine", "one\ntwo\n"), Some(8));
    // The baseline ends without a line feed, which the agent added.
    assert_eq!(place("one\ntwo", "one\ntwo"), Some(7));
    assert_eq!(place("one\ntwo\nmine", "one\ntwo"), Some(8));
    assert_eq!(place("one\ntwo\r\nmine", "one\ntwo"), Some(9));
    // A rule that goes on is another rule.
    assert_eq!(place("one\ntwo, unless I know better\n", "one\ntwo"), None);
    assert_eq!(place("one\ntwo\rmine\n", "one\ntwo"), None);
}

#[test]
fn rules_removed_from_the_end_are_no_scratch() {
    let versions = [
        ("one\n", "one\ntwo\n"),
        ("one\n\n---\n", "one\n\n---\ntwo\n\n---\n"),
    ];
    for (current, old) in versions {
        let old = baseline_of(old);
        let memory = [old.bytes(), b"mine\n"].concat();
        let known = [Arc::new(old.clone())];
        let found = find_boundary(&memory, &baseline_of(current), &known).unwrap();
        assert_eq!(found.rule, BoundaryRule::Behind(old.digest()));
        assert_eq!(&memory[found.offset..], b"mine\n");
        // In an agent that never had the old version it is a note.
        let found = find_boundary(&memory, &baseline_of(current), &[]).unwrap();
        assert_eq!(found.rule, BoundaryRule::Intact);
    }
}

#[test]
fn earlier_version_with_another_tail_is_behind() {
    let old = baseline_of(&format!("{BASELINE}## Notes\n"));
    let current = baseline_of(BASELINE);
    let known = [Arc::new(old.clone())];
    let rule = |memory: &[u8]| find_boundary(memory, &current, &known).unwrap().rule;
    assert_eq!(rule(old.bytes()), BoundaryRule::Behind(old.digest()));
    assert_eq!(rule(current.bytes()), BoundaryRule::Intact);
    // The rules are the current ones; what stands below them is the agent's.
    let noted = [old.bytes(), b"- note\n"].concat();
    assert_eq!(rule(&noted), BoundaryRule::Intact);
}

#[test]
fn non_text_bytes_are_compared_verbatim() {
    let text = b"\xff\x00rule\r\n\r\n---\r\n";
    let baseline = Baseline::new(text.to_vec(), "---");
    let memory = [text.as_slice(), b"\x00\xfe\nno newline"].concat();
    let found = find_boundary(&memory, &baseline, &[]).unwrap();
    assert_eq!(found.rule, BoundaryRule::Intact);
    assert_eq!(&memory[found.offset..], b"\x00\xfe\nno newline");
}

/// Fifty megabytes of the lines that are most expensive to search. The assertion is that the search
/// ends within the test run; quadratic code would take hours.
#[test]
fn boundary_search_is_linear() {
    let drifted = BASELINE.replace("Never", "Always");
    let mut memory = drifted.into_bytes();
    while memory.len() < 50 << 20 {
        memory.extend_from_slice(b"- Ask first.\n---\n|-|\n```\n```\n");
    }
    let found = find_boundary(&memory, &baseline_of(BASELINE), &[]).unwrap();
    assert_eq!((found.line, found.separator_number), (9, 1));
}

#[test]
fn changed_line_of_large_baseline_is_counted_once() {
    let lines: Vec<String> = (0..20_000).map(|n| format!("rule {n}\n")).collect();
    let baseline = baseline_of(&(lines.concat() + "\n---\n"));
    for changed in [0, 10_000, 19_999] {
        let mut memory = lines.clone();
        memory[changed] = "changed\n".to_string();
        let memory = memory.concat() + "\n---\na note\n";
        let found = find_boundary(memory.as_bytes(), &baseline, &[]).unwrap();
        assert_eq!((found.added_lines, found.removed_lines), (1, 1));
        assert_eq!(&memory[found.offset..], "a note\n");
    }
}

/// Length of the longest common subsequence, by its definition.
fn common_length(old: &[&str], new: &[&str]) -> usize {
    match (old, new) {
        ([], _) | (_, []) => 0,
        ([a, old @ ..], [b, new @ ..]) if a == b => 1 + common_length(old, new),
        ([_, old_rest @ ..], [_, new_rest @ ..]) => {
            common_length(old_rest, new).max(common_length(old, new_rest))
        }
    }
}

/// Lines that exercise every block rule of the scanner.
fn block_line() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "",
        "---",
        "---",
        "text",
        "# head",
        "- item",
        "  more",
        "1. one",
        "2. two",
        "> quote",
        "```",
        "~~~",
        "***",
        "===",
        "<!-- a",
        "-->",
        "<!-- a -->",
    ])
}

proptest! {
    /// The scanner agrees with an independent reading of CommonMark about
    /// which lines of dashes at the margin are thematic breaks.
    #[test]
    fn eligible_separators_are_thematic_breaks(lines in prop::collection::vec(block_line(), 0..14)) {
        use pulldown_cmark::{Event, Options, Parser};
        let text = lines.join("\n") + "\n";
        let mut lines = scan_lines(text.as_bytes());
        prop_assume!(lines.all(|line| line.kind != LineKind::FrontMatter));
        let mut rules = Vec::new();
        for (event, range) in Parser::new_ext(&text, Options::empty()).into_offset_iter() {
            let source = text[range.clone()].trim_end();
            let is_text = |line: &str| !matches!(line, "" | "---");
            if event == Event::Rule && source == "---" && text[..range.start].lines().any(is_text) {
                rules.push(text[..range.start].matches('\n').count() + 1);
            }
        }
        prop_assert_eq!(eligible_lines(&text), rules, "{:?}", text);
    }

    /// Counts of changed lines follow the longest common subsequence.
    #[test]
    fn changed_lines_are_counted_exactly(
        old in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..7),
        new in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d"]), 0..7),
    ) {
        let text = |lines: &[&str]| lines.join("\n").into_bytes();
        let common = common_length(&old, &new);
        let expected = (new.len() - common, old.len() - common);
        prop_assert_eq!(count_changed_lines(&text(&old), &text(&new)), expected);
    }

    /// Both sides of any boundary together are the memory.
    #[test]
    fn both_sides_of_boundary_make_up_the_memory(
        memory in prop::collection::vec(any::<u8>(), 0..400),
        keep in 0..80usize,
        above in "(-{3}|[a-c\n`#]){0,20}",
    ) {
        let text = format!("{above}\n---\n");
        let mut bytes = text.as_bytes()[..keep.min(text.len())].to_vec();
        bytes.extend_from_slice(&memory);
        if let Some(found) = find_boundary(&bytes, &baseline_of(&text), &[]) {
            let (above, scratch) = bytes.split_at(found.offset);
            prop_assert_eq!([above, scratch].concat(), bytes.clone());
            prop_assert!(found.separator_number <= found.separator_count);
        }
    }

    /// A memory that begins with its baseline is never drifted, and its scratch is exactly the
    /// appended text.
    #[test]
    fn text_appended_to_baseline_is_its_scratch(
        above in "([a-c \n`#>-]){0,60}",
        scratch in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let text = format!("{above}\n\n---\n");
        let memory = [text.as_bytes(), &scratch].concat();
        let found = find_boundary(&memory, &baseline_of(&text), &[]).unwrap();
        prop_assert_eq!(found.rule, BoundaryRule::Intact);
        prop_assert_eq!(&memory[found.offset..], scratch.as_slice());
    }

    /// The same without a separator line.
    #[test]
    fn text_appended_without_separator_is_scratch(
        above in "([a-c \n`#>]){1,60}",
        scratch in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let text = format!("{above}\n");
        let memory = [text.as_bytes(), &scratch].concat();
        let found = find_boundary(&memory, &baseline_of(&text), &[]).unwrap();
        prop_assert_eq!(found.rule, BoundaryRule::Intact);
        prop_assert_eq!(&memory[found.offset..], scratch.as_slice());
    }
}
