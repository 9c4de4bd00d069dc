//! Lines of a scratch that are promoted into a baseline: where they go, and what they must not do.

use memory_shepherd::base::untrusted::{HiddenCounts, count_hidden};
use memory_shepherd::boundary::Baseline;
use memory_shepherd::console::command::KeyContext;
use memory_shepherd::console::message::{Effect, Msg, SavedText};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::editor::buffer::TextBuffer;
use memory_shepherd::console::screens::editor::buffer::replacement::insert_lines;
use memory_shepherd::console::screens::editor::promotion::{Insertion, PromotedLines};
use memory_shepherd::engine::{OpenedBaseline, SealMatch};
use proptest::prelude::*;

use crate::console_fixture::{TestConsole, fleet_of_four, left_draft, one_draft, opened_baseline};

const NAME: &str = "charlie-MEMORY.md";
const TEXT: &str = "# Rules\n\n- be kind\n\n---\nscratch starts here\n";

/// A console that shows a scratch of `charlie`.
fn console_with_scratch(scratch: &str) -> TestConsole {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 24));
    console.press("d");
    let memory = format!("# Rules\n---\n{scratch}");
    console.load_texts("charlie", memory.as_bytes(), Some(b"# Rules\n---\n"));
    console.press("Tab");
    console
}

fn opened(text: &str) -> OpenedBaseline {
    opened_baseline(&["charlie"], text.as_bytes())
}

/// Promotes with the key, and delivers the baseline.
fn promote(console: &mut TestConsole, opened: OpenedBaseline) {
    let request = Effect::OpenBaseline(NAME.to_string());
    assert_eq!(console.press("p"), [request]);
    let reply = Msg::BaselineOpened(NAME.to_string(), Ok(Box::new(opened)));
    console.send(reply);
}

#[test]
fn marked_lines_are_inserted_above_the_separator() {
    let mut console = console_with_scratch("- one\n- two\n- three\n");
    console.press("Space j Space");
    promote(&mut console, opened(TEXT));
    assert_eq!(
        console.edited_text(),
        "# Rules\n\n- be kind\n- one\n- three\n\n---\nscratch starts here\n"
    );
    assert_eq!(console.model.key_context(), KeyContext::EditorSelection);
    assert!(console.editor().is_modified);
    let screen = console.screen_text();
    assert!(screen.contains("2 lines of charlie inserted"), "{screen}");
    assert!(
        !console
            .effects
            .iter()
            .any(|it| matches!(it, Effect::SaveText(_)))
    );
    // One undo takes them back, and leads back to the scratch.
    console.press("Esc u");
    assert_eq!(console.edited_text(), TEXT);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Agent);
}

/// Answers a save of the baseline with this text.
fn save(console: &mut TestConsole, text: &str) {
    let saved = SavedText {
        run: "5a7e".to_string(),
        bytes: text.as_bytes().to_vec(),
        seal: Ok(SealMatch::Sealed),
        remarks: Vec::new(),
        problems: Vec::new(),
        is_refused: false,
    };
    console.send(Msg::TextSaved(NAME.to_string(), Ok(Box::new(saved))));
}

#[test]
fn save_unmarks_promoted_lines() {
    let marked = |console: &TestConsole| {
        let marked = console.model.agent.marked_lines_of("charlie");
        marked.map_or(0, |marked| marked.len())
    };
    let mut console = console_with_scratch("- one\n- two\n- three\n");
    console.press("Space j Space");
    promote(&mut console, opened(TEXT));
    assert_eq!(marked(&console), 2, "nothing is saved yet");
    let text = console.edited_text();
    save(&mut console, &text);
    assert_eq!(marked(&console), 0);
    // Lines that were taken back stay marked.
    let mut console = console_with_scratch("- one\n- two\n- three\n");
    console.press("Space j Space");
    promote(&mut console, opened(TEXT));
    console.press("Esc u");
    save(&mut console, TEXT);
    assert_eq!(marked(&console), 2);
}

#[test]
fn line_under_cursor_is_promoted_without_marks() {
    let mut console = console_with_scratch("- one\n- two\n");
    console.press("j");
    promote(&mut console, opened("- be kind\n---\n"));
    // Right below a paragraph, dashes would make it a heading.
    assert_eq!(console.edited_text(), "- be kind\n- two\n\n---\n");
}

#[test]
fn promoted_lines_are_moved_as_whole_lines() {
    let mut console = console_with_scratch("- one\n- two\n");
    console.press("a");
    promote(&mut console, opened(TEXT));
    console.press("d gg p");
    assert_eq!(
        console.edited_text(),
        "# Rules\n- one\n- two\n\n- be kind\n\n---\nscratch starts here\n"
    );
}

#[test]
fn separator_line_is_not_promoted() {
    let mut console = console_with_scratch("- one\n---\n- two\n");
    console.press("a");
    promote(&mut console, opened(TEXT));
    assert_eq!(console.edited_text(), TEXT);
    assert!(
        console
            .message_text()
            .starts_with("not promoted: a line is the separator ---")
    );
}

#[test]
fn open_code_block_is_not_promoted() {
    let mut console = console_with_scratch("```\n- one\n");
    promote(&mut console, opened(TEXT));
    assert_eq!(console.edited_text(), TEXT);
    assert!(
        console
            .message_text()
            .starts_with("not promoted: the lines would hide the separator ---")
    );
}

#[test]
fn hidden_characters_are_promoted_as_marks() {
    let mut console = console_with_scratch("- \u{202e}obey\u{1b}[2J\r\n");
    promote(&mut console, opened(TEXT));
    let text = console.edited_text();
    assert_eq!(count_hidden(text.as_bytes()), HiddenCounts::default());
    assert!(text.contains("‹U+202E›obey"), "{text}");
    assert!(
        console
            .message_text()
            .contains("hidden characters are visible marks now")
    );
}

#[test]
fn lines_wait_until_the_draft_is_decided() {
    let mut console = console_with_scratch("- one\n");
    let mut baseline = opened(TEXT);
    let draft = format!("- draft\n{TEXT}");
    baseline.drafts = one_draft(&left_draft(draft.as_bytes(), TEXT.as_bytes()));
    promote(&mut console, baseline);
    assert_eq!(console.edited_text(), TEXT);
    assert!(
        console
            .message_text()
            .contains("once this question is answered")
    );
    console.press("r");
    assert!(console.edited_text().starts_with("- draft\n# Rules\n"));
    assert!(console.edited_text().contains("- be kind\n- one\n\n---\n"));
}

#[test]
fn lines_join_an_edit_that_is_under_way() {
    let mut console = console_with_scratch("- one\n");
    promote(&mut console, opened(TEXT));
    console.press("Esc -");
    assert_eq!(console.model.screen, Screen::Agent);
    assert_eq!(console.press("p").len(), 1, "more than an analysis");
    assert!(
        console
            .edited_text()
            .contains("- be kind\n- one\n- one\n\n---\n")
    );
}

#[test]
fn tampered_baseline_takes_no_lines() {
    let mut console = console_with_scratch("- one\n");
    let mut baseline = opened(TEXT);
    baseline.seal = SealMatch::Mismatch("it does not match its seal".to_string());
    promote(&mut console, baseline);
    assert_eq!(console.edited_text(), TEXT);
    assert!(
        console
            .message_text()
            .starts_with("not promoted: read-only")
    );
}

proptest! {
    /// Whatever an agent wrote: the baseline is cut at the same line as before, and hides nothing
    /// that it did not hide.
    #[test]
    fn promotion_never_moves_the_separator(
        text in "(# a\n|b\n|\n|---\n|\\| c \\|\n|```\n|~~~\n|<!--\n|-->\n|  ---\n){0,10}(--- \n)?",
        lines in proptest::collection::vec(
            proptest::sample::select(vec![
                "a", "", "---", "--- ", " ---", "----", "- - -", "***", "```", "~~~", "````", "<!--",
                "<pre>", "| a |", "===", "    x", "\u{200b}---", "---\u{200b}", "\u{1b}---", "---\r",
            ]),
            1..6,
        ),
    ) {
        let promoted = PromotedLines {
            agent: "charlie".to_string(),
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        };
        let mut buffer = TextBuffer::from_bytes(text.as_bytes()).unwrap();
        if let Ok(insertion) = Insertion::plan(&buffer, &promoted, &["---"]) {
            insert_lines(&mut buffer, insertion.row, &insertion.text_lines());
            let [before, after] = [text.into_bytes(), buffer.to_bytes()]
                .map(|bytes| Baseline::new(bytes, "---"));
            prop_assert_eq!(before.tail(), after.tail());
            let [old, new] = [&before, &after].map(Baseline::separator_line);
            prop_assert_eq!(old.is_some(), new.is_some());
            prop_assert_eq!(count_hidden(after.bytes()), HiddenCounts::default());
        }
    }
}
