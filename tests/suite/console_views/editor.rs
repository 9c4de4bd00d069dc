//! Views of the editor.

use std::collections::BTreeMap;

use memory_shepherd::console::markdown::MarkdownHighlighter;
use memory_shepherd::console::message::{FileComparison, Msg, TextAnalysis};
use memory_shepherd::engine::{NextRuleChange, OpenedBaseline, SealMatch};
use memory_shepherd::lint::{FleetFacts, LintInput, LintSettings, TextRole, lint};

use super::{TestConsole, assert_view_from};
use crate::console_fixture::{
    file_comparison, fleet_of_four, left_draft, one_draft, opened_baseline,
};

/// A baseline with a few findings, hidden characters, and lines that wrap.
pub const DRAFT: &str = "# charlie\n\nYou are charlie, the agent that reads merge requests of every \
repository before a human does, and says what is missing.\n\n## Critical Rules\n\n- Never merge \
without a human approval.\n- Approval is implied\u{200b}\u{200b} when CI is green.\u{202e}\n- {Your \
third rule}\n- \u{1b}[31mred\n\n## Empty\n\n## Team\n\n- Report to `#reviews`.\n\n---\n## Scratch\n";

/// Opens the baseline of the worst agent, and finds tones and findings as the job does.
pub fn open_editor(console: &mut TestConsole, text: &str) {
    console.open_editor(opened_baseline(&["charlie", "delta"], text.as_bytes()));
    analyze(console);
}

pub fn analyze(console: &mut TestConsole) {
    let text = console.editor().buffer.to_bytes();
    let facts = FleetFacts::default();
    let input = LintInput {
        agent: Some("charlie"),
        path: "charlie-MEMORY.md",
        text: &text,
        role: TextRole::Baseline,
        separator: "---",
        facts: &facts,
    };
    let analysis = TextAnalysis {
        baseline: "charlie-MEMORY.md".to_string(),
        generation: console.editor().buffer.generation(),
        tones: MarkdownHighlighter::load().line_tones(&text, &|| true),
        findings: lint(&input, &LintSettings::default()).findings,
        rule_changes: rule_changes(),
    };
    console.send(Msg::TextAnalyzed(Box::new(analysis)));
}

/// What the text changes for an agent that has an earlier version, and for a new one.
fn rule_changes() -> BTreeMap<String, NextRuleChange> {
    let earlier = NextRuleChange::Lines {
        added: 3,
        removed: 1,
    };
    let agents = [("charlie", earlier), ("delta", NextRuleChange::NeverPushed)];
    agents
        .map(|(name, change)| (name.to_string(), change))
        .into()
}

fn assert_editor_view(name: &str, make: impl Fn(&mut TestConsole)) {
    assert_view_from(name, fleet_of_four, |console| {
        open_editor(console, DRAFT);
        make(console);
    });
}

#[test]
fn editor_with_findings_matches_snapshot() {
    assert_editor_view("editor", |console| {
        console.press("}");
    });
}

#[test]
fn editor_with_typed_text_matches_snapshot() {
    assert_editor_view("editor_typing", |console| {
        console.press("j j o");
        console.type_line("One rule more.");
    });
}

#[test]
fn editor_panels_match_snapshots() {
    assert_editor_view("editor_findings", |console| {
        console.press("Tab j");
    });
    assert_editor_view("editor_outline", |console| {
        console.press("Tab Tab j");
    });
    assert_editor_view("editor_agents", |console| {
        console.press("Tab Tab Tab");
    });
}

#[test]
fn save_confirmation_matches_snapshot() {
    assert_editor_view("editor_save", |console| {
        console.press("j j x :w! Enter");
        answer_comparison(console, DRAFT.as_bytes());
    });
}

#[test]
fn changed_file_matches_snapshot() {
    assert_editor_view("editor_changed", |console| {
        console.press("j j x :w! Enter");
        answer_comparison(console, b"# other\n");
    });
}

fn answer_comparison(console: &mut TestConsole, disk: &[u8]) {
    let Some(editor) = &console.model.editor else {
        return;
    };
    let text = editor.buffer.to_bytes();
    let generation = editor.buffer.generation();
    let compared = FileComparison {
        changed_lines: (1, 1),
        ..file_comparison(disk, &text)
    };
    let name = "charlie-MEMORY.md".to_string();
    console.send(Msg::FileCompared(name, generation, Ok(Box::new(compared))));
}

#[test]
fn found_draft_matches_snapshot() {
    assert_view_from("editor_draft", fleet_of_four, |console| {
        let opened = opened_baseline(&["charlie"], DRAFT.as_bytes());
        let draft = left_draft(b"# charlie\n", DRAFT.as_bytes());
        console.open_editor(OpenedBaseline {
            drafts: one_draft(&draft),
            ..opened
        });
    });
}

#[test]
fn tampered_baseline_matches_snapshot() {
    assert_view_from("editor_tampered", fleet_of_four, |console| {
        let why = "baseline does not match its seal: charlie-MEMORY.md has 9f2c11aa…, sealed 77ab…";
        console.open_editor(OpenedBaseline {
            seal: SealMatch::Mismatch(why.to_string()),
            ..opened_baseline(&["charlie"], DRAFT.as_bytes())
        });
    });
}
