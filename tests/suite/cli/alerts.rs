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
