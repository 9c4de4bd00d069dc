//! Hosts that come and go, their screen, and agents that cannot be reached.

use memory_shepherd::console::keymap::Keymap;
use memory_shepherd::console::model::{self, Confirmation, GUARD_TIME, MessageLevel, Screen};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::{ConnectionSetting, HostStatus, Reachability, State};
use memory_shepherd::error::{Error, Kind};
use memory_shepherd::transport::sftp::askpass;
use memory_shepherd::transport::{Cause, TransportError};

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
    console.send(Msg::Hosts(vec![
        host("box", Reachability::Up, &["charlie", "delta"]),
        host("far", Reachability::Up, &["echo"]),
    ]));
    if reach != Reachability::Up {
        stands(&mut console, reach);
    }
    console
}

/// `box` stands like this from now on.
fn stands(console: &mut Console, reach: Reachability) {
    console.send(Msg::Hosts(vec![host("box", reach, &["charlie", "delta"])]));
    let state = match reach {
        Reachability::Away => State::Unreach,
        Reachability::HostKey => State::HostKey,
        Reachability::Refused => State::Error,
        Reachability::Unknown | Reachability::Up => return,
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
    let mut console = spread(Reachability::Up);
    assert!(log(&console).is_empty(), "that all is well is not said");
    let mut away = host("box", Reachability::Away, &["charlie", "delta"]);
    for failures in 1..10 {
        // Between two tries, and while one is under way.
        away.contact.failures = failures;
        away.contact.trying = failures % 2 == 0;
        console.send(Msg::Hosts(vec![away.clone()]));
    }
    assert_eq!(
        log(&console),
        [(MessageLevel::Warn, "box:2222 went away: No route to host")]
    );
    stands(&mut console, Reachability::Up);
    assert_eq!(log(&console)[0], (MessageLevel::Info, "box:2222 is back"));
    stands(&mut console, Reachability::Refused);
    assert_eq!(
        log(&console)[0],
        (
            MessageLevel::Error,
            "box:2222 cannot be used: Permission denied (publickey)"
        )
    );
    stands(&mut console, Reachability::HostKey);
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
    console.send(Msg::Hosts(vec![host(
        "box",
        Reachability::Away,
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
    let error = Error::new(Kind::Host, why);
    status.contact.error = Some(TransportError::new(Cause::Refused, error));
    console.send(Msg::Hosts(vec![status]));
    let said = format!("box:2222 cannot be used: {why}");
    assert_eq!(log(&console), [(MessageLevel::Error, said.as_str())]);
}

#[test]
fn a_host_of_the_config_before_is_ignored() {
    let mut console = four();
    assert!(!dirties(&mut console, |console| {
        console.send(Msg::Hosts(vec![host(
            "old",
            Reachability::Away,
            &["nobody"],
        )]));
    }));
    assert!(console.model.hosts.order().is_empty());
}

#[test]
fn plan_of_an_unreachable_agent_skips_it_and_says_why() {
    for reach in [
        Reachability::Away,
        Reachability::HostKey,
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
            assert_eq!(*console.form(), Confirmation::Nothing, "{key}");
            assert_eq!(console.press("y"), [], "{key}");
            console.press("Esc");
        }
    }
}

#[test]
fn enter_shows_the_agents_of_a_host_and_r_tries_it() {
    let mut console = spread(Reachability::Away);
    let effects = console.press("8");
    let worst = host("box", Reachability::Away, &[]).host;
    assert_eq!(effects, [Effect::Settings(worst.clone())]);
    assert_eq!(console.model.screen, Screen::Hosts);
    let agents = || vec!["charlie".to_string(), "delta".to_string()];
    // It may ask again.
    let tried = [Effect::LetAsk(agents()), Effect::Read(agents())];
    assert_eq!(console.press("r"), tried);
    assert_eq!(console.said(), "trying box:2222 now");
    // What is known is not asked again.
    let setting = ConnectionSetting {
        name: "hostname".to_string(),
        value: "10.0.0.50".to_string(),
    };
    console.send(Msg::Settings(worst, Ok(vec![setting])));
    assert_eq!(
        console.press("j"),
        [Effect::Settings(host("far", Reachability::Up, &[]).host)]
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
    let mut console = spread(Reachability::Up);
    console.press("8");
    let current = |console: &Console| console.model.hosts.current().unwrap().host.name.clone();
    assert_eq!(current(&console), "box");
    console.press("j");
    assert_eq!(current(&console), "far");
    console.send(Msg::Hosts(vec![host("far", Reachability::Away, &["echo"])]));
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
    let mut console = spread(Reachability::Away);
    let row = console.model.row("charlie").unwrap();
    assert_eq!(row.state(), State::Unreach);
    assert_eq!(row.last_read().unwrap().state, State::Drifted);
    // A run of the console after this one knows it, too.
    assert!(row.last_read().unwrap().was_read());
    assert!(console.model.cut_off("alpha").is_none());
    let mut back = seen("charlie", State::Clean);
    back.host = "box".to_string();
    console.observe(vec![back]);
    let row = console.model.row("charlie").unwrap();
    assert_eq!(row.last_read().unwrap().state, State::Clean);
}

#[test]
fn a_copy_is_one_until_the_agent_can_be_read_again() {
    let mut console = spread(Reachability::Away);
    console.open("charlie", MEMORY, Some(BASELINE));
    console.copied("charlie", MEMORY, Some(BASELINE), 130);
    assert_eq!(console.model.agent.copied, Some(ago(130)));
    assert!(!console.model.agent.diff.lines.is_empty());
    // The next agent has nothing of it.
    console.press("]");
    assert_eq!(console.model.agent.copied, None);
    console.press("[");
    console.copied("charlie", MEMORY, Some(BASELINE), 130);
    stands(&mut console, Reachability::Up);
    let mut back = seen("charlie", State::Drifted);
    back.host = "box".to_string();
    let effects = console.observe(vec![back]);
    assert_eq!(effects, [Effect::Texts("charlie".to_string())]);
    console.texts("charlie", MEMORY, Some(BASELINE));
    assert_eq!(console.model.agent.copied, None);
}

#[test]
fn an_idle_screen_of_hosts_is_drawn_when_an_age_changes_and_else_not() {
    for key in ["1", "8"] {
        let mut console = spread(Reachability::Away);
        console.press(key);
        console.send(Msg::Tick);
        // The same again is nothing new.
        let same = host("box", Reachability::Away, &["charlie", "delta"]);
        assert!(!dirties(&mut console, |console| {
            console.now += SECOND;
            console.send(Msg::Hosts(vec![same.clone()]));
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
    asks.contact.asks = Some("a password");
    asks
}

#[test]
fn a_host_that_asks_says_so_until_it_is_answered() {
    let mut console = spread(Reachability::Up);
    console.send(Msg::Hosts(vec![asking()]));
    assert_eq!(model::word(&asking()), "ASKS");
    assert_eq!(model::next_try(&asking(), ago(0), &Keymap::default()), "@");
    let trouble = console.model.cut_off("charlie").unwrap();
    assert_eq!(trouble.to_string(), "wants a password; @ answers");
    assert!(log(&console).is_empty(), "its question said it");
    let login = asking().host.login();
    console.asked(passphrase(1, &login));
    console.press("@");
    console.pass(GUARD_TIME);
    console.type_line("open");
    console.press("Enter");
    assert_eq!(console.said(), "the answer is on its way");
    let word = |console: &Console| model::word(console.model.hosts.of("charlie").unwrap());
    assert_eq!(word(&console), "CONNECTING");
    // What came of it is said, once.
    console.send(Msg::Hosts(vec![host(
        "box",
        Reachability::Unknown,
        &["charlie", "delta"],
    )]));
    assert_eq!(console.said(), "the answer is on its way");
    stands(&mut console, Reachability::Up);
    assert_eq!(console.said(), format!("{login} is up"));
    stands(&mut console, Reachability::Up);
    assert_eq!(console.model.message.as_ref().unwrap().count, 1);
}

#[test]
fn a_host_that_got_no_answer_is_tried_when_the_operator_wants_it_and_not_before() {
    let mut console = spread(Reachability::Up);
    console.send(Msg::Hosts(vec![asking()]));
    console.asked(passphrase(1, &asking().host.login()));
    console.press("@ ^u Esc");
    let said = console.said().to_string();
    assert!(said.contains("is left alone"), "{said}");
    let mut barred = host("box", Reachability::Away, &["charlie", "delta"]);
    barred.contact.barred = true;
    barred.contact.next = None;
    console.send(Msg::Hosts(vec![barred.clone()]));
    assert_eq!(console.said(), said, "nothing went away");
    assert_eq!(model::next_try(&barred, ago(0), &Keymap::default()), "r");
    let trouble = console.model.cut_off("charlie").unwrap();
    assert_eq!(trouble.to_string(), "No route to host; r tries again");
    // No countdown: nothing changes with time.
    console.press("8");
    console.send(Msg::Tick);
    assert!(trouble.next.unwrap().short().contains('r'));
}

#[test]
fn an_answer_that_came_too_late_is_said_to_be() {
    let mut console = spread(Reachability::Up);
    let late = askpass::Event::Late("box:2222".to_string());
    console.send(Msg::Desk(late));
    assert_eq!(
        console.said(),
        "box:2222: answered too late, the host had hung up; it asks anew"
    );
    stands(&mut console, Reachability::Away);
    assert_eq!(log(&console).len(), 1, "that it hung up was said");
}

#[test]
fn enter_tells_hosts_of_one_name_apart() {
    let mut console = spread(Reachability::Up);
    let mut other = host("box", Reachability::HostKey, &["echo"]);
    other.host.user = Some("root".to_string());
    for (agent, status) in [
        ("charlie", host("box", Reachability::Up, &[])),
        ("delta", host("box", Reachability::Up, &[])),
        ("echo", other.clone()),
    ] {
        let row = console.model.rows.iter_mut().find(|row| row.name == agent);
        row.unwrap().address.login = Some(status.host.login());
    }
    console.send(Msg::Hosts(vec![other]));
    console.press("8 Enter");
    assert_eq!(console.model.filter, "host:=root@box:2222");
    assert_eq!(order(&console.model), ["echo"]);
}
