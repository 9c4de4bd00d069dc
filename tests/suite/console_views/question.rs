//! Questions of hosts and keys.

use memory_shepherd::base::untrusted::Untrusted;
use memory_shepherd::console::message::Msg;
use memory_shepherd::transport::sftp::askpass::{
    self, ExpectedAnswer, Question, SecretRecipient, UnknownHostKey,
};

use super::assert_view;
use crate::engine_samples::{host_key_question, passphrase_question};

#[test]
fn questions_match_snapshot() {
    assert_view("asked", |console| {
        console.ask(passphrase_question(1, "harbour"));
    });
    assert_view("asked_much", |console| {
        console.ask(passphrase_question(1, "harbour"));
        console.ask(host_key_question(2, "cliff"));
        console.press("j");
    });
    assert_view("question_passphrase", |console| {
        console.ask(passphrase_question(1, "harbour"));
        console.ask(host_key_question(2, "cliff"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    assert_view("question_again", |console| {
        let mut again = passphrase_question(1, "harbour");
        again.is_repeated = true;
        console.ask(again);
        console.press("@ ^u");
        console.type_line(&"0123456789".repeat(20));
    });
    assert_view("question_host_key", |console| {
        console.ask(host_key_question(1, "harbour"));
        console.press("@ y e Enter");
    });
    assert_view("question_host_key_mistyped", |console| {
        console.ask(host_key_question(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    assert_view("question_gone", |console| {
        console.ask(passphrase_question(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open");
        console.send(Msg::PromptEvent(askpass::PromptEvent::Withdrawn(1)));
    });
}

/// The host writes the text of its question, which may be hostile.
#[test]
fn hostile_questions_match_snapshot() {
    let hostile = |wants: ExpectedAnswer| Question {
        expected_answer: wants,
        text: Untrusted::new(
            "(op@harbour) \x1b[2J\x1b]0;owned\x07\u{202e}drowssap\n\n\n".to_string()
                + &"a very long line ".repeat(40)
                + &"\nmore".repeat(30),
        ),
        ..passphrase_question(1, "harbour")
    };
    assert_view("question_hostile", |console| {
        console.ask(hostile(ExpectedAnswer::Secret(SecretRecipient::RemoteHost)));
        console.press("@ x");
    });
    assert_view("question_consent", |console| {
        console.ask(hostile(ExpectedAnswer::Consent));
        console.press("@ n");
    });
    assert_view("question_touch", |console| {
        console.ask(hostile(ExpectedAnswer::NoAnswer));
        console.press("@ x");
    });
    assert_view("question_hostile_key", |console| {
        let key = UnknownHostKey {
            host: Untrusted::new("\x1b[31m[".to_string() + &"host".repeat(60)),
            kind: Untrusted::new("\u{2066}"),
            fingerprint: Untrusted::new("SHA256:".to_string() + &"x\t".repeat(90)),
            notes: vec![Untrusted::new("one line\nof ".repeat(90)); 90],
        };
        console.ask(hostile(ExpectedAnswer::HostKey(key)));
        console.press("@ y");
    });
}
