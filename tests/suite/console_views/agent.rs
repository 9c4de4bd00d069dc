//! Views of one agent: states, two sides, context, blanks, full screen, facts and history.

use std::time::Duration;

use memory_shepherd::base::diff::drift;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::untrusted::HiddenCounts;
use memory_shepherd::console::markdown::MarkdownHighlighter;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::text;
use memory_shepherd::console::theme::{MONOCHROME_THEME, Role, Theme};
use memory_shepherd::console::view;
use memory_shepherd::engine::{FileState, RuleComparison, RunDiff, RunDiffSide, State};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{TERMINAL_SIZES, TestConsole, assert_view, fleet_of_every_state, rendered_text};
use crate::engine_samples::{history_record, observation_of, sample_history};

pub const BASELINE: &[u8] = include_bytes!("../../../baselines/code-reviewer-MEMORY.md");

/// Returns a baseline that the agent edited, with notes below.
pub fn memory_from_baseline(edit: impl Fn(String) -> String, notes: &str) -> Vec<u8> {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    (edit(text) + notes).into_bytes()
}

pub const NOTES: &str =
    "\n## Today\n- LH-12 waits for CI\n- asked the platform lead about the lock\n";

pub fn with_edited_rules(text: String) -> String {
    text.replacen("1. ", "1. Perhaps: ", 1)
        .replacen("2. Flag", "2. Never flag", 1)
}

/// Opens an agent with this memory.
pub fn open_agent(console: &mut TestConsole, name: &str, memory: &[u8], baseline: Option<&[u8]>) {
    console.open_agent(name, memory, baseline);
    console.advance(Duration::from_secs(1));
}

/// Opens the drifted agent.
pub fn open_drifted_agent(console: &mut TestConsole) {
    open_agent(
        console,
        "code-reviewer",
        &memory_from_baseline(with_edited_rules, NOTES),
        Some(BASELINE),
    );
}

/// Opens an agent with notes and no drift.
fn open_intact_agent(console: &mut TestConsole) {
    open_agent(
        console,
        "docs-writer",
        &memory_from_baseline(|text| text, NOTES),
        Some(BASELINE),
    );
}

/// Takes snapshots of an opened agent after some keys.
fn assert_view_after_keys(name: &str, open: impl Fn(&mut TestConsole), keys: &str) {
    assert_view(name, |console| {
        open(console);
        console.press(keys);
    });
}

#[test]
fn drifted_agent_matches_snapshot() {
    assert_view("agent_drifted", open_drifted_agent);
}

#[test]
fn drifted_agent_in_mono_matches_snapshot() {
    for (columns, rows) in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, rows));
        console.model.has_word_marks = true;
        open_drifted_agent(&mut console);
        let name = format!("agent_drifted_mono_{columns}x{rows}");
        insta::assert_snapshot!(name, rendered_text(&console, MONOCHROME_THEME));
    }
}

#[test]
fn intact_agent_matches_snapshot() {
    assert_view("agent_intact", open_intact_agent);
}

#[test]
fn clean_agent_matches_snapshot() {
    assert_view("agent_clean", |console| {
        let mut clean = observation_of("android-17", State::Clean);
        clean.content.as_mut().unwrap().scratch_bytes = 0;
        console.observe(vec![clean]);
        open_agent(console, "android-17", BASELINE, Some(BASELINE));
    });
}

#[test]
fn agent_without_boundary_matches_snapshot() {
    assert_view("agent_nosep", |console| {
        let log = "# Session log\n".to_string() + &"- something happened\n".repeat(40);
        open_agent(console, "log-digger", log.as_bytes(), Some(BASELINE));
    });
}

#[test]
fn oversize_agent_matches_snapshot() {
    assert_view("agent_oversize", |console| {
        let notes = "- the same as yesterday\n".repeat(900);
        open_agent(
            console,
            "researcher",
            &memory_from_baseline(|text| text, &notes),
            Some(BASELINE),
        );
    });
}

#[test]
fn unreadable_agent_matches_snapshot() {
    assert_view("agent_error", |console| {
        open_agent(console, "inbox-scout", b"", Some(BASELINE));
    });
}

#[test]
fn tampered_agent_matches_snapshot() {
    assert_view("agent_tampered", |console| {
        open_agent(
            console,
            "billing-bot",
            &memory_from_baseline(|text| text, NOTES),
            None,
        );
    });
}

#[test]
fn tampered_baseline_diff_matches_snapshot() {
    assert_view("agent_baseline", |console| {
        console.press("gg 2");
        console.load_texts(
            "billing-bot",
            &memory_from_baseline(|text| text, NOTES),
            None,
        );
        console.advance(Duration::from_secs(1));
    });
    for size in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(size.0, size.1));
        let shown = rendered_text(&console, "terminal");
        assert!(
            shown.contains(" Enter shows what differs from the last version"),
            "{shown}"
        );
        console.press("gg 2");
        console.load_texts(
            "billing-bot",
            &memory_from_baseline(|text| text, NOTES),
            None,
        );
        let shown = rendered_text(&console, "terminal");
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
fn agent_with_pending_texts_matches_snapshot() {
    assert_view("agent_waiting", |console| {
        console.press("j d");
    });
}

#[test]
fn agent_scratch_matches_snapshot() {
    assert_view_after_keys("agent_scratch", open_intact_agent, "Tab");
}

#[test]
fn narrow_search_keeps_hit_number_and_drift() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    open_drifted_agent(&mut console);
    console.press("/");
    console.type_line("never");
    console.press("Enter n");
    let shown = rendered_text(&console, "terminal");
    let tabs = shown.lines().nth(1).unwrap();
    assert!(
        tabs.contains("2 of 4") && tabs.contains("+14 -3"),
        "{shown}"
    );
    assert!(shown.lines().next().unwrap().contains("hunk "), "{shown}");
}

#[test]
fn separator_line_is_whole_on_narrow_screens() {
    for columns in [60, 80, 109] {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, 24));
        open_drifted_agent(&mut console);
        console.press("G");
        let shown = rendered_text(&console, "terminal");
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("scratch not compared"), "{shown}");
    }
}

#[test]
fn agent_search_matches_snapshot() {
    assert_view("agent_search", |console| {
        open_intact_agent(console);
        console.press("/");
        console.type_line("never");
    });
    assert_view("agent_searched", |console| {
        open_intact_agent(console);
        console.press("/");
        console.type_line("never");
        console.press("Enter");
    });
}

#[test]
fn agent_with_hidden_characters_matches_snapshot() {
    let hide = |text: String| {
        text.replacen("1. ", "1. \u{202e}\u{200b}\x1b[31m ", 1)
            .replacen("3. ", "3. \u{e0069}\u{e0067} p\u{430}ypal \u{ad}", 1)
    };
    let notes = "tab\there\r\nno utf-8: ";
    let mut hidden = memory_from_baseline(hide, notes);
    hidden.extend(b"\xff\xfe\n");
    assert_view("agent_hidden", |console| {
        let mut found = observation_of("code-reviewer", State::Drifted);
        found.content.as_mut().unwrap().hidden = HiddenCounts {
            invisible: 5,
            controls: 1,
            invalid: 2,
            escapes: 1,
        };
        console.observe(vec![found]);
        open_agent(console, "code-reviewer", &hidden, Some(BASELINE));
    });
    assert_view("agent_revealed", |console| {
        open_agent(console, "code-reviewer", &hidden, Some(BASELINE));
        console.press(". Tab");
    });
}

#[test]
fn unwrapped_agent_matches_snapshot() {
    assert_view_after_keys("agent_unwrapped", open_drifted_agent, "w n");
}

#[test]
fn agent_with_growing_scratch_matches_snapshot() {
    assert_view("agent_grown", |console| {
        let notes: String = (1..60).map(|n| format!("- note {n}\n")).collect();
        let text = memory_from_baseline(|text| text, &notes);
        open_agent(console, "docs-writer", &text, Some(BASELINE));
        console.press("Tab ^d ^d");
        let more = format!("- first of all\n- and then\n{notes}");
        console.load_texts(
            "docs-writer",
            &memory_from_baseline(|text| text, &more),
            Some(BASELINE),
        );
    });
}

#[test]
fn unified_agent_diff_matches_snapshot() {
    assert_view_after_keys("agent_unified", open_drifted_agent, "t");
}

#[test]
fn side_by_side_diff_in_mono_matches_snapshot() {
    let mut console = fleet_of_every_state();
    console.model.has_word_marks = true;
    open_drifted_agent(&mut console);
    console.press("/");
    console.type_line("handbook");
    console.press("Enter");
    insta::assert_snapshot!(
        "agent_sides_mono_120x36",
        rendered_text(&console, MONOCHROME_THEME)
    );
}

#[test]
fn hidden_characters_side_by_side_match_snapshot() {
    let hide = |text: String| {
        let longer = format!("3. \u{200b}{} ", "pypal\u{ad} ".repeat(20));
        text.replacen("1. ", "1. \u{202e}\u{200b}\x1b[31m ", 1)
            .replacen("3. ", &longer, 1)
    };
    assert_view("agent_sides_hidden", |console| {
        let text = memory_from_baseline(hide, NOTES);
        open_agent(console, "code-reviewer", &text, Some(BASELINE));
    });
}

#[test]
fn whitespace_marks_cover_text_but_not_chrome() {
    let mut console = fleet_of_every_state();
    open_drifted_agent(&mut console);
    console.press(".");
    let shown = rendered_text(&console, "terminal");
    assert!(shown.contains("##·Critical·Rules"), "{shown}");
    assert!(shown.contains("1.·Perhaps:·Comment·on·a·line"), "{shown}");
    assert!(
        shown.contains("equal lines") && shown.contains("scratch not compared"),
        "{shown}"
    );
    console.press(".");
    assert!(rendered_text(&console, "terminal").contains("## Critical Rules"));
}

#[test]
fn whitespace_marks_do_not_change_facts() {
    let mut console = fleet_of_every_state();
    open_drifted_agent(&mut console);
    console.press("Tab Tab");
    let plain = rendered_text(&console, "terminal");
    console.press("S-Tab . Tab");
    assert_eq!(rendered_text(&console, "terminal"), plain);
    console.press(".");
    assert!(
        console.message_text().starts_with("facts"),
        "{}",
        console.message_text()
    );
}

#[test]
fn sealing_command_is_shown_whole() {
    for (columns, wrap) in [(80, ""), (80, "w"), (120, "w")] {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, 36));
        console.press("gg 2");
        console.load_texts(
            "billing-bot",
            &memory_from_baseline(|text| text, NOTES),
            None,
        );
        if !wrap.is_empty() {
            console.press(wrap);
        }
        let shown = rendered_text(&console, "terminal");
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = "cd /etc/memory-shepherd/baselines && sha256sum -- *.md > .checksums";
        assert!(words.contains(command), "{shown}");
    }
}

#[test]
fn scratch_with_marked_lines_matches_snapshot() {
    assert_view_after_keys("agent_marked_lines", open_drifted_agent, "Tab Space j j v");
}

#[test]
fn rules_of_three_versions_match_snapshot() {
    assert_view("agent_rules", |console| {
        let pushed = BASELINE;
        let baseline = memory_from_baseline(|text| text.replacen("3. ", "3. Always: ", 1), "");
        let memory = memory_from_baseline(with_edited_rules, "");
        open_drifted_agent(console);
        console.press("S-Tab S-Tab");
        let compared = RuleComparison {
            pushed: Some(Digest::of(pushed)),
            baseline: Digest::of(&baseline),
            has_boundary: true,
            rules: drift::compare_three_ways(pushed, &baseline, &memory, None),
        };
        let rules = text::prepare_rules(&compared);
        console.send(Msg::RulesCompared("code-reviewer".to_string(), rules));
    });
}

#[test]
fn agent_with_less_or_full_context_matches_snapshot() {
    assert_view_after_keys("agent_changes_alone", open_drifted_agent, "_ _");
    assert_view_after_keys("agent_all_lines", open_drifted_agent, "= = = =");
}

#[test]
fn agent_with_ignored_blanks_matches_snapshot() {
    let blanks = |text: String| {
        with_edited_rules(text)
            .replace(". ", ".  ")
            .replace("\n## ", "\n##\t")
    };
    assert_view("agent_blanks", |console| {
        let text = memory_from_baseline(blanks, NOTES);
        open_agent(console, "code-reviewer", &text, Some(BASELINE));
        console.press("i");
    });
}

#[test]
fn full_screen_agent_text_matches_snapshot() {
    assert_view_after_keys("agent_full_diff", open_drifted_agent, "f");
    assert_view_after_keys("agent_full_scratch", open_drifted_agent, "Tab f");
}

#[test]
fn agent_facts_match_snapshot() {
    assert_view_after_keys("agent_facts", open_drifted_agent, "Tab Tab");
}

/// Opens the history of the drifted agent.
fn open_history(console: &mut TestConsole) {
    open_drifted_agent(console);
    console.press("S-Tab");
    let name = "code-reviewer".to_string();
    console.send(Msg::HistoryLoaded(name, Ok(sample_history())));
}

#[test]
fn agent_history_matches_snapshot() {
    assert_view_after_keys("agent_history", open_history, "j j");
    assert_view_after_keys("agent_history_failed", open_history, "j j j");
    assert_view("agent_history_empty", |console| {
        open_history(console);
        let name = "code-reviewer".to_string();
        console.send(Msg::HistoryLoaded(name, Ok(Vec::new())));
    });
    assert_view("agent_history_broken", |console| {
        open_history(console);
        let why = "the ledger's chain is broken at record 7".to_string();
        console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Err(why)));
    });
    assert_view_after_keys("agent_history_waiting", open_drifted_agent, "S-Tab");
}

#[test]
fn history_shows_whole_reason_of_refusal() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    open_drifted_agent(&mut console);
    console.press("S-Tab");
    let mut refused = sample_history();
    refused[0].record.event.note = Some(
        "/srv/agents/code-reviewer/workspace/MEMORY.md is a directory, and the ledger has no \
         record of a file there"
            .to_string(),
    );
    console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Ok(refused)));
    let shown = rendered_text(&console, "terminal");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = "is a directory, and the ledger has no record of a file there";
    assert!(words.contains(reason), "{shown}");
}

#[test]
fn history_of_a_creation_has_no_earlier_size() {
    let mut console = fleet_of_every_state();
    open_drifted_agent(&mut console);
    console.press("S-Tab");
    let created = history_record(1, 10, |event| {
        event.change.before = Some(FileState::Absent);
        event.boundary = None;
    });
    console.send(Msg::HistoryLoaded(
        "code-reviewer".to_string(),
        Ok(vec![created]),
    ));
    let shown = rendered_text(&console, "terminal");
    let charts = |label: &str| shown.lines().find(|row| row.contains(label)).unwrap();
    assert!(charts("size before").ends_with("none"), "{shown}");
    assert!(charts("lines edited").ends_with("none"), "{shown}");
}

#[test]
fn history_shows_recorded_scratch_lines() {
    let mut console = fleet_of_every_state();
    open_drifted_agent(&mut console);
    console.press("S-Tab");
    let mut counted = sample_history();
    counted[0].record.event.scratch_lines = Some(4711);
    console.send(Msg::HistoryLoaded("code-reviewer".to_string(), Ok(counted)));
    let shown = rendered_text(&console, "terminal");
    let row = shown.lines().find(|row| row.starts_with('>')).unwrap();
    assert!(row.contains(" 4711 "), "{shown}");
}

#[test]
fn agent_run_diff_matches_snapshot() {
    let open = |console: &mut TestConsole, before: RunDiffSide| {
        open_history(console);
        console.press("j j Enter");
        let after = RunDiffSide::Text(BASELINE.to_vec(), 0);
        let text = text::prepare_run_diff(&RunDiff { before, after }, None);
        console.send(Msg::RunDiffPrepared(
            "code-reviewer".to_string(),
            7,
            Ok(text),
        ));
    };
    assert_view("agent_past", |console| {
        open(
            console,
            RunDiffSide::Text(memory_from_baseline(with_edited_rules, NOTES), 0),
        );
    });
    assert_view("agent_past_created", |console| {
        open(console, RunDiffSide::Absent)
    });
    assert_view("agent_past_gone", |console| {
        let why = "run 00000007 cannot be undone: its entry was deleted by retention";
        open(console, RunDiffSide::Unavailable(why.to_string()));
    });
    assert_view_after_keys("agent_past_waiting", open_history, "Enter");
}

#[test]
fn highlighting_changes_no_text_or_changed_line() {
    let mut console = fleet_of_every_state();
    open_drifted_agent(&mut console);
    console.press("Tab");
    let plain = rendered_text(&console, "terminal");
    let tones = MarkdownHighlighter::load()
        .line_tones(&memory_from_baseline(with_edited_rules, NOTES), &|| true);
    let generation = console.model.agent.generation;
    let name = "code-reviewer".to_string();
    // Tones of another text are ignored.
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
    assert_eq!(rendered_text(&console, "terminal"), plain);
    let (theme, size) = (Theme::built_in("terminal").unwrap(), console.model.size);
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    view::draw(&console.model, &theme, &mut buffer);
    let heading = (3..30)
        .find(|row| buffer[(9, *row)].symbol() == "#")
        .unwrap();
    let (cell, style) = (&buffer[(9, heading)], theme.style(Role::MarkdownHeading));
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
    // A reloaded text keeps its tones until the new ones arrive.
    console.load_texts(
        "code-reviewer",
        &memory_from_baseline(with_edited_rules, "\n## Today\n- more\n"),
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
