//! A question of a host's, over the lower part of a screen.

use ratatui::layout::Rect;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::{
    Canvas, KEYS_IGNORED_NOTICE, fit_end_of_sentence, format_count, shorten_untrusted,
    truncate_untrusted,
};
use crate::console::model::{Model, QuestionDialog};
use crate::console::theme::Role;
use crate::transport::sftp::askpass::{ExpectedAnswer, SecretRecipient, UnknownHostKey};
use crate::untrusted::{RevealOptions, Untrusted};

/// The most lines of ssh's own words.
const MAX_SSH_MESSAGE_LINES: usize = 4;

/// Text in roles, made visible.
type RoleLine = Vec<(String, Role)>;

pub(super) fn draw(model: &Model, answering: &QuestionDialog, canvas: &mut Canvas<'_>) {
    let width = usize::from(canvas.width()).saturating_sub(2);
    let mut lines = vec![title_line(model, answering, width)];
    if answering.is_withdrawn {
        lines.push(own_line(
            "What was typed is thrown away; Enter closes this.",
            Role::Text,
        ));
    } else {
        push_body(answering, width, &mut lines);
    }
    if model.key_guard_notice_until().is_some() {
        lines.pop();
        lines.push(own_line(KEYS_IGNORED_NOTICE, Role::Warn));
    }
    // The row of messages is below this.
    let said = model
        .last_message
        .as_ref()
        .filter(|_| !answering.is_withdrawn);
    lines.extend(said.map(|said| own_line(&fit_end_of_sentence(&said.text, width), Role::Warn)));
    let height = lines.len() as u16 + 1;
    let y = canvas.area.height.saturating_sub(height);
    canvas.clear(Rect::new(0, y, canvas.area.width, height));
    canvas.draw_rule(y);
    for (line, y) in lines.iter().zip(y + 1..) {
        let mut x = 1;
        for (text, role) in line {
            x = canvas.put_text(x, y, text, *role);
        }
    }
}

fn own_line(text: &str, role: Role) -> RoleLine {
    vec![(text.to_string(), role)]
}

fn title_line(model: &Model, answering: &QuestionDialog, width: usize) -> RoleLine {
    let question = &answering.question;
    let text = match answering.is_withdrawn {
        true => format!(
            "{} no longer waits for {}",
            question.host,
            question.short_name()
        ),
        false => format!("{} wants {}", question.host, question.short_name()),
    };
    let role = if answering.is_withdrawn {
        Role::Warn
    } else {
        Role::Title
    };
    let mut line = own_line(&truncate_untrusted(&text, width), role);
    let others = model
        .questions
        .iter()
        .filter(|it| it.id != question.id)
        .count() as u64;
    if others > 0 {
        line.push((
            format!("   {} after it", format_count(others, "question")),
            Role::Dim,
        ));
    }
    line
}

fn push_body(answering: &QuestionDialog, width: usize, lines: &mut Vec<RoleLine>) {
    let question = &answering.question;
    if let ExpectedAnswer::HostKey(key) = &question.expected_answer {
        push_host_key(key, width, lines);
    } else {
        let words = question.text.as_bytes().split(|byte| *byte == b'\n');
        let words = words.filter(|line| !line.trim_ascii().is_empty());
        lines.extend(
            words
                .flat_map(|line| wrap_untrusted(line, width))
                .take(MAX_SSH_MESSAGE_LINES),
        );
    }
    if question.is_repeated {
        lines.push(own_line(
            "What was typed before was not accepted.",
            Role::Warn,
        ));
    }
    let say = match &question.expected_answer {
        ExpectedAnswer::Secret(SecretRecipient::LocalSsh) => {
            "ssh on this machine asks: what you type does not leave it."
        }
        ExpectedAnswer::Secret(SecretRecipient::RemoteHost) => {
            "What you type is sent to the host that asks."
        }
        ExpectedAnswer::HostKey(_) => {
            "Type yes, or the fingerprint itself: then ssh adds the key to known_hosts."
        }
        ExpectedAnswer::Consent => "Type yes or no.",
        ExpectedAnswer::NoAnswer => "This goes by itself once that is done.",
    };
    lines.push(own_line(say, Role::Text));
    let typed = &answering.answer;
    match &question.expected_answer {
        ExpectedAnswer::Secret(_) => lines.push(input_line(mask_answer(typed.char_count(), width))),
        // These are no secrets; who compares a fingerprint must see it.
        ExpectedAnswer::HostKey(_) | ExpectedAnswer::Consent => {
            let typed = Untrusted::new(typed.expose()).to_visible_line();
            lines.push(input_line(shorten_untrusted(
                &typed,
                width.saturating_sub(4),
            )));
        }
        ExpectedAnswer::NoAnswer => {}
    }
    let mut keys = Vec::new();
    if question.expected_answer != ExpectedAnswer::NoAnswer {
        keys.extend([
            key_part("Enter"),
            text_part("answers  "),
            key_part("^u"),
            text_part("clears  "),
        ]);
    }
    keys.extend([
        key_part("Esc"),
        text_part("gives no answer: the host is left alone"),
    ]);
    lines.push(keys);
}

fn key_part(text: &str) -> (String, Role) {
    (text.to_string(), Role::Key)
}

fn text_part(text: &str) -> (String, Role) {
    (format!(" {text}"), Role::Text)
}

fn input_line(text: String) -> RoleLine {
    vec![
        ("> ".to_string(), Role::Key),
        (text, Role::Prompt),
        ("_".to_string(), Role::Prompt),
    ]
}

/// As many bullets as characters were typed, and a number where they do not fit.
fn mask_answer(typed: usize, width: usize) -> String {
    let room = width.saturating_sub(12);
    match typed.checked_sub(room) {
        None | Some(0) => "•".repeat(typed),
        Some(more) => format!("{}+{more}", "•".repeat(room)),
    }
}

fn push_host_key(key: &UnknownHostKey, width: usize, lines: &mut Vec<RoleLine>) {
    let fields = [
        ("host", &key.host),
        ("key", &key.kind),
        ("fingerprint", &key.fingerprint),
    ];
    for (name, value) in fields {
        // Its end counts as much as its beginning.
        let value = wrap_untrusted(value.as_bytes(), width.saturating_sub(13));
        for (number, part) in value.into_iter().take(2).enumerate() {
            let name = if number == 0 { name } else { "" };
            let mut line = own_line(&format!("{name:<13}"), Role::Dim);
            line.extend(part);
            lines.push(line);
        }
    }
    let more = key
        .notes
        .iter()
        .flat_map(|line| wrap_untrusted(line.as_bytes(), width));
    lines.extend(more.take(MAX_SSH_MESSAGE_LINES));
    let compare = "Compare it with what you were told by another way than this network.";
    lines.push(own_line(compare, Role::Text));
}

/// Foreign text, made visible, in lines of a width.
fn wrap_untrusted(text: &[u8], width: usize) -> Vec<RoleLine> {
    let mut lines = vec![RoleLine::new()];
    let mut used = 0;
    for token in Untrusted::new(text).to_tokens(RevealOptions::PROSE) {
        let role = if token.is_mark {
            Role::Revealed
        } else {
            Role::Text
        };
        for grapheme in token.text.graphemes(true) {
            let cells = grapheme.width();
            if used + cells > width && used > 0 {
                lines.push(RoleLine::new());
                used = 0;
            }
            used += cells;
            let line = lines.len() - 1;
            match lines[line].last_mut() {
                Some((text, last)) if *last == role => text.push_str(grapheme),
                _ => lines[line].push((grapheme.to_string(), role)),
            }
        }
    }
    lines
}
