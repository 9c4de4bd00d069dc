//! What is said of agents on other hosts when something is wrong with the way
//! there. The ssh is one of ours, or none.

use std::os::unix::fs::PermissionsExt;

use assert_cmd::Command;

use super::*;
use crate::fixture::Ran;

/// What to do where ssh is not installed.
const INSTALL: &str = "hint: install OpenSSH's client";

/// A fleet with agents on hosts, and a folder `bin` where `ssh` is looked for.
fn far(agents: &[(&str, &str)]) -> Site {
    let site = Site::new();
    let mut config = site.read("memory-shepherd.conf");
    for (agent, host) in agents {
        config.push_str(&format!(
            "\n[{agent}]\nremote_host={host}\nremote_memory={}/agents/{agent}/MEMORY.md\nbaseline=monitor-bot-MEMORY.md\n",
            site.dir.display()
        ));
        site.write(
            &format!("agents/{agent}/MEMORY.md"),
            Site::baseline("monitor-bot"),
        );
    }
    site.write("memory-shepherd.conf", config);
    fs::create_dir(site.path("bin")).unwrap();
    site
}

/// Has a shell script for its ssh.
fn ssh(site: &Site, script: &str) {
    site.write("bin/ssh", format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(site.path("bin/ssh"), PermissionsExt::from_mode(0o755)).unwrap();
}

fn command(site: &Site) -> Command {
    let mut command = site.command();
    command.env("PATH", site.path("bin"));
    command
}

fn run<const N: usize>(site: &Site, arguments: [&str; N]) -> Ran {
    site.ran(command(site).args(arguments))
}

#[test]
fn every_command_says_what_to_install_where_there_is_no_ssh() {
    let site = far(&[("scout", "box"), ("ranger", "crate")]);
    for arguments in [
        &["status"][..],
        &["diff", "scout"],
        &["reset", "--all", "--dry-run"],
        &["reset", "scout"],
    ] {
        let ran = site.ran(command(&site).args(arguments)).code(3);
        let said = ran.err.matches(INSTALL).count();
        assert_eq!(said, 1, "{arguments:?}:\n{}\n{}", ran.out, ran.err);
    }
    let shown = run(&site, ["--json", "status", "scout"]).code(3).json();
    let hint = shown["agents"][0]["blocked"]["hints"][0].as_str().unwrap();
    assert!(hint.starts_with("install OpenSSH's client"), "{shown}");
}

#[test]
fn a_dry_run_calls_who_cannot_be_reached_unreachable() {
    let site = far(&[("scout", "box")]);
    ssh(
        &site,
        "echo 'ssh: connect to host box port 22: Connection refused' >&2; exit 255",
    );
    let ran = run(&site, ["reset", "scout", "--dry-run"]).code(3);
    assert!(!ran.out.contains("refused  "), "{}", ran.out);
    let _ = ran
        .says("unreachable")
        .says("box cannot be reached")
        .warns("hint: try `ssh box`");
}

#[test]
fn another_host_key_ends_every_command_like_other_breaches_of_integrity() {
    let site = far(&[("scout", "box"), ("ranger", "crate")]);
    // One host shows another key, the other one does not answer.
    let script = "case \"$*\" in
        *box*) echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2 ;;
        *) echo 'ssh: connect to host crate port 22: Connection refused' >&2 ;;
        esac; exit 255";
    ssh(&site, script);
    for arguments in [
        &["status"][..],
        &["status", "scout"],
        &["diff", "scout"],
        &["reset", "scout", "--dry-run"],
        &["reset", "scout"],
        &["reset", "--all"],
        &["doctor"],
    ] {
        let ran = site.ran(command(&site).args(arguments)).code(4);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("find out why before anything else"), "{told}");
    }
    for arguments in [
        &["status", "ranger"],
        &["diff", "ranger"],
        &["reset", "ranger"],
    ] {
        let _ = site.ran(command(&site).args(arguments)).code(3);
    }
}

/// Adds lines to the config's last section.
fn add(site: &Site, lines: &str) {
    site.append("memory-shepherd.conf", format!("{lines}\n"));
}

#[test]
fn a_key_that_ssh_cannot_use_is_told_by_doctor_and_one_that_is_missing_by_everybody() {
    let refused = "echo 'ops@box: Permission denied (publickey).' >&2; exit 255";
    let with_key = || {
        let site = far(&[("scout", "box")]);
        add(&site, "identity_file=keys/id");
        ssh(&site, refused);
        site
    };
    let told = |site: &Site, what: &str| {
        let path = site.path("keys/id");
        let text = format!("identity_file {} of box {what}", path.display());
        let ran = run(site, ["doctor"]).code(3).says(&text);
        assert_eq!(ran.out.matches("identity_file /").count(), 1, "{}", ran.out);
    };
    let site = with_key();
    told(&site, "does not exist");
    let missing = format!(
        "hint: identity_file {} does not",
        site.dir.join("keys/id").display()
    );
    let _ = run(&site, ["status"]).code(3).warns(&missing);

    let site = with_key();
    fs::create_dir_all(site.path("keys/id")).unwrap();
    told(&site, "is a directory");
    let ran = run(&site, ["status"]).code(3);
    assert!(!ran.err.contains("does not exist"), "{}", ran.err);

    // Nobody waits for a key from a pipe.
    let site = with_key();
    fs::create_dir(site.path("keys")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.path("keys/id"), kind, mode, 0).unwrap();
    told(&site, "is a pipe");

    let site = with_key();
    site.write("keys/id", "a key");
    let mode = |mode| {
        fs::set_permissions(site.path("keys/id"), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o644);
    told(&site, "can be read by others (mode 0644)");
    mode(0o600);
    let ran = run(&site, ["doctor"]).code(3);
    assert!(!ran.out.contains("identity_file /"), "{}", ran.out);
}

#[test]
fn doctor_tells_one_trouble_once() {
    let site = far(&[("scout", "box"), ("ranger", "crate"), ("rover", "crate")]);
    let ran = run(&site, ["doctor"]).code(3);
    let said = ran.out.matches("ssh is not installed here").count();
    assert_eq!(said, 1, "{}", ran.out);
    let _ = ran.says("3 agents out of reach: ssh is not installed here");
    // What differs is told of each.
    ssh(
        &site,
        "for host; do test $host = crate && break; host=box; done
        echo \"ssh: connect to host $host port 22: Connection refused\" >&2; exit 255",
    );
    let _ = run(&site, ["doctor"])
        .code(3)
        .says("1 agent out of reach: box cannot be reached")
        .says("2 agents out of reach: crate cannot be reached");
}
