//! The Memory and Health tabs of an agent with a layout, and operations on its memory.

mod operations;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use memory_shepherd::console::agent_row::AgentRow;
use memory_shepherd::console::command::Command;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::equivalent_command;
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::agent::state::AgentTab;
use memory_shepherd::console::screens::agent::state::memory::{
    ItemContentRequest, ItemPage, ItemsRequest, MemoryPane,
};
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text::PreparedText;
use memory_shepherd::engine::Outcome;
use memory_shepherd::layouts::{HealthFinding, HealthSeverity};

use crate::console_fixture::{TestConsole, fleet_with_layouts, memory_item};

/// A console that shows the memory of `keeper`, with these items.
fn console_with_items(ids: &[&str]) -> TestConsole {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    console.deliver_items(number, ids, false);
    console.deliver_items(number, &[], true);
    console.effects.clear();
    console
}

fn current_item(console: &TestConsole) -> &str {
    let item = console.model.agent.memory.items.current_item();
    item.map_or("", |item| item.id.as_str())
}

fn tab(console: &TestConsole) -> AgentTab {
    console.model.agent.tab
}

/// Returns the ids of so many items.
fn item_ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}.md")).collect()
}

/// Delivers items with these ids.
fn deliver_ids(console: &mut TestConsole, number: u64, ids: &[String], is_last: bool) {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    console.deliver_items(number, &ids, is_last);
}

/// Answers the last request for a content with a line that names the item.
fn answer_content(console: &mut TestConsole) {
    let request = console.model.agent.memory.content.request.clone().unwrap();
    let text = PreparedText::note(format!("content of {}", request.item));
    console.send(Msg::ItemContentRead(request, Ok(text)));
}

/// Returns the text that keys copy; none if they copy nothing.
fn copied_text(console: &mut TestConsole, keys: &str) -> Option<String> {
    let effects = console.press(keys);
    let mut copies = effects.into_iter().filter_map(|effect| match effect {
        Effect::CopyToClipboard(clip) => Some(clip.text),
        _ => None,
    });
    copies.next()
}

/// Returns how often the texts of `keeper` were requested.
fn count_text_requests(console: &TestConsole) -> usize {
    let request = Effect::PrepareTexts("keeper".to_string());
    console.effects.iter().filter(|it| **it == request).count()
}

fn is_items_request(effect: &Effect) -> bool {
    matches!(effect, Effect::ReadItems(_))
}

/// Presses `Tab` until the first tab comes again.
fn tabs_of(console: &mut TestConsole, name: &str) -> Vec<AgentTab> {
    console.press("1");
    console.select_agent(name);
    console.press("Enter");
    let first = tab(console);
    let mut tabs = vec![first];
    while !(tabs.len() > 1 && tab(console) == first) {
        console.press("Tab");
        tabs.push(tab(console));
    }
    tabs.pop();
    tabs
}

#[test]
fn agent_tabs_match_its_memories() {
    use AgentTab::{Baseline, Diff, Facts, Health, History, Memory, Rules, Scratch};
    let mut console = fleet_with_layouts();
    let plain = [Diff, Scratch, Facts, Baseline, Rules, History];
    assert_eq!(tabs_of(&mut console, "plain"), plain);
    let scout = [
        Diff, Scratch, Memory, Health, Facts, Baseline, Rules, History,
    ];
    assert_eq!(tabs_of(&mut console, "scout"), scout);
    let keeper = [Memory, Health, Facts, History];
    assert_eq!(tabs_of(&mut console, "keeper"), keeper);
    console.press("S-Tab");
    assert_eq!(tab(&console), History);
    // Another agent keeps the tab, if it has it.
    console.press("Tab [");
    let agent = &console.model.agent;
    assert_ne!(agent.agent, "keeper");
    let row = console.model.find_row(&agent.agent);
    assert!(AgentTab::offered_for(row).contains(&agent.tab));
    // The palette lists the same.
    let mut console = console_with_items(&[]);
    console.press(":");
    console.type_line("of keeper");
    let text = console.screen_text();
    assert!(
        text.contains("memory ") && text.contains("health "),
        "{text}"
    );
    assert!(!text.contains("live diff of keeper"), "{text}");
}

#[test]
fn items_are_loaded_page_by_page() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let request = console.open_memory();
    assert_eq!((request.loaded, request.collection), (0, None));
    deliver_ids(
        &mut console,
        request.number,
        &item_ids(request.wanted),
        false,
    );
    let text = console.screen_text();
    assert!(text.contains("200 items read, more follow"), "{text}");
    console.effects.clear();
    console.press("j j");
    assert!(
        !console.effects.iter().any(is_items_request),
        "{:?}",
        console.effects
    );
    assert_eq!(current_item(&console), "n2.md");
    console.press("G");
    let more = console.items_request();
    assert_eq!(
        (more.number, more.loaded, more.wanted),
        (request.number, 200, 400)
    );
    console.effects.clear();
    console.press("k G");
    assert!(
        !console.effects.iter().any(is_items_request),
        "one request at a time"
    );
    assert_eq!(current_item(&console), "n199.md");
    console.deliver_items(request.number, &["last.md"], false);
    console.deliver_items(request.number, &[], true);
    assert!(console.screen_text().contains("201 items  read <1m ago"));
    assert_eq!(
        current_item(&console),
        "n199.md",
        "the cursor stays on its item"
    );
    console.effects.clear();
    console.press("G");
    assert_eq!(current_item(&console), "last.md");
    assert!(
        !console.effects.iter().any(is_items_request),
        "there are no more"
    );
}

#[test]
fn paused_items_request_is_repeated() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    console.deliver_items(number, &["a.md", "b.md"], false);
    console.effects.clear();
    // The whole page was asked for, and the job ended before it had read that much.
    console.send(Msg::ItemsPaused(number));
    let more = console.items_request();
    assert_eq!((more.number, more.loaded), (number, 2));
    // A job that ended before the first page is requested as a whole.
    console.press("r");
    let again = console.items_request();
    console.send(Msg::ItemsPaused(again.number));
    let whole = console.items_request();
    assert_eq!((whole.number, whole.loaded), (again.number + 1, 0));
}

#[test]
fn replies_for_another_agent_are_ignored() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let old = console.open_memory();
    let checks = console.press("Tab");
    let Some(Effect::CheckMemory(old_check, _)) = checks.first() else {
        panic!("no checks: {checks:?}")
    };
    console.press("S-Tab 1");
    console.select_agent("scout");
    console.press(":");
    console.type_line("memory");
    console.press("Enter");
    let new = console.items_request();
    assert_eq!(new.agent, "scout");
    assert_ne!(new.number, old.number);
    console.deliver_items(old.number, &["keeper.md"], true);
    console.send(Msg::MemoryOpened(old.number, Err("gone".to_string())));
    console.send(Msg::MemoryChecked(*old_check, Ok(vec![finding("old.md")])));
    assert!(console.model.agent.memory.opened.is_none());
    assert!(console.model.agent.memory.items.loaded.is_empty());
    assert!(console.model.agent.health.findings.is_none());
    console.deliver_collections(new.number);
    console.deliver_items(new.number, &["scout.md"], true);
    assert_eq!(current_item(&console), "scout.md");
}

#[test]
fn cursor_stays_on_its_item_when_it_is_read_again() {
    let mut console = console_with_items(&["a.md", "b.md", "c.md"]);
    console.press("j");
    assert_eq!(current_item(&console), "b.md");
    console.press("r");
    let request = console.items_request();
    assert!(
        console.screen_text().contains("title of c.md"),
        "the items stay until the answer"
    );
    console.deliver_collections(request.number);
    console.deliver_items(request.number, &["new.md", "a.md", "c.md", "b.md"], false);
    console.deliver_items(request.number, &[], true);
    assert_eq!(current_item(&console), "b.md");
    assert_eq!(console.model.agent.memory.items.list.cursor, 3);
    // The item is gone: the cursor stays in its row.
    console.press("r");
    let number = console.items_request().number;
    console.deliver_items(number, &["new.md", "a.md"], true);
    assert_eq!(current_item(&console), "a.md");
    // A content that was read is not shown for what is not there any more.
    let request = console.model.agent.memory.content.request.clone().unwrap();
    let text = PreparedText::note("green tea");
    console.send(Msg::ItemContentRead(request, Ok(text)));
    assert!(console.screen_text().contains("green tea"));
    console.press("r");
    let number = console.items_request().number;
    console.deliver_items(number, &[], true);
    let text = console.screen_text();
    assert!(
        text.contains("No items.") && !text.contains("green tea"),
        "{text}"
    );
}

#[test]
fn filter_shows_loaded_items_that_match() {
    let mut console = console_with_items(&["tea.md", "coffee.md", "teapot.md"]);
    console.press("/");
    console.type_line("tea");
    let text = console.screen_text();
    assert!(text.contains("filter: tea  2 of 3 items"), "{text}");
    assert!(!text.contains("coffee"), "{text}");
    console.press("Enter j");
    assert_eq!(current_item(&console), "teapot.md");
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Agent);
    assert!(console.screen_text().contains("coffee"));
    assert_eq!(current_item(&console), "teapot.md");
    // A hidden character has one mark.
    console.press("/");
    console.send(Msg::TextPasted("a\u{202e}b".to_string()));
    let text = console.screen_text();
    assert!(text.contains("filter: a‹U+202E›b  0 of 3 items"), "{text}");
    console.press("Esc");
    // Esc in the line brings the filter back that was in force.
    console.press("/");
    console.type_line("coffee");
    console.press("Enter /");
    console.type_line("x");
    console.press("Esc");
    assert_eq!(console.model.agent.memory.items.filter, "coffee");
}

#[test]
fn filter_that_hides_all_does_not_read_the_rest() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    deliver_ids(&mut console, number, &item_ids(200), false);
    console.effects.clear();
    console.press("/");
    console.type_line("nothing");
    console.press("Enter");
    assert!(!console.effects.iter().any(is_items_request));
    // A key goes on.
    console.press("j");
    assert_eq!(console.items_request().wanted, 400);
}

#[test]
fn keys_move_between_collections_items_and_content() {
    let mut console = console_with_items(&["a.md", "b.md"]);
    console.press("Left");
    assert!(console.model.agent.memory.has_collection_focus);
    console.press("j");
    let request = console.items_request();
    assert_eq!(request.collection.as_deref(), Some("kept"));
    console.deliver_collections(request.number);
    console.deliver_items(request.number, &["kept/old.md"], true);
    console.press("Enter");
    assert!(!console.model.agent.memory.has_collection_focus);
    assert_eq!(current_item(&console), "kept/old.md");
    console.press("Enter");
    let request = console.model.agent.memory.content.request.clone().unwrap();
    assert_eq!(request.item, "kept/old.md");
    let late = ItemContentRequest {
        item: "a.md".to_string(),
        ..request.clone()
    };
    console.send(Msg::ItemContentRead(late, Ok(PreparedText::note("late"))));
    assert!(console.screen_text().contains("reading …"));
    console.send(Msg::ItemContentRead(
        request,
        Ok(PreparedText::note("an old note")),
    ));
    let text = console.screen_text();
    assert!(
        text.contains("an old note") && !text.contains("COLLECTION"),
        "{text}"
    );
    let all = copied_text(&mut console, "ya");
    assert_eq!(all.as_deref(), Some("an old note\n"));
    console.press("q");
    assert!(console.screen_text().contains("COLLECTION"));
    let row = copied_text(&mut console, "yl");
    assert_eq!(row.as_deref(), Some("kept/old.md  title of kept/old.md"));
    let path = copied_text(&mut console, "yp");
    assert_eq!(path.as_deref(), Some("/agents/keeper/kept/old.md"));
    // `q` leaves, wherever the cursor is.
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn memory_that_cannot_be_read_says_why() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    console.press("Enter");
    let number = console.items_request().number;
    console.send(Msg::MemoryOpened(
        number,
        Err("permission denied".to_string()),
    ));
    console.send(Msg::ItemsPaused(number));
    assert!(console.screen_text().contains("permission denied"));
    console.press("j G Enter O / l ya o");
    assert_eq!(console.model.screen, Screen::Agent);
    let mut console = console_with_items(&["a.md"]);
    let number = console.model.agent.memory.number;
    console.send(Msg::ItemsRead(number, Err("the host is lost".to_string())));
    assert!(
        console
            .screen_text()
            .contains("1 item read; cannot read the rest: the host is lost")
    );
}

fn finding(path: &str) -> HealthFinding {
    HealthFinding {
        check: "long",
        severity: HealthSeverity::Warning,
        path: Some(path.into()),
        line: Some(3),
        id: None,
        measured: Some("14".to_string()),
        reported: Some("2".to_string()),
        why: "a note has one line",
        remedy: "rewrite it",
    }
}

#[test]
fn findings_are_listed_with_what_to_do() {
    let mut console = console_with_items(&["a.md"]);
    let effects = console.press("Tab");
    let [Effect::CheckMemory(number, agent)] = &effects[..] else {
        panic!("no checks: {effects:?}")
    };
    assert_eq!(agent, "keeper");
    let findings = || vec![finding("a.md"), finding("b.md")];
    console.send(Msg::MemoryChecked(*number, Ok(findings())));
    console.press("j");
    let text = console.screen_text();
    for part in ["b.md:3", "2 warnings", "a note has one line", "rewrite it"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The cursor stays on its finding.
    let effects = console.press("r");
    let number = effects.iter().find_map(|effect| match effect {
        Effect::CheckMemory(number, _) => Some(*number),
        _ => None,
    });
    let mut found = findings();
    found.insert(0, finding("0.md"));
    console.send(Msg::MemoryChecked(number.unwrap(), Ok(found)));
    assert_eq!(console.model.agent.health.list.cursor, 2);
    let row = copied_text(&mut console, "yl");
    assert_eq!(
        row.as_deref(),
        Some("warning  long  b.md:3  measured 14  reported 2  a note has one line  rewrite it")
    );
    console.press("r");
    let number = console.model.agent.health.number;
    console.send(Msg::MemoryChecked(number, Ok(Vec::new())));
    assert!(console.screen_text().contains("No findings."));
}

#[test]
fn operation_on_a_file_offers_that_of_the_finding() {
    let mut console = console_with_items(&["tea.md"]);
    console.press("Tab");
    let number = console.model.agent.health.number;
    let of_id = HealthFinding {
        id: Some("tea".to_string()),
        ..finding("kept/old.md")
    };
    console.send(Msg::MemoryChecked(number, Ok(vec![of_id])));
    for (operation, offered) in [("keep", "kept/old.md"), ("move", "tea")] {
        console.press("O");
        console.type_line(operation);
        console.press("Enter");
        if operation == "move" {
            console.press("Enter");
        }
        assert_eq!(console.model.input_line.as_ref().unwrap().text, offered);
        console.press("Esc");
    }
}

#[test]
fn finding_opens_its_file_and_leads_back() {
    let mut console = console_with_items(&["tea.md"]);
    console.press("Tab");
    let number = console.model.agent.health.number;
    console.send(Msg::MemoryChecked(number, Ok(vec![finding("kept/old.md")])));
    console.effects.clear();
    console.press("Enter");
    assert_eq!(tab(&console), AgentTab::Memory);
    let wanted = console.effects.iter().find_map(|effect| match effect {
        Effect::ReadItemContent(request) => Some(request.item.as_str()),
        _ => None,
    });
    assert_eq!(wanted, Some("kept/old.md"));
    answer_content(&mut console);
    assert!(console.screen_text().contains("kept/old.md"));
    console.press("Esc");
    assert_eq!(tab(&console), AgentTab::Health);
    // The list of the Memory tab is as it was.
    console.press("S-Tab");
    assert_eq!(current_item(&console), "tea.md");
    assert!(!console.model.agent.memory.content.is_open);
}

/// Returns the plan that was requested last.
fn planned(console: &TestConsole) -> &PlanRequest {
    let mut effects = console.effects.iter().rev();
    let request = effects.find_map(|effect| match effect {
        Effect::MakePlan(_, request, _) => Some(request),
        _ => None,
    });
    request.expect("no plan was requested")
}

#[test]
fn keys_of_texts_do_nothing_in_a_list_of_items() {
    let mut console = console_with_items(&["a.md", "b.md"]);
    for keys in [
        "p", "Space", "v", "a", "A", "W", "t", "}", "{", "=", "_", "i", "w", ".", "f", "o",
    ] {
        let effects = console.press(keys);
        assert_eq!(effects, [], "{keys}");
        assert_ne!(console.message_text(), "", "{keys}");
        let place = (console.model.screen, tab(&console), current_item(&console));
        assert_eq!(place, (Screen::Agent, AgentTab::Memory, "a.md"), "{keys}");
        assert!(
            console.screen_text().contains("title of b.md"),
            "{keys} hides the list"
        );
    }
    // Neither is there a hit of a search.
    assert_eq!(console.press("n N"), []);
    assert_eq!(current_item(&console), "a.md");
}

#[test]
fn keys_of_resets_say_why_a_layout_has_none() {
    let reason = "keeper is never reset (layout without a baseline)";
    for is_open in [false, true] {
        for keys in ["X", "P", "d", "e", "E", "yd"] {
            let mut console = fleet_with_layouts();
            console.select_agent("keeper");
            if is_open {
                console.press("Enter");
            }
            let screen = console.model.screen;
            let effects = console.press(keys);
            assert_eq!(effects, [], "{keys}");
            assert_eq!(console.message_text(), reason, "{keys}");
            assert_eq!(console.model.screen, screen, "{keys}");
        }
    }
    // Of several marked agents, only those that are reset are planned for.
    let mut console = fleet_with_layouts();
    console.press("a X");
    assert!(matches!(planned(&console), PlanRequest::Reset(names) if names.len() == 3));
    assert_eq!(console.message_text(), "left out, never reset: keeper");
}

#[test]
fn tab_is_left_when_a_changed_config_drops_the_layout() {
    let mut console = console_with_items(&["a.md"]);
    adopt_keeper(&mut console, |keeper| {
        keeper.layout = None;
        keeper.baseline = Some("keeper.md".to_string());
    });
    assert_eq!(tab(&console), AgentTab::Diff);
    assert!(console.model.agent.memory.items.loaded.is_empty());
}

#[test]
fn opened_item_never_shows_the_previous_content() {
    let mut console = console_with_items(&["a.md", "b.md"]);
    console.send(Msg::Resized(80, 24));
    console.press("Enter");
    answer_content(&mut console);
    assert!(console.screen_text().contains("content of a.md"));
    console.effects.clear();
    console.press("q j Enter");
    let text = console.screen_text();
    assert!(
        text.contains("b.md in") || text.contains("b.md ·"),
        "{text}"
    );
    assert!(!text.contains("content of a.md"), "{text}");
    let is_wanted = |effect: &Effect| matches!(effect, Effect::ReadItemContent(request) if request.item == "b.md");
    assert!(
        console.effects.iter().any(is_wanted),
        "{:?}",
        console.effects
    );
    answer_content(&mut console);
    assert!(console.screen_text().contains("content of b.md"));
    // The same item is opened again with its text.
    console.press("q Enter");
    assert!(console.screen_text().contains("content of b.md"));
}

#[test]
fn open_item_that_vanished_shows_its_id_only() {
    let mut console = console_with_items(&["a.md", "b.md"]);
    console.press("j Enter");
    answer_content(&mut console);
    console.press("r");
    let number = console.items_request().number;
    console.deliver_collections(number);
    console.deliver_items(number, &["a.md"], true);
    assert_eq!(
        current_item(&console),
        "a.md",
        "the cursor stays in its row"
    );
    assert_eq!(console.model.agent.memory.subject_id(), Some("b.md"));
    assert_eq!(console.model.agent.memory.subject_item(), None);
    let text = console.screen_text();
    assert!(text.contains(" b.md ") && !text.contains("a.md"), "{text}");
    assert_eq!(copied_text(&mut console, "yp"), None);
    assert_eq!(console.message_text(), "b.md is not in the list any more");
    console.press("O");
    console.type_line("keep");
    console.press("Enter");
    assert_eq!(console.model.input_line.clone().unwrap().text, "b.md");
}

#[test]
fn open_item_is_copied_wherever_the_cursor_is() {
    let mut console = console_with_items(&["a.md", "b.md"]);
    console.press("j Enter");
    answer_content(&mut console);
    console.model.agent.memory.items.list.key = Some("a.md".to_string());
    console.model.agent.memory.items.list.cursor = 0;
    let path = copied_text(&mut console, "yp");
    assert_eq!(path.as_deref(), Some("/agents/keeper/b.md"));
    assert!(!console.screen_text().contains("a.md"));
}

/// Adopts a config in which `keeper` has changed.
fn adopt_keeper(console: &mut TestConsole, change: impl Fn(&mut AgentRow)) {
    let mut rows: Vec<AgentRow> = console.model.rows.iter().cloned().collect();
    for row in &mut rows {
        row.observation = None;
        if row.name == "keeper" {
            change(row);
        }
    }
    let config = console.model.config.clone();
    console.send(Msg::ConfigAdopted(config, rows, false));
}

fn move_memory_of_keeper(console: &mut TestConsole) {
    adopt_keeper(console, |keeper| {
        let layout = keeper.layout.as_mut().unwrap();
        layout.directory = "/agents/other".into();
    });
}

#[test]
fn changed_memory_dir_is_read_again() {
    let mut console = console_with_items(&["old.md"]);
    console.press("Enter");
    answer_content(&mut console);
    console.effects.clear();
    move_memory_of_keeper(&mut console);
    let text = console.screen_text();
    assert!(!text.contains("old.md"), "{text}");
    let requests = console.effects.iter().filter(|it| is_items_request(it));
    assert_eq!(requests.count(), 1, "{:?}", console.effects);
    assert_eq!(count_text_requests(&console), 1, "{:?}", console.effects);
    let number = console.items_request().number;
    assert_ne!(number, 0);
    console.deliver_collections(number);
    console.deliver_items(number, &["new.md"], true);
    let text = console.screen_text();
    assert!(
        text.contains("title of new.md") && text.contains("/agents/other"),
        "{text}"
    );
}

#[test]
fn changed_memory_dir_is_checked_again() {
    let mut console = console_with_items(&["a.md"]);
    console.press("Tab");
    let number = console.model.agent.health.number;
    console.send(Msg::MemoryChecked(number, Ok(vec![finding("old.md")])));
    console.effects.clear();
    move_memory_of_keeper(&mut console);
    assert!(!console.screen_text().contains("old.md"));
    let mut checks = console.effects.iter().filter_map(|effect| match effect {
        Effect::CheckMemory(number, _) => Some(*number),
        _ => None,
    });
    let number = checks.next().expect("no checks");
    assert_eq!(checks.next(), None);
    assert_eq!(count_text_requests(&console), 1, "{:?}", console.effects);
    console.send(Msg::MemoryChecked(number, Ok(vec![finding("new.md")])));
    assert!(console.screen_text().contains("new.md:3"));
    let path = copied_text(&mut console, "yp");
    assert_eq!(path.as_deref(), Some("/agents/other/new.md"));
}

#[test]
fn memory_that_moved_unseen_is_read_when_shown() {
    let mut console = console_with_items(&["old.md"]);
    console.press("1");
    console.effects.clear();
    move_memory_of_keeper(&mut console);
    assert!(!console.effects.iter().any(is_items_request));
    assert_eq!(count_text_requests(&console), 0, "{:?}", console.effects);
    console.select_agent("keeper");
    console.press("Enter");
    assert_eq!(console.items_request().loaded, 0);
    assert_eq!(count_text_requests(&console), 1, "{:?}", console.effects);
}

#[test]
fn pane_that_was_never_loaded_is_loaded() {
    let mut console = console_with_items(&["a.md"]);
    console.model.agent.memory = MemoryPane::default();
    console.send(Msg::Tick);
    let request = console.items_request();
    assert_eq!(request.number, console.model.agent.memory.number);
    assert_ne!(request.number, 0);
    console.effects.clear();
    console.send(Msg::Tick);
    assert!(!console.effects.iter().any(is_items_request));
}

#[test]
fn rows_stay_in_place_while_a_long_list_is_read_again() {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    let ids = item_ids(400);
    deliver_ids(&mut console, number, &ids[..200], false);
    console.press("G");
    deliver_ids(&mut console, number, &ids[200..], false);
    for _ in 0..10 {
        console.press("PgDn");
    }
    let (item, list) = (
        current_item(&console).to_string(),
        console.model.agent.memory.items.list.clone(),
    );
    assert!(list.cursor > 200, "{list:?}");
    console.press("r");
    let ItemsRequest { number, wanted, .. } = console.items_request();
    assert_eq!(wanted, 400, "as many as were loaded");
    console.deliver_collections(number);
    for page in ids.chunks(50) {
        deliver_ids(&mut console, number, page, false);
        assert_eq!(console.model.agent.memory.items.list, list);
        assert_eq!(current_item(&console), item);
        assert_eq!(console.model.agent.memory.items.loaded.len(), 400);
    }
    let items = &console.model.agent.memory.items;
    assert!(!items.is_outdated && items.reread.is_empty());
    // The rest cannot be read: what was read is shown, and the cursor stays as near as it can.
    console.press("r");
    let number = console.items_request().number;
    deliver_ids(&mut console, number, &ids[..50], false);
    console.send(Msg::ItemsRead(number, Err("the host is lost".to_string())));
    let text = console.screen_text();
    assert!(
        text.contains("50 items read; cannot read the rest: the host is lost"),
        "{text}"
    );
    assert_eq!(current_item(&console), "n49.md");
}

#[test]
fn ages_of_items_are_drawn_as_they_pass() {
    let mut console = console_with_items(&["a.md"]);
    assert!(console.screen_text().contains("2h"));
    console.press("r");
    let number = console.items_request().number;
    console.deliver_items(number, &["a.md"], true);
    console.advance(Duration::from_secs(60));
    // The age of the read is the same for an hour more, once it is in hours.
    console.advance(Duration::from_secs(3600));
    console.model.is_dirty = false;
    console.advance(Duration::from_secs(3000));
    assert!(console.model.is_dirty);
    assert!(console.screen_text().contains("4h"));
}

#[test]
fn path_that_is_not_utf8_is_copied_with_marks() {
    let mut console = console_with_items(&[]);
    console.press("r");
    let number = console.items_request().number;
    let mut item = memory_item("tea.md");
    item.path = PathBuf::from(OsStr::from_bytes(b"t\xe9a.md"));
    let page = ItemPage {
        items: vec![item],
        is_last: true,
    };
    console.send(Msg::ItemsRead(number, Ok(page)));
    let effects = console.press("yp");
    let [Effect::CopyToClipboard(clip)] = &effects[..] else {
        panic!("nothing is copied: {effects:?}")
    };
    assert!(clip.is_escaped, "{clip:?}");
    assert!(!clip.text.contains('\u{fffd}'), "{clip:?}");
}

#[test]
fn finding_without_a_file_has_no_path_to_copy() {
    let mut console = console_with_items(&["a.md"]);
    console.press("Tab");
    assert_eq!(copied_text(&mut console, "yp"), None);
    assert_eq!(console.message_text(), "no finding under the cursor");
    let number = console.model.agent.health.number;
    let found = HealthFinding {
        path: None,
        ..finding("a.md")
    };
    console.send(Msg::MemoryChecked(number, Ok(vec![found])));
    assert_eq!(copied_text(&mut console, "yp"), None);
    assert_eq!(console.message_text(), "the finding names no file");
}

#[test]
fn id_with_a_dash_is_no_option_in_a_command_line() {
    for (id, argument) in [
        ("tea.md", "show tea.md"),
        ("-tea.md", "show -- -tea.md"),
        ("green tea.md", "show 'green tea.md'"),
    ] {
        let console = console_with_items(&[id]);
        let line = equivalent_command::for_command(&console.model, Command::OpenSelected).unwrap();
        assert!(line.ends_with(argument), "{line}");
    }
}
