//! Views of the baselines, their versions and comparisons.

use memory_shepherd::console::message::Msg;
use memory_shepherd::engine::{BaselineList, BaselineState};

use super::{TestConsole, assert_view};
use crate::console_fixture::fleet_of;
use crate::engine_samples::{baseline_list, baseline_summary, baseline_texts, baseline_versions};

/// A list with a baseline in every state.
fn list_of_every_state() -> BaselineList {
    let mut baselines: Vec<_> = [
        ("billing-bot", BaselineState::Changed),
        ("test-runner", BaselineState::Missing),
        ("log-digger", BaselineState::TooSmall),
        ("scratchpad", BaselineState::Unsealed),
        ("triage", BaselineState::Unsigned),
        ("code-reviewer", BaselineState::Behind),
        ("docs-writer", BaselineState::Ok),
        ("researcher", BaselineState::Ok),
    ]
    .into_iter()
    .map(|(agent, state)| baseline_summary(agent, state))
    .collect();
    baselines[1].problem = Some("the baseline is missing: /etc/test-runner-MEMORY.md".to_string());
    baselines[3].agents.clear();
    baselines[3].last_push = None;
    let reviewer = &mut baselines[5];
    reviewer.agents.push("code-reviewer-eu".to_string());
    reviewer.behind.clone_from(&reviewer.agents);
    reviewer.over_limit = true;
    baseline_list(baselines)
}

fn open_evidence(console: &mut TestConsole) {
    console.open_baselines(list_of_every_state());
    console.press("gg Enter");
    let [sealed, current] = baseline_texts(BaselineState::Changed);
    console.load_comparison(&sealed, &current);
}

#[test]
fn baselines_of_every_state_match_snapshot() {
    assert_view("baselines", |console| {
        console.open_baselines(list_of_every_state());
        console.press("gg");
    });
    for (name, steps) in [("missing", 1), ("unsealed", 3), ("behind", 5), ("ok", 6)] {
        assert_view(&format!("baselines_{name}"), |console| {
            console.open_baselines(list_of_every_state());
            console.press("gg Space");
            console.press("k");
            for _ in 0..steps {
                console.press("j");
            }
        });
    }
}

#[test]
fn baselines_without_a_list_match_snapshot() {
    assert_view("baselines_waiting", |console| {
        console.press("3");
    });
    assert_view("baselines_empty", |console| {
        console.open_baselines(baseline_list(Vec::new()));
    });
    assert_view("baselines_failed", |console| {
        console.press("3");
        let why = "cannot read /var/lib/memory-shepherd/.shepherd/ledger.jsonl: permission denied";
        console.send(Msg::BaselinesLoaded(Err(why.to_string())));
        console.press("j");
    });
}

#[test]
fn bad_seal_is_shown_above_the_baselines() {
    use memory_shepherd::base::error::{Error, ErrorKind};
    let message = "/etc/memory-shepherd/baselines/.checksums: line 3 is not a line of sha256sum";
    assert_view("baselines_bad_seal", |console| {
        let mut list = list_of_every_state();
        list.seal_error = Some(Error::new(ErrorKind::Integrity, message));
        console.open_baselines(list);
    });
}

#[test]
fn versions_of_a_baseline_match_snapshot() {
    let name = "billing-bot-MEMORY.md".to_string();
    let open = |console: &mut TestConsole| {
        console.open_baselines(list_of_every_state());
        console.press("gg v");
    };
    assert_view("versions_waiting", open);
    assert_view("versions", |console| {
        open(console);
        let records = baseline_versions("billing-bot");
        console.send(Msg::BaselineVersionsLoaded(name.clone(), Ok(records)));
        console.press("j");
    });
    assert_view("versions_none", |console| {
        open(console);
        console.send(Msg::BaselineVersionsLoaded(name.clone(), Ok(Vec::new())));
    });
}

#[test]
fn evidence_of_a_changed_baseline_matches_snapshot() {
    assert_view("comparison", open_evidence);
    assert_view("comparison_searched", |console| {
        open_evidence(console);
        console.press("/");
        console.type_line("report");
        console.press("Enter");
    });
    assert_view("comparison_waiting", |console| {
        open_evidence(console);
        console.press("Tab");
    });
    assert_view("comparison_choice", |console| {
        open_evidence(console);
        console.press("<");
    });
    assert_view("comparison_unknown", |console| {
        open_evidence(console);
        console.press("Tab Tab");
        let request = console.model.baselines.comparison.request.clone();
        let why = "billing-bot-MEMORY.md has no known version previous".to_string();
        console.send(Msg::BaselineCompared(request, Err(why)));
    });
}

#[test]
fn comparison_of_equal_texts_matches_snapshot() {
    assert_view("comparison_equal", |console| {
        open_evidence(console);
        console.press("] ]");
        let [sealed, _] = baseline_texts(BaselineState::Ok);
        console.load_comparison(&sealed, &sealed);
    });
}

#[test]
fn hostile_names_of_baselines_are_made_visible() {
    let mut console = fleet_of(&[]);
    let mut summary = baseline_summary("a", BaselineState::Ok);
    summary.name = "\u{1b}[31mred\u{202e}.md".to_string();
    summary.agents = vec!["\u{1b}]0;title\u{7}".to_string()];
    console.open_baselines(baseline_list(vec![summary]));
    let text = console.screen_text();
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "{text}"
    );
}
