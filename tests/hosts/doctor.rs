//! What `doctor` reports about hosts and about the memories on them.

use std::fs;
use std::os::unix::fs::symlink;

use super::remote_site::RemoteSite;
use super::servers::sftp_server;
use super::world::World;

/// Returns a fleet of one local agent and these agents on a host.
fn site_with_host(agents: &[&str], ssh: &str) -> RemoteSite {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "a note\n");
    let lines = "remote_user = ops\nremote_port = 2222";
    RemoteSite::new(world, agents, lines, &format!("#!/bin/sh\n{ssh}\n"))
}

fn run_doctor(site: &RemoteSite) -> (String, Option<i32>) {
    let output = site.run_program(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.code())
}

/// An ssh script that runs an SFTP server.
const SFTP_SERVER_SCRIPT: &str = "for word; do [ \"$word\" = -G ] && exec echo hostname box; done
exec /usr/lib/openssh/sftp-server -e";

#[test]
fn doctor_checks_remote_memories_and_names_problems() {
    if sftp_server().is_none() {
        return;
    }
    let agents = ["well", "directory", "link", "large", "lost", "homeless"];
    let site = site_with_host(&agents, SFTP_SERVER_SCRIPT);
    let memory = |agent: &str| site.world.memory_path(agent);
    for agent in ["directory", "link", "lost"] {
        fs::remove_file(memory(agent)).unwrap();
    }
    fs::create_dir(memory("directory")).unwrap();
    symlink("elsewhere", memory("link")).unwrap();
    let large = fs::File::create(memory("large")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let gone = memory("homeless");
    fs::remove_dir_all(gone.parent().unwrap()).unwrap();
    let (text, code) = run_doctor(&site);
    for (agent, why) in [
        ("directory", "it is a directory"),
        ("link", "link"),
        ("large", "more than the 16 MiB"),
        ("homeless", "does not exist"),
    ] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("FAIL  {agent} on box")))
            .unwrap_or_else(|| panic!("{agent}: {text}"));
        assert!(line.contains(why), "{line}");
    }
    assert!(
        text.contains("memories of 2 agents on hosts can be read"),
        "{text}"
    );
    assert_eq!(code, Some(3), "{text}");
}

#[test]
fn doctor_ignores_local_file_system_for_remote_resets() {
    if sftp_server().is_none() {
        return;
    }
    let site = site_with_host(&["ranger"], SFTP_SERVER_SCRIPT);
    let reset = site.run_program(&["reset", "ranger"]);
    assert!(reset.status.success(), "{reset:?}");
    let (text, _) = run_doctor(&site);
    assert!(!text.contains("absent for a moment"), "{text}");
}

#[test]
fn unreachable_host_exits_3_with_user_and_port_hint() {
    let site = site_with_host(
        &["ranger"],
        "echo 'Bad configuration option: nonsense' >&2; exit 255",
    );
    let (text, code) = run_doctor(&site);
    assert!(text.contains("1 agent unreachable"), "{text}");
    assert!(text.contains("`ssh -G -p 2222 ops@box`"), "{text}");
    assert_eq!(code, Some(3), "{text}");
}
