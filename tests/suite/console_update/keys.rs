//! Keys, and input that no hand typed.

use memory_shepherd::console::chooser;
use memory_shepherd::console::command::{self, COMMAND_TABLE, Command};
use memory_shepherd::console::keymap::{self, Key, KeyCode, Keymap};
use memory_shepherd::console::model::{AgentTab, Overlay, ResetStage, Screen, SortOrder};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::State;

use super::{cursor, dirties};
use crate::console_fleet::{Console, agents, four, plan};

#[test]
fn a_key_of_two_waits_for_the_second_and_a_wrong_second_counts_alone() {
    let mut console = four();
    console.press("G");
    assert_eq!(cursor(&console), "alpha");
    assert!(!dirties(&mut console, |console| drop(console.press("g"))));
    console.press("g");
    assert_eq!(cursor(&console), "charlie");
    console.press("g j");
    assert_eq!(cursor(&console), "bravo", "gj is no key, j is");
    console.press("g x");
    assert!(console.model.pending_keys.keys.is_empty());
}

#[test]
fn behind_the_word_of_a_kind_the_palette_means_nothing_else() {
    let chosen = |line: &str| {
        let mut console = four();
        console.press(":");
        console.type_line(line);
        let effects = console.press("Enter");
        (console.model.sort_order, effects)
    };
    assert_eq!(chosen("sort changed").0, SortOrder::Changed);
    // Its file may be there since a moment ago; if not, that is said.
    let theme = |name: &str| vec![Effect::LoadTheme(name.to_string())];
    assert_eq!(chosen("theme moon").1, theme("moon"));
    assert_eq!(chosen("theme mon").1, theme("mono"));
    // Two orders go by an age.
    let nothings = [
        "theme ../x",
        "sort nothing",
        "sort age",
        "agent nobody",
        "filter none",
    ];
    for nothing in nothings {
        assert_eq!(
            chosen(nothing),
            (SortOrder::Severity, Vec::new()),
            "{nothing}"
        );
    }
}

/// What the palette lists for a query, by name.
fn listed(console: &mut Console, query: &str) -> Vec<String> {
    console.press(":");
    console.type_line(query);
    let overlay = console.model.overlay.clone().expect("a palette");
    let choices = chooser::list_choices(&console.model, &overlay);
    console.press("Esc");
    choices.into_iter().map(|choice| choice.id).collect()
}

#[test]
fn palette_lists_names_before_anything_else() {
    let mut console = four();
    for (query, first) in [
        ("facts", "facts"),
        ("FACTS", "facts"),
        ("fac", "facts"),
        ("scratch", "scratch"),
        ("hist", "history"),
        ("diff", "diff"),
        ("log", "log"),
        ("host", "hosts"),
        ("fleet", "fleet"),
        ("delta", "agent delta"),
        ("brav", "agent bravo"),
        ("mono", "theme mono"),
        ("size", "sort size"),
        ("q", "quit"),
        ("read", "read"),
        ("wrap", "theme wrap"),
    ] {
        console.model.theme_names = vec!["mono".to_string(), "wrap".to_string()];
        assert_eq!(listed(&mut console, query)[0], first, "{query}");
    }
    // Of several that begin so, all come before those that have it elsewhere.
    let found = listed(&mut console, "re");
    let last = found
        .iter()
        .rposition(|name| name.starts_with("re"))
        .unwrap();
    assert!(
        found[..last].iter().all(|name| name.starts_with("re")),
        "{found:?}"
    );
}

#[test]
fn palette_opens_tabs_and_screens() {
    let tabs = [
        ("diff", AgentTab::Diff),
        ("scratch", AgentTab::Scratch),
        ("facts", AgentTab::Facts),
        ("baseline", AgentTab::Baseline),
        ("history", AgentTab::History),
    ];
    // Of the agent under the cursor, also from where there is none; of the one that is
    // open; of the one in the row.
    for (from, agent) in [
        ("j", "bravo"),
        ("8", "charlie"),
        ("d ]", "bravo"),
        ("7", "charlie"),
    ] {
        for (name, tab) in tabs {
            let mut console = four();
            console.press(from);
            console.press(":");
            console.type_line(name);
            console.press("Enter");
            let opened = &console.model.agent;
            assert_eq!(console.model.screen, Screen::Agent, "{from} {name}");
            assert_eq!(
                (opened.agent.as_str(), opened.tab),
                (agent, tab),
                "{from} {name}"
            );
        }
    }
    let screens = [
        ("fleet", Screen::Fleet),
        ("log", Screen::Log),
        ("hosts", Screen::Hosts),
    ];
    for (name, screen) in screens.into_iter().chain([("agent", Screen::Agent)]) {
        let mut console = four();
        console.press("7 8 :");
        console.type_line(name);
        console.press("Enter");
        assert_eq!(console.model.screen, screen, "{name}");
    }
}

#[test]
fn enter_in_the_palette_runs_only_what_is_unambiguous() {
    for (query, why) in [
        ("", "choose with Down"),
        ("re", "`re` fits"),
        ("copy", "`copy` fits"),
        ("agent ", "`agent` fits"),
        ("sort", ""),
        ("s", "`s` fits"),
        ("xyzzy", "nothing matches `xyzzy`"),
    ] {
        let mut console = four();
        console.press(":");
        console.type_line(query);
        let effects = console.press("Enter");
        assert_eq!(effects, [], "{query}");
        assert!(
            matches!(console.model.overlay, Some(Overlay::Palette(_))),
            "{query}"
        );
        assert!(console.said().contains(why), "{query}: {}", console.said());
    }
    // What a key has chosen is meant, whatever else fits.
    let mut console = four();
    console.press(":");
    console.type_line("agent ");
    console.press("Down");
    assert_eq!(
        console.press("Enter"),
        [Effect::PrepareTexts("alpha".to_string())]
    );
    // Another letter takes that choice back.
    console.press("q :");
    console.type_line("sort ");
    console.press("Down");
    console.type_line("s");
    assert_eq!(console.press("Enter"), []);
    assert!(
        console.said().contains("`sort s` fits"),
        "{}",
        console.said()
    );
}

#[test]
fn enter_in_searched_help_runs_only_what_is_unambiguous() {
    let mut console = four();
    console.press("? /");
    console.type_line("agent");
    assert_eq!(
        console.press("Enter"),
        [Effect::PrepareTexts("charlie".to_string())],
        "its name"
    );
    console.press("q ? /");
    console.type_line("mark");
    console.press("Backspace Enter");
    assert!(matches!(console.model.overlay, Some(Overlay::Help(_))));
    assert!(console.said().contains("`mar` fits"), "{}", console.said());
    // A list that is not searched has its cursor on a row.
    console.press("Esc Enter");
    assert_eq!(console.model.overlay, None);
}

#[test]
fn filters_that_say_the_same_are_two_all_the_same() {
    let mut console = four();
    let same = [("one", "is:drifted"), ("two", "is:drifted")];
    console.model.preferences.named_filters = same.map(|(a, b)| (a.into(), b.into())).into();
    console.press(":");
    console.type_line("filter ");
    console.press("Down Down");
    let Some(Overlay::Palette(chooser)) = &console.model.overlay else {
        panic!("no palette");
    };
    assert_eq!(chooser.cursor_row, Some(1), "the second is the last");
}

#[test]
fn control_u_clears_what_is_searched_for() {
    let mut console = four();
    console.press(":");
    console.type_line("sort nothing");
    console.press("^u");
    console.type_line("sort changed");
    console.press("Enter");
    assert_eq!(console.model.sort_order, SortOrder::Changed);
}

#[test]
fn help_of_a_plan_offers_nothing_it_does_not_ask() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    let asks = |console: &Console| {
        let offered = command::offered_commands(&console.model).map(|spec| spec.id);
        offered.filter(|id| id.ends_with("-hidden")).count()
    };
    assert_eq!(asks(&console), 0);
    if let ResetStage::Plan(view) = &mut console.model.reset.stage {
        view.hidden_agents = vec!["bravo".to_string()];
    }
    assert_eq!(asks(&console), 2);
}

#[test]
fn what_is_chosen_is_what_the_cursor_came_to() {
    let mut console = four();
    console.press(":");
    console.type_line("agent ");
    console.press("Down Down");
    // Others join in meanwhile, before it.
    let info = console.model.fleet.clone();
    let names = agents(&["aaaa", "alpha", "bravo", "charlie"]);
    console.send(Msg::ConfigAdopted(info, names, false));
    assert!(
        console
            .press("Enter")
            .contains(&Effect::PrepareTexts("bravo".to_string()))
    );
}

#[test]
fn unknown_keys_do_nothing() {
    let mut console = four();
    for key in ["x", "Q", "F5", "^e", "Tab", "Backspace", "%", "5"] {
        console.press("j k");
        let known = matches!(key, "5");
        let mut effects = Vec::new();
        let changed = dirties(&mut console, |console| effects = console.press(key));
        assert_eq!((changed, effects), (known, vec![]), "{key}");
    }
}

#[test]
fn pasted_text_is_never_a_key() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(console.send(Msg::TextPasted("y".to_string())), []);
    let mut typed = four();
    typed.plan("X", plan(&[("charlie", State::Drifted)]));
    assert_eq!(typed.send(Msg::TextPasted("reset 1\n".to_string())), []);
    assert_eq!((typed.typed(), console.applied()), ("", vec![]));
    let mut fleet = four();
    assert_eq!(fleet.send(Msg::TextPasted("aXq".to_string())), []);
    assert_eq!(
        (fleet.model.screen, fleet.model.marks.len()),
        (Screen::Fleet, 0)
    );
    fleet.press("?");
    fleet.send(Msg::TextPasted("q".to_string()));
    assert!(fleet.model.overlay.is_some());
    fleet.press("Esc /");
    fleet.send(Msg::TextPasted("bra\u{1b}vo\nX".to_string()));
    assert_eq!(fleet.model.filter, "bravo", "a prompt takes one clean line");
}

#[test]
fn many_printable_keys_at_once_only_move() {
    let mut console = four();
    let burst = |text: &str| {
        Msg::KeysPressed(
            text.chars()
                .map(|c| Key::from_code(KeyCode::Char(c)))
                .collect(),
        )
    };
    console.send(burst("jjjjjjjjj"));
    assert_eq!(cursor(&console), "alpha", "a held key over a slow line");
    console.send(burst("kkaXyAqq!z"));
    assert_eq!(
        cursor(&console),
        "bravo",
        "k moves, the rest does not count"
    );
    assert_eq!(
        (console.model.screen, console.model.marks.len()),
        (Screen::Fleet, 0)
    );
    assert!(console.said().contains("pasted"), "{}", console.said());
    assert_eq!(console.effects, []);
    // Eight are a quick hand's.
    console.send(burst("kkkkkkka"));
    assert_eq!(console.model.marks.len(), 4);
    console.plan("gg A X", plan(&[("charlie", State::Drifted)]));
    console.send(burst("reset 1  "));
    assert_eq!(console.typed(), "");
}

#[test]
fn help_and_palette_run_what_is_chosen_and_say_why_not() {
    let mut console = four();
    console.press("? /");
    console.type_line("clear all marks");
    console.press("Enter");
    assert!(
        console.said().contains("nothing is marked"),
        "{}",
        console.said()
    );
    assert_eq!(console.model.overlay, None);
    console.press(":");
    console.type_line("agent delta");
    assert_eq!(
        console.press("Enter"),
        [Effect::PrepareTexts("delta".to_string())]
    );
    console.press("q :");
    console.type_line("sort size");
    console.press("Enter");
    assert_eq!(console.model.sort_order, SortOrder::Size);
    console.press(":");
    console.type_line("q");
    assert_eq!(console.press("Enter"), [Effect::CancelRun, Effect::Quit]);
    let mut console = four();
    assert_eq!(console.press(": x Backspace Backspace"), []);
    assert_eq!(console.model.overlay, None, "one Backspace more closes it");
}

#[test]
fn every_prefix_of_a_key_sequence_is_known_as_one() {
    let keymap = Keymap::default();
    for spec in COMMAND_TABLE {
        for text in spec.keys {
            let sequence = keymap::parse_sequence(text).unwrap();
            for length in 1..sequence.len() {
                for context in spec.contexts {
                    let meaning = keymap.resolve(*context, &sequence[..length]);
                    assert_eq!(meaning, keymap::KeyMeaning::Prefix, "{text}");
                }
            }
        }
    }
}

/// Only the demo has a host that can be sent away.
#[test]
fn the_demos_host_is_offered_in_the_demo_alone() {
    let offered = |console: &Console| {
        let mut specs = command::offered_commands(&console.model);
        specs.any(|spec| spec.command == Command::ToggleDemoHost)
    };
    let mut console = four();
    assert!(!offered(&console));
    assert_eq!(console.press("D"), []);
    assert_eq!(console.said(), "host: only the demo has one to play with");
    console.model.is_demo_host_away = Some(false);
    assert!(offered(&console));
    for away in [true, false] {
        let effects = console.press("D");
        assert_eq!(effects[0], Effect::SetDemoHostAway(away));
        assert!(matches!(&effects[1], Effect::ReadAgents(names) if names.len() == 4));
        assert_eq!(console.model.is_demo_host_away, Some(away));
    }
    // What is typed to confirm a plan is no key.
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reD");
    assert_eq!(
        (console.typed(), console.model.is_demo_host_away),
        ("reD", Some(false))
    );
}
