//! One agent: its states, two sides, context, blanks, the text alone, facts and history.

use std::time::Duration;

use memory_shepherd::console::markdown::MarkdownHighlighter;
use memory_shepherd::console::text;
use memory_shepherd::console::theme::{MONOCHROME_THEME, Role, Theme};
use memory_shepherd::console::update::Msg;
use memory_shepherd::console::view;
use memory_shepherd::engine::{RunDiff, RunDiffSide, State};
use memory_shepherd::untrusted::HiddenCounts;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Console, SIZES, drawn, herd, picture};
use crate::console_fleet::{history, seen};

pub const BASELINE: &[u8] = include_bytes!("../../../baselines/code-reviewer-MEMORY.md");

/// What the agent made of its baseline, with notes below.
pub fn memory(edit: impl Fn(String) -> String, notes: &str) -> Vec<u8> {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    (edit(text) + notes).into_bytes()
}

pub const NOTES: &str =
    "\n## Today\n- LH-12 waits for CI\n- asked the platform lead about the lock\n";

pub fn edited(text: String) -> String {
    text.replacen("1. ", "1. Perhaps: ", 1)
        .replacen("4. Label", "4. Never label", 1)
}

/// Opens an agent with such a memory.
pub fn reading(console: &mut Console, name: &str, memory: &[u8], baseline: Option<&[u8]>) {
    console.open(name, memory, baseline);
    console.pass(Duration::from_secs(1));
}

/// Opens the agent that has drifted.
pub fn drifted(console: &mut Console) {
    reading(
        console,
        "code-reviewer",
        &memory(edited, NOTES),
        Some(BASELINE),
    );
}

/// Opens one that has only written notes.
fn intact(console: &mut Console) {
    reading(
        console,
        "docs-writer",
        &memory(|text| text, NOTES),
        Some(BASELINE),
    );
}

/// Pictures of an agent that was opened, and keys pressed.
fn pressed(name: &str, open: impl Fn(&mut Console), keys: &str) {
    picture(name, |console| {
        open(console);
        console.press(keys);
    });
}

#[test]
fn agent_that_has_drifted() {
    picture("agent_drifted", drifted);
}

#[test]
fn agent_that_has_drifted_without_colours() {
    for (columns, rows) in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(columns, rows));
        console.model.has_word_marks = true;
        drifted(&mut console);
        let name = format!("agent_drifted_mono_{columns}x{rows}");
        insta::assert_snapshot!(name, drawn(&console, MONOCHROME_THEME));
    }
}

#[test]
fn agent_that_is_intact() {
    picture("agent_intact", intact);
}

#[test]
fn agent_that_is_clean() {
    picture("agent_clean", |console| {
        let mut clean = seen("android-17", State::Clean);
        clean.content.as_mut().unwrap().scratch_bytes = 0;
        console.observe(vec![clean]);
        reading(console, "android-17", BASELINE, Some(BASELINE));
    });
}

#[test]
fn agent_without_a_boundary() {
    picture("agent_nosep", |console| {
        let log = "# Session log\n".to_string() + &"- something happened\n".repeat(40);
        reading(console, "log-digger", log.as_bytes(), Some(BASELINE));
    });
}

#[test]
fn agent_that_writes_too_much() {
    picture("agent_oversize", |console| {
        let notes = "- the same as yesterday\n".repeat(900);
        reading(
            console,
            "researcher",
            &memory(|text| text, &notes),
            Some(BASELINE),
        );
    });
}

#[test]
fn agent_that_cannot_be_read() {
    picture("agent_error", |console| {
        reading(console, "inbox-scout", b"", Some(BASELINE));
    });
}

#[test]
fn agent_without_a_baseline() {
    picture("agent_tampered", |console| {
        reading(console, "billing-bot", &memory(|text| text, NOTES), None);
    });
}

#[test]
fn agent_whose_baseline_was_tampered_with() {
    picture("agent_baseline", |console| {
        console.press("gg Enter");
        console.texts("billing-bot", &memory(|text| text, NOTES), None);
        console.pass(Duration::from_secs(1));
    });
    for size in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(size.0, size.1));
        let shown = drawn(&console, "terminal");
        assert!(
            shown.contains(" Enter shows what differs from the last version"),
            "{shown}"
        );
        console.press("gg Enter");
        console.texts("billing-bot", &memory(|text| text, NOTES), None);
        let shown = drawn(&console, "terminal");
        for told in [
            "uid 1004",
            "written 2026-02-12",
            "changed 2026-03-14",
            "billing-bot-eu",
        ] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
        assert!(shown.contains("when in a hurry‹U+200B›"), "{shown}");
        assert!(shown.contains("without approval"), "{shown}");
    }
}

#[test]
fn agent_whose_texts_are_on_their_way() {
    picture("agent_waiting", |console| {
        console.press("j d");
    });
}

#[test]
fn agent_scratch() {
    pressed("agent_scratch", intact, "Tab");
}

#[test]
fn agent_that_is_searched() {
    picture("agent_search", |console| {
        intact(console);
        console.press("/");
        console.type_line("never");
    });
    picture("agent_searched", |console| {
        intact(console);
        console.press("/");
        console.type_line("never");
        console.press("Enter");
    });
}

#[test]
fn agent_with_hidden_characters() {
    let hide = |text: String| {
        text.replacen("1. ", "1. \u{202e}\u{200b}\x1b[31m ", 1)
            .replacen("3. ", "3. \u{e0069}\u{e0067} p\u{430}ypal \u{ad}", 1)
    };
    let notes = "tab\there\r\nno utf-8: ";
    let mut hidden = memory(hide, notes);
    hidden.extend(b"\xff\xfe\n");
    picture("agent_hidden", |console| {
        let mut found = seen("code-reviewer", State::Drifted);
        found.content.as_mut().unwrap().hidden = HiddenCounts {
            invisible: 5,
            controls: 1,
            invalid: 2,
            escapes: 1,
        };
        console.observe(vec![found]);
        reading(console, "code-reviewer", &hidden, Some(BASELINE));
    });
    picture("agent_revealed", |console| {
        reading(console, "code-reviewer", &hidden, Some(BASELINE));
        console.press(". Tab");
    });
}

#[test]
fn agent_without_wrapping() {
    pressed("agent_unwrapped", drifted, "w n");
}

#[test]
fn agent_that_writes_while_one_reads() {
    picture("agent_grown", |console| {
        let notes: String = (1..60).map(|n| format!("- note {n}\n")).collect();
        let text = memory(|text| text, &notes);
        reading(console, "docs-writer", &text, Some(BASELINE));
        console.press("Tab ^d ^d");
        let more = format!("- first of all\n- and then\n{notes}");
        console.texts("docs-writer", &memory(|text| text, &more), Some(BASELINE));
    });
}

#[test]
fn agent_in_one_piece() {
    pressed("agent_unified", drifted, "t");
}

#[test]
fn agent_on_two_sides_without_colours() {
    let mut console = herd();
    console.model.has_word_marks = true;
    drifted(&mut console);
    console.press("/");
    console.type_line("handbook");
    console.press("Enter");
    insta::assert_snapshot!("agent_sides_mono_120x36", drawn(&console, MONOCHROME_THEME));
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
fn every_space_of_a_text_is_marked_and_none_of_ours() {
    let mut console = herd();
    drifted(&mut console);
    console.press(".");
    let shown = drawn(&console, "terminal");
    assert!(shown.contains("##·Critical·Rules"), "{shown}");
    assert!(shown.contains("1.·Perhaps:·Comment·on·a·line"), "{shown}");
    assert!(
        shown.contains("equal lines") && shown.contains("below: agent scratch"),
        "{shown}"
    );
    console.press(".");
    assert!(drawn(&console, "terminal").contains("## Critical Rules"));
}

#[test]
fn whitespace_marks_leave_facts_alone() {
    let mut console = herd();
    drifted(&mut console);
    console.press("Tab Tab");
    let plain = drawn(&console, "terminal");
    console.press("S-Tab . Tab");
    assert_eq!(drawn(&console, "terminal"), plain);
    console.press(".");
    assert!(
        console.said().starts_with("reveal: facts"),
        "{}",
        console.said()
    );
}

#[test]
fn sealing_command_is_shown_whole() {
    for (columns, wrap) in [(80, ""), (80, "w"), (120, "w")] {
        let mut console = herd();
        console.send(Msg::Resized(columns, 36));
        console.press("gg Enter");
        console.texts("billing-bot", &memory(|text| text, NOTES), None);
        if !wrap.is_empty() {
            console.press(wrap);
        }
        let shown = drawn(&console, "terminal");
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = "cd /etc/memory-shepherd/baselines && sha256sum -- *.md > .checksums";
        assert!(words.contains(command), "{shown}");
    }
}

#[test]
fn agent_with_less_context_and_with_all() {
    pressed("agent_changes_alone", drifted, "_ _");
    pressed("agent_all_lines", drifted, "= = = =");
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
    pressed("agent_full_diff", drifted, "f");
    pressed("agent_full_scratch", drifted, "Tab f");
}

#[test]
fn agent_facts() {
    pressed("agent_facts", drifted, "Tab Tab");
}

/// Opens the history of the agent that has drifted.
fn looking_back(console: &mut Console) {
    drifted(console);
    console.press("S-Tab");
    let name = "code-reviewer".to_string();
    console.send(Msg::HistoryLoaded(name, Ok(history())));
}

#[test]
fn agent_history() {
    pressed("agent_history", looking_back, "j j");
    pressed("agent_history_failed", looking_back, "j j j");
    picture("agent_history_empty", |console| {
        looking_back(console);
        let name = "code-reviewer".to_string();
        console.send(Msg::HistoryLoaded(name, Ok(Vec::new())));
    });
    picture("agent_history_broken", |console| {
        looking_back(console);
        let why = "the ledger's chain is broken at record 7".to_string();
        console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Err(why)));
    });
    pressed("agent_history_waiting", drifted, "S-Tab");
}

#[test]
fn history_tells_the_whole_reason_of_a_refusal() {
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    drifted(&mut console);
    console.press("S-Tab");
    let mut refused = history();
    refused[0].record.event.note = Some(
        "/srv/agents/code-reviewer/workspace/MEMORY.md is a directory, and no record says that \
         a file ever stood there"
            .to_string(),
    );
    console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Ok(refused)));
    let shown = drawn(&console, "terminal");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = "is a directory, and no record says that a file ever stood there";
    assert!(words.contains(reason), "{shown}");
}

#[test]
fn history_shows_the_scratch_that_was_counted() {
    let mut console = herd();
    drifted(&mut console);
    console.press("S-Tab");
    let mut counted = history();
    counted[0].record.event.scratch_lines = Some(4711);
    console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Ok(counted)));
    let shown = drawn(&console, "terminal");
    let row = shown.lines().find(|row| row.starts_with('>')).unwrap();
    assert!(row.contains(" 4711 "), "{shown}");
}

#[test]
fn agent_before_and_after_a_past_run() {
    let open = |console: &mut Console, before: RunDiffSide| {
        looking_back(console);
        console.press("j j Enter");
        let after = RunDiffSide::Text(BASELINE.to_vec(), 0);
        let text = text::prepare_run_diff(&RunDiff { before, after }, None);
        console.send(Msg::RunDiffPrepared(
            "code-reviewer".to_string(),
            7,
            Ok(text),
        ));
    };
    picture("agent_past", |console| {
        open(console, RunDiffSide::Text(memory(edited, NOTES), 0));
    });
    picture("agent_past_created", |console| {
        open(console, RunDiffSide::Absent)
    });
    picture("agent_past_gone", |console| {
        let why = "run 00000007 cannot be undone: its entry was deleted by retention";
        open(console, RunDiffSide::Unavailable(why.to_string()));
    });
    pressed("agent_past_waiting", looking_back, "Enter");
}

#[test]
fn colours_change_no_letter_and_no_changed_line() {
    let mut console = herd();
    drifted(&mut console);
    console.press("Tab");
    let plain = drawn(&console, "terminal");
    let tones = MarkdownHighlighter::load().line_tones(&memory(edited, NOTES), &|| true);
    let generation = console.model.agent.generation;
    let name = "code-reviewer".to_string();
    // Those of another text are not taken.
    console.send(Msg::TonesPrepared(
        name.clone(),
        generation + 1,
        tones.clone(),
    ));
    assert!(
        console
            .model
            .agent
            .scratch
            .lines
            .iter()
            .all(|line| line.tones.is_empty())
    );
    console.send(Msg::TonesPrepared(name, generation, tones));
    assert_eq!(drawn(&console, "terminal"), plain);
    let (theme, size) = (Theme::built_in("terminal").unwrap(), console.model.size);
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
