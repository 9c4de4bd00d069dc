//! Alerts as operators use them: `alerts test`, and runs whose commands hang, fail or flood.

use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use memory_shepherd::engine::HolderLockKind;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::skip::skip_unsupported;

/// A fleet with drift whose alerts go out as these lines say.
fn site_with_alerts(lines: &str) -> Site {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let section = format!("\n[alerts]\non = drifted, failed-reset\n{lines}\n");
    site.write("memory-shepherd.conf", config + &section);
    site
}

/// The events that a command has appended to the file `events`.
fn events(site: &Site) -> Vec<serde_json::Value> {
    if !site.path("events").exists() {
        return Vec::new();
    }
    let text = site.read("events");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn alert_outputs_match_goldens() {
    let site = site_with_alerts("command = sh -c 'cat >>events'\njournal = ./missing.socket");
    let golden = |name: &str, arguments: &[&str]| {
        let ran = site.run_command(site.command().args(arguments));
        insta::assert_snapshot!(name, ran.normalized_output());
    };
    golden("alerts_test", &["alerts", "test", "tampered"]);
    golden("alerts_test_json", &["alerts", "test", "--json"]);
    let [event, _] = events(&site).try_into().unwrap();
    assert_eq!(event["schema"], "memory-shepherd/1");
    assert_eq!(event["test"], true);
    let _ = site.run(["reset", "code-reviewer", "-q"]).assert_code(0);
    golden("alerts_send", &["alerts", "send"]);
    golden("alerts_send_json", &["alerts", "send", "--json"]);
    let unnamed = site_with_notes_and_drift();
    let ran = unnamed.run(["alerts", "test"]);
    insta::assert_snapshot!("alerts_unnamed", ran.normalized_output());
}

#[test]
fn failed_test_names_what_to_check() {
    let site = site_with_alerts("command = false\njournal = ./missing.socket");
    let ran = site.run(["alerts", "test"]).assert_code(3);
    let hints = ran.stderr.lines().filter(|line| line.starts_with("hint: "));
    assert_eq!(hints.count(), 2, "{}", ran.stderr);
}

#[test]
fn alerts_before_the_first_reset_say_what_to_do() {
    let site = site_with_alerts("command = sh -c 'cat >>events'");
    let ran = site.run(["alerts", "send"]).assert_code(3);
    let _ = ran
        .assert_stderr_has("there is no archive at ")
        .assert_stderr_has("hint: the first reset creates it");
    // It may be that a disk is not mounted.
    assert!(!site.path("archives").exists());
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let ran = site.run(["alerts", "send"]).assert_code(0);
    assert!(!ran.stderr.contains("hint: "), "{}", ran.stderr);
}

#[test]
fn empty_section_is_not_to_be_added_again() {
    let site = site_with_alerts("");
    let ran = site.run(["alerts", "test"]).assert_code(2);
    assert!(!ran.stderr.contains("add a section"), "{}", ran.stderr);
    let _ = ran.assert_stderr_has("to its section [alerts]");
}

#[test]
fn command_gets_drift_once() {
    let site = site_with_alerts("command = sh -c 'echo noise; echo noise >&2; cat >>events'");
    let ran = site.run(["reset", "--all", "--json"]).assert_code(0);
    assert_eq!(ran.json()["act"], "reset");
    assert_eq!(ran.stderr, "");
    let [event] = events(&site).try_into().unwrap();
    for (field, value) in [
        ("schema", "memory-shepherd/1"),
        ("event", "drifted"),
        ("agent", "monitor-bot"),
        ("host", "local"),
        ("state", "DRIFTED"),
        ("severity", "warning"),
        ("fleet", "memory-shepherd"),
    ] {
        assert_eq!(event[field], value, "{event}");
    }
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["alerts", "send"]).assert_code(0);
    assert_eq!(events(&site).len(), 1);
}

#[test]
fn journal_gets_the_events_of_a_run() {
    let site = site_with_alerts("journal = ./socket");
    let socket = UnixDatagram::bind(site.path("socket")).unwrap();
    let _ = site.run(["monitor-bot"]).assert_code(0);
    let mut buffer = [0; 8192];
    let length = socket.recv(&mut buffer).unwrap();
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    assert!(
        text.contains("\nMEMORY_SHEPHERD_AGENT=monitor-bot\n"),
        "{text}"
    );
}

/// The command waits for the test: while it does, the run's result is printed, and another run resets
/// the same agents.
#[test]
fn hanging_command_delays_no_reset() {
    let site = site_with_alerts("command = sh -c 'cat gate >/dev/null; cat >>events'");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, site.path("gate"), FileType::Fifo, mode, 0).unwrap();
    let mut first = Command::new(PROGRAM_PATH)
        .args(["reset", "--all"])
        .env_clear()
        .env("HOME", site.path("home"))
        .env("PATH", std::env::var("PATH").unwrap())
        .current_dir(&site.dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(first.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("2 ok")));
    // Opens as soon as the command reads from it.
    let gate = fs::File::options().write(true).open(site.path("gate"));
    site.append(REVIEWER_MEMORY, "- a later note\n");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stdout_has("Reset code-reviewer");
    drop(gate);
    assert!(first.wait().unwrap().success());
    assert_eq!(events(&site).len(), 1);
}

#[test]
fn failing_command_is_a_warning_and_loses_nothing() {
    let site = site_with_alerts("command = sh -c 'echo no route >&2; exit 3'");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stderr_has("warning: alert not sent by command: exit code 3: no route");
    assert!(
        site.read("archives/.shepherd/alerts.json")
            .contains("\"drifted\"")
    );
    let ran = site.run(["alerts", "send", "--json"]);
    assert_eq!(ran.json()["waiting"], 1);
}

#[test]
fn missing_command_does_not_change_the_exit_code() {
    let site = site_with_alerts("command = ./nowhere/notify");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stderr_has("no such program");
    let _ = site.run(["reset", "--all", "-q"]).assert_code(0);
}

#[test]
fn unknown_kind_of_test_is_a_usage_error() {
    let site = site_with_alerts("journal = ./socket");
    let _ = site
        .run(["alerts", "test", "driftd"])
        .assert_code(2)
        .assert_stderr_has("drifted");
}

/// The command records the event, and kills the process that sends it before that can note it.
#[test]
fn killed_delivery_is_sent_again_with_the_same_id() {
    let script = "cat >>events; test -e killed || { touch killed; kill -KILL $PPID; }";
    let site = site_with_alerts(&format!("command = sh -c '{script}'"));
    let _ = site.run(["reset", "--all"]).assert_code(-1);
    let _ = site.run(["alerts", "send"]).assert_code(0);
    let _ = site.run(["alerts", "send"]).assert_code(0);
    let [first, second] = events(&site).try_into().unwrap();
    assert_eq!(first["id"], second["id"]);
    assert_eq!(first["event"], "drifted");
}

/// A delivery that a signal stops, and one that the next command makes.
#[test]
fn signal_during_delivery_keeps_the_exit_code() {
    let script = "test -e stopped || cat gate >/dev/null; cat >>events";
    let site = site_with_alerts(&format!("command = sh -c '{script}'"));
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, site.path("gate"), FileType::Fifo, mode, 0).unwrap();
    let mut run = Command::new(PROGRAM_PATH)
        .args(["reset", "--all"])
        .env_clear()
        .env("HOME", site.path("home"))
        .env("PATH", std::env::var("PATH").unwrap())
        .current_dir(&site.dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opens as soon as the command reads from it.
    let gate = fs::File::options().write(true).open(site.path("gate"));
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let code = run.wait().unwrap().code();
    drop(gate);
    assert_eq!(code, Some(0));
    assert_eq!(events(&site).len(), 0);
    site.write("stopped", "");
    let _ = site.run(["alerts", "send"]).assert_code(0);
    assert_eq!(events(&site).len(), 1);
}

/// Makes the line in a lock of the alerts say that it was taken a year earlier.
fn age_alert_lock(site: &Site, name: &str) {
    let path = format!("archives/.shepherd/locks/{name}");
    let text = site.read(&path);
    let since = text.find("since\":\"").unwrap() + "since\":\"".len();
    let year: u32 = text[since..since + 4].parse().unwrap();
    let mut file = fs::File::options()
        .write(true)
        .open(site.path(&path))
        .unwrap();
    file.seek(SeekFrom::Start(since as u64)).unwrap();
    file.write_all((year - 1).to_string().as_bytes()).unwrap();
}

#[test]
fn process_that_holds_the_alerts_is_named() {
    let site = site_with_alerts("command = sh -c 'cat >>events'");
    let held = {
        let lock = site_engine(&site)
            .locks()
            .try_lock_with_holder(HolderLockKind::AlertDelivery);
        lock.unwrap().unwrap()
    };
    let holder = format!("held by process {} of ", std::process::id());
    // Another process may just be at work.
    let ran = site.run(["reset", "--all"]).assert_code(0);
    assert_eq!(ran.stderr, "");
    let _ = site
        .run(["alerts", "send"])
        .assert_code(5)
        .assert_stdout_has("1 waiting")
        .assert_stderr_has(&holder);
    let _ = site
        .run(["doctor"])
        .assert_stdout_has("no process holds the alerts for long");
    age_alert_lock(&site, ".alert-delivery.lock");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stderr_has(&holder);
    let _ = site.run(["doctor"]).assert_stdout_has(&holder);
    drop(held);
    let _ = site.run(["alerts", "send"]).assert_code(0);
    assert_eq!(events(&site).len(), 1);
}

#[test]
fn root_does_not_run_the_command_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_alerts("command = ./hooks/notify");
    fs::create_dir(site.path("hooks")).unwrap();
    site.write("hooks/notify", "#!/bin/sh\ncat >>events\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("hooks/notify"), mode).unwrap();
    for owned in ["hooks/notify", "hooks"] {
        let owned = site.path(owned);
        chown(&owned, Some(4711), None).unwrap();
        let says = format!("uid 4711 owns {}", owned.display());
        let _ = site
            .run(["alerts", "test"])
            .assert_code(3)
            .assert_stdout_has(&says);
        let check = site.run(["config", "check"]).assert_code(0);
        assert!(format!("{}{}", check.stdout, check.stderr).contains(&says));
        let _ = site.run(["doctor"]).assert_stdout_has(&says);
        let _ = site
            .run(["schedule", "install", "--crontab"])
            .assert_code(0)
            .assert_stderr_has("command of the alerts");
        chown(&owned, Some(0), None).unwrap();
    }
    assert_eq!(events(&site).len(), 0);
    let _ = site.run(["alerts", "test"]).assert_code(0);
    assert_eq!(events(&site).len(), 1);
}

#[test]
fn root_runs_no_interpreter_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip_unsupported("files of other users (not root)");
    }
    let site = site_with_alerts("command = ./notify");
    let write_program = |name: &str, text: &str| {
        site.write(name, text);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.path(name), mode).unwrap();
    };
    write_program("theirs", "#!/bin/sh\ncat >>events\n");
    let theirs = site.path("theirs");
    let theirs = theirs.display();
    for first_line in [
        format!("#!{theirs}"),
        format!("#!/usr/bin/env {theirs}"),
        format!("#!/usr/bin/env -S A=1 {theirs} -x"),
    ] {
        write_program("notify", &format!("{first_line}\n"));
        chown(site.path("theirs"), Some(4711), None).unwrap();
        let says = format!("uid 4711 owns {theirs}");
        let _ = site
            .run(["alerts", "test"])
            .assert_code(3)
            .assert_stdout_has(&says);
        let check = site.run(["config", "check"]).assert_code(0);
        assert!(format!("{}{}", check.stdout, check.stderr).contains(&says));
        assert_eq!(events(&site).len(), 0, "{first_line}");
        chown(site.path("theirs"), Some(0), None).unwrap();
        let _ = site.run(["alerts", "test"]).assert_code(0);
        assert_eq!(events(&site).len(), 1, "{first_line}");
        fs::remove_file(site.path("events")).unwrap();
    }
}

/// Ends with the test.
struct Guard(std::process::Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command waits for the test: while it does, the guard restores another baseline.
#[test]
fn hanging_command_delays_no_restore_of_the_guard() {
    let site = Site::new();
    let script = "cat gate >/dev/null; cat >>events";
    let lines = format!("\n[alerts]\non = tampered\ncommand = sh -c '{script}'\n");
    site.append("memory-shepherd.conf", lines);
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, site.path("gate"), FileType::Fifo, mode, 0).unwrap();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let guard = Command::new(PROGRAM_PATH)
        .arg("guard")
        .env_clear()
        .env("HOME", site.path("home"))
        .env("PATH", std::env::var("PATH").unwrap())
        .current_dir(&site.dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut guard = Guard(guard.unwrap());
    let lines = BufReader::new(guard.0.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let mut tamper = |agent: &str| {
        let name = format!("{agent}-MEMORY.md");
        let baseline = Site::read_baseline(agent);
        site.write(&format!("baselines/{name}"), format!("{baseline}- x\n"));
        let restored = lines.find(|line| line.contains(&name));
        assert!(restored.is_some(), "{agent}");
        assert_eq!(site.read(&format!("baselines/{name}")), baseline);
    };
    tamper("code-reviewer");
    // Opens as soon as the command reads from it.
    let gate = fs::File::options().write(true).open(site.path("gate"));
    tamper("monitor-bot");
    assert_eq!(events(&site).len(), 0);
    drop(gate);
    let pid = rustix::process::Pid::from_child(&guard.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(0));
}
