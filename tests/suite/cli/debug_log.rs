//! `--debug-log` and `MEMORY_SHEPHERD_DEBUG_LOG`.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn debug_log_names_each_step_and_no_text_of_a_memory() {
    let site = site_with_notes_and_drift();
    let secret = "the password is xyzzy";
    let memory = site.read(MONITOR_MEMORY);
    site.write(MONITOR_MEMORY, format!("{memory}{secret}\n"));
    let log = site.path("debug.log");
    let flag = format!("--debug-log={}", log.display());
    let ran = site.run(["reset", "--all", &flag]).assert_code(0);
    assert!(!ran.stderr.contains("DEBUG"), "{}", ran.stderr);
    let text = fs::read_to_string(&log).unwrap();
    let has = |words: &[&str]| {
        text.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    for stage in ["Archive", "Swap", "Settle", "Verify"] {
        assert!(has(&["step", "monitor-bot", stage]), "{stage}: {text}");
    }
    assert!(
        has(&["lock", "monitor-bot", "close", "time.busy"]),
        "{text}"
    );
    assert!(!text.contains("xyzzy"), "{text}");
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn debug_log_is_off_unless_environment_sets_it() {
    let site = Site::new();
    let before = fs::read_dir(&site.dir).unwrap().count();
    let _ = site.run(["status"]).assert_code(0);
    assert_eq!(fs::read_dir(&site.dir).unwrap().count(), before);
    let log = site.path("debug.log");
    let mut command = site.command();
    command.env("MEMORY_SHEPHERD_DEBUG_LOG", &log).arg("status");
    let _ = site.run_command(&mut command).assert_code(0);
    assert!(fs::read_to_string(&log).unwrap().contains("observe"));
}

#[test]
fn debug_log_is_appended_to_no_other_file() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]);
    let others = [
        MONITOR_MEMORY,
        "baselines/monitor-bot-MEMORY.md",
        "memory-shepherd.conf",
        "archives/.shepherd/ledger.jsonl",
    ];
    for name in others {
        let before = site.read(name);
        let flag = format!("--debug-log={}", site.path(name).display());
        let _ = site
            .run(["status", &flag])
            .assert_code(2)
            .assert_stderr_has("it is not a debug log; nothing was written");
        assert_eq!(site.read(name), before, "{name}");
    }
    site.write("debug.log", "");
    let flag = format!("--debug-log={}", site.path("debug.log").display());
    let _ = site.run(["status", &flag]).assert_code(0);
    let first = site.read("debug.log");
    let _ = site.run(["status", &flag]).assert_code(0);
    let both = site.read("debug.log");
    assert!(both.len() > first.len() && both.starts_with(&first));
}

#[test]
fn debug_log_that_cannot_be_opened_ends_the_command() {
    let site = Site::new();
    std::os::unix::fs::symlink("elsewhere", site.path("link")).unwrap();
    for name in ["link", "no/such/file"] {
        let flag = format!("--debug-log={}", site.path(name).display());
        let _ = site
            .run(["status", &flag])
            .assert_code(3)
            .assert_stderr_has("cannot write the debug log");
    }
    assert!(!site.path("elsewhere").exists());
}

#[test]
fn debug_log_on_a_full_disk_changes_nothing() {
    let site = site_with_notes_and_drift();
    let ran = site.run(["reset", "--all", "--debug-log=/dev/full"]);
    let ran = ran.assert_code(0);
    assert!(!ran.stderr.contains("tracing"), "{}", ran.stderr);
}
