//! One agent: two sides, context, blanks, the text alone, facts and history.

use memory_shepherd::console::markdown::Markdown;
use memory_shepherd::console::text;
use memory_shepherd::console::theme::Role;
use memory_shepherd::engine::{Passed, Side};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::*;
use crate::console_fleet::history;

/// Opens the agent that has drifted.
fn drifted(console: &mut Console) {
    reading(
        console,
        "code-reviewer",
        &memory(edited, NOTES),
        Some(BASELINE),
    );
}

#[test]
fn agent_in_one_piece() {
    picture("agent_unified", |console| {
        drifted(console);
        console.press("t");
    });
}

#[test]
fn agent_on_two_sides_without_colours() {
    let mut console = herd();
    console.model.word_marks = true;
    drifted(&mut console);
    console.press("/");
    console.type_line("handbook");
    console.press("Enter");
    insta::assert_snapshot!("agent_sides_mono_120x36", drawn(&console, MONO));
}

#[test]
fn agent_with_hidden_characters_on_two_sides() {
    let hide = |text: String| {
        let longer = format!("3. \u{200b}{} ", "pypal\u{ad} ".repeat(20));
        text.replacen("1. ", "1. \u{202e}\u{200b}\x1b[31m ", 1)
            .replacen("3. ", &longer, 1)
    };
    picture("agent_sides_hidden", |console| {
        let text = memory(hide, NOTES);
        reading(console, "code-reviewer", &text, Some(BASELINE));
    });
}

#[test]
fn agent_with_less_context_and_with_all() {
    picture("agent_changes_alone", |console| {
        drifted(console);
        console.press("_ _");
    });
    picture("agent_all_lines", |console| {
        drifted(console);
        console.press("= = = =");
    });
}

#[test]
fn agent_whose_blanks_are_ignored() {
    let blanks = |text: String| edited(text).replace(". ", ".  ").replace("\n## ", "\n##\t");
    picture("agent_blanks", |console| {
        let text = memory(blanks, NOTES);
        reading(console, "code-reviewer", &text, Some(BASELINE));
        console.press("i");
    });
}

#[test]
fn agent_whose_text_has_the_screen_for_itself() {
    picture("agent_full_diff", |console| {
        drifted(console);
        console.press("f");
    });
    picture("agent_full_scratch", |console| {
        drifted(console);
        console.press("Tab f");
    });
}

#[test]
fn agent_facts() {
    picture("agent_facts", |console| {
        drifted(console);
        console.press("Tab Tab");
    });
}

/// Opens the history of the agent that has drifted.
fn looking_back(console: &mut Console) {
    drifted(console);
    console.press("S-Tab");
    let name = "code-reviewer".to_string();
    console.send(Msg::History(name, Ok(history())));
}

#[test]
fn agent_history() {
    picture("agent_history", |console| {
        looking_back(console);
        console.press("j j");
    });
    picture("agent_history_failed", |console| {
        looking_back(console);
        console.press("j j j");
    });
    picture("agent_history_empty", |console| {
        looking_back(console);
        let name = "code-reviewer".to_string();
        console.send(Msg::History(name, Ok(Vec::new())));
    });
    picture("agent_history_broken", |console| {
        looking_back(console);
        let why = "the ledger's chain is broken at record 7".to_string();
        console.send(Msg::History("code-reviewer".to_string(), Err(why)));
    });
    picture("agent_history_waiting", |console| {
        drifted(console);
        console.press("S-Tab");
    });
}

#[test]
fn agent_before_and_after_a_past_run() {
    let open = |console: &mut Console, before: Side| {
        looking_back(console);
        console.press("j j Enter");
        let after = Side::Text(BASELINE.to_vec(), 0);
        let text = text::passed(&Passed { before, after }, None);
        console.send(Msg::Passed("code-reviewer".to_string(), 7, Ok(text)));
    };
    picture("agent_past", |console| {
        open(console, Side::Text(memory(edited, NOTES), 0));
    });
    picture("agent_past_created", |console| open(console, Side::Absent));
    picture("agent_past_gone", |console| {
        let why = "run 00000007 cannot be undone: its entry was deleted by retention";
        open(console, Side::Gone(why.to_string()));
    });
    picture("agent_past_waiting", |console| {
        looking_back(console);
        console.press("Enter");
    });
}

#[test]
fn colours_change_no_letter_and_no_changed_line() {
    let mut console = herd();
    drifted(&mut console);
    console.press("Tab");
    let plain = drawn(&console, "terminal");
    let tones = Markdown::load().tones(&memory(edited, NOTES), &|| true);
    let generation = console.model.agent.generation;
    let name = "code-reviewer".to_string();
    // Those of another text are not taken.
    console.send(Msg::Tones(name.clone(), generation + 1, tones.clone()));
    assert!(
        console
            .model
            .agent
            .scratch
            .lines
            .iter()
            .all(|line| line.tones.is_empty())
    );
    console.send(Msg::Tones(name, generation, tones));
    assert_eq!(drawn(&console, "terminal"), plain);
    let (theme, size) = (Theme::named("terminal").unwrap(), console.model.size);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    view::draw(&console.model, &theme, &mut buffer);
    let heading = (3..30)
        .find(|row| buffer[(8, *row)].symbol() == "#")
        .unwrap();
    let (cell, style) = (&buffer[(8, heading)], theme.style(Role::MarkdownHeading));
    assert_eq!(
        (Some(cell.fg), cell.modifier),
        (style.fg, style.add_modifier)
    );
    let lines = &console.model.agent.diff.lines;
    assert!(lines.iter().any(|line| !line.tones.is_empty()));
    let changed = lines.iter().filter(|line| line.kind.is_changed());
    assert!(changed.clone().count() > 0);
    for line in changed {
        assert!(line.tones.is_empty(), "{line:?}");
    }
    // A text that came anew keeps them until its own come.
    console.texts(
        "code-reviewer",
        &memory(edited, "\n## Today\n- more\n"),
        Some(BASELINE),
    );
    assert!(
        console
            .model
            .agent
            .scratch
            .lines
            .iter()
            .any(|line| !line.tones.is_empty())
    );
}
