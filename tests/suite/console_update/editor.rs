//! The editor: typing, undo, saves and what stands in their way, drafts, findings.

use std::sync::Arc;

use memory_shepherd::console::command::KeyContext;
use memory_shepherd::console::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{
    DraftChange, DraftText, Effect, FileComparison, Msg, SavedText, TextAnalysis, TextSave,
};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselinePlanRequest,
};
use memory_shepherd::console::screens::editor::buffer::TextBuffer;
use memory_shepherd::console::screens::editor::state::EditorDialog;
use memory_shepherd::console::screens::log::state::RunSummary;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text;
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{
    BaselineDraft, BaselineState, FileState, OpenedBaseline, Operation, Outcome, Protection,
    SealMatch,
};
use memory_shepherd::lint::{FleetFacts, LintInput, LintSettings, TextRole, lint};
use proptest::prelude::*;

use super::SECOND;
use crate::console_fixture::{TestConsole, fleet_of_four, opened_baseline};
use crate::engine_samples::{baseline_list, baseline_summary, run_summary, test_time};

const TEXT: &str = "# Rules\n\n- be kind\n- be brief\n---\n";
const NAME: &str = "charlie-MEMORY.md";

fn opened(text: &str) -> OpenedBaseline {
    opened_baseline(&["charlie", "delta"], text.as_bytes())
}

/// A console with a text in the editor.
fn editing(text: &str) -> TestConsole {
    let mut console = fleet_of_four();
    console.open_editor(opened(text));
    console
}

/// Requests a save and answers with the file as it is on the disk.
fn request_save(console: &mut TestConsole, command: &str, disk: &[u8]) {
    console.press(command);
    let effects = console.press("Enter");
    let [Effect::CompareWithFile(name, generation, text)] = effects.as_slice() else {
        panic!("{effects:?}: {}", console.message_text());
    };
    let compared = FileComparison {
        disk: disk.to_vec(),
        diff: text::prepare_comparison([disk, text], None),
        changed_lines: (1, 0),
    };
    let (name, generation) = (name.clone(), *generation);
    console.send(Msg::FileCompared(name, generation, Ok(Box::new(compared))));
}

fn saved_text(effects: &[Effect]) -> &TextSave {
    match effects {
        [Effect::SaveText(save)] => save,
        other => panic!("{other:?}"),
    }
}

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
    assert_eq!(save.expected, Digest::of(TEXT.as_bytes()));
    assert!(save.is_sealed && !save.is_immutable && !save.accepts_lint_errors);
    assert_eq!(console.press("y"), [], "a held key saves twice");
    let saved = SavedText {
        bytes: text.clone().into_bytes(),
        seal: Ok(SealMatch::Sealed),
        remarks: Vec::new(),
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

fn keys(text: &str) -> Msg {
    crate::console_fixture::keys_message(text)
}

#[test]
fn changes_are_left_only_on_purpose() {
    let mut console = editing(TEXT);
    console.press("x q");
    assert!(console.message_text().contains(":q! leaves without saving"));
    console.press(":q Enter");
    assert!(console.model.editor.is_some());
    // The first request to quit warns, the next one quits and keeps the text.
    assert_eq!(console.press("^c"), []);
    assert!(console.message_text().contains("is not saved; again quits"));
    let effects = console.press("^c");
    assert_eq!(effects.last(), Some(&Effect::Quit));
    console.press(":q! Enter");
    assert!(console.model.editor.is_none());
}

#[test]
fn motions_and_cuts_act_as_in_vi() {
    for (pressed, cursor, text) in [
        ("j j w x", (2, 2), "# Rules\n\n- e kind\n- be brief\n---\n"),
        ("j j dd", (2, 0), "# Rules\n\n- be brief\n---\n"),
        (
            "j j dd p",
            (3, 0),
            "# Rules\n\n- be brief\n- be kind\n---\n",
        ),
        (
            "j j yy p",
            (3, 0),
            "# Rules\n\n- be kind\n- be kind\n- be brief\n---\n",
        ),
        ("v l l d", (0, 0), "ules\n\n- be kind\n- be brief\n---\n"),
        ("v $ d", (0, 0), "\n- be kind\n- be brief\n---\n"),
        (
            "j j $ A ! Esc",
            (2, 9),
            "# Rules\n\n- be kind!\n- be brief\n---\n",
        ),
        (
            "j j O a b Esc",
            (2, 1),
            "# Rules\n\nab\n- be kind\n- be brief\n---\n",
        ),
        ("o z Esc u", (0, 6), TEXT),
        (
            "x x x u u ^r",
            (0, 0),
            "Rules\n\n- be kind\n- be brief\n---\n",
        ),
        ("G k 0 l", (4, 1), TEXT),
        ("j j $ j", (3, 8), TEXT),
        (":4 Enter", (3, 0), TEXT),
        ("/ k i n d Enter", (2, 5), TEXT),
        ("/ b e Enter n n", (2, 2), TEXT),
    ] {
        let mut console = editing(TEXT);
        console.press(pressed);
        assert_eq!(console.edited_text(), text, "{pressed}");
        assert_eq!(console.editor().buffer.cursor(), cursor, "{pressed}");
    }
}

#[test]
fn typing_is_one_step_per_line_for_undo() {
    let mut console = editing(TEXT);
    console.press("i");
    console.type_line("first line");
    console.press("Enter");
    console.type_line("second");
    console.press("Esc u");
    assert!(console.edited_text().starts_with("first line\n# Rules"));
    console.press("u");
    assert_eq!(console.edited_text(), TEXT);
    assert!(!console.editor().is_modified);
    console.press("u");
    assert_eq!(console.message_text(), "nothing to undo");
}

#[test]
fn pasted_text_is_typed_and_never_a_command() {
    let mut console = editing("");
    console.send(Msg::TextPasted("dd".to_string()));
    assert!(console.message_text().contains("ignored"));
    console.press("i");
    console.send(Msg::TextPasted("one\rtwo\r\nthree\n:q!".to_string()));
    assert_eq!(console.edited_text(), "one\ntwo\nthree\n:q!");
    // A burst of keys is typed text here, too.
    console.send(keys("-many-keys-in-one-read"));
    console.press("Esc u");
    assert_eq!(console.edited_text(), "one\ntwo\nthree\n:q!");
    console.press("u");
    assert_eq!(console.edited_text(), "");
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
    // A stranger's change is never sealed by the way.
    request_save(&mut console, ":w", theirs);
    console.advance(KEY_GUARD_TIME);
    assert!(!saved_text(&console.press("y")).is_sealed);
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
    assert_eq!(saved_text(&effects).expected, Digest::of(theirs));
    // Leaving changes nothing.
    let mut console = changed();
    console.press("Esc");
    assert!(console.editor().dialog.is_none() && console.editor().is_modified);
}

#[test]
fn typing_is_kept_within_a_second_and_on_hangup() {
    let draft = |text: &str| {
        Effect::KeepDraft(DraftChange {
            name: NAME.to_string(),
            text: Some(DraftText {
                bytes: Arc::new(text.as_bytes().to_vec()),
                base: Arc::new(TEXT.as_bytes().to_vec()),
            }),
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
    };
    assert!(
        console
            .advance(SECOND)
            .contains(&Effect::KeepDraft(discard))
    );
}

#[test]
fn found_draft_is_recovered_or_discarded() {
    let draft = BaselineDraft {
        bytes: b"# Rules\n\n- be typed\n---\n".to_vec(),
        base: Digest::of(TEXT.as_bytes()),
        base_bytes: TEXT.as_bytes().to_vec(),
        time: test_time(),
        running_process: None,
    };
    let found = || {
        let mut console = fleet_of_four();
        console.open_editor(OpenedBaseline {
            draft: Ok(Some(draft.clone())),
            ..opened(TEXT)
        });
        assert!(console.screen_text().contains("was not saved. Recover it?"));
        console.press("i");
        assert!(!console.editor().is_typing, "the question was passed over");
        console
    };
    let mut console = found();
    console.press("r");
    assert_eq!(console.edited_text().as_bytes(), draft.bytes);
    assert!(console.editor().is_modified);
    let mut console = found();
    let discard = DraftChange {
        name: NAME.to_string(),
        text: None,
    };
    assert_eq!(console.press("x"), [Effect::KeepDraft(discard)]);
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
fn baselines_that_must_not_change_are_read_only() {
    let tampered = OpenedBaseline {
        seal: SealMatch::Mismatch("baseline does not match its seal".to_string()),
        ..opened(TEXT)
    };
    let mut protected = opened(TEXT);
    protected.users[1].protection = Protection::ReadOnly;
    let foreign = opened_baseline(&["charlie"], b"caf\xe9\n");
    let cases = [
        (tampered, "does not match its seal"),
        (protected, "delta is protected as read-only"),
        (foreign, "line 1 is not UTF-8"),
    ];
    for (opened, reason) in cases {
        let bytes = opened.bytes.clone();
        let mut console = fleet_of_four();
        console.open_editor(opened);
        assert!(console.screen_text().contains("READ-ONLY"), "{reason}");
        for pressed in ["i z Esc", "dd", "p", "o", "x"] {
            console.press(pressed);
            assert!(console.message_text().contains(reason) || pressed == "i z Esc");
        }
        console.press(":w Enter");
        assert!(console.message_text().contains(reason), "{reason}");
        assert_eq!(console.editor().opened.bytes, bytes);
        assert!(!console.editor().is_modified);
        console.press("q");
        assert!(console.model.editor.is_none());
    }
}

/// Answers the last request to analyze the text, as the job does.
fn analyze(console: &mut TestConsole) {
    let text = console.editor().buffer.to_bytes();
    let facts = FleetFacts::default();
    let input = LintInput {
        agent: Some("charlie"),
        path: NAME,
        text: &text,
        role: TextRole::Baseline,
        separator: "---",
        facts: &facts,
    };
    let analysis = TextAnalysis {
        baseline: NAME.to_string(),
        generation: console.editor().buffer.generation(),
        tones: Default::default(),
        findings: lint(&input, &LintSettings::default()).findings,
    };
    console.send(Msg::TextAnalyzed(Box::new(analysis)));
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

#[test]
fn fix_is_one_step_for_undo() {
    let text = "\u{feff}# Rules\n- be kind\n---\n";
    let mut console = editing(text);
    analyze(&mut console);
    console.press("F");
    assert_eq!(console.edited_text(), text.trim_start_matches('\u{feff}'));
    console.press("u");
    assert_eq!(console.edited_text(), text);
}

#[test]
fn older_analysis_is_ignored() {
    let mut console = editing(TEXT);
    let analysis = TextAnalysis {
        baseline: NAME.to_string(),
        generation: console.editor().buffer.generation(),
        tones: Default::default(),
        findings: Vec::new(),
    };
    console.press("x");
    console.send(Msg::TextAnalyzed(Box::new(analysis)));
    assert_eq!(console.editor().analyzed_generation, None);
}

/// A run that saved or restored the baseline of `charlie`: from a version to another.
fn baseline_run(id: &str, minutes: i64, operation: Operation, texts: [&str; 2]) -> RunSummary {
    let mut run = run_summary(id, minutes, &[("x", Outcome::Ok)]);
    let event = &mut run.events[0];
    event.agent = String::new();
    event.operation = operation;
    event.file = Some(NAME.to_string());
    let [before, after] = texts.map(|text| Digest::of(text.as_bytes()));
    event.before = Some(FileState::File {
        sha256: before,
        size: 3,
        lines: 1,
    });
    event.baseline = Some(after);
    run
}

/// Presses a key and returns the version that the plan would put back.
fn planned_restore(console: &mut TestConsole, keys: &str) -> String {
    match console.press(keys).as_slice() {
        [Effect::MakeBaselinePlan(_, BaselinePlanRequest::Restore { name, version })] => {
            assert_eq!(
                (name.as_str(), console.model.screen),
                (NAME, Screen::BaselinePlan)
            );
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
    assert_eq!(planned_restore(&mut console, "z"), "previous");
    assert_eq!(console.model.screen, Screen::Editor);
    console.press("7 G");
    let old = Digest::of(b"old").short_hex(16);
    assert_eq!(planned_restore(&mut console, "z"), old);
}

#[test]
fn fleet_undoes_the_newest_of_resets_and_saves() {
    let mut console = fleet_of_four();
    let reset = |id, minutes| run_summary(id, minutes, &[("charlie", Outcome::Ok)]);
    let mut changing_reset = reset("4e5e0002", 20);
    changing_reset.events[0].before = Some(FileState::Absent);
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
fn tampered_baseline_leads_to_its_evidence() {
    let mut console = fleet_of_four();
    let mut tampered = opened(TEXT);
    tampered.seal = SealMatch::Mismatch("it does not match".to_string());
    console.open_editor(tampered);
    console.press("i");
    assert!(
        console
            .message_text()
            .contains("read-only: Enter shows why; it does not match")
    );
    console.press("Enter");
    assert_eq!(console.model.key_context(), KeyContext::Comparison);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Editor);
    // The comparison leads to the editor with its key, too, and never back again.
    console.press("Enter e");
    let mut tampered = opened(TEXT);
    tampered.seal = SealMatch::Mismatch("it does not match".to_string());
    let reply = Msg::BaselineOpened(NAME.to_string(), Ok(Box::new(tampered)));
    console.send(reply);
    assert_eq!(console.model.screen, Screen::Editor);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn baselines_screen_opens_the_editor_and_gets_the_console_back() {
    let mut console = fleet_of_four();
    let summary = baseline_summary("charlie", BaselineState::Ok);
    console.open_baselines(baseline_list(vec![summary]));
    console.open_editor(opened(TEXT));
    assert_eq!(console.model.screen, Screen::Editor);
    let effects = console.press("q");
    assert_eq!(console.model.screen, Screen::Baselines);
    assert_eq!(effects, [Effect::LoadBaselines]);
}

#[test]
fn screens_are_left_and_found_again_with_changes() {
    let mut console = editing(TEXT);
    console.press("x 1");
    assert_eq!(console.model.screen, Screen::Fleet);
    console.press("-");
    assert_eq!(console.model.screen, Screen::Editor);
    console.press("1 e");
    assert_eq!(console.model.screen, Screen::Editor);
    assert!(console.editor().is_modified);
}

proptest! {
    /// A text that is accepted and not edited is saved byte for byte.
    #[test]
    fn unedited_text_keeps_every_byte(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "[a\\r\\n\u{feff}\u{202e}\u{e0041}\\x1b é]{0,80}".prop_map(String::into_bytes),
            "([a-c ]{0,4}\r\n){0,20}".prop_map(String::into_bytes),
        ],
    ) {
        match TextBuffer::from_bytes(&bytes) {
            Ok(mut buffer) => {
                prop_assert_eq!(buffer.to_bytes(), &bytes[..]);
                prop_assert_eq!(buffer.size(), bytes.len());
                let text = String::from_utf8(bytes.clone()).unwrap();
                buffer.insert_char('x');
                buffer.replace_all(&text);
                prop_assert_eq!(buffer.to_bytes(), &bytes[..], "replaced as a whole");
            }
            Err(_) => prop_assert!(std::str::from_utf8(&bytes).is_err()),
        }
    }

    /// Any keys: the model stays sound, undo leads back to the first text, and nothing is saved.
    #[test]
    fn undo_takes_everything_back(
        text in "[ab é日\\r\\n#-]{0,60}",
        pressed in proptest::collection::vec(
            proptest::sample::select(vec![
                "i", "a", "A", "o", "O", "Esc", "x", "dd", "yy", "p", "v", "d", "y", "h", "j", "k",
                "l", "w", "b", "0", "$", "gg", "G", "^d", "^u", "Enter", "Backspace", "Del",
                "Left", "Up", "End", "é", "}", "n",
            ]),
            0..60,
        ),
    ) {
        let mut console = editing(&text);
        for key in &pressed {
            console.press(key);
            console.screen_text();
            // Enter leads to the comparison with the seal.
            if console.model.screen != Screen::Editor {
                console.press("q");
            }
        }
        console.press("Esc Esc Esc");
        for _ in 0..200 {
            console.press("u");
        }
        prop_assert_eq!(console.edited_text(), text);
        prop_assert!(!console.effects.iter().any(|it| matches!(it, Effect::SaveText(_))));
    }
}
