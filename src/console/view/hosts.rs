//! The hosts: how they stand, and everything that is known of one of them.

use std::time::Duration;

use super::fleet::fleet_name;
use super::{Canvas, count, fit, shorten, size, wrap};
use unicode_width::UnicodeWidthStr;

use crate::console::command::NO_HOSTS;
use crate::console::model::{Model, age, next_try, trouble, word};
use crate::console::theme::{Role, of_state};
use crate::engine::{HostStatus, Reachability, State};
use crate::untrusted;

/// A column behind the host's name, right-aligned: head and width.
type Column = (&'static str, u16);

const WIDE: [Column; 4] = [("AGENTS", 7), ("REPLY", 8), ("SINCE", 7), ("NEXT TRY", 10)];

/// Where it is narrow, the reason needs the room.
const NARROW: [Column; 4] = [("AGENTS", 7), ("REPLY", 6), ("SINCE", 6), ("NEXT", 5)];

fn columns(canvas: &Canvas<'_>) -> [Column; 4] {
    if canvas.width() < 100 { NARROW } else { WIDE }
}

/// Where the state word begins, behind cursor and glyph.
const STATE_X: u16 = 5;
const STATE_WIDTH: u16 = 11;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    header(model, canvas);
    canvas.rule(2);
    let order = model.hosts.order();
    let names = order.iter().map(|it| it.host.login().width()).max();
    let names = (names.unwrap_or(0) as u16 + 1).clamp(8, canvas.width() / 4);
    heads(canvas, names);
    if order.is_empty() {
        canvas.put(1, 4, NO_HOSTS, Role::Text);
    }
    let height = model.hosts_height();
    let here = model.hosts.cursor_index();
    let from = (here + 1).saturating_sub(height);
    for (index, status) in order.iter().enumerate().skip(from).take(height) {
        let y = 4 + (index - from) as u16;
        row(model, canvas, y, status, names, index == here);
    }
    let bottom = 4 + height as u16;
    canvas.rule(bottom);
    if let Some(status) = model.hosts.current() {
        details(model, canvas, bottom + 1, status);
    }
}

fn look(status: &HostStatus) -> (&'static str, Role) {
    if status.contact.asks.is_some() {
        return ("@ ", Role::Warn);
    }
    match status.contact.reach {
        Reachability::HostKey => (State::HostKey.glyph(), of_state(State::HostKey)),
        Reachability::Refused => (State::Error.glyph(), of_state(State::Error)),
        Reachability::Away => (State::Unreach.glyph(), of_state(State::Unreach)),
        Reachability::Unknown => (State::Loading.glyph(), of_state(State::Loading)),
        Reachability::Up => (State::Clean.glyph(), Role::Text),
    }
}

fn header(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put(0, 0, "HOSTS", Role::Title) + 2;
    let mut x = fleet_name(model, canvas, x, 0);
    let order = model.hosts.order();
    if canvas.width() >= 100 && !order.is_empty() {
        let all = format!("{}:", count(order.len() as u64, "host"));
        x = canvas.put(x, 0, &all, Role::Text) + 1;
    }
    let mut rest = order.as_slice();
    while let Some(first) = rest.first() {
        let (_, role) = look(first);
        let same = rest.iter().take_while(|it| word(it) == word(first)).count();
        x = canvas.put(x, 0, &format!("{same} {}", word(first)), role) + 1;
        rest = &rest[same..];
    }
}

fn heads(canvas: &mut Canvas<'_>, names: u16) {
    canvas.put(STATE_X, 3, "STATE", Role::Heading);
    canvas.put(STATE_X + STATE_WIDTH, 3, "HOST", Role::Heading);
    let mut x = STATE_X + STATE_WIDTH + names;
    for (head, width) in columns(canvas) {
        x += width;
        canvas.put_right(x, 3, head, Role::Heading);
    }
    canvas.put(x + 2, 3, "WHY", Role::Heading);
}

fn row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    status: &HostStatus,
    names: u16,
    here: bool,
) {
    let (glyph, role) = look(status);
    if here {
        canvas.put(0, y, ">", Role::Text);
    }
    canvas.put(2, y, glyph.trim_end(), role);
    canvas.put(STATE_X, y, word(status), role);
    let mut x = STATE_X + STATE_WIDTH;
    let room = usize::from(names) - 1;
    canvas.put(x, y, &shorten(&status.host.login(), room), Role::Text);
    if here {
        canvas.highlight(x, y, names - 1);
    }
    x += names;
    let contact = &status.contact;
    let now = model.now.wall;
    let keymap = &model.preferences.keymap;
    let none = || "-".to_string();
    let texts = [
        status.agents.len().to_string(),
        contact.latency.map_or_else(none, reply),
        contact.since.map_or_else(none, |since| age(now, since)),
        next_try(status, now, keymap),
    ];
    for (text, (_, width)) in texts.iter().zip(columns(canvas)) {
        x += width;
        canvas.put_right(x, y, text, Role::Text);
    }
    let room = usize::from(canvas.width().saturating_sub(x + 2));
    if let Some(reason) = contact.reason() {
        let asks = contact.asks.and_then(|_| trouble(status, now, keymap));
        let asks = asks.map(|asks| asks.to_string());
        // What answers it is in the column beside, too.
        let whole = asks.filter(|asks| asks.width() <= room);
        let text = whole.unwrap_or_else(|| fit(&reason, room));
        canvas.put(x + 2, y, &text, Role::Text);
    }
}

/// How long a reply took, in steps as coarse as it varies.
fn reply(latency: Duration) -> String {
    match latency.as_millis() {
        0 => "<1ms".to_string(),
        millis @ 1..10 => format!("{millis}ms"),
        millis @ 10..1000 => format!("{}ms", millis / 10 * 10),
        millis => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
    }
}

/// Everything that is known of a host, what matters most first.
fn details(model: &Model, canvas: &mut Canvas<'_>, y: u16, status: &HostStatus) {
    let contact = &status.contact;
    let mut parts: Vec<(&str, String, Role)> = Vec::new();
    let agents = count(status.agents.len() as u64, "agent");
    let names = status.agents.join(" ");
    parts.push((
        "host",
        format!("{}, {agents}: {names}", status.host.login()),
        Role::Text,
    ));
    if let Some(error) = &contact.error {
        let failures = match contact.failures {
            0 => String::new(),
            failures => format!(" ({} in a row)", count(failures.into(), "failure")),
        };
        let (_, role) = look(status);
        parts.push(("why", format!("{error}{failures}"), role));
        parts.extend(
            error
                .hints()
                .iter()
                .map(|hint| ("hint", hint.clone(), Role::Text)),
        );
    }
    let settings = match model.hosts.settings.get(&status.host) {
        None => ("asking ssh -G …".to_string(), Role::Dim),
        Some(Err(why)) => (why.clone(), Role::Warn),
        Some(Ok(settings)) if settings.is_empty() => ("nothing to tell".to_string(), Role::Dim),
        Some(Ok(settings)) => {
            let each = settings
                .iter()
                .map(|it| format!("{} {}", it.name, it.value));
            (each.collect::<Vec<_>>().join(" · "), Role::Text)
        }
    };
    parts.push(("ssh", settings.0, settings.1));
    let able = |there| contact.abilities.iter().filter(move |it| it.there == there);
    let names: Vec<&str> = able(true).map(|it| it.name).collect();
    if !contact.abilities.is_empty() {
        parts.push(("can", names.join(" "), Role::Text));
    }
    let lacks = able(false).map(|it| ("lacks", it.lacking(), Role::Warn));
    parts.extend(lacks);
    let limits = contact.limits.iter().map(|(name, limit)| match *name {
        "handles" => format!("{limit} {name}"),
        _ => format!("{name} {}", size(*limit)),
    });
    let limits: Vec<String> = limits.collect();
    if !limits.is_empty() {
        parts.push(("limits", limits.join(", "), Role::Text));
    }
    let height = model.host_height();
    let room = usize::from(canvas.width()) - 9;
    let count = parts.len();
    let mut line = 0;
    for (number, (label, text, role)) in parts.into_iter().enumerate() {
        // Each of those below gets a line, if there is one.
        let most = height.saturating_sub(line + (count - number - 1));
        let most = most.max(usize::from(line < height));
        let texts = wrap(&untrusted::line(&text), room, most);
        for (number, text) in texts.iter().take(most).enumerate() {
            let at = y + line as u16;
            if number == 0 {
                canvas.put(1, at, label, Role::Dim);
            }
            canvas.put(8, at, text, role);
            line += 1;
        }
    }
}
