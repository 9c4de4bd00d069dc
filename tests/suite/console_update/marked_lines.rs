//! Marked lines of the scratch: the keys that mark them, and their uses.

use std::path::PathBuf;

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::agent::marked_lines::MarkedLines;

use crate::console_fixture::{TestConsole, fleet_of_four};

const BASELINE: &[u8] = b"# Rules\n---\n";
const MEMORY: &[u8] = b"# Rules\n---\none\ntwo\nthree\nfour\n";

/// A console that shows the scratch of `charlie`: lines 3 to 6 of its memory.
fn console_with_scratch() -> TestConsole {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 24));
    console.press("d");
    console.load_texts("charlie", MEMORY, Some(BASELINE));
    console.press("Tab");
    console
}

/// Numbers of the marked lines of `charlie`.
fn marked_numbers(console: &TestConsole) -> Vec<usize> {
    let marked = console.model.agent.marked_lines_of("charlie");
    let lines = marked.into_iter().flat_map(MarkedLines::iter);
    lines.filter_map(|line| line.new_number).collect()
}

#[test]
fn keys_mark_lines_ranges_and_none() {
    let mut console = console_with_scratch();
    console.press("Space");
    assert_eq!(marked_numbers(&console), [3]);
    console.press("j v");
    assert_eq!(marked_numbers(&console), [3, 4, 5]);
    console.press("k Space");
    assert_eq!(marked_numbers(&console), [3, 5]);
    let screen = console.screen_text();
    assert!(screen.contains("[Scratch 40, 2 marked]"), "{screen}");
    assert!(screen.contains(" *     3 one"), "{screen}");
    assert!(screen.contains(">*     5 three"), "{screen}");
    console.press("a");
    assert_eq!(marked_numbers(&console), [3, 4, 5, 6]);
    console.press("A");
    assert!(marked_numbers(&console).is_empty());
    console.press("A");
    assert_eq!(
        console.message_text(),
        "no marked lines; Space in the scratch tab marks one"
    );
}

#[test]
fn text_that_is_not_shown_is_not_marked() {
    let mut console = console_with_scratch();
    let unshown = [MEMORY, &[b'x'; 300_000][..], b"\nlast\n"].concat();
    console.load_texts("charlie", &unshown, Some(BASELINE));
    console.press("a");
    assert_eq!(marked_numbers(&console), [3, 4, 5, 6]);
    let why = "text that is not shown cannot be marked; a push that keeps all scratch keeps it";
    assert_eq!(console.message_text(), why);
    console.press("A j j j j Space");
    assert!(marked_numbers(&console).is_empty());
    assert_eq!(console.message_text(), why);
}

#[test]
fn lines_are_marked_only_where_cursor_shows() {
    let mut console = console_with_scratch();
    console.press("f Space");
    assert_eq!(
        console.message_text(),
        "lines are not marked in full screen; f leaves it"
    );
    console.press("f S-Tab Space");
    assert_eq!(
        console.message_text(),
        "lines are marked in the scratch tab; Tab goes there"
    );
    for (tabs, keys) in [
        ("Tab Tab", "S-Tab goes"),
        ("Tab", "S-Tab twice goes"),
        ("Tab", "Tab 3 times goes"),
        ("Tab", "Tab twice goes"),
    ] {
        console.press(tabs);
        console.press("Space");
        let text = format!("lines are marked in the scratch tab; {keys} there");
        assert_eq!(console.message_text(), text);
    }
    assert!(marked_numbers(&console).is_empty());
}

#[test]
fn cursor_starts_on_first_note() {
    let mut console = fleet_of_four();
    console.press("d");
    let memory = b"# Rules\n---\n\n# Notes\n\none\ntwo\n";
    console.load_texts("charlie", memory, Some(BASELINE));
    console.press("Tab Space");
    assert_eq!(marked_numbers(&console), [6]);
}

#[test]
fn blank_lines_alone_are_not_marked() {
    let mut console = fleet_of_four();
    console.press("d");
    console.load_texts("charlie", b"# Rules\n---\none\n\ntwo\n", Some(BASELINE));
    console.press("Tab j Space");
    assert!(marked_numbers(&console).is_empty());
    assert!(
        console
            .message_text()
            .starts_with("blank lines are marked only")
    );
    console.press("k k Space Space");
    assert_eq!(marked_numbers(&console), [3, 4]);
    // The blank line goes with the last other one.
    console.press("k k Space");
    assert!(marked_numbers(&console).is_empty());
}

#[test]
fn marked_lines_follow_memory_and_survive_screens() {
    let mut console = console_with_scratch();
    console.press("j Space Space ] [ Tab Tab Tab Tab Tab Tab");
    console.load_texts(
        "charlie",
        b"# Rules\n---\nzero\none\ntwo\nthree!\nfour\n",
        Some(BASELINE),
    );
    assert_eq!(marked_numbers(&console), [5]);
    assert_eq!(
        console.message_text(),
        "charlie: 1 marked line changed, so no longer marked"
    );
}

#[test]
fn search_moves_cursor_to_hit() {
    let mut console = console_with_scratch();
    console.press("/ t h r Enter Space");
    assert_eq!(marked_numbers(&console), [5]);
}

#[test]
fn marked_lines_are_copied_and_saved() {
    let mut console = console_with_scratch();
    console.press("Space j Space");
    let effects = console.press("yl");
    let [Effect::CopyToClipboard(clip)] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(clip.text, "one\nthree\n");
    assert_eq!(clip.description, "2 marked lines");
    console.press("W");
    console.type_line("~/kept notes.md");
    let saved = console.press("Enter");
    let path = PathBuf::from("~/kept notes.md");
    assert_eq!(saved, [Effect::SaveLines(path, b"one\nthree\n".to_vec())]);
    console.press("W");
    assert_eq!(console.press("Enter"), []);
    assert_eq!(console.message_text(), "not saved: no file was named");
}
