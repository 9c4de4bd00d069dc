//! What happened: runs of the ledger and what was said in this session.

use super::fleet::{clock, fleet_name};
use super::{Canvas, count, cut, fit, fit_start};
use crate::console::command::Command;
use crate::console::model::{LogRow, MAX_RUNS, MessageLevel, Model, RunSummary, age, twin};
use crate::console::theme::Role;
use crate::engine::Outcome;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put(0, 0, "LOG", Role::Title) + 2;
    let x = fleet_name(model, canvas, x, 0);
    let runs = count(model.log.runs.len() as u64, "run");
    let runs = match model.log.runs.len() {
        MAX_RUNS => format!("the last {runs}"),
        _ => runs,
    };
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
        canvas.put(0, 1, &fit(error, usize::from(canvas.width())), Role::Bad);
    }
    canvas.rule(2);
    let top = 3 + jobs(model, canvas, 3);
    let rows = model.log.rows();
    let height = model.log_height().saturating_sub(usize::from(top - 3));
    if rows.is_empty() {
        canvas.put(
            1,
            top + 1,
            "Nothing has happened yet; the first reset is recorded here.",
            Role::Text,
        );
    }
    let from = (model.log.cursor + 1).saturating_sub(height);
    let query = model.log.query.to_lowercase();
    for (index, row) in rows.iter().enumerate().skip(from).take(height) {
        let y = top + (index - from) as u16;
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
                MessageLevel::Info => ("note", Role::Dim),
                MessageLevel::Warn => ("warn", Role::Warn),
                MessageLevel::Error => ("error", Role::Bad),
            },
        };
        canvas.put(15, y, word, role);
        let room = usize::from(canvas.width()).saturating_sub(23);
        canvas.put(
            23,
            y,
            &match row {
                LogRow::Run(_) => cut(&text, room),
                LogRow::Message(_) => fit_start(&text, room),
            },
            if hit { Role::Hit } else { Role::Text },
        );
        if here {
            canvas.highlight(2, y, 11);
        }
    }
    // Below it what is known of the row, the message, the hints.
    let bottom = canvas.area.height - 4;
    canvas.rule(bottom);
    about(model, canvas, bottom + 1, rows.get(model.log.cursor));
}

/// More about the row under the cursor.
fn about(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: Option<&LogRow<'_>>) {
    match row {
        Some(LogRow::Run(run)) => about_run(model, canvas, y, run),
        // Here it has the whole width.
        Some(row @ LogRow::Message(_)) => {
            let room = usize::from(canvas.width()) - 2;
            canvas.put(1, y, &fit_start(&row.text(), room), Role::Text);
        }
        None => {}
    }
}

fn about_run(model: &Model, canvas: &mut Canvas<'_>, y: u16, run: &RunSummary) {
    let who = run.events.first().map_or(String::new(), |event| {
        let trigger = event.trigger.word();
        let key = model.key(Command::Open);
        format!("by {} ({trigger}); {key} opens it   same as:  ", event.user)
    });
    let x = canvas.foreign(1, y, who.as_bytes(), Role::Dim);
    let room = usize::from(canvas.width().saturating_sub(x));
    let command = cut(&twin::of_run(model, run), room);
    canvas.put(x, y, &command, Role::Text);
}

/// What goes on, above everything that has happened; how many rows it took.
fn jobs(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    let jobs = &model.jobs.shown;
    if jobs.is_empty() {
        return 0;
    }
    let most = model.log_height() / 3;
    let fit = match jobs.len() > most {
        true => most.saturating_sub(1),
        false => jobs.len(),
    };
    for (row, job) in (y..).zip(jobs.iter().take(fit)) {
        let time = job.since.wall.format("%H:%M:%S");
        canvas.put(2, row, &format!("{time:>11}"), Role::Dim);
        canvas.put(15, row, "now", Role::Busy);
        let since = age(model.now.wall, job.since.wall);
        let room = usize::from(canvas.width()).saturating_sub(24 + since.len() + 5);
        let x = canvas.put(23, row, &cut(&job.what, room), Role::Text) + 2;
        canvas.put(x, row, &format!("for {since}"), Role::Dim);
    }
    let mut rows = fit as u16;
    if fit < jobs.len() {
        let more = format!("and {} more", jobs.len() - fit);
        canvas.put(23, y + rows, &more, Role::Dim);
        rows += 1;
    }
    canvas.rule(y + rows);
    rows + 1
}
