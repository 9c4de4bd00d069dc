//! Draws the dialog about a timer: the choices, or the plan that waits for its confirmation.

use super::question::{RoleLine, draw_dialog, ignore_keys};
use crate::console::keys::keymap::CONFIRM_KEY;
use crate::console::model::Model;
use crate::console::screens::log::state::schedule::{TimerDialog, TimerSource};
use crate::console::screens::log::update::schedule::timer_run_refusal;
use crate::console::screens::log::view::schedule::format_moment;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, fit_end_of_sentence, fit_start_of_sentence};
use crate::unattended::schedule::{ScheduleAction, ScheduleChange, UnitScope};

pub(super) fn draw(model: &Model, dialog: &TimerDialog, canvas: &mut Canvas<'_>) {
    let width = canvas.room(0);
    let mut lines = match &dialog.plan {
        None => choice_lines(model, dialog, width),
        Some(plan) => plan_lines(model, dialog, &plan.plan, width),
    };
    if !ignore_keys(model, &mut lines) {
        let message = model.last_message.as_ref();
        lines.extend(message.map(|it| text_line(&it.text, Role::Warn, width)));
    }
    draw_dialog(canvas, &lines);
}

/// Returns a line of text.
fn text_line(text: &str, role: Role, width: usize) -> RoleLine {
    vec![(fit_end_of_sentence(text, width.saturating_sub(2)), role)]
}

/// Returns what a key does, or why it does nothing.
fn choice_line(key: char, text: &str, refusal: Option<String>, width: usize) -> RoleLine {
    let (text, roles) = match refusal {
        None => (text.to_string(), [Role::Key, Role::Text]),
        Some(why) => (format!("{text} ({why})"), [Role::Disabled, Role::Disabled]),
    };
    let text = fit_start_of_sentence(&text, width.saturating_sub(4));
    vec![(key.to_string(), roles[0]), (format!(" {text}"), roles[1])]
}

fn choice_lines(model: &Model, dialog: &TimerDialog, width: usize) -> Vec<RoleLine> {
    let row = &dialog.row;
    let source = match row.source {
        TimerSource::Manager(UnitScope::System) => ", a timer of the system",
        TimerSource::Manager(UnitScope::User) => ", a timer of the user",
        TimerSource::Unmanaged => ", by `schedule run` or cron",
    };
    let agents = match row.group.agents.as_slice() {
        [one] => format!("resets {one}"),
        many => format!("resets {} agents", many.len()),
    };
    let skip = match (row.skip_change(), row.group.next, row.group.after_next) {
        (Some(_), Some(next), Some(after)) => format!(
            "skip the run due {}; the one due {} runs",
            format_moment(model, next),
            format_moment(model, after)
        ),
        _ => "skip the next run".to_string(),
    };
    let no_skip = row
        .skip_change()
        .is_none()
        .then(|| row.no_skip_reason().to_string());
    let pause = match row.pause_change().action {
        ScheduleAction::Resume => {
            let pause = row.pause().map(|it| it.describe());
            let skip = row.group.skip.as_ref().map(|it| it.describe());
            let holds: Vec<String> = pause.into_iter().chain(skip).collect();
            format!("resume: {}", holds.join("; "))
        }
        _ => "pause: no scheduled reset until it is resumed".to_string(),
    };
    let run = "run now: opens the plan of a reset of its agents";
    let title = format!("{}{source}: {agents}", row.name);
    vec![
        text_line(&title, Role::Title, width),
        choice_line('r', run, timer_run_refusal(model, row), width),
        choice_line('s', &skip, no_skip, width),
        choice_line('p', &pause, None, width),
        text_line("Esc closes", Role::Dim, width),
    ]
}

fn plan_lines(
    model: &Model,
    dialog: &TimerDialog,
    change: &ScheduleChange,
    width: usize,
) -> Vec<RoleLine> {
    let verb = TimerDialog::verb(change);
    let line = format!("schedule {verb} {}", dialog.row.argument());
    let line = model.config.invocation.command_line(&line);
    let effect = match change.action {
        ScheduleAction::Resume => "The next run that is due resets again.",
        ScheduleAction::Pause => {
            "Timers go on, and their runs reset nothing; alerts name the pause."
        }
        ScheduleAction::Skip(_) => "Runs that belong to this due time reset nothing.",
    };
    let file = &dialog.file;
    let writes = format!("writes {file}, and a line of reset.log; runs no systemctl");
    vec![
        text_line(&change.describe(), Role::Title, width),
        text_line(&writes, Role::Text, width),
        text_line(effect, Role::Text, width),
        text_line(&format!("same as:  {line}"), Role::Dim, width),
        choice_line(CONFIRM_KEY, "confirms, Esc leaves", None, width),
    ]
}
