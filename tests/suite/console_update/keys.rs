//! Keys, and input that arrives faster than typing.

use std::path::Path;

use memory_shepherd::console::chooser;
use memory_shepherd::console::command::{COMMAND_TABLE, Command};
use memory_shepherd::console::dispatch;
use memory_shepherd::console::keys::key::{self, Key, KeyCode};
use memory_shepherd::console::keys::keymap::{self, Keymap};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::overlay::Overlay;
use memory_shepherd::console::preferences;
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::agent::state::AgentTab;
use memory_shepherd::console::screens::fleet::sort_order::SortOrder;
use memory_shepherd::engine::{Outcome, State};

use super::{console_with_run, cursor_agent, makes_dirty};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{configured_agents, plan, run_report};

#[test]
fn wrong_second_key_only_cancels_the_sequence() {
    let mut console = fleet_of_four();
    console.press("G");
    assert_eq!(cursor_agent(&console), "alpha");
    assert!(!makes_dirty(&mut console, |console| drop(
        console.press("g")
    )));
    console.press("g");
    assert_eq!(cursor_agent(&console), "charlie");
    console.press("g j");
    assert_eq!(cursor_agent(&console), "charlie");
    assert_eq!(console.press("y q"), []);
    assert!(console.message_text().contains("yq: no such key sequence"));
    assert!(console.model.pending_keys.keys.is_empty());
    console.press("y Esc");
    assert_eq!(console.model.last_message, None);
    assert!(console.model.pending_keys.keys.is_empty());
}

#[test]
fn palette_category_word_limits_matches() {
    let chosen = |line: &str| {
        let mut console = fleet_of_four();
        console.press(":");
        console.type_line(line);
        let effects = console.press("Enter");
        (console.model.fleet.sort_order, effects)
    };
    assert_eq!(chosen("sort changed").0, SortOrder::Changed);
    // The file may have just appeared; if not, the message says so.
    let theme = |name: &str| vec![Effect::LoadTheme(name.to_string())];
    assert_eq!(chosen("theme moon").1, theme("moon"));
    assert_eq!(chosen("theme mon").1, theme("mono"));
    // Two sort orders use an age.
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

/// Returns the ids that the palette lists for a query.
fn palette_matches(console: &mut TestConsole, query: &str) -> Vec<String> {
    console.press(":");
    console.type_line(query);
    let overlay = console.model.overlay.clone().expect("a palette");
    let choices = chooser::list_choices(&console.model, &overlay);
    console.press("Esc");
    choices.into_iter().map(|choice| choice.id).collect()
}

#[test]
fn palette_lists_name_matches_first() {
    let mut console = fleet_of_four();
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
        assert_eq!(palette_matches(&mut console, query)[0], first, "{query}");
    }
    // Names that begin with the query come before those that contain it.
    let found = palette_matches(&mut console, "re");
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
fn palette_word_of_one_title_is_unambiguous() {
    // Letters of other titles match, too; only one has the word.
    for (keys, query, screen) in [("3", "schedule", Screen::Log), ("1", "sched", Screen::Log)] {
        let mut console = fleet_of_four();
        console.press(keys);
        assert!(palette_matches(&mut console, query).len() > 1, "{query}");
        console.press(":");
        console.type_line(query);
        console.press("Enter");
        assert_eq!(console.model.screen, screen, "{query}");
    }
    // A name that contains the word precedes titles with it.
    let mut console = fleet_of_four();
    let schedule = Box::new(crate::schedule_samples::common_schedule());
    let number = console.model.log.schedule.requests.begin();
    console.send(Msg::ScheduleLoaded(number, Ok(schedule)));
    console.press("7 Tab");
    let found = palette_matches(&mut console, "schedule");
    assert_eq!(found[..2], ["copy-schedule", "log"]);
    console.press(":");
    console.type_line("schedule");
    console.press("Enter");
    assert!(matches!(console.model.overlay, Some(Overlay::Palette(_))));
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
    // The command is about the agent under the cursor, the open one, or the one in the row.
    for (from, agent) in [
        ("j", "bravo"),
        ("8", "charlie"),
        ("d ]", "bravo"),
        ("7", "charlie"),
    ] {
        for (name, tab) in tabs {
            let mut console = fleet_of_four();
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
        let mut console = fleet_of_four();
        console.press("7 8 :");
        console.type_line(name);
        console.press("Enter");
        assert_eq!(console.model.screen, screen, "{name}");
    }
}

#[test]
fn palette_enter_needs_unambiguous_match() {
    for (query, why) in [
        ("", "choose with Down"),
        ("re", "matches for `re`"),
        ("copy", "matches for `copy`"),
        ("agent ", "matches for `agent`"),
        ("sort", ""),
        ("s", "matches for `s`"),
        ("xyzzy", "no match for `xyzzy`"),
    ] {
        let mut console = fleet_of_four();
        console.press(":");
        console.type_line(query);
        let effects = console.press("Enter");
        assert_eq!(effects, [], "{query}");
        assert!(
            matches!(console.model.overlay, Some(Overlay::Palette(_))),
            "{query}"
        );
        assert!(
            console.message_text().contains(why),
            "{query}: {}",
            console.message_text()
        );
    }
    // A choice made with a key wins over a better match.
    let mut console = fleet_of_four();
    console.press(":");
    console.type_line("agent ");
    console.press("Down");
    assert_eq!(
        console.press("Enter"),
        [Effect::PrepareTexts("alpha".to_string())]
    );
    // Another letter discards that choice.
    console.press("q :");
    console.type_line("sort ");
    console.press("Down");
    console.type_line("s");
    assert_eq!(console.press("Enter"), []);
    assert!(
        console.message_text().contains("matches for `sort s`"),
        "{}",
        console.message_text()
    );
}

#[test]
fn help_search_enter_needs_unambiguous_match() {
    let mut console = fleet_of_four();
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
    assert!(
        console.message_text().contains("matches for `mar`"),
        "{}",
        console.message_text()
    );
    // A list without a query has its cursor on a row.
    console.press("Esc Enter");
    assert_eq!(console.model.overlay, None);
}

#[test]
fn equal_filters_are_separate_palette_rows() {
    let mut console = fleet_of_four();
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
fn control_u_clears_palette_query() {
    let mut console = fleet_of_four();
    console.press(":");
    console.type_line("sort nothing");
    console.press("^u");
    console.type_line("sort changed");
    console.press("Enter");
    assert_eq!(console.model.fleet.sort_order, SortOrder::Changed);
}

#[test]
fn plan_help_offers_only_valid_commands() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    let asks = |console: &TestConsole| {
        let offered = dispatch::offered_commands(&console.model).map(|spec| spec.id);
        offered.filter(|id| id.ends_with("-hidden")).count()
    };
    assert_eq!(asks(&console), 0);
    console.model.reset.hidden_agents = vec!["bravo".to_string()];
    assert_eq!(asks(&console), 2);
}

#[test]
fn palette_choice_follows_cursor_after_reload() {
    let mut console = fleet_of_four();
    console.press(":");
    console.type_line("agent ");
    console.press("Down Down");
    // Other agents join above it.
    let info = console.model.config.clone();
    let names = configured_agents(&["aaaa", "alpha", "bravo", "charlie"]);
    console.send(Msg::ConfigAdopted(info, names, false));
    assert!(
        console
            .press("Enter")
            .contains(&Effect::PrepareTexts("bravo".to_string()))
    );
}

#[test]
fn unknown_keys_do_nothing() {
    let mut console = fleet_of_four();
    for key in ["J", "Q", "F5", "^e", "Tab", "Backspace", "%", "5"] {
        console.press("j k");
        // A key of another screen says so.
        let known = matches!(key, "5" | "Tab" | "Backspace");
        let mut effects = Vec::new();
        let changed = makes_dirty(&mut console, |console| effects = console.press(key));
        assert_eq!((changed, effects), (known, vec![]), "{key}");
    }
}

#[test]
fn key_of_another_screen_says_so() {
    let mut console = console_with_run();
    console.send(Msg::RunEnded(Box::new(run_report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    for (keys, said) in [
        ("Z", "Z: not on this screen"),
        ("7 s", "s: not on this screen"),
        ("Q", ""),
    ] {
        console.press(keys);
        assert_eq!(console.message_text(), said, "{keys}");
    }
}

#[test]
fn pasted_text_is_never_a_key() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(console.send(Msg::TextPasted("y".to_string())), []);
    let mut typed = fleet_of_four();
    typed.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    assert_eq!(typed.send(Msg::TextPasted("reset 1\n".to_string())), []);
    assert_eq!(
        (typed.typed_confirmation(), console.applied_agents()),
        ("", vec![])
    );
    let mut fleet = fleet_of_four();
    assert_eq!(fleet.send(Msg::TextPasted("aXq".to_string())), []);
    assert_eq!(
        (fleet.model.screen, fleet.model.fleet.marks.len()),
        (Screen::Fleet, 0)
    );
    fleet.press("?");
    fleet.send(Msg::TextPasted("q".to_string()));
    assert!(fleet.model.overlay.is_some());
    fleet.press("Esc /");
    fleet.send(Msg::TextPasted("bra\u{1b}vo\nX".to_string()));
    assert_eq!(
        fleet.model.fleet.filter, "bravo",
        "a prompt takes one clean line"
    );
}

#[test]
fn burst_of_printable_keys_only_moves() {
    let mut console = fleet_of_four();
    let burst = |text: &str| {
        Msg::KeysPressed(
            text.chars()
                .map(|c| Key::from_code(KeyCode::Char(c)))
                .collect(),
        )
    };
    console.send(burst("jjjjjjjjj"));
    assert_eq!(
        cursor_agent(&console),
        "alpha",
        "a held key over a slow line"
    );
    console.send(burst("kkaXyAqq!z"));
    assert_eq!(
        cursor_agent(&console),
        "bravo",
        "k moves, the rest does not count"
    );
    assert_eq!(
        (console.model.screen, console.model.fleet.marks.len()),
        (Screen::Fleet, 0)
    );
    assert!(
        console.message_text().contains("pasted"),
        "{}",
        console.message_text()
    );
    assert_eq!(console.effects, []);
    // Eight keys are fast typing.
    console.send(burst("kkkkkkka"));
    assert_eq!(console.model.fleet.marks.len(), 4);
    console.press_and_plan("gg A X", plan(&[("charlie", State::Drifted)]));
    console.send(burst("reset 1  "));
    assert_eq!(console.typed_confirmation(), "");
}

/// Sends keys that arrive in one read; `\n` is Enter.
fn send_burst(console: &mut TestConsole, text: &str) -> Vec<Effect> {
    let key = |c| match c {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    let keys = text.chars().map(|c| Key::from_code(key(c))).collect();
    let mut effects = console.send(Msg::KeysPressed(keys));
    effects.retain(|it| !matches!(it, Effect::SaveViewState(_)));
    effects
}

#[test]
fn command_line_in_one_burst_is_a_command() {
    let theme = vec![Effect::LoadTheme("light".to_string())];
    let mut console = fleet_of_four();
    assert_eq!(send_burst(&mut console, ":theme light\n"), theme);
    // So does one behind movements, and one whose Enter comes later.
    assert_eq!(send_burst(&mut console, "jj:theme light\n"), theme);
    send_burst(&mut console, ":theme light");
    assert_eq!(console.press("Enter"), theme);
    send_burst(&mut console, "/is:drifted\n");
    assert_eq!(console.model.fleet.filter, "is:drifted");
    assert_eq!(console.model.input_line, None);
    let quit = send_burst(&mut console, "jkjkjkjkjk:q\n");
    assert_eq!(quit, [Effect::CancelRun, Effect::Quit]);
}

#[test]
fn keys_behind_a_line_of_a_burst_are_dropped() {
    let mut console = fleet_of_four();
    assert_eq!(send_burst(&mut console, "/bravo\nXyqaz"), []);
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.message_text().contains("pasted"));
    console.press("Esc");
    // A line that was open before does not make commands of what follows it.
    console.press("/");
    assert_eq!(send_burst(&mut console, "delta\nXyqaz"), []);
    assert_eq!(console.model.fleet.filter, "delta");
    assert_eq!(console.model.fleet.marks.len(), 0);
    console.press("Esc");
    // Once something looks pasted, nothing opens a line any more.
    assert_eq!(send_burst(&mut console, "see http:theme light\n"), []);
    assert_eq!(
        (console.model.overlay.is_none(), &console.model.input_line),
        (true, &None)
    );
}

#[test]
fn chosen_command_runs_or_says_why_not() {
    let mut console = fleet_of_four();
    console.press("? /");
    console.type_line("clear all marks");
    console.press("Enter");
    assert!(
        console.message_text().contains("no agents marked"),
        "{}",
        console.message_text()
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
    assert_eq!(console.model.fleet.sort_order, SortOrder::Size);
    console.press(":");
    console.type_line("q");
    assert_eq!(console.press("Enter"), [Effect::CancelRun, Effect::Quit]);
    let mut console = fleet_of_four();
    assert_eq!(console.press(": x Backspace Backspace"), []);
    assert_eq!(console.model.overlay, None, "one Backspace more closes it");
}

#[test]
fn every_key_sequence_prefix_is_recognized() {
    let keymap = Keymap::default();
    for spec in COMMAND_TABLE {
        for text in spec.keys {
            let sequence = key::parse_sequence(text).unwrap();
            for length in 1..sequence.len() {
                for context in spec.contexts {
                    let meaning = keymap.resolve(*context, &sequence[..length]);
                    assert_eq!(meaning, keymap::KeyMeaning::Prefix, "{text}");
                }
            }
        }
    }
}

#[test]
fn added_command_is_offered_and_run() {
    let offered = |console: &TestConsole| {
        let mut specs = dispatch::offered_commands(&console.model);
        specs.any(|spec| spec.command == Command::Extra)
    };
    let mut console = fleet_of_four();
    assert!(!offered(&console));
    assert_eq!(console.press("D"), []);
    console.add_extra_command();
    assert!(offered(&console));
    assert_eq!(console.press("D"), [Effect::RunExtraCommand]);
    let effects = console.send(Msg::ExtraCommandEnded("it is done".to_string()));
    assert_eq!(console.message_text(), "it is done");
    assert!(matches!(&effects[..], [Effect::ReadAgents(names)] if names.len() == 4));
    // Text typed to confirm a plan is not a key.
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    assert!(console.type_line("reD").is_empty());
    assert_eq!(console.typed_confirmation(), "reD");
    // Nor does it take a key that the operator gave to another command.
    console.press("Esc");
    let text = "[keys]\nsort = \"D\"\n";
    let (preferences, problems) = preferences::parse(text, Path::new("console.toml"));
    assert_eq!(problems, []);
    console.send(Msg::PreferencesLoaded(Box::new(preferences)));
    assert_eq!(console.press("D"), []);
    assert!(offered(&console));
}
