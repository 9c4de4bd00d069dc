//! What happened: runs of the ledger and what was said in this session.

use super::fleet::{clock, fleet_name};
use super::{Canvas, count, cut, message};
use crate::console::command::Command;
use crate::console::model::{Level, LogRow, Model};
use crate::console::theme::Role;
use crate::engine::Outcome;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put(0, 0, "LOG", Role::Title) + 2;
    let x = fleet_name(model, canvas, x, 0);
    let runs = count(model.log.runs.len() as u64, "run");
    canvas.put(x, 0, &format!("{runs}, the youngest first"), Role::Text);
    if !model.log.query.is_empty() {
        canvas.put_right(
            canvas.width(),
            0,
            &format!("\"{}\"", cut(&model.log.query, 24)),
            Role::Dim,
        );
    }
    if let Some(error) = &model.ledger_error {
        canvas.put(0, 1, &cut(error, usize::from(canvas.width())), Role::Bad);
    }
    canvas.rule(2);
    let rows = model.log.rows();
    let height = model.text_height();
    if rows.is_empty() {
        canvas.put(
            1,
            4,
            "Nothing has happened yet; the first reset is recorded here.",
            Role::Text,
        );
    }
    let from = (model.log.cursor + 1).saturating_sub(height);
    let query = model.log.query.to_lowercase();
    for (index, row) in rows.iter().enumerate().skip(from).take(height) {
        let y = 3 + (index - from) as u16;
        let here = index == model.log.cursor;
        let text = row.text();
        let hit = !query.is_empty() && text.to_lowercase().contains(&query);
        if here {
            canvas.put(0, y, ">", Role::Text);
        }
        let time = row.time().with_timezone(model.now.wall.offset());
        let time = match clock(model, time).contains(':') {
            true => time.format("%H:%M:%S").to_string(),
            false => time.format("%m-%d %H:%M").to_string(),
        };
        canvas.put(2, y, &format!("{time:>11}"), Role::Dim);
        let (word, role) = match row {
            LogRow::Run(run) if !run.bad().is_empty() => match run.bad()[0].0 {
                Outcome::Refused => ("REFUSED", Role::Bad),
                Outcome::NotStarted => ("stopped", Role::Bad),
                _ => ("FAILED", Role::Bad),
            },
            LogRow::Run(_) => ("run", Role::Good),
            LogRow::Message(message) => match message.level {
                Level::Info => ("note", Role::Dim),
                Level::Warn => ("warn", Role::Warn),
                Level::Error => ("error", Role::Bad),
            },
        };
        canvas.put(15, y, word, role);
        let room = usize::from(canvas.width()).saturating_sub(23);
        canvas.put(
            23,
            y,
            &cut(&text, room),
            if hit { Role::Hit } else { Role::Text },
        );
        if here {
            canvas.highlight(2, y, 11);
        }
    }
    let bottom = canvas.area.height - 3;
    canvas.rule(bottom);
    if message(model, canvas, bottom + 1) {
        return;
    }
    if let Some(LogRow::Run(run)) = rows.get(model.log.cursor) {
        let who = run.events.first().map_or(String::new(), |event| {
            let trigger = format!("{:?}", event.trigger).to_lowercase();
            let key = model.key(Command::Open);
            format!("by {} ({trigger}); {key} opens the result", event.user)
        });
        canvas.foreign(1, bottom + 1, who.as_bytes(), Role::Dim);
    }
}
