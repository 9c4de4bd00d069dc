//! All agents, the worst first.

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use super::{Canvas, clip, count, cut, fit, fit_start, shorten, size, split, wrap};
use crate::console::columns::{self, CellWidths, Column, ColumnSpan};
use crate::console::command::Command;
use crate::console::filter;
use crate::console::model::{AgentRow, HostProblem, Model, Sort, age, modified, scratch_lines};
use crate::console::theme::{Role, of_state};
use crate::engine::{LastRun, Observation, Outcome, State};
use crate::untrusted;

const PROGRAM: &str = "memory-shepherd  ";

/// The most cells of a filter that is quoted.
const FILTER: usize = 24;

/// The most lines of a sentence that stands where the agents would be.
const PARAGRAPH: usize = 4;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    header(model, canvas);
    canvas.rule(2);
    let mut y = 3;
    let errors = [&model.config_error, &model.preferences_error];
    for error in errors.into_iter().flatten() {
        let text = fit_start(&error.replace('\n', " "), usize::from(canvas.width()));
        canvas.put(0, y, &text, Role::Bad);
        y += 1;
    }
    let places = columns::places(&model.preferences.columns, canvas.width(), longest(model));
    for place in &places {
        cell(canvas, y, place, place.column.shape().head, Role::Heading);
    }
    y += 1;
    let height = model.list_height();
    if model.rows.is_empty() {
        let text = format!(
            "No agents in {}. See the example there, or run: memory-shepherd demo",
            model.fleet.config
        );
        paragraph(canvas, y + 1, &text, Role::Text);
    } else if model.order.is_empty() {
        let bad = model
            .rows
            .iter()
            .filter(|row| !row.state().is_fine())
            .count();
        let text = format!(
            "0 of {} match \"{}\" (Esc clears) - {} hidden",
            model.rows.len(),
            cut(&model.filter, FILTER),
            count(bad as u64, "not-ok agent")
        );
        let below = paragraph(canvas, y + 1, &text, Role::Warn);
        if let Some(fault) = filter::faults(&model.filter).first() {
            let hint = fault.hint.as_deref().unwrap_or_default();
            let text = format!("{}; {hint}", fault.message);
            paragraph(canvas, below, &text, Role::Warn);
        }
    }
    let shown = model.order.iter().skip(model.top).take(height);
    for (index, name) in shown.enumerate() {
        if let Some(agent) = model.row(name) {
            row(model, canvas, y + index as u16, agent, &places);
        }
    }
    let bottom = y + height as u16;
    canvas.rule(bottom);
    strip(model, canvas, bottom + 1);
}

/// Puts a sentence in as many lines as it needs, and returns the row below it.
fn paragraph(canvas: &mut Canvas<'_>, y: u16, text: &str, role: Role) -> u16 {
    let room = usize::from(canvas.width()) - 2;
    let lines = wrap(&untrusted::line(text), room, PARAGRAPH);
    for (line, y) in lines.iter().zip(y..) {
        canvas.put(1, y, line, role);
    }
    y + lines.len() as u16
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
        parts.push((fit(error, room), Role::Bad));
    } else if let Some(last) = model.log.runs.iter().find(|run| run.has_agents()) {
        let bad = last.bad();
        let what = match last.verb() {
            "reset" => "run",
            verb => verb,
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
        // One that was not typed today must not hide anybody unseen.
        let (kept, role) = match model.filter_kept {
            true => (" (kept; Esc clears)", Role::Warn),
            false => ("", Role::Dim),
        };
        parts.push((format!("filter: {}{kept}", cut(filter, FILTER)), role));
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

/// What the columns are sized by.
fn longest(model: &Model) -> CellWidths {
    let cells = |width: Option<usize>| width.unwrap_or(0).min(usize::from(u16::MAX / 4)) as u16;
    let seen = || model.rows.iter().filter_map(AgentRow::best);
    let runs = seen().filter_map(|seen| seen.last.as_ref());
    let hosts = seen().map(|seen| seen.host.width());
    let known = model.hosts.order().into_iter();
    let known = known.map(|status| model.hosts.label(&status.host).width());
    CellWidths {
        agent: cells(model.rows.iter().map(|row| row.name.width()).max()),
        host: cells(hosts.chain(known).max()),
        // One that is not up to date stands in parentheses.
        run: cells(runs.map(|last| "(09:00 )".len() + last.word().len()).max()),
        remote: seen().any(|seen| seen.host != "local"),
    }
}

/// The host of an agent, with user and port where another has the same name.
fn host_of(model: &Model, seen: &Observation) -> String {
    match model.hosts.of(&seen.agent) {
        Some(status) => model.hosts.label(&status.host),
        None => seen.host.clone(),
    }
}

fn cell(canvas: &mut Canvas<'_>, y: u16, place: &ColumnSpan, text: &str, role: Role) {
    if place.column.shape().right {
        canvas.put_right(place.x + place.width, y, text, role);
    } else {
        canvas.put(place.x, y, &shorten(text, usize::from(place.width)), role);
    }
}

fn row(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &AgentRow, places: &[ColumnSpan]) {
    let state = row.state();
    let here = model.cursor.as_ref() == Some(&row.name);
    if model.marks.contains(&row.name) {
        canvas.put(1, y, "*", Role::Mark);
    }
    if here {
        canvas.put(0, y, ">", Role::Text);
    }
    canvas.put(2, y, state.glyph().trim_end(), of_state(state));
    let trouble = model.cut_off(&row.name);
    for place in places {
        match (place.column, row.best()) {
            (Column::State, _) => cell(canvas, y, place, state.word(), of_state(state)),
            (Column::Agent, _) => {
                let name = shorten(&row.name, usize::from(place.width));
                canvas.put(place.x, y, &name, Role::Text);
                if here {
                    canvas.highlight(place.x, y, place.width);
                }
            }
            (Column::Trend, _) => {
                let trend = model.trends.get(&row.name);
                cell(
                    canvas,
                    y,
                    place,
                    &bars(trend.map_or(&[], Vec::as_slice)),
                    Role::Text,
                );
            }
            (_, None) => {}
            (Column::Why, Some(seen)) => why(canvas, y, place, row, seen, &trouble),
            (column, Some(seen)) => {
                // Of who cannot be reached the last that was seen is shown, and its age.
                let lasting = matches!(column, Column::Host | Column::LastRun);
                let known = row.last_read().filter(|_| trouble.is_some() && !lasting);
                let text = match (known, column) {
                    (Some(known), Column::Changed) => age(model.now.wall, known.read),
                    (Some(known), column) => value(model, known, column),
                    (None, column) => value(model, seen, column),
                };
                let stale = row.seen.is_none() || known.is_some();
                let text = match stale && text != "-" {
                    true => format!("({text})"),
                    false => text,
                };
                let role = match (column, &seen.last) {
                    (Column::LastRun, Some(last)) if last.outcome.is_bad() => Role::Bad,
                    _ if stale => Role::Dim,
                    _ => Role::Text,
                };
                cell(canvas, y, place, &text, role);
            }
        }
    }
}

fn why(
    canvas: &mut Canvas<'_>,
    y: u16,
    place: &ColumnSpan,
    row: &AgentRow,
    seen: &Observation,
    trouble: &Option<HostProblem>,
) {
    let room = usize::from(place.width);
    let text = match trouble {
        // Without room for both, the reason.
        Some(HostProblem {
            reason,
            next: Some(next),
        }) => {
            let both = format!("{}; {}", untrusted::line(reason), next.short());
            match both.width() > room {
                true => fit(reason, room),
                false => both,
            }
        }
        _ => fit(&seen.why, room),
    };
    let role = match row.seen {
        Some(_) => Role::Text,
        None => Role::Dim,
    };
    canvas.put(place.x, y, &clip(&text, room), role);
}

fn value(model: &Model, seen: &Observation, column: Column) -> String {
    let now = model.now.wall;
    let content = seen.content.as_ref();
    let text = match column {
        Column::Host => Some(host_of(model, seen)),
        Column::Size => content.map(|content| size(content.size)),
        Column::Limit => content.map(|content| share(content.size, seen.limit)),
        Column::Scratch => scratch_lines(seen).map(|lines| lines.to_string()),
        Column::Above => content
            .and_then(|content| content.boundary.as_ref())
            .map(|boundary| match boundary.drifted() {
                true => format!("+{} -{}", boundary.added, boundary.removed),
                false => "0".to_string(),
            }),
        Column::Changed => content.map(|content| age(now, modified(content.modified, now))),
        Column::LastRun => {
            let last = seen.last.as_ref();
            last.map(|last| format!("{} {}", clock(model, last.time), last_word(model, last)))
        }
        Column::State | Column::Agent | Column::Trend | Column::Why => None,
    };
    text.unwrap_or_else(|| "-".to_string())
}

/// How the last run of an agent ended, in a word. Only the log tells an undo from one
/// that took an undo back.
fn last_word(model: &Model, last: &LastRun) -> &'static str {
    match last.word() {
        "undone" if model.log.is_redo(&last.run) => "redone",
        word => word,
    }
}

/// Sizes as bars of eight heights, the largest the highest.
fn bars(sizes: &[u64]) -> String {
    let most = sizes.iter().copied().max().unwrap_or(0).max(1);
    let bar = |size: &u64| {
        let bars = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        bars[(u128::from(*size) * 7 / u128::from(most)) as usize]
    };
    match sizes {
        [] => "-".to_string(),
        sizes => sizes.iter().map(bar).collect(),
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

/// What there is to know of the agent under the cursor, and what to do about it.
fn strip(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let tall = model.strip_height() > 1;
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
        // The trouble was said already.
        let is_said = |why: &str| trouble.as_ref().is_some_and(|it| why.contains(&it.reason));
        let whys: Vec<&str> = seen.why.split("; ").filter(|why| !is_said(why)).collect();
        let gap = if trouble.is_some() { " - " } else { ": " };
        if !whys.is_empty() && (trouble.is_none() || tall) {
            text.push_str(&format!("{gap}{}", whys.join("; ")));
        }
    } else if let Some(lines) = scratch_lines(seen) {
        text.push_str(&format!(": {}", count(lines, "scratch line")));
    }
    if let Some(block) = seen
        .block
        .as_ref()
        .filter(|block| !seen.why.contains(&block.why))
    {
        text.push_str(&format!("; {}", block.why));
    }
    let room = usize::from(canvas.width()) - 2;
    // Of a baseline that is not the sealed one a key shows all of it.
    let block = seen.block.iter().filter(|_| seen.state != State::Tampered);
    let hints = block.flat_map(|block| &block.hints);
    let hints: Vec<String> = hints.map(untrusted::line).collect();
    let hint = hints.join("; ");
    let mut shown = untrusted::line(&text);
    // Where it has no line of its own, it follows.
    if !hint.is_empty() && (!tall || shown.width() > room) {
        shown.push_str(&format!("; {hint}"));
    }
    // What to press about a tampered baseline matters more than its digests.
    let (first, rest) = match tall && seen.state != State::Tampered {
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
    if tall {
        match rest {
            "" if !hint.is_empty() => canvas.put(1, y + 1, &clip(&hint, room), Role::Text),
            "" => canvas.put(
                1,
                y + 1,
                &clip(&next_step(model, row, seen), room),
                Role::Dim,
            ),
            rest => canvas.put(1, y + 1, &fit(rest, room), Role::Text),
        };
    }
}

/// What to press now.
fn next_step(model: &Model, row: &AgentRow, seen: &Observation) -> String {
    let key = |command| model.key(command);
    let (diff, plan) = (key(Command::OpenDiff), key(Command::PlanReset));
    match seen.state {
        State::Tampered => {
            let open = key(Command::Open);
            format!("{open} shows what differs from the last version that was sealed or pushed.")
        }
        State::Drifted => {
            format!("{diff} shows the lines that the agent changed, {plan} plans a reset.")
        }
        State::NoSep => {
            format!("{diff} shows the file, {plan} plans a reset that archives all of it.")
        }
        State::HostKey => {
            "Nothing was read or sent. Find out why the key changed before you trust it."
                .to_string()
        }
        State::Unreach => {
            let known = match row.last_read() {
                Some(_) => "these figures were read before",
                None => "nothing was ever read there",
            };
            let read = key(Command::Read);
            format!("The host did not answer; {known}. {read} tries it now.")
        }
        // What could be done about the cause is a hint, which comes instead of this.
        State::Error if seen.block.is_some() => {
            let read = key(Command::Read);
            format!("Resets are refused until that is corrected; {read} reads it again.")
        }
        State::Error => {
            format!("{plan} plans a reset, and says what becomes of what stands there.")
        }
        State::Missing => format!("{plan} plans to create it from the baseline."),
        State::Oversize => {
            format!("{plan} plans a reset that archives its notes, {diff} shows the diff.")
        }
        State::Busy => "A run holds its lock; wait until it has ended.".to_string(),
        State::Scratch => {
            let tab = key(Command::NextTab);
            format!("{diff} shows the diff, {tab} there the notes, {plan} plans a reset.")
        }
        State::Clean | State::Loading => "Nothing to do.".to_string(),
    }
}
