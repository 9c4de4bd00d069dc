//! Findings of `doctor`, and their absence on a sound fleet.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;

use super::*;
use crate::skip::{skip_missing_tool, skip_unsupported};

#[test]
fn doctor_passes_sound_fleet() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let ran = site.run(["doctor"]).assert_code(0);
    assert!(!ran.stdout.contains("FAIL"), "{}", ran.stdout);
    let _ = ran
        .assert_stdout_has("the ledger is intact")
        .assert_stdout_has("warn  no seal: ");
}

#[test]
fn baseline_without_separator_is_reported_everywhere() {
    let site = Site::new();
    let name = "baselines/code-reviewer-MEMORY.md";
    let rules = site.read(name).replace("\n---\n", "\n");
    site.write(name, rules);
    let lacks = "the baseline has no separator line ---: what an agent adds";
    let _ = site.run(["doctor"]).assert_code(0).assert_stdout_has(lacks);
    let plan = site.run(["reset", "code-reviewer", "--dry-run"]);
    let _ = plan.assert_stdout_has(lacks);
}

#[test]
fn line_that_is_no_separator_is_named_everywhere() {
    let site = Site::new();
    let name = "baselines/code-reviewer-MEMORY.md";
    let rules = site.read(name).replace("\n---\n", "\n");
    let front_matter = "---\nname: code-reviewer\n---\n\n";
    site.write(name, format!("{front_matter}{rules}"));
    let lacks = "no separator line --- (line 3 delimits front matter)";
    let _ = site.run(["doctor"]).assert_code(0).assert_stdout_has(lacks);
    let plan = site.run(["reset", "code-reviewer", "--dry-run"]);
    let _ = plan.assert_stdout_has(lacks);
    let lint = site.run(["lint", "code-reviewer"]);
    let _ = lint.assert_stdout_has("line 3 delimits front matter, so it is not a separator");
    // Behind a separator, it does not move the boundary.
    let separator = rules.lines().count() + 2;
    site.write(name, format!("{rules}\n---\n\n<!--\n---\n-->\n"));
    let boundary = format!("the boundary of the baseline is line {separator}");
    let comment = format!("line {} is in an HTML comment", separator + 3);
    let doctor = site.run(["doctor"]).assert_code(0);
    let _ = doctor
        .assert_stdout_has(&boundary)
        .assert_stdout_has(&comment);
}

#[test]
fn doctor_finds_archive_in_agent_directory() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let config = config.replace(
        "archive_dir=./archives",
        "archive_dir=./agents/code-reviewer/a",
    );
    site.write("memory-shepherd.conf", config);
    let ran = site.run(["doctor"]).assert_code(2);
    let _ = ran
        .assert_stdout_has("FAIL  config line 3: archive_dir, ")
        .assert_stdout_has("is inside the directory of `code-reviewer`");
}

#[test]
fn doctor_finds_config_in_agent_directory() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    site.write(
        "agents/code-reviewer/fleet.conf",
        config.replace("./", "../../"),
    );
    let ran = site.run(["doctor", "--config", "agents/code-reviewer/fleet.conf"]);
    let _ = ran
        .assert_code(1)
        .assert_stdout_has("FAIL  the config is inside the directory of code-reviewer");
}

#[test]
fn doctor_finds_hard_links_between_memories() {
    let site = site_with_notes_and_drift();
    fs::remove_file(site.path(MONITOR_MEMORY)).unwrap();
    fs::hard_link(site.path(REVIEWER_MEMORY), site.path(MONITOR_MEMORY)).unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("are hard links to one file");
}

#[test]
fn doctor_finds_memory_hard_linked_to_baseline() {
    let site = site_with_notes_and_drift();
    fs::remove_file(site.path(MONITOR_MEMORY)).unwrap();
    fs::hard_link(
        site.path("baselines/monitor-bot-MEMORY.md"),
        site.path(MONITOR_MEMORY),
    )
    .unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("is a hard link to the baseline");
}

#[test]
fn doctor_finds_truncated_ledger() {
    let site = site_with_notes_and_drift();
    for _ in 0..2 {
        site.append(REVIEWER_MEMORY, "- more\n");
        let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    }
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    let first = ledger.split_inclusive('\n').next().unwrap();
    site.write("archives/.shepherd/ledger.jsonl", first);
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("the ledger ends with record 1, but reset.log has the head of record 2");
}

#[test]
fn rotated_log_is_named_by_verify_and_doctor() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    fs::rename(site.path("archives/reset.log"), site.path("rotated")).unwrap();
    let verified = site.run(["verify"]).assert_code(0);
    let rows: Vec<&str> = verified.stdout.lines().collect();
    let is_named = |row: &&str| row.starts_with("note") && row.contains("NOT checked");
    assert!(rows.iter().any(is_named), "{rows:?}");
    let doctor = site.run(["doctor"]).assert_code(0);
    let _ = doctor.assert_stdout_has("but reset.log has no head of it");
}

#[test]
fn doctor_finds_file_as_entry_directory() {
    let site = site_with_notes_and_drift();
    site.write("archives/monitor", "no directory");
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("archives/monitor is not a directory");
}

#[test]
fn doctor_finds_symlinked_baseline_directory() {
    let site = site_with_notes_and_drift();
    fs::rename(site.path("baselines"), site.path("real")).unwrap();
    symlink("real", site.path("baselines")).unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("is reached through a symlink")
        .assert_stdout_has("/real");
}

#[test]
fn doctor_finds_agent_writable_baselines() {
    let site = site_with_notes_and_drift();
    let agent = 4_000_000_000;
    // Only root can change the owner of a file.
    if chown(site.path(REVIEWER_MEMORY), Some(agent), Some(agent)).is_err() {
        return skip_unsupported("only root can give files away");
    }
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&site.dir, everybody).unwrap();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let ran = site.run(["doctor"]).assert_code(0);
    let _ = ran
        .assert_stdout_has("the users of 1 agent can write neither config, baselines nor archive");
    fs::set_permissions(site.path("baselines"), fs::Permissions::from_mode(0o777)).unwrap();
    let ran = site.run(["doctor"]).assert_code(1);
    let _ = ran
        .assert_stdout_has("FAIL  uid 4000000000 of code-reviewer can write ")
        .assert_stdout_has("/baselines\n");
}

/// The owner of an entry directory or of the lock directory controls its content.
#[test]
fn doctor_finds_agent_writable_directories() {
    let site = site_with_notes_and_drift();
    let agent = 4_000_000_000;
    if chown(site.path("agents/code-reviewer"), Some(agent), Some(agent)).is_err() {
        return skip_unsupported("only root can give files away");
    }
    // Root owns the memory; the owner of its directory still counts as the agent.
    fs::set_permissions(&site.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    chown(site.path(REVIEWER_MEMORY), Some(0), Some(0)).unwrap();
    // The agent owns it for now, so no separate finding reports it.
    let doctor = || site.run(["doctor", "--config", "memory-shepherd.conf"]);
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("ok    the users of 1 agent can");
    for name in [
        "archives",
        "archives/reset.log",
        "archives/code-reviewer",
        "archives/monitor",
        "archives/.shepherd",
        "archives/.shepherd/tx",
        "archives/.shepherd/locks",
        "archives/.shepherd/locks/monitor-bot.lock",
        "archives/.shepherd/baselines",
        "archives/.shepherd/ledger.jsonl",
        "baselines",
        "baselines/monitor-bot-MEMORY.md",
        "memory-shepherd.conf",
        "",
    ] {
        let path = site.path(name);
        let said = format!(
            "FAIL  uid {agent} of code-reviewer can write {}\n",
            path.display().to_string().trim_end_matches('/')
        );
        chown(&path, Some(agent), None).unwrap();
        let ran = doctor().assert_code(1).assert_stdout_has(&said);
        assert!(!ran.stdout.contains("can write neither"), "{}", ran.stdout);
        chown(&path, Some(0), None).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions();
        for (bits, said) in [
            (0o777, said.as_str()),
            (0o770, "warn  members of gid 12345 can write "),
        ] {
            chown(&path, None, Some(12345)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            let ran = doctor();
            assert!(ran.stdout.contains(said), "{name}: {}", ran.stdout);
        }
        fs::set_permissions(&path, mode).unwrap();
        chown(&path, None, Some(0)).unwrap();
    }
    let _ = doctor().assert_code(0);
}

#[test]
fn doctor_finds_interrupted_run() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    site.write("archives/.shepherd/tx/monitor-bot.shepherd-0.json", "{}");
    let _ = site
        .run(["doctor"])
        .assert_stdout_has("warn  a run of monitor-bot is in progress or was interrupted");
    site.write("archives/.shepherd/tx/renamed.shepherd-1.json", "{}");
    let _ = site.run(["doctor"]).assert_code(1).assert_stdout_has(
        "tx/renamed.shepherd-1.json is the transaction record of an agent that is not configured",
    );
    site.write(
        "archives/.shepherd/tx/monitor-bot.shepherd-0.json",
        "{}\n\"decided\"",
    );
    let _ = site
        .run(["doctor"])
        .assert_code(4)
        .assert_stdout_has("tx/monitor-bot.shepherd-0.json is not a transaction record");
}

#[test]
fn doctor_names_read_only_file_system() {
    let site = site_with_notes_and_drift();
    for archive in [false, true] {
        if archive {
            let _ = site.run(["reset", "--all"]).assert_code(0);
        }
        let Some(ran) = run_on_read_only_disk(&site, ".", &["doctor"]) else {
            return skip_unsupported("only root can mount");
        };
        let there = site.path(if archive { "archives" } else { "" });
        let there = there.display().to_string();
        let there = there.trim_end_matches('/');
        let ran = ran
            .assert_code(1)
            .assert_stdout_has(&format!(
                "FAIL  {there} is on a read-only file system; no agent can be reset\n      hint: remount it"
            ))
            .assert_stdout_has("agents/monitor-bot is on a read-only file system; monitor-bot cannot be reset");
        for wrong in ["os error", "run this as", "exchange", "you may not"] {
            assert!(!ran.stdout.contains(wrong), "{wrong}: {}", ran.stdout);
        }
    }
}

#[test]
fn doctor_names_immutable_directory() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let archives = site.path("archives");
    let immutable = |sign: &str| {
        let mut chattr = Command::new("chattr");
        chattr
            .arg(format!("{sign}i"))
            .arg(&archives)
            .stderr(Stdio::null());
        chattr.status().is_ok_and(|it| it.success())
    };
    if !immutable("+") {
        return skip_unsupported("no immutable directories here");
    }
    let ran = site.run(["doctor"]);
    assert!(immutable("-"));
    let path = archives.display();
    let _ = ran
        .assert_code(1)
        .assert_stdout_has(&format!(
            "FAIL  {path} is immutable; no agent can be reset\n"
        ))
        .assert_stdout_has(&format!("hint: chattr -i {path}\n"));
}

#[test]
fn repair_command_quotes_its_path() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let name = "old $(id)";
    let moved = config.replace("archive_dir=./archives", &format!("archive_dir=./{name}"));
    assert_ne!(config, moved);
    site.write("memory-shepherd.conf", moved);
    fs::create_dir(site.path(name)).unwrap();
    fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    let path = site.path(name);
    let hint = format!("hint: chmod 700 '{}'\n", path.display());
    let _ = site.run(["doctor"]).assert_stdout_has(&hint);
}

/// The state after a kill between creating the directories above the archive and giving
/// them to the group; older directories may look the same.
#[test]
fn doctor_finds_paths_closed_to_archive_group() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let config = config
        .replace("[general]", "[general]\narchive_group=daemon")
        .replace("archive_dir=./archives", "archive_dir=./x/y/archives");
    site.write("memory-shepherd.conf", config);
    let daemon = 1;
    fs::create_dir_all(site.path("x/y")).unwrap();
    if chown(site.path("x"), None, Some(daemon)).is_err() {
        return skip_unsupported("needs root");
    }
    let mode = |name: &str, mode| {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    mode("x", 0o2700);
    mode("x/y", 0o700);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    // Checks whether a group member can read the archived entries.
    let entry = format!("x/y/archives/monitor/{}", {
        let list = fs::read_dir(site.path("x/y/archives/monitor")).unwrap();
        let names = list.map(|item| item.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<String>>().remove(0)
    });
    let reads = || {
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid=4000000", "--regid=1", "--clear-groups", "cat"]);
        let output = cat.arg(site.path(&entry)).output();
        output.is_ok_and(|it| it.status.success())
    };
    assert!(!reads());
    let ran = site.run(["doctor"]).assert_code(0);
    let (x, y) = (site.path("x"), site.path("x/y"));
    let says = "warn  members of archive_group daemon cannot pass through";
    for directory in [&x, &y] {
        assert!(
            ran.stdout
                .contains(&format!("{says} {} (", directory.display())),
            "{}",
            ran.stdout
        );
    }
    // The hinted command works.
    for line in ran.stdout.lines().filter(|line| line.contains("hint: ch")) {
        let way = line.split("hint: ").nth(1).unwrap();
        let way = way.split("; or").next().unwrap();
        if way.contains("g+x") {
            let done = Command::new("sh").args(["-c", way]).status().unwrap();
            assert!(done.success(), "{way}");
        }
    }
    let ran = site.run(["doctor"]).assert_code(0);
    assert!(!ran.stdout.contains(says), "{}", ran.stdout);
    let _ = ran.assert_stdout_has("ok    members of archive_group daemon can pass through");
    match Command::new("setpriv").arg("--version").output() {
        Ok(_) => assert!(reads()),
        Err(_) => skip_missing_tool("setpriv"),
    }
}

#[test]
fn doctor_names_future_record_with_remedy() {
    let site = site_with_notes_and_drift();
    let now = memory_shepherd::base::clock::Clock::now(&memory_shepherd::base::clock::SystemClock);
    crate::earlier::insert_earlier_run(&site.path("archives"), "monitor-bot", now, -40);
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("warn  record 1 of the ledger has the time ")
        .assert_stdout_has("39 days ahead of the clock")
        .assert_stdout_has("hint: compare `date` with another clock, and set it (timedatectl");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stdout_has("which has not come yet; retention does not go by it");
}

/// Gives a whole site to a user and the group of the same number.
fn give_to_user(site: &Site, id: u32) {
    let owner = format!("{id}:{id}");
    let mut command = std::process::Command::new("chown");
    assert!(
        command
            .args(["-R", &owner])
            .arg(&site.dir)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn plan_and_doctor_name_an_owner_not_to_be_given() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let owners = [
        ((4711, 4712), "user id 4711"),
        ((4712, 4711), "group id 4711"),
    ];
    for ((uid, gid), owner) in owners {
        let site = site_with_notes_and_drift();
        give_to_user(&site, 4712);
        chown(site.path(MONITOR_MEMORY), Some(uid), Some(gid)).unwrap();
        let run = |arguments: &[&str]| {
            let mut command = std::process::Command::new(PROGRAM_PATH);
            command.uid(4712).gid(4712).current_dir(&site.dir);
            let output = command.args(arguments).output().unwrap();
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
        };
        let refusal =
            format!("as a file of {owner}, which this process may not give to a new file");
        let [doctor, _] = run(&["doctor"]);
        assert!(doctor.contains(&refusal), "{doctor}");
        let [plan, error] = run(&["reset", "monitor-bot", "--dry-run"]);
        assert!(format!("{plan}{error}").contains(&refusal), "{plan}{error}");
    }
}

#[test]
fn plan_names_a_directory_not_to_be_written() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_notes_and_drift();
    give_to_user(&site, 4712);
    let memory = site.path(MONITOR_MEMORY);
    let directory = memory.parent().unwrap();
    let plan = || {
        let mut command = std::process::Command::new(PROGRAM_PATH);
        command.uid(4712).gid(4712).current_dir(&site.dir);
        let output = command.args(["reset", "monitor-bot", "--dry-run"]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    chown(directory, Some(0), Some(0)).unwrap();
    let text = plan();
    assert!(
        text.contains("user id 4712 may not write its directory"),
        "{text}"
    );
    // A new memory would belong to the user of its directory.
    fs::remove_file(&memory).unwrap();
    chown(directory, Some(4711), Some(4712)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o775)).unwrap();
    let text = plan();
    assert!(
        text.contains("as a file of user id 4711, which this process"),
        "{text}"
    );
}

#[test]
fn plan_names_an_archive_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_notes_and_drift();
    let directory = site.path("archives/monitor");
    fs::create_dir_all(&directory).unwrap();
    chown(&directory, Some(4711), None).unwrap();
    let ran = site.run(["reset", "monitor-bot", "--dry-run"]);
    assert_ne!(ran.exit_code, 0);
    assert!(
        ran.stdout.contains("belongs to user 4711"),
        "{}",
        ran.stdout
    );
}

#[test]
fn memory_of_its_directorys_group_can_be_replaced() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_notes_and_drift();
    give_to_user(&site, 4712);
    let memory = site.path(MONITOR_MEMORY);
    let directory = memory.parent().unwrap();
    for path in [directory, &memory] {
        chown(path, Some(4712), Some(4711)).unwrap();
    }
    // After the owner, which clears the bit.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o2775)).unwrap();
    for arguments in [["reset", "monitor-bot"], ["undo", "monitor-bot"]] {
        let mut command = std::process::Command::new(PROGRAM_PATH);
        command.uid(4712).gid(4712).current_dir(&site.dir);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let replaced = fs::metadata(&memory).unwrap();
        assert_eq!((replaced.uid(), replaced.gid()), (4712, 4711));
    }
}

/// The user of the memory's directory need not be in the directory's group.
#[test]
fn memory_in_directory_of_foreign_group_is_created() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_notes_and_drift();
    give_to_user(&site, 4712);
    let memory = site.path(MONITOR_MEMORY);
    chown(memory.parent().unwrap(), Some(4712), Some(4711)).unwrap();
    fs::remove_file(&memory).unwrap();
    let mut command = std::process::Command::new(PROGRAM_PATH);
    command.uid(4712).gid(4712).current_dir(&site.dir);
    let output = command.args(["reset", "monitor-bot"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let created = fs::metadata(&memory).unwrap();
    assert_eq!((created.uid(), created.gid()), (4712, 4712));
}

#[test]
fn doctor_warns_of_a_run_that_takes_long() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let engine = site_engine(&site);
    let held = engine.locks().hold_agent_lock("monitor-bot").unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("ok    monitor-bot: locked by run ");
    // The note of the holder says since when.
    let path = site.path("archives/.shepherd/locks/monitor-bot.lock");
    let note = fs::read_to_string(&path).unwrap();
    let since = note.find("since\":\"").unwrap() + "since\":\"".len();
    let year: u32 = note[since..since + 4].parse().unwrap();
    let mut bytes = note.clone().into_bytes();
    bytes[since..since + 4].copy_from_slice((year - 1).to_string().as_bytes());
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(&bytes)
        .unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("warn  monitor-bot: locked for 36")
        .assert_stdout_has("its lock is never broken");
    drop(held);
    let ran = site.run(["doctor"]).assert_code(0);
    let _ = ran.assert_stdout_has("ok    no run holds the lock of an agent");
}

#[test]
fn alert_command_that_cannot_run_is_found() {
    let site = site_with_notes_and_drift();
    site.append("memory-shepherd.conf", "\n[alerts]\ncommand = ./notify\n");
    let failures = || {
        let document = site.run(["doctor", "--json"]).json();
        let checks = document["checks"].as_array().unwrap().iter();
        let failed = checks.filter(|it| it["check"] == "alerts" && it["level"] == "fail");
        failed.count()
    };
    assert_eq!(failures(), 1, "absent");
    site.write("notify", "#!/bin/sh\n");
    assert_eq!(failures(), 1, "not executable");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("notify"), executable).unwrap();
    assert_eq!(failures(), 0);
}
