//! Motions over more than a few lines: pages, jumps, and where whole-text replacements leave the
//! cursor.

use super::*;
use memory_shepherd::console::screens::editor::layout::text_width;
use memory_shepherd::console::screens::page_rows;

/// Paragraphs that wrap, with a line that is longer than a screen among them.
fn long_text() -> String {
    let paragraph = "- One rule with a few words more. ".repeat(12);
    let mut lines: Vec<String> = (1..=30).map(|it| format!("{it} {paragraph}")).collect();
    lines.insert(9, "word ".repeat(820));
    lines.join("\n\n") + "\n---\n"
}

/// Returns how many rows of the wrapped text are above a row.
fn rows_above(console: &TestConsole, (line, row): (usize, usize)) -> usize {
    let width = text_width(console.model.size.0);
    let rows = |line| console.editor().layout(line, width).rows.len();
    (0..line).map(rows).sum::<usize>() + row
}

#[test]
fn pages_show_each_row_of_wrapped_text() {
    for (down, up) in [("PgDn", "PgUp"), ("^d", "^u"), ("i PgDn Esc", "i PgUp Esc")] {
        let mut console = editing(&long_text());
        let height = page_rows(&console.model);
        let last = console.editor().buffer.lines().len() - 1;
        let end = rows_above(&console, (last, 0)) + 1;
        let mut tops = vec![0];
        while tops.last().unwrap() + height < end {
            console.press(down);
            let top = rows_above(&console, console.editor().top);
            let by = top - tops.last().unwrap();
            assert!(by > 0 && by < height, "{down}: {tops:?}, then {top}");
            tops.push(top);
        }
        assert!(tops.len() < 3 * end / height, "{down}: {tops:?}");
        console.press(&[down; 3].join(" "));
        assert_eq!(console.editor().buffer.cursor().0, last, "{down}");
        for _ in 0..=tops.len() {
            console.press(up);
        }
        assert_eq!(console.editor().top, (0, 0), "{up}");
        assert_eq!(console.editor().buffer.cursor().0, 0, "{up}");
    }
}

#[test]
fn pages_keep_the_row_of_the_cursor() {
    let mut console = editing(&"a line\n".repeat(200));
    console.press("5 j l l PgDn");
    let height = page_rows(&console.model);
    assert_eq!(console.editor().top, (height - 2, 0));
    assert_eq!(console.editor().buffer.cursor(), (height + 3, 2));
    console.press("^u");
    assert_eq!(console.editor().top, (height - 2 - height / 2, 0));
}

#[test]
fn jump_to_a_hidden_line_shows_lines_around_it() {
    let mut lines: Vec<String> = (1..=200).map(|it| format!("line {it}")).collect();
    lines[39] = "# Heading {Your name}".to_string();
    let text = lines.join("\n");
    for (name, keys) in [
        ("search", "/ { Y o u r Enter"),
        ("next hit", "/ { Y o u r Enter gg n"),
        ("line number", ":40 Enter"),
        ("count", "4 0 G"),
        ("finding", "}"),
        ("panel", "Tab G Enter"),
    ] {
        let mut console = editing(&text);
        analyze(&mut console);
        console.press(keys);
        let (line, height) = (
            console.editor().buffer.cursor().0,
            page_rows(&console.model),
        );
        assert_eq!(line, 39, "{name}: {}", console.message_text());
        assert_eq!(console.editor().top, (39 - height / 3, 0), "{name}");
        // A line on the screen does not scroll.
        let top = console.editor().top;
        console.press(":45 Enter");
        assert_eq!(console.editor().top, top, "{name}");
    }
    // So is one that an undo changes, and not at an edge.
    let mut console = editing(&text);
    console.press("8 0 G dd gg u");
    let height = page_rows(&console.model);
    assert_eq!(console.editor().buffer.cursor(), (79, 0));
    assert_eq!(console.editor().top, (79 - height / 3, 0));
    // The end of the text stays at the bottom.
    let mut console = editing(&text);
    console.press("G");
    let height = page_rows(&console.model);
    assert_eq!(console.editor().top, (200 - height, 0));
}

#[test]
fn first_and_last_line_are_entered_behind_indent() {
    let mut console = editing("  - one\n- two\n\t- three");
    console.press("j $ gg");
    assert_eq!(console.editor().buffer.cursor(), (0, 2));
    console.press("$ G");
    assert_eq!(console.editor().buffer.cursor(), (2, 1));
}

/// Answers the comparison of a save with a file that has changed.
fn ask_about_changed_file(console: &mut TestConsole, theirs: &str) {
    request_save(console, ":w", theirs.as_bytes());
    let dialog = &console.editor().dialog;
    assert!(matches!(dialog, Some(EditorDialog::Changed { .. })));
}

#[test]
fn replaced_text_keeps_the_place_of_the_cursor() {
    let text: String = (1..=80).map(|it| format!("line {it}\n")).collect();
    let theirs = format!("new first line\n{text}");
    for answer in ["t", "m"] {
        let mut console = editing(&text);
        console.press("4 0 G x");
        ask_about_changed_file(&mut console, &theirs);
        console.press(answer);
        if answer == "m" {
            let merged = format!("new first line\n{}", console.edited_text()).into_bytes();
            console.send(Msg::TextsMerged(NAME.to_string(), Ok((merged, true))));
        }
        // The line has moved with the one above it.
        let (row, _) = console.editor().buffer.cursor();
        assert!(row == 39 || row == 40, "{answer}: {row}");
        console.press("u");
        assert_eq!(console.editor().buffer.cursor(), (39, 0), "{answer}");
        console.press("^r");
        assert_eq!(console.editor().buffer.cursor().0, 39, "{answer}");
    }
}
