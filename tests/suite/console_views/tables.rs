//! The generated tables of docs/console.md: keys and states.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use memory_shepherd::console::command::{self, COMMAND_TABLE};
use memory_shepherd::console::keys::keymap::Keymap;
use memory_shepherd::engine::State;

/// Returns the table of keys, made from the command table.
fn key_table() -> String {
    let mut rows: Vec<_> = COMMAND_TABLE.iter().collect();
    rows.sort_by_key(|spec| spec.category);
    let keymap = Keymap::default();
    let mut text = "| Key | Where | What it does |\n|---|---|---|\n".to_string();
    for spec in rows {
        let keys: Vec<String> = spec.keys.iter().map(|key| format!("`{key}`")).collect();
        text.push_str(&format!(
            "| {} | {} | {} |\n",
            keys.join(" "),
            command::context_labels(spec).join(", "),
            keymap
                .title_with_exceptions(spec.command)
                .replace('|', "\\|")
        ));
    }
    text
}

/// Returns the table of states, the worst first.
fn state_table() -> String {
    let mut text = "| | State | What it means |\n|---|---|---|\n".to_string();
    for state in State::ALL {
        let sign = match state.glyph().trim_end() {
            "" => String::new(),
            sign => format!("`{sign}`"),
        };
        text.push_str(&format!("| {sign} | {state} | {} |\n", state.description()));
    }
    text
}

/// Serialises the tests that write the page.
static PAGE_LOCK: Mutex<()> = Mutex::new(());

/// Compares the text between two marks of the page with a table, or writes the table.
#[track_caller]
fn assert_page_table(name: &str, table: &str) {
    let _turn = PAGE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/console.md");
    let page = fs::read_to_string(&path).expect("docs/console.md");
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| {
        let (now, after) = rest.split_once(&end)?;
        Some((before, now, after))
    });
    let Some((before, now, after)) = parts else {
        panic!("docs/console.md has no {begin} … {end}");
    };
    let wanted = format!("\n{table}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}{begin}{wanted}{end}{after}");
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        now == wanted,
        "the {name} in docs/console.md are not those of the program;\n\
         UPDATE_DOCS=1 cargo test console_page writes them"
    );
}

#[test]
fn console_page_lists_every_key() {
    assert_page_table("keys", &key_table());
}

#[test]
fn console_page_explains_every_state() {
    assert_page_table("states", &state_table());
}
