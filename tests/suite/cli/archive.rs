//! `archive`: what goes on without a readable ledger.

use super::*;

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
