//! Operations on a memory with a layout: chosen, planned, applied and undone.

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::engine::{Operation, UndoMode, UndoTarget};

use super::*;
use crate::console_fixture::edit_plan;
use crate::engine_samples::{run_report, run_summary};

#[test]
fn operation_is_planned_applied_and_undone() {
    let mut console = console_with_items(&["tea.md", "long.md"]);
    console.press("O");
    console.type_line("keep");
    console.press("Enter");
    let line = console.model.input_line.clone().unwrap();
    assert_eq!(line.text, "tea.md", "the item under the cursor");
    console.press("Enter");
    let PlanRequest::Edit { agent, request } = planned(&console) else {
        panic!("no operation: {:?}", planned(&console))
    };
    assert_eq!(
        (agent.as_str(), request.operation.as_str()),
        ("keeper", "keep")
    );
    assert_eq!(request.values("note"), ["tea.md"]);
    console.answer_plan(edit_plan());
    console.advance(KEY_GUARD_TIME);
    let text = console.screen_text();
    for part in [
        "EDIT PLAN",
        "1 created, 1 changed, 1 removed",
        "files of keeper in /agents/keeper: 1 created",
        "create kept/tea.md, 1 line, 18 B",
        "remove tea.md",
        "memory keeper apply keep tea.md --plan ",
        "Press y to edit",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    console.press("Enter Space");
    assert!(!console.model.reset.is_running(), "Enter never confirms");
    console.press("y");
    assert_eq!(console.applied_agents(), ["keeper"]);
    let mut report = run_report(&[("keeper", Outcome::Ok, None)]);
    report.operation = Operation::Edit;
    console.send(Msg::RunEnded(Box::new(report)));
    assert!(console.model.reset.result().is_some());
    assert!(console.screen_text().contains("undoes this run"));
    console.press("u");
    let run = UndoTarget::Run("7f3c0a11".to_string());
    assert_eq!(planned(&console), &PlanRequest::Undo(run, UndoMode::Refuse));
    // Back through the result to the tab, which is read again: the log has a new run of the agent.
    console.send(Msg::LogLoaded(Ok(vec![run_summary(
        "7f3c0a11",
        0,
        &[("keeper", Outcome::Ok)],
    )])));
    console.effects.clear();
    console.press("Esc Esc");
    assert_eq!(
        (console.model.screen, tab(&console)),
        (Screen::Agent, AgentTab::Memory)
    );
    let request = console.items_request();
    assert_eq!((request.agent.as_str(), request.loaded), ("keeper", 0));
}

#[test]
fn arguments_are_asked_one_after_the_other() {
    let mut console = console_with_items(&["tea.md"]);
    let text_of = |console: &TestConsole| console.model.input_line.clone().unwrap().text;
    console.press("O");
    console.type_line("move");
    console.press("Enter");
    assert!(
        console
            .screen_text()
            .contains("move: why (optional; why it is moved): ")
    );
    console.press("Enter");
    assert_eq!(
        text_of(&console),
        "tea.md",
        "the item that the operation is about"
    );
    // Typing replaces what is in the line, and Backspace keeps it to change it.
    console.press("Backspace Backspace Backspace");
    console.type_line("-pot.md");
    assert_eq!(text_of(&console), "tea-pot.md");
    console.press("Enter");
    assert_eq!(text_of(&console), "");
    console.press("Enter");
    assert_eq!(console.message_text(), "move needs to; Esc cancels");
    console.type_line("kept");
    console.press("Enter");
    let PlanRequest::Edit { request, .. } = planned(&console) else {
        panic!("no operation: {:?}", planned(&console))
    };
    let expected = [("note", "tea-pot.md"), ("to", "kept")]
        .map(|(name, value)| (name.to_string(), vec![value.to_string()]));
    assert_eq!(request.arguments, expected.into());
    let mut console = console_with_items(&["tea.md"]);
    console.press("O");
    console.type_line("keep");
    console.press("Enter");
    console.type_line("other.md");
    assert_eq!(text_of(&console), "other.md");
    console.press("Esc");
    assert!(console.model.input_line.is_none());
    let is_plan = |effect: &Effect| matches!(effect, Effect::MakePlan(..));
    assert!(!console.effects.iter().any(is_plan));
}

#[test]
fn wrong_choice_is_refused_at_once() {
    let mut console = console_with_items(&["tea.md"]);
    console.press("O");
    console.type_line("move");
    console.press("Enter Enter Enter");
    console.type_line("thrown");
    console.press("Enter");
    let message = "to is one of kept, archived; Esc cancels";
    assert_eq!(console.message_text(), message);
    assert_eq!(console.model.input_line.as_ref().unwrap().text, "thrown");
    console.type_line("archived");
    console.press("Enter");
    let PlanRequest::Edit { request, .. } = planned(&console) else {
        panic!("no operation: {:?}", planned(&console))
    };
    assert_eq!(request.arguments["to"], ["archived"]);
}

#[test]
fn refused_operation_keeps_what_was_typed() {
    let mut console = console_with_items(&["tea.md"]);
    let text_of = |console: &TestConsole| console.model.input_line.clone().unwrap().text;
    let begin = |console: &mut TestConsole| {
        console.press("O");
        console.type_line("move");
        console.press("Enter");
    };
    begin(&mut console);
    console.type_line("full");
    console.press("Enter Enter");
    console.type_line("kept");
    console.press("Enter");
    let id = console.model.reset.plan.requests.last_id;
    let error = Error::new(ErrorKind::User, "refused");
    console.send(Msg::PlanMade(id, Err(error)));
    begin(&mut console);
    assert_eq!(text_of(&console), "full");
    console.press("Enter Enter");
    assert_eq!(text_of(&console), "kept");
    console.press("Enter");
    // What was planned is not offered again.
    let id = console.model.reset.plan.requests.last_id;
    console.send(Msg::PlanMade(id, Ok(Box::new(edit_plan()))));
    console.press("Esc");
    begin(&mut console);
    assert_eq!(text_of(&console), "");
}

#[test]
fn refused_operation_says_why() {
    let mut console = console_with_items(&["tea.md"]);
    console.press("O");
    console.type_line("keep");
    console.press("Enter Enter");
    let error = Error::new(ErrorKind::User, "there is no file tea.md").with_hint("read it again");
    let id = console.model.reset.plan.requests.last_id;
    console.send(Msg::PlanMade(id, Err(error)));
    assert_eq!(
        console.message_text(),
        "there is no file tea.md; read it again"
    );
    assert_eq!(
        (console.model.screen, tab(&console)),
        (Screen::Agent, AgentTab::Memory)
    );
    // A plan without steps shows its reason, and nothing confirms it.
    console.press("O");
    console.type_line("keep");
    console.press("Enter Enter");
    let mut nothing = edit_plan();
    nothing.steps.clear();
    nothing.skipped = vec![crate::engine_samples::skipped_agent(
        "keeper",
        memory_shepherd::engine::State::Layout,
        "the files are as they would be",
    )];
    console.answer_plan(nothing);
    console.advance(KEY_GUARD_TIME);
    assert!(
        console
            .screen_text()
            .contains("the files are as they would be")
    );
    console.press("y");
    assert!(!console.model.reset.is_running());
}

#[test]
fn operation_on_a_finding_is_about_its_item() {
    let mut console = console_with_items(&["tea.md", "long.md"]);
    console.press("Tab");
    let number = console.model.agent.health.number;
    let findings = vec![finding("tea.md"), finding("long.md")];
    console.send(Msg::MemoryChecked(number, Ok(findings)));
    console.press("j O");
    console.type_line("keep");
    console.press("Enter");
    let line = console.model.input_line.clone().unwrap();
    assert_eq!(line.text, "long.md");
}

#[test]
fn operations_are_on_tabs_of_the_layout_only() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    console.press("Enter O");
    assert_eq!(console.message_text(), "the memory is not read yet");
    console.press("Tab O");
    assert_eq!(console.message_text(), "the memory is not read yet");
    console.press("Tab O");
    assert!(
        console
            .message_text()
            .contains("on the Memory and Health tabs"),
        "{}",
        console.message_text()
    );
    console.press("1");
    console.select_agent("plain");
    console.press("Enter O");
    assert!(console.model.overlay.is_none());
    assert!(
        console
            .message_text()
            .contains("plain has no memory with a layout; set layout and memory_dir"),
        "{}",
        console.message_text()
    );
}
