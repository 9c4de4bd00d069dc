//! `archive`: what goes on without a readable ledger, and paths that look like options.

use super::*;

#[test]
fn printed_path_with_dash_is_no_option() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let config = config.replacen("archive_subdir=monitor", "archive_subdir=-dash", 1);
    site.write("memory-shepherd.conf", config);
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let printed = |arguments: &[&str]| {
        let ran = site.run_command(site.command().args(arguments));
        let (_, from) = ran.stdout.split_once("./-dash/").unwrap_or_default();
        let end = from.find(".md").map_or(0, |end| end + ".md".len());
        format!("./-dash/{}", &from[..end])
    };
    let entry = printed(&["archive", "list"]);
    assert!(entry.ends_with(".md"), "{entry}");
    assert_eq!(
        printed(&["archive", "search", "quiet", "in:archive"]),
        entry
    );
    assert_eq!(printed(&["log"]), entry);
    let shown = site.run(["archive", "show", &entry]).assert_code(0);
    assert!(shown.stdout.contains("quiet night"), "{}", shown.stdout);
    assert_eq!(printed(&["archive", "pin", &entry]), entry);
    let diff = ["diff", "monitor-bot", "--against-archive", &entry];
    let _ = site.run(diff).assert_code(0);
    // The exact path is in JSON.
    let list = site.run(["archive", "list", "--json"]).json();
    let path = list["entries"][0]["path"].as_str().unwrap();
    assert_eq!(format!("./{path}"), entry);
}

#[test]
fn listed_kinds_are_those_of_queries() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let list = site.run(["archive", "list"]).assert_code(0);
    for kind in ["scratch", "full"] {
        let is_kind = |line: &&str| line.split_whitespace().any(|word| word == kind);
        let line = list.stdout.lines().find(is_kind).unwrap();
        let path = line.split_whitespace().find(|it| it.ends_with(".md"));
        let query = format!("kind:{kind}");
        let found = site.run(["archive", "search", &query]).assert_code(0);
        let _ = found.assert_stdout_has(path.unwrap());
    }
}

#[test]
fn entries_are_listed_and_exported_without_ledger() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let listed = |ran: &serde_json::Value| ran["entries"].as_array().unwrap().len();
    let before = site
        .run(["archive", "list", "--json"])
        .assert_code(0)
        .json();
    assert_eq!(before["entries"][0]["recorded"], true);
    let ledger = "archives/.shepherd/ledger.jsonl";
    let broken = site.read(ledger).replacen("\"ok\"", "\"xx\"", 1);
    site.write(ledger, broken);
    let _ = fs::remove_file(site.path("archives/.shepherd/ledger.index"));
    let ran = site.run(["archive", "list", "--json"]).assert_code(4);
    let ran = ran.assert_stderr_has("cannot tell what the ledger says of these entries");
    let after = ran.json();
    assert_eq!(listed(&after), listed(&before));
    assert_eq!(after["entries"][0]["recorded"], serde_json::Value::Null);
    let ran = site.run(["archive", "list"]).assert_code(4);
    assert!(!ran.stdout.contains("no record"), "{}", ran.stdout);
    let ran = site
        .run(["archive", "export", "--to", "copies"])
        .assert_code(4);
    let _ = ran.assert_stdout_has("exported ");
    assert!(site.path("copies/SHA256SUMS").exists());
}
