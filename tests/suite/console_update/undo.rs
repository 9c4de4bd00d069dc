//! Undos are planned like resets, and ask about what was written since.

use memory_shepherd::console::model::{Form, GUARD_TIME, Request, Stage};
use memory_shepherd::console::update::Effect;
use memory_shepherd::engine::{Act, State, UndoMode, UndoTarget};

use crate::console_fleet::{fleet, four, undo, undo_of};

#[test]
fn an_undo_takes_y_for_one_and_typing_for_more() {
    let mut console = four();
    assert_eq!(
        console.press("z"),
        [Effect::Plan(
            1,
            undo_of(&["charlie"], UndoMode::Refuse),
            false
        )]
    );
    console.answer(undo(&["charlie"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Key);
    console.pass(GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied(), ["charlie"]);
    let mut console = four();
    console.plan("a u", undo(&["charlie", "bravo"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Typed("undo 2".to_string()));
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
    let request = Request::Undo(target, UndoMode::Refuse);
    assert_eq!(console.press("Z"), [Effect::Plan(1, request, false)]);
}

#[test]
fn an_undo_of_an_agent_that_has_written_since_asks_what_to_do_with_it() {
    let mut console = four();
    console.plan("z", undo(&["charlie"], true, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Choice);
    for never in ["y", "Enter", "Space"] {
        console.press(never);
        assert_eq!(console.applied(), [] as [&str; 0], "{never}");
    }
    let asked = console.press("a");
    assert_eq!(
        asked,
        [Effect::Plan(
            2,
            undo_of(&["charlie"], UndoMode::Append),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Append));
    assert_eq!(*console.form(), Form::Key, "appending loses nothing");
    console.pass(GUARD_TIME);
    let asked = console.press("o");
    assert_eq!(
        asked,
        [Effect::Plan(
            3,
            undo_of(&["charlie"], UndoMode::Overwrite),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Overwrite));
    console.pass(GUARD_TIME);
    assert_eq!(*console.form(), Form::Typed("undo 1".to_string()));
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
    assert_eq!(*console.form(), Form::Key);
    assert_eq!(console.model.reset.cursor, 0);
    let Stage::Plan(view) = &console.model.reset.stage else {
        panic!("no plan");
    };
    assert_eq!((view.verb(), view.plan.act), ("undo", Act::Undo));
}
