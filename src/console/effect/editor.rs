//! Jobs of the editor: compares a text with its file, merges two changes, saves.

use std::sync::Arc;

use super::agent_texts::DIFF_TIMEOUT;
use crate::console::message::{FileComparison, SavedText, TextSave};
use crate::console::text;
use crate::diff;
use crate::engine::Engine;
use crate::error::Result;

/// Compares a baseline's file with a text.
pub(super) fn compare_with_file(
    engine: &Engine,
    name: &str,
    text: &[u8],
) -> Result<FileComparison> {
    let disk = engine.read_baseline(name)?;
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    Ok(FileComparison {
        diff: text::prepare_comparison([&disk, text], Some(deadline)),
        changed_lines: diff::count_changes(&disk, text, Some(deadline)),
        disk,
    })
}

/// Merges two changes of one text: what both began with, the operator's, the file's. The second
/// says whether all of it could be decided; the rest is between markers.
pub(super) fn merge([base, ours, theirs]: &[Arc<Vec<u8>>; 3]) -> (Vec<u8>, bool) {
    match diffy::merge_bytes(base, ours, theirs) {
        Ok(merged) => (merged, true),
        Err(marked) => (marked, false),
    }
}

/// Saves a text, and seals it if it is to be sealed.
pub(super) fn save(engine: &Engine, save: TextSave) -> Result<SavedText> {
    let TextSave {
        name,
        bytes,
        expected,
        is_immutable,
        is_sealed,
        accepts_lint_errors,
    } = save;
    let saved = if is_immutable {
        engine.save_immutable_baseline(&name, &bytes, Some(expected))?
    } else {
        engine.save_baseline(&name, &bytes, Some(expected))?
    };
    let sealed = if is_sealed {
        engine
            .seal_saved_baseline(&name, accepts_lint_errors)
            .map(drop)
    } else {
        Ok(())
    };
    let seal = sealed.and_then(|()| engine.open_baseline(&name).map(|opened| opened.seal));
    Ok(SavedText {
        bytes,
        seal,
        remarks: saved.remarks(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(texts: [&str; 3]) -> (String, bool) {
        let (text, is_clean) = merge(&texts.map(|it| Arc::new(it.as_bytes().to_vec())));
        (String::from_utf8(text).unwrap(), is_clean)
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
