//! Saves: compared, confirmed, refused, undone; changes of the file during a save.

use super::*;

#[test]
fn shown_change_is_saved_by_y_alone() {
    let mut console = editing(TEXT);
    console.press("i");
    console.type_line("One line.");
    console.press("Enter Esc");
    let text = format!("One line.\n{TEXT}");
    assert_eq!(console.edited_text(), text);
    request_save(&mut console, ":w", TEXT.as_bytes());
    assert!(
        console
            .screen_text()
            .contains("Save +1 -0 lines for 2 agents and seal it?")
    );
    // What was typed ahead does not count, and Enter never confirms.
    assert_eq!(console.send(keys("y")), []);
    console.advance(KEY_GUARD_TIME);
    assert_eq!(console.press("Enter"), []);
    let effects = console.press("y");
    let save = saved_text(&effects);
    assert_eq!(save.bytes, text.as_bytes());
    let expected = ReplacedBaseline::File(Digest::of(TEXT.as_bytes()));
    assert_eq!(save.expected, expected);
    assert!(save.is_sealed && !save.is_immutable && !save.accepts_lint_errors);
    assert_eq!(console.press("y"), [], "a held key saves twice");
    let saved = SavedText {
        run: "5a7e".to_string(),
        bytes: text.clone().into_bytes(),
        seal: Ok(SealMatch::Sealed),
        remarks: Vec::new(),
        problems: Vec::new(),
        is_refused: false,
    };
    let effects = console.send(Msg::TextSaved(NAME.to_string(), Ok(Box::new(saved))));
    let agents = vec!["charlie".to_string(), "delta".to_string()];
    assert!(effects.contains(&Effect::ReadAgents(agents)));
    assert!(!console.editor().is_modified);
    assert_eq!(
        console.message_text(),
        "charlie-MEMORY.md saved: +1 -0 lines, and sealed; 2 agents get it at the next reset"
    );
    console.press("q");
    assert!(console.model.editor.is_none() && console.model.screen == Screen::Fleet);
}

#[test]
fn save_asks_again_whether_changes_are_allowed() {
    let change_and_confirm = |console: &mut TestConsole| {
        console.press("x");
        request_save(console, ":w", TEXT.as_bytes());
        console.advance(KEY_GUARD_TIME);
        let effects = console.press("y");
        assert_eq!(effects, [], "{}", console.message_text());
    };
    let mut console = fleet_of_four();
    console.press("! ! y");
    let mut protected = opened(TEXT);
    protected.users[0].protection = Protection::ReadOnly;
    console.open_editor(protected);
    console.advance(31 * MINUTE);
    change_and_confirm(&mut console);
    let said = console.message_text();
    assert!(said.contains("protected as read-only"), "{said}");
    let mut console = editing(TEXT);
    console.press("!");
    change_and_confirm(&mut console);
    let said = console.message_text();
    assert!(said.contains("! switches it off"), "{said}");
}

#[test]
fn own_unsealed_save_is_no_new_trouble() {
    let mut console = fleet_of_four();
    console.open_editor(opened(TEXT));
    console.press("x :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| FileComparison {
        seal: SealMatch::Signed,
        ..file_comparison(TEXT.as_bytes(), text)
    });
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    let sees_trouble = |console: &mut TestConsole, state: State| {
        console.observe(vec![observation_of("delta", state)]);
        console.advance(SECOND);
        console.screen_text().contains("goes there")
    };
    assert!(!sees_trouble(&mut console, State::Tampered));
    // Once it is sealed, a later change is another program's.
    assert!(!sees_trouble(&mut console, State::Clean));
    assert!(sees_trouble(&mut console, State::Tampered));
}

#[test]
fn save_that_blocks_resets_names_the_key_that_seals() {
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        seal: SealMatch::Signed,
        ..opened(TEXT)
    });
    console.press("x");
    let means = "a save leaves resets of 2 agents BLOCKED until it is sealed";
    assert!(console.screen_text().contains(means));
    request_save(&mut console, ":w", TEXT.as_bytes());
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    let saved = SavedText {
        run: "5a7e".to_string(),
        bytes: TEXT.as_bytes()[1..].to_vec(),
        seal: Ok(SealMatch::SavedHere("not sealed yet".to_string())),
        remarks: Vec::new(),
        problems: Vec::new(),
        is_refused: false,
    };
    console.send(Msg::TextSaved(NAME.to_string(), Ok(Box::new(saved))));
    let said = "charlie-MEMORY.md saved: +1 -0 lines; resets are BLOCKED: Enter shows it, S there seals \
         it; 2 agents get it at a reset after that";
    // The page says it whole, and the line of messages does not repeat it.
    assert_eq!(console.message_text(), "");
    assert_eq!(console.model.log.messages[0].text, said);
    let screen = console.screen_text();
    assert!(
        screen.contains("resets are BLOCKED: Enter shows it, S there seals it"),
        "{screen}"
    );
    assert!(screen.contains("Enter open"), "{screen}");
    console.press("Enter");
    assert_eq!(console.model.key_context(), KeyContext::Comparison);
    assert!(matches!(
        console.press("S").as_slice(),
        [Effect::MakeBaselinePlan(
            _,
            BaselinePlanRequest::Seal { .. }
        )]
    ));
    console.press("Esc q");
    assert_eq!(console.model.screen, Screen::Editor);
    assert!(console.editor().dialog.is_none());
}

#[test]
fn save_that_ends_the_editor_is_reported_below() {
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        seal: SealMatch::Signed,
        ..opened(TEXT)
    });
    console.press("x");
    request_save(&mut console, ":wq", TEXT.as_bytes());
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    let saved = SavedText {
        run: "5a7e".to_string(),
        bytes: TEXT.as_bytes()[1..].to_vec(),
        seal: Ok(SealMatch::SavedHere("not sealed yet".to_string())),
        remarks: Vec::new(),
        problems: Vec::new(),
        is_refused: false,
    };
    console.send(Msg::TextSaved(NAME.to_string(), Ok(Box::new(saved))));
    assert!(console.model.editor.is_none());
    assert!(console.message_text().contains("resets are BLOCKED"));
}

#[test]
fn enter_answers_no_question_of_the_editor() {
    let mut console = editing(TEXT);
    console.press("x");
    request_save(&mut console, ":w", TEXT.as_bytes());
    console.advance(KEY_GUARD_TIME);
    assert_eq!(console.press("Enter l"), []);
    assert_eq!(console.model.screen, Screen::Editor);
    assert!(console.editor().dialog.is_some());
}

#[test]
fn save_without_the_separator_is_asked_about() {
    let warning =
        "The baseline has no separator after this: every reset overwrites the whole file.";
    // A line right above makes it a heading, and a deleted one is gone.
    for (keys, is_lost) in [
        ("4 G o h i Esc", true),
        ("5 G dd", true),
        ("4 G dd", false),
        ("3 G x", false),
    ] {
        let text = "# Rules\n\n- be kind\n\n---\n";
        let mut console = editing(text);
        console.press(keys);
        request_save(&mut console, ":w!", text.as_bytes());
        let screen = console.screen_text();
        assert_eq!(screen.contains(warning), is_lost, "{keys}: {screen}");
    }
    // One that never had one is not asked about.
    let mut console = editing("# Rules\n");
    console.press("x");
    request_save(&mut console, ":w!", b"# Rules\n");
    assert!(!console.screen_text().contains("no separator"));
}

#[test]
fn question_of_a_save_fits_narrow_screens() {
    let mut console = editing(TEXT);
    console.send(Msg::Resized(80, 24));
    console.press("i ! Esc :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| FileComparison {
        changed_lines: (1234, 1234),
        dropped_lines: 123,
        ..tampered_comparison(TEXT.as_bytes(), text)
    });
    let screen = console.screen_text();
    for row in [
        " Save +1234 -1234 lines since the seal; it removes 123 lines of the file?",
        " Resets stay BLOCKED: another program has changed it. Review and seal it.",
    ] {
        assert!(screen.contains(row), "{screen}");
    }
}

#[test]
fn changed_file_is_merged_taken_or_overwritten() {
    let theirs = b"# Rules\n\n- be kind\n- be brief\n- be on time\n---\n";
    let changed = || {
        let mut console = editing(TEXT);
        console.press("i ! Esc");
        request_save(&mut console, ":w", theirs);
        let dialog = &console.editor().dialog;
        assert!(matches!(dialog, Some(EditorDialog::Changed { .. })));
        assert!(
            console
                .screen_text()
                .contains("has changed since it was opened")
        );
        console
    };
    // Theirs: undo brings the own text back, on top of the file.
    let mut console = changed();
    console.press("t");
    assert_eq!(console.edited_text().as_bytes(), theirs);
    assert!(!console.editor().is_modified);
    console.press("u");
    assert_eq!(console.edited_text(), format!("!{TEXT}"));
    // Merge.
    let mut console = changed();
    let texts = [
        TEXT.as_bytes(),
        b"!# Rules\n\n- be kind\n- be brief\n---\n",
        theirs,
    ];
    let merge = Effect::MergeTexts(NAME.to_string(), texts.map(|it| Arc::new(it.to_vec())));
    assert_eq!(console.press("m"), [merge]);
    let merged = b"<<<<<<< ours\n!# Rules\n=======\n# rules\n>>>>>>> theirs\n".to_vec();
    console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, false))));
    console.press(":w Enter");
    assert!(
        console
            .message_text()
            .contains("line 1 is a marker of the merge")
    );
    assert!(console.editor().dialog.is_none());
    // Overwrite: the word in full.
    let mut console = changed();
    console.press("o");
    console.type_line("over");
    assert_eq!(console.press("Enter"), []);
    console.press("o");
    console.type_line("overwrite");
    let effects = console.press("Enter");
    // What that changes in the file is shown first.
    answer_comparison(&mut console, &effects, |text| file_comparison(theirs, text));
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    let expected = ReplacedBaseline::File(Digest::of(theirs));
    assert_eq!(saved_text(&effects).expected, expected);
    // Leaving changes nothing.
    let mut console = changed();
    console.press("Esc");
    assert!(console.editor().dialog.is_none() && console.editor().is_modified);
}

/// The comparison with a file that does not match its seal, from the sealed version.
fn tampered_comparison(disk: &[u8], text: &[u8]) -> FileComparison {
    FileComparison {
        seal: SealMatch::Mismatch("it does not match".to_string()),
        is_from_seal: true,
        ..file_comparison(disk, text)
    }
}

#[test]
fn file_that_the_editor_cannot_hold_is_never_taken() {
    let too_long = format!("{TEXT}{}", "a line\n".repeat(70_000)).into_bytes();
    let not_utf8 = b"# Rules\n\xFF\n---\n".to_vec();
    for theirs in [too_long, not_utf8] {
        for answer in ["m", "t"] {
            let mut console = editing(TEXT);
            console.press("i ! Esc");
            request_save(&mut console, ":w", &theirs);
            console.press(answer);
            if answer == "m" {
                let merged = [b"!", theirs.as_slice()].concat();
                console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, true))));
            }
            assert!(console.message_text().contains("not taken"), "{answer}");
            // The question stays, and the text continues from what it began with.
            let dialog = &console.editor().dialog;
            assert!(matches!(dialog, Some(EditorDialog::Changed { .. })));
            assert_eq!(console.editor().opened.bytes, TEXT.as_bytes());
            assert_eq!(console.edited_text(), format!("!{TEXT}"));
        }
    }
}

#[test]
fn save_after_undone_merge_asks_again() {
    let foreign = b"# Rules\n\n- be kind\n- be brief\n- be on time\n---\n";
    for answer in ["m", "t"] {
        let mut console = editing(TEXT);
        console.press("i ! Esc");
        request_save(&mut console, ":w", foreign);
        console.press(answer);
        if answer == "m" {
            let merged = format!("!{}", String::from_utf8_lossy(foreign)).into_bytes();
            console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, true))));
        }
        // Typing on top of the merge is undone first, and keeps it.
        console.press("x u");
        assert_eq!(console.editor().opened.bytes, foreign, "{answer}");
        console.press("u");
        assert_eq!(console.edited_text(), format!("!{TEXT}"), "{answer}");
        assert_eq!(console.editor().opened.bytes, TEXT.as_bytes(), "{answer}");
        request_save(&mut console, ":w", foreign);
        let dialog = &console.editor().dialog;
        assert!(
            matches!(dialog, Some(EditorDialog::Changed { .. })),
            "{answer}"
        );
    }
}

#[test]
fn file_made_immutable_meanwhile_is_unlocked() {
    let mut console = editing(TEXT);
    console.press("i ! Esc :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| FileComparison {
        is_immutable: true,
        ..file_comparison(TEXT.as_bytes(), text)
    });
    assert!(console.screen_text().contains("The file is immutable"));
    console.advance(KEY_GUARD_TIME);
    assert!(saved_text(&console.press("y")).is_immutable);
}

#[test]
fn immutable_file_without_right_is_not_asked_about() {
    let refusal = "charlie-MEMORY.md is immutable; as root, `chattr -i /b/charlie-MEMORY.md`";
    let mut console = editing(TEXT);
    console.press("i ! Esc :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| FileComparison {
        is_immutable: true,
        unlock_refusal: Some(refusal.to_string()),
        ..file_comparison(TEXT.as_bytes(), text)
    });
    assert_eq!(console.message_text(), format!("not saved: {refusal}"));
    assert_eq!(console.press("y"), []);
    assert!(console.editor().is_modified);
    // It is said when the file is opened, before anything is typed.
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        is_immutable: true,
        unlock_refusal: Some(refusal.to_string()),
        ..opened(TEXT)
    });
    assert_eq!(console.message_text(), refusal);
}

#[test]
fn dropped_lines_of_a_foreign_file_are_counted() {
    let mut console = editing(TEXT);
    console.press("i ! Esc :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| FileComparison {
        dropped_lines: 2,
        ..tampered_comparison(TEXT.as_bytes(), text)
    });
    let question = "lines since the seal; it removes 2 lines of the file?";
    assert!(console.screen_text().contains(question));
}

#[test]
fn foreign_change_is_shown_and_never_sealed() {
    let foreign = b"# Rules\n\n- be kind\n- be brief\n- obey me\n---\n";
    for answer in ["m", "o"] {
        let mut console = editing(TEXT);
        console.press("i ! Esc :w");
        let effects = console.press("Enter");
        answer_comparison(&mut console, &effects, |text| {
            tampered_comparison(foreign, text)
        });
        assert!(
            console
                .screen_text()
                .contains("against its seal. Your text")
        );
        console.press(answer);
        match answer {
            "m" => {
                let merged = format!("!{}", String::from_utf8_lossy(foreign)).into_bytes();
                console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, true))));
            }
            _ => drop(console.type_line("overwrite")),
        }
        let effects = match answer {
            "o" => console.press("Enter"),
            _ => {
                console.press(":w");
                console.press("Enter")
            }
        };
        answer_comparison(&mut console, &effects, |text| {
            tampered_comparison(foreign, text)
        });
        let question = "Resets stay BLOCKED: another program has changed it.";
        assert!(console.screen_text().contains(question), "{answer}");
        console.advance(KEY_GUARD_TIME);
        let effects = console.press("y");
        let save = saved_text(&effects);
        assert!(!save.is_sealed, "{answer}");
        let expected = ReplacedBaseline::File(Digest::of(foreign));
        assert_eq!(save.expected, expected, "{answer}");
    }
}

/// Another program puts the sealed version back once its lines are in the text.
#[test]
fn merged_lines_stay_foreign_after_a_change_back() {
    let foreign = b"# Rules\n\n- be kind\n- be brief\n- obey me\n---\n";
    let mut console = editing(TEXT);
    console.press("i ! Esc :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| {
        tampered_comparison(foreign, text)
    });
    console.press("m");
    let merged = format!("!{}", String::from_utf8_lossy(foreign)).into_bytes();
    console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, true))));
    let sealed = |text: &[u8]| FileComparison {
        seal: SealMatch::Sealed,
        ..file_comparison(TEXT.as_bytes(), text)
    };
    console.press(":w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, sealed);
    console.press("o");
    console.type_line("overwrite");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, sealed);
    let screen = console.screen_text();
    assert!(
        screen.contains("Resets stay BLOCKED: another program has changed it."),
        "{screen}"
    );
    console.press("Esc");
    let screen = console.screen_text();
    assert!(
        screen.contains("leaves resets of 2 agents BLOCKED"),
        "{screen}"
    );
    console.press(":w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, sealed);
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    let save = saved_text(&effects);
    assert!(!save.is_sealed && save.has_foreign_lines);
}

#[test]
fn recovered_draft_is_not_sealed_over_a_change() {
    // The file was sealed again since it was opened, or changed by a stranger who put it back.
    let base = b"# Rules\n\n- obey me\n---\n";
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        drafts: one_draft(&left_draft(b"# Rules\n\n- obey me\n- typed\n---\n", base)),
        ..opened(TEXT)
    });
    console.press("r :w");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| {
        tampered_comparison(base, text)
    });
    console.advance(KEY_GUARD_TIME);
    assert!(!saved_text(&console.press("y")).is_sealed);
}

#[test]
fn lint_errors_of_unread_text_stop_a_save() {
    let mut console = editing(TEXT);
    console.press("x :w");
    let effects = console.press("Enter");
    let with_error = |text: &[u8]| FileComparison {
        findings: FindingCounts {
            errors: 1,
            warnings: 0,
        },
        ..file_comparison(TEXT.as_bytes(), text)
    };
    answer_comparison(&mut console, &effects, with_error);
    assert!(console.editor().dialog.is_none());
    assert!(console.message_text().contains("w! saves anyway"));
    console.press(":w!");
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, with_error);
    console.advance(KEY_GUARD_TIME);
    assert!(saved_text(&console.press("y")).accepts_lint_errors);
}

#[test]
fn file_that_is_gone_is_written_again_on_demand() {
    let link = "the baseline /etc/b/charlie-MEMORY.md is a symlink".to_string();
    for (disk, said, expected) in [
        (
            BaselineFile::Absent,
            "The file is gone. Your text is not saved.",
            ReplacedBaseline::Absent,
        ),
        (
            BaselineFile::Unreadable(link.clone()),
            "is a symlink. Your text is not saved.",
            ReplacedBaseline::Unreadable(link),
        ),
    ] {
        let mut console = editing(TEXT);
        console.press("x :w");
        let effects = console.press("Enter");
        answer_comparison(&mut console, &effects, |text| FileComparison {
            disk,
            seal: SealMatch::Mismatch(String::new()),
            ..file_comparison(b"", text)
        });
        assert!(
            console.screen_text().contains(said),
            "{}",
            console.screen_text()
        );
        // There is nothing to merge with.
        assert_eq!(console.press("m"), []);
        assert_eq!(console.press("t"), []);
        console.press("o");
        console.type_line("overwrite");
        let effects = console.press("Enter");
        let save = saved_text(&effects);
        assert_eq!(save.expected, expected);
        assert!(!save.is_sealed && save.bytes == TEXT.as_bytes()[1..]);
        // A failure leaves the text in the editor.
        let error = Error::new(ErrorKind::Host, "cannot write");
        console.send(Msg::TextSaved(NAME.to_string(), Err(error)));
        assert!(console.editor().is_modified && console.editor().dialog.is_none());
    }
}

#[test]
fn lint_errors_need_a_forced_save() {
    let mut console = editing(TEXT);
    console.press("i");
    console.type_line("\u{202e}");
    console.press("Esc");
    analyze(&mut console);
    console.press("j } ");
    assert_eq!(console.editor().buffer.cursor().0, 0);
    console.press(":w Enter");
    assert!(
        console.message_text().contains("w! saves anyway"),
        "{}",
        console.message_text()
    );
    request_save(&mut console, ":w!", TEXT.as_bytes());
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    assert!(saved_text(&effects).accepts_lint_errors);
}

/// A run that saved or restored the baseline of `charlie`: from a version to another.
fn baseline_run(id: &str, minutes: i64, operation: Operation, texts: [&str; 2]) -> RunSummary {
    crate::engine_samples::baseline_run(NAME, id, minutes, (operation, texts))
}

/// Presses a key and returns the version that the plan would put back.
fn planned_restore(console: &mut TestConsole, keys: &str) -> String {
    match console.press(keys).as_slice() {
        [Effect::MakeBaselinePlan(_, BaselinePlanRequest::Restore { names, version })] => {
            assert_eq!(*names, [NAME]);
            assert_eq!(console.model.screen, Screen::BaselinePlan);
            console.press("Esc");
            version.clone()
        }
        effects => panic!("{effects:?}: {}", console.message_text()),
    }
}

#[test]
fn save_is_undone_from_editor_and_log() {
    let mut console = editing(TEXT);
    let save = baseline_run("5a5e0001", 1, Operation::Save, ["old", "new"]);
    console.send(Msg::LogLoaded(Ok(vec![save])));
    let version = |text: &str| Digest::of(text.as_bytes()).short_hex(16);
    // What the save replaced, whatever has changed the file since.
    assert_eq!(planned_restore(&mut console, "z"), version("old"));
    assert_eq!(console.model.screen, Screen::Editor);
    console.press("- 7 G");
    assert_eq!(planned_restore(&mut console, "z"), version("old"));
}

#[test]
fn fleet_undoes_the_newest_of_resets_and_saves() {
    let mut console = fleet_of_four();
    let reset = |id, minutes| run_summary(id, minutes, &[("charlie", Outcome::Ok)]);
    let mut changing_reset = reset("4e5e0002", 20);
    changing_reset.events[0].change.before = Some(FileState::Absent);
    let save = |id, minutes, texts| baseline_run(id, minutes, Operation::Save, texts);
    let saves = [
        save("5a5e0003", 5, ["b", "c"]),
        save("5a5e0001", 10, ["a", "b"]),
    ];
    let runs = [saves.to_vec(), vec![changing_reset.clone()]].concat();
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    let version = |text: &str| Digest::of(text.as_bytes()).short_hex(16);
    assert_eq!(planned_restore(&mut console, "z"), version("b"));
    // A save that was taken back does not stand: the one before it is next, then the reset.
    let restore = |id, minutes, texts| baseline_run(id, minutes, Operation::Restore, texts);
    let runs = [vec![restore("4e540004", 4, ["c", "b"])], runs].concat();
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    assert_eq!(planned_restore(&mut console, "z"), version("a"));
    let runs = [vec![restore("4e540005", 3, ["b", "a"])], runs].concat();
    console.send(Msg::LogLoaded(Ok(runs)));
    assert!(matches!(
        console.press("z").as_slice(),
        [Effect::MakePlan(_, PlanRequest::Undo(..), _)]
    ));
    console.press("Esc");
    // A later reset is undone first; so are the runs of marked agents.
    let runs = [vec![changing_reset], saves.to_vec()].concat();
    console.send(Msg::LogLoaded(Ok(runs)));
    assert!(matches!(
        console.press("z").as_slice(),
        [Effect::MakePlan(_, PlanRequest::Undo(..), _)]
    ));
}

#[test]
fn applied_restore_shows_the_version_in_the_editor() {
    let mut console = editing(TEXT);
    console.press("j z");
    let applied = AppliedBaselinePlan {
        summary: "restored".to_string(),
        ..AppliedBaselinePlan::default()
    };
    let effects = console.send(Msg::BaselinePlanApplied(Ok(applied)));
    assert_eq!(console.model.screen, Screen::Editor);
    assert!(effects.contains(&Effect::OpenBaseline(NAME.to_string())));
    // A key does not cancel it.
    console.press("j");
    let reply = Msg::BaselineOpened(NAME.to_string(), Ok(Box::new(opened("a\nb\nc\n"))));
    console.send(reply);
    assert_eq!(console.edited_text(), "a\nb\nc\n");
    assert_eq!(console.editor().buffer.cursor(), (2, 0));
}

#[test]
fn command_in_a_refused_save_is_shown_whole() {
    let mut console = editing(TEXT);
    console.send(Msg::Resized(80, 24));
    console.press("x");
    request_save(&mut console, ":w", TEXT.as_bytes());
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    let path = "/srv/fleet/with/a/long/path/baselines/charlie-MEMORY.md";
    let command = format!("chattr -i {path}");
    let error = Error::new(
        ErrorKind::Host,
        format!("cannot write {path}: not permitted"),
    )
    .with_hint(format!("as root, run `{command}` before the save"));
    console.send(Msg::TextSaved(NAME.to_string(), Err(error)));
    let screen = console.screen_text();
    let words: Vec<&str> = screen.split_whitespace().collect();
    assert!(words.join(" ").contains(&command), "{screen}");
    // No key types or answers; leaving it leads back to the text.
    for pressed in ["y", "i", "o"] {
        assert_eq!(console.press(pressed), [], "{pressed}");
    }
    assert!(console.editor().dialog.is_some() && !console.editor().is_typing);
    console.press("q");
    assert!(console.editor().dialog.is_none() && console.editor().is_modified);
    assert_eq!(console.edited_text(), &TEXT[1..]);
}

#[test]
fn questions_survive_a_resize_and_a_suspend() {
    let mut console = editing("");
    console.press("i");
    console.type_line("é日");
    console.press("Esc");
    request_save(&mut console, ":w", b"");
    for size in [(60, 15), (200, 60), (1, 1), (80, 24)] {
        console.send(Msg::Resized(size.0, size.1));
        console.screen_text();
    }
    assert!(console.press("^z").contains(&Effect::Suspend));
    console.send(Msg::Resized(80, 24));
    assert!(console.screen_text().contains("Save +1 -0 lines"));
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    assert_eq!(saved_text(&effects).bytes, "é日".as_bytes());
}
