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
