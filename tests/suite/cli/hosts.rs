//! Messages about agents on other hosts when the connection fails. The `ssh` is a
//! script of the test, or missing.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::{process, thread};

use assert_cmd::Command;

use super::*;
use crate::fixture::CommandOutput;
use crate::skip::skip_unsupported;
use crate::temporary_root::OTHER_USER;

/// The hint where ssh is not installed.
const INSTALL_HINT: &str = "hint: install OpenSSH's client";

#[test]
fn askpass_helper_asks_only_its_own_user() {
    let site = Site::new();
    fs::set_permissions(&site.dir, PermissionsExt::from_mode(0o755)).unwrap();
    let socket = site.path("ask");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
    let console = thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            // The helper may hang up.
            let _ = stream.read_exact(&mut [0; "?0000known?".len()]);
            let _ = stream.write_all(b"+yes\n");
        }
    });
    let ask = |user: Option<u32>| {
        let mut command = process::Command::new(PROGRAM_PATH);
        command
            .env("MEMORY_SHEPHERD_ASKPASS", &socket)
            .arg("known?");
        user.map(|user| command.uid(user));
        command.output()
    };
    let own = ask(None).unwrap();
    assert_eq!((own.status.code(), &*own.stdout), (Some(0), &b"yes\n"[..]));
    let Ok(other) = ask(Some(OTHER_USER)) else {
        skip_unsupported("another user cannot run the program");
        // The thread waits for its second connection.
        drop(ask(None));
        return console.join().unwrap();
    };
    assert_eq!((other.status.code(), &*other.stdout), (Some(1), &b""[..]));
    console.join().unwrap();
}

/// A fleet with agents on hosts, and a directory `bin` that is searched for `ssh`.
fn site_with_hosts(agents: &[(&str, &str)]) -> Site {
    let site = Site::new();
    let mut config = site.read("memory-shepherd.conf");
    for (agent, host) in agents {
        config.push_str(&format!(
            "\n[{agent}]\nremote_host={host}\nremote_memory={}/agents/{agent}/MEMORY.md\nbaseline=monitor-bot-MEMORY.md\n",
            site.dir.display()
        ));
        site.write(
            &format!("agents/{agent}/MEMORY.md"),
            Site::read_baseline("monitor-bot"),
        );
    }
    site.write("memory-shepherd.conf", config);
    fs::create_dir(site.path("bin")).unwrap();
    site
}

/// Installs a shell script as `ssh`.
fn install_ssh(site: &Site, script: &str) {
    site.write("bin/ssh", format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(site.path("bin/ssh"), PermissionsExt::from_mode(0o755)).unwrap();
}

fn command_with_ssh(site: &Site) -> Command {
    let mut command = site.command();
    command.env("PATH", site.path("bin"));
    command
}

fn run_with_ssh<const N: usize>(site: &Site, arguments: [&str; N]) -> CommandOutput {
    site.run_command(command_with_ssh(site).args(arguments))
}

#[test]
fn missing_ssh_names_the_install_command() {
    let site = site_with_hosts(&[("scout", "box"), ("ranger", "crate")]);
    for arguments in [
        &["status"][..],
        &["diff", "scout"],
        &["reset", "--all", "--dry-run"],
        &["reset", "scout"],
    ] {
        let ran = site
            .run_command(command_with_ssh(&site).args(arguments))
            .assert_code(3);
        let said = ran.stderr.matches(INSTALL_HINT).count();
        assert_eq!(said, 1, "{arguments:?}:\n{}\n{}", ran.stdout, ran.stderr);
    }
    let shown = run_with_ssh(&site, ["--json", "status", "scout"])
        .assert_code(3)
        .json();
    let hint = shown["agents"][0]["blocked"]["hints"][0].as_str().unwrap();
    assert!(hint.starts_with("install OpenSSH's client"), "{shown}");
}

#[test]
fn dry_run_of_unreachable_host_says_unreachable() {
    let site = site_with_hosts(&[("scout", "box")]);
    install_ssh(
        &site,
        "echo 'ssh: connect to host box port 22: Connection refused' >&2; exit 255",
    );
    let ran = run_with_ssh(&site, ["reset", "scout", "--dry-run"]).assert_code(3);
    assert!(!ran.stdout.contains("refused  "), "{}", ran.stdout);
    let _ = ran
        .assert_stdout_has("nothing to reset, 1 unreachable; nothing was changed")
        .assert_stdout_has("box cannot be reached")
        .assert_stderr_has("hint: try `ssh box`");
}

#[test]
fn changed_host_key_exits_4() {
    let site = site_with_hosts(&[("scout", "box"), ("ranger", "crate")]);
    // One host presents another key, the other one does not answer.
    let script = "case \"$*\" in
        *box*) echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2 ;;
        *) echo 'ssh: connect to host crate port 22: Connection refused' >&2 ;;
        esac; exit 255";
    install_ssh(&site, script);
    for arguments in [
        &["status"][..],
        &["status", "scout"],
        &["diff", "scout"],
        &["reset", "scout", "--dry-run"],
        &["reset", "scout"],
        &["reset", "--all"],
        &["doctor"],
    ] {
        let ran = site
            .run_command(command_with_ssh(&site).args(arguments))
            .assert_code(4);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains("find out why first"), "{told}");
    }
    for arguments in [
        &["status", "ranger"],
        &["diff", "ranger"],
        &["reset", "ranger"],
    ] {
        let _ = site
            .run_command(command_with_ssh(&site).args(arguments))
            .assert_code(3);
    }
}

/// Appends lines to the config's last section.
fn append_config_lines(site: &Site, lines: &str) {
    site.append("memory-shepherd.conf", format!("{lines}\n"));
}

#[test]
fn unusable_identity_file_is_reported() {
    let refused = "echo 'ops@box: Permission denied (publickey).' >&2; exit 255";
    let with_key = || {
        let site = site_with_hosts(&[("scout", "box")]);
        append_config_lines(&site, "identity_file=keys/id");
        install_ssh(&site, refused);
        site
    };
    let told = |site: &Site, what: &str| {
        let path = site.path("keys/id");
        let text = format!("identity_file {} of box {what}", path.display());
        let ran = run_with_ssh(site, ["doctor"])
            .assert_code(3)
            .assert_stdout_has(&text);
        assert_eq!(
            ran.stdout.matches("identity_file /").count(),
            1,
            "{}",
            ran.stdout
        );
    };
    let site = with_key();
    told(&site, "does not exist");
    let missing = format!(
        "hint: identity_file {} does not",
        site.dir.join("keys/id").display()
    );
    let _ = run_with_ssh(&site, ["status"])
        .assert_code(3)
        .assert_stderr_has(&missing);

    let site = with_key();
    fs::create_dir_all(site.path("keys/id")).unwrap();
    told(&site, "is a directory");
    let ran = run_with_ssh(&site, ["status"]).assert_code(3);
    assert!(!ran.stderr.contains("does not exist"), "{}", ran.stderr);

    // A FIFO as identity file is reported, and does not block.
    let site = with_key();
    fs::create_dir(site.path("keys")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.path("keys/id"), kind, mode, 0).unwrap();
    told(&site, "is a FIFO");

    let site = with_key();
    site.write("keys/id", "a key");
    let mode = |mode| {
        fs::set_permissions(site.path("keys/id"), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o644);
    told(&site, "can be read by others (mode 0644)");
    mode(0o600);
    let ran = run_with_ssh(&site, ["doctor"]).assert_code(3);
    assert!(!ran.stdout.contains("identity_file /"), "{}", ran.stdout);
}

#[test]
fn doctor_reports_each_problem_once() {
    let site = site_with_hosts(&[("scout", "box"), ("ranger", "crate"), ("rover", "crate")]);
    let ran = run_with_ssh(&site, ["doctor"]).assert_code(3);
    let said = ran.stdout.matches("ssh is not installed here").count();
    assert_eq!(said, 1, "{}", ran.stdout);
    let _ = ran.assert_stdout_has("3 agents unreachable: ssh is not installed here");
    // Reports of different problems are separate.
    install_ssh(
        &site,
        "for host; do test $host = crate && break; host=box; done
        echo \"ssh: connect to host $host port 22: Connection refused\" >&2; exit 255",
    );
    let _ = run_with_ssh(&site, ["doctor"])
        .assert_code(3)
        .assert_stdout_has("1 agent unreachable: box cannot be reached")
        .assert_stdout_has("2 agents unreachable: crate cannot be reached");
}
