//! What hosts and keys ask of the operator.

use memory_shepherd::console::update::Msg;
use memory_shepherd::transport::sftp::askpass::{
    self, ExpectedAnswer, Question, SecretRecipient, UnknownHostKey,
};
use memory_shepherd::untrusted::Untrusted;

use super::picture;
use crate::console_fleet::{host_key, passphrase};

#[test]
fn questions() {
    picture("asked", |console| {
        console.asked(passphrase(1, "harbour"));
    });
    picture("asked_much", |console| {
        console.asked(passphrase(1, "harbour"));
        console.asked(host_key(2, "cliff"));
        console.press("j");
    });
    picture("question_passphrase", |console| {
        console.asked(passphrase(1, "harbour"));
        console.asked(host_key(2, "cliff"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    picture("question_again", |console| {
        let mut again = passphrase(1, "harbour");
        again.is_repeated = true;
        console.asked(again);
        console.press("@ ^u");
        console.type_line(&"0123456789".repeat(20));
    });
    picture("question_host_key", |console| {
        console.asked(host_key(1, "harbour"));
        console.press("@ y e Enter");
    });
    picture("question_host_key_mistyped", |console| {
        console.asked(host_key(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    picture("question_gone", |console| {
        console.asked(passphrase(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open");
        console.send(Msg::PromptEvent(askpass::PromptEvent::Withdrawn(1)));
    });
}

/// A host that asks chooses its words, and may choose them badly.
#[test]
fn hostile_questions() {
    let hostile = |wants: ExpectedAnswer| Question {
        expected_answer: wants,
        text: Untrusted::new(
            "(op@harbour) \x1b[2J\x1b]0;owned\x07\u{202e}drowssap\n\n\n".to_string()
                + &"a very long line ".repeat(40)
                + &"\nmore".repeat(30),
        ),
        ..passphrase(1, "harbour")
    };
    picture("question_hostile", |console| {
        console.asked(hostile(ExpectedAnswer::Secret(SecretRecipient::RemoteHost)));
        console.press("@ x");
    });
    picture("question_consent", |console| {
        console.asked(hostile(ExpectedAnswer::Consent));
        console.press("@ n");
    });
    picture("question_touch", |console| {
        console.asked(hostile(ExpectedAnswer::NoAnswer));
        console.press("@ x");
    });
    picture("question_hostile_key", |console| {
        let key = UnknownHostKey {
            host: Untrusted::new("\x1b[31m[".to_string() + &"host".repeat(60)),
            kind: Untrusted::new("\u{2066}"),
            fingerprint: Untrusted::new("SHA256:".to_string() + &"x\t".repeat(90)),
            notes: vec![Untrusted::new("one line\nof ".repeat(90)); 90],
        };
        console.asked(hostile(ExpectedAnswer::HostKey(key)));
        console.press("@ y");
    });
}
