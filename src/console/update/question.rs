//! Questions of hosts: reported, opened by a key, answered or refused. No question opens by itself,
//! unless it repeats the one that the operator has just answered: what is typed then is meant for
//! it, and the keys of a passphrase are commands elsewhere.

use crate::base::secret::{MAX_SECRET_BYTES, Secret};
use crate::console::command::Command;
use crate::console::keys::key::{Key, KeyCode};
use crate::console::keys::key_guard::KeyGuard;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::targets::{current_question, describe_expired_question};
use crate::console::overlay::{Overlay, QuestionDialog};
use crate::transport::sftp::askpass::{ExpectedAnswer, PromptEvent, Question};

/// Handles an event of the broker of questions.
pub(super) fn handle_prompt_event(model: &mut Model, event: PromptEvent) -> Vec<Effect> {
    match event {
        PromptEvent::Asked(question) => add_question(model, question),
        PromptEvent::Withdrawn(id) => withdraw_question(model, id),
        // Reads of its agents did not wait for the connection.
        PromptEvent::ConnectFinished(host) => return vec![Effect::ReadHost(host)],
        PromptEvent::AnswerTooLate(host) => {
            model.hosts.answered_logins.remove(&host);
            // An accepted host key counts although the host had hung up: the next attempt may have
            // connected already, without another question.
            if !model.hosts.is_connected(&host) {
                let text = format!("{host}: answered too late, the host had hung up; trying again");
                model.report_warning(text);
                model.hosts.late_logins.insert(host);
            }
        }
        PromptEvent::Unavailable(why) => {
            let text = format!("hosts that ask questions cannot be reached: {why}");
            model.report_warning(text);
        }
    }
    Vec::new()
}

fn add_question(model: &mut Model, question: Question) {
    let (host, noun) = (&question.host, question.short_name());
    let key = model.key_hint(Command::AnswerQuestion);
    let is_secret = matches!(question.expected_answer, ExpectedAnswer::Secret(_));
    let opens = question.is_repeated
        && model.hosts.just_answered.as_ref() == Some(host)
        && model.overlay.is_none();
    let text = if question.is_repeated && is_secret {
        // A passphrase is checked by ssh on this machine, not by the host.
        let noun = noun.trim_start_matches("an ").trim_start_matches("a ");
        format!("{host}: wrong {noun}")
    } else if question.is_repeated {
        format!("{host} rejected the answer and wants {noun} again")
    } else {
        format!("{host} wants {noun}")
    };
    model.questions.push(question.clone());
    let current = current_question(model);
    let other = current.filter(|current| current.id != question.id);
    let next_step = match other {
        _ if opens && is_secret => "try again".to_string(),
        // The operator must not type the answer of one host into the question of another.
        Some(other) if !opens => format!("{key} answers {} first", other.host),
        _ if question.is_repeated && is_secret => format!("{key} to try again"),
        _ => format!("{key} answers"),
    };
    model.report_warning(format!("{text}; {next_step}"));
    if opens {
        open_question(model, question);
    }
}

fn withdraw_question(model: &mut Model, id: u64) {
    let Some(place) = model.questions.iter().position(|it| it.id == id) else {
        // Answered or refused.
        return;
    };
    let question = model.questions.remove(place);
    model.hosts.forget_answered(&question.host);
    if let Some(Overlay::AnswerQuestion(dialog)) = &mut model.overlay
        && dialog.question.id == id
    {
        dialog.is_withdrawn = true;
        dialog.answer = Secret::new();
    }
    if question.expected_answer != ExpectedAnswer::NoAnswer {
        let text = describe_expired_question(model, &question);
        model.report_info(text);
    }
    model.is_dirty = true;
}

/// Shows the question that the last line names.
pub fn open_current_question(model: &mut Model) {
    if let Some(question) = current_question(model).cloned() {
        open_question(model, question);
    }
}

fn open_question(model: &mut Model, question: Question) {
    model.overlay = Some(Overlay::AnswerQuestion(QuestionDialog {
        question,
        guard: KeyGuard::new(model.now.elapsed),
        answer: Secret::new(),
        is_withdrawn: false,
    }));
    model.is_dirty = true;
}

pub(super) fn paste_answer(model: &mut Model, text: &str) -> Vec<Effect> {
    if let Some(Overlay::AnswerQuestion(mut dialog)) = model.overlay.take() {
        if !dialog.guard.intercepts_key(model.now.elapsed) {
            let line = text.lines().next().unwrap_or_default();
            for c in line.chars().filter(|c| !c.is_control()) {
                push_answer_char(model, &mut dialog, c);
            }
        }
        model.overlay = Some(Overlay::AnswerQuestion(dialog));
        model.is_dirty = true;
    }
    Vec::new()
}

fn push_answer_char(model: &mut Model, dialog: &mut QuestionDialog, c: char) {
    if dialog.is_withdrawn || dialog.question.expected_answer == ExpectedAnswer::NoAnswer {
        return;
    }
    if !dialog.answer.push(c.encode_utf8(&mut [0; 4])) {
        model.show_hint(&format!(
            "ssh takes no answer of more than {MAX_SECRET_BYTES} bytes"
        ));
    }
}

/// Handles a key of the open question, and puts the question back unless the key closes it.
pub(super) fn handle_question_key(
    model: &mut Model,
    mut dialog: QuestionDialog,
    key: Key,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut is_open = true;
    if !dialog.guard.intercepts_key(model.now.elapsed) {
        match (key.code, key.printable_char()) {
            (KeyCode::Enter | KeyCode::Esc, _) if dialog.is_withdrawn => is_open = false,
            (KeyCode::Esc, _) => {
                is_open = false;
                effects.push(refuse_question(model, &dialog.question));
            }
            (KeyCode::Enter, _) => match incomplete_answer_reason(&dialog) {
                Some(why) => model.show_hint(why),
                None => {
                    is_open = false;
                    let id = dialog.question.id;
                    model.questions.retain(|it| it.id != id);
                    let host = dialog.question.host.clone();
                    model.hosts.forget_answered(&host);
                    model.hosts.just_answered = Some(host.clone());
                    model.hosts.answered_logins.insert(host);
                    model.show_hint("answer sent");
                    let typed = std::mem::take(&mut dialog.answer);
                    effects.push(Effect::AnswerQuestion(id, typed));
                }
            },
            (KeyCode::Backspace, _) => dialog.answer.pop(),
            (KeyCode::Char('u'), _) if key.has_ctrl => dialog.answer = Secret::new(),
            (_, Some(c)) => push_answer_char(model, &mut dialog, c),
            _ => {}
        }
    }
    if is_open {
        model.overlay = Some(Overlay::AnswerQuestion(dialog));
    }
    effects
}

fn refuse_question(model: &mut Model, question: &Question) -> Effect {
    model.questions.retain(|it| it.id != question.id);
    model.hosts.forget_answered(&question.host);
    model.hosts.answered_logins.remove(&question.host);
    let key = model.key_hint(Command::ReadAgent);
    let host = &question.host;
    let text = format!("{host}: question declined; {key} asks again");
    model.report_warning(text);
    Effect::RefuseQuestion(question.id)
}

/// Returns why the typed text is not an answer yet.
fn incomplete_answer_reason(dialog: &QuestionDialog) -> Option<&'static str> {
    let wants = &dialog.question.expected_answer;
    let is_word = || {
        wants
            .accepted_words()
            .iter()
            .any(|it| it == dialog.answer.expose())
    };
    match wants {
        ExpectedAnswer::Secret(_) if dialog.answer.is_empty() => {
            Some("type the answer; Esc refuses")
        }
        ExpectedAnswer::HostKey(_) if !is_word() => {
            Some("type yes in full, or the whole fingerprint; Esc refuses the key")
        }
        ExpectedAnswer::Consent if !is_word() => Some("type yes or no in full; Esc refuses"),
        ExpectedAnswer::NoAnswer => Some("nothing to type; Esc cancels"),
        _ => None,
    }
}
