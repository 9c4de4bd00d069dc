//! What systemd says about the units, and what their services may do.

use std::collections::BTreeSet;
use std::path::Path;

use memory_shepherd::config::{self, ConfigEnvironment};
use memory_shepherd::unattended::schedule::{UnitScope, UnitSetup, UserSandbox, render_units};

use super::schedule::{install, unit_names};
use super::*;
use crate::skip::skip_missing_tool;

#[test]
fn alert_command_in_tmp_is_not_hidden_from_its_unit() {
    for (command, is_private) in [
        ("/usr/bin/logger -t fleet", true),
        ("/tmp/notify", false),
        ("/bin/sh /var/tmp/notify.sh", false),
        ("logger", true),
    ] {
        let text = format!(
            "[general]\nbaseline_dir=/srv/baselines\narchive_dir=/srv/archives\n\
             [alerts]\ncommand={command}\n\
             [scout]\nmemory_file=/srv/scout/MEMORY.md\nbaseline=scout.md\n"
        );
        let environment = ConfigEnvironment::bare(Path::new("/srv"));
        let path = Path::new("/srv/fleet/a.conf");
        let config = config::parse(text.as_bytes(), path, &environment).unwrap();
        let units = render_units(UnitSetup {
            config: &config,
            program: Path::new("/usr/bin/memory-shepherd"),
            scope: UnitScope::System,
            user_sandbox: &UserSandbox::Namespaces,
        });
        let units = units.unwrap();
        let services = units.iter().filter(|it| it.name.ends_with(".service"));
        for service in services {
            let has_line = service.text.contains("PrivateTmp=yes");
            assert_eq!(has_line, is_private, "{command}: {}", service.name);
        }
    }
}

/// Runs `systemd-analyze` and returns both streams; `None` if it is missing.
fn systemd_analyze(site: &Site, arguments: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new("systemd-analyze");
    command
        .args(arguments)
        .arg("--no-pager")
        .current_dir(&site.dir);
    command
        .env("XDG_RUNTIME_DIR", site.path("home"))
        .env("LC_ALL", "C");
    let Ok(output) = command.output() else {
        skip_missing_tool("systemd-analyze");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// Returns the exposure level that `systemd-analyze security` gives a unit.
fn exposure(site: &Site, unit: &Path) -> Option<f64> {
    let unit = unit.to_str().unwrap();
    let (_, text) = systemd_analyze(site, &["security", "--offline=true", unit])?;
    let last = text
        .lines()
        .rfind(|line| line.contains("exposure level"))
        .unwrap();
    let level = last.rsplit(": ").next().unwrap();
    Some(level.split_whitespace().next().unwrap().parse().unwrap())
}

/// Asserts that systemd finds no fault in the units of a directory, and that their services are
/// confined. Returns false if a tool is missing.
pub(super) fn assert_systemd_accepts(site: &Site, directory: &str) -> bool {
    let names = unit_names(site, directory).into_iter();
    let paths: Vec<_> = names.map(|name| site.path(directory).join(name)).collect();
    let mut arguments = vec!["verify", "--man=no", "--recursive-errors=no"];
    arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let Some((is_valid, text)) = systemd_analyze(site, &arguments) else {
        return false;
    };
    assert!(is_valid && !text.contains("memory-shepherd"), "{text}");
    let services = paths
        .iter()
        .filter(|path| path.extension().unwrap() == "service");
    for path in services {
        let Some(level) = exposure(site, path) else {
            return false;
        };
        println!("{}: {level}", path.display());
        assert!(level < 3.0, "{}: {level}", path.display());
    }
    true
}

/// A config of `count` agents on this machine, with names and directories that need quotes.
fn write_hostile_site(site: &Site, count: usize) -> String {
    let directory = "a b%h $HOME 'q' \"d\" \\n;";
    let mut config = String::from("[general]\n");
    for index in 0..count {
        site.write(&format!("{directory}/agents/{index} %i/MEMORY.md"), "");
        config.push_str(&format!(
            "[agent-{index}]\nmemory_file=agents/{index} %i/MEMORY.md\nbaseline={index}.md\n"
        ));
    }
    site.write(&format!("{directory}/shepherd.conf"), config);
    format!("{directory}/shepherd.conf")
}

#[test]
fn units_pass_systemd_verify_and_security() {
    let site = Site::new();
    let config = write_hostile_site(&site, 3);
    let remote = "[general]\narchive_group=root\n[far]\nremote_host=h\nremote_memory=M.md\n\
                  baseline=b.md\n[guard]\nmemory_file=/srv/guard/MEMORY.md\nbaseline=c.md\n\
                  every=7d\n";
    site.write("remote.conf", remote);
    for (name, config) in [("quoted", config.as_str()), ("far", "remote.conf")] {
        let prefix = format!("units-{name}");
        let arguments = [
            "schedule", "install", "--system", "--config", config, "--prefix", &prefix,
        ];
        let _ = site
            .run_command(site.command().args(arguments))
            .assert_code(0);
        if !assert_systemd_accepts(&site, &prefix) {
            return;
        }
    }
}

#[test]
fn timers_of_200_agents_do_not_collide() {
    let site = Site::new();
    let config = write_hostile_site(&site, 200);
    let arguments = [
        "schedule", "install", "--system", "--config", &config, "--prefix", "units",
    ];
    let _ = site
        .run_command(site.command().args(arguments))
        .assert_code(0);
    let mut calendars = BTreeSet::new();
    for name in unit_names(&site, "units") {
        if name.starts_with("memory-shepherd-agent-") && name.ends_with(".timer") {
            let text = site.read(&format!("units/{name}"));
            let calendar = text
                .lines()
                .find_map(|line| line.strip_prefix("OnCalendar="));
            calendars.insert(calendar.unwrap().to_string());
        }
    }
    assert_eq!(calendars.len(), 200);
    let mut arguments = vec!["calendar", "--iterations=1"];
    arguments.extend(calendars.iter().map(String::as_str));
    if let Some((is_valid, text)) = systemd_analyze(&site, &arguments) {
        assert!(is_valid, "{text}");
    }
}

#[test]
fn remote_fleet_writes_only_to_the_archive() {
    let site = Site::new();
    let agent =
        "[general]\narchive_dir=kept\n[far]\nremote_host=h\nremote_memory=M.md\nbaseline=b.md\n";
    site.write("memory-shepherd.conf", agent);
    let _ = install(&site, &[]).assert_code(0);
    let service = site.read("units/memory-shepherd.service");
    let writable: Vec<&str> = service
        .lines()
        .filter_map(|line| line.strip_prefix("ReadWritePaths="))
        .collect();
    assert_eq!(writable, [format!("\"-{}\"", site.path("kept").display())]);
    assert!(service.contains("AF_INET"), "{service}");
}

#[test]
fn alerts_that_are_posted_need_the_network() {
    let site = Site::new();
    let has_network = || {
        let _ = install(&site, &[]).assert_code(0);
        let names = ["", "-monitor-bot", "-guard"];
        names.map(|name| {
            site.read(&format!("units/memory-shepherd{name}.service"))
                .contains("AF_INET")
        })
    };
    assert_eq!(has_network(), [false; 3]);
    site.append(
        "memory-shepherd.conf",
        "[alerts]\nurl=http://127.0.0.1:9/\n",
    );
    assert_eq!(has_network(), [true; 3]);
}

#[test]
fn unit_of_an_agent_writes_only_its_directory() {
    let site = Site::new();
    let _ = install(&site, &[]).assert_code(0);
    let writable = |unit: &str| -> Vec<String> {
        let text = site.read(&format!("units/{unit}.service"));
        let lines = text.lines();
        let paths = lines.filter_map(|line| line.strip_prefix("ReadWritePaths="));
        let directory = format!("\"-{}/", site.dir.display());
        paths
            .map(|path| path.replace(&directory, "").replace('"', ""))
            .collect()
    };
    let (reviewer, monitor) = ("agents/code-reviewer", "agents/monitor-bot");
    assert_eq!(
        writable("memory-shepherd-monitor-bot"),
        [monitor, "archives"]
    );
    assert_eq!(writable("memory-shepherd"), [reviewer, monitor, "archives"]);
    assert_eq!(writable("memory-shepherd-guard"), ["archives", "baselines"]);
}

/// Adds the system calls of a group, without the groups inside it.
fn add_system_calls(site: &Site, group: &str, calls: &mut BTreeSet<String>) -> bool {
    let Some((_, text)) = systemd_analyze(site, &["syscall-filter", group]) else {
        return false;
    };
    for line in text.lines().skip(1).map(str::trim) {
        if line.starts_with('@') {
            add_system_calls(site, line, calls);
        } else if !line.starts_with('#') && !line.is_empty() {
            calls.insert(line.to_string());
        }
    }
    true
}

#[test]
fn system_calls_of_runs_pass_the_filter() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let (mut allowed, mut denied) = (BTreeSet::new(), BTreeSet::new());
    let has_groups = add_system_calls(&site, "@system-service", &mut allowed)
        && add_system_calls(&site, "@resources", &mut denied);
    if !has_groups {
        return;
    }
    let mut used = BTreeSet::new();
    // The units that restrict their writes allow these.
    let calls = ["add_rule", "create_ruleset", "restrict_self"];
    allowed.extend(calls.map(|call| format!("landlock_{call}")));
    for arguments in [
        &["reset", "--scheduled", "--restrict-writes"][..],
        &["guard", "--once", "--restrict-writes"],
    ] {
        let trace = site.path("home/trace");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o"])
            .arg(&trace)
            .arg(PROGRAM_PATH);
        let Ok(output) = command.args(arguments).current_dir(&site.dir).output() else {
            skip_missing_tool("strace");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let trace = fs::read_to_string(trace).unwrap();
        let calls = trace.lines().filter_map(|line| {
            let (_, call) = line.split_once(' ')?;
            Some(call.trim_start().split_once('(')?.0.to_string())
        });
        used.extend(calls.filter(|call| {
            call.bytes()
                .all(|it| it.is_ascii_lowercase() || it == b'_' || it.is_ascii_digit())
        }));
    }
    assert!(used.len() > 30, "{used:?}");
    let refused: Vec<&String> = used
        .iter()
        .filter(|call| !allowed.contains(*call) || denied.contains(*call))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn user_unit_without_namespace_restricts_writes() {
    let site = Site::new();
    let install = |arguments: &[&str]| {
        let always = ["schedule", "install", "--user", "--prefix", "units"];
        site.run_command(site.command().args(always).args(arguments))
    };
    let command_line = |unit: &str| {
        let text = site.read(&format!("units/{unit}.service"));
        let lines = text.lines();
        let mut line = lines.filter_map(|line| line.strip_prefix("ExecStart="));
        (line.next_back().unwrap().to_string(), text)
    };
    let option = " --restrict-writes";
    let _ = install(&[]).assert_code(0);
    let (reset, service) = command_line("memory-shepherd");
    assert_eq!(reset.contains(option), !service.contains("PrivateUsers"));
    let (guard, service) = command_line("memory-shepherd-guard");
    assert!(guard.ends_with(option), "{guard}");
    assert!(service.contains("landlock_restrict_self"), "{service}");

    let agent = "[far]\nremote_host=h\nremote_memory=M.md\nbaseline=b.md\n";
    site.write("remote.conf", agent);
    let ran = install(&["--config", "remote.conf", "--force", "--json"]).assert_code(0);
    let note = ran.json()["notes"][0].as_str().unwrap().to_string();
    assert!(note.contains("--restrict-writes"), "{note}");
    let (fleet, service) = command_line("memory-shepherd");
    assert!(fleet.ends_with(option), "{fleet}");
    assert!(!service.contains("PrivateUsers") && !service.contains("CapabilityBoundingSet"));
    assert!(service.contains("NoNewPrivileges=yes"), "{service}");
    assert!(service.contains("landlock_restrict_self"), "{service}");
    let (agent, _) = command_line("memory-shepherd-far");
    assert!(agent.ends_with(" --restrict-writes -- far"), "{agent}");
}

#[test]
fn system_units_leave_the_restriction_to_systemd() {
    let site = Site::new();
    let _ = install(&site, &[]).assert_code(0);
    for name in ["", "-monitor-bot", "-guard"] {
        let service = site.read(&format!("units/memory-shepherd{name}.service"));
        assert!(!service.contains("--restrict-writes"), "{service}");
        assert!(!service.contains("landlock_"), "{service}");
    }
}
