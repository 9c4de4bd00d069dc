//! The units under a live service manager: systemd of a user, in namespaces of its own, so that it
//! starts on machines without systemd, too.

use super::*;
use crate::skip::{skip_missing_tool, skip_unsupported};

/// Starts systemd for the user and runs the steps of the test, which write what they see to files.
/// `$PROGRAM` is this program. Ends with 99 where namespaces or systemd are not to be had.
const SCRIPT: &str = r#"
mount -t tmpfs tmpfs /run || exit 99
export XDG_RUNTIME_DIR=/run/user/0
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" && chmod 700 "$XDG_RUNTIME_DIR"
# The system's manager makes these, with which services cover what they may not see.
mkdir -p /run/systemd/inaccessible/dir && cd /run/systemd/inaccessible || exit 99
: >reg && mkfifo fifo && mknod chr c 0 0 && chmod 000 ./* || exit 99
cd "$OLDPWD"
export SYSTEMD_LOG_TARGET=console SYSTEMD_LOG_LEVEL=info
"$SYSTEMD" --user >systemd.log 2>&1 &
tries=0
until systemctl --user is-system-running >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 2000 ] || exit 99
    sleep 0.05
done

note() { "$@" >"$step.out" 2>&1; echo $? >"$step.code"; }
step=install note "$PROGRAM" schedule install --user
step=timers note systemctl --user list-timers --all --no-pager
step=first note systemctl --user start memory-shepherd.service
step=guard note systemctl --user start memory-shepherd-guard.service
step=guarded note systemctl --user is-active memory-shepherd-guard.service
systemctl --user stop memory-shepherd-guard.service
: >"$BASELINE"
step=second note systemctl --user start memory-shepherd.service
step=status note "$PROGRAM" schedule status --user --json
step=uninstall note "$PROGRAM" schedule uninstall --user
step=units note systemctl --user list-unit-files --no-legend 'memory-shepherd*'
exit 0
"#;

#[test]
fn units_run_under_a_live_service_manager() {
    let systemd = std::path::Path::new("/lib/systemd/systemd");
    if !systemd.exists() {
        return skip_missing_tool("systemd");
    }
    let site = site_with_notes_and_drift();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc", "bash", "-c", SCRIPT])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", site.path("home"))
        .env("SYSTEMD", systemd)
        .env("PROGRAM", PROGRAM_PATH)
        .env("BASELINE", site.path("baselines/code-reviewer-MEMORY.md"))
        .current_dir(&site.dir);
    let ran = command.output().unwrap();
    if matches!(ran.status.code(), Some(1 | 99)) {
        return skip_unsupported(String::from_utf8_lossy(&ran.stderr));
    }
    assert!(ran.status.success(), "{ran:?}");
    let output = |step: &str| site.read(&format!("{step}.out"));
    let code = |step: &str| site.read(&format!("{step}.code")).trim().to_string();
    let log = || site.read("systemd.log");

    assert_eq!(code("install"), "0", "{}", output("install"));
    assert!(
        output("timers").contains("memory-shepherd.timer"),
        "{}",
        output("timers")
    );
    // The first run archives and resets inside its sandbox.
    assert_eq!(code("first"), "0", "{}{}", output("first"), log());
    assert_eq!(site.entry_names("code-reviewer").len(), 1);
    assert_eq!(output("guarded").trim(), "active", "{}", log());
    // The second one refuses the emptied baseline.
    let status: serde_json::Value = serde_json::from_str(&output("status")).unwrap();
    let timers = status["timers"].as_array().unwrap().iter();
    let failed = timers.map(|timer| (timer["active"].as_bool(), timer["exit_code"].as_i64()));
    let failed: Vec<_> = failed.filter(|it| it.0 == Some(true)).collect();
    assert_eq!(failed, [(Some(true), Some(4))], "{status:#}");
    assert_eq!(code("uninstall"), "0", "{}", output("uninstall"));
    assert_eq!(output("units").trim(), "", "{}", output("units"));
}
