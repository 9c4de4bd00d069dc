//! Jobs of the editor: compares a text with its file, merges two changes, saves.

use std::sync::Arc;

use super::agent_texts::DIFF_TIMEOUT;
use crate::base::clock::Clock;
use crate::base::diff;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::console::message::{FileComparison, ReplacedBaseline, SavedText, TextSave};
use crate::console::text;
use crate::engine::{BaselineFile, Engine, FindingCounts, OpenedBaseline, SealMatch, TextOrigin};

/// Maximum product of the number of lines and of changes in a merge, which grows with it: about a
/// second. A merge has no deadline of its own.
const MAX_MERGE_COST: usize = 200_000_000;

/// Opens a baseline again, or says what is at its path instead.
pub(super) fn check_open_file(
    engine: &Engine,
    name: &str,
) -> std::result::Result<Box<OpenedBaseline>, BaselineFile> {
    let opened = engine.baseline_edits().open_baseline(name).map(Box::new);
    opened.map_err(|_| engine.baseline_edits().read_edited_baseline(name).0)
}

/// Compares a baseline's file with a text.
pub(super) fn compare_with_file(
    engine: &Engine,
    name: &str,
    text: &[u8],
    known: Digest,
) -> FileComparison {
    let (disk, seal) = engine.baseline_edits().read_edited_baseline(name);
    let now = disk.bytes().unwrap_or_default();
    // The operator knows a file that another program has changed, and its change is in the text:
    // the difference from the file would not show it.
    let has_foreign_change =
        matches!(seal, SealMatch::Mismatch(_)) && disk.bytes().map(Digest::of) == Some(known);
    let sealed = has_foreign_change
        .then(|| {
            engine
                .baseline_catalog()
                .find_baseline_version(name, "sealed")
                .ok()
        })
        .flatten();
    let old = sealed.as_ref().map_or(now, |(_, bytes)| bytes);
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    FileComparison {
        diff: text::prepare_comparison([old, text], Some(deadline)),
        changed_lines: diff::count_changes(old, text, Some(deadline)),
        dropped_lines: diff::count_changes(now, text, Some(deadline)).1,
        is_from_seal: sealed.is_some(),
        is_immutable: engine.baseline_edits().is_baseline_immutable(name),
        unlock_refusal: engine.baseline_edits().unlock_refusal(name),
        findings: count_findings(engine, name, text),
        seal,
        disk,
    }
}

/// Lints a text as a version of a baseline.
fn count_findings(engine: &Engine, name: &str, text: &[u8]) -> FindingCounts {
    // An allowlist that cannot be read allows nothing; `lint` and `doctor` report it.
    let decisions = engine.lint().load_lint_decisions().unwrap_or_default();
    let report = engine.lint().baseline_lint(name, &decisions).lint(text);
    FindingCounts::of(&report.findings)
}

/// Merges two changes of one text: what both began with, the operator's, the file's. The second
/// says whether all of it could be decided; the rest is between markers.
///
/// # Errors
/// The texts differ so much that a merge would take longer than an operator waits.
pub(super) fn merge(
    [base, ours, theirs]: &[Arc<Vec<u8>>; 3],
    clock: &dyn Clock,
) -> Result<(Vec<u8>, bool)> {
    let lines = |text: &[u8]| diff::count_lines(text);
    for text in [ours, theirs] {
        let deadline = clock.instant() + DIFF_TIMEOUT;
        let (added, removed) = diff::count_changes(base, text, Some(deadline));
        let cost = (lines(base) + lines(text)).saturating_mul(added + removed);
        if cost > MAX_MERGE_COST {
            let message = format!(
                "not merged, the texts differ by {} lines: compare them with another program",
                added + removed
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
    }
    Ok(match diffy::merge_bytes(base, ours, theirs) {
        Ok(merged) => (merged, true),
        Err(marked) => (marked, false),
    })
}

/// Saves a text, and seals it if it is to be sealed.
pub(super) fn save(engine: &Engine, save: TextSave) -> Result<SavedText> {
    let TextSave {
        name,
        bytes,
        expected,
        is_immutable,
        is_sealed,
        has_foreign_lines,
        accepts_lint_errors,
    } = save;
    let origin = if has_foreign_lines {
        TextOrigin::Merged
    } else {
        TextOrigin::Operator
    };
    // Others see text and seal change together.
    let writer = engine.baseline_files().begin_baseline_change()?;
    let saved = match expected {
        ReplacedBaseline::Unreadable(why) => writer.save_over_unreadable(&name, &bytes, &why)?,
        ReplacedBaseline::Absent => writer.save(&name, &bytes, None, TextOrigin::Operator)?,
        ReplacedBaseline::File(digest) if is_immutable => {
            writer.save_immutable(&name, &bytes, Some(digest), origin)?
        }
        ReplacedBaseline::File(digest) => writer.save(&name, &bytes, Some(digest), origin)?,
    };
    let sealed = if is_sealed {
        let sealed =
            engine
                .baseline_edits()
                .seal_saved(&writer, &name, saved.digest, accepts_lint_errors);
        sealed.map(drop)
    } else {
        Ok(())
    };
    drop(writer);
    let opened = engine.baseline_edits().open_baseline(&name);
    let (problems, is_refused) = match &opened {
        Ok(opened) => (opened.problems.clone(), opened.is_refused),
        Err(_) => Default::default(),
    };
    Ok(SavedText {
        run: saved.run.clone(),
        bytes,
        seal: sealed.and_then(|()| opened.map(|opened| opened.seal)),
        remarks: saved.remarks(),
        problems,
        is_refused,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::SystemClock;

    fn merged(texts: [&str; 3]) -> (String, bool) {
        let texts = texts.map(|it| Arc::new(it.as_bytes().to_vec()));
        let (text, is_clean) = merge(&texts, &SystemClock).unwrap();
        (String::from_utf8(text).unwrap(), is_clean)
    }

    #[test]
    fn merge_of_rewritten_texts_is_refused() {
        let text = |word: &str| {
            let lines = (0..20_000).map(|number| format!("- {word} {number}\n"));
            Arc::new(lines.collect::<String>().into_bytes())
        };
        let error = merge(&[text("a"), text("b"), text("c")], &SystemClock).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        // Few changes in a long text are merged.
        let mut longer = text("a").to_vec();
        longer.extend_from_slice(b"- one more\n");
        let (merged, is_clean) = merge(
            &[text("a"), text("a"), Arc::new(longer.clone())],
            &SystemClock,
        )
        .unwrap();
        assert!(is_clean && merged == longer);
    }

    #[test]
    fn both_changes_of_one_line_are_a_conflict() {
        let (text, is_clean) = merged(["a\nb\nc\n", "a\nours\nc\n", "a\ntheirs\nc\n"]);
        assert!(!is_clean);
        for line in [
            "<<<<<<< ours",
            "ours",
            "||||||| original",
            "=======",
            ">>>>>>> theirs",
        ] {
            assert!(text.lines().any(|it| it == line), "{text}");
        }
    }

    proptest! {
        /// A side that changed nothing, and equal changes, decide a merge; changes of far lines are
        /// all kept.
        #[test]
        fn merge_keeps_every_change(base in "([ab]\n){0,12}", other in "([abc]\n){0,12}") {
            prop_assert_eq!(merged([&base, &other, &base]), (other.clone(), true));
            prop_assert_eq!(merged([&base, &base, &other]), (other.clone(), true));
            prop_assert_eq!(merged([&base, &other, &other]), (other.clone(), true));
            let far = "1\n2\n3\n4\n5\n";
            let around = |first: &str, last: &str| format!("{first}{far}{last}");
            let ours = around(&other, "z\n");
            let theirs = around(&base, "y\n");
            let texts = [around(&base, "z\n"), ours, theirs];
            let all = merged([&texts[0], &texts[1], &texts[2]]);
            prop_assert_eq!(all, (around(&other, "y\n"), true));
        }
    }
}
