use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::base::error::ErrorKind;
use crate::boundary::{BoundaryRule, find_boundary};

const OLD: &str = "# Rules\n- be kind\n\n---\n\n## Notes\n";
const NEW: &str = "# Rules\n- be kind\n- be exact\n\n---\n\n## Scratch\n";

fn baseline_of(text: &str) -> Baseline {
    Baseline::new(text.as_bytes().to_vec(), "---")
}

/// Returns what a push of `new` makes of a memory that holds `old`.
fn push(memory: &[u8], old: &str, new: &str, selection: &str) -> Result<Vec<u8>> {
    let (old, new) = (Arc::new(baseline_of(old)), baseline_of(new));
    let boundary = find_boundary(memory, &new, &[Arc::clone(&old)]);
    let version = if boundary.is_some_and(|it| it.rule == BoundaryRule::Intact) {
        &new
    } else {
        &*old
    };
    let divided = DividedMemory {
        prefix: memory,
        size: memory.len() as u64,
        lines: count_lines(memory) as u64,
        boundary,
        version: Some(version),
    };
    let content = select_scratch(&selection.parse().unwrap(), Some(&divided), &new)?;
    let scratch = match &content.scratch {
        KeptBytes::From(offset) => &memory[*offset as usize..],
        KeptBytes::Chosen(bytes) => bytes,
    };
    assert_eq!(scratch.len() as u64, content.summary.bytes);
    assert_eq!(count_lines(scratch) as u64, content.summary.lines);
    let pushed = [content.head.as_slice(), scratch].concat();
    assert_eq!(content.equals(&divided), pushed == memory);
    assert_eq!(content.size(), pushed.len() as u64);
    Ok(pushed)
}

#[track_caller]
fn assert_push(memory: &str, versions: [&str; 2], selection: &str, expected: &str) {
    let [old, new] = versions;
    let pushed = push(memory.as_bytes(), old, new, selection).unwrap();
    assert_eq!(String::from_utf8_lossy(&pushed), expected);
}

#[test]
fn selection_is_parsed_sorted_and_merged() {
    let parsed = |text: &str| text.parse::<ScratchSelection>().map(|it| it.to_string());
    for (text, expected) in [
        ("all", "all"),
        ("none", "none"),
        ("9,3-5", "3-5,9"),
        ("3,4,5-7, 9", "3-7,9"),
        ("3-5,4", "3-5"),
    ] {
        assert_eq!(parsed(text), Ok(expected.to_string()));
    }
    for wrong in [
        "",
        "0",
        "5-3",
        "x",
        "3-",
        "-3",
        "3..5",
        "3,,4",
        "99999999999999999999",
    ] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
    let many: Vec<String> = (0..=1000)
        .map(|number| (2 * number + 1).to_string())
        .collect();
    assert!(parsed(&many.join(",")).is_err());
    assert!(parsed(&many[1..].join(",")).is_ok());
}

#[test]
fn kept_scratch_follows_the_new_tail() {
    let notes = "- one\r\n\n- two";
    assert_push(
        &format!("{OLD}{notes}"),
        [OLD, NEW],
        "all",
        &format!("{NEW}{notes}"),
    );
    assert_push(&format!("{OLD}{notes}"), [OLD, NEW], "none", NEW);
    assert_push(OLD, [OLD, NEW], "all", NEW);
    // Lines 5 and 6 are the tail.
    assert_push(
        &format!("{OLD}{notes}"),
        [OLD, NEW],
        "7,9",
        &format!("{NEW}- one\r\n- two"),
    );
    assert_push(
        &format!("{OLD}{notes}"),
        [OLD, NEW],
        "5-7",
        &format!("{NEW}- one\r\n"),
    );
    assert_push(&format!("{OLD}{notes}"), [OLD, NEW], "6", NEW);
}

#[test]
fn changed_tail_is_kept_in_place_of_the_new() {
    let rules = "# Rules\n- be kind\n\n---\n";
    let mine = "## My notes\n- one\n";
    let new_rules = &NEW[..NEW.len() - "\n## Scratch\n".len()];
    assert_push(
        &format!("{rules}{mine}"),
        [OLD, NEW],
        "all",
        &format!("{new_rules}{mine}"),
    );
    assert_push(
        &format!("{rules}{mine}"),
        [OLD, NEW],
        "6",
        &format!("{NEW}- one\n"),
    );
    // A heading that the agent wrote itself is not doubled.
    let same = "\n## Scratch\n- one\n";
    assert_push(
        &format!("{rules}{same}"),
        [rules, NEW],
        "all",
        &format!("{new_rules}{same}"),
    );
    assert_push(
        &format!("{rules}{same}"),
        [rules, NEW],
        "5-7",
        &format!("{new_rules}{same}"),
    );
}

#[test]
fn missing_line_feeds_do_not_join_lines() {
    let (old, new) = ("# A\n\n---\n## Notes", "# B\n\n---\n## Notes");
    assert_push(
        "# A\n\n---\n## Notes\n- one\n",
        [old, new],
        "all",
        &format!("{new}\n- one\n"),
    );
    assert_push(
        "# A\n\n---\n## Notes\r\n- one",
        [old, new],
        "all",
        &format!("{new}\n- one"),
    );
    // The agent has continued the heading.
    assert_push(
        "# A\n\n---\n## Notes: one\n",
        [old, new],
        "all",
        "# B\n\n---\n## Notes: one\n",
    );
    let (old, new) = ("# A\n\n---", "# B\n\n---");
    assert_push(
        "# A\n\n---\n\n- one",
        [old, new],
        "all",
        "# B\n\n---\n\n- one",
    );
    assert_push("# A\n\n---", [old, new], "all", new);
    let (old, new) = ("# A\n- rule", "# B\n- rule");
    assert_push(
        "# A\n- rule\n- one",
        [old, new],
        "all",
        "# B\n- rule\n- one",
    );
}

#[test]
fn scratch_is_kept_only_below_a_boundary() {
    let refusal = |memory: &str, old, new, selection| {
        let error = push(memory.as_bytes(), old, new, selection).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        error.to_string()
    };
    let noted = format!("{OLD}- one\n");
    assert!(refusal("notes\n", OLD, NEW, "all").contains("no separator"));
    assert!(refusal("# A\n- mine\n", "# A\n- rule\n", "# B\n", "1").contains("no separator"));
    assert!(refusal(&noted, OLD, NEW, "4").contains("begins at line 5"));
    assert!(refusal(&noted, OLD, NEW, "3-7").contains("line 3 is above"));
    assert!(refusal(&noted, OLD, NEW, "7-8").contains("the memory has 7 lines"));
    // Edited rules: what stands below the separator is kept.
    let drifted = noted.replace("kind", "cruel");
    assert_push(&drifted, [OLD, NEW], "all", &format!("{NEW}- one\n"));
}

#[test]
fn lines_beyond_the_prefix_cannot_be_chosen() {
    let memory = format!("{OLD}- one\n- two");
    let baseline = baseline_of(OLD);
    let divided = |size| DividedMemory {
        prefix: memory.as_bytes(),
        size,
        lines: 30,
        boundary: find_boundary(memory.as_bytes(), &baseline, &[]),
        version: Some(&baseline),
    };
    let select = |lines: &str, size| {
        select_scratch(&lines.parse().unwrap(), Some(&divided(size)), &baseline)
    };
    let size = memory.len() as u64;
    assert!(select("7-8", size).is_ok());
    assert!(select("7", size + 9).is_ok());
    for lines in ["8", "7-8", "20"] {
        assert!(select(lines, size + 9).is_err(), "{lines}");
    }
}

#[test]
fn chosen_lines_are_bound_to_the_text_up_to_them() {
    let bind = |memory: &str, selection: &str| {
        let baseline = baseline_of(OLD);
        let divided = DividedMemory {
            prefix: memory.as_bytes(),
            size: memory.len() as u64,
            lines: count_lines(memory.as_bytes()) as u64,
            boundary: find_boundary(memory.as_bytes(), &baseline, &[]),
            version: Some(&baseline),
        };
        let selected = select_scratch(&selection.parse().unwrap(), Some(&divided), &baseline);
        selected.unwrap().binding()
    };
    let noted = format!("{OLD}- one\n- two\n");
    let more = format!("{noted}- three\n");
    let edited = format!("{OLD}- ONE\n- two\n");
    assert_eq!(bind(&noted, "8"), bind(&more, "8"));
    assert_ne!(bind(&noted, "8"), bind(&edited, "8"));
    assert_ne!(bind(&noted, "8"), bind(&noted, "7-8"));
    assert_eq!(bind(&noted, "all"), bind(&edited, "all"));
    // A line that goes on is another line.
    assert_ne!(
        bind(noted.trim_end(), "8"),
        bind(&format!("{}!", noted.trim_end()), "8")
    );
}

proptest! {
    /// Any bytes below the boundary are kept as they are, and pushing again changes nothing.
    #[test]
    fn all_scratch_is_kept_byte_for_byte(
        scratch in prop::collection::vec(any::<u8>(), 1..200),
        tail in "(\n?## Notes\n?)?",
        new_tail in "(\n?## Scratch\n?)?",
    ) {
        let (old, new) = (format!("# A\n\n---\n{tail}"), format!("# B\n\n---\n{new_tail}"));
        let memory = [old.as_bytes(), &scratch].concat();
        let pushed = push(&memory, &old, &new, "all").unwrap();
        let kept = scratch.strip_prefix(b"\r\n").or(scratch.strip_prefix(b"\n"));
        // A tail without a line feed takes that of the next line.
        let kept = kept.filter(|_| !tail.is_empty() && !tail.ends_with('\n'));
        prop_assert!(pushed.ends_with(kept.unwrap_or(&scratch)));
        prop_assert!(pushed.starts_with(b"# B\n\n---\n"));
        let again = push(&pushed, &new, &new, "all").unwrap();
        prop_assert_eq!(again, pushed);
    }

    /// An agent that has its baseline keeps its memory as it is, even if it copies the tail.
    #[test]
    fn push_of_the_same_baseline_changes_nothing(
        copies in 0..3usize,
        scratch in "[a\n]{0,10}",
        tail in "\n|\n## Notes\n|## Notes\n\n",
    ) {
        let baseline = format!("# A\n\n---\n{tail}");
        let memory = format!("{baseline}{}{scratch}", tail.repeat(copies));
        let pushed = push(memory.as_bytes(), &baseline, &baseline, "all").unwrap();
        prop_assert_eq!(String::from_utf8(pushed).unwrap(), memory.clone());
        let line = baseline.lines().count() + 1;
        let all_lines = format!("{line}-{}", memory.lines().count());
        if memory.lines().count() >= line {
            let pushed = push(memory.as_bytes(), &baseline, &baseline, &all_lines).unwrap();
            prop_assert_eq!(String::from_utf8(pushed).unwrap(), memory);
        }
    }

    /// No selection of any memory panics; what it keeps is in the memory.
    #[test]
    fn any_lines_of_any_memory_are_kept_or_refused(
        memory in "(# A\n\n---\n)?[a-b\r\n-]{0,40}",
        first in 1..12usize,
        length in 0..4usize,
    ) {
        let lines = format!("{first}-{}", first + length);
        if let Ok(pushed) = push(memory.as_bytes(), "# A\n\n---\n", "# B\n\n---\n", &lines) {
            let kept = &pushed[b"# B\n\n---\n".len()..];
            prop_assert!(memory.as_bytes().ends_with(kept)
                || memory.as_bytes().windows(kept.len().max(1)).any(|part| part == kept));
        }
    }
}
