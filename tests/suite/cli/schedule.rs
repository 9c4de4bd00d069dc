//! `schedule install`, `uninstall` and `status`: units in a prefix, and files that stay.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::fixture::CommandOutput;

/// A service of the original tool that runs its script twice, as shipped deployments have it.
const ORIGINAL_SERVICE: &str = "[Unit]\nDescription=Workspace files\n\n[Service]\nType=oneshot\n\
                                ExecStart=%h/ms/memory-shepherd.sh agent-agents\n\
                                ExecStart=%h/ms/memory-shepherd.sh agent-tools\n";
const ORIGINAL_TIMER: &str = "[Timer]\nOnUnitActiveSec=60\n\n[Install]\nWantedBy=timers.target\n";

/// Returns the names of the files in a directory.
pub(super) fn unit_names(site: &Site, directory: &str) -> BTreeSet<String> {
    let Ok(list) = fs::read_dir(site.path(directory)) else {
        return BTreeSet::new();
    };
    list.map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Returns both streams with placeholders, also for the path of the program.
fn masked_output(ran: &CommandOutput) -> String {
    ran.normalized_output().replace(PROGRAM_PATH, "[PROGRAM]")
}

/// Installs into the directory `units` of the site.
pub(super) fn install(site: &Site, arguments: &[&str]) -> CommandOutput {
    let always = ["schedule", "install", "--system", "--prefix", "units"];
    site.run_command(site.command().args(always).args(arguments))
}

#[test]
fn schedule_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    let run = |arguments: &[&str]| {
        let ran = site.run_command(site.command().args(arguments));
        let output = masked_output(&ran);
        // Other users can change files in the directory of a test unless root runs it.
        let lines = output
            .lines()
            .filter(|line| !line.starts_with("note: root runs"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let target = ["--system", "--prefix", "units"];
    let with_target = |words: &[&'static str]| [words, &target].concat();
    site.append("memory-shepherd.conf", "every=30m\n");
    insta::assert_snapshot!(
        "schedule_dry_run",
        run(&with_target(&["schedule", "install", "--dry-run"]))
    );
    insta::assert_snapshot!(
        "schedule_install",
        run(&with_target(&["schedule", "install"]))
    );
    insta::assert_snapshot!(
        "schedule_status",
        run(&with_target(&["schedule", "status"]))
    );
    insta::assert_snapshot!(
        "schedule_status_json",
        run(&with_target(&["schedule", "status", "--json"]))
    );
    site.write("units/reset.service", ORIGINAL_SERVICE);
    site.write("units/reset.timer", ORIGINAL_TIMER);
    insta::assert_snapshot!(
        "schedule_original",
        run(&with_target(&["schedule", "install"]))
    );
    insta::assert_snapshot!(
        "schedule_take_over",
        run(&with_target(&[
            "schedule",
            "install",
            "--take-over",
            "--dry-run"
        ]))
    );
    insta::assert_snapshot!(
        "schedule_uninstall",
        run(&with_target(&["schedule", "uninstall"]))
    );
    insta::assert_snapshot!(
        "schedule_uninstall_json",
        run(&with_target(&["schedule", "uninstall", "--json"]))
    );
    insta::assert_snapshot!(
        "schedule_crontab",
        run(&["schedule", "install", "--crontab"])
    );
    for verb in ["install", "uninstall", "status"] {
        insta::assert_snapshot!(
            format!("help_schedule_{verb}"),
            site.run(["schedule", verb, "--help"]).normalized_output()
        );
    }
}

#[test]
fn dry_run_of_install_changes_no_file() {
    let site = Site::new();
    let before = site.snapshot_files();
    let ran = install(&site, &["--dry-run", "--json"])
        .assert_code(0)
        .json();
    assert_eq!(site.snapshot_files(), before);
    let _ = install(&site, &[]).assert_code(0);
    for file in ran["files"].as_array().unwrap() {
        let name = file["name"].as_str().unwrap();
        assert_eq!(
            site.read(&format!("units/{name}")),
            file["content"],
            "{name}"
        );
    }
    assert_eq!(
        unit_names(&site, "units").len(),
        ran["files"].as_array().unwrap().len()
    );
    let before = site.snapshot_files();
    let _ = site
        .run([
            "schedule",
            "uninstall",
            "--system",
            "--prefix",
            "units",
            "--dry-run",
        ])
        .assert_code(0);
    assert_eq!(site.snapshot_files(), before);
}

#[test]
fn changed_config_updates_and_removes_units() {
    let site = Site::new();
    let _ = install(&site, &[]).assert_code(0);
    let stems = [
        "memory-shepherd",
        "memory-shepherd-code-reviewer",
        "memory-shepherd-monitor-bot",
    ];
    let mut expected: BTreeSet<String> = stems
        .iter()
        .flat_map(|stem| [format!("{stem}.service"), format!("{stem}.timer")])
        .collect();
    expected.insert("memory-shepherd-guard.service".to_string());
    assert_eq!(unit_names(&site, "units"), expected);
    let again = install(&site, &["--json"]).assert_code(0).json();
    let actions: BTreeSet<&str> = again["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, BTreeSet::from(["unchanged"]));
    site.write("units/other.service", "[Service]\nExecStart=/bin/true\n");
    site.write(
        "units/memory-shepherd.service.d/mine.conf",
        "[Service]\nNice=5\n",
    );
    let config = site.read("memory-shepherd.conf");
    let (config, _) = config.split_once("\n[monitor-bot]").unwrap();
    site.write(
        "memory-shepherd.conf",
        config.replace("[general]", "[general]\nevery=6h"),
    );
    let ran = install(&site, &["--json"]).assert_code(0).json();
    let action = |name: &str| {
        let files = ran["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["name"] == name).unwrap();
        file["action"].as_str().unwrap().to_string()
    };
    assert_eq!(action("memory-shepherd.timer"), "update");
    assert_eq!(action("memory-shepherd-monitor-bot.timer"), "remove");
    let timer = site.read("units/memory-shepherd.timer");
    assert!(timer.contains("OnCalendar=*-*-* 00/6:00:00\n"), "{timer}");
    // A config that cannot be read any more does not keep its units.
    site.write("memory-shepherd.conf", "[general\n");
    let _ = site
        .run(["schedule", "uninstall", "--system", "--prefix", "units"])
        .assert_code(0);
    let left = unit_names(&site, "units");
    assert_eq!(
        left,
        BTreeSet::from(["memory-shepherd.service.d", "other.service"].map(str::to_string))
    );
    assert!(site.path("baselines/code-reviewer-MEMORY.md").exists());
    assert!(site.path("archives").exists());
}

#[test]
fn timer_without_interval_of_its_own_is_disabled() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    site.append("memory-shepherd.conf", "every=30m\n");
    let first = install(&site, &["--json"]).assert_code(0).json();
    let both = ["memory-shepherd-monitor-bot.timer", "memory-shepherd.timer"];
    let enable = |names: &[&str]| serde_json::json!([&["enable", "--now"][..], names].concat());
    assert_eq!(first["commands"], serde_json::json!([]));
    assert_eq!(first["pending_commands"][1], enable(&both));
    site.write("memory-shepherd.conf", config);
    let second = install(&site, &["--json"]).assert_code(0).json();
    let stop = serde_json::json!(["stop", both[0]]);
    assert_eq!(second["pending_commands"][0], stop);
    assert_eq!(second["pending_commands"][2], enable(&both[1..]));
}

#[test]
fn edited_and_foreign_units_need_force() {
    let site = Site::new();
    let _ = install(&site, &[]).assert_code(0);
    site.append("units/memory-shepherd.timer", "# mine\n");
    site.write(
        "units/memory-shepherd-guard.service",
        "[Service]\nExecStart=/bin/true\n",
    );
    let (edited, foreign) = (
        site.read("units/memory-shepherd.timer"),
        site.read("units/memory-shepherd-guard.service"),
    );
    let ran = install(&site, &[]).assert_code(6);
    assert!(ran.stdout.contains("edited since"), "{}", ran.stdout);
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    assert_eq!(site.read("units/memory-shepherd.timer"), edited);
    assert_eq!(site.read("units/memory-shepherd-guard.service"), foreign);
    let _ = site
        .run(["schedule", "uninstall", "--system", "--prefix", "units"])
        .assert_code(6);
    assert_eq!(
        unit_names(&site, "units"),
        BTreeSet::from(
            ["memory-shepherd-guard.service", "memory-shepherd.timer"].map(str::to_string)
        )
    );
    let _ = install(&site, &["--force"]).assert_code(0);
    assert_ne!(site.read("units/memory-shepherd.timer"), edited);
    // The units of another config stay.
    site.write("other.conf", site.read("memory-shepherd.conf"));
    let ran = install(&site, &["--config", "other.conf"]).assert_code(6);
    assert!(
        ran.stdout.contains("it belongs to the config"),
        "{}",
        ran.stdout
    );
    let _ = site
        .run([
            "schedule",
            "uninstall",
            "--config",
            "other.conf",
            "--system",
            "--prefix",
            "units",
        ])
        .assert_code(0);
    assert!(site.path("units/memory-shepherd.timer").exists());
}

#[test]
fn original_units_are_taken_over_by_choice() {
    let site = Site::new();
    site.write("units/memory-shepherd-workspace.service", ORIGINAL_SERVICE);
    site.write("units/memory-shepherd-workspace.timer", ORIGINAL_TIMER);
    let own = "[Service]\nType=oneshot\nExecStart=/opt/ms/memory-shepherd.sh all\n";
    site.write("units/memory-shepherd.service", own);
    site.write("units/memory-shepherd.timer", ORIGINAL_TIMER);
    let before = site.snapshot_files();
    let _ = install(&site, &[])
        .assert_code(6)
        .assert_stderr_has("memory-shepherd-workspace.service, memory-shepherd.service");
    let shown = install(&site, &["--take-over", "--dry-run"]).assert_code(0);
    assert!(
        shown
            .stdout
            .contains("-ExecStart=%h/ms/memory-shepherd.sh agent-tools")
    );
    assert_eq!(site.snapshot_files(), before);
    let ran = install(&site, &["--take-over", "--json"])
        .assert_code(0)
        .json();
    assert_eq!(
        ran["pending_commands"][0],
        serde_json::json!([
            "stop",
            "memory-shepherd-workspace.timer",
            "memory-shepherd.timer"
        ])
    );
    assert!(
        !site
            .path("units/memory-shepherd-workspace.service")
            .exists()
    );
    assert!(!site.path("units/memory-shepherd-workspace.timer").exists());
    let service = site.read("units/memory-shepherd.service");
    assert!(service.contains("reset --scheduled"), "{service}");
}

#[test]
fn take_over_follows_unit_keys_and_symlinks() {
    let site = Site::new();
    site.write("opt/nightly.service", ORIGINAL_SERVICE);
    site.write("units/other.service", "[Service]\nExecStart=/bin/true\n");
    let link = site.path("units/nightly.service");
    std::os::unix::fs::symlink(site.path("opt/nightly.service"), link).unwrap();
    let timer = ORIGINAL_TIMER.replace("[Timer]", "[Timer]\nUnit=nightly.service");
    site.write("units/at-night.timer", timer);
    // This one has the name of the service, and starts another one.
    let timer = ORIGINAL_TIMER.replace("[Timer]", "[Timer]\nUnit = other.service");
    site.write("units/nightly.timer", timer);
    let _ = install(&site, &[]).assert_code(6);
    let _ = install(&site, &["--take-over"]).assert_code(0);
    let names = unit_names(&site, "units");
    let is_left = |name: &str| names.contains(name);
    assert!(!is_left("nightly.service") && !is_left("at-night.timer"));
    assert!(is_left("nightly.timer") && is_left("other.service"));
    assert!(site.path("opt/nightly.service").exists());
}

#[test]
fn dry_run_names_the_commands_that_install_runs() {
    let site = Site::new();
    let shown = install(&site, &["--dry-run", "--json"])
        .assert_code(0)
        .json();
    let ran = install(&site, &["--json"]).assert_code(0).json();
    for field in ["commands", "pending_commands"] {
        assert_eq!(shown[field], ran[field], "{field}");
    }
    assert_eq!(shown["commands"], serde_json::json!([]));
    let path = write_fake_systemctl(&site, 0);
    let run = |arguments: &[&str]| {
        let mut command = site.command();
        command
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", site.path("run"));
        let always = ["schedule", "install", "--user", "--json"];
        let ran = site.run_command(command.args(always).args(arguments));
        ran.assert_code(0).json()
    };
    let shown = run(&["--dry-run"]);
    assert!(!site.path("home/calls").exists());
    assert_eq!(shown["pending_commands"], serde_json::json!([]));
    assert_eq!(shown["commands"], run(&[])["commands"]);
    let calls = site.read("home/calls");
    assert_eq!(
        calls.lines().count(),
        shown["commands"].as_array().unwrap().len()
    );
}

#[test]
fn scheduled_reset_is_recorded_as_timer() {
    let site = site_with_notes_and_drift();
    // The last section is that of monitor-bot.
    site.append("memory-shepherd.conf", "every=30m\n");
    let changed = site.read(MONITOR_MEMORY);
    let ran = site
        .run(["reset", "--scheduled", "--json"])
        .assert_code(0)
        .json();
    assert_eq!(ran["results"][0]["agent"], "code-reviewer");
    assert_eq!(ran["results"].as_array().unwrap().len(), 1);
    assert_eq!(site.read(MONITOR_MEMORY), changed);
    let _ = site
        .run(["reset", "--scheduled", "monitor-bot"])
        .assert_code(0);
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    assert_eq!(ledger.lines().count(), 2);
    assert!(
        ledger
            .lines()
            .all(|line| line.contains("\"trigger\":\"timer\"")),
        "{ledger}"
    );
    let config = site.read("memory-shepherd.conf");
    site.write(
        "memory-shepherd.conf",
        config.replace("\n[monitor", "every=1h\n\n[monitor"),
    );
    let _ = site
        .run(["reset", "--scheduled", "--json"])
        .assert_code(0)
        .json();
    let _ = site.run(["reset", "--all", "monitor-bot"]).assert_code(2);
}

/// Writes a program `systemctl` that records its arguments, and returns its directory.
fn write_fake_systemctl(site: &Site, exit_code: u8) -> String {
    let text = format!("#!/bin/sh\necho \"$@\" >> \"$HOME/calls\"\nexit {exit_code}\n");
    site.write("bin/systemctl", text);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("bin/systemctl"), mode).unwrap();
    site.write("run/systemd/private", "");
    format!("{}:/usr/bin:/bin", site.path("bin").display())
}

#[test]
fn user_units_are_enabled_by_service_manager() {
    let site = Site::new();
    site.append("memory-shepherd.conf", "every=30m\n");
    let path = write_fake_systemctl(&site, 0);
    let run = |arguments: &[&str]| {
        let mut command = site.command();
        command
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", site.path("run"));
        site.run_command(command.args(arguments))
    };
    let _ = run(&["schedule", "install", "--user"]).assert_code(0);
    let calls = site.read("home/calls");
    let calls: Vec<&str> = calls.lines().collect();
    assert_eq!(
        calls,
        [
            "--user --no-pager --no-ask-password daemon-reload",
            "--user --no-pager --no-ask-password enable --now memory-shepherd-monitor-bot.timer \
             memory-shepherd.timer"
        ]
    );
    let directory = "home/.config/systemd/user";
    assert_eq!(unit_names(&site, directory).len(), 7);
    site.write("home/calls", "");
    let _ = run(&["schedule", "uninstall", "--user"]).assert_code(0);
    let calls = site.read("home/calls");
    assert!(
        calls.starts_with("--user --no-pager --no-ask-password disable --now "),
        "{calls}"
    );
    assert!(unit_names(&site, directory).is_empty());
}

/// A time zone an hour ahead of UTC in winter and two in summer, whatever that of the machine is.
const SUMMER_TIME_ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

#[test]
fn times_of_the_status_have_their_own_offset() {
    let site = Site::new();
    site.append("memory-shepherd.conf", "every=30m\n");
    let path = write_fake_systemctl(&site, 0);
    let program = "#!/bin/sh\ncase \"$*\" in *show*)\n\
                   echo Id=memory-shepherd.timer; echo ActiveState=active\n\
                   echo NextElapseUSecRealtime=Fri 2037-07-10 10:00:00 UTC\n\
                   echo LastTriggerUSec=Sat 2026-01-10 10:00:00 UTC\nesac\n";
    site.write("bin/systemctl", program);
    let run = |arguments: &[&str]| {
        let mut command = site.command();
        command
            .env("PATH", &path)
            .env("TZ", SUMMER_TIME_ZONE)
            .env("XDG_RUNTIME_DIR", site.path("run"));
        site.run_command(command.args(arguments)).assert_code(0)
    };
    let _ = run(&["schedule", "install", "--user"]);
    let _ = run(&["schedule", "pause"]);
    let file = "archives/.shepherd/schedule.json";
    let mut controls: serde_json::Value = serde_json::from_str(&site.read(file)).unwrap();
    let mut configs = controls["configs"].as_object_mut().unwrap().values_mut();
    let timers = configs.next().unwrap()["timers"].as_array_mut().unwrap();
    for (timer, since) in timers.iter_mut().zip(["2026-01-10", "2026-07-10"]) {
        timer["pause"]["since"] = format!("{since}T20:00:00Z").into();
    }
    site.write(file, controls.to_string());
    let _ = run(&["schedule", "status", "--user"])
        .assert_stdout_has("2037-07-10 12:00:00")
        .assert_stdout_has("2026-01-10 11:00:00")
        .assert_stdout_has("paused since 2026-01-10 21:00:00")
        .assert_stdout_has("paused since 2026-07-10 22:00:00");
}

#[test]
fn status_counts_the_agents_of_a_timed_run() {
    let site = site_with_notes_and_drift();
    let path = write_fake_systemctl(&site, 0);
    let program = "#!/bin/sh\ncase \"$*\" in *show*)\n\
                   echo Id=memory-shepherd.timer; echo ActiveState=active; echo\n\
                   echo Id=memory-shepherd.service; echo Result=$(cat \"$HOME/result\")\n\
                   echo ExecMainStatus=6\n\
                   echo ExecMainExitTimestamp=Sat 2026-01-10 10:00:00 UTC\nesac\n";
    site.write("bin/systemctl", program);
    let run = |arguments: &[&str]| {
        let mut command = site.command();
        command
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", site.path("run"));
        site.run_command(command.args(arguments))
    };
    site.write("home/result", "success");
    let _ = run(&["schedule", "install", "--user"]).assert_code(0);
    let status = || run(&["schedule", "status", "--user"]).assert_code(0);
    let _ = run(&["reset", "--scheduled"]).assert_code(0);
    let _ = status().assert_stdout_has("2 ok");
    site.write("baselines/monitor-bot-MEMORY.md", "");
    site.append(REVIEWER_MEMORY, "- a note\n");
    site.write("home/result", "exit-code");
    let _ = run(&["reset", "--scheduled"]).assert_code(6);
    let _ = status().assert_stdout_has("exit 6: 1 refused, 1 ok");
}

#[test]
fn failing_systemctl_is_reported() {
    let site = Site::new();
    let path = write_fake_systemctl(&site, 1);
    let mut command = site.command();
    command
        .env("PATH", &path)
        .env("XDG_RUNTIME_DIR", site.path("run"));
    let _ = site
        .run_command(command.args(["schedule", "install", "--user"]))
        .assert_code(3)
        .assert_stderr_has("`systemctl --user daemon-reload` failed");
}

/// A service manager that cannot read units while the file `broken` exists, and a guard that runs with
/// the text from before.
#[test]
fn failed_reload_is_made_up_for_by_the_next_call() {
    let site = Site::new();
    let path = write_fake_systemctl(&site, 0);
    let program = "#!/bin/sh\necho \"$@\" >> \"$HOME/calls\"\ncase \"$*\" in\n\
                   *NeedDaemonReload*) [ -e \"$HOME/stale\" ] && echo NeedDaemonReload=yes ;;\n\
                   *daemon-reload) [ ! -e \"$HOME/broken\" ] || exit 1 ;;\nesac\n";
    site.write("bin/systemctl", program);
    let calls_of = |verb: &str, code: i32| {
        site.write("home/calls", "");
        let mut command = site.command();
        command
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", site.path("run"));
        let arguments = ["schedule", verb, "--user"];
        let _ = site.run_command(command.args(arguments)).assert_code(code);
        site.read("home/calls")
    };
    let restart = "try-restart memory-shepherd-guard.service";
    site.write("home/broken", "");
    let _ = calls_of("install", 3);
    let _ = calls_of("install", 3);
    fs::remove_file(site.path("home/broken")).unwrap();
    site.write("home/stale", "");
    let calls = calls_of("install", 0);
    assert!(calls.contains(" daemon-reload\n"), "{calls}");
    assert!(calls.contains(restart), "{calls}");
    // The guard that has read its unit runs on.
    fs::remove_file(site.path("home/stale")).unwrap();
    assert!(!calls_of("install", 0).contains(restart));
    site.write("home/broken", "");
    let _ = calls_of("uninstall", 3);
    assert!(unit_names(&site, "home/.config/systemd/user").is_empty());
    fs::remove_file(site.path("home/broken")).unwrap();
    assert!(calls_of("uninstall", 0).contains(" daemon-reload\n"));
}

#[test]
fn spellings_of_a_config_are_one_fleet() {
    let site = Site::new();
    let [baselines, archives, memory] =
        ["baselines", "archives", MONITOR_MEMORY].map(|it| site.path(it).display().to_string());
    let text = format!(
        "[general]\nbaseline_dir={baselines}\narchive_dir={archives}\n\
         [monitor-bot]\nmemory_file={memory}\nbaseline=monitor-bot-MEMORY.md\n"
    );
    site.write("conf/fleet.conf", text);
    std::os::unix::fs::symlink("conf", site.path("link")).unwrap();
    for spelling in ["conf/fleet.conf", "conf/../link/fleet.conf"] {
        let ran = install(&site, &["--config", spelling, "--json"]).assert_code(0);
        let ran = ran.json();
        let mut files = ran["files"].as_array().unwrap().iter();
        assert!(files.all(|file| file["reason"].is_null()), "{ran:#}");
    }
    let status = |spelling: &str| {
        let target = [
            "--system", "--prefix", "units", "--json", "--config", spelling,
        ];
        let mut command = site.command();
        command.args(["schedule", "status"]).args(target);
        site.run_command(&mut command).assert_code(0).json()
    };
    let pause = ["schedule", "pause", "--config", "link/fleet.conf"];
    let _ = site.run(pause).assert_code(0);
    let status = status("conf/../conf/fleet.conf");
    assert!(!status["timers"].as_array().unwrap().is_empty());
    assert_eq!(status["holds"].as_array().unwrap().len(), 1, "{status:#}");
    let mut command = site.command();
    command.args(["schedule", "uninstall", "--system", "--prefix", "units"]);
    let _ = site
        .run_command(command.args(["--config", "conf/fleet.conf"]))
        .assert_code(0);
    assert!(unit_names(&site, "units").is_empty());
}

#[test]
fn hostile_unit_files_are_not_printed_raw() {
    let site = Site::new();
    let text = "[Service]\nExecStart=/x/memory-shepherd.sh \x1b[31mall\u{202E}\n";
    site.write("units/\x1b[31mx.service", text);
    site.write("units/memory-shepherd.timer", "\x1b[31m\n");
    for arguments in [
        &["--dry-run", "--force"][..],
        &["--take-over", "--dry-run"],
        &[],
        &["--take-over"],
    ] {
        // A terminal and colours get marks; another pipe gets the lines as they are.
        let ran = install(&site, &[&["--color=always"], arguments].concat());
        assert_no_escape(&without_styles(&ran.stderr));
        assert_no_escape(&without_styles(&ran.stdout));
    }
}
