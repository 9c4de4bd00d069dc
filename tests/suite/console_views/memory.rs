//! Views of a memory with a layout: its items, its health, and plans of operations on it.

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::PlanDetailsRequest;
use memory_shepherd::console::text;
use memory_shepherd::layouts::{HealthFinding, HealthSeverity, ItemContent, MemoryItem};

use super::{TestConsole, assert_view_from};
use crate::console_fixture::{edit_of_keeper, edit_plan, fleet_with_layouts, memory_item};

const HOSTILE_TITLE: &str = "evil \u{1b}[31mred\u{1b}[0m \u{202e}txt";

/// Opens the memory of an agent, with items of which one has a hostile title.
fn open_items(console: &mut TestConsole, name: &str) {
    console.select_agent(name);
    console.press("Enter");
    while console.model.agent.tab.id() != "memory" {
        console.press("Tab");
    }
    let number = console.items_request().number;
    console.deliver_collections(number);
    let mut items: Vec<MemoryItem> = ["tea.md", "evil.md", "empty.md", "notes/long.md"]
        .map(memory_item)
        .to_vec();
    items[1].title = HOSTILE_TITLE.to_string();
    items[2].title = String::new();
    items[3].visible_to = "ops".to_string();
    let page = memory_shepherd::console::screens::agent::state::memory::ItemPage {
        items,
        is_last: false,
    };
    console.send(Msg::ItemsRead(number, Ok(page)));
    console.deliver_items(number, &[], true);
    answer_content(console);
}

/// Answers the last request for a content.
fn answer_content(console: &mut TestConsole) {
    if let Some(request) = console.model.agent.memory.content.request.clone() {
        let content = ItemContent {
            path: "tea.md".into(),
            bytes: format!("# {}\ngreen tea is good\n{HOSTILE_TITLE}\n", request.item).into_bytes(),
            given: Some(b"green tea\n".to_vec()),
        };
        let text = text::prepare_item(&content);
        console.send(Msg::ItemContentRead(request, Ok(text)));
    }
}

#[test]
fn memory_matches_snapshot() {
    assert_view_from("memory", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        console.press("j");
        answer_content(console);
    });
}

#[test]
fn memory_beside_resets_matches_snapshot() {
    assert_view_from("memory_beside_resets", fleet_with_layouts, |console| {
        open_items(console, "scout");
        console.press("/");
        console.type_line("tea");
        console.press("Enter");
    });
}

#[test]
fn open_item_matches_snapshot() {
    assert_view_from("memory_item", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        console.press("j Enter");
        answer_content(console);
    });
}

#[test]
fn memory_being_read_matches_snapshot() {
    assert_view_from("memory_reading", fleet_with_layouts, |console| {
        console.select_agent("keeper");
        let number = console.open_memory().number;
        console.deliver_items(number, &["a.md", "b.md"], false);
    });
}

#[test]
fn health_matches_snapshot() {
    let finding = |severity, check, path: &str, line| HealthFinding {
        check,
        severity,
        path: Some(path.into()),
        line,
        id: None,
        measured: Some("14 lines".to_string()),
        reported: Some("2 lines \u{202e}".to_string()),
        why: "the agent is given the first 200 lines of the index, so entries below are never seen",
        remedy: "move old entries out of the index, or merge them into topic files",
    };
    assert_view_from("health", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        let effects = console.press("Tab");
        let Some(Effect::CheckMemory(number, _)) = effects.first() else {
            return; // The screen is too small for keys.
        };
        let found = vec![
            finding(HealthSeverity::Error, "index-cut", "MEMORY.md", Some(201)),
            finding(
                HealthSeverity::Warning,
                "long-note",
                "notes/a-note-with-a-long-name.md",
                None,
            ),
            finding(HealthSeverity::Info, "unlinked", "notes/tea.md", None),
        ];
        console.send(Msg::MemoryChecked(*number, Ok(found)));
        console.press("j");
    });
}

#[test]
fn healthy_memory_matches_snapshot() {
    assert_view_from("health_ok", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        console.press("Tab");
        let number = console.model.agent.health.number;
        console.send(Msg::MemoryChecked(number, Ok(Vec::new())));
    });
}

#[test]
fn operations_match_snapshot() {
    assert_view_from("memory_operations", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        console.press("O");
    });
}

#[test]
fn edit_plan_matches_snapshot() {
    assert_view_from("plan_edit", fleet_with_layouts, |console| {
        open_items(console, "keeper");
        console.press("O");
        console.type_line("keep");
        console.press("Enter Enter");
        console.answer_plan(edit_plan());
        console.advance(std::time::Duration::from_secs(2));
        let details = console.model.reset.details.request.clone();
        if let Some(PlanDetailsRequest::Files(changes)) = details {
            let text = text::prepare_file_changes(&changes, &edit_of_keeper().1, None);
            console.send(Msg::FileChangesCompared(changes, text));
        }
    });
}

#[test]
fn fleet_with_layouts_matches_snapshot() {
    assert_view_from("fleet_layouts", fleet_with_layouts, |console| {
        console.select_agent("keeper");
        console.press("k j G X");
    });
}
