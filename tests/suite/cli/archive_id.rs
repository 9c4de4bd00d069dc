//! `archive_id`: written by `init`, printed by `doctor`, and checked by every verb that writes.

use super::*;

/// A site with a run, whose config names its archive; the archive is moved away, as a disk that is not
/// mounted.
fn site_without_its_disk() -> Site {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let doctor = site.run(["doctor"]);
    let (_, line) = doctor.stdout.split_once("add to [general]: ").unwrap();
    let line = line.lines().next().unwrap();
    let config = site.read("memory-shepherd.conf");
    let config = config.replacen("[general]\n", &format!("[general]\n{line}\n"), 1);
    site.write("memory-shepherd.conf", config);
    let _ = site.run(["config", "check"]).assert_code(0);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    fs::rename(site.path("archives"), site.path("disk")).unwrap();
    fs::create_dir(site.path("archives")).unwrap();
    site
}

#[test]
fn verbs_without_the_archive_exit_3_and_write_nothing() {
    let site = site_without_its_disk();
    site.append(MONITOR_MEMORY, "- new\n");
    let before = site.read(MONITOR_MEMORY);
    for words in [
        "reset --all",
        "reset --all --dry-run",
        "all",
        "push monitor-bot",
        "undo monitor-bot",
        "archive pin monitor/2026-03-14_0900.md",
        "archive prune",
        "archive reindex",
        "seal --all",
        "guard --once",
        "baseline new a.md",
        "baseline edit monitor-bot",
        "baseline replace Rules Laws monitor-bot",
        "schedule pause",
    ] {
        let mut command = site.command();
        command.env("EDITOR", "true").args(words.split(' '));
        let ran = site.run_command(&mut command);
        assert_eq!(ran.exit_code, 3, "{words}: {}{}", ran.stdout, ran.stderr);
        let left = fs::read_dir(site.path("archives")).unwrap().count();
        assert_eq!(left, 0, "{words}");
    }
    assert_eq!(site.read(MONITOR_MEMORY), before);
    let _ = site
        .run(["doctor"])
        .assert_stdout_has("is not in")
        .assert_stdout_has("no archive is there");
    // What only reads goes on.
    let _ = site.run(["status"]).assert_code(0);
    fs::remove_dir(site.path("archives")).unwrap();
    fs::rename(site.path("disk"), site.path("archives")).unwrap();
    let _ = site.run(["reset", "--all"]).assert_code(0);
}

#[test]
fn init_begins_the_archive_and_names_it() {
    let site = Site::new();
    let dry = site.run(["init", "--dry-run", "--config", "new/fleet.conf"]);
    assert!(!site.path("new").exists());
    assert!(dry.assert_code(0).stderr.contains("archive_id"));
    let _ = site
        .run(["init", "--config", "new/fleet.conf"])
        .assert_code(0);
    let config = site.read("new/fleet.conf");
    let line = config.lines().find(|it| it.starts_with("archive_id="));
    let id = line.unwrap().strip_prefix("archive_id=").unwrap();
    let ledger = site.read("new/archives/.shepherd/ledger.jsonl");
    let first = ledger.lines().next().unwrap();
    assert_eq!(
        memory_shepherd::digest::Digest::of(first.as_bytes()).to_string(),
        id
    );
    let _ = site
        .run(["doctor", "--config", "new/fleet.conf"])
        .assert_stdout_has("has the archive that archive_id names");
    let _ = site
        .run(["log", "--config", "new/fleet.conf"])
        .assert_code(0)
        .assert_stdout_has("begin");
}

#[test]
fn malformed_archive_id_is_a_config_error() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let config = config.replacen("[general]\n", "[general]\narchive_id=12ab\n", 1);
    site.write("memory-shepherd.conf", config);
    let _ = site
        .run(["config", "check"])
        .assert_code(2)
        .assert_stdout_has("must have 64 hexadecimal digits");
}
