//! The editor: typing, undo, findings, and what can be changed.

mod drafts;
mod file_checks;
mod motions;
mod saves;

use std::sync::Arc;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::command::{Command, KeyContext};
use memory_shepherd::console::dispatch::offered_commands;
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{
    DraftChange, DraftText, Effect, FileComparison, Msg, ReplacedBaseline, SavedText, TextAnalysis,
    TextSave,
};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselinePlanRequest,
};
use memory_shepherd::console::screens::editor::buffer::TextBuffer;
use memory_shepherd::console::screens::editor::buffer::replacement::replace_all;
use memory_shepherd::console::screens::editor::state::EditorDialog;
use memory_shepherd::console::screens::log::state::RunSummary;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::engine::{
    BaselineFile, BaselineState, FileState, FindingCounts, FoundDrafts, OpenedBaseline, Operation,
    Outcome, Protection, SealMatch, State,
};
use memory_shepherd::lint::{FleetFacts, LintInput, LintSettings, TextRole, lint};
use proptest::prelude::*;

use super::{MINUTE, SECOND};
use crate::console_fixture::{
    TestConsole, file_comparison, fleet_of_four, left_draft, one_draft, opened_baseline,
};
use crate::engine_samples::{baseline_list, baseline_summary, observation_of, run_summary};

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
    answer_comparison(console, &effects, |text| file_comparison(disk, text));
}

/// Answers the request for a comparison.
fn answer_comparison(
    console: &mut TestConsole,
    effects: &[Effect],
    compare: impl FnOnce(&[u8]) -> FileComparison,
) {
    let [Effect::CompareWithFile(name, generation, text, _)] = effects else {
        panic!("{effects:?}: {}", console.message_text());
    };
    let compared = Ok(Box::new(compare(text)));
    console.send(Msg::FileCompared(name.clone(), *generation, compared));
}

fn saved_text(effects: &[Effect]) -> &TextSave {
    match effects {
        [Effect::SaveText(save)] => save,
        other => panic!("{other:?}"),
    }
}

fn keys(text: &str) -> Msg {
    crate::console_fixture::keys_message(text)
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
        ("o z Esc u", (0, 0), TEXT),
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
        ("j 2 dd", (1, 0), "# Rules\n- be brief\n---\n"),
        (
            "2 dd G p",
            (4, 0),
            "- be kind\n- be brief\n---\n\n# Rules\n",
        ),
        ("2 dd u", (0, 0), TEXT),
        ("j j 9 dd", (2, 0), "# Rules\n\n"),
        ("3 x u", (0, 0), TEXT),
        ("1 0 x", (0, 0), "\n\n- be kind\n- be brief\n---\n"),
        ("3 j 2 k", (1, 0), TEXT),
        ("1 0 j", (5, 0), TEXT),
        ("4 l 2 h", (0, 2), TEXT),
        ("3 G", (2, 0), TEXT),
        ("j j $ G k k gg", (0, 0), TEXT),
        ("l l gg v G d", (0, 0), ""),
        ("j j 2 dd u", (2, 0), TEXT),
        ("j j w dd gg u", (2, 2), TEXT),
        ("v j j d u", (0, 0), TEXT),
        ("5 Esc j 0", (1, 0), TEXT),
        ("/ b e Enter 2 n", (2, 2), TEXT),
    ] {
        let mut console = editing(TEXT);
        console.press(pressed);
        assert_eq!(console.edited_text(), text, "{pressed}");
        assert_eq!(console.editor().buffer.cursor(), cursor, "{pressed}");
    }
}

#[test]
fn header_counts_hits_and_findings() {
    let mut console = editing(TEXT);
    analyze(&mut console);
    let row = |console: &TestConsole| -> String {
        let width = usize::from(console.model.size.0);
        let row: String = console
            .screen_text()
            .chars()
            .skip(width)
            .take(width)
            .collect();
        row.trim_end().to_string()
    };
    let findings = row(&console).rsplit("  ").next().unwrap().to_string();
    console.press("/ b e");
    assert!(
        row(&console).contains(r#""be" 2 hits  "#),
        "{}",
        row(&console)
    );
    console.press("Enter dd");
    assert!(
        row(&console).contains(r#""be" 1 hit  "#),
        "{}",
        row(&console)
    );
    console.press("u");
    analyze(&mut console);
    assert!(
        row(&console).ends_with(&findings),
        "{findings}: {}",
        row(&console)
    );
}

#[test]
fn unused_unsealed_baseline_says_both() {
    let mut console = fleet_of_four();
    console.open_editor(OpenedBaseline {
        users: Vec::new(),
        seal: SealMatch::Unchecked,
        ..opened(TEXT)
    });
    let screen = console.screen_text();
    assert!(
        screen.contains("used by no agent") && screen.contains("not sealed"),
        "{screen}"
    );
}

#[test]
fn keys_in_a_tiny_window_stay_in_the_text() {
    let mut console = editing("");
    console.press("i a");
    console.send(Msg::Resized(50, 10));
    console.press("q Enter q");
    assert_eq!(console.edited_text(), "aq\nq");
    assert!(console.screen_text().contains("UNSAVED TEXT"));
    console.press("^c");
    assert!(!console.editor().is_typing);
    assert_eq!(console.press("q"), []);
    console.send(Msg::Resized(80, 24));
    assert_eq!(console.model.screen, Screen::Editor);
    assert_eq!(console.edited_text(), "aq\nq");
}

#[test]
fn digits_never_leave_the_editor() {
    let mut console = editing(TEXT);
    for pressed in ["5 7 d 5", "Tab 3 j Tab 5", "Esc v 1 2 Esc", "x :w"] {
        console.press(pressed);
        assert_eq!(console.model.screen, Screen::Editor, "{pressed}");
    }
    let effects = console.press("Enter");
    answer_comparison(&mut console, &effects, |text| {
        file_comparison(TEXT.as_bytes(), text)
    });
    console.advance(KEY_GUARD_TIME);
    console.press("5");
    assert_eq!(console.model.screen, Screen::Editor);
    assert!(console.editor().dialog.is_some());
}

#[test]
fn escape_ends_typing_on_a_terminal_that_is_too_small() {
    let mut console = editing(TEXT);
    console.press("i");
    console.send(Msg::Resized(20, 5));
    console.press("Esc d d x");
    console.send(Msg::Resized(80, 24));
    assert_eq!(console.edited_text(), TEXT);
    assert!(console.screen_text().contains("NORMAL"));
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
        rule_changes: Default::default(),
    };
    console.send(Msg::TextAnalyzed(Box::new(analysis)));
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
fn findings_at_one_place_are_visited_in_turn() {
    let mut console = editing("# Notes\n\nThe file {Your name} of a team.\n---\n");
    analyze(&mut console);
    let count = console.editor().findings.len();
    assert!(count > 2, "{:?}", console.editor().findings);
    let visit = |console: &mut TestConsole, key: &str| {
        console.press(key);
        console.editor().current_finding().unwrap()
    };
    let mut forward: Vec<usize> = (0..count).map(|_| visit(&mut console, "}")).collect();
    let first = visit(&mut console, "}");
    assert_eq!(first, forward[0], "around the end");
    let mut backward: Vec<usize> = (0..count).map(|_| visit(&mut console, "{")).collect();
    backward.reverse();
    assert_eq!(backward, forward);
    forward.sort_unstable();
    assert_eq!(forward, (0..count).collect::<Vec<_>>());
    // Any motion makes the worst finding of the line the current one again.
    console.press("G gg");
    assert_eq!(console.editor().visited_finding(), None);
}

#[test]
fn key_that_fixes_is_offered_for_fixable_findings() {
    let text = "\u{feff}# Rules\n- be kind {Your name}\n---\n";
    let mut console = editing(text);
    analyze(&mut console);
    let has_fix = |console: &TestConsole| {
        let finding = console.editor().current_finding().unwrap();
        console.editor().findings[finding].fix.is_some()
    };
    for _ in 0..console.editor().findings.len() {
        console.press("}");
        let is_offered = console.screen_text().contains("F fix");
        assert_eq!(is_offered, has_fix(&console), "{}", console.screen_text());
        console.press("Tab");
        let is_offered = console.screen_text().contains("F fix");
        assert_eq!(is_offered, has_fix(&console), "{}", console.screen_text());
        console.press("Esc");
    }
    console.press("gg");
    assert!(has_fix(&console));
    let screen = console.screen_text();
    let marked = screen.matches("E*").count() + screen.matches("W*").count();
    let findings = console.editor().findings.iter();
    assert_eq!(
        marked,
        findings.filter(|it| it.fix.is_some()).count(),
        "{screen}"
    );
    assert!(screen.contains("(* F fixes it)"), "{screen}");
}

#[test]
fn narrow_header_keeps_the_state_of_the_seal() {
    for (seal, word) in [
        (SealMatch::Sealed, "sealed"),
        (SealMatch::SavedHere(String::new()), "saved, not sealed"),
        (SealMatch::Mismatch(String::new()), "TAMPERED"),
    ] {
        let mut console = fleet_of_four();
        console.send(Msg::Resized(60, 15));
        console.open_editor(OpenedBaseline {
            seal,
            ..opened(TEXT)
        });
        console.press("i ! Esc");
        let screen = console.screen_text();
        let row: String = screen.chars().take(60).collect();
        assert!(row.contains(word) && row.contains("L1:C"), "{row}");
    }
}

#[test]
fn read_only_console_names_tampered_baselines() {
    let mut console = fleet_of_four();
    console.model.read_only.is_forced = true;
    console.model.read_only.is_on = true;
    console.open_editor(OpenedBaseline {
        seal: SealMatch::Mismatch("it does not match".to_string()),
        ..opened(TEXT)
    });
    let why = console.editor().read_only.clone().unwrap();
    assert!(
        why.contains("--read-only") && why.contains("TAMPERED"),
        "{why}"
    );
}

#[test]
fn older_analysis_is_ignored() {
    let mut console = editing(TEXT);
    let analysis = TextAnalysis {
        baseline: NAME.to_string(),
        generation: console.editor().buffer.generation(),
        tones: Default::default(),
        findings: Vec::new(),
        rule_changes: Default::default(),
    };
    console.press("x");
    console.send(Msg::TextAnalyzed(Box::new(analysis)));
    assert_eq!(console.editor().analyzed_generation, None);
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
    console.press("x -");
    assert_eq!(console.model.screen, Screen::Fleet);
    for keys in ["1", "7", "8", "3", "1"] {
        console.press(keys);
        assert!(console.screen_text().contains("UNSAVED"), "{keys}");
    }
    console.press("e");
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
                replace_all(&mut buffer, &text);
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

#[test]
fn replaced_text_keeps_its_own_line_ends() {
    let (old, new) = ("a\r\nb\r\n", "a\nb\r\nc\n");
    let mut buffer = TextBuffer::from_bytes(old.as_bytes()).unwrap();
    buffer.insert_char('x');
    replace_all(&mut buffer, new);
    assert_eq!(buffer.to_bytes(), new.as_bytes());
    buffer.undo();
    assert_eq!(buffer.to_bytes(), format!("x{old}").as_bytes());
    buffer.redo();
    assert_eq!(buffer.to_bytes(), new.as_bytes());
}

#[test]
fn text_never_grows_beyond_what_opens_again() {
    let mut console = editing("");
    console.press("i");
    let line = "x".repeat(1000);
    let large: String = (0..200).map(|_| format!("{line}\r")).collect();
    for _ in 0..5 {
        console.send(Msg::TextPasted(large.clone()));
    }
    let text = console.edited_text();
    assert_eq!(text.len(), 5 * 200 * 1001);
    console.send(Msg::TextPasted(large));
    assert!(console.message_text().contains("at most 1 MiB"));
    assert_eq!(console.edited_text(), text);
    console.send(Msg::TextPasted("\r".repeat(60_000)));
    assert_eq!(console.edited_text(), text);
    console.send(Msg::TextPasted("y".repeat(60_001)));
    assert_eq!(console.edited_text(), text);
    assert!(TextBuffer::from_bytes(text.as_bytes()).is_ok());
    // One step for each paste, however large.
    console.press("Esc u u u u");
    assert_eq!(console.edited_text().len(), 200 * 1001);
}

#[test]
fn keys_that_type_are_offered_as_no_commands() {
    let mut console = editing(TEXT);
    console.press("i");
    let screen = console.screen_text();
    assert!(screen.contains("Esc end typing"), "{screen}");
    assert!(screen.contains("F1 help") && !screen.contains("? help"));
    let offered: Vec<Command> = offered_commands(&console.model)
        .map(|spec| spec.command)
        .collect();
    for command in [Command::GoLog, Command::GoFleet, Command::Palette] {
        assert!(!offered.contains(&command), "{command:?}");
    }
    for command in [Command::GoBack, Command::Suspend, Command::Help] {
        assert!(offered.contains(&command), "{command:?}");
    }
    // What is offered works, and does not type.
    for spec in offered_commands(&console.model) {
        let context = console.model.key_context();
        let keymap = &console.model.preferences.keymap;
        let keys = keymap.joined_sequences_in(context, spec.command);
        assert!(
            !keys.split(' ').any(|key| key.chars().count() == 1),
            "{keys}"
        );
    }
    console.press("F1");
    assert_eq!(console.edited_text(), TEXT);
}

#[test]
fn panel_stays_in_its_rows_on_small_screens() {
    for rows in 15..=24 {
        let mut console = editing("\u{202e}# Rules\n- be kind\n---\n");
        console.send(Msg::Resized(120, rows));
        analyze(&mut console);
        let screen = console.screen_text();
        assert!(screen.contains("[Findings]"), "{rows}: {screen}");
        let mut console = editing("\u{202e}# Rules\n- be kind\n---\n");
        console.send(Msg::Resized(80, rows));
        analyze(&mut console);
        console.press("Tab");
        let screen = console.screen_text();
        assert!(screen.starts_with("charlie-MEMORY.md"), "{rows}: {screen}");
        assert!(screen.contains("[Findings]"), "{rows}: {screen}");
        let list: Vec<char> = screen.chars().skip(80 * 4).take(80).collect();
        let first: String = list.into_iter().collect();
        assert!(first.contains("MS"), "{rows}: {screen}");
    }
}

#[test]
fn one_key_moves_and_deletes_one_glyph() {
    let glyphs = [
        "🇩🇪",
        "👩🏽\u{200d}🚀",
        "e\u{301}",
        "日",
        "a\u{308}\u{323}",
        "x",
    ];
    let line = glyphs.concat();
    let ends: Vec<usize> = glyphs
        .iter()
        .scan(0, |end, glyph| {
            *end += glyph.chars().count();
            Some(*end)
        })
        .collect();
    let mut console = editing(&line);
    console.press("i");
    for end in &ends {
        console.press("Right");
        assert_eq!(console.editor().buffer.cursor().1, *end);
    }
    for count in (0..glyphs.len()).rev() {
        console.press("Backspace");
        assert_eq!(console.edited_text(), glyphs[..count].concat());
    }
    let mut console = editing(&line);
    for count in 1..=glyphs.len() {
        console.press("x");
        assert_eq!(console.edited_text(), glyphs[count..].concat());
    }
    // The cursor rests at the beginning of a glyph, also from another line.
    let mut console = editing(&format!("{line}\nabcdefghijkl"));
    console.press("j l l l k");
    assert_eq!(console.editor().buffer.cursor(), (0, 2));
    console.press("v d");
    assert!(console.edited_text().starts_with("🇩🇪e\u{301}"));
    // A hidden character is a glyph of its own.
    let mut console = editing("a\u{200b}b");
    console.press("l x");
    assert_eq!(console.edited_text(), "ab");
}

#[test]
fn palette_name_in_full_runs_from_the_command_line() {
    let mut console = editing(TEXT);
    let mut run = |typed: &str| {
        console.press(":");
        console.type_line(typed);
        let effects = console.press("Enter");
        (effects, console.model.overlay.take().is_some())
    };
    let light = [Effect::LoadTheme("light".to_string())];
    for typed in ["theme light", " theme light "] {
        assert_eq!(run(typed), (light.to_vec(), false), "{typed}");
    }
    // Of a part the palette shows what it may mean.
    assert_eq!(run("theme"), (Vec::new(), true));
}
