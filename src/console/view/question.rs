//! Draws a host's question over the lower part of a screen.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::base::quantity::format_count;
use crate::base::untrusted::{RevealOptions, Untrusted};
use crate::console::frame::KEYS_IGNORED_NOTICE;
use crate::console::model::Model;
use crate::console::model::targets::describe_expired_question;
use crate::console::overlay::QuestionDialog;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, shorten_untrusted, truncate_untrusted,
};
use crate::transport::sftp::askpass::{ExpectedAnswer, SecretRecipient, UnknownHostKey};

/// Lines of ssh's own text that are shown.
const MAX_SSH_MESSAGE_LINES: usize = 4;

/// A line of drawable text, in pieces with their roles.
pub(super) type RoleLine = Vec<(String, Role)>;

pub(super) fn draw(model: &Model, dialog: &QuestionDialog, canvas: &mut Canvas<'_>) {
    let width = canvas.room(2);
    let mut lines = vec![title_line(model, dialog, width)];
    if dialog.is_withdrawn {
        lines.push(own_line("Enter closes this.", Role::Text));
    } else {
        push_body(dialog, width, &mut lines);
    }
    let message = model.last_message.as_ref().filter(|_| !dialog.is_withdrawn);
    let message = message.map(|it| own_line(&fit_end_of_sentence(&it.text, width), Role::Warn));
    ignore_keys(model, &mut lines);
    lines.extend(message);
    draw_dialog(canvas, &lines);
}

/// Replaces the last line while keys are ignored: it would name keys. Returns whether they are.
pub(super) fn ignore_keys(model: &Model, lines: &mut Vec<RoleLine>) -> bool {
    let is_guarded = model.key_guard_notice_until().is_some();
    if is_guarded {
        lines.pop();
        lines.push(own_line(KEYS_IGNORED_NOTICE, Role::Warn));
    }
    is_guarded
}

/// Draws the lines of a dialog at the bottom of the screen.
pub(super) fn draw_dialog(canvas: &mut Canvas<'_>, lines: &[RoleLine]) {
    let height = lines.len() as u16 + 1;
    let y = canvas.area.height.saturating_sub(height);
    canvas.clear(canvas.rows(y, height));
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

fn title_line(model: &Model, dialog: &QuestionDialog, width: usize) -> RoleLine {
    let question = &dialog.question;
    let text = if dialog.is_withdrawn {
        describe_expired_question(model, question)
    } else {
        format!("{} wants {}", question.host, question.short_name())
    };
    let role = if dialog.is_withdrawn {
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
            format!("   {} waiting", format_count(others, "more question")),
            Role::Dim,
        ));
    }
    line
}

fn push_body(dialog: &QuestionDialog, width: usize, lines: &mut Vec<RoleLine>) {
    let question = &dialog.question;
    if let ExpectedAnswer::HostKey(key) = &question.expected_answer {
        push_host_key(key, width, lines);
    } else {
        let message_lines = question.text.as_bytes().split(|byte| *byte == b'\n');
        let message_lines = message_lines.filter(|line| !line.trim_ascii().is_empty());
        lines.extend(
            message_lines
                .flat_map(|line| wrap_untrusted(line, width))
                .take(MAX_SSH_MESSAGE_LINES),
        );
    }
    if question.is_repeated {
        lines.push(own_line("The previous answer was rejected.", Role::Warn));
    }
    let instruction = match &question.expected_answer {
        ExpectedAnswer::Secret(SecretRecipient::LocalSsh) => {
            "ssh on this machine asks: your answer does not leave it."
        }
        ExpectedAnswer::Secret(SecretRecipient::RemoteHost) => "Your answer is sent to this host.",
        ExpectedAnswer::HostKey(_) => {
            "Type yes, or the fingerprint: ssh then adds the key to known_hosts."
        }
        ExpectedAnswer::Consent => "Type yes or no.",
        ExpectedAnswer::NoAnswer => {
            "Nothing to type: touch the key or do what ssh asks, and this closes."
        }
    };
    lines.push(own_line(instruction, Role::Text));
    let typed = &dialog.answer;
    match &question.expected_answer {
        ExpectedAnswer::Secret(_) => lines.push(input_line(mask_answer(typed.char_count(), width))),
        // These answers are not secret, and a typed fingerprint has to be compared.
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
            text_part("answer  "),
            key_part("^u"),
            text_part("clear  "),
        ]);
    }
    keys.extend([
        key_part("Esc"),
        text_part("decline: the host stays disconnected"),
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

/// Returns one bullet per typed character, and the number of those that do not fit.
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
        // The end matters as much as the beginning, so a long value takes two lines.
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
    let compare = "Compare it with a fingerprint that you got over another channel.";
    lines.push(own_line(compare, Role::Text));
}

/// Makes untrusted text visible and breaks it into lines of `width` cells.
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
