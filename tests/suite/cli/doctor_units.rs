//! What `doctor` says about installed units, the search index, free space and locks.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::earlier::insert_earlier_run;
use crate::fixture::CommandOutput;

const UNITS: &str = "home/.config/systemd/user";

/// A fleet with units of the user and a service manager that prints `answer`.
fn site_with_units(answer: &str) -> Site {
    let site = site_with_notes_and_drift();
    let script = format!("#!/bin/sh\ncase \"$*\" in *show*) printf '{answer}';; esac\n");
    site.write("bin/systemctl", script);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("bin/systemctl"), mode).unwrap();
    site.write("run/systemd/private", "");
    let _ = run(&site, &["schedule", "install", "--user"]).assert_code(0);
    site
}

fn run(site: &Site, arguments: &[&str]) -> CommandOutput {
    let mut command = site.command();
    command
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", site.path("bin").display()),
        )
        .env("XDG_RUNTIME_DIR", site.path("run"));
    site.run_command(command.args(arguments))
}

/// The results of a check.
fn results(site: &Site, name: &str) -> Vec<(String, String)> {
    let report = run(site, &["doctor", "--json"]).json();
    let checks = report["checks"].as_array().unwrap().iter();
    let text = |it: &serde_json::Value| it.as_str().unwrap().to_string();
    checks
        .filter(|it| it["check"] == name)
        .map(|it| (text(&it["level"]), text(&it["text"])))
        .collect()
}

/// Asserts that a check has a result of this level with these words.
#[track_caller]
fn assert_result(site: &Site, name: &str, level: &str, words: &str) {
    let found = results(site, name);
    assert!(
        found
            .iter()
            .any(|(it, text)| it == level && text.contains(words)),
        "{words}: {found:#?}"
    );
}

/// As root, units of the system come first, so a test has to have none there.
const ANSWER: &str = "Id=memory-shepherd.timer\\nActiveState=active\\nUnitFileState=enabled\\n\
                      NextElapseUSecRealtime=Mon 2036-02-04 02:50:00 UTC\\n\
                      LastTriggerUSec=Sun 2026-02-01 23:50:00 UTC\\n\\n\
                      Id=memory-shepherd.service\\nActiveState=inactive\\nResult=success\\n\
                      ExecMainStatus=0\\nExecMainExitTimestamp=Sun 2026-02-01 23:50:01 UTC\\n";

#[test]
fn installed_units_of_the_config_are_sound() {
    let site = site_with_units(ANSWER);
    let found = results(&site, "units");
    assert!(found.iter().all(|(level, _)| level == "ok"), "{found:#?}");
    assert_result(&site, "units", "ok", "7 units of this config");
    assert_result(&site, "units", "ok", "1 timer run");
}

#[test]
fn changed_config_makes_units_differ() {
    let site = site_with_units(ANSWER);
    let config = site.read("memory-shepherd.conf");
    let config = config
        .replace("[monitor-bot]", "[renamed]")
        .replace("[general]\n", "[general]\nevery=6h\n");
    site.write("memory-shepherd.conf", config);
    assert_result(
        &site,
        "units",
        "warn",
        "differ from what the config asks for now: memory-shepherd",
    );
    assert_result(
        &site,
        "units",
        "warn",
        "units of agents that are gone: memory-shepherd-monitor-bot",
    );
    assert_result(
        &site,
        "units",
        "warn",
        "units that are missing: memory-shepherd-renamed",
    );
    let _ = run(&site, &["schedule", "install", "--user"]).assert_code(0);
    let found = results(&site, "units");
    assert!(found.iter().all(|(level, _)| level == "ok"), "{found:#?}");
}

#[test]
fn services_of_the_original_tool_are_reported() {
    let site = site_with_units(ANSWER);
    assert_result(&site, "schedule", "ok", "no unit of the original tool");
    let service = "[Service]\nExecStart=%h/ms/memory-shepherd.sh monitor-bot\n";
    site.write(&format!("{UNITS}/agent-memory.service"), service);
    let text = "agent-memory.service in ";
    assert_result(&site, "schedule", "warn", text);
    let text = "which resets monitor-bot as well";
    assert_result(&site, "schedule", "warn", text);
}

#[test]
fn original_services_of_any_unit_directory_are_found() {
    let site = site_with_units(ANSWER);
    let script = "/opt/ms/memory-shepherd.sh";
    let packaged = "home/.local/share/systemd/user";
    let reload = format!("[Service]\nExecStart={script} a\nExecReload=/bin/kill 1\n");
    site.write(&format!("{packaged}/reload.service"), reload);
    site.write(
        &format!("{UNITS}/plain.service"),
        "[Service]\nExecStart=/bin/true\n",
    );
    let drop_in = format!("[Service]\nExecStart=\nExecStart={script} b\n");
    site.write("run/systemd/user/plain.service.d/x.conf", drop_in);
    let text = "share/systemd/user runs the original tool, which resets a as well";
    assert_result(&site, "schedule", "warn", text);
    assert_result(&site, "schedule", "warn", "plain.service in ");
    // Neither is one that `schedule install` takes over.
    let report = run(&site, &["doctor", "--json"]).json();
    let checks = report["checks"].as_array().unwrap().iter();
    let hints = checks.filter(|it| it["check"] == "schedule" && it["level"] == "warn");
    let hints: Vec<&str> = hints.map(|it| it["hint"].as_str().unwrap()).collect();
    assert_eq!(hints.len(), 2, "{hints:?}");
    assert!(hints.iter().all(|it| it.contains("--take-over leaves it")));
}

#[test]
fn edited_or_writable_unit_is_reported() {
    let site = site_with_units(ANSWER);
    let timer = format!("{UNITS}/memory-shepherd.timer");
    site.append(&timer, "# a comment\n");
    assert_result(&site, "units", "warn", "is not updated: it was edited");
    let mode = fs::Permissions::from_mode(0o646);
    fs::set_permissions(site.path(&timer), mode).unwrap();
    assert_result(&site, "units", "fail", "every user can write ");
    let _ = run(&site, &["doctor"]).assert_code(1);
}

#[test]
fn places_above_and_beside_units_are_examined() {
    let site = site_with_units(ANSWER);
    let drop_in = format!("{UNITS}/memory-shepherd.service.d/extra.conf");
    site.write(&drop_in, "[Service]\nNice=5\n");
    for place in [&drop_in, "home/.config/systemd"] {
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(site.path(place), mode).unwrap();
        let words = format!("every user can write {}, ", site.path(place).display());
        assert_result(&site, "units", "fail", &words);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.path(place), mode).unwrap();
    }
}

#[test]
fn writable_files_of_the_whole_search_path_are_found() {
    let site = site_with_units(ANSWER);
    let service = "[Service]\nExecStart=/bin/true\n";
    for (place, text) in [
        ("home/.config/systemd/user/service.d/x.conf", service),
        ("home/.config/systemd/user/timer.d/x.conf", "[Timer]\n"),
        (
            "home/.config/systemd/user/memory-.service.d/x.conf",
            service,
        ),
        (
            "home/.config/systemd/user/memory-shepherd-.timer.d/x.conf",
            "[Timer]\n",
        ),
        (
            "home/.config/systemd/user.control/memory-shepherd.service.d/x.conf",
            service,
        ),
        (
            "home/.local/share/systemd/user/memory-shepherd.timer.d/x.conf",
            "[Timer]\n",
        ),
        ("run/systemd/user/memory-shepherd.service.d/x.conf", service),
        // It comes before the unit that is installed.
        ("run/systemd/transient/memory-shepherd.service", service),
    ] {
        site.write(place, text);
        let found = results(&site, "units");
        assert!(found.iter().all(|(it, _)| it != "fail"), "{found:#?}");
        let directory = Path::new(place).parent().unwrap().to_str().unwrap();
        for place in [place, directory] {
            let mode = |mode| fs::Permissions::from_mode(mode);
            fs::set_permissions(site.path(place), mode(0o777)).unwrap();
            let words = format!("every user can write {}, ", site.path(place).display());
            assert_result(&site, "units", "fail", &words);
            fs::set_permissions(site.path(place), mode(0o755)).unwrap();
        }
        fs::remove_file(site.path(place)).unwrap();
    }
}

#[test]
fn linked_unit_of_others_is_named_and_counted() {
    for unit in ["memory-shepherd.timer", "memory-shepherd.service"] {
        let site = site_with_units(ANSWER);
        site.write(
            &format!("others/{unit}"),
            "[Service]\nExecStart=/bin/true\n",
        );
        fs::remove_file(site.path(UNITS).join(unit)).unwrap();
        let target = site.path("others").join(unit);
        std::os::unix::fs::symlink(target, site.path(UNITS).join(unit)).unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(site.path("others"), mode).unwrap();
        let words = format!("every user can write {}, ", site.path("others").display());
        assert_result(&site, "units", "fail", &words);
        assert_result(&site, "units", "ok", "7 units of this config");
    }
}

#[test]
fn masked_unit_or_drop_in_is_no_danger() {
    let site = site_with_units(ANSWER);
    let others = "run/systemd/user/memory-shepherd.service.d";
    site.write(&format!("{others}/y.conf"), "[Service]\nNice=5\n");
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(site.path(others).join("y.conf"), mode).unwrap();
    assert_result(&site, "units", "fail", "y.conf, ");
    // The mask replaces the drop-in that others can write.
    let masks = site.path(&format!("{UNITS}/memory-shepherd.service.d"));
    fs::create_dir_all(&masks).unwrap();
    std::os::unix::fs::symlink("/dev/null", masks.join("y.conf")).unwrap();
    fs::create_dir_all(site.path("home/.config/systemd/user.control")).unwrap();
    let mask = site.path("home/.config/systemd/user.control/memory-shepherd.timer");
    std::os::unix::fs::symlink("/dev/null", mask).unwrap();
    let found = results(&site, "units");
    assert!(found.iter().all(|(level, _)| level == "ok"), "{found:#?}");
}

#[test]
fn unit_directory_that_cannot_be_read_is_named() {
    let site = site_with_units(ANSWER);
    let place = format!("{UNITS}/timer.d");
    std::os::unix::fs::symlink("timer.d", site.path(&place)).unwrap();
    assert_result(&site, "units", "warn", &place);
    assert_result(&site, "schedule", "ok", &place);
}

#[test]
fn overdue_reset_is_reported_until_it_is_paused() {
    let site = site_with_notes_and_drift();
    site.append("memory-shepherd.conf", "every=30m\n");
    let engine = site_engine(&site);
    let now = engine.clock().now();
    insert_earlier_run(&site.path("archives"), "monitor-bot", now, 1);
    assert_result(&site, "schedule", "warn", "monitor-bot was ");
    let arguments = ["schedule", "status", "--user", "--prefix", "units"];
    let _ = run(&site, &arguments).assert_stdout_has("missed: monitor-bot was ");
    let _ = run(&site, &["schedule", "pause", "monitor-bot"]).assert_code(0);
    let found = results(&site, "schedule");
    assert!(
        !found
            .iter()
            .any(|(_, text)| text.starts_with("monitor-bot was ")),
        "{found:#?}"
    );
}

#[test]
fn missing_program_of_units_is_a_failure() {
    let site = site_with_units(ANSWER);
    let service = format!("{UNITS}/memory-shepherd.service");
    let text = site
        .read(&service)
        .replace(PROGRAM_PATH, "/opt/gone/shepherd");
    site.write(&service, text);
    assert_result(
        &site,
        "units",
        "fail",
        "units run /opt/gone/shepherd, which is missing",
    );
}

#[test]
fn failed_run_of_a_timer_is_reported() {
    let answer = ANSWER
        .replace("Result=success", "Result=exit-code")
        .replace("ExecMainStatus=0", "ExecMainStatus=4");
    let site = site_with_units(&answer);
    let words = "memory-shepherd.service at 2026-02-01 23:50:00 failed: exit-code, exit code 4";
    assert_result(&site, "units", "warn", words);
}

#[test]
fn enabled_timer_that_never_fired_is_reported() {
    let answer = ANSWER.replace(
        "LastTriggerUSec=Sun 2026-02-01 23:50:00 UTC",
        "LastTriggerUSec=",
    );
    let site = site_with_units(&answer);
    let found = results(&site, "units");
    assert!(
        found.iter().all(|(level, _)| level == "ok"),
        "just installed: {found:#?}"
    );
    let timer = fs::File::options()
        .write(true)
        .open(site.path(&format!("{UNITS}/memory-shepherd.timer")))
        .unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(9 * 86_400);
    timer.set_modified(past).unwrap();
    assert_result(
        &site,
        "units",
        "warn",
        "has not fired since it was installed 9 days ago",
    );
}

#[test]
fn stopped_timer_is_reported() {
    let answer = ANSWER.replacen("ActiveState=active", "ActiveState=inactive", 1);
    let site = site_with_units(&answer);
    assert_result(&site, "units", "warn", "and does not run");
}

#[test]
fn search_index_of_any_state_is_reported() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    assert_result(&site, "search-index", "ok", "no search index yet");
    let _ = site.run(["archive", "search", "flaky"]).assert_code(0);
    assert_result(
        &site,
        "search-index",
        "ok",
        "archives/.shepherd/index.sqlite (",
    );
    let index = site.path("archives/.shepherd/index.sqlite");
    let sound = fs::read(&index).unwrap();
    site.write(
        "archives/.shepherd/index.sqlite-journal",
        "left by a killed process",
    );
    assert_result(
        &site,
        "search-index",
        "warn",
        "was being changed when its process ended",
    );
    fs::remove_file(site.path("archives/.shepherd/index.sqlite-journal")).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[4096..middle].fill(0xff);
    fs::write(&index, damaged).unwrap();
    assert_result(&site, "search-index", "warn", "is damaged: ");
    fs::write(&index, "no database").unwrap();
    assert_result(&site, "search-index", "warn", "is damaged: ");
    fs::write(&index, sound).unwrap();
    if std::os::unix::fs::chown(&index, Some(4711), None).is_ok() {
        assert_result(&site, "search-index", "warn", "belongs to uid 4711");
    }
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink("elsewhere", &index).unwrap();
    assert_result(&site, "search-index", "warn", "cannot be used: ");
}

#[test]
fn doctor_changes_no_search_index() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["archive", "search", "flaky"]).assert_code(0);
    let index = site.path("archives/.shepherd/index.sqlite");
    let before = fs::metadata(&index).unwrap().modified().unwrap();
    let _ = site.run(["doctor"]).assert_code(0);
    assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), before);
}

/// A record of a run that archived more than the disk has room for within two months.
#[test]
fn free_space_is_compared_with_last_months_growth() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    assert_result(
        &site,
        "disk-space",
        "ok",
        " archived a day over the last 1 day",
    );
    let site = site_with_notes_and_drift();
    let now = memory_shepherd::base::clock::Clock::now(&memory_shepherd::base::clock::SystemClock);
    insert_earlier_run(&site.path("archives"), "monitor-bot", now, 10);
    let ledger = "archives/.shepherd/ledger.jsonl";
    let mut record: serde_json::Value = serde_json::from_str(site.read(ledger).trim()).unwrap();
    let digest = "0".repeat(64);
    record["entry"] = serde_json::json!({
        "path": "monitor/2026-01-02_0100.md", "kind": "scratch", "digest": digest, "size": 1_u64 << 60
    });
    site.write(ledger, record.to_string() + "\n");
    assert_result(&site, "disk-space", "warn", "at that rate");
    assert_result(&site, "disk-space", "warn", "(0 days)");
}

#[test]
fn lock_is_described_with_its_duration_everywhere() {
    let site = site_with_notes_and_drift();
    let held = site_engine(&site)
        .locks()
        .hold_agent_lock("code-reviewer")
        .unwrap();
    // The lock was taken two hours ago, as its note says.
    let path = site.path("archives/.shepherd/locks/code-reviewer.lock");
    let text = fs::read_to_string(&path).unwrap();
    let mut holder: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let since =
        memory_shepherd::base::clock::Clock::now(&memory_shepherd::base::clock::SystemClock)
            - chrono::Duration::minutes(130);
    holder["since"] = since.to_rfc3339().into();
    let mut note = fs::OpenOptions::new().write(true).open(&path).unwrap();
    note.write_all(format!("{holder:<255}\n").as_bytes())
        .unwrap();
    let by = format!("(cli, process {}, since ", std::process::id());
    for arguments in [
        &["status"][..],
        &["doctor"],
        &["reset", "code-reviewer"],
        &["reset", "code-reviewer", "--dry-run"],
    ] {
        let ran = site.run_command(site.command().args(arguments));
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            all.contains("locked for 2 h 10 min by run "),
            "{arguments:?}: {all}"
        );
        assert!(
            all.contains(" of tester@") && all.contains(&by),
            "{arguments:?}: {all}"
        );
    }
    let status = site.run(["status", "--json"]).json();
    let mut agents = status["agents"].as_array().unwrap().iter();
    let busy = agents.find(|it| it["state"] == "BUSY").unwrap();
    let lock = &busy["lock"];
    assert!(lock["held_seconds"].as_u64().unwrap() >= 7800, "{status:#}");
    assert_eq!(lock["trigger"], "cli");
    // The holder is alive: no run breaks into the lock, however old it is.
    let _ = site.run(["reset", "code-reviewer"]).assert_code(5);
    drop(held);
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
}
