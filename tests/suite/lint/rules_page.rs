//! The table of rules in `docs/lint.md`.

use std::fs;
use std::path::Path;

use memory_shepherd::lint::RULES;

const BEGIN: &str = "<!-- rules -->\n";
const END: &str = "<!-- /rules -->";

fn rules_table() -> String {
    let mut table = "\n| rule | usual severity | when |\n|---|---|---|\n".to_string();
    for rule in RULES {
        let mut when = rule.summary.replace('|', "\\|");
        if rule.is_english_only {
            when.push_str(" (English)");
        }
        if rule.blocks_resets {
            when.push_str("; can refuse a reset");
        }
        let (id, name, severity) = (rule.id, rule.name, rule.severity);
        table.push_str(&format!("| {id} {name} | {severity} | {when} |\n"));
    }
    table.push('\n');
    table
}

/// With `UPDATE_DOCS=1`, writes the table into the page instead.
#[test]
fn lint_page_has_the_table_of_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lint.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let table = rules_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{before}{BEGIN}{table}{END}{after}");
        fs::write(&path, page).unwrap();
        return;
    }
    let missing: Vec<&str> = table.lines().filter(|row| !found.contains(row)).collect();
    let hint = "run UPDATE_DOCS=1 cargo test lint_page";
    assert!(
        missing.is_empty(),
        "{hint}: docs/lint.md lacks {missing:#?}"
    );
    assert!(found == table, "{hint}: docs/lint.md has rows too many");
}
