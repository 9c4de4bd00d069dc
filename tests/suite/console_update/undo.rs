//! Undo plans: they work like reset plans, and ask what to do with notes written since.

use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::{OfferedPlan, UndoOffer};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselinePlanRequest,
};
use memory_shepherd::console::screens::log::state::RunSummary;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{
    BaselineState, FileState, Observation, Operation, Outcome, State, StepAction, UndoMode,
    UndoTarget,
};

use crate::console_fixture::{TestConsole, fleet_of, fleet_of_four};
use crate::engine_samples::{
    baseline_list, baseline_run, baseline_summary, observation_of, plan, run_report, run_summary,
    skipped_agent, undo_plan, undo_request,
};

#[test]
fn undo_needs_y_for_one_and_typing_for_more() {
    let mut console = fleet_of_four();
    assert_eq!(
        console.press("z"),
        [Effect::MakePlan(
            1,
            undo_request(&["charlie"], UndoMode::Refuse),
            false
        )]
    );
    console.answer_plan(undo_plan(&["charlie"], false, UndoMode::Refuse));
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied_agents(), ["charlie"]);
    let mut console = fleet_of_four();
    console.press_and_plan(
        "a u",
        undo_plan(&["charlie", "bravo"], false, UndoMode::Refuse),
    );
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("undo 2".to_string())
    );
    console.type_line("undo 3");
    console.press("Enter");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    console.press("Backspace 2");
    console.press("Enter");
    assert_eq!(console.applied_agents(), ["charlie", "bravo"]);
}

#[test]
fn redo_plans_redo_of_last_undo() {
    let mut console = fleet_of_four();
    let target = UndoTarget::Redo(vec!["charlie".to_string()]);
    let request = PlanRequest::Undo(target, UndoMode::Refuse);
    assert_eq!(console.press("Z"), [Effect::MakePlan(1, request, false)]);
}

#[test]
fn redo_without_undo_here_stays_with_its_agents() {
    let undo = |id: &str, minutes: i64, agent: &str| {
        let mut run = run_summary(id, minutes, &[(agent, Outcome::Ok)]);
        run.events[0].operation = Operation::Undo;
        run
    };
    let mut console = fleet_of_four();
    let mut redone = undo("cccc", 30, "alpha");
    redone.undone_agents = vec!["alpha".to_string()];
    let mut redo = undo("dddd", 10, "alpha");
    redo.is_redo = true;
    let runs = vec![
        redo,
        run_summary("eeee", 20, &[("bravo", Outcome::Ok)]),
        redone,
        undo("bbbb", 40, "delta"),
        undo("aaaa", 50, "bravo"),
    ];
    console.send(Msg::LogLoaded(Ok(runs)));
    // charlie was never undone, alpha's undo was redone, bravo was reset since.
    for keys in ["Z", "/ alpha Enter Z", "Esc a Z"] {
        let redo = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            PlanRequest::Undo(UndoTarget::Redo(names), UndoMode::Refuse)
        };
        let effects = console.press(keys);
        let Some(Effect::MakePlan(_, request, _)) = effects.last() else {
            panic!("{keys}: {effects:?}");
        };
        let names: &[&str] = match keys {
            "Z" => &["charlie"],
            "/ alpha Enter Z" => &["alpha"],
            _ => &["alpha", "bravo", "charlie", "delta"],
        };
        assert_eq!(*request, redo(names), "{keys}");
        let said = console.message_text();
        let is_hinted = said.contains(&format!("no undo to redo for {}; ", names[0]));
        assert_eq!(
            is_hinted && said.contains("bbbb"),
            names.len() == 1,
            "{said}"
        );
        console.press("Esc");
    }
    // On an agent's screen the undo is of that agent.
    console.press("A 1");
    console.open_agent("charlie", b"", None);
    let effects = console.press("Z");
    let target = UndoTarget::Redo(vec!["charlie".to_string()]);
    let request = PlanRequest::Undo(target, UndoMode::Refuse);
    assert!(matches!(&effects[..], [Effect::MakePlan(_, it, _)] if *it == request));
}

#[test]
fn undo_after_new_notes_requires_a_choice() {
    let mut console = fleet_of_four();
    console.press_and_plan("z", undo_plan(&["charlie"], true, UndoMode::Refuse));
    assert_eq!(*console.confirmation(), Confirmation::NewerNotes);
    for never in ["y", "Enter", "Space"] {
        console.press(never);
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{never}");
    }
    let asked = console.press("a");
    assert_eq!(
        asked,
        [Effect::MakePlan(
            2,
            undo_request(&["charlie"], UndoMode::Append),
            false
        )]
    );
    console.answer_plan(undo_plan(&["charlie"], true, UndoMode::Append));
    assert_eq!(
        *console.confirmation(),
        Confirmation::SingleKey,
        "appending loses nothing"
    );
    console.advance(KEY_GUARD_TIME);
    let asked = console.press("o");
    assert_eq!(
        asked,
        [Effect::MakePlan(
            3,
            undo_request(&["charlie"], UndoMode::Overwrite),
            false
        )]
    );
    console.answer_plan(undo_plan(&["charlie"], true, UndoMode::Overwrite));
    console.advance(KEY_GUARD_TIME);
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("undo 1".to_string())
    );
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    console.press("Backspace");
    console.type_line("undo 1");
    console.press("Enter");
    assert_eq!(console.applied_agents(), ["charlie"]);
}

#[test]
fn undo_of_creation_offers_no_append() {
    let mut console = fleet_of_four();
    let mut removal = undo_plan(&["charlie"], true, UndoMode::Refuse);
    removal.steps[0].action = StepAction::Remove;
    console.press_and_plan("z", removal.clone());
    let screen = console.screen_text();
    assert!(
        screen.contains("o archive them, remove the file"),
        "{screen}"
    );
    assert!(!screen.contains("append"), "{screen}");
    assert_eq!(console.press("a"), []);
    let said = console.message_text();
    assert!(said.contains("no file to append to; o archives"), "{said}");
    console.press("y");
    let said = console.message_text();
    assert!(said.contains("written since: o overwrites"), "{said}");
    let request = undo_request(&["charlie"], UndoMode::Overwrite);
    assert_eq!(console.press("o"), [Effect::MakePlan(2, request, false)]);
    // Where another agent's file is restored, its notes can be appended.
    let mut console = fleet_of_four();
    let mut mixed = undo_plan(&["charlie", "bravo"], true, UndoMode::Refuse);
    mixed.steps[0].action = StepAction::Remove;
    console.press_and_plan("a u", mixed);
    let screen = console.screen_text();
    assert!(screen.contains("a append them below"), "{screen}");
}

#[test]
fn append_and_overwrite_need_notes_written_since() {
    let mut console = fleet_of_four();
    console.press_and_plan("z", undo_plan(&["charlie"], false, UndoMode::Refuse));
    for key in ["a", "o"] {
        assert_eq!(console.press(key), [], "{key}");
        assert!(
            console.message_text().contains("written since"),
            "{}",
            console.message_text()
        );
    }
}

#[test]
fn undo_of_single_agent_fleet_is_not_a_reset() {
    let mut console = fleet_of(&[("solo", State::Scratch)]);
    console.press_and_plan("z", undo_plan(&["solo"], false, UndoMode::Refuse));
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    assert_eq!(console.model.reset.list.cursor, 0);
    let Some(view) = console.model.reset.plan.shown() else {
        panic!("no plan");
    };
    assert_eq!(
        (view.verb(), view.plan.operation),
        ("undo", Operation::Undo)
    );
}

/// A console that has reset `bravo` and `delta`, though `charlie` was marked as well. The cursor is on
/// `charlie` again.
fn console_after_reset() -> TestConsole {
    let mut console = fleet_of_four();
    console.press("Space Space Space");
    // The plan skips one of three marked agents.
    let mut made = plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]);
    made.skipped = vec![skipped_agent("charlie", State::Tampered, "blocked")];
    console.press_and_plan("X", made);
    console.type_line("reset 2");
    console.press("Enter");
    assert!(console.model.reset.is_running());
    assert_eq!(console.model.fleet.marks.len(), 0);
    let ended = [("bravo", Outcome::Ok, None), ("delta", Outcome::Ok, None)];
    console.send(Msg::RunEnded(Box::new(run_report(&ended))));
    console.press("q gg");
    console
}

/// The run of [`console_after_reset`], as the ledger has it.
fn own_run(minutes_ago: i64, undone: &[&str]) -> RunSummary {
    let agents = [("bravo", Outcome::Ok), ("delta", Outcome::Ok)];
    let mut run = run_summary(OWN_RUN, minutes_ago, &agents);
    run.events
        .iter_mut()
        .for_each(|event| event.change.before = Some(FileState::Absent));
    run.undone_agents = undone.iter().map(ToString::to_string).collect();
    run
}

/// Presses keys and returns the target of the undo that they plan.
fn planned_undo(console: &mut TestConsole, keys: &str) -> UndoTarget {
    match console.press(keys).as_slice() {
        [
            ..,
            Effect::MakePlan(_, PlanRequest::Undo(target, UndoMode::Refuse), _),
        ] => target.clone(),
        other => panic!("{keys}: {other:?}"),
    }
}

fn agents_target(names: &[&str]) -> UndoTarget {
    UndoTarget::Agents(names.iter().map(ToString::to_string).collect())
}

const OWN_RUN: &str = "7f3c0a11";

#[test]
fn undo_offers_the_newest_act_of_this_console() {
    let mut console = console_after_reset();
    let older = run_summary("aaaa", 20, &[("charlie", Outcome::Ok)]);
    console.send(Msg::LogLoaded(Ok(vec![older])));
    assert_eq!(console.model.fleet.cursor_agent.as_deref(), Some("charlie"));
    let own = UndoTarget::Run(OWN_RUN.to_string());
    assert_eq!(planned_undo(&mut console, "z"), own);
    console.answer_plan(undo_plan(&["bravo", "delta"], false, UndoMode::Refuse));
    let text = console.screen_text();
    assert!(
        text.contains("UNDO PLAN of reset bravo, delta, <1m ago"),
        "{text}"
    );
    assert!(text.contains("Tab other act"), "{text}");
    // The other acts are a key away, around the ends.
    let of_cursor = agents_target(&["charlie"]);
    assert_eq!(planned_undo(&mut console, "Tab"), of_cursor);
    console.answer_plan(undo_plan(&["charlie"], false, UndoMode::Refuse));
    let text = console.screen_text();
    assert!(
        text.contains("UNDO PLAN of reset charlie, 20m ago"),
        "{text}"
    );
    assert_eq!(planned_undo(&mut console, "Tab"), own);
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn newer_run_of_the_cursor_is_undone_first() {
    let mut console = console_after_reset();
    let newer = run_summary("bbbb", -2, &[("charlie", Outcome::Ok)]);
    console.send(Msg::LogLoaded(Ok(vec![newer, own_run(0, &[])])));
    assert_eq!(planned_undo(&mut console, "z"), agents_target(&["charlie"]));
    let own = UndoTarget::Run(OWN_RUN.to_string());
    assert_eq!(planned_undo(&mut console, "Tab"), own);
    // One of the run's own agents is another offer.
    console.press("Esc j");
    assert_eq!(planned_undo(&mut console, "z"), own);
    assert_eq!(planned_undo(&mut console, "Tab"), agents_target(&["bravo"]));
}

#[test]
fn undone_act_is_not_offered_again() {
    let mut console = console_after_reset();
    console.send(Msg::LogLoaded(Ok(vec![own_run(0, &["delta"])])));
    let rest = UndoTarget::RunAgents(OWN_RUN.to_string(), vec!["bravo".to_string()]);
    assert_eq!(planned_undo(&mut console, "z"), rest);
    console.press("Esc");
    console.send(Msg::LogLoaded(Ok(vec![own_run(0, &["bravo", "delta"])])));
    assert_eq!(planned_undo(&mut console, "z"), agents_target(&["charlie"]));
    assert_eq!(console.press("Tab"), []);
    assert!(console.message_text().contains("no other act"));
}

#[test]
fn marked_agents_come_before_own_acts() {
    let mut console = console_after_reset();
    assert_eq!(
        planned_undo(&mut console, "Space z"),
        agents_target(&["charlie"])
    );
    let own = UndoTarget::Run(OWN_RUN.to_string());
    assert_eq!(planned_undo(&mut console, "Tab"), own);
}

#[test]
fn redo_offers_the_newest_undo_of_this_console() {
    let mut console = console_after_reset();
    console.press("z");
    console.answer_plan(undo_plan(&["bravo", "delta"], false, UndoMode::Refuse));
    console.advance(KEY_GUARD_TIME);
    console.type_line("undo 2");
    console.press("Enter");
    let ended = [("bravo", Outcome::Ok, None), ("delta", Outcome::Ok, None)];
    let mut report = run_report(&ended);
    (report.run, report.operation) = ("0d00".to_string(), Operation::Undo);
    console.send(Msg::RunEnded(Box::new(report)));
    console.press("q gg");
    let both = ["bravo", "delta"].map(str::to_string).to_vec();
    assert_eq!(planned_undo(&mut console, "Z"), UndoTarget::Redo(both));
}

#[test]
fn change_of_baselines_is_an_act_of_this_console() {
    let mut console = console_after_reset();
    let list = ["alpha", "bravo", "charlie"].map(|it| baseline_summary(it, BaselineState::Ok));
    console.open_baselines(baseline_list(list.to_vec()));
    let save = |name: &str, id: &str, minutes| {
        let texts = ["old", "new"];
        baseline_run(
            &format!("{name}-MEMORY.md"),
            id,
            minutes,
            (Operation::Save, texts),
        )
    };
    let runs = vec![
        save("charlie", "5a03", -1),
        save("bravo", "5a02", -1),
        own_run(0, &[]),
        save("alpha", "5a01", 30),
    ];
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan {
        runs: vec!["5a02".to_string(), "5a03".to_string()],
        ..AppliedBaselinePlan::default()
    })));
    console.press("3 gg");
    console.send(Msg::LogLoaded(Ok(runs)));
    assert_eq!(console.model.baselines.subject(), Some("alpha-MEMORY.md"));
    let planned = |effects: &[Effect]| match effects {
        [
            ..,
            Effect::MakeBaselinePlan(_, BaselinePlanRequest::Restore { names, .. }),
        ] => names.clone(),
        other => panic!("{other:?}"),
    };
    // Not the baseline under the cursor, which was saved long ago.
    let effects = console.press("z");
    assert_eq!(planned(&effects), ["bravo-MEMORY.md", "charlie-MEMORY.md"]);
    let own = UndoTarget::Run(OWN_RUN.to_string());
    assert_eq!(planned_undo(&mut console, "Tab"), own);
    let effects = console.press("Tab");
    assert_eq!(planned(&effects), ["alpha-MEMORY.md"]);
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Baselines);
    // On the fleet it is the same act.
    let effects = console.press("1 z");
    assert_eq!(planned(&effects), ["bravo-MEMORY.md", "charlie-MEMORY.md"]);
}

#[test]
fn undo_says_that_it_passes_over_a_new_baseline() {
    let mut console = console_after_reset();
    let mut creation = baseline_run("new.md", "5a02", -1, (Operation::Save, ["", "new"]));
    creation.events[0].change.before = Some(FileState::Absent);
    console.send(Msg::BaselinePlanApplied(Ok(AppliedBaselinePlan {
        runs: vec!["5a02".to_string()],
        ..AppliedBaselinePlan::default()
    })));
    console.send(Msg::LogLoaded(Ok(vec![creation, own_run(0, &[])])));
    let own = UndoTarget::Run(OWN_RUN.to_string());
    assert_eq!(planned_undo(&mut console, "z"), own);
    assert!(console.message_text().starts_with("new.md is new"));
    // A later act is what the key is about.
    console.press("Esc");
    console.send(Msg::LogLoaded(Ok(vec![own_run(-2, &[])])));
    assert_eq!(planned_undo(&mut console, "z"), own);
    assert!(!console.message_text().contains("new.md"));
}

/// An agent that no run has touched.
fn never_reset_agent(name: &str) -> Observation {
    let mut seen = observation_of(name, State::Scratch);
    seen.last_run = None;
    seen
}

#[test]
fn undo_of_never_reset_marks_stays_with_them() {
    let asked = |console: &mut TestConsole, keys: &str| match &console.press(keys)[..] {
        [Effect::MakePlan(_, PlanRequest::Undo(target, UndoMode::Refuse), false)] => target.clone(),
        other => panic!("{keys}: {other:?}"),
    };
    let of = |names: &[&str]| UndoTarget::Agents(names.iter().map(|it| it.to_string()).collect());
    let mut console = fleet_of_four();
    console.observe(vec![never_reset_agent("bravo"), never_reset_agent("delta")]);
    let mut undone = run_summary("cccc", 5, &[("delta", Outcome::Ok)]);
    undone.undone_agents = vec!["delta".to_string()];
    let refused = run_summary("bbbb", 10, &[("alpha", Outcome::Refused)]);
    let last = run_summary(
        "aaaa",
        90,
        &[("alpha", Outcome::Ok), ("charlie", Outcome::Ok)],
    );
    console.send(Msg::LogLoaded(Ok(vec![undone, refused, last])));
    // None of the marked agents has a run to undo.
    console.press("j Space Space");
    assert_eq!(console.model.fleet.marks.len(), 2);
    assert_eq!(asked(&mut console, "z"), of(&["bravo", "delta"]));
    let said = console.message_text().to_string();
    let expected = "no change to undo for the marked agents; the last one is aaaa of 07:40";
    assert!(said.contains(expected), "{said}");
    // One of them has a run.
    console.press("Esc gg Space");
    let marked = ["bravo", "charlie", "delta"];
    assert_eq!(asked(&mut console, "z"), of(&marked));
    // Without marks, the undo is always of the agent under the cursor.
    console.press("Esc A G k");
    assert_eq!(asked(&mut console, "z"), of(&["delta"]));
    // Without any run the message names the marked agents.
    console.press("Esc Space");
    console.send(Msg::LogLoaded(Ok(Vec::new())));
    console.press("A G k Space");
    assert_eq!(asked(&mut console, "z"), of(&["delta"]));
}

#[test]
fn edit_of_marked_agents_is_a_change_to_undo() {
    for operation in [Operation::Edit, Operation::Push] {
        let mut console = fleet_of_four();
        let mut edited = observation_of("bravo", State::Scratch);
        edited.last_run.as_mut().unwrap().operation = operation;
        console.observe(vec![edited]);
        let last = run_summary("aaaa", 90, &[("alpha", Outcome::Ok)]);
        console.send(Msg::LogLoaded(Ok(vec![last])));
        console.select_agent("bravo");
        console.press("Space z");
        let said = console.message_text();
        assert!(!said.contains("no change to undo"), "{operation:?}: {said}");
    }
}

#[test]
fn redo_is_labeled_redo_throughout() {
    let mut console = fleet_of_four();
    console.press_and_plan(
        "Z",
        undo_plan(&["charlie", "bravo"], false, UndoMode::Refuse),
    );
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("redo 2".to_string())
    );
    console.type_line("redo 2");
    console.press("Enter");
    let Some(view) = console.model.reset.plan.applying() else {
        panic!("no run");
    };
    assert_eq!(view.verb, "redo");
    let mut ended = run_report(&[("charlie", Outcome::Ok, None)]);
    ended.operation = Operation::Undo;
    console.send(Msg::RunEnded(Box::new(ended)));
    let Some(view) = console.model.reset.result() else {
        panic!("no result");
    };
    assert_eq!(view.verb, "redo");
}

#[test]
fn run_that_is_not_started_leaves_run_screen() {
    let mut console = fleet_of_four();
    console.press_and_plan("z", undo_plan(&["charlie"], false, UndoMode::Refuse));
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert!(console.model.reset.is_running());
    let why = "cannot start a thread: resource temporarily unavailable";
    console.send(Msg::RunNotStarted(why.to_string()));
    assert!(!console.model.reset.is_running());
    assert_eq!(
        console.message_text(),
        format!("the run was not started: {why}")
    );
    assert!(console.model.log.own_runs.is_empty());
    assert!(matches!(
        console.press("z")[..],
        [Effect::MakePlan(_, _, _)]
    ));
}

#[test]
fn title_of_an_undo_counts_many_agents() {
    let names: Vec<String> = (1..=15).map(|number| format!("agent-{number}")).collect();
    let offer = |count: usize| UndoOffer {
        verb: "reset",
        names: names[..count].to_vec(),
        time: None,
        run_id: None,
        plan: OfferedPlan::Runs(UndoTarget::Run("aaaa".to_string())),
    };
    let now = observation_of("alpha", State::Clean).read_at;
    assert_eq!(offer(15).describe(now, 60), "reset 15 agents");
    assert_eq!(offer(4).describe(now, 60), "reset agent-1 +3");
    assert_eq!(offer(2).describe(now, 60), "reset agent-1, agent-2");
}
