//! What `doctor` tells of hosts and of the memories there.

use std::fs;
use std::os::unix::fs::symlink;

use super::servers::sftp_server;
use super::site::Site;
use super::world::World;

/// A fleet of one agent here and these on a host.
fn site(agents: &[&str], ssh: &str) -> Site {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "a note\n");
    let lines = "remote_user = ops\nremote_port = 2222";
    Site::new(world, agents, lines, &format!("#!/bin/sh\n{ssh}\n"))
}

fn doctor(site: &Site) -> (String, Option<i32>) {
    let output = site.run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.code())
}

/// An ssh that is an SFTP server.
const SERVES: &str = "for word; do [ \"$word\" = -G ] && exec echo hostname box; done
exec /usr/lib/openssh/sftp-server -e";

#[test]
fn memories_on_a_host_are_looked_at_and_each_trouble_is_told() {
    if sftp_server().is_none() {
        return;
    }
    let agents = ["well", "folder", "link", "large", "lost", "homeless"];
    let site = site(&agents, SERVES);
    let memory = |agent: &str| site.world.memory(agent);
    for agent in ["folder", "link", "lost"] {
        fs::remove_file(memory(agent)).unwrap();
    }
    fs::create_dir(memory("folder")).unwrap();
    symlink("elsewhere", memory("link")).unwrap();
    let large = fs::File::create(memory("large")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let gone = memory("homeless");
    fs::remove_dir_all(gone.parent().unwrap()).unwrap();
    let (text, code) = doctor(&site);
    for (agent, why) in [
        ("folder", "a directory stands in its place"),
        ("link", "link"),
        ("large", "more than the 16 MiB"),
        ("homeless", "does not exist"),
    ] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("FAIL  {agent} on box")));
        let line = line.unwrap_or_else(|| panic!("{agent}: {text}"));
        assert!(line.contains(why), "{line}");
    }
    assert!(
        text.contains("the memories of 2 agents on hosts can be read"),
        "{text}"
    );
    assert_eq!(code, Some(3), "{text}");
}

#[test]
fn resets_on_a_host_say_nothing_of_the_file_system_here() {
    if sftp_server().is_none() {
        return;
    }
    let site = site(&["ranger"], SERVES);
    let reset = site.run(&["reset", "ranger"]);
    assert!(reset.status.success(), "{reset:?}");
    let (text, _) = doctor(&site);
    assert!(!text.contains("absent for a moment"), "{text}");
}

#[test]
fn a_host_out_of_reach_is_3_and_hints_name_user_and_port() {
    let site = site(
        &["ranger"],
        "echo 'Bad configuration option: nonsense' >&2; exit 255",
    );
    let (text, code) = doctor(&site);
    assert!(text.contains("1 agent out of reach"), "{text}");
    assert!(text.contains("`ssh -G -p 2222 ops@box`"), "{text}");
    assert_eq!(code, Some(3), "{text}");
}
