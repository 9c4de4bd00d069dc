//! New trouble: every screen names the agent that became worse, and a key goes there and back.

use std::time::Duration;

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::agent::state::AgentTab;
use memory_shepherd::engine::{Outcome, State};

use super::{MINUTE, cursor_agent, makes_dirty};
use crate::console_fixture::{TestConsole, fleet_of, fleet_of_four, opened_baseline};
use crate::engine_samples::{configured_agents, observation_of, plan, run_report};

/// An agent is seen in this state. Returns whether the bell rings.
fn sees(console: &mut TestConsole, agent: &str, state: State) -> bool {
    let effects = console.observe(vec![observation_of(agent, state)]);
    effects.contains(&Effect::RingBell)
}

/// Returns the line about an agent that has just become worse.
fn trouble_line(console: &TestConsole, agent: &str, state: State) -> String {
    let time = console.moment().local_time.format("%H:%M");
    format!("! {time} {agent} {state}")
}

#[test]
fn new_trouble_is_named_on_every_screen() {
    let screens = [
        "1", "d", "d Tab f", "3", "4", "4 r", "6", "7", "8", "j X", "e",
    ];
    for size in [(120, 36), (80, 24), (60, 15)] {
        for keys in screens {
            let mut console = fleet_of_four();
            console.send(Msg::Resized(size.0, size.1));
            match keys {
                "j X" => console.press_and_plan(keys, plan(&[("bravo", State::Scratch)])),
                "e" => console.open_editor(opened_baseline(&["charlie"], b"one\n---\n")),
                _ => drop(console.press(keys)),
            }
            let is_drawn = makes_dirty(&mut console, |console| {
                sees(console, "delta", State::Tampered);
            });
            let text = console.screen_text();
            let line = match (keys, size) {
                ("d Tab f", (60, _)) => "! delta TAMPERED".to_string(),
                _ => trouble_line(&console, "delta", State::Tampered),
            };
            assert!(is_drawn && text.contains(&line), "{keys} {size:?}: {text}");
            // A text on the whole screen has no header.
            let has_counts = text.contains("1 TAMPERED 1 DRIFTED");
            assert_eq!(has_counts, keys != "d Tab f", "{keys} {size:?}: {text}");
        }
    }
}

#[test]
fn memory_that_is_gone_is_new_trouble_in_any_state() {
    for before in [State::Drifted, State::Tampered, State::Scratch] {
        let mut console = fleet_of(&[("alpha", State::Clean), ("bravo", before)]);
        sees(&mut console, "bravo", State::Missing);
        let line = trouble_line(&console, "bravo", State::Missing);
        let text = console.screen_text();
        assert!(text.contains(&line), "{before}: {text}");
    }
}

#[test]
fn missing_memory_after_an_error_is_no_news() {
    let mut console = fleet_of(&[("alpha", State::Clean), ("bravo", State::Error)]);
    sees(&mut console, "bravo", State::Missing);
    let text = console.screen_text();
    assert!(!text.contains("! "), "{text}");
}

#[test]
fn memory_missing_before_tampering_is_no_news() {
    let mut console = fleet_of(&[("alpha", State::Clean), ("bravo", State::Missing)]);
    let mut tampered = observation_of("bravo", State::Tampered);
    tampered.content = None;
    tampered.is_absent = true;
    console.observe(vec![tampered]);
    assert!(console.screen_text().contains("bravo TAMPERED"));
    sees(&mut console, "bravo", State::Missing);
    let text = console.screen_text();
    assert!(!text.contains("goes there"), "{text}");
}

#[test]
fn agents_worse_after_a_config_reload_are_all_news() {
    let names = ["alpha", "bravo", "charlie"];
    let states = [State::Clean, State::Tampered, State::Scratch];
    let agents: Vec<(&str, State)> = names.into_iter().zip(states).collect();
    let mut console = fleet_of(&agents);
    for _ in 0..2 {
        let config = console.model.config.clone();
        console.send(Msg::ConfigAdopted(config, configured_agents(&names), false));
    }
    let tampered = names.map(|name| observation_of(name, State::Tampered));
    console.observe(tampered.to_vec());
    let text = console.screen_text();
    assert!(
        text.contains("TAMPERED, 1 more"),
        "bravo was so before: {text}"
    );
}

#[test]
fn trouble_beside_a_message_keeps_time_and_key() {
    let name = "customer-support-agent-of-the-night-shift";
    for (columns, rows) in [(80, 24), (60, 15)] {
        let mut console = fleet_of(&[(name, State::Clean), ("alpha", State::Clean)]);
        console.send(Msg::Resized(columns, rows));
        sees(&mut console, "alpha", State::Unreach);
        sees(&mut console, name, State::Tampered);
        let message = "the changed config is in force; it closed the plan, made with the old one";
        console.model.show_hint(message);
        let text = console.screen_text();
        let cells: Vec<char> = text.chars().collect();
        let lines = cells.chunks(columns.into()).map(String::from_iter);
        let is_message = |line: &String| line.contains("the changed config");
        let line: String = lines.into_iter().find(is_message).unwrap();
        let time = console.moment().local_time.format("%H:%M");
        assert!(line.contains(&format!("! {time} cust")), "{text}");
        assert!(line.trim_end().ends_with(" TAMPERED +1  '"), "{text}");
    }
}

#[test]
fn trouble_of_the_agent_on_screen_is_not_elsewhere() {
    let mut console = fleet_of_four();
    console.open_agent("bravo", b"", None);
    sees(&mut console, "bravo", State::Drifted);
    let time = console.moment().local_time.format("%H:%M").to_string();
    let text = console.screen_text();
    assert!(text.contains(&format!("! {time} became DRIFTED")), "{text}");
    assert!(!text.contains("goes there"), "{text}");
    // That of another agent matters more, and the key leads to it.
    sees(&mut console, "delta", State::Unreach);
    let text = console.screen_text();
    assert!(text.contains("delta UNREACH  ' goes there"), "{text}");
    console.press("'");
    assert_eq!(console.model.agent.agent, "delta");
    console.press("'");
    assert_eq!(console.model.agent.agent, "bravo");
    console.press("'");
    assert_eq!(console.model.agent.agent, "bravo");
    assert!(console.message_text().contains("no new trouble"));
}

#[test]
fn trouble_key_leads_back_only_from_where_it_led() {
    let mut console = fleet_of_four();
    console.press("8");
    sees(&mut console, "delta", State::Tampered);
    console.press("' 1");
    // Much later the operator comes to the agent in another way.
    console.open_agent("delta", b"", None);
    console.press("'");
    assert_eq!(console.model.screen, Screen::Agent);
    assert!(console.message_text().contains("1 lists 2 agents"));
}

#[test]
fn trouble_key_goes_there_and_back() {
    let mut console = fleet_of_four();
    assert_eq!(console.press("'"), []);
    assert!(console.message_text().contains("no new trouble"));
    console.press("8");
    sees(&mut console, "delta", State::Tampered);
    let effects = console.press("'");
    assert!(effects.contains(&Effect::PrepareTexts("delta".to_string())));
    assert_eq!(console.model.agent.agent, "delta");
    assert!(!console.screen_text().contains("! 0"), "it was looked at");
    console.press("'");
    assert_eq!(console.model.screen, Screen::Hosts);
    assert_eq!(cursor_agent(&console), "charlie");
    // Without new trouble there is nowhere to go.
    console.press("'");
    assert_eq!(console.model.screen, Screen::Hosts);
    assert!(console.message_text().contains("no new trouble"));
    // From an agent it leads back to that agent and its tab.
    console.press("1");
    console.open_agent("charlie", b"", None);
    console.press("Tab");
    sees(&mut console, "bravo", State::Drifted);
    console.press("'");
    assert_eq!(console.model.agent.agent, "bravo");
    assert_eq!(console.model.agent.tab, AgentTab::Diff);
    let effects = console.press("'");
    assert!(effects.contains(&Effect::PrepareTexts("charlie".to_string())));
    assert_eq!(console.model.agent.agent, "charlie");
    assert_eq!(console.model.agent.tab, AgentTab::Scratch);
}

#[test]
fn trouble_key_goes_on_to_the_next_and_then_back() {
    let mut console = fleet_of_four();
    console.press("8");
    sees(&mut console, "bravo", State::Drifted);
    sees(&mut console, "delta", State::Tampered);
    for agent in ["delta", "bravo"] {
        assert!(console.screen_text().contains("' goes there"));
        console.press("'");
        assert_eq!(console.model.agent.agent, agent);
    }
    console.press("'");
    assert_eq!(console.model.screen, Screen::Hosts);
}

#[test]
fn trouble_key_is_not_offered_while_it_is_a_letter() {
    let mut console = fleet_of_four();
    sees(&mut console, "delta", State::Tampered);
    assert!(console.screen_text().contains("' goes there"));
    console.press("/ c o");
    assert!(console.screen_text().contains("delta TAMPERED"));
    assert!(!console.screen_text().contains("goes there"));
}

#[test]
fn trouble_key_leaves_a_plan_as_it_is() {
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("rese");
    sees(&mut console, "delta", State::Tampered);
    console.press("'");
    // The key is a letter of the words that confirm the plan.
    assert_eq!(console.typed_confirmation(), "rese'");
    console.press("^u '");
    assert_eq!(console.model.screen, Screen::Agent);
    console.press("'");
    assert_eq!(console.model.screen, Screen::Reset);
    assert_eq!(console.typed_confirmation(), "");
}

#[test]
fn flapping_agent_stays_one_line() {
    let mut console = fleet_of_four();
    for _ in 0..3 {
        sees(&mut console, "bravo", State::Drifted);
        sees(&mut console, "delta", State::Unreach);
        sees(&mut console, "bravo", State::Clean);
        assert!(console.screen_text().contains("delta UNREACH"));
    }
    let notes = console.model.log.messages.iter();
    let notes: Vec<(&str, usize)> = notes
        .map(|it| (it.text.as_str(), it.repeat_count))
        .collect();
    assert_eq!(notes, [("bravo DRIFTED", 3), ("delta UNREACH", 1)]);
}

#[test]
fn trouble_ends_where_the_agent_is_as_before() {
    let mut console = fleet_of_four();
    let shows = |console: &TestConsole, state: &str| {
        console
            .screen_text()
            .contains(&format!("charlie {state}  ' goes"))
    };
    sees(&mut console, "charlie", State::Tampered);
    assert!(shows(&console, "TAMPERED"));
    // It was DRIFTED before.
    sees(&mut console, "charlie", State::Drifted);
    assert!(!console.screen_text().contains("goes there"));
    // A lesser trouble than the first one is still news.
    sees(&mut console, "bravo", State::Tampered);
    sees(&mut console, "bravo", State::Drifted);
    assert!(
        console
            .screen_text()
            .contains("bravo DRIFTED  ' goes there")
    );
}

#[test]
fn bell_is_off_and_rings_once_for_an_agent() {
    let mut console = fleet_of_four();
    assert!(!sees(&mut console, "delta", State::Tampered), "it is off");
    console.model.preferences.has_bell = true;
    assert!(sees(&mut console, "bravo", State::Drifted));
    sees(&mut console, "bravo", State::Clean);
    assert!(!sees(&mut console, "bravo", State::Drifted), "it flaps");
    console.advance(11 * MINUTE);
    sees(&mut console, "bravo", State::Clean);
    assert!(sees(&mut console, "bravo", State::Drifted));
    assert!(!sees(&mut console, "alpha", State::Oversize), "no trouble");
}

#[test]
fn worse_agents_out_of_sight_are_counted() {
    let names: Vec<String> = (0..60).map(|number| format!("agent-{number:02}")).collect();
    let state_of = |number: usize| match number {
        3 | 4 => State::Drifted,
        59 => State::Clean,
        _ => State::Scratch,
    };
    let states = (0..60).map(state_of);
    let agents: Vec<(&str, State)> = names.iter().map(String::as_str).zip(states).collect();
    let mut console = fleet_of(&agents);
    console.send(Msg::Resized(80, 24));
    let has = |console: &TestConsole, text: &str| console.screen_text().contains(text);
    // Those that were as bad at the start are worse, too; SCRATCH is no worse than CLEAN.
    console.press("G");
    assert_eq!(cursor_agent(&console), "agent-59");
    assert!(has(&console, "2 worse above"));
    let bad = ["agent-05", "agent-06", "agent-07"];
    console.observe(bad.map(|it| observation_of(it, State::Drifted)).to_vec());
    assert!(has(&console, "5 worse above"), "{}", console.screen_text());
    console.press("gg");
    assert!(!has(&console, "worse"));
    // In another order, they are on both sides; as bad as the agent under the cursor is no worse.
    console.press("s n a m e Enter");
    for _ in 0..30 {
        console.press("j");
    }
    console.observe(vec![observation_of("agent-55", State::Tampered)]);
    assert!(has(&console, "5 worse above") && has(&console, "1 worse below"));
    let cursor = cursor_agent(&console);
    console.observe(vec![observation_of(cursor, State::Drifted)]);
    assert!(!has(&console, "worse above") && has(&console, "1 worse below"));
    // What the filter hides is not above.
    console.press("/ a g e n t - 4 Enter");
    assert!(!has(&console, "worse above"));
}

#[test]
fn looked_at_and_own_trouble_is_no_news() {
    let mut console = fleet_of_four();
    let has_line = |console: &TestConsole| console.screen_text().contains("goes there");
    sees(&mut console, "delta", State::Drifted);
    console.advance(Duration::from_secs(60));
    assert!(has_line(&console), "nobody has pressed a key");
    console.press("j j");
    assert!(!has_line(&console), "{}", cursor_agent(&console));
    // An undo of this console brings drifted rules back.
    console.press_and_plan("gg j X", plan(&[("delta", State::Drifted)]));
    console.type_line("reset 1");
    console.press("Enter");
    let report = run_report(&[("bravo", Outcome::Ok, None)]);
    let run = report.run.clone();
    console.send(Msg::RunEnded(Box::new(report)));
    let mut after = observation_of("bravo", State::Drifted);
    after.last_run.as_mut().unwrap().run = run;
    console.observe(vec![after]);
    assert!(!has_line(&console));
}

/// Observations of the time of a run may be half of before it and half of after it.
#[test]
fn undo_of_this_console_is_no_trouble_at_any_time() {
    let has_line = |console: &TestConsole| console.screen_text().contains("goes there");
    let second = Duration::from_secs(1);
    let mut console = fleet_of_four();
    let plan = plan(&[("alpha", State::Drifted), ("bravo", State::Drifted)]);
    console.press_and_plan("gg j X", plan);
    console.type_line("reset 2");
    console.press("Enter");
    let report = run_report(&[("alpha", Outcome::Ok, None), ("bravo", Outcome::Ok, None)]);
    let run = report.run.clone();
    let observation = |agent: &str, state: State, is_recorded: bool| {
        let mut seen = observation_of(agent, state);
        if is_recorded {
            seen.last_run.as_mut().unwrap().run.clone_from(&run);
        }
        seen
    };
    console.advance(second);
    console.observe(vec![observation("bravo", State::Drifted, true)]);
    assert!(!has_line(&console), "the run is not over");
    console.observe(vec![
        observation("alpha", State::Busy, true),
        observation("bravo", State::Clean, true),
    ]);
    console.send(Msg::RunEnded(Box::new(report)));
    console.observe(vec![observation("bravo", State::Drifted, false)]);
    assert!(!has_line(&console), "it was read before the end");
    console.advance(second);
    console.observe(vec![observation("alpha", State::Drifted, true)]);
    assert!(!has_line(&console), "it was locked before");
    // What happens after the run is news.
    console.observe(vec![observation("bravo", State::Clean, true)]);
    console.observe(vec![observation("bravo", State::Tampered, true)]);
    assert!(has_line(&console));
}
