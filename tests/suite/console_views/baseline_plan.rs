//! Views of plans over baselines.

use memory_shepherd::engine::BaselineState;

use super::{TestConsole, assert_view};
use crate::engine_samples::{baseline_list, baseline_plan, baseline_summary};

const AGENTS: [&str; 4] = ["billing-bot", "code-reviewer", "docs-writer", "triage"];

fn open_baselines(console: &mut TestConsole) {
    let of = |agent: &str| baseline_summary(agent, BaselineState::Ok);
    console.open_baselines(baseline_list(AGENTS.into_iter().map(of).collect()));
    console.press("gg");
}

#[test]
fn seal_plans_match_snapshots() {
    assert_view("seal_plan_waiting", |console| {
        open_baselines(console);
        console.press("S");
    });
    assert_view("seal_plan_foreign", |console| {
        open_baselines(console);
        console.press("S");
        console.answer_baseline_plan(baseline_plan(&AGENTS[..1], true));
        console.type_line("seal");
    });
    assert_view("seal_plan_unsigned", |console| {
        open_baselines(console);
        console.press("a S");
        let mut plan = baseline_plan(&AGENTS, false);
        let why = "require_seal=signed, and a seal without a signature is refused";
        plan.refusal = Some(format!("{why}; sign the seal: seal --sign KEYFILE"));
        console.answer_baseline_plan(plan);
    });
    assert_view("seal_plan_key", |console| {
        open_baselines(console);
        console.press("S");
        console.answer_baseline_plan(baseline_plan(&AGENTS[..1], false));
        console.press("K");
        console.type_line("~/.ssh/id_ed25519.pub");
    });
    assert_view("seal_plan_nothing", |console| {
        open_baselines(console);
        console.press("S");
        console.answer_baseline_plan(baseline_plan(&[], false));
    });
}

#[test]
fn restore_plan_matches_snapshot() {
    assert_view("restore_plan", |console| {
        open_baselines(console);
        console.press("X");
        console.answer_baseline_plan(baseline_plan(&AGENTS[..1], false));
    });
    assert_view("restore_plan_applied", |console| {
        open_baselines(console);
        console.press("X");
        console.answer_baseline_plan(baseline_plan(&AGENTS[..1], false));
        console.press("y");
    });
}

#[test]
fn replace_plan_matches_snapshot() {
    let replace = |console: &mut TestConsole| {
        open_baselines(console);
        console.press("a s");
        console.type_line("without approval");
        console.press("Enter");
        console.type_line("when in a hurry");
    };
    assert_view("replace_prompt", replace);
    assert_view("replace_plan", |console| {
        replace(console);
        console.press("Enter");
        console.answer_baseline_plan(baseline_plan(&AGENTS, false));
        console.press("j j");
    });
    assert_view("new_prompt", |console| {
        open_baselines(console);
        console.press("N Tab");
        console.type_line("scout-MEMORY.md");
    });
}
