//! A question of a host's, over the lower part of a screen.

use ratatui::layout::Rect;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::{Canvas, IGNORES_KEYS, count, cut, fit, shorten};
use crate::console::model::{Answering, Model};
use crate::console::theme::Role;
use crate::transport::sftp::askpass::{HostKey, Wants, Whose};
use crate::untrusted::{Untrusted, View};

/// The most lines of ssh's own words.
const WORDS: usize = 4;

/// Text in roles, made visible.
type Line = Vec<(String, Role)>;

pub(super) fn draw(model: &Model, answering: &Answering, canvas: &mut Canvas<'_>) {
    let width = usize::from(canvas.width()).saturating_sub(2);
    let mut lines = vec![title(model, answering, width)];
    if answering.gone {
        lines.push(ours(
            "What was typed is thrown away; Enter closes this.",
            Role::Text,
        ));
    } else {
        body(answering, width, &mut lines);
    }
    if model.ignores_keys_until().is_some() {
        lines.pop();
        lines.push(ours(IGNORES_KEYS, Role::Warn));
    }
    // The row of messages is below this.
    let said = model.message.as_ref().filter(|_| !answering.gone);
    lines.extend(said.map(|said| ours(&fit(&said.text, width), Role::Warn)));
    let height = lines.len() as u16 + 1;
    let y = canvas.area.height.saturating_sub(height);
    canvas.clear(Rect::new(0, y, canvas.area.width, height));
    canvas.rule(y);
    for (line, y) in lines.iter().zip(y + 1..) {
        let mut x = 1;
        for (text, role) in line {
            x = canvas.put(x, y, text, *role);
        }
    }
}

fn ours(text: &str, role: Role) -> Line {
    vec![(text.to_string(), role)]
}

fn title(model: &Model, answering: &Answering, width: usize) -> Line {
    let question = &answering.question;
    let text = match answering.gone {
        true => format!("{} no longer waits for {}", question.host, question.noun()),
        false => format!("{} wants {}", question.host, question.noun()),
    };
    let role = if answering.gone {
        Role::Warn
    } else {
        Role::Title
    };
    let mut line = ours(&cut(&text, width), role);
    let others = model
        .questions
        .iter()
        .filter(|it| it.id != question.id)
        .count() as u64;
    if others > 0 {
        line.push((
            format!("   {} after it", count(others, "question")),
            Role::Dim,
        ));
    }
    line
}

fn body(answering: &Answering, width: usize, lines: &mut Vec<Line>) {
    let question = &answering.question;
    if let Wants::HostKey(key) = &question.wants {
        host_key(key, width, lines);
    } else {
        let words = question.text.bytes().split(|byte| *byte == b'\n');
        let words = words.filter(|line| !line.trim_ascii().is_empty());
        lines.extend(words.flat_map(|line| wrapped(line, width)).take(WORDS));
    }
    if question.again {
        lines.push(ours("What was typed before was not accepted.", Role::Warn));
    }
    let say = match &question.wants {
        Wants::Secret(Whose::Machine) => {
            "ssh on this machine asks: what you type does not leave it."
        }
        Wants::Secret(Whose::Host) => "What you type is sent to the host that asks.",
        Wants::HostKey(_) => {
            "Type yes, or the fingerprint itself: then ssh adds the key to known_hosts."
        }
        Wants::Consent => "Type yes or no.",
        Wants::Nothing => "This goes by itself once that is done.",
    };
    lines.push(ours(say, Role::Text));
    let typed = &answering.typed;
    match &question.wants {
        Wants::Secret(_) => lines.push(input(bullets(typed.count(), width))),
        // These are no secrets; who compares a fingerprint must see it.
        Wants::HostKey(_) | Wants::Consent => {
            let typed = Untrusted::new(typed.expose()).visible();
            lines.push(input(shorten(&typed, width.saturating_sub(4))));
        }
        Wants::Nothing => {}
    }
    let mut keys = Vec::new();
    if question.wants != Wants::Nothing {
        keys.extend([key("Enter"), word("answers  "), key("^u"), word("clears  ")]);
    }
    keys.extend([key("Esc"), word("gives no answer: the host is left alone")]);
    lines.push(keys);
}

fn key(text: &str) -> (String, Role) {
    (text.to_string(), Role::Key)
}

fn word(text: &str) -> (String, Role) {
    (format!(" {text}"), Role::Text)
}

fn input(text: String) -> Line {
    vec![
        ("> ".to_string(), Role::Key),
        (text, Role::Prompt),
        ("_".to_string(), Role::Prompt),
    ]
}

/// As many bullets as characters were typed, and a number where they do not fit.
fn bullets(typed: usize, width: usize) -> String {
    let room = width.saturating_sub(12);
    match typed.checked_sub(room) {
        None | Some(0) => "•".repeat(typed),
        Some(more) => format!("{}+{more}", "•".repeat(room)),
    }
}

fn host_key(key: &HostKey, width: usize, lines: &mut Vec<Line>) {
    let fields = [
        ("host", &key.host),
        ("key", &key.kind),
        ("fingerprint", &key.fingerprint),
    ];
    for (name, value) in fields {
        // Its end counts as much as its beginning.
        let value = wrapped(value.bytes(), width.saturating_sub(13));
        for (number, part) in value.into_iter().take(2).enumerate() {
            let name = if number == 0 { name } else { "" };
            let mut line = ours(&format!("{name:<13}"), Role::Dim);
            line.extend(part);
            lines.push(line);
        }
    }
    let more = key
        .more
        .iter()
        .flat_map(|line| wrapped(line.bytes(), width));
    lines.extend(more.take(WORDS));
    let compare = "Compare it with what you were told by another way than this network.";
    lines.push(ours(compare, Role::Text));
}

/// Foreign text, made visible, in lines of a width.
fn wrapped(text: &[u8], width: usize) -> Vec<Line> {
    let mut lines = vec![Line::new()];
    let mut used = 0;
    for token in Untrusted::new(text).tokens(View::PROSE) {
        let role = if token.mark {
            Role::Revealed
        } else {
            Role::Text
        };
        for grapheme in token.text.graphemes(true) {
            let cells = grapheme.width();
            if used + cells > width && used > 0 {
                lines.push(Line::new());
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
