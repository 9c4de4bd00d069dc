//! The table of checks in docs/command-line.md, and the names in the JSON of `doctor`.

use std::collections::BTreeSet;
use std::path::Path;

use memory_shepherd::cli::doctor::CHECK_TABLE;

use super::*;

const BEGIN: &str = "<!-- doctor checks -->\n";
const END: &str = "<!-- /doctor checks -->";

fn checks_table() -> String {
    let mut table = "\n| check | examines | how to put it right |\n|---|---|---|\n".to_string();
    for row in CHECK_TABLE {
        let (name, examines, remedy) = (row.name, row.examines, row.remedy);
        table.push_str(&format!("| `{name}` | {examines} | {remedy} |\n"));
    }
    table.push('\n');
    table
}

/// With `UPDATE_DOCS=1`, writes the table into the page instead.
#[test]
fn command_page_has_the_table_of_doctor_checks() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/command-line.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let table = checks_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "run UPDATE_DOCS=1 cargo test doctor_page");
}

#[test]
fn every_doctor_check_reports_a_result() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let report = site.run(["doctor", "--json"]).assert_code(0).json();
    let checks = report["checks"].as_array().unwrap();
    let mut reported: Vec<&str> = checks
        .iter()
        .map(|it| it["check"].as_str().unwrap())
        .collect();
    reported.dedup();
    let names: Vec<&str> = CHECK_TABLE.iter().map(|row| row.name).collect();
    assert_eq!(reported, names);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for check in checks {
        let is_ok = check["level"] == "ok";
        assert_eq!(check["hint"].is_null(), is_ok, "{check}");
    }
}

/// Without a config, only the checks that need none run.
#[test]
fn doctor_without_config_runs_the_first_checks() {
    let site = Site::new();
    let ran = site.run(["doctor", "--json", "--config", "missing.conf"]);
    let report = ran.assert_code(2).json();
    let checks = report["checks"].as_array().unwrap();
    let last = checks.last().unwrap();
    assert_eq!(
        (&last["check"], &last["level"]),
        (&"config".into(), &"fail".into())
    );
}
