//! Texts that are not saved: kept, offered again, and left on purpose.

use super::*;

#[test]
fn typing_is_kept_within_a_second_and_on_hangup() {
    let draft = |text: &str| {
        Effect::KeepDraft(DraftChange {
            name: NAME.to_string(),
            text: Some(DraftText {
                bytes: Arc::new(text.as_bytes().to_vec()),
                base: Arc::new(TEXT.as_bytes().to_vec()),
            }),
            replaced: None,
        })
    };
    let mut console = editing(TEXT);
    console.press("i");
    console.send(keys("ab"));
    assert_eq!(console.advance(SECOND), [draft(&format!("ab{TEXT}"))]);
    assert_eq!(console.advance(SECOND), [], "nothing new");
    console.send(keys("c"));
    let effects = console.send(Msg::Quit);
    let expected = [
        draft(&format!("abc{TEXT}")),
        Effect::CancelRun,
        Effect::Quit,
    ];
    assert_eq!(effects, expected);
    // A text that is the file's again needs no draft.
    console.press("Esc u");
    let discard = DraftChange {
        name: NAME.to_string(),
        text: None,
        replaced: None,
    };
    assert!(
        console
            .advance(SECOND)
            .contains(&Effect::KeepDraft(discard))
    );
}

/// Presses keys that need the draft, and answers with its outcome.
fn answer_draft(console: &mut TestConsole, keys: &str, outcome: Result<(), String>) {
    console.press(keys);
    let bytes = Arc::new(console.edited_text().into_bytes());
    console.send(Msg::DraftWritten(NAME.to_string(), bytes, outcome));
}

#[test]
fn changes_are_left_only_on_purpose() {
    let mut console = editing(TEXT);
    console.press("x q");
    assert!(console.message_text().contains(":q! leaves without saving"));
    console.press(":q Enter");
    assert!(console.model.editor.is_some());
    // The first request to quit keeps the text and warns, the next one quits.
    answer_draft(&mut console, "^c", Ok(()));
    assert!(
        console
            .message_text()
            .contains("the next start offers its text")
    );
    let effects = console.press("^c");
    assert_eq!(effects.last(), Some(&Effect::Quit));
    console.press(":q! Enter");
    assert!(console.model.editor.is_none());
}

#[test]
fn quit_says_when_the_text_cannot_be_kept() {
    let full = || Err("no space left on device".to_string());
    let mut console = editing(TEXT);
    console.press("x");
    answer_draft(&mut console, "^c", full());
    assert_eq!(
        console.message_text(),
        "charlie-MEMORY.md is not saved; again quits, AND LOSES ITS TEXT: no space left on device"
    );
    // A change asks again, and so does each outcome.
    console.press("x");
    answer_draft(&mut console, "^c", Ok(()));
    assert!(
        console
            .message_text()
            .contains("the next start offers its text")
    );
    // A failure while typing is said at once, and tried again by the request to quit.
    console.press("x");
    let effects = console.advance(SECOND);
    let [Effect::KeepDraft(change)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    let bytes = Arc::clone(&change.text.as_ref().unwrap().bytes);
    console.send(Msg::DraftWritten(NAME.to_string(), bytes, full()));
    assert!(console.message_text().contains("is only in this console"));
    assert!(matches!(console.press("^c")[..], [Effect::KeepDraft(_)]));
    answer_draft(&mut console, "", full());
    assert!(console.message_text().contains("AND LOSES ITS TEXT"));
    assert_eq!(console.press("^c").last(), Some(&Effect::Quit));
    // Without an answer from the disk, the operator is asked as well.
    let mut console = editing(TEXT);
    console.press("x ^c");
    assert_eq!(console.press("^c"), []);
    assert!(
        console
            .message_text()
            .contains("not on the disk yet; again quits")
    );
    assert_eq!(console.press("^c").last(), Some(&Effect::Quit));
}

#[test]
fn quit_asks_again_after_other_keys() {
    let mut console = editing(TEXT);
    console.press("x");
    answer_draft(&mut console, "^c", Ok(()));
    // The key that quits at the fleet, long after the warning.
    let effects = console.press("j - q");
    assert!(!effects.contains(&Effect::Quit), "{effects:?}");
    assert!(console.message_text().contains("again quits"));
    assert_eq!(console.press("q").last(), Some(&Effect::Quit));
}

#[test]
fn found_draft_is_recovered_or_discarded() {
    let draft = left_draft(b"# Rules\n\n- be typed\n---\n", TEXT.as_bytes());
    let found = || {
        let mut console = fleet_of_four();
        console.open_editor(OpenedBaseline {
            drafts: one_draft(&draft),
            ..opened(TEXT)
        });
        assert!(console.screen_text().contains("was not saved. Recover it?"));
        console.press("i");
        assert!(!console.editor().is_typing, "the question was passed over");
        console
    };
    let mut console = found();
    // The text is this console's own before the draft that was left is removed.
    let kept = Effect::KeepDraft(DraftChange {
        name: NAME.to_string(),
        text: Some(DraftText {
            bytes: Arc::new(draft.bytes.clone()),
            base: Arc::new(TEXT.as_bytes().to_vec()),
        }),
        replaced: Some(draft.id.clone()),
    });
    assert!(console.press("r").contains(&kept));
    assert_eq!(console.edited_text().as_bytes(), draft.bytes);
    assert!(console.editor().is_modified);
    let mut console = found();
    let discard = DraftChange {
        name: NAME.to_string(),
        text: None,
        replaced: Some(draft.id.clone()),
    };
    // Neither the key again, nor Enter, nor a part of the word removes it.
    assert_eq!(console.press("x x Enter"), []);
    assert!(console.message_text().contains("type discard in full"));
    console.press("x");
    assert!(console.screen_text().contains("is removed for good"));
    assert_eq!(console.press("Esc"), []);
    assert!(console.screen_text().contains("was not saved. Recover it?"));
    assert_eq!(
        console.press("x d i s c a r d Enter"),
        [Effect::KeepDraft(discard)]
    );
    assert_eq!(console.edited_text(), TEXT);
    let mut console = found();
    assert!(matches!(
        &console.press("d")[..],
        [Effect::CompareWithFile(..)]
    ));
    console.press("Esc");
    assert!(console.model.editor.is_none(), "the draft stays");
}

#[test]
fn start_names_texts_that_were_left() {
    let mut console = fleet_of_four();
    console.send(Msg::DraftsFound(Vec::new()));
    assert_eq!(console.message_text(), "");
    console.send(Msg::DraftsFound(vec![NAME.to_string()]));
    assert_eq!(
        console.message_text(),
        "an unsaved text of charlie-MEMORY.md is kept; 3 lists baselines, e there offers it"
    );
}

#[test]
fn edit_of_another_process_is_named() {
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        drafts: FoundDrafts {
            editing_processes: vec![4711],
            ..FoundDrafts::default()
        },
        ..opened(TEXT)
    });
    assert!(
        console
            .message_text()
            .contains("process 4711 has changes of charlie-MEMORY.md that are not saved")
    );
    assert!(console.editor().dialog.is_none());
}

#[test]
fn draft_of_a_read_only_baseline_is_named() {
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        drafts: one_draft(&left_draft(b"typed", TEXT.as_bytes())),
        seal: SealMatch::Mismatch("it does not match".to_string()),
        ..opened(TEXT)
    });
    assert!(console.message_text().contains("is kept, and offered once"));
    // A draft of what the file has by now is removed without a question.
    let mut console = fleet_of_four();
    let draft = left_draft(TEXT.as_bytes(), b"before");
    console.open_editor(OpenedBaseline {
        drafts: one_draft(&draft),
        ..opened(TEXT)
    });
    assert!(console.editor().dialog.is_none());
    assert!(console.effects.contains(&Effect::KeepDraft(DraftChange {
        name: NAME.to_string(),
        text: None,
        replaced: Some(draft.id),
    })));
}
