//! Bytes of the Memory and Health tabs: what agents wrote is never anything but text.

use memory_shepherd::console::screens::agent::state::memory::{ItemPage, OpenedMemory};
use memory_shepherd::console::text;
use memory_shepherd::layouts::{Collection, HealthFinding, HealthSeverity, ItemContent};

use super::*;
use crate::console_fixture::{OPERATIONS, fleet_with_layouts, memory_item};

/// A console that shows a memory with a layout whose ids, titles, paths, contents and findings have a
/// hostile text in them.
struct LayoutConsole<'a> {
    wire: EmulatedConsole,
    payload: &'a [u8],
    evil: String,
    what: &'a str,
    /// The header, the tabs and the rule of each frame.
    rows: Vec<[String; 3]>,
}

impl LayoutConsole<'_> {
    fn new<'a>(payload: &'a [u8], what: &'a str) -> LayoutConsole<'a> {
        LayoutConsole {
            wire: EmulatedConsole::new(fleet_with_layouts()),
            payload,
            // The emulator drops the replacement character.
            evil: String::from_utf8_lossy(payload).replace('\u{fffd}', ""),
            what,
            rows: Vec::new(),
        }
    }

    fn draw_frame(&mut self) {
        self.wire.draw_frame(self.what);
        let row = |row| self.wire.emulator_row(row).trim_end().to_string();
        self.rows.push([0, 1, 2].map(row));
    }

    fn press_and_draw(&mut self, keys: &str) {
        self.wire.console.press(keys);
        self.draw_frame();
    }

    fn open_memory(&mut self) {
        let console = &mut self.wire.console;
        console.select_agent("keeper");
        console.press("Enter");
        let number = console.items_request().number;
        let evil = &self.evil;
        let collections = ["new", "kept"].map(|id| Collection {
            id: format!("{id}{evil}"),
            name: format!("{id} {evil}"),
        });
        let opened = OpenedMemory {
            layout: "notes",
            collection: Some(collections[0].id.clone()),
            collections: collections.to_vec(),
            operations: &OPERATIONS,
        };
        console.send(Msg::MemoryOpened(number, Ok(Box::new(opened))));
        let mut items = vec![memory_item(&format!("a{evil}")), memory_item(evil)];
        items[0].title = String::new();
        items[0].path = "plain.md".into();
        items[1].visible_to = evil.clone();
        let page = ItemPage {
            items,
            is_last: true,
        };
        console.send(Msg::ItemsRead(number, Ok(page)));
        self.draw_frame();
    }

    /// Answers the last request for a content.
    fn answer_content(&mut self) {
        let console = &mut self.wire.console;
        let request = console.model.agent.memory.content.request.clone();
        let content = ItemContent {
            path: "plain.md".into(),
            bytes: [b"# text\n", self.payload, b"\nend\n"].concat(),
            given: Some(self.payload.to_vec()),
        };
        let text = text::prepare_item(&content);
        console.send(Msg::ItemContentRead(request.unwrap(), Ok(text)));
    }

    fn show_items(&mut self) {
        for keys in ["j", "Enter"] {
            self.wire.console.press(keys);
            self.answer_content();
            self.draw_frame();
        }
        for keys in [
            "G", "q", "O", "k e e p", "Enter", "Esc", "Left", "Enter", "/",
        ] {
            self.press_and_draw(keys);
        }
        self.wire.console.send(Msg::TextPasted(self.evil.clone()));
        self.draw_frame();
        self.press_and_draw("Enter");
        self.press_and_draw("Esc");
    }

    fn show_findings(&mut self) {
        self.press_and_draw("Tab");
        let named = HealthFinding {
            check: "long",
            severity: HealthSeverity::Error,
            path: Some(self.evil.clone().into()),
            line: Some(3),
            id: None,
            measured: Some(self.evil.clone()),
            reported: Some(self.evil.clone()),
            why: "a note has one line",
            remedy: "rewrite it",
        };
        let unnamed = HealthFinding {
            path: None,
            id: Some(self.evil.clone()),
            ..named.clone()
        };
        let number = self.wire.console.model.agent.health.number;
        let found = Msg::MemoryChecked(number, Ok(vec![named, unnamed]));
        self.wire.console.send(found);
        self.draw_frame();
        self.press_and_draw("j");
        let failed = Msg::MemoryChecked(number, Err(self.evil.clone()));
        self.wire.console.send(failed);
        self.draw_frame();
    }
}

/// Draws the tabs, and returns the rows of the program's own text in each frame.
fn draw_layout_tabs(payload: &[u8], what: &str) -> Vec<[String; 3]> {
    let mut console = LayoutConsole::new(payload, what);
    console.open_memory();
    console.show_items();
    console.show_findings();
    console.rows
}

#[test]
fn hostile_items_and_findings_are_shown_as_text() {
    let plain = draw_layout_tabs(b"a note", "plain");
    assert!(plain[0][0].starts_with("keeper "), "{plain:?}");
    for payload in all_payloads() {
        let what = excerpt(&payload);
        let hostile = draw_layout_tabs(&payload, &what);
        for (hostile, plain) in hostile.iter().zip(&plain) {
            assert_eq!(hostile[0], plain[0], "{what}");
            // Behind the tabs, an open content has the number of its hits.
            let tabs = |rows: &[String; 3]| rows[1].split("  ").next().map(str::to_string);
            assert_eq!(tabs(hostile), tabs(plain), "{what}");
            assert_eq!(hostile[2], plain[2], "{what}");
        }
    }
}
