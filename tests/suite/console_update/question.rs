//! Questions of hosts: keys typed for a question must never act elsewhere.

use std::time::Duration;

use memory_shepherd::base::secret::{MAX_SECRET_BYTES, Secret};
use memory_shepherd::console::keys::key::{Key, KeyCode};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::overlay::{Overlay, QuestionDialog};
use memory_shepherd::console::screens::fleet::visible_agents::visible_agent;
use memory_shepherd::engine::State;
use memory_shepherd::transport::sftp::askpass::{ExpectedAnswer, PromptEvent, Question};

use super::makes_dirty;
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{FINGERPRINT, host_key_question, passphrase_question, plan};

fn console_with_questions(questions: &[Question]) -> TestConsole {
    let mut console = fleet_of_four();
    for question in questions {
        console.ask(question.clone());
    }
    console
}

/// Opens the oldest question and waits until it accepts keys.
fn console_with_open_question(questions: &[Question]) -> TestConsole {
    let mut console = console_with_questions(questions);
    assert_eq!(console.press("@"), []);
    console.advance(KEY_GUARD_TIME);
    console
}

fn open_answer(console: &TestConsole) -> &QuestionDialog {
    match &console.model.overlay {
        Some(Overlay::AnswerQuestion(answering)) => answering,
        other => panic!("no question is shown: {other:?}"),
    }
}

fn typed_answer(console: &TestConsole) -> &str {
    open_answer(console).answer.expose()
}

fn answer_effect(id: u64, text: &str) -> Effect {
    let mut secret = Secret::new();
    assert!(secret.push(text));
    Effect::AnswerQuestion(id, secret)
}

fn withdraw_question(console: &mut TestConsole, id: u64) {
    assert_eq!(
        console.send(Msg::PromptEvent(PromptEvent::Withdrawn(id))),
        []
    );
}

#[test]
fn question_is_announced_but_never_opens_itself() {
    let mut console = fleet_of_four();
    let drawn = makes_dirty(&mut console, |console| {
        console.ask(passphrase_question(1, "harbour"))
    });
    assert!(drawn);
    assert_eq!(
        console.message_text(),
        "harbour wants a passphrase; @ answers"
    );
    console.advance(Duration::from_secs(600));
    assert_eq!(console.model.overlay, None);
    // Until it is opened, keys go to the screen, not to the question.
    console.press("j j");
    assert_eq!(console.model.fleet.cursor_agent.as_deref(), Some("delta"));
    assert_eq!(console.model.questions.len(), 1, "it waits");
}

#[test]
fn question_leaves_the_hints_their_room() {
    let host = "build-runner-of-the-night-shift";
    let mut console = console_with_questions(&[host_key_question(1, host)]);
    console.send(Msg::Resized(80, 24));
    let text = console.screen_text();
    let hints = text.lines().last().unwrap();
    assert!(hints.contains("@ build-ru…t-shift asks"), "{hints}");
    assert!(hints.contains("d diff  X plan reset  P push"), "{hints}");
}

#[test]
fn answer_key_without_question_says_so() {
    let mut console = fleet_of_four();
    assert_eq!(console.press("@"), []);
    assert_eq!(console.model.overlay, None);
    assert_eq!(console.message_text(), "no questions from hosts");
}

#[test]
fn passphrase_is_typed_edited_and_sent() {
    let mut console = console_with_open_question(&[passphrase_question(7, "harbour")]);
    console.type_line("opem");
    console.press("Backspace n");
    console.type_line(" q:/?X@ é");
    assert_eq!(typed_answer(&console), "open q:/?X@ é");
    console.press("^u");
    assert_eq!(typed_answer(&console), "");
    console.type_line("open sesame");
    assert_eq!(console.press("Enter"), [answer_effect(7, "open sesame")]);
    assert_eq!(console.model.overlay, None);
    assert!(console.model.questions.is_empty());
    assert!(!format!("{:?}", console.model).contains("sesame"));
}

#[test]
fn empty_answer_is_not_sent() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    assert_eq!(console.press("Enter Enter"), []);
    assert!(
        console.message_text().contains("Esc refuses"),
        "{}",
        console.message_text()
    );
    assert_eq!(typed_answer(&console), "");
}

#[test]
fn keys_arriving_with_answer_key_are_dropped() {
    let mut console = console_with_questions(&[passphrase_question(1, "harbour")]);
    console.advance(Duration::from_secs(1));
    // In one read, and as repeats of a held key.
    let keys = "@@x".chars().map(|c| Key::from_code(KeyCode::Char(c)));
    console.send(Msg::KeysPressed(keys.collect()));
    console.advance(KEY_GUARD_TIME / 2);
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Char('@'))]));
    console.send(Msg::TextPasted("pasted".to_string()));
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Enter)]));
    assert_eq!(typed_answer(&console), "");
    console.advance(KEY_GUARD_TIME);
    console.type_line("@");
    assert_eq!(typed_answer(&console), "@");
}

#[test]
fn passphrase_typed_right_after_key_is_ignored() {
    let mut console = console_with_questions(&[passphrase_question(1, "harbour")]);
    console.press("@");
    console.effects.clear();
    console.type_line("correct horse");
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Enter)]));
    assert_eq!(
        (typed_answer(&console), &console.effects[..]),
        ("", &[][..])
    );
    assert!(console.model.key_guard_notice_until().is_some());
    console.advance(KEY_GUARD_TIME);
    console.type_line("correct horse");
    assert_eq!(console.press("Enter"), [answer_effect(1, "correct horse")]);
}

#[test]
fn passphrase_in_one_burst_is_accepted() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    let keys = "correct horse battery"
        .chars()
        .map(|c| Key::from_code(KeyCode::Char(c)));
    console.send(Msg::KeysPressed(keys.collect()));
    assert_eq!(typed_answer(&console), "correct horse battery");
}

#[test]
fn pasted_passphrase_takes_first_line_unsent() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    console.type_line("a ");
    let effects = console.send(Msg::TextPasted("pasted\u{7} secret\r\nq\r\n".to_string()));
    assert_eq!(effects, []);
    assert_eq!(typed_answer(&console), "a pasted secret");
    assert_eq!(
        console.press("Enter"),
        [answer_effect(1, "a pasted secret")]
    );
}

#[test]
fn answer_longer_than_ssh_reads_is_cut() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    console.send(Msg::TextPasted("é".repeat(MAX_SECRET_BYTES)));
    assert_eq!(typed_answer(&console).len(), MAX_SECRET_BYTES);
    assert!(
        console.message_text().contains("1000 bytes"),
        "{}",
        console.message_text()
    );
}

#[test]
fn escape_gives_no_answer_and_names_retry_key() {
    let mut console = console_with_open_question(&[passphrase_question(3, "harbour")]);
    console.type_line("secret");
    assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(3)]);
    assert_eq!(console.model.overlay, None);
    assert!(console.model.questions.is_empty());
    assert_eq!(
        console.message_text(),
        "harbour: question declined; r asks again"
    );
    withdraw_question(&mut console, 3);
    assert!(
        console
            .message_text()
            .starts_with("harbour: question declined"),
        "nothing is added"
    );
}

#[test]
fn only_manual_reads_let_hosts_ask_again() {
    let mut console = fleet_of_four();
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
    console.advance(Duration::from_secs(600));
    let asks = |effect: &&Effect| matches!(effect, Effect::AllowQuestions(_));
    assert_eq!(console.effects.iter().filter(asks).count(), 2);
}

#[test]
fn host_key_needs_full_yes_or_fingerprint() {
    for no in ["y", "ye", "Yes", "yes ", "no", "SHA256:jZa6", "n"] {
        let mut console = console_with_open_question(&[host_key_question(1, "harbour")]);
        console.type_line(no);
        assert_eq!(console.press("Enter"), [], "{no:?}");
        assert!(
            console.message_text().starts_with("type yes in full"),
            "{}",
            console.message_text()
        );
        assert_eq!(typed_answer(&console), no, "it stays to be changed");
        assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(1)]);
    }
    for yes in ["yes", FINGERPRINT] {
        let mut console = console_with_open_question(&[host_key_question(1, "harbour")]);
        console.type_line(yes);
        assert_eq!(console.press("Enter"), [answer_effect(1, yes)]);
    }
    let mut console = console_with_open_question(&[host_key_question(1, "harbour")]);
    console.send(Msg::TextPasted(format!("{FINGERPRINT}\n")));
    assert_eq!(console.press("Enter"), [answer_effect(1, FINGERPRINT)]);
}

#[test]
fn consent_question_takes_yes_or_no() {
    let consent = Question {
        expected_answer: ExpectedAnswer::Consent,
        ..passphrase_question(1, "harbour")
    };
    let mut console = console_with_open_question(std::slice::from_ref(&consent));
    assert_eq!(console.press("y Enter"), []);
    for word in ["yes", "no"] {
        let mut console = console_with_open_question(std::slice::from_ref(&consent));
        console.type_line(word);
        assert_eq!(console.press("Enter"), [answer_effect(1, word)]);
    }
}

#[test]
fn touch_question_takes_no_keys() {
    let touch = Question {
        expected_answer: ExpectedAnswer::NoAnswer,
        ..passphrase_question(1, "harbour")
    };
    let mut console = console_with_open_question(std::slice::from_ref(&touch));
    assert_eq!(console.press("y Enter"), []);
    assert_eq!(typed_answer(&console), "");
    withdraw_question(&mut console, 1);
    assert!(open_answer(&console).is_withdrawn);
    console.press("Enter");
    assert_eq!(console.model.overlay, None);
    let mut console = console_with_open_question(&[touch]);
    assert_eq!(console.press("Esc"), [Effect::RefuseQuestion(1)]);
}

#[test]
fn questions_are_answered_in_arrival_order() {
    let mut console = console_with_open_question(&[
        passphrase_question(1, "harbour"),
        host_key_question(2, "cliff"),
        passphrase_question(3, "quay"),
    ]);
    console.type_line("a");
    assert_eq!(console.press("Enter"), [answer_effect(1, "a")]);
    assert_eq!(console.model.overlay, None, "the next waits for its key");
    console.press("@ Esc");
    assert_eq!(console.effects.last(), Some(&Effect::RefuseQuestion(2)));
    console.press("@ b");
    assert_eq!(console.press("Enter"), [answer_effect(3, "b")]);
    assert_eq!(console.press("@"), []);
    assert_eq!(console.message_text(), "no questions from hosts");
}

#[test]
fn withdrawn_question_discards_typed_text() {
    let mut console = console_with_open_question(&[
        passphrase_question(1, "harbour"),
        passphrase_question(2, "cliff"),
    ]);
    console.type_line("open");
    withdraw_question(&mut console, 1);
    assert!(open_answer(&console).is_withdrawn);
    assert_eq!(typed_answer(&console), "", "it is thrown away");
    // The rest of the passphrase contains command keys.
    console.type_line("Xyq ");
    console.send(Msg::TextPasted("more".to_string()));
    assert_eq!(typed_answer(&console), "");
    assert!(console.effects.is_empty(), "{:?}", console.effects);
    assert_eq!(console.press("Enter"), [], "which ends the passphrase");
    assert_eq!(console.model.overlay, None);
    assert_eq!(console.model.questions.len(), 1);
}

#[test]
fn unseen_withdrawn_question_is_not_offered() {
    let mut console = console_with_questions(&[passphrase_question(1, "harbour")]);
    withdraw_question(&mut console, 1);
    assert_eq!(
        console.message_text(),
        "harbour: the question has expired; r asks again"
    );
    console.press("@");
    assert_eq!(console.model.overlay, None);
}

#[test]
fn new_question_keeps_the_open_one() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    console.type_line("open");
    console.ask(passphrase_question(2, "cliff"));
    withdraw_question(&mut console, 2);
    console.type_line(" sesame");
    assert_eq!(console.press("Enter"), [answer_effect(1, "open sesame")]);
}

#[test]
fn rejected_answer_is_reported() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    console.press("a Enter j");
    console.ask(repeated_question(2));
    assert_eq!(
        console.message_text(),
        "harbour: wrong passphrase; @ to try again"
    );
    assert_eq!(console.model.overlay, None);
}

fn repeated_question(id: u64) -> Question {
    Question {
        is_repeated: true,
        ..passphrase_question(id, "harbour")
    }
}

#[test]
fn rejected_answer_can_be_typed_again_at_once() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    console.press("a Enter");
    console.ask(repeated_question(2));
    assert_eq!(
        console.message_text(),
        "harbour: wrong passphrase; try again"
    );
    // What is typed ahead neither answers nor acts.
    assert_eq!(console.type_line("X"), []);
    console.advance(KEY_GUARD_TIME);
    console.type_line("sesame");
    assert_eq!(console.press("Enter"), [answer_effect(2, "sesame")]);
}

#[test]
fn answer_key_is_a_letter_in_prompts() {
    let mut console = console_with_questions(&[passphrase_question(1, "harbour")]);
    console.press("/ @ Enter");
    assert_eq!(console.model.fleet.filter, "@");
    assert_eq!(console.model.overlay, None);
    console.press("Esc");
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset@");
    assert_eq!(console.typed_confirmation(), "reset@");
    assert_eq!(console.model.overlay, None);
    let mut console = console_with_questions(&[passphrase_question(1, "harbour")]);
    console.press(": @");
    assert!(matches!(console.model.overlay, Some(Overlay::Palette(_))));
}

#[test]
fn answer_does_not_confirm_plan_behind_it() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.ask(host_key_question(1, "harbour"));
    console.press("@");
    console.advance(KEY_GUARD_TIME);
    console.type_line("yes");
    assert_eq!(console.press("Enter"), [answer_effect(1, "yes")]);
    assert!(console.applied_agents().is_empty());
    assert!(!console.model.reset.is_running());
}

#[test]
fn control_c_quits_from_question() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    assert_eq!(console.press("^c"), [Effect::CancelRun, Effect::Quit]);
}

#[test]
fn rows_stay_in_place_behind_question() {
    let mut console = console_with_open_question(&[passphrase_question(1, "harbour")]);
    let order = console.model.fleet.order.clone();
    console.observe(vec![crate::engine_samples::observation_of(
        "alpha",
        State::Tampered,
    )]);
    assert_eq!(console.model.fleet.order, order);
    console.press("Esc");
    assert_eq!(visible_agent(&console.model, 0), Some("alpha"));
}

#[test]
fn unavailable_askpass_is_reported() {
    let mut console = fleet_of_four();
    console.send(Msg::PromptEvent(PromptEvent::Unavailable(
        "cannot listen".to_string(),
    )));
    assert!(
        console
            .message_text()
            .ends_with("cannot be reached: cannot listen")
    );
}
