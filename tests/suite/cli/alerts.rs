//! Alerts as operators use them: `alerts test`, and runs whose commands hang, fail or flood.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

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
