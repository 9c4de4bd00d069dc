//! `baseline edit`: what the operator typed survives the end of the editor, however that comes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::running_program::RunningProgram;
use super::*;
use crate::fixture::CommandOutput;
use crate::skip::skip_unsupported;
use crate::temporary_root::OTHER_USER;

const BASELINE_PATH: &str = "baselines/monitor-bot-MEMORY.md";

/// A site with an editor that runs these commands of a shell, with its file as `$1`.
fn site_with_editor(commands: &str) -> Site {
    let site = site_with_notes_and_drift();
    site.write("editor", format!("#!/bin/sh\n{commands}\n"));
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("editor"), mode).unwrap();
    site
}

fn edit(site: &Site) -> CommandOutput {
    let mut command = site.command();
    command.env("EDITOR", site.path("editor"));
    site.run_command(command.args(["baseline", "edit", "monitor-bot"]))
}

/// The directories that edits left.
fn edit_directories(site: &Site) -> Vec<PathBuf> {
    let directories = fs::read_dir(site.path("home")).unwrap();
    let paths = directories.map(|it| it.unwrap().path());
    let is_of_edit = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("memory-shepherd-edit-")
    };
    paths.filter(is_of_edit).collect()
}

/// Asserts that the output names the one directory that is kept, and returns it.
#[track_caller]
fn assert_kept(site: &Site, ran: &CommandOutput) -> PathBuf {
    let [directory] = edit_directories(site).try_into().unwrap();
    let said = format!("what the editor wrote is kept in {}", directory.display());
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    directory
}

fn file_in(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
fn killed_editor_leaves_its_recovery_file() {
    let recovery_files = [".$base.swp", "$base.save", "#$base#"];
    for name in recovery_files {
        let commands =
            format!("cd \"${{1%/*}}\"; base=\"${{1##*/}}\"; echo typed >\"{name}\"; kill -9 $$");
        let site = site_with_editor(&commands);
        let before = site.read(BASELINE_PATH);
        let ran = edit(&site);
        assert_eq!(ran.exit_code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("killed by SIGKILL"), "{}", ran.stderr);
        let directory = assert_kept(&site, &ran);
        let name = name.replace("$base", "monitor-bot-MEMORY.md");
        assert_eq!(file_in(&directory, &name), "typed\n");
        assert_eq!(site.read(BASELINE_PATH), before);
    }
}

#[test]
fn unreadable_or_huge_text_of_an_editor_is_kept() {
    let leaves = [
        (
            "rm \"$1\"; mkdir \"$1\"; echo typed >\"$1/text\"",
            "not a regular file",
        ),
        ("truncate -s 17M \"$1\"", "cannot read"),
        ("echo typed >>\"$1\"; exit 3", "exit code 3"),
        (
            "mv \"$1\" \"$1.mine\"; echo typed >>\"$1.mine\"",
            "no such file",
        ),
    ];
    for (commands, why) in leaves {
        let site = site_with_editor(commands);
        let before = site.read(BASELINE_PATH);
        let ran = edit(&site);
        assert_ne!(ran.exit_code, 0, "{commands}");
        assert!(ran.stderr.contains(why), "{commands}: {}", ran.stderr);
        assert_kept(&site, &ran);
        assert_eq!(site.read(BASELINE_PATH), before);
    }
}

#[test]
fn text_saved_beside_the_copy_is_kept() {
    let site = site_with_editor("echo '- one more' >>\"$1\"; echo typed >\"$1.other\"");
    let ran = edit(&site);
    assert_eq!(ran.exit_code, 0, "{}", ran.stderr);
    assert!(site.read(BASELINE_PATH).ends_with("- one more\n"));
    let directory = assert_kept(&site, &ran);
    assert_eq!(
        file_in(&directory, "monitor-bot-MEMORY.md.other"),
        "typed\n"
    );
}

#[test]
fn edit_without_other_text_leaves_no_directory() {
    let ends = [
        "exit 3",
        "echo '- one more' >>\"$1\"",
        // A backup and a lock have nothing of the operator's.
        "cp \"$1\" \"$1~\"; ln -s user@host.1 \"${1%/*}/.#lock\"; echo '- one more' >>\"$1\"",
    ];
    for commands in ends {
        let site = site_with_editor(commands);
        let ran = edit(&site);
        assert_eq!(
            edit_directories(&site),
            [""; 0].map(PathBuf::from),
            "{commands}"
        );
        assert!(!ran.stderr.contains("is kept in"), "{}", ran.stderr);
    }
}

#[test]
fn temporary_directory_of_another_is_refused() {
    let site = site_with_editor("echo '- planted' >>\"$1\"");
    let shared = site.path("shared");
    fs::create_dir(&shared).unwrap();
    if std::os::unix::fs::chown(&shared, Some(OTHER_USER), None).is_err() {
        return skip_unsupported("only root can give directories away");
    }
    let before = site.read(BASELINE_PATH);
    let run = |arguments: &[&str]| {
        let mut command = site.command();
        command.env("EDITOR", site.path("editor"));
        site.run_command(command.env("TMPDIR", &shared).args(arguments))
    };
    for arguments in [&["baseline", "edit", "monitor-bot"][..], &["demo"]] {
        let ran = run(arguments);
        assert_eq!(ran.exit_code, 6, "{}", ran.stderr);
        let owner = format!("uid {OTHER_USER} owns {}", shared.display());
        assert!(ran.stderr.contains(&owner), "{}", ran.stderr);
        assert!(ran.stderr.contains("set TMPDIR to"), "{}", ran.stderr);
    }
    assert_eq!(site.read(BASELINE_PATH), before);
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

#[test]
fn edit_of_hard_linked_baseline_warns() {
    let site = site_with_editor("echo '- a rule more' >>\"$1\"");
    fs::hard_link(site.path(BASELINE_PATH), site.path("other.md")).unwrap();
    let doctor = site.run(["doctor"]).assert_code(0);
    let _ = doctor.assert_stdout_has("monitor-bot-MEMORY.md has 1 other name (hard links)");
    let mut command = site.command();
    command.env("EDITOR", site.path("editor"));
    let ran = site.run_command(command.args(["baseline", "edit", "monitor-bot", "--force"]));
    let _ = ran
        .assert_code(0)
        .assert_stderr_has("warning: monitor-bot-MEMORY.md: its other name (a hard link) keeps");
}

#[test]
fn signal_during_an_edit_loses_no_text() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let site = site_with_editor(
            "trap '' TERM HUP INT; echo '- one more' >>\"$1\"; echo EDITING; read go; true",
        );
        let mut command = Command::new(PROGRAM_PATH);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", site.path("home"))
            .env("TMPDIR", site.path("home"))
            .env("EDITOR", site.path("editor"))
            .current_dir(&site.dir)
            .args(["baseline", "edit", "monitor-bot"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut program = RunningProgram(command.spawn().unwrap());
        let mut output = BufReader::new(program.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "EDITING\n");
        program.signal(signal);
        let mut input = program.0.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(program.0.wait().unwrap().success(), "{signal:?}: {rest}");
        assert!(site.read(BASELINE_PATH).ends_with("- one more\n"));
    }
}
