//! What hosts ask: nothing that is typed for one may ever mean anything else.

use std::time::Duration;

use memory_shepherd::console::keymap::{Code, Key};
use memory_shepherd::console::model::{Answering, GUARD_TIME, Overlay};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::State;
use memory_shepherd::secret::{MOST, Secret};
use memory_shepherd::transport::sftp::askpass::{Event, Question, Wants};

use super::dirties;
use crate::console_fleet::{Console, FINGERPRINT, four, host_key, passphrase, plan};

fn asked(questions: &[Question]) -> Console {
    let mut console = four();
    for question in questions {
        console.asked(question.clone());
    }
    console
}

/// Opens the oldest question and waits until it listens.
fn opened(questions: &[Question]) -> Console {
    let mut console = asked(questions);
    assert_eq!(console.press("@"), []);
    console.pass(GUARD_TIME);
    console
}

fn answering(console: &Console) -> &Answering {
    match &console.model.overlay {
        Some(Overlay::Question(answering)) => answering,
        other => panic!("no question is shown: {other:?}"),
    }
}

fn typed(console: &Console) -> &str {
    answering(console).typed.expose()
}

fn answer(id: u64, text: &str) -> Effect {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    Effect::Answer(id, secret)
}

fn withdrawn(console: &mut Console, id: u64) {
    assert_eq!(console.send(Msg::Desk(Event::Withdrawn(id))), []);
}

#[test]
fn a_question_is_said_and_never_opens_by_itself() {
    let mut console = four();
    let drawn = dirties(&mut console, |console| {
        console.asked(passphrase(1, "harbour"))
    });
    assert!(drawn);
    assert_eq!(console.said(), "harbour wants a passphrase; @ answers");
    console.pass(Duration::from_secs(600));
    assert_eq!(console.model.overlay, None);
    // What was typed all the while goes where it went before.
    console.press("j j");
    assert_eq!(console.model.cursor.as_deref(), Some("delta"));
    assert_eq!(console.model.questions.len(), 1, "it waits");
}

#[test]
fn without_a_question_the_key_says_so() {
    let mut console = four();
    assert_eq!(console.press("@"), []);
    assert_eq!(console.model.overlay, None);
    assert_eq!(console.said(), "answer: no host asks anything");
}

#[test]
fn a_passphrase_is_typed_changed_and_sent() {
    let mut console = opened(&[passphrase(7, "harbour")]);
    console.type_line("opem");
    console.press("Backspace n");
    console.type_line(" q:/?X@ é");
    assert_eq!(typed(&console), "open q:/?X@ é");
    console.press("^u");
    assert_eq!(typed(&console), "");
    console.type_line("open sesame");
    assert_eq!(console.press("Enter"), [answer(7, "open sesame")]);
    assert_eq!(console.model.overlay, None);
    assert!(console.model.questions.is_empty());
    assert!(!format!("{:?}", console.model).contains("sesame"));
}

#[test]
fn nothing_is_sent_before_anything_is_typed() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    assert_eq!(console.press("Enter Enter"), []);
    assert!(
        console.said().contains("Esc gives no answer"),
        "{}",
        console.said()
    );
    assert_eq!(typed(&console), "");
}

#[test]
fn keys_that_come_with_the_one_that_opens_it_are_not_part_of_the_answer() {
    let mut console = asked(&[passphrase(1, "harbour")]);
    console.pass(Duration::from_secs(1));
    // In one go, and as a held key repeats them.
    let keys = "@@x".chars().map(|c| Key::plain(Code::Char(c)));
    console.send(Msg::Keys(keys.collect()));
    console.pass(GUARD_TIME / 2);
    console.send(Msg::Keys(vec![Key::plain(Code::Char('@'))]));
    console.send(Msg::Paste("pasted".to_string()));
    console.send(Msg::Keys(vec![Key::plain(Code::Enter)]));
    assert_eq!(typed(&console), "");
    console.pass(GUARD_TIME);
    console.type_line("@");
    assert_eq!(typed(&console), "@");
}

#[test]
fn passphrase_typed_right_behind_its_key_is_ignored() {
    let mut console = asked(&[passphrase(1, "harbour")]);
    console.press("@");
    console.effects.clear();
    console.type_line("correct horse");
    console.send(Msg::Keys(vec![Key::plain(Code::Enter)]));
    assert_eq!((typed(&console), &console.effects[..]), ("", &[][..]));
    assert!(console.model.ignores_keys_until().is_some());
    console.pass(GUARD_TIME);
    console.type_line("correct horse");
    assert_eq!(console.press("Enter"), [answer(1, "correct horse")]);
}

#[test]
fn a_slow_line_may_bring_a_whole_passphrase_at_once() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    let keys = "correct horse battery"
        .chars()
        .map(|c| Key::plain(Code::Char(c)));
    console.send(Msg::Keys(keys.collect()));
    assert_eq!(typed(&console), "correct horse battery");
}

#[test]
fn a_pasted_passphrase_is_its_first_line_and_is_not_sent_by_itself() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.type_line("a ");
    let effects = console.send(Msg::Paste("pasted\u{7} secret\r\nq\r\n".to_string()));
    assert_eq!(effects, []);
    assert_eq!(typed(&console), "a pasted secret");
    assert_eq!(console.press("Enter"), [answer(1, "a pasted secret")]);
}

#[test]
fn more_than_ssh_reads_is_not_taken() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.send(Msg::Paste("é".repeat(MOST)));
    assert_eq!(typed(&console).len(), MOST);
    assert!(console.said().contains("1000 bytes"), "{}", console.said());
}

#[test]
fn escape_gives_no_answer_and_says_what_asks_again() {
    let mut console = opened(&[passphrase(3, "harbour")]);
    console.type_line("secret");
    assert_eq!(console.press("Esc"), [Effect::Refuse(3)]);
    assert_eq!(console.model.overlay, None);
    assert!(console.model.questions.is_empty());
    assert_eq!(
        console.said(),
        "harbour gets no answer and is left alone; r on its agents tries again"
    );
    withdrawn(&mut console, 3);
    assert!(
        console.said().starts_with("harbour gets no answer"),
        "nothing is added"
    );
}

#[test]
fn reading_by_hand_lets_hosts_ask_again_and_reading_by_itself_does_not() {
    let mut console = four();
    let (bravo, all) = (
        vec!["bravo".to_string()],
        ["alpha", "bravo", "charlie", "delta"]
            .map(String::from)
            .to_vec(),
    );
    console.press("j");
    let effects = console.press("r");
    assert_eq!(
        effects,
        [Effect::LetAsk(bravo.clone()), Effect::Read(bravo)]
    );
    let effects = console.press("R");
    assert_eq!(effects[0], Effect::LetAsk(all));
    let settled = console.send(Msg::Desk(Event::Settled("harbour".to_string())));
    assert_eq!(settled, [Effect::ReadHost("harbour".to_string())]);
    console.pass(Duration::from_secs(600));
    let asks = |effect: &&Effect| matches!(effect, Effect::LetAsk(_));
    assert_eq!(console.effects.iter().filter(asks).count(), 2);
}

#[test]
fn a_key_is_accepted_by_the_whole_word_or_its_fingerprint_and_by_nothing_else() {
    for no in ["y", "ye", "Yes", "yes ", "no", "SHA256:jZa6", "n"] {
        let mut console = opened(&[host_key(1, "harbour")]);
        console.type_line(no);
        assert_eq!(console.press("Enter"), [], "{no:?}");
        assert!(
            console.said().starts_with("type yes in full"),
            "{}",
            console.said()
        );
        assert_eq!(typed(&console), no, "it stays to be changed");
        assert_eq!(console.press("Esc"), [Effect::Refuse(1)]);
    }
    for yes in ["yes", FINGERPRINT] {
        let mut console = opened(&[host_key(1, "harbour")]);
        console.type_line(yes);
        assert_eq!(console.press("Enter"), [answer(1, yes)]);
    }
    let mut console = opened(&[host_key(1, "harbour")]);
    console.send(Msg::Paste(format!("{FINGERPRINT}\n")));
    assert_eq!(console.press("Enter"), [answer(1, FINGERPRINT)]);
}

#[test]
fn yes_and_no_are_answers_where_ssh_wants_one_of_them() {
    let consent = Question {
        wants: Wants::Consent,
        ..passphrase(1, "harbour")
    };
    let mut console = opened(std::slice::from_ref(&consent));
    assert_eq!(console.press("y Enter"), []);
    for word in ["yes", "no"] {
        let mut console = opened(std::slice::from_ref(&consent));
        console.type_line(word);
        assert_eq!(console.press("Enter"), [answer(1, word)]);
    }
}

#[test]
fn what_goes_by_itself_takes_no_keys() {
    let touch = Question {
        wants: Wants::Nothing,
        ..passphrase(1, "harbour")
    };
    let mut console = opened(std::slice::from_ref(&touch));
    assert_eq!(console.press("y Enter"), []);
    assert_eq!(typed(&console), "");
    withdrawn(&mut console, 1);
    assert!(answering(&console).gone);
    console.press("Enter");
    assert_eq!(console.model.overlay, None);
    let mut console = opened(&[touch]);
    assert_eq!(console.press("Esc"), [Effect::Refuse(1)]);
}

#[test]
fn questions_are_answered_in_the_order_in_which_they_came() {
    let mut console = opened(&[
        passphrase(1, "harbour"),
        host_key(2, "cliff"),
        passphrase(3, "quay"),
    ]);
    console.type_line("a");
    assert_eq!(console.press("Enter"), [answer(1, "a")]);
    assert_eq!(console.model.overlay, None, "the next waits for its key");
    console.press("@ Esc");
    assert_eq!(console.effects.last(), Some(&Effect::Refuse(2)));
    console.press("@ b");
    assert_eq!(console.press("Enter"), [answer(3, "b")]);
    assert_eq!(console.press("@"), []);
    assert_eq!(console.said(), "answer: no host asks anything");
}

#[test]
fn a_question_that_goes_leaves_what_is_being_typed_nowhere() {
    let mut console = opened(&[passphrase(1, "harbour"), passphrase(2, "cliff")]);
    console.type_line("open");
    withdrawn(&mut console, 1);
    assert!(answering(&console).gone);
    assert_eq!(typed(&console), "", "it is thrown away");
    // The rest of the passphrase has commands in it.
    console.type_line("Xyq ");
    console.send(Msg::Paste("more".to_string()));
    assert_eq!(typed(&console), "");
    assert!(console.effects.is_empty(), "{:?}", console.effects);
    assert_eq!(console.press("Enter"), [], "which ends the passphrase");
    assert_eq!(console.model.overlay, None);
    assert_eq!(console.model.questions.len(), 1);
}

#[test]
fn a_question_that_goes_unseen_is_no_longer_offered() {
    let mut console = asked(&[passphrase(1, "harbour")]);
    withdrawn(&mut console, 1);
    assert_eq!(console.said(), "harbour no longer waits for a passphrase");
    console.press("@");
    assert_eq!(console.model.overlay, None);
}

#[test]
fn a_new_question_does_not_touch_the_one_that_is_being_answered() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.type_line("open");
    console.asked(passphrase(2, "cliff"));
    withdrawn(&mut console, 2);
    console.type_line(" sesame");
    assert_eq!(console.press("Enter"), [answer(1, "open sesame")]);
}

#[test]
fn an_answer_that_was_not_accepted_is_said_to_be_wrong() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.press("a Enter");
    console.asked(Question {
        id: 2,
        again: true,
        ..passphrase(2, "harbour")
    });
    assert_eq!(
        console.said(),
        "harbour did not accept that: it wants a passphrase again; @ answers"
    );
    assert_eq!(console.model.overlay, None);
}

#[test]
fn its_key_is_an_ordinary_letter_where_something_else_is_typed() {
    let mut console = asked(&[passphrase(1, "harbour")]);
    console.press("/ @ Enter");
    assert_eq!(console.model.filter, "@");
    assert_eq!(console.model.overlay, None);
    console.press("Esc");
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset@");
    assert_eq!(console.typed(), "reset@");
    assert_eq!(console.model.overlay, None);
    let mut console = asked(&[passphrase(1, "harbour")]);
    console.press(": @");
    assert!(matches!(console.model.overlay, Some(Overlay::Palette(_))));
}

#[test]
fn a_plan_behind_a_question_is_not_confirmed_by_its_answer() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.asked(host_key(1, "harbour"));
    console.press("@");
    console.pass(GUARD_TIME);
    console.type_line("yes");
    assert_eq!(console.press("Enter"), [answer(1, "yes")]);
    assert!(console.applied().is_empty());
    assert!(!console.model.is_running());
}

#[test]
fn control_c_quits_from_a_question_too() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    assert_eq!(console.press("^c"), [Effect::Cancel, Effect::Quit]);
}

#[test]
fn rows_do_not_move_behind_a_question() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    let order = console.model.order.clone();
    console.observe(vec![crate::console_fleet::seen("alpha", State::Tampered)]);
    assert_eq!(console.model.order, order);
    console.press("Esc");
    assert_eq!(console.model.order[0], "alpha");
}

#[test]
fn where_nobody_can_listen_it_is_said() {
    let mut console = four();
    console.send(Msg::Desk(Event::Unavailable("cannot listen".to_string())));
    assert!(console.said().ends_with("cannot be reached: cannot listen"));
}
