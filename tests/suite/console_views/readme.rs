//! The keys of the README.

use std::fs;
use std::path::Path;

use memory_shepherd::console::command::{self, TABLE};

const BEGIN: &str = "<!-- keys -->";

const END: &str = "<!-- /keys -->";

/// The key table of the README, from the table of commands.
fn keys() -> String {
    let mut rows: Vec<_> = TABLE.iter().collect();
    rows.sort_by_key(|spec| spec.category);
    let mut text = "| Key | Where | What it does |\n|---|---|---|\n".to_string();
    for spec in rows {
        let keys: Vec<String> = spec.keys.iter().map(|key| format!("`{key}`")).collect();
        text.push_str(&format!(
            "| {} | {} | {} |\n",
            keys.join(" "),
            command::places(spec).join(", "),
            spec.title.replace('|', "\\|")
        ));
    }
    text
}

#[test]
fn the_readme_lists_the_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let Ok(readme) = fs::read_to_string(&path) else {
        panic!("there is no README.md to list the keys in");
    };
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| {
        let (now, after) = rest.split_once(END)?;
        Some((before, now, after))
    });
    let Some((before, now, after)) = parts else {
        panic!("README.md has no {BEGIN} … {END}");
    };
    let wanted = format!("\n{}", keys());
    if std::env::var_os("UPDATE_README").is_some() {
        let text = format!("{before}{BEGIN}{wanted}{END}{after}");
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        now == wanted,
        "the keys in README.md are not those of the commands;\n\
         UPDATE_README=1 cargo test the_readme_lists_the_keys writes them"
    );
}
