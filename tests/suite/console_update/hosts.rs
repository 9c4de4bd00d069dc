//! Hosts that connect and disconnect, their screen, and unreachable agents.

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::keys::keymap::Keymap;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::host_problems::host_problem;
use memory_shepherd::console::overlay::Overlay;
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::hosts;
use memory_shepherd::console::screens::log::state::MessageLevel;
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{ConnectionSetting, FleetEvent, HostStatus, Reachability, State};
use memory_shepherd::transport::sftp::askpass;
use memory_shepherd::transport::{FailureCause, TransportError};

use super::{BASELINE, MEMORY, MINUTE, SECOND, agent_order, makes_dirty};
use crate::console_fixture::{TestConsole, fleet_of, fleet_of_four};
use crate::engine_samples::{
    host_key_question, host_status, minutes_before, observation_of, passphrase_question, plan,
    skipped_agent,
};

/// Two local agents, two on `box`, one on `far`.
fn fleet_on_hosts(reach: Reachability) -> TestConsole {
    let mut console = fleet_of(&[
        ("alpha", State::Clean),
        ("bravo", State::Scratch),
        ("charlie", State::Drifted),
        ("delta", State::Scratch),
        ("echo", State::Scratch),
    ]);
    let remote = ["charlie", "delta"].map(|name| {
        let mut seen = observation_of(
            name,
            if name == "charlie" {
                State::Drifted
            } else {
                State::Scratch
            },
        );
        seen.host = "box".to_string();
        seen
    });
    console.observe(remote.to_vec());
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![
        host_status("box", Reachability::Connected, &["charlie", "delta"]),
        host_status("far", Reachability::Connected, &["echo"]),
    ])));
    if reach != Reachability::Connected {
        set_reachability(&mut console, reach);
    }
    console
}

/// Sets the connection state of `box`.
fn set_reachability(console: &mut TestConsole, reach: Reachability) {
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
        "box",
        reach,
        &["charlie", "delta"],
    )])));
    let state = match reach {
        Reachability::Unreachable => State::Unreach,
        Reachability::HostKeyMismatch => State::HostKey,
        Reachability::Refused => State::Error,
        Reachability::Unknown | Reachability::Connected => return,
    };
    let mut cut_off = ["charlie", "delta"].map(|name| observation_of(name, state));
    cut_off
        .iter_mut()
        .for_each(|seen| seen.host = "box".to_string());
    console.observe(cut_off.to_vec());
}

fn log(console: &TestConsole) -> Vec<(MessageLevel, &str)> {
    let messages = console.model.log.messages.iter();
    messages.map(|it| (it.level, it.text.as_str())).collect()
}

#[test]
fn host_loss_and_return_are_each_reported_once() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    assert!(log(&console).is_empty(), "that all is well is not said");
    let mut away = host_status("box", Reachability::Unreachable, &["charlie", "delta"]);
    for failures in 1..10 {
        // Between two attempts, and during one.
        away.connection.failures = failures;
        away.connection.is_connecting = failures % 2 == 0;
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![away.clone()])));
    }
    assert_eq!(
        log(&console),
        [(MessageLevel::Warn, "box:2222 went away: No route to host")]
    );
    set_reachability(&mut console, Reachability::Connected);
    assert_eq!(log(&console)[0], (MessageLevel::Info, "box:2222 is back"));
    set_reachability(&mut console, Reachability::Refused);
    assert_eq!(
        log(&console)[0],
        (
            MessageLevel::Error,
            "box:2222 cannot be used: Permission denied (publickey)"
        )
    );
    set_reachability(&mut console, Reachability::HostKeyMismatch);
    assert_eq!(log(&console)[0].0, MessageLevel::Error);
    assert!(log(&console)[0].1.starts_with("box:2222: host key changed"));
    assert_eq!(log(&console).len(), 4);
}

#[test]
fn never_reached_host_is_reported_unreachable() {
    let mut console = fleet_of_four();
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
        "box",
        Reachability::Unreachable,
        &["alpha"],
    )])));
    assert_eq!(
        log(&console),
        [(
            MessageLevel::Warn,
            "box:2222 cannot be reached: No route to host"
        )]
    );
}

#[test]
fn local_setup_error_is_not_blamed_on_host() {
    let mut console = fleet_of_four();
    let mut status = host_status("box", Reachability::Refused, &["alpha"]);
    let why = "ssh is not installed here, and agents on other hosts need it";
    let error = Error::new(ErrorKind::Host, why);
    status.connection.error = Some(TransportError::new(FailureCause::Refused, error));
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status])));
    let said = format!("box:2222 cannot be used: {why}");
    assert_eq!(log(&console), [(MessageLevel::Error, said.as_str())]);
}

#[test]
fn host_of_previous_config_is_ignored() {
    let mut console = fleet_of_four();
    assert!(!makes_dirty(&mut console, |console| {
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
            "old",
            Reachability::Unreachable,
            &["nobody"],
        )])));
    }));
    assert!(console.model.hosts.sorted_statuses().is_empty());
}

#[test]
fn plan_of_unreachable_agent_skips_it_with_reason() {
    for reach in [
        Reachability::Unreachable,
        Reachability::HostKeyMismatch,
        Reachability::Refused,
    ] {
        let mut console = fleet_on_hosts(reach);
        console.press("/");
        console.type_line("delta");
        console.press("Enter");
        let mut empty = plan(&[]);
        empty.skipped = vec![skipped_agent(
            "delta",
            State::Unreach,
            "box cannot be reached",
        )];
        for key in ["X", "z", "Z"] {
            console.press_and_plan(key, empty.clone());
            assert_eq!(*console.confirmation(), Confirmation::NothingToRun, "{key}");
            assert_eq!(console.press("y"), [], "{key}");
            console.press("Esc");
        }
    }
}

#[test]
fn agents_of_a_host_lead_back_to_the_hosts() {
    for key in ["q", "Esc", "h"] {
        let mut console = fleet_on_hosts(Reachability::Connected);
        console.press("/ a l p h a Enter 8 Enter");
        assert_eq!(console.model.screen, Screen::Fleet);
        assert_eq!(console.model.fleet.filter, "host:box");
        let hints = console.screen_text().lines().last().unwrap().to_string();
        assert!(
            hints.contains("q back") && !hints.contains("q quit"),
            "{hints}"
        );
        // Also from the agent below.
        console.press(&format!("d q {key}"));
        assert_eq!(console.model.screen, Screen::Hosts, "{key}");
        assert_eq!(console.model.fleet.filter, "alpha");
        console.press("Esc");
        assert_eq!(console.model.screen, Screen::Fleet);
    }
    // A filter of the operator's own, or the key of the fleet, ends the visit.
    for keys in ["/ a Enter Esc", "1 Esc"] {
        let mut console = fleet_on_hosts(Reachability::Connected);
        console.press(&format!("8 Enter {keys}"));
        assert_eq!(console.model.screen, Screen::Fleet, "{keys}");
        assert_eq!(console.model.fleet.filter, "", "{keys}");
    }
}

#[test]
fn hosts_enter_filters_agents_and_r_retries() {
    let mut console = fleet_on_hosts(Reachability::Unreachable);
    let effects = console.press("8");
    let worst = host_status("box", Reachability::Unreachable, &[]).host;
    assert_eq!(effects, [Effect::LoadHostSettings(worst.clone())]);
    assert_eq!(console.model.screen, Screen::Hosts);
    let agents = || vec!["charlie".to_string(), "delta".to_string()];
    // The host may ask again.
    let tried = [
        Effect::AllowQuestions(agents()),
        Effect::ReadAgents(agents()),
    ];
    assert_eq!(console.press("r"), tried);
    assert_eq!(console.message_text(), "trying box:2222 now");
    // Known settings are not requested again.
    let setting = ConnectionSetting {
        name: "hostname".to_string(),
        value: "10.0.0.50".to_string(),
    };
    console.send(Msg::HostSettingsLoaded(worst, Ok(vec![setting])));
    assert_eq!(
        console.press("j"),
        [Effect::LoadHostSettings(
            host_status("far", Reachability::Connected, &[]).host
        )]
    );
    assert!(console.press("k").is_empty());
    console.press("Enter");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert_eq!(agent_order(&console.model), ["charlie", "delta"]);
    console.press("8 q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn hosts_cursor_follows_its_host() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    console.press("8");
    let current = |console: &TestConsole| {
        console
            .model
            .hosts
            .current_status()
            .unwrap()
            .host
            .name
            .clone()
    };
    assert_eq!(current(&console), "box");
    console.press("j");
    assert_eq!(current(&console), "far");
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
        "far",
        Reachability::Unreachable,
        &["echo"],
    )])));
    assert_eq!(current(&console), "far");
    assert_eq!(console.model.hosts.list.cursor, 0);
    console.press("j");
    assert_eq!(current(&console), "box");
    console.press("gg G G");
    assert_eq!(current(&console), "box");
}

#[test]
fn hosts_screen_without_hosts_is_inert() {
    let mut console = fleet_of_four();
    assert!(console.press("8").is_empty());
    assert!(console.press("j r Enter").is_empty());
    assert!(!console.message_text().is_empty());
}

#[test]
fn last_read_state_is_kept_while_unreachable() {
    let mut console = fleet_on_hosts(Reachability::Unreachable);
    let row = console.model.find_row("charlie").unwrap();
    assert_eq!(row.state(), State::Unreach);
    assert_eq!(
        row.last_readable_observation().unwrap().state,
        State::Drifted
    );
    // The next session of the console knows it as well.
    assert!(row.last_readable_observation().unwrap().is_content_known());
    assert!(host_problem(&console.model, "alpha").is_none());
    let mut back = observation_of("charlie", State::Clean);
    back.host = "box".to_string();
    console.observe(vec![back]);
    let row = console.model.find_row("charlie").unwrap();
    assert_eq!(row.last_readable_observation().unwrap().state, State::Clean);
}

#[test]
fn cached_copy_lasts_until_agent_is_readable() {
    let mut console = fleet_on_hosts(Reachability::Unreachable);
    console.open_agent("charlie", MEMORY, Some(BASELINE));
    console.load_cached_copy("charlie", MEMORY, Some(BASELINE), 130);
    let copied = console.model.agent.cached_observation.as_ref().unwrap();
    assert_eq!(copied.read_at, minutes_before(130));
    assert!(console.screen_text().contains("CACHED 2h old - "));
    assert!(!console.model.agent.diff.lines.is_empty());
    // The next agent is not affected.
    console.press("]");
    assert_eq!(console.model.agent.cached_observation, None);
    console.press("[");
    console.load_cached_copy("charlie", MEMORY, Some(BASELINE), 130);
    set_reachability(&mut console, Reachability::Connected);
    let mut back = observation_of("charlie", State::Drifted);
    back.host = "box".to_string();
    let effects = console.observe(vec![back]);
    assert_eq!(effects, [Effect::PrepareTexts("charlie".to_string())]);
    console.load_texts("charlie", MEMORY, Some(BASELINE));
    assert_eq!(console.model.agent.cached_observation, None);
}

#[test]
fn outdated_copy_says_that_the_memory_changed() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    console.open_agent("charlie", MEMORY, Some(BASELINE));
    let drifted = console.model.find_row("charlie").unwrap();
    let mut copied = drifted.latest_observation().unwrap().clone();
    copied.content.as_mut().unwrap().sha256 = Digest::of(MEMORY);
    let mut reset = observation_of("charlie", State::Clean);
    reset.host = "box".to_string();
    let mut lost = observation_of("charlie", State::Unreach);
    lost.host = "box".to_string();
    lost.content = None;
    console.observe(vec![reset]);
    console.observe(vec![lost]);
    set_reachability(&mut console, Reachability::Unreachable);
    console.load_cached_copy("charlie", MEMORY, Some(BASELINE), 130);
    assert!(!console.screen_text().contains("changed since"));
    console
        .model
        .agent
        .cached_observation
        .as_mut()
        .unwrap()
        .content = copied.content;
    let text = console.screen_text();
    assert!(text.contains("CACHED 2h old, changed since - "), "{text}");
}

#[test]
fn idle_hosts_screen_redraws_only_on_age_change() {
    for key in ["1", "8"] {
        let mut console = fleet_on_hosts(Reachability::Unreachable);
        console.press(key);
        console.send(Msg::Tick);
        // A repeated status changes nothing.
        let same = host_status("box", Reachability::Unreachable, &["charlie", "delta"]);
        assert!(!makes_dirty(&mut console, |console| {
            console.now += SECOND;
            console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![same.clone()])));
            console.send(Msg::Tick);
        }));
        let drawn = makes_dirty(&mut console, |console| {
            console.advance(3 * MINUTE);
        });
        assert!(drawn, "the next try is due");
    }
}

/// Returns `box` as new and waiting for an answer.
fn asking_host_status() -> HostStatus {
    let mut asks = host_status("box", Reachability::Unknown, &["charlie", "delta"]);
    asks.connection.pending_prompt = Some("a password");
    asks
}

#[test]
fn asking_host_is_not_said_to_be_silent_or_barred() {
    for reach in [Reachability::Unreachable, Reachability::HostKeyMismatch] {
        let mut console = fleet_on_hosts(reach);
        let mut asks = asking_host_status();
        asks.connection.reachability = reach;
        let old_failure = "host key changed or revoked; nothing was read or sent";
        asks.connection.error = Some(TransportError::new(
            FailureCause::Unreachable,
            Error::new(ErrorKind::Host, old_failure),
        ));
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![asks])));
        let fleet = console.screen_text();
        assert!(!fleet.contains("did not answer"), "{fleet}");
        assert!(!fleet.contains("nothing was read or sent"), "{fleet}");
        console.press("8");
        let hosts = console.screen_text();
        assert!(!hosts.contains("nothing was read or sent"), "{hosts}");
        assert!(hosts.contains("wants a password; @ answers"), "{hosts}");
    }
}

#[test]
fn asking_host_says_so_until_answered() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![
        asking_host_status(),
    ])));
    assert_eq!(hosts::state::status_label(&asking_host_status()), "ASKS");
    assert_eq!(
        hosts::state::next_attempt_text(
            &asking_host_status(),
            minutes_before(0),
            &Keymap::default()
        ),
        "@"
    );
    let trouble = host_problem(&console.model, "charlie").unwrap();
    assert_eq!(trouble.to_string(), "wants a password; @ answers");
    assert!(log(&console).is_empty(), "its question said it");
    let login = asking_host_status().host.authority();
    console.ask(passphrase_question(1, &login));
    console.press("@");
    console.advance(KEY_GUARD_TIME);
    console.type_line("open");
    console.press("Enter");
    assert_eq!(console.message_text(), "answer sent");
    let word = |console: &TestConsole| {
        hosts::state::status_label(console.model.hosts.status_of_agent("charlie").unwrap())
    };
    assert_eq!(word(&console), "CONNECTING");
    // The outcome is reported once.
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
        "box",
        Reachability::Unknown,
        &["charlie", "delta"],
    )])));
    assert_eq!(console.message_text(), "answer sent");
    set_reachability(&mut console, Reachability::Connected);
    assert_eq!(console.message_text(), format!("{login} is up"));
    set_reachability(&mut console, Reachability::Connected);
    assert_eq!(console.model.last_message.as_ref().unwrap().repeat_count, 1);
}

#[test]
fn host_that_was_never_up_is_not_back() {
    let mut console = fleet_of_four();
    set_reachability(&mut console, Reachability::Unreachable);
    set_reachability(&mut console, Reachability::Connected);
    assert_eq!(log(&console)[0], (MessageLevel::Info, "box:2222 is up"));
    set_reachability(&mut console, Reachability::Unreachable);
    set_reachability(&mut console, Reachability::Connected);
    assert_eq!(log(&console)[0], (MessageLevel::Info, "box:2222 is back"));
}

#[test]
fn answer_key_opens_question_of_host_under_cursor() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    let asked_hosts = |console: &TestConsole| {
        let Some(Overlay::AnswerQuestion(dialog)) = &console.model.overlay else {
            panic!("no question is shown: {:?}", console.model.overlay);
        };
        dialog.question.host.clone()
    };
    console.ask(passphrase_question(1, "far:2222"));
    console.ask(host_key_question(2, "box:2222"));
    console.ask(passphrase_question(3, "third:2222"));
    assert_eq!(
        console.message_text(),
        "third:2222 wants a passphrase; @ answers box:2222 first"
    );
    for (agent, host) in [
        ("charlie", "box:2222"),
        ("echo", "far:2222"),
        // A local agent: the oldest question.
        ("alpha", "far:2222"),
    ] {
        console.model.fleet.cursor_agent = Some(agent.to_string());
        assert!(console.screen_text().contains(&format!("@ {host} asks")));
        console.press("@");
        assert_eq!(asked_hosts(&console), host, "{agent}");
        console.model.overlay = None;
    }
    console.model.hosts.list.key = Some(asking_host_status().host);
    console.press("8 @");
    assert_eq!(asked_hosts(&console), "box:2222");
}

#[test]
fn unanswered_host_is_retried_only_by_key() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![
        asking_host_status(),
    ])));
    console.ask(passphrase_question(
        1,
        &asking_host_status().host.authority(),
    ));
    console.press("@ ^u Esc");
    let said = console.message_text().to_string();
    assert!(said.contains("question declined"), "{said}");
    let mut barred = host_status("box", Reachability::Unreachable, &["charlie", "delta"]);
    barred.connection.is_blocked = true;
    barred.connection.next_attempt = None;
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![barred.clone()])));
    assert_eq!(console.message_text(), said, "nothing went away");
    assert_eq!(
        hosts::state::next_attempt_text(&barred, minutes_before(0), &Keymap::default()),
        "r"
    );
    let trouble = host_problem(&console.model, "charlie").unwrap();
    assert_eq!(trouble.to_string(), "No route to host; r tries again");
    // No countdown: the text does not change with time.
    console.press("8");
    console.send(Msg::Tick);
    assert!(trouble.next_attempt.unwrap().short_text().contains('r'));
}

#[test]
fn late_answer_is_reported_as_late() {
    let mut console = fleet_on_hosts(Reachability::Unknown);
    let late = askpass::PromptEvent::AnswerTooLate("box:2222".to_string());
    console.send(Msg::PromptEvent(late));
    assert_eq!(
        console.message_text(),
        "box:2222: answered too late, the host had hung up; trying again"
    );
    set_reachability(&mut console, Reachability::Unreachable);
    assert_eq!(log(&console).len(), 1, "that it hung up was said");
}

#[test]
fn late_answer_of_connected_host_is_not_reported() {
    let mut console = fleet_on_hosts(Reachability::Unreachable);
    set_reachability(&mut console, Reachability::Connected);
    let messages = log(&console).len();
    let late = askpass::PromptEvent::AnswerTooLate("box:2222".to_string());
    console.send(Msg::PromptEvent(late));
    assert_eq!(log(&console).len(), messages, "it is up");
    set_reachability(&mut console, Reachability::Unreachable);
    assert!(log(&console)[0].1.contains("went away"));
}

#[test]
fn loss_after_late_answer_and_login_is_reported() {
    let mut console = fleet_on_hosts(Reachability::Unreachable);
    let late = askpass::PromptEvent::AnswerTooLate("box:2222".to_string());
    console.send(Msg::PromptEvent(late));
    set_reachability(&mut console, Reachability::Connected);
    set_reachability(&mut console, Reachability::Unreachable);
    assert!(log(&console)[0].1.contains("went away"));
}

#[test]
fn open_question_replaces_hint_of_earlier_failure() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    let mut asking = asking_host_status();
    let error = Error::new(
        ErrorKind::Host,
        "it wants a passphrase; the question was not answered",
    )
    .with_hint("read the agent again to get the question again");
    let failure = TransportError::new(FailureCause::Unreachable, error);
    asking.connection.error = Some(failure);
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![asking])));
    console.press("8");
    let screen = console.screen_text();
    assert!(!screen.contains("was not answered"), "{screen}");
    assert!(!screen.contains("read the agent again"), "{screen}");
    assert!(screen.contains("@ answers"), "{screen}");
}

#[test]
fn enter_distinguishes_hosts_of_one_name() {
    let mut console = fleet_on_hosts(Reachability::Connected);
    let mut other = host_status("box", Reachability::HostKeyMismatch, &["echo"]);
    other.host.user = Some("root".to_string());
    for (agent, status) in [
        ("charlie", host_status("box", Reachability::Connected, &[])),
        ("delta", host_status("box", Reachability::Connected, &[])),
        ("echo", other.clone()),
    ] {
        let place = console.model.rows.place(agent).unwrap();
        let login = status.host.authority();
        let rows = &mut console.model.rows;
        rows.change(place, |row| row.address.login = Some(login));
    }
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![other])));
    console.press("8 Enter");
    assert_eq!(console.model.fleet.filter, "host:=root@box:2222");
    assert_eq!(agent_order(&console.model), ["echo"]);
}
