//! Hosts that come and go, their screen, and agents that cannot be reached.

use memory_shepherd::console::keymap::Keymap;
use memory_shepherd::console::model::{self, Confirmation, KEY_GUARD_TIME, MessageLevel, Screen};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::{ConnectionSetting, HostStatus, Reachability, State};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::sftp::askpass;
use memory_shepherd::transport::{FailureCause, TransportError};

use super::{BASELINE, MEMORY, MINUTE, SECOND, dirties, order};
use crate::console_fleet::{Console, ago, fleet, four, host, passphrase, plan, seen, skipped};

/// Two agents here, two on `box`, one on `far`.
fn spread(reach: Reachability) -> Console {
    let mut console = fleet(&[
        ("alpha", State::Clean),
        ("bravo", State::Scratch),
        ("charlie", State::Drifted),
        ("delta", State::Scratch),
        ("echo", State::Scratch),
    ]);
    let remote = ["charlie", "delta"].map(|name| {
        let mut seen = seen(
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
    console.send(Msg::HostsChanged(vec![
        host("box", Reachability::Connected, &["charlie", "delta"]),
        host("far", Reachability::Connected, &["echo"]),
    ]));
    if reach != Reachability::Connected {
        stands(&mut console, reach);
    }
    console
}

/// `box` stands like this from now on.
fn stands(console: &mut Console, reach: Reachability) {
    console.send(Msg::HostsChanged(vec![host(
        "box",
        reach,
        &["charlie", "delta"],
    )]));
    let state = match reach {
        Reachability::Unreachable => State::Unreach,
        Reachability::HostKeyMismatch => State::HostKey,
        Reachability::Refused => State::Error,
        Reachability::Unknown | Reachability::Connected => return,
    };
    let mut cut_off = ["charlie", "delta"].map(|name| seen(name, state));
    cut_off
        .iter_mut()
        .for_each(|seen| seen.host = "box".to_string());
    console.observe(cut_off.to_vec());
}

fn log(console: &Console) -> Vec<(MessageLevel, &str)> {
    let messages = console.model.log.messages.iter();
    messages.map(|it| (it.level, it.text.as_str())).collect()
}

#[test]
fn it_is_said_once_when_a_host_goes_and_once_when_it_is_back() {
    let mut console = spread(Reachability::Connected);
    assert!(log(&console).is_empty(), "that all is well is not said");
    let mut away = host("box", Reachability::Unreachable, &["charlie", "delta"]);
    for failures in 1..10 {
        // Between two tries, and while one is under way.
        away.connection.failures = failures;
        away.connection.is_connecting = failures % 2 == 0;
        console.send(Msg::HostsChanged(vec![away.clone()]));
    }
    assert_eq!(
        log(&console),
        [(MessageLevel::Warn, "box:2222 went away: No route to host")]
    );
    stands(&mut console, Reachability::Connected);
    assert_eq!(log(&console)[0], (MessageLevel::Info, "box:2222 is back"));
    stands(&mut console, Reachability::Refused);
    assert_eq!(
        log(&console)[0],
        (
            MessageLevel::Error,
            "box:2222 cannot be used: Permission denied (publickey)"
        )
    );
    stands(&mut console, Reachability::HostKeyMismatch);
    assert_eq!(log(&console)[0].0, MessageLevel::Error);
    assert!(
        log(&console)[0]
            .1
            .starts_with("box:2222 shows another host key")
    );
    assert_eq!(log(&console).len(), 4);
}

#[test]
fn a_host_that_was_never_reached_does_not_go_away() {
    let mut console = four();
    console.send(Msg::HostsChanged(vec![host(
        "box",
        Reachability::Unreachable,
        &["alpha"],
    )]));
    assert_eq!(
        log(&console),
        [(
            MessageLevel::Warn,
            "box:2222 cannot be reached: No route to host"
        )]
    );
}

#[test]
fn trouble_of_our_own_setup_is_not_laid_upon_a_host() {
    let mut console = four();
    let mut status = host("box", Reachability::Refused, &["alpha"]);
    let why = "ssh is not installed here, and agents on other hosts are reached by it";
    let error = Error::new(ErrorKind::Host, why);
    status.connection.error = Some(TransportError::new(FailureCause::Refused, error));
    console.send(Msg::HostsChanged(vec![status]));
    let said = format!("box:2222 cannot be used: {why}");
    assert_eq!(log(&console), [(MessageLevel::Error, said.as_str())]);
}

#[test]
fn a_host_of_the_config_before_is_ignored() {
    let mut console = four();
    assert!(!dirties(&mut console, |console| {
        console.send(Msg::HostsChanged(vec![host(
            "old",
            Reachability::Unreachable,
            &["nobody"],
        )]));
    }));
    assert!(console.model.hosts.sorted_statuses().is_empty());
}

#[test]
fn plan_of_an_unreachable_agent_skips_it_and_says_why() {
    for reach in [
        Reachability::Unreachable,
        Reachability::HostKeyMismatch,
        Reachability::Refused,
    ] {
        let mut console = spread(reach);
        console.press("/");
        console.type_line("delta");
        console.press("Enter");
        let mut empty = plan(&[]);
        empty.skipped = vec![skipped("delta", State::Unreach, "box cannot be reached")];
        for key in ["X", "z", "Z"] {
            console.plan(key, empty.clone());
            assert_eq!(*console.form(), Confirmation::NothingToRun, "{key}");
            assert_eq!(console.press("y"), [], "{key}");
            console.press("Esc");
        }
    }
}

#[test]
fn enter_shows_the_agents_of_a_host_and_r_tries_it() {
    let mut console = spread(Reachability::Unreachable);
    let effects = console.press("8");
    let worst = host("box", Reachability::Unreachable, &[]).host;
    assert_eq!(effects, [Effect::LoadHostSettings(worst.clone())]);
    assert_eq!(console.model.screen, Screen::Hosts);
    let agents = || vec!["charlie".to_string(), "delta".to_string()];
    // It may ask again.
    let tried = [
        Effect::AllowQuestions(agents()),
        Effect::ReadAgents(agents()),
    ];
    assert_eq!(console.press("r"), tried);
    assert_eq!(console.said(), "trying box:2222 now");
    // What is known is not asked again.
    let setting = ConnectionSetting {
        name: "hostname".to_string(),
        value: "10.0.0.50".to_string(),
    };
    console.send(Msg::HostSettingsLoaded(worst, Ok(vec![setting])));
    assert_eq!(
        console.press("j"),
        [Effect::LoadHostSettings(
            host("far", Reachability::Connected, &[]).host
        )]
    );
    assert!(console.press("k").is_empty());
    console.press("Enter");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert_eq!(order(&console.model), ["charlie", "delta"]);
    console.press("8 q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn the_cursor_stays_on_its_host_wherever_that_goes() {
    let mut console = spread(Reachability::Connected);
    console.press("8");
    let current = |console: &Console| {
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
    console.send(Msg::HostsChanged(vec![host(
        "far",
        Reachability::Unreachable,
        &["echo"],
    )]));
    assert_eq!(current(&console), "far");
    assert_eq!(console.model.hosts.cursor_index(), 0);
    console.press("j");
    assert_eq!(current(&console), "box");
    console.press("gg G G");
    assert_eq!(current(&console), "box");
}

#[test]
fn without_hosts_their_screen_is_empty_and_does_nothing() {
    let mut console = four();
    assert!(console.press("8").is_empty());
    assert!(console.press("j r Enter").is_empty());
    assert!(!console.said().is_empty());
}

#[test]
fn what_was_read_last_is_kept_while_an_agent_cannot_be_reached() {
    let mut console = spread(Reachability::Unreachable);
    let row = console.model.find_row("charlie").unwrap();
    assert_eq!(row.state(), State::Unreach);
    assert_eq!(
        row.last_readable_observation().unwrap().state,
        State::Drifted
    );
    // A run of the console after this one knows it, too.
    assert!(row.last_readable_observation().unwrap().is_content_known());
    assert!(console.model.host_problem("alpha").is_none());
    let mut back = seen("charlie", State::Clean);
    back.host = "box".to_string();
    console.observe(vec![back]);
    let row = console.model.find_row("charlie").unwrap();
    assert_eq!(row.last_readable_observation().unwrap().state, State::Clean);
}

#[test]
fn a_copy_is_one_until_the_agent_can_be_read_again() {
    let mut console = spread(Reachability::Unreachable);
    console.open("charlie", MEMORY, Some(BASELINE));
    console.copied("charlie", MEMORY, Some(BASELINE), 130);
    assert_eq!(console.model.agent.cached_at, Some(ago(130)));
    assert!(!console.model.agent.diff.lines.is_empty());
    // The next agent has nothing of it.
    console.press("]");
    assert_eq!(console.model.agent.cached_at, None);
    console.press("[");
    console.copied("charlie", MEMORY, Some(BASELINE), 130);
    stands(&mut console, Reachability::Connected);
    let mut back = seen("charlie", State::Drifted);
    back.host = "box".to_string();
    let effects = console.observe(vec![back]);
    assert_eq!(effects, [Effect::PrepareTexts("charlie".to_string())]);
    console.texts("charlie", MEMORY, Some(BASELINE));
    assert_eq!(console.model.agent.cached_at, None);
}

#[test]
fn an_idle_screen_of_hosts_is_drawn_when_an_age_changes_and_else_not() {
    for key in ["1", "8"] {
        let mut console = spread(Reachability::Unreachable);
        console.press(key);
        console.send(Msg::Tick);
        // The same again is nothing new.
        let same = host("box", Reachability::Unreachable, &["charlie", "delta"]);
        assert!(!dirties(&mut console, |console| {
            console.now += SECOND;
            console.send(Msg::HostsChanged(vec![same.clone()]));
            console.send(Msg::Tick);
        }));
        let drawn = dirties(&mut console, |console| {
            console.pass(3 * MINUTE);
        });
        assert!(drawn, "the next try is due");
    }
}

/// `box`, new and waiting for an answer.
fn asking() -> HostStatus {
    let mut asks = host("box", Reachability::Unknown, &["charlie", "delta"]);
    asks.connection.pending_prompt = Some("a password");
    asks
}

#[test]
fn a_host_that_asks_says_so_until_it_is_answered() {
    let mut console = spread(Reachability::Connected);
    console.send(Msg::HostsChanged(vec![asking()]));
    assert_eq!(model::status_label(&asking()), "ASKS");
    assert_eq!(
        model::next_attempt_text(&asking(), ago(0), &Keymap::default()),
        "@"
    );
    let trouble = console.model.host_problem("charlie").unwrap();
    assert_eq!(trouble.to_string(), "wants a password; @ answers");
    assert!(log(&console).is_empty(), "its question said it");
    let login = asking().host.authority();
    console.asked(passphrase(1, &login));
    console.press("@");
    console.pass(KEY_GUARD_TIME);
    console.type_line("open");
    console.press("Enter");
    assert_eq!(console.said(), "the answer is on its way");
    let word = |console: &Console| {
        model::status_label(console.model.hosts.status_of_agent("charlie").unwrap())
    };
    assert_eq!(word(&console), "CONNECTING");
    // What came of it is said, once.
    console.send(Msg::HostsChanged(vec![host(
        "box",
        Reachability::Unknown,
        &["charlie", "delta"],
    )]));
    assert_eq!(console.said(), "the answer is on its way");
    stands(&mut console, Reachability::Connected);
    assert_eq!(console.said(), format!("{login} is up"));
    stands(&mut console, Reachability::Connected);
    assert_eq!(console.model.last_message.as_ref().unwrap().repeat_count, 1);
}

#[test]
fn a_host_that_got_no_answer_is_tried_when_the_operator_wants_it_and_not_before() {
    let mut console = spread(Reachability::Connected);
    console.send(Msg::HostsChanged(vec![asking()]));
    console.asked(passphrase(1, &asking().host.authority()));
    console.press("@ ^u Esc");
    let said = console.said().to_string();
    assert!(said.contains("is left alone"), "{said}");
    let mut barred = host("box", Reachability::Unreachable, &["charlie", "delta"]);
    barred.connection.is_blocked = true;
    barred.connection.next_attempt = None;
    console.send(Msg::HostsChanged(vec![barred.clone()]));
    assert_eq!(console.said(), said, "nothing went away");
    assert_eq!(
        model::next_attempt_text(&barred, ago(0), &Keymap::default()),
        "r"
    );
    let trouble = console.model.host_problem("charlie").unwrap();
    assert_eq!(trouble.to_string(), "No route to host; r tries again");
    // No countdown: nothing changes with time.
    console.press("8");
    console.send(Msg::Tick);
    assert!(trouble.next_attempt.unwrap().short_text().contains('r'));
}

#[test]
fn an_answer_that_came_too_late_is_said_to_be() {
    let mut console = spread(Reachability::Connected);
    let late = askpass::PromptEvent::AnswerTooLate("box:2222".to_string());
    console.send(Msg::PromptEvent(late));
    assert_eq!(
        console.said(),
        "box:2222: answered too late, the host had hung up; it asks anew"
    );
    stands(&mut console, Reachability::Unreachable);
    assert_eq!(log(&console).len(), 1, "that it hung up was said");
}

#[test]
fn enter_tells_hosts_of_one_name_apart() {
    let mut console = spread(Reachability::Connected);
    let mut other = host("box", Reachability::HostKeyMismatch, &["echo"]);
    other.host.user = Some("root".to_string());
    for (agent, status) in [
        ("charlie", host("box", Reachability::Connected, &[])),
        ("delta", host("box", Reachability::Connected, &[])),
        ("echo", other.clone()),
    ] {
        let row = console.model.rows.iter_mut().find(|row| row.name == agent);
        row.unwrap().address.login = Some(status.host.authority());
    }
    console.send(Msg::HostsChanged(vec![other]));
    console.press("8 Enter");
    assert_eq!(console.model.filter, "host:=root@box:2222");
    assert_eq!(order(&console.model), ["echo"]);
}
