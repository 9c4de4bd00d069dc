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
    fs::remove_dir(site.path("archives")).unwrap();
    fs::rename(site.path("disk"), site.path("archives")).unwrap();
    let _ = site.run(["reset", "--all"]).assert_code(0);
}

/// The same site, with the archive of another fleet in the place of its own.
fn site_with_other_archive() -> Site {
    let site = site_without_its_disk();
    let other = site_with_notes_and_drift();
    let _ = other.run(["reset", "--all"]).assert_code(0);
    fs::remove_dir(site.path("archives")).unwrap();
    fs::rename(other.path("archives"), site.path("archives")).unwrap();
    site
}

#[test]
fn readers_say_that_the_archive_is_not_there() {
    for (site, there) in [
        (site_without_its_disk(), "no archive is there"),
        (site_with_other_archive(), "the archive there is "),
    ] {
        for words in [
            "status",
            "verify",
            "log",
            "report",
            "undo",
            "undo --last --dry-run",
            "undo monitor-bot --dry-run",
            "archive list",
            "archive show monitor/2026-03-14_0900.md",
            "archive search note",
            "archive export --to copies",
            "archive prune --dry-run",
            "baseline list",
            "baseline history monitor-bot",
            "schedule status",
            "alerts send",
        ] {
            let with_alerts = words.starts_with("alerts");
            if with_alerts {
                site.append("memory-shepherd.conf", "\n[alerts]\ncommand = true\n");
            }
            let ran = site.run_command(site.command().args(words.split(' ')));
            let said = format!("{words}: {}{}", ran.stdout, ran.stderr);
            // What the service manager says of the timers is true.
            let code = if words == "schedule status" { 0 } else { 3 };
            assert_eq!(ran.exit_code, code, "{said}");
            let path = site.path("archives");
            let sentence = format!("is not in {}: {there}", path.display());
            assert!(ran.stderr.contains(&sentence), "{said}");
            // Alerts are sent, but not recorded.
            let has_hint = ran.stderr.contains("mount the disk that it is on");
            assert!(has_hint, "{said}");
        }
        let status = site.run(["status"]);
        assert!(status.stdout.contains("monitor-bot"), "{}", status.stdout);
        assert!(!site.path("copies").exists());
    }
}

#[test]
fn scheduled_reset_without_the_archive_is_alerted() {
    let site = site_without_its_disk();
    let alerts = "\n[alerts]\ncommand = sh -c 'cat >>events'\n";
    site.append("memory-shepherd.conf", alerts);
    let words = "reset --all --scheduled --metrics fleet.prom";
    let ran = site.run_command(site.command().args(words.split(' ')));
    assert_eq!(ran.exit_code, 3, "{}", ran.stderr);
    let event: serde_json::Value = serde_json::from_str(&site.read("events")).unwrap();
    assert_eq!(event["event"], "failed-reset");
    assert_eq!(event["agent"], serde_json::Value::Null);
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("no archive is there"), "{message}");
    let metrics = site.read("fleet.prom");
    for line in [
        "command_exit_code{fleet=\"memory-shepherd\",command=\"reset\"} 3\n",
        "agent_blocked{fleet=\"memory-shepherd\",agent=\"monitor-bot\",host=\"local\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(!metrics.contains("archive_free_bytes"), "{metrics}");
    // A dry run is the operator's own.
    let _ = site.run(["reset", "--all", "--dry-run"]).assert_code(3);
    assert_eq!(site.read("events").lines().count(), 1);
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
        memory_shepherd::base::digest::Digest::of(first.as_bytes()).to_string(),
        id
    );
    let _ = site
        .run(["doctor", "--config", "new/fleet.conf"])
        .assert_stdout_has("has the archive that archive_id names")
        .assert_stdout_has("the ledger is intact; its head is 1:");
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
