//! What hosts ask: noticed, opened by a key, typed, answered or refused. Nothing
//! opens by itself, and what is typed never comes to mean anything else: the keys
//! of a passphrase are commands everywhere else.

use super::Effect;
use crate::console::command::Command;
use crate::console::keymap::{Code, Key};
use crate::console::model::{Answering, KeyGuard, MessageLevel, Model, Overlay};
use crate::secret::{MOST, Secret};
use crate::transport::sftp::askpass::{Event, Question, Wants};

/// Something happened at the desk.
pub(super) fn told(model: &mut Model, event: Event) -> Vec<Effect> {
    match event {
        Event::Asked(question) => asked(model, question),
        Event::Withdrawn(id) => withdrawn(model, id),
        // Whoever looked at its agents meanwhile did not wait.
        Event::Settled(host) => return vec![Effect::ReadHost(host)],
        Event::Late(host) => {
            model.hosts.answered.remove(&host);
            model.hosts.late.insert(host.clone());
            let text = format!("{host}: answered too late, the host had hung up; it asks anew");
            model.say(MessageLevel::Warn, text);
        }
        Event::Unavailable(why) => {
            let text = format!("hosts that ask something cannot be reached: {why}");
            model.say(MessageLevel::Warn, text);
        }
    }
    Vec::new()
}

fn asked(model: &mut Model, question: Question) {
    let (host, noun) = (&question.host, question.noun());
    let key = model.key(Command::Answer);
    let text = match question.again {
        true => format!("{host} did not accept that: it wants {noun} again; {key} answers"),
        false => format!("{host} wants {noun}; {key} answers"),
    };
    model.say(MessageLevel::Warn, text);
    model.questions.push(question);
}

fn withdrawn(model: &mut Model, id: u64) {
    let Some(place) = model.questions.iter().position(|it| it.id == id) else {
        // Answered or refused.
        return;
    };
    let question = model.questions.remove(place);
    model.hosts.hush(&question.host);
    if let Some(Overlay::Question(answering)) = &mut model.overlay
        && answering.question.id == id
    {
        answering.gone = true;
        answering.typed = Secret::new();
    }
    if question.wants != Wants::Nothing {
        let text = format!("{} no longer waits for {}", question.host, question.noun());
        model.say(MessageLevel::Info, text);
    }
    model.dirty = true;
}

/// Shows the oldest question.
pub(super) fn open(model: &mut Model) {
    if let Some(question) = model.questions.first().cloned() {
        model.overlay = Some(Overlay::Question(Answering {
            question,
            guard: KeyGuard::new(model.now.since),
            typed: Secret::new(),
            gone: false,
        }));
    }
}

pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if let Some(Overlay::Question(mut answering)) = model.overlay.take() {
        if !answering.guard.ignores(model.now.since) {
            let line = text.lines().next().unwrap_or_default();
            for c in line.chars().filter(|c| !c.is_control()) {
                add(model, &mut answering, c);
            }
        }
        model.overlay = Some(Overlay::Question(answering));
        model.dirty = true;
    }
    Vec::new()
}

fn add(model: &mut Model, answering: &mut Answering, c: char) {
    if answering.gone || answering.question.wants == Wants::Nothing {
        return;
    }
    if !answering.typed.push(c.encode_utf8(&mut [0; 4])) {
        model.hint(&format!("ssh takes no answer of more than {MOST} bytes"));
    }
}

/// A key while a question is shown; it was taken off the screen for that.
pub(super) fn key(model: &mut Model, mut answering: Answering, key: Key) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut stays = true;
    if !answering.guard.ignores(model.now.since) {
        match (key.code, key.typed()) {
            (Code::Enter | Code::Esc, _) if answering.gone => stays = false,
            (Code::Esc, _) => {
                stays = false;
                effects.push(refuse(model, &answering.question));
            }
            (Code::Enter, _) => match objection(&answering) {
                Some(why) => model.hint(why),
                None => {
                    stays = false;
                    let id = answering.question.id;
                    model.questions.retain(|it| it.id != id);
                    let host = answering.question.host.clone();
                    model.hosts.hush(&host);
                    model.hosts.answered.insert(host);
                    model.hint("the answer is on its way");
                    let typed = std::mem::take(&mut answering.typed);
                    effects.push(Effect::Answer(id, typed));
                }
            },
            (Code::Backspace, _) => answering.typed.pop(),
            (Code::Char('u'), _) if key.ctrl => answering.typed = Secret::new(),
            (_, Some(c)) => add(model, &mut answering, c),
            _ => {}
        }
    }
    if stays {
        model.overlay = Some(Overlay::Question(answering));
    }
    effects
}

fn refuse(model: &mut Model, question: &Question) -> Effect {
    model.questions.retain(|it| it.id != question.id);
    model.hosts.hush(&question.host);
    model.hosts.answered.remove(&question.host);
    let key = model.key(Command::Read);
    let host = &question.host;
    let text = format!("{host} gets no answer and is left alone; {key} on its agents tries again");
    model.say(MessageLevel::Warn, text);
    Effect::Refuse(question.id)
}

/// Why what was typed is no answer yet.
fn objection(answering: &Answering) -> Option<&'static str> {
    let wants = &answering.question.wants;
    let is_word = || {
        wants
            .words()
            .iter()
            .any(|it| it == answering.typed.expose())
    };
    match wants {
        Wants::Secret(_) if answering.typed.is_empty() => {
            Some("nothing is typed yet; Esc gives no answer")
        }
        Wants::HostKey(_) if !is_word() => {
            Some("type yes in full, or the whole fingerprint; Esc refuses the key")
        }
        Wants::Consent if !is_word() => Some("type yes or no in full; Esc gives no answer"),
        Wants::Nothing => Some("there is nothing to type; Esc gives up"),
        _ => None,
    }
}
