//! All agents, the worst first.

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use super::{Canvas, clip, count, cut, fit, message, shorten, size, split};
use crate::console::model::{Model, Row, Sort, Trouble, age, modified};
use crate::console::theme::{Role, of_state};
use crate::engine::{Act, Observation, Outcome, State};
use crate::untrusted;

/// A column: its head, its width, and from which width of the screen on it is
/// shown. As the screen shrinks the least needed goes first.
#[derive(Clone, Copy)]
struct Column {
    head: &'static str,
    width: u16,
    from: u16,
    right: bool,
}

const HOST: Column = column("HOST", 8, 110, false);
const SIZE: Column = column("SIZE", 7, 96, true);
const LIMIT: Column = column("LIM", 5, 100, true);
const SCRATCH: Column = column("SCRATCH", 7, 0, true);
const ABOVE: Column = column("ABOVE---", 8, 0, true);
const CHANGED: Column = column("CHANGED", 7, 0, true);
const LAST: Column = column("LAST RUN", 17, 72, true);

const fn column(head: &'static str, width: u16, from: u16, right: bool) -> Column {
    Column {
        head,
        width,
        from,
        right,
    }
}

/// Where the state word begins, behind cursor, mark and glyph.
const STATE_X: u16 = 5;
const STATE_WIDTH: u16 = 10;

const PROGRAM: &str = "memory-shepherd  ";

/// What names keep, however long the hosts are.
const NAME_WIDTH: u16 = 16;

/// What WHY keeps, however long the names are.
const WHY_WIDTH: u16 = 23;

/// From this width on there is room for WHY; below, it is in the strip alone.
const WHY_FROM: u16 = 100;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    header(model, canvas);
    canvas.rule(2);
    let mut y = 3;
    if let Some(error) = &model.config_error {
        let text = cut(&error.replace('\n', " "), usize::from(canvas.width()));
        canvas.put(0, y, &text, Role::Bad);
        y += 1;
    }
    let layout = layout(model, canvas.width());
    heads(canvas, y, &layout);
    y += 1;
    let height = model.list_height();
    if model.rows.is_empty() {
        canvas.foreign(
            1,
            y + 1,
            format!(
                "No agents in {}. See the example there, or run: memory-shepherd demo",
                model.fleet.config
            )
            .as_bytes(),
            Role::Text,
        );
    } else if model.order.is_empty() {
        let bad = model
            .rows
            .iter()
            .filter(|row| !row.state().is_fine())
            .count();
        let text = format!(
            "0 of {} match \"{}\" (Esc clears) - {bad} not-ok agents hidden",
            model.rows.len(),
            model.filter
        );
        canvas.foreign(1, y + 1, text.as_bytes(), Role::Warn);
    }
    let shown = model.order.iter().skip(model.top).take(height);
    for (index, name) in shown.enumerate() {
        if let Some(agent) = model.row(name) {
            row(model, canvas, y + index as u16, agent, &layout);
        }
    }
    let bottom = y + height as u16;
    canvas.rule(bottom);
    strip(model, canvas, bottom + 1);
}

fn header(model: &Model, canvas: &mut Canvas<'_>) {
    let wide = canvas.width() >= 110;
    let loading = model.rows.iter().filter(|row| row.seen.is_none()).count();
    let fresh = match (loading, remembered_time(model)) {
        (0, _) => match cut_off(model) {
            0 => "live".to_string(),
            count => format!("live, {count} not"),
        },
        (_, Some(time)) => format!("from {}", time.format("%H:%M")),
        (count, None) => format!("reading {count}"),
    };
    let name = format!("{} ", model.fleet.name).width()
        + model.fleet.tag.as_ref().map_or(0, |tag| tag.width() + 3)
        + "RW unlocked  ".len();
    let room = usize::from(canvas.width()).saturating_sub(name + fresh.width() + 1);
    // As the screen shrinks the program's name goes first, then the total, then
    // what is fine becomes one number.
    let total = format!("{}: ", count(model.rows.len() as u64, "agent"));
    let mut all = counts(model);
    let length = |counts: &[(String, Role)]| {
        counts
            .iter()
            .map(|(text, _)| text.width() + 1)
            .sum::<usize>()
    };
    let spare = room.saturating_sub(length(&all));
    if length(&all) > room {
        all = folded(model);
    }
    let mut x = 0;
    if spare > total.len() + PROGRAM.len() {
        x = canvas.put(x, 0, PROGRAM, Role::Dim);
    }
    x = fleet_name(model, canvas, x, 0);
    if spare > total.len() {
        x = canvas.put(x, 0, &total, Role::Text);
    }
    canvas.put_right(canvas.width(), 0, &fresh, Role::Dim);
    let end = canvas.width().saturating_sub(fresh.width() as u16 + 1);
    for (index, (text, role)) in all.iter().enumerate() {
        let last = index + 1 == all.len();
        let room = usize::from(end.saturating_sub(x));
        // What does not fit is counted: "+3" more states.
        let reserve = if last { 0 } else { " +9".len() };
        if room < text.width() + reserve {
            canvas.put(x, 0, &format!("+{}", all.len() - index), Role::Text);
            break;
        }
        x = canvas.put(x, 0, text, *role) + 1;
    }
    let mut parts = Vec::new();
    if let Some(error) = &model.ledger_error {
        let room = usize::from(canvas.width()) / 2;
        parts.push((cut(error, room), Role::Bad));
    } else if let Some(last) = model.log.runs.first() {
        let bad = last.bad();
        let what = match last.events.first().map(|event| event.act) {
            Some(Act::Undo) => "undo",
            _ => "run",
        };
        let mut text = format!(
            "last {what} {}: {} ok",
            clock(model, last.time),
            last.count(Outcome::Ok)
        );
        let role = if bad.is_empty() { Role::Dim } else { Role::Bad };
        match last.count(Outcome::Unchanged) {
            0 => {}
            unchanged => text.push_str(&format!(", {unchanged} unchanged")),
        }
        for (outcome, agents) in bad {
            let more = match agents.len() {
                0 | 1 => String::new(),
                count => format!(" +{}", count - 1),
            };
            let name = shorten(agents.first().unwrap_or(&""), 20);
            let (count, word) = (agents.len(), outcome.counted());
            text.push_str(&format!(", {count} {word} {name}{more}"));
        }
        parts.push((text, role));
    }
    if !model.marks.is_empty() {
        let hidden = model.hidden_marks().len();
        let text = match hidden {
            0 => format!("marked {}", model.marks.len()),
            hidden => format!("marked {} ({hidden} hidden by filter)", model.marks.len()),
        };
        parts.push((text, Role::Mark));
    }
    if wide || !model.filter.is_empty() {
        let filter = if model.filter.is_empty() {
            "none"
        } else {
            &model.filter
        };
        parts.push((format!("filter: {}", cut(filter, 24)), Role::Dim));
    }
    if wide || model.sort != Sort::default() {
        let down = if model.reverse { ", reversed" } else { "" };
        parts.push((format!("sort: {}{down}", model.sort.word()), Role::Dim));
    }
    let mut x = 0;
    for (text, role) in parts {
        x = canvas.put(x, 1, &text, role) + 3;
    }
}

/// The fleet's name and tag, and whether it can be changed: on every screen.
pub(super) fn fleet_name(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
    let mut x = canvas.foreign(x, y, model.fleet.name.as_bytes(), Role::Title) + 1;
    if let Some(tag) = &model.fleet.tag {
        x = canvas.foreign(x, y, format!("[{tag}]").as_bytes(), Role::Tag) + 1;
    }
    let (word, role) = match (model.why_read_only().is_some(), model.unlocked()) {
        (true, _) => ("RO", Role::Tag),
        (false, true) => ("RW unlocked", Role::Warn),
        (false, false) => ("RW", Role::Text),
    };
    canvas.put(x, y, word, role) + 2
}

/// Counts of the header, the worst first.
fn counts(model: &Model) -> Vec<(String, Role)> {
    model.counts().into_iter().map(words).collect()
}

/// The same with one number for what is fine.
fn folded(model: &Model) -> Vec<(String, Role)> {
    let fine = |state: State| matches!(state, State::Scratch | State::Clean);
    let (ok, bad): (Vec<_>, Vec<_>) = model
        .counts()
        .into_iter()
        .partition(|(state, _)| fine(*state));
    let ok: usize = ok.into_iter().map(|(_, number)| number).sum();
    bad.into_iter()
        .map(words)
        .chain([(format!("{ok} ok"), Role::Text)])
        .collect()
}

fn words((state, number): (State, usize)) -> (String, Role) {
    (format!("{number} {state}"), of_state(state))
}

/// How many agents cannot be reached, so that what is shown of them is old.
fn cut_off(model: &Model) -> usize {
    let names = model.rows.iter().map(|row| &row.name);
    names.filter(|name| model.cut_off(name).is_some()).count()
}

fn remembered_time(model: &Model) -> Option<DateTime<FixedOffset>> {
    model
        .rows
        .iter()
        .filter_map(|row| row.remembered.as_ref())
        .map(|seen| seen.read)
        .max()
}

/// Where everything of a row is, by what the rows hold.
struct Layout {
    /// Cells of the names.
    names: u16,
    columns: Vec<Column>,
}

fn layout(model: &Model, width: u16) -> Layout {
    let rows = model.rows.iter();
    let longest = rows.clone().map(|row| row.name.width()).max();
    let names = longest.unwrap_or(0) as u16 + 1;
    let runs = rows.filter_map(|row| row.best()?.last.as_ref());
    // One that is not up to date stands in parentheses.
    let runs = runs.map(|last| "(09:00 )".len() + last.word().len()).max();
    let last = Column {
        width: (runs.unwrap_or(0) as u16).max(LAST.head.len() as u16),
        ..LAST
    };
    let mut columns = vec![HOST, SIZE, LIMIT, SCRATCH, ABOVE, CHANGED, last];
    columns.retain(|column| width >= column.from && column.head != HOST.head);
    let fixed: u16 = columns.iter().map(|column| column.width + 1).sum();
    let why = if width >= WHY_FROM { WHY_WIDTH } else { 0 };
    let room = width.saturating_sub(STATE_X + STATE_WIDTH + fixed + why);
    // Of both, hosts are whole first: of a name enough is left to know it by.
    let spare = room.saturating_sub(names.min(NAME_WIDTH) + 1);
    let hosts = host_width(model);
    let remote = model.rows.iter().filter_map(Row::best);
    let remote = remote
        .map(|seen| seen.host.as_str())
        .any(|host| host != "local");
    let least = hosts.min(HOST.width);
    let host = match width >= HOST.from || (remote && spare >= least) {
        true => hosts.min(spare.max(HOST.width)).max(HOST.head.len() as u16),
        false => 0,
    };
    if host == 0 {
        return Layout {
            names: names.clamp(8, room.max(8)),
            columns,
        };
    }
    columns.insert(
        0,
        Column {
            width: host,
            ..HOST
        },
    );
    Layout {
        names: names.clamp(8, room.saturating_sub(host + 1).max(8)),
        columns,
    }
}

/// The cells of the longest host.
fn host_width(model: &Model) -> u16 {
    let rows = model.rows.iter().filter_map(|row| row.best());
    let rows = rows.map(|seen| seen.host.width());
    let hosts = model.hosts.order().into_iter();
    let hosts = hosts.map(|status| model.hosts.label(&status.host).width());
    rows.chain(hosts).max().unwrap_or(0) as u16
}

/// The host of an agent, with user and port where another has the same name.
fn host_of(model: &Model, seen: &Observation) -> String {
    match model.hosts.of(&seen.agent) {
        Some(status) => model.hosts.label(&status.host),
        None => seen.host.clone(),
    }
}

fn heads(canvas: &mut Canvas<'_>, y: u16, layout: &Layout) {
    canvas.put(STATE_X, y, "STATE", Role::Heading);
    let mut x = STATE_X + STATE_WIDTH;
    canvas.put(x, y, "AGENT", Role::Heading);
    x += layout.names;
    for column in &layout.columns {
        cell(canvas, x, y, column, column.head, Role::Heading);
        x += column.width + 1;
    }
    if canvas.width() >= WHY_FROM {
        canvas.put(x + 1, y, "WHY", Role::Heading);
    }
}

fn cell(canvas: &mut Canvas<'_>, x: u16, y: u16, column: &Column, text: &str, role: Role) {
    if column.right {
        canvas.put_right(x + column.width, y, text, role);
    } else {
        canvas.put(x, y, &shorten(text, usize::from(column.width)), role);
    }
}

fn row(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &Row, layout: &Layout) {
    let names = layout.names;
    let state = row.state();
    let role = of_state(state);
    let here = model.cursor.as_ref() == Some(&row.name);
    if model.marks.contains(&row.name) {
        canvas.put(1, y, "*", Role::Mark);
    }
    if here {
        canvas.put(0, y, ">", Role::Text);
    }
    canvas.put(2, y, state.glyph().trim_end(), role);
    canvas.put(STATE_X, y, state.word(), role);
    let name_x = STATE_X + STATE_WIDTH;
    canvas.put(
        name_x,
        y,
        &shorten(&row.name, usize::from(names) - 1),
        Role::Text,
    );
    if here {
        canvas.highlight(name_x, y, names - 1);
    }
    let mut x = name_x + names;
    let Some(seen) = row.best() else {
        return;
    };
    let trouble = model.cut_off(&row.name);
    // Of who cannot be reached the last that was seen is shown, and its age.
    let known = row.last_read().filter(|_| trouble.is_some());
    let stale = row.seen.is_none();
    let rest = if stale { Role::Dim } else { Role::Text };
    for column in &layout.columns {
        let old = known.filter(|_| !matches!(column.head, "HOST" | "LAST RUN"));
        let text = match (old, column.head) {
            (Some(known), "CHANGED") => age(model.now.wall, known.read),
            (Some(known), head) => value(model, known, head),
            (None, head) => value(model, seen, head),
        };
        let stale = stale || old.is_some();
        let text = if stale && text != "-" {
            format!("({text})")
        } else {
            text
        };
        let rest = if stale { Role::Dim } else { rest };
        let role = match (column.head, &seen.last) {
            ("LAST RUN", Some(last))
                if !matches!(last.outcome, Outcome::Ok | Outcome::Unchanged) =>
            {
                Role::Bad
            }
            _ => rest,
        };
        cell(canvas, x, y, column, &text, role);
        x += column.width + 1;
    }
    if canvas.width() >= WHY_FROM {
        let room = usize::from(canvas.width().saturating_sub(x + 1));
        let text = match &trouble {
            Some(Trouble {
                reason,
                next: Some(next),
            }) => {
                // Without room for both, the reason.
                let both = format!("{}; {}", untrusted::line(reason), next.short());
                match both.width() > room {
                    true => fit(reason, room),
                    false => both,
                }
            }
            _ => fit(&seen.why, room),
        };
        canvas.put(x + 1, y, &clip(&text, room), rest);
    }
}

fn value(model: &Model, seen: &Observation, head: &str) -> String {
    let none = || "-".to_string();
    let now = model.now.wall;
    let Some(content) = &seen.content else {
        return match (head, &seen.last) {
            ("HOST", _) => host_of(model, seen),
            ("LAST RUN", Some(last)) => {
                format!("{} {}", clock(model, last.time), last.word())
            }
            _ => none(),
        };
    };
    match head {
        "HOST" => host_of(model, seen),
        "SIZE" => size(content.size),
        "LIM" => share(content.size, seen.limit),
        "SCRATCH" => content.scratch_lines.to_string(),
        "ABOVE---" => match &content.boundary {
            Some(boundary) if boundary.drifted() => {
                format!("+{} -{}", boundary.added, boundary.removed)
            }
            Some(_) => "0".to_string(),
            None => none(),
        },
        "CHANGED" => age(now, modified(content.modified, now)),
        _ => match &seen.last {
            Some(last) => format!("{} {}", clock(model, last.time), last.word()),
            None => none(),
        },
    }
}

/// How much of a limit is used, in four cells.
pub(super) fn share(size: u64, limit: u64) -> String {
    match size.saturating_mul(100) / limit.max(1) {
        percent @ 0..1000 => format!("{percent}%"),
        _ => ">9x".to_string(),
    }
}

/// A time of today as `09:00`, an older one as `11-20`.
pub(super) fn clock(model: &Model, time: DateTime<FixedOffset>) -> String {
    let time = time.with_timezone(model.now.wall.offset());
    match time.date_naive() == model.now.wall.date_naive() {
        true => time.format("%H:%M").to_string(),
        false => time.format("%m-%d").to_string(),
    }
}

/// What there is to know of the agent under the cursor, and what was said last.
fn strip(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let tall = model.strip_height() > 1;
    let said = message(model, canvas, y + u16::from(tall));
    // In one row it takes the place of the rest until the next key.
    if said && !tall {
        return;
    }
    let Some(row) = model.strip.as_deref().and_then(|name| model.row(name)) else {
        return;
    };
    let Some(seen) = row.best() else {
        canvas.foreign(
            1,
            y,
            format!("{}: not read yet", row.name).as_bytes(),
            Role::Dim,
        );
        return;
    };
    let mut text = row.name.clone();
    if seen.block.is_some() {
        text.push_str(" BLOCKED");
    }
    let trouble = model.cut_off(&row.name);
    if let Some(trouble) = &trouble {
        // The reason first, and in whole sentences if there is room.
        text.push_str(&format!(": {trouble}"));
    }
    if !seen.why.is_empty() {
        let why = trouble.as_ref().is_none_or(|it| it.reason != seen.why);
        let gap = if trouble.is_some() { " - " } else { ": " };
        if why && (trouble.is_none() || tall) {
            text.push_str(&format!("{gap}{}", seen.why));
        }
    } else if let Some(content) = &seen.content {
        let lines = count(content.scratch_lines, "scratch line");
        text.push_str(&format!(": {lines}"));
    }
    if let Some(block) = seen
        .block
        .as_ref()
        .filter(|block| !seen.why.contains(&block.why))
    {
        text.push_str(&format!("; {}", block.why));
    }
    let room = usize::from(canvas.width()) - 2;
    let hints = seen.block.iter().flat_map(|block| &block.hints);
    let hints: Vec<String> = hints.map(untrusted::line).collect();
    let hint = hints.join("; ");
    let mut shown = untrusted::line(&text);
    // Where it has no line of its own, it follows.
    if !hint.is_empty() && (!tall || shown.width() > room) {
        shown.push_str(&format!("; {hint}"));
    }
    let (first, rest) = match tall {
        true => split(&shown, room),
        false => (shown.as_str(), ""),
    };
    let first = match first.width() > room {
        true => {
            let (name, why) = shown.split_at(shown.find(": ").map_or(0, |at| at + 2));
            format!("{name}{}", fit(why, room.saturating_sub(name.width())))
        }
        false => first.to_string(),
    };
    canvas.put(1, y, &clip(&first, room), Role::Text);
    canvas.put(1, y, &cut(&row.name, room), of_state(row.state()));
    if tall && !said {
        match rest {
            "" if !hint.is_empty() => canvas.put(1, y + 1, &clip(&hint, room), Role::Text),
            "" => canvas.put(1, y + 1, next_step(row, seen), Role::Dim),
            rest => canvas.put(1, y + 1, &fit(rest, room), Role::Text),
        };
    }
}

/// What to press now.
fn next_step(row: &Row, seen: &Observation) -> &'static str {
    match seen.state {
        State::Tampered => {
            "The baseline file is not what was sealed. Nothing was changed; compare it before you seal it again."
        }
        State::Drifted => {
            "The agent changed what stands above the separator. d shows the lines, X plans a reset."
        }
        State::NoSep => {
            "There is no separator line. d shows the file, X plans a reset that archives all of it."
        }
        State::HostKey => {
            "The host shows another key than the one that is known. Nothing was read or sent; find out why before you trust it."
        }
        State::Unreach if row.last_read().is_none() => {
            "The host did not answer; nothing was ever seen there."
        }
        State::Unreach => "The host did not answer; what is shown is the last that was seen.",
        State::Error => "It cannot be read as it is; nothing was changed.",
        State::Missing => {
            "The folder is there, the file is not. X plans to create it from the baseline."
        }
        State::Oversize => {
            "The agent has to read all of this. X plans a reset that archives its notes."
        }
        State::Busy => "A run holds its lock. Wait until it has ended.",
        State::Scratch => "d shows the diff, Tab there the notes, X plans a reset.",
        State::Clean | State::Loading => "Nothing to do.",
    }
}
