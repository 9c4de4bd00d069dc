//! What `doctor` finds, and that it finds nothing where all is well.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

#[test]
fn finds_a_sound_fleet_sound() {
    let site = busy();
    let _ = site.run(["reset", "--all"]).code(0);
    let ran = site.run(["doctor"]).code(0);
    assert!(!ran.out.contains("FAIL"), "{}", ran.out);
    let _ = ran
        .says("the ledger is whole")
        .says("warn  there is no seal");
}

#[test]
fn finds_what_makes_promises_hollow() {
    let site = busy();
    let config = site.read("memory-shepherd.conf");
    let config = config.replace(
        "archive_dir=./archives",
        "archive_dir=./agents/code-reviewer/a",
    );
    site.write("memory-shepherd.conf", config);
    let ran = site.run(["doctor"]).code(1);
    let _ = ran.says("FAIL  archive_dir lies inside the folder of code-reviewer");

    let site = busy();
    fs::hard_link(site.path(REVIEWER), site.path("agents/monitor-bot/other")).unwrap();
    fs::rename(site.path("agents/monitor-bot/other"), site.path(MONITOR)).unwrap();
    let _ = site.run(["doctor"]).code(1).says("share one memory file");

    let site = busy();
    fs::rename(site.path("baselines"), site.path("real")).unwrap();
    symlink("real", site.path("baselines")).unwrap();
    let _ = site
        .run(["doctor"])
        .code(1)
        .says("is reached through a link")
        .says("/real");
}

#[test]
fn finds_agents_that_can_write_what_they_must_not() {
    let site = busy();
    let agent = 4_000_000_000;
    // Only root can give files away.
    if chown(site.path(REVIEWER), Some(agent), Some(agent)).is_err() {
        return;
    }
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&site.dir, everybody).unwrap();
    let _ = site.run(["reset", "monitor-bot"]).code(0);
    let ran = site.run(["doctor"]).code(0);
    let _ = ran.says("the users of 1 agent can write neither config, baselines nor archive");
    fs::set_permissions(site.path("baselines"), fs::Permissions::from_mode(0o777)).unwrap();
    let ran = site.run(["doctor"]).code(1);
    let _ = ran
        .says("FAIL  uid 4000000000 of code-reviewer can write ")
        .says("/baselines\n");
}

#[test]
fn finds_what_an_interrupted_run_left() {
    let site = busy();
    let _ = site.run(["reset", "monitor-bot"]).code(0);
    site.write("archives/.shepherd/tx/monitor-bot.json", "{}");
    let _ = site
        .run(["doctor"])
        .says("warn  a run of monitor-bot goes on, or was interrupted");
    site.write("archives/.shepherd/tx/renamed.shepherd-1.json", "{}");
    let _ = site
        .run(["doctor"])
        .code(1)
        .says("tx/renamed.shepherd-1.json is of an agent that is not configured");
}
