//! `--restrict-writes`: runs succeed with it, and what they do not need is refused.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memory_shepherd::base::file_systems::FileSystems;
use memory_shepherd::base::write_restriction::{WriteRestriction, restrict_writes};

use super::*;
use crate::fixture::CommandOutput;
use crate::skip::{skip_missing_tool, skip_unsupported};

/// The kernel allows this many restrictions of a process, one inside the other.
const MAX_RESTRICTIONS: usize = 16;

/// Restricts the calling thread to what it may write anyway.
fn restrict_to_everything() -> WriteRestriction {
    let limit = Duration::from_secs(60);
    let file_systems = FileSystems::new(Path::new("/"), limit, Arc::new(SystemClock));
    restrict_writes(vec![PathBuf::from("/")], &file_systems, limit)
}

/// Whether the kernel restricts writes; reports the skip of the test otherwise.
fn can_restrict_writes() -> bool {
    match thread::spawn(restrict_to_everything).join().unwrap() {
        WriteRestriction::NotEnforced(why) => {
            skip_unsupported(why);
            false
        }
        WriteRestriction::Full | WriteRestriction::Partial => true,
    }
}

fn run_restricted(site: &Site, arguments: &[&str]) -> CommandOutput {
    let mut command = site.command();
    site.run_command(command.args(arguments).arg("--restrict-writes"))
}

#[test]
fn restricted_reset_can_be_undone() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    let before = [REVIEWER_MEMORY, MONITOR_MEMORY].map(|name| site.read(name));
    fs::create_dir(site.path("archives")).unwrap();
    fs::create_dir(site.path("metrics")).unwrap();
    let ran = run_restricted(
        &site,
        &["reset", "--all", "--metrics", "metrics/fleet.prom"],
    )
    .assert_code(0);
    assert!(!ran.stderr.contains("warning: "), "{}", ran.stderr);
    assert_eq!(site.entry_names("code-reviewer").len(), 1);
    assert_eq!(
        site.read(MONITOR_MEMORY),
        Site::read_baseline("monitor-bot")
    );
    assert!(site.read("metrics/fleet.prom").contains("shepherd"));
    let _ = site
        .run(["undo", "code-reviewer", "monitor-bot"])
        .assert_code(0);
    let after = [REVIEWER_MEMORY, MONITOR_MEMORY].map(|name| site.read(name));
    assert_eq!(after, before);
}

#[test]
fn restricted_reset_cannot_write_elsewhere() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    // A directory that is missing at the start is not writable.
    let _ = run_restricted(&site, &["reset", "--all"]).assert_code(3);
    assert!(!site.path("archives").exists());

    let config = site.read("memory-shepherd.conf");
    let alerts = "\n[alerts]\non = drifted\ncommand = sh -c 'echo x >archives/in; echo x >out'\n";
    site.write("memory-shepherd.conf", config + alerts);
    fs::create_dir(site.path("archives")).unwrap();
    let ran = run_restricted(&site, &["reset", "--all"]).assert_code(0);
    assert!(site.path("archives/in").exists(), "{}", ran.stderr);
    assert!(!site.path("out").exists());
    let _ = ran.assert_stderr_has("warning: ");
}

#[test]
fn restricted_run_spares_memories_of_others() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    let other = site.path("agents/code-reviewer/out").display().to_string();
    let config = site.read("memory-shepherd.conf");
    let alerts = format!("\n[alerts]\non = drifted\ncommand = touch {other}\n");
    site.write("memory-shepherd.conf", config + &alerts);
    fs::create_dir(site.path("archives")).unwrap();
    let _ = run_restricted(&site, &["reset", "monitor-bot"]).assert_code(0);
    assert!(!Path::new(&other).exists());
}

#[test]
fn restricted_guard_restores_a_baseline() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    site.write("baselines/code-reviewer-MEMORY.md", "nothing\n");
    let ran = run_restricted(&site, &["guard", "--once"]).assert_code(1);
    assert!(!ran.stderr.contains("warning: writes"), "{}", ran.stderr);
    assert_eq!(
        site.read("baselines/code-reviewer-MEMORY.md"),
        Site::read_baseline("code-reviewer")
    );
}

/// The kernel restricts a thread and what it starts, so the process is restricted only if the call
/// comes before the first thread. The directories of this run are on one file system, so none is opened
/// on a thread.
#[test]
fn restriction_precedes_every_thread() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let alerts = "\n[alerts]\non = drifted\ncommand = true\n";
    site.write("memory-shepherd.conf", config + alerts);
    let _ = site.run(["seal", "--all"]).assert_code(0);
    for arguments in [&["reset", "--all"][..], &["guard", "--once"]] {
        let trace = site.path("home/trace");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-e", "trace=%process,landlock_restrict_self"])
            .arg("-o")
            .arg(&trace)
            .arg(PROGRAM_PATH)
            .args(arguments)
            .arg("--restrict-writes");
        let Ok(output) = command.current_dir(&site.dir).output() else {
            return skip_missing_tool("strace");
        };
        assert!(output.status.success(), "{output:?}");
        let trace = fs::read_to_string(trace).unwrap();
        // After the number of the process.
        let calls = trace.lines().filter_map(|line| line.split_once(' '));
        let mut calls = calls.map(|(_, call)| call.trim_start());
        let first = calls.find(|it| it.starts_with("clone") || it.starts_with("landlock"));
        assert!(
            first.unwrap().starts_with("landlock_restrict_self"),
            "{trace}"
        );
    }
}

#[test]
fn refused_restriction_is_a_warning() {
    if !can_restrict_writes() {
        return;
    }
    let site = site_with_notes_and_drift();
    let run = || {
        for _ in 0..MAX_RESTRICTIONS {
            let restricted = restrict_to_everything();
            assert!(!matches!(restricted, WriteRestriction::NotEnforced(_)));
        }
        run_restricted(&site, &["reset", "--all"])
    };
    let ran = thread::scope(|scope| scope.spawn(run).join().unwrap()).assert_code(0);
    let warnings: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("warning: writes are not restricted: "));
    assert_eq!(
        site.read(MONITOR_MEMORY),
        Site::read_baseline("monitor-bot")
    );
}
