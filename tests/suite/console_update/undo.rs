//! Undos are planned like resets, and ask about what was written since.

use memory_shepherd::console::model::{Confirmation, KEY_GUARD_TIME, PlanRequest, ResetStage};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::{Observation, Operation, Outcome, State, UndoMode, UndoTarget};

use crate::console_fleet::{Console, fleet, four, plan, report, run, seen, skipped, undo, undo_of};

#[test]
fn an_undo_takes_y_for_one_and_typing_for_more() {
    let mut console = four();
    assert_eq!(
        console.press("z"),
        [Effect::MakePlan(
            1,
            undo_of(&["charlie"], UndoMode::Refuse),
            false
        )]
    );
    console.answer(undo(&["charlie"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Confirmation::SingleKey);
    console.pass(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied(), ["charlie"]);
    let mut console = four();
    console.plan("a u", undo(&["charlie", "bravo"], false, UndoMode::Refuse));
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("undo 2".to_string())
    );
    console.type_line("undo 3");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.press("Backspace 2");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie", "bravo"]);
}

#[test]
fn a_redo_asks_for_the_last_undo() {
    let mut console = four();
    let target = UndoTarget::Redo(vec!["charlie".to_string()]);
    let request = PlanRequest::Undo(target, UndoMode::Refuse);
    assert_eq!(console.press("Z"), [Effect::MakePlan(1, request, false)]);
}

#[test]
fn redo_without_an_undo_here_offers_the_last_one() {
    let undo = |id: &str, minutes: i64, agent: &str| {
        let mut run = run(id, minutes, &[(agent, Outcome::Ok)]);
        run.events[0].operation = Operation::Undo;
        run
    };
    let mut console = four();
    let mut redone = undo("cccc", 30, "alpha");
    redone.undone_agents = vec!["alpha".to_string()];
    let mut redo = undo("dddd", 10, "alpha");
    redo.is_redo = true;
    let runs = vec![
        redo,
        run("eeee", 20, &[("bravo", Outcome::Ok)]),
        redone,
        undo("bbbb", 40, "delta"),
        undo("aaaa", 50, "bravo"),
    ];
    console.send(Msg::LogLoaded(Ok(runs)));
    // charlie was never undone, alpha's undo was taken back, bravo was reset since.
    for keys in ["Z", "/ alpha Enter Z", "Esc a Z"] {
        let redo = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            PlanRequest::Undo(UndoTarget::Redo(names), UndoMode::Refuse)
        };
        let effects = console.press(keys);
        let Some(Effect::MakePlan(_, request, _)) = effects.last() else {
            panic!("{keys}: {effects:?}");
        };
        let is_all = keys.contains(" a ");
        let names: &[&str] = match is_all {
            true => &["alpha", "bravo", "charlie", "delta"],
            false => &["delta"],
        };
        assert_eq!(*request, redo(names), "{keys}");
        assert_eq!(console.said().contains("bbbb"), !is_all, "{keys}");
        console.press("Esc");
    }
    // On an agent it is about that one.
    console.press("A 1");
    console.open("charlie", b"", None);
    let effects = console.press("Z");
    let target = UndoTarget::Redo(vec!["charlie".to_string()]);
    let request = PlanRequest::Undo(target, UndoMode::Refuse);
    assert!(matches!(&effects[..], [Effect::MakePlan(_, it, _)] if *it == request));
}

#[test]
fn an_undo_of_an_agent_that_has_written_since_asks_what_to_do_with_it() {
    let mut console = four();
    console.plan("z", undo(&["charlie"], true, UndoMode::Refuse));
    assert_eq!(*console.form(), Confirmation::NewerNotes);
    for never in ["y", "Enter", "Space"] {
        console.press(never);
        assert_eq!(console.applied(), [] as [&str; 0], "{never}");
    }
    let asked = console.press("a");
    assert_eq!(
        asked,
        [Effect::MakePlan(
            2,
            undo_of(&["charlie"], UndoMode::Append),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Append));
    assert_eq!(
        *console.form(),
        Confirmation::SingleKey,
        "appending loses nothing"
    );
    console.pass(KEY_GUARD_TIME);
    let asked = console.press("o");
    assert_eq!(
        asked,
        [Effect::MakePlan(
            3,
            undo_of(&["charlie"], UndoMode::Overwrite),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Overwrite));
    console.pass(KEY_GUARD_TIME);
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("undo 1".to_string())
    );
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.press("Backspace");
    console.type_line("undo 1");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie"]);
}

#[test]
fn append_and_overwrite_are_for_agents_that_have_written_since() {
    let mut console = four();
    console.plan("z", undo(&["charlie"], false, UndoMode::Refuse));
    for key in ["a", "o"] {
        assert_eq!(console.press(key), [], "{key}");
        assert!(
            console.said().contains("written since"),
            "{}",
            console.said()
        );
    }
}

#[test]
fn an_undo_is_no_reset_of_the_whole_fleet() {
    let mut console = fleet(&[("solo", State::Scratch)]);
    console.plan("z", undo(&["solo"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Confirmation::SingleKey);
    assert_eq!(console.model.reset.cursor, 0);
    let ResetStage::Plan(view) = &console.model.reset.stage else {
        panic!("no plan");
    };
    assert_eq!(
        (view.verb(), view.plan.operation),
        ("undo", Operation::Undo)
    );
}

#[test]
fn undo_after_a_run_of_some_marked_agents_is_of_the_cursor() {
    let mut console = four();
    console.press("Space Space Space");
    // Of three that are marked one is left out of the plan.
    let mut made = plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]);
    made.skipped = vec![skipped("charlie", State::Tampered, "blocked")];
    console.plan("X", made);
    console.type_line("reset 2");
    console.press("Enter");
    assert!(console.model.is_running());
    assert_eq!(console.model.marks.len(), 0);
    let ended = [("bravo", Outcome::Ok, None), ("delta", Outcome::Ok, None)];
    console.send(Msg::RunEnded(Box::new(report(&ended))));
    console.press("q gg j");
    let effects = console.press("z");
    let of_bravo = undo_of(&["bravo"], UndoMode::Refuse);
    assert!(matches!(&effects[..], [Effect::MakePlan(_, request, _)] if *request == of_bravo));
}

/// An agent that no run has touched.
fn untouched(name: &str) -> Observation {
    let mut seen = seen(name, State::Scratch);
    seen.last_run = None;
    seen
}

#[test]
fn undo_of_marks_without_a_reset_offers_the_last_run() {
    let asked = |console: &mut Console, keys: &str| match &console.press(keys)[..] {
        [Effect::MakePlan(_, PlanRequest::Undo(target, UndoMode::Refuse), false)] => target.clone(),
        other => panic!("{keys}: {other:?}"),
    };
    let of = |names: &[&str]| UndoTarget::Agents(names.iter().map(|it| it.to_string()).collect());
    let mut console = four();
    console.observe(vec![untouched("bravo"), untouched("delta")]);
    let mut undone = run("cccc", 5, &[("delta", Outcome::Ok)]);
    undone.undone_agents = vec!["delta".to_string()];
    let refused = run("bbbb", 10, &[("alpha", Outcome::Refused)]);
    let last = run(
        "aaaa",
        90,
        &[("alpha", Outcome::Ok), ("charlie", Outcome::Ok)],
    );
    console.send(Msg::LogLoaded(Ok(vec![undone, refused, last])));
    // What is marked has nothing that could be undone.
    console.press("j Space Space");
    assert_eq!(console.model.marks.len(), 2);
    assert_eq!(
        asked(&mut console, "z"),
        UndoTarget::Run("aaaa".to_string())
    );
    let said = console.said().to_string();
    assert!(said.contains("the last run, aaaa of 07:40"), "{said}");
    // One of them has.
    console.press("Esc gg Space");
    let marked = ["bravo", "charlie", "delta"];
    assert_eq!(asked(&mut console, "z"), of(&marked));
    // Without marks it is the agent under the cursor, come what may.
    console.press("Esc A G k");
    assert_eq!(asked(&mut console, "z"), of(&["delta"]));
    // Without any run it says so of the marked ones.
    console.press("Esc Space");
    console.send(Msg::LogLoaded(Ok(Vec::new())));
    console.press("A G k Space");
    assert_eq!(asked(&mut console, "z"), of(&["delta"]));
}

#[test]
fn redo_is_called_redo_until_its_end() {
    let mut console = four();
    console.plan("Z", undo(&["charlie", "bravo"], false, UndoMode::Refuse));
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("redo 2".to_string())
    );
    console.type_line("redo 2");
    console.press("Enter");
    let ResetStage::Run(view) = &console.model.reset.stage else {
        panic!("no run");
    };
    assert_eq!(view.verb, "redo");
    let mut ended = report(&[("charlie", Outcome::Ok, None)]);
    ended.operation = Operation::Undo;
    console.send(Msg::RunEnded(Box::new(ended)));
    let ResetStage::Result(view) = &console.model.reset.stage else {
        panic!("no result");
    };
    assert_eq!(view.verb, "redo");
}
