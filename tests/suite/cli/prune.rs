//! `archive prune`: its answer for people and scripts, its exit codes, and what it leaves alone.

use memory_shepherd::base::clock::Clock;

use super::*;
use crate::earlier::insert_earlier_run;

/// Creates an entry of the original tool that is this many days old.
fn create_entry(site: &Site, directory: &str, days: i64) -> String {
    let time = SystemClock.now() - chrono::Duration::days(days);
    let name = format!("{directory}/{}.md", time.format("%Y-%m-%d_0100"));
    let path = format!("archives/{name}");
    site.write(&path, "- an old note\n");
    let file = fs::File::options().write(true).open(site.path(&path));
    file.unwrap().set_modified(time.into()).unwrap();
    name
}

/// A fleet with old entries of both agents and of unknown owner, and a run that confirms the date.
fn site_with_old_entries() -> Site {
    let site = site_with_notes_and_drift();
    for days in [2, 10, 40, 50, 60, 400] {
        create_entry(&site, "monitor", days);
    }
    create_entry(&site, "code-reviewer", 90);
    create_entry(&site, "code-reviewer/old", 80);
    create_entry(&site, "code-reviewer/old", 70);
    insert_earlier_run(&site.path("archives"), "monitor-bot", SystemClock.now(), 2);
    let pinned = create_entry(&site, "monitor", 50);
    let _ = site.run(["archive", "pin", pinned.as_str()]).assert_code(0);
    site
}

/// Replaces sizes, which depend on the file system.
fn mask_sizes(output: &str) -> String {
    let is_size = |word: &str| {
        let number = word
            .trim_end_matches(',')
            .strip_suffix(['K', 'M', 'G', 'T']);
        number.is_some_and(|number| number.parse::<f64>().is_ok())
    };
    let mask = |line: &str| {
        let words = line.split(' ');
        let words = words.map(|word| if is_size(word) { "[SIZE]" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let lines = output.lines().map(mask);
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn prune_output_matches_goldens() {
    let site = site_with_old_entries();
    let run = |arguments: &[&str]| {
        let ran = site.run_command(site.command().args(arguments));
        let output = mask_sizes(&ran.normalized_output());
        if !arguments.contains(&"--json") && arguments.contains(&"prune") {
            let width = output.lines().map(|line| line.chars().count()).max();
            assert!(width <= Some(80), "{output}");
        }
        output
    };
    insta::assert_snapshot!("prune_dry_run", run(&["archive", "prune", "--dry-run"]));
    insta::assert_snapshot!(
        "prune_dry_run_json",
        run(&["archive", "prune", "--dry-run", "--json", "monitor-bot"])
    );
    insta::assert_snapshot!(
        "prune_dry_run_verbose",
        run(&["archive", "prune", "--dry-run", "-v", "monitor-bot"])
    );
    insta::assert_snapshot!("prune_json", run(&["archive", "prune", "--json"]));
    insta::assert_snapshot!("prune_again", run(&["archive", "prune"]));
    insta::assert_snapshot!("prune_log", run(&["log"]));
    insta::assert_snapshot!("prune_unknown", run(&["archive", "prune", "monitor"]));
    insta::assert_snapshot!(
        "help_archive_prune",
        site.run(["archive", "prune", "--help"]).normalized_output()
    );
}

#[test]
fn dry_run_of_prune_changes_no_file() {
    let site = site_with_old_entries();
    let before = site.snapshot_files();
    for arguments in [
        &["archive", "prune", "--dry-run"][..],
        &["archive", "prune", "--dry-run", "--json"],
    ] {
        let ran = site.run_command(site.command().args(arguments));
        let _ = ran.assert_code(0);
    }
    assert_eq!(site.snapshot_files(), before);
}

#[test]
fn prune_exit_codes_are_those_of_the_contract() {
    let site = site_with_old_entries();
    let _ = site
        .run(["archive", "prune", "nobody"])
        .assert_code(2)
        .assert_stderr_has("no agent named nobody");
    let engine = site_engine(&site);
    let held = engine.locks().hold_agent_lock("monitor-bot").unwrap();
    let _ = site
        .run(["archive", "prune"])
        .assert_code(5)
        .assert_stderr_has("monitor-bot: its entries stay: locked by run ")
        .assert_stdout_has("nothing was deleted");
    drop(held);
    // A directory in the way of one agent stops no other.
    fs::remove_dir_all(site.path("archives/code-reviewer")).unwrap();
    site.write("archives/code-reviewer", "in the way");
    let _ = site
        .run(["archive", "prune"])
        .assert_code(3)
        .assert_stderr_has("archives/code-reviewer")
        .assert_stdout_has("deleted 3 entries (42 bytes), run ");
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    let broken = ledger.replacen("\"timer\"", "\"taken\"", 1);
    site.write("archives/.shepherd/ledger.jsonl", broken);
    for arguments in [
        &["archive", "prune"][..],
        &["archive", "prune", "--dry-run"],
    ] {
        let ran = site.run_command(site.command().args(arguments));
        let _ = ran.assert_code(4).assert_stderr_has("is broken at line");
    }
}

#[test]
fn prune_deletes_only_entries() {
    let site = site_with_old_entries();
    let past = std::time::SystemTime::from(SystemClock.now())
        - std::time::Duration::from_secs(400 * 86_400);
    for name in [
        "archives/monitor/notes.md",
        "archives/monitor/2020-01-01_0900.txt",
        "archives/monitor/2020-01-01_0900-other.md",
        "archives/foreign/2020-01-01_0900.md",
        "archives/.shepherd/2020-01-01_0900.md",
        "archives/2020-01-01_0900.md",
        "archives/README.md",
    ] {
        site.write(name, "x");
        let file = fs::File::options().write(true).open(site.path(name));
        file.unwrap().set_modified(past).unwrap();
    }
    std::os::unix::fs::symlink("notes.md", site.path("archives/monitor/2020-01-02_0900.md"))
        .unwrap();
    let shown = site.run(["archive", "prune", "--dry-run", "--json"]).json();
    let agents = shown["agents"].as_array().unwrap().iter();
    let expiring = agents.flat_map(|agent| agent["expiring"].as_array().unwrap());
    let mut expiring: Vec<String> = expiring
        .map(|entry| format!("archives/{}", entry["path"].as_str().unwrap()))
        .collect();
    expiring.sort();
    assert_eq!(expiring.len(), 3);
    let files = |site: &Site| -> Vec<String> {
        let files = site.snapshot_files().into_keys();
        let names = files.map(|path| path.strip_prefix(&site.dir).unwrap().display().to_string());
        names.collect()
    };
    let before = files(&site);
    let ran = site.run(["archive", "prune", "--json"]).assert_code(0);
    assert_eq!(ran.json()["deleted"].as_array().unwrap().len(), 3);
    let after = files(&site);
    let gone: Vec<&String> = before.iter().filter(|it| !after.contains(it)).collect();
    assert_eq!(gone, expiring.iter().collect::<Vec<_>>());
    let _ = site.run(["verify"]).assert_code(0);
}
