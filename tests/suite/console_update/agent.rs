//! The texts of an agent.

use memory_shepherd::console::model::Tab;
use memory_shepherd::console::text::Prepared;
use memory_shepherd::console::update::Effect;
use memory_shepherd::engine::State;

use super::reading;
use crate::console_fleet::{Console, four, seen};

#[test]
fn texts_are_asked_for_again_when_the_open_agent_changes() {
    let mut console = four();
    console.press("d");
    assert_eq!(console.observe(vec![seen("alpha", State::Drifted)]), []);
    let mut other = seen("charlie", State::Drifted);
    other.why = "rules edited: L7".to_string();
    assert_eq!(
        console.observe(vec![other]),
        [Effect::Texts("charlie".to_string())]
    );
}

#[test]
fn n_goes_to_hunks_until_something_is_searched_for() {
    let mut console = reading();
    assert_eq!(
        console.model.agent.diff.hunks.len(),
        2,
        "{:?}",
        console.model.agent.diff
    );
    let hunk = |console: &Console| {
        let pane = console.model.agent.pane();
        pane.current_hunk(console.model.text_height())
    };
    console.press("gg");
    assert_eq!(hunk(&console), Some(0), "it is in sight");
    for (key, expected) in [
        ("}", Some(1)),
        ("{", Some(0)),
        ("n", Some(1)),
        ("n", Some(1)),
        ("N", Some(0)),
    ] {
        console.press(key);
        assert_eq!(hunk(&console), expected, "{key}");
    }
    console.press("/");
    console.type_line("NE");
    console.press("Enter");
    let hits = console.model.agent.pane().hits.len();
    assert!(
        hits >= 3 && console.said().contains(&format!("{hits} hits")),
        "{}",
        console.said()
    );
    let at = |console: &Console| console.model.agent.pane().hit;
    let before = at(&console);
    console.press("n");
    assert_eq!(at(&console), (before + 1) % hits);
    console.press("N");
    assert_eq!(at(&console), before);
    console.press("Esc n");
    assert_eq!(console.model.agent.pane().query, "", "hunks again");
}

#[test]
fn tabs_wrap_and_reveal_are_switches() {
    let mut console = reading();
    console.press("Tab");
    assert_eq!(console.model.agent.tab, Tab::Scratch);
    assert_eq!(console.press("}"), []);
    assert!(console.said().contains("no hunk"), "{}", console.said());
    console.press("S-Tab w .");
    let agent = &console.model.agent;
    assert_eq!(
        (agent.tab, agent.wrap, agent.reveal),
        (Tab::Diff, false, true)
    );
}

#[test]
fn texts_of_another_agent_or_an_older_generation_are_ignored() {
    let mut console = reading();
    let lines = console.model.agent.diff.lines.clone();
    console.give("alpha", Prepared::default(), Prepared::default());
    assert_eq!(console.model.agent.diff.lines, lines);
    console.model.agent.generation += 100;
    console.give("charlie", Prepared::default(), Prepared::default());
    assert_eq!(console.model.agent.diff.lines, lines);
}
