//! Views of the hosts, and of unreachable agents on the other screens.

use std::time::Duration;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::hosts::state::NO_HOSTS_REASON;
use memory_shepherd::engine::{ConnectionSetting, FleetEvent, Reachability, State};

use super::agent::{
    BASELINE, NOTES, memory_from_baseline, open_agent, open_drifted_agent, with_edited_rules,
};
use super::{
    TERMINAL_SIZES, TestConsole, assert_view, assert_view_from, fleet_of_every_state, rendered_text,
};
use crate::engine_samples::{host_status, observation_of};

/// A fleet with hosts in every state, some of which were connected before.
fn fleet_on_hosts() -> TestConsole {
    let mut console = fleet_of_every_state();
    let of = [
        (
            "box",
            Reachability::Connected,
            State::Scratch,
            &["docs-writer", "monitor-bot"][..],
        ),
        (
            "edge-7",
            Reachability::HostKeyMismatch,
            State::HostKey,
            &["android-17"],
        ),
        (
            "10.0.0.61",
            Reachability::Unreachable,
            State::Unreach,
            &["code-reviewer", "researcher"],
        ),
        (
            "vault",
            Reachability::Refused,
            State::Error,
            &["log-digger"],
        ),
        ("new", Reachability::Unknown, State::Loading, &[]),
    ];
    for (name, reach, state, agents) in of {
        if !agents.is_empty() {
            let on = |state| {
                let mut agents: Vec<_> = agents
                    .iter()
                    .map(|agent| observation_of(agent, state))
                    .collect();
                agents
                    .iter_mut()
                    .for_each(|seen| seen.host = name.to_string());
                agents
            };
            console.observe(on(State::Scratch));
            console.observe(on(state));
        }
        let mut status = host_status(name, reach, agents);
        if agents.is_empty() {
            status.agents = vec!["test-runner".to_string()];
        }
        for agent in &status.agents {
            let rows = &mut console.model.rows;
            let place = rows.place(agent).unwrap();
            let login = status.host.authority();
            rows.change(place, |row| row.address.login = Some(login));
        }
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status])));
    }
    console.advance(Duration::from_secs(1));
    console.model.last_message = None;
    console
}

#[test]
fn hosts_of_every_state_match_snapshot() {
    assert_view_from("hosts", fleet_on_hosts, |console| {
        console.press("8");
    });
}

#[test]
fn unreachable_host_matches_snapshot() {
    assert_view_from("hosts_away", fleet_on_hosts, |console| {
        console.press("8 j j");
        let host = console.model.hosts.current_status().unwrap().host.clone();
        let why = "`ssh -G 10.0.0.61` did not finish within 5 s".to_string();
        console.send(Msg::HostSettingsLoaded(host, Err(why)));
    });
}

#[test]
fn connected_host_matches_snapshot() {
    assert_view_from("hosts_up", fleet_on_hosts, |console| {
        console.press("8 G");
        let host = console.model.hosts.current_status().unwrap().host.clone();
        let setting = |(name, value): (&str, &str)| ConnectionSetting {
            name: name.to_string(),
            value: value.to_string(),
        };
        let settings = [
            ("hostname", "10.0.0.50"),
            ("user", "ops"),
            ("port", "22"),
            ("proxyjump", "bastion\u{1b}[31m\u{202e}"),
            ("identityfile", "~/.ssh/id_ed25519"),
        ];
        console.send(Msg::HostSettingsLoaded(
            host,
            Ok(settings.map(setting).to_vec()),
        ));
    });
}

/// Narrow screens cut other text before the reason.
#[test]
fn host_reason_is_readable_on_every_screen() {
    let shown = |size: (u16, u16), keys: &str| {
        let mut console = fleet_on_hosts();
        console.send(Msg::Resized(size.0, size.1));
        console.press(keys);
        rendered_text(&console, "terminal")
    };
    for size in TERMINAL_SIZES {
        let fleet = shown(size, "j j");
        assert!(fleet.contains("code-reviewer BLOCKED: No route to host; next try"));
        assert!(fleet.contains("HOST"), "{fleet}");
        assert!(
            size.0 < 120 || fleet.contains("10.0.0.61"),
            "the host is whole: {fleet}"
        );
        assert!(fleet.contains("live, 4 stale"), "{fleet}");
        let hosts = shown(size, "8");
        let rows = hosts
            .lines()
            .filter(|line| line.contains("No route to host"));
        assert!(rows.count() > 0, "{hosts}");
        assert!(hosts.contains("host key changed\n"), "{hosts}");
    }
    // Four of five hosts.
    let small = shown((60, 15), "8");
    for host in ["edge-7", "vault", "10.0.0.61", "new"] {
        assert!(small.contains(host), "{host}: {small}");
    }
    assert!(small.contains(" why "), "{small}");
}

#[test]
fn asking_and_unanswered_hosts_match_snapshot() {
    assert_view_from("hosts_asking", fleet_on_hosts, |console| {
        let mut asks = host_status("new", Reachability::Unknown, &["test-runner"]);
        asks.connection.pending_prompt = Some("a password");
        let mut barred = host_status("vault", Reachability::Unreachable, &["log-digger"]);
        barred.connection.is_blocked = true;
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![asks, barred])));
        console.press("8");
    });
}

#[test]
fn hosts_of_one_name_are_distinguished() {
    let mut console = fleet_on_hosts();
    let mut other = host_status(
        "box",
        Reachability::Connected,
        &["an-agent-with-a-name-that-is-very-long-indeed"],
    );
    other.host.user = Some("op".to_string());
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![other])));
    let shown = rendered_text(&console, "terminal");
    assert!(shown.contains(" op@box:2222 "), "{shown}");
    assert!(shown.contains(" box:2222 "), "{shown}");
}

#[test]
fn added_command_is_the_last_hint() {
    let mut console = fleet_of_every_state();
    console.add_extra_command();
    console.send(Msg::Resized(80, 24));
    let hints = |console: &TestConsole| {
        let shown = rendered_text(console, "terminal");
        shown.lines().last().unwrap().trim().to_string()
    };
    let fleet = hints(&console);
    assert!(fleet.starts_with("d diff  X plan reset"), "{fleet}");
    assert!(fleet.contains(" D extra"), "{fleet}");
    console.press("8");
    let hosts = hints(&console);
    assert!(hosts.ends_with("D extra  ? help"), "{hosts}");
    assert!(!hosts.starts_with('D'), "{hosts}");
    for keys in ["1 d", "1 X", "1 7"] {
        console.press(keys);
        let others = hints(&console);
        assert!(!others.contains("D extra"), "{keys}: {others}");
    }
}

#[test]
fn hosts_screen_without_hosts_matches_snapshot() {
    assert_view("hosts_none", |console| {
        console.press("8");
    });
    for size in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(size.0, size.1));
        console.press("8");
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains(NO_HOSTS_REASON), "{shown}");
    }
}

#[test]
fn fleet_with_unreachable_agents_matches_snapshot() {
    assert_view_from("fleet_unreached", fleet_on_hosts, |console| {
        console.press("j j");
    });
}

#[test]
fn unreachable_agent_matches_snapshot() {
    assert_view_from("agent_cached", fleet_on_hosts, |console| {
        open_drifted_agent(console);
        console.load_cached_copy(
            "code-reviewer",
            &memory_from_baseline(with_edited_rules, NOTES),
            Some(BASELINE),
            130,
        );
    });
    assert_view_from("agent_no_copy", fleet_on_hosts, |console| {
        open_agent(console, "android-17", b"", None);
    });
}
