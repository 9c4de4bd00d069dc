//! What hosts ask: nothing that is typed for one may ever mean anything else.

use std::time::Duration;

use memory_shepherd::console::keymap::{Key, KeyCode};
use memory_shepherd::console::model::{KEY_GUARD_TIME, Overlay, QuestionDialog};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::State;
use memory_shepherd::secret::{MAX_SECRET_BYTES, Secret};
use memory_shepherd::transport::sftp::askpass::{ExpectedAnswer, PromptEvent, Question};

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
    console.pass(KEY_GUARD_TIME);
    console
}

fn answering(console: &Console) -> &QuestionDialog {
    match &console.model.overlay {
        Some(Overlay::AnswerQuestion(answering)) => answering,
        other => panic!("no question is shown: {other:?}"),
    }
}

fn typed(console: &Console) -> &str {
    answering(console).answer.expose()
}

fn answer(id: u64, text: &str) -> Effect {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    Effect::AnswerQuestion(id, secret)
}

fn withdrawn(console: &mut Console, id: u64) {
    assert_eq!(
        console.send(Msg::PromptEvent(PromptEvent::Withdrawn(id))),
        []
    );
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
    assert_eq!(console.model.cursor_agent.as_deref(), Some("delta"));
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
    let keys = "@@x".chars().map(|c| Key::from_code(KeyCode::Char(c)));
    console.send(Msg::KeysPressed(keys.collect()));
    console.pass(KEY_GUARD_TIME / 2);
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Char('@'))]));
    console.send(Msg::TextPasted("pasted".to_string()));
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Enter)]));
    assert_eq!(typed(&console), "");
    console.pass(KEY_GUARD_TIME);
    console.type_line("@");
    assert_eq!(typed(&console), "@");
}

#[test]
fn passphrase_typed_right_behind_its_key_is_ignored() {
    let mut console = asked(&[passphrase(1, "harbour")]);
    console.press("@");
    console.effects.clear();
    console.type_line("correct horse");
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Enter)]));
    assert_eq!((typed(&console), &console.effects[..]), ("", &[][..]));
    assert!(console.model.key_guard_notice_until().is_some());
    console.pass(KEY_GUARD_TIME);
    console.type_line("correct horse");
    assert_eq!(console.press("Enter"), [answer(1, "correct horse")]);
}

#[test]
fn a_slow_line_may_bring_a_whole_passphrase_at_once() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    let keys = "correct horse battery"
        .chars()
        .map(|c| Key::from_code(KeyCode::Char(c)));
    console.send(Msg::KeysPressed(keys.collect()));
    assert_eq!(typed(&console), "correct horse battery");
}

#[test]
fn a_pasted_passphrase_is_its_first_line_and_is_not_sent_by_itself() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.type_line("a ");
    let effects = console.send(Msg::TextPasted("pasted\u{7} secret\r\nq\r\n".to_string()));
    assert_eq!(effects, []);
    assert_eq!(typed(&console), "a pasted secret");
    assert_eq!(console.press("Enter"), [answer(1, "a pasted secret")]);
}

#[test]
fn more_than_ssh_reads_is_not_taken() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    console.send(Msg::TextPasted("é".repeat(MAX_SECRET_BYTES)));
    assert_eq!(typed(&console).len(), MAX_SECRET_BYTES);
    assert!(console.said().contains("1000 bytes"), "{}", console.said());
}

#[test]
fn escape_gives_no_answer_and_says_what_asks_again() {
    let mut console = opened(&[passphrase(3, "harbour")]);
    console.type_line("secret");
    assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(3)]);
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
        [
            Effect::AllowQuestions(bravo.clone()),
            Effect::ReadAgents(bravo)
        ]
    );
    let effects = console.press("R");
    assert_eq!(effects[0], Effect::AllowQuestions(all));
    let settled = console.send(Msg::PromptEvent(PromptEvent::ConnectFinished(
        "harbour".to_string(),
    )));
    assert_eq!(settled, [Effect::ReadHost("harbour".to_string())]);
    console.pass(Duration::from_secs(600));
    let asks = |effect: &&Effect| matches!(effect, Effect::AllowQuestions(_));
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
        assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(1)]);
    }
    for yes in ["yes", FINGERPRINT] {
        let mut console = opened(&[host_key(1, "harbour")]);
        console.type_line(yes);
        assert_eq!(console.press("Enter"), [answer(1, yes)]);
    }
    let mut console = opened(&[host_key(1, "harbour")]);
    console.send(Msg::TextPasted(format!("{FINGERPRINT}\n")));
    assert_eq!(console.press("Enter"), [answer(1, FINGERPRINT)]);
}

#[test]
fn yes_and_no_are_answers_where_ssh_wants_one_of_them() {
    let consent = Question {
        expected_answer: ExpectedAnswer::Consent,
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
        expected_answer: ExpectedAnswer::NoAnswer,
        ..passphrase(1, "harbour")
    };
    let mut console = opened(std::slice::from_ref(&touch));
    assert_eq!(console.press("y Enter"), []);
    assert_eq!(typed(&console), "");
    withdrawn(&mut console, 1);
    assert!(answering(&console).is_withdrawn);
    console.press("Enter");
    assert_eq!(console.model.overlay, None);
    let mut console = opened(&[touch]);
    assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(1)]);
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
    assert_eq!(console.effects.last(), Some(&Effect::RefuseQuestion(2)));
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
    assert!(answering(&console).is_withdrawn);
    assert_eq!(typed(&console), "", "it is thrown away");
    // The rest of the passphrase has commands in it.
    console.type_line("Xyq ");
    console.send(Msg::TextPasted("more".to_string()));
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
        is_repeated: true,
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
    console.pass(KEY_GUARD_TIME);
    console.type_line("yes");
    assert_eq!(console.press("Enter"), [answer(1, "yes")]);
    assert!(console.applied().is_empty());
    assert!(!console.model.is_running());
}

#[test]
fn control_c_quits_from_a_question_too() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    assert_eq!(console.press("^c"), [Effect::CancelRun, Effect::Quit]);
}

#[test]
fn rows_do_not_move_behind_a_question() {
    let mut console = opened(&[passphrase(1, "harbour")]);
    let order = console.model.visible_agents.clone();
    console.observe(vec![crate::console_fleet::seen("alpha", State::Tampered)]);
    assert_eq!(console.model.visible_agents, order);
    console.press("Esc");
    assert_eq!(console.model.visible_agents[0], "alpha");
}

#[test]
fn where_nobody_can_listen_it_is_said() {
    let mut console = four();
    console.send(Msg::PromptEvent(PromptEvent::Unavailable(
        "cannot listen".to_string(),
    )));
    assert!(console.said().ends_with("cannot be reached: cannot listen"));
}
